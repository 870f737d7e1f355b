//! A connection to the API server, directly or through a proxy, with TLS or without.
//!
//! What comes without TLS is read in small pieces. hyper keeps a buffer for each connection, as large as the most that was
//! ever read at once: with hundreds of watches that would be most of the memory. Over TLS no piece is larger than a record.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::rt::{Read, ReadBuf, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};
use tokio_rustls::client::TlsStream;

/// The most that is read at once: as much as a record of TLS holds.
const PIECE: usize = 16 << 10;

/// Way to the other end: a connection, or one with TLS to a proxy.
pub(super) enum Hop {
    Tcp(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl AsyncRead for Hop {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut tokio::io::ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(context, into),
            Self::Tls(stream) => Pin::new(stream).poll_read(context, into),
        }
    }
}

impl AsyncWrite for Hop {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(context, from),
            Self::Tls(stream) => Pin::new(stream).poll_write(context, from),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_flush(context),
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

enum Stream {
    Plain { stream: TokioIo<Hop>, piece: Box<[u8]> },
    Tls(TokioIo<Box<TlsStream<Hop>>>),
}

/// The connection that hyper speaks over.
pub(super) struct Link {
    stream: Stream,
    /// A proxy takes requests with their whole address.
    is_proxied: bool,
    /// Time for which the other end may accept nothing of what is written.
    patience: Option<Duration>,
    stuck: Option<Pin<Box<Sleep>>>,
}

impl Link {
    pub(super) fn plain(hop: Hop, is_proxied: bool, patience: Option<Duration>) -> Self {
        let stream = Stream::Plain { stream: TokioIo::new(hop), piece: vec![0; PIECE].into() };
        Self { stream, is_proxied, patience, stuck: None }
    }

    pub(super) fn tls(stream: TlsStream<Hop>, patience: Option<Duration>) -> Self {
        let stream = Stream::Tls(TokioIo::new(Box::new(stream)));
        Self { stream, is_proxied: false, patience, stuck: None }
    }

    fn writing(&mut self) -> Pin<&mut (dyn Write + Send + Unpin)> {
        match &mut self.stream {
            Stream::Plain { stream, .. } => Pin::new(stream),
            Stream::Tls(stream) => Pin::new(stream),
        }
    }

    /// Ends a write that makes no progress for too long.
    fn bounded<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stuck = None;
            return written;
        }
        let Some(patience) = self.patience else { return written };
        let stuck = self.stuck.get_or_insert_with(|| Box::pin(sleep(patience)));
        ready!(stuck.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, format!("it took nothing for {patience:?}"))))
    }
}

impl Connection for Link {
    fn connected(&self) -> Connected {
        Connected::new().proxy(self.is_proxied)
    }
}

impl Read for Link {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut into: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Tls(stream) => Pin::new(stream).poll_read(context, into),
            Stream::Plain { stream, piece } => {
                let most = piece.len().min(into.remaining());
                let mut read = ReadBuf::new(&mut piece[..most]);
                let done = Pin::new(stream).poll_read(context, read.unfilled());
                if matches!(done, Poll::Ready(Ok(()))) {
                    into.put_slice(read.filled());
                }
                done
            }
        }
    }
}

impl Write for Link {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        let written = self.writing().poll_write(context, from);
        self.bounded(context, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = self.writing().poll_flush(context);
        self.bounded(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ended = self.writing().poll_shutdown(context);
        self.bounded(context, ended)
    }
}
