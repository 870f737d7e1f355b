//! The same trials for every sink that keeps its position in its output: the journal is put back from an older copy, once
//! and again, while the output can be reached and while it cannot; it is lost under a clock that is behind; two daemons
//! with copies of one journal deliver to one output. Then everything that a consumer reads is judged: each place in each
//! epoch is given to one entry, epochs only grow, and everything that the journal tells is there.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use decklog::sim::{Sim, objects};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::proxy::Proxy;
use crate::support::{Daemon, cluster, journal, until};
use crate::trial::{Far, Promise};

const WATCH: &str = "resources = [\"configmaps\"]";

/// How far the clock is behind in the trial of that, in seconds: less than what S3 refuses.
const BEHIND: i64 = -10 * 60;

/// One cluster and one output. The daemon has no sink but that one, which has to find out by itself.
struct Story<'f, F> {
    far: &'f mut F,
    proxy: Proxy,
    sim: Sim,
    daemon: Daemon,
    run: String,
    written: usize,
}

/// What a daemon says of its sink.
struct Doing {
    state: String,
    cursor: u64,
    head: u64,
    all: String,
}

impl<'f, F: Far> Story<'f, F> {
    async fn new(far: &'f mut F, run: &str) -> Self {
        let proxy = far.proxy().await;
        let sim = cluster().await;
        let daemon = Daemon::new(&sim, &["configmaps"]);
        let story = Self { far, proxy, sim, daemon, run: run.to_owned(), written: 0 };
        story.configure(&story.daemon);
        story.far.prepare(&story.daemon, run).await;
        story
    }

    fn configure(&self, daemon: &Daemon) {
        let sink = self.far.sink(self.proxy.port(), &self.run, &daemon.path(""));
        daemon.configure(&format!(
            "[cluster]\nname = \"test\"\nkubeconfig = {:?}\naudit_every = \"off\"\n\n[state]\npath = {:?}\n\n[log]\nlevel = \"debug\"\n\n\
             [[watch]]\n{WATCH}\n\n[[sink]]\nname = \"far\"\n{sink}\n",
            daemon.path("kubeconfig"),
            daemon.state(),
        ));
    }

    /// Another machine with its own directory and the same configuration.
    fn another(&self) -> Daemon {
        let daemon = Daemon::new(&self.sim, &["configmaps"]);
        self.configure(&daemon);
        daemon
    }

    async fn start(&mut self) {
        self.daemon.start();
        self.daemon.ready().await;
    }

    /// Changes objects so many times, the last of them one that is there afterwards.
    fn write(&mut self, count: usize) {
        let count = self.written + count;
        while self.written < count {
            let (number, name) = (self.written, format!("m{}", self.written % 7));
            self.written += 1;
            let sim = &self.sim;
            if sim.get("configmaps", "default", &name).is_err() {
                sim.create("configmaps", objects::config_map("default", &name, &number.to_string())).unwrap();
            } else if number % 5 == 3 && self.written < count {
                sim.delete("configmaps", "default", &name).unwrap();
            } else {
                sim.patch("configmaps", "default", &name, &json!({"data": {"value": number.to_string()}})).unwrap();
            }
        }
    }

    /// Waits until the journal tells the newest change.
    async fn journaled(&mut self) {
        journaled(&self.sim, &mut self.daemon).await;
    }

    /// Waits until the output has everything that the journal tells.
    async fn caught_up(&mut self) {
        caught_up(&self.sim, &mut self.daemon).await;
    }

    /// The server cannot be reached, or can again.
    fn away(&self, away: bool) {
        self.far.away(&self.proxy, &self.run, away);
    }

    /// A copy of the state directory of a daemon that does not run, or stands still.
    fn copy(&self, name: &str) -> PathBuf {
        let to = self.daemon.path(name);
        fs::create_dir(&to).unwrap();
        overwrite(&self.daemon.state(), &to);
        to
    }

    /// Puts a copy of the state directory back: into the files that are there, or as files of its own.
    fn put_back(&self, copy: &Path, in_place: bool) {
        let state = self.daemon.state();
        if !in_place {
            fs::remove_dir_all(&state).unwrap();
            fs::create_dir(&state).unwrap();
        }
        overwrite(copy, &state);
    }

    /// Everything that a consumer reads by now is as it has to be, and has all that these daemons tell.
    async fn right(&self, daemons: &[&Daemon]) {
        let mut logs = Vec::new();
        for daemon in daemons {
            logs.push(lines(daemon).await.unwrap());
        }
        let came = until("a consumer to read", async || self.far.consumed(&self.run).await).await;
        for log in &logs {
            judge(self.far.promise(), log, &came);
        }
        self.far.agrees(&self.sim, &self.run).await;
    }

