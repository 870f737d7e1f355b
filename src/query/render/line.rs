//! An entry on one line, for people.
//!
//! ```text
//! 2026-11-21 (CET, +01:00)
//!  412 11:32:01 MODIFIED shop deploy/web   kubectl Update scale  replicas 3 → 5
//!  413 11:35:00 GAP      pods expired: changes may be missing from 8121 to 9340, since 11:29:41
//! ```
//!
//! On a terminal the day stands on a line of its own when it changes, names are short, and what does not fit goes on in
//! the line below. Everywhere else each line has its whole time and full names, so that it can be searched and sorted
//! alone.

use std::collections::{BTreeSet, HashMap};

use super::clock::{Clock, Stamp, clock, moment};
use super::names::kind;
use super::rewrite::sentence;
use super::row::{Ink, Row, TerminalStyle, plural, printable};
use super::what::AnnotatedEntry;
use super::who;
use crate::core::model::{EntryType, Resource};
use crate::core::wire::{Entry, EntryError};
use crate::journal::StoredEntry;
use crate::query::moment::{Known, Span};
use crate::query::rewrites::Rewrite;

/// Prints entries one under the other.
#[derive(Debug)]
pub(crate) struct Lines {
    look: TerminalStyle,
    clock: Clock,
    /// Heading of the previous line's day.
    day: String,
    seq_width: usize,
    /// Column at which the details begin; grows with the entries seen, up to a bound, so that details are aligned.
    target_width: usize,
    /// Short names of resources, by their full ones.
    kinds: HashMap<String, String>,
}

/// Fewer gaps in a row than this have a line each.
pub(crate) const FEW_GAPS: usize = 3;
/// Number of sources that a line of gaps names.
const NAMED_GAPS: usize = 6;

/// Names longer than this, or than a third of a terminal, push their own details to the right.
const WIDEST_TARGET: usize = 44;

impl Lines {
    /// Lines of a log whose seqs are about as long as `head`.
    pub(crate) fn new(look: TerminalStyle, head: u64) -> Self {
        Self::at(look, head, clock().clone())
    }

    /// Creates lines as [`Lines::new`] does, with the times of this clock.
    pub(crate) fn at(look: TerminalStyle, head: u64, clock: Clock) -> Self {
        let seq_width = head.to_string().len().max(4);
        let target_width = widest_target(look).min(24);
        Self { look, clock, day: String::new(), seq_width, target_width, kinds: HashMap::new() }
    }

    /// Learns the short names of resources.
    pub(crate) fn learn(&mut self, resources: &[Resource]) {
        if self.look.terminal {
            self.kinds = resources.iter().map(|resource| (resource.full_name(), kind(resource))).collect();
        }
    }

    /// The beginning of the line of an entry, its seq and its time, and before it the line of a new day.
    fn begin(&mut self, entry: &Entry<'_>) -> (String, Row) {
        let mut out = String::new();
        let mut row = Row::new(self.look);
        let (before, behind) = marks(entry, self.look);
        let stamp = shown(&self.clock, entry, self.look);
        let width = self.seq_width;
        if self.look.terminal {
            let day = stamp.day();
            if day != self.day {
                let mut head = Row::new(self.look);
                head.put(Some(Ink::Faint), &day);
                out = head.finish() + "\n";
                self.day = day;
            }
            row.put(Some(Ink::Faint), &format!("{:>width$}{before}{}", entry.seq, stamp.time));
        } else {
            row.put(Some(Ink::Faint), &format!("{:>width$} {}", entry.seq, stamp.whole));
        }
        row.put(Some(Ink::Faint), behind);
        (out, row)
    }

