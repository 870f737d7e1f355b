//! How often a source asks, how it waits for a server that is away, and when it is well again.

use proptest::prelude::*;

use super::random::{answers, any_input};
use super::*;

/// Every request costs a turn, so nothing is asked more often than this, whatever is answered.
#[test]
fn what_is_asked_again_at_once_rests_first() {
    check(
        known(),
        "0 start => probe 12
         0 probed 40 => watch 10
         0 opened => watching
         0.1 changed 15 =>
         0.1 closed => probe 15
         0.1 probed 40 => rest 0.4s, watch 12
         0.5 opened =>
         0.5 changed 17 =>
         0.5 closed => probe 17
         0.5 probed 40 => rest 0.5s, watch 15
         1 opened =>
         300 changed 19 =>
         300 closed => probe 19
         300 probed 40 => watch 17",
    );
}

/// A server whose versions have no order sends what it has, and closes: the second time that is nothing new.
#[test]
fn versions_without_an_order_are_news_once() {
    check(
        memory(Some("abc"), Some("def"), None),
        "0 start => watch abc
         0 opened => watching
         0 changed x =>
         0 changed y =>
         0 closed => rest 0.5s, watch x
         0.5 opened =>
         0.5 changed x =>
         0.5 changed y =>
         0.5 closed => wait #1
         1 waited => watch x
         1 opened =>
         1 changed x =>
         1 changed y =>
         1 closed => degraded (the API server closes every watch at once), wait #2",
    );
}

#[test]
fn a_server_that_is_away_is_waited_for() {
    check(
        known(),
        "0 start => probe 12
         0 probed 40 => watch 10
         0 opened => watching
         20 cut => wait #1
         20 waited => probe 12
         20 away refused => await #1
         21 waited => probe 12
         21 away refused => degraded (refused), await #2
         40 answers => probe 12
         40 probed 40 => watch 10
         40 opened => watching",
    );
}

/// A balancer answers for it, and what we ask still breaks off.
#[test]
fn who_is_called_in_vain_waits_by_himself() {
    check(
        known(),
        "0 start => probe 12
         0 probed 40 => watch 10
         1 away reset => await #1
         1 answers => probe 12
         1 probed 40 => watch 10
         2 away reset => await #1
         2 answers => probe 12
         2 probed 40 => watch 10
         3 away reset => await #1
         3 answers => probe 12
         3 probed 40 => watch 10
         4 away reset => await again #1
         9 waited => probe 12
         9 away reset => degraded (reset), await again #2
         20 answers => probe 12
         20 probed 40 => watch 10
         20 opened => watching
         40 cut => wait #1
         40 waited => probe 12
         40 away reset => await #1",
    );
}

/// It denies everything until it knows who may do what, and how long it was away makes nobody wait for it.
#[test]
fn a_server_that_has_just_begun_is_not_taken_at_its_word() {
    check(
        known(),
        "0 start => probe 12
         0 away refused => await #1
         1 waited => probe 12
         1 away refused => degraded (refused), await #2
         25 waited => probe 12
         25 away refused => await #3
         50 answers => probe 12
         50 forbidden ask => wait #1 at least 0.5s
         51 waited => probe 12
         51 server trouble => wait #1 at least 0.5s
         52 waited => probe 12
         52 ahead => ask
         52 unreachable half => wait #1 at least 0.5s
         53 waited => ask
         53 latest 40 => wait #1 at least 0.5s
         54 waited => probe 12
         54 probed 40 => watch 10
         81 forbidden ask => degraded (ask), wait #5 at least 30s",
    );
    // Away behind a proxy that answers for it.
    check(
        known(),
        "0 start => probe 12
         0 busy => await again #1
         1 waited => probe 12
         1 busy => degraded (the API server is busy), await again #2
         20 waited => probe 12
         20 busy => await again #3
         45 waited => probe 12
         45 forbidden ask => wait #1 at least 0.5s
         74 waited => probe 12
         74 forbidden ask => wait #1 at least 0.5s
         75 waited => probe 12
         75 busy => await again #6
         76 answers => probe 12
         76 busy 3 => wait #1 at least 3s
         80 waited => probe 12
         80 probed 40 => watch 10",
    );
}

