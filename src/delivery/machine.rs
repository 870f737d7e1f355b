//! The decisions of delivery as a pure state machine: no clock, no randomness, no I/O.
//!
//! One thing is under way at any time. Beside it the driver lets a move of the cursor go on, and a read of the next batch.
//! An input says how it went; the effects say what to do next, and the last of them brings the next input. The sink's output comes first and the cursor second: at no point is the cursor ahead of
//! what the sink has for good (invariant 5).

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Duration;

use super::settings::OnRefused;
use crate::core::model::Seq;
use crate::journal::SinkState;
use crate::sink::SinkError;

/// Event that the machine reacts to.
#[derive(Debug)]
pub(super) enum Input {
    /// The sink said what its output holds, and that was compared with the journal.
    Position(SinkOffset),
    /// The sink could not say it.
    PositionUnknown(SinkError),
    /// Entries were read up to `upto`, and those in `wanted` passed the filter. `due`: a cursor that only moves past
    /// unwanted entries may move now.
    Read { upto: Seq, wanted: Vec<Seq>, due: bool },
    /// There is nothing after what was read last.
    Nothing,
    /// An entry cannot be read.
    Unreadable(String),
    /// The sink has the whole batch.
    Delivered,
    /// The sink has the first `taken` of the batch.
    Failed { taken: usize, error: SinkError },
    /// Answer: true if the output has the last entry that it was given.
    HasWritten(bool),
    /// Answer: the number of entries from the beginning of the batch that the output has.
    Compared(usize),
    /// The last request to the journal is durable, or a move of the cursor is under way.
    Done,
    /// The wait is over.
    Woken,
    /// A cursor that only moves past unwanted entries may move.
    Due,
    /// The operator asks to begin again.
    Reopen,
}

/// Content of an output, as seen from the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SinkOffset {
    /// It does not know, or holds nothing that counts: the cursor does.
    Unknown,
    /// This journal up to here.
    Upto(Seq),
    /// An earlier epoch of this journal, as it went on before the journal was restored.
    Past,
    /// An entry that this journal never had; the text describes it.
    Foreign(String),
}

/// Action that the driver carries out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Say how the sink is doing. Brings no input.
    Report(SinkState),
    /// Let the sink open its files again. Brings no input.
    Reopen,
    /// Log an input that no phase expects, which is a bug. Brings no input.
    Unexpected(String),
    /// Ask what the output holds.
    AskPosition(Seq),
    /// Ask whether the output has this entry, which it was given last.
    AskWritten(Seq),
    /// Look up which entries of the batch are in the output.
    Compare,
    /// Delivers entries after this seq under an epoch that is later than every epoch in the output.
    SwitchTimeline { after: Seq },
    /// Move the cursor on; `written` is the last seq that was really handed over.
    Acknowledge { upto: Seq, written: Seq },
    /// Move the cursor back to what the output holds.
    Reset(Seq),
    /// Keep an entry for `replay`.
    DeadLetter(Seq, String),
    /// Read a batch.
    Read { after: Seq },
    /// Deliver what is left of the batch, from this position in it.
    Deliver { from: usize },
    /// Wait for entries after this; with `owed`, only until the cursor may move.
    AwaitEntries { after: Seq, owed: bool },
    /// Wait before try number `attempt`, at least `after`.
    Wait { attempt: u32, after: Option<Duration> },
    /// Wait for the operator.
    AwaitOperator,
}

/// Meaning of the answer that is awaited.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    /// The position is asked.
    Opening,
    /// A batch is read.
    Reading,
    /// A batch is read to be compared: the output holds another timeline, and how much of the journal is in it is not known.
    Searching,
    /// A batch is looked for in the output.
    Comparing,
    /// A batch is with the sink; or, with `Effect::Wait`, will be again.
    Delivering,
    /// The journal moves the cursor; then this follows.
    Moving(Next),
    /// An entry is dead-lettered.
    DeadLettering,
    /// No action is pending.
    Idle,
    /// An operator has to act.
    Halted,
}

/// The step after a commit of the cursor.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Next {
    Read,
    /// Goes on to compare the journal with the output.
    Search,
    /// The entries after the cursor are not in the output.
    SwitchTimeline,
    Wait(Option<Duration>),
    /// Wait, and then ask the sink where it is.
    Ask,
    Halt,
    DeadLetter(String),
}

