//! What holds of every engine that has a server: kills of it, and a daemon whose log it keeps, with what `check` and `sink init` say and
//! make, and a machine that is lost.

use std::fs;

use decklog::core::shared_log::{LogError, SharedLog};
use decklog::sim::objects;
use tempfile::TempDir;

use crate::server::Server;
use crate::shared::{self, Place};
use crate::support::{Daemon, cluster, lists, until};

/// Its server is killed three times while units are appended.
pub(crate) async fn outlives_kills(place: &impl Place, cluster: &str, server: &mut Server) {
    shared::lasts(place, place, cluster, async |reached| {
        for round in 1..=3 {
            shared::reach(reached, round * 15).await;
            server.kill();
            server.restart().await;
        }
    })
    .await;
}

/// What an engine says of itself, once its server answers.
pub(crate) async fn checked(log: &mut Box<dyn SharedLog>) -> Result<(), LogError> {
    let answered = until("an answer", async || match log.check().await {
        Err(LogError::Retry(text)) => Err(text),
        checked => Ok(checked),
    });
    answered.await
}

/// Goes through it with a sink of these keys. `missing` is what `check` says before anything is made, `made` what `sink init` says.
pub(crate) async fn outlives_its_machine(keys: &str, missing: &str, made: &str) {
    let sim = cluster().await;
    let dir = TempDir::new().unwrap();
    let key = dir.path().join("key");
    fs::write(&key, "0123456789abcdef0123456789abcdef").unwrap();
    let rest = format!(
        "[redact]\nkey_file = {key:?}\n\n[[sink]]\nname = \"archive\"\n{keys}\n[ha]\nlog = \"archive\"\nlease = \"default/decklog\"\n"
    );
    let daemon = || Daemon::with(&sim, "resources = [\"configmaps\"]\n", &rest);
    let leads = async |daemon: &mut Daemon| {
        daemon.ready().await;
        until("a leader", async || {
            daemon.must_run();
            let status = daemon.status().await;
            if status["ha"]["role"] == "leader" { Ok(()) } else { Err(status["ha"].to_string()) }
        })
        .await;
    };
    let mut lost = daemon();
    until("what is missing", async || {
        let checked = lost.command(&["check"]).await;
        if checked.code == 1 && checked.out.contains(missing) { Ok(()) } else { Err(format!("{checked:#?}")) }
    })
    .await;
    let initiated = lost.command(&["sink", "init", "archive"]).await;
    assert!(initiated.code == 0 && initiated.err.contains(made), "{initiated:#?}");
    until("a good check", async || {
        let checked = lost.command(&["check"]).await;
        if checked.out.contains("the shared log is in") { Ok(()) } else { Err(format!("{checked:#?}")) }
    })
    .await;
    sim.create("configmaps", objects::config_map("default", "first", "1")).unwrap();
    lost.start();
    leads(&mut lost).await;
    sim.create("configmaps", objects::config_map("default", "second", "1")).unwrap();
    let has = async |daemon: &mut Daemon, name: &str| {
        until(name, async || {
            let answer = daemon.command(&["get", &format!("cm/{name}"), "-n", "default"]).await;
            if answer.code == 0 { Ok(()) } else { Err(answer.err) }
        })
        .await;
    };
    has(&mut lost, "second").await;
    lost.kill().await;
    // What was seen there is in the shared log.
    let everything = ["tail", "-o", "json", "--last", "1000000"];
    let before = lost.command(&everything).await.done();
    let mut next = daemon();
    let restored = next.command(&["restore", "--from", "archive"]).await.done();
    assert!(restored.contains("entries"), "{restored}");
    next.command(&["verify"]).await.done();
    assert_eq!(next.command(&everything).await.done(), before);
    let listed = lists(&sim).len();
    next.start();
    leads(&mut next).await;
    sim.create("configmaps", objects::config_map("default", "third", "1")).unwrap();
    has(&mut next, "third").await;
    assert_eq!(lists(&sim).len(), listed, "it resumes where the lost one was");
    next.stop().await;
}
