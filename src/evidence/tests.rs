//! Keys and notes beside those of Go's `golang.org/x/mod/sumdb/note`, and directories of evidence beside the journals that they are of.

mod asking;
mod forged;
mod places;
mod witness;

use std::fs;
use std::path::Path;
use std::time::Duration;

use super::archive::{Archive, Found, Order, read_signed};
use super::key::{SigningKey, VerifierKey};
use super::note::Note;
use super::place::{Directory, Place};
use super::publish::{Pace, Publisher};
use super::settings::Settings;
use super::submit::Witnesses;
use super::tiles::{self, Tile};
use super::tree::Tree;
use crate::core::checkpoint_handle::CheckpointHandle;
use crate::core::merkle::{self, Hash};
use crate::core::model::{Cluster, Observed, Redacted, ResourceVersion, Seq, Verb};
use crate::core::wire::Header;
use crate::journal::tests::pods;
use crate::journal::{Journal, SourceJournal, WatchChange, WriterThread};

/// The example in the documentation of Go's package.
const SIGNING: &str = "PRIVATE+KEY+PeterNeumann+c74f20a3+AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz";
const VERIFIER: &str = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW";
const TEXT: &str =
    "If you think cryptography is the answer to your problem,\nthen you don't know what your problem is.\n";
const SIGNATURE: &str = "\u{2014} PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n";

#[test]
fn keys_and_notes_are_those_of_go() {
    let key = SigningKey::parse(SIGNING).unwrap();
    assert_eq!(key.verifier().to_string(), VERIFIER);
    assert_eq!(key.render().trim(), SIGNING);
    let note = Note::sign(TEXT.to_owned(), &[&key], 1_800_000_000);
    assert!(note.render().starts_with(&format!("{TEXT}\n{SIGNATURE}")));
    let verifier = VerifierKey::parse(VERIFIER).unwrap();
    let read = Note::parse(note.render().as_bytes()).unwrap();
    assert!(read.is_signed_by(&verifier));
    assert_eq!(read.seen_by(&verifier.timed()), Some(1_800_000_000));
    assert!(!format!("{key:?}").contains("AYEKFALV"));
}

/// Whatever byte of a note or a key is changed, it is not accepted as what it was.
#[test]
fn altered_notes_and_keys_are_refused() {
    let verifier = VerifierKey::parse(VERIFIER).unwrap();
    let note = format!("{TEXT}\n{SIGNATURE}");
    for place in 0..note.len() {
        let mut altered = note.clone().into_bytes();
        altered[place] ^= 1;
        let is_good = Note::parse(&altered).is_ok_and(|note| note.is_signed_by(&verifier));
        assert!(!is_good, "byte {place}");
        let cut = Note::parse(&note.as_bytes()[..place]).is_ok_and(|note| note.is_signed_by(&verifier));
        assert!(!cut, "cut at {place}");
    }
    for text in
        ["", "x", SIGNING, "PeterNeumann+c74f20a4+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW", "Peter+c74f20a3+AAAA"]
    {
        assert!(VerifierKey::parse(text).is_err(), "{text}");
    }
    let other = SigningKey::generate("PeterNeumann").unwrap();
    assert!(!Note::parse(note.as_bytes()).unwrap().is_signed_by(other.verifier()));
    for name in ["", "a b", "a+b", "a\nb", &"a".repeat(256)] {
        assert!(SigningKey::generate(name).is_err(), "{name:?}");
    }
}

