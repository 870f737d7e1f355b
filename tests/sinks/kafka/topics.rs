//! Topics: missing, made, of several partitions and by a template; what is too large for one, and who takes one over.

use std::collections::BTreeMap;

use decklog::core::model::{Cluster, Seq};
use decklog::sink::{Class, LogPosition, SinkError};
use serde_json::{Value, json};

use super::start::Kafka;
use super::{KafkaTests as _, deliver, exactly, fails, item, items, position, trying};
use crate::support::until;

/// Fault 68, 69: what a broker refuses, what is missing, who takes over; each in one clear sentence.
#[tokio::test(flavor = "multi_thread")]
async fn kafka_topics_sizes_and_takeovers() {
    let kafka = Kafka::start(true).await;

    // Missing topics are told by the check and by a delivery, and made on request.
    let mut sink = kafka.opened(exactly("made"));
    assert_eq!(sink.class(), Class::ExactlyOnce);
    let missing = trying("a check", async || sink.check().await).await.unwrap_err();
    assert!(
        missing.to_string().contains("the topics made, made-position do not exist, or may not be described"),
        "{missing}"
    );
    let cursor = LogPosition { epoch: "e".to_owned(), seq: Seq(0), entry: None };
    fails("run `decklog sink init NAME`", async || sink.position(&cursor).await).await;
    let commands = sink.provisioning_script().unwrap();
    assert!(commands.contains("--topic made --partitions 1\n"), "{commands}");
    assert!(commands.contains("--topic made-position --partitions 1 --config cleanup.policy=compact"), "{commands}");
    let made = trying("the topics to be made", async || sink.provision().await).await.unwrap();
    assert_eq!(made, "made made and made-position");
    assert_eq!(sink.provision().await.unwrap(), "every topic that it needs is there already");
    sink.check().await.unwrap();
    let mut other = kafka.ready(exactly("other")).await;
    let mut lost = kafka.opened(json!({"topic": "nowhere", "transactional_id": "other"}));
    let text = fails("\"nowhere\"", async || lost.deliver(&items(1..=2)).await.map_err(|failure| failure.error)).await;
    assert!(text.contains("run `decklog sink init NAME`"), "{text}");
    // A topic that would forget the position, as brokers make them by themselves: nothing is delivered before it is set right.
    drop(kafka.ready(json!({"topic": "plain", "mode": "idempotent"})).await);
    let mut forgetful = kafka.opened(json!({"topic": "made", "transactional_id": "x", "position_topic": "plain"}));
    for delivers in [true, false] {
        fails("run `decklog sink init NAME`, which sets cleanup.policy=compact", async || match delivers {
            true => forgetful.position(&cursor).await.map(drop),
            false => forgetful.check().await,
        })
        .await;
    }
    let set = forgetful.provision().await.unwrap();
    assert!(set.contains("there already; set cleanup.policy=compact on plain"), "{set}");
    until("it to keep the position", async || forgetful.check().await.map_err(|error| error.to_string())).await;
    assert_eq!(position(forgetful.as_mut()).await, None);

    // The position comes with the entries, and another topic's is not taken for ours.
    assert_eq!(position(sink.as_mut()).await, None);
    deliver(sink.as_mut(), &items(1..=30)).await.unwrap();
    assert_eq!(position(sink.as_mut()).await, Some(30));
    let mut second = kafka.opened(exactly("made"));
    assert_eq!(position(second.as_mut()).await, Some(30));
    let mut mixed =
        kafka.opened(json!({"topic": "made", "transactional_id": "mixed", "position_topic": "made-position"}));
    let foreign = trying("its position", async || mixed.position(&cursor).await).await.unwrap_err();
    assert!(foreign.to_string().contains("another sink"), "{foreign}");

    // The second has taken over: the first writes nothing any more until somebody says so.
    let fenced = deliver(sink.as_mut(), &items(31..=32)).await.unwrap_err();
    assert!(matches!(&fenced, (0, SinkError::Halt { text }) if text.contains("taken over")), "{fenced:?}");
    deliver(second.as_mut(), &items(31..=35)).await.unwrap();
    sink.reopen();
    assert_eq!(position(sink.as_mut()).await, Some(35));
    deliver(sink.as_mut(), &items(36..=36)).await.unwrap();
    // A check and `sink init` beside it take nothing over.
    let mut beside = kafka.opened(exactly("made"));
    trying("a check", async || beside.check().await).await.unwrap();
    beside.provision().await.unwrap();
    deliver(sink.as_mut(), &items(37..=37)).await.unwrap();
    kafka.has("made", 1..=37).await;

    // Attempts that were given up after the position, more than are read at once.
    kafka.give_up("made", 60);
    assert!(kafka.end("made-position") > 120);
    sink.reopen();
    assert_eq!(position(sink.as_mut()).await, Some(37));

    // One that is too large for the topic stands alone, and what is around it goes on.
    for keys in [exactly("other"), json!({"topic": "other", "mode": "idempotent"})] {
        let transactional = keys["transactional_id"].is_string();
        let mut sink = kafka.opened(keys);
        if transactional {
            position(sink.as_mut()).await;
        }
        let mut batch = items(1..=7);
        batch[3] = item(4, "m4", 3_000_000);
        let refused = deliver(sink.as_mut(), &batch).await.unwrap_err();
        assert!(
            matches!(&refused, (3, SinkError::Refused { text }) if text.contains("max.message.bytes")),
            "{refused:?}"
        );
        deliver(sink.as_mut(), &batch[4..]).await.unwrap();
    }
    assert_eq!(kafka.seqs("other").await, [1, 2, 3, 5, 6, 7, 1, 2, 3, 5, 6, 7]);

    // Also where it is the first of a producer that the brokers do not know yet.
    let mut fresh = kafka.opened(json!({"topic": "other", "mode": "idempotent"}));
    let batch = [&[item(8, "m3", 3_000_000)], &items(9..=10)[..]].concat();
    let refused = deliver(fresh.as_mut(), &batch).await.unwrap_err();
    assert!(matches!(&refused, (0, SinkError::Refused { .. })), "{refused:?}");
    deliver(fresh.as_mut(), &batch[1..]).await.unwrap();
    assert_eq!(kafka.seqs("other").await[12..], [9, 10]);

    // A replay repeats, moves no position and locks nobody out.
    let mut replay = kafka.opened(exactly("other"));
    replay.enter_replay();
    deliver(replay.as_mut(), &items(2..=3)).await.unwrap();
    assert_eq!(kafka.seqs("other").await[14..], [2, 3]);
    assert_eq!(position(other.as_mut()).await, Some(7));
}

