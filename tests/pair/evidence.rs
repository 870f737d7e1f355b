//! The bucket that both sign into, and the directory that each signs into: every checkpoint is kept as it was published.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use decklog::core::bucket::Objects;
use decklog::core::merkle;
use decklog::core::model::Seq;
use decklog::core::wire::Header;
use decklog::evidence::archive::Signed;
use decklog::evidence::key::{SigningKey, VerifierKey};
use decklog::evidence::place::{Directory, Place};
use decklog::evidence::publish::Publisher;
use decklog::evidence::settings::Settings;
use decklog::evidence::submit::Witnesses;
use decklog::journal::Reader;
use decklog_testkit::tessera::{self, States};
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::time::sleep;

use super::places::{Switches, is};

/// What both have of it. Clones are the same one.
#[derive(Clone)]
pub(crate) struct Evidence {
    key: Arc<(SigningKey, VerifierKey)>,
    inner: Arc<Mutex<Inner>>,
}

struct Inner {
    objects: BTreeMap<String, Bytes>,
    states: States,
    /// Notes that were published.
    notes: Vec<String>,
    /// Lines that a journal had when something was signed: their digests by epoch and seq.
    lines: BTreeMap<(String, u64), merkle::Hash>,
    newest: Option<Signed>,
    problems: Vec<String>,
}

impl Evidence {
    pub(crate) fn new() -> Self {
        let key = tessera::key();
        let inner = Inner {
            objects: BTreeMap::new(),
            states: States::new(key.1.clone()),
            notes: Vec::new(),
            lines: BTreeMap::new(),
            newest: None,
            problems: Vec::new(),
        };
        Self { key: Arc::new(key), inner: Arc::new(Mutex::new(inner)) }
    }

    /// The signing of a node, which goes to the bucket and to a directory beside its journal.
    pub(crate) fn publisher(&self, name: &'static str, state: &Path, switches: &Arc<Switches>) -> Publisher {
        let way = Way {
            name,
            state: state.to_owned(),
            evidence: self.clone(),
            switches: Arc::clone(switches),
            known: BTreeMap::new(),
        };
        let places = vec![Place::Bucket(Box::new(way)), Place::Directory(Directory::new(directory(state)))];
        let settings: Settings = toml::from_str("key_file = \"key\"").unwrap();
        let key = SigningKey::parse(self.key.0.render().trim()).unwrap();
        Publisher::new(vec![key], places, Witnesses::new(&settings))
    }

    /// Takes what a directory has now.
    pub(crate) fn look(&self, name: &str, state: &Path) {
        for (tree, files) in tessera::trees(&directory(state)) {
            let files: Vec<(&Path, &[u8])> = files.iter().map(|(path, bytes)| (path.as_path(), &**bytes)).collect();
            self.inner.lock().unwrap().take(&format!("{tree} of {name}"), &files, None);
        }
    }

    /// Takes lines of the log.
    pub(crate) fn know(&self, lines: &[String]) {
        let mut inner = self.inner.lock().unwrap();
        lines.iter().for_each(|line| inner.know(line.as_bytes()));
    }

    /// All is signed, in the tree of the last epoch.
    pub(crate) fn has_all(&self, log: &[String]) -> Result<(), String> {
        let last = Header::parse(log.last().unwrap().as_bytes()).unwrap();
        let inner = self.inner.lock().unwrap();
        let signed = inner.newest.as_ref().map(|signed| (&signed.checkpoint.origin.epoch, signed.checkpoint.last()));
        if signed == Some((&last.epoch.to_string(), Some(last.seq))) {
            return Ok(());
        }
        Err(format!("{signed:?} is signed of entries to {}, of epoch {}", last.seq, last.epoch))
    }

    /// How many checkpoints there were, and what is wrong with them by a checker that is not ours.
    pub(crate) fn judge(&self) -> (usize, Vec<String>) {
        let mut inner = self.inner.lock().unwrap();
        let states = std::mem::replace(&mut inner.states, States::new(self.key.1.clone()));
        let (count, mut problems) = (states.count(), std::mem::take(&mut inner.problems));
        if count > 0 {
            problems.extend(states.judge());
        }
        (count, problems)
    }
}

/// Where a node has its own evidence.
pub(crate) fn directory(state: &Path) -> PathBuf {
    state.with_file_name("evidence")
}

