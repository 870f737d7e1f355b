//! Answers whose rights change between their first byte and their last one.
//!
//! The bodies are read as slowly as it takes, without a socket that has room for all of them.

use axum::Router;
use axum::body::{Body, BodyDataStream};
use axum::http::{Method, Request};
use futures::StreamExt as _;
use tower::ServiceExt as _;

use super::*;
use crate::core::net::server::{Peer, Stage};
use crate::sim::faults::{Act, At, Fault, How, On, Then};

/// Time for which an answer of the API server holds here: more than twenty reviews in a second are refused, however slow the machine is.
const SHORT: Duration = Duration::from_secs(3);

/// What becomes of the rights of ann, who may list the ConfigMaps of all namespaces, and what the end of an answer says then; nothing
/// where the answer is whole.
type Case = (&'static str, fn(&Sim), Option<&'static str>);

const CASES: [Case; 6] = [
    ("it is renewed", |_| (), None),
    ("another one comes", |sim| sim.grant_user("ann", "deployments.apps", None), None),
    ("it is taken away", |sim| sim.revoke_user("ann"), Some("your rights changed")),
    ("it is left in one namespace", narrow, Some("your rights changed")),
    ("the token is taken back", |sim| sim.forget_user("token-of-ann"), Some("does not know your token")),
    ("the API server is away", leave, Some("does not say who you are")),
];

fn narrow(sim: &Sim) {
    sim.revoke_user("ann");
    sim.grant_user("ann", "configmaps", Some("canary-07"));
}

fn leave(sim: &Sim) {
    for review in ["tokenreviews.authentication.k8s.io", "subjectaccessreviews.authorization.k8s.io"] {
        sim.fault(Fault::new(On::write(review), Act::tamper(At::Byte(0), How::Nothing, Then::Reset)).always());
    }
}

/// An answer of which the first part has come.
struct Begun {
    way: &'static str,
    first: String,
    rest: BodyDataStream,
}

impl Begun {
    async fn next(&mut self) -> Option<Result<String, axum::Error>> {
        let part = self.rest.next().await?;
        Some(part.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// Returns the rest of the answer, and whether it breaks off.
    async fn rest(&mut self) -> (String, bool) {
        let mut text = String::new();
        while let Some(part) = self.next().await {
            match part {
                Ok(part) => text.push_str(&part),
                Err(_) => return (text, true),
            }
        }
        (text, false)
    }
}

/// A request of ann's.
fn request(path: &str, body: Option<String>) -> Request<Body> {
    let method = if body.is_some() { Method::POST } else { Method::GET };
    let request = Request::builder().method(method).uri(path).header("host", "localhost");
    let request = request.header("authorization", "Bearer token-of-ann").header("content-type", "application/json");
    let request = request.header("accept", "application/json, text/event-stream");
    let request = request.extension(Peer::Unix(None)).extension(Stage::default());
    request.body(body.map_or_else(Body::empty, Body::from)).unwrap()
}

/// Asks for the ConfigMaps on each way that there is, and takes the answers until something of the log has come.
async fn asked(endpoints: &Router, page: &Router) -> Vec<Begun> {
    let tail = json!({"ask": {"select": {"objects": ["configmaps"]}, "last": 2000}}).to_string();
    let log = json!({"objects": ["configmaps"]});
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "log", "arguments": log}});
    let mut all = Vec::new();
    for (way, router, path, body) in [
        ("command", endpoints, "/api/v1/tail", Some(tail)),
        ("assistant", endpoints, "/mcp", Some(call.to_string())),
        ("lanes", page, "/api/v1/lanes?what=configmaps&quiet=1", None),
        ("entries", page, "/api/v1/entries?what=configmaps&limit=1000", None),
    ] {
        let answer = router.clone().oneshot(request(path, body)).await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK, "{way}");
        let mut begun = Begun { way, first: String::new(), rest: answer.into_body().into_data_stream() };
        while !begun.first.contains("canary-") {
            let part = begun.next().await.unwrap().unwrap();
            begun.first.push_str(&part);
        }
        all.push(begun);
    }
    all
}

/// Asks in one case. Returns which answers are not as they should be.
async fn played(dir: &Path, journal: &Journal, (case, change, says): Case) -> Vec<String> {
    let of_case = tempfile::tempdir().unwrap();
    let (sim, reviews) = reviewing(of_case.path(), SHORT).await;
    sim.set_user("token-of-ann", "ann");
    sim.grant_user("ann", "configmaps", None);
    let authority: Arc<dyn Authority> = reviews;
    let (of_http, of_page) = settings();
    let mut bound = (http::bind(&of_http).await.unwrap(), ui::bind(&of_page).await.unwrap());
    let stop = CancellationToken::new();
    let endpoints = http::routes(bound.0.gate.take(), endpoints(dir, journal, &authority), &stop);
    let site = ui::site(bound.1.gate.take(), &of_page, (&dir.join("state"), authority));
    let page = ui::routes(&Arc::new(site));
    let (mut fast, mut slow) = (asked(&endpoints, &page).await, asked(&endpoints, &page).await);
    let mut whole = Vec::new();
    for begun in &mut fast {
        let rest = begun.rest().await.0;
        whole.push(format!("{}{rest}", begun.first).matches("canary-").count());
    }
    change(&sim);
    // By then everything has run out that was decided before.
    tokio::time::sleep(SHORT + Duration::from_millis(1)).await;
    let mut wrong = Vec::new();
    for (begun, whole) in slow.iter_mut().zip(whole) {
        let (rest, breaks_off) = begun.rest().await;
        let got = format!("{}{rest}", begun.first).matches("canary-").count();
        let end = rest.lines().last().unwrap_or_default();
        let is_right = match (says, begun.way) {
            (None, "command") => got == whole && !breaks_off && end == "{\"end\":{\"exit\":0}}",
            (None, _) => got == whole && !breaks_off,
            (Some(says), "command") => {
                let fails = end.starts_with("{\"end\":{") && !end.contains("\"exit\":0") && end.contains(says);
                fails && !rest.contains("canary-")
            }
            (Some(_), _) => breaks_off && rest.is_empty(),
        };
        if !is_right {
            let rest: String = rest.chars().take(300).collect();
            wrong.push(format!("{case}, {}: {got} of {whole}, {breaks_off}, {rest} … {end}", begun.way));
        }
    }
    wrong
}

/// What RBAC refuses is not sent once the right has run out, whatever was ready before, and the client sees that its answer is not whole.
/// Where the right holds on, it is.
#[tokio::test]
async fn an_answer_goes_on_as_long_as_its_rights_do() {
    let dir = with_canaries().await;
    let (journal, thread) = Journal::open(&dir.path().join("state")).unwrap();
    // At once, because each waits for the end of what was decided.
    let cases = CASES.map(|case| played(dir.path(), &journal, case));
    let wrong: Vec<String> = futures::future::join_all(cases).await.concat();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    drop(journal);
    tokio::task::spawn_blocking(move || thread.join()).await.unwrap().unwrap();
}
