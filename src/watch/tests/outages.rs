//! API servers that go and come back, connections that break again and again, and a resource on which nothing happens. The
//! clock is a paused one, so that hours pass at once and every second of them is the server's or ours.

use std::sync::atomic::{AtomicBool, AtomicUsize};

use http::Response;
use http_body_util::{BodyExt, StreamBody};
use kube::client::Body;
use serde_json::json;

use super::*;
use crate::core::runtime;
use crate::journal::{Bounds, JournalError, StoredEntry};
use crate::sim::faults::{At, How, Then};

/// A cluster that is reached through nothing, and a daemon of one thread.
pub(super) struct Stage {
    pub(super) sim: Sim,
    pub(super) dir: TempDir,
    down: Arc<AtomicBool>,
    /// Requests that nobody was there for.
    refused: Arc<AtomicUsize>,
    /// Somebody in between cuts what is idle for this long.
    idle: Option<Duration>,
    /// The API server ends each watch after so many seconds, whatever was asked for.
    ends: Option<u64>,
    /// How large the journal may become.
    pub(super) max_size: Option<u64>,
    pub(super) timings: Timings,
    _simulation: runtime::Simulation,
}

pub(super) struct Running {
    pub(super) journal: Journal,
    pub(super) handle: SourceManagerHandle,
    _tasks: JoinSet<Result<(), SourceManagerError>>,
    _writing: JoinSet<Result<(), JournalError>>,
}

impl Stage {
    pub(super) fn new(namespaces: usize) -> Self {
        let _simulation = runtime::simulate(7, "2026-01-01T00:00:00Z".parse().unwrap());
        let sim = Sim::unconnected(Settings::default()).unwrap();
        for number in 0..namespaces {
            sim.create_namespace(&format!("n{number}")).unwrap();
        }
        let (down, refused) = (Arc::default(), Arc::default());
        // Discovery has its own pace, and is not what is counted here.
        let timings = Timings { discovery: Duration::from_secs(3600), ..Timings::default() };
        let dir = tempfile::tempdir().unwrap();
        Self { sim, dir, down, refused, idle: None, ends: None, max_size: None, timings, _simulation }
    }

    pub(super) async fn start(&self, watches: Vec<watch::Settings>) -> Running {
        let (sim, down, refused) = (self.sim.clone(), Arc::clone(&self.down), Arc::clone(&self.refused));
        let (idle, ends) = (self.idle, self.ends);
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let (sim, down, refused) = (sim.clone(), Arc::clone(&down), Arc::clone(&refused));
            async move {
                tokio::time::sleep(Duration::from_millis(2)).await;
                if down.load(Ordering::Relaxed) {
                    refused.fetch_add(1, Ordering::Relaxed);
                    return Err(std::io::Error::from(std::io::ErrorKind::ConnectionRefused));
                }
                let (mut head, body) = request.into_parts();
                let body = body.collect().await.map_err(std::io::Error::other)?.to_bytes();
                if let Some(ends) = ends {
                    let uri = head.uri.to_string();
                    let ended = uri.split('&').map(|part| match part.split_once("timeoutSeconds=") {
                        Some((before, _)) => format!("{before}timeoutSeconds={ends}"),
                        None => part.to_owned(),
                    });
                    head.uri = ended.collect::<Vec<_>>().join("&").parse().unwrap();
                }
                let token = format!("Bearer {}", crate::sim::TOKEN).parse().unwrap();
                head.headers.insert(http::header::AUTHORIZATION, token);
                let request = http::Request::from_parts(head, body);
                let answer: Response<crate::sim::Body> = sim.answer(request).await.map_err(std::io::Error::other)?;
                Ok(match idle {
                    Some(idle) => answer.map(|body| cut_when_idle(body, idle)),
                    None => answer,
                })
            }
        });
        let api = Api::with_client(kube::Client::new(service, "default"), "sim", Limits::default()).await.unwrap();
        let (journal, writing) = Journal::inline(&self.dir.path().join("state"), |_| Ok(())).unwrap();
        let mut written = JoinSet::new();
        written.spawn(writing);
        if let Some(max_size) = self.max_size {
            let max_age = Duration::from_secs(86_400);
            journal.bound(Bounds { max_size, max_age, drop_oldest: true }).await.unwrap();
        }
        let (manager, handle) = SourceManager::new(api, journal.clone(), plan(watches), self.timings.clone());
        let mut tasks = JoinSet::new();
        tasks.spawn(manager.run(CancellationToken::new()));
        let mut ready = handle.ready();
        ready.wait_for(|ready| *ready).await.unwrap();
        Running { journal, handle, _tasks: tasks, _writing: written }
    }

    fn stop(&self) {
        self.down.store(true, Ordering::Relaxed);
        self.sim.signal("*", &Signal::Reset);
    }

    pub(super) fn map(&self, namespace: &str, name: &str) {
        self.sim.create("configmaps", objects::config_map(namespace, name, "1")).unwrap();
    }
}

