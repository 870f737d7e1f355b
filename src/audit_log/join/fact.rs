//! What a request says of the versions that it can have made.

use std::collections::HashSet;
use std::sync::Arc;

use super::limits::{Limits, REQUEST_MAX};
use super::verdict::Certainty;
use super::version::Version;
use crate::core::k8s::audited::{AuditedRequest, Sender};
use crate::core::k8s::managed_fields::By;
use crate::core::model::EntryType;
use crate::core::spelling::Text;
use crate::core::spelling::kubernetes::LabelSelector;

/// Sort of a request, by what it can do to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Create,
    /// A POST to a subresource that changes its parent, such as pods/binding.
    Act,
    /// A POST to pods/eviction: it sets a condition first, and then deletes.
    Evict,
    Update,
    Patch,
    Apply,
    Delete,
    DeleteCollection,
}

/// Subresources whose requests change no object, whatever their verb is.
const NO_WRITES: [&str; 6] = ["exec", "attach", "portforward", "proxy", "token", "log"];

impl Verb {
    /// The sort of a write; `None` of other requests.
    pub(super) fn of(request: &AuditedRequest) -> Option<Self> {
        if NO_WRITES.contains(&request.subresource.as_str()) {
            return None;
        }
        Some(match (request.verb.as_str(), request.subresource.as_str()) {
            ("create", "") => Self::Create,
            ("create", "eviction") => Self::Evict,
            ("create", _) => Self::Act,
            ("update", _) => Self::Update,
            ("patch", _) => Self::Patch,
            ("apply", _) => Self::Apply,
            ("delete", _) => Self::Delete,
            ("deletecollection", _) => Self::DeleteCollection,
            _ => return None,
        })
    }

    /// The verb as the audit log has it.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Create | Self::Act | Self::Evict => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Apply => "apply",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }

    pub(super) const fn deletes(self) -> bool {
        matches!(self, Self::Delete | Self::DeleteCollection | Self::Evict)
    }

    /// Reports whether it changes fields, so that managedFields know its manager.
    pub(super) const fn changes_fields(self) -> bool {
        matches!(self, Self::Update | Self::Patch | Self::Apply)
    }
}

/// Write that was granted, or whose outcome nobody knows.
#[derive(Debug)]
pub(super) struct Fact {
    pub(super) id: Box<str>,
    pub(super) verb: Verb,
    pub(super) subresource: Box<str>,
    pub(super) uid: Box<str>,
    pub(super) before: Box<str>,
    pub(super) after: Box<str>,
    pub(super) manager: Box<str>,
    /// Labels that a collection selects; none where it selects by nothing or by what is not known.
    pub(super) selector: Option<LabelSelector>,
    pub(super) sender: Arc<Sender>,
    /// The answer was 201: it made an object.
    pub(super) made_object: bool,
    /// An answer of 5xx, or none: it may have been written all the same. It is nobody's name, and keeps others from being named.
    pub(super) unsure: bool,
    /// It may have asked for a dry run, so that what it found may still be there.
    pub(super) may_be_dry: bool,
    /// Its times as the event has them; 0 where it has none.
    pub(super) times: (i64, i64),
    /// Bounds of its time, the widest where the event was cut off.
    pub(super) received: i64,
    pub(super) completed: i64,
    /// Time at which all versions that it can have made are known.
    pub(super) due: i64,
    /// It came after its time: what it made may be decided.
    pub(super) late: bool,
    /// Number in its pool, where it names no object.
    pub(super) number: u64,
    /// Seq of the version that it made.
    pub(super) made: Option<u64>,
    /// It may have made a version that could not be decided.
    pub(super) contested: bool,
}

/// Time before everything.
const LONG_AGO: i64 = i64::MIN / 4;
/// Time after everything.
const FAR: i64 = i64::MAX / 4;

/// Returns the latest time at which a request can have been answered, microseconds since 1970; 0 where its event has none. One time stands
/// for both ends of a request in an entry of GKE.
pub(in crate::audit_log) fn answered_by(request: &AuditedRequest) -> i64 {
    let rest = if request.received == request.completed && request.completed > 0 { REQUEST_MAX } else { 0 };
    request.completed.saturating_add(rest)
}