/// One that is busy and fails in turns does not begin each time, unless somebody says that it had been away.
#[test]
fn a_server_that_has_too_much_to_do_is_asked_ever_more_rarely() {
    check(
        known(),
        "0 start => probe 12
         0 busy => await again #1
         1 waited => probe 12
         1 server trouble => wait #1 at least 0.5s
         2 waited => probe 12
         2 busy => degraded (the API server is busy), await again #3
         40 waited => probe 12
         40 server trouble => degraded (trouble), wait #4
         45 waited => probe 12
         45 busy => degraded (the API server is busy), await again #5
         50 answers => probe 12
         50 server trouble => wait #1 at least 0.5s",
    );
}

#[test]
fn watches_that_break_off_at_once_are_reported_and_watching_is_what_has_stood() {
    check(
        known(),
        "0 start => probe 12
         0 probed 40 => watch 10
         0 opened => watching
         0.1 cut => await again #1
         1 waited => probe 12
         1 probed 40 => watch 10
         1 opened =>
         1.1 cut => degraded (every watch breaks off; look at what is between us and the API server: it broke), await again #2
         2 waited => probe 12
         2 probed 40 => watch 10
         2 opened =>
         5 cut => await again #3
         9 waited => probe 12
         9 probed 40 => watch 10
         9 opened =>
         19 stood => watching
         30 cut => wait #1
         30 waited => probe 12
         30 probed 40 => watch 10
         30 opened =>
         31 cut => wait #1
         31 waited => probe 12
         31 probed 40 => watch 10
         31 opened =>
         31.1 cut => degraded (every watch breaks off; look at what is between us and the API server: it broke), await again #4
         40 waited => probe 12
         40 probed 40 => watch 10
         40 opened =>
         40 changed 15 => watching",
    );
}

/// An API server that goes again and again soon after it came: that it was away explains why the watches broke off.
#[test]
fn watches_that_broke_off_with_their_server_no_longer_count_when_it_is_back() {
    check(
        known(),
        "0 start => probe 12
         0 probed 40 => watch 10
         0 opened => watching
         0.5 cut => await again #1
         24 answers => probe 12
         24 probed 40 => watch 10
         24 opened =>
         24.5 cut => await again #1
         48 answers => probe 12
         48 probed 40 => watch 10
         48 opened =>",
    );
}

/// Without bookmarks the ends of two watches, each of which was asked for, say that nothing happened.
#[test]
fn a_quiet_position_moves_with_the_proper_ends_of_watches() {
    check(
        known(),
        "0 start => probe 12
         0 probed 40 => watch 10
         0 opened => watching
         100 over => probe 12
         100 probed 60 => watch 10
         100 opened =>
         200 over => bookmark 40, probe 40
         200 probed 70 => watch 40
         200 opened =>
         250 changed 65 =>
         300 over => probe 65
         300 probed 90 => watch 40
         300 opened =>
         301 changed 65 => replay
         400 over => probe 65
         400 probed 95 => watch 40
         400 opened =>
         400 changed 65 => replay
         500 over => bookmark 90, probe 90",
    );
    // Nothing else says so: not a watch that was ended before its time, nor one that broke.
    check(
        known(),
        "0 start => probe 12
         0 probed 40 => watch 10
         0 opened => watching
         50 closed => probe 12
         50 probed 60 => watch 10
         50 opened =>
         90 cut => wait #1
         91 waited => probe 12
         91 probed 70 => watch 10
         91 opened =>
         200 silent => wait #1
         201 waited => probe 12
         201 probed 80 => watch 10
         201 opened =>
         210 bookmark 75 => bookmark 75
         300 over => probe 75",
    );
    // One that broke in between takes nothing from them, and what comes after all does.
    for (between, end) in [("", "over => bookmark 40, probe 40"), ("160 changed 39 =>", "over => probe 39")] {
        check(
            known(),
            &format!(
                "0 start => probe 12
                 0 probed 40 => watch 10
                 0 opened => watching
                 100 over => probe 12
                 100 probed 60 => watch 10
                 100 opened =>
                 150 cut => wait #1
                 151 waited => probe 12
                 151 probed 70 => watch 10
                 151 opened =>
                 {between}
                 300 {end}"
            ),
        );
    }
}

