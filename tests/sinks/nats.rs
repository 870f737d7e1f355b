//! A stream of NATS JetStream, on a new server and on one as old as distributions carry it.

mod access;
mod log;
mod others;

pub(crate) use decklog_testkit::servers::nats as start;
use std::fs;
use std::path::Path;
use std::time::Duration;

use async_nats::ConnectOptions;
use async_nats::jetstream::stream::DiscardPolicy;
use async_nats::jetstream::{self, Context};
use rustix::process::Signal;

use crate::support::{Daemon, until};
use crate::timelines;
use crate::trial::{self, Far, Promise, Trial};
use start::{NEW, Nats, OLD};

/// What these tests do with the server.
trait NatsTests: Sized {
    async fn context(&self) -> Context;
    async fn context_as(&self, options: ConnectOptions) -> Context;
    async fn messages(&self, stream: &str) -> Result<Vec<String>, String>;
}

impl NatsTests for Nats {
    /// As a consumer has it.
    async fn context(&self) -> Context {
        self.context_as(ConnectOptions::new()).await
    }

    async fn context_as(&self, options: ConnectOptions) -> Context {
        let address = format!("nats://127.0.0.1:{}", self.server.port());
        jetstream::new(options.connect(address).await.unwrap())
    }

    /// The payload of every message that there is, in their order.
    async fn messages(&self, stream: &str) -> Result<Vec<String>, String> {
        let stream = self.context().await.get_stream(stream).await.map_err(|error| error.to_string())?;
        let mut lines = Vec::new();
        for sequence in 1..=stream.cached_info().state.last_sequence {
            let message = stream.get_raw_message(sequence).await.map_err(|error| error.to_string())?;
            lines.push(String::from_utf8(message.payload.to_vec()).unwrap());
        }
        Ok(lines)
    }
}

fn sink(port: u16, stream: &str) -> String {
    format!(
        "type = \"nats\"\naddresses = [\"nats://127.0.0.1:{port}\"]\nstream = \"{stream}\"\nsubject = \"{stream}.{{resource}}.{{name}}\"\n"
    )
}

impl Far for Nats {
    fn promise(&self) -> Promise {
        Promise::ExactlyOnce
    }

    fn port(&self) -> u16 {
        self.server.port()
    }

    fn sink(&self, port: u16, run: &str, _dir: &Path) -> String {
        sink(port, run)
    }

    async fn prepare(&self, daemon: &Daemon, _run: &str) {
        daemon.command(&["sink", "init", "far"]).await.done();
    }

    fn kill(&mut self) {
        self.server.kill();
    }

    async fn restart(&mut self) {
        self.server.restart().await;
    }

    async fn consumed(&self, run: &str) -> Result<Vec<String>, String> {
        self.messages(run).await
    }
}

#[tokio::test]
async fn nats_undisturbed() {
    for version in [NEW, OLD] {
        trial::undisturbed(&mut Nats::start(version).await).await;
    }
}

#[tokio::test]
async fn nats_is_killed() {
    for version in [NEW, OLD] {
        trial::server_killed(&mut Nats::start(version).await).await;
    }
}

#[tokio::test]
async fn nats_answers_are_cut() {
    for version in [NEW, OLD] {
        trial::answers_cut(&mut Nats::start(version).await).await;
    }
}

#[tokio::test]
async fn nats_and_a_daemon_that_is_killed() {
    for version in [NEW, OLD] {
        trial::daemon_killed(&mut Nats::start(version).await).await;
    }
}

/// Fault 70: what is sent again after the time for which the server knows repeats.
#[tokio::test]
async fn nats_and_a_kill_at_every_exchange() {
    trial::killed_at_every_exchange(&mut Nats::start(NEW).await).await;
}

#[tokio::test]
async fn an_old_nats_and_a_kill_at_every_exchange() {
    trial::killed_at_every_exchange(&mut Nats::start(OLD).await).await;
}

#[tokio::test]
async fn nats_and_a_journal_put_back_twice() {
    for version in [NEW, OLD] {
        timelines::put_back_twice(&mut Nats::start(version).await).await;
    }
}

#[tokio::test]
async fn nats_and_a_journal_put_back_while_it_is_away() {
    for version in [NEW, OLD] {
        timelines::put_back_while_away(&mut Nats::start(version).await).await;
    }
}

#[tokio::test]
async fn nats_and_a_journal_lost_under_a_clock_that_is_behind() {
    for version in [NEW, OLD] {
        timelines::lost_under_a_clock_that_is_behind(&mut Nats::start(version).await).await;
    }
}

#[tokio::test]
async fn nats_and_two_copies_of_a_journal() {
    for version in [NEW, OLD] {
        timelines::two_copies_run(&mut Nats::start(version).await).await;
    }
}

