//! Joint log lines for events of many sources: a cluster has sixty of them, and an outage meets all.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

/// Number of sources that a line names.
const NAMED: usize = 3;

/// Event of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// It needs a person, or the API server does.
    Degraded(String),
    /// It has lost its position.
    Lost(&'static str),
    /// Missed changes are compacted.
    Compacted,
    /// Missed changes are recovered.
    Recovered,
    /// It watches after it was degraded.
    Again,
}

/// Events since the last line, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct News(Arc<Mutex<Recorded>>);

type Recorded = Vec<(Event, BTreeSet<String>)>;

impl News {
    /// A source has this to say.
    pub(super) fn tell(&self, source: String, event: Event) {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Beside those of which it is true as well, but never before what the source has said since.
        for (known, sources) in told.iter_mut().rev() {
            if *known == event {
                sources.insert(source);
                return;
            }
            if sources.contains(&source) {
                break;
            }
        }
        told.push((event, BTreeSet::from([source])));
    }

    /// Writes what has happened into the log.
    pub(super) fn log(&self) {
        let news = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        for (event, sources) in news {
            let sources = names(&sources);
            match event {
                Event::Degraded(text) => tracing::warn!(sources, "{text}"),
                Event::Lost(why) => tracing::warn!(
                    sources,
                    why,
                    "changes may be missing: decklog asks for them, and records a GAP where it cannot get them"
                ),
                Event::Compacted => {
                    tracing::warn!(sources, "etcd has compacted a part of what was missed: decklog records a GAP");
                }
                Event::Recovered => tracing::info!(sources, "nothing is missing: the missed changes are recovered"),
                Event::Again => tracing::info!(sources, "watching again"),
            }
        }
    }
}

/// The first of them by name, and how many there are beside.
fn names(sources: &BTreeSet<String>) -> String {
    let named: Vec<&str> = sources.iter().take(NAMED).map(String::as_str).collect();
    match sources.len() - named.len() {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happened_last_is_said_last() {
        let news = News::default();
        for (source, event) in [
            ("a", Event::Lost("expired")),
            ("b", Event::Again),
            ("a", Event::Recovered),
            ("b", Event::Lost("expired")),
            ("b", Event::Degraded("refused".to_owned())),
            ("a", Event::Again),
        ] {
            news.tell(source.to_owned(), event);
        }
        let told = news.0.lock().unwrap();
        let told: Vec<_> = told.iter().map(|(event, sources)| (event.clone(), names(sources))).collect();
        assert_eq!(
            told,
            [
                (Event::Lost("expired"), "a".to_owned()),
                (Event::Again, "b".to_owned()),
                (Event::Recovered, "a".to_owned()),
                (Event::Lost("expired"), "b".to_owned()),
                (Event::Degraded("refused".to_owned()), "b".to_owned()),
                (Event::Again, "a".to_owned()),
            ]
        );
    }

    #[test]
    fn many_are_counted_and_few_are_named() {
        let of = |count: usize| names(&(1..=count).map(|number| format!("s{number}")).collect());
        assert_eq!((of(1).as_str(), of(3).as_str()), ("s1", "s1, s2, s3"));
        assert_eq!(of(56), "s1, s10, s11 and 53 more");
    }
}
