//! Proxies that the environment names, by the rules of Go's `core/net/http`, which kubectl follows
//! (<https://pkg.go.dev/golang.org/x/net/http/httpproxy>).
//!
//! `HTTPS_PROXY` is for `https://` URLs and `HTTP_PROXY` for `http://` URLs; `NO_PROXY` names exceptions. Each is read in
//! lower case where the upper case is not set. This machine itself is never reached through a proxy.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use percent_encoding::percent_decode_str;
use reqwest::Url;

use super::is_loopback;

/// Schemes that a proxy may have.
const SCHEMES: [&str; 4] = ["http", "https", "socks5", "socks5h"];

/// A proxy, and the setting that named it.
#[derive(Clone, PartialEq, Eq)]
pub struct Proxy {
    url: Url,
    named_by: String,
}

impl Proxy {
    /// Reads the address of a proxy, such as `http://user:password@proxy.example:3128`. Without a scheme it is `http`.
    ///
    /// # Errors
    /// One sentence without the address itself, which may hold a password.
    pub fn parse(address: &str, named_by: &str) -> Result<Self, InvalidProxy> {
        let invalid = || InvalidProxy { named_by: named_by.to_owned() };
        let address = address.trim();
        let whole = if address.contains("://") { address.to_owned() } else { format!("http://{address}") };
        let url = Url::parse(&whole).map_err(|_| invalid())?;
        if !SCHEMES.contains(&url.scheme()) || url.host_str().is_none_or(str::is_empty) {
            return Err(invalid());
        }
        Ok(Self { url, named_by: named_by.to_owned() })
    }

    /// The address, with the credentials in it.
    #[must_use]
    pub const fn url(&self) -> &Url {
        &self.url
    }

    /// The variable or the key that named it, such as `HTTPS_PROXY`.
    #[must_use]
    pub fn named_by(&self) -> &str {
        &self.named_by
    }

    /// Reports whether it speaks SOCKS 5. The proxy resolves names, as it does for Go.
    #[must_use]
    pub fn is_socks(&self) -> bool {
        self.url.scheme().starts_with("socks5")
    }

    /// The user and the password, decoded; nothing where the address names no user.
    #[must_use]
    pub fn credentials(&self) -> Option<(String, String)> {
        let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        let user = self.url.username();
        let password = self.url.password().unwrap_or_default();
        (!user.is_empty() || !password.is_empty()).then(|| (decoded(user), decoded(password)))
    }

    /// The host and the port to connect to.
    #[must_use]
    pub fn host_and_port(&self) -> (String, u16) {
        let host = self.url.host_str().unwrap_or_default().to_owned();
        let default = if self.is_socks() { 1080 } else { self.url.port_or_known_default().unwrap_or(80) };
        (host, self.url.port().unwrap_or(default))
    }
}

/// Without credentials: `http://proxy.example:3128 ($HTTPS_PROXY)`.
impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (host, port) = self.host_and_port();
        write!(f, "{}://{host}:{port} ({})", self.url.scheme(), self.named_by)
    }
}

/// Prints as [`Display`](fmt::Display) does: a password stays out of debug logs as well.
impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Proxy({self})")
    }
}

/// An address that names no proxy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{named_by} holds no proxy that decklog can use; write http://, https:// or socks5:// with a host, and escape \
     the characters @ : / of a user or a password as %40 %3A %2F"
)]
pub struct InvalidProxy {
    named_by: String,
}

/// The proxies of an environment.
#[derive(Clone, Debug, Default)]
pub struct Proxies {
    http: Option<Result<Proxy, InvalidProxy>>,
    https: Option<Result<Proxy, InvalidProxy>>,
    exceptions: Exceptions,
}

impl Proxies {
    /// The proxies of this process's environment.
    #[must_use]
    pub fn from_environment() -> Self {
        Self::read(|name| std::env::var(name).ok())
    }

    /// The proxies that variables name.
    #[must_use]
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Self {
        let set = |names: [&'static str; 2]| {
            names
                .into_iter()
                .find_map(|name| variable(name).filter(|value| !value.is_empty()).map(|value| (name, value)))
        };
        let proxy = |names| set(names).map(|(name, value)| Proxy::parse(&value, &format!("${name}")));
        // A CGI program's HTTP_PROXY may come from a header of a request (httpoxy).
        let is_cgi = variable("REQUEST_METHOD").is_some_and(|method| !method.is_empty());
        Self {
            http: proxy(["HTTP_PROXY", "http_proxy"]).filter(|_| !is_cgi),
            https: proxy(["HTTPS_PROXY", "https_proxy"]),
            exceptions: set(["NO_PROXY", "no_proxy"]).map(|(_, value)| Exceptions::parse(&value)).unwrap_or_default(),
        }
    }

