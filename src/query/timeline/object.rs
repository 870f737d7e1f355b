//! One object over the whole log, and as it was at a moment.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::time::Instant;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::Opened;
use super::lane::Lane;
use super::lanes::{id_of, lane};
use super::moments::place;
use super::outlines::{Index, Way, who};
use super::selection::{Resources, Window, lane_id};
use super::summary::{Summaries, Summary, list};
use super::text::{brings_back, shown};
use super::window::{Found, MarkLine, Turn};
use crate::core::model::{EntryType, Seq};
use crate::journal::outline::{Mark, Part, part_of};
use crate::journal::{ObjectRow, Reader, Step};
use crate::query::coverage::{self, Uncovered};
use crate::query::render::Failure;
use crate::query::render::blame::trace;
use crate::query::render::names::At;
use crate::query::render::row::cut;
use crate::query::render::tree;
use crate::query::{Log, Put, Question, stamp};

/// Number of fields of an object that are shown with their authors, and number of characters of each value.
const FIELDS: usize = 500;
const VALUE: usize = 512;
/// Number of entries that are walked back for authors.
const BLAMED: usize = 2000;
/// Number of entries of an object, and of marks in its lane.
const OF_OBJECT: usize = 500;
const MARKS: usize = 10_000;

/// Asks for an object, by the full name of its resource.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ObjectAt {
    pub(crate) resource: String,
    #[serde(default)]
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// The moment; the last one of its time if there is none.
    #[serde(default)]
    pub(crate) at: Option<At>,
    /// Start of the time from which entries are shown; none for the beginning of the log.
    #[serde(default)]
    pub(crate) since: Option<Timestamp>,
    /// End of that time; none for now.
    #[serde(default)]
    pub(crate) until: Option<Timestamp>,
}

/// A field of an object, and who set it.
#[derive(Debug, Serialize, Deserialize)]
struct Field {
    path: String,
    value: String,
    manager: String,
    operation: String,
    /// The reason why there is no manager, in a few words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unnamed: Option<String>,
    seq: Option<u64>,
    time: Option<String>,
}

/// One object, over the whole log.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ObjectPage {
    lane: Lane,
    /// Times for which nothing is known of it.
    unwatched: Vec<Uncovered>,
    entries: Vec<Summary>,
    more: bool,
    at: Option<u64>,
    yaml: Option<String>,
    yaml_cut: bool,
    blame: Vec<Field>,
    blame_cut: bool,
    command: Option<String>,
}

/// Returns the object that the question names.
fn named(reader: &Reader, question: &ObjectAt) -> Result<ObjectRow, Failure> {
    let ObjectAt { resource, namespace, name, .. } = question;
    super::lanes::row_of(reader, &lane_id(resource, namespace, name))?.ok_or_else(|| {
        let shown = |text: &str| cut(text, 253).into_owned();
        let within = if namespace.is_empty() { String::new() } else { format!(" in namespace {}", shown(namespace)) };
        Failure::no(format!("the journal knows no {}/{}{within}", shown(resource), shown(name)))
    })
}

impl Question for ObjectAt {
    const NAME: &'static str = "object";
    type Item = ObjectPage;

    /// # Errors
    /// Exit 1 where the journal knows no such object, or the log does not reach to the moment.
    fn answer(self, log: &Log<'_>, put: &mut Put<'_, ObjectPage>) -> Result<(), Failure> {
        put(object(&mut Opened::of(log)?, &self)?)
    }
}

