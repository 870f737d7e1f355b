//! Texts that people write: what a format of text is, why a text does not fit it, and the spelling that was meant.
//!
//! A value that is written as a text has a type of its own, which implements [`Text`] beside its room and is read once:
//! whoever holds it has a value that is right. The macro `text_value` makes of it what serde and the
//! JSON Schema need. A text that stays a text has a [`Format`] alone. The configuration checks both by the name that the
//! schema has for them.

pub mod glob;
pub mod kubernetes;

/// Reason why a text does not fit its format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// The text as it was found. It never quotes a value that may hold a secret.
    pub found: String,
    /// A right spelling that is near.
    pub nearest: Option<String>,
}

impl<T: Into<String>> From<T> for Wrong {
    fn from(found: T) -> Self {
        Self { found: found.into(), nearest: None }
    }
}

impl Wrong {
    /// With a right spelling that is near.
    #[must_use]
    pub fn near(mut self, nearest: impl Into<String>) -> Self {
        self.nearest = Some(nearest.into());
        self
    }
}

/// A value that is written as a text.
pub trait Text: Sized {
    /// Name of the format in the JSON Schema.
    const FORMAT: &'static str;
    /// Expectation, for people.
    const EXPECTED: &'static str;

    /// Reads it.
    ///
    /// # Errors
    /// Why it does not fit, and what may have been meant.
    fn read(text: &str) -> Result<Self, Wrong>;
}

/// A format of text, as the configuration checks it.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    /// Name in the JSON Schema.
    pub name: &'static str,
    /// Expectation, for people.
    pub expected: &'static str,
    /// Checks whether a text fits.
    pub check: fn(&str) -> Result<(), Wrong>,
}

impl Format {
    /// The format of a type.
    #[must_use]
    pub const fn of<T: Text>() -> Self {
        Self { name: T::FORMAT, expected: T::EXPECTED, check: fits::<T> }
    }
}

fn fits<T: Text>(text: &str) -> Result<(), Wrong> {
    T::read(text).map(drop)
}

/// Serde and the JSON Schema for a type that is [`Text`] and writes itself, by `Display`, as it is read.
macro_rules! text_value {
    ($type:ty) => {
        impl std::str::FromStr for $type {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                use $crate::core::spelling::Text;
                Self::read(text).map_err(|wrong| format!("{}; expected {}", wrong.found, Self::EXPECTED))
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
            }
        }

        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }

        $crate::core::spelling::text_schema!($type, <$type as $crate::core::spelling::Text>::FORMAT);
    };
}

/// The JSON Schema of a text with a format.
macro_rules! text_schema {
    ($type:ty, $format:expr) => {
        impl schemars::JsonSchema for $type {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                $format.into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "format": $format })
            }
        }
    };
}

pub(crate) use {text_schema, text_value};

/// The candidate that a word was most likely meant to be. See [`nearest_by`].
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<String> {
    nearest_by(word, candidates, |candidate: &&'a str| *candidate).map(str::to_owned)
}

/// The candidate whose spelling a word was most likely meant to be; of equals, the first.
///
/// Letters that differ in their case alone, and `-` and `_`, are the same. One edit (a letter more, less, another, or two
/// exchanged) is allowed for each three letters of the longer one of both, and one at least; never as many as the candidate
/// has letters, which would be another word.
pub fn nearest_by<T, S: AsRef<str>>(
    word: &str,
    candidates: impl IntoIterator<Item = T>,
    spelling: impl Fn(&T) -> S,
) -> Option<T> {
    let normal = |text: &str| text.to_lowercase().replace('-', "_");
    let word = normal(word);
    let length = word.chars().count();
    candidates
        .into_iter()
        .filter_map(|candidate| {
            let text = normal(spelling(&candidate).as_ref());
            let of_candidate = text.chars().count();
            let distance = strsim::damerau_levenshtein(&word, &text);
            let allowed = (length.max(of_candidate) / 3).max(1);
            (distance <= allowed && distance < of_candidate).then_some((distance, candidate))
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// DNS labels: lower-case letters, digits and `-`, at most 63, `-` neither first nor last.
#[must_use]
pub fn is_dns_label(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 63
        && !text.starts_with('-')
        && !text.ends_with('-')
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_edit_for_each_three_letters_is_near() {
        for (word, candidates, near) in [
            ("max_sise", &["max_age", "max_size"][..], Some("max_size")),
            ("Max-Size", &["max_size"], Some("max_size")),
            ("flie", &["stdout", "file", "fire"], Some("file")),
            ("ab", &["cd", "a"], None),
            ("never", &["off"], None),
            ("web-7d4b9cffd-x2x4z", &["web-7d4b9cffd-q8k2m"], Some("web-7d4b9cffd-q8k2m")),
            ("x", &["y"], None),
            ("", &["y"], None),
        ] {
            assert_eq!(nearest(word, candidates.iter().copied()).as_deref(), near, "{word}");
        }
    }
}
