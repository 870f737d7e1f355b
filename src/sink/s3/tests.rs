//! The same code over a folder, and before a bucket that is as bad as real ones seldom are.

mod bucket;
mod logs;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::*;
use crate::core::shared_log::{Appended, Base, Extent, LogError, SharedLog};
use crate::core::wire::Entry;
use crate::sink::tests::{item, item_of};

fn config(url: &str, change: Value) -> Settings {
    let mut config = json!({"url": url});
    if let (Some(config), Value::Object(change)) = (config.as_object_mut(), change) {
        config.extend(change);
    }
    serde_json::from_value(config).unwrap()
}

struct Folder {
    dir: TempDir,
    sink: S3Sink,
}

impl Folder {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let sink = Self::another(dir.path());
        Self { dir, sink }
    }

    fn another(dir: &Path) -> S3Sink {
        S3Sink::new(&config(&format!("file://{}", dir.display()), json!({}))).unwrap()
    }

    /// What a daemon has that begins again.
    fn restart(&mut self) {
        self.sink = Self::another(self.dir.path());
    }

    async fn position(&mut self) -> (String, u64) {
        let cursor = LogPosition { epoch: "e".into(), seq: Seq(0), entry: None };
        let held = self.sink.position(&cursor).await.unwrap().unwrap();
        (held.epoch, held.seq.0)
    }

    async fn deliver(&mut self, seqs: std::ops::RangeInclusive<u64>) {
        let items: Vec<Item> = seqs.map(item).collect();
        self.sink.deliver(&items).await.unwrap();
    }

    /// Every file below, by name.
    fn files(&self) -> Vec<String> {
        fn walk(dir: &Path, into: &mut Vec<PathBuf>) {
            for entry in fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() { walk(&path, into) } else { into.push(path) }
            }
        }
        let mut paths = Vec::new();
        walk(self.dir.path(), &mut paths);
        let name = |path: PathBuf| path.strip_prefix(self.dir.path()).unwrap().to_str().unwrap().to_owned();
        let mut names: Vec<String> = paths.into_iter().map(name).collect();
        names.sort();
        names
    }

    fn segments(&self) -> Vec<String> {
        self.files().into_iter().filter(|name| segment::begins(name).is_some()).collect()
    }

    /// The seqs of every entry in every segment.
    fn seqs(&self) -> Vec<u64> {
        let mut seqs = Vec::new();
        for name in self.segments() {
            let lines = zstd::decode_all(&fs::read(self.dir.path().join(name)).unwrap()[..]).unwrap();
            let lines = lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
            seqs.extend(lines.map(|line| Entry::parse(line).unwrap().seq));
        }
        seqs
    }

    fn manifest(&self) -> Manifest {
        serde_json::from_slice(&fs::read(self.dir.path().join("manifest/e.json")).unwrap()).unwrap()
    }
}

fn segment(seq: u64) -> String {
    format!("date=2026-11-21/e-{seq:020}.jsonl.zst")
}

#[tokio::test]
async fn a_batch_is_a_segment_and_the_manifest_names_the_newest() {
    let mut folder = Folder::new();
    assert_eq!(folder.position().await, ("e".into(), 0));
    folder.deliver(1..=3).await;
    folder.deliver(4..=9).await;
    assert_eq!(folder.files(), [segment(1), segment(4), "manifest/e.json".to_owned()]);
    let (newest, checkpoint) = (segment(4), None);
    let manifest = Manifest { v: 1, epoch: "e".into(), segments: 2, first: 1, last: 9, newest, checkpoint };
    assert_eq!(folder.manifest(), manifest);
    folder.restart();
    assert_eq!(folder.position().await, ("e".into(), 9));
    // Whoever hands something over again, it is there once.
    folder.deliver(2..=10).await;
    folder.restart();
    folder.deliver(8..=11).await;
    assert_eq!(folder.seqs(), (1..=11).collect::<Vec<_>>());
    assert_eq!(folder.manifest(), Manifest { segments: 4, last: 11, newest: segment(11), ..manifest });
}

