//! Overview: sources, sinks, alarms, gaps, and the values of filters.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::Opened;
use super::selection::{Selected, Window};
use crate::core::model::{EntryType, Seq};
use crate::core::wire::Entry;
use crate::journal::{EntryQuery, Reader, StoredEntry};
use crate::query::render::Failure;
use crate::query::render::names::Spellings;
use crate::query::status::{Place, Status, spoken};
use crate::query::{Log, Put, Question, Word, stamp};

/// Number of each kind in an answer.
const MOST: usize = 200;
const MOST_NAMES: usize = 5000;

/// Source of the page's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    /// A running daemon.
    Daemon,
    /// A journal.
    Journal,
    /// Out of a file.
    File,
}

/// The overview of a log.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct View {
    v: u64,
    version: Word,
    cluster: ClusterName,
    epoch: String,
    cursor: String,
    oldest: Option<End>,
    head: Option<End>,
    now: String,
    end: String,
    mode: Mode,
    daemon: Daemon,
    /// What a file is about; none of a log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    asked: Option<Window>,
    sources: Vec<Source>,
    sinks: Vec<Sink>,
    alarms: Vec<Alarm>,
    gaps: Vec<Gap>,
    kinds: Vec<Kind>,
    namespaces: BTreeSet<String>,
    size: u64,
}

