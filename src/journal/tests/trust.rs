//! What the journal does with a watch, or a list, that cannot be as it is.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::*;

fn words(log: &[String]) -> Vec<&str> {
    log.iter().map(|line| line.split_once(' ').unwrap().1).collect()
}

/// Faults 19 and 21: what a watch brings and what is known do not go together. From there on nothing of the watch
/// counts, the next list says so, and a crash in between loses none of it.
#[tokio::test]
async fn what_contradicts_the_journal_is_not_taken_and_the_next_list_declares_it() {
    let unknown = || delete("x", "u9", 13);
    let late = || upsert("x", "u9", 11);
    let other_incarnation = || upsert("a", "u2", 13);
    let between = || upsert("a", "u1", 11);
    for (name, contradiction) in
        [("unknown", unknown()), ("late", late()), ("incarnation", other_incarnation()), ("between", between())]
    {
        let dir = tempfile::tempdir().unwrap();
        let open = Open::at(dir.path()).await;
        open.list(10, None, &[pod("a", "u1", 7)]).await;
        open.watch(vec![upsert("a", "u1", 12)]).await;
        let inconsistency = open.source.inconsistency();
        assert!(!inconsistency.is_found());
        open.watch(vec![contradiction, upsert("b", "u3", 14)]).await;
        open.source.bookmark(rv(15)).await.unwrap();
        open.journal.flush().await.unwrap();
        assert!(inconsistency.is_found(), "{name}");
        drop(inconsistency);
        assert_eq!(open.log().len(), 2, "{name}: nothing follows before the gap");
        open.close();

        let open = Open::at(dir.path()).await;
        assert_eq!((&open.memory.checkpoint.resume, open.memory.why), (&None, Some(Why::Audit)), "{name}");
        assert_eq!(open.memory.checkpoint.applied, Some(rv(12)), "{name}");
        let inconsistency = open.source.inconsistency();
        open.list(20, open.memory.why, &[pod("a", "u1", 12), pod("b", "u3", 14)]).await;
        assert!(!inconsistency.is_found());
        assert_eq!(
            words(&open.log())[2..],
            ["GAP audit 10..20", "ADDED inferred b/u3@14"],
            "{name}: the gap since the last list, and then the difference"
        );
        // And then the watch counts again.
        open.watch(vec![upsert("b", "u3", 21)]).await;
        assert_eq!(open.log().len(), 5);
        open.close();
        let open = Open::at(dir.path()).await;
        assert_eq!((&open.memory.checkpoint.resume, open.memory.why), (&Some(rv(20)), None), "{name}: it is over");
        assert_whole(&mut open.journal.reader().unwrap());
    }
}

/// Faults 14 and 18: repeats of whatever the log has, however far back, are none of that.
#[tokio::test]
async fn what_the_log_has_is_never_a_contradiction() {
    let dir = tempfile::tempdir().unwrap();
    let open = Open::at(dir.path()).await;
    open.list(10, None, &[pod("a", "u1", 7), pod("old", "u8", 3)]).await;
    let lies = || {
        vec![
            upsert("a", "u1", 11),
            upsert("a", "u1", 12),
            upsert("b", "u2", 13),
            delete("b", "u2", 14),
            upsert("b", "u3", 15),
            delete("a", "u1", 16),
            upsert("c", "u4", 17),
        ]
    };
    open.watch(lies()).await;
    let before = open.log();
    open.watch(lies()).await;
    // Of before the log began.
    open.watch(vec![upsert("a", "u1", 5), upsert("old", "u8", 2), upsert("a", "u1", 7)]).await;
    assert_eq!(open.log(), before);
    assert!(!open.source.inconsistency().is_found());
    open.watch(vec![upsert("c", "u4", 18)]).await;
    assert_eq!(open.log().len(), before.len() + 1);
}

