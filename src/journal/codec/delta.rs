//! The difference of two nearly equal texts: what to insert, what to copy from the earlier one.
//!
//! zstd with the earlier text as its dictionary gives smaller differences, but digests the whole dictionary again for
//! each text. This finds the parts that stayed by
//! the hashes of sixteen bytes, in the time of reading both texts once.
//!
//! ```text
//! 0xd1  length: varint  crc32: 4 bytes, little-endian
//! then, until the length is reached:
//!     insert: varint, so many bytes;   copy: varint, from: varint (zigzag, from the end of the copy before)
//! ```

use std::ops::Range;

/// No zstd frame begins with this byte.
pub(super) const MAGIC: u8 = 0xd1;
/// Parts that stayed are found where they share this many bytes.
const BLOCK: usize = 16;
/// Number of bytes within which two parts that are compared side by side have to agree again.
const REACH: usize = 64;
/// … and not more often than this.
const MOST_STEPS: usize = 48;
/// Bytes in which most objects have their names.
const FRONT: usize = 1 << 10;
/// Entries of the largest table of hashes: enough for a text of a mebibyte, and still good for one of many.
const LARGEST_TABLE: usize = 1 << 16;

/// `text` as a difference of `base`, where what stands from `at` on is nearly what stands in the base from `from` on, and
/// what stands before it is short and begins alike. Nothing where it is not so: then [`Encoder::encode`] finds more.
pub(super) fn follow(base: &[u8], from: usize, text: &[u8], at: usize) -> Option<Vec<u8>> {
    // A longer patch shares values with the object of the base, which only the table of its blocks finds.
    if at > from + REACH * 4 || from > base.len() || at > text.len() {
        return None;
    }
    let mut parts = Parts::of(text);
    parts.follow(0..at, base, 0..from);
    parts.follow(at..text.len(), base, from..base.len()).then(|| parts.end())
}

/// Finds differences; keeps its table for the next one.
#[derive(Debug, Default)]
pub(super) struct Encoder {
    table: Vec<u32>,
}

impl Encoder {
    /// `text` as a difference of `base`.
    pub(super) fn encode(&mut self, base: &[u8], text: &[u8]) -> Vec<u8> {
        let mut parts = Parts::of(text);
        self.search(&mut parts, text, base);
        parts.end()
    }

    /// `text` as a difference of a part of itself. What stands before the part is searched for in the first kibibyte of it,
    /// where most objects have their names; what stands behind it is inserted.
    pub(super) fn around(&mut self, text: &[u8], part: Range<usize>) -> Vec<u8> {
        let mut parts = Parts::of(text);
        let inner = &text[part.clone()];
        self.search(&mut parts, &text[..part.start], &inner[..inner.len().min(FRONT)]);
        if !inner.is_empty() {
            parts.copy(part.start, 0, inner.len());
        }
        parts.end()
    }

    /// Copies the parts of `text`, which is the text of `parts` or the beginning of it, that `base` has.
    fn search(&mut self, parts: &mut Parts<'_>, text: &[u8], base: &[u8]) {
        let bits = self.index(base);
        let mut at = 0;
        // Where nothing is found for long, as in a patch that the base does not have, the steps get longer: what is
        // passed over of the next part that stayed is found backwards from it.
        let mut misses = 0;
        while let Some(block) = block_at(text, at) {
            let from = self.table[hash(block, bits)] as usize;
            if block_at(base, from) != Some(block) {
                at += 1 + (misses / 64).min(3);
                misses += 1;
                continue;
            }
            misses = 0;
            let before = shared(text[parts.said..at].iter().rev(), base[..from].iter().rev());
            let length = BLOCK + shared_start(&text[at + BLOCK..], &base[from + BLOCK..]);
            parts.copy(at - before, from - before, before + length);
            at += length;
        }
    }

    /// Notes where each block of `base` stands. Of equal blocks the last counts, and 0 stands for none as well: whoever
    /// looks a block up compares it.
    fn index(&mut self, base: &[u8]) -> u32 {
        let size = (base.len() / BLOCK * 2).next_power_of_two().clamp(64, LARGEST_TABLE);
        self.table.clear();
        self.table.resize(size, 0);
        let bits = size.trailing_zeros();
        for from in (0..base.len().min(u32::MAX as usize)).step_by(BLOCK) {
            let Some(block) = block_at(base, from) else { break };
            self.table[hash(block, bits)] = u32::try_from(from).unwrap_or_default();
        }
        bits
    }
}

/// A difference that is being written.
struct Parts<'t> {
    text: &'t [u8],
    out: Vec<u8>,
    /// Up to here of the text all is said.
    said: usize,
    /// End of the previous copy in the base.
    copied: usize,
}

impl<'t> Parts<'t> {
    fn of(text: &'t [u8]) -> Self {
        let mut out = Vec::with_capacity(512);
        out.push(MAGIC);
        put(&mut out, text.len() as u64);
        out.extend_from_slice(&crc32fast::hash(text).to_le_bytes());
        Self { text, out, said: 0, copied: 0 }
    }

