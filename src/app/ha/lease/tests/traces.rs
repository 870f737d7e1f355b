//! The machine alone. A line of a trace is a time in milliseconds, a sign and what happens then:
//! `>` what it does, `<` the answer, `=` what it is, `!` what it is told.

use std::time::Duration;

use jiff::Timestamp;

use super::super::Leadership;
use super::super::machine::{Action, Machine, Now, Record, Timings};

/// HOLDER/TRANSITIONS/RENEWED/LASTS, of which the last may be left out.
fn record(text: &str) -> Record {
    let mut parts = text.split('/');
    let holder = parts.next().unwrap().to_owned();
    let transitions = parts.next().unwrap().parse().unwrap();
    let renewed = Timestamp::from_second(parts.next().unwrap().parse().unwrap()).unwrap();
    let lasts = parts.next().map_or(15, |lasts| lasts.parse().unwrap());
    Record {
        holder,
        lasts: Some(Duration::from_secs(lasts)),
        acquired: Some(renewed),
        renewed: Some(renewed),
        transitions,
    }
}

struct Trace {
    machine: Machine,
    at: Now,
    written: Option<Record>,
    reading: bool,
}

impl Trace {
    fn step(&mut self, sign: &str, rest: &str) -> Option<(String, String)> {
        let at = self.at;
        match sign {
            ">" => {
                let act = match self.machine.act(&at) {
                    Action::Wait(until) => format!("wait {}", until.as_millis()),
                    Action::Read => {
                        self.reading = true;
                        "read".to_owned()
                    }
                    Action::Create(record) => format!("create {}", self.written(record)),
                    Action::Write(record) => format!("write {}", self.written(record)),
                };
                Some((act, rest.to_owned()))
            }
            "<" if self.reading => {
                self.reading = false;
                let answer = match rest {
                    "fails" => Err(()),
                    "none" => Ok(None),
                    "ours" => Ok(self.written.clone()),
                    text => Ok(Some(record(text))),
                };
                self.machine.read(&at, answer);
                None
            }
            "<" => {
                self.machine.wrote(&at, rest == "done");
                None
            }
            "!" => {
                self.machine.abstain(rest == "abstain", at.now);
                None
            }
            "=" => {
                self.machine.tick(at.now);
                let leadership = match self.machine.leadership(at.now) {
                    Leadership::Unknown => "unknown".to_owned(),
                    Leadership::Follows { holder } => format!("follows {}", holder.as_deref().unwrap_or("nobody")),
                    Leadership::Leads { transitions } => format!("leads {transitions}"),
                };
                Some((leadership, rest.to_owned()))
            }
            _ => panic!("{sign}"),
        }
    }

    fn written(&mut self, record: Record) -> String {
        self.reading = false;
        let holder = if record.holder.is_empty() { "nobody" } else { &record.holder };
        let text = format!("{holder} {} {}s", record.transitions, record.lasts.unwrap().as_secs());
        self.written = Some(record);
        text
    }
}

fn follow(name: &str, trace: &str) {
    let mut machine = Trace {
        machine: Machine::new("me".to_owned(), Timings::default()),
        at: Now { now: Duration::ZERO, clock: Timestamp::UNIX_EPOCH, jitter: 0 },
        written: None,
        reading: false,
    };
    for line in trace.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let mut parts = line.splitn(3, ' ');
        let millis = parts.next().unwrap().parse().unwrap();
        machine.at.now = Duration::from_millis(millis);
        machine.at.clock = Timestamp::from_second(1_800_000_000).unwrap() + machine.at.now;
        if let Some((found, expected)) = machine.step(parts.next().unwrap(), parts.next().unwrap()) {
            assert_eq!(found, expected, "{name}: {line}");
        }
    }
}

