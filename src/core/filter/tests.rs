use proptest::prelude::*;

use super::*;

mod budget;

const ENTRY: &str = r#"{"v":1,"seq":7,"epoch":"e","id":"u.41.MODIFIED","time":"2026-11-21T00:00:00.000000Z","type":"MODIFIED","evidence":"watched","cluster":{"name":"prod","uid":"c"},"apiVersion":"apps/v1","kind":"Deployment","resource":"deployments","namespace":"shop","name":"web","uid":"u","resourceVersion":"41","change":{"areas":["spec","status"],"patch":[],"managers":[{"manager":"kubectl"}]},"object":{"metadata":{"labels":{"app":"web","app.kubernetes.io/name":"w\u00e9b"}},"spec":{"replicas":3,"ratio":0.5,"paused":false,"big":18446744073709551615,"containers":[{"name":"a","image":"x:1"},{"name":"b","image":"y:2"}]},"odd":1e400}}"#;

const GAP: &str = r#"{"v":1,"seq":8,"epoch":"e","id":"e.8","time":"2026-11-21T00:00:00.000000Z","type":"GAP","cluster":{"name":"prod","uid":"c"},"apiVersion":"v1","kind":"Node","resource":"nodes","gap":{"why":"expired","from":"5"}}"#;

fn ask(filter: &str, entry: &str) -> Result<bool, String> {
    let filter = Filter::compile(filter).unwrap_or_else(|error| panic!("{filter}: {error}"));
    filter.matches(entry.as_bytes()).map_err(|error| error.to_string())
}

#[track_caller]
fn wrong(filter: &str) -> String {
    Filter::compile(filter).expect_err(filter).to_string()
}

#[test]
fn an_entry_passes_or_not() {
    for yes in [
        r#"type == "DELETED" || kind == "Deployment""#,
        r#"namespace == "shop" && name.startsWith("we")"#,
        r#"namespace in ["shop", "pay"]"#,
        r#"object.metadata.labels["app"] == "web""#,
        r#"object.metadata.labels.app == "web""#,
        "object.metadata.labels.`app.kubernetes.io/name` == \"w\u{e9}b\"",
        r#""app" in object.metadata.labels"#,
        r#"object.spec.containers.exists(c, c.image.startsWith("y:"))"#,
        r#"object.spec.containers.map(c, c.name) == ["a", "b"]"#,
        r#"object.spec.containers[1].name == "b""#,
        r#"object.spec.replicas > 2 && object.spec.ratio < 1.0 && !object.spec.paused"#,
        r#"object.spec.big > 1"#,
        r#"has(object.spec) && has(object.spec.replicas) && !has(object.status)"#,
        r#"object.?status.?phase.orValue("none") == "none""#,
        r#"object.?spec.?replicas.orValue(0) == 3"#,
        r#""spec" in change.areas && change.managers.exists(m, m.manager == "kubectl")"#,
        r#""kubectl" in by && by == ["kubectl"] && by.exists(name, name.startsWith("kube"))"#,
        r#"cluster.name == "prod" && seq == 7 && v == 1"#,
        r#"timestamp(time) > timestamp("2026-11-20T00:00:00Z")"#,
        r#"has(object.odd) && object.odd != null && gap == null && redacted == null && object != null"#,
        r#"{"app": "web", "app.kubernetes.io/name": "wéb"} == object.metadata.labels"#,
        r#"type(seq) == int && size(object.metadata) == 1"#,
        r#"name.matches("^w.b$") && resourceVersion == "41" && uid == "u" && apiVersion == "apps/v1""#,
        r#"(seq == 7 ?namespace: name) == "shop" && !has(object.metadata.namespace)"#,
        r#"object.metadata.?namespace.orValue(namespace) == "shop""#,
        r#"object.spec.containers.all(namespace, namespace.name != "")"#,
    ] {
        assert_eq!(ask(yes, ENTRY), Ok(true), "{yes}");
        assert_eq!(ask(&format!("!({yes})"), ENTRY), Ok(false), "{yes}");
    }
}

