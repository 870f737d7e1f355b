use serde_json::{Value, json};

use super::*;

mod heavy;
mod lists;
mod random;
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
fn numbers_are_what_they_were() {
    let change =
        compare(br#"{"spec":{"a":1,"b":2,"c":3}}"#, br#"{"spec":{"a":1.0,"b":1e400,"c":3}}"#, &[], &[]).unwrap();
    assert_eq!(
        change.json,
        r#"{"areas":["spec"],"patch":[{"op":"replace","path":"/spec/a","value":1.0,"was":1},{"op":"replace","path":"/spec/b","value":1e400,"was":2}],"managers":[]}"#
    );
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
