//! `decklog coverage`: of which time the log knows everything, and of which it does not.

use std::collections::BTreeMap;

use clap::Args;
use jiff::Timestamp;

use super::clock::clock;
use super::names::ago;
use super::output::{Ink, Out, Row, plural, printable, sentence, whole_table};
use super::{Exit, Failure, Format, Global, Outcome};
use crate::query::coverage_notes::Covered;
use crate::query::questions::coverage::Cover;

/// Arguments of `decklog coverage`.
#[derive(Args, Debug)]
pub struct CoverageArgs {
    /// Resources as kubectl spells them: deploy, deployments.apps [default: everything]
    #[arg(value_name = "KIND")]
    pub objects: Vec<String>,
    /// Only these namespaces: shop, or shop,pay
    #[arg(short, long, value_name = "NS", value_delimiter = ',')]
    pub namespace: Vec<String>,
    /// Start of the time: a duration back (10m, 1h30m, 2d) or a time (10:30, yesterday, RFC 3339) [default: the start of the log]
    #[arg(long, value_name = "WHEN", value_parser = ago, allow_hyphen_values = true)]
    pub since: Option<Timestamp>,
    /// End of the time, in the same formats [default: now]
    #[arg(long, value_name = "WHEN", value_parser = ago, allow_hyphen_values = true)]
    pub until: Option<Timestamp>,
    /// Exit with 1 if a part of the time is not covered
    #[arg(long)]
    pub check: bool,
}

/// Number of resources that a line names.
const NAMED: usize = 3;

/// Prints what the log covers.
///
/// # Errors
/// Where the journal cannot be read, or the arguments name what it does not know.
pub fn main(args: CoverageArgs, global: &Global, out: &mut Out) -> Outcome {
    let CoverageArgs { objects, namespace, since, until, check } = args;
    let mut complete = false;
    global.ask(Cover { objects, namespaces: namespace, since, until }, &mut |covered| {
        complete = covered.complete;
        match global.output.unwrap_or(Format::Line) {
            Format::Line | Format::Wide | Format::Name => print(out, &covered)?,
            format @ (Format::Json | Format::Yaml) => out.document(format, &covered)?,
        }
        out.flush()
    })?;
    Ok(if check && !complete { Exit::No } else { Exit::Done })
}

/// Start, end, reason and GAP entry.
type Stretch<'a> = (Option<i64>, i64, &'a str, Option<u64>);

fn print(out: &mut Out, covered: &Covered) -> Result<(), Failure> {
    let moment =
        |micros: i64| Timestamp::from_microsecond(micros).map_or_else(|_| String::new(), |at| clock().moment(at));
    let Some((since, until)) = covered.since.zip(covered.until) else {
        return out.line("the journal has no entries yet: nothing is known");
    };
    // What many resources have in common is one line.
    let mut stretches: BTreeMap<Stretch<'_>, Vec<String>> = BTreeMap::new();
    for one in &covered.uncovered {
        let what = match (&one.resource, &one.name, one.namespace.as_str()) {
            (None, ..) => "everything".to_owned(),
            (Some(resource), None, "") => resource.clone(),
            (Some(resource), None, namespace) => format!("{resource} in {namespace}"),
            (Some(resource), Some(name), namespace) => format!("{resource} {namespace}/{name}"),
        };
        // Sources stop and begin within a second of each other.
        let second = |micros: i64| micros.div_euclid(1_000_000) * 1_000_000;
        stretches.entry((one.from.map(second), second(one.to), &one.why, one.seq)).or_default().push(what);
    }
    let mut head = Row::new(out.look);
    head.put(None, &format!("{} to {}: ", clock().moment(since), clock().moment(until)));
    match stretches.len() as u64 {
        0 => head.put(Some(Ink::Good), "the log knows all that happened"),
        many => head.put(Some(Ink::Alarm), &plural(many, "stretch is not covered", "stretches are not covered")),
    };
    out.line(&head.finish())?;
    if !stretches.is_empty() {
        let rows = stretches.into_iter().map(|((from, to, why, seq), names)| {
            let why = match seq {
                Some(seq) => format!("GAP {why}, entry {seq}"),
                None => spoken(why).to_owned(),
            };
            let cells =
                [from.map_or_else(|| "-".to_owned(), moment), moment(to), why, printable(&listed(names)).into_owned()];
            cells.into_iter().map(|cell| (None, cell)).collect()
        });
        let rows: Vec<Vec<(Option<Ink>, String)>> = rows.collect();
        for line in whole_table(out.look, &["FROM", "TO", "WHY", "OF"], &rows) {
            out.line(&line)?;
        }
    }
    if covered.omitted > 0 {
        let stretches = plural(covered.omitted as u64, "stretch is", "stretches are");
        out.line(&sentence(out.look, 0, None, &format!("{stretches} left out; ask for a shorter time")))?;
    }
    for absence in &covered.absences {
        let (from, to) = (clock().moment(absence.from), clock().moment(absence.to));
        let changes = plural(absence.changes as u64, "change of that time was", "changes of that time were");
        let text = format!("no daemon ran from {from} to {to}: {changes} found afterwards");
        out.line(&sentence(out.look, 0, None, &text))?;
    }
    Ok(())
}

/// `pods, services and 3 more`
fn listed(mut names: Vec<String>) -> String {
    names.sort();
    names.dedup();
    let more = names.len().saturating_sub(NAMED);
    names.truncate(NAMED);
    let names = names.join(", ");
    if more > 0 { format!("{names} and {more} more") } else { names }
}

/// Returns the reason for people.
fn spoken(why: &str) -> &str {
    match why {
        "before_log" => "before the log",
        "retention" => "removed by retention",
        "silent" => "the API server does not answer",
        "frozen" => "the daemon makes no progress",
        "stopped" => "no daemon runs",
        "removed" => "not watched any more",
        "not_yet" => "not watched yet",
        other => other,
    }
}
