//! Ways into a database: rights, a pooler, tables of this version, certificates and passwords; what is missing is named.

use std::fs;

use decklog::core::model::{EntryType, Seq};
use decklog::sink::{Item, LogPosition, SinkError};
use rustix::process::Signal;
use tokio::task::JoinSet;

use super::start::{PASSWORD, Postgres, openssl};
use super::{PostgresTests as _, item};
use crate::certs;
use crate::server::free_port;
use crate::support::{Daemon, cluster, until};
use crate::trial::Far;

/// Who may do nothing but what `--print` grants, through a pooler that hands each transaction to another session.
#[tokio::test(flavor = "multi_thread")]
async fn postgres_needs_no_session_of_its_own_and_no_other_rights() {
    let far = Postgres::start().await;
    let pool = far.pool().await;
    let more = serde_json::json!({"schema": "least", "objects": true});
    far.audit("REVOKE ALL ON DATABASE audit FROM decklog; ALTER DATABASE audit OWNER TO postgres").await;
    let error = far.open(more.clone()).provision().await.unwrap_err().to_string();
    assert!(error.ends_with("an administrator apply what `decklog sink init direct --print` prints"), "{error}");
    let needs = far.open(more.clone()).provisioning_script().unwrap();
    far.audit(&needs).await;
    let through = |more: &serde_json::Value| {
        let mut more = more.clone();
        more["url"] = far.url(pool.port()).into();
        far.open(more)
    };
    let (mut sink, mut other) = (through(&more), through(&more));
    sink.check().await.unwrap();
    let cursor = LogPosition { epoch: "e".into(), seq: Seq(0), entry: None };
    sink.position(&cursor).await.unwrap();
    let gone = |seq, name: &str| {
        let line = String::from_utf8(item(seq, "{}").line.to_vec()).unwrap();
        let line = line.replace("ADDED", "DELETED").replace(&format!("\"o{seq}\""), &format!("{name:?}"));
        Item::new(Seq(seq), EntryType::Deleted, line.into())
    };
    // Another client gets the session in between.
    for seq in 1..=5 {
        sink.deliver(&[item(seq, "{}")]).await.unwrap();
        other.check().await.unwrap();
    }
    sink.deliver(&[gone(6, "o1"), gone(7, "o2")]).await.unwrap();
    assert_eq!(far.audit("SELECT string_agg(name, ' ' ORDER BY seq) FROM least.objects").await, ["o3 o4 o5"]);
    // What was deleted because it was old is not there to tell that a replay is older still.
    let older = item(8, "{}");
    let line = String::from_utf8(older.line.to_vec()).unwrap().replace("\"o8\"", "\"o3\"");
    sink.deliver(&[Item::new(older.seq, older.op, line.into())]).await.unwrap();
    far.audit("DELETE FROM least.entries WHERE seq = 8").await;
    other.enter_replay();
    other.deliver(&[item(3, "{}")]).await.unwrap();
    assert_eq!(far.audit("SELECT seq FROM least.objects WHERE name = 'o3'").await, ["8"]);
    // The table is kept from now on, and gets what came before by a replay.
    far.audit("DELETE FROM least.objects").await;
    let items: Vec<Item> = (1..=5).map(|seq| item(seq, "{}")).chain([gone(6, "o1"), gone(7, "o2")]).collect();
    other.deliver(&items).await.unwrap();
    assert_eq!(far.audit("SELECT string_agg(name, ' ' ORDER BY seq) FROM least.objects").await, ["o3 o4 o5"]);
    // Sessions without a transaction are ended by who runs the server, and nobody notices.
    far.audit("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'decklog'").await;
    sink.deliver(&[item(9, "{}")]).await.ok();
    until("it to go on", async || sink.deliver(&[item(10, "{}")]).await.map_err(|error| error.to_string())).await;
}

