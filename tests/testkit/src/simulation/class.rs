//! What a seed is about: each class of simulations has its own kinds of faults, sinks and length.

use std::collections::BTreeSet;

use super::faults::Fault;
use crate::dice::Dice;

/// Of so many seeds one moves large objects, which takes as long as many others.
const RARELY: u64 = 500;

/// So many sources have an object at the limit at the same time.
pub const LARGE: usize = 36;

/// A class of simulations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Everything that the network, the API server, the disk, the process and receivers do.
    Mixed,
    /// State directories and outputs that are put back, lost and away.
    Timeline,
    /// One output for several who write.
    Writers,
    /// Sinks that hang when decklog starts.
    Starts,
    /// API servers that behave in one odd way all the time.
    Servers,
    /// API servers that are away for long.
    Outages,
    /// Scopes that go and come back.
    Scopes,
    /// Many large objects at once.
    Large,
}

impl Class {
    pub const ALL: [Self; 8] = [
        Self::Mixed,
        Self::Timeline,
        Self::Writers,
        Self::Starts,
        Self::Servers,
        Self::Outages,
        Self::Scopes,
        Self::Large,
    ];

    /// Of twenty seeds in a row, so many are of each class, but for the one that is rare.
    pub const fn of(seed: u64) -> Self {
        match seed % 20 {
            _ if seed % RARELY == 17 => Self::Large,
            1 | 5 | 9 | 12 | 15 | 18 => Self::Timeline,
            3 | 13 => Self::Servers,
            6 | 16 => Self::Writers,
            7 => Self::Starts,
            8 => Self::Outages,
            11 => Self::Scopes,
            _ => Self::Mixed,
        }
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::Mixed => "mixed",
            Self::Timeline => "timeline",
            Self::Writers => "writers",
            Self::Starts => "starts",
            Self::Servers => "servers",
            Self::Outages => "outages",
            Self::Scopes => "scopes",
            Self::Large => "large",
        }
    }

    /// At least so many events happen in what is watched.
    pub const fn events(self) -> usize {
        match self {
            Self::Mixed => 500,
            Self::Timeline => 150,
            Self::Writers | Self::Servers | Self::Scopes => 120,
            Self::Starts | Self::Outages => 60,
            Self::Large => LARGE,
        }
    }

    /// The names of its sinks, in the order of the configuration; none where they are those with receivers.
    pub fn sinks(self, dice: &mut Dice, enabled: &BTreeSet<Fault>) -> Vec<String> {
        let mut sinks: Vec<String> = match self {
            Self::Timeline | Self::Writers => ["file", "table", "plain"].map(str::to_owned).to_vec(),
            Self::Starts => {
                let dead = (1..=dice.between(3, 20)).map(|number| format!("dead-{number}"));
                dead.chain(["file", "plain"].map(str::to_owned)).collect()
            }
            Self::Large => vec!["plain".to_owned()],
            Self::Mixed | Self::Servers | Self::Outages | Self::Scopes => return Vec::new(),
        };
        if enabled.contains(&Fault::SharedBySinks) {
            sinks.push("table-too".to_owned());
        }
        let first = dice.roll(sinks.len());
        sinks.rotate_left(first);
        sinks
    }

    /// The faults of a seed.
    pub fn faults(self, dice: &mut Dice, clean: bool) -> BTreeSet<Fault> {
        use Fault as F;
        // (always, one of these, each with some chance)
        let (always, one, some): (&[F], &[F], &[F]) = match self {
            Self::Mixed => return mixed(dice, clean),
            Self::Timeline => (
                &[],
                &[F::PutBack, F::PutBackAgain, F::PutBackUnseen, F::StateLost, F::OutputReplaced, F::OutputPutBack],
                &[
                    F::PutBack,
                    F::PutBackAgain,
                    F::PutBackUnseen,
                    F::StateLost,
                    F::LostInThePast,
                    F::OutputPutBack,
                    F::OutputOlder,
                    F::OutputEmptied,
                    F::OutputReplaced,
                    F::OutputAway,
                    F::OutputHangs,
                    F::Crash,
                    F::Stop,
                    F::TornTail,
                    F::Reset,
                    F::CutAfterLine,
                    F::LostAnswer,
                    F::SinkFails,
                    F::SinkPartial,
                    F::Compaction,
                    F::RestartEmpty,
                ],
            ),
            Self::Writers => (
                &[],
                &[F::SharedBySinks, F::SharedByCopies],
                &[F::Crash, F::Stop, F::LostAnswer, F::SinkFails, F::Reset, F::TornTail],
            ),
            Self::Starts => (&[F::OutputHangs, F::Stop], &[F::OutputAway, F::Crash], &[F::OutputAway, F::Crash]),
            Self::Servers => (
                &[],
                &[F::EndsEarly, F::FreshBookmark, F::Opaque, F::PagesDiffer],
                &[F::Crash, F::Stop, F::Reset, F::CutAfterLine, F::Restart, F::RestartEmpty, F::SinkPartial],
            ),
            Self::Outages => (&[F::LongOutage], &[F::Stop, F::SinkPartial], &[F::Stop, F::Crash, F::RestartEmpty]),
            Self::Scopes => (
                &[F::DropsRepeats],
                &[F::Selector, F::Undefined, F::Redefined],
                &[F::Selector, F::Undefined, F::Redefined, F::Crash, F::Stop, F::Reset, F::Compaction, F::LostAnswer],
            ),
            Self::Large => (&[F::AtLimit], &[], &[]),
        };
        let mut enabled: BTreeSet<F> = always.iter().copied().collect();
        let one: Vec<F> = one.iter().copied().filter(|fault| fault.is_on()).collect();
        if !one.is_empty() {
            enabled.insert(*dice.pick(&one));
        }
        // What is not on throws no dice, so that it moves nothing.
        enabled.extend(some.iter().copied().filter(|fault| fault.is_on() && dice.percent(40)));
        enabled.retain(|fault| fault.is_on());
        enabled
    }
}

/// What the classes of their own have is theirs.
fn mixed(dice: &mut Dice, clean: bool) -> BTreeSet<Fault> {
    let none = dice.percent(4);
    // Few kinds at a time leave room for each of them; sometimes all come together.
    let share = *dice.pick(&[15, 35, 60, 100]);
    let enabled = Fault::ALL.iter().copied().filter(|fault| fault.is_on()).filter(|fault| {
        let chosen = dice.percent(share);
        chosen && !none && *fault < Fault::PutBack && !(clean && fault.may_lose())
    });
    enabled.collect()
}
