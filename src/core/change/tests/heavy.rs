//! Versions with more values than are compared one by one.

use super::*;

/// So many values that both versions together are beyond what trees are built for.
const MANY: usize = 250_000;

fn list(count: usize, element: impl Fn(usize) -> String) -> String {
    format!("[{}]", (0..count).map(element).collect::<Vec<_>>().join(","))
}

#[test]
fn what_holds_too_many_values_is_replaced_and_all_else_is_compared() {
    let objects = |value: usize| list(MANY / 6, |n| format!(r#"{{"name":"e{n}","x":[{value},0]}}"#));
    let members = |value: usize| {
        format!("{{{}}}", (0..MANY / 2).map(|n| format!("\"k{n}\":{value}")).collect::<Vec<_>>().join(","))
    };
    let all = |values: [String; 3], more: u8| {
        format!(
            r#"{{"metadata":{{"name":"n","labels":{{"a":"{more}"}}}},"spec":{{"numbers":{},"objects":{},"members":{},"x":{more}}}}}"#,
            values[0], values[1], values[2]
        )
    };
    let numbers = |turn: usize| list(MANY, |n| ((n + turn) % 2).to_string());
    let old = all([numbers(0), objects(0), members(0)], 1);
    for (new, expected) in [
        (all([numbers(1), objects(0), members(0)], 2), vec!["/metadata/labels/a", "/spec/numbers", "/spec/x"]),
        (all([numbers(0), objects(0), members(1)], 1), vec!["/spec/members"]),
        (all(["1".to_owned(), objects(0), members(0)], 2), vec!["/metadata/labels/a", "/spec/numbers", "/spec/x"]),
    ] {
        let change = check(&old, &new);
        assert_eq!(change.touched.iter().take(5).collect::<Vec<_>>(), expected);
        check(&new, &old);
    }
    // An object whose outermost members are too many.
    let outer = |value: usize| members(value).replacen('{', r#"{"metadata":{"name":"n"},"#, 1);
    let change = check(&outer(0), &outer(1));
    assert!(
        change.json.contains(r#""op":"replace","path":"""#) && change.areas.len() <= 1002,
        "{}",
        change.areas.len()
    );
}

#[test]
fn long_lists_are_compared_in_their_order_where_they_are_too_long_to_be_paired() {
    let with = |at: usize, name: &str| {
        let named = list(40_000, |n| if n == at { format!("\"{name}\"") } else { format!("\"e{n}\"") });
        format!(r#"{{"x":{named}}}"#)
    };
    assert_eq!(short(&check(&with(7, "a"), &with(9, "b"))).len(), 2);
    let (one, two) =
        (list(40_000, |n| n.to_string()), list(40_001, |n| if n == 0 { "x".len().to_string() } else { n.to_string() }));
    check(&format!(r#"{{"x":{one}}}"#), &format!(r#"{{"x":{two}}}"#));
}

#[test]
fn marks_are_followed_through_long_lists() {
    let with = |from: usize| format!(r#"{{"x":{}}}"#, list(70_000 - from, |n| format!("\"e{}\"", n + from)));
    let mark = |at: usize| vec![(format!("/x/{at}"), [1; 16])];
    let change = compare(with(0).as_bytes(), with(3).as_bytes(), &mark(60_000), &mark(59_997)).unwrap();
    assert!(!change.touched.contains(&"/x/59997".to_owned()), "{:?}", change.touched.len());
}
