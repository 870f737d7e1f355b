//! Requests that came, and waits for them.

use super::{Duration, On, PATIENCE, Seen, Sim, TimedOut};

impl Sim {
    // --- what clients did ---

    /// Every request so far.
    #[must_use]
    pub fn requests(&self) -> Vec<Seen> {
        self.shared.lock().requests.clone()
    }

    /// How many of the requests so far are of this kind.
    #[must_use]
    pub fn count(&self, on: &On) -> usize {
        self.shared.lock().requests.iter().filter(|seen| on.matches(seen)).count()
    }

    /// The most requests of this kind that came within any stretch of this length, by the runtime's clock.
    #[must_use]
    pub fn most_within(&self, stretch: Duration, counts: impl Fn(&Seen) -> bool) -> usize {
        let state = self.shared.lock();
        let times: Vec<_> = state.requests.iter().filter(|seen| counts(seen)).map(|seen| seen.at).collect();
        let within = |first: usize| times[first..].partition_point(|at| *at - times[first] <= stretch);
        (0..times.len()).map(within).max().unwrap_or_default()
    }

    /// The most requests in any second by which one source asked for this resource in this namespace, or in all: lists,
    /// watches and the questions before them.
    #[must_use]
    pub fn busiest_second(&self, resource: &str, namespace: Option<&str>) -> usize {
        self.most_within(Duration::from_secs(1), |seen| {
            (seen.is_list(resource) || seen.is_watch(resource)) && seen.namespace.as_deref() == namespace
        })
    }

    /// Drops the requests so far.
    pub fn clear_requests(&self) {
        self.shared.lock().requests.clear();
    }

    /// How many watches of a resource (`*` for all) are open.
    #[must_use]
    pub fn open_watches(&self, resource: &str) -> usize {
        self.shared.lock().open.iter().filter(|(name, _)| resource == "*" || *name == resource).map(|(_, n)| n).sum()
    }

    /// Waits until this holds; `condition` completes "the cluster does not ..." in the error.
    ///
    /// # Errors
    /// Where it does not hold within a minute.
    pub async fn wait_until(&self, condition: &str, holds: impl Fn(&Self) -> bool) -> Result<(), TimedOut> {
        if tokio::time::timeout(PATIENCE, self.shared.until(|| holds(self))).await.is_ok() {
            return Ok(());
        }
        let requests: Vec<String> = self
            .requests()
            .iter()
            .rev()
            .take(10)
            .map(|seen| format!("{} {}?{} -> {:?}", seen.method, seen.path, seen.query, seen.status))
            .collect();
        let state = format!(
            "revision {}, {} watches open, last requests first: {requests:#?}",
            self.revision(),
            self.open_watches("*")
        );
        Err(TimedOut { after: PATIENCE, condition: condition.to_owned(), state })
    }

    /// Waits until the log of requests is like this.
    ///
    /// # Errors
    /// Where it is not within a minute.
    pub async fn wait_for_requests(&self, like: impl Fn(&[Seen]) -> bool) -> Result<(), TimedOut> {
        self.wait_until("have the requests waited for", |sim| like(&sim.shared.lock().requests)).await
    }

    /// Waits until at least `count` requests of this kind were seen.
    ///
    /// # Errors
    /// Where they were not within a minute.
    pub async fn wait_for_count(&self, on: &On, count: usize) -> Result<(), TimedOut> {
        self.wait_until(&format!("have {count} requests {on:?}"), |sim| sim.count(on) >= count).await
    }

    /// Waits until exactly `count` watches of a resource (`*` for all) are open.
    ///
    /// # Errors
    /// Where they are not within a minute.
    pub async fn wait_for_watches(&self, resource: &str, count: usize) -> Result<(), TimedOut> {
        let condition = format!("have {count} watches of {resource} open");
        self.wait_until(&condition, |sim| sim.open_watches(resource) == count).await
    }
}
