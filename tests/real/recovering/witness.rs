//! Comparison of a log with that of the witness, which has missed nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::decklog::Decklog;
use crate::harness::until;
use crate::judge::{Entry, Key};

/// What an entry carries, but for what a journal gives it. Each has a key of its own for what is redacted.
pub(super) fn content(entry: &Entry) -> (&str, &str, String, String, &[String]) {
    let text = |text: &str| {
        let mut parts = text.split("hmac:");
        let first = parts.next().unwrap_or_default().to_owned();
        parts.fold(first, |text, part| {
            text + "hmac:" + part.trim_start_matches(|letter: char| letter.is_ascii_hexdigit())
        })
    };
    let object = entry.object.as_ref().map(|object| text(object.get()));
    let patch = entry.change.as_ref().map(|change| text(&format!("{:?}", change.patch)));
    (&entry.id, &entry.kind, object.unwrap_or_default(), patch.unwrap_or_default(), &entry.redacted)
}

/// Each GAP: its number, its source, from and to.
pub(super) fn gaps(daemon: &mut Decklog) -> Vec<(u64, String, u64, u64)> {
    let number = |text: &Option<String>| text.as_deref().and_then(|text| text.parse().ok()).unwrap_or(0);
    let gaps = daemon.entries().iter().filter_map(|entry| {
        let gap = entry.gap.as_ref()?;
        Some((entry.seq, source(entry), number(&gap.from), number(&gap.to)))
    });
    gaps.collect()
}

/// The source of an entry: of the resources that are read here, one is read in each namespace by itself.
fn source(entry: &Entry) -> String {
    match entry.resource.as_str() {
        "events" => format!("events {}", entry.namespace),
        _ => entry.full_resource(),
    }
}

/// Up to where nothing is missing of a source for certain: more may have been deleted with the newest version that is told.
pub(super) fn complete(log: &[Entry], of: &str) -> u64 {
    let mut told: Vec<u64> = log.iter().filter(|entry| source(entry) == of).map(Entry::rv).collect();
    told.sort_unstable();
    told.dedup();
    told.iter().rev().nth(1).copied().unwrap_or(0)
}

/// Waits until a daemon has told what the witness has.
pub(super) async fn same(daemon: &mut Decklog, witness: &mut Decklog) {
    until("a log that is that of the witness", Duration::from_secs(60), async || {
        daemon.must_run();
        witness.must_run();
        assert!(witness.entries().iter().all(|entry| entry.is_seen() || entry.evidence == "listed"), "a witness");
        differ(daemon.entries(), witness.entries())
    })
    .await;
}

/// What exists, as a log has told it.
type Told = BTreeMap<Key, (String, u64)>;

fn take(told: &mut Told, entry: &Entry) {
    match entry.kind.as_str() {
        "DELETED" => drop(told.remove(&entry.key())),
        _ => drop(told.insert(entry.key(), (entry.uid.clone(), entry.rv()))),
    }
}

/// Where a log is not that of the witness. What a gap covers has to come to the same.
fn differ(log: &[Entry], witness: &[Entry]) -> Result<(), String> {
    let of = |log: &[Entry]| {
        let mut sources: BTreeMap<String, Vec<Entry>> = BTreeMap::new();
        for entry in log {
            sources.entry(source(entry)).or_default().push(entry.clone());
        }
        sources
    };
    let (mine, mut theirs) = (of(log), of(witness));
    if let Some(source) = theirs.keys().find(|source| !mine.contains_key(*source)) {
        return Err(format!("nothing of {source}"));
    }
    for (name, entries) in mine {
        let mut theirs = theirs.remove(&name).unwrap_or_default();
        // What happened with one revision has no order.
        theirs.sort_by_key(|entry| (entry.rv(), entry.key()));
        let (mut entries, mut theirs) = (in_order(entries).into_iter().peekable(), theirs.into_iter().peekable());
        let (mut told, mut truth) = (Told::new(), Told::new());
        while let Some(entry) = entries.next() {
            if let Some(gap) = &entry.gap {
                let to = gap.to.as_deref().and_then(|to| to.parse::<u64>().ok()).unwrap_or(0);
                while let Some(inferred) = entries.next_if(|entry| entry.evidence == "inferred") {
                    take(&mut told, &inferred);
                }
                while let Some(covered) = theirs.next_if(|entry| entry.rv() <= to) {
                    take(&mut truth, &covered);
                }
                if told != truth {
                    return Err(format!("{name}: after {entry} there is {told:?}, and should be {truth:?}"));
                }
                continue;
            }
            let Some(same) = theirs.next() else { return Err(format!("{name}: the witness has no {entry}")) };
            if content(&entry) != content(&same) {
                return Err(format!("{name}: the witness has {same} and not {entry}\n{same:?}\n{entry:?}"));
            }
            take(&mut told, &entry);
            take(&mut truth, &same);
        }
        if let Some(missing) = theirs.next() {
            return Err(format!("{name}: missing is {missing}"));
        }
    }
    Ok(())
}

/// The entries of a source, where those of one revision that follow each other are in the order of their names, and so are
/// those of a list.
fn in_order(mut entries: Vec<Entry>) -> Vec<Entry> {
    let listed = entries.partition_point(|entry| entry.evidence == "listed");
    entries[..listed].sort_by_key(|entry| (entry.rv(), entry.key()));
    for together in
        entries[listed..].chunk_by_mut(|one, other| one.is_seen() && other.is_seen() && one.rv() == other.rv())
    {
        together.sort_by_key(Entry::key);
    }
    entries
}
