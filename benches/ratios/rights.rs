//! What the rights of the cluster cost a reader whose rights were reviewed a moment ago, beside one who has a token of a file.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use decklog::sim::Sim;
use tokio::runtime::Runtime;

use super::process::Daemon;
use super::table::Table;

/// Objects of the log; they are in one namespace.
const PODS: usize = 2_000;
/// Number of answers, each of so many entries.
const ANSWERS: usize = 300;
const ENTRIES: usize = 20;
const TOKEN: &str = "0123456789abcdef";
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) fn compare(table: &mut Table) {
    let runtime = Runtime::new().expect("a runtime");
    let dir = tempfile::tempdir().expect("a directory");
    let readers = dir.path().join("readers");
    fs::write(&readers, TOKEN).expect("space");
    let plain = answers(&runtime, &format!("token_file = {readers:?}"));
    let reviewed = answers(&runtime, "authorize = \"cluster\"");
    let text = |seconds: f64| format!("{:.1} ms", seconds * 1e3);
    table.row(
        &format!("an answer of {ENTRIES} entries over HTTP with authorize = \"cluster\", decisions in the cache, p50"),
        text(reviewed),
        &format!("with token_file: {}", text(plain)),
        format!("+{}", text(reviewed - plain)),
        "2 ms",
    );
}

/// The median of the seconds that an answer takes.
fn answers(runtime: &Runtime, access: &str) -> f64 {
    let dir = tempfile::tempdir().expect("a directory");
    let kubeconfig = dir.path().join("kubeconfig");
    let sim = runtime.block_on(Sim::start()).expect("a port");
    sim.bulk_pods(PODS).expect("Pods are served");
    sim.write_kubeconfig(&kubeconfig).expect("space");
    sim.set_user(TOKEN, "ann");
    sim.grant_user("ann", "pods", Some("bulk"));
    let free = TcpListener::bind(("127.0.0.1", 0)).and_then(|free| free.local_addr()).expect("a port");
    let http = format!("[http]\nlisten = \"{free}\"\nreading = true\n{access}\n");
    let _daemon = Daemon::with(dir.path(), &kubeconfig, "pods", &http);
    runtime.block_on(sim.wait_for_watches("pods", 1)).expect("it watches");
    let begun = Instant::now();
    while answer(free).is_none_or(|text| text.matches("bulk-").count() < ENTRIES) {
        assert!(begun.elapsed() < PATIENCE, "decklog does not answer");
    }
    let mut took: Vec<f64> = (0..ANSWERS)
        .map(|_| {
            let begun = Instant::now();
            answer(free).expect("it answers");
            begun.elapsed().as_secs_f64()
        })
        .collect();
    took.sort_by(f64::total_cmp);
    took[ANSWERS / 2]
}

/// The newest entries of the namespace; none where the daemon does not answer yet.
fn answer(address: SocketAddr) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    let ask = format!(r#"{{"ask": {{"select": {{"only": {{"namespaces": ["bulk"]}}}}, "last": {ENTRIES}}}}}"#);
    write!(
        stream,
        "POST /api/v1/tail HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {TOKEN}\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{ask}",
        ask.len()
    )
    .ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    text.starts_with("HTTP/1.1 200").then_some(text)
}