#[tokio::test]
async fn nats_and_a_daemon_that_stood_still() {
    for version in [NEW, OLD] {
        timelines::stood_still(&mut Nats::start(version).await).await;
    }
}

/// Fault 70: a server that stands still for longer than decklog waits: what it was sent before it stood still is on its way all the
/// same, and comes to it beside what it is sent then.
#[tokio::test]
async fn what_is_still_on_its_way_is_stored_once() {
    // Also where the server knows a repeat for no longer than a moment.
    for (version, short) in [(NEW, false), (OLD, false), (NEW, true), (OLD, true)] {
        let mut nats = Nats::start(version).await;
        let mut trial = Trial::new(&mut nats, "frozen").await;
        if short {
            let context = trial.far.context().await;
            let mut config = context.get_stream("frozen").await.unwrap().cached_info().config.clone();
            config.duplicate_window = Duration::from_millis(100);
            context.update_stream(&config).await.unwrap();
        }
        let config = fs::read_to_string(trial.daemon.path("config.toml")).unwrap();
        trial.daemon.configure(&format!("{config}timeout = \"500ms\"\n"));
        trial.daemon.start();
        trial.daemon.ready().await;
        for _ in 0..3 {
            trial.write(5);
            trial.far.server.signal(Signal::STOP);
            trial.write(20);
            trial.daemon.waits_for_state("sinks", "far", "retrying").await;
            trial.far.server.signal(Signal::CONT);
            trial.caught_up().await;
        }
        // Whatever comes late, however late, is what it was when it was sent; the server refuses it or knows it.
        let context = trial.far.context().await;
        let stream = context.get_stream("frozen").await.unwrap();
        for sequence in [1, 2, 20, stream.cached_info().state.last_sequence] {
            let message = stream.get_raw_message(sequence).await.unwrap();
            assert!(message.headers.get("Nats-Msg-Id").is_some());
            let late = context.publish_with_headers(message.subject, message.headers, message.payload).await.unwrap();
            assert!(late.await.map_or(true, |ack| ack.duplicate && ack.sequence == sequence));
        }
        trial.judged().await;
    }
}

/// Nothing is stored after an entry that the server refuses, although it was sent right behind it.
#[tokio::test]
async fn what_follows_a_refused_entry_waits_for_it() {
    for version in [NEW, OLD] {
        let mut nats = Nats::start(version).await;
        let mut trial = Trial::new(&mut nats, "refused").await;
        let context = trial.far.context().await;
        let mut config = context.get_stream("refused").await.unwrap().cached_info().config.clone();
        config.max_message_size = 3000;
        context.update_stream(&config).await.unwrap();
        // The sink comes later than the entries, so that they are one batch.
        let text = fs::read_to_string(trial.daemon.path("config.toml")).unwrap();
        trial.daemon.configure(text.split("[[sink]]\nname = \"far\"").next().unwrap());
        trial.daemon.start();
        trial.daemon.ready().await;
        trial.write(3);
        let large = decklog::sim::objects::config_map("default", "large", &"x".repeat(4000));
        trial.sim.create("configmaps", large).unwrap();
        trial.write(3);
        trial.daemon.reach(7).await;
        trial.daemon.configure(&text);
        trial.daemon.signal(Signal::HUP);
        let detail = trial.daemon.waits_for_state("sinks", "far", "halted").await;
        assert!(detail.contains("entry 4 was refused") && detail.contains("its `max_msg_size`"), "{detail}");
        assert_eq!(trial.far.messages("refused").await.unwrap().len(), 3);
        config.max_message_size = -1;
        context.update_stream(&config).await.unwrap();
        trial.daemon.signal(Signal::HUP);
        trial.judged().await;
    }
}

