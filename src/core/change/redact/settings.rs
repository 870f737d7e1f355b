//! `[redact]`: what never reaches the disk in clear.

use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::core::change::Pattern;
use crate::core::spelling::kubernetes::ResourceText;

/// Largest size of a key file that counts, in bytes.
const MAX_KEY_FILE: u64 = 1 << 20;

/// Values that never reach the disk in clear.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Redact")]
pub struct Settings {
    /// The built-in rules: Secret data and stringData, last-applied annotations that carry them, service account tokens.
    pub defaults: bool,
    /// Rules beside the built-in ones.
    pub rules: Vec<RedactRule>,
    /// Parts of the senders that an audit log names which never reach the disk in clear.
    pub senders: Vec<SenderPart>,
    /// A file with the key of the digests, at least 16 bytes. Default: a key made once, kept in the state directory.
    #[schemars(extend("format" = "key-file"))]
    pub key_file: Option<PathBuf>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { defaults: true, rules: Vec::new(), senders: Vec::new(), key_file: None }
    }
}

impl Settings {
    /// The key of the digests, made out of `key_file`; none where the configuration names no file.
    ///
    /// # Errors
    /// Where the file cannot be read.
    pub fn read_key(&self) -> io::Result<Option<[u8; 32]>> {
        let Some(path) = &self.key_file else { return Ok(None) };
        let mut bytes = Vec::new();
        File::open(path)?.take(MAX_KEY_FILE).read_to_end(&mut bytes)?;
        Ok(Some(Sha256::digest(&bytes).into()))
    }
}

/// A rule that redacts values of some resources.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RedactRule {
    /// Resources as kubectl spells them, PLURAL[.GROUP]; "*" is all.
    #[schemars(with = "Vec<ResourceText>", length(min = 1))]
    pub resources: Vec<String>,
    /// JSON pointers of the values, with * inside segments.
    #[schemars(length(min = 1))]
    pub paths: Vec<Pattern>,
    /// Replacement of the value.
    pub mode: RedactMode,
}

/// Part of the sender of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SenderPart {
    /// User, and the user who impersonated: a keyed digest, the same for the same name.
    Users,
    /// Addresses: they are left out.
    Addresses,
    /// User agent: it is left out.
    Agents,
}

/// Replacement of a redacted value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RedactMode {
    /// Nothing: the key goes too.
    Drop,
    /// A fixed text.
    Mask,
    /// A keyed digest, which changes when the value does.
    Hmac,
}
