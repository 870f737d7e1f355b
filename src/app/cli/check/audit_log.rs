//! Checks of `[[audit_log]]`: files that can be read, addresses that are free, and events that arrive.

mod contents;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::Findings;
use crate::app::cli::complain;
use crate::app::config::Config;
use crate::audit_log::listen::Receiver;
use crate::audit_log::{Outcome, PROBE, Settings, file, read_line};
use crate::core::model::SourceSpec;
use crate::core::net::server::Listen;
use crate::core::os::MetadataExt as _;
use crate::journal::{AuditCounts, Reader};
use crate::watch::cluster::Api;
use contents::Contents;

/// Wait for an event beyond the lag of its audit log.
const ARRIVAL_WAIT: Duration = Duration::from_secs(3);
/// Longest wait for an event, whatever the lag.
const ARRIVAL_WAIT_MAX: Duration = Duration::from_secs(90);
/// A wait of which the user is told.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// Interval between two looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

impl Findings {
    /// Looks at each source of the audit log. A daemon that runs has the addresses.
    pub(super) async fn audit_logs(&mut self, config: &Config, running: bool) {
        for source in &config.audit_log {
            let name = source.name();
            if let Some(path) = &source.file {
                match file::look(path) {
                    Ok(()) => self.contents(&name, path, source.cluster.as_deref()),
                    Err(text) => self.bad("audit-log-unreadable", format!("{name}: {text}")),
                }
            }
            if let Some(listen) = source.listen.as_ref().filter(|_| !running) {
                match Receiver::bind(source).await.map(drop) {
                    Ok(()) => {
                        if let Listen::Unix(path) = listen {
                            // It was made by this check; the daemon makes its own.
                            drop(fs::remove_file(path));
                        }
                        self.good("audit-log-free", format!("{name}: the address {listen} is free"));
                    }
                    Err(error) => self.bad("audit-log-unusable", error.to_string()),
                }
            }
        }
    }

    /// Says what is in a file that can be read.
    fn contents(&mut self, name: &str, path: &Path, cluster: Option<&str>) {
        let file = path.display();
        match Contents::of(path, cluster) {
            Contents::Absent => self.bad(
                "audit-log-absent",
                format!(
                    "{name}: {file} is not there yet: does kube-apiserver have --audit-log-path={file}? decklog reads it once it is there; \
                     `decklog audit setup` prints the flags"
                ),
            ),
            Contents::Empty => self.note("audit-log-empty", format!("{name}: {file} can be read, and has no event yet")),
            Contents::Others { whole } => {
                let lines = if whole { "none of its lines" } else { "no line at its beginning and its end" };
                self.bad(
                    "audit-log-no-events",
                    format!(
                        "{name}: {file} can be read, and {lines} is an audit event: name the file of kube-apiserver's --audit-log-path, whose \
                         lines are JSON"
                    ),
                );
            }
            Contents::Foreign(other) => self.bad(
                "audit-log-foreign",
                format!("{name}: {file} can be read, and its events are {}", of_another(&other, cluster)),
            ),
            Contents::Pipe | Contents::Events(_) => {
                self.good("audit-log-readable", format!("{name}: {file} can be read"));
            }
        }
    }

