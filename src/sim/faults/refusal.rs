//! Answers of a script, and refusals as the API server words them.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::core::model::Resource;

/// A whole answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// `Content-Type`.
    pub content_type: &'static str,
    /// `Retry-After`, in seconds.
    pub retry_after: Option<u32>,
    /// The body.
    pub body: Bytes,
}

/// A refusal as the API server words it: a `Status` object.
#[derive(Clone, Debug, Default, PartialEq, Eq, thiserror::Error)]
#[error("{code} {reason}: {message}")]
pub struct Refusal {
    /// HTTP status code.
    pub code: u16,
    /// CamelCase reason, such as `Expired`; empty for what the API server passes on from others.
    pub reason: &'static str,
    /// For people.
    pub message: String,
    /// `details.causes[0]`: its reason and message.
    pub cause: Option<(&'static str, &'static str)>,
    /// `details.retryAfterSeconds`, and `Retry-After`.
    pub retry_after: Option<u32>,
    /// `metadata.continue`: the inconsistent token that comes with an expired one.
    pub token: Option<String>,
    /// `details.name`, `details.group` and `details.kind`: the object that was meant.
    pub about: Option<Box<[String; 3]>>,
}

impl Refusal {
    /// A refusal with any code and reason.
    #[must_use]
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), ..Self::default() }
    }

    /// 400.
    #[must_use]
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// 401: the token is not taken (any more).
    #[must_use]
    pub fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    /// 403, in the words of RBAC.
    #[must_use]
    pub fn forbidden(verb: &str, resource: &Resource, namespace: Option<&str>, name: &str) -> Self {
        let about = if name.is_empty() { String::new() } else { format!(" {name:?}") };
        let scope =
            namespace.map_or_else(|| "at the cluster scope".to_owned(), |ns| format!("in the namespace {ns:?}"));
        let message = format!(
            "{}{about} is forbidden: User \"{USER}\" cannot {verb} resource {:?} in API group {:?} {scope}",
            resource.full_name(),
            resource.plural,
            resource.group
        );
        Self::new(403, "Forbidden", message).about(resource, name)
    }

    /// 404 for an object.
    #[must_use]
    pub fn not_found(resource: &Resource, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{} {name:?} not found", resource.full_name())).about(resource, name)
    }

    /// 404 for a resource that is not served.
    #[must_use]
    pub fn not_served() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource")
    }

    /// 405: the resource is served, but not with this verb.
    #[must_use]
    pub fn not_allowed() -> Self {
        Self::new(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
    }

    /// 409: the name is taken.
    #[must_use]
    pub fn already_exists(resource: &Resource, name: &str) -> Self {
        Self::new(409, "AlreadyExists", format!("{} {name:?} already exists", resource.full_name()))
            .about(resource, name)
    }

    /// 409: somebody else was faster.
    #[must_use]
    pub fn conflict(resource: &Resource, name: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} {name:?}: the object has been modified; please apply your changes to \
             the latest version and try again",
            resource.full_name()
        );
        Self::new(409, "Conflict", message).about(resource, name)
    }

    /// 410: the history before `oldest` is gone.
    #[must_use]
    pub fn expired(asked: u64, oldest: u64) -> Self {
        Self::new(410, "Expired", format!("too old resource version: {asked} ({oldest})"))
    }

    /// 504: the version asked for is in the future.
    #[must_use]
    pub fn too_large(asked: u64, current: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
        let cause = Some(("ResourceVersionTooLarge", "Too large resource version"));
        Self { cause, ..Self::new(504, "Timeout", message).retry_after(1) }
    }

    /// 500: the version asked for is in the future, in the words of etcd.
    #[must_use]
    pub fn future_revision() -> Self {
        Self::new(500, "", "etcdserver: mvcc: required revision is a future revision")
    }

    /// 422: the options of a list or watch contradict each other.
    #[must_use]
    pub fn invalid_options(problem: &str) -> Self {
        Self::new(422, "Invalid", format!("ListOptions.meta.k8s.io \"\" is invalid: {problem}"))
    }

    /// 429 as a Status: the watch cache is not ready.
    #[must_use]
    pub fn not_ready(retry_after: u32) -> Self {
        Self::new(429, "TooManyRequests", "storage is (re)initializing").retry_after(retry_after)
    }

    /// 500, as the API server puts trouble of its own.
    #[must_use]
    pub fn internal(message: &str) -> Self {
        Self::new(500, "InternalError", format!("Internal error occurred: {message}"))
    }

    /// With `Retry-After`.
    #[must_use]
    pub fn retry_after(mut self, seconds: u32) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    fn about(mut self, resource: &Resource, name: &str) -> Self {
        self.about = Some(Box::new([name.to_owned(), resource.group.clone(), resource.plural.clone()]));
        self
    }

    /// The `Status` object, compact.
    #[must_use]
    pub fn status(&self) -> String {
        let quoted = |text: &str| Value::from(text).to_string();
        let metadata = self.token.as_ref().map_or_else(|| json!({}), |token| json!({ "continue": token }));
        let mut details = Map::new();
        if let Some([name, group, kind]) = self.about.as_deref() {
            for (key, value) in [("name", name), ("group", group), ("kind", kind)] {
                if !value.is_empty() {
                    details.insert(key.to_owned(), value.as_str().into());
                }
            }
        }
        if let Some((reason, message)) = &self.cause {
            details.insert("causes".to_owned(), json!([{ "reason": reason, "message": message }]));
        }
        if let Some(seconds) = self.retry_after {
            details.insert("retryAfterSeconds".to_owned(), seconds.into());
        }
        let details =
            if details.is_empty() { String::new() } else { format!(r#","details":{}"#, Value::from(details)) };
        let reason =
            if self.reason.is_empty() { String::new() } else { format!(r#","reason":{}"#, quoted(self.reason)) };
        format!(
            r#"{{"kind":"Status","apiVersion":"v1","metadata":{metadata},"status":"Failure","message":{}{reason}{details},"code":{}}}"#,
            quoted(&self.message),
            self.code
        )
    }

    /// The ERROR event of a watch, with its line end.
    #[must_use]
    pub fn event_line(&self) -> Bytes {
        format!("{{\"type\":\"ERROR\",\"object\":{}}}\n", self.status()).into()
    }

    /// The answer to a request.
    #[must_use]
    pub fn answer(&self) -> Answer {
        let body = (self.status() + "\n").into();
        Answer { status: self.code, content_type: "application/json", retry_after: self.retry_after, body }
    }
}

/// Who everybody with a token of the simulated server is.
const USER: &str = "system:serviceaccount:decklog:decklog";
