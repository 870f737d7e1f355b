//! Two daemons whose shared log, in a folder, loses a unit or is restored from a copy, and what each delivers to its own file.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use decklog::sim::{Sim, objects};

use crate::sharing::{EVERYTHING, ends_with, has_role, shared, starts_as};
use crate::support::{Daemon, cluster, copy, http_get, until};

/// The files of the units in a shared log, in their order.
fn units(bucket: &Path) -> Vec<PathBuf> {
    let mut folders = vec![bucket.join("bucket")];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            // Not one that is being written.
            } else if path.parent().unwrap().ends_with("units")
                && path.file_name().unwrap().to_str().unwrap().parse::<u64>().is_ok()
            {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn number(unit: &Path) -> u64 {
    unit.file_name().unwrap().to_str().unwrap().parse().unwrap()
}

/// Creates objects one by one, each of which is a unit by itself, and waits until these daemons have them.
async fn each_in_a_unit(sim: &Sim, bucket: &Path, names: &[&str], daemons: &[&Daemon]) {
    for name in names {
        let before = units(bucket).len();
        sim.create("configmaps", objects::config_map("default", name, "1")).unwrap();
        until("a unit more", async || match units(bucket).len() {
            now if now > before => Ok(()),
            now => Err(format!("there are {now}")),
        })
        .await;
        ends_with(name, daemons).await;
    }
}

/// Waits until the daemon has this alarm, and gives its sentence.
async fn alarms(daemon: &mut Daemon, code: &str) -> String {
    until(&format!("the alarm {code}"), async || {
        daemon.must_run();
        let status = daemon.try_status().await?;
        let alarms = status["alarms"].as_array().cloned().unwrap_or_default();
        match alarms.iter().find(|alarm| alarm["alarm"] == code) {
            Some(alarm) => Ok(alarm["what"].to_string()),
            None => Err(format!("{alarms:?} {}", status["ha"])),
        }
    })
    .await
}

/// A unit in the middle is deleted: `restore` names it and writes nothing, a new machine is no standby and does not lead, the
/// leader writes on and never in its place, and once it is there again everybody has the same log.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_unit_that_is_missing_is_named_and_never_replaced() {
    let sim = cluster().await;
    let bucket = tempfile::tempdir().unwrap();
    let (mut one, mut two) = (shared(&sim, bucket.path(), "one"), shared(&sim, bucket.path(), "two"));
    starts_as(&mut one, "leader").await;
    each_in_a_unit(&sim, bucket.path(), &["a", "b", "c", "d"], &[&one]).await;
    let all = units(bucket.path());
    let lost = all[all.len() - 2].clone();
    let kept = bucket.path().join("kept");
    fs::rename(&lost, &kept).unwrap();
    let name = format!("unit {} of the shared log", number(&lost));

    two.command(&["restore", "--from", "archive"]).await.refused(1, &[&name, "is missing"]);
    assert!(!two.state().join("journal.db").exists(), "half of a log is none");
    let config = fs::read_to_string(two.path("config.toml")).unwrap();
    two.configure(&format!("{config}\n[http]\nlisten = {:?}\n", two.path("http.sock")));
    two.start();
    assert!(alarms(&mut two, "lease-problem").await.contains(&name));
    let ready = http_get(two.path("http.sock").to_str().unwrap(), "/readyz").unwrap();
    assert!(ready.status == 503 && ready.body.contains(&name), "{ready:?}");
    // Without a leader it has every reason to lead.
    one.kill().await;
    until("a Lease that has expired", async || {
        two.must_run();
        let ha = two.status().await["ha"].clone();
        if ha["leader"] == "" { Ok(()) } else { Err(ha.to_string()) }
    })
    .await;
    assert!(!lost.exists(), "who lacks a unit writes none");
    starts_as(&mut one, "leader").await;
    let newest = number(units(bucket.path()).last().unwrap());
    each_in_a_unit(&sim, bucket.path(), &["e"], &[&one]).await;
    assert!(number(units(bucket.path()).last().unwrap()) > newest && !lost.exists());

    fs::rename(&kept, &lost).unwrap();
    two.ready().await;
    has_role(&mut two, "standby").await;
    one.stop().await;
    has_role(&mut two, "leader").await;
    each_in_a_unit(&sim, bucket.path(), &["f"], &[&two]).await;
    two.stop().await;
    let first = one.command(&EVERYTHING).await.done();
    assert!(two.command(&EVERYTHING).await.done().starts_with(&first));
    let restored = shared(&sim, bucket.path(), "three");
    restored.command(&["restore", "--from", "archive"]).await.done();
    assert_eq!(restored.command(&EVERYTHING).await.done(), two.command(&EVERYTHING).await.done());
}

