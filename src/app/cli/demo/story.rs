//! `decklog demo --story`: the journal of the cookbook, a Friday morning in a shop, the same to the byte on every machine.
//!
//! The script is `friday.jsonl`: each line is a [`Scene`]. A real journal records it, by the clock of the script.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::{broken, stage};
use crate::app::cli::output::{Ink, Out, plural};
use crate::app::cli::{Exit, Failure, Outcome};
use crate::core::model::{Cluster, Observed, Resource, ResourceVersion, Seq, SourceSpec, Verb, Why};
use crate::core::runtime::{self, Simulation};
use crate::journal::{Journal, JournalError, Reader, SourceJournal, SourceState, WatchChange};

const FRIDAY: &str = include_str!("friday.jsonl");

/// Day of the story.
const DAY: &str = "2026-11-20";

/// Name of its cluster.
const CLUSTER: &str = "shop-eu1";

/// Seed of the names that the journal makes.
const SEED: u64 = 1;

/// Newest resource version when the story begins.
const FIRST_VERSION: u64 = 100;

/// JSON pointer of the values that are redacted.
const REDACTED: &str = "/data/password";

/// Moment of one resource. It has one of `watch`, `list`, `relist`, `put` and `delete`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Scene {
    /// Time of day, in UTC.
    at: String,
    /// Plural name of the resource.
    resource: String,
    /// Description of the resource, which decklog watches from here on.
    watch: Option<Resource>,
    /// Objects of the first list.
    list: Option<Vec<Value>>,
    /// Objects of a list after the position of the watch expired.
    relist: Option<Vec<Value>>,
    /// `NAMESPACE/NAME` of an object that is written.
    put: Option<String>,
    /// JSON merge patch of what it was.
    #[serde(default)]
    merge: Value,
    /// Number of the redacted value: another number is another value.
    mark: Option<u8>,
    /// `NAMESPACE/NAME` of an object that is deleted.
    delete: Option<String>,
}

/// Resource that is watched.
struct Source {
    journal: SourceJournal,
    /// Objects that it has, by `NAMESPACE/NAME`.
    objects: BTreeMap<String, Value>,
}

/// Player of the script.
struct Player {
    clock: Simulation,
    journal: Journal,
    sources: BTreeMap<String, Source>,
    version: u64,
}

/// Keeps the journal of the story in a new directory, with a config.toml for it and the copy that a file sink would have.
///
/// # Errors
/// Where the directory exists already or cannot be written.
pub(super) fn main(mut out: Out, keep: &Path) -> Outcome {
    let dir = stage::make_dir(keep)?;
    let state = dir.join("state");
    let failed = |error: std::io::Error| Failure::io(format!("cannot write to {}", dir.display()), &error);
    fs::create_dir(&state).map_err(failed)?;
    // All of it happens on this thread, which has the clock of the script.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::io("cannot start the journal", &error))?;
    runtime.block_on(play(&state))?;
    let config = format!(
        "[cluster]\nname = {CLUSTER:?}\n\n[state]\npath = {:?}\n\n[[watch]]\nresources = {:?}\n",
        state.display().to_string(),
        Reader::open(&state)?.resources()?.iter().map(|(_, resource)| resource.full_name()).collect::<Vec<_>>(),
    );
    fs::write(dir.join("config.toml"), config).map_err(failed)?;
    let entries = Reader::open(&state)?.entries_after(Seq(0), 10_000, 64 << 20)?;
    let copy: Vec<u8> = entries.iter().flat_map(|entry| entry.line.iter().chain(b"\n")).copied().collect();
    fs::write(dir.join("events.jsonl"), copy).map_err(failed)?;

    let count = plural(entries.len() as u64, "entry", "entries");
    out.line(&format!("The journal of the cookbook, a Friday morning in a shop, is in {}: {count}.", keep.display()))?;
    out.line("The commands of the cookbook run there as they are written:")?;
    for line in [&format!("cd {}", keep.display()), "decklog log deploy/web", "decklog blame deploy/web image"] {
        out.inked(Ink::Strong, &format!("$ {line}"))?;
    }
    out.flush()?;
    Ok(Exit::Done)
}