/// Copies the evidence of a node to where it goes on.
pub(crate) fn copy(from: &Path, to: &Path) {
    for (tree, files) in tessera::trees(&directory(from)) {
        for (path, bytes) in files {
            let path = directory(to).join(&tree).join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
    }
}

impl Inner {
    /// Takes a tree as it is at a checkpoint, once, with the lines that a journal has at this moment.
    fn take(&mut self, name: &str, files: &[(&Path, &[u8])], state: Option<&Path>) {
        let Some((_, note)) = files.iter().find(|(path, _)| *path == Path::new("checkpoint")) else { return };
        let note = String::from_utf8_lossy(note).into_owned();
        // Of each place its own tiles.
        let note = format!("{} {note}", state.is_some());
        if self.notes.contains(&note) {
            return;
        }
        self.notes.push(note);
        let taken = self.states.add(name, files.iter().copied());
        match (taken, state) {
            (Err(why), _) => self.problems.push(format!("{name}: {why}")),
            (Ok(signed), Some(state)) => {
                if let Err(why) = self.compare(&signed, state) {
                    self.problems.push(format!("{name}: {why}"));
                }
                self.newest = Some(signed);
            }
            (Ok(_), None) => {}
        }
    }

    fn know(&mut self, line: &[u8]) {
        let header = Header::parse(line).unwrap();
        self.lines.insert((header.epoch.into_owned(), header.seq), merkle::sha256(&[line]));
    }

    /// Compares what is signed with the journal of the node that signs: it has all of that on disk.
    fn compare(&mut self, signed: &Signed, state: &Path) -> Result<(), String> {
        let mut reader = Reader::open(state).map_err(|error| error.to_string())?;
        let head = reader.head().map_err(|error| error.to_string())?.0;
        for stored in reader.entries_after(Seq(0), 1_000_000, usize::MAX).map_err(|error| error.to_string())? {
            self.know(&stored.line);
        }
        let checkpoint = &signed.checkpoint;
        let last = checkpoint.last().unwrap_or(0);
        if last > head {
            return Err(format!("entry {last} is signed, and the journal ends with {head}"));
        }
        let of = |seq| self.lines.get(&(checkpoint.origin.epoch.clone(), seq)).copied();
        let Some(digests) = (checkpoint.origin.first..=last).map(of).collect::<Option<Vec<_>>>() else {
            return Err(format!("not all of the lines to {last} were ever seen"));
        };
        let trees = reader.trees().map_err(|error| error.to_string())?;
        let row =
            trees.iter().find(|row| row.first.0 == checkpoint.origin.first && row.epoch == checkpoint.origin.epoch);
        let leaf = row.map(decklog::journal::TreeRow::leaf).ok_or("the journal has no such tree")?;
        let leaves: Vec<_> = std::iter::once(leaf).chain(digests).map(|digest| merkle::leaf(&digest)).collect();
        if merkle::root(&leaves) == checkpoint.root {
            Ok(())
        } else {
            Err(format!("what is signed over entries {} to {last} is not the log", checkpoint.origin.first))
        }
    }
}

/// One node's way to the bucket.
struct Way {
    name: &'static str,
    state: PathBuf,
    evidence: Evidence,
    switches: Arc<Switches>,
    /// Objects as they were read or replaced last.
    known: BTreeMap<String, Option<Bytes>>,
}

impl std::fmt::Debug for Way {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the bucket of {}", self.name)
    }
}

impl Way {
    /// Waits as long as a question takes. The bucket is where the API server is.
    async fn reach(&self) -> Result<(), String> {
        sleep(Duration::from_millis(20)).await;
        self.switches.goes_on().await;
        if is(&self.switches.no_api) { Err("the bucket is away".to_owned()) } else { Ok(()) }
    }

    fn put(&self, key: &str, bytes: Bytes) {
        let inner = &mut *self.evidence.inner.lock().unwrap();
        inner.objects.insert(key.to_owned(), bytes);
        let Some(tree) = key.strip_suffix("/checkpoint") else { return };
        let below = |(name, bytes): (&String, &Bytes)| {
            let path = name.strip_prefix(tree)?.strip_prefix('/')?;
            Some((PathBuf::from(path), bytes.clone()))
        };
        let files: Vec<(PathBuf, Bytes)> = inner.objects.iter().filter_map(below).collect();
        let files: Vec<(&Path, &[u8])> = files.iter().map(|(path, bytes)| (path.as_path(), &**bytes)).collect();
        inner.take(&format!("{tree} in the bucket, by {}", self.name), &files, Some(&self.state));
    }
}

impl Objects for Way {
    fn shown(&self) -> String {
        "the bucket".to_owned()
    }

    fn get<'a>(&'a mut self, key: &'a str) -> BoxFuture<'a, Result<Option<Bytes>, String>> {
        async {
            self.reach().await?;
            let there = self.evidence.inner.lock().unwrap().objects.get(key).cloned();
            self.known.insert(key.to_owned(), there.clone());
            Ok(there)
        }
        .boxed()
    }

    fn put<'a>(&'a mut self, key: &'a str, bytes: Bytes) -> BoxFuture<'a, Result<(), String>> {
        async {
            self.reach().await?;
            Self::put(self, key, bytes);
            Ok(())
        }
        .boxed()
    }

    fn replace<'a>(&'a mut self, key: &'a str, bytes: Bytes) -> BoxFuture<'a, Result<bool, String>> {
        async {
            self.reach().await?;
            let known = self.known.remove(key).expect("it was read before");
            if self.evidence.inner.lock().unwrap().objects.get(key) != known.as_ref() {
                return Ok(false);
            }
            Self::put(self, key, bytes.clone());
            self.known.insert(key.to_owned(), Some(bytes));
            Ok(true)
        }
        .boxed()
    }

    fn create(&mut self, objects: Vec<(String, Bytes)>) -> BoxFuture<'_, Result<Vec<(String, Bytes)>, String>> {
        async move {
            self.reach().await?;
            let held = &mut self.evidence.inner.lock().unwrap().objects;
            let mut there = Vec::new();
            for (key, bytes) in objects {
                match held.get(&key) {
                    Some(known) => there.push((key, known.clone())),
                    None => drop(held.insert(key, bytes)),
                }
            }
            Ok(there)
        }
        .boxed()
    }

    fn remove_below<'a>(&'a mut self, key: &'a str) -> BoxFuture<'a, Result<(), String>> {
        async move {
            self.reach().await?;
            self.evidence.inner.lock().unwrap().objects.retain(|name, _| !name.starts_with(&format!("{key}/")));
            Ok(())
        }
        .boxed()
    }

    fn check(&mut self) -> BoxFuture<'_, Result<(), String>> {
        async { self.reach().await }.boxed()
    }
}
