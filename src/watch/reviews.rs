//! Who a reader of the log is, and what it may see, by reviews of the API server.
//!
//! # Decision: a reader is reviewed lazily, and at most twenty times a second
//!
//! Context: A reader may have rights in some of a hundred namespaces, for some of sixty resources, and nothing lists them all.
//! Decision: What an answer meets is reviewed when it meets it: first whether the reader may list everything, then the resource in
//! all namespaces, then in that one. Decisions hold for forty seconds. Each user has one review at a time, so that who asks about
//! much takes no more of the pace than anybody else. Where too many are due, the answer is refused, and what was decided is kept.
//! Cost: Who has no right over the cluster names namespaces, or waits.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::cluster::{Api, Failure};
use crate::core::rights::{
    ANSWER_AGE_MAX, Authority, Decision, Known, Listing, MOST_WAITING, Refusal, Refused, Rights,
};

/// Path of reviews of tokens.
const TOKENS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
/// Path of reviews of what somebody may do.
const ACCESS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// Resources that are created for that, each as its group and its plural.
pub const RESOURCES: [(&str, &str); 2] =
    [("authentication.k8s.io", "tokenreviews"), ("authorization.k8s.io", "subjectaccessreviews")];

/// Number of reviews that begin within [`PACE_PERIOD`].
const PACE: usize = 20;
/// Number of those that are of tokens which nobody knows yet, and come from one address.
const STRANGERS: usize = 5;
/// Number of reviews of such tokens at a time, whatever they come from: the others come to their turn in between.
const STRANGERS_AT_ONCE: usize = 4;
/// Number of addresses that are remembered.
const MOST_ADDRESSES: usize = 1024;
/// Number of requests of one user that wait for reviews.
const MOST_WAITING_OF_ONE: usize = 12;
/// Time for which it is remembered that the API server does not answer.
const AWAY_AGE_MAX: Duration = Duration::from_secs(1);
/// Window of the pace; longer than a second by what the network may bring together.
const PACE_PERIOD: Duration = Duration::from_millis(1100);
/// Time limit of one review.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit for the reviews that one request of a reader waits for …
const PATIENCE_MAX: Duration = Duration::from_secs(10);
/// … within this time: an answer may be a stream.
const PATIENCE_PERIOD: Duration = Duration::from_secs(60);
/// Time for which it is remembered that nobody knows a token.
const UNKNOWN_AGE_MAX: Duration = Duration::from_secs(10);
/// Number of readers, of unknown tokens, and of decisions about one reader that are kept.
const MOST_READERS: usize = 1024;
const MOST_UNKNOWN: usize = 1024;
const MOST_DECISIONS: usize = 4096;
/// A token is no longer than this.
const LONGEST_TOKEN: usize = 16 << 10;
/// Bytes of an answer.
const LARGEST: usize = 1 << 20;

/// Review of readers by one API server; clones share the cache and the pace.
#[derive(Clone)]
pub struct Reviews(Arc<Inner>);

struct Inner {
    api: Api,
    runtime: Handle,
    /// Age at which an answer holds no more.
    age: Duration,
    pace: Pace,
    strangers: Strangers,
    /// Turns of users, by their names.
    turns: Mutex<HashMap<String, Arc<Turn>>>,
    waiting: Semaphore,
    /// The API server did not answer at this time, and what that means for who asks.
    away: Mutex<Option<(Instant, Refusal)>>,
    cache: Mutex<Cache>,
    /// It was logged that we may not ask.
    complained: AtomicBool,
}

impl fmt::Debug for Reviews {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reviews")
    }
}

type TokenDigest = [u8; 32];

#[derive(Default)]
struct Cache {
    readers: HashMap<TokenDigest, Arc<Reader>>,
    unknown: HashMap<TokenDigest, Instant>,
}

/// A reader, as the API server knows it.
struct Reader {
    user: User,
    until: Instant,
    decisions: Mutex<HashMap<Question, Decision>>,
    turn: Arc<Turn>,
}

/// Turn of a user, whatever its tokens: one review at a time, so that who waits finds the answer of who went before, and nobody has
/// more of the pace than the others.
struct Turn {
    next: tokio::sync::Mutex<()>,
    waiting: Semaphore,
}

/// The user of a token, in the words of the API server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct User {
    username: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    uid: String,
    groups: Vec<String>,
    extra: HashMap<String, Vec<String>>,
}

/// What somebody may do or not.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Question {
    List(Listing),
    Get(String),
}

