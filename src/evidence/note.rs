//! Signed notes (c2sp.org/signed-note): a text, and signatures of it by named keys.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

pub use super::key::Signature;
use super::key::{SigningKey, VerifierKey};

/// Start of a line with a signature.
const DASH: &str = "\u{2014} ";
/// Bytes of a note at most: it is a checkpoint with the signatures of a few witnesses.
const NOTE_LEN_MAX: usize = 64 << 10;
/// Signatures of one note at most.
const SIGNATURES_MAX: usize = 100;

/// A text with signatures. Nothing says that they are good: [`Note::is_signed_by`] does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The signed text, which ends with a line break.
    pub text: String,
    /// Its signatures, in their order.
    pub signatures: Vec<Signature>,
}

impl Note {
    /// Signs a text at a time, in seconds since 1970: once as it is, and once with the time.
    #[must_use]
    pub fn sign(text: String, keys: &[&SigningKey], time: u64) -> Self {
        let signatures =
            keys.iter().flat_map(|key| [key.sign(text.as_bytes()), key.cosign(text.as_bytes(), time)]).collect();
        Self { text, signatures }
    }

    /// Reads a note.
    ///
    /// # Errors
    /// A sentence that says how it is no note.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        if bytes.len() > NOTE_LEN_MAX {
            return Err(format!("it has more than {NOTE_LEN_MAX} bytes"));
        }
        let text = std::str::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned())?;
        let end = text.rfind("\n\n").ok_or("it has no empty line before its signatures")? + 1;
        let (body, signatures) = (&text[..end], &text[end + 1..]);
        if !signatures.ends_with('\n') {
            return Err("it is cut off".to_owned());
        }
        let signatures: Vec<_> = signatures.lines().map(signature).collect::<Result<_, _>>()?;
        if signatures.len() > SIGNATURES_MAX {
            return Err(format!("it has more than {SIGNATURES_MAX} signatures"));
        }
        Ok(Self { text: body.to_owned(), signatures })
    }

    /// Renders it as it is stored.
    #[must_use]
    pub fn render(&self) -> String {
        let mut text = format!("{}\n", self.text);
        for Signature { name, id, bytes } in &self.signatures {
            // Writing to a string does not fail.
            let _ok = writeln!(text, "{DASH}{name} {}", BASE64.encode([&id[..], bytes].concat()));
        }
        text
    }

    /// Reports whether a signature of this key is there and good.
    #[must_use]
    pub fn is_signed_by(&self, key: &VerifierKey) -> bool {
        self.signatures.iter().any(|signature| key.verifies(self.text.as_bytes(), signature))
    }

    /// Returns the latest time at which this key says that it has seen the text, in seconds since 1970.
    #[must_use]
    pub fn seen_by(&self, key: &VerifierKey) -> Option<u64> {
        self.signatures.iter().filter_map(|signature| key.verifies_at(self.text.as_bytes(), signature)).max()
    }
}

fn signature(line: &str) -> Result<Signature, String> {
    let read = || {
        let (name, rest) = line.strip_prefix(DASH)?.split_once(' ')?;
        let decoded = BASE64.decode(rest).ok()?;
        let (id, bytes) = decoded.split_first_chunk::<4>()?;
        (!name.is_empty() && !bytes.is_empty()).then(|| Signature {
            name: name.to_owned(),
            id: *id,
            bytes: bytes.to_vec(),
        })
    };
    read().ok_or_else(|| "one of its signatures is malformed".to_owned())
}