#[test]
fn tiles_have_the_paths_of_tlog_tiles() {
    let path = |level, number, width| Tile { level, number, width }.path();
    assert_eq!(path(Some(0), 0, 256), "tile/0/000");
    assert_eq!(path(Some(0), 1_234_067, 256), "tile/0/x001/x234/067");
    assert_eq!(path(None, 1_234, 17), "tile/entries/x001/234.p/17");
    assert_eq!(path(Some(2), 999, 1), "tile/2/999.p/1");
    // From 255 leaves to 257 a block becomes full, and the level above gets its first hash.
    let paths = |tiles: Vec<Tile>| tiles.iter().map(Tile::path).collect::<Vec<_>>();
    assert_eq!(paths(tiles::complete(255, 257).collect()), ["tile/entries/000", "tile/0/000"]);
    let partial = paths(tiles::partial(255, 257).collect());
    assert_eq!(partial, ["tile/entries/001.p/1", "tile/0/001.p/1", "tile/1/000.p/1"]);
    assert_eq!(paths(tiles::completed(255, 257).collect()), ["tile/entries/000", "tile/0/000"]);
    assert_eq!(paths(tiles::completed(256, 65536).collect()), ["tile/1/000"]);
    assert_eq!(tiles::complete(300, 300).chain(tiles::partial(300, 300)).count(), 0);
}

/// A journal that is signed.
struct Log {
    journal: Journal,
    thread: WriterThread,
    source: SourceJournal,
    publisher: Publisher,
    version: u64,
}

impl Log {
    async fn open(dir: &Path, version: u64) -> Self {
        Self::with(dir, version, vec![Place::Directory(Directory::new(dir.join("evidence")))]).await
    }

    async fn with(dir: &Path, version: u64, places: Vec<Place>) -> Self {
        Self::witnessed(dir, version, places, &toml::from_str("key_file = \"key\"").unwrap()).await
    }

    /// A log whose settings name witnesses.
    async fn witnessed(dir: &Path, version: u64, places: Vec<Place>, settings: &Settings) -> Self {
        let (journal, thread) = Journal::open(&dir.join("state")).unwrap();
        let publisher = Publisher::new(vec![SigningKey::parse(SIGNING).unwrap()], places, Witnesses::new(settings));
        publisher.begin(&journal).await.unwrap();
        journal.set_cluster(Cluster { name: "c".into(), uid: "c".into() }).await.unwrap();
        let (source, _) = journal.source(&pods()).await.unwrap();
        Self { journal, thread, source, publisher, version }
    }

    /// Logs changes of one object, in one batch.
    async fn append(&mut self, changes: u64) {
        let versions = self.version + 1..=self.version + changes;
        self.version += changes;
        let change = |version| WatchChange { verb: Verb::Upsert, object: pod(version) };
        self.source.append(versions.map(change).collect()).await.unwrap();
        self.journal.flush().await.unwrap();
    }

    async fn sign(&self) -> Result<(), String> {
        self.publisher.sign(&self.journal, Pace::USUAL).await.map_err(|error| error.to_string())
    }

    async fn close(self) -> u64 {
        drop((self.journal, self.source, self.publisher));
        tokio::task::spawn_blocking(|| self.thread.join()).await.unwrap().unwrap();
        self.version
    }

    /// Lines of the log, by epoch and seq.
    fn lines(&self) -> Vec<(String, u64, Hash)> {
        let entries = self.journal.reader().unwrap().entries_after(Seq(0), 100_000, usize::MAX).unwrap();
        let line = |line: &[u8]| (Header::parse(line).unwrap().epoch.into_owned(), merkle::sha256(&[line]));
        let lines = entries.iter().map(|stored| (stored.seq.0, line(&stored.line)));
        lines.map(|(seq, (epoch, digest))| (epoch, seq, digest)).collect()
    }
}

fn pod(version: u64) -> Observed {
    let name = format!("web-{}", version % 3);
    let bytes = format!(
        r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"{name}","namespace":"shop","uid":"{name}","resourceVersion":"{version}"}},"spec":{{"n":{version}}}}}"#
    );
    let version = ResourceVersion::new(version.to_string());
    let body = Redacted { bytes: bytes.into_bytes(), pointers: Vec::new(), marks: Vec::new() };
    Observed { namespace: "shop".into(), uid: name.clone(), name, version, body }
}

