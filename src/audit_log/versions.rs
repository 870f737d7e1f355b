//! Versions for the join, out of the entries of the log.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use memchr::memmem;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::join::{Missing, Names, Version};
use crate::core::json::scan::member;
use crate::core::k8s::bookkeeping;
use crate::core::k8s::managed_fields::{By, Manager};
use crate::core::model::{EntryType, Evidence};
use crate::core::wire::{Change, Entry, EntryError, apart, authors_with};

/// Time that a version takes from the API server into the log, where nothing says that it took longer.
pub(super) const WATCH_LAG_MAX: Duration = Duration::from_secs(5);
/// The part of a second that a stamp leaves out.
const CUT_MAX: SignedDuration = SignedDuration::from_micros(999_999);
/// Key that the metadata of every object in deletion has.
const DELETION_KEY: &[u8] = b"\"deletionTimestamp\"";
/// Number of objects of which a gap is remembered.
const MOST_OBJECTS: usize = 100_000;

/// Reader of versions.
#[derive(Debug)]
pub(super) struct Versions {
    /// Objects of which a version was not recorded: what their next change is from is not the version right before it.
    gapped: HashSet<Names>,
    /// Most by which the clock of an API server is ahead of ours.
    ahead: SignedDuration,
    /// Times of which versions may be missing, by the entries since the last call of [`Versions::missing`].
    missing: Vec<Missing>,
}

impl Versions {
    /// Takes the most by which the clock of an API server differs from ours.
    pub(super) fn new(skew: Duration) -> Self {
        let ahead = SignedDuration::try_from(skew).unwrap_or(SignedDuration::MAX);
        Self { gapped: HashSet::new(), ahead, missing: Vec::new() }
    }

    /// Returns the times of which versions may be missing, each once.
    pub(super) fn missing(&mut self) -> Vec<Missing> {
        std::mem::take(&mut self.missing)
    }

