//! Common parts of the settings of sinks: their trait, and their shared types and defaults.
//!
//! What is secret is in a file whose key ends in `_file` and is read again when it changes, `ca_file`, `cert_file` and
//! `key_file` are PEM ([`Tls`]), and `timeout` bounds one exchange with the server.

use std::fmt;
use std::net::IpAddr;
use std::ops::Deref;

use ipnet::IpNet;
use reqwest::Url;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::notify::Notify;
use super::{Sink, Template};
pub use crate::core::net::tls::Files as Tls;
pub use crate::core::net::url::HttpUrl;
use crate::core::shared_log::SharedLog;
use crate::core::spelling::{Format, Text, Wrong, text_value};
use crate::core::units::Span;

/// The formats of what several sinks have.
pub const FORMATS: &[Format] = &[
    Format {
        name: "name",
        expected: "a name of at most 63 letters, digits, \"-\", \"_\" and \".\", beginning with a letter or digit",
        check: name,
    },
    Format::of::<HttpUrl>(),
    Format::of::<Network>(),
    Format::of::<Template>(),
];

/// Settings of a type of sink. They exist in every build; `open` fails if the client is not part of it.
pub trait SinkSettings {
    /// The sink that they describe. Nothing is opened or connected yet.
    ///
    /// # Errors
    /// A sentence, where it can never work.
    fn open(&self) -> Result<Box<dyn Sink>, String>;

    /// The shared log beside what this sink delivers, of the cluster with this name; none where the type has none.
    ///
    /// # Errors
    /// A sentence, where it can never work.
    fn shared_log(&self, _sink: &str, _cluster: &str) -> Option<Result<Box<dyn SharedLog>, String>> {
        None
    }

    /// Reports whether the output is on the machine that decklog runs on: with a shared log each machine has its own.
    fn is_local(&self) -> bool {
        false
    }

    /// The URL that credentials are sent to; none where there are none.
    fn credentials_to(&self) -> Option<&Url> {
        None
    }

    /// Returns what the sink notifies of; none where it takes every entry.
    fn notify(&self) -> Option<Notify> {
        None
    }

    /// Returns a warning about an allowed setting: its effect, and the remedy.
    fn warning(&self) -> Option<&'static str> {
        None
    }

    /// Returns the mistakes of keys that are right each by itself. Files are read where `files` is true.
    fn mistakes(&self, _files: bool) -> Vec<Clash> {
        Vec::new()
    }

    /// Returns the conflict with another sink of the same type in one configuration that would write to the same place. `name`
    /// is the name of the other sink.
    fn clash(&self, _other: &Self, _name: &str) -> Option<Clash>
    where
        Self: Sized,
    {
        None
    }

    /// The formats of texts that only this type has.
    #[must_use]
    fn formats() -> &'static [Format]
    where
        Self: Sized,
    {
        &[]
    }

    /// A key that, where it is true, wants every entry with its whole object.
    #[must_use]
    fn wants_everything() -> Option<&'static str>
    where
        Self: Sized,
    {
        None
    }
}

/// A key of a sink that does not go with others: with its own, or where two sinks write to one place with those of the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clash {
    /// The key that has to be another.
    pub key: &'static str,
    /// The value found.
    pub found: String,
    /// The expectation.
    pub expected: &'static str,
}

/// Compression of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Gzip {
    /// gzip.
    #[default]
    Gzip,
    /// Not at all.
    None,
}

/// A network that a sink may connect to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network(IpNet);

impl Deref for Network {
    type Target = IpNet;

    fn deref(&self) -> &IpNet {
        &self.0
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Text for Network {
    const FORMAT: &'static str = "network";
    const EXPECTED: &'static str = "a network such as \"10.0.0.0/8\" or \"2001:db8::/32\"";

    fn read(text: &str) -> Result<Self, Wrong> {
        if let Ok(network) = text.parse() {
            return Ok(Self(network));
        }
        let wrong = Wrong::from(format!("the string {text:?}"));
        Err(match text.parse::<IpAddr>() {
            Ok(address) => wrong.near(IpNet::from(address).to_string()),
            Err(_) => wrong,
        })
    }
}

text_value!(Network);

/// Reads the URL of a server: one of these schemes, a host, and neither user nor password.
pub(super) fn server_url(text: &str, schemes: &[&str]) -> Result<Url, Wrong> {
    // The text is not shown: a URL may carry a password.
    let url = Url::parse(text).map_err(|error| format!("a string that is no URL ({error})"))?;
    if !schemes.contains(&url.scheme()) {
        return Err(format!("a URL with the scheme {:?}", url.scheme()).into());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("a URL with a user or password, which would show in logs".into());
    }
    if url.host_str().is_none_or(str::is_empty) {
        return Err("a URL without a host".into());
    }
    Ok(url)
}

fn name(text: &str) -> Result<(), Wrong> {
    let first = text.chars().next().ok_or("an empty string")?;
    if first.is_ascii_alphanumeric()
        && text.len() <= 63
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
    {
        return Ok(());
    }
    let mended: String =
        text.trim().chars().map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' }).collect();
    let wrong = Wrong::from(format!("the string {text:?}"));
    Err(if mended != text && name(&mended).is_ok() { wrong.near(mended) } else { wrong })
}

/// Opens a client that stands behind the cargo feature of this name; in a build without it, the error names the feature.
macro_rules! with_feature {
    ($feature:tt, $opened:expr) => {{
        #[cfg(feature = $feature)]
        let opened = $opened;
        #[cfg(not(feature = $feature))]
        let opened = Err(crate::sink::settings::left_out($feature));
        opened
    }};
}
pub(super) use with_feature;

/// The error for a type of sink whose client is not part of this build.
#[allow(dead_code, reason = "a build with every client has no use for it")]
pub(super) fn left_out(feature: &str) -> String {
    format!(
        "this decklog was built without the cargo feature `{feature}`: build it with `cargo build --release --all-features`, or with `--features {feature}` beside the others that you use"
    )
}

pub(super) const fn timeout() -> Span {
    Span::from_secs(30)
}

pub(super) const fn batch_size() -> usize {
    100
}

pub(super) const fn bulk_size() -> usize {
    500
}

pub(super) const fn transaction_size() -> usize {
    1000
}

pub(super) fn decklog() -> String {
    "decklog".to_owned()
}
