//! A stream of Redis that writes every command to its disk before it answers.

use ::redis::Pipeline;
use ::redis::aio::MultiplexedConnection;
use decklog::core::wire::Entry;
use decklog::sink::Item;
use decklog_testkit::servers::redis as start;
use serde_json::json;

use self::start::Redis;
use super::{Bench, Case, ENTRIES, Plain};

struct Additions {
    connection: MultiplexedConnection,
    stream: String,
}

impl Plain for Additions {
    type Batch = Pipeline;

    fn prepare(&self, items: &[Item]) -> Pipeline {
        let mut pipeline = ::redis::pipe();
        pipeline.atomic();
        for item in items {
            let entry = Entry::parse(&item.line).expect("an entry");
            let begun = u64::from_str_radix(&entry.epoch[..12], 16).expect("a time");
            pipeline.cmd("XADD").arg(&self.stream).arg(format!("{begun}-{}", entry.seq));
            pipeline.arg("id").arg(&*entry.id).arg("seq").arg(entry.seq).arg("epoch").arg(&*entry.epoch);
            pipeline.arg("type").arg(entry.op.as_str()).arg("entry").arg(&item.line[..]);
        }
        pipeline
    }

    async fn send(&mut self, batch: Pipeline) {
        batch.exec_async(&mut self.connection).await.expect("additions");
    }
}

pub(super) async fn compare(bench: &mut Bench<'_>) {
    let redis = Redis::start().await;
    let url = format!("redis://127.0.0.1:{}", redis.server.port());
    let case = Case {
        what: "redis",
        baseline: "redis, XADD in a MULTI",
        entries: ENTRIES,
        keys: &|run| json!({ "type": "redis", "url": url, "stream": run }),
    };
    let plain = async |run: &str| Additions {
        connection: redis.connect().await.expect("a connection"),
        stream: run.to_owned(),
    };
    let rest = async || {
        let mut connection = redis.connect().await.expect("a connection");
        ::redis::cmd("FLUSHALL").exec_async(&mut connection).await.expect("it is cleared");
    };
    bench.compare(case, plain, rest).await;
}