/// The daemon of the journal.
#[derive(Debug, Serialize, Deserialize)]
struct Daemon {
    running: bool,
    /// Last moment of which something is known, where none runs.
    since: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct ClusterName {
    name: String,
    uid: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct End {
    seq: u64,
    time: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct Source {
    name: String,
    resource: String,
    namespace: String,
    state: Word,
    /// The state as `decklog status` prints it.
    says: String,
    detail: String,
    since: Option<String>,
    good_at: Option<String>,
    gaps: u64,
    objects: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct Sink {
    name: String,
    kind: String,
    state: Word,
    says: String,
    detail: String,
    cursor: u64,
    lag: u64,
    delivered_at: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Alarm {
    name: String,
    text: String,
    since: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Gap {
    seq: u64,
    time: String,
    since: Option<String>,
    why: String,
    resource: String,
    namespace: String,
    /// The one object that it is about; none for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Kind {
    kind: String,
    resource: String,
    namespaced: bool,
}

fn at(time: Timestamp) -> String {
    stamp(time.as_microsecond())
}

impl From<Place> for End {
    fn from(place: Place) -> Self {
        Self { seq: place.seq.0, time: at(place.time) }
    }
}

impl View {
    /// Makes it the overview of a file that begins and ends at these times, given in microseconds since 1970. One that ends
    /// earlier than the log says nothing of the present.
    pub(super) fn of_file(
        &mut self,
        (since, until): (i64, i64),
        window: &Window,
        reader: &Reader,
    ) -> Result<(), Failure> {
        self.mode = Mode::File;
        self.asked = Some(window.clone());
        self.now = stamp(until);
        self.end = stamp(until);
        if let Some(oldest) = &mut self.oldest {
            oldest.time = stamp(since);
        }
        if window.until.is_some() {
            let seq = reader.last_before(until.saturating_add(1))?;
            self.head = reader.time_of(seq)?.map(|time| End { seq: seq.0, time: stamp(time) });
            self.cursor = format!("{}:{seq}", self.epoch);
            self.size = 0;
            self.sources.clear();
            self.sinks.clear();
            self.alarms.clear();
        }
        Ok(())
    }

    /// Leaves out what is of other objects than those that are asked for, where some are; sinks and alarms are of all. The gaps
    /// are the newest of those that are asked for.
    pub(super) fn narrow(
        &mut self,
        selected: &Selected,
        reader: &mut Reader,
        namespaces: &BTreeSet<&str>,
    ) -> Result<(), Failure> {
        let sources = reader.sources()?;
        let of_them = sources.iter().filter(|source| selected.is_of(source));
        let scopes: BTreeSet<_> =
            of_them.map(|source| (source.resource.full_name(), source.namespace.clone())).collect();
        let is_of =
            |resource: &str, namespace: &str| scopes.iter().any(|(of, within)| of == resource && within == namespace);
        let head = reader.head()?;
        let (after, _) = selected.bounds(reader, head)?;
        // A GAP is journaled at its end, and may begin in the window.
        let begins = |gap: &Gap| gap.since.as_deref().unwrap_or(&gap.time).parse::<Timestamp>().ok();
        let within =
            |gap: &Gap| selected.until.zip(begins(gap)).is_none_or(|(until, begins)| begins.as_microsecond() <= until);
        let is_selected = |gap: &Gap| match &gap.name {
            Some(name) => selected.takes(&gap.resource, &gap.namespace, name),
            None => selected.objects.is_none() || is_of(&gap.resource, &gap.namespace),
        };
        self.gaps = gaps(reader, (after, head.0), |gap| within(gap) && is_selected(gap))?;
        if selected.until.is_some() {
            self.kinds.retain(|kind| scopes.iter().any(|(of, _)| *of == kind.resource));
            self.namespaces.retain(|namespace| namespaces.contains(namespace.as_str()));
        }
        if selected.objects.is_none() {
            return Ok(());
        }
        self.sources.retain(|source| is_of(&source.resource, &source.namespace));
        self.kinds.retain(|kind| scopes.iter().any(|(of, _)| *of == kind.resource));
        self.namespaces.retain(|namespace| namespaces.contains(namespace.as_str()));
        self.sinks.clear();
        self.alarms.clear();
        Ok(())
    }
}

/// Asks for the overview.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Overview {}

impl Question for Overview {
    const NAME: &'static str = "overview";
    type Item = View;

    fn answer(self, log: &Log<'_>, put: &mut Put<'_, View>) -> Result<(), Failure> {
        put(overview(&mut Opened::of(log)?)?)
    }
}

/// Collects the status; for who may not see all, without what is said of the whole log, but where that begins. Its end has the time of the
/// present, because that of the last entry may be of what is not shown.
fn gathered(reader: &mut Reader, dir: &Path, now: Timestamp) -> Result<Status, Failure> {
    let mut status = Status::gather(reader, dir, now)?;
    if !reader.is_narrowed() {
        return Ok(status);
    }
    let (retained, head) = (reader.retained()?, reader.head()?);
    let begins = retained.oldest_time.and_then(|time| Timestamp::from_microsecond(time).ok());
    status.alarms.clear();
    status.journal.size_bytes = 0;
    status.journal.wal_bytes = 0;
    status.journal.oldest = begins.map(|time| Place { seq: Seq(retained.oldest), time });
    status.journal.head = (head > Seq(0)).then_some(Place { seq: head, time: now });
    Ok(status)
}

/// Returns the overview of the whole log.
pub(super) fn overview(opened: &mut Opened) -> Result<View, Failure> {
    let present = opened.present()?;
    let mode = if present.at.watched { Mode::Daemon } else { Mode::Journal };
    let Opened { reader, dir, clock, .. } = opened;
    let now = clock.now;
    let status = gathered(reader, dir, now)?;
    let running = status.daemon.running;
    let daemon = daemon(&status);
    let rows = reader.sources()?;
    let scopes: BTreeMap<String, (String, String)> =
        rows.iter().map(|row| (row.name(), (row.resource.full_name(), row.namespace.clone()))).collect();
    let sources = status.sources.into_iter().filter(|source| source.active).take(MOST);
    let sources = sources
        .map(|source| {
            let (resource, namespace) = scopes.get(&source.name).cloned().unwrap_or_default();
            Source {
                resource,
                namespace,
                state: source.state.word().into(),
                says: spoken(source.state.word(), source.active, running),
                detail: source.state.detail().into_owned(),
                since: source.since.map(at),
                good_at: source.known_good.map(at),
                gaps: source.gaps,
                objects: source.objects,
                name: source.name,
            }
        })
        .collect();
    let sinks = status.sinks.into_iter().filter(|sink| sink.active).take(MOST);
    let sinks = sinks
        .map(|sink| Sink {
            state: sink.state.word().into(),
            says: spoken(sink.state.word(), sink.active, running),
            detail: sink.state.detail().to_owned(),
            cursor: sink.cursor.0,
            lag: sink.lag_entries,
            delivered_at: sink.delivered.map(at),
            name: sink.name,
            kind: sink.kind,
        })
        .collect();
    let alarms = status.alarms.into_iter().take(MOST);
    let alarms = alarms
        .map(|alarm| Alarm {
            name: alarm.alarm.to_owned(),
            text: format!("{}; {}", alarm.what, alarm.remedy),
            since: alarm.since.map(at),
        })
        .collect();
    let head = reader.head()?;
    let watched = Spellings::load(reader)?;
    let kinds = watched.watched().take(MOST_NAMES);
    let kinds = kinds
        .map(|resource| Kind {
            kind: resource.kind.clone(),
            resource: resource.full_name(),
            namespaced: resource.namespaced,
        })
        .collect();
    Ok(View {
        v: 1,
        version: env!("CARGO_PKG_VERSION").into(),
        cluster: ClusterName { name: status.cluster.name, uid: status.cluster.uid },
        cursor: format!("{}:{head}", status.journal.epoch),
        epoch: status.journal.epoch,
        oldest: status.journal.oldest.map(End::from),
        head: status.journal.head.map(End::from),
        now: at(now),
        end: stamp(present.end),
        mode,
        daemon,
        asked: None,
        sources,
        sinks,
        alarms,
        gaps: gaps(reader, (0, head.0), |_| true)?,
        kinds,
        namespaces: reader.namespaces()?.into_iter().take(MOST_NAMES).collect(),
        size: status.journal.size_bytes + status.journal.wal_bytes,
    })
}

/// Returns whether a daemon runs, and the last moment of which something is known where none does.
fn daemon(status: &Status) -> Daemon {
    let heard = status.sources.iter().filter_map(|source| source.known_good);
    let last = heard.chain(status.journal.head.map(|head| head.time)).max();
    let running = status.daemon.running;
    Daemon { running, since: last.filter(|_| !running).map(at) }
}

/// The newest gaps after the first of these seqs and up to the second that are wanted.
fn gaps(reader: &mut Reader, (after, upto): (u64, u64), is_wanted: impl Fn(&Gap) -> bool) -> Result<Vec<Gap>, Failure> {
    let query = EntryQuery { types: vec![EntryType::Gap], ..EntryQuery::default() };
    let (mut gaps, mut before) = (Vec::new(), Seq(upto).next());
    while gaps.len() < MOST {
        let page = reader.select(&query, (Seq(after), Some(before)), true, MOST, None)?;
        gaps.extend(page.entries.iter().filter_map(gap).filter(&is_wanted).take(MOST - gaps.len()));
        let Some((_, oldest)) = page.looked_at.filter(|_| page.more) else { break };
        before = oldest;
    }
    Ok(gaps)
}

/// Reads a gap from its entry.
fn gap(stored: &StoredEntry) -> Option<Gap> {
    let entry = Entry::parse(&stored.line).ok()?;
    let gap = entry.gap()?;
    Some(Gap {
        seq: stored.seq.0,
        time: entry.time.to_string(),
        since: gap.since,
        why: gap.why,
        resource: entry.full_resource(),
        namespace: entry.namespace.as_deref().unwrap_or_default().to_owned(),
        name: entry.name.as_deref().map(str::to_owned),
    })
}
