//! What a question names and no entry has: the names and fields that entries have instead, for a hint.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use serde_json::value::RawValue;

use crate::core::change::Pattern;
use crate::core::k8s::audited::Actor;
use crate::core::model::EntryType;
use crate::core::spelling::{glob, nearest, nearest_by};
use crate::core::wire::{Change, Entry, authors};
use crate::query::Log;
use crate::query::render::object;
use crate::query::render::path::{spelled, touches};
use crate::query::render::tree::{Node, pointer};

/// Number of names or fields that are remembered for a hint.
const MOST: usize = 1000;

/// What entries have instead of what is wanted, until one has that.
#[derive(Debug, Default)]
struct Seen {
    names: Mutex<BTreeSet<String>>,
    found: AtomicBool,
}

impl Seen {
    /// Takes the names that an entry has.
    fn look(&self, of_entry: impl FnOnce() -> Vec<String>, is_wanted: impl Fn(&str) -> bool) {
        if self.found.load(Ordering::Relaxed) {
            return;
        }
        let of_entry = of_entry();
        if of_entry.iter().any(|name| is_wanted(name)) {
            self.found.store(true, Ordering::Relaxed);
        }
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        if names.len() < MOST {
            names.extend(of_entry);
        }
    }

    /// Returns what entries have where none has what is wanted; none where nothing was seen.
    fn instead(&self) -> Option<BTreeSet<String>> {
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        (!self.found.load(Ordering::Relaxed) && !names.is_empty()).then(|| names.clone())
    }
}

/// Names that a [`Writers`] compares with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Named {
    /// Managers of managedFields.
    Managers,
    /// Users of the audit log.
    Users,
    /// Both.
    Anybody,
}

/// Managers and users one of which wrote an entry.
#[derive(Debug)]
pub(crate) struct Writers {
    /// Flag that names them.
    flag: &'static str,
    /// Their names, with `*` for other characters.
    wanted: Vec<String>,
    named: Named,
    seen: Seen,
    /// Set once an entry has a sender.
    has_sender: AtomicBool,
}

impl Writers {
    /// The managers and users with these names, if there are any.
    pub(crate) fn of(wanted: &[String]) -> Option<Self> {
        Self::of_flag("--by", Named::Anybody, wanted.to_vec())
    }

    /// Those with these names, if there are any, which another flag names.
    pub(super) fn of_flag(flag: &'static str, named: Named, wanted: Vec<String>) -> Option<Self> {
        let (seen, has_sender) = (Seen::default(), AtomicBool::default());
        (!wanted.is_empty()).then_some(Self { flag, wanted, named, seen, has_sender })
    }

    /// Reports whether this is the name of one of them.
    pub(crate) fn is_one(&self, name: &str) -> bool {
        self.wanted.iter().any(|wanted| glob::fits(wanted, name, |one, other| one == other))
    }

    /// Reports whether one of them wrote an entry, or sent the request that did: of a change as its ACTOR has it, of an ACTOR as it
    /// says itself.
    pub(crate) fn wrote(&self, line: &[u8], sender: Option<&Actor>) -> bool {
        let Ok(entry) = Entry::parse(line) else { return false };
        let mut names = Vec::new();
        if self.named != Named::Users {
            names.extend(authors(&entry).into_iter().map(|author| author.manager));
        }
        if self.named != Named::Managers {
            let own = if entry.op == EntryType::Actor { entry.actor() } else { None };
            if let Some(actor) = sender.or(own.as_ref()) {
                self.has_sender.store(true, Ordering::Relaxed);
                names.extend(users(actor).map(str::to_owned));
            }
        }
        let found = names.iter().any(|name| self.is_one(name));
        self.seen.look(|| names, |name| self.is_one(name));
        found
    }

    /// Reports whether one of them sent the request.
    pub(crate) fn sent(&self, actor: &Actor) -> bool {
        self.named != Named::Managers && users(actor).any(|user| self.is_one(user))
    }

    /// Says, where no entry has a wanted name, which name comes nearest.
    pub(crate) fn remark_if_unknown(&self, log: &Log<'_>) {
        let Some(names) = self.seen.instead() else {
            if self.named == Named::Users && !self.has_sender.load(Ordering::Relaxed) {
                log.remark(&format!("{}: no entry here has a sender; {AUDIT_LOG}", self.flag));
            }
            return;
        };
        for name in &self.wanted {
            let no_sender = self.named == Named::Anybody && !self.has_sender.load(Ordering::Relaxed);
            let is_user = name.contains('@') || name.starts_with("system:");
            let hint = match no_sender && is_user {
                true => AUDIT_LOG.to_owned(),
                false => object::nearest_or_all(name, &names),
            };
            log.remark(&format!("{}: no entry here is by {name}; {hint}", self.flag));
        }
    }
}

/// Hint for names of users where no entry has a sender.
const AUDIT_LOG: &str = "users are known with an [[audit_log]] in the configuration";

/// The users that a sender is, and is impersonated by.
pub(crate) fn users(actor: &Actor) -> impl Iterator<Item = &str> {
    actor.sender.users()
}

/// A field that an entry changed.
#[derive(Debug)]
pub(super) struct Touched {
    path: Pattern,
    seen: Seen,
}

impl Touched {
    pub(super) fn of(path: Pattern) -> Self {
        Self { path, seen: Seen::default() }
    }

    /// Reports whether an entry changed the field, or may have: a gap, and a value that redaction drops, hide any change.
    pub(super) fn by(&self, line: &[u8]) -> bool {
        self.seen.look(|| fields(line), |field| self.path.covers(field));
        touches(line, &self.path)
    }

    /// Says, where no entry changed the field, which field comes nearest.
    pub(super) fn remark_if_unknown(&self, log: &Log<'_>) {
        let Some(fields) = self.seen.instead() else { return };
        let wanted = self.path.to_string();
        let name = wanted.strip_prefix("/**/");
        let near = match name {
            Some(name) => {
                nearest(name, fields.iter().flat_map(|field| field.split('/')).filter(|name| !name.is_empty()))
            }
            None => {
                let depth = wanted.matches('/').count();
                let cut = |field: &&String| {
                    let names: Vec<&str> = field.split('/').take(depth + 1).collect();
                    names.join("/")
                };
                nearest_by(&wanted, &fields, cut).map(|field| spelled(&cut(&field)))
            }
        };
        let hint = near.map_or_else(String::new, |near| format!("; did you mean {near}?"));
        let name = name.map_or_else(|| spelled(&wanted), str::to_owned);
        log.remark(&format!("--touched: no entry here changed {name}{hint}"));
    }
}

/// Returns the pointers of the values that an entry changed; of an object that came or went, of all that it has.
pub(crate) fn fields(line: &[u8]) -> Vec<String> {
    let Ok(entry) = Entry::parse(line) else { return Vec::new() };
    match (Change::of(&entry), entry.object) {
        (Ok(Some(change)), _) => {
            let values = change.patch.iter().flat_map(|op| op.value.or(op.was).map(|value| below(value, &op.path)));
            values.flatten().collect()
        }
        (Ok(None), Some(object)) => below(object, ""),
        (Ok(None), None) | (Err(_), _) => Vec::new(),
    }
}

/// Returns the pointers of the leaves of a value at a place.
pub(crate) fn below(value: &RawValue, at: &str) -> Vec<String> {
    let Ok(node) = Node::parse(value.get().as_bytes()) else { return Vec::new() };
    node.leaves().iter().map(|leaf| format!("{at}{}", pointer(&leaf.path))).collect()
}