fn keys() -> Vec<VerifierKey> {
    vec![VerifierKey::parse(VERIFIER).unwrap()]
}

fn copied(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for file in fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
}

/// Reads the directory, and expects nothing wrong in it.
fn whole(dir: &Path) -> Archive {
    let mut archive = Archive::read(&dir.join("evidence"), &keys()).unwrap();
    assert_eq!(archive.check_order(&keys()).unwrap(), Order::default());
    assert_eq!(archive.problems, [""; 0]);
    archive
}

/// Batches that end before, at and behind the ends of blocks, restarts and new epochs: each checkpoint covers exactly what is on disk, each
/// earlier one is its beginning, and each line is proved.
#[tokio::test]
async fn each_checkpoint_covers_what_is_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = Log::open(dir.path(), 0).await;
    let mut kept = Vec::new();
    for (step, batch) in [0, 1, 253, 1, 1, 300, 211, 3, 1000, 0, 7, 600].into_iter().enumerate() {
        if step % 4 == 3 {
            let version = log.close().await;
            log = Log::open(dir.path(), version).await;
        }
        if step % 5 == 4 {
            log.journal.begin_epoch(None).await.unwrap();
        }
        if batch > 0 {
            log.append(batch).await;
        }
        log.sign().await.unwrap();
        let mut archive = whole(dir.path());
        for (epoch, seq, digest) in log.lines() {
            assert_eq!(archive.check_line(&epoch, seq, &digest).unwrap(), Found::Proved, "entry {seq} in step {step}");
            assert_eq!(archive.check_line(&epoch, seq, &[7; 32]).unwrap(), Found::Altered);
        }
        for earlier in &kept {
            archive.check_kept(earlier).unwrap();
        }
        assert_eq!(archive.problems, [""; 0], "in step {step}");
        kept.extend(archive.checkpoints().map(|signed| signed.checkpoint.clone()));
        let head = log.journal.head().borrow().0;
        assert_eq!(archive.checkpoints().filter_map(|signed| signed.checkpoint.last()).max().unwrap_or(0), head);
    }
    assert_eq!(kept.last().unwrap().last(), Some(log.version));
}

/// A sink that asks waits for a few seconds at most, however often it asks; without a question it takes a minute.
#[tokio::test(start_paused = true)]
async fn a_checkpoint_is_soon_where_somebody_asks() {
    let checkpoints = CheckpointHandle::signing();
    for (asks, seconds) in [(&[][..], 60), (&[0][..], 5), (&[0, 1, 4], 5), (&[5], 5), (&[20], 20), (&[59, 59], 59)] {
        let began = tokio::time::Instant::now();
        let asking = async {
            for at in asks {
                tokio::time::sleep_until(began + Duration::from_secs(*at)).await;
                checkpoints.ask();
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            () = asking => {}
            () = super::publish::until_next(&checkpoints) => {}
        }
        assert_eq!(began.elapsed().as_secs(), seconds, "{asks:?}");
    }
}

/// The sinks get the checkpoint that the journal keeps: of the newest tree, over restarts, and nothing before the first signature.
#[tokio::test]
async fn sinks_get_the_checkpoint_that_the_journal_has() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = Log::open(dir.path(), 0).await;
    let kept = |log: &Log| log.journal.reader().unwrap().trees().unwrap().into_iter().rev().find_map(|row| row.note);
    assert_eq!(log.publisher.checkpoints().newest(), None);
    for step in 0..6 {
        log.append(3).await;
        log.sign().await.unwrap();
        let newest = log.publisher.checkpoints().newest().unwrap();
        assert_eq!(Some(&*newest), kept(&log).as_deref(), "in step {step}");
        let checkpoint = read_signed(newest.as_bytes(), &keys()).unwrap().checkpoint;
        assert_eq!(checkpoint.last(), Some(log.version), "in step {step}");
        match step % 3 {
            0 => drop(log.journal.begin_epoch(None).await.unwrap()),
            1 => {
                let version = log.close().await;
                log = Log::open(dir.path(), version).await;
                assert_eq!(log.publisher.checkpoints().newest().as_deref(), kept(&log).as_deref(), "in step {step}");
            }
            _ => {}
        }
    }
}

