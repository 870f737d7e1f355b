//! CloudEvents over HTTP, or what a template makes of each entry: at least once, in order, one request at a time.
//!
//! A 2xx answer means taken. Everything that may work later is tried again, and a lost answer is a repeat with the same
//! id and the same bytes. Redirects are not followed: a log with redacted but private facts goes only where the
//! configuration says, and never to a link-local address. A proxy is used where the environment names one and `allow_networks` names nothing (`sink::link::Route`).

mod settings;
mod sign;
mod template;
#[cfg(test)]
mod tests;
mod update;

use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, RequestBuilder, StatusCode};

pub use super::link::Transport;
use super::link::{End, HttpClient, HttpEndpoint, Login, first_part};
use super::settings::Clash;
use super::{Class, Failure, Item, Limits, LogPosition, Receipt, Sink, SinkError};
use crate::core::model::Seq;
use crate::core::runtime;
use crate::core::wire::cloudevents::Event;
use crate::sink::notify::Incident;
pub use settings::{BodyFormat, Settings};
use sign::Signer;
pub use template::Escape;
use template::Template;
use update::{Pointer, Said, Update};

/// About how many bytes of entries that go one by one are read at once.
const READ_BYTES: usize = 1 << 20;

/// Bytes of an answer that are read: enough for the text of an error, and for a short answer to leave the connection usable.
const ANSWER_BYTES: usize = 4 << 10;

/// Bytes of an answer that is looked into: some repeat the whole message in it.
const LONG_ANSWER_BYTES: usize = 512 << 10;

/// Header of a body that a template made: the same at every try of an entry.
const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// Remedy for rejected credentials.
const HEAL: &str = "renew the credentials in `bearer_file`, `headers_file` or `headers`";

/// Meaning of the end of one request.
enum Answer {
    Taken,
    /// This request will never be taken; a part of it may.
    Refused(String),
    Error(SinkError),
}

/// A template, and what it was made of.
#[derive(Debug)]
struct Templated {
    config: Settings,
    content_type: HeaderValue,
    template: Template,
    /// Set to read its file again before the next use.
    is_stale: bool,
}

impl Templated {
    fn new(config: &Settings) -> Result<Option<Self>, String> {
        let Some(template) = config.template().map_err(|clash| told(&clash))? else { return Ok(None) };
        let content_type = HeaderValue::from_str(config.content_type()).map_err(|_| "content_type is no header")?;
        Ok(Some(Self { config: config.clone(), content_type, template, is_stale: false }))
    }

    fn refresh(&mut self) -> Result<(), String> {
        if self.is_stale
            && let Some(template) = self.config.template().map_err(|clash| told(&clash))?
        {
            self.template = template;
            self.is_stale = false;
        }
        Ok(())
    }
}

/// A sentence about a key.
fn told(Clash { key, found, expected }: &Clash) -> String {
    format!("{key}: {found}; expected {expected}")
}

/// A server that takes CloudEvents, or bodies of its own.
#[derive(Debug)]
pub struct HttpSink {
    link: HttpClient,
    signer: Option<Signer>,
    format: BodyFormat,
    template: Option<Templated>,
    /// Value of an answer that is true where it accepts.
    accepted: Option<Pointer>,
    update: Option<Update>,
    /// Answers to messages since the last delivery began.
    receipts: Vec<(Seq, Receipt)>,
    batch_size: usize,
    batch_bytes: usize,
    batch_age: Duration,
}