/// Records the script to a journal in this directory.
async fn play(state: &Path) -> Result<(), Failure> {
    let clock = runtime::simulate(SEED, moment("10:00:00")?);
    clock.stop();
    let (journal, writing) = Journal::inline(state, |_| Ok(()))?;
    let mut player = Player { clock, journal, sources: BTreeMap::new(), version: FIRST_VERSION };
    let told = async move {
        let cluster = Cluster { name: CLUSTER.to_owned(), uid: "c1".to_owned() };
        player.journal.set_cluster(cluster).await?;
        for line in FRIDAY.lines() {
            let scene = serde_json::from_str(line).map_err(|error| broken(&error.to_string()))?;
            player.play(scene).await?;
        }
        for source in player.sources.values() {
            // Every watch was open until the end.
            source.journal.bookmark(ResourceVersion::new(player.version.to_string())).await?;
            source.journal.report(SourceState::Watching).await?;
        }
        Ok(player.journal.flush().await?)
        // The writer ends when every handle is dropped.
    };
    let (told, written) = tokio::join!(told, writing);
    written.map_err(Failure::from).and(told)
}

/// Moment of the day of the story.
fn moment(time: &str) -> Result<Timestamp, Failure> {
    format!("{DAY}T{time}Z").parse().map_err(|error: jiff::Error| broken(&error.to_string()))
}

/// `NAMESPACE/NAME` of an object.
fn key(object: &Value) -> String {
    let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default();
    format!("{}/{}", text("namespace"), text("name"))
}

impl Player {
    async fn play(&mut self, scene: Scene) -> Result<(), Failure> {
        self.clock.jump(moment(&scene.at)?.duration_since(runtime::now()));
        if let Some(resource) = scene.watch {
            let journal = self.watch(resource).await?;
            self.sources.insert(scene.resource, Source { journal, objects: BTreeMap::new() });
            return Ok(());
        }
        let Some(mut source) = self.sources.remove(&scene.resource) else {
            return Err(broken(&format!("nobody watches {}", scene.resource)));
        };
        let why = scene.relist.as_ref().map(|_| Why::Expired);
        if let Some(objects) = scene.list.or(scene.relist) {
            self.list(&mut source, objects, why).await?;
        } else if let Some(name) = scene.put {
            let object = source.objects.entry(name).or_default();
            json_patch::merge(object, &scene.merge);
            let object = self.observe(object, scene.mark);
            Self::append(&source, Verb::Upsert, object).await?;
        } else if let Some(object) = scene.delete.and_then(|name| source.objects.remove(&name)) {
            let object = self.observe(&object, None);
            Self::append(&source, Verb::Delete, object).await?;
        }
        self.journal.flush().await?;
        self.sources.insert(scene.resource, source);
        Ok(())
    }

    async fn watch(&self, resource: Resource) -> Result<SourceJournal, JournalError> {
        Ok(self.journal.source(&SourceSpec::of(resource)).await?.0)
    }

    async fn list(&mut self, source: &mut Source, objects: Vec<Value>, why: Option<Why>) -> Result<(), JournalError> {
        let page = objects.iter().map(|object| self.observe(object, None)).collect();
        self.version += 1;
        source.journal.list_begin().await?;
        source.journal.list_page(page).await?;
        source.journal.list_done(ResourceVersion::new(self.version.to_string()), why).await?;
        source.objects = objects.into_iter().map(|object| (key(&object), object)).collect();
        Ok(())
    }

    async fn append(source: &Source, verb: Verb, object: Observed) -> Result<(), JournalError> {
        source.journal.catch_up().await?;
        source.journal.append(vec![WatchChange { verb, object }]).await
    }

    /// Returns an object as a watch brings it, with the next resource version.
    fn observe(&mut self, object: &Value, mark: Option<u8>) -> Observed {
        self.version += 1;
        Observed::at(self.version, object, mark.map_or(&[][..], |_| &[REDACTED]), [mark.unwrap_or_default(); 16])
    }
}
