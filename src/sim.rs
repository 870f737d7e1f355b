//! A simulated Kubernetes API server, for tests, benches and `decklog demo`.
//!
//! It speaks real HTTP/1.1 on a loopback port, so that a client meets it as it meets a cluster, and
//! it can do on demand what a cluster does rarely: compact, go back in time, break off in the middle
//! of a line. What it answers follows `kube-apiserver`; it does not do the following:
//! one API server, one etcd (but for resources that get one of their own), no TLS, no HTTP/2, no compression, no admission, no garbage collection.
//!
//! ```text
//!   Sim ── writes ──→ store (revisions, history)  ←── list, watch ── server ←── HTTP
//!    │                                                                 │
//!    └─ faults, settings, tokens ──────────────────────────────────────┘
//! ```
//!
//! [`Sim::history`] is the truth that a test compares with what a client saw. [`world::World`] makes a
//! simulated cluster live; [`objects`] makes objects that look like real ones.
//!
//! It may use `core`. Begin with [`Sim`].
//!
//! # Examples
//!
//! ```
//! use decklog::sim::{Sim, objects};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let sim = Sim::start().await?;
//! sim.create("configmaps", objects::config_map("default", "settings", "1")).map_err(|refusal| format!("{refusal:?}"))?;
//! assert_eq!(sim.history_of("configmaps").len(), 1);
//! # Ok(())
//! # }
//! ```

mod discovery;
pub mod faults;
mod list;
mod object;
pub mod objects;
mod readers;
mod resources;
mod seen;
mod selector;
mod server;
pub mod shared_log;
mod store;
#[cfg(test)]
mod tests;
mod watching;
mod wire;
pub mod world;
mod writes;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use serde_json::Value;

use faults::{Fault, On, Refusal, RequestKind, Seen, Signal};
use object::Pattern;
pub use object::{Kind, Object, Row};
use resources::Served;
use server::Listening;
use store::{CRDS, MAIN, Store};
use wire::Line;
pub use wire::{Body, Broken};

use crate::core::runtime;

/// How the server behaves; can be changed while it runs with [`Sim::set`].
#[derive(Clone, Debug)]
pub struct Settings {
    /// Seeds the uids and generated names.
    pub seed: u64,
    /// uid of the namespace kube-system, which identifies the cluster.
    pub cluster_uid: String,
    /// What `/version` says.
    pub version: String,
    /// How often a quiet watch gets a bookmark.
    pub bookmarks_every: Duration,
    /// Whether watches may ask for the current state first (`sendInitialEvents`).
    pub watch_list: bool,
    /// A watch from a compacted revision gets HTTP 410, not an ERROR event. Some proxies and
    /// aggregated API servers do that.
    pub http_410: bool,
    /// How long a request waits for a revision in the future before it gets 504.
    pub too_large_wait: Duration,
    /// `resourceVersionMatch=Exact` is honoured; else it is taken for `NotOlderThan`, as some aggregated API servers do.
    pub exact: bool,
    /// Exact lists are answered from snapshots of the watch cache, also at revisions that etcd has compacted, but for those of one name,
    /// which always come from etcd: from Kubernetes 1.34.
    pub snapshots: bool,
    /// An exact list of a revision in the future gets 500 at once, in etcd's words, as from Kubernetes 1.33; else 504.
    pub future_is_internal: bool,
    /// Lists say how many items are left (`remainingItemCount`).
    pub counts: bool,
    /// Discovery has only the old form.
    pub legacy_discovery: bool,
    /// API groups whose backend does not answer.
    pub stale_groups: BTreeSet<String>,
    /// Elements that stand first in the document of `/apis`, however odd, each in the aggregated form and in the old one:
    /// what other servers behind this one say of themselves.
    pub more_groups: Vec<[Value; 2]>,
    /// Resources that have an etcd each of their own, with revisions of its own (`--etcd-servers-overrides`). Counts when
    /// the server starts.
    pub own_etcd: BTreeSet<String>,
    /// Compaction also drops the rows from memory and from [`Sim::history`].
    pub drop_compacted: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            seed: 1,
            cluster_uid: "7b1f3c2e-5a60-4a52-9d7e-0c51f0e1a001".to_owned(),
            version: "v1.35.2".to_owned(),
            bookmarks_every: Duration::from_secs(60),
            watch_list: true,
            http_410: false,
            too_large_wait: list::TOO_LARGE_WAIT,
            exact: true,
            snapshots: false,
            future_is_internal: false,
            counts: true,
            legacy_discovery: false,
            stale_groups: BTreeSet::new(),
            more_groups: Vec::new(),
            own_etcd: BTreeSet::new(),
            drop_compacted: false,
        }
    }
}

