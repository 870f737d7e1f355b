//! Witnesses over time and over TLS: one that does not cosign is counted until it is back, and one whose certificate another authority has
//! signed gets nothing.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use jiff::Timestamp;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use tokio::sync::watch;

use super::super::publish::Signing;
use super::super::submit::Progress;
use super::super::witness::{Refusal, Witness};
use super::*;
use crate::journal::Sharing;
use crate::sim::shared_log::Engine;

type Answer = Box<dyn FnMut(&str) -> (u16, String) + Send>;

/// A server that answers each request, until it is dropped.
struct Server {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    fn begin(address: Option<SocketAddr>, tls: Option<Arc<ServerConfig>>, mut answer: Answer) -> Self {
        let listener = TcpListener::bind(address.unwrap_or(([127, 0, 0, 1], 0).into())).unwrap();
        let address = listener.local_addr().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let serve = move || {
            while let Ok((stream, _)) = listener.accept()
                && !stopped.load(Ordering::SeqCst)
            {
                // One that hangs up has its reasons.
                drop(match &tls {
                    None => exchange(stream, &mut answer),
                    Some(tls) => {
                        let session = ServerConnection::new(Arc::clone(tls)).unwrap();
                        exchange(StreamOwned::new(session, stream), &mut answer)
                    }
                });
            }
        };
        let thread = thread::Builder::new().name("server".to_owned()).spawn(serve).unwrap();
        Self { address, stop, thread: Some(thread) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(self.address));
        self.thread.take().unwrap().join().unwrap();
    }
}

/// Reads a request and answers it.
fn exchange(mut stream: impl Read + Write, answer: &mut Answer) -> io::Result<()> {
    let (mut asked, mut buffer) = (Vec::new(), [0; 8192]);
    let body = loop {
        let count = stream.read(&mut buffer)?;
        if count == 0 {
            return Ok(());
        }
        asked.extend_from_slice(&buffer[..count]);
        let text = String::from_utf8_lossy(&asked).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let mut lines = head.lines().map(str::to_lowercase);
        let length = lines.find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
        if body.len() >= length.unwrap_or_default() {
            break body.to_owned();
        }
    };
    let (status, text) = answer(&body);
    let head = format!("HTTP/1.1 {status} x\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", text.len());
    stream.write_all(format!("{head}{text}").as_bytes())?;
    stream.flush()
}

/// A witness with a key of its own, and its public key.
fn witness(dir: &Path) -> (Arc<Witness>, VerifierKey) {
    fs::create_dir_all(dir).unwrap();
    let key = SigningKey::generate(&format!("{}.example/w", dir.file_name().unwrap().display())).unwrap();
    fs::write(dir.join("key"), key.render()).unwrap();
    let text = format!("dir = {dir:?}\nkey_file = {:?}\n[[witnessed]]\nkey = {VERIFIER:?}\n", dir.join("key"));
    let settings: Settings = toml::from_str(&text).unwrap();
    (Arc::new(Witness::open(&settings, dir).unwrap().unwrap()), key.verifier().timed())
}

/// Answers as the witness does.
fn honest(witness: &Arc<Witness>) -> Answer {
    let witness = Arc::clone(witness);
    Box::new(move |body| match witness.add(body.as_bytes(), Timestamp::now()) {
        Ok(lines) => (200, lines),
        Err(Refusal::Conflict(size)) => (409, format!("{size}\n")),
        Err(refusal) => (refusal.status(), String::new()),
    })
}

/// Signs once, and returns the progress of the witnesses.
async fn round(log: &Log, state: &watch::Sender<Signing>) -> Vec<Progress> {
    log.publisher.sign_and_report(&log.journal, state, Pace::USUAL).await;
    assert_eq!(state.borrow().problem, None, "a witness holds up no checkpoint");
    state.borrow().witnesses.clone()
}

