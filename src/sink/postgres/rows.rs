//! Entries as rows: what is taken out of a line beside the line itself.

use std::collections::HashMap;

use crate::core::wire::Header;
use crate::sink::{Item, LogPosition, SinkError};

/// Entries of one epoch and one cluster, column by column.
#[derive(Debug, Default)]
pub(super) struct Rows<'i> {
    pub(super) epoch: String,
    /// The uid of the cluster.
    pub(super) cluster: String,
    pub(super) seq: Vec<i64>,
    /// See [`COLUMNS`].
    pub(super) columns: [Vec<String>; COLUMNS],
    pub(super) line: Vec<&'i str>,
    headers: Vec<&'i Header<'static>>,
    /// The seqs of those that are the last word on their object, in these rows.
    pub(super) last: Vec<i64>,
}

/// Number of text columns: id, time, type, evidence, cluster_name, api_group, api_version, resource, kind, namespace, name,
/// uid, resource_version.
pub(super) const COLUMNS: usize = 13;

/// Indexes of the id and of the time.
pub(super) const ID: usize = 0;
pub(super) const TIME: usize = 1;

/// Index of the name of the cluster.
pub(super) const CLUSTER_NAME: usize = 4;

impl<'i> Rows<'i> {
    /// The rows of as many entries from the beginning as have the epoch and the cluster of the first.
    ///
    /// # Errors
    /// Where the first is no entry.
    pub(super) fn of(items: &'i [Item]) -> Result<Self, SinkError> {
        let mut rows = Self::default();
        let mut last = HashMap::new();
        for item in items {
            let refused = |text: String| SinkError::Refused { text };
            let read = item.header().map_err(|error| format!("it is {error}"));
            let read = read.and_then(|entry| Ok((entry, text_of(item)?)));
            let (entry, line) = match read {
                Ok(read) => read,
                Err(text) if rows.seq.is_empty() => return Err(refused(text)),
                // It comes first in what follows.
                Err(_) => break,
            };
            if rows.seq.is_empty() {
                rows.epoch = plain(&entry.epoch);
                rows.cluster = plain(&entry.cluster.uid);
            } else if entry.epoch != rows.epoch || entry.cluster.uid != rows.cluster {
                break;
            }
            let seq = i64::try_from(entry.seq).map_err(|_| refused("its seq is too large".to_owned()))?;
            let optional = |value: &Option<std::borrow::Cow<'_, str>>| plain(value.as_deref().unwrap_or_default());
            let columns = [
                plain(&entry.id),
                plain(&entry.time),
                plain(entry.op.as_str()),
                optional(&entry.evidence),
                plain(&entry.cluster.name),
                plain(entry.group()),
                plain(&entry.api_version),
                plain(&entry.resource),
                plain(&entry.kind),
                optional(&entry.namespace),
                optional(&entry.name),
                optional(&entry.uid),
                optional(&entry.resource_version),
            ];
            if entry.op.is_change() {
                let key = [entry.group(), &entry.resource, optional(&entry.namespace).as_str(), &columns[10]].join("/");
                last.insert(key, seq);
            }
            rows.seq.push(seq);
            rows.columns.iter_mut().zip(columns).for_each(|(column, value)| column.push(value));
            rows.line.push(line);
            rows.headers.push(entry);
        }
        rows.last = last.into_values().collect();
        rows.last.sort_unstable();
        Ok(rows)
    }

    /// Returns the number of rows.
    pub(super) fn len(&self) -> usize {
        self.seq.len()
    }

    /// The place of one of them.
    pub(super) fn place(&self, at: usize) -> LogPosition {
        LogPosition::at(self.headers[at])
    }
}

fn text_of(item: &Item) -> Result<&str, String> {
    std::str::from_utf8(&item.line).map_err(|_| "it is not UTF-8".to_owned())
}

/// The text of a column. The one character that PostgreSQL has in no text is replaced there; the line has it as an
/// escape, and keeps it.
fn plain(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::wire::tests::parsed;
    use crate::sink::tests::{item, item_of};

    #[test]
    fn entries_become_rows_as_far_as_they_have_one_epoch() {
        let items = [item(1), item(2), item_of("f", 3)];
        let rows = Rows::of(&items).unwrap();
        assert_eq!((rows.epoch.as_str(), rows.cluster.as_str(), &rows.seq[..]), ("e", "c", &[1, 2][..]));
        assert_eq!(
            rows.line,
            items[..2].iter().map(|item| std::str::from_utf8(&item.line).unwrap()).collect::<Vec<_>>()
        );
        // Both are of the same object.
        assert_eq!(rows.last, [2]);
        let first: Vec<&str> = rows.columns.iter().map(|column| column[0].as_str()).collect();
        assert_eq!(
            first,
            [
                "u.1.MODIFIED",
                "2026-11-21T10:15:00.000000Z",
                "MODIFIED",
                "watched",
                "prod",
                "apps",
                "apps/v1",
                "deployments",
                "Deployment",
                "shop",
                "web",
                "u",
                "1"
            ]
        );
        assert_eq!(Rows::of(&items[2..]).unwrap().epoch, "f");
    }

    #[test]
    fn an_entry_is_read_once() {
        let (items, before) = ([1, 2, 3].map(item), parsed());
        for from in [0, 1] {
            // As after an answer that was lost.
            let rows = Rows::of(&items[from..]).unwrap();
            assert_eq!(rows.place(0), LogPosition::at(items[from].header().unwrap()));
        }
        assert_eq!(parsed() - before, items.len());
    }

    #[test]
    fn what_is_no_entry_is_refused_when_it_comes_first() {
        let broken = Item { line: "{}".into(), ..item(2) };
        let items = [item(1), broken];
        assert_eq!(Rows::of(&items).unwrap().len(), 1);
        assert!(matches!(Rows::of(&items[1..]), Err(SinkError::Refused { .. })));
        let line = String::from_utf8(item(3).line.to_vec()).unwrap().replace("\"web\",\"uid\"", "\"w\\u0000\",\"uid\"");
        let odd = [Item { line: line.into(), ..item(3) }];
        assert_eq!(Rows::of(&odd).unwrap().columns[10], ["w\u{fffd}"]);
    }
}