/// Every entry of a log has a proof, and it is of that line, that seq and that epoch alone.
#[tokio::test]
async fn each_entry_has_a_proof() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = Log::open(dir.path(), 0).await;
    log.append(700).await;
    log.sign().await.unwrap();
    let mut reader = log.journal.reader().unwrap();
    let row = reader.trees().unwrap().pop().unwrap();
    let note = row.note.clone().unwrap();
    let signed = read_signed(note.as_bytes(), &keys()).unwrap();
    let mut tree = Tree::read(&reader, row, Vec::new()).unwrap();
    for stored in reader.entries_after(Seq(0), 10_000, usize::MAX).unwrap().into_iter().step_by(37) {
        let (seq, epoch) = (stored.seq.0, signed.checkpoint.origin.epoch.clone());
        let index = signed.checkpoint.origin.index(seq).unwrap();
        let hashes = tree.prove(&mut reader, index, signed.checkpoint.size).unwrap();
        let proof = super::proof::Proof { index, hashes, note: note.clone() };
        let proof = super::proof::Proof::parse(&proof.render()).unwrap();
        proof.check(&epoch, seq, &stored.line, &keys()).unwrap();
        assert!(proof.check(&epoch, seq, b"other", &keys()).is_err());
        assert!(proof.check(&epoch, seq + 1, &stored.line, &keys()).is_err());
        assert!(proof.check("other", seq, &stored.line, &keys()).is_err());
        assert!(proof.check(&epoch, seq, &stored.line, &[]).is_err());
    }
}

/// A state directory that was put back from a copy has other entries under the same seqs: the origin that was signed is never signed again.
#[tokio::test]
async fn a_journal_put_back_from_a_copy_begins_another_tree() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    let mut log = Log::open(dir.path(), 0).await;
    log.append(300).await;
    log.sign().await.unwrap();
    let version = log.close().await;
    let copy = dir.path().join("copy");
    copied(&state, &copy);
    let mut log = Log::open(dir.path(), version).await;
    log.append(100).await;
    log.sign().await.unwrap();
    let last = log.journal.reader().unwrap().trees().unwrap().pop().unwrap().note.unwrap();
    log.close().await;
    fs::remove_dir_all(&state).unwrap();
    copied(&copy, &state);
    let mut log = Log::open(dir.path(), version + 1000).await;
    log.append(50).await;
    log.sign().await.unwrap();
    let trees = log.journal.reader().unwrap().trees().unwrap();
    assert_eq!(trees.len(), 2);
    assert_eq!(trees[1].before.as_deref(), Some(&*last), "the new tree commits to what was signed last");
    // The old tree stays as it was signed, with entries that this journal does not have.
    let mut archive = whole(dir.path());
    archive.check_kept(&read_signed(last.as_bytes(), &keys()).unwrap().checkpoint).unwrap();
    assert_eq!(archive.problems, [""; 0]);
    assert_eq!(archive.checkpoints().map(|signed| signed.checkpoint.last().unwrap()).collect::<Vec<_>>(), [400, 350]);
}

