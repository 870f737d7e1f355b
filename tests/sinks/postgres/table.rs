//! The table of objects: it is the cluster, also for another journal.

use std::fs;
use std::process::Command;

use decklog::core::model::Seq;
use decklog::sim::objects;
use decklog::sink::{Item, LogPosition};

use super::start::{Postgres, run};
use super::{PostgresTests as _, item, objects_are_right};
use crate::support::until;
use crate::trial::Trial;

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
    sink.diverged(Seq(1));
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
