//! A log with a canary in each object of a hundred namespaces, and readers who may list some of them.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Instant;

use jiff::tz::TimeZone;
use regex::Regex;
use serde_json::{Value, json};

use super::senders::sent;
use super::*;
use crate::core::k8s::audited::Sender;
use crate::core::rights::{Decision, Refusal, Refused, Rights};
use crate::core::wire::Entry;

/// Number of namespaces.
pub(crate) const NAMESPACES: usize = 100;

/// Kinds of the objects, the last one of no namespace.
pub(crate) const KINDS: [&str; 3] = ["configmaps", "deployments", "nodes"];

/// Numbers that only look random.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self, sides: usize) -> usize {
        // A step of an LCG with the constants of Knuth's MMIX.
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % sides
    }
}

/// What a reader may list: a resource, in a namespace or in all.
type Right = (&'static str, Option<usize>);

/// Rights of one reader, which may change at any time.
#[derive(Debug, Default)]
pub(crate) struct Roles(pub(crate) Mutex<BTreeSet<Right>>);

impl Roles {
    pub(crate) fn may(&self, kind: &str, namespace: Option<usize>) -> bool {
        self.0.lock().unwrap().iter().any(|(of, within)| *of == kind && (within.is_none() || *within == namespace))
    }

    /// Takes other rights: some in namespaces, now and then one in all.
    pub(crate) fn change(&self, dice: &mut Dice) {
        let mut rights = BTreeSet::new();
        for _ in 0..dice.roll(6) {
            rights.insert((KINDS[dice.roll(2)], Some(dice.roll(NAMESPACES))));
        }
        if dice.roll(4) == 0 {
            rights.insert((KINDS[dice.roll(3)], None));
        }
        *self.0.lock().unwrap() = rights;
    }
}

impl Rights for Roles {
    fn may_list(&self, _: &str, plural: &str, namespace: &str) -> Result<Decision, Refusal> {
        let namespace = namespace.strip_prefix("canary-").and_then(|number| number.parse().ok());
        // It holds for no time, so that each row is decided by the rights of that moment.
        Ok(Decision { is_allowed: self.may(plural, namespace), until: Instant::now() })
    }

    fn recall(&self, group: &str, plural: &str, namespace: &str) -> Option<bool> {
        self.may_list(group, plural, namespace).ok().map(|decision| decision.is_allowed)
    }

    fn may_get(&self, _: &str) -> Result<Decision, Refusal> {
        Err(Refusal::new(Refused::Forbidden, "no question gets a path"))
    }

    fn hold(&self) -> Result<(), Refusal> {
        Ok(())
    }
}

/// Writes the log: objects that come, change and go, each with its canary in its name, its data and its manager.
pub(crate) async fn written(dir: &Path) {
    Story::play(dir, &[], async |story| {
        for turn in 0..2 {
            for number in 0..NAMESPACES {
                for kind in &KINDS[..2] {
                    let canary = format!("canary-{number:02}-{kind}");
                    let name = format!("canary-{number:02}/{canary}-name");
                    let (value, manager) = (format!("{canary}-value{turn}"), format!("{canary}-manager"));
                    story.write(kind, &name, &manager, |object| object["data"] = json!({"key": value})).await;
                }
                if turn == 1 {
                    let name = format!("canary-{number:02}/canary-{number:02}-configmaps-name");
                    story.write("configmaps", &name, "kubectl", |object| object["data"]["more"] = json!("x")).await;
                    let user = format!("canary-{number:02}-configmaps-user");
                    sent(story, Sender { user, ..Sender::default() }, "exact").await;
                }
                if turn == 0 && number % 25 == 0 {
                    let lost = format!("canary-{number:02}/canary-{number:02}-configmaps-unreadable");
                    story.unreadable("configmaps", &lost).await;
                }
                if turn == 0 {
                    let gone = format!("canary-{number:02}/canary-{number:02}-configmaps-gone");
                    story.write("configmaps", &gone, "kubectl", |object| object["data"] = json!({"a": "b"})).await;
                    story.delete("configmaps", &gone).await;
                }
                story.pass(1).await;
            }
            story.write("nodes", "canary-00-nodes-name", "kubelet", |node| node["spec"] = json!({"turn": turn})).await;
        }
        story.expire("configmaps").await;
    })
    .await;
}

/// Returns the canaries in a text that the rights do not cover, beside those of the question, and how many they cover.
pub(crate) fn judged(roles: &Roles, question: &str, answer: &str) -> (Vec<String>, usize) {
    judged_by(&|kind, number| roles.may(kind, (kind != "nodes").then_some(number)), question, answer)
}

/// As [`judged`], with what may be listed of a kind in a namespace. Names of namespaces are for those who may list something there.
pub(crate) fn judged_by(may_list: &dyn Fn(&str, usize) -> bool, question: &str, answer: &str) -> (Vec<String>, usize) {
    static CANARY: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"canary-([0-9]{2})(?:-(configmaps|deployments|nodes)-[a-z0-9]+)?").expect("it is an expression")
    });
    let (mut leaked, mut covered) = (Vec::new(), 0);
    for found in CANARY.captures_iter(answer) {
        let number: usize = found[1].parse().unwrap();
        let may = match found.get(2).map(|kind| kind.as_str()) {
            Some(kind) => may_list(kind, number),
            None => KINDS[..2].iter().any(|kind| may_list(kind, number)),
        };
        if may {
            covered += 1;
        } else if !question.contains(&found[0]) {
            leaked.push(found[0].to_owned());
        }
    }
    (leaked, covered)
}

