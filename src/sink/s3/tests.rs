//! The same code over a folder, and before a bucket that is as bad as real ones seldom are.

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
use crate::core::shared_log::{self, Appended, Base, Extent, LogError, SharedLog};
use crate::core::wire::Entry;
use crate::sink::tests::{item, item_of};

#[path = "../../../tests/sinks/shared.rs"]
mod shared;

use shared::Place;

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
    fs::write(folder.dir.path().join(segment(1)), segment::encode(&[item_of("d", 1)]).unwrap()).unwrap();
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

/// What came to a bucket.
#[derive(Clone, Debug)]
struct Seen {
    method: Method,
    key: String,
    headers: hyper::HeaderMap,
    size: usize,
}

/// A server with one bucket, `logs`.
struct Bucket {
    endpoint: String,
    objects: Arc<Mutex<BTreeMap<String, Bytes>>>,
    seen: Arc<Mutex<Vec<Seen>>>,
    _tasks: JoinSet<()>,
}

impl Bucket {
    /// It is as it should be where `answer` gives no status and no code of its own.
    async fn start(answer: impl Fn(&Seen) -> Option<(u16, &'static str)> + Send + Sync + 'static) -> Self {
        Self::start_with(answer, true).await
    }

    /// As [`Bucket::start`], and whether it gives objects an ETag.
    async fn start_with(
        answer: impl Fn(&Seen) -> Option<(u16, &'static str)> + Send + Sync + 'static,
        tags: bool,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let objects: Arc<Mutex<BTreeMap<String, Bytes>>> = Arc::default();
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let (answer, shared, all) = (Arc::new(answer), Arc::clone(&objects), Arc::clone(&seen));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (answer, objects, all) = (Arc::clone(&answer), Arc::clone(&shared), Arc::clone(&all));
                let service = service_fn(move |request: Request<Incoming>| {
                    let (answer, objects, all) = (Arc::clone(&answer), Arc::clone(&objects), Arc::clone(&all));
                    async move {
                        let (head, body) = request.into_parts();
                        let body = body.collect().await?.to_bytes();
                        let key = head.uri.path().trim_start_matches("/logs").trim_start_matches('/').to_owned();
                        let seen = Seen { method: head.method, key, headers: head.headers, size: body.len() };
                        all.lock().unwrap().push(seen.clone());
                        let (status, text) = match answer(&seen) {
                            Some((status, "")) => (status, "<html>".into()),
                            Some((status, code)) => (status, format!("<Error><Code>{code}</Code></Error>").into()),
                            None => Self::does(&mut objects.lock().unwrap(), &seen, body),
                        };
                        let response = Response::builder().status(status);
                        let response = if tags { response.header("etag", "\"x\"") } else { response };
                        Ok::<_, hyper::Error>(response.body(Full::new(text)).unwrap())
                    }
                });
                connections.spawn(async move {
                    let connection = hyper::server::conn::http1::Builder::new();
                    connection.serve_connection(TokioIo::new(stream), service).await.ok();
                });
            }
        });
        Self { endpoint, objects, seen, _tasks: tasks }
    }

    fn does(objects: &mut BTreeMap<String, Bytes>, seen: &Seen, body: Bytes) -> (u16, Bytes) {
        let there = objects.contains_key(&seen.key);
        match seen.method {
            Method::PUT if there && seen.headers.contains_key("if-none-match") => (412, Bytes::new()),
            Method::PUT if seen.headers.contains_key("if-match") => (404, Bytes::new()),
            Method::PUT => {
                objects.insert(seen.key.clone(), body);
                (200, Bytes::new())
            }
            Method::POST => {
                let text = String::from_utf8_lossy(&body).into_owned();
                for part in text.split("<Key>").skip(1) {
                    objects.remove(part.split('<').next().unwrap());
                }
                (200, "<DeleteResult></DeleteResult>".into())
            }
            _ if seen.key.is_empty() => {
                let row = |key: &String| {
                    format!(
                        "<Contents><Key>{key}</Key><Size>1</Size><LastModified>2026-11-21T10:15:00.000Z</LastModified><ETag>x</ETag></Contents>"
                    )
                };
                let rows: String = objects.keys().map(row).collect();
                (200, format!("<ListBucketResult>{rows}<IsTruncated>false</IsTruncated></ListBucketResult>").into())
            }
            _ => objects
                .get(&seen.key)
                .map_or((404, "<Error><Code>NoSuchKey</Code></Error>".into()), |body| (200, body.clone())),
        }
    }

    fn sink(&self, dir: &Path) -> S3Sink {
        let credentials = dir.join("aws");
        if !credentials.exists() {
            let text = "aws_access_key_id = AK\naws_secret_access_key = geheim\naws_session_token = first\n";
            fs::write(&credentials, text).unwrap();
        }
        S3Sink::new(&config("s3://logs", json!({"endpoint": self.endpoint, "credentials_file": credentials}))).unwrap()
    }

    /// How long the objects are that were asked to be written.
    fn sizes(&self) -> Vec<usize> {
        let seen = self.seen.lock().unwrap();
        seen.iter()
            .filter(|seen| seen.method == Method::PUT && seen.key.ends_with(".zst"))
            .map(|seen| seen.size)
            .collect()
    }
}

