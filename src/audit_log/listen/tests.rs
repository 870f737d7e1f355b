//! Requests of every sort, over TCP, TLS and a unix socket.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;

use flate2::Compression;
use flate2::write::GzEncoder;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

use super::*;
use crate::core::net::server::Listen;
use crate::core::net::tls;

/// Far beyond what any machine takes.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
const TOKEN: &str = "first-token-of-all-of-them";

/// Commits what it gets, and answers by what that says.
#[derive(Default)]
struct Recorder {
    committed: Mutex<Vec<Bytes>>,
    began: Notify,
    released: Notify,
    changed: Notify,
}

impl Recorder {
    fn commit(&self, bytes: Bytes) {
        self.committed.lock().unwrap().push(bytes);
        self.changed.notify_one();
    }

    fn committed(&self) -> Vec<Bytes> {
        self.committed.lock().unwrap().clone()
    }

    async fn until(&self, count: usize) -> Vec<Bytes> {
        self.until_is(|committed| committed.len() >= count).await
    }

    async fn until_is(&self, reached: impl Fn(&[Bytes]) -> bool) -> Vec<Bytes> {
        let reached = async {
            while !reached(&self.committed()) {
                self.changed.notified().await;
            }
        };
        tokio::time::timeout(ANSWER_TIMEOUT, reached).await.expect("it commits nothing more");
        self.committed()
    }
}

impl Handler for Arc<Recorder> {
    async fn body(&self, body: Bytes, _peer: Peer) -> Result<Option<String>, Refusal> {
        match &body[..] {
            b"busy" => return Err(Refusal::Busy(Duration::from_secs(7))),
            b"odd" => return Err(Refusal::NotUnderstood("these are no events".to_owned())),
            b"other" => return Err(Refusal::Forbidden("these are of another cluster".to_owned())),
            b"panics" => panic!("as a handler should not"),
            b"slow" => {
                self.began.notify_one();
                self.released.notified().await;
            }
            _ => {}
        }
        let id = body.starts_with(b"firehose").then(|| "id-1".to_owned());
        self.commit(body);
        Ok(id)
    }

    async fn lines(&self, lines: Vec<Line>, _peer: Peer) -> Result<(), Refusal> {
        match &lines[0].bytes[..] {
            b"odd" => return Err(Refusal::NotUnderstood("these are no events".to_owned())),
            b"other" => return Err(Refusal::Forbidden("these are of another cluster".to_owned())),
            _ => {}
        }
        for line in lines {
            self.commit(line.bytes);
        }
        Ok(())
    }
}

/// A receiver that runs.
struct Served {
    recorder: Arc<Recorder>,
    address: Option<SocketAddr>,
    stop: CancellationToken,
    tasks: JoinSet<io::Result<()>>,
}

async fn begin(settings: &Settings) -> Served {
    let receiver = Receiver::bind(settings).await.unwrap().unwrap();
    let (address, recorder, stop) = (receiver.address(), Arc::new(Recorder::default()), CancellationToken::new());
    let mut tasks = JoinSet::new();
    // Nobody here is ended by the clock.
    let forever = Duration::from_secs(36_000);
    let limits = Limits { head: forever, connection: forever, ..LIMITS };
    tasks.spawn(receiver.serve_within(Arc::clone(&recorder), limits, Duration::ZERO, stop.clone()));
    Served { recorder, address, stop, tasks }
}

fn loopback() -> Settings {
    Settings { listen: Some(Listen::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)))), ..Settings::default() }
}

fn request(headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("POST /audit HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n{headers}\r\n", body.len());
    [head.as_bytes(), body].concat()
}

/// Sends a request and reads the answer to its end.
async fn exchange(mut stream: impl AsyncRead + AsyncWrite + Unpin, request: &[u8]) -> String {
    let (mut reads, mut writes) = tokio::io::split(&mut stream);
    let mut answer = Vec::new();
    let both = async { tokio::join!(writes.write_all(request), reads.read_to_end(&mut answer)) };
    let (written, _read) = tokio::time::timeout(ANSWER_TIMEOUT, both).await.expect("no answer");
    written.unwrap();
    String::from_utf8(answer).unwrap()
}

