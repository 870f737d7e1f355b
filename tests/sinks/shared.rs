//! What every engine of the shared log has to do. Here for those that have a server, and in `src/sink/s3/tests/logs.rs` for a folder.

use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::future::join;
use tokio::sync::watch;
use tokio::time::{interval, timeout};

use super::shared_log::{Appended, Base, Extent, LogError, Numbered, PART_BYTES, SharedLog};

/// Within this time everybody sees what was appended.
const SOON: Duration = Duration::from_secs(10);

/// Where logs are kept.
pub(crate) trait Place {
    /// A handle of the log of a cluster, as a process has it that begins anew.
    fn open(&self, cluster: &str) -> Box<dyn SharedLog>;

    /// Removes the units from this number on, as one does who restores an earlier state.
    async fn forget(&self, cluster: &str, from: u64);

    /// Removes these units, as one does who deletes by mistake.
    async fn lose(&self, cluster: &str, units: &[u64]);

    /// Puts them back. Says whether the engine has a way to do that for single units.
    async fn put_back(&self, cluster: &str, units: &[u64]) -> bool;
}

/// What a unit says that one of several writers appends.
fn unit(number: u64, writer: &str) -> Bytes {
    let text = format!("{number} of {writer} ");
    let length = usize::try_from(number % 7).unwrap() * 300 + text.len();
    text.bytes().cycle().take(length).collect()
}

/// Bytes that nothing compresses.
fn noise(length: usize) -> Bytes {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64 ^ length as u64;
    let next = std::iter::from_fn(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        Some(state.to_le_bytes())
    });
    next.flatten().take(length).collect()
}

/// Does it until it is done: what may work later is tried again.
async fn done<T>(what: &str, mut work: impl AsyncFnMut() -> Result<T, LogError>) -> T {
    let mut ticks = interval(Duration::from_millis(20));
    let doing = async {
        loop {
            ticks.tick().await;
            match work().await {
                Ok(done) => return done,
                Err(LogError::Retry(_)) => {}
                Err(error) => panic!("{what}: {error:?}"),
            }
        }
    };
    timeout(Duration::from_mins(2), doing).await.unwrap_or_else(|_| panic!("{what}: waited in vain"))
}

async fn append(log: &mut Box<dyn SharedLog>, number: u64, bytes: &Bytes) -> Appended {
    done(&format!("unit {number}"), async || log.append(number, bytes.clone()).await).await
}

async fn extent(log: &mut Box<dyn SharedLog>) -> Extent {
    done("what is there", async || log.extent().await).await
}

/// Everything after a number, read in pieces of about so many bytes.
async fn rest(log: &mut Box<dyn SharedLog>, mut after: u64, bytes: usize) -> Vec<Numbered> {
    let mut units = Vec::new();
    loop {
        let some = done("the rest", async || log.read(after, bytes).await).await;
        let Some(last) = some.last() else { return units };
        after = last.number;
        units.extend(some);
    }
}

/// Looks again and again until it finds what it should, and then gives that, or what was there in the end. Whoever only reads may
/// see what was appended a moment later.
async fn soon<T>(mut look: impl AsyncFnMut() -> T, is_it: impl Fn(&T) -> bool) -> T {
    let mut ticks = interval(Duration::from_millis(5));
    let mut found = look().await;
    let looking = async {
        while !is_it(&found) {
            ticks.tick().await;
            found = look().await;
        }
    };
    // What it should be is for who asked to say.
    timeout(SOON, looking).await.ok();
    found
}

async fn extent_is(log: &mut Box<dyn SharedLog>, expected: &Extent) {
    assert_eq!(soon(async || extent(log).await, |found| found == expected).await, *expected);
}

pub(crate) async fn is_there(log: &mut Box<dyn SharedLog>, after: u64, units: &[(u64, Bytes)]) {
    let found = soon(async || rest(log, after, 5000).await, |found| found.len() >= units.len()).await;
    let numbers: Vec<u64> = found.iter().map(|unit| unit.number).collect();
    assert_eq!(numbers, units.iter().map(|(number, _)| *number).collect::<Vec<_>>());
    for (found, (number, bytes)) in found.iter().zip(units) {
        assert!(found.bytes == *bytes, "unit {number} has other bytes");
    }
}

