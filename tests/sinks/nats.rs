//! A stream of NATS JetStream, on a new server and on one as old as distributions carry it.

mod log;

pub(crate) use decklog_testkit::servers::nats as start;
use std::fs;
use std::path::Path;
use std::time::Duration;

use async_nats::ConnectOptions;
use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy};
use async_nats::jetstream::{self, Context};
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use decklog::core::model::{EntryType, Seq};
use decklog::sink::{Item, LogPosition, Sink, SinkError};
use nkeys::KeyPair;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::certs;
use crate::judge::Entry;
use crate::server::free_port;
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

/// The rights that the documentation names are enough, and each that is missing is named.
#[tokio::test]
async fn what_a_user_of_nats_may_not_do_is_named() {
    let least = ["log.>", "$JS.API.STREAM.INFO.log", "$JS.API.STREAM.MSG.GET.log"];
    let user = |name: &str, publish: &[&str], subscribe: &str| {
        format!(
            "{{ user: {name}, password: s3cret, permissions: {{ publish: {publish:?}, subscribe: [{subscribe:?}] }} }}\n"
        )
    };
    let users = [
        user("least", &least, "_INBOX.>"),
        user("maker", &[&least[..], &["$JS.API.STREAM.CREATE.log"]].concat(), "_INBOX.>"),
        user("mute", &least[1..], "_INBOX.>"),
        user("deaf", &least, "nothing"),
        user("blind", &[least[0], least[2]], "_INBOX.>"),
        user("half", &least[..2], "_INBOX.>"),
    ];
    for version in [NEW, OLD] {
        let more = format!("authorization {{ users = [\n{}] }}", users.concat());
        let nats = Nats::with(version, &more).await;
        let sim = crate::support::cluster().await;
        let mut daemon = Daemon::new(&sim, &["configmaps"]);
        let password = daemon.path("password");
        fs::write(&password, "s3cret\n").unwrap();
        let configure = |daemon: &Daemon, user: &str| {
            let keys = format!(
                "[[sink]]\nname = \"far\"\n{}user = \"{user}\"\npassword_file = {password:?}\ntimeout = \"5s\"\n",
                sink(nats.server.port(), "log")
            );
            daemon.configure(&daemon.config("resources = [\"configmaps\"]", &keys));
        };
        configure(&daemon, "least");
        let may_not = daemon.command(&["sink", "init", "far"]).await;
        assert!(may_not.err.contains("may not publish to $JS.API.STREAM.CREATE.log"), "{may_not:#?}");
        configure(&daemon, "maker");
        daemon.command(&["sink", "init", "far"]).await.done();
        for (user, says) in [
            ("deaf", "may not subscribe to its inbox"),
            ("blind", "may not publish to $JS.API.STREAM.INFO.log"),
            ("half", "may not publish to $JS.API.STREAM.MSG.GET.log"),
        ] {
            configure(&daemon, user);
            let checked = daemon.command(&["check"]).await;
            assert!(checked.code == 1 && checked.out.contains(says), "{user}: {checked:#?}");
        }
        // Nobody is asked who may publish: that is seen when something is.
        configure(&daemon, "mute");
        daemon.start();
        daemon.ready().await;
        sim.create("configmaps", decklog::sim::objects::config_map("default", "one", "x")).unwrap();
        let detail = daemon.waits_for_state("sinks", "far", "retrying").await;
        assert!(detail.contains("may not publish to the subjects of the log") && !detail.contains("one"), "{detail}");
        configure(&daemon, "least");
        daemon.signal(Signal::HUP);
        daemon.waits_for_state("sinks", "far", "running").await;
        daemon.command(&["check"]).await.done();
        daemon.stop().await;
    }
}

