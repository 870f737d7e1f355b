//! The keys of a sink of type `redis`. They are there also in a build without the client.

use std::fmt;
use std::path::PathBuf;

use reqwest::Url;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::core::net;
use crate::core::spelling::{Format, Text, Wrong, text_value};
use crate::core::units::Span;
use crate::sink::settings::{Clash, SinkSettings, Tls, batch_size, server_url, timeout, with_feature};
use crate::sink::{Sink, Template};

/// The port of a server where the URL has none.
pub(super) const PORT: u16 = 6379;

/// Redis streams.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "RedisSink")]
pub struct Settings {
    /// The server: redis://HOST:PORT/DATABASE, or rediss:// for TLS.
    #[schemars(extend("writeOnly" = true))]
    pub url: RedisUrl,
    /// The name of the stream.
    #[serde(default = "stream")]
    pub stream: Template,
    /// About how many entries the stream keeps. Default: all.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub max_len: Option<u64>,
    /// The user of the server's access control list. Default: its default user.
    #[serde(default)]
    pub user: Option<String>,
    /// A file with the password; read again when it changes.
    #[serde(default)]
    #[schemars(extend("format" = "readable-file"))]
    pub password_file: Option<PathBuf>,
    /// Maximum number of entries in one transaction.
    #[serde(default = "batch_size")]
    #[schemars(range(min = 1, max = 10_000))]
    pub batch_size: usize,
    /// TLS: whom decklog trusts, and its own certificate.
    #[serde(flatten)]
    pub tls: Tls,
    /// Time limit of one exchange.
    #[serde(default = "timeout")]
    pub timeout: Span,
}

fn stream() -> Template {
    Template::read("decklog").expect("a name without fields is a template")
}

/// Address of a server, and the number of the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisUrl {
    /// The server.
    pub server: Url,
    /// The number of the database; none is 0.
    pub database: Option<u32>,
}

impl fmt::Display for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.server.fmt(f)
    }
}

impl Text for RedisUrl {
    const FORMAT: &'static str = "redis-url";
    const EXPECTED: &'static str =
        "a redis:// or rediss:// URL without user and password (for those: user, password_file)";

    fn read(text: &str) -> Result<Self, Wrong> {
        let server = server_url(text, &["redis", "rediss"])?;
        let database = match server.path().trim_matches('/') {
            "" => None,
            number => Some(
                number
                    .parse()
                    .map_err(|_| "a URL with something else than the number of a database behind the host")?,
            ),
        };
        Ok(Self { server, database })
    }
}

text_value!(RedisUrl);

impl SinkSettings for Settings {
    fn open(&self) -> Result<Box<dyn Sink>, String> {
        with_feature!("redis", crate::sink::redis::RedisSink::new(self).map(|sink| Box::new(sink) as Box<dyn Sink>))
    }

    fn credentials_to(&self) -> Option<&Url> {
        self.password_file.as_ref().map(|_| &self.url.server)
    }

    /// Each would take what the other wrote for its own.
    fn clash(&self, other: &Self, name: &str) -> Option<Clash> {
        let place = |sink: &Self| (net::server(sink.url.server.as_str(), PORT), sink.url.database.unwrap_or(0));
        (place(self) == place(other) && self.stream == other.stream).then(|| Clash {
            key: "url",
            found: format!("the database and the stream of {name}"),
            expected: "a `stream` that no other sink writes to",
        })
    }

    fn formats() -> &'static [Format] {
        const { &[Format::of::<RedisUrl>()] }
    }
}