    /// Everything is delivered and right.
    async fn judged(&mut self) {
        self.caught_up().await;
        self.right(&[&self.daemon]).await;
    }
}

/// Gives the files of one directory the content of those of another. Files that are there stay the same files.
fn overwrite(from: &Path, to: &Path) {
    let names = |dir: &Path| fs::read_dir(dir).unwrap().map(|entry| entry.unwrap()).collect::<Vec<_>>();
    for old in names(to) {
        if !from.join(old.file_name()).exists() {
            fs::remove_file(old.path()).unwrap();
        }
    }
    for file in names(from).into_iter().filter(|entry| entry.file_type().unwrap().is_file()) {
        fs::write(to.join(file.file_name()), fs::read(file.path()).unwrap()).unwrap();
    }
}

/// Everything that a journal tells.
async fn lines(daemon: &Daemon) -> Result<Vec<String>, String> {
    let state = daemon.state();
    tokio::task::spawn_blocking(move || journal::lines(&state)).await.unwrap()
}

async fn journaled(sim: &Sim, daemon: &mut Daemon) {
    let newest = format!("\"resourceVersion\":\"{}\"", sim.revision());
    until("the journal to tell the newest change", async || {
        daemon.must_run();
        let told = lines(daemon).await?;
        if told.iter().any(|line| line.contains(&newest)) { Ok(()) } else { Err(daemon.last_words()) }
    })
    .await;
}

async fn doing(daemon: &Daemon) -> Result<Doing, String> {
    let status = daemon.try_status().await?;
    let sink = status["sinks"].as_array().into_iter().flatten().find(|sink| sink["name"] == "far").cloned();
    let sink = sink.ok_or("it is not there yet")?;
    Ok(Doing {
        state: sink["state"].as_str().unwrap_or_default().to_owned(),
        cursor: sink["cursor"].as_u64().unwrap_or_default(),
        head: status["journal"]["head"]["seq"].as_u64().unwrap_or_default(),
        all: sink.to_string(),
    })
}

async fn caught_up(sim: &Sim, daemon: &mut Daemon) {
    journaled(sim, daemon).await;
    until("the output to have everything", async || {
        daemon.must_run();
        let doing = doing(daemon).await?;
        if doing.cursor >= doing.head && doing.state == "running" { Ok(()) } else { Err(doing.all) }
    })
    .await;
}

/// Waits until a daemon has delivered everything, or has halted and says why. Tells whether it has delivered.
async fn settled(sim: &Sim, daemon: &mut Daemon) -> bool {
    journaled(sim, daemon).await;
    until("it to be done or to have halted", async || {
        daemon.must_run();
        let doing = doing(daemon).await?;
        match doing.state.as_str() {
            "halted" => Ok(false),
            "running" if doing.cursor >= doing.head => Ok(true),
            _ => Err(doing.all),
        }
    })
    .await
}

fn epoch_of(line: &str) -> String {
    let entry: Value = serde_json::from_str(line).unwrap();
    entry["epoch"].as_str().unwrap().to_owned()
}

/// An entry without the name of its epoch, which another may stand for, also at the beginning of the id of a GAP.
fn nameless(line: &str) -> String {
    line.replacen(&epoch_of(line), "", 2)
}

/// What came is one entry for each place, in epochs that only grow, with everything that a journal tells in its order.
#[track_caller]
pub(crate) fn judge(promise: Promise, log: &[String], came: &[String]) {
    let mut places: BTreeMap<(String, u64), &String> = BTreeMap::new();
    let mut epoch = String::new();
    for line in came {
        let entry: Value = serde_json::from_str(line).unwrap();
        let place = (epoch_of(line), entry["seq"].as_u64().unwrap());
        assert!(place.0 >= epoch, "after {epoch} came {line}");
        epoch.clone_from(&place.0);
        if let Some(other) = places.insert(place, line) {
            assert_eq!(other, line, "one place has two entries");
            assert_ne!(promise, Promise::ExactlyOnce, "it came twice: {line}");
        }
    }
    let came: Vec<String> = came.iter().map(|line| nameless(line)).collect();
    let mut rest = came.iter();
    for line in log {
        let wanted = nameless(line);
        if !rest.any(|line| *line == wanted) {
            let anywhere = came.contains(&wanted);
            panic!("of the journal did not come{}: {line}", if anywhere { " in its order" } else { "" });
        }
    }
}

