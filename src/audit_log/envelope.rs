//! Envelopes: each says by its own shape which one it is, and damage of one record takes none of its neighbours.

use std::io::Read;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::read::MultiGzDecoder;
use serde::Deserialize;
use serde_json::Deserializer;
use serde_json::value::RawValue;

use super::outcome::{Outcome, Reason};
use super::raw::{self, Raw};
use super::{event, google, prefix};

/// Most bytes that are read at once: a delivery of Firehose has at most 64 MiB.
const INPUT_MAX: usize = 64 << 20;

/// Most bytes that all gzip of one delivery may hold together.
const INFLATED_MAX: usize = 64 << 20;

/// Most envelopes within each other. A delivery has a record, that is gzip, that is a subscription, that has a text.
const NESTED_MAX: u8 = 8;

/// Most records of one delivery.
const RECORDS_MAX: usize = 100_000;

/// Most bytes of the request id that is echoed.
const REQUEST_ID_MAX: usize = 1 << 10;

/// Contents of one delivery, or of one line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// One for each record, in their order.
    pub records: Vec<Record>,
    /// `requestId` of a Firehose delivery, which its answer has to echo.
    pub request_id: Option<String>,
    /// True if something of it is an envelope of a cloud, which may carry other logs too.
    pub is_enveloped: bool,
}

impl Received {
    /// Reports whether nothing of it is an audit event, or comes as a cloud sends one: somebody sends something else.
    #[must_use]
    pub fn is_of_another_kind(&self) -> bool {
        let is_other = |record: &Record| match record.outcome {
            Outcome::Unreadable(_) | Outcome::Other(Reason::NotAudit) => true,
            Outcome::Request(_)
            | Outcome::Other(Reason::Stage | Reason::NoObject | Reason::OtherLog | Reason::Control) => false,
        };
        !self.is_enveloped && !self.records.is_empty() && self.records.iter().all(is_other)
    }
}

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Meaning of it.
    pub outcome: Outcome,
    /// Cluster that the envelope names: `logGroup` of EKS, `project/location/cluster` of GKE, `resourceId` of AKS. Records of one
    /// delivery may be of several.
    pub cluster: Option<Arc<str>>,
}

/// Reads any envelope. It never fails: whatever cannot be read is a record that says so. Of an event that does not say when it
/// ended, and whose envelope does not either, `time` is taken (microseconds since 1970).
#[must_use]
pub fn read(bytes: &[u8], time: Option<i64>) -> Received {
    let mut reader = Reader::default();
    let around = Around { time, cluster: None, depth: 0 };
    if bytes.len() > INPUT_MAX {
        let sentence = format!("a delivery has more than {INPUT_MAX} bytes; send fewer events at once");
        reader.push(Outcome::Unreadable(sentence), &around);
    } else {
        reader.bytes(bytes, &around);
    }
    reader.received
}

/// Reads one line of a file or of a socket.
#[must_use]
pub fn read_line(line: &[u8]) -> Received {
    read(line, None)
}

#[derive(Default)]
struct Reader {
    received: Received,
    inflated: usize,
}

/// Facts of the envelopes around a record.
#[derive(Clone)]
struct Around {
    time: Option<i64>,
    cluster: Option<Arc<str>>,
    depth: u8,
}

impl Around {
    /// One envelope further in.
    fn within(&self) -> Self {
        Self { depth: self.depth + 1, ..self.clone() }
    }

    /// The same with the time that this envelope has, in microseconds.
    fn at(&self, time: Option<i64>) -> Self {
        Self { time: time.or(self.time), ..self.within() }
    }

    /// The same with the cluster that this envelope names.
    fn of(self, cluster: String) -> Self {
        if cluster.is_empty() { self } else { Self { cluster: Some(cluster.into()), ..self } }
    }
}

