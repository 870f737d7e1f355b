//! Answers of the commands, against what happened when. An answer may be that nobody knows; it is never "no" for that.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{OnceLock, PoisonError, RwLock};

use decklog::sim;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::Setup;
use super::judges::{Histories, Log};
use super::moments::UNNOTICED;
use crate::dice::Dice;

/// The program that is asked; without it nothing is.
pub static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// Held while a child begins: until it runs its program it has the locks of every state directory that is open in this process, so
/// none can be opened again.
pub(super) static BEGINNING: RwLock<()> = RwLock::new(());

/// Objects that are asked about.
const OBJECTS: usize = 4;
/// A change so near a moment may be told on either side of it.
const NEAR: SignedDuration = UNNOTICED;
/// Parts of sentences that leave an answer open.
const DOUBTS: [&str; 15] = [
    "may be missing",
    "may have",
    "may lie outside",
    "nobody knows",
    "does not know",
    "nothing before is known",
    "nothing newer",
    "nothing of that is known",
    "is known at",
    "first saw",
    "first seen",
    "for the first time",
    "not watched any more",
    "in a gap",
    "gap lies",
];

/// What is printed by a command.
struct Answer {
    code: i32,
    out: String,
    err: String,
}

impl Answer {
    fn is_open(&self) -> bool {
        let text = format!("{}{}", self.out, self.err);
        DOUBTS.iter().any(|doubt| text.contains(doubt)) || text.contains("\"type\":\"GAP\"")
    }
}

/// The past of one object.
struct Past<'a> {
    resource: &'a str,
    namespace: &'a str,
    name: &'a str,
    rows: Vec<&'a sim::Row>,
}

/// A version of an object; none where it is not there.
type Version = Option<u64>;

impl Past<'_> {
    /// Returns the versions that the object had around a time.
    fn around(&self, time: Timestamp, setup: &Setup) -> Vec<Version> {
        let version = |row: &&sim::Row| {
            let is_there = row.kind != sim::Kind::Deleted && setup.selects(row);
            is_there.then_some(row.revision)
        };
        let before = self.rows.iter().rfind(|row| row.time < time - NEAR);
        let near = self.rows.iter().filter(|row| row.time >= time - NEAR && row.time <= time + NEAR);
        std::iter::once(before.and_then(version)).chain(near.map(version)).collect()
    }

    /// Returns the versions that it got well within a time.
    fn within(&self, since: Timestamp, until: Timestamp, setup: &Setup) -> Vec<u64> {
        let is_within = |row: &&&sim::Row| row.time > since + NEAR && row.time < until - NEAR;
        let shown =
            self.rows.iter().filter(is_within).filter(|row| row.kind != sim::Kind::Deleted && setup.selects(row));
        shown.map(|row| row.revision).collect()
    }

    fn arguments(&self) -> [String; 3] {
        [format!("{}/{}", self.resource, self.name), "-n".to_owned(), self.namespace.to_owned()]
    }
}

