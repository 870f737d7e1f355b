//! The way through a proxy: CONNECT of HTTP, and SOCKS 5. What goes wrong is said as what the proxy did, and names the
//! setting that named the proxy; never a password.

use std::io;
use std::net::IpAddr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::failure::{or_without, refused, shown};
use crate::core::net::USER_AGENT;
use crate::core::net::proxy::Proxy;

/// The longest head of an answer to CONNECT, in bytes.
const HEAD: usize = 16 << 10;

/// Returns the header by which a proxy knows who asks; nothing where its address names nobody.
pub(super) fn authorization(proxy: &Proxy) -> Option<HeaderValue> {
    let (user, password) = proxy.credentials()?;
    let mut value = HeaderValue::try_from(format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Asks a proxy for a tunnel by CONNECT. What comes after its answer is of the other end.
///
/// # Errors
/// One sentence.
pub(super) async fn connect<S>(stream: &mut S, proxy: &Proxy, host: &str, port: u16) -> Result<(), String>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut request = format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\nUser-Agent: {USER_AGENT}\r\n");
    if let Some(value) = authorization(proxy) {
        let value = value.to_str().expect("base64 is ASCII");
        request.push_str(&format!("Proxy-Authorization: {value}\r\n"));
    }
    request.push_str("\r\n");
    stream.write_all(request.as_bytes()).await.map_err(|error| cut(proxy, &error))?;
    let head = head(stream, proxy).await?;
    let code = head
        .strip_prefix("HTTP/1.")
        .and_then(|rest| rest.split([' ', '\r', '\n']).nth(1))
        .and_then(|code| code.parse().ok());
    match code {
        Some(200) => Ok(()),
        Some(code) => Err(refused(proxy, code, &format!("{host}:{port}"))),
        None => Err(format!("{} does not answer as an HTTP proxy does; {}", shown(proxy), correct(proxy))),
    }
}

/// Reads up to the empty line, and not beyond it.
async fn head<S: AsyncRead + Unpin>(stream: &mut S, proxy: &Proxy) -> Result<String, String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") && !head.ends_with(b"\n\n") {
        head.push(stream.read_u8().await.map_err(|error| cut(proxy, &error))?);
        let is_http = head.iter().zip(b"HTTP/1.").all(|(is, should)| is == should);
        if !is_http || head.len() > HEAD {
            return Err(format!("{} does not answer as an HTTP proxy does; {}", shown(proxy), correct(proxy)));
        }
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

/// Shows a SOCKS 5 proxy a user and a password (RFC 1929).
async fn log_in<S>(stream: &mut S, proxy: &Proxy, user: &str, password: &str) -> Result<(), String>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let failed = |error: io::Error| cut(proxy, &error);
    let long = || {
        format!(
            "the user or the password of {} is longer than 255 bytes; shorten it in {}",
            shown(proxy),
            proxy.named_by()
        )
    };
    let lengths = (u8::try_from(user.len()), u8::try_from(password.len()));
    let (Ok(user_length), Ok(password_length)) = lengths else { return Err(long()) };
    let mut login = vec![1, user_length];
    login.extend_from_slice(user.as_bytes());
    login.push(password_length);
    login.extend_from_slice(password.as_bytes());
    stream.write_all(&login).await.map_err(failed)?;
    let mut verdict = [0; 2];
    stream.read_exact(&mut verdict).await.map_err(failed)?;
    if verdict[1] != 0 {
        return Err(format!(
            "{} does not accept the user and the password in {}; correct them there",
            shown(proxy),
            proxy.named_by()
        ));
    }
    Ok(())
}

