//! Reads of the next batch, of which one may go on while the sink has the batch before.
//!
//! # Decision: a sink that is behind has its next batch read ahead
//!
//! Context: A read and a delivery in turns leave one processor without work, and add up.
//! Decision: While a sink has a batch, a thread reads the next one, where a whole one is there. A rate, notifications and batches
//! above 4 MiB wait for the delivery. A failure, and whatever else reads the journal for the sink, drops what was read.
//! Cost: A second batch in memory for each sink that is behind.

use std::pin::Pin;

use futures::FutureExt as _;
use futures::future::{BoxFuture, MaybeDone, maybe_done};

use super::feed::{Batch, Feed, Pause};
use super::incidents::Moment;
use super::{
    DeliveryError, Driver, Duration, IDLE_ACKNOWLEDGE_INTERVAL, Input, Instant, JournalError, Limits, Outcome, Seq,
    runtime,
};

/// Bytes of the largest batch that is read ahead, by its limits. The last entry of a batch may go beyond them.
const AHEAD_BYTES: usize = 4 << 20;

/// Entries that tell how large the first ones are.
const SAMPLE: Limits = Limits { entries: 64, bytes: 1 << 20, linger: Duration::ZERO };

/// A read on a blocking thread: the feed comes back with what it read.
type Read = BoxFuture<'static, (Feed, Result<Batch, JournalError>)>;

/// A batch that is read while the sink has the one before.
pub(super) struct Ahead {
    after: Seq,
    limits: Limits,
    read: MaybeDone<Read>,
}

/// Reports whether two batches of a sink may be in memory: by its limits, and by the bytes of the batch that it has.
const fn is_small(limits: Limits, held: usize) -> bool {
    limits.bytes <= AHEAD_BYTES && held <= 2 * AHEAD_BYTES
}

/// Awaits `work`, and lets the read ahead begin and go on beside it.
pub(super) async fn beside<T>(work: impl Future<Output = T>, ahead: Option<&mut Ahead>) -> T {
    tokio::pin!(work);
    if let Some(ahead) = ahead {
        tokio::select! {
            biased;
            () = &mut ahead.read => {}
            done = &mut work => return done,
        }
    }
    work.await
}

impl Driver {
    /// Waits until the next batch may be read: the rate allows it, and it is as large as the sink wants it, or has
    /// waited long enough to become so. Gives what came in between.
    pub(super) async fn gather(&mut self, after: Seq) -> Option<Outcome> {
        if let Some(pause) = self.pause.take() {
            return self.undecided(pause).await;
        }
        let limits = self.limits();
        let mut head = self.journal.head();
        let lingers = !limits.linger.is_zero() && *head.borrow() > after;
        if lingers && self.entry_bytes.is_none() {
            self.entry_bytes = self.sample(after).await;
        }
        let full = self.full_after(after, limits);
        let until = self.pace.as_ref().map(|pace| pace.next).filter(|next| *next > Instant::now());
        if !lingers && until.is_none() {
            return None;
        }
        let ready = async {
            if let Some(until) = until {
                tokio::time::sleep_until(until).await;
            }
            if lingers {
                // A head that never moves again is the end of the writer, which the next read reports.
                drop(tokio::time::timeout(limits.linger, head.wait_for(|head| *head >= full)).await);
            }
        };
        tokio::select! {
            biased;
            () = self.stop.cancelled() => Some(Outcome::Stop),
            () = self.reopen.notified() => Some(Outcome::Input(Input::Reopen)),
            () = ready => None,
        }
    }

    /// Waits until more is known of what was read. Gives what came in between.
    async fn undecided(&mut self, Pause { after, until }: Pause) -> Option<Outcome> {
        let mut head = self.journal.head();
        tokio::select! {
            biased;
            () = self.stop.cancelled() => Some(Outcome::Stop),
            () = self.reopen.notified() => Some(Outcome::Input(Input::Reopen)),
            // A head that never moves again is the end of the writer, which a later wait reports.
            Ok(_) = head.wait_for(|head| *head > after) => None,
            () = tokio::time::sleep_until(until) => None,
        }
    }

    /// Returns the limits of a batch: those of the sink, reduced to its rate.
    fn limits(&self) -> Limits {
        self.pace.as_ref().map_or_else(|| self.sink.limits(), |pace| pace.limits(self.sink.limits()))
    }

    /// Returns the average size of the next entries, in bytes. None where they cannot be read, which the next read reports.
    async fn sample(&mut self, after: Seq) -> Option<usize> {
        let at = Moment { clock: runtime::now().as_microsecond(), now: Instant::now(), is_whole: false };
        let read = self.reading(move |feed| match feed.incidents {
            Some(_) => None,
            None => feed.read(after, SAMPLE, at).ok(),
        });
        read.await.map(|batch| batch.entry_bytes.max(1))
    }

    /// Returns the seq up to which a whole batch goes. Nobody knows the size of entries before they are read; they are about as large
    /// as those before them.
    fn full_after(&self, after: Seq, limits: Limits) -> Seq {
        let entries = limits.entries.min(limits.bytes / self.entry_bytes.unwrap_or(1)).max(1);
        Seq(after.0.saturating_add(entries as u64))
    }

