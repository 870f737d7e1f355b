//! Whatever a server does: the source is never lost, and never hot.

use proptest::prelude::*;

use super::*;

pub(super) fn any_input() -> impl Strategy<Value = Input> {
    let version =
        prop_oneof![(1_u32..60).prop_map(|n| n.to_string()), Just("x".to_owned())].prop_map(ResourceVersion::new);
    let text = || Just("text".to_owned());
    let failure = prop_oneof![
        Just(Failure::Expired),
        Just(Failure::Ahead),
        prop::option::of(0_u64..9).prop_map(|s| Failure::Busy(s.map(Duration::from_secs))),
        Just(Failure::Unauthorized),
        text().prop_map(Failure::Forbidden),
        Just(Failure::NotFound),
        text().prop_map(Failure::Refused),
        text().prop_map(Failure::Server),
        text().prop_map(Failure::Tls),
        text().prop_map(Failure::Away),
        text().prop_map(Failure::Unreachable),
        text().prop_map(Failure::Undecodable),
        text().prop_map(Failure::Oversize),
    ];
    prop_oneof![
        4 => version.clone().prop_map(Input::Probed),
        2 => version.clone().prop_map(Input::Latest),
        1 => Just(Input::RollbackSuspected),
        1 => Just(Input::AuditMismatch),
        1 => Just(Input::Inconsistent),
        1 => Just(Input::IncomparableVersions),
        4 => (version.clone(), prop::option::of(Just("t".to_owned())), prop::bool::weighted(0.05))
            .prop_map(|(version, next, newer)| Input::Page { version, next, newer }),
        1 => Just(Input::Endless("on and on".to_owned())),
        1 => Just(Input::NoRoom("full".to_owned())),
        4 => Just(Input::Opened),
        1 => Just(Input::WatchStable),
        1 => version.clone().prop_map(Input::Overlapped),
        4 => version.clone().prop_map(Input::Changed),
        2 => version.clone().prop_map(Input::Bookmark),
        2 => prop_oneof![Just(End::Closed), Just(End::TimedOut), Just(End::Disconnected("cut".to_owned())), Just(End::Idle)].prop_map(Input::Ended),
        4 => failure.prop_map(Input::Failed),
        1 => any::<bool>().prop_map(Input::Confirmed),
        2 => version.clone().prop_map(Input::Recovered),
        1 => version.prop_map(Input::Compacted),
        1 => Just(Input::Unrecoverable),
    ]
}

/// Whether an input can answer what the machine is waiting for.
pub(super) fn answers(action: &Effect, open: bool, input: &Input) -> bool {
    match (action, input) {
        (Effect::Probe(_), Input::Probed(_) | Input::Failed(_))
        | (Effect::AskLatest, Input::Latest(_) | Input::IncomparableVersions | Input::Failed(_))
        | (Effect::List { .. }, Input::Page { .. } | Input::Endless(_) | Input::NoRoom(_) | Input::Failed(_))
        | (
            Effect::Recover { .. },
            Input::Recovered(_) | Input::Compacted(_) | Input::Unrecoverable | Input::NoRoom(_) | Input::Failed(_),
        )
        | (Effect::Confirm, Input::Confirmed(_)) => true,
        (Effect::Watch(_), Input::WatchStable | Input::Changed(_) | Input::Bookmark(_) | Input::Ended(_)) => open,
        (Effect::Watch(_), Input::Opened) => !open,
        (Effect::Watch(_), Input::Overlapped(_)) => true,
        (
            Effect::Watch(_),
            Input::Failed(_) | Input::RollbackSuspected | Input::AuditMismatch | Input::Inconsistent,
        ) => true,
        _ => false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn whatever_a_server_does_the_source_is_never_lost_and_never_hot(
        inputs in prop::collection::vec((0_u64..20_000, any_input()), 0..120),
        begun in any::<bool>(), recovers in any::<bool>(),
    ) {
        let memory = if begun { known() } else { new() };
        let mut machine = Machine::new(memory, Thresholds::default()).recovering(recovers);
        let mut now = Duration::ZERO;
        let mut open = false;
        let mut action = machine.step(now, Input::Start).pop().unwrap();
        // What is known to be in the journal, and what a list has to be for.
        let (mut listed, mut desynced, mut older) = (begun, !begun, false);
        for (pause, input) in inputs {
            now += Duration::from_millis(pause);
            let input = match &action {
                Effect::Wait { .. } => Input::Waited,
                Effect::AwaitServer { .. } if pause % 2 == 0 => Input::ServerReachable,
                Effect::AwaitServer { .. } => Input::Waited,
                Effect::Commit { confirmed: false, .. } if pause % 4 == 0 => Input::ListTooShort("few".to_owned()),
                Effect::Commit { why, .. } => {
                    // Invariant 3: only what has no history is listed without a gap.
                    prop_assert_eq!(why.is_none(), !listed);
                    listed = true;
                    // What follows a list of an older version is to be recovered.
                    desynced = std::mem::take(&mut older);
                    Input::Committed
                }
                Effect::Gone => break,
                action if !answers(action, open, &input) => continue,
                Effect::Probe(_)
                | Effect::AskLatest
                | Effect::List { .. }
                | Effect::Recover { .. }
                | Effect::Watch(_)
                | Effect::Confirm => input,
                Effect::Throttle(_)
                | Effect::Refresh
                | Effect::Reconnect
                | Effect::Bookmark(_)
                | Effect::Report(_)
                | Effect::Count(_) => unreachable!(),
            };
            let asked = matches!(action, Effect::AskLatest);
            if matches!(input, Input::Recovered(_)) {
                desynced = false;
            }
            let failing = matches!(input, Input::Failed(_) | Input::ListTooShort(_) | Input::AuditMismatch | Input::Inconsistent | Input::Ended(End::Disconnected(_) | End::Idle));
            let expired = matches!(input, Input::Failed(Failure::Expired));
            let stays_open = matches!(input, Input::Opened | Input::WatchStable | Input::Changed(_) | Input::Bookmark(_));
            let effects = machine.step(now, input);
            desynced |= effects.iter().any(|effect| matches!(effect, Effect::Count(Anomaly::Desync(_) | Anomaly::Inconsistent)));
            let actions: Vec<&Effect> = effects.iter().filter(|effect| effect.is_action()).collect();
            prop_assert_eq!(actions.len(), usize::from(!stays_open), "one thing to do at a time: {:?}", effects);
            let Some(next) = actions.first() else { open = true; continue };
            open = false;
            if failing {
                let waits = matches!(next, Effect::Wait { .. } | Effect::AwaitServer { .. } | Effect::Confirm)
                    // Once, and not again before a while.
                    || (expired && matches!(next, Effect::List { .. } | Effect::Recover { .. }))
                    || (!asked && matches!(next, Effect::AskLatest));
                prop_assert!(waits, "a failure is followed by a wait, not by {next:?}");
            }
            if let Effect::List { .. } | Effect::Recover { .. } = next {
                prop_assert!(desynced, "no list while there is a position to resume from");
            }
            if let Effect::List { at, token: None, .. } = next {
                older = at.is_some();
            }
            action = (*next).clone();
        }
    }
}
