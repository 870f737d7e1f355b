//! A window of time: how much happened when, and the lanes of objects with what happened to each.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::outlines::{Index, Way, who};
use super::selection::{Selected, Window, no_answer, senders};
use super::summary::list;
use super::{BUCKETS_MAX, Opened};
use crate::core::filter::FilterError;
use crate::core::k8s::audited::Actor;
use crate::core::model::{EntryType, Evidence, Seq};
use crate::journal::Reader;
use crate::journal::outline::{Mark, Part};
use crate::query::render::Failure;
use crate::query::{Log, Put, Question, Word, stamp};

/// Filter of entries, as far as outlines can tell.
pub(super) struct Narrow<'a> {
    selected: &'a Selected,
    /// Seqs for which the expression is true, if there is one.
    chosen: Option<HashSet<u64>>,
    /// Seqs of changes whose sender is wanted.
    sent: Sent,
}

/// Changes whose sender is wanted: outlines do not have it, because it comes later.
enum Sent {
    /// Those with these seqs.
    Of(HashSet<u64>),
    /// Any may be.
    Unknown,
}

impl<'a> Narrow<'a> {
    /// All that pass but for what an expression says.
    pub(super) const fn of(selected: &'a Selected) -> Self {
        Self { selected, chosen: None, sent: Sent::Unknown }
    }

    /// All that pass where no change has a sender.
    pub(super) fn of_unsent(selected: &'a Selected) -> Self {
        Self::of_sent(selected, &HashMap::new())
    }

    /// All that pass where these changes have these senders, but for what an expression says.
    pub(super) fn of_sent(selected: &'a Selected, senders: &HashMap<u64, Actor>) -> Self {
        let is_wanted = |actor| selected.by.as_ref().is_some_and(|by| by.sent(actor));
        let sent = senders.iter().filter(|(_, actor)| is_wanted(actor)).map(|(seq, _)| *seq).collect();
        Self { sent: Sent::Of(sent), ..Self::of(selected) }
    }

    /// Reports whether an entry is of a selected object and time.
    fn is_within(&self, mark: &Mark) -> bool {
        let selected = self.selected;
        let is_of = match (mark.object, &selected.objects, &selected.sources) {
            (0, _, Some(sources)) => sources.contains(&mark.source),
            (object, Some(objects), _) if object != 0 => objects.contains(&object),
            _ => true,
        };
        is_of
            && selected.since.is_none_or(|since| mark.latest >= since)
            && selected.until.is_none_or(|until| mark.earliest <= until)
    }

    /// Reports whether an entry is selected.
    pub(super) fn takes(&self, part: &Part, mark: &Mark) -> bool {
        let selected = self.selected;
        self.is_within(mark)
            && (selected.types.is_empty() || selected.types.contains(&mark.kind()))
            && (selected.areas.is_empty()
                || mark.kind() != EntryType::Modified
                || part.areas(mark).split(',').any(|area| selected.areas.iter().any(|wanted| wanted == area)))
            && selected.by.as_ref().is_none_or(|by| {
                who(&part.words(mark)).0.iter().any(|name| by.is_one(name))
                    || match &self.sent {
                        Sent::Of(seqs) => seqs.contains(&mark.seq),
                        Sent::Unknown => mark.kind().is_change(),
                    }
            })
            && self.chosen.as_ref().is_none_or(|chosen| chosen.contains(&mark.seq))
    }
}

/// Entries of a slice for which an expression is true.
#[derive(Default)]
struct Chosen {
    /// Their seqs; none where there is no expression.
    chosen: Option<HashSet<u64>>,
    /// Those among them for which it has no answer.
    unanswered: HashMap<u64, FilterError>,
    /// The first entry for which there was no time left.
    late: Option<u64>,
}

impl Chosen {
    fn of(
        reader: &mut Reader,
        selected: &Selected,
        slice: (u64, u64),
        senders: &HashMap<u64, Actor>,
        deadline: Option<Instant>,
    ) -> Result<Self, Failure> {
        let Some(filter) = &selected.filter else { return Ok(Self::default()) };
        let (mut chosen, mut unanswered, mut late) = (HashSet::new(), HashMap::new(), None);
        reader.rows_between(Seq(slice.0 + 1), Seq(slice.1), &mut |row| {
            let seq = row.entry.seq.0;
            // An expression that loops may take long for each. Whoever asks for more goes on from the first, so there has to be one.
            if deadline.is_some_and(|deadline| Instant::now() > deadline) {
                late = Some(seq);
                return ControlFlow::Break(());
            }
            let answer = filter.selects_of(&row.entry.line, senders.get(&seq));
            if !matches!(answer, Ok(false)) {
                chosen.insert(seq);
            }
            unanswered.extend(answer.err().map(|error| (seq, error)));
            ControlFlow::Continue(())
        })?;
        Ok(Self { chosen: Some(chosen), unanswered, late })
    }
}

