//! Eight bytes of a JSON text at once: how many of them come before one that means something inside a string.
//!
//! The bytes of a word are compared side by side. Of the highest bits of all bytes, each comparison sets first that of the first byte that
//! it is about, because a subtraction borrows only from the bytes above. Its other bits mean nothing.

/// A one in each byte.
const EACH: u64 = u64::MAX / 0xff;
/// The highest bit of each byte.
const HIGH: u64 = EACH << 7;

/// Returns the number of bytes before the first quote, backslash, control character or byte that is not ASCII; 8 without one.
pub(super) const fn ordinary(bytes: [u8; 8]) -> usize {
    let word = u64::from_le_bytes(bytes);
    let control = word.wrapping_sub(EACH * 0x20) & !word;
    first(equal(word, b'"') | equal(word, b'\\') | control | word)
}

/// Returns the number of bytes before the first quote or backslash; 8 without one.
pub(super) const fn before_quote_or_backslash(bytes: [u8; 8]) -> usize {
    let word = u64::from_le_bytes(bytes);
    first(equal(word, b'"') | equal(word, b'\\'))
}

/// Sets the highest bit of bytes that are this one, and maybe of some above the first of them. Other bits mean nothing.
const fn equal(word: u64, byte: u8) -> u64 {
    let differs = word ^ (EACH * byte as u64);
    differs.wrapping_sub(EACH) & !differs
}

/// Position of the first byte whose highest bit is set.
const fn first(mask: u64) -> usize {
    (mask & HIGH).trailing_zeros() as usize / 8
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The only test of each byte behind each other one: texts that are read have few of them.
    #[test]
    fn a_word_is_read_up_to_the_first_byte_that_means_something() {
        for (at, first) in (0..8).flat_map(|at| (0..=255_u8).map(move |first| (at, first))) {
            for (behind, second) in (at..8).flat_map(|behind| (0..=255_u8).map(move |second| (behind, second))) {
                let mut word = [b'a'; 8];
                word[behind] = second;
                word[at] = first;
                let means = |byte: &u8| matches!(byte, b'"' | b'\\') || *byte < 0x20 || !byte.is_ascii();
                let ends = |byte: &u8| matches!(byte, b'"' | b'\\');
                assert_eq!(ordinary(word), word.iter().position(means).unwrap_or(8), "{word:?}");
                assert_eq!(before_quote_or_backslash(word), word.iter().position(ends).unwrap_or(8), "{word:?}");
            }
        }
    }
}
