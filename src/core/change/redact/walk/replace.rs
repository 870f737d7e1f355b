//! Replacement of values: what stands in their place, what is reported of them, and texts that hold other texts.

use std::fmt;

use super::{Scope, Sort, Walk};
use crate::core::change::redact::signs::{Signs, mask_tokens};
use crate::core::change::redact::{Builtin, DIGEST, EVERYTHING, MOST, NAMING, RedactMode};
use crate::core::json::tree::{Id, Kind};
use crate::core::model::Redacted;

/// Texts of JSON inside texts of JSON are read this deep. What lies deeper is redacted as a whole where it could
/// hold something.
const MAX_EMBEDDED: usize = 4;

const MASK: &str = "\"***\"";

/// Returns the container of most of these values: the one at depth two, or else at depth one.
fn holder(pointers: &[String], pointer: &str) -> String {
    let steps = |count: usize| {
        let end = pointer.match_indices('/').nth(count).map(|(at, _)| at)?;
        Some(&pointer[..end])
    };
    let holds = |place: &&str| {
        let is_in = |other: &&String| other.strip_prefix(*place).is_some_and(|rest| rest.starts_with('/'));
        2 * pointers.iter().filter(is_in).count() >= pointers.len()
    };
    steps(2).filter(holds).or_else(|| steps(1).filter(|place| *place != "/metadata")).unwrap_or(EVERYTHING).to_owned()
}

impl Walk<'_, '_> {
    /// Reports whether an earlier redaction wrote the value. Inside of texts only its form shows it.
    pub(super) fn is_replaced(&self, value: Id) -> bool {
        let Some(before) = self.task.before else { return false };
        if self.tree.kind(value) != Kind::String || (self.embedded == 0 && !before.contains(self.pointer.as_str())) {
            return false;
        }
        let text = self.tree.raw(value);
        text == MASK || is_digest(text.trim_matches('"'))
    }

    /// Reports whether so many values are redacted that their container is redacted instead.
    fn crowds(&mut self, mode: RedactMode) -> bool {
        // Nothing holds the outermost members, however many they are.
        let is_last = || self.task.whole.iter().any(|(place, _)| place == EVERYTHING);
        if self.report.pointers.len() >= MOST + self.task.whole.len() && !self.is_crowded && !is_last() {
            self.is_crowded = true;
            self.task.crowded.set(Some((holder(&self.report.pointers, &self.pointer), mode)));
        }
        self.is_crowded
    }

    /// Returns the mode in which the present value is redacted as a whole, if it is.
    pub(super) fn whole(&self) -> Option<RedactMode> {
        if self.embedded > 0 {
            return None;
        }
        let is_outermost = || self.pointer.matches('/').count() == 1 && !NAMING.contains(&self.pointer.as_str());
        let is_it = |place: &str| place == self.pointer || place == EVERYTHING && is_outermost();
        self.task.whole.iter().find(|(place, _)| is_it(place)).map(|(_, mode)| *mode)
    }

    /// Redacts a whole value.
    pub(super) fn redacted(&mut self, mode: RedactMode, value: Id, is_member: bool) {
        if self.crowds(mode) {
            return;
        }
        let digest = if self.tree.kind(value) == Kind::String {
            self.task.digest(&self.places, b's', self.tree.string(value).as_bytes())
        } else {
            self.task.digest(&self.places, b'j', self.tree.raw(value).as_bytes())
        };
        self.tell();
        match mode {
            RedactMode::Hmac => {
                let text = format!("\"{}\"", hex(digest));
                self.replace(self.tree.span(value), &text);
            }
            RedactMode::Mask => {
                self.report.marks.push((self.pointer.clone(), digest));
                self.replace(self.tree.span(value), MASK);
            }
            RedactMode::Drop => {
                self.report.marks.push((self.pointer.clone(), digest));
                // A member is cut by the caller; an element leaves its place.
                if !is_member {
                    self.replace(self.tree.span(value), "null");
                }
            }
        }
    }

