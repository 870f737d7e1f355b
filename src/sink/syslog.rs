//! Syslog, as RFC 5424 writes it: best effort, holes are visible by seq.
//!
//! No syslog server says what it has taken. decklog leaves nothing out while it is connected: it waits for a slow
//! server, and what was on its way when a connection broke is sent again, as far as decklog knows of it. What is
//! longer than `max_message_size` is refused and never cut, because half an entry says nothing.

mod settings;

pub use settings::{Facility, Settings, SyslogUrl};

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::connect::{self, Server, Stream};
use super::{Class, Failure, Item, LESS, Limits, LogPosition, Sink, SinkError};
use crate::core::model::EntryType;
use crate::core::os::{self, UnixDatagram, UnixStream};

/// A batch is repeated as a whole when its connection breaks, so it is small.
const BATCH: Limits = Limits { entries: 64, bytes: 256 << 10, linger: Duration::ZERO };

/// The severities of RFC 5424 that are used.
const WARNING: u8 = 4;
const INFORMATIONAL: u8 = 6;

/// A syslog server.
#[derive(Debug)]
pub struct SyslogSink {
    target: Target,
    head: Head,
    most: u64,
    timeout: Duration,
    connection: Option<Connection>,
}

#[derive(Debug)]
enum Target {
    /// A socket of this machine, which says itself whether it takes datagrams or a stream.
    Unix(PathBuf),
    Tcp(Box<Server>),
}

enum Connection {
    Datagrams(UnixDatagram),
    Stream(Box<dyn Stream>),
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Datagrams(_) => "Datagrams",
            Self::Stream(_) => "Stream",
        })
    }
}

/// A message: what stands before the entry, and the entry.
struct Message<'i> {
    head: String,
    entry: &'i [u8],
}

impl Message<'_> {
    fn len(&self) -> usize {
        self.head.len() + self.entry.len()
    }
}

/// Common parts of all messages.
#[derive(Clone, Debug)]
struct Head {
    facility: Facility,
    hostname: String,
    app_name: String,
    sd_id: String,
}

impl Head {
    /// Returns the header of an entry's message.
    fn of(&self, item: &Item) -> Result<String, String> {
        let header = item.header().map_err(|error| format!("it is {error}"))?;
        let Self { facility, hostname, app_name, sd_id } = self;
        let severity = if item.op == EntryType::Gap { WARNING } else { INFORMATIONAL };
        let priority = *facility as u8 * 8 + severity;
        let kind = item.op.as_str();
        let mut text = format!("<{priority}>1 {} {hostname} {app_name} - {kind} [{sd_id}", header.time);
        let seq = item.seq.to_string();
        for (name, value) in [("id", &*header.id), ("seq", &seq), ("epoch", &header.epoch), ("type", kind)] {
            write!(text, " {name}=\"").expect("a String takes everything");
            let mut rest = value;
            while let Some(at) = rest.find(['"', '\\', ']']) {
                text.push_str(&rest[..at]);
                text.push('\\');
                text.push_str(&rest[at..=at]);
                rest = &rest[at + 1..];
            }
            text.push_str(rest);
            text.push('"');
        }
        text.push_str("] ");
        Ok(text)
    }
}

impl SyslogSink {
    /// A sink for the server that the configuration names; nothing is connected yet.
    ///
    /// # Errors
    /// Where the configuration can never work.
    pub fn new(config: &Settings) -> Result<Self, String> {
        let target = match &config.url {
            SyslogUrl::Unix(path) if config.tls == super::settings::Tls::default() => Target::Unix(path.clone()),
            SyslogUrl::Unix(_) => {
                return Err("`ca_file`, `cert_file` and `key_file` need a `url` that begins with tls://".to_owned());
            }
            SyslogUrl::Server(url) => {
                // The ports that are reserved for both.
                let port = if url.scheme() == "tls" { 6514 } else { 601 };
                Target::Tcp(Box::new(Server::new(url, "tls", port, &config.tls)?))
            }
        };
        let hostname = match &config.hostname {
            Some(name) => name.clone(),
            None => os::host(),
        };
        let head = Head {
            facility: config.facility,
            hostname: if hostname.is_empty() { "-".to_owned() } else { hostname },
            app_name: config.app_name.clone(),
            sd_id: config.sd_id.clone(),
        };
        Ok(Self { target, head, most: config.max_message_size.0, timeout: *config.timeout, connection: None })
    }

