//! Windows and their incidents.

use super::*;
use crate::core::spelling::Text;
use crate::sink::notify::Rule;

const SECOND: i64 = 1_000_000;

/// A log: at this second, of this rule and this object.
type Log = Vec<(i64, Option<(usize, String)>)>;

fn notify(digest: usize) -> Notify {
    let rules = ["crash-loop", "image-changed"].map(|name| Rule::read(name).unwrap()).to_vec();
    Notify { rules, group: Duration::from_secs(60), wait: Duration::from_secs(10), digest, updates: false }
}

fn selected(seq: u64, rule: usize, object: &str) -> Selected {
    let (key, title) = (format!("{rule}/{object}"), object.to_owned());
    let incident = Incident { key, title, count: 1, first: seq, last: seq, ..Incident::default() };
    Selected { rule, incident, cluster: "c1".to_owned() }
}

/// Takes an entry of a log. An object that is written `=7` is an ACTOR of the entry 7.
fn step(incidents: &mut Incidents, time: i64, seq: u64, one: Option<&(usize, String)>, now: Instant) {
    let actor = one.and_then(|(rule, object)| Some((*rule, object.strip_prefix('=')?.parse::<u64>().unwrap(), object)));
    if let Some((rule, of, object)) = actor {
        incidents.take(time, None, now);
        incidents.name(of, selected(seq, rule, object), now);
        return;
    }
    incidents.take(time, one.map(|(rule, object)| selected(seq, *rule, object)), now);
}

/// Reads a log from so far before a seq on that it comes to the same, and returns what is told after that seq, with its place.
fn told(log: &Log, notify: &Notify, sent: u64) -> Vec<(u64, Incident)> {
    let mut incidents = Incidents::new(notify.clone());
    let time = |seq: u64| log[usize::try_from(seq).unwrap() - 1].0 * SECOND;
    let back = if sent == 0 { i64::MIN } else { incidents.looks_back_to(time(sent)) };
    let begin = (1..=log.len() as u64).find(|seq| time(*seq) >= back).unwrap();
    incidents.begin(Seq(begin - 1), Seq(sent));
    let now = Instant::now();
    for seq in begin..=log.len() as u64 {
        let one = log[usize::try_from(seq).unwrap() - 1].1.as_ref();
        step(&mut incidents, time(seq), seq, one, now);
        incidents.position = Seq(seq);
        // What waits is after what the cursor may pass.
        let settled = incidents.settled();
        let waits = incidents.window.iter().flat_map(|window| &window.begun);
        assert!(waits.map(|begun| begun.seq).all(|seq| seq > settled));
    }
    incidents.close();
    incidents.ready.into_iter().map(|begun| (begun.seq.0, begun.incident)).collect()
}

/// Reads a log from its beginning.
fn all(log: &Log, notify: &Notify) -> Vec<Incident> {
    told(log, notify, 0).into_iter().map(|(_, incident)| incident).collect()
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
            "a clock that was set back: what goes on goes on, and what was quiet was quiet",
            &[(3605, 0, "a"), (5, 0, "a"), (6, 0, "b"), (65, 0, "a"), (67, 0, "b"), (130, 0, "a")],
            vec![(1, 1, 1), (3, 1, 3), (5, 1, 5), (6, 1, 6)],
        ),
        (
            "a clock that comes to the time from which it was set back",
            &[(105, 0, "a"), (5, 0, "b"), (107, 0, "a")],
            vec![(1, 1, 1), (2, 1, 2), (3, 1, 3)],
        ),
        ("a clock that was set ahead", &[(5, 0, "a"), (3600, 0, "a")], vec![(1, 1, 1), (2, 1, 2)]),
    ] {
        assert_eq!(brief(&all(&log(entries), &notify(10))), expected, "{what}");
    }
}

#[test]
fn of_many_the_first_rules_have_messages_and_the_rest_a_digest() {
    let entries = [(1, 1, "a"), (2, 1, "b"), (3, 1, "c"), (4, 0, "d"), (5, 1, "c"), (6, 1, "e"), (11, 1, "f")];
    let (log, notify) = (log(&entries), notify(2));
    // Its place is that of the last in it: what comes after a place was not sent.
    let places: Vec<u64> = told(&log, &notify, 0).iter().map(|(seq, _)| *seq).collect();
    assert_eq!(places, [1, 4, 6, 7]);
    let told = all(&log, &notify);
    assert_eq!(brief(&told), [(1, 1, 1), (4, 1, 4), (2, 3, 6), (7, 1, 7)]);
    let digest = &told[2];
    assert_eq!((digest.title.as_str(), digest.key.as_str()), ("3 more: 3 image changed", "c1/digest"));
    assert_eq!(brief(&digest.digest), [(2, 1, 2), (3, 2, 5), (6, 1, 6)]);
}

