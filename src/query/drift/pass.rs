//! The pass over the log: it opens drifts, and sees how each ends.

use std::collections::{BTreeSet, HashMap, VecDeque};

use jiff::Timestamp;
use memchr::memmem;
use serde_json::Value;
use serde_json::value::RawValue;

use super::ends::{has_written, is_note, is_wanted, outcome};
use super::hands::{Hand, MARKS, drivers, hand, has_other_tool, is_of, tool_of, tools};
use super::owned::{Differing, Held, Path, Versions, books, is_within, leaves, name_of, owns, resolve};
use super::turn::{Turn, named};
use super::{Drift, DrivenBy, Ended, Field, How, LeftOut, MOST, Written};
use crate::core::k8s::bookkeeping::{LAST_APPLIED, is_book};
use crate::core::k8s::managed_fields::Manager;
use crate::core::model::{EntryType, Seq};
use crate::core::wire::{Change, Entry, Header, authors, unnamed};
use crate::query::provenance::Tool;
use crate::query::render::{Failure, object};

/// What the pass asks of everything but the entry.
pub(crate) trait World {
    /// Judges a write of a field of a tool by somebody else, or by nobody who is named.
    ///
    /// # Errors
    /// Where the journal cannot be read.
    fn judge(&mut self, asked: &Asked<'_>) -> Result<Verdict, Failure>;

    /// Returns the newest version before an entry that has managedFields.
    ///
    /// # Errors
    /// Where the journal cannot be read.
    fn with_books(&mut self, seq: Seq) -> Result<Option<Value>, Failure>;

    /// Reports whether a drift that begins with an entry is asked for.
    ///
    /// # Errors
    /// Where the journal cannot be read.
    fn wants(&mut self, op: EntryType, seq: Seq, line: &[u8]) -> Result<bool, Failure>;

    /// Returns the objects that drive a tool, as the judgement of the entry has found them.
    fn driving(&self, seq: Seq, tool: Tool) -> Option<Vec<DrivenBy>>;

    /// Reports whether a drift that has ended is asked for.
    fn keeps(&self, drift: &Drift) -> bool;
}

/// A write to judge.
pub(crate) struct Asked<'a> {
    pub(crate) entry: &'a Entry<'a>,
    pub(crate) tool: Tool,
    /// The object as it was before.
    pub(crate) before: &'a Value,
    /// JSON pointer to the field; empty for the whole object.
    pub(crate) pointer: &'a str,
    /// Those who made it; empty where nobody is named.
    pub(crate) writers: &'a [Manager],
    /// Owners of the field after it.
    pub(crate) owners: Vec<Manager>,
    /// Reports that it removed the field, or the object.
    pub(crate) is_removal: bool,
}

/// Judgement of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is a drift.
    Drift,
    /// The tool made it.
    Own,
    Autoscaled,
    Ignored,
    /// The tool may have made it.
    Unknown,
}

/// An object: resource, namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key(String, String, String);

/// What is common to the drifts of a write.
#[derive(Clone, Debug)]
struct Base {
    api_version: String,
    kind: String,
    resource: String,
    namespace: String,
    name: String,
    uid: String,
    tool: Tool,
    driven_by: Vec<DrivenBy>,
    /// The same with what the log has of them; none where it was not looked at.
    driving: Option<Vec<DrivenBy>>,
    began: Written,
    gaps: usize,
    wanted: bool,
}

/// Fields that differ now, or an object that is gone if there are none.
#[derive(Debug)]
struct Open {
    base: Base,
    fields: Vec<Differing>,
}

/// The pass.
#[derive(Debug, Default)]
pub(crate) struct Pass {
    open: HashMap<Key, Vec<Open>>,
    /// Fields that are as the tool wants them, and that somebody else has set so: managedFields name another owner.
    wanted: HashMap<Key, Vec<(Tool, Path)>>,
    /// Number of fields that are open, or wanted.
    held: usize,
    /// Start of the newest GAP of each resource.
    since: HashMap<String, Timestamp>,
    ended: VecDeque<Drift>,
    pub(crate) left_out: LeftOut,
    /// Number of GAPs.
    pub(crate) gaps: u64,
}