impl Running {
    pub(super) fn log(&self, stage: &Stage) -> Vec<String> {
        log_at(&stage.dir.path().join("state"))
    }

    fn gaps(&self, stage: &Stage) -> usize {
        self.log(stage).iter().filter(|line| line.starts_with("GAP")).count()
    }

    fn state(&self) -> SourceState {
        self.handle.overview().sources[0].stats.state()
    }

    fn all_watch(&self) -> bool {
        self.handle.overview().sources.iter().all(|source| source.stats.state() == SourceState::Watching)
    }

    pub(super) async fn until_recorded(&self, stage: &Stage, end: &str) {
        let mut head = self.journal.head();
        while !self.log(stage).iter().any(|line| line.contains(end)) {
            head.changed().await.unwrap();
        }
    }
}

fn cut_when_idle(body: crate::sim::Body, idle: Duration) -> crate::sim::Body {
    let frames = futures::stream::unfold(Some(body), move |body| async move {
        let mut body = body?;
        match tokio::time::timeout(idle, body.frame()).await {
            Ok(frame) => Some((frame?, Some(body))),
            Err(_elapsed) => Some((Err(crate::sim::Broken), None)),
        }
    });
    StreamBody::new(frames).boxed_unsync()
}

fn of_namespaces(count: usize) -> Vec<watch::Settings> {
    let namespaces = (0..count).map(|number| format!("n{number}")).collect();
    vec![watch::Settings { namespaces, ..watch(&["configmaps"]) }]
}

const SECOND: Duration = Duration::from_secs(1);
/// More than a source, and than all of them, may ask in a second.
const OF_ONE: usize = 10;
const OF_ALL: usize = 410;

/// Twenty times in a row, with few sources and with many: each source watches again within two seconds, and neither the
/// server nor who is not there is asked more than that needs.
#[tokio::test(start_paused = true)]
async fn every_source_is_back_within_two_seconds_of_the_server() {
    let ready = |status: Option<u16>| {
        status.map(|code| Fault::new(On::path("/readyz"), Act::refuse(&Refusal::new(code, "Odd", "no"))).always())
    };
    for (sources, readyz) in [(7, None), (100, None), (7, Some(404)), (7, Some(403)), (7, Some(401))] {
        let stage = Stage::new(sources);
        let running = stage.start(of_namespaces(sources)).await;
        stage.sim.wait_for_watches("configmaps", sources).await.unwrap();
        if let Some(fault) = ready(readyz) {
            stage.sim.fault(fault);
        }
        for outage in 0..20 {
            stage.stop();
            stage.sim.wait_for_watches("configmaps", 0).await.unwrap();
            let before = stage.refused.load(Ordering::Relaxed);
            tokio::time::sleep(20 * SECOND).await;
            let refused = stage.refused.load(Ordering::Relaxed) - before;
            assert!(refused <= 25 + 6 * sources, "{refused} requests in 20 s of outage {outage}");
            assert!(matches!(running.state(), SourceState::Degraded(_)), "{:?}", running.state());
            stage.down.store(false, Ordering::Relaxed);
            let back = Instant::now();
            stage.sim.wait_for_watches("configmaps", sources).await.unwrap();
            let took = back.elapsed();
            assert!(took <= 2 * SECOND, "{took:?} in outage {outage} with {sources} sources, /readyz {readyz:?}");
            let name = format!("m{outage}");
            stage.map("n0", &name);
            running.until_recorded(&stage, &format!("ADDED watched {name}@")).await;
            assert!(running.all_watch());
            tokio::time::sleep(12 * SECOND).await;
        }
        assert_eq!(running.gaps(&stage), 0);
        assert!(stage.sim.most_within(SECOND, |_| true) <= OF_ALL);
        for number in 0..sources {
            assert!(stage.sim.busiest_second("configmaps", Some(&format!("n{number}"))) <= OF_ONE);
        }
    }
}

