use super::*;
use crate::audit_log::join::{Actor, Certainty};

const SECOND: i64 = 1_000_000;
/// Time at which the audit logs began to be read.
const BEGAN: i64 = 1_000 * SECOND;

/// A verdict, by its word.
fn verdict(word: &str) -> Result<Actor, Unresolved> {
    match word {
        "named" => Ok(Actor {
            sender: crate::audit_log::Sender::default(),
            verb: "update".to_owned(),
            subresource: String::new(),
            certainty: Certainty::Exact,
            audit_ids: Vec::new(),
        }),
        word => Err(Unresolved::ALL.into_iter().find(|why| why.as_str() == word).unwrap()),
    }
}

const NONE: &str = "not-in-the-audit-log";

/// Versions of a resource with one verdict, one every so many seconds from a time after the beginning on.
#[derive(Clone, Copy)]
struct Versions {
    resource: &'static str,
    number: i64,
    verdict: &'static str,
    from: i64,
    every: i64,
}

fn of(resource: &'static str, number: i64, verdict: &'static str, from: i64) -> Versions {
    Versions { resource, number, verdict, from, every: 4 }
}

fn told(watched: &[&str], versions: &[Versions]) -> Unexplained {
    told_while(false, watched, versions)
}

/// The same while an audit log has brought nothing, or has.
fn told_while(is_silent: bool, watched: &[&str], versions: &[Versions]) -> Unexplained {
    let mut tally = Tally::new(BEGAN);
    tally.silent(is_silent);
    tally.watched = watched.iter().map(|name| (*name).to_owned()).collect();
    for Versions { resource, number, verdict: word, from, every } in versions {
        let (plural, group) = resource.split_once('.').unwrap_or((resource, ""));
        for version in 0..*number {
            let opened = tally.open(group, plural, BEGAN + (from + version * every) * SECOND);
            tally.take(opened, &verdict(word));
        }
    }
    tally.told()
}

