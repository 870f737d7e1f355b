//! Rules: ready-made ones by their names, and CEL with a name of its own.

use std::fmt;

use super::ready::{self, Case, Ready};
use crate::core::filter::Filter;
use crate::core::spelling::{Text, Wrong, is_dns_label, nearest, text_value};

/// A rule that selects entries.
#[derive(Clone, Debug)]
pub enum Rule {
    /// One that decklog has.
    Ready(&'static Ready),
    /// A name, and an expression over the keys of an entry.
    Cel(String, Filter),
}

impl Rule {
    /// Returns its name, which is the cause in the key of an incident.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Ready(ready) => ready.name,
            Self::Cel(name, _) => name,
        }
    }

    /// Returns the cause for people.
    #[must_use]
    pub fn title(&self) -> &str {
        match self {
            Self::Ready(ready) => ready.title,
            Self::Cel(name, _) => name,
        }
    }

    /// Reports whether it selects an entry. An expression that has no answer for it does not.
    pub(super) fn selects(&self, case: &Case<'_>) -> bool {
        match self {
            Self::Ready(ready) => (ready.selects)(case),
            Self::Cel(name, filter) => filter.selects(case.line).unwrap_or_else(|error| {
                tracing::debug!(
                    rule = name,
                    "`notify` cannot be evaluated for an entry, which is passed over: {error}"
                );
                false
            }),
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
            Self::Cel(name, filter) => write!(f, "{name}: {filter}"),
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
        Filter::read(expression.trim()).map(|filter| Self::Cel(name.to_owned(), filter))
    }
}

text_value!(Rule);
