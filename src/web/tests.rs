//! The endpoints and the page over HTTP, for readers whom a simulated API server reviews.

mod lasting;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use reqwest::{Client, Response, StatusCode};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::core::net::server::{Authorize, Listen};
use crate::core::rights::{Authority, Known, Refusal, Refused};
use crate::journal::Journal;
use crate::query::churn::Meter;
use crate::query::status::Live;
use crate::query::tests::canaries::{Dice, KINDS, NAMESPACES, Reviewed, Roles, judged, judged_by, questions, written};
use crate::sim::Sim;
use crate::watch::cluster::{self, Api, Limits};
use crate::watch::reviews::Reviews;
use crate::web::http::assistants::tests::rights::calls;
use crate::web::http::{self, Counters, Endpoints, SinkCounts, SourceCounts};
use crate::web::ui;

/// Age of an answer of the API server in this test: roles that change are noticed soon.
const AGE: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct NoCounters;

impl Counters for NoCounters {
    fn is_ready(&self) -> bool {
        false
    }

    fn is_connected(&self) -> bool {
        true
    }

    fn sources(&self) -> Vec<SourceCounts> {
        Vec::new()
    }

    fn sinks(&self) -> Vec<SinkCounts> {
        Vec::new()
    }
}

/// What is served, and where.
struct Served {
    sim: Sim,
    client: Client,
    http: String,
    page: String,
    stop: CancellationToken,
    serving: JoinSet<()>,
}

/// Users by their numbers, whose roles are known here.
#[derive(Debug)]
struct Users(Vec<Arc<Roles>>);

impl Authority for Users {
    fn admit<'a>(&'a self, token: &'a str, _: Option<IpAddr>) -> BoxFuture<'a, Result<Known, Refusal>> {
        let roles = token.parse().ok().and_then(|number: usize| self.0.get(number));
        // Each namespace is decided by itself for one in five.
        let is_prompt = !token.ends_with(['0', '5']);
        let known = roles.map(|roles| Known { name: token.to_owned(), rights: Reviewed::new(None, roles, is_prompt) });
        Box::pin(async { known.ok_or_else(|| Refusal::new(Refused::Unknown, "nobody knows the token")) })
    }
}

/// A cluster, and its reviews, which hold for so long.
async fn reviewing(dir: &Path, age: Duration) -> (Sim, Arc<Reviews>) {
    crate::core::net::install_crypto_provider();
    let sim = Sim::start().await.unwrap();
    let kubeconfig = dir.join("kubeconfig");
    sim.write_kubeconfig(&kubeconfig).unwrap();
    let settings = cluster::Settings { kubeconfig: Some(kubeconfig), ..cluster::Settings::default() };
    let api = Api::open(&settings, Limits::default()).await.unwrap();
    (sim, Arc::new(Reviews::with_age(api, age)))
}

/// The endpoints of the journal below a directory.
fn endpoints(dir: &Path, journal: &Journal, authority: &Arc<dyn Authority>) -> Endpoints {
    Endpoints {
        state: Arc::new(dir.join("state")),
        counters: Arc::new(NoCounters),
        backlog: journal.backlog(),
        live: watch::channel(Live::default()).1,
        churn: Meter::default(),
        counts_requests: false,
        evidence: Some(dir.to_owned()),
        witness: None,
        authority: Arc::clone(authority),
    }
}

/// The settings of the endpoints and of the page, for readers whom the cluster decides about.
fn settings() -> (http::Settings, ui::Settings) {
    let (listen, authorize) = (Listen::Tcp(([127, 0, 0, 1], 0).into()), Some(Authorize::Cluster));
    let of_http = http::Settings { listen: listen.clone(), reading: true, authorize, ..http::Settings::default() };
    (of_http, ui::Settings { listen, authorize, ..ui::Settings::default() })
}

impl Served {
    async fn begin(dir: &Path) -> (Self, Journal, crate::journal::WriterThread) {
        let (sim, reviews) = reviewing(dir, AGE).await;
        Self::by(dir, sim, reviews).await
    }

    async fn by(dir: &Path, sim: Sim, authority: Arc<dyn Authority>) -> (Self, Journal, crate::journal::WriterThread) {
        let (state, stop) = (dir.join("state"), CancellationToken::new());
        let (journal, thread) = Journal::open(&state).unwrap();
        let endpoints = endpoints(dir, &journal, &authority);
        let (of_http, of_page) = settings();
        let (bound, page) = (http::bind(&of_http).await.unwrap(), ui::bind(&of_page).await.unwrap());
        let at = |address: Option<std::net::SocketAddr>| format!("http://{}", address.unwrap());
        let mut served = Self {
            sim,
            client: Client::builder().no_proxy().tls_certs_only([]).build().unwrap(),
            http: at(bound.address()),
            page: at(page.address()),
            stop: stop.clone(),
            serving: JoinSet::new(),
        };
        let (until, state) = (stop.clone(), state.clone());
        let serving = &mut served.serving;
        serving.spawn(async move { http::serve(bound, endpoints, until).await.unwrap() });
        serving.spawn(async move { ui::serve(page, &of_page, (&state, authority), stop).await.unwrap() });
        (served, journal, thread)
    }

