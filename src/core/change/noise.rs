//! Noise: what `ignore` leaves out of the log, by presets that have a name and by patterns of one's own.
//!
//! # Decision: noise includes the bookkeeping of the write
//!
//! Context: With each write the API server moves a time in managedFields, so nearly no change touches heartbeat fields alone.
//! Decision: A preset is a set of patterns, and takes along what the change moves in managedFields, unless that is all. A
//! user's pattern is taken literally.
//! Cost: A change of ownership beside a heartbeat is suppressed.

use std::fmt;

use super::{Pattern, matches_ignore};
use crate::core::k8s::bookkeeping::{MANAGED_FIELDS, is_of_managed_fields};
use crate::core::spelling::{Text, Wrong, nearest, text_value};

/// The resource whose objects say nothing but that somebody is alive.
const LEASES: &str = "leases.coordination.k8s.io";

/// A kind of change that most clusters are full of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// Signs of life: the heartbeats of nodes in their conditions, probes, the renewal of a lease.
    Heartbeats,
    /// The books about who set what, when nothing else changed.
    ManagedFields,
    /// All of the status.
    Status,
    /// An object that is only stored again, as by a storage version migration or the rotation of an encryption key.
    StorageRewrites,
    /// A leader that stays: the renewal of its lease, or its record in an annotation. Another leader of a lease is an
    /// entry.
    LeaderElection,
}

impl Preset {
    /// Every preset.
    pub const ALL: [Self; 5] =
        [Self::Heartbeats, Self::ManagedFields, Self::Status, Self::StorageRewrites, Self::LeaderElection];

    /// Its name in the configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Heartbeats => "heartbeats",
            Self::ManagedFields => "managed-fields",
            Self::Status => "status",
            Self::StorageRewrites => "storage-rewrites",
            Self::LeaderElection => "leader-election",
        }
    }

    /// The preset of this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|preset| preset.as_str() == name)
    }

    /// Returns the patterns of the preset: for objects of any resource, and additional ones for leases.
    const fn patterns(self) -> (&'static [&'static str], &'static [&'static str]) {
        match self {
            Self::Heartbeats => (&["/status/**/lastHeartbeatTime", "/status/**/lastProbeTime"], &["/spec/renewTime"]),
            Self::ManagedFields => (&[MANAGED_FIELDS], &[]),
            Self::Status => (&["/status"], &[]),
            // Where nothing but the version moves, there is no value to name.
            Self::StorageRewrites => (&["/metadata/managedFields/*/time"], &[]),
            Self::LeaderElection => {
                (&["/metadata/annotations/control-plane.alpha.kubernetes.io~1leader"], &["/spec/renewTime"])
            }
        }
    }
}

/// A value of `ignore`: a preset, or a pattern of the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ignore {
    /// A preset.
    Preset(Preset),
    /// A pattern of JSON pointers.
    Pattern(Pattern),
}

impl fmt::Display for Ignore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Preset(preset) => f.write_str(preset.as_str()),
            Self::Pattern(pattern) => pattern.fmt(f),
        }
    }
}

impl Text for Ignore {
    const FORMAT: &'static str = "ignore";
    const EXPECTED: &'static str = "a preset (\"heartbeats\", \"managed-fields\", \"status\", \"storage-rewrites\", \"leader-election\") or a JSON pointer such as \"/metadata/labels/*\"";

    fn read(text: &str) -> Result<Self, Wrong> {
        if let Some(preset) = Preset::parse(text) {
            return Ok(Self::Preset(preset));
        }
        let word = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_ ".contains(&byte));
        let pattern = if word { Err(format!("{text:?}, which is no preset")) } else { Pattern::parse(text) };
        pattern
            .map(Self::Pattern)
            .map_err(|found| Wrong { found, nearest: nearest(text, Preset::ALL.map(Preset::as_str)) })
    }
}

text_value!(Ignore);

/// Noise of one resource: a change that touches nothing else is suppressed.
///
/// With each write the API server moves the writer's time in managedFields. A change that a preset covers therefore
/// takes that along; a pattern of one's own covers what it names and nothing else.
#[derive(Clone, Debug, Default)]
pub struct Noise {
    patterns: Vec<Pattern>,
    takes_books: bool,
}

