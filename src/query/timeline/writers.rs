//! Top writers and contested fields: the statistics of `decklog churn`, by object and manager.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::ControlFlow;
use std::time::Instant;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::Opened;
use super::selection::{Selected, Window, lane_id, no_answer, senders};
use crate::core::model::{EntryType, Seq};
use crate::core::wire::{self, Change, Entry};
use crate::journal::{Reader, StoredRow};
use crate::query::churn::{Churn, Class, Classes};
use crate::query::render::Failure;
use crate::query::render::row::{cut, plural};
use crate::query::rewrites::{self, MANY, Rewrite};
use crate::query::{Log, Put, Question, Word, stamp};

/// Default window, in microseconds.
const HOUR: i64 = 3_600_000_000;
/// Number of writers and fights in an answer, and of writers that are tracked.
const MOST: usize = 100;
const REMEMBERED: usize = 20_000;
/// Number of entries whose senders are looked up together.
const SLICE: u64 = 512;
/// A name is shown with at most so many characters.
const NAME: usize = 253;

/// Writers and fights, those with the most useless writes first.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct WriterList {
    since: String,
    until: String,
    writers: Vec<Writer>,
    fights: Vec<Fight>,
    /// Storage rewrites, whose writes are of no writer.
    rewrites: Vec<Rewrite>,
    truncated: bool,
}

