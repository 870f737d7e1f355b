//! What discovery gets wrong stops nothing else, and what it will say is asked for as soon as it may have changed.

use serde_json::{Value, json};

use super::outages::Stage;
use super::*;

const WIDGETS: &str = "widgets.example.com";

fn crd(plural: &str) -> Value {
    let kind = format!("{}{}", plural[..1].to_uppercase(), &plural[1..plural.len() - 1]);
    objects::crd(&format!("{plural}.example.com"), &kind, true, &["v1"])
}

fn widget(name: &str) -> Value {
    json!({"metadata": {"namespace": "shop", "name": name}, "spec": {"n": 1}})
}

fn text(status: u16, body: &'static str) -> Act {
    Act::Answer(Answer { status, content_type: "application/json", retry_after: None, body: body.into() })
}

/// What another server behind the API server says of itself, in both forms.
fn odd_groups() -> Vec<(&'static str, [Value; 2])> {
    let named = |versions: Value| json!({"metadata": {"name": "odd.io"}, "versions": versions});
    let legacy = |versions: Value| json!({"name": "odd.io", "versions": versions});
    let subresources = json!([{"version": "v1beta1", "freshness": "Current", "resources": [
        {"resource": "pods", "scope": "Namespaced", "singularResource": "", "verbs": null}]}]);
    let served = legacy(json!([{"groupVersion": "odd.io/v1", "version": "v1"}]));
    vec![
        ("subresources alone", [named(subresources), legacy(json!([]))]),
        ("nothing", [Value::Null, Value::Null]),
        ("no name", [json!({"metadata": null, "versions": null}), json!({"name": null, "versions": null})]),
        ("versions of another type", [named(json!("v1")), legacy(json!("v1"))]),
        ("a version of another type", [named(json!([null])), legacy(json!([7]))]),
        (
            "a backend that is away",
            [named(json!([{"version": "v1", "freshness": "Stale", "resources": null}])), served],
        ),
    ]
}

#[tokio::test]
async fn an_odd_group_stops_no_other() {
    for (name, forms) in odd_groups() {
        for legacy in [false, true] {
            let place = Place::with(|settings| {
                settings.legacy_discovery = legacy;
                settings.more_groups = vec![forms.clone()];
            })
            .await;
            place.sim.define(crd("widgets")).unwrap();
            let daemon = place.ready(vec![watch(&["*"])]).await;
            let watched = daemon.handle.overview().sources.len();
            assert!(watched > 20, "{name}, {legacy}: {watched}");
            place.sim.create(WIDGETS, widget("a")).unwrap();
            daemon.until(&place, |log| log.iter().any(|line| line.contains(" a@"))).await;
            place.sim.define(crd("gadgets")).unwrap();
            place.sim.create("gadgets.example.com", widget("b")).unwrap();
            daemon.until(&place, |log| log.iter().any(|line| line.contains(" b@"))).await;
            // What goes for certain is gone.
            place.sim.undefine("gadgets.example.com").unwrap();
            daemon
                .until(&place, |log| log.iter().any(|line| line.starts_with("DELETED") && line.contains(" b@")))
                .await;
            daemon.stop().await;
        }
    }
}

/// A failure of either root, or of both.
fn failing(roots: &[&str], act: &Act) -> Vec<Fault> {
    roots.iter().map(|root| Fault::new(On::path(root), act.clone()).always()).collect()
}