    async fn get(&self, at: &str, path: &str, token: &str) -> Response {
        let mut request = self.client.get(format!("{at}{path}"));
        if !token.is_empty() {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        request.send().await.unwrap()
    }

    async fn post(&self, path: &str, token: &str, body: &Value) -> Response {
        let request = self.client.post(format!("{}{path}", self.http)).body(body.to_string());
        let request =
            request.header("content-type", "application/json").header("accept", "application/json, text/event-stream");
        let request =
            if token.is_empty() { request } else { request.header("authorization", format!("Bearer {token}")) };
        request.send().await.unwrap()
    }

    async fn question(&self, name: &str, token: &str, ask: &Value) -> (StatusCode, String) {
        let answer = self.post(&format!("/api/v1/{name}"), token, &json!({"ask": ask})).await;
        (answer.status(), answer.text().await.unwrap())
    }

    async fn tool(&self, token: &str, name: &str, arguments: &Value) -> (StatusCode, String) {
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}});
        let answer = self.post("/mcp", token, &call).await;
        (answer.status(), answer.text().await.unwrap())
    }
}

/// Writes a log with canaries.
async fn with_canaries() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    tokio::time::pause();
    written(&dir.path().join("state")).await;
    tokio::time::resume();
    dir
}

/// Who shows no token, or one that nobody knows, gets nothing; what is about the whole log takes a right of its own; and whatever else
/// is asked shows what the reader may list, at an address of [`Served`] whatever the way is.
#[tokio::test]
async fn no_endpoint_answers_more_than_a_reader_may_list() {
    let dir = with_canaries().await;
    let (served, journal, thread) = Served::begin(dir.path()).await;
    let sim = &served.sim;
    for token in ["", "unknown"] {
        for path in ["/metrics", "/status", "/evidence/x"] {
            assert_eq!(
                served.get(&served.http, path, token).await.status(),
                StatusCode::UNAUTHORIZED,
                "{path} {token}"
            );
        }
        assert_eq!(served.question("tail", token, &json!({"last": 5})).await.0, StatusCode::UNAUTHORIZED);
        assert_eq!(served.question("clusters", token, &json!(null)).await.0, StatusCode::UNAUTHORIZED);
        assert_eq!(served.tool(token, "log", &json!({})).await.0, StatusCode::UNAUTHORIZED);
        for path in ["/api/v1/overview", "/api/v1/clusters", "/api/v1/follow"] {
            let answer = served.get(&served.page, path, token).await;
            assert_eq!(answer.status(), StatusCode::UNAUTHORIZED, "{path} {token}");
        }
    }
    assert_eq!(served.get(&served.http, "/livez", "").await.status(), StatusCode::OK);
    let unready = served.get(&served.http, "/readyz", "").await.text().await.unwrap();
    assert!(!unready.contains("configmaps") && unready.contains("/status says why"), "{unready}");
    for path in ["/livez?cluster=prod", "/readyz?cluster=prod"] {
        let answer = served.get(&served.http, path, "").await;
        assert_eq!(answer.status(), StatusCode::UNAUTHORIZED, "which clusters there are is not for everybody: {path}");
    }
    assert_eq!(served.get(&served.page, "/", "").await.status(), StatusCode::OK, "the page without data is public");
    sim.set_user("token-of-ann", "ann");
    for path in ["/metrics", "/status", "/evidence/x"] {
        let answer = served.get(&served.http, path, "token-of-ann").await;
        assert_eq!(answer.status(), StatusCode::FORBIDDEN, "{path}");
        assert!(answer.text().await.unwrap().contains("nonResourceURLs"), "it says what to do");
    }
    sim.grant_user_path("ann", "/metrics");
    tokio::time::timeout(Duration::from_secs(60), async {
        while served.get(&served.http, "/metrics", "token-of-ann").await.status() != StatusCode::OK {}
    })
    .await
    .unwrap();
    let (mut dice, mut useful, mut wrong) = (Dice(3), 0, Vec::new());
    for reader in 0..5 {
        let (token, user) = (format!("token-{reader}"), format!("reader-{reader}"));
        sim.set_user(&token, &user);
        let (number, kind) = (dice.roll(NAMESPACES), KINDS[dice.roll(2)]);
        let resource = if kind == "deployments" { "deployments.apps" } else { kind };
        let namespace = format!("canary-{number:02}");
        sim.grant_user(&user, resource, Some(&namespace));
        if reader % 4 == 0 {
            sim.grant_user(&user, "configmaps", None);
        }
        let within = json!({"select": {"only": {"namespaces": [namespace]}}, "last": 50});
        let mut answers = vec![served.question("tail", &token, &within).await];
        let window = json!({"window": {"quiet": true, "namespaces": [namespace]}, "limit": 50});
        answers.push(served.question("entries", &token, &window).await);
        answers.push(served.tool(&token, "log", &json!({"namespaces": [namespace]})).await);
        for path in ["overview", "entries", "lanes", "histogram", "state"] {
            let query = if path == "overview" { String::new() } else { format!("?namespace={namespace}") };
            let answer = served.get(&served.page, &format!("/api/v1/{path}{query}"), &token).await;
            answers.push((answer.status(), answer.text().await.unwrap()));
        }
        for (at, (status, text)) in answers.into_iter().enumerate() {
            let may = |kind: &str, number: usize| {
                let resource = if kind == "deployments" { "deployments.apps" } else { kind };
                sim.may_list(&user, resource, &format!("canary-{number:02}"))
            };
            let (leaked, covered) = judged_by(&may, &namespace, &text);
            if status != StatusCode::OK || !leaked.is_empty() {
                wrong.push(format!(
                    "answer {at} to {user}: {status} {leaked:?} {}",
                    text.chars().take(300).collect::<String>()
                ));
            }
            useful += covered;
        }
        // From now on it may list nothing.
        sim.revoke_user(&user);
        tokio::time::timeout(Duration::from_secs(60), async {
            while served.question("tail", &token, &within).await.1.contains(&format!("{namespace}-")) {}
        })
        .await
        .unwrap();
    }
    assert!(wrong.is_empty() && useful > 40, "{useful}\n{}", wrong.join("\n"));
    served.stop.cancel();
    drop(journal);
    tokio::task::spawn_blocking(move || thread.join()).await.unwrap().unwrap();
}