/// Shorter watches have the same time together, and two of them are not enough.
#[test]
fn a_quiet_position_moves_with_as_many_shorter_watches_as_make_two_minutes() {
    check(
        known(),
        "0 start => probe 12
         0 probed 40 => watch 10
         0 opened => watching
         30 over => probe 12
         30 probed 50 => watch 10
         30 opened =>
         60 over => probe 12
         60 probed 60 => watch 10
         60 opened =>
         90 over => probe 12
         90 probed 70 => watch 10
         90 opened =>
         120 over => bookmark 40, probe 40
         120 probed 80 => watch 40
         120 opened =>
         150 over => bookmark 50, probe 50
         150 probed 90 => watch 50
         150 opened =>
         155 changed 85 =>
         180 over => probe 85
         180 probed 95 => watch 50
         180 opened =>
         180 changed 85 => replay
         220 over => probe 85
         220 probed 99 => watch 50
         220 opened =>
         310 over => bookmark 95, probe 95",
    );
}

/// Two watches that brought nothing and were cut after the same time were cut because they were idle.
#[test]
fn watches_that_are_cut_when_idle_are_asked_for_a_shorter_time() {
    let seconds = |lives: &[(f64, &str)]| {
        let mut machine = Machine::new(known(), Thresholds::default());
        let mut now = Duration::ZERO;
        machine.step(now, Input::Start);
        machine.step(now, Input::Probed(rv("40")));
        for (lived, line) in lives {
            machine.step(now, Input::Opened);
            for word in line.split(',') {
                now += Duration::from_secs_f64(lived / line.split(',').count() as f64);
                machine.step(now, parse(&format!("0 {word}")).1);
            }
            machine.step(now, Input::Waited);
            machine.step(now, Input::Probed(rv("400")));
        }
        let longest = |now| machine.longest_watch(now).map(|longest| longest.as_secs());
        assert_eq!(longest(now + Duration::from_secs(3600)), None, "it is tried again");
        longest(now)
    };
    assert_eq!(seconds(&[(35.0, "cut")]), None);
    assert_eq!(seconds(&[(35.0, "cut"), (34.5, "cut")]), Some(29));
    assert_eq!(seconds(&[(10.0, "cut"), (10.0, "cut")]), Some(8));
    assert_eq!(seconds(&[(35.0, "cut"), (30.0, "over"), (30.0, "over")]), None);
    assert_eq!(seconds(&[(35.0, "cut"), (35.0, "cut"), (29.0, "over"), (29.0, "bookmark 300,over")]), Some(30));
    assert_eq!(seconds(&[(35.0, "cut"), (9.0, "cut"), (35.0, "cut")]), None);
    assert_eq!(seconds(&[(35.0, "cut"), (60.0, "closed"), (35.0, "cut")]), None);
    assert_eq!(seconds(&[(35.0, "cut"), (35.0, "changed 50,cut")]), None, "it was not idle");
    assert_eq!(seconds(&[(3.0, "cut"), (3.0, "cut")]), None, "that is another trouble");
    assert_eq!(seconds(&[(200.0, "cut"), (200.0, "cut")]), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    /// The dice never make it wait, and the server answers at once: still it asks no more often than it may.
    #[test]
    fn no_answer_of_a_server_makes_a_hot_loop(
        inputs in prop::collection::vec((0_u8..40, any_input()), 0..800), opaque in any::<bool>(), recovers in any::<bool>(),
    ) {
        let memory = if opaque { memory(Some("a"), Some("b"), None) } else { known() };
        let patience = Thresholds::default();
        let mut machine = Machine::new(memory, patience).recovering(recovers);
        let (mut now, mut open, mut newest, mut listed) = (Duration::ZERO, false, 100_u32, 100);
        let (mut watches, mut requests, mut pages) = (Vec::new(), Vec::new(), Vec::new());
        let mut effects = machine.step(now, Input::Start);
        for (dice, input) in inputs {
            let Some(action) = effects.iter().find(|effect| effect.is_action()).cloned() else { unreachable!() };
            for effect in effects {
                if let Effect::Throttle(rest) = effect {
                    now += rest;
                }
            }
            newest += 1;
            match &action {
                Effect::List { token: Some(_), .. } => pages.push(now),
                Effect::List { token: None, .. } => {
                    requests.push(now);
                    listed = newest;
                }
                Effect::Watch(_) if !open => {
                    watches.push(now);
                    requests.push(now);
                }
                // What recovering asks itself is bounded by the limiter.
                Effect::Probe(_) | Effect::AskLatest | Effect::Recover { .. } | Effect::Confirm => requests.push(now),
                Effect::Watch(_)
                | Effect::Commit { .. }
                | Effect::Wait { .. }
                | Effect::AwaitServer { .. }
                | Effect::Throttle(_)
                | Effect::Gone
                | Effect::Refresh
                | Effect::Reconnect
                | Effect::Bookmark(_)
                | Effect::Report(_)
                | Effect::Count(_) => {}
            }
            let version = rv(&newest.to_string());
            // Half of the answers are what keeps a source busy, the others anything.
            let input = match &action {
                Effect::Wait { at_least, .. } => {
                    now += *at_least;
                    Input::Waited
                }
                Effect::AwaitServer { .. } => Input::ServerReachable,
                Effect::Commit { .. } => Input::Committed,
                Effect::Gone => break,
                action if dice < 20 && answers(action, open, &input) => input,
                Effect::Probe(_) => Input::Probed(version),
                Effect::AskLatest => Input::Latest(version),
                Effect::List { at, .. } => {
                    let version = at.clone().unwrap_or_else(|| rv(&listed.to_string()));
                    Input::Page { version, next: (dice != 20).then(|| "t".to_owned()), newer: false }
                }
                Effect::Recover { .. } if dice % 2 == 0 => Input::Compacted(version),
                Effect::Recover { .. } => Input::Recovered(version),
                Effect::Confirm => Input::Confirmed(false),
                Effect::Watch(_) if !open => Input::Opened,
                Effect::Watch(_) if dice % 2 == 0 => {
                    Input::Changed(if opaque { rv(&format!("v{newest}")) } else { version })
                }
                Effect::Watch(_)
                | Effect::Throttle(_)
                | Effect::Refresh
                | Effect::Reconnect
                | Effect::Bookmark(_)
                | Effect::Report(_)
                | Effect::Count(_) => Input::Ended(End::Closed),
            };
            open = matches!(input, Input::Opened | Input::WatchStable | Input::Changed(_) | Input::Bookmark(_));
            let next = machine.step(now, input);
            effects = if open { vec![action] } else { next };
        }
        for (times, most) in [(watches, 1), (requests, pace::REQUESTS), (pages, pace::PAGES)] {
            for pair in times.windows(most + 1) {
                prop_assert!(pair[most] - pair[0] >= patience.apart, "{most}: {times:?}");
            }
        }
    }
}

#[test]
fn what_is_lost_is_recovered_without_a_gap() {
    check_recovering(
        known(),
        "0 start => probe 12
         0 probed 40 => watch 10
         0 opened => watching
         5 expired => desync expired, recovering, recover
         9 recovered 60 => watch 60
         9 opened => watching
         20 changed 61 =>
         30 changed 62 =>
         31 expired => desync expired, recovering, recover
         31 unreachable => wait #1
         32 waited => recover
         33 recovered 70 => watch 70",
    );
}

#[test]
fn what_is_compacted_is_listed_as_it_was_and_the_rest_is_recovered() {
    check_recovering(
        known(),
        "0 start => probe 12
         0 probed 40 => watch 10
         0 expired => desync expired, recovering, recover
         1 compacted 30 => listing, list at 30
         1 page 30 t => list after t
         1 page 30 => commit 30 with a gap: expired
         2 committed => recovering, recover
         3 recovered 60 => watch 60",
    );
    // It is compacted further meanwhile, and then the API server does not do as it is asked.
    check_recovering(
        known(),
        "0 start => probe 12
         0 probed 40 => watch 10
         0 expired => desync expired, recovering, recover
         1 compacted 30 => listing, list at 30
         1 expired => wait #1
         2 waited => recovering, recover
         3 compacted 50 => listing, list at 50
         4 page 61 => degraded (the API server answered with a list of another version, 61), wait #2
         6 waited => listing, list
         7 page 62 => commit 62 with a gap: expired",
    );
}

#[test]
fn what_cannot_be_recovered_is_listed_behind_a_gap() {
    check_recovering(
        known(),
        "0 start => probe 12
         0 probed 40 => watch 10
         0 expired => desync expired, recovering, recover
         1 unrecoverable => listing, list
         2 page 50 => commit 50 with a gap: expired
         2 committed => watch 50
         2 opened => watching
         20 changed 61 =>
         90 expired => desync expired, recovering, recover",
    );
    // Nothing can be recovered of another timeline, or of another scope.
    check_recovering(memory(None, Some("12"), Some(Why::Scope)), "0 start => listing, list");
    check_recovering(
        memory(None, Some("12"), Some(Why::Expired)),
        "0 start => recovering, recover
         1 ahead => ask
         2 latest 11 => desync rollback, wait #1
         3 waited => listing, list",
    );
}
