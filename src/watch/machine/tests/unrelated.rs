//! Versions of lists that have nothing to do with those of objects.

use super::*;

/// Lists of some aggregated APIs have versions that have nothing to do with those of objects.
#[test]
fn versions_of_lists_that_say_nothing_about_objects_prove_no_rollback() {
    check(
        known(),
        "0 start => probe 12
         0 probed 5 => ask
         0 unrelated => watch 10
         1 opened => watching
         2 changed 13 =>
         60 closed => watch 12
         61 opened =>
         62 warned => watch 12
         63 ahead => ask
         63 latest 5 => wait #1
         64 waited => watch 12
         65 opened =>
         70 expired => desync expired, listing, list
         72 page 5 => commit 5 with a gap: expired",
    );
    // The first list shows it where it has an object that is newer than itself.
    check(
        new(),
        "0 start => listing, list
         1 page 5 t => list after t
         2 page 5 newer => commit 5
         3 committed => watch 5
         4 opened => watching
         5 changed 13 =>
         60 closed => watch 5",
    );
}
