//! The shared log in PostgreSQL.

use decklog::core::shared_log::{LogError, SharedLog};
use decklog::sink::registry::SinkKind;
use serde_json::json;

use super::PostgresTests as _;
use super::start::Postgres;
use crate::proxy::Proxy;
use crate::shared::{self, Place};
use crate::support::until;

/// The logs of one sink, at a port of the server or of what is before it.
struct Logs<'p> {
    far: &'p Postgres,
    port: u16,
    schema: &'static str,
}

impl Logs<'_> {
    fn kind(&self) -> SinkKind {
        let config = json!({
            "type": "postgres",
            "url": self.far.url(self.port),
            "sslmode": "disable",
            "password_file": self.far.dir.path().join("password"),
            "schema": self.schema,
        });
        serde_json::from_value(config).unwrap()
    }

    /// Makes the tables.
    async fn init(&self) {
        self.kind().open().unwrap().provision().await.unwrap();
    }

    async fn sql(&self, text: &str) -> Vec<String> {
        self.far.sql("audit", &text.replace("SCHEMA", self.schema)).await.unwrap()
    }
}

impl Place for Logs<'_> {
    fn open(&self, cluster: &str) -> Box<dyn SharedLog> {
        self.kind().settings().shared_log("archive", cluster).unwrap().unwrap()
    }

    async fn forget(&self, cluster: &str, from: u64) {
        let text = format!("DELETE FROM SCHEMA.shared_units WHERE log = 'archive/{cluster}' AND number >= {from}");
        self.sql(&text).await;
    }

    async fn lose(&self, cluster: &str, units: &[u64]) {
        for number in units {
            let of = format!("log = 'archive/{cluster}' AND number = {number}");
            self.sql(&format!("UPDATE SCHEMA.shared_units SET log = 'lost/{cluster}' WHERE {of}")).await;
        }
    }

    async fn put_back(&self, cluster: &str, _units: &[u64]) -> bool {
        let of = format!("log = 'lost/{cluster}'");
        self.sql(&format!("UPDATE SCHEMA.shared_units SET log = 'archive/{cluster}' WHERE {of}")).await;
        true
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_shared_log() {
    let far = Postgres::start().await;
    let logs = Logs { far: &far, port: far.server.port(), schema: "shared" };
    logs.init().await;
    shared::keeps_what_it_promises(&logs).await;
    println!("an append of 1 KB and of 1 MB: {:?}", shared::latency(&logs).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_shared_log_through_a_pooler() {
    let far = Postgres::start().await;
    let pool = far.pool().await;
    Logs { far: &far, port: far.server.port(), schema: "pooled" }.init().await;
    shared::keeps_what_it_promises(&Logs { far: &far, port: pool.port(), schema: "pooled" }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_shared_log_answers_cut() {
    let far = Postgres::start().await;
    let proxy = Proxy::start(far.server.port()).await;
    let straight = Logs { far: &far, port: far.server.port(), schema: "cut" };
    straight.init().await;
    let through = Logs { far: &far, port: proxy.port(), schema: "cut" };
    shared::lasts(&through, &straight, "cut", async |reached| proxy.cuts(reached).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_shared_log_killed() {
    let mut far = Postgres::start().await;
    let port = far.server.port();
    Logs { far: &far, port, schema: "killed" }.init().await;
    let kind = Logs { far: &far, port, schema: "killed" }.kind();
    let open = |cluster: &str| kind.settings().shared_log("archive", cluster).unwrap().unwrap();
    shared::lasts_with(open, open, "killed", async |reached| {
        for round in 1..=3 {
            shared::reach(reached, round * 15).await;
            far.server.kill();
            far.server.restart().await;
            far.ready().await;
        }
    })
    .await;
}

/// A server that is set to lose what it has acknowledged is asked not to; and what is missing is named.
#[tokio::test(flavor = "multi_thread")]
async fn postgres_shared_log_says_what_is_missing() {
    let far = Postgres::start().await;
    let logs = Logs { far: &far, port: far.server.port(), schema: "old" };
    let mut log = logs.open("c");
    let error = log.check().await.unwrap_err();
    assert!(matches!(&error, LogError::Halt(text) if text.contains("run `decklog sink init archive`")), "{error}");
    logs.init().await;
    log.check().await.unwrap();
    // Tables of before there was a shared log. The sink itself needs no other.
    logs.sql("DROP TABLE SCHEMA.shared_units, SCHEMA.shared_parts").await;
    let error = log.check().await.unwrap_err();
    let says = "has no table shared_parts, shared_units; run `decklog sink init archive`";
    assert!(matches!(&error, LogError::Halt(text) if text.contains(says)), "{error}");
    logs.kind().open().unwrap().check().await.unwrap();
    let error = log.append(1, "x".into()).await.unwrap_err();
    assert!(matches!(&error, LogError::Halt(text) if text.contains("decklog sink init archive")), "{error}");
    logs.init().await;
    log.check().await.unwrap();
    logs.sql("ALTER TABLE SCHEMA.shared_units OWNER TO postgres; GRANT SELECT ON SCHEMA.shared_units TO decklog").await;
    let error = log.check().await.unwrap_err();
    for says in ["the user decklog has no right to", "INSERT on shared_units", "DELETE on shared_units"] {
        assert!(matches!(&error, LogError::Halt(text) if text.contains(says)), "{error}");
    }
    let error = log.append(1, "x".into()).await.unwrap_err();
    assert!(matches!(&error, LogError::Halt(text) if text.contains("grant the user decklog")), "{error}");
}

/// Whoever appends waits for what is under way, and finds it.
#[tokio::test(flavor = "multi_thread")]
async fn postgres_shared_log_waits_for_who_is_about_to_commit() {
    let far = Postgres::start().await;
    let logs = Logs { far: &far, port: far.server.port(), schema: "slow" };
    logs.init().await;
    let mut log = logs.open("c");
    log.append(1, "x".into()).await.unwrap();
    let slow = far.sql(
        "audit",
        "BEGIN; SELECT log FROM slow.shared_logs WHERE log = 'archive/c' FOR UPDATE;
         INSERT INTO slow.shared_units (log, number, sha256, bytes) VALUES ('archive/c', 2, sha256('y'), 'y');
         SELECT pg_sleep(1); COMMIT",
    );
    let second = async {
        until("the other to have the lock", async || {
            let held = "SELECT 1 FROM pg_locks l JOIN pg_class c ON c.oid = l.relation WHERE c.relname = 'shared_units' AND l.mode = 'RowExclusiveLock'";
            if far.sql("audit", held).await?.is_empty() { Err("not yet".to_owned()) } else { Ok(()) }
        })
        .await;
        log.append(2, "z".into()).await
    };
    let (slow, second) = futures::join!(slow, second);
    slow.unwrap();
    assert_eq!(second, Ok(decklog::core::shared_log::Appended::Taken));
}
