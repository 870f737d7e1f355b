//! Addresses of servers and proxies, by the rules of client-go (`rest.DefaultServerURL`) and of Go's `core/net/url`.

use std::net::Ipv6Addr;

use http::Uri;
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

/// Characters that no path of a URL holds as they are.
const PATH: &AsciiSet =
    &CONTROLS.add(b' ').add(b'"').add(b'<').add(b'>').add(b'\\').add(b'^').add(b'`').add(b'{').add(b'|').add(b'}');

/// The API server of a cluster.
pub(super) struct Server {
    pub(super) url: Uri,
    /// User and password of the URL. Go sends them, and nothing else then.
    pub(super) user: Option<(String, String)>,
}

/// Reads `server`. Without a scheme it is `host` or `host:port`, reached over http. Query and fragment do not count.
pub(super) fn server(text: &str) -> Result<Server, String> {
    let wrong = |what: &str| Err(format!("is no address of an API server: {what}"));
    if text.contains(|c: char| c.is_control() || c == ' ') {
        return wrong("it has a space or a control character");
    }
    let text = text.split(['#', '?']).next().unwrap_or_default();
    let (scheme, rest) = match schemed(text) {
        Some((scheme, rest)) => (scheme, rest),
        None => ("http".to_owned(), text),
    };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    if schemed(text).is_none() && !matches!(path, "" | "/") {
        return wrong("write https:// before it");
    }
    if scheme != "http" && scheme != "https" {
        return wrong("its scheme is neither https nor http");
    }
    let (user, host) = match authority.rsplit_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, authority),
    };
    let Some(host) = host_and_port(host) else { return wrong("its host or port cannot be read") };
    let path = utf8_percent_encode(if path.is_empty() { "/" } else { path }, PATH);
    let Ok(url) = format!("{scheme}://{host}{path}").parse() else { return wrong("it cannot be read as a URL") };
    let decode = |part: &str| percent_decode_str(part).decode_utf8_lossy().into_owned();
    let user =
        user.map(|user| user.split_once(':').unwrap_or((user, ""))).map(|(user, word)| (decode(user), decode(word)));
    Ok(Server { url, user })
}

/// Reads `proxy-url`, which client-go takes with three schemes.
pub(super) fn proxy(text: &str) -> Result<Uri, String> {
    let Some((scheme, rest)) = schemed(text) else {
        return Err("is no address of a proxy: write http://, https:// or socks5:// before it".to_owned());
    };
    if !matches!(scheme.as_str(), "http" | "https" | "socks5") {
        return Err("is no address of a proxy: its scheme is none of http, https and socks5".to_owned());
    }
    format!("{scheme}://{rest}")
        .parse()
        .map_err(|_error| "is no address of a proxy: it cannot be read as a URL".to_owned())
}

/// The scheme in small letters and what follows its `://`, where a host does.
fn schemed(text: &str) -> Option<(String, &str)> {
    let (scheme, rest) = text.split_once("://")?;
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    (is_scheme && !rest.is_empty() && !rest.starts_with('/')).then(|| (scheme.to_ascii_lowercase(), rest))
}

/// The host and its port, as they stand in a URL.
fn host_and_port(text: &str) -> Option<String> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (address, port) = rest.split_once(']')?;
            address.parse::<Ipv6Addr>().ok()?;
            (format!("[{address}]"), port)
        }
        None => {
            let (host, port) = text.split_at(text.find(':').unwrap_or(text.len()));
            let is_host = !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || "-._~".contains(c));
            is_host.then(|| (host.to_ascii_lowercase(), port))?
        }
    };
    match port.strip_prefix(':') {
        None if port.is_empty() => Some(host),
        Some("") => Some(host),
        Some(port) if port.bytes().all(|byte| byte.is_ascii_digit()) => {
            port.parse::<u16>().ok().map(|port| format!("{host}:{port}"))
        }
        None | Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Beside each row what `DefaultServerURL` of client-go 0.36 gives.
    #[test]
    fn a_server_is_read_as_client_go_does() {
        for (text, url) in [
            ("https://a.example:6443", Some("https://a.example:6443/")),
            ("HTTPS://A.example", Some("https://a.example/")),
            ("https://a.example:", Some("https://a.example/")),
            ("a.example", Some("http://a.example/")),
            ("a.example:6443", Some("http://a.example:6443/")),
            ("10.0.0.1:8080/", Some("http://10.0.0.1:8080/")),
            ("localhost", Some("http://localhost/")),
            ("[::1]:8080", Some("http://[::1]:8080/")),
            ("https://[2001:db8::1]:6443/k8s", Some("https://[2001:db8::1]:6443/k8s")),
            ("https://a.example/k8s/clusters/c-1", Some("https://a.example/k8s/clusters/c-1")),
            ("https://a.example/k8s/clusters/c-1/", Some("https://a.example/k8s/clusters/c-1/")),
            ("https://a.example/k8s?x=1#y", Some("https://a.example/k8s")),
            ("https://a.example?x=1", Some("https://a.example/")),
            ("https://u:p%40@a.example", Some("https://a.example/")),
            ("https://a.example/k{8}s", Some("https://a.example/k%7B8%7Ds")),
            ("a.example/k8s", None),
            ("//a.example", None),
            ("https://", None),
            ("https:///k8s", None),
            ("https:/a.example", None),
            ("ftp://a.example", None),
            ("https://a.example:99999", None),
            ("https://a.example:x", None),
            ("https://[::1", None),
            ("https://[zz]:1", None),
            ("https://a b", None),
            (" https://a.example", None),
            ("https://a.example\n", None),
            ("", None),
        ] {
            let read = server(text).ok();
            assert_eq!(read.as_ref().map(|read| read.url.to_string()).as_deref(), url, "{text:?}");
        }
        let read = server("https://u:p%40@a.example").ok().and_then(|server| server.user);
        assert_eq!(read, Some(("u".to_owned(), "p@".to_owned())));
    }

    #[test]
    fn a_proxy_has_one_of_three_schemes() {
        for (text, is_proxy) in [
            ("http://p.example:3128", true),
            ("https://u:p@p.example", true),
            ("socks5://p.example:1080", true),
            ("socks5h://p.example:1080", false),
            ("p.example:3128", false),
            ("ftp://p.example", false),
            ("http://", false),
        ] {
            assert_eq!(proxy(text).is_ok(), is_proxy, "{text}");
        }
    }
}
