//! Each row is one thing that a document says wrong; what kubectl makes of it stands beside it. Whatever it is, the rest of
//! the document counts.

use serde_json::{Value, json};

use super::*;

/// The rest of the document, in both forms.
fn good() -> [Value; 2] {
    let deployments = json!({
        "resource": "deployments", "responseKind": {"group": "apps", "version": "v1", "kind": "Deployment"},
        "scope": "Namespaced", "singularResource": "deployment", "verbs": ["get", "list", "watch"], "shortNames": ["deploy"],
    });
    let aggregated = json!({
        "metadata": {"name": "apps", "creationTimestamp": null},
        "versions": [{"version": "v1", "freshness": "Current", "resources": [deployments]}],
    });
    let legacy = json!({"name": "apps", "versions": [{"groupVersion": "apps/v1", "version": "v1"}]});
    [aggregated, legacy]
}

fn aggregated(element: &Value) -> Part {
    let [good, _] = good();
    let document = json!({"kind": "APIGroupDiscoveryList", "items": [element, good]});
    let Document::Aggregated(part) = Document::read(document.to_string().as_bytes(), false) else {
        panic!("{document} is one")
    };
    part
}

/// What of the first element's group is known: the resources that can be followed, the others, and what is uncertain.
fn told(part: &Part) -> String {
    let of_it = |list: &[Resource]| {
        let names = list.iter().filter(|one| one.group != "apps").map(|one| format!("{}/{}", one.plural, one.version));
        names.collect::<Vec<_>>().join(",")
    };
    let doubts = part.doubts.iter().map(|(group, doubt)| match &doubt.versions {
        Some(versions) => format!("{group} {}", versions.iter().cloned().collect::<Vec<_>>().join(",")),
        None => format!("{group} all"),
    });
    let doubts = doubts.collect::<Vec<_>>().join(";");
    let unnamed = if part.unnamed.is_some() { " unnamed" } else { "" };
    let nameless = if part.nameless.is_empty() { "" } else { " nameless" };
    format!("{} | {} | {doubts}{unnamed}{nameless}", of_it(&part.served), of_it(&part.unlistable))
}

fn resource(change: impl FnOnce(&mut Value)) -> Value {
    let mut resource = json!({
        "resource": "things", "responseKind": {"group": "a.io", "version": "v1", "kind": "Thing"},
        "scope": "Namespaced", "singularResource": "thing", "verbs": ["list", "watch"],
    });
    change(&mut resource);
    resource
}

fn group(resources: &Value) -> Value {
    json!({"metadata": {"name": "a.io"}, "versions": [{"version": "v1", "freshness": "Current", "resources": resources}]})
}

/// A resource that cannot be read is one that cannot be listed. kubectl skips one without a responseKind, and does not
/// read the whole document where a type is wrong.
#[test]
fn an_odd_resource_is_one_that_cannot_be_listed() {
    let odd = |field: &'static str, value: Value| resource(move |resource| resource[field] = value);
    let only_subresources = json!({
        "resource": "pods", "responseKind": {"group": "", "version": "", "kind": ""}, "scope": "Namespaced",
        "singularResource": "", "verbs": null, "subresources": [{"subresource": "metric", "responseKind": null, "verbs": null}],
    });
    for (element, expected) in [
        (resource(|_| ()), "things/v1 |  | "),
        (only_subresources, " | pods/v1 | "),
        (odd("verbs", Value::Null), " | things/v1 | "),
        (odd("verbs", json!("list,watch")), " | things/v1 | "),
        (odd("verbs", json!({"list": true})), " | things/v1 | "),
        (odd("verbs", json!(["list", null, 7, "watch"])), "things/v1 |  | "),
        (odd("verbs", json!(["get", "list"])), " | things/v1 | "),
        (odd("responseKind", Value::Null), " | things/v1 | "),
        (odd("responseKind", json!("Thing")), " | things/v1 | "),
        (odd("responseKind", json!({"kind": null})), " | things/v1 | "),
        (odd("responseKind", json!({"group": null, "version": 1, "kind": "Thing"})), "things/v1 |  | "),
        (odd("shortNames", Value::Null), "things/v1 |  | "),
        (odd("shortNames", json!(7)), "things/v1 |  | "),
        (odd("shortNames", json!(["th", null, {}])), "things/v1 |  | "),
        (odd("singularResource", Value::Null), "things/v1 |  | "),
        (odd("singularResource", json!([])), "things/v1 |  | "),
        (odd("scope", Value::Null), "things/v1 |  | "),
        (odd("scope", json!(true)), "things/v1 |  | "),
        (odd("categories", json!("all")), "things/v1 |  | "),
        (odd("subresources", json!([null, 1, "status"])), "things/v1 |  | "),
        (odd("newInKubernetes", json!({"a": [1]})), "things/v1 |  | "),
        (odd("resource", Value::Null), " |  |  nameless"),
        (odd("resource", json!("")), " |  |  nameless"),
        (odd("resource", json!(7)), " |  |  nameless"),
        (odd("resource", json!("../secrets")), " |  |  nameless"),
        (odd("resource", json!("thi ngs?")), " |  |  nameless"),
        (Value::Null, " |  |  nameless"),
        (json!("things"), " |  |  nameless"),
        (json!([]), " |  |  nameless"),
    ] {
        // The others of the version count as well.
        let other = resource(|other| other["resource"] = "others".into());
        let part = aggregated(&group(&json!([element, other])));
        assert!(part.served.iter().any(|one| one.group == "apps"), "{element}");
        let (served, rest) = expected.split_once(" |").unwrap();
        let served = if served.is_empty() { "others/v1".to_owned() } else { format!("{served},others/v1") };
        assert_eq!(told(&part), format!("{served} |{rest}"), "{element}");
    }
}

