//! Incidents of a real journal.

use super::*;
use crate::core::filter::Filter;
use crate::core::k8s::audited::{Actor, Sender};
use crate::core::spelling::Text;
use crate::journal::{Attribution, Message};
use crate::sink::Receipt;
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

/// A receiver that names messages, and shows each by its name.
#[derive(Clone, Default)]
struct Naming {
    /// Place, reference and count of what came.
    came: Arc<Mutex<Vec<(u64, String, u64)>>>,
    /// Users that it named.
    users: Arc<Mutex<Vec<Vec<String>>>>,
    receipts: Vec<(Seq, Receipt)>,
    /// It has no message any more.
    is_gone: bool,
    /// An update shows the last entry.
    shows_last: bool,
}

impl Sink for Naming {
    fn class(&self) -> crate::sink::Class {
        crate::sink::Class::AtLeastOnce
    }

    fn limits(&self) -> Limits {
        Limits { entries: 4, bytes: 1 << 20, linger: Duration::ZERO }
    }

    fn position<'a>(&'a mut self, _: &'a LogPosition) -> BoxFuture<'a, Result<Option<LogPosition>, SinkError>> {
        std::future::ready(Ok(None)).boxed()
    }

    fn deliver<'a>(&'a mut self, batch: &'a [Item]) -> BoxFuture<'a, Result<(), Failure>> {
        for item in batch {
            let incident = item.incident.as_ref().unwrap();
            self.came.lock().unwrap().push((item.seq.0, incident.reference.clone(), incident.count));
            self.users.lock().unwrap().push(incident.users.clone());
            // An update shows the entry that the incident began with.
            let is_last = self.shows_last && incident.is_update();
            assert_eq!(item.header().unwrap().seq, if is_last { incident.last } else { incident.first });
            match (incident.is_update(), self.is_gone) {
                (false, _) => self.receipts.push((item.seq, Receipt::Named(format!("m{}", item.seq)))),
                (true, true) => self.receipts.push((item.seq, Receipt::Final("gone".to_owned()))),
                (true, false) => {}
            }
        }
        std::future::ready(Ok(())).boxed()
    }

    fn receipts(&mut self) -> Vec<(Seq, Receipt)> {
        std::mem::take(&mut self.receipts)
    }

    fn reopen(&mut self) {}

    fn check(&mut self) -> BoxFuture<'_, Result<(), SinkError>> {
        std::future::ready(Ok(())).boxed()
    }
}

/// The receiver's name for a message is in the journal with the cursor, until the receiver says that the message is gone.
#[tokio::test]
async fn a_message_is_updated_over_restarts_until_it_is_gone() {
    let mut world = World::new().await;
    let sink = Naming::default();
    let notify = || notify(&["all: true"]).map(|notify| Notify { updates: true, ..notify });
    let count = |sink: &Naming| sink.came.lock().unwrap().last().cloned();
    for round in 1..=4 {
        world.start(Plan { notify: notify(), ..world.plan() }, sink.clone());
        world.touch().await;
        world.until(|row| row.cursor == Seq(round)).await;
        let reference = if round == 1 { "" } else { "m1" };
        assert_eq!(count(&sink), Some((round, reference.to_owned(), round)));
        world.stop().await;
    }
    let kept = world.journal.reader().unwrap().messages("s").unwrap();
    let message = Message {
        incident: kept[0].incident.clone(),
        first: Seq(1),
        last: Seq(4),
        entries: 4,
        reference: Some("m1".to_owned()),
    };
    assert_eq!(kept, [message]);
    // The update that finds it gone is the last one, also of the next start.
    for round in 5..=7 {
        world.start(Plan { notify: notify(), ..world.plan() }, Naming { is_gone: true, ..sink.clone() });
        world.touch().await;
        world.until(|row| row.cursor == Seq(round)).await;
        assert_eq!(count(&sink), Some((5, "m1".to_owned(), 5)));
        world.stop().await;
        assert_eq!(world.journal.reader().unwrap().messages("s").unwrap(), []);
    }
}

