//! Answers of the server, as far as they are used.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;

/// Privileges of a user on each index, as Elasticsearch returns them.
#[derive(Deserialize)]
pub(super) struct Granted {
    pub(super) index: BTreeMap<String, BTreeMap<String, bool>>,
}

/// The answer to a bulk request, as far as it is asked for.
#[derive(Deserialize)]
pub(super) struct Bulk<'a> {
    /// True if a document failed.
    #[serde(default)]
    pub(super) errors: Option<bool>,
    #[serde(borrow, default)]
    pub(super) items: Vec<Created<'a>>,
}

#[derive(Deserialize)]
pub(super) struct Created<'a> {
    // Some that speak this protocol make every action an `index`.
    #[serde(borrow, alias = "index", alias = "update")]
    pub(super) create: Outcome<'a>,
}

#[derive(Deserialize)]
pub(super) struct Outcome<'a> {
    #[serde(rename = "_index", borrow, default)]
    pub(super) index: Cow<'a, str>,
    pub(super) status: u16,
    #[serde(borrow, default)]
    pub(super) error: Option<Reason<'a>>,
}

#[derive(Deserialize)]
pub(super) struct Reason<'a> {
    #[serde(rename = "type", borrow, default)]
    pub(super) kind: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(super) reason: Cow<'a, str>,
}

/// Answer to a refused request.
#[derive(Deserialize)]
pub(super) struct Refusal {
    pub(super) error: Option<Why>,
}

#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Why {
    Text(String),
    Reason {
        #[serde(rename = "type", default)]
        kind: String,
        #[serde(default)]
        reason: String,
    },
}

/// The answer to a request for several documents.
#[derive(Deserialize)]
pub(super) struct Found<'a> {
    #[serde(borrow)]
    pub(super) docs: Vec<Doc<'a>>,
}

#[derive(Deserialize)]
pub(super) struct Doc<'a> {
    #[serde(rename = "_source", borrow, default)]
    pub(super) source: Option<Source<'a>>,
}

/// Identity of a document's entry.
#[derive(Deserialize)]
pub(super) struct Source<'a> {
    #[serde(borrow, default)]
    pub(super) epoch: Cow<'a, str>,
    #[serde(default)]
    pub(super) seq: u64,
}

impl Outcome<'_> {
    /// A document with this id was made now, or is there.
    pub(super) fn is_there(&self) -> bool {
        let kind = self.error.as_ref().map(|error| error.kind.as_ref());
        (200..300).contains(&self.status) || (self.status == 409 && kind == Some("version_conflict_engine_exception"))
    }
}
