//! The `redis` sink, against Redis.

mod refusals;

pub(crate) use decklog_testkit::servers::redis as start;
use std::fs;
use std::path::Path;
use std::process::Command;

use ::redis::FromRedisValue;
use decklog::core::model::{EntryType, Seq};
use decklog::sink::{self, Item, LogPosition, Sink, SinkError};
use serde_json::json;

use crate::proxy::Proxy;
use crate::support::until;
use crate::timelines;
use crate::trial::{self, Far, Promise, Trial};
use start::Redis;

/// An entry as a stream has it: its id there, and its fields.
type Stored = (String, Vec<(String, String)>);

impl Far for Redis {
    fn promise(&self) -> Promise {
        Promise::AtLeastOnce
    }

    fn port(&self) -> u16 {
        if self.authority.is_some() { self.secure } else { self.server.port() }
    }

    fn sink(&self, port: u16, run: &str, _dir: &Path) -> String {
        let (scheme, tls) = match &self.authority {
            Some(authority) => ("rediss", format!("ca_file = {authority:?}")),
            None => ("redis", String::new()),
        };
        format!("type = \"redis\"\nurl = \"{scheme}://127.0.0.1:{port}\"\nstream = \"{run}\"\nbatch_size = 10\n{tls}")
    }

    fn kill(&mut self) {
        self.server.kill();
    }

    async fn restart(&mut self) {
        self.server.restart().await;
        self.loaded().await;
    }

