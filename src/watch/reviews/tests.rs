//! Reviews by the simulated API server: how long they hold, how many there are, and what refuses.

use super::*;
use crate::sim::faults::{Act, Answer, At, Fault, How, On, Refusal as Answered, Then};
use crate::sim::{Sim, objects};
use crate::watch::cluster::{self, Limits};

const OF_TOKENS: &str = "tokenreviews.authentication.k8s.io";
const OF_ACCESS: &str = "subjectaccessreviews.authorization.k8s.io";

/// A cluster with one user, and its reviews.
async fn reviews(age: Duration) -> (Sim, Reviews, tempfile::TempDir) {
    let (sim, dir) = (Sim::start().await.unwrap(), tempfile::tempdir().unwrap());
    let kubeconfig = dir.path().join("kubeconfig");
    sim.write_kubeconfig(&kubeconfig).unwrap();
    sim.set_user("token-of-ann", "ann");
    let settings = cluster::Settings { kubeconfig: Some(kubeconfig), ..cluster::Settings::default() };
    let api = Api::open(&settings, Limits::default()).await.unwrap();
    (sim, Reviews::with_age(api, age), dir)
}

/// Asks on a thread that may block, as readers do.
async fn may_list(rights: &Arc<dyn Rights>, plural: &'static str, namespace: &str) -> Result<bool, Refusal> {
    let (rights, namespace) = (Arc::clone(rights), namespace.to_owned());
    let asked = tokio::task::spawn_blocking(move || rights.decide(&Listing::new("", plural, &namespace)));
    asked.await.unwrap().map(|decision| decision.is_allowed)
}

/// Looks until something is so, for a minute.
async fn until(mut is_so: impl AsyncFnMut() -> bool) {
    let looks = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(60), looks).await.expect("it is not so");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_right_is_of_its_resource_and_namespace_and_ends_with_its_role_and_its_token() {
    let (sim, reviews, _dir) = reviews(Duration::from_millis(200)).await;
    sim.grant_user("ann", "pods", Some("shop"));
    let Known { name, rights } = reviews.admit("token-of-ann", None).await.unwrap();
    assert_eq!((name.as_str(), format!("{rights:?} {reviews:?}").contains("token")), ("ann", false));
    assert_eq!(rights.recall(&Listing::new("", "pods", "shop")), None);
    for (plural, namespace, allowed) in
        [("pods", "shop", true), ("pods", "pay", false), ("pods", "", false), ("secrets", "shop", false)]
    {
        assert_eq!(may_list(&rights, plural, namespace).await, Ok(allowed), "{plural} {namespace}");
    }
    // A role that is taken away, and one that is given.
    sim.revoke_user("ann");
    sim.grant_user("ann", "pods", None);
    until(async || may_list(&rights, "pods", "pay").await == Ok(true)).await;
    sim.revoke_user("ann");
    until(async || may_list(&rights, "pods", "pay").await == Ok(false)).await;
    sim.forget_user("token-of-ann");
    until(async || may_list(&rights, "pods", "pay").await.is_err_and(|why| why.is == Refused::Unknown)).await;
    // One who takes over the name of the token gets no right of the one before.
    sim.set_user("token-of-ann", "bob");
    until(async || reviews.admit("token-of-ann", None).await.is_ok_and(|known| known.name == "bob")).await;
}

/// Cached decisions cost nothing, and others no more than twenty a second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_most_twenty_reviews_are_begun_in_a_second() {
    let (sim, reviews, _dir) = reviews(Duration::from_secs(40)).await;
    let rights = reviews.admit("token-of-ann", None).await.unwrap().rights;
    for _ in 0..3 {
        for number in 0..45 {
            assert_eq!(may_list(&rights, "pods", &format!("n{number}")).await, Ok(false));
        }
    }
    let of_reviews = |seen: &crate::sim::faults::Seen| {
        seen.resource.as_deref().is_some_and(|resource| [OF_TOKENS, OF_ACCESS].contains(&resource))
    };
    assert_eq!(
        sim.requests().iter().filter(|seen| of_reviews(seen)).count(),
        1 + 1 + 45,
        "token, everything, and each once"
    );
    let most = sim.most_within(Duration::from_secs(1), of_reviews);
    assert!((10..=20).contains(&most), "{most} in a second");
}