/// Fault 71: the server is put back to an earlier state, while decklog runs and while it does not.
#[tokio::test]
async fn a_stream_that_was_put_back_is_filled_up_again() {
    fn copy(from: &Path, to: &Path) {
        fs::create_dir_all(to).unwrap();
        for entry in fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            let to = to.join(entry.file_name());
            if entry.path().is_dir() { copy(&entry.path(), &to) } else { assert!(fs::copy(entry.path(), to).is_ok()) }
        }
    }
    for version in [NEW, OLD] {
        let mut nats = Nats::start(version).await;
        let (store, backup) = (nats.dir.path().join("store"), nats.dir.path().join("backup"));
        let mut trial = Trial::new(&mut nats, "restored").await;
        trial.daemon.start();
        trial.daemon.ready().await;
        trial.write(20);
        trial.caught_up().await;
        trial.far.server.stop().await;
        copy(&store, &backup);
        trial.far.restart().await;
        trial.write(20);
        trial.caught_up().await;
        for stopped in [false, true] {
            if stopped {
                trial.daemon.stop().await;
            }
            trial.far.kill();
            fs::remove_dir_all(&store).unwrap();
            copy(&backup, &store);
            trial.far.restart().await;
            if stopped {
                trial.daemon.start();
                trial.daemon.ready().await;
            }
            // Nobody knows before something is to be stored.
            trial.write(1);
            trial.caught_up().await;
            assert_eq!(trial.far.messages("restored").await.unwrap().len(), trial.daemon.lines());
        }
        trial.judged().await;
        // Made anew, it gets what the journal has.
        let context = trial.far.context().await;
        context.delete_stream("restored").await.unwrap();
        trial.daemon.start();
        trial.daemon.ready().await;
        let detail = trial.daemon.waits_for_state("sinks", "far", "retrying").await;
        assert!(detail.contains("there is no stream restored"), "{detail}");
        trial.daemon.command(&["sink", "init", "far"]).await.done();
        until("the stream to have it all", async || {
            let held = trial.far.messages("restored").await?.len();
            if held == trial.daemon.lines() { Ok(()) } else { Err(format!("{held}")) }
        })
        .await;
        trial.judged().await;
    }
}

/// The stream is deleted and made anew while decklog runs, at rest and within its work, and somebody else may be first in it.
#[tokio::test]
async fn a_stream_made_anew_gets_everything_again() {
    for version in [NEW, OLD] {
        let mut nats = Nats::start(version).await;
        let mut trial = Trial::new(&mut nats, "anew").await;
        let context = trial.far.context().await;
        let mut config = context.get_stream("anew").await.unwrap().cached_info().config.clone();
        config.subjects.push("other".to_owned());
        trial.daemon.start();
        trial.daemon.ready().await;
        for others in [0, 0, 3, 60] {
            trial.write(10);
            if others != 3 {
                trial.caught_up().await;
            }
            context.delete_stream("anew").await.unwrap();
            context.create_stream(&config).await.unwrap();
            for _ in 0..others {
                context.publish("other", "x".into()).await.unwrap().await.unwrap();
            }
            trial.write(10);
            let log = until("the stream to have it all", async || {
                trial.caught_up().await;
                let log = fs::read_to_string(trial.daemon.log()).unwrap();
                let mut came = trial.far.messages("anew").await?;
                came.retain(|line| line != "x");
                if came.len() >= log.lines().count() { Ok(log) } else { Err(format!("{} came", came.len())) }
            })
            .await;
            let log: Vec<&str> = log.lines().collect();
            let mut came = trial.far.messages("anew").await.unwrap();
            came.retain(|line| line != "x");
            trial::judge(Promise::ExactlyOnce, 0, &log, &came);
        }
        trial.daemon.stop().await;
    }
}

/// Entries that the server never takes, and a stream that is full.
#[tokio::test]
async fn what_is_too_large_is_dead_lettered_and_what_is_full_is_waited_for() {
    for version in [NEW, OLD] {
        let mut nats = Nats::with(version, "max_payload: 2048").await;
        let mut trial = Trial::new(&mut nats, "large").await;
        let config = fs::read_to_string(trial.daemon.path("config.toml")).unwrap();
        trial.daemon.start();
        trial.daemon.ready().await;
        trial.write(3);
        let large = decklog::sim::objects::config_map("default", "large", &"x".repeat(4000));
        trial.sim.create("configmaps", large).unwrap();
        let detail = trial.daemon.waits_for_state("sinks", "far", "halted").await;
        assert!(detail.contains("takes no more than its `max_payload`"), "{detail}");
        trial.write(3);
        trial.daemon.configure(&config.replace("name = \"far\"\n", "name = \"far\"\non_refused = \"dead_letter\"\n"));
        trial.daemon.signal(Signal::HUP);
        trial.caught_up().await;
        // Full for one message more.
        let context = trial.far.context().await;
        let mut config = context.get_stream("large").await.unwrap().cached_info().config.clone();
        (config.max_messages, config.discard) = (7, DiscardPolicy::New);
        context.update_stream(&config).await.unwrap();
        trial.write(3);
        let detail = trial.daemon.waits_for_state("sinks", "far", "retrying").await;
        assert!(detail.contains("the stream large is full"), "{detail}");
        config.max_messages = -1;
        context.update_stream(&config).await.unwrap();
        trial.caught_up().await;
        trial.daemon.stop().await;
        let log = fs::read_to_string(trial.daemon.log()).unwrap();
        let log: Vec<&str> = log.lines().filter(|line| line.len() < 4000).collect();
        assert_eq!(log.len(), 9);
        trial::judge(Promise::ExactlyOnce, 0, &log, &trial.far.messages("large").await.unwrap());
    }
}
