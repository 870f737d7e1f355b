//! The entries of the log, and those that come.

mod folded;

use serde::{Deserialize, Serialize};

use super::follow::Follow;
use crate::core::model::{Resource, Seq};
use crate::journal::{Reader, StoredEntry};
use crate::query::coverage_notes::{About, Coverage};
use crate::query::line::Line;
use crate::query::render::Failure;
use crate::query::render::row::plural;
use crate::query::rewrites::Rewrite;
use crate::query::select::{Select, Selection};
use crate::query::{Log, Put, Question};
use folded::{Folded, Place};

/// Default number of entries.
const LAST: usize = 10;

/// Sentence where there may be more entries.
const CUT: &str = "showing the newest 10 matches; use --last COUNT or --since WHEN for more";

/// Asks for entries.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Tail {
    pub(crate) select: Select,
    /// Goes on with entries as they come.
    pub(crate) follow: bool,
    /// Number of the newest entries; without a moment to begin at, [`LAST`].
    pub(crate) last: Option<usize>,
    /// Newest first.
    pub(crate) reverse: bool,
    /// Makes one item of a storage rewrite.
    pub(crate) folds: bool,
    /// Only entries before this one, of those that there are; nothing is followed then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) before: Option<Seq>,
}

/// A part of the answer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Item {
    /// The newest seq, and the resources that the journal knows.
    Begin { head: Seq, resources: Vec<Resource> },
    /// An entry.
    Entry(Line),
    /// A storage rewrite, and its last entry.
    Rewrite(Box<Rewrite>, Line),
    /// All that there is for now has come.
    Pause,
}

/// The answer as it comes about.
struct Answer<'a, 'l, 'p> {
    log: &'a Log<'l>,
    put: &'a mut Put<'p, Item>,
    about: About,
    coverage: Coverage,
    selection: Selection,
    folded: Option<Folded>,
    /// Number of items that were handed out.
    count: u64,
    wants_some: bool,
}

impl Question for Tail {
    const NAME: &'static str = "tail";
    type Item = Item;

    /// # Errors
    /// Where the journal cannot be read or the question names what it does not know.
    fn answer(self, log: &Log<'_>, put: &mut Put<'_, Item>) -> Result<(), Failure> {
        let mut reader = log.open()?;
        // Before the first read, so that no commit falls between reading and following.
        let mut follow = if self.follow { Some(Follow::new(&reader, &log.dir)?) } else { None };
        let select = Select { waits: self.follow, ..self.select };
        let selection = Selection::new(&select, &mut reader, log)?;
        let about = About::of(&select, &reader)?;
        let coverage = about.coverage(&mut reader, &log.dir, &log.clock)?;
        if self.follow {
            coverage.remark_start(log);
        }
        let begin = selection.begin();
        // What comes while the newest are counted is not among them.
        let mut head = reader.head()?;
        let resources = reader.resources()?.into_iter().map(|(_, resource)| resource).collect();
        put(Item::Begin { head, resources })?;
        if let Some(before) = self.before {
            head = head.min(Seq(before.0.saturating_sub(1)));
        }
        let count = self.last.or_else(|| select.only.since.is_none().then_some(LAST));
        // Who asks for some entries may take what comes for all of them.
        let cuts = self.last.is_none() && count.is_some() && select.picks();
        let wants_some = self.last != Some(0);
        let (folded, after) = match count {
            None if self.folds && !self.reverse => (Some(log.decided(|| Folded::from(&reader, begin, head))?), begin),
            _ if self.folds => {
                let (folded, after) = log.decided(|| Folded::among(&selection, &mut reader, (begin, head), count))?;
                (Some(folded), after)
            }
            None => (None, begin),
            Some(count) => (None, log.decided(|| selection.newest(&mut reader, begin, head, count))?),
        };
        let mut answer = Answer { log, put, about, coverage, selection, folded, count: 0, wants_some };
        if self.reverse {
            let left_out = answer.back(&mut reader, (begin, head), count.unwrap_or(usize::MAX))?;
            return answer.end(&mut reader, head, cuts && left_out);
        }
        let (mut after, cut) = (after, cuts && after > begin);
        loop {
            answer.forward(&mut reader, after, head)?;
            after = after.max(head);
            let Some(follow) = &mut follow else { return answer.end(&mut reader, head, cut) };
            (answer.put)(Item::Pause)?;
            log.follow();
            while !follow.wait(&reader, log, answer.folded.as_ref().and_then(Folded::due))? {
                answer.put_due(&mut reader)?;
            }
            let oldest = reader.oldest()?;
            if oldest > after.next() {
                let missed = plural(oldest.0 - after.0 - 1, "entry was", "entries were");
                let upto = oldest.0 - 1;
                log.note(&format!("{missed} removed by retention before they could be printed (up to seq {upto})"));
            }
            head = reader.head()?;
        }
    }
}