/// Returns a question of each sort, about a namespace, an entry and a kind.
pub(crate) fn questions(number: usize, seq: usize, kind: &str) -> Vec<(&'static str, Value)> {
    let (namespace, name) = (format!("canary-{number:02}"), format!("canary-{number:02}-{kind}-name"));
    let (object, resource) =
        (format!("{kind}/{name}"), if kind == "deployments" { "deployments.apps" } else { kind }.to_owned());
    let only = json!({"namespaces": [namespace], "since": "1970-01-01T00:00:00Z"});
    let window = json!({"quiet": true, "since": "1970-01-01T00:00:00Z"});
    let within = json!({"quiet": true, "namespaces": [namespace]});
    let expression = json!({"quiet": true, "where": "object != null || type != ''"});
    let epoch = json!({"since": "1970-01-01T00:00:00Z"});
    vec![
        ("tail", json!({"last": 50})),
        ("tail", json!({"select": {"only": {"namespaces": [namespace]}}, "last": 5})),
        ("tail", json!({"select": {"objects": [kind]}, "last": 1000, "reverse": true})),
        ("tail", json!({"select": {"only": {"where": "true"}}, "last": 2000})),
        ("log", json!({"object": object, "only": {"namespaces": [namespace]}, "folds": true, "tree": true})),
        ("causes", json!({"only": epoch, "all": true})),
        ("causes", json!({"only": only})),
        ("show", json!({"seq": seq})),
        ("get", json!({"objects": [kind]})),
        ("get", json!({"objects": [object], "namespaces": [namespace], "at": {"seq": seq}})),
        ("diff", json!({"from": {"seq": 1}, "utc": true})),
        ("diff", json!({"objects": [kind], "from": {"seq": seq}, "utc": true})),
        ("blame", json!({"object": object, "paths": [], "namespaces": []})),
        ("why", json!({"object": object, "paths": [], "namespaces": [namespace]})),
        ("drift", json!({})),
        ("churn", json!({"select": {"only": epoch}, "requests": false, "top": 50})),
        ("coverage", json!({})),
        ("coverage", json!({"objects": [kind]})),
        ("status", json!({"whatever": true})),
        ("verify", json!({})),
        ("names", json!("namespaces")),
        ("names", json!({"objects": {"kind": kind, "namespaces": [], "start": "c"}})),
        ("names", json!("managers")),
        ("names", json!({"fields": {"object": object, "namespaces": [], "start": "/"}})),
        ("overview", json!({})),
        ("histogram", json!({"window": window, "buckets": 20})),
        ("lanes", json!({"window": window, "order": "causes", "lanes": 500, "marks": 10_000})),
        ("lanes", json!({"window": within, "order": "names", "lanes": 50, "marks": 100})),
        ("entries", json!({"window": window, "limit": 500})),
        ("entries", json!({"window": window, "before": seq, "limit": 5})),
        ("entries", json!({"window": expression, "limit": 50})),
        ("entry", json!({"seq": seq, "neighbours": true})),
        ("compare", json!({"from": seq, "to": seq + 2})),
        ("object", json!({"resource": resource, "namespace": namespace, "name": name})),
        ("state", json!({"limit": 1000})),
        ("changes", json!({"limit": 1000, "from": {"seq": 1}})),
        ("writers", json!({"window": window})),
        ("timeline", json!({"window": within, "max_bytes": 1 << 20})),
        ("updates", json!({"window": window, "after": null})),
    ]
}

