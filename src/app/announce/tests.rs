//! Events in a simulated cluster, by a clock that nobody waits for.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::{Value, json};

use super::turns::Gap;
use super::*;
use crate::app::config::Config;
use crate::core::k8s::audited::{Unexplained, UnexplainedResource, UnexplainedRun};
use crate::core::model::Seq;
use crate::core::runtime;
use crate::journal::{AuditBatch, Journal, Reader};
use crate::query::status::{Alarm, Status};
use crate::sim::faults::{Act, Fault, On, Refusal};
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

    /// Reasons and notes of the Events that were made, in order.
    fn notes(&self) -> Vec<(String, String)> {
        let mut events = self.events();
        events.sort_by_key(|event| event["metadata"]["name"].as_str().unwrap().to_owned());
        let text = |event: &Value, key: &str| event[key].as_str().unwrap().to_owned();
        events.iter().map(|event| (text(event, "reason"), text(event, "note"))).collect()
    }

    /// Refuses writes of Events.
    fn refuse(&self, times: usize, code: u16, reason: &'static str) {
        let refusal = Refusal::new(code, reason, "no");
        self.sim.fault(Fault::new(On::write(EVENTS), Act::refuse(&refusal)).times(times));
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
    let what = format!("changes may be missing, recorded by entry {seq}");
    let notice = Alarm { what, ..alarm("gap-recorded", "pods") };
    Seen { alarms: Vec::new(), gap: Some(Gap { seq: Seq(seq), count, notice }), leads }
}

fn looks(count: usize) -> Duration {
    LOOK_INTERVAL * u32::try_from(count).unwrap()
}

#[tokio::test(start_paused = true)]
async fn an_alarm_that_flaps_a_hundred_times_is_two_events_and_one_request_a_minute() {
    let stage = Stage::new();
    // Raised at two looks of seven, so that it is not at each request as it was at the one before.
    let flaps = |look: usize| seen(if look % 7 < 2 { vec![alarm("sink-halted", "audit")] } else { Vec::new() });
    let looked = stage.runs(stage.announcer().await, looks(700), flaps).await;
    let mut events = stage.events();
    events.sort_by_key(|event| event["reason"].as_str().unwrap().to_owned());
    let reasons: Vec<&Value> = events.iter().map(|event| &event["reason"]).collect();
    assert_eq!(reasons, ["SinkHalted", "SinkHaltedEnded"]);
    assert!(looked >= 700 && (80..=175).contains(&stage.writes()), "{looked} looks, {} requests", stage.writes());
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
    let mut notes = stage.notes();
    notes.dedup();
    let ended = ("DiskLowEnded".to_owned(), "the alarm disk-low has ended".to_owned());
    assert_eq!((notes.len(), notes.last()), (2, Some(&ended)), "{notes:?}");
    assert_eq!(stage.writes(), 7);
}

#[tokio::test(start_paused = true)]
async fn what_is_over_at_once_has_no_event() {
    let stage = Stage::new();
    let once = |look: usize| seen(if look.is_multiple_of(3) { vec![alarm("disk-low", "")] } else { Vec::new() });
    stage.runs(stage.announcer().await, looks(100), once).await;
    assert_eq!(stage.writes(), 0);
}

