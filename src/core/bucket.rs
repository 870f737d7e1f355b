//! Buckets: their settings, and what they hold, by name.
//!
//! Who keeps objects in a bucket uses [`Objects`]; the client that speaks to one stands in another room, behind a cargo feature.

use std::fmt;
use std::path::PathBuf;

use bytes::Bytes;
use futures::future::BoxFuture;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::net::tls::Files;
use super::net::url::HttpUrl;
use super::spelling::{Format, Text, Wrong, text_value};
use super::units::Span;

/// The formats of texts.
pub const FORMATS: &[Format] = &[Format::of::<S3Url>()];

/// Objects by name in a bucket, below a prefix. The sentences of errors name the bucket and say what to do.
pub trait Objects: fmt::Debug + Send {
    /// Returns the name of the bucket, for people.
    fn shown(&self) -> String;

    /// Reads an object; none where there is none.
    ///
    /// # Errors
    /// Where it cannot be read, or is larger than anything that decklog writes there.
    fn get<'a>(&'a mut self, key: &'a str) -> BoxFuture<'a, Result<Option<Bytes>, String>>;

    /// Writes an object, also over one that is there.
    ///
    /// # Errors
    /// Where it cannot be written.
    fn put<'a>(&'a mut self, key: &'a str, bytes: Bytes) -> BoxFuture<'a, Result<(), String>>;

    /// Writes an object over the one that [`Objects::get`] of this handle has read last under its key, or where that found none. Returns
    /// false, and writes nothing, where another one is there by now. A server without conditional writes writes in any case.
    ///
    /// # Errors
    /// Where it cannot be written.
    fn replace<'a>(&'a mut self, key: &'a str, bytes: Bytes) -> BoxFuture<'a, Result<bool, String>>;

    /// Writes objects, several at once, and none over one that is there. Returns those that were there.
    ///
    /// # Errors
    /// Where one cannot be written. Others may have been.
    fn create(&mut self, objects: Vec<(String, Bytes)>) -> BoxFuture<'_, Result<Vec<(String, Bytes)>, String>>;

    /// Removes what is below a key.
    ///
    /// # Errors
    /// Where it cannot be removed: evidence asks for no right to that.
    fn remove_below<'a>(&'a mut self, key: &'a str) -> BoxFuture<'a, Result<(), String>>;

    /// Checks that the bucket can be written to. It leaves nothing there.
    ///
    /// # Errors
    /// A sentence that says what stands in the way.
    fn check(&mut self) -> BoxFuture<'_, Result<(), String>>;
}

/// A bucket, and how it is reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Bucket")]
pub struct Settings {
    /// The bucket, and a prefix in it: s3://BUCKET/PREFIX.
    #[schemars(extend("writeOnly" = true))]
    pub url: S3Url,
    /// The server, where it is not that of Amazon. Default: Amazon's in the region.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<HttpUrl>,
    /// The region. Default: $AWS_REGION, else us-east-1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// A file with an access key as the AWS programs have it; read again when it changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "readable-file"))]
    pub credentials_file: Option<PathBuf>,
    /// TLS: whom decklog trusts, and its own certificate.
    #[serde(flatten)]
    pub tls: Files,
    /// Time limit of one request.
    #[serde(default = "timeout")]
    pub timeout: Span,
}

const fn timeout() -> Span {
    Span::from_secs(30)
}

/// A bucket, and a prefix in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct S3Url {
    /// Its name.
    pub bucket: String,
    /// Prefix of the keys; may be empty.
    pub prefix: String,
}

impl fmt::Display for S3Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s3://{}/{}", self.bucket, self.prefix)
    }
}

impl Text for S3Url {
    const FORMAT: &'static str = "s3-url";
    const EXPECTED: &'static str = "s3://BUCKET or s3://BUCKET/PREFIX";

    fn read(text: &str) -> Result<Self, Wrong> {
        let Some(rest) = text.strip_prefix("s3://") else { return Err("a URL of another kind".into()) };
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
        if !(3..=63).contains(&bucket.len()) || !bucket.chars().all(fits) {
            return Err("a bucket whose name has not 3 to 63 lower-case letters, digits, \"-\" and \".\" alone".into());
        }
        // As object_store reads a path, which this build may not have.
        let prefix = prefix.strip_prefix('/').unwrap_or(prefix).trim_end_matches('/');
        let odd = |part: &str| matches!(part, "" | "." | "..") || part.contains(|c: char| c.is_ascii_control());
        if !prefix.is_empty() && prefix.split('/').any(odd) {
            return Err("a prefix that no object can have".into());
        }
        Ok(Self { bucket: bucket.to_owned(), prefix: prefix.to_owned() })
    }
}

text_value!(S3Url);
