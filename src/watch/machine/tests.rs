//! The machine, as traces that a person can read: one line in is `TIME INPUT`, one line out the effects.

mod reaching;
mod unrelated;

use proptest::prelude::*;

use super::*;

fn rv(text: &str) -> ResourceVersion {
    ResourceVersion::new(text)
}

fn memory(resume: Option<&str>, applied: Option<&str>, why: Option<Why>) -> SourceMemory {
    let checkpoint = Checkpoint { resume: resume.map(rv), applied: applied.map(rv) };
    SourceMemory { checkpoint, why }
}

/// A source that has never run.
fn new() -> SourceMemory {
    memory(None, None, None)
}

/// A source that stopped at 10, with 12 as the highest version in the journal.
fn known() -> SourceMemory {
    memory(Some("10"), Some("12"), None)
}

/// Reads `SECONDS WORD [ARGUMENTS]`.
fn parse(line: &str) -> (Duration, Input) {
    let mut words = line.split_whitespace();
    let seconds: f64 = words.next().unwrap().parse().unwrap();
    let word = words.next().unwrap();
    let rest: Vec<&str> = words.collect();
    let failed = Input::Failed;
    let text = || rest.join(" ");
    let input = match word {
        "start" => Input::Start,
        "probed" => Input::Probed(rv(rest[0])),
        // A page with newer objects is `page VERSION newer [TOKEN]`.
        "page" => {
            let newer = rest.get(1) == Some(&"newer");
            let next = rest.get(if newer { 2 } else { 1 }).map(|token| (*token).to_owned());
            Input::Page { version: rv(rest[0]), next, newer }
        }
        "unrelated" => Input::Unrelated,
        "committed" => Input::Committed,
        "opened" => Input::Opened,
        "stood" => Input::Stood,
        "over" => Input::Ended(End::Over),
        "changed" => Input::Changed(rv(rest[0])),
        "bookmark" => Input::Bookmark(rv(rest[0])),
        "closed" => Input::Ended(End::Closed),
        "cut" => Input::Ended(End::Cut("it broke".to_owned())),
        "silent" => Input::Ended(End::Silent),
        "waited" => Input::Waited,
        "rung" => Input::Rung,
        "latest" => Input::Latest(rv(rest[0])),
        "warned" => Input::Warned,
        "recovered" => Input::Recovered(rv(rest[0])),
        "compacted" => Input::Compacted(rv(rest[0])),
        "unrecoverable" => Input::Unrecoverable,
        "differs" => Input::Differs,
        "inconsistent" => Input::Inconsistent,
        "doubtful" => Input::Doubtful(text()),
        "confirmed" => Input::Confirmed(rest[0] == "yes"),
        "expired" => failed(Failure::Expired),
        "ahead" => failed(Failure::Ahead),
        "busy" => failed(Failure::Busy(rest.first().map(|s| Duration::from_secs(s.parse().unwrap())))),
        "unauthorized" => failed(Failure::Unauthorized),
        "forbidden" => failed(Failure::Forbidden(text())),
        "notfound" => failed(Failure::NotFound),
        "refused" => failed(Failure::Refused(text())),
        "server" => failed(Failure::Server(text())),
        "tls" => failed(Failure::Tls(text())),
        "away" => failed(Failure::Away(text())),
        "unreachable" => failed(Failure::Unreachable(text())),
        "undecodable" => failed(Failure::Undecodable(text())),
        "oversize" => failed(Failure::Oversize(text())),
        other => panic!("no input is called {other}"),
    };
    (Duration::from_secs_f64(seconds), input)
}