impl Question {
    fn attributes(&self) -> (&'static str, Value) {
        match self {
            Self::List(Listing { group, plural, namespace }) => (
                "resourceAttributes",
                json!({ "verb": "list", "group": group, "resource": plural, "namespace": namespace }),
            ),
            Self::Get(path) => ("nonResourceAttributes", json!({ "verb": "get", "path": path })),
        }
    }
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::List(Listing { group, plural, namespace }) => {
                let dot = if group.is_empty() { "" } else { "." };
                write!(f, "list {plural}{dot}{group}")?;
                if namespace.is_empty() { f.write_str(" in all namespaces") } else { write!(f, " in {namespace}") }
            }
            Self::Get(path) => write!(f, "get {path}"),
        }
    }
}

/// Beginnings of reviews, at most so many within a window.
struct Pace {
    most: usize,
    begun: tokio::sync::Mutex<VecDeque<tokio::time::Instant>>,
}

impl Pace {
    /// Waits for a turn. Who asked first has the next one.
    async fn turn(&self) {
        let mut begun = self.begun.lock().await;
        if begun.len() >= self.most
            && let Some(first) = begun.front().copied()
        {
            // Who goes away meanwhile leaves everything as it was.
            tokio::time::sleep_until(first + PACE_PERIOD).await;
            begun.pop_front();
        }
        begun.push_back(tokio::time::Instant::now());
    }
}

/// Tokens that nobody knows yet: who shows many takes nothing from those at other addresses.
struct Strangers {
    of_address: Mutex<HashMap<Option<IpAddr>, VecDeque<Instant>>>,
    at_once: Semaphore,
}

impl Strangers {
    /// Takes a turn of an address, if one is free.
    fn try_turn(&self, from: Option<IpAddr>) -> bool {
        let (mut all, now) = (lock(&self.of_address), Instant::now());
        if !all.contains_key(&from) {
            bound(&mut all, MOST_ADDRESSES, |begun| begun.back().map_or(now, |last| *last + PACE_PERIOD));
        }
        let begun = all.entry(from).or_default();
        begun.retain(|begun| now < *begun + PACE_PERIOD);
        let is_free = begun.len() < STRANGERS;
        if is_free {
            begun.push_back(now);
        }
        is_free
    }
}

#[derive(Deserialize)]
struct TokenReview {
    #[serde(default)]
    status: TokenStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TokenStatus {
    authenticated: bool,
    user: User,
}

#[derive(Deserialize)]
struct AccessReview {
    #[serde(default)]
    status: AccessStatus,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct AccessStatus {
    allowed: bool,
    denied: bool,
    evaluation_error: String,
}

fn away(text: impl Into<String>) -> Refusal {
    Refusal::new(Refused::Away, text)
}

fn unknown() -> Refusal {
    let text = "the API server does not know your token; show a new one, as `kubectl create token NAME` prints it";
    Refusal::new(Refused::Unknown, text)
}

impl Reviews {
    /// Reviews by this API server. It is called within a runtime.
    #[must_use]
    pub fn new(api: Api) -> Self {
        Self::with_age(api, ANSWER_AGE_MAX)
    }

    /// Reviews whose answers hold for a time of its own.
    #[must_use]
    pub fn with_age(api: Api, age: Duration) -> Self {
        Self(Arc::new(Inner {
            api,
            runtime: Handle::current(),
            age,
            pace: Pace { most: PACE, begun: tokio::sync::Mutex::default() },
            strangers: Strangers { of_address: Mutex::default(), at_once: Semaphore::new(STRANGERS_AT_ONCE) },
            turns: Mutex::default(),
            waiting: Semaphore::new(MOST_WAITING),
            away: Mutex::default(),
            cache: Mutex::default(),
            complained: AtomicBool::new(false),
        }))
    }
}

impl Authority for Reviews {
    fn admit<'a>(&'a self, token: &'a str, from: Option<IpAddr>) -> BoxFuture<'a, Result<Known, Refusal>> {
        Box::pin(async move {
            let digest = Sha256::digest(token).into();
            let reader = self.0.reader(&digest, token, from).await?;
            let rights = OneReader {
                reviews: Arc::clone(&self.0),
                digest,
                token: token.into(),
                from,
                patience: Mutex::new((Instant::now(), Duration::ZERO)),
            };
            Ok(Known { name: reader.user.username.clone(), rights: Arc::new(rights) })
        })
    }
}

impl Inner {
    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The reader of a token, as far as that is cached and holds.
    fn cached(&self, digest: &TokenDigest) -> Option<Arc<Reader>> {
        self.cache().readers.get(digest).filter(|reader| Instant::now() < reader.until).cloned()
    }

