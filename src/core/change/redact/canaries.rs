//! Values in every place where Kubernetes has secrets, looked for in every encoding in all that redaction gives out.
//! Each rule is needed: without it a canary is found.

use std::io::Write as _;
use std::sync::LazyLock;

use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use super::*;
use crate::core::change;
use crate::core::model::{Cluster, EntryType, Evidence, Seq};
use crate::core::wire;

#[path = "../../../../tests/daemon/encodings.rs"]
mod encodings;

/// Without a character that an encoding would leave as it is or write in two ways.
const CANARY: &str = "canaryXq7Zk2mVn4Lw8Yt5";
const OTHER: &str = "canaryB9pRk3sQm6XwHn2c";

/// A place where a secret stands, and the rule that takes it out.
struct Carrier {
    name: &'static str,
    resource: (&'static str, &'static str),
    /// The object with this value in it.
    object: fn(&str) -> Value,
    needs: Needs,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Needs {
    /// Any of these alone is not enough to lose it; each of them removed loses it.
    Built(Builtin),
    /// This rule of the configuration.
    Rule(&'static str, RedactMode),
    /// Several rules hide it: it is found only without all of them.
    All,
}

use Needs::{All, Built, Rule as ByRule};

fn coded(text: &str) -> String {
    BASE64_STANDARD.encode(text)
}

fn secret(data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": data})
}

fn annotated(mut object: Value, name: &str, text: impl Into<Value>) -> Value {
    object["metadata"]["annotations"][name] = text.into();
    object
}

/// With what a manager has of it (FieldsV1).
fn managed(mut object: Value, fields: &Value) -> Value {
    let manager = json!({"manager": "m", "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": fields});
    object["metadata"]["managedFields"] = json!([manager]);
    object
}

/// A set of texts, as managedFields have it: each element by its value.
fn set(value: &str) -> Value {
    let fields = json!({"f:spec": {"f:tokens": {".": {}, "v:\"open\"": {}, (format!("v:{}", json!(value))): {}}}});
    managed(json!({"spec": {"tokens": ["open", value]}}), &fields)
}

/// A list of maps, as managedFields have it: each element by its keys.
fn keyed(value: &str) -> Value {
    let key = |name: &str| format!("k:{}", json!({"name": name, "port": 80}));
    let fields = json!({"f:spec": {"f:keys": {".": {}, (key("open")): {".": {}, "f:name": {}}, (key(value)): {".": {}, "f:name": {}, "f:x": {}}}}});
    managed(json!({"spec": {"keys": [{"name": "open", "port": 80}, {"name": value, "port": 80, "x": 1}]}}), &fields)
}

/// A stored block and no compression: a gzip file that any program opens.
fn gzip(bytes: &[u8]) -> Vec<u8> {
    let length = u16::try_from(bytes.len()).unwrap();
    let mut out = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255, 1];
    out.write_all(&length.to_le_bytes()).unwrap();
    out.write_all(&(!length).to_le_bytes()).unwrap();
    out.write_all(bytes).unwrap();
    out.write_all(&crc32fast::hash(bytes).to_le_bytes()).unwrap();
    out.write_all(&u32::from(length).to_le_bytes()).unwrap();
    out
}

/// A token as an API server signs it, with the value in what is signed.
fn token(value: &str) -> String {
    let part = |text: &str| BASE64_URL_SAFE_NO_PAD.encode(text);
    let payload = part(&format!(r#"{{"iss":"kubernetes","sub":"{value}"}}"#));
    format!("{}.{payload}.c2lnbmF0dXJl", part(r#"{"alg":"RS256","kid":"k"}"#))
}

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

#[rustfmt::skip]
const CARRIERS: &[Carrier] = &[
    Carrier { name: "data of a Secret", resource: ("", "secrets"), needs: Built(Builtin::Data),
        object: |v| secret(&json!({"password": coded(v)})) },
    Carrier { name: "binary data of a Secret", resource: ("", "secrets"), needs: Built(Builtin::Data),
        object: |v| secret(&json!({"key": BASE64_STANDARD.encode([&[0, 255, 7], v.as_bytes(), &[0]].concat())})) },
    Carrier { name: "stringData", resource: ("", "secrets"), needs: Built(Builtin::StringData),
        object: |v| json!({"kind": "Secret", "metadata": {"name": "s"}, "stringData": {"password": v}}) },
    Carrier { name: "dockerconfigjson", resource: ("", "secrets"), needs: Built(Builtin::Data),
        object: |v| secret(&json!({".dockerconfigjson": coded(&json!({"auths": {"r.io": {"auth": coded(&format!("u:{v}"))}}}).to_string())})) },
    Carrier { name: "dockercfg", resource: ("", "secrets"), needs: Built(Builtin::Data),
        object: |v| secret(&json!({".dockercfg": coded(&json!({"r.io": {"password": v}}).to_string())})) },
    Carrier { name: "the token of a service account", resource: ("", "secrets"), needs: Built(Builtin::Data),
        object: |v| { let mut o = secret(&json!({"token": coded(&token(v)), "namespace": coded("x")})); o["type"] = json!("kubernetes.io/service-account-token"); o } },
    Carrier { name: "a bootstrap token", resource: ("", "secrets"), needs: Built(Builtin::Data),
        object: |v| secret(&json!({"token-id": coded("abcdef"), "token-secret": coded(v)})) },
    Carrier { name: "a release of Helm", resource: ("", "secrets"), needs: Built(Builtin::Data),
        object: |v| secret(&json!({"release": coded(&BASE64_STANDARD.encode(gzip(json!({"config": {"password": v}}).to_string().as_bytes())))})) },
    Carrier { name: "a TLS key", resource: ("", "secrets"), needs: Built(Builtin::Data),
        object: |v| secret(&json!({"tls.crt": coded("cert"), "tls.key": coded(&format!("-----BEGIN PRIVATE KEY-----\n{v}\n"))})) },
    Carrier { name: "a kubeconfig with a client key", resource: ("", "secrets"), needs: Built(Builtin::Data),
        object: |v| secret(&json!({"value": coded(&format!("users:\n- user:\n    client-key-data: {}\n", coded(v)))})) },
    Carrier { name: "an SSH key", resource: ("", "secrets"), needs: Built(Builtin::Data),
        object: |v| secret(&json!({"ssh-privatekey": coded(v)})) },
    Carrier { name: "basic auth", resource: ("", "secrets"), needs: Built(Builtin::StringData),
        object: |v| json!({"metadata": {}, "stringData": {"username": "u", "password": v}}) },
    Carrier { name: "data that is no map", resource: ("", "secrets"), needs: Built(Builtin::Data),
        object: |v| secret(&json!([coded(v), {"deep": coded(v)}])) },
    Carrier { name: "data inside of data", resource: ("", "secrets"), needs: Built(Builtin::Data),
        object: |v| secret(&json!({"a": {"b": {"c": [coded(v)]}}})) },
    Carrier { name: "last-applied of a Secret", resource: ("", "secrets"), needs: Built(Builtin::Texts),
        object: |v| annotated(secret(&json!({})), LAST_APPLIED, secret(&json!({"p": coded(v)})).to_string()) },
    Carrier { name: "last-applied of a Secret, stringData", resource: ("", "secrets"), needs: Built(Builtin::Texts),
        object: |v| annotated(secret(&json!({})), LAST_APPLIED, json!({"stringData": {"p": v}}).to_string()) },
    Carrier { name: "last-applied with line breaks", resource: ("", "secrets"), needs: Built(Builtin::Texts),
        object: |v| annotated(secret(&json!({})), LAST_APPLIED, serde_json::to_string_pretty(&secret(&json!({"p": coded(v)}))).unwrap()) },
    Carrier { name: "last-applied with a name misspelled", resource: ("", "secrets"), needs: Built(Builtin::Annotations),
        object: |v| annotated(secret(&json!({})), LAST_APPLIED, json!({"kind": "Secret", "stringdata": {"p": v}}).to_string()) },
    Carrier { name: "an annotation in last-applied", resource: ("", "secrets"), needs: Built(Builtin::Annotations),
        object: |v| annotated(secret(&json!({})), LAST_APPLIED, annotated(secret(&json!({})), "example.com/original", v).to_string()) },
    Carrier { name: "a copy in YAML", resource: ("", "secrets"), needs: Built(Builtin::Annotations),
        object: |v| annotated(secret(&json!({})), "example.com/original", format!("kind: Secret\nstringData:\n  p: {v}\n")) },
    Carrier { name: "a copy in base64", resource: ("", "secrets"), needs: Built(Builtin::Annotations),
        object: |v| annotated(secret(&json!({})), "example.com/original", coded(&secret(&json!({"p": v})).to_string())) },
    Carrier { name: "a copy, compressed", resource: ("", "secrets"), needs: Built(Builtin::Annotations),
        object: |v| annotated(secret(&json!({})), "example.com/original", BASE64_STANDARD.encode(gzip(v.as_bytes()))) },
    Carrier { name: "a copy in a text of JSON", resource: ("", "secrets"), needs: All,
        object: |v| annotated(secret(&json!({})), "example.com/original", json!(secret(&json!({"p": coded(v)})).to_string()).to_string()) },
    Carrier { name: "a copy under other names", resource: ("", "secrets"), needs: Built(Builtin::Annotations),
        object: |v| annotated(secret(&json!({})), "example.com/values", json!({"values": {"p": v}}).to_string()) },
    Carrier { name: "a value", resource: ("", "secrets"), needs: Built(Builtin::Annotations),
        object: |v| annotated(secret(&json!({})), "example.com/note", v) },
    Carrier { name: "a value in a sentence", resource: ("", "secrets"), needs: Built(Builtin::Annotations),
        object: |v| annotated(secret(&json!({})), "cert-manager.io/common-name", format!("the password is \"{v}\"")) },
    Carrier { name: "a copy under a name that is known", resource: ("", "secrets"), needs: Built(Builtin::Annotations),
        object: |v| annotated(secret(&json!({})), "cert-manager.io/issuer-name", coded(&secret(&json!({"p": coded(v)})).to_string())) },
    Carrier { name: "an annotation that is no text", resource: ("", "secrets"), needs: Built(Builtin::Annotations),
        object: |v| annotated(secret(&json!({})), "example.com/original", json!({"p": [v]})) },
    Carrier { name: "an annotation of a Secret in a custom resource", resource: ("example.com", "bundles"), needs: Built(Builtin::Annotations),
        object: |v| json!({"spec": {"template": annotated(secret(&json!({})), "example.com/original", coded(v))}}) },
    Carrier { name: "last-applied that breaks off", resource: ("", "secrets"), needs: Built(Builtin::Unreadable),
        object: |v| annotated(secret(&json!({})), LAST_APPLIED, format!(r#"{{"data":{{"p":"{}""#, coded(v))) },
    Carrier { name: "last-applied in YAML", resource: ("", "secrets"), needs: Built(Builtin::Unreadable),
        object: |v| annotated(secret(&json!({})), LAST_APPLIED, format!("kind: Secret\nstringData:\n  p: {v}\n")) },
    Carrier { name: "last-applied of banzai, compressed", resource: ("", "secrets"), needs: All,
        object: |v| annotated(secret(&json!({})), "banzaicloud.com/last-applied", BASE64_STANDARD.encode(gzip(v.as_bytes()))) },
    Carrier { name: "what rancher applied, compressed", resource: ("", "secrets"), needs: All,
        object: |v| annotated(secret(&json!({})), "objectset.rio.cattle.io/applied", BASE64_STANDARD.encode(gzip(v.as_bytes()))) },
    Carrier { name: "a copy in an annotation of any name", resource: ("", "secrets"), needs: All,
        object: |v| annotated(secret(&json!({})), "example.com/copy", json!({"was": [secret(&json!({"p": coded(v)}))]}).to_string()) },
    Carrier { name: "texts in texts deeper than anyone reads", resource: ("", "configmaps"), needs: Built(Builtin::Unreadable),
        object: |v| { let mut text = json!({"kind": "Secret", "stringData": {"p": v}}).to_string();
            for _ in 0..7 { text = json!({"x": text}).to_string(); }
            json!({"data": {"x": text}}) } },
    Carrier { name: "a Secret in the template of a custom resource", resource: ("example.com", "bundles"), needs: Built(Builtin::Inside),
        object: |v| json!({"kind": "Bundle", "spec": {"template": secret(&json!({"p": coded(v)}))}}) },
    Carrier { name: "a list of manifests in a custom resource", resource: ("work.open-cluster-management.io", "manifestworks"), needs: Built(Builtin::Inside),
        object: |v| json!({"spec": {"workload": {"manifests": [{"kind": "ConfigMap"}, secret(&json!({"p": coded(v)}))]}}}) },
    Carrier { name: "a List", resource: ("example.com", "lists"), needs: Built(Builtin::Inside),
        object: |v| json!({"kind": "List", "items": [secret(&json!({"p": coded(v)})), {"kind": "Secret", "stringData": {"q": v}}]}) },
    Carrier { name: "a Secret as text in a ConfigMap", resource: ("", "configmaps"), needs: Built(Builtin::Texts),
        object: |v| json!({"kind": "ConfigMap", "data": {"secret.json": secret(&json!({"p": coded(v)})).to_string()}}) },
    Carrier { name: "a SecretList whose items do not say what they are", resource: ("example.com", "lists"), needs: Built(Builtin::Inside),
        object: |v| json!({"kind": "SecretList", "items": [{"metadata": {}, "data": {"p": coded(v)}}]}) },
    Carrier { name: "a SecretList as text in a ConfigMap", resource: ("", "configmaps"), needs: Built(Builtin::Texts),
        object: |v| json!({"data": {"all.json": json!({"kind": "SecretList", "items": [{"stringData": {"p": v}}]}).to_string()}}) },
    Carrier { name: "a Secret in a text of JSON in a ConfigMap", resource: ("", "configmaps"), needs: Built(Builtin::Texts),
        object: |v| json!({"data": {"x": json!(secret(&json!({"p": coded(v)})).to_string()).to_string()}}) },
    Carrier { name: "a text in a text", resource: ("", "configmaps"), needs: Built(Builtin::Texts),
        object: |v| json!({"data": {"x": json!({"inner": secret(&json!({"p": coded(v)})).to_string()}).to_string()}}) },
    Carrier { name: "last-applied of a custom resource", resource: ("example.com", "bundles"), needs: Built(Builtin::Texts),
        object: |v| annotated(json!({"spec": {}}), LAST_APPLIED, json!({"spec": {"t": secret(&json!({"p": coded(v)}))}}).to_string()) },
    Carrier { name: "last-applied of a List", resource: ("example.com", "lists"), needs: Built(Builtin::Texts),
        object: |v| annotated(json!({"items": []}), LAST_APPLIED, json!({"kind": "List", "items": [secret(&json!({"p": coded(v)}))]}).to_string()) },
    Carrier { name: "a copy of a Secret that breaks off", resource: ("", "configmaps"), needs: Built(Builtin::Unreadable),
        object: |v| json!({"data": {"x": format!(r#"{{"kind":"Secret","data":{{"p":"{}""#, coded(v))}}) },
    Carrier { name: "a token in the environment of a Pod", resource: ("", "pods"), needs: Built(Builtin::Tokens),
        object: |v| json!({"spec": {"containers": [{"env": [{"name": "T", "value": token(v)}]}]}}) },
    Carrier { name: "a token in an argument", resource: ("", "pods"), needs: Built(Builtin::Tokens),
        object: |v| json!({"spec": {"containers": [{"args": [format!("--token={}", token(v))]}]}}) },
    Carrier { name: "a token in a command", resource: ("batch", "jobs"), needs: Built(Builtin::Tokens),
        object: |v| json!({"spec": {"command": ["sh", "-c", format!("curl -H 'Authorization: Bearer {}' https://x", token(v))]}}) },
    Carrier { name: "a token in an annotation", resource: ("apps", "deployments"), needs: Built(Builtin::Tokens),
        object: |v| annotated(json!({"spec": {}}), "note", format!("see {}, please", token(v))) },
    Carrier { name: "a kubeconfig in a ConfigMap", resource: ("", "configmaps"), needs: Built(Builtin::Tokens),
        object: |v| json!({"data": {"kubeconfig": format!("users:\n- name: u\n  user:\n    token: {}\n", token(v))}}) },
    Carrier { name: "the message of an Event", resource: ("", "events"), needs: Built(Builtin::Tokens),
        object: |v| json!({"message": format!("Failed: invalid bearer token {}", token(v))}) },
    Carrier { name: "the message of a condition", resource: ("example.com", "databases"), needs: Built(Builtin::Tokens),
        object: |v| json!({"status": {"conditions": [{"type": "Ready", "message": token(v)}]}}) },
    Carrier { name: "a default in a definition", resource: ("apiextensions.k8s.io", "customresourcedefinitions"), needs: Built(Builtin::Tokens),
        object: |v| json!({"spec": {"versions": [{"schema": {"properties": {"token": {"default": token(v)}}}}]}}) },
    Carrier { name: "the URL of a webhook", resource: ("admissionregistration.k8s.io", "validatingwebhookconfigurations"), needs: Built(Builtin::Tokens),
        object: |v| json!({"webhooks": [{"clientConfig": {"url": format!("https://x.example/?token={}", token(v))}}]}) },
    Carrier { name: "a token in a set", resource: ("example.com", "databases"), needs: Built(Builtin::Tokens),
        object: |v| set(&token(v)) },
    Carrier { name: "a token that names an element", resource: ("example.com", "databases"), needs: Built(Builtin::Tokens),
        object: |v| keyed(&token(v)) },
    Carrier { name: "a token in last-applied", resource: ("", "pods"), needs: All,
        object: |v| annotated(json!({"spec": {}}), LAST_APPLIED, json!({"spec": {"token": token(v)}}).to_string()) },
    Carrier { name: "two tokens in one text", resource: ("", "configmaps"), needs: Built(Builtin::Tokens),
        object: |v| json!({"data": {"x": format!("{} {}", token("first"), token(v))}}) },
    Carrier { name: "a rule that drops", resource: ("", "configmaps"), needs: ByRule("/data/*password*", RedactMode::Drop),
        object: |v| json!({"data": {"db-password": v, "open": "x"}}) },
    Carrier { name: "a rule that masks", resource: ("", "configmaps"), needs: ByRule("/data/api-key", RedactMode::Mask),
        object: |v| json!({"data": {"api-key": v}}) },
    Carrier { name: "a rule that digests", resource: ("", "configmaps"), needs: ByRule("/data/*", RedactMode::Hmac),
        object: |v| json!({"data": {"x": v}}) },
    Carrier { name: "a rule for binaryData", resource: ("", "configmaps"), needs: ByRule("/binaryData", RedactMode::Mask),
        object: |v| json!({"binaryData": {"x": coded(v)}}) },
    Carrier { name: "a rule for values of the environment", resource: ("apps", "deployments"), needs: ByRule("/spec/**/env/*/value", RedactMode::Hmac),
        object: |v| json!({"spec": {"template": {"spec": {"containers": [{"env": [{"name": "PASSWORD", "value": v}]}]}}}}) },
    Carrier { name: "a rule for an annotation", resource: ("", "services"), needs: ByRule("/metadata/annotations/example.com~1auth", RedactMode::Drop),
        object: |v| annotated(json!({"spec": {}}), "example.com/auth", v) },
    Carrier { name: "a rule at any depth", resource: ("example.com", "databases"), needs: ByRule("/**/password", RedactMode::Mask),
        object: |v| json!({"spec": {"users": [{"name": "u", "auth": {"password": v}}]}}) },
    Carrier { name: "a rule for a whole object", resource: ("example.com", "databases"), needs: ByRule("/spec/datasource", RedactMode::Drop),
        object: |v| json!({"spec": {"datasource": {"url": format!("postgres://u:{v}@db"), "list": [v]}}}) },
    Carrier { name: "a rule in the copy of last-applied", resource: ("", "configmaps"), needs: ByRule("/data/*password*", RedactMode::Mask),
        object: |v| annotated(json!({"data": {}}), LAST_APPLIED, json!({"data": {"password": v}}).to_string()) },
    Carrier { name: "a rule, and a copy that cannot be read", resource: ("", "configmaps"), needs: ByRule("/data/*password*", RedactMode::Mask),
        object: |v| annotated(json!({"data": {}}), LAST_APPLIED, format!(r#"{{"data":{{"password":"{v}""#)) },
    Carrier { name: "elements of a set, Drop", resource: ("example.com", "databases"), needs: ByRule("/spec/tokens/*", RedactMode::Drop),
        object: set },
    Carrier { name: "keys of a list, Drop", resource: ("example.com", "databases"), needs: ByRule("/spec/keys/*/name", RedactMode::Drop),
        object: keyed },
    Carrier { name: "elements with keys, Drop", resource: ("example.com", "databases"), needs: ByRule("/spec/keys/*", RedactMode::Drop),
        object: keyed },
    Carrier { name: "a list with keys, Drop", resource: ("example.com", "databases"), needs: ByRule("/spec/keys", RedactMode::Drop),
        object: keyed },
    Carrier { name: "elements of a set, Mask", resource: ("example.com", "databases"), needs: ByRule("/spec/tokens/*", RedactMode::Mask),
        object: set },
    Carrier { name: "keys of a list, Mask", resource: ("example.com", "databases"), needs: ByRule("/spec/keys/*/name", RedactMode::Mask),
        object: keyed },
    Carrier { name: "elements with keys, Mask", resource: ("example.com", "databases"), needs: ByRule("/spec/keys/*", RedactMode::Mask),
        object: keyed },
    Carrier { name: "a list with keys, Mask", resource: ("example.com", "databases"), needs: ByRule("/spec/keys", RedactMode::Mask),
        object: keyed },
    Carrier { name: "elements of a set, Hmac", resource: ("example.com", "databases"), needs: ByRule("/spec/tokens/*", RedactMode::Hmac),
        object: set },
    Carrier { name: "keys of a list, Hmac", resource: ("example.com", "databases"), needs: ByRule("/spec/keys/*/name", RedactMode::Hmac),
        object: keyed },
    Carrier { name: "elements with keys, Hmac", resource: ("example.com", "databases"), needs: ByRule("/spec/keys/*", RedactMode::Hmac),
        object: keyed },
    Carrier { name: "a list with keys, Hmac", resource: ("example.com", "databases"), needs: ByRule("/spec/keys", RedactMode::Hmac),
        object: keyed },
    Carrier { name: "an element of a set, by its place", resource: ("example.com", "databases"), needs: ByRule("/spec/tokens/1", RedactMode::Mask),
        object: set },
    Carrier { name: "keys at any depth", resource: ("example.com", "databases"), needs: ByRule("/**/keys/**/n*e", RedactMode::Hmac),
        object: keyed },
    Carrier { name: "names in a value", resource: ("example.com", "databases"), needs: ByRule("/spec/users", RedactMode::Mask),
        object: |v| managed(json!({"spec": {"users": {v: "x"}}}), &json!({"f:spec": {"f:users": {(format!("f:{v}")): {}}}})) },
    Carrier { name: "a set in the copy of last-applied", resource: ("example.com", "databases"), needs: ByRule("/spec/tokens/*", RedactMode::Hmac),
        object: |v| annotated(json!({}), LAST_APPLIED, set(v).to_string()) },
    Carrier { name: "a rule for an element", resource: ("", "pods"), needs: ByRule("/spec/list/0", RedactMode::Drop),
        object: |v| json!({"spec": {"list": [v, "x"]}}) },
    Carrier { name: "a rule for a URL with a password", resource: ("", "pods"), needs: ByRule("/spec/containers/*/image", RedactMode::Hmac),
        object: |v| json!({"spec": {"containers": [{"image": format!("https://u:{v}@r.io/x")}]}}) },
];

fn resource((group, plural): (&str, &str)) -> Resource {
    Resource {
        group: group.into(),
        version: "v1".into(),
        kind: "Kind".into(),
        plural: plural.into(),
        singular: String::new(),
        short_names: Vec::new(),
        namespaced: true,
    }
}

fn redactor(defaults: bool, rule: Option<(&Carrier, &str, RedactMode)>) -> Redactor {
    let rules = rule.map(|(carrier, path, mode)| RedactRule {
        resources: vec![carrier.resource.1.to_owned()],
        paths: vec![Pattern::parse(path).unwrap()],
        mode,
    });
    Redactor::new(&Settings { defaults, rules: rules.into_iter().collect(), ..Settings::default() }, [9; 32]).unwrap()
}

/// All that decklog lets out about an object: what it stores, what it emits, and what it says where it cannot read it.
fn everything(redactor: &Redactor, carrier: &Carrier, escaped: bool) -> Vec<u8> {
    let resource = resource(carrier.resource);
    let text = |value: &str| {
        let text = (carrier.object)(value).to_string();
        // Names and values may come with escapes that mean the same.
        if escaped { text.replace("data", "d\\u0061ta").replace("eyJ", "\\u0065yJ") } else { text }
    };
    let (old, new) = (text(CANARY), text(OTHER));
    let versions = [&old, &new].map(|raw| redactor.apply(&resource, "uid", raw.as_bytes()).unwrap());
    let mut out = Vec::new();
    for redacted in &versions {
        out.extend_from_slice(&redacted.bytes);
        out.extend_from_slice(format!("{redacted:?}").as_bytes());
    }
    let [before, after] = &versions;
    let change = change::compare(&before.bytes, &after.bytes, &before.marks, &after.marks).unwrap();
    out.extend_from_slice(format!("{change:?}").as_bytes());
    let cluster = Cluster::default();
    let entry = wire::render(&wire::EntryBuilder {
        seq: Seq(1),
        epoch: "e",
        time: "t",
        happened: None,
        happened_between: None,
        op: EntryType::Modified,
        evidence: Some(Evidence::Watched),
        cluster: &cluster,
        api_version: "v1",
        kind: "Kind",
        resource: carrier.resource.1,
        namespace: "n",
        name: "n",
        uid: "uid",
        version: "2",
        managers: None,
        change: Some(&change.json),
        object: Some(&after.bytes),
        gap: None,
        actor: None,
        redacted: &after.pointers,
    });
    out.extend_from_slice(&entry.line);
    for cut in [old.len() / 3, old.len() / 2, old.len() - 1] {
        if let Err(error) = redactor.apply(&resource, "uid", &old.as_bytes()[..old.floor_char_boundary(cut)]) {
            out.extend_from_slice(error.as_bytes());
        }
    }
    out
}

fn leaks(redactor: &Redactor, carrier: &Carrier, escaped: bool) -> Option<String> {
    static NEEDLES: LazyLock<Vec<(String, Vec<encodings::Form>)>> =
        LazyLock::new(|| encodings::needles([CANARY, OTHER]));
    encodings::find(&everything(redactor, carrier, escaped), &NEEDLES)
}

fn rule(carrier: &Carrier) -> Option<(&Carrier, &'static str, RedactMode)> {
    let ByRule(path, mode) = carrier.needs else { return None };
    Some((carrier, path, mode))
}

#[test]
fn no_carrier_lets_a_canary_through() {
    assert!(CARRIERS.len() >= 40 && encodings::forms(CANARY).len() >= 14);
    let mut found = Vec::new();
    for carrier in CARRIERS {
        let redactor = redactor(true, rule(carrier));
        for escaped in [false, true] {
            found.extend(leaks(&redactor, carrier, escaped).map(|what| format!("{}: {what}", carrier.name)));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Every rule, built in or configured, is what keeps its carriers closed: without it their canaries are found.
#[test]
fn without_any_one_of_the_rules_a_canary_is_found() {
    for builtin in Builtin::ALL {
        let needing: Vec<&Carrier> = CARRIERS.iter().filter(|carrier| carrier.needs == Built(builtin)).collect();
        assert!(!needing.is_empty(), "no carrier needs {builtin:?}");
        for carrier in needing {
            let without = redactor(true, None).without(builtin);
            assert!(leaks(&without, carrier, false).is_some(), "{}: {builtin:?} is not needed", carrier.name);
        }
    }
    for carrier in CARRIERS {
        // What a rule of the configuration hides, the built-in ones do not, and the other way round.
        let without = redactor(!matches!(carrier.needs, All), None);
        let configured = rule(carrier).is_some() || carrier.needs == All;
        assert_eq!(leaks(&without, carrier, false).is_some(), configured, "{}", carrier.name);
        assert!(leaks(&redactor(false, None), carrier, false).is_some(), "{}", carrier.name);
    }
}

/// Everything that a panic says of itself goes to standard error, or into the reason why a task has ended. What it was
/// about is in none of them, although the standard library quotes it readily.
#[test]
fn no_panic_quotes_what_it_was_about() {
    const SELF: &str = "core::change::redact::canaries::no_panic_quotes_what_it_was_about";
    const ASKED: &str = "DECKLOG_TEST_PANICS";
    let object = (CARRIERS[0].object)(CANARY).to_string() + OTHER;
    let text = format!("é{object}");
    let panics: [fn(&str); 6] = [
        |text| drop(text[..1].to_owned()),
        |text| assert_eq!(serde_json::from_value::<u8>(json!(text)).unwrap(), 7),
        |text| text.parse().map(|n: u8| assert_eq!(n, 7)).map_err(|_| text).expect("an object that can be read"),
        |text| assert_eq!(text, "another"),
        |text| panic!("cannot take {text}"),
        |text| std::panic::panic_any(text.to_owned()),
    ];
    if std::env::var_os(ASKED).is_some() {
        // In a process of its own, because there is one hook for all threads. Every command begins like this.
        assert_eq!(crate::app::cli::main(["decklog", "--version"].map(Into::into)), std::process::ExitCode::SUCCESS);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut tasks: crate::core::supervise::Supervisor<String> =
            crate::core::supervise::Supervisor::new(Default::default());
        for panics in panics {
            let text = text.clone();
            let ended = runtime.block_on(async {
                tasks.spawn("a task", async move {
                    panics(&text);
                    Ok(())
                });
                tasks.ended().await.unwrap()
            });
            eprintln!("{}", ended.result.unwrap_err());
        }
        return;
    }
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args([SELF, "--exact", "--nocapture"])
        .env(ASKED, "1")
        .output()
        .unwrap();
    let said = [child.stdout, child.stderr].concat();
    let shown = String::from_utf8_lossy(&said);
    assert!(child.status.success(), "{shown}");
    assert_eq!(shown.matches("panicked at src/core/change/redact/canaries.rs").count(), panics.len(), "{shown}");
    assert_eq!(shown.matches("; this is a bug\n").count(), panics.len(), "{shown}");
    assert_eq!(encodings::find(&said, &encodings::needles([CANARY, OTHER])), None, "{shown}");
}

#[test]
fn a_redaction_redacted_again_is_the_same() {
    for carrier in CARRIERS {
        let redactor = redactor(true, rule(carrier));
        let raw = (carrier.object)(CANARY).to_string();
        let resource = resource(carrier.resource);
        let once = redactor.apply(&resource, "uid", raw.as_bytes()).unwrap();
        let twice = redactor.again(&resource, "uid", once.clone()).unwrap();
        let sorted = |redacted: &Redacted| {
            let (mut pointers, mut marks) = (redacted.pointers.clone(), redacted.marks.clone());
            pointers.sort();
            marks.sort();
            (String::from_utf8(redacted.bytes.clone()).unwrap(), pointers, marks)
        };
        assert_eq!(sorted(&once), sorted(&twice), "{}", carrier.name);
    }
}

/// A rule that is added later is at what was stored in clear: its digest is that of the value, so that only a real
/// change is recorded as one.
#[test]
fn what_was_stored_in_clear_is_redacted_as_if_it_had_been_from_the_beginning() {
    for carrier in CARRIERS {
        let (resource, raw) = (resource(carrier.resource), (carrier.object)(CANARY).to_string());
        let redactor = redactor(true, rule(carrier));
        let clear = Redacted { bytes: raw.clone().into_bytes(), ..Redacted::default() };
        let late = redactor.again(&resource, "uid", clear).unwrap();
        assert_eq!(late, redactor.apply(&resource, "uid", raw.as_bytes()).unwrap(), "{}", carrier.name);
    }
    // A value that only looks like a digest is a value, unless an earlier redaction has put it there.
    let text = format!("hmac:{}", "0123456789abcdef".repeat(2));
    let raw = json!({"data": {"x": text}}).to_string();
    let redactor = redactor(true, Some((&CARRIERS[0], "/data/x", RedactMode::Hmac)));
    let stored = |pointers: &[&str]| Redacted {
        bytes: raw.clone().into_bytes(),
        pointers: pointers.iter().map(|pointer| (*pointer).to_owned()).collect(),
        marks: Vec::new(),
    };
    let resource = resource(("", "secrets"));
    assert!(!String::from_utf8(redactor.again(&resource, "u", stored(&[])).unwrap().bytes).unwrap().contains(&text));
    assert!(
        String::from_utf8(redactor.again(&resource, "u", stored(&["/data/x"])).unwrap().bytes).unwrap().contains(&text)
    );
}

/// The search itself must be able to find: each form is in a text that was made in another way.
#[test]
fn every_encoding_would_be_found() {
    let needles = encodings::needles([CANARY]);
    let found = |text: &[u8], what: &str| assert!(encodings::find(text, &needles).is_some(), "{what}");
    for shift in 0..6 {
        let within = format!("{}{CANARY}, and more", "y".repeat(shift));
        found(within.as_bytes(), "as it is");
        found(coded(&within).as_bytes(), "base64");
        found(BASE64_URL_SAFE_NO_PAD.encode(&within).as_bytes(), "base64 for URLs");
        found(coded(&within.chars().rev().collect::<String>()).as_bytes(), "backwards in base64");
        found(coded(&within).bytes().rev().collect::<Vec<_>>().as_slice(), "base64 backwards");
        found(format!("{:02x?}", within.as_bytes()).replace(", ", "").as_bytes(), "hexadecimal");
        found(format!("{:?}", within.as_bytes()).as_bytes(), "a list of numbers");
        let utf16: Vec<u8> = within.encode_utf16().flat_map(u16::to_be_bytes).collect();
        found(&utf16, "UTF-16");
    }
    found(coded(&coded(CANARY)).as_bytes(), "base64 of base64");
    found(&gzip(CANARY.as_bytes()), "gzip that stores");
    let encoded = percent_encoding::percent_encode(CANARY.as_bytes(), percent_encoding::NON_ALPHANUMERIC).to_string();
    found(encoded.as_bytes(), "a URL");
    assert!(encodings::find(b"canary, and nothing of it", &needles).is_none());
}
