//! `decklog churn`: who writes most, what of it changed nothing that matters, and fields that managers fight over.

mod senders;
#[cfg(test)]
mod tests;

use clap::Args;

use super::clock::{clock, moment};
use super::output::{Ink, Out, Row, TerminalStyle, count, cut, plural, printable, sentence, size, span, whole_table};
use super::rewrite;
use super::select::{SelectArgs, how_many};
use super::what::common;
use super::{Format, Global, Outcome};
use crate::query::churn::{Fight, Report, Requests, Row as Counted, Written};
use crate::query::coverage::known::Reach;
use crate::query::questions::churn::Churned;

/// Arguments of `decklog churn`.
#[derive(Args, Debug)]
pub struct ChurnArgs {
    /// Which entries; without --since, those of the last hour.
    #[command(flatten)]
    pub select: SelectArgs,
    /// Also the writes that the API server dropped: how many, by its own request counters, and whose, by the audit log
    #[arg(long)]
    pub requests: bool,
    /// Most rows in each table
    #[arg(long, value_name = "COUNT", default_value_t = 10, value_parser = how_many)]
    pub top: usize,
}

/// A share of all writes from which on a number is worth a colour.
const MUCH: f64 = 0.1;

/// Prints who writes most.
///
/// # Errors
/// Where the journal cannot be read, or the arguments name what it does not know.
pub fn main(args: ChurnArgs, global: &Global, out: &mut Out) -> Outcome {
    let question = Churned { select: args.select.select(), requests: args.requests, top: args.top };
    global.ask(question, &mut |report| {
        match global.output.unwrap_or(Format::Line) {
            Format::Line | Format::Wide | Format::Name => {
                for line in lines(&report, out.look) {
                    out.line(&line)?;
                }
            }
            format @ (Format::Json | Format::Yaml) => out.document(format, &report)?,
        }
        out.flush()
    })
}

/// The report for people.
fn lines(report: &Report, look: TerminalStyle) -> Vec<String> {
    let mut lines = head(report, look);
    if report.writes.writes > 0 {
        let kinds: Vec<Counted> = report.classes.iter().filter(|class| class.writes > 0).map(of_class).collect();
        let mut kind =
            report.classes.iter().filter(|class| class.writes > 0).map(|class| class.class.spoken().to_owned());
        section(&mut lines, "KIND OF WRITE", &kinds, &mut |_| kind.next().unwrap_or_default(), look);
        fights(&mut lines, &report.fights, look);
        written(&mut lines, &report.fields, look);
        let manager = |row: &Counted| match row.manager.as_deref().unwrap_or_default() {
            "" => "(nobody is named)".to_owned(),
            name => name.to_owned(),
        };
        section(&mut lines, "MANAGER", &report.managers, &mut { manager }, look);
        let resource = |row: &Counted| row.resource.clone().unwrap_or_default();
        section(&mut lines, "RESOURCE", &report.resources, &mut { resource }, look);
        let object = |row: &Counted| {
            let namespace = row.namespace.as_deref().unwrap_or_default();
            object(&resource(row), namespace, row.name.as_deref().unwrap_or_default())
        };
        section(&mut lines, "OBJECT", &report.objects, &mut { object }, look);
        if report.dropped_below > 0 {
            lines.push(String::new());
            lines.push(format!(
                "There were too many to remember: those with at most {} may be missing.",
                plural(report.dropped_below, "write", "writes")
            ));
        }
    }
    if let Some(requests) = &report.requests {
        self::requests(&mut lines, requests, look);
    }
    if let Some(senders) = &report.senders {
        senders::section(&mut lines, senders, report.requests.is_some(), look);
    }
    lines
}

fn head(report: &Report, look: TerminalStyle) -> Vec<String> {
    let entries = match (report.first, report.last) {
        (Some(first), Some(last)) => {
            format!("{} ({first} to {last})", plural(report.entries, "entry", "entries"))
        }
        _ => "no entries".to_owned(),
    };
    let mut lines = vec![format!("{} to {}, {entries}", moment(report.since), moment(report.until))];
    let writes = &report.writes;
    let mut row = Row::new(look);
    let number = match report.known {
        Reach::Nothing if writes.writes == 0 => "nothing is known of this time".to_owned(),
        Reach::Part if writes.writes == 0 => "0 known writes, and more may have happened".to_owned(),
        Reach::All | Reach::Part | Reach::Nothing => plural(writes.writes, "write", "writes"),
    };
    row.put(Some(Ink::Strong), &number);
    if writes.writes > 0 {
        let no_op = format!("{} of them ({})", count(writes.no_op), percent(writes.no_op, writes.writes));
        row.put(None, ", ").put(Some(Ink::Change).filter(|_| writes.no_op > 0), &no_op);
        let bytes = format!(": {} of {}", size(writes.no_op_bytes), size(writes.bytes));
        row.put(None, " changed nothing that matters").put(None, &bytes);
    }
    lines.push(row.finish());
    let not = &report.not_counted;
    let parts = [
        (not.listed, format!("{} of first lists", plural(not.listed, "entry", "entries"))),
        (not.inferred, format!("{} after a gap", plural(not.inferred, "entry", "entries"))),
    ];
    let parts: Vec<String> = parts.into_iter().filter(|(number, _)| *number > 0).map(|(_, text)| text).collect();
    if !parts.is_empty() {
        lines.push(format!("Not counted: {}.", parts.join(" and ")));
    }
    if not.suppressed > 0 {
        let suppressed = plural(not.suppressed, "change", "changes");
        let are = if not.suppressed == 1 { "is" } else { "are" };
        lines.push(format!("`ignore` has suppressed {suppressed} so far, which {are} not in the log and not here."));
    }
    for rewrite in &report.rewrites {
        let text = format!("Nobody is to blame for the {}.", rewrite::sentence(rewrite, clock(), look));
        lines.push(sentence(look, 2, None, &text));
    }
    if not.gaps > 0 {
        let gaps = plural(not.gaps, "gap", "gaps");
        lines.push(format!("Writes during {gaps} are not counted."));
    }
    lines
}

