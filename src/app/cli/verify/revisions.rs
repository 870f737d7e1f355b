//! Compares a copy with what etcd, or an audit log, says of the same resources: each revision is an entry, or lies inside a GAP.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde::Serialize;

use super::Failure;
use crate::core::model::EntryType;
use crate::core::wire::Entry;
use crate::journal::Verified;

/// Results of the comparison.
#[derive(Debug, Default, Serialize)]
pub(super) struct Counted {
    /// Revisions that were compared.
    pub(super) revisions: u64,
    /// Revisions that are the version of an entry.
    pub(super) recorded: u64,
    /// Revisions inside a GAP.
    pub(super) in_gaps: u64,
    /// Revisions that are neither.
    pub(super) missing: u64,
}

/// Revisions of a resource, and what a copy has of it.
#[derive(Debug, Default)]
struct OfResource {
    wanted: BTreeSet<u64>,
    /// Seqs of entries by their versions.
    entries: BTreeMap<u64, u64>,
    /// Versions between which changes may be missing: after the first, and not after the second.
    gaps: Vec<(u64, u64)>,
}

/// Revisions that a copy has to have.
#[derive(Debug)]
pub(super) struct Revisions(BTreeMap<String, OfResource>);

impl Revisions {
    /// Reads lines of a resource and a revision.
    ///
    /// # Errors
    /// Where the file cannot be read, or a line of it is something else.
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let failed = |error| Failure::io(format!("cannot read {}", path.display()), &error);
        let text = fs::read_to_string(path).map_err(failed)?;
        let mut resources: BTreeMap<String, OfResource> = BTreeMap::new();
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let mut words = line.split_whitespace();
            let read = (words.next(), words.next().and_then(|word| word.parse().ok()), words.next());
            let (Some(resource), Some(revision), None) = read else {
                return Err(Failure::usage(format!(
                    "{}, line {}: write a resource and a revision, such as \"pods 1042\" or \"deployments.apps 1043\"",
                    path.display(),
                    number + 1
                )));
            };
            resources.entry(resource.to_owned()).or_default().wanted.insert(revision);
        }
        Ok(Self(resources))
    }

    /// Takes an entry of the copy.
    pub(super) fn see(&mut self, entry: &Entry<'_>) {
        let group = entry.group();
        let name = if group.is_empty() { entry.resource.to_string() } else { format!("{}.{group}", entry.resource) };
        let Some(resource) = self.0.get_mut(&name) else { return };
        let number = |version: &str| version.parse::<u64>().ok();
        if let Some(gap) = entry.gap().or_else(|| entry.gap_before()) {
            let from = gap.from.as_deref().and_then(number).unwrap_or(0);
            // Without an end it covers nothing that follows: each of that is an entry, or inside another one.
            resource.gaps.push((from, gap.to.as_deref().and_then(number).unwrap_or(from)));
        }
        if !matches!(entry.op, EntryType::Actor | EntryType::Gap)
            && let Some(version) = entry.resource_version.as_deref().and_then(number)
        {
            resource.entries.entry(version).or_insert(entry.seq);
        }
    }

    /// Returns the results, and a sentence of each revision that is missing, of at most [`Verified::MOST`].
    pub(super) fn finish(self) -> (Counted, Vec<String>) {
        let (mut counted, mut problems) = (Counted::default(), Vec::new());
        for (name, resource) in self.0 {
            for revision in resource.wanted {
                counted.revisions += 1;
                if resource.entries.contains_key(&revision) {
                    counted.recorded += 1;
                } else if resource.gaps.iter().any(|(from, to)| *from < revision && revision <= *to) {
                    counted.in_gaps += 1;
                } else {
                    counted.missing += 1;
                    if problems.len() < Verified::MOST {
                        problems.push(missing(&name, revision, &resource.entries));
                    }
                }
            }
        }
        (counted, problems)
    }
}

/// Problem of a revision that is missing.
fn missing(name: &str, revision: u64, entries: &BTreeMap<u64, u64>) -> String {
    let place = match (entries.range(..revision).next_back(), entries.range(revision..).next()) {
        (Some((version, seq)), _) => format!("after entry {seq}, which is version {version}"),
        (None, Some((version, seq))) => format!("before entry {seq}, which is version {version}"),
        (None, None) => "and no other one of this resource is there".to_owned(),
    };
    format!(
        "revision {revision} of {name} is in no entry and in no GAP, {place}: the configuration excludes it, or it was removed before \
         anything was signed"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(seq: u64, kind: &str, plural: &str, rest: &str) -> String {
        format!(
            r#"{{"v":1,"seq":{seq},"epoch":"e","id":"e.{seq}","time":"2026-11-20T10:35:00.000000Z","type":"{kind}","cluster":{{"name":"c","uid":"u"}},"apiVersion":"{}","kind":"K","resource":"{plural}",{rest}}}"#,
            if plural == "deployments" { "apps/v1" } else { "v1" }
        )
    }

    /// A revision is recorded, inside a GAP, or missing; the place of a missing one is that of its resource.
    #[test]
    fn each_revision_is_an_entry_or_inside_a_gap() {
        let lines = [
            line(1, "MODIFIED", "pods", r#""name":"a","uid":"a","resourceVersion":"10""#),
            line(2, "GAP", "pods", r#""gap":{"why":"expired","from":"10","to":"20"}"#),
            line(3, "MODIFIED", "deployments", r#""name":"a","uid":"a","resourceVersion":"25""#),
            line(4, "MODIFIED", "pods", r#""name":"a","uid":"a","resourceVersion":"30""#),
        ];
        let table = [
            ("pods 10\npods 30\ndeployments.apps 25\n", [3, 0, 0], ""),
            ("pods 11\n\n pods  20 \n", [0, 2, 0], ""),
            (
                "pods 21\n",
                [0, 0, 1],
                "revision 21 of pods is in no entry and in no GAP, after entry 1, which is version 10",
            ),
            ("pods 31\n", [0, 0, 1], "after entry 4, which is version 30"),
            ("pods 9\n", [0, 0, 1], "before entry 1, which is version 10"),
            ("pods 25\n", [0, 0, 1], "revision 25 of pods"),
            ("deployments.apps 30\n", [0, 0, 1], "revision 30 of deployments.apps"),
            ("jobs.batch 10\n", [0, 0, 1], "no other one of this resource is there"),
        ];
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("revisions");
        for (text, expected, says) in table {
            fs::write(&file, text).unwrap();
            let mut revisions = Revisions::read(&file).unwrap();
            lines.iter().for_each(|line| revisions.see(&Entry::parse(line.as_bytes()).unwrap()));
            let (counted, problems) = revisions.finish();
            assert_eq!([counted.recorded, counted.in_gaps, counted.missing], expected, "{text}: {problems:?}");
            assert_eq!(problems.len() as u64, counted.missing);
            assert!(problems.iter().all(|problem| problem.contains(says)), "{text}: {problems:?}");
        }
        for text in ["pods\n", "pods x\n", "pods 1 2\n", "1042\n"] {
            fs::write(&file, text).unwrap();
            let failure = Revisions::read(&file).unwrap_err().to_string();
            assert!(failure.contains("line 1: write a resource and a revision"), "{failure}");
        }
    }
}
