//! The same trials for every sink: a daemon over a simulated cluster delivers to a real server while that, the daemon
//! and what is between them break; then everything that a consumer reads is judged.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use decklog::sim::{Sim, objects};
use rustix::process::Signal;
use serde_json::json;

use crate::judge::Entry;
use crate::proxy::Proxy;
use crate::support::{Daemon, Dice, cluster, scope, until};
use crate::trace::{self, Op, under_shim};

/// What the sink promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Promise {
    /// Each seq once, in order.
    ExactlyOnce,
    /// In order but for repeats, which have the same bytes.
    AtLeastOnce,
    /// In order but for one hole or one repeat for each time that something breaks, and the same bytes.
    BestEffort,
}

/// A server, and how a sink delivers to it and a consumer reads from it.
pub(crate) trait Far {
    /// What is promised.
    fn promise(&self) -> Promise;

    /// The port at which the server listens.
    fn port(&self) -> u16;

    /// The keys of `[[sink]]` after `name`, for a server that is reached at `port`; what it writes is kept apart from
    /// what other trials wrote by `run`. `dir` is a directory for its files.
    fn sink(&self, port: u16, run: &str, dir: &Path) -> String;

    /// What stands between the sink and the server. A server that tells its clients where it is has to tell them this.
    async fn proxy(&self) -> Proxy {
        Proxy::start(self.port()).await
    }

    /// Makes what has to be there before the sink delivers, as its operator would.
    async fn prepare(&self, _daemon: &Daemon, _run: &str) {}

    /// Of so many exchanges one is killed at, by turns before and after it: an odd number. More than 1 where most of them
    /// are the same, such as those of each connection.
    fn stride(&self) -> usize {
        1
    }

    /// Ends the server as a crash does.
    fn kill(&mut self);

    /// Starts it again on the same data.
    async fn restart(&mut self);

    /// Everything that a consumer reads of a run: the entries in their order, repeats and all. An error where it cannot
    /// be read now.
    async fn consumed(&self, run: &str) -> Result<Vec<String>, String>;

    /// Whether the sink finds out where each epoch in its output begins.
    fn says_where_epochs_begin(&self) -> bool {
        true
    }

    /// The output cannot be reached, or can again.
    fn away(&self, proxy: &Proxy, _run: &str, away: bool) {
        proxy.refuse(away);
    }

    /// Whatever else the output keeps of a run is as the cluster is, once everything is delivered.
    async fn agrees(&self, _sim: &Sim, _run: &str) {}
}

const WATCH: &str = "resources = [\"configmaps\"]";

/// One daemon that delivers to one server, and to a file, which is the truth.
pub(crate) struct Trial<'f, F> {
    pub(crate) far: &'f mut F,
    pub(crate) proxy: Proxy,
    pub(crate) sim: Sim,
    pub(crate) daemon: Daemon,
    pub(crate) run: String,
    started: u64,
    written: usize,
    /// How often something was killed or cut.
    broken: usize,
}

impl<'f, F: Far> Trial<'f, F> {
    /// Nothing is started yet. `run` is a short word.
    pub(crate) async fn new(far: &'f mut F, run: &str) -> Self {
        let proxy = far.proxy().await;
        let sim = cluster().await;
        let started = sim.revision();
        let daemon = Daemon::new(&sim, &["configmaps"]);
        let sink = far.sink(proxy.port(), run, &daemon.path(""));
        daemon.configure(&daemon.config(WATCH, &format!("[[sink]]\nname = \"far\"\n{sink}\n")));
        far.prepare(&daemon, run).await;
        Self { far, proxy, sim, daemon, run: run.to_owned(), started, written: 0, broken: 0 }
    }

    /// Changes objects so many times.
    pub(crate) fn write(&mut self, count: usize) {
        for _ in 0..count {
            let (number, name) = (self.written, format!("m{}", self.written % 7));
            let sim = &self.sim;
            if sim.get("configmaps", "default", &name).is_err() {
                // Texts that one or the other store does not take as they are.
                let value = format!("{number} \u{0} \u{e9} \" \\ ' {{}} \u{1f980}");
                sim.create("configmaps", objects::config_map("default", &name, &value)).unwrap();
            } else if number % 5 == 3 {
                sim.delete("configmaps", "default", &name).unwrap();
            } else {
                sim.patch("configmaps", "default", &name, &json!({"data": {"value": number.to_string()}})).unwrap();
            }
            self.written += 1;
        }
    }

    /// Waits until the sink has everything that the log tells by now.
    pub(crate) async fn caught_up(&mut self) {
        let scope = scope(&self.sim, self.started, &["configmaps"]);
        self.daemon.catch_up(&self.sim, &scope).await;
        let head = self.daemon.lines();
        until("the sink to have everything", async || {
            self.daemon.must_run();
            let status = self.daemon.status().await;
            let sinks = status["sinks"].as_array().cloned().unwrap_or_default();
            let far = sinks.into_iter().find(|sink| sink["name"] == "far").ok_or("it is not there yet")?;
            if far["cursor"].as_u64() >= Some(head as u64) { Ok(()) } else { Err(far.to_string()) }
        })
        .await;
    }

