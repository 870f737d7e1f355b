//! Evidence: signed trees over the log, by which somebody else proves that nothing of it was altered.

pub mod archive;
pub mod checkpoint;
pub mod key;
pub mod note;
pub mod place;
pub mod proof;
pub mod publish;
pub mod settings;
pub mod tiles;
pub mod tree;

#[cfg(test)]
mod tests;