    /// The proxy for a URL; nothing where it is reached directly.
    ///
    /// # Errors
    /// Where the variable that counts for this URL holds no proxy.
    pub fn for_url(&self, url: &Url) -> Result<Option<&Proxy>, InvalidProxy> {
        let proxy = match url.scheme() {
            "https" => &self.https,
            "http" => &self.http,
            _ => &None,
        };
        let Some(proxy) = proxy else { return Ok(None) };
        let host = url.host_str().unwrap_or_default();
        if is_loopback(host) || self.exceptions.cover(host, url.port_or_known_default()) {
            return Ok(None);
        }
        proxy.as_ref().map(Some).map_err(Clone::clone)
    }
}

/// The hosts of `NO_PROXY`.
#[derive(Clone, Debug, Default)]
struct Exceptions {
    all: bool,
    networks: Vec<IpNet>,
    addresses: Vec<(IpAddr, Option<u16>)>,
    domains: Vec<Domain>,
}

/// A domain of `NO_PROXY`.
#[derive(Clone, Debug)]
struct Domain {
    /// In lower case, with a dot before it.
    suffix: String,
    /// True if the domain itself matches too, beside the names below it.
    itself: bool,
    port: Option<u16>,
}

impl Exceptions {
    fn parse(text: &str) -> Self {
        let mut exceptions = Self::default();
        for word in text.split(',').map(|word| word.trim().to_lowercase()).filter(|word| !word.is_empty()) {
            if word == "*" {
                exceptions.all = true;
            } else if let Ok(network) = word.parse() {
                exceptions.networks.push(network);
            } else {
                let (host, port) = split_port(&word);
                if let Ok(address) = host.parse::<IpAddr>() {
                    exceptions.addresses.push((address.to_canonical(), port));
                } else if let Some(domain) = Domain::parse(host, port) {
                    exceptions.domains.push(domain);
                }
            }
        }
        exceptions
    }

    fn cover(&self, host: &str, port: Option<u16>) -> bool {
        let host = host.trim_start_matches('[').trim_end_matches(']').to_lowercase();
        let fits = |wanted: Option<u16>| wanted.is_none() || wanted == port;
        if let Ok(address) = host.parse::<IpAddr>() {
            let address = address.to_canonical();
            if self.networks.iter().any(|network| network.contains(&address))
                || self.addresses.iter().any(|(other, port)| *other == address && fits(*port))
            {
                return true;
            }
        }
        self.all || self.domains.iter().any(|domain| domain.covers(&host) && fits(domain.port))
    }
}

impl Domain {
    fn parse(host: &str, port: Option<u16>) -> Option<Self> {
        let host = host.strip_prefix('*').filter(|rest| rest.starts_with('.')).unwrap_or(host);
        let itself = !host.starts_with('.');
        let name = host.strip_prefix('.').unwrap_or(host);
        // A URL writes the name in ASCII, so this does as well.
        let ascii = Url::parse(&format!("http://{name}")).ok()?.host_str()?.to_owned();
        (!name.is_empty()).then(|| Self { suffix: format!(".{ascii}"), itself, port })
    }

    fn covers(&self, host: &str) -> bool {
        host.ends_with(&self.suffix) || self.itself && host == &self.suffix[1..]
    }
}

