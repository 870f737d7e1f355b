//! CloudEvents over HTTP: at least once, in order, one request at a time.
//!
//! A 2xx answer means taken. Everything that may work later is tried again, and a lost answer is a repeat with the same
//! id and the same bytes. Redirects are not followed: a log with redacted but private facts goes only where the
//! configuration says, and never to a link-local address. Proxies are used only as the environment says (`HTTPS_PROXY`, `HTTP_PROXY`, `NO_PROXY`).

mod client;
mod guard;
mod sign;
#[cfg(test)]
mod tests;

use std::time::{Duration, SystemTime};

use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::fmt::rfc2822;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION, RETRY_AFTER};
use reqwest::{Method, Response, StatusCode};

use super::cloudevents::Event;
use super::{Class, Failure, Item, Limits, Position, Sink, SinkError};
use crate::ambient;
use crate::config::{self, CloudEvents};
use crate::wire::Entry;
pub use client::Wire;
pub(super) use client::chain;
use client::{Link, shown};

/// About how many bytes of entries that go one by one are read at once.
const READ_BYTES: usize = 1 << 20;

/// How many bytes of an answer are read: enough for the text of an error, and for a short answer to leave the
/// connection usable.
const ANSWER_BYTES: usize = 4 << 10;

/// The least wait after a refusal of the credentials, which heals when somebody renews them.
const CREDENTIALS_WAIT: Duration = Duration::from_secs(15);

/// The longest wait that a server may ask for.
const LONGEST_WAIT: Duration = Duration::from_hours(1);

/// What the end of one request means.
enum Answer {
    Taken,
    /// This request will never be taken; a part of it may.
    Refused(String),
    Error(SinkError),
}

/// A server that takes CloudEvents.
#[derive(Debug)]
pub struct HttpSink {
    link: Link,
    format: CloudEvents,
    batch_size: usize,
    batch_bytes: usize,
    batch_age: Duration,
}

impl HttpSink {
    /// A sink that posts where the configuration says; nothing is connected yet.
    ///
    /// # Errors
    /// Where the URL or a header can never work. The text never quotes a header's value.
    pub fn new(config: &config::HttpSink) -> Result<Self, String> {
        Ok(Self {
            link: Link::new(config)?,
            format: config.format,
            batch_size: config.batch_size.max(1),
            batch_bytes: usize::try_from(config.batch_bytes).unwrap_or(usize::MAX),
            batch_age: config.batch_age.unwrap_or_default(),
        })
    }

    /// For simulations: what it sends goes to `wire` and not over a network.
    ///
    /// # Errors
    /// As [`HttpSink::new`].
    #[doc(hidden)]
    pub fn through(config: &config::HttpSink, wire: Wire) -> Result<Self, String> {
        let mut sink = Self::new(config)?;
        sink.link.wire = Some(wire);
        Ok(sink)
    }

    /// Sends entries in as few requests as they fit in.
    async fn send(&mut self, batch: &[Item]) -> Result<(), Failure> {
        self.link.refresh().await.map_err(|error| Failure { taken: 0, error })?;
        let mut taken = 0;
        // Halved when the server refuses several entries together, until the one that it means stands alone.
        let mut most = if self.format == CloudEvents::Batched { self.batch_size } else { 1 };
        while taken < batch.len() {
            let part = first_part(&batch[taken..], most, self.batch_bytes);
            match self.post(part).await {
                Answer::Taken => taken += part.len(),
                Answer::Refused(_) if part.len() > 1 => most = part.len() / 2,
                Answer::Refused(text) => return Err(Failure { taken, error: SinkError::Refused { text } }),
                Answer::Error(error) => return Err(Failure { taken, error }),
            }
        }
        Ok(())
    }

    /// One request.
    async fn post(&self, part: &[Item]) -> Answer {
        let mut headers = HeaderMap::new();
        let mut bodies = Vec::with_capacity(part.len());
        for item in part {
            let event = match Event::of(&item.line) {
                Ok(event) => event,
                Err(error) => return Answer::Refused(format!("it is {error}")),
            };
            match self.format {
                CloudEvents::Binary => {
                    for (name, value) in event.headers() {
                        let value = HeaderValue::try_from(value).expect("an encoded attribute is printable ASCII");
                        headers.insert(name, value);
                    }
                    bodies.push(item.line.to_vec());
                }
                CloudEvents::Structured | CloudEvents::Batched => bodies.push(event.structured()),
            }
        }
        let (content_type, body) = match self.format {
            CloudEvents::Binary => ("application/json", bodies.concat()),
            CloudEvents::Structured => ("application/cloudevents+json", bodies.concat()),
            CloudEvents::Batched => {
                let joined = bodies.join(&b","[..]);
                ("application/cloudevents-batch+json", [&b"["[..], &joined, b"]"].concat())
            }
        };
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        let body = bytes::Bytes::from(body);
        if let Some(signer) = &self.link.signer {
            let seconds = ambient::now().as_second();
            headers.extend(signer.headers(&name_of(part), seconds, &body));
        }
        let request = match self.link.request(Method::POST) {
            Ok(request) => request.headers(headers).body(body.clone()),
            Err(error) => return Answer::Error(error),
        };
        match self.link.send(request).await {
            Ok(response) => self.judge(response, &body).await,
            Err(text) => Answer::Error(SinkError::retry(text)),
        }
    }