/// The folder is restored from an older copy while both machines are down, and the one with less leads first: the other one's
/// entries are kept in a file, an alarm names both ranges, and it follows from then on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_restored_engine_lacks_is_set_apart_with_an_alarm() {
    let sim = cluster().await;
    let bucket = tempfile::tempdir().unwrap();
    let (mut one, mut two) = (shared(&sim, bucket.path(), "one"), shared(&sim, bucket.path(), "two"));
    starts_as(&mut one, "leader").await;
    starts_as(&mut two, "standby").await;
    each_in_a_unit(&sim, bucket.path(), &["a"], &[&one, &two]).await;
    two.stop().await;
    copy(&bucket.path().join("bucket"), &bucket.path().join("older"));
    each_in_a_unit(&sim, bucket.path(), &["b", "c", "d"], &[&one]).await;
    one.stop().await;
    let longer = one.command(&EVERYTHING).await.done();
    let last = longer.lines().count();

    fs::rename(bucket.path().join("bucket"), bucket.path().join("newer")).unwrap();
    fs::rename(bucket.path().join("older"), bucket.path().join("bucket")).unwrap();
    starts_as(&mut two, "leader").await;
    each_in_a_unit(&sim, bucket.path(), &["e"], &[&two]).await;
    one.start();
    let told = alarms(&mut one, "journal-set-apart").await;
    let shown = two.command(&EVERYTHING).await.done();
    // Both have what the copy had; the next one is the first that only one of them has.
    let first = longer.lines().zip(shown.lines()).take_while(|(one, two)| one == two).count() + 1;
    assert!(told.contains(&format!("the entries {first} to {last} of epoch")), "{told}");
    assert!(told.contains(&format!("which has others from {first} to {}", shown.lines().count())), "{told}");
    let apart = fs::read_dir(one.state()).unwrap().map(|entry| entry.unwrap().path());
    let apart: Vec<_> = apart.filter(|path| path.to_string_lossy().contains("set-apart")).collect();
    assert_eq!(apart.len(), 1, "{apart:?}");
    // It is a journal, and has all of it.
    let there = tempfile::tempdir().unwrap();
    fs::copy(&apart[0], there.path().join("journal.db")).unwrap();
    let config = fs::read_to_string(one.path("config.toml")).unwrap();
    let other = Daemon::new(&sim, &["configmaps"]);
    other.configure(&config.replace(&format!("{:?}", one.state()), &format!("{:?}", there.path())));
    assert_eq!(other.command(&EVERYTHING).await.done(), longer);

    has_role(&mut one, "standby").await;
    each_in_a_unit(&sim, bucket.path(), &["f"], &[&one, &two]).await;
    one.stop().await;
    two.stop().await;
}

/// Machines that lead by turns have each entry once in the file of one of them, whoever led.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_that_leads_again_repeats_nothing_that_another_delivered() {
    let sim = cluster().await;
    let bucket = tempfile::tempdir().unwrap();
    let (mut one, mut two) = (shared(&sim, bucket.path(), "one"), shared(&sim, bucket.path(), "two"));
    let mut number = 0;
    for turn in 0..4 {
        let (leads, other) = if turn % 2 == 0 { (&mut one, &mut two) } else { (&mut two, &mut one) };
        if turn == 0 {
            leads.start();
            leads.ready().await;
        }
        has_role(leads, "leader").await;
        starts_as(other, "standby").await;
        for _ in 0..3 {
            number += 1;
            let name = format!("of-{number}");
            sim.create("configmaps", objects::config_map("default", &name, "1")).unwrap();
            leads.tells(&name, |entry| entry.name == name).await;
        }
        leads.stop().await;
    }
    has_role(&mut one, "leader").await;
    one.stop().await;
    let log = one.command(&EVERYTHING).await.done();
    let files = [&one, &two].map(|daemon| fs::read_to_string(daemon.log()).unwrap());
    let lines: Vec<&str> = files.iter().flat_map(|file| file.lines()).collect();
    assert_eq!(lines.len(), lines.iter().collect::<BTreeSet<_>>().len(), "nothing is there twice");
    assert_eq!(lines.into_iter().collect::<BTreeSet<_>>(), log.lines().collect(), "nothing is missing");
    assert!(files.iter().all(|file| file.lines().count() > 5), "both have led");
}