#[test]
fn a_key_that_an_entry_lacks_is_null() {
    for yes in [
        r#"namespace != "shop" && namespace == null && null == object"#,
        "!has(object.spec) && !has(change.areas) && has(gap.from) && !has(gap.to)",
        r#"gap.why == "expired" || object.spec.replicas > 1"#,
        r#"object.spec.replicas > 1 || type == "GAP""#,
    ] {
        assert_eq!(ask(yes, GAP), Ok(true), "{yes}");
    }
    assert_eq!(ask("has(object.spec) && object.spec.replicas > 1", GAP), Ok(false));
}

const SENT: &str = r#"{"v":1,"seq":9,"epoch":"e","id":"u.41.MODIFIED.ACTOR","time":"2026-11-21T00:00:00.000000Z","type":"ACTOR","cluster":{"name":"prod","uid":"c"},"apiVersion":"apps/v1","kind":"Deployment","resource":"deployments","namespace":"shop","name":"web","of":{"seq":7,"id":"u.41.MODIFIED"},"actor":{"user":"alice@example.com","agent":"kubectl/v1.36.0 (linux/amd64)","addresses":["10.0.0.7","10.0.0.1"],"verb":"patch","subresource":"scale","certainty":"field","audit_ids":["6f0b"]}}"#;

