//! `decklog status`: every position, for people or as JSON.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use jiff::Timestamp;
use serde::Serialize;

use super::clock::moment;
use super::clusters::Section;
use super::output::{Ink, Out, Row, TerminalStyle, count, plural, printable, sentence, size, span, table};
use super::{Exit, Failure, Format, Global, Outcome};
use crate::core::k8s::audited::UnexplainedResource;
use crate::journal::{AuditCounts, SinkState, SourceState};
use crate::query::questions::status::{Report, Statuses, Unread};
use crate::query::status::{
    self, Alarm, AuditLogStatus, HaView, Role, SinkStatus, SourceStatus, Status, Trouble, WitnessStatus,
};

/// Arguments of `decklog status`.
#[derive(Args, Debug, Default)]
pub struct StatusArgs {
    /// Only sources of these resources, as kubectl spells them: pods, deploy, deployments.apps
    #[arg(value_name = "KIND")]
    pub resources: Vec<String>,
    /// List every source, also those without problems
    #[arg(long)]
    pub all: bool,
    /// Print it again every two seconds, until Ctrl-C
    #[arg(short, long)]
    pub watch: bool,
    /// Print only the alarms, and exit with 1 where there is one: for cron, scripts and monitoring
    #[arg(long, conflicts_with = "watch")]
    pub check: bool,
}

/// Number of sources that are all listed; of more, only those with something to report.
const MANY: usize = 12;

/// Interval of `--watch`.
const WATCH_INTERVAL: Duration = Duration::from_secs(2);

/// At most so many entries that a sink has refused are listed; JSON has them all.
const REFUSED: usize = 5;

/// Prints every position.
///
/// # Errors
/// Where the journal cannot be read.
pub fn main(args: StatusArgs, global: &Global) -> Outcome {
    if let Some(sections) = global.sections()? {
        return of_several(&args, global, &sections);
    }
    again(&args, global, |out| {
        let Report::Whole(status) = gather(global, &args.resources, false)? else {
            return Err(Failure::internal("the status is that of no journal"));
        };
        match global.output.unwrap_or(Format::Line) {
            Format::Line | Format::Wide | Format::Name => print(&status, &args, out)?,
            format @ (Format::Json | Format::Yaml) if args.check => out.document(format, &status.alarms)?,
            format @ (Format::Json | Format::Yaml) => out.document(format, &status)?,
        }
        Ok(!status.alarms.is_empty())
    })
}

/// Prints it, with `--watch` again and again. `print` says whether there is an alarm.
fn again(args: &StatusArgs, global: &Global, mut print: impl FnMut(&mut Out) -> Result<bool, Failure>) -> Outcome {
    // What is printed again and again is not for a pager.
    let mut out = if args.watch { Out::new(global) } else { Out::paged(global) };
    let lines = matches!(global.output.unwrap_or(Format::Line), Format::Line | Format::Wide | Format::Name);
    loop {
        if lines && args.watch && out.look.terminal {
            // From the top of an empty screen.
            out.bytes(b"\x1b[H\x1b[2J")?;
        }
        let alarm = print(&mut out)?;
        out.flush()?;
        if !args.watch {
            return Ok(if args.check && alarm { Exit::No } else { Exit::Done });
        }
        std::thread::sleep(WATCH_INTERVAL);
        if !out.look.terminal {
            out.line("")?;
        }
    }
}

/// Asks for the status of the one cluster that this is about.
fn gather(global: &Global, resources: &[String], whatever: bool) -> Result<Report, Failure> {
    let mut report = None;
    global.ask(Statuses { resources: resources.to_owned(), whatever }, &mut |item| {
        report = Some(item);
        Ok(())
    })?;
    report.ok_or_else(|| Failure::internal("there is no status"))
}

fn print(status: &Status, args: &StatusArgs, out: &mut Out) -> Result<(), Failure> {
    let all = args.all || !args.resources.is_empty();
    let lines = if args.check { alarms(status, out.look) } else { lines(status, all, out.look) };
    lines.iter().try_for_each(|line| out.line(line))
}

/// Returns the report about one cluster of several.
fn of_one(global: &Global, section: &Section, resources: &[String]) -> Result<Report, Failure> {
    let mut report = gather(&section.of(global), resources, true)?;
    if let Some(refused) = section.wrong.as_ref().map(|why| Trouble::new(why, None)) {
        match &mut report {
            Report::Whole(status) => {
                status.daemon.refused = status.daemon.refused.take().or(Some(refused));
                status.judge();
            }
            Report::Unread(unread) => unread.alarms.push(status::refused(&refused)),
        }
    }
    Ok(report)
}

