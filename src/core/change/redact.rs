//! Redaction: secrets are removed from an object before anything is written to disk (invariant 10).
//!
//! **Built in** (`defaults = true`): in Secrets every value of `data` and `stringData`; the same wherever an object
//! inside another one, or inside a text of JSON in it, says that it is of kind Secret, or stands in a SecretList; in
//! Secrets every annotation that is not known to be harmless (`annotation`), because programs keep copies there in any
//! form: of kubectl's last-applied-configuration the values, where it can be read, of all others the whole; in every
//! string of every object what looks like a service account token (a JSON Web Token).
//!
//! **Rules** name values by JSON pointers. They hold for the object, for what managedFields repeat of it (`walk::fields`), and
//! for every annotation of it that is a text of JSON, because `kubectl apply` keeps a copy of the object there. Where several match a value the strictest counts:
//! drop, then mask, then hmac. What names the object (apiVersion, kind, and name, namespace, uid and resourceVersion
//! in its metadata) stays, whatever the rules say.
//!
//! What stands in the place of a value:
//! * *hmac*: `"hmac:"` and 32 hexadecimal digits: HMAC-SHA256 over the object's uid, the pointer (the places in lists
//!   left out, so that an element keeps its text when it moves) and the value, cut to 16 bytes. Equal texts in one
//!   object under one pointer are equal values, so a change, and a change back, can be seen. Texts of other objects
//!   or other pointers cannot be compared. A last-applied annotation uses the pointers of the object it holds.
//! * *mask*: `"***"`, and for tokens `redacted:token` in the midst of the text.
//! * *drop*: nothing, the member goes; in lists `null`, so that the others keep their places.
//!
//! For mask, drop and tokens a keyed digest is kept beside the object (a *mark*), so that their changes show.
//! `null` is left as it is. All other bytes of the object stay what they were.
//!
//! **Senders** that an audit log names are redacted by `senders`, before the journal has the request: `senders`.
//!
//! **Rules that come later** hold for what the journal already has as soon as it would be emitted again (the `was` of a
//! patch, the last state of what is deleted): [`Redactor::again`] redacts what an earlier redaction has left, and lets
//! stand what that one put in the place of values.

mod annotation;
mod senders;
mod settings;
mod signs;
mod walk;

pub(crate) use senders::is_digest;
pub use settings::{RedactMode, RedactRule, SenderPart, Settings};

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256};

use super::pattern::Pattern;
use crate::core::k8s::names::Spelling;
use crate::core::model::{Redacted, Resource};
use signs::Signs;
use walk::{Scope, Task};

/// Members that name an object.
const IDENTITY: [&str; 7] = [
    "/apiVersion",
    "/kind",
    "/metadata",
    "/metadata/name",
    "/metadata/namespace",
    "/metadata/uid",
    "/metadata/resourceVersion",
];

const TOKEN: &str = "redacted:token";

/// Stands before the digits of a digest.
const DIGEST: &str = "hmac:";

/// Counts the changes of what rules do to an object while they stay the same. One more, and whatever was redacted before
/// is redacted again when it is emitted once more. 2: rules are followed through managedFields.
const MEANING: u32 = 2;

/// A path that has matched nothing in so many objects is worth a word: it may be misspelled, and then a secret is kept.
const MATCHES_NOTHING: u64 = 1000;

/// The built-in rules, one by one, so that a test can show that each of them is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Builtin {
    /// `data` of Secrets.
    Data,
    /// `stringData` of Secrets.
    StringData,
    /// Objects inside others that say that they are Secrets.
    Inside,
    /// Texts of JSON inside objects.
    Texts,
    /// Copies of Secrets that cannot be read, as a whole.
    Unreadable,
    /// Annotations of Secrets that are not known to be harmless.
    Annotations,
    /// Service account tokens.
    Tokens,
}

impl Builtin {
    const ALL: [Self; 7] =
        [Self::Data, Self::StringData, Self::Inside, Self::Texts, Self::Unreadable, Self::Annotations, Self::Tokens];
}

/// Takes secrets out of objects before anything is written down.
pub struct Redactor {
    builtin: Vec<Builtin>,
    rules: Vec<Rule>,
    senders: Vec<SenderPart>,
    keyed: Hmac<Sha256>,
}

/// The key stays out of every log.
impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redactor").field("builtin", &self.builtin).field("rules", &self.rules).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Rule {
    resources: Vec<String>,
    paths: Vec<RulePath>,
    mode: RedactMode,
}

