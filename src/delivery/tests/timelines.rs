//! Whose timeline an output is: journals and outputs that were restored, copied, lost or shared.

use super::*;

/// The lines of a file as (epoch, seq, rest).
fn lines(path: &Path) -> Vec<(String, u64, String)> {
    let text = std::fs::read_to_string(path).unwrap();
    let line = |line: &str| {
        let stamp = crate::core::wire::Header::parse(line.as_bytes()).unwrap();
        let rest = line.split_once("\"id\":").unwrap().1.to_owned();
        (stamp.epoch.into_owned(), stamp.seq, rest)
    };
    text.lines().map(line).collect()
}

/// A line of the same journal as it went on before it was restored to 3.
fn dead(world: &World, seq: u64) -> String {
    let line = String::from_utf8(world.lines(3..=3)).unwrap();
    line.replace("\"seq\":3", &format!("\"seq\":{seq}")).replace("\"id\":\"u3", "\"id\":\"dead")
}

/// The journal was restored to 3, and the file has 4 to 8 of the other timeline. Whenever it can be asked for the first time,
/// with the journal at 3 or far beyond, nothing of either is lost, and no epoch and seq name two entries.
#[tokio::test]
async fn a_journal_that_was_put_back_finds_out_whenever_its_output_answers() {
    for (head, cursor) in [(3, 3), (3, 1), (5, 3), (5, 0), (8, 3), (12, 2)] {
        let mut world = World::new().await;
        let path = world.dir.path().join("events.jsonl");
        world.write(head).await;
        let old = world.journal.epoch();
        let before =
            [world.lines(1..=3), (4..=8).map(|seq| dead(&world, seq)).collect::<String>().into_bytes()].concat();
        std::fs::write(&path, &before).unwrap();
        let (sink, _) = world.journal.sink("s", "fake", SinkStart::Start).await.unwrap();
        sink.acknowledge(Seq(cursor)).await.unwrap();
        world.start(world.plan(), file(&path, None));
        world.until(|row| row.cursor == Seq(head) && row.state.word() == "running").await;
        world.write(2).await;
        world.until(|row| row.cursor == Seq(head + 2)).await;
        let new = world.journal.epoch();
        assert!(new > old);
        let names = |lines: &[(String, u64, String)]| -> Vec<(String, u64)> {
            lines.iter().map(|(epoch, seq, _)| (epoch.clone(), *seq)).collect()
        };
        let own = (4..=head + 2).map(|seq| (new.clone(), seq));
        let expected: Vec<(String, u64)> = (1..=8).map(|seq| (old.clone(), seq)).chain(own).collect();
        assert_eq!(names(&lines(&path)), expected, "{head} {cursor}");
        // What goes under another name is the very entry, and keeps that name when the file has lost it.
        let whole = std::fs::read(&path).unwrap();
        let journal = String::from_utf8(world.lines(4..=head + 2)).unwrap().replace(&old, &new);
        assert!(whole == [before.clone(), journal.into_bytes()].concat(), "{head} {cursor}");
        world.stop().await;
        let cut = whole.len() - lines(&path).last().unwrap().2.len() - 40;
        std::fs::write(&path, &whole[..cut]).unwrap();
        world.start(world.plan(), file(&path, None));
        world.write(1).await;
        world.until(|row| row.cursor == Seq(head + 3)).await;
        assert!(std::fs::read(&path).unwrap() == [whole, world.lines(head + 3..=head + 3)].concat(), "{head} {cursor}");
        assert_eq!(world.journal.epoch(), new, "once");
        world.stop().await;
    }
}

/// An epoch that the journal does not know: the same copy was restored before, or everything was lost and begun again. What
/// is recorded comes later, also where the clock is behind.
#[tokio::test]
async fn an_epoch_that_nobody_here_knows_is_followed_by_a_later_one() {
    for (unknown, begins) in [("ffff00000000aaaaaaaaaaaaaaaaaaaa", true), ("0000000000ffaaaaaaaaaaaaaaaaaaaa", false)] {
        let mut world = World::new().await;
        let path = world.dir.path().join("events.jsonl");
        world.write(5).await;
        let old = world.journal.epoch();
        let line = dead(&world, 2).replace(&old, unknown);
        let shared = if begins { world.lines(1..=4) } else { Vec::new() };
        std::fs::write(&path, [&shared[..], line.as_bytes()].concat()).unwrap();
        world.start(world.plan(), file(&path, None));
        world.until(|row| row.cursor == Seq(5) && row.state.word() == "running").await;
        let new = world.journal.epoch();
        assert_eq!(new != old, begins);
        assert!(new.as_str() > unknown && new >= old);
        let names: Vec<(String, u64)> = lines(&path).into_iter().map(|(epoch, seq, _)| (epoch, seq)).collect();
        let mut expected: Vec<(String, u64)> =
            if begins { (1..=4).map(|seq| (old.clone(), seq)).collect() } else { Vec::new() };
        expected.push((unknown.to_owned(), 2));
        // It begins at 2, and so takes back what was recorded from there on.
        expected.extend((if begins { 2 } else { 1 }..=5).map(|seq| (new.clone(), seq)));
        assert_eq!(names, expected);
        world.stop().await;
    }
}

