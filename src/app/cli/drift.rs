//! `decklog drift`: who else wrote the fields that GitOps owns, for how long, and who restored them.

#[cfg(test)]
mod tests;

use clap::Args;

use super::clock::clock;
use super::output::{Ink, Out, Row, TerminalStyle, cut, printable, span};
use super::select::SelectArgs;
use super::what::values_of;
use super::{Exit, Format, Global, Outcome, who};
use crate::query::drift::{Drift, DrivenBy, Ended, Field, How, Known, Written};
use crate::query::provenance::words::{full, short};
use crate::query::provenance::{Certainty, Provenance, Tool};
use crate::query::questions::drift::{Drifted, Drifting};

/// Arguments of `decklog drift`.
#[derive(Args, Debug)]
pub struct DriftArgs {
    /// Objects, time, and conditions on the entries with which drifts began.
    #[command(flatten)]
    pub select: SelectArgs,
    /// Only what differs now
    #[arg(long)]
    pub open: bool,
    /// Exit with 1 if a drift is printed
    #[arg(long)]
    pub check: bool,
}

/// Widest columns of the fields and of the writers; longer texts push what follows to the right.
const WIDEST: usize = 44;
/// Number of characters of a field with its values.
const FIELD: usize = 100;

/// Prints drifts.
///
/// # Errors
/// Where the journal cannot be read, or the arguments name what it does not know.
pub fn main(args: DriftArgs, global: &Global, out: &mut Out) -> Outcome {
    let question = Drifting { select: args.select.select(), open: args.open };
    let mut is_found = false;
    global.ask(question, &mut |found| {
        is_found |= !found.drifts.is_empty();
        match global.output.unwrap_or(Format::Line) {
            Format::Line | Format::Wide | Format::Name => {
                for line in lines(&found, out.look) {
                    out.line(&line)?;
                }
            }
            format @ (Format::Json | Format::Yaml) => out.document(format, &found)?,
        }
        out.flush()
    })?;
    Ok(if args.check && is_found { Exit::No } else { Exit::Done })
}

/// Columns of a drift.
struct Cells {
    time: String,
    fields: Vec<String>,
    writer: String,
    end: String,
    ink: Ink,
}

/// The drifts below their objects.
fn lines(found: &Drifted, look: TerminalStyle) -> Vec<String> {
    let cells: Vec<Cells> = found.drifts.iter().map(cells).collect();
    let widest = |texts: &mut dyn Iterator<Item = &String>| {
        texts.map(|text| text.chars().count()).filter(|count| *count <= WIDEST).max().unwrap_or_default()
    };
    let field = TIME + widest(&mut cells.iter().flat_map(|cells| &cells.fields)) + 2;
    let writer = field + widest(&mut cells.iter().map(|cells| &cells.writer)) + 2;
    let is_narrow = look.width.is_some_and(|width| width < writer + END);
    let mut lines: Vec<String> = Vec::new();
    let mut above = String::new();
    for (drift, cells) in found.drifts.iter().zip(&cells) {
        let heading = heading(drift);
        if heading != above {
            if !lines.is_empty() {
                lines.push(String::new());
            }
            let mut row = Row::new(look);
            row.uncut();
            row.hang(2);
            row.put(Some(Ink::Strong), &printable(&heading));
            lines.push(row.finish());
            above = heading;
        }
        let begin = |column: usize| {
            let mut row = Row::new(look);
            row.uncut();
            row.hang(column);
            row
        };
        let below = |ink: Ink, text: &str| {
            let mut row = begin(TIME);
            row.to(TIME).put(Some(ink), text);
            row.finish()
        };
        let (first, more) = cells.fields.split_first().map_or(("", &[][..]), |(first, more)| (first.as_str(), more));
        let mut row = begin(TIME);
        row.put(None, &cells.time).to(TIME).put(Some(Ink::Change), first);
        if !is_narrow {
            row.to(field.max(row.columns() + 2)).put(Some(Ink::Who), &cells.writer);
            row.to(writer.max(row.columns() + 2)).put(Some(cells.ink), &cells.end);
        }
        lines.push(row.finish());
        lines.extend(more.iter().map(|field| below(Ink::Change, field)));
        if is_narrow {
            lines.extend([below(Ink::Who, &cells.writer), below(cells.ink, &cells.end)]);
        }
    }
    lines
}

/// Columns that an end needs beside the writer; with fewer, each stands on a line of its own.
const END: usize = 60;
/// Columns before the field: two blanks, a mark, a date and a time, and two blanks.
const TIME: usize = 2 + 1 + 19 + 2;

/// `deployment/cart -n shop (Argo CD Application argocd/shop)`
fn heading(drift: &Drift) -> String {
    let group = drift.api_version.split_once('/').map_or("", |(group, _)| group);
    let kind = if group.contains('.') && !group.ends_with(".k8s.io") {
        format!("{}.{group}", drift.resource)
    } else {
        drift.kind.to_lowercase()
    };
    let namespace = if drift.namespace.is_empty() { String::new() } else { format!(" -n {}", drift.namespace) };
    let tool = match drift.tool {
        Tool::ArgoCd => "Argo CD",
        Tool::Kustomization | Tool::HelmRelease => "Flux",
        Tool::Helm => "Helm",
        Tool::Autoscaler => "autoscaler",
    };
    let driver = |one: &DrivenBy| {
        let kind = one.kind.strip_prefix("Helm ").unwrap_or(&one.kind);
        format!("{kind} {}", full(&one.namespace, &one.name))
    };
    let drivers: Vec<String> = drift.driven_by.iter().map(driver).collect();
    let by = if drivers.is_empty() { String::new() } else { format!(" {}", drivers.join(" or ")) };
    format!("{kind}/{}{namespace} ({tool}{by})", drift.name)
}