/// Returns an object: its lane, its entries, and what it was at a moment, with who had set that.
pub(super) fn object(opened: &mut Opened, question: &ObjectAt) -> Result<ObjectPage, Failure> {
    let present = opened.present()?;
    let Opened { reader, index, clock, deadline, .. } = opened;
    let row = named(reader, question)?;
    let head = reader.head()?;
    let window = Window { since: question.since, until: question.until, ..Window::default() }.resolve(reader)?;
    let (after, upto) = window.bounds(reader, head)?;
    let at = match question.at.or(question.until.map(At::Time)) {
        Some(at) => Some(place(reader, at, "at", clock)?),
        None => None,
    };
    let steps = reader.history(&row, Seq(after), Seq(upto), MARKS + 1)?;
    let mut found = Found { newest: steps.first().map_or(0, |step| step.seq.0), ..Found::default() };
    found.oldest = steps.last().map(|step| step.op);
    let seqs: Vec<u64> = steps.iter().take(OF_OBJECT).map(|step| step.seq.0).collect();
    let summaries = Summaries::new(clock, head);
    let entries = summaries.with(reader, &seqs)?;
    outline(index, reader, &steps[..steps.len().min(MARKS)], &mut found)?;
    let resources = Resources::load(reader)?;
    let mut lane = lane(index, reader, &resources, &row, found, upto)?;
    lane.id = id_of(&row);
    let state = reader.step(&row, at.map_or(Seq(u64::MAX), |at| at.seq))?;
    let unrecorded = if at.is_none() { reader.unrecorded(&row)? } else { None };
    let is_there = state.is_some_and(|step| step.op != EntryType::Deleted) || unrecorded.is_some();
    let mut unwatched = coverage::of_object(reader, &row, present.at, *deadline)?;
    unwatched.retain(|one| window.overlaps(one.from, one.to));
    let mut page = ObjectPage {
        unwatched,
        lane,
        entries,
        more: steps.len() > OF_OBJECT,
        at: state.map(|step| step.seq.0),
        yaml: None,
        yaml_cut: false,
        blame: Vec::new(),
        blame_cut: false,
        command: None,
    };
    if !is_there {
        return Ok(page);
    }
    let found = trace(reader, &row, at, BLAMED, clock)?;
    let (yaml, yaml_cut) = shown(found.object.as_bytes());
    (page.yaml, page.yaml_cut) = (Some(yaml), yaml_cut);
    // A state from before the log is reached by the moment at which the log begins.
    let begin = Seq(reader.retained()?.removed);
    page.command = state.map(|step| brings_back(&row, step.seq.max(begin)));
    page.blame_cut = found.fields.len() > FIELDS;
    page.blame = found
        .fields
        .into_iter()
        .take(FIELDS)
        .map(|field| {
            let mut managers: Vec<&str> = field.managers.iter().map(|by| by.manager.as_str()).collect();
            managers.dedup();
            // What was before the time is not shown.
            let is_within = field.seq.is_none_or(|seq| seq > after);
            if !is_within {
                managers.clear();
            }
            Field {
                path: cut(&dotted(&field.path), VALUE).into_owned(),
                value: cut(field.value.get(), VALUE).into_owned(),
                manager: cut(&managers.join(", "), VALUE).into_owned(),
                operation: field
                    .managers
                    .first()
                    .filter(|_| is_within)
                    .map_or_else(String::new, |by| by.operation.clone()),
                unnamed: field.unnamed.filter(|_| is_within),
                seq: field.seq.filter(|_| is_within),
                time: Some(field.time).filter(|time| is_within && !time.is_empty()),
            }
        })
        .collect();
    Ok(page)
}

/// `spec.replicas` for `/spec/replicas`.
fn dotted(pointer: &str) -> String {
    tree::steps(pointer).join(".")
}

/// The marks of these entries of one object, newest first.
fn outline(index: &Index, reader: &mut Reader, history: &[Step], found: &mut Found) -> Result<(), Failure> {
    // Those near to each other are in one outline.
    let mut at = 0;
    while at < history.len() {
        let part = part_of(history[at].seq.0);
        let count = history[at..].iter().take_while(|step| part_of(step.seq.0) == part).count();
        let (newest, oldest) = (history[at].seq.0, history[at + count - 1].seq.0);
        let wanted: HashSet<u64> = history[at..at + count].iter().map(|step| step.seq.0).collect();
        let choose = |_: &Part, mark: &Mark| wanted.contains(&mark.seq);
        index.walk(
            reader,
            (oldest.saturating_sub(1), newest),
            Way::Back,
            Instant::now(),
            (&choose, &mut |part, mark| {
                let words = part.words(mark);
                let (managers, unnamed) = who(&words);
                if matches!(mark.kind(), EntryType::Added | EntryType::Deleted) {
                    let came = mark.kind() == EntryType::Added;
                    found.turns.push(Turn {
                        came,
                        time: mark.latest,
                        evidence: mark.evidence(),
                        uid: words.uid.clone(),
                    });
                }
                if mark.quiet {
                    found.quiet += 1;
                }
                match found.marks.last_mut() {
                    Some(last) if mark.quiet => last.quiet += 1,
                    _ => found.marks.push(MarkLine {
                        seq: mark.seq,
                        time: stamp(mark.latest),
                        since: (mark.earliest < mark.latest).then(|| stamp(mark.earliest)),
                        kind_of: if mark.quiet { "QUIET" } else { mark.kind().as_str() }.into(),
                        evidence: mark.evidence().into(),
                        areas: list(&words.areas, ','),
                        managers,
                        unnamed,
                        quiet: u64::from(mark.quiet),
                    }),
                }
                ControlFlow::Continue(())
            }),
        )?;
        at += count;
    }
    Ok(())
}
