//! The keys of a sink of type `http`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use reqwest::Url;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::HttpSink;
use super::template::{Escape, Source, Template};
use super::update::{Pointer, Update, UpdateUrl};
use crate::core::spelling::Format;
use crate::core::units::{ByteSize, Span};
use crate::sink::Sink;
use crate::sink::notify::{Notify, Rule};
use crate::sink::settings::{Clash, HttpUrl, Network, SinkSettings, Tls, batch_size, timeout};

/// CloudEvents over HTTP, or a body that a template makes of each entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "HttpSink")]
pub struct Settings {
    /// URL to which requests are POSTed; http or https.
    #[schemars(extend("writeOnly" = true))]
    pub url: HttpUrl,
    /// Contents of a request: a content mode of CloudEvents, or what a template makes.
    #[serde(default)]
    pub format: BodyFormat,
    /// The template of a body, at most 64 KiB, with format = "template"; the fields are those of an entry. Nothing is sent for an entry of which it makes nothing.
    #[serde(default)]
    #[schemars(extend("writeOnly" = true))]
    pub body: Option<String>,
    /// A file with the template, instead of `body`; read again at SIGHUP.
    #[serde(default)]
    #[schemars(extend("format" = "readable-file"))]
    pub body_file: Option<PathBuf>,
    /// Content type of the body of a template: JSON, or a text. Default: "application/json".
    #[serde(default)]
    pub content_type: Option<String>,
    /// Receiver of the values in the body of a template. There is no default; JSON stays right with each of them.
    #[serde(default)]
    pub escape: Option<Escape>,
    /// What is worth a message, with format = "template": ready-made rules, and "NAME: CEL"; the most important first, because an entry is of the first that selects it. Default: every entry is a message.
    #[serde(default)]
    pub notify: Vec<Rule>,
    /// Time without an entry after which the same object and rule are a new incident, with `notify`. Default: "10m".
    #[serde(default)]
    pub group: Option<Span>,
    /// Longest time for which incidents are collected before they are sent, with `notify`. Default: "10s".
    #[serde(default)]
    pub group_wait: Option<Span>,
    /// Number of incidents collected in one `group_wait` that have a message each, with `notify`; the rest have one together. Default: 10.
    #[serde(default)]
    #[schemars(range(min = 1, max = 1000))]
    pub digest: Option<u32>,
    /// Updates in place of the message of an incident that goes on, with `notify`. Default: a message is sent once.
    #[serde(default)]
    pub update: Option<Box<Update>>,
    /// Value in the answer that has to be true, as a JSON pointer, for a receiver that answers 200 to what it refuses; its member `error` says why. Default: the status says it.
    #[serde(default)]
    pub accepted: Option<Pointer>,
    /// Maximum number of entries in one batched request.
    #[serde(default = "batch_size")]
    #[schemars(range(min = 1, max = 10_000))]
    pub batch_size: usize,
    /// About how many bytes of entries one batched request carries at most, unless a single one is larger.
    #[serde(default = "batch_bytes")]
    pub batch_bytes: ByteSize,
    /// Time that the first entry of a batched request waits for others. Default: not at all.
    #[serde(default)]
    pub batch_age: Option<Span>,
    /// Headers of every request.
    #[serde(default)]
    #[schemars(extend("format" = "headers", "writeOnly" = true))]
    pub headers: BTreeMap<String, String>,
    /// A file with further headers, one `Name: value` a line; read again when it changes.
    #[serde(default)]
    #[schemars(extend("format" = "readable-file"))]
    pub headers_file: Option<PathBuf>,
    /// A file with the bearer token; read again when it changes.
    #[serde(default)]
    #[schemars(extend("format" = "readable-file"))]
    pub bearer_file: Option<PathBuf>,
    /// A file with the keys that requests are signed with, one a line; read again when it changes. Default: no signature.
    #[serde(default)]
    #[schemars(extend("format" = "readable-file"))]
    pub signing_key_file: Option<PathBuf>,
    /// The networks that it may connect to, whatever the name in `url` resolves to. Default: all but link-local ones.
    #[serde(default)]
    pub allow_networks: Vec<Network>,
    /// TLS: whom decklog trusts, and its own certificate.
    #[serde(flatten)]
    pub tls: Tls,
    /// Time limit of one request.
    #[serde(default = "timeout")]
    pub timeout: Span,
}

/// Contents of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BodyFormat {
    /// One entry a request, attributes in headers.
    Binary,
    /// One entry a request, attributes around it.
    #[default]
    Structured,
    /// Many entries a request.
    Batched,
    /// One entry a request, as `body` or `body_file` makes it.
    Template,
}

/// Time without an entry within an incident, where none is given: longer than Kubernetes waits in a crash loop.
const QUIET_MAX: Duration = Duration::from_secs(600);

/// Length of the windows whose incidents are told together, where none is given.
const GROUP_WAIT: Duration = Duration::from_secs(10);

/// Incidents of a window that have a message each, where it is not given.
const DIGEST: usize = 10;

/// The formats of texts that only this type has.
const FORMATS: &[Format] = &[Format::of::<Rule>(), Format::of::<Pointer>(), Format::of::<UpdateUrl>()];

/// The content type of a template's body, where none is given.
const JSON: &str = "application/json";

impl Settings {
    /// Content type of the body of a template.
    pub(super) fn content_type(&self) -> &str {
        self.content_type.as_deref().unwrap_or(JSON)
    }

    /// The source of the template.
    pub(super) fn source(&self) -> Option<Source> {
        let text = self.body.clone().map(Source::Text);
        text.or_else(|| self.body_file.clone().map(Source::File))
    }

