//! What JSON strings say.

use std::borrow::Cow;
use std::fmt;

use serde::de::Visitor;
use serde::{Deserialize, Deserializer};

/// What a JSON string says. A lone surrogate, which no text can hold, reads as U+FFFD.
pub(crate) struct Text<'a>(pub(crate) Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = Text<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_bytes<E>(self, bytes: &'de [u8]) -> Result<Self::Value, E> {
                Ok(Text(match String::from_utf8_lossy(bytes) {
                    Cow::Borrowed(text) => Cow::Borrowed(text),
                    Cow::Owned(text) => Cow::Owned(once_each(&text)),
                }))
            }
            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(once_each(&String::from_utf8_lossy(bytes)))))
            }
        }
        /// Each of the three bytes of a surrogate was replaced.
        fn once_each(text: &str) -> String {
            text.replace("\u{fffd}\u{fffd}\u{fffd}", "\u{fffd}")
        }
        deserializer.deserialize_bytes(Read)
    }
}
