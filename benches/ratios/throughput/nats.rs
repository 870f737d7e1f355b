//! A stream of NATS JetStream.

use async_nats::HeaderMap;
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::{self, Context};
use decklog::core::wire::Entry;
use decklog::sink::Item;
pub(crate) use decklog_testkit::servers::nats as start;
use serde_json::json;

use self::start::{NEW, Nats};
use super::{Bench, Case, ENTRIES, Plain, at_once};

struct Publishes {
    context: Context,
    stream: String,
    /// The last sequence of the stream.
    last: u64,
}

impl Plain for Publishes {
    /// Subjects and messages.
    type Batch = Vec<(String, PublishMessage)>;

    fn prepare(&self, items: &[Item]) -> Self::Batch {
        let message = |item: &Item| {
            let entry = Entry::parse(&item.line).expect("an entry");
            let mut headers = HeaderMap::new();
            headers.insert("Decklog-Epoch", &*entry.epoch);
            headers.insert("Decklog-Seq", entry.seq.to_string());
            headers.insert("Decklog-Id", &*entry.id);
            headers.insert("Decklog-Type", entry.op.as_str());
            let name = entry.name.as_deref().unwrap_or("_");
            let message = PublishMessage::build()
                .payload(item.line.clone())
                .headers(headers)
                .message_id(format!("{}.{}", entry.epoch, entry.seq))
                .expected_stream(&self.stream);
            (format!("{}.{}.{name}", self.stream, entry.resource), message)
        };
        items.iter().map(message).collect()
    }

    async fn send(&mut self, batch: Self::Batch) {
        let mut under_way = Vec::with_capacity(batch.len());
        for ((subject, message), last) in batch.into_iter().zip(self.last..) {
            let message = message.expected_last_sequence(last);
            under_way.push(self.context.send_publish(subject, message).await.expect("a connection"));
        }
        for ack in under_way {
            self.last += 1;
            assert_eq!(ack.await.expect("an acknowledgement").sequence, self.last);
        }
    }
}

pub(super) async fn compare(bench: &mut Bench<'_>) {
    let nats = Nats::start(NEW).await;
    let address = format!("nats://127.0.0.1:{}", nats.server.port());
    let case = Case {
        what: "nats",
        baseline: "async-nats, published with an expected sequence, acknowledged",
        entries: ENTRIES,
        keys: &|run| {
            json!({
                "type": "nats", "addresses": [address], "stream": run, "subject": format!("{run}.{{resource}}.{{name}}"),
            })
        },
    };
    let plain = async |run: &str| {
        let client = async_nats::connect(&address).await.expect("a connection");
        Publishes { context: jetstream::new(client), stream: run.to_owned(), last: 0 }
    };
    bench.compare(case, plain, at_once).await;
}