/// Who may list everything is reviewed once, whatever is read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_list_everything_is_reviewed_once() {
    let (sim, reviews, _dir) = reviews(Duration::from_secs(40)).await;
    sim.grant_user("ann", "*", None);
    let rights = reviews.admit("token-of-ann", None).await.unwrap().rights;
    for number in 0..100 {
        assert_eq!(may_list(&rights, "pods", &format!("n{number}")).await, Ok(true));
    }
    assert_eq!(sim.count(&On::write(OF_ACCESS)), 1);
    assert!(rights.recall(&Listing::new("", "secrets", "shop")).unwrap().is_allowed);
}

/// A user who asks about much, whatever its tokens are, has no more of the pace than one who asks about little.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_asks_about_much_keeps_nobody_waiting() {
    let (sim, reviews, _dir) = reviews(Duration::from_secs(40)).await;
    let mut greedy = Vec::new();
    for number in 0..4 {
        let token = format!("token-{number}-of-bob");
        sim.set_user(&token, "bob");
        greedy.push(reviews.admit(&token, None).await.unwrap().rights);
    }
    let ann = reviews.admit("token-of-ann", None).await.unwrap().rights;
    // A review takes so long that what the threads of the two take beside it does not matter.
    sim.fault(Fault::new(On::write(OF_ACCESS), Act::Delay(Duration::from_millis(200))).always());
    let mut asking = tokio::task::JoinSet::new();
    for (of, rights) in greedy.into_iter().enumerate() {
        asking.spawn(async move {
            for number in 0..40 {
                may_list(&rights, "pods", &format!("n{of}-{number}")).await.ok();
            }
        });
    }
    let asked = || sim.count(&On::write(OF_ACCESS));
    until(async || asked() >= 4).await;
    let before = asked();
    for number in 0..5 {
        assert_eq!(may_list(&ann, "pods", &format!("n{number}")).await, Ok(false));
    }
    let meanwhile = asked() - before;
    asking.abort_all();
    // Seven of hers and as many of his. Where each token of his has a turn of its own, there are 26.
    assert!(meanwhile <= 22, "{meanwhile} reviews until ann has hers");
}

/// That the API server is away is found out by one, and the others need not wait for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_server_that_is_away_is_asked_once_in_a_second() {
    let (sim, reviews, _dir) = reviews(Duration::from_secs(40)).await;
    let rights = reviews.admit("token-of-ann", None).await.unwrap().rights;
    sim.fault(Fault::new(On::write(OF_ACCESS), Act::tamper(At::Byte(0), How::Nothing, Then::Reset)).always());
    let begun = Instant::now();
    let mut failed = 0;
    while begun.elapsed() < AWAY_AGE_MAX / 2 {
        assert_eq!(may_list(&rights, "pods", "shop").await.unwrap_err().is, Refused::Away);
        failed += 1;
    }
    assert!(failed > 3 && sim.count(&On::write(OF_ACCESS)) <= 2, "{} of {failed}", sim.count(&On::write(OF_ACCESS)));
}

/// Tokens that nobody knows cost a review each at first, and then nothing; many of them take nothing from who is known.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_tokens_are_asked_about_once_and_few_in_a_second() {
    let (sim, reviews, _dir) = reviews(Duration::from_secs(40)).await;
    reviews.admit("token-of-ann", None).await.unwrap();
    for _ in 0..5 {
        assert_eq!(reviews.admit("guessed", None).await.unwrap_err().is, Refused::Unknown);
    }
    assert_eq!(sim.count(&On::write(OF_TOKENS)), 2);
    let mut away = 0;
    for number in 0..50 {
        let refusal = reviews.admit(&format!("guessed-{number}"), None).await.unwrap_err();
        away += usize::from(refusal.is == Refused::Away);
    }
    assert!(away >= 30, "{away}");
    sim.set_user("token-of-bob", "bob");
    let elsewhere = Some([192, 0, 2, 1].into());
    assert!(reviews.admit("token-of-bob", elsewhere).await.is_ok(), "who shows many keeps nobody else out");
    assert!(reviews.admit("token-of-ann", None).await.is_ok());
    assert_eq!(reviews.admit(&"x".repeat(LONGEST_TOKEN + 1), None).await.unwrap_err().is, Refused::Unknown);
}

