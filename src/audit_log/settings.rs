//! `[[audit_log]]`: where the API server's audit log is read.

use std::path::{Path, PathBuf};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::core::net::server::{Endpoint, Listen};
use crate::core::units::{Margin, Span};

/// A source of the API server's audit log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "AuditLog")]
pub struct Settings {
    /// Its name: the position in the file is kept under it. Default: the name of the file without its extension, or the address.
    #[schemars(extend("format" = "name"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The file that the API server of this machine writes (--audit-log-path), or a named pipe. Its rotation is followed.
    #[schemars(extend("format" = "path"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// An address for the API server's webhook backend and for pushes over HTTP: IP:PORT; or the path of a unix socket that takes
    /// JSON Lines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<Listen>,
    /// A PEM file with the certificate that `listen` shows, and what it was signed with.
    #[schemars(extend("format" = "readable-file"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_cert_file: Option<PathBuf>,
    /// A PEM file with the private key of `tls_cert_file`.
    #[schemars(extend("format" = "readable-file"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_key_file: Option<PathBuf>,
    /// A PEM file with the authorities whose client certificates may send.
    #[schemars(extend("format" = "readable-file"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_ca_file: Option<PathBuf>,
    /// A file with the tokens that may send, one in each line, each of 16 characters at least. It is read again for each request.
    #[schemars(extend("format" = "readable-file"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
    /// The name that a cloud's envelope has to give the cluster; events of others are refused. Default: every cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// Longest time from the answer to a request until its event is here. A sender that the answer does not prove is named some 15 seconds
    /// after it, when no other request of that time can still come.
    /// At most 30m. Default: 2s for `file`, 60s for `listen`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag: Option<Span>,
    /// Most by which the clocks of the API servers and of decklog's machine differ. With less, more of the requests of one moment are
    /// distinguished; if clocks differ by more, a wrong sender may be named. At most a minute. Default: none for a single `file`, else 1s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_skew: Option<Margin>,
}

/// Lag of a file: the API server writes each event before it answers (`--audit-log-mode=blocking`, the default).
const FILE_LAG_MAX: Duration = Duration::from_secs(2);
/// Lag of a receiver: the API server sends a batch after 30 s at the latest, and again when it was not taken.
const LISTEN_LAG_MAX: Duration = Duration::from_secs(60);

/// Longest lag that can be set: changes wait for their senders, and requests for their changes, in memory.
const LAG_LIMIT: Duration = Duration::from_mins(30);

/// Difference of the clocks of several machines that keep the time by NTP, with room.
const CLOCK_SKEW_MAX: Duration = Duration::from_secs(1);
/// Largest difference of clocks that can be set: with more, hardly anything is distinguished.
const CLOCK_SKEW_LIMIT: Duration = Duration::from_secs(60);

/// Returns the most by which the clocks of the API servers of these audit logs and of this machine differ.
pub(super) fn clock_skew(logs: &[Settings]) -> Duration {
    // The only API server is on this machine, and has its clock.
    let default = if matches!(logs, [one] if one.file.is_some()) { Duration::ZERO } else { CLOCK_SKEW_MAX };
    logs.iter().map(|log| log.clock_skew.map_or(default, |skew| *skew)).max().unwrap_or(default)
}

/// A kind of mistake in tables `[[audit_log]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// Neither `file` nor `listen`.
    Neither,
    /// Both `file` and `listen`.
    Both,
    /// A key of `listen` beside `file`.
    OnlyOfListen(&'static str),
    /// Other machines can connect, and nobody is asked who they are.
    Open(Listen),
    /// Other machines can connect without TLS.
    Clear(Listen),
    /// Clocks that differ by more than a minute.
    Skewed(Margin),
    /// Events that come more than half an hour late.
    Late(Span),
    /// The name of another table.
    SameName(String, String),
    /// The file of another table.
    SameFile(PathBuf, String),
    /// The address of another table.
    SameAddress(Listen, String),
}

