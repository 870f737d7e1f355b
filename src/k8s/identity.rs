//! What names an object: read in one pass, everything else passed over.

use std::borrow::Cow;
use std::fmt;

use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// What names an object. Of a member that comes twice the last counts, as in Go, so that what a client and the API
/// server would see is what the log says.
#[derive(Default)]
pub(crate) struct Identity<'a> {
    /// `kind`.
    pub(crate) kind: Option<Cow<'a, str>>,
    /// `apiVersion`.
    pub(crate) api_version: Option<Cow<'a, str>>,
    /// Its metadata.
    pub(crate) metadata: Option<Metadata<'a>>,
}

/// What of an object's metadata names it.
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
}

/// A text, borrowed where it has no escapes.
#[derive(Deserialize)]
#[serde(transparent)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

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
                            identity.metadata = map.next_value()?;
                            continue;
                        }
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                            continue;
                        }
                    };
                    *text = map.next_value::<Option<Text<'de>>>()?.map(|Text(text)| text);
                }
                Ok(identity)
            }
        }
        deserializer.deserialize_map(Members)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Metadata<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Metadata<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

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
                    *member = map.next_value::<Option<Text<'de>>>()?.map(|Text(text)| text);
                }
                Ok(metadata)
            }
        }
        deserializer.deserialize_map(Members)
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