impl HttpSink {
    /// A sink that posts where the configuration says; nothing is connected yet.
    ///
    /// # Errors
    /// Where the URL or a header can never work. The text never quotes a header's value.
    pub fn new(config: &Settings) -> Result<Self, String> {
        let mut link = HttpClient::new(HttpEndpoint {
            url: &config.url,
            timeout: *config.timeout,
            headers: Some(&config.headers),
            headers_file: config.headers_file.as_ref(),
            login: config.bearer_file.clone().map(Login::Bearer),
            tls: &config.tls,
            allow_networks: &config.allow_networks,
            http2: false,
        })?;
        let url_of_updates = config.update.as_ref().and_then(|update| update.url.as_ref()).map(|url| url.of("1"));
        url_of_updates.iter().for_each(|url| link.keep_private(url));
        Ok(Self {
            link,
            signer: config.signing_key_file.as_deref().map(Signer::new),
            format: config.format,
            template: Templated::new(config)?,
            accepted: config.accepted.clone(),
            update: config.update.as_deref().cloned(),
            receipts: Vec::new(),
            batch_size: config.batch_size.max(1),
            batch_bytes: config.batch_bytes.in_memory(),
            batch_age: config.batch_age.map_or(Duration::ZERO, |age| *age),
        })
    }

    /// For simulations: what it sends goes to `wire` and not over a network.
    ///
    /// # Errors
    /// As [`HttpSink::new`].
    #[doc(hidden)]
    pub fn through(config: &Settings, wire: Transport) -> Result<Self, String> {
        let mut sink = Self::new(config)?;
        sink.link.wire = Some(wire);
        Ok(sink)
    }

    /// Reads the files that there are.
    async fn refresh(&mut self) -> Result<(), SinkError> {
        self.link.refresh().await?;
        if let Some(signer) = &mut self.signer {
            signer.refresh().await?;
        }
        if let Some(template) = &mut self.template {
            template.refresh().map_err(SinkError::retry)?;
        }
        Ok(())
    }

