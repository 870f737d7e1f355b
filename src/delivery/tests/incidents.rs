//! Incidents of a real journal.

use super::*;
use crate::core::spelling::Text;
use crate::sink::notify::{Notify, Rule};

fn notify(rules: &[&str]) -> Option<Notify> {
    let rules = rules.iter().map(|rule| Rule::read(rule).unwrap()).collect();
    Some(Notify { rules, group: Duration::from_secs(60), wait: Duration::from_millis(1), digest: 100 })
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
    let mut world = World::new().await;
    world.write(12).await;
    let fake = Fake::new(std::iter::repeat_with(|| retry(0)).take(1000));
    world.start(Plan { notify: notify(&["gap", "all: type == 'ADDED'"]), ..world.plan() }, fake.clone());
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
