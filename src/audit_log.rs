//! The audit log of the API server says who sent each request: this room joins its requests with the versions of the log.
//!
//! It may use `core`. Begin with [`join`].
//!
//! # Examples
//!
//! ```
//! use decklog::audit_log::join::{Joiner, Limits};
//!
//! let mut joiner = Joiner::new(Limits::default(), 0);
//! joiner.advance(1_000_000, 1_000_000);
//! assert!(joiner.take().verdicts.is_empty());
//! ```

pub mod join;
