//! The judge itself: a true log is right, and each kind of lie is caught.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::judge::*;

/// A small generator of numbers, so that a seed names a run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// A history of two resources with a few names each, that come, change, go and come again.
fn history(dice: &mut Dice, length: u64) -> Vec<Row> {
    let mut alive: BTreeMap<(String, Key), u64> = BTreeMap::new();
    (1..=length)
        .map(|rev| {
            let resource = ["pods", "deployments.apps"][usize::from(dice.roll(2) == 1)].to_owned();
            let key = ("shop".to_owned(), format!("o{}", dice.roll(6)));
            let object = (resource.clone(), key.clone());
            let (kind, created) = match alive.get(&object).copied() {
                None => (Kind::Added, rev),
                Some(created) if dice.roll(3) == 0 => (Kind::Deleted, created),
                Some(created) => (Kind::Modified, created),
            };
            if kind == Kind::Deleted {
                alive.remove(&object)
            } else {
                alive.insert(object, created)
            };
            let uid = uid(&resource, &key, created);
            Row { rev, kind, uid, resource, key }
        })
        .collect()
}

fn uid(resource: &str, key: &Key, created: u64) -> String {
    format!("{resource}-{}-{created}", key.1)
}

/// How many of the rows before and after a gap were recovered.
const RECOVERED: usize = 5;

/// The entries of a log that lists at `first`, watches up to `lost`, and lists again at `found`. What comes right before
/// the gap and right after it is recovered.
fn log(rows: &[Row], first: u64, lost: u64, found: u64) -> Vec<Entry> {
    let mut log = Vec::new();
    for resource in ["deployments.apps", "pods"] {
        let of = |range: std::ops::RangeInclusive<u64>| {
            rows.iter().filter(move |row| row.resource == resource && range.contains(&row.rev))
        };
        let state = |at: u64| {
            let mut state = State::new();
            of(1..=at).for_each(|row| apply(&mut state, row));
            state
        };
        let old = state(lost);
        let new = state(found);
        for (key, known) in state(first) {
            log.push(entry(resource, &key, Kind::Added, "listed", &known.uid, known.rev));
        }
        let watched = of(first + 1..=lost).count().saturating_sub(if found > lost { RECOVERED } else { 0 });
        for (index, row) in of(first + 1..=lost).enumerate() {
            let evidence = if index < watched { "watched" } else { "recovered" };
            log.push(entry(resource, &row.key, row.kind, evidence, &row.uid, row.rev));
        }
        let recovered = of(first + 1..=lost).count() - watched;
        if found > lost {
            log.push(Entry {
                gap: Some(Gap {
                    why: "expired".to_owned(),
                    from: Some(lost.to_string()),
                    to: Some(found.to_string()),
                    recovered: (recovered > 0).then_some(recovered as u64),
                    ..Gap::default()
                }),
                ..entry(resource, &Key::default(), Kind::Added, "", "", 0)
            });
            for (key, known) in &old {
                if new.get(key).is_none_or(|other| other.uid != known.uid) {
                    log.push(entry(resource, key, Kind::Deleted, "inferred", &known.uid, known.rev));
                }
            }
            for (key, known) in &new {
                match old.get(key) {
                    Some(other) if other == known => {}
                    Some(other) if other.uid == known.uid => {
                        log.push(entry(resource, key, Kind::Modified, "inferred", &known.uid, known.rev));
                    }
                    _ => log.push(entry(resource, key, Kind::Added, "inferred", &known.uid, known.rev)),
                }
            }
        }
        for (index, row) in of(lost.max(found) + 1..=u64::MAX).enumerate() {
            let evidence = if index < RECOVERED && found > lost { "recovered" } else { "watched" };
            log.push(entry(resource, &row.key, row.kind, evidence, &row.uid, row.rev));
        }
    }
    number(&mut log);
    log
}

fn entry(resource: &str, key: &Key, kind: Kind, evidence: &str, uid: &str, rev: u64) -> Entry {
    let (plural, api_version) = match resource.split_once('.') {
        Some((plural, group)) => (plural, format!("{group}/v1")),
        None => (resource, "v1".to_owned()),
    };
    Entry {
        v: 1,
        kind: kind.to_string(),
        evidence: evidence.to_owned(),
        api_version,
        resource: plural.to_owned(),
        namespace: key.0.clone(),
        name: key.1.clone(),
        uid: uid.to_owned(),
        resource_version: rev.to_string(),
        ..Entry::default()
    }
}

