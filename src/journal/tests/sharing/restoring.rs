//! Restores, and units that are missing or of another schema.

use super::*;

/// What cannot be given back whole is refused, and leaves nothing behind.
#[tokio::test]
async fn a_restore_is_whole_or_says_what_is_missing() {
    let a = tempfile::tempdir().unwrap();
    let engine = Engine::default();
    let fresh = || tempfile::tempdir().unwrap();
    let told = async |dir: &Path| {
        let restored = restore(dir, sharing(&engine, "restore"), |_, _| ()).await;
        restored.map_err(|error| error.to_string())
    };
    let empty = fresh();
    assert!(told(empty.path()).await.unwrap_err().contains("no shared log"));
    let one = leader(a.path(), &engine).await;
    for version in 6..30 {
        one.watch(vec![upsert("a", "ua", version)]).await;
    }
    let expected = one.log();
    one.close();
    let whole = engine.held();
    let newest = *whole.units.keys().next_back().unwrap();
    let b = fresh();
    assert_eq!(told(b.path()).await, Ok(newest));
    assert_eq!(rows(a.path()), rows(b.path()));
    assert_eq!(log(&mut Reader::open(b.path()).unwrap()), expected);
    assert!(told(b.path()).await.unwrap_err().contains("a journal in"));
    for cut in [3, newest - 1] {
        let mut held = whole.clone();
        held.units.remove(&cut).unwrap();
        engine.restore(held);
        let dir = fresh();
        assert!(told(dir.path()).await.unwrap_err().contains(&format!("unit {cut} ")), "{cut}");
        assert!(!dir.path().join("journal.db").exists());
    }
    let mut held = whole.clone();
    held.bases.clear();
    engine.restore(held);
    assert!(told(fresh().path()).await.unwrap_err().contains("no base"));
    // Of another log: it does not follow.
    let mut held = whole;
    let other = held.units[&5].clone();
    held.units.insert(6, other);
    engine.restore(held);
    assert!(told(fresh().path()).await.is_err());
}

/// It writes into an empty directory, and one that ended on the way leaves nothing that reads as a journal, and is made good by
/// the next one.
#[tokio::test]
async fn a_restore_takes_an_empty_directory_and_is_whole_at_once() {
    let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let engine = Engine::default();
    let one = leader(a.path(), &engine).await;
    for version in 6..30 {
        one.watch(vec![upsert("a", "ua", version)]).await;
    }
    let expected = one.log();
    one.close();
    let newest = *engine.held().units.keys().next_back().unwrap();
    let told = async |dir: &Path, engine: &Engine| {
        let restored = restore(dir, sharing(engine, "restore"), |_, _| ()).await;
        restored.map_err(|error| error.to_string())
    };
    let names = |dir: &Path| {
        let mut names: Vec<String> = std::fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name != "decklog.lock")
            .collect();
        names.sort();
        names
    };
    for (name, is_dir) in [("precious", false), ("journal.mark", false), (".hidden", true), ("restoring", false)] {
        let path = b.path().join(name);
        if is_dir { std::fs::create_dir(&path) } else { std::fs::write(&path, "x") }.unwrap();
        let why = told(b.path(), &engine).await.unwrap_err();
        assert!(why.contains(name) && why.contains("move"), "{name}: {why}");
        assert_eq!(names(b.path()), [name]);
        if is_dir { std::fs::remove_dir(&path) } else { std::fs::remove_file(&path) }.unwrap();
    }
    // What was built beside is of one that was killed, where nothing else is in it.
    let building = b.path().join("restoring");
    std::fs::create_dir(&building).unwrap();
    std::fs::write(building.join("mine"), "x").unwrap();
    assert!(told(b.path(), &engine).await.unwrap_err().contains("restoring"));
    std::fs::remove_dir_all(&building).unwrap();
    // It ends between two units.
    let network: Network = {
        let mut reads = 0;
        Arc::new(Mutex::new(move |what: &'static str| {
            reads += u32::from(what == "read");
            if reads > 0 { Act::Delay(Duration::from_secs(3600)) } else { Act::Pass }
        }))
    };
    let slow = engine.behind(network);
    let begun = tokio::sync::Notify::new();
    let restoring = restore(b.path(), sharing(&slow, "restore"), |done, _| {
        if done == 0 {
            begun.notify_one();
        }
    });
    tokio::select! {
        restored = restoring => panic!("{restored:?}"),
        () = begun.notified() => {}
    }
    assert_eq!(names(b.path()), ["restoring"]);
    assert!(Reader::open(b.path()).is_err());
    // A file system has that at its top.
    std::fs::create_dir(b.path().join("lost+found")).unwrap();
    let again = async {
        loop {
            match told(b.path(), &engine).await {
                // The one before has not ended yet.
                Err(why) if why.contains("holds the state directory") => tokio::task::yield_now().await,
                done => break done,
            }
        }
    };
    assert_eq!(tokio::time::timeout(Duration::from_secs(60), again).await.unwrap(), Ok(newest));
    assert_eq!(names(b.path()), ["journal.db", "lost+found"]);
    assert_eq!(rows(a.path()), rows(b.path()));
    assert_eq!(log(&mut Reader::open(b.path()).unwrap()), expected);
}

