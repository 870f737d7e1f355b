//! Many candidates, one Lease, and a network that delays and loses as it likes: at no moment do two believe to lead, and
//! where all is well somebody does.
//!
//! The clocks of the candidates run at different speeds, within what the Lease allows (15 s to 10 s), and their wall clocks
//! differ by hours.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

use super::super::Leadership;
use super::super::machine::{Action, Machine, Now, Record, Timings};

const MILLI: u64 = 1000;
const SECOND: u64 = 1000 * MILLI;
/// As the driver gives up a request.
const LIMIT: Duration = Duration::from_secs(5);

/// Microseconds of the true time.
type Time = u64;

#[derive(Debug)]
enum Event {
    /// A candidate has something to do.
    Turn(usize),
    /// A request is at the API server.
    Arrives(usize, u64, Asked),
    /// Its answer is back.
    Answered(usize, u64, Answer),
    /// The candidate does not wait any more.
    Expires(usize, u64),
    Abstains(usize, bool),
}

#[derive(Clone, Debug)]
enum Asked {
    Read,
    /// Written on this version; none where the Lease is to be created.
    Write(Option<u64>, Record),
}

#[derive(Clone, Debug)]
enum Answer {
    Read(Option<(u64, Record)>),
    Wrote(Option<u64>),
}

struct Candidate {
    machine: Machine,
    /// Thousandths of the true speed.
    speed: u64,
    ahead: Duration,
    skew: SignedDuration,
    /// The number of the request under way.
    asking: Option<(u64, bool)>,
    version: Option<u64>,
    led: u64,
}

impl Candidate {
    fn now(&self, time: Time) -> Duration {
        self.ahead + Duration::from_micros(time * self.speed / 1000)
    }

    /// When its clock shows that.
    fn at(&self, now: Duration, earliest: Time) -> Time {
        let micros = u64::try_from((now.saturating_sub(self.ahead)).as_micros()).unwrap();
        (micros * 1000).div_ceil(self.speed).max(earliest)
    }
}

struct World {
    random: u64,
    time: Time,
    events: BTreeMap<(Time, u64), Event>,
    number: u64,
    /// The Lease and its version.
    lease: Option<(u64, Record)>,
    candidates: Vec<Candidate>,
    /// In thousandths: how many requests and answers are lost.
    lost: u64,
    /// At most.
    delay: Time,
}

impl World {
    fn new(seed: u64, candidates: usize, lost: u64, delay: Time) -> Self {
        let mut world = Self {
            random: seed,
            time: 0,
            events: BTreeMap::new(),
            number: 0,
            lease: None,
            candidates: Vec::new(),
            lost,
            delay,
        };
        for index in 0..candidates {
            let candidate = Candidate {
                machine: Machine::new(format!("candidate-{index}"), Timings::default()),
                // 1.2 is less than the 1.5 that the Lease allows for.
                speed: 900 + world.below(180),
                ahead: Duration::from_secs(world.below(100_000)),
                skew: SignedDuration::from_secs(i64::try_from(world.below(7200)).unwrap() - 3600),
                asking: None,
                version: None,
                led: 0,
            };
            world.candidates.push(candidate);
            let first = world.below(5 * SECOND);
            world.add(first, Event::Turn(index));
        }
        world
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound.max(1)
    }

    fn add(&mut self, time: Time, event: Event) {
        self.number += 1;
        self.events.insert((time, self.number), event);
    }

    /// On its way; nothing where it is lost. A delay may be longer than anybody waits.
    fn travels(&mut self) -> Option<Time> {
        if self.below(1000) < self.lost {
            return None;
        }
        let scale = [10 * MILLI, self.delay / 10 + 1, self.delay][usize::try_from(self.below(3)).unwrap()];
        Some(self.time + 1 + self.below(scale))
    }

    fn run(&mut self, until: Time) {
        while let Some(((time, _), event)) = self.events.pop_first() {
            if time > until {
                self.add(time, event);
                return;
            }
            let passed = time - self.time;
            self.time = time;
            match event {
                Event::Turn(index) => self.turn(index),
                Event::Abstains(index, abstains) => {
                    let now = self.candidates[index].now(time);
                    self.candidates[index].machine.abstain(abstains, now);
                    if self.candidates[index].asking.is_none() {
                        self.turn(index);
                    }
                }
                Event::Arrives(index, number, asked) => {
                    let answer = self.serve(asked);
                    if let Some(back) = self.travels() {
                        self.add(back, Event::Answered(index, number, answer));
                    }
                }
                Event::Answered(index, number, answer) => self.answered(index, number, Some(answer)),
                Event::Expires(index, number) => self.answered(index, number, None),
            }
            let mut leaders = 0;
            for candidate in &mut self.candidates {
                let now = candidate.now(time);
                candidate.machine.tick(now);
                if let Leadership::Leads { .. } = candidate.machine.leadership(now) {
                    leaders += 1;
                    candidate.led += passed;
                }
            }
            assert!(leaders <= 1, "{leaders} lead at {time} µs, and the Lease is {:?}", self.lease);
        }
    }