/// A base in parts.
async fn base(log: &mut Box<dyn SharedLog>, number: u64, parts: &[Bytes]) {
    for (part, bytes) in (0..).zip(parts) {
        done("a part", async || log.put_part(number, part, bytes.clone()).await).await;
    }
    let whole = Base { number, parts: u32::try_from(parts.len()).unwrap() };
    done("the end of a base", async || log.finish_base(whole).await).await;
}

/// The clusters whose logs are looked at.
#[allow(dead_code, reason = "most places need nothing to be made for each")]
pub(crate) const CLUSTERS: [&str; 20] = [
    "follow",
    "bytes",
    "race",
    "lost",
    "bases",
    "truncated",
    "stood",
    "given-up",
    "latency",
    "hole-middle",
    "hole-base",
    "hole-first",
    "hole-late",
    "hole-long",
    "holes",
    "one",
    "one/two",
    "one two",
    "arn:aws:eks:eu-1:12:cluster/Größe",
    "..",
];

/// All of it, but for what needs something to break.
#[allow(dead_code, reason = "who is slow does it in two tests")]
pub(crate) async fn keeps_what_it_promises(place: &impl Place) {
    keeps_units(place).await;
    keeps_bases(place).await;
}

/// The half of it that is about units.
pub(crate) async fn keeps_units(place: &impl Place) {
    units_follow_each_other(place).await;
    every_byte_is_kept(place).await;
    one_of_two_gets_a_number(place).await;
    what_is_given_up_is_there_once(place).await;
}

/// The half of it that is about bases, and about what is lost.
pub(crate) async fn keeps_bases(place: &impl Place) {
    what_was_lost_is_noticed(place).await;
    a_hole_is_no_end(place).await;
    a_base_stands_for_units(place).await;
    what_a_base_stands_for_is_removed(place).await;
    who_stood_still_does_not_append(place).await;
    logs_are_apart(place).await;
}

async fn units_follow_each_other(place: &impl Place) {
    let mut log = place.open("follow");
    assert_eq!(log.check().await, Ok(()));
    extent_is(&mut log, &Extent::default()).await;
    assert_eq!(log.read(0, 1).await, Ok(Vec::new()));
    assert_eq!(append(&mut log, 2, &unit(2, "a")).await, Appended::Behind(0));
    let units: Vec<_> = (1..=9).map(|number| (number, unit(number, "a"))).collect();
    for (number, bytes) in &units {
        assert_eq!(append(&mut log, *number, bytes).await, Appended::Done);
        // An answer may have been lost.
        assert_eq!(append(&mut log, *number, bytes).await, Appended::Done);
    }
    assert_eq!(append(&mut log, 11, &unit(11, "a")).await, Appended::Behind(9));
    assert_eq!(append(&mut log, 4, &unit(4, "b")).await, Appended::Taken);
    assert_eq!(append(&mut log, 4, &unit(4, "a")).await, Appended::Done);
    for log in [&mut log, &mut place.open("follow")] {
        extent_is(log, &Extent { oldest: Some(1), newest: 9, bases: Vec::new() }).await;
        is_there(log, 0, &units).await;
        is_there(log, 6, &units[6..]).await;
        is_there(log, 9, &[]).await;
        let some = done("some", async || log.read(2, 1).await).await;
        assert_eq!(some.len(), 1, "one at least, and not all");
        let all = done("all", async || log.read(0, PART_BYTES).await).await;
        assert!(all.len() > 2, "{} of what goes into one read", all.len());
    }
    // Another one goes on.
    let mut other = place.open("follow");
    assert_eq!(append(&mut other, 10, &unit(10, "b")).await, Appended::Done);
    assert_eq!(append(&mut log, 10, &unit(10, "a")).await, Appended::Taken);
    assert_eq!(append(&mut log, 12, &unit(12, "a")).await, Appended::Behind(10));
}

async fn every_byte_is_kept(place: &impl Place) {
    let mut log = place.open("bytes");
    let every: Bytes = (0..=255).collect();
    let large = noise(5 << 20);
    let sizes =
        [Bytes::new(), Bytes::from_static(b"\0"), every, noise(70_000), large.clone(), Bytes::new(), noise(1 << 20)];
    let units: Vec<_> = (1..).zip(sizes).collect();
    for (number, bytes) in &units {
        assert_eq!(append(&mut log, *number, bytes).await, Appended::Done, "unit {number}");
        assert_eq!(append(&mut log, *number, bytes).await, Appended::Done, "unit {number} again");
    }
    let other = Bytes::from_static(b"x");
    assert_eq!(append(&mut log, 6, &other).await, Appended::Taken);
    let mut log = place.open("bytes");
    is_there(&mut log, 0, &units).await;
    assert_eq!(append(&mut log, 8, &large).await, Appended::Done);
}

