//! The keys of a sink of type `syslog`.

use std::fmt;
use std::path::PathBuf;

use reqwest::Url;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::SyslogSink;
use crate::core::spelling::{Format, Text, Wrong, text_value};
use crate::core::units::{ByteSize, Span};
use crate::sink::Sink;
use crate::sink::settings::{SinkSettings, Tls, decklog, server_url, timeout};

const FORMATS: &[Format] = &[
    Format::of::<SyslogUrl>(),
    Format {
        name: "syslog-name",
        expected: "at most 48 printable ASCII characters without spaces",
        check: |text| printable(text, 48),
    },
    Format {
        name: "syslog-host",
        expected: "at most 255 printable ASCII characters without spaces",
        check: |text| printable(text, 255),
    },
    Format {
        name: "sd-id",
        expected: "a name and an enterprise number, such as \"decklog@32473\", of at most 32 letters, digits, \"-\", \"_\" and \".\"",
        check: sd_id,
    },
];

/// Syslog, as RFC 5424 writes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "SyslogSink")]
pub struct Settings {
    /// The server: unix:///PATH, tcp://HOST:PORT or tls://HOST:PORT.
    #[serde(default)]
    pub url: SyslogUrl,
    /// Facility: the sort of program that decklog is to the server.
    #[serde(default)]
    pub facility: Facility,
    /// APP-NAME of every message.
    #[serde(default = "decklog")]
    #[schemars(extend("format" = "syslog-name"))]
    pub app_name: String,
    /// HOSTNAME of every message. Default: the machine's.
    #[serde(default)]
    #[schemars(extend("format" = "syslog-host"))]
    pub hostname: Option<String>,
    /// Name of the structured data.
    #[serde(default = "example_sd_id")]
    #[schemars(extend("format" = "sd-id"))]
    pub sd_id: String,
    /// The longest message that the server takes whole.
    #[serde(default = "max_message_size")]
    pub max_message_size: ByteSize,
    /// TLS: whom decklog trusts, and its own certificate.
    #[serde(flatten)]
    pub tls: Tls,
    /// Time limit of a server that takes nothing.
    #[serde(default = "timeout")]
    pub timeout: Span,
}

/// A facility of syslog, with its number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum Facility {
    /// Programs of users.
    User = 1,
    /// Daemons.
    #[default]
    Daemon = 3,
    /// Security, for everybody to read.
    Auth = 4,
    /// Security, not for everybody to read.
    Authpriv = 10,
    /// For the operator's own use.
    Local0 = 16,
    /// As above.
    Local1 = 17,
    /// As above.
    Local2 = 18,
    /// As above.
    Local3 = 19,
    /// As above.
    Local4 = 20,
    /// As above.
    Local5 = 21,
    /// As above.
    Local6 = 22,
    /// As above.
    Local7 = 23,
}

/// The number is the one for examples (RFC 5612): decklog has none of its own.
fn example_sd_id() -> String {
    "decklog@32473".to_owned()
}

/// Default of rsyslog, which cuts longer messages.
const fn max_message_size() -> ByteSize {
    ByteSize(8 << 10)
}

/// Address of a syslog server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SyslogUrl {
    /// On this machine.
    Unix(PathBuf),
    /// At a host, over `tcp` or `tls`.
    Server(Url),
}

impl Default for SyslogUrl {
    fn default() -> Self {
        Self::Unix("/dev/log".into())
    }
}

impl fmt::Display for SyslogUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
            Self::Server(url) => url.fmt(f),
        }
    }
}

impl Text for SyslogUrl {
    const FORMAT: &'static str = "syslog-url";
    const EXPECTED: &'static str =
        "unix:// with the path of a socket, such as \"unix:///dev/log\"; or tcp:// or tls:// with a host";

    fn read(text: &str) -> Result<Self, Wrong> {
        match text.strip_prefix("unix://") {
            Some(path) if path.contains('\0') => Err("a path with a NUL character".into()),
            Some(path) if path.starts_with('/') => Ok(Self::Unix(path.into())),
            Some(_) => Err(format!("{text:?}, without an absolute path").into()),
            None if text.starts_with('/') => {
                Err(Wrong::from(format!("the path {text:?}")).near(format!("unix://{text}")))
            }
            None => server_url(text, &["tcp", "tls"]).map(Self::Server),
        }
    }
}

text_value!(SyslogUrl);

impl SinkSettings for Settings {
    fn open(&self) -> Result<Box<dyn Sink>, String> {
        Ok(Box::new(SyslogSink::new(self)?))
    }

    fn formats() -> &'static [Format] {
        FORMATS
    }
}

/// Checks a field of the header of a syslog message.
fn printable(text: &str, most: usize) -> Result<(), Wrong> {
    if text.is_empty() {
        return Err("an empty string".into());
    }
    if text.len() <= most && text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(());
    }
    Err(format!("the string {text:?}").into())
}

fn sd_id(text: &str) -> Result<(), Wrong> {
    let word = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    let number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    match text.split_once('@') {
        Some((name, enterprise)) if word(name) && number(enterprise) && text.len() <= 32 => Ok(()),
        None if word(text) && text.len() <= 26 => {
            Err(Wrong::from(format!("{text:?}, without a number")).near(format!("{text}@32473")))
        }
        _ => Err(format!("the string {text:?}").into()),
    }
}
