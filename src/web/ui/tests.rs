//! Turns of readers, and the ways by which an answer comes.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::query::Query;
use super::{Access, JournalView, MOST_READS, OF_ONE, Site, Views, api, clock};
use crate::core::model::Seq;
use crate::core::rights::Sight;
use crate::journal::Journal;
use crate::query::churn::tests::Story;
use crate::query::render::clock::Clock;
use crate::query::{self as questions, Log};

/// A disk that hangs is of one cluster, and so is the page that does not come; however many hang.
#[tokio::test]
async fn a_journal_that_hangs_takes_the_page_of_no_other() {
    let dirs = [(); 4].map(|()| tempfile::tempdir().unwrap());
    for dir in &dirs {
        let (journal, thread) = Journal::open(dir.path()).unwrap();
        drop(journal);
        thread.join().unwrap();
    }
    let views = dirs.each_ref().map(|dir| Arc::new(JournalView::new(dir.path().to_owned())));
    let mut site = Site::new(Views::One(Arc::clone(&views[0])), Access::Everybody, Vec::new());
    // Whoever waits for a turn of all gets it once it is clear that somebody hangs.
    site.hangs = Duration::from_millis(100);
    let (release, hung) = mpsc::channel::<()>();
    let hung = Arc::new(Mutex::new(hung));
    let [other, hanging @ ..] = &views;
    assert!(hanging.len() * OF_ONE > MOST_READS);
    let mut waiting: Vec<_> = hanging
        .iter()
        .flat_map(|view| [view; MOST_READS])
        .map(|view| {
            let hung = Arc::clone(&hung);
            Box::pin(site.read((view, &Sight::All), false, move |_| {
                assert!(hung.lock().unwrap().recv().is_err());
                Ok(())
            }))
        })
        .collect();
    for read in &mut waiting {
        assert!(futures::poll!(read.as_mut()).is_pending());
    }
    let answered = site.read((other, &Sight::All), false, |log| Ok(log.open()?.head()?)).await;
    drop(release);
    assert_eq!(answered, Ok(Seq(0)));
    for read in waiting {
        read.await.unwrap();
    }
}

/// The answer of the page's API, as a browser gets it.
async fn by_page(log: &Log<'_>, question: &str) -> Value {
    let uri = format!("/api/v1/{question}").parse().unwrap();
    let name = question.split('?').next().unwrap();
    let response = api(log, name, &Query::read(&uri).unwrap()).unwrap();
    let body = axum::body::to_bytes(response.into_body(), 1 << 24).await.unwrap();
    serde_json::from_slice(&body).unwrap()
}

/// The items of the answer that `--server` gets.
fn by_server(log: &Log<'_>, name: &str, question: &Value) -> Vec<Value> {
    let mut items = Vec::new();
    let put = &mut |item: Box<serde_json::value::RawValue>| {
        items.push(serde_json::from_str(item.get()).unwrap());
        Ok(())
    };
    questions::answer(name, &question.to_string(), log, put).unwrap();
    items
}

/// Writes a log in which objects of three kinds come, change and go as a number says.
async fn random(dir: &Path, seed: u64) {
    let mut dice = seed;
    let mut roll = move |sides: usize| {
        // A step of an LCG with the constants of Knuth's MMIX.
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(dice >> 33).unwrap() % sides
    };
    Story::play(dir, &[], async |story| {
        for turn in 0..60 {
            let kind = ["deployments", "configmaps", "leases"][roll(3)];
            let name = format!("{}/{}", ["shop", "pay"][roll(2)], ["a", "b", "c"][roll(3)]);
            let manager = ["flux", "kubectl", "helm"][roll(3)];
            let value = roll(3);
            story
                .write(kind, &name, manager, |object| object["spec"] = json!({"value": value, "turn": turn / 9}))
                .await;
            story.pass(roll(90) as u64 + 1).await;
        }
    })
    .await;
}

/// The page, a file and `--server` give one answer to each question, whatever the log holds.
#[tokio::test(start_paused = true)]
async fn every_way_gives_the_same_answer() {
    for seed in 1..=8 {
        let dir = tempfile::tempdir().unwrap();
        random(dir.path(), seed).await;
        // One present for all: what lasts would grow.
        let now = Clock { now: Timestamp::now(), ..clock() };
        let log = Log::new(dir.path().to_owned(), Sight::All, now, &|_| (), &|| false);
        let window = json!({"types": [], "quiet": false});
        let file: BTreeMap<String, Value> =
            by_server(&log, "timeline", &json!({"window": window, "max_bytes": 1 << 24}))
                .into_iter()
                .filter_map(|item| {
                    let answer = item.get("answer")?;
                    Some((answer["question"].as_str()?.to_owned(), answer["answer"].clone()))
                })
                .collect();
        let of_file = |question: &str| file.get(question).cloned();
        let since = file["lanes"]["since"].as_str().unwrap();
        let mut asked = vec![
            (
                "lanes?lanes=5000&marks=100000".to_owned(),
                "lanes",
                json!({"lanes": 5000, "marks": 100_000}),
                of_file("lanes"),
            ),
            ("histogram?buckets=240".to_owned(), "histogram", json!({"buckets": 240}), of_file("histogram")),
            ("entries?limit=1000".to_owned(), "entries", json!({"limit": 1000}), of_file("entries")),
            ("state?limit=2000".to_owned(), "state", json!({"limit": 2000}), of_file("state")),
            (
                format!("changes?limit=2000&from={since}"),
                "changes",
                json!({"limit": 2000, "from": {"time": since}}),
                of_file("changes"),
            ),
            ("diff?from=3&to=9".to_owned(), "compare", json!({"from": 3, "to": 9}), None),
        ];
        for lane in file["lanes"]["lanes"].as_array().unwrap() {
            let text = |key: &str| lane[key].as_str().unwrap().to_owned();
            let (resource, namespace, name, id) = (text("resource"), text("namespace"), text("name"), text("id"));
            let query = format!("object?resource={resource}&namespace={namespace}&name={name}");
            let question = json!({"resource": resource, "namespace": namespace, "name": name});
            asked.push((query, "object", question, of_file(&format!("object/{id}"))));
            for mark in lane["marks"].as_array().unwrap() {
                let seq = mark["seq"].as_u64().unwrap();
                // A file has no entries of other objects beside it.
                let mut kept = of_file(&format!("entry/{seq}")).unwrap();
                let (by_page, question) =
                    (by_page(&log, &format!("entry?seq={seq}")).await, json!({"seq": seq, "neighbours": true}));
                kept["neighbours"] = by_page["neighbours"].clone();
                // It leads from one of its entries to another, past those that it does not have.
                for key in ["previous", "next"] {
                    assert!(kept[key].as_u64().is_none_or(|seq| file.contains_key(&format!("entry/{seq}"))), "{kept}");
                    kept[key] = by_page[key].clone();
                }
                asked.push((format!("entry?seq={seq}"), "entry", question, Some(kept)));
            }
        }
        assert!(asked.len() > 20, "there is nothing to ask");
        for (query, name, question, kept) in asked {
            let (page, server) = (by_page(&log, &query).await, by_server(&log, name, &question));
            assert_eq!(server, std::slice::from_ref(&page), "{query}, of log {seed}");
            if let Some(kept) = kept {
                assert_eq!(kept, page, "{query}, in a file of log {seed}");
            }
        }
    }
}