fn of_class(class: &crate::query::churn::OfClass) -> Counted {
    let (no_op, no_op_bytes) = if class.no_op { (class.writes, class.bytes) } else { (0, 0) };
    Counted { writes: class.writes, share: class.share, bytes: class.bytes, no_op, no_op_bytes, ..Counted::default() }
}

/// A table with the numbers first and the name last, so that a narrow terminal cuts the name.
fn section(
    lines: &mut Vec<String>,
    title: &str,
    rows: &[Counted],
    name: &mut dyn FnMut(&Counted) -> String,
    look: TerminalStyle,
) {
    let rows = rows.iter().map(|row| {
        let no_op = if row.no_op == 0 { "-".to_owned() } else { count(row.no_op) };
        let numbers = vec![count(row.writes), format!("{:.0}%", row.share * 100.0), no_op, size(row.bytes)];
        let much = row.no_op > 0 && row.no_op * 2 >= row.writes && row.share >= MUCH;
        (numbers, if much { Some(Ink::Change) } else { None }, name(row))
    });
    grid(lines, &["WRITES", "SHARE", "NO-OP", "BYTES", title], rows.collect(), look);
}

/// Numbers to the right, and text behind them.
fn grid(lines: &mut Vec<String>, titles: &[&str], rows: Vec<(Vec<String>, Option<Ink>, String)>, look: TerminalStyle) {
    if rows.is_empty() {
        return;
    }
    let width = |at: usize, title: &str| {
        rows.iter().filter_map(|(numbers, ..)| numbers.get(at)).map(String::len).fold(title.len(), usize::max)
    };
    let widths: Vec<usize> = titles.iter().enumerate().map(|(at, title)| width(at, title)).collect();
    let right = |at: usize, text: &str| format!("{text:>width$}", width = widths[at]);
    let last = titles.len() - 1;
    let titles: Vec<String> = titles
        .iter()
        .enumerate()
        .map(|(at, title)| if at < last { right(at, title) } else { (*title).to_owned() })
        .collect();
    let cells: Vec<Vec<(Option<Ink>, String)>> = rows
        .into_iter()
        .map(|(numbers, ink, name)| {
            let numbers = numbers.iter().enumerate().map(|(at, number)| (ink, right(at, number)));
            numbers.chain([(None, printable(&name).into_owned())]).collect()
        })
        .collect();
    lines.push(String::new());
    lines.extend(whole_table(look, &titles.iter().map(String::as_str).collect::<Vec<_>>(), &cells));
}

fn object(resource: &str, namespace: &str, name: &str) -> String {
    if namespace.is_empty() { format!("{resource} {name}") } else { format!("{resource} {namespace}/{name}") }
}

/// Indentation of the lines below a count.
const INDENT: usize = 8;
/// Without a terminal a value is shown with at most so many characters.
const VALUE: usize = 48;

fn heading(lines: &mut Vec<String>, title: &str, text: &str, look: TerminalStyle) {
    lines.push(String::new());
    let mut row = Row::new(look);
    row.put(Some(Ink::Strong), title).put(Some(Ink::Faint), text);
    lines.push(row.finish());
}

/// One line below a count.
fn below(lines: &mut Vec<String>, text: &str, look: TerminalStyle) {
    let mut row = Row::new(look);
    row.put(None, &" ".repeat(INDENT)).put(None, &printable(text));
    lines.push(row.finish());
}

/// A value in as many columns as there are. Where it is longer it goes without what it has in common with another one,
/// so that an image shows its tag and not its registry.
fn value(value: Option<&str>, other: Option<&str>, room: usize) -> String {
    let Some(value) = value else { return "nothing".to_owned() };
    let same = other
        .filter(|_| value.chars().count() > room)
        .map_or(0, |other| if value.starts_with('"') && other.starts_with('"') { common(value, other) } else { 0 });
    match value.get(same..).filter(|_| same > 0) {
        Some(rest) => cut(&format!("…{}", rest.trim_end_matches('"')), room).into_owned(),
        None => cut(value, room).into_owned(),
    }
}

