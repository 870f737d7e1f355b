//! What objects of others may cost.

use super::rbac::{COMPARISONS, Role};
use super::*;

/// A list of so many different words.
fn many(count: usize, word: &str) -> Value {
    (0..count).map(|number| Value::from(format!("{word}{number}"))).collect()
}

fn allow(key: &str, words: &Value, verbs: &Value) -> Value {
    let mut rule = json!({"apiGroups": [""], "resources": ["secrets"], "verbs": verbs});
    rule[key] = words.clone();
    rule
}

/// A comparison costs the same whatever the lists hold, and there are so many and no more.
#[test]
fn a_role_costs_no_more_than_its_comparisons() {
    const MOST: usize = 190_000;
    let (one, two) = (json!(["get"]), json!(["get", "list"]));
    let urls = |count: usize, end: &str| -> Value {
        let urls: Vec<Value> = (0..count).map(|at| format!("/{at}{end}").into()).collect();
        json!([{"nonResourceURLs": urls, "verbs": ["get"]}])
    };
    let alone = |key: &str, count: usize, verbs: &Value| json!([allow(key, &many(count, "x"), verbs)]);
    let each =
        |count: usize| -> Value { (0..count).map(|at| allow("resources", &json!([format!("r{at}")]), &one)).collect() };
    let long = "x".repeat(1 << 20);
    for (what, before, after, covered, most) in [
        ("a verb less", alone("resourceNames", MOST, &two), alone("resourceNames", MOST, &one), true, MOST),
        ("resources", alone("resources", MOST, &two), alone("resources", MOST, &one), true, MOST),
        ("groups", alone("apiGroups", MOST, &two), alone("apiGroups", MOST, &one), true, MOST),
        ("verbs", alone("verbs", MOST, &one), alone("verbs", MOST - 1, &one), true, MOST),
        ("paths", urls(MOST, ""), urls(MOST - 1, ""), true, MOST),
        // Too many.
        (
            "names and verbs",
            alone("resourceNames", MOST, &many(9, "v")),
            alone("resourceNames", MOST, &many(8, "v")),
            false,
            COMPARISONS,
        ),
        ("beginnings of paths", urls(MOST, "*"), urls(MOST - 1, "*"), false, COMPARISONS),
        ("rules", each(20_000), each(19_999), false, COMPARISONS),
        (
            "long words",
            json!([allow("resources", &json!([long]), &many(1000, "v"))]),
            json!([allow("resources", &json!([long]), &many(999, "v"))]),
            false,
            COMPARISONS,
        ),
        // Nothing at all, and nothing of one list.
        ("no rule", json!([]), alone("resources", MOST, &one), false, 0),
        (
            "no verb",
            each(2),
            json!([{"apiGroups": many(90_000, "g"), "resources": many(90_000, "r"), "verbs": []}]),
            true,
            0,
        ),
    ] {
        let mut role = Role::of(before.as_array().unwrap());
        let is_covered = after.as_array().unwrap().iter().all(|rule| role.covers(rule));
        assert_eq!(is_covered, covered, "{what}");
        assert!(role.spent() <= most, "{what}: {}", role.spent());
    }
}

#[test]
fn a_title_and_a_command_are_short_whatever_an_owner_is_called() {
    let long = "&".repeat(100_000);
    let object =
        |kind: &str, name: &str| controlled(with_kind(deployment(), "v1", "Pod"), "example.com/v1", kind, name);
    let alone = |object: &Value| {
        notify(&["all: true"])
            .alone(line("ADDED", &json!({"evidence": "watched"}), object).as_bytes())
            .unwrap()
            .unwrap()
    };
    for (what, object) in [
        ("a kind", object(&long, "x")),
        ("a name", object("X", &long)),
        ("both", object(&long, &long)),
        ("characters of several bytes", object("X", &"é".repeat(100_000))),
        ("the object itself", edited(&deployment(), "/metadata/name", long.clone().into())),
    ] {
        let one = alone(&object);
        assert!(one.title.len() <= 600 && one.title.ends_with(": all"), "{what}: {}", one.title.len());
        assert!(one.key.len() <= KEY_BYTES && one.log.len() <= 1000, "{what}: {} {}", one.key, one.log.len());
    }
    // Two that begin alike are two.
    assert_ne!(alone(&object("X", &format!("{long}1"))).key, alone(&object("X", &format!("{long}2"))).key);
    let named = edited(&deployment(), "/metadata/name", long.into());
    assert_eq!(alone(&named).log, "decklog show 7");
}

#[test]
fn what_a_sink_alone_missed_is_an_incident_whatever_its_rules_are() {
    let gap = json!({"object": null, "name": null, "gap": {"why": "expired", "to": "57"}});
    let line = line("GAP", &gap, &deployment());
    for (rules, rule, place, key) in [
        (&["gap"][..], "gap", 0, "c1/gap/Deployment.apps/shop/"),
        (&["image-changed"], "gap", 1, "c1/gap/Deployment.apps/shop/"),
        (&["image-changed", "own: type == 'GAP'", "gap"], "own", 1, "c1/own/Deployment.apps/shop/"),
    ] {
        let missed = notify(rules).missed(line.as_bytes()).unwrap();
        assert_eq!((missed.incident.rule.as_str(), missed.rule, missed.incident.key.as_str()), (rule, place, key));
        // Its seq is not in the log, and what is left of its resource is.
        assert_eq!(missed.incident.log, "decklog tail deployments.apps -n shop");
        assert!(notify(rules).title(missed.rule).contains(if rule == "gap" { "missing" } else { "own" }));
    }
}

/// A rule that takes too much for an entry selects nothing there, and that is said once; one that asks for a member which is not there
/// has said by that which entries it is about.
#[test]
fn a_rule_that_takes_too_much_for_an_entry_says_so_once() {
    let numbers: Value = (0..2_500).collect();
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "numbers": numbers});
    let line = line("ADDED", &json!({"evidence": "watched"}), &object);
    for (rule, is_said) in [
        ("dear: object.numbers.all(a, object.numbers.all(b, a != b || a == b))", true),
        ("other: object.spec.replicas > 3", false),
    ] {
        let notify = notify(&[rule]);
        assert_eq!(notify.alone(line.as_bytes()).unwrap(), None, "{rule}");
        let Rule::Cel(_, _, said) = &notify.rules[0] else { panic!("{rule}") };
        assert_eq!(said.is_completed(), is_said, "{rule}");
    }
}
