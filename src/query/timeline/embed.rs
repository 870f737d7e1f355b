//! All that the timeline page asks of a window, for a file that shows it without a daemon.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::entries::{Entries, entries};
use super::entry::{OneEntry, entry};
use super::lane::Lane;
use super::lanes::{LaneList, Lanes, lanes};
use super::moments::{ChangesBetween, StateAt, changes, state};
use super::object::{ObjectAt, object};
use super::order::Order;
use super::overview::{Overview, overview};
use super::selection::Window;
use super::window::{Before, Buckets, Histogram, extent, histogram};
use super::writers::{Writers, writers};
use super::{ENTRIES_MAX, LANES_MAX, MARKS_MAX, Opened};
use crate::core::model::Seq;
use crate::query::coverage_notes::About;
use crate::query::render::names::At;
use crate::query::render::row::{plural, size};
use crate::query::render::{Exit, Failure};
use crate::query::select::{Filters, Select, Selection};
use crate::query::{Log, Put, Question};

/// Time limit for the answers, for which a person waits, and the share of it that objects and the moments may take.
const FILE_TIMEOUT: Duration = Duration::from_secs(120);
const OBJECTS_SHARE: u32 = 4;
/// Number of buckets of the histogram.
const BUCKETS: usize = 240;
/// Bytes of the answer about an entry, at least.
const SMALLEST: usize = 512;
/// Number of entries in the list, and of objects at a moment.
const LISTED: usize = ENTRIES_MAX;

/// Asks for the answers to all that the page asks of a window.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Timeline {
    #[serde(default)]
    pub(crate) window: Window,
    /// Bytes of the answers about single entries and objects.
    pub(crate) max_bytes: usize,
}

/// A part of the answer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Item {
    /// The answer to a question of the page.
    Answer(Embedded),
    /// The end.
    Contents(Contents),
}

/// The answer to a question of the page.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Embedded {
    /// Name of the question; behind a slash the seq or the id that it is about.
    pub(crate) question: String,
    pub(crate) answer: Box<RawValue>,
}

/// What the answers are about.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Contents {
    /// Number of objects.
    pub(crate) objects: usize,
    /// Number of changes on their lanes.
    pub(crate) changes: usize,
    /// A sentence about what was left out.
    pub(crate) left_out: Option<String>,
}

impl Question for Timeline {
    const NAME: &'static str = "timeline";
    type Item = Item;

    /// # Errors
    /// As each of the questions, and exit 1 where the window names what the journal does not know, or ends before the log begins.
    fn answer(self, log: &Log<'_>, put: &mut Put<'_, Item>) -> Result<(), Failure> {
        let mut reader = log.open()?;
        let Window { objects, namespaces, since, until, .. } = self.window.clone();
        let only = Filters { namespaces, since, until, ..Filters::default() };
        let select = Select { objects, only, ..Select::default() };
        Selection::new(&select, &mut reader, log)?;
        let about = About::of(&select, &reader)?;
        let coverage = about.coverage(&mut reader, &log.dir, &log.clock)?;
        let mut opened = Opened::within(log, &self.window)?;
        opened.deadline = Instant::now() + FILE_TIMEOUT;
        let mut is_empty = true;
        embed(&mut opened, &self, log, &mut |item| {
            if let Item::Contents(contents) = &item {
                is_empty = contents.changes == 0;
            }
            put(item)
        })?;
        if is_empty {
            about.note_nothing("no change", &coverage, &mut reader, log)?;
            coverage.remark(log);
        }
        Ok(())
    }
}

