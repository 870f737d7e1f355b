//! The only place that knows the JSON of an entry (wire version 1).
//!
//! An entry is rendered once, when it is journaled, and its bytes are what every file, tail and sink gets, for ever:
//! an upgrade of decklog never changes an entry that exists. Keys come in one fixed order and are absent where they
//! do not apply.

pub mod cloudevents;
mod schema;

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

pub use schema::entry_schema;

use crate::model::{Cluster, EntryType, Evidence, Gap, ResourceVersion, Seq};

/// The wire version that this build writes, and the only one it reads.
pub const VERSION: u64 = 1;

/// Everything that an entry is rendered from.
#[derive(Debug)]
pub struct Draft<'a> {
    /// Its place in the journal.
    pub seq: Seq,
    /// The journal's name.
    pub epoch: &'a str,
    /// When it is journaled, RFC 3339 UTC with microseconds.
    pub time: &'a str,
    /// What it says happened.
    pub kind: EntryType,
    /// How it is known; none on a gap.
    pub evidence: Option<Evidence>,
    /// The cluster it comes from.
    pub cluster: &'a Cluster,
    /// `apiVersion` of the resource.
    pub api_version: &'a str,
    /// `kind` of the resource.
    pub kind_name: &'a str,
    /// Plural of the resource.
    pub resource: &'a str,
    /// Namespace of the object (or of the source, on a gap); empty for none.
    pub namespace: &'a str,
    /// Name of the object; empty on a gap.
    pub name: &'a str,
    /// uid of the object; empty on a gap.
    pub uid: &'a str,
    /// resourceVersion of the change; empty on a gap.
    pub version: &'a str,
    /// The `change` member as JSON, on MODIFIED.
    pub change: Option<&'a str>,
    /// The object as JSON on one line.
    pub object: Option<&'a [u8]>,
    /// The gap and the time of the last moment known good.
    pub gap: Option<(&'a Gap, Option<&'a str>)>,
    /// JSON pointers of what was redacted.
    pub redacted: &'a [String],
}

/// An entry as it is stored and sent.
#[derive(Debug)]
pub struct Rendered {
    /// The JSON, without a newline at its end.
    pub line: Vec<u8>,
    /// Where the object stands in it; empty where there is none.
    pub object: Range<usize>,
}

/// The id of a change: equal in every resend, and on every decklog that watched it.
#[must_use]
pub fn change_id(uid: &str, version: &str, kind: EntryType) -> String {
    format!("{uid}.{version}.{}", kind.as_str())
}

