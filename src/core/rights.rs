//! Whose rights hold when the log is read.
//!
//! A command on the machine of the log may see all of it ([`Sight::All`]): who can open the state directory has the log. A
//! reader whom the cluster knows sees what it may `list` there ([`Sight::Only`]). Somebody who reads says which of the two it is,
//! because nothing opens the log for a question without that.
//!
//! # Decision: a reading never waits for a review
//!
//! Context: A reading that waits for the API server keeps the write-ahead log from being emptied, and others from their turn.
//! Decision: A reading only recalls. What it meets undecided is hidden and noted, and makes the reading void: it ends, gives back what
//! others wait for, what was noted is decided, and the question is asked again. A decision holds for the rest of a reading. Before
//! something is sent, rights that have run out are reviewed again, and one that is gone ends the answer.
//! Cost: A question whose rights nobody has reviewed lately reads the log several times.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::future::BoxFuture;

/// Age at which an answer of the API server about a reader holds no more. A stream looks at its rights every fifteen seconds, so
/// that a right that is taken away is gone from everything within a minute.
pub const ANSWER_AGE_MAX: Duration = Duration::from_secs(40);

/// Number of requests that wait for reviews at a time.
pub const MOST_WAITING: usize = 48;

/// Number of listings that are met undecided before they are asked about: no more than the API server is asked in a second.
const MISSED_MAX: usize = 16;
/// Time for which a reading goes on, once it has met an undecided listing, to meet the others: one question has few readings then.
const LOOK_AHEAD_MAX: Duration = Duration::from_millis(20);
/// Number of times that listings are asked about before anything of an answer is sent.
const ROUNDS_MAX: u32 = 64;

/// Whose rights hold.
#[derive(Clone, Debug)]
pub enum Sight {
    /// Those of the machine: all of the log.
    All,
    /// Those of a reader, as the API server decides, for one request of it.
    Only(Arc<Visit>),
}

impl Sight {
    /// The sight of a reader with these rights.
    pub fn of(rights: Arc<dyn Rights>) -> Self {
        Self::Only(Arc::new(Visit::new(rights)))
    }

    /// Reports whether something was met of which nothing is decided: what was read is void then.
    #[must_use]
    pub fn is_undecided(&self) -> bool {
        matches!(self, Self::Only(visit) if visit.is_undecided())
    }

    /// Reports whether there is something to [`Sight::settle`].
    #[must_use]
    pub fn is_unsettled(&self) -> bool {
        matches!(self, Self::Only(visit) if visit.is_undecided() || visit.has_run_out())
    }

    /// As [`Visit::went_on`].
    pub fn went_on(&self) {
        if let Self::Only(visit) = self {
            visit.went_on();
        }
    }

    /// As [`Visit::has_run_out`].
    #[must_use]
    pub fn has_run_out(&self) -> bool {
        matches!(self, Self::Only(visit) if visit.has_run_out())
    }

    /// As [`Visit::renew`]. It blocks.
    ///
    /// # Errors
    /// As that.
    pub fn renew(&self) -> Result<(), Refusal> {
        match self {
            Self::All => Ok(()),
            Self::Only(visit) => visit.renew(),
        }
    }

    /// As [`Visit::settle`]. It blocks.
    ///
    /// # Errors
    /// As that.
    pub fn settle(&self) -> Result<(), Refusal> {
        match self {
            Self::All => Ok(()),
            Self::Only(visit) => visit.settle(),
        }
    }
}

/// What somebody may `list`: the objects of a resource in a namespace; without one, in all of them and of those in none.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Listing {
    /// Group of the resource.
    pub group: String,
    /// Plural name of the resource.
    pub plural: String,
    /// The namespace.
    pub namespace: String,
}

impl Listing {
    /// A listing.
    #[must_use]
    pub fn new(group: &str, plural: &str, namespace: &str) -> Self {
        Self { group: group.to_owned(), plural: plural.to_owned(), namespace: namespace.to_owned() }
    }

    /// Everything in all namespaces: who may list that needs no other review.
    #[must_use]
    pub fn everything() -> Self {
        Self::new("*", "*", "")
    }
}

