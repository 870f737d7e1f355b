//! Pace: rates, batches that wait, commits without entries, stops.

use super::*;

/// Fault 78: a rate below the one from which on the other side drops.
#[tokio::test(start_paused = true)]
async fn a_sink_gets_no_more_in_a_second_than_its_rate() {
    let mut world = World::new().await;
    world.write(24).await;
    let fake = Fake::new([]);
    let began = Instant::now();
    world.start(Plan { rate: Some(2), ..world.plan() }, fake.clone());
    fake.taken(24).await;
    // The clock only moves where delivery waits: two at once, and half a second for each of the others.
    let took = began.elapsed();
    assert!((Duration::from_secs(11)..Duration::from_secs(12)).contains(&took), "{took:?}");
    // What was not used is not made up for.
    tokio::time::sleep(Duration::from_hours(1)).await;
    // From before the write: the clock also moves while the runtime waits for the writer's thread.
    let began = Instant::now();
    world.write(6).await;
    fake.taken(30).await;
    assert!(began.elapsed() >= Duration::from_secs(2), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_batch_waits_for_more_as_long_as_its_sink_likes() {
    let mut world = World::new().await;
    let mut fake = Fake::new([]);
    fake.limits = Limits { linger: Duration::from_secs(60), ..fake.limits };
    world.write(9).await;
    let began = Instant::now();
    world.start(world.plan(), fake.clone());
    // What is full does not wait, and what is not waits its time.
    fake.taken(8).await;
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    fake.taken(9).await;
    assert!(began.elapsed() >= Duration::from_secs(60), "{:?}", began.elapsed());
    world.stop().await;
    assert_eq!(world.row().await.cursor, Seq(9));
    // By their bytes three are enough, as those before them show, and at the beginning a look at what is there.
    fake.limits = Limits { entries: 1000, bytes: 3 * world.lines(1..=1).len(), ..fake.limits };
    world.write(7).await;
    let began = Instant::now();
    world.start(world.plan(), fake.clone());
    fake.taken(15).await;
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    fake.taken(16).await;
    assert!(began.elapsed() >= Duration::from_secs(60), "{:?}", began.elapsed());
    world.stop().await;
    // A batch that waits holds up neither the end nor SIGHUP.
    world.write(1).await;
    world.start(world.plan(), fake.clone());
    world.reopen.notify();
    fake.reopened.subscribe().wait_for(|count| *count == 1).await.unwrap();
    let began = Instant::now();
    world.stop().await;
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    assert_eq!(world.row().await.cursor, Seq(16));
}

#[tokio::test(start_paused = true)]
async fn unwanted_entries_are_passed_without_a_commit_each() {
    let mut world = World::new().await;
    world.write(20).await;
    let fake = Fake::new([]);
    let filter = Wanted::by_row(|line| memchr::memmem::find(line, b"\"name\":\"p7\"").is_some());
    world.start(Plan { filter: Some(filter), ..world.plan() }, fake.clone());
    assert_eq!(fake.taken(1).await, [7]);
    // The rest is only passed; the cursor follows all the same.
    world.until(|row| row.cursor == Seq(20)).await;
    for _ in 0..5 {
        world.write(1).await;
    }
    world.until(|row| row.cursor == Seq(25)).await;
    assert_eq!(fake.taken(1).await, [7]);
}

#[tokio::test]
async fn stopping_does_not_wait_for_a_retry() {
    let mut world = World::new().await;
    world.write(1).await;
    let after = Some(Duration::from_hours(1));
    let fake = Fake::new([Failure { taken: 0, error: SinkError::Retry { text: "busy".into(), after } }]);
    world.start(world.plan(), fake);
    world.until(|row| row.state.word() == "retrying").await;
    tokio::time::timeout(Duration::from_secs(10), world.stop()).await.unwrap();
    assert_eq!(world.row().await.cursor, Seq(0));
}
