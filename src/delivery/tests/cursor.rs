//! The cursor while the journal cannot be written.

use super::*;

/// The next batch does not wait for the disk, and the one after it does: a crash repeats two batches at most.
#[tokio::test]
async fn one_move_of_the_cursor_is_on_its_way_while_a_batch_is_delivered() {
    let mut world = World::new().await;
    world.write(8).await;
    let mut fake = Fake::new([]);
    fake.limits.entries = 2;
    let (path, lock) =
        (world.dir.path().join("state/journal.db"), Arc::<Mutex<Option<rusqlite::Connection>>>::default());
    let held = Arc::clone(&lock);
    let hold = move || {
        let other = rusqlite::Connection::open(path).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        *held.lock().unwrap() = Some(other);
    };
    fake.first.lock().unwrap().replace(Box::new(hold));
    world.start(world.plan(), fake.clone());
    assert_eq!(fake.taken(4).await, [1, 2, 3, 4]);
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    assert_eq!(*fake.taken.borrow(), [1, 2, 3, 4], "nobody can write the journal");
    drop(lock.lock().unwrap().take());
    assert_eq!(fake.taken(8).await, (1..=8).collect::<Vec<_>>());
    world.until(|row| row.cursor == Seq(8)).await;
    world.stop().await;
}