/// Members by which an envelope is recognised, and its contents.
#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Head<'a> {
    #[serde(borrow)]
    kind: Raw<'a>,
    #[serde(borrow)]
    api_version: Raw<'a>,
    #[serde(borrow, rename = "auditID")]
    audit_id: Raw<'a>,
    #[serde(borrow)]
    stage: Raw<'a>,
    #[serde(borrow)]
    items: Raw<'a>,
    #[serde(borrow)]
    proto_payload: Raw<'a>,
    #[serde(borrow)]
    message_type: Raw<'a>,
    #[serde(borrow)]
    log_group: Raw<'a>,
    #[serde(borrow)]
    log_stream: Raw<'a>,
    #[serde(borrow)]
    log_events: Raw<'a>,
    #[serde(borrow)]
    records: Raw<'a>,
    #[serde(borrow)]
    request_id: Raw<'a>,
    #[serde(borrow)]
    timestamp: Raw<'a>,
    /// Of a record of Firehose: base64.
    #[serde(borrow)]
    data: Raw<'a>,
    /// Of Pub/Sub an object; of a log event of CloudWatch, and of what a log shipper passes on, a text.
    #[serde(borrow)]
    message: Raw<'a>,
    /// Added by a log shipper that reads the output of containers.
    #[serde(borrow)]
    kubernetes: Raw<'a>,
    #[serde(borrow)]
    publish_time: Raw<'a>,
    #[serde(borrow)]
    category: Raw<'a>,
    #[serde(borrow)]
    properties: Raw<'a>,
    #[serde(borrow)]
    resource_id: Raw<'a>,
    #[serde(borrow)]
    time: Raw<'a>,
    /// Of the properties of Azure, and of what a log shipper passes on.
    #[serde(borrow)]
    log: Raw<'a>,
}

impl Head<'_> {
    /// `timestamp` in milliseconds, as microseconds.
    fn milliseconds(&self) -> Option<i64> {
        self.timestamp.and_then(|raw| raw.get().parse::<i64>().ok()?.checked_mul(1000))
    }

    /// True of an event; exporters leave apiVersion out, and an `EventList` both.
    fn is_event(&self) -> bool {
        raw::text(self.kind) == "Event" && is_of_audit(self.api_version)
            || self.audit_id.is_some() && self.stage.is_some()
    }

    fn is_of_azure(&self) -> bool {
        self.properties.is_some() && self.category.is_some()
    }

    /// True of an envelope of a cloud. Objects of other kinds have `data` as well, and that of a record is a text.
    fn is_of_cloud(&self) -> bool {
        let is_record = self.data.is_some_and(|data| data.get().starts_with('"'));
        let is_list = self.proto_payload.is_some() || self.message_type.is_some() || self.records.is_some();
        is_list || is_record || pushed(self.message).is_some() || self.is_of_azure()
    }
}

fn is_of_audit(version: Raw<'_>) -> bool {
    raw::text(version).starts_with("audit.k8s.io/")
}

impl Reader {
    fn push(&mut self, outcome: Outcome, around: &Around) {
        let records = &mut self.received.records;
        let outcome = match records.len() {
            ..RECORDS_MAX => outcome,
            RECORDS_MAX => {
                Outcome::Unreadable(format!("a delivery has more than {RECORDS_MAX} records; the rest is not read"))
            }
            _ => return,
        };
        records.push(Record { outcome, cluster: around.cluster.clone() });
    }

    fn refuse(&mut self, sentence: &str, around: &Around) {
        self.push(Outcome::unreadable(sentence), around);
    }

    fn is_full(&self) -> bool {
        self.received.records.len() > RECORDS_MAX
    }

    fn bytes(&mut self, bytes: &[u8], around: &Around) {
        if around.depth > NESTED_MAX {
            self.refuse("a record has too many envelopes within each other", around);
        } else if bytes.starts_with(GZIP) {
            let most = INFLATED_MAX.saturating_sub(self.inflated);
            let mut plain = Vec::new();
            let read = MultiGzDecoder::new(bytes).take(most as u64 + 1).read_to_end(&mut plain);
            self.inflated += plain.len();
            match read {
                Ok(_) if plain.len() <= most => self.bytes(&plain, &around.within()),
                Ok(_) => self.refuse("the gzip of a delivery holds too much; send fewer events at once", around),
                Err(_) => self.refuse("the gzip of a record is damaged", around),
            }
        } else {
            // A byte that is no UTF-8 spoils the text that it is in, and nothing else.
            self.text(&String::from_utf8_lossy(bytes), around);
        }
    }

