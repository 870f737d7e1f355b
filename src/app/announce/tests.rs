//! Events in a simulated cluster, by a clock that nobody waits for.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::{Value, json};

use super::turns::Gap;
use super::*;
use crate::app::config::Config;
use crate::core::model::Seq;
use crate::core::runtime;
use crate::query::status::{Alarm, HaView, Role};
use crate::sim::faults::On;
use crate::sim::{Settings, Sim, objects};
use crate::watch::cluster::{Events, Limits};

const EVENTS: &str = "events.events.k8s.io";
const REVIEWS: &str = "selfsubjectaccessreviews.authorization.k8s.io";

/// A cluster that is reached through nothing.
struct Stage {
    sim: Sim,
    _simulation: runtime::Simulation,
}

impl Stage {
    fn new() -> Self {
        let simulation = runtime::simulate(7, "2026-01-01T00:00:00Z".parse().unwrap());
        let sim = Sim::unconnected(Settings::default()).unwrap();
        sim.create_namespace("logs").unwrap();
        Self { sim, _simulation: simulation }
    }

    async fn api(&self) -> Api {
        let sim = self.sim.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let sim = sim.clone();
            async move {
                let (mut head, body) = request.into_parts();
                let token = format!("Bearer {}", crate::sim::TOKEN).parse().unwrap();
                head.headers.insert(http::header::AUTHORIZATION, token);
                let body = body.collect().await.map_err(std::io::Error::other)?.to_bytes();
                sim.answer(http::Request::from_parts(head, body)).await.map_err(std::io::Error::other)
            }
        });
        Api::with_client(Client::new(service, "default"), "sim", Limits::default()).await.unwrap()
    }

    async fn announcer(&self) -> Announcer {
        let pod =
            Object::Pod { namespace: "logs".to_owned(), name: "decklog-0".to_owned(), uid: "of-the-pod".to_owned() };
        Announcer::new(self.api().await, pod, Baseline { head: Seq(10), gaps: 2 })
    }

    /// Runs it for a time; `look` gets the number of the look.
    async fn runs(&self, announcer: Announcer, time: Duration, look: impl Fn(usize) -> Seen) -> usize {
        let (looks, stop) = (Arc::new(AtomicUsize::new(0)), CancellationToken::new());
        let count = || {
            let seen = look(looks.fetch_add(1, Ordering::Relaxed));
            async move { Some(seen) }
        };
        let (_live, news) = watch::channel(Live::default());
        let run = announcer.run(count, news, stop.clone());
        let end = async {
            sleep(time).await;
            stop.cancel();
        };
        tokio::join!(run, end);
        looks.load(Ordering::Relaxed)
    }

    fn events(&self) -> Vec<Value> {
        self.sim.objects(EVENTS).unwrap().iter().map(|row| row.value()).collect()
    }

    fn writes(&self) -> usize {
        self.sim.count(&On::write(EVENTS))
    }

    fn reviews(&self) -> usize {
        self.sim.count(&On::write(REVIEWS))
    }
}

fn alarm(alarm: &'static str, about: &str) -> Alarm {
    Alarm {
        alarm,
        about: about.to_owned(),
        since: None,
        what: format!("it is {alarm}"),
        remedy: "do something".to_owned(),
    }
}

fn seen(alarms: Vec<Alarm>) -> Seen {
    Seen { alarms, gap: None, leads: true }
}

fn with_gap(seq: u64, count: u64, leads: bool) -> Seen {
    let notice = alarm("gap-recorded", "pods");
    Seen { alarms: Vec::new(), gap: Some(Gap { seq: Seq(seq), count, notice }), leads }
}

fn looks(count: usize) -> Duration {
    LOOK_INTERVAL * u32::try_from(count).unwrap()
}

