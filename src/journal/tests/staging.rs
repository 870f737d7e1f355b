//! Lists in progress have a share of the database, and take nothing of what others need.

use super::retention::{AGES, Noise, noisy, oldest, until};
use super::*;

/// A second source of the same journal.
async fn config_maps(journal: &Journal) -> SourceJournal {
    let mut spec = pods();
    (spec.resource.kind, spec.resource.plural) = ("ConfigMap".to_owned(), "configmaps".to_owned());
    journal.source(&spec).await.unwrap().0
}

fn page(noise: &mut Noise, first: u64, objects: u64) -> Vec<Observed> {
    let page = first..first + objects;
    page.map(|number| noisy(noise, &format!("n{number}"), &format!("u{number}"), number + 1, 2000)).collect()
}

/// A list that does not end leaves others what they need: no pause, no truncation, and its room comes back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_without_room_is_given_up_and_costs_nobody_anything() {
    for sink in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let open = Open::at(dir.path()).await;
        let other = config_maps(&open.journal).await;
        open.journal.bound(Bounds { max_size: 4 << 20, max_age: AGES, drop_oldest: true }).await.unwrap();
        if sink {
            open.journal.sink("dead", "file", SinkStart::Start).await.unwrap();
        }
        other.list_begin().await.unwrap();
        other.list_done(rv(1), None).await.unwrap();
        let (mut noise, mut given_up, mut version) = (Noise(3), 0, 100_000);
        open.source.list_begin().await.unwrap();
        // Three times what the database may have, in three lists.
        for number in 0..120 {
            open.source.list_page(page(&mut noise, number * 50, 50)).await.unwrap();
            version += 1;
            other.append(vec![upsert("beside", "u", version)]).await.unwrap();
            open.journal.flush().await.unwrap();
            assert!(open.journal.paused().borrow().is_none(), "nobody else waits");
            if open.source.lists_given_up() > given_up {
                given_up = open.source.lists_given_up();
                // Its end brings nothing, and deletes nothing.
                open.source.list_done(rv(99_999), None).await.unwrap();
                open.source.list_begin().await.unwrap();
            }
        }
        assert!(given_up >= 2, "{given_up}");
        assert_eq!(oldest(&open), 1, "nothing is forgotten");
        assert_eq!(log(&mut open.journal.reader().unwrap()).len(), 120);
        // One for which there is room is written as ever.
        open.source.list_begin().await.unwrap();
        open.source.list_page(page(&mut noise, 0, 10)).await.unwrap();
        open.source.list_done(rv(200_000), None).await.unwrap();
        assert_eq!(log(&mut open.journal.reader().unwrap()).len(), 130);
        drop(other);
        open.close();
    }
}

/// Of two lists the larger one is given up, whichever asks for room.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_largest_list_is_given_up() {
    let dir = tempfile::tempdir().unwrap();
    let open = Open::at(dir.path()).await;
    let other = config_maps(&open.journal).await;
    open.journal.bound(Bounds { max_size: 4 << 20, max_age: AGES, drop_oldest: false }).await.unwrap();
    let mut noise = Noise(4);
    open.source.list_begin().await.unwrap();
    for number in 0..10 {
        open.source.list_page(page(&mut noise, number * 50, 50)).await.unwrap();
    }
    other.list_begin().await.unwrap();
    let mut pages = 0;
    while open.source.lists_given_up() == 0 {
        other.list_page(page(&mut noise, pages * 20, 20)).await.unwrap();
        open.journal.flush().await.unwrap();
        pages += 1;
        assert!(pages < 100, "nobody is given up");
    }
    assert_eq!(other.lists_given_up(), 0);
    other.list_done(rv(200_000), None).await.unwrap();
    assert_eq!(log(&mut open.journal.reader().unwrap()).len() as u64, pages * 20);
    drop(other);
    open.close();
}

/// What the last daemon staged and did not finish counts as staged, so that it does not make the log forget. It goes before any source
/// begins, because it may be what no source has room beside.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unfinished_list_of_the_last_daemon_makes_nothing_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let mut noise = Noise(5);
    {
        let open = Open::at(dir.path()).await;
        open.list(1, None, &[]).await;
        for number in 0..250 {
            let object = noisy(&mut noise, &format!("o{number}"), &format!("u{number}"), 100 + number, 2000);
            open.watch(vec![WatchChange { verb: Verb::Upsert, object }]).await;
        }
        open.source.list_begin().await.unwrap();
        open.source.list_page(page(&mut noise, 10_000, 1100)).await.unwrap();
        open.journal.flush().await.unwrap();
        open.close();
    }
    let (journal, thread) = Journal::open(dir.path()).unwrap();
    journal.bound(Bounds { max_size: 3 << 20, max_age: AGES, drop_oldest: true }).await.unwrap();
    let (source, memory) = journal.source(&pods()).await.unwrap();
    let open = Open { journal, thread, source, memory };
    open.watch(vec![upsert("last", "u", 99_999)]).await;
    let left = || -> u64 {
        let conn = Connection::open(dir.path().join("journal.db")).unwrap();
        conn.query_row("SELECT count(*) FROM listing", [], |row| row.get(0)).unwrap()
    };
    until("what was staged to go", || left() == 0).await;
    open.watch(vec![upsert("last", "u", 100_000)]).await;
    assert_eq!(oldest(&open), 1);
    open.close();
}