/// One of two witnesses is down, or refuses, or answers something else. It is asked again with each checkpoint and counted alone, over a
/// restart too, and nothing of it is left once it is back.
#[tokio::test]
async fn a_witness_that_does_not_cosign_is_counted_until_it_is_back() {
    type Row<'r> = (&'r str, Option<(u16, &'r str)>, &'r str);
    let table: [Row<'_>; 5] = [
        ("down", None, "refused"),
        ("conflict", Some((409, "0\n")), "it has cosigned another tree of 0 leaves under this name"),
        ("forbidden", Some((403, "")), "it has another key for this log"),
        ("garbage", Some((200, "<html>")), "it did not answer with signatures"),
        ("broken", Some((500, "")), "it answered 500"),
    ];
    for (what, answer, says) in table {
        let dir = tempfile::tempdir().unwrap();
        let [(other, other_key), (good, good_key)] = ["a", "b"].map(|name| witness(&dir.path().join(name)));
        let mut server = Some(Server::begin(None, None, honest(&other)));
        let (address, steady) = (server.as_ref().unwrap().address, Server::begin(None, None, honest(&good)));
        let of = |address: SocketAddr, key: &VerifierKey| {
            format!("[[witness]]\nurl = \"http://{address}/w\"\nkey = \"{key}\"\n")
        };
        let text = format!("key_file = 'key'\n{}{}", of(address, &other_key), of(steady.address, &good_key));
        let settings: Settings = toml::from_str(&text).unwrap();
        let places = || vec![Place::Directory(Directory::new(dir.path().join("evidence")))];
        let state = watch::Sender::new(Signing::default());
        let mut log = Log::witnessed(dir.path(), 0, places(), &settings).await;
        log.append(5).await;
        let first = round(&log, &state).await;
        let is_well = |progress: &[Progress]| progress.iter().all(|one| one.missed == 0 && one.failing.is_none());
        assert!(is_well(&first) && first.iter().all(|one| one.signed.is_some()), "{what}: {first:?}");
        assert_eq!(first[0].name, "a.example/w");
        server.take();
        server = answer
            .map(|(status, text)| Server::begin(Some(address), None, Box::new(move |_| (status, text.to_owned()))));
        let mut since = None;
        log.append(5).await;
        for missed in 1..=4 {
            if missed == 4 {
                let version = log.close().await;
                log = Log::witnessed(dir.path(), version, places(), &settings).await;
            }
            let [bad, good] = <[Progress; 2]>::try_from(round(&log, &state).await).unwrap();
            let (began, why) = bad.failing.clone().unwrap();
            assert!(why.contains(says), "{what}: {why}");
            // What was before a restart is known of the last checkpoint alone.
            let expected = if missed == 4 { (1, None) } else { (missed, first[0].signed) };
            assert_eq!((bad.missed, bad.signed), expected, "{what}");
            assert!(missed == 4 || *since.get_or_insert(began) == began, "{what}: since the first of them");
            assert!(good.missed == 0 && good.failing.is_none() && good.signed >= first[1].signed, "{what}");
            let archive = whole(dir.path());
            let signed = archive.checkpoints().next().unwrap();
            assert_eq!(signed.checkpoint.last(), Some(10), "{what}");
            assert!(signed.seen_by(&good_key).is_some() && signed.seen_by(&other_key).is_none(), "{what}");
        }
        server.take();
        let back = Server::begin(Some(address), None, honest(&other));
        let progress = round(&log, &state).await;
        assert!(is_well(&progress) && progress[0].signed >= first[0].signed, "{what}: {progress:?}");
        assert!(whole(dir.path()).checkpoints().all(|signed| signed.seen_by(&other_key).is_some()), "{what}");
        // A restart knows it from the checkpoint.
        let version = log.close().await;
        drop((back, steady));
        let log = Log::witnessed(dir.path(), version, places(), &settings).await;
        assert_eq!(round(&log, &state).await, progress, "{what}: nothing is asked");
        log.close().await;
    }
}

/// A replica that stops leading asks no witness, so that none is missed there: it forgets what failed while it led.
#[tokio::test]
async fn a_replica_that_stands_by_misses_no_witness() {
    let dir = tempfile::tempdir().unwrap();
    let (other, key) = witness(&dir.path().join("a"));
    let server = Server::begin(None, None, honest(&other));
    let text = format!("key_file = 'key'\n[[witness]]\nurl = \"http://{}/w\"\nkey = \"{key}\"\n", server.address);
    let state = watch::Sender::new(Signing::default());
    let places = vec![Place::Directory(Directory::new(dir.path().join("evidence")))];
    let mut log = Log::witnessed(dir.path(), 0, places, &toml::from_str(&text).unwrap()).await;
    log.append(5).await;
    let signed = round(&log, &state).await[0].signed;
    drop(server);
    log.append(5).await;
    let [missed] = <[Progress; 1]>::try_from(round(&log, &state).await).unwrap();
    assert!(missed.missed == 1 && missed.failing.is_some(), "{missed:?}");

    let sharing = Sharing {
        log: Box::new(Engine::default()),
        identity: "two".to_owned(),
        backlog: 1 << 20,
        key: "key".to_owned(),
        poll: Duration::from_millis(5),
        worth_a_base: u64::MAX / 2,
    };
    let (standby, thread) = Journal::open_shared(&dir.path().join("standby"), sharing).unwrap();
    log.publisher.sign_and_report(&standby, &state, Pace::USUAL).await;
    let [rests] = <[Progress; 1]>::try_from(state.borrow().witnesses.clone()).unwrap();
    assert!(rests.missed == 0 && rests.failing.is_none() && rests.signed == signed, "{rests:?}");
    drop(standby);
    tokio::task::spawn_blocking(|| thread.join()).await.unwrap().unwrap();
    log.close().await;
}

