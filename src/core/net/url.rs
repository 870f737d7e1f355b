//! URLs of servers, as people write them.

use std::fmt;
use std::ops::Deref;

use reqwest::Url;

use crate::core::spelling::{Text, Wrong, text_value};

/// URL of an HTTP server: a host, without user and password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpUrl(Url);

impl Deref for HttpUrl {
    type Target = Url;

    fn deref(&self) -> &Url {
        &self.0
    }
}

impl fmt::Display for HttpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Text for HttpUrl {
    const FORMAT: &'static str = "http-url";
    const EXPECTED: &'static str =
        "an http:// or https:// URL without user and password (for those: the keys that end in _file)";

    fn read(text: &str) -> Result<Self, Wrong> {
        // The text is not shown: a URL may carry a token.
        let url = match Url::parse(text) {
            Ok(url) => url,
            Err(error) => {
                let mended = format!("https://{text}");
                let wrong = Wrong::from(format!("a string that is no URL ({error})"));
                let plain = !text.contains(['@', '?', ' ']) && text.contains('.');
                return Err(if plain && Self::read(&mended).is_ok() { wrong.near(mended) } else { wrong });
            }
        };
        if !matches!(url.scheme(), "http" | "https") {
            return Err(format!("a URL with the scheme {:?}", url.scheme()).into());
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("a URL with a user or password, which would show in logs".into());
        }
        if url.host_str().is_none_or(str::is_empty) {
            return Err("a URL without a host".into());
        }
        Ok(Self(url))
    }
}

text_value!(HttpUrl);