/// While two keys sign, an auditor who has either of them is satisfied, and afterwards one who has the new key; a checkpoint that was kept from
/// before needs the old one.
#[tokio::test]
async fn a_new_key_takes_over_where_both_have_signed() {
    let dir = tempfile::tempdir().unwrap();
    let evidence = dir.path().join("evidence");
    let files = ["old", "new"].map(|name| dir.path().join(name));
    let keys = ["a.example/decklog", "b.example/decklog"].map(|name| SigningKey::generate(name).unwrap());
    files.iter().zip(&keys).for_each(|(file, key)| fs::write(file, key.render()).unwrap());
    let [old, new] = keys.map(|key| key.verifier().clone());
    let ways = [(0, None, [true, false]), (1, Some(0), [true, true]), (1, None, [false, true])];
    let mut log = Log::open(dir.path(), 0).await;
    for (number, (key, previous, holds)) in ways.into_iter().enumerate() {
        let previous =
            previous.map_or_else(String::new, |previous: usize| format!("previous_key_file = {:?}\n", files[previous]));
        let settings: Settings = toml::from_str(&format!("key_file = {:?}\n{previous}", files[key])).unwrap();
        let place = Place::Directory(Directory::new(evidence.clone()));
        log.publisher = Publisher::new(settings.keys().unwrap(), vec![place], Witnesses::new(&settings));
        log.publisher.begin(&log.journal).await.unwrap();
        // The first one with the change of keys alone, which is signed without an entry.
        if number != 1 {
            log.append(10).await;
        }
        log.sign().await.unwrap();
        for (verifier, holds) in [&old, &new].into_iter().zip(holds) {
            let archive = Archive::read(&evidence, std::slice::from_ref(verifier)).unwrap();
            assert_eq!(archive.problems.is_empty(), holds, "{} in {number}: {:?}", verifier.name, archive.problems);
        }
    }
    let archive = Archive::read(&evidence, &[new]).unwrap();
    let origin = &archive.checkpoints().next().unwrap().checkpoint.origin;
    assert_eq!((&*origin.log, archive.checkpoints().count()), ("a.example/decklog", 1), "one tree goes on");
}

/// Before the first list nobody knows the cluster, whose name is in that of the tree: nothing is signed that has no entry.
#[tokio::test]
async fn a_tree_has_the_name_of_its_cluster() {
    for (uid, is_signed) in [("", false), ("c", true)] {
        let dir = tempfile::tempdir().unwrap();
        let (journal, _thread) = Journal::open(&dir.path().join("state")).unwrap();
        let place = Place::Directory(Directory::new(dir.path().join("evidence")));
        let settings = toml::from_str("key_file = \"key\"").unwrap();
        let publisher =
            Publisher::new(vec![SigningKey::parse(SIGNING).unwrap()], vec![place], Witnesses::new(&settings));
        publisher.begin(&journal).await.unwrap();
        journal.set_cluster(Cluster { name: "c".into(), uid: uid.into() }).await.unwrap();
        publisher.sign(&journal, Pace::USUAL).await.unwrap();
        assert_eq!(dir.path().join("evidence").exists(), is_signed, "{uid:?}");
        journal.set_cluster(Cluster { name: "c".into(), uid: "c".into() }).await.unwrap();
        publisher.sign(&journal, Pace::USUAL).await.unwrap();
        let archive = Archive::read(&dir.path().join("evidence"), &keys()).unwrap();
        let named: Vec<&str> = archive.checkpoints().map(|signed| &*signed.checkpoint.origin.cluster).collect();
        assert_eq!(named, ["c"], "{uid:?}");
    }
}

/// Evidence that is switched off for a while leaves entries without proof, and says so.
#[tokio::test]
async fn entries_of_a_time_without_evidence_are_unknown() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = Log::open(dir.path(), 0).await;
    log.append(10).await;
    log.sign().await.unwrap();
    log.journal.end_tree().await.unwrap();
    log.append(10).await;
    log.publisher.begin(&log.journal).await.unwrap();
    log.append(10).await;
    log.sign().await.unwrap();
    log.append(10).await;
    let mut archive = whole(dir.path());
    let found: Vec<Found> =
        log.lines().iter().map(|(epoch, seq, digest)| archive.check_line(epoch, *seq, digest).unwrap()).collect();
    let of = |found: Found| [found; 10];
    assert_eq!(found, [of(Found::Proved), of(Found::Beyond), of(Found::Proved), of(Found::Beyond)].concat());
}