/// Fault 15: a cluster that was restored may give a version a second time, to something else.
#[tokio::test]
async fn after_a_rollback_the_same_version_of_something_else_is_a_change() {
    let dir = tempfile::tempdir().unwrap();
    let open = Open::at(dir.path()).await;
    open.list(10, None, &[pod("a", "u1", 7), pod("b", "u2", 8), pod("c", "u3", 9)]).await;
    open.watch(vec![upsert("b", "u2", 12)]).await;
    open.source.mark_desynced(Why::Expired).await.unwrap();
    open.source.mark_desynced(Why::Rollback).await.unwrap();
    open.source.mark_desynced(Why::Audit).await.unwrap();
    open.close();
    // Found, and not declared before a crash: the reason is kept, and that it explains the others.
    let open = Open::at(dir.path()).await;
    assert_eq!((&open.memory.checkpoint.resume, open.memory.why), (&None, Some(Why::Rollback)));
    let mut again = pod("b", "u2", 12);
    let text = String::from_utf8(again.body.bytes).unwrap();
    again.body.bytes = text.replace(r#""n":12"#, r#""n":4711"#).into_bytes();
    open.list(12, open.memory.why, &[pod("a", "u1", 7), again, pod("c", "u3", 9)]).await;
    assert_eq!(words(&open.log())[4..], ["GAP rollback 10..12", "MODIFIED inferred b/u2@12"]);
    let last = open.journal.reader().unwrap().entry(Seq(6)).unwrap().unwrap();
    assert!(String::from_utf8_lossy(&last.line).contains(r#""n":4711"#));
    assert_whole(&mut open.journal.reader().unwrap());
}

#[tokio::test]
async fn a_resource_that_is_gone_declares_nothing_when_it_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let open = Open::at(dir.path()).await;
    open.list(10, None, &[pod("a", "u1", 7)]).await;
    open.source.mark_desynced(Why::Expired).await.unwrap();
    open.source.gone().await.unwrap();
    let again = open.journal.source(&pods()).await.unwrap();
    assert_eq!((again.1.checkpoint.resume, again.1.why), (None, None));
}

/// Fault 11: nothing is known of it at the end, and what came and went since the position was lost is not known either.
#[tokio::test]
async fn a_resource_that_goes_after_its_position_was_lost_leaves_a_gap() {
    let dir = tempfile::tempdir().unwrap();
    let open = Open::at(dir.path()).await;
    open.list(10, None, &[]).await;
    open.source.mark_desynced(Why::Expired).await.unwrap();
    open.source.gone().await.unwrap();
    assert_eq!(words(&open.log()), ["GAP scope 10.."]);
}

#[tokio::test]
async fn what_a_list_would_delete_is_known_before_it_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let open = Open::at(dir.path()).await;
    open.list(10, None, &[pod("a", "u1", 7), pod("b", "u2", 8), pod("c", "u3", 9)]).await;
    open.watch(vec![delete("c", "u3", 11)]).await;
    open.source.list_begin().await.unwrap();
    open.source.list_page(vec![pod("b", "u2", 8), pod("d", "u4", 12)]).await.unwrap();
    open.journal.flush().await.unwrap();
    assert_eq!(open.journal.reader().unwrap().losses(open.source.id()).unwrap(), (2, 1));
}

#[tokio::test]
async fn a_gap_of_an_audit_begins_where_the_last_one_found_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let open = Open::at(dir.path()).await;
    open.list(10, None, &[pod("a", "u1", 7)]).await;
    open.watch(vec![upsert("a", "u1", 12), upsert("a", "u1", 18)]).await;
    let began = Timestamp::now();
    let audit = |version, differences| Audit { version: rv(version), began, differences };
    open.source.audited(audit(15, 0)).await.unwrap();
    open.source.audited(audit(17, 2)).await.unwrap();
    open.source.mark_desynced(Why::Audit).await.unwrap();
    open.close();
    let open = Open::at(dir.path()).await;
    open.list(20, open.memory.why, &[pod("a", "u1", 18)]).await;
    assert_eq!(words(&open.log())[3..], ["GAP audit 15..20"]);
    let line = open.journal.reader().unwrap().entry(Seq(4)).unwrap().unwrap().line;
    let gap = Entry::parse(&line).unwrap().gap().unwrap();
    assert_eq!(gap.since, Some(format!("{began:.6}")));
    let row = open.journal.reader().unwrap().sources().unwrap().remove(0);
    assert_eq!((row.audits, row.audit_differences), (2, 2));
    assert!(row.audited_at >= began.as_microsecond());
}

/// A source of an API without bookmarks is as good as its last audit.
#[tokio::test]
async fn an_audit_that_finds_nothing_is_a_moment_known_good() {
    let dir = tempfile::tempdir().unwrap();
    let open = Open::at(dir.path()).await;
    open.list(10, None, &[pod("a", "u1", 7)]).await;
    let good_at = || open.journal.reader().unwrap().sources().unwrap().remove(0).good_at.unwrap();
    let listed = good_at();
    let audit = async |began: i64, differences| {
        let began = Timestamp::from_microsecond(began).unwrap();
        open.source.audited(Audit { version: rv(10), began, differences }).await.unwrap();
        open.journal.flush().await.unwrap();
    };
    audit(listed + 5, 0).await;
    assert_eq!(good_at(), listed + 5);
    audit(listed + 3, 0).await;
    audit(listed + 9, 1).await;
    assert_eq!(good_at(), listed + 5, "neither an older one nor one that found something");
    open.source.mark_desynced(Why::Expired).await.unwrap();
    audit(listed + 11, 0).await;
    assert_eq!(good_at(), listed + 5, "nor is what the watch brought since, where the position is lost");
}

