//! `[[sink]]`: what is delivered, to which sink, and what happens to what it refuses.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::core::filter::{Filter, Wanted};
use crate::core::model::Cluster;
use crate::core::wire::{Payload, Shape};
use crate::sink::Sink;
use crate::sink::registry::SinkKind;

const fn yes() -> bool {
    true
}

/// A place that the log is delivered to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("unevaluatedProperties" = false))]
#[schemars(rename = "Sink")]
pub struct Settings {
    /// Its name: the cursor is kept under it, so a renamed sink is a new sink.
    #[schemars(extend("format" = "name"))]
    pub name: String,
    /// The type, and the keys that only it has.
    #[serde(flatten)]
    pub kind: SinkKind,
    /// A CEL expression over the entry; only entries for which it is true are delivered. Default: every entry.
    #[serde(default, rename = "where")]
    pub filter: Option<Filter>,
    /// Part of an entry that is delivered.
    #[serde(default, with = "PayloadText")]
    #[schemars(with = "PayloadText")]
    pub payload: Payload,
    /// Deliver metadata.managedFields with the object.
    #[serde(default = "yes")]
    pub managed_fields: bool,
    /// Maximum number of entries in a second. Default: as many as the sink takes.
    #[serde(default)]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub rate: Option<u32>,
    /// Start of a new sink: "start", "now", or a seq.
    #[serde(default)]
    pub from: From,
    /// Fate of an entry that will never be accepted.
    #[serde(default)]
    pub on_refused: OnRefused,
}

impl Settings {
    /// Returns the projection of an entry that is delivered.
    #[must_use]
    pub const fn shape(&self) -> Shape {
        Shape { payload: self.payload, managed_fields: self.managed_fields }
    }

    /// The sink, which knows by then whose log it gets. Nothing is connected yet.
    ///
    /// # Errors
    /// A sentence, where it can never work.
    pub fn open(&self, cluster: &Cluster) -> Result<Box<dyn Sink>, String> {
        let mut sink = self.kind.open()?;
        sink.bind(&self.name, cluster);
        Ok(sink)
    }

    /// Returns the filter of this sink; none to deliver everything. An entry for which the expression has no answer is
    /// delivered: a consumer can drop it, but never get back one that was withheld.
    #[must_use]
    pub fn wanted(&self) -> Option<Wanted> {
        let (filter, sink) = (self.filter.clone()?, self.name.clone());
        Some(Wanted::new(filter, move |error| {
            tracing::debug!(sink, "`where` cannot be evaluated for an entry, which is delivered: {error}");
            true
        }))
    }
}

/// Position at which a sink without a cursor begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum From {
    /// With the oldest entry that the journal holds.
    #[default]
    Start,
    /// With the first entry after its first start.
    Now,
    /// With this seq.
    Seq(u64),
}

/// Fate of an entry that a sink will never accept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnRefused {
    /// The sink stops and says so; nothing is skipped.
    #[default]
    Halt,
    /// The entry is kept in the journal, listed by `status`, deliverable by `replay`; the sink goes on.
    DeadLetter,
}

impl JsonSchema for From {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "From".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "oneOf": [{ "enum": ["start", "now"] }, { "type": "integer", "minimum": 1 }] })
    }
}

impl Serialize for From {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Start => to.serialize_str("start"),
            Self::Now => to.serialize_str("now"),
            Self::Seq(seq) => to.serialize_u64(*seq),
        }
    }
}

impl<'de> Deserialize<'de> for From {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Text {
            Seq(u64),
            Word(String),
        }
        match Text::deserialize(from)? {
            Text::Seq(seq) => Ok(Self::Seq(seq)),
            Text::Word(word) if word == "start" => Ok(Self::Start),
            Text::Word(word) if word == "now" => Ok(Self::Now),
            Text::Word(_) => Err(serde::de::Error::custom("expected \"start\", \"now\" or a seq")),
        }
    }
}

/// Projection of an entry for a sink.
// The words of `wire::Payload`, which itself knows nothing of the configuration.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Payload", rename_all = "lowercase")]
enum PayloadText {
    /// Everything.
    Full,
    /// The object only on ADDED; on MODIFIED the patch.
    Diff,
    /// Neither the object nor the patch.
    Metadata,
}
