//! Signatures as Standard Webhooks has them, so that a receiver can verify with any of its libraries that a request
//! came from here, as it is and not long ago.
//!
//! Signed is `ID.TIME.BODY` with HMAC-SHA256. `webhook-id` is the same at every try, and names what is in the request:
//! the epoch with the seq of the entry, or with the first and the last seq of a batch. Dots in it are `_`, because they part
//! what is signed.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use sha2::Sha256;

use crate::core::credential_files::Followed;
use crate::sink::SinkError;

/// Prefix of a key in its file.
const PREFIX: &str = "whsec_";

/// Length of a key, in bytes.
const BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// The keys in a file, one a line. Each of them signs, so that a receiver can change from one to the next.
#[derive(Debug)]
pub(super) struct Signer {
    file: Followed,
    keys: Vec<Hmac<Sha256>>,
}

impl Signer {
    /// Creates a signer that has read nothing yet.
    pub(super) fn new(path: &std::path::Path) -> Self {
        Self { file: Followed::new(path), keys: Vec::new() }
    }

    /// The file must be readable at the next use.
    pub(super) fn forget(&mut self) {
        self.file.forget();
        self.keys.clear();
    }

    /// Reads the keys, where they are others than before.
    pub(super) async fn refresh(&mut self) -> Result<(), SinkError> {
        if !self.file.refresh().await? && !self.keys.is_empty() {
            return Ok(());
        }
        let lines = self.file.text()?.lines().map(str::trim).filter(|line| !line.is_empty());
        let keys: Option<Vec<_>> = lines.map(key).collect();
        self.keys = keys.filter(|keys| !keys.is_empty()).ok_or_else(|| {
            SinkError::retry(format!(
                "{} does not hold keys, one a line, each {PREFIX} and the base64 of {} to {} bytes",
                self.file.path().display(),
                BYTES.start(),
                BYTES.end()
            ))
        })?;
        Ok(())
    }

    /// The headers of a request.
    pub(super) fn headers(&self, id: &str, seconds: i64, body: &[u8]) -> HeaderMap {
        let id: String = id.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).collect();
        let signature = |key: &Hmac<Sha256>| {
            let mut mac = key.clone();
            mac.update(format!("{id}.{seconds}.").as_bytes());
            mac.update(body);
            format!("v1,{}", BASE64_STANDARD.encode(mac.finalize().into_bytes()))
        };
        let signatures = self.keys.iter().map(signature).collect::<Vec<_>>().join(" ");
        [("webhook-id", id.clone()), ("webhook-timestamp", seconds.to_string()), ("webhook-signature", signatures)]
            .into_iter()
            .map(|(name, value)| {
                let value = HeaderValue::try_from(value).expect("letters, digits and signs of base64");
                (HeaderName::from_static(name), value)
            })
            .collect()
    }
}

fn key(line: &str) -> Option<Hmac<Sha256>> {
    let bytes = BASE64_STANDARD.decode(line.strip_prefix(PREFIX)?).ok()?;
    BYTES.contains(&bytes.len()).then(|| Hmac::new_from_slice(&bytes).expect("a key may have any length"))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn signer(text: &str) -> Result<Signer, SinkError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let mut signer = Signer::new(file.path());
        signer.refresh().await.map(|()| signer)
    }

    /// The vector that the libraries of Standard Webhooks are tested with.
    #[tokio::test]
    async fn a_signature_is_that_of_the_specification() {
        let key = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        let other = format!("whsec_{}", BASE64_STANDARD.encode([7; 32]));
        let signer = signer(&format!("{key}\n\n{other}\n")).await.unwrap();
        let headers = signer.headers("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, b"{\"test\": 2432232314}");
        let signatures = headers["webhook-signature"].to_str().unwrap();
        let (first, second) = signatures.split_once(' ').unwrap();
        assert_eq!(first, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        assert!(second.starts_with("v1,") && second != first);
        assert_eq!(headers["webhook-timestamp"], "1614265330");
        assert_eq!(signer.headers("u.5.ADDED", 1, b"")["webhook-id"], "u_5_ADDED");
    }

    #[tokio::test]
    async fn what_is_no_key_is_told_without_telling_it() {
        for text in ["", "geheim", "whsec_", "whsec_Z2VoZWlt", "whsec_%%%", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"] {
            let error = signer(text).await.unwrap_err().to_string();
            assert!(
                error.contains("does not hold keys") && (PREFIX.contains(text) || !error.contains(text)),
                "{error}"
            );
        }
    }
}