/// Others write to the same stream: on subjects of their own while decklog does, and then on its subjects.
#[tokio::test]
async fn others_in_the_stream_change_nothing_or_halt_it() {
    for version in [NEW, OLD] {
        let mut nats = Nats::start(version).await;
        let mut trial = Trial::new(&mut nats, "shared").await;
        let context = trial.far.context().await;
        let mut config = context.get_stream("shared").await.unwrap().cached_info().config.clone();
        config.subjects.push("other".to_owned());
        context.update_stream(&config).await.unwrap();
        trial.daemon.start();
        trial.daemon.ready().await;
        for _ in 0..20 {
            trial.write(3);
            context.publish("other", "x".into()).await.unwrap().await.unwrap();
        }
        trial.caught_up().await;
        trial.daemon.stop().await;
        context.publish("other", "x".into()).await.unwrap().await.unwrap();
        trial.write(3);
        trial.daemon.start();
        trial.daemon.ready().await;
        trial.caught_up().await;
        let log = fs::read_to_string(trial.daemon.log()).unwrap();
        let mut came = trial.far.messages("shared").await.unwrap();
        came.retain(|line| line != "x");
        let log: Vec<&str> = log.lines().collect();
        trial::judge(Promise::ExactlyOnce, 0, &log, &came);

        let ack = context.publish("shared.configmaps.m1", "stray".into()).await.unwrap().await.unwrap();
        trial.write(3);
        let detail = trial.daemon.waits_for_state("sinks", "far", "halted").await;
        assert!(detail.contains(&format!("message {} of the stream shared", ack.sequence)), "{detail}");
        context.get_stream("shared").await.unwrap().delete_message(ack.sequence).await.unwrap();
        trial.daemon.signal(Signal::HUP);
        trial.caught_up().await;
        trial.daemon.stop().await;
    }
}

/// Two logs in one stream: the older one says so, and writes nothing more.
#[tokio::test]
async fn another_decklog_in_the_stream_is_told() {
    let mut nats = Nats::start(NEW).await;
    let mut trial = Trial::new(&mut nats, "two").await;
    trial.daemon.start();
    trial.daemon.ready().await;
    trial.write(3);
    trial.caught_up().await;
    let sim = crate::support::cluster().await;
    let mut other = Daemon::new(&sim, &["configmaps"]);
    let keys = format!("[[sink]]\nname = \"far\"\n{}", sink(trial.far.port(), "two"));
    other.configure(&other.config("resources = [\"configmaps\"]", &keys));
    other.start();
    other.ready().await;
    sim.create("configmaps", decklog::sim::objects::config_map("default", "one", "x")).unwrap();
    until("the other's entry to be there", async || match trial.far.messages("two").await?.len() {
        4 => Ok(()),
        count => Err(count.to_string()),
    })
    .await;
    trial.write(3);
    let detail = trial.daemon.waits_for_state("sinks", "far", "halted").await;
    assert!(detail.contains("another decklog writes to the stream two on the subjects two.*.*"), "{detail}");
    assert_eq!(trial.far.messages("two").await.unwrap().len(), 4);
    other.stop().await;
    trial.daemon.stop().await;
}

/// Two sinks of one decklog to one stream, in two spellings of its server: one has it, the other says so, and takes none of
/// the other's entries for delivered.
#[tokio::test]
async fn two_sinks_of_nats_in_one_stream_are_told() {
    for version in [NEW, OLD] {
        let mut nats = Nats::start(version).await;
        let trial = Trial::new(&mut nats, "both").await;
        let (port, mut daemon) = (trial.far.port(), trial.daemon);
        let keys = |name: &str, kind: &str, proxy: u16| {
            format!("[[sink]]\nname = \"{name}\"\nwhere = 'type == \"{kind}\"'\n{}\n", sink(proxy, "both"))
        };
        // The proxy is another server, as far as the configuration can tell.
        let both = keys("one", "ADDED", port) + &keys("two", "MODIFIED", trial.proxy.port());
        daemon.configure(&daemon.config("resources = [\"configmaps\"]", &both));
        daemon.start();
        daemon.ready().await;
        trial.sim.create("configmaps", decklog::sim::objects::config_map("default", "one", "x")).unwrap();
        trial.sim.patch("configmaps", "default", "one", &json!({"data": {"value": "y"}})).unwrap();
        let halted = until("one of them to halt", async || {
            let status = daemon.status().await;
            let sinks = status["sinks"].as_array().cloned().unwrap_or_default();
            sinks.into_iter().find(|sink| sink["state"] == "halted").ok_or_else(|| status["sinks"].to_string())
        })
        .await;
        assert!(halted.to_string().contains("or another sink of this one"), "{halted}");
        assert_eq!(trial.far.messages("both").await.unwrap().len(), 1);
        daemon.stop().await;
    }
}