#[test]
fn a_digest_counts_all_and_names_twenty() {
    let entries: Vec<(i64, usize, String)> = (0..12_000).map(|at| (1, 1, at.to_string())).collect();
    let log: Log = entries.into_iter().map(|(at, rule, object)| (at, Some((rule, object)))).collect();
    let told = told(&log, &notify(3), 0);
    let (seq, digest) = &told[3];
    assert_eq!((told.len(), *seq, digest.last), (4, 12_000, 12_000));
    assert_eq!((digest.count, digest.digest.len()), (11_997, NAMED));
    assert_eq!(digest.title, "11997 more: 11997 image changed");
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
            let rest: Vec<(u64, Incident)> = whole.iter().filter(|(seq, _)| *seq > sent).cloned().collect();
            assert_eq!(told(&log, &notify(digest), sent), rest, "after {sent} with {digest}");
        }
    }
}

#[test]
fn a_quiet_log_is_waited_for_no_longer_than_its_window() {
    let mut incidents = Incidents::new(notify(10));
    let now = Instant::now();
    let second = Duration::from_secs(1);
    let at = |clock: i64, now: Instant| Moment { clock: clock * SECOND, now, is_whole: true };
    incidents.take(5 * SECOND, Some(selected(1, 0, "a")), now);
    // The window ends at 10, and an entry of it may come for a second.
    assert_eq!(incidents.close_by_clock(at(5, now)), Some(now + 6 * second));
    assert_eq!(incidents.close_by_clock(at(10, now + 5 * second)), Some(now + 6 * second));
    // Then the writer is asked whether it still has one.
    let end = at(11, now + 6 * second);
    assert_eq!(incidents.close_by_clock(Moment { is_whole: false, ..end }), Some(end.now));
    assert_eq!((incidents.close_by_clock(end), incidents.ready.len()), (None, 1));
    // One that comes later still has a window of its own.
    incidents.take(9 * SECOND, Some(selected(2, 0, "b")), now);
    incidents.take(12 * SECOND, Some(selected(3, 0, "c")), now);
    incidents.close();
    let seqs: Vec<u64> = incidents.ready.iter().map(|begun| begun.seq.0).collect();
    assert_eq!(seqs, [1, 2, 3]);
    // A clock that was set back holds nothing up.
    incidents.take(100 * SECOND, Some(selected(4, 0, "d")), now);
    assert_eq!(incidents.close_by_clock(at(1, now)), Some(now + 11 * second));
    assert_eq!(incidents.close_by_clock(at(1, now + 11 * second)), None);
    assert_eq!(incidents.ready.len(), 4);
}

/// Those that a later start does not have any more stand before those that it has.
#[test]
fn gaps_of_the_sink_alone_have_messages_in_their_order_and_a_digest_behind() {
    let mut incidents = Incidents::new(notify(2));
    let now = Instant::now();
    incidents.take(5 * SECOND, Some(selected(1, 0, "a")), now);
    for (seq, rule) in [(10, 1), (11, 1), (12, 0), (13, 2)] {
        incidents.take_own(selected(seq, rule, &seq.to_string()), Bytes::from(seq.to_string()), now);
    }
    // Nothing is waited for: they stand for what is gone.
    assert_eq!(incidents.close_by_clock(Moment { clock: 5 * SECOND, now, is_whole: false }), None);
    let seqs: Vec<u64> = incidents.ready.iter().map(|begun| begun.seq.0).collect();
    assert_eq!(seqs, [1, 10, 11, 12]);
    let digest = incidents.ready.back().unwrap();
    assert_eq!((digest.incident.first, digest.incident.last), (12, 13));
    let members = [12, 13].map(|seq: u64| (Seq(seq), Some(Bytes::from(seq.to_string()))));
    assert_eq!((digest.line.as_deref(), &digest.members[..]), (Some(&b"12"[..]), &members[..]));
    assert_eq!(digest.incident.title, "2 more: 1 crash loop, 1 changes may be missing");
}

mod random;
mod updates;