/// A resource of which something changes five times a second is never quiet. What a reading of the newest version did not show yet
/// comes at once all the same: only what came right after the outage says that it may be of before.
#[tokio::test(start_paused = true)]
async fn a_source_that_is_never_quiet_is_not_behind_for_ever() {
    let mut stage = Stage::new(1);
    stage.timings.version_clock = Some(10 * SECOND);
    stage.map("n0", "busy");
    let running = stage.start(vec![watch(&["configmaps"])]).await;
    let mut number = 0;
    let mut change_for = async |time: Duration| {
        let end = Instant::now() + time;
        while Instant::now() < end {
            number += 1;
            stage.sim.patch("configmaps", "n0", "busy", &json!({"data": {"n": number.to_string()}})).unwrap();
            tokio::time::sleep(SECOND / 5).await;
        }
        format!("busy@{}", stage.sim.revision())
    };
    for outage in [false, true] {
        if outage {
            stage.stop();
            stage.sim.wait_for_watches("configmaps", 0).await.unwrap();
            change_for(20 * SECOND).await;
            stage.down.store(false, Ordering::Relaxed);
            stage.sim.wait_for_watches("configmaps", 1).await.unwrap();
        }
        let last = change_for(40 * SECOND).await;
        running.until_recorded(&stage, &last).await;
        let entries = running.journal.reader().unwrap().entries_after(Seq(0), 10_000, usize::MAX).unwrap();
        let is_wide = |stored: &&StoredEntry| {
            let entry = Entry::parse(&stored.line).unwrap();
            entry.happened_between.as_ref().is_some_and(|[earliest, latest]| {
                let read = |text: &str| text.parse::<Timestamp>().unwrap();
                read(latest).duration_since(read(earliest)).as_secs() > 2
            })
        };
        let wide = entries.iter().filter(is_wide).count();
        // Of the forty seconds the last twenty.
        let newest = entries.iter().rev().take(100).filter(is_wide).count();
        assert_eq!(newest, 0, "{wide} of {} entries, outage {outage}", entries.len());
        assert!(!outage || wide > 0, "what came after the outage may be of before");
    }
}

/// A balancer is there before what is behind it.
#[tokio::test(start_paused = true)]
async fn a_server_that_is_not_ready_is_waited_for() {
    let stage = Stage::new(7);
    let running = stage.start(of_namespaces(7)).await;
    stage.sim.wait_for_watches("configmaps", 7).await.unwrap();
    stage.stop();
    stage.sim.wait_for_watches("configmaps", 0).await.unwrap();
    tokio::time::sleep(20 * SECOND).await;
    stage.sim.fault(Fault::new(On::any(), Act::html(503)).always());
    stage.down.store(false, Ordering::Relaxed);
    stage.sim.clear_requests();
    tokio::time::sleep(10 * SECOND).await;
    let asked = stage.sim.count(&On::any());
    assert!(asked <= 10 + 7 * 3, "{asked} requests");
    stage.sim.heal();
    let back = Instant::now();
    stage.sim.wait_for_watches("configmaps", 7).await.unwrap();
    assert!(back.elapsed() <= 2 * SECOND, "{:?}", back.elapsed());
    assert_eq!(running.gaps(&stage), 0);
}

