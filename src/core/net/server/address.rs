//! The address of a listener.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use crate::core::spelling::{Format, Text, Wrong, text_value};

/// The formats of these texts.
pub const FORMATS: &[Format] = &[Format::of::<Listen>()];

/// Address of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// An address and port.
    Tcp(SocketAddr),
    /// A unix socket.
    Unix(PathBuf),
}

impl Text for Listen {
    const FORMAT: &'static str = "listen";
    const EXPECTED: &'static str = "an address and port such as \"127.0.0.1:9465\", or the path of a unix socket";

    fn read(text: &str) -> Result<Self, Wrong> {
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() {
                Err("a unix socket without a path".into())
            } else {
                Ok(Self::Unix(path.into()))
            };
        }
        if text.contains('/') {
            return Ok(Self::Unix(text.into()));
        }
        match text.parse::<SocketAddr>() {
            Ok(address) => Ok(Self::Tcp(address)),
            Err(_) => {
                let wrong = Wrong::from(format!("the string {text:?}"));
                let port = text.rsplit(':').next().unwrap_or_default();
                let host = text.strip_suffix(port).unwrap_or_default().trim_end_matches(':');
                Err(match (host, port.parse::<u16>()) {
                    ("" | "localhost", Ok(port)) => wrong.near(format!("127.0.0.1:{port}")),
                    ("*", Ok(port)) => wrong.near(format!("0.0.0.0:{port}")),
                    ("localhost", _) | ("", Err(_)) if port.is_empty() || port == "localhost" => {
                        wrong.near("127.0.0.1:9465")
                    }
                    (_, Err(_)) if text.parse::<Ipv4Addr>().is_ok() => wrong.near(format!("{text}:9465")),
                    _ => wrong,
                })
            }
        }
    }
}

text_value!(Listen);

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

impl Listen {
    /// Reports whether only this machine can reach the address.
    #[must_use]
    pub fn is_local(&self) -> bool {
        match self {
            Self::Tcp(address) => address.ip().is_loopback(),
            Self::Unix(_) => true,
        }
    }
}
