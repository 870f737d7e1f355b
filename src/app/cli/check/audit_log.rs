//! Checks of `[[audit_log]]`: files that can be read, addresses that are free, and events that arrive.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::Findings;
use crate::app::cli::complain;
use crate::app::config::Config;
use crate::audit_log::listen::Receiver;
use crate::audit_log::{Outcome, PROBE, Settings, file, read_line};
use crate::core::model::SourceSpec;
use crate::core::net::server::Listen;
use crate::journal::Reader;
use crate::watch::cluster::Api;

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
                    Ok(()) => self.good("audit-log-readable", format!("{name}: {} can be read", path.display())),
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

    /// Sends a request that changes nothing, and waits until its event arrives.
    pub(super) async fn audit_events(&mut self, config: &Config, api: &Api, sources: &[SourceSpec], running: bool) {
        let Some(source) = sources.first().filter(|_| !config.audit_log.is_empty()) else { return };
        let mut places: Vec<Place> = Vec::new();
        for log in &config.audit_log {
            match Place::of(log, running.then_some(&*config.state.path)) {
                Some(place) => places.push(place),
                // What cannot be read is a finding of its own.
                None if log.listen.is_none() || running => {}
                None => self.note(
                    "audit-log-unproved",
                    format!(
                        "{}: only a decklog that runs sees whether events arrive; start it, and check again",
                        log.name()
                    ),
                ),
            }
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
        let resource = &source.resource;
        let namespace = source.namespace.as_deref().or_else(|| resource.namespaced.then_some("default"));
        let name = format!("{PROBE}{}", uuid::Uuid::new_v4().simple());
        let begun = Instant::now();
        if let Err(failure) = api.be_audited(&format!("{}/{name}", resource.path(namespace))).await {
            return self.bad("audit-log-unasked", format!("a request for the audit log was not answered: {failure}"));
        }
        let mut half = None;
        while begun.elapsed() < wait {
            for place in &mut places {
                match place.look(&name) {
                    Some(Heard::Ended) => {
                        let others = if config.audit_log.len() > 1 {
                            "; each API server has an audit log of its own, and one of them was asked"
                        } else {
                            ""
                        };
                        let text = format!(
                            "{}: the event of a request arrived after {:.1} s{others}",
                            place.name,
                            begun.elapsed().as_secs_f64()
                        );
                        return self.good("audit-log-arrives", text);
                    }
                    Some(Heard::Other) => half = Some(place.name.clone()),
                    None => {}
                }
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
        let resource = resource.full_name();
        match half {
            Some(name) => self.bad(
                "audit-log-no-answers",
                format!(
                    "{name}: events arrive, and none of the stage ResponseComplete, which alone says what came of a request; \
                     take it out of omitStages in the audit policy, as `decklog audit policy` prints it"
                ),
            ),
            None => self.bad(
                "audit-log-silent",
                format!(
                    "{names}: no event arrived within {} s of a request for {resource} (a PATCH that the API server refuses, which changes \
                     nothing): its policy leaves {resource} out, or it is the audit log of another API server; `decklog audit policy` and \
                     `decklog audit setup` print what kube-apiserver needs",
                    wait.as_secs()
                ),
            ),
        }
    }
}

/// An event of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    /// It says what came of the request.
    Ended,
    /// It is of an earlier stage, or cut off too early.
    Other,
}

/// An audit log in which the event may arrive.
#[derive(Debug)]
struct Place {
    name: String,
    found: Found,
}

#[derive(Debug)]
enum Found {
    /// A file, open at the place up to which it is read.
    File { path: PathBuf, file: Option<File>, rest: Vec<u8> },
    /// The journal of a daemon that runs.
    Journal(Box<Reader>),
}

impl Place {
    /// Opens the end of an audit log; `running` is the state directory of a daemon that runs. None where nothing can be seen of it
    /// from here.
    fn of(log: &Settings, running: Option<&Path>) -> Option<Self> {
        let name = log.name();
        if let Some(path) = log.file.as_deref()
            && fs::metadata(path).map_or(true, |meta| meta.is_file())
        {
            file::look(path).ok()?;
            let file = File::open(path).ok().and_then(|mut file| file.seek(SeekFrom::End(0)).ok().map(|_| file));
            return Some(Self { name, found: Found::File { path: path.to_owned(), file, rest: Vec::new() } });
        }
        // To read a pipe would take events from the daemon.
        let reader = running.and_then(|dir| Reader::open(dir).ok())?;
        Some(Self { name, found: Found::Journal(Box::new(reader)) })
    }

    fn look(&mut self, wanted: &str) -> Option<Heard> {
        match &mut self.found {
            Found::File { path, file, rest } => {
                let mut heard = file.as_mut().and_then(|file| search(file, rest, wanted));
                if is_rotated(path, file.as_ref()) {
                    (*file, *rest) = (File::open(path).ok(), Vec::new());
                    heard = heard.or_else(|| search(file.as_mut()?, rest, wanted));
                }
                heard
            }
            Found::Journal(reader) => {
                let rows = reader.audit_logs().ok()?;
                let arrived = rows.iter().any(|row| row.name == self.name && row.probe.as_deref() == Some(wanted));
                arrived.then_some(Heard::Ended)
            }
        }
    }
}

fn is_rotated(path: &Path, file: Option<&File>) -> bool {
    let inode = |meta: fs::Metadata| (meta.dev(), meta.ino());
    let open = file.and_then(|file| file.metadata().ok()).map(inode);
    fs::metadata(path).is_ok_and(|now| Some(inode(now)) != open)
}

/// Reads on, and looks for the request in whole lines.
fn search(file: &mut File, rest: &mut Vec<u8>, wanted: &str) -> Option<Heard> {
    /// Bytes of one look.
    const PART: u64 = 16 << 20;
    /// Bytes of a line, of which longer ones are no events.
    const LINE: usize = 64 << 20;
    // Others copy the file and cut it off.
    if file.metadata().ok()?.len() < file.stream_position().ok()? {
        file.rewind().ok()?;
        rest.clear();
    }
    file.take(PART).read_to_end(rest).ok()?;
    if rest.len() > LINE {
        rest.clear();
    }
    let whole = rest.iter().rposition(|byte| *byte == b'\n')? + 1;
    let mut heard = None;
    for line in rest[..whole].split(|byte| *byte == b'\n') {
        if memchr::memmem::find(line, wanted.as_bytes()).is_none() {
            continue;
        }
        let ended = |outcome: &Outcome| matches!(outcome, Outcome::Request(request) if request.name == wanted);
        if read_line(line).records.iter().any(|record| ended(&record.outcome)) {
            return Some(Heard::Ended);
        }
        heard = Some(Heard::Other);
    }
    rest.drain(..whole);
    heard
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    const NAME: &str = "decklog-check-7";

    fn event(name: &str, stage: &str) -> String {
        let status = if stage == "ResponseComplete" { r#","responseStatus":{"code":403}"# } else { "" };
        format!(
            r#"{{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"7a","stage":"{stage}","requestURI":"/api/v1/namespaces/default/pods/{name}?dryRun=All","verb":"patch","user":{{"username":"u"}},"objectRef":{{"resource":"pods","namespace":"default","name":"{name}","apiVersion":"v1"}}{status}}}"#
        ) + "\n"
    }

    #[test]
    fn an_event_is_found_in_what_is_added() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        fs::write(&path, event(NAME, "ResponseComplete")).unwrap();
        let log = Settings { file: Some(path.clone()), ..Settings::default() };
        let mut place = Place::of(&log, None).unwrap();
        let add =
            |text: &str| fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(text.as_bytes()).unwrap();
        assert_eq!(place.look(NAME), None, "an event of before is no proof");
        add(&event("decklog-check-8", "ResponseComplete"));
        assert_eq!(place.look(NAME), None);
        add(&event(NAME, "RequestReceived"));
        assert_eq!(place.look(NAME), Some(Heard::Other));
        let (head, tail) = (event(NAME, "ResponseComplete"), 40);
        let (head, tail) = head.split_at(head.len() - tail);
        add(head);
        assert_eq!(place.look(NAME), None, "half a line");
        add(tail);
        assert_eq!(place.look(NAME), Some(Heard::Ended));
    }

    #[test]
    fn a_rotation_loses_no_event() {
        let dir = tempfile::tempdir().unwrap();
        let (path, old) = (dir.path().join("audit.log"), dir.path().join("audit-1.log"));
        let log = Settings { file: Some(path.clone()), ..Settings::default() };
        for before in [true, false] {
            fs::write(&path, "").unwrap();
            let mut place = Place::of(&log, None).unwrap();
            let (first, second) = if before { (NAME, "other") } else { ("other", NAME) };
            fs::write(&path, event(first, "ResponseComplete")).unwrap();
            fs::rename(&path, &old).unwrap();
            fs::write(&path, event(second, "ResponseComplete")).unwrap();
            assert_eq!(place.look(NAME), Some(Heard::Ended), "before the rotation: {before}");
        }
        // It is copied and cut off.
        fs::write(&path, event("other", "ResponseComplete").repeat(3)).unwrap();
        let mut place = Place::of(&log, None).unwrap();
        fs::write(&path, event(NAME, "ResponseComplete")).unwrap();
        assert_eq!(place.look(NAME), Some(Heard::Ended));
        // It does not exist yet.
        fs::remove_file(&path).unwrap();
        let mut place = Place::of(&log, None).unwrap();
        assert_eq!(place.look(NAME), None);
        fs::write(&path, event(NAME, "ResponseComplete")).unwrap();
        assert_eq!(place.look(NAME), Some(Heard::Ended));
    }
}