impl Answer<'_, '_, '_> {
    /// Hands out the entries between two seqs, oldest first.
    fn forward(&mut self, reader: &mut Reader, mut after: Seq, head: Seq) -> Result<(), Failure> {
        while after < head {
            let upto = match &mut self.folded {
                Some(folded) => folded.stretch(&self.selection, reader, (after, head), self.log)?,
                None => head,
            };
            let (entries, reached) = self.log.decided(|| self.selection.page(reader, after, upto))?;
            self.selection.remark(self.log);
            for entry in entries {
                self.one(entry)?;
            }
            after = reached;
        }
        self.put_due(reader)
    }

    /// Hands out an entry, or the storage rewrite that stands for it. Reports whether there was anything to hand out.
    fn one(&mut self, entry: StoredEntry) -> Result<bool, Failure> {
        let item = match self.folded.as_mut().map(|folded| folded.place(&entry)) {
            Some(Place::Below) => return Ok(false),
            Some(Place::Rewrite(rewrite)) => Item::Rewrite(rewrite, entry.into()),
            Some(Place::Alone) | None => Item::Entry(entry.into()),
        };
        self.count += 1;
        (self.put)(item).map(|()| true)
    }

    /// Hands out the storage rewrites that have gone on for long, or have ended, while the log is followed.
    fn put_due(&mut self, reader: &mut Reader) -> Result<(), Failure> {
        for rewrite in self.folded.as_mut().map(Folded::take_due).unwrap_or_default() {
            // It may have been removed meanwhile.
            if let Some(entry) = self.log.decided(|| Ok(reader.entry(Seq(rewrite.seq))?))? {
                self.count += 1;
                (self.put)(Item::Rewrite(Box::new(rewrite), entry.into()))?;
                (self.put)(Item::Pause)?;
            }
        }
        Ok(())
    }

    /// Hands out entries newest first, at most so many. Reports whether there may be more.
    fn back(&mut self, reader: &mut Reader, (begin, head): (Seq, Seq), mut left: usize) -> Result<bool, Failure> {
        let (mut before, mut more) = (head.next(), false);
        while left > 0 && before > begin.next() {
            let (entries, reached) = self.log.decided(|| self.selection.page_back(reader, begin, before))?;
            self.selection.remark(self.log);
            more = reached > begin.next();
            for entry in entries {
                if left == 0 {
                    more = true;
                    break;
                }
                left -= usize::from(self.one(entry)?);
            }
            before = reached;
        }
        Ok(left == 0 && more)
    }

    /// Ends the answer with what there is to say of it.
    fn end(self, reader: &mut Reader, head: Seq, cut: bool) -> Result<(), Failure> {
        let Self { log, put, about, coverage, selection, count, wants_some, .. } = self;
        put(Item::Pause)?;
        if count == 0 && wants_some {
            if head == Seq(0) {
                log.note("the journal has no entries yet");
            } else {
                about.note_nothing("no entry", &coverage, reader, log)?;
            }
        }
        selection.remark_unknown(log);
        if cut {
            log.remark(CUT);
        }
        coverage.remark(log);
        Ok(())
    }
}
