//! Entries on standard output, one per line: best effort, holes are visible by seq.

mod settings;

pub use settings::Settings;

use std::io::{self, ErrorKind, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;

use super::{Class, Failure, Item, Limits, LogPosition, Sink, SinkError};
use crate::core::model::Seq;
use crate::core::os;

/// Standard output, or in tests whatever takes bytes.
pub struct StdoutSink {
    lines: Arc<Mutex<Lines>>,
}

struct Lines {
    out: Option<Box<dyn Write + Send>>,
    /// A line of which a part is out: its seq, and how many bytes.
    part: Option<(Seq, usize)>,
}

impl std::fmt::Debug for StdoutSink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StdoutSink")
    }
}

impl Default for StdoutSink {
    fn default() -> Self {
        Self::new()
    }
}

impl StdoutSink {
    /// The process's standard output.
    #[must_use]
    pub fn new() -> Self {
        Self { lines: Arc::new(Mutex::new(Lines { out: None, part: None })) }
    }

    #[cfg(test)]
    fn to(out: impl Write + Send + 'static) -> Self {
        Self { lines: Arc::new(Mutex::new(Lines { out: Some(Box::new(out)), part: None })) }
    }
}

impl Lines {
    #[expect(clippy::wildcard_enum_match_arm, reason = "there are dozens of kinds, and the text of each is reported")]
    fn write(&mut self, batch: &[Item]) -> Result<(), Failure> {
        let out = match &mut self.out {
            Some(out) => out,
            None => {
                // A duplicate of the descriptor, because the standard library's handle keeps a part of a line in a
                // buffer of its own when a write fails.
                let file = os::plain_stdout().map_err(|error| Failure {
                    taken: 0,
                    error: SinkError::halt(format!("standard output cannot be used: {error}")),
                })?;
                self.out.insert(Box::new(file))
            }
        };
        let mut bytes = Vec::with_capacity(batch.iter().map(|item| item.line.len() + 1).sum());
        let mut ends = Vec::with_capacity(batch.len());
        for item in batch {
            bytes.extend_from_slice(&item.line);
            bytes.push(b'\n');
            ends.push(bytes.len());
        }
        let old = self.part.take();
        // The rest of a line that is not the first of this batch will never come: it is ended, so that no other line
        // continues it.
        let (mut done, ended) = match (old, batch.first()) {
            (Some((seq, part)), Some(first)) if first.seq == seq => (part, 0),
            (Some(_), _) => {
                bytes.insert(0, b'\n');
                ends.iter_mut().for_each(|end| *end += 1);
                (0, 1)
            }
            (None, _) => (0, 0),
        };
        while done < bytes.len() {
            let error = match out.write(&bytes[done..]) {
                Ok(0) => io::Error::from(ErrorKind::WriteZero),
                Ok(count) => {
                    done += count;
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => error,
            };
            let taken = ends.partition_point(|end| *end <= done);
            let start = taken.checked_sub(1).map_or(ended, |last| ends[last]);
            self.part = if done < ended { old } else { (done > start).then(|| (batch[taken].seq, done - start)) };
            let error = match error.kind() {
                ErrorKind::WouldBlock => SinkError::Retry {
                    text: "standard output takes no more for now; its reader is slow".to_owned(),
                    after: Some(Duration::from_millis(50)),
                },
                ErrorKind::BrokenPipe => SinkError::halt(
                    "nobody reads standard output any more; start decklog again with a reader, or take this sink out",
                ),
                _ => SinkError::retry(format!("cannot write to standard output: {error}")),
            };
            return Err(Failure { taken, error });
        }
        Ok(())
    }
}

impl Sink for StdoutSink {
    fn class(&self) -> Class {
        Class::BestEffort
    }

    fn limits(&self) -> Limits {
        Limits { entries: 256, bytes: 256 << 10, linger: Duration::ZERO }
    }

    fn position<'a>(&'a mut self, _cursor: &'a LogPosition) -> BoxFuture<'a, Result<Option<LogPosition>, SinkError>> {
        std::future::ready(Ok(None)).boxed()
    }

    fn deliver<'a>(&'a mut self, batch: &'a [Item]) -> BoxFuture<'a, Result<(), Failure>> {
        let (lines, batch) = (Arc::clone(&self.lines), batch.to_vec());
        async move {
            // A terminal or a pipe can block for as long as its reader likes.
            let write = move || lines.lock().unwrap_or_else(PoisonError::into_inner).write(&batch);
            tokio::task::spawn_blocking(write).await.unwrap_or_else(|_| {
                Err(Failure { taken: 0, error: SinkError::halt("writing to standard output panicked; this is a bug") })
            })
        }
        .boxed()
    }

    fn reopen(&mut self) {}

    fn check(&mut self) -> BoxFuture<'_, Result<(), SinkError>> {
        std::future::ready(Ok(())).boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::tests::item;

    /// Takes what the script says, one number per write.
    struct Scripted {
        script: Vec<Result<usize, ErrorKind>>,
        seen: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Scripted {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let step = if self.script.is_empty() { Ok(usize::MAX) } else { self.script.remove(0) };
            let count = step.map_err(io::Error::from)?.min(bytes.len());
            self.seen.lock().unwrap().extend_from_slice(&bytes[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn a_line_that_was_cut_is_continued_where_it_was() {
        let batch: Vec<Item> = (1..=3).map(item).collect();
        let whole: Vec<u8> = batch.iter().flat_map(|item| [&item.line[..], b"\n"].concat()).collect();
        for cut in 0..whole.len() {
            let seen = Arc::default();
            let script = vec![Ok(cut), Err(ErrorKind::WouldBlock)];
            let script = if cut == 0 { script[1..].to_vec() } else { script };
            let mut sink = StdoutSink::to(Scripted { script, seen: Arc::clone(&seen) });
            let failure = sink.deliver(&batch).await.unwrap_err();
            assert!(matches!(failure.error, SinkError::Retry { .. }), "{failure}");
            sink.deliver(&batch[failure.taken..]).await.unwrap();
            assert_eq!(*seen.lock().unwrap(), whole, "cut at {cut}");
        }
    }

    #[tokio::test]
    async fn a_line_that_is_not_continued_is_ended() {
        let seen = Arc::default();
        let script = vec![Ok(5), Err(ErrorKind::WouldBlock)];
        let mut sink = StdoutSink::to(Scripted { script, seen: Arc::clone(&seen) });
        sink.deliver(&[item(1)]).await.unwrap_err();
        sink.deliver(&[item(2)]).await.unwrap();
        let text = String::from_utf8(seen.lock().unwrap().clone()).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines[0].len(), lines[1].as_bytes()), (5, &item(2).line[..]));
    }

    /// Fault 79: the pipe is closed.
    #[tokio::test]
    async fn a_closed_pipe_halts_and_says_so() {
        let script = vec![Err(ErrorKind::BrokenPipe)];
        let mut sink = StdoutSink::to(Scripted { script, seen: Arc::default() });
        let failure = sink.deliver(&[item(1)]).await.unwrap_err();
        assert!(matches!(&failure.error, SinkError::Halt { text } if text.contains("nobody reads")), "{failure}");
    }
}
