//! What is behind a write, in the journal: the owner that a value was taken from, and the object that drives a tool.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value as Json;
use serde_json::value::RawValue;

use super::{Explained, Value, Via, is_on_purpose};
use crate::core::model::{EntryType, Seq};
use crate::core::wire::{Change, Entry, authors};
use crate::journal::{ObjectRow, Reader, Step, StoredEntry};
use crate::query::moment::Span;
use crate::query::ownership::{OwnerReference, owners, parent};
use crate::query::provenance::{
    Certainty, Claim, Driver, Ends, Known, Provenance, Tool, Version, Write, bounds, claim, lists, runs, settle,
};
use crate::query::render::blame::{Field, Found, Set, trace};
use crate::query::render::clock::Clock;
use crate::query::render::names::unwatched;
use crate::query::render::object::{Moment, actor_of, damaged, happened_by, parse};
use crate::query::render::{Exit, Failure};

/// Number of owners that a chain goes up.
const OWNERS_MAX: usize = 4;
/// Number of versions of a driving object that are read in each direction.
const VERSIONS_MAX: usize = 1_000;
/// Time before a write whose state has every run that can have made it.
const BEFORE_MIN: SignedDuration = SignedDuration::from_secs(5);
/// Time after a write by which every run that made it is in the log.
const AFTER_MIN: SignedDuration = SignedDuration::from_mins(1);
const RESTARTED: &str = "/annotations/kubectl.kubernetes.io~1restartedAt";
const CAUSE: &str = "/metadata/annotations/kubernetes.io~1change-cause";

/// Object, entry, managers and whether the number of replicas is asked for: what one provenance is of.
type Asked = (String, Option<u64>, Set, Vec<String>, bool);

/// Returns where a change comes from, as far as anybody behind its managers is known: nothing of a change of the status alone, and
/// nothing where the chain ends with the program.
///
/// # Errors
/// Where the journal cannot be read or the entry is damaged.
pub(crate) fn origin(
    reader: &mut Reader,
    clock: &Clock,
    row: &ObjectRow,
    stored: &StoredEntry,
) -> Result<Option<Provenance>, Failure> {
    let entry = parse(stored)?;
    let path = match entry.op {
        EntryType::Added => Some("/spec".to_owned()),
        EntryType::Modified => {
            let change = Change::of(&entry).map_err(|error| damaged(stored.seq, &error))?.unwrap_or_default();
            change.patch.iter().map(|op| op.path.to_string()).find(|path| is_on_purpose(path))
        }
        EntryType::Deleted | EntryType::Gap | EntryType::Actor => None,
    };
    let Some(path) = path else { return Ok(None) };
    let is_seen = matches!(entry.evidence.as_deref(), Some("watched" | "recovered"));
    let field = Field {
        path,
        value: RawValue::NULL.to_owned(),
        seq: Some(stored.seq.0),
        time: entry.time.to_string(),
        set: if is_seen { Set::At } else { Set::By },
        managers: authors(&entry),
        actor: None,
        unnamed: None,
    };
    let found = Behind::new(reader, clock).provenance(row, &field)?;
    Ok(Some(found).filter(|found| !found.candidates.is_empty()))
}

/// Looks behind writes, and remembers what it found.
pub(in crate::query::questions) struct Behind<'l> {
    pub(in crate::query::questions) reader: &'l mut Reader,
    clock: &'l Clock,
    settled: HashMap<Asked, Provenance>,
    traced: HashMap<(String, Seq), Result<Found, Failure>>,
}

/// The next step of a chain.
enum Up {
    /// There is none.
    Stays,
    Ends(Ends),
    To(Box<(ObjectRow, Field)>),
}

impl<'l> Behind<'l> {
    pub(in crate::query::questions) fn new(reader: &'l mut Reader, clock: &'l Clock) -> Self {
        Self { reader, clock, settled: HashMap::new(), traced: HashMap::new() }
    }

