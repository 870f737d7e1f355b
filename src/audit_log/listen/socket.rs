//! JSON Lines over a unix socket. There is no answer: a sender that has to know sends over HTTP.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{Handler, Refusal};
use crate::audit_log::lines::{Line, Splitter};
use crate::core::net::server::Peer;
use crate::core::os::{UnixListener, UnixStream};

/// Connections at a time; others wait.
const MOST_CONNECTIONS: usize = 16;
/// Bytes that are read at a time.
const PIECE_BYTES: usize = 64 << 10;
/// Shortest wait before lines are handed on again.
const AGAIN_MIN: Duration = Duration::from_millis(100);
/// Delay before the next accept after a failed one.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(200);

/// Serves every connection until `stop`.
pub(super) async fn serve<H: Handler>(
    listener: UnixListener,
    handler: Arc<H>,
    stop: CancellationToken,
) -> io::Result<()> {
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            Some(_ended) = connections.join_next() => continue,
            accepted = listener.accept(), if connections.len() < MOST_CONNECTIONS => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                connections.spawn(serve_one(stream, Arc::clone(&handler), stop.clone()));
            }
            Err(error) => {
                tracing::debug!(%error, "a connection was not taken");
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
            }
        }
    }
    // Each ends behind the lines that it is handing on.
    while connections.join_next().await.is_some() {}
    Ok(())
}

async fn serve_one<H: Handler>(mut stream: UnixStream, handler: Arc<H>, stop: CancellationToken) {
    let peer = Peer::Unix(stream.peer_cred().ok().map(|peer| peer.uid()));
    let mut splitter = Splitter::default();
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let read = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            read = stream.read(&mut piece) => read,
        };
        // A connection that is broken ends within a line; one that is closed may have left out the last end of a line.
        let Ok(read) = read else { return };
        splitter.push(&piece[..read]);
        let mut lines: Vec<Line> = std::iter::from_fn(|| splitter.next()).collect();
        if read == 0 {
            lines.extend(splitter.finish());
        }
        if !lines.is_empty() && !hand_on(&handler, lines, &peer, &stop).await || read == 0 {
            return;
        }
    }
}

/// Hands lines on until they are committed. Returns false if nothing more is to be read.
async fn hand_on<H: Handler>(handler: &Arc<H>, lines: Vec<Line>, peer: &Peer, stop: &CancellationToken) -> bool {
    loop {
        match handler.lines(lines.clone(), peer.clone()).await {
            Ok(()) => return true,
            Err(Refusal::Busy(again)) => {
                tokio::select! {
                    biased;
                    () = stop.cancelled() => return false,
                    () = tokio::time::sleep(again.max(AGAIN_MIN)) => {}
                }
            }
            Err(Refusal::NotUnderstood(text)) => {
                tracing::warn!("audit events of a unix socket are skipped: {text}");
                return true;
            }
            Err(Refusal::Forbidden(text)) => {
                tracing::warn!("a connection with audit events is closed: {text}");
                return false;
            }
        }
    }
}
