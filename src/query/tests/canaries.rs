//! A log with a canary in each object of a hundred namespaces, and readers who may list some of them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Instant;

use jiff::tz::TimeZone;
use regex::Regex;
use serde_json::{Value, json};

use super::senders::sent;
use super::*;
use crate::core::k8s::audited::Sender;
use crate::core::rights::{ANSWER_AGE_MAX, Decision, Listing, Refusal, Refused, Rights};
use crate::core::wire::Entry;
use crate::journal::tests::is_held_back;

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

/// Rights that are not known before they are decided, as for a reader whom nobody has reviewed lately.
#[derive(Debug)]
pub(crate) struct Reviewed {
    roles: Arc<Roles>,
    decisions: Mutex<BTreeMap<Listing, Decision>>,
    /// The journal, if it is written while the API server is asked: no daemon runs on it.
    dir: Option<PathBuf>,
    /// A decision about a namespace brings those about the others, as if somebody else had asked for them.
    is_prompt: bool,
}

impl Reviewed {
    /// The rights of somebody with these roles, whom nobody has reviewed yet. Where `is_prompt` is false, each namespace is decided by
    /// itself: the question is read again for every few of them.
    pub(crate) fn new(dir: Option<&Path>, roles: &Arc<Roles>, is_prompt: bool) -> Arc<Self> {
        Arc::new(Self {
            roles: Arc::clone(roles),
            decisions: Mutex::default(),
            dir: dir.map(Path::to_owned),
            is_prompt,
        })
    }

    fn decision(&self, listing: &Listing) -> Decision {
        let namespace = listing.namespace.strip_prefix("canary-").and_then(|number| number.parse().ok());
        let is_allowed = self.roles.may(&listing.plural, namespace) || self.roles.may("*", None);
        Decision { is_allowed, until: Instant::now() + ANSWER_AGE_MAX }
    }

    /// The namespaces of which something was decided.
    fn namespaces(&self) -> BTreeSet<String> {
        self.decisions.lock().unwrap().keys().map(|listing| listing.namespace.clone()).collect()
    }
}

impl Rights for Reviewed {
    fn recall(&self, listing: &Listing) -> Option<Decision> {
        self.decisions.lock().unwrap().get(listing).copied()
    }

    fn decide(&self, listing: &Listing) -> Result<Decision, Refusal> {
        let is_read = self.dir.as_deref().is_some_and(is_held_back);
        assert!(!is_read, "nobody reads while the API server is asked");
        let (decision, mut decisions) = (self.decision(listing), self.decisions.lock().unwrap());
        decisions.insert(listing.clone(), decision);
        if self.is_prompt && !listing.namespace.is_empty() {
            let others =
                (0..NAMESPACES).map(|number| Listing { namespace: format!("canary-{number:02}"), ..listing.clone() });
            decisions.extend(others.map(|other| (other.clone(), self.decision(&other))));
        }
        Ok(decision)
    }

    fn may_get(&self, _: &str) -> Result<Decision, Refusal> {
        Err(Refusal::new(Refused::Forbidden, "no question gets a path"))
    }
}

/// What somebody with these roles may see, whom nobody has reviewed yet.
pub(crate) fn sight(dir: &Path, roles: &Arc<Roles>) -> Sight {
    Sight::of(Reviewed::new(Some(dir), roles, true))
}

/// As [`sight`], where each namespace is decided by itself for every fifth turn.
pub(crate) fn sight_in_turn(dir: &Path, roles: &Arc<Roles>, turn: usize) -> Sight {
    Sight::of(Reviewed::new(Some(dir), roles, !turn.is_multiple_of(5)))
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
pub(crate) fn asked(dir: &Path, sight: &Sight, name: &str, question: &Value) -> (String, Result<(), Failure>) {
    let text = std::cell::RefCell::new(String::new());
    let note = |line: &str| text.borrow_mut().push_str(line);
    // Always the same moment, so that two answers to one question can be compared.
    static NOW: LazyLock<Timestamp> = LazyLock::new(Timestamp::now);
    let clock = Clock { now: *NOW, zone: TimeZone::UTC };
    let log = Log::new(dir.to_owned(), sight.clone(), clock, &note, &|| false);
    let answered = loop {
        let answered = answer(name, &question.to_string(), &log, &mut |item| {
            text.borrow_mut().push_str(item.get());
            Ok(())
        });
        if !sight.is_undecided() {
            break answered;
        }
        sight.settle().unwrap();
        text.borrow_mut().clear();
    };
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
    let named: BTreeSet<&str> = questions(0, 1, "configmaps").iter().map(|(name, _)| *name).collect();
    assert_eq!(named, NAMES.into_iter().collect(), "every question there is");
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
            let (text, answered) = asked(dir, &sight_in_turn(dir, &roles, reader * 4 + turn), name, &question);
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
        let (text, answered) = asked(dir, &sight(dir, &none), name, &question);
        let is_refused = answered.as_ref().is_err_and(|failure| failure.refused() == Some(Refused::Forbidden));
        assert_eq!(is_refused, ["status", "verify"].contains(&name), "{name}: {answered:?}");
        let (leaked, _) = judged(&none, &question.to_string(), &text);
        assert!(leaked.is_empty(), "{name} {question}: {leaked:?}");
        let (_, answered) = asked(dir, &sight(dir, &all), name, &question);
        let is_no = answered.as_ref().is_err_and(|failure| failure.exit() == Exit::No);
        assert!(answered.is_ok() || is_no, "{name} {question}: {answered:?}");
    }
    let histogram = json!({"window": {"quiet": true}, "buckets": 20});
    let total = |roles| {
        serde_json::from_str::<Value>(&asked(dir, &sight(dir, roles), "histogram", &histogram).0).unwrap()["total"]
            .clone()
    };
    let mut reader = Reader::open(dir).unwrap();
    let entries = reader.entries_after(Seq(0), 10_000, usize::MAX).unwrap();
    let gaps = entries.iter().filter(|stored| Entry::parse(&stored.line).unwrap().name.is_none()).count();
    assert_eq!(total(&all), entries.len());
    assert_eq!(total(&none), gaps, "gaps of whole sources are for everybody");
    let one = Arc::new(Roles::default());
    one.0.lock().unwrap().insert(("deployments", Some(7)));
    assert_eq!(total(&one), gaps + 2);
}

