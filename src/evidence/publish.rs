//! Signing: a checkpoint a minute while something is new, one an hour in any case, and one at the end.
//!
//! A checkpoint covers what the journal has on disk, and never more: a reader sees only what is committed.
//!
//! # Decision: the place is asked before anything is signed
//!
//! Context: One origin must never sign two histories, and a journal that was restored from a copy has another one.
//! Decision: The last checkpoint in the place is read each time. Its tree has to be the beginning of the journal's, else nothing is signed;
//! at the start of decklog a new epoch, and so a new tree, begins instead.
//! Cost: One small file is read a minute.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::archive::BEFORE;
use super::checkpoint::{Checkpoint, Origin};
use super::key::SigningKey;
use super::note::Note;
use super::place::Directory;
use super::settings::Settings;
use super::submit::Witnesses;
use super::tiles::{self, CHECKPOINT, TILE_LEN};
use super::tree::Tree;
use crate::core::model::Seq;
use crate::core::runtime;
use crate::journal::{Journal, JournalError, Reader, SignedCheckpoint, TreeRow};

/// Interval between checkpoints while entries arrive.
const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(60);
/// Longest time without a checkpoint: an hour in which nothing happened is told from one that was cut off.
const SILENCE_MAX: Duration = Duration::from_secs(3600);

/// Reason why nothing was signed.
#[derive(Debug, thiserror::Error)]
pub enum EvidenceError {
    /// The configuration, or what is in the place, is not what it has to be. The text says what to do.
    #[error("{0}")]
    Refused(String),
    /// The place cannot be read or written.
    #[error("cannot use the evidence in {dir}: {source}")]
    Place {
        /// The directory.
        dir: String,
        /// The cause.
        source: io::Error,
    },
    /// The journal.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// State of the signing, for status and alarms.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Signing {
    /// Reason why nothing is signed.
    pub problem: Option<String>,
    /// Time of the first failure in a row.
    pub failing_since: Option<Timestamp>,
    /// Time since when not every witness has cosigned, and the reasons.
    pub unwitnessed: Option<(Timestamp, String)>,
}

/// Signs the trees of a journal, in its own thread.
#[derive(Clone, Debug)]
pub struct Publisher(Arc<Mutex<Signer>>);

#[derive(Debug)]
struct Signer {
    keys: Vec<SigningKey>,
    place: Directory,
    witnesses: Witnesses,
    /// The tree that was signed last, as far as it was read.
    tree: Option<Tree>,
}

/// A checkpoint that the place has.
struct Published {
    note: String,
    checkpoint: Checkpoint,
}

impl Publisher {
    /// Reads the keys of the configuration.
    ///
    /// # Errors
    /// Where one cannot be read.
    pub fn new(settings: &Settings) -> Result<Self, EvidenceError> {
        let keys = settings.keys().map_err(EvidenceError::Refused)?;
        let place = Directory::new(settings.dir.clone());
        let signer = Signer { keys, place, witnesses: Witnesses::new(settings), tree: None };
        Ok(Self(Arc::new(Mutex::new(signer))))
    }

