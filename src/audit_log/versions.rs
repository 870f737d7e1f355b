//! Versions for the join, out of the entries of the log.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

use super::join::Version;
use crate::core::k8s::bookkeeping;
use crate::core::k8s::managed_fields::By;
use crate::core::model::{EntryType, Evidence};
use crate::core::wire::{Change, Entry, EntryError, authors};

/// Time that a version takes from the API server into the log, where nothing says that it took longer.
pub(super) const WATCH_LAG_MAX: Duration = Duration::from_secs(5);
/// Most by which the clock of another machine is ahead of ours.
const CLOCK_LEAD_MAX: SignedDuration = SignedDuration::from_secs(1);
/// The part of a second that a stamp leaves out.
const CUT_MAX: SignedDuration = SignedDuration::from_micros(999_999);
/// Number of objects of which a gap is remembered.
const MOST_OBJECTS: usize = 100_000;

/// Reader of versions.
#[derive(Debug)]
pub(super) struct Versions {
    /// Objects of which a version was not recorded: what their next change is from is not the version right before it.
    gapped: HashSet<Name>,
    /// Most by which the clock of an API server is ahead of ours.
    ahead: SignedDuration,
}

/// Group and plural of the resource, namespace and name.
type Name = (String, String, String);

impl Versions {
    /// `is_local` says that the only API server is on this machine, and has its clock.
    pub(super) fn new(is_local: bool) -> Self {
        Self { gapped: HashSet::new(), ahead: if is_local { SignedDuration::ZERO } else { CLOCK_LEAD_MAX } }
    }

    /// Returns the version of an entry; none of a GAP or an ACTOR.
    ///
    /// # Errors
    /// Where the line is no entry.
    pub(super) fn take(&mut self, line: &[u8]) -> Result<Option<Version>, EntryError> {
        let entry = Entry::parse(line)?;
        let text = |text: &Option<std::borrow::Cow<'_, str>>| text.as_deref().unwrap_or_default().to_owned();
        let name = (entry.full_resource(), text(&entry.namespace), text(&entry.name));
        if entry.op == EntryType::Gap && entry.name.is_some() {
            if self.gapped.len() >= MOST_OBJECTS {
                self.gapped.clear();
            }
            self.gapped.insert(name);
            return Ok(None);
        }
        if !entry.op.is_change() {
            return Ok(None);
        }
        let is_behind_gap = self.gapped.remove(&name);
        let (uid, version) = (text(&entry.uid), text(&entry.resource_version));
        let evidence = Evidence::ALL.into_iter().find(|one| Some(one.as_str()) == entry.evidence.as_deref());
        let evidence = evidence.unwrap_or(Evidence::Inferred);
        let is_watched = matches!(evidence, Evidence::Watched | Evidence::Recovered);
        let change = Change::of(&entry).ok().flatten();
        // The version that the change is from stands in the change, also where `ignore` suppressed that one.
        let was = change.as_ref().and_then(|change| {
            let step = change.patch.iter().find(|op| op.path == "/metadata/resourceVersion")?;
            serde_json::from_str::<String>(step.was?.get()).ok()
        });
        let sets_deletion = change
            .as_ref()
            .is_some_and(|change| change.patch.iter().any(|op| op.op == "add" && op.path == bookkeeping::DELETION[0]));
        let grace_shortened = change.as_ref().is_some_and(|change| {
            change.patch.iter().any(|op| op.op == "replace" && op.path == bookkeeping::DELETION[1])
        });
        let metadata = entry.object.and_then(|object| Metadata::of(object.get()));
        let is_leaving = metadata.as_ref().is_some_and(|metadata| metadata.deletion_timestamp.is_some());
        let stamped = metadata.as_ref().and_then(|metadata| metadata.creation_timestamp.as_ref()?.parse().ok());
        let stamped = stamped.filter(|_| entry.op == EntryType::Added);
        let managers = authors(&entry);
        let moved = managers.iter().filter(|manager| manager.by == Some(By::Moved));
        let moved = moved.filter_map(|manager| manager.time.as_deref()?.parse().ok()).max();
        let (earliest, latest) = bounds(&entry, moved.or(stamped).filter(|_| is_watched), self.ahead);
        Ok(Some(Version {
            seq: entry.seq,
            op: entry.op,
            evidence,
            group: entry.group().to_owned(),
            resource: entry.resource.to_string(),
            namespace: name.1,
            name: name.2,
            uid,
            version,
            before: was.filter(|_| is_watched && !is_behind_gap),
            managers,
            deletion_requested: sets_deletion,
            deleting: is_leaving && !sets_deletion,
            grace_shortened,
            generated: metadata.as_ref().is_none_or(|metadata| metadata.generate_name.is_some()),
            labels: metadata.map(|metadata| metadata.labels.unwrap_or_default()),
            earliest,
            latest,
        }))
    }
}

/// Metadata of an object, as far as the join needs it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    creation_timestamp: Option<String>,
    deletion_timestamp: Option<String>,
    generate_name: Option<String>,
    labels: Option<BTreeMap<String, String>>,
}

impl Metadata {
    fn of(object: &str) -> Option<Self> {
        #[derive(Deserialize)]
        struct Object {
            metadata: Metadata,
        }
        Some(serde_json::from_str::<Object>(object).ok()?.metadata)
    }
}

/// Bounds of the time at which a version was written, microseconds since 1970. A stamp of the API server counts where it agrees with
/// the time of journaling: a restored object has the stamps of another time.
fn bounds(entry: &Entry<'_>, stamp: Option<Timestamp>, ahead: SignedDuration) -> (i64, i64) {
    let read = |text: &str| text.parse::<Timestamp>().ok();
    let time = read(&entry.time).unwrap_or(Timestamp::MIN);
    let between = entry.happened_between.as_ref().and_then(|[earliest, latest]| read(earliest).zip(read(latest)));
    let (earliest, latest) = between.unwrap_or((time, time));
    let widened = |by: SignedDuration| move |time: Timestamp| time.saturating_add(by).unwrap_or(time);
    let (earliest, latest) = (earliest.checked_sub(WATCH_LAG_MAX).unwrap_or(earliest), widened(ahead)(latest));
    // A stamp is cut to the second.
    match stamp.filter(|stamp| (earliest..=latest).contains(stamp)) {
        Some(stamp) => (stamp.as_microsecond(), widened(CUT_MAX)(stamp).min(latest).as_microsecond()),
        None => (earliest.as_microsecond(), latest.as_microsecond()),
    }
}