/// Asks about some objects at some moments, and judges the answers.
pub fn answers_are_true(log: &Log, histories: &Histories, state: &Path, setup: &Setup, seed: u64) -> Vec<String> {
    let Some(program) = PROGRAM.get() else { return Vec::new() };
    let mut problems = Vec::new();
    let mut dice = Dice::new(seed, "questions");
    let mut pasts: BTreeMap<(&str, &str, &str), Past<'_>> = BTreeMap::new();
    for row in histories.all().filter(|row| setup.watches(&row.resource, &row.namespace)) {
        let key: (&str, &str, &str) = (&row.resource, &row.namespace, &row.name);
        let (resource, namespace, name) = key;
        let past = pasts.entry(key).or_insert_with(|| Past { resource, namespace, name, rows: Vec::new() });
        past.rows.push(row);
    }
    let told: Vec<_> = log.entries.iter().filter(|entry| entry.gap.is_none()).collect();
    let time = |entry: &crate::judge::Entry| entry.time.parse::<Timestamp>().unwrap_or_default();
    let (Some(begin), Some(end)) = (told.first().map(|entry| time(entry)), told.last().map(|entry| time(entry))) else {
        return problems;
    };
    let span = usize::try_from(end.duration_since(begin).as_millis()).unwrap_or_default();
    for _ in 0..OBJECTS {
        let entry = told[dice.roll(told.len())];
        let resource = entry.full_resource();
        let Some(past) = pasts.get(&(resource.as_str(), entry.namespace.as_str(), entry.name.as_str())) else {
            continue;
        };
        let mut moment =
            || begin + SignedDuration::from_millis(i64::try_from(dice.roll(span.max(1))).unwrap_or_default());
        let (one, other) = (moment(), moment());
        let (since, until) = (one.min(other), one.max(other));
        let ask = |command: &str, moments: &[(&str, Timestamp)]| {
            let mut line = Command::new(program);
            line.arg(command).args(past.arguments()).args(["-o", "json", "--state"]).arg(state).env_clear();
            for (flag, moment) in moments {
                line.arg(flag).arg(moment.to_string());
            }
            line.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let beginning = BEGINNING.write().unwrap_or_else(PoisonError::into_inner);
            let child = line.spawn().expect("the program begins");
            drop(beginning);
            let output = child.wait_with_output().expect("the program runs");
            Answer {
                code: output.status.code().unwrap_or(-1),
                out: String::from_utf8_lossy(&output.stdout).into_owned(),
                err: String::from_utf8_lossy(&output.stderr).into_owned(),
            }
        };
        problems.extend(state_is_true(past, since, &ask("get", &[("--at", since)]), setup));
        let difference = ask("diff", &[("--from", since), ("--to", until)]);
        problems.extend(difference_is_true(past, (since, until), &difference, setup));
        let history = ask("log", &[("--since", since), ("--until", until)]);
        problems.extend(history_is_true(past, (since, until), &history, setup));
    }
    problems
}

fn state_is_true(past: &Past<'_>, at: Timestamp, answer: &Answer, setup: &Setup) -> Option<String> {
    let had = past.around(at, setup);
    let told: Version = serde_json::from_str::<Value>(&answer.out)
        .ok()
        .and_then(|object| object["metadata"]["resourceVersion"].as_str()?.parse().ok());
    let is_true = had.contains(&told) && (told.is_some() || answer.code == 1);
    (!is_true && !answer.is_open()).then(|| {
        let what = past.arguments().join(" ");
        format!("get {what} --at {at} says {told:?} (exit {}), and it had {had:?}: {}", answer.code, answer.err.trim())
    })
}

fn difference_is_true(
    past: &Past<'_>,
    (from, to): (Timestamp, Timestamp),
    answer: &Answer,
    setup: &Setup,
) -> Option<String> {
    let (first, second) = (past.around(from, setup), past.around(to, setup));
    let document: Value = serde_json::from_str(&answer.out).unwrap_or_default();
    let differs = document["objects"].as_array().is_some_and(|objects| !objects.is_empty());
    let may_be_same = first.iter().any(|version| second.contains(version));
    let may_differ = first.iter().any(|one| second.iter().any(|other| one != other));
    let is_true = if differs { may_differ } else { may_be_same };
    (!is_true && !answer.is_open()).then(|| {
        let what = past.arguments().join(" ");
        let says = if differs { "a difference" } else { "no difference" };
        format!(
            "diff {what} --from {from} --to {to} says {says}, and it had {first:?} and then {second:?}: {} {}",
            answer.out.trim(),
            answer.err.trim()
        )
    })
}

fn history_is_true(
    past: &Past<'_>,
    (since, until): (Timestamp, Timestamp),
    answer: &Answer,
    setup: &Setup,
) -> Option<String> {
    let lines = answer.out.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let told: Vec<(u64, bool)> = lines
        .filter_map(|entry| {
            let version = entry["resourceVersion"].as_str()?.parse().ok()?;
            Some((version, entry["evidence"] == "inferred"))
        })
        .collect();
    // A difference that was found later is of all that led to it.
    let is_told = |version: &u64| told.iter().any(|(told, several)| told == version || *several && told > version);
    let missing: Vec<u64> = past.within(since, until, setup).into_iter().filter(|version| !is_told(version)).collect();
    (!missing.is_empty() && !answer.is_open()).then(|| {
        let what = past.arguments().join(" ");
        format!(
            "log {what} --since {since} --until {until} does not say {missing:?}, but {told:?} (exit {}): {}",
            answer.code,
            answer.err.trim()
        )
    })
}
