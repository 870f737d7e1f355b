//! The report of `decklog churn`, for people and as JSON.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::field::{Field, Side};
use super::tally::Tally;
use super::versions::Of;
use super::{APART, Churn, Class, Count, Senders, Versions, Writes};
use crate::journal::{Requests as Counted, SourceRow};
use crate::query::coverage::Uncovered;
use crate::query::coverage::known::Reach;
use crate::query::rewrites::Rewrite;

/// A field that is written again and again is one that was written at least so often.
const AGAIN: u64 = 3;

/// Report of `decklog churn`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// Not before.
    pub since: Timestamp,
    /// Not after.
    pub until: Timestamp,
    /// Entries that were read.
    pub entries: u64,
    /// The seq of the first of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<u64>,
    /// The seq of the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<u64>,
    /// Entries that say nothing about how often something was written.
    pub not_counted: NotCounted,
    /// Writes, all together.
    pub writes: Row,
    /// Writes by kind.
    pub classes: Vec<OfClass>,
    /// Storage rewrites, oldest first. Their writes are of no manager and no object below.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) rewrites: Vec<Rewrite>,
    /// Fields that two managers keep changing back and forth, most often first.
    pub fights: Vec<Fight>,
    /// Fields that are written again and again, most often first; without those of the status and those in `fights`.
    pub fields: Vec<Written>,
    /// Managers with the most writes.
    pub managers: Vec<Row>,
    /// Resources with the most writes.
    pub resources: Vec<Row>,
    /// Objects with the most writes.
    pub objects: Vec<Row>,
    /// Objects, managers or fields with at most so many writes may be missing, because there were too many to remember.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dropped_below: u64,
    /// The API server's own counters, where they were requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<Requests>,
    /// Senders of requests that wrote nothing, by the audit log, where requests were requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub senders: Option<Senders>,
    /// How much of the time the log covers, where that is not all of it.
    #[serde(default, skip_serializing_if = "Reach::is_all")]
    pub(crate) known: Reach,
    /// The part of the time that the log does not cover.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) uncovered: Vec<Uncovered>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Entries that are no writes.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct NotCounted {
    /// Found on a first list.
    pub listed: u64,
    /// The difference after a gap: how often it was written meanwhile nobody knows.
    pub inferred: u64,
    /// Gaps.
    pub gaps: u64,
    /// Changes that `ignore` kept out of the log over the life of the journal, whose times are not recorded.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub suppressed: u64,
}

/// Number of writes of a manager or to an object, and the share that changed nothing that matters.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Row {
    /// A manager; empty where managedFields name nobody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manager: Option<String>,
    /// A resource: `deployments.apps`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// The namespace of an object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The name of an object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Writes.
    pub writes: u64,
    /// Their part of all writes, from 0 to 1.
    pub share: f64,
    /// Bytes of the objects that they brought, as JSON: about what each costs the API server's store and each watcher.
    pub bytes: u64,
    /// Writes that changed nothing that matters.
    pub no_op: u64,
    /// Their bytes.
    pub no_op_bytes: u64,
}

/// The writes of one kind.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct OfClass {
    /// Kind of the writes.
    pub class: Class,
    /// True if such writes change nothing that matters.
    pub no_op: bool,
    /// Writes.
    pub writes: u64,
    /// Their part of all writes, from 0 to 1.
    pub share: f64,
    /// Bytes of the objects that they brought.
    pub bytes: u64,
}

/// A field that two managers keep changing back and forth.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Fight {
    /// `deployments.apps`.
    pub resource: String,
    /// The namespace of the object; empty where it has none.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The field, a JSON pointer.
    pub field: String,
    /// Changes of it.
    pub writes: u64,
    /// Times that one gave it back the value which another had changed.
    pub reverts: u64,
    /// The first change that was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<Timestamp>,
    /// The last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<Timestamp>,
    /// The seq of the last one.
    #[serde(skip)]
    pub seq: u64,
    /// Managers with the values they set; the last one is the present value.
    pub sides: Vec<FightSide>,
}

/// One side of a fight.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FightSide {
    /// Who.
    pub manager: String,
    /// The value as JSON, cut where it is long; absent where this side takes the field away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Number of times.
    pub times: u64,
}

/// A field that is written again and again.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Written {
    /// `deployments.apps`.
    pub resource: String,
    /// The namespace of the object; empty where it has none.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The field, a JSON pointer.
    pub field: String,
    /// Changes of it.
    pub writes: u64,
    /// Changes from one time stamp to another.
    pub time_stamps: u64,
    /// Managers that wrote it, at most four.
    pub managers: Vec<String>,
    /// Value before the last change, as JSON, cut if it is long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub was: Option<String>,
    /// Value after the last change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// The last change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<Timestamp>,
}

