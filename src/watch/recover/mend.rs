//! Recovery of what the log lacks of one object, by its name.
//!
//! # Decision: one object is recovered without its source
//!
//! Context: A watch cache that has lost an event shows it in no list and on no watch, and goes on. etcd answers for the one
//! object of a name.
//! Decision: From the newest version back, each version of the object is read by name at the revision before the next one, until
//! the one that the log has. The journal records them as recovered, and the source keeps its position. What etcd has compacted is a
//! GAP of that object.
//! Cost: A change that came and went between two versions of an absent object is not found.

use std::collections::hash_map::RandomState;
use std::collections::{HashMap, HashSet};

use super::plan::{Change, Key, Plan, State};
use super::{Histories, Recovery, Window, WindowError, number, unordered, unreadable, version};
use crate::core::model::{Observed, Redacted};
use crate::core::runtime;
use crate::journal::{Found, KnownObject, Link, Missed, Name};
use crate::watch::listed::{Listed, Shown};

/// Deleted objects of a window that are looked at once more.
const DELETED_MAX: usize = 16;

/// What the log lacked of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::watch) enum Mended {
    /// Nothing: its last state is the log's.
    Nothing,
    /// Every change since the log's last state.
    Whole,
    /// The newest changes. Those before are compacted, and a GAP.
    InPart,
}

/// The last state of an object in the log, as the walk back to it takes it.
struct Known {
    version: u64,
    /// The hash of its uid, if it is there.
    uid: Option<u64>,
}

/// The changes of one object that were found, from the newest back.
#[derive(Default)]
struct Chain {
    /// Their versions, and whether each is a deletion.
    changes: Vec<(u64, bool)>,
    /// The version up to which there may be others, which are compacted.
    lost: Option<u64>,
}

/// Number of objects whose missed changes are recovered by name at once. More of them would have another reason.
pub(in crate::watch) const MENDS: usize = 500;

