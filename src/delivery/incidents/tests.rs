//! Windows and their incidents.

use super::*;
use crate::core::spelling::Text;
use crate::sink::notify::Rule;

const SECOND: i64 = 1_000_000;

/// A log: at this second, of this rule and this object.
type Log = Vec<(i64, Option<(usize, String)>)>;

fn notify(digest: usize) -> Notify {
    let rules = ["crash-loop", "image-changed"].map(|name| Rule::read(name).unwrap()).to_vec();
    Notify { rules, group: Duration::from_secs(60), wait: Duration::from_secs(10), digest }
}

fn selected(seq: u64, rule: usize, object: &str) -> Selected {
    let (key, title) = (format!("{rule}/{object}"), object.to_owned());
    let incident = Incident { key, title, count: 1, first: seq, last: seq, ..Incident::default() };
    Selected { rule, incident, cluster: "c1".to_owned(), is_gap: false }
}

/// Reads a log from so far before a seq on that it comes to the same, and returns what is told after that seq.
fn told(log: &Log, notify: &Notify, sent: u64) -> Vec<Incident> {
    let mut incidents = Incidents::new(notify.clone());
    let time = |seq: u64| log[usize::try_from(seq).unwrap() - 1].0 * SECOND;
    let back = if sent == 0 { i64::MIN } else { incidents.looks_back_to(time(sent)) };
    let begin = (1..=log.len() as u64).find(|seq| time(*seq) >= back).unwrap();
    incidents.begin(Seq(begin - 1), Seq(sent));
    let now = Instant::now();
    for seq in begin..=log.len() as u64 {
        let one = log[usize::try_from(seq).unwrap() - 1].1.as_ref();
        incidents.take(time(seq), one.map(|(rule, object)| selected(seq, *rule, object)), &Bytes::new(), now);
        incidents.position = Seq(seq);
        // What waits is after what the cursor may pass.
        let settled = incidents.settled();
        let waits = incidents.window.iter().flat_map(|window| &window.begun);
        assert!(waits.map(|begun| begun.incident.first).all(|first| first > settled.0));
    }
    incidents.close();
    incidents.ready.into_iter().map(|begun| begun.incident).collect()
}

fn log(entries: &[(i64, usize, &str)]) -> Log {
    entries.iter().map(|(at, rule, object)| (*at, Some((*rule, (*object).to_owned())))).collect()
}

/// Firsts, counts and lasts.
fn brief(told: &[Incident]) -> Vec<(u64, u64, u64)> {
    told.iter().map(|one| (one.first, one.count, one.last)).collect()
}

#[test]
fn one_incident_is_told_once_until_it_was_quiet_for_a_group() {
    for (what, entries, expected) in [
        ("one", &[(5, 0, "a")][..], vec![(1, 1, 1)]),
        ("several in a window", &[(5, 0, "a"), (6, 0, "a"), (9, 0, "a")], vec![(1, 3, 3)]),
        ("what follows is of it", &[(5, 0, "a"), (12, 0, "a"), (70, 0, "a"), (130, 0, "a")], vec![(1, 1, 1)]),
        ("quiet for a group", &[(5, 0, "a"), (66, 0, "a")], vec![(1, 1, 1), (2, 1, 2)]),
        ("two objects", &[(5, 0, "a"), (6, 0, "b"), (7, 0, "a")], vec![(1, 2, 3), (2, 1, 2)]),
        ("two causes", &[(5, 0, "a"), (6, 1, "a")], vec![(1, 1, 1), (2, 1, 2)]),
        (
            "a clock that was set back",
            &[(105, 0, "a"), (5, 0, "a"), (6, 0, "b"), (107, 0, "a")],
            vec![(1, 3, 4), (3, 1, 3)],
        ),
    ] {
        assert_eq!(brief(&told(&log(entries), &notify(10), 0)), expected, "{what}");
    }
}

