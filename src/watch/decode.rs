//! Reads the identity of an object in one pass and leaves its bytes alone. A line of a watch is read by [`line`](fn@line), an element of a
//! list by [`item`].
//!
//! Nothing is decoded that decklog does not need, so that an object of any shape, from any version of the API, is kept
//! as it came.
//!
//! # Decision: the pass that proves JSON is that of serde_json
//!
//! Context: Half of the processor time of an event goes into the pass that proves that it is JSON. Of a Pod of 8 KB that takes serde_json
//! 4.9 µs on an AMD EPYC, sonic-rs 8.5 µs, the tape of simd-json with the copy that it overwrites 7.1 µs, and a validator of 150 lines
//! without `unsafe` 3.9 µs: between short strings, what is guessed wrong costs more than vectors save. sonic-rs also recurses without a
//! bound and accepts `\u` before anything.
//! Decision: serde_json, with its bound of depth.
//! Cost: A tenth of the time of an event.

use std::borrow::Cow;
use std::ops::Range;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::frame;
use crate::core::k8s::identity::{Identity, Metadata};
use crate::core::model::{Resource, ResourceVersion};

/// Contents of a line of a watch.
#[derive(Debug, PartialEq, Eq)]
pub enum Line<'a> {
    /// ADDED or MODIFIED.
    Upsert(Object<'a>),
    /// DELETED.
    Delete(Object<'a>),
    /// ADDED or MODIFIED, or else DELETED, of an object that does not say which one it is; and its bytes.
    Odd(Odd, bool, &'a [u8]),
    /// A bookmark: everything up to this version was sent.
    Bookmark(ResourceVersion),
    /// An ERROR: the `Status` that it carries.
    Error(&'a [u8]),
}

/// An object that is JSON and does not say which one it is, or one that is no JSON: what names it, as far as it can be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Odd {
    /// The error, without anything of the object's contents.
    pub why: String,
    /// metadata.namespace, empty where there is none that can be read.
    pub namespace: String,
    /// The same for metadata.name.
    pub name: String,
    /// The same for metadata.uid.
    pub uid: String,
    /// The same for metadata.resourceVersion.
    pub version: String,
}

impl Odd {
    /// Reads the identity of an object that does not decode. Members that are no texts are left out one by one.
    fn of(why: String, object: &[u8]) -> Self {
        let outline = frame::outline(object);
        let read = std::str::from_utf8(&outline).ok().and_then(|text| serde_json::from_str::<Identity<'_>>(text).ok());
        Self::named(why, read.and_then(|identity| identity.metadata).unwrap_or_default())
    }

    fn named(why: String, metadata: Metadata<'_>) -> Self {
        let owned = |text: Option<Cow<'_, str>>| text.map(Cow::into_owned).unwrap_or_default();
        let Metadata { namespace, name, uid, version, .. } = metadata;
        let version = Some(owned(version)).filter(|version| version != NO_VERSION).unwrap_or_default();
        Self { why, namespace: owned(namespace), name: owned(name), uid: owned(uid), version }
    }
}

impl From<Object<'_>> for Odd {
    fn from(object: Object<'_>) -> Self {
        let named = object.named();
        let text = |text: Cow<'_, str>| Some(Cow::Owned(text.into_owned()));
        Self::named(
            String::new(),
            Metadata {
                namespace: text(named.namespace),
                name: text(named.name),
                uid: text(named.uid),
                version: text(named.version),
                is_odd: false,
            },
        )
    }
}

/// The resourceVersion that no object has: in a request it means any version.
const NO_VERSION: &str = "0";

/// An object's identity, and its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object<'a> {
    /// The kind it claims; empty if it has none.
    pub kind: Cow<'a, str>,
    /// Group and version of that; empty where it does not say.
    pub api_version: Cow<'a, str>,
    /// metadata.namespace, empty for cluster-scoped objects.
    pub namespace: Cow<'a, str>,
    /// metadata.name.
    pub name: Cow<'a, str>,
    /// metadata.uid.
    pub uid: Cow<'a, str>,
    /// metadata.resourceVersion.
    pub version: Cow<'a, str>,
    /// The object as it came.
    pub bytes: Cow<'a, [u8]>,
}

impl Object<'_> {
    /// Returns its identity without its bytes.
    #[must_use]
    pub fn named(self) -> Object<'static> {
        let owned = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        Object {
            kind: owned(self.kind),
            api_version: owned(self.api_version),
            namespace: owned(self.namespace),
            name: owned(self.name),
            uid: owned(self.uid),
            version: owned(self.version),
            bytes: Cow::Borrowed(&[]),
        }
    }

    /// Reports whether it is of the requested resource, as far as it names its kind.
    #[must_use]
    pub fn is_one_of(&self, resource: &Resource) -> bool {
        (self.kind.is_empty() || self.kind == resource.kind)
            && (self.api_version.is_empty() || self.api_version == resource.api_version())
    }
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    object: &'a RawValue,
}