/// The API server's own counters beside the log.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Requests {
    /// Since when they were read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Until when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// Seconds of that time in which they were not: the daemon did not run, or could not read them.
    pub unread_seconds: i64,
    /// Error of the last reading.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// By resource, most requests first.
    pub resources: Vec<RequestsOf>,
}

/// The requests that changed one resource, or would have.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RequestsOf {
    /// `deployments.apps`.
    pub resource: String,
    /// Requests that were granted, by verb.
    pub verbs: BTreeMap<String, u64>,
    /// All of them.
    pub requests: u64,
    /// Versions that the watch reported.
    pub versions: VersionsOf,
    /// Requests that made no version, because they changed nothing; absent where that cannot be known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped: Option<u64>,
    /// Their part of the requests, from 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
    /// It may be more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub at_least: bool,
    /// Reason why the number may be higher, or is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<Cow<'static, str>>,
}

/// Versions that the watch reported.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct VersionsOf {
    /// All of them.
    pub all: u64,
    /// Writes that created an object.
    pub added: u64,
    /// Writes that changed an object.
    pub modified: u64,
    /// Writes that deleted an object.
    pub deleted: u64,
    /// Changes that `ignore` kept out of the log.
    pub suppressed: u64,
}

/// A part of a whole, to a thousandth.
#[expect(clippy::cast_precision_loss, reason = "no log has so many writes that a share of them is off by a thousandth")]
fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { (part as f64 / whole as f64 * 1000.0).round() / 1000.0 }
}

impl Churn {
    /// Builds the report, with at most `most` rows of each sort.
    #[must_use]
    pub fn report(&mut self, since: Timestamp, until: Timestamp, most: usize) -> Report {
        self.settle();
        let mut classes: BTreeMap<Class, Count> = BTreeMap::new();
        let mut resources: Vec<(&String, Writes)> = Vec::new();
        for (name, of) in &self.resources {
            let mut writes = Writes::default();
            for (class, count) in &of.classes {
                for sum in [Some(classes.entry(*class).or_default()), Some(&mut writes.all)]
                    .into_iter()
                    .chain([Some(&mut writes.no_op).filter(|_| class.is_no_op())])
                    .flatten()
                {
                    sum.writes += count.writes;
                    sum.bytes += count.bytes;
                }
            }
            resources.push((name, writes));
        }
        resources.sort_by(|(a, x), (b, y)| y.all.writes.cmp(&x.all.writes).then_with(|| a.cmp(b)));
        resources.truncate(most);
        let sum = |wanted: &dyn Fn(Class) -> bool| {
            let of: Vec<&Count> = classes.iter().filter(|(class, _)| wanted(**class)).map(|(_, count)| count).collect();
            Count { writes: of.iter().map(|c| c.writes).sum(), bytes: of.iter().map(|c| c.bytes).sum() }
        };
        let (all, no_op) = (sum(&|_| true), sum(&Class::is_no_op));
        let row = |writes: &Writes| row(writes, all.writes);
        let by_name = |tally: &Tally<Writes>, name: &dyn Fn(&str, Row) -> Row| -> Vec<Row> {
            tally
                .heaviest(most, |writes| writes.all.writes)
                .into_iter()
                .map(|(key, writes)| name(key, row(writes)))
                .collect()
        };
        let whole = Writes { all, no_op, last: 0 };
        Report {
            since,
            until,
            entries: self.entries,
            first: self.first,
            last: self.first.map(|_| self.last),
            not_counted: NotCounted { listed: self.listed, inferred: self.inferred, gaps: self.gaps, suppressed: 0 },
            writes: row(&whole),
            classes: Class::ALL
                .into_iter()
                .map(|class| {
                    let count = classes.get(&class).copied().unwrap_or_default();
                    let share = share(count.writes, all.writes);
                    OfClass { class, no_op: class.is_no_op(), writes: count.writes, share, bytes: count.bytes }
                })
                .collect(),
            rewrites: self.rewrites.clone(),
            fights: self.fights(most),
            fields: self.written(most),
            managers: by_name(&self.managers, &|key, row| Row { manager: Some(key.to_owned()), ..row }),
            resources: resources
                .iter()
                .map(|(name, writes)| Row { resource: Some((*name).clone()), ..row(writes) })
                .collect(),
            objects: by_name(&self.objects, &|key, row| {
                let [resource, namespace, name, _] = parts(key);
                let namespace = Some(namespace).filter(|namespace| !namespace.is_empty());
                Row { resource: Some(resource), namespace, name: Some(name), ..row }
            }),
            dropped_below: self.objects.dropped().max(self.managers.dropped()).max(self.fields.dropped()),
            requests: None,
            senders: None,
            known: Reach::All,
            uncovered: Vec::new(),
        }
    }