async fn one_of_two_gets_a_number(place: &impl Place) {
    let (mut one, mut two) = (place.open("race"), place.open("race"));
    let mut won = Vec::new();
    for number in 1..=30 {
        let (first, second) = (unit(number, "one"), unit(number, "two"));
        let both = join(append(&mut one, number, &first), append(&mut two, number, &second)).await;
        won.push((
            number,
            match both {
                (Appended::Done, Appended::Taken) => first,
                (Appended::Taken, Appended::Done) => second,
                both => panic!("unit {number}: {both:?}"),
            },
        ));
        // Now and then the one who lost takes over.
        if number % 10 == 0 {
            let log = if won[won.len() - 1].1 == unit(number, "one") { &mut two } else { &mut one };
            done("the fence", async || log.fence().await).await;
        }
        // Who lost has read what is there, as whoever goes on does.
        for log in [&mut one, &mut two] {
            is_there(log, number - 1, &won[won.len() - 1..]).await;
        }
    }
    is_there(&mut place.open("race"), 0, &won).await;
}

async fn what_was_lost_is_noticed(place: &impl Place) {
    let mut log = place.open("lost");
    let mut units: Vec<_> = (1..=6).map(|number| (number, unit(number, "a"))).collect();
    for (number, bytes) in &units {
        assert_eq!(append(&mut log, *number, bytes).await, Appended::Done);
    }
    place.forget("lost", 5).await;
    assert_eq!(append(&mut log, 7, &unit(7, "a")).await, Appended::Behind(4));
    assert_eq!(extent(&mut log).await.newest, 4);
    is_there(&mut place.open("lost"), 0, &units[..4]).await;
    // Another one has gone on from there to where this one was: the number would fit.
    let mut other = place.open("lost");
    units.truncate(4);
    for number in 5..=6 {
        units.push((number, unit(number, "b")));
        assert_eq!(append(&mut other, number, &units[units.len() - 1].1).await, Appended::Done);
    }
    assert_eq!(append(&mut log, 7, &unit(7, "a")).await, Appended::Behind(5));
    is_there(&mut place.open("lost"), 0, &units).await;
    assert_eq!(append(&mut other, 7, &unit(7, "b")).await, Appended::Done);
    // What follows there does not follow what this one has. That is said once; who asks again compares it.
    let error = log.read(6, 1).await.unwrap_err();
    assert!(matches!(&error, LogError::Halt(text) if text.contains("another unit 6")), "{error}");
    is_there(&mut log, 6, &[(7, unit(7, "b"))]).await;
    is_there(&mut other, 5, &[(6, unit(6, "b")), (7, unit(7, "b"))]).await;
    // Everything is lost.
    place.forget("lost", 1).await;
    assert_eq!(append(&mut other, 8, &unit(8, "b")).await, Appended::Behind(0));
    extent_is(&mut other, &Extent::default()).await;
}