#[tokio::test(start_paused = true)]
async fn another_cause_is_another_event_and_another_number_is_not() {
    let stage = Stage::new();
    // Published at the looks 1, 121 and 241.
    let because = |look: usize| {
        let what = match look {
            0..100 => "7 entries behind: refused",
            100..200 => "900 entries behind: refused",
            _ => "950 entries behind: timed out",
        };
        seen(vec![Alarm { what: what.to_owned(), ..alarm("sink-behind", "audit") }])
    };
    stage.runs(stage.announcer().await, looks(300), because).await;
    let of = |what: &str| ("SinkBehind".to_owned(), format!("audit: {what}. To do: do something"));
    assert_eq!(stage.notes(), [of("7 entries behind: refused"), of("950 entries behind: timed out")]);
    assert_eq!(stage.writes(), 3);
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
    // It comes again after three minutes, when the Event would be counted up.
    let gone = async {
        sleep(Duration::from_secs(150)).await;
        assert_eq!(stage.events().len(), 2);
        stage.sim.delete_all(EVENTS).unwrap();
    };
    let flaps = |look: usize| seen(if look % 14 < 7 { vec![alarm("disk-low", "")] } else { Vec::new() });
    let run = stage.runs(stage.announcer().await, Duration::from_secs(300), flaps);
    tokio::join!(run, gone);
    let events = stage.events();
    assert_eq!((events.len(), stage.writes()), (1, 4), "a patch that was refused, and a new one");
    assert_eq!((&events[0]["reason"], &events[0]["series"]), (&"DiskLow".into(), &Value::Null));
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_refuses_is_asked_once_a_minute_and_logged_once() {
    let stage = Stage::new();
    // A quota, which the right to create says nothing of.
    stage.refuse(10, 403, "Forbidden");
    let announcer = stage.announcer().await;
    let sentences = Arc::clone(&announcer.sentences);
    let looked = stage.runs(announcer, Duration::from_secs(610), |_| seen(vec![alarm("disk-low", "")])).await;
    assert_eq!((looked, stage.writes(), stage.events().len()), (12, 11, 1));
    assert_eq!(*sentences.lock().unwrap(), [Said::Published, Said::Failing, Said::Published]);
}

#[tokio::test(start_paused = true)]
async fn what_the_api_server_never_takes_holds_up_no_other() {
    let stage = Stage::new();
    stage.refuse(1, 422, "Invalid");
    let alarms = || seen(vec![alarm("disk-low", ""), alarm("wal-large", "")]);
    stage.runs(stage.announcer().await, Duration::from_secs(30), |_| alarms()).await;
    let reasons: Vec<String> = stage.notes().into_iter().map(|(reason, _)| reason).collect();
    assert_eq!((reasons, stage.writes()), (vec!["WalLarge".to_owned()], 2));
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
    let of = |what: &str| {
        let what = format!("pods: changes may be missing, recorded by entry {what}. To do: do something");
        ("GapRecorded".to_owned(), what)
    };
    assert_eq!(stage.notes(), [of("12"), of("20 (and 3 more before it)")]);
    assert_eq!(stage.writes(), 2);
    // A standby publishes none, and what it saw as one is no news when it leads.
    let stage = Stage::new();
    let takes_over = |look: usize| if look < 50 { with_gap(20, 7, false) } else { with_gap(20, 7, true) };
    stage.runs(stage.announcer().await, looks(100), takes_over).await;
    assert_eq!(stage.writes(), 0);
    let stage = Stage::new();
    let takes_over = |look: usize| if look < 50 { with_gap(20, 7, false) } else { with_gap(23, 9, true) };
    stage.runs(stage.announcer().await, looks(100), takes_over).await;
    assert_eq!(stage.notes(), [of("23 (and 1 more before it)")]);
    // What the last look as a standby saw may be what it wrote when it took over.
    let stage = Stage::new();
    let takes_over = |look: usize| match look {
        0..50 => with_gap(20, 7, false),
        50 => with_gap(22, 8, false),
        _ => with_gap(22, 8, true),
    };
    stage.runs(stage.announcer().await, looks(100), takes_over).await;
    assert_eq!(stage.notes(), [of("22")]);
}

/// The GAP that a leader leaves is published by the next one, or by the same when it leads again.
#[tokio::test(start_paused = true)]
async fn a_gap_that_no_leader_has_published_is_published_by_the_next() {
    let of = |what: &str| {
        let what = format!("pods: changes may be missing, recorded by entry {what}. To do: do something");
        ("GapRecorded".to_owned(), what)
    };
    let stage = Stage::new();
    let takes_over = |look: usize| match look {
        0..50 => with_gap(20, 7, false),
        50..54 => with_gap(22, 8, false),
        _ => with_gap(22, 8, true),
    };
    stage.runs(stage.announcer().await, looks(100), takes_over).await;
    assert_eq!(stage.notes(), [of("22")]);
    let again = |newest: (u64, u64)| {
        move |look: usize| match look {
            0 => with_gap(12, 3, true),
            1..50 => with_gap(newest.0, newest.1, false),
            _ => with_gap(newest.0, newest.1, true),
        }
    };
    for (newest, expected) in [((12, 3), vec![of("12")]), ((20, 4), Vec::new())] {
        let stage = Stage::new();
        // What it is to publish as the leader fails.
        stage.refuse(1, 500, "InternalError");
        stage.runs(stage.announcer().await, looks(100), again(newest)).await;
        assert_eq!(stage.notes(), expected, "another one led where there is a newer GAP");
    }
}

#[test]
fn what_is_published_is_the_status_without_names_of_objects() {
    let now = "2026-01-01T00:00:00Z";
    let status = json!({
        "time": now, "alarms": [], "cluster": {"name": "", "uid": ""}, "daemon": {"running": true},
        "journal": {"path": "/j", "epoch": "e", "entries": 7, "removed": 0, "size_bytes": 0, "wal_bytes": 0},
        "gaps": {"count": 3, "recovered": 0, "last": {"seq": 7, "time": now, "resource": "pods", "why": "expired"}},
        "sources": [{
            "name": "pods", "state": "watching", "objects": 2, "gaps": 3, "recovered": 0, "suppressed": 0, "active": true,
            "cache_fault": {"since": now, "objects": 2, "example": "shop/web"},
        }],
        "sinks": [],
    });
    let mut status: Status = serde_json::from_value(status).unwrap();
    status.judge();
    assert!(status.alarms[0].what.contains("2 objects, shop/web among them"), "{status:?}");
    let seen = Seen::of(status, true);
    let what: Vec<(&str, &str)> = seen.alarms.iter().map(|alarm| (alarm.alarm, alarm.what.as_str())).collect();
    assert!(
        matches!(what[..], [("watch-cache-wrong", what)] if what.contains("shows 2 objects otherwise")),
        "{what:?}"
    );
    let gap = seen.gap.unwrap();
    assert_eq!((gap.seq, gap.count, gap.notice.alarm, seen.leads), (Seq(7), 3, "gap-recorded", true));
}

/// What the daemon counts of its audit logs is in its status, and in that of others by its file.
#[tokio::test]
async fn changes_without_a_request_are_in_the_status() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, _thread) = Journal::open(dir.path()).unwrap();
    journal.audit_logs(vec!["audit".to_owned()]).await.unwrap();
    journal.audited(AuditBatch { log: "audit".to_owned(), ..AuditBatch::default() }).await.unwrap();
    let mut reader = Reader::open(dir.path()).unwrap();
    let now = jiff::Timestamp::now();
    let of = UnexplainedResource { resource: "pods".to_owned(), changes: 30, decided: 40 };
    let run = Some(UnexplainedRun { since: now, changes: 30 });
    let live = Live { pid: 7, unexplained: Unexplained { run, resources: vec![of.clone()] }, ..Live::default() };
    live.write(&Live::file(dir.path()).unwrap()).unwrap();
    let live = Live::read(dir.path(), 7).unwrap();
    let status = Status::of_this_daemon(&mut reader, dir.path(), now, live).unwrap();
    let alarms: Vec<(&str, &str)> = status.alarms.iter().map(|alarm| (alarm.alarm, alarm.about.as_str())).collect();
    assert_eq!((alarms, status.unexplained), (vec![("audit-log-names-nobody", "audit")], vec![of]));
}