    fn fights(&self, most: usize) -> Vec<Fight> {
        let found = self.fields.heaviest(most, |field| if field.is_fought_over() { field.reverts } else { 0 });
        let fight = |(key, field): (&String, &Field)| {
            let [resource, namespace, name, pointer] = parts(key);
            let side = |side: &Side| {
                let (manager, value) = (side.manager.clone()?, side.value.text.clone());
                Some(FightSide { manager, value, times: side.times })
            };
            Fight {
                resource,
                namespace,
                name,
                field: pointer,
                writes: field.writes,
                reverts: field.reverts,
                first: field.first,
                last: field.last,
                seq: field.seq,
                sides: field.sides.iter().filter_map(side).collect(),
            }
        };
        found.into_iter().map(fight).collect()
    }

    fn written(&self, most: usize) -> Vec<Written> {
        let of_status = |key: &str| key.rsplit(APART).next().is_some_and(|path| path.starts_with("/status"));
        let fields = self.fields.iter().filter(|(key, field)| {
            field.writes >= AGAIN && !field.is_fought_over() && (field.stamps > 0 || !of_status(key))
        });
        let mut fields: Vec<_> = fields.collect();
        fields.sort_by(|(a, x), (b, y)| y.writes.cmp(&x.writes).then_with(|| a.cmp(b)));
        let written = |(key, field): (&String, &Field)| {
            let [resource, namespace, name, pointer] = parts(key);
            Written {
                resource,
                namespace,
                name,
                field: pointer,
                writes: field.writes,
                time_stamps: field.stamps,
                managers: field.managers.clone(),
                was: field.was.text.clone(),
                value: field.value.text.clone(),
                last: field.last,
            }
        };
        fields.into_iter().take(most).map(written).collect()
    }
}

fn row(writes: &Writes, all: u64) -> Row {
    Row {
        writes: writes.all.writes,
        share: share(writes.all.writes, all),
        bytes: writes.all.bytes,
        no_op: writes.no_op.writes,
        no_op_bytes: writes.no_op.bytes,
        ..Row::default()
    }
}

/// Resource, namespace, name and field.
fn parts(key: &str) -> [String; 4] {
    let mut parts = key.splitn(4, APART).map(str::to_owned);
    std::array::from_fn(|_| parts.next().unwrap_or_default())
}

impl Requests {
    /// The counters beside the versions of the same time. `sources` say what is watched as a whole.
    #[must_use]
    pub fn of(counted: &Counted, versions: &Versions, sources: &[SourceRow]) -> Self {
        let moment = |micros: Option<i64>| micros.and_then(|micros| Timestamp::from_microsecond(micros).ok());
        let (begin, end) = (counted.stretches.first().map(|s| s.0), counted.stretches.last().map(|s| s.1));
        let read: i64 = counted.stretches.iter().map(|(since, until)| until - since).sum();
        let all = end.zip(begin).map_or(0, |(end, begin)| end - begin);
        let names: BTreeSet<&String> = counted.counts.keys().chain(versions.counts.keys()).collect();
        let mut resources: Vec<RequestsOf> = names
            .into_iter()
            .map(|name| {
                let source = sources.iter().find(|source| source.active && source.resource.full_name() == **name);
                let whole = source.is_some_and(|source| !source.scoped);
                let verbs = counted.counts.get(name).cloned().unwrap_or_default();
                let of = versions.counts.get(name).copied().unwrap_or_default();
                compare(name, verbs, of, counted.suppressed.get(name).copied().unwrap_or(0), whole)
            })
            .collect();
        resources.sort_by(|a, b| b.requests.cmp(&a.requests).then_with(|| a.resource.cmp(&b.resource)));
        Self {
            since: moment(begin),
            until: moment(end),
            unread_seconds: (all - read) / 1_000_000,
            problem: counted.problem.clone(),
            resources,
        }
    }
}

/// One request makes at most one version; only of one that deletes a whole collection nobody knows how many.
fn compare(name: &str, verbs: BTreeMap<String, u64>, of: Of, suppressed: u64, whole: bool) -> RequestsOf {
    let requests: u64 = verbs.values().sum();
    let collections = verbs.get("DELETECOLLECTION").copied().unwrap_or(0);
    let all = of.added + of.modified + of.deleted + suppressed;
    let versions = VersionsOf { all, added: of.added, modified: of.modified, deleted: of.deleted, suppressed };
    let (dropped, at_least, note) = if !whole {
        (None, false, Some("watched in part, while the requests are those of the whole cluster"))
    } else if of.gap {
        (None, false, Some("versions are missing because of a gap"))
    } else if collections > 0 {
        (
            Some((requests - collections).saturating_sub(all)),
            true,
            Some("it may be more, because one request deleted a whole collection"),
        )
    } else if requests < all {
        (None, false, Some("there are more versions: another API server took requests, or objects expired"))
    } else {
        (Some(requests - all), false, None)
    };
    let share = dropped.map(|dropped| share(dropped, requests));
    RequestsOf {
        resource: name.to_owned(),
        verbs,
        requests,
        versions,
        dropped,
        share,
        at_least,
        note: note.map(Cow::Borrowed),
    }
}
