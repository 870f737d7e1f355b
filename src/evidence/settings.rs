//! `[evidence]`: signed checkpoints over the log.

use std::fmt;
use std::fs;
use std::ops::Deref;
use std::path::PathBuf;

use reqwest::Url;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::key::{SigningKey, VerifierKey};
use crate::core::bucket;
use crate::core::net::is_loopback;
use crate::core::spelling::{Format, Text, Wrong, text_value};

/// Formats of the settings.
pub const FORMATS: &[Format] = &[Format::of::<WitnessUrl>(), Format::of::<WitnessKey>(), Format::of::<LogKey>()];

/// Expectation where a decklog that has replicas is to be a witness.
pub const ALONE: &str = "either [[evidence.witnessed]] or [ha], so remove one of them: a witness remembers on one machine what it has cosigned, and \
     another replica would cosign what this one refuses";

/// Signed checkpoints over the log, and where they go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Evidence")]
pub struct Settings {
    /// The directory of the checkpoints and tiles. It, or `s3`, or both.
    #[schemars(extend("format" = "path"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dir: Option<PathBuf>,
    /// A bucket for the checkpoints and tiles, beside the directory or instead of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub s3: Option<bucket::Settings>,
    /// A file with the key that signs, made by `decklog evidence key`.
    #[schemars(extend("format" = "readable-file"))]
    pub key_file: PathBuf,
    /// A file with the key that signed before: while it is here, both sign.
    #[schemars(extend("format" = "readable-file"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_key_file: Option<PathBuf>,
    /// Witnesses that are asked to cosign each checkpoint.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub witness: Vec<Witness>,
    /// Logs of other decklogs whose checkpoints this one cosigns; `[http]` serves that.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub witnessed: Vec<Witnessed>,
}

/// A witness: a server that cosigns a checkpoint where it is a later state of the one before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Witness {
    /// URL that `/add-checkpoint` is appended to.
    pub url: WitnessUrl,
    /// Its public key.
    pub key: WitnessKey,
    /// A PEM file with the authorities that its certificate is checked with; absent means those of this machine.
    #[schemars(extend("format" = "readable-file"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
}

/// A log that is witnessed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Witnessed {
    /// Its public key, as `decklog evidence key` prints it there.
    pub key: LogKey,
}

/// URL of a witness.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WitnessUrl(Url);

impl WitnessUrl {
    /// Returns the address that checkpoints are sent to.
    pub(super) fn add_checkpoint(&self) -> String {
        format!("{}/add-checkpoint", self.0.as_str().trim_end_matches('/'))
    }
}

impl Deref for WitnessUrl {
    type Target = Url;

    fn deref(&self) -> &Url {
        &self.0
    }
}

impl fmt::Display for WitnessUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Text for WitnessUrl {
    const FORMAT: &'static str = "witness-url";
    const EXPECTED: &'static str =
        "an https:// URL without user, password and query, or an http:// URL of this machine";

    fn read(text: &str) -> Result<Self, Wrong> {
        // The text is not shown: a URL may carry a password.
        let url = Url::parse(text).map_err(|error| format!("a string that is no URL ({error})"))?;
        let host = url.host_str().unwrap_or_default();
        match url.scheme() {
            _ if host.is_empty() => Err("a URL without a host".into()),
            "https" | "http" if !url.username().is_empty() || url.password().is_some() => {
                Err("a URL with a user or password, which would show in logs".into())
            }
            "https" | "http" if url.query().is_some() || url.fragment().is_some() => {
                Err("a URL with a query or fragment, and /add-checkpoint is appended to it".into())
            }
            "http" if !is_loopback(host) => Err("a URL of another machine without TLS".into()),
            "https" | "http" => Ok(Self(url)),
            scheme => Err(format!("a URL with the scheme {scheme:?}").into()),
        }
    }
}

text_value!(WitnessUrl);

/// Public key of a witness: it signs with the time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WitnessKey(VerifierKey);

impl Deref for WitnessKey {
    type Target = VerifierKey;

    fn deref(&self) -> &VerifierKey {
        &self.0
    }
}

impl fmt::Display for WitnessKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Text for WitnessKey {
    const FORMAT: &'static str = "witness-key";
    const EXPECTED: &'static str =
        "the public key of the witness as NAME+ID+KEY; of a decklog it is what `decklog evidence key` prints there";

    fn read(text: &str) -> Result<Self, Wrong> {
        VerifierKey::parse(text).map(|key| Self(key.timed())).map_err(not_a_key)
    }
}

text_value!(WitnessKey);

/// Public key of a log: it signs the text alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogKey(VerifierKey);

impl Deref for LogKey {
    type Target = VerifierKey;

    fn deref(&self) -> &VerifierKey {
        &self.0
    }
}

impl fmt::Display for LogKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Text for LogKey {
    const FORMAT: &'static str = "log-key";
    const EXPECTED: &'static str =
        "the public key of the log as NAME+ID+KEY, which `decklog evidence key` prints on its machine";

    fn read(text: &str) -> Result<Self, Wrong> {
        match VerifierKey::parse(text) {
            Ok(key) if key.is_timed() => Err("a key of a witness, which signs with the time".into()),
            Ok(key) => Ok(Self(key)),
            Err(why) => Err(not_a_key(why)),
        }
    }
}

text_value!(LogKey);

/// The text is not shown: it may be a key that signs.
fn not_a_key(why: String) -> Wrong {
    format!("a string that is no public key: {why}").into()
}

impl Settings {
    /// Reads the keys, the one that signs first.
    ///
    /// # Errors
    /// A sentence that names the file and says what to do.
    pub fn keys(&self) -> Result<Vec<SigningKey>, String> {
        let files = [
            Some(("key_file", &self.key_file)),
            self.previous_key_file.as_ref().map(|path| ("previous_key_file", path)),
        ];
        let read = |(name, path): (&str, &PathBuf)| {
            let text = fs::read_to_string(path)
                .map_err(|error| format!("cannot read [evidence] {name} {}: {error}", path.display()))?;
            SigningKey::parse(&text).map_err(|why| format!("[evidence] {name} {}: {why}", path.display()))
        };
        files.into_iter().flatten().map(read).collect()
    }
}