fn key_of(header: &Header<'_>) -> Key {
    let text = |text: &Option<std::borrow::Cow<'_, str>>| text.as_deref().unwrap_or_default().to_owned();
    Key(header.full_resource(), text(&header.namespace), text(&header.name))
}

impl Pass {
    /// Takes the next entry.
    ///
    /// # Errors
    /// Where it is damaged, or the journal cannot be read.
    pub(crate) fn take(
        &mut self,
        (op, seq): (EntryType, Seq),
        line: &[u8],
        world: &mut impl World,
    ) -> Result<(), Failure> {
        let has_mark = || MARKS.iter().any(|mark| memmem::find(line, mark.as_bytes()).is_some());
        let is_idle = self.open.is_empty() && self.wanted.is_empty();
        if op == EntryType::Actor || op != EntryType::Gap && is_idle && !has_mark() {
            return Ok(());
        }
        let entry = Entry::parse(line).map_err(|error| object::damaged(seq, &error))?;
        let key = key_of(&entry.header);
        if op == EntryType::Gap {
            self.gap(&entry);
            return Ok(());
        }
        // A tool whose fields others have set back is not named in the object any more.
        if !self.open.contains_key(&key) && !self.wanted.contains_key(&key) && !has_mark() {
            return Ok(());
        }
        let damaged = |error: serde_json::Error| object::damaged(seq, &error);
        let change = Change::of(&entry).map_err(damaged)?.unwrap_or_default();
        let is_net = matches!(entry.evidence.as_deref(), Some("inferred" | "listed"));
        let managers = if op == EntryType::Modified { change.managers.clone() } else { authors(&entry) };
        if op == EntryType::Modified && !self.matters(&key, line, &change, &managers, is_net) {
            return Ok(());
        }
        let after: Value = match entry.object {
            Some(object) => serde_json::from_str(object.get()).map_err(damaged)?,
            None => return Ok(()),
        };
        let redacted: Option<Vec<String>> =
            entry.redacted.map(|raw| serde_json::from_str(raw.get())).transpose().map_err(damaged)?;
        let mut redacted = redacted.unwrap_or_default();
        redacted.extend(change.dropped().map(|area| format!("/{area}")));
        let note = ["metadata", "annotations", LAST_APPLIED].iter().try_fold(&after, |at, name| at.get(name));
        let is_noted = op != EntryType::Modified || change.patch.iter().any(|one| is_note(&one.path));
        let applied = note.and_then(Value::as_str).filter(|_| is_noted);
        let turn = Turn {
            unnamed: unnamed(&entry).map(|why| why.words().to_owned()),
            applied: applied.and_then(|text| serde_json::from_str(text).ok()),
            entry: &entry,
            line,
            after: &after,
            managers,
            is_net,
            redacted,
            since: self.since.get(&key.0).copied(),
            now: None,
        };
        match op {
            EntryType::Added => self.added(&key, &turn, world),
            EntryType::Deleted => self.deleted(&key, &turn, world),
            EntryType::Modified => self.modified(&key, &turn, &change, world),
            EntryType::Gap | EntryType::Actor => Ok(()),
        }
    }

    /// Reports whether a change may begin or end a drift.
    fn matters(&self, key: &Key, line: &[u8], change: &Change<'_>, managers: &[Manager], is_net: bool) -> bool {
        let is_open = self.open.contains_key(key) || self.wanted.contains_key(key);
        let of_tool = managers.iter().find_map(|one| tool_of(&one.manager));
        if let Some(tool) = of_tool.filter(|_| !is_net) {
            return is_open || has_other_tool(line, tool);
        }
        is_open && is_net || change.patch.iter().any(|op| is_desired(&op.path)) || change.dropped().next().is_some()
    }

    fn gap(&mut self, entry: &Entry<'_>) {
        self.gaps += 1;
        let Key(resource, namespace, name) = key_of(&entry.header);
        if let Some(since) = entry.gap().and_then(|gap| gap.since?.parse().ok()) {
            self.since.insert(resource.clone(), since);
        }
        let is_of = |key: &Key| {
            key.0 == resource && (name.is_empty() || key.2 == name) && (namespace.is_empty() || key.1 == namespace)
        };
        for (_, opens) in self.open.iter_mut().filter(|(key, _)| is_of(key)) {
            opens.iter_mut().for_each(|open| open.base.gaps += 1);
        }
    }