/// A condition was not met in time.
#[derive(Clone, Debug, thiserror::Error)]
#[error("after {after:?} the simulated cluster still does not {condition}; {state}")]
pub struct TimedOut {
    after: Duration,
    condition: String,
    state: String,
}

/// How long conditions are waited for: far longer than anything takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The token in [`Sim::kubeconfig`].
pub const TOKEN: &str = "simulated-token";

/// What the tasks of the server share with the handle.
#[derive(Debug)]
pub(crate) struct Shared {
    state: Mutex<State>,
    /// Notified of everything that a condition can be about.
    tick: runtime::Signal,
}

#[derive(Debug)]
struct State {
    store: Store,
    settings: Settings,
    faults: Vec<Fault>,
    requests: Vec<Seen>,
    tokens: BTreeSet<String>,
    denials: Vec<Denial>,
    users: readers::Users,
    /// How many watches of each resource are open.
    open: BTreeMap<String, usize>,
    /// `apiserver_request_total`, by its labels in the order of their names.
    counters: BTreeMap<[String; 7], u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Denial {
    verb: String,
    resource: String,
    namespace: Option<String>,
}

impl Shared {
    /// A panic elsewhere does not make the state wrong: each change of it is complete.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notify(&self) {
        self.tick.notify();
    }

    /// Waits for a revision of this storage in the future.
    async fn reach(&self, storage: &str, revision: u64) -> Result<(), Refusal> {
        let wait = self.lock().settings.too_large_wait;
        let reached = self.until(|| self.lock().store.etcd(storage).revision >= revision);
        match tokio::time::timeout(wait, reached).await {
            Ok(()) => Ok(()),
            Err(_) => Err(Refusal::too_large(revision, self.lock().store.etcd(storage).revision)),
        }
    }

    /// Waits until this holds, looking again at each change.
    async fn until(&self, holds: impl Fn() -> bool) {
        let mut tick = self.tick.listen();
        loop {
            tick.mark_seen();
            if holds() {
                return;
            }
            tick.notified().await;
        }
    }

    fn watch_closed(&self, served: &Served) {
        if let Some(open) = self.lock().open.get_mut(&served.resource.full_name()) {
            *open = open.saturating_sub(1);
        }
        self.notify();
    }
}

impl State {
    fn authenticate(&self, seen: &Seen) -> Result<(), Refusal> {
        let token = seen.authorization.strip_prefix("Bearer ").unwrap_or_default();
        if self.tokens.contains(token) { Ok(()) } else { Err(Refusal::unauthorized()) }
    }

    fn denies(&self, verb: &str, resource: &str, namespace: Option<&str>) -> bool {
        self.denials.iter().any(|denial| {
            (denial.verb == "*" || denial.verb == verb)
                && (denial.resource == "*" || denial.resource == resource)
                && denial.namespace.as_deref().is_none_or(|ns| namespace == Some(ns))
        })
    }

    fn authorize(&self, verb: &str, served: &Served, namespace: Option<&str>, name: &str) -> Result<(), Refusal> {
        let denied = self.denies(verb, &served.resource.full_name(), namespace);
        if denied { Err(Refusal::forbidden(verb, &served.resource, namespace, name)) } else { Ok(()) }
    }