#[tokio::test(start_paused = true)]
async fn an_alarm_that_flaps_a_hundred_times_is_two_events_and_one_request_a_minute() {
    let stage = Stage::new();
    // Raised at every third look, so that it is not at each request as it was at the one before.
    let flaps =
        |look: usize| seen(if look.is_multiple_of(3) { vec![alarm("sink-halted", "audit")] } else { Vec::new() });
    let looked = stage.runs(stage.announcer().await, looks(300), flaps).await;
    let mut events = stage.events();
    events.sort_by_key(|event| event["reason"].as_str().unwrap().to_owned());
    let reasons: Vec<&Value> = events.iter().map(|event| &event["reason"]).collect();
    assert_eq!(reasons, ["SinkHalted", "SinkHaltedEnded"]);
    assert!(looked >= 300 && (20..=76).contains(&stage.writes()), "{looked} looks, {} requests", stage.writes());
    let event = &events[0];
    assert_eq!(event["regarding"]["kind"], "Pod");
    assert_eq!(event["regarding"]["uid"], "of-the-pod");
    assert_eq!(event["reportingController"], "decklog");
    assert_eq!(event["reportingInstance"], "decklog-0");
    assert_eq!((&event["type"], &event["reason"]), (&"Warning".into(), &"SinkHalted".into()));
    assert_eq!(event["note"], "audit: it is sink-halted. To do: do something");
}

#[tokio::test(start_paused = true)]
async fn what_ends_is_published_and_what_lasts_is_published_again_every_half_an_hour() {
    let stage = Stage::new();
    // Three hours of it, and then none.
    let lasts = |look: usize| seen(if look < 720 { vec![alarm("disk-low", "")] } else { Vec::new() });
    stage.runs(stage.announcer().await, looks(960), lasts).await;
    let mut events = stage.events();
    events.sort_by_key(|event| event["reason"].as_str().unwrap().to_owned());
    assert_eq!(events.iter().map(|event| &event["type"]).collect::<Vec<_>>(), ["Warning", "Normal"], "{events:?}");
    assert_eq!(events[0]["series"]["count"], 6);
    assert_eq!(
        (&events[1]["reason"], &events[1]["note"]),
        (&"DiskLowEnded".into(), &"the alarm disk-low has ended".into())
    );
    assert_eq!(stage.writes(), 7);
}

