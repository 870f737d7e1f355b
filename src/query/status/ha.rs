//! Status of a daemon with a shared log.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::Live;
use crate::core::k8s::audited::Unexplained;
use crate::journal::Apart;

/// Role of this process among those that share the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// It does not know yet.
    #[default]
    Starting,
    /// It writes to the shared log.
    Leader,
    /// It follows the shared log, and would take over.
    Standby,
}

impl Role {
    /// The word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Leader => "leader",
            Self::Standby => "standby",
        }
    }
}

/// The part of this process in the shared log. What begins with `since_` is kept by [`Live::set_ha`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HaView {
    /// The role.
    pub role: Role,
    /// The term: it grows with each leader.
    pub term: u64,
    /// Identity of the leader, by the Lease; empty if none is known.
    pub leader: String,
    /// The Lease: NAMESPACE/NAME.
    pub lease: String,
    /// Units of the shared log that are not in this journal yet.
    pub behind_units: u64,
    /// Age of the oldest of them, in seconds; 0 if there is none.
    pub behind_seconds: f64,
    /// Size of a standby's changes that the shared log does not have yet, in bytes.
    pub backlog_bytes: u64,
    /// Number of overflows of the backlog since the start. The changes were dropped, and a take-over resumes the watches for
    /// them.
    pub overflows: u64,
    /// The shared log: the place, without secrets.
    pub log: String,
    /// Error of the last access to the shared log, while it lasts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unreachable: Option<String>,
    /// Number of the unit that was deleted in the shared log before this journal had it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing_unit: Option<u64>,
    /// Another obstacle, such as a Lease that may not be written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The journals that hold entries which the shared log lacks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub apart: Vec<Apart>,
    /// Since when nobody is known to lead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since_leaderless: Option<Timestamp>,
    /// Since when the shared log cannot be read or written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since_unreachable: Option<Timestamp>,
    /// Time of the last overflow of the backlog.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since_overflow: Option<Timestamp>,
}

impl HaView {
    /// Returns the reason why this process could not take over; none for a leader, which is as ready as its sources are.
    #[must_use]
    pub fn why_not_following(&self) -> Option<String> {
        let unreachable =
            || self.unreachable.as_ref().map(|why| format!("the shared log {} cannot be read: {why}", self.log));
        let lacks = || self.missing_unit.and(self.problem.clone());
        match self.role {
            Role::Starting => unreachable().or_else(lacks).or_else(|| Some("it is not known yet who leads".to_owned())),
            Role::Standby => unreachable().or_else(lacks),
            Role::Leader => None,
        }
    }
}

impl Live {
    /// Puts this in the place of what was said of the shared log before, and notes since when it is so.
    pub fn set_ha(&mut self, view: HaView, now: Timestamp) {
        let before = self.ha.take().unwrap_or_default();
        let since = |is: bool, before: Option<Timestamp>| is.then(|| before.unwrap_or(now));
        self.ha = Some(HaView {
            since_leaderless: since(view.leader.is_empty(), before.since_leaderless),
            since_unreachable: since(view.unreachable.is_some(), before.since_unreachable),
            since_overflow: if view.overflows > before.overflows { Some(now) } else { before.since_overflow },
            ..view
        });
    }

    /// Reports whether this status is worth a write after `written`: counters that always grow are not.
    #[must_use]
    pub fn is_news_after(&self, written: &Self) -> bool {
        let steady = |live: &Self| Self {
            open_files: 0,
            unexplained: coarse(&live.unexplained),
            ha: live.ha.clone().map(|ha| HaView {
                behind_seconds: ha.behind_seconds.round(),
                backlog_bytes: ha.backlog_bytes >> 20,
                ..ha
            }),
            ..live.clone()
        };
        self.files_are_scarce() != written.files_are_scarce() || steady(self) != steady(written)
    }
}

/// Returns counts with their first two digits.
fn coarse(unexplained: &Unexplained) -> Unexplained {
    let digits = |number: u64| {
        let unit = 10_u64.pow(number.checked_ilog10().unwrap_or(0).saturating_sub(1));
        number / unit * unit
    };
    let mut coarse = unexplained.clone();
    coarse.run.iter_mut().for_each(|run| run.changes = digits(run.changes));
    for of in &mut coarse.resources {
        (of.changes, of.decided) = (digits(of.changes), digits(of.decided));
    }
    coarse
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::k8s::audited::UnexplainedResource;

    #[test]
    fn since_when_something_is_so_is_kept_until_it_is_not() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut live = Live::default();
        let view = |leader: &str, unreachable: Option<&str>, overflows| HaView {
            leader: leader.to_owned(),
            unreachable: unreachable.map(str::to_owned),
            overflows,
            ..HaView::default()
        };
        let mut since = |now, view| {
            live.set_ha(view, at(now));
            let ha = live.ha.clone().unwrap();
            let seconds = |time: Option<Timestamp>| time.map(Timestamp::as_second);
            (seconds(ha.since_leaderless), seconds(ha.since_unreachable), seconds(ha.since_overflow))
        };
        assert_eq!(since(1, view("", None, 0)), (Some(1), None, None));
        assert_eq!(since(2, view("", Some("refused"), 1)), (Some(1), Some(2), Some(2)));
        assert_eq!(since(3, view("one", Some("timed out"), 1)), (None, Some(2), Some(2)));
        assert_eq!(since(4, view("", None, 2)), (Some(4), None, Some(4)));
    }

    #[test]
    fn what_grows_all_the_time_is_no_news() {
        let ha = HaView { behind_seconds: 0.2, backlog_bytes: 100, ..HaView::default() };
        let written = Live { open_files: 10, ha: Some(ha.clone()), ..Live::default() };
        let same = Live {
            open_files: 11,
            ha: Some(HaView { behind_seconds: 0.4, backlog_bytes: 900, ..ha.clone() }),
            ..Live::default()
        };
        assert!(!same.is_news_after(&written));
        let counted = |changes| {
            let of = UnexplainedResource { resource: "pods".to_owned(), changes, decided: 20_000 };
            let unexplained = Unexplained { resources: vec![of], ..Unexplained::default() };
            Live { unexplained, ..written.clone() }
        };
        assert!(!counted(10_999).is_news_after(&counted(10_000)));
        assert!(counted(11_000).is_news_after(&counted(10_000)) && counted(21).is_news_after(&counted(20)));
        let other = Live { ha: Some(HaView { term: 1, ..ha }), ..written.clone() };
        assert!(other.is_news_after(&written));
    }

    #[test]
    fn a_standby_that_lacks_a_unit_or_the_shared_log_could_not_take_over() {
        let view = |role, missing_unit: Option<u64>, unreachable: Option<&str>, problem: Option<&str>| HaView {
            role,
            missing_unit,
            log: "archive".to_owned(),
            unreachable: unreachable.map(str::to_owned),
            problem: problem.map(str::to_owned),
            ..HaView::default()
        };
        for (view, expected) in [
            (view(Role::Starting, None, None, None), Some("it is not known yet who leads")),
            (view(Role::Starting, Some(7), None, Some("unit 7")), Some("unit 7")),
            (view(Role::Standby, Some(7), None, Some("unit 7")), Some("unit 7")),
            (view(Role::Standby, None, Some("refused"), None), Some("the shared log archive cannot be read: refused")),
            // The API server is away for the others too: who reads this one's log is not to lose it.
            (view(Role::Standby, None, None, Some("the Lease")), None),
            (view(Role::Leader, Some(7), Some("refused"), Some("unit 7")), None),
        ] {
            assert_eq!(view.why_not_following().as_deref(), expected, "{view:?}");
        }
    }
}