/// Who asked for a change is known later than the change: a message that is updated has the name then, and one of the ACTOR at once.
#[tokio::test]
async fn a_message_has_who_asked_once_that_is_known() {
    let alice = || vec!["alice".to_owned()];
    for (rule, updates, expected) in [
        ("all: type == 'ADDED'", true, vec![Vec::new(), alice()]),
        ("all: type == 'ADDED'", false, vec![Vec::new()]),
        ("all: type == 'ACTOR'", false, vec![alice()]),
    ] {
        let mut world = World::new().await;
        let sink = Naming::default();
        let notify = notify(&[rule]).map(|notify| Notify { updates, ..notify });
        world.start(Plan { notify, ..world.plan() }, sink.clone());
        world.touch().await;
        world.until(|row| row.cursor == Seq(1)).await;
        let sender = Sender { user: "alice".to_owned(), ..Sender::default() };
        let (verb, subresource, certainty) = ("create".to_owned(), String::new(), "exact".to_owned());
        let actor = Actor { sender, verb, subresource, audit_ids: Vec::new(), certainty };
        let attribution = Attribution { actors: vec![(Seq(1), actor)], upto: Seq(1), ..Attribution::default() };
        world.journal.attribute(attribution).await.unwrap();
        world.until(|row| row.cursor == Seq(2)).await;
        assert_eq!(*sink.users.lock().unwrap(), expected, "{rule} {updates}");
        world.stop().await;
    }
}

/// What a receiver that was away does not have is one update, and the count in it is right; also where another incident begins meanwhile.
#[tokio::test]
async fn updates_of_one_incident_in_a_backlog_are_one() {
    let mut world = World::new().await;
    let sink = Naming::default();
    let notify =
        || notify(&["all: true"]).map(|notify| Notify { updates: true, wait: Duration::from_micros(1), ..notify });
    world.start(Plan { notify: notify(), ..world.plan() }, sink.clone());
    world.touch().await;
    world.until(|row| row.cursor == Seq(1)).await;
    world.stop().await;
    for _ in 0..5 {
        world.touch().await;
    }
    world.write(1).await;
    for _ in 0..5 {
        world.touch().await;
    }
    world.start(Plan { notify: notify(), ..world.plan() }, sink.clone());
    world.until(|row| row.cursor == Seq(12)).await;
    let came = sink.came.lock().unwrap().clone();
    let (firsts, updates): (Vec<_>, Vec<_>) = came.into_iter().partition(|(_, reference, _)| reference.is_empty());
    assert_eq!(firsts, [(1, String::new(), 1), (7, String::new(), 1)]);
    // The window of the last one was open when the others were sent.
    assert!(updates.len() <= 2 && updates.last() == Some(&(12, "m1".to_owned(), 11)), "{updates:?}");
    // The journal knows what the message counts.
    world.stop().await;
    let kept = world.journal.reader().unwrap().messages("s").unwrap();
    assert_eq!((kept[0].first, kept[0].last, kept[0].entries), (Seq(1), Seq(12), 11));
}

/// Of a message whose first entry is gone an update shows the last one, and no other message waits for it.
#[tokio::test]
async fn an_update_without_the_first_entry_shows_the_last_one() {
    let mut world = World::new().await;
    let sink = Naming::default();
    let notify = || notify(&["all: type == 'MODIFIED'"]).map(|notify| Notify { updates: true, ..notify });
    let mut expected = Vec::new();
    for round in 1..=4 {
        if round == 4 {
            world.truncate().await;
        }
        world.start(Plan { notify: notify(), ..world.plan() }, Naming { shows_last: round == 4, ..sink.clone() });
        world.touch().await;
        world.until(|row| row.cursor == Seq(round)).await;
        if round > 1 {
            let reference = if round == 2 { "" } else { "m2" };
            expected.push((round, reference.to_owned(), round - 1));
        }
        assert_eq!(*sink.came.lock().unwrap(), expected);
        world.stop().await;
    }
}

/// A first entry that is damaged is none: it halts no sink, as one that has to be sent does.
#[tokio::test]
async fn an_update_is_made_without_a_first_entry_that_is_damaged() {
    let mut world = World::new().await;
    for _ in 0..3 {
        world.touch().await;
    }
    let closed = world.close();
    let dir = closed.path();
    let notify = notify(&["all: true"]).unwrap();
    let first_of = |seq: u64| {
        let (begins, relabelings) = (Seq(1), Vec::new());
        let reader = journal::Reader::open(&dir.join("state")).unwrap();
        let mut feed = Feed { reader, begins, relabelings, filter: None, shape: Shape::WHOLE, incidents: None };
        let mut incident = crate::sink::notify::Incident { first: seq, ..Default::default() };
        feed.first_of(&mut incident, &notify).map(|shown| shown.map(|(item, _)| item.seq.0))
    };
    assert_eq!(first_of(2).unwrap(), Some(2));
    let journal = rusqlite::Connection::open(dir.join("state/journal.db")).unwrap();
    journal.execute("UPDATE entry SET line = x'00' WHERE seq = 2", []).unwrap();
    assert_eq!((first_of(2).unwrap(), first_of(3).unwrap()), (None, Some(3)));
}
