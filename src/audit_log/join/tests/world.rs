//! A world of objects and writers with two API servers, as far as an audit log and a watch show it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use super::*;

/// Field of an object: `true` where the status subresource has it, and a number.
type Field = (bool, u8);

#[derive(Clone, Default)]
struct State {
    uid: String,
    rv: u64,
    fields: BTreeMap<Field, u32>,
    finalizers: u32,
    graceful: bool,
    asked: Option<i64>,
    books: Vec<(Manager, Vec<Field>)>,
    /// A change came before that the log suppressed, or a gap.
    hidden: bool,
}

/// Writer: sender, manager, and whether the manager is its alone.
#[derive(Clone)]
pub(super) struct Writer {
    pub(super) sender: Sender,
    pub(super) manager: &'static str,
    pub(super) own: bool,
}

#[derive(Clone, Debug, PartialEq)]
enum Act {
    Create { generate: bool },
    Put { before: u64, fields: BTreeMap<Field, u32>, conditional: bool, status: bool, finalize: bool },
    Patch { field: Field, value: Option<u32> },
    Apply { fields: BTreeMap<Field, u32> },
    Delete,
    Evict,
    DeleteCollection,
    Bind,
}

struct Pending {
    writer: usize,
    name: String,
    act: Act,
    server: usize,
    received: i64,
    completed: i64,
    dry_run: bool,
}

/// Version with the truth: place of the request that made it, and of the one that asked for it.
pub(super) struct Made {
    pub(super) version: Version,
    /// True time of the write.
    pub(super) at: i64,
    pub(super) actor: usize,
    /// Place of the request that made it.
    pub(super) maker: usize,
    /// The log suppressed it.
    pub(super) suppressed: bool,
}

/// Request with the truth.
pub(super) struct Sent {
    pub(super) request: AuditedRequest,
    pub(super) writer: usize,
    /// It made a version.
    pub(super) made: bool,
    /// True time of its answer.
    pub(super) at: i64,
}

pub(super) struct World {
    random: fastrand::Rng,
    pub(super) writers: Vec<Writer>,
    pub(super) sent: Vec<Sent>,
    pub(super) made: Vec<Made>,
    objects: BTreeMap<String, State>,
    askers: BTreeMap<String, usize>,
    skews: [i64; 2],
    /// The newest version of each etcd.
    rv: [u64; 2],
    /// Reports that the objects are of three resources, one of which has an etcd of its own.
    is_split: bool,
    pending: BinaryHeap<Reverse<(i64, usize)>>,
    requests: Vec<Option<Pending>>,
}

pub(super) const START: i64 = 1_700_000_000 * SECOND;
const OBJECTS: [&str; 5] = ["a", "b", "c", "d", "e"];

fn writers() -> Vec<Writer> {
    let own = |user: &str, manager| Writer { sender: sender(user), manager, own: true };
    let shared = |user: &str, manager| Writer { sender: sender(user), manager, own: false };
    let as_user = |user: &str| Writer {
        sender: Sender { impersonated_by: "argocd".to_owned(), ..sender(user) },
        manager: "argocd-controller",
        own: false,
    };
    let mut replica = own("hpa", "hpa");
    replica.sender.addresses = vec!["10.0.0.2".to_owned()];
    vec![
        own("deployer", "deployer"),
        own("status-controller", "status-controller"),
        own("hpa", "hpa"),
        replica,
        own("helm-ci", "helm"),
        shared("alice", "kubectl-edit"),
        shared("bob", "kubectl-edit"),
        shared("carol", "kubectl-edit"),
        shared("alice", "kubectl-client-side-apply"),
        as_user("alice"),
        as_user("bob"),
    ]
}

impl World {
    /// Runs a number of requests. `pace` is the mean time between two, microseconds.
    pub(super) fn run(seed: u64, requests: usize, pace: i64) -> Self {
        Self::of(seed, (requests, pace), SECOND / 5, false)
    }

    /// The same over two resources of one etcd, and a third one whose versions have other numbers of about the same size. `skew` is the
    /// most that a clock differs.
    pub(super) fn of_two_etcds(seed: u64, much: (usize, i64), skew: i64) -> Self {
        Self::of(seed, much, skew, true)
    }