impl Mistake {
    /// Returns the key that has to be another; none where the whole table has to be.
    #[must_use]
    pub const fn key(&self) -> Option<&'static str> {
        match self {
            Self::Neither => None,
            Self::OnlyOfListen(key) => Some(key),
            Self::SameName(..) => Some("name"),
            Self::Skewed(_) => Some("clock_skew"),
            Self::Late(_) => Some("lag"),
            Self::SameFile(..) => Some("file"),
            Self::Both | Self::Open(_) | Self::Clear(_) | Self::SameAddress(..) => Some("listen"),
        }
    }

    /// Returns the value found.
    #[must_use]
    pub fn found(&self) -> String {
        match self {
            Self::Neither => "neither file nor listen".to_owned(),
            Self::Both => "listen beside file".to_owned(),
            Self::OnlyOfListen(key) => format!("{key} beside file"),
            Self::Open(listen) => format!("\"{listen}\", where everybody who can connect could make up who did what"),
            Self::Clear(listen) => format!("\"{listen}\", which other machines can reach, without TLS"),
            Self::Skewed(skew) => format!("\"{skew}\""),
            Self::Late(lag) => format!("\"{lag}\""),
            Self::SameName(name, other) => format!("{name:?}, which is the name of {other}"),
            Self::SameFile(file, other) => format!("{:?}, which {other} reads", file.display().to_string()),
            Self::SameAddress(listen, other) => format!("\"{listen}\", where {other} listens"),
        }
    }

    /// Returns the expectation.
    #[must_use]
    pub const fn expected(&self) -> &'static str {
        match self {
            Self::Neither => "one of them: the file that the API server writes, or an address for its webhook",
            Self::Both => "one of them; another [[audit_log]] can have the other",
            Self::OnlyOfListen(_) => "listen instead of file, or leave it out",
            Self::Open(_) => "token_file or client_ca_file beside it, an address on loopback, or a unix socket",
            Self::Clear(_) => {
                "tls_cert_file and tls_key_file beside it, so that nobody reads along or sends in between"
            }
            Self::Skewed(_) => "at most 1m: a clock that differs by more is to be set right first",
            Self::Late(_) => "at most 30m: changes wait for their senders so long; let the events come sooner",
            Self::SameName(..) => "a name that no other [[audit_log]] has; name sets one",
            Self::SameFile(..) => "each file at most once",
            Self::SameAddress(..) => "another address or socket",
        }
    }
}

impl Settings {
    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> String {
        let of_file = || Some(self.file.as_ref()?.file_stem()?.to_string_lossy().into_owned());
        let of_address = || self.listen.as_ref().map(ToString::to_string);
        self.name.clone().or_else(of_file).or_else(of_address).unwrap_or_default()
    }

    /// Returns the longest time from the answer to a request until its event is here.
    #[must_use]
    pub fn lag(&self) -> Duration {
        self.lag.map_or(if self.file.is_some() { FILE_LAG_MAX } else { LISTEN_LAG_MAX }, |lag| *lag)
    }