/// `host:port`, `[address]:port` or a host alone; an IPv6 address without brackets is a host.
fn split_port(word: &str) -> (&str, Option<u16>) {
    let bare = |host: &'_ str| -> usize { usize::from(host.starts_with('[') && host.ends_with(']')) };
    let unwrap = |host: &'_ str| -> (usize, usize) { (bare(host), host.len() - bare(host)) };
    let split = word.rsplit_once(':').filter(|(host, _)| !host.contains(':') || host.ends_with(']'));
    match split.and_then(|(host, port)| Some((host, port.parse().ok()?))) {
        Some((host, port)) => {
            let (from, to) = unwrap(host);
            (&host[from..to], Some(port))
        }
        None => {
            let (from, to) = unwrap(word);
            (&word[from..to], None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(variables: &[(&str, &str)], url: &str) -> Result<Option<String>, InvalidProxy> {
        let variable =
            |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        let proxies = Proxies::read(variable);
        proxies.for_url(&Url::parse(url).unwrap()).map(|proxy| proxy.map(ToString::to_string))
    }

    /// The rows are those that Go's `httpproxy` answers in the same way.
    #[test]
    fn a_url_gets_the_proxy_that_go_gives_it() {
        let (https, http) = (("HTTPS_PROXY", "http://p:3128"), ("HTTP_PROXY", "http://h"));
        let through = |text: &str| Some(text.to_owned());
        for (variables, url, expected) in [
            (vec![], "https://api.example", None),
            (vec![https], "https://api.example", through("http://p:3128 ($HTTPS_PROXY)")),
            (vec![https], "http://api.example", None),
            (vec![http], "http://api.example", through("http://h:80 ($HTTP_PROXY)")),
            (vec![http], "https://api.example", None),
            (vec![("https_proxy", "p:1")], "https://api.example", through("http://p:1 ($https_proxy)")),
            (vec![("HTTPS_PROXY", ""), ("https_proxy", "p:1")], "https://a", through("http://p:1 ($https_proxy)")),
            (vec![https, ("https_proxy", "q:1")], "https://a.example", through("http://p:3128 ($HTTPS_PROXY)")),
            (vec![("HTTPS_PROXY", "https://u:s@p")], "https://a", through("https://p:443 ($HTTPS_PROXY)")),
            (vec![("HTTPS_PROXY", "socks5://p")], "https://a", through("socks5://p:1080 ($HTTPS_PROXY)")),
            (vec![("HTTPS_PROXY", "socks5h://p:9")], "https://a", through("socks5h://p:9 ($HTTPS_PROXY)")),
            (
                vec![("HTTPS_PROXY", "[2001:db8::1]:3128")],
                "https://a",
                through("http://[2001:db8::1]:3128 ($HTTPS_PROXY)"),
            ),
            (vec![("ALL_PROXY", "p:1")], "https://a", None),
            (vec![http, ("REQUEST_METHOD", "GET")], "http://a", None),
            // This machine.
            (vec![https], "https://localhost:6443", None),
            (vec![https], "https://127.0.0.1:6443", None),
            (vec![https], "https://127.8.8.8:6443", None),
            (vec![https], "https://[::1]:6443", None),
        ] {
            assert_eq!(chosen(&variables, url), Ok(expected), "{variables:?} {url}");
        }
    }

    #[test]
    fn no_proxy_names_what_it_names_for_go() {
        for (exceptions, url, direct) in [
            ("*", "https://api.example", true),
            ("a, *", "https://10.0.0.1", true),
            ("api.example", "https://api.example:6443", true),
            ("API.Example", "https://api.example", true),
            ("api.example", "https://API.EXAMPLE", true),
            ("example", "https://api.example", true),
            ("example", "https://api.other", false),
            ("example", "https://counterexample", false),
            (".example", "https://api.example", true),
            (".example", "https://example", false),
            ("*.example", "https://api.example", true),
            ("*.example", "https://example", false),
            ("*example", "https://api.example", false),
            ("api.example:6443", "https://api.example:6443", true),
            ("api.example:443", "https://api.example", true),
            ("api.example:6443", "https://api.example", false),
            (".example:6443", "https://api.example:6443", true),
            ("10.0.0.1", "https://10.0.0.1:6443", true),
            ("10.0.0.1", "https://10.0.0.10", false),
            ("10.0.0.1:6443", "https://10.0.0.1:6443", true),
            ("10.0.0.1:6443", "https://10.0.0.1:443", false),
            ("10.0.0.0/8", "https://10.200.0.1:6443", true),
            ("10.0.0.0/8", "https://11.0.0.1", false),
            ("::ffff:10.0.0.1", "https://10.0.0.1", true),
            ("fd00::/8", "https://[fd00::1]:6443", true),
            ("fd00::1", "https://[fd00::1]", true),
            ("[fd00::1]", "https://[fd00::1]", true),
            ("[fd00::1]:6443", "https://[fd00::1]:6443", true),
            ("[fd00::1]:6443", "https://[fd00::1]:443", false),
            ("10.0.0.0/8", "https://ten.example", false),
            (" , ,.", "https://api.example", false),
            (":6443", "https://api.example:6443", false),
            ("b\u{fc}cher.example", "https://xn--bcher-kva.example", true),
        ] {
            let variables = [("HTTPS_PROXY", "p:3128"), ("NO_PROXY", exceptions)];
            assert_eq!(chosen(&variables, url).unwrap().is_none(), direct, "NO_PROXY={exceptions} {url}");
            let variables = [("https_proxy", "p:3128"), ("no_proxy", exceptions)];
            assert_eq!(chosen(&variables, url).unwrap().is_none(), direct, "no_proxy={exceptions} {url}");
        }
    }

    #[test]
    fn what_is_no_proxy_is_an_error_that_quotes_nothing() {
        for address in ["http://", "ftp://p", "http://u:hunter2@", "://p", "http://p:hunter2x", "socks4://p"] {
            let error = chosen(&[("HTTPS_PROXY", address)], "https://a").unwrap_err().to_string();
            assert!(
                error.starts_with("$HTTPS_PROXY holds no proxy") && !error.contains("hunter2"),
                "{address}: {error}"
            );
            assert_eq!(chosen(&[("HTTPS_PROXY", address)], "https://localhost"), Ok(None), "not asked for");
        }
    }

    #[test]
    fn credentials_are_decoded_and_never_shown() {
        for (address, expected) in [
            ("http://p", None),
            ("http://user@p", Some(("user", ""))),
            ("http://us%40er:p%3Ass%25@p", Some(("us@er", "p:ss%"))),
            ("socks5://user:hunter2@p", Some(("user", "hunter2"))),
        ] {
            let proxy = Proxy::parse(address, "proxy-url").unwrap();
            let expected = expected.map(|(user, password): (&str, &str)| (user.to_owned(), password.to_owned()));
            assert_eq!(proxy.credentials(), expected, "{address}");
            assert!(!format!("{proxy} {proxy:?}").contains("hunter2"));
        }
    }
}
