//! An entry in short: what a row of a table shows of it.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::outlines::{outline, who};
use super::selection::{Selected, lane_id};
use crate::core::k8s::audited::Actor;
use crate::core::model::{EntryType, Seq};
use crate::core::terminal::TerminalStyle;
use crate::core::wire::{Entry, EntryGap};
use crate::journal::{JournalError, Reader, StoredEntry, StoredRow};
use crate::query::churn::Classes;
use crate::query::render::clock::Clock;
use crate::query::render::line::Lines;
use crate::query::render::object;
use crate::query::render::row::cut;
use crate::query::rewrites::Rewrite;
use crate::query::{Word, stamp};

/// A line has at most so many characters.
const LONGEST: usize = 2000;
/// A name is shown with at most so many characters.
const NAME: usize = 512;

/// An entry in short.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Summary {
    pub(crate) seq: u64,
    time: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    happened: Option<String>,
    /// Latest time at which it happened, where that is earlier than `time`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    at: Option<String>,
    /// Earliest time, where it is not known exactly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    since: Option<String>,
    #[serde(rename = "type")]
    kind_of: Word,
    evidence: String,
    pub(super) id: String,
    kind: String,
    pub(super) resource: String,
    pub(super) namespace: String,
    pub(super) name: String,
    uid: String,
    areas: Vec<String>,
    managers: Vec<String>,
    /// The reason why there are no managers, in a few words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unnamed: Option<String>,
    pub(super) quiet: bool,
    line: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    gap: Option<EntryGap>,
    /// The sender of the change, where the audit log names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    actor: Option<Actor>,
    /// The seq of the entry whose sender an ACTOR names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    of: Option<u64>,
    /// The storage rewrite of which it is the last entry, where it stands for all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rewrite: Option<Rewrite>,
}

impl Summary {
    /// Reports whether a GAP or an ACTOR that names an object names a selected one. Others were selected by their outline.
    pub(super) fn is_selected(&self, selected: &Selected) -> bool {
        let is_of_object = !self.is_gap() && self.kind_of != EntryType::Actor.as_str();
        is_of_object || self.name.is_empty() || selected.takes(&self.resource, &self.namespace, &self.name)
    }

    /// Reports whether it is of a GAP.
    pub(super) fn is_gap(&self) -> bool {
        self.kind_of == EntryType::Gap.as_str()
    }
}

/// Makes summaries.
pub(super) struct Summaries {
    classes: Classes,
    clock: Clock,
    head: u64,
}

fn short(text: &str) -> String {
    cut(text, NAME).into_owned()
}

impl Summaries {
    pub(super) fn new(clock: &Clock, head: Seq) -> Self {
        Self { classes: Classes::default(), clock: clock.clone(), head: head.0 }
    }

    /// The summary of an entry; of a damaged one what its row holds.
    pub(super) fn of(&self, stored: &StoredEntry) -> Summary {
        // Where it stands is for outlines alone.
        let row = StoredRow { time: 0, source: 0, object: 0, entry: stored.clone() };
        let (mark, words) = outline(&self.classes, &row);
        let (managers, unnamed) = who(&words);
        let is_gap = stored.op == EntryType::Gap;
        let mut summary = Summary {
            seq: stored.seq.0,
            time: String::new(),
            happened: None,
            at: (mark.latest != row.time && !is_gap).then(|| stamp(mark.latest)),
            since: (mark.earliest < mark.latest && !is_gap).then(|| stamp(mark.earliest)),
            kind_of: stored.op.as_str().into(),
            evidence: mark.evidence().to_owned(),
            id: String::new(),
            kind: String::new(),
            resource: String::new(),
            namespace: String::new(),
            name: String::new(),
            uid: String::new(),
            areas: list(&words.areas, ','),
            managers,
            unnamed,
            quiet: mark.quiet,
            line: String::new(),
            gap: None,
            actor: None,
            of: None,
            rewrite: None,
        };
        let Ok(entry) = Entry::parse(&stored.line) else {
            summary.line = format!("entry {} is damaged; run `decklog verify`", stored.seq);
            return summary;
        };
        let mut lines = Lines::at(TerminalStyle::default(), self.head, self.clock.clone());
        if let Ok(line) = lines.render_entry(&entry) {
            summary.line = cut(&line, LONGEST).into_owned();
        }
        let text = |text: Option<&str>| short(text.unwrap_or_default());
        entry.time.as_ref().clone_into(&mut summary.time);
        summary.happened = entry.happened.as_deref().map(str::to_owned);
        summary.kind = short(&entry.kind);
        summary.resource = short(&entry.full_resource());
        summary.namespace = text(entry.namespace.as_deref());
        summary.name = text(entry.name.as_deref());
        summary.uid = text(entry.uid.as_deref());
        if entry.op == EntryType::Gap {
            summary.gap = entry.gap();
        }
        if entry.op == EntryType::Actor {
            (summary.actor, summary.of) = (entry.actor(), entry.of.as_ref().map(|of| of.seq));
        }
        summary.id = lane_id(&summary.resource, &summary.namespace, &summary.name);
        summary
    }

    /// The summary of an entry with the sender that its ACTOR names.
    pub(super) fn joined(&self, reader: &mut Reader, stored: &StoredEntry) -> Result<Summary, JournalError> {
        let mut summary = self.of(stored);
        if stored.op.is_change() {
            match reader.actor_of(stored.seq) {
                Ok(Some(actor)) => {
                    let actor = Entry::parse(&actor.line).ok().and_then(|entry| entry.actor());
                    let is_doubtful = |actor: &Actor| object::is_doubtful(reader, stored, actor).unwrap_or_default();
                    summary.actor = actor.map(|actor| match is_doubtful(&actor) {
                        true => Actor { certainty: object::DOUBTFUL.to_owned(), ..actor },
                        false => actor,
                    });
                }
                Ok(None) | Err(JournalError::Corrupt(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(summary)
    }

    /// The summary of a storage rewrite, at its last entry; none where that is gone.
    pub(super) fn rewrite(&self, reader: &mut Reader, rewrite: Rewrite) -> Result<Option<Summary>, JournalError> {
        let Some(stored) = reader.entry(Seq(rewrite.seq))? else { return Ok(None) };
        let mut lines = Lines::at(TerminalStyle::default(), self.head, self.clock.clone());
        let mut summary = self.of(&stored);
        if let Ok(entry) = Entry::parse(&stored.line) {
            summary.line = cut(&lines.rewrite(&entry, &rewrite), LONGEST).into_owned();
        }
        Ok(Some(Summary { rewrite: Some(rewrite), ..summary }))
    }

    /// The summaries of the entries with these seqs, in this order; those that are gone are left out.
    pub(super) fn with(&self, reader: &mut Reader, seqs: &[u64]) -> Result<Vec<Summary>, JournalError> {
        let mut found = HashMap::new();
        for seq in seqs {
            match reader.entry(Seq(*seq)) {
                Ok(Some(stored)) => drop(found.insert(*seq, self.joined(reader, &stored)?)),
                Ok(None) | Err(JournalError::Corrupt(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(seqs.iter().filter_map(|seq| found.remove(seq)).collect())
    }
}

/// The names of a list that stand apart by a character.
pub(super) fn list(text: &str, apart: char) -> Vec<String> {
    text.split(apart).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}
