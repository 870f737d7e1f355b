//! Buckets beside directories: each goes on from what it has, and none holds up another.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use tempfile::TempDir;
use tokio::sync::Notify;

use super::*;
use crate::core::bucket::Objects;
use crate::journal::Bounds;
use crate::journal::tests::until;

/// What a bucket has, and how it fails.
#[derive(Debug, Default)]
struct Inner {
    objects: BTreeMap<String, Bytes>,
    /// Names that were written, in their order.
    written: Vec<String>,
    is_away: bool,
    /// Reads do not end.
    is_silent: bool,
    /// Creations that end; the others do not.
    creations_left: Option<usize>,
    /// Told of a creation that does not end.
    stalled: Arc<Notify>,
    /// Object that somebody else writes before the next one is replaced.
    meanwhile: Option<Bytes>,
}

/// A bucket in memory, as one decklog has it.
#[derive(Clone, Debug, Default)]
struct Bucket {
    inner: Arc<Mutex<Inner>>,
    /// Objects as they were read or replaced last.
    known: BTreeMap<String, Option<Bytes>>,
}

impl Bucket {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }

    fn place(&self) -> Place {
        Place::Bucket(Box::new(self.clone()))
    }

    /// What an auditor finds who downloads it, and the directory of that.
    fn archive(&self) -> (Archive, TempDir) {
        let dir = tempfile::tempdir().unwrap();
        for (name, bytes) in &self.inner().objects {
            let path = dir.path().join("evidence").join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
        (whole(dir.path()), dir)
    }

    /// Notes of the trees, in their order.
    fn notes(&self) -> Vec<String> {
        self.archive().0.checkpoints().map(|signed| signed.note.clone()).collect()
    }

    fn answers(&self) -> Result<MutexGuard<'_, Inner>, String> {
        let inner = self.inner();
        if inner.is_away { Err("the bucket logs is away".to_owned()) } else { Ok(inner) }
    }
}

impl Objects for Bucket {
    fn shown(&self) -> String {
        "the bucket logs".to_owned()
    }

    fn get<'a>(&'a mut self, key: &'a str) -> BoxFuture<'a, Result<Option<Bytes>, String>> {
        if self.inner().is_silent {
            return pending().boxed();
        }
        async {
            let there = self.answers()?.objects.get(key).cloned();
            self.known.insert(key.to_owned(), there.clone());
            Ok(there)
        }
        .boxed()
    }

    fn put<'a>(&'a mut self, key: &'a str, bytes: Bytes) -> BoxFuture<'a, Result<(), String>> {
        async {
            let mut inner = self.answers()?;
            inner.written.push(key.to_owned());
            inner.objects.insert(key.to_owned(), bytes);
            Ok(())
        }
        .boxed()
    }

    fn replace<'a>(&'a mut self, key: &'a str, bytes: Bytes) -> BoxFuture<'a, Result<bool, String>> {
        async {
            let known = self.known.remove(key).expect("it was read before");
            let other = self.inner().meanwhile.take();
            if let Some(other) = other {
                self.inner().objects.insert(key.to_owned(), other);
            }
            if self.answers()?.objects.get(key) != known.as_ref() {
                return Ok(false);
            }
            self.put(key, bytes.clone()).await?;
            self.known.insert(key.to_owned(), Some(bytes));
            Ok(true)
        }
        .boxed()
    }

    fn create(&mut self, objects: Vec<(String, Bytes)>) -> BoxFuture<'_, Result<Vec<(String, Bytes)>, String>> {
        async move {
            let mut there = Vec::new();
            for (key, bytes) in objects {
                let left = self.inner().creations_left;
                match left {
                    Some(0) => {
                        self.inner().stalled.notify_one();
                        pending::<()>().await;
                    }
                    left => self.inner().creations_left = left.map(|left| left - 1),
                }
                let mut inner = self.answers()?;
                match inner.objects.get(&key) {
                    Some(known) => there.push((key, known.clone())),
                    None => {
                        inner.written.push(key.clone());
                        inner.objects.insert(key, bytes);
                    }
                }
            }
            Ok(there)
        }
        .boxed()
    }

    fn remove_below<'a>(&'a mut self, key: &'a str) -> BoxFuture<'a, Result<(), String>> {
        async move {
            self.answers()?.objects.retain(|name, _| !name.starts_with(&format!("{key}/")));
            Ok(())
        }
        .boxed()
    }

    fn check(&mut self) -> BoxFuture<'_, Result<(), String>> {
        async { self.answers().map(drop) }.boxed()
    }
}

