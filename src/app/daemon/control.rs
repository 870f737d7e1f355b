//! Requests to the daemon of one cluster while it runs. In a process with one cluster they come from signals.
//!
//! A cluster's run knows no signals. It is asked to stop, to stop at once, and to take another configuration, and where
//! one process has many clusters, each of them is asked alone.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::app::config::Loaded;

/// Capacity of the queue of configurations; a requester waits for the answer to the previous one.
pub(super) const QUEUED: usize = 16;

/// Requests to the run of one cluster.
#[derive(Debug)]
pub struct Control {
    /// Ends it in order.
    pub stop: CancellationToken,
    /// Ends it at once, also where it is ending already.
    pub hurry: CancellationToken,
    /// Configurations to take, in their order.
    pub reloads: mpsc::Receiver<Reload>,
}

/// A configuration to take.
#[derive(Debug)]
pub struct Reload {
    /// The configuration, or its errors.
    pub loaded: Result<Loaded, String>,
    /// Says whether it was taken, or why not.
    pub done: oneshot::Sender<Result<(), String>>,
}

/// Asks a cluster's run.
#[derive(Clone, Debug)]
pub struct Asker {
    stop: CancellationToken,
    hurry: CancellationToken,
    reloads: mpsc::Sender<Reload>,
}

/// Creates the two ends of the control channel.
#[must_use]
pub fn control() -> (Control, Asker) {
    let (stop, hurry) = (CancellationToken::new(), CancellationToken::new());
    let (sender, reloads) = mpsc::channel(QUEUED);
    (Control { stop: stop.clone(), hurry: hurry.clone(), reloads }, Asker { stop, hurry, reloads: sender })
}

impl Asker {
    /// Asks it to end; the second time, to end at once.
    pub fn stop(&self) {
        if self.stop.is_cancelled() {
            self.hurry.cancel();
        }
        self.stop.cancel();
    }

    /// Has it take another configuration. What comes back is whether it did; an error where it has ended before, or takes
    /// none.
    pub fn reload(&self, loaded: Result<Loaded, String>) -> oneshot::Receiver<Result<(), String>> {
        let (done, taken) = oneshot::channel();
        // Where that cannot be, the receiver says so.
        drop(self.reloads.try_send(Reload { loaded, done }));
        taken
    }
}

/// Request by a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SignalRequest {
    /// To end; the second time, at once.
    Stop,
    /// To read the configuration again.
    Reload,
}

/// The signals of this process.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
    /// Never looked at: with a handler, a write beyond the limit of a file's size fails, and does not end the process.
    _file_size: Signal,
}

impl Signals {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
            _file_size: signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?,
        })
    }

    /// The next thing that is asked. Dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> SignalRequest {
        tokio::select! {
            biased;
            _ = self.terminate.recv() => { tracing::info!("SIGTERM: stopping"); SignalRequest::Stop }
            _ = self.interrupt.recv() => { tracing::info!("SIGINT: stopping"); SignalRequest::Stop }
            _ = self.hang_up.recv() => SignalRequest::Reload,
        }
    }

    /// Passes on what is asked of the one cluster of this process, for ever. Signals that come while it takes a configuration
    /// are one.
    pub(super) async fn pass_on(mut self, asker: Asker, read_again: impl Fn() -> Result<Loaded, String>) -> ! {
        let mut asked = None;
        loop {
            tokio::select! {
                biased;
                _ = self.terminate.recv() => { tracing::info!("SIGTERM: stopping"); asker.stop(); }
                _ = self.interrupt.recv() => { tracing::info!("SIGINT: stopping"); asker.stop(); }
                () = answered(&mut asked), if asked.is_some() => asked = None,
                _ = self.hang_up.recv(), if asked.is_none() => asked = Some(asker.reload(read_again())),
            }
        }
    }
}

async fn answered(asked: &mut Option<oneshot::Receiver<Result<(), String>>>) {
    if let Some(asked) = asked {
        drop(asked.await);
    }
}
