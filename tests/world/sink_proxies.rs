//! Proxies between decklog and the servers of its sinks, named by the environment as for kubectl: `HTTPS_PROXY`, `HTTP_PROXY` and
//! `NO_PROXY` by the rules of Go. The names of the servers end in `.invalid`, so that the proxy alone can know where they are.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use crate::support::decklog;

/// What a proxy was asked: the first line of a request to it, its `Proxy-Authorization`, or the user of SOCKS.
type Asked = Arc<Mutex<Vec<(String, String)>>>;

/// A proxy that finds every host on this machine, and the server behind it.
pub(crate) struct Proxy {
    address: String,
    asked: Asked,
}

/// What a proxy does with who asks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Does {
    Passes,
    /// Asks for `user` with the password `hunter2`.
    Authenticates,
    Refuses,
}

impl Proxy {
    pub(crate) fn http(does: Does) -> Self {
        Self::start(move |stream, asked| http(stream, does, &asked))
    }

    pub(crate) fn socks(does: Does) -> Self {
        Self::start(move |stream, asked| socks(stream, does, &asked))
    }

    fn start(serve: impl Fn(TcpStream, Asked) -> Option<()> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let asked = Asked::default();
        let (serve, seen) = (Arc::new(serve), Arc::clone(&asked));
        begin(move || {
            while let Ok((stream, _)) = listener.accept() {
                let (serve, seen) = (Arc::clone(&serve), Arc::clone(&seen));
                begin(move || serve(stream, seen));
            }
        });
        Self { address, asked }
    }

    /// Host and port.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn asked(&self) -> Vec<(String, String)> {
        self.asked.lock().unwrap().clone()
    }
}

/// A thread that ends with the process of the tests, or with its connection.
fn begin<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) {
    drop(thread::Builder::new().name("far".to_owned()).spawn(work).unwrap());
}

/// A server that answers every request with 200 and an empty object.
fn server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    begin(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            begin(move || -> Option<()> {
                loop {
                    request(&mut stream)?;
                    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}").ok()?;
                }
            });
        }
    });
    port.to_string()
}

/// Reads a request: its head and its body.
fn request(stream: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).ok()?;
    let length = header(&head, "content-length").parse().unwrap_or(0);
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    Some((head, body))
}

fn header(head: &str, name: &str) -> String {
    let line = head.lines().find(|line| line.to_lowercase().starts_with(&format!("{name}:")));
    line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
}

/// Passes on what comes from either side until one of them ends.
fn join(one: TcpStream, other: TcpStream) -> Option<()> {
    let (mut from, mut to) = (one.try_clone().ok()?, other.try_clone().ok()?);
    begin(move || {
        drop(std::io::copy(&mut from, &mut to));
        drop(to.shutdown(Shutdown::Both));
    });
    let (mut from, mut to) = (other, one);
    drop(std::io::copy(&mut from, &mut to));
    to.shutdown(Shutdown::Both).ok()
}

fn behind(host_and_port: &str) -> Option<TcpStream> {
    let port = host_and_port.rsplit(':').next()?.parse::<u16>().ok()?;
    TcpStream::connect(("127.0.0.1", port)).ok()
}

fn http(mut stream: TcpStream, does: Does, asked: &Asked) -> Option<()> {
    loop {
        let (head, body) = request(&mut stream)?;
        let line = head.lines().next()?.to_owned();
        let authorization = header(&head, "proxy-authorization");
        asked.lock().unwrap().push((line.clone(), authorization.clone()));
        let wanted = format!("Basic {}", BASE64_STANDARD.encode("user:hunter2"));
        let says = match does {
            Does::Authenticates if authorization != wanted => "407 Proxy Authentication Required",
            Does::Refuses => "403 Forbidden",
            Does::Passes | Does::Authenticates => "",
        };
        if !says.is_empty() {
            stream.write_all(format!("HTTP/1.1 {says}\r\nContent-Length: 0\r\n\r\n").as_bytes()).ok()?;
            continue;
        }
        let mut words = line.split(' ');
        let (method, target) = (words.next()?, words.next()?);
        if method == "CONNECT" {
            let server = behind(target)?;
            stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").ok()?;
            return join(stream, server);
        }
        let (host, path) = target.strip_prefix("http://")?.split_once('/')?;
        let mut server = behind(host)?;
        let rest = head.split_once("\r\n")?.1;
        server.write_all(format!("{method} /{path} HTTP/1.1\r\n{rest}").as_bytes()).ok()?;
        server.write_all(&body).ok()?;
        let (answer, body) = request(&mut server)?;
        stream.write_all(answer.as_bytes()).ok()?;
        stream.write_all(&body).ok()?;
    }
}

