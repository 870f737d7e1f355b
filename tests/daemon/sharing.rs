//! Two daemons with one log in a folder that both reach: who leads, who follows, and what is built again from nothing.

use std::fs;
use std::time::Duration;

use decklog::sim::faults::{Act, Fault, On, Refusal};
use decklog::sim::world::World;
use decklog::sim::{Sim, objects};
use rustix::process::Signal;

use crate::disk::{Small, fill};
use crate::judge::Scope;
use crate::support::{Daemon, Dice, cluster, http_get, lists, scope, until};

const BUSY: [&str; 4] = ["pods", "configmaps", "secrets", "deployments.apps"];

/// A daemon of the log that is kept in this folder.
pub(crate) fn shared(sim: &Sim, bucket: &std::path::Path, identity: &str) -> Daemon {
    shared_of(sim, bucket, identity, &format!("resources = {BUSY:?}\n"))
}

/// The same for other resources.
pub(crate) fn shared_of(sim: &Sim, bucket: &std::path::Path, identity: &str, watch: &str) -> Daemon {
    let key = bucket.join("key");
    fs::write(&key, "0123456789abcdef0123456789abcdef").unwrap();
    let rest = format!(
        "[redact]\nkey_file = {key:?}\n\n[[sink]]\nname = \"archive\"\ntype = \"s3\"\nurl = \"file://{}\"\nsegment_age = \"1s\"\n\n\
         [ha]\nlog = \"archive\"\nlease = \"default/decklog\"\nidentity = \"{identity}\"\n",
        bucket.join("bucket").display()
    );
    fs::create_dir_all(bucket.join("bucket")).unwrap();
    Daemon::with(sim, watch, &rest)
}

pub(crate) async fn has_role(daemon: &mut Daemon, role: &str) {
    until(&format!("a {role}"), async || {
        daemon.must_run();
        let status = daemon.status().await;
        let ha = &status["ha"];
        // It watches as well: only then it has what the API server may forget. Of a standby that is what `ready` says.
        let watches = status["sources"].as_array().is_some_and(|all| {
            all.len() == BUSY.len() && all.iter().all(|source| role == "standby" || source["state"] == "watching")
        });
        if ha["role"] == role && status["daemon"]["ready"] == true && watches {
            Ok(())
        } else {
            Err(format!("{ha} {}\n{}", status["daemon"], daemon.last_words()))
        }
    })
    .await;
}

/// Makes a last change, and waits until these have it.
async fn ends_with_last(sim: &Sim, daemons: &[&Daemon]) {
    sim.create("configmaps", objects::config_map("default", "last", "1")).unwrap();
    ends_with("last", daemons).await;
}

/// Waits until these have a ConfigMap.
pub(crate) async fn ends_with(name: &str, daemons: &[&Daemon]) {
    until(&format!("{name} in the log"), async || {
        for daemon in daemons {
            let answer = daemon.command(&["get", &format!("cm/{name}"), "-n", "default"]).await;
            if answer.code != 0 {
                return Err(answer.err);
            }
        }
        Ok(())
    })
    .await;
}

/// Starts a daemon, and waits until it has this role.
pub(crate) async fn starts_as(daemon: &mut Daemon, role: &str) {
    daemon.start();
    daemon.ready().await;
    has_role(daemon, role).await;
}

pub(crate) const EVERYTHING: [&str; 5] = ["tail", "-o", "json", "--last", "1000000"];

/// The whole log of one that has stopped is the truth, without a gap. Each one's file only has what it delivered while it led.
async fn has_all(daemon: &mut Daemon, sim: &Sim, scope: &Scope) -> String {
    let told = daemon.command(&EVERYTHING).await.done();
    fs::write(daemon.log(), &told).unwrap();
    daemon.judged(sim, scope).await;
    assert!(daemon.entries().iter().all(|entry| entry.gap.is_none()), "a standby was watching all the time");
    told
}

/// The API server has forgotten everything, and etcd too.
fn forget(sim: &Sim) {
    for resource in BUSY {
        sim.expire_watch_history(resource, sim.revision());
    }
    sim.compact_all();
}