    fn modified(
        &mut self,
        key: &Key,
        turn: &Turn<'_>,
        change: &Change<'_>,
        world: &mut impl World,
    ) -> Result<(), Failure> {
        let Some(before) = change.before(turn.after) else { return Ok(()) };
        let wanted = self.still_wanted(key, &before, turn.after);
        let (mut known, again) = self.settle(key, turn, Some(&before), world);
        let own_books = books(&before);
        let mut owners = tools(&own_books);
        let older =
            if owners.is_empty() && has_mark(turn, &before) { world.with_books(Seq(turn.entry.seq))? } else { None };
        let owner_books = older.as_ref().map_or(own_books, books);
        if older.is_some() {
            owners = tools(&owner_books);
        }
        let mut begins: Vec<(Tool, Differing)> = again;
        owners.extend(wanted.iter().map(|(tool, _)| *tool));
        owners.sort();
        owners.dedup();
        for tool in owners {
            let of_tool = owner_books.iter().filter(|book| is_of(tool, &book.manager));
            let mut paths: BTreeSet<Path> = of_tool.flat_map(|book| leaves(book.set)).collect();
            paths.extend(wanted.iter().filter(|(of, _)| *of == tool).map(|(_, path)| path.clone()));
            let versions = Versions { before: &before, after: turn.after, redacted: &turn.redacted };
            for field in versions.changed(&paths, |manager| is_of(tool, manager)) {
                let is_known = known.iter().any(|path| field.path.starts_with(path) || path.starts_with(&field.path));
                if !is_known {
                    known.push(field.path.clone());
                    begins.push((tool, field));
                }
            }
        }
        self.begin(key, turn, &before, begins, world)
    }

    /// Returns the fields that a tool wanted as they were, and forgets those that change now.
    fn still_wanted(&mut self, key: &Key, before: &Value, after: &Value) -> Vec<(Tool, Path)> {
        let Some(wanted) = self.wanted.remove(key) else { return Vec::new() };
        let value = |object, path: &Path| resolve(object, path).map(|(_, value)| Held::of(value));
        let stay: Vec<(Tool, Path)> =
            wanted.iter().filter(|(_, path)| value(before, path) == value(after, path)).cloned().collect();
        self.held -= wanted.len() - stay.len();
        if !stay.is_empty() {
            self.wanted.insert(key.clone(), stay);
        }
        wanted
    }

    /// Opens drifts, one for each tool and writer.
    fn begin(
        &mut self,
        key: &Key,
        turn: &Turn<'_>,
        before: &Value,
        fields: Vec<(Tool, Differing)>,
        world: &mut impl World,
    ) -> Result<(), Failure> {
        let mut opens: Vec<Open> = Vec::new();
        for (tool, field) in fields {
            let writers = turn.writers(&field.path);
            let is_marked = is_marked_still(turn, tool, before);
            let verdict = match hand(&writers, tool, &field.path, is_marked) {
                Hand::Tool => Verdict::Own,
                Hand::Told => Verdict::Autoscaled,
                // It may have given the field up before somebody else set it.
                Hand::Other | Hand::Nobody if turn.is_net && has_written(tool, before, turn.after) => Verdict::Unknown,
                Hand::Other | Hand::Nobody => {
                    let owners = turn.owners(&field.path);
                    let (entry, pointer) = (turn.entry, field.pointer.as_str());
                    let is_removal = field.got.is_none();
                    world.judge(&Asked { entry, tool, before, pointer, writers: &writers, owners, is_removal })?
                }
            };
            if !self.is_drift(verdict) {
                continue;
            }
            match opens.iter_mut().find(|open| open.base.tool == tool && open.base.began.writers == writers) {
                Some(open) => open.fields.push(field),
                None => {
                    let began = turn.written(writers);
                    opens.push(Open { base: base(turn, tool, before, began, world)?, fields: vec![field] });
                }
            }
        }
        self.held += opens.iter().map(|open| open.fields.len()).sum::<usize>();
        if !opens.is_empty() {
            self.open.entry(key.clone()).or_default().extend(opens);
        }
        Ok(())
    }

