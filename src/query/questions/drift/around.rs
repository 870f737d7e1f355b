//! What other objects know of a drift: the driving object, autoscalers, the sender of a request, the run that ended it.

use std::collections::{BTreeSet, HashMap};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value as Json;
use serde_json::value::RawValue;

use crate::core::k8s::audited::Actor;
use crate::core::k8s::managed_fields::{By, Manager};
use crate::core::model::{EntryType, Seq};
use crate::core::wire::Entry;
use crate::journal::{ObjectRow, Reader};
use crate::query::drift::hands::{Named, Sent, drivers, manager_of, sent, tool_of};
use crate::query::drift::ignored::{Ignored, ignores};
use crate::query::drift::{Asked, Drift, DrivenBy, Known, Pass, Verdict, World, Written};
use crate::query::moment::Span;
use crate::query::provenance::{Driver, Provenance, Run, Tool, Write, lists};
use crate::query::questions::why::behind::{Behind, json_of};
use crate::query::render::blame::{Field, Set};
use crate::query::render::clock::Clock;
use crate::query::render::names::unwatched;
use crate::query::render::{Failure, object};
use crate::query::select::Selection;

/// Number of versions that are looked at for one with managedFields.
const VERSIONS_MAX: usize = 50;
/// Time within which the watch brings what a run has made.
const LATE_MAX: SignedDuration = SignedDuration::from_secs(2);

/// The rest of the journal, and the question.
pub(super) struct Around<'l> {
    behind: Behind<'l>,
    asked: &'l Selection,
    period: (Option<Timestamp>, Option<Timestamp>),
    /// Keeps those that are open.
    is_open_only: bool,
    /// The entry that was judged last, and the driving objects by tool.
    judged: u64,
    driving: HashMap<Tool, Vec<DrivenBy>>,
    notes: BTreeSet<String>,
}

impl<'l> Around<'l> {
    pub(super) fn new(
        reader: &'l mut Reader,
        clock: &'l Clock,
        asked: &'l Selection,
        period: (Option<Timestamp>, Option<Timestamp>),
        is_open_only: bool,
    ) -> Self {
        let (behind, driving) = (Behind::new(reader, clock), HashMap::new());
        Self { behind, asked, period, is_open_only, judged: 0, driving, notes: BTreeSet::new() }
    }

    /// Returns the sentences about what the log does not know.
    pub(super) fn into_notes(self) -> BTreeSet<String> {
        self.notes
    }

    /// Judges a write that names nobody.
    fn of_nobody(&mut self, asked: &Asked<'_>) -> Result<Verdict, Failure> {
        let seq = Seq(asked.entry.seq);
        if let Some(actor) = object::actor_of(self.behind.reader, seq)?.filter(is_readable) {
            return Ok(match sent(&actor) {
                Sent::Tool(tool) if tool == asked.tool => Verdict::Own,
                Sent::Autoscaler => Verdict::Autoscaled,
                Sent::Tool(_) | Sent::Else => Verdict::Drift,
            });
        }
        let is_net = matches!(asked.entry.evidence.as_deref(), Some("inferred" | "listed"));
        if asked.pointer.is_empty() {
            self.deletion(asked)
        } else if asked.is_removal && is_net {
            Ok(Verdict::Unknown)
        } else if asked.is_removal && matches!(asked.tool, Tool::Helm | Tool::HelmRelease) {
            // Its removals leave nobody in managedFields.
            Ok(self.by_run(asked)?.0)
        } else if asked.pointer == "/spec/replicas" && self.is_autoscaled(asked)? {
            Ok(Verdict::Autoscaled)
        } else {
            Ok(Verdict::Drift)
        }
    }

    /// Judges by the runs of the tool, with those that were under way.
    fn by_run(&mut self, asked: &Asked<'_>) -> Result<(Verdict, Vec<Run>), Failure> {
        let seq = asked.entry.seq;
        let Some(row) = self.behind.reader.object_of(Seq(seq))? else { return Ok((Verdict::Unknown, Vec::new())) };
        let stamp = || {
            let stamp = asked.before.pointer("/metadata/deletionTimestamp").and_then(Json::as_str);
            stamp.filter(|_| asked.pointer.is_empty()).map(str::to_owned)
        };
        let manager = Manager {
            manager: manager_of(asked.tool).to_owned(),
            operation: "Update".to_owned(),
            time: stamp(),
            by: Some(By::Moved),
            ..Manager::default()
        };
        let time = asked.entry.time.to_string();
        let found = self.provenance(&row, (seq, time), vec![manager])?;
        let runs: Vec<Run> = found.candidates.into_iter().filter_map(|one| one.run).collect();
        let verdict = match &*found.ends.reason {
            "no-run" if runs.is_empty() => Verdict::Drift,
            "clocks" | "several" => Verdict::Unknown,
            _ if !runs.is_empty() => Verdict::Own,
            _ => Verdict::Unknown,
        };
        Ok((verdict, runs))
    }