/// Reads one line of a watch.
///
/// # Errors
/// What is wrong with the line, without anything of what it holds.
pub fn line(line: &[u8]) -> Result<Line<'_>, String> {
    let text = std::str::from_utf8(line).map_err(|_| "a line of the watch is not UTF-8".to_owned())?;
    // An API server writes type and object, in this order and without spaces: what is between the two is then the
    // object, and reading its identity proves that it is one JSON value. Whatever else is read in two passes.
    if let Some((kind, span)) = usual(text)
        && let Some(object) = text.get(span)
        && let Ok(identity) = serde_json::from_str::<Identity<'_>>(object)
    {
        return said(kind, object, Ok(identity));
    }
    let envelope: Envelope<'_> =
        serde_json::from_str(text).map_err(|error| format!("a line of the watch is no event ({})", place(&error)))?;
    let object = envelope.object.get();
    said(&envelope.kind, object, serde_json::from_str(object))
}

/// The type and the object of a line as API servers write it.
fn usual(line: &str) -> Option<(&'static str, Range<usize>)> {
    const BEGIN: &str = r#"{"type":""#;
    const BETWEEN: &str = r#"","object":"#;
    let line = line.trim_ascii_end();
    let rest = line.strip_prefix(BEGIN)?;
    let kind = ["MODIFIED", "ADDED", "DELETED", "BOOKMARK"].into_iter().find(|kind| rest.starts_with(kind))?;
    rest.get(kind.len()..)?.starts_with(BETWEEN).then_some(())?;
    line.ends_with('}').then_some(())?;
    Some((kind, BEGIN.len() + kind.len() + BETWEEN.len()..line.len() - 1))
}

fn said<'a>(
    kind: &str,
    object: &'a str,
    identity: Result<Identity<'a>, serde_json::Error>,
) -> Result<Line<'a>, String> {
    let unreadable = |error: &serde_json::Error| format!("an object has no readable metadata ({})", place(error));
    let object_of = |identity: Result<Identity<'a>, serde_json::Error>| match identity {
        Ok(identity) => Ok(whole(identity, object)),
        // It is JSON, and no object.
        Err(error) if error.is_data() => Ok(Err(Odd::of(unreadable(&error), object.as_bytes()))),
        Err(error) => Err(unreadable(&error)),
    };
    match kind {
        "ADDED" | "MODIFIED" => {
            Ok(object_of(identity)?.map_or_else(|odd| Line::Odd(odd, false, object.as_bytes()), Line::Upsert))
        }
        "DELETED" => Ok(object_of(identity)?.map_or_else(|odd| Line::Odd(odd, true, object.as_bytes()), Line::Delete)),
        "BOOKMARK" => {
            let metadata = identity.map_err(|error| unreadable(&error))?.metadata.unwrap_or_default();
            let version = metadata.version.filter(|version| !version.is_empty());
            Ok(Line::Bookmark(ResourceVersion::new(version.ok_or("a bookmark has no resourceVersion")?)))
        }
        "ERROR" => Ok(Line::Error(object.as_bytes())),
        _ => Err("a line of the watch has a type that decklog does not know".to_owned()),
    }
}

/// The object, where it says which one it is.
fn whole<'a>(identity: Identity<'a>, object: &'a str) -> Result<Object<'a>, Odd> {
    let Some(metadata) = identity.metadata else {
        return Err(Odd { why: "an object has no metadata".to_owned(), ..Odd::default() });
    };
    let is_odd = identity.is_odd || metadata.is_odd;
    let lacks = |text: &Option<Cow<'_, str>>| text.as_ref().is_none_or(|text| text.is_empty());
    let why = if is_odd {
        "the name, namespace or uid of an object is no text".to_owned()
    } else if lacks(&metadata.name) {
        lack("name")
    } else if lacks(&metadata.uid) {
        lack("uid")
    } else if lacks(&metadata.version) || metadata.version.as_deref() == Some(NO_VERSION) {
        lack("resourceVersion")
    } else {
        let Metadata { namespace, name, uid, version, .. } = metadata;
        return Ok(Object {
            kind: identity.kind.unwrap_or_default(),
            api_version: identity.api_version.unwrap_or_default(),
            namespace: namespace.unwrap_or_default(),
            name: name.unwrap_or_default(),
            uid: uid.unwrap_or_default(),
            version: version.unwrap_or_default(),
            bytes: Cow::Borrowed(object.as_bytes()),
        });
    };
    Err(Odd::named(why, metadata))
}