/// Renders an entry.
#[must_use]
pub fn render(draft: &Draft<'_>) -> Rendered {
    let mut out = Vec::with_capacity(512 + draft.object.map_or(0, <[u8]>::len) + draft.change.map_or(0, str::len));
    out.extend_from_slice(b"{\"v\":1,\"seq\":");
    out.extend_from_slice(draft.seq.0.to_string().as_bytes());
    text(&mut out, "epoch", draft.epoch);
    let id = match draft.kind {
        EntryType::Gap => format!("{}.{}", draft.epoch, draft.seq),
        EntryType::Added | EntryType::Modified | EntryType::Deleted => change_id(draft.uid, draft.version, draft.kind),
    };
    text(&mut out, "id", &id);
    text(&mut out, "time", draft.time);
    text(&mut out, "type", draft.kind.as_str());
    if let Some(evidence) = draft.evidence {
        text(&mut out, "evidence", evidence.as_str());
    }
    out.extend_from_slice(b",\"cluster\":{\"name\":");
    json_string(&mut out, &draft.cluster.name);
    text(&mut out, "uid", &draft.cluster.uid);
    out.push(b'}');
    text(&mut out, "apiVersion", draft.api_version);
    text(&mut out, "kind", draft.kind_name);
    text(&mut out, "resource", draft.resource);
    for (key, value) in
        [("namespace", draft.namespace), ("name", draft.name), ("uid", draft.uid), ("resourceVersion", draft.version)]
    {
        if !value.is_empty() {
            text(&mut out, key, value);
        }
    }
    if let Some(change) = draft.change {
        out.extend_from_slice(b",\"change\":");
        out.extend_from_slice(change.as_bytes());
    }
    let mut object = 0..0;
    if let Some(bytes) = draft.object {
        out.extend_from_slice(b",\"object\":");
        let start = out.len();
        out.extend_from_slice(bytes);
        object = start..out.len();
    }
    if let Some((gap, since)) = draft.gap {
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
    if !draft.redacted.is_empty() {
        out.extend_from_slice(b",\"redacted\":");
        serde_json::to_writer(&mut out, draft.redacted).expect("strings always serialise into memory");
    }
    out.push(b'}');
    Rendered { line: out, object }
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

/// A JSON text on one line: white space between tokens is dropped where it holds line breaks, because an entry is
/// one line. The API server sends compact JSON, so this is nearly always the input itself.
#[must_use]
pub fn one_line(json: Vec<u8>) -> Vec<u8> {
    if memchr::memchr2(b'\n', b'\r', &json).is_none() {
        return json;
    }
    let mut out = Vec::with_capacity(json.len());
    let (mut in_string, mut escaped) = (false, false);
    for byte in json {
        if in_string {
            (in_string, escaped) = match byte {
                _ if escaped => (true, false),
                b'\\' => (true, true),
                b'"' => (false, false),
                _ => (true, false),
            };
            out.push(byte);
        } else if !byte.is_ascii_whitespace() {
            in_string = byte == b'"';
            out.push(byte);
        }
    }
    out
}

/// The keys of an entry that its outline has, where the entry has them.
pub const OUTLINE: [&str; 8] = ["v", "seq", "time", "type", "kind", "resource", "namespace", "name"];

/// What can be told of an entry without putting it together.
#[derive(Debug)]
pub struct Outline<'a> {
    /// Its place in the journal.
    pub seq: Seq,
    /// When it was journaled, RFC 3339 UTC with microseconds.
    pub time: &'a str,
    /// What it says happened.
    pub kind: EntryType,
    /// `kind` of the resource.
    pub kind_name: &'a str,
    /// Plural of the resource.
    pub resource: &'a str,
    /// As in [`Draft`].
    pub namespace: &'a str,
    /// As in [`Draft`].
    pub name: &'a str,
}

/// The outline of an entry as JSON: the members of the entry that [`OUTLINE`] names, and no others.
#[must_use]
pub fn outline(of: &Outline<'_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    out.extend_from_slice(b"{\"v\":1,\"seq\":");
    out.extend_from_slice(of.seq.0.to_string().as_bytes());
    text(&mut out, "time", of.time);
    text(&mut out, "type", of.kind.as_str());
    text(&mut out, "kind", of.kind_name);
    text(&mut out, "resource", of.resource);
    for (key, value) in [("namespace", of.namespace), ("name", of.name)] {
        if !value.is_empty() {
            text(&mut out, key, value);
        }
    }
    out.push(b'}');
    out
}

/// An entry, read without copying what it carries.
#[derive(Debug, Deserialize)]
pub struct Entry<'a> {
    /// Wire version.
    pub v: u64,
    /// Place in the journal.
    pub seq: u64,
    /// The journal's name.
    #[serde(borrow)]
    pub epoch: Cow<'a, str>,
    /// Stable id.
    #[serde(borrow)]
    pub id: Cow<'a, str>,
    /// When it was journaled.
    #[serde(borrow)]
    pub time: Cow<'a, str>,
    /// ADDED, MODIFIED, DELETED or GAP.
    #[serde(rename = "type", borrow)]
    pub type_name: Cow<'a, str>,
    /// watched, listed or inferred.
    #[serde(borrow, default)]
    pub evidence: Option<Cow<'a, str>>,
    /// Where it comes from.
    #[serde(borrow)]
    pub cluster: EntryCluster<'a>,
    /// apiVersion of the resource.
    #[serde(rename = "apiVersion", borrow)]
    pub api_version: Cow<'a, str>,
    /// Kind of the resource.
    #[serde(rename = "kind", borrow)]
    pub kind_name: Cow<'a, str>,
    /// Plural of the resource.
    #[serde(borrow)]
    pub resource: Cow<'a, str>,
    /// Namespace, where there is one.
    #[serde(borrow, default)]
    pub namespace: Option<Cow<'a, str>>,
    /// Name, on a change.
    #[serde(borrow, default)]
    pub name: Option<Cow<'a, str>>,
    /// uid, on a change.
    #[serde(borrow, default)]
    pub uid: Option<Cow<'a, str>>,
    /// resourceVersion, on a change.
    #[serde(rename = "resourceVersion", borrow, default)]
    pub resource_version: Option<Cow<'a, str>>,
    /// What changed, on MODIFIED.
    #[serde(borrow, default)]
    pub change: Option<&'a RawValue>,
    /// The object.
    #[serde(borrow, default)]
    pub object: Option<&'a RawValue>,
    /// The gap.
    #[serde(borrow, default)]
    pub gap: Option<&'a RawValue>,
    /// JSON pointers of what was redacted.
    #[serde(borrow, default)]
    pub redacted: Option<&'a RawValue>,
}

