//! Contents of JSON strings.

use std::borrow::Cow;
use std::fmt;

use serde::de::Visitor;
use serde::{Deserialize, Deserializer};

/// Contents of a JSON string. A lone surrogate, which no text can hold, reads as U+FFFD.
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
                Ok(Text(std::str::from_utf8(bytes).map_or_else(|_| Cow::Owned(lossy(bytes)), Cow::Borrowed)))
            }
            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(lossy(bytes))))
            }
        }
        /// With U+FFFD for each lone surrogate, which comes as three bytes. Those that the text has itself stay as many as they are.
        fn lossy(bytes: &[u8]) -> String {
            let (mut text, mut unread) = (String::with_capacity(bytes.len()), 0);
            for chunk in bytes.utf8_chunks() {
                text.push_str(chunk.valid());
                unread = if chunk.valid().is_empty() { unread } else { 0 };
                if !chunk.invalid().is_empty() && unread % 3 == 0 {
                    text.push('\u{fffd}');
                }
                unread += chunk.invalid().len();
            }
            text
        }
        deserializer.deserialize_bytes(Read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lone_surrogate_is_one_replacement_and_those_of_the_text_stay() {
        let read = |json: &str| serde_json::from_str::<Text<'_>>(json).unwrap().0.into_owned();
        assert_eq!(read(r#""a\ud800b""#), "a\u{fffd}b");
        assert_eq!(read(r#""\ud800\udbff\ud83d\ude00""#), "\u{fffd}\u{fffd}\u{1f600}");
        assert_eq!(read("\"\\\\\u{fffd}\u{fffd}\u{fffd}\""), "\\\u{fffd}\u{fffd}\u{fffd}");
        assert_eq!(read("\"\u{fffd}\\ud800\u{fffd}\u{fffd}\""), "\u{fffd}\u{fffd}\u{fffd}\u{fffd}");
    }
}
