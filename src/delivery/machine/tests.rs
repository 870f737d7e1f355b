//! Traces of the machine.

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
    Input::Position(held.map_or(SinkOffset::Unknown, |held| SinkOffset::Upto(Seq(held))))
}

fn foreign() -> Input {
    Input::Position(SinkOffset::Foreign("it ends with something else".into()))
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
    for other in [foreign(), Input::Position(SinkOffset::Past)] {
        let mut trace = Trace::new(OnRefused::Halt, 50);
        trace.gives(&[Effect::AskPosition(Seq(50))]).on(other).gives(&[Effect::AskWritten(Seq(50))]);
        trace.on(Input::HasWritten(true)).gives(&[read(50)]);
        trace.on(batch(60, &[52, 60])).gives(&[Effect::Compare]);
        trace.on(Input::Compared(2)).gives(&[ack(60, 60)]);
        trace.on(Input::Done).gives(&[read(60)]);
        trace.on(batch(70, &[63, 66, 70])).gives(&[Effect::Compare]);
        trace.on(Input::Compared(1)).gives(&[ack(65, 63)]);
        trace.on(Input::Done).gives(&[Effect::SwitchTimeline { after: Seq(65) }]);
        trace.on(Input::Done).gives(&[read(65)]);
        trace.on(batch(70, &[66, 70])).gives(&[Effect::Deliver { from: 0 }]);
    }
    // Nothing that follows is in it, or nothing follows.
    let mut trace = Trace::new(OnRefused::Halt, 50);
    trace.gives(&[Effect::AskPosition(Seq(50))]).on(foreign()).gives(&[Effect::AskWritten(Seq(50))]);
    trace.on(Input::HasWritten(true)).gives(&[read(50)]);
    trace.on(batch(51, &[51])).gives(&[Effect::Compare]);
    trace.on(Input::Compared(0)).gives(&[Effect::SwitchTimeline { after: Seq(50) }]);
    // It was restored to before this journal began: it has nothing of what the cursor has passed.
    let mut trace = Trace::new(OnRefused::Halt, 50);
    trace.gives(&[Effect::AskPosition(Seq(50))]).on(foreign()).gives(&[Effect::AskWritten(Seq(50))]);
    trace.on(Input::HasWritten(false)).gives(&[Effect::Reset(Seq(0))]);
    trace.on(Input::Done).gives(&[read(0)]);
    trace.on(batch(51, &[1, 51])).gives(&[Effect::Compare]);
    trace.on(Input::Compared(0)).gives(&[Effect::SwitchTimeline { after: Seq(0) }]);
    let mut trace = Trace::new(OnRefused::Halt, 50);
    trace.gives(&[Effect::AskPosition(Seq(50))]).on(foreign()).gives(&[Effect::AskWritten(Seq(50))]);
    trace.on(Input::HasWritten(true)).gives(&[read(50)]);
    trace.on(Input::Nothing).gives(&[Effect::SwitchTimeline { after: Seq(50) }]);
    trace.on(Input::Done).gives(&[read(50)]);
}

#[test]
fn a_comparison_that_fails_begins_anew() {
    let mut trace = Trace::new(OnRefused::Halt, 5);
    trace.gives(&[Effect::AskPosition(Seq(5))]).on(foreign()).gives(&[Effect::AskWritten(Seq(5))]);
    trace.on(Input::HasWritten(true)).gives(&[read(5)]);
    trace.on(batch(6, &[6])).gives(&[Effect::Compare]);
    trace.on(Input::PositionUnknown(SinkError::retry("down"))).gives(&[retrying("down"), wait(1)]);
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
    trace.on(Input::Position(SinkOffset::Past)).gives(&[Effect::AskWritten(Seq(50))]);
    trace.on(Input::HasWritten(true)).gives(&[read(50)]);
    // While it delivers, a reload decides nothing.
    trace.on(batch(51, &[51])).gives(&[Effect::Compare]);
    trace.on(Input::Compared(0)).gives(&[Effect::SwitchTimeline { after: Seq(50) }]);
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
    let text = another("its output continues to entry 54, which did not come from this sink");
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
    trace.on(Input::PositionUnknown(SinkError::retry("no directory"))).gives(&[retrying("no directory"), wait(1)]);
    trace.on(Input::Woken).gives(&[Effect::AskPosition(Seq(7))]);
    trace.on(Input::PositionUnknown(SinkError::halt("foreign")));
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

/// A defect ends no daemon.
#[test]
fn an_input_that_no_phase_expects_begins_again() {
    let (state, _) = State::start("s", OnRefused::Halt, Seq(7), Seq(7));
    let (state, effects) = state.on(Input::Delivered);
    assert!(matches!(&effects[..], [Effect::Unexpected(_), Effect::Wait { attempt: 1, .. }]), "{effects:?}");
    assert_eq!(state.on(Input::Woken).1, [Effect::AskPosition(Seq(7))]);
}
