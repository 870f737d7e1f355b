//! The recipes of the book, and whom their messages name.

use super::*;
use crate::sink::notify::{Notify, Rule};

/// An entry, and the users that the audit log names for it.
struct Case {
    what: &'static str,
    line: String,
    users: &'static [&'static str],
    /// Those that a message names; none where nobody is known.
    named: &'static [&'static str],
    /// The place that changed.
    changed: &'static str,
}

/// The recipes of the page: their names, whether they notify, their escapes and their bodies.
fn recipes() -> Vec<(String, bool, Escape, String)> {
    let page = include_str!("../../../../../docs/messages.md");
    let recipe = |rest: &str| {
        let (keys, body) = rest.split_once("body = '''\n")?;
        let key = |key: &str| keys.lines().find_map(|line| line.strip_prefix(&format!("{key} = ")).map(str::to_owned));
        let escape = serde_json::from_str(&key("escape").unwrap()).unwrap();
        let name = key("name").unwrap().trim_matches('"').to_owned();
        Some((name, keys.contains("\nnotify = "), escape, body.split("'''").next().unwrap().to_owned()))
    };
    page.split("[[sink]]\n").skip(1).filter_map(recipe).collect()
}

fn entry(op: &str, object: &str, more: &str) -> String {
    format!(
        r#"{{"v":1,"seq":41,"epoch":"e1","id":"u.9.{op}","time":"2026-11-21T10:15:00.123456Z","type":"{op}","cluster":{{"name":"prod","uid":"c1"}},"apiVersion":"apps/v1","kind":"Deployment","resource":"deployments","namespace":"shop",{object}{more}}}"#
    )
}

fn modified(path: &str, was: &str, value: &str, managers: &str) -> String {
    let spec = match path {
        "/spec/replicas" => format!(r#""replicas":{value}"#),
        _ => format!(r#""template":{{"spec":{{"containers":[{{"name":"web","image":{value}}}]}}}}"#),
    };
    // What else a write moves stands before it, and what follows it behind.
    let others = |path: &str| format!(r#"{{"op":"replace","path":"{path}","value":"9","was":"8"}}"#);
    let before = [
        "/metadata/resourceVersion",
        "/metadata/generation",
        "/metadata/managedFields/0/time",
        "/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration",
        "/metadata/annotations/deployment.kubernetes.io~1revision",
        "/status/observedGeneration",
    ];
    let before = before.map(others).join(",");
    let change = format!(
        r#""evidence":"watched","change":{{"areas":["managedFields","metadata","spec","status"],"patch":[{before},{{"op":"replace","path":"{path}","value":{value},"was":{was}}}],"managers":[{managers}]}}"#
    );
    let metadata = r#""metadata":{"name":"web","namespace":"shop","resourceVersion":"9","generation":"9","annotations":{"kubectl.kubernetes.io/last-applied-configuration":"9","deployment.kubernetes.io/revision":"9"},"managedFields":[{"time":"9"}]}"#;
    let object = format!(
        r#""object":{{"apiVersion":"apps/v1","kind":"Deployment",{metadata},"spec":{{{spec}}},"status":{{"observedGeneration":"9"}}}}"#
    );
    entry("MODIFIED", r#""name":"web","uid":"u","resourceVersion":"9","#, &format!("{change},{object}"))
}

fn cases() -> Vec<Case> {
    const SCALE: &str = "/spec/replicas";
    const IMAGE: &str = "/spec/template/spec/containers/0/image";
    const KUBECTL: &str = r#"{"manager":"kubectl-set","operation":"Update"}"#;
    let actor = r#""of":{"seq":40,"id":"u.9.DELETED"},"actor":{"user":"alice@example.com","impersonated_by":"rancher","agent":"kubectl","addresses":["10.0.0.7"],"verb":"delete","certainty":"deleted","audit_ids":["a"]}"#;
    let alice: &[&str] = &["alice@example.com"];
    let case = |what, line: String, users, named| {
        let is_of = |path: &&str| line.contains(&format!(r#""path":"{path}""#));
        let changed = [SCALE, IMAGE].into_iter().find(is_of).unwrap_or_default();
        Case { what, line, users, named, changed }
    };
    vec![
        case(
            "a deletion by a person, through another one",
            entry("ACTOR", r#""name":"web","uid":"u","resourceVersion":"9","#, actor),
            &[],
            &["alice@example.com", "rancher"],
        ),
        case("a scale to 0 by nobody", modified(SCALE, "3", "0", ""), &[], &[]),
        case("a scale to 0 by a person", modified(SCALE, "3", "0", ""), alice, alice),
        case("an image by a program", modified(IMAGE, r#""web:1""#, r#""web:2""#, KUBECTL), &[], &["kubectl-set"]),
        case("an image by a person", modified(IMAGE, r#""web:1""#, r#""web:2""#, KUBECTL), alice, alice),
        case("a GAP", entry("GAP", r#""gap":{"why":"expired","from":"7","to":"9"}"#, ""), &[], &[]),
    ]
}

/// A message of each recipe about each of these says who did it where that is known, by the user before the manager, and else nothing.
/// One of an incident says what changed, and not what each write moves, and has a link to the page.
#[test]
fn every_recipe_names_who_did_it_and_what_changed() {
    let rules = ["image-changed", "scaled-to-0", "deleted-by-a-person", "gap"];
    let rules = rules.map(|rule| <Rule as crate::core::spelling::Text>::read(rule).unwrap()).to_vec();
    let time = std::time::Duration::from_secs(10);
    let notify = Notify { rules, group: time, wait: time, digest: 10, updates: false };
    let recipes = recipes();
    assert_eq!(recipes.len(), 11);
    let (mut all, mut wrong) = (String::new(), Vec::new());
    for (name, notifies, escape, body) in recipes {
        let template = Template::read(&body, true, escape).unwrap_or_else(|error| panic!("{name}: {error}"));
        for Case { what, line, users, named, changed } in cases() {
            let mut incident = notify.alone(line.as_bytes()).unwrap_or_else(|error| panic!("{what}: {error}: {line}"));
            let selected = incident.as_mut().unwrap_or_else(|| panic!("no rule selects {what}"));
            if !users.is_empty() {
                selected.users = users.iter().map(|user| (*user).to_owned()).collect();
            }
            // The audit log is read later: a message for an entry has its user where it is of the ACTOR.
            let named = if notifies || users.is_empty() { named } else { &named[named.len()..] };
            let op = Header::parse(line.as_bytes()).unwrap().op;
            let item = Item::new(Seq(41), op, line.into()).about(incident.filter(|_| notifies));
            let body = body_of(&template, &item).to_string();
            all += &format!("{name}, {what}:\n{body}\n\n");
            let plain = body.replace(['\\', '\u{200b}'], "");
            let says = if notifies { [changed, "https://decklog.example/#entry=41"] } else { [""; 2] };
            let missing = named.iter().chain(&says).find(|text| !plain.contains(**text));
            let moved = ["resourceVersion", "generation", "managedFields", "last-applied"];
            let moved = moved.into_iter().find(|word| body.contains(word));
            let leftover = [", ,", "by \"", "by <", "by ;", "by ,", "[]"].into_iter().find(|left| body.contains(left));
            if missing.is_some()
                || moved.is_some()
                || leftover.is_some_and(|left| left != "[]" || !body.contains(r#""parse":[]"#))
            {
                wrong.push(format!("{name}, {what}: without {missing:?}, with {leftover:?} {moved:?}: {body}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    insta::with_settings!({snapshot_path => "../../../../../tests/golden", prepend_module_to_snapshot => false}, {
        insta::assert_snapshot!("messages", all);
    });
}