    /// Sends entries in as few requests as they fit in.
    async fn send(&mut self, batch: &[Item]) -> Result<(), Failure> {
        self.receipts.clear();
        self.refresh().await.map_err(|error| Failure { taken: 0, error })?;
        let mut taken = 0;
        // Halved when the server refuses several entries together, until the one that it means stands alone.
        let mut most = if self.format == BodyFormat::Batched { self.batch_size } else { 1 };
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

    /// Makes the headers and the body of a request; none where the template makes nothing of the entry.
    ///
    /// # Errors
    /// A sentence, where these entries can never be sent.
    fn made(&self, part: &[Item]) -> Result<Option<(HeaderMap, Bytes)>, String> {
        let mut headers = HeaderMap::new();
        if let (Some(made), [item]) = (&self.template, part) {
            let told = |error| format!("the template has no body for it: {error}");
            let Some(body) = made.template.body(item).map_err(told)? else { return Ok(None) };
            headers.insert(CONTENT_TYPE, made.content_type.clone());
            // As a quoted string, which is what the header is to hold.
            let name = HeaderValue::try_from(format!("\"{}\"", name_of(part)));
            headers.extend(name.ok().map(|name| (HeaderName::from_static(IDEMPOTENCY_KEY), name)));
            return Ok(Some((headers, body)));
        }
        let mut body = Vec::with_capacity(part.iter().map(|item| item.line.len() + 512).sum());
        for item in part {
            let event = item.header().map(|header| Event::of(header, &item.line)).map_err(|e| format!("it is {e}"))?;
            match self.format {
                BodyFormat::Binary => {
                    for (name, value) in event.headers() {
                        let value = HeaderValue::try_from(value).expect("an encoded attribute is printable ASCII");
                        headers.insert(name, value);
                    }
                    body.extend_from_slice(&item.line);
                }
                BodyFormat::Structured | BodyFormat::Template => event.write_structured(&mut body),
                BodyFormat::Batched => {
                    body.push(if body.is_empty() { b'[' } else { b',' });
                    event.write_structured(&mut body);
                }
            }
        }
        let content_type = match self.format {
            BodyFormat::Binary => "application/json",
            BodyFormat::Structured | BodyFormat::Template => "application/cloudevents+json",
            BodyFormat::Batched => {
                body.push(b']');
                "application/cloudevents-batch+json"
            }
        };
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        Ok(Some((headers, body.into())))
    }

    /// One request, or none for an entry that the template passes over.
    async fn post(&mut self, part: &[Item]) -> Answer {
        let incident = part.first().and_then(|item| item.incident.clone()).filter(|one| one.digest.is_empty());
        let (end, name) = self.exchange(part, incident.as_deref()).await;
        let (Some(incident), Some(seq)) =
            (incident.filter(|_| self.update.is_some()), part.first().map(|item| item.seq))
        else {
            return end;
        };
        match end {
            // It says nothing that was not sent: the message lacks a number, and nobody has to act.
            Answer::Refused(text) if incident.is_update() => {
                self.receipts.push((seq, Receipt::Final(text)));
                Answer::Taken
            }
            Answer::Taken if !incident.is_update() => {
                self.receipts.extend(name.map(|name| (seq, name)));
                Answer::Taken
            }
            end @ (Answer::Taken | Answer::Refused(_) | Answer::Error(_)) => end,
        }
    }

    /// Sends a request. Gives its end, and what names the message in the answer to a first one.
    async fn exchange(&self, part: &[Item], incident: Option<&Incident>) -> (Answer, Option<Receipt>) {
        let (mut headers, body) = match self.made(part) {
            Ok(Some(made)) => made,
            Ok(None) => return (Answer::Taken, None),
            Err(text) => return (Answer::Refused(text), None),
        };
        if let Some(signer) = &self.signer {
            let seconds = runtime::now().as_second();
            headers.extend(signer.headers(&name_of(part), seconds, &body));
        }
        let request = match self.request(incident) {
            Ok(request) => request.headers(headers).body(body.clone()),
            Err(error) => return (Answer::Error(error), None),
        };
        let asked = match (&self.accepted, &self.update) {
            (None, None) => self.link.ask_status(request, ANSWER_BYTES).await,
            _ => self.link.ask(request, LONG_ANSWER_BYTES).await,
        };
        let answer = match asked {
            Ok(answer) => answer,
            Err(error) => return (Answer::Error(error), None),
        };
        // A receiver that takes messages and no changes of them, or has those elsewhere, is one that refuses updates.
        let takes_none = answer.status.is_redirection()
            || matches!(answer.status, StatusCode::FORBIDDEN | StatusCode::NOT_IMPLEMENTED);
        if takes_none && incident.is_some_and(Incident::is_update) {
            return (Answer::Refused(self.link.told(&answer, &body)), None);
        }
        let name = self.update.as_ref().map(|update| self.named(&update.reference, &answer));
        (self.meaning(&answer, &body), name)
    }

    /// The receiver's name for a message that it took.
    fn named(&self, pointer: &Pointer, answer: &super::link::Answer) -> Receipt {
        if let Some(name) = update::reference(pointer, answer) {
            return Receipt::Named(name);
        }
        let (url, status) = (&self.link.shown, answer.status);
        let lacks = match answer.end {
            End::Whole => "without a text or an integer",
            End::TooLong => "with more than 512 KiB, and nothing",
            End::BrokeOff => "with a body that broke off, and nothing",
        };
        Receipt::Unnamed(format!(
            "{url} answered {status} {lacks} at {pointer}; correct `reference`, or let the receiver answer with the message"
        ))
    }

    /// A request for a message, or for an update of it.
    fn request(&self, incident: Option<&Incident>) -> Result<RequestBuilder, SinkError> {
        let (Some(update), Some(incident)) = (&self.update, incident.filter(|incident| incident.is_update())) else {
            return self.link.request(Method::POST);
        };
        match &update.url {
            Some(url) => self.link.request_to(update.method.into(), url.of(&incident.reference)),
            None => self.link.request(update.method.into()),
        }
    }

    /// Returns the meaning of an answer. One without a readable text is an answer too.
    fn meaning(&self, answer: &super::link::Answer, body: &[u8]) -> Answer {
        if let Some(error) = self.link.meaning(answer, body, HEAL) {
            return Answer::Error(error);
        }
        if !answer.status.is_success() {
            return Answer::Refused(self.link.told(answer, body));
        }
        let Some(accepted) = &self.accepted else { return Answer::Taken };
        let (url, status) = (&self.link.shown, answer.status);
        match update::said(accepted, answer) {
            Said::Yes => Answer::Taken,
            Said::Credentials(error) => Answer::Error(self.link.rejected(answer, &format!(": {error}"), HEAL)),
            Said::Later(error) => Answer::Error(SinkError::Retry {
                text: format!("{url} answered {status}: {error}"),
                after: answer.wait(),
            }),
            Said::No(error) => {
                // A word can be a name that was sent, or a secret.
                let is_sent = memchr::memmem::find(body, error.as_bytes()).is_some();
                let quoted = self.link.quotable(error.as_bytes(), body).filter(|_| !is_sent);
                let error = quoted.unwrap_or_else(|| "false".to_owned());
                Answer::Refused(format!("{url} answered {status}, and {accepted} is not true: {error}"))
            }
            Said::BrokeOff => Answer::Error(SinkError::retry(format!("the answer of {url} broke off"))),
            Said::Nothing => Answer::Refused(format!("{url} answered {status} without a value at {accepted}")),
        }
    }
}

/// Returns the id of a signed request: that of its only entry, or those of its first and last.
fn name_of(part: &[Item]) -> String {
    let Some(Ok(first)) = part.first().map(Item::header) else { return String::new() };
    match part {
        // It shows the first entry of the incident, and is another one after each last entry.
        [Item { incident: Some(incident), .. }] if incident.is_update() => {
            format!("{}_{}_{}", first.epoch, incident.first, incident.last)
        }
        [_] => format!("{}_{}", first.epoch, first.seq),
        [.., last] => format!("{}_{}_{}", first.epoch, first.seq, last.seq),
        [] => String::new(),
    }
}

impl Sink for HttpSink {
    fn class(&self) -> Class {
        Class::AtLeastOnce
    }