    fn is_drift(&mut self, verdict: Verdict) -> bool {
        match verdict {
            Verdict::Drift if self.held >= MOST => self.left_out.dropped += 1,
            Verdict::Drift => return true,
            Verdict::Own => {}
            Verdict::Autoscaled => self.left_out.autoscaled += 1,
            Verdict::Ignored => self.left_out.ignored += 1,
            Verdict::Unknown => self.left_out.unknown += 1,
        }
        false
    }

    /// Ends what a version ends. Returns the paths that were open, and the fields that somebody else set to a third value.
    fn settle(
        &mut self,
        key: &Key,
        turn: &Turn<'_>,
        before: Option<&Value>,
        world: &impl World,
    ) -> (Vec<Path>, Vec<(Tool, Differing)>) {
        let (mut known, mut again) = (Vec::new(), Vec::new());
        for mut open in self.open.remove(key).unwrap_or_default() {
            if open.fields.is_empty() {
                self.open.entry(key.clone()).or_default().push(open);
                continue;
            }
            let tool = open.base.tool;
            let is_marked =
                !drivers(tool, named(&turn.entry.header), turn.after).is_empty() || open.base.driven_by.is_empty();
            let mut ends: Vec<(How, Vec<Manager>, Vec<Differing>)> = Vec::new();
            let mut stays = Vec::new();
            for field in std::mem::take(&mut open.fields) {
                known.push(field.path.clone());
                let mut writers = turn.writers(&field.path);
                let Some(how) = outcome((turn, before), tool, &field, &writers, is_marked) else {
                    stays.push(field);
                    continue;
                };
                if is_wanted(turn, tool, &field, &writers, how) && self.held < MOST {
                    let paths = field.owned.iter().map(|(path, _)| (tool, path.clone()));
                    self.held += field.owned.len();
                    self.wanted.entry(key.clone()).or_default().extend(paths);
                }
                if how == How::Overwritten {
                    let got = resolve(turn.after, &field.path).map(|(_, value)| Held::of(value));
                    again.push((tool, Differing { got, ..field.clone() }));
                }
                // Beside the tool an owner may be left that wrote before.
                if writers.iter().any(|one| is_of(tool, one)) {
                    writers.retain(|one| is_of(tool, one));
                }
                match ends.iter_mut().find(|(known, by, _)| *known == how && *by == writers) {
                    Some((_, _, fields)) => fields.push(field),
                    None => ends.push((how, writers, vec![field])),
                }
            }
            for (how, writers, fields) in ends {
                self.end(open.base.clone(), fields, how, turn.written(writers), world);
            }
            if !stays.is_empty() {
                self.open.entry(key.clone()).or_default().push(Open { fields: stays, ..open });
            }
        }
        (known, again)
    }

    fn end(&mut self, base: Base, fields: Vec<Differing>, how: How, write: Written, world: &impl World) {
        self.held -= fields.len();
        if !base.wanted {
            return;
        }
        let millis = lasted(&base.began, &write);
        let drift = drift(base, &fields, Some(Ended { how, write, provenance: None }), millis);
        if !world.keeps(&drift) {
            return;
        }
        if self.ended.len() >= MOST {
            self.ended.pop_front();
            self.left_out.dropped += 1;
        }
        self.ended.push_back(drift);
    }

    fn deleted(&mut self, key: &Key, turn: &Turn<'_>, world: &mut impl World) -> Result<(), Failure> {
        for open in self.open.remove(key).unwrap_or_default() {
            self.end(open.base, open.fields, How::Deleted, turn.written(Vec::new()), world);
        }
        self.held -= self.wanted.remove(key).map_or(0, |wanted| wanted.len());
        let Some(&tool) = tools(&books(turn.after)).first() else { return Ok(()) };
        let (entry, before) = (turn.entry, turn.after);
        let (pointer, owners) = ("", Vec::new());
        let verdict = world.judge(&Asked { entry, tool, before, pointer, writers: &[], owners, is_removal: true })?;
        if self.is_drift(verdict) {
            let base = base(turn, tool, before, turn.written(Vec::new()), world)?;
            self.open.entry(key.clone()).or_default().push(Open { base, fields: Vec::new() });
        }
        Ok(())
    }