/// A bookmark is good up to now, unless the version behind it was made some time ago; what was dated before says nothing of it.
#[tokio::test]
async fn a_bookmark_is_as_good_as_the_time_of_the_next_version() {
    let now = Timestamp::now().as_microsecond();
    let ago = |seconds: i64| now - seconds * 1_000_000;
    for (what, dates, is_present) in [
        ("nothing is dated", None, true),
        ("an old version is dated", Some((5, (ago(900), ago(890)))), true),
        ("nothing came behind it", Some((21, (ago(3), i64::MAX))), true),
        ("the next one was made long ago", Some((21, (ago(60), ago(50)))), false),
        ("the next one may have been", Some((21, (ago(60), i64::MAX))), false),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let open = Open::at(dir.path()).await;
        open.list(10, None, &[pod("a", "u1", 7)]).await;
        let good_at = || open.journal.reader().unwrap().sources().unwrap().remove(0).good_at.unwrap();
        let listed = good_at();
        if let Some(date) = dates {
            open.source.date(Arc::new(BTreeMap::from([date]))).await.unwrap();
        }
        open.source.bookmark(rv(20)).await.unwrap();
        open.journal.flush().await.unwrap();
        assert_eq!(good_at() > listed, is_present, "{what}");
    }
}

/// What has changed while a list was in progress is not in it: what is known good is as old as its beginning, also where
/// a crash came before its end.
#[tokio::test]
async fn what_a_list_says_is_good_when_it_begins() {
    for (crash, why) in [(false, Why::Audit), (true, Why::Audit), (false, Why::Expired), (true, Why::Expired)] {
        let dir = tempfile::tempdir().unwrap();
        let open = Open::at(dir.path()).await;
        let before = Timestamp::now().as_microsecond();
        open.source.list_begin().await.unwrap();
        open.journal.flush().await.unwrap();
        let begun = Timestamp::now();
        open.source.list_page(vec![pod("a", "u1", 7), pod("b", "u2", 8)]).await.unwrap();
        if crash {
            let conn = Connection::open(dir.path().join("journal.db")).unwrap();
            open.journal.flush().await.unwrap();
            open.close();
            conn.execute_batch("UPDATE source SET pending = '10'").unwrap();
        } else {
            open.source.list_done(rv(10), None).await.unwrap();
            open.close();
        }
        let open = Open::at(dir.path()).await;
        assert_eq!(open.memory.checkpoint.resume, Some(rv(10)));
        open.source.mark_desynced(why).await.unwrap();
        open.list(20, Some(why), &[pod("a", "u1", 7)]).await;
        let gap = open.journal.reader().unwrap().last_gap().unwrap().unwrap();
        let since: Timestamp = Entry::parse(&gap.line).unwrap().gap().unwrap().since.unwrap().parse().unwrap();
        assert!((before..=begun.as_microsecond()).contains(&since.as_microsecond()), "{since}");
        open.close();
    }
}

/// A position that was lost is owed a gap by whatever ends its source: here a narrower scope, also after a crash.
#[tokio::test]
async fn what_a_narrower_scope_leaves_out_of_a_lost_source_is_recorded_from_where_that_was_lost() {
    for crash in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let mut open = Open::at(dir.path()).await;
        open.list(10, None, &[pod("a", "u1", 7), pod_in("pay", "b", "u2", 8)]).await;
        open.watch(vec![upsert("a", "u1", 12), upsert("a", "u1", 13)]).await;
        open.source.mark_desynced(Why::Expired).await.unwrap();
        open.journal.flush().await.unwrap();
        let shop = one_namespace("shop");
        if crash {
            open.close();
            open = Open::with(dir.path(), &shop).await;
        } else {
            open.journal.retire_source(open.source.id()).await.unwrap();
            (open.source, open.memory) = open.journal.source(&shop).await.unwrap();
        }
        open.journal.narrow().await.unwrap();
        assert_eq!(words(&open.log())[4..], ["GAP scope 12..", "DELETED inferred b/u2@8"]);
        assert_eq!(open.memory.why, Some(Why::Scope));
        open.list(20, open.memory.why, &[pod("a", "u1", 13)]).await;
        assert_eq!(words(&open.log())[6..], ["GAP scope ..20"]);
        open.journal.narrow().await.unwrap();
        assert_eq!(open.log().len(), 7, "it is recorded once");
        open.close();
        // Where the wider scope comes back, something may be missing of it.
        let open = Open::at(dir.path()).await;
        assert!(open.memory.checkpoint.resume.is_none() && open.memory.why.is_some(), "{:?}", open.memory);
        open.close();
    }
}

