//! Answers of the tools, out of those of the query layer.

mod judging;

use std::ops::ControlFlow;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use rmcp::model::JsonObject;
use serde::Serialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::kept::{Kept, Key, Part, Whole};
use super::page::{self, Answer, Cites, Cursor, Page, Refusal, STATEMENTS_MAX, Statement};
use super::refusing::{self, About};
use super::session::{Place, Session, full_name};
use super::tools::Arguments;
use crate::core::model::Seq;
use crate::core::wire;
use crate::query::Question;
use crate::query::churn::Report;
use crate::query::coverage::Uncovered;
use crate::query::questions::blame::Blame;
use crate::query::questions::churn::Churned;
use crate::query::questions::diff::{self, Diff};
use crate::query::questions::get::{self, Get};
use crate::query::questions::tail::{self, Tail};
use crate::query::questions::verify::{self, Verify};
use crate::query::questions::why::{Explained, Why};
use crate::query::render::names::At;
use crate::query::render::{Exit, Failure};
use crate::query::select::{Filters, Select};

/// Period of `churn` where none is asked for.
const CHURN_PERIOD: SignedDuration = SignedDuration::from_hours(1);
/// Number of rows in each table of `churn`.
const CHURN_ROWS: usize = 50;

/// A call of a tool on its way.
struct Call<'a> {
    session: Session<'a>,
    args: Arguments,
    /// The present, of the first page.
    now: Timestamp,
    /// The newest seq of the first page.
    head: u64,
    /// Time of the oldest entry of the log on the first page, microseconds since 1970; 0 where that does not count.
    begin: i64,
    page: Page,
    /// Stretches of the time that the log does not cover.
    uncovered: Vec<Uncovered>,
    /// True if stretches were left out, or the coverage is not known.
    doubtful: bool,
    /// Answers that are kept, and the place of this one; none where who asks may see less than others.
    kept: Option<(&'a Kept, Key)>,
}

/// Result of a tool, which fills the page or refuses.
type Outcome = Result<Option<Refusal>, Failure>;

/// All statements of an answer, or its refusal.
type Computed = Result<Result<Whole, Refusal>, Failure>;

/// Answers a tool.
///
/// # Errors
/// As the questions behind it fail.
pub(super) fn answer(
    tool: &str,
    given: &JsonObject,
    args: Arguments,
    session: Session<'_>,
    kept: &Kept,
) -> Result<Answer, Failure> {
    let Some(head) = session.head.clone() else {
        return Err(Failure::no("the journal has no entries yet, or none that you may see: nothing is known"));
    };
    let (cursor, of) = (args.cursor, page::mark(tool, given, &head.epoch));
    if cursor.is_some_and(|cursor| cursor.of != of) {
        let text = "the cursor is of another question or of another log: call the tool with the arguments of the first page, or without cursor";
        return Err(Failure::usage(text));
    }
    let now = args.now;
    let limit = args.limit.unwrap_or(STATEMENTS_MAX);
    let skip = cursor.map_or(0, |cursor| cursor.offset);
    let seq = cursor.map_or(head.seq, |cursor| cursor.seq);
    let page = Page::new(limit, skip);
    let is_now = args.at.is_none();
    let begin = cursor.map_or(0, |cursor| cursor.begin);
    let key = Key { cluster: args.cluster.clone(), of, now: now.as_microsecond(), head: seq };
    let kept = Some((kept, key)).filter(|_| !session.is_narrowed());
    let mut call = Call { session, args, now, head: seq, begin, page, uncovered: Vec::new(), doubtful: false, kept };
    let answered = match tool {
        "log" => call.log(),
        "why" => call.why(),
        "diff" => call.diff(),
        "blame" => call.blame(),
        "object_at" => call.object_at(),
        "churn" => call.page_of(Call::churn),
        "coverage" => call.page_of(Call::coverage),
        _ => call.page_of(Call::verify),
    };
    let refused = match answered {
        Err(failure) if failure.exit() == Exit::No && ["log", "diff", "churn"].contains(&tool) => call.none_or(failure),
        answered => answered,
    }?;
    let cluster = Some(head.cluster);
    call.settle()?;
    if let Some(refusal) = refused {
        return Ok(Answer::refused(cluster, refusal));
    }
    let Call { session, page, uncovered, doubtful, begin, .. } = call;
    let next = page.statements.last().filter(|_| page.more).map(|last| {
        let (offset, seq) = if tool == "log" { (0, last.seq) } else { (skip + page.statements.len(), seq) };
        Cursor { offset, seq, now: now.as_microsecond(), begin, of }
    });
    let mut notes = session.notes();
    if is_now {
        // Of which object the newest entry is was not asked for.
        let of_pin = format!("entry {seq} is of ");
        notes.retain(|note| !note.trim_start_matches("note: ").starts_with(&of_pin));
    }
    Ok(Answer {
        cluster,
        next: next.map(Cursor::write),
        complete: uncovered.is_empty() && !doubtful,
        uncovered: page::stretches(&uncovered),
        notes: page::notes(&notes),
        statements: page.statements,
        refusal: None,
    })
}