    /// Reads JSON values in a row, or a line each. Behind one that is damaged, the next line goes on.
    fn text(&mut self, text: &str, around: &Around) {
        if around.depth > NESTED_MAX {
            return self.refuse("a record has too many envelopes within each other", around);
        }
        let text = text.trim_start_matches('\u{feff}').trim();
        if let Some(outcome) = event::alone(text, around.time) {
            return self.push(outcome, around);
        }
        let rest = if text.starts_with(OPENING) { self.values(text, around) } else { text };
        let mut is_pretty = false;
        for line in rest.lines() {
            if self.is_full() {
                return;
            }
            if is_pretty && !line.starts_with(OPENING) {
                continue;
            }
            let line = line.trim();
            is_pretty = matches!(line, "{" | "[");
            if is_pretty {
                self.refuse("a document breaks off or is not JSON", around);
            } else if !line.is_empty() {
                self.line(line, around);
            }
        }
    }

    /// Reads one line, or one text of an envelope.
    fn line(&mut self, line: &str, around: &Around) {
        if let Some(outcome) = event::alone(line, around.time) {
            return self.push(outcome, around);
        }
        if !line.starts_with(OPENING) {
            return match decoded(line) {
                Some(bytes) => self.bytes(&bytes, &around.within()),
                None => self.push(Outcome::Other(Reason::NotAudit), around),
            };
        }
        let rest = self.values(line, around);
        if rest.starts_with('{') {
            self.push(prefix::read(rest, around.time), around);
        } else if !rest.is_empty() {
            self.refuse("a record breaks off or is not JSON", around);
        }
    }