/// The API server denies everything until it has read who may do what, and a balancer is there before it and after it.
#[tokio::test(start_paused = true)]
async fn a_server_that_denies_everything_when_it_begins_holds_up_nobody() {
    let deny = || Fault::new(On::any(), Act::refuse(&Refusal::new(403, "Forbidden", "not yet"))).always();
    for (sources, proxy, denied) in [(7, false, 4), (100, false, 4), (7, true, 4), (100, true, 4), (7, false, 15)] {
        let stage = Stage::new(sources);
        let running = stage.start(of_namespaces(sources)).await;
        stage.sim.wait_for_watches("configmaps", sources).await.unwrap();
        for outage in 0..3 {
            if proxy {
                stage.sim.fault(Fault::new(On::any(), Act::html(503)).always());
                stage.sim.signal("*", &Signal::Reset);
            } else {
                stage.stop();
            }
            stage.sim.wait_for_watches("configmaps", 0).await.unwrap();
            tokio::time::sleep(200 * SECOND).await;
            stage.sim.heal();
            stage.sim.fault(deny());
            stage.down.store(false, Ordering::Relaxed);
            tokio::time::sleep(denied * SECOND).await;
            for source in running.handle.overview().sources {
                let state = source.stats.state();
                assert!(!matches!(&state, SourceState::Degraded(text) if text.contains("not allowed")), "{state:?}");
            }
            stage.sim.heal();
            let back = Instant::now();
            stage.sim.wait_for_watches("configmaps", sources).await.unwrap();
            let took = back.elapsed();
            assert!(
                took <= 2 * SECOND,
                "{took:?} in outage {outage} with {sources} sources, proxy {proxy}, {denied} s"
            );
            tokio::time::sleep(12 * SECOND).await;
            assert!(running.all_watch());
        }
        assert_eq!(running.gaps(&stage), 0);
        assert!(stage.sim.most_within(SECOND, |_| true) <= OF_ALL);
        for number in 0..sources {
            assert!(stage.sim.busiest_second("configmaps", Some(&format!("n{number}"))) <= OF_ONE);
        }
    }
}

/// The permission may really have been taken away, and nobody waits for it again.
#[tokio::test(start_paused = true)]
async fn a_cluster_that_never_says_again_who_it_is_is_believed_after_a_while() {
    let stage = Stage::new(20);
    let running = stage.start(of_namespaces(20)).await;
    stage.sim.wait_for_watches("configmaps", 20).await.unwrap();
    let unsaid = || On::path("/api/v1/namespaces/kube-system");
    stage.sim.fault(Fault::new(unsaid(), Act::refuse(&Refusal::new(403, "Forbidden", "no"))).always());
    for longest in [15, 2] {
        stage.stop();
        stage.sim.wait_for_watches("configmaps", 0).await.unwrap();
        tokio::time::sleep(20 * SECOND).await;
        stage.sim.clear_requests();
        stage.down.store(false, Ordering::Relaxed);
        let back = Instant::now();
        stage.sim.wait_for_watches("configmaps", 20).await.unwrap();
        assert!(back.elapsed() <= longest * SECOND, "{:?}", back.elapsed());
        assert!(stage.sim.count(&unsaid()) < 50, "one asks for all");
    }
    assert_eq!(running.gaps(&stage), 0);
}

/// A balancer that accepts and says nothing holds up one of them for a while, and not one after the other.
#[tokio::test(start_paused = true)]
async fn a_question_that_is_never_answered_is_asked_by_one_for_all() {
    let stage = Stage::new(20);
    let running = stage.start(of_namespaces(20)).await;
    stage.sim.wait_for_watches("configmaps", 20).await.unwrap();
    stage.stop();
    stage.sim.wait_for_watches("configmaps", 0).await.unwrap();
    tokio::time::sleep(20 * SECOND).await;
    let who = || On::path("/api/v1/namespaces/kube-system");
    stage.sim.clear_requests();
    stage.sim.fault(Fault::new(who(), Act::Hang).always());
    let failures = || -> Vec<u64> {
        let sources = running.handle.overview().sources;
        sources.iter().map(|source| source.stats.failures().map(|(_, count)| count).sum()).collect()
    };
    let before = failures();
    stage.down.store(false, Ordering::Relaxed);
    tokio::time::sleep(25 * SECOND).await;
    assert!(failures().iter().zip(before).all(|(now, then)| *now > then), "each has heard of it");
    assert!((1..=3).contains(&stage.sim.count(&who())), "{}", stage.sim.count(&who()));
    stage.sim.heal();
    let back = Instant::now();
    stage.sim.wait_for_watches("configmaps", 20).await.unwrap();
    assert!(back.elapsed() <= 12 * SECOND, "{:?}", back.elapsed());
    assert_eq!(running.gaps(&stage), 0);
}