/// Gives a log the numbers, ids, objects and changes that a journal would.
fn number(log: &mut [Entry]) {
    renumber(log, None);
}

/// The same of a log that has all of them, where only what these objects went through has changed.
fn renumber(log: &mut [Entry], touched: Option<&BTreeSet<Key>>) {
    let mut last: HashMap<(String, Key), Value> = HashMap::new();
    for (index, entry) in log.iter_mut().enumerate() {
        entry.seq = index as u64 + 1;
        if touched.is_some_and(|touched| entry.gap.is_none() && !touched.contains(&entry.key())) {
            continue;
        }
        entry.v = 1;
        entry.epoch = "e".to_owned();
        entry.time = "2000-01-01T00:00:00.000000Z".to_owned();
        entry.cluster = BTreeMap::from(["name", "uid"].map(|key| (key.to_owned(), key.to_owned())));
        if entry.gap.is_some() {
            entry.kind = "GAP".to_owned();
            entry.id = format!("e.{}", entry.seq);
            continue;
        }
        entry.id = format!("{}.{}.{}", entry.uid, entry.resource_version, entry.kind);
        let object = (entry.full_resource(), entry.key());
        let mut value = json!({
            "metadata": {
                "namespace": entry.namespace, "name": entry.name, "uid": entry.uid, "resourceVersion": entry.resource_version,
            },
            "data": {"n": entry.rv()},
        });
        let before = last.remove(&object);
        entry.change = before.as_ref().filter(|_| entry.kind == "MODIFIED").map(|before| Change {
            managers: Vec::new(),
            areas: vec!["data".to_owned()],
            patch: vec![
                json!({"op": "replace", "path": "/data/n", "value": value["data"]["n"], "was": before["data"]["n"]}),
                json!({
                    "op": "replace", "path": "/metadata/resourceVersion",
                    "value": entry.resource_version, "was": before["metadata"]["resourceVersion"],
                }),
            ],
        });
        if entry.kind != "DELETED" {
            last.insert(object, value.clone());
        } else if let Some(before) = before {
            value["data"] = before["data"].clone();
        }
        entry.object = Some(raw(&value));
    }
}

fn raw(value: &Value) -> Box<RawValue> {
    serde_json::value::to_raw_value(value).unwrap()
}

fn scope() -> Scope {
    Scope { late: false, started: 10, upto: u64::MAX, namespaces: None, resources: None }
}

fn caught(rows: &[Row], log: &[Entry], what: &str) {
    assert!(!judge(rows, None, log, &scope()).is_right(), "the judge has to catch: {what}");
}

#[test]
fn a_true_log_is_right() {
    for seed in 0..200 {
        let mut dice = Dice(seed);
        let rows = history(&mut dice, 120);
        for (lost, found) in [(120, 120), (60, 80), (20, 119), (20, 20)] {
            let log = log(&rows, 20, lost, found);
            let verdict = judge(&rows, None, &log, &scope());
            assert!(verdict.is_right(), "seed {seed}, gap {lost} to {found}:\n{verdict}");
        }
    }
}

#[test]
fn a_log_that_is_not_finished_is_behind_and_not_wrong() {
    for seed in 0..50 {
        let rows = history(&mut Dice(seed), 120);
        let whole = log(&rows, 20, 60, 80);
        let mut one: Vec<Entry> = whole.iter().filter(|entry| entry.resource == "pods").cloned().collect();
        number(&mut one);
        let scope = Scope { resources: Some(BTreeSet::from(["pods".to_owned()])), ..scope() };
        // Where the log breaks off between the row before a gap and the GAP itself, or inside a list that the
        // entries so far already explain, it is only late.
        for length in 0..one.len() {
            let verdict = judge(&rows, None, &one[..length], &scope);
            assert!(verdict.wrong.is_empty(), "seed {seed}, {length} entries:\n{verdict}");
        }
    }
}

