//! Blame: the manager that set each field of an object last. It walks back through the history until every field has one.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::clock::Clock;
use super::object::{self, Moment};
use super::tree::{Node, Step as Way, pointer};
use super::{Failure, who};
use crate::core::k8s::audited::Actor;
use crate::core::k8s::managed_fields::{ManagedFields, Manager};
use crate::core::model::{EntryType, Seq};
use crate::core::wire::{Change, Entry, Unnamed, unnamed};
use crate::journal::{ObjectRow, Reader, Step};
use crate::query::moment::{Known, Span};

/// Time at which a field was set, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Set {
    /// Then.
    At,
    /// Then or before: it was found on a list, or the log does not reach back far enough.
    By,
    /// Later: it is among the changes that the log does not record.
    After,
}

impl Set {
    pub(crate) const fn mark(self) -> &'static str {
        match self {
            Self::At => " ",
            Self::By => "≤",
            Self::After => "≥",
        }
    }
}

/// A manager that may have set a field.
pub(crate) struct Origin {
    /// The entry, where the log has it.
    pub(crate) seq: Option<Seq>,
    /// The time as the entry has it; empty if nothing is known.
    pub(crate) time: String,
    pub(crate) set: Set,
    /// The entry is of an object that came to be.
    pub(crate) came: bool,
    pub(crate) changed: Vec<Manager>,
    /// The reason why a change names no manager.
    pub(crate) unnamed: Option<Unnamed>,
    pub(crate) books: ManagedFields,
}

/// A field and who set it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Field {
    pub(crate) path: String,
    pub(crate) value: Box<RawValue>,
    /// The entry; absent where the log does not have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) seq: Option<u64>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) time: String,
    pub(crate) set: Set,
    pub(crate) managers: Vec<Manager>,
    /// Sender of the request, as the API server's audit log has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) actor: Option<Actor>,
    /// The reason why there are no managers, in a few words, where the entry says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) unnamed: Option<String>,
}

pub(crate) struct Found {
    pub(crate) object: String,
    pub(crate) uid: String,
    pub(crate) fields: Vec<Field>,
    pub(crate) gaps: usize,
}

/// Goes back through the history, until somebody is known for every field, and over so many entries at most.
pub(crate) fn trace(
    reader: &mut Reader,
    row: &ObjectRow,
    place: Option<Moment>,
    most: usize,
    clock: &Clock,
) -> Result<Found, Failure> {
    let upto = place.map_or(Seq(u64::MAX), |place| place.seq);
    let first = reader.step(row, upto)?;
    let unrecorded = if place.is_none() { reader.unrecorded(row)? } else { None };
    let newest = first.as_ref().map_or(Ok(None), |step| reader.entry_of(step))?;
    let newest_entry = newest.as_ref().map(object::parse).transpose()?;
    let (text, uid) = match (&unrecorded, &newest_entry) {
        (Some((object, _)), _) => (String::from_utf8_lossy(object).into_owned(), row.uid.clone()),
        (None, Some(entry)) if entry.op == EntryType::Deleted => {
            let before = first.as_ref().map_or(Ok(None), |step| reader.previous(step))?;
            let before = before.map_or_else(String::new, |step| format!("; --at {} shows who had set what", step.seq));
            return Err(Failure::no(format!(
                "{} was deleted at {} (entry {}){before}",
                row.spell(),
                object::time_of(entry, clock),
                entry.seq,
            )));
        }
        (None, Some(entry)) => {
            let object = entry.object.ok_or_else(|| object::damaged(entry.seq(), &"it has no object"))?.get();
            (object.to_owned(), entry.uid.as_deref().unwrap_or_default().to_owned())
        }
        (None, None) => return Err(Failure::no(object::not_yet(reader, row, place, clock)?)),
    };
    let mut tree = Node::parse(text.as_bytes()).map_err(damaged(row.last))?;
    tree.without(&[&["metadata", "managedFields"]]);
    let mut history = History { tree, origins: Vec::new(), oldest: Seq(u64::MAX) };
    let now = newest_entry.as_ref().map_or_else(String::new, |entry| entry.time.to_string());
    if unrecorded.is_some() {
        let last = newest_entry.as_ref().filter(|entry| entry.op != EntryType::Deleted);
        history.unrecorded(row, &text, &now, last)?;
    }
    history.back(reader, &uid, first, most)?;
    let History { mut tree, mut origins, oldest } = history;
    if !tree.is_credited() {
        // Damage or retention cut the history short.
        origins.push(Origin::unknown(now, Set::By, &text));
        tree.credit(origins.len() - 1);
    }
    tree.settle();
    let gaps = reader.gaps(row.resource_id, Some(&row.namespace), oldest)?;
    let gaps = gaps.iter().filter(|gap| gap.seq <= upto && object::concerns(gap, row)).count();
    let fields = tree.leaves().iter().map(|leaf| field(&mut origins, leaf.node, &leaf.path)).collect::<Result<_, _>>();
    Ok(Found { uid, fields: fields.map_err(damaged(row.last))?, gaps, object: text })
}

fn damaged(seq: Seq) -> impl Fn(serde_json::Error) -> Failure {
    move |error| object::damaged(seq, &error)
}

