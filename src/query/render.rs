//! The log in words: what people call objects and moments, an entry on a line, an object as YAML, what changed in it, and
//! who did it. Commands print it, and the timeline page shows it. It also has what several questions share: the object
//! that is meant (`object`), and who set each field (`blame::trace`).

#[cfg(test)]
mod agreement;
pub mod clock;
pub mod failure;
pub mod names;
pub mod row;

pub(crate) mod blame;
pub(crate) mod line;
pub(crate) mod object;
pub(crate) mod path;
pub(crate) mod rewrite;
pub(crate) mod tree;
pub(crate) mod what;
pub(crate) mod who;
pub(crate) mod yaml;

pub use failure::{Exit, Failure};
