//! Compression of entries: alone, or as the difference of another entry.
//!
//! Successive versions of one object are nearly equal, so an entry is stored as the difference of an earlier one (its
//! base): 8 KB of Pod become a few hundred bytes, byte-exact, and reading it costs two rows whatever its age. What
//! stands alone is a zstd frame; where the object of an entry is at hand as a frame, as it was staged, the entry is that frame and
//! the difference of what it holds. All of them carry a checksum.
//!
//! # Decision: an entry is stored as the line that sinks get
//!
//! Context: An entry must stay the same over upgrades, and successive versions of an object are nearly equal.
//! Decision: The line is rendered once and stored as a difference of an earlier line of the same object, its base; a line
//! without a base is a zstd frame, or has the frame of its object. Any entry takes two rows at most. Each blob has a checksum, because SQLite has none.
//! Cost: Our own encodings. zstd with the base as a dictionary gives smaller differences, but digests the dictionary for every
//! change: 1.7 instead of 1.2 times the baseline of the bench.

mod delta;

use std::ops::Range;

use zstd::zstd_safe::{self, CCtx, CParameter, DCtx};

/// No entry is larger: the API server takes 3 MiB and JSON escapes can multiply that.
const LARGEST: u64 = 256 << 20;

/// The first byte of a difference that is squeezed by zstd; neither a difference nor a frame begins with it.
const SQUEEZED: u8 = 0xd2;
/// The first byte of a text around a part of itself, which follows it as a zstd frame:
/// length of the difference as a varint, the difference, the frame.
const ENCLOSED: u8 = 0xd3;
/// A difference that is smaller need not be looked for in any other way.
const SMALL: usize = 384;
/// A shorter difference gains too little.
const WORTH_SQUEEZING: usize = 768;

/// Reason why stored bytes could not be read.
#[derive(Debug, thiserror::Error)]
#[error("stored bytes do not decompress: {0}")]
pub struct CodecError(&'static str);

/// Reused compression contexts of one thread.
pub struct Codec {
    compress: CCtx<'static>,
    decompress: DCtx<'static>,
    delta: delta::Encoder,
}

impl std::fmt::Debug for Codec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Codec")
    }
}

impl Default for Codec {
    fn default() -> Self {
        let mut compress = CCtx::create();
        let set = compress.set_parameter(CParameter::CompressionLevel(1));
        debug_assert!(set.is_ok(), "level 1 exists in every zstd");
        // A flipped bit on the disk would else come back as another text, and SQLite has no checksums of its own.
        let set = compress.set_parameter(CParameter::ChecksumFlag(true));
        debug_assert!(set.is_ok(), "frames may have checksums in every zstd");
        Self { compress, decompress: DCtx::create(), delta: delta::Encoder::default() }
    }
}

impl Codec {
    /// Compresses `bytes`, as the difference of `base` where there is one.
    pub fn compress(&mut self, base: Option<&[u8]>, bytes: &[u8]) -> Vec<u8> {
        let Some(base) = base else { return self.squeeze(Vec::new(), bytes) };
        let delta = self.delta.encode(base, bytes);
        if delta.len() < WORTH_SQUEEZING {
            return delta;
        }
        let squeezed = self.squeeze(vec![SQUEEZED], &delta);
        if squeezed.len() < delta.len() { squeezed } else { delta }
    }

    /// Compresses as [`Codec::compress`] does a version of the same object as `base`: the positions of the object in both are
    /// known, and nearly always little of it differs.
    pub fn compress_version(&mut self, base: (&[u8], usize), bytes: (&[u8], usize)) -> Vec<u8> {
        match delta::follow(base.0, base.1, bytes.0, bytes.1) {
            Some(delta) if delta.len() < SMALL => delta,
            Some(_) | None => self.compress(Some(base.0), bytes.0),
        }
    }

    /// Compresses `text` with a part of it that is compressed already: `frame` is what [`Codec::compress`] made of exactly this
    /// part, which nothing checks before it is read. A text that is much longer than its part is compressed as a whole.
    pub fn enclose(&mut self, text: &[u8], part: Range<usize>, frame: &[u8]) -> Vec<u8> {
        let delta = self.delta.around(text, part);
        if delta.len() > WORTH_SQUEEZING {
            return self.compress(None, text);
        }
        let mut out = Vec::with_capacity(delta.len() + frame.len() + 3);
        out.push(ENCLOSED);
        delta::put(&mut out, delta.len() as u64);
        out.extend_from_slice(&delta);
        out.extend_from_slice(frame);
        out
    }

    /// Reports whether stored bytes are a difference of a base.
    #[must_use]
    pub fn is_difference(blob: &[u8]) -> bool {
        matches!(blob.first(), Some(&(delta::MAGIC | SQUEEZED)))
    }

    /// A zstd frame after what `out` holds.
    fn squeeze(&mut self, out: Vec<u8>, bytes: &[u8]) -> Vec<u8> {
        let start = out.len();
        let mut out = std::io::Cursor::new(out);
        out.get_mut().reserve(zstd_safe::compress_bound(bytes.len()));
        out.set_position(start as u64);
        self.compress.compress2(&mut out, bytes).expect("compression into a buffer of the stated bound cannot fail");
        out.into_inner()
    }

