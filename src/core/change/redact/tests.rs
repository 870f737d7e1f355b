use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn resource(group: &str, kind: &str, plural: &str) -> Resource {
    Resource {
        group: group.into(),
        version: "v1".into(),
        kind: kind.into(),
        plural: plural.into(),
        singular: kind.to_lowercase(),
        short_names: if plural == "configmaps" { vec!["cm".into()] } else { vec![] },
        namespaced: true,
    }
}

fn secrets() -> Resource {
    resource("", "Secret", "secrets")
}

fn config_maps() -> Resource {
    resource("", "ConfigMap", "configmaps")
}

fn redactor(rules: &[(&str, &str, RedactMode)]) -> Redactor {
    let rules = rules
        .iter()
        .map(|(resource, path, mode)| RedactRule {
            resources: vec![(*resource).to_owned()],
            paths: vec![Pattern::parse(path).unwrap()],
            mode: *mode,
        })
        .collect();
    Redactor::new(&Settings { rules, ..Settings::default() }, [1; 32]).unwrap()
}

fn text(redacted: &Redacted) -> &str {
    std::str::from_utf8(&redacted.bytes).unwrap()
}

fn apply(redactor: &Redactor, resource: &Resource, raw: &str) -> Redacted {
    let redacted = redactor.apply(resource, "uid-1", raw.as_bytes()).unwrap();
    serde_json::from_slice::<serde::de::IgnoredAny>(&redacted.bytes)
        .unwrap_or_else(|e| panic!("{e}: {}", text(&redacted)));
    redacted
}

/// What the rules do can change without a change of the rules: then states from before are redacted again, too.
#[test]
fn the_name_of_the_rules_says_what_they_mean() {
    let rule = RedactRule {
        resources: vec!["*".to_owned()],
        paths: vec![Pattern::parse("/spec/password").unwrap()],
        mode: RedactMode::Mask,
    };
    let config = Settings { rules: vec![rule], defaults: false, ..Settings::default() };
    let name = Redactor::new(&config, [1; 32]).unwrap().fingerprint();
    // As it was made before rules reached into managedFields.
    let before = Sha256::digest("[]\n[\"*\"] [\"/spec/password\"] Mask");
    let before: String = before.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    assert_ne!(name, before);
    assert_eq!(name, Redactor::new(&config, [2; 32]).unwrap().fingerprint());
}

const CANARY: &str = "Y2FuYXJ5LXZhbHVl";

#[test]
fn secrets_keep_their_names_and_lose_their_values() {
    let raw = format!(
        r#"{{"kind":"Secret","apiVersion":"v1","metadata":{{"name":"db","n":1.0}},"data":{{"pass\u0077ord":"{CANARY}", "other":"{CANARY}","none":null,"n":12}},"type":"Opaque"}}"#
    );
    let redacted = apply(&redactor(&[]), &secrets(), &raw);
    let value: Value = serde_json::from_slice(&redacted.bytes).unwrap();
    assert!(text(&redacted).starts_with(
        r#"{"kind":"Secret","apiVersion":"v1","metadata":{"name":"db","n":1.0},"data":{"pass\u0077ord":"hmac:"#
    ));
    assert!(text(&redacted).ends_with(r#"},"type":"Opaque"}"#));
    assert_eq!(redacted.pointers, ["/data/password", "/data/other", "/data/n"]);
    assert!(redacted.marks.is_empty(), "the text shows the change");
    assert_eq!(value["data"]["none"], Value::Null);
    let digest = value["data"]["password"].as_str().unwrap().strip_prefix("hmac:").unwrap();
    assert!(digest.len() == 32 && digest.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)));
    assert_ne!(value["data"]["password"], value["data"]["other"], "equal values of two names do not show");
    assert_eq!(redacted, apply(&redactor(&[]), &secrets(), &raw), "equal values over time can");
    let other = redactor(&[]).apply(&secrets(), "uid-2", raw.as_bytes()).unwrap();
    assert_ne!(redacted.bytes, other.bytes, "nor those of two objects");
    let other =
        Redactor::new(&Settings::default(), [2; 32]).unwrap().apply(&secrets(), "uid-1", raw.as_bytes()).unwrap();
    assert_ne!(redacted.bytes, other.bytes, "nor without the key");
}

