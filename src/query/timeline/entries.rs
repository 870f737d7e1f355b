//! Entries in short, from a place of the log on.

use std::ops::ControlFlow;

use serde::{Deserialize, Serialize};

use super::outlines::Way;
use super::selection::Window;
use super::summary::{Summaries, Summary};
use super::window::look;
use super::{ENTRIES_MAX, Opened};
use crate::core::model::Seq;
use crate::query::render::Failure;
use crate::query::{Log, Put, Question};

/// Asks for the entries of a window, newest first.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Entries {
    #[serde(default)]
    pub(crate) window: Window,
    /// Only entries before this one.
    #[serde(default)]
    pub(crate) before: Option<Seq>,
    /// Only entries after this one, oldest first.
    #[serde(default)]
    pub(crate) after: Option<Seq>,
    /// Number of entries.
    pub(crate) limit: usize,
}

/// Entries, in short.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct EntryList {
    entries: Vec<Summary>,
    pub(super) more: bool,
    /// The seq to continue from, if there is more.
    reached: Option<u64>,
}

impl EntryList {
    /// Returns the seqs of the GAPs.
    pub(super) fn gap_seqs(&self) -> impl Iterator<Item = u64> {
        self.entries.iter().filter(|entry| entry.is_gap()).map(|entry| entry.seq)
    }
}

impl Question for Entries {
    const NAME: &'static str = "entries";
    type Item = EntryList;

    fn answer(self, log: &Log<'_>, put: &mut Put<'_, EntryList>) -> Result<(), Failure> {
        put(entries(&mut Opened::of(log)?, &self)?)
    }
}

/// Returns the entries that the question asks for.
pub(super) fn entries(opened: &mut Opened, question: &Entries) -> Result<EntryList, Failure> {
    let limit = question.limit.min(ENTRIES_MAX);
    let Opened { reader, index, clock, deadline, .. } = opened;
    let selected = question.window.resolve(reader)?;
    let (mut after, mut upto) = selected.bounds(reader, reader.head()?)?;
    let way = match (question.after, question.before) {
        (Some(_), Some(_)) => {
            let text = "before reads back from an entry, after reads on from one; leave one of them out";
            return Err(Failure::usage(text).about("after"));
        }
        (Some(from), None) => {
            after = after.max(from.0);
            Way::On
        }
        (None, before) => {
            upto = before.map_or(upto, |before| upto.min(before.0.saturating_sub(1)));
            Way::Back
        }
    };
    let mut seqs = Vec::new();
    let mut more = false;
    let cut = look(index, reader, &selected, ((after, upto), way), *deadline, &mut |_, mark| {
        if mark.quiet && !selected.quiet {
            return ControlFlow::Continue(());
        }
        if seqs.len() == limit {
            more = true;
            return ControlFlow::Break(());
        }
        seqs.push(mark.seq);
        ControlFlow::Continue(())
    })?;
    let mut entries = Summaries::new(clock, reader.head()?).with(reader, &seqs)?;
    entries.retain(|entry| entry.is_selected(&selected));
    let reached = cut.or_else(|| seqs.last().copied()).filter(|_| more || cut.is_some());
    Ok(EntryList { entries, more: more || cut.is_some(), reached })
}