/// Tables of an older decklog become those of this one, and those of a newer one stay as they are.
#[tokio::test(flavor = "multi_thread")]
async fn postgres_tables_have_a_version() {
    let far = Postgres::start().await;
    let mut sink = far.open(serde_json::json!({"schema": "v"}));
    sink.provision().await.unwrap();
    far.audit("UPDATE v.migrations SET version = 0; DROP TABLE v.objects").await;
    let cursor = LogPosition { epoch: "e".into(), seq: Seq(0), entry: None };
    let error = sink.position(&cursor).await.unwrap_err().to_string();
    assert!(error.contains("run `decklog sink init direct`, or apply what it prints"), "{error}");
    assert!(sink.provision().await.unwrap().ends_with("has all that is needed now"));
    sink.position(&cursor).await.unwrap();
    far.audit("INSERT INTO v.migrations VALUES (2); DROP FUNCTION v.json(text)").await;
    let error = sink.provision().await.unwrap_err().to_string();
    assert!(error.ends_with("are of a newer decklog (version 2); use that one"), "{error}");
    let error = far.sql("audit", &sink.provisioning_script().unwrap()).await.unwrap_err();
    assert!(error.contains("these tables are of a newer decklog; nothing was changed"), "{error}");
    assert_eq!(
        far.audit("SELECT count(*) FROM pg_proc WHERE proname = 'json' AND pronamespace = 'v'::regnamespace").await,
        ["0"]
    );
}