#[test]
fn a_digest_is_the_one_that_is_documented() {
    let redacted = apply(&redactor(&[]), &secrets(), r#"{"data":{"a":"v"}}"#);
    let mut mac = Hmac::<Sha256>::new_from_slice(&[1; 32]).unwrap();
    mac.update(b"decklog 1\0uid-1\0/data/a\0sv");
    let hex: String = mac.finalize().into_bytes()[..16].iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(text(&redacted), format!(r#"{{"data":{{"a":"hmac:{hex}"}}}}"#));
}

#[test]
fn secrets_of_odd_shapes_are_redacted_too() {
    let redactor = redactor(&[]);
    for raw in [
        r#"{"d\u0061ta":{"a":"CANARY"}}"#,
        r#"{"data":{"a":"x"},"data":{"a":"CANARY"}}"#,
        r#"{"data":{"a":"CANARY","a":"CANARY"}}"#,
        r#"{"data":"CANARY"}"#,
        r#"{"data":["CANARY"]}"#,
        r#"{"data":{"a":{"b":["CANARY"]}}}"#,
        r#"{"stringData":{"a":"\u0043ANARY CANARY"}}"#,
        "{ \"data\" :\n { \"a\" : \"CANARY\" } }",
    ] {
        let redacted = apply(&redactor, &secrets(), raw);
        assert!(!text(&redacted).contains("ANARY"), "{}", text(&redacted));
        assert!(!redacted.pointers.is_empty());
    }
    let raw = r#"{"data":null,"metadata":{}}"#;
    assert_eq!(text(&apply(&redactor, &secrets(), raw)), raw);
}

fn with_annotation(name: &str, value: &str) -> String {
    json!({ "metadata": { "annotations": { name: value } }, "data": {} }).to_string()
}

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

#[test]
fn last_applied_annotations_of_secrets_are_redacted_inside() {
    let redactor = redactor(&[]);
    let inner =
        json!({ "kind": "Secret", "stringData": { "a": "CANARY" }, "data": { "b": "CANARY" }, "type": "Opaque", "n": 1 }).to_string();
    let redacted = apply(&redactor, &secrets(), &with_annotation(LAST_APPLIED, &inner));
    assert!(!text(&redacted).contains("CANARY"));
    assert_eq!(redacted.pointers, ["/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration"]);
    let outer: Value = serde_json::from_slice(&redacted.bytes).unwrap();
    let inner: Value = serde_json::from_str(outer["metadata"]["annotations"][LAST_APPLIED].as_str().unwrap()).unwrap();
    assert_eq!(inner["type"], "Opaque");
    assert!(inner["n"].as_str().unwrap().starts_with("hmac:"), "no Secret has such a member");
    assert!(inner["stringData"]["a"].as_str().unwrap().starts_with("hmac:"));
    // The same text there and here is the same value.
    let live = apply(&redactor, &secrets(), r#"{"data":{"b":"CANARY"}}"#);
    let live: Value = serde_json::from_slice(&live.bytes).unwrap();
    assert_eq!(live["data"]["b"], inner["data"]["b"]);
    // What cannot be read goes as a whole, wrapped copies are found.
    for value in
        ["{\"data\":{\"a\":\"CANARY\"", "data: CANARY", r#"{"copy":{"x":[{"data":{"a":"CANARY"}}]}}"#, "\"CANARY\""]
    {
        let redacted = apply(&redactor, &secrets(), &with_annotation(LAST_APPLIED, value));
        assert!(!text(&redacted).contains("CANARY"), "{}", text(&redacted));
    }
    let raw = with_annotation("kubernetes.io/service-account.name", "default");
    assert_eq!(text(&apply(&redactor, &secrets(), &raw)), raw);
    // What is not known goes, and its change shows.
    let notes = ["one", "other"].map(|note| apply(&redactor, &secrets(), &with_annotation("note", note)));
    assert_eq!(notes[0].pointers, ["/metadata/annotations/note"]);
    assert!(notes[0] != notes[1] && !text(&notes[0]).contains("one"), "{}", text(&notes[0]));
}

#[test]
fn secrets_inside_other_objects_are_redacted() {
    let redactor = redactor(&[]);
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "data": { "a": "CANARY" } });
    let crd = resource("example.com", "Bundle", "bundles");
    for object in [
        json!({ "spec": { "template": secret } }),
        json!({ "items": [secret, { "kind": "ConfigMap", "data": { "a": "open" } }] }),
        json!({ "metadata": { "annotations": { LAST_APPLIED: json!({ "spec": { "x": [secret] } }).to_string() } } }),
        json!({ "data": { "secret.json": json!({ "x": secret.to_string() }).to_string() } }),
    ] {
        let redacted = apply(&redactor, &crd, &object.to_string());
        assert!(!text(&redacted).contains("CANARY"), "{}", text(&redacted));
        assert_eq!(text(&redacted).contains("open"), object.to_string().contains("open"));
    }
    let reference = r#"{"spec":{"ref":{"kind":"Secret","name":"db"},"data":{"a":"open"}}}"#;
    assert_eq!(text(&apply(&redactor, &crd, reference)), reference);
}

/// A token as an API server makes it: `{"alg":"RS256","kid":"x"}` and `{"iss":"kubernetes"}`.
const JWT: &str = "eyJhbGciOiJSUzI1NiIsImtpZCI6IngifQ.eyJpc3MiOiJrdWJlcm5ldGVzIn0.c2lnbmF0dXJl-CANARY";

#[test]
fn tokens_are_masked_wherever_they_stand() {
    let redactor = redactor(&[]);
    let pods = resource("", "Pod", "pods");
    let raw =
        format!(r#"{{"spec":{{"env":[{{"name":"T","value":"Bearer {JWT}"}}],"n":1.0}},"status":{{"token":"{JWT}"}}}}"#);
    let redacted = apply(&redactor, &pods, &raw);
    assert_eq!(
        text(&redacted),
        r#"{"spec":{"env":[{"name":"T","value":"Bearer redacted:token"}],"n":1.0},"status":{"token":"redacted:token"}}"#
    );
    assert_eq!(redacted.pointers, ["/spec/env/0/value", "/status/token"]);
    assert_eq!(redacted.marks.len(), 2);
    let later = apply(&redactor, &pods, &raw.replace("c2lnbmF0dXJl", "YW5vdGhlcg"));
    assert_eq!(text(&redacted), text(&later));
    assert_ne!(redacted.marks, later.marks, "a new token is a change");
    // In a text of JSON in an annotation, and with escapes in the midst.
    let inner = json!({ "spec": { "token": JWT } }).to_string();
    for raw in [
        json!({ "metadata": { "annotations": { LAST_APPLIED: inner } } }).to_string(),
        format!(r#"{{"a":"{}"}}"#, JWT.replace('.', "\\u002e")),
        format!(r#"{{"a":"{}"}}"#, JWT.replace("eyJ", "\\u0065yJ")),
        format!(r#"{{"a":"eyJeyJ.{JWT}\n"}}"#),
    ] {
        let redacted = apply(&redactor, &pods, &raw);
        assert!(!text(&redacted).contains("CANARY"), "{}", text(&redacted));
        assert_eq!(redacted.marks.len(), 1);
    }
    for raw in [
        r#"{"a":"eyJub3QiOiJhIHRva2VuIn0"}"#,
        r#"{"a":"eyJub3QiOiJhIHRva2VuIn0.b.c"}"#,
        r#"{"a":"eyJ.eyJ.eyJ eyJhbGciOiJSUzI1NiJ9..x"}"#,
    ] {
        assert_eq!(text(&apply(&redactor, &pods, raw)), raw);
    }
}

#[test]
fn an_object_without_anything_to_redact_is_what_it_was() {
    let raw = "{ \"spec\" : {\"secretName\":\"Secret\u{e9}\",\"n\":1e400}, \"spec\":{} }";
    let redacted = apply(&redactor(&[("pods", "/data/x", RedactMode::Drop)]), &config_maps(), raw);
    assert_eq!((text(&redacted), redacted.pointers.len()), (raw, 0));
}

#[test]
fn rules_say_what_stands_in_the_place() {
    let raw = r#"{"data":{"db_password":"CANARY","open":"x","password2":"CANARY"},"list":["CANARY","x"]}"#;
    let modes = |path: &str, mode| {
        let redacted = apply(&redactor(&[("configmaps", path, mode)]), &config_maps(), raw);
        (text(&redacted).to_owned(), redacted.pointers, redacted.marks.len())
    };
    let (masked, pointers, marks) = modes("/data/*password*", RedactMode::Mask);
    assert_eq!(masked, r#"{"data":{"db_password":"***","open":"x","password2":"***"},"list":["CANARY","x"]}"#);
    assert_eq!((pointers, marks), (vec!["/data/db_password".to_owned(), "/data/password2".to_owned()], 2));
    let (dropped, _, marks) = modes("/data/*password*", RedactMode::Drop);
    assert_eq!((dropped.as_str(), marks), (r#"{"data":{"open":"x"},"list":["CANARY","x"]}"#, 2));
    assert_eq!(modes("/data/*", RedactMode::Drop).0, r#"{"data":{},"list":["CANARY","x"]}"#);
    assert_eq!(
        modes("/data/open", RedactMode::Drop).0,
        r#"{"data":{"db_password":"CANARY","password2":"CANARY"},"list":["CANARY","x"]}"#
    );
    assert_eq!(modes("/data", RedactMode::Drop).0, r#"{"list":["CANARY","x"]}"#);
    assert_eq!(
        modes("/list", RedactMode::Drop).0,
        r#"{"data":{"db_password":"CANARY","open":"x","password2":"CANARY"}}"#
    );
    assert!(modes("/list/0", RedactMode::Drop).0.ends_with(r#""list":[null,"x"]}"#));
    assert!(modes("/list/*", RedactMode::Hmac).0.contains(r#""list":["hmac:"#));
    assert!(modes("/**/*password*", RedactMode::Mask).0.contains(r#""db_password":"***""#));
    let unchanged = modes("/nothing", RedactMode::Drop);
    assert_eq!(unchanged, (raw.to_owned(), vec![], 0));
}

#[test]
fn an_element_that_moves_keeps_its_text() {
    let redactor = redactor(&[("*", "/list/*/value", RedactMode::Hmac)]);
    let before = apply(&redactor, &config_maps(), r#"{"list":[{"value":"a"}]}"#);
    let after = apply(&redactor, &config_maps(), r#"{"list":[{"value":"x"},{"value":"a"}]}"#);
    let before = text(&before).strip_prefix(r#"{"list":["#).unwrap();
    assert!(text(&after).ends_with(before));
}

#[test]
fn the_strictest_rule_counts() {
    let redactor = redactor(&[
        ("cm", "/data/a", RedactMode::Drop),
        ("ConfigMap", "/data/*", RedactMode::Hmac),
        ("configmaps.v1", "/data/b", RedactMode::Mask),
        ("*.apps", "/data", RedactMode::Drop),
        ("configmaps.apps", "/data", RedactMode::Drop),
    ]);
    let redacted = apply(&redactor, &config_maps(), r#"{"data":{"a":"1","b":"2"}}"#);
    assert_eq!(text(&redacted), r#"{"data":{"b":"***"}}"#);
}

#[test]
fn rules_hold_in_the_copy_of_last_applied() {
    let redactor = redactor(&[("configmaps", "/data/*password*", RedactMode::Drop)]);
    let inner = json!({ "data": { "password": "CANARY", "open": "x" } }).to_string();
    let redacted = apply(&redactor, &config_maps(), &with_annotation(LAST_APPLIED, &inner));
    assert!(!text(&redacted).contains("CANARY") && text(&redacted).contains("open"));
    assert_eq!(redacted.marks.len(), 1);
    let redacted = apply(&redactor, &config_maps(), &with_annotation(LAST_APPLIED, "{CANARY"));
    assert!(!text(&redacted).contains("CANARY"));
}

/// What two managers have of an object with a set, a list with keys, and members.
const MANAGED: &str = r#"{"metadata":{"managedFields":[{"manager":"a","fieldsV1":{"f:spec":{"f:set":{".":{},"v:\"CANARY\"":{},"v:\"x\"":{},"v:7":{}},"f:n":{}}}},{"manager":"b","fieldsV1":{"f:spec":{"f:list":{"k:{\"name\":\"CANARY\",\"port\":1}":{".":{},"f:name":{},"f:port":{}},"k:{\"name\":\"x\",\"port\":1}":{}}}}}]},"spec":{"set":["CANARY","x",7],"list":[{"name":"CANARY","port":1},{"name":"x","port":1}],"n":1}}"#;

#[test]
fn what_managers_have_repeats_no_value() {
    let fields = |rules: &[(&str, &str, RedactMode)]| {
        let redacted = apply(&redactor(rules), &config_maps(), MANAGED);
        assert!(!text(&redacted).contains("CANARY") || rules.len() == 1, "{}", text(&redacted));
        let value: Value = serde_json::from_slice(&redacted.bytes).unwrap();
        let fields = |at: usize| value["metadata"]["managedFields"][at]["fieldsV1"]["f:spec"].clone();
        (fields(0), fields(1), value["spec"].clone(), redacted.pointers)
    };
    let (of_a, of_b) = ("/metadata/managedFields/0/fieldsV1", "/metadata/managedFields/1/fieldsV1");
    // An element of a set and the keys of one in a list have the digests that stand in the object.
    let (a, b, spec, pointers) =
        fields(&[("*", "/spec/set/*", RedactMode::Hmac), ("*", "/spec/list/*/name", RedactMode::Hmac)]);
    let (set, list) = (&spec["set"], &spec["list"]);
    assert_eq!(
        a,
        json!({"f:set": {".": {}, (format!("v:{}", set[0])): {}, (format!("v:{}", set[1])): {}, (format!("v:{}", set[2])): {}}, "f:n": {}})
    );
    let key = |at: usize| format!("k:{{\"name\":{},\"port\":1}}", list[at]["name"]);
    assert_eq!(b, json!({"f:list": {(key(0)): {".": {}, "f:name": {}, "f:port": {}}, (key(1)): {}}}));
    assert_eq!(&pointers[..2], [of_a, of_b]);
    assert!(pointers.iter().all(|pointer| !pointer.contains("v:") && !pointer.contains("k:")), "{pointers:?}");
    // Where they would look the same, they go.
    for mode in [RedactMode::Mask, RedactMode::Drop] {
        let (a, b, _, pointers) = fields(&[("*", "/spec/set/*", mode), ("*", "/spec/list/*/name", mode)]);
        assert_eq!((a, b), (json!({"f:set": {".": {}}, "f:n": {}}), json!({"f:list": {}})));
        assert_eq!(&pointers[..2], [of_a, of_b]);
    }
    // Below what goes as a whole nothing is kept; what a rule for one place means is not known here.
    let (a, b, ..) = fields(&[("*", "/spec/set", RedactMode::Mask), ("*", "/spec/list/0", RedactMode::Drop)]);
    assert_eq!((a, b), (json!({"f:set": {}, "f:n": {}}), json!({"f:list": {}})));
    // And nothing else is touched.
    let (a, b, _, pointers) = fields(&[("*", "/spec/n", RedactMode::Mask)]);
    let raw: Value = serde_json::from_str(MANAGED).unwrap();
    let before = |at: usize| raw["metadata"]["managedFields"][at]["fieldsV1"]["f:spec"].clone();
    assert_eq!((a, b, &pointers[..]), (before(0), before(1), &["/spec/n".to_owned()][..]));
    // What is no set of fields is not one that a rule could be followed through.
    let odd = r#"{"metadata":{"managedFields":[{"fieldsV1":{"f:spec":{"f:set":["CANARY"],"f:n":"x"},"x:y":1}}]}}"#;
    let redacted = apply(&redactor(&[("*", "/spec/set/*", RedactMode::Hmac)]), &config_maps(), odd);
    assert_eq!(text(&redacted), odd.replace(r#"["CANARY"]"#, "{}"));
}

#[test]
fn what_names_the_object_stays() {
    let redactor = redactor(&[("*", "/**/name", RedactMode::Drop), ("*", "/*", RedactMode::Mask)]);
    let raw = r#"{"kind":"ConfigMap","metadata":{"name":"a","uid":"u"},"spec":{"name":"b"}}"#;
    let redacted = apply(&redactor, &config_maps(), raw);
    assert_eq!(text(&redacted), r#"{"kind":"ConfigMap","metadata":{"name":"a","uid":"u"},"spec":"***"}"#);
}

#[test]
fn rules_that_are_wrong_are_reported_all_at_once() {
    let rule = |resource: &str, path: &str| RedactRule {
        resources: vec![resource.to_owned()],
        paths: vec![Pattern::parse(path).unwrap()],
        mode: RedactMode::Mask,
    };
    let rules = vec![rule("", "/ok"), rule("a b", "/ok"), rule("pods", "/metadata/name"), rule("pods", "/ok")];
    let errors = Redactor::new(&Settings { rules, ..Settings::default() }, [0; 32]).unwrap_err();
    assert_eq!(errors.len(), 3, "{errors:?}");
    assert!(errors[0].starts_with("redaction rule 1:") && errors[2].contains("names the object"));
}

#[test]
fn what_is_not_json_is_refused_without_quoting_it() {
    for raw in [&br#"{"data":"CANARY""#[..], b"CANARY", b"{\"data\":\"CANARY\xff\"}", b"{\"data\":CANARY}"] {
        let error = redactor(&[]).apply(&secrets(), "u", raw).unwrap_err();
        assert!(!error.contains("CANARY"), "{error}");
    }
}

#[test]
fn depth_hides_nothing() {
    let deep =
        format!(r#"{{"x":{}{{"kind":"Secret","data":{{"a":"CANARY"}}}}{}}}"#, "[".repeat(50_000), "]".repeat(50_000));
    let redacted = redactor(&[]).apply(&config_maps(), "u", deep.as_bytes()).unwrap();
    assert!(!text(&redacted).contains("CANARY"));
    let mut nested = json!({ "kind": "Secret", "data": { "a": "CANARY" } }).to_string();
    for _ in 0..7 {
        nested = json!({ "x": nested }).to_string();
    }
    let redacted = apply(&redactor(&[]), &secrets(), &with_annotation("copy", &nested));
    assert!(!text(&redacted).contains("CANARY"), "{}", text(&redacted));
    let redacted = apply(&redactor(&[]), &config_maps(), &with_annotation("copy", &nested));
    assert!(!text(&redacted).contains("CANARY"), "{}", text(&redacted));
}

#[test]
fn the_key_is_in_no_debug_output() {
    let redactor = Redactor::new(&Settings::default(), *b"keykeykeykeykeykeykeykeykeykeyke").unwrap();
    let debug = format!("{redactor:?}");
    assert!(!debug.contains("107") && !debug.contains("key"), "{debug}");
}

/// JSON with the canary in any of its strings.
fn holder() -> impl Strategy<Value = Value> {
    let canary = prop_oneof![
        Just("CANARY".to_owned()),
        Just(CANARY.to_owned()),
        Just("\"CANARY\"\n\u{e9}".to_owned()),
        Just(json!({ "data": { "x": "CANARY" } }).to_string()),
    ];
    let leaf = prop_oneof![canary.prop_map(Value::from), Just(json!(1)), Just(Value::Null)];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-c/~é\"]{1,3}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn no_value_of_a_secret_gets_through(
        data in holder(),
        strings in holder(),
        annotation in holder(),
        name in prop_oneof![Just(LAST_APPLIED), Just("example.com/last-applied"), Just("copy")],
        shape in 0..4,
        pretty in any::<bool>(),
        cut in prop::option::of(1_usize..20),
    ) {
        let inner = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": {}, "data": annotation, "stringData": annotation });
        let inner = match shape {
            0 => inner,
            1 => json!([inner]),
            2 => json!({ "list": { "items": [inner] } }),
            _ => json!({ "kind": "Other", "copy": inner.to_string() }),
        };
        let mut inner = if pretty { serde_json::to_string_pretty(&inner).unwrap() } else { inner.to_string() };
        if let Some(cut) = cut {
            inner.truncate(inner.floor_char_boundary(inner.len().saturating_sub(cut)));
        }
        let mut annotations = serde_json::Map::new();
        annotations.insert(name.to_owned(), Value::from(inner));
        let object = json!({ "metadata": { "annotations": annotations, "name": "x" }, "data": data, "stringData": strings });
        let raw = if pretty { serde_json::to_string_pretty(&object).unwrap() } else { object.to_string() };
        let redacted = apply(&redactor(&[]), &secrets(), &raw);
        prop_assert!(!text(&redacted).contains("CANARY"), "{}", text(&redacted));
        prop_assert!(!text(&redacted).contains(CANARY), "{}", text(&redacted));
    }

    #[test]
    fn rules_leave_nothing_of_what_they_name(
        object in prop::collection::btree_map("[ab]{1,2}|secret", holder(), 0..5),
        mode in prop_oneof![Just(RedactMode::Drop), Just(RedactMode::Mask), Just(RedactMode::Hmac)],
        pretty in any::<bool>(),
    ) {
        let object = json!({ "spec": object });
        let raw = if pretty { serde_json::to_string_pretty(&object).unwrap() } else { object.to_string() };
        let redacted = apply(&redactor(&[("*", "/spec/*", mode)]), &config_maps(), &raw);
        prop_assert!(!text(&redacted).contains("ANARY"), "{}", text(&redacted));
        // Whatever else there is comes through.
        let other = apply(&redactor(&[("*", "/spec/secret/**/a", mode)]), &config_maps(), &raw);
        let (mut before, mut after): (Value, Value) = (object, serde_json::from_slice(&other.bytes).unwrap());
        for value in [&mut before, &mut after] {
            value["spec"].as_object_mut().unwrap().remove("secret");
        }
        prop_assert_eq!(before, after);
    }

    #[test]
    fn any_bytes_are_handled(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        if let Ok(redacted) = redactor(&[("*", "/**/a", RedactMode::Drop)]).apply(&secrets(), "u", &bytes) {
            prop_assert!(serde_json::from_slice::<serde::de::IgnoredAny>(&redacted.bytes).is_ok());
        }
    }
}

/// Whoever writes an object of very many values that a rule names makes decklog keep no mark of each.
#[test]
fn what_holds_very_many_values_to_redact_is_redacted_as_a_whole() {
    let list = |from: usize| {
        let values: Vec<String> = (0..3 * MOST).map(|n| (n + from).to_string()).collect();
        format!(r#"{{"metadata":{{"name":"n"}},"spec":{{"x":[{}],"y":{{"z":1}}}},"a":2}}"#, values.join(","))
    };
    for mode in [RedactMode::Mask, RedactMode::Hmac, RedactMode::Drop] {
        let redactor = redactor(&[("configmaps", "/spec/x/*", mode), ("configmaps", "/a", mode)]);
        let [one, other] = [0, 1].map(|from| apply(&redactor, &config_maps(), &list(from)));
        assert_eq!(one.pointers, ["/spec/x", "/a"], "{mode:?}");
        assert!(one.bytes.len() < 300 && text(&one).contains(r#""y":{"z":1}"#), "{}", text(&one));
        // That one of them changed is still known.
        assert!(one.bytes != other.bytes || one.marks != other.marks, "{mode:?}");
        assert!(one.marks.len() <= 2);
    }
    // Spread over many places, each of which holds few of them, or none but the object itself.
    let wide = |from: usize, open: &str, inner: fn(usize) -> String, close: &str| {
        let members: Vec<String> = (0..3 * MOST).map(|n| format!("\"k{n}\":{}", inner(n + from))).collect();
        format!(r#"{{"metadata":{{"name":"n"}},{open}{}{close}}}"#, members.join(","))
    };
    for (path, open, inner, close, count) in [
        ("/spec/*/p", "\"spec\":{", (|n| format!(r#"{{"p":{n}}}"#)) as fn(usize) -> String, "}", 1),
        ("/*/p", "", |n| format!(r#"{{"p":{n}}}"#), "", 3 * MOST),
        ("/*", "", |n| n.to_string(), "", 3 * MOST),
    ] {
        let redactor = redactor(&[("configmaps", path, RedactMode::Mask)]);
        let redacted = apply(&redactor, &config_maps(), &wide(0, open, inner, close));
        assert_eq!(redacted.pointers.len(), count, "{path}");
        assert!(text(&redacted).contains(r#""metadata":{"name":"n"}"#), "{path}");
    }
    let keys: Vec<String> = (0..2 * MOST).map(|n| format!("\"k{n}\":\"\"")).collect();
    let secret = format!(r#"{{"kind":"Secret","metadata":{{"name":"n"}},"data":{{{}}}}}"#, keys.join(","));
    let redacted = apply(&redactor(&[]), &secrets(), &secret);
    assert_eq!(redacted.pointers, ["/data"]);
    assert!(!text(&redacted).contains("k17"), "{}", text(&redacted));
}