    /// One line for gaps of several sources for one reason, as after an outage. Nothing where there are few: then each
    /// has its own.
    ///
    /// # Errors
    /// Where one of the lines is no entry.
    pub(crate) fn gaps<'l>(&mut self, lines: impl Iterator<Item = &'l [u8]>) -> Result<Option<String>, EntryError> {
        let entries = lines.map(Entry::parse).collect::<Result<Vec<_>, _>>()?;
        // One that names an object has its own line, because nothing else would say which one that is.
        let is_one = entries.len() >= FEW_GAPS && entries.iter().all(|entry| entry.name.is_none());
        let Some(first) = entries.first().filter(|_| is_one) else { return Ok(None) };
        let (mut out, mut row) = self.begin(first);
        row.uncut();
        row.put(Some(Ink::Alarm), &format!("{:<8}", EntryType::Gap.as_str())).put(None, " ");
        row.hang(row.columns() + 2);
        put_gaps(&mut row, &entries, &self.clock);
        out.push_str(&row.finish());
        Ok(Some(out))
    }

    /// The line of a storage rewrite, at its last entry.
    pub(crate) fn rewrite(&mut self, entry: &Entry<'_>, rewrite: &Rewrite) -> String {
        let (mut out, mut row) = self.begin(entry);
        row.put(Some(Ink::Faint), &format!("{:<8}", entry.op.as_str())).put(None, " ");
        row.hang(row.columns() + 2);
        let text = sentence(rewrite, &self.clock, self.look);
        for (at, word) in text.split(' ').enumerate() {
            row.flow(Some(Ink::Faint), if at == 0 { "" } else { " " }, word);
        }
        out.push_str(&row.finish());
        out
    }

    /// The line of an entry, and before it the line of a new day.
    pub(crate) fn render(&mut self, line: &[u8]) -> Result<String, EntryError> {
        self.render_entry(&Entry::parse(line)?)
    }

    /// Renders a parsed entry as [`Lines::render`] does.
    pub(crate) fn render_entry(&mut self, entry: &Entry<'_>) -> Result<String, EntryError> {
        let (mut out, mut row) = self.begin(entry);
        let kind = entry.op;
        if kind == EntryType::Gap {
            // Never cut: it says what the log does not know.
            row.uncut();
        }
        let ink = match kind {
            EntryType::Added => Ink::Good,
            EntryType::Modified => Ink::Change,
            EntryType::Deleted => Ink::Bad,
            EntryType::Gap => Ink::Alarm,
            EntryType::Actor => Ink::Who,
        };
        row.put(Some(ink), &format!("{:<8}", kind.as_str())).put(None, " ");
        let start = row.columns();
        row.hang(start + 2);
        self.put_target(&mut row, entry);
        if kind == EntryType::Gap {
            row.put(None, " ");
            put_gap(&mut row, entry, &self.clock);
        } else {
            let used = row.columns().saturating_sub(start);
            self.target_width = self.target_width.max(used.min(widest_target(self.look)));
            row.to(start + self.target_width + 1);
        }
        let said = match kind {
            // Of a damaged one nothing is known but that it is there; `verify` finds it.
            EntryType::Added | EntryType::Modified | EntryType::Deleted => {
                AnnotatedEntry::read(entry).is_ok_and(|described| described.put(&mut row, kind))
            }
            EntryType::Gap => false,
            EntryType::Actor => put_actor(&mut row, entry),
        };
        // What the API server said on a watch is the rule and goes without saying.
        if let Some(evidence) = entry.evidence.as_deref().filter(|evidence| *evidence != "watched") {
            row.flow(None, if said { "  " } else { "" }, &printable(evidence));
        }
        put_late(&mut row, entry, &self.clock, self.look);
        out.push_str(&row.finish());
        Ok(out)
    }

    /// `shop deploy/web` on a terminal, elsewhere `deployments.apps shop/web`.
    fn put_target(&self, row: &mut Row, entry: &Entry<'_>) {
        let resource = entry.full_resource();
        let (namespace, name) = (entry.namespace.as_deref(), entry.name.as_deref());
        if self.look.terminal {
            if let Some(namespace) = namespace {
                row.put(None, &printable(namespace)).put(None, " ");
            }
            match name {
                Some(name) => {
                    let kind = self.kinds.get(&resource).unwrap_or(&resource);
                    row.flow(Some(Ink::Strong), "", &printable(&format!("{kind}/{name}")));
                }
                None => drop(row.put(None, &printable(&resource))),
            }
            return;
        }
        row.put(None, &printable(&resource));
        let object = match (namespace, name) {
            (None, None) => return,
            (Some(namespace), None) => format!("{namespace}/"),
            (None, Some(name)) => name.to_owned(),
            (Some(namespace), Some(name)) => format!("{namespace}/{name}"),
        };
        row.put(None, " ").put(Some(Ink::Strong), &printable(&object));
    }
}