    /// Lets the next batch be read while the sink has this one, if a whole one is there. [`beside`] begins it.
    pub(super) fn read_ahead(&mut self) {
        let Some(after) = self.read_upto.take() else { return };
        let limits = self.limits();
        let is_plain = self.pace.is_none() && self.feed.as_ref().is_some_and(|feed| feed.incidents.is_none());
        let is_behind = *self.journal.head().borrow() >= self.full_after(after, limits);
        let held: usize = self.batch.iter().map(|item| item.line.len()).sum();
        if !is_plain || !is_behind || !is_small(limits, held) {
            return;
        }
        let Some(mut feed) = self.feed.take() else { return };
        let at = Moment { clock: runtime::now().as_microsecond(), now: Instant::now(), is_whole: false };
        let read = runtime::blocking(move || {
            let batch = feed.read(after, limits, at);
            (feed, batch)
        });
        self.ahead = Some(Ahead { after, limits, read: maybe_done(read.boxed()) });
    }

    /// Waits for the read ahead, if one is under way, and takes the feed back. Returns the read with its result.
    async fn end_ahead(&mut self) -> Option<(Ahead, Result<Batch, JournalError>)> {
        let mut ahead = self.ahead.take()?;
        (&mut ahead.read).await;
        let (feed, batch) = Pin::new(&mut ahead.read).take_output()?;
        self.feed = Some(feed);
        Some((ahead, batch))
    }

    /// Takes the feed back from a read ahead, whose batch nobody needs any more.
    pub(super) async fn drop_ahead(&mut self) {
        drop(self.end_ahead().await);
    }

    /// Returns the batch after this seq with these limits, if it was read ahead. A failure may be over since.
    async fn take_ahead(&mut self, after: Seq, limits: Limits) -> Option<Batch> {
        let (ahead, batch) = self.end_ahead().await?;
        batch.ok().filter(|_| ahead.after == after && ahead.limits == limits)
    }

    /// Reads the journal on a blocking thread.
    pub(super) async fn reading<T: Send + 'static>(&mut self, work: impl FnOnce(&mut Feed) -> T + Send + 'static) -> T {
        self.drop_ahead().await;
        let mut feed = self.feed.take().expect("one read at a time");
        let (feed, done) = runtime::blocking(move || {
            let done = work(&mut feed);
            (feed, done)
        })
        .await;
        self.feed = Some(feed);
        done
    }

    /// Reads the next batch, or takes the one that was read ahead.
    pub(super) async fn read(&mut self, name: &str, after: Seq) -> Result<Input, DeliveryError> {
        let limits = self.limits();
        let (clock, now) = (runtime::now().as_microsecond(), Instant::now());
        let is_whole = self.due.take().is_some_and(|due| due <= now);
        if is_whole {
            // What the writer stamps from here on is later than `clock`.
            self.journal.ping().await?;
        }
        let at = Moment { clock, now, is_whole };
        let read = match self.take_ahead(after, limits).await {
            Some(batch) => Ok(batch),
            None => self.reading(move |feed| feed.read(after, limits, at)).await,
        };
        let batch = match read {
            Ok(batch) => batch,
            // A damaged entry stops the sinks that need it, and nothing else.
            Err(JournalError::Corrupt(text)) => return Ok(Input::Unreadable(text)),
            Err(error) => return Err(error.into()),
        };
        (self.pause, self.due) = (batch.pause, batch.pause.map(|pause| pause.until));
        let Some(upto) = batch.upto else { return Ok(Input::Nothing) };
        self.entry_bytes = Some(batch.entry_bytes.max(1));
        self.messages.extend(batch.left_out);
        if batch.hole {
            let first = batch.items.first().map_or(upto.0, |item| item.seq.0);
            tracing::warn!(
                sink = name,
                after = after.0,
                first,
                "the journal dropped entries before this sink had received them: it gets a GAP for them"
            );
        }
        (self.batch, self.whole, self.digests, self.own) = (batch.items, batch.whole, batch.digests, batch.own);
        self.read_upto = Some(upto);
        let wanted = self.batch.iter().map(|item| item.seq).collect();
        Ok(Input::Read { upto, wanted, due: self.acknowledged.elapsed() >= IDLE_ACKNOWLEDGE_INTERVAL })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Batches of this size take megabytes to deliver.
    #[test]
    fn large_batches_are_not_read_ahead() {
        for (limit, held, is_read) in [
            (256 << 10, 200 << 10, true),
            (4 << 20, (4 << 20) + 9_000, true),
            (4 << 20, (8 << 20) + 9_000, false),
            (256 << 10, 9 << 20, false),
            (16 << 20, 1 << 20, false),
        ] {
            let limits = Limits { entries: 1000, bytes: limit, linger: Duration::ZERO };
            assert_eq!(is_small(limits, held), is_read, "{limit} {held}");
        }
    }
}
