//! Writing entries.
//!
//! # Decision: Ids do not distinguish timelines
//!
//! Context: Two daemons must give one change one id.
//! Decision: An id is `UID.RESOURCEVERSION.TYPE`. A restored cluster assigns versions again, and an object that reenters the
//! scope is recorded again, so an id may come twice. Consumers drop repeats by `epoch` and `seq`.
//! Cost: Ids alone are no key.

use std::ops::Range;

use crate::core::model::{Cluster, EntryType, Evidence, Gap, Seq};

/// Input for the rendering of an entry.
#[derive(Debug)]
pub struct EntryBuilder<'a> {
    /// Its place in the journal.
    pub seq: Seq,
    /// The journal's name.
    pub epoch: &'a str,
    /// Time at which it is journaled, RFC 3339 UTC with microseconds.
    pub time: &'a str,
    /// Time of the change in the cluster, RFC 3339 UTC with seconds, if the object has it.
    pub happened: Option<&'a str>,
    /// The earliest and the latest time of the change in the cluster, RFC 3339 UTC with microseconds, where it is known no
    /// better.
    pub happened_between: Option<[&'a str; 2]>,
    /// Type of the change.
    pub op: EntryType,
    /// Evidence of the change; none on a gap.
    pub evidence: Option<Evidence>,
    /// The cluster it comes from.
    pub cluster: &'a Cluster,
    /// `apiVersion` of the resource.
    pub api_version: &'a str,
    /// `kind` of the resource.
    pub kind: &'a str,
    /// Plural of the resource.
    pub resource: &'a str,
    /// Namespace of the object (or of the source, on a gap); empty for none.
    pub namespace: &'a str,
    /// Name of the object; empty on a gap of more than one object.
    pub name: &'a str,
    /// uid of the object; empty on a gap.
    pub uid: &'a str,
    /// resourceVersion of the change; empty on a gap.
    pub version: &'a str,
    /// The `managers` member as JSON, on ADDED.
    pub managers: Option<&'a str>,
    /// The `change` member as JSON, on MODIFIED.
    pub change: Option<&'a str>,
    /// The object as JSON on one line.
    pub object: Option<&'a [u8]>,
    /// The gap and the time of the last moment known good; on DELETED what may be missing right before it.
    pub gap: Option<(&'a Gap, Option<&'a str>)>,
    /// The entry that an ACTOR belongs to (its seq and its id), and the `actor` member as JSON.
    pub actor: Option<((Seq, &'a str), &'a str)>,
    /// JSON pointers of what was redacted.
    pub redacted: &'a [String],
}

/// An entry as it is stored and sent.
#[derive(Debug)]
pub struct Rendered {
    /// The JSON, without a newline at its end.
    pub line: Vec<u8>,
    /// Range of the object in the line; empty without an object.
    pub object: Range<usize>,
}

/// The id of a change: equal in every resend, and on every decklog that watched it.
#[must_use]
pub fn change_id(uid: &str, version: &str, op: EntryType) -> String {
    format!("{uid}.{version}.{}", op.as_str())
}

/// The id of the ACTOR entry of the entry with this id.
#[must_use]
pub fn actor_id(of: &str) -> String {
    format!("{of}.{}", EntryType::Actor.as_str())
}

/// The member of the bounds of a time, as long as each is.
const BOUNDS: &str = r#","happenedBetween":["2026-11-21T10:15:00.000000Z","2026-11-21T10:15:00.000000Z"]"#;

/// Renders an entry.
#[must_use]
pub fn render(entry: &EntryBuilder<'_>) -> Rendered {
    // What outgrows its room is kept with twice of it.
    let members = [entry.change, entry.managers, entry.happened_between.map(|_| BOUNDS)];
    let members: usize = members.into_iter().flatten().map(str::len).sum();
    let mut out = Vec::with_capacity(512 + members + entry.object.map_or(0, <[u8]>::len));
    out.extend_from_slice(b"{\"v\":1,\"seq\":");
    out.extend_from_slice(entry.seq.0.to_string().as_bytes());
    text(&mut out, "epoch", entry.epoch);
    let id = match entry.op {
        EntryType::Gap => format!("{}.{}", entry.epoch, entry.seq),
        EntryType::Actor => actor_id(entry.actor.map_or("", |((_, id), _)| id)),
        EntryType::Added | EntryType::Modified | EntryType::Deleted => change_id(entry.uid, entry.version, entry.op),
    };
    text(&mut out, "id", &id);
    text(&mut out, "time", entry.time);
    if let Some(happened) = entry.happened {
        text(&mut out, "happened", happened);
    }
    if let Some([earliest, latest]) = entry.happened_between {
        out.extend_from_slice(b",\"happenedBetween\":[");
        json_string(&mut out, earliest);
        out.push(b',');
        json_string(&mut out, latest);
        out.push(b']');
    }
    text(&mut out, "type", entry.op.as_str());
    if let Some(evidence) = entry.evidence {
        text(&mut out, "evidence", evidence.as_str());
    }
    out.extend_from_slice(b",\"cluster\":{\"name\":");
    json_string(&mut out, &entry.cluster.name);
    text(&mut out, "uid", &entry.cluster.uid);
    out.push(b'}');
    text(&mut out, "apiVersion", entry.api_version);
    text(&mut out, "kind", entry.kind);
    text(&mut out, "resource", entry.resource);
    for (key, value) in
        [("namespace", entry.namespace), ("name", entry.name), ("uid", entry.uid), ("resourceVersion", entry.version)]
    {
        if !value.is_empty() {
            text(&mut out, key, value);
        }
    }
    if let Some(managers) = entry.managers {
        out.extend_from_slice(b",\"managers\":");
        out.extend_from_slice(managers.as_bytes());
    }
    if let Some(change) = entry.change {
        out.extend_from_slice(b",\"change\":");
        out.extend_from_slice(change.as_bytes());
    }
    let mut object = 0..0;
    if let Some(bytes) = entry.object {
        out.extend_from_slice(b",\"object\":");
        let start = out.len();
        out.extend_from_slice(bytes);
        object = start..out.len();
    }
    if let Some((gap, since)) = entry.gap {
        out.extend_from_slice(b",\"gap\":{\"why\":");
        json_string(&mut out, gap.why.as_str());
        for (key, version) in [("from", &gap.from), ("to", &gap.to)] {
            if let Some(version) = version {
                text(&mut out, key, version.as_str());
            }
        }
        if let Some(since) = since {
            text(&mut out, "since", since);
        }
        if gap.recovered > 0 {
            out.extend_from_slice(format!(",\"recovered\":{}", gap.recovered).as_bytes());
        }
        out.push(b'}');
    }
    put_actor(&mut out, entry);
    if !entry.redacted.is_empty() {
        out.extend_from_slice(b",\"redacted\":");
        serde_json::to_writer(&mut out, entry.redacted).expect("strings always serialise into memory");
    }
    out.push(b'}');
    Rendered { line: out, object }
}

/// The `of` and `actor` members of an ACTOR.
fn put_actor(out: &mut Vec<u8>, entry: &EntryBuilder<'_>) {
    let Some(((seq, id), actor)) = entry.actor else { return };
    out.extend_from_slice(format!(",\"of\":{{\"seq\":{seq}").as_bytes());
    text(out, "id", id);
    out.extend_from_slice(b"},\"actor\":");
    out.extend_from_slice(actor.as_bytes());
}

fn text(out: &mut Vec<u8>, key: &str, value: &str) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(key.as_bytes());
    out.extend_from_slice(b"\":");
    json_string(out, value);
}

