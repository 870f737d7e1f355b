//! A connection that ends where its client takes nothing for too long.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// See the module.
#[derive(Debug)]
pub(super) struct Patient<S> {
    stream: S,
    limit: Duration,
    /// Since the client has begun to take nothing.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S> Patient<S> {
    pub(super) const fn new(stream: S, limit: Duration) -> Self {
        Self { stream, limit, stalled: None }
    }

    /// Returns the result of a write, or an error once the write has waited too long.
    fn waited<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() || self.limit == Duration::MAX {
            self.stalled = None;
            return written;
        }
        let limit = self.limit;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(limit)));
        match stalled.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.waited(context, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.waited(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ended = Pin::new(&mut self.stream).poll_shutdown(context);
        self.waited(context, ended)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_takes_nothing_is_waited_for_so_long() {
        let (near, mut far) = duplex(8);
        let mut near = Patient::new(near, Duration::from_secs(30));
        let begun = tokio::time::Instant::now();
        // Slow is not still: each byte is a sign of life.
        let reading = async {
            let mut bytes = [0; 4];
            for _ in 0..5 {
                tokio::time::advance(Duration::from_secs(20)).await;
                far.read_exact(&mut bytes).await.unwrap();
            }
            far
        };
        let (written, _far) = tokio::join!(near.write_all(&[0; 28]), reading);
        written.unwrap();
        assert!(begun.elapsed() >= Duration::from_secs(100));
        let stalled = tokio::time::timeout(Duration::from_secs(300), near.write_all(&[0; 8]));
        let error = stalled.await.expect("it is waited for without end").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
