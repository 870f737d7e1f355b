//! A collector of CloudEvents that says in the trace what it got, before it answers.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use serde_json::value::RawValue;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::trace;

#[derive(serde::Deserialize)]
struct Event<'a> {
    #[serde(borrow)]
    data: &'a RawValue,
}

#[derive(serde::Deserialize)]
struct Data {
    seq: u64,
}

#[derive(Default)]
struct Came {
    /// Every entry that came, as often as it came: its seq and its line.
    entries: Vec<(u64, String)>,
    trace: Option<PathBuf>,
}

/// See the module; it ends with the test.
pub(crate) struct Collector {
    at: String,
    came: Arc<Mutex<Came>>,
    _serving: JoinSet<()>,
}

impl Collector {
    pub(crate) async fn start(trace: Option<PathBuf>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap().to_string();
        let came = Arc::new(Mutex::new(Came { entries: Vec::new(), trace }));
        let router = Router::new().fallback(take).with_state(Arc::clone(&came));
        let mut serving = JoinSet::new();
        serving.spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { at, came, _serving: serving }
    }

    /// A sink that delivers to it.
    pub(crate) fn sink(&self, name: &str) -> String {
        let at = &self.at;
        format!(
            "[[sink]]\nname = {name:?}\ntype = \"http\"\nurl = \"http://{at}/\"\nformat = \"batched\"\nbatch_size = 7\n\n"
        )
    }

    pub(crate) fn entries(&self) -> Vec<(u64, String)> {
        self.came.lock().unwrap().entries.clone()
    }

    /// The highest seq that came.
    pub(crate) fn highest(&self) -> u64 {
        self.came.lock().unwrap().entries.iter().map(|(seq, _)| *seq).max().unwrap_or(0)
    }
}

async fn take(State(came): State<Arc<Mutex<Came>>>, body: Bytes) -> StatusCode {
    let events: Vec<Event<'_>> = serde_json::from_slice(&body).unwrap();
    let mut came = came.lock().unwrap();
    for event in events {
        let line = event.data.get();
        let Data { seq } = serde_json::from_str(line).unwrap();
        came.entries.push((seq, line.to_owned()));
    }
    if let (Some(trace), Some((seq, _))) = (&came.trace, came.entries.last()) {
        trace::mark(trace, &format!("http {seq}"));
    }
    StatusCode::NO_CONTENT
}
