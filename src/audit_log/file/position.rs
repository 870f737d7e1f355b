//! The position in a file of the audit log, and what tells that file from others.

use std::fs::{File, Metadata};
use std::io;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::core::os::{FileExt, MetadataExt};

/// Bytes at the beginning of a file that tell it from others: each event begins with an id of its own in its first 200.
pub(super) const HEAD_BYTES: u64 = 1 << 10;

/// A position in a file that grows and is rotated. It is stored in the transaction that stores what was read before it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilePosition {
    /// Number of the device.
    pub device: u64,
    /// Number of the inode. It is used again after the file is deleted.
    pub inode: u64,
    /// Bytes of the file, uncompressed, before the first line that was not handed on.
    pub offset: u64,
    /// True if the offset is within a line that was cut, whose rest is skipped.
    #[serde(default)]
    pub within_cut: bool,
    /// The first bytes of the file.
    pub head: Head,
    /// Time of the last change of the file, when it was read up to here.
    pub changed: Timestamp,
    /// Time at which the end of the log was reached last: everything that was written until then was handed on.
    pub complete_at: Timestamp,
}

/// Digest of the first bytes of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// Number of bytes, at most 1024 and never more than the offset.
    pub length: u64,
    /// Their SHA-256, in hexadecimal digits; empty without bytes.
    pub sha256: String,
}

impl Head {
    /// Returns the head of these bytes.
    pub(super) fn of(bytes: &[u8]) -> Self {
        if bytes.is_empty() {
            return Self::default();
        }
        let sha256 = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        Self { length: bytes.len() as u64, sha256 }
    }

    /// Reads the head of a file up to an offset.
    pub(super) fn read(file: &File, offset: u64) -> io::Result<Self> {
        let mut bytes = vec![0; usize::try_from(offset.min(HEAD_BYTES)).unwrap_or(0)];
        file.read_exact_at(&mut bytes, 0)?;
        Ok(Self::of(&bytes))
    }

    /// Reports whether a file begins with this head.
    pub(super) fn begins(&self, file: &File) -> io::Result<bool> {
        match Self::read(file, self.length) {
            Ok(head) => Ok(head == *self),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Device and inode of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) device: u64,
    pub(super) inode: u64,
}

impl Identity {
    pub(super) fn of(meta: &Metadata) -> Self {
        Self { device: meta.dev(), inode: meta.ino() }
    }
}

impl FilePosition {
    pub(super) const fn identity(&self) -> Identity {
        Identity { device: self.device, inode: self.inode }
    }
}
