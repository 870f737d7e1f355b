//! The journal of systemd, in its own protocol: best effort, holes are visible by seq.
//!
//! journald says nothing about what it has taken, and leaves out what is over its rate limit. An entry is a datagram of
//! fields; one that is too long for that goes in a sealed file of memory, whose descriptor is sent.

#[cfg(target_os = "linux")]
mod post;
mod settings;

#[cfg(target_os = "linux")]
use post::post;
pub use settings::Settings;

#[cfg(not(target_os = "linux"))]
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;

use super::connect;
use super::{Class, Failure, Item, LESS, Limits, LogPosition, Sink, SinkError};
use crate::core::model::EntryType;
use crate::core::os::UnixDatagram;
use crate::core::wire::Entry;

const BATCH: Limits = Limits { entries: 64, bytes: 1 << 20, linger: Duration::ZERO };

/// Largest field that journald accepts from unprivileged processes; it drops larger ones silently.
const LARGEST: usize = 32 << 20;

/// The journal of this machine.
#[derive(Debug)]
pub struct JournaldSink {
    path: PathBuf,
    identifier: String,
    timeout: Duration,
    socket: Option<UnixDatagram>,
}

impl JournaldSink {
    /// A sink for the journal at the socket that the configuration names; nothing is connected yet.
    #[must_use]
    pub fn new(config: &Settings) -> Self {
        let Settings { socket, identifier, timeout } = config.clone();
        Self { path: socket, identifier, timeout: *timeout, socket: None }
    }

    fn ready(&mut self) -> Result<&UnixDatagram, SinkError> {
        let connected = match self.socket.take() {
            Some(socket) => Ok(socket),
            None => UnixDatagram::unbound().and_then(|socket| socket.connect(&self.path).map(|()| socket)),
        };
        let failed = |error| SinkError::retry(format!("cannot connect to {}: {error}", self.path.display()));
        Ok(self.socket.insert(connected.map_err(failed)?))
    }

    async fn send(&mut self, batch: &[Item]) -> Result<(), Failure> {
        for (taken, item) in batch.iter().enumerate() {
            let refused = |text| Failure { taken, error: SinkError::Refused { text } };
            let fields = fields(&self.identifier, item).map_err(refused)?;
            if fields.len() > LARGEST {
                let text = format!("its {} bytes are more than journald takes ({LARGEST}); {LESS}", fields.len());
                return Err(refused(text));
            }
            let timeout = self.timeout;
            let socket = self.ready().map_err(|error| Failure { taken, error })?;
            if let Err(error) = connect::taken(timeout, post(socket, &fields)).await {
                self.socket = None;
                let error = SinkError::retry(format!("cannot write to {}: {error}", self.path.display()));
                return Err(Failure { taken, error });
            }
        }
        Ok(())
    }
}

/// Fails: journald is of Linux, and so is a daemon that delivers.
#[cfg(not(target_os = "linux"))]
async fn post(_socket: &UnixDatagram, _fields: &[u8]) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// An entry as fields. What is between people and machines: MESSAGE is short, DECKLOG_ENTRY is the line.
fn fields(identifier: &str, item: &Item) -> Result<Vec<u8>, String> {
    let head = item.without_object();
    let entry = Entry::parse(&head).map_err(|error| format!("it is {error}"))?;
    let kind = item.op.as_str();
    let resource = entry.full_resource();
    let (namespace, name) = (entry.namespace.as_deref().unwrap_or_default(), entry.name.as_deref().unwrap_or_default());
    let message = match (item.op, entry.gap()) {
        (EntryType::Gap, Some(gap)) => format!("{kind} {resource} {}", gap.why),
        _ if namespace.is_empty() => format!("{kind} {resource} {name}"),
        _ => format!("{kind} {resource} {namespace}/{name}"),
    };
    let mut out = Vec::with_capacity(item.line.len() + 1024);
    field(&mut out, "MESSAGE", message.as_bytes());
    // As syslog counts: a warning, or information.
    field(&mut out, "PRIORITY", if item.op == EntryType::Gap { b"4" } else { b"6" });
    field(&mut out, "SYSLOG_IDENTIFIER", identifier.as_bytes());
    field(&mut out, "DECKLOG_ID", entry.id.as_bytes());
    field(&mut out, "DECKLOG_SEQ", item.seq.to_string().as_bytes());
    field(&mut out, "DECKLOG_EPOCH", entry.epoch.as_bytes());
    field(&mut out, "DECKLOG_TYPE", kind.as_bytes());
    for (name, value) in [
        ("KUBERNETES_CLUSTER", &*entry.cluster.name),
        ("KUBERNETES_RESOURCE", &resource),
        ("KUBERNETES_KIND", &entry.kind),
        ("KUBERNETES_NAMESPACE", namespace),
        ("KUBERNETES_NAME", name),
        ("KUBERNETES_UID", entry.uid.as_deref().unwrap_or_default()),
    ] {
        if !value.is_empty() {
            field(&mut out, name, value.as_bytes());
        }
    }
    field(&mut out, "DECKLOG_ENTRY", &item.line);
    Ok(out)
}

fn field(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.extend_from_slice(name.as_bytes());
    if value.contains(&b'\n') {
        out.push(b'\n');
        out.extend_from_slice(&(value.len() as u64).to_le_bytes());
    } else {
        out.push(b'=');
    }
    out.extend_from_slice(value);
    out.push(b'\n');
}

impl Sink for JournaldSink {
    fn class(&self) -> Class {
        Class::BestEffort
    }

    fn limits(&self) -> Limits {
        BATCH
    }

    fn position<'a>(&'a mut self, _cursor: &'a LogPosition) -> BoxFuture<'a, Result<Option<LogPosition>, SinkError>> {
        std::future::ready(Ok(None)).boxed()
    }

    fn deliver<'a>(&'a mut self, batch: &'a [Item]) -> BoxFuture<'a, Result<(), Failure>> {
        self.send(batch).boxed()
    }

    fn reopen(&mut self) {
        self.socket = None;
    }

    fn check(&mut self) -> BoxFuture<'_, Result<(), SinkError>> {
        std::future::ready(self.ready().map(drop)).boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::tests::item;

    #[test]
    fn an_entry_is_fields() {
        let entry = item(7);
        let line = std::str::from_utf8(&entry.line).unwrap();
        let text = String::from_utf8(fields("decklog", &entry).unwrap()).unwrap();
        let wanted = [
            "MESSAGE=MODIFIED deployments.apps shop/web",
            "PRIORITY=6",
            "SYSLOG_IDENTIFIER=decklog",
            "DECKLOG_ID=u.7.MODIFIED",
            "DECKLOG_SEQ=7",
            "DECKLOG_EPOCH=e",
            "DECKLOG_TYPE=MODIFIED",
            "KUBERNETES_CLUSTER=prod",
            "KUBERNETES_RESOURCE=deployments.apps",
            "KUBERNETES_KIND=Deployment",
            "KUBERNETES_NAMESPACE=shop",
            "KUBERNETES_NAME=web",
            "KUBERNETES_UID=u",
            &format!("DECKLOG_ENTRY={line}"),
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), wanted);
        let mut out = Vec::new();
        field(&mut out, "A", b"b\nc=");
        assert_eq!(out, b"A\n\x04\0\0\0\0\0\0\0b\nc=\n");
    }
}
