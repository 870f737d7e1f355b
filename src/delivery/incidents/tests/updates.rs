//! Updates of messages, as a receiver sees them that has each message by its name.

use std::collections::BTreeMap;

use super::*;

fn updating(digest: usize) -> Notify {
    Notify { updates: true, ..notify(digest) }
}

/// What was sent: its place, the incident, and whether it is an update.
type Sent = Vec<(u64, Incident, bool)>;

/// A daemon that begins with what the journal has, and reads the log to its end. Gives what it sends, and each place where the cursor
/// may be with how much was sent until then.
fn run(log: &Log, notify: &Notify, cursor: u64, known: &[Message]) -> (Sent, Vec<(usize, u64)>) {
    let (sent, cursors) = behind(log, notify, cursor, known, 1);
    (sent, cursors.into_iter().map(|(count, at, _)| (count, at)).collect())
}

/// The same, where it sends only after each so many entries. With each place of the cursor comes what the journal then has.
fn behind(
    log: &Log,
    notify: &Notify,
    cursor: u64,
    known: &[Message],
    by: u64,
) -> (Sent, Vec<(usize, u64, Vec<Message>)>) {
    let mut incidents = Incidents::new(notify.clone());
    known.iter().for_each(|message| incidents.know(message.clone()));
    let time = |seq: u64| log[usize::try_from(seq).unwrap() - 1].0 * SECOND;
    let back = if cursor == 0 { i64::MIN } else { incidents.looks_back_to(time(cursor)) };
    let begin = (1..=log.len() as u64).find(|seq| time(*seq) >= back).unwrap();
    incidents.begin(Seq(begin - 1), Seq(cursor));
    incidents.forget_messages(Seq(begin - 1));
    let (mut sent, mut cursors): (Sent, _) = (Vec::new(), Vec::new());
    let mut drain = |incidents: &mut Incidents| {
        while let Some(begun) = incidents.ready.pop_front() {
            let Begun { incident, seq, is_update, .. } = begun;
            if is_update
                && (incidents.reference(Seq(incident.first)).is_none() || incidents.leave_out(&incident).is_some())
            {
                continue;
            }
            assert!(seq.0 > cursor && sent.last().is_none_or(|(last, ..)| *last < seq.0), "{seq} is out of order");
            cursors.push((sent.len(), seq.0 - 1, kept(incidents)));
            if incident.digest.is_empty() {
                incidents.know(message(&incident));
            }
            cursors.push((sent.len() + 1, seq.0, kept(incidents)));
            sent.push((seq.0, incident, is_update));
        }
        cursors.push((sent.len(), incidents.settled().0, kept(incidents)));
    };
    for seq in begin..=log.len() as u64 {
        let one = log[usize::try_from(seq).unwrap() - 1].1.as_ref();
        step(&mut incidents, time(seq), seq, one, Instant::now());
        incidents.position = Seq(seq);
        if seq.is_multiple_of(by) {
            drain(&mut incidents);
        }
    }
    incidents.close();
    drain(&mut incidents);
    cursors.retain(|(_, at, _)| *at >= cursor.max(1));
    (sent, cursors)
}

fn kept(incidents: &Incidents) -> Vec<Message> {
    incidents.messages.values().cloned().collect()
}

fn message(incident: &Incident) -> Message {
    Message {
        incident: incident.key.clone(),
        first: Seq(incident.first),
        last: Seq(incident.last),
        entries: incident.count,
        reference: Some(incident.first.to_string()),
    }
}

/// Messages as the journal has them after so much was sent.
fn known(sent: &[(u64, Incident, bool)]) -> Vec<Message> {
    let own = sent.iter().filter(|(_, incident, _)| incident.digest.is_empty());
    let newest: BTreeMap<u64, Message> = own.map(|(_, incident, _)| (incident.first, message(incident))).collect();
    newest.into_values().collect()
}

/// Places, firsts, counts and lasts of updates.
fn updates(sent: &Sent) -> Vec<(u64, u64, u64, u64)> {
    let updates = sent.iter().filter(|(.., is_update)| *is_update);
    updates.map(|(place, one, _)| (*place, one.first, one.count, one.last)).collect()
}

