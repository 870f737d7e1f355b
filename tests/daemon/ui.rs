//! The timeline page: what it answers is what the log says, who may not see it does not, and what asks for too much is
//! bounded while the daemon goes on.

mod access;
mod following;

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;

use decklog::sim::{Sim, objects};
use serde_json::{Value, json};

use crate::judge::Entry;
use crate::support::{Daemon, LIMIT, cluster, free_address};

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
