//! Members of a JSON object as slices of it, so that a value of another type than expected is nobody's problem but its own.

use serde::Deserialize;
use serde_json::value::RawValue;

/// A member as it came; none where it is absent or `null`.
pub(super) type Raw<'a> = Option<&'a RawValue>;

/// Returns a text; empty where there is none, or a value of another type.
pub(super) fn text(raw: Raw<'_>) -> String {
    raw.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default()
}

/// Value of another type than expected, or an object with a member twice.
#[derive(Debug)]
pub(super) struct OtherShape;

/// Returns the members of an object; the default where there is no value, or one of another type.
pub(super) fn members<'a, T: Deserialize<'a> + Default>(raw: Raw<'a>) -> T {
    strict(raw).unwrap_or_default()
}

/// Returns the members of an object, or the default where there is no value.
///
/// # Errors
/// [`OtherShape`], of a list as well, of which serde would take the elements for members.
pub(super) fn strict<'a, T: Deserialize<'a> + Default>(raw: Raw<'a>) -> Result<T, OtherShape> {
    match raw {
        None => Ok(T::default()),
        Some(_) if !is_object(raw) => Err(OtherShape),
        Some(raw) => serde_json::from_str(raw.get()).map_err(|_| OtherShape),
    }
}

/// Returns the elements of a list; none where there is no value.
///
/// # Errors
/// [`OtherShape`].
pub(super) fn elements(raw: Raw<'_>) -> Result<Vec<&RawValue>, OtherShape> {
    raw.map_or_else(|| Ok(Vec::new()), |raw| serde_json::from_str(raw.get()).map_err(|_| OtherShape))
}

/// Returns the texts of a list, at most `most` of them; none where it is no list of texts.
pub(super) fn texts(raw: Raw<'_>, most: usize) -> Vec<String> {
    elements(raw).unwrap_or_default().into_iter().take(most).map(|element| text(Some(element))).collect()
}

/// Returns a number; 0 where there is none, or a value of another type.
pub(super) fn number(raw: Raw<'_>) -> u16 {
    raw.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default()
}

/// Reports whether the member is an object.
pub(super) fn is_object(raw: Raw<'_>) -> bool {
    raw.is_some_and(|raw| raw.get().starts_with('{'))
}

/// Returns the time in microseconds since 1970 (RFC 3339).
pub(super) fn time(raw: Raw<'_>) -> Option<i64> {
    text(raw).parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_microsecond)
}

/// Returns the position of a JSON error. serde_json's own text would quote the text there.
pub(super) fn place(error: &serde_json::Error) -> String {
    let what = match error.classify() {
        serde_json::error::Category::Eof => "it breaks off",
        serde_json::error::Category::Data => "it has another shape",
        serde_json::error::Category::Syntax | serde_json::error::Category::Io => "it is not JSON",
    };
    format!("{what}, line {}, column {}", error.line(), error.column())
}

/// Cuts a text at this many bytes, or a little before where a character stands there.
pub(super) fn clip(mut text: String, most: usize) -> String {
    text.truncate(text.floor_char_boundary(most));
    text
}
