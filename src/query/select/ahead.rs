//! Pages of a selection that another thread reads ahead.
//!
//! # Decision: a pass over the log reads on another thread
//!
//! Context: Reading, decompressing and selecting entries takes as long as counting them.
//! Decision: `churn` and `drift`, which look at every entry that is selected, take pages that a thread of theirs reads ahead. Of one
//! page, or without a thread, they read by themselves. Other questions end early, or wait for what comes.
//! Cost: Three pages in memory, each of about 4 MiB at most, and a second processor for each such question.

use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;

use super::Selection;
use crate::core::model::Seq;
use crate::journal::{Reader, StoredEntry};
use crate::query::render::Failure;

/// Pages that wait until they are taken. One more is being read.
const WAITING: usize = 1;
/// Number of entries of a page. SQLite prepares a query anew for each.
const PAGE: usize = 256;

/// Selected entries, in their order.
type Page = Vec<StoredEntry>;

/// The pages between two seqs, oldest first. None follows a failure.
struct Pages<'s> {
    selection: &'s Selection,
    reader: &'s mut Reader,
    after: Seq,
    upto: Seq,
}

impl Iterator for Pages<'_> {
    type Item = Result<Page, Failure>;

    fn next(&mut self) -> Option<Self::Item> {
        (self.after < self.upto).then(|| {
            let read = self.selection.some(self.reader, self.after, self.upto, PAGE);
            self.after = read.as_ref().map_or(self.upto, |(_, reached)| *reached);
            read.map(|(page, _)| page)
        })
    }
}

impl Selection {
    /// Hands the selected entries between `after` and `upto` to `take`, page by page, oldest first.
    ///
    /// # Errors
    /// Where the journal cannot be read, and the first failure of `take`.
    pub(crate) fn each_page(
        &self,
        reader: &mut Reader,
        after: Seq,
        upto: Seq,
        mut take: impl FnMut(Page) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut pages = Pages { selection: self, reader, after, upto };
        let Some(first) = pages.next() else { return Ok(()) };
        take(first?)?;
        if pages.after >= upto {
            return Ok(());
        }
        // A thread that does not start leaves them here.
        let pages = Mutex::new(pages);
        let next = || pages.lock().unwrap_or_else(PoisonError::into_inner).next();
        thread::scope(|scope| {
            let (sender, read) = mpsc::sync_channel(WAITING);
            // The question has ended where nobody receives.
            let ahead = move || std::iter::from_fn(next).try_for_each(|page| sender.send(page)).unwrap_or_default();
            match thread::Builder::new().name("pages".to_owned()).spawn_scoped(scope, ahead) {
                Ok(reading) => {
                    let taken = read.into_iter().try_for_each(|page| take(page?));
                    reading.join().unwrap_or_else(|panic| resume_unwind(panic));
                    taken
                }
                Err(_) => std::iter::from_fn(next).try_for_each(|page| take(page?)),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use jiff::tz::TimeZone;
    use serde_json::json;

    use super::super::Select;
    use super::*;
    use crate::core::rights::Sight;
    use crate::query::Log;
    use crate::query::churn::tests::Story;
    use crate::query::render::Exit;
    use crate::query::render::clock::Clock;

    /// The only test of pages that another thread reads: questions about small logs have one page.
    #[tokio::test(start_paused = true)]
    async fn entries_come_once_and_in_their_order_until_a_failure() {
        let dir = tempfile::tempdir().unwrap();
        let count = 4 * PAGE as u64 + 3;
        Story::play(dir.path(), &[], async |story| {
            for turn in 0..count {
                story.write("configmaps", "shop/flags", "helm", |map| map["data"] = json!({"turn": turn})).await;
            }
        })
        .await;
        let mut reader = Reader::open(dir.path()).unwrap();
        let clock = Clock { now: Timestamp::now(), zone: TimeZone::UTC };
        let log = Log::new(dir.path().to_owned(), Sight::All, clock, &|_| (), &|| false);
        let selection = Selection::new(&Select::default(), &mut reader, &log).unwrap();
        for (after, upto) in [(0, 0), (0, 1), (0, PAGE as u64), (3, PAGE as u64 + 4), (0, count), (count, count)] {
            for pages_taken in [0, 1, 2, usize::MAX] {
                let (mut pages, mut seqs) = (0, Vec::new());
                let ended = selection.each_page(&mut reader, Seq(after), Seq(upto), |page| {
                    if pages == pages_taken {
                        return Err(Failure::no("it is enough"));
                    }
                    pages += 1;
                    seqs.extend(page.iter().map(|entry| entry.seq.0));
                    Ok(())
                });
                let expected = after + 1..=upto.min(after.saturating_add((pages_taken.saturating_mul(PAGE)) as u64));
                assert_eq!(seqs, expected.clone().collect::<Vec<_>>(), "{after} to {upto}, {pages_taken} pages");
                assert_eq!(ended.is_err(), *expected.end() < upto, "{after} to {upto}, {pages_taken} pages");
            }
        }
        // A damaged entry ends it, on whichever page it is.
        for (seq, whole) in [(count, 4 * PAGE), (1, 0)] {
            let journal = rusqlite::Connection::open(dir.path().join("journal.db")).unwrap();
            assert_eq!(journal.execute("UPDATE entry SET line = x'd1' WHERE seq = ?", [seq]).unwrap(), 1);
            let mut taken = 0;
            let ended = selection.each_page(&mut reader, Seq(0), Seq(count), |page| {
                taken += page.len();
                Ok(())
            });
            assert_eq!((taken, ended.unwrap_err().exit()), (whole, Exit::Io), "{seq}");
        }
    }
}
