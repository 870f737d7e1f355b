//! Lists, whose elements come, go and move.

use super::*;

#[test]
fn elements_far_down_may_come_between_others() {
    let item = |name: &str| json!({"name": name, "of": {"it": [1]}});
    let old = json!({"spec": {"list": [item("a"), item("b")]}});
    let new = json!({"spec": {"list": [item("c"), item("b"), item("a"), item("d")]}});
    check(&old.to_string(), &new.to_string());
    check(&new.to_string(), &old.to_string());
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
