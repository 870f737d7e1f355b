//! Writes without a version where the log may not have it yet, or never.

use super::*;
use crate::audit_log::join::{Cover, Missing};

/// A write is called wasted only once its source has had the time to bring its version, and not where one may be missing.
#[test]
fn a_write_waits_for_its_source_and_is_nobody_s_in_a_gap() {
    let cover = |since: i64, upto: i64| Cover {
        group: String::new(),
        resource: "configmaps".to_owned(),
        namespace: String::new(),
        since,
        upto,
    };
    let gap = |name: &str, since: i64, until: i64| Missing {
        group: String::new(),
        resource: "configmaps".to_owned(),
        namespace: "shop".to_owned(),
        name: name.to_owned(),
        since,
        until,
    };
    let apart = Cover { namespace: "pay".to_owned(), ..cover(0, i64::MAX) };
    let rows: [(&str, Vec<Cover>, Option<Missing>, bool); 9] = [
        ("a source that is complete", vec![cover(T - SECOND, T + 9 * SECOND)], None, true),
        ("one that is behind", vec![cover(T - SECOND, T + 2 * SECOND)], None, false),
        ("one that began later", vec![cover(T + 3 * SECOND, T + 9 * SECOND)], None, false),
        ("none", Vec::new(), None, false),
        ("one of another namespace", vec![apart], None, false),
        ("a gap", vec![cover(T - SECOND, T + 9 * SECOND)], Some(gap("", T, T + 3 * SECOND)), false),
        ("a gap of it", vec![cover(T - SECOND, T + 9 * SECOND)], Some(gap("cart", T, T + 3 * SECOND)), false),
        ("a gap of another", vec![cover(T - SECOND, T + 9 * SECOND)], Some(gap("b", T, T + 3 * SECOND)), true),
        ("a gap before", vec![cover(T - SECOND, T + 9 * SECOND)], Some(gap("", T, T + SECOND)), true),
    ];
    for (what, covers, missing, told) in rows {
        let is_behind = what == "one that is behind";
        let mut joiner = joiner();
        joiner.cover(covers);
        joiner.request(ask("1", "alice", "patch", T + 2 * SECOND));
        missing.into_iter().for_each(|missing| joiner.lacks(missing));
        assert_eq!(finish(&mut joiner).wasted.len(), usize::from(told), "{what}");
        // Behind it, the version comes, or nothing does.
        joiner.cover(vec![cover(T - SECOND, T + 9 * SECOND)]);
        if is_behind {
            joiner.advance(T + 500 * SECOND, T + 500 * SECOND);
            assert_eq!(joiner.take().wasted.len(), 1, "it is not forgotten meanwhile");
        }
    }
    // What comes with the source that catches up is what the write made.
    let mut joiner = joiner();
    joiner.cover(vec![cover(T - SECOND, T + 2 * SECOND)]);
    joiner.request(ask("1", "alice", "patch", T + 2 * SECOND));
    assert!(finish(&mut joiner).wasted.is_empty());
    joiner.version(change(1, "4", "5", "kubectl-edit", T + 2 * SECOND));
    joiner.cover(vec![cover(T - SECOND, T + 9 * SECOND)]);
    joiner.advance(T + 900 * SECOND, T + 900 * SECOND);
    assert!(joiner.take().wasted.is_empty());
}