fn fights(lines: &mut Vec<String>, fights: &[Fight], look: TerminalStyle) {
    if fights.is_empty() {
        return;
    }
    heading(lines, "FOUGHT OVER", ": fields that managers keep changing back and forth", look);
    for fight in fights {
        let mut row = Row::new(look);
        row.put(Some(Ink::Bad), &format!("{:>5}x", count(fight.writes))).to(INDENT);
        row.put(Some(Ink::Strong), &printable(&object(&fight.resource, &fight.namespace, &fight.name)));
        lines.push(row.finish());
        below(lines, &fight.field, look);
        for side in &fight.sides {
            let by = format!(" by {}, {}", side.manager, plural(side.times, "time", "times"));
            let room = look.width.map_or(VALUE, |width| width.saturating_sub(INDENT + by.chars().count()).max(8));
            let other = fight.sides.iter().find(|other| other.value != side.value);
            let other = other.and_then(|other| other.value.as_deref());
            below(lines, &format!("{}{by}", value(side.value.as_deref(), other, room)), look);
        }
        if let (Some(first), Some(last)) = (fight.first, fight.last) {
            below(lines, &format!("from {} to {}", moment(first), moment(last)), look);
        }
    }
}

fn written(lines: &mut Vec<String>, fields: &[Written], look: TerminalStyle) {
    if fields.is_empty() {
        return;
    }
    heading(lines, "AGAIN AND AGAIN", ": fields that are written most", look);
    for field in fields {
        let mut row = Row::new(look);
        row.put(Some(Ink::Change), &format!("{:>5}x", count(field.writes))).to(INDENT);
        row.put(Some(Ink::Strong), &printable(&object(&field.resource, &field.namespace, &field.name)));
        if !field.managers.is_empty() {
            row.put(None, &printable(&format!(" by {}", field.managers.join(", "))));
        }
        lines.push(row.finish());
        below(lines, &field.field, look);
        let stamps = match field.time_stamps {
            0 => "last",
            stamps if stamps == field.writes => "a time stamp, last",
            _ => "mostly a time stamp, last",
        };
        let room = look.width.map_or(VALUE, |width| (width.saturating_sub(INDENT + stamps.len() + 4) / 2).max(8));
        let (was, is) = (field.was.as_deref(), field.value.as_deref());
        let (was, is) = (value(was, is, room), value(is, was, room));
        below(lines, &format!("{stamps} {was} → {is}"), look);
    }
}

fn requests(lines: &mut Vec<String>, requests: &Requests, look: TerminalStyle) {
    let time = match (requests.since, requests.until) {
        (Some(since), Some(until)) => format!(": {} to {}", moment(since), moment(until)),
        _ => String::new(),
    };
    heading(lines, "REQUESTS", &time, look);
    lines.push("As one API server counted them: others behind the same address are not in it,".to_owned());
    lines.push("and the counters name no sender. A write that made no version changed nothing.".to_owned());
    if requests.unread_seconds > 0 {
        lines.push(format!("They were not read for {} of that time.", span(requests.unread_seconds)));
    }
    if let Some(problem) = &requests.problem {
        let text = format!("The last reading failed: {problem}");
        lines.push(sentence(look, 2, Some(Ink::Bad), &printable(&text)));
    }
    let rows = requests.resources.iter().map(|of| {
        let dropped = match (of.dropped, of.at_least) {
            (Some(0), false) => "-".to_owned(),
            (Some(dropped), false) => format!("{} ({})", count(dropped), percent(dropped, of.requests)),
            (Some(dropped), true) => format!("{}+ ({})", count(dropped), percent(dropped, of.requests)),
            (None, _) => "?".to_owned(),
        };
        let much = of.dropped.is_some_and(|dropped| dropped > 0 && dropped * 2 >= of.requests);
        let verbs: Vec<String> = of.verbs.iter().map(|(verb, number)| format!("{verb} {}", count(*number))).collect();
        let name = format!("{}: {}", of.resource, if verbs.is_empty() { "-".to_owned() } else { verbs.join(", ") });
        let numbers = vec![count(of.requests), count(of.versions.all), dropped];
        (numbers, if much { Some(Ink::Change) } else { None }, name)
    });
    grid(lines, &["REQUESTS", "VERSIONS", "NO-OP", "RESOURCE"], rows.collect(), look);
    for (of, note) in requests.resources.iter().filter_map(|of| Some((of, of.note.as_deref()?))) {
        lines.push(sentence(look, 2, Some(Ink::Faint), &printable(&format!("{}: {note}", of.resource))));
    }
}

fn percent(part: u64, whole: u64) -> String {
    let tenths = (u128::from(part) * 1000 + u128::from(whole) / 2).checked_div(u128::from(whole)).unwrap_or(0);
    format!("{}%", (tenths + 5) / 10)
}