fn json_string(out: &mut Vec<u8>, value: &str) {
    serde_json::to_writer(out, value).expect("a string always serialises into memory");
}

/// The keys of an entry that its row holds, where the entry has them.
pub const ROW: [&str; 8] = ["v", "seq", "time", "type", "kind", "resource", "namespace", "name"];

/// Header fields that the row of an entry holds, so that the entry need not be decompressed.
#[derive(Debug)]
pub struct RowHeader<'a> {
    /// Its place in the journal.
    pub seq: Seq,
    /// Time at which it was journaled, RFC 3339 UTC with microseconds.
    pub time: &'a str,
    /// Type of the change.
    pub op: EntryType,
    /// `kind` of the resource.
    pub kind: &'a str,
    /// Plural of the resource.
    pub resource: &'a str,
    /// Namespace, as in [`EntryBuilder`].
    pub namespace: &'a str,
    /// Name, as in [`EntryBuilder`].
    pub name: &'a str,
}

/// The header of an entry as JSON, as far as its row holds it: the members of the entry that [`ROW`] names, and no
/// others.
#[must_use]
pub fn row_header(of: &RowHeader<'_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    out.extend_from_slice(b"{\"v\":1,\"seq\":");
    out.extend_from_slice(of.seq.0.to_string().as_bytes());
    text(&mut out, "time", of.time);
    text(&mut out, "type", of.op.as_str());
    text(&mut out, "kind", of.kind);
    text(&mut out, "resource", of.resource);
    for (key, value) in [("namespace", of.namespace), ("name", of.name)] {
        if !value.is_empty() {
            text(&mut out, key, value);
        }
    }
    out.push(b'}');
    out
}