    fn provenance(
        &mut self,
        row: &ObjectRow,
        (seq, time): (u64, String),
        managers: Vec<Manager>,
    ) -> Result<Provenance, Failure> {
        let field = Field {
            path: "/spec".to_owned(),
            value: RawValue::NULL.to_owned(),
            seq: Some(seq),
            time,
            set: Set::At,
            managers,
            actor: None,
            unnamed: None,
        };
        self.behind.provenance(row, &field)
    }

    /// Judges a deletion of which nobody knows who asked for it.
    fn deletion(&mut self, asked: &Asked<'_>) -> Result<Verdict, Failure> {
        let seq = Seq(asked.entry.seq);
        let named = named(asked.entry);
        for driver in drivers(asked.tool, named, asked.before) {
            if self.is_ending(asked.tool, &driver, seq)? {
                return Ok(Verdict::Own);
            }
        }
        let (verdict, runs) = self.by_run(asked)?;
        if runs.is_empty() {
            return Ok(verdict);
        }
        // A run does not delete what it applies.
        let Some(row) = self.behind.reader.object_of(seq)? else { return Ok(Verdict::Unknown) };
        let next = self.behind.reader.following(&row, seq)?;
        let stored = next.map_or(Ok(None), |step| self.behind.reader.entry_of(&step))?;
        let Some(created) = stored.as_ref().map(object::parse).transpose()?.map(|entry| Span::of(&entry).latest) else {
            return Ok(verdict);
        };
        let early = created.checked_sub(LATE_MAX).unwrap_or(created);
        let makes = |run: &&Run| run.covers(early, created);
        let deleted = Span::of(asked.entry).earliest;
        Ok(match runs.iter().find(makes) {
            Some(run) if run.from.as_second() >= deleted.as_second() => Verdict::Drift,
            Some(_) => Verdict::Unknown,
            None => verdict,
        })
    }