    async fn consumed(&self, run: &str) -> Result<Vec<String>, String> {
        let mut range = ::redis::cmd("XRANGE");
        range.arg(run).arg("-").arg("+");
        let entries: Result<Vec<Stored>, _> = range.query_async(&mut self.connect().await?).await;
        let entries = entries.map_err(|error| error.to_string())?;
        let line = |(id, fields): Stored| {
            let names: Vec<&str> = fields.iter().map(|(name, _)| name.as_str()).collect();
            assert_eq!(names, ["id", "seq", "epoch", "type", "entry"]);
            assert!(id.ends_with(&format!("-{}", fields[1].1)), "{id} {}", fields[1].1);
            fields[4].1.clone()
        };
        Ok(entries.into_iter().map(line).collect())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_undisturbed() {
    trial::undisturbed(&mut Redis::start().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_server_killed() {
    trial::server_killed(&mut Redis::start().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_answers_cut() {
    trial::answers_cut(&mut Redis::start().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_daemon_killed() {
    trial::daemon_killed(&mut Redis::start().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_killed_at_every_exchange() {
    trial::killed_at_every_exchange(&mut Redis::start().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_and_a_journal_put_back_twice() {
    timelines::put_back_twice(&mut Redis::start().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_and_a_journal_put_back_while_it_is_away() {
    timelines::put_back_while_away(&mut Redis::start().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_and_a_journal_lost_under_a_clock_that_is_behind() {
    timelines::lost_under_a_clock_that_is_behind(&mut Redis::start().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_and_two_copies_of_a_journal() {
    timelines::two_copies_run(&mut Redis::start().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_and_a_daemon_that_stood_still() {
    timelines::stood_still(&mut Redis::start().await).await;
}

/// The epochs of two journals, the second after the first.
const EPOCHS: [&str; 2] = ["019aa6a3d8007b3c8a5e0c1f2d3e4f50", "019aa6a3d8017b3c8a5e0c1f2d3e4f50"];

fn item(epoch: &str, seq: u64, value: &str) -> Item {
    let line = format!(
        "{{\"v\":1,\"seq\":{seq},\"epoch\":\"{epoch}\",\"id\":\"u.{seq}.MODIFIED\",\"time\":\"2026-11-21T10:15:00.000000Z\",\
         \"type\":\"MODIFIED\",\"evidence\":\"watched\",\"cluster\":{{\"name\":\"c\",\"uid\":\"c\"}},\"apiVersion\":\"v1\",\
         \"kind\":\"ConfigMap\",\"resource\":\"configmaps\",\"namespace\":\"n\",\"name\":\"x\",\"uid\":\"u\",\
         \"resourceVersion\":\"{seq}\",\"object\":{{\"value\":\"{value}\"}}}}"
    );
    Item::new(Seq(seq), EntryType::Modified, line.into())
}

fn items(epoch: &str, seqs: impl IntoIterator<Item = u64>) -> Vec<Item> {
    seqs.into_iter().map(|seq| item(epoch, seq, "x")).collect()
}

/// The sink itself, with these keys.
fn sink(keys: serde_json::Value) -> Box<dyn Sink> {
    let mut config = json!({"type": "redis", "stream": "log"});
    config.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    serde_json::from_value::<sink::registry::SinkKind>(config).unwrap().open().unwrap()
}

fn position(epoch: &str, seq: u64) -> LogPosition {
    LogPosition { epoch: epoch.to_owned(), seq: Seq(seq), entry: None }
}

/// The place of an entry of [`items`].
fn place(epoch: &str, seq: u64) -> LogPosition {
    LogPosition::of(&item(epoch, seq, "x").line).unwrap()
}

/// What these tests do with the server.
trait RedisTests: Sized {
    async fn asked<T: FromRedisValue>(&self, words: &str) -> T;
    fn url(&self) -> String;
    fn copy(&self, back: bool);
}

impl RedisTests for Redis {
    async fn asked<T: FromRedisValue>(&self, words: &str) -> T {
        let mut words = words.split(' ');
        let mut command = ::redis::cmd(words.next().unwrap());
        for word in words {
            command.arg(word);
        }
        command.query_async(&mut self.connect().await.unwrap()).await.unwrap()
    }

    fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.server.port())
    }

    /// Keeps a copy of its data, or puts that back. It does not run.
    fn copy(&self, back: bool) {
        let (data, copy) = (self.dir.path().join("appendonlydir"), self.dir.path().join("copy"));
        let (from, to) = if back { (copy, data) } else { (data, copy) };
        if to.exists() {
            fs::remove_dir_all(&to).unwrap();
        }
        fs::create_dir(&to).unwrap();
        for file in fs::read_dir(from).unwrap() {
            let file = file.unwrap();
            fs::copy(file.path(), to.join(file.file_name())).unwrap();
        }
    }
}

#[tokio::test]
async fn redis_ids_grow_over_epochs_and_repeats_change_nothing() {
    let redis = Redis::start().await;
    let mut sink = sink(json!({"url": redis.url()}));
    let [first, second] = EPOCHS;
    assert_eq!(sink.position(&position(first, 0)).await, Ok(Some(position(first, 0))));
    sink.deliver(&items(first, [1, 2, 5])).await.unwrap();
    assert_eq!(sink.position(&position(first, 9)).await, Ok(Some(place(first, 5))));
    // A journal that was put back or made anew has seqs that are there already.
    assert_eq!(sink.position(&position(second, 2)).await, Ok(Some(place(first, 5))));
    sink.deliver(&items(second, [3, 4])).await.unwrap();
    assert_eq!(sink.position(&position(second, 4)).await, Ok(Some(place(second, 4))));
    let wanted: Vec<String> = [items(first, [1, 2, 5]), items(second, [3, 4])].concat().into_iter().map(text).collect();
    assert_eq!(redis.consumed("log").await.unwrap(), wanted);
    for batch in [items(first, [1, 2, 5]), items(first, [5]), items(second, [3, 4])] {
        sink.deliver(&batch).await.unwrap();
    }
    assert_eq!(redis.consumed("log").await.unwrap(), wanted);
    // What a consumer has taken out was there.
    redis.asked::<u64>("XTRIM log MAXLEN 0").await;
    sink.deliver(&items(second, [3, 4, 5])).await.unwrap();
    assert_eq!(redis.consumed("log").await.unwrap(), [text(item(second, 5, "x"))]);
    redis.asked::<u64>("XTRIM log MAXLEN 0").await;
    assert_eq!(sink.position(&position(second, 5)).await, Ok(Some(place(second, 5))));
    // Who did not deliver it has its id alone, which says as much as the cursor confirms.
    let mut other = crate::redis::sink(json!({"url": redis.url()}));
    assert_eq!(other.position(&position(second, 5)).await, Ok(Some(position(second, 5))));
    for cursor in [position(second, 4), position(first, 5)] {
        let mut other = crate::redis::sink(json!({"url": redis.url()}));
        let held = other.position(&cursor).await.unwrap().unwrap();
        assert!(held.epoch.as_str() > second && held.epoch[..12] == second[..12] && held.seq == Seq(5), "{held:?}");
    }
    for at in [place(first, 5), place(second, 5)] {
        assert_eq!(other.holds(&at).await, Ok(None), "it may have been trimmed");
    }
}

fn text(item: Item) -> String {
    String::from_utf8(item.line.to_vec()).unwrap()
}

#[tokio::test]
async fn redis_streams_that_something_else_writes_to_are_told() {
    let redis = Redis::start().await;
    let mut sink = sink(json!({"url": redis.url()}));
    let [first, second] = EPOCHS;
    sink.deliver(&items(first, [1, 2])).await.unwrap();
    // The same seq with other bytes: two journals with one name.
    let failure = sink.deliver(&[item(first, 2, "other")]).await.unwrap_err();
    assert!(matches!(&failure.error, SinkError::Halt { text } if text.contains("has another entry under the id")));
    sink.deliver(&items(second, [1])).await.unwrap();
    // One that was never there, before one that is.
    let batch = [item(first, 2, "x"), item(first, 3, "x"), item(second, 2, "x")];
    let failure = sink.deliver(&batch).await.unwrap_err();
    assert_eq!(failure.taken, 1);
    assert!(matches!(&failure.error, SinkError::Halt { text } if text.contains("something else writes to it")));
}

/// Two decklogs with copies of one journal, or two sinks of one: nothing of the other is taken for delivered, also what has
/// left the stream since, and nothing is added behind what was not.
#[tokio::test]
async fn redis_takes_nothing_of_another_writer_for_its_own() {
    let (redis, epoch) = (Redis::start().await, EPOCHS[0]);
    let open = async || {
        let mut sink = sink(json!({"url": redis.url()}));
        sink.position(&position(epoch, 0)).await.unwrap();
        sink
    };
    let halts = |failure: sink::Failure| {
        assert!(matches!(&failure.error, SinkError::Halt { .. }), "{failure}");
        assert_eq!(failure.taken, 0);
    };
    let (mut one, mut copy, mut other) = (open().await, open().await, open().await);
    one.deliver(&items(epoch, [1])).await.unwrap();
    // Of a copy of the journal: the same place with other bytes, and with the same.
    halts(copy.deliver(&[item(epoch, 1, "y"), item(epoch, 2, "y")]).await.unwrap_err());
    halts(open_late(&redis).deliver(&items(epoch, [1, 2])).await.unwrap_err());
    assert_eq!(redis.consumed("log").await.unwrap().len(), 1);
    // Another sink of this one has other entries.
    one.deliver(&items(epoch, [3, 5])).await.unwrap();
    halts(other.deliver(&items(epoch, [2, 4, 6])).await.unwrap_err());
    redis.asked::<u64>("XTRIM log MAXLEN 1").await;
    halts(other.deliver(&items(epoch, [2, 4, 6])).await.unwrap_err());
    redis.asked::<u64>("XTRIM log MAXLEN 0").await;
    halts(other.deliver(&items(epoch, [2, 4, 6])).await.unwrap_err());
    one.deliver(&items(epoch, [7])).await.unwrap();
    assert_eq!(redis.consumed("log").await.unwrap(), [text(item(epoch, 7, "x"))]);
    // Asked for an entry, it says it of the very one.
    let mut late = open().await;
    assert_eq!(late.holds(&place(epoch, 7)).await, Ok(Some(true)));
    assert_eq!(late.holds(&place(epoch, 5)).await, Ok(None));
    let mark = sink::EntryKey { id: "u.8.MODIFIED".into(), time: "2026-11-21T10:15:00.000000Z".into() };
    assert_eq!(late.holds(&LogPosition { entry: Some(mark), ..place(epoch, 7) }).await, Ok(Some(false)));
    // What somebody else put behind it is none of the log.
    redis.asked::<String>("XADD log * a b").await;
    let error = late.position(&position(epoch, 7)).await.unwrap_err();
    assert!(matches!(&error, SinkError::Halt { text } if text.contains("not of decklog")), "{error}");
}

fn open_late(redis: &Redis) -> Box<dyn Sink> {
    sink(json!({"url": redis.url()}))
}

#[tokio::test]
async fn redis_keeps_as_many_as_it_is_told_in_streams_by_a_template() {
    let redis = Redis::start().await;
    let keys = json!({"url": format!("{}/3", redis.url()), "stream": "log:{resource}:{type}", "max_len": 10});
    let mut limited = sink(keys.clone());
    limited.check().await.unwrap();
    for from in (1..1000).step_by(50) {
        limited.deliver(&items(EPOCHS[0], from..from + 50)).await.unwrap();
    }
    // What is replayed goes beside it, each time again.
    let mut replaying = sink(keys);
    replaying.enter_replay();
    for _ in 0..2 {
        replaying.deliver(&items(EPOCHS[0], [990, 7])).await.unwrap();
    }
    let mut connection = redis.connect().await.unwrap();
    ::redis::cmd("SELECT").arg(3).exec_async(&mut connection).await.unwrap();
    let mut length = ::redis::cmd("XLEN");
    let length: u64 = length.arg("log:configmaps:MODIFIED").query_async(&mut connection).await.unwrap();
    assert!((10..300).contains(&length), "{length}");
    let mut again = ::redis::cmd("XRANGE");
    again.arg("log:configmaps:MODIFIED:again").arg("-").arg("+");
    let again: Vec<Stored> = again.query_async(&mut connection).await.unwrap();
    let seqs: Vec<&str> = again.iter().map(|(_, fields)| fields[1].1.as_str()).collect();
    assert_eq!(seqs, ["990", "7", "990", "7"]);
}

/// After a failover the old primary answers on, as a replica, to who has a connection; its name leads to the new one.
#[tokio::test]
async fn redis_is_looked_for_again_after_a_failover() {
    let (old, new) = (Redis::start().await, Redis::start().await);
    let proxy = Proxy::start(old.port()).await;
    let mut sink = sink(json!({"url": format!("redis://127.0.0.1:{}", proxy.port())}));
    sink.deliver(&items(EPOCHS[0], [1, 2])).await.unwrap();
    new.asked::<String>(&format!("REPLICAOF 127.0.0.1 {}", old.port())).await;
    until("the replica to have everything", async || {
        let came = new.consumed("log").await?.len();
        if came == 2 { Ok(()) } else { Err(came.to_string()) }
    })
    .await;
    new.asked::<String>("REPLICAOF NO ONE").await;
    old.asked::<String>(&format!("REPLICAOF 127.0.0.1 {}", new.port())).await;
    proxy.lead_to(new.port());
    let error = sink.deliver(&items(EPOCHS[0], [3])).await.unwrap_err().error;
    assert!(matches!(&error, SinkError::Retry { text, .. } if text.contains("is a replica")), "{error}");
    sink.deliver(&items(EPOCHS[0], [3])).await.unwrap();
    assert_eq!(new.consumed("log").await.unwrap().len(), 3);
}

/// What was lost is looked for until the server has said whether it was: it may still be loading when it comes back.
#[tokio::test]
async fn redis_losses_are_looked_for_until_there_is_an_answer() {
    let redis = Redis::start().await;
    redis.asked::<()>("ACL SETUSER decklog on >first ~log +@all").await;
    let password = redis.dir.path().join("password");
    fs::write(&password, "first").unwrap();
    let mut sink = sink(json!({"url": redis.url(), "user": "decklog", "password_file": password}));
    sink.deliver(&items(EPOCHS[0], [1, 2])).await.unwrap();
    redis.asked::<()>("DEL log").await;
    redis.asked::<()>("ACL SETUSER decklog -xinfo").await;
    redis.asked::<u64>("CLIENT KILL USER decklog").await;
    // The first try finds the connection dead, the second is not told what is there.
    for _ in 0..2 {
        let error = sink.deliver(&items(EPOCHS[0], [3])).await.unwrap_err().error;
        assert!(matches!(&error, SinkError::Retry { .. }), "{error}");
    }
    redis.asked::<()>("ACL SETUSER decklog +xinfo").await;
    let error = sink.deliver(&items(EPOCHS[0], [3])).await.unwrap_err().error;
    assert!(matches!(&error, SinkError::Lost { .. }), "{error}");
    assert_eq!(redis.asked::<u64>("EXISTS log").await, 0, "nothing comes after what is missing");
}

/// The answer to any step of a batch is lost after the server did it: the retry finds what is there, and adds the rest.
#[tokio::test]
async fn redis_goes_on_whichever_answer_is_lost() {
    let redis = Redis::start().await;
    let all: Vec<String> = items(EPOCHS[0], 1..=6).into_iter().map(text).collect();
    let mut lost = 0;
    for answers in 0..6 {
        redis.asked::<u64>("DEL log").await;
        let proxy = Proxy::start(redis.server.port()).await;
        let mut sink = sink(json!({"url": format!("redis://127.0.0.1:{}", proxy.port())}));
        sink.deliver(&items(EPOCHS[0], [1])).await.unwrap();
        proxy.close_after(answers);
        let mut batch = items(EPOCHS[0], 2..=6);
        while let Err(failure) = sink.deliver(&batch).await {
            assert!(matches!(&failure.error, SinkError::Retry { .. }), "after {answers} answers: {failure}");
            batch.drain(..failure.taken);
            proxy.refuse(false);
            lost += 1;
        }
        assert_eq!(redis.consumed("log").await.unwrap(), all, "after {answers} answers");
    }
    assert!(lost >= 2, "both steps of a batch lose their answer");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_is_checked_while_the_daemon_runs() {
    let mut redis = Redis::start().await;
    let mut trial = Trial::new(&mut redis, "checked").await;
    trial.daemon.start();
    trial.daemon.ready().await;
    let checked = trial.daemon.command(&["check"]).await.done();
    assert!(checked.contains("far can be delivered to") && !checked.contains("file can be"), "{checked}");
    trial.kill_server();
    let checked = trial.daemon.command(&["check"]).await;
    assert_eq!(checked.code, 1, "{checked:?}");
    assert!(
        checked.out.lines().any(|line| line.contains("far: ") && line.contains("redis://127.0.0.1:")),
        "{checked:?}"
    );
    trial.far.restart().await;
    assert_eq!(trial.far.asked::<u64>("DBSIZE").await, 0, "nothing was made");
}

/// A server that was put back, or emptied, is filled up again: while decklog runs, and while it does not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_restored() {
    let mut redis = Redis::start().await;
    for (run, runs, empty) in [("running", true, false), ("stopped", false, false), ("emptied", false, true)] {
        let mut trial = Trial::new(&mut redis, run).await;
        trial.daemon.start();
        trial.daemon.ready().await;
        trial.write(10);
        trial.caught_up().await;
        trial.far.kill();
        trial.far.copy(false);
        trial.far.restart().await;
        trial.write(10);
        trial.caught_up().await;
        if !runs {
            trial.daemon.stop().await;
        }
        trial.far.kill();
        trial.far.copy(true);
        trial.far.restart().await;
        if empty {
            trial.far.asked::<()>("FLUSHALL").await;
        }
        trial.write(5);
        if !runs {
            trial.daemon.start();
        }
        trial.judged().await;
        assert!(trial.daemon.said().contains("the output has less than decklog delivered to it"));
    }
}

/// A journal that was put back gives seqs a second time, in another epoch: the stream goes on with larger ids.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_goes_on_after_the_journal_was_put_back() {
    let mut redis = Redis::start().await;
    let mut trial = Trial::new(&mut redis, "back").await;
    trial.daemon.start();
    trial.daemon.ready().await;
    trial.write(10);
    trial.caught_up().await;
    trial.daemon.stop().await;
    let mut copy = Command::new("cp");
    copy.arg("-a").arg(trial.daemon.state()).arg(trial.daemon.path("copy"));
    assert!(copy.status().unwrap().success());
    trial.daemon.start();
    trial.daemon.ready().await;
    trial.write(10);
    trial.caught_up().await;
    trial.daemon.stop().await;
    fs::remove_dir_all(trial.daemon.state()).unwrap();
    fs::rename(trial.daemon.path("copy"), trial.daemon.state()).unwrap();
    trial.daemon.start();
    // What the journal has forgotten of the cluster is told again.
    let came = until("the stream to have what the file has", async || {
        trial.daemon.must_run();
        let log = fs::read_to_string(trial.daemon.log()).unwrap();
        let came = trial.far.consumed("back").await?;
        let same = came.len() >= 30 && log.lines().eq(came.iter().map(String::as_str));
        if same { Ok(came) } else { Err(format!("{} of {} lines", came.len(), log.lines().count())) }
    })
    .await;
    let epoch = |line: &String| crate::judge::Entry::parse(line).epoch;
    assert_eq!(epoch(&came[0]), epoch(&came[19]));
    assert!(epoch(&came[19]) < epoch(&came[20]) && crate::judge::Entry::parse(&came[20]).seq == 11);
    trial.daemon.stop().await;
}