#[tokio::test(start_paused = true)]
async fn without_the_right_it_asks_for_it_once_an_hour_and_looks_at_nothing() {
    let stage = Stage::new();
    stage.sim.deny("create", EVENTS, Some("logs"));
    let hours = 10;
    let time = DENIAL_DELAY * hours + Duration::from_secs(1800);
    let looked = stage.runs(stage.announcer().await, time, |_| seen(vec![alarm("disk-low", "")])).await;
    assert_eq!((looked, stage.writes(), stage.reviews()), (0, 0, 11));
    // The right to begin a series is not that to go on with it.
    let stage = Stage::new();
    stage.sim.deny("patch", EVENTS, Some("logs"));
    let looked = stage.runs(stage.announcer().await, LOOK_INTERVAL, |_| seen(vec![alarm("disk-low", "")])).await;
    assert_eq!((looked, stage.writes()), (0, 0));
    // What is granted later is used.
    let stage = Stage::new();
    stage.sim.deny("create", EVENTS, Some("logs"));
    let granted = async {
        sleep(Duration::from_secs(600)).await;
        stage.sim.grant(EVENTS);
    };
    let run = stage.runs(stage.announcer().await, DENIAL_DELAY + LOOK_INTERVAL, |_| seen(vec![alarm("disk-low", "")]));
    tokio::join!(run, granted);
    assert_eq!(stage.events().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_right_that_is_taken_away_ends_the_publishing() {
    let stage = Stage::new();
    let taken = async {
        sleep(Duration::from_secs(600)).await;
        for verb in VERBS {
            stage.sim.deny(verb, EVENTS, Some("logs"));
        }
    };
    let flaps = |look: usize| seen(if look % 10 < 5 { vec![alarm("disk-low", "")] } else { Vec::new() });
    let run = stage.runs(stage.announcer().await, Duration::from_secs(1200), flaps);
    tokio::join!(run, taken);
    let before = stage.writes();
    assert_eq!(stage.reviews(), 3, "two before, and one after the refusal");
    assert!((2..20).contains(&before), "{before}");
}

#[tokio::test(start_paused = true)]
async fn an_event_that_is_gone_is_created_again() {
    let stage = Stage::new();
    let gone = async {
        sleep(Duration::from_secs(600)).await;
        assert_eq!(stage.events().len(), 1);
        stage.sim.delete_all(EVENTS).unwrap();
    };
    let run = stage.runs(stage.announcer().await, Duration::from_secs(2400), |_| seen(vec![alarm("disk-low", "")]));
    tokio::join!(run, gone);
    let events = stage.events();
    assert_eq!(events.len(), 1);
    assert_eq!(events[0]["series"], Value::Null, "a new one");
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_refuses_is_asked_once_a_minute() {
    let stage = Stage::new();
    let refusal = crate::sim::faults::Refusal::new(503, "ServiceUnavailable", "no");
    stage
        .sim
        .fault(crate::sim::faults::Fault::new(On::write(EVENTS), crate::sim::faults::Act::refuse(&refusal)).always());
    let looked =
        stage.runs(stage.announcer().await, Duration::from_secs(605), |_| seen(vec![alarm("disk-low", "")])).await;
    assert_eq!((looked, stage.writes()), (11, 11));
}

#[tokio::test(start_paused = true)]
async fn gaps_are_published_by_the_leader_once_and_several_of_a_minute_together() {
    let stage = Stage::new();
    // Those of before the start are no news, and neither is one that was published.
    let grows = |look: usize| match look {
        0 => with_gap(10, 2, true),
        1 => with_gap(12, 3, true),
        2 => with_gap(15, 4, true),
        3 => with_gap(17, 6, true),
        _ => with_gap(20, 7, true),
    };
    stage.runs(stage.announcer().await, looks(100), grows).await;
    let events = stage.events();
    assert_eq!(events.len(), 1);
    assert_eq!(events[0]["note"], "pods: it is gap-recorded. To do: do something");
    assert_eq!((&events[0]["reason"], &events[0]["series"]["count"]), (&"GapRecorded".into(), &2.into()));
    assert_eq!(stage.writes(), 2);
    // A standby publishes none, and what it saw as one is no news when it leads.
    let stage = Stage::new();
    let takes_over = |look: usize| if look < 50 { with_gap(20, 7, false) } else { with_gap(20, 7, true) };
    stage.runs(stage.announcer().await, looks(100), takes_over).await;
    assert_eq!(stage.writes(), 0);
    let stage = Stage::new();
    let takes_over = |look: usize| if look < 50 { with_gap(20, 7, false) } else { with_gap(23, 9, true) };
    stage.runs(stage.announcer().await, looks(100), takes_over).await;
    assert_eq!(stage.events()[0]["note"], "pods: it is gap-recorded (and 1 more before it). To do: do something");
}

#[test]
fn what_is_published_is_the_status_without_what_a_daemon_cannot_know_of_itself() {
    let status = |ha: Value| -> Seen {
        let alarm = |name: &str| json!({"alarm": name, "what": "w", "do": "d"});
        let status = json!({
            "time": "2026-01-01T00:00:00Z",
            "alarms": [alarm("daemon-down"), alarm("disk-low")],
            "notices": [alarm("gap-recorded")],
            "cluster": {"name": "", "uid": ""}, "daemon": {"running": true}, "ha": ha,
            "journal": {"path": "/j", "epoch": "e", "entries": 7, "removed": 0, "size_bytes": 0, "wal_bytes": 0},
            "gaps": {"count": 3, "recovered": 0, "last": {
                "seq": 7, "time": "2026-01-01T00:00:00Z", "resource": "pods", "why": "expired",
            }},
            "sources": [], "sinks": [],
        });
        Seen::of(serde_json::from_value(status).unwrap())
    };
    let role = |role: Role| serde_json::to_value(HaView { role, ..HaView::default() }).unwrap();
    let alone = status(Value::Null);
    assert_eq!(alone.alarms.iter().map(|alarm| alarm.alarm).collect::<Vec<_>>(), ["disk-low"]);
    let gap = alone.gap.unwrap();
    assert_eq!((gap.seq, gap.count, gap.notice.alarm), (Seq(7), 3, "gap-recorded"));
    let leads = [role(Role::Leader), role(Role::Standby), role(Role::Starting)].map(|ha| status(ha).leads);
    assert_eq!((alone.leads, leads), (true, [true, false, false]));
}

#[tokio::test(start_paused = true)]
async fn news_are_looked_at_soon_and_not_one_by_one() {
    let stage = Stage::new();
    let (live, news) = watch::channel(Live::default());
    let (began, stop, times) = (Instant::now(), CancellationToken::new(), std::cell::RefCell::new(Vec::new()));
    let look = || {
        times.borrow_mut().push(began.elapsed().as_secs());
        async { Some(seen(Vec::new())) }
    };
    let run = stage.announcer().await.run(look, news, stop.clone());
    let end = async {
        sleep(Duration::from_secs(4)).await;
        for pid in 1..=9 {
            live.send_replace(Live { pid, ..Live::default() });
            sleep(Duration::from_millis(100)).await;
        }
        sleep(LOOK_INTERVAL).await;
        stop.cancel();
    };
    tokio::join!(run, end);
    assert_eq!(*times.borrow(), [0, 5, 6], "and the next is at the interval");
}

/// Publishes what is due at each look, and returns it with the seconds.
fn published(looks: u32, seen: impl Fn(u64) -> Seen) -> Vec<(u64, String)> {
    let mut announcements = Announcements::new(Baseline::default());
    let mut order = Vec::new();
    for look in 0..looks {
        let now = LOOK_INTERVAL * look;
        let seen = seen(now.as_secs());
        announcements.look(now, &seen);
        while let Some(notice) = announcements.next(now, &seen) {
            order.push((now.as_secs(), notice.key.about.clone()));
            announcements.published(now, notice);
        }
    }
    order
}

#[test]
fn a_burst_is_bounded_and_everything_has_its_turn() {
    let degraded = |prefix: &str, count| {
        (0..count).map(|n| alarm("source-degraded", &format!("{prefix}{n:02}"))).collect::<Vec<_>>()
    };
    // Twenty every ten minutes, each once before any comes again.
    let order = published(120, |_| seen(degraded("a", 60)));
    let expected = degraded("a", 60).into_iter().enumerate().map(|(n, alarm)| (n as u64 / 20 * 600, alarm.about));
    assert_eq!(order, expected.collect::<Vec<_>>());
    // What comes again, though it is the worst, lets others go first.
    let order = published(124, |second| {
        seen(match second {
            0..600 => degraded("worst", 20),
            600..1200 => Vec::new(),
            _ => [degraded("worst", 20), degraded("other", 20)].concat(),
        })
    });
    let turns = [(0, "worst"), (600, "worst"), (1200, "other"), (1800, "worst")];
    let expected = turns.iter().flat_map(|(at, name)| degraded(name, 20).into_iter().map(|alarm| (*at, alarm.about)));
    assert_eq!(order, expected.collect::<Vec<_>>());
}

#[test]
fn a_long_note_is_cut_as_kubernetes_takes_it() {
    let mut announcements = Announcements::new(Baseline::default());
    let long = Alarm { what: "ü".repeat(2000), ..alarm("sink-halted", "audit") };
    let notice = announcements.next(Duration::ZERO, &seen(vec![long])).unwrap();
    assert!((1020..=1024).contains(&notice.note.len()) && notice.note.ends_with("ü…"), "{}", notice.note.len());
    announcements.published(Duration::ZERO, notice);
    assert!(announcements.next(Duration::ZERO, &seen(Vec::new())).is_none(), "not within a minute");
}

fn config(rest: &str) -> Config {
    toml::from_str(&format!("[[watch]]\nresources = [\"pods\"]\n{rest}")).unwrap()
}

#[tokio::test(start_paused = true)]
async fn events_are_about_the_pod_else_the_lease_else_nothing() {
    let stage = Stage::new();
    let api = stage.api().await;
    let of_pod = |name: &str| {
        let value = match name {
            "POD_NAME" => "decklog-0",
            "POD_NAMESPACE" => "logs",
            "POD_UID" => "u",
            _ => return None,
        };
        Some(value.to_owned())
    };
    let ha = "[ha]\nlog = \"archive\"\nlease = \"logs/decklog\"\nidentity = \"one\"\n";
    let pod = Object::of(&config(ha), &api, of_pod).unwrap();
    assert_eq!(pod.to_string(), "the Pod logs/decklog-0");
    let lease = Object::of(&config(ha), &api, |_| None).unwrap();
    assert_eq!((lease.to_string().as_str(), lease.instance()), ("the Lease logs/decklog", "one"));
    assert_eq!(Object::of(&config(""), &api, |_| None), None);
    let mut off = config(ha);
    off.cluster.events = Events::Off;
    assert_eq!(Object::of(&off, &api, of_pod), None);
    // A Lease that is not there yet is waited for.
    assert!(matches!(lease.reference(&api).await, Err(Failure::NotFound)));
    let there = stage.sim.create("leases.coordination.k8s.io", objects::lease("logs", "decklog")).unwrap();
    let reference = lease.reference(&api).await.unwrap();
    assert_eq!(reference.uid.as_deref(), Some(&*there.uid));
    assert_eq!((reference.kind.as_deref(), reference.namespace.as_deref()), (Some("Lease"), Some("logs")));
}
