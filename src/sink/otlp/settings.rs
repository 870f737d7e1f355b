//! The keys of a sink of type `otlp`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use reqwest::Url;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::OtlpSink;
use crate::core::units::Span;
use crate::sink::Sink;
use crate::sink::settings::{Gzip, HttpUrl, SinkSettings, Tls, bulk_size, timeout};

/// Logs of OpenTelemetry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "OtlpSink")]
pub struct Settings {
    /// URL of the receiver; http or https. Without a path, the one of the protocol is used.
    #[schemars(extend("writeOnly" = true))]
    pub url: HttpUrl,
    /// Protocol of the receiver.
    #[serde(default)]
    pub protocol: Protocol,
    /// Maximum number of entries in one request.
    #[serde(default = "bulk_size")]
    #[schemars(range(min = 1, max = 10_000))]
    pub batch_size: usize,
    /// Compression of requests.
    #[serde(default)]
    pub compress: Gzip,
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
    /// TLS: whom decklog trusts, and its own certificate.
    #[serde(flatten)]
    pub tls: Tls,
    /// Time limit of one request.
    #[serde(default = "timeout")]
    pub timeout: Span,
}

/// Protocol of OTLP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// gRPC, over HTTP/2.
    #[default]
    Grpc,
    /// Protocol Buffers over HTTP/1.1.
    Http,
}

impl SinkSettings for Settings {
    fn open(&self) -> Result<Box<dyn Sink>, String> {
        Ok(Box::new(OtlpSink::new(self)?))
    }

    fn credentials_to(&self) -> Option<&Url> {
        (self.bearer_file.is_some() || self.headers_file.is_some()).then_some(&self.url)
    }
}
