//! Files: each entry once, through crashes, cuts and restored copies.

use super::*;

#[tokio::test]
async fn a_position_of_an_earlier_epoch_counts_where_the_journal_has_that_entry() {
    let mut world = World::new().await;
    world.write(6).await;
    let old = world.journal.epoch();
    world.journal.begin_epoch(None).await.unwrap();
    world.write(3).await;
    // Up to 6 the output and the journal are the same; 8 was another entry in the old epoch.
    for (held, first) in [(4, 5), (6, 7), (8, 7)] {
        let mut fake = Fake::new([]);
        let entry = |seq| LogPosition::of(&world.lines(seq..=seq)).unwrap().entry;
        fake.held = Some(LogPosition { epoch: old.clone(), seq: Seq(held), entry: entry(held) });
        fake.shared = 6;
        world.start(Plan { name: format!("held {held}"), ..world.plan() }, fake.clone());
        assert_eq!(fake.taken(10 - first).await, (first as u64..=9).collect::<Vec<_>>(), "{held}");
    }
}

#[tokio::test]
async fn a_file_of_an_earlier_epoch_that_was_cut_gets_what_it_lacks() {
    let mut world = World::new().await;
    let path = world.dir.path().join("events.jsonl");
    world.write(5).await;
    world.start(world.plan(), file(&path, None));
    world.until(|row| row.cursor == Seq(5)).await;
    world.stop().await;
    world.journal.begin_epoch(None).await.unwrap();
    world.write(2).await;
    std::fs::write(&path, world.lines(1..=3)).unwrap();
    world.start(world.plan(), file(&path, None));
    world.write(1).await;
    world.until(|row| row.cursor == Seq(8)).await;
    assert!(std::fs::read(&path).unwrap() == world.lines(1..=8));
}

#[tokio::test]
async fn what_a_filter_left_out_stays_out_when_the_filter_is_widened() {
    let mut world = World::new().await;
    let path = world.dir.path().join("events.jsonl");
    world.write(6).await;
    let filter = Wanted::by_entry(|line| memchr::memmem::find(line, b"\"name\":\"p2\"").is_some());
    world.start(Plan { filter: Some(filter), ..world.plan() }, file(&path, None));
    let row = world.until(|row| row.cursor == Seq(6)).await;
    assert_eq!(row.written, Seq(2));
    world.stop().await;
    world.start(world.plan(), file(&path, None));
    world.write(1).await;
    world.until(|row| row.cursor == Seq(7)).await;
    assert!(std::fs::read(&path).unwrap() == [world.lines(2..=2), world.lines(7..=7)].concat());
}

pub(super) fn file(path: &Path, rotate_size: Option<u64>) -> crate::sink::file::FileSink {
    crate::sink::file::FileSink::new(&FileSettings {
        path: path.to_owned(),
        rotate_size: rotate_size.map(crate::core::units::ByteSize),
        rotate_every: None,
        keep: 1000,
        compress: Compress::Zstd,
    })
}

#[tokio::test]
async fn a_file_has_each_entry_once_through_crashes_at_any_moment() {
    let mut world = World::new().await;
    let path = world.dir.path().join("events.jsonl");
    for round in 0..30 {
        world.write(round % 7).await;
        world.start(world.plan(), file(&path, None));
        for _ in 0..round % 11 {
            world.journal.flush().await.unwrap();
        }
        world.crash().await;
    }
    world.write(5).await;
    world.start(world.plan(), file(&path, None));
    let head = Seq(world.written);
    world.until(|row| row.cursor == head).await;
    assert!(std::fs::read(&path).unwrap() == world.lines(1..=head.0));
}

#[tokio::test]
async fn a_file_that_was_cut_or_put_back_gets_what_it_lacks() {
    let mut world = World::new().await;
    let path = world.dir.path().join("events.jsonl");
    world.write(8).await;
    world.start(world.plan(), file(&path, None));
    world.until(|row| row.cursor == Seq(8)).await;
    world.stop().await;
    std::fs::write(&path, world.lines(1..=5)).unwrap();
    world.start(world.plan(), file(&path, None));
    world.write(1).await;
    world.until(|row| row.cursor == Seq(9)).await;
    assert!(std::fs::read(&path).unwrap() == world.lines(1..=9));
}

#[tokio::test(start_paused = true)]
async fn a_missing_directory_is_waited_for() {
    let mut world = World::new().await;
    let dir = world.dir.path().join("later");
    world.write(2).await;
    world.start(world.plan(), file(&dir.join("events.jsonl"), None));
    let row = world.until(|row| row.state.word() == "retrying").await;
    assert!(row.state.detail().contains("does not exist; create it"), "{}", row.state.detail());
    std::fs::create_dir(&dir).unwrap();
    world.until(|row| row.state.word() == "running" && row.cursor == Seq(2)).await;
    assert!(std::fs::read(dir.join("events.jsonl")).unwrap() == world.lines(1..=2));
}