/// Hands out the answers, each as soon as it is known. Bytes and time bound those about single entries and objects.
pub(super) fn embed(
    opened: &mut Opened,
    question: &Timeline,
    log: &Log<'_>,
    put: &mut Put<'_, Item>,
) -> Result<(), Failure> {
    let window = &within_the_log(opened, &question.window)?;
    let selected = window.resolve(&opened.reader)?;
    let mut room = Room { put, left: question.max_bytes };
    let mut missing = Missing::default();
    let mut shown =
        lanes(opened, &Lanes { window: window.clone(), order: Order::Causes, lanes: LANES_MAX, marks: MARKS_MAX })?;
    shown.leave_out_what_is_empty();
    room.whole(Lanes::NAME, &shown)?;
    let (since, until) = extent(&opened.reader, &selected, opened.present()?.end)?;
    let mut view = log.decided(|| overview(opened))?;
    // It may be handed on to somebody who may see this and nothing else.
    view.narrow(&selected, &mut opened.reader, &shown.namespaces())?;
    view.of_file((since, until), window, &opened.reader)?;
    room.whole(Overview::NAME, &view)?;
    let of_buckets = Histogram { window: window.clone(), buckets: BUCKETS };
    let buckets = log.decided(|| histogram(opened, &of_buckets))?;
    room.whole(Histogram::NAME, &buckets)?;
    let at = |micros| Timestamp::from_microsecond(micros).ok();
    let of_writers =
        Window { types: Vec::new(), areas: Vec::new(), since: at(since), until: at(until), ..window.clone() };
    let of_writers = Writers { window: of_writers };
    let written = log.decided(|| writers(opened, &of_writers))?;
    room.whole(Writers::NAME, &written)?;
    let listed = Entries { window: window.clone(), before: None, after: None, limit: LISTED };
    let listed = log.decided(|| entries(opened, &listed))?;
    room.whole(Entries::NAME, &listed)?;
    missing.listed = listed.more;
    missing.written = written.truncated();
    if !selected.is_narrow() {
        let deadline = opened.deadline;
        opened.deadline = Instant::now() + deadline.saturating_duration_since(Instant::now()) / OBJECTS_SHARE;
        moments(opened, window, since, &mut room, &mut missing)?;
        let its = shown.lanes.iter().filter(|lane| lane.is_of(&selected));
        objects(opened, window, its, &mut room, &mut missing)?;
        opened.deadline = deadline;
    }
    let mut seqs: Vec<u64> = shown.lanes.iter().flat_map(|lane| lane.marks.iter().map(|mark| mark.seq)).collect();
    seqs.extend(listed.gap_seqs());
    seqs.sort_unstable_by(|one, other| other.cmp(one));
    let beside = beside(&shown);
    for seq in seqs {
        if Instant::now() > opened.deadline || log.is_gone() {
            missing.late += 1;
            continue;
        }
        if room.left < SMALLEST {
            missing.large += 1;
            continue;
        }
        // Retention may have removed it meanwhile, and one that is damaged hides no other.
        let one = OneEntry { seq: Seq(seq), neighbours: false };
        let Ok(mut whole) = log.decided(|| entry(opened, one)) else { continue };
        (whole.previous, whole.next) = beside.get(&seq).copied().unwrap_or_default();
        if !room.part(format!("{}/{seq}", OneEntry::NAME), &whole)? {
            missing.large += 1;
        }
    }
    let left_out = missing.spell(&shown, &buckets, question.max_bytes);
    put(Item::Contents(Contents { objects: shown.lanes.len(), changes: shown.changes(), left_out }))
}

/// Returns the entries of the same object before and after each entry, among those of the window. The page leads to those that
/// had room in its file: entries are handed out one by one, because together they may be as large as a client asks.
fn beside(shown: &LaneList) -> HashMap<u64, (Option<u64>, Option<u64>)> {
    let mut beside = HashMap::new();
    for lane in &shown.lanes {
        let seqs: Vec<u64> = lane.marks.iter().map(|mark| mark.seq).collect();
        for (at, seq) in seqs.iter().enumerate() {
            let previous = at.checked_sub(1).and_then(|at| seqs.get(at).copied());
            beside.insert(*seq, (previous, seqs.get(at + 1).copied()));
        }
    }
    beside
}

/// Returns the part of a window that the log has: a file says nothing of what is before it, or to come.
fn within_the_log(opened: &Opened, window: &Window) -> Result<Window, Failure> {
    let oldest = opened.reader.retained()?.oldest_time.and_then(|micros| Timestamp::from_microsecond(micros).ok());
    let until = window.until.filter(|until| *until < opened.clock.now);
    // A window that ends before the log begins is empty, and stays what it is.
    let oldest = oldest.filter(|oldest| until.is_none_or(|until| *oldest <= until));
    let since = window.since.map(|since| oldest.map_or(since, |oldest| since.max(oldest)));
    Ok(Window { since, until, ..window.clone() })
}

/// The state at the end of the window, and the changes within it. Where the log does not reach to a moment, there is none.
fn moments(
    opened: &mut Opened,
    window: &Window,
    since: i64,
    room: &mut Room<'_, '_>,
    missing: &mut Missing,
) -> Result<(), Failure> {
    let of_objects =
        Window { objects: window.objects.clone(), namespaces: window.namespaces.clone(), ..Window::default() };
    let end = window.until.map(At::Time);
    match state(opened, &StateAt { window: of_objects.clone(), at: end, limit: LISTED }) {
        Ok(state) => room.whole(StateAt::NAME, &state)?,
        Err(failure) => missing.moment(failure)?,
    }
    let Ok(from) = Timestamp::from_microsecond(since) else { return Ok(()) };
    let between = ChangesBetween { window: of_objects, from: At::Time(from), to: end, limit: LISTED };
    match changes(opened, &between) {
        Ok(changes) => room.whole(ChangesBetween::NAME, &changes),
        Err(failure) => missing.moment(failure),
    }
}

