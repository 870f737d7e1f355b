//! Receivers that answer in HTTP as they like. What a status says was taken is not sent again, whatever follows the status. kubectl sends
//! nothing on; beside each row stands what curl, which people try a receiver with, makes of it.

use std::sync::{Arc, Mutex};

use decklog::core::model::{Cluster, EntryType, Evidence, Seq};
use decklog::core::wire::{EntryBuilder, render};
use decklog::sink::registry::SinkKind;
use decklog::sink::{Item, SinkError};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// A server that says the same bytes to each request, and closes the connection.
struct Server {
    url: String,
    requests: Arc<Mutex<usize>>,
    _task: JoinSet<()>,
}

impl Server {
    async fn start(answer: Vec<u8>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests: Arc<Mutex<usize>> = Arc::default();
        let seen = Arc::clone(&requests);
        let mut task = JoinSet::new();
        task.spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                if take_request(&mut stream).await.is_some() {
                    *seen.lock().unwrap() += 1;
                    drop(stream.write_all(&answer).await);
                    drop(stream.shutdown().await);
                }
            }
        });
        Self { url, requests, _task: task }
    }
}

/// Reads a request to its end; nothing where the client goes first.
async fn take_request(stream: &mut TcpStream) -> Option<()> {
    let mut bytes = Vec::new();
    loop {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
        let Some(head) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let text = String::from_utf8_lossy(&bytes[..head]).to_lowercase();
        let length =
            text.lines().find_map(|line| line.strip_prefix("content-length:"))?.trim().parse::<usize>().ok()?;
        if bytes.len() >= head + 4 + length {
            return Some(());
        }
    }
}

fn item(seq: u64) -> Item {
    let line = render(&EntryBuilder {
        seq: Seq(seq),
        epoch: "e",
        time: "2026-11-21T10:15:00.000000Z",
        happened: None,
        happened_between: None,
        op: EntryType::Added,
        evidence: Some(Evidence::Watched),
        cluster: &Cluster { name: "prod".into(), uid: "c".into() },
        api_version: "v1",
        kind: "ConfigMap",
        resource: "configmaps",
        namespace: "shop",
        name: "web",
        uid: "u",
        version: &seq.to_string(),
        managers: None,
        change: None,
        object: Some(br#"{"metadata":{"name":"web"}}"#),
        gap: None,
        actor: None,
        redacted: &[],
    })
    .line;
    Item::new(Seq(seq), EntryType::Added, line.into())
}

/// What becomes of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Taken,
    Retry,
    Halt,
}

/// How often each sink that speaks HTTP sends two entries to a server that answers so, and what it makes of that.
async fn delivered(kind: &str, answer: &[u8]) -> (usize, End) {
    let server = Server::start(answer.to_vec()).await;
    let settings = match kind {
        "http" => json!({ "type": kind, "url": server.url, "format": "batched" }),
        "otlp" => json!({ "type": kind, "url": server.url, "protocol": "http" }),
        _ => json!({ "type": kind, "url": server.url }),
    };
    let kind: SinkKind = serde_json::from_value(settings).unwrap();
    let mut sink = kind.open().unwrap();
    let end = match sink.deliver(&[item(1), item(2)]).await {
        Ok(()) => End::Taken,
        Err(failure) => {
            assert_eq!(failure.taken, 0);
            match failure.error {
                SinkError::Retry { .. } => End::Retry,
                SinkError::Halt { .. } => End::Halt,
                other @ (SinkError::Lost { .. } | SinkError::Refused { .. }) => panic!("{other:?}"),
            }
        }
    };
    let requests = *server.requests.lock().unwrap();
    (requests, end)
}

#[tokio::test]
async fn a_status_of_success_is_enough_where_nothing_is_listed() {
    use End::{Halt, Retry, Taken};
    let many: String = (0..400).map(|number| format!("X-{number}: y\r\n")).collect();
    let huge = format!("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n{}", "x".repeat(1_000_000));
    let many = format!("HTTP/1.1 200 OK\r\n{many}Content-Length: 2\r\n\r\n{{}}");
    let listed = r#"{"errors":false,"items":[{"create":{"status":201}},{"create":{"status":201}}]}"#;
    let listed = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{listed}", listed.len());
    // Those that know what was taken by the status, and the one that has to read what became of each document.
    for (what, answer, by_status, by_list) in [
        // curl: 200
        ("an empty object", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", Taken, Retry),
        // curl: 200
        ("a list of documents", &listed, Taken, Taken),
        // curl: 200, "transfer closed with 99 bytes remaining"
        ("a body that is cut", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", Taken, Retry),
        // curl: 200, "transfer closed with outstanding read data remaining"
        ("chunks that are cut", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{", Taken, Retry),
        // curl: 200, an error about the chunk
        ("chunks that are none", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", Taken, Retry),
        // curl: 200
        ("HTTP/1.0 to the end of the connection", "HTTP/1.0 200 OK\r\n\r\nfine", Taken, Retry),
        // curl: 204
        ("204 with a body", "HTTP/1.1 204 No Content\r\nContent-Length: 2\r\n\r\n{}", Taken, Retry),
        // curl: 202, 205, 207, 208
        ("202", "HTTP/1.1 202 Accepted\r\n\r\n", Taken, Retry),
        ("205", "HTTP/1.1 205 Reset Content\r\n\r\n", Taken, Retry),
        ("207", "HTTP/1.1 207 Multi-Status\r\nContent-Length: 3\r\n\r\n<x>", Taken, Retry),
        ("208", "HTTP/1.1 208 Already Reported\r\n\r\n", Taken, Retry),
        // curl: 200, and it shows the bytes
        ("gzip that is none", "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\nno", Taken, Retry),
        // curl: 200
        ("1 MB", &huge, Taken, Retry),
        ("400 headers", &many, Taken, Retry),
        // curl: 200
        (
            "headers that break the rules",
            "HTTP/1.1 200 OK\r\nServer : x\r\nno header\r\nX y: z\r\nContent-Length: 2\r\n\r\n{}",
            Taken,
            Retry,
        ),
        // curl: 200 after it
        ("100 before it", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", Taken, Retry),
        (
            "103 before it",
            "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
            Taken,
            Retry,
        ),
        // curl: "Weird server reply", an empty reply, 101
        ("a status that is cut", "HTTP/1.1 200", Retry, Retry),
        ("nothing", "", Retry, Retry),
        ("101", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", Retry, Retry),
        // curl, without -L: 302, 304
        ("302", "HTTP/1.1 302 Found\r\nLocation: /login\r\nContent-Length: 0\r\n\r\n", Halt, Halt),
        ("304", "HTTP/1.1 304 Not Modified\r\n\r\n", Halt, Halt),
        ("503", "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n", Retry, Retry),
    ] {
        for (kind, expected) in [("http", by_status), ("otlp", by_status), ("elasticsearch", by_list)] {
            let (requests, end) = delivered(kind, answer.as_bytes()).await;
            assert_eq!((requests, end), (1, expected), "{what}, {kind}");
        }
    }
}
