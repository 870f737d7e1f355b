//! Signing: a checkpoint a minute while something is new, one soon after a sink has finished a file or an object, one an hour in any case, and
//! one at the end.
//!
//! A checkpoint covers what the journal has on disk, and never more: a reader sees only what is committed. It is signed once, for all places.
//!
//! # Decision: the places are asked before anything is signed
//!
//! Context: One origin must never sign two histories, and a journal that was restored from a copy has another one.
//! Decision: The last checkpoint in each place is read each time. Its tree has to be the beginning of the journal's, else nothing is signed;
//! at the start of decklog a new epoch, and so a new tree, begins instead. A place that does not answer holds up nobody: the others
//! get the checkpoint, and the alarm stays until all have the newest.
//! Cost: One small file of each place is read a minute, and what a place has that is away is not known.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use jiff::Timestamp;
use tokio::sync::{Mutex, watch};
use tokio_util::sync::CancellationToken;

use super::checkpoint::{Checkpoint, Origin};
use super::copy::{Copy, Held, Published, Source};
use super::key::SigningKey;
use super::note::Note;
use super::place::{Directory, Place};
use super::submit::{Progress, Witnesses};
use super::tree::{Tree, directory};
use crate::core::checkpoint_handle::CheckpointHandle;
use crate::core::model::Seq;
use crate::core::runtime;
use crate::journal::{Journal, JournalError, Reader, SignedCheckpoint, TreeRow};

/// Interval between checkpoints while entries arrive.
const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(60);
/// Shortest time between a checkpoint and one that a sink asks for: files may be finished many times a second.
const ASKED_WAIT: Duration = Duration::from_secs(5);
/// Longest time without a checkpoint: an hour in which nothing happened is told from one that was cut off.
const SILENCE_MAX: Duration = Duration::from_secs(3600);

/// Time that a place gets in a round, so that one that does not answer holds up no other.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Time limit for its last checkpoint.
    pub(super) look: Duration,
    /// Time limit for what it lacks of a tree. What takes longer goes on in the next round.
    pub(super) write: Duration,
}

impl Pace {
    /// That of a round each minute.
    pub const USUAL: Self = Self { look: Duration::from_secs(10), write: Duration::from_secs(30) };
    /// That at the end, which is within five seconds.
    pub const LAST: Self = Self { look: Duration::from_secs(2), write: Duration::from_millis(2500) };
}

/// Reason why nothing was signed, or why not every place has it.
#[derive(Debug, thiserror::Error)]
pub enum EvidenceError {
    /// The places, or what is in them, are not what they have to be. The text names them and says what to do.
    #[error("{0}")]
    Places(String),
    /// The journal.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// State of the signing, for status and alarms.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Signing {
    /// Reason why nothing is signed, or why not every place has the newest checkpoint.
    pub problem: Option<String>,
    /// Time of the first failure in a row.
    pub failing_since: Option<Timestamp>,
    /// Progress of each witness.
    pub witnesses: Vec<Progress>,
}

/// Signs the trees of a journal.
#[derive(Clone, Debug)]
pub struct Publisher {
    signer: Arc<Mutex<Signer>>,
    checkpoints: CheckpointHandle,
}

#[derive(Debug)]
struct Signer {
    keys: Vec<SigningKey>,
    witnesses: Witnesses,
    copies: Vec<Copy>,
    /// Directories of trees that have ended and of which a place has another history: nothing more of them is signed.
    parted: BTreeSet<String>,
    /// The tree that was signed last, as far as it was read.
    tree: Option<Tree>,
    checkpoints: CheckpointHandle,
}

impl Publisher {
    /// Signs with these keys, of which the first names new trees, for these places and with these witnesses.
    #[must_use]
    pub fn new(keys: Vec<SigningKey>, places: Vec<Place>, witnesses: Witnesses) -> Self {
        let copies = places.into_iter().map(Copy::new).collect();
        let checkpoints = CheckpointHandle::signing();
        let signer =
            Signer { keys, witnesses, copies, parted: BTreeSet::new(), tree: None, checkpoints: checkpoints.clone() };
        Self { signer: Arc::new(Mutex::new(signer)), checkpoints }
    }

    /// Returns the handle for those who want a checkpoint, or the newest one.
    #[must_use]
    pub fn checkpoints(&self) -> CheckpointHandle {
        self.checkpoints.clone()
    }

