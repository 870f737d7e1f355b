//! Checks a copy of the log, line by line, against itself and against the journal.
//!
//! What can be checked depends on the copy. Always: every line is an entry in the very form that decklog writes, the
//! seqs of an epoch go up without a hole, no change is there twice, and each change leads from the entry before of its
//! object to this one. With the journal at hand: every line is what the journal gives for it, byte for byte, in the same
//! payload. A copy that a `where` thinned out has holes by intent; the same expression finds out which they are.
//! Where the configuration says which sink writes to the file, the journal knows how far the copy has to reach.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};

use bytes::Bytes;
use serde::Serialize;

use super::batch::{Batch, both};
use super::chain::Chain;
use super::evidence::{Authenticated, Authenticator, stands_for_truncated};
use super::revisions::{Counted, Revisions};
use super::{Failure, VerifyArgs};
use crate::core::filter::Filter;
use crate::core::k8s::identity::Identity;
use crate::core::merkle::{self, Hash};
use crate::core::model::{Cluster, EntryType, Evidence, Gap, ResourceVersion, Seq, Why};
use crate::core::wire::{self, Entry, EntryBuilder, Header, Payload, Shape};
use crate::delivery::line_for;
use crate::journal::{Reader, Relabeling, StoredEntry, Verified};

/// Contents of a copy.
#[derive(Debug, Default, Serialize)]
pub(super) struct Copied {
    pub(super) entries: u64,
    pub(super) gaps: u64,
    pub(super) epochs: Vec<EpochPart>,
    /// Entries that the journal has too, and the same.
    pub(super) compared: u64,
    /// Changes that lead from the entry before of the same object.
    pub(super) followed: u64,
    /// Changes for which that was not checked, because the objects were too many to keep.
    pub(super) unfollowed: u64,
    /// Entries that the filter leaves out, or that a part of a copy lacks.
    pub(super) left_out: u64,
    /// Of those, entries that no journal was there for to say whether the filter leaves them out.
    pub(super) left_out_unseen: u64,
    /// It is a part of a copy.
    #[serde(skip)]
    pub(super) partial: bool,
    /// Entries that the journal had truncated before the sink took them, as a GAP says.
    pub(super) removed: u64,
    /// The sink that writes it, where that is known.
    pub(super) sink: Option<String>,
    /// True if it is known that nothing belongs before it …
    pub(super) begin_proved: bool,
    /// … and that nothing which the sink took belongs after it.
    pub(super) end_proved: bool,
    /// Results of the comparison with evidence, if some was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) authenticated: Option<Authenticated>,
    /// Results of the comparison with revisions, if some were given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) revisions: Option<Counted>,
}

/// The sink whose file is among those of a copy.
pub(super) struct Writes {
    pub(super) name: String,
    /// The last seq that it took, at a moment before the copy is read.
    pub(super) written: u64,
    /// True if everything since the start of the log is in files that decklog does not remove.
    pub(super) from_start: bool,
}

/// Contents of one epoch of a copy.
#[derive(Debug, Serialize)]
pub(super) struct EpochPart {
    pub(super) epoch: String,
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) entries: u64,
}

/// The last entry of an object.
struct Last {
    exists: bool,
    change: u64,
}

pub(super) struct Checker {
    journal: Option<Journal>,
    sink: Option<Writes>,
    filter: Option<Filter>,
    authenticator: Option<Authenticator>,
    revisions: Option<Revisions>,
    hasher: RandomState,
    objects: HashMap<u64, Last>,
    /// Number of the part of the copy in which objects are followed: another one begins where it is not known what went on with them.
    part: u64,
    /// Those of objects with an even key, and those of others.
    chains: [Chain; 2],
    payload: Option<Payload>,
    /// The last entry that the copy has to have.
    ends_with: Option<u64>,
    found: Copied,
    /// Problems of the batch: its line, the order among those of one line, and the end of the sentence.
    of_batch: Vec<(usize, Rank, String)>,
    problems: Vec<String>,
}

/// Order of the problems of one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Form,
    Order,
    Change,
    Rest,
}

