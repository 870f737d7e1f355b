//! The list of the types of sinks: one line each, and the only place that knows all of them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Sink;
use super::settings::{self, Clash, SinkSettings};
use crate::core::spelling::Format;

/// Makes of the list what has to know every type: `doc` is what the JSON Schema says of it, `module` its module in
/// `sink` and the word of `type`, and `Kind` its variant.
macro_rules! sinks {
    ($($doc:literal $module:ident $kind:ident;)*) => {
        /// The type of a sink, with the keys that only this type has.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
        #[serde(tag = "type", rename_all = "lowercase")]
        pub enum SinkKind {
            $(#[doc = $doc] $kind(super::$module::Settings),)*
        }

        impl SinkKind {
            /// The word for the type, as in the configuration.
            #[must_use]
            pub const fn word(&self) -> &'static str {
                match self { $(Self::$kind(_) => stringify!($module),)* }
            }

            /// The keys that only this type has.
            #[must_use]
            pub fn settings(&self) -> &dyn SinkSettings {
                match self { $(Self::$kind(settings) => settings,)* }
            }

            /// See [`SinkSettings::clash`]. Sinks of two types never write to one place.
            #[must_use]
            pub fn clash(&self, other: &Self, name: &str) -> Option<Clash> {
                match (self, other) {
                    $((Self::$kind(own), Self::$kind(other)) => own.clash(other, name),)*
                    _ => None,
                }
            }
        }

        /// See [`SinkSettings::wants_everything`], of the type with this word.
        #[must_use]
        pub fn wants_everything(word: &str) -> Option<&'static str> {
            $(if word == stringify!($module) {
                return <super::$module::Settings as SinkSettings>::wants_everything();
            })*
            None
        }

        /// The formats of texts in the keys of all types.
        pub fn formats() -> impl Iterator<Item = &'static Format> {
            [settings::FORMATS, $(<super::$module::Settings as SinkSettings>::formats()),*].into_iter().flatten()
        }
    };
}

sinks! {
    "JSON Lines on standard output." stdout Stdout;
    "Documents in Elasticsearch or OpenSearch." elasticsearch Elasticsearch;
    "JSON Lines in a file." file File;
    "CloudEvents over HTTP." http Http;
    "The journal of systemd." journald Journald;
    "Topics of Kafka." kafka Kafka;
    "A stream of NATS JetStream." nats Nats;
    "Logs over OTLP." otlp Otlp;
    "Rows in a PostgreSQL database." postgres Postgres;
    "Redis streams." redis Redis;
    "Compressed JSON Lines in an S3 bucket or a folder." s3 S3;
    "Syslog." syslog Syslog;
}

impl SinkKind {
    /// Builds the sink. Nothing is opened or connected before it is used.
    ///
    /// # Errors
    /// A sentence, where it can never work.
    pub fn open(&self) -> Result<Box<dyn Sink>, String> {
        self.settings().open()
    }
}