fn directory(dir: &Path) -> Place {
    Place::Directory(Directory::new(dir.join("evidence")))
}

/// Notes of the trees in the directory, in their order.
fn notes(dir: &Path) -> Vec<String> {
    whole(dir).checkpoints().map(|signed| signed.note.clone()).collect()
}

/// Over restarts, new epochs and ends of blocks: no tile is written twice, and nothing partial stays beside what is complete.
#[tokio::test]
async fn a_bucket_goes_on_from_its_own_checkpoint() {
    let (dir, bucket) = (tempfile::tempdir().unwrap(), Bucket::default());
    let mut version = 0;
    for batch in [1, 254, 1, 255, 300, 1000, 0, 5000, 3] {
        let mut log = Log::with(dir.path(), version, vec![bucket.place()]).await;
        if batch > 0 {
            log.append(batch).await;
        }
        log.sign().await.unwrap();
        let (mut archive, _copy) = bucket.archive();
        for (epoch, seq, digest) in log.lines() {
            assert_eq!(archive.check_line(&epoch, seq, &digest).unwrap(), Found::Proved, "entry {seq}");
        }
        let last = bucket.inner().written.last().unwrap().clone();
        assert!(last.ends_with("/checkpoint"), "{last} is written behind the checkpoint");
        if batch == 300 {
            log.journal.begin_epoch(None).await.unwrap();
        }
        version = log.close().await;
    }
    let inner = bucket.inner();
    let mut tiles: Vec<&String> = inner.written.iter().filter(|name| name.contains("/tile/")).collect();
    let count = tiles.len();
    tiles.sort();
    tiles.dedup();
    assert_eq!(tiles.len(), count, "a tile was written twice");
    for part in inner.objects.keys().filter_map(|name| name.split_once(".p/")) {
        assert!(!inner.objects.contains_key(part.0), "{part:?} is beside the complete one");
    }
}

/// A bucket is away, silent, slow, or has something else in the place of a tile. The directory gets every checkpoint, the alarm names
/// the bucket, and once it is well, it gets everything, with the same note.
#[tokio::test]
async fn a_place_that_fails_holds_up_no_other() {
    type Change = fn(&mut Inner, &str);
    let table: [(&str, Change, Change, &str); 5] = [
        ("away", |bucket, _| bucket.is_away = true, |bucket, _| bucket.is_away = false, "the bucket logs is away"),
        ("silent", |bucket, _| bucket.is_silent = true, |bucket, _| bucket.is_silent = false, "did not answer within"),
        (
            "slow",
            |bucket, _| bucket.creations_left = Some(40),
            |bucket, _| bucket.creations_left = None,
            "the bucket logs is behind",
        ),
        (
            "another tile",
            |bucket, tree| drop(bucket.objects.insert(format!("{tree}/tile/entries/009"), "else".into())),
            |bucket, tree| drop(bucket.objects.remove(&format!("{tree}/tile/entries/009"))),
            "tile/entries/009 in the bucket logs is there with other contents",
        ),
        (
            "no checkpoint",
            |bucket, tree| drop(bucket.objects.insert(format!("{tree}/checkpoint"), "else".into())),
            |bucket, tree| drop(bucket.objects.remove(&format!("{tree}/checkpoint"))),
            "is no checkpoint of decklog",
        ),
    ];
    let pace = Pace { look: Duration::from_millis(500), write: Duration::from_secs(5) };
    for (name, fail, mend, says) in table {
        let (dir, bucket) = (tempfile::tempdir().unwrap(), Bucket::default());
        let mut log = Log::with(dir.path(), 0, vec![bucket.place(), directory(dir.path())]).await;
        log.append(1000).await;
        log.sign().await.unwrap();
        let tree = bucket.inner().written[0].split_once('/').unwrap().0.to_owned();
        fail(&mut bucket.inner(), &tree);
        let damaged = bucket.inner().objects.clone();
        for batch in [6000, 100] {
            log.append(batch).await;
            let why = log.publisher.sign(&log.journal, pace).await.unwrap_err().to_string();
            assert!(why.contains(says) && why.contains("the bucket logs"), "{name}: {why}");
            let here = notes(dir.path());
            let last = read_signed(here[0].as_bytes(), &keys()).unwrap().checkpoint.last();
            assert_eq!(last, Some(log.version), "{name}");
            assert_eq!(log.journal.reader().unwrap().trees().unwrap()[0].note.as_ref(), here.first(), "{name}");
        }
        for (key, bytes) in &damaged {
            assert_eq!(bucket.inner().objects.get(key), Some(bytes), "{name}: {key} was written over");
        }
        mend(&mut bucket.inner(), &tree);
        log.sign().await.unwrap();
        assert_eq!(bucket.notes(), notes(dir.path()), "{name}");
        let written = bucket.inner().written.len();
        log.sign().await.unwrap();
        assert_eq!(bucket.inner().written.len(), written, "{name}: nothing is missing, and something was written");
        log.close().await;
    }
}