    /// Notes the answer to a request, and counts it as the real server does.
    fn answered(&mut self, number: usize, status: u16) {
        let Some(seen) = self.requests.get_mut(number) else { return };
        seen.status = Some(status);
        let seen = seen.clone();
        let Some(resource) = &seen.resource else { return };
        let verb = match (seen.asked, seen.method.as_str()) {
            (RequestKind::List, _) => "LIST",
            (RequestKind::Watch, _) => "WATCH",
            (_, method) => method,
        };
        let version = seen.path.split('/').nth(if resource.contains('.') { 3 } else { 2 }).unwrap_or_default();
        let scope = match (seen.asked, &seen.namespace) {
            (RequestKind::List | RequestKind::Watch, None) => "cluster",
            (RequestKind::List | RequestKind::Watch, Some(_)) => "namespace",
            (RequestKind::Get | RequestKind::Write | RequestKind::Other, _) => "resource",
        };
        self.count(verb, resource, version, scope, status);
    }

    fn count(&mut self, verb: &str, resource: &str, version: &str, scope: &str, status: u16) {
        let (plural, group) = resource.split_once('.').unwrap_or((resource, ""));
        let labels = [&status.to_string(), group, plural, scope, "", verb, version].map(str::to_owned);
        *self.counters.entry(labels).or_default() += 1;
    }
}

/// A simulated cluster. Clones are handles of the same; it ends with the last of them.
#[derive(Clone, Debug)]
pub struct Sim {
    shared: Arc<Shared>,
    listening: Arc<tokio::sync::Mutex<Option<Listening>>>,
    port: u16,
}

impl Sim {
    /// Starts an empty cluster: four namespaces, nothing else.
    ///
    /// # Errors
    /// Where no port can be opened on loopback.
    pub async fn start() -> io::Result<Self> {
        Self::start_with(Settings::default()).await
    }

    /// Starts an empty cluster that behaves like this.
    ///
    /// # Errors
    /// Where no port can be opened on loopback, or a resource that is to have an etcd of its own is not built in.
    pub async fn start_with(settings: Settings) -> io::Result<Self> {
        let shared = Self::begin(settings)?;
        let listening = Listening::open(&shared, 0).await?;
        let port = listening.address.port();
        Ok(Self { shared, listening: Arc::new(tokio::sync::Mutex::new(Some(listening))), port })
    }

    /// A cluster without a port: only [`Sim::answer`] reaches it.
    ///
    /// # Errors
    /// Where a resource that is to have an etcd of its own is not built in.
    pub fn unconnected(settings: Settings) -> io::Result<Self> {
        Ok(Self { shared: Self::begin(settings)?, listening: Arc::default(), port: 0 })
    }

    /// Answers a request as the port does, without a connection.
    ///
    /// # Errors
    /// Where the script breaks the connection.
    pub async fn answer(&self, request: http::Request<Bytes>) -> Result<http::Response<Body>, Broken> {
        let line = Arc::new(Line::direct());
        let request = request.map(|body| Full::new(body).map_err(|never| match never {}).boxed_unsync());
        server::serve(&self.shared, &line, request).await
    }