/// RFC 1928 and 1929, as far as a client asks for it.
fn socks(mut stream: TcpStream, does: Does, asked: &Asked) -> Option<()> {
    let take = |stream: &mut TcpStream, length: usize| {
        let mut bytes = vec![0; length];
        stream.read_exact(&mut bytes).ok().map(|()| bytes)
    };
    let text = |stream: &mut TcpStream| {
        let length = take(stream, 1)?[0];
        String::from_utf8(take(stream, usize::from(length))?).ok()
    };
    let methods = take(&mut stream, 2)?[1];
    let methods = take(&mut stream, usize::from(methods))?;
    let mut user = String::new();
    match (methods.contains(&2), does) {
        (true, _) => {
            stream.write_all(&[5, 2]).ok()?;
            take(&mut stream, 1)?;
            user = format!("{}:{}", text(&mut stream)?, text(&mut stream)?);
            stream.write_all(&[1, u8::from(does == Does::Authenticates && user != "user:hunter2")]).ok()?;
        }
        (false, Does::Authenticates) => {
            stream.write_all(&[5, 0xff]).ok()?;
            return None;
        }
        (false, Does::Passes | Does::Refuses) => stream.write_all(&[5, 0]).ok()?,
    }
    let kind = take(&mut stream, 4)?[3];
    let host = match kind {
        3 => text(&mut stream)?,
        _ => format!("{:?}", take(&mut stream, 4)?),
    };
    let port = take(&mut stream, 2)?;
    let to = format!("{host}:{}", u16::from_be_bytes([port[0], port[1]]));
    asked.lock().unwrap().push((format!("SOCKS {to}"), user));
    if does == Does::Refuses {
        stream.write_all(&[5, 2, 0, 1, 0, 0, 0, 0, 0, 0]).ok()?;
        return None;
    }
    let server = behind(&to)?;
    stream.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).ok()?;
    join(stream, server)
}

/// What `decklog check` says of one sink with these keys, in an environment.
async fn checked(sink: &str, environment: &[(&str, &str)]) -> String {
    let dir = tempfile::tempdir().unwrap();
    let config = format!(
        "[cluster]\nkubeconfig = \"none\"\n[state]\npath = \"state\"\n[[watch]]\nresources = [\"pods\"]\n[[sink]]\nname = \"far\"\n{sink}\n"
    );
    std::fs::write(dir.path().join("config.toml"), config).unwrap();
    let answer = decklog(dir.path(), &["check", "-c", "config.toml"], environment).await;
    let line = answer.out.lines().find(|line| line.contains("far"));
    line.unwrap_or_else(|| panic!("{answer:#?}")).to_owned()
}

const HTTP: &str = "type = \"http\"\nurl = ";
const OTLP: &str = "type = \"otlp\"\nprotocol = \"http\"\nurl = ";
const GRPC: &str = "type = \"otlp\"\nurl = ";

/// kubectl reaches an API server through the same proxies with the same variables.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sink_goes_through_the_proxy_that_go_would_take() {
    let port = server();
    let url = format!("http://collector.invalid:{port}/in");
    for (sink, proxy, variable, scheme) in [
        (HTTP, Proxy::http(Does::Passes), "HTTP_PROXY", "http"),
        (OTLP, Proxy::http(Does::Passes), "http_proxy", "http"),
        (HTTP, Proxy::socks(Does::Passes), "HTTP_PROXY", "socks5"),
        (OTLP, Proxy::socks(Does::Passes), "HTTP_PROXY", "socks5h"),
        (HTTP, Proxy::http(Does::Authenticates), "HTTP_PROXY", "http"),
        (OTLP, Proxy::socks(Does::Authenticates), "http_proxy", "socks5"),
    ] {
        let address = format!("{scheme}://user:hunter2@{}", proxy.address);
        let line = checked(&format!("{sink}\"{url}\""), &[(variable, &address)]).await;
        let shown = format!("can be delivered to through {scheme}://{} (${variable})", proxy.address);
        assert!(line.starts_with("ok") && line.ends_with(&shown), "{line}");
        let (asked, who) = proxy.asked()[0].clone();
        let named = asked.contains(&format!("{url} HTTP")) || asked == format!("SOCKS collector.invalid:{port}");
        assert!(named, "the proxy resolves the name: {asked}");
        let basic = format!("Basic {}", BASE64_STANDARD.encode("user:hunter2"));
        assert!(who == "user:hunter2" || who == basic, "{asked} {who}");
    }
}

