//! The timeline: what happened when, to which objects.
//!
//! Its questions are those of the timeline page, and [`embed::Timeline`] is all of them that the page asks of a window, for a file
//! that shows it without a daemon. They look at the log through outlines of its entries ([`outlines`]), and each has a limited
//! time: what was not looked at by then is left out, and the answer says so.
//!
//! Begin with [`lanes`], and with [`selection`], which says which entries are meant.

pub(crate) mod compare;
pub(crate) mod embed;
pub(crate) mod entries;
pub(crate) mod entry;
mod lane;
pub(crate) mod lanes;
pub(crate) mod moments;
pub(crate) mod object;
pub(crate) mod order;
pub(crate) mod outlines;
pub(crate) mod overview;
mod rewritten;
pub(crate) mod selection;
pub(crate) mod summary;
#[cfg(test)]
mod tests;
mod text;
pub(crate) mod updates;
pub(crate) mod window;
pub(crate) mod writers;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::{Log, coverage, is_running};
use crate::journal::Reader;
use crate::query::render::Failure;
use crate::query::render::clock::Clock;
use outlines::Index;
use selection::Window;

/// Time limit for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);

/// Limits of an answer, whatever is asked for.
pub(crate) const LANES_MAX: usize = 5000;
pub(crate) const MARKS_MAX: usize = 100_000;
pub(crate) const BUCKETS_MAX: usize = 5000;
pub(crate) const ENTRIES_MAX: usize = 2000;
pub(crate) const OBJECTS_MAX: usize = 5000;

/// A log that is being read, with its outlines, for one answer.
pub(super) struct Opened {
    pub(super) reader: Reader,
    pub(super) index: Index,
    pub(super) dir: PathBuf,
    pub(super) clock: Clock,
    /// End of the time for the answer.
    pub(super) deadline: Instant,
    /// A daemon runs on the journal.
    pub(super) watched: bool,
}

/// The present, and the end of the axis.
#[derive(Clone, Copy, Debug)]
pub(super) struct Present {
    pub(super) at: coverage::Present,
    /// Up to when the log is looked at where nobody says it, microseconds since 1970.
    pub(super) end: i64,
}

impl Opened {
    /// Opens the log.
    ///
    /// # Errors
    /// Where the journal cannot be read.
    fn of(log: &Log<'_>) -> Result<Self, Failure> {
        Ok(Self {
            reader: log.open()?,
            index: log.index.clone(),
            dir: log.dir.clone(),
            clock: log.clock.clone(),
            deadline: Instant::now() + ANSWER_TIMEOUT,
            watched: is_running(&log.dir),
        })
    }

    /// Opens the log for a question about a window: of what is in other namespaces nothing is decided.
    ///
    /// # Errors
    /// As [`Opened::of`].
    fn within(log: &Log<'_>, window: &Window) -> Result<Self, Failure> {
        let opened = Self::of(log)?;
        opened.reader.limit(&window.namespaces);
        Ok(opened)
    }

    /// Returns the present. Without a daemon the axis ends shortly after the last entry, and not years later.
    fn present(&self) -> Result<Present, Failure> {
        let (reader, watched, now) = (&self.reader, self.watched, self.clock.now.as_microsecond());
        let end = match (reader.retained()?.oldest_time, reader.time_of(reader.head()?)?) {
            (Some(oldest), Some(head)) if !watched => head + ((head - oldest) / 32).max(1_000_000),
            _ => now,
        };
        Ok(Present { at: coverage::Present { now, watched }, end: end.min(now) })
    }
}
