//! Who writes most, what of it changed nothing that matters, and fields that managers fight over.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::core::model::Seq;
use crate::core::wire::Header;
use crate::journal::{REQUEST_COUNTERS_INTERVAL, Reader, Requests as Counted};
use crate::query::churn::{Churn, Report, Requests, Senders, Versions};
use crate::query::coverage_notes::About;
use crate::query::render::{Failure, object};
use crate::query::rewrites::MANY;
use crate::query::select::{Filters, Select, Selection};
use crate::query::{Log, Put, Question};

/// Default period of the report.
const DEFAULT_PERIOD: SignedDuration = SignedDuration::from_hours(1);

/// Asks who writes most.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Churned {
    /// The entries; without a first moment those of the last hour.
    pub(crate) select: Select,
    /// Also counts what the API server dropped, by its own request counters, and who sent it, by the audit log.
    pub(crate) requests: bool,
    /// Number of rows in each table.
    pub(crate) top: usize,
}

impl Question for Churned {
    const NAME: &'static str = "churn";
    type Item = Report;

    /// # Errors
    /// Where the journal cannot be read, or the question names what it does not know.
    fn answer(self, log: &Log<'_>, put: &mut Put<'_, Report>) -> Result<(), Failure> {
        let mut reader = log.open()?;
        let mut found = report(&self, &mut reader, log)?;
        let about = About::of(&self.select, &reader)?;
        let coverage = about.coverage(&mut reader, &log.dir, &log.clock)?;
        let about = About { since: Some(found.since), until: Some(found.until), ..about };
        let covered = about.covered(&mut reader, &log.dir, &log.clock)?;
        found.known = about.reach_in(&reader, &covered)?;
        found.uncovered = covered.uncovered;
        put(found)?;
        coverage.remark(log);
        Ok(())
    }
}

pub(crate) fn report(args: &Churned, reader: &mut Reader, log: &Log<'_>) -> Result<Report, Failure> {
    let now = log.clock.now;
    let until = args.select.only.until.unwrap_or(now);
    let since = args.select.only.since.unwrap_or_else(|| until.saturating_sub(DEFAULT_PERIOD).unwrap_or(until));
    if since > until {
        object::not_to_come(reader, since, &log.clock)?;
        return Err(Failure::usage("--since is after --until; swap them"));
    }
    args.select.only.check(reader, &log.clock)?;
    if args.requests {
        comparable(&args.select)?;
    }
    let (begin, end) = (since.as_microsecond(), until.as_microsecond());
    let counted = if args.requests { Some(reader.requests(begin, end)?) } else { None };
    let unwritten = if args.requests { reader.unwritten(begin, end)? } else { Vec::new() };
    let audit_log = args.requests && reader.audit_logs()?.iter().any(|row| row.active);
    if let Some(counted) = counted.as_ref().filter(|counted| counted.stretches.is_empty())
        && !audit_log
        && unwritten.is_empty()
    {
        return Err(no_counters(counted, (since, until), log));
    }
    let counted = counted.filter(|counted| !counted.stretches.is_empty());
    let stretches = counted.as_ref().map_or(&[][..], |counted| &counted.stretches);
    // Counters are of whole stretches of time, which may reach beyond what was asked for.
    let from = stretches.first().map_or(begin, |(since, _)| begin.min(*since));
    let to = stretches.last().map_or(end, |(_, until)| end.max(*until));
    let at = |micros: i64| Timestamp::from_microsecond(micros).unwrap_or(now);
    let only = Filters {
        since: Some(at(from)),
        until: Some(at(to)),
        by_journal_time: args.requests || args.select.only.by_journal_time,
        ..args.select.only.clone()
    };
    let select = Select { only, ..args.select.clone() };
    let selection = Selection::new(&select, reader, log)?;
    let (mut churn, mut versions) = (Churn::default().among(reader.small_resources(MANY)?), Versions::of(stretches));
    let head = reader.head()?;
    selection.each_page(reader, selection.begin(), head, |entries| {
        selection.remark(log);
        for entry in entries {
            let line = &entry.line;
            let inside = stretches.is_empty() || time_of(line).is_none_or(|time| (begin..=end).contains(&time));
            let taken = if inside { churn.take(line) } else { Ok(()) };
            if let Err(error) = taken.and_then(|()| versions.take(line)) {
                log.note(&format!("entry {}: {error}; it is left out", entry.seq));
            }
        }
        Ok(())
    })?;
    selection.remark_unknown(log);
    let mut report = churn.report(since, until, args.top);
    report.not_counted.suppressed = reader.sources()?.iter().map(|source| source.suppressed).sum();
    let wanted: Option<BTreeSet<String>> = selection.resources(reader)?.map(|names| names.into_iter().collect());
    if let Some(mut counted) = counted {
        if let Some(wanted) = &wanted {
            counted.counts.retain(|name, _| wanted.contains(name));
        }
        report.requests = Some(Requests::of(&counted, &versions, &reader.sources()?));
    }
    report.senders = args.requests.then(|| Senders::of(&unwritten, wanted.as_ref(), audit_log, args.top));
    if report.entries == 0 && !args.requests {
        note_newest(reader, since, log)?;
    }
    Ok(report)
}

