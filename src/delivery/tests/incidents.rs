//! Incidents of a real journal.

use super::*;
use crate::core::filter::Filter;
use crate::core::spelling::Text;
use crate::sink::notify::{Notify, Rule};

fn notify(rules: &[&str]) -> Option<Notify> {
    let rules = rules.iter().map(|rule| Rule::read(rule).unwrap()).collect();
    Some(Notify { rules, group: Duration::from_secs(60), wait: Duration::from_millis(1), digest: 100, updates: false })
}

#[tokio::test]
async fn a_sink_gets_what_a_rule_selects_and_its_cursor_passes_the_rest() {
    let mut world = World::new().await;
    world.write(10).await;
    let fake = Fake::new([retry(1)]);
    let rule = "some: name in ['p2', 'p5', 'p9']";
    let plan = |world: &World| Plan { notify: notify(&[rule]), ..world.plan() };
    world.start(plan(&world), fake.clone());
    world.until(|row| row.cursor == Seq(10)).await;
    world.stop().await;
    world.write(2).await;
    world.start(plan(&world), fake.clone());
    world.until(|row| row.cursor == Seq(12) && row.written == Seq(9)).await;
    assert_eq!(fake.taken(3).await, [2, 5, 9]);
    world.stop().await;
}

#[tokio::test]
async fn what_is_dropped_before_it_was_sent_is_a_gap() {
    let added = "all: type == 'ADDED'";
    dropped(&["gap", added], None).await;
    dropped(&[added], None).await;
    dropped(&[added], Some("type == 'ADDED'")).await;
}

/// A sink with these rules and this filter, which never answers until nothing is left of what it has to get.
async fn dropped(rules: &[&str], filter: Option<&str>) {
    let mut world = World::new().await;
    world.write(12).await;
    let fake = Fake::new(std::iter::repeat_with(|| retry(0)).take(1000));
    let filter = filter.map(|filter| Wanted::new(Filter::read(filter).unwrap(), |_| true));
    world.start(Plan { notify: notify(rules), filter, ..world.plan() }, fake.clone());
    world.until(|row| matches!(row.state, SinkState::Retrying(_))).await;
    // Nothing waits for a sink that is not configured.
    world.journal.retire_sink("s").await.unwrap();
    world.truncate().await;
    fake.script.lock().unwrap().clear();
    // Up to four were with the sink, as many as the first window had; the others are read where they are sent.
    let taken = fake.taken.subscribe().wait_for(|taken| taken.ends_with(&[12])).await.unwrap().clone();
    let with_sink = taken.len() - 2;
    assert!((1..=4).contains(&with_sink), "{taken:?}");
    assert_eq!(taken[..with_sink], [1, 2, 3, 4][..with_sink]);
    assert_eq!(taken[with_sink..], [11, 12], "the GAP stands for those that are dropped");
    world.until(|row| row.cursor == Seq(12)).await;
    world.stop().await;
}

/// A digest has no entry of its own: what it was about is kept, each entry for itself.
#[tokio::test]
async fn of_a_refused_digest_every_incident_is_dead_lettered() {
    let mut world = World::new().await;
    let fake = Fake::new(std::iter::repeat_with(|| refused(0)).take(1000));
    let notify = notify(&["all: type == 'ADDED'"]).map(|notify| Notify { digest: 1, ..notify });
    world.start(Plan { notify, on_refused: OnRefused::DeadLetter, ..world.plan() }, fake.clone());
    world.write(150).await;
    world.until(|row| row.cursor == Seq(150)).await;
    world.stop().await;
    let letters = world.journal.reader().unwrap().dead_letters().unwrap();
    let letters: Vec<u64> = letters.iter().map(|letter| letter.seq.0).collect();
    assert_eq!(letters, (1..=150).collect::<Vec<u64>>());
    // As one batch they were stamped within few windows.
    assert!(fake.script.lock().unwrap().len() > 1000 - 150, "there was no digest");
}
