//! What holds for journals with one log, each with an engine in memory between them.

mod restoring;

use std::sync::Mutex;
use std::time::Duration;

use super::*;
use crate::core::shared_log::{Appended, Base, SharedLog};
use crate::journal::writer::unit;
use crate::sim::shared_log::{Act, Engine, Network};

fn sharing(engine: &Engine, identity: &str) -> Sharing {
    Sharing {
        log: Box::new(engine.clone()),
        identity: identity.to_owned(),
        backlog: 1 << 20,
        key: "key".to_owned(),
        poll: Duration::from_millis(5),
        worth_a_base: u64::MAX / 2,
    }
}

fn open(dir: &Path, engine: &Engine, identity: &str) -> (Journal, WriterThread) {
    Journal::open_shared(dir, sharing(engine, identity)).unwrap()
}

async fn until(journal: &Journal, fits: impl FnMut(&Shared) -> bool) {
    tokio::time::timeout(Duration::from_secs(60), journal.shared().wait_for(fits)).await.unwrap().unwrap();
}

/// Waits until a standby has everything that the leader has.
async fn follows(standby: &Journal, leader: &Journal) {
    let number = leader.shared().borrow().number;
    until(standby, |shared| shared.number >= number).await;
}

/// A leader with two Pods.
async fn leader(dir: &Path, engine: &Engine) -> Open {
    let (journal, thread) = open(dir, engine, "one");
    journal.lead().await.unwrap().unwrap();
    let (source, memory) = journal.source(&pods()).await.unwrap();
    let one = Open { journal, thread, source, memory };
    one.list(5, None, &[pod("a", "ua", 3), pod("b", "ub", 4)]).await;
    one
}

fn shown(value: rusqlite::types::ValueRef<'_>) -> String {
    if let Ok(text) = value.as_str() {
        text.to_owned()
    } else if let Ok(blob) = value.as_blob() {
        unit::digest(blob)
    } else {
        format!("{value:?}")
    }
}

/// Every row of every table, but for what stays with a journal.
fn rows(dir: &Path) -> Vec<String> {
    let conn = schema::open_reader(dir).unwrap();
    let mut all = Vec::new();
    let names: Vec<String> = {
        let mut select = conn.prepare("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND name NOT IN ('backlog', 'outline')").unwrap();
        select.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    };
    for name in names {
        let own = if name == "meta" { "WHERE key NOT IN ('mark', 'shared', 'paused', 'resumed')" } else { "" };
        let mut select = conn.prepare(&format!("SELECT * FROM {name} {own}")).unwrap();
        let columns = select.column_count();
        let found = select.query_map([], |row| {
            Ok((0..columns).map(|at| shown(row.get_ref(at).unwrap())).collect::<Vec<_>>().join(" "))
        });
        all.extend(found.unwrap().map(|row| format!("{name}: {}", row.unwrap())));
    }
    all.sort();
    all
}

/// The journals in a state directory that were set apart.
fn set_apart(dir: &Path) -> Vec<PathBuf> {
    let mut found: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("journal.db.set-apart-"))
        .collect();
    found.sort();
    found
}

#[tokio::test]
async fn a_standby_is_a_copy_row_by_row() {
    let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let engine = Engine::default();
    let one = leader(a.path(), &engine).await;
    let (two, thread) = open(b.path(), &engine, "two");
    one.watch(vec![upsert("a", "ua", 6), delete("b", "ub", 7), upsert("c", "uc", 8)]).await;
    one.source.bookmark(rv(20)).await.unwrap();
    one.journal.flush().await.unwrap();
    drop(one.sink("s").await);
    // A second time it is an upsert of what is there.
    let sink = one.sink("s").await;
    let (incident, reference) = ("c/rule/Pod/shop/web".to_owned(), Some("1.2".to_owned()));
    let messages = vec![Message { incident, first: Seq(1), last: Seq(2), entries: 2, reference }];
    sink.progress(Progress { upto: Seq(2), written: Seq(2), messages: messages.clone(), ..Progress::default() })
        .await
        .unwrap();
    drop(sink);
    follows(&two, &one.journal).await;
    assert_eq!(two.reader().unwrap().messages("s").unwrap(), messages, "another replica updates them");
    assert_eq!(rows(a.path()), rows(b.path()));
    assert_eq!(log(&mut two.reader().unwrap()), one.log());
    assert_eq!(two.epoch(), one.journal.epoch());
    assert_eq!(*two.head().borrow(), one.head());
    drop(two);
    thread.join().unwrap();
    one.close();
}

