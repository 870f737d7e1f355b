//! Classification of writes.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::read::meant;
use crate::core::change::{Ignore, Noise, Preset};
use crate::core::k8s::bookkeeping::{GENERATION, RESOURCE_VERSION, is_book, is_of_managed_fields};
use crate::core::wire::Change;

/// Kind of a write. Each write has exactly one: the first that matches in this order, except for the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// The object came into being.
    Created,
    /// The object went.
    Deleted,
    /// Only resourceVersion changed.
    Version,
    /// Only managedFields changed, or with them what kubectl notes of the last apply.
    ManagedFields,
    /// Part of a storage rewrite.
    StorageRewrite,
    /// Only fields of the preset `heartbeats` changed.
    Heartbeats,
    /// Only fields of the preset `leader-election` changed.
    LeaderElection,
    /// Time stamps that went on, and nothing else.
    TimeStamps,
    /// The status alone.
    Status,
    /// A field that somebody may care about changed.
    Changed,
}

impl Class {
    /// Every kind.
    pub const ALL: [Self; 10] = [
        Self::Created,
        Self::Deleted,
        Self::Changed,
        Self::Status,
        Self::TimeStamps,
        Self::Heartbeats,
        Self::LeaderElection,
        Self::ManagedFields,
        Self::Version,
        Self::StorageRewrite,
    ];

    /// The word in JSON and in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Deleted => "deleted",
            Self::Version => "version",
            Self::ManagedFields => "managed-fields",
            Self::StorageRewrite => "storage-rewrite",
            Self::Heartbeats => "heartbeats",
            Self::LeaderElection => "leader-election",
            Self::TimeStamps => "time-stamps",
            Self::Status => "status",
            Self::Changed => "changed",
        }
    }

    /// Returns the name for people.
    #[must_use]
    pub const fn spoken(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Deleted => "deleted",
            Self::Changed => "changed",
            Self::Status => "the status alone",
            Self::TimeStamps => "time stamps alone",
            Self::Heartbeats => "heartbeats",
            Self::LeaderElection => "a leader that stays",
            Self::ManagedFields => "managedFields alone",
            Self::StorageRewrite => "storage rewrites",
            Self::Version => "nothing but resourceVersion",
        }
    }

    /// Reports whether the write changed nothing but bookkeeping, as each write of a storage rewrite does.
    #[must_use]
    pub const fn is_bookkeeping(self) -> bool {
        matches!(self, Self::Version | Self::ManagedFields)
    }

    /// Reports whether the write changed nothing that matters. Storage rewrites are wanted, and so they are not among these.
    #[must_use]
    pub const fn is_no_op(self) -> bool {
        matches!(self, Self::Version | Self::ManagedFields | Self::Heartbeats | Self::LeaderElection | Self::TimeStamps)
    }
}

/// Distinguishes the kinds of changes.
#[derive(Clone, Debug)]
pub(crate) struct Classes {
    /// Heartbeats and leader election, in leases and in everything else.
    presets: [(Class, Noise, Noise); 2],
    status: Noise,
}

const LEASES: &str = "leases.coordination.k8s.io";

impl Default for Classes {
    fn default() -> Self {
        let of = |class, preset: Preset| {
            let ignore = [Ignore::Preset(preset)];
            (class, Noise::new(&ignore, LEASES), Noise::new(&ignore, ""))
        };
        Self {
            presets: [of(Class::Heartbeats, Preset::Heartbeats), of(Class::LeaderElection, Preset::LeaderElection)],
            status: Noise::new(&[Ignore::Preset(Preset::Status)], ""),
        }
    }
}