/// What was there and went since the wider scope was watched is known to nobody.
#[tokio::test]
async fn a_scope_of_which_another_source_knew_that_it_was_empty_begins_with_a_gap() {
    let dir = tempfile::tempdir().unwrap();
    let open = Open::at(dir.path()).await;
    open.list(10, None, &[]).await;
    open.close();
    let shop = one_namespace("shop");
    for _ in 0..2 {
        // Also where the daemon ends before the first list does.
        let open = Open::with(dir.path(), &shop).await;
        assert_eq!(open.memory.why, Some(Why::Scope));
        open.close();
    }
    let open = Open::with(dir.path(), &shop).await;
    open.list(20, open.memory.why, &[]).await;
    assert_eq!(words(&open.log()), ["GAP scope ..20"]);
    open.close();
    let open = Open::with(dir.path(), &shop).await;
    assert_eq!((&open.memory.checkpoint.resume, open.memory.why), (&Some(rv(20)), None), "once");
    // Another resource is none of that, and all namespaces are.
    let cron = SourceSpec { resource: Resource { plural: "cronjobs".into(), ..pods().resource }, ..pods() };
    assert_eq!(open.journal.source(&cron).await.unwrap().1.why, None);
    assert_eq!(open.journal.source(&pods()).await.unwrap().1.why, Some(Why::Scope));
    open.close();
}

/// Many changes can share the newest version, so a gap begins at the position that was lost; and what a list owes when
/// the resource goes is recorded with the end of it.
#[tokio::test]
async fn a_gap_begins_at_the_position_that_was_lost_also_after_a_crash() {
    for goes in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let open = Open::at(dir.path()).await;
        open.list(10, None, &[pod("a", "u1", 7)]).await;
        open.watch(vec![upsert("a", "u1", 12), delete("a", "u1", 13)]).await;
        open.source.mark_desynced(Why::Expired).await.unwrap();
        open.journal.flush().await.unwrap();
        open.close();
        let open = Open::at(dir.path()).await;
        assert_eq!(open.memory.why, Some(Why::Expired));
        if goes {
            open.source.gone().await.unwrap();
            assert_eq!(words(&open.log()).last(), Some(&"GAP scope 12.."));
        } else {
            open.list(20, open.memory.why, &[]).await;
            assert_eq!(words(&open.log()).last(), Some(&"GAP expired 12..20"));
        }
        open.close();
        let open = Open::at(dir.path()).await;
        assert_eq!(open.memory.why, None, "it is recorded once");
        open.close();
    }
}

/// Fault 42: what is damaged proves nothing. A repeat that only a damaged entry could distinguish from a contradiction
/// is one.
#[tokio::test]
async fn a_repeat_that_only_a_damaged_entry_could_explain_is_a_contradiction() {
    for damaged in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let open = Open::at(dir.path()).await;
        open.list(10, None, &[]).await;
        open.watch((11..=14).map(|version| upsert("a", "u1", version)).collect()).await;
        open.close();
        if damaged {
            damage(dir.path(), "entry", "line", "seq = 3");
        }
        let open = Open::at(dir.path()).await;
        let before = open.head();
        open.watch(vec![upsert("a", "u1", 14), upsert("a", "u1", 12)]).await;
        let contradicts = open.source.inconsistency().is_found();
        assert_eq!(contradicts, damaged);
        assert_eq!(open.head(), before, "nothing of it is recorded");
        open.close();
        let open = Open::at(dir.path()).await;
        assert_eq!(open.memory.why, damaged.then_some(Why::Audit));
        open.close();
    }
}

/// Fault 42: after a rollback states are compared, and one that is damaged is recorded again.
#[tokio::test]
async fn after_a_rollback_what_is_damaged_is_recorded_anew() {
    let dir = tempfile::tempdir().unwrap();
    let open = Open::at(dir.path()).await;
    open.list(10, None, &[pod("a", "u1", 7), pod("b", "u2", 8)]).await;
    open.close();
    damage(dir.path(), "entry", "line", "seq = 2");
    let open = Open::at(dir.path()).await;
    open.source.mark_desynced(Why::Rollback).await.unwrap();
    open.list(9, Some(Why::Rollback), &[pod("a", "u1", 7), pod("b", "u2", 8)]).await;
    let entries = open.journal.reader().unwrap().entries_after(Seq(2), 10, usize::MAX).unwrap();
    let entries: Vec<Entry<'_>> = entries.iter().map(|entry| Entry::parse(&entry.line).unwrap()).collect();
    let names: Vec<_> =
        entries.iter().map(|entry| (entry.op.as_str(), entry.name.as_deref().unwrap_or_default())).collect();
    assert_eq!(names, [("GAP", ""), ("MODIFIED", "b")]);
    assert!(entries[1].change.unwrap().get().contains(r#""op":"replace","path":"""#), "as a whole");
    open.close();
}