#[tokio::test]
async fn what_the_journal_knows_goes_on_while_discovery_fails() {
    for (name, act) in [
        ("hangs", Act::Hang),
        ("500", Act::refuse(&Refusal::new(500, "InternalError", "no"))),
        ("403", Act::refuse(&Refusal::new(403, "Forbidden", "no"))),
        ("406", Act::refuse(&Refusal::new(406, "NotAcceptable", "no"))),
        ("304", text(304, "")),
        ("a page of a proxy", Act::html(200)),
        ("cut", Act::end_after_bytes(20)),
        ("a Status", text(200, r#"{"kind":"Status","status":"Failure"}"#)),
    ] {
        for roots in [&["/apis"][..], &["/api", "/apis"]] {
            let place = Place::new().await;
            place.sim.define(crd("widgets")).unwrap();
            place.sim.create(WIDGETS, widget("a")).unwrap();
            place.map("m", "1");
            let watches = || vec![watch(&["cm", "*.example.com"])];
            let daemon = place.ready(watches()).await;
            daemon.until(&place, |log| log.len() == 2).await;
            daemon.stop().await;
            for fault in failing(roots, &act) {
                place.sim.fault(fault);
            }
            place.sim.create(WIDGETS, widget("b")).unwrap();
            place.change("m", "2");
            place.sim.clear_requests();
            let daemon = place.start(watches()).await;
            let log = daemon.until(&place, |log| log.len() == 4).await;
            assert!(!log.iter().any(|line| line.starts_with("GAP") || line.starts_with("DELETED")), "{name}: {log:?}");
            let probe = |query: &str| query.contains("limit=1&");
            let lists = place.sim.requests();
            let lists = lists.iter().filter(|seen| seen.is_list(WIDGETS) && !probe(&seen.query)).count();
            assert_eq!(lists, 0, "{name}: it resumes");
            daemon.until_holds(&format!("{name}: the trouble is known"), || !daemon.handle.troubles().is_empty()).await;
            // And everything else when discovery is well.
            place.sim.heal();
            place.sim.define(crd("gadgets")).unwrap();
            place.sim.create("gadgets.example.com", widget("c")).unwrap();
            daemon.until(&place, |log| log.iter().any(|line| line.contains(" c@"))).await;
            daemon.until_holds("nothing is the matter", || daemon.handle.troubles().is_empty()).await;
            assert!(!daemon.log(&place).iter().any(|line| line.starts_with("GAP")), "{name}");
            daemon.stop().await;
        }
    }
}

/// The core of a cluster is no more than a group where it cannot be read.
#[tokio::test]
async fn one_version_of_an_old_server_that_cannot_be_read_is_uncertain() {
    for (name, act) in [
        ("503", Act::refuse(&Refusal::new(503, "ServiceUnavailable", "no"))),
        ("403", Act::refuse(&Refusal::new(403, "Forbidden", "no"))),
        ("404", Act::refuse(&Refusal::not_served())),
        ("hangs", Act::Hang),
        ("a page of a proxy", Act::html(200)),
        (
            "null",
            text(200, r#"{"kind":"APIResourceList","resources":[null,{"name":"odd","verbs":null}],"groupVersion":7}"#),
        ),
    ] {
        for (path, about, other) in [("/apis/apps/v1", "apps", "pods"), ("/api/v1", "/api/v1", "deployments.apps")] {
            let place = Place::with(|settings| settings.legacy_discovery = true).await;
            place.sim.fault(Fault::new(On::path(path), act.clone()).always());
            let daemon = place.start(vec![watch(&["*"])]).await;
            daemon.until_state(other, |state| *state == SourceState::Watching).await;
            let expected = if name == "null" { Vec::new() } else { vec![about.to_owned()] };
            let troubles = || daemon.handle.troubles().into_iter().map(|trouble| trouble.about).collect::<Vec<_>>();
            daemon.until_holds(&format!("{name} at {path} is known"), || troubles() == expected).await;
            let missing = if other == "pods" { "deployments.apps" } else { "pods" };
            let overview = daemon.handle.overview();
            assert!(!overview.sources.iter().any(|source| source.spec.name() == missing), "{name} at {path}");
            daemon.stop().await;
        }
    }
}

/// A name means what it meant, also while the group that it means is not known and another one has the name too.
#[tokio::test]
async fn a_name_of_two_groups_does_not_change_its_meaning_in_a_moment_of_doubt() {
    for restart in [false, true] {
        let place = Place::new().await;
        place.sim.create("events", objects::event("shop", "first", "web-1", "Started")).unwrap();
        let daemon = place.ready(vec![watch(&["events"])]).await;
        daemon.until(&place, |log| log.len() == 1).await;
        let fault = Fault::new(On::path("/api"), text(200, "[]")).always();
        let daemon = if restart {
            daemon.stop().await;
            place.sim.fault(fault);
            place.start(vec![watch(&["events"])]).await
        } else {
            place.sim.fault(fault);
            daemon
        };
        daemon.until_holds("the core group is uncertain", || !daemon.handle.troubles().is_empty()).await;
        place.sim.create("events", objects::event("shop", "second", "web-1", "Started")).unwrap();
        let log = daemon.until(&place, |log| log.len() == 2).await;
        assert!(log[1].starts_with("ADDED watched second@"), "{log:?}");
        let names: Vec<String> = daemon.handle.overview().sources.iter().map(|source| source.spec.name()).collect();
        assert_eq!(names, ["events"]);
        daemon.stop().await;
    }
}

#[tokio::test]
async fn waiting_never_says_what_is_not_so() {
    let odd = [json!({"metadata": {"name": "odd.io"}, "versions": "v1"}), json!({"name": "odd.io", "versions": "v1"})];
    let quiet = [
        json!({"metadata": {"name": "quiet.io"}, "versions": [{"version": "v1", "resources": [
            {"resource": "meters", "singularResource": "meter", "verbs": ["get", "list"], "responseKind": {"kind": "Meter"}}]}]}),
        json!({"name": "quiet.io", "versions": [{"version": "v1"}]}),
    ];
    let meters = r#"{"kind":"APIResourceList","resources":[{"name":"meters","singularName":"meter","kind":"Meter","verbs":["get","list"]}]}"#;
    for legacy in [false, true] {
        let place = Place::with(|settings| {
            settings.legacy_discovery = legacy;
            settings.more_groups = vec![odd.clone(), quiet.clone()];
        })
        .await;
        place.sim.fault(Fault::new(On::path("/apis/quiet.io/v1"), text(200, meters)).always());
        let names =
            ["things.odd.io", "*.odd.io", "thing", "meter", "*.quiet.io", "zzzzzzzz.apps", "widgets.example.com"];
        let daemon = place.start(vec![watch(&names)]).await;
        daemon.until_holds("it waits", || !daemon.handle.overview().waiting.is_empty()).await;
        let waiting = daemon.handle.overview().waiting;
        let said: Vec<String> = waiting.iter().map(ToString::to_string).collect();
        let doubt = "the API group odd.io cannot be read (its versions cannot be read)";
        let unknown = |name: &str| format!("it is not known whether the API server serves {name}: {doubt}");
        let unlistable = |name: &str| format!("the API server serves {name}, which cannot be listed and watched");
        let unserved = |name: &str| format!("the API server serves nothing called {name}");
        assert_eq!(
            said,
            [
                unknown(names[0]),
                unknown(names[1]),
                unknown(names[2]),
                unlistable(names[3]),
                unlistable(names[4]),
                unserved(names[5]),
                unserved(names[6]),
            ],
            "{legacy}"
        );
        daemon.stop().await;
    }
}

/// Discovery is asked once an hour, and a new kind is there at once.
#[tokio::test]
async fn a_definition_that_comes_or_goes_wakes_discovery() {
    for legacy in [false, true] {
        let mut place = Place::with(|settings| settings.legacy_discovery = legacy).await;
        place.timings.discovery = Duration::from_secs(3600);
        place.timings.legacy_discovery = Duration::from_secs(3600);
        let daemon = place.ready(vec![watch(&["*.example.com"])]).await;
        place.sim.wait_for_watches("customresourcedefinitions.apiextensions.k8s.io", 1).await.unwrap();
        for round in 0..2 {
            place.sim.define(crd("widgets")).unwrap();
            place.sim.create(WIDGETS, widget(&format!("w{round}"))).unwrap();
            daemon.until_last(&place, &format!("w{round}@")).await;
            daemon.until_state(WIDGETS, |state| *state == SourceState::Watching).await;
            place.sim.undefine(WIDGETS).unwrap();
            daemon.until(&place, |log| log.last().is_some_and(|last| last.starts_with("DELETED"))).await;
            let is_gone = || daemon.handle.overview().sources.is_empty();
            daemon.until_holds("its source has ended", is_gone).await;
        }
        daemon.stop().await;
    }
}

/// Where the rights for it are missing, discovery is asked at its pace, and nothing is asked for that would be refused.
#[tokio::test]
async fn without_rights_on_definitions_discovery_is_polled() {
    let place = Place::new().await;
    let definitions = "customresourcedefinitions.apiextensions.k8s.io";
    place.sim.deny("watch", definitions, None);
    let daemon = place.ready(vec![watch(&["*.example.com"])]).await;
    place.sim.define(crd("widgets")).unwrap();
    place.sim.create(WIDGETS, widget("a")).unwrap();
    daemon.until_last(&place, "a@").await;
    assert_eq!(place.sim.count(&On::list(definitions)) + place.sim.count(&On::watch(definitions)), 0);
    daemon.stop().await;
}

/// Nothing that could come is configured.
#[tokio::test]
async fn definitions_are_watched_only_where_they_may_bring_something() {
    let mut place = Place::new().await;
    place.timings.discovery = Duration::from_secs(3600);
    let definitions = "customresourcedefinitions.apiextensions.k8s.io";
    let daemon = place.ready(maps()).await;
    daemon.handle.reload(plan(vec![watch(&["configmaps", "widgets.example.com"])])).await;
    place.sim.wait_for_watches(definitions, 1).await.unwrap();
    assert!(place.sim.requests().iter().all(|seen| !seen.is_list(definitions) || seen.status == Some(200)));
    daemon.handle.reload(plan(maps())).await;
    place.sim.wait_for_watches(definitions, 0).await.unwrap();
    daemon.stop().await;
}

/// Definitions that change all the time, and a server that ends each of their watches at once.
#[tokio::test(start_paused = true)]
async fn changing_definitions_make_no_hot_loop() {
    const SECOND: Duration = Duration::from_secs(1);
    for ends in [false, true] {
        let stage = Stage::new(1);
        stage.sim.define(crd("widgets")).unwrap();
        let running = stage.start(vec![watch(&["*.example.com"])]).await;
        let definitions = "customresourcedefinitions.apiextensions.k8s.io";
        if ends {
            let at_once = Act::end_after_events(0);
            stage.sim.fault(Fault::new(On::watch(definitions), at_once).always());
            stage.sim.signal(definitions, &Signal::End);
        }
        stage.sim.clear_requests();
        for number in 0..300 {
            let change = json!({"metadata": {"annotations": {"number": number.to_string()}}});
            stage.sim.patch("customresourcedefinitions.apiextensions.k8s.io", "", WIDGETS, &change).unwrap();
            tokio::time::sleep(SECOND / 20).await;
        }
        let discovered = stage.sim.count(&On::path("/apis"));
        assert!(discovered <= 15 + 22, "{discovered} in fifteen seconds");
        assert!(ends || discovered >= 12, "{discovered} in fifteen seconds");
        assert!(stage.sim.most_within(SECOND, |seen| seen.path == "/apis") <= 22);
        let watches = stage.sim.count(&On::watch(definitions));
        assert!(watches <= 2 * 15 + 31, "{watches} in fifteen seconds");
        stage.sim.heal();
        stage.sim.define(crd("gadgets")).unwrap();
        let mut gadget = widget("late");
        gadget["metadata"]["namespace"] = "n0".into();
        stage.sim.create("gadgets.example.com", gadget).unwrap();
        let defined = Instant::now();
        running.until_recorded(&stage, " late@").await;
        assert!(defined.elapsed() <= 3 * SECOND, "{:?} until the new kind is recorded, {ends}", defined.elapsed());
    }
}
