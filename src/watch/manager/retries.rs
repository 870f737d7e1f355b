//! Looks at discovery until it succeeds, and reminders while it fails.

use super::{Duration, Failure, Instant, Pace, Shared};

/// Looks at discovery again and again; never returns.
pub(super) async fn keep_discovering(shared: &Shared) {
    let mut retries = Retries::default();
    let mut pace = Pace::new(shared.definitions.listen());
    loop {
        match shared.patiently(shared.discover()).await {
            Ok(_) => {
                retries = Retries::default();
                let cheap = shared.discoverer.lock().await.is_cheap();
                let pause = if cheap { shared.timings.discovery } else { shared.timings.legacy_discovery };
                pace.rest(shared, pause, cheap).await;
            }
            Err(failure) => {
                // What has just changed may be what was missing.
                let woken = pace.rest(shared, shared.timings.legacy_discovery.max(REMINDER_INTERVAL), true);
                tokio::select! {
                    biased;
                    () = retries.wait(shared, &failure) => {}
                    () = woken => {}
                }
            }
        }
    }
}

/// Interval at which a lasting failure is logged again.
pub(super) const REMINDER_INTERVAL: Duration = Duration::from_secs(180);

/// Failures in a row, and what was logged of them.
#[derive(Debug, Default)]
pub(super) struct Retries {
    tries: u32,
    logged: Option<(String, Instant)>,
}

impl Retries {
    pub(super) async fn wait(&mut self, shared: &Shared, failure: &Failure) {
        match failure {
            Failure::Unauthorized | Failure::Tls(_) => shared.api.refresh().await,
            Failure::Expired
            | Failure::Ahead
            | Failure::Busy(_)
            | Failure::Forbidden(_)
            | Failure::NotFound
            | Failure::Refused(_)
            | Failure::Server(_)
            | Failure::Unreadable(_)
            | Failure::Away(_)
            | Failure::Unreachable(_)
            | Failure::Undecodable(_)
            | Failure::Oversize(_) => {}
        }
        if self.is_news(&failure.to_string(), Instant::now()) {
            tracing::warn!("waiting for the API server: {failure}");
        }
        let at_least = if let Failure::Busy(Some(after)) = failure { *after } else { Duration::ZERO };
        self.tries = self.tries.saturating_add(1);
        let pause = shared.rest(at_least + shared.timings.backoff.wait(self.tries));
        if let Failure::Away(_) = failure {
            // The first try may have met an API server that is just being replaced.
            let back = shared.prober.answers(shared, self.tries <= 1);
            tokio::select! {
                biased;
                () = back => {}
                () = pause => {}
            }
        } else {
            pause.await;
        }
    }

    /// Reports whether to log it: each new failure, and a lasting one at intervals.
    pub(super) fn is_news(&mut self, text: &str, now: Instant) -> bool {
        let known = self
            .logged
            .as_ref()
            .is_some_and(|(logged, at)| logged == text && now.saturating_duration_since(*at) < REMINDER_INTERVAL);
        if !known {
            self.logged = Some((text.to_owned(), now));
        }
        !known
    }
}