/// A path of a rule, and what has come of it.
#[derive(Debug)]
struct RulePath {
    pattern: Pattern,
    /// Number of objects of the rule's resources that it was applied to.
    tried: AtomicU64,
    matched: AtomicBool,
}

impl RulePath {
    /// Warns, once, that a path has matched nothing in many objects.
    fn count(&self, rule: &Rule) {
        let tried = self.tried.fetch_add(1, Ordering::Relaxed) + 1;
        if tried == MATCHES_NOTHING && !self.matched.load(Ordering::Relaxed) {
            tracing::warn!(
                path = %self.pattern,
                resources = rule.resources.join(", "),
                "a path in [redact] rules has matched nothing in {tried} objects, so it hides nothing: check its spelling"
            );
        }
    }
}

impl Redactor {
    /// Reads the rules; `key` keys the digests.
    ///
    /// # Errors
    /// Every rule that is wrong, one sentence each.
    pub fn new(config: &Settings, key: [u8; 32]) -> Result<Self, Vec<String>> {
        let mut errors = Vec::new();
        let mut rules = Vec::new();
        for (index, rule) in config.rules.iter().enumerate() {
            let mut wrong = |what: String| errors.push(format!("redaction rule {}: {what}", index + 1));
            if rule.resources.is_empty() {
                wrong("it names no resources; \"*\" is all of them".to_owned());
            }
            if rule.paths.is_empty() {
                wrong("it names no paths".to_owned());
            }
            for resource in &rule.resources {
                if resource.is_empty() || resource.starts_with('.') || resource.contains([' ', '/', ',']) {
                    wrong(format!("{resource:?} is no resource; expected PLURAL[.GROUP], *.GROUP or *"));
                }
            }
            let mut paths = Vec::new();
            for path in &rule.paths {
                if path.literal().is_some_and(|path| IDENTITY.contains(&path.as_str())) {
                    wrong(format!("\"{path}\" is part of what names the object and cannot be redacted"));
                    continue;
                }
                paths.push(RulePath {
                    pattern: path.clone(),
                    tried: AtomicU64::new(0),
                    matched: AtomicBool::new(false),
                });
            }
            rules.push(Rule { resources: rule.resources.clone(), paths, mode: rule.mode });
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        let keyed = Hmac::new_from_slice(&key).expect("HMAC takes keys of every length");
        let builtin = if config.defaults { Builtin::ALL.to_vec() } else { Vec::new() };
        Ok(Self { builtin, rules, senders: config.senders.clone(), keyed })
    }

    fn has(&self, rule: Builtin) -> bool {
        self.builtin.contains(&rule)
    }

    /// Names the rules and what they mean: another name means that others were in force before.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        let mut text = format!("{MEANING} {:?}", self.builtin);
        for rule in &self.rules {
            let paths: Vec<String> = rule.paths.iter().map(|path| path.pattern.to_string()).collect();
            text.push_str(&format!("\n{:?} {paths:?} {:?}", rule.resources, rule.mode));
        }
        Sha256::digest(text).iter().take(16).map(|byte| format!("{byte:02x}")).collect()
    }