#[tokio::test]
async fn a_server_that_keeps_no_conditions_is_not_delivered_to() {
    let dir = tempfile::tempdir().unwrap();
    // It does not look at them, and writes over what is there.
    let bucket = Bucket::start(|seen| {
        let asks = ["if-none-match", "if-match"].iter().any(|name| seen.headers.contains_key(*name));
        asks.then_some((200, ""))
    })
    .await;
    let mut sink = bucket.sink(dir.path());
    sink.check().await.unwrap();
    assert_eq!(bucket.seen.lock().unwrap().last().unwrap().method, Method::POST, "nothing stays of a check");
    let failure = sink.deliver(&[item(1)]).await.unwrap_err();
    assert!(matches!(&failure, Failure { taken: 1, error: SinkError::Halt { .. } }), "{failure}");
    assert!(failure.to_string().contains("does not keep conditional writes (If-None-Match)"), "{failure}");
    // It does not know them.
    let bucket =
        Bucket::start(|seen| seen.headers.contains_key("if-none-match").then_some((501, "NotImplemented"))).await;
    let failure = bucket.sink(dir.path()).deliver(&[item(1)]).await.unwrap_err();
    assert!(matches!(&failure, Failure { taken: 0, error: SinkError::Halt { .. } }), "{failure}");
    assert!(failure.to_string().contains("does not keep conditional writes"), "{failure}");
    // It knows them.
    let bucket = Bucket::start(|_| None).await;
    let mut sink = bucket.sink(dir.path());
    sink.check().await.unwrap();
    for seq in 1..=3 {
        sink.deliver(&[item(seq)]).await.unwrap();
    }
    let conditions =
        bucket.seen.lock().unwrap().iter().filter(|seen| seen.headers.contains_key("if-none-match")).count();
    assert_eq!(conditions, 7, "two for each segment, and one to see whether it is kept");
    assert_eq!(bucket.objects.lock().unwrap().len(), 4);
}

#[tokio::test]
async fn an_object_that_is_too_large_is_halved_and_one_entry_refused() {
    let dir = tempfile::tempdir().unwrap();
    for (status, code) in [(400, "EntityTooLarge"), (413, "")] {
        let most = segment::encode(&[2, 3].map(item)).unwrap().len();
        let bucket = Bucket::start(move |seen| {
            (seen.method == Method::PUT && seen.key.ends_with(".zst") && seen.size > most).then_some((status, code))
        })
        .await;
        let mut sink = bucket.sink(dir.path());
        let large = item(5);
        let noise: String = (0..4000_u32)
            .map(|i| char::from(b'a' + u8::try_from(i.wrapping_mul(2_654_435_761) >> 28).unwrap()))
            .collect();
        let line = String::from_utf8(large.line.to_vec()).unwrap().replace("\"web\"}", &format!("\"{noise}\"}}"));
        let batch: Vec<Item> = (1..=4).map(item).chain([Item { line: line.into(), ..large }, item(6)]).collect();
        let failure = sink.deliver(&batch).await.unwrap_err();
        assert!(matches!(&failure, Failure { taken: 4, error: SinkError::Refused { .. } }), "{failure}");
        assert!(failure.to_string().contains("raise its limit, or that of a proxy before it"), "{failure}");
        sink.deliver(&batch[5..]).await.unwrap();
        assert!(bucket.sizes().iter().filter(|size| **size <= most).count() >= 3);
    }
}

/// S3 may begin with 200 and end with an error: then nothing was stored, and it is stored again.
#[tokio::test]
async fn a_200_with_an_error_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let first = AtomicBool::new(true);
    let bucket = Bucket::start(move |seen| {
        let fails = seen.method == Method::PUT && seen.key.ends_with(".zst") && first.swap(false, Ordering::SeqCst);
        fails.then_some((200, "InternalError"))
    })
    .await;
    let mut sink = bucket.sink(dir.path());
    let failure = sink.deliver(&[item(1)]).await.unwrap_err();
    assert!(matches!(&failure, Failure { taken: 0, error: SinkError::Retry { .. } }), "{failure}");
    assert!(failure.to_string().contains("InternalError"), "{failure}");
    sink.deliver(&[item(1)]).await.unwrap();
    assert_eq!(bucket.objects.lock().unwrap().keys().filter(|key| key.ends_with(".zst")).count(), 1);
}

