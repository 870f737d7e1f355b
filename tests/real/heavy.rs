//! Objects that hold as many values as an API server takes: what is built for them stays within the bound, also where somebody
//! looks at them. The simulated API server takes larger ones and other kinds; that a real one takes these is what this is for.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use serde_json::json;

use crate::decklog::Decklog;
use crate::extensions;
use crate::harness::{Cluster, LIMIT, Parts, Version, until};
use crate::ports::free_port;

const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";
/// Elements of two bytes each: with more, etcd refuses the request.
const ELEMENTS: usize = 745_000;
/// What decklog has resident at most, as docs/guarantees.md says.
const BOUND: u64 = 256 << 20;

/// See the module.
#[expect(clippy::print_stdout, reason = "the figure is what a run by hand is for")]
pub async fn scenario(version: Version) {
    let cluster = Cluster::start(version, Parts::Bare).await;
    extensions::define(&cluster, "widgets", "Namespaced").await;
    let port = free_port();
    let mut daemon = Decklog::configured(&cluster, "heavy", |dir| {
        let kubeconfig = cluster.kubeconfig("calm");
        format!(
            "[cluster]\nkubeconfig = {kubeconfig:?}\n[[watch]]\nresources = [\"widgets.example.com\"]\n[state]\npath = {:?}\n\
             [[sink]]\nname = \"log\"\ntype = \"file\"\npath = {:?}\n[ui]\nlisten = \"127.0.0.1:{port}\"\n",
            dir.join("state"),
            dir.join("log.jsonl")
        )
    });
    daemon.start();
    daemon.ready().await;
    let ask = |path: &str| {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        write!(stream, "GET /api/v1/{path} HTTP/1.0\r\nHost: 127.0.0.1:{port}\r\n\r\n").unwrap();
        stream
    };
    // Two look on.
    let mut followers = ["follow", "follow"].map(ask);
    let names = ["a", "b", "c", "d"];
    for turn in 0..2 {
        for name in names {
            let elements: Vec<usize> = (0..ELEMENTS).map(|at| (at + turn) % 2).collect();
            let object = json!({
                "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": {"x": elements},
            });
            let (method, path) =
                if turn == 0 { ("POST", WIDGETS.to_owned()) } else { ("PUT", format!("{WIDGETS}/{name}")) };
            until(&format!("{name} to be written"), LIMIT, async || {
                let mut object = object.clone();
                if turn > 0 {
                    object["metadata"]["resourceVersion"] =
                        cluster.get(&path).await?["metadata"]["resourceVersion"].clone();
                }
                let (status, answer) = cluster.call(method, &path, Some(&object)).await;
                if matches!(status, 200 | 201) { Ok(()) } else { Err(format!("{status} {}", answer["message"])) }
            })
            .await;
        }
    }
    daemon.reach(2 * names.len()).await;
    let questions = ["entries", "entry?seq=8", "diff?from=4&to=8", "entry?seq=7"];
    std::thread::scope(|scope| {
        for question in questions {
            scope.spawn(move || {
                let mut answer = Vec::new();
                ask(question).read_to_end(&mut answer).unwrap();
                // Who asks beside many others may be told to try again.
                let status = String::from_utf8_lossy(&answer).split(' ').nth(1).map(str::to_owned);
                assert!(matches!(status.as_deref(), Some("200" | "503")), "{question}: {status:?}");
            });
        }
    });
    daemon.must_run();
    let memory = daemon.memory();
    println!("four objects of {ELEMENTS} values each: {} MiB resident at most", memory >> 20);
    assert!(memory < BOUND, "{} MiB", memory >> 20);
    let log = fs::read_to_string(daemon.log()).unwrap();
    assert_eq!(log.matches("\"type\":\"MODIFIED\"").count(), names.len());
    followers.iter_mut().for_each(|follower| follower.shutdown(std::net::Shutdown::Both).unwrap());
    daemon.stop().await;
}