    /// Sends a request that changes nothing, and waits until its event arrives.
    pub(super) async fn audit_events(&mut self, config: &Config, api: &Api, sources: &[SourceSpec], running: bool) {
        if sources.is_empty() || config.audit_log.is_empty() {
            return;
        }
        let mut places: Vec<Place> = Vec::new();
        for log in &config.audit_log {
            let place = Place::of(log, running.then_some(&*config.state.path));
            if place.is_none() {
                self.unseen(log, running);
            }
            places.extend(place);
        }
        if places.is_empty() {
            return;
        }
        let wait = config.audit_log.iter().map(Settings::lag).max().unwrap_or_default() + ARRIVAL_WAIT;
        let wait = wait.min(ARRIVAL_WAIT_MAX);
        let names = places.iter().map(|place| place.name.as_str()).collect::<Vec<_>>().join(", ");
        if wait > SILENCE_MAX {
            complain(&format!("waiting for an event in the audit log {names}, for {} s at most", wait.as_secs()));
        }
        let asked = Asked::of(sources);
        let begun = Instant::now();
        // The first comes last: a daemon that runs has the newest alone.
        for (asked, source) in asked.iter().zip(sources_of(sources)).rev() {
            let resource = &source.resource;
            let namespace = source.namespace.as_deref().or_else(|| resource.namespaced.then_some("default"));
            if let Err(failure) = api.be_audited(&format!("{}/{}", resource.path(namespace), asked.name)).await {
                return self
                    .bad("audit-log-unasked", format!("a request for the audit log was not answered: {failure}"));
            }
        }
        let mut heard: Vec<Option<Heard>> = vec![None; asked.len()];
        let (mut first, mut sees_all) = (None, false);
        while begun.elapsed() < wait {
            for place in &mut places {
                for (number, found) in place.look(&asked) {
                    if number == 0 && found == Heard::Ended {
                        first.get_or_insert((place.name.clone(), begun.elapsed().as_secs_f64()));
                    }
                    sees_all |= matches!(place.found, Found::File { .. });
                    heard[number] = heard[number].max(Some(found));
                }
            }
            if first.is_some() && (!sees_all || heard.iter().all(|heard| *heard == Some(Heard::Ended))) {
                break;
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
        if let Some((name, after)) = &first {
            let others = if config.audit_log.len() > 1 {
                "; each API server has an audit log of its own, and one of them was asked"
            } else {
                ""
            };
            self.good(
                "audit-log-arrives",
                format!("{name}: the event of a request arrived after {after:.1} s{others}"),
            );
        }
        let heard: Vec<_> = asked.iter().zip(heard).collect();
        self.unheard((&places, wait), &heard, (first.is_some(), sees_all));
    }

    /// Says of an audit log that nothing can be seen of it from here. What cannot be read is a finding of its own.
    fn unseen(&mut self, log: &Settings, running: bool) {
        let is_pipe = |path: &PathBuf| Contents::of(path, None) == Contents::Pipe;
        if !running && (log.listen.is_some() || log.file.as_ref().is_some_and(is_pipe)) {
            let name = log.name();
            self.note(
                "audit-log-unproved",
                format!("{name}: only a decklog that runs sees whether events arrive; start it, and check again"),
            );
        }
    }

    /// Says for which resources no event arrived, or none that is of use. `sees_all` says that those of every resource are seen.
    fn unheard(
        &mut self,
        (places, wait): (&[Place], Duration),
        heard: &[(&Asked, Option<Heard>)],
        (arrived, sees_all): (bool, bool),
    ) {
        let of = |wanted: &dyn Fn(Option<Heard>) -> bool| {
            let all = heard.iter().filter(|(_, heard)| wanted(*heard));
            all.map(|(asked, _)| asked.resource.as_str()).collect::<Vec<_>>().join(", ")
        };
        let names = places.iter().map(|place| place.name.as_str()).collect::<Vec<_>>().join(", ");
        let missing = of(&|heard| heard.is_none());
        let half = of(&|heard| heard == Some(Heard::Other));
        if !half.is_empty() {
            self.bad(
                "audit-log-no-answers",
                format!(
                    "{names}: events arrive, and none of the stage ResponseComplete for {half}, which alone says what came of a request; \
                     take it out of omitStages in the audit policy, as `decklog audit policy` prints it"
                ),
            );
        }
        if !arrived && half.is_empty() {
            for place in places {
                self.silent(place, &missing, wait);
            }
        } else if sees_all && !missing.is_empty() {
            self.bad(
                "audit-log-lacks",
                format!(
                    "{names}: events of requests arrive, and none within {} s for {missing}: the audit policy leaves {missing} out, so that \
                     their changes have no sender; `decklog audit policy` prints one that suffices",
                    wait.as_secs()
                ),
            );
        }
    }

    /// Says what is in the place of the events that did not arrive. Of a file that has none, its contents say it.
    fn silent(&mut self, place: &Place, missing: &str, wait: Duration) {
        let Place { name, .. } = place;
        let request = format!(
            "within {} s of a request for {missing} (a PATCH that the API server refuses, which changes nothing)",
            wait.as_secs()
        );
        let text = match place.silence() {
            Silence::Said => return,
            Silence::Others => {
                return self.bad(
                    "audit-log-no-events",
                    format!(
                        "{name}: what arrived {request} is no audit event: send it those of kube-apiserver, as `decklog audit setup` prints"
                    ),
                );
            }
            Silence::Foreign => {
                let cluster = place.cluster.as_deref().unwrap_or_default();
                return self.bad(
                    "audit-log-foreign",
                    format!(
                        "{name}: what arrived {request} is of other clusters than {cluster:?}, which `cluster` names"
                    ),
                );
            }
            Silence::Nothing => format!(
                "nothing arrived {request}: does kube-apiserver send to it? `decklog audit setup` prints what it needs"
            ),
            Silence::Empty(file) => format!(
                "nothing was written into {file}, which is empty, {request}: does kube-apiserver have --audit-log-path={file}? `decklog audit \
                 setup` prints the flags",
                file = file.display()
            ),
            Silence::Old(file, newest) => {
                let newest = newest.map(|time| format!(", whose newest event is of {time:.0},")).unwrap_or_default();
                format!(
                    "nothing was written into {file}{newest} {request}: does kube-apiserver have --audit-log-path={file}, or does its policy \
                     leave {missing} out? `decklog audit setup` and `decklog audit policy` print what it needs",
                    file = file.display()
                )
            }
            Silence::Events => format!(
                "no event arrived {request}: its policy leaves {missing} out, or it is the audit log of another API server; `decklog audit \
                 policy` and `decklog audit setup` print what kube-apiserver needs"
            ),
        };
        self.bad("audit-log-silent", format!("{name}: {text}"));
    }
}

/// Says of which cluster events are, and of which they should be.
fn of_another(other: &str, cluster: Option<&str>) -> String {
    format!(
        "of the cluster {other:?}, and `cluster` names {:?}: name the audit log of this one, or correct `cluster`",
        cluster.unwrap_or_default()
    )
}

/// Number of resources that are asked for at most.
const ASKED_MAX: usize = 100;

/// A request whose event has to arrive.
#[derive(Debug)]
struct Asked {
    resource: String,
    /// Name of its object, which does not exist.
    name: String,
}

impl Asked {
    /// Returns a request for each resource.
    fn of(sources: &[SourceSpec]) -> Vec<Self> {
        let request = |source: &SourceSpec| Self {
            resource: source.resource.full_name(),
            name: format!("{PROBE}{}", uuid::Uuid::new_v4().simple()),
        };
        sources_of(sources).into_iter().map(request).collect()
    }
}

/// Returns one source of each resource: a policy tells resources apart.
fn sources_of(sources: &[SourceSpec]) -> Vec<&SourceSpec> {
    let mut known = HashSet::new();
    let is_new = |source: &&SourceSpec| known.insert(source.resource.full_name());
    sources.iter().filter(is_new).take(ASKED_MAX).collect()
}

/// An event of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Heard {
    /// It is of an earlier stage, or cut off too early.
    Other,
    /// It says what came of the request.
    Ended,
}

/// An audit log in which the event may arrive.
#[derive(Debug)]
struct Place {
    name: String,
    /// Cluster that its events are to be of.
    cluster: Option<String>,
    found: Found,
}

/// What there was of an audit log in which no event of a request arrived.
#[derive(Debug, PartialEq, Eq)]
enum Silence {
    /// The contents of its file say it.
    Said,
    /// What arrived is no event.
    Others,
    /// What arrived is of other clusters.
    Foreign,
    /// Nothing arrived.
    Nothing,
    /// The file is empty.
    Empty(PathBuf),
    /// Nothing was added to the file, with the time of its newest event.
    Old(PathBuf, Option<Timestamp>),
    /// Other events arrived.
    Events,
}

#[derive(Debug)]
enum Found {
    /// A file, open at the place up to which it is read.
    File { path: PathBuf, file: Option<File>, rest: Vec<u8>, has_grown: bool },
    /// The journal of a daemon that runs, with what it had received before.
    Journal(Box<Reader>, AuditCounts),
}

impl Place {
    /// Opens the end of an audit log; `running` is the state directory of a daemon that runs. None where nothing can be seen of it
    /// from here.
    fn of(log: &Settings, running: Option<&Path>) -> Option<Self> {
        let (name, cluster) = (log.name(), log.cluster.clone());
        if let Some(path) = log.file.as_deref()
            && fs::metadata(path).map_or(true, |meta| meta.is_file())
        {
            file::look(path).ok()?;
            let file = File::open(path).ok().and_then(|mut file| file.seek(SeekFrom::End(0)).ok().map(|_| file));
            let found = Found::File { path: path.to_owned(), file, rest: Vec::new(), has_grown: false };
            return Some(Self { name, cluster, found });
        }
        // To read a pipe would take events from the daemon.
        let reader = running.and_then(|dir| Reader::open(dir).ok())?;
        let before = counts(&reader, &name);
        Some(Self { name, cluster, found: Found::Journal(Box::new(reader), before) })
    }