/// Rights of one reader.
pub trait Rights: fmt::Debug + Send + Sync {
    /// Returns what was decided of a listing, if that holds and the API server still knows the reader, without asking.
    fn recall(&self, listing: &Listing) -> Option<Decision>;

    /// Decides about a listing. It blocks until the API server has answered, so nobody calls it within a reading of the journal, or
    /// with a place that others wait for.
    ///
    /// # Errors
    /// Where the API server does not decide.
    fn decide(&self, listing: &Listing) -> Result<Decision, Refusal>;

    /// Decides whether the reader may `get` a path that is no resource. It blocks.
    ///
    /// # Errors
    /// Where the API server does not decide.
    fn may_get(&self, path: &str) -> Result<Decision, Refusal>;
}

/// One request of a reader: the rights on which its answer stands, and what it has met that nobody has decided yet.
#[derive(Debug)]
pub struct Visit {
    rights: Arc<dyn Rights>,
    is_undecided: AtomicBool,
    follows: AtomicBool,
    noted: Mutex<Noted>,
}

#[derive(Debug, Default)]
struct Noted {
    /// Listings that were met and are not decided.
    missed: BTreeSet<Listing>,
    /// Since when.
    since: Option<Instant>,
    /// Number of times that some were decided since something of the answer was sent.
    rounds: u32,
    /// What the answer stands on, and the moment at which the first of it may run out.
    used: BTreeMap<Listing, Decision>,
    soonest: Option<Instant>,
}

impl Noted {
    fn uses(&mut self, listing: Listing, decision: Decision) {
        self.used.insert(listing, decision);
        self.soonest = Some(self.soonest.map_or(decision.until, |soonest| soonest.min(decision.until)));
    }
}

/// Error of a reading that has met enough that is not decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Undecided;

impl From<Undecided> for Refusal {
    fn from(_: Undecided) -> Self {
        Self::new(Refused::Away, "your rights had to be reviewed again while the answer was made; try again")
    }
}

impl Visit {
    /// A request of a reader with these rights.
    pub fn new(rights: Arc<dyn Rights>) -> Self {
        Self { rights, is_undecided: AtomicBool::new(false), follows: AtomicBool::new(false), noted: Mutex::default() }
    }

    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports whether something was met that is not decided.
    pub fn is_undecided(&self) -> bool {
        self.is_undecided.load(Ordering::Relaxed)
    }

    /// Checks that a reading may go on: one that has met something undecided goes on for a while, to meet the rest.
    ///
    /// # Errors
    /// Where it has met enough.
    pub fn check(&self) -> Result<(), Undecided> {
        if !self.is_undecided() {
            return Ok(());
        }
        let noted = self.noted();
        let is_over = noted.since.is_some_and(|since| since.elapsed() > LOOK_AHEAD_MAX);
        if is_over || noted.missed.len() >= MISSED_MAX { Err(Undecided) } else { Ok(()) }
    }

    /// Returns what is decided about a listing, by itself or of all namespaces; none where that is not decided.
    pub fn sees(&self, listing: Listing) -> Option<Decision> {
        let wide = Listing { namespace: String::new(), ..listing.clone() };
        let found = match self.rights.recall(&wide) {
            Some(decision) if decision.is_allowed || listing.namespace.is_empty() => Some((wide, decision)),
            Some(_) => self.rights.recall(&listing).map(|decision| (listing.clone(), decision)),
            None => None,
        };
        let mut noted = self.noted();
        match found {
            Some((of, decision)) => {
                if decision.is_allowed || of == Listing::everything() {
                    noted.uses(of, decision);
                }
                Some(decision)
            }
            None => {
                noted.missed.insert(listing);
                noted.since.get_or_insert_with(Instant::now);
                self.is_undecided.store(true, Ordering::Relaxed);
                None
            }
        }
    }

    /// Reports whether the reader sees all of the log: who may list everything does. None where that is not decided.
    pub fn sees_everything(&self) -> Option<bool> {
        self.sees(Listing::everything()).map(|decision| decision.is_allowed)
    }

