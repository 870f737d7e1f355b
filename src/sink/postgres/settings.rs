//! The keys of a sink of type `postgres`. They are there also in a build without the client.

use std::fmt;
use std::path::PathBuf;

#[cfg(feature = "postgres")]
use tokio_postgres::config::{Config, Host};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[cfg(feature = "postgres")]
use crate::core::net::is_loopback;
use crate::core::shared_log::SharedLog;
use crate::core::spelling::{Format, Text, Wrong, text_value};
use crate::core::units::Span;
use crate::sink::Sink;
#[cfg(feature = "postgres")]
use crate::sink::settings::Clash;
use crate::sink::settings::{SinkSettings, Tls, decklog, timeout, transaction_size, with_feature};

/// Rows in a PostgreSQL database.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "PostgresSink")]
pub struct Settings {
    /// The database: `postgres://USER@HOST:PORT/DATABASE`.
    #[schemars(extend("writeOnly" = true))]
    pub url: PostgresUrl,
    /// Encryption of the connection, and verification of the server.
    #[serde(default)]
    pub sslmode: SslMode,
    /// A file with the password; read again when it changes.
    #[serde(default)]
    #[schemars(extend("format" = "readable-file"))]
    pub password_file: Option<PathBuf>,
    /// The schema with decklog's tables.
    #[serde(default = "decklog")]
    #[schemars(extend("format" = "name"))]
    pub schema: String,
    /// Keep the present state of the cluster in the table `objects`.
    #[serde(default)]
    pub objects: bool,
    /// Maximum number of entries in one transaction.
    #[serde(default = "transaction_size")]
    #[schemars(range(min = 1, max = 10_000))]
    pub batch_size: usize,
    /// TLS: whom decklog trusts, and its own certificate.
    #[serde(flatten)]
    pub tls: Tls,
    /// Time limit of one transaction.
    #[serde(default = "timeout")]
    pub timeout: Span,
}

/// Verification of a database server. There is nothing between the two: encryption without verification keeps
/// nobody out who can listen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SslMode {
    /// The connection is encrypted, the certificate is of an authority that is trusted, and names the host of `url`.
    #[default]
    VerifyFull,
    /// Nothing is encrypted and nothing is verified.
    Disable,
}

/// Address of a database, with a user. Never with a password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostgresUrl {
    text: String,
    #[cfg(feature = "postgres")]
    config: Config,
}

#[cfg(feature = "postgres")]
impl PostgresUrl {
    /// Parses the text as the client does.
    fn parse(text: &str) -> Result<Config, Wrong> {
        let config: Config = text.parse().map_err(|_| "a string that is no URL of a database")?;
        if config.get_password().is_some() {
            return Err("a URL with a password, which would show in logs".into());
        }
        if config.get_user().is_none_or(str::is_empty) || config.get_dbname().is_none_or(str::is_empty) {
            return Err("a URL without a user or without a database".into());
        }
        if config.get_hosts().is_empty() {
            return Err("a URL without a host".into());
        }
        Ok(config)
    }

    /// Returns the configuration of the client.
    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    /// Reports whether the database is, or may be, on another machine.
    fn leaves_this_machine(&self) -> bool {
        self.config.get_hosts().iter().any(|host| match host {
            Host::Tcp(name) => !is_loopback(name),
            Host::Unix(_) => false,
        })
    }

    /// The hosts and the database.
    pub(super) fn place(&self) -> String {
        let config = &self.config;
        let ports = config.get_ports();
        let port = |at: usize| ports.get(at).or(ports.first()).copied().unwrap_or(5432);
        let hosts = config.get_hosts().iter().enumerate().map(|(at, host)| match host {
            Host::Tcp(name) if name.contains(':') => format!("[{name}]:{}", port(at)),
            Host::Tcp(name) => format!("{name}:{}", port(at)),
            Host::Unix(path) => path.display().to_string(),
        });
        format!("{}/{}", hosts.collect::<Vec<_>>().join(","), config.get_dbname().unwrap_or_default())
    }
}

impl fmt::Display for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Text for PostgresUrl {
    const FORMAT: &'static str = "postgres-url";
    const EXPECTED: &'static str =
        "a URL such as postgres://decklog@db.example:5432/audit, without a password (for that: password_file)";

    /// The text of an error never quotes the URL, because there may be a password in it.
    fn read(text: &str) -> Result<Self, Wrong> {
        if !text.starts_with("postgres://") && !text.starts_with("postgresql://") {
            return Err("a string that does not begin with postgres://".into());
        }
        for parameter in text.split_once('?').map_or("", |(_, query)| query).split('&').filter(|text| !text.is_empty())
        {
            match parameter.split('=').next().unwrap_or_default() {
                "host" => {}
                "password" => return Err("a URL with a password, which would show in logs".into()),
                name @ ("sslmode" | "connect_timeout") => {
                    return Err(format!("a URL with the parameter {name}, which is a key of the sink").into());
                }
                _ => return Err("a URL with other parameters than host".into()),
            }
        }
        // The client takes for credentials what stands before the first "@", whatever that is.
        let rest = text.split_once("://").map_or("", |(_, rest)| rest);
        if rest.split_once('@').is_some_and(|(user, _)| user.contains(':')) {
            return Err("a URL with a password, which would show in logs".into());
        }
        Ok(Self {
            text: text.to_owned(),
            #[cfg(feature = "postgres")]
            config: Self::parse(text)?,
        })
    }
}