fn cells(drift: &Drift) -> Cells {
    let fields = if drift.fields.is_empty() {
        vec!["deleted".to_owned()]
    } else {
        drift.fields.iter().map(|field| printable(&cut(&spelled(field), FIELD)).into_owned()).collect()
    };
    let gaps = match drift.gaps {
        0 => String::new(),
        1 => ", with a GAP within".to_owned(),
        many => format!(", with {many} GAPs within"),
    };
    let (end, ink) = match &drift.ended {
        Some(ended) => (end(drift, ended), Ink::Good),
        None => (format!("open for {}", how_long(drift)), Ink::Bad),
    };
    Cells {
        time: format!("  {}", time(&drift.began)),
        fields,
        writer: writer(&drift.began),
        end: printable(&format!("{end}{gaps}")).into_owned(),
        ink: if drift.ended.as_ref().is_some_and(|ended| ended.how == How::Overwritten) { Ink::Faint } else { ink },
    }
}

fn spelled(field: &Field) -> String {
    if field.redacted {
        return format!("{} changed (redacted)", field.name);
    }
    let json = |value: &Option<Box<serde_json::value::RawValue>>| value.as_ref().map(|json| json.get().to_owned());
    let (was, is) = (json(&field.expected), json(&field.got));
    let values = match (&was, &is) {
        (None, None) if !field.gone => String::new(),
        _ if field.gone => values_of(was.as_deref(), None),
        (_, None) => String::new(),
        (was, is) => values_of(was.as_deref(), is.as_deref()),
    };
    if values.is_empty() { format!("{} changed", field.name) } else { format!("{} {values}", field.name) }
}

/// `≤` before what may be earlier.
fn time(write: &Written) -> String {
    let stamp = clock().stamp(&write.time.to_string());
    let mark = if write.known == Known::At { " " } else { "≤" };
    format!("{mark}{} {}", stamp.date, stamp.time)
}

/// `kubectl-edit by alice@example.com`; the reason in brackets where nobody is named.
fn writer(write: &Written) -> String {
    let user = write.actor.as_ref().map(|actor| actor.sender.user.as_str()).filter(|user| !user.is_empty());
    let name = match (write.writers.is_empty(), &write.unnamed, user) {
        (false, ..) => who::spell(&write.writers, false).trim_start_matches("owner ").to_owned(),
        (true, _, Some(_)) => String::new(),
        (true, Some(why), None) => format!("({why})"),
        (true, None, None) => "(nobody is named)".to_owned(),
    };
    let by = user.map_or_else(String::new, |user| format!("by {user}"));
    let within = if write.known == Known::Gap { "(within a GAP)" } else { "" };
    let parts = [name, by, within.to_owned()];
    let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    printable(&parts.join(" ")).into_owned()
}

/// `12s`, `at most 2h`, `12s or longer`
fn how_long(drift: &Drift) -> String {
    let millis = drift.millis.max(0);
    let text = if millis < 1000 { format!("{millis}ms") } else { span(millis / 1000) };
    let is_exact = |write: &Written| write.earliest.is_none();
    let ended = drift.ended.as_ref().map(|ended| &ended.write);
    if drift.began.known == Known::Earlier {
        format!("{text} or longer")
    } else if is_exact(&drift.began) && ended.is_none_or(is_exact) {
        text
    } else {
        format!("at most {text}")
    }
}

/// `restored after 12s by argocd-controller (sync at 3f2c9ab)`
fn end(drift: &Drift, ended: &Ended) -> String {
    let after = how_long(drift);
    let by = match writer(&ended.write) {
        by if by.starts_with('(') => format!(" {by}"),
        by if by.starts_with("by ") => format!(" {by}"),
        by => format!(" by {by}"),
    };
    let run = ended.provenance.as_ref().and_then(|provenance| run(drift, provenance)).unwrap_or_default();
    match ended.how {
        How::Restored => format!("restored after {after}{by}{run}"),
        How::Rewritten => format!("written again after {after}{by}{run}"),
        How::Adopted => format!("adopted after {after}{by}{run}"),
        How::Replaced => format!("set to another value after {after}{by}{run}"),
        How::Released => format!("given up after {after}{by}{run}"),
        How::Overwritten => format!("overwritten after {after}{by}"),
        How::Deleted => format!("deleted with the object after {after}{by}"),
        How::Recreated => format!("created again after {after}{by}"),
    }
}

/// ` (sync at 3f2c9ab)`, with the object that drives the tool where that is another one.
fn run(drift: &Drift, provenance: &Provenance) -> Option<String> {
    let [one] = &provenance.candidates[..] else { return None };
    let run = one.run.as_ref().filter(|_| provenance.certainty == Certainty::Known)?;
    let is_same =
        |known: &DrivenBy| known.name == one.name && (known.namespace.is_empty() || known.namespace == one.namespace);
    let of = if drift.driven_by.iter().any(is_same) {
        String::new()
    } else {
        format!(" of {} {}", one.kind, full(&one.namespace, &one.name))
    };
    let at = if run.revision.is_empty() { String::new() } else { format!(" at {}", short(&run.revision)) };
    Some(format!(" ({}{of}{at})", one.tool.run()))
}
