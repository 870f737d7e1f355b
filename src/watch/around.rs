//! Pages of a list around the objects that the API server cannot read.
//!
//! # Decision: a list goes around what cannot be read
//!
//! Context: One object whose encryption key is lost makes each page fail that it is on, so a type of 10,000 objects cannot be listed.
//! Decision: The limit shrinks until a page ends right before the object. The next page begins behind its key, with a `continue` token
//! in the API server's own form (`{"v":"meta.k8s.io/v1","rv":REVISION,"start":KEY}`, the same since Kubernetes 1.9). Lists with a
//! limit are answered from etcd while the watch cache cannot begin.
//! Cost: A handful of requests for each such object, and at most 100 of them in one list.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use super::cluster::Unreadable;
use crate::core::model::SourceSpec;

/// Objects that a list goes around at most.
const OBJECTS_MAX: usize = 100;

/// A `continue` token. The revision -1 asks for the newest state.
#[derive(Debug, Serialize, Deserialize)]
struct Token {
    v: String,
    rv: i64,
    start: String,
}

/// Next page after one that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Detour {
    /// The same page, with a smaller limit.
    Smaller,
    /// The page behind an object, by this token.
    Behind(String, (String, String)),
}

/// The limits of the pages of one list, and the objects that it goes around.
#[derive(Debug)]
pub(super) struct Around {
    page: u32,
    limit: u32,
    objects: usize,
}

impl Around {
    /// A list in pages of so many objects.
    pub(super) const fn new(page: u32) -> Self {
        Self { page, limit: page, objects: 0 }
    }

    /// Returns the limit of the next page.
    pub(super) const fn limit(&self) -> u32 {
        self.limit
    }

    /// Handles a page that came.
    pub(super) fn came(&mut self) {
        self.limit = self.limit.saturating_mul(4).min(self.page);
    }

    /// Handles a page that failed, by its token and its revision. `None`: there is no way around, because the API server names no
    /// object, or too many.
    pub(super) fn failed(
        &mut self,
        spec: &SourceSpec,
        unreadable: &Unreadable,
        token: Option<&str>,
        at: Option<u64>,
    ) -> Option<Detour> {
        if self.limit > 1 {
            self.limit = (self.limit / 8).max(1);
            return Some(Detour::Smaller);
        }
        let (namespace, name) = unreadable.first(spec.resource.namespaced)?;
        self.objects += 1;
        if self.objects > OBJECTS_MAX {
            return None;
        }
        let revision = match token {
            Some(token) => {
                let bytes = URL_SAFE_NO_PAD.decode(token.trim_end_matches('=')).ok()?;
                serde_json::from_slice::<Token>(&bytes).ok()?.rv
            }
            None => at.map_or(Some(-1), |at| i64::try_from(at).ok())?,
        };
        let in_all = spec.resource.namespaced && spec.namespace.is_none();
        let start = if in_all { format!("{namespace}/{name}\0") } else { format!("{name}\0") };
        let token = Token { v: "meta.k8s.io/v1".to_owned(), rv: revision, start };
        let token = URL_SAFE_NO_PAD.encode(serde_json::to_vec(&token).ok()?);
        Some(Detour::Behind(token, (namespace, name)))
    }
}
