//! Problems of discovery, with their start.

use jiff::Timestamp;

use super::{CORE, Discovered};
use crate::watch::cluster::Failure;

/// Part of discovery that is unknown at the moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// An API group, or a root of discovery; empty where nothing of discovery can be known.
    pub about: String,
    /// The reason, as the end of a sentence.
    pub why: String,
    /// Beginning of the first attempt that found it.
    pub since: Timestamp,
}

/// Every trouble of the last attempt.
#[derive(Debug, Default)]
pub(in crate::watch) struct Troubles(Vec<Trouble>);

impl Troubles {
    /// Takes note of what an attempt that began then came to, and logs what is new and what is over.
    pub(in crate::watch) fn note(&mut self, began: Timestamp, result: Result<&Discovered, &Failure>) {
        let now = match result {
            Ok(found) => found.troubles(),
            Err(failure) => vec![(String::new(), failure.to_string())],
        };
        let before = std::mem::take(&mut self.0);
        for over in before.iter().filter(|known| !known.about.is_empty() && result.is_ok()) {
            if !now.iter().any(|(about, _)| *about == over.about) {
                tracing::info!(group = over.about, "discovery is certain again");
            }
        }
        for (about, why) in now {
            let known = before.iter().find(|known| known.about == about);
            if known.is_none() && !about.is_empty() {
                tracing::warn!(group = about, "discovery is uncertain: {why}; decklog keeps what it knew");
            }
            self.0.push(Trouble { about, why, since: known.map_or(began, |known| known.since) });
        }
    }

    /// Returns what is the matter.
    pub(in crate::watch) fn list(&self) -> Vec<Trouble> {
        self.0.clone()
    }
}

impl Discovered {
    /// Returns what of it is uncertain, each with the reason: a root speaks for its groups.
    #[must_use]
    pub fn troubles(&self) -> Vec<(String, String)> {
        let kept = |path| self.uncertain.iter().any(|(group, doubt)| doubt.of_root && super::root(group) == path);
        // Some API servers have nothing at one of the roots, and that is no trouble where nothing was known of it.
        let roots = self.roots.iter().filter(|(path, doubt)| !doubt.absent || kept(**path));
        let roots = roots.map(|(path, doubt)| ((*path).to_owned(), doubt.why.clone()));
        let groups = self.uncertain.iter().filter(|(_, doubt)| !doubt.of_root);
        let groups = groups.map(|(group, doubt)| {
            let name = if group.is_empty() { format!("{CORE}/v1") } else { group.clone() };
            (name, doubt.why.clone())
        });
        roots.chain(groups).collect()
    }
}