impl WriterList {
    /// Reports whether something was omitted.
    pub(super) const fn truncated(&self) -> bool {
        self.truncated
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Writer {
    id: String,
    kind: String,
    namespace: String,
    name: String,
    manager: String,
    writes: u64,
    useless: u64,
    class: Word,
    text: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct Fight {
    id: String,
    kind: String,
    namespace: String,
    name: String,
    path: String,
    managers: Vec<String>,
    /// Number of writes of the field, and how many of them brought a value back.
    writes: u64,
    turns: u64,
    last: u64,
}

#[derive(Debug, Default)]
struct Tally {
    kind: String,
    resource: String,
    namespace: String,
    name: String,
    classes: BTreeMap<Class, u64>,
    /// Writes that changed nothing but bookkeeping.
    bookkeeping: Vec<(u64, Class)>,
}

/// Asks who wrote most in a window, by object; without a first moment in its last hour.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Writers {
    #[serde(default)]
    pub(crate) window: Window,
}

impl Question for Writers {
    const NAME: &'static str = "writers";
    type Item = WriterList;

    fn answer(self, log: &Log<'_>, put: &mut Put<'_, WriterList>) -> Result<(), Failure> {
        put(writers(&mut Opened::within(log, &self.window)?, &self)?)
    }
}

/// Returns the writers of the selected entries.
pub(super) fn writers(opened: &mut Opened, question: &Writers) -> Result<WriterList, Failure> {
    let Opened { reader, clock, deadline, .. } = opened;
    let (selected, deadline) = (question.window.resolve(reader)?, *deadline);
    for (key, is_given) in [("type", !selected.types.is_empty()), ("area", !selected.areas.is_empty())] {
        if is_given {
            return Err(Failure::usage(format!("churn is of whole objects; leave {key} out")).about(key));
        }
    }
    let until = selected.until.unwrap_or_else(|| clock.now.as_microsecond());
    let since = selected.since.unwrap_or_else(|| until.saturating_sub(HOUR));
    let upto = reader.last_before(until.saturating_add(1))?.0;
    let after = reader.last_before(since)?.0;
    let (mut churn, classes) = (Churn::default().among(reader.small_resources(MANY)?), Classes::default());
    let mut tallies: HashMap<(i64, String), Tally> = HashMap::new();
    let mut truncated = false;
    let is_late = over(reader, &selected, (after, upto), deadline, &mut |row| {
        // One that is damaged is nobody's write.
        if churn.take(&row.entry.line).is_ok() {
            truncated |= !take(&classes, &mut tallies, row.object, &row.entry.line);
        }
    })?;
    truncated |= is_late;
    let time = |micros| Timestamp::from_microsecond(micros).unwrap_or_default();
    let report = churn.report(time(since), time(until), MOST);
    let rewritten = rewrites::seqs(&report.rewrites);
    let counted = tallies.into_iter().filter_map(|((_, manager), tally)| Some((manager, tally.without(&rewritten)?)));
    let mut writers: Vec<Writer> = counted.map(|(manager, tally)| writer(manager, tally)).collect();
    let weight = |writer: &Writer| (std::cmp::Reverse(writer.useless), std::cmp::Reverse(writer.writes));
    writers.sort_by(|one, other| {
        weight(one).cmp(&weight(other)).then_with(|| (&one.id, &one.manager).cmp(&(&other.id, &other.manager)))
    });
    writers.truncate(MOST);
    let kinds: HashMap<String, String> =
        reader.resources()?.into_iter().map(|(_, resource)| (resource.full_name(), resource.kind)).collect();
    let fights = report.fights.into_iter().map(|fight| {
        let mut managers: Vec<String> = fight.sides.into_iter().map(|side| side.manager).collect();
        managers.sort();
        managers.dedup();
        Fight {
            id: lane_id(&fight.resource, &fight.namespace, &fight.name),
            kind: kinds.get(&fight.resource).cloned().unwrap_or_default(),
            namespace: fight.namespace,
            name: fight.name,
            path: crate::query::render::tree::steps(&fight.field).join("."),
            managers,
            writes: fight.writes,
            turns: fight.reverts,
            last: fight.seq,
        }
    });
    let (fights, rewrites) = (fights.collect(), report.rewrites);
    Ok(WriterList { since: stamp(since), until: stamp(until), writers, fights, rewrites, truncated })
}

/// Looks at the selected entries after one seq and up to another. Reports whether there was too little time for all of them.
fn over(
    reader: &mut Reader,
    selected: &Selected,
    (after, upto): (u64, u64),
    deadline: Instant,
    visit: &mut dyn FnMut(&StoredRow),
) -> Result<bool, Failure> {
    let asks_for_senders = selected.asks_for_senders(reader)?;
    let (mut from, mut late, mut refused) = (after + 1, false, None);
    while from <= upto && !late {
        let to = if asks_for_senders { upto.min(from + SLICE - 1) } else { upto };
        let senders = if asks_for_senders { senders(reader, Seq(from), Seq(to))? } else { HashMap::new() };
        reader.rows_between(Seq(from), Seq(to), &mut |row| {
            if Instant::now() > deadline {
                late = true;
                return ControlFlow::Break(());
            }
            if selected.objects.as_ref().is_some_and(|objects| !objects.contains(&row.object)) {
                return ControlFlow::Continue(());
            }
            let (line, sender) = (&row.entry.line, senders.get(&row.entry.seq.0));
            match selected.filter.as_ref().map_or(Ok(true), |filter| filter.selects_of(line, sender)) {
                Ok(true) if selected.by.as_ref().is_none_or(|by| by.wrote(line, sender)) => visit(&row),
                Ok(_) => {}
                Err(error) => {
                    refused = Some(no_answer(row.entry.seq, &error));
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        })?;
        if let Some(problem) = refused {
            return Err(problem);
        }
        from = to + 1;
    }
    Ok(late)
}

/// Counts a write. Says whether there was room for it.
fn take(classes: &Classes, tallies: &mut HashMap<(i64, String), Tally>, object: i64, line: &[u8]) -> bool {
    let (head, _) = wire::apart(line);
    let Ok(entry) = Entry::parse(&head) else { return true };
    let watched = matches!(entry.evidence.as_deref(), Some("watched" | "recovered"));
    if entry.op != EntryType::Modified || !watched {
        return true;
    }
    let change = Change::of(&entry).ok().flatten().unwrap_or_default();
    let class = classes.of(&entry.full_resource(), &change, entry.time.parse().ok());
    let mut managers: Vec<&str> = change.managers.iter().map(|by| by.manager.as_str()).collect();
    managers.dedup();
    let manager = cut(&managers.join(", "), NAME).into_owned();
    let full = tallies.len() >= REMEMBERED;
    let key = (object, manager);
    if full && !tallies.contains_key(&key) {
        return false;
    }
    let tally = tallies.entry(key).or_insert_with(|| Tally {
        kind: entry.kind.to_string(),
        resource: entry.full_resource(),
        namespace: entry.namespace.as_deref().unwrap_or_default().to_owned(),
        name: entry.name.as_deref().unwrap_or_default().to_owned(),
        classes: BTreeMap::new(),
        bookkeeping: Vec::new(),
    });
    if class.is_bookkeeping() {
        tally.bookkeeping.push((entry.seq, class));
    } else {
        *tally.classes.entry(class).or_default() += 1;
    }
    true
}

impl Tally {
    /// Leaves out the writes of storage rewrites. Returns nothing if there are no others.
    fn without(mut self, rewritten: &HashSet<u64>) -> Option<Self> {
        for (_, class) in self.bookkeeping.drain(..).filter(|(seq, _)| !rewritten.contains(seq)) {
            *self.classes.entry(class).or_default() += 1;
        }
        (!self.classes.is_empty()).then_some(self)
    }
}

fn writer(manager: String, tally: Tally) -> Writer {
    let writes: u64 = tally.classes.values().sum();
    let no_op = |class: &Class| class.is_no_op();
    let useless: u64 = tally.classes.iter().filter(|(class, _)| no_op(class)).map(|(_, count)| count).sum();
    // What it mostly does; of what is useless, where most of it is.
    let most = tally
        .classes
        .iter()
        .filter(|(class, _)| useless * 2 < writes || no_op(class))
        .max_by_key(|(_, count)| **count)
        .map_or(Class::Changed, |(class, _)| *class);
    let by = if manager.is_empty() { "nobody that is named".to_owned() } else { manager.clone() };
    let text = format!(
        "{} by {by}, {useless} of them changed nothing that matters; mostly {}",
        plural(writes, "write", "writes"),
        most.spoken()
    );
    Writer {
        id: lane_id(&tally.resource, &tally.namespace, &tally.name),
        kind: tally.kind,
        namespace: tally.namespace,
        name: tally.name,
        manager,
        writes,
        useless,
        class: most.as_str().into(),
        text,
    }
}
