//! Who wrote a value, as managedFields has it: a hint, not proof.

use std::borrow::Cow;

use super::output::printable;
use super::tree::Step;
use crate::k8s::managed_fields::{By, ManagedFields, Manager, names};

/// Those who own a value of an object.
pub(super) fn owners(books: &ManagedFields, path: &[Step<'_, '_>]) -> Vec<Manager> {
    books.owners(path, |step, key| match step {
        Step::Key(name) => key.strip_prefix("f:") == Some(name),
        Step::Element(_, _, node) => {
            names(key, |name| node.member(name).map(|value| Cow::Owned(value.json())), || Cow::Owned(node.json()))
        }
    })
}

/// `kubectl Apply, kubelet Update status`; without `fully` only the names. Who is known as the owner of what changed is
/// marked so, and of several owners any may have written.
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
    let owners = managers.iter().all(|manager| manager.by == Some(By::Owner));
    let text = match &names[..] {
        [] => String::new(),
        [_] if owners => format!("owner {}", names[0]),
        [_, _, ..] if owners => format!("one of the owners {}", names.join(", ")),
        _ => names.join(", "),
    };
    printable(&text).into_owned()
}

/// `kubectl-set, ~kubelet`: the names alone, with `~` before one that is known as the owner.
pub(super) fn short(managers: &[Manager]) -> String {
    let mark = |manager: &Manager| if manager.by == Some(By::Owner) { "~" } else { "" };
    let mut names: Vec<String> = managers.iter().map(|one| format!("{}{}", mark(one), one.manager)).collect();
    names.dedup();
    printable(&names.join(", ")).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::tree::Node;

    const OBJECT: &str = r#"{"metadata":{"name":"web","managedFields":[
        {"manager":"kubectl","operation":"Apply","time":"2026-11-21T10:00:00Z","fieldsV1":{"f:spec":{"f:replicas":{},"f:containers":{"k:{\"name\":\"a\"}":{".":{},"f:image":{},"f:args":{}}},"f:finalizers":{"v:\"x\"":{}}}}},
        {"manager":"kubelet","operation":"Update","subresource":"status","fieldsV1":{"f:status":{}}},
        {"manager":"old","operation":"Update","subresource":""}]},
        "spec":{"replicas":1,"containers":[{"name":"a","image":"i","args":["one"],"tty":true},{"name":"b","image":"j"}],"finalizers":["x","y"]},
        "status":{"n":{"m":1}}}"#;

    #[test]
    fn a_value_is_owned_by_whoever_lists_it_or_what_holds_it() {
        let (books, tree) = (ManagedFields::of(OBJECT.as_bytes()), Node::parse(OBJECT.as_bytes()).unwrap());
        let unmarked = |managers: Vec<Manager>| -> Vec<Manager> {
            managers.into_iter().map(|manager| Manager { by: None, ..manager }).collect()
        };
        let found: Vec<(String, String)> = tree
            .leaves()
            .iter()
            .filter(|leaf| !matches!(leaf.path[0], Step::Key("metadata")))
            .map(|leaf| (leaf.node.json(), spell(&unmarked(owners(&books, &leaf.path)), true)))
            .collect();
        let found: Vec<_> = found.iter().map(|(value, owner)| (value.as_str(), owner.as_str())).collect();
        assert_eq!(
            found,
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
        assert_eq!(spell(&books.all(), false), "kubectl, kubelet");
        assert!(ManagedFields::of(b"[]").all().is_empty());
    }
}
