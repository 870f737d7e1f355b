//! Owners of a value by managedFields: a hint, not proof.

use super::object::DOUBTFUL;
use super::row::{Ink, printable};
use super::tree::{Node, Step};
use crate::core::k8s::audited::{Actor, Sender};
use crate::core::k8s::managed_fields::{By, ManagedFields, Manager};
use crate::core::wire::Unnamed;

/// Returns the owners of a value of an object.
pub(crate) fn owners(books: &mut ManagedFields, path: &[Step<'_, '_>]) -> Vec<Manager> {
    books.owners(path, |set, step| match step {
        Step::Key(name) => set.member(name),
        Step::Element(_, _, node) => set.element(|name| node.member(name).map(Node::json), || node.json()),
    })
}

/// `kubectl Apply, kubelet Update status`; without `fully` only the names. Who is known as the owner of what changed is
/// marked so, and of several owners any may have written.
pub(crate) fn spell(managers: &[Manager], fully: bool) -> String {
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
pub(crate) fn short(managers: &[Manager]) -> String {
    let mark = |manager: &Manager| if manager.by == Some(By::Owner) { "~" } else { "" };
    let mut names: Vec<String> = managers.iter().map(|one| format!("{}{}", mark(one), one.manager)).collect();
    names.dedup();
    printable(&names.join(", ")).into_owned()
}

/// `alice (kubectl/v1.36.0, 10.0.0.7, audit: exact)`: the sender that the audit log has.
pub(crate) fn sender(actor: &Actor) -> String {
    let Sender { user, impersonated_by, agent, addresses } = &actor.sender;
    let by = if impersonated_by.is_empty() { String::new() } else { format!("impersonated by {impersonated_by}") };
    let agent = agent.split(' ').next().unwrap_or_default();
    let from = match &addresses[..] {
        [] => String::new(),
        // What stands before the last one is what the client says.
        [said, .., connected] if said != connected => format!("{said} through {connected}"),
        [address, ..] => address.clone(),
    };
    let parts = [&*by, agent, &*from];
    let mut text = format!("{user} (");
    for part in parts.into_iter().filter(|part| !part.is_empty()) {
        text.push_str(part);
        text.push_str(", ");
    }
    let why = if actor.certainty == DOUBTFUL { ", events of that time are missing" } else { "" };
    text.push_str(&format!("audit: {}{why})", actor.certainty));
    printable(&text).into_owned()
}

/// `by alice (audit: exact)`, `by alice, bob and 2 others (audit)`: the senders of several requests; nothing where there is none.
pub(crate) fn senders(actors: &[Actor]) -> String {
    const NAMED: usize = 2;
    let text = match actors {
        [] => return String::new(),
        [actor] => {
            let by = &actor.sender.impersonated_by;
            let by = if by.is_empty() { String::new() } else { format!("impersonated by {by}, ") };
            format!("by {} ({by}audit: {})", actor.sender.user, actor.certainty)
        }
        several => {
            let (named, others) = several.split_at(several.len().min(NAMED));
            let names = named.iter().map(|actor| &*actor.sender.user).collect::<Vec<_>>().join(", ");
            match others.len() {
                0 => format!("by {names} (audit)"),
                1 => format!("by {names} and another (audit)"),
                many => format!("by {names} and {many} others (audit)"),
            }
        }
    };
    printable(&text).into_owned()
}

/// All that the audit log has of a sender, by title.
pub(crate) fn facts_of(actor: &Actor) -> Vec<(&'static str, String)> {
    let Sender { user, impersonated_by, agent, addresses } = &actor.sender;
    let request = format!("{} {}", actor.verb, actor.subresource);
    vec![
        ("user", user.clone()),
        ("through", impersonated_by.clone()),
        ("agent", agent.clone()),
        ("from", addresses.join(", ")),
        ("request", request.trim_end().to_owned()),
        ("certainty", actor.certainty.clone()),
        ("audit ids", actor.audit_ids.join(", ")),
    ]
}

/// The writers of an entry on its line, or the reason why nobody is named: the same text at every width.
pub(crate) struct Line {
    /// Empty where nothing is known.
    pub(crate) text: String,
    pub(crate) ink: Ink,
}

impl Line {
    /// On a terminal the names alone, elsewhere in brackets and in full. A reason stands in brackets everywhere, so that it reads
    /// as no name.
    pub(crate) fn of(managers: &[Manager], unnamed: Option<Unnamed>, is_on_terminal: bool) -> Self {
        if managers.is_empty() {
            let text = unnamed.map_or_else(String::new, |why| format!("({})", why.words()));
            return Self { text, ink: Ink::Faint };
        }
        let text = if is_on_terminal { short(managers) } else { format!("({})", spell(managers, true)) };
        Self { text, ink: Ink::Who }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::json::tree::LOOKED;

    const OBJECT: &str = r#"{"metadata":{"name":"web","managedFields":[
        {"manager":"kubectl","operation":"Apply","time":"2026-11-21T10:00:00Z","fieldsV1":{"f:spec":{"f:replicas":{},"f:containers":{"k:{\"name\":\"a\"}":{".":{},"f:image":{},"f:args":{}}},"f:finalizers":{"v:\"x\"":{}}}}},
        {"manager":"kubelet","operation":"Update","subresource":"status","fieldsV1":{"f:status":{}}},
        {"manager":"old","operation":"Update","subresource":""}]},
        "spec":{"replicas":1,"containers":[{"name":"a","image":"i","args":["one"],"tty":true},{"name":"b","image":"j"}],"finalizers":["x","y"]},
        "status":{"n":{"m":1}}}"#;

    #[test]
    fn a_value_is_owned_by_whoever_lists_it_or_what_holds_it() {
        let (mut books, tree) = (ManagedFields::of(OBJECT.as_bytes()), Node::parse(OBJECT.as_bytes()).unwrap());
        let unmarked = |managers: Vec<Manager>| -> Vec<Manager> {
            managers.into_iter().map(|manager| Manager { by: None, ..manager }).collect()
        };
        let found: Vec<(String, String)> = tree
            .leaves()
            .iter()
            .filter(|leaf| !matches!(leaf.path[0], Step::Key("metadata")))
            .map(|leaf| (leaf.node.json(), spell(&unmarked(owners(&mut books, &leaf.path)), true)))
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

    /// A client writes what it likes before the address of its connection, which is therefore always there.
    #[test]
    fn a_sender_has_the_address_of_its_connection() {
        let actor = |addresses: &[&str], certainty: &str| Actor {
            sender: Sender {
                user: "alice".to_owned(),
                addresses: addresses.iter().map(|&text| text.to_owned()).collect(),
                ..Sender::default()
            },
            verb: "patch".to_owned(),
            subresource: String::new(),
            audit_ids: Vec::new(),
            certainty: certainty.to_owned(),
        };
        for (addresses, certainty, expected) in [
            (&[][..], "field", "alice (audit: field)"),
            (&["10.0.0.7"], "exact", "alice (10.0.0.7, audit: exact)"),
            (&["10.0.0.7", "10.0.0.7"], "exact", "alice (10.0.0.7, audit: exact)"),
            (&["1.2.3.4", "5.6.7.8", "10.0.0.7"], "field", "alice (1.2.3.4 through 10.0.0.7, audit: field)"),
            (&["10.0.0.7"], DOUBTFUL, "alice (10.0.0.7, audit: doubtful, events of that time are missing)"),
        ] {
            assert_eq!(sender(&actor(addresses, certainty)), expected);
        }
    }

    #[test]
    fn several_senders_are_named_in_a_line() {
        let actor = |(user, by): &(&str, &str)| Actor {
            sender: Sender { user: (*user).to_owned(), impersonated_by: (*by).to_owned(), ..Sender::default() },
            certainty: "field".to_owned(),
            verb: String::new(),
            subresource: String::new(),
            audit_ids: Vec::new(),
        };
        for (users, expected) in [
            (&[][..], ""),
            (&[("alice", "")], "by alice (audit: field)"),
            (&[("alice", "bob")], "by alice (impersonated by bob, audit: field)"),
            (&[("alice", ""), ("bob", "eve")], "by alice, bob (audit)"),
            (&[("alice", ""), ("bob", ""), ("c", "")], "by alice, bob and another (audit)"),
            (&[("a\u{1b}[31m", ""), ("b", ""), ("c", ""), ("d", "")], "by a\\u{1b}[31m, b and 2 others (audit)"),
        ] {
            assert_eq!(senders(&users.iter().map(actor).collect::<Vec<_>>()), expected);
        }
    }

    /// Every key of a set is read once, however many values are asked for.
    #[test]
    fn owners_of_every_value_of_a_large_object_are_found_in_one_reading() {
        const MANY: usize = 2_000;
        let json = |of: &dyn Fn(usize) -> String| (0..MANY).map(of).collect::<Vec<_>>().join(",");
        let object = format!(
            r#"{{"metadata":{{"managedFields":[{{"manager":"m","fieldsV1":{{"f:data":{{{}}},"f:ports":{{{}}},"f:names":{{{}}}}}}}]}},"data":{{{}}},"ports":[{}],"names":[{}]}}"#,
            json(&|n| format!(r#""f:k{n}":{{}}"#)),
            json(&|n| format!(r#""k:{{\"port\":{n},\"protocol\":\"TCP\"}}":{{".":{{}},"f:name":{{}}}}"#)),
            json(&|n| format!(r#""v:\"n{n}\"":{{}}"#)),
            json(&|n| format!(r#""k{n}":"x""#)),
            json(&|n| format!(r#"{{"name":"p","port":{n},"protocol":"TCP"}}"#)),
            json(&|n| format!(r#""n{n}""#)),
        );
        let (mut books, mut tree) = (ManagedFields::of(object.as_bytes()), Node::parse(object.as_bytes()).unwrap());
        tree.without(&[&["metadata"]]);
        LOOKED.set(0);
        let leaves = tree.leaves();
        let owned = leaves.iter().filter(|leaf| spell(&owners(&mut books, &leaf.path), false) == "owner m");
        // Nobody has the numbers of the ports.
        assert_eq!(owned.count(), 3 * MANY);
        // Some for what each owner is called.
        assert!(LOOKED.get() < 20 * leaves.len(), "{} looks for {} values", LOOKED.get(), leaves.len());
    }
}
