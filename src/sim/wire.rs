//! Bytes on their way to a client: the connection, and bodies that faults can reach into.

use std::collections::VecDeque;
use std::future::pending;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::faults::{At, How, Tamper, Then};
use super::list::Pages;
use super::watching::{Step, Watcher};

/// The body of an answer.
pub type Body = UnsyncBoxBody<Bytes, Broken>;

/// A body ends here and the connection with it, on purpose.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the script breaks this connection")]
pub struct Broken;

/// What a connection and the answers on it say to each other.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// Closing is to send RST, not FIN.
    pub(super) reset: AtomicBool,
    /// There is no socket: what a body gives is with the client.
    direct: bool,
    /// Counts how often all that was written had reached the socket.
    flushes: watch::Sender<u64>,
}

impl Line {
    /// One without a socket.
    pub(super) fn direct() -> Self {
        Self { direct: true, ..Self::default() }
    }

    /// Waits until what was handed to hyper before has reached the socket: a body that breaks at a
    /// certain byte has sent all bytes before that one.
    async fn flushed(&self) {
        if self.direct {
            return;
        }
        let mut flushes = self.flushes.subscribe();
        // The sender lives as long as this line; an error would mean nobody flushes any more.
        if flushes.changed().await.is_err() {
            pending::<()>().await;
        }
    }
}

/// A TCP connection that can be made to end in a reset.
#[derive(Debug)]
pub(super) struct Wire {
    stream: TcpStream,
    line: Arc<Line>,
}

