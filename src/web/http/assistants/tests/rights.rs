//! The tools for readers whose rights change: what they may list, and nothing of the rest.

use std::collections::BTreeSet;

use super::*;
use crate::query::tests::canaries::{Dice, Roles, judged, sight_in_turn, written};

/// An assistant whose user has these rights.
fn of_reader(dir: &std::path::Path, roles: &Arc<Roles>, reader: usize) -> Assistant {
    let (logs, roles) = (Logs { state: dir.to_owned(), ..Logs::default() }, Arc::clone(roles));
    Assistant::new(move || Arc::new(Journals::seen_by(logs.clone(), sight_in_turn(&logs.state, &roles, reader))))
}

pub(crate) fn calls(number: usize, kind: &str, at: usize) -> Vec<(&'static str, Value)> {
    let (namespaces, object) = ([format!("canary-{number:02}")], format!("{kind}/canary-{number:02}-{kind}-name"));
    vec![
        ("log", json!({})),
        ("log", json!({"namespaces": namespaces})),
        ("log", json!({"where": "true", "limit": 5})),
        ("log", json!({"objects": [kind], "grep": "canary"})),
        ("why", json!({"object": object, "namespaces": namespaces})),
        ("blame", json!({"object": object, "namespaces": namespaces})),
        ("blame", json!({"object": object, "namespaces": namespaces, "at": at})),
        ("diff", json!({"from": 1})),
        ("diff", json!({"objects": [object], "from": at})),
        ("object_at", json!({"objects": [kind]})),
        ("object_at", json!({"objects": [object], "namespaces": namespaces, "at": at})),
        ("churn", json!({"since": "2026-11-21T10:00:00Z"})),
        ("coverage", json!({})),
        ("coverage", json!({"objects": [kind], "namespaces": namespaces})),
        ("verify", json!({})),
    ]
}

#[tokio::test(start_paused = true)]
async fn no_tool_shows_what_may_not_be_listed() {
    let dir = tempfile::tempdir().unwrap();
    written(dir.path()).await;
    let (mut dice, mut useful, mut wrong) = (Dice(2), BTreeSet::new(), Vec::new());
    let sorts = calls(0, "configmaps", 1).len();
    let named: BTreeSet<&str> = calls(0, "configmaps", 1).iter().map(|(tool, _)| *tool).collect();
    assert_eq!(named, tools::all().iter().map(|tool| &*tool.name).collect(), "every tool there is");
    for reader in 0..50 {
        let roles = Arc::new(Roles::default());
        let assistant = of_reader(dir.path(), &roles, reader);
        for turn in 0..2 {
            roles.change(&mut dice);
            let own = roles.0.lock().unwrap().iter().next().copied();
            let number = own.and_then(|(_, own)| own).filter(|_| turn == 0).unwrap_or(reader);
            let kind = if own.is_some_and(|(kind, _)| kind == "deployments") { "deployments" } else { "configmaps" };
            let (tool, arguments) = calls(number, kind, dice.roll(600) + 1).swap_remove((reader * 2 + turn) % sorts);
            let answer = assistant.call(call(tool, arguments.clone()), None).await;
            let (leaked, covered) = judged(&roles, &arguments.to_string(), &serde_json::to_string(&answer).unwrap());
            wrong.extend(leaked.first().map(|canary| format!("{tool} {arguments} shows {canary}")));
            if covered > 0 {
                useful.insert(tool);
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(useful.len() >= 4, "hardly any tool shows what may be listed: {useful:?}");
}
