//! Keys that sign checkpoints: Ed25519, in the text formats of signed notes.
//!
//! A signing key is `PRIVATE+KEY+NAME+ID+BASE64`, a verifier key `NAME+ID+BASE64`. The ID is half of nothing but a hint: it is the first four
//! bytes of the digest of the name and the key, in hex.

use aws_lc_rs::rand::SecureRandom as _;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use crate::core::merkle::sha256;

/// Type of a key that signs the text of a note.
const PLAIN: u8 = 1;
/// Type of a key that signs the text with the time (c2sp.org/tlog-cosignature).
const TIMED: u8 = 4;
/// Start of a signing key.
const PRIVATE: &str = "PRIVATE+KEY+";

/// A signature of a note.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// Name of the key.
    pub name: String,
    /// First four bytes of the digest of the key and its name.
    pub id: [u8; 4],
    /// The rest, whose format depends on the key.
    pub bytes: Vec<u8>,
}

/// The public half of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifierKey {
    /// Its name, without blanks and plus signs.
    pub name: String,
    /// Its type: it signs the text alone, or with the time.
    kind: u8,
    public: [u8; 32],
}

impl VerifierKey {
    /// Reads a key as `decklog evidence key` prints it.
    ///
    /// # Errors
    /// A sentence that says how it is no key.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.starts_with(PRIVATE) {
            return Err(
                "this is a signing key, which is secret: give the key that `decklog evidence key` prints".to_owned()
            );
        }
        let (name, id, decoded) = parts(text)?;
        let (kind, public) = match &decoded[..] {
            [kind @ (PLAIN | TIMED), public @ ..] if public.len() == 32 => (*kind, public),
            _ => return Err("it is not a key for Ed25519".to_owned()),
        };
        let public = public.try_into().map_err(|_| "it is too short".to_owned())?;
        let key = Self { name: name.to_owned(), kind, public };
        if hex(&key.id(kind)) != id {
            return Err("its ID does not belong to its name and key: it was altered or cut off".to_owned());
        }
        Ok(key)
    }

    /// Returns the same key as one that signs with the time: a witness is known by it.
    #[must_use]
    pub fn timed(&self) -> Self {
        Self { kind: TIMED, ..self.clone() }
    }

    /// Reports whether it signs with the time.
    #[must_use]
    pub const fn is_timed(&self) -> bool {
        self.kind == TIMED
    }

    fn id(&self, kind: u8) -> [u8; 4] {
        let digest = sha256(&[self.name.as_bytes(), b"\n", &[kind], &self.public]);
        [digest[0], digest[1], digest[2], digest[3]]
    }

    /// Reports whether a signature of a text is of this key, and good.
    pub(super) fn verifies(&self, text: &[u8], signature: &Signature) -> bool {
        if self.kind == TIMED {
            return self.verifies_at(text, signature).is_some();
        }
        signature.name == self.name && signature.id == self.id(PLAIN) && self.is_good(text, &signature.bytes)
    }

    /// Returns the time that a signature of a text says, in seconds since 1970, if it is one of this key with the time.
    pub(super) fn verifies_at(&self, text: &[u8], signature: &Signature) -> Option<u64> {
        if signature.name != self.name || signature.id != self.id(TIMED) {
            return None;
        }
        let (time, bytes) = signature.bytes.split_first_chunk::<8>()?;
        let time = u64::from_be_bytes(*time);
        self.is_good(&timed(text, time), bytes).then_some(time)
    }

    fn is_good(&self, text: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(&ED25519, self.public).verify(text, signature).is_ok()
    }
}

impl std::fmt::Display for VerifierKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let encoded = BASE64.encode([&[self.kind], &self.public[..]].concat());
        write!(f, "{}+{}+{encoded}", self.name, hex(&self.id(self.kind)))
    }
}

/// A key that signs. Its `Debug` shows the public half.
pub struct SigningKey {
    public: VerifierKey,
    pair: Ed25519KeyPair,
    seed: [u8; 32],
}

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("SigningKey").field(&self.public).finish()
    }
}

