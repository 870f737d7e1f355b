//! Versions for the join, out of the entries of the log.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

use super::join::Version;
use crate::core::k8s::bookkeeping;
use crate::core::k8s::managed_fields::By;
use crate::core::model::{EntryType, Evidence};
use crate::core::wire::{Change, Entry, EntryError, authors};

/// Slack between the clock of the API server and the time of journaling, in which the watch's way is contained.
const SLACK: SignedDuration = SignedDuration::from_secs(5);
/// The part of a second that a stamp leaves out.
const CUT_MAX: SignedDuration = SignedDuration::from_micros(999_999);
/// Number of objects whose newest version is remembered.
const MOST_OBJECTS: usize = 100_000;

/// Newest versions of objects, by which a version knows the one right before it.
#[derive(Debug, Default)]
pub(super) struct Versions {
    newest: HashMap<Name, Newest>,
}

/// Group and plural of the resource, namespace and name.
type Name = (String, String, String);

#[derive(Debug)]
struct Newest {
    uid: String,
    version: String,
}

impl Versions {
    /// Returns the version of an entry; none of a GAP or an ACTOR. `is_whole` says that no change of its source is suppressed.
    ///
    /// # Errors
    /// Where the line is no entry.
    pub(super) fn take(&mut self, line: &[u8], is_whole: bool) -> Result<Option<Version>, EntryError> {
        let entry = Entry::parse(line)?;
        if entry.op == EntryType::Gap {
            self.forget(&entry);
        }
        if !entry.op.is_change() {
            return Ok(None);
        }
        let text = |text: &Option<std::borrow::Cow<'_, str>>| text.as_deref().unwrap_or_default().to_owned();
        let name = (entry.full_resource(), text(&entry.namespace), text(&entry.name));
        let (uid, version) = (text(&entry.uid), text(&entry.resource_version));
        let evidence = Evidence::ALL.into_iter().find(|one| Some(one.as_str()) == entry.evidence.as_deref());
        let evidence = evidence.unwrap_or(Evidence::Inferred);
        let is_watched = matches!(evidence, Evidence::Watched | Evidence::Recovered);
        let before = self.newest.remove(&name).filter(|newest| newest.uid == uid && is_whole && is_watched);
        if entry.op != EntryType::Deleted {
            if self.newest.len() >= MOST_OBJECTS {
                self.newest.clear();
            }
            self.newest.insert(name.clone(), Newest { uid: uid.clone(), version: version.clone() });
        }
        let change = Change::of(&entry).ok().flatten();
        // The version that the change is from stands in the change.
        let was = change.as_ref().and_then(|change| {
            let step = change.patch.iter().find(|op| op.path == "/metadata/resourceVersion")?;
            serde_json::from_str::<String>(step.was?.get()).ok()
        });
        let sets_deletion = change
            .as_ref()
            .is_some_and(|change| change.patch.iter().any(|op| op.op == "add" && op.path == bookkeeping::DELETION[0]));
        let (stamped, is_leaving) = entry.object.map_or((None, false), |object| stamps(object.get(), entry.op));
        let managers = authors(&entry);
        let moved = managers.iter().filter(|manager| manager.by == Some(By::Moved));
        let moved = moved.filter_map(|manager| manager.time.as_deref()?.parse().ok()).max();
        let (earliest, latest) = bounds(&entry, moved.or(stamped).filter(|_| is_watched));
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
            before: was.filter(|_| is_watched).or_else(|| before.map(|newest| newest.version)),
            managers,
            deletion_requested: sets_deletion,
            deleting: is_leaving && !sets_deletion,
            earliest,
            latest,
        }))
    }

    /// Forgets the versions that a GAP makes uncertain: those of its resource, of one namespace or of one object where it names them.
    fn forget(&mut self, gap: &Entry<'_>) {
        let resource = gap.full_resource();
        let (namespace, name) = (gap.namespace.as_deref(), gap.name.as_deref());
        self.newest.retain(|of, _| {
            of.0 != resource
                || namespace.is_some_and(|namespace| of.1 != namespace)
                || name.is_some_and(|name| of.2 != name)
        });
    }
}

/// Returns creationTimestamp of an object that was added, and whether an object has a deletionTimestamp.
fn stamps(object: &str, op: EntryType) -> (Option<Timestamp>, bool) {
    #[derive(Deserialize)]
    struct Object {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata {
        creation_timestamp: Option<String>,
        deletion_timestamp: Option<String>,
    }
    let Ok(Object { metadata }) = serde_json::from_str(object) else { return (None, false) };
    let created = metadata.creation_timestamp.filter(|_| op == EntryType::Added);
    (created.and_then(|created| created.parse().ok()), metadata.deletion_timestamp.is_some())
}

/// Bounds of the time at which a version was written, microseconds since 1970. A stamp of the API server counts where it agrees with
/// the time of journaling: a restored object has the stamps of another time.
fn bounds(entry: &Entry<'_>, stamp: Option<Timestamp>) -> (i64, i64) {
    let read = |text: &str| text.parse::<Timestamp>().ok();
    let time = read(&entry.time).unwrap_or(Timestamp::MIN);
    let between = entry.happened_between.as_ref().and_then(|[earliest, latest]| read(earliest).zip(read(latest)));
    let (earliest, latest) = between.unwrap_or((time, time));
    let widened = |by: SignedDuration| move |time: Timestamp| time.saturating_add(by).unwrap_or(time);
    let (earliest, latest) = (widened(-SLACK)(earliest), widened(SLACK)(latest));
    match stamp.filter(|stamp| (earliest..=latest).contains(stamp)) {
        Some(stamp) => (stamp.as_microsecond(), widened(CUT_MAX)(stamp).as_microsecond()),
        None => (earliest.as_microsecond(), latest.as_microsecond()),
    }
}
