//! Access control of the page: hosts, origins, tokens, cookies. Pages of other origins can make a browser send requests.
//!
//! A page of somebody else can make a browser send requests to this machine. It cannot read the answers, unless its own name
//! leads to this machine (DNS rebinding): so a request names a host that is known, comes from this page or from nobody's, and
//! where a token is needed, a cookie shows it that is sent along with nothing that another page has begun.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use axum::http::{HeaderMap, HeaderValue, Method, header};
use sha2::{Digest, Sha256};

use super::answer::Problem;
use crate::core::net::server::{Gate, Peer, bearer};
use crate::core::rights::Sight;
use crate::web::http::readers::{Reader, Readers};

/// Number of browser sessions; beyond it the oldest has to show its token again.
const MOST_SESSIONS: usize = 256;

/// Policy for access.
pub(crate) enum Access {
    /// Everybody who can connect: the machine is theirs, or the socket.
    Everybody,
    /// Clients with a token, or a certificate.
    Some(Gate),
    /// Users of the cluster, who see what they may list there.
    Cluster(Readers),
    /// The first browser that opens the printed address.
    Once(Mutex<Option<String>>),
}

/// A visitor that was let in, with the token that the cluster has to know.
pub(crate) struct Visitor(Option<Reader>);

/// Browsers that have shown a token.
#[derive(Default)]
pub(super) struct Sessions(Mutex<VecDeque<Session>>);

struct Session {
    /// The digest of its cookie.
    cookie: [u8; 32],
    /// The token that it has shown, which has to be one still.
    token: String,
}

/// A text that nobody guesses.
pub(crate) fn secret() -> String {
    let (first, second) = (uuid::Uuid::new_v4(), uuid::Uuid::new_v4());
    format!("{}{}", first.simple(), second.simple())
}

fn digest(text: &str) -> [u8; 32] {
    Sha256::digest(text).into()
}

impl Sessions {
    fn begin(&self, token: &str) -> String {
        let cookie = secret();
        let mut sessions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if sessions.len() >= MOST_SESSIONS {
            sessions.pop_front();
        }
        sessions.push_back(Session { cookie: digest(&cookie), token: token.to_owned() });
        cookie
    }

    /// The token of the browser that shows this cookie.
    fn token(&self, cookie: &str) -> Option<String> {
        let shown = digest(cookie);
        let sessions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Digests are compared: how long that takes says nothing of the cookies.
        sessions.iter().find(|session| session.cookie == shown).map(|session| session.token.clone())
    }
}

/// The name of the cookie: browsers give those of one host to every port of it.
fn name(headers: &HeaderMap) -> String {
    let port = host(headers).and_then(|host| host.rsplit_once(':')).map_or("", |(_, port)| port);
    let port: String = port.chars().filter(char::is_ascii_digit).collect();
    format!("decklog{port}")
}

fn cookie(headers: &HeaderMap) -> Option<String> {
    let name = name(headers);
    headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok()).find_map(|line| {
        line.split(';').find_map(|pair| {
            let (key, value) = pair.trim().split_once('=')?;
            (key == name).then(|| value.to_owned())
        })
    })
}

fn host(headers: &HeaderMap) -> Option<&str> {
    headers.get(header::HOST)?.to_str().ok()
}

/// Text for a client without a token.
const TOKEN: &str = "show a token of its [ui] token_file (Authorization: Bearer, or open /?token=TOKEN once), or a certificate that its client_ca_file knows";
const OF_CLUSTER: &str = "show the token of a user of the cluster: open /?token=TOKEN once, with what `kubectl create token NAME` prints, or send it as Authorization: Bearer";
const ONCE: &str = "open the address that `decklog ui` has printed: it lets in the first browser that opens it; run the command again for another";

impl Access {
    /// Lets a request in.
    pub(super) async fn admit(
        &self,
        sessions: &Sessions,
        peer: &Peer,
        headers: &HeaderMap,
    ) -> Result<Visitor, Problem> {
        let token = cookie(headers).and_then(|cookie| sessions.token(&cookie));
        let (is_in, text) = match self {
            Self::Cluster(_) => {
                let shown = bearer(headers).map(|shown| shown.trim().to_owned()).or(token);
                return shown
                    .filter(|token| !token.is_empty())
                    .map(|token| Visitor(Some(Reader::of(&token, peer))))
                    .ok_or_else(|| Problem::unknown(OF_CLUSTER));
            }
            Self::Everybody => (true, ""),
            Self::Some(gate) => {
                let by_itself = gate.admits(peer, headers).await.is_some();
                (by_itself || Self::holds(gate, peer, token.as_deref()).await, TOKEN)
            }
            Self::Once(_) => (token.is_some(), ONCE),
        };
        if is_in { Ok(Visitor(None)) } else { Err(Problem::unknown(text)) }
    }

