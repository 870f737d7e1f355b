//! The API server's audit log: who asked for a change.
//!
//! It may use `core` and `journal`. [`file`](mod@file) reads a file as the API server writes and rotates it, [`listen`] is a receiver of its
//! webhook and of pushes, and [`Settings`] is a table `[[audit_log]]`.
//!
//! Begin with [`Settings`], then [`file::Tail`] and [`listen::Receiver`].
//!
//! # Examples
//!
//! ```
//! use decklog::audit_log::Settings;
//!
//! let settings = Settings { file: Some("/var/log/kubernetes/audit.log".into()), ..Settings::default() };
//! assert_eq!(settings.name(), "audit");
//! ```

pub mod file;
pub mod lines;
pub mod listen;
mod settings;

pub use settings::{Mistake, Settings};