impl SigningKey {
    /// Makes a key with this name.
    ///
    /// # Errors
    /// Where the name cannot be one, or the system gives no random bytes.
    pub fn generate(name: &str) -> Result<Self, String> {
        let mut seed = [0; 32];
        SystemRandom::new().fill(&mut seed).map_err(|_| "the system gives no random bytes".to_owned())?;
        Self::of_seed(name, seed)
    }

    /// Reads a key as [`SigningKey::render`] writes it.
    ///
    /// # Errors
    /// A sentence that says how it is no key, without any of its bytes.
    pub fn parse(text: &str) -> Result<Self, String> {
        let Some(rest) = text.trim().strip_prefix(PRIVATE) else {
            return Err("it is not a signing key: make one with `decklog evidence key`".to_owned());
        };
        let (name, id, decoded) = parts(rest)?;
        let seed = match &decoded[..] {
            [PLAIN, seed @ ..] => seed.try_into().map_err(|_| "it has not the length of a key".to_owned())?,
            _ => return Err("it is not a key for Ed25519".to_owned()),
        };
        let key = Self::of_seed(name, seed)?;
        if hex(&key.public.id(PLAIN)) != id {
            return Err("its ID does not belong to its name and key: it was altered or cut off".to_owned());
        }
        Ok(key)
    }

    fn of_seed(name: &str, seed: [u8; 32]) -> Result<Self, String> {
        check_name(name)?;
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).map_err(|_| "it is not a key for Ed25519".to_owned())?;
        let mut public = [0; 32];
        public.copy_from_slice(pair.public_key().as_ref());
        Ok(Self { public: VerifierKey { name: name.to_owned(), kind: PLAIN, public }, pair, seed })
    }

    /// Renders it as its file holds it: secret.
    #[must_use]
    pub fn render(&self) -> String {
        let encoded = BASE64.encode([&[PLAIN], &self.seed[..]].concat());
        format!("{PRIVATE}{}+{}+{encoded}\n", self.public.name, hex(&self.public.id(PLAIN)))
    }

    /// Returns the public half.
    #[must_use]
    pub const fn verifier(&self) -> &VerifierKey {
        &self.public
    }

    /// Signs the text of a note.
    pub(super) fn sign(&self, text: &[u8]) -> Signature {
        let bytes = self.pair.sign(text).as_ref().to_vec();
        Signature { name: self.public.name.clone(), id: self.public.id(PLAIN), bytes }
    }

    /// Signs the text of a note with the time at which it was seen, in seconds since 1970.
    pub(super) fn cosign(&self, text: &[u8], time: u64) -> Signature {
        let signature = self.pair.sign(&timed(text, time));
        let bytes = [&time.to_be_bytes()[..], signature.as_ref()].concat();
        Signature { name: self.public.name.clone(), id: self.public.id(TIMED), bytes }
    }
}

/// Text that is signed with a time.
fn timed(text: &[u8], time: u64) -> Vec<u8> {
    [format!("cosignature/v1\ntime {time}\n").as_bytes(), text].concat()
}

/// Refuses a name that a note cannot carry.
fn check_name(name: &str) -> Result<(), String> {
    if name.is_empty() || name.len() > 255 || name.contains(|c: char| c.is_whitespace() || c.is_control() || c == '+') {
        return Err(format!("{name:?} cannot name a key: give 1 to 255 characters without blanks and plus signs"));
    }
    Ok(())
}

/// Splits a key into its name, its ID and its bytes. The name may have no plus sign, and base64 has some.
fn parts(text: &str) -> Result<(&str, &str, Vec<u8>), String> {
    let malformed = || "it is not NAME+ID+KEY".to_owned();
    let mut parts = text.splitn(3, '+');
    let (Some(name), Some(id), Some(encoded)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(malformed());
    };
    check_name(name)?;
    Ok((name, id, BASE64.decode(encoded).map_err(|_| malformed())?))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