    /// Says what a visitor may see of the log of a cluster.
    pub(super) async fn sight(&self, visitor: &Visitor, cluster: Option<&str>) -> Result<Sight, Problem> {
        match (self, &visitor.0) {
            (Self::Cluster(readers), Some(reader)) => Ok(readers.sight(reader, cluster).await?.1),
            (Self::Cluster(_), None) => Err(Problem::unknown(OF_CLUSTER)),
            (Self::Everybody | Self::Some(_) | Self::Once(_), _) => Ok(Sight::All),
        }
    }

    /// Returns the names of the clusters that a visitor is known to; none where that is every one.
    pub(super) async fn clusters(&self, visitor: &Visitor) -> Result<Option<Vec<String>>, Problem> {
        match (self, &visitor.0) {
            (Self::Cluster(readers), Some(reader)) => Ok(readers.clusters(reader).await?),
            (Self::Cluster(_), None) => Err(Problem::unknown(OF_CLUSTER)),
            (Self::Everybody | Self::Some(_) | Self::Once(_), _) => Ok(None),
        }
    }

    async fn holds(gate: &Gate, peer: &Peer, token: Option<&str>) -> bool {
        let Some(token) = token.and_then(|token| HeaderValue::from_str(&format!("Bearer {token}")).ok()) else {
            return false;
        };
        gate.admits(peer, &HeaderMap::from_iter([(header::AUTHORIZATION, token)])).await.is_some()
    }

    /// Takes a token out of the address of the page: gives the cookie that stands for it from now on.
    pub(super) async fn enter(
        &self,
        sessions: &Sessions,
        peer: &Peer,
        headers: &HeaderMap,
        token: &str,
        tls: bool,
    ) -> Result<String, Problem> {
        let (is_it, text) = match self {
            Self::Everybody => return Err(Problem::wrong("token", "nobody is asked for a token here; leave it out")),
            Self::Some(gate) => (Self::holds(gate, peer, Some(token)).await, TOKEN),
            Self::Cluster(readers) => {
                readers.clusters(&Reader::of(token.trim(), peer)).await?;
                (true, OF_CLUSTER)
            }
            Self::Once(known) => {
                let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
                let is_it = known.as_ref().is_some_and(|known| digest(known) == digest(token));
                if is_it {
                    *known = None;
                }
                (is_it, ONCE)
            }
        };
        if !is_it {
            return Err(Problem::unknown(text));
        }
        let secure = if tls { "; Secure" } else { "" };
        Ok(format!("{}={}; Path=/; HttpOnly; SameSite=Strict{secure}", name(headers), sessions.begin(token)))
    }
}

/// Checks whether a request may be answered, regardless of its sender.
///
/// # Errors
/// Where it may not, with why.
pub(super) fn check(method: &Method, path: &str, headers: &HeaderMap, hosts: &[String]) -> Result<(), Problem> {
    if *method != Method::GET && *method != Method::HEAD {
        return Err(Problem::method());
    }
    let host = host(headers).unwrap_or_default();
    if !is_known(host, hosts) {
        return Err(Problem::forbidden(
            "this page is reached by localhost or an address; for another name, put it into [ui] hosts",
        ));
    }
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    if let Some(origin) = headers.get(header::ORIGIN) {
        let of = origin.to_str().ok().and_then(|origin| origin.split_once("://")).map(|(_, host)| host);
        if of != Some(host) {
            return Err(Problem::forbidden("another page asks for this, and only this page may"));
        }
    }
    let opens = path == "/" && text("sec-fetch-mode") == Some("navigate") && text("sec-fetch-dest") == Some("document");
    // A link to the page may stand anywhere; who follows it sees the page, and no other page does.
    if text("sec-fetch-site").is_some_and(|site| !["same-origin", "none"].contains(&site)) && !opens {
        return Err(Problem::forbidden("another page asks for this, and only this page may"));
    }
    Ok(())
}