/// The next step of an object.
struct Step {
    /// Line of its entry in the batch.
    at: usize,
    part: u64,
    object: u64,
}

/// A line, as far as it is examined by itself.
struct Examined<'l> {
    /// None where it is none.
    entry: Option<Entry<'l>>,
    payload: Option<Payload>,
    /// Its digest, where it is compared with evidence.
    digest: Option<Hash>,
    problems: Vec<String>,
}

impl<'l> Examined<'l> {
    fn of(line: Option<&'l [u8]>, is_digested: bool) -> Self {
        let none = |problem| Self { entry: None, payload: None, digest: None, problems: vec![problem] };
        let Some(line) = line else { return none("it is cut: it does not end with a line break".to_owned()) };
        let entry = match Entry::parse(line) {
            Ok(entry) => entry,
            Err(error) => return none(error.to_string()),
        };
        let (seq, mut problems) = (entry.seq, Vec::new());
        if let Err(error) = entry.check()
            && entry.object.is_some()
        {
            problems.push(format!("entry {seq}: {error}"));
        }
        if let Err(why) = check_form(&entry, line) {
            problems.push(format!("entry {seq} {why}"));
        }
        if !carries_its_own(&entry) {
            problems.push(format!("entry {seq} carries another object than the one it names"));
        }
        let digest = is_digested.then(|| merkle::sha256(&[line]));
        Self { payload: Payload::of(&entry), digest, problems, entry: Some(entry) }
    }
}

impl Checker {
    pub(super) fn new(
        reader: Option<Reader>,
        sink: Option<Writes>,
        filter: Option<Filter>,
        args: &VerifyArgs,
    ) -> Result<Self, Failure> {
        let chain = || Chain::new().map_err(|error| Failure::io("cannot follow the changes of objects", &error));
        Ok(Self {
            journal: reader.map(Journal::new).transpose()?,
            sink,
            filter,
            authenticator: Authenticator::new(args)?,
            revisions: args.revisions.as_deref().map(Revisions::read).transpose()?,
            hasher: RandomState::new(),
            objects: HashMap::new(),
            part: 0,
            chains: [chain()?, chain()?],
            payload: None,
            ends_with: args.ends_with,
            found: Copied { partial: args.partial, ..Copied::default() },
            of_batch: Vec::new(),
            problems: Vec::new(),
        })
    }

    /// Notes that something is wrong.
    pub(super) fn problem(&mut self, text: String) {
        if self.problems.len() < Verified::MOST {
            self.problems.push(text);
        }
    }

    /// Notes that something is wrong with a line of the batch.
    fn problem_of(&mut self, at: usize, rank: Rank, text: String) {
        // They come in the order of lines, so that of more none is told.
        if self.of_batch.len() < Verified::MOST {
            self.of_batch.push((at, rank, text));
        }
    }

    /// Returns the contents and the errors.
    pub(super) fn finish(mut self) -> (Copied, Vec<String>) {
        self.check_end();
        self.check_last();
        self.found.followed = self.chains.iter().map(|chain| chain.followed).sum();
        self.found.unfollowed = self.chains.iter().map(|chain| chain.unfollowed).sum();
        if let Some((authenticated, wrong)) = self.authenticator.map(Authenticator::finish) {
            self.found.authenticated = Some(authenticated);
            self.problems.splice(0..0, wrong);
        }
        if let Some((counted, wrong)) = self.revisions.map(Revisions::finish) {
            self.found.revisions = Some(counted);
            self.problems.extend(wrong);
        }
        (self.found, self.problems)
    }

    /// Checks that the copy has all that the sink took, at the end.
    fn check_end(&mut self) {
        let (Some(Writes { name, written, .. }), Some(journal)) = (&self.sink, &self.journal) else { return };
        let of_this = self.found.epochs.iter().rev().find(|part| part.epoch == journal.epoch);
        let problem = match of_this {
            Some(part) if part.last >= *written => None,
            Some(part) => Some(format!("it ends with entry {}", part.last)),
            None if *written == 0 => None,
            None if self.found.entries == 0 => Some("it has no entries".to_owned()),
            // A journal that was restored begins a new epoch, of which the sink may have nothing yet.
            None if journal.since.is_none_or(|since| *written < since) => return,
            None => Some("it has nothing of the journal's epoch".to_owned()),
        };
        self.found.sink = Some(name.clone());
        match problem {
            Some(problem) => {
                let text = format!(
                    "{problem}, but the sink {name} took entries up to {written} (give every file of the copy)"
                );
                self.problem(text);
            }
            None => self.found.end_proved = true,
        }
    }