/// A server that gives no ETags has stored what it says that it stored.
#[tokio::test]
async fn an_answer_without_an_etag_is_a_success() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = Bucket::start_with(|_| None, false).await;
    let mut sink = bucket.sink(dir.path());
    for seq in 1..=3 {
        sink.deliver(&[item(seq)]).await.unwrap();
    }
    let segments = bucket.objects.lock().unwrap().keys().filter(|key| key.ends_with(".zst")).count();
    let written = bucket.sizes().len();
    assert_eq!((segments, written), (3, 3), "each is sent once");
}

/// Fault 76: somebody is at work on the same name.
#[tokio::test]
async fn a_conflict_is_tried_again() {
    let dir = tempfile::tempdir().unwrap();
    let first = AtomicBool::new(true);
    let bucket = Bucket::start(move |seen| {
        let conflict = seen.method == Method::PUT && seen.key.ends_with(".zst") && first.swap(false, Ordering::SeqCst);
        conflict.then_some((409, "ConditionalRequestConflict"))
    })
    .await;
    let mut sink = bucket.sink(dir.path());
    let failure = sink.deliver(&[item(1)]).await.unwrap_err();
    assert!(matches!(&failure, Failure { taken: 0, error: SinkError::Retry { .. } }), "{failure}");
    sink.deliver(&[item(1)]).await.unwrap();
    assert_eq!(bucket.objects.lock().unwrap().keys().filter(|key| key.ends_with(".zst")).count(), 1);
}

#[tokio::test]
async fn credentials_that_end_are_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = Bucket::start(|seen| {
        let token = seen.headers.get("x-amz-security-token").map_or("", |token| token.to_str().unwrap());
        (token != "second").then_some((400, "ExpiredToken"))
    })
    .await;
    let mut sink = bucket.sink(dir.path());
    let error = sink.deliver(&[item(1)]).await.unwrap_err().error;
    let SinkError::Retry { text, after: Some(_) } = &error else { panic!("{error:?}") };
    assert!(text.contains("ExpiredToken; renew the credentials") && !text.contains("geheim"), "{text}");
    let renewed = fs::read_to_string(dir.path().join("aws")).unwrap().replace("first", "second");
    fs::write(dir.path().join("aws"), renewed).unwrap();
    sink.deliver(&[item(1)]).await.unwrap();
}

#[tokio::test]
async fn check_says_who_may_not_write_and_writes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let denied = |seen: &Seen| (seen.method == Method::PUT).then_some((403, "AccessDenied"));
    let bucket = Bucket::start(denied).await;
    let error = bucket.sink(dir.path()).check().await.unwrap_err().to_string();
    assert!(error.contains("cannot write to the bucket logs") && error.contains("give them the rights"), "{error}");
    let bucket = Bucket::start(|_| None).await;
    bucket.sink(dir.path()).check().await.unwrap();
    assert!(bucket.objects.lock().unwrap().is_empty());
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

/// Logs of clusters in a folder.
struct Logs(TempDir);

impl Place for Logs {
    fn open(&self, cluster: &str) -> Box<dyn SharedLog> {
        let config = config(&format!("file://{}", self.0.path().display()), json!({}));
        Box::new(S3Log::new(&config, "archive", cluster).unwrap())
    }

    async fn forget(&self, cluster: &str, from: u64) {
        for number in from.. {
            if fs::remove_file(self.0.path().join(format!("shared/{cluster}/units/{number:020}"))).is_err() {
                break;
            }
        }
    }

    async fn lose(&self, cluster: &str, units: &[u64]) {
        for number in units {
            fs::rename(self.unit(cluster, *number), self.0.path().join(format!("lost-{number}"))).unwrap();
        }
    }

    async fn put_back(&self, cluster: &str, units: &[u64]) -> bool {
        for number in units {
            fs::rename(self.0.path().join(format!("lost-{number}")), self.unit(cluster, *number)).unwrap();
        }
        true
    }
}

