//! Rights of a user: those that the documentation names are enough, and there is a sentence for each that is missing.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use decklog::core::model::{Cluster, Seq};
use decklog::sink::LogPosition;
use serde_json::{Value, json};

use super::start::Kafka;
use super::{KafkaTests as _, deliver, fails, items, open, position, trying};
use crate::server::made;

/// Grants and takes rights of the user `writer`.
struct Rights {
    child: Child,
    answers: std::io::Lines<BufReader<ChildStdout>>,
}

impl Drop for Rights {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

impl Rights {
    fn of(kafka: &Kafka) -> Self {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sinks/kafka/Acls.java");
        let mut command = Command::new("java");
        command.arg("-cp").arg(made("kafka").join("libs/*")).arg(source).arg(format!("127.0.0.1:{}", kafka.direct));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, answers }
    }

    /// `+` grants a right and `-` takes it away, as `+ TOPIC log WRITE`.
    fn change<'o>(&mut self, orders: impl IntoIterator<Item = &'o String>) {
        for order in orders {
            let (sign, rest) = order.split_once(' ').unwrap();
            writeln!(self.child.stdin.as_ref().unwrap(), "{sign} writer {rest}").unwrap();
            assert_eq!(self.answers.next().unwrap().unwrap(), "done", "{order}");
        }
    }
}

/// The rights that the documentation names are enough, and for each that is missing there is one sentence.
#[tokio::test(flavor = "multi_thread")]
async fn kafka_rights() {
    let (kafka, plain, password) = Kafka::with_rights().await;
    let sink = |keys: Value| {
        let mut all = json!({"topic": "log", "sasl": "plain", "user": "writer", "password_file": password});
        all.as_object_mut().unwrap().append(keys.clone().as_object_mut().unwrap());
        let mut sink = open(plain, all).unwrap();
        sink.bind("audit", &Cluster::default());
        sink
    };
    let exact = json!({"transactional_id": "audit"});
    let cursor = LogPosition { epoch: "e".to_owned(), seq: Seq(0), entry: None };
    let mut rights = Rights::of(&kafka);

    // None: topics are not visible, whether they are there or not, and cannot be made.
    let mut audit = sink(exact.clone());
    let text =
        fails("the topics log, audit-position do not exist, or may not be described", async || audit.check().await)
            .await;
    assert!(text.contains("`decklog sink init audit`"), "{text}");
    fails("it is not allowed; grant Create", async || audit.provision().await).await;
    drop(kafka.ready(json!({"topic": "log", "transactional_id": "audit"})).await);
    fails("the topics log, audit-position do not exist, or may not be described", async || audit.check().await).await;

    // Those that are documented.
    let all =
        ["TOPIC log WRITE", "TOPIC audit-position READ", "TOPIC audit-position WRITE", "TRANSACTIONAL_ID audit WRITE"];
    rights.change(&all.map(|right| format!("+ {right}")));
    trying("a check", async || audit.check().await).await.unwrap();
    assert_eq!(position(audit.as_mut()).await, None);
    deliver(audit.as_mut(), &items(1..=5)).await.unwrap();

    // One is taken away while it runs, and given back.
    let mut seq = 5;
    for (right, left, says) in [
        (all[0], Some("TOPIC log DESCRIBE"), r#"grant Write and Describe on "log""#),
        (all[2], None, r#"and Read, Write and Describe on "audit-position""#),
        (all[3], None, r#"no right to the transactional_id "audit"; grant Write and Describe"#),
    ] {
        rights.change(&left.map(|right| format!("+ {right}")));
        rights.change(&[format!("- {right}")]);
        let text = fails(says, async || {
            let next = items(seq + 1..=seq + 1);
            audit.deliver(&next).await.map_err(|failure| failure.error)?;
            seq += 1;
            Ok(())
        })
        .await;
        assert!(text.contains("no right to"), "{text}");
        rights.change(&[format!("+ {right}")]);
        let next = items(seq + 1..=seq + 1);
        deliver(audit.as_mut(), &next).await.unwrap();
        seq += 1;
    }
    rights.change(&[format!("- {}", all[1])]);
    let says = r#"reading the position from the topic "audit-position": no right to the topic"#;
    fails(says, async || sink(exact.clone()).check().await).await;
    fails(says, async || sink(exact.clone()).position(&cursor).await).await;
    rights.change(&[format!("+ {}", all[1])]);
    assert_eq!(position(sink(exact.clone()).as_mut()).await, Some(seq));
    kafka.has("log", 1..=seq).await;

    // Without transactions: Write on the topic is enough.
    rights.change(&all.map(|right| format!("- {right}")));
    let mut plainly = sink(json!({"mode": "idempotent"}));
    let text = fails("no right", async || plainly.deliver(&items(1..=1)).await.map_err(|failure| failure.error)).await;
    assert!(text.contains("grant") && !text.contains("position"), "{text}");
    rights.change(&["+ TOPIC log WRITE".to_owned()]);
    deliver(plainly.as_mut(), &items(1..=3)).await.unwrap();
    assert_eq!(kafka.seqs("log").await[usize::try_from(seq).unwrap()..], [1, 2, 3]);
}