/// State of the delivery to one sink.
#[derive(Clone, Debug)]
pub(super) struct State {
    name: String,
    on_refused: OnRefused,
    phase: Phase,
    /// The last seq that the sink has for good, as the journal was told.
    cursor: Seq,
    /// The last seq that was handed over and taken; the filter left out what lies between it and the cursor.
    written: Seq,
    /// The last seq that was read; what lies between the cursor and it is unwanted, or in `batch`.
    seen: Seq,
    /// The rest of the batch: seqs that the sink does not have yet.
    batch: VecDeque<Seq>,
    /// Number of entries of the batch that are delivered or dead-lettered.
    gone: usize,
    /// Failed tries since something last went well.
    attempt: u32,
    /// The output was compared with this journal since the daemon began, or since an operator asked to begin again after a
    /// halt: whatever it does not explain any more was written by somebody else.
    agreed: bool,
    /// The last seq that was handed over since the daemon first knew where the output ends: what goes beyond it was not
    /// written from here.
    handed: Option<Seq>,
    /// The state that was last reported.
    reported: Option<SinkState>,
}

impl State {
    /// The beginning, and the first thing to do.
    pub(super) fn start(name: &str, on_refused: OnRefused, cursor: Seq, written: Seq) -> (Self, Vec<Effect>) {
        let state = Self {
            name: name.to_owned(),
            on_refused,
            phase: Phase::Opening,
            cursor,
            written,
            seen: cursor,
            batch: VecDeque::new(),
            gone: 0,
            attempt: 0,
            agreed: false,
            handed: None,
            reported: None,
        };
        (state, vec![Effect::AskPosition(cursor)])
    }

    /// Takes an input to the next state.
    pub(super) fn on(mut self, input: Input) -> (Self, Vec<Effect>) {
        let mut effects = Vec::new();
        self.step(input, &mut effects);
        (self, effects)
    }

    fn step(&mut self, input: Input, effects: &mut Vec<Effect>) {
        match (self.phase.clone(), input) {
            (phase, Input::Reopen) => {
                // Somebody has looked at it, and says that the output is this sink's.
                self.agreed &= phase != Phase::Halted;
                effects.push(Effect::Reopen);
                self.begin(effects);
            }
            (Phase::Opening, Input::Position(held)) => self.opened(held, effects),
            (Phase::Opening, Input::PositionUnknown(error)) => self.failed(error, effects),
            (Phase::Opening, Input::HasWritten(true)) => self.search(effects),
            // Then nothing says that it has anything of what the cursor has passed.
            (Phase::Opening, Input::HasWritten(false)) => self.reset(Seq(0), Next::Search, effects),
            (Phase::Opening, Input::Woken) => self.begin(effects),
            (Phase::Reading, Input::Read { upto, wanted, due }) => {
                let is_empty = self.took(upto, wanted);
                match (is_empty, due) {
                    (false, _) => self.deliver(effects),
                    (true, true) => self.acknowledge(upto, Next::Read, effects),
                    (true, false) => self.read(effects),
                }
            }
            (Phase::Searching, Input::Read { upto, wanted, due }) => {
                let is_empty = self.took(upto, wanted);
                match (is_empty, due) {
                    (false, _) => {
                        self.phase = Phase::Comparing;
                        effects.push(Effect::Compare);
                    }
                    (true, true) => self.acknowledge(upto, Next::Search, effects),
                    (true, false) => self.search(effects),
                }
            }
            (Phase::Searching, Input::Nothing) => self.switch_timeline(effects),
            (Phase::Comparing, Input::Compared(held)) => self.compared(held, effects),
            (Phase::Comparing | Phase::Moving(_), Input::PositionUnknown(error)) => {
                self.phase = Phase::Opening;
                self.failed(error, effects);
            }
            (Phase::Reading, Input::Nothing) => {
                self.went_well(effects);
                self.idle(effects);
            }
            (Phase::Reading | Phase::Searching, Input::Unreadable(text)) => self.halt(text, effects),
            (Phase::Idle, Input::Woken) => self.read(effects),
            (Phase::Idle, Input::Due) => self.acknowledge(self.seen, Next::Read, effects),
            (Phase::Delivering, Input::Delivered) => {
                self.written = self.batch.back().copied().unwrap_or(self.written);
                self.batch.clear();
                self.went_well(effects);
                self.acknowledge(self.seen, Next::Read, effects);
            }
            (Phase::Delivering, Input::Failed { taken, error }) => self.refused(taken, error, effects),
            (Phase::Delivering, Input::Woken) => self.deliver(effects),
            (Phase::Moving(next), Input::Done) => match next {
                Next::Read => self.read(effects),
                Next::Search => self.search(effects),
                Next::SwitchTimeline => self.switch_timeline(effects),
                Next::Wait(after) => self.wait(after, effects),
                Next::Ask => {
                    self.phase = Phase::Opening;
                    self.attempt += 1;
                    effects.push(Effect::Wait { attempt: self.attempt, after: None });
                }
                Next::Halt => {
                    self.phase = Phase::Halted;
                    effects.push(Effect::AwaitOperator);
                }
                Next::DeadLetter(reason) => self.dead_letter(reason, effects),
            },
            (Phase::DeadLettering, Input::Done) => {
                self.drop_first(1);
                if self.batch.is_empty() {
                    self.acknowledge(self.seen, Next::Read, effects);
                } else {
                    self.deliver(effects);
                }
            }
            (phase, input) => self.unexpected(&phase, &input, effects),
        }
    }

