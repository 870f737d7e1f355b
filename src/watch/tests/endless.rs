//! Lists that never end, as a table of their kinds. Beside each stands a source whose server is whole: what happens there is
//! recorded at once, whatever the other list does.

use super::outages::{Running, Stage};
use super::*;
use crate::sim::faults::{Endless, EndlessPage, EndlessToken, Lie};

const SECOND: Duration = Duration::from_secs(1);

/// A kind of list that never ends.
struct Kind {
    name: &'static str,
    lie: Endless,
    /// The journal's size where it is what ends the list.
    max_size: Option<u64>,
    /// What the reason says.
    reason: &'static str,
}

const fn kind(name: &'static str, page: EndlessPage, token: EndlessToken, left: Option<&'static str>) -> Kind {
    Kind { name, lie: Endless { page, token, left }, max_size: None, reason: "does not end" }
}

/// kubectl asks for page after page, prints them and never ends, for each of these.
const KINDS: [Kind; 11] = [
    kind("a token that repeats", EndlessPage::Same, EndlessToken::Same("again"), None),
    kind("a token of blanks", EndlessPage::Same, EndlessToken::Same("  "), None),
    kind("tokens in a ring", EndlessPage::New(3, 100), EndlessToken::Ring(3), None),
    kind("new tokens, the same page", EndlessPage::Same, EndlessToken::New, None),
    kind("new tokens, the same page, a count that stays", EndlessPage::Same, EndlessToken::New, Some("2")),
    kind("pages without objects", EndlessPage::Empty, EndlessToken::New, None),
    kind("pages without objects, a count", EndlessPage::Empty, EndlessToken::New, Some("7")),
    kind("more objects than were counted", EndlessPage::New(50, 100), EndlessToken::New, Some("100")),
    Kind {
        max_size: Some(4 << 20),
        reason: "max_size",
        ..kind("new objects without an end", EndlessPage::New(100, 2000), EndlessToken::New, None)
    },
    Kind {
        max_size: Some(4 << 20),
        reason: "max_size",
        ..kind("new objects, a negative count", EndlessPage::New(100, 2000), EndlessToken::New, Some("-3"))
    },
    Kind {
        max_size: Some(4 << 20),
        reason: "max_size",
        ..kind("new objects, a count that is none", EndlessPage::New(100, 2000), EndlessToken::New, Some("{\"a\":1}"))
    },
];

impl Running {
    fn source(&self, name: &str) -> Arc<SourceStats> {
        let overview = self.handle.overview();
        Arc::clone(&overview.sources.iter().find(|source| source.spec.name() == name).unwrap().stats)
    }

    /// Waits until this is so, and for an hour of the paused clock at most.
    async fn until(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        for _ in 0..36_000 {
            if is_so() {
                return;
            }
            tokio::time::sleep(SECOND / 10).await;
        }
        panic!("waited in vain for {what}: {:#?}", self.handle.overview());
    }

    /// The healthy source records what happens within a second.
    async fn records_a_secret(&self, stage: &Stage, name: &str) {
        stage.sim.create("secrets", objects::secret("n0", name, &[])).unwrap();
        let mut head = self.journal.head();
        let recorded = async {
            while !self.log(stage).iter().any(|line| line.contains(&format!("{name}@"))) {
                head.changed().await.unwrap();
            }
        };
        tokio::time::timeout(SECOND, recorded).await.unwrap_or_else(|_| panic!("{name} waits: {:#?}", self.log(stage)));
        assert!(self.journal.paused().borrow().is_none());
        assert_eq!(self.journal.reader().unwrap().retained().unwrap().oldest, 1, "nothing is forgotten");
    }
}

fn both() -> Vec<watch::Settings> {
    vec![watch(&["configmaps", "secrets"])]
}