#[test]
fn each_window_in_which_an_incident_goes_on_ends_with_an_update() {
    for (what, digest, entries, expected) in [
        ("one that ends in its window", 10, &[(5, 0, "a"), (6, 0, "a")][..], vec![]),
        ("one window", 10, &[(5, 0, "a"), (12, 0, "a"), (13, 0, "a")], vec![(3, 1, 3, 3)]),
        (
            "several",
            10,
            &[(5, 0, "a"), (6, 0, "a"), (12, 0, "a"), (70, 0, "a"), (130, 0, "a")],
            vec![(3, 1, 3, 3), (4, 1, 4, 4), (5, 1, 5, 5)],
        ),
        ("another one of the same key", 10, &[(5, 0, "a"), (66, 0, "a"), (71, 0, "a")], vec![(3, 2, 2, 3)]),
        (
            "in the order of their last entries",
            10,
            &[(5, 0, "a"), (6, 0, "b"), (11, 0, "a"), (12, 0, "b"), (13, 0, "a")],
            vec![(4, 2, 2, 4), (5, 1, 3, 5)],
        ),
        ("beside one that begins", 10, &[(5, 0, "a"), (11, 0, "a"), (12, 0, "b"), (13, 0, "a")], vec![(4, 1, 3, 4)]),
        (
            "those of a digest are not updated",
            1,
            &[(5, 0, "a"), (6, 1, "b"), (11, 1, "b"), (12, 0, "a")],
            vec![(4, 1, 2, 4)],
        ),
    ] {
        let (sent, _) = run(&log(entries), &updating(digest), 0, &[]);
        assert_eq!(updates(&sent), expected, "{what}");
        let firsts: Vec<Incident> = sent.into_iter().filter(|(.., is)| !is).map(|(_, incident, _)| incident).collect();
        assert_eq!(firsts, all(&log(entries), &notify(digest)), "{what}: first messages are as without updates");
    }
}

