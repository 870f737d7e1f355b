use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

mod heavy;
mod who;

/// A plain RFC 6902, which knows nothing of `was`; what it finds there is checked all the same.
fn apply(document: &mut Value, patch: &Value) {
    for operation in patch.as_array().unwrap() {
        let path = operation["path"].as_str().unwrap();
        let kind = operation["op"].as_str().unwrap();
        if kind == "move" {
            let place = |pointer: &str| {
                pointer.rsplit_once('/').map(|(list, at)| (list.to_owned(), at.parse::<usize>().unwrap()))
            };
            let (from, to) = (place(operation["from"].as_str().unwrap()).unwrap(), place(path).unwrap());
            assert!(from.0 == to.0 && from.1 != to.1, "{operation}");
            let list = document.pointer_mut(&from.0).unwrap().as_array_mut().unwrap();
            let element = list.remove(from.1);
            list.insert(to.1, element);
            continue;
        }
        if kind != "add" {
            let was = &operation["was"];
            assert_eq!(document.pointer(path).unwrap_or_else(|| panic!("nothing at {path}")), was, "was at {path}");
        }
        let Some((parent, name)) = path.rsplit_once('/') else {
            *document = operation["value"].clone();
            continue;
        };
        let name = crate::core::json::pointer::unescape(name).unwrap();
        let parent = document.pointer_mut(parent).unwrap_or_else(|| panic!("no parent of {path}"));
        match (parent, kind) {
            (Value::Object(map), "remove") => assert!(map.remove(name.as_ref()).is_some(), "{path}"),
            (Value::Object(map), "replace") => {
                assert!(map.insert(name.into_owned(), operation["value"].clone()).is_some(), "{path}");
            }
            (Value::Object(map), _) => {
                assert!(map.insert(name.into_owned(), operation["value"].clone()).is_none(), "{path} is there");
            }
            (Value::Array(list), "remove") => drop(list.remove(name.parse().unwrap())),
            (Value::Array(list), "replace") => list[name.parse::<usize>().unwrap()] = operation["value"].clone(),
            (Value::Array(list), _) => list.insert(name.parse().unwrap(), operation["value"].clone()),
            (other, _) => panic!("{path} is below {other}"),
        }
    }
}

/// Compares, and checks what has to hold for every pair.
fn check(old: &str, new: &str) -> Change {
    let change = compare(old.as_bytes(), new.as_bytes(), &[], &[]).unwrap();
    let json: Value = serde_json::from_str(&change.json).unwrap();
    let mut patched: Value = serde_json::from_str(old).unwrap();
    apply(&mut patched, &json["patch"]);
    assert_eq!(patched, serde_json::from_str::<Value>(new).unwrap(), "{}", change.json);
    assert_eq!(json["areas"], json!(change.areas));
    assert!(!change.json.contains('\n'));
    change
}

/// The operations in short: `~path old -> new`, `-path`, `+path`.
fn short(change: &Change) -> Vec<String> {
    let json: Value = serde_json::from_str(&change.json).unwrap();
    let operation = |operation: &Value| {
        let path = operation["path"].as_str().unwrap();
        match operation["op"].as_str().unwrap() {
            "add" => format!("+{path} {}", operation["value"]),
            "remove" => format!("-{path} {}", operation["was"]),
            "move" => format!("{}=>{path}", operation["from"].as_str().unwrap()),
            _ => format!("~{path} {} -> {}", operation["was"], operation["value"]),
        }
    };
    json["patch"].as_array().unwrap().iter().map(operation).collect()
}

const POD: &str = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web-0","namespace":"shop","uid":"u","resourceVersion":"10","managedFields":[{"manager":"kube-scheduler","operation":"Update","apiVersion":"v1","time":"2026-11-21T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{}}},{"manager":"kubelet","operation":"Update","apiVersion":"v1","time":"2026-11-21T00:00:01Z","fieldsType":"FieldsV1","fieldsV1":{"f:status":{"f:phase":{}}},"subresource":"status"}]},"spec":{"containers":[{"name":"app","image":"shop/web:1"},{"name":"proxy","image":"envoy:1"}]},"status":{"phase":"Pending","conditions":[{"type":"PodScheduled","status":"True"},{"type":"Ready","status":"False"}]}}"#;