/// Fifty readers whose roles change while they ask every question, every tool and every page there is: nothing is shown that a reader
/// may not list at that time. Over HTTP, where a question is asked again until all is decided.
#[tokio::test]
async fn nobody_is_shown_over_http_what_nobody_let_them_list() {
    let dir = with_canaries().await;
    let roles: Vec<_> = (0..50).map(|_| Arc::new(Roles::default())).collect();
    let (sim, known) = (Sim::start().await.unwrap(), Arc::new(Users(roles.clone())));
    crate::core::net::install_crypto_provider();
    let (served, journal, thread) = Served::by(dir.path(), sim, known).await;
    let pages = ["overview", "histogram", "lanes", "entries", "entry", "diff", "object", "state", "changes", "churn"];
    let (mut dice, mut useful, mut wrong) = (Dice(4), BTreeSet::new(), Vec::new());
    let head = usize::try_from(journal.head().borrow().0).unwrap();
    let sorts = questions(0, 1, "configmaps").len() + calls(0, "configmaps", 1).len() + pages.len();
    for turn in 0..3 * sorts {
        let (token, roles) = ((turn % 50).to_string(), &roles[turn % 50]);
        roles.change(&mut dice);
        let own = roles.0.lock().unwrap().iter().find(|(kind, _)| *kind != "nodes").copied();
        let number = own.and_then(|(_, own)| own).unwrap_or(turn % NAMESPACES);
        let (kind, seq) = (own.map_or("configmaps", |(kind, _)| kind), dice.roll(head) + 1);
        let (mut asked, mut called) = (questions(number, seq, kind), calls(number, kind, seq));
        let at = turn % sorts;
        let (what, (status, text)) = if at < asked.len() {
            let (name, question) = asked.swap_remove(at);
            (format!("{name} {question}"), served.question(name, &token, &question).await)
        } else if at < asked.len() + called.len() {
            let (tool, arguments) = called.swap_remove(at - asked.len());
            (format!("{tool} {arguments}"), served.tool(&token, tool, &arguments).await)
        } else {
            let page = pages[at - asked.len() - called.len()];
            let of = format!("resource={kind}&name=canary-{number:02}-{kind}-name&seq={seq}&from={seq}&to={head}");
            let path = format!("/api/v1/{page}?namespace=canary-{number:02}&{of}");
            let path = if ["object", "entry", "diff", "changes"].contains(&page) {
                path
            } else {
                format!("/api/v1/{page}?namespace=canary-{number:02}")
            };
            let answer = served.get(&served.page, &path, &token).await;
            (path, (answer.status(), answer.text().await.unwrap()))
        };
        let (leaked, covered) = judged(roles, &what, &text);
        if covered > 0 {
            useful.insert(at);
        }
        if status.is_server_error() || [401, 403].contains(&status.as_u16()) && !what.contains("/api/v1/overview?") {
            wrong.push(format!("{what}: {status} {text}"));
        }
        wrong.extend(leaked.first().map(|canary| format!("{what} shows {canary}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(useful.len() * 2 > sorts, "hardly anything shows what may be listed: {useful:?} of {sorts}");
    served.stop.cancel();
    drop(journal);
    tokio::task::spawn_blocking(move || thread.join()).await.unwrap().unwrap();
}

/// Lets somebody follow the ConfigMaps, which she may list.
async fn following(served: &Served) -> Response {
    served.sim.set_user("token-of-ann", "ann");
    served.sim.grant_user("ann", "configmaps", None);
    let ask = json!({"ask": {"select": {"objects": ["configmaps"]}, "follow": true, "last": 5}});
    served.post("/api/v1/tail", "token-of-ann", &ask).await
}

async fn shows_something(tail: &mut Response) {
    let mut first = String::new();
    while !first.contains("canary-") {
        first.push_str(&String::from_utf8_lossy(&tail.chunk().await.unwrap().unwrap()));
    }
}

/// A stream ends when a right ends on which it stands, also where nothing comes any more.
#[tokio::test]
async fn an_open_stream_ends_with_its_right() {
    let dir = with_canaries().await;
    let (served, journal, thread) = Served::begin(dir.path()).await;
    let mut tail = following(&served).await;
    shows_something(&mut tail).await;
    served.sim.revoke_user("ann");
    let rest = tokio::time::timeout(Duration::from_secs(60), tail.text()).await.unwrap().unwrap();
    assert!(rest.contains("\"end\"") && rest.contains("your rights changed"), "{rest}");
    served.stop.cancel();
    drop(journal);
    tokio::task::spawn_blocking(move || thread.join()).await.unwrap().unwrap();
}

/// A stream ends when its token does.
#[tokio::test]
async fn an_open_stream_ends_with_its_token() {
    let dir = with_canaries().await;
    let (served, journal, thread) = Served::begin(dir.path()).await;
    let mut tail = following(&served).await;
    let follow = served.get(&served.page, "/api/v1/follow", "token-of-ann").await;
    assert_eq!((tail.status(), follow.status()), (StatusCode::OK, StatusCode::OK));
    shows_something(&mut tail).await;
    served.sim.forget_user("token-of-ann");
    let rest = tokio::time::timeout(Duration::from_secs(60), tail.text()).await.unwrap().unwrap();
    assert!(rest.contains("\"end\"") && rest.contains("does not know your token"), "{rest}");
    // The page looks each fifteen seconds, or when there is something new.
    let rest = tokio::time::timeout(Duration::from_secs(60), follow.text()).await.unwrap();
    assert!(!rest.unwrap().contains("canary-"));
    served.stop.cancel();
    drop(journal);
    tokio::task::spawn_blocking(move || thread.join()).await.unwrap().unwrap();
}

/// A page in a browser asks nothing in the name of somebody whose token the browser, or a proxy before decklog, adds.
#[tokio::test]
async fn no_page_of_a_browser_speaks_the_protocol_of_assistants() {
    let dir = with_canaries().await;
    let (served, journal, thread) = Served::begin(dir.path()).await;
    let call =
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "coverage", "arguments": {}}});
    served.sim.set_user("token-of-ann", "ann");
    served.sim.grant_user("ann", "configmaps", None);
    for origin in ["http://evil.example", "null", &served.http, "https://decklog.example", "http://localhost"] {
        let request = served.client.post(format!("{}/mcp", served.http)).body(call.to_string());
        let request =
            request.header("content-type", "application/json").header("accept", "application/json, text/event-stream");
        let answer = request.bearer_auth("token-of-ann").header("origin", origin).send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::FORBIDDEN, "{origin}");
        let text = answer.text().await.unwrap();
        assert!(!text.contains("statements"), "{origin}: {text}");
    }
    let (status, text) = served.tool("token-of-ann", "coverage", &json!({})).await;
    assert_eq!(status, StatusCode::OK);
    // What objects say is a text inside of the answer, and no part of its form.
    let answer: Value = serde_json::from_str(&text).unwrap();
    let statements = answer["result"]["structuredContent"]["statements"].as_array().unwrap();
    assert!(!statements.is_empty() && statements.iter().all(|statement| statement["data"].is_string()), "{text}");
    served.stop.cancel();
    drop(journal);
    tokio::task::spawn_blocking(move || thread.join()).await.unwrap().unwrap();
}
