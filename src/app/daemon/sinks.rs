//! The sinks that run: opened together, changed one by one when the configuration is read again.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{DaemonError, TaskError};
use crate::core::checkpoint_handle::CheckpointHandle;
use crate::core::model::Cluster;
use crate::core::runtime::Signal;
use crate::core::supervise::{Ended, Supervisor};
use crate::delivery::{self, Settings, SinkCounters};
use crate::journal::Journal;
use crate::sink::Sink;

/// Time limit for the end of a leaving sink before its successor begins.
const LEAVE_LIMIT: Duration = Duration::from_secs(10);

/// The sinks that run, by name.
#[derive(Default)]
pub(super) struct Sinks {
    running: HashMap<String, Running>,
    /// Set if it delivers: a standby leaves that to the leader.
    delivers: bool,
    /// Counts the requests to open files again.
    reopen: Signal,
    /// Opened, and not delivered to yet.
    opened: Vec<Opened>,
    /// Tasks that were asked to end, by name: a successor may have the same one.
    leaving: Vec<(String, watch::Receiver<bool>)>,
    /// Counters of the running sinks.
    counters: Arc<Mutex<SinkCounters>>,
    /// With `[ha]`: what this machine is called, and the sink that the shared log is kept beside.
    ha: Option<(String, String)>,
    /// Handle of the signing.
    checkpoints: CheckpointHandle,
}

struct Running {
    config: Settings,
    stop: CancellationToken,
    /// Completed when its task has ended.
    ended: watch::Receiver<bool>,
    asked: delivery::PositionKnown,
}

struct Opened {
    config: Settings,
    plan: delivery::Plan,
    sink: Box<dyn Sink>,
    /// The one of this name that it follows.
    after: Option<watch::Receiver<bool>>,
}

impl Sinks {
    /// Creates the sinks of a daemon with this part in a shared log, whose log is signed by `checkpoints`.
    pub(super) fn new(ha: Option<&crate::app::ha::Settings>, checkpoints: CheckpointHandle) -> Self {
        Self { ha: ha.map(|ha| (ha.machine(), ha.log.clone())), checkpoints, ..Self::default() }
    }

    /// Opens the sinks of a daemon that begins to deliver.
    pub(super) async fn open(&mut self, configs: &[Settings], journal: &Journal) -> Result<(), DaemonError> {
        self.delivers = true;
        let cluster = journal.reader()?.cluster()?;
        for config in configs {
            let opened = self.open_one(config, &cluster)?;
            self.opened.push(opened);
        }
        Ok(delivery::register(journal, self.opened.iter().map(|opened| opened.plan.registration()).collect()).await?)
    }

    /// See [`delivery::asked`].
    pub(super) fn asked(&self) -> impl Future<Output = ()> + use<> {
        let asked: Vec<_> = self.running.values().map(|running| Arc::clone(&running.asked)).collect();
        delivery::positions_known(asked)
    }

    /// Begins to deliver to what is opened.
    pub(super) fn start(&mut self, journal: &Journal, tasks: &mut Supervisor<TaskError>) {
        for Opened { config, plan, sink, after } in std::mem::take(&mut self.opened) {
            let stop = tasks.stop().child_token();
            let (ended_sender, ended) = watch::channel(false);
            let name = config.name.clone();
            self.lock().insert(name.clone(), (plan.kind, Arc::clone(&plan.stats)));
            let asked = Arc::clone(&plan.position_known);
            let delivery = delivery::run(journal.clone(), plan, sink, self.reopen.listen(), stop.clone());
            tasks.spawn(task_name(&name), async move {
                if let Some(mut before) = after {
                    // One that does not end in time is reported again when the daemon stops. Its successor would find its
                    // file locked, and wait.
                    drop(tokio::time::timeout(LEAVE_LIMIT, before.wait_for(|ended| *ended)).await);
                }
                let result = delivery.await;
                ended_sender.send_replace(true);
                Ok(result?)
            });
            self.running.insert(name, Running { config, stop, ended, asked });
        }
    }