    /// Everything is delivered and the daemon stopped: what a consumer reads is what the log tells, as promised.
    pub(crate) async fn judged(&mut self) {
        self.caught_up().await;
        self.daemon.stop().await;
        self.right().await;
    }

    /// Ends the server as a crash does.
    pub(crate) fn kill_server(&mut self) {
        self.far.kill();
        self.broken += 1;
    }

    /// Ends decklog as a crash does.
    pub(crate) async fn kill_daemon(&mut self) {
        self.daemon.kill().await;
        self.broken += 1;
    }

    /// The last judgement.
    pub(crate) async fn right(&mut self) {
        self.judged_as(self.far.promise()).await;
    }

    async fn judged_as(&mut self, promise: Promise) {
        let log = fs::read_to_string(self.daemon.log()).unwrap();
        let log: Vec<&str> = log.lines().collect();
        let came = until("a consumer to read", async || {
            let came = self.far.consumed(&self.run).await?;
            // Who gives no answer may still be at work.
            let settled =
                self.far.promise() != Promise::BestEffort || came.last().map(String::as_str) == log.last().copied();
            if settled { Ok(came) } else { Err(format!("{} lines, and not the last", came.len())) }
        })
        .await;
        judge(promise, self.broken, &log, &came);
    }
}

/// What came is what the log has, as promised, after something broke so many times.
#[track_caller]
pub(crate) fn judge(promise: Promise, broken: usize, log: &[&str], came: &[String]) {
    assert!(!log.is_empty(), "nothing was told");
    let told = |seq: u64| log[usize::try_from(seq).unwrap() - 1];
    match promise {
        Promise::ExactlyOnce => {
            for (at, (came, told)) in came.iter().zip(log).enumerate() {
                assert_eq!(came, told, "line {at} of what came");
            }
            assert_eq!(came.len(), log.len(), "so many came, and so many were told");
        }
        Promise::AtLeastOnce => {
            let mut next = 1;
            for line in came {
                let seq = Entry::parse(line).seq;
                assert!(seq <= next, "entry {next} did not come before {seq}");
                assert_eq!(line, told(seq), "a repeat is the same");
                next = next.max(seq + 1);
            }
            assert_eq!(next, log.len() as u64 + 1, "the rest never came");
        }
        Promise::BestEffort => {
            let seqs: Vec<u64> = came.iter().map(|line| Entry::parse(line).seq).collect();
            for (line, seq) in came.iter().zip(&seqs) {
                assert_eq!(line, told(*seq), "what comes is the same");
            }
            let jumps = [0].iter().chain(&seqs).zip(&seqs).filter(|(before, seq)| **seq != **before + 1).count();
            assert!(jumps <= broken, "{jumps} holes and repeats after {broken} kills and cuts: {seqs:?}");
            assert_eq!(seqs.last().copied(), Some(log.len() as u64), "the rest never came");
        }
    }
}

/// Nothing breaks. What comes later is delivered too, and a restart repeats nothing.
pub(crate) async fn undisturbed<F: Far>(far: &mut F) {
    let mut trial = Trial::new(far, "undisturbed").await;
    trial.daemon.start();
    trial.daemon.ready().await;
    trial.write(40);
    trial.caught_up().await;
    trial.daemon.stop().await;
    trial.write(10);
    trial.daemon.start();
    trial.daemon.ready().await;
    trial.write(10);
    trial.caught_up().await;
    trial.daemon.stop().await;
    // Without a crash or a cut there is no reason for a hole or a repeat, whatever is promised.
    trial.judged_as(Promise::ExactlyOnce).await;
}

/// The server is killed under load and started again; it is away at the daemon's start, too.
pub(crate) async fn server_killed<F: Far>(far: &mut F) {
    let mut trial = Trial::new(far, "server").await;
    trial.daemon.start();
    trial.daemon.ready().await;
    for round in 0..3 {
        trial.write(30);
        trial.kill_server();
        trial.write(20);
        if round == 1 {
            trial.daemon.stop().await;
            trial.write(5);
            trial.daemon.start();
            trial.daemon.ready().await;
        }
        trial.daemon.waits_for_state("sinks", "far", "retrying").await;
        trial.far.restart().await;
        trial.caught_up().await;
    }
    trial.judged().await;
}

/// The connection is cut after the request and before its answer, again and again.
pub(crate) async fn answers_cut<F: Far>(far: &mut F) {
    let mut trial = Trial::new(far, "answers").await;
    trial.daemon.start();
    trial.daemon.ready().await;
    for cuts in [1, 1, 2, 1, 3, 1] {
        trial.write(10);
        let before = trial.proxy.cut();
        trial.proxy.cut_answers(cuts);
        trial.write(10);
        until("the answers to be cut", async || {
            trial.daemon.must_run();
            let cut = trial.proxy.cut() - before;
            if cut >= cuts { Ok(()) } else { Err(format!("{cut} of {cuts}")) }
        })
        .await;
        trial.broken += cuts;
        // Or the waits between tries would grow from one round to the next.
        trial.caught_up().await;
    }
    trial.judged().await;
}

