//! Names that the journal knows, for the word that somebody is typing.

use serde::{Deserialize, Serialize};

use crate::query::render::names::Spellings;
use crate::query::render::{Failure, object};
use crate::query::{Log, Put, Question};

/// Asks for names.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum Names {
    /// Names of all namespaces.
    Namespaces,
    /// Names of all sinks.
    Sinks,
    /// Every spelling of the resources that were ever watched.
    Kinds,
    /// Names of the objects of a kind that begin so, in these namespaces or in all.
    Objects { kind: String, namespaces: Vec<String>, start: String },
}

impl Question for Names {
    const NAME: &'static str = "names";
    type Item = String;

    fn answer(self, log: &Log<'_>, put: &mut Put<'_, String>) -> Result<(), Failure> {
        let reader = log.open()?;
        let mut names: Vec<String> = match self {
            Self::Namespaces => reader.namespaces()?.into_iter().collect(),
            Self::Sinks => reader.sinks()?.into_iter().map(|sink| sink.name).collect(),
            Self::Kinds => {
                let spellings = Spellings::load(&reader)?;
                let of = |resource: &crate::core::model::Resource| {
                    let full = [resource.plural.clone(), resource.full_name()];
                    resource.short_names.iter().cloned().chain(full).collect::<Vec<_>>()
                };
                spellings.watched().flat_map(of).collect()
            }
            Self::Objects { kind, namespaces, start } => {
                let Ok(named) = Spellings::load(&reader)?.read(&kind) else { return Ok(()) };
                let mut names = Vec::new();
                for (id, _) in &named.resources {
                    let rows = object::of_resource(&reader, *id, &namespaces, Some(&format!("{start}*")))?;
                    names.extend(rows.into_iter().map(|row| row.name));
                }
                names
            }
        };
        names.sort();
        names.dedup();
        names.into_iter().try_for_each(put)
    }
}