/// Asks a SOCKS 5 proxy (RFC 1928, RFC 1929) for a connection. The proxy resolves names.
///
/// # Errors
/// One sentence.
pub(super) async fn socks<S>(stream: &mut S, proxy: &Proxy, host: &str, port: u16) -> Result<(), String>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let odd = || format!("{} does not answer as a SOCKS 5 proxy does; {}", shown(proxy), correct(proxy));
    let failed = |error: io::Error| cut(proxy, &error);
    let credentials = proxy.credentials();
    let methods: &[u8] = if credentials.is_some() { &[5, 2, 0, 2] } else { &[5, 1, 0] };
    stream.write_all(methods).await.map_err(failed)?;
    let mut chosen = [0; 2];
    stream.read_exact(&mut chosen).await.map_err(failed)?;
    match (chosen, credentials) {
        ([5, 0], _) => {}
        ([5, 2], Some((user, password))) => log_in(stream, proxy, &user, &password).await?,
        ([5, 0xff], credentials) => {
            let what =
                if credentials.is_some() { "takes no user and password" } else { "asks for a user and a password" };
            return Err(format!(
                "{} {what}; write socks5://USER:PASSWORD@HOST:PORT in {}",
                shown(proxy),
                proxy.named_by()
            ));
        }
        _ => return Err(odd()),
    }
    let mut request = vec![5, 1, 0];
    match host.parse() {
        Ok(IpAddr::V4(address)) => request.extend([&[1][..], &address.octets()].concat()),
        Ok(IpAddr::V6(address)) => request.extend([&[4][..], &address.octets()].concat()),
        Err(_) => {
            let length =
                u8::try_from(host.len()).map_err(|_| "the API server's name is longer than 255 bytes".to_owned())?;
            request.extend([3, length]);
            request.extend(host.as_bytes());
        }
    }
    request.extend(port.to_be_bytes());
    stream.write_all(&request).await.map_err(failed)?;
    let mut reply = [0; 4];
    stream.read_exact(&mut reply).await.map_err(failed)?;
    let to = format!("{host}:{port}");
    match reply {
        [5, 0, ..] => {}
        [5, 2, ..] => {
            return Err(format!("{} refuses to connect to {to}; allow it there{}", shown(proxy), or_without(proxy)));
        }
        [5, ..] => {
            return Err(format!(
                "{} cannot reach {to} ({}); check that the address is right and can be reached from the proxy{}",
                shown(proxy),
                reason(reply[1]),
                or_without(proxy)
            ));
        }
        _ => return Err(odd()),
    }
    // The address that it is bound to there, which nobody needs.
    let rest = match reply[3] {
        1 => 4,
        4 => 16,
        3 => usize::from(stream.read_u8().await.map_err(failed)?),
        _ => return Err(odd()),
    };
    let mut bound = vec![0; rest + 2];
    stream.read_exact(&mut bound).await.map_err(failed)?;
    Ok(())
}

/// The replies of RFC 1928.
const fn reason(reply: u8) -> &'static str {
    match reply {
        1 => "general failure",
        3 => "network unreachable",
        4 => "host unreachable",
        5 => "connection refused",
        6 => "no answer in time",
        7 => "it makes no connections",
        8 => "it does not know this kind of address",
        _ => "without a known reason",
    }
}

/// Error for a proxy to which no connection could be made.
pub(super) fn unreachable(proxy: &Proxy, why: &str) -> String {
    format!("{} cannot be reached: {why}; check that it runs, or {}", shown(proxy), correct(proxy))
}

/// Error for a proxy that did not answer in time.
pub(super) fn silent(proxy: &Proxy) -> String {
    format!("{} does not answer; check that it runs, or {}", shown(proxy), correct(proxy))
}

fn cut(proxy: &Proxy, error: &io::Error) -> String {
    if error.kind() == io::ErrorKind::UnexpectedEof {
        return format!("{} closed the connection without an answer; {}", shown(proxy), correct(proxy));
    }
    format!("the connection to {} broke ({}); check that it runs", shown(proxy), error.kind())
}

fn correct(proxy: &Proxy) -> String {
    format!("correct {}{}", proxy.named_by(), or_without(proxy))
}