/// The row says whether kubectl would ask the proxy for such a URL.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sink_is_asked_of_the_proxy_by_the_rules_of_go() {
    let here = format!("http://127.0.0.1:{}/", server());
    for (sink, variable, no_proxy, asks) in [
        (
            format!("{HTTP}\"https://collector.invalid/\""),
            "HTTPS_PROXY",
            "",
            Some("CONNECT collector.invalid:443 HTTP/1.1"),
        ),
        (
            format!("{OTLP}\"https://collector.invalid/\""),
            "https_proxy",
            "",
            Some("CONNECT collector.invalid:443 HTTP/1.1"),
        ),
        (
            format!("{GRPC}\"https://collector.invalid/\""),
            "HTTPS_PROXY",
            "",
            Some("CONNECT collector.invalid:443 HTTP/1.1"),
        ),
        (
            "type = \"elasticsearch\"\nurl = \"https://search.invalid:9200\"".to_owned(),
            "HTTPS_PROXY",
            "",
            Some("CONNECT search.invalid:9200 HTTP/1.1"),
        ),
        (
            "type = \"s3\"\nurl = \"s3://bucket\"\nendpoint = \"https://s3.invalid\"".to_owned(),
            "HTTPS_PROXY",
            "",
            Some("CONNECT s3.invalid:443 HTTP/1.1"),
        ),
        (format!("{HTTP}\"https://collector.invalid/\""), "HTTP_PROXY", "", None),
        (format!("{HTTP}\"http://collector.invalid/\""), "HTTPS_PROXY", "", None),
        (format!("{HTTP}\"https://collector.invalid/\""), "ALL_PROXY", "", None),
        (format!("{HTTP}\"https://collector.invalid/\""), "HTTPS_PROXY", "invalid", None),
        (format!("{OTLP}\"https://collector.invalid:8443/\""), "HTTPS_PROXY", ".invalid:8443", None),
        (format!("{HTTP}\"https://10.255.0.1:1/\"\ntimeout = \"1ms\""), "HTTPS_PROXY", "10.0.0.0/8", None),
        (format!("{HTTP}\"https://collector.invalid/\"\nallow_networks = [\"10.0.0.0/8\"]"), "HTTPS_PROXY", "", None),
        (format!("{HTTP}\"{here}\""), "HTTP_PROXY", "", None),
    ] {
        let proxy = Proxy::http(Does::Refuses);
        let keys = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY");
        let environment = [(variable, &*proxy.address), ("NO_PROXY", no_proxy), (keys.0, "a"), (keys.1, "b")];
        let line = checked(&sink, &environment).await;
        let first = proxy.asked().first().map(|(asked, _)| asked.clone());
        assert_eq!(first.as_deref(), asks, "{sink} {variable} {no_proxy}: {line}");
        assert_eq!(
            line.contains(&format!(" through http://{} (${variable})", proxy.address)),
            asks.is_some(),
            "{line}"
        );
    }
}

/// What a proxy does not do is one sentence that names it without its password, and says what helps.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_that_does_not_pass_is_named() {
    let (plain, tls) = (format!("http://collector.invalid:{}/", server()), "https://collector.invalid/".to_owned());
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let silent = Proxy { address: gone, asked: Asked::default() };
    for (sink, url, proxy, scheme, says) in [
        (
            HTTP,
            &tls,
            Proxy::http(Does::Authenticates),
            "http",
            "the proxy asks for another user and password; write http://USER",
        ),
        (
            HTTP,
            &plain,
            Proxy::http(Does::Authenticates),
            "http",
            "the proxy asks for another user and password; write http://USER",
        ),
        (
            OTLP,
            &plain,
            Proxy::http(Does::Authenticates),
            "http",
            "the proxy asks for another user and password; write http://USER",
        ),
        (OTLP, &tls, Proxy::http(Does::Refuses), "http", "the proxy does not connect there; allow it on the proxy"),
        (HTTP, &plain, Proxy::socks(Does::Refuses), "socks5", "the SOCKS proxy does not connect there; allow it"),
        (HTTP, &plain, Proxy::socks(Does::Authenticates), "socks5", "correct the user and the password"),
        (HTTP, &tls, silent, "http", "onnection refused"),
        (GRPC, &plain, Proxy::http(Does::Passes), "http", "HTTP/2 without TLS does not pass"),
    ] {
        let variable = if url.starts_with("https") { "HTTPS_PROXY" } else { "HTTP_PROXY" };
        let address = format!("{scheme}://other:s3cret@{}", proxy.address);
        let line = checked(&format!("{sink}\"{url}\""), &[(variable, &address)]).await;
        let named = format!("{scheme}://{} (${variable})", proxy.address);
        assert!(line.starts_with("problem") && line.contains(says) && line.contains(&named), "{line}");
        assert!(!line.contains("s3cret") && !line.contains("tunnel error"), "{line}");
    }
    let line = checked(&format!("{HTTP}\"{tls}\""), &[("HTTPS_PROXY", "ftp://other:s3cret@p")]).await;
    assert!(line.contains("$HTTPS_PROXY holds no proxy that decklog can use") && !line.contains("s3cret"), "{line}");
}
