//! The log as it goes on, for a page: server-sent events, each with the place up to which the page has everything then.

use std::collections::VecDeque;
use std::convert::Infallible;
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
use super::query::Query;
use super::{JournalView, Site, asked};
use crate::core::rights::Sight;
use crate::core::runtime;
use crate::query::timeline::updates::{Cursor, Updates};

/// Interval of keepalive comments while nothing is sent.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// Interval at which the page gets its cursor while no entry passes.
const CURSOR_INTERVAL: Duration = Duration::from_secs(5);
/// Time for which entries are collected before they are sent.
const BATCH_LINGER: Duration = Duration::from_millis(100);
/// A stream ends after this, and the browser asks again: so who may not read any more is found out.
const STREAM_AGE_MAX: Duration = Duration::from_secs(600);

struct Following {
    site: Arc<Site>,
    view: Arc<JournalView>,
    sight: Sight,
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

#[derive(Serialize)]
struct Place<'a> {
    cursor: &'a str,
}

#[derive(Serialize)]
struct Reload<'a> {
    why: &'a str,
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
    (view, sight): (&Arc<JournalView>, Sight),
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
    // It is asked once before anything is sent, so that what is wrong with the question can be said.
    let first = Updates { window: query.window(&super::clock())?, after: None };
    let now = site.read((view, &sight), false, move |log| asked(log, first.clone())).await?.cursor;
    let begun = Instant::now();
    let following = Following {
        site: Arc::clone(site),
        view: Arc::clone(view),
        sight,
        query,
        cursor: cursor.unwrap_or(now),
        head: view.head.subscribe(),
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
    /// Reports whether the rights on which the stream stands hold, and reviews those that have run out.
    async fn stands(&self) -> bool {
        if !self.sight.is_unsettled() {
            return true;
        }
        let sight = self.sight.clone();
        runtime::blocking(move || sight.settle()).await.is_ok()
    }

    async fn next(&mut self) -> Option<Bytes> {
        loop {
            // A page that reads slowly gets what it may see by then, and a stream that waits ends with its rights.
            if !self.stands().await {
                return None;
            }
            if let Some(piece) = self.pending.pop_front() {
                return Some(piece);
            }
            if self.ended || self.begun.elapsed() > STREAM_AGE_MAX {
                return None;
            }
            self.head.mark_unchanged();
            // A moment such as `2h` goes on with the time.
            let window = self.query.window(&super::clock()).ok()?;
            let question = Updates { window, after: Some(self.cursor.clone()) };
            let reading = self.site.read((&self.view, &self.sight), false, move |log| asked(log, question.clone()));
            let Ok(update) = reading.await else {
                // The page asks again, and gets the sentence.
                return None;
            };
            let moved = update.cursor != self.cursor;
            self.cursor = update.cursor;
            self.ended = update.reload.is_some();
            self.pending.extend(update.entries.iter().map(|entry| {
                let at = Cursor { epoch: self.cursor.epoch.clone(), seq: entry.seq };
                event("entry", Some(&at), entry)
            }));
            self.pending.extend(update.reload.map(|why| event("reload", None, &Reload { why: &why })));
            let due = self.placed.elapsed() >= CURSOR_INTERVAL || moved && !update.more;
            if due && !self.ended {
                self.placed = Instant::now();
                self.pending.push_back(event("at", Some(&self.cursor), &Place { cursor: &self.cursor.to_string() }));
            }
            if !self.pending.is_empty() || update.more {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_three_lines() {
        let cursor = Cursor { epoch: "e".to_owned(), seq: 7 };
        let text = event("at", Some(&cursor), &Place { cursor: "e:7\n\u{2028}" });
        assert_eq!(text, "id: e:7\nevent: at\ndata: {\"cursor\":\"e:7\\n\u{2028}\"}\n\n".as_bytes());
    }
}
