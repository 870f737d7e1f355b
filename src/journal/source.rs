//! The handle of one source: what it brings, and how far it is.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use super::error::Result;
use super::writer::{Command, OfSource, Reply};
use super::{BudgetPermit, Counted, Journal, Share, SourceState};
use crate::core::model::{Checkpoint, Observed, ResourceVersion, Unread, Verb, Why};
use crate::core::runtime::watch;

/// A source as the journal knows it, for the life of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SourceId(pub i64);

/// State of a source in the journal at the start of the daemon.
#[derive(Clone, Debug)]
pub struct SourceMemory {
    /// Checkpoint of the journal. Without a position the source was never listed, or its scope changed since.
    pub checkpoint: Checkpoint,
    /// The gap that the next list must declare: none on a first list, `Scope` after a change of scope.
    pub why: Option<Why>,
}

/// One line of a watch.
#[derive(Clone, Debug)]
pub struct WatchChange {
    /// Operation of the event.
    pub verb: Verb,
    /// The object it carries, redacted.
    pub object: Observed,
}

/// Change from the API server's own history.
#[derive(Clone, Debug)]
pub enum Found {
    /// An object as it was in its version.
    Version(Observed),
    /// A deletion with its version. It has no body, and its uid is ignored.
    Deletion(Observed),
}

/// Changes of one object that were missed although the watch went on.
#[derive(Clone, Debug)]
pub struct Missed {
    /// Its namespace, empty for cluster-scoped.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Versions after the first one and up to the second one of which nothing can be had any more.
    pub lost: Option<(Option<ResourceVersion>, ResourceVersion)>,
}

/// A comparison of what the journal knows of a source with what the API server has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audit {
    /// The version at which they were compared.
    pub version: ResourceVersion,
    /// Start of the audit.
    pub began: Timestamp,
    /// Number of objects that differ.
    pub differences: u64,
}

/// Handle of one source. Cheap to clone.
///
/// It has no cursor to move:
///
/// ```compile_fail,E0599
/// async fn acknowledge(source: decklog::journal::SourceJournal) {
///     source.acknowledge(decklog::core::model::Seq(1)).await;
/// }
/// ```
#[derive(Clone, Debug)]
pub struct SourceJournal {
    journal: Journal,
    id: SourceId,
}

#[expect(clippy::missing_errors_doc, reason = "all fail in one way, which `JournalError` names")]
impl SourceJournal {
    pub(super) const fn new(journal: Journal, id: SourceId) -> Self {
        Self { journal, id }
    }

    /// The source.
    #[must_use]
    pub const fn id(&self) -> SourceId {
        self.id
    }

    /// Hands over changes of an open watch, in the order they came. Returns when the queue has taken them, which is
    /// before they are on disk.
    pub async fn append(&self, changes: Vec<WatchChange>) -> Result {
        self.append_held(changes, &mut self.journal.budget().share()).await
    }

    /// Appends as [`SourceJournal::append`] does, with the share of the budget that was held while the changes were read.
    pub(crate) async fn append_held(&self, changes: Vec<WatchChange>, share: &mut Share<'_>) -> Result {
        let bytes = changes.iter().map(|change| change.object.body.bytes.len()).sum();
        let mut counted = Counted::new(&self.journal.inner.waiting, self.id, changes.len());
        self.send(OfSource::Changes(changes), bytes, share.shrink_to(bytes)).await?;
        counted.leave_to_the_writer();
        Ok(())
    }

    /// Moves the position on, durably within 10 s: everything up to `version` has been appended.
    pub async fn bookmark(&self, version: ResourceVersion) -> Result {
        self.send(OfSource::Bookmark(version), 0, None).await
    }

    /// Says that the changes handed over from here on may have happened since `since`, or since the last time at which nothing was
    /// missing: a watch was opened again, or stood still.
    pub async fn fall_behind(&self, since: Option<Timestamp>) -> Result {
        self.send(OfSource::Behind(since.map(Timestamp::as_microsecond)), 0, None).await
    }

    /// Says when versions around those that follow were made: the earliest and the latest time of each, microseconds since 1970.
    pub async fn date(&self, dates: Arc<BTreeMap<u64, (i64, i64)>>) -> Result {
        self.send(OfSource::Dated(dates), 0, None).await
    }

    /// Says that the changes handed over from here on have happened just now.
    pub async fn catch_up(&self) -> Result {
        self.send(OfSource::CaughtUp, 0, None).await
    }

    /// A list begins: drops what an earlier, unfinished one had staged.
    pub async fn list_begin(&self) -> Result {
        self.send(OfSource::ListBegin, 0, None).await
    }

    /// Hands over an event of an open watch whose object cannot be recorded, behind the changes that came before it: a GAP
    /// for that object, once for each version, and the position moves past it where it has a version.
    pub async fn append_unread(&self, verb: Verb, object: Unread) -> Result {
        self.send(OfSource::Unread(verb, Box::new(object)), 0, None).await
    }

    /// Hands over an object that the API server cannot read from etcd: a GAP for that object, once for each version that is known of
    /// it. Its deletion, once it is found, says so.
    pub async fn unreadable(&self, (namespace, name): (String, String)) -> Result {
        self.send(OfSource::Unreadable(Box::new(Unread::unreadable(namespace, name))), 0, None).await
    }

    /// Says that the list which has begun shows an earlier version: what changed after that may be as old as what was missed.
    pub async fn list_past(&self) -> Result {
        self.send(OfSource::ListPast, 0, None).await
    }

