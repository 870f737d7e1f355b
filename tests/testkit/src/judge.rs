//! The judge: compares a log with the truth, revision by revision.
//!
//! The truth is what etcd itself says of every write (`oracle.rs`); the judge shares no code with decklog and knows
//! only the contract of an entry. Outside of gaps the log of a source has to equal the truth row by row, in order;
//! a first list and the inferred entries after a GAP have to equal the state at one moment of the truth. What an
//! entry carries is judged as well: its keys and their order, the patch that leads from the version before to this
//! one, the last state on a deletion.

mod contents;
mod entry;
mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

pub use contents::{apply_patch, areas};
use contents::{contents, whole_log};
pub use entry::{Change, Entry, Gap, Key, Kind, Row};
use source::Source;
pub use source::{Known, State, apply};

/// How many differences are worth reading.
const SHOWN: usize = 20;

/// What the judge found. Empty means that the log is the truth.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// Can never become right.
    pub wrong: Vec<String>,
    /// Not there yet: right, if it still comes.
    pub behind: Vec<String>,
}

impl Verdict {
    pub fn is_right(&self) -> bool {
        self.wrong.is_empty() && self.behind.is_empty()
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (title, list) in [("wrong", &self.wrong), ("missing at the end", &self.behind)] {
            if !list.is_empty() {
                writeln!(f, "{} {title}, the first {}:", list.len(), list.len().min(SHOWN))?;
            }
            for difference in list.iter().take(SHOWN) {
                writeln!(f, "- {difference}")?;
            }
        }
        Ok(())
    }
}

/// What was asked of decklog, and until when it has to be there.
#[derive(Clone, Debug)]
pub struct Scope {
    /// The first list of every source was made after this revision.
    pub started: u64,
    /// Everything up to this revision has to be in the log; what is later may be.
    pub upto: u64,
    /// One source per resource and namespace, when the configuration names namespaces.
    pub namespaces: Option<BTreeSet<String>>,
    /// The resources watched; `None` for all.
    pub resources: Option<BTreeSet<String>>,
    /// A watch leaves changes out, and an audit finds them: they come behind what was told meanwhile of other objects.
    pub late: bool,
}

impl Scope {
    /// The source that a row or an entry belongs to; `None` where it is not watched.
    fn source(&self, resource: &str, namespace: &str) -> Option<String> {
        if self.resources.as_ref().is_some_and(|all| !all.contains(resource)) {
            return None;
        }
        match &self.namespaces {
            None => Some(resource.to_owned()),
            Some(all) => all.contains(namespace).then(|| format!("{resource}/{namespace}")),
        }
    }
}

/// Compares a whole log with the whole truth (in revision order). After a restore of etcd there are two truths: what
/// the log saw before, and what the restored etcd tells; a GAP that says `rollback` leads from one to the other.
pub fn judge(truth: &[Row], restored: Option<&[Row]>, log: &[Entry], scope: &Scope) -> Verdict {
    let mut verdict = Verdict::default();
    whole_log(log, &mut verdict.wrong);
    let mut sources: BTreeMap<String, Gathered<'_>> = BTreeMap::new();
    for row in truth {
        if let Some(source) = scope.source(&row.resource, &row.key.0) {
            sources.entry(source).or_default().before.push(row);
        }
    }
    for row in restored.unwrap_or_default() {
        if let Some(source) = scope.source(&row.resource, &row.key.0) {
            sources.entry(source).or_default().after.push(row);
        }
    }
    for entry in log {
        match scope.source(&entry.full_resource(), &entry.namespace) {
            Some(source) => sources.entry(source).or_default().entries.push(entry),
            None => verdict.wrong.push(format!("{}: nobody asked for {entry}", entry.full_resource())),
        }
    }
    for (name, Gathered { before, after, entries }) in sources {
        // A source whose position is older than the restored state sees nothing of the restore.
        let rolled_back = entries.iter().any(|entry| entry.is_rollback());
        let (rows, restored) = match restored {
            None => (before, None),
            Some(_) if rolled_back => (before, Some(after)),
            Some(_) => (after, None),
        };
        contents(&name, &entries, &mut verdict.wrong);
        Source { name, rows, restored, entries, scope, at: 0, next: 0, late: Vec::new(), known: BTreeMap::new() }
            .judge(&mut verdict);
    }
    verdict
}

/// What belongs to one source: the truth before and after a restore, and the log.
#[derive(Default)]
struct Gathered<'a> {
    before: Vec<&'a Row>,
    after: Vec<&'a Row>,
    entries: Vec<&'a Entry>,
}