/// A leader that was paused while it wrote does not put an old checkpoint in the place of its successor's.
#[tokio::test]
async fn a_checkpoint_is_not_written_over_one_that_came_meanwhile() {
    let (dir, bucket) = (tempfile::tempdir().unwrap(), Bucket::default());
    let mut log = Log::with(dir.path(), 0, vec![bucket.place()]).await;
    log.append(1000).await;
    log.sign().await.unwrap();
    let name = bucket.inner().written.last().unwrap().clone();
    let before = bucket.inner().objects.clone();
    log.append(10).await;
    log.sign().await.unwrap();
    let newer = std::mem::replace(&mut bucket.inner().objects, before)[&name].clone();
    log.append(10).await;
    bucket.inner().meanwhile = Some(newer.clone());
    let why = log.sign().await.unwrap_err().to_string();
    assert!(why.contains("the bucket logs was written by somebody else since it was read"), "{why}");
    assert_eq!(bucket.inner().objects[&name], newer);
    log.sign().await.unwrap();
    assert_eq!(bucket.archive().0.checkpoints().next().unwrap().checkpoint.last(), Some(log.version));
    log.close().await;
}

/// What a slow place got in one round is not written again in the next one.
#[tokio::test]
async fn a_slow_place_comes_nearer_with_each_round() {
    let (dir, bucket) = (tempfile::tempdir().unwrap(), Bucket::default());
    let mut log = Log::with(dir.path(), 0, vec![bucket.place()]).await;
    log.append(20_000).await;
    let stalled = Arc::clone(&bucket.inner().stalled);
    for _ in 0..3 {
        bucket.inner().creations_left = Some(50);
        // The time of the round is over once the bucket takes no more, however fast the machine is.
        let end = async {
            stalled.notified().await;
            tokio::time::pause();
            tokio::time::advance(Pace::USUAL.write).await;
            tokio::time::resume();
        };
        let (signed, ()) = tokio::join!(log.sign(), end);
        let why = signed.unwrap_err();
        assert!(why.contains("is behind"), "{why}");
        log.append(10).await;
    }
    assert!(log.journal.reader().unwrap().trees().unwrap()[0].note.is_none(), "no place has a checkpoint");
    // Each round finishes 32 tiles, and begins others.
    let count = bucket.inner().written.len();
    assert!(count > 100, "{count} tiles after three rounds");
    bucket.inner().creations_left = None;
    log.sign().await.unwrap();
    bucket.archive();
}

/// A bucket that is added later gets what was signed before, also the trees that have ended.
#[tokio::test]
async fn a_place_that_is_added_gets_everything() {
    let (dir, bucket) = (tempfile::tempdir().unwrap(), Bucket::default());
    let mut log = Log::open(dir.path(), 0).await;
    for batch in [700, 1, 300] {
        log.append(batch).await;
        log.sign().await.unwrap();
        log.journal.begin_epoch(None).await.unwrap();
    }
    log.append(5).await;
    let version = log.close().await;
    let mut log = Log::with(dir.path(), version, vec![directory(dir.path()), bucket.place()]).await;
    log.append(5).await;
    log.sign().await.unwrap();
    assert_eq!(bucket.notes(), notes(dir.path()));
    assert_eq!(bucket.notes().len(), 4);
    // In its turn it is enough for a directory that was lost.
    let version = log.close().await;
    fs::remove_dir_all(dir.path().join("evidence")).unwrap();
    let log = Log::with(dir.path(), version, vec![directory(dir.path()), bucket.place()]).await;
    log.sign().await.unwrap();
    assert_eq!(bucket.notes(), notes(dir.path()));
}