    fn added(&mut self, key: &Key, turn: &Turn<'_>, world: &mut impl World) -> Result<(), Failure> {
        let opens = self.open.remove(key).unwrap_or_default();
        let owning = tools(&books(turn.after));
        for open in opens {
            let writers = if turn.is_net {
                let own = books(turn.after);
                own.into_iter().map(|book| book.manager).filter(|one| is_of(open.base.tool, one)).collect()
            } else {
                turn.managers.clone()
            };
            let how = match (open.fields.is_empty(), owning.contains(&open.base.tool)) {
                (false, _) => How::Deleted,
                (true, true) => How::Restored,
                (true, false) => How::Recreated,
            };
            self.end(open.base, open.fields, how, turn.written(writers), world);
        }
        if turn.entry.evidence.as_deref() == Some("listed") {
            self.first_seen(key, turn, world)?;
        }
        Ok(())
    }

    /// Opens what differs, on a first list, from what Argo CD noted of its manifest: only where somebody else owns the field.
    fn first_seen(&mut self, key: &Key, turn: &Turn<'_>, world: &mut impl World) -> Result<(), Failure> {
        let Some(applied) = &turn.applied else { return Ok(()) };
        let own = books(turn.after);
        let tool = Tool::ArgoCd;
        let note: Path = ["f:metadata", "f:annotations", &format!("f:{LAST_APPLIED}")].map(str::to_owned).into();
        let is_noted_by_tool = own.iter().any(|book| is_of(tool, &book.manager) && owns(book.set, &note));
        if !is_noted_by_tool || drivers(tool, named(&turn.entry.header), turn.after).is_empty() {
            return Ok(());
        }
        let mut begins = Vec::new();
        for path in own.iter().filter(|book| !is_of(tool, &book.manager)).flat_map(|book| leaves(book.set)) {
            let owned_by_tool = own.iter().any(|book| is_of(tool, &book.manager) && owns(book.set, &path));
            let Some((expected, (pointer, got))) =
                resolve(applied, &path).map(|(_, it)| it).zip(resolve(turn.after, &path))
            else {
                continue;
            };
            let is_plain = |value: &Value| value.is_boolean() || value.is_i64() || value.as_str().is_some_and(is_word);
            let is_mine = is_plain(expected) && is_plain(got) && expected != got && !owned_by_tool;
            if is_mine && !turn.redacted.iter().any(|one| is_within(&pointer, one)) {
                let (expected, got) = (Held::of(expected), Some(Held::of(got)));
                let name = name_of(turn.after, &path);
                let owned = vec![(path.clone(), expected.clone())];
                begins.push((tool, Differing { path, pointer, name, expected, got, redacted: false, owned }));
            }
        }
        self.begin(key, turn, turn.after, begins, world)
    }

    /// Takes the state of an object that no entry has, given its newest entry.
    pub(crate) fn unrecorded(&mut self, entry: &Entry<'_>, state: &Value, now: Timestamp, world: &impl World) {
        let key = key_of(&entry.header);
        let turn = Turn {
            entry,
            line: &[],
            after: state,
            managers: Vec::new(),
            unnamed: None,
            is_net: true,
            applied: None,
            redacted: Vec::new(),
            since: None,
            now: Some(now),
        };
        self.settle(&key, &turn, None, world);
    }

    /// Returns the objects with an open drift of a field: resource, namespace and name.
    pub(crate) fn open_objects(&self) -> Vec<(String, String, String)> {
        let with_fields = self.open.iter().filter(|(_, opens)| opens.iter().any(|open| !open.fields.is_empty()));
        with_fields.map(|(key, _)| (key.0.clone(), key.1.clone(), key.2.clone())).collect()
    }