#[test]
fn every_break_of_a_true_log_is_caught() {
    for seed in 0..4 {
        let rows = history(&mut Dice(seed), 120);
        let both = log(&rows, 20, 60, 80);
        // No break of one source concerns the other, so each is judged by itself.
        for resource in ["deployments", "pods"] {
            let mut good: Vec<Entry> = both.iter().filter(|entry| entry.resource == resource).cloned().collect();
            number(&mut good);
            every_break_is_caught(seed, &rows, &good);
        }
    }
}

fn every_break_is_caught(seed: u64, rows: &[Row], good: &[Entry]) {
    let resources = Some(BTreeSet::from([good[0].full_resource()]));
    let scope = Scope { resources, ..scope() };
    let verdict = judge(rows, None, good, &scope);
    assert!(verdict.is_right(), "seed {seed}:\n{verdict}");
    let caught = |log: &[Entry], what: &str| {
        assert!(!judge(rows, None, log, &scope).is_right(), "the judge has to catch: {what}");
    };
    for at in 0..good.len() {
        let victim = &good[at];
        let touched: BTreeSet<Key> = good[at..].iter().take(2).map(Entry::key).collect();
        let broken = |edit: &dyn Fn(&mut Vec<Entry>)| {
            let mut log = good.to_vec();
            edit(&mut log);
            renumber(&mut log, Some(&touched));
            log
        };
        assert!(at > 0 || judge(rows, None, &broken(&|_| ()), &scope).is_right(), "a log that is not broken");
        let name = |what: &str| format!("{what}, seed {seed}, {} {victim}", victim.resource);
        caught(&broken(&|log| drop(log.remove(at))), &name("dropped"));
        caught(&broken(&|log| log.insert(at, victim.clone())), &name("duplicated"));
        caught(&broken(&|log| log[at].api_version = "other/v1".to_owned()), &name("other group"));
        if victim.gap.is_some() {
            let gap = |edit: &dyn Fn(&mut Gap)| broken(&|log| edit(log[at].gap.as_mut().unwrap()));
            caught(&gap(&|gap| gap.from = Some("75".to_owned())), &name("gap begins too late"));
            caught(&gap(&|gap| gap.to = Some("200".to_owned())), &name("gap ends too late"));
            caught(&gap(&|gap| gap.to = None), &name("gap without end"));
            caught(&gap(&|gap| gap.recovered = Some(6)), &name("more was recovered"));
            caught(&gap(&|gap| gap.recovered = Some(0)), &name("nothing was recovered"));
            continue;
        }
        let kinds = ["ADDED", "MODIFIED", "DELETED"];
        for kind in kinds.into_iter().filter(|kind| *kind != victim.kind) {
            caught(&broken(&|log| log[at].kind = kind.to_owned()), &name(kind));
        }
        // A list that is one row longer or shorter can be true as well.
        let edge = |index: Option<usize>, evidence: &str| {
            index
                .and_then(|index| good.get(index))
                .is_none_or(|other| other.evidence != evidence || other.resource != victim.resource)
        };
        let first_watched = victim.is_seen() && !edge(at.checked_sub(1), "listed");
        let last_listed = victim.evidence == "listed" && edge(Some(at + 1), "listed");
        // What was recovered is told as if it was watched.
        let same = |word: &str| word == victim.evidence || victim.is_seen() && ["watched", "recovered"].contains(&word);
        let others = ["watched", "recovered", "listed", "inferred"].into_iter().filter(|word| !same(word));
        for evidence in others.filter(|word| *word == "inferred" || !(first_watched || last_listed)) {
            caught(&broken(&|log| log[at].evidence = evidence.to_owned()), &name(evidence));
        }
        caught(&broken(&|log| log[at].uid = "another".to_owned()), &name("other uid"));
        caught(&broken(&|log| log[at].resource_version = "9999".to_owned()), &name("other version"));
        // Inside one list or one difference only the order per object matters.
        let neighbour = good.get(at + 1).filter(|next| next.resource == victim.resource);
        if neighbour.is_some_and(|next| next.evidence != victim.evidence || next.is_seen()) {
            caught(&broken(&|log| log.swap(at, at + 1)), &name("reordered"));
        }
    }
}