impl Wire {
    pub(super) fn new(stream: TcpStream) -> (Self, Arc<Line>) {
        let line = Arc::new(Line::default());
        (Self { stream, line: Arc::clone(&line) }, line)
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        if self.line.reset.load(Ordering::Relaxed) {
            // Where this fails the client sees an ordinary end instead, which tests notice.
            self.stream.set_zero_linger().ok();
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.line.flushes.send_modify(|count| *count += 1);
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.line.reset.load(Ordering::Relaxed) {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Where the bytes of a body come from.
pub(super) enum Source {
    Whole(Option<Bytes>),
    Pages(Pages),
    Watch(Box<Watcher>),
}

impl Source {
    async fn next(&mut self, one_line: bool) -> Step {
        let next = match self {
            Self::Whole(bytes) => bytes.take().map(Step::Send),
            Self::Pages(pages) => pages.next(one_line).map(Step::Send),
            Self::Watch(watcher) => Some(watcher.next(one_line).await),
        };
        next.unwrap_or(Step::Then(Then::End))
    }
}

/// The body of this source, with what the script does to it.
pub(super) fn body(source: Source, tamper: Option<Tamper>, chop: Option<usize>, line: Arc<Line>) -> Body {
    if let (Source::Whole(bytes), None, None) = (&source, &tamper, chop) {
        return Full::new(bytes.clone().unwrap_or_default()).map_err(|never| match never {}).boxed_unsync();
    }
    let sending = Sending { source, tamper, chop, line, ..Sending::default() };
    let frames = stream::unfold(sending, |mut sending| async move {
        let frame = sending.next().await?;
        Some((frame.map(Frame::data), sending))
    });
    StreamBody::new(frames).boxed_unsync()
}

/// A body under way.
struct Sending {
    source: Source,
    tamper: Option<Tamper>,
    chop: Option<usize>,
    line: Arc<Line>,
    /// Steps that come before anything of the source.
    queue: VecDeque<Step>,
    lines: usize,
    bytes: usize,
    last: Bytes,
    over: bool,
}

impl Default for Sending {
    fn default() -> Self {
        Self {
            source: Source::Whole(None),
            tamper: None,
            chop: None,
            line: Arc::default(),
            queue: VecDeque::new(),
            lines: 0,
            bytes: 0,
            last: Bytes::new(),
            over: false,
        }
    }
}

impl Sending {
    async fn next(&mut self) -> Option<Result<Bytes, Broken>> {
        loop {
            if self.over {
                return None;
            }
            let Some(step) = self.queue.pop_front() else {
                self.refill().await;
                continue;
            };
            match step {
                Step::Send(mut bytes) => {
                    if let Some(most) = self.chop.filter(|most| bytes.len() > *most) {
                        let rest = bytes.split_off(most.max(1));
                        self.queue.push_front(Step::Send(rest));
                    }
                    if !bytes.is_empty() {
                        return Some(Ok(bytes));
                    }
                }
                Step::Then(Then::GoOn) => {}
                Step::Then(Then::End) => {
                    self.over = true;
                    return None;
                }
                Step::Then(Then::Stall) => pending().await,
                Step::Then(how @ (Then::Cut | Then::Reset)) => {
                    self.over = true;
                    self.line.flushed().await;
                    self.line.reset.store(how == Then::Reset, Ordering::Relaxed);
                    return Some(Err(Broken));
                }
            }
        }
    }

    /// Takes the next step of the source and lets the script change it.
    async fn refill(&mut self) {
        let Some(tamper) = self.tamper.clone() else {
            let step = self.source.next(false).await;
            self.queue.push_back(step);
            return;
        };
        match tamper.at {
            At::Byte(at) => self.refill_to_byte(at, tamper).await,
            At::Event(at) if self.lines == at => self.tamper_here(tamper).await,
            At::Event(_) => {
                let step = self.source.next(true).await;
                if let Step::Send(line) = &step {
                    self.lines += 1;
                    self.last = line.clone();
                }
                self.queue.push_back(step);
            }
        }
    }

    async fn refill_to_byte(&mut self, at: usize, tamper: Tamper) {
        let step = if self.bytes == at { None } else { Some(self.source.next(false).await) };
        let mut tail = None;
        match step {
            Some(Step::Send(mut bytes)) => {
                let room = at - self.bytes;
                if bytes.len() > room {
                    tail = Some(bytes.split_off(room));
                }
                self.bytes += bytes.len();
                self.queue.push_back(Step::Send(bytes));
            }
            Some(step @ Step::Then(_)) => {
                self.queue.push_back(step);
                return;
            }
            None => {}
        }
        if self.bytes == at {
            self.tamper = None;
            if let How::Insert(line) = tamper.how {
                self.queue.push_back(Step::Send(line));
            }
            self.queue.push_back(Step::Then(tamper.then));
            self.queue.extend(tail.map(Step::Send));
        }
    }

    async fn tamper_here(&mut self, tamper: Tamper) {
        self.tamper = None;
        let put = match tamper.how {
            How::Nothing => Vec::new(),
            How::Insert(line) => vec![line],
            How::Again => vec![self.last.clone()],
            How::Replace(line) => self.next_line().await.map(|_| line).into_iter().collect(),
            How::Half => self.next_line().await.map(|line| line.slice(..line.len() / 2)).into_iter().collect(),
            How::Garble => self
                .next_line()
                .await
                .map(|line| Bytes::from([&line[..line.len() / 2], b"\n"].concat()))
                .into_iter()
                .collect(),
            How::Pad(least) => self.next_line().await.map(|line| padded(&line, least)).into_iter().collect(),
            How::Swap => {
                let first = self.next_line().await;
                self.next_line().await.into_iter().chain(first).collect()
            }
        };
        // A source that ended meanwhile has put its own end into the queue.
        let ended = self.queue.pop_front();
        self.queue.extend(put.into_iter().map(Step::Send));
        self.queue.push_back(Step::Then(tamper.then));
        self.queue.extend(ended);
    }

    /// The next line of the source; `None` where it ends, with that end in the queue.
    async fn next_line(&mut self) -> Option<Bytes> {
        match self.source.next(true).await {
            Step::Send(line) => Some(line),
            end @ Step::Then(_) => {
                self.queue.push_back(end);
                None
            }
        }
    }
}

/// The line with blanks after its first brace.
fn padded(line: &[u8], least: usize) -> Bytes {
    let (head, tail) = line.split_at(line.len().min(1));
    let blanks = vec![b' '; least.saturating_sub(line.len())];
    Bytes::from([head, &blanks, tail].concat())
}
