//! Pages that follow the log: each entry comes once, and a thousand of them keep nobody else out.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpStream;

use decklog::sim::objects;
use serde_json::Value;

use super::{api, ask, ask_with, begin, daemon};
use crate::support::{cluster, until};

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

/// Reads what has come of a stream, and says whether more of it can come.
fn goes_on(stream: &mut TcpStream, came: &mut Vec<u8>) -> bool {
    let mut piece = [0; 4096];
    loop {
        match stream.read(&mut piece) {
            Ok(0) => return false,
            Ok(length) => came.extend_from_slice(&piece[..length]),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return !came.ends_with(b"\r\n0\r\n\r\n"),
            Err(_) => return false,
        }
    }
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
    let (mut following, mut told) = (Vec::new(), 0);
    for (path, mut stream) in held.extract_if(.., |(path, _)| path.ends_with("follow")) {
        let mut head = [0; 4096];
        let length = stream.read(&mut head).unwrap_or(0);
        let text = String::from_utf8_lossy(&head[..length]).into_owned();
        if text.starts_with("HTTP/1.1 200") {
            stream.set_nonblocking(true).unwrap();
            following.push((stream, head[..length].to_vec()));
        } else if text.starts_with("HTTP/1.1 503") {
            told += 1;
            assert!(text.contains("pages follow the log already") || !text.contains("error"), "{path}: {text}");
        }
    }
    assert!(!following.is_empty(), "nobody follows");
    // A stream ends where the journal is read by too many, and another has its place: those that are open count.
    until("at most 64 who follow at a time", async || {
        following.retain_mut(|(stream, came)| goes_on(stream, came));
        if following.len() <= 64 { Ok(()) } else { Err(format!("{} follow", following.len())) }
    })
    .await;
    assert!(told > 0, "nobody was told");
    drop((held, following));
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