/// A disk that is lost is built again from what the engine holds, from a base and the units behind it.
#[tokio::test]
async fn what_is_built_from_the_log_is_what_was_lost() {
    let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let engine = Engine::default();
    let (journal, thread) =
        Journal::open_shared(a.path(), Sharing { worth_a_base: 2000, ..sharing(&engine, "one") }).unwrap();
    journal.lead().await.unwrap().unwrap();
    let (source, memory) = journal.source(&pods()).await.unwrap();
    let one = Open { journal, thread, source, memory };
    one.list(5, None, &[pod("a", "ua", 3), pod("b", "ub", 4)]).await;
    for version in 6..200 {
        one.watch(vec![upsert(
            if version % 3 == 0 { "a" } else { "new" },
            if version % 3 == 0 { "ua" } else { "un" },
            version,
        )])
        .await;
    }
    let expected = one.log();
    one.close();
    let held = engine.held();
    assert!(
        held.bases.len() > 1 && held.bases.keys().next().unwrap() > &1,
        "units that a base stands for are gone: {:?}",
        held.bases
    );
    assert!(held.units.keys().next().unwrap() > &1);
    let (two, thread) = open(b.path(), &engine, "two");
    let newest = *held.units.keys().next_back().unwrap();
    until(&two, |shared| shared.number == newest).await;
    assert_eq!(rows(a.path()), rows(b.path()));
    assert_eq!(log(&mut two.reader().unwrap()), expected);
    drop(two);
    thread.join().unwrap();
}

/// The leader is stopped for so long that another one takes over, with changes that only its own watch has brought; and the
/// first one, when it goes on, writes nothing any more.
#[tokio::test]
async fn who_takes_over_goes_on_without_a_gap_and_who_led_is_refused() {
    let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let engine = Engine::default();
    let one = leader(a.path(), &engine).await;
    let (two, thread) = open(b.path(), &engine, "two");
    follows(&two, &one.journal).await;
    let (source, memory) = two.source(&pods()).await.unwrap();
    assert_eq!(memory.checkpoint.resume, Some(rv(5)));
    // Both watch.
    one.watch(vec![upsert("a", "ua", 6)]).await;
    source.append(vec![upsert("a", "ua", 6), upsert("c", "uc", 7)]).await.unwrap();
    source.bookmark(rv(8)).await.unwrap();
    source.append(vec![delete("b", "ub", 9)]).await.unwrap();
    two.flush().await.unwrap();
    follows(&two, &one.journal).await;
    assert_eq!(*two.head().borrow(), Seq(3), "it publishes nothing of its own");
    two.lead().await.unwrap().unwrap();
    two.flush().await.unwrap();
    let told = log(&mut two.reader().unwrap());
    assert_eq!(
        told,
        [
            "1 ADDED listed a/ua@3",
            "2 ADDED listed b/ub@4",
            "3 MODIFIED watched a/ua@6",
            "4 ADDED watched c/uc@7",
            "5 DELETED watched b/ub@9"
        ]
    );
    assert!(two.shared().borrow().term > 1);
    // It does not know yet.
    one.source.append(vec![upsert("late", "ul", 10)]).await.unwrap();
    one.journal.flush().await.unwrap_err();
    assert_eq!(one.log().len(), 3, "nothing of what was refused is on its disk");
    drop((one.journal, one.source));
    assert!(matches!(one.thread.join(), Err(JournalError::Superseded(_))));
    // It follows from where it was.
    let (again, again_thread) = open(a.path(), &engine, "one");
    follows(&again, &two).await;
    assert_eq!(log(&mut again.reader().unwrap()), told);
    drop((again, two, source));
    thread.join().unwrap();
    again_thread.join().unwrap();
}