/// The server says 200 and resets the connection, or resets it before that, or a moment later: it is not asked for ever
/// faster, does not look well, and is well when it is.
#[tokio::test(start_paused = true)]
async fn a_connection_that_always_breaks_is_reported_and_heals() {
    let later = Act::tamper(At::Event(0), How::Nothing, Then::Reset);
    for (name, act) in [("after 200", later), ("before an answer", Act::Reset)] {
        let stage = Stage::new(2);
        let running = stage.start(of_namespaces(1)).await;
        stage.sim.wait_for_watches("configmaps", 1).await.unwrap();
        stage.sim.fault(Fault::new(On::watch("configmaps"), act).always());
        stage.sim.signal("configmaps", &Signal::Reset);
        tokio::time::sleep(30 * SECOND).await;
        stage.sim.clear_requests();
        for moment in 0..3000 {
            tokio::time::sleep(SECOND / 5).await;
            assert!(matches!(running.state(), SourceState::Degraded(_)), "{name}: {:?} at {moment}", running.state());
        }
        let asked = stage.sim.count(&On::watch("configmaps"));
        assert!((10..120).contains(&asked), "{name}: {asked} watches in ten minutes");
        assert!(stage.sim.busiest_second("configmaps", Some("n0")) <= OF_ONE);
        stage.map("n0", "meanwhile");
        stage.sim.heal();
        running.until_recorded(&stage, "ADDED watched meanwhile@").await;
        tokio::time::sleep(15 * SECOND).await;
        assert!(running.all_watch());
        assert_eq!(running.gaps(&stage), 0);
    }
}

/// Watches that end as soon as they have brought something new are opened twice a second, and no more.
#[tokio::test(start_paused = true)]
async fn watches_that_end_early_make_no_hot_loop() {
    let stage = Stage::new(1);
    let running = stage.start(of_namespaces(1)).await;
    stage.sim.wait_for_watches("configmaps", 1).await.unwrap();
    stage.sim.fault(Fault::new(On::watch("configmaps"), Act::end_after_events(2)).always());
    stage.sim.signal("configmaps", &Signal::End);
    for number in 0..2000 {
        stage.map("n0", &format!("m{number}"));
        tokio::time::sleep(SECOND / 50).await;
    }
    assert!(stage.sim.busiest_second("configmaps", Some("n0")) <= OF_ONE);
    assert!(stage.sim.most_within(SECOND, |seen| seen.is_watch("configmaps")) <= 3);
    stage.sim.heal();
    running.until_recorded(&stage, "m1999@").await;
    assert_eq!(running.gaps(&stage), 0);
}

/// Events get no bookmarks, and etcd is compacted every five minutes up to where it was five minutes before. Where idle
/// connections are cut no other resource gets any, either.
#[tokio::test(start_paused = true)]
async fn a_quiet_resource_without_bookmarks_has_no_gap() {
    for idle in [None, Some(35 * SECOND), Some(15 * SECOND)] {
        let stage = Stage { idle, ..Stage::new(1) };
        let running = stage.start(vec![watch(&["events", "secrets"])]).await;
        stage.sim.wait_for_watches("events", 1).await.unwrap();
        let mut before = 0;
        for minute in 0..300 {
            stage.map("n0", &format!("m{minute}"));
            tokio::time::sleep(60 * SECOND).await;
            if minute % 5 == 0 {
                stage.sim.compact(before);
                before = stage.sim.revision();
            }
            if minute % 60 == 59 {
                // It came and went, and the next time while nobody watched.
                if minute > 100 {
                    let before = stage.sim.count(&On::watch("events"));
                    stage.sim.fault(Fault::new(On::watch("events"), Act::Delay(30 * SECOND)));
                    stage.sim.signal("events", &Signal::End);
                    stage.sim.wait_for_count(&On::watch("events"), before + 1).await.unwrap();
                }
                let name = format!("brief{minute}");
                stage.sim.create("events", objects::event("n0", &name, "web-1", "Started")).unwrap();
                stage.sim.delete("events", "n0", &name).unwrap();
                running.until_recorded(&stage, &format!("DELETED watched {name}@")).await;
            }
        }
        assert_eq!(running.log(&stage).len(), 10, "{idle:?}: {:#?}", running.log(&stage));
    }
}