fn json_of<T: Serialize>(value: &T) -> Result<String, Failure> {
    serde_json::to_string(value).map_err(|error| Failure::internal(format!("a statement is no JSON: {error}")))
}

impl Call<'_> {
    fn about(&self) -> About {
        let mut objects = self.args.objects.clone();
        objects.extend(Some(self.args.object.clone()).filter(|object| !object.is_empty()));
        About { objects, namespaces: self.args.namespaces.clone() }
    }

    /// The place at which the log is read: what was asked for, or the newest entry of the first page, for all pages.
    fn pin(&self) -> At {
        self.args.at.unwrap_or(At::Seq(Seq(self.head)))
    }

    /// Adds a statement that cites an entry if that says it alone, else the log.
    fn put_if(&mut self, seq: Option<u64>, kind: &str, data: &str, alone: bool) -> Result<ControlFlow<()>, Failure> {
        let Self { session, page, .. } = self;
        page.offer(data, || {
            let stated = session.cite(seq, kind)?;
            Ok(if alone { stated } else { stated.of_log() })
        })
    }

    /// Reads the entries that statements cite and that could not be read while another answer came.
    fn settle(&mut self) -> Result<(), Failure> {
        for statement in self.page.statements.iter_mut().filter(|statement| statement.epoch.is_empty()) {
            let cited = self.session.cite(Some(statement.seq), &statement.kind)?;
            let data = std::mem::take(&mut statement.data);
            let cites = if statement.cites == Cites::Log { Cites::Log } else { cited.cites };
            *statement = Statement { data, cut: statement.cut, cites, ..cited };
        }
        Ok(())
    }

    fn log(&mut self) -> Outcome {
        let Arguments { since, until, .. } = self.args;
        let about = self.about();
        let begin = self.oldest()?;
        let all = match (since, until) {
            (Some(since), until) => Some((since, until.unwrap_or(self.now))),
            // A time that only ends begins with the log.
            (None, Some(until)) if begin.is_some_and(|begin| until < begin) => Some((until, until)),
            (None, _) => None,
        };
        if let Some(all) = all
            && let Some(refusal) = about.refuse(&self.session, all)?
        {
            return Ok(Some(refusal));
        }
        if self.args.cursor.is_none() {
            self.begin = begin.map_or(0, Timestamp::as_microsecond);
        }
        let args = &self.args;
        let only = Filters {
            namespaces: args.namespaces.clone(),
            types: args.types.clone(),
            since,
            until,
            filter: args.filter.clone(),
            touched: args.touched.clone(),
            grep: args.grep.clone(),
            by: args.by.clone(),
            by_journal_time: false,
        };
        let select = Select { objects: args.objects.clone(), labels: args.labels.clone(), only, waits: false };
        let before = args.cursor.map(|cursor| Seq(cursor.seq));
        let tail = Tail { select, last: Some(STATEMENTS_MAX + 1), reverse: true, before, ..Tail::default() };
        let Self { session, page, .. } = self;
        session.each(tail, &mut |item| {
            let tail::Item::Entry(line) = item else { return Ok(ControlFlow::Continue(())) };
            let line = line.0.line;
            let (head, _) = wire::apart(&line);
            let data = String::from_utf8_lossy(&head);
            page.offer(&data, || Ok(Place::of(&line)?.states(Cites::Entry, "entry")))
        })?;
        // A cursor is handed out only where more entries follow.
        if let Some(before) = before.filter(|_| self.page.statements.is_empty()) {
            let older = Seq(before.0.saturating_sub(1));
            if let Some(refusal) = refusing::removed(&self.session, older)? {
                return Ok(Some(refusal));
            }
        }
        self.look_at(&about, (since, until.or(self.present())))?;
        self.lost(since)
    }

    /// Asks a question about one object, at the pin.
    fn of_one<Q: Question>(
        &self,
        question: impl FnOnce(String, Vec<String>, Vec<String>, Option<At>) -> Q,
    ) -> Result<Vec<Q::Item>, Failure> {
        let Arguments { object, fields, .. } = self.args.clone();
        let namespaces = self.namespaces(&object, fields.first())?;
        self.session.all(question(object, fields, namespaces, Some(self.pin())))
    }

    fn why(&mut self) -> Outcome {
        let answered = self.of_one(|object, paths, namespaces, at| Why { object, paths, namespaces, at });
        let mut found = match answered {
            Ok(found) => found,
            Err(failure) => return self.no_or(failure),
        };
        let Some(found) = found.pop() else { return Ok(None) };
        let resource = full_name(&found.resource, &found.api_version);
        let about = About::one(&resource, &found.namespace, &found.name);
        if let Some(refusal) = about.refuse_at(&self.session, self.args.at)? {
            return Ok(Some(refusal));
        }
        let identity = identity(&found.api_version, &found.kind, &found.namespace, &found.name, &found.uid);
        #[derive(Serialize)]
        struct Data<'a, T> {
            object: &'a serde_json::Value,
            write: &'a T,
        }
        for write in &found.writes {
            if self.page.passes() {
                continue;
            }
            let data = json_of(&Data { object: &identity, write })?;
            if self.put_if(write.seq, "write", &data, is_of_its_entry(write))?.is_break() {
                break;
            }
        }
        self.doubtful = found.gaps > 0;
        self.look_at_history(&about)
    }

    fn blame(&mut self) -> Outcome {
        let answered = self.of_one(|object, paths, namespaces, at| Blame { object, paths, namespaces, at });
        let mut found = match answered {
            Ok(found) => found,
            Err(failure) => return self.no_or(failure),
        };
        let Some(found) = found.pop() else { return Ok(None) };
        let resource = full_name(&found.resource, &found.api_version);
        let about = About::one(&resource, &found.namespace, &found.name);
        if let Some(refusal) = about.refuse_at(&self.session, self.args.at)? {
            return Ok(Some(refusal));
        }
        #[derive(Serialize)]
        struct Data<'a, T> {
            object: &'a serde_json::Value,
            field: &'a T,
        }
        let identity = identity(&found.api_version, &found.kind, &found.namespace, &found.name, &found.uid);
        for field in &found.fields {
            if self.page.passes() {
                continue;
            }
            let data = json_of(&Data { object: &identity, field })?;
            // Who sent it is in another entry.
            if self.put_if(field.seq, "field", &data, field.actor.is_none())?.is_break() {
                break;
            }
        }
        self.doubtful = found.gaps > 0;
        self.look_at_history(&about)
    }

    fn object_at(&mut self) -> Outcome {
        let args = self.args.clone();
        let about = self.about();
        // Of a seq its object counts, which comes with the answer.
        let early = match self.args.at {
            Some(At::Seq(seq)) => refusing::removed(&self.session, seq),
            at => about.refuse_at(&self.session, at),
        };
        match early {
            Ok(None) => {}
            Ok(refusal) => return Ok(refusal),
            Err(failure) => return self.no_or(failure),
        }
        let namespaces = match args.objects.as_slice() {
            [object] if about.is_one() && args.namespaces.is_empty() && args.labels.is_none() => {
                self.namespaces(object, None)
            }
            _ => Ok(args.namespaces),
        };
        let namespaces = match namespaces {
            Ok(namespaces) => namespaces,
            Err(failure) => return self.no_or(failure),
        };
        let at = Some(self.pin());
        let get = Get { objects: args.objects, namespaces, all_namespaces: false, labels: args.labels, at };
        #[derive(Serialize)]
        struct Data<'a> {
            resource: String,
            namespace: &'a str,
            name: &'a str,
            redacted: &'a [String],
            object: &'a RawValue,
        }
        let mut places = Vec::new();
        let (session, page) = (&self.session, &mut self.page);
        let answered = session.each(get, &mut |item| {
            let get::Item::Object(found) = item else { return Ok(ControlFlow::Continue(())) };
            let (namespace, name) = (found.namespace.as_str(), found.name.as_str());
            let resource = found.resource.full_name();
            places.push((format!("{resource}/{name}"), found.namespace.clone()));
            if page.passes() {
                return Ok(ControlFlow::Continue(()));
            }
            let data = json_of(&Data { resource, namespace, name, redacted: &found.redacted, object: &found.object })?;
            let seq = found.changed.map(|(seq, _)| seq.0);
            page.offer(&data, || Ok(session.unread(seq, "object")))
        });
        if let Err(failure) = answered {
            return self.no_or(failure);
        }
        // Of an object its own namespace counts, of a list what was asked for.
        let about = match places.as_slice() {
            [(object, namespace)] if about.is_one() => {
                About { objects: vec![object.clone()], namespaces: vec![namespace.clone()] }
            }
            _ => about,
        };
        if let Some(refusal) = about.refuse_at(&self.session, self.args.at)? {
            return Ok(Some(refusal));
        }
        self.look_at_moment(&about)?;
        Ok(None)
    }

    fn diff(&mut self) -> Outcome {
        let args = self.args.clone();
        let about = self.about();
        let to = Some(args.to.unwrap_or(At::Seq(Seq(self.head))));
        for at in [args.from, args.to] {
            if let Some(refusal) = about.refuse_at(&self.session, at)? {
                return Ok(Some(refusal));
            }
        }
        let question = Diff {
            objects: args.objects,
            namespaces: args.namespaces,
            by: args.by,
            from: args.from,
            to,
            areas: Vec::new(),
            utc: true,
        };
        #[derive(Serialize)]
        struct Data<'a> {
            difference: &'a crate::query::difference::ObjectDifference,
            by: &'a [String],
            status_alone: bool,
        }
        let mut unknown = Vec::new();
        let (session, page) = (&self.session, &mut self.page);
        session.each(question, &mut |item| match item {
            diff::Item::Object(_) if page.passes() => Ok(ControlFlow::Continue(())),
            diff::Item::Object(found) => {
                let data = Data { difference: &found.difference, by: &found.by, status_alone: found.is_status };
                page.offer(&json_of(&data)?, || {
                    let entries = &found.difference.entries;
                    let stated = session.unread(entries.last().copied(), "difference");
                    // One of several entries does not say it alone.
                    Ok(if entries.len() == 1 { stated } else { stated.of_log() })
                })
            }
            diff::Item::Gap(hole) => {
                let line = hole.entry.0.line;
                let (head, _) = wire::apart(&line);
                page.offer(&String::from_utf8_lossy(&head), || Ok(Place::of(&line)?.states(Cites::Entry, "gap")))
            }
            diff::Item::Unknown(text) => {
                unknown.push(text);
                Ok(ControlFlow::Continue(()))
            }
            diff::Item::CameAndWent(0) | diff::Item::Begin { .. } => Ok(ControlFlow::Continue(())),
            diff::Item::CameAndWent(many) => {
                unknown.push(format!("{many} objects came and went between the moments"));
                Ok(ControlFlow::Continue(()))
            }
        })?;
        unknown.iter().for_each(|text| self.session.note(text));
        let (since, until) = (self.time_of(args.from)?, self.time_of(args.to)?.or(self.present()));
        self.look_at(&about, (since, until))?;
        Ok(None)
    }

    /// Fills the page from an answer that is computed as a whole, and then kept for the pages behind it.
    fn page_of(&mut self, compute: fn(&mut Self) -> Computed) -> Outcome {
        let kept = self.kept.clone();
        let whole = match kept.as_ref().and_then(|(kept, key)| kept.get(key)) {
            Some(whole) => whole,
            None => match compute(self)? {
                Ok(whole) => Arc::new(Whole { notes: self.session.notes(), ..whole }),
                Err(refusal) => return Ok(Some(refusal)),
            },
        };
        for Part { seq, kind, data, is_alone } in &whole.parts {
            if self.put_if(*seq, kind, data, *is_alone)?.is_break() {
                break;
            }
        }
        whole.notes.iter().for_each(|text| self.session.note(text));
        self.uncovered.clone_from(&whole.uncovered);
        self.doubtful = whole.is_doubtful;
        if let Some((kept, key)) = kept.filter(|_| self.page.more) {
            kept.put(key, whole);
        }
        Ok(None)
    }

    fn churn(&mut self) -> Computed {
        let until = self.args.until.unwrap_or(self.now);
        let since = self.args.since.unwrap_or_else(|| until.saturating_sub(CHURN_PERIOD).unwrap_or(until));
        if let Some(refusal) = self.about().refuse(&self.session, (since, until))? {
            return Ok(Err(refusal));
        }
        let only = Filters {
            namespaces: self.args.namespaces.clone(),
            since: Some(since),
            until: Some(until),
            ..Filters::default()
        };
        let select = Select { objects: self.args.objects.clone(), only, ..Select::default() };
        let churned = Churned { select, requests: false, top: CHURN_ROWS };
        let Some(report) = self.session.all(churned)?.pop() else { return Ok(Ok(Whole::default())) };
        let seq = Some(report.last.unwrap_or(self.head));
        let part = |(kind, data)| Part { seq, kind, data, is_alone: false };
        let parts = rows(&report)?.into_iter().map(part).collect();
        Ok(Ok(Whole { parts, uncovered: report.uncovered, ..Whole::default() }))
    }

    fn coverage(&mut self) -> Computed {
        let until = self.args.until.or_else(|| self.args.cursor.map(|_| self.now));
        let question = self.about().cover(self.args.since, until);
        let Some(covered) = self.session.covered(question)? else { return Ok(Ok(Whole::default())) };
        let whole = json!({
            "since": covered.since,
            "until": covered.until,
            "complete": covered.complete,
            "omitted": covered.omitted,
        });
        let part = |seq, kind, data| Part { seq, kind, data, is_alone: true };
        let mut parts = vec![part(None, "covered", json_of(&whole)?)];
        for one in &covered.uncovered {
            parts.push(part(one.seq, "gap", json_of(one)?));
        }
        for absence in &covered.absences {
            parts.push(part(None, "absence", json_of(absence)?));
        }
        let (uncovered, is_doubtful) = (covered.uncovered, covered.omitted > 0);
        Ok(Ok(Whole { parts, uncovered, is_doubtful, ..Whole::default() }))
    }

    fn verify(&mut self) -> Computed {
        let mut found = None;
        self.session.each(Verify {}, &mut |item| {
            if let verify::Item::Found(_, verified) = item {
                found = Some(verified);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        let Some(found) = found else { return Ok(Ok(Whole::default())) };
        let whole = json!({
            "whole": found.problems.is_empty(),
            "entries": found.entries,
            "removed": found.removed,
            "objects": found.objects,
            "gaps": found.gaps,
            "first": found.range.map(|(first, _)| first),
            "last": found.range.map(|(_, last)| last),
            "pagesUnchecked": found.pages_unchecked,
        });
        let part = |kind, data| Part { seq: None, kind, data, is_alone: true };
        let mut parts = vec![part("verified", json_of(&whole)?)];
        parts.extend(found.problems.iter().map(|text| part("problem", json!(text).to_string())));
        self.look_at(&About::default(), (None, self.present()))?;
        let (uncovered, is_doubtful) = (std::mem::take(&mut self.uncovered), self.doubtful);
        Ok(Ok(Whole { parts, uncovered, is_doubtful, ..Whole::default() }))
    }
}

/// Reports whether an entry alone says all of a write: no owner, no other object and no sender is behind it.
fn is_of_its_entry(write: &Explained) -> bool {
    let ends = write.provenance.ends.reason.as_ref();
    write.via.is_empty()
        && write.actor.is_none()
        && write.provenance.candidates.is_empty()
        && ["program", "person"].contains(&ends)
}

fn identity(api_version: &str, kind: &str, namespace: &str, name: &str, uid: &str) -> serde_json::Value {
    json!({"apiVersion": api_version, "kind": kind, "namespace": namespace, "name": name, "uid": uid})
}

/// Rows of the tables of a report, each as JSON with the table that it is of.
fn rows(report: &Report) -> Result<Vec<(&'static str, String)>, Failure> {
    let whole = json!({
        "since": report.since,
        "until": report.until,
        "first": report.first,
        "last": report.last,
        "entries": report.entries,
        "notCounted": report.not_counted,
        "writes": report.writes,
    });
    let mut rows = vec![("writes", json_of(&whole)?)];
    fn all<T: Serialize>(kind: &'static str, of: &[T]) -> Result<Vec<(&'static str, String)>, Failure> {
        of.iter().map(|row| Ok((kind, json_of(row)?))).collect()
    }
    rows.extend(all("class", &report.classes)?);
    rows.extend(all("fight", &report.fights)?);
    rows.extend(all("written", &report.fields)?);
    rows.extend(all("manager", &report.managers)?);
    rows.extend(all("resource", &report.resources)?);
    rows.extend(all("busy_object", &report.objects)?);
    Ok(rows)
}
