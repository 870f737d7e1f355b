//! Entries after a place of the log, as the log goes on.

use std::collections::HashMap;
use std::fmt;
use std::ops::ControlFlow;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Opened;
use super::outlines::outline;
use super::selection::{Window, senders};
use super::summary::{Summaries, Summary};
use super::window::Narrow;
use crate::core::model::Seq;
use crate::journal::outline::{Builder, Part};
use crate::query::churn::Classes;
use crate::query::render::Failure;
use crate::query::{Log, Put, Question, Word};

/// A page that lacks more entries than this loads its window again: that is less than all of them.
const BEHIND: u64 = 20_000;
/// Number of entries that are looked at for one answer.
const PAGE: u64 = 256;

/// Position of a page: the epoch, and the seq up to which it has everything. Its text is `EPOCH:SEQ`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cursor {
    pub(crate) epoch: String,
    pub(crate) seq: u64,
}

impl Cursor {
    /// Reads the text of a cursor.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let (epoch, seq) = text.rsplit_once(':')?;
        Some(Self { epoch: epoch.to_owned(), seq: seq.parse().ok()? })
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.epoch, self.seq)
    }
}

impl Serialize for Cursor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Cursor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::read(&text).ok_or_else(|| serde::de::Error::custom("expected EPOCH:SEQ"))
    }
}

/// Asks for the entries of a window after a place, oldest first.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Updates {
    #[serde(default)]
    pub(crate) window: Window,
    /// The place; the end of the log if there is none.
    #[serde(default)]
    pub(crate) after: Option<Cursor>,
}

/// Entries after a place.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Update {
    pub(crate) entries: Vec<Summary>,
    /// The place up to which these are all.
    pub(crate) cursor: Cursor,
    /// Reason why the whole window has to be asked for again: `epoch`, `behind` or `where`.
    pub(crate) reload: Option<Word>,
    /// There is more at once.
    pub(crate) more: bool,
}

impl Question for Updates {
    const NAME: &'static str = "updates";
    type Item = Update;

    fn answer(self, log: &Log<'_>, put: &mut Put<'_, Update>) -> Result<(), Failure> {
        put(updates(&mut Opened::within(log, &self.window)?, &self)?)
    }
}

/// Returns the entries after a place.
fn updates(opened: &mut Opened, question: &Updates) -> Result<Update, Failure> {
    let Opened { reader, clock, .. } = opened;
    let (epoch, head, oldest) = (reader.epoch()?, reader.head()?.0, reader.retained()?.oldest);
    let end = |seq| Cursor { epoch: epoch.clone(), seq };
    let reload = |why: &'static str| {
        Ok(Update { entries: Vec::new(), cursor: end(head), reload: Some(why.into()), more: false })
    };
    let after = match &question.after {
        Some(after) if after.epoch != epoch || after.seq > head => return reload("epoch"),
        Some(after) if head - after.seq > BEHIND || after.seq + 1 < oldest => return reload("behind"),
        Some(after) => after.seq,
        None => head,
    };
    let selected = question.window.resolve(reader)?;
    let upto = head.min(after + PAGE);
    let mut entries = Vec::new();
    if upto > after {
        let (classes, summaries) = (Classes::default(), Summaries::new(clock, Seq(head)));
        let senders = match selected.asks_for_senders(reader)? {
            true => senders(reader, Seq(after + 1), Seq(upto))?,
            false => HashMap::new(),
        };
        let narrow = Narrow::of_sent(&selected, &senders);
        let mut unanswered = false;
        reader.rows_between(Seq(after + 1), Seq(upto), &mut |row| {
            let (mark, words) = outline(&classes, &row);
            let mut builder = Builder::default();
            builder.add(mark, &words);
            let Some(part) = Part::read(builder.finish()) else { return ControlFlow::Continue(()) };
            let passes = part.marks.iter().all(|mark| narrow.takes(&part, mark)) && (selected.quiet || !mark.quiet);
            let filter = selected.filter.as_ref().filter(|_| passes);
            let sender = senders.get(&row.entry.seq.0);
            let Ok(is_selected) = filter.map_or(Ok(passes), |filter| filter.selects_of(&row.entry.line, sender)) else {
                unanswered = true;
                return ControlFlow::Break(());
            };
            if is_selected {
                entries.extend(Some(summaries.of(&row.entry)).filter(|entry| entry.is_selected(&selected)));
            }
            ControlFlow::Continue(())
        })?;
        // The window, which the page asks for again, has the reason.
        if unanswered {
            return reload("where");
        }
    }
    Ok(Update { entries, cursor: end(upto), reload: None, more: upto < head })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_as_it_is_written() {
        let cursor = Cursor { epoch: "01J:X".to_owned(), seq: 812 };
        assert_eq!(Cursor::read(&cursor.to_string()), Some(cursor));
        for text in ["", "812", "a:", "a:b", ":", "a:-1"] {
            assert_eq!(Cursor::read(text), None, "{text}");
        }
    }
}