/// Units are missing in the middle: nobody takes what comes before them for the whole log, nobody gets their numbers, who has
/// come further goes on, and where they are there again everything is as it was.
async fn a_hole_is_no_end(place: &impl Place) {
    const NEWEST: u64 = 9;
    for (cluster, behind, lost) in [
        ("hole-middle", 0, &[4][..]),
        ("hole-base", 3, &[4]),
        ("hole-first", 0, &[1]),
        ("hole-late", 0, &[8]),
        ("hole-long", 2, &[4, 5, 6]),
        ("holes", 1, &[3, 5, 8]),
    ] {
        let mut log = place.open(cluster);
        let mut units: Vec<_> = (1..=NEWEST).map(|number| (number, unit(number, "a"))).collect();
        for (number, bytes) in &units {
            assert_eq!(append(&mut log, *number, bytes).await, Appended::Done);
        }
        if behind > 0 {
            base(&mut log, behind, &[Bytes::from_static(b"all before")]).await;
        }
        place.lose(cluster, lost).await;
        let before = units.iter().filter(|(number, _)| (behind + 1..lost[0]).contains(number));
        let before: Vec<_> = before.cloned().collect();
        // One that begins, and one that has everything before the hole.
        let (mut new, mut standby) = (place.open(cluster), place.open(cluster));
        let is_as_it_was = async |log: &mut Box<dyn SharedLog>| {
            let found = soon(async || extent(log).await, |found| found.newest == NEWEST).await;
            assert_eq!(found.newest, NEWEST, "{cluster}");
            assert_eq!(found.bases.last().map_or(0, |base| base.number), behind, "{cluster}");
            is_there(log, behind, &before).await;
        };
        is_as_it_was(&mut standby).await;
        for number in lost {
            for log in [&mut standby, &mut new] {
                assert_eq!(append(log, *number, &unit(*number, "b")).await, Appended::Taken, "{cluster} {number}");
            }
        }
        assert_eq!(append(&mut new, NEWEST + 2, &unit(NEWEST + 2, "b")).await, Appended::Behind(NEWEST), "{cluster}");
        for log in [&mut standby, &mut place.open(cluster)] {
            is_as_it_was(log).await;
        }
        // What is behind the hole is of the log, also for who has what is missing.
        let next = lost.iter().map(|number| number + 1).find(|number| !lost.contains(number)).unwrap();
        let found = done("what is behind", async || new.read(next, 1).await).await;
        let expected = units.iter().find(|(number, _)| *number == next + 1 && !lost.contains(number));
        assert_eq!(found.first().map(|unit| unit.number), expected.map(|(number, _)| *number), "{cluster}");
        let found = done("what is behind", async || new.read(next - 1, 1).await).await;
        assert_eq!(found.first().map(|unit| unit.number), Some(next), "{cluster}");
        // Who leads goes on.
        done("the fence", async || log.fence().await).await;
        units.push((NEWEST + 1, unit(NEWEST + 1, "a")));
        assert_eq!(append(&mut log, NEWEST + 1, &units[units.len() - 1].1).await, Appended::Done, "{cluster}");
        if place.put_back(cluster, lost).await {
            for log in [&mut standby, &mut place.open(cluster)] {
                is_there(log, behind, &units[usize::try_from(behind).unwrap()..]).await;
            }
            assert_eq!(append(&mut log, NEWEST + 2, &unit(NEWEST + 2, "a")).await, Appended::Done, "{cluster}");
        }
    }
}

async fn a_base_stands_for_units(place: &impl Place) {
    let mut log = place.open("bases");
    let units: Vec<_> = (1..=3).map(|number| (number, unit(number, "a"))).collect();
    for (number, bytes) in &units {
        append(&mut log, *number, bytes).await;
    }
    let parts = [noise(PART_BYTES), Bytes::new(), Bytes::from_static(b"the end")];
    for part in [0, 1] {
        let bytes = Bytes::from_static(b"something that is replaced");
        done("a part", async || log.put_part(2, part, bytes.clone()).await).await;
    }
    // Before it is whole it is nothing.
    assert!(extent(&mut log).await.bases.is_empty());
    assert!(log.part(2, 0).await.is_err());
    let unfinished = log.finish_base(Base { number: 2, parts: 3 }).await.unwrap_err();
    assert!(unfinished.to_string().contains("it has to be made again"), "{unfinished}");
    // Who makes one with the same number at the same time makes another one.
    let mut other = place.open("bases");
    done("a part", async || other.put_part(2, 2, Bytes::from_static(b"of another")).await).await;
    assert!(log.finish_base(Base { number: 2, parts: 3 }).await.is_err());
    base(&mut log, 2, &parts).await;
    base(&mut other, 2, &[Bytes::from_static(b"late")]).await;
    let bases = vec![Base { number: 2, parts: 3 }];
    for log in [&mut log, &mut place.open("bases")] {
        extent_is(log, &Extent { oldest: Some(1), newest: 3, bases: bases.clone() }).await;
        for (part, bytes) in (0..).zip(&parts) {
            assert!(done("a part", async || log.part(2, part).await).await == *bytes, "part {part} has other bytes");
        }
        assert!(log.part(2, 3).await.is_err());
        assert!(log.part(1, 0).await.is_err());
    }
    is_there(&mut log, 0, &units).await;
    assert_eq!(append(&mut log, 4, &unit(4, "a")).await, Appended::Done);
    // One that is ahead of all units: what was lost stands in it.
    base(&mut log, 20, &parts[2..]).await;
    let found = extent(&mut log).await;
    assert_eq!((found.newest, found.bases.len()), (20, 2));
    assert_eq!(append(&mut log, 5, &unit(5, "a")).await, Appended::Taken);
    assert_eq!(append(&mut log, 22, &unit(22, "a")).await, Appended::Behind(20));
    assert_eq!(append(&mut log, 21, &unit(21, "a")).await, Appended::Done);
    is_there(&mut place.open("bases"), 20, &[(21, unit(21, "a"))]).await;
}

