//! The timeline page in a browser: the built page over the binary, and over a log that was made up to be hard to draw. What the
//! browser does stands in `ui/e2e`; here is what it looks at. One browser at a time: it wants the machine for itself.
//!
//! It needs Node with npm, and chromium.

#![allow(clippy::too_many_lines, reason = "a test tells its story in one place")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use decklog_testkit::browser::{browse, runs};
use decklog_testkit::incident::{INCIDENT, incident};
use decklog_testkit::support;
use decklog_testkit::tale;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use decklog::sim::{Sim, objects};
use serde_json::{Value, json};
use tokio::sync::Mutex;

use support::{Daemon, cluster, decklog, free_address};

static BROWSER: Mutex<()> = Mutex::const_new(());

/// `decklog ui` on a journal, which ends with the test.
struct Page(Child, String);

impl Page {
    fn of(dir: &Path, arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_decklog"))
            .current_dir(dir)
            .args(["ui", "--listen", "127.0.0.1:0"])
            .env_clear()
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut address = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut address).unwrap();
        Self(child, address.trim().to_owned())
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Nobody needs Node to build decklog, because what it embeds is committed: it is what the sources make.
#[tokio::test]
async fn the_built_page_is_what_its_sources_make() {
    let _browser = BROWSER.lock().await;
    runs("./build", &["--test"], &[]);
}

#[tokio::test]
async fn a_log_that_is_hard_to_draw() {
    let _browser = BROWSER.lock().await;
    browse("page", ".", &[]);
    browse("file", ".", &[]);
}

/// The whole way of a person: the demo, its page, the bad rollout, the command that brings back what was there; and the file
/// for the ticket.
#[tokio::test]
async fn an_incident_of_the_demo_is_solved_by_clicks() {
    let _browser = BROWSER.lock().await;
    let dir = tempfile::tempdir().unwrap();
    decklog(dir.path(), &["demo", "--keep", "story"], &[]).await.done();
    let story = dir.path().join("story");
    let page = Page::of(&story, &["-c", "config.toml"]);
    // What is the same on every log was looked at on the one that is hard to draw.
    browse("page", "incident|GAP|URL|two marks|keyboard|filter|object|moment", &[("DECKLOG_UI_URL", &page.1)]);
    decklog(&story, &["timeline", "-c", "config.toml", "--html", "incident.html"], &[]).await.done();
    browse("file", ".", &[("DECKLOG_UI_FILE", story.join("incident.html").to_str().unwrap())]);
}

/// Ten minutes in which eight things matter, beside the noise of a cluster: the page shows them first.
#[tokio::test(start_paused = true)]
async fn an_incident_is_on_the_first_lanes() {
    let _browser = BROWSER.lock().await;
    let dir = incident().await;
    // Of a daemon that runs no more.
    std::fs::remove_file(dir.path().join("decklog.lock")).unwrap();
    let state = dir.path().to_str().unwrap();
    let (since, until) = INCIDENT;
    let file = dir.path().join("shop.html");
    let html = file.to_str().unwrap();
    let written = Command::new(env!("CARGO_BIN_EXE_decklog"))
        .args(["--state", state, "timeline", "-n", "shop", "--since", since, "--until", until, "--html", html])
        .status();
    assert!(written.unwrap().success());
    let page = Page::of(dir.path(), &["--state", state]);
    browse("incident", ".", &[("DECKLOG_UI_URL", &page.1), ("DECKLOG_UI_FILE", html)]);
}

/// The pictures in the book are what the page looks like. `DECKLOG_UI_SHOTS=write` makes them anew.
#[tokio::test]
async fn it_looks_as_in_the_book() {
    let _browser = BROWSER.lock().await;
    let dir = tale::friday();
    decklog(dir.path(), &["timeline", "--html", "friday.html"], &[]).await.done();
    browse("shots", ".", &[("DECKLOG_UI_SHOTS_OF", dir.path().join("friday.html").to_str().unwrap())]);
}

/// A daemon at work: what happens shows at once, also after a cut; hostile objects are shown and do nothing; what is not
/// watched any more is hatched.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_at_work() {
    let _browser = BROWSER.lock().await;
    let sim = cluster().await;
    for name in ["shop", "hostile"] {
        drop(sim.create("namespaces", objects::namespace(name)));
    }
    let (at, logs) = (free_address(), tempfile::tempdir().unwrap());
    let audit = logs.path().join("audit.log");
    std::fs::write(&audit, "").unwrap();
    let mut daemon = Daemon::with(
        &sim,
        "resources = [\"configmaps\", \"deployments.apps\", \"pods\"]",
        &format!("[ui]\nlisten = {at:?}\n\n[[audit_log]]\nfile = {audit:?}\n"),
    );
    daemon.start();
    daemon.ready().await;
    sim.create("deployments.apps", objects::deployment("shop", "web", 1, "registry.example/web:1")).unwrap();
    sim.create("pods", objects::pod("shop", "web-x", "web", None, "registry.example/web:1")).unwrap();
    hostile(&sim);
    daemon.knows(&sim, "deployments.apps", "shop", "web").await;
    daemon.knows(&sim, "configmaps", "hostile", "evil").await;
    let (page, api) = (format!("http://{at}/"), sim.url());
    sim.admit("kubectl");
    let here = [("DECKLOG_UI_URL", &*page), ("DECKLOG_UI_CLUSTER", &api), ("DECKLOG_UI_CLUSTER_TOKEN", "kubectl")];
    browse("page", "hostile", &here);
    browse("live", "what happens", &here);
    let with_audit = [&here[..], &[("DECKLOG_UI_AUDIT_LOG", audit.to_str().unwrap())]].concat();
    browse("live", "who sent", &with_audit);
    // Nobody may watch Pods any more.
    sim.deny("watch", "pods", None);
    sim.deny("list", "pods", None);
    sim.restart_api_server();
    browse("live", "hatched", &here);
    daemon.stop().await;
}

