//! `decklog demo`: the real daemon against a simulated cluster, as a story of half a minute.
//!
//! The cluster is [`crate::sim`] in this process; the daemon is a process of its own, stopped, killed and started as
//! a real one would be. Everything is on loopback and in a temporary directory that goes away at the end, unless it is to
//! be kept.

mod stage;
mod story;

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};

use super::output::{Ink, Out, plural};
use super::{Exit, Failure, Global, Outcome};
use crate::core::model::Seq;
use crate::core::wire::{Entry, authors};
use crate::sim::faults::On;
use crate::sim::world::World;
use crate::sim::{Settings, Sim, objects};
use stage::{Excerpt, Stage, WATCHED};

/// Arguments of `decklog demo`.
#[derive(Args, Debug)]
pub struct DemoArgs {
    /// Keep running until stopped, instead of ending after the last chapter
    #[arg(long)]
    pub forever: bool,
    /// Instead, keep the journal of the cookbook, in ./friday or the directory of --keep
    #[arg(long, conflicts_with = "forever")]
    pub story: bool,
    /// Keep the journal and a config.toml for it in DIR, a new directory
    #[arg(long, value_name = "DIR", conflicts_with = "forever")]
    pub keep: Option<PathBuf>,
}

/// The same life each time.
const SEED: u64 = 7;

/// Both applies of the race are made within so many writes.
const RACE_STEPS: usize = 80;

/// Rounds between two turns of the managers with bad habits.
const HABITS: usize = 6;

