//! Meaning of answers. This module alone knows HTTP codes and the reasons of a Kubernetes `Status`.

mod unreadable;

use std::time::Duration;

pub use unreadable::Unreadable;

use crate::core::net::proxy::Proxy;
use crate::core::net::tls::{Place, sentence};
use crate::core::os;
use crate::core::terminal::is_obeyed;
use http::{HeaderMap, StatusCode, header};
use kube::client::AuthError;
use serde_json::Value;

/// Kinds of failures that are handled differently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The version, or the page token, is too old.
    Expired,
    /// The version is newer than anything that the API server has.
    Ahead,
    /// Not now; perhaps after this long.
    Busy(Option<Duration>),
    /// The credentials are not accepted.
    Unauthorized,
    /// The credentials may not do this; the text says what to do.
    Forbidden(String),
    /// There is no such resource.
    NotFound,
    /// The request is not one that the API server takes.
    Refused(String),
    /// The API server failed in a way that has no known meaning.
    Server(String),
    /// The API server cannot read an object of the resource from etcd.
    Unreadable(Unreadable),
    /// TLS failed: certificates may have been replaced.
    Tls(String),
    /// No answer: no connection, or one that broke, also in the middle of an answer.
    Away(String),
    /// An answer stopped half way, or something else is in the way that may pass.
    Unreachable(String),
    /// An answer in an unexpected form.
    Undecodable(String),
    /// An answer larger than decklog takes.
    Oversize(String),
}

impl Failure {
    /// Every name that [`Failure::name`] gives.
    pub const NAMES: [&'static str; 13] = [
        "expired",
        "ahead",
        "busy",
        "unauthorized",
        "forbidden",
        "not_found",
        "refused",
        "server",
        "unreadable",
        "tls",
        "unreachable",
        "undecodable",
        "oversize",
    ];

    /// A short name for metrics.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Ahead => "ahead",
            Self::Busy(_) => "busy",
            Self::Unauthorized => "unauthorized",
            Self::Forbidden(_) => "forbidden",
            Self::NotFound => "not_found",
            Self::Refused(_) => "refused",
            Self::Server(_) => "server",
            Self::Unreadable(_) => "unreadable",
            Self::Tls(_) => "tls",
            Self::Away(_) | Self::Unreachable(_) => "unreachable",
            Self::Undecodable(_) => "undecodable",
            Self::Oversize(_) => "oversize",
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Expired => f.write_str("the API server no longer has this version"),
            Self::Ahead => f.write_str("the API server does not have this version yet"),
            Self::Busy(_) => f.write_str("the API server is busy"),
            Self::Unauthorized => f.write_str(UNAUTHORIZED),
            Self::NotFound => f.write_str("the API server does not serve this"),
            Self::Unreadable(unreadable) => unreadable.fmt(f),
            Self::Forbidden(text)
            | Self::Refused(text)
            | Self::Server(text)
            | Self::Tls(text)
            | Self::Away(text)
            | Self::Unreachable(text)
            | Self::Undecodable(text)
            | Self::Oversize(text) => f.write_str(text),
        }
    }
}

/// A `metav1.Status`, as far as anything depends on it. Proxies answer in the name of the API server: a field that is
/// missing, null or of another type says nothing, and takes nothing from what the others say.
#[derive(Debug, Default)]
struct Status {
    message: String,
    reason: String,
    code: u16,
    causes: Vec<String>,
    fields: Vec<String>,
    retry_after: u64,
}

impl Status {
    fn of(value: &Value) -> Self {
        let text = |field: &Value| field.as_str().unwrap_or_default().to_owned();
        let details = &value["details"];
        let causes = details["causes"].as_array().map(Vec::as_slice).unwrap_or_default();
        Self {
            message: text(&value["message"]),
            reason: text(&value["reason"]),
            code: value["code"].as_u64().and_then(|code| u16::try_from(code).ok()).unwrap_or_default(),
            causes: causes.iter().map(|cause| text(&cause["reason"])).collect(),
            fields: causes.iter().map(|cause| text(&cause["field"])).collect(),
            retry_after: details["retryAfterSeconds"].as_u64().unwrap_or_default(),
        }
    }
}