/// Looks at every entry that passes, in the window or within these seqs. Gives the seq up to which it came where it had to
/// stop before the end.
pub(super) fn look(
    index: &Index,
    reader: &mut Reader,
    selected: &Selected,
    (bounds, way): ((u64, u64), Way),
    deadline: Instant,
    visit: &mut dyn FnMut(&Part, &Mark) -> ControlFlow<()>,
) -> Result<Option<u64>, Failure> {
    let asks_for_senders = selected.asks_for_senders(reader)?;
    if selected.filter.is_none() && !asks_for_senders {
        let narrow = Narrow::of_unsent(selected);
        let choose = |part: &Part, mark: &Mark| narrow.takes(part, mark);
        return Ok(index.walk(reader, bounds, way, deadline, (&choose, visit))?);
    }
    // What an expression says is only known of whole entries: those that pass otherwise are put together, a slice at a time, and the
    // senders of changes are looked up.
    let (after, upto) = (bounds.0, bounds.1.min(reader.head()?.0));
    let mut at = if way == Way::Back { upto } else { after };
    let mut size = FIRST_SLICE;
    loop {
        let mut slice = match way {
            Way::Back if at <= after => return Ok(None),
            Way::On if at >= upto => return Ok(None),
            Way::Back => (at.saturating_sub(size).max(after), at),
            Way::On => (at, (at + size).min(upto)),
        };
        let is_first = size == FIRST_SLICE;
        size = (size * 2).min(SLICE);
        let senders = match asks_for_senders {
            true => senders(reader, Seq(slice.0 + 1), Seq(slice.1))?,
            false => HashMap::new(),
        };
        let Chosen { chosen, unanswered, late } =
            Chosen::of(reader, selected, slice, &senders, (!is_first).then_some(deadline))?;
        match late {
            // The newest of it come last, and it is these that an answer begins with.
            Some(_) if way == Way::Back => return Ok(Some(slice.1 + 1)),
            Some(seq) => slice.1 = seq - 1,
            None => {}
        }
        let narrow = Narrow { chosen, ..Narrow::of_sent(selected, &senders) };
        let (mut ended, mut refused) = (false, None);
        let choose = |part: &Part, mark: &Mark| narrow.takes(part, mark);
        let mut visit = |part: &Part, mark: &Mark| {
            // Only an entry that is selected otherwise needs an answer.
            if let Some(error) = unanswered.get(&mark.seq) {
                refused = Some(no_answer(Seq(mark.seq), error));
                return ControlFlow::Break(());
            }
            let flow = visit(part, mark);
            ended |= flow.is_break();
            flow
        };
        let cut = index.walk(reader, slice, way, deadline, (&choose, &mut visit))?;
        if let Some(problem) = refused {
            return Err(problem);
        }
        if ended {
            return Ok(None);
        }
        // It lies in two parts, and there was no time for the other.
        if cut.is_some() {
            return Ok(cut);
        }
        at = if way == Way::Back { slice.0 } else { slice.1 };
        if Instant::now() > deadline {
            return Ok(Some(if way == Way::Back { at + 1 } else { at }));
        }
    }
}

/// Number of entries that are decompressed at once.
const SLICE: u64 = 512;
/// … and at first. Each slice is twice as large as the one before it.
const FIRST_SLICE: u64 = 1;

/// Asks how many entries there are over time.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Histogram {
    #[serde(default)]
    pub(crate) window: Window,
    /// Number of buckets.
    pub(crate) buckets: usize,
}

impl Question for Histogram {
    const NAME: &'static str = "histogram";
    type Item = Buckets;

    fn answer(self, log: &Log<'_>, put: &mut Put<'_, Buckets>) -> Result<(), Failure> {
        put(histogram(&mut Opened::within(log, &self.window)?, &self)?)
    }
}