    /// Begins again after a wait: a defect of this machine or its driver ends no daemon.
    fn unexpected(&mut self, phase: &Phase, input: &Input, effects: &mut Vec<Effect>) {
        effects.push(Effect::Unexpected(format!("{input:?} came while {phase:?}")));
        self.phase = Phase::Opening;
        self.attempt += 1;
        effects.push(Effect::Wait { attempt: self.attempt, after: None });
    }

    /// Asks the sink where it is: its output decides what is read next.
    fn begin(&mut self, effects: &mut Vec<Effect>) {
        self.phase = Phase::Opening;
        self.batch.clear();
        self.seen = self.cursor;
        effects.push(Effect::AskPosition(self.cursor));
    }

    fn opened(&mut self, held: SinkOffset, effects: &mut Vec<Effect>) {
        let held = match held {
            // An output that says nothing holds what the cursor says.
            SinkOffset::Unknown => self.written,
            SinkOffset::Upto(held) if self.handed.is_some_and(|handed| held > handed.max(self.cursor)) => {
                let what = format!("its output continues to entry {held}, which did not come from this sink");
                return self.halt(another(&what), effects);
            }
            SinkOffset::Upto(held) => held,
            SinkOffset::Foreign(what) if self.agreed => return self.halt(another(&what), effects),
            SinkOffset::Past | SinkOffset::Foreign(_) => {
                if self.written == Seq(0) {
                    return self.search(effects);
                }
                return effects.push(Effect::AskWritten(self.written));
            }
        };
        self.agree();
        if held > self.cursor {
            self.written = held;
            self.acknowledge(held, Next::Read, effects);
        } else if held < self.written {
            self.reset(held, Next::Read, effects);
        } else {
            self.read(effects);
        }
    }

    fn agree(&mut self) {
        self.agreed = true;
        self.handed.get_or_insert(self.cursor);
    }

    /// The output has less than it was given.
    fn reset(&mut self, held: Seq, next: Next, effects: &mut Vec<Effect>) {
        (self.cursor, self.written, self.seen) = (held, held, held);
        self.phase = Phase::Moving(next);
        effects.push(Effect::Reset(held));
    }

    /// Handles the answer that the output has the first `held` entries of the batch and none after them.
    fn compared(&mut self, held: usize, effects: &mut Vec<Effect>) {
        if held > 0 {
            self.written = self.batch[held - 1];
        }
        if held == self.batch.len() {
            return self.acknowledge(self.seen, Next::Search, effects);
        }
        let before = Seq(self.batch[held].0 - 1);
        // They are read again, as the sink is to get them.
        self.batch.clear();
        self.seen = before.max(self.cursor);
        if before > self.cursor {
            self.acknowledge(before, Next::SwitchTimeline, effects);
        } else {
            self.switch_timeline(effects);
        }
    }

    /// Starts delivery of this journal behind the last entry that both have in common.
    fn switch_timeline(&mut self, effects: &mut Vec<Effect>) {
        self.agree();
        self.phase = Phase::Moving(Next::Read);
        effects.push(Effect::SwitchTimeline { after: self.seen });
    }

    /// Takes the batch that was read. Reports whether it is empty.
    fn took(&mut self, upto: Seq, wanted: Vec<Seq>) -> bool {
        self.seen = upto;
        self.batch = wanted.into();
        self.gone = 0;
        self.batch.is_empty()
    }

    fn search(&mut self, effects: &mut Vec<Effect>) {
        self.phase = Phase::Searching;
        effects.push(Effect::Read { after: self.seen });
    }

