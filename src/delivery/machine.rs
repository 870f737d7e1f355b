//! The decisions of delivery as a pure state machine: no clock, no randomness, no I/O.
//!
//! One thing is under way at any time. An input says how it went; the effects say what to do next, and the last of
//! them brings the next input. The sink's output comes first and the cursor second: at no point is the cursor ahead of
//! what the sink has for good (invariant 5).

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
    Held(Held),
    /// The sink could not say it.
    NotHeld(SinkError),
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
    /// The last request to the journal is durable.
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
pub(super) enum Held {
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
    /// Ask what the output holds.
    AskPosition(Seq),
    /// Ask whether the output has this entry, which it was given last.
    AskWritten(Seq),
    /// Look which entries of the batch are in the output.
    Compare,
    /// Delivers entries after this seq under an epoch that is later than every epoch in the output.
    Part { after: Seq },
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
    /// The entries after the cursor are not in the output.
    Part,
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
    /// The last seq that the sink has for good, as the journal has it on disk.
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
    /// The output holds another timeline, and how much of the journal is in it is being looked for.
    seeking: bool,
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
            seeking: false,
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
            (Phase::Opening, Input::Held(held)) => self.opened(held, effects),
            (Phase::Opening, Input::NotHeld(error)) => self.failed(error, effects),
            (Phase::Opening, Input::HasWritten(true)) => self.read(effects),
            // Then nothing says that it has anything of what the cursor has passed.
            (Phase::Opening, Input::HasWritten(false)) => self.reset(Seq(0), effects),
            (Phase::Opening, Input::Woken) => self.begin(effects),
            (Phase::Reading, Input::Read { upto, wanted, due }) => {
                self.seen = upto;
                self.batch = wanted.into();
                self.gone = 0;
                if !self.batch.is_empty() && self.seeking {
                    self.phase = Phase::Comparing;
                    effects.push(Effect::Compare);
                } else if !self.batch.is_empty() {
                    self.deliver(effects);
                } else if due {
                    self.acknowledge(upto, Next::Read, effects);
                } else {
                    self.read(effects);
                }
            }
            (Phase::Reading, Input::Nothing) if self.seeking => self.part(effects),
            (Phase::Comparing, Input::Compared(held)) => self.compared(held, effects),
            (Phase::Comparing | Phase::Moving(_), Input::NotHeld(error)) => {
                self.phase = Phase::Opening;
                self.failed(error, effects);
            }
            (Phase::Reading, Input::Nothing) => {
                self.went_well(effects);
                self.idle(effects);
            }
            (Phase::Reading, Input::Unreadable(text)) => self.halt(text, effects),
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
                Next::Part => self.part(effects),
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
            (phase, input) => unreachable!("no {input:?} can come while {phase:?}"),
        }
    }

    /// Asks the sink where it is: its output decides what is read next.
    fn begin(&mut self, effects: &mut Vec<Effect>) {
        self.phase = Phase::Opening;
        self.batch.clear();
        self.seeking = false;
        self.seen = self.cursor;
        effects.push(Effect::AskPosition(self.cursor));
    }

    fn opened(&mut self, held: Held, effects: &mut Vec<Effect>) {
        let held = match held {
            // An output that says nothing holds what the cursor says.
            Held::Unknown => self.written,
            Held::Upto(held) if self.handed.is_some_and(|handed| held > handed.max(self.cursor)) => {
                let what = format!("its output goes on to entry {held}, which did not come from this sink");
                return self.halt(another(&what), effects);
            }
            Held::Upto(held) => held,
            Held::Foreign(what) if self.agreed => return self.halt(another(&what), effects),
            Held::Past | Held::Foreign(_) => {
                self.seeking = true;
                if self.written == Seq(0) {
                    return self.read(effects);
                }
                return effects.push(Effect::AskWritten(self.written));
            }
        };
        self.agree();
        if held > self.cursor {
            self.written = held;
            self.acknowledge(held, Next::Read, effects);
        } else if held < self.written {
            self.reset(held, effects);
        } else {
            self.read(effects);
        }
    }

    fn agree(&mut self) {
        self.agreed = true;
        self.handed.get_or_insert(self.cursor);
    }

    /// The output has less than it was given.
    fn reset(&mut self, held: Seq, effects: &mut Vec<Effect>) {
        (self.cursor, self.written, self.seen) = (held, held, held);
        self.phase = Phase::Moving(Next::Read);
        effects.push(Effect::Reset(held));
    }

    /// Handles the answer that the output has the first `held` entries of the batch and none after them.
    fn compared(&mut self, held: usize, effects: &mut Vec<Effect>) {
        if held > 0 {
            self.written = self.batch[held - 1];
        }
        if held == self.batch.len() {
            return self.acknowledge(self.seen, Next::Read, effects);
        }
        let before = Seq(self.batch[held].0 - 1);
        // They are read again, as the sink is to get them.
        self.batch.clear();
        self.seen = before.max(self.cursor);
        if before > self.cursor { self.acknowledge(before, Next::Part, effects) } else { self.part(effects) }
    }

    /// Starts delivery of this journal behind the last entry that both have in common.
    fn part(&mut self, effects: &mut Vec<Effect>) {
        self.seeking = false;
        self.agree();
        self.phase = Phase::Moving(Next::Read);
        effects.push(Effect::Part { after: self.seen });
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine whose effects are read one by one.
    struct Trace {
        state: Option<State>,
        effects: VecDeque<Effect>,
    }

    impl Trace {
        fn new(on_refused: OnRefused, cursor: u64) -> Self {
            let (state, effects) = State::start("s", on_refused, Seq(cursor), Seq(cursor));
            Self { state: Some(state), effects: effects.into() }
        }

        fn on(&mut self, input: Input) -> &mut Self {
            assert!(self.effects.is_empty(), "not looked at: {:?}", self.effects);
            let (state, effects) = self.state.take().unwrap().on(input);
            self.state = Some(state);
            self.effects = effects.into();
            self
        }

        fn gives(&mut self, effects: &[Effect]) -> &mut Self {
            assert_eq!(self.effects.drain(..).collect::<Vec<_>>(), effects);
            self
        }

        /// The sink holds nothing of its own.
        fn opened(on_refused: OnRefused, cursor: u64) -> Self {
            let mut trace = Self::new(on_refused, cursor);
            trace.gives(&[Effect::AskPosition(Seq(cursor))]).on(held(None)).gives(&[read(cursor)]);
            trace
        }
    }

    fn held(held: Option<u64>) -> Input {
        Input::Held(held.map_or(Held::Unknown, |held| Held::Upto(Seq(held))))
    }

    fn foreign() -> Input {
        Input::Held(Held::Foreign("it ends with something else".into()))
    }

    fn read(after: u64) -> Effect {
        Effect::Read { after: Seq(after) }
    }

    fn batch(upto: u64, wanted: &[u64]) -> Input {
        Input::Read { upto: Seq(upto), wanted: wanted.iter().copied().map(Seq).collect(), due: false }
    }

    fn running() -> Effect {
        Effect::Report(SinkState::Running)
    }

    fn ack(upto: u64, written: u64) -> Effect {
        Effect::Acknowledge { upto: Seq(upto), written: Seq(written) }
    }

    fn retrying(text: &str) -> Effect {
        Effect::Report(SinkState::Retrying(text.into()))
    }

    fn wait(attempt: u32) -> Effect {
        Effect::Wait { attempt, after: None }
    }

    fn failed(taken: usize, error: SinkError) -> Input {
        Input::Failed { taken, error }
    }

    #[test]
    fn an_output_that_lost_something_is_asked_where_it_is() {
        let mut trace = Trace::opened(OnRefused::Halt, 3);
        trace.on(batch(6, &[4, 5, 6])).gives(&[Effect::Deliver { from: 0 }]);
        trace.on(Input::Delivered).gives(&[running(), ack(6, 6)]);
        trace.on(Input::Done).gives(&[read(6)]);
        trace.on(batch(8, &[7, 8])).gives(&[Effect::Deliver { from: 0 }]);
        trace.on(failed(0, SinkError::lost("put back"))).gives(&[retrying("put back"), wait(1)]);
        trace.on(Input::Woken).gives(&[Effect::AskPosition(Seq(6))]);
        trace.on(held(Some(2))).gives(&[Effect::Reset(Seq(2))]);
        trace.on(Input::Done).gives(&[read(2)]);
    }

    #[test]
    fn the_cursor_follows_the_sink() {
        let mut trace = Trace::opened(OnRefused::Halt, 0);
        trace.on(batch(5, &[2, 4])).gives(&[Effect::Deliver { from: 0 }]);
        trace.on(Input::Delivered).gives(&[running(), ack(5, 4)]);
        trace.on(Input::Done).gives(&[read(5)]);
        trace.on(Input::Nothing).gives(&[Effect::AwaitEntries { after: Seq(5), owed: false }]);
        trace.on(Input::Woken).gives(&[read(5)]);
    }

    #[test]
    fn the_output_decides_where_delivery_goes_on() {
        let cases = [
            (None, vec![read(50)]),
            (Some(50), vec![read(50)]),
            (Some(60), vec![ack(60, 60)]),
            (Some(40), vec![Effect::Reset(Seq(40))]),
        ];
        for (what, effects) in cases {
            let mut trace = Trace::new(OnRefused::Halt, 50);
            trace.gives(&[Effect::AskPosition(Seq(50))]).on(held(what)).gives(&effects);
        }
        let mut trace = Trace::new(OnRefused::Halt, 50);
        trace.gives(&[Effect::AskPosition(Seq(50))]).on(held(Some(40))).gives(&[Effect::Reset(Seq(40))]);
        trace.on(Input::Done).gives(&[read(40)]);
    }

    #[test]
    fn a_cursor_that_only_passed_unwanted_entries_stays_where_it_is() {
        let mut trace = Trace::opened(OnRefused::Halt, 90);
        trace.on(Input::Read { upto: Seq(120), wanted: Vec::new(), due: true }).gives(&[ack(120, 90)]);
        trace.on(Input::Done).gives(&[read(120)]);
        trace.on(Input::Reopen).gives(&[Effect::Reopen, Effect::AskPosition(Seq(120))]);
        trace.on(held(None)).gives(&[read(120)]);
    }

    /// At the first answer the journal may have been restored: what both have is looked for, and the rest is delivered.
    #[test]
    fn another_timeline_is_followed_from_what_both_have() {
        for other in [foreign(), Input::Held(Held::Past)] {
            let mut trace = Trace::new(OnRefused::Halt, 50);
            trace.gives(&[Effect::AskPosition(Seq(50))]).on(other).gives(&[Effect::AskWritten(Seq(50))]);
            trace.on(Input::HasWritten(true)).gives(&[read(50)]);
            trace.on(batch(60, &[52, 60])).gives(&[Effect::Compare]);
            trace.on(Input::Compared(2)).gives(&[ack(60, 60)]);
            trace.on(Input::Done).gives(&[read(60)]);
            trace.on(batch(70, &[63, 66, 70])).gives(&[Effect::Compare]);
            trace.on(Input::Compared(1)).gives(&[ack(65, 63)]);
            trace.on(Input::Done).gives(&[Effect::Part { after: Seq(65) }]);
            trace.on(Input::Done).gives(&[read(65)]);
            trace.on(batch(70, &[66, 70])).gives(&[Effect::Deliver { from: 0 }]);
        }
        // Nothing that follows is in it, or nothing follows.
        let mut trace = Trace::new(OnRefused::Halt, 50);
        trace.gives(&[Effect::AskPosition(Seq(50))]).on(foreign()).gives(&[Effect::AskWritten(Seq(50))]);
        trace.on(Input::HasWritten(true)).gives(&[read(50)]);
        trace.on(batch(51, &[51])).gives(&[Effect::Compare]);
        trace.on(Input::Compared(0)).gives(&[Effect::Part { after: Seq(50) }]);
        // It was restored to before this journal began: it has nothing of what the cursor has passed.
        let mut trace = Trace::new(OnRefused::Halt, 50);
        trace.gives(&[Effect::AskPosition(Seq(50))]).on(foreign()).gives(&[Effect::AskWritten(Seq(50))]);
        trace.on(Input::HasWritten(false)).gives(&[Effect::Reset(Seq(0))]);
        trace.on(Input::Done).gives(&[read(0)]);
        trace.on(batch(51, &[1, 51])).gives(&[Effect::Compare]);
        trace.on(Input::Compared(0)).gives(&[Effect::Part { after: Seq(0) }]);
        let mut trace = Trace::new(OnRefused::Halt, 50);
        trace.gives(&[Effect::AskPosition(Seq(50))]).on(foreign()).gives(&[Effect::AskWritten(Seq(50))]);
        trace.on(Input::HasWritten(true)).gives(&[read(50)]);
        trace.on(Input::Nothing).gives(&[Effect::Part { after: Seq(50) }]);
        trace.on(Input::Done).gives(&[read(50)]);
    }

    #[test]
    fn a_comparison_that_fails_begins_anew() {
        let mut trace = Trace::new(OnRefused::Halt, 5);
        trace.gives(&[Effect::AskPosition(Seq(5))]).on(foreign()).gives(&[Effect::AskWritten(Seq(5))]);
        trace.on(Input::HasWritten(true)).gives(&[read(5)]);
        trace.on(batch(6, &[6])).gives(&[Effect::Compare]);
        trace.on(Input::NotHeld(SinkError::retry("down"))).gives(&[retrying("down"), wait(1)]);
        trace.on(Input::Woken).gives(&[Effect::AskPosition(Seq(5))]);
        trace.on(held(Some(5))).gives(&[read(5)]);
        trace.on(batch(6, &[6])).gives(&[Effect::Deliver { from: 0 }]);
    }

    /// Once it was compared, only somebody else can have written what the journal does not know.
    #[test]
    fn a_second_writer_halts_it_until_its_output_is_its_own() {
        let mut trace = Trace::opened(OnRefused::Halt, 50);
        trace.on(batch(51, &[51])).gives(&[Effect::Deliver { from: 0 }]);
        trace.on(failed(0, SinkError::lost("moved"))).gives(&[retrying("moved"), wait(1)]);
        let text = another("it ends with something else");
        trace.on(Input::Woken).gives(&[Effect::AskPosition(Seq(50))]);
        trace.on(foreign()).gives(&[Effect::Report(SinkState::Halted(text)), Effect::AwaitOperator]);
        // Moved away, the cursor counts: nothing after it is left out.
        trace.on(Input::Reopen).gives(&[Effect::Reopen, Effect::AskPosition(Seq(50))]);
        trace.on(held(None)).gives(&[read(50)]);
        // What the journal itself once recorded is no second writer: the output was restored.
        trace.on(Input::Reopen).gives(&[Effect::Reopen, Effect::AskPosition(Seq(50))]);
        trace.on(Input::Held(Held::Past)).gives(&[Effect::AskWritten(Seq(50))]);
        trace.on(Input::HasWritten(true)).gives(&[read(50)]);
        // While it delivers, a reload decides nothing.
        trace.on(batch(51, &[51])).gives(&[Effect::Compare]);
        trace.on(Input::Compared(0)).gives(&[Effect::Part { after: Seq(50) }]);
        trace.on(Input::Done).gives(&[read(50)]);
        trace.on(Input::Reopen).gives(&[Effect::Reopen, Effect::AskPosition(Seq(50))]);
        trace.on(foreign()).gives(&[Effect::AwaitOperator]);
        // Behind a halt it says that the output is this sink's: what it lacks goes behind what is there.
        trace.on(Input::Reopen).gives(&[Effect::Reopen, Effect::AskPosition(Seq(50))]);
        trace.on(foreign()).gives(&[Effect::AskWritten(Seq(50))]);
    }

    /// Two sinks of one journal, where the configuration does not show that their outputs are the same: what the other one
    /// wrote is of this timeline, and still nothing that this sink has delivered.
    #[test]
    fn what_another_sink_wrote_is_not_taken_for_its_own() {
        let mut trace = Trace::opened(OnRefused::Halt, 50);
        trace.on(batch(53, &[51, 53])).gives(&[Effect::Deliver { from: 0 }]);
        trace.on(failed(0, SinkError::lost("moved"))).gives(&[retrying("moved"), wait(1)]);
        trace.on(Input::Woken).gives(&[Effect::AskPosition(Seq(50))]);
        let text = another("its output goes on to entry 54, which did not come from this sink");
        trace.on(held(Some(54))).gives(&[Effect::Report(SinkState::Halted(text)), Effect::AwaitOperator]);
        for _ in 0..2 {
            trace.on(Input::Reopen).gives(&[Effect::Reopen, Effect::AskPosition(Seq(50))]);
            trace.on(held(Some(54))).gives(&[Effect::AwaitOperator]);
        }
        // What was under way may have arrived.
        trace.on(Input::Reopen).gives(&[Effect::Reopen, Effect::AskPosition(Seq(50))]);
        trace.on(held(Some(53))).gives(&[ack(53, 53)]);
    }

    #[test]
    fn what_the_filter_left_out_is_not_missing_from_the_output() {
        for (last, effect) in [(120, Effect::Reset(Seq(120))), (130, read(900)), (140, read(900))] {
            let (state, effects) = State::start("s", OnRefused::Halt, Seq(900), Seq(130));
            let mut trace = Trace { state: Some(state), effects: effects.into() };
            trace.gives(&[Effect::AskPosition(Seq(900))]).on(held(Some(last))).gives(&[effect]);
        }
    }

    #[test]
    fn entries_that_nobody_wants_cost_no_commit_each() {
        let mut trace = Trace::opened(OnRefused::Halt, 0);
        trace.on(batch(3, &[])).gives(&[read(3)]);
        trace.on(Input::Nothing).gives(&[running(), Effect::AwaitEntries { after: Seq(3), owed: true }]);
        trace.on(Input::Woken).gives(&[read(3)]);
        trace.on(Input::Read { upto: Seq(9), wanted: vec![], due: true }).gives(&[ack(9, 0)]);
        trace.on(Input::Done).gives(&[read(9)]);
        trace.on(batch(11, &[])).gives(&[read(11)]);
        trace.on(Input::Nothing).gives(&[Effect::AwaitEntries { after: Seq(11), owed: true }]);
        trace.on(Input::Due).gives(&[ack(11, 0)]);
    }

    #[test]
    fn a_failure_is_told_once_and_tried_again_for_ever() {
        let mut trace = Trace::opened(OnRefused::Halt, 0);
        trace.on(batch(5, &[2, 4, 5])).gives(&[Effect::Deliver { from: 0 }]);
        trace.on(failed(0, SinkError::retry("down"))).gives(&[retrying("down"), ack(1, 0)]);
        trace.on(Input::Done).gives(&[wait(1)]);
        trace.on(Input::Woken).gives(&[Effect::Deliver { from: 0 }]);
        for attempt in 2..40 {
            trace.on(failed(0, SinkError::retry("down"))).gives(&[wait(attempt)]);
            trace.on(Input::Woken).gives(&[Effect::Deliver { from: 0 }]);
        }
        // What it took is acknowledged, and the tries begin again.
        trace.on(failed(2, SinkError::retry("down"))).gives(&[ack(4, 4)]);
        trace.on(Input::Done).gives(&[wait(1)]);
        trace.on(Input::Woken).gives(&[Effect::Deliver { from: 2 }]);
        trace.on(Input::Delivered).gives(&[running(), ack(5, 5)]);
    }

    #[test]
    fn the_wait_that_the_server_asks_for_is_kept() {
        let after = Some(Duration::from_secs(7));
        let mut trace = Trace::opened(OnRefused::Halt, 0);
        trace.on(batch(1, &[1])).gives(&[Effect::Deliver { from: 0 }]);
        trace.on(failed(0, SinkError::Retry { text: "busy".into(), after }));
        trace.gives(&[retrying("busy"), Effect::Wait { attempt: 1, after }]);
    }

    #[test]
    fn a_refusal_halts_until_the_operator_asks_again() {
        let mut trace = Trace::opened(OnRefused::Halt, 0);
        trace.on(batch(5, &[2, 4])).gives(&[Effect::Deliver { from: 0 }]);
        trace.on(failed(1, SinkError::Refused { text: "400".into() }));
        trace.gives(&[Effect::Report(SinkState::Halted(refusal("s", Seq(4), "400"))), ack(3, 2)]);
        trace.on(Input::Done).gives(&[Effect::AwaitOperator]);
        trace.on(Input::Reopen).gives(&[Effect::Reopen, Effect::AskPosition(Seq(3))]);
        trace.on(held(None)).gives(&[read(3)]);
        trace.on(batch(5, &[4])).gives(&[Effect::Deliver { from: 0 }]);
        trace.on(Input::Delivered).gives(&[running(), ack(5, 4)]);
    }

    #[test]
    fn an_entry_is_dead_lettered_before_the_cursor_passes_it() {
        let mut trace = Trace::opened(OnRefused::DeadLetter, 0);
        trace.on(batch(5, &[2, 4])).gives(&[Effect::Deliver { from: 0 }]);
        trace.on(failed(0, SinkError::Refused { text: "400".into() })).gives(&[ack(1, 0)]);
        trace.on(Input::Done).gives(&[Effect::DeadLetter(Seq(2), "400".into())]);
        trace.on(Input::Done).gives(&[Effect::Deliver { from: 1 }]);
        trace.on(failed(0, SinkError::Refused { text: "413".into() })).gives(&[ack(3, 0)]);
        trace.on(Input::Done).gives(&[Effect::DeadLetter(Seq(4), "413".into())]);
        trace.on(Input::Done).gives(&[ack(5, 0)]);
        trace.on(Input::Done).gives(&[read(5)]);
    }

    #[test]
    fn a_sink_that_cannot_say_where_it_is_is_asked_again() {
        let mut trace = Trace::new(OnRefused::Halt, 7);
        trace.gives(&[Effect::AskPosition(Seq(7))]);
        trace.on(Input::NotHeld(SinkError::retry("no directory"))).gives(&[retrying("no directory"), wait(1)]);
        trace.on(Input::Woken).gives(&[Effect::AskPosition(Seq(7))]);
        trace.on(Input::NotHeld(SinkError::halt("foreign")));
        trace.gives(&[Effect::Report(SinkState::Halted("foreign".into())), Effect::AwaitOperator]);
        trace.on(Input::Reopen).gives(&[Effect::Reopen, Effect::AskPosition(Seq(7))]);
        trace.on(held(None)).gives(&[read(7)]);
        trace.on(Input::Nothing).gives(&[running(), Effect::AwaitEntries { after: Seq(7), owed: false }]);
    }

    #[test]
    fn a_reopened_sink_goes_on_from_its_cursor() {
        let mut trace = Trace::opened(OnRefused::Halt, 0);
        trace.on(batch(5, &[2, 4])).gives(&[Effect::Deliver { from: 0 }]);
        trace.on(failed(1, SinkError::retry("down"))).gives(&[retrying("down"), ack(3, 2)]);
        trace.on(Input::Done).gives(&[wait(1)]);
        trace.on(Input::Reopen).gives(&[Effect::Reopen, Effect::AskPosition(Seq(3))]);
    }
}
