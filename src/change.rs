//! What changed between two versions of an object, and what of an object may be kept at all.
//!
//! Everything here works on the bytes that the API server sent: a number, a key order or an unknown field is never
//! rendered anew, so `1.0`, `1` and `1e400` stay what they are.

pub mod redact;

mod pattern;

pub use pattern::Pattern;

/// The difference of two versions of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Which parts of the object changed, sorted; empty where nothing but resourceVersion moved.
    pub areas: Vec<String>,
    /// JSON pointers of the leaves that differ.
    pub touched: Vec<String>,
    /// The `change` member of an entry.
    pub json: String,
}

/// Compares two versions of an object.
///
/// # Errors
/// Where one of them is not a JSON object. Nothing of them is quoted.
pub fn compare(
    _old: &[u8],
    _new: &[u8],
    _old_marks: &[(String, [u8; 16])],
    _new_marks: &[(String, [u8; 16])],
) -> Result<Change, String> {
    Err("not written yet".to_owned())
}

/// Whether a change touches nothing but what `ignore` names.
#[must_use]
pub fn matches_ignore(ignore: &[Pattern], touched: &[String]) -> bool {
    !ignore.is_empty() && touched.iter().all(|pointer| ignore.iter().any(|pattern| pattern.covers(pointer)))
}
