//! The only place that knows the JSON of an entry (wire version 1).
//!
//! An entry is rendered once, when it is journaled, and its bytes are what every file, tail and sink gets, for ever:
//! an upgrade of decklog never changes an entry that exists. Keys come in one fixed order and are absent where they
//! do not apply.

//!
//! `entry` reads, `render` writes, `scan` finds parts without reading them, `payload` leaves parts out, `change` is the
//! member of that name; `authors` are the writers that an entry names, and `unnamed` the reason where it names none; `schema` is the contract in words, and `cloudevents` the envelope around an entry.

mod authors;
mod change;
pub mod cloudevents;
mod entry;
mod payload;
mod render;
mod revert;
mod scan;
mod schema;
#[cfg(test)]
pub(crate) mod tests;
mod unnamed;

pub use authors::{authors, authors_with, managers};
pub use change::{Change, Op};
pub use entry::{Entry, EntryCluster, EntryError, EntryGap, EntryOf, Header, relabel};
pub use payload::{Payload, Shape};
pub use render::{EntryBuilder, ROW, Rendered, RowHeader, actor_id, change_id, render, row_header};
pub use scan::{apart, without_count};
pub use schema::entry_schema;
pub use unnamed::{Unnamed, unnamed};

/// The wire version that this build writes, and the only one it reads.
pub const VERSION: u64 = 1;

#[cfg(test)]
mod compatibility;