/// The sink itself, with a server of these.
fn opened(nats: &Nats, stream: &str) -> Box<dyn Sink> {
    let config: decklog::delivery::Settings =
        toml::from_str(&format!("name = \"far\"\n{}", sink(nats.server.port(), stream))).unwrap();
    config.kind.open().unwrap()
}

/// An entry of a journal; `life` tells it from another of its place.
fn item(epoch: &str, seq: u64, life: &str) -> Item {
    let line = format!(
        "{{\"v\":1,\"seq\":{seq},\"epoch\":\"{epoch}\",\"id\":\"u.{seq}.{life}\",\"time\":\"2026-11-21T10:15:00.{seq:06}Z\",\
         \"type\":\"MODIFIED\",\"evidence\":\"watched\",\"cluster\":{{\"name\":\"c\",\"uid\":\"c\"}},\"apiVersion\":\"v1\",\
         \"kind\":\"ConfigMap\",\"resource\":\"configmaps\",\"namespace\":\"n\",\"name\":\"x\",\"uid\":\"u\",\
         \"resourceVersion\":\"{seq}\"}}"
    );
    Item::new(Seq(seq), EntryType::Modified, line.into())
}

/// An entry is found among all that a stream holds, beside repeats, messages of others and holes, and no other is taken for it.
#[tokio::test]
async fn nats_is_asked_for_an_entry() {
    for version in [NEW, OLD] {
        let nats = Nats::start(version).await;
        let context = nats.context().await;
        let config = Config { name: "log".into(), subjects: vec!["log.>".into(), "other".into()], ..Config::default() };
        context.create_stream(&config).await.unwrap();
        let mut ours = opened(&nats, "log");
        let place = |epoch: &str, seq, life: &str| LogPosition::of(&item(epoch, seq, life).line).unwrap();
        let before = LogPosition::before("e1");
        assert_eq!(ours.position(&before).await, Ok(Some(before.clone())));
        assert_eq!(ours.holds(&place("e1", 1, "a")).await, Ok(None));
        let of = |epoch: &str, seqs: &[u64]| seqs.iter().map(|seq| item(epoch, *seq, "a")).collect::<Vec<_>>();
        ours.deliver(&of("e1", &[1, 2, 3, 5, 8, 13])).await.unwrap();
        for _ in 0..9 {
            context.publish("other", "x".into()).await.unwrap().await.unwrap();
        }
        let mut again = opened(&nats, "log");
        again.enter_replay();
        again.deliver(&of("e1", &[1, 2])).await.unwrap();
        ours.deliver(&of("e2", &[9, 10, 12])).await.unwrap();
        again.deliver(&of("e1", &[13, 1])).await.unwrap();
        // What was held last is told to the very entry, also by a repeat.
        let mut other = opened(&nats, "log");
        assert_eq!(other.position(&before).await, Ok(Some(place("e2", 12, "a"))));
        for (epoch, seq, held) in [
            ("e1", 1, Some(true)),
            ("e1", 2, Some(true)),
            ("e1", 3, Some(true)),
            ("e1", 4, Some(false)),
            ("e1", 5, Some(true)),
            ("e1", 8, Some(true)),
            ("e1", 13, Some(true)),
            ("e1", 14, Some(false)),
            ("e2", 1, Some(false)),
            ("e2", 9, Some(true)),
            ("e2", 10, Some(true)),
            ("e2", 11, Some(false)),
            ("e2", 12, Some(true)),
            ("e2", 13, Some(false)),
            ("e0", 1, None),
            ("e3", 1, Some(false)),
            ("e1", 2, Some(true)),
        ] {
            assert_eq!(other.holds(&place(epoch, seq, "a")).await, Ok(held), "{version} {epoch} {seq}");
            assert_eq!(other.holds(&place(epoch, seq, "b")).await, Ok(held.map(|_| false)), "{version} {epoch} {seq}");
        }
    }
}