    fn begin(settings: Settings) -> io::Result<Arc<Shared>> {
        let mut store = Store::new(settings.seed);
        for resource in &settings.own_etcd {
            let served = store.resource(resource).map_err(io::Error::other)?;
            store.set_apart(&served.storage);
        }
        let namespaces = store.resource("namespaces").map_err(io::Error::other)?;
        for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
            let mut namespace = objects::namespace(name);
            if name == "kube-system" {
                namespace["metadata"]["uid"] = settings.cluster_uid.as_str().into();
            }
            store.create(&namespaces, namespace.into()).map_err(io::Error::other)?;
        }
        let state = State {
            store,
            settings,
            faults: Vec::new(),
            requests: Vec::new(),
            tokens: BTreeSet::from([TOKEN.to_owned()]),
            denials: Vec::new(),
            users: readers::Users::default(),
            open: BTreeMap::new(),
            counters: BTreeMap::new(),
        };
        Ok(Arc::new(Shared { state: Mutex::new(state), tick: runtime::Signal::default() }))
    }

    /// Changes how the server behaves.
    pub fn set(&self, change: impl FnOnce(&mut Settings)) {
        change(&mut self.shared.lock().settings);
        self.shared.notify();
    }

    // --- where it is ---

    /// `http://127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// A kubeconfig for it, YAML.
    #[must_use]
    pub fn kubeconfig(&self) -> String {
        self.kubeconfig_with_token(TOKEN)
    }

    /// A kubeconfig with this token.
    #[must_use]
    pub fn kubeconfig_with_token(&self, token: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: sim\n\
             clusters:\n- name: sim\n  cluster:\n    server: {}\n\
             contexts:\n- name: sim\n  context:\n    cluster: sim\n    user: sim\n\
             users:\n- name: sim\n  user:\n    token: {token}\n",
            self.url()
        )
    }

    /// Writes the kubeconfig to a file.
    ///
    /// # Errors
    /// Where the file can not be written.
    pub fn write_kubeconfig(&self, path: &Path) -> io::Result<()> {
        std::fs::write(path, self.kubeconfig())
    }

    /// Closes the port and every connection: clients get "connection refused" from now on.
    pub async fn stop_listening(&self) {
        if let Some(listening) = self.listening.lock().await.take() {
            listening.close().await;
        }
    }

    /// Opens the same port again after [`Sim::stop_listening`].
    ///
    /// # Errors
    /// Where somebody else has taken the port meanwhile.
    pub async fn start_listening(&self) -> io::Result<()> {
        let mut listening = self.listening.lock().await;
        if listening.is_none() {
            *listening = Some(Listening::open(&self.shared, self.port).await?);
        }
        Ok(())
    }

    // --- the truth ---

    /// The newest revision.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.shared.lock().store.etcd(MAIN).revision
    }

    /// The newest revision of the etcd that this resource is in, where that is one of its own.
    ///
    /// # Errors
    /// Where the resource is not served.
    pub fn revision_of(&self, resource: &str) -> Result<u64, Refusal> {
        let state = self.shared.lock();
        Ok(state.store.etcd(&state.store.resource(resource)?.storage).revision)
    }

    /// Everything that ever happened, in order. A restore takes what it undoes out of it.
    #[must_use]
    pub fn history(&self) -> Vec<Arc<Row>> {
        self.shared.lock().store.truth.clone()
    }

    /// What happened after this revision, in order, but for what is in an etcd of its own.
    #[must_use]
    pub fn history_after(&self, revision: u64) -> Vec<Arc<Row>> {
        self.shared.lock().store.truth_after(revision)
    }

    /// What happened to one resource, in order.
    #[must_use]
    pub fn history_of(&self, resource: &str) -> Vec<Arc<Row>> {
        self.history().into_iter().filter(|row| *row.resource == *resource).collect()
    }

    /// What restores have undone, in the order it once happened.
    #[must_use]
    pub fn undone(&self) -> Vec<Arc<Row>> {
        self.shared.lock().store.undone.clone()
    }

    /// The objects of a resource as they are now, by namespace and name.
    ///
    /// # Errors
    /// Where the resource is not served.
    pub fn objects(&self, resource: &str) -> Result<Vec<Arc<Row>>, Refusal> {
        let state = self.shared.lock();
        let served = state.store.resource(resource)?;
        Ok(state.store.all(&served.storage))
    }

    /// An object as it is now.
    ///
    /// # Errors
    /// Where it is not found.
    pub fn get(&self, resource: &str, namespace: &str, name: &str) -> Result<Arc<Row>, Refusal> {
        let state = self.shared.lock();
        let served = state.store.resource(resource)?;
        state.store.find(&served, namespace, name)
    }

    // --- time ---

    /// Compacts everything before this revision: it is still true, but can no longer be had. What is in an etcd of its
    /// own stays.
    pub fn compact(&self, revision: u64) {
        let mut state = self.shared.lock();
        let drop_rows = state.settings.drop_compacted;
        state.store.compact(MAIN, revision, drop_rows);
    }

    /// Compacts everything before the newest revision, in every etcd.
    pub fn compact_all(&self) {
        let mut state = self.shared.lock();
        let drop_rows = state.settings.drop_compacted;
        state.store.compact_all(drop_rows);
    }

    /// Watches of this resource can no longer begin before this revision; lists can: the window of
    /// the watch cache has moved on.
    pub fn expire_watch_history(&self, resource: &str, revision: u64) {
        let mut state = self.shared.lock();
        if let Ok(served) = state.store.resource(resource) {
            state.store.storage_mut(&served.storage).oldest = revision;
        }
    }

    /// The API server starts again, with empty watch caches: every watch breaks, and none can begin before the newest
    /// revision. etcd still has what came before, and gives it to exact lists and to watches of Events, which are not
    /// cached.
    pub fn restart_api_server(&self) {
        self.shared.lock().store.empty_caches();
        self.shared.notify();
    }

    /// The watch cache of a resource loses the next changes: no watch brings them, and no list out of that cache shows them, until the
    /// API server starts again.
    pub fn lose(&self, resource: &str, next: usize) {
        let mut state = self.shared.lock();
        if let Ok(served) = state.store.resource(resource) {
            state.store.storage_mut(&served.storage).lose(next);
        }
    }

    /// The encryption key of an object is lost: nobody can read it, also in the past. While it exists, no list of its resource that it
    /// is on is answered, and no watch cache of it begins: [`Sim::restart_api_server`] makes it begin.
    pub fn lose_key(&self, resource: &str, namespace: &str, name: &str) {
        let mut state = self.shared.lock();
        if let Ok(served) = state.store.resource(resource) {
            let key = if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") };
            state.store.storage_mut(&served.storage).lose_key(&key);
        }
    }

    /// All keys of a resource are there again.
    pub fn give_keys_back(&self, resource: &str) {
        let mut state = self.shared.lock();
        if let Ok(served) = state.store.resource(resource) {
            state.store.storage_mut(&served.storage).give_keys_back();
        }
    }

    /// etcd comes back as it was at this revision; what came later never happened. Watches end.
    pub fn restore(&self, revision: u64) {
        self.shared.lock().store.restore(revision);
        self.shared.notify();
    }

    // --- access ---

    /// Takes this token from now on.
    pub fn admit(&self, token: &str) {
        self.shared.lock().tokens.insert(token.to_owned());
    }

    /// No longer takes this token; what is open stays open.
    pub fn revoke(&self, token: &str) {
        self.shared.lock().tokens.remove(token);
    }

    /// Denies a verb (`*` for all) on a resource (`*` for all), everywhere or in one namespace.
    pub fn deny(&self, verb: &str, resource: &str, namespace: Option<&str>) {
        let denial =
            Denial { verb: verb.to_owned(), resource: resource.to_owned(), namespace: namespace.map(str::to_owned) };
        self.shared.lock().denials.push(denial);
    }

    /// Takes back every denial of this resource.
    pub fn grant(&self, resource: &str) {
        self.shared.lock().denials.retain(|denial| denial.resource != resource);
    }

    // --- trouble ---

    /// Adds a fault to the script. Of several that match, delays add up and the oldest other wins.
    pub fn fault(&self, fault: Fault) {
        self.shared.lock().faults.push(fault);
    }

    /// Takes all faults out of the script.
    pub fn heal(&self) {
        self.shared.lock().faults.clear();
    }

    /// Does this to the watches of a resource (`*` for all) that are open now. They send what happens later only after
    /// it.
    pub fn signal(&self, resource: &str, signal: &Signal) {
        let mut state = self.shared.lock();
        let only = state.store.resource(resource).map(|served| served.storage.clone()).ok();
        for storage in state.store.storages_mut() {
            if resource == "*" || only.as_deref() == Some(&**storage.name()) {
                storage.signal(signal.clone());
            }
        }
    }
}
