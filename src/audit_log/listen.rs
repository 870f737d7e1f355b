//! A receiver of the audit log: the API server's webhook backend, and whatever pushes events by HTTP or through a unix socket.
//!
//! An answer of 200 says that the events are committed. Who gets another answer, or none, sends them again. A subscription of
//! Pub/Sub shows a token of OpenID Connect, which cannot be checked without asking Google: such a push goes through a proxy that
//! checks it and adds a token of `token_file`. `?token=` is not accepted, because addresses stand in logs.
//!
//! On a unix socket there is no HTTP: a client writes JSON Lines and gets no answer.

mod body;
mod socket;
#[cfg(test)]
mod tests;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Extension, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::Serialize;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::Settings;
use super::lines::Line;
use crate::core::net::server::{self, BindError, Bound, Gate, Limits, Peer, bearer};
use crate::core::runtime;
use body::{MOST_BYTES, Unfit};

/// Limits for senders. The API server gives a batch 30 seconds.
const LIMITS: Limits = Limits {
    head: Duration::from_secs(5),
    connection: Duration::from_secs(60),
    stall: Duration::from_secs(30),
    streams: 0,
};
/// Bodies that are in memory at a time.
const MOST_BODIES: usize = 4;
/// Longest wait for one of the other bodies to go.
const BODY_TURN_WAIT: Duration = Duration::from_secs(5);
/// Header of Firehose with the token that is configured there.
const FIREHOSE_KEY: &str = "x-amz-firehose-access-key";
/// Header of Firehose with the id of a request, which is the same when the request is repeated.
const FIREHOSE_ID: &str = "x-amz-firehose-request-id";

/// Reason why events were not committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// They may be sent again after this time.
    Busy(Duration),
    /// They cannot be understood: a sentence that says why.
    NotUnderstood(String),
    /// They may not come from there, such as those of another cluster: a sentence that says why.
    Forbidden(String),
}

/// Receiver of events. A future of it is never dropped halfway: it runs to its end, also where the sender has gone.
pub trait Handler: Send + Sync + 'static {
    /// Commits the events of a body. Returns the id of the request, where the body is Firehose's.
    fn body(&self, body: Bytes, peer: Peer) -> impl Future<Output = Result<Option<String>, Refusal>> + Send;

    /// Commits the events of lines.
    fn lines(&self, lines: Vec<Line>, peer: Peer) -> impl Future<Output = Result<(), Refusal>> + Send;
}

/// A listener that is bound.
#[derive(Debug)]
pub struct Receiver {
    bound: Bound,
}

impl Receiver {
    /// Binds where a table says; none if it does not listen.
    ///
    /// # Errors
    /// What is in the way.
    pub async fn bind(settings: &Settings) -> Result<Option<Self>, BindError> {
        match settings.endpoint() {
            Some(endpoint) => Ok(Some(Self { bound: server::bind(endpoint).await? })),
            None => Ok(None),
        }
    }

    /// Returns the address; none for a unix socket.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.bound.address()
    }

    /// Hands everything to `handler` until `stop`.
    ///
    /// # Errors
    /// Where the socket fails.
    pub async fn serve(self, handler: impl Handler, stop: CancellationToken) -> io::Result<()> {
        self.serve_within(handler, LIMITS, BODY_TURN_WAIT, stop).await
    }

    /// Serves with other bounds: `turn` is the longest wait for one of the other bodies to go.
    async fn serve_within(
        self,
        handler: impl Handler,
        limits: Limits,
        turn: Duration,
        stop: CancellationToken,
    ) -> io::Result<()> {
        let handler = Arc::new(handler);
        match self.bound.into_unix() {
            Ok(listener) => socket::serve(listener, handler, stop).await,
            Err(mut bound) => {
                let (gate, (jobs, offered)) = (bound.gate.take(), mpsc::channel(1));
                let door = Door { gate, bodies: Semaphore::new(MOST_BODIES), turn, jobs };
                let router = Router::new().fallback(receive).with_state(Arc::new(door));
                tokio::join!(bound.answer(router, limits, stop), work(offered, handler)).0
            }
        }
    }
}

/// State of the HTTP side.
struct Door {
    /// None if everybody who can connect may send: on loopback.
    gate: Option<Gate>,
    bodies: Semaphore,
    turn: Duration,
    jobs: mpsc::Sender<Job>,
}

/// A body that is to be committed.
struct Job {
    body: Bytes,
    peer: Peer,
    committed: oneshot::Sender<Result<Option<String>, Refusal>>,
}

/// Commits bodies until nobody has any more. Each goes on when its sender breaks off: all of its events are committed, or none.
async fn work<H: Handler>(mut offered: mpsc::Receiver<Job>, handler: Arc<H>) {
    let mut tasks = JoinSet::new();
    loop {
        let job = tokio::select! {
            biased;
            Some(_ended) = tasks.join_next() => continue,
            job = offered.recv() => job,
        };
        let Some(Job { body, peer, committed }) = job else { break };
        let handler = Arc::clone(&handler);
        tasks.spawn(async move { drop(committed.send(handler.body(body, peer).await)) });
    }
    while tasks.join_next().await.is_some() {}
}