impl Recovery<'_> {
    /// Makes sure that the log has what etcd had at the revision up to which nothing is said to be missing: what was lost before
    /// would make changes of what came later that nobody made.
    pub(super) async fn mend_base(&self, from: u64) -> Result<(), WindowError> {
        let keys = RandomState::new();
        let first = self.differing_at(from, &keys, &HashSet::new()).await?;
        if first.is_empty() || first.len() > MENDS {
            return Ok(());
        }
        let second = self.differing_at(from, &keys, &first.into_keys().collect()).await?;
        let mut fault = self.stats.cache_fault();
        for (name, _) in second.into_values().flatten() {
            let mended = self.mend(&name, from).await?;
            tracing::warn!(
                source = self.spec.name(),
                namespace = name.0,
                name = name.1,
                ?mended,
                "the log and the API server's history differ before the position was lost"
            );
            if mended == Mended::Nothing {
                // etcd has it as the log does: the list is wrong.
                fault.since.get_or_insert_with(runtime::now);
                fault.objects.insert(name);
            }
        }
        self.stats.set_cache_fault(fault);
        Ok(())
    }

    /// Adds both ends of an object that lists show wrongly, and the number of their objects with it.
    pub(super) async fn ends_by_name(
        &self,
        window: &Window,
        key: &Key,
        before: Option<(u64, u64, bool)>,
        recorded: &Histories,
        plan: &mut Plan,
    ) -> Result<(), WindowError> {
        plan.cannot_count();
        let state = self.object(window, key, window.to).await?;
        let is_same = match (before, state) {
            (None, None) => true,
            (Some((uid, version, true)), Some(state)) => {
                state == (State { uid, version }) && version <= window.from && !recorded.contains_key(key)
            }
            _ => false,
        };
        if !is_same {
            window.begin(plan, key, before, recorded)?;
            plan.ends(key, state)?;
        }
        Ok(())
    }

    /// Looks at objects that are deleted and that no answer has shown, right before that: the API server may not have been able to read
    /// them, and its watch ends then instead of saying that they are gone.
    pub(super) async fn look_at_deleted(
        &self,
        window: &Window,
        plan: &Plan,
        changes: &[Change],
    ) -> Result<(), WindowError> {
        let unseen = changes.iter().filter(|change| change.deleted && !plan.has_shown(&change.key));
        for change in unseen.take(DELETED_MAX) {
            match self.named(&change.key, Some(change.version - 1), |_| Ok(())).await {
                Err(WindowError::Unreadable(_)) => window.add_unreadable([change.key.clone()]),
                Err(WindowError::Stop(stop)) => return Err(WindowError::Stop(stop)),
                // What is compacted nobody can say.
                Ok(_) | Err(_) => {}
            }
        }
        Ok(())
    }

    /// Objects that differ between the log and a list of a revision; none where that revision cannot be had, because nobody can say.
    async fn differing_at(
        &self,
        at: u64,
        keys: &RandomState,
        wanted: &HashSet<u64>,
    ) -> Result<HashMap<u64, Option<(Name, Shown)>>, WindowError> {
        let mut listed = Listed::at(version(at));
        let met = self.list(at, |object| {
            listed.meet(keys, wanted, &object);
            Ok(())
        });
        match met.await {
            Ok(unreadable) => unreadable.iter().for_each(|key| listed.excuse(keys, key)),
            Err(WindowError::Compacted | WindowError::Unrecoverable(_) | WindowError::Unreadable(_)) => {
                return Ok(HashMap::new());
            }
            Err(trouble) => return Err(trouble),
        }
        let (journal, id, keys, wanted) = (self.shared.journal.clone(), self.id, keys.clone(), wanted.clone());
        let compared = runtime::blocking(move || listed.differences(&journal.reader()?, id, &keys, &wanted)).await;
        compared.map_err(unreadable)
    }

    /// Finds and records what the log lacks of an object up to a revision.
    pub(in crate::watch) async fn mend(&self, key: &Key, to: u64) -> Result<Mended, WindowError> {
        self.shared.journal.flush().await?;
        let (journal, id, (namespace, name)) = (self.shared.journal.clone(), self.id, key.clone());
        let known = runtime::blocking(move || journal.reader()?.known_object(id, &namespace, &name)).await;
        let known = known.map_err(unreadable)?;
        let at = known.as_ref().map_or(Some(0), |known| number(&known.version)).ok_or_else(unordered)?;
        if at >= to {
            return Ok(Mended::Nothing);
        }
        let window = Window::new(at, to);
        let uid = known.filter(|known| known.present).map(|known: KnownObject| window.hash(&known.uid));
        self.journal.list_begin().await?;
        let given_up = self.journal.lists_given_up();
        let Some(chain) = self.walk_back(&window, key, &Known { version: at, uid }).await? else {
            return Ok(Mended::Nothing);
        };
        let versions = chain.changes.iter().map(|(at, deleted)| (version(*at), *deleted)).collect();
        let dates = self.dates(versions).await;
        if !dates.is_empty() {
            self.journal.date(std::sync::Arc::new(dates)).await?;
        }
        let (namespace, name) = key.clone();
        let deletions = chain.changes.iter().filter(|(_, deleted)| *deleted).map(|(at, _)| {
            let (namespace, name) = (namespace.clone(), name.clone());
            let body = Redacted::default();
            Found::Deletion(Observed { namespace, name, uid: String::new(), version: version(*at), body })
        });
        let deletions: Vec<Found> = deletions.collect();
        if !deletions.is_empty() {
            self.journal.found(deletions).await?;
        }
        let lost = chain.lost.map(|upto| ((at > 0).then(|| version(at)), version(upto)));
        let is_whole = lost.is_none();
        self.journal.mended(Missed { namespace, name, lost }).await?;
        if self.journal.lists_given_up() != given_up {
            return Err(WindowError::NoRoom(crate::watch::lister::no_room(1)));
        }
        Ok(if is_whole { Mended::Whole } else { Mended::InPart })
    }

    /// Looks at an object right before a change that a watch brought, and makes a GAP of each version there that the log lacks: what
    /// came between two versions that are recorded can be recorded no more. Returns the number of these versions.
    pub(in crate::watch) async fn look_before(&self, link: &Link) -> Result<usize, WindowError> {
        let before = if link.before.as_str().is_empty() { Some(0) } else { number(&link.before) };
        let numbers = number(&link.version).zip(before).filter(|(version, before)| *version > before + 1);
        let Some((version, before)) = numbers else { return Ok(0) };
        let window = Window::new(before, version - 1);
        // The metadata alone first: nearly always it is what the log says.
        let mut lacking = false;
        self.named(&link.name, Some(window.to), |object| {
            lacking = window.state(&object)?.version > before;
            Ok(())
        })
        .await?;
        if !lacking {
            return Ok(0);
        }
        self.journal.list_begin().await?;
        let (mut at, mut lost) = (window.to, 0);
        while at > before {
            match self.at(&window, &link.name, at).await {
                Ok(Some(state)) if state.version > before => (at, lost) = (state.version - 1, lost + 1),
                Ok(_) | Err(WindowError::Compacted) => break,
                Err(trouble) => return Err(trouble),
            }
        }
        let (namespace, name) = link.name.clone();
        self.journal.mended(Missed { namespace, name, lost: None }).await?;
        Ok(lost)
    }

    /// Reads the versions of an object from the end of the window back to the log's, and stages them. `None`: it has the log's.
    async fn walk_back(&self, window: &Window, key: &Key, known: &Known) -> Result<Option<Chain>, WindowError> {
        let mut chain = Chain::default();
        let mut state = self.at(window, key, window.to).await?;
        loop {
            match state {
                // The log has it already, or something newer.
                Some(state) if state.version <= known.version => break,
                Some(State { version, .. }) => {
                    chain.changes.push((version, false));
                    if version - 1 <= known.version {
                        break;
                    }
                    state = match self.at(window, key, version - 1).await {
                        Err(WindowError::Compacted) => {
                            chain.lost = Some(version - 1);
                            break;
                        }
                        state => state?,
                    };
                }
                // It came after it was last gone, or was never there before.
                None if known.uid.is_none() => break,
                None => {
                    let absent = chain.changes.last().map_or(window.to, |(version, _)| version - 1);
                    let (deleted, before) = self.deletion(window, key, known, absent).await?;
                    chain.changes.push((deleted, true));
                    match before {
                        Some(before) => state = Some(before),
                        None => {
                            chain.lost = Some(deleted);
                            break;
                        }
                    }
                }
            }
        }
        Ok((!chain.changes.is_empty()).then_some(chain))
    }

    /// Returns the revision that deleted an object, which the log has and which is not there at `absent`, and its state before.
    /// No state: the revisions before it are compacted.
    async fn deletion(
        &self,
        window: &Window,
        key: &Key,
        known: &Known,
        absent: u64,
    ) -> Result<(u64, Option<State>), WindowError> {
        let (mut there, mut gone) = (known.version, absent);
        let mut state = known.uid.map(|uid| State { uid, version: known.version });
        while gone - there > 1 {
            let middle = there + (gone - there) / 2;
            match self.at(window, key, middle).await {
                Ok(None) => gone = middle,
                Ok(Some(found)) => (there, state) = (middle, Some(found)),
                Err(WindowError::Compacted) => (there, state) = (middle, None),
                Err(trouble) => return Err(trouble),
            }
        }
        Ok((gone, state))
    }

    /// The state at a revision. Without questions about the past only the end of the window can be asked for.
    async fn at(&self, window: &Window, key: &Key, at: u64) -> Result<Option<State>, WindowError> {
        if at != window.to && !self.has_past {
            return Err(WindowError::Compacted);
        }
        self.object(window, key, at).await
    }
}
