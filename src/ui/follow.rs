//! The log as it goes on, for a page: server-sent events, each with the place up to which the page has everything then.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::stream;
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::{Instant, sleep};

use super::answer::Problem;
use super::index::outline;
use super::query::{Asked, Query};
use super::summary::Summaries;
use super::window::Narrow;
use super::{Book, Site};
use crate::churn::Classes;
use crate::journal::Reader;
use crate::journal::outline::{Builder, Part};
use crate::model::Seq;
use crate::words::clock::Clock;

/// A page that lacks more entries than this loads its window again: that is less than all of them.
const BEHIND: u64 = 20_000;
/// Number of entries that are read between two waits.
const PAGE: u64 = 256;
/// Interval of keepalive comments while nothing is sent.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// Interval at which the page gets its cursor while no entry passes.
const CURSOR_INTERVAL: Duration = Duration::from_secs(5);
/// Time for which entries are collected before they are sent.
const BATCH_LINGER: Duration = Duration::from_millis(100);
/// A stream ends after this, and the browser asks again: so who may not read any more is found out.
const STREAM_AGE_MAX: Duration = Duration::from_secs(600);

/// Position of a page: the epoch, and the seq up to which it has everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cursor {
    epoch: String,
    seq: u64,
}

impl Cursor {
    fn read(text: &str) -> Option<Self> {
        let (epoch, seq) = text.rsplit_once(':')?;
        Some(Self { epoch: epoch.to_owned(), seq: seq.parse().ok()? })
    }
}

impl std::fmt::Display for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.epoch, self.seq)
    }
}

struct Following {
    site: Arc<Site>,
    book: Arc<Book>,
    query: Query,
    cursor: Cursor,
    head: watch::Receiver<u64>,
    pending: VecDeque<Bytes>,
    begun: Instant,
    /// Time at which the page last got its cursor.
    placed: Instant,
    ended: bool,
    _slot: OwnedSemaphorePermit,
}

/// Result of one read.
struct Looked {
    events: Vec<Bytes>,
    cursor: Cursor,
    /// The page has to load its window again.
    reload: bool,
    /// There is more at once.
    more: bool,
}

#[derive(Serialize)]
struct Place<'a> {
    cursor: &'a str,
}

#[derive(Serialize)]
struct Reload {
    why: &'static str,
}

fn event(name: &str, id: Option<&Cursor>, data: &impl Serialize) -> Bytes {
    // JSON has no line breaks, and a journal's name has none either.
    let data = serde_json::to_string(data).unwrap_or_default();
    let id = id.map_or_else(String::new, |id| format!("id: {id}\n"));
    format!("{id}event: {name}\ndata: {data}\n\n").into()
}

/// Begins to follow, from the place that a page says.
pub(super) async fn follow(
    site: &Arc<Site>,
    book: &Arc<Book>,
    query: Query,
    last: Option<&str>,
    slot: OwnedSemaphorePermit,
) -> Result<Response, Problem> {
    let text = last.or_else(|| query.one("after"));
    let cursor = match text {
        Some(text) => Some(
            Cursor::read(text)
                .ok_or_else(|| Problem::wrong("after", "after: expected the `cursor` of an answer, EPOCH:SEQ"))?,
        ),
        None => None,
    };
    // What it asks for is looked at once before anything is sent, so that what is wrong with it can be said.
    let asked = query.clone();
    let now = site
        .read(book, move |reader| {
            Asked::read(&asked, reader, &super::clock())?;
            Ok(Cursor { epoch: reader.epoch()?, seq: reader.head()?.0 })
        })
        .await?;
    let begun = Instant::now();
    let following = Following {
        site: Arc::clone(site),
        book: Arc::clone(book),
        query,
        cursor: cursor.unwrap_or(now),
        head: book.head.subscribe(),
        pending: VecDeque::from([Bytes::from_static(b"retry: 2000\n\n")]),
        begun,
        placed: begun.checked_sub(CURSOR_INTERVAL).unwrap_or(begun),
        ended: false,
        _slot: slot,
    };
    let pieces = stream::unfold(following, |mut following| async move {
        let piece = following.next().await?;
        Some((Ok::<_, Infallible>(piece), following))
    });
    Ok(([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(pieces)).into_response())
}

impl Following {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(piece) = self.pending.pop_front() {
                return Some(piece);
            }
            if self.ended || self.begun.elapsed() > STREAM_AGE_MAX {
                return None;
            }
            self.head.mark_unchanged();
            let (query, cursor) = (self.query.clone(), self.cursor.clone());
            let Ok(looked) = self.site.read(&self.book, move |reader| look(reader, &query, cursor)).await else {
                // It is asked again, and told what is wrong.
                return None;
            };
            let moved = looked.cursor != self.cursor;
            self.cursor = looked.cursor;
            self.ended = looked.reload;
            self.pending.extend(looked.events);
            let due = self.placed.elapsed() >= CURSOR_INTERVAL || moved && !looked.more;
            if due && !self.ended {
                self.placed = Instant::now();
                self.pending.push_back(event("at", Some(&self.cursor), &Place { cursor: &self.cursor.to_string() }));
            }
            if !self.pending.is_empty() || looked.more {
                continue;
            }
            tokio::select! {
                changed = self.head.changed() => match changed {
                    Ok(()) => sleep(BATCH_LINGER).await,
                    Err(_) => return None,
                },
                () = sleep(KEEPALIVE_INTERVAL) => return Some(Bytes::from_static(b": it goes on\n\n")),
            }
        }
    }
}

