//! Messages of the `http` sink: the recipes of the book as they stand there, from one daemon, to a server that takes what each
//! of those APIs takes, and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::IntoResponse;
use decklog::sim::objects;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::support::{Daemon, cluster, until};

/// Objects that are deleted, each of which is a message.
const OBJECTS: usize = 6;

/// Names of the recipes, as the page has them.
const RECIPES: [&str; 6] = ["slack", "teams", "discord", "pagerduty", "grafana", "alertmanager"];

/// What came to one API.
#[derive(Default)]
pub(crate) struct Came {
    /// Requests so far.
    requests: usize,
    /// The key and the body of each that was accepted, in order.
    pub(crate) taken: Vec<(String, Bytes)>,
    /// Messages by the names that the API gave them, as they are now: the key of the first request, and the body of the last.
    pub(crate) messages: BTreeMap<String, (String, Bytes)>,
    /// Updates that were taken.
    pub(crate) updates: usize,
    /// Why requests were not of the API's shape.
    pub(crate) wrong: Vec<String>,
}

/// Trouble with a request.
#[derive(Clone, Copy)]
pub(crate) enum Trouble {
    /// 429, with a time to wait.
    TooMany,
    /// 502.
    Failing,
    /// The connection is cut after the message was taken.
    Cut,
}

/// Servers of APIs on a bad day, one at each path.
pub(crate) struct Apis {
    came: Mutex<BTreeMap<String, Came>>,
    /// Trouble with a request to a path, by its number.
    trouble: fn(usize) -> Option<Trouble>,
    /// API at a path; none where every body is right.
    api: fn(&str) -> Option<&str>,
}

impl Apis {
    /// Serves APIs on loopback as long as the tasks live. Returns them and their address.
    pub(crate) async fn serve(
        trouble: fn(usize) -> Option<Trouble>,
        api: fn(&str) -> Option<&str>,
    ) -> (Arc<Self>, SocketAddr, JoinSet<()>) {
        let apis = Arc::new(Self { came: Mutex::default(), trouble, api });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let router = Router::new().fallback(take).with_state(Arc::clone(&apis));
        let mut serving = JoinSet::new();
        serving.spawn(async move { axum::serve(listener, router).await.unwrap() });
        (apis, at, serving)
    }

    /// Returns what came, by path.
    pub(crate) fn came(&self) -> MutexGuard<'_, BTreeMap<String, Came>> {
        self.came.lock().unwrap()
    }
}

async fn take(
    State(apis): State<Arc<Apis>>,
    method: Method,
    at: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> axum::response::Response {
    // As `decklog check` asks.
    if method == Method::OPTIONS {
        return StatusCode::METHOD_NOT_ALLOWED.into_response();
    }
    // What is below the path of an API is of its messages.
    let path = at.path().trim_start_matches('/');
    let (name, message) =
        path.split_once('/').map_or((path.to_owned(), None), |(name, rest)| (name.to_owned(), Some(rest)));
    let mut all = apis.came();
    let came = all.entry(name.clone()).or_default();
    let trouble = (apis.trouble)(came.requests);
    came.requests += 1;
    match trouble {
        Some(Trouble::TooMany) => {
            return (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "1")], "slow down").into_response();
        }
        Some(Trouble::Failing) => return StatusCode::BAD_GATEWAY.into_response(),
        Some(Trouble::Cut) | None => {}
    }
    let parsed: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
    if let Some(api) = (apis.api)(&name)
        && let Err(why) = is_right(api, &headers, &parsed)
    {
        came.wrong.push(format!("{why}: {parsed}"));
        return (StatusCode::BAD_REQUEST, why).into_response();
    }
    let key = headers["idempotency-key"].to_str().unwrap().to_owned();
    let number = came.messages.len();
    let named = match message {
        None => {
            came.taken.push((key.clone(), body.clone()));
            came.messages.insert(number.to_string(), (key, body));
            number.to_string()
        }
        Some(message) => {
            let named = parsed["ts"].as_str().unwrap_or_else(|| message.rsplit('/').next().unwrap()).to_owned();
            match came.messages.get_mut(&named) {
                Some((_, held)) => *held = body,
                None => came.wrong.push(format!("{method} of a message that is not there: {at}: {parsed}")),
            }
            came.updates += 1;
            named
        }
    };
    if matches!(trouble, Some(Trouble::Cut)) {
        drop(all);
        // hyper ends the connection without an answer; nobody prints it.
        std::panic::resume_unwind(Box::new("cut"));
    }
    axum::Json(json!({"ok": true, "id": named, "ts": named})).into_response()
}

