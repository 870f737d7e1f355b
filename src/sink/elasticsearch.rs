//! Documents in Elasticsearch or OpenSearch: at least once, in order, and a repeat changes nothing, because an entry's
//! id is the id of its document and a document is only ever created.
//!
//! An id names a change. A cluster that was restored may give it to another change, and a journal that was made again, or
//! another decklog, records the same change in an entry of its own. So an id that is taken is looked at: where another
//! entry has it, ours gets a document whose id has its epoch and seq as well. No entry is missing for another one.
//!
//! A document has the few keys of an entry that one searches by, and the whole entry as one text. The object itself is
//! no part of it: two custom resources give one path two types, and a server refuses what does not fit its mapping, what
//! is nested too deeply, what has a null character in a key or a number of more digits than it parses. A text fits
//! always, and gives back every byte.

mod answer;
mod document;
mod settings;
#[cfg(test)]
mod tests;

pub use settings::{Index, Settings};

use std::borrow::Cow;
use std::collections::BTreeSet;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use reqwest::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderValue};
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::json;

use super::link::{Answer, HttpClient, HttpEndpoint, Login, first_part, gzip};
use super::settings::Gzip;
use super::{Class, Failure, Item, LESS, Limits, LogPosition, Sink, SinkError, UNNAMED};
use crate::core::model::Seq;
use crate::core::wire::{Entry, EntryError, Header};
use answer::{Bulk, Found, Granted, Outcome, Refusal, Why};
use document::{Action, Create, Document};

/// About how many bytes of entries one request carries, unless a single entry is larger.
const BATCH_BYTES: usize = 4 << 20;

/// Bytes of an answer that are read. The answer about each document is requested in a short form.
const ANSWER_BYTES: usize = 16 << 20;

/// Parameter that selects the parts of a bulk answer.
const FILTER: (&str, &str) =
    ("filter_path", "errors,items.*._index,items.*.status,items.*.error.type,items.*.error.reason");

/// The longest name of an index.
const INDEX_BYTES: usize = 255;

/// Longer texts are not searched by: the index cannot hold a term of more than 32,766 bytes.
const LONGEST_TERM: usize = 8191;

/// Privileges on its indices, in Elasticsearch's terms. Documents are read back by id.
const RIGHTS: [&str; 2] = ["create_doc", "read"];

/// Remedy for rejected credentials.
const HEAL: &str = "renew the credentials in `password_file`, `api_key_file` or `headers_file`";

/// A cluster that takes documents.
#[derive(Debug)]
pub struct ElasticsearchSink {
    link: HttpClient,
    /// The name of the sink.
    name: String,
    index: Index,
    /// The name of the index template.
    template: String,
    batch_size: usize,
    /// Bytes of entries in one request: fewer, once a larger one was refused.
    bytes: usize,
    compress: Gzip,
}

impl ElasticsearchSink {
    /// A sink that writes where the configuration says; nothing is connected yet.
    ///
    /// # Errors
    /// Where the URL, the index or the credentials can never work.
    pub fn new(config: &Settings) -> Result<Self, String> {
        let login = match (&config.user, &config.password_file, &config.api_key_file) {
            (None, None, None) => None,
            (None, None, Some(path)) => Some(Login::ApiKey(path.clone())),
            (Some(user), Some(path), None) => Some(Login::Basic { user: user.clone(), password_file: path.clone() }),
            (Some(_), None, None) => return Err("`user` needs `password_file`".to_owned()),
            (None, Some(_), None) => return Err("`password_file` needs `user`".to_owned()),
            (_, _, Some(_)) => {
                return Err("`api_key_file` and `user` with `password_file` exclude each other".to_owned());
            }
        };
        let link = HttpClient::new(HttpEndpoint {
            url: &config.url,
            timeout: *config.timeout,
            headers: None,
            headers_file: config.headers_file.as_ref(),
            login,
            tls: &config.tls,
            allow_networks: &[],
            http2: false,
        })?;
        Ok(Self {
            link,
            name: UNNAMED.to_owned(),
            index: config.index.clone(),
            template: config.index.to_string().replace(['{', '}'], ""),
            batch_size: config.batch_size.max(1),
            bytes: BATCH_BYTES,
            compress: config.compress,
        })
    }