/// Who may list everything gets the very answers of the machine.
#[tokio::test(start_paused = true)]
async fn who_may_list_everything_sees_what_the_machine_sees() {
    let dir = tempfile::tempdir().unwrap();
    written(dir.path()).await;
    let dir = dir.path();
    let all = Arc::new(Roles::default());
    all.0.lock().unwrap().insert(("*", None));
    // The time of the status, the room on the disk, and how far `verify` is after a second, are those of the moment.
    let passing = Regex::new(r#""(time":"2[^"]*|free_bytes":[0-9]+)|\{"progress":\[[0-9,]*\]\}"#).unwrap();
    let said = |name: &str, (text, answered): (String, Result<(), Failure>)| {
        let text =
            if ["status", "verify"].contains(&name) { passing.replace_all(&text, "").into_owned() } else { text };
        (text, answered.err().map(|failure| failure.to_string()))
    };
    for (name, question) in questions(7, 30, "configmaps") {
        let both = || {
            let by_machine = said(name, asked(dir, &Sight::All, name, &question));
            (said(name, asked(dir, &sight(dir, &all), name, &question)), by_machine)
        };
        // Causes are looked for in a third of the time of an answer, which a busy machine may need for fewer of them.
        let tries = if ["lanes", "timeline"].contains(&name) { 4 } else { 0 };
        let (by_reader, by_machine) = (0..tries).map(|_| both()).find(|(one, other)| one == other).unwrap_or_else(both);
        assert_eq!(by_reader, by_machine, "{name} {question}");
    }
}

/// An answer is about the namespaces that it is asked for, and costs no review of another one.
#[tokio::test(start_paused = true)]
async fn nothing_is_reviewed_beside_the_namespaces_that_are_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    written(dir.path()).await;
    let dir = dir.path();
    let epoch = Reader::open(dir).unwrap().epoch().unwrap();
    let roles = Arc::new(Roles::default());
    roles.0.lock().unwrap().insert(("deployments", Some(7)));
    let by = json!({"quiet": true, "namespaces": ["canary-07"], "by": ["canary*"]});
    let window = json!({"quiet": true, "namespaces": ["canary-07"]});
    let objects = json!({"namespaces": ["canary-07"]});
    for (name, question) in [
        ("tail", json!({"select": {"only": {"namespaces": ["canary-07"]}}, "last": 1000})),
        ("causes", json!({"only": {"namespaces": ["canary-07"], "since": "1970-01-01T00:00:00Z"}})),
        ("coverage", json!({"namespaces": ["canary-07"]})),
        ("histogram", json!({"window": by, "buckets": 20})),
        ("lanes", json!({"window": window, "order": "causes", "lanes": 50, "marks": 100})),
        ("entries", json!({"window": by, "limit": 50})),
        ("state", json!({"window": objects, "limit": 1000})),
        ("changes", json!({"window": objects, "limit": 1000, "from": {"seq": 1}})),
        ("writers", json!({"window": by})),
        ("timeline", json!({"window": window, "max_bytes": 1 << 20})),
        ("updates", json!({"window": by, "after": format!("{epoch}:1")})),
    ] {
        let reviewed = Reviewed::new(Some(dir), &roles, false);
        let (text, answered) = asked(dir, &Sight::of(Arc::<Reviewed>::clone(&reviewed)), name, &question);
        answered.unwrap_or_else(|failure| panic!("{name} {question}: {failure}"));
        let namespaces = reviewed.namespaces();
        assert!(namespaces.iter().all(|of| ["", "canary-07"].contains(&&**of)), "{name} {question}: {namespaces:?}");
        // That time began in 1970 is nothing that the log says.
        assert!(!text.contains("\"1970-01-01") || question.to_string().contains("1970"), "{name}: {text}");
    }
}

/// An entry that is hidden, one that is to come, and one that never was are the same to who may not see them.
#[tokio::test(start_paused = true)]
async fn what_is_hidden_is_not_told_from_what_is_not_there() {
    let dir = tempfile::tempdir().unwrap();
    written(dir.path()).await;
    let dir = dir.path();
    let roles = Arc::new(Roles::default());
    for (name, extra) in [("show", json!({})), ("entry", json!({"neighbours": true}))] {
        let said = [0_u64, 5, 1 << 40].map(|seq| {
            let mut question = extra.clone();
            question["seq"] = json!(seq);
            let failure = asked(dir, &sight(dir, &roles), name, &question).1.unwrap_err();
            (failure.exit(), failure.text().replace(&seq.to_string(), "SEQ"))
        });
        assert!(said.iter().all(|one| *one == said[0]), "{name}: {said:?}");
        assert!(said[0].1.contains("not yours to see"), "{name}: {said:?}");
    }
}
