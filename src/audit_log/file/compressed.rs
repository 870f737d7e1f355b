//! A rotated file that was compressed with gzip.

use std::fs::File;
use std::io::{self, BufReader, Read};

use flate2::bufread::MultiGzDecoder;

use super::position::{HEAD_BYTES, Head};

/// The uncompressed bytes of a file, from an offset on.
#[derive(Debug)]
pub(super) struct Compressed {
    bytes: MultiGzDecoder<BufReader<File>>,
}

impl Compressed {
    /// Begins at an offset of the uncompressed bytes. Returns it with the first bytes before that; none if the file has not so
    /// many bytes or begins otherwise than `head` says.
    pub(super) fn open(file: File, offset: u64, head: &Head) -> io::Result<Option<(Self, Vec<u8>)>> {
        let mut bytes = MultiGzDecoder::new(BufReader::new(file));
        let mut first = Vec::new();
        bytes.by_ref().take(HEAD_BYTES.min(offset)).read_to_end(&mut first)?;
        let length = usize::try_from(head.length).unwrap_or(usize::MAX);
        if first.len() < length || Head::of(&first[..length]) != *head {
            return Ok(None);
        }
        let rest = offset.saturating_sub(first.len() as u64);
        let skipped = io::copy(&mut bytes.by_ref().take(rest), &mut io::sink())?;
        Ok((skipped == rest).then_some((Self { bytes }, first)))
    }

    pub(super) fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.bytes.read(into)
    }
}
