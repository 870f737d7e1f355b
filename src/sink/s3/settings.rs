//! The keys of a sink of type `s3`. They are there also in a build without the client.

use std::fmt;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::core::bucket::{self, Objects, S3Url};
use crate::core::shared_log::SharedLog;
use crate::core::spelling::{Format, Text, Wrong, text_value};
use crate::core::units::{ByteSize, Span};
use crate::sink::Sink;
use crate::sink::settings::{Clash, HttpUrl, SinkSettings, Tls, timeout, with_feature};

/// Compressed JSON Lines in an S3 bucket or a folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "S3Sink")]
pub struct Settings {
    /// Place of the segments: s3://BUCKET/PREFIX, or file:///PATH for a folder.
    #[schemars(extend("writeOnly" = true))]
    pub url: BucketUrl,
    /// The server, where it is not that of Amazon. Default: Amazon's in the region.
    #[serde(default)]
    pub endpoint: Option<HttpUrl>,
    /// The region. Default: $AWS_REGION, else us-east-1.
    #[serde(default)]
    pub region: Option<String>,
    /// A file with an access key as the AWS programs have it; read again when it changes.
    #[serde(default)]
    #[schemars(extend("format" = "readable-file"))]
    pub credentials_file: Option<PathBuf>,
    /// Which part of the date is in the names of segments.
    #[serde(default)]
    pub partition: Partition,
    /// A segment is closed when its lines have this size, before they are compressed.
    #[serde(default = "segment_size")]
    pub segment_size: ByteSize,
    /// A segment is closed when its first entry has waited so long.
    #[serde(default = "segment_age")]
    pub segment_age: Span,
    /// TLS: whom decklog trusts, and its own certificate.
    #[serde(flatten)]
    pub tls: Tls,
    /// Time limit of one request.
    #[serde(default = "timeout")]
    pub timeout: Span,
}

/// Which part of the date is in the names of segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Partition {
    /// date=2026-11-21/
    #[default]
    Day,
    /// date=2026-11-21/hour=10/
    Hour,
    /// None.
    None,
}

const fn segment_size() -> ByteSize {
    ByteSize(16 << 20)
}

const fn segment_age() -> Span {
    Span::from_secs(60)
}

/// A bucket and a prefix in it, or a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BucketUrl {
    /// A bucket.
    Bucket {
        /// Its name.
        bucket: String,
        /// Prefix of the keys; may be empty.
        prefix: String,
    },
    /// A folder.
    Folder(PathBuf),
}

impl fmt::Display for BucketUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bucket { bucket, prefix } => write!(f, "s3://{bucket}/{prefix}"),
            Self::Folder(path) => write!(f, "file://{}", path.display()),
        }
    }
}

impl Text for BucketUrl {
    const FORMAT: &'static str = "bucket-url";
    const EXPECTED: &'static str = "s3://BUCKET, s3://BUCKET/PREFIX, or file:///PATH for a folder";

    fn read(text: &str) -> Result<Self, Wrong> {
        if let Some(path) = text.strip_prefix("file://") {
            return match path.starts_with('/') {
                true => Ok(Self::Folder(path.into())),
                false => Err("a file:// URL whose path does not begin with \"/\"".into()),
            };
        }
        let S3Url { bucket, prefix } = S3Url::read(text)?;
        Ok(Self::Bucket { bucket, prefix })
    }
}

impl BucketUrl {
    /// Returns the normalized location, for comparisons.
    fn plain(&self) -> String {
        match self {
            Self::Bucket { bucket, prefix } => format!("{bucket}/{prefix}"),
            // Without doubled and trailing slashes, and without "/./".
            Self::Folder(path) => path.components().collect::<PathBuf>().display().to_string(),
        }
    }
}

text_value!(BucketUrl);

impl SinkSettings for Settings {
    fn open(&self) -> Result<Box<dyn Sink>, String> {
        with_feature!("s3", crate::sink::s3::S3Sink::new(self).map(|sink| Box::new(sink) as Box<dyn Sink>))
    }

    #[cfg_attr(not(feature = "s3"), allow(unused_variables, reason = "the client uses them"))]
    fn shared_log(&self, sink: &str, cluster: &str) -> Option<Result<Box<dyn SharedLog>, String>> {
        Some(with_feature!(
            "s3",
            crate::sink::s3::S3Log::new(self, sink, cluster).map(|log| Box::new(log) as Box<dyn SharedLog>)
        ))
    }

    fn is_local(&self) -> bool {
        matches!(self.url, BucketUrl::Folder(_))
    }

    fn clash(&self, other: &Self, name: &str) -> Option<Clash> {
        let place = |sink: &Self| {
            let endpoint = sink.endpoint.as_ref().map(|url| url.as_str().trim_end_matches('/').to_owned());
            (sink.url.plain(), endpoint)
        };
        (place(self) == place(other)).then(|| Clash {
            key: "url",
            found: format!("the place of {name}"),
            expected: "a bucket, a prefix or a folder that no other sink delivers to",
        })
    }

    fn formats() -> &'static [Format] {
        const { &[Format::of::<BucketUrl>()] }
    }
}

/// Opens the objects of a bucket for something else than a sink. Nothing is connected yet.
///
/// # Errors
/// A sentence, where it can never work.
pub fn objects(bucket: &bucket::Settings) -> Result<Box<dyn Objects>, String> {
    let bucket::Settings { url, endpoint, region, credentials_file, tls, timeout } = bucket.clone();
    let S3Url { bucket, prefix } = url;
    let settings = Settings {
        url: BucketUrl::Bucket { bucket, prefix },
        endpoint,
        region,
        credentials_file,
        partition: Partition::default(),
        segment_size: segment_size(),
        segment_age: segment_age(),
        tls,
        timeout,
    };
    opened(&settings)
}

#[cfg_attr(not(feature = "s3"), allow(unused_variables, reason = "the client uses them"))]
fn opened(settings: &Settings) -> Result<Box<dyn Objects>, String> {
    with_feature!(
        "s3",
        crate::sink::s3::objects::S3Objects::new(settings).map(|objects| Box::new(objects) as Box<dyn Objects>)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_bucket_or_a_folder() {
        let bucket =
            |bucket: &str, prefix: &str| Ok(BucketUrl::Bucket { bucket: bucket.to_owned(), prefix: prefix.to_owned() });
        assert_eq!(BucketUrl::read("s3://logs"), bucket("logs", ""));
        assert_eq!(BucketUrl::read("s3://logs/"), bucket("logs", ""));
        assert_eq!(BucketUrl::read("s3://logs//x"), bucket("logs", "x"));
        assert_eq!(BucketUrl::read("s3://logs/prod/eu 1/"), bucket("logs", "prod/eu 1"));
        assert_eq!(BucketUrl::read("file:///var/lib/x"), Ok(BucketUrl::Folder("/var/lib/x".into())));
        for (url, says) in [
            ("file://var", "does not begin with \"/\""),
            ("s3://", "3 to 63"),
            ("s3://a", "3 to 63"),
            ("s3://user:pass@x", "3 to 63"),
            ("s3://Logs", "3 to 63"),
            ("s3://logs/a//b", "no object can have"),
            ("s3://logs/a/../b", "no object can have"),
            ("s3://logs/a\u{1}", "no object can have"),
            ("https://s3.example/x", "another kind"),
        ] {
            assert!(BucketUrl::read(url).unwrap_err().found.contains(says), "{url}");
        }
    }
}