    /// Ends, begins and changes sinks until they are those of a new configuration. Nothing is changed where one of
    /// them can never work, nor where nothing is delivered yet.
    pub(super) async fn change(
        &mut self,
        configs: &[Settings],
        journal: &Journal,
        tasks: &mut Supervisor<TaskError>,
    ) -> Result<(), DaemonError> {
        let changed = |name: &str, running: &Running| {
            !configs.iter().any(|config| config.name == name && *config == running.config)
        };
        let fresh = configs
            .iter()
            .filter(|config| self.running.get(&config.name).is_none_or(|running| running.config != **config));
        let cluster = journal.reader()?.cluster()?;
        let mut opened: Vec<Opened> = fresh.map(|config| self.open_one(config, &cluster)).collect::<Result<_, _>>()?;
        if !self.delivers {
            return Ok(());
        }
        let leaving: Vec<String> = self
            .running
            .iter()
            .filter(|(name, running)| changed(name, running))
            .map(|(name, _)| name.clone())
            .collect();
        for name in leaving {
            if let Some(running) = self.running.remove(&name) {
                // Nobody waits here for those that hang: the next of that name does.
                running.stop.cancel();
                self.lock().remove(&name);
                match opened.iter_mut().find(|opened| opened.config.name == name) {
                    Some(_) => {}
                    None => journal.retire_sink(&name).await?,
                }
                self.leaving.push((name, running.ended));
            }
        }
        // Also one that left with an earlier reload may still be at it.
        for successor in &mut opened {
            let before = self.leaving.iter().rfind(|(name, _)| *name == successor.config.name);
            successor.after = before.map(|(_, ended)| ended.clone());
        }
        self.opened = opened;
        self.start(journal, tasks);
        Ok(())
    }

    fn open_one(&self, config: &Settings, cluster: &Cluster) -> Result<Opened, DaemonError> {
        let sink = config.open(cluster);
        let mut sink = sink.map_err(|text| DaemonError::Config(format!("the sink {}: {text}", config.name)))?;
        sink.sign_with(&self.checkpoints);
        // Beside the shared log everybody has one output.
        let ha = self.ha.as_ref().filter(|(_, log)| *log != config.name && config.kind.settings().is_local());
        let machine = ha.map(|(machine, _)| machine.clone());
        let plan = delivery::Plan { machine, ..delivery::Plan::new(config) };
        Ok(Opened { plan, config: config.clone(), sink, after: None })
    }

    /// Returns the counters of the running sinks, now and later.
    pub(super) fn counters(&self) -> Arc<Mutex<SinkCounters>> {
        Arc::clone(&self.counters)
    }