/// An object without a name or a version, which only the watch of the standby has brought, is a GAP after a take-over also
/// where the leader has committed something else meanwhile; and is kept no longer once the leader's position has moved on.
#[tokio::test]
async fn an_object_without_a_version_outlives_its_leader() {
    for moved in [false, true] {
        let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let engine = Engine::default();
        let one = leader(a.path(), &engine).await;
        let (two, thread) = open(b.path(), &engine, "two");
        follows(&two, &one.journal).await;
        let (source, _) = two.source(&pods()).await.unwrap();
        let none = String::new;
        let (version, digest, why) = (ResourceVersion(none()), "d".to_owned(), Why::Undecodable);
        let odd = crate::core::model::Unread { namespace: none(), name: none(), uid: none(), version, digest, why };
        source.append_unread(Verb::Upsert, odd).await.unwrap();
        two.flush().await.unwrap();
        if moved {
            one.watch(vec![upsert("a", "ua", 6)]).await;
            one.source.bookmark(rv(8)).await.unwrap();
            one.journal.flush().await.unwrap();
        }
        drop(one.sink("s").await);
        follows(&two, &one.journal).await;
        two.lead().await.unwrap().unwrap();
        two.flush().await.unwrap();
        let told = log(&mut two.reader().unwrap());
        assert_eq!(told.iter().any(|line| line.contains(" GAP ")), !moved, "{told:#?}");
        drop((one.journal, one.source, two, source));
        thread.join().unwrap();
        drop(one.thread.join());
    }
}

/// Nothing is seen before the shared log has it, and an engine that is away is waited for.
#[tokio::test]
async fn what_the_engine_does_not_have_is_not_seen() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::default();
    let away = Arc::new(Mutex::new(false));
    let network: Network = {
        let away = Arc::clone(&away);
        Arc::new(Mutex::new(move |_: &'static str| if *away.lock().unwrap() { Act::Fail } else { Act::Pass }))
    };
    let one = leader(dir.path(), &engine.behind(network)).await;
    *away.lock().unwrap() = true;
    one.source.append(vec![upsert("a", "ua", 6)]).await.unwrap();
    until(&one.journal, |shared| shared.problem.is_some()).await;
    assert_eq!((one.head(), one.log().len()), (Seq(2), 2));
    *away.lock().unwrap() = false;
    one.journal.flush().await.unwrap();
    assert_eq!((one.head(), one.log().len()), (Seq(3), 3));
    assert_eq!(one.journal.shared().borrow().problem, None);
    // Whoever asks it to step down waits for no engine.
    *away.lock().unwrap() = true;
    one.source.append(vec![upsert("a", "ua", 7)]).await.unwrap();
    until(&one.journal, |shared| shared.problem.is_some()).await;
    one.journal.step_down().ask();
    drop((one.journal, one.source));
    assert!(matches!(one.thread.join(), Err(JournalError::Superseded(_))));
}

/// An answer that was lost is no second unit, and no other leader.
#[tokio::test]
async fn a_lost_answer_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::default();
    let count = Arc::new(Mutex::new(0));
    let network: Network = {
        let count = Arc::clone(&count);
        Arc::new(Mutex::new(move |what: &'static str| {
            let mut count = count.lock().unwrap();
            *count += 1;
            if what == "append" && *count % 2 == 0 { Act::Lose } else { Act::Pass }
        }))
    };
    let one = leader(dir.path(), &engine.behind(network)).await;
    for version in 6..20 {
        one.watch(vec![upsert("a", "ua", version)]).await;
    }
    assert_eq!(one.log().len(), 16);
    let numbers: Vec<u64> = engine.held().units.into_keys().collect();
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>());
    one.close();
}