/// Who asked for the first entry of an incident is known later: its message ends with the ACTOR, which counts as no entry.
#[test]
fn an_incident_goes_on_with_the_actor_of_its_first_entry() {
    type Told = (u64, u64, u64, u64, bool);
    type Case = (&'static str, &'static [(i64, usize, &'static str)], Vec<Told>);
    let cases: [Case; 7] = [
        ("in the window of the first message", &[(5, 0, "a"), (6, 9, "=1")], vec![(1, 1, 1, 2, false)]),
        ("later", &[(5, 0, "a"), (18, 9, "=1")], vec![(1, 1, 1, 1, false), (2, 1, 1, 2, true)]),
        (
            "with more entries, before and after it",
            &[(5, 0, "a"), (11, 0, "a"), (18, 9, "=1"), (19, 0, "a")],
            vec![(1, 1, 1, 1, false), (4, 1, 3, 4, true)],
        ),
        ("when it is over", &[(5, 0, "a"), (500, 9, "=1")], vec![(1, 1, 1, 1, false), (2, 1, 1, 2, true)]),
        ("of another entry", &[(5, 0, "a"), (6, 0, "a"), (18, 9, "=2")], vec![(1, 1, 2, 2, false)]),
        (
            "beside one that begins",
            &[(5, 0, "a"), (18, 9, "=1"), (19, 1, "b")],
            vec![(1, 1, 1, 1, false), (2, 1, 1, 2, true), (3, 3, 1, 3, false)],
        ),
        ("of no incident", &[(5, 0, "a"), (18, 9, "=7")], vec![(1, 1, 1, 1, false)]),
    ];
    for (what, entries, expected) in cases {
        let (sent, _) = run(&log(entries), &updating(10), 0, &[]);
        let told: Vec<Told> =
            sent.iter().map(|(place, one, is)| (*place, one.first, one.count, one.last, *is)).collect();
        assert_eq!(told, expected, "{what}");
        assert!(sent.iter().all(|(_, one, _)| !one.key.contains('=')), "{what}: {sent:?}");
        let firsts: Vec<Told> = expected.into_iter().filter(|one| !one.4).collect();
        let without = all(&log(entries), &notify(10));
        assert_eq!(without.len(), firsts.len(), "{what}: without updates");
    }
}

/// A replica that takes over without the messages of the first one, or whose receiver gave none a name, sends nothing for it.
#[test]
fn nothing_is_sent_for_a_message_that_is_not_known() {
    let log = log(&[(5, 0, "a"), (6, 0, "b"), (15, 0, "a"), (25, 0, "a"), (26, 0, "b"), (36, 0, "c"), (45, 0, "c")]);
    let of_b = Message { incident: "0/b".to_owned(), ..message(&selected(2, 0, "b").incident) };
    let (sent, _) = run(&log, &updating(10), 3, &[of_b]);
    assert_eq!(updates(&sent), [(5, 2, 2, 5), (7, 6, 2, 7)]);
    assert_eq!(sent.len(), 3);
}

/// A name of before a restart is for the incident that it was given to, and for none that comes later.
#[test]
fn an_incident_that_began_after_the_message_is_not_taken_for_it() {
    // Of the second incident of a, which begins at 3, the receiver gave no name.
    let log = log(&[(5, 0, "a"), (30, 0, "b"), (70, 0, "a"), (80, 0, "a"), (91, 0, "a")]);
    let of_a = message(&selected(1, 0, "a").incident);
    let (sent, _) = run(&log, &updating(10), 3, &[of_a]);
    assert_eq!(updates(&sent), []);
}

/// Wherever a daemon ended, the next one goes on with the same messages and the same updates, however long ago an incident began: the
/// cursor and the messages are all that it has.
#[test]
fn wherever_a_daemon_ended_the_receiver_has_the_same_in_the_end() {
    let mut random = 88_172_645_463_325_252_u64;
    let mut next = |sides: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % sides
    };
    let (mut ends, mut longest) = (0, 0);
    for digest in [1, 2, 5, 100] {
        let (mut time, mut seq) = (1000, 0_u64);
        let log: Log = (0..400)
            .map(|_| {
                time += i64::try_from(next(8)).unwrap() * i64::from(next(3) == 0) + 40 * i64::from(next(80) == 0);
                seq += 1;
                let actor = (next(6) == 0).then(|| (9, format!("={}", 1 + seq.saturating_sub(next(8)))));
                let one = (next(3) > 0).then(|| (usize::try_from(next(2)).unwrap(), next(6).to_string()));
                (time, actor.or(one))
            })
            .collect();
        let notify = updating(digest);
        let (whole, cursors) = run(&log, &notify, 0, &[]);
        let of_log = |incident: &Incident, upto: u64| {
            let keys = (incident.first..=upto).filter(|seq| {
                let (_, one) = &log[usize::try_from(*seq).unwrap() - 1];
                one.as_ref().is_some_and(|(rule, object)| format!("{rule}/{object}") == incident.key)
            });
            keys.count() as u64
        };
        for (_, incident, _) in whole.iter().filter(|(_, incident, _)| incident.digest.is_empty()) {
            assert_eq!(incident.count, of_log(incident, incident.last), "{incident:?}");
            let time = |seq: u64| log[usize::try_from(seq).unwrap() - 1].0;
            longest = longest.max(time(incident.last) - time(incident.first));
        }
        assert!(updates(&whole).len() > 20 || digest == 1, "{} updates with {digest}", updates(&whole).len());
        for (count, cursor) in cursors {
            ends += 1;
            let (rest, _) = run(&log, &notify, cursor, &known(&whole[..count]));
            let first = rest.iter().zip(&whole[count..]).find(|(found, expected)| found != expected);
            assert!(first.is_none(), "after {cursor} with {digest}: {first:?}");
            assert_eq!(rest.len(), whole.len() - count, "after {cursor} with {digest}");
        }
    }
    // Longer than what is read again.
    assert!(ends > 2000 && longest > 200, "{ends} ends, the longest incident took {longest} s");
}

/// Who is behind sends fewer updates, and the receiver has the same in the end, wherever that daemon ended.
#[test]
fn who_is_behind_sends_fewer_updates_to_the_same_end() {
    let log: Log = (0..300_i64)
        .map(|at| {
            let object = match at {
                _ if at % 7 == 0 => "a",
                _ if at % 5 == 0 => "b",
                _ if at % 41 < 9 => "c",
                _ => return (at * 3, None),
            };
            (at * 3, Some((0, object.to_owned())))
        })
        .collect();
    let notify = updating(10);
    let end = |sent: &[&(u64, Incident, bool)]| -> BTreeMap<u64, (u64, u64)> {
        sent.iter().map(|(_, one, _)| (one.first, (one.count, one.last))).collect()
    };
    let (whole, _) = run(&log, &notify, 0, &[]);
    let expected = end(&whole.iter().collect::<Vec<_>>());
    for by in [10, 60, 300] {
        let (sent, cursors) = behind(&log, &notify, 0, &[], by);
        let firsts = sent.iter().filter(|(.., is_update)| !is_update).count();
        assert!(updates(&sent).len() < updates(&whole).len() && firsts == expected.len(), "{by}: {sent:?}");
        assert_eq!(end(&sent.iter().collect::<Vec<_>>()), expected, "{by}");
        for (count, cursor, kept) in cursors {
            let (rest, _) = run(&log, &notify, cursor, &kept);
            let all: Vec<_> = sent[..count].iter().chain(&rest).collect();
            assert_eq!(end(&all), expected, "{by}: after {cursor}");
        }
    }
    // All at once: each message is followed by one update.
    let (sent, _) = behind(&log, &notify, 0, &[], 300);
    assert!(updates(&sent).len() <= expected.len(), "{:?}", updates(&sent));
}