/// Whatever the API server says but yes is no, in a sentence that says what to do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_decided_is_refused() {
    let (sim, reviews, _dir) = reviews(Duration::from_secs(40)).await;
    sim.create("configmaps", objects::config_map("default", "a", "b")).unwrap();
    let forbidden = Answered::new(403, "Forbidden", "tokenreviews.authentication.k8s.io is forbidden");
    sim.fault(Fault::new(On::write(OF_TOKENS), Act::refuse(&forbidden)).times(1));
    let refusal = reviews.admit("token-of-ann", None).await.unwrap_err();
    assert!(refusal.is == Refused::Away && refusal.text.contains("`decklog rbac` prints"), "{refusal}");
    sim.fault(Fault::new(On::write(OF_TOKENS), Act::html(502)).times(1));
    let refusal = reviews.admit("token-of-ann", None).await.unwrap_err();
    assert!(refusal.is == Refused::Away && refusal.text.contains("try again"), "{refusal}");
    until(async || reviews.admit("token-of-ann", None).await.is_ok()).await;
    let rights = reviews.admit("token-of-ann", None).await.unwrap().rights;
    sim.set_evaluation_error(Some("clusterrole \"gone\" not found"));
    let refusal = may_list(&rights, "pods", "shop").await.unwrap_err();
    assert!(refusal.is == Refused::Away && refusal.text.contains("could not evaluate"), "{refusal}");
    for told in ["gone", "pods", "shop"] {
        assert!(!refusal.text.contains(told), "it names nothing that is hidden: {refusal}");
    }
    sim.set_evaluation_error(None);
    sim.fault(Fault::new(On::write(OF_ACCESS), Act::html(500)).times(1));
    assert_eq!(may_list(&rights, "pods", "shop").await.unwrap_err().is, Refused::Away);
    assert_eq!(may_list(&rights, "pods", "shop").await, Ok(false), "what failed is not kept");
    // An authorizer that denies is heard before one that allows.
    let body = json!({"status": {"allowed": true, "denied": true}}).to_string().into();
    let both = Answer { status: 201, content_type: "application/json", retry_after: None, body };
    sim.fault(Fault::new(On::write(OF_ACCESS), Act::Answer(both)).times(1));
    assert_eq!(may_list(&rights, "pods", "pay").await, Ok(false));
}

/// What was decided of a reader holds no longer than who it is, however late it was decided.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_decision_holds_no_longer_than_its_token() {
    let age = Duration::from_secs(10);
    let (sim, reviews, _dir) = reviews(age).await;
    sim.grant_user("ann", "pods", None);
    let rights = reviews.admit("token-of-ann", None).await.unwrap().rights;
    let known = Instant::now();
    until(async || known.elapsed() > Duration::from_millis(50)).await;
    assert_eq!(may_list(&rights, "pods", "").await, Ok(true));
    let decision = rights.recall(&Listing::new("", "pods", "")).unwrap();
    assert!(decision.until <= known + age, "{:?}", decision.until - known);
}

/// The book says that a right which is taken away is gone from every answer within a minute: a stream looks each fifteen seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_holds_no_longer_than_the_book_says() {
    let (_sim, reviews, _dir) = reviews(Duration::ZERO).await;
    let of_daemon = Reviews::new(reviews.0.api.clone()).0.age;
    assert!(of_daemon + Duration::from_secs(15) < Duration::from_secs(60), "{of_daemon:?}");
}