    /// Begins: entries get digests from here on. Where a place has signed another history than the journal's, the journal was restored from
    /// a copy, and a new epoch begins. It has to be called before anything is delivered.
    ///
    /// # Errors
    /// Where the journal cannot be read or written.
    pub async fn begin(&self, journal: &Journal) -> Result<(), JournalError> {
        let mut signer = self.signer.lock().await;
        let source = Source::new(journal.reader()?, None, signer.directories());
        let (before, other) = signer.known(&source).await?;
        for row in source.ask(Reader::trees).await? {
            if let Some(note) = &row.note {
                self.checkpoints.note(row.first, note);
                if let Ok(note) = Note::parse(note.as_bytes()) {
                    signer.witnesses.note(&note);
                }
            }
        }
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
        self.signer.lock().await.witnesses.end_with(until);
        loop {
            let round = async {
                self.sign_and_report(journal, state, Pace::USUAL).await;
                until_next(&self.checkpoints).await;
            };
            // A place that does not answer holds up no end either: what was begun is found in the places the next time.
            tokio::select! {
                () = stop.cancelled() => return,
                () = round => {}
            }
        }
    }

    /// Signs what there is, and reports how it went.
    pub async fn sign_and_report(&self, journal: &Journal, state: &watch::Sender<Signing>, pace: Pace) {
        let signed = self.sign(journal, pace).await;
        let problem = signed.err().map(|error| error.to_string());
        let witnesses = self.signer.lock().await.witnesses.progress();
        state.send_if_modified(|state| std::mem::replace(&mut state.witnesses, witnesses.clone()) != witnesses);
        state.send_if_modified(|state| {
            if state.problem == problem {
                return false;
            }
            match &problem {
                Some(problem) => {
                    tracing::error!("a place lacks the newest evidence: {problem}; it is tried again each minute");
                }
                None => tracing::info!("every place has the newest evidence again"),
            }
            state.failing_since = problem.as_ref().map(|_| state.failing_since.unwrap_or_else(Timestamp::now));
            state.problem = problem;
            true
        });
    }

    /// Signs every tree that has grown since its last checkpoint, or was not signed for an hour, and gives each place what it lacks.
    ///
    /// # Errors
    /// Where the journal cannot be read or written, or a place has not everything then.
    pub async fn sign(&self, journal: &Journal, pace: Pace) -> Result<(), EvidenceError> {
        let mut signer = self.signer.lock().await;
        if journal.is_standby() {
            signer.witnesses.rest();
            return Ok(());
        }
        let source = Source::new(journal.reader()?, signer.tree.take(), signer.directories());
        let signed = signer.sign_all(&source, journal, pace).await;
        signer.tree = source.take_tree();
        signed
    }
}

/// Result of signing a tree.
struct TreeSigned {
    /// Its last checkpoint, where a place has it.
    note: Option<String>,
    /// The last entry that every place has of it.
    placed: Seq,
}

impl Signer {
    /// Returns the directories among the places.
    fn directories(&self) -> Vec<Directory> {
        self.copies.iter().filter_map(Copy::as_directory).cloned().collect()
    }

    /// Returns the last checkpoint of the tree before the next one, and the epoch of which a place has another history than the journal.
    async fn known(&mut self, source: &Source) -> Result<(Option<String>, Option<String>), JournalError> {
        let trees = source.ask(Reader::trees).await?;
        let mut rows = trees.iter().rev();
        let Some(row) = rows.next() else { return Ok((None, None)) };
        let mut others = Vec::new();
        let published = self.look(row).await;
        for known in &published {
            match is_beginning(source, row, &known.checkpoint).await {
                // An old copy, which each attempt to sign compares again.
                Err(JournalError::Placed { .. }) => {}
                Err(error) => return Err(error),
                Ok(true) => {}
                Ok(false) => others.push(known.clone()),
            }
        }
        if let Some(other) = newest(others) {
            return Ok((Some(other.note), Some(row.epoch.clone())));
        }
        let published = newest(published);
        let last_of = |row: &TreeRow, published: Option<Published>| {
            published.map(|published| published.note).or_else(|| row.note.clone()).or_else(|| row.before.clone())
        };
        if row.is_closed {
            return Ok((last_of(row, published), None));
        }
        // One that was never signed can still commit to a later checkpoint than the journal knew.
        match rows.next().filter(|_| row.note.is_none() && published.is_none()) {
            Some(before) => Ok((last_of(before, newest(self.look(before).await)), None)),
            None => Ok((None, None)),
        }
    }