/// Sentence for rejected credentials. An expired client certificate gets the same sentence, because API servers check it only
/// after TLS.
pub(crate) const UNAUTHORIZED: &str =
    "the API server does not accept the credentials (401); renew the token or the client certificate in the kubeconfig";

/// Terms for sentences about an authority of the kubeconfig.
pub(super) const KUBECONFIG: Place = Place {
    peer: "the API server",
    authority: "the authority in the kubeconfig",
    trust: "renew certificate-authority",
    name: "set tls-server-name in the kubeconfig, or use an address that it names",
    own: "the client certificate in the kubeconfig",
    give: "name one in the kubeconfig, as client-certificate and client-key",
};

/// Error of an attempt to connect.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct ConnectError(pub(super) Failure);

/// An API server may ask us to wait, but not for longer than this.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(300);

/// Longest quotation of the API server's text.
const TEXT: usize = 300;

/// Reports whether an answer, whatever its contents, comes from a server that is ready.
#[must_use]
pub fn is_answer(code: StatusCode) -> bool {
    // A proxy that asks for credentials is not the one that was asked.
    let is_of_another = [StatusCode::TOO_MANY_REQUESTS, StatusCode::PROXY_AUTHENTICATION_REQUIRED].contains(&code);
    !is_of_another && !code.is_server_error()
}

/// Returns the meaning of an answer other than 2xx.
#[must_use]
pub fn answer(code: StatusCode, headers: &HeaderMap, body: &[u8]) -> Failure {
    let status = serde_json::from_slice::<Value>(body).ok().filter(|status| status["kind"] == "Status");
    let after = headers
        .get(header::RETRY_AFTER)
        .and_then(|value| value.to_str().ok())
        .and_then(|text| text.trim().parse().ok())
        .map(Duration::from_secs);
    let status = status.as_ref().map(Status::of).unwrap_or_default();
    meaning(code.as_u16(), &status, after)
}

/// Returns the meaning of the object in an ERROR line.
#[must_use]
pub fn error_event(object: &[u8]) -> Failure {
    match serde_json::from_slice::<Value>(object) {
        Ok(value) if value.is_object() => {
            let status = Status::of(&value);
            meaning(status.code, &status, None)
        }
        Ok(_) | Err(_) => Failure::Undecodable("an ERROR of the API server cannot be read".to_owned()),
    }
}

fn meaning(code: u16, status: &Status, after: Option<Duration>) -> Failure {
    let said = (status.retry_after > 0).then(|| Duration::from_secs(status.retry_after));
    let after = after.max(said).map(|after| after.min(RETRY_AFTER_MAX));
    let text = text_of(code, status);
    let ahead = status.causes.iter().any(|reason| reason == "ResourceVersionTooLarge");
    match (code, status.reason.as_str()) {
        (410, _) | (_, "Expired" | "Gone") => Failure::Expired,
        _ if ahead => Failure::Ahead,
        (401, _) | (_, "Unauthorized") => Failure::Unauthorized,
        (403, _) | (_, "Forbidden") => Failure::Forbidden(text),
        (404, _) | (_, "NotFound") => Failure::NotFound,
        _ if let Some(unreadable) = Unreadable::of(&status.reason, &status.message, &status.fields, after) => {
            Failure::Unreadable(unreadable)
        }
        // A gateway in between, or an API server that has not got to the request.
        (429 | 502 | 503 | 504, _) | (_, "TooManyRequests" | "ServiceUnavailable" | "Timeout" | "ServerTimeout") => {
            Failure::Busy(after)
        }
        (500.., _) => Failure::Server(text),
        (400..=499, _) => Failure::Refused(text),
        _ => Failure::Server(text),
    }
}

fn text_of(code: u16, status: &Status) -> String {
    let mut text = format!("the API server answered {code}");
    if !status.message.is_empty() {
        text.push_str(": ");
        text.push_str(&bounded(&status.message));
    }
    text
}