impl Logs {
    fn unit(&self, cluster: &str, number: u64) -> PathBuf {
        self.0.path().join(format!("shared/{cluster}/units/{number:020}"))
    }
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

/// Somebody stood still between two requests, or ended there.
#[tokio::test]
async fn what_lies_apart_is_no_unit() {
    let logs = Logs(tempfile::tempdir().unwrap());
    let (mut old, mut new) = (logs.open("c"), logs.open("c"));
    let text = Bytes::from_static(b"a");
    for number in 1..=4 {
        assert_eq!(old.append(number, text.clone()).await, Ok(Appended::Done));
    }
    // Its own is the one that is gone: nothing stays behind it.
    fs::remove_file(logs.unit("c", 4)).unwrap();
    assert_eq!(old.append(5, text.clone()).await, Ok(Appended::Behind(3)));
    assert!(!logs.unit("c", 5).exists());
    // One that was made there by somebody who could not look any more: nobody knows whether something else was deleted.
    fs::write(logs.unit("c", 5), "b").unwrap();
    let extent = Extent { oldest: Some(1), newest: 5, bases: Vec::new() };
    assert_eq!(new.extent().await, Ok(extent));
    assert_eq!(new.append(6, text.clone()).await, Ok(Appended::Done), "nobody asked for what is before the one before");
    for number in 5..=6 {
        fs::remove_file(logs.unit("c", number)).unwrap();
    }
    // Below a base: its number was removed.
    assert_eq!(old.read(1, 10).await.unwrap().len(), 2);
    for number in 4..=9 {
        assert_eq!(new.append(number, text.clone()).await, Ok(Appended::Done));
    }
    new.put_part(8, 0, text.clone()).await.unwrap();
    let base = Base { number: 8, parts: 1 };
    new.finish_base(base).await.unwrap();
    new.truncate(8).await.unwrap();
    assert_eq!(old.append(4, text.clone()).await, Ok(Appended::Taken));
    assert!(!logs.unit("c", 4).exists());
    fs::write(logs.unit("c", 4), "b").unwrap();
    let extent = Extent { oldest: Some(9), newest: 9, bases: vec![base] };
    assert_eq!(old.extent().await, Ok(extent));
    assert_eq!(old.read(3, 1).await, Ok(Vec::new()));
    new.truncate(8).await.unwrap();
    assert!(!logs.unit("c", 4).exists());
}

/// Units are removed while somebody who stood still goes on: the one before is there still, and its own is not any more.
#[tokio::test]
async fn a_number_whose_block_is_being_removed_is_taken() {
    let logs = Logs(tempfile::tempdir().unwrap());
    let (mut old, mut new) = (logs.open("c"), logs.open("c"));
    let text = Bytes::from_static(b"a");
    new.append(1, text.clone()).await.unwrap();
    for number in 2..=1600 {
        fs::write(logs.unit("c", number), "a").unwrap();
    }
    assert_eq!(old.read(1499, 1).await.unwrap()[0].number, 1500);
    new.put_part(1550, 0, text.clone()).await.unwrap();
    new.finish_base(Base { number: 1550, parts: 1 }).await.unwrap();
    // Who comes to the end has no need of the bases.
    assert_eq!(new.append(1601, text.clone()).await, Ok(Appended::Done));
    let removed = (1..=1000).chain([1501]);
    removed.for_each(|number| fs::remove_file(logs.unit("c", number)).unwrap());
    assert_eq!(old.append(1501, text.clone()).await, Ok(Appended::Taken));
    assert!(!logs.unit("c", 1501).exists());
    new.truncate(1550).await.unwrap();
    let left = (1..=1601).filter(|number| logs.unit("c", *number).exists());
    assert_eq!(left.collect::<Vec<_>>(), (1551..=1601).collect::<Vec<_>>());
    assert_eq!(new.append(1602, text.clone()).await, Ok(Appended::Done));
}

/// A server that writes over what is there gets no unit.
#[tokio::test]
async fn a_server_that_keeps_no_conditions_keeps_no_shared_log() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = Bucket::start(|seen| seen.headers.contains_key("if-none-match").then_some((200, ""))).await;
    drop(bucket.sink(dir.path()));
    let credentials = dir.path().join("aws");
    let config = config("s3://logs", json!({"endpoint": bucket.endpoint, "credentials_file": credentials}));
    let mut log = S3Log::new(&config, "archive", "c").unwrap();
    let error = log.append(1, Bytes::from_static(b"x")).await.unwrap_err();
    assert!(matches!(&error, LogError::Halt(text) if text.contains("does not keep conditional writes")), "{error}");
    assert!(bucket.seen.lock().unwrap().iter().all(|seen| !seen.key.contains("units")));
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

#[tokio::test(flavor = "multi_thread")]
async fn a_shared_log_in_a_folder() {
    let logs = Logs(tempfile::tempdir().unwrap());
    shared::keeps_what_it_promises(&logs).await;
    println!("an append of 1 KB and of 1 MB: {:?}", shared::latency(&logs).await);
}