    /// Returns the checkpoints that the places have of a tree. Where one cannot be read, the log goes on, and each attempt to sign looks
    /// again.
    async fn look(&mut self, row: &TreeRow) -> Vec<Published> {
        let tree = directory(row);
        let looks = self.copies.iter_mut().map(async |copy| {
            copy.begin();
            let held = copy.look(&tree, Pace::USUAL.look).await;
            if let Some(why) = copy.problem() {
                tracing::error!("the evidence cannot be compared with the journal: {why}");
            }
            match held {
                Held::Checkpoint(published) => published,
                Held::Unknown | Held::Whole => None,
            }
        });
        join_all(looks).await.into_iter().flatten().collect()
    }

    async fn sign_all(&mut self, source: &Source, journal: &Journal, pace: Pace) -> Result<(), EvidenceError> {
        let (cluster, rows) = source.ask(|reader| Ok((reader.cluster()?.uid, reader.trees()?))).await?;
        self.copies.iter_mut().for_each(Copy::begin);
        let mut problems = Vec::new();
        for row in rows {
            match self.sign_tree(source, &row, &cluster, pace).await {
                Ok(TreeSigned { note, placed }) => {
                    let first = row.first;
                    if let Some(note) = note.filter(|note| Some(note) != row.note.as_ref()) {
                        let at = runtime::now().as_microsecond();
                        let kept = note.clone();
                        journal.keep_checkpoint(SignedCheckpoint { first, note, last: row.last, at }).await?;
                        self.checkpoints.note(first, &kept);
                    }
                    if placed != row.placed {
                        journal.note_placed(first, placed).await?;
                    }
                }
                Err(EvidenceError::Places(why)) => problems.push(why),
                Err(error @ EvidenceError::Journal(_)) => return Err(error),
            }
        }
        problems.extend(self.copies.iter().filter_map(|copy| copy.problem().map(str::to_owned)));
        if problems.is_empty() { Ok(()) } else { Err(EvidenceError::Places(problems.join("; "))) }
    }

    /// Signs a tree, where it has grown or was not signed for long, and gives each place what it lacks of it.
    async fn sign_tree(
        &mut self,
        source: &Source,
        row: &TreeRow,
        cluster: &str,
        pace: Pace,
    ) -> Result<TreeSigned, EvidenceError> {
        let (tree, size) = (directory(row), row.size());
        let nothing = TreeSigned { note: None, placed: row.placed };
        // Without entries there is nothing to prove, and before the first list the name of the cluster is not known.
        let is_nameless = cluster.is_empty() || row.is_closed;
        if (is_nameless && size == 1) || self.parted.contains(&tree) {
            return Ok(nothing);
        }
        let mut held = join_all(self.copies.iter_mut().map(|copy| copy.look(&tree, pace.look))).await;
        let last = row.note.as_deref().and_then(|text| Published::read(text.as_bytes()).ok());
        let known: Vec<(Option<usize>, Published)> = places(&held).chain(last.map(|last| (None, last))).collect();
        let mut current = None;
        for (place, known) in &known {
            let (is_here, is_kept) = (known.checkpoint.size == size, row.note.as_ref() == Some(&known.note));
            let compared = match place {
                Some(_) if is_here && is_kept => Ok(true),
                _ => is_beginning(source, row, &known.checkpoint).await,
            };
            let is_beginning = match (compared, *place) {
                // The checkpoint of this place is older than what the journal has removed.
                (Err(error @ JournalError::Placed { .. }), Some(place)) => {
                    let copy = &mut self.copies[place];
                    copy.fails(format!("{} has an old checkpoint: {error}", copy.shown()));
                    held[place] = Held::Unknown;
                    continue;
                }
                (compared, _) => compared?,
            };
            match place {
                // The epoch that followed commits to it.
                Some(place) if !is_beginning && row.is_closed => {
                    let shown = self.copies.get(*place).map(Copy::shown).unwrap_or_default();
                    tracing::warn!("{tree} in {shown} has entries that the journal has not, and stays as it is");
                    self.parted.insert(tree);
                    return Ok(nothing);
                }
                Some(place) if !is_beginning => return Err(self.other_history(*place, known)),
                _ if !is_here || !is_beginning || current.is_some() => {}
                _ if self.is_recent(known) || (row.is_closed && is_kept) => current = Some(known.clone()),
                _ => {}
            }
        }
        if !held.iter().any(|held| matches!(held, Held::Checkpoint(_))) {
            return Ok(nothing);
        }
        let published = match current {
            Some(current) => current,
            None => {
                // That of the journal's own checkpoint, where it has one.
                let origin = known.last().map_or_else(
                    || Origin {
                        log: self.keys.first().map(|key| key.verifier().name.clone()).unwrap_or_default(),
                        cluster: cluster.to_owned(),
                        epoch: row.epoch.clone(),
                        first: row.first.0,
                    },
                    |(_, known)| known.checkpoint.origin.clone(),
                );
                let checkpoint = source.with(row, move |reader, tree| tree.checkpoint(reader, origin, size)).await?;
                self.sign(source, row, checkpoint).await?
            }
        };
        let had: Vec<Option<u64>> = held.iter().map(Held::last).collect();
        let there = self.write(source, row, held, &published, pace).await?;
        let last = published.checkpoint.last().unwrap_or(0);
        // One that does not answer had what was noted before.
        let has = |(had, is_there): (Option<u64>, &bool)| if *is_there { last } else { had.unwrap_or(row.placed.0) };
        let placed = Seq(had.into_iter().zip(&there).map(has).min().unwrap_or(0));
        Ok(TreeSigned { placed, note: Some(published.note).filter(|_| there.contains(&true)) })
    }

