//! What needs no server: the same code over a folder.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::sink::tests::{item, item_of};
use crate::wire::Entry;

fn config(url: &str, change: Value) -> config::S3Sink {
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

    /// What a daemon has that begins anew.
    fn restart(&mut self) {
        self.sink = Self::another(self.dir.path());
    }

    async fn position(&mut self) -> (String, u64) {
        let cursor = Position { epoch: "e".into(), seq: Seq(0) };
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
    let manifest = Manifest { v: 1, epoch: "e".into(), segments: 2, first: 1, last: 9, newest: segment(4) };
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

#[tokio::test]
async fn a_segment_that_nobody_knows_of_counts() {
    let mut folder = Folder::new();
    folder.position().await;
    folder.deliver(1..=3).await;
    // A crash came before the manifest, and its answer to whoever wrote it never.
    let mut other = Folder::another(folder.dir.path());
    other.position(&Position { epoch: "e".into(), seq: Seq(0) }).await.unwrap();
    other.deliver(&[4, 5, 6].map(item)).await.unwrap();
    let behind = Manifest { segments: 1, last: 3, newest: segment(1), ..folder.manifest() };
    fs::write(folder.dir.path().join("manifest/e.json"), serde_json::to_vec(&behind).unwrap()).unwrap();
    // In the same life it is found by its name, whether it holds less or more than what is delivered now.
    folder.deliver(4..=5).await;
    folder.deliver(6..=8).await;
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
        Manifest { segments: 5, first: 1, last: 10, newest: segment(10), v: 1, epoch: "e".into() }
    );
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
    let held = folder.sink.position(&Position { epoch: "f".into(), seq: Seq(6) }).await.unwrap();
    assert_eq!(held, Some(Position { epoch: "e".into(), seq: Seq(6) }));
}

#[tokio::test]
async fn a_replay_goes_beside_the_segments() {
    let mut folder = Folder::new();
    folder.position().await;
    folder.deliver(1..=3).await;
    let before = folder.manifest();
    for _ in 0..2 {
        folder.restart();
        folder.sink.again();
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
    fs::write(folder.dir.path().join(segment(1)), segment::encode(&[item(2)]).unwrap()).unwrap();
    let failure = folder.sink.deliver(&[item(1)]).await.unwrap_err();
    assert!(failure.to_string().contains("does not hold what its name says"), "{failure}");
    assert!(folder.sink.position(&Position { epoch: "e".into(), seq: Seq(0) }).await.is_err());
}

#[tokio::test]
async fn a_folder_that_is_missing_is_made_when_asked_to() {
    let mut folder = Folder::new();
    let path = folder.dir.path().join("a/b");
    folder.sink = Folder::another(&path);
    for error in [
        folder.sink.check().await.unwrap_err(),
        folder.sink.position(&Position { epoch: "e".into(), seq: Seq(0) }).await.unwrap_err(),
        folder.sink.deliver(&[item(1)]).await.unwrap_err().error,
    ] {
        assert!(error.to_string().contains("does not exist or cannot be entered; create it"), "{error}");
        assert!(matches!(error, SinkError::Retry { .. }));
    }
    assert_eq!(folder.sink.needs(), Some(format!("mkdir -p '{}'\n", path.display())));
    assert_eq!(folder.sink.init().await, Ok(format!("{} was made", path.display())));
    assert_eq!(folder.sink.init().await, Ok(format!("{} is there already", path.display())));
    assert_eq!(folder.sink.check().await, Ok(()));
    folder.sink.deliver(&[item(1)]).await.unwrap();
}

#[test]
fn a_bucket_is_made_by_a_command() {
    let needs = |change| S3Sink::new(&config("s3://logs/x", change)).unwrap().needs().unwrap();
    assert_eq!(needs(json!({})), "aws s3api create-bucket --bucket 'logs' --region 'us-east-1'\n");
    assert_eq!(
        needs(json!({"region": "eu-central-1", "endpoint": "http://127.0.0.1:1"})),
        "aws s3api create-bucket --bucket 'logs' --region 'eu-central-1' --create-bucket-configuration LocationConstraint=eu-central-1 --endpoint-url 'http://127.0.0.1:1'\n"
    );
}
