//! Objects under one another, as kubectl shows them, with what decklog alone knows.

use jiff::Timestamp;
use serde::Deserialize;

use super::super::clock::moment;
use super::super::output::{Ink, TerminalStyle, printable, span, table};
use super::{Found, spelled};
use crate::query::select::labels_of;

/// The objects that were there, those of a resource one after the other.
pub(super) struct Table {
    /// The moment that ages are counted to.
    now: Timestamp,
    groups: Vec<Group>,
}

struct Group {
    resource: String,
    namespaced: bool,
    rows: Vec<Row>,
}

struct Row {
    namespace: String,
    name: String,
    /// With its kind.
    spelled: String,
    created: Option<Timestamp>,
    changed: Option<Timestamp>,
    seq: Option<u64>,
    uid: Option<String>,
    labels: String,
}

#[derive(Deserialize)]
struct Object {
    metadata: Metadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(default)]
    creation_timestamp: Option<Timestamp>,
    #[serde(default)]
    uid: Option<String>,
}

impl Table {
    /// An empty one, as of a moment.
    pub(super) const fn new(now: Timestamp) -> Self {
        Self { now, groups: Vec::new() }
    }

    /// Adds an object.
    pub(super) fn add(&mut self, found: &Found) {
        let object = found.object.get();
        let metadata = serde_json::from_str::<Object>(object).ok().map(|object| object.metadata);
        let (created, uid) = metadata.map_or((None, None), |metadata| (metadata.creation_timestamp, metadata.uid));
        let labels: Vec<String> =
            labels_of(object.as_bytes()).iter().map(|(key, value)| format!("{key}={value}")).collect();
        let (seq, changed) = found.changed.unzip();
        let line = Row {
            namespace: found.namespace.clone(),
            name: found.name.clone(),
            spelled: spelled(found),
            created,
            changed: changed.flatten(),
            seq: seq.map(|seq| seq.0),
            uid,
            labels: labels.join(","),
        };
        let resource = found.resource.full_name();
        match self.groups.iter_mut().find(|group| group.resource == resource) {
            Some(group) => group.rows.push(line),
            None => self.groups.push(Group { resource, namespaced: found.resource.namespaced, rows: vec![line] }),
        }
    }

    /// A table for each resource.
    pub(super) fn lines(&self, look: TerminalStyle, namespaces: bool, wide: bool) -> Vec<String> {
        let look = if wide { TerminalStyle { width: None, ..look } } else { look };
        let since = |time: Option<Timestamp>| time.map(|time| span(self.now.duration_since(time).as_secs()));
        let mut lines = Vec::new();
        for group in &self.groups {
            let namespaces = namespaces && group.namespaced;
            let mut head = vec!["NAME", "AGE", "LAST CHANGE", "SEQ"];
            if namespaces {
                head.insert(0, "NAMESPACE");
            }
            if wide {
                head.extend(["CREATED", "UID", "LABELS"]);
            }
            let rows: Vec<Vec<(Option<Ink>, String)>> = group
                .rows
                .iter()
                .map(|row| {
                    let name = if self.groups.len() > 1 { &row.spelled } else { &row.name };
                    let mut cells = vec![
                        Some(name.clone()),
                        since(row.created),
                        since(row.changed).map(|span| format!("{span} ago")),
                        row.seq.map(|seq| seq.to_string()),
                    ];
                    if namespaces {
                        cells.insert(0, Some(row.namespace.clone()));
                    }
                    if wide {
                        let labels = Some(row.labels.clone()).filter(|labels| !labels.is_empty());
                        cells.extend([row.created.map(moment), row.uid.clone(), labels]);
                    }
                    let cell = |cell: Option<String>| {
                        cell.map_or_else(|| "-".to_owned(), |cell| printable(&cell).into_owned())
                    };
                    cells.into_iter().map(|text| (None, cell(text))).collect()
                })
                .collect();
            if !lines.is_empty() {
                lines.push(String::new());
            }
            lines.extend(table(look, &head, &rows));
        }
        lines
    }
}