    fn limits(&self) -> Limits {
        match self.format {
            // Few, because what is taken is acknowledged only when the whole batch is: a crash repeats at most twice these.
            BodyFormat::Binary | BodyFormat::Structured | BodyFormat::Template => {
                Limits { entries: 32, bytes: READ_BYTES, linger: Duration::ZERO }
            }
            BodyFormat::Batched => Limits { entries: self.batch_size, bytes: self.batch_bytes, linger: self.batch_age },
        }
    }

    fn position<'a>(&'a mut self, _cursor: &'a LogPosition) -> BoxFuture<'a, Result<Option<LogPosition>, SinkError>> {
        std::future::ready(Ok(None)).boxed()
    }

    fn deliver<'a>(&'a mut self, batch: &'a [Item]) -> BoxFuture<'a, Result<(), Failure>> {
        self.send(batch).boxed()
    }

    fn receipts(&mut self) -> Vec<(Seq, Receipt)> {
        std::mem::take(&mut self.receipts)
    }

    fn reopen(&mut self) {
        self.link.renew();
        self.signer.iter_mut().for_each(Signer::forget);
        self.template.iter_mut().for_each(|template| template.is_stale = true);
    }

    fn through(&self) -> String {
        self.link.through()
    }

    fn check(&mut self) -> BoxFuture<'_, Result<(), SinkError>> {
        async {
            self.refresh().await?;
            // OPTIONS creates nothing. Whatever it answers, there is a server.
            let request = self.link.request(Method::OPTIONS)?;
            let status = self.link.send(request).await.map_err(SinkError::retry)?.status();
            let url = &self.link.shown;
            if status.is_redirection() {
                return Err(SinkError::halt(format!(
                    "{url} answers {status}, and decklog does not follow redirects; set `url` to where events are taken"
                )));
            }
            if status == StatusCode::PROXY_AUTHENTICATION_REQUIRED
                && let Some(error) = self.link.proxy_refused()
            {
                return Err(error);
            }
            if status == StatusCode::UNAUTHORIZED {
                return Err(SinkError::retry(format!("{url} answers {status}; correct the credentials")));
            }
            // Many servers do not know OPTIONS, and say so in one way or another.
            let unwell = status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED;
            if unwell || status == StatusCode::PROXY_AUTHENTICATION_REQUIRED {
                return Err(SinkError::retry(format!("{url} answers {status}")));
            }
            Ok(())
        }
        .boxed()
    }
}
