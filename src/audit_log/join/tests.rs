//! Tests of the join: a table of cases, and a world whose truth is known.

mod cases;
mod orders;
mod random;
mod world;

use std::sync::Arc;

use super::{AuditedRequest, EntryType, Joiner, Limits, Names, Settled, Unresolved, Version};
use crate::core::k8s::audited::Sender;
use crate::core::k8s::managed_fields::{By, Manager};
use crate::core::model::Evidence;

/// A second, in microseconds.
const SECOND: i64 = 1_000_000;

/// Sender of a name, with an agent and an address of its own.
fn sender(user: &str) -> Sender {
    Sender {
        user: user.to_owned(),
        impersonated_by: String::new(),
        agent: format!("{user}/v1"),
        addresses: vec!["10.0.0.1".to_owned()],
    }
}

/// Names of an object in the namespace `shop`.
fn names(group: &str, resource: &str, name: &str) -> Arc<Names> {
    Arc::new(Names { group: group.into(), resource: resource.into(), namespace: "shop".into(), name: name.into() })
}
