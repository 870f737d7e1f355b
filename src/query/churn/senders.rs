//! Senders of requests that wrote nothing, by the audit log: the culprits whom the API server's own counters do not name.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::journal::{OTHER_SENDERS, UnwrittenKind, UnwrittenRow};

/// Requests that wrote nothing, by sender.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Senders {
    /// True if an audit log is read. Without one there are only those of before.
    pub audit_log: bool,
    /// The first of these requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<Timestamp>,
    /// The last of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<Timestamp>,
    /// All of them that changed nothing.
    pub no_op: u64,
    /// All that were refused because another write came first.
    pub conflicts: u64,
    /// All that were refused because the name was taken.
    pub already_exists: u64,
    /// By sender, verb and resource; most requests first.
    pub rows: Vec<SenderRow>,
}

/// Requests of one sender to one resource that wrote nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SenderRow {
    /// User; `(others)` for those beyond the bound of an hour, of whom the rest is empty.
    pub user: String,
    /// First word of the user agent.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub agent: String,
    /// Verb of the requests.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub verb: String,
    /// Resource: `deployments.apps`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub resource: String,
    /// Subresource; empty for the object itself.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub subresource: String,
    /// Requests that were granted, and changed nothing.
    pub no_op: u64,
    /// Requests that were refused because another write came first.
    pub conflicts: u64,
    /// Requests that were refused because the name was taken.
    pub already_exists: u64,
    /// The first of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<Timestamp>,
    /// The last of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<Timestamp>,
    /// Namespace of the object of the last one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Name of that object.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
}

impl SenderRow {
    /// All of these requests.
    #[must_use]
    pub const fn requests(&self) -> u64 {
        self.no_op + self.conflicts + self.already_exists
    }

    /// Reports whether it is of those beyond the bound of an hour.
    #[must_use]
    pub fn is_of_others(&self) -> bool {
        self.user == OTHER_SENDERS
    }

    fn add(&mut self, row: &UnwrittenRow) {
        match row.like.kind {
            UnwrittenKind::NoOp => self.no_op += row.count,
            UnwrittenKind::Conflict => self.conflicts += row.count,
            UnwrittenKind::AlreadyExists => self.already_exists += row.count,
        }
        let at = |micros| Timestamp::from_microsecond(micros).ok();
        self.first = [self.first, at(row.first)].into_iter().flatten().min();
        let last = at(row.like.completed);
        if self.last <= last {
            (self.namespace, self.name) = (row.like.namespace.clone(), row.like.name.clone());
            self.last = last;
        }
    }
}

impl Senders {
    /// Sums the requests to these resources, or to all, into at most `most` rows.
    #[must_use]
    pub fn of(rows: &[UnwrittenRow], wanted: Option<&BTreeSet<String>>, audit_log: bool, most: usize) -> Self {
        let mut found: BTreeMap<[String; 5], SenderRow> = BTreeMap::new();
        let mut all = SenderRow::default();
        for row in rows {
            let like = &row.like;
            let resource = match like.group.as_str() {
                "" => like.resource.clone(),
                group => format!("{}.{group}", like.resource),
            };
            if wanted.is_some_and(|wanted| !wanted.contains(&resource)) {
                continue;
            }
            let fresh = SenderRow {
                user: like.user.clone(),
                agent: like.agent.clone(),
                verb: like.verb.clone(),
                resource: resource.clone(),
                subresource: like.subresource.clone(),
                ..SenderRow::default()
            };
            let [user, agent, verb, subresource] =
                [&like.user, &like.agent, &like.verb, &like.subresource].map(Clone::clone);
            found.entry([user, agent, verb, resource, subresource]).or_insert(fresh).add(row);
            all.add(row);
        }
        let mut rows: Vec<SenderRow> = found.into_values().collect();
        // Equal ones stay in the order of their names.
        rows.sort_by_key(|row| std::cmp::Reverse(row.requests()));
        rows.truncate(most);
        let SenderRow { no_op, conflicts, already_exists, first, last, .. } = all;
        Self { audit_log, first, last, no_op, conflicts, already_exists, rows }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::Unwritten;

    #[test]
    fn rows_of_one_sender_become_one_and_the_busiest_comes_first() {
        let row =
            |kind, user: &str, group: &str, resource: &str, (count, first, completed): (u64, i64, i64)| UnwrittenRow {
                like: Unwritten {
                    kind,
                    user: user.to_owned(),
                    agent: "operator/v1".to_owned(),
                    verb: "update".to_owned(),
                    group: group.to_owned(),
                    resource: resource.to_owned(),
                    namespace: "shop".to_owned(),
                    name: format!("at-{completed}"),
                    completed,
                    ..Unwritten::default()
                },
                count,
                first,
            };
        let rows = [
            row(UnwrittenKind::NoOp, "alice", "", "configmaps", (2, 10, 30)),
            row(UnwrittenKind::Conflict, "alice", "", "configmaps", (3, 5, 20)),
            row(UnwrittenKind::AlreadyExists, "bob", "apps", "deployments", (7, 40, 50)),
        ];
        let senders = Senders::of(&rows, None, true, 10);
        let of: Vec<_> =
            senders.rows.iter().map(|row| (&*row.user, &*row.resource, row.requests(), &*row.name)).collect();
        assert_eq!(of, [("bob", "deployments.apps", 7, "at-50"), ("alice", "configmaps", 5, "at-30")]);
        assert_eq!((senders.no_op, senders.conflicts, senders.already_exists), (2, 3, 7));
        let at = |micros| Timestamp::from_microsecond(micros).ok();
        assert_eq!((senders.rows[1].first, senders.rows[1].last), (at(5), at(30)));
        assert_eq!((senders.first, senders.last), (at(5), at(50)));
        let some = Senders::of(&rows, Some(&BTreeSet::from(["configmaps".to_owned()])), true, 10);
        assert_eq!((some.rows.len(), some.already_exists), (1, 0), "the choice holds for the sums, too");
        let first = Senders::of(&rows, None, true, 1);
        assert_eq!((first.rows.len(), first.no_op), (1, 2), "what is not in the table is in the sums");
    }
}
