//! Who set what: metadata.managedFields, and the sets of fields in it (FieldsV1). A hint, not proof.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Who wrote, as managedFields says.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Manager {
    /// What the writer calls itself.
    #[serde(default)]
    pub manager: String,
    /// Apply or Update.
    #[serde(default)]
    pub operation: String,
    /// The subresource that was written, where it was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subresource: Option<String>,
    /// When, to the second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
}

impl Manager {
    /// Whether the two are one entry of managedFields, whenever they wrote.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        let subresource = |manager: &Self| manager.subresource.clone().unwrap_or_default();
        (&self.manager, &self.operation, subresource(self)) == (&other.manager, &other.operation, subresource(other))
    }
}

/// An entry of managedFields.
#[derive(Debug, Deserialize)]
pub struct Writer {
    /// Who it is of.
    #[serde(flatten)]
    pub manager: Manager,
    #[serde(default, rename = "fieldsV1")]
    fields: Value,
}

impl Writer {
    /// Those of an object, from its JSON; nobody where it does not say.
    #[must_use]
    pub fn all(object: &[u8]) -> Vec<Self> {
        #[derive(Deserialize)]
        struct Object {
            #[serde(default)]
            metadata: Option<Metadata>,
        }
        #[derive(Deserialize)]
        struct Metadata {
            #[serde(default, rename = "managedFields")]
            managed_fields: Vec<Writer>,
        }
        let object = serde_json::from_slice::<Object>(object).ok().and_then(|object| object.metadata);
        let mut writers = object.map_or_else(Vec::new, |metadata| metadata.managed_fields);
        for writer in &mut writers {
            writer.manager.subresource = writer.manager.subresource.take().filter(|text| !text.is_empty());
        }
        writers
    }

    /// Whether it has a value, or one that holds it and is owned as a whole. `leads` says how each step of a path looks
    /// in FieldsV1: which keys of these may lead on.
    pub fn owns<S>(&self, path: &[S], leads: impl Fn(&S, &Map<String, Value>, &str) -> bool + Copy) -> bool {
        // What has no fields at all owns nothing.
        self.fields.as_object().is_some_and(|fields| !fields.is_empty()) && owns(&self.fields, path, leads)
    }
}

fn owns<S>(fields: &Value, path: &[S], leads: impl Fn(&S, &Map<String, Value>, &str) -> bool + Copy) -> bool {
    let Some((step, rest)) = path.split_first() else { return true };
    let Some(members) = fields.as_object() else { return false };
    // What has no parts in the books is had as a whole.
    members.is_empty() || members.iter().any(|(key, below)| leads(step, members, key) && owns(below, rest, leads))
}
