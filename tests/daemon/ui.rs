//! The timeline page: what it answers is what the log says, who may not see it does not, and what asks for too much is
//! bounded while the daemon goes on.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use decklog::sim::{Sim, objects};
use serde_json::{Value, json};

use crate::judge::Entry;
use crate::support::{Daemon, LIMIT, cluster, free_address, until};

const WATCH: &str = "resources = [\"configmaps\", \"deployments.apps\", \"replicasets.apps\", \"pods\"]";

/// An answer with its headers, by their names in small letters.
#[derive(Debug)]
struct Got {
    status: u16,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

impl Got {
    #[track_caller]
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// It was refused with this, and says so in a sentence.
    #[track_caller]
    fn refused(&self, status: u16) -> String {
        assert_eq!(self.status, status, "{}", self.text());
        self.json()["error"].as_str().unwrap().to_owned()
    }
}

/// Sends a request and reads its answer to the end.
fn ask_with(at: &str, method: &str, path: &str, headers: &[(&str, &str)]) -> Result<Got, String> {
    let mut stream = begin(at, method, path, headers)?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).map_err(|error| format!("{path}: {error}"))?;
    let end = memchr::memmem::find(&bytes, b"\r\n\r\n").ok_or_else(|| format!("{path}: no answer"))?;
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).ok_or("no status")?;
    let pair = |line: &str| line.split_once(": ").map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()));
    let headers: BTreeMap<String, String> = head.lines().skip(1).filter_map(pair).collect();
    let mut body = bytes[end + 4..].to_vec();
    if headers.get("transfer-encoding").is_some_and(|how| how == "chunked") {
        body = unchunked(&body);
    }
    Ok(Got { status, headers, body })
}

fn unchunked(mut rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = memchr::memmem::find(rest, b"\r\n") {
        let Ok(length) = usize::from_str_radix(&String::from_utf8_lossy(&rest[..end]), 16) else { break };
        let from = end + 2;
        if length == 0 || rest.len() < from + length {
            break;
        }
        body.extend_from_slice(&rest[from..from + length]);
        rest = rest.get(from + length + 2..).unwrap_or_default();
    }
    body
}

fn begin(at: &str, method: &str, path: &str, headers: &[(&str, &str)]) -> Result<TcpStream, String> {
    let mut stream = TcpStream::connect(at).map_err(|error| format!("{at}: {error}"))?;
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let mut text = format!("{method} {path} HTTP/1.1\r\n");
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        text.push_str(&format!("Host: {at}\r\n"));
    }
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str("\r\n");
    stream.write_all(text.as_bytes()).map_err(|error| format!("{path}: {error}"))?;
    Ok(stream)
}

#[track_caller]
fn ask(at: &str, path: &str) -> Got {
    ask_with(at, "GET", path, &[]).unwrap()
}

/// A good answer of the API.
#[track_caller]
fn api(at: &str, question: &str) -> Value {
    let got = ask(at, &format!("/api/v1/{question}"));
    assert_eq!(got.status, 200, "{question}: {}", got.text());
    got.json()
}

/// A daemon with a page.
async fn daemon(sim: &Sim, ui: &str) -> (Daemon, String) {
    let at = free_address();
    let mut daemon = Daemon::with(sim, WATCH, &format!("[ui]\nlisten = {at:?}\n{ui}\n"));
    daemon.start();
    daemon.ready().await;
    (daemon, at)
}

/// A story with an owner, what it owns, changes, a deletion and a name that comes again.
async fn story(sim: &Sim, daemon: &mut Daemon) -> Vec<Entry> {
    sim.create("deployments.apps", objects::deployment("shop", "web", 1, "registry.example/web:1")).unwrap();
    let uid = sim.get("deployments.apps", "shop", "web").unwrap().uid.to_string();
    sim.create("replicasets.apps", objects::replica_set("shop", "web", &uid, "a1", 1, "registry.example/web:1"))
        .unwrap();
    let set = sim.get("replicasets.apps", "shop", "web-a1").unwrap().uid.to_string();
    sim.create("pods", objects::pod("shop", "web-a1-x", "web", Some(("web-a1", &set)), "registry.example/web:1"))
        .unwrap();
    for value in 1..=3 {
        sim.patch("deployments.apps", "shop", "web", &json!({"spec": {"replicas": value + 1}})).unwrap();
    }
    // Nothing but a version.
    sim.patch("deployments.apps", "shop", "web", &json!({"metadata": {"managedFields": null}})).unwrap();
    for value in ["1", "2"] {
        sim.create("configmaps", objects::config_map("shop", "settings", value)).unwrap();
        sim.patch("configmaps", "shop", "settings", &json!({"data": {"value": "other"}})).unwrap();
        if value == "1" {
            sim.delete("configmaps", "shop", "settings").unwrap();
        }
    }
    sim.create("configmaps", objects::config_map("pay", "settings", "1")).unwrap();
    daemon.knows(sim, "configmaps", "pay", "settings").await;
    daemon.knows(sim, "configmaps", "shop", "settings").await;
    daemon.knows(sim, "deployments.apps", "shop", "web").await;
    daemon.knows(sim, "pods", "shop", "web-a1-x").await;
    daemon.entries().to_vec()
}

