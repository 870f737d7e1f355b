//! A client for a library that asks by itself: the watcher of `kube_runtime`.
//!
//! Its requests go through the client that is in use when they are sent, so that they follow every renewal of the
//! credentials. They are bounded as ours are: the library begins a watch that ends at once again without a pause.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Request, Response, header};
use http_body_util::Limited;
use kube::Client;
use kube::client::Body;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until, timeout};

use super::Api;
use crate::core::net::USER_AGENT;

/// Requests that may come in a row.
const BURST: u32 = 30;
/// Time between two requests after that.
const EVERY: Duration = Duration::from_millis(500);
/// Bytes of an answer, or of one watch, at most.
const LIMIT: usize = 64 << 20;

impl Api {
    /// Returns a client of which clones share one pace.
    #[must_use]
    pub fn lend(&self) -> Client {
        let begin = Instant::now();
        let pace = Arc::new(Mutex::new(begin.checked_sub(EVERY * BURST).unwrap_or(begin)));
        let api = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (api, pace) = (api.clone(), Arc::clone(&pace));
            async move {
                in_turn(&pace).await;
                api.forward(request).await
            }
        });
        Client::new(service, "default")
    }

    async fn forward(&self, mut request: Request<Body>) -> std::io::Result<Response<Limited<Body>>> {
        let headers = request.headers_mut();
        headers.insert(header::USER_AGENT, HeaderValue::from_static(USER_AGENT));
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let (client, _) = self.client().await;
        match timeout(self.limits().head, client.send(request)).await {
            Ok(Ok(response)) => Ok(response.map(|body| Limited::new(body, LIMIT))),
            Ok(Err(error)) => Err(std::io::Error::other(super::failure::no_answer(&error).to_string())),
            Err(_elapsed) => Err(std::io::ErrorKind::TimedOut.into()),
        }
    }
}

/// Waits for the turn of a request. `pace` is the moment of the next one, were all of them evenly spread.
async fn in_turn(pace: &Mutex<Instant>) {
    let mut next = pace.lock().await;
    let now = Instant::now();
    let due = (*next).max(now.checked_sub(EVERY * BURST).unwrap_or(now));
    sleep_until(due).await;
    *next = due + EVERY;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn requests_come_in_a_burst_and_then_at_a_pace() {
        let began = Instant::now();
        let pace = Mutex::new(began);
        for _ in 0..100 {
            in_turn(&pace).await;
        }
        assert_eq!(began.elapsed(), EVERY * 99);
        tokio::time::sleep(EVERY * 1000).await;
        let rested = Instant::now();
        for _ in 0..=BURST {
            in_turn(&pace).await;
        }
        assert!(rested.elapsed().is_zero(), "{:?}", rested.elapsed());
        in_turn(&pace).await;
        assert_eq!(rested.elapsed(), EVERY);
    }
}