/// Fault 44, at several outputs that answer one after the other: one new epoch is enough.
#[tokio::test]
async fn outputs_that_answer_one_after_the_other_follow_the_same_epoch() {
    let mut world = World::new().await;
    world.write(6).await;
    let old = world.journal.epoch();
    let before = [world.lines(1..=3), (4..=8).map(|seq| dead(&world, seq)).collect::<String>().into_bytes()].concat();
    let paths = ["a", "b"].map(|name| world.dir.path().join(name));
    for (name, path) in ["a", "b"].into_iter().zip(&paths) {
        std::fs::write(path, &before).unwrap();
        world.start(Plan { name: name.into(), ..world.plan() }, file(path, None));
        world.until_sink(name, |row| row.cursor >= Seq(6) && row.state.word() == "running").await;
        world.write(2).await;
    }
    world.until_sink("a", |row| row.cursor == Seq(10)).await;
    world.until_sink("b", |row| row.cursor == Seq(10)).await;
    let epochs = world.journal.reader().unwrap().epochs().unwrap();
    assert_eq!(epochs.len(), 2, "{epochs:?}");
    assert_eq!(lines(&paths[0]), lines(&paths[1]));
    assert!(lines(&paths[0])[8..].iter().all(|(epoch, ..)| *epoch == epochs[1].0 && *epoch > old));
    world.stop().await;
}

/// Once an output was compared, what this journal cannot explain is of somebody else: it halts, and nothing is lost.
#[tokio::test]
async fn a_second_writer_halts_the_sink_until_its_output_is_its_own() {
    let mut world = World::new().await;
    let path = world.dir.path().join("events.jsonl");
    world.write(3).await;
    world.start(world.plan(), file(&path, None));
    world.until(|row| row.cursor == Seq(3) && row.state.word() == "running").await;
    let foreign = [&world.lines(1..=3)[..], dead(&world, 4).as_bytes()].concat();
    std::fs::write(&path, &foreign).unwrap();
    world.write(2).await;
    let row = world.until(|row| row.state.word() == "halted").await;
    assert!(
        row.state.detail().contains("ends with entry 4") && row.state.detail().contains("another decklog"),
        "{}",
        row.state.detail()
    );
    assert_eq!(row.cursor, Seq(3));
    world.write(1).await;
    assert!(std::fs::read(&path).unwrap() == foreign, "nothing was written behind it");
    std::fs::create_dir(world.dir.path().join("away")).unwrap();
    std::fs::rename(&path, world.dir.path().join("away/events.jsonl")).unwrap();
    world.reopen.notify();
    world.until(|row| row.cursor == Seq(6) && row.state.word() == "running").await;
    assert!(std::fs::read(&path).unwrap() == world.lines(4..=6));
    // The other one is stopped, and the file is this sink's from now on.
    let foreign = [&world.lines(4..=6)[..], dead(&world, 7).as_bytes()].concat();
    std::fs::write(&path, &foreign).unwrap();
    world.write(2).await;
    world.until(|row| row.state.word() == "halted").await;
    let old = world.journal.epoch();
    world.reopen.notify();
    world.until(|row| row.cursor == Seq(8) && row.state.word() == "running").await;
    let own = String::from_utf8(world.lines(7..=8)).unwrap().replace(&old, &world.journal.epoch());
    assert!(world.journal.epoch() > old && std::fs::read(&path).unwrap() == [&foreign, own.as_bytes()].concat());
    world.stop().await;
}

/// What was dead-lettered is not missing from the output. What another `where` left out may be: from there on all is
/// delivered.
#[tokio::test]
async fn what_both_have_is_found_also_where_something_is_left_out() {
    for missing in [vec![4, 5], vec![7], vec![6, 7, 8], vec![1, 2]] {
        for are_letters in [true, false] {
            let mut world = World::new().await;
            world.write(12).await;
            let (sink, _) = world.journal.sink("s", "fake", SinkStart::Start).await.unwrap();
            for seq in missing.iter().filter(|_| are_letters) {
                let line = world.journal.reader().unwrap().entry(Seq(*seq)).unwrap().unwrap().line;
                sink.dead_letter(Seq(*seq), line, "refused").await.unwrap();
            }
            let mut fake = Fake::new([]);
            (fake.shared, fake.missing, fake.limits.entries) = (8, missing.clone(), 64);
            fake.held = Some(LogPosition::of(dead(&world, 9).as_bytes()).unwrap());
            world.start(world.plan(), fake.clone());
            let first = if are_letters { 9 } else { missing[0] };
            let own: Vec<u64> = (first..=12).collect();
            assert_eq!(fake.taken(own.len()).await, own, "{missing:?} {are_letters}");
            world.stop().await;
        }
    }
}

/// Two journals recorded the same change at the same place in the same moment, after others that are not the same.
#[tokio::test]
async fn an_entry_that_is_the_same_by_chance_does_not_hide_what_is_before_it() {
    let mut world = World::new().await;
    world.write(12).await;
    let mut fake = Fake::new([]);
    (fake.shared, fake.missing, fake.limits.entries) = (8, (4..=7).collect(), 64);
    fake.held = Some(LogPosition::of(dead(&world, 9).as_bytes()).unwrap());
    world.start(world.plan(), fake.clone());
    assert_eq!(fake.taken(9).await, (4..=12).collect::<Vec<_>>());
    world.stop().await;
}

