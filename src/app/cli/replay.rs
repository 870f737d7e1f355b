//! `decklog replay`: entries once more to a sink, with the same ids and the same bytes.
//!
//! It reads the journal and speaks to the sink itself, beside a running daemon or without one, and moves no cursor. For
//! a file sink the entries go to a new file beside its own, which stays what delivery alone made of it: each entry
//! once, in order, and its last line the position.

use clap::Args;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::output::plural;
use super::progress::Progress;
use super::{Exit, Failure, Global, Outcome, complain, configured, object};
use crate::core::model::{Cluster, EntryType, Seq};
use crate::core::wire::EntryError;
use crate::delivery::{self, Pace, Settings, line_for};
use crate::journal::{Journal, JournalError, Reader, Settled};
use crate::sink::notify::{Notify, users};
use crate::sink::registry::SinkKind;
use crate::sink::{Item, Sink, SinkError, file};

/// Arguments of `decklog replay`.
#[derive(Args, Debug)]
pub struct ReplayArgs {
    /// The sink to deliver to, by its name in the configuration
    #[arg(long, value_name = "NAME")]
    pub sink: String,
    /// The first entry to deliver
    #[arg(long, value_name = "SEQ")]
    pub from: u64,
    /// The last entry to deliver [default: the newest]
    #[arg(long, value_name = "SEQ")]
    pub to: Option<u64>,
}

/// Delivers entries again.
///
/// # Errors
/// Where there is no such sink or entry, or the sink cannot be used.
pub fn main(args: ReplayArgs, global: &Global) -> Outcome {
    let loaded = global.load()?;
    let sink = configured(&loaded, &args.sink)?;
    let mut reader = Reader::open(&loaded.config.state.path)?;
    let (oldest, head) = (reader.oldest()?, reader.head()?);
    let to = Seq(args.to.unwrap_or(head.0));
    let from = Seq(args.from);
    // Of what is truncated, the dead letters of this sink are still here.
    let has_letters = from < oldest && !reader.truncated_dead_letters(&sink.name, from, to)?.is_empty();
    if from > to || (from < oldest && !has_letters) || to > head || from == Seq(0) {
        return Err(Failure::no(format!(
            "the journal has the entries {oldest} to {head}; {from} to {to} cannot be delivered"
        )));
    }
    super::block_on(replay(sink, &loaded.config.state.path, &mut reader, from, to))
}

async fn replay(config: &Settings, dir: &Path, reader: &mut Reader, from: Seq, to: Seq) -> Outcome {
    let letters = reader.dead_letters()?.into_iter().filter(|letter| letter.sink == config.name);
    let letters: BTreeMap<Seq, i64> = letters.map(|letter| (letter.seq, letter.time)).collect();
    let mut settled = Settled { sink: config.name.clone(), entries: Vec::new() };
    let outcome = redeliver(config, reader, from, to, |seq| {
        settled.entries.extend(letters.get_key_value(&seq).map(|(seq, time)| (*seq, *time)));
    })
    .await;
    // Also where it did not come to the end: those are delivered.
    settle(dir, &settled)?;
    outcome
}

