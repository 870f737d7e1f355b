//! Pairs of objects and texts that nobody has thought of.

use proptest::prelude::*;

use super::*;

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