impl Origin {
    /// An origin of which the log has no entry.
    fn unknown(time: String, set: Set, object: &str) -> Self {
        let books = ManagedFields::of(object.as_bytes());
        Self { seq: None, time, set, came: false, changed: Vec::new(), unnamed: None, books }
    }
}

/// The way back through the history of an object.
struct History<'t> {
    tree: Node<'t>,
    origins: Vec<Origin>,
    /// The oldest entry that was looked at.
    oldest: Seq,
}

impl History<'_> {
    /// Credits what changed since the newest entry and is not recorded.
    fn unrecorded(&mut self, row: &ObjectRow, text: &str, now: &str, last: Option<&Entry<'_>>) -> Result<(), Failure> {
        let set = if now.is_empty() { Set::By } else { Set::After };
        self.origins.push(Origin::unknown(now.to_owned(), set, text));
        match last.and_then(|entry| entry.object) {
            Some(before) => {
                let change = crate::core::change::compare(before.get().as_bytes(), text.as_bytes(), &[], &[])
                    .map_err(|error| object::damaged(row.last, &error))?;
                let change: Change<'_> = serde_json::from_str(&change.json).map_err(damaged(row.last))?;
                self.tree.revert_to(&change.patch, 0)
            }
            None => self.tree.credit(0),
        };
        Ok(())
    }

    /// Goes back from this entry until every field is credited, over so many entries at most.
    fn back(&mut self, reader: &mut Reader, uid: &str, first: Option<Step>, mut most: usize) -> Result<(), Failure> {
        let mut next = first;
        while let Some(step) = next.filter(|_| most > 0 && !self.tree.is_credited()) {
            most -= 1;
            next = reader.previous(&step)?;
            let Some(stored) = reader.entry_of(&step)? else { break };
            let entry = object::parse(&stored)?;
            if entry.uid.as_deref() != Some(uid) {
                break;
            }
            self.oldest = step.seq;
            self.credit(&step, &entry)?;
        }
        Ok(())
    }

    fn credit(&mut self, step: &Step, entry: &Entry<'_>) -> Result<(), Failure> {
        let change = Change::of(entry).map_err(damaged(step.seq))?.unwrap_or_default();
        let at = self.origins.len();
        // A truncated one shows what was so by then, and not what it changed.
        let credited = if entry.op == EntryType::Modified && step.kept {
            self.tree.revert_to(&change.patch, at)
        } else {
            self.tree.credit(at)
        };
        let object = entry.object.map_or("{}", |object| object.get());
        if credited {
            // After damage the whole object is recorded as new, whatever of it changed.
            let whole = change.patch.iter().any(|op| op.path.is_empty());
            let evidence = entry.evidence.as_deref();
            let watched = evidence == Some("watched") && !whole;
            // Of one that was found by a comparison it is not known when each field was set, nor whether by one write.
            let (span, is_one) = (Span::of(entry), watched || evidence == Some("recovered") && !whole);
            let is_dated = is_one && step.kept && span.is != Known::Between;
            let time = match span.is {
                Known::Between if is_one => format!("{:.6}", span.latest),
                Known::Stamped if is_one => entry.happened.as_deref().unwrap_or(&entry.time).to_owned(),
                Known::Exactly | Known::Stamped | Known::Between => entry.time.to_string(),
            };
            self.origins.push(Origin {
                seq: Some(step.seq),
                time,
                set: if is_dated { Set::At } else { Set::By },
                came: entry.op == EntryType::Added && watched,
                changed: change.managers,
                unnamed: if entry.op == EntryType::Modified { unnamed(entry) } else { None },
                books: ManagedFields::of(object.as_bytes()),
            });
        }
        if entry.op == EntryType::Modified && step.previous == Seq(0) {
            // It was found on a first list that is not emitted.
            self.tree.credit(self.origins.len());
            self.origins.push(Origin::unknown(entry.time.to_string(), Set::By, object));
        }
        Ok(())
    }
}

fn field(origins: &mut [Origin], node: &Node<'_>, path: &[Way<'_, '_>]) -> Result<Field, serde_json::Error> {
    let last = origins.len() - 1;
    let origin = &mut origins[node.origin.unwrap_or(last)];
    let mut time = origin.time.clone();
    let managers = match &origin.changed[..] {
        // One version is one write.
        [one] if origin.set == Set::At => vec![one.clone()],
        changed => {
            let mut owners = who::owners(&mut origin.books, path);
            let wrote = changed.iter().filter(|changed| owners.iter().any(|owner| owner.is(changed)));
            let wrote: Vec<Manager> = wrote.cloned().collect();
            // Whoever owns a field of an object that came to be has made it.
            if origin.came {
                owners.iter_mut().for_each(|owner| owner.by = None);
            }
            if wrote.is_empty() { owners } else { wrote }
        }
    };
    if origin.set == Set::By
        && let Some(own) = managers.iter().filter_map(|manager| manager.time.clone()).max()
        && (own < time || time.is_empty())
    {
        // Whoever owns it has written nothing since.
        time = own;
    }
    let unnamed = origin.unnamed.filter(|_| managers.is_empty()).map(|why| why.words().to_owned());
    Ok(Field {
        path: pointer(path),
        value: RawValue::from_string(node.json())?,
        seq: origin.seq.map(|seq| seq.0),
        time,
        set: origin.set,
        managers,
        actor: None,
        unnamed,
    })
}