/// Puts who made which entry. Reports whether there was anything to put.
fn put_actor(row: &mut Row, entry: &Entry<'_>) -> bool {
    let (Some(actor), Some(of)) = (entry.actor(), &entry.of) else { return false };
    row.flow(Some(Ink::Who), "", &who::sender(&actor));
    row.flow(None, " ", &format!("made entry {}", of.seq));
    true
}

fn widest_target(look: TerminalStyle) -> usize {
    look.width.map_or(WIDEST_TARGET, |width| WIDEST_TARGET.min(width / 3))
}

/// Behind the time of a line: that is when it happened, and it was journaled later.
const LATE: &str = "~";
/// Before the time of a line: it happened then or earlier.
const NOT_AFTER: &str = "≤";

/// The time that a line begins with: on a terminal when it happened, where that is known and was earlier, or the latest time.
pub(crate) fn shown(clock: &Clock, entry: &Entry<'_>, look: TerminalStyle) -> Stamp {
    let span = Span::of(entry);
    match span.is {
        Known::Stamped if look.terminal => clock.stamp(&span.earliest.to_string()),
        Known::Between if look.terminal => clock.stamp(&span.latest.to_string()),
        Known::Exactly | Known::Stamped | Known::Between => clock.stamp(&entry.time),
    }
}

/// Returns the marks before and behind the time that a line begins with.
pub(crate) fn marks(entry: &Entry<'_>, look: TerminalStyle) -> (&'static str, &'static str) {
    let span = Span::of(entry);
    match span.is {
        Known::Between if look.terminal && span.earliest < span.latest => (NOT_AFTER, " "),
        Known::Stamped | Known::Between if look.terminal => (" ", LATE),
        Known::Exactly | Known::Stamped | Known::Between => (" ", " "),
    }
}

/// Writes what may be missing right before a deletion, and the time of the change in the cluster as far as the beginning of the line
/// does not say it.
pub(crate) fn put_late(row: &mut Row, entry: &Entry<'_>, clock: &Clock, look: TerminalStyle) {
    if let Some(gap) = entry.gap_before() {
        let from = gap.from.map_or_else(String::new, |from| format!(" since resourceVersion {}", printable(&from)));
        row.put(Some(Ink::Alarm), &format!("  {}{from}", printable(&gap.why)));
    }
    let span = Span::of(entry);
    match span.is {
        Known::Stamped if !look.terminal => {
            row.put(None, &format!("  happened {}", moment(span.earliest)));
        }
        Known::Between if !look.terminal => {
            row.put(None, &format!("  happened {}…{}", moment(span.earliest), moment(span.latest)));
        }
        Known::Between if span.earliest < span.latest => {
            let (earliest, latest) = (clock.stamp(&span.earliest.to_string()), clock.stamp(&span.latest.to_string()));
            let earliest = if earliest.day() == latest.day() { earliest.time } else { earliest.whole };
            row.flow(None, "  ", &format!("{earliest}…{}", latest.time));
        }
        Known::Exactly | Known::Stamped | Known::Between => {}
    }
}