#[test]
fn a_status_update_of_a_pod_reads_well() {
    let new = POD
        .replace(r#""resourceVersion":"10""#, r#""resourceVersion":"11""#)
        .replace(r#""time":"2026-11-21T00:00:01Z""#, r#""time":"2026-11-21T00:00:05Z""#)
        .replace(r#"{"f:phase":{}}"#, r#"{"f:phase":{},"f:podIP":{}}"#)
        .replace(r#""phase":"Pending""#, r#""phase":"Running","podIP":"10.0.0.7""#)
        .replace(
            r#"{"type":"Ready","status":"False"}"#,
            r#"{"type":"Initialized","status":"True"},{"type":"Ready","status":"True"}"#,
        );
    let change = check(POD, &new);
    insta::assert_json_snapshot!(serde_json::from_str::<Value>(&change.json).unwrap(), @r#"
    {
      "areas": [
        "managedFields",
        "status"
      ],
      "managers": [
        {
          "by": "moved",
          "manager": "kubelet",
          "operation": "Update",
          "subresource": "status",
          "time": "2026-11-21T00:00:05Z"
        }
      ],
      "patch": [
        {
          "op": "replace",
          "path": "/metadata/resourceVersion",
          "value": "11",
          "was": "10"
        },
        {
          "op": "replace",
          "path": "/metadata/managedFields/1/time",
          "value": "2026-11-21T00:00:05Z",
          "was": "2026-11-21T00:00:01Z"
        },
        {
          "op": "add",
          "path": "/metadata/managedFields/1/fieldsV1/f:status/f:podIP",
          "value": {}
        },
        {
          "op": "replace",
          "path": "/status/phase",
          "value": "Running",
          "was": "Pending"
        },
        {
          "op": "add",
          "path": "/status/podIP",
          "value": "10.0.0.7"
        },
        {
          "op": "add",
          "path": "/status/conditions/1",
          "value": {
            "status": "True",
            "type": "Initialized"
          }
        },
        {
          "op": "replace",
          "path": "/status/conditions/2/status",
          "value": "True",
          "was": "False"
        }
      ]
    }
    "#);
    insta::assert_json_snapshot!(change.touched, @r#"
    [
      "/metadata/managedFields/1/time",
      "/metadata/managedFields/1/fieldsV1/f:status/f:podIP",
      "/status/phase",
      "/status/podIP",
      "/status/conditions/1/type",
      "/status/conditions/1/status",
      "/status/conditions/2/status"
    ]
    "#);
    // The operations come as the contract writes them, with values as they came.
    assert!(change.json.starts_with(
        r#"{"areas":["managedFields","status"],"patch":[{"op":"replace","path":"/metadata/resourceVersion","value":"11","was":"10"},"#
    ));
}

#[test]
fn a_version_that_changes_nothing_else_has_no_area_and_touches_nothing() {
    let new = POD.replace(r#""resourceVersion":"10""#, r#""resourceVersion":"11""#);
    let change = check(POD, &new);
    assert!(change.areas.is_empty() && change.touched.is_empty());
    assert_eq!(short(&change), [r#"~/metadata/resourceVersion "10" -> "11""#]);
    let pattern = [Pattern::parse("/status").unwrap()];
    assert!(matches_ignore(&pattern, &change.touched), "it touches nothing but what is ignored");
    assert!(!matches_ignore(&[], &change.touched), "nothing is ignored");
}

#[test]
fn areas_are_the_members_that_changed() {
    let areas = |old: &str, new: &str| check(old, new).areas;
    assert_eq!(areas(r#"{"spec":1,"data":{"a":1},"x~y":1}"#, r#"{"spec":1,"data":{"a":2},"x~y":2}"#), ["data", "x~y"]);
    assert_eq!(areas(r#"{"metadata":{"generation":1}}"#, r#"{"metadata":{"generation":2}}"#), ["metadata"]);
    assert_eq!(areas(r"{}", r#"{"metadata":{"resourceVersion":"1"}}"#), Vec::<String>::new());
    assert_eq!(areas(r"{}", r#"{"metadata":{"managedFields":[],"a":1}}"#), ["managedFields", "metadata"]);
    assert_eq!(areas(r#"{"metadata":{"labels":{}}}"#, r#"{"metadata":[]}"#), ["metadata"]);
    assert_eq!(areas(r#"{"a":1,"metadata":{"managedFields":[{}]}}"#, r#"{"a":1}"#), ["managedFields"]);
    // The same value written in another way is the same value.
    assert_eq!(areas(r#"{"a":{"x":1,"y":2}}"#, r#"{"a": {"y":2, "x":1}}"#), Vec::<String>::new());
}

#[test]
fn elements_far_down_may_come_between_others() {
    let item = |name: &str| json!({"name": name, "of": {"it": [1]}});
    let old = json!({"spec": {"list": [item("a"), item("b")]}});
    let new = json!({"spec": {"list": [item("c"), item("b"), item("a"), item("d")]}});
    check(&old.to_string(), &new.to_string());
    check(&new.to_string(), &old.to_string());
}

#[test]
fn numbers_are_what_they_were() {
    let change =
        compare(br#"{"spec":{"a":1,"b":2,"c":3}}"#, br#"{"spec":{"a":1.0,"b":1e400,"c":3}}"#, &[], &[]).unwrap();
    assert_eq!(
        change.json,
        r#"{"areas":["spec"],"patch":[{"op":"replace","path":"/spec/a","value":1.0,"was":1},{"op":"replace","path":"/spec/b","value":1e400,"was":2}],"managers":[]}"#
    );
}

#[test]
fn elements_with_names_come_and_go_one_by_one() {
    let list = |names: &[&str]| {
        let elements: Vec<String> = names.iter().map(|name| format!(r#"{{"name":"{name}","image":"i"}}"#)).collect();
        format!(r#"{{"spec":[{}]}}"#, elements.join(","))
    };
    let steps = |old: &[&str], new: &[&str]| {
        let paths = |step: String| step.split(' ').next().unwrap_or_default().to_owned();
        short(&check(&list(old), &list(new))).into_iter().map(paths).collect::<Vec<_>>()
    };
    assert_eq!(steps(&["a", "b", "c"], &["a", "x", "b", "c"]), ["+/spec/1"]);
    assert_eq!(steps(&["a", "b", "c"], &["b", "c"]), ["-/spec/0"]);
    assert_eq!(steps(&["a", "b", "c", "d"], &["d", "a", "b", "c"]), ["/spec/3=>/spec/0"]);
    assert_eq!(steps(&["a", "b"], &["a", "x"]), ["-/spec/1", "+/spec/1"]);
    assert_eq!(steps(&["a"], &[]), ["-/spec/0"]);
}

#[test]
fn elements_are_known_by_the_merge_keys_of_their_kind() {
    let old = r#"{"ports":[{"containerPort":80,"protocol":"TCP"},{"containerPort":53,"protocol":"TCP"},{"containerPort":53,"protocol":"UDP"}]}"#;
    let new = r#"{"ports":[{"containerPort":80,"protocol":"TCP"},{"containerPort":53,"protocol":"UDP","name":"dns"}]}"#;
    assert_eq!(
        short(&check(old, new)),
        [r#"-/ports/1 {"containerPort":53,"protocol":"TCP"}"#, r#"+/ports/1/name "dns""#]
    );
    let old = r#"{"m":[{"name":"v","mountPath":"/a"},{"name":"v","mountPath":"/b"}]}"#;
    let new = r#"{"m":[{"name":"v","mountPath":"/b","readOnly":true}]}"#;
    assert_eq!(short(&check(old, new)), [r#"-/m/0 {"mountPath":"/a","name":"v"}"#, "+/m/0/readOnly true"]);
}

/// The operations between two lists at `/spec/l`, without their values.
#[track_caller]
fn steps(old: &Value, new: &Value) -> Vec<String> {
    let change = check(&json!({"spec": {"l": old}}).to_string(), &json!({"spec": {"l": new}}).to_string());
    let plain = |step: String| step.split(' ').next().unwrap_or_default().replace("/spec/l", "");
    short(&change).into_iter().map(plain).collect()
}

#[test]
fn one_element_that_comes_is_one_operation_whatever_else_changes() {
    let merged = [
        json!([{"name": "a", "image": "1"}, {"name": "b", "image": "1"}]),
        json!([{"containerPort": 80, "protocol": "TCP"}, {"containerPort": 443, "protocol": "TCP"}]),
        json!([{"name": "http", "port": 80, "targetPort": 8080}, {"name": "tls", "port": 443, "targetPort": 8443}]),
        json!([{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}]),
        json!([{"type": "Ready", "status": "True"}, {"type": "Initialized", "status": "False"}]),
        json!([{"name": "v", "emptyDir": {}}, {"name": "w", "secret": {"secretName": "s"}}]),
        json!([{"name": "v", "mountPath": "/a"}, {"name": "v", "mountPath": "/b"}]),
        json!([{"key": "k", "effect": "NoExecute", "operator": "Exists"}, {"key": "k", "effect": "NoSchedule"}]),
        json!([{"key": "k", "value": "1"}, {"key": "l", "value": "1"}]),
        json!([{"uid": "1", "name": "x", "kind": "A"}, {"uid": "2", "name": "x", "kind": "B"}]),
        json!([{"topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}, {"topologyKey": "host"}]),
        json!([{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "InternalIP", "address": "10.0.0.2"}]),
        json!([{"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}]),
        // Not all of them have a name.
        json!([{"key": "k", "operator": "Exists"}, {"operator": "Exists"}]),
    ];
    for list in merged {
        let (first, last) = (&list[0], &list[1]);
        let marked = |element: &Value| {
            let mut element = element.clone();
            element["more"] = json!(1);
            element
        };
        assert_eq!(steps(&json!([first]), &json!([last, marked(first)])), ["+/0", "+/1/more"], "{list}");
        assert_eq!(steps(&json!([first]), &json!([marked(first), last])), ["+/0/more", "+/1"], "{list}");
        assert_eq!(steps(&json!([last, marked(first)]), &json!([first])), ["-/0", "-/0/more"], "{list}");
    }
}

#[test]
fn an_element_that_stands_elsewhere_is_moved_and_is_the_same_one() {
    let list = |text: &str| -> Value {
        text.split(' ').map(|word| json!({"type": &word[..1], "status": &word[1..]})).collect::<Vec<_>>().into()
    };
    for (old, new, expected) in [
        ("a b c d", "b c d a", &["/0=>/3"][..]),
        ("a b c d", "d a b c", &["/3=>/0"]),
        ("a b", "b a", &["/1=>/0"]),
        ("a b c", "c b a", &["/2=>/0", "/2=>/1"]),
        // What comes and goes beside it, and what changes in it.
        ("a b c", "c a1 x", &["-/1", "/1=>/0", "~/1/status", "+/2"]),
        ("a b c d", "x b1 d c a1", &["+/0", "/1=>/3", "~/1/status", "/4=>/2", "~/4/status"]),
    ] {
        let found = steps(&list(old), &list(new));
        assert_eq!(found, expected, "{old} to {new}");
    }
    // It is named as touched by its place, and nothing in it is.
    let object = |text: &str| json!({"status": {"conditions": list(text)}}).to_string();
    let change = check(&object("a b c"), &object("b c a"));
    assert_eq!(change.touched, ["/status/conditions/2"]);
    assert_eq!(change.areas, ["status"]);
    // Of very long lists it goes and comes.
    let long =
        |first: usize| -> Value { (0..400).map(|at| json!({"name": ((at + first) % 400).to_string()})).collect() };
    assert_eq!(steps(&long(0), &long(1)), ["-/0", "+/399"]);
}

#[test]
fn between_elements_of_the_same_text_names_count() {
    let env = |name: &str, value: u8| json!({"name": name, "value": value});
    // A name that is there twice does no harm to the others.
    assert_eq!(
        steps(
            &json!([env("x", 1), env("a", 1), env("x", 2), env("b", 1), env("c", 1)]),
            &json!([env("x", 1), env("n", 1), env("a", 2), env("x", 2), env("b", 2), env("n", 1), env("c", 2)]),
        ),
        ["+/1", "~/2/value", "~/4/value", "+/5", "~/6/value"]
    );
    // Elements of one name are identified by their order, unless their text does it.
    assert_eq!(steps(&json!([env("x", 1), env("x", 2)]), &json!([env("x", 3), env("x", 1), env("x", 2)])), ["+/0"]);
    assert_eq!(steps(&json!([env("x", 1), env("x", 2)]), &json!([env("x", 1), env("x", 3)])), ["~/1/value"]);
    // What identifies elements is a text or a number, not a whole object.
    let server = |number: u16| json!({"port": {"number": number}, "hosts": ["h"]});
    assert_eq!(steps(&json!([server(80)]), &json!([server(81)])), ["~/0/port/number"]);
    // Without any names, elements are the same ones in their order.
    let rule = |host: &[&str], to: u8| json!({"hosts": host, "to": to});
    assert_eq!(
        steps(&json!([rule(&["a"], 1), rule(&["b"], 1)]), &json!([rule(&["a"], 2), rule(&["b"], 2)])),
        ["~/0/to", "~/1/to"]
    );
}

#[test]
fn lists_deep_inside_are_compared_by_key_as_well() {
    let pod = |containers: Value| json!({"spec": {"template": {"spec": {"containers": containers}}}}).to_string();
    let container = |name: &str, env: Value| json!({"name": name, "env": env});
    let env = |name: &str, value: &str| json!({"name": name, "value": value});
    let old = pod(json!([container("a", json!([env("X", "1"), env("Y", "2")]))]));
    let new = pod(json!([
        container("sidecar", json!([])),
        container("a", json!([env("W", "0"), env("X", "1"), env("Y", "3")])),
    ]));
    assert_eq!(
        short(&check(&old, &new)),
        [
            r#"+/spec/template/spec/containers/0 {"env":[],"name":"sidecar"}"#,
            r#"+/spec/template/spec/containers/1/env/0 {"name":"W","value":"0"}"#,
            r#"~/spec/template/spec/containers/1/env/2/value "2" -> "3""#,
        ]
    );
}

#[test]
fn a_redacted_value_in_an_element_that_moves_has_not_changed() {
    let env = |names: &[&str]| {
        let elements: Vec<Value> = names.iter().map(|name| json!({"name": name, "value": "***"})).collect();
        json!({"spec": {"env": elements}}).to_string()
    };
    let marks = |digests: &[u8]| {
        let pointer = |index: usize| format!("/spec/env/{index}/value");
        digests.iter().enumerate().map(|(index, digest)| (pointer(index), [*digest; 16])).collect::<Vec<_>>()
    };
    let steps = |old: (&[&str], &[u8]), new: (&[&str], &[u8])| {
        let change = compare(env(old.0).as_bytes(), env(new.0).as_bytes(), &marks(old.1), &marks(new.1)).unwrap();
        short(&change).into_iter().map(|step| step.split(' ').next().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(steps((&["a", "b"], &[1, 2]), (&["n", "a", "b"], &[9, 1, 2])), ["+/spec/env/0"]);
    assert_eq!(steps((&["n", "a", "b"], &[9, 1, 2]), (&["a", "b"], &[1, 2])), ["-/spec/env/0"]);
    // The value of `b` becomes what that of `a` was.
    assert_eq!(steps((&["a", "b"], &[1, 2]), (&["b"], &[1])), ["-/spec/env/0", "~/spec/env/0/value"]);
    assert_eq!(steps((&["a", "b"], &[1, 2]), (&["n", "a", "b"], &[9, 1, 3])), ["+/spec/env/0", "~/spec/env/2/value"]);
}

#[test]
fn lists_of_texts_keep_what_they_share() {
    assert_eq!(
        short(&check(r#"{"f":["a","b","c","b"]}"#, r#"{"f":["x","a","c","b","y"]}"#)),
        [r#"+/f/0 "x""#, r#"-/f/2 "b""#, r#"+/f/4 "y""#]
    );
    assert_eq!(short(&check(r#"{"f":["a","b"]}"#, r#"{"f":["a","c"]}"#)), [r#"~/f/1 "b" -> "c""#]);
    // What went is named by its place in the old list, though the operation finds it elsewhere.
    let change = check(r#"{"f":["a","b"]}"#, r#"{"f":["x","a"]}"#);
    assert_eq!(short(&change), [r#"+/f/0 "x""#, r#"-/f/2 "b""#]);
    assert_eq!(change.touched, ["/f/0", "/f/1"]);
}

#[test]
fn what_is_touched_is_named_by_its_leaves() {
    let touched = |old: &str, new: &str| check(old, new).touched;
    let change = touched(r#"{"metadata":{}}"#, r#"{"metadata":{"annotations":{"a/x":"1"}}}"#);
    assert_eq!(change, ["/metadata/annotations/a~1x"]);
    let ignore = |text: &str| [Pattern::parse(text).unwrap()];
    assert!(matches_ignore(&ignore("/metadata/annotations/a~1*"), &change));
    assert!(matches_ignore(&ignore("/metadata"), &change));
    assert!(!matches_ignore(&ignore("/metadata/labels"), &change));
    assert_eq!(touched(r#"{"a":{"b":[1,{}]}}"#, r"{}"), ["/a/b/0", "/a/b/1"]);
    assert_eq!(touched(r#"{"a":{"b":1}}"#, r#"{"a":[2]}"#), ["/a/b", "/a/0"]);
    assert_eq!(touched(r#"{"a":{"b":1}}"#, r#"{"a":5}"#), ["/a/b", "/a"]);
    assert_eq!(touched(r#"{"a":1}"#, r#"{"a":2}"#), ["/a"]);
}

#[test]
fn of_duplicate_names_the_last_counts() {
    assert!(check(r#"{"a":1,"a":2}"#, r#"{"a":5,"a":2}"#).touched.is_empty());
    assert_eq!(short(&check(r#"{"a":1,"a":2}"#, r#"{"a":5,"\u0061":3}"#)), ["~/a 2 -> 3"]);
}

#[test]
fn a_redacted_value_that_changed_is_recorded_though_its_text_is_the_same() {
    let old = br#"{"data":{"a":"***","b":"***"},"spec":{}}"#;
    let marks = |a: u8, gone: u8| {
        vec![("/data/a".to_owned(), [a; 16]), ("/data/b".to_owned(), [7; 16]), ("/spec/gone".to_owned(), [gone; 16])]
    };
    let same = compare(old, old, &marks(1, 1), &marks(1, 1)).unwrap();
    assert!(same.areas.is_empty() && same.touched.is_empty());
    let change = compare(old, old, &marks(1, 1), &marks(2, 2)).unwrap();
    assert_eq!(change.areas, ["data", "spec"]);
    assert_eq!(change.touched, ["/data/a", "/spec/gone"]);
    assert_eq!(short(&change), [r#"~/data/a "***" -> "***""#]);
    // A value that was dropped and came to be, or went, is seen by its mark alone.
    let change = compare(br"{}", br"{}", &[], &marks(1, 1)[2..]).unwrap();
    assert_eq!((change.areas, change.touched), (vec!["spec".to_owned()], vec!["/spec/gone".to_owned()]));
    // Its text shows it already.
    let change = compare(old, br#"{"data":{"b":"***"},"spec":{}}"#, &marks(1, 1), &marks(1, 1)[1..]).unwrap();
    assert_eq!(short(&change), [r#"-/data/a "***""#]);
}

#[test]
fn many_marks_cost_no_more_than_their_number() {
    let names: Vec<String> = (0..20_000).map(|i| format!("k{i}")).collect();
    let members: Vec<String> = names.iter().map(|name| format!(r#""{name}":"***""#)).collect();
    let object = format!(r#"{{"data":{{{}}}}}"#, members.join(","));
    let marks = |digest: u8| names.iter().map(|name| (format!("/data/{name}"), [digest; 16])).collect::<Vec<_>>();
    let change = compare(object.as_bytes(), object.as_bytes(), &marks(1), &marks(2)).unwrap();
    assert_eq!((change.areas, change.touched.len()), (vec!["data".to_owned()], 20_000));
}

#[test]
fn managers_are_the_entries_that_were_not_there_just_so() {
    let new = POD.replace(
        r#"}}},{"manager":"kubelet""#,
        r#"}}},{"manager":"kubectl","operation":"Apply","subresource":"","time":"t"},{"manager":"kubelet""#,
    );
    let change = check(POD, &new);
    assert!(
        change.json.ends_with(r#""managers":[{"manager":"kubectl","operation":"Apply","time":"t","by":"moved"}]}"#),
        "{}",
        change.json
    );
    assert_eq!(change.areas, ["managedFields"]);
}

#[test]
fn large_lists_cost_no_more_than_their_size() {
    let list = |from: usize, step: usize| {
        let elements: Vec<String> =
            (from..from + 20_000).map(|i| format!(r#"{{"name":"n{}","v":{}}}"#, i * step, i % 7)).collect();
        format!(r#"{{"spec":[{}]}}"#, elements.join(","))
    };
    let begin = std::time::Instant::now();
    check(&list(0, 1), &list(10_000, 1));
    check(&list(0, 1), &list(1, 3));
    let mut backwards: Vec<Value> = (0..20_000).map(Value::from).collect();
    let forwards = json!({ "spec": backwards }).to_string();
    backwards.reverse();
    let change = check(&forwards, &json!({ "spec": backwards }).to_string());
    assert!(change.json.len() < 8 * forwards.len());
    assert!(begin.elapsed().as_secs() < 60, "{:?}", begin.elapsed());
}

#[test]
fn long_names_above_many_changes_do_not_multiply() {
    let object = |value: u8| {
        let members: Vec<String> = (0..2000).map(|i| format!(r#""k{i}":{value}"#)).collect();
        format!(r#"{{"{}":{{"{}":{{{}}}}}}}"#, "a".repeat(50_000), "b".repeat(50_000), members.join(","))
    };
    let (old, new) = (object(1), object(2));
    let change = check(&old, &new);
    assert!(change.json.len() < 10 * old.len(), "{}", change.json.len());
    assert!(change.touched.iter().map(String::len).sum::<usize>() < 10 * old.len());
}

#[test]
fn deep_nesting_is_replaced_as_a_whole() {
    let deep = |leaf: &str| format!(r#"{{"spec":{}{leaf}{}}}"#, r#"{"a":"#.repeat(20_000), "}".repeat(20_000));
    let change = compare(deep("1").as_bytes(), deep("2").as_bytes(), &[], &[]).unwrap();
    assert_eq!(change.areas, ["spec"]);
    assert!(change.json.len() < 400_000);
    let change = compare(deep("1").as_bytes(), br"{}", &[], &[]).unwrap();
    assert_eq!(change.touched.len(), 1);
}

#[test]
fn white_space_between_tokens_does_no_harm() {
    let change = check("{\n \"a\": {\"x\": 1},\n \"b\": [1, 2]}", "{\"a\":{\"x\":1},\"b\":[1,\n 3]}");
    assert_eq!(short(&change), ["~/b/1 2 -> 3"]);
    let change = check("{}", "{\"a\": {\n\"x\": 1}}");
    assert_eq!(short(&change), [r#"+/a {"x":1}"#]);
}

#[test]
fn what_is_no_object_is_refused_without_quoting_it() {
    for (old, new) in [("secret", "{}"), ("{}", "[\"secret\"]"), ("{}", "{\"secret\"}")] {
        let error = compare(old.as_bytes(), new.as_bytes(), &[], &[]).unwrap_err();
        assert!(!error.contains("secret"), "{error}");
    }
}

/// JSON values of a small alphabet, so that two of them have much in common.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0..4_i64).prop_map(Value::from),
        "[ab~/é\"]{0,2}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 48, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            object(inner.clone()),
            // Lists of named things.
            prop::collection::vec(("[a-e]", inner), 0..6).prop_map(|list| list
                .into_iter()
                .map(|(name, value)| json!({ "name": name, "v": value }))
                .collect::<Value>()),
        ]
    })
}

fn object(inner: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
    let name = prop_oneof!["[ab~/é\"]{0,2}", Just("metadata".to_owned()), Just("managedFields".to_owned())];
    prop::collection::btree_map(name, inner, 0..5).prop_map(|map| Value::Object(map.into_iter().collect()))
}

/// JSON as it may be written: numbers of every kind, escapes, white space, names that come twice, lists of things with
/// names, with the same names and without.
fn written() -> impl Strategy<Value = String> {
    let number = "-?(0|[1-9][0-9]{0,2})([.][0-9]{1,3})?([eE][+-]?[0-9]{1,3})?|1|1[.]0|1[.]00|1e0|18446744073709551616";
    let leaf = prop_oneof![3 => number, 1 => r#""([ab~/é]|\\n|\\u0061|\\"){0,3}""#, 1 => "null|true|false"];
    leaf.prop_recursive(4, 48, 6, |inner| {
        let list = |elements: Vec<String>| format!("[{}]", elements.join(", "));
        let key = "name|type|key|uid|mountPath|containerPort|port|ip";
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(list),
            prop::collection::vec((r#""([ab~/é]|\\u0061){0,2}""#, inner.clone()), 0..5).prop_map(|members| {
                let members: Vec<String> =
                    members.into_iter().map(|(name, value)| format!("{name} :{value}")).collect();
                format!("{{{}}}", members.join(","))
            }),
            (key, prop::collection::vec((prop::option::weighted(0.8, "[a-d]"), inner), 0..6)).prop_map(
                move |(key, elements)| {
                    list(
                        elements
                            .into_iter()
                            .map(|(name, value)| match name {
                                Some(name) => format!(r#"{{"{key}":"{name}","v":{value}}}"#),
                                None => format!(r#"{{"v":{value}}}"#),
                            })
                            .collect(),
                    )
                }
            ),
        ]
    })
}

/// A JSON text in which each number is a text of its own digits, so that no library takes `1.0` for `1` or for `1.00`.
fn exact(text: &str) -> Value {
    use serde_json::value::RawValue;
    match text.trim_start().as_bytes()[0] {
        b'{' => {
            let members: std::collections::BTreeMap<String, &RawValue> = serde_json::from_str(text).unwrap();
            Value::Object(members.into_iter().map(|(name, value)| (name, exact(value.get()))).collect())
        }
        b'[' => {
            let elements: Vec<&RawValue> = serde_json::from_str(text).unwrap();
            elements.into_iter().map(|value| exact(value.get())).collect()
        }
        b'-' | b'0'..=b'9' => Value::from(format!("number {}", text.trim())),
        _ => serde_json::from_str(text).unwrap(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn a_patch_gives_the_new_object_to_the_last_digit(old in written(), new in written()) {
        let (old, new) = (format!(r#"{{"spec":{old}}}"#), format!(r#"{{"spec":{new}}}"#));
        let change = compare(old.as_bytes(), new.as_bytes(), &[], &[]).unwrap();
        let patch: json_patch::Patch = serde_json::from_value(exact(&change.json)["patch"].take()).unwrap();
        let mut patched = exact(&old);
        json_patch::patch(&mut patched, &patch).unwrap();
        prop_assert_eq!(patched, exact(&new), "{}", change.json);
    }

    #[test]
    fn a_patch_gives_the_new_object(old in object(value()), new in object(value())) {
        let change = check(&old.to_string(), &new.to_string());
        prop_assert_eq!(old == new, serde_json::from_str::<Value>(&change.json).unwrap()["patch"] == json!([]));
        prop_assert_eq!(old == new, change.touched.is_empty());
        prop_assert_eq!(old == new, change.areas.is_empty());
    }

    #[test]
    fn objects_of_many_members_are_compared_alike(
        old in prop::collection::btree_map("[a-h]{1,2}", 0..3_i64, 8..30),
        new in prop::collection::btree_map("[a-h]{1,2}", 0..3_i64, 8..30),
        twice in prop::collection::vec("[a-h]{1,2}", 0..20),
    ) {
        // Some names come twice, and of those the last counts.
        let twice: Vec<String> = twice.iter().map(|name| format!(r#""{name}":9,"#)).collect();
        let text = |map| serde_json::to_string(map).unwrap().replacen('{', &format!("{{{}", twice.join("")), 1);
        check(&text(&old), &text(&new));
    }

    #[test]
    fn white_space_changes_nothing(old in object(value()), new in object(value())) {
        let pretty = serde_json::to_string_pretty(&new).unwrap();
        let change = check(&old.to_string(), &pretty);
        let plain = check(&old.to_string(), &new.to_string());
        prop_assert_eq!(change.areas, plain.areas);
    }

    #[test]
    fn a_kept_shape_changes_nothing_but_the_time(
        versions in prop::collection::vec(object(value()), 3..6), deep in any::<bool>(), stays in object(value()),
    ) {
        let mut shape: Option<Shape> = None;
        let text = |value: &Value| {
            let value = if deep { json!({"spec": {"items": [stays, value]}}) } else { value.clone() };
            value.to_string().into_bytes()
        };
        for pair in versions.windows(2) {
            let (old, new) = (text(&pair[0]), text(&pair[1]));
            let (change, kept) = compare_shaped(&old, shape.as_ref(), &new, &[], &[]).unwrap();
            prop_assert_eq!(change, compare(&old, &new, &[], &[]).unwrap());
            shape = Some(kept);
        }
    }
}