fn show(effect: &Effect) -> String {
    match effect {
        Effect::Probe(version) => format!("probe {version}"),
        Effect::AskLatest => "ask".to_owned(),
        Effect::List { token: None, at: Some(at), .. } => format!("list at {at}"),
        Effect::List { token: None, paged: true, .. } => "list".to_owned(),
        Effect::List { token: None, paged: false, .. } => "list in one piece".to_owned(),
        Effect::Recover { sure } => format!("recover{}", if *sure { " for sure" } else { "" }),
        Effect::List { token: Some(token), .. } => format!("list after {token}"),
        Effect::Commit { version, why: None, .. } => format!("commit {version}"),
        Effect::Commit { version, why: Some(why), sure } => {
            format!("commit {version} with a gap: {}{}", why.as_str(), if *sure { ", for sure" } else { "" })
        }
        Effect::Watch(version) => format!("watch {version}"),
        Effect::Wait { tries, at_least } if at_least.is_zero() => format!("wait #{tries}"),
        Effect::Wait { tries, at_least } => format!("wait #{tries} at least {}s", at_least.as_secs_f64()),
        Effect::Await { tries, any: true } => format!("await #{tries}"),
        Effect::Await { tries, any: false } => format!("await again #{tries}"),
        Effect::Rest(rest) => format!("rest {}s", rest.as_secs_f64()),
        Effect::Confirm => "confirm".to_owned(),
        Effect::Gone => "gone".to_owned(),
        Effect::Refresh => "refresh".to_owned(),
        Effect::Reconnect => "reconnect".to_owned(),
        Effect::Bookmark(version) => format!("bookmark {version}"),
        Effect::Report(SourceState::Degraded(text)) => format!("degraded ({text})"),
        Effect::Report(state) => state.word().to_owned(),
        Effect::Count(Oddity::Replay) => "replay".to_owned(),
        Effect::Count(Oddity::Disorder) => "disorder".to_owned(),
        Effect::Count(Oddity::Desync(why)) => format!("desync {}", why.as_str()),
        Effect::Count(Oddity::Inconsistent) => "inconsistent".to_owned(),
    }
}

/// Each line of `trace` is `INPUT => EFFECTS`.
#[track_caller]
fn check(memory: SourceMemory, trace: &str) {
    check_machine(Machine::new(memory, Patience::default()), trace);
}

/// The same of a source that recovers what it has lost.
#[track_caller]
fn check_recovering(memory: SourceMemory, trace: &str) {
    check_machine(Machine::new(memory, Patience::default()).recovering(true), trace);
}

#[track_caller]
fn check_machine(mut machine: Machine, trace: &str) {
    let mut actual = String::new();
    let expected: Vec<&str> = trace.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    for line in &expected {
        let input = line.split(" =>").next().unwrap();
        let (now, input_value) = parse(input);
        let effects: Vec<String> = machine.step(now, input_value).iter().map(show).collect();
        actual.push_str(format!("{input} => {}", effects.join(", ")).trim_end());
        actual.push('\n');
    }
    let expected = expected.join("\n") + "\n";
    assert_eq!(actual, expected, "\nwhat it did:\n{actual}\nwhat was expected:\n{expected}");
}

#[test]
fn a_first_list_has_no_gap_and_is_watched_from() {
    check(
        new(),
        "0 start => listing, list
         1 page 7 t1 => list after t1
         2 page 7 t2 => list after t2
         3 page 7 => commit 7
         4 committed => watch 7
         5 opened => watching",
    );
}

#[test]
fn a_known_source_resumes_without_a_list() {
    check(
        known(),
        "0 start => probe 12
         1 probed 40 => watch 10
         2 opened => watching
         3 changed 12 => replay
         4 changed 15 =>
         5 changed 15 =>
         300 closed => probe 15
         300 probed 40 => watch 12",
    );
}

#[test]
fn a_change_of_scope_is_listed_with_its_gap() {
    check(
        memory(None, Some("12"), Some(Why::Scope)),
        "0 start => listing, list
         1 page 20 => commit 20 with a gap: scope
         2 committed => watch 20",
    );
}

#[test]
fn the_position_stays_on_the_distinct_version_before_the_newest() {
    check(
        known(),
        "0 start => probe 12
         1 probed 40 => watch 10
         2 opened => watching
         3 changed 13 =>
         3 changed 14 =>
         3 changed 14 =>
         3 changed 14 =>
         9 cut => wait #1
         9 waited => probe 14
         9 probed 40 => watch 13
         9 opened =>
         9 changed 14 => replay
         9 bookmark 30 => bookmark 30
         99 closed => probe 30",
    );
}