    /// Checks that the copy ends with the entry that it has to end with.
    fn check_last(&mut self) {
        let Some(wanted) = self.ends_with else { return };
        match self.found.epochs.last().map(|part| part.last) {
            Some(last) if last == wanted => {}
            Some(last) => self.problem(format!("it ends with entry {last}, and was to end with entry {wanted}")),
            None => self.problem(format!("it has no entries, and was to end with entry {wanted}")),
        }
    }

    /// Checks the lines of a batch, which is the next one of the copy.
    ///
    /// What a line says by itself is examined on two threads, and so are the changes of objects, of which each is on one. What depends on
    /// the lines before comes in between.
    pub(super) fn check(&mut self, batch: &Batch) -> Result<(), Failure> {
        let is_digested = self.authenticator.is_some();
        let examined = batch.map(|line| Examined::of(line, is_digested));
        let mut steps: [Vec<Step>; 2] = [Vec::new(), Vec::new()];
        for (at, examined) in examined.iter().enumerate() {
            let (Some(entry), Some(line)) = (&examined.entry, batch.line(at)) else { continue };
            if let Some(step) = self.check_line(at, entry, examined, line)? {
                steps[usize::from(step.object % 2 == 1)].push(step);
            }
        }
        let mut problems = std::mem::take(&mut self.of_batch);
        for (at, examined) in examined.iter().enumerate() {
            problems.extend(examined.problems.iter().map(|problem| (at, Rank::Form, problem.clone())));
        }
        let follow = |chain: &mut Chain, steps: &[Step]| {
            let entries = steps.iter().filter_map(|step| Some((step, examined[step.at].entry.as_ref()?)));
            let led = entries.map(|(step, entry)| {
                let led = chain.follow(step.part, step.object, entry);
                led.err().map(|why| (step.at, Rank::Change, format!("entry {} {why}", entry.seq)))
            });
            led.flatten().collect::<Vec<_>>()
        };
        let [even, odd] = &mut self.chains;
        let is_worth_it = steps.iter().all(|steps| !steps.is_empty());
        let (one, other) = both(|| follow(even, &steps[0]), || follow(odd, &steps[1]), is_worth_it);
        problems.extend(one.into_iter().chain(other));
        problems.sort_by_key(|(at, rank, _)| (*at, *rank));
        for (at, _, text) in problems {
            self.problem(format!("{}: {text}", batch.place(at)));
        }
        Ok(())
    }

    /// Checks a line with those before it, with the journal and with evidence. Returns the step of its object, where objects are followed.
    fn check_line(
        &mut self,
        at: usize,
        entry: &Entry<'_>,
        examined: &Examined<'_>,
        line: &[u8],
    ) -> Result<Option<Step>, Failure> {
        self.found.entries += 1;
        self.found.gaps += u64::from(entry.op == EntryType::Gap);
        if let Some(payload) = examined.payload {
            if self.payload.is_some_and(|before| before != payload) {
                let text = format!(
                    "entry {} carries more or less than the entries before it (unless the sink's `payload` was changed)",
                    entry.seq
                );
                self.problem_of(at, Rank::Order, text);
            }
            self.payload = Some(payload);
        }
        self.check_seq(at, entry)?;
        let step = (self.filter.is_none() && !self.found.partial).then(|| self.check_story(at, entry)).flatten();
        self.check_bytes(at, entry, line)?;
        if let Some(revisions) = &mut self.revisions {
            revisions.see(entry);
        }
        if let (Some(authenticator), Some(digest)) = (&mut self.authenticator, &examined.digest)
            && let Some(problem) = authenticator.check(entry, line, digest)?
        {
            self.problem_of(at, Rank::Rest, problem);
        }
        Ok(step)
    }