fn id_of(entry: &Entry) -> String {
    format!("{}/{}/{}", entry.full_resource(), entry.namespace, entry.name)
}

/// The page is created in namespaces that are there.
fn namespaces(sim: &Sim) {
    for name in ["shop", "pay"] {
        drop(sim.create("namespaces", objects::namespace(name)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_page_is_answered_is_what_the_log_says() {
    let sim = cluster().await;
    namespaces(&sim);
    let (mut daemon, at) = daemon(&sim, "").await;
    let log = story(&sim, &mut daemon).await;
    let last = log.last().unwrap().seq;
    let page = ask(&at, "/");
    assert!(page.status == 200 && page.text().contains("app.js"), "{}", page.text());
    assert_eq!(ask(&at, "/app.js").headers["content-type"], "text/javascript; charset=utf-8");
    assert_eq!(ask(&at, "/app.css").status, 200);

    let overview = api(&at, "overview");
    assert_eq!((&overview["v"], &overview["mode"]), (&json!(1), &json!("daemon")));
    assert_eq!(overview["cluster"]["name"], "test");
    assert_eq!((overview["oldest"]["seq"].as_u64(), overview["head"]["seq"].as_u64()), (Some(1), Some(last)));
    assert_eq!(overview["cursor"], format!("{}:{last}", overview["epoch"].as_str().unwrap()));
    assert_eq!(overview["sources"].as_array().unwrap().len(), 4, "{overview}");
    assert!(overview["namespaces"].as_array().unwrap().contains(&json!("shop")));
    assert_eq!(overview["sinks"][0]["name"], "file");

    // Every entry is counted once, and stands in its bucket.
    let histogram = api(&at, "histogram?buckets=50");
    let sum = |of: &Value| of.as_array().unwrap().iter().map(|count| count.as_u64().unwrap()).sum::<u64>();
    let buckets = histogram["buckets"].as_array().unwrap();
    assert_eq!(buckets.len(), 50);
    let counted: u64 = buckets.iter().map(sum).sum();
    assert_eq!(
        (counted + sum(&histogram["quiet"]), histogram["total"].as_u64()),
        (log.len() as u64, Some(log.len() as u64))
    );
    let of_type = |place: usize| buckets.iter().map(|bucket| bucket[place].as_u64().unwrap()).sum::<u64>();
    for (place, kind) in ["ADDED", "DELETED"].iter().enumerate().map(|(at, kind)| (at * 2, kind)) {
        assert_eq!(of_type(place), log.iter().filter(|entry| entry.kind == *kind).count() as u64, "{kind}");
    }
    let narrow = api(&at, "histogram?buckets=1&what=cm/settings&namespace=shop");
    let wanted = log.iter().filter(|entry| id_of(entry) == "configmaps/shop/settings").count();
    assert_eq!(narrow["total"], wanted);

    // Each entry of an object is a mark on its lane, or folded into one.
    let lanes = api(&at, "lanes");
    assert_eq!((&lanes["truncated"], &lanes["cursor"]), (&Value::Null, &overview["cursor"]));
    let mut marked: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    let (mut folded, mut order) = (0, Vec::new());
    for lane in lanes["lanes"].as_array().unwrap() {
        let id = lane["id"].as_str().unwrap().to_owned();
        order.push((id.clone(), lane["depth"].as_u64().unwrap()));
        let marks = lane["marks"].as_array().unwrap();
        let of_lane: u64 = marks.iter().map(|mark| mark["quiet"].as_u64().unwrap()).sum();
        assert_eq!(of_lane, lane["quiet"].as_u64().unwrap(), "{lane}");
        folded += of_lane;
        let seqs = marks.iter().filter(|mark| mark["type"] != "QUIET").map(|mark| mark["seq"].as_u64().unwrap());
        marked.insert(id, seqs.collect());
    }
    assert_eq!(marked.values().map(Vec::len).sum::<usize>() as u64 + folded, log.len() as u64);
    for (id, seqs) in &marked {
        assert!(seqs.is_sorted(), "oldest first");
        assert!(seqs.iter().all(|seq| log.iter().any(|entry| entry.seq == *seq && id_of(entry) == *id)), "{id}");
    }
    assert!(folded > 0, "nothing changed for no-op, so the test looks at nothing");
    let place = |id: &str| order.iter().position(|(known, _)| known == id).unwrap_or_else(|| panic!("{id}: {order:?}"));
    let web = place("deployments.apps/shop/web");
    assert_eq!(order[web + 1], ("replicasets.apps/shop/web-a1".to_owned(), 1));
    assert_eq!(order[web + 2], ("pods/shop/web-a1-x".to_owned(), 2));
    let settings = &lanes["lanes"][place("configmaps/shop/settings")];
    let bars = settings["bars"].as_array().unwrap();
    assert_eq!(bars.len(), 2, "a bar for each uid: {settings}");
    assert_ne!(bars[0]["uid"], bars[1]["uid"]);
    assert_eq!((&bars[0]["from_how"], &bars[0]["to_how"]), (&json!("watched"), &json!("watched")));
    assert_eq!(
        (&bars[1]["from_how"], &bars[1]["to_how"], &bars[1]["to"]),
        (&json!("watched"), &json!("open"), &Value::Null)
    );

    // Page by page, from either end, each entry once.
    for (first, key) in [("entries?quiet=1&limit=3", "before"), ("entries?quiet=1&limit=3&after=0", "after")] {
        let mut seqs = Vec::new();
        let mut question = first.to_owned();
        loop {
            let page = api(&at, &question);
            seqs.extend(page["entries"].as_array().unwrap().iter().map(|entry| entry["seq"].as_u64().unwrap()));
            if page["more"] == false {
                break;
            }
            let reached = page["reached"].as_u64().unwrap();
            question = format!("entries?quiet=1&limit=3&{key}={reached}");
        }
        let mut wanted: Vec<u64> = log.iter().map(|entry| entry.seq).collect();
        if key == "before" {
            wanted.reverse();
        }
        assert_eq!(seqs, wanted, "{first}");
    }
    let chosen = api(&at, "entries?where=type%20%3D%3D%20%22DELETED%22");
    assert_eq!(chosen["entries"].as_array().unwrap().len(), log.iter().filter(|entry| entry.kind == "DELETED").count());
    let tail = daemon.command(&["tail", "--last", "1", "--utc"]).await.done();
    let newest = api(&at, "entries?limit=1&quiet=1");
    assert_eq!(newest["entries"][0]["line"].as_str().unwrap(), tail.trim_end(), "as tail prints it");

    // One entry: what it is, and its place in the life of its object.
    let mut newest: BTreeMap<String, u64> = BTreeMap::new();
    for entry in &log {
        let whole = api(&at, &format!("entry?seq={}", entry.seq));
        assert_eq!((&whole["summary"]["id"], &whole["summary"]["type"]), (&json!(id_of(entry)), &json!(entry.kind)));
        assert_eq!(whole["previous"].as_u64(), newest.insert(id_of(entry), entry.seq));
        let next =
            log.iter().find(|other| other.seq > entry.seq && id_of(other) == id_of(entry)).map(|other| other.seq);
        assert_eq!(whole["next"].as_u64(), next, "{entry}");
        assert!(whole["entry"]["object"].is_null() && whole["entry"]["seq"].as_u64() == Some(entry.seq), "{whole}");
        assert!(whole["yaml"].as_str().unwrap().contains(&format!("name: {}", entry.name)), "{whole}");
        for near in whole["neighbours"].as_array().unwrap() {
            assert_eq!(near["namespace"], whole["summary"]["namespace"]);
            assert_ne!(near["id"], whole["summary"]["id"]);
        }
    }
    let scaled = log.iter().find(|entry| entry.name == "web" && entry.kind == "MODIFIED").unwrap();
    let whole = api(&at, &format!("entry?seq={}", scaled.seq));
    let diff = whole["diff"].as_str().unwrap();
    assert!(diff.contains("- ") && diff.contains("+   replicas: 2"), "{diff}");
    assert_eq!(
        whole["command"],
        format!("decklog get deploy/web -n shop --at {} --clean | kubectl apply -f -", scaled.seq)
    );
    let quiet =
        log.iter().filter(|entry| entry.kind == "MODIFIED").map(|entry| api(&at, &format!("entry?seq={}", entry.seq)));
    assert!(quiet.into_iter().any(|whole| whole["real"] == false), "what changed nothing says so");

    // Two entries, an object, what there was, who wrote.
    let of_web: Vec<u64> = log.iter().filter(|entry| entry.name == "web").map(|entry| entry.seq).collect();
    let compared = api(&at, &format!("diff?from={}&to={}", of_web[0], of_web[3]));
    assert!(
        compared["same_object"] == true && compared["diff"].as_str().unwrap().contains("+   replicas: 4"),
        "{compared}"
    );
    let object = api(&at, "object?resource=configmaps&namespace=shop&name=settings");
    assert_eq!(object["lane"]["bars"].as_array().unwrap().len(), 2);
    assert_eq!(object["entries"].as_array().unwrap().len(), wanted);
    assert!(object["yaml"].as_str().unwrap().contains("value: other"), "{object}");
    let blame = object["blame"].as_array().unwrap();
    assert!(blame.iter().any(|field| field["path"] == "data.value" && field["seq"].is_u64()), "{blame:?}");
    for entry in &log {
        let state = api(&at, &format!("state?at={}", entry.seq));
        let mut there: BTreeMap<String, u64> = BTreeMap::new();
        for before in log.iter().filter(|before| before.seq <= entry.seq) {
            match before.kind.as_str() {
                "DELETED" => drop(there.remove(&id_of(before))),
                _ => drop(there.insert(id_of(before), before.seq)),
            }
        }
        let told: BTreeMap<String, u64> = state["objects"]
            .as_array()
            .unwrap()
            .iter()
            .map(|object| (object["id"].as_str().unwrap().to_owned(), object["seq"].as_u64().unwrap()))
            .collect();
        assert_eq!(told, there, "after entry {}", entry.seq);
    }
    let churn = api(&at, "churn");
    assert!(
        churn["writers"].as_array().unwrap().iter().any(|writer| writer["id"] == "deployments.apps/shop/web"),
        "{churn}"
    );

    // What makes no sense is said, with what would.
    for (question, status, says) in [
        ("entry?seq=99999", 404, "there is no entry 99999 yet"),
        ("entry", 400, "say which entry"),
        ("entries?what=deplyo", 400, "did you mean"),
        ("entries?namespace=shpo", 404, "did you mean shop?"),
        ("entries?where=kind%20%3D%3D%201", 400, "where:"),
        ("entries?since=noon", 400, "since: expected a duration"),
        ("entries?namespac=1", 404, "did you mean namespace?"),
        ("lanes?since=1h&until=2h", 400, "swap them"),
        ("object?resource=configmaps&name=none", 404, "the journal knows no configmaps/none"),
        ("diff?from=1&to=0", 404, "entry 0"),
        ("nothing", 404, "no such question"),
    ] {
        let told = ask(&at, &format!("/api/v1/{question}")).refused(status);
        assert!(told.contains(says), "{question}: {told}");
    }
    daemon.stop().await;
}

/// Events of a stream, as far as they came.
struct Events {
    reader: BufReader<TcpStream>,
}

#[derive(Debug, Default)]
struct Event {
    name: String,
    id: String,
    data: String,
}

impl Events {
    fn follow(at: &str, question: &str, last: Option<&str>) -> Self {
        let headers: Vec<(&str, &str)> = last.iter().map(|last| ("Last-Event-ID", *last)).collect();
        let stream = begin(at, "GET", &format!("/api/v1/follow?{question}"), &headers).unwrap();
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        assert!(line.contains("200"), "{line}");
        while line != "\r\n" {
            line.clear();
            reader.read_line(&mut line).unwrap();
        }
        Self { reader }
    }

    /// The next event; nothing where the stream has ended.
    fn next(&mut self) -> Option<Event> {
        let mut event = Event::default();
        loop {
            let mut line = String::new();
            if self.reader.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            let line = line.trim_end();
            if let Some(name) = line.strip_prefix("event: ") {
                name.clone_into(&mut event.name);
            } else if let Some(id) = line.strip_prefix("id: ") {
                id.clone_into(&mut event.id);
            } else if let Some(data) = line.strip_prefix("data: ") {
                data.clone_into(&mut event.data);
            } else if line.is_empty() && !event.name.is_empty() {
                return Some(event);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_follows_loses_nothing_and_gets_nothing_twice() {
    let sim = cluster().await;
    let (mut daemon, at) = daemon(&sim, "").await;
    let cursor = api(&at, "overview")["cursor"].as_str().unwrap().to_owned();
    let (epoch, from) = cursor.rsplit_once(':').unwrap();
    let from: u64 = from.parse().unwrap();
    // One that is cut off after every few events, and goes on where it was.
    let (address, begin) = (at.clone(), cursor.clone());
    let following = tokio::task::spawn_blocking(move || {
        let (mut seqs, mut last) = (Vec::new(), None::<String>);
        for connection in 1.. {
            let mut events = Events::follow(&address, &format!("quiet=1&after={begin}"), last.as_deref());
            for _ in 0..(connection % 4 + 1) {
                let Some(event) = events.next() else { break };
                assert_ne!(event.name, "reload", "{event:?}");
                if !event.id.is_empty() {
                    last = Some(event.id.clone());
                }
                if event.name == "entry" {
                    let entry: Value = serde_json::from_str(&event.data).unwrap();
                    seqs.push(entry["seq"].as_u64().unwrap());
                    if entry["name"] == "last" {
                        return seqs;
                    }
                }
            }
        }
        unreachable!()
    });
    for number in 0..40 {
        sim.create("configmaps", objects::config_map("default", &format!("m{number}"), "1")).unwrap();
        if number % 7 == 0 {
            daemon.knows(&sim, "configmaps", "default", &format!("m{number}")).await;
        }
    }
    sim.create("configmaps", objects::config_map("default", "last", "1")).unwrap();
    let seqs = following.await.unwrap();
    let log: Vec<u64> = daemon.entries().iter().map(|entry| entry.seq).filter(|seq| *seq > from).collect();
    assert_eq!(seqs, log);

    // What does not pass is not sent, and the place goes on.
    let mut events = Events::follow(&at, &format!("after={cursor}&what=cm/last"), None);
    let first = events.next().unwrap();
    assert_eq!(
        (first.name.as_str(), serde_json::from_str::<Value>(&first.data).unwrap()["name"].as_str()),
        ("entry", Some("last"))
    );
    let place = events.next().unwrap();
    assert_eq!((place.name, place.id), ("at".to_owned(), format!("{epoch}:{}", log.last().unwrap())));

    // Another journal's place, and one that nobody has reached.
    for place in ["other:1".to_owned(), format!("{epoch}:999999")] {
        let mut events = Events::follow(&at, &format!("after={place}"), None);
        let event = events.next().unwrap();
        assert_eq!((event.name.as_str(), event.data.as_str()), ("reload", r#"{"why":"epoch"}"#));
        assert!(events.next().is_none(), "nothing follows");
    }
    let told = ask(&at, "/api/v1/follow?after=nonsense").refused(400);
    assert!(told.contains("EPOCH:SEQ"), "{told}");
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_who_may_see_it_and_only_this_page_asks() {
    let sim = cluster().await;
    let (mut daemon, at) = daemon(&sim, "").await;
    for path in ["/", "/app.js", "/api/v1/overview", "/api/v1/nothing", "/nothing"] {
        let got = ask(&at, path);
        let policy = &got.headers["content-security-policy"];
        assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{path}: {policy}");
        assert!(!got.headers.keys().any(|name| name.starts_with("access-control")), "{path}: {:?}", got.headers);
        assert_eq!(
            (got.headers["x-content-type-options"].as_str(), got.headers["cache-control"].as_str()),
            ("nosniff", "no-store")
        );
        // Nobody leads another name here, no other page asks, and nothing is written.
        for headers in [
            &[("Host", "evil.example")][..],
            &[("Host", "localhost.evil.example:80")],
            &[("Origin", "http://evil.example")],
            &[("Origin", "null")],
            &[("Sec-Fetch-Site", "cross-site")],
            &[("Sec-Fetch-Site", "same-site"), ("Sec-Fetch-Mode", "cors")],
        ] {
            let got = ask_with(&at, "GET", path, headers).unwrap();
            assert_eq!(got.status, 403, "{path} {headers:?}: {}", got.text());
            assert!(!got.text().contains("\"cluster\"") && !got.text().contains("app.js"), "{}", got.text());
        }
        for method in ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"] {
            assert_eq!(ask_with(&at, method, path, &[]).unwrap().status, 405, "{method} {path}");
        }
        let head = ask_with(&at, "HEAD", path, &[]).unwrap();
        assert!(head.body.is_empty() && head.status == got.status, "{path}: {head:?}");
    }
    let own = [("Origin", format!("http://{at}"))];
    let own: Vec<(&str, &str)> = own.iter().map(|(name, value)| (*name, value.as_str())).collect();
    assert_eq!(ask_with(&at, "GET", "/api/v1/overview", &own).unwrap().status, 200);
    let followed = [("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "navigate"), ("Sec-Fetch-Dest", "document")];
    assert_eq!(ask_with(&at, "GET", "/", &followed).unwrap().status, 200, "a link is followed");
    daemon.stop().await;

    // With tokens: the page itself shows nothing, and everything else has to be asked for with one.
    let token = "0123456789abcdef-of-the-page";
    fs::write(daemon.path("tokens"), format!("{token}\n")).unwrap();
    daemon.configure(
        &daemon.config(WATCH, &format!("[ui]\nlisten = {at:?}\ntoken_file = {:?}\n", daemon.path("tokens"))),
    );
    daemon.start();
    daemon.ready().await;
    assert_eq!(ask(&at, "/").status, 200);
    for question in [
        "overview",
        "lanes",
        "entries",
        "entry?seq=1",
        "follow",
        "state",
        "changes?from=1",
        "clusters",
        "churn",
        "histogram",
        "nothing",
    ] {
        let path = format!("/api/v1/{question}");
        let got = ask(&at, &path);
        assert!(got.refused(401).contains("token_file"), "{path}: {}", got.text());
        let wrong = ask_with(&at, "GET", &path, &[("Authorization", "Bearer 0123456789abcdef")]).unwrap();
        assert_eq!(wrong.status, 401, "{path}");
    }
    let bearer = format!("Bearer {token}");
    let overview = || ask_with(&at, "GET", "/api/v1/overview", &[("Authorization", &bearer)]).unwrap().status;
    assert_eq!(overview(), 200);
    assert_eq!(ask(&at, "/?token=guessed-and-wrong").status, 401);
    let entered = ask(&at, &format!("/?token={token}"));
    assert_eq!((entered.status, entered.headers["location"].as_str()), (303, "/"));
    let cookie = &entered.headers["set-cookie"];
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict") && !cookie.contains(token), "{cookie}");
    let pair = cookie.split(';').next().unwrap();
    let with_cookie = |pair: &str| ask_with(&at, "GET", "/api/v1/overview", &[("Cookie", pair)]).unwrap().status;
    assert_eq!((with_cookie(pair), with_cookie("decklog=x")), (200, 401));
    // Who takes a token back takes it from browsers as well.
    fs::write(daemon.path("tokens"), "another-token-of-the-page\n").unwrap();
    assert_eq!((overview(), with_cookie(pair)), (401, 401));
    assert!(!daemon.said().contains(token), "the log of decklog has the token");
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_may_not_be_open_is_refused_in_the_configuration() {
    let sim = cluster().await;
    let daemon = Daemon::new(&sim, &["configmaps"]);
    fs::write(daemon.path("tokens"), "0123456789abcdef\n").unwrap();
    for (section, says) in [
        ("listen = \"0.0.0.0:9467\"", "which other machines can reach"),
        ("listen = \"0.0.0.0:9467\"\nallow_remote = true", "everybody who can connect would see what objects hold"),
        ("listen = \"0.0.0.0:9467\"\nallow_remote = true\ntoken_file = \"tokens\"", "without TLS"),
        ("client_ca_file = \"tokens\"", "no TLS"),
        ("listen = \"/run/decklog.sock\"\ntoken_file = \"tokens\"", "a unix socket"),
        ("listen = \"127.0.0.1:9465\"\n[http]", "where [http] listens"),
        ("lisen = \"127.0.0.1:9465\"", "listen"),
    ] {
        daemon.configure(&daemon.config("resources = [\"configmaps\"]", &format!("[ui]\n{section}\n")));
        daemon.command(&["check"]).await.refused(78, &["ui.", says]);
    }
    let at = free_address();
    daemon.configure(&daemon.config("resources = [\"configmaps\"]", &format!("[ui]\nlisten = {at:?}\n")));
    let found = daemon.command(&["check"]).await.done();
    assert!(found.contains(&format!("the timeline page can be at {at}")), "{found}");
    let taken = std::net::TcpListener::bind(&at).unwrap();
    let found = daemon.command(&["check"]).await;
    assert!(found.code == 1 && found.out.contains("set another address in [ui] listen"), "{found:?}");
    drop(taken);
}

/// `decklog ui`, and the address that it printed.
struct Page(Child, String);

impl Drop for Page {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

impl Page {
    fn open(daemon: &Daemon) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_decklog"))
            .args(["ui", "-c"])
            .arg(daemon.path("config.toml"))
            .current_dir(daemon.path(""))
            .env_clear()
            .env("HOME", daemon.path(""))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self(child, line.trim_end().to_owned())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_journal_without_a_daemon_is_shown_to_the_browser_that_was_meant() {
    let sim = cluster().await;
    namespaces(&sim);
    let (mut daemon, _) = daemon(&sim, "").await;
    let log = story(&sim, &mut daemon).await;
    daemon.stop().await;
    let before = fs::read(daemon.state().join("journal.db")).unwrap();
    let page = Page::open(&daemon);
    let (at, path) = page.1.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let (at, path) = (at.to_owned(), format!("/{path}"));
    assert!(at.starts_with("127.0.0.1:"), "{at}");
    assert!(ask(&at, "/api/v1/overview").refused(401).contains("decklog ui"));
    assert_eq!(ask_with(&at, "GET", &path, &[("Host", "evil.example")]).unwrap().status, 403);
    let entered = ask(&at, &path);
    assert_eq!(entered.status, 303, "{}", entered.text());
    assert_eq!(ask(&at, &path).status, 401, "it opens once");
    let cookie = entered.headers["set-cookie"].split(';').next().unwrap().to_owned();
    let api = |question: &str| {
        let got = ask_with(&at, "GET", &format!("/api/v1/{question}"), &[("Cookie", &cookie)]).unwrap();
        assert_eq!(got.status, 200, "{}", got.text());
        got.json()
    };
    let overview = api("overview");
    assert_eq!(overview["mode"], "journal");
    // What is looked at ends soon after the last entry: nothing comes any more.
    let time = |of: &Value| of.as_str().unwrap().parse::<jiff::Timestamp>().unwrap().as_microsecond();
    let (oldest, head) = (time(&overview["oldest"]["time"]), time(&overview["head"]["time"]));
    assert_eq!(time(&overview["end"]), (head + ((head - oldest) / 32).max(1_000_000)).min(time(&overview["now"])));
    for question in ["lanes", "histogram"] {
        let until = time(&api(question)["until"]);
        assert!(until >= head && until <= head + ((head - oldest) / 32).max(1_000_000), "{question}: {until}");
    }
    assert_eq!(api("histogram")["total"], log.len());
    let lanes = api("lanes");
    assert!(lanes["unwatched"].as_array().unwrap().iter().any(|gap| gap["why"] == "stopped"), "{}", lanes["unwatched"]);
    drop(page);
    assert!(fs::read(daemon.state().join("journal.db")).unwrap() == before, "it only reads");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_objects_are_shown_and_do_nothing() {
    let sim = cluster().await;
    let (mut daemon, at) = daemon(&sim, "").await;
    let evil = "</script><script>alert(1)</script><img src=x onerror=alert(2)>";
    let mut map = objects::config_map("default", "evil", "1");
    map["data"] = json!({(evil): evil, "nul": "a\u{0}b\u{1b}[31m\u{202e}", "large": "x".repeat(1_000_000)});
    map["metadata"]["annotations"] = json!({(evil): "\u{2028}--><!--"});
    sim.create("configmaps", map).unwrap();
    sim.patch("configmaps", "default", "evil", &json!({"data": {"large": "y".repeat(1_000_000), "nul": evil}}))
        .unwrap();
    daemon.knows(&sim, "configmaps", "default", "evil").await;
    for entry in daemon.entries().to_vec() {
        let got = ask(&at, &format!("/api/v1/entry?seq={}", entry.seq));
        assert_eq!((got.status, got.headers["content-type"].as_str()), (200, "application/json"));
        assert!(got.body.len() < 1_200_000, "{} bytes", got.body.len());
        let whole = got.json();
        assert!(
            whole["yaml"].as_str().unwrap().len() <= 256 << 10 && whole["diff"].as_str().unwrap().len() <= 256 << 10
        );
        assert!(whole["yaml_cut"] == true || entry.name != "evil", "{}", whole["yaml_cut"]);
        // A value of a megabyte hides nothing that stands behind it.
        let behind = entry.name != "evil" || whole["yaml"].as_str().unwrap().contains("nul:");
        let both = entry.kind != "MODIFIED" || whole["diff"].as_str().unwrap().contains("\n+   large: yyyy");
        assert!(behind && both && whole["diff_cut"] == (entry.name == "evil"), "{} {}", entry.kind, whole["diff_cut"]);
        assert!(whole["summary"]["line"].as_str().unwrap().len() < 10_000);
    }
    let object = ask(&at, "/api/v1/object?resource=configmaps&namespace=default&name=evil");
    assert!(object.status == 200 && object.body.len() < 1_500_000, "{}", object.body.len());
    for question in ["lanes", "entries?quiet=1", "overview", "churn", "state", "histogram"] {
        assert!(ask(&at, &format!("/api/v1/{question}")).body.len() < 1_000_000, "{question}");
    }
    let file = daemon.path("incident.html");
    daemon.command(&["timeline", "--since", "1h", "--html", file.to_str().unwrap()]).await.done();
    let html = fs::read_to_string(&file).unwrap();
    let data = html.split("id=\"decklog-data\">").nth(1).unwrap().split("</script>").next().unwrap();
    assert!(!data.contains('<') && !data.contains('\u{2028}'), "what is in the data can end its element");
    let data: Value = serde_json::from_str(data).unwrap();
    let answers = &data["answers"];
    assert_eq!((&answers["overview"]["mode"], &data["left_out"]), (&json!("file"), &Value::Null));
    let entries = answers.as_object().unwrap().keys().filter(|key| key.starts_with("entry/"));
    assert_eq!(entries.count(), 2, "{}", answers["lanes"]);
    let marks = answers["lanes"]["lanes"].as_array().unwrap().iter().flat_map(|lane| lane["marks"].as_array().unwrap());
    for mark in marks {
        assert!(answers[format!("entry/{}", mark["seq"])]["summary"].is_object(), "{mark}");
    }
    // Above a size it says what it leaves out.
    let small = daemon.command(&["timeline", "--html", "-", "--max-size", "1KiB"]).await;
    assert!(small.err.contains("in this file without what changed") && small.out.len() < 2_000_000, "{}", small.err);
    daemon.stop().await;
}

/// Nobody who only holds on to connections, asks for much or takes nothing keeps others out, and the daemon goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_who_follow_and_slow_readers_are_bounded() {
    let sim = cluster().await;
    let (mut daemon, at) = daemon(&sim, "").await;
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let wide = rustix::process::Rlimit { current: most.maximum, maximum: most.maximum };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, wide).unwrap();
    for number in 0..50 {
        sim.create("configmaps", objects::config_map("default", &format!("m{number}"), &"x".repeat(10_000))).unwrap();
    }
    daemon.knows(&sim, "configmaps", "default", "m49").await;
    let mut held = Vec::new();
    let mut refused = 0;
    for number in 0..1000 {
        let path = match number % 4 {
            0 => "/api/v1/entries?quiet=1&limit=1000",
            _ => "/api/v1/follow",
        };
        match begin(&at, "GET", path, &[]) {
            Ok(stream) => held.push((path, stream)),
            Err(_) => refused += 1,
        }
    }
    assert!(refused < 1000, "nobody was let in");
    // The log goes on, and who asks is answered.
    sim.create("configmaps", objects::config_map("default", "later", "1")).unwrap();
    daemon.knows(&sim, "configmaps", "default", "later").await;
    until("an answer beside all of them", async || {
        let answer = ask_with(&at, "GET", "/api/v1/overview", &[])?;
        if answer.status == 200 { Ok(()) } else { Err(answer.text()) }
    })
    .await;
    let descriptors = fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap().count();
    assert!(descriptors < 300, "{descriptors} descriptors are open");
    // Some follow; the others were told to try later, or had to give way.
    let (mut following, mut told) = (0, 0);
    for (path, stream) in held.iter_mut().filter(|(path, _)| path.ends_with("follow")) {
        let mut head = [0; 4096];
        let length = stream.read(&mut head).unwrap_or(0);
        let head = String::from_utf8_lossy(&head[..length]).into_owned();
        if head.starts_with("HTTP/1.1 200") {
            following += 1;
        } else if head.starts_with("HTTP/1.1 503") {
            told += 1;
            assert!(head.contains("pages follow the log already") || !head.contains("error"), "{path}: {head}");
        }
    }
    assert!((1..=64).contains(&following), "{following} follow");
    assert!(told > 0, "nobody was told");
    drop(held);
    // When they have gone, others may follow.
    until("a place for another", async || {
        let mut stream = begin(&at, "GET", "/api/v1/follow", &[])?;
        let mut head = [0; 16];
        stream.read_exact(&mut head).map_err(|error| error.to_string())?;
        if head.starts_with(b"HTTP/1.1 200") { Ok(()) } else { Err(String::from_utf8_lossy(&head).into_owned()) }
    })
    .await;
    daemon.stop().await;
}