async fn what_a_base_stands_for_is_removed(place: &impl Place) {
    let mut log = place.open("truncated");
    let mut units: Vec<_> = (1..=12).map(|number| (number, unit(number, "a"))).collect();
    // Of one that stays, and of one that goes, everything has to: some engines keep large ones in pieces.
    for at in [3, 8] {
        units[at].1 = noise(3 << 20);
    }
    for (number, bytes) in &units[..10] {
        assert_eq!(append(&mut log, *number, bytes).await, Appended::Done);
    }
    let truncate = async |log: &mut Box<dyn SharedLog>, upto: u64| {
        done("truncation", async || log.truncate(upto).await).await;
    };
    // Nothing stands for them yet.
    truncate(&mut log, 10).await;
    is_there(&mut log, 0, &units[..10]).await;
    let text = Bytes::from_static(b"all before");
    base(&mut log, 4, std::slice::from_ref(&text)).await;
    base(&mut log, 8, &[text.clone(), text.clone()]).await;
    done("a part of one that is never finished", async || log.put_part(6, 0, text.clone()).await).await;
    for (upto, floor) in [(3, 0), (6, 4), (8, 8), (8, 8), (100, 8)] {
        truncate(&mut log, upto).await;
        let bases = [Base { number: 4, parts: 1 }, Base { number: 8, parts: 2 }];
        let bases = bases.into_iter().filter(|base| base.number >= floor).collect();
        let found = Extent { oldest: Some(floor + 1), newest: 10, bases };
        for log in [&mut log, &mut place.open("truncated")] {
            extent_is(log, &found).await;
            is_there(log, floor, &units[usize::try_from(floor).unwrap()..10]).await;
            if floor > 0 {
                assert_eq!(log.read(floor - 1, 1).await, Ok(Vec::new()), "it is there no more");
            }
            assert_eq!(log.part(8, 1).await, Ok(text.clone()));
            assert_eq!(log.part(4, 0).await.is_ok(), floor < 8);
        }
    }
    assert_eq!(append(&mut log, 7, &unit(7, "b")).await, Appended::Taken);
    assert_eq!(append(&mut log, 11, &units[10].1).await, Appended::Done);
    // Nothing is left but a base.
    base(&mut log, 11, std::slice::from_ref(&text)).await;
    truncate(&mut log, 11).await;
    extent_is(&mut log, &Extent { oldest: None, newest: 11, bases: vec![Base { number: 11, parts: 1 }] }).await;
    assert_eq!(append(&mut place.open("truncated"), 12, &units[11].1).await, Appended::Done);
    is_there(&mut place.open("truncated"), 11, &units[11..]).await;
}

async fn who_stood_still_does_not_append(place: &impl Place) {
    let (mut old, mut new) = (place.open("stood"), place.open("stood"));
    for number in 1..=4 {
        assert_eq!(append(&mut old, number, &unit(number, "old")).await, Appended::Done);
    }
    for number in 5..=9 {
        assert_eq!(append(&mut new, number, &unit(number, "new")).await, Appended::Done);
    }
    base(&mut new, 9, &[Bytes::from_static(b"all before")]).await;
    done("truncation", async || new.truncate(9).await).await;
    // Its number is free, and it does not know better.
    for _ in 0..2 {
        assert_eq!(append(&mut old, 5, &unit(5, "old")).await, Appended::Taken);
    }
    assert_eq!(old.read(4, 1).await, Ok(Vec::new()));
    let found = extent(&mut new).await;
    assert_eq!((found.oldest, found.newest), (None, 9));
    assert_eq!(append(&mut new, 10, &unit(10, "new")).await, Appended::Done);
}

