//! Redaction: secrets are removed from an object before anything is written to disk (invariant 10).
//!
//! **Built in** (`defaults = true`): in Secrets every value of `data` and `stringData`; the same wherever an object
//! inside another one, or inside a text of JSON in it, says that it is of kind Secret, or stands in a SecretList; in
//! Secrets every annotation that is not known to be harmless (`annotation`), because programs keep copies there in any
//! form: of kubectl's last-applied-configuration the values, where it can be read, of all others the whole; in every
//! string of every object what looks like a service account token (a JSON Web Token).
//!
//! **Rules** name values by JSON pointers. They hold for the object, for what managedFields repeat of it (`fields`), and
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
//! **Rules that come later** hold for what the journal already has as soon as it would be emitted again (the `was` of a
//! patch, the last state of what is deleted): [`Redactor::again`] redacts what an earlier redaction has left, and lets
//! stand what that one put in the place of values.

mod annotation;
mod fields;
mod settings;
mod signs;

pub use settings::{RedactMode, RedactRule, Settings};

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256};

use super::pattern::Pattern;
use crate::core::json::pointer::push_segment;
use crate::core::json::tree::{Id, Kind, Tree};
use crate::core::k8s::names::Spelling;
use crate::core::model::{Redacted, Resource};
use signs::{Signs, mask_tokens};

/// Texts of JSON inside texts of JSON are read this deep. What lies deeper is redacted as a whole where it could
/// hold something.
const MAX_EMBEDDED: usize = 4;

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

const MASK: &str = "\"***\"";
const TOKEN: &str = "redacted:token";
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
        Ok(Self { builtin, rules, keyed })
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

/// Bytes beyond which texts are redacted one after the other in the whole process.
const LARGE: usize = 256 << 10;
static TURN: Mutex<()> = Mutex::new(());

/// Kind of objects in a document.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// Secrets where they say so.
    Plain,
    /// The outermost one is a Secret.
    Secret,
    /// Part of a Secret: all of them count as one.
    InSecret,
}

/// One object to redact.
struct Task<'r> {
    redactor: &'r Redactor,
    uid: &'r str,
    patterns: &'r [(&'r RulePath, RedactMode)],
    /// The pointers of what an earlier redaction was at; nothing where there was none.
    before: Option<&'r HashSet<&'r str>>,
    /// Parts that are redacted as a whole.
    whole: &'r [(String, RedactMode)],
    /// A part with more than [`MOST`] values to redact, once it was found.
    crowded: Cell<Option<(String, RedactMode)>>,
}

/// An object or array that the walk is in.
struct Frame {
    /// The next member (its name) or element.
    next: Id,
    end: Id,
    is_object: bool,
    index: usize,
    /// Length of the pointer at this level.
    pointer: usize,
    places: usize,
    /// The positions of the patterns here begin at this one.
    positions: usize,
    sort: Sort,
    /// A member before is kept.
    kept: bool,
    /// End of the previous member.
    previous_end: usize,
}

/// Kind of an object or array, by its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sort {
    Other,
    /// A Secret: its `data` and `stringData` are secret.
    Secret,
    /// A SecretList: its items are Secrets, whatever they say.
    SecretList,
    /// The items of one.
    Secrets,
    /// The metadata of a Secret.
    MetadataOfSecret,
    /// Each of its values is secret.
    Values,
    /// Its values may be texts of JSON that repeat the object.
    Annotations,
    /// The same of a Secret: nothing of it is known to be harmless but what [`annotation`] says.
    AnnotationsOfSecret,
    /// A manager's set of fields (FieldsV1).
    Fields,
}