/// Versions with their name, what is watched, and what is to be said.
type Row<E> = (&'static str, &'static [&'static str], Vec<Versions>, Option<E>);

/// The state machine: when the audit logs name nobody, and when they do again.
#[test]
fn audit_logs_name_nobody_where_no_change_has_a_request() {
    const ONE: &[&str] = &["pods"];
    const TWO: &[&str] = &["pods", "deployments.apps"];
    let pods = |number, from| of("pods", number, NONE, from);
    let deployments = |number, from| of("deployments.apps", number, NONE, from);
    let rows: Vec<Row<u64>> = vec![
        ("nothing happens", ONE, vec![], None),
        ("20 in 76 s", ONE, vec![pods(20, 0)], Some(20)),
        ("19", ONE, vec![pods(19, 0)], None),
        ("40 in less than a minute", ONE, vec![Versions { every: 1, ..pods(40, 0) }], None),
        ("of before it was read", ONE, vec![pods(40, -200)], None),
        ("of before and after", ONE, vec![pods(60, -160)], Some(20)),
        ("the first is named", ONE, vec![of("pods", 1, "named", 0), pods(30, 10)], Some(30)),
        ("one of them is named", ONE, vec![pods(19, 0), of("pods", 1, "named", 80), pods(19, 90)], None),
        ("it ends with the first that is named", ONE, vec![pods(30, 0), of("pods", 1, "named", 200)], None),
        ("and with one of two users", ONE, vec![pods(30, 0), of("pods", 1, "ambiguous", 200)], None),
        ("and begins again", ONE, vec![pods(30, 0), of("pods", 1, "named", 200), pods(21, 210)], Some(21)),
        (
            "an answer proves its sender before older changes are decided",
            ONE,
            vec![of("pods", 1, "named", 100), pods(30, 0)],
            None,
        ),
        ("in a time of doubt", ONE, vec![of("pods", 40, "incomplete-audit-log", 0)], None),
        ("doubt in between", ONE, vec![pods(19, 0), of("pods", 1, "incomplete-audit-log", 80), pods(19, 90)], None),
        ("doubt does not end it", ONE, vec![pods(20, 0), of("pods", 9, "incomplete-audit-log", 90)], Some(20)),
        ("by nature", ONE, vec![of("pods", 40, "expired", 0), of("pods", 40, "definition-deleted", 0)], None),
        ("found by a list", ONE, vec![of("pods", 40, "not-watched", 0)], None),
        ("not read then", ONE, vec![of("pods", 40, "outside-of-its-time", 0)], None),
        ("these say nothing", ONE, vec![pods(10, 0), of("pods", 9, "expired", 40), pods(10, 41)], Some(20)),
        // A policy that hides the writers of one resource.
        ("one resource of two", TWO, vec![pods(400, 0)], None),
        ("both", TWO, vec![pods(19, 0), deployments(1, 80)], Some(20)),
        ("the one, as it was never otherwise", TWO, vec![of("deployments.apps", 1, "named", 0), pods(400, 10)], None),
        (
            "the other one has stopped, too",
            TWO,
            vec![of("deployments.apps", 1, "named", 0), pods(400, 10), deployments(20, 20)],
            Some(420),
        ),
        (
            "the other one changes little",
            TWO,
            vec![of("deployments.apps", 1, "named", 0), pods(400, 10), deployments(19, 20)],
            None,
        ),
    ];
    for (name, watched, versions, expected) in rows {
        let told = told(watched, &versions);
        assert_eq!(told.run.map(|run| run.changes), expected, "{name}");
    }
    // What came before the first event says nothing, and says all where there is none.
    let early = [of("pods", 30, "before-the-audit-log", 0)];
    let runs = [false, true].map(|is_silent| told_while(is_silent, ONE, &early).run.map(|run| run.changes));
    assert_eq!(runs, [None, Some(30)]);
    let since = told(ONE, &[of("pods", 1, "named", 0), pods(30, 10)]).run.unwrap().since;
    assert_eq!(since.as_microsecond(), BEGAN + 10 * SECOND);
}

/// What is listed, though the audit logs explain others.
#[test]
fn a_resource_is_listed_where_most_changes_have_no_request() {
    let named = |number| of("leases.coordination.k8s.io", number, "named", 0);
    let hidden = |number| of("leases.coordination.k8s.io", number, NONE, 100);
    let rows: Vec<Row<(u64, u64)>> = vec![
        ("nothing", &["leases.coordination.k8s.io"], vec![], None),
        ("all of 20", &["leases.coordination.k8s.io"], vec![hidden(20)], Some((20, 20))),
        ("all of 19", &["leases.coordination.k8s.io"], vec![hidden(19)], None),
        ("half", &["leases.coordination.k8s.io"], vec![named(10), hidden(10)], None),
        ("more than half", &["leases.coordination.k8s.io"], vec![named(10), hidden(11)], Some((11, 21))),
        (
            "what is by nature does not count",
            &["leases.coordination.k8s.io"],
            vec![of("leases.coordination.k8s.io", 90, "expired", 0), hidden(20)],
            Some((20, 20)),
        ),
        (
            "two users, and doubt, count as others",
            &["leases.coordination.k8s.io"],
            vec![
                of("leases.coordination.k8s.io", 10, "ambiguous", 0),
                of("leases.coordination.k8s.io", 10, "incomplete-audit-log", 0),
                hidden(20),
            ],
            None,
        ),
        ("not watched any more", &["pods"], vec![hidden(20)], None),
        ("before it was read", &["leases.coordination.k8s.io"], vec![Versions { from: -200, ..hidden(20) }], None),
    ];
    for (name, watched, versions, expected) in rows {
        let resource = expected.map(|(changes, decided)| UnexplainedResource {
            resource: "leases.coordination.k8s.io".to_owned(),
            changes,
            decided,
        });
        assert_eq!(told(watched, &versions).resources, Vec::from_iter(resource), "{name}");
    }
}