#[test]
fn what_a_candidate_does() {
    for (name, trace) in [
        (
            "there is no Lease: it is created, and renewed every two seconds",
            "0 = unknown
             0 > read
             5 < none
             5 = follows nobody
             5 > create me 0 15s
             9 < done
             9 = leads 0
             9 > wait 2005
             2005 > write me 0 15s
             2010 < done
             2010 = leads 0
             2010 > wait 4005",
        ),
        (
            "somebody has it: it is looked at, and taken when it has not changed for as long as it lasts",
            "0 > read
             10 < other/3/77
             10 = follows other
             10 > wait 510
             510 > read
             900 < other/3/79
             900 > wait 1400
             1400 > read
             15899 < other/3/79
             15899 = follows other
             15899 > wait 16399
             16399 = follows nobody
             16399 > read
             16400 < other/3/79
             16400 > write me 4 15s
             16410 < done
             16410 = leads 4",
        ),
        (
            "its holder's clock is an hour ahead: no matter",
            "0 > read
             0 < other/0/1800003600
             0 > wait 500
             500 > read
             15000 < other/0/1800003600
             15000 > write me 1 15s",
        ),
        (
            "or behind",
            "0 > read
             0 < other/0/1799996400
             0 = follows other
             0 > wait 500
             500 > read
             14999 < other/0/1799996400
             14999 = follows other
             14999 > wait 15499",
        ),
        (
            "it lasts for a year, says somebody: one minute",
            "0 > read
             0 < other/0/1/31536000
             0 > wait 500
             59999 = follows other
             60000 = follows nobody",
        ),
        (
            "it was given back: it is taken at once",
            "0 > read
             0 < /7/9/1
             0 = follows nobody
             0 > write me 8 15s
             3 < done
             3 = leads 8",
        ),
        (
            "somebody else was first",
            "0 > read
             0 < /7/9/1
             0 > write me 8 15s
             3 < fails
             3 = follows nobody
             3 > wait 503
             503 > read
             505 < other/8/10
             505 = follows other
             505 > wait 1005",
        ),
        (
            "the answer to a renewal is lost: it is read and renewed again",
            "0 > read
             0 < none
             0 > create me 0 15s
             0 < done
             2000 > write me 0 15s
             7000 < fails
             7000 = leads 0
             7000 > wait 7500
             7500 > read
             7510 < ours
             7510 > write me 0 15s
             7520 < done
             17509 = leads 0
             17510 = follows nobody",
        ),
        (
            "the answer to the first write is lost: it is ours all the same, and went to nobody else",
            "0 > read
             0 < other/4/1
             0 > wait 500
             16000 > read
             16001 < other/4/1
             16001 > write me 5 15s
             21001 < fails
             21501 > read
             21502 < ours
             21502 = follows nobody
             21502 > write me 5 15s
             21503 < done
             21503 = leads 5",
        ),
        (
            "the API server is slow beyond the deadline: it ends at the deadline, counted from before the last renewal",
            "0 > read
             0 < none
             0 > create me 0 15s
             4000 < done
             4000 = leads 0
             4000 > write me 0 15s
             8000 < fails
             8500 > read
             9999 = leads 0
             10000 = follows nobody
             12000 < ours
             12000 = follows nobody
             12000 > write me 0 15s
             12100 < done
             12100 = leads 0",
        ),
        (
            "an answer that comes after its own deadline makes nobody lead",
            "0 > read
             0 < none
             0 > create me 0 15s
             10000 < done
             10000 = follows nobody",
        ),
        (
            "somebody took it while we could not renew",
            "0 > read
             0 < none
             0 > create me 0 15s
             0 < done
             2000 > write me 0 15s
             2001 < fails
             2501 > read
             2502 < other/1/5
             2502 = follows other
             2502 > wait 3002",
        ),
        (
            "it abstains: it does not lead from then on, and gives it back",
            "0 > read
             0 < none
             0 > create me 0 15s
             0 < done
             700 ! abstain
             700 = follows nobody
             700 > write nobody 0 1s
             710 < done
             710 = follows nobody
             2700 > read
             2701 < ours
             2701 > wait 3201
             3201 > read
             3202 < other/1/5
             3202 = follows other
             3202 > wait 3702
             3300 ! stand
             3300 > read
             3301 < other/1/6
             3301 > wait 3801",
        ),
        (
            "it abstains while a renewal is under way: what came too late is given back",
            "0 > read
             0 < none
             0 > create me 0 15s
             0 < done
             2000 > write me 0 15s
             2001 ! abstain
             2001 = follows nobody
             2100 < done
             2100 = follows nobody
             2100 > write nobody 0 1s",
        ),
        (
            "giving back fails: it is read and given back again",
            "0 > read
             0 < none
             0 > create me 0 15s
             0 < done
             1 ! abstain
             1 > write nobody 0 1s
             2 < fails
             2 > wait 502
             502 > read
             503 < me/0/1800000000
             503 > write nobody 0 1s",
        ),
        (
            "an earlier process had the name: it is taken at once, and is a transition",
            "0 > read
             0 < me/3/7
             0 = follows me
             0 > write me 4 15s
             1 < done
             1 = leads 4",
        ),
        (
            "somebody else has the name: one of them leads",
            "0 > read
             0 < none
             0 > create me 0 15s
             0 < done
             2000 > write me 0 15s
             2001 < fails
             2501 > read
             2502 < me/1/5
             2502 = follows me
             2502 > wait 3002",
        ),
        (
            "the Lease cannot be read: nobody knows anything, and it is asked again",
            "0 > read
             9 < fails
             9 = unknown
             9 > wait 509
             509 > read
             510 < fails
             510 = unknown",
        ),
        (
            "the Lease is deleted under who leads",
            "0 > read
             0 < none
             0 > create me 0 15s
             0 < done
             2000 > write me 0 15s
             2001 < fails
             2501 > read
             2502 < none
             2502 = follows nobody
             2502 > create me 0 15s",
        ),
    ] {
        follow(name, trace);
    }
}

/// A renewal is a change also where the clock is set back to what it showed.
#[test]
fn each_renewal_differs() {
    let mut machine = Machine::new("me".to_owned(), Timings::default());
    let mut at = Now { now: Duration::ZERO, clock: Timestamp::UNIX_EPOCH, jitter: 0 };
    assert_eq!(machine.act(&at), Action::Read);
    machine.read(&at, Ok(None));
    let Action::Create(mut before) = machine.act(&at) else { panic!() };
    for _ in 0..5 {
        machine.wrote(&at, true);
        at.now += Duration::from_secs(2);
        let Action::Write(renewed) = machine.act(&at) else { panic!() };
        assert_ne!(renewed, before);
        before = renewed;
    }
}