    fn read(&mut self, effects: &mut Vec<Effect>) {
        self.phase = Phase::Reading;
        effects.push(Effect::Read { after: self.seen });
    }

    fn idle(&mut self, effects: &mut Vec<Effect>) {
        self.phase = Phase::Idle;
        effects.push(Effect::AwaitEntries { after: self.seen, owed: self.seen > self.cursor });
    }

    fn deliver(&mut self, effects: &mut Vec<Effect>) {
        self.phase = Phase::Delivering;
        self.handed = self.handed.max(self.batch.back().copied());
        effects.push(Effect::Deliver { from: self.gone });
    }

    fn acknowledge(&mut self, upto: Seq, next: Next, effects: &mut Vec<Effect>) {
        self.cursor = upto;
        self.seen = self.seen.max(upto);
        self.phase = Phase::Moving(next);
        effects.push(Effect::Acknowledge { upto, written: self.written });
    }

    fn dead_letter(&mut self, reason: String, effects: &mut Vec<Effect>) {
        self.phase = Phase::DeadLettering;
        effects.push(Effect::DeadLetter(self.batch[0], reason));
    }

    fn drop_first(&mut self, count: usize) {
        self.batch.drain(..count);
        self.gone += count;
        self.attempt = 0;
    }

    /// The sink has the first `taken` and not the next.
    fn refused(&mut self, taken: usize, error: SinkError, effects: &mut Vec<Effect>) {
        if taken > 0 {
            self.written = self.batch[taken - 1];
            self.drop_first(taken);
        }
        let Some(first) = self.batch.front().copied() else {
            // A sink that has everything and fails all the same has everything.
            return self.step(Input::Delivered, effects);
        };
        // Everything before the first that is left is with the sink or unwanted.
        let before = Seq(first.0 - 1);
        let next = match error {
            SinkError::Retry { text, after } => {
                self.report(SinkState::Retrying(text), effects);
                Next::Wait(after)
            }
            SinkError::Lost { text } => {
                self.report(SinkState::Retrying(text), effects);
                Next::Ask
            }
            SinkError::Refused { text } => match self.on_refused {
                OnRefused::DeadLetter => Next::DeadLetter(text),
                OnRefused::Halt => {
                    self.report(SinkState::Halted(refusal(&self.name, first, &text)), effects);
                    Next::Halt
                }
            },
            SinkError::Halt { text } => {
                self.report(SinkState::Halted(text), effects);
                Next::Halt
            }
        };
        if before > self.cursor {
            return self.acknowledge(before, next, effects);
        }
        self.phase = Phase::Moving(next);
        self.step(Input::Done, effects);
    }

    /// The sink cannot say where it is.
    fn failed(&mut self, error: SinkError, effects: &mut Vec<Effect>) {
        match error {
            SinkError::Retry { text, after } => {
                self.report(SinkState::Retrying(text), effects);
                self.attempt += 1;
                effects.push(Effect::Wait { attempt: self.attempt, after });
            }
            SinkError::Lost { text } => self.failed(SinkError::retry(text), effects),
            SinkError::Refused { text } | SinkError::Halt { text } => self.halt(text, effects),
        }
    }

    fn wait(&mut self, after: Option<Duration>, effects: &mut Vec<Effect>) {
        self.phase = Phase::Delivering;
        self.attempt += 1;
        effects.push(Effect::Wait { attempt: self.attempt, after });
    }

    fn halt(&mut self, text: String, effects: &mut Vec<Effect>) {
        self.report(SinkState::Halted(text), effects);
        self.phase = Phase::Halted;
        effects.push(Effect::AwaitOperator);
    }

    fn went_well(&mut self, effects: &mut Vec<Effect>) {
        self.attempt = 0;
        self.report(SinkState::Running, effects);
    }

    /// Only what has changed is reported.
    fn report(&mut self, state: SinkState, effects: &mut Vec<Effect>) {
        if self.reported.as_ref() != Some(&state) {
            self.reported = Some(state.clone());
            effects.push(Effect::Report(state));
        }
    }
}

fn another(what: &str) -> String {
    format!(
        "{what}: another decklog delivers to the same place, or a copy of this journal does; stop one of the two or give it another output, and send SIGHUP: nothing is lost"
    )
}

fn refusal(sink: &str, seq: Seq, text: &str) -> String {
    format!(
        "entry {seq} was refused: {text}; correct the server and send SIGHUP to try again, or set on_refused = \"dead_letter\" to go on and keep such entries for `decklog replay --sink {sink} --from {seq} --to {seq}`"
    )
}