text_value!(PostgresUrl);

impl SinkSettings for Settings {
    fn open(&self) -> Result<Box<dyn Sink>, String> {
        with_feature!(
            "postgres",
            crate::sink::postgres::PostgresSink::new(self).map(|sink| Box::new(sink) as Box<dyn Sink>)
        )
    }

    #[cfg_attr(not(feature = "postgres"), allow(unused_variables, reason = "the client uses them"))]
    fn shared_log(&self, sink: &str, cluster: &str) -> Option<Result<Box<dyn SharedLog>, String>> {
        Some(with_feature!(
            "postgres",
            crate::sink::postgres::PostgresLog::new(self, sink, cluster).map(|log| Box::new(log) as Box<dyn SharedLog>)
        ))
    }

    #[cfg(feature = "postgres")]
    fn warning(&self) -> Option<&'static str> {
        (self.sslmode == SslMode::Disable && self.url.leaves_this_machine()).then_some(
            "speaks to its database in clear: take sslmode = \"disable\" away, unless the network is trusted",
        )
    }

    #[cfg(feature = "postgres")]
    fn clash(&self, other: &Self, name: &str) -> Option<Clash> {
        (self.url.place() == other.url.place() && self.schema == other.schema).then(|| Clash {
            key: "url",
            found: format!("the database and the schema of {name}"),
            expected: "a database or a schema that no other sink delivers to",
        })
    }

    fn formats() -> &'static [Format] {
        const { &[Format::of::<PostgresUrl>()] }
    }

    /// The table of the objects that there are can only be kept by who gets everything.
    fn wants_everything() -> Option<&'static str> {
        Some("objects")
    }
}

#[cfg(test)]
mod tests_of_every_build {
    use super::*;

    #[test]
    fn a_password_is_found_without_the_client() {
        for url in ["postgres://me:s3cret@h/audit", "postgres://me:s3/cret@h/audit", "postgres://:x@h/audit"] {
            assert!(PostgresUrl::read(url).unwrap_err().found.contains("with a password"), "{url}");
        }
        for url in ["postgres://me@h:5432/audit", "postgres://me@/audit?host=/run/postgresql"] {
            assert!(PostgresUrl::read(url).is_ok(), "{url}");
        }
    }
}

#[cfg(all(test, feature = "postgres"))]
mod tests {
    use super::*;

    #[test]
    fn another_machine_is_told_from_this_one() {
        for (url, leaves) in [
            ("postgres://me@127.0.0.1/audit", false),
            ("postgres://me@localhost/audit", false),
            ("postgres://me@/audit?host=/run/postgresql", false),
            ("postgres://me@db.example/audit", true),
            ("postgres://me@127.0.0.1,db.example/audit", true),
        ] {
            assert_eq!(PostgresUrl::read(url).unwrap().leaves_this_machine(), leaves, "{url}");
        }
    }

    #[test]
    fn a_url_names_user_host_and_database_and_no_password() {
        for (url, says) in [
            ("postgres://decklog@db.example/audit", "db.example:5432/audit"),
            ("postgresql://decklog@db.example:6432/audit", "db.example:6432/audit"),
            ("postgres://decklog@a:1,b:2/audit", "a:1,b:2/audit"),
            ("postgres://decklog@/audit?host=/run/postgresql", "/run/postgresql/audit"),
            ("postgres://decklog@%2Frun%2Fpostgresql/audit", "/run/postgresql/audit"),
        ] {
            assert_eq!(PostgresUrl::read(url).unwrap().place(), says, "{url}");
        }
        for (url, says) in [
            ("host=db.example password=s3cret", "begin with postgres://"),
            ("postgres://me:s3cret@db.example/audit", "with a password"),
            ("postgres://me:s3/cret@db.example/audit", "with a password"),
            ("postgres://me@db.example/audit?password=s3cret", "with a password"),
            ("postgres://me@db.example/audit?sslmode=disable", "parameter sslmode"),
            ("postgres://me@db.example/audit?options=s3cret", "other parameters"),
            ("postgres://db.example/audit", "without a user"),
            ("postgres://me@db.example", "without a database"),
            ("postgres://me@/audit", "without a host"),
            ("postgres://me@db.example:s3cret/audit", "no URL"),
        ] {
            let found = PostgresUrl::read(url).unwrap_err().found;
            assert!(found.contains(says) && !found.contains("s3cret"), "{url}: {found}");
        }
    }
}