fn lack(what: &str) -> String {
    format!("an object has no metadata.{what}")
}

/// Returns the position of a JSON error. serde_json's own text would quote the text there.
fn place(error: &serde_json::Error) -> String {
    let what = match error.classify() {
        serde_json::error::Category::Eof => "it breaks off",
        serde_json::error::Category::Data => "it has another shape",
        serde_json::error::Category::Syntax | serde_json::error::Category::Io => "it is not JSON",
    };
    format!("{what}, column {}", error.column())
}

/// Reads one item of a list. Its bytes are those that a watch would send: items of built-in types lack what the list
/// says once for all of them, and API servers write these two first, in this order.
///
/// # Errors
/// What is wrong with it, without anything of what it holds, and what names it all the same.
pub fn item<'a>(resource: &Resource, item: &'a [u8]) -> Result<Object<'a>, Odd> {
    let text = std::str::from_utf8(item).map_err(|_| Odd::of("an item of the list is not UTF-8".to_owned(), item))?;
    let identity: Identity<'_> = serde_json::from_str(text)
        .map_err(|error| Odd::of(format!("an item of the list has no readable metadata ({})", place(&error)), item))?;
    let complete = identity.kind.is_some() || identity.api_version.is_some();
    let mut object = whole(identity, text)?;
    if !complete {
        object.bytes = Cow::Owned(with_kind(resource, text));
    }
    Ok(object)
}

