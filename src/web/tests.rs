//! The endpoints and the page over HTTP, for readers whom a simulated API server reviews.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use reqwest::{Client, Response, StatusCode};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::core::net::server::{Authorize, Listen};
use crate::core::rights::Authority;
use crate::journal::Journal;
use crate::query::churn::Meter;
use crate::query::status::Live;
use crate::query::tests::canaries::{Dice, KINDS, NAMESPACES, judged_by, written};
use crate::sim::Sim;
use crate::watch::cluster::{self, Api, Limits};
use crate::watch::reviews::Reviews;
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

impl Served {
    async fn begin(dir: &Path) -> (Self, Journal, crate::journal::WriterThread) {
        crate::core::net::install_crypto_provider();
        let sim = Sim::start().await.unwrap();
        let kubeconfig = dir.join("kubeconfig");
        sim.write_kubeconfig(&kubeconfig).unwrap();
        let settings = cluster::Settings { kubeconfig: Some(kubeconfig), ..cluster::Settings::default() };
        let api = Api::open(&settings, Limits::default()).await.unwrap();
        let authority: Arc<dyn Authority> = Arc::new(Reviews::with_age(api, AGE));
        let (state, stop) = (dir.join("state"), CancellationToken::new());
        let (journal, thread) = Journal::open(&state).unwrap();
        let endpoints = Endpoints {
            state: Arc::new(state.clone()),
            counters: Arc::new(NoCounters),
            backlog: journal.backlog(),
            live: watch::channel(Live::default()).1,
            churn: Meter::default(),
            counts_requests: false,
            evidence: Some(dir.to_owned()),
            witness: None,
            authority: Arc::clone(&authority),
        };
        let (listen, authorize) = (Listen::Tcp(([127, 0, 0, 1], 0).into()), Some(Authorize::Cluster));
        let of_http = http::Settings { listen: listen.clone(), reading: true, authorize, ..http::Settings::default() };
        let of_page = ui::Settings { listen, authorize, ..ui::Settings::default() };
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

/// A stream ends when its token does.
#[tokio::test]
async fn an_open_stream_ends_with_its_token() {
    let dir = with_canaries().await;
    let (served, journal, thread) = Served::begin(dir.path()).await;
    served.sim.set_user("token-of-ann", "ann");
    served.sim.grant_user("ann", "configmaps", None);
    let ask = json!({"ask": {"select": {"objects": ["configmaps"]}, "follow": true, "last": 5}});
    let mut tail = served.post("/api/v1/tail", "token-of-ann", &ask).await;
    let follow = served.get(&served.page, "/api/v1/follow", "token-of-ann").await;
    assert_eq!((tail.status(), follow.status()), (StatusCode::OK, StatusCode::OK));
    let mut first = String::new();
    while !first.contains("canary-") {
        first.push_str(&String::from_utf8_lossy(&tail.chunk().await.unwrap().unwrap()));
    }
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
