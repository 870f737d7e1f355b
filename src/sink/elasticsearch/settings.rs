//! The keys of a sink of type `elasticsearch`.

use std::fmt;
use std::ops::Deref;
use std::path::PathBuf;

use reqwest::Url;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ElasticsearchSink;
use crate::core::spelling::{Format, Text, Wrong, text_value};
use crate::core::units::Span;
use crate::sink::settings::{Gzip, HttpUrl, SinkSettings, Tls, bulk_size, timeout};
use crate::sink::{Sink, Template};

/// Documents in Elasticsearch or OpenSearch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ElasticsearchSink")]
pub struct Settings {
    /// URL of the server; http or https.
    #[schemars(extend("writeOnly" = true))]
    pub url: HttpUrl,
    /// The index that an entry goes to.
    #[serde(default)]
    pub index: Index,
    /// Maximum number of entries in one request.
    #[serde(default = "bulk_size")]
    #[schemars(range(min = 1, max = 10_000))]
    pub batch_size: usize,
    /// Compression of requests.
    #[serde(default)]
    pub compress: Gzip,
    /// The user, for the password in `password_file`.
    #[serde(default)]
    pub user: Option<String>,
    /// A file with the password of `user`; read again when it changes.
    #[serde(default)]
    #[schemars(extend("format" = "readable-file"))]
    pub password_file: Option<PathBuf>,
    /// A file with an API key in the form that is sent, `base64(id:key)`; read again when it changes.
    #[serde(default)]
    #[schemars(extend("format" = "readable-file"))]
    pub api_key_file: Option<PathBuf>,
    /// A file with further headers, one `Name: value` a line; read again when it changes.
    #[serde(default)]
    #[schemars(extend("format" = "readable-file"))]
    pub headers_file: Option<PathBuf>,
    /// TLS: whom decklog trusts, and its own certificate.
    #[serde(flatten)]
    pub tls: Tls,
    /// Time limit of one request.
    #[serde(default = "timeout")]
    pub timeout: Span,
}

/// The name of an index. It begins with a text, so that the pattern of its template never takes in what others have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Index(Template);

impl Default for Index {
    fn default() -> Self {
        Self::read("decklog").expect("lower-case letters are the name of an index")
    }
}

impl Deref for Index {
    type Target = Template;

    fn deref(&self) -> &Template {
        &self.0
    }
}

impl fmt::Display for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Text for Index {
    const FORMAT: &'static str = "index";
    const EXPECTED: &'static str = "the name of an index: lower-case letters, digits, \"-\", \"_\" and \".\", beginning with a letter or digit, with fields such as {cluster} and {date}";

    fn read(text: &str) -> Result<Self, Wrong> {
        let template = Template::read(text)?;
        let pattern = template.pattern();
        let first = pattern.bytes().next().unwrap_or_default();
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.*".contains(&byte);
        if (first.is_ascii_lowercase() || first.is_ascii_digit()) && pattern.bytes().all(fits) && !text.contains('*') {
            return Ok(Self(template));
        }
        let wrong = Wrong::from(format!("the string {text:?}"));
        let mended = text.to_lowercase();
        Err(if mended != text && Self::read(&mended).is_ok() { wrong.near(mended) } else { wrong })
    }
}

text_value!(Index);

impl SinkSettings for Settings {
    fn open(&self) -> Result<Box<dyn Sink>, String> {
        Ok(Box::new(ElasticsearchSink::new(self)?))
    }

    fn credentials_to(&self) -> Option<&Url> {
        [&self.password_file, &self.api_key_file, &self.headers_file]
            .into_iter()
            .any(Option::is_some)
            .then_some(&self.url)
    }

    fn formats() -> &'static [Format] {
        const { &[Format::of::<Index>()] }
    }
}
