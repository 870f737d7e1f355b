//! The object that an incident is about: the controller at the top of what an entry is of.
//!
//! It is read off the entry alone, so that it is the same whatever else the log has. Kubernetes puts the hash of its template behind
//! the name of a Deployment, and the minute of its start behind that of a CronJob.

use std::fmt;

use jiff::Timestamp;
use serde_json::Value;

use crate::core::wire::Header;

/// Labels with the hash that stands behind the name of the controller of a ReplicaSet, and that controller.
const HASHES: [(&str, &str, &str); 2] =
    [("pod-template-hash", "Deployment", "apps"), ("rollouts-pod-template-hash", "Rollout", "argoproj.io")];

/// Bytes of a kind or name in a title. An owner reference may have any.
pub(super) const NAME_BYTES: usize = 253;

/// Minutes by which a CronJob may start a Job late, and that Job its Pod.
const LATE_MINUTES_MAX: i64 = 7 * 24 * 60;

/// An object; for a GAP of a source its resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    kind: String,
    group: String,
    namespace: String,
    name: String,
}

impl Object {
    /// Returns what an incident of an entry is about. `object` is that of the entry.
    #[must_use]
    pub fn of(entry: &Header<'_>, object: Option<&Value>) -> Self {
        let (kind, group, name) = match (&entry.name, object) {
            (Some(name), Some(object)) => {
                owner(object).unwrap_or_else(|| (entry.kind.to_string(), entry.group().to_owned(), name.to_string()))
            }
            (name, _) => {
                (entry.kind.to_string(), entry.group().to_owned(), name.as_deref().unwrap_or_default().to_owned())
            }
        };
        Self { kind, group, namespace: entry.namespace.as_deref().unwrap_or_default().to_owned(), name }
    }

    /// Returns its name for people: `Deployment shop/web`, `Node n1`, and `Pod` for all of a resource. Of each part at most 253
    /// bytes, which is what Kubernetes allows a name.
    #[must_use]
    pub fn title(&self) -> String {
        let kind = clip(&self.kind, NAME_BYTES);
        match (clip(&self.namespace, NAME_BYTES), clip(&self.name, NAME_BYTES)) {
            ("", "") => kind.to_owned(),
            (namespace, "") => format!("{kind} in {namespace}"),
            ("", name) => format!("{kind} {name}"),
            (namespace, name) => format!("{kind} {namespace}/{name}"),
        }
    }
}

/// The beginning of a text, of at most so many bytes.
pub(super) fn clip(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

/// Its part of a key: `Deployment.apps/shop/web`.
impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dot = if self.group.is_empty() { "" } else { "." };
        write!(f, "{}{dot}{}/{}/{}", self.kind, self.group, self.namespace, self.name)
    }
}

/// Kind, group and name of the controller at the top, as far as the object itself says.
fn owner(object: &Value) -> Option<(String, String, String)> {
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    let owners = object.pointer("/metadata/ownerReferences").and_then(Value::as_array)?;
    let owner = owners.iter().find(|owner| owner.get("controller") == Some(&Value::Bool(true)))?;
    let (kind, name, version) = (text(owner, "kind")?, text(owner, "name")?, text(owner, "apiVersion")?);
    let group = version.split_once('/').map_or("", |(group, _)| group).to_owned();
    match (kind.as_str(), group.as_str()) {
        // A static Pod is no part of its Node.
        ("Node", "") => None,
        ("ReplicaSet", "apps") => Some(deployment(object, &name).unwrap_or((kind, group, name))),
        ("Job", "batch") => {
            Some(cron_job(object, &name).map_or((kind, group, name), |cron| ("CronJob".into(), "batch".into(), cron)))
        }
        _ => Some((kind, group, name)),
    }
}

/// The controller of a ReplicaSet with this name, of whose Pods the object is one.
fn deployment(pod: &Value, set: &str) -> Option<(String, String, String)> {
    let labels = pod.pointer("/metadata/labels")?;
    HASHES.iter().find_map(|(label, kind, group)| {
        let hash = labels.get(label)?.as_str()?;
        let name = set.strip_suffix(hash)?.strip_suffix('-').filter(|name| !name.is_empty())?;
        Some(((*kind).to_owned(), (*group).to_owned(), name.to_owned()))
    })
}

/// The CronJob of a Job with this name, of whose Pods the object is one.
fn cron_job(pod: &Value, job: &str) -> Option<String> {
    let (name, minute) = job.rsplit_once('-').filter(|(name, _)| !name.is_empty())?;
    let minute = minute.parse::<i64>().ok()?;
    let created = pod.pointer("/metadata/creationTimestamp")?.as_str()?.parse::<Timestamp>().ok()?;
    let late = created.as_second() / 60 - minute;
    (0..=LATE_MINUTES_MAX).contains(&late).then(|| name.to_owned())
}