/// A leader ends cleanly, the next is stopped for longer than its Lease while the API server forgets, the next is killed; who takes
/// over has no gap and lists nothing, and who comes back writes nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_leads_the_log_goes_on_without_a_gap() {
    let sim = cluster().await;
    let bucket = tempfile::tempdir().unwrap();
    let mut world = World::new(&sim, 5).unwrap();
    let started = sim.revision();
    let (mut one, mut two) = (shared(&sim, bucket.path(), "one"), shared(&sim, bucket.path(), "two"));
    let disturbed = async {
        starts_as(&mut one, "leader").await;
        starts_as(&mut two, "standby").await;
        let first = lists(&sim).len();
        one.stop().await;
        forget(&sim);
        has_role(&mut two, "leader").await;
        starts_as(&mut one, "standby").await;
        two.signal(Signal::STOP);
        has_role(&mut one, "leader").await;
        forget(&sim);
        two.signal(Signal::CONT);
        has_role(&mut two, "standby").await;
        assert!(two.said().contains("this decklog stands by"), "{}", two.last_words());
        one.kill().await;
        forget(&sim);
        has_role(&mut two, "leader").await;
        starts_as(&mut one, "standby").await;
        assert_eq!(lists(&sim).len(), first, "nobody lists again");
    };
    tokio::select! {
        () = disturbed => {}
        refusal = world.live(Duration::from_millis(20)) => panic!("{refusal}"),
    }
    ends_with_last(&sim, &[&two]).await;
    let done = scope(&sim, started, &BUSY);
    two.stop().await;
    // Who takes over has read the shared log to its end.
    has_role(&mut one, "leader").await;
    one.stop().await;
    let whole = |answer: String| answer.lines().map(str::to_owned).collect::<Vec<_>>();
    let log = whole(has_all(&mut two, &sim, &done).await);
    assert_eq!(whole(one.command(&EVERYTHING).await.done())[..log.len()], log[..], "it has the same log");

    // A machine that has nothing builds it again, and goes on from there without a list.
    let mut three = shared(&sim, bucket.path(), "three");
    let restored = three.command(&["restore", "--from", "archive"]).await.done();
    assert!(restored.contains("entries"), "{restored}");
    three.command(&["verify"]).await.done();
    assert_eq!(whole(three.command(&EVERYTHING).await.done())[..log.len()], log[..]);
    three.command(&["restore", "--from", "archive"]).await.refused(1, &["journal in", "move it away"]);
    three.command(&["restore", "--from", "file"]).await.refused(78, &["shared log"]);
    let before = lists(&sim).len();
    starts_as(&mut three, "leader").await;
    sim.create("configmaps", objects::config_map("default", "after-it-all", "1")).unwrap();
    three.tells("what happened then", |entry| entry.name == "after-it-all").await;
    assert_eq!(lists(&sim).len(), before, "it resumes where the lost one was");
    three.stop().await;
}

/// A disk that is full costs whoever has it the lead, and nobody a change.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_costs_the_lead_and_nothing_else() {
    let sim = cluster().await;
    let bucket = tempfile::tempdir().unwrap();
    let mut dice = Dice(9);
    let started = sim.revision();
    let (mut one, mut two) = (shared(&sim, bucket.path(), "one"), shared(&sim, bucket.path(), "two"));
    let Some(small) = Small::mount(&one.state(), "4m") else { return };
    starts_as(&mut one, "leader").await;
    starts_as(&mut two, "standby").await;
    fill(&sim, &mut dice, 8000);
    has_role(&mut two, "leader").await;
    // The first one has no room for what it would follow, either.
    let status = one.end().await;
    assert_eq!(status.code(), Some(74), "{}", one.last_words());
    assert!(one.last_words().contains("free some space"), "{}", one.last_words());
    fill(&sim, &mut dice, 100);
    let size = std::process::Command::new("mount").args(["-o", "remount,size=64m"]).arg(one.state()).status().unwrap();
    assert!(size.success());
    starts_as(&mut one, "standby").await;
    ends_with_last(&sim, &[&one, &two]).await;
    let done = scope(&sim, started, &BUSY);
    one.stop().await;
    two.stop().await;
    has_all(&mut one, &sim, &done).await;
    drop(small);
}

