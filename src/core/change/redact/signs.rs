//! Signs of what the built-in rules look for, and tokens in texts.

use std::sync::LazyLock;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use memchr::memmem::{self, Finder};

use super::TOKEN;

/// The beginning of an escape of an ASCII character, of a kind that may be a Secret's, and of a token.
static ESCAPE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\\u00"));
static SECRET: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"Secret"));
static TOKEN_BEGIN: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"eyJ"));

/// Signs of secrets in the text of an object that is no Secret. Without a sign the text is not parsed. It is scanned once for
/// each sign.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Signs {
    /// Set if the text holds the beginning of a token.
    pub(super) tokens: bool,
    /// `"Secret"` or `"SecretList"`, in a text inside it (`\"Secret\"`) as well.
    pub(super) secrets: bool,
}

impl Signs {
    pub(super) fn of(raw: &[u8]) -> Self {
        // Escapes of ASCII characters, which the API server does not write except for `<`, `>` and `&`, could hide what is
        // looked for.
        if ESCAPE.find(raw).is_some() {
            return Self { tokens: true, secrets: true };
        }
        let ends = |at: usize| {
            let rest = &raw[at..];
            matches!(rest.strip_prefix(b"List").unwrap_or(rest).first(), Some(b'"' | b'\\'))
        };
        let secrets = SECRET.find_iter(raw).any(|at| ends(at + 7));
        Self { tokens: TOKEN_BEGIN.find(raw).is_some(), secrets }
    }
}

/// The text with its JSON Web Tokens masked; nothing where it has none. A token is three runs of base64url characters
/// with dots between, the first of which is a JSON object that names an algorithm.
pub(super) fn mask_tokens(text: &str) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Header {
        #[serde(rename = "alg")]
        _alg: serde::de::IgnoredAny,
    }
    // A run that begins so more often is no header, and one that is longer is none that a server makes.
    const MAX_TRIES: usize = 8;
    const MAX_HEADER: usize = 8 << 10;
    let bytes = text.as_bytes();
    let run = |from: usize| {
        let is_ours = |byte: &&u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        from + bytes[from..].iter().take_while(is_ours).count()
    };
    let mut out = String::new();
    let (mut copied, mut at) = (0, 0);
    while let Some(found) = memmem::find(&bytes[at..], b"eyJ") {
        let begin = at + found;
        let header_end = run(begin);
        at = header_end;
        if bytes.get(header_end) != Some(&b'.') {
            continue;
        }
        let payload_end = run(header_end + 1);
        if payload_end == header_end + 1 || bytes.get(payload_end) != Some(&b'.') {
            continue;
        }
        let header =
            memmem::find_iter(&bytes[begin..header_end], b"eyJ").take(MAX_TRIES).map(|at| begin + at).find(|&start| {
                header_end - start <= MAX_HEADER
                    && BASE64_URL_SAFE_NO_PAD
                        .decode(&bytes[start..header_end])
                        .is_ok_and(|json| serde_json::from_slice::<Header>(&json).is_ok())
            });
        if let Some(start) = header {
            out.push_str(&text[copied..start]);
            out.push_str(TOKEN);
            copied = run(payload_end + 1);
            at = copied;
        }
    }
    (copied > 0).then(|| {
        out.push_str(&text[copied..]);
        out
    })
}