/// Every entry has an `actor`, and all of its members: what is not known is empty.
#[test]
fn every_entry_has_an_actor() {
    let actor = wire::Entry::parse(SENT.as_bytes()).unwrap().actor().unwrap();
    for (filter, of_sent, of_others) in [
        (r#"actor.user == "alice@example.com""#, true, false),
        (r#"actor.user.endsWith("@example.com") && actor.impersonated_by == """#, true, false),
        (r#"actor.user == "" && actor.agent == "" && actor.verb == "" && actor.certainty == """#, false, true),
        (r#"actor.addresses == [] && actor.audit_ids.size() == 0"#, false, true),
        (r#""10.0.0.1" in actor.addresses && actor.addresses.exists(a, a.startsWith("10."))"#, true, false),
        (r#"actor.agent.startsWith("kubectl/") && actor.verb in ["patch", "update"]"#, true, false),
        (r#"actor.subresource == "scale" && actor.certainty == "field""#, true, false),
        (r#"actor.audit_ids == ["6f0b"] && actor["user"] != """#, true, false),
        (r#"has(actor.user) && has(actor.impersonated_by) && actor != null"#, true, true),
        (r#"actor.?subresource.orValue("none") != "none" && kind != "Pod""#, true, true),
        ("actor == null || size(actor) != 8", false, false),
    ] {
        assert_eq!(ask(filter, SENT), Ok(of_sent), "{filter}");
        for other in [ENTRY, GAP, "{}"] {
            assert_eq!(ask(filter, other), Ok(of_others), "{filter} of {other}");
        }
        // A question brings the sender of a change with it.
        let compiled = Filter::compile(filter).unwrap();
        assert!(compiled.asks_for_sender() && !compiled.asks_only_for(&wire::ROW), "{filter}");
        assert_eq!(compiled.selects_of(ENTRY.as_bytes(), Some(&actor)), Ok(of_sent), "{filter}");
    }
    assert!(!Filter::compile(r#"object.spec.actor == "x""#).unwrap().asks_for_sender());
    let damaged = SENT.replace(r#""user":"alice@example.com","#, "");
    assert_eq!(ask(r#"actor.user == """#, &damaged), Ok(true), "who cannot be read is nobody");
}

#[test]
fn without_an_answer_there_is_an_error_that_quotes_nothing() {
    let answer = |filter: &str| ask(filter, ENTRY).unwrap_err();
    assert_eq!(answer("object.spec.nothing > 1"), "there is no member \"nothing\"; has(...) says whether there is");
    assert_eq!(answer("object.spec.replicas"), "the answer is of type int, not bool");
    assert_eq!(answer("object.spec.replicas > name"), "\">\" does not go with values of type int and string");
    assert!(!answer("object[name] == 1").contains("web"));
    assert!(!answer("timestamp(name) == timestamp(name)").contains("web"));
    assert!(!answer("name + object.spec.replicas == name").contains("web"));
    assert!(answer("object.odd > 1.0").contains("number"), "{}", answer("object.odd > 1.0"));
    assert_eq!(ask("kind == \"Deployment\" && has(object.odd)", ENTRY), Ok(true), "what is not needed is not read");
    assert!(ask("kind == 'x'", "{\"kind\":\"web").unwrap_err().contains("cannot be read"));
    assert!(ask("kind == 'x'", "[]").is_err());
}

#[test]
fn mistakes_are_told_with_their_place() {
    assert_eq!(wrong("knd == \"Pod\""), "line 1, column 1: an entry has no \"knd\"; did you mean \"kind\"?");
    assert_eq!(
        wrong("kind == \"é\" &&\n  Namespace == 1"),
        "line 2, column 3: an entry has no \"Namespace\"; did you mean \"namespace\"?"
    );
    assert!(
        wrong("\"é\" == spec.x").starts_with("line 1, column 8: an entry has no \"spec\"; "),
        "{}",
        wrong("\"é\" == spec.x")
    );
    assert_eq!(
        wrong("name.startWith(\"x\")"),
        "line 1, column 6: there is no function \"startWith\" with these arguments; did you mean \"startsWith\"?"
    );
    assert!(wrong("sizes(name) == 1").contains("no function \"sizes\""));
    assert!(wrong("object.spec.containers.exists(c, d.name == c.name)").contains("no \"d\""));
    assert!(wrong("object.spec.containers.exists(c, true) && c.name == 1").contains("no \"c\""));
    for (text, place) in
        [("kind == ", "line 1, column 9"), ("kind = 1", "line 1, column 6"), ("(kind == 'x'", "line 1, column 13")]
    {
        let error = wrong(text);
        assert!(
            error.starts_with(place) && error.contains("not a CEL expression") && error.len() < 160,
            "{text}: {error}"
        );
    }
    assert!(wrong("  ").contains("empty"));
    assert!(!wrong("namespace =").contains("namespac_"));
}

#[test]
fn what_does_not_go_together_is_told_with_its_place() {
    for (text, column, message) in [
        ("kind", 1, "the answer is of type string, not bool"),
        ("seq + 1", 5, "the answer is of type int, not bool"),
        ("kind == 1", 6, "\"==\" does not go with values of type string and int"),
        ("seq != \"7\"", 5, "\"!=\" does not go with values of type int and string"),
        ("type == 'GAP' || kind < 1", 23, "\"<\" does not go with values of type string and int"),
        ("name && true", 1, "\"&&\" needs a bool, not a value of type string"),
        ("true || size(change.areas)", 13, "\"||\" needs a bool, not a value of type int"),
        ("seq ? true : false", 1, "\"?\" needs a bool, not a value of type int"),
        ("!namespace", 1, "\"!\" does not go with values of type string"),
        ("name + 1 == name", 6, "\"+\" does not go with values of type string and int"),
        ("1 in change.areas", 3, "\"in\" does not go with values of type int and string"),
        ("kind in [1, 2]", 6, "\"in\" does not go with values of type string and int"),
        ("'spec' in kind", 8, "\"in\" does not go with values of type string and string"),
        ("change.areas == 'spec'", 14, "\"==\" does not go with values of type list and string"),
        ("change.areas.exists(a, a == 1)", 26, "\"==\" does not go with values of type string and int"),
        ("change.areas.exists(a, a)", 24, "\"||\" needs a bool, not a value of type string"),
        ("timestamp(time) > 5", 17, "\">\" does not go with values of type timestamp and int"),
        ("change.area == null", 7, "change has no \"area\"; did you mean \"areas\"?"),
        ("has(change.manager)", 4, "change has no \"manager\"; did you mean \"managers\"?"),
        ("actor.adresses == []", 6, "actor has no \"adresses\"; did you mean \"addresses\"?"),
        ("has(actor.usr)", 4, "actor has no \"usr\"; did you mean \"user\"?"),
        ("actor.user == 1", 12, "\"==\" does not go with values of type string and int"),
        ("actor.addresses == '10.0.0.7'", 17, "\"==\" does not go with values of type list and string"),
        ("1 in actor.audit_ids", 3, "\"in\" does not go with values of type int and string"),
        ("actor.verb", 6, "the answer is of type string, not bool"),
        ("kind.name == 'x'", 5, "a value of type string has no members"),
        // What fails with values that are the same for each entry.
        ("name.matches('(')", 14, "this is no regular expression, or one that is too large"),
        ("object.spec.x.matches('a{9}{9999}{9999}')", 23, "this is no regular expression, or one that is too large"),
        ("matches(name, '[' + 'a')", 19, "this is no regular expression, or one that is too large"),
        ("type == 'GAP' || 1 / 0 == seq", 20, "\"/\" has no answer for these values"),
        ("timestamp(time) > timestamp('soon')", 28, "\"timestamp\" has no answer for these values"),
        ("change.areas.exists(a, a == ['x'][1])", 34, "\"[]\" has no answer for these values"),
    ] {
        assert_eq!(wrong(text), format!("line 1, column {column}: {message}"), "{text}");
    }
    for other in [
        "name.matches('^(a|b)$')",
        "object.spec.x.matches(name)",
        "[2, 0].exists(x, 4 / x == seq)",
        "seq / (type == 'GAP' ? 0 : 1) == 7",
    ] {
        assert!(Filter::compile(other).is_ok(), "{other}");
    }
    assert!(wrong("name.startsWith(1)").contains("startsWith"), "{}", wrong("name.startsWith(1)"));
}

#[test]
fn the_object_is_never_read_where_only_other_keys_are_named() {
    let begin = ENTRY.find("\"object\":").unwrap();
    let damaged = format!("{}\"object\":{{no JSON at all, 1e999}}}}", &ENTRY[..begin]);
    for yes in [
        r#"kind == "Deployment" && namespace == "shop" && type != "GAP""#,
        r#""spec" in change.areas && change.managers.exists(m, m.manager == "kubectl")"#,
        "gap == null && redacted == null",
    ] {
        assert_eq!(ask(yes, &damaged), Ok(true), "{yes}");
    }
    assert!(ask("object != null", &damaged).is_err(), "what is named is read");
    // What comes after the object is still there.
    let redacted = damaged.replace("1e999}}", "1e999},\"redacted\":[\"/a\"]}");
    assert_eq!(ask("'/a' in redacted && kind == 'Deployment'", &redacted), Ok(true));
}

#[test]
fn texts_that_would_take_too_much_are_refused_or_survive() {
    let long = 4096;
    for text in [
        "(".repeat(long),
        "[".repeat(long),
        "!".repeat(long),
        format!("{}true", "!".repeat(long - 4)),
        format!("{}kind{}", "(".repeat(2000), ")".repeat(2000)),
        format!("object{}", ".a".repeat(2000)),
        format!("1{} == 1", "+1".repeat(1000)),
        format!("1{} == 1", "-1".repeat(2000)),
        format!("true{}", "?true:true".repeat(400)),
        format!("{}true", "true||".repeat(600)),
        "object.all(a,".repeat(300),
        format!("size({})", "size(".repeat(600)),
        "\"".to_owned(),
        "'''".to_owned(),
        "r'\\".to_owned(),
        "`".to_owned(),
        "//".to_owned(),
        "a".repeat(5000),
    ] {
        let result = std::thread::Builder::new().stack_size(1 << 20).spawn(move || {
            if let Ok(filter) = Filter::compile(&text) {
                filter.matches(ENTRY.as_bytes()).ok();
            }
        });
        result.unwrap().join().unwrap();
    }
    assert!(wrong("object.all(a, object.all(b, object.all(c, a == b)))").contains("loops"));
    assert!(ask("object.spec.containers.all(a, object.spec.containers.exists(b, a == b))", ENTRY).unwrap());
}

#[test]
fn only_what_is_named_is_read() {
    let need = |text: &str| Arc::into_inner(Filter::compile(text).unwrap().0).unwrap().need;
    assert_eq!(need("kind == 'Pod'").members.keys().collect::<Vec<_>>(), ["kind"]);
    let spec = need("has(object.spec) && object.spec.replicas > 1 && object['metadata'].?name == optional.of('x')");
    let object = &spec.members["object"];
    assert!(!object.whole && object.members.keys().eq(["metadata", "spec"]));
    assert!(!object.members["spec"].whole && object.members["spec"].members["replicas"].whole);
    assert!(!need("object == null && null != object.spec").members["object"].whole);
    assert!(need("object == gap").members["object"].whole);
}

proptest! {
    #[test]
    fn any_text_is_handled(text in r#"(namespace|kind|object|\.spec|\["a"\]|has\(|\)|==|&&|\|\||!|"x|'|`|\?|:|\(|1|[ -~é]){0,12}"#) {
        if let Ok(filter) = Filter::compile(&text) {
            filter.matches(ENTRY.as_bytes()).ok();
            filter.matches(GAP.as_bytes()).ok();
        }
    }

    #[test]
    fn text_in_strings_is_left_alone(inner in r#"[a-z "\\n]{0,8}"#) {
        let text = format!("'namespace{}' == \"namespace\" // namespace", inner.replace('\\', "\\\\"));
        prop_assert_eq!(names::hide_reserved(&text), text);
    }
}

#[test]
fn what_keys_are_compared_with_is_known() {
    let compared = |text: &str| {
        let filter = Filter::compile(text).unwrap();
        filter.compared().iter().map(|(key, value)| format!("{key} {value}")).collect::<Vec<_>>()
    };
    assert_eq!(
        compared("type == 'ADDED' && !('pay' == namespace) || kind in ['Pod', 'Secret'] && resource != 'pods'"),
        ["type ADDED", "namespace pay", "kind Pod", "kind Secret", "resource pods"]
    );
    assert_eq!(
        compared("change.patch.exists(kind, kind.op == 'add' && kind != 'x') && name.startsWith('a')"),
        Vec::<String>::new()
    );
    assert_eq!(
        compared("'flux' in by || change.managers.exists(m, m.manager == 'kubectl-set')"),
        ["by flux", "manager kubectl-set"]
    );
    assert_eq!(
        compared("actor.user == 'alice' || actor.impersonated_by in ['bob', 'ci'] || actor.verb == 'patch'"),
        ["user alice", "user bob", "user ci"]
    );
}

#[test]
fn operators_of_other_languages_get_those_of_cel() {
    for (text, meant) in [
        ("type = 'ADDED'", "=="),
        ("seq > 1\n  and kind == 'Pod'", "&&"),
        ("kind == 'Pod' AND seq > 1", "&&"),
        ("kind == 'Pod' or seq > 1", "||"),
    ] {
        let error = Filter::compile(text).unwrap_err().to_string();
        assert!(error.ends_with(&format!("; did you mean {meant:?}?")), "{text}: {error}");
    }
    let bare = Filter::compile("type == DELETED").unwrap_err().to_string();
    assert!(bare.ends_with("a text stands in quotes, as in 'DELETED'"), "{bare}");
}