/// The `cluster` member of an entry.
#[derive(Debug, Deserialize)]
pub struct EntryCluster<'a> {
    /// Name for people.
    #[serde(borrow)]
    pub name: Cow<'a, str>,
    /// uid of the kube-system namespace.
    #[serde(borrow)]
    pub uid: Cow<'a, str>,
}

/// The `gap` member of an entry.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct EntryGap {
    /// Why changes may be missing.
    pub why: String,
    /// Last version known good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Version of the list that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Time of the last moment known good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Changes that were recovered before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovered: Option<u64>,
}

/// What is wrong with a line that should be an entry. Never quotes it.
#[derive(Debug, thiserror::Error)]
pub enum EntryError {
    /// Not the JSON of an entry.
    #[error("not an entry of decklog (JSON error at column {0})")]
    Json(usize),
    /// Written by a decklog that this one does not know.
    #[error("an entry of wire version {0}, this decklog reads version 1")]
    Version(u64),
    /// A type that version 1 does not have.
    #[error("an entry of an unknown type")]
    Type,
}

impl<'a> Entry<'a> {
    /// Reads one line, without its newline.
    ///
    /// # Errors
    /// Where the line is not an entry of wire version 1.
    pub fn parse(line: &'a [u8]) -> Result<Self, EntryError> {
        let entry: Self = serde_json::from_slice(line).map_err(|e| EntryError::Json(e.column()))?;
        if entry.v != VERSION {
            return Err(EntryError::Version(entry.v));
        }
        EntryType::parse(&entry.type_name).ok_or(EntryError::Type)?;
        Ok(entry)
    }

    /// What it says happened.
    #[must_use]
    pub fn kind(&self) -> EntryType {
        EntryType::parse(&self.type_name).expect("parse refuses unknown types")
    }

    /// Its place in the journal.
    #[must_use]
    pub const fn seq(&self) -> Seq {
        Seq(self.seq)
    }

    /// Its resource version; empty on a gap.
    #[must_use]
    pub fn version(&self) -> ResourceVersion {
        ResourceVersion::new(self.resource_version.as_deref().unwrap_or_default())
    }

    /// The API group of its resource, empty for core.
    #[must_use]
    pub fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }

    /// The gap it tells, on a GAP.
    #[must_use]
    pub fn gap(&self) -> Option<EntryGap> {
        serde_json::from_str(self.gap?.get()).ok()
    }
}

/// How much of an entry a sink wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Payload {
    /// Everything.
    #[default]
    Full,
    /// On MODIFIED the patch and not the object: a consumer applies it to what it has.
    Diff,
    /// Neither the object nor the patch: who, what, when.
    Metadata,
}

