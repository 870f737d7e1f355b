//! What is served beside the log: health, metrics and questions on [`http`], and the timeline page on [`ui`].
//!
//! It may use `core`, `journal` and `query`. It computes no answer: it lets in who may ask, asks, and writes the answer as JSON.
//!
//! Begin with [`http`], which has the listener of both.
//!
//! # Examples
//!
//! ```
//! use decklog::core::spelling::Text;
//! use decklog::web::http::Listen;
//!
//! assert!(Listen::read("127.0.0.1:9465").is_ok_and(|listen| listen.is_local()));
//! assert!(Listen::read("0.0.0.0:9465").is_ok_and(|listen| !listen.is_local()));
//! ```

pub mod http;
pub mod ui;
