//! An entry on one line, for people.
//!
//! ```text
//! 2026-11-21 (UTC)
//!  412 10:32:01.123 MODIFIED deployments.apps shop/web   spec  replicas 3 → 5  (kubectl Update)
//!  413 10:35:00.000 GAP      pods expired: changes may be missing from 8121 to 9340, since 10:29:41
//! ```
//!
//! On a terminal the day stands on a line of its own when it changes, and a line ends with the terminal. Everywhere
//! else each line has its whole time and is not cut, so that it can be searched and sorted alone.

use std::borrow::Cow;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::output::{Ink, Look, Row, printable};
use super::what::Described;
use crate::model::EntryType;
use crate::wire::{Entry, EntryError};

/// Prints entries one under the other.
#[derive(Debug)]
pub(super) struct Lines {
    look: Look,
    /// The day of the line before.
    day: String,
    seq_width: usize,
    /// Where the details begin; grows with what was seen, up to a bound, so that details stand under each other.
    target_width: usize,
}

/// Names longer than this push their own details to the right.
const WIDEST_TARGET: usize = 44;

impl Lines {
    /// Lines of a log whose seqs are about as long as `head`.
    pub(super) fn new(look: Look, head: u64) -> Self {
        Self { look, day: String::new(), seq_width: head.to_string().len().max(4), target_width: 24 }
    }

    /// The line of an entry, and before it the line of a new day.
    pub(super) fn render(&mut self, line: &[u8]) -> Result<String, EntryError> {
        let entry = Entry::parse(line)?;
        let mut out = String::new();
        let mut row = Row::new(self.look);
        let (day, time) = day_and_time(&entry.time);
        if self.look.terminal {
            if day != self.day {
                let mut head = Row::new(self.look);
                head.put(Some(Ink::Faint), &format!("{day} (UTC)"));
                out = head.finish() + "\n";
                self.day = day;
            }
            row.put(Some(Ink::Faint), &format!("{:>width$} {time}", entry.seq, width = self.seq_width));
        } else {
            row.put(Some(Ink::Faint), &format!("{:>width$} {day}T{time}Z", entry.seq, width = self.seq_width));
        }
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
        };
        row.put(None, " ").put(Some(ink), &format!("{:<8}", kind.as_str())).put(None, " ");
        let start = row.columns();
        put_target(&mut row, &entry);
        self.target_width = self.target_width.max((row.columns() - start).min(WIDEST_TARGET));
        row.to(if kind == EntryType::Gap { 0 } else { start + self.target_width + 1 });
        match kind {
            // Of a damaged one nothing is known but that it is there; `verify` finds it.
            EntryType::Modified => drop(Described::read(&entry).map(|described| described.put(&mut row))),
            EntryType::Gap => put_gap(&mut row, &entry),
            EntryType::Added | EntryType::Deleted => {}
        }
        // What the API server said on a watch is the rule and goes without saying.
        if let Some(evidence) = entry.evidence.as_deref().filter(|evidence| *evidence != "watched") {
            let apart = if kind == EntryType::Modified { "  " } else { "" };
            row.put(None, apart).put(Some(Ink::Faint), &printable(evidence));
        }
        out.push_str(&row.finish());
        Ok(out)
    }
}

/// `deployments.apps shop/web`.
fn put_target(row: &mut Row, entry: &Entry<'_>) {
    row.put(None, &printable(&entry.full_resource()));
    let object = match (entry.namespace.as_deref(), entry.name.as_deref()) {
        (None, None) => return,
        (Some(namespace), None) => format!("{namespace}/"),
        (None, Some(name)) => name.to_owned(),
        (Some(namespace), Some(name)) => format!("{namespace}/{name}"),
    };
    row.put(None, " ").put(Some(Ink::Strong), &printable(&object));
}

pub(super) fn put_gap(row: &mut Row, entry: &Entry<'_>) {
    let Some(gap) = entry.gap() else { return };
    let version = |version: &Option<String>| version.as_deref().map(|version| printable(version).into_owned());
    let range = match (version(&gap.from), version(&gap.to)) {
        (Some(from), Some(to)) => format!(" from {from} to {to}"),
        (Some(from), None) => format!(" after {from}"),
        (None, Some(to)) => format!(" before {to}"),
        (None, None) => String::new(),
    };
    let since = gap.since.map_or_else(String::new, |since| {
        let (day, time) = day_and_time(&since);
        let day = if entry.time.starts_with(&day) { String::new() } else { format!("{day} ") };
        format!(", since {day}{}", time.get(..8).unwrap_or(&time))
    });
    row.put(Some(Ink::Alarm), &format!("{}: changes may be missing{range}{since}", printable(&gap.why)));
}