    /// Reports whether what drives a tool was being deleted, or a Helm release uninstalled.
    fn is_ending(&mut self, tool: Tool, driver: &Driver, seq: Seq) -> Result<bool, Failure> {
        let ids = self.behind.recorded(tool.resource())?;
        for row in self.behind.rows_of(&ids, tool, driver)? {
            let Some(stored) = self.behind.reader.entry_at(&row, seq)? else { continue };
            let entry = object::parse(&stored)?;
            let driving = json_of(&entry);
            let status = driving.pointer("/metadata/labels/status").and_then(Json::as_str);
            let is_gone = entry.op == EntryType::Deleted && tool != Tool::Helm;
            let is_uninstalled = tool == Tool::Helm && matches!(status, Some("uninstalling" | "uninstalled"));
            if is_gone || is_uninstalled || driving.pointer("/metadata/deletionTimestamp").is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Reports whether an autoscaler that can have set this number of replicas scales an object.
    fn is_autoscaled(&mut self, asked: &Asked<'_>) -> Result<bool, Failure> {
        let named = named(asked.entry);
        let after = json_of(asked.entry);
        let is_zero = after.pointer("/spec/replicas").and_then(Json::as_i64) == Some(0);
        for name in ["scaledobjects.keda.sh", Tool::Autoscaler.resource()] {
            for id in self.behind.recorded(name)? {
                for row in self.behind.reader.objects(id, Some(named.namespace), None)? {
                    let Some(stored) = self.behind.reader.entry_at(&row, Seq(asked.entry.seq))? else { continue };
                    let entry = object::parse(&stored)?;
                    let scaler = json_of(&entry);
                    let target =
                        |name: &str| scaler.pointer(&format!("/spec/scaleTargetRef/{name}")).and_then(Json::as_str);
                    let is_target = target("name") == Some(named.name)
                        && target("kind").unwrap_or("Deployment") == named.kind
                        && entry.op != EntryType::Deleted;
                    // It scales to 0 only where it may, as KEDA does beside it.
                    let is_keda = name.starts_with("scaledobjects")
                        || scaler.pointer("/metadata/ownerReferences/0/kind").and_then(Json::as_str)
                            == Some("ScaledObject");
                    let least = scaler.pointer("/spec/minReplicas").and_then(Json::as_i64).unwrap_or(1);
                    if is_target && (is_keda || !is_zero || least == 0) {
                        return Ok(true);
                    }
                }
            }
        }
        Ok(false)
    }

    /// Finds the driving objects of a drift that begins, and whether Argo CD ignores it.
    fn find_driving(&mut self, asked: &Asked<'_>) -> Result<Verdict, Failure> {
        let (tool, seq, named) = (asked.tool, Seq(asked.entry.seq), named(asked.entry));
        let write = Write {
            group: named.group,
            kind: named.kind,
            namespace: named.namespace,
            name: named.name,
            path: asked.pointer,
            managers: &[],
            unnamed: None,
            sender: None,
            time: None,
            object: asked.before,
        };
        let ids = self.behind.recorded(tool.resource())?;
        let (mut found, mut ignored) = (Vec::new(), Vec::new());
        for driver in drivers(tool, named, asked.before) {
            let mut rows = if tool == Tool::Helm { Vec::new() } else { self.behind.rows_of(&ids, tool, &driver)? };
            rows.sort_by(|one, other| one.namespace.cmp(&other.namespace));
            let mut namespaces = BTreeSet::new();
            for row in rows {
                let Some(stored) = self.behind.reader.entry_at(&row, seq)? else { continue };
                let entry = object::parse(&stored)?;
                let driving = json_of(&entry);
                if entry.op == EntryType::Deleted || driver.has_to_list && !lists(&driving, &write) {
                    continue;
                }
                namespaces.insert(row.namespace.clone());
                if tool == Tool::ArgoCd && !asked.pointer.is_empty() {
                    ignored.push((row.name, ignores(&driving, named, asked.pointer, &asked.owners)));
                }
            }
            if driver.has_to_list && namespaces.is_empty() {
                continue;
            }
            if tool == Tool::ArgoCd && namespaces.is_empty() {
                self.unknown_application(&ids, &driver.name);
            }
            let namespace = match (driver.namespace, namespaces.len()) {
                (Some(namespace), _) => namespace,
                (None, 1) => namespaces.pop_first().unwrap_or_default(),
                (None, _) => String::new(),
            };
            found.push(DrivenBy { kind: tool.kind().into(), namespace, name: driver.name });
        }
        if self.judged != seq.0 {
            self.judged = seq.0;
            self.driving.clear();
        }
        self.driving.insert(tool, found);
        for (name, one) in &ignored {
            if let Ignored::Unread(text) = one {
                self.notes.insert(format!(
                    "ignoreDifferences of Application {name} has an expression that drift does not read, so that no drift is left out for it: {text}"
                ));
            }
        }
        let is_ignored = !ignored.is_empty() && ignored.iter().all(|(_, one)| *one == Ignored::Yes);
        Ok(if is_ignored { Verdict::Ignored } else { Verdict::Drift })
    }

    fn unknown_application(&mut self, ids: &[i64], name: &str) {
        let why = if ids.is_empty() {
            unwatched(Tool::ArgoCd.resource())
        } else {
            format!("the log has no Application {name}; it may be in the cluster of Argo CD")
        };
        self.notes.insert(format!("ignoreDifferences of Application {name} is not known: {why}"));
    }

    /// Takes the states of objects that no entry has.
    pub(super) fn unrecorded(&mut self, pass: &mut Pass, now: Timestamp) -> Result<(), Failure> {
        let resources = self.behind.reader.resources()?;
        for (resource, namespace, name) in pass.open_objects() {
            for (id, _) in resources.iter().filter(|(_, one)| one.full_name() == resource) {
                let rows = self.behind.reader.objects(*id, Some(&namespace), Some(&name))?;
                for row in rows.iter().filter(|row| row.name == name) {
                    let Some((state, _)) = self.behind.reader.unrecorded(row)? else { continue };
                    let Some(stored) = self.behind.reader.entry_at(row, Seq(u64::MAX))? else { continue };
                    let entry = object::parse(&stored)?;
                    let state: Json =
                        serde_json::from_slice(&state).map_err(|error| object::damaged(stored.seq, &error))?;
                    pass.unrecorded(&entry, &state, now, &*self);
                }
            }
        }
        Ok(())
    }

    /// Adds the senders and the runs.
    pub(super) fn complete(&mut self, drifts: &mut [Drift]) -> Result<(), Failure> {
        for drift in drifts {
            self.name_sender(&mut drift.began)?;
            let tool = drift.tool;
            let Some(ended) = &mut drift.ended else { continue };
            self.name_sender(&mut ended.write)?;
            let is_tool = |one: &Manager| tool_of(&one.manager).is_some() && one.subresource.is_none();
            let Some(seq) = ended.write.seq.filter(|_| ended.write.writers.iter().any(is_tool)) else { continue };
            let Some(row) = self.behind.reader.object_of(Seq(seq))? else { continue };
            let by_tool = ended.write.writers.iter().filter(|one| tool_of(&one.manager) == Some(tool));
            let writers: Vec<Manager> = by_tool.cloned().collect();
            let time = ended.write.time.to_string();
            if ended.write.known == Known::At && !writers.is_empty() {
                ended.provenance = Some(self.provenance(&row, (seq, time), writers)?);
            }
        }
        Ok(())
    }

    fn name_sender(&mut self, write: &mut Written) -> Result<(), Failure> {
        if let Some(seq) = write.seq {
            write.actor = object::actor_of(self.behind.reader, Seq(seq))?;
        }
        Ok(())
    }
}

/// Reports whether a sender says who it is; one that is redacted may be the tool.
fn is_readable(actor: &Actor) -> bool {
    let is_told = |user: &str| !user.is_empty() && !user.starts_with("hmac:");
    !actor.sender.agent.is_empty() || is_told(&actor.sender.user)
}

fn named<'e>(entry: &'e Entry<'e>) -> Named<'e> {
    Named {
        group: entry.group(),
        kind: &entry.kind,
        namespace: entry.namespace.as_deref().unwrap_or_default(),
        name: entry.name.as_deref().unwrap_or_default(),
    }
}

impl World for Around<'_> {
    fn judge(&mut self, asked: &Asked<'_>) -> Result<Verdict, Failure> {
        let verdict = if asked.writers.is_empty() { self.of_nobody(asked)? } else { Verdict::Drift };
        if verdict == Verdict::Drift { self.find_driving(asked) } else { Ok(verdict) }
    }

    fn with_books(&mut self, seq: Seq) -> Result<Option<Json>, Failure> {
        let Some(row) = self.behind.reader.object_of(seq)? else { return Ok(None) };
        let mut next = self.behind.reader.step(&row, Seq(seq.0.saturating_sub(1)))?;
        for _ in 0..VERSIONS_MAX {
            let Some(step) = next else { break };
            next = self.behind.reader.previous(&step)?;
            let Some(stored) = self.behind.reader.entry_of(&step)? else { break };
            let entry = object::parse(&stored)?;
            if entry.op == EntryType::Deleted {
                break;
            }
            let object = json_of(&entry);
            let managers = object.pointer("/metadata/managedFields").and_then(Json::as_array);
            let mut names = managers.into_iter().flatten().filter_map(|one| one.get("manager")?.as_str());
            if names.any(|name| tool_of(name).is_some()) {
                return Ok(Some(object));
            }
        }
        Ok(None)
    }

    fn wants(&mut self, op: EntryType, seq: Seq, line: &[u8]) -> Result<bool, Failure> {
        self.asked.takes_stored(self.behind.reader, op, seq, line)
    }

    fn driving(&self, seq: Seq, tool: Tool) -> Option<Vec<DrivenBy>> {
        self.driving.get(&tool).filter(|_| self.judged == seq.0).cloned()
    }

    fn keeps(&self, drift: &Drift) -> bool {
        if self.is_open_only {
            return drift.ended.is_none();
        }
        let (since, until) = self.period;
        let began = drift.began.earliest.unwrap_or(drift.began.time);
        until.is_none_or(|until| began <= until || drift.began.known == Known::Earlier)
            && since.is_none_or(|since| drift.ended.as_ref().is_none_or(|ended| ended.write.time >= since))
    }
}
