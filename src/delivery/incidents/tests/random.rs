//! A log with all that goes wrong with its times, read by a daemon that ends at any moment, and by the next one.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

/// Seqs of the GAPs of this sink alone, before the log.
const OWN: [u64; 4] = [3, 17, 18, 40];
/// Seq of the first entry that the log still has.
const BEGIN: u64 = 41;

/// Numbers that are the same at each run.
struct Random(u64);

impl Random {
    fn below(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }

    fn is_one_in(&mut self, sides: u64) -> bool {
        self.below(sides) == 0
    }

    fn span(&mut self, most: i64) -> i64 {
        i64::try_from(self.below(u64::try_from(most).unwrap())).unwrap()
    }
}

/// Defects of clocks and of logs.
#[derive(Clone, Copy, Debug, Default)]
struct Trouble {
    /// The clock is set, by seconds or an hour, back and ahead.
    steps: bool,
    /// Entries come to the log later than their windows end.
    late: bool,
    /// GAPs of this sink alone stand before the log.
    own: bool,
}

/// An entry, by the log's clock, and when it comes to the log by a clock that nobody sets.
struct Written {
    stamp: i64,
    comes: i64,
    /// How far the log's clock is from the other one then.
    ahead: i64,
    one: Option<(usize, String)>,
}

fn written(random: &mut Random, trouble: Trouble) -> Vec<Written> {
    let (mut now, mut ahead, mut comes) = (100_000 * SECOND, 0, 0);
    let entry = |_| {
        now += random.span(4) * SECOND * i64::from(random.is_one_in(3)) + 75 * SECOND * i64::from(random.is_one_in(40));
        now += random.span(SECOND / 4);
        if trouble.steps && random.is_one_in(30) {
            ahead = [-3600, -70, -4, -1, 0, 0, 2, 3600][usize::try_from(random.below(8)).unwrap()] * SECOND;
        }
        let late = if trouble.late && random.is_one_in(6) { random.span(12 * SECOND) } else { 0 };
        comes = (now + late).max(comes);
        let one =
            (!random.is_one_in(4)).then(|| (usize::try_from(random.below(2)).unwrap(), random.below(9).to_string()));
        Written { stamp: now + ahead, comes, ahead, one }
    };
    (0..160).map(entry).collect()
}

/// The daemon's way with the log: the messages, each with the entry after which the next daemon may begin, and what it knew.
struct Run {
    sent: Vec<(u64, BTreeSet<u64>, Incident)>,
    /// The last entries before those that were still to be sent, whenever it was asked.
    settled: BTreeSet<(usize, u64)>,
}

/// Reads the log from after `sent` on. `by_clock` says whether windows end between entries, as the clock has it.
fn run(log: &[Written], notify: &Notify, sent: u64, own: bool, by_clock: bool) -> Run {
    let mut incidents = Incidents::new(notify.clone());
    let stamp = |seq: u64| log[usize::try_from(seq - BEGIN).unwrap()].stamp;
    let head = BEGIN + log.len() as u64 - 1;
    let position = if sent < BEGIN { sent } else { last_before(log, sent, incidents.looks_back_to(stamp(sent))) };
    incidents.begin(Seq(position), Seq(sent));
    let began = Instant::now();
    let at = |comes: i64| began + Duration::from_micros(u64::try_from(comes - log[0].comes).unwrap());
    let mut run = Run { sent: Vec::new(), settled: BTreeSet::new() };
    if own {
        for seq in OWN.into_iter().filter(|seq| *seq > position) {
            incidents.take_own(selected(seq, 0, &format!("gap {seq}")), Bytes::new(), began);
            incidents.position = Seq(seq);
        }
    }
    for seq in position.max(BEGIN - 1) + 1..=head {
        let entry = &log[usize::try_from(seq - BEGIN).unwrap()];
        let one = entry.one.as_ref().map(|(rule, object)| selected(seq, *rule, object));
        incidents.take(entry.stamp, one, at(entry.comes));
        incidents.position = Seq(seq);
        let next = log.get(usize::try_from(seq - BEGIN).unwrap() + 1);
        if let Some(next) = next.filter(|_| by_clock) {
            let mut now = entry.comes;
            while now < next.comes {
                incidents.close_by_clock(Moment { clock: now + entry.ahead, now: at(now), is_whole: true });
                now += SECOND;
            }
        }
        drain(&mut incidents, &mut run);
    }
    incidents.close();
    drain(&mut incidents, &mut run);
    run
}