/// Makes an authority, and a certificate for an address that it has signed.
fn authority(dir: &Path, name: &str, address: &str) {
    let openssl = |arguments: &str| {
        let made = Command::new("openssl").args(arguments.split(' ')).current_dir(dir).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    };
    let make = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2";
    openssl(&format!("{make} -keyout {name}.key -out {name}.pem -subj /CN={name}"));
    let by = format!("-CA {name}.pem -CAkey {name}.key -addext subjectAltName=IP:{address}");
    let leaf = "-addext basicConstraints=critical,CA:FALSE -addext extendedKeyUsage=serverAuth";
    openssl(&format!("{make} {by} {leaf} -keyout {name}-server.key -out {name}-server.pem -subj /CN=server"));
}

fn served_by(dir: &Path, name: &str) -> Arc<ServerConfig> {
    let chain = vec![CertificateDer::from_pem_file(dir.join(format!("{name}-server.pem"))).unwrap()];
    let key = PrivateKeyDer::from_pem_file(dir.join(format!("{name}-server.key"))).unwrap();
    let builder = ServerConfig::builder_with_provider(crate::core::net::crypto_provider());
    let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    Arc::new(builder.with_single_cert(chain, key).unwrap())
}

/// A witness over TLS is asked where its certificate is of the authority in `ca_file`. Another authority is one sentence, and nothing is sent;
/// the file may be replaced while decklog runs.
#[tokio::test]
async fn a_witness_over_tls_has_a_certificate_of_the_configured_authority() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for (name, address) in [("own", "127.0.0.1"), ("stranger", "127.0.0.1"), ("elsewhere", "192.0.2.7")] {
        authority(dir.path(), name, address);
    }
    fs::write(at("empty.pem"), "none\n").unwrap();
    let untrusted = |by: &str| {
        format!(
            "the witness's certificate is not signed by an authority that decklog trusts here: its issuer is \"{by}\"; name the \
             authority that signed its certificate in `ca_file`"
        )
    };
    let (own, stranger) = (untrusted("own"), untrusted("stranger"));
    let missing = format!("cannot read {}: No such file or directory (os error 2)", at("missing.pem").display());
    let nothing = format!("{} holds no PEM certificate", at("empty.pem").display());
    type Row<'r> = (Option<&'r str>, Option<&'r str>, Result<(), &'r str>);
    let table: [Row<'_>; 7] = [
        (Some("own"), Some("own.pem"), Ok(())),
        (Some("own"), Some("stranger.pem"), Err(&own)),
        (Some("own"), None, Err(&own)),
        (Some("stranger"), Some("own.pem"), Err(&stranger)),
        (
            Some("elsewhere"),
            Some("elsewhere.pem"),
            Err(
                "the witness's certificate is for another name (192.0.2.7); connect to a name that is in its certificate",
            ),
        ),
        (Some("own"), Some("missing.pem"), Err(&missing)),
        (Some("own"), Some("empty.pem"), Err(&nothing)),
    ];
    for (number, (shown, trusted, expected)) in table.into_iter().enumerate() {
        let (witness, key) = witness(&at(&format!("w{number}")));
        let asked = Arc::new(AtomicBool::new(false));
        let (mut answer, told) = (honest(&witness), Arc::clone(&asked));
        let answer: Answer = Box::new(move |body| {
            told.store(!body.is_empty(), Ordering::SeqCst);
            answer(body)
        });
        let server = Server::begin(None, shown.map(|name| served_by(dir.path(), name)), answer);
        let ca_file = trusted.map(|_| format!("ca_file = {:?}\n", at("shown.pem"))).unwrap_or_default();
        let text = format!(
            "key_file = 'key'\n[[witness]]\nurl = \"https://{}/w\"\nkey = \"{key}\"\n{ca_file}",
            server.address
        );
        let settings: Settings = toml::from_str(&text).unwrap();
        drop(fs::remove_file(at("shown.pem")));
        if let Some(trusted) = trusted.filter(|name| at(name).exists()) {
            fs::copy(at(trusted), at("shown.pem")).unwrap();
        }
        let log_dir = tempfile::tempdir().unwrap();
        let places = vec![Place::Directory(Directory::new(log_dir.path().join("evidence")))];
        let mut log = Log::witnessed(log_dir.path(), 0, places, &settings).await;
        log.append(3).await;
        let state = watch::Sender::new(Signing::default());
        let why =
            |progress: Vec<Progress>| progress[0].failing.clone().map(|(_, why)| why.replace("shown.pem", "NAME"));
        let found = why(round(&log, &state).await);
        let named = expected.err().map(|says| says.replace("missing.pem", "NAME").replace("empty.pem", "NAME"));
        assert_eq!(found, named, "{shown:?} {trusted:?}");
        assert_eq!(asked.load(Ordering::SeqCst), expected.is_ok(), "{shown:?} {trusted:?}");
        if shown == Some("own") && trusted.is_some() {
            fs::copy(at("own.pem"), at("shown.pem")).unwrap();
            assert_eq!(why(round(&log, &state).await), None, "{trusted:?}: the file was replaced");
        }
        log.close().await;
    }
}
