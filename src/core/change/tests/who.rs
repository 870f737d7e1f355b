//! Who made a change, by managedFields as the API server keeps them.

use serde_json::{Value, json};

use super::check;
use crate::core::change::{compare, compare_shaped};

/// An entry of managedFields: `kubectl Update scale`, when, and what it has.
fn entry(who: &str, time: u8, fields: Value) -> Value {
    let mut parts = who.split(' ');
    let mut part = || parts.next().unwrap_or_default();
    let (manager, operation, subresource) = (part(), part(), part());
    json!({"manager": manager, "operation": operation, "apiVersion": "apps/v1", "time": format!("2026-11-22T10:00:{time:02}Z"),
        "fieldsType": "FieldsV1", "fieldsV1": fields, "subresource": subresource})
}

fn object(entries: &[Value], rest: Value) -> String {
    let mut object = rest;
    object["metadata"]["managedFields"] = json!(entries);
    object.to_string()
}

/// Those that a change from one to the other names: `moved kubectl Update scale`.
#[track_caller]
fn who(old: &str, new: &str) -> Vec<String> {
    let change = check(old, new);
    // What is known of the object from before makes no difference.
    let (_, shape) = compare_shaped(old.as_bytes(), None, old.as_bytes(), &[], &[]).unwrap();
    assert_eq!(compare_shaped(old.as_bytes(), Some(&shape), new.as_bytes(), &[], &[]).unwrap().0, change);
    let json: Value = serde_json::from_str(&change.json).unwrap();
    let one = |manager: &Value| {
        let text = |name: &str| manager[name].as_str().unwrap_or_default();
        [text("by"), text("manager"), text("operation"), text("subresource")].join(" ").trim_end().to_owned()
    };
    json["managers"].as_array().unwrap().iter().map(one).collect()
}

fn has(names: &[&str]) -> Value {
    Value::Object(names.iter().map(|name| (format!("f:{name}"), json!({}))).collect())
}

/// Owners are cached with the shape of a version. This is the only test of when they are not right any more.
#[test]
fn owners_of_a_repeated_change_are_those_of_its_managed_fields() {
    let version = |manager: &str, time: u8, replicas: u8, other: u8| {
        let entries = [
            entry(&format!("{manager} Update"), time, json!({"f:spec": has(&["replicas"])})),
            entry("other Apply", 1, json!({"f:data": has(&["other"])})),
        ];
        object(&entries, json!({"spec": {"replicas": replicas}, "data": {"other": other}}))
    };
    let versions = [
        version("a", 1, 1, 1),
        version("a", 1, 2, 1),
        version("a", 1, 3, 1),
        // Its time moves, and then the same value again.
        version("a", 2, 3, 1),
        version("a", 2, 4, 1),
        // Another value, both, and the first one.
        version("a", 2, 4, 2),
        version("a", 2, 5, 3),
        version("a", 2, 6, 3),
        // Another manager has it.
        version("b", 2, 6, 3),
        version("b", 2, 7, 3),
    ];
    let mut shape = None;
    for (old, new) in versions.iter().zip(&versions[1..]) {
        let (old, new) = (old.as_bytes(), new.as_bytes());
        let (change, next) = compare_shaped(old, shape.as_ref(), new, &[], &[]).unwrap();
        assert_eq!(change, compare(old, new, &[], &[]).unwrap());
        shape = Some(next);
    }
}