impl Task<'_> {
    /// The text of a document after redaction; nothing where nothing of it had to go.
    fn document(
        &self,
        raw: &[u8],
        signs: Signs,
        scope: Scope,
        embedded: usize,
        report: &mut Redacted,
    ) -> Result<Option<Vec<u8>>, String> {
        let tree = Tree::parse(raw)?;
        let has = |rule| self.redactor.has(rule);
        let mut walk = Walk {
            task: self,
            raw,
            out: Vec::new(),
            copied: 0,
            pointer: String::new(),
            places: String::new(),
            positions: Vec::new(),
            report,
            scope,
            embedded,
            secrets: has(Builtin::Inside) && signs.secrets,
            tokens: has(Builtin::Tokens) && signs.tokens,
            is_crowded: false,
            tree,
        };
        walk.run();
        if walk.is_crowded {
            return Err("it holds too many values to redact".to_owned());
        }
        Ok(walk.finish())
    }

    fn digest(&self, places: &str, kind: u8, value: &[u8]) -> [u8; 16] {
        let mut mac = self.redactor.keyed.clone();
        mac.update(b"decklog 1\0");
        mac.update(self.uid.as_bytes());
        mac.update(b"\0");
        mac.update(places.as_bytes());
        mac.update(&[0, kind]);
        mac.update(value);
        let full = mac.finalize().into_bytes();
        let mut digest = [0; 16];
        digest.copy_from_slice(&full[..16]);
        digest
    }
}

/// The walk over one document. It keeps its own stack, so that depth costs no more than width.
struct Walk<'a, 't> {
    task: &'a Task<'t>,
    raw: &'a [u8],
    tree: Tree<'a>,
    out: Vec<u8>,
    /// Up to here the document is in `out`, or gone.
    copied: usize,
    pointer: String,
    /// The pointer with `-` for each place in a list.
    places: String,
    /// Patterns that still can match: the index of each, and its position.
    positions: Vec<(usize, usize)>,
    report: &'a mut Redacted,
    scope: Scope,
    embedded: usize,
    /// The document holds something that says that it is a Secret.
    secrets: bool,
    /// The document holds something that looks like the beginning of a token.
    tokens: bool,
    /// Too many values are redacted, and what holds them will be.
    is_crowded: bool,
}

impl Walk<'_, '_> {
    fn run(&mut self) {
        self.begin();
        let mut frames = Vec::new();
        if self.tree.is_container(Tree::ROOT) {
            let sort = if self.scope == Scope::Secret { Sort::Secret } else { Sort::Other };
            frames.push(self.frame(Tree::ROOT, 0, sort));
        }
        while !self.is_crowded
            && let Some(frame) = frames.last_mut()
        {
            self.pointer.truncate(frame.pointer);
            self.places.truncate(frame.places);
            if frame.next >= frame.end {
                self.positions.truncate(frame.positions);
                frames.pop();
                continue;
            }
            let below = if frame.sort == Sort::Fields { self.field(frame) } else { self.child(frame) };
            if let Some(below) = below {
                frames.push(below);
            }
        }
    }

    fn frame(&self, id: Id, positions: usize, sort: Sort) -> Frame {
        let is_object = self.tree.kind(id) == Kind::Object;
        Frame {
            next: id + 1,
            end: self.tree.next(id),
            is_object,
            index: 0,
            pointer: self.pointer.len(),
            places: self.places.len(),
            positions,
            sort: if is_object && sort == Sort::Other { self.said(id) } else { sort },
            kept: false,
            previous_end: 0,
        }
    }

    /// Returns the kind of an object by its own members.
    fn said(&self, id: Id) -> Sort {
        if self.scope == Scope::InSecret {
            return Sort::Secret;
        }
        let says = |kind: &str| {
            let mut members = self.tree.members(id);
            members.any(|(name, value)| self.tree.string(name) == "kind" && self.is_text(value, kind))
        };
        match () {
            () if !self.secrets => Sort::Other,
            () if says("Secret") => Sort::Secret,
            () if says("SecretList") => Sort::SecretList,
            () => Sort::Other,
        }
    }