/// Histogram of entries over time.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Buckets {
    since: String,
    until: String,
    /// Width of a bucket, in microseconds.
    width: i64,
    /// ADDED, MODIFIED, DELETED and GAP, but for what changes nothing that matters.
    buckets: Vec<[u64; 4]>,
    /// Entries that change nothing that matters.
    quiet: Vec<u64>,
    total: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    truncated: Option<Before>,
}

impl Buckets {
    /// Returns the actual beginning of the window, if it was cut.
    pub(super) const fn looked_back(&self) -> Option<&Before> {
        self.truncated.as_ref()
    }
}

/// End of the part that was not read, because it would take too long.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Before {
    pub(super) before: String,
}

impl Before {
    /// Before the entry with this seq.
    pub(super) fn entry(reader: &Reader, seq: u64) -> Result<Self, Failure> {
        Ok(Self { before: reader.time_of(Seq(seq))?.map_or_else(String::new, stamp) })
    }
}

/// The window that is asked for, microseconds since 1970: from the oldest entry on, and up to now.
pub(super) fn extent(reader: &Reader, selected: &Selected, now: i64) -> Result<(i64, i64), Failure> {
    let since = match selected.since {
        Some(since) => since,
        None => reader.retained()?.oldest_time.unwrap_or(now),
    };
    let until = selected.until.unwrap_or(now).max(since);
    Ok((since, until))
}

/// Counts the entries in each part of the window.
pub(super) fn histogram(opened: &mut Opened, question: &Histogram) -> Result<Buckets, Failure> {
    let (now, buckets) = (opened.present()?.end, question.buckets.clamp(1, BUCKETS_MAX));
    let Opened { reader, index, deadline, .. } = opened;
    let selected = &question.window.resolve(reader)?;
    let (since, until) = extent(reader, selected, now)?;
    let count = i64::try_from(buckets).unwrap_or(1).max(1);
    // What is at the very end is in the last one.
    let width = ((until - since) / count + 1).max(1);
    let (mut counted, mut quiet, mut total) = (vec![[0_u64; 4]; buckets], vec![0_u64; buckets], 0);
    let bounds = selected.bounds(reader, reader.head()?)?;
    let cut = look(index, reader, selected, (bounds, Way::Back), *deadline, &mut |_, mark| {
        let place = usize::try_from((mark.latest - since).max(0) / width).unwrap_or(0).min(buckets - 1);
        total += 1;
        if mark.quiet {
            quiet[place] += 1;
        } else if let Some(count) = counted[place].get_mut(usize::from(mark.kind)) {
            *count += 1;
        }
        ControlFlow::Continue(())
    })?;
    let truncated = cut.map(|seq| Before::entry(reader, seq)).transpose()?;
    Ok(Buckets { since: stamp(since), until: stamp(until), width, buckets: counted, quiet, total, truncated })
}

/// Data of an object's lane during the walk, newest first.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Newest first.
    pub(super) marks: Vec<MarkLine>,
    /// Comings and goings, newest first.
    pub(super) turns: Vec<Turn>,
    pub(super) quiet: u64,
    /// The newest and the oldest entry, and what that one is.
    pub(super) newest: u64,
    pub(super) oldest: Option<EntryType>,
    /// Set if an entry of it is worth a lane.
    pub(super) counts: bool,
}

impl Found {
    /// Notes where it came or went.
    fn turn(&mut self, part: &Part, mark: &Mark) {
        if matches!(mark.kind(), EntryType::Added | EntryType::Deleted) && self.turns.len() < MOST_TURNS {
            let came = mark.kind() == EntryType::Added;
            self.turns.push(Turn { came, time: mark.latest, evidence: mark.evidence(), uid: part.words(mark).uid });
        }
    }
}

/// Creation or deletion of an object.
#[derive(Clone, Debug)]
pub(super) struct Turn {
    pub(super) came: bool,
    pub(super) time: i64,
    pub(super) evidence: &'static str,
    pub(super) uid: String,
}

/// A mark on a lane.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct MarkLine {
    pub(super) seq: u64,
    pub(super) time: String,
    /// Earliest time at which it happened, where that is not known exactly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) since: Option<String>,
    #[serde(rename = "type")]
    pub(super) kind_of: Word,
    pub(super) evidence: Word,
    pub(super) areas: Vec<String>,
    pub(super) managers: Vec<String>,
    /// The reason why there are no managers, in a few words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) unnamed: Option<String>,
    /// Number of entries before it that change nothing that matters.
    pub(super) quiet: u64,
}

