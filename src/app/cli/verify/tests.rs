//! Copies of several lines.

use super::*;
use crate::core::model::{Cluster, EntryType, Evidence, Seq};
use crate::core::wire::{self, EntryBuilder};

/// A line about an object, which goes from one value to another.
fn line(seq: u64, epoch: &str, uid: &str, op: EntryType, (was, value): (u64, u64)) -> String {
    let change = format!(
        r#"{{"areas":["a"],"patch":[{{"op":"replace","path":"/a","value":{value},"was":{was}}}],"managers":[]}}"#
    );
    let rendered = wire::render(&EntryBuilder {
        seq: Seq(seq),
        epoch,
        time: "2026-11-20T10:35:00.000000Z",
        happened: None,
        happened_between: None,
        op,
        evidence: Some(Evidence::Watched),
        cluster: &Cluster { name: "c".into(), uid: "u".into() },
        api_version: "v1",
        kind: "ConfigMap",
        resource: "configmaps",
        namespace: "n",
        name: "m",
        uid,
        version: &seq.to_string(),
        managers: None,
        change: (op == EntryType::Modified).then_some(&change),
        object: Some(format!(r#"{{"a":{value}}}"#).as_bytes()),
        gap: None,
        actor: None,
        redacted: &[],
    });
    String::from_utf8(rendered.line).unwrap()
}

/// What is wrong with a copy of these lines.
fn problems_of(lines: &[String]) -> Vec<String> {
    let args = VerifyArgs {
        files: Vec::new(),
        filter: None,
        partial: false,
        evidence: None,
        key: Vec::new(),
        witness: Vec::new(),
        checkpoint: Vec::new(),
        ends_with: None,
        revisions: None,
        proof: None,
    };
    let mut checker = Checker::new(None, None, None, &args).unwrap();
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let (mut batch, mut file, mut more) = (Batch::new("f".to_owned()), text.as_bytes(), true);
    while more {
        more = batch.fill(&mut file).unwrap();
        checker.check(&batch).unwrap();
    }
    checker.finish().1
}

/// Objects on either thread, over the ends of batches: each altered value is found at its line, in the order of lines.
#[test]
fn what_does_not_lead_on_is_found_in_the_order_of_lines() {
    let uids: Vec<String> = (0..20).map(|uid| format!("u{uid}")).collect();
    let mut lines: Vec<String> = Vec::new();
    for turn in 0..250 {
        for uid in &uids {
            let op = if turn == 0 { EntryType::Added } else { EntryType::Modified };
            let values = (turn.max(1) - 1, turn);
            lines.push(line(lines.len() as u64 + 1, "e", uid, op, values));
        }
    }
    // Less than are told of one copy.
    let altered: Vec<usize> = (1..=40).map(|number| number * 123).collect();
    for at in &altered {
        let number = *at as u64;
        lines[*at] = line(number + 1, "e", &uids[at % 20], EntryType::Modified, (7777, number / 20));
    }
    let found = problems_of(&lines);
    assert_eq!(found.len(), altered.len(), "{found:#?}");
    for (problem, at) in found.iter().zip(&altered) {
        assert!(problem.starts_with(&format!("f, line {}: entry {} changes", at + 1, at + 1)), "{problem}");
    }
}

/// Another epoch is another journal: no change leads from one to the next.
#[test]
fn no_change_leads_from_one_epoch_to_the_next() {
    let first = line(1, "e1", "u", EntryType::Added, (0, 1));
    let table = [("e1", 1), ("e2", 0)];
    for (epoch, problems) in table {
        let found = problems_of(&[first.clone(), line(2, epoch, "u", EntryType::Modified, (5, 6))]);
        assert_eq!(found.len(), problems, "{epoch}: {found:?}");
    }
}