/// A text of a body, of at most so many characters.
fn text(body: &Value, pointer: &str, most: usize) -> Result<String, String> {
    let text = body.pointer(pointer).and_then(Value::as_str).filter(|text| !text.is_empty());
    let text = text.ok_or_else(|| format!("{pointer} is no text"))?;
    if text.chars().count() > most {
        return Err(format!("{pointer} has more than {most} characters"));
    }
    Ok(text.to_owned())
}

fn must(right: bool, why: &str) -> Result<(), String> {
    if right { Ok(()) } else { Err(why.to_owned()) }
}

fn list<'v>(body: &'v Value, pointer: &str) -> Result<&'v Vec<Value>, String> {
    let list = body.pointer(pointer).and_then(Value::as_array);
    list.filter(|list| !list.is_empty()).ok_or_else(|| format!("{pointer} is no list"))
}

/// A text without the link to the page that the template itself writes.
fn without_link(text: &str) -> String {
    let Some((before, rest)) = text.split_once("<https://decklog.example/#entry=") else { return text.to_owned() };
    let is_link =
        |link: &str| link.split_once("|seq ").is_some_and(|(entry, seq)| entry == seq && entry.parse::<u64>().is_ok());
    match rest.split_once('>') {
        Some((link, after)) if is_link(link) => [before, after].concat(),
        _ => text.to_owned(),
    }
}

/// The rules of each API, as its documentation has them.
fn is_right(name: &str, headers: &HeaderMap, body: &Value) -> Result<(), String> {
    must(headers["content-type"] == "application/json", "the content type")?;
    match name {
        "slack" => {
            text(body, "/text", 4000)?;
            let blocks = list(body, "/blocks")?;
            must(blocks.len() <= 50, "more than 50 blocks")?;
            for block in blocks {
                let texts = match block["type"].as_str() {
                    Some("section") => vec![&block["text"]],
                    Some("context") => list(block, "/elements")?.iter().collect(),
                    _ => return Err("a block of another type".to_owned()),
                };
                must(texts.len() <= 10, "more than 10 elements")?;
                for part in texts {
                    must(["mrkdwn", "plain_text"].contains(&part["type"].as_str().unwrap_or_default()), "a type")?;
                    let shown = text(part, "/text", 3000)?;
                    must(!without_link(&shown).contains(['<', '>']), "a control sequence")?;
                }
            }
            Ok(())
        }
        "teams" => {
            must(body["type"] == "message" && body.to_string().len() <= 28 << 10, "no message, or above 28 KiB")?;
            for card in list(body, "/attachments")? {
                must(card["contentType"] == "application/vnd.microsoft.card.adaptive", "contentType")?;
                must(card["content"]["type"] == "AdaptiveCard", "no card")?;
                text(card, "/content/version", 5)?;
                for block in list(card, "/content/body")? {
                    must(block["type"] == "RichTextBlock", "a block with markup")?;
                    for run in list(block, "/inlines")? {
                        must(run["type"] == "TextRun", "an inline of another type")?;
                        text(run, "/text", 4000)?;
                    }
                }
            }
            Ok(())
        }
        "discord" => {
            let content = text(body, "/content", 2000)?;
            must(!content.contains("@everyone") && !content.contains("<@"), "a mention")?;
            must(body["allowed_mentions"] == json!({"parse": []}), "mentions are allowed")
        }
        "pagerduty" => {
            must(text(body, "/routing_key", 32)?.len() == 32, "routing_key has 32 characters")?;
            must(["trigger", "acknowledge", "resolve"].contains(&text(body, "/event_action", 20)?.as_str()), "action")?;
            text(body, "/dedup_key", 255)?;
            text(body, "/payload/summary", 1024)?;
            text(body, "/payload/source", 255)?;
            let severity = text(body, "/payload/severity", 20)?;
            must(["critical", "error", "warning", "info"].contains(&severity.as_str()), "severity")?;
            text(body, "/payload/timestamp", 40)?;
            must(body["payload"]["custom_details"].is_object(), "custom_details")
        }
        "grafana" => {
            must(headers.get("authorization").is_some_and(|token| token == "Bearer glsa_test"), "no token")?;
            let time = body["time"].as_i64().ok_or("time is no number")?;
            must((1_500_000_000_000..5_000_000_000_000).contains(&time), "time is not in milliseconds")?;
            must(list(body, "/tags")?.iter().all(Value::is_string), "a tag is no text")?;
            text(body, "/text", 4000).map(drop)
        }
        "alertmanager" => {
            for alert in list(body, "")? {
                for part in ["labels", "annotations"] {
                    let members = alert[part].as_object().ok_or("no labels or annotations")?;
                    must(members.values().all(Value::is_string), "a label is no text")?;
                    let plain = |name: &String| name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
                    must(members.keys().all(plain), "the name of a label")?;
                }
                text(alert, "/labels/alertname", 100)?;
                let starts = text(alert, "/startsAt", 40)?;
                must(starts.parse::<jiff::Timestamp>().is_ok(), "startsAt")?;
            }
            Ok(())
        }
        _ => Err("no API of this path".to_owned()),
    }
}

