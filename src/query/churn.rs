//! Write statistics: who writes most, which writes changed nothing that matters, and which fields two managers fight over.
//!
//! One pass over entries in their order, in bounded memory: of objects, managers and fields so many are remembered,
//! and where there are more of them the ones that were written least are dropped. Only writes that the API server
//! reported on a watch count; what a first list or a gap brought says nothing about how often it was written.
//!
//! Writes of a storage rewrite are counted apart: nobody is to blame for them.
//!
//! # Decision: churn is one pass over the log
//!
//! Context: Counting writes must not cost the writer anything.
//! Decision: The command and the metrics read entries only. Names are counted in bounded maps that drop the lighter half. A
//! fight is a field that returned more than once to a value which another manager had changed.
//! Cost: With very many names counts are lower bounds.

mod class;
mod field;
mod held;
mod meter;
mod read;
mod report;
mod senders;
mod tally;
#[cfg(test)]
pub(crate) mod tests;
mod versions;

use std::collections::BTreeMap;

use jiff::Timestamp;

pub use class::Class;
pub use meter::Meter;
pub use report::{Fight, FightSide, OfClass, Report, Requests, RequestsOf, Row, VersionsOf, Written};
pub use senders::{SenderRow, Senders};
pub use versions::Versions;

use crate::core::model::EntryType;
use crate::core::wire::{self, Change, Entry, EntryError};
use crate::query::moment::Span;
use crate::query::rewrites::{self, Rewrite, Sizes};
pub(crate) use class::Classes;
use field::{Field, FieldValue, Write};
use held::Held;
pub(crate) use read::writer;
use tally::{Counted, Tally};

/// Number of objects, fields and managers that `decklog churn` remembers.
const ROOM: usize = 20_000;
/// Number of values of one change that are looked at.
const MOST_FIELDS: usize = 64;
/// A field whose pointer is longer is not followed, and a name is cut: memory does not depend on what objects hold.
const LONGEST: usize = 512;
/// Stands between the parts of a name. No name of Kubernetes and no JSON pointer of one can hold it.
const APART: char = '\0';

/// Writes, and the bytes of the objects that they brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Number of writes.
    pub writes: u64,
    /// Bytes of the objects, as JSON.
    pub bytes: u64,
}

impl Count {
    fn add(&mut self, bytes: u64) {
        self.writes += 1;
        self.bytes += bytes;
    }
}

/// Writes under one name.
#[derive(Debug, Default)]
struct Writes {
    all: Count,
    no_op: Count,
    last: u64,
}

impl Counted for Writes {
    fn weight(&self) -> u64 {
        self.all.writes
    }

    fn last(&self) -> u64 {
        self.last
    }
}

impl Writes {
    fn add(&mut self, seq: u64, bytes: u64, no_op: bool) {
        self.last = seq;
        self.all.add(bytes);
        if no_op {
            self.no_op.add(bytes);
        }
    }
}

/// Writes to one resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OfResource {
    /// By kind of write.
    pub classes: BTreeMap<Class, Count>,
    /// Times that one manager gave a field back a value which another had changed.
    pub reverts: u64,
}

/// Name for all resources beyond the limit. No resource can have it.
pub const OTHERS: &str = "(others)";

/// The pass over the log.
#[derive(Debug)]
pub struct Churn {
    classes: Classes,
    resources: BTreeMap<String, OfResource>,
    /// Number of resources with a name of their own.
    most_resources: usize,
    objects: Tally<Writes>,
    managers: Tally<Writes>,
    fields: Tally<Field>,
    entries: u64,
    listed: u64,
    inferred: u64,
    gaps: u64,
    first: Option<u64>,
    last: u64,
    /// Writes that may be part of a storage rewrite; none where each counts at once.
    held: Option<Held>,
    rewrites: Vec<Rewrite>,
}

impl Default for Churn {
    fn default() -> Self {
        Self { held: Some(Held::default()), ..Self::with_room(ROOM) }
    }
}

impl Churn {
    /// A pass that remembers at most so many objects, managers and fields, and counts each write at once.
    #[must_use]
    pub fn with_room(room: usize) -> Self {
        Self {
            classes: Classes::default(),
            resources: BTreeMap::new(),
            most_resources: room,
            objects: Tally::new(room),
            managers: Tally::new(room),
            fields: Tally::new(room),
            entries: 0,
            listed: 0,
            inferred: 0,
            gaps: 0,
            first: None,
            last: 0,
            held: None,
            rewrites: Vec::new(),
        }
    }