    /// Adds a copy: the bytes at `start` of the text equal those at `from` of the base.
    fn copy(&mut self, start: usize, from: usize, length: usize) {
        put(&mut self.out, (start - self.said) as u64);
        self.out.extend_from_slice(&self.text[self.said..start]);
        put(&mut self.out, length as u64);
        put(&mut self.out, zigzag(from as i64 - self.copied as i64));
        self.said = start + length;
        self.copied = from + length;
    }

    /// Copies what two parts have in common that are the same but for small things here and there. Says whether they
    /// are.
    fn follow(&mut self, part: Range<usize>, base: &[u8], from: Range<usize>) -> bool {
        let (text, base) = (&self.text[..part.end], &base[..from.end]);
        let (mut at, mut from) = (part.start, from.start);
        for _ in 0..MOST_STEPS {
            let same = shared_start(&text[at..], &base[from..]);
            if same >= BLOCK {
                self.copy(at, from, same);
            }
            (at, from) = (at + same, from + same);
            let left = text.len() - at;
            let meets = |&(on, over): &(usize, usize)| {
                block_at(text, at + on).is_some_and(|block| block_at(base, from + over) == Some(block))
            };
            // Another value of the same length, one that is longer or shorter by one; something that came, or went.
            let near = |step: usize| [(step, step), (step + 1, step), (step, step + 1), (step, 0), (0, step)];
            match (1..REACH).find_map(|step| near(step).into_iter().find(meets)) {
                Some((on, over)) => (at, from) = (at + on, from + over),
                None => return left < REACH,
            }
        }
        false
    }

    fn end(mut self) -> Vec<u8> {
        if self.said < self.text.len() {
            put(&mut self.out, (self.text.len() - self.said) as u64);
            self.out.extend_from_slice(&self.text[self.said..]);
        }
        self.out
    }
}

/// The inverse of [`Encoder::encode`] with the same base; `None` where the bytes are damaged or longer than `largest`.
pub(super) fn decode(base: &[u8], bytes: &[u8], largest: u64) -> Option<Vec<u8>> {
    let mut rest = bytes.strip_prefix(&[MAGIC])?;
    let length = usize::try_from(take(&mut rest)?).ok().filter(|length| *length as u64 <= largest)?;
    let (checksum, mut rest) = rest.split_first_chunk::<4>()?;
    // Damaged bytes may claim any length. Whole ones seldom hold more than the base and what is inserted, and a list that grows
    // takes up to twice what it needs, which a cache would not count.
    let mut out = Vec::with_capacity(length.min((base.len() + bytes.len()).max(1 << 20)));
    let mut copied = 0_i64;
    while out.len() < length {
        let inserted = usize::try_from(take(&mut rest)?).ok()?;
        let (literal, after) = rest.split_at_checked(inserted)?;
        out.extend_from_slice(literal);
        rest = after;
        if out.len() >= length {
            break;
        }
        let count = usize::try_from(take(&mut rest)?).ok()?;
        let from = usize::try_from(copied.checked_add(unzigzag(take(&mut rest)?))?).ok()?;
        let part = base.get(from..from.checked_add(count)?)?;
        out.extend_from_slice(part);
        copied = i64::try_from(from + count).ok()?;
        // Neither inserts nor copies: damaged, and it would never end.
        if inserted == 0 && count == 0 || out.len() > length {
            return None;
        }
    }
    (rest.is_empty() && out.len() == length && crc32fast::hash(&out) == u32::from_le_bytes(*checksum)).then_some(out)
}

fn block_at(text: &[u8], at: usize) -> Option<&[u8; BLOCK]> {
    text.get(at..)?.first_chunk()
}

fn hash(block: &[u8; BLOCK], bits: u32) -> usize {
    let word = u128::from_le_bytes(*block);
    // The low half is meant to lose the high one.
    #[expect(clippy::cast_possible_truncation, reason = "both halves are used")]
    let (low, high) = (word as u64, (word >> 64) as u64);
    let mixed = (low ^ high.rotate_left(29)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    usize::try_from(mixed >> (64 - bits)).unwrap_or_default()
}

fn shared<'a>(one: impl Iterator<Item = &'a u8>, other: impl Iterator<Item = &'a u8>) -> usize {
    one.zip(other).take_while(|(a, b)| a == b).count()
}

/// Returns the length of the common prefix of two texts, in bytes.
fn shared_start(one: &[u8], other: &[u8]) -> usize {
    let whole = one.as_chunks::<32>().0.iter().zip(other.as_chunks::<32>().0).take_while(|(a, b)| a == b).count() * 32;
    whole + shared(one[whole..].iter(), other[whole..].iter())
}

/// Appends a number, seven bits to a byte, the lowest first.
pub(super) fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push((number & 0x7f) as u8);
}

/// Takes a number from the front of `rest`; `None` where it does not end.
pub(super) fn take(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

const fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)).cast_unsigned()
}