    fn of(seed: u64, (requests, pace): (usize, i64), skew: i64, is_split: bool) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let skews = [random.i64(-skew..=skew), random.i64(-skew..=skew)];
        let rv = [100, if is_split { random.u64(60..140) } else { 100 }];
        let mut world = Self {
            random,
            writers: writers(),
            sent: Vec::new(),
            made: Vec::new(),
            objects: BTreeMap::new(),
            askers: BTreeMap::new(),
            skews,
            rv,
            is_split,
            pending: BinaryHeap::new(),
            requests: Vec::new(),
        };
        let mut now = START;
        for _ in 0..requests {
            now += if world.random.u8(0..4) == 0 { 0 } else { world.random.i64(0..2 * pace) };
            world.commit_until(now);
            world.begin(now);
        }
        world.commit_until(i64::MAX);
        world
    }

    /// Group and plural name of the resource of an object, and its etcd.
    fn place_of(&self, name: &str) -> (&'static str, &'static str, usize) {
        match name.as_bytes().first() {
            _ if !self.is_split => ("example.io", "things", 0),
            Some(b'c') => ("", "secrets", 0),
            Some(b'd' | b'e') => ("example.io", "things", 1),
            _ => ("", "configmaps", 0),
        }
    }

    fn fields(&mut self, status: bool) -> BTreeMap<Field, u32> {
        (0..self.random.u8(1..4)).map(|field| ((status, field), self.random.u32(0..3))).collect()
    }

    fn begin(&mut self, now: i64) {
        let random = &mut self.random;
        let (writer, server) = (random.usize(0..self.writers.len()), random.usize(0..2));
        let mut name = OBJECTS[random.usize(0..OBJECTS.len())].to_owned();
        let state = self.objects.get(&name).cloned();
        let act = match state {
            None if random.u8(0..5) == 0 => Act::Apply { fields: self.fields(false) },
            None => Act::Create { generate: self.random.u8(0..6) == 0 },
            Some(state) => self.act_on(&state),
        };
        if act == (Act::Create { generate: true }) {
            name = format!("generated-{:05x}", self.random.u32(0..0xfffff));
        }
        let random = &mut self.random;
        let slow = random.u8(0..50) == 0;
        // A webhook takes its time.
        let longest = if !self.is_split && self.requests.len().is_multiple_of(8) { 20 * SECOND } else { 2 * SECOND };
        let commit = now + random.i64(100..if slow { longest } else { 20_000 });
        let completed = commit + random.i64(100..if slow { SECOND } else { 10_000 });
        let dry_run = random.u8(0..25) == 0;
        self.pending.push(Reverse((commit, self.requests.len())));
        self.requests.push(Some(Pending { writer, name, act, server, received: now, completed, dry_run }));
    }

    fn act_on(&mut self, state: &State) -> Act {
        let mut fields: BTreeMap<Field, u32> = state.fields.clone();
        let (field, value) = (self.random.u8(0..4), self.random.u32(0..3));
        match self.random.u8(0..100) {
            0..=29 => {
                let (status, finalize) = (self.random.bool(), self.random.u8(0..3) == 0 && state.asked.is_some());
                if self.random.u8(0..4) != 0 {
                    fields.insert((status, field), value);
                }
                // Somebody who has read an older version.
                let before = if self.random.u8(0..8) == 0 { state.rv - 1 } else { state.rv };
                Act::Put { before, fields, conditional: self.random.u8(0..8) != 0, status, finalize }
            }
            30..=59 => Act::Patch { field: (false, field), value: (self.random.u8(0..5) != 0).then_some(value) },
            60..=74 => Act::Apply { fields: self.fields(false) },
            75..=87 => Act::Delete,
            88..=89 => Act::Evict,
            90..=91 => Act::DeleteCollection,
            92..=93 => Act::Bind,
            _ => Act::Create { generate: false },
        }
    }

    fn commit_until(&mut self, until: i64) {
        while let Some(&Reverse((at, place))) = self.pending.peek() {
            if at > until {
                return;
            }
            self.pending.pop();
            let pending = self.requests[place].take().unwrap();
            self.commit(at, &pending);
        }
    }

    fn commit(&mut self, at: i64, pending: &Pending) {
        let place = self.sent.len();
        let skew = self.skews[pending.server];
        let writer = &self.writers[pending.writer];
        let (group, resource, _) = self.place_of(&pending.name);
        let mut request = AuditedRequest {
            id: format!("id-{place}"),
            group: group.to_owned(),
            resource: resource.to_owned(),
            namespace: "shop".to_owned(),
            name: pending.name.clone(),
            manager: writer.manager.to_owned(),
            sender: writer.sender.clone(),
            dry_run: pending.dry_run,
            received: pending.received + skew,
            completed: pending.completed + skew,
            ..AuditedRequest::default()
        };
        let count = self.made.len();
        let (verb, subresource) = match &pending.act {
            Act::Create { .. } => ("create", ""),
            Act::Put { status, .. } => ("update", if *status { "status" } else { "" }),
            Act::Patch { .. } => ("patch", ""),
            Act::Apply { .. } => (if self.random.bool() { "apply" } else { "patch" }, ""),
            Act::Delete => ("delete", ""),
            Act::Evict => ("create", "eviction"),
            Act::DeleteCollection => ("deletecollection", ""),
            Act::Bind => ("create", "binding"),
        };
        (request.verb, request.subresource) = (verb.to_owned(), subresource.to_owned());
        self.sent.push(Sent { request, writer: pending.writer, made: false, at: pending.completed });
        let code = if pending.act == Act::DeleteCollection {
            self.collect(place, at, pending)
        } else {
            self.apply(place, at, pending)
        };
        // An answer that timed out says nothing of what was written.
        let lost = self.random.u8(0..60) == 0;
        self.sent[place].request.code = if lost { 504 } else { code };
        if lost {
            self.sent[place].request.after.clear();
        }
        self.sent[place].made = self.made.len() > count;
        if pending.act == (Act::Create { generate: true }) && self.random.bool() {
            self.objects.get_mut(&pending.name).into_iter().for_each(|state| state.finalizers = 1);
        }
    }

    fn collect(&mut self, place: usize, at: i64, pending: &Pending) -> u16 {
        self.sent[place].request.name.clear();
        let of = self.place_of(&pending.name);
        let names: Vec<String> = self.objects.keys().filter(|name| self.place_of(name) == of).cloned().collect();
        for (number, name) in names.into_iter().enumerate() {
            let one = Pending { name, act: Act::Delete, ..*pending };
            if !pending.dry_run {
                self.apply(place, at + number as i64, &one);
            }
        }
        self.sent[place].request.after.clear();
        self.sent[place].request.uid.clear();
        200
    }

    fn apply(&mut self, place: usize, at: i64, pending: &Pending) -> u16 {
        let before = self.objects.get(&pending.name).cloned();
        let Some(mut state) = before.clone() else { return self.create(place, at, pending) };
        let manager = self.writers[pending.writer].manager;
        let time = (at + self.skews[pending.server]).div_euclid(SECOND);
        let (mut removed, mut operation, mut subresource) = (false, "Update", None);
        match &pending.act {
            Act::Create { .. } => return 409,
            Act::Put { before, fields, conditional, status, finalize } => {
                if *conditional {
                    self.sent[place].request.before = before.to_string();
                    if *before != state.rv {
                        return 409;
                    }
                }
                self.sent[place].request.uid.clone_from(&state.uid);
                subresource = status.then(|| "status".to_owned());
                state.fields.retain(|field, _| field.0 != *status);
                state.fields.extend(fields.iter().filter(|(field, _)| field.0 == *status));
                if *finalize && !*status {
                    state.finalizers = 0;
                    removed = state.asked.is_some() && !state.graceful;
                }
            }
            Act::Patch { field, value } => {
                state.fields.remove(field);
                state.fields.extend(value.map(|value| (*field, value)));
            }
            Act::Apply { fields } => {
                operation = "Apply";
                state.fields.extend(fields);
            }
            Act::Delete | Act::Evict | Act::DeleteCollection => return self.delete(place, at, pending, state),
            Act::Bind => {
                let next = state.fields.get(&(false, 200)).copied().unwrap_or_default() + 1;
                state.fields.insert((false, 200), next);
                if !pending.dry_run {
                    self.log(place, at, pending, before.as_ref(), state, EntryType::Modified, None);
                }
                return 201;
            }
        }
        let old = before.as_ref().unwrap();
        if pending.dry_run || state.fields == old.fields && state.finalizers == old.finalizers && !removed {
            self.sent[place].request.after = old.rv.to_string();
            self.sent[place].request.uid.clone_from(&old.uid);
            return 200;
        }
        let key =
            Manager { manager: manager.to_owned(), operation: operation.to_owned(), subresource, ..Manager::default() };
        book(&mut state, &old.fields, key, time);
        let op = if removed { EntryType::Deleted } else { EntryType::Modified };
        self.log(place, at, pending, before.as_ref(), state, op, None);
        200
    }

    fn create(&mut self, place: usize, at: i64, pending: &Pending) -> u16 {
        let operation = match pending.act {
            Act::Create { .. } => "Update",
            Act::Apply { .. } => "Apply",
            Act::Put { .. } | Act::Patch { .. } | Act::Delete | Act::Evict | Act::DeleteCollection | Act::Bind => {
                return 404;
            }
        };
        if pending.dry_run {
            return 201;
        }
        let time = (at + self.skews[pending.server]).div_euclid(SECOND);
        let mut state = State { uid: format!("uid-{place}"), ..State::default() };
        (state.finalizers, state.graceful) = (self.random.u32(0..2), self.random.u8(0..4) == 0);
        state.fields = if let Act::Apply { fields } = &pending.act { fields.clone() } else { self.fields(false) };
        let manager = self.writers[pending.writer].manager;
        let key = Manager { manager: manager.to_owned(), operation: operation.to_owned(), ..Manager::default() };
        book(&mut state, &BTreeMap::new(), key, time);
        self.log(place, at, pending, None, state, EntryType::Added, Some(time));
        201
    }

    fn delete(&mut self, place: usize, at: i64, pending: &Pending, mut state: State) -> u16 {
        let before = state.clone();
        let evicts = pending.act == Act::Evict;
        if pending.dry_run {
            return if evicts { 201 } else { 200 };
        }
        if evicts && state.asked.is_none() {
            state.fields.insert((true, 100), u32::try_from(place).unwrap());
            self.log(place, at, pending, Some(&before), state.clone(), EntryType::Modified, None);
            state = self.objects[&pending.name].clone();
        }
        let before = state.clone();
        let time = (at + self.skews[pending.server]).div_euclid(SECOND);
        if state.finalizers > 0 || state.graceful {
            if state.asked.is_some() {
                // The kubelet ends what is graceful; others find it deleted.
                if state.graceful && state.finalizers == 0 && self.random.bool() {
                    self.log(place, at + 1, pending, Some(&before), state, EntryType::Deleted, None);
                } else {
                    self.sent[place].request.after = state.rv.to_string();
                }
            } else {
                state.asked = Some(time);
                self.askers.insert(state.uid.clone(), place);
                self.log(place, at + 1, pending, Some(&before), state, EntryType::Modified, Some(time));
            }
        } else {
            self.log(place, at + 1, pending, Some(&before), state, EntryType::Deleted, None);
        }
        if evicts { 201 } else { 200 }
    }

    /// Writes a version, and what the watch and the answer show of it.
    #[allow(clippy::too_many_arguments, reason = "one place makes all versions")]
    fn log(
        &mut self,
        place: usize,
        at: i64,
        pending: &Pending,
        before: Option<&State>,
        mut state: State,
        op: EntryType,
        stamp: Option<i64>,
    ) {
        let (group, resource, etcd) = self.place_of(&pending.name);
        self.rv[etcd] += self.random.u64(1..3);
        state.rv = self.rv[etcd];
        let managers = managers(before, &state, op);
        let moved =
            managers.iter().find(|manager| manager.by == Some(By::Moved)).and_then(|manager| manager.time.as_ref());
        let stamp = stamp.or_else(|| moved.map(|time| time.parse().unwrap())).filter(|_| op != EntryType::Deleted);
        let seen = at + self.random.i64(0..SECOND / 5);
        let (earliest, latest) = match stamp {
            Some(second) => (second * SECOND, second * SECOND + SECOND - 1),
            None => (seen - SECOND, seen + SECOND / 2),
        };
        let asked = state.asked.is_some();
        let was_asked = before.is_some_and(|before| before.asked.is_some());
        let request = &mut self.sent[place].request;
        let silent = matches!(pending.act, Act::Evict | Act::Bind) || op == EntryType::Deleted;
        request.after = if silent { String::new() } else { state.rv.to_string() };
        request.uid.clone_from(&state.uid);
        let hidden = before.is_some_and(|before| before.hidden);
        let actor = if op == EntryType::Deleted { *self.askers.get(&state.uid).unwrap_or(&place) } else { place };
        let suppressed = op == EntryType::Modified && asked == was_asked && self.random.u8(0..30) == 0;
        self.made.push(Made {
            at,
            actor,
            maker: place,
            suppressed,
            version: Version {
                labels: None,
                grace_shortened: false,
                generated: true,
                seq: self.made.len() as u64 + 1,
                op,
                evidence: Evidence::Watched,
                names: names(group, resource, &pending.name),
                uid: state.uid.as_str().into(),
                version: state.rv.to_string().into(),
                before: before.filter(|_| !hidden).map(|before| before.rv.to_string().into()),
                managers: if op == EntryType::Deleted { Arc::default() } else { managers.into() },
                deletion_requested: asked && !was_asked,
                deleting: was_asked,
                earliest,
                latest,
                stored_by: seen + SECOND / 2,
            },
        });
        state.hidden = suppressed;
        if op == EntryType::Deleted {
            self.objects.remove(&pending.name);
        } else {
            self.objects.insert(pending.name.clone(), state);
        }
    }
}

