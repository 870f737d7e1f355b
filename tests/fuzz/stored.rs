//! What lies on a disk: the file of a sink, the database, compressed entries.

use std::fs;
use std::path::Path;
use std::time::Duration;

use decklog::core::model::{EntryType, Observed, Redacted, ResourceVersion, Seq, SourceSpec, Verb};
use decklog::core::wire::Entry;
use decklog::journal::{Codec, Journal, Reader, Sharing, WatchChange, restore};
use decklog::sim::shared_log::Engine;
use decklog::sink::registry::SinkKind;
use decklog::sink::{Item, LogPosition};
use fastrand::Rng;
use serde_json::json;

use crate::harness::{corpus, fuzz, two};
use crate::json::pods;

fn line(seq: u64) -> String {
    let (_, whole) = corpus("tail").into_iter().find(|(path, _)| path.ends_with("whole")).unwrap();
    let first = String::from_utf8(two(&whole).0.to_vec()).unwrap();
    assert!(first.contains("\"seq\":1,"));
    first.replace("\"seq\":1,", &format!("\"seq\":{seq},"))
}

/// What the end of a file says is never more than the whole lines in it, and nothing that is whole is cut off.
#[test]
fn tail() {
    let words = [
        "\n",
        "\0",
        "{\"v\":1,\"seq\":",
        "{\"v\":1,\"seq\":2,",
        "{\"v\":2,",
        "}",
        "\"epoch\":\"other\"",
        "999999999999",
        "text\n",
    ];
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.jsonl");
    let kind: SinkKind = serde_json::from_value(json!({"type": "file", "path": path})).unwrap();
    let next = Item::new(Seq(1 << 40), EntryType::Added, line(1 << 40).into());
    fuzz("tail", 700, &words, |input| {
        fs::write(&path, input).unwrap();
        let mut sink = kind.open().unwrap();
        let cursor =
            LogPosition { epoch: "e".to_owned(), seq: Seq(u64::from(crc32fast::hash(input) % 5)), entry: None };
        let held = runtime.block_on(sink.position(&cursor));
        let after = fs::read(&path).unwrap();
        assert!(input.starts_with(&after), "the file is another one");
        let Ok(held) = held else { return assert_eq!(after, input, "what is not ours is not touched") };
        assert!(after.is_empty() || after.ends_with(b"\n"));
        let last = after.strip_suffix(b"\n").map(|text| text.rsplit(|byte| *byte == b'\n').next().unwrap());
        let last = last.map(|line| Entry::parse(line).expect("it ends with an entry"));
        assert_eq!(
            held.as_ref().map(|held| (held.epoch.as_str(), held.seq.0)),
            last.as_ref().map(|entry| (&*entry.epoch, entry.seq))
        );
        // What was cut off was no whole entry that the cursor knows to be there for good.
        let cut = &input[after.len()..];
        for line in cut.split(|byte| *byte == b'\n').filter(|line| cut.len() > line.len()) {
            if let Ok(entry) = Entry::parse(line) {
                assert!(entry.epoch != cursor.epoch || entry.seq > cursor.seq.0, "{} was cut off", entry.seq);
            }
        }
        if runtime.block_on(sink.deliver(std::slice::from_ref(&next))).is_ok() {
            let whole = fs::read(&path).unwrap();
            assert!(
                whole.starts_with(&after)
                    && (whole.len() == after.len() || whole.ends_with(&[&next.line[..], b"\n"].concat()))
            );
        }
    });
}

