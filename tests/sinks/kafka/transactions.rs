//! Transactions that get no answer, that the brokers give up, or that they have lost.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use decklog::sink::SinkError;
use rustix::process::Signal;
use serde_json::json;

use super::start::Kafka;
use super::{KafkaTests as _, deliver, exactly, items, open, position, position_after};
use crate::support::{Daemon, cluster, until};
use crate::trace::under_shim;
use crate::trial::{self, Far, Promise};

/// Fault 67: the connection is gone at each answer of a transaction, the last one included, and comes back only after the sink has
/// given it up: whether it was committed is found out.
#[tokio::test(flavor = "multi_thread")]
async fn kafka_commit_without_an_answer() {
    let kafka = Kafka::start(true).await;
    let proxy = kafka.proxy().await;
    drop(kafka.ready(exactly("cut")).await);
    let mut sink = open(proxy.port(), exactly("cut")).unwrap();
    position(sink.as_mut()).await;
    deliver(sink.as_mut(), &items(1..=1)).await.unwrap();
    let mut seq = 1;
    for answers in 2.. {
        seq += 1;
        proxy.close_after(answers);
        let next = items(seq..=seq);
        let taken = sink.deliver(&next).await;
        proxy.refuse(false);
        let Err(failure) = taken else { break };
        assert!(matches!(failure.error, SinkError::Retry { .. }), "{failure:?}");
        deliver(sink.as_mut(), &next).await.unwrap();
    }
    kafka.has("cut", 1..=seq).await;
}

/// The brokers are put back to an earlier state: what they lost is delivered again, also without a restart of decklog.
#[tokio::test(flavor = "multi_thread")]
async fn kafka_put_back() {
    let mut kafka = Kafka::start(true).await;
    let mut sink = kafka.ready(exactly("back")).await;
    position(sink.as_mut()).await;
    deliver(sink.as_mut(), &items(1..=5)).await.unwrap();
    kafka.server.stop().await;
    let data = kafka.dir.path().join("data");
    let copy = |from: &Path, to: &Path| {
        assert!(Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
    };
    copy(&data, &kafka.dir.path().join("copy"));
    kafka.restart().await;
    // Of a producer that began after the copy was made they know nothing, as if another one had taken over.
    for (began_anew, last) in [(false, 9), (true, 11)] {
        if began_anew {
            sink.reopen();
            position(sink.as_mut()).await;
        }
        deliver(sink.as_mut(), &items(if began_anew { 10 } else { 6 }..=last)).await.unwrap();
        kafka.has("back", 1..=last).await;
        kafka.server.stop().await;
        fs::remove_dir_all(&data).unwrap();
        copy(&kafka.dir.path().join("copy"), &data);
        kafka.restart().await;
        // It is not taken on top of a hole.
        let lost = deliver(sink.as_mut(), &items(last + 1..=last + 1)).await.unwrap_err();
        assert!(matches!(lost, (0, SinkError::Lost { .. })), "{lost:?}");
        assert_eq!(position(sink.as_mut()).await, Some(5));
        deliver(sink.as_mut(), &items(6..=last)).await.unwrap();
        kafka.has("back", 1..=last).await;
    }
    // They have nothing at all: it is not taken on top of a hole either, and begins anew.
    for restarted in [false, true] {
        kafka.kill();
        fs::remove_dir_all(&data).unwrap();
        fs::remove_file(kafka.dir.path().join("formatted")).unwrap();
        kafka.restart().await;
        if restarted {
            sink = kafka.ready(exactly("back")).await;
        } else {
            drop(kafka.ready(exactly("back")).await);
            let lost = deliver(sink.as_mut(), &items(12..=12)).await.unwrap_err();
            assert!(matches!(lost, (0, SinkError::Lost { .. })), "{lost:?}");
        }
        assert_eq!(position_after(sink.as_mut(), 11).await, Some(0));
        deliver(sink.as_mut(), &items(1..=12)).await.unwrap();
        kafka.has("back", 1..=12).await;
    }
    // A position alone that is gone says nothing of the entries: the cursor counts.
    let mut moved = kafka.ready(json!({"topic": "back", "transactional_id": "moved"})).await;
    assert_eq!(position_after(moved.as_mut(), 12).await, None);
}

/// decklog stands still within a transaction for longer than the brokers let it be open, wherever that is: they give it up,
/// which looks as if another producer had taken over, and nobody has to act.
#[tokio::test(flavor = "multi_thread")]
async fn kafka_stopped_within_a_transaction() {
    /// At which of its sends and receives: some are those of its connections.
    const STOPS: [usize; 5] = [80, 90, 100, 110, 120];
    let more =
        |_: &Path, _: &mut Vec<_>| "transaction.abort.timed.out.transaction.cleanup.interval.ms=500\n".to_owned();
    let kafka = Kafka::start_with(true, more, &[]).await;
    let sim = cluster().await;
    let mut stopped = Vec::new();
    for step in STOPS {
        let run = format!("stop{step}");
        let mut daemon = Daemon::new(&sim, &["configmaps"]);
        let keys = Far::sink(&kafka, kafka.direct, &run, Path::new("")).replace("20s", "4s");
        daemon
            .configure(&daemon.config("resources = [\"configmaps\"]", &format!("[[sink]]\nname = \"far\"\n{keys}\n")));
        kafka.prepare(&daemon, &run).await;
        let root = daemon.path("").canonicalize().unwrap();
        let port = kafka.direct.to_string();
        daemon.start_with(|command| {
            under_shim(command, &root).env("DECKLOG_SHIM_PORT", &port).env("DECKLOG_SHIM_KILL", format!("stop:{step}"))
        });
        stopped.push((run, daemon));
    }
    let mut made = 0;
    for (_, daemon) in &mut stopped {
        until("it to stand still", async || {
            daemon.must_run();
            let stat = fs::read_to_string(format!("/proc/{}/stat", daemon.pid())).unwrap();
            if stat.rsplit(") ").next().unwrap().starts_with('T') {
                return Ok(());
            }
            // Something to deliver, until it comes to its step.
            made += 1;
            let map = decklog::sim::objects::config_map("default", &format!("m{made}"), "x");
            sim.create("configmaps", map).unwrap();
            Err("it goes on".to_owned())
        })
        .await;
    }
    let since = Instant::now();
    until("the brokers to give up what is open", async || {
        if since.elapsed() > Duration::from_secs(4 + 12) { Ok(()) } else { Err("not yet".to_owned()) }
    })
    .await;
    let mut given_up = 0;
    for (run, mut daemon) in stopped {
        daemon.signal(Signal::CONT);
        until("the sink to have everything", async || {
            daemon.must_run();
            let status = daemon.status().await;
            let far = status["sinks"].as_array().unwrap().iter().find(|sink| sink["name"] == "far").cloned().unwrap();
            let lines = daemon.lines();
            if far["cursor"].as_u64() == Some(lines as u64) && lines >= made { Ok(()) } else { Err(far.to_string()) }
        })
        .await;
        // It is the one that goes on, with a check beside it.
        daemon.command(&["check"]).await.done();
        daemon.stop().await;
        let said = daemon.said();
        assert!(!said.contains("halted"), "{said}");
        given_up += usize::from(said.lines().any(|line| line.contains("trying again")));
        let log = fs::read_to_string(daemon.log()).unwrap();
        let came = kafka.consumed(&run).await.unwrap();
        trial::judge(Promise::ExactlyOnce, 0, &log.lines().collect::<Vec<_>>(), &came);
    }
    assert!(given_up > 0, "none stood still within a transaction");
}