fn drain(incidents: &mut Incidents, run: &mut Run) {
    while let Some(begun) = incidents.ready.pop_front() {
        let seq = begun.seq.0;
        let members = begun.members.iter().map(|(seq, _)| seq.0);
        let members = if begun.members.is_empty() { [seq].into() } else { members.collect() };
        assert!(run.sent.last().is_none_or(|(last, ..)| *last < seq), "{seq} comes after {:?}", run.sent.last());
        run.sent.push((seq, members, begun.incident));
    }
    run.settled.insert((run.sent.len(), incidents.settled().0));
}

/// As the journal finds it, by bisection.
fn last_before(log: &[Written], upto: u64, time: i64) -> u64 {
    let (mut low, mut high) = (BEGIN - 1, upto);
    while low < high {
        let middle = (low + high).div_ceil(2);
        if log[usize::try_from(middle - BEGIN).unwrap()].stamp < time { low = middle } else { high = middle - 1 }
    }
    low
}

fn all(sent: &[(u64, BTreeSet<u64>, Incident)]) -> BTreeSet<u64> {
    sent.iter().flat_map(|(_, members, _)| members.iter().copied()).collect()
}

/// Wherever a daemon ended, the next one loses nothing, whatever is wrong with the times; and where nothing is wrong it goes on
/// with the same messages.
#[test]
fn wherever_a_daemon_ended_the_next_one_loses_nothing() {
    let mut random = Random(88_172_645_463_325_252);
    let (mut ends, mut wrong) = (0, BTreeMap::new());
    for trouble in [
        Trouble::default(),
        Trouble { own: true, ..Trouble::default() },
        Trouble { steps: true, ..Trouble::default() },
        Trouble { late: true, ..Trouble::default() },
        Trouble { steps: true, late: true, own: true },
    ] {
        for digest in [1, 2, 3, 100].repeat(3) {
            let log = written(&mut random, trouble);
            let notify = notify(digest);
            let live = run(&log, &notify, 0, trouble.own, true);
            let told = all(&live.sent);
            let without = run(&log, &notify, BEGIN - 1, false, true);
            let of_log = |run: &Run| -> Vec<Incident> {
                run.sent.iter().filter(|(seq, ..)| *seq >= BEGIN).map(|(_, _, incident)| incident.clone()).collect()
            };
            let kind = format!("{trouble:?}");
            if of_log(&live) != of_log(&without) {
                wrong
                    .entry(kind.clone())
                    .or_insert_with(|| format!("GAPs of this sink change messages, with {digest}"));
            }
            let after = (1..=live.sent.len()).map(|count| (count, live.sent[count - 1].0));
            // A server that refuses leaves the cursor just before what it refused.
            let refused = (1..live.sent.len()).map(|count| (count, live.sent[count].0 - 1));
            let settled =
                live.settled.iter().copied().filter(|(count, seq)| *count > 0 && *seq >= live.sent[count - 1].0);
            for (count, cursor) in after.chain(refused).chain(settled) {
                ends += 1;
                let next = run(&log, &notify, cursor, trouble.own, false);
                let rest = all(&next.sent);
                let had = all(&live.sent[..count]);
                let lost: Vec<&u64> = told.iter().filter(|seq| !had.contains(seq) && !rest.contains(seq)).collect();
                if !lost.is_empty() {
                    wrong.entry(kind.clone()).or_insert_with(|| format!("{lost:?} lost after {cursor}, with {digest}"));
                }
                let is_well = !trouble.late && !trouble.steps && !trouble.own;
                if is_well && next.sent[..] != live.sent[count..] {
                    wrong
                        .entry(kind.clone())
                        .or_insert_with(|| format!("other messages after {cursor}, with {digest}"));
                }
            }
        }
    }
    assert!(wrong.is_empty() && ends > 5000, "{ends} ends: {wrong:#?}");
}