    /// Looks into a string: a text of JSON that may repeat the object, and tokens.
    pub(super) fn text(&mut self, value: Id, name: &str, of: Sort) {
        let annotation = matches!(of, Sort::Annotations | Sort::AnnotationsOfSecret);
        // kubectl's is called last-applied-configuration; others compress theirs (objectset.rio.cattle.io/applied).
        let applied = annotation && name.contains("applied");
        let in_secret = self.scope == Scope::InSecret || of == Sort::AnnotationsOfSecret;
        let rules = annotation && !self.task.patterns.is_empty();
        if self.is_replaced(value) {
            return self.tell();
        }
        let texts = self.task.redactor.has(Builtin::Texts);
        let look_inside = rules || (texts && (applied || in_secret || self.secrets));
        if !look_inside && !self.tokens {
            return;
        }
        let text = self.tree.string(value);
        let json = text.trim_start().starts_with(['{', '[']);
        let signs = if look_inside { Signs::of(text.as_bytes()) } else { Signs::default() };
        // A text of JSON that is a text of JSON: nothing of it could be restored in its place.
        if look_inside
            && !json
            && signs.secrets
            && let Ok(inner) = serde_json::from_str::<String>(&text)
            && inner.trim_start().starts_with(['{', '[', '"'])
        {
            return self.redacted(RedactMode::Hmac, value, true);
        }
        // An object is what kubectl puts there, and nothing else of a Secret can be looked at member by member.
        let json = json && !(in_secret && applied && !text.trim_start().starts_with('{'));
        if look_inside && (json || applied) {
            // What might hold a secret and cannot be read goes as a whole.
            let suspect = in_secret || rules || (self.secrets && signs.secrets);
            let scope = if in_secret { Scope::InSecret } else { Scope::Plain };
            let mut inner = Redacted::default();
            let result = if json && self.embedded < MAX_EMBEDDED {
                self.task.document(text.as_bytes(), signs, scope, self.embedded + 1, &mut inner)
            } else {
                Err(String::new())
            };
            // Places in the text are none of the object.
            self.task.crowded.set(None);
            match result {
                Ok(Some(bytes)) => {
                    if !inner.marks.is_empty() {
                        let digest = self.task.digest(&self.places, b's', text.as_bytes());
                        self.report.marks.push((self.pointer.clone(), digest));
                    }
                    let bytes = String::from_utf8(bytes).expect("it is made of parts of valid texts");
                    self.rewrite(value, &bytes);
                    return;
                }
                Ok(None) => return,
                Err(_) if suspect && (rules || self.task.redactor.has(Builtin::Unreadable)) => {
                    return self.redacted(RedactMode::Hmac, value, true);
                }
                Err(_) => {}
            }
        }
        if self.tokens
            && let Some(masked) = mask_tokens(&text)
        {
            let digest = self.task.digest(&self.places, b's', text.as_bytes());
            self.report.marks.push((self.pointer.clone(), digest));
            self.rewrite(value, &masked);
        }
    }

    /// Another text in the place of a string.
    fn rewrite(&mut self, value: Id, text: &str) {
        if self.crowds(RedactMode::Hmac) {
            return;
        }
        self.tell();
        let text = serde_json::to_string(text).expect("a string always serialises");
        self.replace(self.tree.span(value), &text);
    }

    pub(super) fn tell(&mut self) {
        if self.report.pointers.last() != Some(&self.pointer) {
            self.report.pointers.push(self.pointer.clone());
        }
    }

    /// Puts a text in the place of a part. The walk goes forward, and so do the parts.
    pub(super) fn replace(&mut self, part: std::ops::Range<usize>, text: &str) {
        self.out.extend_from_slice(&self.raw[self.copied..part.start]);
        self.out.extend_from_slice(text.as_bytes());
        self.copied = part.end;
    }

    pub(super) fn finish(mut self) -> Option<Vec<u8>> {
        if self.copied == 0 {
            return None;
        }
        self.out.extend_from_slice(&self.raw[self.copied..]);
        Some(self.out)
    }
}

pub(super) fn is_digest(text: &str) -> bool {
    let digest = text.strip_prefix(DIGEST);
    digest.is_some_and(|hex| hex.len() == 32 && hex.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

pub(super) fn hex(digest: [u8; 16]) -> String {
    digest.iter().fold(DIGEST.to_owned(), |mut text, byte| {
        use fmt::Write as _;
        write!(text, "{byte:02x}").expect("a String takes all text");
        text
    })
}
