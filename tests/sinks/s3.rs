//! Segments in a bucket, and in a folder.

mod evidence;
mod log;

pub(crate) use decklog_testkit::servers::s3 as start;
use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::certs;
use crate::judge::Entry;
use crate::proxy::Proxy;
use crate::server::free_port;
use crate::support::{Daemon, until};
use crate::timelines;
use crate::trial::{self, Far, Promise, Trial};
use start::{KEY, S3, SECRET};

/// Every segment below a directory, in the order of what it begins with.
fn segments(dir: &Path) -> Vec<PathBuf> {
    fn walk(dir: &Path, into: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(dir).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, into);
            } else if path.to_str().is_some_and(|name| name.ends_with(".jsonl.zst")) {
                into.push(path);
            }
        }
    }
    let mut paths = Vec::new();
    walk(dir, &mut paths);
    paths.sort_by_key(|path| path.file_name().unwrap().to_owned());
    paths
}

fn lines(segments: &[PathBuf]) -> Vec<String> {
    let text = |path: &PathBuf| String::from_utf8(zstd::decode_all(&fs::read(path).unwrap()[..]).unwrap()).unwrap();
    segments.iter().flat_map(|path| text(path).lines().map(str::to_owned).collect::<Vec<_>>()).collect()
}

/// What these tests do with the server.
trait S3Tests: Sized {
    fn remove(&self, objects: &[PathBuf]);
    fn bucket(&self, run: &str) -> PathBuf;
}

impl S3Tests for S3 {
    /// Removes objects, with what the server knows of them.
    fn remove(&self, objects: &[PathBuf]) {
        let (root, meta) = (self.dir.path().join("root"), self.dir.path().join("meta"));
        for object in objects {
            fs::remove_file(object).unwrap();
            fs::remove_dir_all(meta.join(object.strip_prefix(&root).unwrap())).unwrap();
        }
    }

    fn bucket(&self, run: &str) -> PathBuf {
        self.dir.path().join("root").join(format!("bucket-{run}"))
    }
}

/// The keys of a sink; its credentials are in `dir`.
fn sink(scheme: &str, port: u16, run: &str, dir: &Path) -> String {
    let credentials = dir.join("aws");
    let key = format!("[default]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n");
    fs::write(&credentials, key).unwrap();
    format!(
        "type = \"s3\"\nurl = \"s3://bucket-{run}/log\"\nendpoint = \"{scheme}://127.0.0.1:{port}\"\ncredentials_file = {credentials:?}\nsegment_age = \"50ms\"\n"
    )
}

impl Far for S3 {
    fn promise(&self) -> Promise {
        Promise::ExactlyOnce
    }

    fn port(&self) -> u16 {
        self.server.port()
    }

    fn sink(&self, port: u16, run: &str, dir: &Path) -> String {
        sink("http", port, run, dir)
    }

    async fn prepare(&self, daemon: &Daemon, _run: &str) {
        daemon.command(&["sink", "init", "far"]).await.done();
    }

    fn kill(&mut self) {
        self.server.kill();
    }

    async fn restart(&mut self) {
        self.server.restart().await;
    }

    async fn consumed(&self, run: &str) -> Result<Vec<String>, String> {
        Ok(lines(&segments(&self.bucket(run))))
    }
}

/// A folder has no server that could be killed.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }
}

impl Far for Folder {
    fn promise(&self) -> Promise {
        Promise::ExactlyOnce
    }

    fn port(&self) -> u16 {
        0
    }

    fn sink(&self, _port: u16, run: &str, _dir: &Path) -> String {
        let url = format!("file://{}", self.0.path().join(run).display());
        format!("type = \"s3\"\nurl = {url:?}\nsegment_age = \"50ms\"\npartition = \"none\"\n")
    }

    async fn prepare(&self, daemon: &Daemon, _run: &str) {
        daemon.command(&["sink", "init", "far"]).await.done();
    }

    fn kill(&mut self) {}

    async fn restart(&mut self) {}

    async fn consumed(&self, run: &str) -> Result<Vec<String>, String> {
        Ok(lines(&segments(&self.0.path().join(run))))
    }