    /// Explains a field of an object.
    pub(super) fn explain(&mut self, row: &ObjectRow, field: Field) -> Result<Explained, Failure> {
        let (seq, time, set) = (field.seq, field.time.clone(), field.set);
        let value = Value { path: field.path.clone(), value: field.value.clone() };
        let (mut row, mut field) = (row.clone(), field);
        let mut via = Vec::new();
        let mut ends = None;
        while via.len() < OWNERS_MAX && ends.is_none() {
            match self.up(&row, &field)? {
                Up::Stays => break,
                Up::Ends(why) => ends = Some(why),
                Up::To(next) => {
                    (row, field) = *next;
                    via.push(Via {
                        kind: row.resource.kind.clone(),
                        namespace: row.namespace.clone(),
                        name: row.name.clone(),
                        seq: field.seq,
                    });
                }
            }
        }
        let provenance = match ends {
            Some(ends) => Provenance::none(ends),
            None => self.provenance(&row, &field)?,
        };
        let notes = self.notes(&field)?;
        Ok(Explained {
            fields: vec![value],
            seq,
            time,
            set,
            via,
            managers: field.managers,
            actor: None,
            notes,
            provenance,
        })
    }

    /// Finds the owner from whose template a field of a new object was taken.
    fn up(&mut self, row: &ObjectRow, field: &Field) -> Result<Up, Failure> {
        let Some(seq) = field.seq.filter(|_| field.set == Set::At) else { return Ok(Up::Stays) };
        let Some(path) = in_template(&row.resource.kind, &field.path) else { return Ok(Up::Stays) };
        let Some(stored) = self.reader.entry(Seq(seq))? else { return Ok(Up::Stays) };
        let entry = parse(&stored)?;
        let made = entry.object.filter(|_| entry.op == EntryType::Added);
        let Some(owner) = made.and_then(|object| parent(owners(object.get().as_bytes()))) else {
            return Ok(Up::Stays);
        };
        let called = format!("{}/{}", owner.kind, owner.name);
        let ends = |text: String| Ok(Up::Ends(Ends::at("owner", text)));
        let Some(above) = self.row_of(&owner, &row.namespace)? else {
            return ends(format!("the value is from the template of {called}, of which the log has nothing"));
        };
        let place = Moment { seq: Seq(seq), time: Some(Span::of(&entry).latest) };
        let placed = happened_by(self.reader, &above, place)?;
        if placed.possible != placed.certain.seq {
            return ends(format!("the log does not know which version of {called} it was made from"));
        }
        let found = match self.traced.entry((above.uid.clone(), placed.certain.seq)) {
            Slot::Occupied(known) => known.into_mut(),
            Slot::Vacant(free) => free.insert(trace(self.reader, &above, Some(placed.certain), usize::MAX, self.clock)),
        };
        let found = match found {
            Ok(found) if found.uid == owner.uid => found,
            Ok(_) => return ends(format!("the log has another {called} than the one that made it")),
            Err(failure) if failure.exit() == Exit::No => return ends(failure.text().to_owned()),
            Err(failure) => return Err(failure.clone()),
        };
        Ok(match found.fields.iter().find(|above| above.path == path) {
            // The controller that made it added this.
            None => Up::Stays,
            Some(same) if same.value.get() == field.value.get() => Up::To(Box::new((above, same.clone()))),
            Some(_) => Up::Ends(Ends::at("owner", format!("{called} had another value there at that time"))),
        })
    }

    fn row_of(&mut self, owner: &OwnerReference, namespace: &str) -> Result<Option<ObjectRow>, Failure> {
        for (id, resource) in self.reader.resources()? {
            if resource.kind == owner.kind && resource.group == owner.group() {
                let namespace = resource.namespaced.then_some(namespace);
                let rows = self.reader.objects(id, namespace, Some(&owner.name))?;
                if let Some(row) = rows.into_iter().find(|row| row.name == owner.name) {
                    return Ok(Some(row));
                }
            }
        }
        Ok(None)
    }