/// The engine is restored to an earlier state: who leads puts the rest there again, and who follows goes on with it.
#[tokio::test]
async fn an_engine_that_was_put_back_gets_the_rest_again() {
    let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let engine = Engine::default();
    let one = leader(a.path(), &engine).await;
    let before = engine.held();
    one.watch(vec![upsert("a", "ua", 6), upsert("a", "ua", 7)]).await;
    one.watch(vec![upsert("a", "ua", 8)]).await;
    // What stands for entries goes with them.
    one.journal.outline(0, vec![1]).await.unwrap();
    engine.restore(before.clone());
    // It goes on as if nothing had been, and puts the rest there.
    one.watch(vec![upsert("a", "ua", 9)]).await;
    let (two, thread) = open(b.path(), &engine, "two");
    follows(&two, &one.journal).await;
    assert_eq!(rows(a.path()), rows(b.path()));
    assert_eq!(log(&mut two.reader().unwrap()).len(), 6);
    drop(two);
    thread.join().unwrap();
    // But not where somebody has led since.
    engine.restore(before);
    let c = tempfile::tempdir().unwrap();
    let (three, thread) = open(c.path(), &engine, "three");
    three.lead().await.unwrap().unwrap();
    one.source.append(vec![upsert("a", "ua", 10)]).await.unwrap();
    one.journal.flush().await.unwrap_err();
    let had = one.log();
    drop((one.journal, one.source));
    assert!(matches!(one.thread.join(), Err(JournalError::Superseded(_))));
    let (again, again_thread) = open(a.path(), &engine, "one");
    let term = three.shared().borrow().term;
    until(&again, |shared| shared.term == term).await;
    assert_eq!(log(&mut again.reader().unwrap()).len(), 2, "what nobody has any more is of no log");
    assert_eq!(again.reader().unwrap().outline(0).unwrap(), None, "its outline is of entries that are others now");
    // But it is not thrown away: the journal as it was is in a file beside.
    until(&again, |shared| shared.apart.iter().all(|apart| apart.shared.is_some())).await;
    let kept = set_apart(a.path());
    assert_eq!(kept.len(), 1, "{kept:?}");
    let told: Vec<String> = again.shared().borrow().apart.iter().map(Apart::sentence).collect();
    let expected = format!(
        "the entries 3 to 6 of epoch {}, which this decklog had, are not in the shared log, which ends with entry 2: they are in {}",
        again.epoch(),
        kept[0].display()
    );
    assert_eq!(told, [expected]);
    let d = tempfile::tempdir().unwrap();
    std::fs::copy(&kept[0], d.path().join("journal.db")).unwrap();
    assert_eq!(log(&mut Reader::open(d.path()).unwrap()), had);
    drop((three, again));
    thread.join().unwrap();
    again_thread.join().unwrap();
}

/// What a decklog has and the shared log does not is kept, however far the other one went meanwhile; and nothing is kept of one that
/// was only away.
#[tokio::test]
async fn what_the_shared_log_lacks_is_set_apart_and_nothing_else() {
    for (is_restored, more, worth_a_base, others) in [
        (true, 0, u64::MAX / 2, "which ends with entry 2"),
        (true, 40, u64::MAX / 2, "which has others from 3 to 42"),
        (true, 200, 2000, "which has others from 3 to 202"),
        (false, 200, 2000, ""),
    ] {
        let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let engine = Engine::default();
        let one = leader(a.path(), &engine).await;
        let before = engine.held();
        for version in 6..16 {
            one.watch(vec![upsert("a", "ua", version)]).await;
        }
        let last = one.head().0;
        one.close();
        if is_restored {
            engine.restore(before);
        }
        let (journal, thread) =
            Journal::open_shared(b.path(), Sharing { worth_a_base, ..sharing(&engine, "two") }).unwrap();
        journal.lead().await.unwrap().unwrap();
        let (source, memory) = journal.source(&pods()).await.unwrap();
        let two = Open { journal, thread, source, memory };
        for version in 20..20 + more {
            two.watch(vec![upsert("a", "ua", version)]).await;
        }
        if worth_a_base == 2000 {
            let oldest = *engine.held().units.keys().next().unwrap();
            assert!(oldest > 20, "{oldest}: what follows the other one is there still");
        }
        let (again, again_thread) = open(a.path(), &engine, "one");
        let number = two.journal.shared().borrow().number;
        let is_known = |shared: &Shared| shared.apart.iter().all(|apart| apart.shared.is_some());
        // The leader may write more meanwhile, such as a base.
        until(&again, |shared| shared.number >= number && shared.caught_up.is_some() && is_known(shared)).await;
        assert_eq!(log(&mut again.reader().unwrap()), two.log());
        let told: Vec<String> = again.shared().borrow().apart.iter().map(Apart::sentence).collect();
        assert_eq!(told.len(), usize::from(is_restored), "{told:?}");
        assert_eq!(set_apart(a.path()).len(), told.len(), "{told:?}");
        if let [told] = &told[..] {
            assert!(told.starts_with(&format!("the entries 3 to {last} of epoch ")) && told.contains(others), "{told}");
        }
        drop(again);
        again_thread.join().unwrap();
        // It is said as long as it is there.
        let (again, again_thread) = open(a.path(), &engine, "one");
        assert_eq!(again.shared().borrow().apart.iter().map(Apart::sentence).collect::<Vec<_>>(), told);
        drop(again);
        again_thread.join().unwrap();
        two.close();
    }
}

