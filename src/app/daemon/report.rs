//! Reports of the daemon: to systemd, to `decklog status` and in its own log.

use std::io::IsTerminal;

use jiff::Timestamp;

use super::clock::Seen;
use super::{Running, descriptors};
use crate::journal::SourceState;
use crate::query::status::{Because, CacheFault, HaView, Live, Trouble, in_one_line};
use crate::watch::select::{Waiting, WhyWaiting};
use crate::watch::{self, SourceView};

/// Returns the reason why a configured name is not watched.
fn because(waiting: &Waiting) -> Because {
    let what = match waiting.why {
        WhyWaiting::Unserved { .. } => "it is configured, and the API server does not serve it".to_owned(),
        WhyWaiting::Unlistable => "it is configured, and cannot be listed and watched".to_owned(),
        WhyWaiting::Unknown(_) => waiting.to_string(),
    };
    Because { what, remedy: waiting.remedy().to_owned() }
}

/// Returns the name of a source of which the API server's watch cache is wrong, and what it shows wrongly.
fn cache_fault(view: &SourceView) -> Option<(String, CacheFault)> {
    let watch::CacheFault { since, objects, reported } = view.stats.cache_fault();
    let example = objects
        .first()
        .map(|(namespace, name)| if namespace.is_empty() { name.clone() } else { format!("{namespace}/{name}") });
    let since = since.filter(|_| example.is_some()).into_iter().chain(reported).min()?;
    Some((view.spec.name(), CacheFault { since, objects: objects.len() as u64, example: example.unwrap_or_default() }))
}

impl Running {
    /// One line for `systemctl status`.
    pub(super) fn line(&self) -> String {
        let overview = self.sources.overview();
        let head = self.journal.head().borrow().0;
        let mut line = format!("seq {head}; {} sources", overview.sources.len());
        if !overview.waiting.is_empty() {
            line.push_str(&format!(", waiting for {} more", overview.waiting.len()));
        }
        if let Some(pause) = &*self.journal.paused().borrow() {
            line.push_str(&format!("; paused: {}", pause.detail));
        }
        let listing = overview.sources.iter().filter(|view| matches!(view.stats.state(), SourceState::Listing(_)));
        match listing.count() {
            0 => {}
            lists => line.push_str(&format!(", {lists} listing")),
        }
        let recovering = |view: &&SourceView| view.stats.state() == SourceState::Recovering;
        match overview.sources.iter().filter(recovering).count() {
            0 => {}
            some => line.push_str(&format!(", {some} recovering")),
        }
        line
    }

    /// After the machine or this process has slept, whoever was at the other end of a connection may have left without
    /// a word: every watch is opened again, from where it was.
    pub(super) fn report_time(&self, seen: Seen) {
        match seen {
            Seen::Nothing => return,
            Seen::Jumped(jump) => tracing::warn!(
                seconds = jump.seconds,
                "the clock has jumped: it was set, or the machine was suspended; the order of entries is their seq, and \
                 decklog reopens every watch"
            ),
            Seen::StoodStill(passed) => tracing::warn!(
                seconds = passed.as_secs(),
                "this process did not run for a while: it was stopped, or the machine was; decklog reopens every watch"
            ),
        }
        self.sources.reconnect();
    }

    /// Keeps what this process reports of itself as it is.
    pub(super) fn update_live(&self, stalled: Vec<String>, seen: Seen, ha: Option<HaView>) {
        let files = descriptors::look();
        // No lock is taken while `live` is: whoever scrapes the metrics holds theirs and reads it.
        let ready = *self.sources.ready().borrow();
        let waiting = self.sources.overview().waiting;
        let waiting_because = waiting.iter().map(|waiting| (waiting.name.clone(), because(waiting))).collect();
        let waiting: Vec<String> = waiting.into_iter().map(|waiting| waiting.name).collect();
        let discovery = self.sources.troubles().into_iter();
        let discovery = discovery
            .map(|trouble| (trouble.about, Trouble { since: trouble.since, why: in_one_line(&trouble.why), times: 1 }))
            .collect();
        let tries = self.sinks.tries();
        let silent_since = self.sources.silent_since();
        let cache_faults = self.sources.overview().sources.iter().filter_map(cache_fault).collect();
        let paused = self.journal.paused().borrow().clone();
        let (evidence, witnesses) = (self.evidence.failing(), self.evidence.witnesses());
        let unexplained = self.unexplained.borrow().clone();
        let changed = self.live.send_if_modified(|live| {
            let mut now = Live {
                ready,
                stalled,
                waiting,
                waiting_because,
                discovery,
                tries,
                paused,
                evidence,
                witnesses,
                unexplained,
                silent_since,
                cache_faults,
                open_files: files.open,
                open_files_limit: files.most,
                ..live.clone()
            };
            if let Seen::Jumped(jump) = seen {
                now.clock_jumps += 1;
                now.last_jump = Some(jump);
            }
            if now.files_are_scarce() && !live.files_are_scarce() {
                tracing::error!(
                    open = files.open,
                    most = files.most,
                    "nearly all file descriptors are in use: decklog will soon be unable to open watches; raise LimitNOFILE of the service"
                );
            }
            if let Some(view) = ha {
                now.set_ha(view, Timestamp::now());
            }
            let news = now.is_news_after(live);
            *live = now;
            news
        });
        if let Err(error) = self.journal.note_head() {
            tracing::debug!("how far the journal is cannot be left beside it: {error}");
        }
        if changed {
            self.leave_live();
        }
        if let Some(Err(error)) = self.live_file.as_ref().map(Live::beat) {
            tracing::debug!("cannot leave that this process makes progress: {error}");
        }
    }

    /// Says of this process what a reload came to.
    pub(super) fn report_refusal(&self, why: Option<&String>) {
        let before = self.live.borrow().refused.clone();
        let refused = why.map(|why| Trouble::new(why, before.as_ref()));
        self.live.send_modify(|live| live.refused = refused);
        self.leave_live();
    }

    fn leave_live(&self) {
        if let Some(file) = &self.live_file
            && let Err(error) = self.live.borrow().write(file)
        {
            tracing::debug!("cannot leave the state of this process for `decklog status`: {error}");
        }
    }

    /// A source that needs a person does not keep the others from being ready.
    pub(super) fn report_ready(&self) {
        let degraded = |view: &SourceView| matches!(view.stats.state(), SourceState::Degraded(_));
        let sources = self.sources.overview().sources;
        let degraded: Vec<String> = sources.iter().filter(|view| degraded(view)).map(|view| view.spec.name()).collect();
        if degraded.is_empty() {
            tracing::info!(
                sources = sources.len(),
                "ready: every source has resumed or finished its first list; `decklog tail -f` prints the log"
            );
        } else {
            tracing::warn!(
                degraded = degraded.join(", "),
                "ready, but for these sources: `decklog status` says what they need"
            );
        }
    }

    /// On a terminal somebody waits for the first lists, which take their time in a big cluster.
    pub(super) fn report_lists(&self) {
        if !std::io::stderr().is_terminal() {
            return;
        }
        let sources = self.sources.overview().sources;
        let objects = |view: &SourceView| {
            if let SourceState::Listing(objects) = view.stats.state() { Some(objects) } else { None }
        };
        let listed: Vec<u64> = sources.iter().filter_map(objects).collect();
        if listed.iter().sum::<u64>() > 0 {
            tracing::info!(
                "listing: {} of {} sources, {} objects so far",
                listed.len(),
                sources.len(),
                listed.iter().sum::<u64>()
            );
        }
    }
}