impl Noise {
    /// Collects the patterns of these presets and of the user for a resource (`deployments.apps`).
    pub fn new<'i>(ignore: impl IntoIterator<Item = &'i Ignore>, resource: &str) -> Self {
        let mut noise = Self::default();
        for ignore in ignore {
            let preset = match ignore {
                Ignore::Preset(preset) => *preset,
                Ignore::Pattern(pattern) => {
                    noise.patterns.push(pattern.clone());
                    continue;
                }
            };
            let (all, leases) = preset.patterns();
            let leases = if resource == LEASES { leases } else { &[] };
            let patterns = all.iter().chain(leases);
            noise.patterns.extend(patterns.map(|text| Pattern::parse(text).expect("the presets are patterns")));
            noise.takes_books |= !matches!(preset, Preset::ManagedFields | Preset::StorageRewrites);
        }
        noise
    }

    /// Reports whether nothing counts as noise.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }

    /// Reports whether a change of these values, given by JSON pointers, is noise alone.
    #[must_use]
    pub fn covers<S: AsRef<str>>(&self, touched: &[S]) -> bool {
        let takes_books = self.takes_books && !touched.iter().all(|pointer| is_of_managed_fields(pointer.as_ref()));
        if !takes_books {
            return matches_ignore(&self.patterns, touched);
        }
        touched
            .iter()
            .all(|pointer| is_of_managed_fields(pointer.as_ref()) || matches_ignore(&self.patterns, &[pointer]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: &str = "/metadata/managedFields/1/time";

    fn covers(texts: &[&str], resource: &str, touched: &[&str]) -> bool {
        let ignore: Vec<Ignore> = texts.iter().map(|text| Ignore::read(text).unwrap()).collect();
        Noise::new(&ignore, resource).covers(touched)
    }

    #[test]
    fn a_preset_covers_what_it_is_named_after() {
        for (preset, resource, touched, covered) in [
            ("heartbeats", "nodes", "/status/conditions/2/lastHeartbeatTime", true),
            ("heartbeats", "pods", "/status/conditions/0/lastProbeTime", true),
            ("heartbeats", "nodes", "/status/conditions/2/status", false),
            ("heartbeats", LEASES, "/spec/renewTime", true),
            ("heartbeats", "certificates.example.com", "/spec/renewTime", false),
            ("heartbeats", LEASES, "/spec/holderIdentity", false),
            ("managed-fields", "pods", "/metadata/managedFields/0/fieldsV1/f:spec/f:x", true),
            ("managed-fields", "pods", "/metadata/managedFieldsOfMine", false),
            ("storage-rewrites", "pods", TIME, true),
            ("storage-rewrites", "pods", "/metadata/managedFields/0/apiVersion", false),
            ("storage-rewrites", "pods", "/metadata/managedFields/0/fieldsV1/f:spec/f:x", false),
            ("storage-rewrites", "pods", "/metadata/labels/x", false),
            ("status", "pods", "/status/phase", true),
            ("status", "pods", "/spec/status", false),
            ("leader-election", LEASES, "/spec/renewTime", true),
            ("leader-election", LEASES, "/spec/leaseTransitions", false),
            ("leader-election", "configmaps", "/metadata/annotations/control-plane.alpha.kubernetes.io~1leader", true),
        ] {
            assert_eq!(covers(&[preset], resource, &[touched]), covered, "{preset} {resource} {touched}");
        }
    }

    #[test]
    fn a_preset_takes_the_books_along_and_a_pattern_does_not() {
        let heartbeat = "/status/conditions/2/lastHeartbeatTime";
        assert!(covers(&["heartbeats"], "nodes", &[heartbeat, TIME]));
        assert!(!covers(&["heartbeats"], "nodes", &[heartbeat, TIME, "/spec/unschedulable"]));
        assert!(!covers(&["/status/conditions/*/lastHeartbeatTime"], "nodes", &[heartbeat, TIME]));
        // Ownership alone is another matter.
        assert!(!covers(&["heartbeats", "status"], "nodes", &[TIME]));
        assert!(covers(&["heartbeats", "managed-fields"], "nodes", &[TIME]));
        // What is only stored again may be of any owner, and a change beside it is one.
        assert!(covers(&["storage-rewrites"], "pods", &[]));
        assert!(covers(&["storage-rewrites", "heartbeats"], "nodes", &[TIME]));
        assert!(!covers(&["storage-rewrites"], "nodes", &[TIME, heartbeat]));
        assert!(covers(&["status", "/metadata/labels/x"], "nodes", &["/status/a", "/metadata/labels/x", TIME]));
    }

    #[test]
    fn where_only_the_version_moved_all_of_it_is_noise() {
        assert!(covers(&["status"], "pods", &[]));
        assert!(!covers(&[], "pods", &[]));
        assert!(Noise::new(&[], "pods").is_empty());
    }

    #[test]
    fn what_is_neither_a_preset_nor_a_pattern_is_refused() {
        for preset in Preset::ALL {
            assert_eq!(Ignore::read(preset.as_str()), Ok(Ignore::Preset(preset)));
        }
        Ignore::read("/status").unwrap();
        assert!(Ignore::read("heartbeat").unwrap_err().found.contains("no preset"));
        assert!(Ignore::read("metadata/labels").unwrap_err().found.contains("begin with `/`"));
        assert!(Ignore::read("/a**").unwrap_err().found.contains("whole segments"));
    }
}