/// An entry without its object, and the object beside it: whoever looks through many entries does not have to read
/// every object to its end. Of a line that is none of [`render`]'s the answer may be wrong, and whoever parses it sees
/// that it is no entry. An entry without an object is given as it is.
#[must_use]
pub fn apart(line: &[u8]) -> (Cow<'_, [u8]>, &[u8]) {
    const KEY: &[u8] = b"\"object\":";
    let Some(at) = member(line, &[KEY]) else { return (Cow::Borrowed(line), &[]) };
    let begin = at + KEY.len();
    // Nothing but `redacted` follows, and that ends with a list.
    let redacted = if line.ends_with(b"]}") { memchr::memmem::rfind(line, b",\"redacted\":[") } else { None };
    let end = redacted.unwrap_or(line.len().saturating_sub(1)).max(begin);
    let mut head = line[..at].to_vec();
    head.extend_from_slice(line[end..].strip_prefix(b",").unwrap_or(&line[end..]));
    if head.ends_with(b",}") {
        head.truncate(head.len() - 2);
        head.push(b'}');
    }
    (Cow::Owned(head), &line[begin..end])
}

/// The members of an entry that say which one it is and what happened to which object: those before the change, the
/// object and the gap. What follows them is not even looked at. As with [`apart`], whoever parses it sees whether it is
/// an entry.
#[must_use]
pub fn identity(line: &[u8]) -> Cow<'_, [u8]> {
    match member(line, &[b"\"change\":", b"\"object\":", b"\"gap\":", b"\"redacted\":"]) {
        Some(at) => {
            let before = line[..at].strip_suffix(b",").unwrap_or(&line[..at]);
            Cow::Owned([before, b"}"].concat())
        }
        None => Cow::Borrowed(line),
    }
}

/// Which entry it is and when it was journaled: its first members, for who has many lines and asks no more of each.
#[derive(Debug, PartialEq, Eq, Deserialize)]
pub struct Stamp {
    /// Its place in the journal.
    pub seq: Seq,
    /// The journal's name.
    pub epoch: String,
    /// What names the change.
    pub id: String,
    /// RFC 3339.
    pub time: String,
}

impl Stamp {
    /// Reads the first members of an entry and not those that follow them.
    ///
    /// # Errors
    /// Where the line does not begin as an entry does.
    pub fn of(line: &[u8]) -> Result<Self, EntryError> {
        // Within a text no quotation mark stands without a backslash before it.
        let end = memchr::memmem::find(line, b"\",\"type\":").unwrap_or_default();
        serde_json::from_slice(&[&line[..end], b"\"}"].concat()).map_err(|error| EntryError::Json(error.column()))
    }
}

/// The same entry under the name of another epoch: in `epoch`, and in the id of a GAP, which begins with it.
///
/// # Errors
/// Where the line does not begin as an entry does.
pub fn recast(line: &[u8], epoch: &str) -> Result<Bytes, EntryError> {
    let old = Stamp::of(line)?;
    let end = memchr::memmem::find(line, b"\",\"type\":").unwrap_or_default();
    let head = String::from_utf8_lossy(&line[..end]);
    let own = |epoch: &str| format!("\"epoch\":\"{epoch}\"");
    let gap = |epoch: &str| format!("\"id\":\"{epoch}.{}\"", old.seq);
    let head = head.replacen(&own(&old.epoch), &own(epoch), 1).replacen(&gap(&old.epoch), &gap(epoch), 1);
    Ok([head.as_bytes(), &line[end..]].concat().into())
}

/// Where the first member of an object begins that has one of these keys, which are given with quotes and colon.
fn member(line: &[u8], keys: &[&[u8]]) -> Option<usize> {
    let (mut depth, mut at) = (0_usize, 0);
    while let Some(byte) = line.get(at) {
        match byte {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'"' if depth == 1 && keys.iter().any(|key| line[at..].starts_with(key)) => return Some(at),
            b'"' => at = end_of_string(line, at),
            _ => {}
        }
        at += 1;
    }
    None
}