    /// The rules, counted from 1, that name none of these resources.
    pub fn idle<'a>(&self, resources: impl Iterator<Item = &'a Resource> + Clone) -> Vec<(usize, String)> {
        let idle = |rule: &Rule| !resources.clone().any(|resource| rule.concerns(resource));
        let rules = self.rules.iter().enumerate().filter(|(_, rule)| idle(rule));
        rules.map(|(index, rule)| (index + 1, rule.resources.join(", "))).collect()
    }

    /// The object without its secrets. Bytes that are given away come back as they are where nothing of them has to go.
    ///
    /// # Errors
    /// Where `raw` is not JSON, and has to be read because something of it might have to go. The text quotes nothing
    /// of it. Nothing of an object that cannot be read may be kept.
    pub fn apply<'r>(&self, resource: &Resource, uid: &str, raw: impl Into<Cow<'r, [u8]>>) -> Result<Redacted, String> {
        let redacted = self.redact(resource, uid, raw.into(), None)?;
        for rule in self.rules.iter().filter(|rule| rule.concerns(resource)) {
            rule.paths.iter().for_each(|path| path.count(rule));
        }
        Ok(redacted)
    }

    /// A keyed digest of bytes that are no object that could be redacted: 32 hexadecimal digits, which say nothing of them
    /// to anybody without the key.
    #[must_use]
    pub fn digest_of(&self, bytes: &[u8]) -> String {
        let mut mac = self.keyed.clone();
        mac.update(b"decklog unread\0");
        mac.update(bytes);
        mac.finalize().into_bytes()[..16]
            .iter()
            .fold(String::with_capacity(32), |text, byte| text + &format!("{byte:02x}"))
    }

    /// Applies the present rules to an object that was redacted earlier. Earlier replacements stay, because a digest of a
    /// digest would look like a change.
    ///
    /// # Errors
    /// As [`Redactor::apply`].
    pub fn again(&self, resource: &Resource, uid: &str, stored: Redacted) -> Result<Redacted, String> {
        let before: HashSet<&str> = stored.pointers.iter().map(String::as_str).collect();
        let mut redacted = self.redact(resource, uid, stored.bytes.into(), Some(&before))?;
        // Of what was dropped nothing stands there any more, and a mark of the whole value is better than one of the
        // rest.
        let found: HashSet<&String> = redacted.pointers.iter().collect();
        let gone: Vec<String> = stored.pointers.iter().filter(|pointer| !found.contains(pointer)).cloned().collect();
        redacted.pointers.extend(gone);
        redacted.marks.retain(|(pointer, _)| !stored.marks.iter().any(|(known, _)| known == pointer));
        redacted.marks.extend(stored.marks);
        Ok(redacted)
    }

    fn redact(
        &self,
        resource: &Resource,
        uid: &str,
        raw: Cow<'_, [u8]>,
        before: Option<&HashSet<&str>>,
    ) -> Result<Redacted, String> {
        let patterns: Vec<(&RulePath, RedactMode)> = self
            .rules
            .iter()
            .filter(|rule| rule.concerns(resource))
            .flat_map(|rule| rule.paths.iter().map(|path| (path, rule.mode)))
            .collect();
        let secret = !self.builtin.is_empty() && resource.group.is_empty() && resource.plural == "secrets";
        let signs = if self.builtin.is_empty() { Signs::default() } else { Signs::of(&raw) };
        if patterns.is_empty() && !secret && signs == Signs::default() {
            return Ok(Redacted { bytes: raw.into_owned(), ..Redacted::default() });
        }
        // Where each value of a large text stands takes more than the text: one of them at a time is enough.
        let _turn = (raw.len() > LARGE).then(|| TURN.lock().unwrap_or_else(PoisonError::into_inner));
        let scope = if secret { Scope::Secret } else { Scope::Plain };
        let mut whole: Vec<(String, RedactMode)> = Vec::new();
        loop {
            let task =
                Task { redactor: self, uid, patterns: &patterns, before, whole: &whole, crowded: Cell::default() };
            let mut redacted = Redacted::default();
            match task.document(&raw, signs, scope, 0, &mut redacted) {
                Ok(bytes) => {
                    redacted.bytes = bytes.unwrap_or_else(|| raw.into_owned());
                    return Ok(redacted);
                }
                Err(error) => {
                    let Some((place, mode)) = task.crowded.take() else { return Err(error) };
                    let place = if whole.len() < HOLDERS { place } else { EVERYTHING.to_owned() };
                    if whole.iter().any(|(known, _)| *known == place) {
                        return Err(error);
                    }
                    whole.push((place, mode));
                }
            }
        }
    }

    /// The same without one of the built-in rules.
    #[cfg(test)]
    fn without(mut self, rule: Builtin) -> Self {
        self.builtin.retain(|known| *known != rule);
        self
    }
}

impl Rule {
    fn concerns(&self, resource: &Resource) -> bool {
        self.resources.iter().any(|spelling| names(spelling, resource))
    }
}

/// Reports whether kubectl's spelling names this resource. A name without a group names it in every group.
fn names(spelling: &str, resource: &Resource) -> bool {
    let spelling = Spelling::of(spelling);
    (spelling.name == "*" || spelling.form(resource).is_some()) && spelling.is_where(resource)
}

/// Values of an object that are redacted one by one. Where there are more, what holds them is redacted as a whole.
const MOST: usize = 10_000;

/// Parts of an object that are redacted as a whole one by one: an object is read again for each. Where there are more,
/// everything is redacted but what names it.
const HOLDERS: usize = 16;
/// Stands for every member of an object but these.
const EVERYTHING: &str = "*";
const NAMING: [&str; 3] = ["/apiVersion", "/kind", "/metadata"];

/// Bytes beyond which texts are redacted one after the other in the whole process.
const LARGE: usize = 256 << 10;
static TURN: Mutex<()> = Mutex::new(());

#[cfg(test)]
mod canaries;
#[cfg(test)]
mod tests;