    /// Reads and tries the template; none where the format is another one.
    ///
    /// # Errors
    /// The mistake.
    pub(super) fn template(&self) -> Result<Option<Template>, Clash> {
        if self.format != BodyFormat::Template {
            return Ok(None);
        }
        let (Some(source), Some(escape), Some(is_json)) = (self.source(), self.escape, is_json(self.content_type()))
        else {
            return Err(Clash { key: "format", found: "no template".to_owned(), expected: "`body` and `escape`" });
        };
        let key = if self.body.is_some() { "body" } else { "body_file" };
        let read = source.text().and_then(|text| {
            let template = Template::read(&text, is_json, escape)?;
            let has_place = |update: &Update| update.url.as_ref().is_some_and(UpdateUrl::has_place);
            let names = |update: &Update| has_place(update) || text.contains("incident.reference");
            match self.update.as_deref().is_none_or(names) {
                true => Ok(template),
                false => Err("no incident.reference, and no {reference} in update.url: each update would be a message of its own".to_owned()),
            }
        });
        read.map(Some).map_err(|found| Clash {
            key,
            found,
            expected: "a template that is right for entries of every type",
        })
    }

    /// The mistakes of keys that need or exclude each other.
    fn keys_together(&self) -> Vec<Clash> {
        let clash = |key, found: &str, expected| Clash { key, found: found.to_owned(), expected };
        let notifies = !self.notify.is_empty();
        let of_incidents = [
            ("group", self.group.is_some()),
            ("group_wait", self.group_wait.is_some()),
            ("digest", self.digest.is_some()),
            ("update", self.update.is_some()),
        ];
        let mut found: Vec<Clash> = of_incidents
            .into_iter()
            .filter(|(_, given)| *given && !notifies)
            .map(|(key, _)| clash(key, "a key of incidents", "`notify` beside it, or leave it out"))
            .collect();
        let given = [
            ("notify", notifies),
            ("body", self.body.is_some()),
            ("body_file", self.body_file.is_some()),
            ("content_type", self.content_type.is_some()),
            ("escape", self.escape.is_some()),
            ("accepted", self.accepted.is_some()),
        ];
        if self.format != BodyFormat::Template {
            let wrong = given.into_iter().filter(|(_, given)| *given);
            found.extend(
                wrong.map(|(key, _)| {
                    clash(key, "a key of templates", "format = \"template\" beside it, or leave it out")
                }),
            );
            return found;
        }
        let url = self.update.as_ref().and_then(|update| update.url.as_ref());
        if url.is_some_and(|url| url.of("1").origin() != self.url.origin()) {
            found.push(clash("update.url", "a URL of another server", "one of the server of `url`"));
        }
        if let Some(again) = repeated(&self.notify) {
            found.push(clash(
                "notify",
                &format!("two rules with the name {again:?}"),
                "each rule once, with a name of its own",
            ));
        }
        match (&self.body, &self.body_file) {
            (None, None) => found.push(clash("format", "\"template\" without one", "`body` or `body_file` beside it")),
            (Some(_), Some(_)) => found.push(clash("body_file", "body_file beside body", "one of both")),
            (Some(_), None) | (None, Some(_)) => {}
        }
        if self.escape.is_none() {
            found.push(clash(
                "format",
                "\"template\" without `escape`",
                "escape = \"slack\", \"discord\", \"markdown\", \"html\" or \"text\", or \"none\" where no reader obeys a character",
            ));
        }
        if is_json(self.content_type()).is_none() {
            let text = format!("{:?}, whose text decklog cannot escape", self.content_type());
            found.push(clash(
                "content_type",
                &text,
                "\"application/json\", another one that ends in +json, or one of text/",
            ));
        }
        found
    }
}

/// Returns the name of a rule that stands there twice.
fn repeated(rules: &[Rule]) -> Option<&str> {
    let is_again = |(at, rule): &(usize, &Rule)| rules[..*at].iter().any(|other| other.name() == rule.name());
    rules.iter().enumerate().find(is_again).map(|(_, rule)| rule.name())
}

/// Reports whether a body of this type is JSON; none where it is neither that nor text.
fn is_json(content_type: &str) -> Option<bool> {
    http::HeaderValue::from_str(content_type).ok()?;
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let json = essence == JSON || essence.ends_with("+json");
    (json || essence.starts_with("text/")).then_some(json)
}

const fn batch_bytes() -> ByteSize {
    ByteSize(1 << 20)
}

impl SinkSettings for Settings {
    fn open(&self) -> Result<Box<dyn Sink>, String> {
        Ok(Box::new(HttpSink::new(self)?))
    }

    fn mistakes(&self, files: bool) -> Vec<Clash> {
        let found = self.keys_together();
        if !found.is_empty() || (self.body.is_none() && !files) {
            return found;
        }
        self.template().err().into_iter().collect()
    }

    fn notify(&self) -> Option<Notify> {
        let rules = self.notify.clone();
        (!rules.is_empty()).then(|| Notify {
            rules,
            group: self.group.map_or(QUIET_MAX, |group| *group),
            wait: self.group_wait.map_or(GROUP_WAIT, |wait| *wait),
            digest: self.digest.map_or(DIGEST, |most| most as usize),
            updates: self.update.is_some(),
        })
    }

    fn formats() -> &'static [Format] {
        FORMATS
    }

    fn credentials_to(&self) -> Option<&Url> {
        (self.bearer_file.is_some() || self.headers_file.is_some()).then_some(&self.url)
    }
}
