//! Notifications: which entries are worth a message, and what is one incident.
//!
//! A [`Rule`] selects entries; its name is the cause. [`Object`] is what an incident is about: the controller at the top of what
//! the entry is of. [`Incident`] is what a template says of it. Which entries are one incident is decided by `delivery`, which
//! reads the log.
//!
//! # Decision: notifications are keys of a sink
//!
//! Context: A message needs a template, credentials, a rate, retries, dead letters, `check`, `replay` and a cursor.
//! Decision: `notify` is a key of an `http` sink with a template, and `where` narrows it. The log alone decides what an
//! incident is: an entry begins one where none of the same key came in the `group` before it, by the times of entries. A restart
//! comes to the same messages with the same keys. Stored are the cursor and the receiver's names of messages, without which none is
//! updated.
//! Cost: After a start the log of `group` before the cursor is read again; where it is truncated, or a clock was set back, an
//! incident may be sent twice.

mod object;
mod rbac;
mod ready;
mod rule;
#[cfg(test)]
mod tests;

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use crate::core::change::redact::is_digest;
use crate::core::k8s::audited::Actor;
use crate::core::wire::{Entry, EntryError, Header};
pub use object::Object;
use object::{NAME_BYTES, clip};
use ready::Case;
pub use rule::{Needed, Needs, Rule};

/// Longest key of an incident, in bytes: PagerDuty's `dedup_key` has at most 255.
const KEY_BYTES: usize = 200;

/// What a sink notifies of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notify {
    /// The rules, the most important first: the first one that selects an entry has it.
    pub rules: Vec<Rule>,
    /// Time without an entry after which the same object and cause are a new incident.
    pub group: Duration,
    /// Length of the windows whose incidents are told together.
    pub wait: Duration,
    /// Number of incidents of a window that have a message of their own.
    pub digest: usize,
    /// True where the message of an incident that goes on is updated.
    pub updates: bool,
}

/// An entry that a rule selects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selected {
    /// Place of the rule among those of the sink.
    pub rule: usize,
    /// The incident that it would begin, of this entry alone.
    pub incident: Incident,
    /// Uid of the cluster, else its name.
    pub cluster: String,
}

/// An incident, as a template sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Incident {
    /// Cluster, cause and object: the same whenever the same comes again. At most 200 bytes.
    pub key: String,
    /// Name of the rule; empty for a digest.
    pub rule: String,
    /// The incident in a line.
    pub title: String,
    /// Number of its entries in the window, in an update of all so far; of a digest, the number of its incidents.
    pub count: u64,
    /// Seq of its first entry.
    pub first: u64,
    /// Seq of its last entry in the window.
    pub last: u64,
    /// Time of the last of the entries that are counted.
    pub until: String,
    /// The command that shows it.
    pub log: String,
    /// The incidents of a digest, in the order of the log: at most 20; empty for an incident.
    pub digest: Vec<Incident>,
    /// Name of the message at the receiver, in an update; empty in a first message.
    pub reference: String,
    /// Names of who asked for its first entry, as far as an audit log says it up to its last one: as whom it was done, and who did it
    /// as that one. Empty where nobody is known.
    pub users: Vec<String>,
}

/// Incidents that a digest names.
pub const NAMED: usize = 20;

impl Notify {
    /// Returns the time at which an entry was journaled, in microseconds since 1970, and what it is to the rules; none where none
    /// selects it.
    ///
    /// # Errors
    /// Where the line is not an entry.
    pub fn select(&self, line: &[u8]) -> Result<(i64, Option<Selected>), EntryError> {
        let entry = Entry::parse(line)?;
        let time = entry.time.parse::<Timestamp>().map_err(|_| EntryError::Part("time"))?.as_microsecond();
        let case = Case::new(&entry, line);
        let selected = self.rules.iter().position(|rule| rule.selects(&case)).map(|rule| Selected {
            rule,
            incident: begun(&self.rules[rule], &entry, &Object::of(&entry, case.after())),
            cluster: cluster(&entry).to_owned(),
        });
        Ok((time, selected))
    }

    /// Returns what a GAP of the sink alone is to the rules. It is an incident also where none selects it: that of `gap`, in the place
    /// after all of them.
    ///
    /// # Errors
    /// Where the line is not an entry.
    pub fn missed(&self, line: &[u8]) -> Result<Selected, EntryError> {
        let entry = Entry::parse(line)?;
        let case = Case::new(&entry, line);
        let rule = self.rules.iter().position(|rule| rule.selects(&case)).unwrap_or(self.rules.len());
        let incident =
            Incident { log: of_resource(&entry), ..begun(self.rule(rule), &entry, &Object::of(&entry, None)) };
        Ok(Selected { rule, incident, cluster: cluster(&entry).to_owned() })
    }

    /// Returns what an ACTOR says of the entry that it is of: the seq of that, and an incident of the ACTOR alone.
    ///
    /// # Errors
    /// As for [`Notify::select`].
    pub fn names(&self, line: &[u8]) -> Result<Option<(u64, Selected)>, EntryError> {
        let entry = Entry::parse(line)?;
        let Some(of) = &entry.of else { return Ok(None) };
        let rule = self.rules.len();
        let incident = begun(self.rule(rule), &entry, &Object::of(&entry, None));
        Ok(Some((of.seq, Selected { rule, incident, cluster: cluster(&entry).to_owned() })))
    }