/// A version or a group that cannot be read is uncertain. kubectl reads nothing of such a document, but for `null`, which is
/// an empty list, and `Stale`, which it prints as an error of the group.
#[test]
fn an_odd_group_is_uncertain_and_no_other_is() {
    let thing = resource(|_| ());
    let version = |version: Value| json!({"metadata": {"name": "a.io"}, "versions": [version]});
    let named = |metadata: Value| json!({"metadata": metadata, "versions": []});
    for (element, expected) in [
        (group(&Value::Null), " |  | "),
        (group(&json!([])), " |  | "),
        (group(&json!("things")), " |  | a.io v1"),
        (group(&json!({"things": thing})), " |  | a.io v1"),
        (version(Value::Null), " |  | a.io all"),
        (version(json!("v1")), " |  | a.io all"),
        (version(json!({"version": null, "resources": [thing]})), " |  | a.io all"),
        (version(json!({"version": 1, "resources": [thing]})), " |  | a.io all"),
        (version(json!({"version": "", "resources": [thing]})), " |  | a.io all"),
        (version(json!({"version": "v1/x", "resources": [thing]})), " |  | a.io all"),
        (version(json!({"version": "v1", "freshness": "Stale", "resources": [thing]})), "things/v1 |  | a.io v1"),
        (version(json!({"version": "v1", "freshness": "Stale", "resources": null})), " |  | a.io v1"),
        (version(json!({"version": "v1", "freshness": null, "resources": [thing]})), "things/v1 |  | "),
        (version(json!({"version": "v1", "freshness": "Lukewarm", "resources": [thing]})), "things/v1 |  | "),
        (version(json!({"version": "v1", "freshness": 7, "resources": [thing]})), "things/v1 |  | "),
        (json!({"metadata": {"name": "a.io"}, "versions": null}), " |  | "),
        (json!({"metadata": {"name": "a.io"}}), " |  | "),
        (json!({"metadata": {"name": "a.io"}, "versions": "v1"}), " |  | a.io all"),
        (json!({"metadata": {"name": "a.io"}, "versions": {}}), " |  | a.io all"),
        (named(Value::Null), " |  |  unnamed"),
        (named(json!("a.io")), " |  |  unnamed"),
        (named(json!({})), " |  |  unnamed"),
        (named(json!({"name": null})), " |  |  unnamed"),
        (named(json!({"name": 7})), " |  |  unnamed"),
        (named(json!({"name": ""})), " |  |  unnamed"),
        (named(json!({"name": "a/../b"})), " |  |  unnamed"),
        (json!({"versions": []}), " |  |  unnamed"),
        (Value::Null, " |  |  unnamed"),
        (json!(7), " |  |  unnamed"),
        (json!([]), " |  |  unnamed"),
    ] {
        let part = aggregated(&element);
        assert!(part.served.iter().any(|one| one.group == "apps"), "{element}");
        assert_eq!(told(&part), expected, "{element}");
    }
}