    /// Returns the version of an entry; none of a GAP or an ACTOR.
    ///
    /// # Errors
    /// Where the line is no entry.
    pub(super) fn take(&mut self, line: &[u8]) -> Result<Option<Version>, EntryError> {
        // Of the object little is needed, and it is most of the line.
        let (head, object) = apart(line);
        let entry = Entry::parse(&head)?;
        let names = Names {
            group: entry.group().into(),
            resource: (*entry.resource).into(),
            namespace: entry.namespace.as_deref().unwrap_or_default().into(),
            name: entry.name.as_deref().unwrap_or_default().into(),
        };
        if let Some(gap) = entry.gap().or_else(|| entry.gap_before()) {
            let read = |text: &str| text.parse::<Timestamp>().ok().map(Timestamp::as_microsecond);
            self.missing.push(Missing {
                group: entry.group().to_owned(),
                resource: entry.resource.to_string(),
                namespace: names.namespace.to_string(),
                name: names.name.to_string(),
                since: gap.since.as_deref().and_then(read).unwrap_or(i64::MIN / 4),
                until: read(&entry.time).unwrap_or(i64::MAX / 4),
            });
        }
        if entry.op == EntryType::Gap && entry.name.is_some() {
            if self.gapped.len() >= MOST_OBJECTS {
                self.gapped.clear();
            }
            self.gapped.insert(names);
            return Ok(None);
        }
        if !entry.op.is_change() {
            return Ok(None);
        }
        let is_behind_gap = self.gapped.remove(&names);
        let evidence = Evidence::ALL.into_iter().find(|one| Some(one.as_str()) == entry.evidence.as_deref());
        let evidence = evidence.unwrap_or(Evidence::Inferred);
        let is_watched = matches!(evidence, Evidence::Watched | Evidence::Recovered);
        let mut change = Change::of(&entry).ok().flatten();
        // The version that the change is from stands in the change, also where `ignore` suppressed that one.
        let was = change.as_ref().and_then(|change| {
            let step = change.patch.iter().find(|op| op.path == "/metadata/resourceVersion")?;
            serde_json::from_str::<Box<str>>(step.was?.get()).ok()
        });
        let sets_deletion = change
            .as_ref()
            .is_some_and(|change| change.patch.iter().any(|op| op.op == "add" && op.path == bookkeeping::DELETION[0]));
        let grace_shortened = change.as_ref().is_some_and(|change| {
            change.patch.iter().any(|op| op.op == "replace" && op.path == bookkeeping::DELETION[1])
        });
        let deletes = sets_deletion || entry.op == EntryType::Deleted;
        // Of a change nothing is needed where the object stays.
        let is_needed = deletes || entry.op == EntryType::Added || memmem::find(object, DELETION_KEY).is_some();
        let metadata = if is_needed { Metadata::of(object) } else { None };
        let created = metadata.as_ref().filter(|_| entry.op == EntryType::Added);
        let stamped = created.and_then(|metadata| metadata.creation_timestamp.as_ref()?.parse().ok());
        let managers = match change.as_mut() {
            Some(change) => std::mem::take(&mut change.managers),
            None => authors_with(&entry, Some(object)),
        };
        let moved = managers.iter().filter(|manager| manager.by == Some(By::Moved));
        let moved = moved.filter_map(|manager| manager.time.as_deref()?.parse().ok()).max();
        // A time that was there before is that of an earlier write.
        let is_old = |stamp: &Timestamp| change.as_ref().is_some_and(|change| !is_stamped(change, *stamp));
        let after = moved.filter(is_old).map_or(i64::MIN, Timestamp::as_microsecond);
        let moved = moved.filter(|stamp| !is_old(stamp));
        let ([earliest, latest, stored_by], agrees) =
            bounds(&entry, moved.or(stamped).filter(|_| is_watched), self.ahead);
        // A clock is wrong, or the watch was behind: requests of the time that the entry has say nothing of it.
        let evidence = if agrees { evidence } else { Evidence::Inferred };
        let earliest = earliest.max(after.min(latest));
        Ok(Some(Version {
            seq: entry.seq,
            op: entry.op,
            evidence,
            names: Arc::new(names),
            uid: entry.uid.as_deref().unwrap_or_default().into(),
            version: entry.resource_version.as_deref().unwrap_or_default().into(),
            before: was.filter(|_| is_watched && !is_behind_gap),
            managers: managers.into_iter().map(|manager| Manager { time: None, ..manager }).collect(),
            deletion_requested: sets_deletion,
            deleting: metadata.as_ref().is_some_and(Metadata::is_leaving) && !sets_deletion,
            grace_shortened,
            generated: metadata.as_ref().is_none_or(|metadata| metadata.generate_name.is_some()),
            labels: metadata.filter(|_| deletes).map(|metadata| Box::new(metadata.labels.unwrap_or_default())),
            earliest,
            latest,
            stored_by,
        }))
    }
}

/// Entry of managedFields, as far as its time goes.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Stamp {
    time: Option<String>,
}

/// Reports whether a change writes a stamp of managedFields that is later than those which it takes away, as the API server does for who
/// writes. A client that edits managedFields leaves the times as they were: Flux does so to take over what kubectl owns.
fn is_stamped(change: &Change<'_>, stamp: Timestamp) -> bool {
    let read = |path: &str, raw: Option<&RawValue>| -> Vec<Timestamp> {
        let Some(raw) = raw.map(RawValue::get) else { return Vec::new() };
        let texts = if path.ends_with("/time") {
            vec![serde_json::from_str(raw).ok()]
        } else {
            let entries =
                serde_json::from_str::<Vec<Stamp>>(raw).or_else(|_| serde_json::from_str(raw).map(|one| vec![one]));
            entries.unwrap_or_default().into_iter().map(|entry| entry.time).collect()
        };
        texts.into_iter().flatten().filter_map(|text: String| text.parse().ok()).collect()
    };
    let mut books = change.patch.iter().filter(|op| bookkeeping::is_of_managed_fields(&op.path)).peekable();
    if books.peek().is_none() {
        return true;
    }
    let (mut is_written, mut before) = (false, None);
    for op in books {
        is_written |= read(&op.path, op.value).contains(&stamp);
        before = before.max(read(&op.path, op.was).into_iter().max());
    }
    is_written && before.is_none_or(|before| stamp > before)
}