    /// What an answer means.
    async fn judge(&self, mut response: Response, sent: &[u8]) -> Answer {
        let status = response.status();
        let wait = retry_after(response.headers(), ambient::now().into());
        let location = response.headers().get(LOCATION).and_then(|to| to.to_str().ok()).map(shown);
        let mut answer = Vec::new();
        // An answer without a readable text is an answer too.
        while let Ok(Some(chunk)) = response.chunk().await {
            answer.extend_from_slice(&chunk[..chunk.len().min(ANSWER_BYTES - answer.len())]);
            if answer.len() == ANSWER_BYTES {
                break;
            }
        }
        if status.is_success() {
            return Answer::Taken;
        }
        let url = &self.link.shown;
        let said = self.link.quotable(&answer, sent).map(|said| format!(": {said}")).unwrap_or_default();
        if status.is_redirection() {
            let to = location.map(|to| format!(" to {to}")).unwrap_or_default();
            return Answer::Error(SinkError::halt(format!(
                "{url} answered {status}{to}, and decklog does not follow redirects; set `url` to where events are taken"
            )));
        }
        let retry = |text: String, after| Answer::Error(SinkError::Retry { text, after });
        match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::PROXY_AUTHENTICATION_REQUIRED => retry(
                format!(
                    "{url} answered {status}{said}; renew the credentials in `bearer_file`, `headers_file` or `headers`: the files are read again before each try"
                ),
                Some(wait.unwrap_or_default().max(CREDENTIALS_WAIT)),
            ),
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS => {
                retry(format!("{url} answered {status}{said}"), wait)
            }
            _ if status.is_client_error() => Answer::Refused(format!("{url} answered {status}{said}")),
            _ => retry(format!("{url} answered {status}{said}"), wait),
        }
    }
}

/// What a request is called where it is signed: the id of its only entry, or what it reaches from and to.
fn name_of(part: &[Item]) -> String {
    let Some(Ok(first)) = part.first().map(|item| Entry::parse(&item.line)) else { return String::new() };
    match part {
        [_] => first.id.into_owned(),
        [.., last] => format!("{}_{}_{}", first.epoch, first.seq, last.seq),
        [] => String::new(),
    }
}

/// As many entries from the beginning as go into one request: at least one.
fn first_part(batch: &[Item], most: usize, most_bytes: usize) -> &[Item] {
    let mut bytes = 0;
    let fits = |item: &&Item| {
        bytes += item.line.len();
        bytes <= most_bytes
    };
    let count = batch.iter().take(most).take_while(fits).count();
    &batch[..count.max(1)]
}

/// How long a server asks to wait: seconds, or a date.
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let date = rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
            SystemTime::from(date).duration_since(now).unwrap_or_default()
        }
    };
    Some(wait.min(LONGEST_WAIT))
}

impl Sink for HttpSink {
    fn class(&self) -> Class {
        Class::AtLeastOnce
    }

    fn limits(&self) -> Limits {
        match self.format {
            // Few, because what is taken is acknowledged only when the whole batch is: a crash repeats at most these.
            CloudEvents::Binary | CloudEvents::Structured => {
                Limits { entries: 32, bytes: READ_BYTES, linger: Duration::ZERO }
            }
            CloudEvents::Batched => {
                Limits { entries: self.batch_size, bytes: self.batch_bytes, linger: self.batch_age }
            }
        }
    }

    fn position<'a>(&'a mut self, _cursor: &'a Position) -> BoxFuture<'a, Result<Option<Position>, SinkError>> {
        std::future::ready(Ok(None)).boxed()
    }

    fn deliver<'a>(&'a mut self, batch: &'a [Item]) -> BoxFuture<'a, Result<(), Failure>> {
        self.send(batch).boxed()
    }

    fn reopen(&mut self) {
        self.link.renew();
    }

    fn check(&mut self) -> BoxFuture<'_, Result<(), SinkError>> {
        async {
            self.link.refresh().await?;
            // OPTIONS creates nothing. Whatever it answers, there is a server.
            let request = self.link.request(Method::OPTIONS)?;
            let status = self.link.send(request).await.map_err(SinkError::retry)?.status();
            let url = &self.link.shown;
            if status.is_redirection() {
                return Err(SinkError::halt(format!(
                    "{url} answers {status}, and decklog does not follow redirects; set `url` to where events are taken"
                )));
            }
            if status == StatusCode::UNAUTHORIZED {
                return Err(SinkError::retry(format!("{url} answers {status}; correct the credentials")));
            }
            Ok(())
        }
        .boxed()
    }
}