impl Fact {
    /// Takes what can have changed something. `mark` is the time up to which everything is known.
    pub(super) fn new(request: AuditedRequest, senders: &mut Senders, limits: &Limits, mark: i64) -> Option<Self> {
        let verb = Verb::of(&request)?;
        let unsure = request.code == 0 || request.code >= 500;
        if request.dry_run || !unsure && !request.writes() {
            return None;
        }
        let times = (request.received, request.completed);
        let (received, completed) = match times {
            (0, 0) => (LONG_AGO, FAR),
            (received, 0) => (received, FAR),
            // The time of an envelope is not that of the API server.
            (0, completed) => (completed - 2 * limits.request, completed + limits.answer),
            // The write came before it where it is that of the answer, and after it where it is that of the request.
            (at, same) if at == same => (at - limits.answer, at + limits.request),
            times => times,
        };
        let answered = if times.1 == 0 { mark + limits.age } else { times.1 };
        let known = if completed == FAR { mark + limits.age } else { completed };
        Some(Self {
            id: request.id.into(),
            verb,
            subresource: request.subresource.into(),
            uid: request.uid.into(),
            before: request.before.into(),
            // An eviction makes two versions.
            after: if verb == Verb::Evict { Box::default() } else { request.after.into() },
            manager: request.manager.into(),
            selector: LabelSelector::read(&request.label_selector).ok(),
            sender: senders.share(request.sender),
            made_object: request.code == 201,
            unsure,
            may_be_dry: request.may_be_dry,
            times,
            received,
            completed,
            due: known + limits.answer,
            late: answered + limits.answer <= mark,
            number: 0,
            made: None,
            contested: false,
        })
    }

    /// Returns the latest time at which what it wrote can be stored. What failed may be stored after its answer.
    pub(super) const fn end(&self, limits: &Limits) -> i64 {
        if self.unsure { self.completed.saturating_add(limits.answer) } else { self.completed }
    }

    /// Bytes that it takes, about; its sender is shared.
    pub(super) fn bytes(&self) -> usize {
        let texts = [&self.id, &self.subresource, &self.uid, &self.before, &self.after, &self.manager];
        size_of::<Self>() + texts.iter().map(|text| text.len() + 8).sum::<usize>()
    }

    /// Reports whether it is a repeat of another one. The id alone says nothing: a client chooses it.
    pub(super) fn is(&self, other: &Self) -> bool {
        self.id == other.id
            && self.verb == other.verb
            && self.subresource == other.subresource
            && self.times == other.times
            && self.sender == other.sender
    }

    /// Reports whether a kubelet sent it. It ends a Pod that others asked to delete, and asks for no deletion first.
    pub(super) fn is_of_kubelet(&self) -> bool {
        self.sender.user.starts_with("system:node:")
    }

    /// Reports whether it changed the object for certain: a creation, or an update whose answer has another version than it replaced.
    pub(super) fn is_sure(&self) -> bool {
        !self.unsure
            && !self.after.is_empty()
            && match self.verb {
                Verb::Create => true,
                Verb::Update => !self.before.is_empty() && self.before != self.after,
                Verb::Act | Verb::Evict | Verb::Patch | Verb::Apply | Verb::Delete | Verb::DeleteCollection => false,
            }
    }

    /// Reports whether anything is known of its time.
    pub(super) const fn is_timed(&self) -> bool {
        self.received != LONG_AGO
    }

    /// Reports whether it proves by itself that it made this version.
    pub(super) fn proves(&self, version: &Version) -> bool {
        self.is_sure() && *self.after == *version.version && self.is_of(version) && version.op != EntryType::Deleted
    }

    fn is_of(&self, version: &Version) -> bool {
        self.uid.is_empty() || version.uid.is_empty() || *self.uid == *version.uid
    }

    /// Reports whether it can have made this version, as far as the two alone can say.
    pub(super) fn may_have_made(&self, version: &Version) -> bool {
        self.proves(version)
            || self.received <= version.latest
                && self.completed >= version.earliest
                && self.is_of(version)
                && self.does(version)
                && self.selects(version)
                && self.replaced(version)
                && self.wrote(version)
                && self.manages(version)
    }

    /// Reports whether such a request makes such a version.
    fn does(&self, version: &Version) -> bool {
        match version.op {
            EntryType::Added => match self.verb {
                Verb::Create => true,
                Verb::Update | Verb::Patch | Verb::Apply => self.made_object || self.unsure,
                Verb::Act | Verb::Evict | Verb::Delete | Verb::DeleteCollection => false,
            },
            EntryType::Modified if version.deletion_requested => self.verb.deletes(),
            EntryType::Modified => match self.verb {
                Verb::Update | Verb::Patch | Verb::Apply => !self.made_object,
                Verb::Act | Verb::Evict => true,
                // A shorter grace period is a change.
                Verb::Delete => version.deleting,
                Verb::Create | Verb::DeleteCollection => false,
            },
            EntryType::Deleted => {
                self.verb.deletes() || version.deleting && self.verb.changes_fields() && !self.made_object
            }
            EntryType::Gap | EntryType::Actor => false,
        }
    }