/// Form of a report in JSON.
#[derive(Serialize)]
#[serde(untagged)]
enum Document<'r> {
    Whole(&'r Status),
    Unread(&'r Unread),
}

const fn document(report: &Report) -> Document<'_> {
    match report {
        Report::Whole(status) => Document::Whole(status),
        Report::Unread(unread) => Document::Unread(unread),
    }
}

fn alarms_of(report: &Report) -> &[Alarm] {
    match report {
        Report::Whole(status) => &status.alarms,
        Report::Unread(unread) => &unread.alarms,
    }
}

/// Each cluster in a section of its own; one alone as if there were no others.
fn of_several(args: &StatusArgs, global: &Global, sections: &[Section]) -> Outcome {
    let named = global.cluster.is_some();
    again(args, global, |out| {
        let report = |section: &Section| Ok((section.name.clone(), of_one(global, section, &args.resources)?));
        let reports: BTreeMap<String, Report> = sections.iter().map(report).collect::<Result<_, Failure>>()?;
        let alarm = reports.values().any(|report| !alarms_of(report).is_empty());
        let alone = reports.values().next().filter(|_| named);
        match global.output.unwrap_or(Format::Line) {
            Format::Line | Format::Wide | Format::Name => {
                for (number, (name, report)) in reports.iter().enumerate() {
                    // Scripts get a line for each alarm, and which cluster it is of.
                    if args.check && !named {
                        let lines = alarms_of(report).iter().map(|alarm| raised(alarm, report, out.look));
                        lines
                            .collect::<Vec<_>>()
                            .iter()
                            .try_for_each(|line| out.line(&format!("{}  {line}", printable(name))))?;
                        continue;
                    }
                    if !named {
                        if number > 0 {
                            out.line("")?;
                        }
                        let mut title = Row::new(out.look);
                        title.put(Some(Ink::Strong), &format!("== {}", printable(name)));
                        out.line(&title.finish())?;
                    }
                    match report {
                        Report::Whole(status) => print(status, args, out)?,
                        Report::Unread(unread) => {
                            for alarm in &unread.alarms {
                                out.line(&raised(alarm, report, out.look))?;
                            }
                            if !args.check {
                                out.line(&sentence(out.look, 0, None, &printable(&unread.error)))?;
                            }
                        }
                    }
                }
            }
            format @ (Format::Json | Format::Yaml) if args.check => match alone {
                Some(report) => out.document(format, alarms_of(report))?,
                None => {
                    let alarms: BTreeMap<_, _> =
                        reports.iter().map(|(name, report)| (name, alarms_of(report))).collect();
                    out.document(format, &alarms)?;
                }
            },
            format @ (Format::Json | Format::Yaml) => match alone {
                Some(report) => out.document(format, &document(report))?,
                None => {
                    let all: BTreeMap<_, _> = reports.iter().map(|(name, report)| (name, document(report))).collect();
                    out.document(format, &all)?;
                }
            },
        }
        Ok(alarm)
    })
}

fn raised(alarm: &Alarm, report: &Report, look: TerminalStyle) -> String {
    let time = match report {
        Report::Whole(status) => status.time,
        Report::Unread(unread) => unread.time,
    };
    alarm_line("alarm", Ink::Bad, alarm, time, look)
}

fn alarms(status: &Status, look: TerminalStyle) -> Vec<String> {
    status.alarms.iter().map(|alarm| alarm_line("alarm", Ink::Bad, alarm, status.time, look)).collect()
}

type Cell = (Option<Ink>, String);

fn plain(text: impl Into<String>) -> Cell {
    (None, text.into())
}

