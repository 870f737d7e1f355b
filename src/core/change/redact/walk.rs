//! The walk over the values of a document, and the rules that meet them.

mod fields;
mod replace;

use std::cell::Cell;
use std::collections::HashSet;
use std::sync::atomic::Ordering;

use hmac::Mac as _;

use super::signs::Signs;
use super::{Builtin, IDENTITY, RedactMode, Redactor, RulePath, annotation};
use crate::core::change::pattern::Pattern;
use crate::core::json::pointer::push_segment;
use crate::core::json::tree::{Id, Kind, Tree};
use crate::core::model::Redacted;

/// Kind of objects in a document.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// Secrets where they say so.
    Plain,
    /// The outermost one is a Secret.
    Secret,
    /// Part of a Secret: all of them count as one.
    InSecret,
}

/// One object to redact.
pub(super) struct Task<'r> {
    pub(super) redactor: &'r Redactor,
    pub(super) uid: &'r str,
    pub(super) patterns: &'r [(&'r RulePath, RedactMode)],
    /// The pointers of what an earlier redaction was at; nothing where there was none.
    pub(super) before: Option<&'r HashSet<&'r str>>,
    /// Parts that are redacted as a whole.
    pub(super) whole: &'r [(String, RedactMode)],
    /// A part with more than [`MOST`](super::MOST) values to redact, once it was found.
    pub(super) crowded: Cell<Option<(String, RedactMode)>>,
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
    pub(super) fn document(
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
}

fn stricter(one: Option<RedactMode>, other: RedactMode) -> Option<RedactMode> {
    let rank = |mode| match mode {
        RedactMode::Drop => 2,
        RedactMode::Mask => 1,
        RedactMode::Hmac => 0,
    };
    one.filter(|&one| rank(one) >= rank(other)).or(Some(other))
}