    /// Forgets the objects: no change leads on from here.
    fn part(&mut self) {
        self.objects.clear();
        self.part += 1;
    }

    /// Within an epoch seqs go up, and what is between two of them was left out by intent.
    fn check_seq(&mut self, at: usize, entry: &Entry<'_>) -> Result<(), Failure> {
        let seq = entry.seq;
        if self.found.epochs.last().is_none_or(|part| part.epoch != entry.epoch) {
            if self.found.epochs.iter().any(|part| part.epoch == entry.epoch) {
                self.problem_of(at, Rank::Order, format!("entry {seq} goes back to an epoch that had ended"));
            }
            // Another journal records everything again.
            self.part();
            let epoch = entry.epoch.clone().into_owned();
            self.found.epochs.push(EpochPart { epoch, first: seq, last: seq, entries: 1 });
            return self.check_begin(at, entry);
        }
        let Some(part) = self.found.epochs.last_mut() else { return Ok(()) };
        let last = part.last;
        part.entries += 1;
        part.last = last.max(seq);
        if seq <= last {
            self.problem_of(at, Rank::Order, format!("entry {seq} comes after entry {last}"));
        } else if seq > last + 1 {
            self.check_hole(at, entry, last + 1)?;
        }
        Ok(())
    }

    /// Checks that the copy has all that the sink took, at the beginning.
    fn check_begin(&mut self, at: usize, entry: &Entry<'_>) -> Result<(), Failure> {
        let from_start = self.sink.as_ref().is_some_and(|sink| sink.from_start);
        let of_this = self.journal.as_ref().is_some_and(|journal| journal.epoch == entry.epoch);
        if !from_start || !of_this || self.found.epochs.len() > 1 {
            return Ok(());
        }
        self.found.begin_proved = true;
        if entry.seq > 1 { self.check_hole(at, entry, 1) } else { Ok(()) }
    }

    fn check_hole(&mut self, at: usize, entry: &Entry<'_>, from: u64) -> Result<(), Failure> {
        let (epoch, to) = (&*entry.epoch, entry.seq - 1);
        if self.found.partial {
            self.found.left_out += to - from + 1;
            return Ok(());
        }
        if self.is_removed(entry)? {
            self.found.removed += to - from + 1;
            // What went on there with the objects is not known.
            self.part();
            return Ok(());
        }
        let range = if from == to { format!("entry {from} is") } else { format!("entries {from} to {to} are") };
        let Some(filter) = &self.filter else {
            let text = format!(
                "{range} missing before it (give every file of the copy, and with --where the `where` of its sink)"
            );
            self.problem_of(at, Rank::Order, text);
            return Ok(());
        };
        self.found.left_out += to - from + 1;
        let Some(journal) = self.journal.as_mut().filter(|journal| journal.epoch == epoch) else {
            self.found.left_out_unseen += to - from + 1;
            return Ok(());
        };
        let (mut missing, mut next) = (Vec::new(), from);
        while let Some(stored) = journal.at_or_after(next)?.filter(|stored| stored.seq.0 <= to) {
            if filter.matches(&stored.line).unwrap_or(true) {
                missing.push(stored.seq);
            }
            next = stored.seq.0 + 1;
        }
        for seq in missing {
            self.found.left_out -= 1;
            let text = format!("entry {seq} is missing before it, and the filter does not leave it out");
            self.problem_of(at, Rank::Order, text);
        }
        Ok(())
    }

    /// Reports whether the entry is the GAP for entries that the journal has truncated: it has no version before it. A journal
    /// that still has some of them disproves that.
    fn is_removed(&mut self, entry: &Entry<'_>) -> Result<bool, Failure> {
        let stands = stands_for_truncated(entry);
        let Some(journal) = self.journal.as_mut().filter(|journal| stands && journal.epoch == entry.epoch) else {
            return Ok(stands);
        };
        // The journal gives out its own entry under this seq, or nothing any more.
        Ok(journal.entry(entry.seq)?.is_none())
    }

