//! What is a storage rewrite, and what is not.

use super::*;

const MINUTE: i64 = 60 * 1_000_000;

/// A write: the minute, and the resource, namespace and name of its object, and who did it.
type Given = (i64, &'static str, &'static str, String, &'static str);

/// Writes of so many objects, one each second from a minute on.
fn pass(minute: i64, resource: &'static str, namespace: &'static str, count: usize, by: &'static str) -> Vec<Given> {
    (0..count).map(|at| (minute + i64::try_from(at).unwrap() / 60, resource, namespace, format!("o{at}"), by)).collect()
}

/// `objects/writes of RESOURCE in NAMESPACE by NAME, FIRST to LAST minute` of each storage rewrite.
fn found(writes: &[Given], back: bool) -> Vec<String> {
    let mut numbered: Vec<(u64, &Given)> = (1..).zip(writes).collect();
    numbered.sort_by_key(|(seq, write)| (write.0, *seq));
    if back {
        numbered.reverse();
    }
    let mut rewrites = Rewrites::default();
    for (seq, (minute, resource, namespace, name, by)) in numbered {
        let by = Some(*by).filter(|by| !by.is_empty());
        rewrites.take(&Write { seq, time: minute * MINUTE, resource, namespace, name, by });
    }
    let minute = |text: &str| text.parse::<jiff::Timestamp>().unwrap().as_second() / 60;
    let one = |one: &Rewrite| {
        assert_eq!((one.seqs.len(), one.seqs.last()), (one.writes, Some(&one.seq)));
        let place = one.namespace.as_ref().map_or_else(String::new, |name| format!(" in {name}"));
        let by = one.by.as_ref().map_or_else(String::new, |name| format!(" by {name}"));
        let (objects, writes, resource) = (one.objects, one.writes, &one.resource);
        format!("{objects}/{writes} of {resource}{place}{by}, {} to {}", minute(&one.since), minute(&one.until))
    };
    rewrites.finish().iter().map(one).collect()
}

#[test]
fn many_objects_that_are_written_once_are_a_storage_rewrite_and_what_comes_again_is_not() {
    let many = |count: usize| pass(0, "secrets", "shop", count, "");
    let both = |one: Vec<Given>, other: Vec<Given>| [one, other].concat();
    let again = |times: usize, minutes: i64, count: usize| -> Vec<Given> {
        (0..i64::try_from(times).unwrap())
            .flat_map(|turn| pass(turn * minutes, "secrets", "shop", count, "op"))
            .collect()
    };
    let cases: [(&str, Vec<Given>, &[&str]); 18] = [
        ("nothing", vec![], &[]),
        ("a storage version migration, a key rotation", many(2301), &["2301/2301 of secrets in shop, 0 to 38"]),
        (
            "by somebody",
            pass(0, "secrets", "a", 20, "kubectl-replace"),
            &["20/20 of secrets in a by kubectl-replace, 0 to 0"],
        ),
        (
            "one that names its writer for some objects",
            both(many(20), pass(1, "secrets", "b", 5, "kubectl-replace")),
            &["25/25 of secrets, 0 to 1"],
        ),
        (
            "one that begins to name it late",
            both(pass(0, "secrets", "b", 5, "kubectl-replace"), pass(1, "secrets", "a", 20, "")),
            &["25/25 of secrets, 0 to 1"],
        ),
        (
            "one that names its writer for most objects",
            both(pass(0, "secrets", "b", 20, "kubectl-replace"), pass(1, "secrets", "a", 5, "")),
            &["25/25 of secrets by kubectl-replace, 0 to 1"],
        ),
        ("one that begins again", again(2, 5, 20), &["20/40 of secrets in shop by op, 0 to 5"]),
        ("objects of the cluster", pass(0, "nodes", "", 10, ""), &["10/10 of nodes, 0 to 0"]),
        ("too few objects", many(9), &[]),
        (
            "two runs with hours between",
            both(many(20), pass(300, "secrets", "shop", 20, "")),
            &["20/20 of secrets in shop, 0 to 0", "20/20 of secrets in shop, 300 to 300"],
        ),
        (
            "two resources at a time",
            both(many(20), pass(0, "configmaps", "shop", 30, "")),
            &["30/30 of configmaps in shop, 0 to 0", "20/20 of secrets in shop, 0 to 0"],
        ),
        (
            "two writers at a time",
            both(pass(0, "secrets", "a", 20, "one"), pass(0, "secrets", "b", 20, "two")),
            &["20/20 of secrets in a by one, 0 to 0", "20/20 of secrets in b by two, 0 to 0"],
        ),
        ("two writers of too few", both(pass(0, "secrets", "a", 6, "one"), pass(0, "secrets", "b", 6, "two")), &[]),
        ("a controller that writes three objects again and again", again(100, 1, 3), &[]),
        ("a controller that writes many objects again and again", again(3, 5, 15), &[]),
        ("one with pauses", again(3, 60, 15), &[]),
        (
            "one that is among the objects of a rewrite",
            both(many(20), again(50, 0, 2)),
            &["18/18 of secrets in shop, 0 to 0"],
        ),
        (
            "three rewrites of many days",
            again(3, 3 * 24 * 60, 15),
            &[
                "15/15 of secrets in shop by op, 0 to 0",
                "15/15 of secrets in shop by op, 4320 to 4320",
                "15/15 of secrets in shop by op, 8640 to 8640",
            ],
        ),
    ];
    for (what, writes, expected) in cases {
        let mut expected: Vec<&str> = expected.to_vec();
        expected.sort_unstable();
        for back in [false, true] {
            let mut found = found(&writes, back);
            found.sort_unstable();
            assert_eq!(found, expected, "{what}, {}", if back { "newest first" } else { "oldest first" });
        }
    }
}

/// A resource with few objects is stored again as a whole, by nobody that the log can name.
#[test]
fn all_objects_of_a_small_resource_are_a_storage_rewrite() {
    let writes = |count: usize, by: Option<&'static str>| -> Vec<Rewrite> {
        let mut rewrites = Rewrites::among(Sizes::from([("storageclasses".to_owned(), 4), ("nodes".to_owned(), 1)]));
        for name in (0..count).map(|at| format!("o{at}")) {
            let write = Write { seq: 1, time: 1, resource: "storageclasses", namespace: "", name: &name, by };
            rewrites.take(&write);
            rewrites.take(&Write { resource: "nodes", name: "alone", ..write });
        }
        rewrites.finish()
    };
    let found = writes(4, None);
    assert_eq!(found.iter().map(|one| (&*one.resource, one.objects)).collect::<Vec<_>>(), [("storageclasses", 4)]);
    assert_eq!(writes(3, None), [], "not all of them");
    assert_eq!(writes(4, Some("operator")), [], "somebody is named");
}

/// Who follows the log folds from the tenth object on.
#[test]
fn while_it_goes_on_it_is_one_from_the_tenth_object_on() {
    let mut rewrites = Rewrites::default();
    let mut take = |time: i64, name: &str| {
        let write = Write { seq: 1, time: time * MINUTE, resource: "pods", namespace: "a", name, by: None };
        rewrites.take(&write)
    };
    let taken: Vec<Known> = (0..12).map(|at| take(at, &format!("o{at}"))).collect();
    assert_eq!(taken, [[Known::Nothing; MANY - 1].as_slice(), &[Known::Rewrite; 3]].concat());
    assert_eq!(take(12, "o3"), Known::Rewrite, "a second time");
    assert_eq!(take(12, "o3"), Known::Again, "a third time");
    assert_eq!(take(60, "o1"), Known::Nothing, "another run");
}