/// The journal was restored, and the output has let go of what it shared with it. The cursor counts where the output ends
/// later, and not where it ends before.
#[tokio::test]
async fn an_output_that_no_longer_has_the_last_entry_does_not_get_everything_again() {
    for (ends, first) in [(9, 4), (2, 1)] {
        let mut world = World::new().await;
        world.write(6).await;
        let (sink, _) = world.journal.sink("s", "fake", SinkStart::Start).await.unwrap();
        sink.acknowledge(Seq(3)).await.unwrap();
        let mut fake = Fake::new([]);
        fake.trimmed = true;
        fake.held = Some(LogPosition::of(dead(&world, ends).as_bytes()).unwrap());
        world.start(world.plan(), fake.clone());
        let own: Vec<u64> = (first..=6).collect();
        assert_eq!(fake.taken(own.len()).await, own, "{ends}");
        world.stop().await;
    }
}

/// The row that says which entry the output ended with was deleted, and the output restored behind it: its number alone is no
/// reason to leave out what the sink was never given.
#[tokio::test]
async fn a_number_alone_proves_nothing_beyond_the_cursor() {
    let mut world = World::new().await;
    world.write(6).await;
    let (sink, _) = world.journal.sink("s", "fake", SinkStart::Start).await.unwrap();
    sink.acknowledge(Seq(3)).await.unwrap();
    let mut fake = Fake::new([]);
    fake.shared = 4;
    fake.held = Some(LogPosition { epoch: world.journal.epoch(), seq: Seq(6), entry: None });
    world.start(world.plan(), fake.clone());
    assert_eq!(fake.taken(2).await, [5, 6]);
    world.stop().await;
}

/// No later epoch can follow, so that nothing could be delivered behind it in order.
#[tokio::test]
async fn an_epoch_that_nothing_can_follow_halts_the_sink() {
    for unknown in ["zzz", "ffffffffffff7000a000000000000000"] {
        let mut world = World::new().await;
        let path = world.dir.path().join("events.jsonl");
        world.write(3).await;
        let old = world.journal.epoch();
        let line = dead(&world, 2).replace(&old, unknown);
        std::fs::write(&path, &line).unwrap();
        world.start(world.plan(), file(&path, None));
        let row = world.until(|row| row.state.word() == "halted").await;
        assert!(
            row.state.detail().contains(unknown) && row.state.detail().contains("another output"),
            "{}",
            row.state.detail()
        );
        assert_eq!((std::fs::read(&path).unwrap(), world.journal.epoch()), (line.into_bytes(), old));
        world.stop().await;
    }
}

/// The journal was restored to 3 and has truncated by now what it recorded in the place of 4 to 8: nobody can say that
/// they are the same, so what follows goes under a later epoch, with the GAP for what is not known.
#[tokio::test]
async fn what_is_truncated_proves_nothing_beyond_the_cursor() {
    let mut world = World::new().await;
    let path = world.dir.path().join("events.jsonl");
    world.write(3).await;
    let (sink, _) = world.journal.sink("s", "fake", SinkStart::Start).await.unwrap();
    sink.acknowledge(Seq(3)).await.unwrap();
    world.write(9).await;
    let before = [world.lines(1..=3), (4..=8).map(|seq| dead(&world, seq)).collect::<String>().into_bytes()].concat();
    std::fs::write(&path, before).unwrap();
    world.journal.retire_sink("s").await.unwrap();
    world.truncate().await;
    let old = world.journal.epoch();
    world.start(world.plan(), file(&path, None));
    world.until(|row| row.cursor == Seq(12)).await;
    let names: Vec<(String, u64)> = lines(&path).into_iter().skip(8).map(|(epoch, seq, _)| (epoch, seq)).collect();
    let new = world.journal.epoch();
    assert!(new > old);
    assert_eq!(names, [(new.clone(), 11), (new, 12)]);
    world.stop().await;
}

/// A GAP of a sink's own stands under the epoch of the entry in whose place it is: behind it follow others of that epoch, and
/// no output takes those behind a later one.
#[tokio::test]
async fn the_gap_for_what_was_dropped_is_of_the_epoch_of_then() {
    let mut world = World::new().await;
    world.write(12).await;
    world.truncate().await;
    let old = world.journal.epoch();
    world.journal.begin_epoch(None).await.unwrap();
    world.write(2).await;
    let path = world.dir.path().join("events.jsonl");
    world.start(world.plan(), file(&path, None));
    world.until(|row| row.cursor == Seq(14)).await;
    let names: Vec<(String, u64)> = lines(&path).into_iter().map(|(epoch, seq, _)| (epoch, seq)).collect();
    let new = world.journal.epoch();
    assert_eq!(names, [(old.clone(), 11), (old, 12), (new.clone(), 13), (new, 14)]);
    world.stop().await;
}