    /// Does something with the signer where it may block.
    async fn with<T: Send + 'static>(&self, work: impl FnOnce(&mut Signer) -> T + Send + 'static) -> T {
        let signer = Arc::clone(&self.0);
        runtime::blocking(move || work(&mut signer.lock().unwrap_or_else(PoisonError::into_inner))).await
    }

    /// Begins: entries get digests from here on. Where the place has signed another history than the journal's, the journal was restored from
    /// a copy, and a new epoch begins. It has to be called before anything is delivered.
    ///
    /// # Errors
    /// Where the journal cannot be read or written.
    pub async fn begin(&self, journal: &Journal) -> Result<(), JournalError> {
        let reader = journal.reader()?;
        let (before, other) = self.with(move |signer| signer.known(&reader)).await?;
        if let Some(epoch) = other {
            let epoch = journal.begin_epoch(Some(&epoch)).await?;
            tracing::warn!(
                epoch,
                "the evidence has entries that the journal has not: it was restored from a copy, and a new epoch begins"
            );
        }
        journal.grow_tree(before).await?;
        Ok(())
    }

    /// Signs until `stop`.
    pub async fn run(&self, journal: &Journal, state: &watch::Sender<Signing>, stop: CancellationToken) {
        let until = stop.clone();
        self.with(move |signer| signer.witnesses.end_with(until)).await;
        loop {
            self.sign_and_report(journal, state).await;
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(CHECKPOINT_INTERVAL) => {}
            }
        }
    }

    /// Signs what there is, and reports how it went.
    pub async fn sign_and_report(&self, journal: &Journal, state: &watch::Sender<Signing>) {
        let signed = self.sign(journal).await;
        let problem = signed.err().map(|error| error.to_string());
        let unwitnessed = self.with(|signer| signer.witnesses.problem()).await;
        state.send_if_modified(|state| std::mem::replace(&mut state.unwitnessed, unwitnessed.clone()) != unwitnessed);
        state.send_if_modified(|state| {
            if state.problem == problem {
                return false;
            }
            match &problem {
                Some(problem) => tracing::error!("no evidence is signed: {problem}; it is tried again each minute"),
                None => tracing::info!("evidence is signed again"),
            }
            state.failing_since = problem.as_ref().map(|_| state.failing_since.unwrap_or_else(Timestamp::now));
            state.problem = problem;
            true
        });
    }

    /// Signs every tree that has grown since its last checkpoint, or was not signed for an hour.
    ///
    /// # Errors
    /// Where the place or the journal cannot be read or written.
    pub async fn sign(&self, journal: &Journal) -> Result<(), EvidenceError> {
        if journal.is_standby() {
            return Ok(());
        }
        let reader = journal.reader()?;
        for signed in self.with(move |signer| signer.sign(&reader)).await? {
            journal.keep_checkpoint(signed).await?;
        }
        Ok(())
    }
}

impl Signer {
    fn failed(&self) -> impl Fn(io::Error) -> EvidenceError {
        let dir = self.place.path().display().to_string();
        move |source| EvidenceError::Place { dir: dir.clone(), source }
    }

    /// Returns the last checkpoint of the tree before the next one, and the epoch of which the place has another history than the journal.
    fn known(&self, reader: &Reader) -> Result<(Option<String>, Option<String>), JournalError> {
        let trees = reader.trees()?;
        let mut rows = trees.iter().rev();
        let Some(row) = rows.next() else { return Ok((None, None)) };
        let published = self.look(row);
        if let Some(published) = &published
            && !is_beginning(&mut Tree::read(reader, row.clone())?, reader, &published.checkpoint)?
        {
            return Ok((Some(published.note.clone()), Some(row.epoch.clone())));
        }
        let last_of = |row: &TreeRow, published: Option<Published>| {
            published.map(|published| published.note).or_else(|| row.note.clone()).or_else(|| row.before.clone())
        };
        if row.is_closed {
            return Ok((last_of(row, published), None));
        }
        // One that was never signed can still commit to a later checkpoint than the journal knew.
        let is_unsigned = row.note.is_none() && published.is_none();
        let before = rows.next().filter(|_| is_unsigned).and_then(|before| last_of(before, self.look(before)));
        Ok((before, None))
    }

    /// Returns the checkpoint that the place has of a tree. Where it cannot be read, the log goes on, and nothing is signed until that is
    /// mended, because each attempt to sign looks again.
    fn look(&self, row: &TreeRow) -> Option<Published> {
        self.published(&row.epoch, row.first).unwrap_or_else(|error| {
            tracing::error!("the evidence cannot be compared with the journal: {error}");
            None
        })
    }

    /// Signs every tree that has grown since its last checkpoint. Returns their checkpoints.
    fn sign(&mut self, reader: &Reader) -> Result<Vec<SignedCheckpoint>, EvidenceError> {
        let cluster = reader.cluster()?.uid;
        let mut signed = Vec::new();
        for row in reader.trees()? {
            let (first, last, known) = (row.first, row.last, row.note.clone());
            let note = self.sign_tree(reader, row, &cluster)?.filter(|note| Some(note) != known.as_ref());
            let at = runtime::now().as_microsecond();
            signed.extend(note.map(|note| SignedCheckpoint { first, note, last, at }));
        }
        Ok(signed)
    }