/// Failure of a question about requests of which the journal has nothing.
fn no_counters(counted: &Counted, (since, until): (Timestamp, Timestamp), log: &Log<'_>) -> Failure {
    let why = counted.problem.as_ref().map(|problem| format!("; the last reading failed: {problem}"));
    Failure::no(format!(
        "the journal has no request counters from {} to {}; they are read every {} seconds while the daemon runs with \
         [cluster] request_metrics = true, and need a right that `decklog rbac` then prints{}; an [[audit_log]] names the \
         senders of requests that wrote nothing",
        log.clock.moment(since),
        log.clock.moment(until),
        REQUEST_COUNTERS_INTERVAL.as_secs(),
        why.unwrap_or_default()
    ))
}

/// Says which entry is the newest, if nothing was found, which may be because the period begins after it.
fn note_newest(reader: &mut Reader, since: Timestamp, log: &Log<'_>) -> Result<(), Failure> {
    let newest = reader.head()?;
    let entry = if newest == Seq(0) { None } else { reader.entry(newest)? };
    let time =
        entry.as_ref().and_then(|entry| time_of(&entry.line)).and_then(|at| Timestamp::from_microsecond(at).ok());
    if let Some(time) = time.filter(|time| *time < since) {
        log.note(&format!("the newest entry is of {}; an earlier --since finds it", log.clock.moment(time)));
    }
    Ok(())
}

fn time_of(line: &[u8]) -> Option<i64> {
    Some(Header::parse(line).ok()?.time.parse::<Timestamp>().ok()?.as_microsecond())
}

/// The API server counts by resource and verb, and knows nothing of what a narrower choice would ask for.
fn comparable(select: &Select) -> Result<(), Failure> {
    let narrower = [
        ("-n", !select.only.namespaces.is_empty()),
        ("--type", !select.only.types.is_empty()),
        ("--where", select.only.filter.is_some()),
        ("--grep", select.only.grep.is_some()),
        ("--touched", select.only.touched.is_some()),
        ("--by", !select.only.by.is_empty()),
        ("-l", select.labels.is_some()),
        ("a NAME", select.objects.iter().any(|object| object.contains('/'))),
    ];
    match narrower.into_iter().find(|(_, given)| *given) {
        Some(("--by", _)) => Err(Failure::usage(
            "--requests does not go with --by: the API server counts nobody's requests in particular; leave --by out, and the table SENDERS \
             names those who wrote nothing, as far as an [[audit_log]] does (--top shows more of them)",
        )),
        Some((what, _)) => Err(Failure::usage(format!(
            "--requests does not go with {what}: the API server counts requests by resource alone; leave it out, or name a KIND"
        ))),
        None => Ok(()),
    }
}
