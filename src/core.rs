//! The ground: every other room may use `core`, and `core` uses none of them.
//!
//! [`model`] has the words of Kubernetes (positions, resources, observations), [`wire`] the JSON of entries, [`change`] the
//! comparison of two versions and redaction, [`filter`] the expressions of `where`, and [`shared_log`] the contract of an engine
//! that replicates the journal, [`bucket`] the objects of a bucket. [`json`] and [`k8s`] read objects as bytes, [`merkle`] hashes trees, and [`checkpoint_handle`] links the sinks to the signing. [`runtime`] is clock and randomness, which a
//! simulation replaces. The rest reads what people write ([`spelling`], [`units`]), connects ([`net`]), waits ([`backoff`]),
//! keeps tasks ([`supervise`]) and speaks to people ([`telemetry`], [`terminal`]).
//!
//! Begin with [`model`], then [`wire`].
//!
//! # Examples
//!
//! A filter selects entries by their JSON:
//!
//! ```
//! use decklog::core::filter::Filter;
//!
//! let filter = Filter::compile(r#"type == "DELETED" && namespace == "shop""#)?;
//! assert!(filter.selects(br#"{"type":"DELETED","namespace":"shop","name":"web"}"#)?);
//! # Ok::<(), decklog::core::filter::FilterError>(())
//! ```

pub mod backoff;
pub mod bucket;
pub mod change;
pub mod checkpoint_handle;
pub(crate) mod credential_files;
pub mod filter;
pub mod json;
pub mod k8s;
pub mod merkle;
pub mod model;
pub mod net;
pub(crate) mod os;
pub mod rights;
pub mod runtime;
pub mod shared_log;
pub mod spelling;
pub mod supervise;
pub mod telemetry;
pub mod terminal;
pub mod units;
pub mod wire;