async fn logs_are_apart(place: &impl Place) {
    let names = ["one", "one/two", "one two", "arn:aws:eks:eu-1:12:cluster/Größe", ".."];
    for (at, name) in names.iter().enumerate() {
        let mut log = place.open(name);
        extent_is(&mut log, &Extent::default()).await;
        for number in 1..=3 {
            assert_eq!(append(&mut log, number, &unit(number, name)).await, Appended::Done, "{name}");
        }
        base(&mut log, 2, &[Bytes::copy_from_slice(name.as_bytes())]).await;
        if at == 0 {
            done("truncation", async || log.truncate(2).await).await;
        }
    }
    for (at, name) in names.iter().enumerate() {
        let mut log = place.open(name);
        let after = if at == 0 { 2 } else { 0 };
        let units: Vec<_> = (after + 1..=3).map(|number| (number, unit(number, name))).collect();
        is_there(&mut log, after, &units).await;
        assert_eq!(log.part(2, 0).await, Ok(Bytes::copy_from_slice(name.as_bytes())));
    }
}

/// Whoever asks gives up after some time, and the engine is used again.
async fn what_is_given_up_is_there_once(place: &impl Place) {
    let mut log = place.open("given-up");
    let units: Vec<_> = (1..=20).map(|number| (number, unit(number, "a"))).collect();
    for (number, bytes) in &units {
        for tries in 0.. {
            let patience = Duration::from_micros(300 << tries.min(17));
            match timeout(patience, log.append(*number, bytes.clone())).await {
                Ok(Ok(Appended::Done)) => break,
                Err(_) | Ok(Err(LogError::Retry(_))) => {}
                Ok(other) => panic!("unit {number}: {other:?}"),
            }
        }
    }
    is_there(&mut place.open("given-up"), 0, &units).await;
}

/// How many units are appended while something breaks.
const WHILE: u64 = 60;

/// Appends units through what breaks, which sees how far that is; then each is there once.
#[allow(dead_code, reason = "a folder has nothing that breaks")]
pub(crate) async fn lasts<B>(through: &impl Place, place: &impl Place, cluster: &str, breaks: B)
where
    B: AsyncFnOnce(&watch::Sender<u64>),
{
    lasts_with(|cluster| through.open(cluster), |cluster| place.open(cluster), cluster, breaks).await;
}

/// As [`lasts`], where what opens handles is not to hold what breaks.
#[allow(dead_code, reason = "a folder has nothing that breaks")]
pub(crate) async fn lasts_with<B>(
    through: impl Fn(&str) -> Box<dyn SharedLog>,
    place: impl Fn(&str) -> Box<dyn SharedLog>,
    cluster: &str,
    breaks: B,
) where
    B: AsyncFnOnce(&watch::Sender<u64>),
{
    let reached = watch::Sender::new(0);
    let units: Vec<_> = (1..=WHILE).map(|number| (number, unit(number, cluster))).collect();
    let appending = async {
        let mut log = through(cluster);
        for (number, bytes) in &units {
            assert_eq!(append(&mut log, *number, bytes).await, Appended::Done, "unit {number}");
            reached.send_replace(*number);
        }
    };
    join(appending, breaks(&reached)).await;
    let mut log = place(cluster);
    extent_is(&mut log, &Extent { oldest: Some(1), newest: WHILE, bases: Vec::new() }).await;
    is_there(&mut log, 0, &units).await;
}

/// Waits until so many units are appended.
#[allow(dead_code, reason = "a folder has nothing that breaks")]
pub(crate) async fn reach(reached: &watch::Sender<u64>, number: u64) {
    reached.subscribe().wait_for(|at| *at >= number).await.unwrap();
}

/// How long an append takes, of 1 KB and of 1 MB: the middle of several.
pub(crate) async fn latency(place: &impl Place) -> [Duration; 2] {
    let mut log = place.open("latency");
    let mut number = 0;
    let mut middle = Vec::new();
    for size in [1 << 10, 1 << 20] {
        let bytes = noise(size);
        let mut took = Vec::new();
        for _ in 0..21 {
            number += 1;
            let began = Instant::now();
            assert_eq!(append(&mut log, number, &bytes).await, Appended::Done);
            took.push(began.elapsed());
        }
        took.sort_unstable();
        middle.push(took[took.len() / 2]);
    }
    [middle[0], middle[1]]
}
