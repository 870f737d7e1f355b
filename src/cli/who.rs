//! Who wrote a value, as managedFields has it: a hint, not proof.

use serde_json::{Map, Value};

use super::output::printable;
use super::tree::{Node, Step};
use crate::k8s::managed_fields::{Manager, Writer};

/// The managedFields of one version of an object.
#[derive(Debug, Default)]
pub(super) struct Writers(Vec<Writer>);

impl Writers {
    /// Of the JSON of an object; nobody where it does not say.
    pub(super) fn of(object: &str) -> Self {
        Self(Writer::all(object.as_bytes()))
    }

    /// All of them.
    pub(super) fn all(&self) -> Vec<Manager> {
        self.0.iter().map(|writer| writer.manager.clone()).collect()
    }

    /// Those who own a value.
    pub(super) fn owners(&self, path: &[Step<'_, '_>]) -> Vec<Manager> {
        let leads = |step: &Step<'_, '_>, _: &Map<String, Value>, key: &str| match step {
            Step::Key(name) => key.strip_prefix("f:") == Some(name),
            Step::Element(_, _, node) => names(key, node),
        };
        self.0.iter().filter(|writer| writer.owns(path, leads)).map(|writer| writer.manager.clone()).collect()
    }
}

/// Whether a key of FieldsV1 names this element: `k:{"name":"web"}` by its members, `v:"x"` by its value.
fn names(key: &str, node: &Node<'_>) -> bool {
    let value = |node: &Node<'_>| serde_json::from_str::<Value>(&node.json()).ok();
    if let Some(members) = key.strip_prefix("k:") {
        let Ok(Value::Object(members)) = serde_json::from_str(members) else { return false };
        return members.iter().all(|(name, expected)| node.member(name).and_then(value).as_ref() == Some(expected));
    }
    key.strip_prefix("v:").is_some_and(|text| serde_json::from_str(text).ok() == value(node))
}

/// `kubectl Apply, kubelet Update status`; without `fully` only the names.
pub(super) fn spell(managers: &[Manager], fully: bool) -> String {
    let one = |manager: &Manager| {
        let mut text = manager.manager.clone();
        if fully {
            let parts = [Some(&manager.operation), manager.subresource.as_ref()];
            for part in parts.into_iter().flatten().filter(|part| !part.is_empty()) {
                text.push(' ');
                text.push_str(part);
            }
        }
        text
    };
    let mut names: Vec<String> = managers.iter().map(one).collect();
    names.dedup();
    printable(&names.join(", ")).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OBJECT: &str = r#"{"metadata":{"name":"web","managedFields":[
        {"manager":"kubectl","operation":"Apply","time":"2026-11-21T10:00:00Z","fieldsV1":{"f:spec":{"f:replicas":{},"f:containers":{"k:{\"name\":\"a\"}":{".":{},"f:image":{},"f:args":{}}},"f:finalizers":{"v:\"x\"":{}}}}},
        {"manager":"kubelet","operation":"Update","subresource":"status","fieldsV1":{"f:status":{}}},
        {"manager":"old","operation":"Update","subresource":""}]},
        "spec":{"replicas":1,"containers":[{"name":"a","image":"i","args":["one"],"tty":true},{"name":"b","image":"j"}],"finalizers":["x","y"]},
        "status":{"n":{"m":1}}}"#;

    #[test]
    fn a_value_is_owned_by_whoever_lists_it_or_what_holds_it() {
        let (writers, tree) = (Writers::of(OBJECT), Node::parse(OBJECT.as_bytes()).unwrap());
        let owners: Vec<(String, String)> = tree
            .leaves()
            .iter()
            .filter(|leaf| !matches!(leaf.path[0], Step::Key("metadata")))
            .map(|leaf| (leaf.node.json(), spell(&writers.owners(&leaf.path), true)))
            .collect();
        let owners: Vec<_> = owners.iter().map(|(value, owner)| (value.as_str(), owner.as_str())).collect();
        assert_eq!(
            owners,
            [
                ("1", "kubectl Apply"),
                ("\"a\"", ""),
                ("\"i\"", "kubectl Apply"),
                ("\"one\"", "kubectl Apply"),
                ("true", ""),
                ("\"b\"", ""),
                ("\"j\"", ""),
                ("\"x\"", "kubectl Apply"),
                ("\"y\"", ""),
                ("1", "kubelet Update status"),
            ]
        );
        assert_eq!(spell(&writers.all(), false), "kubectl, kubelet, old");
        assert!(Writers::of("[]").all().is_empty());
    }
}