const fn unzigzag(number: u64) -> i64 {
    (number >> 1).cast_signed() ^ -((number & 1).cast_signed())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn there_and_back(base: &[u8], text: &[u8]) -> usize {
        let bytes = Encoder::default().encode(base, text);
        assert_eq!(decode(base, &bytes, 1 << 20).as_deref(), Some(text));
        bytes.len()
    }

    #[test]
    fn what_stayed_costs_nearly_nothing() {
        let base: Vec<u8> = (0..1000).flat_map(|n| format!("{{\"name\":{n}}},").into_bytes()).collect();
        let mut text = b"something new, ".to_vec();
        text.extend_from_slice(&base);
        text[3000] = b'#';
        text.extend_from_slice(&base[2000..4000]);
        assert!(there_and_back(&base, &text) < 64);
        assert!(there_and_back(&base, &base) < 24);
        assert_eq!(there_and_back(b"", b""), 6);
        there_and_back(b"", b"x");
        there_and_back(&base, b"");
    }

    #[test]
    fn what_is_nearly_the_same_is_followed_and_costs_as_little() {
        let object = |version: u32, time: &str, more: &str| {
            let spec: Vec<String> =
                (0..200_u32).map(|n| format!("\"{n}\":{}", n.wrapping_mul(2_654_435_761))).collect();
            format!("{{\"version\":\"{version}\",{},\"time\":\"{time}\"{more},\"end\":true}}", spec.join(","))
        };
        let line = |head: &str, object: &str| (format!("{{\"v\":1,{head}\"object\":{object}}}"), 16 + head.len());
        let (base, from) = line("\"seq\":1,", &object(99, "12:00:00", ""));
        for (head, object) in [
            ("\"seq\":2,", object(99, "12:00:00", "")),
            ("\"seq\":12,\"change\":{\"areas\":[\"status\"]},", object(100, "12:00:01", "")),
            ("\"seq\":3,", object(98, "12:00:00", ",\"came\":1")),
            ("", object(7, "", "")),
        ] {
            let (text, at) = line(head, &object);
            let followed = follow(base.as_bytes(), from, text.as_bytes(), at).unwrap();
            assert_eq!(decode(base.as_bytes(), &followed, 1 << 20).as_deref(), Some(text.as_bytes()));
            let found = there_and_back(base.as_bytes(), text.as_bytes());
            assert!(followed.len() <= found + 32, "{} and not {found} for {head}", followed.len());
        }
        let (other, at) = line("", &"x".repeat(2000));
        assert_eq!(follow(base.as_bytes(), from, other.as_bytes(), at), None);
        assert_eq!(follow(base.as_bytes(), from, &[b'x'; 4000], 3000), None);
    }

    proptest! {
        #[test]
        fn what_is_followed_comes_back(
            base in "[ab]{0,300}", from in 0usize..300, text in "[ab]{0,300}", at in 0usize..300, cut in 0usize..300,
            more in "[ab]{0,40}", part in any::<bool>(),
        ) {
            let from = from.min(base.len());
            let text = if part { format!("{more}{}{}", &base[from.min(cut)..from], &base[from..]) } else { text };
            let at = at.min(text.len());
            if let Some(bytes) = follow(base.as_bytes(), from, text.as_bytes(), at) {
                prop_assert_eq!(decode(base.as_bytes(), &bytes, 1 << 20), Some(text.into_bytes()));
            }
        }

        #[test]
        fn any_text_comes_back(base in "[ab]{0,400}", cut in 0usize..400, other in "[a-c]{0,60}", again in 0usize..400) {
            let head = &base[..cut.min(base.len())];
            let tail = &base[again.min(base.len())..];
            there_and_back(base.as_bytes(), format!("{head}{other}{tail}").as_bytes());
        }

        #[test]
        fn a_text_around_a_part_of_itself_comes_back(head in "[ab]{0,60}", part in "[ab]{0,80}", tail in "[ab]{0,20}") {
            let text = format!("{head}{part}{tail}");
            let bytes = Encoder::default().around(text.as_bytes(), head.len()..head.len() + part.len());
            prop_assert_eq!(decode(part.as_bytes(), &bytes, 1 << 20), Some(text.into_bytes()));
        }

        #[test]
        fn damage_is_found_and_never_a_panic(base in "[ab]{0,200}", at in 0usize..300, flip in 1u8..=255, bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let text = format!("{base}x{base}");
            let mut damaged = Encoder::default().encode(base.as_bytes(), text.as_bytes());
            let at = at % damaged.len();
            damaged[at] ^= flip;
            // A copy may come from another place with the same bytes.
            prop_assert!(decode(base.as_bytes(), &damaged, 1 << 20).is_none_or(|out| out == text.as_bytes()));
            let mut garbage = vec![MAGIC];
            garbage.extend(bytes);
            decode(base.as_bytes(), &garbage, 1 << 20);
        }
    }
}
