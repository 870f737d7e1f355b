//! Bounds of versions by their order.

use super::super::order::{Bounds, Orders};
use super::*;

/// Bounds of a version that is made at a time of the order, which is its number in tenths of a second, to a tenth of a second.
fn made(version: u64) -> Bounds {
    let at = i64::try_from(version).unwrap() * SECOND / 10;
    Bounds { from: at - SECOND / 20, to: at + SECOND / 20 }
}

/// Orders in which a resource and others, which begin `ahead` of its number, were written in turns, 400 times each.
fn written(others: &[(&str, u64)]) -> Orders {
    let mut orders = Orders::default();
    for version in (1000..1800).step_by(2) {
        orders.add("", "configmaps", version, made(version));
        for (other, ahead) in others {
            orders.add("", other, version + 1 + ahead, made(version + 1));
        }
    }
    orders
}

const WIDE: Bounds = Bounds { from: 0, to: 1_000 * SECOND };

#[test]
fn a_version_is_bounded_by_those_beside_it() {
    let mut orders = Orders::default();
    orders.add("", "configmaps", 10, WIDE);
    for (what, version, from, to, wanted) in [
        ("one behind it", 30, 3, 7, (0, 7)),
        ("one before it", 5, 2, 900, (2, 7)),
        ("a wider one", 4, 1, 950, (2, 7)),
        ("one that is later before it", 9, 4, 6, (4, 7)),
        ("one that is further behind", 40, 5, 9, (4, 7)),
    ] {
        orders.note("", "configmaps", version, Bounds { from: from * SECOND, to: to * SECOND });
        let Bounds { from, to } = orders.bounds("", "configmaps", 10);
        assert_eq!((from / SECOND, to / SECOND), wanted, "{what}");
    }
    let known = orders.news;
    orders.note("", "configmaps", 10, WIDE);
    assert_eq!(orders.news, known, "nothing new");
    assert_eq!(
        orders.bounds("", "secrets", 10),
        Bounds { from: i64::MIN, to: i64::MAX },
        "a resource of which nothing is known"
    );
}

/// Others share the order if they agree with it for long enough; what has other numbers never does, also where it has caught up.
#[test]
fn an_order_is_shared_by_those_who_are_known_to_be_of_it() {
    for (ahead, is_shared) in [(0, true), (200, false), (100_000, false)] {
        let mut orders = written(&[("secrets", ahead)]);
        orders.note("", "configmaps", 1801, made(1801));
        orders.note("", "configmaps", 1803, made(1803));
        let bounds = orders.bounds("", "secrets", 1802);
        assert_eq!(bounds.from >= made(1801).from && bounds.to <= made(1803).to, is_shared, "{ahead} ahead");
    }
    let mut late = written(&[]);
    for version in (1001..1300).step_by(2) {
        // It is as fast, and 20 s behind.
        late.add("", "events", version, made(version + 200));
    }
    assert_eq!(late.bounds("", "events", 1400).to, i64::MAX, "nothing of the others");
}

/// An etcd that was restored counts from a lower number on, at a later time.
#[test]
fn what_contradicts_is_dropped() {
    let mut orders = written(&[("secrets", 0)]);
    orders.add("", "secrets", 1501, made(5000));
    let bounds = orders.bounds("", "secrets", 1502);
    assert_eq!((bounds.from, bounds.to), (made(5000).from, i64::MAX), "its own, and nothing else");
    orders.add("", "configmaps", 1504, made(5003));
    assert_eq!(orders.bounds("", "configmaps", 1503).to, made(5003).to);
}

#[test]
fn what_is_kept_is_bounded_and_the_newest_stays() {
    let mut orders = Orders::default();
    for version in 0..300_000 {
        orders.add("", "pods", version, made(version));
    }
    assert!(orders.len() <= 1 << 18, "{}", orders.len());
    assert_eq!(orders.bounds("", "pods", 299_990), made(299_990));
    assert_eq!(orders.bounds("", "pods", 1).from, i64::MIN);
    orders.forget(made(299_990).from);
    assert!(orders.len() < 60, "{}", orders.len());
    assert_eq!(orders.bounds("", "pods", 299_995), made(299_995));
}