/// Two decklogs with copies of one journal, whose entries differ: what one has under way is refused as a whole where the other was
/// first, also by a server that knows repeats.
#[tokio::test]
async fn nats_mixes_no_two_copies() {
    for version in [NEW, OLD] {
        let nats = Nats::start(version).await;
        let config = Config { name: "log".into(), subjects: vec!["log.>".into()], ..Config::default() };
        nats.context().await.create_stream(&config).await.unwrap();
        let (mut one, mut two) = (opened(&nats, "log"), opened(&nats, "log"));
        let before = LogPosition::before("e1");
        for sink in [&mut one, &mut two] {
            assert_eq!(sink.position(&before).await, Ok(Some(before.clone())));
        }
        let of = |life: &str, seqs: &[u64]| seqs.iter().map(|seq| item("e1", *seq, life)).collect::<Vec<_>>();
        one.deliver(&of("a", &[1])).await.unwrap();
        let failure = two.deliver(&of("b", &[1, 2, 3])).await.unwrap_err();
        assert!(failure.taken == 0 && matches!(&failure.error, SinkError::Halt { .. }), "{failure:?}");
        one.deliver(&of("a", &[2, 3])).await.unwrap();
        let came = nats.messages("log").await.unwrap();
        let wanted = of("a", &[1, 2, 3]).into_iter().map(|item| String::from_utf8(item.line.to_vec()).unwrap());
        assert_eq!(came, wanted.collect::<Vec<_>>());
    }
}

