//! Limits of the process: how large a file may be (`ulimit -f`, `LimitFSIZE=` of systemd). A program without a handler ends by
//! SIGXFSZ there, kubectl among them (`kubectl logs > FILE`). The limit is of each file, so that the journal, the file of a sink and
//! what a command writes are rows of their own.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use decklog::sim::{Sim, objects};
use serde_json::Value;

use crate::support::{Daemon, Dice, cluster, scope, until};

const ONE: &str = "resources = [\"configmaps\"]";

/// Writes about so many KiB into the cluster; noise is as large in the journal.
fn fill(sim: &Sim, dice: &mut Dice, kib: usize, noise: bool) {
    for _ in 0..kib.div_ceil(20) {
        let name = format!("m{}", sim.revision());
        let letter = |dice: &mut Dice| if noise { b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdef"[dice.roll(32)] } else { b'x' };
        let text = (0..20 << 10).map(|_| char::from(letter(dice))).collect::<String>();
        sim.create("configmaps", objects::config_map("default", &name, &text)).unwrap();
    }
}

/// Sets the soft limit of a running daemon.
fn limit(daemon: &Daemon, bytes: &str) {
    let mut prlimit = Command::new("prlimit");
    prlimit.arg(format!("--pid={}", daemon.pid())).arg(format!("--fsize={bytes}:"));
    assert!(prlimit.status().unwrap().success());
}

async fn paused(daemon: &mut Daemon) -> String {
    let status = until("the pause to be in the status", async || {
        daemon.must_run();
        let status = daemon.status().await;
        let alarms = status["alarms"].to_string();
        let is_paused = status["journal"]["paused"]["why"] == "disk_full" && alarms.contains("journal-paused");
        if is_paused { Ok(status) } else { Err(format!("{status}\n{}", daemon.last_words())) }
    })
    .await;
    status["journal"]["paused"]["detail"].as_str().unwrap_or_default().to_owned()
}

/// A journal that may not grow pauses as on a full disk, and goes on by itself when the limit is raised: from the start, and where
/// the limit of a running daemon was lowered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_journal_that_may_not_grow_pauses() {
    for (at_start, lowered, says) in
        [("ulimit -Sf 1500", None, "larger than 1500KiB"), ("true", Some("1000000"), "larger than 1MB")]
    {
        let sim = cluster().await;
        let started = sim.revision();
        let mut daemon = Daemon::new(&sim, &["configmaps"]);
        let config = daemon.config(ONE, "");
        // What a sink writes is another row.
        daemon.configure(config.split("[[sink]]").next().unwrap());
        daemon.start_limited(at_start);
        daemon.ready().await;
        if let Some(bytes) = lowered {
            limit(&daemon, bytes);
        }
        fill(&sim, &mut Dice(5), 4000, true);
        let detail = paused(&mut daemon).await;
        assert!(detail.contains(says) && detail.contains("raise the limit of a file's size (LimitFSIZE="), "{detail}");
        limit(&daemon, "unlimited");
        until("the pause to be over", async || {
            daemon.must_run();
            let status = daemon.status().await;
            if status["journal"]["paused"].is_null() { Ok(()) } else { Err(status.to_string()) }
        })
        .await;
        daemon.stop().await;
        assert!(daemon.said().matches("reading the cluster is paused").count() <= 2, "{}", daemon.last_words());
        daemon.configure(&config);
        daemon.start();
        let done = scope(&sim, started, &["configmaps"]);
        daemon.catch_up(&sim, &done).await;
        daemon.stop().await;
        daemon.judged(&sim, &done).await;
        assert!(daemon.entries().iter().all(|entry| entry.gap.is_none()), "the server forgot nothing");
    }
}

/// A sink whose file may not grow waits alone, and says which key helps.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sink_whose_file_may_not_grow_waits() {
    let sim = cluster().await;
    let started = sim.revision();
    let mut daemon = Daemon::new(&sim, &["configmaps"]);
    daemon.start_limited("ulimit -Sf 1500");
    daemon.ready().await;
    fill(&sim, &mut Dice(6), 2000, false);
    let detail = daemon.waits_for_state("sinks", "file", "retrying").await;
    assert!(detail.contains("set `rotate_size` below the limit of a file's size (LimitFSIZE=, ulimit -f)"), "{detail}");
    assert!(fs::metadata(daemon.log()).unwrap().len() <= 1500 << 10);
    assert_eq!(daemon.status().await["journal"]["paused"], Value::Null);
    limit(&daemon, "unlimited");
    let done = scope(&sim, started, &["configmaps"]);
    daemon.catch_up(&sim, &done).await;
    daemon.stop().await;
    daemon.judged(&sim, &done).await;

    // What a command writes is not whole, and it says so.
    let state = daemon.state();
    for (words, says) in [
        ("tail -o json --last 1000 > tail.jsonl", "File too large"),
        ("log cm/m12 -o json --no-pager > log.json", "File too large"),
        ("timeline --html timeline.html", "File too large"),
    ] {
        let (binary, state) = (env!("CARGO_BIN_EXE_decklog"), state.display());
        let line = format!("ulimit -f 4; exec {binary} --state {state} {words}");
        let done = Command::new("bash").args(["-c", &line]).current_dir(daemon.path("")).output().unwrap();
        let err = String::from_utf8_lossy(&done.stderr);
        assert_eq!((done.status.code(), done.status.signal()), (Some(74), None), "{words}: {err}");
        assert!(err.contains(says), "{words}: {err}");
    }
}