#[test]
fn of_many_the_first_rules_have_messages_and_the_rest_a_digest() {
    let entries = [(1, 1, "a"), (2, 1, "b"), (3, 1, "c"), (4, 0, "d"), (5, 1, "c"), (6, 1, "e"), (11, 1, "f")];
    let told = told(&log(&entries), &notify(2), 0);
    assert_eq!(brief(&told), [(1, 1, 1), (2, 3, 6), (4, 1, 4), (7, 1, 7)]);
    let digest = &told[1];
    assert_eq!((digest.title.as_str(), digest.key.as_str()), ("3 more: 3 image changed", "c1/digest"));
    assert_eq!(brief(&digest.digest), [(2, 1, 2), (3, 2, 5), (6, 1, 6)]);
}

#[test]
fn a_digest_counts_all_and_names_twenty() {
    let entries: Vec<(i64, usize, String)> = (0..12_000).map(|at| (1, 1, at.to_string())).collect();
    let log: Log = entries.into_iter().map(|(at, rule, object)| (at, Some((rule, object)))).collect();
    let told = told(&log, &notify(3), 0);
    assert_eq!((told.len(), told[3].count, told[3].digest.len()), (4, 11_997, NAMED));
    assert_eq!(told[3].title, "11997 more: 11997 image changed");
}

/// Wherever a daemon ended, the next one goes on with the same messages.
#[test]
fn whatever_was_sent_the_rest_is_the_same() {
    let mut random = 88_172_645_463_325_252_u64;
    let mut next = |sides: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % sides
    };
    for digest in [1, 2, 5, 100] {
        let mut time = 1000;
        let log: Log = (0..400)
            .map(|_| {
                time += i64::try_from(next(8)).unwrap() * i64::from(next(3) == 0) + 40 * i64::from(next(40) == 0);
                let one = (next(3) > 0).then(|| (usize::try_from(next(2)).unwrap(), next(12).to_string()));
                (time, one)
            })
            .collect();
        let whole = told(&log, &notify(digest), 0);
        assert!(whole.len() > 20, "{}", whole.len());
        for sent in 1..=log.len() as u64 {
            let rest: Vec<Incident> = whole.iter().filter(|one| one.first > sent).cloned().collect();
            assert_eq!(told(&log, &notify(digest), sent), rest, "after {sent} with {digest}");
        }
    }
}

#[test]
fn a_quiet_log_is_waited_for_no_longer_than_its_window() {
    let mut incidents = Incidents::new(notify(10));
    let now = Instant::now();
    let second = Duration::from_secs(1);
    incidents.take(5 * SECOND, Some(selected(1, 0, "a")), &Bytes::new(), now);
    // The window ends at 10, and an entry of it may come for a second.
    assert_eq!(incidents.close_by_clock(5 * SECOND, now), Some(now + 6 * second));
    assert_eq!(incidents.close_by_clock(10 * SECOND, now + 5 * second), Some(now + 6 * second));
    assert_eq!((incidents.close_by_clock(11 * SECOND, now + 6 * second), incidents.ready.len()), (None, 1));
    // One that comes later still is of the next.
    incidents.take(9 * SECOND, Some(selected(2, 0, "b")), &Bytes::new(), now);
    incidents.take(12 * SECOND, Some(selected(3, 0, "c")), &Bytes::new(), now);
    incidents.close();
    let firsts: Vec<u64> = incidents.ready.iter().map(|begun| begun.incident.first).collect();
    assert_eq!(firsts, [1, 2, 3]);
    // A clock that was set back holds nothing up.
    incidents.take(100 * SECOND, Some(selected(4, 0, "d")), &Bytes::new(), now);
    assert_eq!(incidents.close_by_clock(SECOND, now), Some(now + 11 * second));
    assert_eq!(incidents.close_by_clock(SECOND, now + 11 * second), None);
    assert_eq!(incidents.ready.len(), 4);
}
