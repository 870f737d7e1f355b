//! Trees of JSON texts, against `serde_json` where it knows the answer.

use proptest::prelude::*;
use serde_json::value::RawValue;

use super::*;

#[test]
fn values_are_their_own_text() {
    let mut tree = Tree::parse(br#" {"a" : [1.0, 1e400 ,-0] ,"b\u0061":"x\n\ud83d\ude00\ud800"} "#).unwrap();
    let array = tree.member(Tree::ROOT, "a").unwrap();
    let numbers: Vec<&str> = tree.elements(array).map(|id| tree.raw(id)).collect();
    assert_eq!(numbers, ["1.0", "1e400", "-0"]);
    let text = tree.member(Tree::ROOT, "ba").unwrap();
    assert_eq!(tree.string(text), "x\n\u{1f600}\u{fffd}");
    assert_eq!(tree.find("/a/1").map(|id| tree.raw(id)), Some("1e400"));
    assert_eq!(tree.find("/a/3"), None);
}

#[test]
fn depth_costs_no_stack() {
    let deep = format!("{}1{}", "[".repeat(200_000), "]".repeat(200_000));
    assert!(Tree::parse(deep.as_bytes()).is_ok());
    assert!(Tree::parse(&deep.as_bytes()[..deep.len() - 1]).is_err());
}

#[test]
fn of_duplicate_names_the_last_counts() {
    let tree = Tree::parse(br#"{"a":1,"a":2}"#).unwrap();
    assert_eq!(tree.raw(tree.member(0, "a").unwrap()), "2");
}

/// Every value in order, read when it is needed.
fn walk(tree: &mut Tree<'_>, id: Id, out: &mut Vec<String>) {
    out.push(tree.raw(id).to_owned());
    tree.read(id);
    let below: Vec<Id> = match tree.kind(id) {
        Kind::Object => tree.members(id).flat_map(|(name, value)| [name, value]).collect(),
        Kind::Array => tree.elements(id).collect(),
        Kind::String | Kind::Scalar => Vec::new(),
    };
    for id in below {
        walk(tree, id, out);
    }
}

#[test]
fn what_is_put_off_is_read_when_it_is_needed() {
    let text = br#"{"a":{"b":[{"c":[1,{"d":"\u00e9"}],"e":{}},[],[[2],3]]},"f":"g"}"#;
    let (mut whole, mut shallow) = (Tree::parse(text).unwrap(), Tree::parse_shallow(text).unwrap());
    assert!(shallow.nodes.len() < whole.nodes.len());
    let (mut all, mut late, mut again) = (Vec::new(), Vec::new(), Vec::new());
    walk(&mut whole, Tree::ROOT, &mut all);
    walk(&mut shallow, Tree::ROOT, &mut late);
    assert_eq!(all, late);
    // What was read meanwhile is not kept.
    let shape = shallow.into_shape();
    assert_eq!(*shape.0, Tree::parse_shallow(text).unwrap().nodes);
    walk(&mut Tree::of_shape(text, &shape).unwrap(), Tree::ROOT, &mut again);
    assert_eq!(all, again);
    assert!(Tree::of_shape(&text[1..], &shape).is_none());
}

fn check(text: &[u8]) {
    let theirs = serde_json::from_slice::<&RawValue>(text);
    assert_eq!(Tree::parse(text).is_ok(), theirs.is_ok(), "{:?}", String::from_utf8_lossy(text));
}

proptest! {
    #[test]
    fn what_serde_reads_is_read(text in r#"([\[\]{},: ]|"a"|"\\"|"\\u12"|"\\u00e9"|0|-1|01|1\.5|2e9|3e|\.|null|true|falsy|x|é|\n){0,12}"#) {
        check(text.as_bytes());
    }

    #[test]
    fn a_likeness_changes_nothing_but_the_time(
        old in r#"\{("[a-c]":(1|12|"x"|\[(1,){0,2}2\]|\{"a":1,"b":\{"c":"y"\}\}),){0,5}"z":0\}"#,
        new in r#"\{("[a-c]":(1|12|"x"|\[(1,){0,2}2\]|\{"a":1,"b":\{"c":"y"\}\}),){0,5}"z":0\}"#,
        cut in 0usize..80, to in 0usize..80, between in r#"([\[\]{},: ]|"a"|1|2){0,3}"#,
    ) {
        let like = Tree::parse_shallow(old.as_bytes()).unwrap();
        let spliced = format!("{}{between}{}", &old[..cut.min(old.len())], &old[to.min(old.len())..]);
        for text in [&new, &spliced, &old] {
            let plain = Tree::parse_shallow(text.as_bytes()).map(|tree| tree.nodes);
            let likened = Tree::parse_like(text.as_bytes(), &like).map(|tree| tree.nodes);
            prop_assert_eq!(likened.is_ok(), plain.is_ok(), "{} like {}", text, old);
            if plain.is_ok() {
                prop_assert_eq!(likened, plain, "{} like {}", text, old);
            }
        }
    }

    #[test]
    fn any_bytes_are_read_as_serde_reads_them(bytes in prop::collection::vec(any::<u8>(), 0..12)) {
        check(&bytes);
    }
}
