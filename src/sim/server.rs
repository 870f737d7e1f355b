//! HTTP: connections, routes, authentication, and the script that interferes.

mod writes;

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderName, IF_NONE_MATCH, RETRY_AFTER,
    USER_AGENT,
};
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::faults::{Act, Answer, Refusal, RequestKind, Seen, Tamper};
use super::list::{self, Decided, Manner, Options, Twist, is_true};
use super::object::{Form, Row};
use super::resources::Served;
use super::store::{EVENTS, Storage};
use super::watching::{self, Start, Watcher};
use super::wire::{Body, Broken, Line, Source, Wire, body};
use super::{Settings, Shared, State, discovery};
pub(super) use writes::merge;
use writes::write;

/// The body of a request, from a connection or not.
type Incoming = UnsyncBoxBody<Bytes, hyper::Error>;

const JSON: &str = "application/json";

/// An open port and everything behind it; dropping it ends all connections.
#[derive(Debug)]
pub(super) struct Listening {
    pub(super) address: SocketAddr,
    tasks: TaskTracker,
    stop: DropGuard,
}

impl Listening {
    /// Opens this port on loopback; 0 takes any free one.
    pub(super) async fn open(shared: &Arc<Shared>, port: u16) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
        let address = listener.local_addr()?;
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        tasks.spawn(accept(Arc::clone(shared), listener, tasks.clone(), stop.clone()));
        Ok(Self { address, tasks, stop: stop.drop_guard() })
    }

    /// Closes the port and all connections, and waits until they are closed.
    pub(super) async fn close(self) {
        drop(self.stop);
        self.tasks.close();
        self.tasks.wait().await;
    }
}

async fn accept(shared: Arc<Shared>, listener: TcpListener, tasks: TaskTracker, stop: CancellationToken) {
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        // A connection that failed before it was accepted is the client's loss.
        let Ok((stream, _)) = accepted else { continue };
        stream.set_nodelay(true).ok();
        let (wire, line) = Wire::new(stream);
        let (shared, stop) = (Arc::clone(&shared), stop.clone());
        tasks.spawn(async move {
            let service = service_fn(|request: Request<hyper::body::Incoming>| {
                serve(&shared, &line, request.map(BodyExt::boxed_unsync))
            });
            let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(wire), service);
            tokio::select! {
                // It ends with an error wherever the script breaks it.
                _ = connection => {}
                () = stop.cancelled() => {}
            }
        });
    }
}

/// What a path means.
#[derive(Debug)]
enum Route {
    /// Health, version, discovery.
    Other,
    /// `group`, `version`, `namespace`, and the rest.
    Resource { group: String, version: String, namespace: Option<String>, plural: String, name: String, sub: String },
}

fn route(path: &str) -> Route {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let (group, version, rest) = match parts.as_slice() {
        ["api", version, rest @ ..] if !rest.is_empty() => ("", *version, rest),
        ["apis", group, version, rest @ ..] if !rest.is_empty() => (*group, *version, rest),
        _ => return Route::Other,
    };
    let (namespace, rest) = match rest {
        // Namespaces themselves, with subresources.
        ["namespaces", _] | ["namespaces", _, "status" | "finalize"] => (None, rest),
        ["namespaces", namespace, rest @ ..] => (Some((*namespace).to_owned()), rest),
        _ => (None, rest),
    };
    let part = |at: usize| rest.get(at).copied().unwrap_or_default().to_owned();
    Route::Resource {
        group: group.to_owned(),
        version: version.to_owned(),
        namespace,
        plural: part(0),
        name: part(1),
        sub: part(2),
    }
}

fn seen(request: &Request<Incoming>, route: &Route, options: &Options) -> Seen {
    let header = |name: HeaderName| {
        request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
    };
    let (asked, resource, namespace) = match route {
        Route::Other => (RequestKind::Other, None, None),
        Route::Resource { group, namespace, plural, name, .. } => {
            let asked = match (request.method(), name.as_str()) {
                (&Method::GET, "") if is_true(&options.watch) => RequestKind::Watch,
                (&Method::GET, "") => RequestKind::List,
                (&Method::GET, _) => RequestKind::Get,
                _ => RequestKind::Write,
            };
            let full = if group.is_empty() { plural.clone() } else { format!("{plural}.{group}") };
            (asked, Some(full), namespace.clone())
        }
    };
    Seen {
        method: request.method().to_string(),
        path: request.uri().path().to_owned(),
        query: request.uri().query().unwrap_or_default().to_owned(),
        user_agent: header(USER_AGENT),
        accept: header(ACCEPT),
        accept_encoding: header(ACCEPT_ENCODING),
        authorization: header(AUTHORIZATION),
        if_none_match: header(IF_NONE_MATCH),
        asked,
        resource,
        namespace,
        at: Instant::now(),
        status: None,
    }
}