/// The configurations of the page, by the names of their sinks.
fn pages() -> BTreeMap<String, String> {
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/messages.md")).unwrap();
    let blocks = page.split("```toml\n").skip(1).map(|rest| rest.split("```\n").next().unwrap());
    blocks.map(|block| (block.split('"').nth(1).unwrap().to_owned(), block.to_owned())).collect()
}

/// Reports whether a configuration notifies of incidents.
fn notifies(recipe: &str) -> bool {
    recipe.contains("\nnotify = ")
}

/// Those with a message for each entry.
fn recipes() -> BTreeMap<String, String> {
    pages().into_iter().filter(|(_, recipe)| !notifies(recipe)).collect()
}

/// Value of a key, as TOML, for the sink of a name.
pub(crate) type ForSink<'f> = &'f dyn Fn(&str) -> String;

/// Those with a message for each incident, with other values of some keys: those of a table behind its name and a dot.
pub(crate) fn notifying(changed: &[(&str, ForSink<'_>)]) -> Vec<String> {
    let line = |name: &str, table: &str, line: &str| {
        let (own, _) = line.split_once(" = ").unwrap_or_default();
        let key = changed.iter().find(|(key, _)| *key == format!("{table}{own}"));
        key.map_or_else(|| format!("{line}\n"), |(_, value)| format!("{own} = {}\n", value(name)))
    };
    let of = |(name, recipe): (String, String)| {
        let (own, table) =
            recipe.split_once("[sink.update]\n").map_or((&*recipe, None), |(own, table)| (own, Some(table)));
        let own: String = own.lines().map(|one| line(&name, "", one)).collect();
        let table = table.map(|table| table.lines().map(|one| line(&name, "update.", one)).collect::<String>());
        own + &table.map(|table| format!("[sink.update]\n{table}")).unwrap_or_default()
    };
    pages().into_iter().filter(|(_, recipe)| notifies(recipe)).map(of).collect()
}

/// The dashboard draws the marks of the page: by their tags, on panels that it has, none of which lies on another.
#[test]
fn the_dashboard_draws_the_marks_of_the_page() {
    let dashboard =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/grafana/dashboard.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&dashboard).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let of_grafana = |annotation: &&Value| annotation["datasource"]["uid"] == "-- Grafana --";
    let marks: Vec<&Value> = dashboard["annotations"]["list"].as_array().unwrap().iter().filter(of_grafana).collect();
    let recipe = &pages()["marks"];
    assert_eq!((marks.len(), &marks[0]["target"]["type"]), (1, &json!("tags")));
    for tag in marks[0]["target"]["tags"].as_array().unwrap() {
        let tag = tag.as_str().unwrap();
        assert!(recipe.contains(&format!("\"{tag}\"")) || recipe.contains(&format!("%}}{tag}{{%")), "{tag}: {recipe}");
    }
    for id in marks[0]["filter"]["ids"].as_array().unwrap() {
        assert!(panels.iter().any(|panel| panel["id"] == *id && panel["type"] == "timeseries"), "{id}");
    }
    let ids: BTreeSet<u64> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len(), "an id is there twice");
    let mut taken = BTreeSet::new();
    for panel in panels {
        let [x, y, w, h] = ["x", "y", "w", "h"].map(|side| panel["gridPos"][side].as_u64().unwrap());
        let cells = (y..y + h).flat_map(|row| (x..x + w).map(move |column| (row, column)));
        assert!(x + w <= 24 && cells.into_iter().all(|cell| taken.insert(cell)), "{} lies on another", panel["title"]);
    }
}