/// What the watches brought beyond a journal that turns out to be of another history is not handed over with a hole in it: the
/// standby begins again.
#[tokio::test]
async fn a_journal_that_is_built_again_begins_with_new_watches() {
    let (a, b, c) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (engine, other) = (Engine::default(), Engine::default());
    let one = leader(a.path(), &engine).await;
    let (two, mut thread) = open(b.path(), &engine, "two");
    follows(&two, &one.journal).await;
    let (source, _) = two.source(&pods()).await.unwrap();
    source.append(vec![upsert("c", "uc", 7)]).await.unwrap();
    two.flush().await.unwrap();
    one.close();
    let elsewhere = leader(c.path(), &other).await;
    for version in 6..30 {
        elsewhere.watch(vec![upsert("a", "ua", version)]).await;
    }
    elsewhere.close();
    engine.restore(other.held());
    tokio::time::timeout(Duration::from_secs(60), thread.ended()).await.expect("it goes on with watches of before");
    drop((two, source));
    assert!(matches!(thread.join(), Err(JournalError::Superseded(_))));
}

/// Outlines stay where they were made: a standby keeps none, and the engine gets nothing of them.
#[tokio::test]
async fn outlines_do_not_travel() {
    let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let engine = Engine::default();
    let one = leader(a.path(), &engine).await;
    let (two, thread) = open(b.path(), &engine, "two");
    follows(&two, &one.journal).await;
    let units = engine.held().units.len();
    one.journal.outline(0, vec![1]).await.unwrap();
    two.outline(0, vec![2]).await.unwrap();
    one.journal.flush().await.unwrap();
    two.flush().await.unwrap();
    let kept = |journal: &Journal| journal.reader().unwrap().outline(0).unwrap();
    assert_eq!((kept(&one.journal), kept(&two)), (Some(vec![1]), None));
    assert_eq!(engine.held().units.len(), units, "the engine got something of it");
    one.watch(vec![upsert("a", "ua", 6)]).await;
    follows(&two, &one.journal).await;
    assert_eq!((kept(&two), log(&mut two.reader().unwrap())), (None, one.log()));
    drop(two);
    thread.join().unwrap();
    one.close();
}

/// What does not belong together is refused with a sentence that says what to do.
#[tokio::test]
async fn a_log_of_its_own_or_another_key_is_refused() {
    let (a, b, c) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let engine = Engine::default();
    leader(a.path(), &engine).await.close();
    let other = Open::at(b.path()).await;
    other.list(5, None, &[pod("x", "ux", 3)]).await;
    other.close();
    let (two, thread) = open(b.path(), &engine, "two");
    let Err(JournalError::Foreign(why)) = thread.join() else { panic!("it is taken") };
    assert!(why.contains("move the directory away"), "{why}");
    drop(two);
    let (three, thread) =
        Journal::open_shared(c.path(), Sharing { key: "other".into(), ..sharing(&engine, "three") }).unwrap();
    let Err(JournalError::Foreign(why)) = thread.join() else { panic!("it is taken") };
    assert!(why.contains("key_file"), "{why}");
    drop(three);
}

/// What a standby cannot keep it drops, and the source begins again where the shared log is.
#[tokio::test]
async fn a_backlog_that_is_full_costs_a_resume_and_nothing_else() {
    let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let engine = Engine::default();
    let one = leader(a.path(), &engine).await;
    let (two, thread) = Journal::open_shared(b.path(), Sharing { backlog: 1000, ..sharing(&engine, "two") }).unwrap();
    follows(&two, &one.journal).await;
    let (source, _) = two.source(&pods()).await.unwrap();
    let mut inconsistency = source.inconsistency();
    for version in 6..20 {
        source.append(vec![upsert("a", "ua", version)]).await.unwrap();
    }
    inconsistency.found().await;
    until(&two, |shared| shared.overflows > 0 && shared.backlog == 0).await;
    // What is still under way of the watch that lost something counts for nothing, before and after it leads.
    source.append(vec![upsert("a", "ua", 20)]).await.unwrap();
    two.lead().await.unwrap().unwrap();
    source.append(vec![upsert("a", "ua", 21)]).await.unwrap();
    two.flush().await.unwrap();
    assert_eq!(*two.head().borrow(), Seq(2));
    drop(source);
    let (source, memory) = two.source(&pods()).await.unwrap();
    assert_eq!(memory.checkpoint.resume, Some(rv(5)));
    source.append((6..22).map(|version| upsert("a", "ua", version)).collect()).await.unwrap();
    two.flush().await.unwrap();
    assert_eq!(*two.head().borrow(), Seq(18));
    drop((two, source, one.journal, one.source));
    thread.join().unwrap();
    drop(one.thread.join());
}
