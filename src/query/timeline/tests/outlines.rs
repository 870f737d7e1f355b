//! Outlines are made once, kept by the journal, and say what the entries say.

use tokio_util::sync::CancellationToken;

use super::*;
use crate::journal::outline::{Part, part_of};
use crate::journal::{Bounds, Sharing};
use crate::query::timeline::outlines::Way;
use crate::sim::shared_log::Engine;

/// Everything that a walk comes by.
fn walked(
    index: &Index,
    reader: &mut Reader,
    bounds: (u64, u64),
    way: Way,
) -> Vec<(u64, i64, EntryType, i64, bool, String)> {
    let mut found = Vec::new();
    let cut = index.walk(
        reader,
        bounds,
        way,
        later(),
        (&|_, _| true, &mut |part, mark| {
            found.push((mark.seq, mark.time, mark.kind(), mark.object, mark.quiet, part.words(mark).areas));
            ControlFlow::Continue(())
        }),
    );
    assert_eq!(cut.unwrap(), None);
    found
}

#[tokio::test]
async fn what_is_seen_in_outline_is_what_the_entries_say() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, thread, source) = begun(dir.path()).await;
    let (index, mut reader) = (Index::default(), journal.reader().unwrap());
    let mut written = 0;
    // The end grows, within a part and over its border.
    for upto in [1, 700, 1000, 1025, 2300, 2310] {
        write(&journal, &source, written..upto).await;
        written = upto;
        let head = reader.head().unwrap().0;
        let all = read(&mut reader, (0, head));
        assert_eq!(walked(&index, &mut reader, (0, u64::MAX), Way::On), all, "{head} entries");
        let mut back = walked(&index, &mut reader, (0, u64::MAX), Way::Back);
        back.reverse();
        assert_eq!(back, all, "{head} entries, newest first");
        let inside = (head / 3, head - head / 4);
        assert_eq!(walked(&index, &mut reader, inside, Way::On), read(&mut reader, inside));
    }
    let all = read(&mut reader, (0, u64::MAX >> 1));
    assert!(
        all.iter().any(|entry| entry.4) && all.iter().any(|entry| entry.2 == EntryType::Deleted),
        "nothing to look at"
    );

    // What the journal keeps says the same, to somebody who has made nothing.
    let stop = CancellationToken::new();
    let keeping = Index::default().keep(journal.clone(), stop.clone());
    let whole = part_of(all.len() as u64 + 1);
    let kept = until("the outlines to be kept", || reader.outlined(0, 99).unwrap() == (0..whole).collect::<Vec<_>>());
    tokio::select! {
        ended = keeping => panic!("{ended:?}"),
        () = kept => {}
    }
    assert!(whole >= 2, "{whole} parts");
    assert_eq!(walked(&Index::default(), &mut reader, (0, u64::MAX), Way::On), all);

    // One of another form is as good as none.
    journal.outline(0, vec![99]).await.unwrap();
    journal.flush().await.unwrap();
    let keeping = Index::default().keep(journal.clone(), stop.clone());
    let kept = until("it to be made again", || reader.outline(0).unwrap().and_then(Part::read).is_some());
    tokio::select! {
        ended = keeping => panic!("{ended:?}"),
        () = kept => {}
    }
    assert_eq!(walked(&Index::default(), &mut reader, (0, u64::MAX), Way::On), all);

    // They go with the entries.
    journal.bound(Bounds { max_size: 1 << 40, max_age: Duration::ZERO, drop_oldest: false }).await.unwrap();
    until("all but the newest to be truncated", || reader.retained().unwrap().oldest == all.len() as u64).await;
    assert_eq!(reader.outlined(0, 99).unwrap(), Vec::<u64>::new());
    assert_eq!(walked(&index, &mut reader, (0, u64::MAX), Way::On), all[all.len() - 1..]);
    drop((journal, source));
    thread.join().unwrap();
}

#[tokio::test]
async fn an_outline_of_another_journal_is_none_of_this_one() {
    let (index, mut seen) = (Index::default(), Vec::new());
    for count in [1500, 1400] {
        let dir = tempfile::tempdir().unwrap();
        let (journal, thread, source) = begun(dir.path()).await;
        write(&journal, &source, 0..count).await;
        let mut reader = journal.reader().unwrap();
        let all = read(&mut reader, (0, u64::MAX >> 1));
        assert_eq!(walked(&index, &mut reader, (0, u64::MAX), Way::On), all);
        seen.push(all);
        drop((journal, source));
        thread.join().unwrap();
    }
    assert_ne!(seen[0][0], seen[1][0], "the two journals have the same entries, so the test looks at nothing");
}

/// Who has stood by makes the outlines once it leads.
#[tokio::test]
async fn who_takes_over_makes_the_outlines() {
    let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let engine = Engine::default();
    let shared = |dir: &Path, identity: &str| {
        let sharing = Sharing {
            log: Box::new(engine.clone()),
            identity: identity.to_owned(),
            backlog: 1 << 20,
            key: "key".to_owned(),
            poll: Duration::from_millis(5),
            worth_a_base: u64::MAX / 2,
        };
        Journal::open_shared(dir, sharing).unwrap()
    };
    let (one, one_thread) = shared(a.path(), "one");
    one.lead().await.unwrap().unwrap();
    let source = one.source(&pods()).await.unwrap().0;
    let (two, two_thread) = shared(b.path(), "two");
    let stop = CancellationToken::new();
    let keeping = Index::default().keep(two.clone(), stop.clone());
    let reader = two.reader().unwrap();
    let story = async {
        for part in 0..3 {
            write(&one, &source, part * PART..(part + 1) * PART).await;
            until("the standby to follow", || reader.head().unwrap() == Seq((part + 1) * PART)).await;
        }
        two.lead().await.unwrap().unwrap();
        until("the outlines to be kept", || reader.outlined(0, 99).unwrap() == [0, 1, 2]).await;
    };
    tokio::select! {
        ended = keeping => panic!("{ended:?}"),
        () = story => {}
    }
    drop((one, two, source));
    drop(one_thread.join());
    two_thread.join().unwrap();
}