/// A text of somebody else as it may stand in one of ours.
#[must_use]
pub fn bounded(text: &str) -> String {
    text.chars().filter(|c| !is_obeyed(*c)).take(TEXT).collect()
}

/// Returns the reason why there are no credentials. kube's own texts quote the input and the output of a plugin.
#[expect(clippy::wildcard_enum_match_arm, reason = "another crate's list of errors: those that a person can act on")]
#[must_use]
pub fn auth_text(error: &AuthError, plugin: Option<&str>) -> String {
    let plugin = plugin.map(|name| format!("the credential plugin {}", bounded(name)));
    let plugin = plugin.as_deref().unwrap_or("the credential plugin");
    match error {
        AuthError::AuthExecStart(error) => format!("{plugin} cannot be run: {error}"),
        AuthError::AuthExecRun { out, .. } => {
            format!("{plugin} failed ({}); kubectl with the same kubeconfig shows what it says", out.status)
        }
        AuthError::ReadTokenFile(error, path) => {
            format!("the token file {} cannot be read: {error}", bounded(&path.display().to_string()))
        }
        AuthError::MissingCommand => "the credential plugin has no command".to_owned(),
        AuthError::ExecPluginFailed | AuthError::AuthExecParse(_) | AuthError::MalformedTokenExpirationDate(_) => {
            format!("{plugin} printed no credentials")
        }
        _ => "the credentials in the kubeconfig cannot be used".to_owned(),
    }
}