    /// Sends entries in as few requests as they fit in.
    async fn send(&mut self, batch: &[Item]) -> Result<(), Failure> {
        self.link.refresh().await.map_err(|error| Failure { taken: 0, error })?;
        let mut taken = 0;
        // Halved when the server refuses several entries together, until the one that it means stands alone.
        let mut most = self.batch_size;
        // Whose ids other entries have.
        let mut apart = BTreeSet::new();
        while taken < batch.len() {
            let part = first_part(&batch[taken..], most, self.bytes);
            let fail = |more: usize, error| Err(Failure { taken: taken + more, error });
            let body = match self.body(part, &apart) {
                Ok(body) => body,
                Err((0, text)) => return fail(0, SinkError::Refused { text }),
                Err((more, _)) => {
                    most = more;
                    continue;
                }
            };
            let answer = match self.post(&body).await {
                Ok(answer) => answer,
                Err(error) => return fail(0, error),
            };
            let several = part.len() > 1;
            match answer.status {
                status if status.is_success() => match self.judge(&answer, part, &mut apart, &body).await {
                    (more, None) => taken += more,
                    (more, Some(error)) => return fail(more, error),
                },
                StatusCode::PAYLOAD_TOO_LARGE if several => {
                    self.bytes = part.iter().map(|item| item.line.len()).sum::<usize>() / 2;
                }
                StatusCode::BAD_REQUEST if several => most = part.len() / 2,
                StatusCode::PAYLOAD_TOO_LARGE => {
                    let said = self.link.told(&answer, &body);
                    let text = format!("{said}; raise http.max_content_length there, or {LESS}");
                    return fail(0, SinkError::Refused { text });
                }
                StatusCode::BAD_REQUEST => {
                    return fail(0, SinkError::Refused { text: self.link.told(&answer, &body) });
                }
                _ => return fail(0, self.problem(&answer, &body)),
            }
        }
        Ok(())
    }

    /// The lines of a bulk request. The error says how many entries come before the one that cannot be sent, and why.
    fn body(&self, part: &[Item], apart: &BTreeSet<Seq>) -> Result<Bytes, (usize, String)> {
        let mut out = Vec::with_capacity(part.iter().map(|item| item.line.len() * 5 / 4 + 512).sum());
        for (at, item) in part.iter().enumerate() {
            let wrong = |text: &dyn std::fmt::Display| (at, format!("it is {text}"));
            let head = item.without_object();
            let entry = Entry::parse(&head).map_err(|error| wrong(&error))?;
            let line = std::str::from_utf8(&item.line).map_err(|_| wrong(&"no text"))?;
            let id = match apart.contains(&item.seq) {
                true => format!("{}.{}.{}", entry.id, entry.epoch, entry.seq).into(),
                false => Cow::Borrowed(&*entry.id),
            };
            let action = Action { create: Create { index: self.index_of(&entry), id } };
            serde_json::to_writer(&mut out, &action).expect("texts always serialise into memory");
            out.push(b'\n');
            let document = Document::of(&entry, line);
            serde_json::to_writer(&mut out, &document).expect("texts always serialise into memory");
            out.push(b'\n');
        }
        Ok(out.into())
    }

    fn index_of(&self, entry: &Header<'_>) -> String {
        let mut name = self.index.render(entry, |value| {
            let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_' | '.');
            value.to_lowercase().chars().map(|c| if fits(c) { c } else { '-' }).collect()
        });
        name.truncate(INDEX_BYTES);
        name
    }

