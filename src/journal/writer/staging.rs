//! The room for lists in progress.
//!
//! What is staged has a share of the database, and beyond it what is free: it never has entries truncated, and never has
//! the reading of other sources paused. Where there is no room for more, the largest list in progress is given up: its rows go, in
//! slices, what still comes of it is dropped, and its source hears of it.
//!
//! # Decision: staging has a share of its own
//!
//! Context: A list that grows must neither truncate the log nor pause other sources.
//! Decision: An eighth of the database, at most 1 GiB, is reserved for lists in progress; beyond it they take free space. If
//! there is none, the largest list is given up: its rows are removed in slices, and its source reports `max_size`. It starts
//! again after at least the time it took.
//! Cost: Staged bytes are estimated high, so the log is truncated a little late.

use rusqlite::params;

use super::queue::{Command, OfSource};
use super::quota::Quota;
use super::{Transaction, Writer, sql};
use crate::core::model::Observed;
use crate::journal::SourceId;
use crate::journal::error::Result;

/// Bytes that a staged row takes beside its texts and its body, at most: its record, its two index entries, its part of a page.
const ROW: u64 = 256;

/// A list in progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Staged {
    /// Bytes of the database that it takes, rather too many than too few; 0 from its last page on.
    pub(super) bytes: u64,
    /// There was no room for it: what comes of it until the next list begins is dropped.
    pub(super) given_up: bool,
}

/// Bytes of the database that a row takes at most.
pub(super) fn row_bytes(object: &Observed, body: Option<&[u8]>) -> u64 {
    let texts = 2 * (object.namespace.len() + object.name.len()) + object.uid.len() + 2 * object.version.as_str().len();
    let marks = 48 * object.body.marks.len() + object.body.pointers.iter().map(|text| text.len() + 3).sum::<usize>();
    let bytes = (texts + marks + body.map_or(0, <[u8]>::len)) as u64;
    bytes + bytes / 2 + ROW
}

impl Quota {
    /// Reports whether `more` staged bytes, of `staged` in all, leave too little room. A list takes more in the log than in the
    /// staging, so a third of that counts twice.
    const fn is_crowded(&self, more: u64, staged: u64) -> bool {
        self.bounds.is_some()
            && (self.used + more + staged / 3 > self.sizes.high || self.disk_left < more + 3 * self.sizes.reserve)
    }

    /// Reports whether lists take so much that other sources would have to wait.
    const fn is_overcrowded(&self, more: u64) -> bool {
        self.bounds.is_some() && self.used + more + 3 * self.sizes.group as u64 > self.sizes.database
    }
}

impl Transaction<'_> {
    /// The list in progress of a source, as it is by now.
    pub(super) fn staged(&self, id: i64) -> Staged {
        self.changes.staged.get(&id).or_else(|| self.committed.staged.get(&id)).copied().unwrap_or_default()
    }

    pub(super) fn set_staged(&mut self, id: i64, staged: Staged) {
        self.changes.staged.insert(id, staged);
    }

    /// The rows of a list in progress are gone.
    pub(super) fn unstaged(&mut self, id: i64) {
        let given_up = self.staged(id).given_up;
        self.set_staged(id, Staged { bytes: 0, given_up });
    }

    /// Takes room for a row of a list in progress. Returns whether the list has it: where there is none, the largest list is
    /// given up, which may be this one.
    pub(super) fn take_room(&mut self, id: i64, bytes: u64) -> Result<bool> {
        if self.staged(id).given_up {
            return Ok(false);
        }
        let committed = self.committed.staged_bytes();
        let staged = self.all_staged().map(|(_, staged)| staged.bytes).sum::<u64>() + bytes;
        let more = staged.saturating_sub(committed);
        if self.quota.is_crowded(more, staged) {
            // What goes already makes room, as long as there is some left.
            let going = self.all_staged().any(|(of, staged)| staged.bytes > 0 && self.is_going(of));
            if !going || self.quota.is_overcrowded(more) {
                let largest = self
                    .all_staged()
                    .filter(|(of, _)| !self.is_going(*of))
                    .map(|(of, staged)| (staged.bytes + if of == id { bytes } else { 0 }, of))
                    .max();
                let largest = largest.filter(|(most, _)| *most > bytes).map_or(id, |(_, of)| of);
                self.give_list_up(largest)?;
                if largest == id {
                    return Ok(false);
                }
            }
        }
        let before = self.staged(id);
        self.set_staged(id, Staged { bytes: before.bytes + bytes, ..before });
        Ok(true)
    }

    /// Gives up every list in progress. Returns whether there was one.
    pub(super) fn give_lists_up(&mut self) -> Result<bool> {
        let lists: Vec<i64> = self
            .all_staged()
            .filter(|(id, staged)| staged.bytes > 0 && !self.is_going(*id))
            .map(|(id, _)| id)
            .collect();
        for id in &lists {
            self.give_list_up(*id)?;
        }
        Ok(!lists.is_empty())
    }

    /// Reports whether the rows of a list are being removed.
    fn is_going(&self, id: i64) -> bool {
        self.staged(id).given_up || self.begins_list(id)
    }

    fn give_list_up(&mut self, id: i64) -> Result {
        let staged = self.staged(id);
        self.set_staged(id, Staged { given_up: true, ..staged });
        self.changes.given_up(id);
        self.clear_list(id)
    }

    fn all_staged(&self) -> impl Iterator<Item = (i64, Staged)> {
        let before = self.committed.staged.iter().filter(|(id, _)| !self.changes.staged.contains_key(id));
        before.chain(&self.changes.staged).map(|(id, staged)| (*id, *staged))
    }

    /// Reports whether this belongs to a list that was given up, so that nothing of it is kept.
    pub(super) fn is_dropped(&self, command: &Command) -> bool {
        let Command::Source(SourceId(id), OfSource::ListPage(_) | OfSource::ListUnread(_) | OfSource::Found(_)) =
            command
        else {
            return false;
        };
        self.staged(*id).given_up
    }

    /// Bytes that the last daemon has staged of a list that it did not finish.
    pub(super) fn find_staged(&mut self, id: i64) -> Result {
        let bytes = self
            .conn
            .query_row(
                "SELECT count(*) * ? + coalesce(sum(coalesce(length(body), 0)), 0) * 3 / 2 FROM listing WHERE source = ?",
                params![2 * ROW, id],
                |row| row.get(0),
            )
            .map_err(sql("find unfinished lists"))?;
        self.set_staged(id, Staged { bytes, given_up: false });
        Ok(())
    }
}

impl Writer {
    /// Gives up every list in progress, because others would have to wait. Returns whether room is about to come of it.
    pub(super) fn make_room(&mut self) -> Result<bool> {
        if self.committed.staged_bytes() == 0 {
            return Ok(false);
        }
        let given_up = self.transact(|transaction| {
            transaction.begin()?;
            transaction.give_lists_up()
        });
        match given_up {
            Ok(_) => Ok(true),
            Err(error) if error.is_full() => Ok(false),
            Err(error) => Err(error),
        }
    }
}