    /// ADDED, then MODIFIED, then DELETED; nothing twice. The first entry of an object may be any: a copy may begin
    /// anywhere. Returns the step of the object.
    fn check_story(&mut self, at: usize, entry: &Entry<'_>) -> Option<Step> {
        // Who sent a change is no change: it may come after the deletion that it is of.
        let uid = entry.uid.as_deref().filter(|_| entry.op != EntryType::Actor)?;
        let change = self.hasher.hash_one((&entry.resource_version, entry.op.as_str()));
        let exists = entry.op != EntryType::Deleted;
        // One object can be served as two resources, and each has its own log.
        let object = self.hasher.hash_one((entry.group(), &entry.resource, uid));
        let seq = entry.seq;
        if let Some(before) = self.objects.insert(object, Last { exists, change }) {
            if before.change == change {
                self.problem_of(at, Rank::Rest, format!("entry {seq} repeats an earlier change"));
            } else if entry.op == EntryType::Added && before.exists {
                self.problem_of(at, Rank::Rest, format!("entry {seq} adds an object that exists"));
            } else if entry.op != EntryType::Added && !before.exists {
                self.problem_of(at, Rank::Rest, format!("entry {seq} changes an object that was deleted"));
            }
        }
        Some(Step { at, part: self.part, object })
    }

    fn check_bytes(&mut self, at: usize, entry: &Entry<'_>, line: &[u8]) -> Result<(), Failure> {
        let Some(journal) = self.journal.as_mut() else { return Ok(()) };
        let (seq, is_current) = (entry.seq, journal.epoch == entry.epoch);
        // Of another journal, or of one that was restored, nothing is known under this seq.
        if !is_current && seq > journal.head {
            return Ok(());
        }
        let stored = journal.entry(seq)?;
        let stored = match is_current {
            true => stored.map(|line| journal.relabel(seq, line)),
            false => stored.filter(|line| Header::parse(line).is_ok_and(|header| header.epoch == entry.epoch)),
        };
        let Some(stored) = stored else {
            if is_current && seq > journal.head {
                self.problem_of(at, Rank::Rest, format!("the journal never had an entry {seq}"));
            }
            return Ok(());
        };
        // Where the line does not show it, the payloads that are left look the same.
        let payload = Payload::of(entry).unwrap_or_default();
        let is =
            |managed_fields| Shape { payload, managed_fields }.apply(entry.op, &stored).map(|shaped| shaped == line);
        match is(true).and_then(|same| if same { Ok(true) } else { is(false) }) {
            Ok(true) => self.found.compared += 1,
            Ok(false) => {
                self.problem_of(at, Rank::Rest, format!("entry {seq} is not what the journal gives for it"));
            }
            Err(error) => {
                self.problem_of(at, Rank::Rest, format!("the journal's own entry {seq} is damaged: {error}"));
            }
        }
        Ok(())
    }
}

/// Reports whether the object in the entry is the one that the entry is about, as far as redaction has left that in it.
fn carries_its_own(entry: &Entry<'_>) -> bool {
    let Some(object) = entry.object else { return true };
    let Ok(Identity { metadata, .. }) = serde_json::from_str(object.get()) else { return false };
    let Some(metadata) = metadata else { return true };
    [
        (metadata.name, &entry.name),
        (metadata.namespace, &entry.namespace),
        (metadata.uid, &entry.uid),
        (metadata.version, &entry.resource_version),
    ]
    .iter()
    .all(|(inside, outside)| inside.is_none() || inside == *outside)
}