    /// Signs a checkpoint, and asks the witnesses.
    async fn sign(
        &mut self,
        source: &Source,
        row: &TreeRow,
        checkpoint: Checkpoint,
    ) -> Result<Published, JournalError> {
        let keys: Vec<&SigningKey> = self.keys.iter().collect();
        let note = Note::sign(checkpoint.to_string(), &keys, seconds(runtime::now()));
        let (witnesses, signed) = (self.witnesses.clone(), checkpoint.clone());
        let cosign = move |reader: &mut Reader, tree: &mut Tree| {
            Ok(witnesses.cosign(note, &signed, |old| tree.prove_consistency(reader, old, signed.size)).render())
        };
        Ok(Published { note: source.with(row, cosign).await?, checkpoint })
    }

    /// Gives each place that answers what it lacks, all at once. Returns of each whether it has the checkpoint.
    async fn write(
        &mut self,
        source: &Source,
        row: &TreeRow,
        held: Vec<Held>,
        published: &Published,
        pace: Pace,
    ) -> Result<Vec<bool>, JournalError> {
        let writes = self.copies.iter_mut().zip(held).map(async |(copy, held)| {
            let is_there = match held {
                Held::Unknown => false,
                Held::Whole => true,
                Held::Checkpoint(Some(known)) if known.note == published.note => true,
                Held::Checkpoint(known) => {
                    let had = known.map_or(0, |known| known.checkpoint.size);
                    copy.write(source, row, had, published, pace.write).await?
                }
            };
            if is_there && row.is_closed {
                copy.is_whole(directory(row));
            }
            Ok(is_there)
        });
        join_all(writes).await.into_iter().collect()
    }

    fn other_history(&self, place: usize, known: &Published) -> EvidenceError {
        EvidenceError::Places(format!(
            "{} has a checkpoint over {} leaves of the epoch {} that the journal does not have so: it was restored from a copy, or \
             somebody else signs with this key; restart decklog, which begins a new epoch",
            self.copies.get(place).map(Copy::shown).unwrap_or_default(),
            known.checkpoint.size,
            known.checkpoint.origin.epoch
        ))
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
}

/// Waits for the time of the next round.
pub(super) async fn until_next(checkpoints: &CheckpointHandle) {
    tokio::time::sleep(ASKED_WAIT).await;
    tokio::select! {
        () = checkpoints.asked() => {}
        () = tokio::time::sleep(CHECKPOINT_INTERVAL - ASKED_WAIT) => {}
    }
}

/// Returns the checkpoints that places have, by their numbers.
fn places(held: &[Held]) -> impl Iterator<Item = (Option<usize>, Published)> {
    held.iter().enumerate().filter_map(|(place, held)| match held {
        Held::Checkpoint(published) => published.clone().map(|published| (Some(place), published)),
        Held::Unknown | Held::Whole => None,
    })
}

/// Returns the checkpoint over the most leaves.
fn newest(published: Vec<Published>) -> Option<Published> {
    published.into_iter().max_by_key(|published| published.checkpoint.size)
}

/// Reports whether the tree of a checkpoint is the beginning of a tree.
async fn is_beginning(source: &Source, row: &TreeRow, checkpoint: &Checkpoint) -> Result<bool, JournalError> {
    let (size, root) = (checkpoint.size, checkpoint.root);
    if size > row.size() {
        return Ok(false);
    }
    source.with(row, move |reader, tree| Ok(tree.root(reader, size)? == root)).await
}

fn seconds(time: Timestamp) -> u64 {
    u64::try_from(time.as_second()).unwrap_or(0)
}
