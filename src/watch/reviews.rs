//! Who a reader of the log is, and what it may see, by reviews of the API server.
//!
//! # Decision: a reader is reviewed lazily, and at most twenty times a second
//!
//! Context: A reader may have rights in some of a hundred namespaces, for some of sixty resources, and nothing lists them all.
//! Decision: What an answer meets is reviewed when it meets it: first whether the reader may list everything, then the resource in
//! all namespaces, then in that one. Decisions hold for forty seconds. Where too many are due, the answer is refused, and what
//! was decided by then is kept.
//! Cost: Who has no right over the cluster names namespaces, or waits.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::cluster::{Api, Failure};
use crate::core::rights::{ANSWER_AGE_MAX, Authority, Decision, Known, Refusal, Refused, Rights};

/// Path of reviews of tokens.
const TOKENS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
/// Path of reviews of what somebody may do.
const ACCESS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// Resources that are created for that, each as its group and its plural.
pub const RESOURCES: [(&str, &str); 2] =
    [("authentication.k8s.io", "tokenreviews"), ("authorization.k8s.io", "subjectaccessreviews")];

/// Number of reviews that begin within [`PACE_PERIOD`].
const PACE: usize = 20;
/// Number of those that are of tokens which nobody knows yet: who shows many takes nothing from the others.
const STRANGERS: usize = 5;
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
    strangers: Pace,
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
    /// One review of it at a time: who waits finds the answer of who went before.
    turn: tokio::sync::Mutex<()>,
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
    List { group: String, plural: String, namespace: String },
    Get(String),
}

impl Question {
    fn list(group: &str, plural: &str, namespace: &str) -> Self {
        Self::List { group: group.to_owned(), plural: plural.to_owned(), namespace: namespace.to_owned() }
    }

    fn attributes(&self) -> (&'static str, Value) {
        match self {
            Self::List { group, plural, namespace } => (
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
            Self::List { group, plural, namespace } => {
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
    fn new(most: usize) -> Self {
        Self { most, begun: tokio::sync::Mutex::default() }
    }

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

    /// Takes a turn, if one is free.
    fn try_turn(&self) -> bool {
        let Ok(mut begun) = self.begun.try_lock() else { return false };
        let now = tokio::time::Instant::now();
        if begun.len() >= self.most {
            if begun.front().is_some_and(|first| now < *first + PACE_PERIOD) {
                return false;
            }
            begun.pop_front();
        }
        begun.push_back(now);
        true
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
            pace: Pace::new(PACE),
            strangers: Pace::new(STRANGERS),
            cache: Mutex::default(),
            complained: AtomicBool::new(false),
        }))
    }
}

impl Authority for Reviews {
    fn admit<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<Known, Refusal>> {
        Box::pin(async move {
            let digest = Sha256::digest(token).into();
            let reader = self.0.reader(&digest, token).await?;
            let rights = OneReader {
                reviews: Arc::clone(&self.0),
                digest,
                token: token.into(),
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
    async fn reader(&self, digest: &TokenDigest, token: &str) -> Result<Arc<Reader>, Refusal> {
        if let Some(reader) = self.cached(digest) {
            return Ok(reader);
        }
        if token.len() > LONGEST_TOKEN {
            return Err(unknown());
        }
        let (is_stranger, is_unknown) = {
            let cache = self.cache();
            let is_unknown = cache.unknown.get(digest).is_some_and(|until| Instant::now() < *until);
            (!cache.readers.contains_key(digest), is_unknown)
        };
        if is_unknown {
            return Err(unknown());
        }
        if is_stranger && !self.strangers.try_turn() {
            return Err(away("more new tokens are shown than are reviewed in a second; try again in a moment"));
        }
        let begun = Instant::now();
        let spec = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": { "token": token },
        });
        let what = "tokenreviews.authentication.k8s.io";
        let review: TokenReview = self.ask(TOKENS, what, &spec).await?;
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
            user,
            until: begun + self.age,
            decisions: Mutex::new(decisions),
            turn: tokio::sync::Mutex::default(),
        });
        bound(&mut cache.readers, MOST_READERS, |reader| reader.until);
        cache.readers.insert(*digest, Arc::clone(&reader));
        Ok(reader)
    }

    /// Decides about a reader, by the cache or by a review.
    async fn decide(&self, reader: &Reader, question: &Question) -> Result<Decision, Refusal> {
        let _turn = reader.turn.lock().await;
        if let Some(decision) = known(reader, question) {
            return Ok(decision);
        }
        let begun = Instant::now();
        let (key, attributes) = question.attributes();
        let mut spec = json!({
            "user": reader.user.username, "uid": reader.user.uid, "groups": reader.user.groups, "extra": reader.user.extra,
        });
        spec[key] = attributes;
        let review = json!({ "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec });
        let what = "subjectaccessreviews.authorization.k8s.io";
        let AccessStatus { allowed, denied, evaluation_error } =
            self.ask::<AccessReview>(ACCESS, what, &review).await?.status;
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

    /// Sends a review when it is its turn.
    async fn ask<T: serde::de::DeserializeOwned>(&self, path: &str, what: &str, review: &Value) -> Result<T, Refusal> {
        self.pace.turn().await;
        let asking = self.api.write(Method::POST, path, review.to_string().into_bytes(), LARGEST);
        let answer = match timeout(REVIEW_TIMEOUT, asking).await {
            Ok(answer) => answer,
            Err(_elapsed) => Err(Failure::Away("the API server does not answer".to_owned())),
        };
        let failure = match answer.map(|bytes| serde_json::from_slice(&bytes)) {
            Ok(Ok(review)) => return Ok(review),
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
        Err(away(format!("the API server does not say who you are and what you may see, because {why}; {remedy}")))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Everything, in all namespaces: who may list that needs no other review.
fn everything() -> Question {
    Question::list("*", "*", "")
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

    fn reader(&self) -> Result<Arc<Reader>, Refusal> {
        match self.reviews.cached(&self.digest) {
            Some(reader) => Ok(reader),
            None => self.wait(self.reviews.reader(&self.digest, &self.token)),
        }
    }

    fn decide(&self, reader: &Reader, question: &Question) -> Result<Decision, Refusal> {
        match known(reader, question) {
            Some(decision) => Ok(decision),
            None => self.wait(self.reviews.decide(reader, question)),
        }
    }
}

/// What is decided of a reader holds no longer than who it is.
fn of(reader: &Reader, decision: Decision) -> Decision {
    Decision { until: decision.until.min(reader.until), ..decision }
}

impl Rights for OneReader {
    fn may_list(&self, group: &str, plural: &str, namespace: &str) -> Result<Decision, Refusal> {
        let reader = self.reader()?;
        let all = self.decide(&reader, &everything())?;
        if all.is_allowed {
            return Ok(of(&reader, all));
        }
        Ok(of(&reader, self.decide(&reader, &Question::list(group, plural, namespace))?))
    }

    fn recall(&self, group: &str, plural: &str, namespace: &str) -> Option<bool> {
        let reader = self.reviews.cached(&self.digest)?;
        if known(&reader, &everything()).is_some_and(|all| all.is_allowed) {
            return Some(true);
        }
        known(&reader, &Question::list(group, plural, namespace)).map(|decision| decision.is_allowed)
    }

    fn may_get(&self, path: &str) -> Result<Decision, Refusal> {
        let reader = self.reader()?;
        Ok(of(&reader, self.decide(&reader, &Question::Get(path.to_owned()))?))
    }

    fn hold(&self) -> Result<(), Refusal> {
        self.reader().map(drop)
    }
}

#[cfg(test)]
mod tests;
