//! Objects that the API server cannot read from etcd.
//!
//! A key of the encryption at rest may be lost, or the stored bytes damaged. One such object makes every list of its type fail, and
//! the API server's watch cache for the type cannot begin. The API server names the keys in etcd: in the causes of a
//! `StorageReadError` where unsafe deletion is enabled (KEP-3926), and in the text of a 500 or 429 otherwise.

use std::time::Duration;

use super::bounded;

/// Reasons of a `Status` that say it: of a request, and of an event of a watch.
const REASONS: [&str; 2] = ["StorageReadError", "StoreReadError"];
/// Texts that say it, behind which the key stands where one does.
const TEXTS: [(&str, char); 3] = [
    ("unable to transform key \"", '"'),
    ("corrupt object, Code: 7, Key: ", ','),
    ("failed to read one or more ", '\0'),
];

/// The API server's answer that it cannot read objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// Keys in etcd, such as `/registry/configmaps/default/a`; none where the API server does not name them.
    keys: Vec<String>,
    /// Time after which the API server wants to be asked again.
    pub after: Option<Duration>,
}

impl Unreadable {
    /// Reads a `Status`: its reason, its message, and the fields of its causes.
    pub(super) fn of(reason: &str, message: &str, fields: &[String], after: Option<Duration>) -> Option<Self> {
        let mut found = REASONS.contains(&reason);
        let mut keys = Vec::new();
        if found {
            keys.extend(fields.iter().filter(|field| field.starts_with('/')).cloned());
        }
        for (text, end) in TEXTS {
            let Some((_, rest)) = message.split_once(text) else { continue };
            found = true;
            if keys.is_empty()
                && let Some((key, _)) = rest.split_once(end)
            {
                keys.push(key.to_owned());
            }
        }
        keys.sort_unstable();
        found.then_some(Self { keys, after })
    }

    /// Returns the namespace and the name of the first object, where the API server names it.
    #[must_use]
    pub fn first(&self, namespaced: bool) -> Option<(String, String)> {
        let mut parts = self.keys.first()?.rsplit('/');
        let name = parts.next().filter(|name| !name.is_empty())?;
        let namespace = if namespaced { parts.next().filter(|namespace| !namespace.is_empty())? } else { "" };
        Some((namespace.to_owned(), name.to_owned()))
    }
}

impl std::fmt::Display for Unreadable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.keys.as_slice() {
            [] => write!(f, "the API server cannot read an object of this resource (a GAP names it) from etcd")?,
            [key] => write!(f, "the API server cannot read {} from etcd", bounded(key))?,
            [key, more @ ..] => {
                write!(f, "the API server cannot read {} and {} more objects from etcd", bounded(key), more.len())?;
            }
        }
        f.write_str("; give it back its encryption key, or delete the object")
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Failure, answer, error_event};
    use http::{HeaderMap, StatusCode};
    use serde_json::json;

    /// The answers of API servers 1.33 and 1.36, as they were measured, with the object that each names.
    #[test]
    fn an_object_that_cannot_be_read_is_named_where_the_api_server_names_it() {
        let transform = "unable to transform key \"/registry/configmaps/shop/b\": no matching prefix found";
        let rows = [
            (
                500,
                json!({"reason": "StorageReadError", "message": "failed to read one or more configmaps from the storage",
                    "details": {"name": "list", "kind": "configmaps", "causes": [{"reason": "UnexpectedServerResponse",
                    "message": "StorageError: corrupt object", "field": "/registry/configmaps/shop/b"}]}}),
                Some("b"),
            ),
            (
                500,
                json!({"reason": "InternalError", "message": "Internal error occurred: StorageError: corrupt object, Code: 7, \
                    Key: /configmaps/shop/b, ResourceVersion: 0, AdditionalErrorMsg: data from the storage is not transformable"}),
                Some("b"),
            ),
            (
                500,
                json!({"reason": "InternalError", "message": format!("Internal error occurred: {transform}")}),
                Some("b"),
            ),
            (
                429,
                json!({"reason": "TooManyRequests", "details": {"retryAfterSeconds": 7},
                    "message": format!("storage is (re)initializing: failed to list *core.ConfigMap: {transform}")}),
                Some("b"),
            ),
            (
                429,
                json!({"reason": "TooManyRequests", "message": "storage is (re)initializing: failed to list *core.ConfigMap: \
                    failed to read one or more configmaps from the storage"}),
                None,
            ),
        ];
        for (code, mut status, name) in rows {
            status["kind"] = "Status".into();
            status["code"] = code.into();
            let bytes = status.to_string();
            let read = answer(StatusCode::from_u16(code).unwrap(), &HeaderMap::new(), bytes.as_bytes());
            for failure in [read, error_event(bytes.as_bytes())] {
                let Failure::Unreadable(unreadable) = failure else { panic!("{status}: {failure:?}") };
                assert_eq!(unreadable.first(true), name.map(|name| ("shop".to_owned(), name.to_owned())), "{status}");
                assert_eq!(unreadable.first(false).map(|(_, name)| name).as_deref(), name, "{status}");
            }
        }
    }

    #[test]
    fn other_failures_of_the_api_server_are_not_about_objects() {
        for message in ["storage is (re)initializing", "no matching prefix found", "etcdserver: request timed out"] {
            let status = json!({"kind": "Status", "code": 500, "reason": "InternalError", "message": message});
            let failure = error_event(status.to_string().as_bytes());
            assert!(matches!(failure, Failure::Server(_)), "{message}: {failure:?}");
        }
    }
}