/// An answer of Firehose's protocol.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Echo<'a> {
    request_id: &'a str,
    /// Milliseconds since 1970.
    timestamp: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    error_message: Option<&'a str>,
}

/// An answer that is not 200.
struct Answer {
    status: StatusCode,
    text: String,
    /// Time after which it may be sent again.
    again: Option<Duration>,
}

impl Answer {
    fn new(status: StatusCode, text: impl Into<String>) -> Self {
        Self { status, text: text.into(), again: None }
    }

    fn busy(again: Duration) -> Self {
        let text = "decklog cannot commit these events at the moment; send them again";
        Self { again: Some(again), ..Self::new(StatusCode::SERVICE_UNAVAILABLE, text) }
    }

    /// For Firehose, which shows the text to its user, as JSON.
    fn response(&self, request_id: Option<&str>) -> Response {
        let mut response = match request_id {
            Some(id) => (self.status, echo(id, Some(&self.text))).into_response(),
            None => (self.status, format!("{}\n", self.text)).into_response(),
        };
        let headers = response.headers_mut();
        if let Some(again) = self.again {
            headers.insert(header::RETRY_AFTER, again.as_secs().max(1).into());
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if self.status == StatusCode::METHOD_NOT_ALLOWED {
            headers.insert(header::ALLOW, HeaderValue::from_static("POST"));
        }
        response
    }
}

impl From<Refusal> for Answer {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Busy(again) => Self::busy(again),
            Refusal::NotUnderstood(text) => Self::new(StatusCode::BAD_REQUEST, text),
            Refusal::Forbidden(text) => Self::new(StatusCode::FORBIDDEN, text),
        }
    }
}

impl From<Unfit> for Answer {
    fn from(unfit: Unfit) -> Self {
        let text = unfit.to_string();
        match unfit {
            Unfit::TooLarge => Self::new(StatusCode::PAYLOAD_TOO_LARGE, text),
            Unfit::Encoding(_) => Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, text),
            Unfit::Broken(_) => Self::new(StatusCode::BAD_REQUEST, text),
        }
    }
}

fn echo(request_id: &str, error_message: Option<&str>) -> impl IntoResponse {
    let echo = Echo { request_id, timestamp: runtime::now().as_millisecond(), error_message };
    axum::Json(serde_json::to_value(echo).unwrap_or_default())
}

fn text<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}

/// Answers a request.
async fn receive(State(door): State<Arc<Door>>, Extension(peer): Extension<Peer>, request: Request) -> Response {
    let firehose = text(request.headers(), FIREHOSE_ID).map(str::to_owned);
    match door.take(peer, request).await {
        Ok(None) => StatusCode::OK.into_response(),
        Ok(Some(id)) => echo(&id, None).into_response(),
        Err(answer) => {
            tracing::debug!(status = answer.status.as_u16(), "audit events were not taken: {}", answer.text);
            answer.response(firehose.as_deref())
        }
    }
}

impl Door {
    async fn take(&self, peer: Peer, request: Request) -> Result<Option<String>, Answer> {
        let (head, body) = request.into_parts();
        if let Err(answer) = self.admit(&peer, &head.method, &head.headers).await {
            // Who writes while it is refused would see a broken connection, and not the answer.
            if !head.headers.contains_key(header::EXPECT) {
                body::discard(body).await;
            }
            return Err(answer);
        }
        let turn = tokio::time::timeout(self.turn, self.bodies.acquire()).await;
        let Ok(Ok(_turn)) = turn else { return Err(Answer::busy(BODY_TURN_WAIT)) };
        let body = body::read(&head.headers, body, MOST_BYTES).await?;
        let (committed, answer) = oneshot::channel();
        // Where nobody takes it, because that has ended or panics, the channel is closed.
        drop(self.jobs.send(Job { body, peer, committed }).await);
        let Ok(committed) = answer.await else {
            return Err(Answer::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "decklog failed at these events; its log says why",
            ));
        };
        Ok(committed?)
    }

    async fn admit(&self, peer: &Peer, method: &Method, headers: &HeaderMap) -> Result<(), Answer> {
        if method != Method::POST {
            let text = "POST audit events here: an Event, an EventList, JSON Lines, or what Firehose and Pub/Sub push";
            return Err(Answer::new(StatusCode::METHOD_NOT_ALLOWED, text));
        }
        let Some(gate) = &self.gate else { return Ok(()) };
        let shown = bearer(headers).or_else(|| text(headers, FIREHOSE_KEY));
        match gate.admits_token(peer, shown).await {
            Some(_) => Ok(()),
            None => {
                let text = "show a token of the [[audit_log]] token_file (Authorization: Bearer, or X-Amz-Firehose-Access-Key), or a certificate that its client_ca_file knows";
                Err(Answer::new(StatusCode::UNAUTHORIZED, text))
            }
        }
    }
}