/// Nobody checks what an API server puts there; an entry's schema has texts alone.
#[test]
fn managers_of_any_type_are_written_as_texts_or_not_at_all() {
    let odd = [json!(null), json!(5), json!([]), json!(["x"]), json!({}), json!({"a": 1}), json!(true), json!(1.5e300)];
    let fields = ["manager", "operation", "subresource", "time", "apiVersion", "fieldsType", "fieldsV1"];
    let old = object(&[], json!({"spec": {"replicas": 1}}));
    let mut cases: Vec<(String, Value)> = Vec::new();
    for value in &odd {
        // The list itself, an element of it, and each member of an element.
        cases.push((format!("managedFields {value}"), value.clone()));
        cases.push((format!("element {value}"), json!([value])));
        for field in fields {
            let mut one = entry("m Update scale", 9, json!({"f:spec": has(&["replicas"])}));
            one[field] = value.clone();
            cases.push((format!("{field} {value}"), json!([one])));
        }
    }
    for (case, managed) in cases {
        let mut new = json!({"spec": {"replicas": 2}});
        new["metadata"]["managedFields"] = managed;
        for (before, after) in [(&old, &new.to_string()), (&new.to_string(), &old)] {
            let change = compare(before.as_bytes(), after.as_bytes(), &[], &[]).unwrap();
            let json: Value = serde_json::from_str(&change.json).unwrap();
            for manager in json["managers"].as_array().unwrap() {
                let members = manager.as_object().unwrap();
                assert!(!members.is_empty() && members.values().all(Value::is_string), "{case}: {manager}");
            }
            serde_json::from_str::<crate::core::wire::Change<'_>>(&change.json).expect(&case);
        }
    }
    // What no text can hold, and what is to be escaped.
    let raw = r#"{"metadata":{"managedFields":[{"manager":"a\ud800\u0007\"b","time":"t","fieldsV1":{"f:spec":{}}}]},"spec":1}"#;
    let change = compare(br#"{"spec":2}"#, raw.as_bytes(), &[], &[]).unwrap();
    let read: crate::core::wire::Change<'_> = serde_json::from_str(&change.json).unwrap();
    assert_eq!(read.managers[0].manager, "a\u{fffd}\u{7}\"b");
}

#[test]
fn the_writer_gained_or_moved_its_time_and_a_loser_did_neither() {
    let replicas = |n: u8| json!({"spec": {"replicas": n, "paused": true}});
    let both = json!({"f:spec": has(&["replicas", "paused"])});
    let old = object(&[entry("creator Update", 1, both.clone())], replicas(1));
    // Another takes a field over.
    let taken = [
        entry("creator Update", 1, json!({"f:spec": has(&["paused"])})),
        entry("kubectl Update scale", 9, json!({"f:spec": has(&["replicas"])})),
    ];
    assert_eq!(who(&old, &object(&taken, replicas(2))), ["moved kubectl Update scale"]);
    // In the second of the creation, too.
    let taken = [taken[0].clone(), entry("kubectl Update scale", 1, json!({"f:spec": has(&["replicas"])}))];
    assert_eq!(who(&old, &object(&taken, replicas(2))), ["moved kubectl Update scale"]);
    // It takes its field back, within one second: its set grew, and the other one is gone.
    assert_eq!(
        who(&object(&taken, replicas(2)), &old.replace("\"replicas\":1", "\"replicas\":3")),
        ["moved creator Update"]
    );
    // The time alone, as of an apply that removes a field that it had.
    let less =
        object(&[entry("creator Update", 5, json!({"f:spec": has(&["replicas"])}))], json!({"spec": {"replicas": 1}}));
    assert_eq!(who(&old, &less), ["moved creator Update"]);
    // The same subresource of another version of the API is another entry.
    let mut beta = entry("creator Update", 1, both);
    beta["apiVersion"] = json!("apps/v1beta1");
    assert_eq!(who(&old, &object(&[beta], replicas(4))), ["moved creator Update"]);
}

/// The creator of a Namespace owns its phase, which the API server changes when somebody deletes it.
#[test]
fn a_deletion_is_no_write_of_an_owner() {
    let phase = entry("kubectl-create Update", 1, json!({"f:status": has(&["phase"])}));
    let namespace = |deleted: &[(&str, Value)], phase_is: &str, more: &str| {
        let mut rest = json!({"metadata": {"name": "shop"}, "status": {"phase": phase_is}, "spec": {}});
        // More values than are looked up stand before it.
        rest["aaa"] = Value::Object((0..20).map(|n| (format!("k{n}"), json!(more))).collect());
        for (key, value) in deleted {
            rest["metadata"][key] = value.clone();
        }
        object(std::slice::from_ref(&phase), rest)
    };
    let old = namespace(&[], "Active", "x");
    assert_eq!(who(&old, &namespace(&[], "Terminating", "x")), ["owner kubectl-create Update"]);
    let deleted = [("deletionTimestamp", json!("2026-11-22T10:05:30Z")), ("deletionGracePeriodSeconds", json!(30))];
    assert_eq!(who(&old, &namespace(&deleted, "Terminating", "y")), [""; 0]);
    // The kubelet asks once more, without grace.
    let sooner = [deleted[0].clone(), ("deletionGracePeriodSeconds", json!(0))];
    assert_eq!(who(&namespace(&deleted, "Active", "x"), &namespace(&sooner, "Terminating", "x")), [""; 0]);
}

#[test]
fn where_nothing_moved_it_is_the_owner_of_what_changed() {
    let books = [
        entry(
            "creator Update",
            1,
            json!({"f:spec": has(&["paused"]), "f:metadata": {"f:labels": {".": {}, "f:a": {}}}}),
        ),
        entry("kubectl Update scale", 2, json!({"f:spec": has(&["replicas"])})),
        entry(
            "kubelet Update status",
            3,
            json!({"f:status": {"f:conditions": {"k:{\"type\":\"Ready\"}": {".": {}, "f:status": {}}}}}),
        ),
        entry("keeper Apply", 4, json!({"f:metadata": {"f:finalizers": {"v:\"x\"": {}}}})),
    ];
    let with = |replicas: u8, ready: &str, label: &str| {
        let conditions = json!([{"type": "Other", "status": "?"}, {"type": "Ready", "status": ready}]);
        object(
            &books,
            json!({"metadata": {"labels": {"a": label}}, "spec": {"replicas": replicas, "paused": false}, "status": {"conditions": conditions}}),
        )
    };
    let old = with(1, "False", "x");
    assert_eq!(who(&old, &with(2, "False", "x")), ["owner kubectl Update scale"]);
    assert_eq!(who(&old, &with(1, "True", "x")), ["owner kubelet Update status"]);
    assert_eq!(who(&old, &with(1, "False", "y")), ["owner creator Update"]);
    // No single write changes what different managers have.
    assert_eq!(who(&old, &with(2, "False", "y")), ["owner creator Update", "owner kubectl Update scale"]);
    // What nobody has, such as what the API server sets itself, and what was removed.
    assert_eq!(who(&old, &old.replace(r#""status":"?""#, r#""status":"!""#)), [""; 0]);
    assert_eq!(who(&old, &old.replace(r#","paused":false"#, "")), [""; 0]);
    assert_eq!(who(&old, &old.replace(r#""replicas":1"#, r#""replicas":1,"other":2"#)), [""; 0]);
    assert_eq!(who(&old, &old), [""; 0]);
}

#[test]
fn what_is_left_of_a_set_owns_nothing() {
    let data = |x: &str| json!({"data": {"x": x}});
    let own = json!({"f:data": {".": {}, "f:x": {}}});
    let created = object(&[entry("kubectl-create Update", 1, own)], data("1"));
    // FieldsV1 writes a set of nothing but the map itself as it writes a value that is owned as a whole.
    let books = |time| {
        [
            entry("kubectl-create Update", 1, json!({"f:data": {}})),
            entry("kubectl-patch Update", time, json!({"f:data": {"f:x": {}}})),
        ]
    };
    assert_eq!(who(&created, &object(&books(1), data("2"))), ["moved kubectl-patch Update"]);
    assert_eq!(who(&object(&books(1), data("2")), &object(&books(1), data("3"))), ["owner kubectl-patch Update"]);
    // What nobody goes into the parts of is owned as a whole.
    let whole = |x: &str| {
        object(
            &[entry("creator Update", 1, json!({"f:spec": {"f:selector": {}}}))],
            json!({"spec": {"selector": {"a": x}}}),
        )
    };
    assert_eq!(who(&whole("1"), &whole("2")), ["owner creator Update"]);
    // An entry without a field owns nothing, and several may own one value.
    let none = |x: &str| {
        object(
            &[
                entry("a Update", 1, json!({})),
                entry("b Apply", 1, json!({"f:data": has(&["x"])})),
                entry("c Apply", 1, json!({"f:data": has(&["x"])})),
            ],
            data(x),
        )
    };
    assert_eq!(who(&none("1"), &none("2")), ["owner b Apply", "owner c Apply"]);
}

#[test]
fn names_that_the_api_server_gives_are_no_writers() {
    let data = |x: &str| json!({"data": {"x": x, "y": "1"}});
    let old = object(&[], data("1"));
    let new = [
        entry("applier Apply", 2, json!({"f:data": has(&["x"])})),
        entry("before-first-apply Update", 2, json!({"f:data": has(&["y"])})),
    ];
    assert_eq!(who(&old, &object(&new, data("2"))), ["moved applier Apply"]);
    let merged = [
        entry("ancient-changes Update", 1, json!({"f:data": has(&["y"])})),
        entry("eleventh Update", 2, json!({"f:data": has(&["x"])})),
    ];
    assert_eq!(who(&old, &object(&merged, data("2"))), ["moved eleventh Update"]);
}

#[test]
fn an_entry_that_stands_elsewhere_did_not_write() {
    let entries = |second: &str| {
        [
            entry("a Update", 1, json!({"f:data": has(&["x"])})),
            entry(second, 1, json!({"f:data": has(&["y"])})),
            entry("c Apply", 2, json!({"f:data": has(&["z"])})),
        ]
    };
    let data = |x: &str| json!({"data": {"x": x, "y": "1", "z": "1"}});
    let [a, b, c] = entries("b Apply");
    let old = object(&[a.clone(), b.clone(), c.clone()], data("1"));
    assert_eq!(who(&old, &object(&[c, a, b], data("2"))), ["owner a Update"]);
}

#[test]
fn what_is_not_as_the_api_server_writes_it_does_no_harm() {
    for books in [
        json!(null),
        json!({}),
        json!([1, "x", [], {}]),
        json!([{"manager": 1, "fieldsV1": []}]),
        json!([{"manager": "m", "fieldsV1": {"f:data": 1}}]),
    ] {
        let with = |x: u8| json!({"metadata": {"managedFields": books}, "data": {"x": x}}).to_string();
        assert_eq!(who(&with(1), &with(2)), [""; 0], "{books}");
    }
    let deep = |x: u8| format!("{}{x}{}", r#"{"f:a":"#.repeat(3000), "}".repeat(3000));
    let with =
        |x: u8| format!(r#"{{"metadata":{{"managedFields":[{{"manager":"m","fieldsV1":{}}}]}},"data":{x}}}"#, deep(x));
    let change = compare(with(1).as_bytes(), with(2).as_bytes(), &[], &[]).unwrap();
    assert!(change.json.ends_with(r#""managers":[{"manager":"m","by":"moved"}]}"#), "{}", change.json);
}

/// Whoever may write one object may write one of a hundred thousand fields, and of thousands of managers.
#[test]
fn thousands_of_fields_and_managers_cost_no_more_than_their_number() {
    let fields = |count: usize, from: usize| {
        let names: Vec<String> = (from..count).map(|n| format!(r#""f:k{n:06}":{{}}"#)).collect();
        format!(r#"{{"manager":"m","time":"t","fieldsV1":{{"f:data":{{{}}}}}}}"#, names.join(","))
    };
    let taken = |count: usize| {
        // One field is another's now.
        let with = |from: usize, x: u8| {
            format!(r#"{{"metadata":{{"managedFields":[{}]}},"data":{{"k000000":{x}}}}}"#, fields(count, from))
        };
        (with(0, 1), with(1, 2))
    };
    let managers = |count: usize| {
        let with = |time: u8| {
            let entries: Vec<String> = (0..count)
                .map(|n| {
                    format!(r#"{{"manager":"m{n}","operation":"Apply","time":"{time}","fieldsV1":{{"f:a":{{}}}}}}"#)
                })
                .collect();
            format!(r#"{{"metadata":{{"managedFields":[{}]}},"a":{time}}}"#, entries.join(","))
        };
        (with(1), with(2))
    };
    // Other tests run beside this one: only this thread's own time counts, in nanoseconds.
    let spent = || {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        time.tv_sec * 1_000_000_000 + time.tv_nsec
    };
    let cost = |(old, new): (String, String)| {
        let once = || {
            let begin = spent();
            compare(old.as_bytes(), new.as_bytes(), &[], &[]).unwrap();
            spent() - begin
        };
        (0..3).map(|_| once()).min().unwrap()
    };
    // Four times as many cost about four times as much, and 16 times where each is looked for among all. Both are so long that
    // their values are counted first.
    assert!(cost(taken(52_000)) < cost(taken(13_000)) * 12);
    assert!(cost(managers(12_000)) < cost(managers(3_000)) * 12);
}