/// The status for people.
fn lines(status: &Status, all: bool, look: TerminalStyle) -> Vec<String> {
    let mut lines = head(status, look);
    lines.extend(alarms(status, look));
    lines.extend(status.notices.iter().map(|notice| alarm_line("notice", Ink::Change, notice, status.time, look)));
    let mut sources: Vec<&SourceStatus> = status.sources.iter().collect();
    // Those of which there is something to say come first, and where there are many they alone.
    sources.sort_by_key(|source| !is_odd(source));
    if !all && sources.len() > MANY {
        sources.retain(|source| is_odd(source));
        lines.extend(["".to_owned(), sentence(look, 0, None, &summary(status, sources.len()))]);
    }
    if !sources.is_empty() {
        lines.push(String::new());
        // Only where something is left out of the log, which it is not unless it was asked for.
        let suppressed = sources.iter().any(|source| source.suppressed > 0);
        let cells: Vec<_> = sources.iter().map(|source| source_row(source, status, suppressed)).collect();
        let details = sources.iter().map(|source| vec![source.state.detail().into_owned()]).collect::<Vec<_>>();
        // A narrow terminal cuts what comes last.
        let titles = ["SOURCE", "STATE", "FOR", "GAPS", "KNOWN GOOD", "OBJECTS", "RESUMES AT", "SUPPRESSED"];
        let titles = if suppressed { &titles[..] } else { &titles[..7] };
        lines.extend(with_details(table(look, titles, &cells), &details, look));
    }
    if !status.sinks.is_empty() {
        lines.push(String::new());
        let cells: Vec<_> = status.sinks.iter().map(|sink| sink_row(sink, status)).collect();
        let details: Vec<_> = status.sinks.iter().map(sink_details).collect();
        let titles = ["SINK", "TYPE", "STATE", "FOR", "CURSOR", "BEHIND", "DEAD LETTERS"];
        lines.extend(with_details(table(look, &titles, &cells), &details, look));
    }
    if !status.audit_logs.is_empty() {
        lines.push(String::new());
        // Only where something else comes, which nobody sends on purpose.
        let others = status.audit_logs.iter().any(|log| log.counts.no_event > 0);
        let cells: Vec<_> = status.audit_logs.iter().map(|log| audit_log_row(log, others)).collect();
        let mut titles = vec!["AUDIT LOG", "READ UP TO", "EVENTS", "CUT OFF", "UNREADABLE"];
        titles.extend(others.then_some("NO EVENT"));
        titles.extend(["FOREIGN", "LOST", "DROPPED", "SENDERS UP TO"]);
        lines.extend(table(look, &titles, &cells));
        lines.extend(status.unexplained.iter().map(|of| unexplained(of, look)));
    }
    if let Some(evidence) = &status.evidence {
        lines.push(String::new());
        let signed = match (evidence.signed, evidence.signed_at) {
            (Some(last), Some(at)) => format!("signed from entry {} to {last}, at {}", evidence.first, moment(at)),
            _ => format!("no entry is signed yet; the first will be entry {}", evidence.first),
        };
        lines.push(format!("EVIDENCE  {signed}"));
        lines.extend(evidence.witnesses.iter().map(|witness| format!("WITNESS   {}", of_witness(witness))));
    }
    lines
}

fn of_witness(WitnessStatus { name, signed_at, failing, .. }: &WitnessStatus) -> String {
    let last = signed_at.map(|at| format!("last at {}", moment(at)));
    match failing {
        None => format!("{name} cosigns, {}", last.as_deref().unwrap_or("and was not asked yet")),
        Some(Trouble { since, why, times }) => {
            let last = last.unwrap_or_else(|| "nothing since decklog began".to_owned());
            let missed = if *times == 1 { "the last checkpoint".to_owned() } else { format!("{times} checkpoints") };
            format!("{name} has not cosigned {missed} since {} ({last}): {why}", moment(*since))
        }
    }
}

/// `unexplained: pods 30 of 40`
fn unexplained(of: &UnexplainedResource, look: TerminalStyle) -> String {
    let counts = format!("{} of {}", count(of.changes), count(of.decided));
    sentence(look, 0, None, &format!("unexplained: {} {counts}", printable(&of.resource)))
}

fn audit_log_row(log: &AuditLogStatus, others: bool) -> Vec<Cell> {
    let AuditCounts { read, cut, unreadable, no_event, foreign, lost, dropped } = log.counts;
    let upto = log.read_up_to.map_or_else(|| "nothing".to_owned(), moment);
    let mut cells = vec![plain(printable(&log.name)), plain(upto)];
    cells.extend([read, cut].map(|number| plain(count(number))));
    let bad = |number: u64| ((number > 0).then_some(Ink::Bad), count(number));
    cells.push(bad(unreadable));
    cells.extend(others.then(|| bad(no_event)));
    cells.extend([foreign, lost, dropped].map(bad));
    cells.push(plain(format!("entry {}", log.attributed)));
    cells
}

/// Reports whether a source has more to report than that it watches.
fn is_odd(source: &SourceStatus) -> bool {
    source.active && source.state != SourceState::Watching
}

/// `54 of 55 sources watching, 20,231 objects`
fn summary(status: &Status, odd: usize) -> String {
    let active = status.sources.iter().filter(|source| source.active);
    let watching = active.clone().filter(|source| source.state == SourceState::Watching).count();
    let objects = active.clone().map(|source| source.objects).sum();
    let shown = if odd == 0 { "--all lists them" } else { "these need a look, --all lists each" };
    format!(
        "{} of {} watching, {}; {shown}",
        count(watching as u64),
        plural(active.count() as u64, "source", "sources"),
        plural(objects, "object", "objects"),
    )
}