/// Returns the events behind a cursor.
fn look(reader: &mut Reader, query: &Query, cursor: Cursor) -> Result<Looked, Problem> {
    let (epoch, head, oldest) = (reader.epoch()?, reader.head()?.0, reader.retained()?.oldest);
    let reload = |why| {
        let cursor = Cursor { epoch: epoch.clone(), seq: head };
        Ok(Looked { events: vec![event("reload", None, &Reload { why })], cursor, reload: true, more: false })
    };
    if cursor.epoch != epoch || cursor.seq > head {
        return reload("epoch");
    }
    if head - cursor.seq > BEHIND || cursor.seq + 1 < oldest {
        return reload("behind");
    }
    let upto = head.min(cursor.seq + PAGE);
    let reached = Cursor { epoch: epoch.clone(), seq: upto };
    let mut events = Vec::new();
    if upto > cursor.seq {
        let clock = super::clock();
        let asked = Asked::read(query, reader, &Clock { now: clock.now, zone: clock.zone.clone() })?;
        let (classes, summaries) = (Classes::default(), Summaries::new(&clock, Seq(head)));
        let narrow = Narrow::of(&asked);
        let mut unanswered = false;
        reader.rows_between(Seq(cursor.seq + 1), Seq(upto), &mut |row| {
            let (mark, words) = outline(&classes, &row);
            let mut builder = Builder::default();
            builder.add(mark, &words);
            let Some(part) = Part::read(builder.finish()) else { return ControlFlow::Continue(()) };
            let passes = part.marks.iter().all(|mark| narrow.takes(&part, mark)) && (asked.quiet || !mark.quiet);
            let filter = asked.filter.as_ref().filter(|_| passes);
            let Ok(selected) = filter.map_or(Ok(passes), |filter| filter.selects(&row.entry.line)) else {
                unanswered = true;
                return ControlFlow::Break(());
            };
            if selected {
                let at = Cursor { epoch: epoch.clone(), seq: mark.seq };
                events.push(event("entry", Some(&at), &summaries.of(&row.entry)));
            }
            ControlFlow::Continue(())
        })?;
        // The window, which the page loads again, has the reason.
        if unanswered {
            return reload("where");
        }
    }
    Ok(Looked { events, cursor: reached, reload: false, more: upto < head })
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

    #[test]
    fn an_event_is_three_lines() {
        let cursor = Cursor { epoch: "e".to_owned(), seq: 7 };
        let text = event("at", Some(&cursor), &Place { cursor: "e:7\n\u{2028}" });
        assert_eq!(text, "id: e:7\nevent: at\ndata: {\"cursor\":\"e:7\\n\u{2028}\"}\n\n".as_bytes());
    }
}
