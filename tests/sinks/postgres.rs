//! PostgreSQL.

mod access;
mod log;
mod table;

pub(crate) use decklog_testkit::servers::postgres as start;
use std::fs;
use std::path::Path;
use std::process::Command;

use decklog::core::model::{Cluster, EntryType, Seq};
use decklog::sim::{Sim, objects};
use decklog::sink::registry::SinkKind;
use decklog::sink::{Item, LogPosition, Sink, SinkError};
use rustix::process::Signal;

use crate::server::{Server, free_port};
use crate::support::{Daemon, scope, until};
use crate::timelines;
use crate::trial::{self, Far, Promise, Trial};
use start::{PASSWORD, Postgres, as_server, run};

/// What these tests do with the server.
trait PostgresTests: Sized {
    async fn objects(&self, run: &str) -> Vec<String>;
    async fn audit(&self, text: &str) -> Vec<String>;
    fn open(&self, more: serde_json::Value) -> Box<dyn Sink>;
    async fn pool(&self) -> Server;
    fn copy(&self, from: &str, to: &str);
}

impl PostgresTests for Postgres {
    /// The objects that the table has.
    async fn objects(&self, run: &str) -> Vec<String> {
        let text =
            format!("SELECT namespace || '/' || name || ' ' || resource_version FROM \"{run}\".objects ORDER BY 1");
        let mut names = self.audit(&text).await;
        names.sort();
        names
    }

    async fn audit(&self, text: &str) -> Vec<String> {
        self.sql("audit", text).await.unwrap()
    }

    /// A sink without a daemon.
    fn open(&self, more: serde_json::Value) -> Box<dyn Sink> {
        let mut config = serde_json::json!({
            "type": "postgres",
            "url": self.url(self.server.port()),
            "sslmode": "disable",
            "password_file": self.dir.path().join("password"),
        });
        config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let config: SinkKind = serde_json::from_value(config).unwrap();
        let mut sink = config.open().unwrap();
        sink.bind("direct", &Cluster { name: "test".into(), uid: "c".into() });
        sink
    }

    /// A pooler before the server that hands each transaction to another session.
    async fn pool(&self) -> Server {
        let (dir, port) = (self.dir.path().join("pool"), free_port());
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("users"), format!("\"decklog\" \"{PASSWORD}\"\n")).unwrap();
        let config = format!(
            "[databases]\n* = host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n\
             auth_type = scram-sha-256\nauth_file = {}\npool_mode = transaction\ndefault_pool_size = 2\nserver_round_robin = 1\n",
            self.server.port(),
            dir.join("users").display(),
        );
        let file = dir.join("pgbouncer.ini");
        fs::write(&file, config).unwrap();
        Server::start("pgbouncer", self.dir.path(), port, move || {
            let mut command = as_server(Path::new("pgbouncer"));
            command.current_dir("/").arg(&file);
            command
        })
        .await
    }

    /// A copy of everything, of a server that does not run.
    fn copy(&self, from: &str, to: &str) {
        let at = |name: &str| self.dir.path().join(name);
        if at(to).exists() {
            fs::remove_dir_all(at(to)).unwrap();
        }
        run(Command::new("cp").arg("-a").arg(at(from)).arg(at(to)));
    }
}

impl Far for Postgres {
    fn promise(&self) -> Promise {
        Promise::ExactlyOnce
    }

    fn port(&self) -> u16 {
        self.server.port()
    }

    fn sink(&self, port: u16, run: &str, _dir: &Path) -> String {
        format!(
            "type = \"postgres\"\nurl = {:?}\nsslmode = \"disable\"\npassword_file = {:?}\nschema = \"{run}\"\nobjects = true",
            self.url(port),
            self.dir.path().join("password"),
        )
    }

    async fn prepare(&self, daemon: &Daemon, _run: &str) {
        daemon.command(&["sink", "init", "far"]).await.done();
    }

    /// There are ten for each connection before anything is delivered.
    fn stride(&self) -> usize {
        5
    }

    fn kill(&mut self) {
        self.server.kill();
    }

    async fn restart(&mut self) {
        self.server.restart().await;
        self.ready().await;
    }

    /// In the order in which they were committed. Where they lie says nothing: the room of what a crash left is used
    /// again.
    async fn consumed(&self, run: &str) -> Result<Vec<String>, String> {
        self.sql("audit", &format!("SELECT line FROM \"{run}\".entries ORDER BY xmin::text::bigint, seq")).await
    }

    async fn agrees(&self, sim: &Sim, run: &str) {
        assert_eq!(self.objects(run).await, in_cluster(sim));
    }
}