/// A journal that was restored from a copy, and one place of two that knows what came behind the copy, at the start or later.
#[tokio::test]
async fn nothing_is_signed_beside_a_history_that_any_place_has() {
    for is_away in [false, true] {
        let (dir, bucket) = (tempfile::tempdir().unwrap(), Bucket::default());
        let places = || vec![directory(dir.path()), bucket.place()];
        let (state, copy) = (dir.path().join("state"), dir.path().join("copy"));
        let mut log = Log::with(dir.path(), 0, places()).await;
        log.append(300).await;
        log.sign().await.unwrap();
        let version = log.close().await;
        copied(&state, &copy);
        let mut log = Log::with(dir.path(), version, places()).await;
        log.append(100).await;
        log.sign().await.unwrap();
        let last = bucket.notes().pop().unwrap();
        log.close().await;
        fs::remove_dir_all(&state).unwrap();
        fs::remove_dir_all(dir.path().join("evidence")).unwrap();
        copied(&copy, &state);
        bucket.inner().is_away = is_away;
        let mut log = Log::with(dir.path(), version + 1000, places()).await;
        bucket.inner().is_away = false;
        log.append(50).await;
        if is_away {
            let why = log.sign().await.unwrap_err();
            assert!(why.starts_with("the bucket logs has a checkpoint over 401 leaves"), "{why}");
            assert!(!dir.path().join("evidence").exists(), "something was signed");
            let version = log.close().await;
            log = Log::with(dir.path(), version, places()).await;
        }
        log.append(1).await;
        log.sign().await.unwrap();
        let trees = log.journal.reader().unwrap().trees().unwrap();
        assert_eq!(trees.last().unwrap().before.as_deref(), Some(&*last), "{is_away}");
        assert!(bucket.notes().contains(&last), "{is_away}");
        assert_eq!(bucket.notes().len(), 2, "{is_away}");
    }
}

/// The journal keeps of truncated entries 32 bytes for each block of 256 once every place has their digests: enough to sign on. A new
/// place is made from a directory, to the byte, but never from what is not what was logged; without one the problem says what to copy.
#[tokio::test]
async fn what_is_truncated_is_still_proved_in_a_place_that_is_made_again() {
    let (dir, bucket) = (tempfile::tempdir().unwrap(), Bucket::default());
    let mut log = Log::open(dir.path(), 0).await;
    log.append(1500).await;
    log.sign().await.unwrap();
    let lines = log.lines();
    truncate(&log, 1500).await;
    until("digests to be removed", || leaves(dir.path()) == 0).await;
    let version = log.close().await;
    let evidence = dir.path().join("evidence");
    let made = files_below(&evidence);
    let tree = only_tree(&evidence);

    let bundle = evidence.join(&tree).join("tile/entries/001");
    let right = fs::read(&bundle).unwrap();
    let mut wrong = right.clone();
    // Behind the length of a leaf.
    wrong[2 + 7] ^= 1;
    fs::write(&bundle, wrong).unwrap();
    let mut log = Log::with(dir.path(), version, vec![directory(dir.path()), bucket.place()]).await;
    log.append(10).await;
    let why = log.sign().await.unwrap_err().to_string();
    assert!(why.contains("the digests of the entries 256 to 511 are truncated with them"), "{why}");
    assert!(why.contains(&format!("copy what is below {tree} from another place")), "{why}");
    fs::write(&bundle, right).unwrap();
    log.sign().await.unwrap();
    assert_eq!(bucket.notes(), notes(dir.path()));
    for (name, bytes) in made.iter().filter(|(name, _)| name.contains("/tile/") && !name.contains(".p/")) {
        let name = name.trim_start_matches('/');
        assert_eq!(bucket.inner().objects.get(name).map(|object| &**object), Some(&**bytes), "{name}");
    }

    let version = log.close().await;
    fs::remove_dir_all(&evidence).unwrap();
    let mut log = Log::with(dir.path(), version, vec![directory(dir.path()), bucket.place()]).await;
    log.append(300).await;
    let why = log.sign().await.unwrap_err().to_string();
    assert!(why.contains("the digests of the entries 1 to 255 are truncated with them"), "{why}");
    let last = |note: &str| read_signed(note.as_bytes(), &keys()).unwrap().checkpoint.last();
    assert_eq!(last(&bucket.notes()[0]), Some(log.version), "the other place gets what is new");
    for (name, bytes) in &bucket.inner().objects {
        fs::create_dir_all(evidence.join(name).parent().unwrap()).unwrap();
        fs::write(evidence.join(name), bytes).unwrap();
    }
    log.sign().await.unwrap();
    for mut archive in [whole(dir.path()), bucket.archive().0] {
        for (epoch, seq, digest) in lines.iter().chain(&log.lines()) {
            assert_eq!(archive.check_line(epoch, *seq, digest).unwrap(), Found::Proved, "entry {seq}");
        }
    }
    log.close().await;
}

