//! Watches that bring nothing, and the lists that stand in for them.

use super::*;

#[test]
fn a_refused_watch_is_answered_with_one_list() {
    check(
        known(),
        "0 start => probe 12
         0 probed 40 => watch 10
         1 refused no => degraded (no), wait #1 at least 30s
         40 waited => watch 10
         41 refused no => wait #2 at least 30s
         80 waited => watch 10
         81 refused no => wait #3 at least 30s
         120 waited => probe 12
         120 probed 41 => desync expired, listing, list
         121 page 50 => commit 50 with a gap: expired
         122 committed => watch 50
         123 refused no => degraded (no), wait #4 at least 30s
         160 waited => probe 50",
    );
}

#[test]
fn errors_without_a_meaning_are_borne_for_a_while_then_answered_with_one_list() {
    check(
        known(),
        "0 start => probe 12
         0 probed 40 => watch 10
         0 opened => watching
         1 server oops => wait #1
         2 waited => watch 10
         20 server oops => degraded (oops), wait #2
         21 waited => watch 10
         32 server oops => wait #3
         33 waited => probe 12
         33 probed 41 => desync expired, listing, list
         34 page 50 => commit 50 with a gap: expired
         35 committed => watch 50
         36 server oops => degraded (oops), wait #4
         37 waited => probe 50
         37 probed 50 => watch 50
         38 opened => watching
         39 changed 51 =>
         40 server oops => degraded (oops), wait #5
         41 waited => watch 50",
    );
}

#[test]
fn watches_that_end_at_once_are_failures_and_in_the_end_one_list() {
    check(
        known(),
        "0 start => probe 12
         0 probed 40 => watch 10
         0 opened => watching
         0.1 closed => wait #1
         1 waited => probe 12
         1 probed 40 => watch 10
         1 opened =>
         1.1 changed 12 => replay
         1.2 closed => degraded (the API server closes every watch at once), wait #2
         2 waited => probe 12
         2 probed 40 => watch 10
         2 opened =>
         2.1 closed => wait #3
         3 waited => probe 12
         3 probed 40 => watch 10
         3.1 closed => wait #4
         4 waited => probe 12
         4 probed 40 => watch 10
         4.1 closed => wait #5
         5 waited => probe 12
         5 probed 41 => desync expired, listing, list
         6 page 50 => commit 50 with a gap: expired
         6 committed => watch 50
         6.1 closed => degraded (the API server closes every watch at once), wait #6
         7 waited => probe 50",
    );
}

/// Each list that shows news is another one later than the one before it, and there is none without news.
#[test]
fn while_watches_end_at_once_what_is_new_is_listed_ever_more_rarely() {
    let mut machine = Machine::new(known(), Thresholds::default());
    let mut now = Duration::ZERO;
    let mut version = 12_u32;
    let mut action = machine.step(now, Input::Start).pop().unwrap();
    let (mut watches, mut lists, mut waited) = (0, Vec::new(), true);
    while watches < 100 {
        now += Duration::from_millis(100);
        let input = match &action {
            Effect::Wait { .. } => {
                waited = true;
                Input::Waited
            }
            Effect::Probe(_) => {
                // All is quiet from the 52nd watch to the 80th.
                version += u32::from(!(52..80).contains(&watches));
                Input::Probed(rv(&version.to_string()))
            }
            Effect::Watch(_) => {
                assert!(std::mem::take(&mut waited) || lists.last() == Some(&watches), "no hot loop");
                watches += 1;
                machine.step(now, Input::Opened);
                Input::Ended(End::Closed)
            }
            Effect::List { .. } => Input::Page { version: rv(&version.to_string()), next: None, newer: false },
            Effect::Commit { why, .. } => {
                assert_eq!(*why, Some(Why::Expired));
                lists.push(watches);
                Input::Committed
            }
            Effect::AskLatest
            | Effect::Recover { .. }
            | Effect::AwaitServer { .. }
            | Effect::Throttle(_)
            | Effect::Confirm
            | Effect::Gone
            | Effect::Refresh
            | Effect::Reconnect
            | Effect::Bookmark(_)
            | Effect::Report(_)
            | Effect::Count(_) => panic!("{action:?}"),
        };
        action = machine.step(now, input).pop().unwrap();
    }
    // After 5 watches, then 1, 2, 4, 8 and always 16; what is due while all is quiet comes with the first news.
    assert_eq!(lists, [5, 6, 8, 12, 20, 36, 52, 80, 96]);
}

#[test]
fn a_list_of_the_same_version_again_is_not_made() {
    check(
        known(),
        "0 start => probe 12
         0 probed 40 => watch 10
         0 opened => watching
         0.1 refused no => degraded (no), wait #1 at least 30s
         40 waited => watch 10
         41 refused no => wait #2 at least 30s
         80 waited => watch 10
         81 refused no => wait #3 at least 30s
         120 waited => probe 12
         120 probed 41 => desync expired, listing, list
         121 page 50 => commit 50 with a gap: expired
         122 committed => watch 50
         123 refused no => degraded (no), wait #4 at least 30s
         160 waited => probe 50
         160 probed 50 => watch 50
         160 refused no => wait #5 at least 30s
         200 waited => probe 50
         200 probed 51 => desync expired, listing, list
         201 page 51 => commit 51 with a gap: expired
         202 committed => watch 51
         202 opened => watching
         300 closed => probe 51
         300 probed 52 => watch 51
         300 refused no => degraded (no), wait #1 at least 30s
         340 waited => watch 51",
    );
}

/// A list that does not end is begun again ever later, at last in one piece, and reported until one is complete.
#[test]
fn a_list_that_does_not_end_is_given_up_and_reported_until_one_does() {
    check(
        new(),
        "0 start => listing, list
         1 page 7 t1 => list after t1
         2 endless a token came twice => given up, degraded (a token came twice), wait #1
         3 waited => list
         4 endless a token came twice => given up, wait #2
         5 waited => list in one piece
         400 endless on and on => given up, degraded (on and on), wait #3
         401 waited => list in one piece
         402 page 9 => commit 9
         402 committed => watch 9
         403 opened => watching",
    );
    // The position that is to be made good is as lost as before.
    check_recovering(
        known(),
        "0 start => probe 12
         0 expired => desync expired, recovering, recover
         1 unrecoverable => listing, list
         1 endless on and on => given up, degraded (on and on), wait #1
         3 waited => list
         3 page 50 => commit 50 with a gap: expired
         3 committed => watch 50",
    );
}

/// A list that there is no room for takes the disk no more than half of the time.
#[test]
fn a_list_without_room_waits_as_long_as_it_took() {
    check(
        new(),
        "0 start => listing, list
         1 page 7 t1 => list after t1
         2 noroom raise max_size => given up, degraded (raise max_size), wait #1 at least 30s
         40 waited => list
         41 page 7 t1 => list after t1
         140 noroom raise max_size => given up, wait #2 at least 200s
         250 waited => list
         9999 noroom raise max_size => given up, wait #3 at least 600s
         10700 waited => list
         10701 page 9 => commit 9
         10702 noroom raise max_size => given up, wait #4 at least 240s
         10950 waited => list
         10951 page 9 => commit 9
         10952 committed => watch 9
         10952 opened => watching",
    );
    check_recovering(
        known(),
        "0 start => probe 12
         0 expired => desync expired, recovering, recover
         90 noroom raise max_size => given up, degraded (raise max_size), wait #1 at least 90s
         200 waited => recover
         210 recovered 60 => watch 60
         210 opened => watching",
    );
}