/// Fault 74: an answer was lost, or the manifest.
#[tokio::test]
async fn a_segment_that_nobody_knows_of_counts() {
    let mut folder = Folder::new();
    folder.position().await;
    folder.deliver(1..=3).await;
    // A crash came before the manifest, and its answer to whoever wrote it never.
    let mut other = Folder::another(folder.dir.path());
    other.position(&LogPosition { epoch: "e".into(), seq: Seq(0), entry: None }).await.unwrap();
    other.deliver(&[4, 5, 6].map(item)).await.unwrap();
    let behind = Manifest { segments: 1, last: 3, newest: segment(1), ..folder.manifest() };
    fs::write(folder.dir.path().join("manifest/e.json"), serde_json::to_vec(&behind).unwrap()).unwrap();
    // In the same life it is found by its name. It may hold less than what is delivered now; one that holds more is not
    // what was sent from here, and is compared with the journal.
    let failure = folder.sink.deliver(&[4, 5].map(item)).await.unwrap_err();
    assert!(matches!(&failure, Failure { taken: 0, error: SinkError::Lost { .. } }), "{failure}");
    folder.deliver(4..=8).await;
    assert_eq!(folder.seqs(), (1..=8).collect::<Vec<_>>());
    // In another it is listed.
    fs::write(folder.dir.path().join("manifest/e.json"), serde_json::to_vec(&behind).unwrap()).unwrap();
    folder.restart();
    assert_eq!(folder.position().await, ("e".into(), 8));
    folder.deliver(9..=9).await;
    assert_eq!(folder.manifest().segments, 4);
    // Without any manifest, too.
    fs::remove_file(folder.dir.path().join("manifest/e.json")).unwrap();
    folder.restart();
    assert_eq!(folder.position().await, ("e".into(), 9));
    folder.deliver(10..=10).await;
    assert_eq!(
        folder.manifest(),
        Manifest { segments: 5, first: 1, last: 10, newest: segment(10), v: 1, epoch: "e".into(), checkpoint: None }
    );
}