/// Digests leave the journal once every place has them. A place that is made again without any directory gets the same bytes, made of the
/// entries, but nothing from entries that somebody changed.
#[tokio::test]
async fn digests_of_entries_that_stay_are_made_again() {
    let (dir, bucket) = (tempfile::tempdir().unwrap(), Bucket::default());
    let mut log = Log::with(dir.path(), 0, vec![directory(dir.path()), bucket.place()]).await;
    retain(&log).await;
    log.append(700).await;
    log.sign().await.unwrap();
    until("digests to be removed", || leaves(dir.path()) == 0).await;
    let (evidence, journal) = (dir.path().join("evidence"), dir.path().join("state/journal.db"));
    let made = files_below(&evidence);
    let lines = log.lines();
    let version = log.close().await;
    fs::remove_dir_all(&evidence).unwrap();

    let renewed = Bucket::default();
    let log = Log::with(dir.path(), version, vec![renewed.place(), directory(dir.path())]).await;
    log.sign().await.unwrap();
    let is_whole = |name: &String| name.contains("/tile/") && !name.contains(".p/");
    let again = files_below(&evidence);
    for (name, bytes) in made.iter().filter(|(name, _)| is_whole(name)) {
        assert_eq!(again.get(name), Some(bytes), "{name}");
    }
    for (epoch, seq, digest) in &lines {
        assert_eq!(renewed.archive().0.check_line(epoch, *seq, digest).unwrap(), Found::Proved, "entry {seq}");
    }
    let version = log.close().await;

    let other = rusqlite::Connection::open(&journal).unwrap();
    // Two that are stored as differences of one entry, so that the line can be read; none is one of the changed entry.
    let two = "SELECT one.seq AS one, other.seq AS other FROM entry one JOIN entry other ON other.base = one.base AND other.seq <> one.seq
        WHERE one.seq BETWEEN 256 AND 511 AND one.seq NOT IN (SELECT base FROM entry WHERE base IS NOT NULL) LIMIT 1";
    let swap = format!(
        "WITH two AS ({two}) UPDATE entry SET line = (SELECT line FROM entry WHERE seq = (SELECT other FROM two))
         WHERE seq = (SELECT one FROM two)"
    );
    assert_eq!(other.execute(&swap, []).unwrap(), 1);
    drop(other);
    let newest = Bucket::default();
    let mut log = Log::with(dir.path(), version, vec![newest.place()]).await;
    let why = log.sign().await.unwrap_err().to_string();
    assert!(why.contains("the digests of the entries 256 to 511 are not those of the entries that"), "{why}");
    log.append(10).await;
    let version = log.close().await;
    let log = Log::with(dir.path(), version, vec![newest.place(), directory(dir.path())]).await;
    log.sign().await.unwrap();
    for (epoch, seq, digest) in &lines {
        assert_eq!(newest.archive().0.check_line(epoch, *seq, digest).unwrap(), Found::Proved, "entry {seq}");
    }
    log.close().await;
}