/// Entries that were dead-lettered and are delivered now are listed no longer.
fn settle(dir: &Path, settled: &Settled) -> Result<(), Failure> {
    let count = settled.entries.len();
    if count == 0 {
        return Ok(());
    }
    let what = plural(count as u64, "entry", "entries");
    match Journal::settle(dir, settled) {
        Ok(true) => complain(&format!(
            "of these, {what} had been dead letters, and {} no longer listed",
            if count == 1 { "is" } else { "are" }
        )),
        // Only one process writes to a journal, and that is the daemon; and only a daemon writes to a shared log.
        Ok(false) | Err(JournalError::Locked { .. }) => {
            settled.leave(dir)?;
            complain(&format!(
                "of these, {what} had been dead letters; the daemon lists {} no longer within seconds",
                if count == 1 { "it" } else { "them" }
            ));
        }
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// Hands the entries over, and reports which ones the sink has taken.
async fn redeliver(config: &Settings, reader: &mut Reader, from: Seq, to: Seq, mut taken: impl FnMut(Seq)) -> Outcome {
    let wrong = |text: String| Failure::new(Exit::Config, format!("the sink {}: {text}", config.name));
    let mut sink = open(config, &reader.cluster()?, from, to)?;
    sink.enter_replay();
    let mut progress = Progress::new(format!("replay to {}", config.name), "entries");
    let (mut after, mut delivered, mut refused) = (Seq(from.0 - 1), 0_u64, 0_u64);
    let mut pace = config.rate.map(Pace::new);
    let (wanted, relabelings) = (config.wanted(), reader.relabelings(&config.name)?);
    let notify = config.kind.settings().notify();
    while after < to {
        let mut limits = sink.limits();
        if let Some(pace) = &pace {
            limits = pace.limits(limits);
            tokio::time::sleep_until(pace.next).await;
        }
        let oldest = reader.oldest()?;
        let is_gone = after.next() < oldest;
        let entries = if is_gone {
            let mut entries = reader.truncated_dead_letters(&config.name, after.next(), to.min(Seq(oldest.0 - 1)))?;
            entries.truncate(limits.entries.max(1));
            entries
        } else {
            reader.entries_after(after, limits.entries.max(1), limits.bytes)?
        };
        let Some(last) = entries.last().map(|entry| entry.seq) else {
            // Nothing of what is truncated is left for this sink.
            if after.next() < oldest && oldest <= to {
                after = Seq(oldest.0 - 1);
                continue;
            }
            break;
        };
        let mut items = Vec::with_capacity(entries.len());
        for entry in entries.into_iter().filter(|entry| entry.seq <= to) {
            if wanted.as_ref().is_none_or(|wanted| wanted.is(&entry.line)) {
                let broken = |error: EntryError| {
                    Failure::new(Exit::Io, format!("entry {} is {error}; run `decklog verify`", entry.seq))
                };
                // Each is an incident by itself: what came before it may be long ago.
                // A GAP of this sink alone is an incident whatever the rules are.
                let is_own = is_gone && entry.op == EntryType::Gap;
                let missed = |notify: &Notify| notify.missed(&entry.line).map(|missed| Some(missed.incident));
                let alone = |notify: &Notify| if is_own { missed(notify) } else { notify.alone(&entry.line) };
                let mut incident = notify.as_ref().map(alone).transpose().map_err(broken)?;
                match &mut incident {
                    Some(None) => continue,
                    Some(Some(incident)) if incident.users.is_empty() => {
                        let sender = object::actor_of(reader, entry.seq)?;
                        incident.users = sender.as_ref().map(users).unwrap_or_default();
                    }
                    Some(Some(_)) | None => {}
                }
                let line = line_for(&relabelings, entry.seq, entry.line)
                    .and_then(|line| config.shape().apply(entry.op, &line));
                items.push(Item::new(entry.seq, entry.op, line.map_err(broken)?).about(incident.flatten()));
            }
        }
        refused += deliver(sink.as_mut(), &items, &mut taken).await.map_err(wrong)?;
        delivered += items.len() as u64;
        if let Some(pace) = &mut pace {
            pace.passed(items.len(), tokio::time::Instant::now());
        }
        after = last;
        progress.at(after.0.min(to.0) - from.0 + 1, to.0 - from.0 + 1);
    }
    drop(progress);
    let what = plural(delivered - refused, "entry was", "entries were");
    complain(&format!("{what} delivered to {} again", config.name));
    Ok(if refused == 0 { Exit::Done } else { Exit::No })
}

/// The sink, or for a file a new one beside it.
fn open(config: &Settings, cluster: &Cluster, from: Seq, to: Seq) -> Result<Box<dyn Sink>, Failure> {
    let failed = |text: String| Failure::new(Exit::Config, format!("the sink {}: {text}", config.name));
    let SinkKind::File(file) = &config.kind else {
        return config.open(cluster).map_err(failed);
    };
    let mut path = file.path.clone().into_os_string();
    path.push(format!(".replay-{from}-{to}"));
    let path = PathBuf::from(path);
    if fs::exists(&path).unwrap_or(true) {
        return Err(failed(format!("{} is there already; remove it first", path.display())));
    }
    complain(&format!("{} is left to the daemon; the entries go to {}", file.path.display(), path.display()));
    let file = file::Settings { path, rotate_size: None, rotate_every: None, ..file.clone() };
    SinkKind::File(file).open().map_err(failed)
}

/// Hands a batch over, again and again where that may help. Gives how many entries were refused for good.
async fn deliver(sink: &mut dyn Sink, mut items: &[Item], taken: &mut impl FnMut(Seq)) -> Result<u64, String> {
    let (mut refused, mut attempt) = (0, 0);
    while !items.is_empty() {
        let Err(failure) = sink.deliver(items).await else {
            items.iter().for_each(|item| taken(item.seq));
            break;
        };
        items[..failure.taken].iter().for_each(|item| taken(item.seq));
        if failure.taken > 0 {
            attempt = 0;
        }
        items = &items[failure.taken..];
        match failure.error {
            SinkError::Retry { text, after } => {
                attempt += 1;
                complain(&format!("{text}; trying again"));
                tokio::time::sleep(delivery::wait(attempt, after)).await;
            }
            SinkError::Refused { text } => {
                complain(&format!("entry {} is refused: {text}", items[0].seq));
                refused += 1;
                items = &items[1..];
            }
            SinkError::Halt { text } | SinkError::Lost { text } => return Err(text),
        }
    }
    Ok(refused)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::delivery::tests::World;
    use crate::journal::SinkStart;

    fn file(path: &Path) -> Settings {
        serde_json::from_value(serde_json::json!({"name": "s", "type": "file", "path": path})).unwrap()
    }

    #[tokio::test]
    async fn a_file_that_lags_is_left_to_delivery() {
        let mut world = World::new().await;
        world.write(8).await;
        let (state, path) = (world.dir.path().join("state"), world.dir.path().join("events.jsonl"));
        fs::write(&path, world.lines(1..=3)).unwrap();
        let mut reader = world.journal.reader().unwrap();
        assert_eq!(replay(&file(&path), &state, &mut reader, Seq(5), Seq(7)).await.unwrap(), Exit::Done);
        assert!(fs::read(&path).unwrap() == world.lines(1..=3));
        let beside = world.dir.path().join("events.jsonl.replay-5-7");
        assert!(fs::read(&beside).unwrap() == world.lines(5..=7));
        // What is there already is not written to.
        assert!(replay(&file(&path), &state, &mut reader, Seq(5), Seq(7)).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_replay_keeps_to_the_rate_of_its_sink() {
        let mut world = World::new().await;
        world.write(9).await;
        let (state, path) = (world.dir.path().join("state"), world.dir.path().join("events.jsonl"));
        let mut reader = world.journal.reader().unwrap();
        let slow = Settings { rate: Some(2), ..file(&path) };
        let began = tokio::time::Instant::now();
        assert_eq!(replay(&slow, &state, &mut reader, Seq(1), Seq(9)).await.unwrap(), Exit::Done);
        // Two at once, and half a second for each of the others but the last batch.
        assert!(began.elapsed() >= std::time::Duration::from_secs(4), "{:?}", began.elapsed());
        assert!(fs::read(world.dir.path().join("events.jsonl.replay-1-9")).unwrap() == world.lines(1..=9));
    }

    #[tokio::test]
    async fn what_was_dead_lettered_and_is_delivered_is_listed_no_longer() {
        let mut world = World::new().await;
        world.write(6).await;
        let (sink, _) = world.journal.sink("s", "file", SinkStart::Start).await.unwrap();
        for seq in [2, 5] {
            sink.dead_letter(Seq(seq), Bytes::new(), "413").await.unwrap();
        }
        let (other, _) = world.journal.sink("other", "file", SinkStart::Start).await.unwrap();
        other.dead_letter(Seq(2), Bytes::new(), "413").await.unwrap();
        let listed = |reader: &Reader| -> Vec<(String, u64)> {
            reader.dead_letters().unwrap().into_iter().map(|letter| (letter.sink, letter.seq.0)).collect()
        };
        let all = [("other".to_owned(), 2), ("s".to_owned(), 2), ("s".to_owned(), 5)];
        let (state, path) = (world.dir.path().join("state"), world.dir.path().join("events.jsonl"));
        let mut reader = Reader::open(&state).unwrap();
        // While a daemon holds the journal nobody else writes to it, and it is asked to.
        assert_eq!(replay(&file(&path), &state, &mut reader, Seq(1), Seq(2)).await.unwrap(), Exit::Done);
        assert_eq!(listed(&reader), all);
        let [(left, settled)] = &Settled::left(&state)[..] else { panic!("one request") };
        world.journal.settle_left().await.unwrap();
        assert_eq!(listed(&reader), [all[0].clone(), all[2].clone()]);
        assert!(!left.exists());
        // A crash may leave it behind: read again it means the same entry, and not one that was dead-lettered since.
        sink.dead_letter(Seq(2), Bytes::new(), "413").await.unwrap();
        settled.leave(&state).unwrap();
        world.journal.settle_left().await.unwrap();
        assert_eq!(listed(&reader), all);
        // What is none does no harm.
        fs::write(state.join("replayed-x.json"), "{").unwrap();
        world.journal.settle_left().await.unwrap();
        assert!(Settled::left(&state).is_empty() && !state.join("replayed-x.json").exists());
        drop((sink, other));
        let _dir = world.close();
        fs::remove_file(path.with_file_name("events.jsonl.replay-1-2")).unwrap();
        assert_eq!(replay(&file(&path), &state, &mut reader, Seq(1), Seq(2)).await.unwrap(), Exit::Done);
        assert_eq!(listed(&reader), [all[0].clone(), all[2].clone()]);
    }
}
