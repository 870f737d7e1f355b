//! Label and field selectors, as the API server reads them.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::faults::Refusal;
use super::object::Row;

/// Which objects a request is about.
#[derive(Clone, Debug, Default)]
pub(super) struct Selector {
    labels: Vec<Requirement>,
    fields: Vec<(Field, bool, String)>,
}

#[derive(Clone, Debug)]
struct Requirement {
    key: String,
    /// `None` asks whether the label is there at all, whatever its value.
    values: Option<Vec<String>>,
    /// Whether the requirement is turned round: `!key`, `!=`, `notin`.
    negated: bool,
}

#[derive(Clone, Copy, Debug)]
enum Field {
    Name,
    Namespace,
    /// Inside the object, at this JSON pointer.
    At(&'static str),
}

/// The part of an object that label selectors look at.
#[derive(Debug, Default, Deserialize)]
struct Labelled {
    metadata: Labels,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Labels {
    labels: BTreeMap<String, String>,
}

impl Selector {
    /// Reads the two selectors of a request for `resource`, the plural; custom resources that live in no namespace have no
    /// field for it.
    pub(super) fn parse(resource: &str, has_namespace: bool, labels: &str, fields: &str) -> Result<Self, Refusal> {
        let fields = fields.split(',').map(str::trim).filter(|f| !f.is_empty());
        Ok(Self {
            labels: split_outside_parentheses(labels).map(Requirement::parse).collect::<Result<_, _>>()?,
            fields: fields.map(|text| field(resource, has_namespace, text)).collect::<Result<_, _>>()?,
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// The one name that objects have to have.
    pub(super) fn name(&self) -> Option<&str> {
        let named = self.fields.iter().find(|(field, equal, _)| matches!(field, Field::Name) && *equal);
        named.map(|(_, _, name)| name.as_str())
    }

    /// Whether the object is one of those meant. Its JSON is only read where a requirement needs it.
    pub(super) fn matches(&self, row: &Row) -> bool {
        self.fields.iter().all(|(field, equal, value)| {
            let found = match field {
                Field::Name => row.name.to_string(),
                Field::Namespace => row.namespace.to_string(),
                Field::At(pointer) => {
                    row.value().pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
                }
            };
            (found == *value) == *equal
        }) && (self.labels.is_empty() || {
            let labelled: Labelled = serde_json::from_slice(&row.bytes()).unwrap_or_default();
            self.labels.iter().all(|requirement| requirement.matches(&labelled.metadata.labels))
        })
    }
}

impl Requirement {
    fn parse(text: &str) -> Result<Self, Refusal> {
        let made = |key: &str, values: Option<Vec<String>>, negated| {
            let key = key.trim();
            let sane = !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_./".contains(&b));
            sane.then(|| Self { key: key.to_owned(), values, negated }).ok_or_else(|| {
                Refusal::bad_request(format!("unable to parse requirement: <nil>: Invalid value: {text:?}"))
            })
        };
        if let Some((head, set)) = text.split_once('(') {
            let set = set.trim_end().trim_end_matches(')').split(',').map(|v| v.trim().to_owned()).collect();
            return match head.trim().rsplit_once(char::is_whitespace) {
                Some((key, "in")) => made(key, Some(set), false),
                Some((key, "notin")) => made(key, Some(set), true),
                Some(_) | None => made("", None, false),
            };
        }
        let one = |value: &str| Some(vec![value.trim().to_owned()]);
        if let Some((key, value)) = text.split_once("!=") {
            made(key, one(value), true)
        } else if let Some((key, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
            made(key, one(value), false)
        } else if let Some(key) = text.strip_prefix('!') {
            made(key, None, true)
        } else {
            made(text, None, false)
        }
    }

    /// A negated requirement also holds for objects without the label, as in Kubernetes.
    fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let found = match (&self.values, labels.get(&self.key)) {
            (None, value) => value.is_some(),
            (Some(_), None) => false,
            (Some(values), Some(value)) => values.contains(value),
        };
        found != self.negated
    }
}

fn split_outside_parentheses(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_i32;
    text.split(move |c: char| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        c == ',' && depth == 0
    })
    .map(str::trim)
    .filter(|part| !part.is_empty())
}

fn field(resource: &str, has_namespace: bool, text: &str) -> Result<(Field, bool, String), Refusal> {
    let (key, equal, value) = if let Some((key, value)) = text.split_once("!=") {
        (key, false, value)
    } else if let Some((key, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        (key, true, value)
    } else {
        return Err(Refusal::bad_request(format!("invalid selector: {text:?}; can't understand {text:?}")));
    };
    let field = match (resource, key.trim()) {
        (_, "metadata.name") => Field::Name,
        (_, "metadata.namespace") if has_namespace => Field::Namespace,
        ("pods" | "namespaces", "status.phase") => Field::At("/status/phase"),
        ("pods", "spec.nodeName") => Field::At("/spec/nodeName"),
        ("secrets", "type") => Field::At("/type"),
        (_, other) => return Err(Refusal::bad_request(format!("field label not supported: {other}"))),
    };
    Ok((field, equal, value.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::sim::store::Store;

    #[test]
    fn selectors_match_as_kubernetes_does() {
        let mut store = Store::new(1);
        let pods = store.resource("pods").unwrap();
        let pod = json!({
            "metadata": {"name": "web-1", "namespace": "shop", "labels": {"app": "web", "tier": "front"}},
            "status": {"phase": "Running"},
        });
        let row = store.create(&pods, pod.into()).unwrap();
        let holds = |labels: &str, fields: &str| Selector::parse("pods", true, labels, fields).unwrap().matches(&row);
        for yes in [
            "",
            "app",
            "!gone",
            "app=web",
            "app==web",
            "app!=api",
            "gone!=x",
            "app in (api, web)",
            "app notin (api)",
            "gone notin (x)",
            "app in (web),tier=front,!gone",
        ] {
            assert!(holds(yes, ""), "{yes:?} holds");
        }
        for no in ["gone", "!app", "app=api", "app!=web", "app in (api)", "app notin (web,api)", "app,tier=back"] {
            assert!(!holds(no, ""), "{no:?} does not hold");
        }
        assert!(holds("", "metadata.name=web-1,metadata.namespace!=pay"));
        assert!(!holds("", "metadata.name==web-2"));
        assert!(holds("app", "status.phase=Running,spec.nodeName="));
        assert!(!holds("", "status.phase!=Running"));
        for wrong in ["=x", "a b", "app within (x)"] {
            assert!(Selector::parse("pods", true, wrong, "").is_err(), "{wrong:?} is no label selector");
        }
        assert!(Selector::parse("configmaps", true, "", "status.phase=Running").is_err());
        assert!(!holds("", "metadata.namespace!=pay,metadata.namespace!=shop"));
        assert!(Selector::parse("planets", false, "", "metadata.namespace!=pay").is_err());
    }
}