    fn serve(&mut self, asked: Asked) -> Answer {
        match asked {
            Asked::Read => Answer::Read(self.lease.clone()),
            Asked::Write(upon, record) => {
                if upon != self.lease.as_ref().map(|(version, _)| *version) {
                    return Answer::Wrote(None);
                }
                self.number += 1;
                self.lease = Some((self.number, record));
                Answer::Wrote(Some(self.number))
            }
        }
    }

    fn moment(&mut self, index: usize) -> Now {
        let jitter = self.below(u64::MAX);
        let candidate = &self.candidates[index];
        let clock = Timestamp::from_second(1_800_000_000).unwrap() + Duration::from_micros(self.time) + candidate.skew;
        Now { now: candidate.now(self.time), clock, jitter }
    }

    fn turn(&mut self, index: usize) {
        let at = self.moment(index);
        let candidate = &mut self.candidates[index];
        if candidate.asking.is_some() {
            return;
        }
        let asked = match candidate.machine.act(&at) {
            Action::Wait(until) => {
                let time = candidate.at(until, self.time + 1);
                return self.add(time, Event::Turn(index));
            }
            Action::Read => Asked::Read,
            Action::Create(record) => Asked::Write(None, record),
            Action::Write(record) => Asked::Write(candidate.version, record),
        };
        self.number += 1;
        let number = self.number;
        let candidate = &mut self.candidates[index];
        candidate.asking = Some((number, matches!(asked, Asked::Read)));
        let expires = candidate.at(at.now + LIMIT, self.time + 1);
        self.add(expires, Event::Expires(index, number));
        if let Some(there) = self.travels() {
            self.add(there, Event::Arrives(index, number, asked));
        }
    }

    fn answered(&mut self, index: usize, number: u64, answer: Option<Answer>) {
        let at = self.moment(index);
        let candidate = &mut self.candidates[index];
        let Some((_, reading)) = candidate.asking.filter(|(asking, _)| *asking == number) else { return };
        candidate.asking = None;
        match answer {
            Some(Answer::Read(lease)) => {
                candidate.version = lease.as_ref().map(|(version, _)| *version);
                candidate.machine.read(&at, Ok(lease.map(|(_, record)| record)));
            }
            Some(Answer::Wrote(Some(version))) => {
                candidate.version = Some(version);
                candidate.machine.wrote(&at, true);
            }
            None if reading => candidate.machine.read(&at, Err(())),
            Some(Answer::Wrote(None)) | None => candidate.machine.wrote(&at, false),
        }
        self.turn(index);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]
    #[test]
    fn two_never_believe_to_lead_and_where_all_is_well_somebody_does(
        seed in any::<u64>(), candidates in 2_usize..5, lost in 0_u64..300, delay in 1_u64..40,
    ) {
        let mut world = World::new(seed, candidates, lost, delay * SECOND);
        for _ in 0..world.below(12) {
            let (time, whose) = (world.below(600 * SECOND), usize::try_from(world.below(candidates as u64)).unwrap());
            world.add(time, Event::Abstains(whose, true));
            let end = time + world.below(60 * SECOND);
            world.add(end, Event::Abstains(whose, false));
        }
        world.run(600 * SECOND);
        // Calm: what is still on its way may take as long as it did.
        (world.lost, world.delay) = (0, 20 * MILLI);
        for index in 0..candidates {
            world.add(world.time, Event::Abstains(index, false));
        }
        let calm = world.time.max(660 * SECOND) + 60 * SECOND;
        world.run(calm);
        let led: u64 = world.candidates.iter().map(|candidate| candidate.led).sum();
        world.run(calm + 60 * SECOND);
        let after: u64 = world.candidates.iter().map(|candidate| candidate.led).sum();
        prop_assert!(after - led > 55 * SECOND, "of the last minute, somebody led for {} ms", (after - led) / 1000);
    }
}