#[test]
fn breaks_of_the_numbering_are_caught() {
    let rows = history(&mut Dice(1), 120);
    let good = log(&rows, 20, 60, 80);
    type Edit = (&'static str, fn(&mut Entry));
    let edits: [Edit; 12] = [
        ("seq", |entry| entry.seq += 1),
        ("id", |entry| entry.id += "x"),
        ("epoch", |entry| entry.epoch += "x"),
        ("time", |entry| entry.time = "2000-01-01T00:00:00Z".to_owned()),
        ("time that goes back", |entry| entry.time = "1999-01-01T00:00:00.000000Z".to_owned()),
        ("cluster", |entry| entry.cluster.clear()),
        ("v", |entry| entry.v = 2),
        ("object", |entry| entry.object = None),
        ("other object", |entry| entry.object = Some(raw(&json!({})))),
        ("malformed", |entry| entry.malformed = Some("keys".to_owned())),
        ("an addition has no change", |entry| {
            entry.kind = "ADDED".to_owned();
            entry.id = format!("{}.{}.ADDED", entry.uid, entry.resource_version);
            entry.change = Some(Change::default());
        }),
        ("other version inside", |entry| {
            let mut object = entry.value().unwrap();
            object["metadata"]["resourceVersion"] = json!("1");
            entry.object = Some(raw(&object));
        }),
    ];
    for (what, edit) in edits {
        let mut log = good.clone();
        edit(log.iter_mut().rfind(|entry| entry.gap.is_none()).unwrap());
        caught(&rows, &log, what);
    }
}

#[test]
fn breaks_of_what_entries_carry_are_caught() {
    let rows = history(&mut Dice(1), 120);
    let good = log(&rows, 20, 60, 80);
    let spoil = |kind: &str, evidence: &str, what: &str, edit: fn(&mut Entry)| {
        let mut log = good.clone();
        edit(log.iter_mut().rfind(|entry| entry.kind == kind && entry.evidence == evidence).unwrap());
        caught(&rows, &log, what);
    };
    for evidence in ["watched", "recovered", "inferred"] {
        spoil("DELETED", evidence, "an older state", |entry| {
            let mut object = entry.value().unwrap();
            object["data"] = json!({"n": 0});
            entry.object = Some(raw(&object));
        });
        spoil("MODIFIED", evidence, "no change", |entry| entry.change = None);
        spoil("MODIFIED", evidence, "no areas", |entry| entry.change.as_mut().unwrap().areas.clear());
        spoil("MODIFIED", evidence, "too many areas", |entry| {
            entry.change.as_mut().unwrap().areas.push("spec".to_owned());
        });
        spoil("MODIFIED", evidence, "no patch", |entry| entry.change.as_mut().unwrap().patch.clear());
        spoil("MODIFIED", evidence, "another patch", |entry| {
            entry.change.as_mut().unwrap().patch[0]["value"] = json!(0);
        });
        spoil("MODIFIED", evidence, "another was", |entry| {
            entry.change.as_mut().unwrap().patch[0]["was"] = json!(0);
        });
    }
}

#[test]
fn patches_are_applied_as_the_rfc_says() {
    let mut document = json!({"a": [1, 2, 3], "b/c": {"~": 1}});
    let patch = json!([
        {"op": "remove", "path": "/a/1", "was": 2},
        {"op": "add", "path": "/a/-", "value": 4},
        {"op": "add", "path": "/a/0", "value": 0},
        {"op": "replace", "path": "/b~1c/~0", "value": 2, "was": 1},
    ]);
    apply_patch(&mut document, patch.as_array().unwrap()).unwrap();
    assert_eq!(document, json!({"a": [0, 1, 3, 4], "b/c": {"~": 2}}));
    for wrong in [
        json!({"op": "remove", "path": "/x", "was": 1}),
        json!({"op": "remove", "path": "/a/0"}),
        json!({"op": "replace", "path": "/a/9", "value": 1, "was": 1}),
        json!({"op": "add", "path": "/a/9", "value": 1}),
        json!({"op": "frobnicate", "path": "/a/0", "was": 0}),
    ] {
        assert!(apply_patch(&mut document.clone(), std::slice::from_ref(&wrong)).is_err(), "{wrong}");
    }
}

#[test]
fn lines_are_read_and_their_keys_have_an_order() {
    let line = |keys: &str| Entry::parse(&format!("{{{keys}}}"));
    assert_eq!(line(r#""v":1,"seq":7,"epoch":"e","object":{"z":1,"a":2}"#).malformed, None);
    for wrong in [r#""seq":7,"v":1"#, r#""v":1,"v":1"#, r#""v":1,"new":1"#, r#""v":1,"seq":"#, r#""v":"1""#] {
        assert!(line(wrong).malformed.is_some(), "{wrong}");
    }
}

#[test]
fn a_restore_leads_from_one_truth_to_the_other() {
    let row = |rev, kind, uid: &str, name: &str| Row {
        rev,
        kind,
        uid: uid.to_owned(),
        resource: "pods".to_owned(),
        key: (String::new(), name.to_owned()),
    };
    let line = |name: &str, kind, evidence, uid: &str, rev| {
        entry("pods", &(String::new(), name.to_owned()), kind, evidence, uid, rev)
    };
    let kept = [row(11, Kind::Added, "a1", "a"), row(12, Kind::Added, "b1", "b")];
    let lost = [row(13, Kind::Modified, "a1", "a"), row(14, Kind::Deleted, "b1", "b"), row(15, Kind::Added, "c1", "c")];
    let new = [row(13, Kind::Added, "c2", "c"), row(14, Kind::Modified, "b1", "b")];
    let gap = Entry {
        gap: Some(Gap {
            why: "rollback".to_owned(),
            from: Some("15".to_owned()),
            to: Some("13".to_owned()),
            ..Gap::default()
        }),
        ..line("", Kind::Added, "", "", 0)
    };
    let mut log = vec![
        line("a", Kind::Added, "watched", "a1", 11),
        line("b", Kind::Added, "watched", "b1", 12),
        line("a", Kind::Modified, "watched", "a1", 13),
        line("b", Kind::Deleted, "watched", "b1", 14),
        line("c", Kind::Added, "watched", "c1", 15),
        gap,
        line("a", Kind::Modified, "inferred", "a1", 11),
        line("b", Kind::Added, "inferred", "b1", 12),
        line("c", Kind::Deleted, "inferred", "c1", 15),
        line("c", Kind::Added, "inferred", "c2", 13),
        line("b", Kind::Modified, "watched", "b1", 14),
    ];
    number(&mut log);
    let (before, after) = ([&kept[..], &lost].concat(), [&kept[..], &new].concat());
    let verdict = judge(&before, Some(&after), &log, &scope());
    assert!(verdict.is_right(), "{verdict}");
    for at in 0..log.len() {
        let mut log = log.clone();
        log.remove(at);
        number(&mut log);
        assert!(!judge(&before, Some(&after), &log, &scope()).is_right(), "one entry less: {at}");
    }
}

#[test]
fn a_resource_that_went_and_came_again_is_judged() {
    let row = |rev, kind, created, name: &str| Row {
        rev,
        kind,
        uid: format!("{name}{created}"),
        resource: "widgets.example.com".to_owned(),
        key: (String::new(), name.to_owned()),
    };
    let rows = [
        row(11, Kind::Added, 11, "a"),
        row(12, Kind::Added, 12, "b"),
        row(13, Kind::Deleted, 11, "a"),
        row(14, Kind::Deleted, 12, "b"),
        row(20, Kind::Added, 20, "a"),
        row(21, Kind::Modified, 20, "a"),
    ];
    let line = |name: &str, kind, evidence, created: u64, rev| {
        let key = (String::new(), name.to_owned());
        entry("widgets.example.com", &key, kind, evidence, &format!("{name}{created}"), rev)
    };
    let gone = Entry {
        gap: Some(Gap { why: "scope".to_owned(), from: Some("13".to_owned()), ..Gap::default() }),
        ..line("", Kind::Added, "", 0, 0)
    };
    let mut log = vec![
        line("a", Kind::Added, "watched", 11, 11),
        line("b", Kind::Added, "watched", 12, 12),
        line("a", Kind::Deleted, "watched", 11, 13),
        gone,
        line("b", Kind::Deleted, "inferred", 12, 12),
        line("a", Kind::Added, "listed", 20, 20),
        line("a", Kind::Modified, "watched", 20, 21),
    ];
    number(&mut log);
    let verdict = judge(&rows, None, &log, &scope());
    assert!(verdict.is_right(), "{verdict}");
    for at in 0..log.len() {
        let mut log = log.clone();
        log.remove(at);
        number(&mut log);
        caught(&rows, &log, "one entry less");
    }
}