    /// What the object says of the reason of a write.
    fn notes(&mut self, field: &Field) -> Result<Vec<String>, Failure> {
        let mut notes = Vec::new();
        if field.path.ends_with(RESTARTED) {
            notes.push("a rollout restart".to_owned());
        }
        let stored = field.seq.map_or(Ok(None), |seq| self.reader.entry(Seq(seq)))?;
        if let Some(stored) = stored.filter(|_| field.set == Set::At) {
            let entry = parse(&stored)?;
            let touches = |change: Change<'_>| change.patch.iter().any(|op| op.path == CAUSE);
            let is_new = entry.op == EntryType::Added || Change::of(&entry).ok().flatten().is_some_and(touches);
            let cause = json_of(&entry).pointer(CAUSE).and_then(Json::as_str).map(str::to_owned);
            notes.extend(cause.filter(|_| is_new).map(|cause| format!("change-cause: {cause}")));
        }
        Ok(notes)
    }

    /// Finds the object that drives the tool behind a write of a field, and its run.
    ///
    /// # Errors
    /// Where the journal cannot be read.
    pub(in crate::query::questions) fn provenance(
        &mut self,
        row: &ObjectRow,
        field: &Field,
    ) -> Result<Provenance, Failure> {
        let names = field.managers.iter().map(|one| format!("{one:?}")).collect();
        let asked = (row.spell(), field.seq, field.set, names, field.path == "/spec/replicas");
        if let Some(known) = self.settled.get(&asked) {
            return Ok(known.clone());
        }
        let stored = match field.seq {
            Some(seq) => self.reader.entry(Seq(seq))?,
            None => self.reader.entry_at(row, Seq(u64::MAX))?,
        };
        let object = stored.as_ref().map(parse).transpose()?.map_or(Json::Null, |entry| json_of(&entry));
        let seq = field.seq.filter(|_| field.managers.is_empty() && field.set == Set::At);
        let sender = seq.map_or(Ok(None), |seq| actor_of(self.reader, Seq(seq)))?;
        let write = Write {
            group: &row.resource.group,
            kind: &row.resource.kind,
            namespace: &row.namespace,
            name: &row.name,
            path: &field.path,
            managers: &field.managers,
            unnamed: field.unnamed.as_deref(),
            sender: sender.as_ref().map(|actor| actor.sender.user.as_str()),
            time: bounds(&field.managers, field.set, &field.time),
            object: &object,
        };
        let seq = field.seq.map_or(Seq(u64::MAX), Seq);
        let found = match claim(&write) {
            Claim::Ends(ends) => Provenance::none(ends),
            Claim::Tool(Tool::Autoscaler, _) => self.autoscaler(&write, seq)?,
            Claim::Tool(tool, drivers) => self.driven(tool, &drivers, &write, seq)?,
        };
        self.settled.insert(asked, found.clone());
        Ok(found)
    }

    /// The resources in the journal that have this full name and are recorded.
    pub(in crate::query::questions) fn recorded(&mut self, name: &str) -> Result<Vec<i64>, Failure> {
        let is_recorded = self.reader.sources()?.iter().any(|source| source.resource.full_name() == name);
        let resources = self.reader.resources()?.into_iter();
        Ok(resources.filter(|(_, one)| is_recorded && one.full_name() == name).map(|(id, _)| id).collect())
    }

    fn is_recorded_now(&mut self, name: &str) -> Result<bool, Failure> {
        Ok(self.reader.sources()?.iter().any(|source| source.active && source.resource.full_name() == name))
    }