/// Stored bytes that are damaged are an error, or what was stored.
#[test]
fn codec() {
    let mut dice = Rng::with_seed(5);
    let texts: Vec<Vec<u8>> = corpus("change").into_iter().map(|(_, text)| text).collect();
    let mut made = Codec::default();
    for round in 0..4000 {
        let base = dice.choice(&texts).unwrap().clone();
        let mut text = dice.choice(&texts).unwrap().clone();
        if dice.bool() {
            text = base.clone();
            let at = dice.usize(..=text.len());
            text.splice(at..at, *b"changed");
        }
        let base = dice.bool().then_some(base);
        let mut blob = if base.is_none() && dice.bool() {
            let start = dice.usize(..=text.len());
            let part = start..start + dice.usize(..=text.len() - start);
            let frame = made.compress(None, &text[part.clone()]);
            made.enclose(&text, part, &frame)
        } else {
            made.compress(base.as_deref(), &text)
        };
        assert_eq!(made.decompress(base.as_deref(), &blob).unwrap(), text, "round {round}");
        for _ in 0..=dice.usize(..3) {
            let at = dice.usize(..blob.len());
            blob[at] = dice.u8(..);
        }
        if let Ok(found) = made.decompress(base.as_deref(), &blob) {
            assert_eq!(found, text, "round {round}: damage went unseen");
        }
        let wrong = dice.choice(&texts).unwrap();
        drop(made.decompress(Some(wrong), &blob));
    }
    // And bytes that were never compressed at all.
    fuzz("codec", 6000, &["\u{28}", "(\u{b5}/", "\0", "\u{7f}"], |input| {
        let (base, blob) = two(input);
        for base in [None, Some(base)] {
            if let Ok(bytes) = Codec::default().decompress(base, blob) {
                assert!(bytes.len() <= 256 << 20);
            }
        }
    });
}

/// A journal as it lies on a disk, with a few entries in it.
fn database() -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let (journal, thread) = Journal::open(dir.path()).unwrap();
    fill(&runtime(), &journal);
    drop(journal);
    thread.join().unwrap();
    fs::read(dir.path().join("journal.db")).unwrap()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn fill(runtime: &tokio::runtime::Runtime, journal: &Journal) {
    runtime.block_on(async {
        let spec = SourceSpec::of(pods());
        let source = journal.source(&spec).await.unwrap().0;
        for version in 1..40_u64 {
            let name = format!("p{}", version % 5);
            let bytes = format!(r#"{{"metadata":{{"name":"{name}","uid":"{name}","resourceVersion":"{version}"}},"spec":{{"n":{version},"text":"{}"}}}}"#, "x".repeat(400));
            let object = Observed {
                namespace: "shop".into(),
                name: name.clone(),
                uid: name,
                version: ResourceVersion::new(version.to_string()),
                body: Redacted { bytes: bytes.into_bytes(), ..Redacted::default() },
            };
            source.append(vec![WatchChange { verb: Verb::Upsert, object }]).await.unwrap();
            if version % 4 == 0 {
                journal.flush().await.unwrap();
            }
        }
        journal.flush().await.unwrap();
    });
}

/// What somebody else may have written into the shared log: an error in words, or the log that was there; never a panic, and never
/// another log.
#[test]
fn shared_log() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let sharing = |engine: &Engine| Sharing {
        log: Box::new(engine.clone()),
        identity: "one".to_owned(),
        backlog: 1 << 20,
        key: "key".to_owned(),
        poll: Duration::from_millis(5),
        worth_a_base: 6000,
    };
    let lines = |dir: &Path| -> Vec<String> {
        let mut reader = Reader::open(dir).unwrap();
        let entries = reader.entries_after(Seq(0), 1000, 1 << 24).unwrap();
        entries.iter().map(|entry| String::from_utf8(entry.line.to_vec()).unwrap()).collect()
    };
    let engine = Engine::default();
    let (journal, thread) = Journal::open_shared(dir.path(), sharing(&engine)).unwrap();
    runtime.block_on(journal.lead()).unwrap().unwrap();
    fill(&runtime, &journal);
    drop(journal);
    thread.join().unwrap();
    let (whole, held) = (lines(dir.path()), engine.held());
    let base = held.bases.values().next_back().copied().unwrap();
    let behind = held.units.range(base.number + 1..).count();
    assert!(behind > 1 && base.number > 1, "units behind a later base: {behind} behind {base:?}");
    let sound = tempfile::tempdir().unwrap();
    runtime.block_on(restore(sound.path(), sharing(&engine), |_, _| ())).unwrap();
    assert_eq!(lines(sound.path()), whole, "what nobody has touched is restored");
    let runs = std::env::var("DECKLOG_FUZZ_RUNS").map_or(150, |runs| runs.parse().unwrap());
    let (mut restored, mut refused) = (0, 0);
    for run in 0..runs {
        let mut dice = Rng::with_seed(run);
        let mut held = held.clone();
        let read: Vec<u64> = held.units.keys().copied().filter(|number| *number > base.number).collect();
        let number = *dice.choice(&read).unwrap();
        let part = (base.number, dice.u32(..base.parts));
        let (in_base, cut) = (dice.bool(), dice.u8(..6) == 0);
        let bytes = if in_base { held.parts.get_mut(&part) } else { held.units.get_mut(&number) }.unwrap();
        let mut text = bytes.to_vec();
        // The head is a line of text, and what follows is compressed.
        let head = text.iter().position(|byte| *byte == b'\n').unwrap();
        for _ in 0..=dice.usize(..4) {
            let at = if dice.bool() { dice.usize(..=head) } else { dice.usize(..text.len()) };
            text[at] = if dice.bool() { *dice.choice(b"0123456789\"\n,:{}").unwrap() } else { dice.u8(..) };
        }
        if cut {
            text.truncate(dice.usize(..text.len()));
        }
        *bytes = text.into();
        let engine = Engine::default();
        engine.restore(held);
        let dir = tempfile::tempdir().unwrap();
        match runtime.block_on(restore(dir.path(), sharing(&engine), |_, _| ())) {
            Ok(_) => {
                assert_eq!(lines(dir.path()), whole, "run {run}: damage went unseen");
                restored += 1;
            }
            Err(error) => {
                assert!(error.to_string().len() > 20, "run {run}: {error}");
                assert!(!dir.path().join("journal.db").exists(), "run {run}: half a journal is left after {error}");
                refused += 1;
            }
        }
    }
    println!("{restored} restored, {refused} refused");
    assert!(refused > 0);
}

