//! Whose rights hold when the log is read.
//!
//! A command on the machine of the log may see all of it ([`Sight::All`]): who can open the state directory has the log. A
//! reader whom the cluster knows sees what it may `list` there ([`Sight::Only`]). Somebody who reads says which of the two it is,
//! because nothing opens the log for a question without that.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;

/// Age at which an answer of the API server about a reader holds no more. A stream looks at its rights every fifteen seconds, so
/// that a right that is taken away is gone from everything within a minute.
pub const ANSWER_AGE_MAX: Duration = Duration::from_secs(40);

/// Whose rights hold.
#[derive(Clone, Debug)]
pub enum Sight {
    /// Those of the machine: all of the log.
    All,
    /// Those of a reader, as the API server decides.
    Only(Arc<dyn Rights>),
}

/// Rights of one reader. The answers come from a cache, or from the API server while the caller waits: it is called on a
/// thread that may block.
pub trait Rights: fmt::Debug + Send + Sync {
    /// Decides whether the reader may `list` the objects of a resource in a namespace; without one, in all of them and of those in none.
    ///
    /// # Errors
    /// Where the API server does not decide.
    fn may_list(&self, group: &str, plural: &str, namespace: &str) -> Result<Decision, Refusal>;

    /// Returns what was decided, if that holds, without asking.
    fn recall(&self, group: &str, plural: &str, namespace: &str) -> Option<bool>;

    /// Decides whether the reader may `get` a path that is no resource.
    ///
    /// # Errors
    /// Where the API server does not decide.
    fn may_get(&self, path: &str) -> Result<Decision, Refusal>;

    /// Checks that the API server still knows the reader.
    ///
    /// # Errors
    /// Where it does not, or does not answer.
    fn hold(&self) -> Result<(), Refusal>;
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
    /// Returns the reader that shows this token.
    ///
    /// # Errors
    /// Where there is none, or the API server does not say.
    fn admit<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<Known, Refusal>>;
}