/// The day and the time to the millisecond, in UTC.
pub(super) fn day_and_time(time: &str) -> (String, Cow<'_, str>) {
    match time.parse::<Timestamp>() {
        Ok(time) => {
            let time = time.to_zoned(TimeZone::UTC);
            (time.strftime("%Y-%m-%d").to_string(), Cow::Owned(time.strftime("%H:%M:%S.%3f").to_string()))
        }
        Err(_) => ("????-??-??".to_owned(), printable(time)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Cluster, Evidence, Gap, ResourceVersion, Seq, Why};
    use crate::wire::{EntryBuilder, render};

    fn draft<'a>(seq: u64, cluster: &'a Cluster, name: &'a str, change: Option<&'a str>) -> EntryBuilder<'a> {
        EntryBuilder {
            seq: Seq(seq),
            epoch: "e",
            time: "2026-11-21T10:32:01.123456Z",
            happened: None,
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
            change,
            object: Some(OBJECT),
            gap: None,
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
                ..draft(6, &cluster, "a-name-that-is-longer-than-most-names-one-sees-in-a-cluster", None)
            },
            EntryBuilder { object: Some("{\"da\u{9b}ta\":\"\\u001b]0;x\\u0007\u{9b}\"}".as_bytes()), ..draft(7, &cluster, "\u{1b}[2J\u{202e}evil", Some("{\"areas\":[\"da\u{9b}ta\"],\"patch\":[{\"op\":\"replace\",\"path\":\"/da\u{9b}ta\",\"value\":\"\\u001b]0;x\\u0007\u{9b}\",\"was\":1}],\"managers\":[{\"manager\":\"\\u001b[31m\"}]}")) },
        ]
        .iter()
        .map(|draft| render(draft).line)
        .collect()
    }

    fn printed(look: Look) -> String {
        let mut lines = Lines::new(look, 7);
        log().iter().map(|line| lines.render(line).unwrap() + "\n").collect()
    }

    #[test]
    fn a_log_reads_well_in_100_columns() {
        let text = printed(Look { color: false, terminal: true, width: Some(100) });
        insta::assert_snapshot!(text, @r#"
        2026-11-21 (UTC)
           1 10:32:01.123 ADDED    deployments.apps shop/web listed
           2 10:32:01.123 MODIFIED deployments.apps shop/web spec status  replicas 3 → 5, +3  (kubectl-clie…
           3 10:32:01.123 MODIFIED deployments.apps shop/web spec  image …1.27.2-alpine → …1.27.3-alpine  (…
           4 10:32:01.123 MODIFIED nodes worker-1            nothing but resourceVersion
        2026-11-22 (UTC)
           5 00:00:07.000 GAP      deployments.apps expired: changes may be missing from 8121 to 9340, since 2026-11-21 23:58:41
           6 00:00:07.000 DELETED  deployments.apps shop/a-name-that-is-longer-than-most-names-one-sees-in-…
        2026-11-21 (UTC)
           7 10:32:01.123 MODIFIED deployments.apps shop/\u{1b}[2J\u{202e}evil  da\u{9b}ta  da\u{9b}ta 1 → …
        "#);
        assert!(text.lines().all(|line| line.contains("GAP") || line.chars().count() <= 100));
    }

    #[test]
    fn without_a_terminal_each_line_stands_alone_and_is_whole() {
        insta::assert_snapshot!(printed(Look::default()), @r#"
        1 2026-11-21T10:32:01.123Z ADDED    deployments.apps shop/web listed
        2 2026-11-21T10:32:01.123Z MODIFIED deployments.apps shop/web spec status  replicas 3 → 5, -spec.paused, +label tier web, +1 more  (kubectl-client-side-apply Update)
        3 2026-11-21T10:32:01.123Z MODIFIED deployments.apps shop/web spec  image …1.27.2-alpine → …1.27.3-alpine  (helm)
        4 2026-11-21T10:32:01.123Z MODIFIED nodes worker-1            nothing but resourceVersion
        5 2026-11-22T00:00:07.000Z GAP      deployments.apps expired: changes may be missing from 8121 to 9340, since 2026-11-21 23:58:41
        6 2026-11-22T00:00:07.000Z DELETED  deployments.apps shop/a-name-that-is-longer-than-most-names-one-sees-in-a-cluster inferred
        7 2026-11-21T10:32:01.123Z MODIFIED deployments.apps shop/\u{1b}[2J\u{202e}evil  da\u{9b}ta  da\u{9b}ta 1 → \u{1b}]0;x\u{7}\u{9b}  (\u{1b}[31m)
        "#);
    }

    #[test]
    fn colours_change_nothing_but_colours() {
        let look = Look { color: true, terminal: true, width: Some(100) };
        let colored = printed(look);
        assert!(colored.contains("\u{1b}[32mADDED"), "{colored}");
        let plain = anstream::adapter::strip_str(&colored).to_string();
        assert_eq!(plain, printed(Look { color: false, ..look }));
    }

    #[test]
    fn hostile_names_and_values_are_shown_and_not_obeyed() {
        for width in [None, Some(40), Some(100), Some(200)] {
            let text = printed(Look { color: false, terminal: width.is_some(), width });
            assert!(!text.contains(|c| c != '\n' && crate::terminal::is_unprintable(c)), "{text:?}");
        }
    }
}