fn head(status: &Status, look: TerminalStyle) -> Vec<String> {
    let line = |title: &str, ink: Option<Ink>, first: &str, rest: &str| {
        let mut row = Row::new(look);
        row.uncut();
        row.hang(9);
        row.put(Some(Ink::Faint), title).to(9).put(ink, first).put(None, rest);
        row.finish()
    };
    let facts = [
        status.daemon.version.as_ref().map(|version| format!(", version {}", printable(version))),
        status.daemon.started.map(|at| format!(", for {}", span(status.time.duration_since(at).as_secs()))),
        status.daemon.ready.filter(|ready| !ready).map(|_| ", not ready yet".to_owned()),
    ];
    let facts: String = facts.into_iter().flatten().collect();
    let (ink, daemon) = match status.daemon.pid {
        Some(pid) => (Ink::Good, format!("running (process {pid})")),
        None if status.daemon.running => (Ink::Good, "running".to_owned()),
        None => (Ink::Change, "not running".to_owned()),
    };
    let cluster = match (status.cluster.name.as_str(), status.cluster.uid.as_str()) {
        ("", "") => "not reached yet".to_owned(),
        (name, "") => name.to_owned(),
        (name, uid) => format!("{name} ({uid})"),
    };
    let journal = &status.journal;
    let entries = match (journal.oldest, journal.head) {
        (Some(oldest), Some(head)) => format!(
            ", {} ({} to {}), newest {} ago",
            plural(journal.entries, "entry", "entries"),
            oldest.seq,
            head.seq,
            span(status.time.duration_since(head.time).as_secs())
        ),
        _ => ", empty".to_owned(),
    };
    let free = journal.free_bytes.map_or_else(String::new, |free| format!(", {} free", size(free)));
    let disk = format!("{} journal, {} write-ahead log{free}", size(journal.size_bytes), size(journal.wal_bytes));
    let (ink_gaps, gaps, last) = match (&status.gaps.last, status.gaps.count) {
        (_, 0) => (None, "none".to_owned(), String::new()),
        (None, all) => (Some(Ink::Alarm), count(all), ", all removed by now".to_owned()),
        (Some(last), all) => {
            let place = format!("entry {}, {}", last.place.seq, moment(last.place.time));
            (
                Some(Ink::Alarm),
                count(all),
                format!(", the last of {} ({}): {place}", printable(&last.resource), last.gap.why),
            )
        }
    };
    let recovered = match status.gaps.recovered {
        0 => String::new(),
        some => format!("; {} recovered that watches had missed", plural(some, "change", "changes")),
    };
    let mut lines = vec![
        line("daemon", Some(ink), &daemon, &facts),
        line("cluster", None, &printable(&cluster), ""),
        line("journal", None, &printable(&journal.path.display().to_string()), &entries),
        line("epoch", None, &printable(&journal.epoch), ""),
        line("disk", None, &disk, ""),
        line("gaps", ink_gaps, &gaps, &format!("{last}{recovered}")),
    ];
    if let Some(view) = &status.ha {
        let ink = match view.role {
            Role::Leader | Role::Standby => Ink::Good,
            Role::Starting => Ink::Change,
        };
        lines.insert(2, line("role", Some(ink), view.role.word(), &ha(view)));
    }
    lines
}

/// `, term 7, follows node-7 by the Lease decklog/prod, 3 units (0.4 s) behind postgres://db.example/audit, 1.2 MiB backlog`
fn ha(view: &HaView) -> String {
    let lease = printable(&view.lease);
    if view.role == Role::Starting {
        return format!(", and does not know yet who leads by the Lease {lease}");
    }
    let leader = match (view.role, view.leader.as_str()) {
        (Role::Leader, _) => "leads".to_owned(),
        (_, "") => "nobody leads".to_owned(),
        (_, leader) => format!("follows {}", printable(leader)),
    };
    let behind = match (view.role, view.behind_units) {
        (Role::Leader, _) => format!(", writes to {}", printable(&view.log)),
        (_, 0) => format!(", has all of {}", printable(&view.log)),
        (_, behind) => format!(
            ", {} ({:.1} s) behind {}",
            plural(behind, "unit", "units"),
            view.behind_seconds,
            printable(&view.log)
        ),
    };
    let backlog = match view.backlog_bytes {
        0 => String::new(),
        some => format!(", {} backlog", size(some)),
    };
    format!(", term {}, {leader} by the Lease {lease}{behind}{backlog}", view.term)
}