/// A unit is deleted in the engine: who follows says which one, and does not lead, until it is there again, or everything behind
/// it is gone as well.
#[tokio::test]
async fn a_standby_without_a_unit_says_so_and_does_not_lead() {
    let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let engine = Engine::default();
    let one = leader(a.path(), &engine).await;
    for version in 6..12 {
        one.watch(vec![upsert("a", "ua", version)]).await;
    }
    let whole = engine.held();
    let newest = *whole.units.keys().next_back().unwrap();
    let without = |units: std::ops::RangeInclusive<u64>| {
        let mut held = whole.clone();
        held.units.retain(|number, _| !units.contains(number));
        held
    };
    engine.restore(without(4..=5));
    let (two, thread) = open(b.path(), &engine, "two");
    until(&two, |shared| shared.missing == Some(4) && shared.newest == newest).await;
    let state = two.shared().borrow().clone();
    assert_eq!((state.number, state.caught_up, state.newest), (3, None, newest), "it has everything");
    assert!(two.lead().await.unwrap().unwrap_err().contains("cannot be read to its end"));
    assert_eq!(engine.held(), without(4..=5), "it wrote to the log");
    engine.restore(without(4..=newest));
    until(&two, |shared| shared.missing.is_none() && shared.caught_up.is_some()).await;
    engine.restore(whole);
    until(&two, |shared| shared.missing.is_none() && shared.number == newest).await;
    assert_eq!(log(&mut two.reader().unwrap()), one.log());
    two.lead().await.unwrap().unwrap();
    drop(two);
    thread.join().unwrap();
    drop((one.journal, one.source));
    one.thread.join().ok();
}

/// An upgrade goes one machine after the other: what a later decklog writes is refused in words, and so is the schema of one from
/// before the first. `rows.rs` tests what becomes of the rows of an older one.
#[tokio::test]
async fn units_of_another_schema_are_refused_in_words() {
    let before = Connection::open_in_memory().unwrap();
    for migration in schema::migrations_of(schema::CURRENT).unwrap() {
        before.execute_batch(migration).unwrap();
    }
    before
        .execute_batch(
            "INSERT INTO meta VALUES ('epoch', 'e'), ('head', '0');
             INSERT INTO epoch VALUES ('e', 1);
             INSERT INTO resource (id, api_group, plural, facts) VALUES (1, '', 'pods', '{}');
             INSERT INTO source (id, resource, namespace, label_selector, field_selector, resume, good_at)
                 VALUES (1, 1, '', '', '', '7', 1000);",
        )
        .unwrap();
    let tables = writer::changeset::tables_of(schema::CURRENT).unwrap();
    let head = |schema: usize, previous: &str| unit::Head {
        v: unit::Head::version(),
        schema,
        term: 1,
        leader: "one".to_owned(),
        cluster: String::new(),
        previous: previous.to_owned(),
        seq: 0,
        time: 1,
        key: "key".to_owned(),
        begins: false,
    };
    let mut codec = Codec::default();
    let whole = || {
        let mut rows = writer::changeset::Changeset::default();
        for table in &tables {
            assert_eq!(rows.page(&before, table, None, usize::MAX).unwrap(), None);
        }
        rows
    };
    let earlier = format!("with the schema {}", schema::FIRST - 1);
    for (schema, says) in [(schema::CURRENT + 1, "upgrade this one"), (schema::FIRST - 1, &earlier)] {
        let part = unit::encode(&head(schema::CURRENT, "first"), &whole(), &mut codec);
        let next = unit::encode(&head(schema::CURRENT, "first"), &whole(), &mut codec);
        let other = unit::encode(&head(schema, &unit::digest(&next)), &whole(), &mut codec);
        let mut engine = Engine::default();
        engine.put_part(1, 0, part.into()).await.unwrap();
        engine.finish_base(Base { number: 1, parts: 1 }).await.unwrap();
        assert_eq!(engine.append(2, next.into()).await.unwrap(), Appended::Done);
        let dir = tempfile::tempdir().unwrap();
        let (two, thread) = open(dir.path(), &engine, "two");
        until(&two, |shared| shared.number == 2).await;
        assert_eq!(engine.append(3, other.into()).await.unwrap(), Appended::Done);
        let Err(JournalError::Foreign(why)) = thread.join() else { panic!("it is taken") };
        assert!(why.ends_with(says), "{why}");
        drop(two);
    }
}