    /// Returns the settings of its listener; none if it reads a file.
    pub(crate) fn endpoint(&self) -> Option<Endpoint<'_>> {
        let listen = self.listen.as_ref()?;
        Some(Endpoint {
            section: "[[audit_log]]",
            listen,
            // The rights of a unix socket are for everybody in the daemon's group.
            gated: matches!(listen, Listen::Unix(_)) || self.asks(),
            authorize: None,
            token_file: self.token_file.as_deref(),
            tls_cert_file: self.tls_cert_file.as_deref(),
            tls_key_file: self.tls_key_file.as_deref(),
            client_ca_file: self.client_ca_file.as_deref(),
        })
    }

    const fn asks(&self) -> bool {
        self.token_file.is_some() || self.client_ca_file.is_some()
    }

    /// Returns the mistakes of this table alone.
    #[must_use]
    pub fn mistakes(&self) -> Vec<Mistake> {
        let skewed = self.clock_skew.filter(|skew| **skew > CLOCK_SKEW_LIMIT).map(Mistake::Skewed);
        let late = self.lag.filter(|lag| **lag > LAG_LIMIT).map(Mistake::Late);
        let mut mistakes: Vec<Mistake> = skewed.into_iter().chain(late).collect();
        match (&self.file, &self.listen) {
            (None, None) => mistakes.push(Mistake::Neither),
            (Some(_), Some(_)) => mistakes.push(Mistake::Both),
            (Some(_), None) => {
                let files = [
                    ("tls_cert_file", &self.tls_cert_file),
                    ("tls_key_file", &self.tls_key_file),
                    ("client_ca_file", &self.client_ca_file),
                    ("token_file", &self.token_file),
                ];
                let set = files.into_iter().filter(|(_, file)| file.is_some());
                mistakes.extend(set.map(|(key, _)| Mistake::OnlyOfListen(key)));
            }
            (None, Some(listen)) if !listen.is_local() => {
                if !self.asks() {
                    mistakes.push(Mistake::Open(listen.clone()));
                }
                if self.tls_cert_file.is_none() {
                    mistakes.push(Mistake::Clear(listen.clone()));
                }
            }
            (None, Some(_)) => {}
        }
        mistakes
    }

    /// Returns the mistakes of two tables that cannot both be; `other_name` is what messages call the other one.
    #[must_use]
    pub fn clashes(&self, other: &Self, other_name: &str) -> Vec<Mistake> {
        let other_name = other_name.to_owned();
        let same_file = |own: &&PathBuf| other.file.as_deref().is_some_and(|other| real(own) == real(other));
        if let Some(file) = self.file.as_ref().filter(same_file) {
            return vec![Mistake::SameFile(file.clone(), other_name)];
        }
        if let Some(listen) = self.listen.as_ref().filter(|listen| other.listen.as_ref() == Some(listen)) {
            return vec![Mistake::SameAddress(listen.clone(), other_name)];
        }
        let name = self.name();
        if !name.is_empty() && name == other.name() {
            return vec![Mistake::SameName(name, other_name)];
        }
        Vec::new()
    }
}

/// The path without links, as far as it is there.
fn real(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_are_one_where_the_only_api_server_is_on_this_machine() {
        let logs = |text: &str| -> Vec<Settings> {
            #[derive(Deserialize)]
            struct Tables {
                audit_log: Vec<Settings>,
            }
            toml::from_str::<Tables>(text).unwrap().audit_log
        };
        let file = |number: u32, more: &str| format!("[[audit_log]]\nfile = \"/log/{number}\"\n{more}");
        let listen = |more: &str| format!("[[audit_log]]\nlisten = \"127.0.0.1:1\"\n{more}");
        for (text, expected) in [
            (file(1, ""), 0),
            (file(1, "clock_skew = \"3s\""), 3000),
            (listen(""), 1000),
            (listen("clock_skew = \"20ms\""), 20),
            (listen("clock_skew = \"1ms\""), 1),
            (listen("clock_skew = \"0s\""), 0),
            (file(1, "") + &file(2, ""), 1000),
            (file(1, "clock_skew = \"5ms\"\n") + &file(2, ""), 1000),
            (file(1, "clock_skew = \"5ms\"\n") + &listen("clock_skew = \"7ms\""), 7),
        ] {
            assert_eq!(clock_skew(&logs(&text)), Duration::from_millis(expected), "{text}");
        }
        for (key, expected) in [
            ("clock_skew = \"1m\"", vec![]),
            ("clock_skew = \"61s\"", vec![Mistake::Skewed(Margin::from_secs(61))]),
            ("lag = \"30m\"", vec![]),
            ("lag = \"31m\"", vec![Mistake::Late(Span::from_secs(1860))]),
        ] {
            assert_eq!(logs(&listen(key))[0].mistakes(), expected, "{key}");
        }
    }
}
