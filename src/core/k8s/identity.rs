//! Identity of an object, read in one pass over its JSON.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// Identity of an object. The last of duplicate members counts, as in Go, so that the log has what a client and the API server
/// see.
#[derive(Default)]
pub(crate) struct Identity<'a> {
    /// `kind`.
    pub(crate) kind: Option<Cow<'a, str>>,
    /// `apiVersion`.
    pub(crate) api_version: Option<Cow<'a, str>>,
    /// Its metadata.
    pub(crate) metadata: Option<Metadata<'a>>,
    /// True if an identifying member has another type: a number as `kind`, a list as `metadata`. `null` counts as missing, as
    /// in Go.
    pub(crate) is_odd: bool,
}

/// Identifying members of an object's metadata.
#[derive(Default)]
pub(crate) struct Metadata<'a> {
    /// metadata.namespace.
    pub(crate) namespace: Option<Cow<'a, str>>,
    /// metadata.name.
    pub(crate) name: Option<Cow<'a, str>>,
    /// metadata.uid.
    pub(crate) uid: Option<Cow<'a, str>>,
    /// metadata.resourceVersion.
    pub(crate) version: Option<Cow<'a, str>>,
    /// True if one of them is no text.
    pub(crate) is_odd: bool,
}

/// A text, borrowed where it has no escapes.
#[derive(Deserialize)]
#[serde(transparent)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// A value that should be a text or an object, of whatever type it is.
enum Loose<T> {
    Right(T),
    Null,
    Odd,
}

impl<T> Loose<T> {
    /// The value, where it is of the right type; notes where it is of another.
    fn take(self, is_odd: &mut bool) -> Option<T> {
        match self {
            Self::Right(value) => Some(value),
            Self::Null => None,
            Self::Odd => {
                *is_odd = true;
                None
            }
        }
    }
}

/// The methods of a visitor that takes values of every type but one for odd ones.
macro_rules! odd {
    ($($method:ident($type:ty)),*) => {
        $(fn $method<E: Error>(self, _: $type) -> Result<Self::Value, E> {
            Ok(Loose::Odd)
        })*
        fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
            Ok(Loose::Null)
        }
        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
            while list.next_element::<IgnoredAny>()?.is_some() {}
            Ok(Loose::Odd)
        }
    };
}

impl<'de: 'a, 'a> Deserialize<'de> for Loose<Cow<'a, str>> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Value;
        impl<'de> Visitor<'de> for Value {
            type Value = Loose<Cow<'de, str>>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text")
            }

            odd!(visit_bool(bool), visit_i64(i64), visit_u64(u64), visit_f64(f64));

            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Loose::Right(Cow::Borrowed(text)))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Loose::Right(Cow::Owned(text.to_owned())))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Loose::Odd)
            }
        }
        deserializer.deserialize_any(Value)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Identity<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Identity<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut identity = Identity::default();
                while let Some(Text(name)) = map.next_key()? {
                    let text = match &*name {
                        "kind" => &mut identity.kind,
                        "apiVersion" => &mut identity.api_version,
                        "metadata" => {
                            identity.metadata = map.next_value::<Loose<Metadata<'de>>>()?.take(&mut identity.is_odd);
                            continue;
                        }
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                            continue;
                        }
                    };
                    *text = map.next_value::<Loose<Cow<'de, str>>>()?.take(&mut identity.is_odd);
                }
                Ok(identity)
            }
        }
        deserializer.deserialize_map(Members)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Loose<Metadata<'a>> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Loose<Metadata<'de>>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            odd!(visit_bool(bool), visit_i64(i64), visit_u64(u64), visit_f64(f64), visit_str(&str));

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut metadata = Metadata::default();
                while let Some(Text(name)) = map.next_key()? {
                    let member = match &*name {
                        "namespace" => &mut metadata.namespace,
                        "name" => &mut metadata.name,
                        "uid" => &mut metadata.uid,
                        "resourceVersion" => &mut metadata.version,
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                            continue;
                        }
                    };
                    *member = map.next_value::<Loose<Cow<'de, str>>>()?.take(&mut metadata.is_odd);
                }
                Ok(Loose::Right(metadata))
            }
        }
        deserializer.deserialize_any(Members)
    }
}

/// Gives an object another resourceVersion, as the API server does with the last state of what is deleted. One that has
/// not the version `old`, because that is redacted for instance, stays as it is.
pub fn set_version(object: &mut Vec<u8>, old: &str, new: &str) {
    let place = std::str::from_utf8(object).ok().and_then(|text| {
        let metadata = serde_json::from_str::<Identity<'_>>(text).ok()?.metadata?;
        match metadata.version {
            Some(Cow::Borrowed(version)) if version == old => Some(version.as_ptr().addr() - text.as_ptr().addr()),
            Some(_) | None => None,
        }
    });
    if let Some(start) = place {
        object.splice(start..start + old.len(), new.bytes());
    }
}
