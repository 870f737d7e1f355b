//! Other writers in the same stream: decklog notices them, and goes on or halts; a replay moves nothing.

use std::fs;

use async_nats::jetstream::stream::Config;
use decklog::core::model::{EntryType, Seq};
use decklog::sink::{Item, LogPosition, Sink, SinkError};
use rustix::process::Signal;
use serde_json::json;

use super::start::{NEW, Nats, OLD};
use super::{NatsTests as _, sink};
use crate::judge::Entry;
use crate::support::{Daemon, until};
use crate::trial::{self, Far, Promise, Trial};

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
