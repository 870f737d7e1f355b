//! The keys of a sink of type `nats`. They are there also in a build without the client.

use std::fmt;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[cfg(not(feature = "nats"))]
use subject::{Subject, meet};

#[cfg(feature = "nats")]
use super::subject::{Subject, meet};
use crate::core::net;
use crate::core::shared_log::SharedLog;
use crate::core::spelling::{Format, Text, Wrong, text_value};
use crate::core::units::Span;
use crate::sink::Sink;
use crate::sink::settings::{Clash, SinkSettings, Tls, batch_size, timeout, with_feature};

/// Subjects, which stand in the module of the client in a build that has it.
#[cfg(not(feature = "nats"))]
#[path = "subject.rs"]
#[allow(dead_code, reason = "the client has a use for the rest")]
mod subject;

const FORMATS: &[Format] = &[Format::of::<StreamName>(), Format::of::<Subject>()];

/// A stream of NATS JetStream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "NatsSink")]
pub struct Settings {
    /// The servers: nats:// or tls://, host and port.
    #[schemars(length(min = 1), extend("writeOnly" = true))]
    pub addresses: Vec<String>,
    /// The stream.
    pub stream: StreamName,
    /// The subject of an entry.
    #[serde(default = "subject")]
    pub subject: Subject,
    /// A file with credentials as `nsc` makes them (.creds); read again when it changes.
    #[serde(default)]
    #[schemars(extend("format" = "readable-file"))]
    pub credentials_file: Option<PathBuf>,
    /// The user that `password_file` is of.
    #[serde(default)]
    pub user: Option<String>,
    /// A file with the password of `user`; read again when it changes.
    #[serde(default)]
    #[schemars(extend("format" = "readable-file"))]
    pub password_file: Option<PathBuf>,
    /// A file with a token; read again when it changes.
    #[serde(default)]
    #[schemars(extend("format" = "readable-file"))]
    pub token_file: Option<PathBuf>,
    /// TLS: whom decklog trusts, and its own certificate.
    #[serde(flatten)]
    pub tls: Tls,
    /// Number of entries under way at once.
    #[serde(default = "batch_size")]
    #[schemars(range(min = 1, max = 10_000))]
    pub batch_size: usize,
    /// Time limit of an answer.
    #[serde(default = "timeout")]
    pub timeout: Span,
}

/// The name of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamName(String);

impl fmt::Display for StreamName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Text for StreamName {
    const FORMAT: &'static str = "stream";
    const EXPECTED: &'static str = "the name of a stream, without spaces and any of . * > / \\";

    fn read(text: &str) -> Result<Self, Wrong> {
        let odd = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '.' | '*' | '>' | '/' | '\\');
        match text.find(odd) {
            _ if text.is_empty() => Err("an empty text".into()),
            Some(_) => Err(format!("{text:?}, which no stream can be called").into()),
            None => Ok(Self(text.to_owned())),
        }
    }
}

text_value!(StreamName);

fn subject() -> Subject {
    Subject::read("decklog.{resource}.{namespace}").expect("its fields are known, and nothing in it is a wildcard")
}

impl SinkSettings for Settings {
    fn open(&self) -> Result<Box<dyn Sink>, String> {
        with_feature!("nats", crate::sink::nats::NatsSink::new(self).map(|sink| Box::new(sink) as Box<dyn Sink>))
    }

    #[cfg_attr(not(feature = "nats"), allow(unused_variables, reason = "the client uses them"))]
    fn shared_log(&self, sink: &str, cluster: &str) -> Option<Result<Box<dyn SharedLog>, String>> {
        Some(with_feature!(
            "nats",
            crate::sink::nats::NatsLog::new(self, sink, cluster).map(|log| Box::new(log) as Box<dyn SharedLog>)
        ))
    }

    /// Each would take what the other wrote for its own. Of another user it may be another stream, of another account.
    fn clash(&self, other: &Self, name: &str) -> Option<Clash> {
        let who = |sink: &Self| {
            let files = [&sink.credentials_file, &sink.token_file, &sink.tls.cert_file].map(Clone::clone);
            (sink.stream.clone(), sink.user.clone(), files)
        };
        let server = |address: &String| net::server(address, 4222);
        let others: Vec<_> = other.addresses.iter().filter_map(server).collect();
        let meets = self.addresses.iter().filter_map(server).any(|server| others.contains(&server))
            && who(self) == who(other)
            && meet(self.subject.pattern(), other.subject.pattern());
        meets.then(|| Clash {
            key: "stream",
            found: format!("the stream and the subjects of {name}"),
            expected: "a stream, or a fixed part of `subject`, that no other sink has",
        })
    }

    fn formats() -> &'static [Format] {
        FORMATS
    }
}
