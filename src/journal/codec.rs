//! Compression of entries: alone, or as the difference of another entry.
//!
//! Successive versions of one object are nearly equal, so an entry is stored as the difference of an earlier one (its
//! base): 8 KB of Pod become a few hundred bytes, byte-exact, and reading it costs two rows whatever its age. What
//! stands alone is a zstd frame. Both carry a checksum.
//!
//! # Decision: an entry is stored as the line that sinks get
//!
//! Context: An entry must stay the same over upgrades, and successive versions of an object are nearly equal.
//! Decision: The line is rendered once and stored as a difference of an earlier line of the same object, its base; a line
//! without a base is a zstd frame. Any entry takes two rows at most. Each blob has a checksum, because SQLite has none.
//! Cost: Our own encoding. zstd with the base as a dictionary gives smaller differences, but digests the dictionary for every
//! change: 1.7 instead of 1.2 times the baseline of the bench.

mod delta;

use zstd::zstd_safe::{self, CCtx, CParameter, DCtx};

/// No entry is larger: the API server takes 3 MiB and JSON escapes can multiply that.
const LARGEST: u64 = 256 << 20;

/// The first byte of a difference that is squeezed by zstd; neither a difference nor a frame begins with it.
const SQUEEZED: u8 = 0xd2;
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

    /// The inverse of [`Codec::compress`] with the same base.
    ///
    /// # Errors
    /// Where the stored bytes are damaged.
    pub fn decompress(&mut self, base: Option<&[u8]>, blob: &[u8]) -> Result<Vec<u8>, CodecError> {
        let differs = || CodecError("no difference of its base");
        match (base, blob.first()) {
            (None, _) => self.unsqueeze(blob),
            (Some(base), Some(&SQUEEZED)) => {
                let delta = self.unsqueeze(&blob[1..])?;
                delta::decode(base, &delta, LARGEST).ok_or_else(differs)
            }
            (Some(base), _) => delta::decode(base, blob, LARGEST).ok_or_else(differs),
        }
    }

    fn unsqueeze(&mut self, frame: &[u8]) -> Result<Vec<u8>, CodecError> {
        let size = zstd_safe::get_frame_content_size(frame)
            .ok()
            .flatten()
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
