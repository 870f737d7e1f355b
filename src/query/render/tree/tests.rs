use proptest::prelude::*;

use super::*;
use crate::core::wire::Change;

thread_local! {
    /// So many members were looked at to find some.
    pub(crate) static LOOKED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Members, from one to another of which nothing has to be looked through again.
#[test]
fn large_objects_are_taken_back_member_by_member() {
    const MANY: usize = 5_000;
    let data = |range: std::ops::Range<usize>, text: &str| -> String {
        let members: serde_json::Map<_, _> = range.map(|n| (format!("key-{n:05}"), text.into())).collect();
        serde_json::json!({"data": members}).to_string()
    };
    // All changed, all but one came, all went and came.
    let versions = [data(0..1, "a"), data(0..MANY, "a"), data(0..1, "a"), data(0..MANY, "a"), data(0..MANY, "b")];
    let last = versions.len() - 1;
    let mut tree = Node::parse(versions[last].as_bytes()).unwrap();
    LOOKED.set(0);
    for at in (1..=last).rev() {
        let json = change(&versions[at - 1], &versions[at]);
        tree.revert_to(&serde_json::from_str::<Change<'_>>(&json).unwrap().patch, at);
    }
    tree.credit(0);
    assert!(tree.leaves().iter().all(|leaf| leaf.node.origin == Some(last)) && tree.leaves().len() == MANY);
    assert!(LOOKED.get() < 20 * MANY, "{} looks for {MANY} members", LOOKED.get());
}

/// An object that is empty again was set by who set it, also where members came and went since.
#[test]
fn an_object_that_is_empty_again_is_somebodys() {
    let versions = [r#"{"data":{}}"#, r#"{"data":{"x":"1"}}"#, r#"{"data":{"x":"1","y":"2"}}"#, r#"{"data":{}}"#];
    let last = versions.len() - 1;
    let mut tree = Node::parse(versions[last].as_bytes()).unwrap();
    for at in (1..=last).rev() {
        let json = change(versions[at - 1], versions[at]);
        tree.revert_to(&serde_json::from_str::<Change<'_>>(&json).unwrap().patch, at);
    }
    tree.credit(0);
    tree.settle();
    let leaves = tree.leaves();
    assert_eq!(leaves.len(), 1, "{leaves:?}");
    assert!(leaves[0].node.origin == Some(0) && tree.is_credited(), "{leaves:?}");
}

fn object() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        (0..4_i64).prop_map(Into::into),
        "[a-c/~]{0,2}".prop_map(Into::into),
    ];
    let value = leaf.prop_recursive(4, 40, 5, |inner| {
        let named = ("[a-c]", inner.clone()).prop_map(|(name, value)| serde_json::json!({"name": name, "v": value}));
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Into::into),
            prop::collection::vec(named, 0..4).prop_map(Into::into),
            members(inner),
        ]
    });
    members(value)
}

fn members(value: impl Strategy<Value = serde_json::Value>) -> impl Strategy<Value = serde_json::Value> {
    prop::collection::vec(("[a-d/~]{1,2}", value), 0..5)
        .prop_map(|members| serde_json::Value::Object(members.into_iter().collect()))
}

fn change(old: &str, new: &str) -> String {
    crate::core::change::compare(old.as_bytes(), new.as_bytes(), &[], &[]).unwrap().json
}

proptest! {
    #[test]
    fn what_is_taken_back_is_what_was_before(old in object(), new in object()) {
        let (old, new) = (old.to_string(), new.to_string());
        let json = change(&old, &new);
        let change: Change<'_> = serde_json::from_str(&json).unwrap();
        let mut tree = Node::parse(new.as_bytes()).unwrap();
        tree.revert(&change.patch).unwrap();
        let (before, expected): (serde_json::Value, serde_json::Value) =
            (serde_json::from_str(&tree.before()).unwrap(), serde_json::from_str(&old).unwrap());
        prop_assert_eq!(before, expected);
        prop_assert_eq!(tree.differs(), !change.patch.is_empty());
    }

    /// Where an object holds more than what becomes nodes, what changed in it is still seen to have changed.
    #[test]
    fn no_change_is_hidden_by_what_is_kept_as_json(old in object(), new in object(), nodes in 0..30_usize) {
        let (old, new) = (old.to_string(), new.to_string());
        let json = change(&old, &new);
        let change: Change<'_> = serde_json::from_str(&json).unwrap();
        let mut tree = Node::parse_within(new.as_bytes(), nodes).unwrap();
        tree.revert_within(&change.patch, nodes).unwrap();
        prop_assert_eq!(tree.differs(), !change.patch.is_empty(), "{} to {}", old, new);
        // What the patch leads into is looked into, as long as there is budget for that.
        let mut tree = Node::parse_within(new.as_bytes(), nodes).unwrap();
        tree.revert(&change.patch).unwrap();
        let before: serde_json::Value = serde_json::from_str(&tree.before()).unwrap();
        prop_assert_eq!(before, serde_json::from_str::<serde_json::Value>(&old).unwrap());
        let mut tree = Node::parse_within(new.as_bytes(), nodes).unwrap();
        let credited = tree.revert_to(&change.patch, 1);
        tree.credit(0);
        prop_assert!(tree.is_credited() && (credited || change.patch.iter().all(|op| op.op != "add")));
    }

    #[test]
    fn everything_is_credited_to_the_last_that_set_it(versions in prop::collection::vec(object(), 1..6)) {
        let texts: Vec<String> = versions.iter().map(ToString::to_string).collect();
        let last = texts.len() - 1;
        let mut tree = Node::parse(texts[last].as_bytes()).unwrap();
        for at in (1..=last).rev() {
            let json = change(&texts[at - 1], &texts[at]);
            let change: Change<'_> = serde_json::from_str(&json).unwrap();
            tree.revert_to(&change.patch, at);
        }
        tree.credit(0);
        prop_assert!(tree.is_credited());
        // What nobody set after a version stood in that version already, member by member.
        fn check(node: &Node<'_>, path: &mut Vec<String>, texts: &[serde_json::Value]) {
            match &node.body {
                Body::Object(members) if !members.is_empty() => for (key, node) in members {
                    if !matches!(node.mark, Mark::Gone) {
                        path.push(key.replace('~', "~0").replace('/', "~1"));
                        check(node, path, texts);
                        path.pop();
                    }
                },
                Body::Leaf(json) => {
                    let at = node.origin.unwrap();
                    let pointer: String = path.iter().map(|step| format!("/{step}")).collect();
                    let value: serde_json::Value = serde_json::from_str(json).unwrap();
                    for text in &texts[at..] {
                        assert_eq!(text.pointer(&pointer), Some(&value), "{pointer} since {at}");
                    }
                    if at > 0 {
                        assert_ne!(texts[at - 1].pointer(&pointer), Some(&value), "{pointer} by {at}");
                    }
                }
                Body::Object(_) | Body::Array(_) => {}
            }
        }
        check(&tree, &mut Vec::new(), &versions);
    }
}