    /// What is not mounted.
    fn away(&self, _proxy: &Proxy, run: &str, away: bool) {
        let (there, gone) = (self.0.path().join(run), self.0.path().join(format!("{run}-gone")));
        let (from, to) = if away { (there, gone) } else { (gone, there) };
        fs::rename(from, to).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s3_timeline_put_back_twice() {
    timelines::put_back_twice(&mut S3::start().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s3_timeline_put_back_while_away() {
    timelines::put_back_while_away(&mut S3::start().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s3_timeline_clock_behind() {
    timelines::lost_under_a_clock_that_is_behind(&mut S3::start().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s3_timeline_two_copies() {
    timelines::two_copies_run(&mut S3::start().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s3_timeline_stood_still() {
    timelines::stood_still(&mut S3::start().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn folder_timeline_put_back_twice() {
    timelines::put_back_twice(&mut Folder::new()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn folder_timeline_put_back_while_away() {
    timelines::put_back_while_away(&mut Folder::new()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn folder_timeline_clock_behind() {
    timelines::lost_under_a_clock_that_is_behind(&mut Folder::new()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn folder_timeline_two_copies() {
    timelines::two_copies_run(&mut Folder::new()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn folder_timeline_stood_still() {
    timelines::stood_still(&mut Folder::new()).await;
}

#[tokio::test]
async fn s3_undisturbed() {
    trial::undisturbed(&mut S3::start().await).await;
}

#[tokio::test]
async fn s3_is_killed() {
    trial::server_killed(&mut S3::start().await).await;
}

/// Fault 74: the answer to a write is lost.
#[tokio::test]
async fn s3_answers_are_cut() {
    trial::answers_cut(&mut S3::start().await).await;
}

#[tokio::test]
async fn s3_and_a_daemon_that_is_killed() {
    trial::daemon_killed(&mut S3::start().await).await;
}

/// Fault 75: a segment that was begun is written again, and never seen in part.
#[tokio::test]
async fn s3_and_a_kill_at_every_exchange() {
    trial::killed_at_every_exchange(&mut S3::start().await).await;
}

#[tokio::test]
async fn a_folder_undisturbed() {
    trial::undisturbed(&mut Folder::new()).await;
}

/// Fault 75: a file that was begun is not a segment.
#[tokio::test]
async fn a_folder_and_a_daemon_that_is_killed() {
    trial::daemon_killed(&mut Folder::new()).await;
}

/// A bucket without its newest segments, whether its manifest knows of that or not.
#[tokio::test]
async fn a_bucket_that_was_put_back_is_filled_up_again() {
    let mut s3 = S3::start().await;
    let mut trial = Trial::new(&mut s3, "restored").await;
    trial.daemon.start();
    trial.daemon.ready().await;
    let bucket = trial.far.bucket("restored");
    for old_manifest in [false, true] {
        let manifest =
            fs::read_dir(bucket.join("log/manifest")).ok().map(|mut files| files.next().unwrap().unwrap().path());
        let before = manifest.map(|path| (fs::read(&path).unwrap(), path));
        let older = segments(&bucket).len();
        for _ in 0..3 {
            trial.write(7);
            trial.caught_up().await;
        }
        trial.daemon.stop().await;
        let later = segments(&bucket);
        assert!(later.len() >= older + 3, "{later:?}");
        trial.far.remove(&later[older + 1..]);
        if old_manifest {
            let (bytes, path) = before.unwrap();
            fs::write(path, bytes).unwrap();
        }
        trial.daemon.start();
        trial.daemon.ready().await;
        trial.caught_up().await;
    }
    trial.judged().await;
    // A running daemon sees it before the next segment, and looks when it is told to.
    trial.daemon.start();
    trial.daemon.ready().await;
    for told in [false, true] {
        let manifest = fs::read_dir(bucket.join("log/manifest")).unwrap().map(|file| file.unwrap().path());
        trial.far.remove(&manifest.chain(segments(&bucket)).collect::<Vec<_>>());
        if told {
            trial.daemon.signal(Signal::HUP);
        } else {
            trial.write(3);
        }
        until("the segments to be there again", async || {
            let count = lines(&segments(&bucket)).len();
            if count == trial.daemon.lines() { Ok(()) } else { Err(count.to_string()) }
        })
        .await;
        trial.caught_up().await;
    }
    trial.judged().await;
}

/// What is delivered again stands beside the segments, and says nothing of how far the log came.
#[tokio::test]
async fn a_replay_to_s3_moves_nothing() {
    let mut s3 = S3::start().await;
    let mut trial = Trial::new(&mut s3, "replayed").await;
    trial.daemon.start();
    trial.daemon.ready().await;
    trial.write(10);
    trial.caught_up().await;
    let log = fs::read_to_string(trial.daemon.log()).unwrap();
    for _ in 0..2 {
        trial.daemon.command(&["replay", "--sink", "far", "--from", "3", "--to", "5"]).await.done();
        let again = trial.far.bucket("replayed").join("log/replay");
        assert_eq!(lines(&segments(&again)), log.lines().skip(2).take(3).collect::<Vec<_>>());
        fs::remove_dir_all(again).unwrap();
    }
    trial.judged().await;
}

/// What an operator got wrong is told in a sentence, by `check` and in the status, and delivery goes on when it is right.
#[tokio::test]
async fn what_is_wrong_with_a_bucket_is_said() {
    let s3 = S3::start().await;
    let sim = crate::support::cluster().await;
    let mut daemon = Daemon::new(&sim, &["configmaps"]);
    let (port, shut, dir) = (s3.server.port(), free_port(), daemon.path(""));
    let with =
        |text: String| daemon.config("resources = [\"configmaps\"]", &format!("[[sink]]\nname = \"far\"\n{text}\n"));
    let missing =
        format!("the bucket bucket-log at http://127.0.0.1:{port} does not exist; `decklog sink init far` makes it");
    let aws = daemon.path("aws");
    for (config, from, to, says) in [
        (sink("http", shut, "log", &dir), "", "", "Connection refused"),
        (sink("http", port, "log", &dir).replace("127.0.0.1", "nowhere.invalid"), "", "", "nowhere.invalid"),
        (sink("http", port, "log", &dir), SECRET, "wr0ng", "SignatureDoesNotMatch"),
        (sink("http", port, "log", &dir), KEY, "nobody", "No user exists with the provided access key"),
        (sink("http", port, "log", &dir), "aws_secret_access_key", "secret", "holds no aws_access_key_id"),
        (sink("http", port, "log", &dir), "", "", &missing),
    ] {
        let key = format!("aws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n");
        fs::write(&aws, if from.is_empty() { key } else { key.replace(from, to) }).unwrap();
        daemon.configure(&with(config));
        let checked = daemon.command(&["check"]).await;
        assert!(checked.code == 1 && checked.out.contains(says), "{says}: {checked:#?}");
        assert!(!checked.out.contains("wr0ng"));
    }
    // What is right by and by: first the secret, then the bucket.
    fs::write(&aws, format!("aws_access_key_id = {KEY}\naws_secret_access_key = wr0ng\n")).unwrap();
    daemon.start();
    let detail = daemon.waits_for_state("sinks", "far", "retrying").await;
    assert!(detail.contains("SignatureDoesNotMatch") && detail.contains("renew the credentials"), "{detail}");
    fs::write(&aws, format!("aws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n")).unwrap();
    daemon.signal(Signal::HUP);
    daemon.says(&missing).await;
    daemon.command(&["sink", "init", "far"]).await.done();
    assert!(daemon.command(&["sink", "init", "far"]).await.err.contains("is there already"));
    daemon.waits_for_state("sinks", "far", "running").await;
    daemon.command(&["check"]).await.done();
    daemon.stop().await;
    assert!(!daemon.said().contains(SECRET) && !daemon.said().contains("wr0ng"));
}

/// Over TLS, with an authority that is trusted and one that is not.
#[tokio::test]
async fn s3_with_tls() {
    let pki = tempfile::tempdir().unwrap();
    certs::make(pki.path());
    let file = |name: &str| pki.path().join(name).to_str().unwrap().to_owned();
    let s3 = S3::with(vec!["--cert".to_owned(), file("server.pem"), "--key".to_owned(), file("server.key")]).await;
    let sim = crate::support::cluster().await;
    let mut daemon = Daemon::new(&sim, &["configmaps"]);
    let with = |ca: &str| {
        let keys = sink("https", s3.server.port(), "tls", &daemon.path(""));
        let keys = format!("[[sink]]\nname = \"far\"\n{keys}ca_file = {:?}\n", file(ca));
        daemon.config("resources = [\"configmaps\"]", &keys)
    };
    daemon.configure(&with("stranger.pem"));
    let checked = daemon.command(&["check"]).await;
    assert!(checked.code == 1 && checked.out.contains("certificate is not signed by"), "{checked:#?}");
    daemon.configure(&with("ca.pem"));
    daemon.command(&["sink", "init", "far"]).await.done();
    daemon.start();
    daemon.ready().await;
    sim.create("configmaps", decklog::sim::objects::config_map("default", "one", "x")).unwrap();
    daemon.reach(1).await;
    until("the entry to be there", async || {
        let held = lines(&segments(&s3.bucket("tls")));
        let log = fs::read_to_string(daemon.log()).unwrap();
        if held == log.lines().collect::<Vec<_>>() { Ok(()) } else { Err(format!("{held:?}")) }
    })
    .await;
    daemon.stop().await;
}

/// Each entry is under the date that it names.
#[tokio::test]
async fn segments_are_under_their_dates() {
    let mut s3 = S3::start().await;
    let mut trial = Trial::new(&mut s3, "dates").await;
    trial.daemon.start();
    trial.daemon.ready().await;
    trial.write(5);
    trial.caught_up().await;
    for segment in segments(&trial.far.bucket("dates")) {
        for line in lines(std::slice::from_ref(&segment)) {
            assert!(Entry::parse(&line).seq > 0);
            let day =
                serde_json::from_str::<serde_json::Value>(&line).unwrap()["time"].as_str().unwrap()[..10].to_owned();
            assert!(segment.to_str().unwrap().contains(&format!("/log/date={day}/")), "{segment:?} {day}");
        }
    }
    trial.judged().await;
}