/// Where the string ends that begins here.
fn end_of_string(line: &[u8], begin: usize) -> usize {
    let mut at = begin + 1;
    while let Some(found) = line.get(at..).and_then(|rest| memchr::memchr2(b'"', b'\\', rest)) {
        at += found;
        if line[at] == b'"' {
            return at;
        }
        at += 2;
    }
    line.len()
}

/// The entry as a sink with this payload gets it: the same keys in the same order, fewer of them.
///
/// # Errors
/// Where the line is not an entry.
pub fn payload(line: &Bytes, payload: Payload) -> Result<Bytes, EntryError> {
    if payload == Payload::Full {
        return Ok(line.clone());
    }
    let entry = Entry::parse(line)?;
    let mut out = line.to_vec();
    // From back to front, so that the earlier spans stay true.
    if let Some(object) = entry.object
        && (payload == Payload::Metadata || entry.kind() == EntryType::Modified)
    {
        let span = span_of(line, object.get());
        out.drain(span.start - b",\"object\":".len()..span.end);
    }
    if let Some(change) = entry.change
        && payload == Payload::Metadata
    {
        #[derive(Deserialize, Serialize)]
        struct Bare<'b> {
            #[serde(borrow)]
            areas: &'b RawValue,
            #[serde(borrow)]
            managers: &'b RawValue,
        }
        let bare: Bare<'_> = serde_json::from_str(change.get()).map_err(|e| EntryError::Json(e.column()))?;
        let bare = serde_json::to_vec(&bare).map_err(|e| EntryError::Json(e.column()))?;
        out.splice(span_of(line, change.get()), bare);
    }
    Ok(out.into())
}

/// What a sink gets of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// How much of it.
    pub payload: Payload,
    /// Whether metadata.managedFields is left in the object, and changes of it in the patch.
    pub managed_fields: bool,
}

impl Shape {
    /// The entry as a sink gets it.
    ///
    /// # Errors
    /// Where the line is not an entry.
    pub fn apply(self, line: &Bytes) -> Result<Bytes, EntryError> {
        let line = payload(line, self.payload)?;
        if self.managed_fields { Ok(line) } else { without_managed_fields(&line) }
    }
}

/// The entry without metadata.managedFields in its object and in its patch, every other byte as it was.
///
/// # Errors
/// Where the line is not an entry.
pub fn without_managed_fields(line: &Bytes) -> Result<Bytes, EntryError> {
    #[derive(Deserialize)]
    struct Place<'o> {
        #[serde(borrow)]
        path: Cow<'o, str>,
    }
    let entry = Entry::parse(line)?;
    let wrong = |error: serde_json::Error| EntryError::Json(error.column());
    let mut out = line.to_vec();
    // From back to front, so that the earlier spans stay true.
    if let Some(object) = entry.object {
        // What is no table has no managed fields, and neither has one with names that are no text.
        let members: Option<Members<'_>> = serde_json::from_str(object.get()).ok();
        let metadata = members.and_then(|members| members.0.into_iter().rev().find(|(key, _)| key == "metadata"));
        let inner = metadata.and_then(|(_, metadata)| {
            serde_json::from_str(metadata.get()).ok().map(|Members(inner): Members<'_>| (metadata, inner))
        });
        if let Some((metadata, mut inner)) = inner
            && inner.iter().any(|(key, _)| key == "managedFields")
        {
            inner.retain(|(key, _)| key != "managedFields");
            let rest = serde_json::to_vec(&Members(inner)).map_err(wrong)?;
            out.splice(span_of(line, metadata.get()), rest);
        }
    }
    if let Some(change) = entry.change {
        let members: Members<'_> = serde_json::from_str(change.get()).map_err(wrong)?;
        if let Some((_, patch)) = members.0.iter().find(|(key, _)| key == "patch") {
            let mut steps: Vec<&RawValue> = serde_json::from_str(patch.get()).map_err(wrong)?;
            let all = steps.len();
            steps.retain(|step| {
                let place: Option<Place<'_>> = serde_json::from_str(step.get()).ok();
                !place.is_some_and(|Place { path }| {
                    let rest = path.strip_prefix("/metadata/managedFields");
                    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
                })
            });
            if steps.len() < all {
                out.splice(span_of(line, patch.get()), serde_json::to_vec(&steps).map_err(wrong)?);
            }
        }
    }
    Ok(out.into())
}