#[test]
fn what_a_document_names_twice_is_there_once() {
    let thing = resource(|_| ());
    let quiet = resource(|thing| thing["verbs"] = Value::Null);
    for resources in [json!([thing, thing]), json!([thing, quiet]), json!([quiet, thing]), json!([quiet, thing, quiet])]
    {
        assert_eq!(told(&aggregated(&group(&resources))), "things/v1 |  | ", "{resources}");
    }
    let [good, _] = good();
    let twice = group(&json!([thing]));
    let document = json!({"items": [twice, good, twice, good]}).to_string();
    let Document::Aggregated(part) = Document::read(document.as_bytes(), false) else { panic!("it is one") };
    assert_eq!((told(&part).as_str(), part.served.len()), ("things/v1 |  | ", 2));
    // Of a field that comes twice the last one counts, as in Go.
    let document = document.replacen(r#""name":"a.io""#, r#""name":null,"name":"a.io""#, 1);
    let Document::Aggregated(part) = Document::read(document.as_bytes(), false) else { panic!("it is one") };
    assert_eq!(told(&part), "things/v1 |  | ");
}

/// What no reader of JSON would take is its element's own matter, too.
#[test]
fn depth_and_bytes_that_are_no_text_spoil_one_element() {
    let deep = format!("{}1{}", "[".repeat(5000), "]".repeat(5000));
    let [good, _] = good();
    let thing = resource(|_| ());
    for (odd, expected) in [
        (group(&json!([thing, "ODD"])), "things/v1 |  |  nameless"),
        (json!({"metadata": {"name": "a.io", "annotations": "ODD"}, "versions": "ODD"}), " |  | a.io all"),
        (json!("ODD"), " |  |  unnamed"),
    ] {
        for in_its_place in [deep.as_bytes(), b"\"\xff\"", br#""\ud800""#] {
            let document = json!({"kind": "APIGroupDiscoveryList", "items": [odd, good]}).to_string();
            let mut bytes = Vec::new();
            let mut parts = document.split("\"ODD\"").peekable();
            while let Some(part) = parts.next() {
                bytes.extend_from_slice(part.as_bytes());
                if parts.peek().is_some() {
                    bytes.extend_from_slice(in_its_place);
                }
            }
            let Document::Aggregated(part) = Document::read(&bytes, false) else { panic!("{odd} is one") };
            assert_eq!((told(&part).as_str(), part.answered.contains("apps")), (expected, true), "{odd}");
        }
    }
}

/// kubectl takes none of them either.
#[test]
fn what_is_no_discovery_document_is_not_taken_for_one() {
    let whole = json!({"kind": "APIGroupDiscoveryList", "items": good()}).to_string();
    for document in [
        "",
        "null",
        "[]",
        "\"APIGroupList\"",
        "{}",
        "<html>sign in</html>",
        &whole[..whole.len() / 2],
        &format!("{whole} and more"),
        r#"{"kind":"Status","status":"Failure","items":[]}"#,
        r#"{"kind":"APIGroupDiscoveryList","items":"none"}"#,
        r#"{"kind":"APIGroupDiscoveryList","items":{}}"#,
        r#"{"kind":"APIGroupList","groups":7}"#,
        r#"{"kind":7}"#,
    ] {
        let read = Document::read(document.as_bytes(), false);
        assert!(matches!(read, Document::Unreadable), "{document}: {read:?}");
    }
    assert!(matches!(Document::read(br#"{"kind":"APIVersions","versions":{}}"#, true), Document::Unreadable));
}

/// `null` is an empty list for kubectl, and a document is known by what it holds where nothing else says what it is.
#[test]
fn an_empty_document_and_one_without_a_kind_are_read() {
    for (document, core, aggregated) in [
        (r#"{"kind":"APIGroupDiscoveryList","metadata":null,"items":null}"#, false, true),
        (r#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2beta1"}"#, false, true),
        (r#"{"kind":null,"items":[]}"#, false, true),
        (r#"{"kind":"","items":[]}"#, true, true),
        (r#"{"kind":"APIGroupList","groups":null}"#, false, false),
        (r#"{"groups":[]}"#, false, false),
        (r#"{"kind":"APIVersions","versions":null}"#, true, false),
        (r#"{"versions":[]}"#, true, false),
    ] {
        match Document::read(document.as_bytes(), core) {
            Document::Aggregated(part) => assert!(aggregated && part.served.is_empty(), "{document}"),
            Document::Legacy(_, wanted) => assert!(!aggregated && wanted.is_empty(), "{document}"),
            Document::Unreadable => panic!("{document}"),
        }
    }
}

/// The core group has no name, and a real API server leaves it away.
#[test]
fn the_core_group_is_the_one_without_a_name() {
    for metadata in [json!({"creationTimestamp": null}), json!({"name": ""}), json!({"name": null}), Value::Null] {
        let element = json!({"metadata": metadata, "versions": [{"version": "v1", "resources": [resource(|_| ())]}]});
        let document = json!({"kind": "APIGroupDiscoveryList", "items": [element]}).to_string();
        let Document::Aggregated(part) = Document::read(document.as_bytes(), true) else { panic!("{document}") };
        assert_eq!((part.served.len(), part.served[0].group.as_str()), (1, ""), "{metadata}");
        assert_eq!(part.unnamed, None);
    }
}

#[test]
fn the_old_form_is_read_element_by_element() {
    let version = |version: &str| json!({"groupVersion": format!("a.io/{version}"), "version": version});
    for (element, wanted, expected) in [
        (
            json!({"name": "a.io", "versions": [version("v1"), version("v2")], "preferredVersion": version("v2")}),
            vec!["v2", "v1"],
            " |  | ",
        ),
        (json!({"name": "a.io", "versions": [version("v1"), version("v1")]}), vec!["v1"], " |  | "),
        (json!({"name": "a.io", "versions": [version("v1")], "preferredVersion": null}), vec!["v1"], " |  | "),
        (json!({"name": "a.io", "versions": [version("v1")], "preferredVersion": "v1"}), vec!["v1"], " |  | "),
        (json!({"name": "a.io", "versions": [{"groupVersion": "a.io/v1"}]}), vec!["v1"], " |  | "),
        (json!({"name": "a.io", "versions": [{"version": null, "groupVersion": "a.io/v1"}]}), vec!["v1"], " |  | "),
        (json!({"name": "a.io", "versions": [version("v1"), null]}), vec!["v1"], " |  | a.io all"),
        (json!({"name": "a.io", "versions": [version("v1"), "v2", {}]}), vec!["v1"], " |  | a.io all"),
        (json!({"name": "a.io", "versions": null}), vec![], " |  | "),
        (json!({"name": "a.io", "versions": "v1"}), vec![], " |  | a.io all"),
        (json!({"name": null, "versions": [version("v1")]}), vec![], " |  |  unnamed"),
        (json!({"name": "", "versions": [version("v1")]}), vec![], " |  |  unnamed"),
        (json!({"name": 7}), vec![], " |  |  unnamed"),
        (Value::Null, vec![], " |  |  unnamed"),
    ] {
        let [_, good] = good();
        let document = json!({"kind": "APIGroupList", "groups": [element, good]}).to_string();
        let Document::Legacy(part, found) = Document::read(document.as_bytes(), false) else { panic!("{document}") };
        let mut all: Vec<_> = wanted.iter().map(|version| ("a.io".to_owned(), (*version).to_owned())).collect();
        all.push(("apps".to_owned(), "v1".to_owned()));
        assert_eq!((found, told(&part).as_str()), (all, expected), "{element}");
    }
    let Document::Legacy(part, found) = Document::read(br#"{"versions":["v1",null,7,"v1"]}"#, true) else {
        panic!("it is one")
    };
    assert_eq!((found, told(&part).as_str()), (vec![(String::new(), "v1".to_owned())], " |  |  all"));
}

/// kubectl makes an error of the group where its list cannot be read, and skips what has no list among its verbs.
#[test]
fn a_list_of_resources_is_read_resource_by_resource() {
    let thing = json!({"name": "things", "singularName": "thing", "namespaced": true, "kind": "Thing", "verbs": ["list", "watch"]});
    let odd = |field: &str, value: Value| {
        let mut thing = thing.clone();
        thing[field] = value;
        json!({"kind": "APIResourceList", "resources": [thing]})
    };
    for (list, expected) in [
        (odd("name", json!("things")), "things/v1 |  | "),
        (odd("verbs", Value::Null), " | things/v1 | "),
        (odd("verbs", json!("list")), " | things/v1 | "),
        (odd("kind", Value::Null), " | things/v1 | "),
        (odd("shortNames", Value::Null), "things/v1 |  | "),
        (odd("singularName", Value::Null), "things/v1 |  | "),
        (odd("namespaced", Value::Null), "things/v1 |  | "),
        (odd("name", json!("things/status")), " |  | "),
        (odd("name", Value::Null), " |  |  nameless"),
        (odd("name", json!("")), " |  |  nameless"),
        (odd("name", json!("/status")), " |  |  nameless"),
        (json!({"kind": "APIResourceList", "resources": null}), " |  | "),
        (json!({"kind": "APIResourceList"}), " |  | "),
        (json!({"resources": [thing]}), "things/v1 |  | "),
        (json!({"kind": "APIResourceList", "resources": [null, 7, thing]}), "things/v1 |  |  nameless"),
        (json!({"kind": "APIResourceList", "resources": "things"}), " |  | a.io v1"),
        (json!({"kind": "Status", "resources": [thing]}), " |  | a.io v1"),
        (json!({}), " |  | a.io v1"),
        (Value::Null, " |  | a.io v1"),
    ] {
        let mut part = Part::default();
        legacy_resources(list.to_string().as_bytes(), "a.io", "v1", &mut part);
        assert_eq!(told(&part), expected, "{list}");
    }
    let mut part = Part::default();
    legacy_resources(b"<html>sign in</html>", "a.io", "v1", &mut part);
    assert_eq!(told(&part), " |  | a.io v1");
}
