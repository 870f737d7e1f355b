//! Syslog over TCP.

use decklog_testkit::servers::syslog as start;
use std::time::Duration;

use decklog::core::wire::Entry;
use decklog::sink::Item;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use self::start::{Rsyslog, Way};
use super::super::process::seconds_of;
use super::{Bench, Case, ENTRIES, Plain};

struct Frames(TcpStream);

impl Plain for Frames {
    type Batch = Vec<u8>;

    fn prepare(&self, items: &[Item]) -> Vec<u8> {
        let mut out = Vec::new();
        for item in items {
            let entry = Entry::parse(&item.line).expect("an entry");
            let head = format!(
                "<30>1 {} here plain - {} [decklog@32473 id=\"{}\" seq=\"{}\" epoch=\"{}\" type=\"{}\"] ",
                entry.time,
                entry.op.as_str(),
                entry.id,
                entry.seq,
                entry.epoch,
                entry.op.as_str()
            );
            out.extend_from_slice(format!("{} {head}", head.len() + item.line.len()).as_bytes());
            out.extend_from_slice(&item.line);
        }
        out
    }

    async fn send(&mut self, batch: Vec<u8>) {
        self.0.write_all(&batch).await.expect("a connection");
    }
}

/// Waits until a process has nothing to do: nobody else says when what was written is read.
pub(super) async fn quiet(pid: u32) {
    let mut before = seconds_of(pid);
    loop {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let now = seconds_of(pid);
        if now - before < 0.02 {
            return;
        }
        before = now;
    }
}

pub(super) async fn compare(bench: &mut Bench<'_>) {
    let rsyslog = Rsyslog::start(Way::Tcp).await;
    let port = rsyslog.server.port();
    let case = Case {
        what: "syslog over TCP",
        baseline: "a write to a TcpStream",
        entries: ENTRIES,
        keys: &|run| {
            json!({
                "type": "syslog", "url": format!("tcp://127.0.0.1:{port}"), "app_name": run, "hostname": "here",
                "max_message_size": "128KiB",
            })
        },
    };
    let plain = async |_: &str| Frames(TcpStream::connect(("127.0.0.1", port)).await.expect("a connection"));
    bench.compare(case, plain, async || quiet(rsyslog.server.pid()).await).await;
}