fn with_kind(resource: &Resource, item: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(item.len() + 64);
    bytes.extend_from_slice(br#"{"kind":"#);
    quote(&resource.kind, &mut bytes);
    bytes.extend_from_slice(br#","apiVersion":"#);
    quote(&resource.api_version(), &mut bytes);
    bytes.push(b',');
    // It has metadata, so something follows the brace.
    bytes.extend_from_slice(item.trim_start().strip_prefix('{').unwrap_or_default().as_bytes());
    bytes
}

fn quote(text: &str, into: &mut Vec<u8>) {
    serde_json::to_writer(into, text).expect("writing a string to memory cannot fail");
}

/// The metadata of a list.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The version of the list.
    pub version: ResourceVersion,
    /// The token of the next page.
    pub next: Option<String>,
    /// Number of objects after this page, if the API server reports it.
    pub left: Option<u64>,
}

/// Reads the envelope of a list.
///
/// # Errors
/// Where it is not whole, or has no version.
pub fn envelope(bytes: &[u8]) -> Result<Page, String> {
    #[derive(Deserialize)]
    struct List {
        metadata: Meta,
        /// Without it the answer is no list: a Table, for instance, or one object. Go writes an empty list as null.
        #[serde(rename = "items", deserialize_with = "list_or_null")]
        _items: (),
    }
    fn list_or_null<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<(), D::Error> {
        Option::<Vec<serde::de::IgnoredAny>>::deserialize(deserializer).map(drop)
    }
    #[derive(Deserialize)]
    struct Meta {
        #[serde(default, rename = "resourceVersion")]
        version: String,
        #[serde(default, rename = "continue")]
        next: Option<String>,
        #[serde(default, rename = "remainingItemCount")]
        left: serde_json::Value,
    }
    let list: List =
        serde_json::from_slice(bytes).map_err(|error| format!("the answer is not a whole list ({})", place(&error)))?;
    if list.metadata.version.is_empty() || list.metadata.version == "0" {
        return Err("the list has no resourceVersion, so there is nothing to watch from".to_owned());
    }
    // An empty token means that there is no next page.
    let next = list.metadata.next.filter(|next| !next.is_empty());
    Ok(Page { version: ResourceVersion(list.metadata.version), next, left: list.metadata.left.as_u64() })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const POD: &str = r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web","namespace":"shop","uid":"u1","resourceVersion":"7","labels":{"name":"other"}},"spec":{"n":1.50,"uid":"no"}}"#;

    fn pod() -> Object<'static> {
        Object {
            kind: "Pod".into(),
            api_version: "v1".into(),
            namespace: "shop".into(),
            name: "web".into(),
            uid: "u1".into(),
            version: "7".into(),
            bytes: POD.as_bytes().into(),
        }
    }

    #[test]
    fn a_line_in_any_form_gives_the_very_bytes_of_its_object() {
        for text in [
            format!(r#"{{"type":"ADDED","object":{POD}}}"#),
            format!(r#"{{"type":"MODIFIED","object":{POD}}} "#),
            format!(r#" {{ "object" : {POD} , "type" : "ADDED" }}"#),
            format!(r#"{{"type":"ADDED","object":{POD},"new":{{"metadata":{{}}}}}}"#),
            format!(r#"{{"type":"\u0041DDED","object":{POD}}}"#),
        ] {
            assert_eq!(line(text.as_bytes()), Ok(Line::Upsert(pod())), "{text}");
        }
        assert_eq!(line(format!(r#"{{"type":"DELETED","object":{POD}}}"#).as_bytes()), Ok(Line::Delete(pod())));
    }

    #[test]
    fn an_object_of_another_kind_is_recognised() {
        for (kind, api_version, fits) in [
            ("Pod", "v1", true),
            ("", "", true),
            ("Secret", "v1", false),
            ("Pod", "v2", false),
            ("Pod", "example.com/v1", false),
        ] {
            let object = Object { kind: kind.into(), api_version: api_version.into(), ..pod() };
            assert_eq!(object.is_one_of(&pods()), fits, "{api_version} {kind}");
        }
    }

    #[test]
    fn bookmarks_and_errors() {
        let bookmark = r#"{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"12746","creationTimestamp":null},"spec":{"containers":null},"status":{}}}"#;
        assert_eq!(line(bookmark.as_bytes()), Ok(Line::Bookmark(ResourceVersion::new("12746"))));
        let error = r#"{"type":"ERROR","object":{"kind":"Status","code":410}}"#;
        assert_eq!(line(error.as_bytes()), Ok(Line::Error(br#"{"kind":"Status","code":410}"#)));
    }

    #[test]
    fn escapes_in_an_identity_are_understood() {
        let text = r#"{"type":"ADDED","object":{"metadata":{"name":"w\u0065b","uid":"u\/1","resourceVersion":"7"}}}"#;
        let Ok(Line::Upsert(object)) = line(text.as_bytes()) else { panic!() };
        assert_eq!((&*object.name, &*object.uid, &*object.namespace), ("web", "u/1", ""));
    }

    /// Fault 32: of duplicate members the last counts, as in Go.
    #[test]
    fn of_members_that_come_twice_the_last_counts() {
        let object = r#"{"metadata":{"name":"first","uid":"u","resourceVersion":"1"},"metadata":{"name":"a","name":"b","uid":"u1","uid":"u2","resourceVersion":"6","resourceVersion":"7","namespace":"x","namespace":null}}"#;
        let text = format!(r#"{{"type":"ADDED","object":{object}}}"#);
        let Ok(Line::Upsert(found)) = line(text.as_bytes()) else { panic!() };
        assert_eq!((&*found.name, &*found.uid, &*found.version, &*found.namespace), ("b", "u2", "7", ""));
        assert_eq!(found.bytes, object.as_bytes());
    }

    #[test]
    fn what_is_no_event_is_refused_without_quoting_it() {
        let secret = "hunter2";
        for text in [
            secret.to_owned(),
            format!(r#"{{"type":"{secret}","object":{POD}}}"#),
            format!(r#"{{"type":"ADDED","object":{POD}"#),
            format!(
                r#"{{"type":"ADDED","object":{{"metadata":{{"name":"a","uid":"u","resourceVersion":"{secret}"}}}}{secret}}}"#
            ),
            r#"{"type":"BOOKMARK","object":{"metadata":{}}}"#.to_owned(),
        ] {
            let error = line(text.as_bytes()).expect_err(&text);
            assert!(!error.contains(secret), "{error}");
        }
        assert!(line(b"{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"\xff\"}}}").is_err());
    }

    /// What is read of an object that cannot be recorded: name, uid and version, with what is wrong.
    fn odd(metadata: &str) -> [String; 4] {
        let object = format!(r#"{{"metadata":{metadata}}}"#);
        let read = item(&pods(), object.as_bytes()).expect_err(metadata);
        let event = format!(r#"{{"type":"MODIFIED","object":{object}}}"#);
        assert_eq!(line(event.as_bytes()), Ok(Line::Odd(read.clone(), false, object.as_bytes())), "{metadata}");
        let event = format!(r#"{{ "object": {object}, "type": "DELETED" }}"#);
        assert_eq!(line(event.as_bytes()), Ok(Line::Odd(read.clone(), true, object.as_bytes())), "{metadata}");
        [read.name, read.uid, read.version, read.why]
    }

    /// kubectl prints most of these, by name; client-go's informers hold all that have one under namespace and name.
    #[test]
    fn an_object_that_does_not_say_which_it_is_is_named_as_far_as_it_can_be() {
        let wrong = ["null", "5", "1.5e300", "true", "[]", r#"["a"]"#, "{}", r#"{"a":1}"#];
        let members = [("name", "a"), ("uid", "u"), ("resourceVersion", "7")];
        for (at, (odd_member, _)) in members.iter().enumerate() {
            for value in wrong.iter().copied().chain([r#""""#, "-"]) {
                let texts = members.map(|(member, text)| match (member == *odd_member, value) {
                    (true, "-") => String::new(),
                    (true, value) => format!(r#""{member}":{value},"#),
                    (false, _) => format!(r#""{member}":"{text}","#),
                });
                let read = odd(&format!(r#"{{{}"labels":{{}}}}"#, texts.concat()));
                let mut expected = members.map(|(_, text)| text);
                expected[at] = "";
                assert_eq!(read[..3], expected, "{odd_member} {value}");
                let says = if matches!(value, "null" | "-" | r#""""#) { "has no metadata." } else { "is no text" };
                assert!(read[3].contains(says), "{odd_member} {value}: {}", read[3]);
            }
        }
        let zero = odd(r#"{"name":"a","uid":"u","resourceVersion":"0"}"#);
        assert_eq!((zero[2].as_str(), zero[3].as_str()), ("", "an object has no metadata.resourceVersion"));
        assert_eq!(odd(r#"{"name":"a","uid":"u","resourceVersion":"7","namespace":[1]}"#)[..3], ["a", "u", "7"]);
        for metadata in ["null", "5", r#""hunter2""#, "[]", "true"] {
            let read = odd(metadata);
            assert_eq!(read[..3], ["", "", ""], "{metadata}");
            assert!(!read[3].contains("hunter2") && !read[3].is_empty());
        }
    }

    /// An item of a list that is no JSON, or no object, still is one, and is named where a name stands in it.
    #[test]
    fn an_item_that_is_no_object_is_named_where_a_name_stands_in_it() {
        let named = |rest: &str| format!(r#"{{"metadata":{{"name":"a","uid":"u","resourceVersion":"7"}}{rest}}}"#);
        let raw = [named(r#","x":""#).as_bytes(), b"\xff\"}"].concat();
        let rows: [(Vec<u8>, &str); 14] = [
            (b"null".to_vec(), ""),
            (b"5".to_vec(), ""),
            (b"\"text\"".to_vec(), ""),
            (b"[]".to_vec(), ""),
            (b"{}".to_vec(), ""),
            (Vec::new(), ""),
            (named(r#","x":NaN"#).into(), "a"),
            (named(r#","x":[1,]"#).into(), "a"),
            (named(",").into(), "a"),
            (named(r#","x":{"a" 1}"#).into(), "a"),
            (named(",\"x\":\"a\u{7}b\"").into(), "a"),
            (raw, "a"),
            (br#"{"metadata":{"name":"\ud800","uid":"u","resourceVersion":"7"}}"#.to_vec(), ""),
            (br#"{"metadata":{"uid":"u","name":5,"resourceVersion":"7"},"x":NaN}"#.to_vec(), ""),
        ];
        for (bytes, name) in rows {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let read = item(&pods(), &bytes).expect_err(&text);
            assert_eq!(read.name, name, "{text}");
            assert!(!read.why.is_empty() && name.is_empty() || read.version == "7", "{text}: {read:?}");
        }
        // What is deep, or holds what no text can hold, is an object as any other.
        let deep = named(&format!(r#","x":{}{}"#, "[".repeat(10_000), "]".repeat(10_000)));
        for whole in [deep, named(r#","x":"\ud800""#), named(r#","x":1,"x":2"#)] {
            assert_eq!(item(&pods(), whole.as_bytes()).unwrap().name, "a");
        }
    }

    fn pods() -> Resource {
        Resource {
            group: String::new(),
            version: "v1".into(),
            kind: "Pod".into(),
            plural: "pods".into(),
            singular: "pod".into(),
            short_names: vec![],
            namespaced: true,
        }
    }

    #[test]
    fn a_listed_item_becomes_what_a_watch_would_send() {
        let rest = POD.strip_prefix(r#"{"kind":"Pod","apiVersion":"v1","#).unwrap();
        let listed = format!("{{{rest}");
        let unsaid = Object { kind: "".into(), api_version: "".into(), ..pod() };
        assert_eq!(item(&pods(), listed.as_bytes()), Ok(unsaid));
        assert_eq!(item(&pods(), POD.as_bytes()), Ok(pod()));
        let metadata = r#""metadata":{"name":"a","uid":"u","resourceVersion":"1","ownerReferences":[{"kind":"x","apiVersion":"v1"}]}"#;
        for custom in [
            format!(r#"{{"apiVersion":"v1","kind":"Pod",{metadata}}}"#),
            format!(r#"{{{metadata},"apiVersion":"v1","kind":"Pod"}}"#),
            format!(r#"{{"a":1,"apiVersion":"v1",{metadata}}}"#),
        ] {
            assert_eq!(item(&pods(), custom.as_bytes()).unwrap().bytes, custom.as_bytes());
        }
        let completed = format!(r#"{{"kind":"Pod","apiVersion":"v1","data":1,{metadata}}}"#);
        assert_eq!(
            item(&pods(), format!(r#"{{"data":1,{metadata}}}"#).as_bytes()).unwrap().bytes,
            completed.as_bytes()
        );
        for broken in ["", "{}", "null", "{", r#"{"metadata":{"name":"a","uid":"u"}}"#] {
            assert!(item(&pods(), broken.as_bytes()).is_err(), "{broken}");
        }
    }

    #[test]
    fn an_envelope_holds_version_and_next_page() {
        let page = |text: &str| envelope(text.as_bytes());
        let whole = Page { version: ResourceVersion::new("7"), next: Some("abc".into()), left: Some(3) };
        assert_eq!(
            page(r#"{"metadata":{"resourceVersion":"7","continue":"abc","remainingItemCount":3},"items":[]}"#),
            Ok(whole)
        );
        assert_eq!(page(r#"{"metadata":{"resourceVersion":"7","continue":""},"items":null}"#).unwrap().next, None);
        for broken in [
            r#"{"metadata":{"resourceVersion":"7"},"items":["#,
            r#"{"metadata":{},"items":[]}"#,
            r#"{"items":[]}"#,
            r#"{"kind":"Table","metadata":{"resourceVersion":"7"},"rows":[]}"#,
            r#"{"metadata":{"resourceVersion":"7"},"items":{}}"#,
            r#"{"metadata":{"resourceVersion":"7"},"items":"[]"}"#,
            r#"{"metadata":{"resourceVersion":null},"items":[]}"#,
            r#"{"metadata":{"resourceVersion":7},"items":[]}"#,
            r#"{"metadata":{"resourceVersion":"0"},"items":[]}"#,
            r#"{"metadata":null,"items":[]}"#,
            "",
            "<html>",
        ] {
            assert!(page(broken).is_err(), "{broken}");
        }
    }

    proptest! {
        #[test]
        fn the_quick_way_and_the_careful_way_agree(
            kind in prop_oneof![Just("ADDED"), Just("MODIFIED"), Just("DELETED"), Just("BOOKMARK"), Just("ERROR"), Just("FOO")],
            name in "[a-z\"\\\\]{0,5}", version in "[0-9]{0,4}", extra in any::<bool>(), cut in 0_usize..12,
        ) {
            let object = serde_json::json!({"metadata": {"name": name, "uid": "u", "resourceVersion": version}, "x": [1, {"y": null}]});
            let tail = if extra { r#","k":1}"# } else { "}" };
            let quick = format!(r#"{{"type":"{kind}","object":{object}{tail}"#);
            let slow = format!(r#"{{ "type":"{kind}","object":{object}{tail}"#);
            let end = |text: &str| text.len() - cut.saturating_sub(9).min(text.len());
            let (quick, slow) = (&quick[..end(&quick)], &slow[..end(&slow)]);
            prop_assert_eq!(line(quick.as_bytes()).ok(), line(slow.as_bytes()).ok());
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            drop(line(&bytes));
            drop(item(&pods(), &bytes));
            drop(envelope(&bytes));
        }
    }
}
