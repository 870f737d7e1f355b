//! The sinks that run: opened together, changed one by one when the configuration is read again.

use std::collections::HashMap;
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{DaemonError, TaskError};
use crate::config;
use crate::delivery::{self, Wanted};
use crate::filter::Filter;
use crate::journal::Journal;
use crate::sink::{self, Position, Sink};
use crate::supervise::{Ended, Supervisor};

/// How long a sink may take to say what it holds before the cluster is read; it is asked again when it delivers.
const ASK_LIMIT: Duration = Duration::from_secs(5);

/// The sinks that run, by name.
#[derive(Default)]
pub(super) struct Sinks {
    running: HashMap<String, Running>,
    /// Counts the requests to open files anew.
    reopen: watch::Sender<u64>,
    /// Opened, and not delivered to yet.
    opened: Vec<Opened>,
}

struct Running {
    config: config::Sink,
    stop: CancellationToken,
    /// Completed when its task has ended.
    ended: watch::Receiver<bool>,
}

struct Opened {
    config: config::Sink,
    plan: delivery::Plan,
    sink: Box<dyn Sink>,
}

impl Sinks {
    /// Opens the sinks of a daemon that starts, and begins a new epoch where one of them already holds entries that the
    /// journal, put back from a backup, would give out a second time. That has to be known before anything is written.
    pub(super) async fn open(&mut self, configs: &[config::Sink], journal: &Journal) -> Result<(), DaemonError> {
        for config in configs {
            self.opened.push(open(config)?);
        }
        let head = *journal.head().borrow();
        let mut ahead = Vec::new();
        for Opened { plan, sink, .. } in &mut self.opened {
            let cursor = journal.sink(&plan.name, plan.kind, plan.start).await?;
            let cursor = Position { epoch: journal.epoch(), seq: cursor };
            let held = tokio::time::timeout(ASK_LIMIT, sink.position(&cursor)).await;
            if let Ok(Ok(Some(held))) = held
                && held.epoch == journal.epoch()
                && held.seq > head
            {
                ahead.push((plan.name.clone(), held.seq));
            }
        }
        if !ahead.is_empty() {
            let epoch = journal.begin_epoch().await?;
            for (name, held) in ahead {
                tracing::warn!(
                    sink = name,
                    held = held.0,
                    head = head.0,
                    epoch,
                    "the journal is behind what this sink holds: it was put back from an older copy, and begins a new epoch"
                );
                // It has everything that this journal still has of the old epoch.
                journal.acknowledge(&name, head).await?;
            }
        }
        Ok(())
    }

    /// Begins to deliver to what is opened.
    pub(super) fn start(&mut self, journal: &Journal, tasks: &mut Supervisor<TaskError>) {
        for Opened { config, plan, sink } in self.opened.drain(..) {
            let stop = tasks.stop().child_token();
            let (ended_sender, ended) = watch::channel(false);
            let name = config.name.clone();
            let delivery = delivery::run(journal.clone(), plan, sink, self.reopen.subscribe(), stop.clone());
            tasks.spawn(task_name(&name), async move {
                let result = delivery.await;
                ended_sender.send_replace(true);
                Ok(result?)
            });
            self.running.insert(name, Running { config, stop, ended });
        }
    }

    /// Ends, begins and changes sinks until they are those of a new configuration. Nothing is changed where one of
    /// them can never work.
    pub(super) async fn change(
        &mut self,
        configs: &[config::Sink],
        journal: &Journal,
        tasks: &mut Supervisor<TaskError>,
    ) -> Result<(), DaemonError> {
        let changed = |name: &str, running: &Running| {
            !configs.iter().any(|config| config.name == name && *config == running.config)
        };
        let fresh = configs
            .iter()
            .filter(|config| self.running.get(&config.name).is_none_or(|running| running.config != **config));
        let opened: Vec<Opened> = fresh.map(open).collect::<Result<_, _>>()?;
        let leaving: Vec<String> = self
            .running
            .iter()
            .filter(|(name, running)| changed(name, running))
            .map(|(name, _)| name.clone())
            .collect();
        for name in leaving {
            if let Some(mut running) = self.running.remove(&name) {
                running.stop.cancel();
                // One that does not end in time is told again when the daemon stops. Its successor would find its file
                // locked, and wait.
                drop(tokio::time::timeout(ASK_LIMIT * 2, running.ended.wait_for(|ended| *ended)).await);
                if !configs.iter().any(|config| config.name == name) {
                    journal.retire_sink(&name).await?;
                }
            }
        }
        self.opened = opened;
        self.start(journal, tasks);
        Ok(())
    }

    /// Asks every sink to open its files anew, and to try again what it has halted at.
    pub(super) fn reopen(&self) {
        self.reopen.send_modify(|count| *count += 1);
    }

    /// Passes on the end of a task, but for that of a sink which was asked to end.
    pub(super) fn ended(&self, ended: Ended<TaskError>) -> Option<Ended<TaskError>> {
        let asked = ended.result.is_ok() && ended.name.starts_with(TASK) && !self.runs(&ended.name);
        (!asked).then_some(ended)
    }

    fn runs(&self, task: &str) -> bool {
        self.running.iter().any(|(name, running)| task_name(name) == task && !running.stop.is_cancelled())
    }
}

const TASK: &str = "delivery to the sink ";

fn task_name(sink: &str) -> String {
    format!("{TASK}{sink}")
}

fn open(config: &config::Sink) -> Result<Opened, DaemonError> {
    let wrong = |text: String| DaemonError::Config(format!("the sink {}: {text}", config.name));
    let filter = match &config.filter {
        None => None,
        Some(text) => {
            let filter = Filter::compile(text).map_err(|error| wrong(error.to_string()))?;
            let name = config.name.clone();
            Some(Box::new(move |line: &[u8]| wanted(&filter, &name, line)) as Wanted)
        }
    };
    let sink = sink::open(&config.kind).map_err(wrong)?;
    Ok(Opened { plan: delivery::Plan::new(config, filter), config: config.clone(), sink })
}

/// What cannot be told is delivered: too much can be dropped later, too little cannot be had again.
fn wanted(filter: &Filter, sink: &str, line: &[u8]) -> bool {
    filter.matches(line).unwrap_or_else(|error| {
        tracing::debug!(sink, "`where` cannot be evaluated for an entry, which is delivered: {error}");
        true
    })
}
