//! Visits of readers whose rights are a set, which may change.

use super::*;

/// Rights that are known once they are decided, for a time.
#[derive(Debug)]
pub(crate) struct Listings {
    allowed: Mutex<BTreeSet<Listing>>,
    known: Mutex<BTreeMap<Listing, Decision>>,
    age: Duration,
}

impl Listings {
    pub(crate) fn new(allowed: &[Listing], age: Duration) -> Arc<Self> {
        Arc::new(Self { allowed: Mutex::new(allowed.iter().cloned().collect()), known: Mutex::default(), age })
    }

    /// Everything that was decided.
    pub(crate) fn decided(&self) -> BTreeSet<Listing> {
        self.known.lock().unwrap().keys().cloned().collect()
    }

    fn revoke(&self) {
        self.allowed.lock().unwrap().clear();
    }
}

impl Rights for Listings {
    fn recall(&self, listing: &Listing) -> Option<Decision> {
        self.known.lock().unwrap().get(listing).copied().filter(|decision| Instant::now() < decision.until)
    }

    fn decide(&self, listing: &Listing) -> Result<Decision, Refusal> {
        let is_allowed = self.allowed.lock().unwrap().contains(listing);
        let decision = Decision { is_allowed, until: Instant::now() + self.age };
        self.known.lock().unwrap().insert(listing.clone(), decision);
        Ok(decision)
    }

    fn may_get(&self, _: &str) -> Result<Decision, Refusal> {
        Err(Refusal::new(Refused::Forbidden, "nobody gets a path"))
    }
}

fn pods(namespace: &str) -> Listing {
    Listing::new("", "pods", namespace)
}

/// A reading decides nothing by itself; what it met is decided afterwards, of all namespaces first.
#[test]
fn what_is_met_undecided_is_decided_between_readings() {
    let rights = Listings::new(&[pods("shop")], ANSWER_AGE_MAX);
    let visit = Visit::new(Arc::<Listings>::clone(&rights));
    assert_eq!((visit.sees(pods("shop")), visit.is_undecided(), visit.check()), (None, true, Ok(())));
    assert!(rights.decided().is_empty(), "nobody waits within a reading");
    visit.settle().unwrap();
    assert_eq!((rights.decided().len(), visit.is_undecided()), (2, false), "of all namespaces, and of that one");
    assert!(visit.sees(pods("shop")).is_some_and(|decision| decision.is_allowed));
    assert_eq!(visit.sees(pods("pay")), None);
    visit.settle().unwrap();
    assert!(visit.sees(pods("pay")).is_some_and(|decision| !decision.is_allowed));
    // A reading that meets many ends before it has met all.
    let met = (0..1000).take_while(|number| {
        visit.sees(pods(&format!("n{number}")));
        visit.check().is_ok()
    });
    assert!(met.count() < MISSED_MAX);
}

/// An answer asks no more about a right than once in the time for which it holds, and ends with it.
#[test]
fn a_right_that_is_taken_away_ends_the_answer_that_stands_on_it() {
    let rights = Listings::new(&[pods("shop")], Duration::ZERO);
    let visit = Visit::new(Arc::<Listings>::clone(&rights));
    assert!(!visit.has_run_out(), "nothing was read");
    for (is_allowed, namespace) in [(true, "shop"), (false, "pay")] {
        let decision = Decision { is_allowed, until: Instant::now() + ANSWER_AGE_MAX };
        rights.known.lock().unwrap().insert(pods(namespace), decision);
        rights.known.lock().unwrap().insert(pods(""), Decision { is_allowed: false, ..decision });
        visit.sees(pods(namespace)).unwrap();
    }
    assert!(!visit.has_run_out(), "it holds for a while");
    // What was not allowed and is not sent needs no other look.
    visit.noted().uses(pods("shop"), Decision { is_allowed: true, until: Instant::now() });
    assert!(visit.has_run_out());
    visit.settle().unwrap();
    rights.revoke();
    assert_eq!(visit.renew().unwrap_err().is, Refused::Forbidden);
    assert_eq!(visit.settle().unwrap_err().is, Refused::Forbidden);
}

/// Who sends what was read renews rights while the reading goes on: what that met undecided stays undecided.
#[test]
fn a_right_is_renewed_beside_a_reading() {
    let rights = Listings::new(&[pods("shop")], Duration::ZERO);
    let visit = Visit::new(Arc::<Listings>::clone(&rights));
    visit.noted().uses(pods("shop"), Decision { is_allowed: true, until: Instant::now() });
    assert_eq!(visit.sees(pods("pay")), None);
    visit.renew().unwrap();
    assert!(visit.is_undecided(), "what was hidden is not taken for read");
    assert_eq!(rights.decided(), BTreeSet::from([pods("shop")]), "and nothing of it is decided");
}

/// An API server whose decisions never hold keeps nobody busy for ever.
#[test]
fn a_question_is_asked_again_only_so_often() {
    let visit = Visit::new(Listings::new(&[], Duration::ZERO));
    let rounds = (0..1000).take_while(|_| visit.sees(pods("shop")).is_none() && visit.settle().is_ok()).count();
    assert_eq!(rounds, ROUNDS_MAX as usize);
    visit.went_on();
    assert!(visit.settle().is_ok(), "one that goes on for long is looked at as often as it takes");
}