#[test]
fn a_change_is_named_by_the_names_of_elements() {
    let old = r#"{"spec":{"containers":[{"name":"a","image":"x:1"},{"name":"b","image":"y"}],"n":1.50}}"#;
    let new = r#"{"spec":{"containers":[{"name":"a","image":"x:2"},{"name":"c","image":"z"}],"n":1.5}}"#;
    let json = change(old, new);
    let change: Change<'_> = serde_json::from_str(&json).unwrap();
    let mut tree = Node::parse(new.as_bytes()).unwrap();
    tree.revert(&change.patch).unwrap();
    let shown: Vec<String> = tree
        .differences()
        .iter()
        .map(|found| {
            let path: Vec<&str> = found
                .path
                .iter()
                .map(|step| match step {
                    Step::Key(key) => *key,
                    Step::Element(name, ..) => name,
                })
                .collect();
            let was = match &found.node.mark {
                Mark::Was(was) => was.json(),
                Mark::Added => "+".to_owned(),
                Mark::Gone => "-".to_owned(),
                Mark::Same | Mark::Redacted => String::new(),
            };
            format!("{} {was}", path.join("."))
        })
        .collect();
    assert_eq!(shown, ["spec.containers.a.image \"x:1\"", "spec.containers.b -", "spec.containers.c +", "spec.n 1.50"]);
}

#[test]
fn what_replaces_something_unreadable_is_new() {
    let mut tree = Node::parse(br#"{"data":{"a":"1"}}"#).unwrap();
    let patch: Vec<Op<'_>> =
        serde_json::from_str(r#"[{"op":"replace","path":"","value":{"data":{"a":"1"}}}]"#).unwrap();
    tree.revert(&patch).unwrap();
    assert!(matches!(tree.mark, Mark::Added) && tree.differences().len() == 1);
}

#[test]
fn a_redacted_value_is_known_to_differ_and_nothing_more() {
    let mut tree = Node::parse(br#"{"data":{"password":"***"}}"#).unwrap();
    let patch: Vec<Op<'_>> =
        serde_json::from_str(r#"[{"op":"replace","path":"/data/password","value":"***","was":"***"}]"#).unwrap();
    tree.revert(&patch).unwrap();
    assert!(matches!(tree.differences()[0].node.mark, Mark::Redacted));
}

#[test]
fn what_is_left_out_is_left_out() {
    let mut tree = Node::parse(br#"{"metadata":{"uid":"u","labels":{"a":"1","b":"2"}},"status":{"n":1.0}}"#).unwrap();
    tree.without(&[&["metadata", "uid"], &["metadata", "labels", "a"], &["status"]]);
    assert_eq!(tree.json(), r#"{"metadata":{"labels":{"b":"2"}}}"#);
}

#[test]
fn what_no_text_can_hold_is_replaced() {
    let odd = br#"{"k":{"\ud800":1},"s":["\udc00\ud800x","\ud83d\ude00","a\u0000b"]}"#;
    let tree = Node::parse(odd).unwrap();
    let leaves: Vec<_> =
        tree.leaves().iter().map(|leaf| (pointer(&leaf.path), leaf.node.text().unwrap().into_owned())).collect();
    let leaves: Vec<_> = leaves.iter().map(|(pointer, text)| (pointer.as_str(), text.as_str())).collect();
    assert_eq!(leaves, [("/k/\u{fffd}", "1"), ("/s/0", "\u{fffd}\u{fffd}x"), ("/s/1", "\u{1f600}"), ("/s/2", "a\0b")]);
}

#[test]
fn nesting_without_end_is_no_danger() {
    let deep = format!("{}{}", "[".repeat(9000), "]".repeat(9000));
    assert_eq!(Node::parse(deep.as_bytes()).unwrap().json(), deep);
}
