//! Facts of Kubernetes that more than one room relies on: what names an object, how kubectl spells resources, which
//! fields every write moves, who owns a field; requests of the audit log.

pub mod audited;
pub mod bookkeeping;
pub mod identity;
pub mod managed_fields;
pub mod merge_keys;
pub mod names;
