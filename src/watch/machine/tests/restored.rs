//! Servers that went back in time, or only seem to have.

use super::*;

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
