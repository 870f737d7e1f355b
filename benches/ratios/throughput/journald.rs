//! The journal of systemd.

use decklog_testkit::servers::journald as start;
use std::borrow::Cow;

use decklog::core::wire::Entry;
use decklog::sink::Item;
use serde_json::json;
use tokio::net::UnixDatagram;

use self::start::{Journald, socket_in};
use super::syslog::quiet;
use super::{Bench, Case, ENTRIES, Plain};

struct Datagrams(UnixDatagram);

impl Plain for Datagrams {
    type Batch = Vec<Vec<u8>>;

    fn prepare(&self, items: &[Item]) -> Self::Batch {
        let fields = |item: &Item| {
            let entry = Entry::parse(&item.line).expect("an entry");
            let text = |text: &Option<Cow<'_, str>>| text.as_deref().unwrap_or_default().to_owned();
            let (namespace, name) = (text(&entry.namespace), text(&entry.name));
            let head = format!(
                "MESSAGE={kind} {resource} {namespace}/{name}\nPRIORITY=6\nSYSLOG_IDENTIFIER=plain\nDECKLOG_ID={}\n\
                 DECKLOG_SEQ={}\nDECKLOG_EPOCH={}\nDECKLOG_TYPE={kind}\nKUBERNETES_CLUSTER={}\n\
                 KUBERNETES_RESOURCE={resource}\nKUBERNETES_KIND={}\nKUBERNETES_NAMESPACE={namespace}\n\
                 KUBERNETES_NAME={name}\nKUBERNETES_UID={}\nDECKLOG_ENTRY=",
                entry.id,
                entry.seq,
                entry.epoch,
                entry.cluster.name,
                entry.kind,
                text(&entry.uid),
                kind = entry.op.as_str(),
                resource = entry.resource,
            );
            [head.as_bytes(), &item.line, b"\n"].concat()
        };
        items.iter().map(fields).collect()
    }

    async fn send(&mut self, batch: Self::Batch) {
        for fields in batch {
            self.0.send(&fields).await.expect("a connection");
        }
    }
}

pub(super) async fn compare(bench: &mut Bench<'_>) {
    let journald = Journald::start().await;
    let socket = socket_in(journald.dir.path());
    let case = Case {
        what: "journald",
        baseline: "a datagram for each entry",
        entries: ENTRIES,
        keys: &|run| json!({ "type": "journald", "socket": socket, "identifier": run }),
    };
    let plain = async |_: &str| {
        let ours = UnixDatagram::unbound().expect("a socket");
        ours.connect(&socket).expect("journald");
        Datagrams(ours)
    };
    bench.compare(case, plain, async || quiet(journald.server.pid()).await).await;
}