/// What the script wants of one request.
#[derive(Debug, Default)]
struct Script {
    delay: Duration,
    chop: Option<usize>,
    tamper: Option<Tamper>,
    act: Option<Act>,
}

/// Notes the request and takes what the script has for it.
fn note(state: &mut State, seen: &Seen) -> (usize, Script) {
    let mut script = Script::default();
    for fault in &mut state.faults {
        if script.act.is_some() || script.tamper.is_some() {
            break;
        }
        match fault.shoot(seen) {
            None => {}
            Some(Act::Delay(delay)) => script.delay += delay,
            Some(Act::Chop(most)) => script.chop = Some(most),
            Some(Act::Tamper(tamper)) => script.tamper = Some(tamper),
            Some(act @ (Act::Answer(_) | Act::Reset | Act::Hang | Act::Lie(_) | Act::Extra(_))) => {
                script.act = Some(act);
            }
        }
    }
    state.faults.retain(|fault| !fault.is_spent());
    state.requests.push(seen.clone());
    (state.requests.len() - 1, script)
}

/// Answers one request that came on this line.
pub(super) async fn serve(
    shared: &Arc<Shared>,
    line: &Arc<Line>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Broken> {
    let options = axum::extract::Query::<Options>::try_from_uri(request.uri()).map(|query| query.0).unwrap_or_default();
    let route = route(request.uri().path());
    let seen = seen(&request, &route, &options);
    let (number, script) = note(&mut shared.lock(), &seen);
    shared.notify();
    if !script.delay.is_zero() {
        tokio::time::sleep(script.delay).await;
    }
    let reply = match script.act {
        Some(Act::Reset) => {
            line.reset.store(true, Ordering::Relaxed);
            return Err(Broken);
        }
        Some(Act::Hang) => std::future::pending::<Reply>().await,
        Some(Act::Answer(answer)) => Reply::from(answer),
        act => {
            let twist = match act {
                Some(Act::Lie(lie)) => Twist { lie: Some(lie), extra: Vec::new() },
                Some(Act::Extra(items)) => Twist { lie: None, extra: items },
                _ => Twist::default(),
            };
            let answered = answer(shared, request, &route, &seen, options, twist).await;
            answered.unwrap_or_else(|refusal| refusal.answer().into())
        }
    };
    shared.lock().answered(number, reply.status);
    shared.notify();
    let mut response = Response::builder()
        .status(reply.status)
        .header(CONTENT_TYPE, reply.content_type)
        .header(CACHE_CONTROL, "no-cache, private")
        .header("audit-id", format!("{number:08x}-0000-4000-8000-000000000000"));
    if let Some(seconds) = reply.retry_after {
        response = response.header(RETRY_AFTER, seconds);
    }
    if let Some(etag) = reply.etag {
        response = response.header(ETAG, etag);
    }
    response.body(body(reply.source, script.tamper, script.chop, Arc::clone(line))).map_err(|_| Broken)
}

/// An answer before it becomes HTTP.
struct Reply {
    status: u16,
    content_type: String,
    retry_after: Option<u32>,
    etag: Option<String>,
    source: Source,
}

impl From<Answer> for Reply {
    fn from(answer: Answer) -> Self {
        Self {
            status: answer.status,
            content_type: answer.content_type.to_owned(),
            retry_after: answer.retry_after,
            etag: None,
            source: Source::Whole(Some(answer.body)),
        }
    }
}

impl Reply {
    fn ok(source: Source) -> Self {
        Self { status: 200, content_type: JSON.to_owned(), retry_after: None, etag: None, source }
    }

    fn json(value: &Value) -> Self {
        Self::ok(Source::Whole(Some(format!("{value}\n").into())))
    }

    fn text(content_type: &str, text: impl Into<Bytes>) -> Self {
        Self { content_type: content_type.to_owned(), ..Self::ok(Source::Whole(Some(text.into()))) }
    }

    fn object(status: u16, served: &Served, row: &Row, metadata_only: bool) -> Self {
        let head = served.head();
        let mut out = Vec::new();
        row.write(&mut out, if metadata_only { Form::Metadata } else { Form::Whole(&head) });
        out.push(b'\n');
        Self { status, ..Self::ok(Source::Whole(Some(out.into()))) }
    }
}

async fn answer(
    shared: &Arc<Shared>,
    request: Request<Incoming>,
    route: &Route,
    seen: &Seen,
    options: Options,
    twist: Twist,
) -> Result<Reply, Refusal> {
    shared.lock().authenticate(seen)?;
    let Route::Resource { group, version, namespace, plural, name, sub } = route else {
        return other(&shared.lock(), seen);
    };
    let served = {
        let state = shared.lock();
        let served = state
            .store
            .served
            .iter()
            .find(|s| s.resource.group == *group && s.resource.version == *version && s.resource.plural == *plural)
            .cloned()
            .ok_or_else(Refusal::not_served)?;
        let verb = match (seen.asked, request.method()) {
            (RequestKind::List, _) => "list",
            (RequestKind::Watch, _) => "watch",
            (RequestKind::Get, _) => "get",
            (_, &Method::POST) => "create",
            (_, &Method::PUT) => "update",
            (_, &Method::PATCH) => "patch",
            (_, &Method::DELETE) if name.is_empty() => "deletecollection",
            (_, &Method::DELETE) => "delete",
            _ => return Err(Refusal::not_allowed()),
        };
        state.authorize(verb, &served, namespace.as_deref(), name)?;
        let known = sub.is_empty() || (sub == "status" && served.subresources.contains(&"status"));
        if !known || (namespace.is_some() && !served.resource.namespaced) {
            return Err(Refusal::not_served());
        }
        if !served.can(verb) {
            return Err(Refusal::not_allowed());
        }
        served
    };
    let metadata_only = seen.accept.contains("as=PartialObjectMetadata");
    match seen.asked {
        RequestKind::List => list(shared, &served, namespace.as_deref(), &options, metadata_only, twist).await,
        RequestKind::Watch => watch(shared, served, namespace.clone(), &options, metadata_only).await,
        RequestKind::Get => {
            let state = shared.lock();
            let row = state.store.find(&served, namespace.as_deref().unwrap_or_default(), name)?;
            state.store.storage(&served.storage).map_or(Ok(()), |storage| storage.read(&row))?;
            Ok(Reply::object(200, &served, &row, metadata_only))
        }
        RequestKind::Write | RequestKind::Other => {
            let reply = write(shared, request, &served, namespace.as_deref(), name, sub).await;
            shared.notify();
            reply
        }
    }
}

fn other(state: &State, seen: &Seen) -> Result<Reply, Refusal> {
    let parts: Vec<&str> = seen.path.split('/').filter(|part| !part.is_empty()).collect();
    let served = &state.store.served;
    let settings = &state.settings;
    let aggregated = !settings.legacy_discovery && discovery::wants_aggregated(&seen.accept);
    match parts.as_slice() {
        ["livez" | "readyz" | "healthz", ..] => Ok(Reply::text("text/plain; charset=utf-8", "ok")),
        ["version"] => Ok(Reply::json(&version(&settings.version))),
        ["metrics"] if state.denies("get", "/metrics", None) => {
            Err(Refusal::new(403, "Forbidden", "forbidden: User \"decklog\" cannot get path \"/metrics\""))
        }
        ["metrics"] => Ok(Reply::text("text/plain; version=0.0.4; charset=utf-8", metrics(&state.counters))),
        [root @ ("api" | "apis")] if aggregated => {
            let etag = discovery::etag(served, root, settings);
            let reply = if seen.if_none_match == etag {
                Reply { status: 304, ..Reply::ok(Source::Whole(None)) }
            } else {
                Reply::json(&discovery::aggregated(served, *root == "api", settings))
            };
            Ok(Reply { content_type: discovery::AGGREGATED.to_owned(), etag: Some(etag), ..reply })
        }
        ["api"] => Ok(Reply::json(&discovery::core_versions("127.0.0.1"))),
        ["apis"] => Ok(Reply::json(&discovery::group_list(served, settings))),
        ["api", version] => {
            discovery::resource_list(served, "", version).map(|v| Reply::json(&v)).ok_or_else(Refusal::not_served)
        }
        // The backend of a stale group does not answer.
        ["apis", group, ..] if settings.stale_groups.contains(*group) => {
            Err(Refusal::new(503, "ServiceUnavailable", "the server is currently unable to handle the request"))
        }
        ["apis", group] => discovery::group(served, group).map(|v| Reply::json(&v)).ok_or_else(Refusal::not_served),
        ["apis", group, version] => {
            discovery::resource_list(served, group, version).map(|v| Reply::json(&v)).ok_or_else(Refusal::not_served)
        }
        _ => Err(Refusal::not_served()),
    }
}

fn version(version: &str) -> Value {
    let mut numbers = version.trim_start_matches('v').split('.');
    let mut number = || numbers.next().unwrap_or_default();
    json!({
        "major": number(), "minor": number(), "gitVersion": version, "gitCommit": "0000000000000000000000000000000000000000",
        "gitTreeState": "clean", "buildDate": "2026-01-01T00:00:00Z", "goVersion": "go1.25.0", "compiler": "gc",
        "platform": "linux/amd64",
    })
}

fn metrics(counters: &BTreeMap<[String; 7], u64>) -> String {
    let mut text =
        "# HELP apiserver_request_total [STABLE] Counter of apiserver requests broken out for each verb, dry \
                    run value, group, version, resource, scope, component, and HTTP response code.\n\
                    # TYPE apiserver_request_total counter\n"
            .to_owned();
    for ([code, group, resource, scope, subresource, verb, version], count) in counters {
        text.push_str(&format!(
            "apiserver_request_total{{code=\"{code}\",component=\"apiserver\",dry_run=\"\",group=\"{group}\",\
             resource=\"{resource}\",scope=\"{scope}\",subresource=\"{subresource}\",verb=\"{verb}\",\
             version=\"{version}\"}} {count}\n"
        ));
    }
    text
}

async fn list(
    shared: &Arc<Shared>,
    served: &Served,
    namespace: Option<&str>,
    options: &Options,
    metadata_only: bool,
    twist: Twist,
) -> Result<Reply, Refusal> {
    let decide = || {
        let State { store, settings, .. } = &*shared.lock();
        let &Settings { exact, snapshots, future_is_internal, counts, .. } = settings;
        let manner = Manner { exact, snapshots, future_is_internal, counts, twist: twist.clone() };
        list::decide(store, served, namespace, options, metadata_only, manner)
    };
    if let Decided::Later(revision) = decide()? {
        shared.reach(&served.storage, revision).await?;
    }
    match decide()? {
        Decided::Pages(pages) => Ok(Reply::ok(Source::Pages(pages))),
        Decided::Later(revision) => {
            Err(Refusal::too_large(revision, shared.lock().store.etcd(&served.storage).revision))
        }
    }
}

async fn watch(
    shared: &Arc<Shared>,
    served: Arc<Served>,
    namespace: Option<String>,
    options: &Options,
    metadata_only: bool,
) -> Result<Reply, Refusal> {
    let asked = watching::WatchRequest {
        selector: options.selector(&served)?,
        bookmarks: is_true(&options.allow_watch_bookmarks),
        timeout: options.timeout_seconds.parse().ok().filter(|seconds| *seconds > 0).map(Duration::from_secs),
        namespace,
        metadata_only,
        served,
    };
    let start = || {
        let state = shared.lock();
        let newest = state.store.etcd(&asked.served.storage).revision;
        watching::start(newest, options, state.settings.watch_list)
    };
    if let Start::Later(revision) = start()?
        && let Err(refusal) = shared.reach(&asked.served.storage, revision).await
    {
        return Ok(Reply::ok(Source::Whole(Some(refusal.event_line()))));
    }
    let begin = start()?;
    let mut state = shared.lock();
    state.store.storage(&asked.served.storage).map_or(Ok(()), Storage::cached)?;
    if let Start::After(revision) = begin
        && revision < state.store.oldest(&asked.served.storage)
    {
        let oldest = state.store.oldest(&asked.served.storage);
        // Events are not cached: etcd itself says no, in its own words.
        let refusal = if asked.served.storage == EVENTS {
            Refusal::new(410, "Expired", "The resourceVersion for the provided watch is too old.")
        } else {
            Refusal::expired(revision, oldest)
        };
        if state.settings.http_410 {
            return Err(refusal);
        }
        return Ok(Reply::ok(Source::Whole(Some(refusal.event_line()))));
    }
    let every = state.settings.bookmarks_every;
    let opened = asked.served.resource.full_name();
    // Events get no bookmarks but the one that ends the initial state.
    let asked = watching::WatchRequest { bookmarks: asked.bookmarks && asked.served.storage != EVENTS, ..asked };
    let watcher = Watcher::open(shared, &mut state.store, every, asked, &begin);
    *state.open.entry(opened).or_default() += 1;
    Ok(Reply::ok(Source::Watch(Box::new(watcher))))
}
