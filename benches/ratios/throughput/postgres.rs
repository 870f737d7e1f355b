//! Rows of a PostgreSQL.

pub(crate) use decklog_testkit::servers::postgres as start;
use std::borrow::Cow;
use std::pin::pin;

use bytes::Bytes;
use decklog::core::wire::Entry;
use decklog::sink::Item;
use futures::SinkExt;
use serde_json::json;
use tokio::task::JoinSet;
use tokio_postgres::{Client, NoTls, Statement};

use self::start::Postgres;
use super::{Bench, Case, ENTRIES, Plain};

struct Copies {
    client: Client,
    copy: Statement,
    move_cursor: Statement,
    sink: String,
    /// Where the cursor is.
    seq: i64,
    _connection: JoinSet<()>,
}

impl Plain for Copies {
    /// Rows in the form of COPY, and the last seq.
    type Batch = (Bytes, i64);

    fn prepare(&self, items: &[Item]) -> Self::Batch {
        let mut rows = String::new();
        for item in items {
            let entry = Entry::parse(&item.line).expect("an entry");
            let text = |text: &Option<Cow<'_, str>>| text.as_deref().unwrap_or_default().to_owned();
            let columns = [
                self.sink.clone(),
                entry.epoch.to_string(),
                entry.seq.to_string(),
                entry.id.to_string(),
                entry.time.to_string(),
                entry.op.as_str().to_owned(),
                text(&entry.evidence),
                entry.cluster.uid.to_string(),
                entry.cluster.name.to_string(),
                entry.group().to_owned(),
                entry.api_version.to_string(),
                entry.resource.to_string(),
                entry.kind.to_string(),
                text(&entry.namespace),
                text(&entry.name),
                text(&entry.uid),
                text(&entry.resource_version),
                String::from_utf8(item.line.to_vec()).expect("a line is text"),
            ];
            // JSON has neither tabs nor newlines, and escapes with what COPY escapes with.
            rows += &columns.map(|column| column.replace('\\', "\\\\")).join("\t");
            rows.push('\n');
        }
        (rows.into(), i64::try_from(items[items.len() - 1].seq.0).expect("it fits"))
    }

    async fn send(&mut self, (rows, seq): Self::Batch) {
        let transaction = self.client.transaction().await.expect("a transaction");
        let mut copy = pin!(transaction.copy_in(&self.copy).await.expect("a table"));
        copy.send(rows).await.expect("rows");
        copy.as_mut().finish().await.expect("rows");
        // Nobody else has moved it.
        let moved = transaction.execute(&self.move_cursor, &[&self.sink, &self.seq, &seq]).await.expect("a cursor");
        assert_eq!(moved, 1);
        transaction.commit().await.expect("a commit");
        self.seq = seq;
    }
}

pub(super) async fn compare(bench: &mut Bench<'_>) {
    let server = Postgres::start().await;
    let url = server.url(server.server.port());
    let password = server.dir.path().join("password");
    let uid = bench.log.cluster.uid.clone();
    let case = Case {
        what: "postgres",
        baseline: "tokio-postgres, COPY and a cursor in a transaction",
        entries: ENTRIES,
        keys: &|run| json!({ "type": "postgres", "url": url, "sslmode": "disable", "password_file": password, "schema": run }),
    };
    let plain = async |run: &str| {
        let mut config: tokio_postgres::Config = url.parse().expect("a URL");
        config.password(start::PASSWORD);
        let (client, driver) = config.connect(NoTls).await.expect("a connection");
        let mut connection = JoinSet::new();
        connection.spawn(async { drop(driver.await) });
        client
            .batch_execute(&format!(
                "INSERT INTO {run}.cursors (sink, cluster, epoch, seq) VALUES ('{run}', '{uid}', '', 0) ON CONFLICT DO NOTHING"
            ))
            .await
            .expect("a cursor");
        let prepare = async |text: String| client.prepare(&text).await.expect("a statement");
        let copy = prepare(format!(
            "COPY {run}.entries (sink, epoch, seq, id, time, type, evidence, cluster, cluster_name, api_group, api_version,
             resource, kind, namespace, name, uid, resource_version, line) FROM STDIN"
        ));
        let move_cursor = prepare(format!(
            "UPDATE {run}.cursors SET seq = $3, moved = now() WHERE sink = $1 AND cluster = '{uid}' AND seq = $2"
        ));
        let (copy, move_cursor) = (copy.await, move_cursor.await);
        Copies { client, copy, move_cursor, sink: run.to_owned(), seq: 0, _connection: connection }
    };
    let rest = async || {
        server.sql("postgres", "CHECKPOINT").await.expect("a checkpoint");
    };
    bench.compare(case, plain, rest).await;
}
