//! Comparison of two versions of an object, and redaction of what may not be stored.
//!
//! Everything here works on the bytes that the API server sent: a number, a key order or an unknown field is never
//! rendered again, so `1.0`, `1` and `1e400` stay what they are.
//!
//! # Decision: patches start from the last entry
//!
//! Context: With `ignore` versions in between are not in the log.
//! Decision: The next MODIFIED has the difference from the last entry, so a consumer that applies patches arrives at the same
//! object.
//! Cost: The last entry's state must stay readable.
//!
//! # Decision: values are counted before anything is built
//!
//! Context: A tree or a pairing takes 20 to 200 bytes for a value of two.
//! Decision: One pass counts the values of a text. Objects with few are compared as ever. Of a heavy one each part pays from
//! one budget, and a part that cannot pay is replaced as a whole, which the patch says. Large blocks are mapped
//! (`allocator.c`), so that glibc returns them.
//! Cost: Coarse patches of objects with over 400,000 values. mimalloc held more memory (265 MiB against 136).

mod diff;
mod happened;
mod leaf_diff;
mod noise;
mod patch;
mod pattern;
pub mod redact;
mod shape;
#[cfg(test)]
mod tests;

use jiff::Timestamp;

use crate::core::json::tree::Tree;
pub use happened::newest as newest_stamp;
pub use noise::{Ignore, Noise, Preset};
pub use pattern::Pattern;
pub use shape::Shape;

use crate::core::spelling::Format;

/// The formats of these texts.
pub const FORMATS: &[Format] = &[Format::of::<Pattern>(), Format::of::<Ignore>()];

/// The difference of two versions of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Changed parts of the object, sorted; empty if only resourceVersion changed.
    pub areas: Vec<String>,
    /// JSON pointers of the leaves that differ.
    pub touched: Vec<String>,
    /// The `change` member of an entry.
    pub json: String,
    /// Time of the change, to the second: the newest of the timestamps in the object that it moved.
    pub happened: Option<Timestamp>,
}

/// Compares two versions of an object.
///
/// **The patch** is RFC 6902 with a `was` beside each `replace` and `remove`. Applied to the old object it gives the
/// new one as a JSON value, so resourceVersion and managedFields are in it; elements that have names of their own
/// (containers, conditions, ports, ...) are identified by them. Values are copied as they came. Of duplicate member
/// names the last counts, as in Go. A value below 256 levels is replaced as a whole, and so is one whose single changes
/// would take far more room than the whole.
///
/// **Areas** are top-level members; below `metadata`, managedFields is an area of its own and resourceVersion none.
///
/// **Touched** names every leaf (a value that holds no other) that came, went or changed, and never resourceVersion:
/// elements by the index they have in the new object, or had in the old where they went. Where naming them all would
/// take far longer than the object, the values above them stand for the rest.
///
/// **Marks** are the keyed digests of values whose text does not show a change. One that differs becomes a `replace`
/// of the text by itself where the value was masked. Where it was dropped, it shows in the areas and in `touched`
/// alone, because the objects have no such value.
///
/// # Errors
/// Where one of them is not a JSON object. Nothing of them is quoted.
pub fn compare(
    old: &[u8],
    new: &[u8],
    old_marks: &[(String, [u8; 16])],
    new_marks: &[(String, [u8; 16])],
) -> Result<Change, String> {
    compare_shaped(old, None, new, old_marks, new_marks).map(|(change, _)| change)
}

/// Compares as [`compare`] does, with the shape of the old object if it is known, and returns that of the new one for the next
/// comparison. Finding the positions of the values is most of the work, and most of them stay.
///
/// # Errors
/// As [`compare`].
pub fn compare_shaped(
    old: &[u8],
    shape: Option<&Shape>,
    new: &[u8],
    old_marks: &[(String, [u8; 16])],
    new_marks: &[(String, [u8; 16])],
) -> Result<(Change, Shape), String> {
    let read;
    let shape = match shape {
        Some(shape) => shape,
        None => {
            let tree = Tree::parse_bounded(old).map_err(|error| format!("the version before is {error}"))?;
            read = Shape::from(tree.into_shape());
            &read
        }
    };
    // Marks that stayed say nothing where everything else stays in its place.
    if old_marks == new_marks
        && let Some(found) = leaf_diff::compare(old, shape, new)
    {
        return Ok(found);
    }
    diff::everything(old, Some(shape.positions()), new, old_marks, new_marks)
        .map(|(change, next)| (change, next.into()))
}

/// The change to a version whose predecessor is not known any more: a patch that replaces the whole object, without
/// `was`.
///
/// # Errors
/// Where it is not a JSON object. Nothing of it is quoted.
pub fn replaced(new: &[u8]) -> Result<(Change, Shape), String> {
    diff::replaced(new).map(|(change, shape)| (change, shape.into()))
}

/// Reports whether a change touches only what `ignore` names: each leaf is matched by a pattern, or lies below a match. A
/// change without a leaf (only resourceVersion moved) is one of them, unless there are no patterns at all.
#[must_use]
pub fn matches_ignore<S: AsRef<str>>(ignore: &[Pattern], touched: &[S]) -> bool {
    !ignore.is_empty() && touched.iter().all(|pointer| ignore.iter().any(|pattern| pattern.covers(pointer.as_ref())))
}