    /// Returns the kind of a value, by its name and its container.
    fn below(&self, frame: &Frame, name: &str, value: Id) -> Sort {
        let is_object = self.tree.kind(value) == Kind::Object;
        let in_secret = self.scope != Scope::Plain;
        let sort = match (frame.sort, name) {
            (Sort::Secret, "data") if self.task.redactor.has(Builtin::Data) => Sort::Values,
            (Sort::Secret, "stringData") if self.task.redactor.has(Builtin::StringData) => Sort::Values,
            (Sort::Secret, "metadata") => Sort::MetadataOfSecret,
            (Sort::SecretList, "items") => Sort::Secrets,
            (Sort::Secrets, _) => Sort::Secret,
            (Sort::MetadataOfSecret, "annotations") => Sort::AnnotationsOfSecret,
            (_, "annotations") if in_secret => Sort::AnnotationsOfSecret,
            (_, "annotations") => Sort::Annotations,
            (_, "fieldsV1") if self.places == fields::PLACE && (self.tokens || !self.task.patterns.is_empty()) => {
                Sort::Fields
            }
            _ => Sort::Other,
        };
        if is_object || sort == Sort::Secrets { sort } else { Sort::Other }
    }

    fn is_text(&self, id: Id, text: &str) -> bool {
        self.tree.kind(id) == Kind::String && self.tree.string(id) == text
    }

    /// Handles the next member or element; gives the frame to walk where it is to be walked.
    fn child(&mut self, frame: &mut Frame) -> Option<Frame> {
        let first = frame.next;
        let value = if frame.is_object { first + 1 } else { first };
        let name = if frame.is_object { self.tree.string(first) } else { frame.index.to_string().into() };
        push_segment(&mut self.pointer, &name);
        push_segment(&mut self.places, if frame.is_object { &name } else { "-" });
        frame.index += 1;
        let part = self.take(frame, value);

        let own = self.positions.len();
        let sort = self.below(frame, &name, value);
        let mut mode = self.follow(frame.positions, own, |pattern, at, next| pattern.step(at, &name, next));
        let is_null = self.tree.raw(value) == "null";
        if self.is_secret(frame, &name, value, sort) {
            mode = mode.or(Some(RedactMode::Hmac));
        }
        if let Some(whole) = self.whole() {
            mode = stricter(mode, whole);
        }
        if mode.is_some() && self.is_replaced(value) {
            self.positions.truncate(own);
            self.tell();
            frame.kept = true;
            return None;
        }
        if let Some(mode) = mode
            && !is_null
        {
            self.positions.truncate(own);
            self.redacted(mode, value, frame.is_object);
            if matches!(mode, RedactMode::Drop) && frame.is_object {
                self.cut(&part);
                return None;
            }
            frame.kept = true;
            return None;
        }
        frame.kept = true;
        match self.tree.kind(value) {
            Kind::Object | Kind::Array => {
                if sort == Sort::Fields {
                    // What these repeat is the object itself, from its beginning.
                    self.begin();
                }
                return Some(self.frame(value, own, sort));
            }
            Kind::String => self.text(value, &name, frame.sort),
            Kind::Scalar => {}
        }
        self.positions.truncate(own);
        None
    }

    /// Reports whether a value is secret by the built-in rules.
    fn is_secret(&self, frame: &Frame, name: &str, value: Id, sort: Sort) -> bool {
        let has = |rule| self.task.redactor.has(rule);
        match frame.sort {
            Sort::Values => true,
            // Such a member is a map, and its values are looked at one by one.
            Sort::Secret if name == "data" => sort != Sort::Values && has(Builtin::Data),
            Sort::Secret if name == "stringData" => sort != Sort::Values && has(Builtin::StringData),
            // Of a copy of a Secret only what is known to be no value stays, however it is misspelled.
            Sort::Secret if self.scope == Scope::InSecret && self.places.matches('/').count() == 1 => {
                has(Builtin::Annotations) && !annotation::KNOWN_MEMBERS.contains(&name)
            }
            Sort::AnnotationsOfSecret => {
                let text = (self.tree.kind(value) == Kind::String).then(|| self.tree.string(value));
                has(Builtin::Annotations) && !annotation::may_stay(name, text.as_deref())
            }
            Sort::Other
            | Sort::Secret
            | Sort::SecretList
            | Sort::Secrets
            | Sort::MetadataOfSecret
            | Sort::Annotations
            | Sort::Fields => false,
        }
    }

