//! Rules: ready-made ones by their names, and CEL with a name of its own.

use std::fmt;
use std::sync::{Arc, Once};

use super::ready::{self, Case, Ready};
use crate::core::filter::Filter;
use crate::core::model::Resource;
use crate::core::spelling::{Text, Wrong, is_dns_label, nearest, text_value};

/// A rule that selects entries.
#[derive(Clone, Debug)]
pub enum Rule {
    /// One that decklog has.
    Ready(&'static Ready),
    /// A name, and an expression over the keys of an entry; and whether decklog's log says that it takes too much for one.
    Cel(String, Filter, Arc<Once>),
}

impl Rule {
    /// Returns its name, which is the cause in the key of an incident.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Ready(ready) => ready.name,
            Self::Cel(name, ..) => name,
        }
    }

    /// Returns the cause for people.
    #[must_use]
    pub fn title(&self) -> &str {
        match self {
            Self::Ready(ready) => ready.title,
            Self::Cel(name, ..) => name,
        }
    }

    /// Reports whether it selects an entry. An expression that has no answer for it does not.
    pub(super) fn selects(&self, case: &Case<'_>) -> bool {
        match self {
            Self::Ready(ready) => (ready.selects)(case),
            Self::Cel(name, filter, said) => filter.selects(case.line).unwrap_or_else(|error| {
                said.call_once(|| {
                    tracing::warn!(
                        rule = name,
                        seq = case.entry.seq,
                        "a rule of `notify` takes too much for this entry, and perhaps for others, which it does not select: {error}"
                    );
                });
                false
            }),
        }
    }
}

/// Something without which a ready-made rule selects nothing.
#[derive(Clone, Copy, Debug)]
pub enum Needs {
    /// One of these resources.
    Resources(&'static [Needed]),
    /// Who asked for a change.
    AuditLog,
}

/// A resource of Kubernetes.
#[derive(Clone, Copy, Debug)]
pub struct Needed {
    group: &'static str,
    kind: &'static str,
    singular: &'static str,
    /// Its name.
    pub plural: &'static str,
    short: &'static str,
    is_namespaced: bool,
}

impl Needed {
    const fn of(group: &'static str, kind: &'static str, (singular, plural): (&'static str, &'static str)) -> Self {
        Self { group, kind, singular, plural, short: "", is_namespaced: true }
    }

    /// Returns it as a cluster serves it.
    #[must_use]
    pub fn resource(&self) -> Resource {
        Resource {
            group: self.group.to_owned(),
            version: "v1".to_owned(),
            kind: self.kind.to_owned(),
            plural: self.plural.to_owned(),
            singular: self.singular.to_owned(),
            short_names: Some(self.short.to_owned()).filter(|name| !name.is_empty()).into_iter().collect(),
            namespaced: self.is_namespaced,
        }
    }
}

const RBAC: &str = "rbac.authorization.k8s.io";

static ROLES: [Needed; 4] = [
    Needed::of(RBAC, "Role", ("role", "roles")),
    Needed { is_namespaced: false, ..Needed::of(RBAC, "ClusterRole", ("clusterrole", "clusterroles")) },
    Needed::of(RBAC, "RoleBinding", ("rolebinding", "rolebindings")),
    Needed {
        is_namespaced: false,
        ..Needed::of(RBAC, "ClusterRoleBinding", ("clusterrolebinding", "clusterrolebindings"))
    },
];
static SECRETS: [Needed; 1] = [Needed::of("", "Secret", ("secret", "secrets"))];
static PODS: [Needed; 1] = [Needed { short: "po", ..Needed::of("", "Pod", ("pod", "pods")) }];

impl Rule {
    /// Returns something without which it selects nothing, where that is known.
    #[must_use]
    pub fn needs(&self) -> Option<Needs> {
        let Self::Ready(ready) = self else { return None };
        match ready.name {
            "rbac-widened" => Some(Needs::Resources(&ROLES)),
            "secret-rotated" => Some(Needs::Resources(&SECRETS)),
            "crash-loop" => Some(Needs::Resources(&PODS)),
            ready::DELETED_BY_A_PERSON => Some(Needs::AuditLog),
            _ => None,
        }
    }
}

/// Rules are equal that are written alike.
impl PartialEq for Rule {
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }
}

impl Eq for Rule {}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready(ready) => f.write_str(ready.name),
            Self::Cel(name, filter, _) => write!(f, "{name}: {filter}"),
        }
    }
}

impl Text for Rule {
    const FORMAT: &'static str = "rule";
    const EXPECTED: &'static str = "\"image-changed\", \"scaled-to-0\", \"rbac-widened\", \"gitops-edited-by-hand\", \
        \"deleted-by-a-person\", \"secret-rotated\", \"crash-loop\" or \"gap\", or a rule of your own as \"NAME: CEL\", such as \
        'pvc-deleted: type == \"DELETED\" && kind == \"PersistentVolumeClaim\"'";

    fn read(text: &str) -> Result<Self, Wrong> {
        let names = || ready::ALL.iter().map(|ready| ready.name);
        let Some((name, expression)) = text.split_once(':').filter(|(name, _)| is_dns_label(name)) else {
            if let Some(ready) = ready::ALL.iter().find(|ready| ready.name == text) {
                return Ok(Self::Ready(ready));
            }
            let wrong = Wrong::from(format!("no ready-made rule {text:?}, and no name before an expression"));
            return Err(match nearest(text, names()) {
                Some(near) => wrong.near(near),
                None => wrong,
            });
        };
        if names().any(|ready| ready == name) {
            return Err(format!("{name:?}, which is the name of a ready-made rule, before an expression").into());
        }
        Filter::read(expression.trim()).map(|filter| Self::Cel(name.to_owned(), filter, Arc::new(Once::new())))
    }
}

text_value!(Rule);