    /// Returns the cause for people of a rule by its place.
    #[must_use]
    pub fn title(&self, rule: usize) -> &str {
        self.rule(rule).title()
    }

    fn rule(&self, rule: usize) -> &Rule {
        static GAP: Rule = Rule::Ready(&ready::GAP);
        self.rules.get(rule).unwrap_or(&GAP)
    }

    /// Returns the name of a rule that selects nothing where the users of the audit log are digests.
    #[must_use]
    pub fn needs_users(&self) -> Option<&str> {
        self.rules.iter().map(Rule::name).find(|name| *name == ready::DELETED_BY_A_PERSON)
    }

    /// Returns the message for an entry by itself, as `replay` sends it; none where no rule selects it.
    ///
    /// # Errors
    /// As for [`Notify::select`].
    pub fn alone(&self, line: &[u8]) -> Result<Option<Incident>, EntryError> {
        Ok(self.select(line)?.1.map(|selected| selected.incident))
    }
}

impl Incident {
    /// Reports whether it updates a message.
    #[must_use]
    pub const fn is_update(&self) -> bool {
        !self.reference.is_empty()
    }

    /// Reports whether it stands for several incidents.
    #[must_use]
    pub const fn is_digest(&self) -> bool {
        !self.digest.is_empty()
    }

    /// Makes one message of several incidents, which come in the order of the log. `causes` counts all of them by the titles of their
    /// rules, also those that are not named.
    #[must_use]
    pub fn digest(incidents: Vec<Self>, causes: &[(String, u64)], cluster: &str) -> Self {
        let count: u64 = causes.iter().map(|(_, count)| count).sum();
        let named: Vec<String> = causes.iter().map(|(cause, count)| format!("{count} {cause}")).collect();
        Self {
            key: format!("{cluster}/digest"),
            rule: String::new(),
            title: format!("{count} more: {}", named.join(", ")),
            count,
            first: incidents.first().map_or(0, |one| one.first),
            last: incidents.iter().map(|one| one.last).max().unwrap_or_default(),
            until: incidents.iter().map(|one| &one.until).max().cloned().unwrap_or_default(),
            log: "decklog log".to_owned(),
            digest: incidents,
            reference: String::new(),
            users: Vec::new(),
        }
    }
}

/// Returns the names of who asked for a change, for people. A digest names nobody.
#[must_use]
pub fn users(actor: &Actor) -> Vec<String> {
    actor.sender.users().filter(|user| !is_digest(user)).map(str::to_owned).collect()
}

/// The incident that begins with an entry.
fn begun(rule: &Rule, entry: &Entry<'_>, object: &Object) -> Incident {
    Incident {
        key: key(&[cluster(entry), rule.name(), &object.to_string()].join("/")),
        rule: rule.name().to_owned(),
        title: format!("{}: {}", object.title(), rule.title()),
        count: 1,
        first: entry.seq,
        last: entry.seq,
        until: entry.time.to_string(),
        log: command(entry),
        digest: Vec::new(),
        reference: String::new(),
        users: entry.actor().as_ref().map(users).unwrap_or_default(),
    }
}

/// Identity of the cluster: its uid, else its name.
fn cluster<'h>(entry: &'h Header<'_>) -> &'h str {
    if entry.cluster.uid.is_empty() { &entry.cluster.name } else { &entry.cluster.uid }
}

/// A key of bounded length: the end of one that is longer is a digest.
fn key(text: &str) -> String {
    use sha2::{Digest, Sha256};
    if text.len() <= KEY_BYTES {
        return text.to_owned();
    }
    let digest: String = Sha256::digest(text).iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    format!("{}-{digest}", clip(text, KEY_BYTES - digest.len() - 1))
}

/// The command that shows an entry and what came after it.
fn command(entry: &Header<'_>) -> String {
    let is_short = |name: &&str| name.len() <= NAME_BYTES;
    let Some(name) = entry.name.as_deref().filter(is_short).filter(|_| entry.op.is_change()) else {
        return format!("decklog show {}", entry.seq);
    };
    let between = entry.happened_between.as_ref().map(|[earliest, _]| earliest);
    let since = between.or(entry.happened.as_ref()).unwrap_or(&entry.time);
    // From the second in which it happened.
    let second = since.split('.').next().unwrap_or_default().trim_end_matches('Z');
    let object = word(&format!("{}/{name}", entry.full_resource()));
    format!("decklog log {object}{} --since {second}Z", in_namespace(entry))
}

/// The command that shows what the log has of a resource.
fn of_resource(entry: &Header<'_>) -> String {
    format!("decklog tail {}{}", word(&entry.full_resource()), in_namespace(entry))
}

fn in_namespace(entry: &Header<'_>) -> String {
    entry.namespace.as_deref().map(|namespace| format!(" -n {}", word(namespace))).unwrap_or_default()
}

/// A word of a shell.
fn word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:".contains(c);
    if text.chars().all(is_plain) { text.to_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}