    /// Takes the next member or element, and returns what has to go with it where it is cut out.
    fn take(&self, frame: &mut Frame, value: Id) -> std::ops::Range<usize> {
        let first = frame.next;
        frame.next = self.tree.next(value);
        let span = self.tree.span(value);
        let begin = self.tree.span(first).start;
        let previous_end = std::mem::replace(&mut frame.previous_end, span.end);
        if frame.kept {
            previous_end..span.end
        } else if frame.next < frame.end {
            begin..self.tree.span(frame.next).start
        } else {
            begin..span.end
        }
    }

    fn cut(&mut self, part: &std::ops::Range<usize>) {
        self.replace(part.clone(), "");
    }

    /// Puts every pattern at its beginning.
    fn begin(&mut self) {
        let mut at = Vec::new();
        for (index, (path, _)) in self.task.patterns.iter().enumerate() {
            at.clear();
            path.pattern.start(&mut at);
            self.positions.extend(at.iter().map(|&position| (index, position)));
        }
    }

    /// Moves the patterns on by one `step`, and returns the strictest mode of those that match here. The positions of
    /// the container lie between `from` and `to`; those of the child are added after them.
    fn follow(
        &mut self,
        from: usize,
        to: usize,
        step: impl Fn(&Pattern, usize, &mut Vec<usize>),
    ) -> Option<RedactMode> {
        let mut strictest = None;
        let mut next = Vec::new();
        for at in from..to {
            let (index, position) = self.positions[at];
            let (path, mode) = self.task.patterns[index];
            next.clear();
            step(&path.pattern, position, &mut next);
            for &position in &next {
                if position == path.pattern.end() {
                    if !path.matched.load(Ordering::Relaxed) {
                        path.matched.store(true, Ordering::Relaxed);
                    }
                    strictest = stricter(strictest, mode);
                } else if !self.positions[to..].contains(&(index, position)) {
                    self.positions.push((index, position));
                }
            }
        }
        strictest.filter(|_| !IDENTITY.contains(&self.pointer.as_str()))
    }

    /// Reports whether an earlier redaction wrote the value. Inside of texts only its form shows it.
    fn is_replaced(&self, value: Id) -> bool {
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
    fn whole(&self) -> Option<RedactMode> {
        if self.embedded > 0 {
            return None;
        }
        let is_outermost = || self.pointer.matches('/').count() == 1 && !NAMING.contains(&self.pointer.as_str());
        let is_it = |place: &str| place == self.pointer || place == EVERYTHING && is_outermost();
        self.task.whole.iter().find(|(place, _)| is_it(place)).map(|(_, mode)| *mode)
    }

    /// Redacts a whole value.
    fn redacted(&mut self, mode: RedactMode, value: Id, is_member: bool) {
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
    fn text(&mut self, value: Id, name: &str, of: Sort) {
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

    fn tell(&mut self) {
        if self.report.pointers.last() != Some(&self.pointer) {
            self.report.pointers.push(self.pointer.clone());
        }
    }

    /// Puts a text in the place of a part. The walk goes forward, and so do the parts.
    fn replace(&mut self, part: std::ops::Range<usize>, text: &str) {
        self.out.extend_from_slice(&self.raw[self.copied..part.start]);
        self.out.extend_from_slice(text.as_bytes());
        self.copied = part.end;
    }

    fn finish(mut self) -> Option<Vec<u8>> {
        if self.copied == 0 {
            return None;
        }
        self.out.extend_from_slice(&self.raw[self.copied..]);
        Some(self.out)
    }
}

fn is_digest(text: &str) -> bool {
    let digest = text.strip_prefix(DIGEST);
    digest.is_some_and(|hex| hex.len() == 32 && hex.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

fn hex(digest: [u8; 16]) -> String {
    digest.iter().fold(DIGEST.to_owned(), |mut text, byte| {
        use fmt::Write as _;
        write!(text, "{byte:02x}").expect("a String takes all text");
        text
    })
}

fn stricter(one: Option<RedactMode>, other: RedactMode) -> Option<RedactMode> {
    let rank = |mode| match mode {
        RedactMode::Drop => 2,
        RedactMode::Mask => 1,
        RedactMode::Hmac => 0,
    };
    one.filter(|&one| rank(one) >= rank(other)).or(Some(other))
}

#[cfg(test)]
mod canaries;
#[cfg(test)]
mod tests;
