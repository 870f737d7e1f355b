use std::sync::atomic::{AtomicUsize, Ordering};

use http::Response;
use kube::client::Body;

use super::*;
use crate::watch::cluster::Limits;

/// A server that says no more than this, asked through nothing, so that time passes only where it is waited for.
fn server(asked: Arc<AtomicUsize>, answer: fn(&str) -> Response<Body>) -> kube::Client {
    let service = tower::service_fn(move |request: http::Request<Body>| {
        asked.fetch_add(1, Ordering::Relaxed);
        std::future::ready(Ok::<_, std::convert::Infallible>(answer(request.uri().path())))
    });
    kube::Client::new(service, "default")
}

fn legacy(path: &str) -> Response<Body> {
    let document = match path {
        "/api" => r#"{"kind":"APIVersions","versions":["v1"]}"#,
        "/apis" => r#"{"kind":"APIGroupList","groups":[]}"#,
        _ => r#"{"kind":"APIResourceList","resources":[]}"#,
    };
    Response::new(Body::from(document.as_bytes().to_vec()))
}

fn busy(_: &str) -> Response<Body> {
    Response::builder().status(429).header("retry-after", "300").body(Body::empty()).unwrap()
}

/// A watchdog asks more often than an old server, or one that is busy, wants to be.
#[tokio::test(start_paused = true)]
async fn waiting_for_as_long_as_is_wanted_is_progress() {
    for (name, answer) in [("legacy", legacy as fn(&str) -> Response<Body>), ("busy", busy)] {
        let asked = Arc::new(AtomicUsize::new(0));
        let api = Api::with_client(server(Arc::clone(&asked), answer), "test", Limits::default()).await.unwrap();
        let dir = tempfile::tempdir().unwrap();
        let (journal, thread) = Journal::open(dir.path()).unwrap();
        let redactor = Arc::new(Redactor::new(&crate::core::change::redact::Settings::default(), [7; 32]).unwrap());
        let plan = Plan { watch: Vec::new(), redactor };
        let timings = Timings { legacy_discovery: Duration::from_secs(300), ..Timings::default() };
        let (manager, handle) = SourceManager::new(api, journal, plan, timings);
        let watchdog = async {
            for second in (0..1000).step_by(10) {
                let before = handle.progress();
                tokio::time::sleep(Duration::from_secs(10)).await;
                assert!(handle.progress() > before, "{name}: none from second {second} on");
            }
        };
        tokio::select! {
            biased;
            () = watchdog => {}
            () = keep_discovering(&manager.shared) => unreachable!("it never returns"),
        }
        // Three requests each time where it answers, and one where it does not.
        assert!((4..=12).contains(&asked.load(Ordering::Relaxed)), "{name}: {asked:?}");
        drop(manager);
        thread.join().unwrap();
    }
}

#[test]
fn each_new_failure_is_logged_and_one_that_lasts_now_and_then() {
    let mut retries = Retries::default();
    let begin = Instant::now();
    for (seconds, text, reported) in [
        (0, "refused", true),
        (1, "refused", false),
        (100, "refused", false),
        (101, "401", true),
        (280, "401", false),
        (281, "401", true),
        (282, "refused", true),
    ] {
        let now = begin + Duration::from_secs(seconds);
        assert_eq!(retries.is_news(text, now), reported, "{text} after {seconds} s");
    }
}