    fn shown(&self) -> String {
        match &self.target {
            Target::Unix(path) => path.display().to_string(),
            Target::Tcp(server) => server.shown.clone(),
        }
    }

    /// There is a connection that the server has not closed.
    async fn ready(&mut self) -> Result<&mut Connection, SinkError> {
        if let Target::Tcp(server) = &mut self.target
            && server.changed().await?
        {
            self.connection = None;
        }
        if let Some(Connection::Stream(stream)) = &mut self.connection
            && is_closed(stream)
        {
            self.connection = None;
            return Err(SinkError::retry(format!(
                "{} closed the connection, and what it had not read by then is missing there; its log may say why",
                self.shown()
            )));
        }
        if self.connection.is_none() {
            self.connection = Some(match &mut self.target {
                Target::Unix(path) => unix(path).await?,
                Target::Tcp(server) => Connection::Stream(server.connect(self.timeout).await?),
            });
        }
        Ok(self.connection.as_mut().expect("where there was none, it was made above"))
    }

    async fn send(&mut self, batch: &[Item]) -> Result<(), Failure> {
        let mut messages = Vec::with_capacity(batch.len());
        let mut never = None;
        for item in batch {
            match self.head.of(item).map(|head| Message { head, entry: &item.line }) {
                Ok(message) if message.len() as u64 > self.most => {
                    never = Some(too_large(message.len(), &format!("max_message_size ({} bytes)", self.most)));
                }
                Ok(message) => messages.push(message),
                Err(text) => never = Some(text),
            }
            if never.is_some() {
                break;
            }
        }
        if !messages.is_empty() {
            let (shown, timeout) = (self.shown(), self.timeout);
            let sent = match self.ready().await.map_err(|error| Failure { taken: 0, error })? {
                Connection::Datagrams(socket) => datagrams(socket, &messages, &shown, timeout).await,
                Connection::Stream(stream) => frames(stream, &messages, &shown, timeout).await,
            };
            if let Err(failure) = sent {
                if matches!(failure.error, SinkError::Retry { .. }) {
                    self.connection = None;
                }
                return Err(failure);
            }
        }
        match never {
            Some(text) => Err(Failure { taken: messages.len(), error: SinkError::Refused { text } }),
            None => Ok(()),
        }
    }
}

fn too_large(length: usize, most: &str) -> String {
    format!("its {length} bytes as a syslog message are more than {most}; raise that here and at the server, or {LESS}")
}

async fn unix(path: &Path) -> Result<Connection, SinkError> {
    let failed = |error: io::Error| SinkError::retry(format!("cannot connect to {}: {error}", path.display()));
    let socket = UnixDatagram::unbound().map_err(failed)?;
    match socket.connect(path) {
        Ok(()) => Ok(Connection::Datagrams(socket)),
        // It is a stream.
        Err(error) if os::is_of_another_kind(&error) => {
            Ok(Connection::Stream(Box::new(UnixStream::connect(path).await.map_err(failed)?)))
        }
        Err(error) => Err(failed(error)),
    }
}

