//! An entry as a CloudEvent 1.0: the attributes, and the two ways in which HTTP carries them.

use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;

use super::Header;
use crate::core::model::EntryType;

/// Characters that the authority of a URI reference cannot hold unescaped (RFC 3986 reg-name).
const AUTHORITY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Characters that a header value of the HTTP binding cannot hold unescaped (§3.1.3.2): space, double quote, percent sign, and
/// everything outside of printable ASCII.
const HEADER: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'%');

/// The attributes of one entry, around the entry itself.
#[derive(Debug, Serialize)]
pub struct Event<'a> {
    specversion: &'static str,
    id: &'a str,
    source: String,
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<String>,
    time: &'a str,
    datacontenttype: &'static str,
    /// Extension attributes: with `seq` it names the entry, which the id, that of the change, does not always.
    epoch: &'a str,
    /// A text, because an integer of CloudEvents has 32 bits.
    seq: String,
    /// The entry.
    #[serde(skip)]
    data: &'a [u8],
}

/// The `type` of an event, which OpenTelemetry calls its name.
pub(crate) const fn event_type(op: EntryType) -> &'static str {
    match op {
        EntryType::Added => "io.decklog.added.v1",
        EntryType::Modified => "io.decklog.modified.v1",
        EntryType::Deleted => "io.decklog.deleted.v1",
        EntryType::Gap => "io.decklog.gap.v1",
        EntryType::Actor => "io.decklog.actor.v1",
    }
}

impl<'a> Event<'a> {
    /// The event of an entry, of which this is the header.
    #[must_use]
    pub fn of(entry: &'a Header<'_>, line: &'a [u8]) -> Self {
        let cluster = utf8_percent_encode(&entry.cluster.name, AUTHORITY);
        let root = if entry.group().is_empty() { "api" } else { "apis" };
        let source = format!("//{cluster}/{root}/{}/{}", entry.api_version, entry.resource);
        let kind = event_type(entry.op);
        let subject = entry.name.as_deref().map(|name| match entry.namespace.as_deref() {
            Some(namespace) => format!("{namespace}/{name}"),
            None => name.to_owned(),
        });
        Self {
            specversion: "1.0",
            id: &entry.id,
            source,
            kind,
            subject,
            time: &entry.time,
            datacontenttype: "application/json",
            epoch: &entry.epoch,
            seq: entry.seq.to_string(),
            data: line,
        }
    }

    /// Attributes around the entry, as JSON.
    #[must_use]
    pub fn structured(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.data.len() + 512);
        self.write_structured(&mut out);
        out
    }

    /// Appends the event as [`Event::structured`] renders it.
    pub fn write_structured(&self, out: &mut Vec<u8>) {
        serde_json::to_writer(&mut *out, self).expect("texts always serialise into memory");
        // The entry is JSON already, and the last of the members.
        out.pop();
        out.extend_from_slice(b",\"data\":");
        out.extend_from_slice(self.data);
        out.push(b'}');
    }

    /// The headers of the binary mode; the entry itself is the body.
    #[must_use]
    pub fn headers(&self) -> Vec<(&'static str, String)> {
        let encode = |value: &str| utf8_percent_encode(value, HEADER).to_string();
        let mut headers = vec![
            ("ce-specversion", self.specversion.to_owned()),
            ("ce-id", encode(self.id)),
            ("ce-source", encode(&self.source)),
            ("ce-type", self.kind.to_owned()),
            ("ce-time", encode(self.time)),
            ("ce-epoch", encode(self.epoch)),
            ("ce-seq", self.seq.clone()),
        ];
        headers.extend(self.subject.as_deref().map(|subject| ("ce-subject", encode(subject))));
        headers
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::model::{Cluster, Gap, ResourceVersion, Seq, Why};
    use crate::core::wire::{EntryBuilder, render};

    fn draft(cluster: &Cluster) -> EntryBuilder<'_> {
        EntryBuilder {
            seq: Seq(7),
            epoch: "e",
            time: "2026-11-21T00:00:00.000000Z",
            happened: None,
            happened_between: None,
            op: EntryType::Added,
            evidence: None,
            cluster,
            api_version: "v1",
            kind: "Namespace",
            resource: "namespaces",
            namespace: "",
            name: "shop",
            uid: "u",
            version: "41",
            managers: None,
            change: None,
            object: Some(b"{\"n\":1.0,\"big\":1e400}"),
            gap: None,
            actor: None,
            redacted: &[],
        }
    }

    #[test]
    fn attributes_are_those_of_the_contract() {
        let cluster = Cluster { name: "arn:eks/prod é".into(), uid: "c".into() };
        let line = render(&EntryBuilder { seq: Seq(5_000_000_000), ..draft(&cluster) }).line;
        let header = Header::parse(&line).unwrap();
        let event = Event::of(&header, &line);
        let text = String::from_utf8(event.structured()).unwrap();
        assert_eq!(
            text,
            format!(
                r#"{{"specversion":"1.0","id":"u.41.ADDED","source":"//arn%3Aeks%2Fprod%20%C3%A9/api/v1/namespaces","type":"io.decklog.added.v1","subject":"shop","time":"2026-11-21T00:00:00.000000Z","datacontenttype":"application/json","epoch":"e","seq":"5000000000","data":{}}}"#,
                String::from_utf8(line.clone()).unwrap()
            )
        );
        let headers = event.headers();
        assert!(headers.contains(&("ce-source", "//arn%253Aeks%252Fprod%2520%25C3%25A9/api/v1/namespaces".into())));
        assert!(headers.contains(&("ce-subject", "shop".into())));
        assert!(headers.contains(&("ce-epoch", "e".into())) && headers.contains(&("ce-seq", "5000000000".into())));
    }

    #[test]
    fn groups_and_namespaces_are_named() {
        let cluster = Cluster { name: "prod-eu1".into(), uid: "c".into() };
        let namespaced =
            EntryBuilder { api_version: "apps/v1", resource: "deployments", namespace: "shop", ..draft(&cluster) };
        let line = render(&EntryBuilder { op: EntryType::Deleted, name: "web", ..namespaced }).line;
        let header = Header::parse(&line).unwrap();
        let event = Event::of(&header, &line);
        assert_eq!(event.source, "//prod-eu1/apis/apps/v1/deployments");
        assert_eq!((event.subject.as_deref(), event.kind), (Some("shop/web"), "io.decklog.deleted.v1"));
    }

    #[test]
    fn a_gap_of_a_whole_source_has_no_subject() {
        let cluster = Cluster::default();
        let gap = Gap { why: Why::Expired, from: None, to: Some(ResourceVersion::new("9")), recovered: 0 };
        let gap = EntryBuilder {
            op: EntryType::Gap,
            namespace: "shop",
            name: "",
            uid: "",
            version: "",
            object: None,
            gap: Some((&gap, None)),
            ..draft(&cluster)
        };
        let line = render(&gap).line;
        let header = Header::parse(&line).unwrap();
        let event = Event::of(&header, &line);
        assert_eq!((event.id, event.kind, event.subject.as_deref()), ("e.7", "io.decklog.gap.v1", None));
        assert!(!String::from_utf8(event.structured()).unwrap().contains("subject"));
    }
}
