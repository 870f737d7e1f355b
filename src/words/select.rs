//! Entries that somebody asks for, read page by page.

use super::Failure;
use crate::filter::Wanted;
use crate::journal::{EntryQuery, Reader, StoredEntry};
use crate::model::Seq;

/// A selection of entries, ready to read with.
#[derive(Debug)]
pub(crate) struct Selection {
    position: EntryQuery,
    filter: Option<Wanted>,
}

/// Number of entries that are read at once.
const PAGE: usize = 64;

impl Selection {
    /// Entries by where they stand, and by what they say.
    pub(crate) const fn of(position: EntryQuery, filter: Option<Wanted>) -> Self {
        Self { position, filter }
    }

    /// The resources that are selected, by name (`deployments.apps`); `None` for all.
    ///
    /// # Errors
    /// Where the journal cannot be read.
    pub(crate) fn resources(&self, reader: &Reader) -> Result<Option<Vec<String>>, Failure> {
        if self.position.objects.is_empty() {
            return Ok(None);
        }
        let wanted = |id: i64| self.position.objects.iter().any(|(resource, _)| *resource == id);
        let known = reader.resources()?.into_iter().filter(|(id, _)| wanted(*id));
        Ok(Some(known.map(|(_, resource)| resource.full_name()).collect()))
    }

    /// The last seq before everything that can be selected.
    ///
    /// # Errors
    /// Where the journal cannot be read.
    pub(crate) fn begin(&self, reader: &Reader) -> Result<Seq, Failure> {
        Ok(match self.position.since {
            Some(since) => reader.last_before(since)?,
            None => Seq(0),
        })
    }

    /// Entries selected between `after` and `upto`, oldest first: a page of them, and how far it looked. Fewer than
    /// asked for, even none, does not mean the end: `upto` reached does.
    ///
    /// # Errors
    /// Where the journal cannot be read.
    pub(crate) fn page(&self, reader: &mut Reader, after: Seq, upto: Seq) -> Result<(Vec<StoredEntry>, Seq), Failure> {
        let page = reader.select(
            &self.position,
            after,
            Some(upto.next()),
            false,
            PAGE,
            self.filter.as_ref().and_then(Wanted::of_row),
        )?;
        let reached = page.looked_at.filter(|_| page.looked == PAGE).map_or(upto, |(_, last)| last);
        Ok((self.keep(page.entries), reached))
    }

    /// Returns a page as [`Selection::page`] does, of the entries before `before`, newest first. The entries that it looked at begin
    /// with the seq that it returns, which is not above `after` if there are no more.
    ///
    /// # Errors
    /// As [`Selection::page`].
    pub(crate) fn page_back(
        &self,
        reader: &mut Reader,
        after: Seq,
        before: Seq,
    ) -> Result<(Vec<StoredEntry>, Seq), Failure> {
        let of_row = self.filter.as_ref().and_then(Wanted::of_row);
        let page = reader.select(&self.position, after, Some(before), true, PAGE, of_row)?;
        let reached = page.looked_at.filter(|_| page.looked == PAGE).map_or(after, |(_, last)| last);
        Ok((self.keep(page.entries), reached))
    }

    /// The last seq before the newest `count` entries that are selected after `after`.
    ///
    /// # Errors
    /// As [`Selection::page`].
    pub(crate) fn newest(&self, reader: &mut Reader, after: Seq, head: Seq, count: usize) -> Result<Seq, Failure> {
        let (mut before, mut left) = (head.next(), count);
        while left > 0 {
            let page = PAGE.min(if self.filter.is_some() { PAGE } else { left });
            let page = reader.select(
                &self.position,
                after,
                Some(before),
                true,
                page,
                self.filter.as_ref().and_then(Wanted::of_row),
            )?;
            let Some((_, last)) = page.looked_at else { return Ok(after) };
            for entry in self.keep(page.entries) {
                left -= 1;
                if left == 0 {
                    return Ok(Seq(entry.seq.0 - 1));
                }
            }
            before = last;
        }
        Ok(head)
    }

    fn keep(&self, mut entries: Vec<StoredEntry>) -> Vec<StoredEntry> {
        if let Some(filter) = &self.filter {
            entries.retain(|entry| filter.of_entry(&entry.line));
        }
        entries
    }
}