/// Checks that the line is, to the byte, the rendering of its contents: keys, their order, the id, and no more.
fn check_form(entry: &Entry<'_>, line: &[u8]) -> Result<(), &'static str> {
    let evidence = match entry.evidence.as_deref() {
        None => None,
        Some(word) => Some(
            Evidence::ALL
                .into_iter()
                .find(|evidence| evidence.as_str() == word)
                .ok_or("has an evidence that decklog does not know")?,
        ),
    };
    let cluster =
        Cluster { name: entry.cluster.name.clone().into_owned(), uid: entry.cluster.uid.clone().into_owned() };
    let read = entry.gap();
    let gap = match &read {
        None => None,
        Some(read) => Some(Gap {
            why: Why::parse(&read.why).ok_or("has a gap for a reason that decklog does not know")?,
            from: read.from.clone().map(ResourceVersion),
            to: read.to.clone().map(ResourceVersion),
            recovered: read.recovered.unwrap_or(0),
        }),
    };
    let redacted: Vec<String> = entry.redacted.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
    let expected = wire::render(&EntryBuilder {
        seq: Seq(entry.seq),
        epoch: &entry.epoch,
        time: &entry.time,
        happened: entry.happened.as_deref(),
        happened_between: entry.happened_between.as_ref().map(|[earliest, latest]| [&**earliest, &**latest]),
        op: entry.op,
        evidence,
        cluster: &cluster,
        api_version: &entry.api_version,
        kind: &entry.kind,
        resource: &entry.resource,
        namespace: entry.namespace.as_deref().unwrap_or_default(),
        name: entry.name.as_deref().unwrap_or_default(),
        uid: entry.uid.as_deref().unwrap_or_default(),
        version: entry.resource_version.as_deref().unwrap_or_default(),
        managers: entry.managers.map(serde_json::value::RawValue::get),
        change: entry.change.map(serde_json::value::RawValue::get),
        object: entry.object.map(|object| object.get().as_bytes()),
        gap: gap.as_ref().zip(read.as_ref()).map(|(gap, read)| (gap, read.since.as_deref())),
        actor: entry.of.as_ref().zip(entry.actor).map(|(of, actor)| ((Seq(of.seq), &*of.id), actor.get())),
        redacted: &redacted,
    });
    if expected.line == line { Ok(()) } else { Err("is not in the form in which decklog writes it") }
}

/// The journal's entries, read ahead in order.
struct Journal {
    reader: Reader,
    epoch: String,
    /// Ranges that sinks got under the name of another epoch.
    relabelings: Vec<Relabeling>,
    /// The first seq of the epoch, where that is known.
    since: Option<u64>,
    head: u64,
    /// The seq before the entries that were read ahead.
    before: u64,
    ahead: VecDeque<StoredEntry>,
}

/// Entries and bytes read ahead.
const AHEAD: (usize, usize) = (500, 8 << 20);

impl Journal {
    fn new(reader: Reader) -> Result<Self, Failure> {
        let (epoch, since, head) = (reader.epoch()?, reader.epoch_since()?, reader.head()?.0);
        // Which sink writes the copy may not be known; of one epoch they are alike.
        let mut relabelings = Vec::new();
        for sink in reader.sinks()? {
            relabelings
                .extend(reader.relabelings(&sink.name)?.into_iter().filter(|relabeling| relabeling.epoch == epoch));
        }
        Ok(Self { reader, epoch, relabelings, since, head, before: 0, ahead: VecDeque::new() })
    }

    /// The line as it stands in a copy under the journal's epoch.
    fn relabel(&self, seq: u64, line: Bytes) -> Bytes {
        line_for(&self.relabelings, Seq(seq), line.clone()).unwrap_or(line)
    }

    /// The entry's line, where the journal still has it.
    fn entry(&mut self, seq: u64) -> Result<Option<Bytes>, Failure> {
        Ok(self.at_or_after(seq)?.filter(|entry| entry.seq.0 == seq).map(|entry| entry.line))
    }

    /// The first entry that is kept from `seq` on.
    fn at_or_after(&mut self, seq: u64) -> Result<Option<StoredEntry>, Failure> {
        if seq > self.head {
            // The daemon goes on while a copy is read.
            self.head = self.reader.head()?.0;
        }
        // What is read ahead is dense but for truncated entries, so it answers for the seqs that it spans.
        while self.ahead.front().is_some_and(|entry| entry.seq.0 < seq) {
            self.before = self.ahead.pop_front().map_or(0, |entry| entry.seq.0);
        }
        if self.ahead.is_empty() || seq <= self.before {
            self.before = seq.saturating_sub(1);
            self.ahead = self.reader.entries_after(Seq(self.before), AHEAD.0, AHEAD.1)?.into();
        }
        Ok(self.ahead.front().cloned())
    }
}
