//! Decision of a replica whether to request the Lease.

use std::time::Duration;

use tokio::time::Instant;

use super::UNREADY_DELAY;
use crate::journal::{Role, Shared};

/// Time for which the engine may be away before another replica should lead.
const ENGINE_AWAY_LIMIT: Duration = Duration::from_secs(15);

/// State of a replica that decides whether it requests the Lease.
#[derive(Clone, Copy, Debug, Default)]
pub struct Condition {
    /// It leads by the shared log, or nobody has written to that yet: no other replica has more.
    pub has_most: bool,
    /// All its sources are watched.
    pub watches: bool,
    /// The engine answered last.
    pub reaches_engine: bool,
    /// A unit that it has not read is missing in the shared log, so it could not take over.
    pub lacks_unit: bool,
}

impl Condition {
    /// Returns the condition of a replica with this journal. `watches`: all its sources are watched.
    #[must_use]
    pub fn of(shared: &Shared, watches: bool) -> Self {
        let is_standby = shared.role == Role::Standby;
        Self {
            has_most: !is_standby || shared.is_blank(),
            watches,
            reaches_engine: shared.problem.is_none(),
            lacks_unit: is_standby && shared.missing.is_some(),
        }
    }
}

/// A replica's candidacy over time.
///
/// A replica whose watches cannot resume would begin with a gap, while another one may have the changes that the API server has
/// forgotten. If no other takes the lead, it leads after [`UNREADY_DELAY`] nevertheless.
#[derive(Debug)]
pub struct Candidacy {
    began: Instant,
    watched: bool,
    /// Since when the engine is away.
    away: Option<Instant>,
}

impl Default for Candidacy {
    fn default() -> Self {
        Self { began: Instant::now(), watched: false, away: None }
    }
}

impl Candidacy {
    /// Reports whether it abstains from now on. Called every few seconds.
    pub fn abstains(&mut self, now: &Condition) -> bool {
        let watched = std::mem::replace(&mut self.watched, now.watches);
        if now.reaches_engine {
            self.away = None;
        } else if self.away.get_or_insert_with(Instant::now).elapsed() > ENGINE_AWAY_LIMIT {
            return true;
        }
        let is_ready = now.has_most || (watched && now.watches) || self.began.elapsed() > UNREADY_DELAY;
        now.lacks_unit || !is_ready
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps of two seconds each, and what it does after each: `.` requests the Lease, `a` abstains.
    #[tokio::test(start_paused = true)]
    async fn who_could_not_go_on_leaves_the_lease_to_others() {
        let good = Condition { watches: true, reaches_engine: true, ..Condition::default() };
        for (what, condition, expected) in [
            ("it watches", good, "a............"),
            ("it does not watch", Condition { watches: false, ..good }, "aaaaaaaaaaa.."),
            ("nobody has more", Condition { has_most: true, watches: false, ..good }, "............."),
            ("the engine is away", Condition { has_most: true, reaches_engine: false, ..good }, "........aaaaa"),
            ("it lacks a unit", Condition { lacks_unit: true, ..good }, "aaaaaaaaaaaaa"),
        ] {
            let mut candidacy = Candidacy::default();
            let mut found = String::new();
            for _ in 0..expected.len() {
                found.push(if candidacy.abstains(&condition) { 'a' } else { '.' });
                tokio::time::advance(Duration::from_secs(2)).await;
            }
            assert_eq!(found, expected, "{what}");
        }
    }
}