/// Issue 30, point 3.
#[tokio::test(start_paused = true)]
async fn a_list_that_never_ends_stops_nothing_else() {
    for known in [false, true] {
        for (number, Kind { name, lie, max_size, reason }) in KINDS.into_iter().enumerate() {
            // What a lost position adds is the same for every kind: one of each reason shows it.
            if known && ![0, 7, 8].contains(&number) {
                continue;
            }
            let mut stage = Stage::new(1);
            stage.max_size = max_size;
            // A position that is lost needs a list.
            stage.timings.recover = None;
            for number in 0..5 {
                stage.map("n0", &format!("m{number}"));
            }
            let endless = || stage.sim.fault(Fault::new(On::list("configmaps"), Act::Lie(Lie::Endless(lie))).always());
            if !known {
                endless();
            }
            let running = stage.start(both()).await;
            if known {
                endless();
                stage.sim.compact_all();
                stage.sim.signal("configmaps", &Signal::Error(Refusal::expired(1, 2)));
            }
            let maps = running.source("configmaps");
            let degraded = |state: &SourceState| matches!(state, SourceState::Degraded(text) if text.contains(reason));
            running.until(name, || degraded(&maps.state())).await;
            running.records_a_secret(&stage, "first").await;
            stage.sim.clear_requests();
            let before = maps.lists_given_up.load(Ordering::Relaxed);
            for step in 0..24 {
                running.records_a_secret(&stage, &format!("s{step}")).await;
                assert!(degraded(&maps.state()), "{name}: {:?}", maps.state());
                tokio::time::sleep(5 * SECOND).await;
            }
            let again = maps.lists_given_up.load(Ordering::Relaxed) - before;
            assert!((1..30).contains(&again), "{name}: {again} lists in two minutes");
            assert!(stage.sim.busiest_second("configmaps", None) <= 60, "{name}: a hot loop");

            stage.sim.heal();
            running.until(name, || maps.state() == SourceState::Watching).await;
            stage.map("n0", "last");
            running.until_recorded(&stage, "last@").await;
            let log = running.log(&stage);
            let maps: Vec<&String> = log.iter().filter(|line| line.contains(" m") || line.contains("GAP")).collect();
            assert_eq!(maps.len(), if known { 6 } else { 5 }, "{name}: {maps:#?}");
            assert_eq!(log.len(), maps.len() + 26, "{name}: {log:#?}");
        }
    }
}

/// A server that cannot page is asked for the whole list at once.
#[tokio::test(start_paused = true)]
async fn where_only_pages_do_not_end_the_list_comes_in_one_piece() {
    let stage = Stage::new(1);
    for number in 0..5 {
        stage.map("n0", &format!("m{number}"));
    }
    let lie = Lie::Endless(Endless { page: EndlessPage::Same, token: EndlessToken::New, left: None });
    stage.sim.fault(Fault::new(On::list("configmaps").query("limit=500"), Act::Lie(lie)).always());
    let running = stage.start(both()).await;
    let maps = running.source("configmaps");
    running.until("the list in one piece", || maps.state() == SourceState::Watching).await;
    assert_eq!((running.log(&stage).len(), maps.lists_given_up.load(Ordering::Relaxed)), (5, 2));
}

/// The list of an audit and those of a recovery end as well, and the watch goes on.
#[tokio::test(start_paused = true)]
async fn an_audit_whose_list_never_ends_is_undecided() {
    for Kind { name, mut lie, .. } in KINDS {
        if lie.page == EndlessPage::New(100, 2000) {
            lie.page = EndlessPage::New(500, 0);
        }
        let mut stage = Stage::new(1);
        stage.timings.audit = Some(60 * SECOND);
        let running = stage.start(vec![watch(&["configmaps"])]).await;
        stage.sim.fault(Fault::new(On::list("configmaps").query("limit=500"), Act::Lie(Lie::Endless(lie))).always());
        let maps = running.source("configmaps");
        running.until(name, || maps.audits_undecided.load(Ordering::Relaxed) >= 2).await;
        stage.map("n0", "last");
        running.until_recorded(&stage, "last@").await;
        assert_eq!(running.log(&stage).len(), 1, "{name}");
        assert_eq!(maps.state(), SourceState::Watching, "{name}");
    }
}