/// One message each.
async fn datagrams(
    socket: &UnixDatagram,
    messages: &[Message<'_>],
    shown: &str,
    timeout: Duration,
) -> Result<(), Failure> {
    let mut bytes = Vec::new();
    for (taken, message) in messages.iter().enumerate() {
        bytes.clear();
        bytes.extend_from_slice(message.head.as_bytes());
        bytes.extend_from_slice(message.entry);
        match connect::taken(timeout, socket.send(&bytes)).await {
            Ok(_) => {}
            Err(error) if os::is_too_long(&error) => {
                let text = too_large(message.len(), &format!("a datagram to {shown} carries"));
                return Err(Failure { taken, error: SinkError::Refused { text } });
            }
            Err(error) => {
                // What a server that is away had not read yet is lost with it, so that all of them are sent again.
                let taken = if error.kind() == io::ErrorKind::TimedOut { taken } else { 0 };
                let error = SinkError::retry(format!("cannot write to {shown}: {error}"));
                return Err(Failure { taken, error });
            }
        }
    }
    Ok(())
}

/// All messages, each after its length (RFC 6587).
async fn frames(
    stream: &mut Box<dyn Stream>,
    messages: &[Message<'_>],
    shown: &str,
    timeout: Duration,
) -> Result<(), Failure> {
    let mut bytes = Vec::with_capacity(messages.iter().map(|message| message.len() + 8).sum());
    for message in messages {
        bytes.extend_from_slice(message.len().to_string().as_bytes());
        bytes.push(b' ');
        bytes.extend_from_slice(message.head.as_bytes());
        bytes.extend_from_slice(message.entry);
    }
    let mut rest = &bytes[..];
    let written = async {
        while !rest.is_empty() {
            // The time is that of one step, so that a slow server is not taken for one that hangs.
            match connect::taken(timeout, stream.write(rest)).await? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                count => rest = &rest[count..],
            }
        }
        connect::taken(timeout, stream.flush()).await
    };
    let failed = |error| SinkError::retry(format!("cannot write to {shown}: {error}"));
    written.await.map_err(|error| Failure { taken: 0, error: failed(error) })?;
    // What TLS has sent is taken in, because a connection that is closed with something unread is cut.
    if is_closed(stream) {
        let error = SinkError::retry(format!(
            "{shown} closed the connection while it was written to; look at what it says, and whether it expects TLS"
        ));
        return Err(Failure { taken: 0, error });
    }
    Ok(())
}

/// Reports whether the server has closed the connection. It sends nothing otherwise.
fn is_closed(stream: &mut Box<dyn Stream>) -> bool {
    let mut nothing = [0; 64];
    loop {
        match stream.read(&mut nothing).now_or_never() {
            Some(Ok(1..)) => {}
            Some(Ok(0) | Err(_)) => return true,
            None => return false,
        }
    }
}

impl Sink for SyslogSink {
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
        self.connection = None;
        if let Target::Tcp(server) = &mut self.target {
            server.forget();
        }
    }

    fn check(&mut self) -> BoxFuture<'_, Result<(), SinkError>> {
        async { self.ready().await.map(drop) }.boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::tests::{item, item_of};

    fn sink(keys: serde_json::Value) -> Result<SyslogSink, String> {
        SyslogSink::new(&serde_json::from_value(keys).unwrap())
    }

    #[test]
    fn a_message_is_what_the_rfc_says() {
        let keys = serde_json::json!({"hostname": "h", "facility": "local3"});
        let head = sink(keys).unwrap().head;
        let item = item(7);
        let message = head.of(&item).unwrap();
        let wanted = "<158>1 2026-11-21T10:15:00.000000Z h decklog - MODIFIED \
                      [decklog@32473 id=\"u.7.MODIFIED\" seq=\"7\" epoch=\"e\" type=\"MODIFIED\"] ";
        assert_eq!(message, wanted);
        // What would end a value is escaped; a gap is louder.
        let mut item = item_of(r#"a"b\]c"#, 7);
        item.op = EntryType::Gap;
        let message = head.of(&item).unwrap();
        assert!(message.starts_with("<156>1 ") && message.contains(r#"epoch="a\"b\\\]c""#), "{message}");
    }

    #[test]
    fn what_can_never_work_is_refused_at_once() {
        for url in ["unix:///dev/log", "tcp://127.0.0.1:1"] {
            let error = sink(serde_json::json!({"url": url, "ca_file": "x"})).unwrap_err();
            assert!(error.contains("tls://"), "{error}");
        }
        assert_eq!(sink(serde_json::json!({"url": "tls://logs.example"})).unwrap().shown(), "tls://logs.example:6514");
        assert_eq!(sink(serde_json::json!({"url": "tcp://[::1]"})).unwrap().shown(), "tcp://[::1]:601");
    }

    #[tokio::test]
    async fn a_slow_server_is_waited_for_and_one_that_hangs_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let server = UnixDatagram::bind(&path).unwrap();
        let url = format!("unix://{}", path.display());
        let mut sink = sink(serde_json::json!({"url": url, "timeout": "50ms"})).unwrap();
        sink.check().await.unwrap();
        // More than the queue of a unix socket holds, which the machine sets (`net.unix.max_dgram_qlen`: 10, or 512).
        let batch: Vec<Item> = (1..=16 * BATCH.entries as u64).map(item).collect();
        let (mut taken, mut hung) = (0, false);
        let mut buffer = vec![0; 1 << 16];
        let mut seqs = Vec::new();
        while taken < batch.len() {
            match sink.deliver(&batch[taken..]).await {
                Ok(()) => break,
                Err(failure) => {
                    assert!(failure.error.to_string().contains("took nothing for 50ms"), "{failure}");
                    (taken, hung) = (taken + failure.taken, true);
                }
            }
            let mut received = server.recv(&mut buffer).await;
            while let Ok(length) = received {
                seqs.push(seq(&buffer[..length]));
                received = server.try_recv(&mut buffer);
            }
        }
        // Nothing came twice and nothing was left out.
        assert!(hung, "the queue of a unix socket is shorter than what was sent");
        while seqs.len() < batch.len() {
            let length = server.recv(&mut buffer).await.unwrap();
            seqs.push(seq(&buffer[..length]));
        }
        assert!(server.try_recv(&mut buffer).is_err(), "more than was sent");
        assert!(seqs.iter().copied().eq(1..=batch.len() as u64), "{seqs:?}");
    }

    /// Nothing says what a server has read before it closed; it is sent again, and not taken for delivered.
    #[tokio::test]
    async fn a_server_that_closes_while_it_is_written_to_has_taken_nothing() {
        let closes = tokio::io::join(tokio::io::empty(), tokio::io::sink());
        let mut stream: Box<dyn Stream> = Box::new(closes);
        let failure = frames(
            &mut stream,
            &[Message { head: "m".to_owned(), entry: b"{}" }],
            "tcp://h:601",
            Duration::from_secs(30),
        )
        .await
        .unwrap_err();
        assert_eq!(failure.taken, 0);
        assert!(matches!(&failure.error, SinkError::Retry { text, .. } if text.starts_with("tcp://h:601 closed")));
    }

    /// What it had not read may be missing, and that is said before it goes on.
    #[tokio::test]
    async fn a_connection_that_the_server_closed_is_reported() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("tcp://{}", listener.local_addr().unwrap());
        let mut sink = sink(serde_json::json!({"url": url})).unwrap();
        sink.deliver(&[item(1)]).await.unwrap();
        let (mut server, _) = listener.accept().await.unwrap();
        let mut message = [0; 9];
        server.read_exact(&mut message).await.unwrap();
        server.shutdown().await.unwrap();
        let Some(Connection::Stream(stream)) = &mut sink.connection else { panic!("it is connected") };
        assert_eq!(stream.read(&mut message).await.unwrap(), 0);
        let failure = sink.deliver(&[item(2)]).await.unwrap_err();
        assert!(
            matches!(&failure, Failure { taken: 0, error: SinkError::Retry { text, .. } } if text.contains("closed the connection")),
            "{failure}"
        );
        sink.deliver(&[item(2)]).await.unwrap();
    }

    fn seq(message: &[u8]) -> u64 {
        let text = std::str::from_utf8(message).unwrap();
        let after = text.split_once(" seq=\"").unwrap().1;
        after.split_once('"').unwrap().0.parse().unwrap()
    }

    #[tokio::test]
    async fn what_is_too_long_is_refused_alone_and_never_cut() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let server = UnixDatagram::bind(&path).unwrap();
        let url = format!("unix://{}", path.display());
        let mut sink = sink(serde_json::json!({"url": url, "max_message_size": "1GiB"})).unwrap();
        let mut batch = vec![item(1), item(2), item(3)];
        // Longer than what a datagram carries.
        let long = String::from_utf8(batch[1].line.to_vec()).unwrap().replace("web", &"w".repeat(1 << 21));
        batch[1].line = long.into_bytes().into();
        let failure = sink.deliver(&batch).await.unwrap_err();
        assert_eq!(failure.taken, 1);
        assert!(matches!(&failure.error, SinkError::Refused { text } if text.contains("a datagram to")), "{failure}");
        sink.most = 4096;
        let failure = sink.deliver(&batch[1..]).await.unwrap_err();
        assert_eq!(failure.taken, 0);
        assert!(
            matches!(&failure.error, SinkError::Refused { text } if text.contains("max_message_size (4096 bytes)"))
        );
        sink.deliver(&batch[2..]).await.unwrap();
        let mut buffer = vec![0; 1 << 16];
        for wanted in [1, 3] {
            let length = server.recv(&mut buffer).await.unwrap();
            assert_eq!(seq(&buffer[..length]), wanted);
        }
    }
}
