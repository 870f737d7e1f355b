//! `decklog replay`: entries once more to a sink, with the same ids and the same bytes.
//!
//! It reads the journal and speaks to the sink itself, beside a running daemon or without one, and moves no cursor. A
//! file that already holds the entries gets them in a new file beside it, so that the log itself stays exactly once.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::output::plural;
use super::progress::Progress;
use super::{Exit, Failure, Global, Outcome, complain};
use crate::config::{self, SinkKind};
use crate::filter::Filter;
use crate::journal::Reader;
use crate::model::Seq;
use crate::sink::{self, Item, Position, Sink, SinkError};
use crate::wire;

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

/// The wait before the first new try; it doubles up to [`LONGEST_WAIT`].
const FIRST_WAIT: Duration = Duration::from_millis(200);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// Delivers entries again.
///
/// # Errors
/// Where there is no such sink or entry, or the sink cannot be used.
pub fn main(args: ReplayArgs, global: &Global) -> Outcome {
    let loaded = global.load()?;
    let Some(sink) = loaded.config.sink.iter().find(|sink| sink.name == args.sink) else {
        let known: Vec<&str> = loaded.config.sink.iter().map(|sink| sink.name.as_str()).collect();
        let known = if known.is_empty() { "it has none".to_owned() } else { format!("it has {}", known.join(", ")) };
        return Err(Failure::new(
            Exit::Config,
            format!("{} has no sink named {:?}; {known}", loaded.path.display(), args.sink),
        ));
    };
    let mut reader = Reader::open(&loaded.config.state.path)?;
    let (oldest, head) = (reader.oldest()?, reader.head()?);
    let to = Seq(args.to.unwrap_or(head.0));
    let from = Seq(args.from);
    if from > to || from < oldest || to > head || from == Seq(0) {
        return Err(Failure::no(format!(
            "the journal has the entries {oldest} to {head}; {from} to {to} cannot be delivered"
        )));
    }
    super::block_on(replay(sink, &mut reader, from, to))
}

async fn replay(config: &config::Sink, reader: &mut Reader, from: Seq, to: Seq) -> Outcome {
    let wrong = |text: String| Failure::new(Exit::Config, format!("the sink {}: {text}", config.name));
    let filter = config.filter.as_deref().map(Filter::compile).transpose().map_err(|error| wrong(error.to_string()))?;
    let mut sink = open(config, reader, from, to).await?;
    let mut progress = Progress::new(format!("replay to {}", config.name), "entries");
    let (mut after, mut delivered, mut refused) = (Seq(from.0 - 1), 0_u64, 0_u64);
    while after < to {
        let limits = sink.limits();
        let entries = reader.entries_after(after, limits.entries.max(1), limits.bytes)?;
        let Some(last) = entries.last().map(|entry| entry.seq) else { break };
        let mut items = Vec::with_capacity(entries.len());
        for entry in entries.into_iter().filter(|entry| entry.seq <= to) {
            // As in delivery: what cannot be told is delivered.
            if filter.as_ref().is_none_or(|filter| filter.matches(&entry.line).unwrap_or(true)) {
                let line = wire::payload(&entry.line, config.payload).map_err(|error| {
                    Failure::new(Exit::Io, format!("entry {} is {error}; run `decklog verify`", entry.seq))
                })?;
                items.push(Item { seq: entry.seq, kind: entry.kind, line });
            }
        }
        refused += deliver(sink.as_mut(), &items).await.map_err(wrong)?;
        delivered += items.len() as u64;
        after = last;
        progress.at(after.0.min(to.0) - from.0 + 1, to.0 - from.0 + 1);
    }
    drop(progress);
    let what = plural(delivered - refused, "entry was", "entries were");
    complain(&format!("{what} delivered to {} again", config.name));
    Ok(if refused == 0 { Exit::Done } else { Exit::No })
}

/// The sink, or for a file that holds these entries already, a new file beside it.
async fn open(config: &config::Sink, reader: &Reader, from: Seq, to: Seq) -> Result<Box<dyn Sink>, Failure> {
    let failed = |text: String| Failure::new(Exit::Config, format!("the sink {}: {text}", config.name));
    let mut sink = sink::open(&config.kind).map_err(failed)?;
    let SinkKind::File(file) = &config.kind else { return Ok(sink) };
    let cursor = Position { epoch: reader.epoch()?, seq: Seq(from.0 - 1) };
    let free = match sink.position(&cursor).await {
        Ok(held) => held.is_none_or(|held| held.seq < from),
        // A running daemon holds it.
        Err(_) => false,
    };
    if free {
        return Ok(sink);
    }
    drop(sink);
    let mut path = file.path.clone().into_os_string();
    path.push(format!(".replay-{from}-{to}"));
    let path = PathBuf::from(path);
    if fs::exists(&path).unwrap_or(true) {
        return Err(failed(format!("{} is there already; remove it first", path.display())));
    }
    complain(&format!("{} holds these entries already; they go to {}", file.path.display(), path.display()));
    let file = config::FileSink { path, rotate_size: None, rotate_every: None, ..file.clone() };
    sink::open(&SinkKind::File(file)).map_err(failed)
}

/// Hands a batch over, again and again where that may help. Gives how many entries were refused for ever.
async fn deliver(sink: &mut dyn Sink, mut items: &[Item]) -> Result<u64, String> {
    let (mut refused, mut wait) = (0, FIRST_WAIT);
    while !items.is_empty() {
        let Err(failure) = sink.deliver(items).await else { break };
        if failure.taken > 0 {
            wait = FIRST_WAIT;
        }
        items = &items[failure.taken..];
        match failure.error {
            SinkError::Retry { text, after } => {
                complain(&format!("{text}; trying again"));
                tokio::time::sleep(after.unwrap_or_default().max(wait)).await;
                wait = (wait * 2).min(LONGEST_WAIT);
            }
            SinkError::Refused { text } => {
                complain(&format!("entry {} is refused: {text}", items[0].seq));
                refused += 1;
                items = &items[1..];
            }
            SinkError::Halt { text } => return Err(text),
        }
    }
    Ok(refused)
}