impl MarkLine {
    /// Reports whether it is a change: what a first list found was there before.
    pub(super) fn is_change(&self) -> bool {
        let is_found = self.kind_of == EntryType::Added.as_str() && self.evidence == Evidence::Listed.as_str();
        self.kind_of != "QUIET" && !is_found
    }
}

/// Comings and goings of one lane are kept up to so many.
const MOST_TURNS: usize = 400;

/// Data of the objects in a window.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    pub(super) lanes: Vec<(i64, Found)>,
    pub(super) lanes_left: usize,
    pub(super) marks_left: u64,
    /// Time of the newest mark that is left out of one of these lanes, microseconds since 1970.
    pub(super) marks_cut: Option<i64>,
    pub(super) cut: Option<u64>,
}

/// Number of lanes and of their marks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Most<'r> {
    pub(super) lanes: usize,
    pub(super) marks: usize,
    /// Objects that have a lane before all others; then what a first list found is no change. None if all are alike.
    pub(super) first: Option<&'r HashSet<i64>>,
}

/// Finds the objects to which something happened last within these seqs, and what that was: at most so many objects, and so
/// many marks. Those that are to be first have half of the marks for themselves.
pub(super) fn gather(
    index: &Index,
    reader: &mut Reader,
    selected: &Selected,
    bounds: (u64, u64),
    most: Most<'_>,
    deadline: Instant,
) -> Result<Gathered, Failure> {
    // Rows of objects are numbered without holes: a number is looked up much more quickly than a key.
    let mut places: Vec<u32> = Vec::new();
    let (mut found, mut objects): (Vec<Found>, Vec<i64>) = (Vec::new(), Vec::new());
    let mut room = Room::of(most);
    let mut beyond = 0;
    let cut = look(index, reader, selected, (bounds, Way::Back), deadline, &mut |part, mark| {
        // A GAP is of no object, and a row that no journal reaches is damage.
        let row = usize::try_from(mark.object).ok().filter(|row| (1..MOST_ROWS).contains(row));
        let Some(row) = row else { return ControlFlow::Continue(()) };
        if places.len() <= row {
            places.resize((row + 1).next_power_of_two(), 0);
        }
        let quiet = mark.quiet && !selected.quiet;
        let is_change = !quiet && !room.is_found(mark);
        if places[row] == BEYOND {
            room.marks_left += u64::from(is_change);
            return ControlFlow::Continue(());
        }
        if places[row] == 0 {
            // What changes nothing that matters has a lane only where there is room for it at the end.
            if found.len() >= MOST_FOUND || is_change && !room.has_lane(mark.object) {
                places[row] = BEYOND;
                beyond += 1;
                room.marks_left += u64::from(is_change);
                return ControlFlow::Continue(());
            }
            found.push(Found { newest: mark.seq, ..Found::default() });
            objects.push(mark.object);
            places[row] = u32::try_from(found.len()).unwrap_or(u32::MAX);
        }
        let lane = &mut found[places[row] as usize - 1];
        lane.oldest = Some(mark.kind());
        if quiet {
            lane.quiet += 1;
            match lane.marks.last_mut() {
                Some(mark) => mark.quiet += 1,
                None => lane.marks.push(line(part, mark, "QUIET", 1)),
            }
            return ControlFlow::Continue(());
        }
        if is_change && !lane.counts {
            if !room.has_lane(mark.object) {
                room.marks_left += 1;
                return ControlFlow::Continue(());
            }
            lane.counts = true;
            room.take_lane(mark.object);
        }
        lane.turn(part, mark);
        if room.take_mark(mark) {
            lane.marks.push(line(part, mark, mark.kind().as_str(), 0));
        }
        ControlFlow::Continue(())
    })?;
    let mut lanes: Vec<(i64, Found)> = objects.into_iter().zip(found).collect();
    // Those to which something happened; then, while there is room, those that were only written.
    lanes.sort_by_key(|(object, lane)| (!room.is_first(*object), !lane.counts, std::cmp::Reverse(lane.newest)));
    let lanes_left = beyond + lanes.len().saturating_sub(most.lanes);
    lanes.truncate(most.lanes);
    let bars_cut = match selected.is_narrow() {
        true => lives(index, reader, selected, (cut.map_or(bounds.0, |cut| cut - 1), bounds.1), deadline, &mut lanes)?,
        false => None,
    };
    let Room { marks_left, marks_cut, .. } = room;
    Ok(Gathered { lanes, lanes_left, marks_left, marks_cut, cut: cut.max(bars_cut) })
}