/// The objects that the cluster has.
fn in_cluster(sim: &Sim) -> Vec<String> {
    let rows = sim.objects("configmaps").unwrap();
    let mut names: Vec<String> =
        rows.iter().map(|row| format!("{}/{} {}", row.namespace, row.name, row.revision)).collect();
    names.sort();
    names
}

/// Every process of PostgreSQL leads a session of its own, and one that waits for something does not notice its end.
#[tokio::test]
async fn a_server_that_is_killed_leaves_no_process_behind() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pid");
    let (told, begins) =
        (file.clone(), format!("setsid sh -c 'echo $$ >{}; exec tail -f /dev/null' & wait", file.display()));
    let answers = move || match fs::read_to_string(&told).unwrap_or_default().trim_end() {
        "" => Err("its child does not run".to_owned()),
        _ => Ok(()),
    };
    let server = Server::without_port("parent", dir.path(), answers, move || {
        let mut command = Command::new("sh");
        command.args(["-c", &begins]);
        command
    })
    .await;
    let child = fs::read_to_string(&file).unwrap();
    drop(server);
    let stat = fs::read_to_string(format!("/proc/{}/stat", child.trim_end())).unwrap_or_default();
    assert!(stat.is_empty() || stat.contains(") Z "), "{stat}");
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_undisturbed() {
    trial::undisturbed(&mut Postgres::start().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_killed() {
    trial::server_killed(&mut Postgres::start().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_answers_cut() {
    trial::answers_cut(&mut Postgres::start().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_daemon_killed() {
    trial::daemon_killed(&mut Postgres::start().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_killed_at_every_exchange() {
    trial::killed_at_every_exchange(&mut Postgres::start().await).await;
}

/// The table has the objects that the cluster has.
async fn objects_are_right(trial: &Trial<'_, Postgres>) {
    trial.far.agrees(&trial.sim, &trial.run).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_timeline_put_back_twice() {
    timelines::put_back_twice(&mut Postgres::start().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_timeline_put_back_while_away() {
    timelines::put_back_while_away(&mut Postgres::start().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_timeline_clock_behind() {
    timelines::lost_under_a_clock_that_is_behind(&mut Postgres::start().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_timeline_two_copies() {
    timelines::two_copies_run(&mut Postgres::start().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_timeline_stood_still() {
    timelines::stood_still(&mut Postgres::start().await).await;
}

/// Fault 72: the server is put back to an earlier state.
#[tokio::test(flavor = "multi_thread")]
async fn postgres_put_back_to_an_earlier_state_is_filled_up_again() {
    let mut far = Postgres::start().await;
    let mut trial = Trial::new(&mut far, "restored").await;
    trial.daemon.start();
    trial.daemon.ready().await;
    // The first copy has tables and no rows.
    for copy in ["empty", "some"] {
        if copy == "some" {
            trial.write(20);
            trial.caught_up().await;
        } else {
            trial.daemon.stop().await;
        }
        trial.far.server.stop_by(Signal::INT).await;
        trial.far.copy("data", copy);
        trial.far.restart().await;
        if copy == "empty" {
            trial.daemon.start();
            trial.daemon.ready().await;
        }
    }
    trial.write(30);
    trial.caught_up().await;
    // Put back under a daemon that runs, then while it is stopped.
    for (copy, stopped) in [("some", false), ("some", true), ("empty", false), ("empty", true)] {
        if stopped {
            trial.daemon.stop().await;
        }
        trial.far.server.stop_by(Signal::INT).await;
        trial.far.copy(copy, "data");
        trial.far.restart().await;
        if stopped {
            trial.daemon.start();
            trial.daemon.ready().await;
        }
        trial.write(5);
        let head = trial.sim.revision();
        let (name, far) = (trial.run.clone(), &*trial.far);
        until("the database to have everything again", async || {
            trial.daemon.must_run();
            let text = format!("SELECT max(resource_version::bigint) FROM \"{name}\".entries");
            let have = far.sql("audit", &text).await?;
            if have == [head.to_string()] { Ok(()) } else { Err(format!("{have:?} of {head}")) }
        })
        .await;
        trial.caught_up().await;
        trial.right().await;
        objects_are_right(&trial).await;
    }
    trial.judged().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_takes_one_decklog_under_one_name() {
    let mut far = Postgres::start().await;
    let mut first = Trial::new(&mut far, "two").await;
    first.daemon.start();
    first.daemon.ready().await;
    first.write(5);
    first.caught_up().await;
    // The same sink of another journal. It has never seen what is there, and takes over; the other one sees that.
    let mut second = Daemon::new(&first.sim, &["configmaps"]);
    let sink = first.far.sink(first.far.port(), "two", Path::new(""));
    second.configure(&second.config("resources = [\"configmaps\"]", &format!("[[sink]]\nname = \"far\"\n{sink}\n")));
    second.start();
    second.ready().await;
    first.write(5);
    let told = first.daemon.waits_for_state("sinks", "far", "halted").await;
    assert!(told.contains("another decklog delivers to the schema two"), "{told}");
    let scope = scope(&first.sim, 0, &["configmaps"]);
    second.catch_up(&first.sim, &scope).await;
    let lines = second.lines().to_string();
    until("the second to be done", async || {
        let have = first.far.audit("SELECT seq FROM two.cursors").await;
        if have == [lines.clone()] { Ok(()) } else { Err(format!("{have:?} of {lines}")) }
    })
    .await;
    // Nothing of the first came after that of the second had begun.
    let order = first.far.audit("SELECT epoch FROM two.entries ORDER BY ctid").await;
    assert!(order.is_sorted(), "{order:?}");
    first.daemon.signal(Signal::TERM);
    first.daemon.end().await;
    second.stop().await;
}

fn item(seq: u64, object: &str) -> Item {
    let line = format!(
        "{{\"v\":1,\"seq\":{seq},\"epoch\":\"e\",\"id\":\"u.{seq}.ADDED\",\"time\":\"2026-11-21T10:15:00.000001Z\",\"type\":\"ADDED\",\
         \"evidence\":\"watched\",\"cluster\":{{\"name\":\"test\",\"uid\":\"c\"}},\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\
         \"resource\":\"configmaps\",\"namespace\":\"default\",\"name\":\"o{seq}\",\"uid\":\"u\",\"resourceVersion\":\"{seq}\",\
         \"object\":{object}}}"
    );
    Item::new(Seq(seq), EntryType::Added, line.into())
}

/// Fault 73: what no jsonb holds.
#[tokio::test(flavor = "multi_thread")]
async fn postgres_keeps_every_byte_and_refuses_only_what_is_refused() {
    let far = Postgres::start().await;
    let mut sink = far.open(serde_json::json!({"schema": "bytes", "objects": true}));
    let none = LogPosition { epoch: "e".into(), seq: Seq(0), entry: None };
    let error = sink.position(&none).await.unwrap_err();
    assert!(matches!(&error, SinkError::Halt { text } if text.contains("decklog sink init direct")), "{error}");
    sink.provision().await.unwrap();
    assert!(sink.provision().await.unwrap().ends_with("already"));
    sink.check().await.unwrap();
    assert_eq!(sink.position(&none).await, Ok(Some(none)));
    let odd = [
        r#"{"data":"a\u0000b \ud800 \\u0000"}"#,
        r#"{"n":1e400,"m":123456789012345678901234567890.10,"z":-0.0,"a":1,"a":2}"#,
        "{\"data\":\"\u{1f980} \u{7f} \u{85} \\\\ ' $1 \\\"\"}",
    ];
    let mut items: Vec<Item> = (1..).zip(odd).map(|(seq, object)| item(seq, object)).collect();
    items.push(item(4, &format!("{{\"data\":\"{}\"}}", "x".repeat(5 << 20))));
    sink.deliver(&items).await.unwrap();
    let lines: Vec<&str> = items.iter().map(|item| std::str::from_utf8(&item.line).unwrap()).collect();
    for table in ["entries", "objects"] {
        assert_eq!(far.audit(&format!("SELECT line FROM bytes.{table} ORDER BY seq")).await, lines, "{table}");
    }
    // What jsonb cannot hold is NULL in the function that makes it, and nothing else.
    let json =
        far.audit("SELECT bytes.json(line)->'object'->>'m' FROM bytes.entries WHERE seq <= 2 ORDER BY seq").await;
    assert_eq!(json, ["NULL", "123456789012345678901234567890.10"]);
    assert_eq!(far.audit("SELECT extract(microseconds FROM time) FROM bytes.entries WHERE seq = 1").await, ["1"]);

    // One that a constraint of the database refuses: those before it are taken, and it alone is refused.
    far.audit("ALTER TABLE bytes.entries ADD CONSTRAINT no_seven CHECK (name <> 'o7')").await;
    let items: Vec<Item> = (5..=9).map(|seq| item(seq, "{\"secret\":1}")).collect();
    let failure = sink.deliver(&items).await.unwrap_err();
    assert_eq!(failure.taken, 2);
    let text = failure.error.to_string();
    assert!(matches!(failure.error, SinkError::Refused { .. }), "{text}");
    assert!(text.contains("SQLSTATE 23514") && text.contains("constraint no_seven"), "{text}");
    assert!(!text.contains("secret") && !text.contains("o7"), "{text}");
    sink.deliver(&items[3..]).await.unwrap();
    assert_eq!(
        far.audit("SELECT string_agg(seq::text, ',' ORDER BY seq) FROM bytes.entries").await,
        ["1,2,3,4,5,6,8,9"]
    );

    // A replay brings what was dead-lettered, repeats nothing, and moves nothing.
    far.audit("ALTER TABLE bytes.entries DROP CONSTRAINT no_seven").await;
    let mut replay = far.open(serde_json::json!({"schema": "bytes", "objects": true}));
    replay.enter_replay();
    replay.deliver(&items).await.unwrap();
    replay.deliver(&items[..2]).await.unwrap();
    assert_eq!(
        far.audit("SELECT string_agg(seq::text, ',' ORDER BY seq) FROM bytes.entries").await,
        ["1,2,3,4,5,6,7,8,9"]
    );
    assert_eq!(far.audit("SELECT count(*) FROM bytes.objects").await, ["9"]);
    assert_eq!(far.audit("SELECT seq FROM bytes.cursors").await, ["9"]);
    // Nor does it bring back what is gone since.
    let gone = String::from_utf8(item(10, "{}").line.to_vec()).unwrap();
    let gone = gone.replace("ADDED", "DELETED").replace("\"o10\"", "\"o5\"");
    sink.deliver(&[Item::new(Seq(10), EntryType::Deleted, gone.into())]).await.unwrap();
    assert_eq!(far.audit("SELECT count(*) FROM bytes.objects WHERE name = 'o5'").await, ["0"]);
    replay.deliver(&items).await.unwrap();
    assert_eq!(far.audit("SELECT count(*) FROM bytes.objects WHERE name = 'o5'").await, ["0"]);
    assert_eq!(
        sink.position(&LogPosition { epoch: "e".into(), seq: Seq(0), entry: None }).await.unwrap().unwrap().seq,
        Seq(10)
    );
}

/// An entry that the database refuses: the daemon halts or sets it aside, says so, and `replay` delivers it.
#[tokio::test(flavor = "multi_thread")]
async fn postgres_refuses_and_the_daemon_sets_aside() {
    let mut far = Postgres::start().await;
    let mut trial = Trial::new(&mut far, "refused").await;
    trial.far.audit("ALTER TABLE refused.entries ADD CONSTRAINT small CHECK (length(line) < 20000)").await;
    trial.daemon.start();
    trial.daemon.ready().await;
    trial.write(3);
    let large = objects::config_map("default", "large", &"s3cret ".repeat(5000));
    trial.sim.create("configmaps", large).unwrap();
    trial.write(3);
    let told = trial.daemon.waits_for_state("sinks", "far", "halted").await;
    assert!(told.contains("was refused: ") && told.contains("constraint small"), "{told}");
    assert!(told.contains("on_refused = \"dead_letter\""), "{told}");
    let config = fs::read_to_string(trial.daemon.path("config.toml")).unwrap();
    trial.daemon.configure(&config.replace("name = \"far\"\n", "name = \"far\"\non_refused = \"dead_letter\"\n"));
    trial.daemon.signal(Signal::HUP);
    trial.caught_up().await;
    let status = trial.daemon.status().await;
    let far_status = status["sinks"].as_array().unwrap().iter().find(|sink| sink["name"] == "far").unwrap().to_string();
    assert!(far_status.contains("SQLSTATE 23514"), "{far_status}");
    let log = fs::read_to_string(trial.daemon.log()).unwrap();
    let (large, others): (Vec<&str>, Vec<&str>) = log.lines().partition(|line| line.contains("s3cret"));
    let have =
        async |trial: &Trial<'_, Postgres>| trial.far.audit("SELECT line FROM refused.entries ORDER BY seq").await;
    assert_eq!(have(&trial).await, others);
    assert_eq!(trial.far.audit("SELECT count(*) FROM refused.objects WHERE name = 'large'").await, ["0"]);
    trial.far.audit("ALTER TABLE refused.entries DROP CONSTRAINT small").await;
    let seq = serde_json::from_str::<serde_json::Value>(large[0]).unwrap()["seq"].to_string();
    trial.daemon.command(&["replay", "--sink", "far", "--from", &seq, "--to", &seq]).await.done();
    assert_eq!(have(&trial).await, log.lines().collect::<Vec<_>>());
    objects_are_right(&trial).await;
    trial.daemon.stop().await;
    let said = trial.daemon.said();
    assert!(!said.contains("s3cret") && !said.contains("tokio_postgres"), "the log quotes what is delivered");
}