/// Fault 19: a server that goes back in time.
#[test]
fn nothing_moves_back() {
    check(
        known(),
        "0 start => probe 12
         0 probed 40 => watch 10
         0 opened => watching
         1 changed 20 =>
         1 changed 18 => disorder
         1 bookmark 19 => disorder
         2 closed => probe 20",
    );
}

#[test]
fn expired_in_every_form_is_one_list_with_a_gap() {
    for begin in ["0 opened => watching", ""] {
        check(
            known(),
            &format!(
                "0 start => probe 12
                 0 probed 40 => watch 10
                 {begin}
                 1 expired => desync expired, listing, list
                 3 page 50 => commit 50 with a gap: expired
                 4 committed => watch 50
                 5 opened => {}",
                "watching"
            ),
        );
    }
    check(known(), "0 start => probe 12\n1 expired => desync expired, listing, list");
}

#[test]
fn a_page_that_expires_begins_the_list_again_and_then_in_one_piece() {
    check(
        known(),
        "0 start => probe 12
         0 expired => desync expired, listing, list
         2 page 50 t => list after t
         3 expired => wait #1
         4 waited => list
         5 page 60 t => list after t
         6 expired => degraded (the list took longer than the API server remembers), wait #2
         7 waited => listing, list in one piece
         8 page 70 => commit 70 with a gap: expired
         9 committed => watch 70",
    );
}

#[test]
fn a_list_that_is_too_old_when_it_is_written_is_made_in_one_piece() {
    check(
        new(),
        "0 start => listing, list
         1 page 7 => commit 7
         200 committed => watch 7
         200 opened => watching
         201 expired => desync expired, wait #1
         202 waited => listing, list in one piece
         203 page 9 => commit 9 with a gap: expired
         204 committed => watch 9
         204 opened => watching
         205 changed 11 =>
         206 expired => desync expired, wait #2
         207 waited => listing, list",
    );
}

#[test]
fn a_list_of_two_versions_is_no_list() {
    check(
        new(),
        "0 start => listing, list
         1 page 7 t => list after t
         2 page 8 => wait #1
         3 waited => list
         4 page 9 t => list after t
         5 page 10 => degraded (a list changed its version from 9 to 10 between two pages), wait #2
         6 waited => listing, list in one piece
         7 page 11 t => list after t
         8 page 12 => degraded (a list changed its version from 11 to 12 between two pages), wait #3
         9 waited => listing, list in one piece
         10 page 13 => commit 13
         11 committed => watch 13
         12 opened => watching
         13 changed 14 =>
         14 differs => desync audit, wait #4
         15 waited => listing, list",
    );
}

#[test]
fn a_busy_server_is_waited_for_as_long_as_it_asks_and_nothing_is_lost() {
    check(
        known(),
        "0 start => probe 12
         0 probed 40 => watch 10
         1 busy 5 => wait #1 at least 5s
         6 waited => watch 10
         7 busy => degraded (the API server is busy), await again #2
         8 waited => watch 10
         9 opened => watching
         10 busy => degraded (the API server is busy), await again #3
         11 waited => watch 10",
    );
}

#[test]
fn a_server_that_consistently_has_less_than_the_journal_was_restored() {
    check(
        known(),
        "0 start => probe 12
         1 ahead => ask
         1 latest 11 => desync rollback, wait #1
         2 waited => listing, list
         3 page 90 => commit 90 with a gap: rollback
         4 committed => watch 90",
    );
    // However late the answer, and whatever the server says of our position meanwhile.
    check(
        known(),
        "0 start => probe 12
         1 ahead => ask
         1 busy => await again #1
         2 waited => ask
         3 latest 8 => desync rollback, wait #1 at least 0.5s
         4 waited => listing, list
         5 page 9 => commit 9 with a gap: rollback
         6 committed => watch 9",
    );
}

/// Fault 13: "Too large resource version" is waited for.
#[test]
fn a_server_that_was_only_slow_was_not_restored() {
    check(
        known(),
        "0 start => probe 12
         1 ahead => ask
         1 latest 50 => wait #1
         2 waited => probe 12
         3 probed 50 => watch 10",
    );
    // It is watched all the same when it stays so.
    check(
        known(),
        "0 start => probe 12
         1 ahead => ask
         1 latest 50 => wait #1
         62 waited => probe 12
         62 ahead => ask
         62 latest 50 => degraded (the API server does not have the version up to which the journal goes, yet), wait #2
         63 waited => watch 10",
    );
}