/// The file for other processes may be absent or torn, and a status without it says that nothing runs.
#[tokio::test]
async fn a_daemon_needs_no_file_to_know_its_own_state() {
    let dir = tempfile::tempdir().unwrap();
    let (_journal, _thread) = Journal::open(dir.path()).unwrap();
    let mut reader = Reader::open(dir.path()).unwrap();
    let live = Live { pid: 7, waiting: vec!["widgets.example.org".to_owned()], ..Live::default() };
    let status = Status::of_this_daemon(&mut reader, dir.path(), jiff::Timestamp::now(), live).unwrap();
    let alarms: Vec<&str> = status.alarms.iter().map(|alarm| alarm.alarm).collect();
    assert_eq!(alarms, ["resource-waiting"]);
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
    let expected = degraded("a", 60).into_iter().enumerate().map(|(n, alarm)| (15 + n as u64 / 20 * 600, alarm.about));
    assert_eq!(order, expected.collect::<Vec<_>>());
    // What comes again, though it is the worst, lets others go first.
    let order = published(124, |second| {
        seen(match second {
            0..600 => degraded("worst", 20),
            600..1200 => Vec::new(),
            _ => [degraded("worst", 20), degraded("other", 20)].concat(),
        })
    });
    let turns = [(15, "worst"), (615, "worst"), (1215, "other"), (1815, "worst")];
    let expected = turns.iter().flat_map(|(at, name)| degraded(name, 20).into_iter().map(|alarm| (*at, alarm.about)));
    assert_eq!(order, expected.collect::<Vec<_>>());
}

#[test]
fn a_long_note_is_cut_as_kubernetes_takes_it() {
    let mut announcements = Announcements::new(Baseline::default());
    let long = Alarm { what: "ü".repeat(2000), ..alarm("sink-halted", "audit") };
    let long = seen(vec![long]);
    announcements.look(Duration::ZERO, &long);
    let notice = announcements.next(LASTING_MIN, &long).unwrap();
    assert!((1020..=1024).contains(&notice.note.len()) && notice.note.ends_with("ü…"), "{}", notice.note.len());
    announcements.published(LASTING_MIN, notice);
    announcements.look(LASTING_MIN, &seen(Vec::new()));
    assert!(announcements.next(LASTING_MIN, &seen(Vec::new())).is_none(), "not within a minute");
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