    /// The inverse of [`Codec::compress`] with the same base, and of [`Codec::enclose`] without one.
    ///
    /// # Errors
    /// Where the stored bytes are damaged.
    pub fn decompress(&mut self, base: Option<&[u8]>, blob: &[u8]) -> Result<Vec<u8>, CodecError> {
        let differs = || CodecError("no difference of its base");
        match (base, blob.first()) {
            (None, Some(&ENCLOSED)) => {
                let mut rest = &blob[1..];
                let length = delta::take(&mut rest).and_then(|length| usize::try_from(length).ok());
                let (delta, frame) = length.and_then(|length| rest.split_at_checked(length)).ok_or_else(differs)?;
                let part = self.unsqueeze(frame)?;
                delta::decode(&part, delta, LARGEST).ok_or_else(differs)
            }
            (None, _) => self.unsqueeze(blob),
            (Some(base), Some(&SQUEEZED)) => {
                let delta = self.unsqueeze(&blob[1..])?;
                delta::decode(base, &delta, LARGEST).ok_or_else(differs)
            }
            (Some(base), _) => delta::decode(base, blob, LARGEST).ok_or_else(differs),
        }
    }

    /// Returns the size of what a zstd frame holds, in bytes, as it says; none where these bytes are no frame.
    pub(super) fn content_size(frame: &[u8]) -> Option<u64> {
        zstd_safe::get_frame_content_size(frame).ok().flatten()
    }

    fn unsqueeze(&mut self, frame: &[u8]) -> Result<Vec<u8>, CodecError> {
        let size = Self::content_size(frame)
            .filter(|size| *size <= LARGEST)
            .and_then(|size| usize::try_from(size).ok())
            .ok_or(CodecError("no frame with a sane size"))?;
        let mut out = Vec::with_capacity(size);
        self.decompress.decompress(&mut out, frame).map_err(|code| CodecError(zstd_safe::get_error_name(code)))?;
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_small_next_to_its_base_and_comes_back_byte_for_byte() {
        let mut codec = Codec::default();
        let old: Vec<u8> =
            (0..2000_u32).flat_map(|n| format!("{{\"k\":{}}}", n.wrapping_mul(2_654_435_761)).into_bytes()).collect();
        let mut new = old.clone();
        new[5000] = b'X';
        let alone = codec.compress(None, &new);
        let delta = codec.compress(Some(&old), &new);
        assert!(delta.len() * 50 < alone.len(), "{} against {}", delta.len(), alone.len());
        assert_eq!(codec.decompress(Some(&old), &delta).unwrap(), new);
        assert_eq!(codec.decompress(None, &alone).unwrap(), new);
        assert_eq!(codec.decompress(None, &codec_empty()).unwrap(), b"");
    }

    fn codec_empty() -> Vec<u8> {
        Codec::default().compress(None, b"")
    }

    /// The only test of how much an entry takes beside its object; the property of `delta` proves that it comes back.
    #[test]
    fn an_entry_is_little_more_than_the_frame_of_its_object() {
        let mut codec = Codec::default();
        let uid = "5ad3e0e7-0a3c-4cf1-9f0c-6d1f4d2f7c11";
        let object = format!(
            r#"{{"kind":"Pod","metadata":{{"name":"web-7d9c","uid":"{uid}"}},"spec":{{"a":"{}"}}}}"#,
            "b".repeat(4000)
        );
        let head = format!(r#"{{"v":1,"seq":9,"id":"{uid}.7.ADDED","name":"web-7d9c","uid":"{uid}","object":"#);
        let text = format!("{head}{object}}}");
        let part = head.len()..head.len() + object.len();
        let frame = codec.compress(None, object.as_bytes());
        let blob = codec.enclose(text.as_bytes(), part.clone(), &frame);
        assert!(!Codec::is_difference(&blob) && blob.len() < frame.len() + 100, "{} and {}", blob.len(), frame.len());
        assert_eq!(codec.decompress(None, &blob).unwrap(), text.as_bytes());
        for at in 0..blob.len() {
            let mut bad = blob.clone();
            bad[at] ^= 0x55;
            if let Ok(bytes) = codec.decompress(None, &bad) {
                assert_eq!(bytes, text.as_bytes());
            }
            assert!(codec.decompress(None, &blob[..at]).is_err());
        }
        // What is much longer than its object is compressed as a whole.
        let long = format!("{}{object}}}", "not the same again and again ".repeat(100));
        let part = long.len() - 1 - object.len()..long.len() - 1;
        let blob = codec.enclose(long.as_bytes(), part, &frame);
        assert_ne!(blob[0], ENCLOSED);
        assert_eq!(codec.decompress(None, &blob).unwrap(), long.as_bytes());
    }

    #[test]
    fn damage_is_an_error_and_never_a_panic() {
        let mut codec = Codec::default();
        let good = codec.compress(None, &[b'a'; 10_000]);
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x55;
            // Header bits that say nothing may flip; another text never comes out.
            if let Ok(bytes) = codec.decompress(None, &bad) {
                assert_eq!(bytes, [b'a'; 10_000]);
            }
        }
        assert!(codec.decompress(None, b"").is_err());
    }
}