/// Renders an alarm in one line: condition, start, cause and remedy.
fn alarm_line(title: &str, ink: Ink, alarm: &Alarm, now: Timestamp, look: TerminalStyle) -> String {
    // Whole, whatever its length: it says what to do.
    let mut row = Row::new(look);
    row.uncut();
    row.hang(9);
    row.put(Some(Ink::Faint), title).to(9).put(Some(ink), alarm.alarm);
    if !alarm.about.is_empty() {
        row.put(None, " ").put(None, &printable(&alarm.about));
    }
    if let Some(since) = alarm.since {
        row.put(Some(Ink::Faint), &format!(", {}", span(now.duration_since(since).as_secs())));
    }
    row.put(None, ": ").put(None, &printable(&alarm.what));
    row.put(Some(Ink::Change), &format!("; {}", printable(&alarm.remedy)));
    row.finish()
}

/// Renders the state of a source or sink, or the reason why it is idle.
fn state(word: &str, ink: Ink, active: bool, running: bool) -> Cell {
    let ink = if active && running { ink } else { Ink::Faint };
    (Some(ink), status::spoken(&printable(word), active, running))
}

fn since(time: Option<Timestamp>, now: Timestamp) -> String {
    time.map_or_else(|| "-".to_owned(), |time| span(now.duration_since(time).as_secs()))
}

fn source_row(source: &SourceStatus, status: &Status, suppressed: bool) -> Vec<Cell> {
    let known_good = source.lag_seconds.map_or_else(|| "never".to_owned(), |lag| format!("{} ago", span(lag)));
    let ink = match source.state {
        SourceState::Watching => Ink::Good,
        SourceState::Degraded(_) | SourceState::Gone => Ink::Bad,
        SourceState::Waiting | SourceState::Listing(_) | SourceState::Recovering => Ink::Change,
    };
    let mut row = vec![
        plain(printable(&source.name)),
        state(source.state.word(), ink, source.active, status.daemon.running),
        plain(since(source.since, status.time)),
        (Some(Ink::Alarm).filter(|_| source.gaps > 0), count(source.gaps)),
        plain(known_good),
        plain(count(source.objects)),
        plain(source.resume.as_deref().map_or_else(|| "a list".to_owned(), |version| printable(version).into_owned())),
    ];
    if suppressed {
        row.push(plain(count(source.suppressed)));
    }
    row
}

fn sink_row(sink: &SinkStatus, status: &Status) -> Vec<Cell> {
    let behind = match sink.lag_entries {
        0 => "nothing".to_owned(),
        lag => format!("{} ({})", plural(lag, "entry", "entries"), span(sink.lag_seconds)),
    };
    let dead_letters = sink.dead_letters.len();
    let ink = match sink.state {
        SinkState::Running => Ink::Good,
        SinkState::Retrying(_) => Ink::Change,
        SinkState::Halted(_) => Ink::Bad,
    };
    vec![
        plain(printable(&sink.name)),
        plain(printable(&sink.kind)),
        state(sink.state.word(), ink, sink.active, status.daemon.running),
        plain(since(sink.since, status.time)),
        plain(sink.cursor.to_string()),
        plain(behind),
        (Some(Ink::Alarm).filter(|_| dead_letters > 0), dead_letters.to_string()),
    ]
}

fn sink_details(sink: &SinkStatus) -> Vec<String> {
    let refused = sink.dead_letters.iter().take(REFUSED);
    let tries = sink
        .tries
        .map(|tries| format!(" ({} so far)", plural(tries, "try", "tries")))
        .filter(|_| !sink.state.detail().is_empty());
    let mut details = vec![sink.state.detail().to_owned() + &tries.unwrap_or_default()];
    details.extend(refused.map(|refused| format!("dead letter: entry {}: {}", refused.seq, refused.reason)));
    if sink.dead_letters.len() > REFUSED {
        details.push(format!("dead letter: and {} more, see -o json", sink.dead_letters.len() - REFUSED));
    }
    details
}

/// A table with what each row adds under it.
fn with_details(table: Vec<String>, details: &[Vec<String>], look: TerminalStyle) -> Vec<String> {
    let mut table = table.into_iter();
    let mut lines: Vec<String> = table.next().into_iter().collect();
    for (line, details) in table.zip(details) {
        lines.push(line);
        for detail in details.iter().filter(|detail| !detail.is_empty()) {
            // Whole, whatever its length: it says what to do.
            let mut row = Row::new(look);
            row.uncut();
            row.hang(2);
            row.put(None, "  ").put(Some(Ink::Change), &printable(detail));
            lines.push(row.finish());
        }
    }
    lines
}