    /// Reports whether a collection has the object in it, as far as its labels say.
    fn selects(&self, version: &Version) -> bool {
        self.verb != Verb::DeleteCollection
            || self
                .selector
                .as_ref()
                .zip(version.labels.as_ref())
                .is_none_or(|(selector, labels)| selector.takes(labels))
    }

    fn replaced(&self, version: &Version) -> bool {
        let before = version.before.as_deref().unwrap_or_default();
        self.before.is_empty() || before.is_empty() || *self.before == *before
    }

    /// A deletion's answer has the last version of the object, or that of its end: servers differ. One that shortens the grace period
    /// of a Pod to nothing makes a version of that, and then the end.
    fn wrote(&self, version: &Version) -> bool {
        let is_on_its_way = self.verb == Verb::Delete && version.grace_shortened;
        self.after.is_empty() || version.op == EntryType::Deleted || is_on_its_way || *self.after == *version.version
    }

    /// Reports whether managedFields agree. Deletions and other acts move nobody's time.
    fn manages(&self, version: &Version) -> bool {
        if version.op == EntryType::Deleted || version.deletion_requested || version.movers().next().is_none() {
            return true;
        }
        match self.verb {
            Verb::Delete | Verb::DeleteCollection | Verb::Evict => false,
            Verb::Act if *self.subresource == *"binding" => false,
            Verb::Act => true,
            Verb::Create | Verb::Update | Verb::Patch | Verb::Apply => version.movers().any(|mover| {
                let same_way = match self.verb {
                    Verb::Apply => mover.operation == "Apply",
                    Verb::Create | Verb::Update => mover.operation == "Update",
                    Verb::Patch | Verb::Act | Verb::Evict | Verb::Delete | Verb::DeleteCollection => true,
                };
                same_way
                    && *self.subresource == *mover.subresource.as_deref().unwrap_or_default()
                    && (self.manager.is_empty() || *self.manager == *mover.manager)
            }),
        }
    }

    /// Tier of the answer if it made this version.
    pub(super) fn certainty(&self, version: &Version) -> Certainty {
        let exact = !self.after.is_empty() && *self.after == *version.version;
        match self.verb {
            _ if exact && (version.op != EntryType::Deleted || self.verb == Verb::Delete) => Certainty::Exact,
            Verb::DeleteCollection => Certainty::Collection,
            _ if version.op == EntryType::Deleted || version.deletion_requested => Certainty::Deleted,
            _ if version.op == EntryType::Added => Certainty::Created,
            Verb::Update if version.before.as_deref() == Some(&*self.before) => Certainty::Successor,
            Verb::Create | Verb::Act | Verb::Evict | Verb::Update | Verb::Patch | Verb::Apply | Verb::Delete => {
                Certainty::Field
            }
        }
    }

    /// Reports whether the version shows a mark of this request, beside that no other one remains.
    pub(super) fn is_shown_by(&self, version: &Version) -> bool {
        let owners = version.managers.iter().filter(|manager| manager.by == Some(By::Owner));
        let is_mover =
            || !self.manager.is_empty() && version.movers().chain(owners).any(|known| *known.manager == *self.manager);
        match version.op {
            _ if self.proves(version) => true,
            EntryType::Added => self.verb == Verb::Create || is_mover(),
            // A second DELETE of an object with finalizers, and a collection that it is not in, change nothing.
            EntryType::Modified => !version.deletion_requested && is_mover(),
            EntryType::Deleted => matches!(self.verb, Verb::Delete | Verb::Evict),
            EntryType::Gap | EntryType::Actor => false,
        }
    }
}

/// Senders, each kept once: few send nearly all requests.
#[derive(Debug, Default)]
pub(super) struct Senders {
    known: HashSet<Arc<Sender>>,
    tidy_at: usize,
}

/// Number of senders below which none is looked for that nobody uses.
const SENDERS_MIN: usize = 1024;

impl Senders {
    fn share(&mut self, sender: Sender) -> Arc<Sender> {
        if let Some(known) = self.known.get(&sender) {
            return Arc::clone(known);
        }
        if self.known.len() >= self.tidy_at.max(SENDERS_MIN) {
            self.known.retain(|sender| Arc::strong_count(sender) > 1);
            self.tidy_at = self.known.len() * 2;
        }
        let sender = Arc::new(sender);
        self.known.insert(Arc::clone(&sender));
        sender
    }
}