/// Metadata of an object, as far as the join needs it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    creation_timestamp: Option<String>,
    deletion_timestamp: Option<String>,
    generate_name: Option<String>,
    labels: Option<BTreeMap<String, String>>,
}

impl Metadata {
    const fn is_leaving(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    /// Reads that of an object, and nothing behind it.
    fn of(object: &[u8]) -> Option<Self> {
        const METADATA: &[u8] = b"\"metadata\":";
        let rest = &object[member(object, &[METADATA])? + METADATA.len()..];
        serde_json::Deserializer::from_slice(rest).into_iter().next()?.ok()
    }
}

/// Bounds of the time at which a version was written, and the time by which it was stored, microseconds since 1970. A stamp of the API server counts where it agrees with
/// the time of journaling: a restored object has the stamps of another time. Reports whether it does.
fn bounds(entry: &Entry<'_>, stamp: Option<Timestamp>, ahead: SignedDuration) -> ([i64; 3], bool) {
    let read = |text: &str| text.parse::<Timestamp>().ok();
    let time = read(&entry.time).unwrap_or(Timestamp::MIN);
    let between = entry.happened_between.as_ref().and_then(|[earliest, latest]| read(earliest).zip(read(latest)));
    let (earliest, latest) = between.unwrap_or((time, time));
    let widened = |by: SignedDuration| move |time: Timestamp| time.saturating_add(by).unwrap_or(time);
    let before = SignedDuration::try_from(WATCH_LAG_MAX).unwrap_or(SignedDuration::MAX).saturating_add(ahead);
    let (earliest, latest) = (earliest.saturating_sub(before).unwrap_or(earliest), widened(ahead)(latest));
    // A stamp is cut to the second.
    let second = SignedDuration::from_secs(1);
    // The part of a second that is cut off may be all that is within.
    let agrees = |stamp: &Timestamp| *stamp <= latest && stamp.saturating_add(second).unwrap_or(*stamp) >= earliest;
    let (earliest, stamped_by) = match stamp.filter(agrees) {
        Some(stamp) => (stamp, widened(CUT_MAX)(stamp).min(latest)),
        None => (earliest, latest),
    };
    ([earliest, stamped_by, latest].map(Timestamp::as_microsecond), stamp.is_none_or(|stamp| agrees(&stamp)))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn line(seq: u64, op: &str, more: &[(&str, Value)]) -> Vec<u8> {
        let mut line = json!({"v": 1, "seq": seq, "epoch": "e", "id": "i", "time": "2026-11-28T10:15:03.500000Z", "type": op,
            "cluster": {"name": "c", "uid": "u"}, "apiVersion": "v1", "kind": "ConfigMap", "resource": "configmaps",
            "namespace": "shop"});
        let (object, more): (Vec<_>, Vec<_>) = more.iter().partition(|(key, _)| *key == "object");
        more.into_iter().for_each(|(key, value)| line[*key] = value.clone());
        let mut line = line.to_string();
        // As the journal has it.
        for (_, object) in object {
            line.truncate(line.len() - 1);
            line = format!("{line},\"object\":{object}}}");
        }
        line.into_bytes()
    }

    fn change(seq: u64, was: &str, now: &str, path: &str) -> Vec<u8> {
        let patch = json!([{"op": "replace", "path": "/metadata/resourceVersion", "value": now, "was": was},
            {"op": "add", "path": path, "value": "x"}]);
        let manager = json!({"manager": "m", "operation": "Update", "time": "2026-11-28T10:15:03Z", "by": "moved"});
        let object =
            json!({"metadata": {"name": "a", "labels": {"app": "a"}, "deletionTimestamp": "2026-11-28T10:15:03Z"}});
        line(
            seq,
            "MODIFIED",
            &[
                ("name", json!("a")),
                ("uid", json!("u")),
                ("resourceVersion", json!(now)),
                ("evidence", json!("watched")),
                ("change", json!({"areas": ["data"], "patch": patch, "managers": [manager]})),
                ("object", object),
            ],
        )
    }

    /// The version before is that of the change, but behind a GAP of the object: a version that is not recorded lies between.
    #[test]
    fn the_version_before_is_right_before_or_none() {
        let gap = |name: Option<&str>| {
            let gap = ("gap", json!({"why": "oversize"}));
            name.map_or_else(
                || line(2, "GAP", std::slice::from_ref(&gap)),
                |name| line(2, "GAP", &[("name", json!(name)), gap.clone()]),
            )
        };
        for (name, between, wanted) in [
            ("nothing", None, Some("4")),
            ("a GAP of the source, behind which a list says what is there", Some(gap(None)), Some("4")),
            ("a GAP of another object", Some(gap(Some("b"))), Some("4")),
            ("a GAP of the object", Some(gap(Some("a"))), None),
        ] {
            let mut versions = Versions::new(Duration::ZERO);
            if let Some(between) = between {
                assert!(versions.take(&between).unwrap().is_none(), "{name}");
            }
            let first = versions.take(&change(3, "4", "6", "/data/a")).unwrap().unwrap();
            assert_eq!(first.before.as_deref(), wanted, "{name}");
            let next = versions.take(&change(4, "6", "7", "/data/b")).unwrap().unwrap();
            assert_eq!(next.before.as_deref(), Some("6"), "{name}");
        }
    }

    /// A stamp that the write did not set says only that the write came after it.
    #[test]
    fn a_time_that_was_there_before_is_no_time_of_the_write() {
        let second = |text: &str| format!("2026-11-28T10:15:{text}Z");
        let micros = |text: &str| second(text).parse::<Timestamp>().unwrap().as_microsecond();
        let entry = |name: &str, time: &str| json!({"manager": name, "operation": "Apply", "time": second(time), "fieldsV1": {}});
        let at = |path: &str| format!("/metadata/managedFields{path}");
        let rows = [
            (
                "its time moved",
                json!([{"op": "replace", "path": at("/0/time"), "value": second("03"), "was": second("01")}]),
                "03",
                ("03", "03.5"),
            ),
            ("it is new", json!([{"op": "add", "path": at("/1"), "value": entry("m", "03")}]), "03", ("03", "03.5")),
            ("the first", json!([{"op": "add", "path": at(""), "value": [entry("m", "03")]}]), "03", ("03", "03.5")),
            (
                "the list as a whole",
                json!([{"op": "replace", "path": at(""), "value": [entry("a", "01"), entry("m", "03")], "was": [entry("a", "01")]}]),
                "03",
                ("03", "03.5"),
            ),
            (
                "a client gives it the fields of another",
                json!([{"op": "add", "path": at("/0/fieldsV1/f:data"), "value": {}}, {"op": "remove", "path": at("/1"), "was": entry("kubectl-edit", "03")}]),
                "00",
                ("00", "03.5"),
            ),
            (
                "and they change places",
                json!([{"op": "replace", "path": at("/0/time"), "value": second("01"), "was": second("02")},
                    {"op": "replace", "path": at("/1/time"), "value": second("02"), "was": second("01")}]),
                "02",
                ("02", "03.5"),
            ),
            (
                "more fields in the same second",
                json!([{"op": "add", "path": at("/0/fieldsV1/f:data"), "value": {}}]),
                "03",
                ("03", "03.5"),
            ),
            ("long ago", json!([{"op": "add", "path": at("/0/fieldsV1/f:data"), "value": {}}]), "-9", ("-5", "03.5")),
        ];
        for (name, patch, stamp, (earliest, latest)) in rows {
            let time = |text: &str| match text.strip_prefix('-') {
                Some(before) => micros("03.5") - before.parse::<i64>().unwrap() * 1_000_000,
                None => micros(text),
            };
            let stamp = Timestamp::from_microsecond(time(stamp)).unwrap().to_string();
            let manager = json!({"manager": "m", "operation": "Apply", "time": stamp, "by": "moved"});
            let change = json!({"areas": ["data"], "patch": patch, "managers": [manager]});
            let more = [("name", json!("a")), ("uid", json!("u")), ("evidence", json!("watched")), ("change", change)];
            let version = Versions::new(Duration::ZERO).take(&line(1, "MODIFIED", &more)).unwrap().unwrap();
            assert_eq!((version.earliest, version.latest), (time(earliest), time(latest)), "{name}");
        }
    }

    /// Where the API server's stamp and the time of journaling do not fit, a clock is wrong or the watch was behind. What others asked for
    /// at the one time or the other says nothing then: an answer with the version alone does.
    #[test]
    fn a_stamp_of_another_time_leaves_nothing_but_proof() {
        let at = |second: i64| {
            let time = "2026-11-28T10:15:03Z".parse::<Timestamp>().unwrap() + SignedDuration::from_secs(second);
            time.to_string()
        };
        for (second, skew, expected) in [
            (0, 0, Evidence::Watched),
            (-5, 0, Evidence::Watched),
            (-7, 0, Evidence::Inferred),
            (-600, 0, Evidence::Inferred),
            (1, 0, Evidence::Inferred),
            (1, 1, Evidence::Watched),
            (2, 1, Evidence::Inferred),
            (2, 2, Evidence::Watched),
            (-7, 3, Evidence::Watched),
            (3600, 1, Evidence::Inferred),
        ] {
            let skew = Duration::from_secs(skew);
            let stamp = at(second);
            let patch =
                json!([{"op": "replace", "path": "/metadata/managedFields/0/time", "value": stamp, "was": at(-9000)}]);
            let manager = json!({"manager": "m", "operation": "Update", "time": stamp, "by": "moved"});
            let change = json!({"areas": ["data"], "patch": patch, "managers": [manager]});
            let more = [("name", json!("a")), ("uid", json!("u")), ("evidence", json!("watched")), ("change", change)];
            let changed = Versions::new(skew).take(&line(1, "MODIFIED", &more)).unwrap().unwrap();
            let object = json!({"metadata": {"name": "a", "creationTimestamp": stamp}});
            let more = [("name", json!("a")), ("uid", json!("u")), ("evidence", json!("watched")), ("object", object)];
            let added = Versions::new(skew).take(&line(1, "ADDED", &more)).unwrap().unwrap();
            assert_eq!((changed.evidence, added.evidence), (expected, expected), "{second} s, {skew:?}");
        }
    }

    /// A stamp of the API server bounds the time to a second, and the time of journaling from above, by as much as the clocks differ.
    #[test]
    fn a_version_is_written_in_the_second_of_its_stamp_and_before_it_is_recorded() {
        for (skew, ends) in [(0, 500_000), (100, 600_000), (1000, 999_999)] {
            let skew = Duration::from_millis(skew);
            let version = Versions::new(skew).take(&change(1, "1", "2", "/data/a")).unwrap().unwrap();
            let second = "2026-11-28T10:15:03Z".parse::<Timestamp>().unwrap().as_microsecond();
            assert_eq!((version.earliest, version.latest), (second, second + ends));
        }
        let asked =
            Versions::new(Duration::ZERO).take(&change(1, "1", "2", "/metadata/deletionTimestamp")).unwrap().unwrap();
        assert!(asked.deletion_requested && !asked.deleting);
        let labels = asked.labels.expect("the selector of a collection is compared with them");
        assert_eq!(labels.get("app").map(String::as_str), Some("a"));
        let later = Versions::new(Duration::ZERO).take(&change(1, "1", "2", "/data/a")).unwrap().unwrap();
        assert!(!later.deletion_requested && later.deleting);
    }
}