#[test]
fn an_answer_older_than_what_was_asked_for_counts_as_behind() {
    check(known(), "0 start => probe 12\n1 probed 11 => ask\n2 latest 12 => wait #1\n3 waited => probe 12");
}

#[test]
fn a_warning_is_looked_into_before_the_watch_goes_on() {
    for begin in ["0 opened => watching", ""] {
        check(
            known(),
            &format!(
                "0 start => probe 12
                 0 probed 40 => watch 10
                 {begin}
                 1 warned => ask
                 1 latest 12 => watch 10"
            ),
        );
    }
    check(
        known(),
        "0 start => probe 12
         0 probed 40 => watch 10
         0 opened => watching
         1 warned => ask
         1 latest 11 => desync rollback, wait #1
         2 waited => listing, list",
    );
}

/// Faults 14 and 15: one old list is a stale server, two are a restored one.
#[test]
fn a_list_older_than_the_journal_is_asked_for_twice() {
    check(
        known(),
        "0 start => probe 12
         0 expired => desync expired, listing, list
         2 page 11 => wait #1
         3 waited => list
         4 page 11 => ask
         4 latest 11 => desync rollback, degraded (the API server has gone back in time, as after a restore from a backup), wait #2
         5 waited => listing, list
         6 page 11 => commit 11 with a gap: rollback",
    );
    // The lists are those of a stale cache.
    check(
        known(),
        "0 start => probe 12
         0 expired => desync expired, listing, list
         2 page 11 => wait #1
         3 waited => list
         4 page 11 => ask
         4 latest 14 => list
         5 page 11 => degraded (the API server's list is of version 11, older than what the journal has; asking again), wait #2
         6 waited => listing, list
         7 page 15 => commit 15 with a gap: expired",
    );
}

/// Fault 26: an empty list from a broken server is asked for a second time before anything is told as gone.
#[test]
fn a_list_that_lacks_most_of_what_is_known_is_asked_for_twice() {
    check(
        known(),
        "0 start => probe 12
         0 expired => desync expired, listing, list
         2 page 50 => commit 50 with a gap: expired
         2 doubtful few => reconnect, wait #1
         3 waited => list
         4 page 51 => commit 51 with a gap: expired, for sure
         5 committed => watch 51
         5 opened => watching
         6 changed 60 =>
         7 expired => desync expired, wait #2
         8 waited => listing, list
         9 page 70 => commit 70 with a gap: expired",
    );
}

/// Fault 20: what an audit or the journal finds to differ ends the watch, and the list declares it.
#[test]
fn a_difference_is_listed_with_its_gap() {
    for differs in ["1 differs", "0 opened => watching\n1 differs"] {
        check(
            known(),
            &format!(
                "0 start => probe 12
                 0 probed 40 => watch 10
                 {differs} => desync audit, wait #1
                 2 waited => listing, list
                 3 page 50 => commit 50 with a gap: audit
                 4 committed => watch 50"
            ),
        );
    }
}

#[test]
fn credentials_are_read_again_when_they_are_not_accepted() {
    check(
        known(),
        "0 start => probe 12
         1 unauthorized => refresh, degraded (the API server does not accept the credentials (401); renew the token or the client certificate in the kubeconfig), wait #1
         2 waited => probe 12
         3 tls bad => refresh, degraded (bad), wait #2
         4 waited => probe 12
         5 probed 40 => watch 10
         6 unauthorized => refresh, degraded (the API server does not accept the credentials (401); renew the token or the client certificate in the kubeconfig), wait #3
         7 waited => watch 10",
    );
}

#[test]
fn a_missing_permission_keeps_the_position() {
    check(
        known(),
        "0 start => probe 12
         0 probed 40 => watch 10
         1 forbidden ask => degraded (ask), wait #1 at least 30s
         40 waited => watch 10
         41 forbidden ask => wait #2 at least 30s
         80 waited => watch 10
         81 opened => watching",
    );
}

/// Fault 11: 404 deletes nothing before discovery has confirmed it.
#[test]
fn not_found_is_confirmed_before_anything_is_deleted() {
    check(
        known(),
        "0 start => probe 12
         0 notfound => degraded (the API server does not serve this resource at the moment (404)), wait #1
         1 waited => probe 12
         20 notfound => wait #2
         21 waited => probe 12
         31 notfound => confirm
         32 confirmed no => wait #2
         33 waited => probe 12
         62 notfound => wait #3
         63 waited => probe 12
         64 notfound => confirm
         65 confirmed yes => gone",
    );
    // Served again in between: the time begins anew.
    check(
        known(),
        "0 start => probe 12
         0 probed 40 => watch 10
         1 notfound => degraded (the API server does not serve this resource at the moment (404)), wait #1
         2 waited => watch 10
         3 opened => watching
         40 notfound => degraded (the API server does not serve this resource at the moment (404)), wait #2",
    );
    check(
        known(),
        "0 start => probe 12
         0 notfound => degraded (the API server does not serve this resource at the moment (404)), wait #1
         20 waited => probe 12
         20 probed 40 => watch 10
         31 notfound => wait #2",
    );
}

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
fn single_errors_hours_apart_are_no_lasting_trouble() {
    check(
        known(),
        "0 start => probe 12
         0 probed 40 => watch 10
         0 opened => watching
         1 server oops => wait #1
         2 waited => watch 10
         2 opened =>
         400 closed => probe 12
         400 probed 40 => watch 10
         400 opened =>
         7200 server oops => wait #1
         7201 waited => watch 10",
    );
}

#[test]
fn a_bookmark_without_news_is_no_progress() {
    check(
        known(),
        "0 start => probe 12
         0 probed 40 => watch 10
         0 opened => watching
         0.1 bookmark 12 => bookmark 12
         0.2 closed => wait #1
         1 waited => probe 12
         1 probed 40 => watch 12
         1 opened =>
         1.1 bookmark 12 => bookmark 12
         1.2 closed => degraded (the API server closes every watch at once), wait #2
         2 waited => probe 12
         2 probed 40 => watch 12
         2 opened =>
         2.1 bookmark 13 => watching, bookmark 13
         2.2 closed => probe 13",
    );
}

#[test]
fn an_undecodable_line_is_asked_for_again_then_given_up_with_a_gap() {
    check(
        known(),
        "0 start => probe 12
         0 probed 40 => watch 10
         0 opened => watching
         1 undecodable what => wait #1
         2 waited => watch 10
         2 opened =>
         2 changed 12 => replay
         3 undecodable what => degraded (what), wait #2
         4 waited => watch 10
         5 undecodable what => desync undecodable, wait #3
         6 waited => listing, list
         7 undecodable what => degraded (what), wait #4
         8 waited => listing, list
         9 page 50 => commit 50 with a gap: undecodable",
    );
}

#[test]
fn a_line_too_long_is_given_up_at_once() {
    check(
        known(),
        "0 start => probe 12
         0 probed 40 => watch 10
         0 opened => watching
         1 oversize long => desync oversize, wait #1
         2 waited => listing, list
         3 oversize long => degraded (long), wait #2
         4 waited => listing, list
         5 page 50 => commit 50 with a gap: oversize",
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
    let mut machine = Machine::new(known(), Patience::default());
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
            | Effect::Await { .. }
            | Effect::Rest(_)
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

#[test]
fn a_broken_or_silent_connection_is_looked_at_before_it_is_resumed() {
    for end in ["cut", "silent"] {
        check(
            known(),
            &format!(
                "0 start => probe 12
                 0 probed 40 => watch 10
                 0 opened => watching
                 150 {end} => wait #1
                 151 waited => probe 12
                 151 probed 40 => watch 10"
            ),
        );
    }
    check(
        known(),
        "0 start => probe 12
         0 unreachable refused => wait #1
         1 waited => probe 12
         2 unreachable refused => degraded (refused), wait #2
         3 waited => probe 12
         600 unreachable refused => wait #1
         601 waited => probe 12",
    );
}

#[test]
fn versions_without_an_order_are_resumed_from_without_a_question() {
    check(
        memory(Some("abc"), Some("def"), None),
        "0 start => watch abc
         1 opened => watching
         2 changed ghi =>
         3 closed => watch def",
    );
}

fn any_input() -> impl Strategy<Value = Input> {
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
        1 => Just(Input::Warned),
        1 => Just(Input::Differs),
        1 => Just(Input::Inconsistent),
        1 => Just(Input::Unrelated),
        4 => (version.clone(), prop::option::of(Just("t".to_owned())), prop::bool::weighted(0.05))
            .prop_map(|(version, next, newer)| Input::Page { version, next, newer }),
        4 => Just(Input::Opened),
        1 => Just(Input::Stood),
        4 => version.clone().prop_map(Input::Changed),
        2 => version.clone().prop_map(Input::Bookmark),
        2 => prop_oneof![Just(End::Closed), Just(End::Over), Just(End::Cut("cut".to_owned())), Just(End::Silent)].prop_map(Input::Ended),
        4 => failure.prop_map(Input::Failed),
        1 => any::<bool>().prop_map(Input::Confirmed),
        2 => version.clone().prop_map(Input::Recovered),
        1 => version.prop_map(Input::Compacted),
        1 => Just(Input::Unrecoverable),
    ]
}

/// Whether an input can answer what the machine is waiting for.
fn answers(action: &Effect, open: bool, input: &Input) -> bool {
    match (action, input) {
        (Effect::Probe(_), Input::Probed(_) | Input::Failed(_))
        | (Effect::AskLatest, Input::Latest(_) | Input::Unrelated | Input::Failed(_))
        | (Effect::List { .. }, Input::Page { .. } | Input::Failed(_))
        | (
            Effect::Recover { .. },
            Input::Recovered(_) | Input::Compacted(_) | Input::Unrecoverable | Input::Failed(_),
        )
        | (Effect::Confirm, Input::Confirmed(_)) => true,
        (Effect::Watch(_), Input::Stood | Input::Changed(_) | Input::Bookmark(_) | Input::Ended(_)) => open,
        (Effect::Watch(_), Input::Opened) => !open,
        (Effect::Watch(_), Input::Failed(_) | Input::Warned | Input::Differs | Input::Inconsistent) => true,
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
        let mut machine = Machine::new(memory, Patience::default()).recovering(recovers);
        let mut now = Duration::ZERO;
        let mut open = false;
        let mut action = machine.step(now, Input::Start).pop().unwrap();
        // What is known to be in the journal, and what a list has to be for.
        let (mut listed, mut desynced, mut older) = (begun, !begun, false);
        for (pause, input) in inputs {
            now += Duration::from_millis(pause);
            let input = match &action {
                Effect::Wait { .. } => Input::Waited,
                Effect::Await { .. } if pause % 2 == 0 => Input::Rung,
                Effect::Await { .. } => Input::Waited,
                Effect::Commit { sure: false, .. } if pause % 4 == 0 => Input::Doubtful("few".to_owned()),
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
                Effect::Rest(_)
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
            let failing = matches!(input, Input::Failed(_) | Input::Doubtful(_) | Input::Differs | Input::Inconsistent | Input::Ended(End::Cut(_) | End::Silent));
            let expired = matches!(input, Input::Failed(Failure::Expired));
            let stays_open = matches!(input, Input::Opened | Input::Stood | Input::Changed(_) | Input::Bookmark(_));
            let effects = machine.step(now, input);
            desynced |= effects.iter().any(|effect| matches!(effect, Effect::Count(Oddity::Desync(_) | Oddity::Inconsistent)));
            let actions: Vec<&Effect> = effects.iter().filter(|effect| effect.is_action()).collect();
            prop_assert_eq!(actions.len(), usize::from(!stays_open), "one thing to do at a time: {:?}", effects);
            let Some(next) = actions.first() else { open = true; continue };
            open = false;
            if failing {
                let waits = matches!(next, Effect::Wait { .. } | Effect::Await { .. } | Effect::Confirm)
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