/// Asks a question with some rights: the items, notes and the end, as one text.
pub(crate) fn asked(dir: &Path, roles: &Arc<Roles>, name: &str, question: &Value) -> (String, Result<(), Failure>) {
    let text = std::cell::RefCell::new(String::new());
    let note = |line: &str| text.borrow_mut().push_str(line);
    let clock = Clock { now: Timestamp::now(), zone: TimeZone::UTC };
    let log = Log::new(dir.to_owned(), Sight::Only(Arc::<Roles>::clone(roles)), clock, &note, &|| false);
    let answered = answer(name, &question.to_string(), &log, &mut |item| {
        text.borrow_mut().push_str(item.get());
        Ok(())
    });
    if let Err(failure) = &answered {
        text.borrow_mut().push_str(failure.text());
    }
    (text.into_inner(), answered)
}

/// Every question shows what may be listed at that time, and nothing of the rest, while the rights of fifty readers change.
#[tokio::test(start_paused = true)]
async fn no_question_shows_what_may_not_be_listed() {
    let dir = tempfile::tempdir().unwrap();
    written(dir.path()).await;
    let dir = dir.path();
    let head = usize::try_from(Reader::open(dir).unwrap().head().unwrap().0).unwrap();
    let mut dice = Dice(1);
    let (mut useful, mut wrong) = (BTreeSet::new(), BTreeSet::new());
    let sorts = questions(0, 1, "configmaps").len();
    for reader in 0..50 {
        let roles = Arc::new(Roles::default());
        for turn in 0..4 {
            roles.change(&mut dice);
            // Also a namespace in which it may list something.
            let own = roles.0.lock().unwrap().iter().next().copied();
            let number = own.and_then(|(_, own)| own).filter(|_| turn % 2 == 0).unwrap_or(reader);
            let kind = own.map_or("configmaps", |(kind, _)| kind);
            let kind = if kind == "nodes" { "deployments" } else { kind };
            let (name, question) =
                questions(number, dice.roll(head) + 1, kind).swap_remove((reader * 4 + turn) % sorts);
            let (text, answered) = asked(dir, &roles, name, &question);
            let (leaked, covered) = judged(&roles, &question.to_string(), &text);
            if let Err(failure) = &answered
                && !matches!(failure.exit(), Exit::No | Exit::Config)
            {
                wrong.insert(format!("{name} {question}: {failure}"));
            }
            wrong.extend(leaked.iter().take(1).map(|canary| format!("{name} {question} shows {canary}")));
            if covered > 0 {
                useful.insert(name);
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} answers are wrong:\n{}",
        wrong.len(),
        wrong.into_iter().collect::<Vec<_>>().join("\n")
    );
    assert!(useful.len() > 12, "hardly any question shows what may be listed: {useful:?}");
}

/// Who may list everything gets the answers of the machine itself, and who may list nothing no entry, no count and no time of one.
#[tokio::test(start_paused = true)]
async fn all_rights_are_all_of_the_log_and_none_are_nothing() {
    let dir = tempfile::tempdir().unwrap();
    written(dir.path()).await;
    let dir = dir.path();
    let (all, none) = (Arc::new(Roles::default()), Arc::new(Roles::default()));
    all.0.lock().unwrap().extend(["configmaps", "deployments", "leases", "nodes"].map(|kind| (kind, None)));
    for (name, question) in questions(7, 30, "configmaps") {
        let (text, answered) = asked(dir, &none, name, &question);
        let is_refused = answered.as_ref().is_err_and(|failure| failure.refused() == Some(Refused::Forbidden));
        assert_eq!(is_refused, ["status", "verify"].contains(&name), "{name}: {answered:?}");
        let (leaked, _) = judged(&none, &question.to_string(), &text);
        assert!(leaked.is_empty(), "{name} {question}: {leaked:?}");
        let (_, answered) = asked(dir, &all, name, &question);
        let is_no = answered.as_ref().is_err_and(|failure| failure.exit() == Exit::No);
        assert!(answered.is_ok() || is_no, "{name} {question}: {answered:?}");
    }
    let histogram = json!({"window": {"quiet": true}, "buckets": 20});
    let total =
        |roles| serde_json::from_str::<Value>(&asked(dir, roles, "histogram", &histogram).0).unwrap()["total"].clone();
    let mut reader = Reader::open(dir).unwrap();
    let entries = reader.entries_after(Seq(0), 10_000, usize::MAX).unwrap();
    let gaps = entries.iter().filter(|stored| Entry::parse(&stored.line).unwrap().name.is_none()).count();
    assert_eq!(total(&all), entries.len());
    assert_eq!(total(&none), gaps, "gaps of whole sources are for everybody");
    let one = Arc::new(Roles::default());
    one.0.lock().unwrap().insert(("deployments", Some(7)));
    assert_eq!(total(&one), gaps + 2);
}
