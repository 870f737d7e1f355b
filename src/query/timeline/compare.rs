//! Two entries, compared.

use serde::{Deserialize, Serialize};

use super::Opened;
use super::entry::stored;
use super::summary::{Summaries, Summary};
use super::text::{NODES, difference, spelled};
use crate::core::change;
use crate::core::model::Seq;
use crate::core::wire::{self, Entry};
use crate::query::render::tree::Node;
use crate::query::render::{Failure, object};
use crate::query::{Log, Put, Question};

/// Asks for the difference of the objects in two entries.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Compare {
    pub(crate) from: Seq,
    pub(crate) to: Seq,
}

/// Two entries, compared.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Compared {
    from: Summary,
    to: Summary,
    diff: String,
    diff_cut: bool,
    same_object: bool,
    command: Option<String>,
}

impl Question for Compare {
    const NAME: &'static str = "compare";
    type Item = Compared;

    /// # Errors
    /// Exit 1 where one of them is not there, and 64 where one is a GAP.
    fn answer(self, log: &Log<'_>, put: &mut Put<'_, Compared>) -> Result<(), Failure> {
        put(compare(&mut Opened::of(log)?, self)?)
    }
}

/// Compares the objects of two entries.
pub(super) fn compare(opened: &mut Opened, Compare { from, to }: Compare) -> Result<Compared, Failure> {
    let Opened { reader, clock, .. } = opened;
    let other = stored(reader, to).map_err(|failure| failure.about("to"))?;
    let second = reader.object_of(to)?;
    // What was before the log is kept where it is how an object was when the log began.
    let begin = reader.retained()?;
    let kept = match &second {
        Some(row) if from.0 < begin.oldest => reader.entry_at(row, Seq(begin.removed))?.filter(|kept| kept.seq == from),
        Some(_) | None => None,
    };
    let is_pinned = kept.is_some();
    let (one, first) = match kept {
        Some(kept) => (kept, second.clone()),
        None => (stored(reader, from).map_err(|failure| failure.about("from"))?, reader.object_of(from)?),
    };
    let same = first.as_ref().zip(second.as_ref()).is_some_and(|(first, second)| first.is(second));
    let summaries = Summaries::new(clock, reader.head()?);
    let damaged = |error: &dyn std::fmt::Display| object::damaged(to, error);
    let (before, after) = (object::parse(&one)?, object::parse(&other)?);
    let of = |entry: &Entry<'_>, key| {
        let object = entry.object.map(|object| object.get().to_owned());
        object.ok_or_else(|| Failure::usage("a GAP is of no object; take an entry of one").about(key))
    };
    let (before, after) = (of(&before, "from")?, of(&after, "to")?);
    #[derive(Deserialize)]
    struct Patch<'a> {
        #[serde(borrow)]
        patch: Vec<wire::Op<'a>>,
    }
    let change = change::compare(before.as_bytes(), after.as_bytes(), &[], &[]).map_err(|error| damaged(&error))?;
    let mut tree = Node::parse_within(after.as_bytes(), NODES).map_err(|error| damaged(&error))?;
    let patch: Patch<'_> = serde_json::from_str(&change.json).map_err(|error| damaged(&error))?;
    tree.revert(&patch.patch).map_err(|error| damaged(&error))?;
    let (diff, diff_cut) = difference(tree);
    let command = second.filter(|_| same && from <= to && !is_pinned);
    Ok(Compared {
        from: summaries.of(&one),
        to: summaries.of(&other),
        diff,
        diff_cut,
        same_object: same,
        command: command.map(|row| format!("decklog diff {} --from {from} --to {to}", spelled(&row))),
    })
}
