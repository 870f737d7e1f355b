//! Drift: who else wrote the fields that a delivery tool owns, and how that ended.

mod around;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use crate::core::model::Seq;
use crate::journal::Reader;
use crate::query::coverage::Uncovered;
use crate::query::coverage_notes::About;
use crate::query::drift::{Drift, LeftOut, Pass};
use crate::query::render::row::plural;
use crate::query::render::{Failure, object};
use crate::query::select::{Filters, Select, Selection};
use crate::query::{Log, Put, Question};
use around::Around;

/// Asks for drifts.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Drifting {
    /// The objects, the time, and conditions on the entries with which drifts began.
    pub(crate) select: Select,
    /// Keeps those that are open now.
    pub(crate) open: bool,
}

/// Drifts, by object and time.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Drifted {
    pub(crate) drifts: Vec<Drift>,
    pub(crate) left_out: LeftOut,
    /// Number of GAPs in the history that was read.
    pub(crate) gaps: u64,
    /// The part of the time that the log does not cover.
    pub(crate) uncovered: Vec<Uncovered>,
}

impl Question for Drifting {
    const NAME: &'static str = "drift";
    type Item = Drifted;

    /// # Errors
    /// Where the journal cannot be read, or the question names what it does not know.
    fn answer(self, log: &Log<'_>, put: &mut Put<'_, Drifted>) -> Result<(), Failure> {
        if self.select.only.by_journal_time {
            let text = "--by-journal-time does not go with drift, which lasts from one change to another; leave it out";
            return Err(Failure::usage(text));
        }
        let mut reader = log.open()?;
        let about = About::of(&self.select, &reader)?;
        let coverage = about.coverage(&mut reader, &log.dir, &log.clock)?;
        let uncovered = about.covered(&mut reader, &log.dir, &log.clock)?.uncovered;
        let mut beside = log.open()?;
        let asked = Selection::new(&self.select, &mut reader, log)?;
        let only = &self.select.only;
        let mut around = Around::new(&mut beside, &log.clock, &asked, (only.since, only.until), self.open);
        let (drifts, left_out, gaps) = found(&self.select, &mut reader, log, &mut around)?;
        let notes = around.into_notes();
        let is_empty = drifts.is_empty();
        put(Drifted { drifts, left_out, gaps, uncovered })?;
        asked.remark(log);
        asked.remark_unknown(log);
        if is_empty {
            about.note_nothing("no drift", &coverage, &mut reader, log)?;
        }
        for note in notes {
            log.remark(&note);
        }
        remark(&mut reader, log, left_out, gaps)?;
        coverage.remark(log);
        Ok(())
    }
}

/// Reads the log from its start: a drift may be older than the time that is asked for.
fn found(
    select: &Select,
    reader: &mut Reader,
    log: &Log<'_>,
    around: &mut Around<'_>,
) -> Result<(Vec<Drift>, LeftOut, u64), Failure> {
    let only = Filters { namespaces: select.only.namespaces.clone(), ..Filters::default() };
    let all = Selection::new(&Select { objects: select.objects.clone(), only, ..Select::default() }, reader, log)?;
    let mut pass = Pass::default();
    let head = reader.head()?;
    all.each_page(reader, Seq(0), head, |entries| {
        if log.is_gone() {
            return Err(Failure::closed_pipe());
        }
        for entry in entries {
            if let Err(failure) = pass.take((entry.op, entry.seq), &entry.line, around) {
                log.note(&format!("entry {}: {failure}; it is left out", entry.seq));
            }
        }
        Ok(())
    })?;
    around.unrecorded(&mut pass, log.clock.now)?;
    let gaps = pass.gaps;
    let (mut drifts, left_out) = pass.finish(log.clock.now, &*around);
    around.complete(&mut drifts)?;
    Ok((drifts, left_out, gaps))
}

/// Says what is left out, and what the log does not know.
fn remark(reader: &mut Reader, log: &Log<'_>, left_out: LeftOut, gaps: u64) -> Result<(), Failure> {
    let LeftOut { autoscaled, ignored, unknown, dropped } = left_out;
    let parts = [
        (autoscaled, format!("{} of autoscalers", plural(autoscaled, "write", "writes"))),
        (ignored, format!("{} that ignoreDifferences covers", plural(ignored, "write", "writes"))),
    ];
    let parts: Vec<String> = parts.into_iter().filter(|(count, _)| *count > 0).map(|(_, text)| text).collect();
    if !parts.is_empty() {
        log.remark(&format!("left out: {}", parts.join(" and ")));
    }
    if unknown > 0 {
        let writes = plural(unknown, "write", "writes");
        let hint = if object::is_audited(reader)? { "" } else { "; [[audit_log]] records who asks" };
        log.remark(&format!(
            "left out: {writes} that may be of the tool itself, because nobody is named or a GAP lies before{hint}"
        ));
    }
    if dropped > 0 {
        let drifts = plural(dropped, "drift is", "drifts are");
        log.remark(&format!("{drifts} left out, because there are too many; name objects or a namespace"));
    }
    if gaps > 0 {
        let gaps = plural(gaps, "gap lies", "gaps lie");
        log.remark(&format!("{gaps} in this history; a drift that began and ended there is not known"));
    }
    let retained = reader.retained()?;
    if let Some(begin) = retained.oldest_time.filter(|_| retained.removed > 0) {
        let begin = object::time_spelled(begin, &log.clock);
        log.remark(&format!("the log begins at {begin} (entry {}): an older drift is not known", retained.oldest));
    }
    Ok(())
}