    /// Failed deliveries in a row, where there are any.
    pub(super) fn tries(&self) -> BTreeMap<String, u64> {
        let tries = self.lock().iter().map(|(name, (_, stats))| (name.clone(), stats.tries.load(Relaxed))).collect();
        let mut tries: BTreeMap<String, u64> = tries;
        tries.retain(|_, tries| *tries > 0);
        tries
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, SinkCounters> {
        self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks every sink to open its files again, and to try again what it has halted at.
    pub(super) fn reopen(&self) {
        self.reopen.notify();
    }

    /// Passes on the end of a task, but for that of a sink which was asked to end.
    pub(super) fn ended(&mut self, ended: Ended<TaskError>) -> Option<Ended<TaskError>> {
        match self.leaving.iter().position(|(leaving, _)| task_name(leaving) == ended.name) {
            Some(at) if ended.result.is_ok() => {
                self.leaving.swap_remove(at);
                None
            }
            _ => Some(ended),
        }
    }
}

fn task_name(sink: &str) -> String {
    format!("delivery to the sink {sink}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::model::Seq;
    use crate::core::wire::Entry;
    use crate::delivery::tests::World;

    fn config(name: &str, path: &std::path::Path, more: serde_json::Value) -> Settings {
        let mut value = serde_json::json!({"name": name, "type": "file", "path": path});
        if let (Some(value), Some(more)) = (value.as_object_mut(), more.as_object()) {
            value.extend(more.clone());
        }
        serde_json::from_value(value).unwrap()
    }

    /// The epoch and seq of each line of a file.
    fn lines(path: &std::path::Path) -> Vec<(String, u64)> {
        let text = std::fs::read(path).unwrap_or_default();
        let whole = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        whole.map(|line| Entry::parse(line).map(|entry| (entry.epoch.to_string(), entry.seq().0)).unwrap()).collect()
    }

    async fn delivered(world: &World, sink: &str, upto: u64) {
        world.until_sink(sink, |row| row.cursor >= Seq(upto) && row.state.word() == "running").await;
    }

    #[tokio::test]
    async fn a_changed_sink_ends_and_begins_without_ending_the_daemon() {
        let mut world = World::new().await;
        world.write(3).await;
        let (first, second) = (world.dir.path().join("a.jsonl"), world.dir.path().join("b.jsonl"));
        let mut tasks = Supervisor::new(CancellationToken::new());
        let mut sinks = Sinks::default();
        let none = serde_json::json!({});
        sinks.open(&[config("s", &first, none.clone())], &world.journal).await.unwrap();
        sinks.start(&world.journal, &mut tasks);
        delivered(&world, "s", 3).await;
        for path in [&second, &first] {
            sinks.change(&[config("s", path, none.clone())], &world.journal, &mut tasks).await.unwrap();
            let ended = tasks.ended().await.unwrap();
            assert!(ended.result.is_ok());
            assert!(sinks.ended(ended).is_none(), "the old task was asked to end");
        }
        world.write(1).await;
        delivered(&world, "s", 4).await;
        assert_eq!(lines(&first).len(), 4);
        // Nobody has asked the new one.
        let unasked = Ended { name: task_name("s"), result: Ok(()) };
        assert!(sinks.ended(unasked).is_some());
        let (failed, late) = tasks.shut_down(Duration::from_secs(10)).await;
        assert!(failed.is_empty() && late.is_empty());
    }

    /// What stands where a journal that had delivered to two files was restored from an older copy: one file is ahead
    /// of it, the other has more than its cursor says, and both are completed with each entry once.
    #[tokio::test]
    async fn a_journal_put_back_begins_a_new_epoch_and_repeats_nothing() {
        let mut world = World::new().await;
        let (ahead, held) = (world.dir.path().join("ahead.jsonl"), world.dir.path().join("held.jsonl"));
        world.write(6).await;
        let old = world.journal.epoch();
        let six = world.lines(1..=6);
        let beyond = String::from_utf8(world.lines(6..=6)).unwrap().replace("\"seq\":6", "\"seq\":9");
        std::fs::write(&ahead, [&six[..], beyond.as_bytes()].concat()).unwrap();
        std::fs::write(&held, world.lines(1..=5)).unwrap();
        for sink in ["ahead", "held"] {
            let (journal, _) = world.journal.sink(sink, "file", crate::journal::SinkStart::Start).await.unwrap();
            journal.acknowledge(Seq(3)).await.unwrap();
        }
        let none = serde_json::json!({});
        let configs = [config("ahead", &ahead, none.clone()), config("held", &held, none)];
        let mut tasks = Supervisor::new(CancellationToken::new());
        let mut sinks = Sinks::default();
        sinks.open(&configs, &world.journal).await.unwrap();
        sinks.start(&world.journal, &mut tasks);
        // Both are asked, and at its end everybody has the same: the cluster is not read before.
        delivered(&world, "ahead", 6).await;
        delivered(&world, "held", 6).await;
        sinks.asked().await;
        let new = world.journal.epoch();
        assert!(new > old);
        world.write(2).await;
        delivered(&world, "ahead", 8).await;
        delivered(&world, "held", 8).await;
        let expected = |own: &[u64]| -> Vec<(String, u64)> {
            let old = own.iter().map(|seq| (old.clone(), *seq));
            old.chain([7, 8].map(|seq| (new.clone(), seq))).collect()
        };
        assert_eq!(lines(&held), expected(&[1, 2, 3, 4, 5, 6]));
        assert_eq!(lines(&ahead), expected(&[1, 2, 3, 4, 5, 6, 9]));
        tasks.shut_down(Duration::from_secs(10)).await;
    }
}