/// Writes a gap; on a terminal a time of the same day goes without its date.
pub(crate) fn put_gap(row: &mut Row, entry: &Entry<'_>, clock: &Clock) {
    let Some(gap) = entry.gap() else { return };
    let version = |version: &Option<String>| version.as_deref().map(|version| printable(version).into_owned());
    let range = match (version(&gap.from), version(&gap.to)) {
        (Some(from), Some(to)) => format!(" from {from} to {to}"),
        (Some(from), None) => format!(" after {from}"),
        (None, Some(to)) => format!(" before {to}"),
        (None, None) => String::new(),
    };
    let since = gap.since.map_or_else(String::new, |since| {
        let (then, now) = (clock.stamp(&since), clock.stamp(&entry.time));
        match since.parse() {
            Ok(since) if !row.is_on_terminal() || then.day() != now.day() => format!(", since {}", clock.moment(since)),
            _ => format!(", since {}", then.time),
        }
    });
    row.put(Some(Ink::Alarm), &format!("{}: changes may be missing{range}{since}", printable(&gap.why)));
}

/// Writes one text for gaps of several sources with the same reason.
pub(crate) fn put_gaps(row: &mut Row, entries: &[Entry<'_>], clock: &Clock) {
    let seqs = entries.iter().map(|entry| entry.seq);
    let (from, to) = (seqs.clone().min().unwrap_or_default(), seqs.max().unwrap_or_default());
    let gaps: Vec<_> = entries.iter().filter_map(Entry::gap).collect();
    let since = gaps.iter().filter_map(|gap| gap.since.as_deref()).min();
    let since = since.map_or_else(String::new, |since| format!(", since {}", clock.stamp(since).time));
    let why = gaps.first().map_or("", |gap| gap.why.as_str());
    let mut names: Vec<String> = entries.iter().map(|entry| entry.full_resource()).collect();
    names.sort();
    names.dedup();
    let more = names.len().saturating_sub(NAMED_GAPS);
    names.truncate(NAMED_GAPS);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let sources: BTreeSet<_> = entries.iter().map(|entry| (entry.full_resource(), entry.namespace.clone())).collect();
    let gaps = if sources.len() == entries.len() { String::new() } else { format!("{} gaps of ", entries.len()) };
    row.put(None, &format!("{gaps}{} ", plural(sources.len() as u64, "source", "sources")));
    row.put(Some(Ink::Alarm), &printable(&format!("{why}: changes may be missing{since}")));
    row.put(None, &printable(&format!(" (entries {from} to {to}): {}{more}", names.join(", "))));
}

/// Returns the reason of a gap; none for another entry.
pub(crate) fn gap_of(entry: &StoredEntry) -> Option<String> {
    let entry = Entry::parse(&entry.line).ok().filter(|entry| entry.op == EntryType::Gap)?;
    entry.gap().map(|gap| gap.why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::model::{Cluster, Evidence, Gap, ResourceVersion, Seq, Why};
    use crate::core::wire::{EntryBuilder, render};

    fn draft<'a>(seq: u64, cluster: &'a Cluster, name: &'a str, change: Option<&'a str>) -> EntryBuilder<'a> {
        EntryBuilder {
            seq: Seq(seq),
            epoch: "e",
            time: "2026-11-21T10:32:01.123456Z",
            happened: None,
            happened_between: None,
            op: if change.is_some() { EntryType::Modified } else { EntryType::Added },
            evidence: Some(Evidence::Watched),
            cluster,
            api_version: "apps/v1",
            kind: "Deployment",
            resource: "deployments",
            namespace: "shop",
            name,
            uid: "u",
            version: "41",
            managers: None,
            change,
            object: Some(OBJECT),
            gap: None,
            actor: None,
            redacted: &[],
        }
    }

    const OBJECT: &[u8] = br#"{"metadata":{"labels":{"tier":"web"},"resourceVersion":"9"},"spec":{"replicas":5,"template":{"spec":{"containers":[{"name":"web","image":"registry.example.com/shop/web:1.27.3-alpine"}]}}},"status":{"replicas":4}}"#;
    const SCALED: &str = r#"{"areas":["managedFields","metadata","spec","status"],"patch":[{"op":"replace","path":"/metadata/resourceVersion","value":"9","was":"8"},{"op":"replace","path":"/status/replicas","value":4,"was":3},{"op":"replace","path":"/spec/replicas","value":5,"was":3},{"op":"add","path":"/metadata/labels/tier","value":"web"},{"op":"remove","path":"/spec/paused","was":true}],"managers":[{"manager":"kubectl-client-side-apply","operation":"Update","time":"x"}]}"#;
    const ROLLED: &str = r#"{"areas":["spec"],"patch":[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"registry.example.com/shop/web:1.27.3-alpine","was":"registry.example.com/shop/web:1.27.2-alpine"}],"managers":[{"manager":"helm"},{"manager":"helm"}]}"#;

    fn log() -> Vec<Vec<u8>> {
        let cluster = Cluster::default();
        let gap = Gap {
            why: Why::Expired,
            from: Some(ResourceVersion::new("8121")),
            to: Some(ResourceVersion::new("9340")),
            recovered: 0,
        };
        let bare = r#"{"areas":[],"patch":[],"managers":[]}"#;
        [
            EntryBuilder { evidence: Some(Evidence::Listed), ..draft(1, &cluster, "web", None) },
            draft(2, &cluster, "web", Some(SCALED)),
            draft(3, &cluster, "web", Some(ROLLED)),
            EntryBuilder {
                api_version: "v1",
                resource: "nodes",
                namespace: "",
                ..draft(4, &cluster, "worker-1", Some(bare))
            },
            EntryBuilder {
                op: EntryType::Gap,
                evidence: None,
                time: "2026-11-22T00:00:07Z",
                happened: None,
                happened_between: None,
                namespace: "",
                gap: Some((&gap, Some("2026-11-21T23:58:41.5Z"))),
                object: None,
                ..draft(5, &cluster, "", None)
            },
            EntryBuilder {
                op: EntryType::Deleted,
                evidence: Some(Evidence::Inferred),
                time: "2026-11-22T00:00:07.000001Z",
                happened: None,
                happened_between: None,
                ..draft(6, &cluster, "a-name-that-is-longer-than-most-names-one-sees-in-a-cluster", None)
            },
            EntryBuilder { object: Some("{\"da\u{9b}ta\":\"\\u001b]0;x\\u0007\u{9b}\"}".as_bytes()), ..draft(7, &cluster, "\u{1b}[2J\u{202e}evil", Some("{\"areas\":[\"da\u{9b}ta\"],\"patch\":[{\"op\":\"replace\",\"path\":\"/da\u{9b}ta\",\"value\":\"\\u001b]0;x\\u0007\u{9b}\",\"was\":1}],\"managers\":[{\"manager\":\"\\u001b[31m\"}]}")) },
        ]
        .iter()
        .map(|draft| render(draft).line)
        .collect()
    }

    fn printed(look: TerminalStyle) -> String {
        let mut lines = Lines::new(look, 7);
        lines.kinds = [("deployments.apps", "deploy"), ("nodes", "node")].map(|(a, b)| (a.into(), b.into())).into();
        log().iter().map(|line| lines.render(line).unwrap() + "\n").collect()
    }

    fn terminal(columns: usize) -> TerminalStyle {
        TerminalStyle { color: false, terminal: true, width: Some(columns) }
    }

    #[test]
    fn a_log_reads_well_in_80_120_and_200_columns() {
        for columns in [80, 120, 200] {
            let text = printed(terminal(columns));
            assert!(text.lines().all(|line| line.chars().count() <= columns), "{text}");
            insta::assert_snapshot!(format!("log_{columns}"), text);
        }
    }

    #[test]
    fn without_a_terminal_each_line_stands_alone_and_is_whole() {
        insta::assert_snapshot!(printed(TerminalStyle::default()), @r#"
        1 2026-11-21T10:32:01.123Z ADDED    deployments.apps shop/web listed
        2 2026-11-21T10:32:01.123Z MODIFIED deployments.apps shop/web spec status  replicas 3 → 5, -spec.paused, +label tier web, +1 more  (kubectl-client-side-apply Update)
        3 2026-11-21T10:32:01.123Z MODIFIED deployments.apps shop/web spec  image …1.27.2-alpine → …1.27.3-alpine  (helm)
        4 2026-11-21T10:32:01.123Z MODIFIED nodes worker-1            nothing but resourceVersion
        5 2026-11-22T00:00:07.000Z GAP      deployments.apps expired: changes may be missing from 8121 to 9340, since 2026-11-21T23:58:41Z
        6 2026-11-22T00:00:07.000Z DELETED  deployments.apps shop/a-name-that-is-longer-than-most-names-one-sees-in-a-cluster inferred
        7 2026-11-21T10:32:01.123Z MODIFIED deployments.apps shop/\u{1b}[2J\u{202e}evil  da\u{9b}ta  da\u{9b}ta 1 → \u{1b}]0;x\u{7}\u{9b}  (\u{1b}[31m)
        "#);
    }

    /// The day on which the clocks go back.
    #[test]
    fn a_day_with_two_offsets_has_two_heads() {
        let zone = jiff::tz::TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        let cluster = Cluster::default();
        let times =
            ["2026-10-25T00:30:00Z", "2026-10-25T00:59:59.999Z", "2026-10-25T01:00:00Z", "2026-10-25T01:30:00Z"];
        let gap = Gap { why: Why::Expired, from: None, to: None, recovered: 0 };
        let told: Vec<Vec<u8>> = (1..)
            .zip(times)
            .map(|(seq, time)| match seq {
                4 => render(&EntryBuilder {
                    time,
                    op: EntryType::Gap,
                    evidence: None,
                    gap: Some((&gap, Some("2026-10-25T00:30:00Z"))),
                    object: None,
                    ..draft(seq, &cluster, "", None)
                }),
                seq => render(&EntryBuilder { time, ..draft(seq, &cluster, "web", None) }),
            })
            .map(|rendered| rendered.line)
            .collect();
        let printed = |look: TerminalStyle| {
            let mut lines = Lines::new(look, 7);
            lines.clock.zone = zone.clone();
            told.iter().map(|line| lines.render(line).unwrap() + "\n").collect::<String>()
        };
        insta::assert_snapshot!(printed(terminal(120)), @"
        2026-10-25 (CEST, +02:00)
           1 02:30:00 ADDED    shop deployments.apps/web (no managedFields)
           2 02:59:59 ADDED    shop deployments.apps/web (no managedFields)
        2026-10-25 (CET, +01:00)
           3 02:00:00 ADDED    shop deployments.apps/web (no managedFields)
           4 02:30:00 GAP      shop deployments.apps expired: changes may be missing, since 2026-10-25T02:30:00+02:00
        ");
        insta::assert_snapshot!(printed(TerminalStyle::default()), @"
        1 2026-10-25T02:30:00.000+02:00 ADDED    deployments.apps shop/web (no managedFields)
        2 2026-10-25T02:59:59.999+02:00 ADDED    deployments.apps shop/web (no managedFields)
        3 2026-10-25T02:00:00.000+01:00 ADDED    deployments.apps shop/web (no managedFields)
        4 2026-10-25T02:30:00.000+01:00 GAP      deployments.apps shop/ expired: changes may be missing, since 2026-10-25T02:30:00+02:00
        ");
    }

    #[test]
    fn colours_change_nothing_but_colours() {
        for columns in [60, 100] {
            let look = TerminalStyle { color: true, ..terminal(columns) };
            let colored = printed(look);
            assert!(colored.contains("\u{1b}[32mADDED") && colored.contains("\u{1b}[36mhelm"), "{colored}");
            let plain = anstream::adapter::strip_str(&colored).to_string();
            assert_eq!(plain, printed(TerminalStyle { color: false, ..look }));
        }
    }

    #[test]
    fn hostile_names_and_values_are_shown_and_not_obeyed() {
        for width in [None, Some(40), Some(100), Some(200)] {
            let text = printed(TerminalStyle { color: false, terminal: width.is_some(), width });
            assert!(!text.contains(|c| c != '\n' && crate::core::terminal::is_unprintable(c)), "{text:?}");
        }
    }
}