/// Each segment asks for a checkpoint, and the manifest has the newest that there is. One that is written again after a crash has
/// another one, or none: that is no conflict, and neither is what an older decklog wrote, or reads.
#[tokio::test]
async fn a_manifest_has_the_newest_checkpoint_and_nothing_depends_on_it() {
    let mut folder = Folder::new();
    let checkpoints = CheckpointHandle::signing();
    folder.sink.sign_with(&checkpoints);
    folder.position().await;
    let path = folder.dir.path().join("manifest/e.json");
    for (seq, noted) in
        [(1, None), (2, Some("log/c/e/1\n2\nroot\n\n\u{2014} log AAAA\n")), (3, None), (4, Some("later\n"))]
    {
        if let Some(note) = noted {
            checkpoints.note(Seq(1), note);
        }
        folder.deliver(seq..=seq).await;
        assert!(checkpoints.asked().now_or_never().is_some(), "segment {seq} asks");
        assert_eq!(folder.manifest().checkpoint.as_deref(), checkpoints.newest().as_deref());
        assert_eq!(folder.manifest().last, seq);
    }
    // Fields of an older decklog, in their order, are what its readers find.
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.starts_with(r#"{"v":1,"epoch":"e","segments":4,"first":1,"last":4,"newest":"date="#), "{text}");
    // A crash behind the segment and before the manifest, or another answer of whoever signs, in the same life and in the next one.
    let known = folder.manifest();
    let (mut seq, forms) = (5, [None, Some("other\n".to_owned()), Some(String::new())]);
    for restarts in [false, true] {
        for checkpoint in &forms {
            let manifest = Manifest { checkpoint: checkpoint.clone(), ..folder.manifest() };
            fs::write(&path, serde_json::to_vec(&manifest).unwrap()).unwrap();
            if restarts {
                folder.restart();
                folder.sink.sign_with(&checkpoints);
                assert_eq!(folder.position().await, ("e".into(), seq - 1));
            }
            folder.deliver(seq..=seq).await;
            let expected = Manifest { segments: seq, last: seq, newest: segment(seq), ..known.clone() };
            assert_eq!(folder.manifest(), expected);
            seq += 1;
        }
    }
    // Evidence is off: nobody asks, and the field is gone.
    folder.restart();
    folder.position().await;
    folder.deliver(seq..=seq).await;
    assert!(checkpoints.asked().now_or_never().is_some(), "of the segment before");
    assert!(!fs::read_to_string(&path).unwrap().contains("checkpoint"));
    assert_eq!(folder.seqs(), (1..=seq).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_place_that_was_put_back_holds_less() {
    let mut folder = Folder::new();
    folder.position().await;
    for first in [1, 4, 7] {
        folder.deliver(first..=first + 2).await;
    }
    // The manifest is of later than the segments.
    fs::remove_file(folder.dir.path().join(segment(7))).unwrap();
    folder.restart();
    assert_eq!(folder.position().await, ("e".into(), 6));
    folder.deliver(7..=12).await;
    assert_eq!(folder.seqs(), (1..=12).collect::<Vec<_>>());
    assert_eq!(folder.manifest().segments, 3);
}

#[tokio::test]
async fn epochs_and_dates_have_segments_of_their_own() {
    let mut folder = Folder::new();
    folder.position().await;
    let at = |item: Item, time: &str| {
        let line = String::from_utf8(item.line.to_vec()).unwrap().replace("2026-11-21T10:15", time);
        Item { line: line.into(), ..item }
    };
    let batch = [
        item_of("d", 1),
        item_of("d", 2),
        item(3),
        at(item(4), "2026-11-22T00:00"),
        at(item(5), "2026-11-22T00:00"),
        // A clock that goes back.
        item(6),
    ];
    folder.sink.deliver(&batch).await.unwrap();
    let names = [
        "date=2026-11-21/d-00000000000000000001.jsonl.zst".to_owned(),
        segment(3),
        segment(6),
        "date=2026-11-22/e-00000000000000000004.jsonl.zst".to_owned(),
    ];
    assert_eq!(folder.segments(), names);
    folder.restart();
    assert_eq!(folder.position().await, ("e".into(), 6));
    // A journal whose epoch is not there gets the newest of all, to find itself in it or not.
    let held = folder.sink.position(&LogPosition { epoch: "f".into(), seq: Seq(6), entry: None }).await.unwrap();
    assert_eq!(held, Some(LogPosition::of(&item(6).line).unwrap()));
    // Nothing of an earlier epoch is written behind it.
    let failure = folder.sink.deliver(&[item_of("d", 7)]).await.unwrap_err();
    assert!(matches!(&failure.error, SinkError::Lost { .. }), "{failure}");
    // Nor behind one that somebody else begins.
    let mut other = Folder::another(folder.dir.path());
    other.deliver(&[item_of("f", 7)]).await.unwrap();
    let failure = folder.sink.deliver(&[item(7)]).await.unwrap_err();
    assert!(matches!(&failure.error, SinkError::Lost { .. }), "{failure}");
    let held = folder.sink.position(&LogPosition::before("e")).await.unwrap();
    assert_eq!(held, Some(LogPosition::of(&item_of("f", 7).line).unwrap()));
}

#[tokio::test]
async fn an_entry_is_found_in_its_segment() {
    let mut folder = Folder::new();
    folder.deliver(1..=3).await;
    folder.deliver(4..=6).await;
    for seq in 1..=7 {
        let place = LogPosition::of(&item(seq).line).unwrap();
        assert_eq!(folder.sink.holds(&place).await, Ok(Some(seq < 7)), "{seq}");
        let mark = place.entry.clone().map(|mark| crate::sink::EntryKey { id: "other".into(), ..mark });
        assert_eq!(folder.sink.holds(&LogPosition { entry: mark, ..place }).await, Ok(Some(false)));
    }
    // What would have it may have been removed.
    assert_eq!(folder.sink.holds(&LogPosition::of(&item_of("d", 3).line).unwrap()).await, Ok(None));
}

/// Two copies of one journal, whose next entries have another date, or come later.
#[tokio::test]
async fn what_follows_a_seq_has_one_name() {
    let mut folder = Folder::new();
    folder.deliver(1..=2).await;
    let mut copy = Folder::another(folder.dir.path());
    copy.position(&LogPosition::before("e")).await.unwrap();
    let stands_still = folder.dir.path().join(segment::next("e", 2));
    fs::write(&stands_still, segment(3)).unwrap();
    // Under the name that the one who stands still is going to write.
    let line = String::from_utf8(item(3).line.to_vec()).unwrap().replace("2026-11-21T", "2026-11-22T");
    copy.deliver(&[Item { line: line.into(), ..item(3) }]).await.unwrap();
    assert_eq!(folder.segments(), [segment(1), segment(3)]);
    assert!(!stands_still.exists());
    let failure = folder.sink.deliver(&[item(3)]).await.unwrap_err();
    assert!(matches!(&failure, Failure { taken: 0, error: SinkError::Halt { .. } }), "{failure}");
    // One that begins later would be beside it.
    let mut late = Folder::another(folder.dir.path());
    late.position(&LogPosition::before("e")).await.unwrap();
    fs::write(folder.dir.path().join(segment::next("e", 3)), segment(5)).unwrap();
    let failure = late.deliver(&[item(4)]).await.unwrap_err();
    assert!(failure.to_string().contains("is about to write"), "{failure}");
    // After one that was refused, which the name is of.
    late.deliver(&[item(6)]).await.unwrap();
    assert_eq!(folder.segments(), [segment(1), segment(3), segment(5)]);
}

#[tokio::test]
async fn a_replay_goes_beside_the_segments() {
    let mut folder = Folder::new();
    folder.position().await;
    folder.deliver(1..=3).await;
    let before = folder.manifest();
    for _ in 0..2 {
        folder.restart();
        folder.sink.enter_replay();
        folder.deliver(2..=3).await;
    }
    let replayed = "replay/e-00000000000000000002.jsonl.zst".to_owned();
    assert_eq!(folder.files(), [segment(1), "manifest/e.json".to_owned(), replayed]);
    assert_eq!(folder.manifest(), before);
    folder.restart();
    assert_eq!(folder.position().await, ("e".into(), 3));
}

#[tokio::test]
async fn what_is_no_segment_of_this_journal_halts() {
    let mut folder = Folder::new();
    folder.position().await;
    fs::create_dir(folder.dir.path().join("date=2026-11-21")).unwrap();
    fs::write(folder.dir.path().join(segment(1)), "something else").unwrap();
    let failure = folder.sink.deliver(&[item(1)]).await.unwrap_err();
    assert!(matches!(failure.error, SinkError::Halt { .. }), "{failure:?}");
    assert!(failure.to_string().contains("is not a segment as decklog writes them"), "{failure}");
    // What its name does not say is in it.
    fs::write(folder.dir.path().join(segment(1)), segment::encode(&[item_of("d", 1).line]).unwrap()).unwrap();
    let failure = folder.sink.deliver(&[item(1)]).await.unwrap_err();
    assert!(failure.to_string().contains("does not hold what its name says"), "{failure}");
    assert!(folder.sink.position(&LogPosition { epoch: "e".into(), seq: Seq(0), entry: None }).await.is_err());
}

#[tokio::test]
async fn a_folder_that_is_missing_is_made_when_asked_to() {
    let mut folder = Folder::new();
    let path = folder.dir.path().join("a/b");
    folder.sink = Folder::another(&path);
    for error in [
        folder.sink.check().await.unwrap_err(),
        folder.sink.position(&LogPosition { epoch: "e".into(), seq: Seq(0), entry: None }).await.unwrap_err(),
        folder.sink.deliver(&[item(1)]).await.unwrap_err().error,
    ] {
        assert!(error.to_string().contains("does not exist or cannot be entered; create it"), "{error}");
        assert!(matches!(error, SinkError::Retry { .. }));
    }
    assert_eq!(folder.sink.provisioning_script(), Some(format!("mkdir -p '{}'\n", path.display())));
    assert_eq!(folder.sink.provision().await, Ok(format!("{} was made", path.display())));
    assert_eq!(folder.sink.provision().await, Ok(format!("{} is there already", path.display())));
    assert_eq!(folder.sink.check().await, Ok(()));
    folder.sink.deliver(&[item(1)]).await.unwrap();
}

#[test]
fn a_bucket_is_made_by_a_command() {
    let needs = |change| S3Sink::new(&config("s3://logs/x", change)).unwrap().provisioning_script().unwrap();
    assert_eq!(needs(json!({})), "aws s3api create-bucket --bucket logs --region 'us-east-1'\n");
    assert_eq!(
        needs(json!({"region": "eu-central-1", "endpoint": "http://127.0.0.1:1"})),
        "aws s3api create-bucket --bucket logs --region 'eu-central-1' --create-bucket-configuration LocationConstraint=eu-central-1 --endpoint-url 'http://127.0.0.1:1'\n"
    );
}

/// Fault 74: two with the same journal, whose entries are not the same.
#[tokio::test]
async fn a_copy_of_the_journal_is_not_taken_for_an_answer_that_was_lost() {
    let mut folder = Folder::new();
    folder.deliver(1..=2).await;
    let mut copy = Folder::another(folder.dir.path());
    copy.position(&LogPosition { epoch: "e".into(), seq: Seq(0), entry: None }).await.unwrap();
    let before = fs::read(folder.dir.path().join("manifest/e.json")).unwrap();
    folder.deliver(3..=4).await;
    let other = String::from_utf8(item(3).line.to_vec()).unwrap().replace("u.3.MODIFIED", "u.9.MODIFIED");
    let other = [Item { line: other.into(), ..item(3) }];
    for is_written in [true, false] {
        if !is_written {
            fs::write(folder.dir.path().join("manifest/e.json"), &before).unwrap();
        }
        let failure = copy.deliver(&other).await.unwrap_err();
        assert!(matches!(&failure, Failure { taken: 0, error: SinkError::Halt { .. } }), "{failure}");
        assert!(failure.to_string().contains("another decklog writes to"), "{failure}");
    }
    copy.deliver(&[3, 4].map(item)).await.unwrap();
    assert_eq!(folder.seqs(), [1, 2, 3, 4]);
}

#[tokio::test]
async fn a_place_that_is_put_back_under_a_running_sink_is_noticed() {
    let mut folder = Folder::new();
    let manifest = folder.dir.path().join("manifest/e.json");
    folder.deliver(1..=3).await;
    let before = fs::read(&manifest).unwrap();
    folder.deliver(4..=6).await;
    let put_back = |to: u64| {
        fs::remove_file(folder.dir.path().join(segment(4))).unwrap();
        match to {
            0 => {
                fs::remove_file(folder.dir.path().join(segment(1))).unwrap();
                fs::remove_file(&manifest).unwrap();
            }
            _ => fs::write(&manifest, &before).unwrap(),
        }
    };
    for to in [3, 0] {
        put_back(to);
        let failure = folder.sink.deliver(&[item(7)]).await.unwrap_err();
        assert!(matches!(&failure, Failure { taken: 0, error: SinkError::Lost { .. } }), "{failure}");
        let held = folder.sink.position(&LogPosition { epoch: "e".into(), seq: Seq(6), entry: None }).await.unwrap();
        assert!(held.unwrap().is(&LogPosition { epoch: "e".into(), seq: Seq(to), entry: None }));
        for first in [1, 4].into_iter().filter(|first| *first > to) {
            let items: Vec<Item> = (first..first + 3).map(item).collect();
            folder.sink.deliver(&items).await.unwrap();
        }
    }
    folder.deliver(7..=7).await;
    assert_eq!(folder.seqs(), (1..=7).collect::<Vec<_>>());
    // What is not there at all is not made.
    fs::remove_dir_all(folder.dir.path()).unwrap();
    let failure = folder.sink.deliver(&[item(8)]).await.unwrap_err();
    assert!(failure.to_string().contains("does not exist or cannot be entered"), "{failure}");
    assert!(!folder.dir.path().exists());
}

/// Each with a folder of its own below that of the other.
#[tokio::test]
async fn what_is_below_belongs_to_others() {
    let mut folder = Folder::new();
    folder.deliver(1..=2).await;
    let below = folder.dir.path().join("their");
    fs::create_dir(&below).unwrap();
    Folder::another(&below).deliver(&[1, 2, 3, 4].map(item)).await.unwrap();
    folder.restart();
    assert_eq!(folder.position().await, ("e".into(), 2));
}

/// Who may read the files of other sinks may read these, and nobody else.
#[tokio::test]
async fn files_and_directories_have_one_mode() {
    fn modes(dir: &Path, into: &mut Vec<(bool, u32)>) {
        for entry in fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            let meta = entry.metadata().unwrap();
            into.push((meta.is_dir(), meta.permissions().mode() & 0o777));
            if meta.is_dir() {
                modes(&entry.path(), into);
            }
        }
    }
    let mut folder = Folder::new();
    folder.deliver(1..=3).await;
    folder.deliver(4..=6).await;
    let config = config(&format!("file://{}", folder.dir.path().display()), json!({}));
    let mut log = S3Log::new(&config, "archive", "c").unwrap();
    for number in 1..=2 {
        assert_eq!(log.append(number, Bytes::from_static(b"a")).await, Ok(Appended::Done));
    }
    log.put_part(2, 0, Bytes::from_static(b"a")).await.unwrap();
    log.finish_base(Base { number: 2, parts: 1 }).await.unwrap();
    let mut found = Vec::new();
    modes(folder.dir.path(), &mut found);
    assert_eq!(found.iter().filter(|(is_dir, _)| !is_dir).count(), 7, "{found:?}");
    for (is_dir, mode) in found {
        assert_eq!(mode, if is_dir { 0o750 } else { 0o640 }, "of a {}", if is_dir { "directory" } else { "file" });
    }
    assert!(folder.files().iter().all(|name| !name.contains('#')), "{:?}", folder.files());
}

/// What the shared log holds costs the sink beside it nothing.
#[tokio::test]
async fn the_sink_does_not_look_into_the_shared_log() {
    let mut folder = Folder::new();
    folder.deliver(1..=3).await;
    let below = folder.dir.path().join("shared/c/units/date=2026-11-21");
    fs::create_dir_all(&below).unwrap();
    for name in ["shared/c/units/e-00000000000000000009.jsonl.zst", "shared/c/units/00000000000000000001"] {
        fs::write(folder.dir.path().join(name), "x").unwrap();
    }
    // Who lists what is in it goes round in circles.
    std::os::unix::fs::symlink("..", folder.dir.path().join("shared/circle")).unwrap();
    folder.restart();
    assert_eq!(folder.position().await, ("e".into(), 3));
    folder.deliver(4..=6).await;
    assert_eq!(Sink::epochs(&mut folder.sink).await.unwrap(), BTreeMap::from([("e".to_owned(), Seq(1))]));
}