/// `/readyz` answers 200 on a standby that watches and has the shared log, and 503 on one that cannot reach it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_is_ready_when_it_could_take_over() {
    let sim = cluster().await;
    let bucket = tempfile::tempdir().unwrap();
    let (mut one, mut two) = (shared(&sim, bucket.path(), "one"), shared(&sim, bucket.path(), "two"));
    let at = two.path("http.sock");
    let config = fs::read_to_string(two.path("config.toml")).unwrap();
    two.configure(&format!("{config}\n[http]\nlisten = {at:?}\n"));
    starts_as(&mut one, "leader").await;
    let (there, gone) = (bucket.path().join("bucket"), bucket.path().join("gone"));
    fs::rename(&there, &gone).unwrap();
    two.start();
    let ready = || http_get(at.to_str().unwrap(), "/readyz");
    until("a standby that says what it waits for", async || {
        two.must_run();
        let got = ready()?;
        if got.status == 503 && got.body.contains("shared log") { Ok(()) } else { Err(got.body) }
    })
    .await;
    fs::rename(&gone, &there).unwrap();
    until("a standby that is ready", async || {
        two.must_run();
        let got = ready()?;
        if got.status == 200 { Ok(()) } else { Err(got.body) }
    })
    .await;
    has_role(&mut two, "standby").await;
    two.stop().await;
    one.stop().await;
}

/// The leader is lost while the engine is away, for so long that the other one gives the Lease back: what that one has seen
/// meanwhile is not lost when the engine is there again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_is_away_for_long_costs_nothing() {
    let sim = cluster().await;
    let bucket = tempfile::tempdir().unwrap();
    let mut dice = Dice(12);
    let started = sim.revision();
    let (mut one, mut two) = (shared(&sim, bucket.path(), "one"), shared(&sim, bucket.path(), "two"));
    starts_as(&mut one, "leader").await;
    starts_as(&mut two, "standby").await;
    let (there, gone) = (bucket.path().join("bucket"), bucket.path().join("gone"));
    fs::rename(&there, &gone).unwrap();
    one.kill().await;
    fill(&sim, &mut dice, 2000);
    two.says("this decklog does not lead by the Lease").await;
    fill(&sim, &mut dice, 2000);
    until("all of it in the backlog", async || {
        two.must_run();
        let status = two.status().await;
        if status["ha"]["backlog_bytes"].as_u64() > Some(3_000_000) { Ok(()) } else { Err(status["ha"].to_string()) }
    })
    .await;
    forget(&sim);
    // The engine is back before it can have the Lease again.
    let refusal = Refusal::internal("no");
    sim.fault(Fault::new(On::write("leases.coordination.k8s.io"), Act::refuse(&refusal)).times(25));
    until("a Lease that is nobody's", async || {
        two.must_run();
        let status = two.status().await;
        if status["ha"]["leader"] == "two" { Err(status["ha"].to_string()) } else { Ok(()) }
    })
    .await;
    fs::rename(&gone, &there).unwrap();
    has_role(&mut two, "leader").await;
    ends_with_last(&sim, &[&two]).await;
    let done = scope(&sim, started, &BUSY);
    two.stop().await;
    has_all(&mut two, &sim, &done).await;
    assert!(!two.said().contains("this decklog stands by"), "it tries without the Lease: {}", two.last_words());
    let complaints = two.said().matches("it is tried again").count();
    assert!(complaints < 20, "{complaints} times");
}

/// A standby takes a new configuration and stands by as before; when it leads, it delivers as that one says.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_that_reloads_stands_by() {
    let sim = cluster().await;
    let bucket = tempfile::tempdir().unwrap();
    let (mut one, mut two) = (shared(&sim, bucket.path(), "one"), shared(&sim, bucket.path(), "two"));
    starts_as(&mut one, "leader").await;
    starts_as(&mut two, "standby").await;
    let config = fs::read_to_string(two.path("config.toml")).unwrap();
    let more = two.path("more.jsonl");
    two.configure(&format!("{config}\n[[sink]]\nname = \"more\"\ntype = \"file\"\npath = {more:?}\n"));
    two.signal(Signal::HUP);
    two.says("SIGHUP: the configuration was read again").await;
    sim.create("configmaps", objects::config_map("default", "meanwhile", "1")).unwrap();
    has_role(&mut two, "standby").await;
    assert!(!more.exists(), "only who leads delivers");
    one.stop().await;
    has_role(&mut two, "leader").await;
    until("what is delivered to the new sink", async || {
        two.must_run();
        let text = fs::read_to_string(&more).unwrap_or_default();
        if text.contains("\"name\":\"meanwhile\"") { Ok(()) } else { Err(two.last_words()) }
    })
    .await;
    two.stop().await;
}