/// What counts of what came is the journal: an epoch takes back what earlier ones said from its first entry on.
#[track_caller]
fn counts(log: &[String], came: &[String]) {
    let mut places: BTreeMap<(String, u64), String> = BTreeMap::new();
    for line in came {
        let entry: Value = serde_json::from_str(line).unwrap();
        let (epoch, seq) = (epoch_of(line), entry["seq"].as_u64().unwrap());
        if places.last_key_value().is_none_or(|((last, _), _)| *last < epoch) {
            places.retain(|(_, earlier), _| *earlier < seq);
        }
        places.insert((epoch, seq), nameless(line));
    }
    let counting: Vec<&String> = places.values().collect();
    let log: Vec<String> = log.iter().map(|line| nameless(line)).collect();
    assert_eq!(counting, log.iter().collect::<Vec<_>>(), "what counts of the output is not the journal");
}

/// The library that gives a process a clock of its own.
fn clock() -> &'static Path {
    static CLOCK: OnceLock<PathBuf> = OnceLock::new();
    CLOCK.get_or_init(|| {
        let made = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("clock-{}.so", std::process::id()));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/daemon/clock.c");
        let ran = Command::new("cc").args(["-O1", "-shared", "-fPIC", "-o"]).arg(&made).arg(source).output();
        let ran = ran.expect("a C compiler");
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        made
    })
}

/// The journal is put back from a copy, and once more from the same one, and then from a later one. The sink has more than
/// the copy's cursor says: it could not be reached for a while before the copy was made.
pub(crate) async fn put_back_twice<F: Far>(far: &mut F) {
    let mut story = Story::new(far, "twice").await;
    story.start().await;
    story.write(20);
    story.caught_up().await;
    story.away(true);
    story.write(8);
    story.journaled().await;
    story.daemon.kill().await;
    let copy = story.copy("old");
    story.away(false);
    story.start().await;
    story.write(15);
    story.judged().await;
    story.daemon.stop().await;
    let later = story.copy("later");
    for (copy, in_place) in [(&copy, true), (&copy, false), (&later, true)] {
        story.put_back(copy, in_place);
        story.start().await;
        story.write(15);
        story.judged().await;
        story.daemon.stop().await;
        if story.far.says_where_epochs_begin() {
            counts(&lines(&story.daemon).await.unwrap(), &story.far.consumed(&story.run).await.unwrap());
        }
    }
    let epochs: Vec<String> = story.far.consumed(&story.run).await.unwrap().iter().map(|line| epoch_of(line)).collect();
    assert!(epochs.first() < epochs.last(), "nobody found out");
}

/// The journal is put back while the output cannot be reached. It goes on, past what the output holds or not so far;
/// then the output is back, under the daemon that runs or at the next start.
pub(crate) async fn put_back_while_away<F: Far>(far: &mut F) {
    for (run, more, restarted) in [("awayfar", 30, true), ("awayshort", 4, true), ("awaylate", 30, false)] {
        let mut story = Story::new(far, run).await;
        story.start().await;
        story.write(15);
        story.caught_up().await;
        story.daemon.stop().await;
        let copy = story.copy("old");
        story.start().await;
        story.write(12);
        story.caught_up().await;
        story.daemon.stop().await;
        story.put_back(&copy, true);
        story.away(true);
        // The API server has forgotten what lies between: the journal tells the difference, which is less.
        story.sim.compact_all();
        story.start().await;
        story.write(more);
        story.journaled().await;
        if restarted {
            story.daemon.stop().await;
            story.away(false);
            story.start().await;
        } else {
            story.daemon.waits_for_state("sinks", "far", "retrying").await;
            story.away(false);
        }
        story.write(3);
        story.judged().await;
        // What comes after all of that is told as ever.
        story.daemon.stop().await;
        story.start().await;
        story.write(3);
        story.judged().await;
        story.daemon.stop().await;
    }
}

/// The journal is lost, and the machine's clock is behind.
pub(crate) async fn lost_under_a_clock_that_is_behind<F: Far>(far: &mut F) {
    let mut story = Story::new(far, "clock").await;
    story.start().await;
    story.write(20);
    story.judged().await;
    story.daemon.stop().await;
    let before = epoch_of(story.far.consumed(&story.run).await.unwrap().last().unwrap());
    fs::remove_dir_all(story.daemon.state()).unwrap();
    let offset = story.daemon.path("clock");
    fs::write(&offset, BEHIND.to_ne_bytes()).unwrap();
    // What is gone by now, nothing tells the end of.
    story.sim.delete("configmaps", "default", "m1").unwrap();
    for _ in 0..2 {
        story.daemon.start_with(|command| command.env("LD_PRELOAD", clock()).env("DECKLOG_TEST_CLOCK", &offset));
        story.daemon.ready().await;
        story.write(10);
        story.judged().await;
        story.daemon.stop().await;
    }
    let after = epoch_of(story.far.consumed(&story.run).await.unwrap().last().unwrap());
    assert!(after > before, "{after} after {before}");
}