/// Books a write as managedFields do: the writer's set and time, and what others lose.
fn book(state: &mut State, old: &BTreeMap<Field, u32>, key: Manager, time: i64) {
    let changed: Vec<Field> =
        state.fields.iter().filter(|(field, value)| old.get(field) != Some(value)).map(|(field, _)| *field).collect();
    let fields = &state.fields;
    state
        .books
        .iter_mut()
        .for_each(|(_, set)| set.retain(|field| fields.contains_key(field) && !changed.contains(field)));
    if changed.is_empty() {
        return;
    }
    let place = state.books.iter().position(|(known, _)| known.is(&key)).unwrap_or_else(|| {
        state.books.push((key, Vec::new()));
        state.books.len() - 1
    });
    state.books[place].0.time = Some(time.to_string());
    state.books[place].1.extend(changed);
}

/// Writers of a version by managedFields, as the log has them.
fn managers(before: Option<&State>, state: &State, op: EntryType) -> Vec<Manager> {
    let old = |manager: &Manager| before.and_then(|before| before.books.iter().find(|(known, _)| known.is(manager)));
    let grew = |(manager, set): &&(Manager, Vec<Field>)| {
        old(manager)
            .is_none_or(|(known, had)| known.time != manager.time || set.iter().any(|field| !had.contains(field)))
    };
    let by = |by: Option<By>| move |(manager, _): &(Manager, Vec<Field>)| Manager { by, ..manager.clone() };
    if op == EntryType::Added {
        return state.books.iter().map(by(None)).collect();
    }
    let moved: Vec<Manager> = state.books.iter().filter(grew).map(by(Some(By::Moved))).collect();
    if !moved.is_empty() {
        return moved;
    }
    let differs = |field: &Field| before.is_some_and(|before| before.fields.get(field) != state.fields.get(field));
    let owns = |(_, set): &&(Manager, Vec<Field>)| set.iter().any(differs);
    state.books.iter().filter(owns).map(by(Some(By::Owner))).collect()
}