/// A database of somebody else, or one that a disk has spoiled: an error in words, or what is in it; never a panic.
#[test]
fn journal() {
    let whole = database();
    let runs = std::env::var("DECKLOG_FUZZ_RUNS").map_or(250, |runs| runs.parse().unwrap());
    let mut opened = 0;
    for run in 0..runs {
        let mut dice = Rng::with_seed(run);
        let mut bytes = whole.clone();
        match dice.u8(..8) {
            0 => bytes.truncate(dice.usize(..bytes.len())),
            1 => bytes = (0..dice.usize(..9000)).map(|_| dice.u8(..)).collect(),
            _ => {
                for _ in 0..=dice.usize(..12) {
                    // The head of the file and of each page is where the structure is.
                    let page = dice.usize(..bytes.len() / 4096) * 4096;
                    let at = if dice.bool() { page + dice.usize(..120) } else { dice.usize(..bytes.len()) };
                    bytes[at] = dice.u8(..);
                }
            }
        }
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("journal.db"), &bytes).unwrap();
        if let Ok(mut reader) = Reader::open(dir.path()) {
            opened += 1;
            drop(reader.verify(|_, _| ()));
            drop(reader.entries_after(Seq(0), 1000, 1 << 20));
            drop((
                reader.sources(),
                reader.sinks(),
                reader.resources(),
                reader.head(),
                reader.last_gap(),
                reader.dead_letters(),
                reader.requests(0, i64::MAX),
                reader.request_totals(),
            ));
            for (id, _) in reader.resources().unwrap_or_default() {
                for object in reader.objects(id, None, None).unwrap_or_default() {
                    drop(reader.current(&object));
                }
            }
        }
        if let Ok((journal, thread)) = Journal::open(dir.path()) {
            drop(journal);
            drop(thread.join());
        }
    }
    assert!(opened > runs / 10, "nothing was ever read: {opened}");
}