/// Reports whether a host name can only lead to this server: an address, localhost, or a configured name.
fn is_known(host: &str, hosts: &[String]) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !name.ends_with(':') => name,
        _ => host,
    };
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    let address = name.trim_start_matches('[').trim_end_matches(']');
    name == "localhost"
        || address.parse::<IpAddr>().is_ok()
        || hosts.iter().any(|known| known.trim_end_matches('.').eq_ignore_ascii_case(&name))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderName;

    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&str, &str)| {
            (HeaderName::try_from(*name).unwrap(), HeaderValue::from_str(value).unwrap())
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn a_name_that_somebody_else_leads_here_is_none() {
        let hosts = ["decklog.example".to_owned()];
        for host in [
            "localhost",
            "localhost:9467",
            "LOCALHOST.:1",
            "127.0.0.1",
            "127.0.0.1:9467",
            "[::1]:9467",
            "[::1]",
            "10.1.2.3:80",
            "decklog.example",
            "Decklog.example:443",
        ] {
            assert!(is_known(host, &hosts), "{host}");
        }
        for host in
            ["", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "decklog.example.evil", ":9467"]
        {
            assert!(!is_known(host, &hosts), "{host}");
        }
    }

    #[test]
    fn only_this_page_asks() {
        let asks = |path: &str, pairs: &[(&str, &str)]| {
            let all: Vec<(&str, &str)> =
                [("host", "localhost:9467")].into_iter().chain(pairs.iter().copied()).collect();
            check(&Method::GET, path, &headers(&all), &[]).is_ok()
        };
        assert!(asks("/api/v1/overview", &[]));
        assert!(asks("/api/v1/overview", &[("origin", "http://localhost:9467"), ("sec-fetch-site", "same-origin")]));
        for origin in ["http://evil.example", "null", "http://localhost:9468", "http://localhost"] {
            assert!(!asks("/api/v1/overview", &[("origin", origin)]), "{origin}");
        }
        let from = |site| [("sec-fetch-site", site), ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document")];
        assert!(asks("/", &from("none")) && asks("/", &from("cross-site")), "a link is followed");
        for site in ["cross-site", "same-site", "other"] {
            assert!(!asks("/api/v1/overview", &from(site)), "{site}");
            assert!(!asks("/", &[("sec-fetch-site", site), ("sec-fetch-mode", "no-cors")]), "{site}");
            let framed = [("sec-fetch-site", site), ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "iframe")];
            assert!(!asks("/", &framed), "{site}");
        }
        assert!(check(&Method::POST, "/", &headers(&[("host", "localhost")]), &[]).is_err());
        assert!(check(&Method::OPTIONS, "/", &headers(&[("host", "localhost")]), &[]).is_err());
        assert!(check(&Method::HEAD, "/", &headers(&[("host", "localhost")]), &[]).is_ok());
        assert!(check(&Method::GET, "/", &HeaderMap::new(), &[]).is_err());
    }

    #[tokio::test]
    async fn an_address_that_was_printed_lets_one_browser_in() {
        let (access, sessions) = (Access::Once(Mutex::new(Some("printed".to_owned()))), Sessions::default());
        let (peer, none) = (Peer::Tcp([127, 0, 0, 1].into(), None), headers(&[("host", "127.0.0.1:4711")]));
        assert!(access.admit(&sessions, &peer, &none).await.is_err());
        assert!(access.enter(&sessions, &peer, &none, "guessed", false).await.is_err());
        let set = access.enter(&sessions, &peer, &none, "printed", false).await.unwrap();
        assert!(set.starts_with("decklog4711=") && set.ends_with("; Path=/; HttpOnly; SameSite=Strict"), "{set}");
        assert!(access.enter(&sessions, &peer, &none, "printed", false).await.is_err(), "it lets in one");
        let shown = set.split(';').next().unwrap();
        let shows = |cookie: &str| headers(&[("host", "127.0.0.1:4711"), ("cookie", cookie)]);
        assert!(access.admit(&sessions, &peer, &shows(&format!("x=y; {shown}"))).await.is_ok());
        assert!(access.admit(&sessions, &peer, &shows("decklog4711=other")).await.is_err());
        let elsewhere = headers(&[("host", "127.0.0.1:4712"), ("cookie", shown)]);
        assert!(access.admit(&sessions, &peer, &elsewhere).await.is_err(), "another port is another page");
        for _ in 0..MOST_SESSIONS {
            sessions.begin("printed");
        }
        assert!(access.admit(&sessions, &peer, &shows(shown)).await.is_err(), "so many are known at a time");
    }
}
