//! Names that the journal knows, for the word that somebody is typing.

use serde::{Deserialize, Serialize};

use crate::core::model::Seq;
use crate::core::wire::{Entry, authors};
use crate::journal::Reader;
use crate::query::render::names::Spellings;
use crate::query::render::path::spelled;
use crate::query::render::{Failure, object};
use crate::query::select::unmatched::{below, fields, users};
use crate::query::{Log, Put, Question};

/// Number of the newest entries in which names are sought.
const LOOKED_AT: usize = 1000;

/// Largest size of these entries, in bytes.
const LOOKED_AT_BYTES: usize = 16 << 20;

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
    /// Names of the managers that wrote the newest entries, and of the users who sent them.
    Managers,
    /// Paths of the fields that the newest entries changed, or that an object has, KIND/NAME: JSON pointers where what is typed
    /// begins with a slash, else kubectl's spelling, or the names of fields alone.
    Fields { object: Option<String>, namespaces: Vec<String>, start: String },
}

impl Question for Names {
    const NAME: &'static str = "names";
    type Item = String;

    fn answer(self, log: &Log<'_>, put: &mut Put<'_, String>) -> Result<(), Failure> {
        let mut reader = log.open()?;
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
            Self::Managers => {
                let of = |line: &[u8]| {
                    let Ok(entry) = Entry::parse(line) else { return Vec::new() };
                    let managers = authors(&entry).into_iter().map(|author| author.manager);
                    let actor = entry.actor();
                    managers.chain(actor.iter().flat_map(users).map(str::to_owned)).collect()
                };
                newest(&mut reader, of)?
            }
            Self::Fields { object: None, start, .. } => spellings_of(&newest(&mut reader, fields)?, &start),
            Self::Fields { object: Some(text), namespaces, start } => {
                spellings_of(&fields_of(&mut reader, &text, &namespaces)?, &start)
            }
        };
        names.sort();
        names.dedup();
        names.into_iter().try_for_each(put)
    }
}

/// Returns the names that the newest entries have.
fn newest(reader: &mut Reader, names_of: impl Fn(&[u8]) -> Vec<String>) -> Result<Vec<String>, Failure> {
    let begin = Seq(reader.head()?.0.saturating_sub(LOOKED_AT as u64));
    let entries = reader.entries_after(begin, LOOKED_AT, LOOKED_AT_BYTES)?;
    Ok(entries.iter().flat_map(|stored| names_of(&stored.line)).collect())
}

/// Returns the pointers of the fields that an object has, as far as the log has it.
fn fields_of(reader: &mut Reader, text: &str, namespaces: &[String]) -> Result<Vec<String>, Failure> {
    let Ok(rows) = object::find(reader, "blame", text, namespaces) else { return Ok(Vec::new()) };
    let mut pointers = Vec::new();
    for row in rows {
        if let Some(stored) = reader.entry_at(&row, Seq(u64::MAX))? {
            pointers.extend(object::parse(&stored)?.object.map(|object| below(object, "")).unwrap_or_default());
        }
    }
    Ok(pointers)
}

/// Returns the spellings of these fields, and of those that hold them.
fn spellings_of(pointers: &[String], start: &str) -> Vec<String> {
    let upto = |pointer: &String| -> Vec<String> {
        let ends = pointer.char_indices().skip(1).filter(|(_, c)| *c == '/').map(|(at, _)| at).chain([pointer.len()]);
        ends.map(|end| pointer[..end].to_owned()).collect()
    };
    let all = pointers.iter().flat_map(upto);
    match start.chars().next() {
        Some('/') => all.collect(),
        None | Some('.') => all.map(|pointer| spelled(&pointer)).collect(),
        Some(_) => all.filter_map(|pointer| pointer.rsplit('/').next().map(str::to_owned)).collect(),
    }
}