    /// Signs a tree, where it has grown or was not signed for long. Returns its last checkpoint.
    fn sign_tree(&mut self, reader: &Reader, row: TreeRow, cluster: &str) -> Result<Option<String>, EvidenceError> {
        let size = row.size();
        let last = row.note.as_deref().and_then(|text| read(text.as_bytes()).ok());
        if row.is_closed && (size == 1 || last.as_ref().is_some_and(|last| last.checkpoint.size == size)) {
            return Ok(None);
        }
        let published = self.published(&row.epoch, row.first)?;
        let origin = published.as_ref().or(last.as_ref()).map_or_else(
            || Origin {
                log: self.keys.first().map(|key| key.verifier().name.clone()).unwrap_or_default(),
                cluster: cluster.to_owned(),
                epoch: row.epoch.clone(),
                first: row.first.0,
            },
            |known| known.checkpoint.origin.clone(),
        );
        if let Some(published) = &published
            && published.checkpoint.size == size
            && self.is_recent(published)
        {
            return Ok(Some(published.note.clone()));
        }
        let mut tree = match self.tree.take().filter(|tree| tree.row().first == row.first) {
            Some(mut tree) => {
                tree.advance(reader, row)?;
                tree
            }
            None => Tree::read(reader, row)?,
        };
        let signed = self.publish(reader, &mut tree, origin, published.map(|it| it.checkpoint))?;
        self.tree = Some(tree);
        Ok(Some(signed))
    }

    /// Reports whether a checkpoint is signed by all of today's keys and witnesses, and not long ago.
    fn is_recent(&self, published: &Published) -> bool {
        let Ok(note) = Note::parse(published.note.as_bytes()) else { return false };
        let now = seconds(runtime::now());
        self.keys.iter().all(|key| {
            let seen = note.seen_by(&key.verifier().timed());
            seen.is_some_and(|seen| now.saturating_sub(seen) < SILENCE_MAX.as_secs())
        }) && self.witnesses.have_cosigned(&note)
    }

    fn publish(
        &self,
        reader: &Reader,
        tree: &mut Tree,
        origin: Origin,
        published: Option<Checkpoint>,
    ) -> Result<String, EvidenceError> {
        let size = tree.row().size();
        let dir = origin.directory();
        if let Some(published) = &published
            && !is_beginning(tree, reader, published)?
        {
            return Err(EvidenceError::Refused(format!(
                "{} has a checkpoint over {} leaves of the epoch {} that the journal does not have so: it was restored from a copy, or \
                 somebody else signs with this key; restart decklog, which begins a new epoch",
                self.place.path().display(),
                published.size,
                origin.epoch
            )));
        }
        let failed = self.failed();
        if published.is_none()
            && let Some(before) = &tree.row().before
        {
            self.place.put(&format!("{dir}/{BEFORE}"), before.as_bytes()).map_err(&failed)?;
        }
        for tile in tiles::between(published.map_or(0, |published| published.size), size) {
            let path = format!("{dir}/{}", tile.path());
            self.place.put(&path, &tree.tile(reader, tile)?).map_err(&failed)?;
            if tile.width == TILE_LEN {
                self.place.remove_partial(&path).map_err(&failed)?;
            }
        }
        let checkpoint = tree.checkpoint(reader, origin, size)?;
        let keys: Vec<&SigningKey> = self.keys.iter().collect();
        let note = Note::sign(checkpoint.to_string(), &keys, seconds(runtime::now()));
        let note = self.witnesses.cosign(note, &checkpoint, |old| tree.prove_consistency(reader, old, size)).render();
        // The tiles are on the disk before the checkpoint that needs them.
        self.place.sync().map_err(&failed)?;
        self.place
            .put(&format!("{dir}/{CHECKPOINT}"), note.as_bytes())
            .and_then(|()| self.place.sync())
            .map_err(&failed)?;
        Ok(note)
    }

    /// Returns the checkpoint that the place has of a tree.
    fn published(&self, epoch: &str, first: Seq) -> Result<Option<Published>, EvidenceError> {
        let path = format!("{epoch}-{first}/{CHECKPOINT}");
        let Some(bytes) = self.place.get(&path).map_err(self.failed())? else { return Ok(None) };
        read(&bytes).map(Some).map_err(|why| {
            EvidenceError::Refused(format!(
                "{}/{path} is no checkpoint of decklog, {why}: put the right one back, or remove its directory",
                self.place.path().display()
            ))
        })
    }
}

fn read(bytes: &[u8]) -> Result<Published, String> {
    let note = Note::parse(bytes)?;
    Ok(Published { checkpoint: Checkpoint::parse(&note.text)?, note: note.render() })
}

/// Reports whether the tree of a checkpoint is the beginning of a tree.
fn is_beginning(tree: &mut Tree, reader: &Reader, checkpoint: &Checkpoint) -> Result<bool, JournalError> {
    Ok(checkpoint.size <= tree.row().size() && tree.root(reader, checkpoint.size)? == checkpoint.root)
}

fn seconds(time: Timestamp) -> u64 {
    u64::try_from(time.as_second()).unwrap_or(0)
}