    /// Reports whether it is known without asking that the reader sees a listing.
    pub fn recalls(&self, listing: &Listing) -> bool {
        let wide = Listing { namespace: String::new(), ..listing.clone() };
        [&wide, listing].into_iter().any(|of| self.rights.recall(of).is_some_and(|decision| decision.is_allowed))
    }

    /// Reports whether a right on which the answer stands has run out.
    pub fn has_run_out(&self) -> bool {
        let (mut noted, now) = (self.noted(), Instant::now());
        if noted.soonest.is_some_and(|soonest| soonest <= now) {
            noted.soonest = noted.used.values().map(|decision| decision.until).min();
        }
        noted.soonest.is_some_and(|soonest| soonest <= now)
    }

    /// Goes on for as long as its reader likes: what is hidden may be seen later.
    pub fn follow(&self) {
        self.follows.store(true, Ordering::Relaxed);
    }

    /// Reports whether it goes on for as long as its reader likes.
    pub fn follows(&self) -> bool {
        self.follows.load(Ordering::Relaxed)
    }

    /// Notes that something of the answer is sent.
    pub fn went_on(&self) {
        self.noted().rounds = 0;
    }

    /// Decides again what the answer stands on, where that has run out. A reading that goes on meanwhile stays as it is. It blocks.
    ///
    /// # Errors
    /// Where the API server does not decide, or one of the rights has been taken away.
    pub fn renew(&self) -> Result<(), Refusal> {
        let now = Instant::now();
        let run_out: Vec<_> = {
            let noted = self.noted();
            let run_out = noted.used.iter().filter(|(_, decision)| decision.until <= now);
            run_out.map(|(listing, decision)| (listing.clone(), decision.is_allowed)).collect()
        };
        for (listing, was_allowed) in run_out {
            let decision = self.rights.decide(&listing)?;
            if was_allowed && !decision.is_allowed {
                let text = "your rights changed while the answer was given, so it ends here; ask again";
                return Err(Refusal::new(Refused::Forbidden, text));
            }
            self.noted().uses(listing, decision);
        }
        Ok(())
    }

    /// Decides what was met undecided, and [renews](Self::renew) what the answer stands on. It blocks.
    ///
    /// # Errors
    /// Where the API server does not decide, or one of the rights has been taken away.
    pub fn settle(&self) -> Result<(), Refusal> {
        let missed = {
            let mut noted = self.noted();
            noted.rounds += 1;
            if noted.rounds > ROUNDS_MAX {
                return Err(Undecided.into());
            }
            noted.since = None;
            self.is_undecided.store(false, Ordering::Relaxed);
            std::mem::take(&mut noted.missed)
        };
        self.renew()?;
        for listing in missed {
            let wide = Listing { namespace: String::new(), ..listing.clone() };
            if !self.rights.decide(&wide)?.is_allowed && !listing.namespace.is_empty() {
                self.rights.decide(&listing)?;
            }
        }
        Ok(())
    }
}

/// Decision of the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// It is a yes.
    pub is_allowed: bool,
    /// Moment from which on it has to be asked again.
    pub until: Instant,
}

/// Reason why nobody reads, as one sentence that says what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Refusal {
    /// Its sort.
    pub is: Refused,
    /// The sentence.
    pub text: String,
}

/// Sorts of refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Nobody knows the reader.
    Unknown,
    /// The reader may not.
    Forbidden,
    /// It cannot be decided now.
    Away,
}

impl Refusal {
    /// A refusal of this sort.
    pub fn new(is: Refused, text: impl Into<String>) -> Self {
        Self { is, text: text.into() }
    }
}

/// A reader whom the API server knows.
#[derive(Clone, Debug)]
pub struct Known {
    /// Its name, for the log of readers.
    pub name: String,
    /// Its rights.
    pub rights: Arc<dyn Rights>,
}

/// Source of the identity and the rights of readers: the API server of a cluster.
pub trait Authority: fmt::Debug + Send + Sync {
    /// Returns the reader that shows this token, from an address; none on a socket of this machine.
    ///
    /// # Errors
    /// Where there is none, or the API server does not say.
    fn admit<'a>(&'a self, token: &'a str, from: Option<IpAddr>) -> BoxFuture<'a, Result<Known, Refusal>>;
}

#[cfg(test)]
pub(crate) mod tests;