    async fn post(&self, body: &Bytes) -> Result<Answer, SinkError> {
        let request = self.link.request_at(Method::POST, &["_bulk"], &[FILTER])?;
        let request = request.header(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
        let request = match self.compress {
            Gzip::Gzip => request.header(CONTENT_ENCODING, HeaderValue::from_static("gzip")).body(gzip(body)),
            Gzip::None => request.body(body.clone()),
        };
        self.ask(request).await
    }

    /// Sends a request. Of an answer that is an error only what is for people is kept.
    async fn ask(&self, request: RequestBuilder) -> Result<Answer, SinkError> {
        let mut answer = self.link.ask(request, ANSWER_BYTES).await?;
        if !answer.status.is_success()
            && let Ok(Refusal { error: Some(error) }) = serde_json::from_slice(&answer.body)
        {
            answer.body = match error {
                Why::Text(text) => text.into_bytes(),
                Why::Reason { kind, reason } => format!("{kind}: {reason}").into_bytes(),
            };
        }
        Ok(answer)
    }

    /// Returns the number of leading documents that are stored now, and the error of the next one: none if it only has to be
    /// sent under another id.
    async fn judge(
        &self,
        answer: &Answer,
        part: &[Item],
        apart: &mut BTreeSet<Seq>,
        body: &[u8],
    ) -> (usize, Option<SinkError>) {
        let (url, sent) = (&self.link.shown, part.len());
        let bulk: Option<Bulk<'_>> = serde_json::from_slice(&answer.body).ok().filter(|_| answer.is_whole());
        // Some that speak this protocol do not list what they took.
        if bulk.as_ref().is_some_and(|bulk| bulk.errors == Some(false) && bulk.items.is_empty()) {
            return (sent, None);
        }
        let Some(bulk) = bulk.filter(|bulk| bulk.items.len() == sent) else {
            // Nobody knows what it took. A document that is there already is not made again.
            let status = answer.status;
            let text = format!(
                "{url} answered {status} without what became of each of {sent} documents; set `url` to an Elasticsearch or \
                 OpenSearch, or let the proxy before it pass its answers on"
            );
            return (0, Some(SinkError::retry(text)));
        };
        let there = bulk.items.iter().take_while(|item| item.create.is_there()).count();
        let held = bulk.items[..there].iter().zip(part).enumerate().filter(|(_, (held, item))| {
            held.create.status == StatusCode::CONFLICT.as_u16() && !apart.contains(&item.seq)
        });
        let held: Vec<(usize, &str)> = held.map(|(at, (held, _))| (at, &*held.create.index)).collect();
        if let Some((first_held, _)) = held.first() {
            match self.others(part, &held).await {
                Err(error) => return (*first_held, Some(error)),
                Ok(others) if others.is_empty() => {}
                Ok(others) => {
                    apart.extend(others.iter().map(|at| part[*at].seq));
                    return (others[0], None);
                }
            }
        }
        (there, bulk.items.get(there).map(|item| self.reason(&item.create, body)))
    }

    /// Returns those entries whose ids belong to other entries in these indices.
    async fn others(&self, part: &[Item], held: &[(usize, &str)]) -> Result<Vec<usize>, SinkError> {
        let url = &self.link.shown;
        let wrong = |error: EntryError| SinkError::retry(error.to_string());
        let entries = held.iter().map(|(at, _)| part[*at].header()).collect::<Result<Vec<_>, _>>();
        let entries = entries.map_err(wrong)?;
        let docs = held.iter().zip(&entries).map(|((_, index), entry)| json!({ "_index": index, "_id": entry.id }));
        let body = json!({ "docs": docs.collect::<Vec<_>>() }).to_string();
        let source = ("_source_includes", "epoch,seq");
        let request = self.link.request_at(Method::POST, &["_mget"], &[source])?;
        let request = request.header(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let answer = self.ask(request.body(body.clone())).await?;
        if !answer.status.is_success() {
            return Err(self.problem(&answer, body.as_bytes()));
        }
        let found: Option<Found<'_>> = serde_json::from_slice(&answer.body).ok().filter(|_| answer.is_whole());
        let found = found.map(|found| found.docs).filter(|docs| docs.len() == entries.len()).unwrap_or_default();
        let mut others = Vec::new();
        for (number, ((at, _), entry)) in held.iter().zip(&entries).enumerate() {
            let Some(source) = found.get(number).and_then(|doc| doc.source.as_ref()) else {
                return Err(SinkError::retry(format!(
                    "{url} does not show a document that it says is there; give the user the right to read"
                )));
            };
            if (&*source.epoch, source.seq) != (&*entry.epoch, entry.seq) {
                others.push(*at);
            }
        }
        Ok(others)
    }

    /// Returns the reason why a document is not stored.
    fn reason(&self, outcome: &Outcome<'_>, body: &[u8]) -> SinkError {
        let url = &self.link.shown;
        let status = outcome.status;
        let (kind, reason) = outcome.error.as_ref().map_or(("", ""), |error| (&error.kind, &error.reason));
        let said = self.link.quotable(reason.as_bytes(), body).map(|said| format!(": {said}")).unwrap_or_default();
        // A word of the server's own, as long as it is one.
        let kind = if kind.bytes().all(|b| b.is_ascii_lowercase() || b == b'_') { kind } else { "" };
        let text = format!("{url} answered {status} {kind}{said}");
        match (status, kind) {
            (_, "cluster_block_exception") => SinkError::renew(format!(
                "{text}; make room on its disks or lift the block of the index, whichever it is"
            )),
            (404, _) => SinkError::halt(format!(
                "{text}; make the index, or let it be made (action.auto_create_index), and send SIGHUP"
            )),
            (400, "illegal_argument_exception") if reason.contains("no write index") => {
                SinkError::halt(format!("{text}; give the alias a write index, and send SIGHUP"))
            }
            (400, "index_closed_exception") => SinkError::retry(format!("{text}; open the index")),
            (401 | 403, _) => {
                SinkError::renew(format!("{text}; give the user the right to create documents and indices"))
            }
            // 409 with another reason than a document that is there.
            (408 | 409 | 429, _) => SinkError::retry(text),
            (400..=499, _) => SinkError::Refused { text },
            _ => SinkError::retry(text),
        }
    }

    /// Returns the meaning of an answer without a list of documents.
    fn problem(&self, answer: &Answer, sent: &[u8]) -> SinkError {
        self.link.meaning(answer, sent, HEAL).unwrap_or_else(|| {
            let said = self.link.told(answer, sent);
            SinkError::halt(format!("{said}; set `url` to an Elasticsearch or OpenSearch, and send SIGHUP"))
        })
    }

    /// The index template: which indices are ours, and how their documents are searched.
    fn index_template(&self) -> String {
        let word = || json!({ "type": "keyword", "ignore_above": LONGEST_TERM });
        let date = || json!({ "type": "date", "ignore_malformed": true });
        let template = json!({
            "index_patterns": [self.index.pattern()],
            "priority": 200,
            "version": 1,
            "_meta": { "description": format!("The index template {} of decklog", self.template) },
            "template": { "mappings": {
                "dynamic": false,
                "properties": {
                    "@timestamp": date(),
                    "seq": { "type": "long" },
                    "epoch": word(),
                    "id": word(),
                    "type": word(),
                    "evidence": word(),
                    "cluster": { "properties": { "name": word(), "uid": word() } },
                    "apiVersion": word(),
                    "kind": word(),
                    "resource": word(),
                    "namespace": word(),
                    "name": word(),
                    "uid": word(),
                    "resourceVersion": word(),
                    "managers": word(),
                    "change": { "properties": { "areas": word(), "paths": word(), "managers": word() } },
                    "gap": { "properties": { "why": word(), "from": word(), "to": word(), "since": date() } },
                    "redacted": word(),
                    "entry": { "type": "text", "norms": false },
                },
            } },
        });
        let text = serde_json::to_string_pretty(&template).expect("JSON always serialises into memory");
        text + "\n"
    }

    /// Reports whether the index template exists; none if it may not be read.
    async fn has_template(&mut self) -> Result<Option<bool>, SinkError> {
        self.link.refresh().await?;
        self.exists(self.link.request_at(Method::GET, &["_index_template", &self.template], &[])?).await
    }

    /// Returns the missing privileges on its indices, if the server can be queried for them.
    async fn lacks(&self) -> Result<Vec<&'static str>, SinkError> {
        let asked = json!({ "index": [{ "names": [self.index.pattern()], "privileges": RIGHTS }] });
        let request = self.link.request_at(Method::POST, &["_security", "user", "_has_privileges"], &[])?;
        let request = request.header(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let answer = self.link.ask(request.body(asked.to_string()), ANSWER_BYTES).await?;
        let granted: Option<Granted> = serde_json::from_slice(&answer.body).ok().filter(|_| answer.status.is_success());
        let refused = |right: &&str| {
            let granted = granted.iter().flat_map(|granted| granted.index.values());
            granted.flatten().any(|(name, is_granted)| name == right && !is_granted)
        };
        Ok(RIGHTS.into_iter().filter(refused).collect())
    }

    async fn exists(&self, request: RequestBuilder) -> Result<Option<bool>, SinkError> {
        let answer = self.link.ask(request, ANSWER_BYTES).await?;
        // Anybody says that something is not there; to a HEAD it is said without words.
        let ours = || answer.body.is_empty() || serde_json::from_slice::<Refusal>(&answer.body).is_ok();
        match answer.status {
            StatusCode::OK => Ok(Some(true)),
            StatusCode::NOT_FOUND if ours() => Ok(Some(false)),
            StatusCode::FORBIDDEN => Ok(None),
            _ => Err(self.problem(&answer, &[])),
        }
    }
}

impl Sink for ElasticsearchSink {
    fn class(&self) -> Class {
        Class::AtLeastOnce
    }

    fn bind(&mut self, sink: &str, _cluster: &crate::core::model::Cluster) {
        sink.clone_into(&mut self.name);
    }

    fn limits(&self) -> Limits {
        Limits { entries: self.batch_size, bytes: BATCH_BYTES, linger: std::time::Duration::ZERO }
    }

    fn position<'a>(&'a mut self, _cursor: &'a LogPosition) -> BoxFuture<'a, Result<Option<LogPosition>, SinkError>> {
        std::future::ready(Ok(None)).boxed()
    }

    fn deliver<'a>(&'a mut self, batch: &'a [Item]) -> BoxFuture<'a, Result<(), Failure>> {
        self.send(batch).boxed()
    }

    fn reopen(&mut self) {
        self.link.renew();
        self.bytes = BATCH_BYTES;
    }

    fn provisioning_script(&self) -> Option<String> {
        Some(self.index_template())
    }

    fn provision(&mut self) -> BoxFuture<'_, Result<String, SinkError>> {
        async {
            let name = self.template.clone();
            if self.has_template().await? == Some(true) {
                return Ok(format!("the index template {name} is there already"));
            }
            let template = self.index_template();
            let request = self.link.request_at(Method::PUT, &["_index_template", &name], &[])?;
            let request = request.header(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            let answer = self.ask(request.body(template)).await?;
            match answer.status {
                status if status.is_success() => {
                    Ok(format!("made the index template {name} for {}", self.index.pattern()))
                }
                StatusCode::BAD_REQUEST | StatusCode::FORBIDDEN => Err(SinkError::halt(format!(
                    "{}; let somebody who may make index templates apply what `decklog sink init` prints with --print, changed where it has to be",
                    self.link.told(&answer, &[])
                ))),
                _ => Err(self.problem(&answer, &[])),
            }
        }
        .boxed()
    }

    fn through(&self) -> String {
        self.link.through()
    }

    fn check(&mut self) -> BoxFuture<'_, Result<(), SinkError>> {
        async {
            let has_template = self.has_template().await?;
            let lacks = self.lacks().await?;
            if !lacks.is_empty() {
                let (url, lacks, pattern) = (&self.link.shown, lacks.join(" and "), self.index.pattern());
                return Err(SinkError::halt(format!("{url} lets this user not {lacks} in {pattern}; give it that right")));
            }
            if has_template == Some(false) {
                // Whoever made the indices beforehand needs no template.
                let none = ("allow_no_indices", "false");
                let indices = self.link.request_at(Method::HEAD, &[&self.index.pattern()], &[none])?;
                if self.exists(indices).await? != Some(false) {
                    return Ok(());
                }
                let (url, name) = (&self.link.shown, &self.template);
                return Err(SinkError::halt(format!(
                    "{url} has no index template {name}; run `decklog sink init {}`, or apply what it prints with --print",
                    self.name
                )));
            }
            Ok(())
        }
        .boxed()
    }
}
