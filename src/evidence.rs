//! Evidence: signed trees over the log, by which somebody else proves that nothing of it was altered.
//!
//! The journal keeps the digest of each line (a leaf, `journal/writer/tree.rs`), in the transaction that writes the entry. [`publish`] signs the tree over them;
//! `copy` gives each [`place`] what it lacks of it, the tiles first and the checkpoint behind them. [`archive`] checks such a directory, and [`proof`] a single entry, without a journal. [`note`], [`key`],
//! [`checkpoint`] and [`tiles`] are formats of others (c2sp.org); [`tree`] is what the journal has. [`submit`] asks witnesses to cosign, and
//! [`witness`] cosigns for other logs.
//!
//! It may use `core` and `journal`. Begin with [`publish::Publisher`] and [`archive::Archive`].
//!
//! # Examples
//!
//! ```
//! use decklog::evidence::key::SigningKey;
//! use decklog::evidence::note::Note;
//!
//! let key = SigningKey::generate("prod.example/decklog")?;
//! let note = Note::sign("a text\n".to_owned(), &[&key], 1_800_000_000);
//! assert!(Note::parse(note.render().as_bytes())?.is_signed_by(key.verifier()));
//! # Ok::<(), String>(())
//! ```

pub mod archive;
pub mod checkpoint;
mod copy;
pub mod key;
pub mod note;
pub mod place;
pub mod proof;
pub mod publish;
pub mod settings;
pub mod submit;
pub mod tiles;
pub mod tree;
pub mod witness;

#[cfg(test)]
mod tests;