    fn driven(&mut self, tool: Tool, drivers: &[Driver], write: &Write<'_>, seq: Seq) -> Result<Provenance, Failure> {
        let ids = self.recorded(tool.resource())?;
        let named = drivers.iter().filter(|driver| !driver.has_to_list);
        let named: Vec<(String, String)> =
            named.map(|one| (one.namespace.clone().unwrap_or_default(), one.name.clone())).collect();
        let without = |ends: Ends| match named.is_empty() {
            true => Provenance::none(ends),
            false => Provenance::driven(tool, &named, ends),
        };
        if ids.is_empty() {
            return Ok(without(Ends::at("unrecorded", unwatched(tool.resource()))));
        }
        let mut known: Vec<Known> = Vec::new();
        for driver in drivers {
            let mut release = Vec::new();
            for row in self.rows_of(&ids, tool, driver)? {
                let versions = self.versions(&row, seq, write.time)?;
                if tool == Tool::Helm {
                    release.extend(versions);
                } else if !driver.has_to_list || versions.iter().any(|version| lists(&version.object, write)) {
                    let is_new = !known.iter().any(|one| (&one.namespace, &one.name) == (&row.namespace, &row.name));
                    let one = Known { runs: runs(tool, &versions), namespace: row.namespace, name: row.name };
                    known.extend(Some(one).filter(|_| is_new));
                }
            }
            if !release.is_empty() {
                let namespace = driver.namespace.clone().unwrap_or_default();
                known.push(Known { runs: runs(tool, &release), namespace, name: driver.name.clone() });
            }
        }
        if known.is_empty() {
            let names = drivers.iter().map(|one| one.name.as_str()).collect::<Vec<_>>().join(" or ");
            let lists = if named.is_empty() { " that lists the object" } else { "" };
            let elsewhere = if tool == Tool::ArgoCd { "; it may be in the cluster of Argo CD" } else { "" };
            let text = format!("the log has no {} {names}{lists}{elsewhere}", tool.kind());
            return Ok(without(Ends::at("missing", text)));
        }
        Ok(settle(tool, &known, write))
    }

    /// Finds the rows of an object that drives a tool; of a Helm release those of its Secrets.
    pub(in crate::query::questions) fn rows_of(
        &mut self,
        ids: &[i64],
        tool: Tool,
        driver: &Driver,
    ) -> Result<Vec<ObjectRow>, Failure> {
        let stem = format!("sh.helm.release.v1.{}.v", driver.name);
        let name = if tool == Tool::Helm { format!("{stem}*") } else { driver.name.clone() };
        let is = |row: &ObjectRow| match row.name.strip_prefix(&stem).filter(|_| tool == Tool::Helm) {
            Some(number) => number.bytes().all(|byte| byte.is_ascii_digit()),
            None => tool != Tool::Helm && row.name == driver.name,
        };
        let mut rows = Vec::new();
        for id in ids {
            rows.extend(self.reader.objects(*id, driver.namespace.as_deref(), Some(&name))?.into_iter().filter(is));
        }
        Ok(rows)
    }

    /// The versions of a driving object around a write: from the last that was journaled before it, to the first after it in
    /// which nothing is under way.
    fn versions(
        &mut self,
        row: &ObjectRow,
        seq: Seq,
        time: Option<(Timestamp, Timestamp)>,
    ) -> Result<Vec<Version>, Failure> {
        let mut versions = Vec::new();
        let mut step = self.reader.step(row, seq)?;
        let mut after = step.map_or(Seq(0), |step| step.seq);
        while let Some(at) = step.filter(|_| versions.len() < VERSIONS_MAX) {
            step = self.reader.previous(&at)?;
            let Some(version) = self.version(&at)? else { continue };
            let is_before = |(earliest, _): (Timestamp, _)| earliest.duration_since(version.time) > BEFORE_MIN;
            let is_first = time.is_none_or(is_before);
            versions.push(version);
            if is_first {
                break;
            }
        }
        versions.reverse();
        let Some((_, latest)) = time else { return Ok(versions) };
        let is_active = self.is_recorded_now(&row.resource.full_name())?;
        for _ in 0..VERSIONS_MAX {
            let is_after = |version: &Version| version.time.duration_since(latest) > AFTER_MIN;
            if versions.last().is_some_and(|last| is_after(last) && !is_under_way(&last.object)) {
                break;
            }
            let Some(next) = self.reader.following(row, after)? else { break };
            after = next.seq;
            versions.extend(self.version(&next)?);
        }
        // Nobody sees any more how it goes on.
        if let Some(last) = versions.last().filter(|_| !is_active) {
            versions.push(Version { object: Json::Null, ..*last });
        }
        Ok(versions)
    }