/// Each object as it was at the end of the window, with its entries of the window.
fn objects<'l>(
    opened: &mut Opened,
    window: &Window,
    lanes: impl Iterator<Item = &'l Lane>,
    room: &mut Room<'_, '_>,
    missing: &mut Missing,
) -> Result<(), Failure> {
    let bound = room.left - room.left / OBJECTS_SHARE as usize;
    for lane in lanes {
        if room.left <= bound || Instant::now() > opened.deadline {
            missing.objects += 1;
            continue;
        }
        let (resource, namespace, name) = lane.object();
        let question = ObjectAt { resource, namespace, name, at: None, since: window.since, until: window.until };
        // One that is damaged hides no other.
        let is_in = match object(opened, &question) {
            Ok(page) => room.part(format!("{}/{}", ObjectAt::NAME, lane.id), &page)?,
            Err(_) => false,
        };
        missing.objects += u64::from(!is_in);
    }
    Ok(())
}

/// The bytes that are left, and where answers go.
struct Room<'r, 'p> {
    put: &'r mut Put<'p, Item>,
    left: usize,
}

impl Room<'_, '_> {
    /// Hands out an answer that every file has.
    fn whole(&mut self, question: &str, answer: &impl Serialize) -> Result<(), Failure> {
        let answer = raw(answer)?;
        (self.put)(Item::Answer(Embedded { question: question.to_owned(), answer }))
    }

    /// Hands out an answer if there is room for it. Reports whether there was.
    fn part(&mut self, question: String, answer: &impl Serialize) -> Result<bool, Failure> {
        let answer = raw(answer)?;
        let bytes = answer.get().len();
        if bytes > self.left {
            return Ok(false);
        }
        self.left -= bytes;
        (self.put)(Item::Answer(Embedded { question, answer }))?;
        Ok(true)
    }
}

fn raw(answer: &impl Serialize) -> Result<Box<RawValue>, Failure> {
    let bug = |error: serde_json::Error| Failure::internal(format!("an answer cannot be written: {error}"));
    serde_json::value::to_raw_value(answer).map_err(bug)
}

/// What is left out.
#[derive(Clone, Copy, Debug, Default)]
struct Missing {
    /// Entries for which there was no room.
    large: u64,
    /// Entries for which there was no time.
    late: u64,
    /// Objects for which there was no room, or no time.
    objects: u64,
    /// The list of entries has only the newest.
    listed: bool,
    /// Writers were counted for a part of the time.
    written: bool,
    /// The log does not reach to a moment.
    moments: bool,
}

impl Missing {
    /// Notes that the log does not reach to a moment.
    ///
    /// # Errors
    /// The failure, if it is another one.
    fn moment(&mut self, failure: Failure) -> Result<(), Failure> {
        if failure.exit() != Exit::No {
            return Err(failure);
        }
        self.moments = true;
        Ok(())
    }

    /// Returns the sentence about all that is left out; none where nothing is.
    fn spell(self, shown: &LaneList, buckets: &Buckets, most: usize) -> Option<String> {
        let seconds = FILE_TIMEOUT.as_secs();
        let mut said = Vec::new();
        if self.large > 0 {
            said.push(format!(
                "{} in this file without what changed, because it would have more than {}",
                plural(self.large, "entry is", "entries are"),
                size(most as u64)
            ));
        }
        if self.late > 0 {
            said.push(format!(
                "{} in this file without what changed, because it took more than {seconds} seconds",
                plural(self.late, "entry is", "entries are"),
            ));
        }
        let looked_back = shown.left_out().and_then(|left| left.before.as_ref()).max(buckets.looked_back());
        if let Some(Before { before }) = looked_back {
            said.push(format!(
                "nothing before {before} was read, because it took more than {seconds} seconds: from then on the file is whole"
            ));
        }
        if let Some(before) = shown.left_out().and_then(|left| left.causes_before.as_ref()) {
            said.push(format!("before {before} causes were not looked for: those objects stand below"));
        }
        if let Some(left) = shown.left_out() {
            let counted = [
                (left.lanes as u64, "object", "objects"),
                (left.marks, "entry", "entries"),
                (left.unwatched as u64, "hatched stretch", "hatched stretches"),
            ];
            let counted = counted.into_iter().filter(|(count, ..)| *count > 0);
            let counted: Vec<String> = counted.map(|(count, one, several)| plural(count, one, several)).collect();
            if !counted.is_empty() {
                said.push(format!("not in this file: {}", counted.join(", ")));
            }
        }
        if self.objects > 0 {
            said.push(format!(
                "{} in this file without what was there",
                plural(self.objects, "object is", "objects are")
            ));
        }
        if self.listed {
            said.push(format!("the list has the newest {} alone", plural(LISTED as u64, "entry", "entries")));
        }
        if self.written {
            said.push("the writers are counted for a part of the time".to_owned());
        }
        if !said.is_empty() {
            said.push("a later --since, or a filter, leaves room for more".to_owned());
        }
        // For these there is no room to leave.
        if self.moments {
            said.push("the objects at the ends of the time are not known".to_owned());
        }
        (!said.is_empty()).then(|| said.join("; "))
    }
}