    /// The reader of a token.
    async fn reader(&self, digest: &TokenDigest, token: &str, from: Option<IpAddr>) -> Result<Arc<Reader>, Refusal> {
        if let Some(reader) = self.cached(digest) {
            return Ok(reader);
        }
        if token.len() > LONGEST_TOKEN {
            return Err(unknown());
        }
        let (before, is_unknown) = {
            let cache = self.cache();
            let is_unknown = cache.unknown.get(digest).is_some_and(|until| Instant::now() < *until);
            (cache.readers.get(digest).cloned(), is_unknown)
        };
        if is_unknown {
            return Err(unknown());
        }
        let _turn = match &before {
            Some(before) => (None, Some(before.turn.next.lock().await)),
            None if !self.strangers.try_turn(from) => {
                let text =
                    "more new tokens come from your address than are reviewed in a second; try again in a moment";
                return Err(away(text));
            }
            None => (self.strangers.at_once.acquire().await.ok(), None),
        };
        if let Some(reader) = self.cached(digest) {
            return Ok(reader);
        }
        let spec = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": { "token": token },
        });
        let what = "tokenreviews.authentication.k8s.io";
        let (review, begun): (TokenReview, _) = self.ask(TOKENS, what, &spec).await?;
        let mut cache = self.cache();
        if !review.status.authenticated || review.status.user.username.is_empty() {
            cache.readers.remove(digest);
            let until = begun + UNKNOWN_AGE_MAX.min(self.age);
            bound(&mut cache.unknown, MOST_UNKNOWN, |until| *until);
            cache.unknown.insert(*digest, until);
            return Err(unknown());
        }
        let user = review.status.user;
        // What was decided about it holds on, as long as it is who it was.
        let decisions = match cache.readers.remove(digest) {
            Some(before) if before.user == user => std::mem::take(&mut *lock(&before.decisions)),
            Some(_) | None => HashMap::new(),
        };
        let reader = Arc::new(Reader {
            turn: self.turn_of(&user.username),
            user,
            until: begun + self.age,
            decisions: Mutex::new(decisions),
        });
        bound(&mut cache.readers, MOST_READERS, |reader| reader.until);
        cache.readers.insert(*digest, Arc::clone(&reader));
        Ok(reader)
    }

    /// The turn of a user.
    fn turn_of(&self, username: &str) -> Arc<Turn> {
        let mut turns = lock(&self.turns);
        if turns.len() >= MOST_READERS {
            turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        }
        let new = || Turn { next: tokio::sync::Mutex::default(), waiting: Semaphore::new(MOST_WAITING_OF_ONE) };
        Arc::clone(turns.entry(username.to_owned()).or_insert_with(|| Arc::new(new())))
    }