/// The members of a JSON object in their order, their values as the bytes that they are.
struct Members<'o>(Vec<(Cow<'o, str>, &'o RawValue)>);

impl<'de: 'o, 'o> Deserialize<'de> for Members<'o> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> serde::de::Visitor<'de> for InOrder {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                #[derive(Deserialize)]
                struct Key<'k>(#[serde(borrow)] Cow<'k, str>);
                let mut members = Vec::new();
                while let Some((Key(key), value)) = map.next_entry()? {
                    members.push((key, value));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}

impl Serialize for Members<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}

/// Where a borrowed part stands in the line it was borrowed from.
fn span_of(line: &[u8], part: &str) -> Range<usize> {
    let start = part.as_ptr() as usize - line.as_ptr() as usize;
    start..start + part.len()
}

#[cfg(test)]
mod compatibility;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Why;

    fn draft<'a>(cluster: &'a Cluster, redacted: &'a [String]) -> Draft<'a> {
        Draft {
            seq: Seq(7),
            epoch: "e",
            time: "2026-11-21T00:00:00.000000Z",
            kind: EntryType::Modified,
            evidence: Some(Evidence::Watched),
            cluster,
            api_version: "apps/v1",
            kind_name: "Deployment",
            resource: "deployments",
            namespace: "shop",
            name: "web",
            uid: "u",
            version: "41",
            change: Some(r#"{"areas":["spec"],"patch":[],"managers":[]}"#),
            object: Some(br#"{"n":1.0,"big":1e400}"#),
            gap: None,
            redacted,
        }
    }

    #[test]
    fn an_entry_has_its_keys_in_the_order_of_the_contract() {
        let cluster = Cluster { name: "prod \"eu\"".into(), uid: "c".into() };
        let rendered = render(&draft(&cluster, &["/data/x".into()]));
        let line = String::from_utf8(rendered.line.clone()).unwrap();
        assert_eq!(
            line,
            r#"{"v":1,"seq":7,"epoch":"e","id":"u.41.MODIFIED","time":"2026-11-21T00:00:00.000000Z","type":"MODIFIED","evidence":"watched","cluster":{"name":"prod \"eu\"","uid":"c"},"apiVersion":"apps/v1","kind":"Deployment","resource":"deployments","namespace":"shop","name":"web","uid":"u","resourceVersion":"41","change":{"areas":["spec"],"patch":[],"managers":[]},"object":{"n":1.0,"big":1e400},"redacted":["/data/x"]}"#
        );
        assert_eq!(&rendered.line[rendered.object], br#"{"n":1.0,"big":1e400}"#);
        let entry = Entry::parse(line.as_bytes()).unwrap();
        assert_eq!((entry.group(), entry.kind(), entry.seq()), ("apps", EntryType::Modified, Seq(7)));
    }

    #[test]
    fn managed_fields_are_left_out_of_the_object_and_of_the_patch() {
        let object =
            r#"{"kind":"D","metadata":{"name":"web","managedFields":[{"manager":"m"}],"big":1e400},"managedFields":1}"#;
        let change = r#"{"areas":["spec","managedFields"],"patch":[{"op":"replace","path":"/metadata/managedFields/0/time","value":1},{"op":"add","path":"/metadata/managedFieldsOfMine","value":2},{"op":"remove","path":"/metadata/managedFields"}],"managers":[]}"#;
        let cluster = Cluster::default();
        let line: Bytes =
            render(&Draft { object: Some(object.as_bytes()), change: Some(change), ..draft(&cluster, &[]) })
                .line
                .into();
        let less = Shape { payload: Payload::Full, managed_fields: false }.apply(&line).unwrap();
        let expected = String::from_utf8(line.to_vec()).unwrap();
        let expected = expected
            .replace(r#","managedFields":[{"manager":"m"}]"#, "")
            .replace(r#"{"op":"replace","path":"/metadata/managedFields/0/time","value":1},"#, "")
            .replace(r#",{"op":"remove","path":"/metadata/managedFields"}"#, "");
        assert_eq!(String::from_utf8(less.to_vec()).unwrap(), expected);
        assert_eq!(without_managed_fields(&less).unwrap(), less);
        assert_eq!(Shape { payload: Payload::Full, managed_fields: true }.apply(&line).unwrap(), line);
        for odd in ["[]", r#"{"metadata":[]}"#, r#"{"\ud800":1}"#] {
            let line = render(&Draft { object: Some(odd.as_bytes()), ..draft(&cluster, &[]) }).line.into();
            assert_eq!(without_managed_fields(&line).unwrap(), line);
        }
    }

    #[test]
    fn a_gap_is_named_after_its_place() {
        let cluster = Cluster::default();
        let gap = Gap {
            why: Why::Expired,
            from: Some(ResourceVersion::new("5")),
            to: Some(ResourceVersion::new("9")),
            recovered: 0,
        };
        let line = render(&Draft {
            kind: EntryType::Gap,
            evidence: None,
            name: "",
            uid: "",
            version: "",
            change: None,
            object: None,
            gap: Some((&gap, Some("2026-11-20T00:00:00Z"))),
            ..draft(&cluster, &[])
        })
        .line;
        let entry = Entry::parse(&line).unwrap();
        assert_eq!(entry.id, "e.7");
        let told = entry.gap().unwrap();
        assert_eq!((told.why.as_str(), told.from.as_deref(), told.to.as_deref()), ("expired", Some("5"), Some("9")));
        assert!(entry.evidence.is_none() && entry.uid.is_none());
    }

    #[test]
    fn payloads_leave_out_and_change_nothing_else() {
        let cluster = Cluster::default();
        let line: Bytes = render(&draft(&cluster, &["/x".into()])).line.into();
        assert_eq!(payload(&line, Payload::Full).unwrap(), line);
        let diff = payload(&line, Payload::Diff).unwrap();
        let entry = Entry::parse(&diff).unwrap();
        assert!(entry.object.is_none() && entry.change.unwrap().get().contains("patch") && entry.redacted.is_some());
        let deleted = Draft { kind: EntryType::Deleted, change: None, ..draft(&cluster, &[]) };
        let line_of_deleted: Bytes = render(&deleted).line.into();
        assert_eq!(payload(&line_of_deleted, Payload::Diff).unwrap(), line_of_deleted);
        let metadata = payload(&line, Payload::Metadata).unwrap();
        let entry = Entry::parse(&metadata).unwrap();
        assert_eq!(entry.change.unwrap().get(), r#"{"areas":["spec"],"managers":[]}"#);
        assert!(entry.object.is_none() && entry.id == "u.41.MODIFIED");
    }

    #[test]
    fn a_stamp_is_read_from_the_beginning() {
        let cluster = Cluster { name: "prod".into(), uid: "c".into() };
        for uid in ["u", "u\",\"type\":\"", "\\"] {
            let line = render(&Draft { uid, ..draft(&cluster, &[]) }).line;
            let (entry, stamp) = (Entry::parse(&line).unwrap(), Stamp::of(&line).unwrap());
            assert_eq!([&*stamp.epoch, &stamp.id, &stamp.time], [&*entry.epoch, &entry.id, &entry.time]);
        }
        for odd in [&b""[..], b"{}", b"\",\"type\":", b"{\"seq\":\"\",\"type\":1}"] {
            assert!(Stamp::of(odd).is_err());
        }
    }

    #[test]
    fn an_identity_ends_before_what_happened() {
        let cluster = Cluster { name: "\"change\":{".into(), uid: "\\\"gap\":".into() };
        let change = Some(r#"{"areas":[],"patch":[],"managers":[]}"#);
        let gap = Gap { why: Why::Expired, from: None, to: None, recovered: 0 };
        let (gap, pointers, empty): (_, _, &[String]) = (Some((&gap, None)), ["/a".to_owned()], &[]);
        let lines = [
            Draft { change, ..draft(&cluster, &pointers) },
            Draft { change: None, object: None, ..draft(&cluster, &pointers) },
            Draft { change: None, object: None, gap, ..draft(&cluster, empty) },
            Draft { change: None, object: None, ..draft(&cluster, empty) },
        ]
        .map(|draft| render(&draft).line);
        for line in lines {
            let identity = identity(&line);
            let (part, whole) = (Entry::parse(&identity).unwrap(), Entry::parse(&line).unwrap());
            assert!(part.change.or(part.object).or(part.gap).or(part.redacted).is_none());
            let told = |entry: &Entry<'_>| {
                let of = [&entry.namespace, &entry.name, &entry.uid, &entry.resource_version].map(Clone::clone);
                (
                    entry.seq,
                    entry.id.to_string(),
                    entry.cluster.uid.to_string(),
                    of.map(|text| text.map(|text| text.to_string())),
                )
            };
            assert_eq!(told(&part), told(&whole));
        }
        for odd in [&b""[..], b"{", b"\"", b"{\"change\":", b"{\"v\":1,\"change\":", b"}}]]", b"{\"a\\"] {
            assert!(Entry::parse(&identity(odd)).is_err());
        }
    }

    #[test]
    fn an_object_is_found_without_reading_it() {
        let cluster = Cluster { name: "prod \\\"object\":{".into(), uid: "c".into() };
        let tricky = r#"{"areas":["object"],"patch":[{"op":"add","path":"/object","value":{"object":{"a":"}\\"}}}],"managers":[]}"#;
        let objects: [&[u8]; 3] = [br#"{"n":1.0,"object":{},"redacted":[1]}"#, br#"{"s":",\"redacted\":["}"#, br"{}"];
        let pointers = ["/a,\"redacted\":[]}".to_owned(), "/b".to_owned()];
        for object in objects {
            for redacted in [&pointers[..], &[]] {
                let line =
                    render(&Draft { change: Some(tricky), object: Some(object), ..draft(&cluster, redacted) }).line;
                let (head, found) = apart(&line);
                assert_eq!(found, object);
                let (apart, whole) = (Entry::parse(&head).unwrap(), Entry::parse(&line).unwrap());
                assert!(apart.object.is_none());
                let told = |entry: &Entry<'_>| {
                    let raw = |part: Option<&RawValue>| part.map(|raw| raw.get().to_owned());
                    (entry.seq, entry.id.to_string(), raw(entry.change), raw(entry.redacted), entry.uid.is_some())
                };
                assert_eq!(told(&apart), told(&whole));
            }
        }
        let bare = render(&Draft { object: None, ..draft(&cluster, &[]) }).line;
        assert_eq!(apart(&bare), (Cow::Borrowed(&bare[..]), &[][..]));
        for odd in [&b""[..], b"{", b"\"", b"{\"object\":", b"{\"object\":]}", b"}}]]", b"{\"a\\"] {
            let (head, _) = apart(odd);
            assert!(Entry::parse(&head).is_err());
        }
    }

    #[test]
    fn line_breaks_between_tokens_go_and_text_stays() {
        let pretty = "{\n  \"a b\": \"x \\\" y\",\r\n \"n\": 1.0 }";
        assert_eq!(one_line(pretty.into()), br#"{"a b":"x \" y","n":1.0}"#);
        assert_eq!(one_line(b"{ \"a\": 1 }".to_vec()), b"{ \"a\": 1 }");
    }

    #[test]
    fn foreign_lines_are_refused_without_quoting_them() {
        for line in [&b"secret"[..], b"{}", b"{\"v\":1}"] {
            let error = Entry::parse(line).unwrap_err().to_string();
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
