//! Every task has a name, an owner and an end.
//!
//! A task that ends unasked, well or badly, ends the daemon: a process that looks alive while a part of it is dead is
//! worse than one that systemd starts again.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::time::Duration;

use tokio::task::{Id, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::core::telemetry::panic_text;

/// The tasks of one owner.
#[derive(Debug)]
pub struct Supervisor<E, T = ()> {
    tasks: JoinSet<Result<T, E>>,
    names: HashMap<Id, String>,
    stop: CancellationToken,
}

/// End of a task.
#[derive(Debug)]
pub struct Ended<E, T = ()> {
    /// Its name.
    pub name: String,
    /// Result of the task.
    pub result: Result<T, Failed<E>>,
}

/// A task that did not end well.
#[derive(Debug)]
pub enum Failed<E> {
    /// It returned this error.
    Error(E),
    /// It panicked, which is a bug; the text is the panic's, where it quotes nothing.
    Panicked(String),
}

impl<E: fmt::Display> fmt::Display for Failed<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error(error) => error.fmt(f),
            Self::Panicked(text) => write!(f, "it panicked ({text}); this is a bug"),
        }
    }
}

impl<E: Send + 'static, T: Send + 'static> Supervisor<E, T> {
    /// An owner without tasks; its tasks are asked to end when `stop` or a parent of it is cancelled.
    #[must_use]
    pub fn new(stop: CancellationToken) -> Self {
        Self { tasks: JoinSet::new(), names: HashMap::new(), stop }
    }

    /// Returns the token that asks every task to end.
    #[must_use]
    pub fn stop(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Starts a task under a name. Its lines in the log are of the cluster of whoever starts it.
    pub fn spawn(&mut self, name: impl Into<String>, task: impl Future<Output = Result<T, E>> + Send + 'static) {
        let id = self.tasks.spawn(task.in_current_span()).id();
        self.names.insert(id, name.into());
    }

    /// The next task that ends; `None` when there is none left. Dropping the future loses nothing.
    pub async fn ended(&mut self) -> Option<Ended<E, T>> {
        let (id, result) = match self.tasks.join_next_with_id().await? {
            Ok((id, result)) => (id, result.map_err(Failed::Error)),
            Err(error) => {
                let id = error.id();
                let text = match error.try_into_panic() {
                    Ok(panic) => panic_text(&*panic).to_owned(),
                    Err(cancelled) => cancelled.to_string(),
                };
                (id, Err(Failed::Panicked(text)))
            }
        };
        Some(Ended { name: self.names.remove(&id).unwrap_or_default(), result })
    }

    /// Drops every task, and returns when each of them is gone.
    pub async fn abort(&mut self) {
        self.tasks.shutdown().await;
        self.names.clear();
    }

    /// Asks every task to end and waits for them, up to `limit`; gives those that failed and the names of those that
    /// did not end in time, which are then dropped.
    pub async fn shut_down(mut self, limit: Duration) -> (Vec<Ended<E, T>>, Vec<String>) {
        self.stop.cancel();
        let mut failed = Vec::new();
        let all = async {
            while let Some(ended) = self.ended().await {
                if ended.result.is_err() {
                    failed.push(ended);
                }
            }
        };
        let in_time = tokio::time::timeout(limit, all).await.is_ok();
        let late = if in_time { Vec::new() } else { self.names.into_values().collect() };
        (failed, late)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn ends_are_reported_by_name_and_panics_are_caught() {
        let mut tasks: Supervisor<String> = Supervisor::new(CancellationToken::new());
        tasks.spawn("bad", async { Err("no".to_owned()) });
        let ended = tasks.ended().await.unwrap();
        assert_eq!((ended.name.as_str(), ended.result.unwrap_err().to_string().as_str()), ("bad", "no"));
        tasks.spawn("worse", async { panic!("boom") });
        let ended = tasks.ended().await.unwrap();
        assert!(ended.name == "worse" && ended.result.unwrap_err().to_string().contains("(boom)"));
        assert!(tasks.ended().await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn shutting_down_waits_for_those_who_end_and_names_those_who_do_not() {
        let mut tasks: Supervisor<String> = Supervisor::new(CancellationToken::new());
        let stop = tasks.stop();
        tasks.spawn("polite", async move {
            stop.cancelled().await;
            Ok(())
        });
        tasks.spawn("deaf", std::future::pending());
        let (failed, late) = tasks.shut_down(Duration::from_secs(5)).await;
        assert!(failed.is_empty());
        assert_eq!(late, ["deaf"]);
    }
}