/// Returns the meaning of a missing answer.
#[must_use]
pub fn no_answer(error: &(dyn std::error::Error + 'static)) -> Failure {
    let mut innermost = error;
    let mut tls = None;
    let mut refused = false;
    let mut descriptors = false;
    let mut next = Some(error);
    while let Some(current) = next {
        if let Some(error) = current.downcast_ref::<AuthError>() {
            return Failure::Unreachable(auth_text(error, None));
        }
        if let Some(ConnectError(failure)) = current.downcast_ref() {
            return failure.clone();
        }
        if let Some(error) = current.downcast_ref::<rustls::Error>() {
            tls = Some(error.clone());
        }
        if let Some(error) = current.downcast_ref::<std::io::Error>() {
            refused |= error.kind() == std::io::ErrorKind::ConnectionRefused;
            descriptors |= os::lacks_descriptors(error);
            // An io::Error hides what it wraps from `source`, and may wrap another one.
            if let Some(inner) = error.get_ref() {
                next = Some(inner);
                continue;
            }
        }
        innermost = current;
        next = current.source();
    }
    if let Some(error) = tls {
        return Failure::Tls(sentence(&error, &KUBECONFIG));
    }
    if descriptors {
        return Failure::Unreachable(
            "no file descriptor is left for a connection to the API server; raise LimitNOFILE of the service"
                .to_owned(),
        );
    }
    if refused {
        return Failure::Away(
            "the API server refuses connections; check that it runs and that the address is right".to_owned(),
        );
    }
    Failure::Away(format!("cannot reach the API server: {}", bounded(&innermost.to_string())))
}

/// Returns the meaning of a proxy's code other than 200. `to` is the destination of the tunnel.
pub(super) fn refused(proxy: &Proxy, code: u16, to: &str) -> String {
    let (proxy_shown, by) = (shown(proxy), proxy.named_by());
    match code {
        407 if proxy.credentials().is_some() => {
            format!("{proxy_shown} does not accept the user and the password in {by} (407); correct them there")
        }
        407 => {
            format!("{proxy_shown} asks for a user and a password (407); write http://USER:PASSWORD@HOST:PORT in {by}")
        }
        400..=499 => format!("{proxy_shown} refuses to connect to {to} ({code}); allow it there{}", or_without(proxy)),
        502..=504 => {
            format!(
                "{proxy_shown} cannot reach {to} ({code}); check that the address is right and can be reached from the proxy{}",
                or_without(proxy)
            )
        }
        _ => format!("{proxy_shown} answered {code} when it was to connect to {to}; look at what it logs about it"),
    }
}

/// Returns the name of a proxy in a sentence.
pub(super) fn shown(proxy: &Proxy) -> String {
    format!("the proxy {proxy}")
}

/// A variable has exceptions; a key of the kubeconfig has none.
pub(super) fn or_without(proxy: &Proxy) -> &'static str {
    if proxy.named_by().starts_with('$') { ", or name the API server's host in NO_PROXY to do without it" } else { "" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(code: u16, headers: &[(&str, &str)], body: &str) -> Failure {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(http::HeaderName::try_from(*name).unwrap(), value.parse().unwrap());
        }
        answer(StatusCode::from_u16(code).unwrap(), &map, body.as_bytes())
    }

    fn status(code: u16, reason: &str, details: &str) -> String {
        format!(
            r#"{{"kind":"Status","apiVersion":"v1","metadata":{{}},"status":"Failure","message":"m","reason":"{reason}","details":{{{details}}},"code":{code}}}"#
        )
    }

    #[test]
    fn answers_mean_what_the_reference_says() {
        let secs = |n| Some(Duration::from_secs(n));
        let too_large = r#""causes":[{"reason":"ResourceVersionTooLarge","message":"x"}],"retryAfterSeconds":1"#;
        for (code, headers, body, expected) in [
            (410, vec![], status(410, "Expired", ""), Failure::Expired),
            (410, vec![], status(410, "Gone", ""), Failure::Expired),
            (410, vec![], String::new(), Failure::Expired),
            (504, vec![], status(504, "Timeout", too_large), Failure::Ahead),
            (504, vec![], status(504, "Timeout", ""), Failure::Busy(None)),
            (
                429,
                vec![("retry-after", "5")],
                "Too many requests, please try again later.\n".into(),
                Failure::Busy(secs(5)),
            ),
            (429, vec![], status(429, "TooManyRequests", r#""retryAfterSeconds":3"#), Failure::Busy(secs(3))),
            (
                429,
                vec![("retry-after", "1")],
                status(429, "TooManyRequests", r#""retryAfterSeconds":3"#),
                Failure::Busy(secs(3)),
            ),
            (502, vec![], "<html>bad gateway</html>".into(), Failure::Busy(None)),
            (503, vec![("retry-after", "soon")], "<html>".into(), Failure::Busy(None)),
            (401, vec![], status(401, "Unauthorized", ""), Failure::Unauthorized),
            (403, vec![], status(403, "Forbidden", ""), Failure::Forbidden("the API server answered 403: m".into())),
            (404, vec![], "404 page not found\n".into(), Failure::NotFound),
            (
                405,
                vec![],
                status(405, "MethodNotAllowed", ""),
                Failure::Refused("the API server answered 405: m".into()),
            ),
            (422, vec![], status(422, "Invalid", ""), Failure::Refused("the API server answered 422: m".into())),
            (500, vec![], status(500, "InternalError", ""), Failure::Server("the API server answered 500: m".into())),
        ] {
            assert_eq!(of(code, &headers, &body), expected, "{code} {body}");
        }
    }

    #[test]
    fn a_server_cannot_silence_us_for_long() {
        for seconds in ["86400", "18446744073709551615"] {
            assert_eq!(of(429, &[("retry-after", seconds)], ""), Failure::Busy(Some(RETRY_AFTER_MAX)));
            let details = format!(r#""retryAfterSeconds":{seconds}"#);
            assert_eq!(of(429, &[], &status(429, "TooManyRequests", &details)), Failure::Busy(Some(RETRY_AFTER_MAX)));
        }
    }

    #[test]
    fn error_events_mean_what_their_status_says() {
        assert_eq!(error_event(status(410, "Expired", "").as_bytes()), Failure::Expired);
        assert_eq!(error_event(status(429, "TooManyRequests", "").as_bytes()), Failure::Busy(None));
        assert!(matches!(error_event(status(500, "StoreReadError", "").as_bytes()), Failure::Unreadable(_)));
        assert!(matches!(error_event(b"{}"), Failure::Server(_)));
        assert!(matches!(error_event(b"[]"), Failure::Server(_) | Failure::Undecodable(_)));
    }

    /// What one field says does not depend on whether the others are as they should be.
    #[test]
    fn a_field_that_is_null_or_of_another_type_is_as_good_as_missing() {
        for odd in ["null", "7", "-1", "1e99", r#""x""#, "[]", "[null]", "[7]", "{}", "true", r#"{"causes":null}"#] {
            let two = Failure::Busy(Some(Duration::from_secs(2)));
            let behind =
                r#""code":504,"details":{"causes":[null,{"reason":null},{"reason":"ResourceVersionTooLarge"}]}"#;
            let failed = Failure::Server("the API server answered 500".into());
            for (http, field, others, expected) in [
                (410, "details", r#""reason":"Expired","code":410"#, Failure::Expired),
                (410, "message", r#""reason":"Expired","code":410"#, Failure::Expired),
                (410, "metadata", r#""reason":"Expired","code":410"#, Failure::Expired),
                (410, "status", r#""reason":"Expired","code":410"#, Failure::Expired),
                (410, "else", r#""reason":"Expired","code":410"#, Failure::Expired),
                (410, "reason", r#""code":410"#, Failure::Expired),
                (400, "code", r#""reason":"Expired""#, Failure::Expired),
                (429, "details", r#""code":429"#, Failure::Busy(None)),
                (429, "reason", r#""code":429,"details":{"retryAfterSeconds":2}"#, two),
                (504, "metadata", behind, Failure::Ahead),
                (500, "details", r#""code":500"#, failed),
            ] {
                let body = format!(r#"{{"kind":"Status",{others},"{field}":{odd}}}"#);
                assert_eq!(error_event(body.as_bytes()), expected, "{body}");
                assert_eq!(of(http, &[], &body), expected, "{body}");
            }
            for nested in ["causes", "retryAfterSeconds", "kind"] {
                let body = status(429, "TooManyRequests", &format!(r#""{nested}":{odd}"#));
                let waits = |failure: &Failure| matches!(failure, Failure::Busy(None | Some(_)));
                assert!(waits(&error_event(body.as_bytes())) && waits(&of(429, &[], &body)), "{body}");
            }
        }
        let null = r#"{"kind":"Status","message":null,"reason":null,"code":500,"details":null}"#;
        assert!(matches!(error_event(null.as_bytes()), Failure::Server(_)));
        assert!(matches!(error_event(b"null"), Failure::Undecodable(_)));
    }

    #[test]
    fn a_text_of_the_server_is_cut_short_and_has_no_control_characters() {
        let body = format!(r#"{{"kind":"Status","message":"a\u001b[31m{}","code":500}}"#, "x".repeat(5000));
        let Failure::Server(text) = of(500, &[], &body) else { panic!() };
        assert!(text.len() < 400 && !text.contains('\u{1b}'), "{text}");
    }

    #[test]
    fn a_failing_plugin_is_reported_without_its_words() {
        use std::os::unix::process::ExitStatusExt;
        let status = std::process::ExitStatus::from_raw(3 << 8);
        let out = std::process::Output { status, stdout: b"hunter2".to_vec(), stderr: b"hunter2".to_vec() };
        let inner = AuthError::AuthExecRun { cmd: "PASSWORD=hunter2 aws".to_owned(), out: Box::new(out) };
        for error in [kube::Error::Service(Box::new(inner)), kube::Error::Auth(AuthError::AuthExec("hunter2".into()))] {
            let Failure::Unreachable(text) = no_answer(&error) else { panic!() };
            assert!(text.contains("credential") && !text.contains("hunter2"), "{text}");
        }
        let Failure::Away(text) = no_answer(&std::io::Error::other("x".repeat(5000))) else { panic!() };
        assert!(text.len() < 400);
    }

    #[test]
    fn a_refused_connection_says_what_to_check() {
        let error = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        assert!(matches!(no_answer(&error), Failure::Away(text) if text.contains("refuses connections")));
    }
}