/// Several partitions: each object is in one, and its entries are in their order.
#[tokio::test(flavor = "multi_thread")]
async fn kafka_partitions_and_topics_by_template() {
    let kafka = Kafka::start(true).await;
    let mut keys = exactly("wide");
    keys["partitions"] = json!(4);
    let mut sink = kafka.ready(keys).await;
    for part in items(1..=200).chunks(30) {
        deliver(sink.as_mut(), part).await.unwrap();
    }
    // A partition shows what a transaction committed a moment after the commit is confirmed.
    let records = until("a consumer to read all of it", async || {
        let records = kafka.read("wide")?;
        let count: usize = records.values().map(Vec::len).sum();
        if count >= 200 { Ok(records) } else { Err(format!("it has read {count}")) }
    })
    .await;
    let mut seen: BTreeMap<String, (i32, u64)> = BTreeMap::new();
    for (partition, (key, line)) in records.iter().flat_map(|(p, all)| all.iter().map(move |record| (*p, record))) {
        let seq = serde_json::from_str::<Value>(line).unwrap()["seq"].as_u64().unwrap();
        let (place, last) = seen.entry(key.clone()).or_insert((partition, 0));
        assert_eq!(*place, partition, "{key}");
        assert!(*last < seq, "{key}: {seq} after {last}");
        *last = seq;
    }
    assert_eq!(
        seen.keys().cloned().collect::<Vec<_>>(),
        (0..5).map(|n| format!("configmaps/default/m{n}")).collect::<Vec<_>>()
    );
    assert!(records.len() > 1, "all in one partition");
    assert_eq!(records.values().map(Vec::len).sum::<usize>(), 200);

    // A template needs topics that somebody else makes.
    drop(kafka.ready(json!({"topic": "log.configmaps.prod", "mode": "idempotent"})).await);
    let mut sink = kafka.ready(json!({"topic": "log.{resource}.{cluster}", "transactional_id": "log"})).await;
    assert!(sink.provisioning_script().unwrap().starts_with("# and a topic for each log.{resource}.{cluster}"));
    deliver(sink.as_mut(), &items(1..=3)).await.unwrap();
    assert_eq!(kafka.seqs("log.configmaps.prod").await, [1, 2, 3]);
    let mut nowhere = kafka.opened(json!({"topic": "none.{resource}", "transactional_id": "log"}));
    nowhere.bind("audit", &Cluster::default());
    assert_eq!(position(nowhere.as_mut()).await, Some(3));
    let text = fails("auto.create.topics.enable", async || {
        nowhere.deliver(&items(4..=5)).await.map_err(|failure| failure.error)
    })
    .await;
    assert!(text.contains("\"none.configmaps\"") && !text.contains("sink init"), "{text}");
    // It is made by hand.
    drop(kafka.ready(json!({"topic": "none.configmaps", "mode": "idempotent"})).await);
    deliver(nowhere.as_mut(), &items(4..=5)).await.unwrap();
    assert_eq!(kafka.seqs("none.configmaps").await, [4, 5]);
}