/// Two daemons with copies of one journal deliver to one output, both running.
pub(crate) async fn two_copies_run<F: Far>(far: &mut F) {
    let mut story = Story::new(far, "copies").await;
    story.start().await;
    story.write(15);
    story.caught_up().await;
    story.daemon.stop().await;
    let copy = story.copy("old");
    let mut second = story.another();
    fs::create_dir(second.state()).unwrap();
    overwrite(&copy, &second.state());
    story.daemon.start();
    second.start();
    story.daemon.ready().await;
    second.ready().await;
    for _ in 0..6 {
        story.write(5);
        story.journaled().await;
    }
    one_is_left(&mut story, second).await;
}

/// A daemon stands still while another one takes over with a copy of its journal, and then goes on.
pub(crate) async fn stood_still<F: Far>(far: &mut F) {
    let mut story = Story::new(far, "still").await;
    story.start().await;
    story.write(15);
    story.caught_up().await;
    story.write(10);
    story.daemon.signal(Signal::STOP);
    let copy = story.copy("old");
    let mut second = story.another();
    fs::create_dir(second.state()).unwrap();
    overwrite(&copy, &second.state());
    second.start();
    second.ready().await;
    story.write(10);
    caught_up(&story.sim, &mut second).await;
    story.daemon.signal(Signal::CONT);
    story.write(10);
    one_is_left(&mut story, second).await;
}

/// The rounds of writing in which two daemons meet before one is ended.
const ROUNDS: usize = 3;

/// Each of two daemons has delivered everything or says why not. Whoever is left alone then delivers.
///
/// Both may run on: two whose journals hold the same entries find each other's deliveries to be their own, and the consumer reads
/// each entry once. The judge holds both journals against the consumer then, in each round.
async fn one_is_left<F: Far>(story: &mut Story<'_, F>, mut second: Daemon) {
    let mut round = 0;
    let (first_runs, second_runs) = loop {
        let runs = (settled(&story.sim, &mut story.daemon).await, settled(&story.sim, &mut second).await);
        round += 1;
        if runs != (true, true) || round == ROUNDS {
            break runs;
        }
        story.right(&[&story.daemon, &second]).await;
        story.write(5);
    };
    let mut running = Vec::new();
    if first_runs {
        running.push(&story.daemon);
    }
    if second_runs {
        running.push(&second);
    }
    story.right(&running).await;
    // The operator ends the one that halted, and starts the other again where both have.
    if second_runs {
        std::mem::swap(&mut story.daemon, &mut second);
    }
    second.stop().await;
    story.daemon.stop().await;
    story.start().await;
    story.write(5);
    story.judged().await;
    story.daemon.stop().await;
}

/// The judgement itself: what it lets pass, and what it does not.
#[test]
fn a_timeline_is_judged() {
    let line = |epoch: &str, seq: u64, what: &str| {
        format!("{{\"v\":1,\"seq\":{seq},\"epoch\":\"{epoch}\",\"id\":\"{what}\",\"time\":\"t\"}}")
    };
    let right =
        |log: &[String], came: &[String]| std::panic::catch_unwind(|| judge(Promise::ExactlyOnce, log, came)).is_ok();
    let [a, b, c] = [line("a1", 1, "x"), line("a1", 2, "y"), line("a1", 2, "z")];
    assert!(right(&[a.clone(), b.clone()], &[a.clone(), b.clone()]));
    // Told again under a later name.
    assert!(right(&[a.clone(), c.clone()], &[a.clone(), b.clone(), line("b2", 2, "z")]));
    assert!(!right(&[a.clone(), c.clone()], &[a.clone(), b.clone()]), "lost");
    assert!(!right(&[a.clone(), c.clone()], &[a.clone(), b.clone(), c.clone()]), "swapped");
    assert!(!right(std::slice::from_ref(&a), &[a.clone(), a.clone()]), "twice");
    assert!(!right(std::slice::from_ref(&a), &[line("b2", 1, "q"), a.clone()]), "an earlier epoch after a later one");
    assert!(!right(&[a.clone(), b.clone()], &[b, a]), "out of order");
}