    /// Returns all drifts; those that are open last until now.
    pub(crate) fn finish(self, now: Timestamp, world: &impl World) -> (Vec<Drift>, LeftOut) {
        let mut drifts: Vec<Drift> = self.ended.into();
        for open in self.open.into_values().flatten().filter(|open| open.base.wanted) {
            let millis = now.duration_since(open.base.began.earliest.unwrap_or(open.base.began.time)).as_millis();
            let drift = drift(open.base, &open.fields, None, i64::try_from(millis).unwrap_or(i64::MAX).max(0));
            drifts.extend(Some(drift).filter(|drift| world.keeps(drift)));
        }
        drifts.sort_by(|one, other| {
            let place = |drift: &Drift| (drift.began.time, drift.began.seq);
            let name = |drift: &Drift| (drift.namespace.clone(), drift.resource.clone(), drift.name.clone());
            name(one).cmp(&name(other)).then_with(|| place(one).cmp(&place(other)))
        });
        (drifts, self.left_out)
    }
}

/// Longest time between two writes, in milliseconds.
fn lasted(began: &Written, ended: &Written) -> i64 {
    let millis = ended.time.duration_since(began.earliest.unwrap_or(began.time)).as_millis();
    i64::try_from(millis).unwrap_or(i64::MAX).max(0)
}

/// Reports whether an object has the mark of any tool.
fn has_mark(turn: &Turn<'_>, object: &Value) -> bool {
    [Tool::ArgoCd, Tool::Kustomization, Tool::HelmRelease, Tool::Helm]
        .into_iter()
        .any(|tool| !drivers(tool, named(&turn.entry.header), object).is_empty())
}

/// Reports whether an object that had the mark of a tool has it still; one without a mark has not lost it.
fn is_marked_still(turn: &Turn<'_>, tool: Tool, before: &Value) -> bool {
    let is_marked = |object: &Value| !drivers(tool, named(&turn.entry.header), object).is_empty();
    is_marked(turn.after) || !is_marked(before)
}

fn base(turn: &Turn<'_>, tool: Tool, before: &Value, began: Written, world: &mut impl World) -> Result<Base, Failure> {
    let header = &turn.entry.header;
    let text = |text: &Option<std::borrow::Cow<'_, str>>| text.as_deref().unwrap_or_default().to_owned();
    let driven_by = drivers(tool, named(header), before).into_iter().map(|one| DrivenBy {
        kind: tool.kind().into(),
        namespace: one.namespace.unwrap_or_default(),
        name: one.name,
    });
    let seq = Seq(header.seq);
    Ok(Base {
        api_version: header.api_version.to_string(),
        kind: header.kind.to_string(),
        resource: header.resource.to_string(),
        namespace: text(&header.namespace),
        name: text(&header.name),
        uid: text(&header.uid),
        tool,
        driven_by: driven_by.collect(),
        driving: world.driving(seq, tool),
        began,
        gaps: 0,
        wanted: world.wants(header.op, seq, turn.line)?,
    })
}

fn drift(base: Base, fields: &[Differing], ended: Option<Ended>, millis: i64) -> Drift {
    let value = |held: &Held| held.json.clone().and_then(|json| RawValue::from_string(json).ok());
    let field = |one: &Differing| Field {
        path: one.pointer.clone(),
        name: one.name.clone(),
        expected: value(&one.expected).filter(|json| json.get() != "null"),
        got: one.got.as_ref().and_then(value).filter(|json| json.get() != "null"),
        gone: one.got.is_none() && !one.redacted,
        redacted: one.redacted,
    };
    let Base { api_version, kind, resource, namespace, name, uid, tool, began, gaps, .. } = base;
    let driven_by = base.driving.unwrap_or(base.driven_by);
    let fields = fields.iter().map(field).collect();
    Drift { api_version, kind, resource, namespace, name, uid, tool, driven_by, fields, began, ended, millis, gaps }
}

/// Reports whether an operation of a patch may change what somebody sets on purpose.
fn is_desired(pointer: &str) -> bool {
    !is_book(pointer) && !is_within(pointer, "/status")
}

/// Reports whether a text is no quantity, which the API server may spell in another way.
fn is_word(text: &str) -> bool {
    !text.starts_with(|first: char| first.is_ascii_digit() || "+-.".contains(first))
}
