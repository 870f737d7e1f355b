//! The machine, as traces that a person can read: one line in is `TIME INPUT`, one line out the effects.

mod random;
mod reaching;
mod relisting;
mod restored;
mod unrelated;

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
        "endless" => Input::Endless(text()),
        "noroom" => Input::NoRoom(text()),
        "unrelated" => Input::IncomparableVersions,
        "committed" => Input::Committed,
        "opened" => Input::Opened,
        "overlapped" => Input::Overlapped(rv(rest[0])),
        "stood" => Input::WatchStable,
        "over" => Input::Ended(End::TimedOut),
        "changed" => Input::Changed(rv(rest[0])),
        "bookmark" => Input::Bookmark(rv(rest[0])),
        "closed" => Input::Ended(End::Closed),
        "cut" => Input::Ended(End::Disconnected("it broke".to_owned())),
        "silent" => Input::Ended(End::Idle),
        "waited" => Input::Waited,
        "answers" => Input::ServerReachable,
        "latest" => Input::Latest(rv(rest[0])),
        "warned" => Input::RollbackSuspected,
        "recovered" => Input::Recovered(rv(rest[0])),
        "compacted" => Input::Compacted(rv(rest[0])),
        "unrecoverable" => Input::Unrecoverable,
        "differs" => Input::AuditMismatch,
        "lacking" => Input::ListTooShort(text()),
        "inconsistent" => Input::Inconsistent,
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
        Effect::Recover { confirmed } => format!("recover{}", if *confirmed { " for sure" } else { "" }),
        Effect::List { token: Some(token), .. } => format!("list after {token}"),
        Effect::Commit { version, why: None, .. } => format!("commit {version}"),
        Effect::Commit { version, why: Some(why), confirmed } => {
            format!("commit {version} with a gap: {}{}", why.as_str(), if *confirmed { ", for sure" } else { "" })
        }
        Effect::Watch(version) => format!("watch {version}"),
        Effect::Wait { tries, at_least } if at_least.is_zero() => format!("wait #{tries}"),
        Effect::Wait { tries, at_least } => format!("wait #{tries} at least {}s", at_least.as_secs_f64()),
        Effect::AwaitServer { tries, any: true } => format!("await #{tries}"),
        Effect::AwaitServer { tries, any: false } => format!("await again #{tries}"),
        Effect::Throttle(rest) => format!("rest {}s", rest.as_secs_f64()),
        Effect::Confirm => "confirm".to_owned(),
        Effect::Gone => "gone".to_owned(),
        Effect::Refresh => "refresh".to_owned(),
        Effect::Reconnect => "reconnect".to_owned(),
        Effect::Bookmark(version) => format!("bookmark {version}"),
        Effect::Report(SourceState::Degraded(text)) => format!("degraded ({text})"),
        Effect::Report(state) => state.word().to_owned(),
        Effect::Count(Anomaly::Replay) => "replay".to_owned(),
        Effect::Count(Anomaly::Disorder) => "disorder".to_owned(),
        Effect::Count(Anomaly::Desync(why)) => format!("desync {}", why.as_str()),
        Effect::Count(Anomaly::ListGivenUp) => "given up".to_owned(),
        Effect::Count(Anomaly::Inconsistent) => "inconsistent".to_owned(),
    }
}

/// Each line of `trace` is `INPUT => EFFECTS`.
#[track_caller]
fn check(memory: SourceMemory, trace: &str) {
    check_machine(Machine::new(memory, Thresholds::default()), trace);
}

/// The same of a source that recovers what it has lost.
#[track_caller]
fn check_recovering(memory: SourceMemory, trace: &str) {
    check_machine(Machine::new(memory, Thresholds::default()).recovering(true), trace);
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

/// Fault 26: an empty list from a broken server is requested a second time before anything is recorded as deleted.
#[test]
fn a_list_that_lacks_most_of_what_is_known_is_asked_for_twice() {
    check(
        known(),
        "0 start => probe 12
         0 expired => desync expired, listing, list
         2 page 50 => commit 50 with a gap: expired
         2 lacking few => reconnect, wait #1
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
    // Served again in between: the time begins again.
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