    /// Reads the values that the text begins with, and returns the rest, which is damaged or no JSON.
    fn values<'t>(&mut self, text: &'t str, around: &Around) -> &'t str {
        let mut stream = Deserializer::from_str(text).into_iter::<&RawValue>();
        let mut end = 0;
        while let Some(Ok(value)) = stream.next() {
            if self.is_full() {
                return "";
            }
            self.value(value, around);
            end = stream.byte_offset();
        }
        text.get(end..).unwrap_or_default().trim_start()
    }

    fn value(&mut self, value: &RawValue, around: &Around) {
        if around.depth > NESTED_MAX {
            return self.refuse("a record has too many envelopes within each other", around);
        }
        let json = value.get();
        if json.starts_with('[') {
            return self.each(Some(value), around, Self::value);
        }
        if !json.starts_with('{') {
            return self.push(Outcome::Other(Reason::NotAudit), around);
        }
        match serde_json::from_str::<Head<'_>>(json) {
            Ok(head) => self.object(&head, json, around),
            Err(error) => {
                self.push(Outcome::Unreadable(format!("a record cannot be read ({})", raw::place(&error))), around);
            }
        }
    }

    /// Calls `one` with each element of a list.
    fn each(&mut self, list: Raw<'_>, around: &Around, one: fn(&mut Self, &RawValue, &Around)) {
        let within = around.within();
        match raw::elements(list) {
            Ok(list) => {
                for element in list {
                    if self.is_full() {
                        return;
                    }
                    one(self, element, &within);
                }
            }
            Err(_) => self.refuse("a list of records is of another type", around),
        }
    }

    fn object(&mut self, head: &Head<'_>, json: &str, around: &Around) {
        self.received.is_enveloped |= head.is_of_cloud();
        if head.proto_payload.is_some() {
            let (outcome, cluster) = google::read(json, around.time);
            self.push(outcome, &around.clone().of(cluster.unwrap_or_default()));
        } else if head.message_type.is_some() {
            self.subscription(head, around);
        } else if head.records.is_some() {
            if around.depth == 0 {
                self.received.request_id =
                    Some(raw::text(head.request_id)).filter(|id| !id.is_empty() && id.len() <= REQUEST_ID_MAX);
            }
            self.each(head.records, &around.at(head.milliseconds()), Self::value);
        } else if head.data.is_some() {
            self.base64(head.data, around);
        } else if let Some(message) = pushed(head.message) {
            self.base64(message.data, &around.at(raw::time(message.publish_time)));
        } else if head.is_of_azure() {
            self.azure(head, around);
        } else if raw::text(head.kind) == "EventList" && (head.api_version.is_none() || is_of_audit(head.api_version)) {
            self.each(head.items, around, |reader, item, around| {
                reader.push(event::read(item.get(), around.time), around);
            });
        } else if head.is_event() {
            self.push(event::read(json, around.time), around);
        } else if let Some(line) = head.message.or(head.log).filter(|_| head.kubernetes.is_none()) {
            self.shipped(line, &around.within());
        } else {
            self.push(Outcome::Other(Reason::NotAudit), around);
        }
    }

    /// A line that a log shipper passes on with what it knows of it: Vector and Filebeat call it `message`, Fluent Bit and Docker `log`.
    /// The output of a container is no event, whatever it looks like.
    fn shipped(&mut self, line: &RawValue, around: &Around) {
        match serde_json::from_str::<String>(line.get()) {
            Ok(line) => self.line(line.trim(), around),
            Err(_) => self.value(line, around),
        }
    }

    /// A subscription of CloudWatch: each log event is a text of its own, and one line of it, because a line in a text of another
    /// component is no event, whatever it looks like. EKS keeps the audit log in streams of its own.
    fn subscription(&mut self, head: &Head<'_>, around: &Around) {
        match raw::text(head.message_type).as_str() {
            "CONTROL_MESSAGE" => self.push(Outcome::Other(Reason::Control), around),
            "DATA_MESSAGE" => {
                let (group, stream) = (raw::text(head.log_group), raw::text(head.log_stream));
                let is_other = group.starts_with("/aws/eks/") && !stream.starts_with("kube-apiserver-audit");
                let around = around.clone().of(group);
                if is_other {
                    return self.each(head.log_events, &around, |reader, _, around| {
                        reader.push(Outcome::Other(Reason::OtherLog), around);
                    });
                }
                self.each(head.log_events, &around, |reader, event, around| {
                    let event: Head<'_> = raw::members(Some(event));
                    let time = event.milliseconds();
                    match event.message.map(|message| serde_json::from_str::<String>(message.get())) {
                        Some(Ok(message)) => reader.line(message.trim(), &around.at(time)),
                        None | Some(Err(_)) => reader.refuse("a log event of CloudWatch has no message", around),
                    }
                });
            }
            _ => self.refuse("a message of CloudWatch is of a type that decklog does not know", around),
        }
    }

    /// A diagnostic record of Azure, which has the event as a text; some exporters write it as an object.
    fn azure(&mut self, head: &Head<'_>, around: &Around) {
        let around = around.at(raw::time(head.time)).of(raw::text(head.resource_id));
        let is_audit =
            |category: &str| ["kube-audit", "kube-audit-admin"].iter().any(|of| category.eq_ignore_ascii_case(of));
        if !is_audit(&raw::text(head.category)) {
            return self.push(Outcome::Other(Reason::OtherLog), &around);
        }
        let text = raw::text(head.properties);
        let within = serde_json::from_str(&text).ok();
        let properties: Result<Head<'_>, _> = raw::strict(within.or(head.properties));
        match properties.map(|properties| properties.log) {
            Ok(Some(log)) if log.get().starts_with('"') => match serde_json::from_str::<String>(log.get()) {
                Ok(log) => self.line(log.trim(), &around),
                Err(_) => self.refuse("the log of a record of Azure is damaged", &around),
            },
            Ok(Some(log)) => self.value(log, &around),
            Ok(None) => self.push(Outcome::Other(Reason::NotAudit), &around),
            Err(_) => self.refuse("the properties of a record of Azure have another shape", &around),
        }
    }

    fn base64(&mut self, data: Raw<'_>, around: &Around) {
        match STANDARD.decode(raw::text(data)) {
            Ok(bytes) if !bytes.is_empty() => self.bytes(&bytes, &around.within()),
            Ok(_) => self.push(Outcome::Other(Reason::NotAudit), around),
            Err(_) => self.refuse("the data of a record is not base64", around),
        }
    }
}

/// Returns the message of a Pub/Sub push.
fn pushed(message: Raw<'_>) -> Option<Head<'_>> {
    let members: Option<Head<'_>> = message.filter(|_| raw::is_object(message)).map(|_| raw::members(message));
    members.filter(|members| members.data.is_some() || !members.is_event() && members.records.is_none())
}

/// Bytes that gzip begins with.
const GZIP: &[u8] = &[0x1f, 0x8b];

/// Characters that an object or a list begins with.
const OPENING: [char; 2] = ['{', '['];

/// Returns the bytes of a line that is base64 of gzip or of JSON.
fn decoded(line: &str) -> Option<Vec<u8>> {
    let bytes = STANDARD.decode(line).ok()?;
    let is_known = bytes.starts_with(GZIP)
        || bytes.trim_ascii_start().starts_with(b"{")
        || bytes.trim_ascii_start().starts_with(b"[");
    is_known.then_some(bytes)
}