/// Digests stay while a place lacks them, whether it is away or new, and their room is free once it has them.
#[tokio::test]
async fn digests_stay_until_every_place_has_them() {
    let (dir, bucket) = (tempfile::tempdir().unwrap(), Bucket::default());
    let mut log = Log::with(dir.path(), 0, vec![directory(dir.path()), bucket.place()]).await;
    log.append(600).await;
    log.sign().await.unwrap();
    bucket.inner().is_away = true;
    log.append(900).await;
    log.sign().await.unwrap_err();
    truncate(&log, 1500).await;
    until("what both have to be removed", || leaves(dir.path()) == 3).await;
    log.journal.flush().await.unwrap();
    assert_eq!(leaves(dir.path()), 3, "the bucket lacks these");
    bucket.inner().is_away = false;
    log.sign().await.unwrap();
    until("digests to be removed", || leaves(dir.path()) == 0).await;
    let version = log.close().await;

    let other = Bucket::default();
    other.inner().is_away = true;
    let places = vec![directory(dir.path()), bucket.place(), other.place()];
    let mut log = Log::with(dir.path(), version, places).await;
    log.append(600).await;
    log.sign().await.unwrap_err();
    other.inner().is_away = false;
    other.inner().creations_left = Some(4);
    let pace = Pace { look: Duration::from_secs(5), write: Duration::from_millis(500) };
    log.publisher.sign(&log.journal, pace).await.unwrap_err();
    truncate(&log, 2100).await;
    log.journal.flush().await.unwrap();
    assert!(leaves(dir.path()) > 0, "a new place has none of them");
    other.inner().creations_left = None;
    log.sign().await.unwrap();
    until("digests to be removed", || leaves(dir.path()) == 0).await;
    assert_eq!(other.notes(), bucket.notes());
    log.close().await;
}

/// A bucket that was put back to an old state, of which the journal has no digests and no directory has them, holds up no other, says what
/// to copy, and goes on once that is there.
#[tokio::test]
async fn a_place_that_went_back_behind_the_journal_says_what_to_copy() {
    let (dir, bucket, other) = (tempfile::tempdir().unwrap(), Bucket::default(), Bucket::default());
    let mut log = Log::with(dir.path(), 0, vec![bucket.place(), other.place()]).await;
    log.append(600).await;
    log.sign().await.unwrap();
    let old = bucket.inner().objects.clone();
    log.append(900).await;
    log.sign().await.unwrap();
    truncate(&log, 1500).await;
    until("digests to be removed", || leaves(dir.path()) == 0).await;
    bucket.inner().objects = old.clone();
    let version = log.close().await;
    let mut log = Log::with(dir.path(), version, vec![bucket.place(), other.place()]).await;
    log.append(10).await;
    let why = log.sign().await.unwrap_err().to_string();
    assert!(why.contains("the bucket logs has an old checkpoint: the digests of the entries 512 to 767"), "{why}");
    assert_eq!(bucket.inner().objects, old, "nothing was written beside what could not be compared");
    let last = read_signed(other.notes()[0].as_bytes(), &keys()).unwrap().checkpoint.last();
    assert_eq!(last, Some(log.version), "the other place gets what is new");
    let whole = other.inner().objects.clone();
    bucket.inner().objects = whole;
    log.append(10).await;
    log.sign().await.unwrap();
    assert_eq!(bucket.notes(), other.notes());
    log.close().await;
}

/// Keeps every entry, and lets the journal remove what it needs no longer.
async fn retain(log: &Log) {
    let max_age = Duration::from_secs(10 * 365 * 86_400);
    log.journal.bound(Bounds { max_size: 1 << 40, max_age, drop_oldest: false }).await.unwrap();
}

/// Truncates all but the newest entry.
async fn truncate(log: &Log, newest: u64) {
    log.journal.bound(Bounds { max_size: 1 << 40, max_age: Duration::ZERO, drop_oldest: false }).await.unwrap();
    let oldest = || log.journal.reader().unwrap().retained().unwrap().oldest;
    until("all but the newest to be truncated", || oldest() == newest).await;
}

/// Number of complete blocks of which the journal has the digests.
fn leaves(dir: &Path) -> u64 {
    let journal = rusqlite::Connection::open(dir.join("state/journal.db")).unwrap();
    journal.query_row("SELECT count(*) FROM tree_leaves", [], |row| row.get(0)).unwrap()
}

/// Name of the only tree in a directory.
fn only_tree(evidence: &Path) -> String {
    fs::read_dir(evidence).unwrap().next().unwrap().unwrap().file_name().into_string().unwrap()
}

/// Every file below a directory, by its path.
fn files_below(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut open = vec![dir.to_owned()];
    while let Some(at) = open.pop() {
        for path in fs::read_dir(at).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                open.push(path);
            } else {
                let name = path.strip_prefix(dir).unwrap().display().to_string();
                files.insert(name, fs::read(&path).unwrap());
            }
        }
    }
    files
}