/// The place that a recipe has for one of these keys, put in.
fn with(recipe: &str, key: &str, value: &str) -> String {
    let line = |line: &str| match line.starts_with(&format!("{key} = ")) {
        true => format!("{key} = {value:?}\n"),
        false => format!("{line}\n"),
    };
    recipe.lines().map(line).collect()
}

/// Fault 63: 429, 5xx and a lost answer, of six APIs that check every message.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_recipe_sends_each_entry_once_by_key_and_in_order() {
    let sim = cluster().await;
    let trouble = |request| match request {
        0 => Some(Trouble::TooMany),
        2 => Some(Trouble::Failing),
        3 => Some(Trouble::Cut),
        _ => None,
    };
    let (apis, at, _serving) = Apis::serve(trouble, |path| Some(path)).await;
    let mut daemon = Daemon::new(&sim, &["configmaps"]);
    fs::write(daemon.path("token"), "glsa_test").unwrap();
    let recipes = recipes();
    assert!(recipes.keys().map(String::as_str).eq({
        let mut names = RECIPES;
        names.sort_unstable();
        names
    }));
    let rest: String = recipes.iter().fold(String::new(), |rest, (name, recipe)| {
        let recipe = with(recipe, "url", &format!("http://{at}/{name}"));
        rest + &with(&recipe, "bearer_file", daemon.path("token").to_str().unwrap()) + "\n"
    });
    daemon.configure(&daemon.config("resources = [\"configmaps\"]", &rest));
    let checked = daemon.command(&["check"]).await;
    daemon.start();
    daemon.ready().await;
    for number in 0..OBJECTS {
        sim.create("configmaps", objects::config_map("default", &format!("m{number}"), "@everyone <!channel>"))
            .unwrap();
    }
    for number in 0..OBJECTS {
        sim.delete("configmaps", "default", &format!("m{number}")).unwrap();
    }
    until("every message", async || {
        daemon.must_run();
        let all = apis.came();
        let short = |name: &&&str| all.get(**name).is_none_or(|came| came.taken.len() <= OBJECTS);
        let wrong: Vec<&String> = all.values().flat_map(|came| &came.wrong).collect();
        assert!(wrong.is_empty(), "{wrong:?}");
        let missing: Vec<&&str> = RECIPES.iter().filter(short).collect();
        if missing.is_empty() { Ok(()) } else { Err(format!("{missing:?}: {}", daemon.last_words())) }
    })
    .await;
    assert!(checked.out.contains("slack can be delivered to"), "{checked:?}");
    daemon.stop().await;
    let log = fs::read_to_string(daemon.log()).unwrap();
    let entries = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let keys: Vec<String> = entries
        .filter(|entry| entry["type"] == "DELETED")
        .map(|entry| format!("\"{}_{}\"", entry["epoch"].as_str().unwrap(), entry["seq"]))
        .collect();
    assert_eq!(keys.len(), OBJECTS);
    for (name, came) in &*apis.came() {
        let mut taken = came.taken.clone();
        // The one whose answer was lost came again, as it was.
        assert_eq!(taken.len(), OBJECTS + 1, "{name}");
        taken.dedup();
        let sent: Vec<&String> = taken.iter().map(|(key, _)| key).collect();
        assert_eq!(sent, keys.iter().collect::<Vec<_>>(), "{name}");
    }
}
