//! Entries in short, from a place of the log on.

use std::ops::ControlFlow;

use serde::{Deserialize, Serialize};

use super::outlines::Way;
use super::rewritten::Bares;
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
        put(entries(&mut Opened::within(log, &self.window)?, &self)?)
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
    let mut bares = Bares::default();
    if question.before.is_some() && !selected.quiet {
        let head = reader.head()?.0;
        bares.look_beyond(index, reader, &selected, (upto, head), *deadline)?;
    }
    let mut seqs = Vec::new();
    let mut more = false;
    let cut = look(index, reader, &selected, ((after, upto), way), *deadline, &mut |part, mark| {
        if mark.quiet && !selected.quiet {
            bares.take(part, mark);
            return ControlFlow::Continue(());
        }
        if seqs.len() == limit {
            more = true;
            // The row of a storage rewrite counts all of it.
            return if bares.may_go_on(mark) { ControlFlow::Continue(()) } else { ControlFlow::Break(()) };
        }
        seqs.push(mark.seq);
        ControlFlow::Continue(())
    })?;
    let summaries = Summaries::new(clock, reader.head()?);
    let mut entries = summaries.with(reader, &seqs)?;
    entries.retain(|entry| entry.is_selected(&selected));
    let last = seqs.last().copied().filter(|_| more);
    let is_here = |seq: u64| match way {
        Way::Back => seq <= upto && last.is_none_or(|last| seq > last),
        Way::On => seq > after && last.is_none_or(|last| seq < last),
    };
    let mut rewrites = bares.rewrites(reader)?;
    rewrites.retain(|rewrite| is_here(rewrite.seq));
    for rewrite in rewrites {
        entries.extend(summaries.rewrite(reader, rewrite)?);
    }
    entries.sort_by_key(|entry| if way == Way::Back { u64::MAX - entry.seq } else { entry.seq });
    let reached = cut.or_else(|| seqs.last().copied()).filter(|_| more || cut.is_some());
    Ok(EntryList { entries, more: more || cut.is_some(), reached })
}