    /// Says that the list which has begun shows the version that was the newest at this time.
    pub async fn list_as_of(&self, at: Timestamp) -> Result {
        self.send(OfSource::ListAsOf(at.as_microsecond()), 0, None).await
    }

    /// Stages one page of a list in progress; nothing is visible before [`SourceJournal::list_done`].
    pub async fn list_page(&self, objects: Vec<Observed>) -> Result {
        self.list_page_held(objects, &mut self.journal.budget().share()).await
    }

    /// Stages as [`SourceJournal::list_page`] does, with the share of the budget that was held while the page was read.
    pub(crate) async fn list_page_held(&self, objects: Vec<Observed>, share: &mut Share<'_>) -> Result {
        let bytes = objects.iter().map(|object| object.body.bytes.len()).sum();
        self.send(OfSource::ListPage(objects), bytes, share.shrink_to(bytes)).await
    }

    /// Returns the number of lists of this source that the journal has given up since it was opened, because their staging left
    /// no room for other sources. Nothing of such a list is written: [`SourceJournal::list_done`] and
    /// [`SourceJournal::part_done`] return without effect.
    #[must_use]
    pub fn lists_given_up(&self) -> u64 {
        self.journal.inner.given_up.borrow().get(&self.id).copied().unwrap_or_default()
    }

    /// Stages objects of a list in progress that cannot be recorded. They exist, and their last known state stays.
    pub async fn list_unread(&self, objects: Vec<Unread>) -> Result {
        self.send(OfSource::ListUnread(objects), 0, None).await
    }

    /// The list is complete at `version`: declares the gap where `why` is given, writes the net difference, moves the
    /// position. Returns when it is on disk.
    pub async fn list_done(&self, version: ResourceVersion, why: Option<Why>) -> Result {
        self.ask(|reply| OfSource::ListDone(version, why, reply)).await
    }

    /// Stages what was found of the time after a position was lost; in any order, and not visible before
    /// [`SourceJournal::part_done`]. [`SourceJournal::list_begin`] goes before it, and drops what was staged.
    pub async fn found(&self, found: Vec<Found>) -> Result {
        self.found_held(found, &mut self.journal.budget().share()).await
    }

    /// Stages as [`SourceJournal::found`] does, with the share of the budget that was held while the changes were read.
    pub(crate) async fn found_held(&self, found: Vec<Found>, share: &mut Share<'_>) -> Result {
        let bytes = found
            .iter()
            .map(|found| match found {
                Found::Version(object) | Found::Deletion(object) => object.body.bytes.len(),
            })
            .sum();
        self.send(OfSource::Found(found), bytes, share.shrink_to(bytes)).await
    }

    /// Writes the staged changes up to `version`, since the position was lost or since the previous part, in order, with the
    /// evidence `recovered`. The last part restores the position. Returns once it is durable.
    pub async fn part_done(&self, version: ResourceVersion, last: bool) -> Result {
        self.ask(|reply| OfSource::PartDone(version, last, reply)).await
    }

    /// Writes the staged changes of one object, in order, with the evidence `recovered`; what is lost before them is a GAP of that
    /// object, and the first one behind it is inferred. The position stays. Returns once it is durable.
    pub async fn mended(&self, missed: Missed) -> Result {
        self.ask(|reply| OfSource::Mended(missed, reply)).await
    }

    /// The resource is confirmed gone from the API: GAP `scope`, an inferred DELETED for every object known of it, and
    /// no position, so that it is listed as a new one if it comes back.
    pub async fn gone(&self) -> Result {
        self.ask(OfSource::Gone).await
    }

    /// The position is lost: nothing counts until a list is complete, and that list declares `why`, also where the daemon
    /// ends before it.
    pub async fn mark_desynced(&self, why: Why) -> Result {
        self.send(OfSource::MarkDesynced(why), 0, None).await
    }

    /// Signals when the journal finds what the watch brings inconsistent.
    #[must_use]
    pub fn inconsistency(&self) -> Inconsistency {
        Inconsistency { sources: self.journal.inner.inconsistent.clone(), id: self.id }
    }

    /// An audit is done.
    pub async fn audited(&self, audit: Audit) -> Result {
        self.send(OfSource::Audited(audit), 0, None).await
    }

    /// Says what the source is doing.
    pub async fn report(&self, state: SourceState) -> Result {
        self.send(OfSource::Report(state), 0, None).await
    }

    async fn send(&self, command: OfSource, bytes: usize, held: Option<BudgetPermit>) -> Result {
        self.journal.send_held(Command::Source(self.id, command), bytes, held).await
    }

    async fn ask<T>(&self, command: impl FnOnce(Reply<T>) -> OfSource) -> Result<T> {
        self.journal.ask(|reply| Command::Source(self.id, command(reply))).await
    }
}

/// Contradiction between a source's watch and the journal: changes before it must be missing. The journal has marked the source
/// as desynced and takes nothing more of it until it is listed.
#[derive(Clone, Debug)]
pub struct Inconsistency {
    sources: watch::Receiver<BTreeSet<SourceId>>,
    id: SourceId,
}

impl Inconsistency {
    /// Reports whether a contradiction was found.
    #[must_use]
    pub fn is_found(&self) -> bool {
        self.sources.borrow().contains(&self.id)
    }

    /// Returns when it is so.
    pub async fn found(&mut self) {
        let found = self.sources.wait_for(|sources| sources.contains(&self.id)).await.is_ok();
        if !found {
            // The writer has ended; whoever hands something over hears of it.
            std::future::pending::<()>().await;
        }
    }
}
