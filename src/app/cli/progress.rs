//! Progress of long work: one line on standard error, only where a terminal shows it.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use super::output::{count, span};

/// The line is written at most this often.
const EVERY: Duration = Duration::from_millis(100);

/// One line that says how far some long work is; it goes away when this is dropped.
#[derive(Debug)]
pub struct Progress {
    what: String,
    unit: &'static str,
    begun: Instant,
    /// Time of the last update of the line; `None` without a terminal.
    shown: Option<Instant>,
    written: bool,
}

impl Progress {
    /// Work named `what`, counted in `unit`.
    pub fn new(what: impl Into<String>, unit: &'static str) -> Self {
        let now = Instant::now();
        let seen = io::stderr().is_terminal();
        Self { what: what.into(), unit, begun: now, shown: seen.then_some(now), written: false }
    }

    /// Says that `done` of `total` are done; a `total` of 0 is one that nobody knows.
    pub fn at(&mut self, done: u64, total: u64) {
        let now = Instant::now();
        let Some(shown) = &mut self.shown else { return };
        if now.duration_since(*shown) < EVERY {
            return;
        }
        *shown = now;
        self.written = true;
        let text = describe(&self.what, self.unit, done, total, now.duration_since(self.begun));
        // Progress is a courtesy: where it cannot be written the work goes on.
        drop(write!(io::stderr().lock(), "\r{text}\u{1b}[K"));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.written {
            drop(write!(io::stderr().lock(), "\r\u{1b}[K"));
        }
    }
}

fn describe(what: &str, unit: &str, done: u64, total: u64, elapsed: Duration) -> String {
    if total == 0 || done > total {
        return format!("{what}  {} {unit}", count(done));
    }
    let percent = u128::from(done) * 100 / u128::from(total);
    let mut text = format!("{what}  {percent:>3} %  {} of {} {unit}", count(done), count(total));
    // An estimate is only worth showing once there is something to go by.
    if elapsed >= Duration::from_secs(2) && done > 0 {
        let left = elapsed.as_millis() * u128::from(total - done) / u128::from(done) / 1000;
        text.push_str(&format!("  about {} left", span(i64::try_from(left).unwrap_or(i64::MAX))));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_shows_what_it_knows() {
        let at = |done, total, seconds| describe("verify", "entries", done, total, Duration::from_secs(seconds));
        assert_eq!(at(0, 2000, 0), "verify    0 %  0 of 2,000 entries");
        assert_eq!(at(500, 2000, 10), "verify   25 %  500 of 2,000 entries  about 30s left");
        assert_eq!(at(1234, 0, 60), "verify  1,234 entries");
        assert_eq!(at(3000, 2000, 60), "verify  3,000 entries");
    }

    #[test]
    fn without_a_terminal_nothing_is_written() {
        let mut progress = Progress::new("x", "y");
        progress.shown = None;
        progress.at(1, 2);
        assert!(!progress.written);
    }
}