/// What a resource without bookmarks lives in: how long its watches are asked for, when the API server ends them by itself, how often
/// etcd is compacted, and by how much its history is behind then.
struct Short {
    watches: RangeInclusive<u32>,
    ends: Option<u64>,
    every: u64,
    keeps: u64,
}

const SHORTS: [Short; 6] = [
    Short { watches: 60..=70, ends: None, every: 12, keeps: 0 },
    Short { watches: 60..=70, ends: Some(30), every: 12, keeps: 0 },
    Short { watches: 30..=30, ends: None, every: 12, keeps: 0 },
    Short { watches: 30..=30, ends: None, every: 12, keeps: 12 },
    Short { watches: 60..=70, ends: None, every: 12, keeps: 12 },
    Short { watches: 60..=70, ends: None, every: 1, keeps: 0 },
];

/// Other resources change each second, and etcd is compacted, for so many seconds.
async fn live_with(stage: &Stage, short: &Short, seconds: u64, mut each: impl FnMut(u64)) {
    let mut revisions = Vec::new();
    for second in 1..=seconds {
        stage.map("n0", &format!("m{}", stage.sim.revision()));
        revisions.push(stage.sim.revision());
        tokio::time::sleep(SECOND).await;
        if second % short.every == 0 {
            let then = usize::try_from(second - 1 - short.keeps.min(second - 1)).unwrap();
            stage.sim.compact(if short.keeps == 0 { stage.sim.revision() } else { revisions[then] });
        }
        each(second);
    }
}

/// Issue 30, point 11: whatever is compacted, a watch that was open and ended well has brought what happened.
#[tokio::test(start_paused = true)]
async fn a_quiet_resource_whose_history_is_short_has_no_gap() {
    for (row, short) in SHORTS.iter().enumerate() {
        let mut stage = Stage::new(1);
        (stage.timings.short_watch_seconds, stage.ends) = (short.watches.clone(), short.ends);
        let running = stage.start(vec![watch(&["events"])]).await;
        stage.sim.wait_for_watches("events", 1).await.unwrap();
        live_with(&stage, short, 300, |_| {}).await;
        assert_eq!(running.log(&stage), Vec::<String>::new(), "row {row}");
        // What comes and goes is recorded, at any place in the life of a watch.
        let mut brief = 0;
        live_with(&stage, short, 300, |second| {
            if second % 7 == 0 {
                let name = format!("brief{second}");
                stage.sim.create("events", objects::event("n0", &name, "web-1", "Started")).unwrap();
                stage.sim.delete("events", "n0", &name).unwrap();
                brief += 1;
            }
        })
        .await;
        let log = running.log(&stage);
        assert!(log.iter().all(|line| line.contains(" watched ")), "row {row}: {log:#?}");
        assert_eq!(log.len(), 2 * brief, "row {row}: {log:#?}");
        let watches = stage.sim.most_within(SECOND / 2, |seen| seen.is_watch("events"));
        assert!(watches <= 2, "row {row}: {watches} watches at once");
        assert!(stage.sim.busiest_second("events", None) <= OF_ONE, "row {row}");
    }
}

/// What came and went while nothing watched and is compacted is a gap, as ever.
#[tokio::test(start_paused = true)]
async fn what_a_quiet_resource_really_lost_is_a_gap() {
    for (row, short) in SHORTS.iter().enumerate() {
        let mut stage = Stage::new(1);
        (stage.timings.short_watch_seconds, stage.ends) = (short.watches.clone(), short.ends);
        let running = stage.start(vec![watch(&["events"])]).await;
        stage.sim.wait_for_watches("events", 1).await.unwrap();
        live_with(&stage, short, 45, |_| {}).await;
        for loss in 1..=3 {
            stage.stop();
            let name = format!("lost{loss}");
            stage.sim.create("events", objects::event("n0", &name, "web-1", "Started")).unwrap();
            stage.sim.delete("events", "n0", &name).unwrap();
            live_with(&stage, short, 15, |_| {}).await;
            stage.sim.compact_all();
            stage.down.store(false, Ordering::Relaxed);
            live_with(&stage, short, 45, |_| {}).await;
            assert_eq!(running.gaps(&stage), loss, "row {row}: {:#?}", running.log(&stage));
        }
    }
}