/// Runs the story.
///
/// # Errors
/// Where no loopback port or temporary directory can be had, or the story does not go as it should.
pub fn main(args: DemoArgs, global: &Global) -> Outcome {
    if global.state.is_some() {
        return Err(Failure::usage("demo has a state directory of its own; --keep DIR keeps it"));
    }
    let out = Out::new(global);
    if args.story {
        return story::main(out, args.keep.as_deref().unwrap_or(Path::new("friday")));
    }
    super::block_on(async {
        let failed = |error: std::io::Error| Failure::io("cannot watch for signals", &error);
        let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
        // Dropping the story stops the daemon and removes the directory, however it ends.
        tokio::select! {
            played = play(out, args.forever, args.keep) => played?,
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        Ok(Exit::Done)
    })
}

async fn play(out: Out, forever: bool, keep: Option<PathBuf>) -> Result<(), Failure> {
    let settings = Settings { drop_compacted: forever, ..Settings::default() };
    let sim = Sim::start_with(settings).await.map_err(|error| Failure::io("cannot listen on loopback", &error))?;
    let mut world = World::new(&sim, SEED).map_err(|refusal| broken(&refusal.message))?;
    let mut stage = Stage::new(out, &sim, keep)?;

    stage.chapter(
        "Who changed my Deployment?",
        "decklog lists what a small cluster has, and watches it. Somebody rolls out a new image of deploy/web, and it\nis a mistake.",
    )?;
    stage.start_daemon()?;
    stage.read_to(&sim).await?;
    world.roll("shop", "web");
    step(&mut world, 24)?;
    stage.read_to(&sim).await?;
    undo(&sim, &mut stage).await?;

    stage.chapter(
        "A living cluster",
        "`decklog tail -f` prints the whole log as it grows. Pods come and go, and a Secret rotates; its value is nowhere:",
    )?;
    live(&mut world, &mut stage, 24).await?;
    rotate(&sim)?;
    stage.print_to(&sim).await?;
    outages(&sim, &mut world, &mut stage).await?;
    writers(&sim, &mut world, &mut stage).await?;

    if forever {
        stage.chapter("And so on", "Until you press Ctrl-C:")?;
        loop {
            live(&mut world, &mut stage, 100).await?;
            // What is printed need not be kept for ever.
            sim.clear_requests();
            sim.compact(sim.revision().saturating_sub(1000));
        }
    }
    stage.chapter(
        "The proof",
        "The daemon is stopped, and its journal checked against itself and against the file that its sink wrote:",
    )?;
    stage.delivered().await?;
    stage.stop_daemon().await?;
    stage.prove().await?;
    stage.end()
}

/// What happens while no daemon runs, and when the API server has forgotten it.
async fn outages(sim: &Sim, world: &mut World, stage: &mut Stage) -> Result<(), Failure> {
    stage.chapter(
        "A restart",
        "The daemon is stopped. The cluster lives on without it, and then it is started again:",
    )?;
    stage.stop_daemon().await?;
    step(world, 8)?;
    let lists = listed(sim);
    stage.start_daemon()?;
    stage.print_to(sim).await?;
    let again = listed(sim) - lists;
    stage.say(&format!(
        "No change was lost or repeated, and decklog did not list anything again: {}.",
        plural(again, "list", "lists")
    ))?;

    stage.chapter(
        "A server that loses its history",
        "The daemon is killed. Meanwhile a ConfigMap changes, another one comes and goes, a Secret is replaced, and the API server\nis restarted. Its memory for watches is empty then, and every watch has lost its place:",
    )?;
    stage.kill_daemon().await?;
    let from = stage.seen();
    restart(sim)?;
    stage.start_daemon()?;
    stage.print_to(sim).await?;
    stage.settle(sim.revision()).await?;
    let recovered = stage.recovered_after(from)?;
    stage.say(&format!(
        "etcd keeps every version until it is compacted, and decklog has asked for them: {} recovered, and no GAP.",
        plural(recovered, "change is", "changes are")
    ))?;
    stage.blank()?;
    stage.say(
        "The daemon is killed again. A ConfigMap is deleted and made again under the same name, etcd is compacted, as it is\nevery few minutes, and the ConfigMap is changed once more:",
    )?;
    stage.kill_daemon().await?;
    let from = stage.seen();
    compact(sim)?;
    stage.start_daemon()?;
    // Behind the GAP comes what it brought, and what is younger.
    stage.print_life(from, "ConfigMap", "feature-flags", 3).await?;
    stage.settle(sim.revision()).await?;
    stage.say(
        "The log does not pretend: GAP says where changes may be missing, the difference follows, marked inferred, and what\ncame after that is recovered.",
    )?;
    Ok(())
}

/// Two managers that write the same, and writes that change nothing.
async fn writers(sim: &Sim, world: &mut World, stage: &mut Stage) -> Result<(), Failure> {
    stage.chapter(
        "Two who apply the same name at once",
        "`kubectl apply` asks whether the object is there, and then creates it. Two of them can race:",
    )?;
    let name = world.race();
    let from = stage.seen();
    for _ in 0..RACE_STEPS {
        live(world, stage, 1).await?;
        if sim.history_of("configmaps").iter().filter(|row| *row.name == *name).count() >= 2 {
            break;
        }
    }
    stage.print_to(sim).await?;
    let story = stage.entries_of(from, "ConfigMap", &name)?;
    stage.say(&format!("{}.", who_wrote(&name, &story)))?;

    stage.chapter(
        "No-op writes, and a fight",
        "An operator writes the time into a ConfigMap whenever it looks at it, and two managers do not agree on\nthe replicas of a Deployment:",
    )?;
    for _ in 0..HABITS {
        stage.breathe().await;
        world.indulge().map_err(|refusal| broken(&refusal.message))?;
        stage.print_new().await?;
    }
    stage.print_to(sim).await?;
    stage.show(
        "Every write costs the API server, etcd and each watcher. `churn` finds both:",
        "decklog churn --top 2",
        Excerpt::Parts(&["writes", "FOUGHT OVER", "AGAIN AND AGAIN", "MANAGER"]),
    )?;
    Ok(())
}

/// The cluster lives, and the log is printed as it comes.
async fn live(world: &mut World, stage: &mut Stage, steps: usize) -> Result<(), Failure> {
    for _ in 0..steps {
        stage.breathe().await;
        step(world, 1)?;
        stage.print_new().await?;
    }
    Ok(())
}

fn step(world: &mut World, steps: usize) -> Result<(), Failure> {
    for _ in 0..steps {
        world.step().map_err(|refusal| broken(&refusal.message))?;
    }
    Ok(())
}

fn rotate(sim: &Sim) -> Result<(), Failure> {
    let password = objects::base64("n0body-w1ll-see-this");
    let patch = json!({ "data": { "password": password } });
    sim.patch("secrets", "pay", "db-credentials", &patch).map(drop).map_err(|refusal| broken(&refusal.message))
}

/// Makes changes that nobody watches, and restarts the API server: no watch can begin before the restart.
fn restart(sim: &Sim) -> Result<(), Failure> {
    let work = || {
        let fewer = json!({ "data": { "value": "checkout-v2" } });
        sim.patch("configmaps", "shop", "feature-flags", &fewer)?;
        sim.create("secrets", objects::secret("pay", "db-user", &[("user", "ledger"), ("password", "s3cr3t-1")]))?;
        sim.create("configmaps", objects::config_map("shop", "maintenance", "checkout is closed"))?;
        sim.delete("secrets", "pay", "db-credentials")?;
        sim.delete("configmaps", "shop", "maintenance")
    };
    work().map_err(|refusal| broken(&refusal.message))?;
    for resource in WATCHED {
        sim.expire_watch_history(resource, sim.revision());
    }
    Ok(())
}

/// Makes changes that nobody watches, compacts them, and makes more.
fn compact(sim: &Sim) -> Result<(), Failure> {
    let work = || {
        sim.delete("configmaps", "shop", "feature-flags")?;
        sim.create("configmaps", objects::config_map("shop", "feature-flags", "checkout-v3"))?;
        // Nothing watches Leases here, so nothing says what these versions are.
        for n in 1..=3 {
            let renewed = json!({ "spec": { "leaseTransitions": n } });
            sim.patch("leases.coordination.k8s.io", "kube-system", "kube-scheduler", &renewed)?;
        }
        sim.compact_all();
        let more = json!({ "data": { "value": "checkout-v3,fast-cart" } });
        sim.patch("configmaps", "shop", "feature-flags", &more).map(drop)
    };
    work().map_err(|refusal| broken(&refusal.message))
}

/// Reads the life of a Deployment, and undoes its rollout.
async fn undo(sim: &Sim, stage: &mut Stage) -> Result<(), Failure> {
    stage.show(
        "`log` prints what became of it, newest first, with the program that did it; `-p` shows each change:",
        "decklog log deploy/web",
        Excerpt::Whole,
    )?;
    stage.show(
        "`blame` prints each field with the program that set it last, when, and in which entry:",
        "decklog blame deploy/web",
        Excerpt::Lines(&["replicas: ", "image: ", "updatedReplicas: "]),
    )?;
    let life = stage.entries_of(Seq(0), "Deployment", "web")?;
    let first = life.first().and_then(|line| Entry::parse(line).ok());
    let before = first.ok_or_else(|| broken("the log has no entry of the Deployment"))?.seq;
    let get = format!("decklog get deploy/web --at {before} --clean");
    stage.show(
        "`get --at` has the object as it was before, and kubectl brings it back:",
        &format!("{get} | kubectl apply -f -"),
        Excerpt::Lines(&["kind: ", "apiVersion: apps", "image: "]),
    )?;
    let old = stage.run(&format!("{get} -o json"))?;
    let old: Value = serde_json::from_slice(&old).map_err(|error| broken(&format!("get printed no JSON: {error}")))?;
    let applied = sim.update("deployments.apps", "shop", "web", |web| {
        web["spec"] = old["spec"].clone();
        objects::touch(web, "kubectl-client-side-apply", "Update", "apps/v1", "", &json!({ "spec": old["spec"] }));
    });
    applied.map_err(|refusal| broken(&refusal.message))?;
    stage.say("The log records that, too:")?;
    stage.print_to(sim).await?;
    stage.blank()
}

/// Returns the number of lists, without the requests that only test whether a version is known.
fn listed(sim: &Sim) -> u64 {
    let lists = On::list("*");
    let asked = sim.requests().into_iter().filter(|seen| lists.matches(seen));
    // A list of one object asks for a version.
    asked.filter(|seen| !seen.query.contains("limit=1&") && !seen.query.ends_with("limit=1")).count() as u64
}

/// Returns the creator of an object and the managers that changed it, by its entries.
fn who_wrote(name: &str, lines: &[Vec<u8>]) -> String {
    let mut wrote: Vec<(String, &str, u64)> = Vec::new();
    for line in lines {
        let Ok(entry) = Entry::parse(line) else { continue };
        let authors = authors(&entry);
        let manager = authors.first().map_or("somebody", |author| author.manager.as_str());
        let verb = match entry.op.as_str() {
            "ADDED" => "created it",
            "MODIFIED" => "wrote over it",
            _ => "deleted it",
        };
        wrote.push((manager.to_owned(), verb, entry.seq));
    }
    let same = wrote.len() > 1 && wrote.windows(2).all(|pair| pair[0].0 == pair[1].0);
    let told: Vec<String> = wrote
        .iter()
        .enumerate()
        .map(|(at, (manager, verb, seq))| match (same, at) {
            (true, 0) => format!("one {manager} {verb} (seq {seq})"),
            (true, _) => format!("another {manager} {verb} (seq {seq})"),
            (false, _) => format!("{manager} {verb} (seq {seq})"),
        })
        .collect();
    format!("{name} has one uid, and the log shows who wrote what: {}", told.join(", then "))
}

fn broken(why: &str) -> Failure {
    Failure::internal(format!("the story does not go on: {why}"))
}

impl Stage {
    fn chapter(&mut self, title: &str, text: &str) -> Result<(), Failure> {
        self.blank()?;
        self.inked(Ink::Strong, title)?;
        self.say(text)
    }
}
