//! The answers in a file are of what was asked for, and say what they lack.

use super::*;
use crate::journal::SinkStart;
use crate::query::timeline::embed::{Contents, Item, Timeline, embed};
use crate::query::{Log, Question};

/// The data of a file, which somebody may get who may see no more.
pub(super) fn filed(dir: &Path, query: &str) -> serde_json::Value {
    let clock = Clock { now: Timestamp::now(), zone: TimeZone::UTC };
    let log = Log::new(dir.to_owned(), clock, &|note| panic!("{note}"), &|| false);
    let mut data = serde_json::Map::new();
    let put = &mut |item| {
        if let Item::Answer(answer) = item {
            data.insert(answer.question, serde_json::from_str(answer.answer.get()).unwrap());
        }
        Ok(())
    };
    Timeline { window: window(query), max_bytes: 1 << 20 }.answer(&log, put).unwrap();
    data.into()
}

#[tokio::test]
async fn a_file_names_nothing_but_what_was_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, thread, source) = begun(dir.path()).await;
    write(&journal, &source, 0..400).await;
    let other = journal.source(&others("services", Some("n3"))).await.unwrap().0;
    let sink = journal.sink("archive", "file", SinkStart::Now).await.unwrap();
    journal.flush().await.unwrap();
    // However many objects a command names, what comes after them counts.
    let many = format!("{}namespace=n1", "what=po/p1&".repeat(300));
    for query in ["namespace=n1", "what=po/p1", "what=pods&namespace=n1", &many] {
        let data = filed(dir.path(), query);
        let overview = &data["overview"];
        assert_eq!(overview["namespaces"], serde_json::json!(["n1"]), "{query}");
        assert_eq!(overview["kinds"].as_array().unwrap().len(), 1, "{query}: {overview}");
        let text = data.to_string();
        for name in ["\"n0\"", "\"n3\"", "\"p2\"", "services", "archive"] {
            assert!(!text.contains(name), "{query}: {name} in {text}");
        }
        assert!(!data["writers"]["writers"].as_array().unwrap().is_empty(), "{query}");
        assert_eq!(data["writers"]["since"], data["lanes"]["since"], "{query}");
    }
    let data = filed(dir.path(), "");
    assert_eq!(data["overview"]["namespaces"].as_array().unwrap().len(), 4);
    assert_eq!(data["overview"]["sinks"][0]["name"], "archive");
    // Who wrote what is of what the expression says.
    let data = filed(dir.path(), "where=name == \"p7\"");
    let writers = data["writers"]["writers"].as_array().unwrap();
    assert!(writers.len() == 1 && writers[0]["name"] == "p7", "{writers:?}");
    drop((journal, source, other, sink));
    thread.join().unwrap();
}

/// A file says why something is not in it, and from when on it is whole.
#[tokio::test]
async fn a_file_says_what_there_was_no_time_for() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, thread, source) = begun(dir.path()).await;
    write(&journal, &source, 0..2 * PART + 50).await;
    let mut opened = opened(&journal, true);
    let mut left_out = |most: usize, deadline: Instant| {
        (opened.index, opened.deadline) = (Index::default(), deadline);
        let clock = opened.clock.clone();
        let log = Log::new(dir.path().to_owned(), clock, &|note| panic!("{note}"), &|| false);
        let mut contents = Contents::default();
        let question = Timeline { window: Window::default(), max_bytes: most };
        let put = &mut |item| {
            if let Item::Contents(found) = item {
                contents = found;
            }
            Ok(())
        };
        embed(&mut opened, &question, &log, put).unwrap();
        contents.left_out.unwrap()
    };
    let said = left_out(1 << 20, Instant::now());
    assert!(said.contains("without what changed, because it took more than 120 seconds"), "{said}");
    assert!(said.contains("was not looked at") && !said.contains("MiB"), "{said}");
    let said = left_out(1 << 10, later());
    assert!(said.contains("because it would have more than 1.0 KiB") && !said.contains("seconds"), "{said}");
    let first = journal.reader().unwrap().time_of(Seq(2 * PART + 1)).unwrap().unwrap();
    let said = left_out(1, Instant::now());
    assert!(said.contains(&format!("before {} ", crate::query::stamp(first))), "{said}");
    drop((opened, journal, source));
    thread.join().unwrap();
}