/// What is delivered again has the same bytes and ids, and says nothing of how far the log came.
#[tokio::test]
async fn a_replay_moves_nothing() {
    for version in [NEW, OLD] {
        let mut nats = Nats::start(version).await;
        let mut trial = Trial::new(&mut nats, "replayed").await;
        trial.daemon.start();
        trial.daemon.ready().await;
        trial.write(10);
        trial.caught_up().await;
        // Beside the daemon, and with nothing of it in between.
        trial.daemon.command(&["replay", "--sink", "far", "--from", "3", "--to", "5"]).await.done();
        trial.write(5);
        trial.caught_up().await;
        trial.daemon.stop().await;
        trial.daemon.command(&["replay", "--sink", "far", "--from", "1", "--to", "2"]).await.done();
        trial.daemon.start();
        trial.daemon.ready().await;
        trial.write(1);
        trial.caught_up().await;
        trial.daemon.stop().await;
        let log = fs::read_to_string(trial.daemon.log()).unwrap();
        let log: Vec<&str> = log.lines().collect();
        let came = trial.far.messages("replayed").await.unwrap();
        let seqs: Vec<u64> = came.iter().map(|line| Entry::parse(line).seq).collect();
        assert_eq!(seqs, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 3, 4, 5, 11, 12, 13, 14, 15, 1, 2, 16]);
        for (line, seq) in came.iter().zip(seqs) {
            assert_eq!(line, log[usize::try_from(seq).unwrap() - 1]);
        }
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

/// What an operator got wrong is told in a sentence, by `check` and in the status, and delivery goes on when it is right.
#[tokio::test]
async fn what_is_wrong_with_a_server_is_said() {
    let more = "authorization { user: me, password: s3cret }";
    let mut nats = Nats::with(NEW, more).await;
    let sim = crate::support::cluster().await;
    let mut daemon = Daemon::new(&sim, &["configmaps"]);
    let (port, shut) = (nats.server.port(), free_port());
    let password = daemon.path("password");
    let login = format!("user = \"me\"\npassword_file = {password:?}\n");
    fs::write(&password, "wr0ng\n").unwrap();
    let context = nats.context_as(ConnectOptions::with_user_and_password("me".into(), "s3cret".into())).await;
    context
        .create_stream(Config {
            name: "queue".into(),
            subjects: vec!["queue.>".into()],
            retention: RetentionPolicy::WorkQueue,
            ..Config::default()
        })
        .await
        .unwrap();
    context
        .create_stream(Config { name: "narrow".into(), subjects: vec!["narrow.pods.*".into()], ..Config::default() })
        .await
        .unwrap();
    let with =
        |text: String| daemon.config("resources = [\"configmaps\"]", &format!("[[sink]]\nname = \"far\"\n{text}\n"));
    for (config, right, says) in [
        (sink(shut, "log"), false, format!("cannot connect to 127.0.0.1:{shut}: IO error: Connection refused")),
        (
            sink(port, "log").replace("127.0.0.1", "nowhere.invalid"),
            false,
            "cannot connect to nowhere.invalid".to_owned(),
        ),
        (sink(port, "log"), false, format!("127.0.0.1:{port} asks who it is; set `credentials_file`")),
        (sink(port, "log") + &login, false, format!("127.0.0.1:{port} refuses the credentials; renew `password_file`")),
        (
            sink(port, "log") + &login,
            true,
            format!("there is no stream log at 127.0.0.1:{port}; `decklog sink init far`"),
        ),
        (sink(port, "queue") + &login, true, "drops what consumers have taken".to_owned()),
        (sink(port, "narrow") + &login, true, "does not take the subjects narrow.*.*".to_owned()),
    ] {
        fs::write(&password, if right { "s3cret\n" } else { "wr0ng\n" }).unwrap();
        daemon.configure(&with(config));
        let checked = daemon.command(&["check"]).await;
        assert!(checked.code == 1 && checked.out.contains(&says), "{says}: {checked:#?}");
    }
    // A password that is right by and by.
    fs::write(&password, "wr0ng\n").unwrap();
    daemon.configure(&with(sink(port, "log") + &login));
    daemon.start();
    let detail = daemon.waits_for_state("sinks", "far", "retrying").await;
    assert!(detail.contains("refuses the credentials; renew"), "{detail}");
    fs::write(&password, "s3cret\n").unwrap();
    daemon.signal(Signal::HUP);
    daemon.says("there is no stream log").await;
    daemon.command(&["sink", "init", "far"]).await.done();
    assert!(daemon.command(&["sink", "init", "far"]).await.err.contains("the stream log is there already"));
    daemon.waits_for_state("sinks", "far", "running").await;
    daemon.stop().await;
    let said = daemon.said();
    assert!(!said.contains("s3cret") && !said.contains("wr0ng"));
    nats.kill();
}

/// Over TLS, with credentials as `nsc` makes them; both are replaced while decklog runs.
#[tokio::test]
async fn nats_with_tls_and_a_credentials_file() {
    let pki = tempfile::tempdir().unwrap();
    certs::make(pki.path());
    let claims = |issuer: &KeyPair, subject: &KeyPair, name: &str, nats: Value| {
        let part = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(serde_json::to_vec(value).unwrap());
        let head = part(&json!({"typ": "JWT", "alg": "ed25519-nkey"}));
        let body = part(&json!({
            "jti": name, "iat": 1_700_000_000, "iss": issuer.public_key(), "sub": subject.public_key(), "name": name, "nats": nats,
        }));
        let signature = issuer.sign(format!("{head}.{body}").as_bytes()).unwrap();
        format!("{head}.{body}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature))
    };
    let (operator, system, account) = (KeyPair::new_operator(), KeyPair::new_account(), KeyPair::new_account());
    let credentials = |issuer: &KeyPair| {
        let user = KeyPair::new_user();
        let rights = json!({"pub": {}, "sub": {}, "subs": -1, "data": -1, "payload": -1, "type": "user", "version": 2});
        format!(
            "-----BEGIN NATS USER JWT-----\n{}\n------END NATS USER JWT------\n\n-----BEGIN USER NKEY SEED-----\n{}\n------END USER NKEY SEED------\n",
            claims(issuer, &user, "decklog", rights),
            user.seed().unwrap()
        )
    };
    let unlimited = json!({
        "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true, "conn": -1, "leaf": -1,
        "mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1,
    });
    let of = |key: &KeyPair, limits: &Value| {
        claims(&operator, key, "account", json!({"limits": limits, "type": "account", "version": 2}))
    };
    let more = format!(
        "operator: {}\nsystem_account: {}\nresolver: MEMORY\nresolver_preload: {{ {}: {}, {}: {} }}\ntls {{ cert_file: {:?}, key_file: {:?} }}",
        claims(&operator, &operator, "operator", json!({"type": "operator", "version": 2})),
        system.public_key(),
        system.public_key(),
        of(&system, &json!({"subs": -1, "conn": -1})),
        account.public_key(),
        of(&account, &unlimited),
        pki.path().join("server.pem"),
        pki.path().join("server.key"),
    );
    let nats = Nats::with(NEW, &more).await;
    let sim = crate::support::cluster().await;
    let mut daemon = Daemon::new(&sim, &["configmaps"]);
    let (creds, authority) = (daemon.path("nats.creds"), daemon.path("ca.pem"));
    let keys = format!(
        "[[sink]]\nname = \"far\"\n{}credentials_file = {creds:?}\nca_file = {authority:?}\n",
        sink(nats.server.port(), "log").replace("nats://", "tls://")
    );
    daemon.configure(&daemon.config("resources = [\"configmaps\"]", &keys));
    // The account signs its users, and nobody else.
    let stranger = KeyPair::new_account();
    for (credentials, ca, says) in [
        (credentials(&account), "stranger.pem", "certificate is not signed by"),
        (credentials(&stranger), "ca.pem", "refuses the credentials"),
        ("none".to_owned(), "ca.pem", "holds no credentials as `nsc` makes them"),
    ] {
        fs::write(&creds, credentials).unwrap();
        fs::copy(pki.path().join(ca), &authority).unwrap();
        let checked = daemon.command(&["check"]).await;
        assert!(checked.code == 1 && checked.out.contains(says), "{says}: {checked:#?}");
    }
    fs::write(&creds, credentials(&account)).unwrap();
    daemon.command(&["sink", "init", "far"]).await.done();
    daemon.start();
    daemon.ready().await;
    daemon.waits_for_state("sinks", "far", "running").await;
    // Another user of the account, with what is written next.
    fs::write(&creds, credentials(&account)).unwrap();
    sim.create("configmaps", decklog::sim::objects::config_map("default", "one", "x")).unwrap();
    let held = async || -> Result<usize, String> {
        let trusted =
            ConnectOptions::with_credentials(&credentials(&account)).unwrap().add_root_certificates(authority.clone());
        let context = nats.context_as(trusted).await;
        let stream = context.get_stream("log").await.map_err(|error| error.to_string())?;
        Ok(usize::try_from(stream.cached_info().state.messages).unwrap())
    };
    until("the entry to be there", async || match held().await? {
        0 => Err("not yet".to_owned()),
        count => {
            if count == daemon.lines() {
                Ok(())
            } else {
                Err(count.to_string())
            }
        }
    })
    .await;
    daemon.stop().await;
    assert!(!daemon.said().contains("SEED") && !daemon.said().contains("eyJ"));
}

/// A certificate that has expired.
#[tokio::test]
async fn an_expired_certificate_is_named() {
    let pki = tempfile::tempdir().unwrap();
    certs::make(pki.path());
    let file = |name: &str| pki.path().join(name);
    let more = format!("tls {{ cert_file: {:?}, key_file: {:?} }}", file("expired.pem"), file("expired.key"));
    let nats = Nats::with(OLD, &more).await;
    let sim = crate::support::cluster().await;
    let daemon = Daemon::new(&sim, &["configmaps"]);
    let keys = format!("[[sink]]\nname = \"far\"\n{}ca_file = {:?}\n", sink(nats.server.port(), "log"), file("ca.pem"));
    daemon.configure(&daemon.config("resources = [\"configmaps\"]", &keys));
    let checked = daemon.command(&["check"]).await;
    assert!(
        checked.code == 1
            && checked
                .out
                .contains(": IO error: the server's certificate has expired, at 2021-01-01T00:00:00Z; renew it"),
        "{checked:#?}"
    );
}

/// What `--print` gives is what a server takes, and what `sink init` makes.
#[tokio::test]
async fn the_printed_stream_is_the_one_that_is_made() {
    for version in [NEW, OLD] {
        let nats = Nats::start(version).await;
        let sim = crate::support::cluster().await;
        let daemon = Daemon::new(&sim, &["configmaps"]);
        let keys = format!("[[sink]]\nname = \"far\"\n{}", sink(nats.server.port(), "log"));
        daemon.configure(&daemon.config("resources = [\"configmaps\"]", &keys));
        let printed = daemon.command(&["sink", "init", "far", "--print"]).await.done();
        let context = nats.context().await;
        let made: Value =
            context.request("STREAM.CREATE.log", &serde_json::from_str::<Value>(&printed).unwrap()).await.unwrap();
        assert_eq!(made["config"]["subjects"], json!(["log.*.*"]), "{made}");
        daemon.command(&["check"]).await.done();
        context.delete_stream("log").await.unwrap();
        daemon.command(&["sink", "init", "far"]).await.done();
        let config = context.get_stream("log").await.unwrap().cached_info().config.clone();
        assert_eq!(config, serde_json::from_value::<Config>(made["config"].clone()).unwrap());
    }
}