/// decklog is killed in the middle of whatever it does, many times.
pub(crate) async fn daemon_killed<F: Far>(far: &mut F) {
    let mut trial = Trial::new(far, "daemon").await;
    let mut dice = Dice(7);
    for round in 0..8 {
        trial.daemon.start();
        if round == 0 {
            // A first list has each object once, however often it was changed.
            trial.daemon.ready().await;
        }
        let wanted = trial.daemon.lines() + 1 + dice.roll(20);
        trial.write(25);
        trial.daemon.reach(wanted).await;
        trial.kill_daemon().await;
    }
    trial.daemon.start();
    trial.judged().await;
}

/// decklog is killed before and after each of its sends to the server and receives from it, in a short run.
///
/// How many there are differs from run to run: a slow server is asked again, and two packets come as one. So the kills go on
/// until one is behind the last exchange of its run.
pub(crate) async fn killed_at_every_exchange<F: Far>(far: &mut F) {
    // Nothing is received from who does not answer.
    let least = if far.promise() == Promise::BestEffort { 2 } else { 4 };
    for step in (1..).step_by(far.stride()) {
        // One side of each step; the other side of it is that of its neighbour.
        let after = step % 2 == 0;
        let (steps, killed) = exchange(far, &format!("exchange{step}"), (step, after)).await;
        if !killed {
            assert!(steps >= least, "only {steps} sends and receives");
            assert!(steps < step, "the kill at {step} of {steps} did not strike");
            return;
        }
    }
}

/// A short life with one kill, and the life after it. Gives how many steps there were, and whether the kill struck.
async fn exchange<F: Far>(far: &mut F, run: &str, (step, after): (usize, bool)) -> (usize, bool) {
    let mut trial = Trial::new(far, run).await;
    let root = trial.daemon.path("").canonicalize().unwrap();
    let steps = root.join("steps");
    let port = trial.proxy.port().to_string();
    trial.write(4);
    trial.daemon.start_with(|command| {
        under_shim(command, &root).env("DECKLOG_SHIM_PORT", &port).env("DECKLOG_SHIM_LOG", &steps);
        command.env("DECKLOG_SHIM_STEPS", "1");
        command.env("DECKLOG_SHIM_KILL", format!("{}:{step}", if after { "after" } else { "before" }))
    });
    let mut wrote = false;
    let killed = until("its end, or everything to be delivered", async || {
        if trial.daemon.ended().is_some() {
            return Ok(true);
        }
        if !trial.daemon.told().contains("READY=1") {
            return Err("it is not ready".to_owned());
        }
        let lines = trial.daemon.lines() as u64;
        let status = trial.daemon.try_status().await?;
        let sinks = status["sinks"].as_array().cloned().unwrap_or_default();
        let have = sinks.iter().find(|sink| sink["name"] == "far").and_then(|sink| sink["cursor"].as_u64());
        if lines < 4 || have < Some(lines) {
            return Err(format!("{have:?} of {lines}"));
        }
        if !wrote {
            wrote = true;
            trial.write(3);
        }
        if lines >= 7 { Ok(false) } else { Err(format!("{lines} lines")) }
    })
    .await;
    let killed = killed || {
        trial.daemon.signal(Signal::TERM);
        let status = trial.daemon.end().await;
        // The last packets may be those of its connection's end.
        let killed = status.signal() == Some(Signal::KILL.as_raw());
        assert!(killed || status.success(), "it ended with {status}:\n{}", trial.daemon.last_words());
        killed
    };
    trial.broken += usize::from(killed);
    if !wrote {
        trial.write(3);
    }
    let count = trace::read(&steps).iter().filter(|op| matches!(op, Op::Step(_))).count();
    trial.daemon.start();
    trial.daemon.ready().await;
    trial.judged().await;
    (count, killed)
}

/// The judgement itself: what it lets pass, and what it does not.
#[test]
fn best_effort_is_a_hole_or_a_repeat_for_each_break_and_no_more() {
    let line = |seq: u64| format!("{{\"v\":1,\"seq\":{seq},\"epoch\":\"e\"}}");
    let log: Vec<String> = (1..=9).map(line).collect();
    let log: Vec<&str> = log.iter().map(String::as_str).collect();
    let right = |broken: usize, seqs: &[u64]| {
        let came: Vec<String> = seqs.iter().copied().map(line).collect();
        std::panic::catch_unwind(|| judge(Promise::BestEffort, broken, &log, &came)).is_ok()
    };
    assert!(right(0, &[1, 2, 3, 4, 5, 6, 7, 8, 9]));
    for (broken, seqs) in
        [(1, &[1, 2, 5, 6, 7, 8, 9][..]), (1, &[3, 4, 5, 6, 7, 8, 9]), (2, &[1, 2, 5, 6, 5, 6, 7, 8, 9])]
    {
        assert!(right(broken, seqs) && !right(broken - 1, seqs), "{seqs:?}");
    }
    assert!(!right(9, &[1, 2, 3]), "the end is missing");
    let other = [line(1).replace("\"e\"", "\"f\"")];
    assert!(std::panic::catch_unwind(|| judge(Promise::BestEffort, 9, &log[..1], &other)).is_err());
}