    /// Recognizes also storage rewrites of all objects of a resource that has few.
    #[must_use]
    pub(crate) fn among(self, sizes: Sizes) -> Self {
        Self { held: Some(Held::among(sizes)), ..self }
    }

    /// Limits the names: the first `most_resources` resources keep theirs, and writes to others go under [`OTHERS`].
    #[must_use]
    pub fn naming(self, most_resources: usize) -> Self {
        Self { most_resources, ..self }
    }

    /// Takes the next entry.
    ///
    /// # Errors
    /// Where the line is none.
    pub fn take(&mut self, line: &[u8]) -> Result<(), EntryError> {
        let (head, object) = wire::apart(line);
        let entry = Entry::parse(&head)?;
        self.entries += 1;
        self.first.get_or_insert(entry.seq);
        self.last = entry.seq;
        if !entry.op.is_change() {
            self.gaps += u64::from(entry.op == EntryType::Gap);
            return Ok(());
        }
        match entry.evidence.as_deref() {
            Some("listed") => self.listed += 1,
            Some("inferred") => self.inferred += 1,
            Some(_) | None => self.write(&entry, object),
        }
        Ok(())
    }

    fn write(&mut self, entry: &Entry<'_>, body: &[u8]) {
        let resource = entry.full_resource();
        let bytes = body.len() as u64;
        let time: Option<Timestamp> = entry.time.parse().ok();
        let change = Change::of(entry).ok().flatten().unwrap_or_default();
        let (class, manager) = match entry.op {
            EntryType::Added => (Class::Created, read::creator(entry, body)),
            EntryType::Modified => (self.classes.of(&resource, &change, time), writer(&change)),
            // Nobody is named in the books for a deletion.
            EntryType::Deleted | EntryType::Gap | EntryType::Actor => (Class::Deleted, None),
        };
        let namespace = short(entry.namespace.as_deref().unwrap_or_default());
        let name = short(entry.name.as_deref().unwrap_or_default());
        let object = format!("{resource}{APART}{namespace}{APART}{name}");
        let manager = manager.as_deref().map(short);
        let one = held::One { seq: entry.seq, bytes, class, manager: manager.map(str::to_owned), object };
        if class.is_bookkeeping() && self.held.is_some() {
            let at = Span::of(&entry.header).latest.as_microsecond();
            let write = rewrites::Write { seq: entry.seq, time: at, resource: &resource, namespace, name, by: manager };
            self.hold(one, &write);
            return;
        }
        self.count(&one);
        let object = one.object;
        if matches!(class, Class::Changed | Class::Status | Class::TimeStamps) {
            let mut reverts = 0;
            let followed = read::meant(&change).filter(|operation| operation.path.len() <= LONGEST);
            for operation in followed.take(MOST_FIELDS) {
                let field = self.fields.of(&format!("{object}{APART}{}", operation.path));
                let (was, value) = (
                    operation.was.map(serde_json::value::RawValue::get),
                    operation.value.map(serde_json::value::RawValue::get),
                );
                let stamp = [was, value].iter().all(|json| json.is_some_and(|json| class::is_stamp(json, time)));
                let (seq, was, value) = (entry.seq, FieldValue::of(was), FieldValue::of(value));
                let back = field.write(Write { seq, time, manager, was, value, stamp });
                reverts += u64::from(back);
            }
            self.of_resource(&resource).reverts += reverts;
        }
    }

    /// Counts a write of the kind that it has.
    fn count(&mut self, one: &held::One) {
        let held::One { seq, bytes, class, manager, object } = one;
        if *class != Class::StorageRewrite {
            self.objects.of(object).add(*seq, *bytes, class.is_no_op());
        }
        if !matches!(class, Class::Deleted | Class::StorageRewrite) {
            self.managers.of(manager.as_deref().unwrap_or_default()).add(*seq, *bytes, class.is_no_op());
        }
        let resource = object.split(APART).next().unwrap_or_default();
        self.of_resource(resource).classes.entry(*class).or_default().add(*bytes);
    }

    fn of_resource(&mut self, resource: &str) -> &mut OfResource {
        let known = self.resources.len() < self.most_resources || self.resources.contains_key(resource);
        self.resources.entry(if known { resource } else { OTHERS }.to_owned()).or_default()
    }

    /// Returns the writes to each resource, by its name (`deployments.apps`).
    #[must_use]
    pub const fn resources(&self) -> &BTreeMap<String, OfResource> {
        &self.resources
    }
}

/// At most so much of a name as is remembered. Those of Kubernetes are far shorter.
fn short(name: &str) -> &str {
    let end = name.floor_char_boundary(LONGEST.min(name.len()));
    &name[..end]
}