    /// Decides about a reader, by the cache or by a review.
    async fn decide(&self, reader: &Reader, question: &Question) -> Result<Decision, Refusal> {
        let (Ok(_of_one), Ok(_of_all)) = (reader.turn.waiting.try_acquire(), self.waiting.try_acquire()) else {
            return Err(away("so many questions wait for reviews already; try again when some have been answered"));
        };
        let _turn = reader.turn.next.lock().await;
        if let Some(decision) = known(reader, question) {
            return Ok(decision);
        }
        let (key, attributes) = question.attributes();
        let mut spec = json!({
            "user": reader.user.username, "uid": reader.user.uid, "groups": reader.user.groups, "extra": reader.user.extra,
        });
        spec[key] = attributes;
        let review = json!({ "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec });
        let what = "subjectaccessreviews.authorization.k8s.io";
        let (review, begun): (AccessReview, _) = self.ask(ACCESS, what, &review).await?;
        let AccessStatus { allowed, denied, evaluation_error } = review.status;
        let is_allowed = allowed && !denied;
        if !is_allowed && !evaluation_error.is_empty() && *question != everything() {
            // Whose rights it is about, and where, is told to those who run decklog alone.
            let error: String = evaluation_error.chars().take(300).collect();
            tracing::warn!(reader = reader.user.username, "a review could not be evaluated: {question}: {error}");
            return Err(away(
                "the API server could not evaluate a review of your rights, as where a binding names a role that is not there; decklog's log says which",
            ));
        }
        let decision = Decision { is_allowed, until: begun + self.age };
        let mut decisions = lock(&reader.decisions);
        bound(&mut decisions, MOST_DECISIONS, |decision| decision.until);
        decisions.insert(question.clone(), decision);
        Ok(decision)
    }

    /// Sends a review when it is its turn. Returns the answer, and when it was sent: from then on it holds.
    async fn ask<T: serde::de::DeserializeOwned>(
        &self,
        path: &str,
        what: &str,
        review: &Value,
    ) -> Result<(T, Instant), Refusal> {
        let is_away = || {
            let away = lock(&self.away).clone();
            away.filter(|(at, _)| at.elapsed() < AWAY_AGE_MAX).map_or(Ok(()), |(_, refusal)| Err(refusal))
        };
        is_away()?;
        self.pace.turn().await;
        // Those that waited for their turn meanwhile need not find out by themselves.
        is_away()?;
        let begun = Instant::now();
        let asking = self.api.write(Method::POST, path, review.to_string().into_bytes(), LARGEST);
        let answer = match timeout(REVIEW_TIMEOUT, asking).await {
            Ok(answer) => answer,
            Err(_elapsed) => Err(Failure::Away("the API server does not answer".to_owned())),
        };
        let failure = match answer.map(|bytes| serde_json::from_slice(&bytes)) {
            Ok(Ok(review)) => return Ok((review, begun)),
            Ok(Err(_)) => Failure::Undecodable("the review cannot be read".to_owned()),
            Err(failure) => failure,
        };
        if matches!(failure, Failure::Unauthorized | Failure::Tls(_)) {
            // Bounded like a request: a program may have to give the credentials.
            let _elapsed = timeout(REVIEW_TIMEOUT, self.api.refresh()).await;
        }
        let (why, remedy) = if let Failure::Forbidden(_) = &failure {
            (format!("this decklog may not create {what}"), "give it the rights that `decklog rbac` prints")
        } else {
            (failure.to_string(), "try again when it answers")
        };
        if !self.complained.swap(true, Ordering::Relaxed) {
            tracing::warn!("nobody can read the log by the rights of the cluster: {why}; {remedy}");
        }
        let text = format!("the API server does not say who you are and what you may see, because {why}; {remedy}");
        if matches!(failure, Failure::Away(_) | Failure::Unreachable(_)) {
            *lock(&self.away) = Some((Instant::now(), away(text.clone())));
        }
        Err(away(text))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Everything, in all namespaces: who may list that needs no other review.
fn everything() -> Question {
    Question::List(Listing::everything())
}

fn known(reader: &Reader, question: &Question) -> Option<Decision> {
    lock(&reader.decisions).get(question).copied().filter(|decision| Instant::now() < decision.until)
}

/// Makes room for another one: what holds no more goes, or else what holds no longer than the rest.
fn bound<K: Clone + Eq + std::hash::Hash, V>(map: &mut HashMap<K, V>, most: usize, until: impl Fn(&V) -> Instant) {
    if map.len() < most {
        return;
    }
    let now = Instant::now();
    map.retain(|_, value| now < until(value));
    while map.len() >= most {
        let Some(first) = map.iter().min_by_key(|(_, value)| until(value)).map(|(key, _)| key.clone()) else { return };
        map.remove(&first);
    }
}

/// The rights of a reader, for one request.
struct OneReader {
    reviews: Arc<Inner>,
    digest: TokenDigest,
    token: Box<str>,
    from: Option<IpAddr>,
    /// Since when it is counted how long it waited for reviews, and that.
    patience: Mutex<(Instant, Duration)>,
}

impl fmt::Debug for OneReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OneReader")
    }
}

impl OneReader {
    /// Waits, as long as there is patience.
    fn wait<T>(&self, asking: impl Future<Output = Result<T, Refusal>>) -> Result<T, Refusal> {
        let mut patience = lock(&self.patience);
        if patience.0.elapsed() > PATIENCE_PERIOD {
            *patience = (Instant::now(), Duration::ZERO);
        }
        let begun = Instant::now();
        let left = PATIENCE_MAX.saturating_sub(patience.1);
        let answer = self.reviews.runtime.block_on(async { timeout(left, asking).await });
        patience.1 += begun.elapsed();
        answer.unwrap_or_else(|_elapsed| {
            Err(away(format!(
                "your rights in so many namespaces cannot be reviewed in {} seconds; name namespaces, as with -n, or try again, because what was reviewed is kept for a while",
                PATIENCE_MAX.as_secs()
            )))
        })
    }

    fn decide_one(&self, question: &Question) -> Result<Decision, Refusal> {
        let reader = match self.reviews.cached(&self.digest) {
            Some(reader) => reader,
            None => self.wait(self.reviews.reader(&self.digest, &self.token, self.from))?,
        };
        let decision = match known(&reader, question) {
            Some(decision) => decision,
            None => self.wait(self.reviews.decide(&reader, question))?,
        };
        Ok(of(&reader, decision))
    }
}

/// What is decided of a reader holds no longer than who it is.
fn of(reader: &Reader, decision: Decision) -> Decision {
    Decision { until: decision.until.min(reader.until), ..decision }
}

impl Rights for OneReader {
    fn recall(&self, listing: &Listing) -> Option<Decision> {
        let reader = self.reviews.cached(&self.digest)?;
        let all = known(&reader, &everything())?;
        let decision = if all.is_allowed { all } else { known(&reader, &Question::List(listing.clone()))? };
        Some(of(&reader, decision))
    }

    fn decide(&self, listing: &Listing) -> Result<Decision, Refusal> {
        let all = self.decide_one(&everything())?;
        if all.is_allowed { Ok(all) } else { self.decide_one(&Question::List(listing.clone())) }
    }

    fn may_get(&self, path: &str) -> Result<Decision, Refusal> {
        self.decide_one(&Question::Get(path.to_owned()))
    }
}

#[cfg(test)]
mod tests;