    /// Returns what there is in the place of an event that did not arrive.
    fn silence(&self) -> Silence {
        match &self.found {
            Found::File { path, has_grown, .. } => match Contents::of(path, self.cluster.as_deref()) {
                Contents::Absent | Contents::Others { .. } | Contents::Foreign(_) => Silence::Said,
                Contents::Empty => Silence::Empty(path.clone()),
                Contents::Events(newest) if !has_grown => Silence::Old(path.clone(), newest),
                Contents::Pipe | Contents::Events(_) => Silence::Events,
            },
            Found::Journal(reader, before) => {
                let now = counts(reader, &self.name);
                if now.read > before.read {
                    Silence::Events
                } else if now.foreign > before.foreign {
                    Silence::Foreign
                } else if now.no_event + now.unreadable > before.no_event + before.unreadable {
                    Silence::Others
                } else {
                    Silence::Nothing
                }
            }
        }
    }

    /// Returns the events that have come since the last look, by the number of their request.
    fn look(&mut self, wanted: &[Asked]) -> Vec<(usize, Heard)> {
        match &mut self.found {
            Found::File { path, file, rest, has_grown } => {
                let mut read = |file: &mut File, rest: &mut Vec<u8>| {
                    let (heard, lines) = search(file, rest, wanted);
                    *has_grown |= lines > 0;
                    heard
                };
                let mut heard = file.as_mut().map(|file| read(file, rest)).unwrap_or_default();
                if is_rotated(path, file.as_ref()) {
                    (*file, *rest) = (File::open(path).ok(), Vec::new());
                    heard.extend(file.as_mut().map(|file| read(file, rest)).unwrap_or_default());
                }
                heard
            }
            Found::Journal(reader, _) => {
                let probes: Vec<String> = reader.audit_logs().map_or_else(
                    |_| Vec::new(),
                    |rows| rows.into_iter().filter(|row| row.name == self.name).filter_map(|row| row.probe).collect(),
                );
                let has =
                    |(number, asked): (usize, &Asked)| probes.contains(&asked.name).then_some((number, Heard::Ended));
                wanted.iter().enumerate().filter_map(has).collect()
            }
        }
    }
}

/// Returns what a daemon has received of an audit log.
fn counts(reader: &Reader, name: &str) -> AuditCounts {
    let rows = reader.audit_logs().unwrap_or_default();
    rows.into_iter().find(|row| row.name == name).map(|row| row.counts).unwrap_or_default()
}

fn is_rotated(path: &Path, file: Option<&File>) -> bool {
    let inode = |meta: fs::Metadata| (meta.dev(), meta.ino());
    let open = file.and_then(|file| file.metadata().ok()).map(inode);
    fs::metadata(path).is_ok_and(|now| Some(inode(now)) != open)
}

/// Reads on, and looks for the requests in whole lines. Returns the number of these, too.
fn search(file: &mut File, rest: &mut Vec<u8>, wanted: &[Asked]) -> (Vec<(usize, Heard)>, usize) {
    /// Bytes of one look.
    const PART: u64 = 16 << 20;
    /// Bytes of a line, of which longer ones are no events.
    const LINE: usize = 64 << 20;
    if read_on(file, rest, PART).is_err() {
        return (Vec::new(), 0);
    }
    if rest.len() > LINE {
        rest.clear();
    }
    let Some(whole) = rest.iter().rposition(|byte| *byte == b'\n').map(|at| at + 1) else { return (Vec::new(), 0) };
    let (mut heard, mut lines) = (Vec::new(), 0);
    for line in rest[..whole].split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        lines += 1;
        if memchr::memmem::find(line, PROBE.as_bytes()).is_none() {
            continue;
        }
        let named = wanted.iter().position(|asked| memchr::memmem::find(line, asked.name.as_bytes()).is_some());
        let Some(number) = named else { continue };
        let name = &wanted[number].name;
        let ended = |outcome: &Outcome| matches!(outcome, Outcome::Request(request) if request.name == *name);
        let is_ended = read_line(line).records.iter().any(|record| ended(&record.outcome));
        heard.push((number, if is_ended { Heard::Ended } else { Heard::Other }));
    }
    rest.drain(..whole);
    (heard, lines)
}

/// Reads what was added; from the start, where others have copied the file and cut it off.
fn read_on(file: &mut File, rest: &mut Vec<u8>, most: u64) -> std::io::Result<()> {
    if file.metadata()?.len() < file.stream_position()? {
        file.rewind()?;
        rest.clear();
    }
    file.take(most).read_to_end(rest).map(drop)
}
