//! Batches that are read while the sink has the one before.

use tokio::sync::Semaphore;

use super::*;
use crate::core::wire::Entry;

/// Takes a batch for each permit.
struct Held {
    inner: Fake,
    permits: Arc<Semaphore>,
    /// First seqs of the batches that it was given.
    given: watch::Sender<Vec<u64>>,
}

impl Sink for Held {
    fn class(&self) -> crate::sink::Class {
        self.inner.class()
    }

    fn limits(&self) -> Limits {
        self.inner.limits()
    }

    fn position<'a>(&'a mut self, cursor: &'a LogPosition) -> BoxFuture<'a, Result<Option<LogPosition>, SinkError>> {
        self.inner.position(cursor)
    }

    fn deliver<'a>(&'a mut self, batch: &'a [Item]) -> BoxFuture<'a, Result<(), Failure>> {
        async {
            self.given.send_modify(|given| given.push(batch[0].seq.0));
            self.permits.acquire().await.unwrap().forget();
            self.inner.deliver(batch).await
        }
        .boxed()
    }

    fn reopen(&mut self) {
        self.inner.reopen();
    }

    fn check(&mut self) -> BoxFuture<'_, Result<(), SinkError>> {
        self.inner.check()
    }
}

/// A sink that has its first batch of four, and the seqs that were read.
async fn holding(
    world: &mut World,
    script: impl IntoIterator<Item = Failure>,
) -> (Fake, Arc<Semaphore>, watch::Receiver<Vec<u64>>) {
    let (fake, permits, given) = (Fake::new(script), Arc::new(Semaphore::new(0)), watch::Sender::default());
    let (read, reads) = watch::channel(Vec::new());
    let looks = move |line: &[u8]| {
        read.send_modify(|read: &mut Vec<u64>| read.push(Entry::parse(line).unwrap().seq));
        true
    };
    let held = Held { inner: fake.clone(), permits: Arc::clone(&permits), given: given.clone() };
    world.start(Plan { filter: Some(Wanted::by_entry(looks)), ..world.plan() }, held);
    given.subscribe().wait_for(|given| given.last() == Some(&1)).await.unwrap();
    (fake, permits, reads)
}

/// It is read once: what the log truncates meanwhile is delivered, and what comes behind it is a GAP.
#[tokio::test]
async fn the_next_batch_is_read_while_the_sink_has_one() {
    let mut world = World::new().await;
    world.write(14).await;
    let (fake, permits, mut reads) = holding(&mut world, []).await;
    reads.wait_for(|read| read.len() == 8).await.unwrap();
    // Nothing waits for a sink that is not configured.
    world.journal.retire_sink("s").await.unwrap();
    world.truncate().await;
    permits.add_permits(9);
    world.until(|row| row.cursor == Seq(14)).await;
    assert_eq!(*fake.taken.borrow(), [1, 2, 3, 4, 5, 6, 7, 8, 13, 14]);
    assert_eq!(reads.borrow()[..8], [1, 2, 3, 4, 5, 6, 7, 8]);
    world.stop().await;
}

/// Whatever comes in between finds the journal readable, and nothing is left out or delivered twice.
#[tokio::test]
async fn what_was_read_ahead_is_read_again_after_a_failure_and_after_sighup() {
    for (script, is_reopened) in [
        (vec![retry(2)], false),
        (vec![refused(1)], true),
        (vec![Failure { taken: 0, error: SinkError::Lost { text: "moved".into() } }], false),
        (vec![], true),
    ] {
        let mut world = World::new().await;
        world.write(12).await;
        let (fake, permits, mut reads) = holding(&mut world, script).await;
        reads.wait_for(|read| read.len() == 8).await.unwrap();
        if is_reopened {
            world.reopen.notify();
        }
        permits.add_permits(20);
        world.until(|row| row.cursor == Seq(12)).await;
        assert_eq!(reads.borrow().iter().filter(|seq| **seq == 5).count(), 2, "what was read ahead is dropped");
        assert_eq!(*fake.taken.borrow(), (1..=12).collect::<Vec<_>>());
        assert_eq!(*fake.reopened.borrow() > 0, is_reopened);
        world.stop().await;
    }
}