impl Classes {
    /// Classifies a MODIFIED entry of this resource, written at about this time.
    pub(crate) fn of(&self, resource: &str, change: &Change<'_>, time: Option<Timestamp>) -> Class {
        match change.areas.as_slice() {
            [] => return Class::Version,
            [area] if *area == "managedFields" => return Class::ManagedFields,
            _ => {}
        }
        // A value that redaction drops is another, and nothing but its area shows it: whatever it was, it may matter.
        if change.areas.iter().any(|area| !change.patch.iter().any(|operation| area_of(&operation.path) == Some(area)))
        {
            return Class::Changed;
        }
        // `kubectl replace` notes in an annotation what it was given, with the version.
        let is_note = |path: &str| is_book(path) && path != GENERATION;
        if change.patch.iter().all(|operation| is_note(&operation.path)) {
            return Class::ManagedFields;
        }
        // The version moves with every write and says nothing.
        let touched: Vec<&str> =
            change.patch.iter().map(|operation| &*operation.path).filter(|path| *path != RESOURCE_VERSION).collect();
        let lease = resource == LEASES;
        for (class, leases, others) in &self.presets {
            if (if lease { leases } else { others }).covers(&touched) {
                return *class;
            }
        }
        let stamped = |raw: Option<&RawValue>| raw.is_some_and(|raw| is_stamp(raw.get(), time));
        let mut meant = meant(change).peekable();
        if meant.peek().is_some() && meant.all(|operation| stamped(operation.was) && stamped(operation.value)) {
            return Class::TimeStamps;
        }
        if self.status.covers(&touched) { Class::Status } else { Class::Changed }
    }
}

/// The area that a path of a patch lies in; of the version, which moves with every write, none.
fn area_of(path: &str) -> Option<&str> {
    let first = path.strip_prefix('/')?;
    match path {
        RESOURCE_VERSION => None,
        _ if is_of_managed_fields(path) => Some("managedFields"),
        _ => Some(first.split_once('/').map_or(first, |(first, _)| first)),
    }
}

/// Reports whether a JSON text is a timestamp: RFC 3339, or seconds, milli-, micro- or nanoseconds since 1970 within a week of
/// the write.
pub(super) fn is_stamp(json: &str, written: Option<Timestamp>) -> bool {
    let text = json.trim_matches('"');
    if json.len() < 10 || json.len() > 64 {
        return false;
    }
    if text.parse::<Timestamp>().is_ok() {
        return json.starts_with('"');
    }
    let (Ok(number), Some(written)) = (text.parse::<i64>(), written) else { return false };
    let moment = match text.len() {
        10 => Timestamp::from_second(number),
        13 => Timestamp::from_millisecond(number),
        16 => Timestamp::from_microsecond(number),
        19 => Timestamp::from_nanosecond(i128::from(number)),
        _ => return false,
    };
    moment.is_ok_and(|moment| written.duration_since(moment).abs() < SignedDuration::from_hours(7 * 24))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(change: &str) -> Class {
        Classes::default().of("secrets", &serde_json::from_str(change).unwrap(), None)
    }

    /// A value that redaction drops is in the areas alone.
    #[test]
    fn what_changed_and_is_not_shown_is_a_change_that_matters() {
        let version = r#"{"op":"replace","path":"/metadata/resourceVersion","value":"2","was":"1"}"#;
        let books = r#"{"op":"replace","path":"/metadata/managedFields/0/time","value":"b","was":"a"}"#;
        let applied = r#"{"op":"replace","path":"/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration","value":"b","was":"a"}"#;
        let generation = r#"{"op":"replace","path":"/metadata/generation","value":2,"was":1}"#;
        let status = r#"{"op":"replace","path":"/status/a","value":2,"was":1}"#;
        for (areas, patch, expected) in [
            (r#""data""#, version.to_owned(), Class::Changed),
            (r#""metadata""#, version.to_owned(), Class::Changed),
            (r#""data","managedFields""#, format!("{version},{books}"), Class::Changed),
            (r#""data","status""#, format!("{version},{status}"), Class::Changed),
            (r#""status""#, format!("{version},{status}"), Class::Status),
            (r#""managedFields","status""#, format!("{version},{books},{status}"), Class::Status),
            (r#""managedFields""#, format!("{version},{books}"), Class::ManagedFields),
            ("", version.to_owned(), Class::Version),
            (r#""managedFields","metadata""#, format!("{version},{books},{applied}"), Class::ManagedFields),
            (r#""metadata""#, format!("{version},{generation}"), Class::Changed),
            (r#""a/b""#, format!(r#"{version},{{"op":"add","path":"/a~1b","value":1}}"#), Class::Changed),
            // An object that is recorded again as a whole.
            (r#""metadata","status""#, r#"{"op":"replace","path":"","value":{}}"#.to_owned(), Class::Changed),
        ] {
            assert_eq!(class(&format!(r#"{{"areas":[{areas}],"patch":[{patch}]}}"#)), expected, "{areas}: {patch}");
        }
    }
}
