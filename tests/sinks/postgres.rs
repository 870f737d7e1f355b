//! PostgreSQL.

mod log;

pub(crate) use decklog_testkit::servers::postgres as start;
use std::fs;
use std::path::Path;
use std::process::Command;

use decklog::core::model::{Cluster, EntryType, Seq};
use decklog::sim::{Sim, objects};
use decklog::sink::registry::SinkKind;
use decklog::sink::{Item, LogPosition, Sink, SinkError};
use rustix::process::Signal;
use tokio::task::JoinSet;

use crate::certs;
use crate::server::{Server, free_port};
use crate::support::{Daemon, cluster, scope, until};
use crate::timelines;
use crate::trial::{self, Far, Promise, Trial};
use start::{PASSWORD, Postgres, as_server, openssl, run};

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
async fn postgres_objects_are_the_cluster_also_for_another_journal() {
    let mut far = Postgres::start().await;
    let mut trial = Trial::new(&mut far, "objects").await;
    trial.daemon.start();
    trial.daemon.ready().await;
    trial.write(30);
    trial.caught_up().await;
    objects_are_right(&trial).await;
    trial.daemon.stop().await;
    let old = trial.daemon.path("old");
    run(Command::new("cp").arg("-a").arg(trial.daemon.state()).arg(&old));
    trial.daemon.start();
    trial.daemon.ready().await;
    trial.write(20);
    trial.sim.create("configmaps", objects::config_map("default", "passing", "x")).unwrap();
    trial.sim.create("configmaps", objects::config_map("default", "lasting", "x")).unwrap();
    trial.caught_up().await;
    objects_are_right(&trial).await;
    trial.daemon.stop().await;
    // The journal is put back to before an object was there that is gone by the time it goes on: nothing tells its end.
    fs::remove_dir_all(trial.daemon.state()).unwrap();
    run(Command::new("cp").arg("-a").arg(&old).arg(trial.daemon.state()));
    trial.sim.delete("configmaps", "default", "passing").unwrap();
    trial.sim.compact_all();
    trial.daemon.start();
    trial.daemon.ready().await;
    trial.write(3);
    objects_become_right(&mut trial).await;
    trial.daemon.stop().await;
    // The journal is lost.
    fs::remove_dir_all(trial.daemon.state()).unwrap();
    trial.sim.delete("configmaps", "default", "lasting").unwrap();
    trial.daemon.start();
    trial.daemon.ready().await;
    trial.write(3);
    objects_become_right(&mut trial).await;
    // The queries of docs/sinks/postgres.md.
    let json = "SELECT objects.json(line)->'object'->'data'->>'value' FROM objects.objects WHERE name = 'm0'";
    assert_eq!(trial.far.audit(json).await.len(), usize::from(trial.sim.get("configmaps", "default", "m0").is_ok()));
    let life = "SELECT type, objects.json(line)->'change'->'areas' FROM objects.entries WHERE resource = 'configmaps' AND name = 'lasting' ORDER BY epoch, seq";
    assert_eq!(trial.far.audit(life).await, ["ADDED", "ADDED"]);
    let epochs = trial.far.audit("SELECT count(DISTINCT epoch) FROM objects.entries").await;
    assert_eq!(epochs, ["3"]);
    trial.daemon.stop().await;
}

/// Waits until the table has the newest version of the cluster, and looks at all of it.
async fn objects_become_right(trial: &mut Trial<'_, Postgres>) {
    let head = trial.sim.revision();
    let (name, far) = (trial.run.clone(), &*trial.far);
    until("the newest version", async || {
        trial.daemon.must_run();
        let text = format!("SELECT max(resource_version::bigint) FROM \"{name}\".entries WHERE resource_version <> ''");
        let have = far.audit(&text).await;
        if have == [head.to_string()] { Ok(()) } else { Err(format!("{have:?} of {head}")) }
    })
    .await;
    objects_are_right(trial).await;
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

/// The journal was put back to 1, and the filter leaves out what comes next: objects of the other timeline are gone all the same.
#[tokio::test(flavor = "multi_thread")]
async fn postgres_objects_of_another_timeline_go_with_it() {
    let far = Postgres::start().await;
    let mut sink = far.open(serde_json::json!({"schema": "parted", "objects": true}));
    sink.provision().await.unwrap();
    let none = LogPosition { epoch: "e".into(), seq: Seq(0), entry: None };
    sink.position(&none).await.unwrap();
    sink.deliver(&[1, 2, 3].map(|seq| item(seq, "{}"))).await.unwrap();
    sink.position(&none).await.unwrap();
    sink.parted(Seq(1));
    let of = |epoch: &str, seq| {
        let item = item(seq, "{}");
        let line = String::from_utf8(item.line.to_vec()).unwrap();
        Item::new(item.seq, item.op, line.replace("\"e\"", &format!("\"{epoch}\"")).into())
    };
    sink.deliver(&[of("f", 4), of("f", 5)]).await.unwrap();
    let objects = "SELECT string_agg(name, ',' ORDER BY seq) FROM parted.objects";
    assert_eq!(far.audit(objects).await, ["o1,o4,o5"]);
    // It is over with that: a later epoch of this timeline takes back nothing of it.
    sink.deliver(&[of("g", 6)]).await.unwrap();
    assert_eq!(far.audit(objects).await, ["o1,o4,o5,o6"]);
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