/// Room for lanes and marks.
struct Room<'r> {
    most: Most<'r>,
    /// Lanes that are left for objects that are not to be first.
    lanes: usize,
    /// Marks that are left, and how many of them those objects may have.
    marks: usize,
    of_others: usize,
    marks_left: u64,
    marks_cut: Option<i64>,
}

impl<'r> Room<'r> {
    fn of(most: Most<'r>) -> Self {
        let first = most.first.map_or(0, HashSet::len);
        // A quarter is for what is to be first, however much happens beside it.
        let of_others = if first > 0 { most.marks - most.marks / 4 } else { most.marks };
        let lanes = most.lanes.saturating_sub(first);
        Self { most, lanes, marks: most.marks, of_others, marks_left: 0, marks_cut: None }
    }

    fn is_first(&self, object: i64) -> bool {
        self.most.first.is_some_and(|first| first.contains(&object))
    }

    /// Reports whether a first list found it, which is no change where some objects are to be first.
    fn is_found(&self, mark: &Mark) -> bool {
        self.most.first.is_some() && mark.kind() == EntryType::Added && mark.evidence() == Evidence::Listed.as_str()
    }

    fn has_lane(&self, object: i64) -> bool {
        self.lanes > 0 || self.is_first(object)
    }

    fn take_lane(&mut self, object: i64) {
        self.lanes -= usize::from(!self.is_first(object));
    }

    fn take_mark(&mut self, mark: &Mark) -> bool {
        let is_first = self.is_first(mark.object);
        if self.marks == 0 || !is_first && self.of_others == 0 {
            self.marks_left += 1;
            self.marks_cut = self.marks_cut.max(Some(mark.latest));
            return false;
        }
        self.marks -= 1;
        self.of_others -= usize::from(!is_first);
        true
    }
}

/// Finds when these objects came and went, whatever entries are asked for of them: whoever asks for what was added does not
/// ask to be shown it as if it were there still.
fn lives(
    index: &Index,
    reader: &mut Reader,
    selected: &Selected,
    bounds: (u64, u64),
    deadline: Instant,
    lanes: &mut [(i64, Found)],
) -> Result<Option<u64>, Failure> {
    let mut places = HashMap::new();
    for (place, (object, lane)) in lanes.iter_mut().enumerate() {
        (lane.newest, lane.oldest) = (0, None);
        lane.turns.clear();
        places.insert(*object, place);
    }
    let narrow = Narrow::of(selected);
    // The outlines are at hand since the entries were looked at.
    let deadline = deadline.max(Instant::now() + LIFETIMES_WAIT_MIN);
    let choose = |_: &Part, mark: &Mark| places.contains_key(&mark.object) && narrow.is_within(mark);
    let mut visit = |part: &Part, mark: &Mark| {
        if let Some(place) = places.get(&mark.object) {
            let lane = &mut lanes[*place].1;
            lane.newest = lane.newest.max(mark.seq);
            lane.oldest = Some(mark.kind());
            lane.turn(part, mark);
        }
        ControlFlow::Continue(())
    };
    let cut = index.walk(reader, bounds, Way::Back, deadline, (&choose, &mut visit))?;
    Ok(cut)
}

/// Shortest time for which lifetimes of objects are looked up.
const LIFETIMES_WAIT_MIN: Duration = Duration::from_secs(1);

/// Number of objects that are tracked during a walk.
const MOST_FOUND: usize = 200_000;
/// Stands for an object for which there is no room.
const BEYOND: u32 = u32::MAX;
/// No journal has so many objects.
const MOST_ROWS: usize = 1 << 26;

fn line(part: &Part, mark: &Mark, kind_of: &'static str, quiet: u64) -> MarkLine {
    let words = part.words(mark);
    let (managers, unnamed) = who(&words);
    MarkLine {
        seq: mark.seq,
        time: stamp(mark.latest),
        since: (mark.earliest < mark.latest).then(|| stamp(mark.earliest)),
        kind_of: kind_of.into(),
        evidence: mark.evidence().into(),
        areas: list(&words.areas, ','),
        managers,
        unnamed,
        quiet,
    }
}