    fn version(&mut self, step: &Step) -> Result<Option<Version>, Failure> {
        let Some(stored) = self.reader.entry_of(step)? else { return Ok(None) };
        let entry = parse(&stored)?;
        let Ok(time) = entry.time.parse() else { return Ok(None) };
        let is_gone = entry.op == EntryType::Deleted;
        Ok(Some(Version { seq: step.seq.0, time, object: if is_gone { Json::Null } else { json_of(&entry) } }))
    }

    /// The HorizontalPodAutoscaler that scales an object.
    fn autoscaler(&mut self, write: &Write<'_>, seq: Seq) -> Result<Provenance, Failure> {
        let tool = Tool::Autoscaler;
        let ids = self.recorded(tool.resource())?;
        if ids.is_empty() {
            return Ok(Provenance::none(Ends::at("unrecorded", unwatched(tool.resource()))));
        }
        let mut names = Vec::new();
        for id in ids {
            for row in self.reader.objects(id, Some(write.namespace), None)? {
                let Some(stored) = self.reader.entry_at(&row, seq)? else { continue };
                let entry = parse(&stored)?;
                let object = json_of(&entry);
                let is = |name: &str, value: &str| {
                    object.pointer(&format!("/spec/scaleTargetRef/{name}")).and_then(Json::as_str) == Some(value)
                };
                let name = (row.namespace, row.name);
                if entry.op != EntryType::Deleted
                    && is("kind", write.kind)
                    && is("name", write.name)
                    && !names.contains(&name)
                {
                    names.push(name);
                }
            }
        }
        Ok(match names.len() {
            0 => Provenance::none(Ends::at("missing", "the log has no HorizontalPodAutoscaler that scales it")),
            1 => Provenance {
                certainty: Certainty::Known,
                ..Provenance::driven(tool, &names, Ends::at("metrics", "its metrics decide, and no object has them"))
            },
            _ => Provenance::driven(tool, &names, Ends::at("several", "each of these scales it")),
        })
    }
}

/// Reports whether a version of a driving object says that a run goes on.
fn is_under_way(object: &Json) -> bool {
    let phase = object.pointer("/status/operationState/phase").and_then(Json::as_str);
    let conditions = object.pointer("/status/conditions").and_then(Json::as_array);
    let is = |one: &Json, name: &str, value: &str| one.get(name).and_then(Json::as_str) == Some(value);
    phase.is_some_and(|phase| phase == "Running" || phase == "Terminating")
        || conditions.into_iter().flatten().any(|one| is(one, "type", "Reconciling") && is(one, "status", "True"))
}

/// Returns the object of an entry.
pub(in crate::query::questions) fn json_of(entry: &Entry<'_>) -> Json {
    entry.object.and_then(|object| serde_json::from_str(object.get()).ok()).unwrap_or_default()
}

/// Returns the path of a field in the template of the owner that makes such objects.
fn in_template(kind: &str, path: &str) -> Option<String> {
    match kind {
        "ReplicaSet" => path.starts_with("/spec/template/").then(|| path.to_owned()),
        "Pod" => {
            let parts = ["/spec/", "/metadata/labels/", "/metadata/annotations/"];
            parts.iter().any(|part| path.starts_with(part)).then(|| format!("/spec/template{path}"))
        }
        "Job" => path.starts_with("/spec/").then(|| format!("/spec/jobTemplate{path}")),
        _ => None,
    }
}
