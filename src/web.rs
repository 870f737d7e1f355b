//! What is served beside the log: health, metrics and questions on [`http`], and the timeline page on [`ui`].
//!
//! It may use `core`, `evidence`, `journal` and `query`. It computes no answer: it lets in who may ask, asks, and writes the answer as JSON.
//!
//! Begin with [`http`], which has the listener of both.
//!
//! # Examples
//!
//! ```
//! use decklog::web::ui::Settings;
//!
//! assert!(Settings::default().listen.is_local(), "other machines see the page where somebody says so");
//! ```

pub mod http;
mod lasting;
#[cfg(test)]
mod tests;
pub mod ui;
