//! The keys of a sink of type `http`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use reqwest::Url;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::HttpSink;
use crate::core::units::{ByteSize, Span};
use crate::sink::Sink;
use crate::sink::settings::{HttpUrl, Network, SinkSettings, Tls, batch_size, timeout};

/// CloudEvents over HTTP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "HttpSink")]
pub struct Settings {
    /// URL to which events are POSTed; http or https.
    #[schemars(extend("writeOnly" = true))]
    pub url: HttpUrl,
    /// The CloudEvents content mode.
    #[serde(default)]
    pub format: CloudEvents,
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

/// The CloudEvents content mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CloudEvents {
    /// One entry a request, attributes in headers.
    Binary,
    /// One entry a request, attributes around it.
    #[default]
    Structured,
    /// Many entries a request.
    Batched,
}

const fn batch_bytes() -> ByteSize {
    ByteSize(1 << 20)
}

impl SinkSettings for Settings {
    fn open(&self) -> Result<Box<dyn Sink>, String> {
        Ok(Box::new(HttpSink::new(self)?))
    }

    fn credentials_to(&self) -> Option<&Url> {
        (self.bearer_file.is_some() || self.headers_file.is_some()).then_some(&self.url)
    }
}