/// What `decklog check` says of a sink.
async fn checked(daemon: &Daemon, sink: &str) -> String {
    daemon.configure(&daemon.config("resources = [\"configmaps\"]", &format!("[[sink]]\nname = \"far\"\n{sink}\n")));
    let answer = daemon.command(&["check"]).await;
    format!("{}{}", answer.out, answer.err)
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_says_what_is_missing() {
    let far = Postgres::start().await;
    let sim = cluster().await;
    let daemon = Daemon::new(&sim, &["configmaps"]);
    let port = far.port();
    let (url, password) = (far.url(port), far.dir.path().join("password"));
    let plain = format!(
        "type = \"postgres\"\nsslmode = \"disable\"\npassword_file = {password:?}\nschema = \"s\"\nobjects = true\n"
    );
    let at = |url: &str| format!("{plain}url = {url:?}\n");
    let wrong = far.dir.path().join("wrong");
    fs::write(&wrong, "geheim").unwrap();
    for (sink, says) in [
        (at(&url), "the schema s of 127.0.0.1:PORT/audit has no table"),
        (at(&url.replace("/audit", "/nowhere")), "database \"nowhere\" does not exist; create it"),
        (at(&url.replace("127.0.0.1", "db.invalid")), "no connection with db.invalid:PORT/audit"),
        (at(&url.replace("decklog@", "nobody@")), "does not let the user nobody in"),
        (at(&url).replace(password.to_str().unwrap(), wrong.to_str().unwrap()), "correct `password_file`"),
        (at(&url.replace(&port.to_string(), &free_port().to_string())), "Connection refused"),
    ] {
        let told = checked(&daemon, &sink).await;
        assert!(told.contains(&says.replace("PORT", &port.to_string())), "{told}");
        assert!(!told.contains("geheim") && !told.contains(PASSWORD), "{told}");
    }
    // An administrator applies what is printed, and owns it.
    checked(&daemon, &at(&url)).await;
    let text = daemon.command(&["sink", "init", "far", "--print"]).await.done();
    far.audit(&text).await;
    far.audit(&text).await;
    let told = checked(&daemon, &at(&url)).await;
    assert!(told.contains("far can be delivered to"), "{told}");
    far.audit("REVOKE INSERT ON s.entries FROM decklog; REVOKE DELETE ON s.objects FROM decklog").await;
    let told = checked(&daemon, &at(&url)).await;
    assert!(told.contains("no right to INSERT on entries, DELETE on objects in the schema s"), "{told}");
    // Not of this version.
    far.audit(&text).await;
    far.audit("UPDATE s.migrations SET version = 2").await;
    let told = checked(&daemon, &at(&url)).await;
    assert!(told.contains("of a newer decklog (version 2)"), "{told}");
    far.audit("DELETE FROM s.migrations").await;
    let told = checked(&daemon, &at(&url)).await;
    assert!(told.contains("does not have the tables"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_over_tls_is_verified() {
    let far = Postgres::start().await;
    let dir = far.dir.path();
    let request = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    openssl(dir, &format!("req -x509 {request} -keyout other.key -out other.pem -days 2 -subj /CN=other"));
    let with = |url: &str, ca: &str| {
        let ca = dir.join(ca);
        far.open(serde_json::json!({"url": url, "sslmode": "verify-full", "ca_file": ca, "schema": "tls"}))
    };
    let url = far.url(far.port());
    let mut sink = with(&url, "ca.pem");
    sink.provision().await.unwrap();
    let begin = LogPosition { epoch: "e".into(), seq: Seq(0), entry: None };
    sink.position(&begin).await.unwrap();
    sink.deliver(&[item(1, "{}")]).await.unwrap();
    far.audit("CREATE VIEW tls.encrypted AS SELECT 1").await;
    let used = far.audit("SELECT count(*) FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid) WHERE a.application_name = 'decklog' AND s.ssl").await;
    assert_eq!(used, ["1"]);
    for (url, ca, says) in [
        (url.as_str(), "other.pem", "; name the authority"),
        (&url.replace("127.0.0.1", "localhost"), "ca.pem", "certificate is for another name (127.0.0.1)"),
    ] {
        let error = with(url, ca).check().await.unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, SinkError::Retry { .. }) && text.contains(says), "{text}");
    }
    // The certificate expires while it delivers: what is connected goes on, what connects is refused.
    let pki = dir.join("pki");
    fs::create_dir(&pki).unwrap();
    certs::make(&pki);
    for (from, to) in [("expired.pem", "server.crt"), ("expired.key", "server.key")] {
        fs::copy(pki.join(from), dir.join("data").join(to)).unwrap();
    }
    far.audit("SELECT pg_reload_conf()").await;
    sink.deliver(&[item(2, "{}")]).await.unwrap();
    until("a connection to be refused", async || match with(&url, "pki/ca.pem").check().await {
        Err(error) if error.to_string().contains("certificate has expired, at 2021-01-01T00:00:00Z; renew") => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    // A server without TLS is not spoken to.
    far.audit("ALTER SYSTEM SET ssl = off").await;
    far.audit("SELECT pg_reload_conf()").await;
    until("a server without TLS to be refused", async || match with(&url, "ca.pem").check().await {
        Err(error) if error.to_string().contains("does not support TLS") => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_takes_a_new_password_from_its_file_and_bounds_a_hung_server() {
    let mut far = Postgres::start().await;
    let mut sink = far.open(serde_json::json!({"schema": "renewed", "timeout": "1s"}));
    sink.provision().await.unwrap();
    let begin = LogPosition { epoch: "e".into(), seq: Seq(0), entry: None };
    sink.position(&begin).await.unwrap();
    sink.deliver(&[item(1, "{}")]).await.unwrap();
    far.audit("ALTER ROLE decklog PASSWORD 'renewed'").await;
    far.audit("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'decklog'").await;
    let error = until("the connection to be gone", async || match sink.deliver(&[item(2, "{}")]).await {
        Err(failure) if failure.error.to_string().contains("password") => Ok(failure.error),
        other => Err(format!("{other:?}")),
    })
    .await;
    assert!(matches!(&error, SinkError::Retry { after: Some(_), .. }), "{error}");
    fs::write(far.dir.path().join("password"), "renewed").unwrap();
    sink.deliver(&[item(2, "{}")]).await.unwrap();
    // Somebody holds the row.
    let at = format!("postgres://postgres@127.0.0.1:{}/audit", far.port());
    let (client, connection) = tokio_postgres::connect(&at, tokio_postgres::NoTls).await.unwrap();
    let mut driver = JoinSet::new();
    driver.spawn(async { drop(connection.await) });
    client.batch_execute("BEGIN; SELECT FROM renewed.cursors FOR UPDATE").await.unwrap();
    let error = sink.deliver(&[item(3, "{}")]).await.unwrap_err().error;
    assert!(matches!(&error, SinkError::Retry { text, .. } if text.contains("127.0.0.1")), "{error}");
    client.batch_execute("ROLLBACK").await.unwrap();
    until("the row to be free", async || sink.deliver(&[item(3, "{}")]).await.map_err(|error| error.to_string())).await;
    // It does not answer at all.
    far.server.signal(Signal::STOP);
    sink.reopen();
    let error = sink.deliver(&[item(4, "{}")]).await.unwrap_err().error;
    assert!(matches!(&error, SinkError::Retry { text, .. } if text.contains("did not answer within 1s")), "{error}");
    far.server.signal(Signal::CONT);
    until("it to answer", async || sink.deliver(&[item(4, "{}")]).await.map_err(|error| error.to_string())).await;
    assert_eq!(far.audit("SELECT string_agg(seq::text, ',' ORDER BY ctid) FROM renewed.entries").await, ["1,2,3,4"]);
    far.kill();
}