async fn ask(served: &Served, request: &[u8]) -> String {
    exchange(TcpStream::connect(served.address.unwrap()).await.unwrap(), request).await
}

fn status(answer: &str) -> u16 {
    answer.split(' ').nth(1).unwrap_or_default().parse().unwrap_or(0)
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[tokio::test]
async fn an_answer_says_what_became_of_the_events() {
    let served = begin(&loopback()).await;
    let most = vec![b'x'; MOST_BYTES];
    let more = vec![b'x'; MOST_BYTES + 1];
    let chunked = |body: &[u8]| {
        let head = format!("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n", body.len());
        [head.as_bytes(), body, b"\r\n0\r\n\r\n"].concat()
    };
    let firehose = "X-Amz-Firehose-Request-Id: id-1\r\n";
    let zipped = "Content-Encoding: gzip\r\n";
    let mut committed = 0;
    for (name, sent, code, says) in [
        ("whole", request("", b"{}"), 200, ""),
        ("any path", b"POST /x/y?z HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}".to_vec(), 200, ""),
        ("in chunks", chunked(b"{}"), 200, ""),
        ("gzip", request(zipped, &gzip(b"{}")), 200, ""),
        ("largest", request("", &most), 200, ""),
        ("largest, gzip", request(zipped, &gzip(&most)), 200, ""),
        ("firehose", request(firehose, b"firehose"), 200, "{\"requestId\":\"id-1\",\"timestamp\":"),
        ("too large", request("", &more), 413, "more than 16 MiB"),
        ("too large, in chunks", chunked(&more), 413, "more than 16 MiB"),
        ("too large, gzip", request(zipped, &gzip(&more)), 413, "more than 16 MiB"),
        ("no gzip", request(zipped, b"{}"), 400, "it is no gzip"),
        ("half of gzip", request(zipped, &gzip(b"{}")[..12]), 400, "it is no gzip"),
        ("other encoding", request("Content-Encoding: br\r\n", b"{}"), 415, "send gzip, or no encoding"),
        ("busy", request("", b"busy"), 503, "retry-after: 7"),
        ("odd", request("", b"odd"), 400, "these are no events"),
        ("odd, firehose", request(firehose, b"odd"), 400, "\"errorMessage\":\"these are no events\""),
        ("another cluster", request("", b"other"), 403, "these are of another cluster"),
        ("panics", request("", b"panics"), 500, "its log says why"),
        ("no POST", b"GET /audit HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(), 405, "allow: POST"),
    ] {
        let answer = ask(&served, &sent).await;
        assert_eq!(status(&answer), code, "{name}: {answer}");
        assert!(answer.contains(says), "{name}: {answer}");
        committed += usize::from(code == 200);
        assert_eq!(served.recorder.committed().len(), committed, "{name}: 200, and committed, or neither");
    }
    for body in served.recorder.committed() {
        assert!(body == "{}" || body == most || body == "firehose", "{} bytes", body.len());
    }
}

#[tokio::test]
async fn a_sender_that_breaks_off_commits_nothing_or_all() {
    let served = begin(&loopback()).await;
    let whole = request("", &vec![b'y'; 200_000]);
    for sent in [0, 1, 40, 100, 100_000, whole.len() - 1] {
        let mut stream = TcpStream::connect(served.address.unwrap()).await.unwrap();
        stream.write_all(&whole[..sent]).await.unwrap();
        stream.shutdown().await.unwrap();
        // The other side has seen the end by the time it closes.
        drop(exchange(stream, b"").await);
        assert_eq!(served.recorder.committed(), Vec::<Bytes>::new(), "{sent} bytes");
    }
    // It goes while its events are being committed.
    let mut stream = TcpStream::connect(served.address.unwrap()).await.unwrap();
    stream.write_all(&request("", b"slow")).await.unwrap();
    served.recorder.began.notified().await;
    drop(stream);
    // A connection that is taken afterwards shows that the broken one was looked at.
    assert_eq!(status(&ask(&served, &request("", b"{}")).await), 200);
    served.recorder.released.notify_one();
    assert_eq!(served.recorder.until(2).await, ["{}", "slow"]);
}

#[tokio::test]
async fn few_bodies_are_in_memory_at_a_time() {
    let served = begin(&loopback()).await;
    let mut held = Vec::new();
    for _ in 0..MOST_BODIES {
        let mut stream = TcpStream::connect(served.address.unwrap()).await.unwrap();
        stream.write_all(&request("", b"slow")).await.unwrap();
        served.recorder.began.notified().await;
        held.push(stream);
    }
    let answer = ask(&served, &request("", b"{}")).await;
    assert!(status(&answer) == 503 && answer.contains("retry-after: 5"), "{answer}");
    served.recorder.released.notify_waiters();
    for stream in held {
        assert_eq!(status(&exchange(stream, b"").await), 200);
    }
    assert_eq!(status(&ask(&served, &request("", b"{}")).await), 200);
}

#[tokio::test]
async fn a_token_lets_in() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tokens");
    fs::write(&path, format!("# of the API server\n{TOKEN}\nsecond-token-of-all-of-them\n")).unwrap();
    let served = begin(&Settings { token_file: Some(path.clone()), ..loopback() }).await;
    let large = vec![b'x'; 4 << 20];
    for (name, headers, code) in [
        ("none", String::new(), 401),
        ("bearer", format!("Authorization: Bearer {TOKEN}\r\n"), 200),
        ("second", "Authorization: bearer second-token-of-all-of-them\r\n".to_owned(), 200),
        ("firehose", format!("X-Amz-Firehose-Access-Key: {TOKEN}\r\n"), 200),
        ("another", "Authorization: Bearer another-token-of-somebody\r\n".to_owned(), 401),
        ("basic", format!("Authorization: Basic {TOKEN}\r\n"), 401),
        ("part", format!("Authorization: Bearer {}\r\n", &TOKEN[..20]), 401),
    ] {
        let answer = ask(&served, &request(&headers, &large)).await;
        assert_eq!(status(&answer), code, "{name}: {answer}");
        assert_eq!(answer.contains("show a token of the [[audit_log]] token_file"), code == 401, "{name}");
    }
    let in_address = format!("POST /?token={TOKEN} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(status(&ask(&served, in_address.as_bytes()).await), 401);
    assert_eq!(served.recorder.committed().len(), 3);
    // It is read again for each request, and a token that was taken back is none.
    fs::write(&path, "third-token-of-all-of-them\n").unwrap();
    let bearer = |token: &str| request(&format!("Authorization: Bearer {token}\r\n"), b"{}");
    assert_eq!(status(&ask(&served, &bearer(TOKEN)).await), 401);
    assert_eq!(status(&ask(&served, &bearer("third-token-of-all-of-them")).await), 200);
    fs::write(&path, "short\n").unwrap();
    let error = Receiver::bind(&Settings { token_file: Some(path), ..loopback() }).await.unwrap_err().to_string();
    assert!(error.starts_with("[[audit_log]]: token 1 in") && error.contains("less than 16"), "{error}");
}

/// Makes an authority, and a certificate for this machine that it has signed.
fn authority(dir: &Path, name: &str, signed: &str) {
    let openssl = |arguments: &str| {
        let made = Command::new("openssl").args(arguments.split(' ')).current_dir(dir).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    };
    let make = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2";
    openssl(&format!("{make} -keyout {name}.key -out {name}.pem -subj /CN={name}"));
    let by = format!("-CA {name}.pem -CAkey {name}.key -addext subjectAltName=IP:127.0.0.1");
    let leaf = "-addext basicConstraints=critical,CA:FALSE";
    openssl(&format!("{make} {by} {leaf} -keyout {signed}.key -out {signed}.pem -subj /CN={signed}"));
}

#[tokio::test]
async fn a_certificate_lets_in_and_is_read_again() {
    let pki = tempfile::tempdir().unwrap();
    let at = |name: &str| pki.path().join(name);
    for (name, signed) in [("ca", "server"), ("later-ca", "later"), ("senders", "apiserver"), ("strangers", "mallory")]
    {
        authority(pki.path(), name, signed);
    }
    fs::write(at("tokens"), TOKEN).unwrap();
    for end in ["pem", "key"] {
        fs::copy(at(&format!("server.{end}")), at(&format!("shown.{end}"))).unwrap();
    }
    let served = begin(&Settings {
        tls_cert_file: Some(at("shown.pem")),
        tls_key_file: Some(at("shown.key")),
        client_ca_file: Some(at("senders.pem")),
        token_file: Some(at("tokens")),
        ..loopback()
    })
    .await;
    let address = served.address.unwrap();
    // The code, with the certificate that was shown; none if the connection fails.
    let send = async |client: Option<&str>, headers: &str| -> Option<(u16, Vec<u8>)> {
        let identity = client.map(|name| {
            let read = |end: &str| fs::read(at(&format!("{name}.{end}"))).unwrap();
            tls::Identity::read(&read("pem"), &read("key"), ("the certificate", "the key")).unwrap()
        });
        let connector = TlsConnector::from(Arc::new(tls::client(tls::anyone(), identity)));
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let mut stream = connector.connect(name, TcpStream::connect(address).await.unwrap()).await.ok()?;
        let shown = stream.get_ref().1.peer_certificates().unwrap()[0].to_vec();
        stream.write_all(&request(headers, b"{}")).await.ok()?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.ok()?;
        Some((status(std::str::from_utf8(&answer).unwrap()), shown))
    };
    let code = async |client, headers: &str| send(client, headers).await.map(|(code, _)| code);
    let bearer = format!("Authorization: Bearer {TOKEN}\r\n");
    assert_eq!(code(Some("apiserver"), "").await, Some(200));
    assert_eq!(code(None, &bearer).await, Some(200));
    assert_eq!(code(None, "").await, Some(401));
    assert_eq!(code(Some("mallory"), "").await, None, "nobody who is known has signed it");
    let plain = exchange(TcpStream::connect(address).await.unwrap(), &request(&bearer, b"{}")).await;
    assert_ne!(status(&plain), 200, "without TLS");
    let (_, before) = send(None, &bearer).await.unwrap();
    for end in ["key", "pem"] {
        fs::copy(at(&format!("later.{end}")), at(&format!("shown.{end}"))).unwrap();
    }
    let (_, after) = send(None, &bearer).await.unwrap();
    assert_ne!(before, after, "the new certificate is shown");
    assert_eq!(served.recorder.committed().len(), 4);
}

#[tokio::test]
async fn a_unix_socket_takes_lines() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.sock");
    let mut served = begin(&Settings { listen: Some(Listen::Unix(path.clone())), ..Settings::default() }).await;
    let mut first = UnixStream::connect(&path).await.unwrap();
    first.write_all(b"a\nb").await.unwrap();
    assert_eq!(served.recorder.until(1).await, ["a"], "half a line is none");
    let mut second = UnixStream::connect(&path).await.unwrap();
    second.write_all(b"odd\n").await.unwrap();
    second.write_all(b"c\r\nlast").await.unwrap();
    drop(second);
    // What was not understood is skipped, alone or with what came in one piece with it.
    let committed = served.recorder.until_is(|committed| committed.contains(&Bytes::from("last"))).await;
    assert!(!committed.contains(&Bytes::from("odd")), "{committed:?}");
    first.write_all(b"c\n").await.unwrap();
    assert!(served.recorder.until(committed.len() + 1).await.contains(&Bytes::from("bc")));
    let mut refused = UnixStream::connect(&path).await.unwrap();
    refused.write_all(b"other\n").await.unwrap();
    assert_eq!(refused.read(&mut [0; 1]).await.unwrap_or(0), 0, "it is closed");
    served.stop.cancel();
    served.tasks.join_next().await.unwrap().unwrap().unwrap();
}