/// Several clusters, and a token: the address may stand anywhere, and who shows nothing sees no name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_pages_of_several_clusters() {
    let _browser = BROWSER.lock().await;
    let (eu, us) = (cluster().await, cluster().await);
    let mut daemon = Daemon::of_several(&eu);
    let (at, tokens) = (free_address(), daemon.path("tokens"));
    std::fs::write(&tokens, "let-me-in-let-me-in-let-me-in-please\n").unwrap();
    std::fs::set_permissions(&tokens, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let ui = format!("[ui]\nlisten = {at:?}\ntoken_file = {tokens:?}\n");
    for (name, sim) in [("eu", &eu), ("us", &us)] {
        let kubeconfig = daemon.path(&format!("{name}.kubeconfig"));
        sim.write_kubeconfig(&kubeconfig).unwrap();
        let watch = "[[watch]]\nresources = [\"configmaps\"]\n";
        let text = format!("[cluster]\nkubeconfig = {kubeconfig:?}\n\n{watch}\n{ui}");
        std::fs::write(daemon.path(&format!("clusters/{name}.toml")), text).unwrap();
        sim.create("configmaps", objects::config_map("default", &format!("only-{name}"), "1")).unwrap();
    }
    std::fs::write(daemon.path("clusters/typo.toml"), "[lug]\n").unwrap();
    daemon.start();
    daemon.ready().await;
    let page = format!("http://{at}/?token=let-me-in-let-me-in-let-me-in-please");
    browse("clusters", ".", &[("DECKLOG_UI_URL", &page), ("DECKLOG_UI_SEVERAL", "1")]);
    daemon.stop().await;
}

fn hostile(sim: &Sim) {
    let canary = |name: &str| {
        format!("<img src=x onerror=\"globalThis.canary='{name}'\"><script>globalThis.canary='{name}'</script>")
    };
    let managed = |manager: &str| -> Value {
        json!([{"manager": manager, "operation": "Update", "apiVersion": "v1", "time": "2026-11-20T08:00:00Z",
            "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"f:long": {}, "f:markup": {}}}}])
    };
    let mut map = objects::config_map("hostile", "evil", "1");
    map["data"] = json!({
        (canary("key")): canary("value"),
        "attribute": "\"onmouseover=\"globalThis.canary='attribute'\" x='",
        "bidi": "safe\u{202e}gnp.exe\u{2066}\u{200b}",
        "nul": "before\u{0}after\u{1b}[31m\u{7}",
        "url": "javascript:globalThis.canary='url'",
        "template": "${globalThis.canary='template'}{{constructor.constructor('globalThis.canary=1')()}}",
        "markup": canary("markup"),
        "long": "A".repeat(1 << 20),
    });
    map["metadata"]["annotations"] = json!({ (canary("annotation")): "\u{2028}--><!--" });
    map["metadata"]["managedFields"] = managed(&canary("manager"));
    sim.create("configmaps", map).unwrap();
    sim.create("configmaps", objects::config_map("hostile", "other", &canary("other"))).unwrap();
    let again = json!({
        "metadata": {"managedFields": managed("{{constructor.constructor('globalThis.canary=1')()}}")},
        "data": {"long": "B".repeat(1 << 20), "markup": canary("again")},
    });
    sim.patch("configmaps", "hostile", "evil", &again).unwrap();
}
