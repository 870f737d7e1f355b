//! Follows each object of a copy through its changes: each patch leads from the entry before to this one.

use std::collections::HashMap;
use std::io;

use json_patch::{Patch, PatchOperation};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use zstd::bulk::{Compressor, Decompressor};

use crate::core::change::{Shape, compare_shaped};
use crate::core::model::EntryType;
use crate::core::wire::{Change, Entry};

/// Bytes of objects that are kept; of what is beyond it, the next change is not followed.
const MOST_BYTES: usize = 32 << 20;

/// Bytes up to which objects are kept as they are, with their shapes: following a change then costs a tenth.
const READY_BYTES: usize = 12 << 20;

/// Number of characters of a value in a sentence.
const MOST_SHOWN: usize = 60;

/// Level of the compression, which is for the number of objects that can be kept.
const LEVEL: i32 = 1;

/// The objects of a copy as their last entries have them.
pub(super) struct Chain {
    /// Objects by their keys; none if it was not kept.
    objects: HashMap<u64, Option<Kept>>,
    /// Number of the part of the copy in which objects are followed.
    part: u64,
    bytes: usize,
    packing: Packing,
    /// Changes that were followed.
    pub(super) followed: u64,
    /// Changes that were not, because their objects were too many to keep.
    pub(super) unfollowed: u64,
}

/// An object.
enum Kept {
    /// Its JSON, and its shape where it was compared.
    Ready(Box<[u8]>, Option<Shape>),
    /// Its JSON compressed, and the number of bytes of that.
    Packed(Vec<u8>, usize),
}

impl Kept {
    fn size(&self) -> usize {
        match self {
            Self::Ready(json, shape) => json.len() + shape.as_ref().map_or(0, Shape::size),
            Self::Packed(bytes, _) => bytes.len(),
        }
    }
}

/// The state of compression, which costs more to make than an object to compress.
struct Packing {
    compressor: Compressor<'static>,
    decompressor: Decompressor<'static>,
}

impl Packing {
    fn new() -> io::Result<Self> {
        Ok(Self { compressor: Compressor::new(LEVEL)?, decompressor: Decompressor::new()? })
    }

    fn pack(&mut self, json: &[u8]) -> Option<Kept> {
        Some(Kept::Packed(self.compressor.compress(json).ok()?, json.len()))
    }

    fn unpack(&mut self, kept: Kept) -> Option<(Box<[u8]>, Option<Shape>)> {
        match kept {
            Kept::Ready(json, shape) => Some((json, shape)),
            Kept::Packed(bytes, len) => Some((self.decompressor.decompress(&bytes, len).ok()?.into(), None)),
        }
    }
}

impl Chain {
    /// A chain without objects.
    ///
    /// # Errors
    /// Where there is no memory for the compression.
    pub(super) fn new() -> io::Result<Self> {
        let (objects, packing) = (HashMap::new(), Packing::new()?);
        Ok(Self { objects, part: 0, bytes: 0, packing, followed: 0, unfollowed: 0 })
    }

    /// Takes the next entry of an object, given by a key of its own. No change leads from one part of the copy to the next.
    ///
    /// # Errors
    /// Where its change does not lead from the entry before to this one, as the end of a sentence.
    pub(super) fn follow(&mut self, part: u64, object: u64, entry: &Entry<'_>) -> Result<(), String> {
        if part != self.part {
            self.objects.clear();
            (self.part, self.bytes) = (part, 0);
        }
        let before = self.objects.remove(&object);
        self.bytes -= before.iter().flatten().map(Kept::size).sum::<usize>();
        let mut led = Ok(After::default());
        if entry.op == EntryType::Deleted {
            return Ok(());
        }
        if entry.op == EntryType::Modified
            && let Some(before) = before
        {
            match before.and_then(|kept| self.packing.unpack(kept)) {
                Some((before, shape)) => {
                    self.followed += 1;
                    led = lead(&before, shape.as_ref(), entry);
                }
                None => self.unfollowed += 1,
            }
        }
        let (After { object: reached, shape }, led) =
            led.map_or_else(|why| (After::default(), Err(why)), |after| (after, Ok(())));
        let reached = reached.map(|after| after.to_string());
        let now = entry.object.map(RawValue::get).or(reached.as_deref());
        let kept = now.and_then(|now| self.keep(now.as_bytes(), shape));
        self.bytes += kept.as_ref().map_or(0, Kept::size);
        self.objects.insert(object, kept);
        led
    }

    /// Makes of an object what is kept of it; none where there is no room.
    fn keep(&mut self, json: &[u8], shape: Option<Shape>) -> Option<Kept> {
        let ready = self.bytes + json.len() + shape.as_ref().map_or(0, Shape::size);
        if ready <= READY_BYTES {
            return Some(Kept::Ready(json.into(), shape));
        }
        self.packing.pack(json).filter(|packed| self.bytes + packed.size() <= MOST_BYTES)
    }
}

/// The result of following a change.
#[derive(Default)]
struct After {
    /// The object, where the entry does not have it.
    object: Option<Value>,
    /// The shape of the object of the entry, where it was compared.
    shape: Option<Shape>,
}

/// Returns the shape of an entry's object where its change is, to the byte, the one that decklog records between the object before and
/// its own. One that is not may still lead from one to the other: redaction changes what is shown, and sinks can leave parts out.
fn recorded(before: &[u8], shape: Option<&Shape>, entry: &Entry<'_>) -> Option<Shape> {
    let (object, change) = (entry.object?, entry.change?);
    let (found, shape) = compare_shaped(before, shape, object.get().as_bytes(), &[], &[]).ok()?;
    (found.json == change.get()).then_some(shape)
}

/// Follows the change of an entry from the object before it.
fn lead(before: &[u8], shape: Option<&Shape>, entry: &Entry<'_>) -> Result<After, String> {
    if let Some(shape) = recorded(before, shape, entry) {
        return Ok(After { object: None, shape: Some(shape) });
    }
    let own = entry.object.and_then(|own| serde_json::from_str::<Value>(own.get()).ok());
    let Ok(object) = serde_json::from_slice(before) else { return Ok(After::default()) };
    let after = apply_all(object, entry, own.as_ref())?;
    Ok(After { object: after.filter(|_| own.is_none()), shape: None })
}

/// Applies the change of an entry to the object before it. Returns the object after it; none if the entry has no patch.
fn apply_all(mut object: Value, entry: &Entry<'_>, own: Option<&Value>) -> Result<Option<Value>, String> {
    #[derive(Deserialize)]
    struct Raw {
        patch: Option<Patch>,
    }
    let redacted: Vec<String> = entry.redacted.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
    let raw = entry.change.and_then(|change| serde_json::from_str::<Raw>(change.get()).ok()).and_then(|raw| raw.patch);
    let change = Change::of(entry).ok().flatten();
    let (Some(Patch(operations)), Some(change)) = (raw, change) else { return Ok(None) };
    for (operation, step) in operations.iter().zip(&change.patch) {
        if let Some(was) = step.was.and_then(|was| serde_json::from_str::<Value>(was.get()).ok())
            && let Some(before) = object.pointer(&step.path)
            && let Some(at) = difference(before, &was, &step.path, &redacted)
        {
            return Err(format!(
                "changes {at} from {}, but the entry before it has {}",
                shown(was.pointer(&at[step.path.len()..])),
                shown(object.pointer(&at))
            ));
        }
        apply(&mut object, operation).map_err(|why| {
            format!("changes {}, which the object of the entry before it does not have: {why}", step.path)
        })?;
    }
    match own.and_then(|own| difference(&object, own, "", &redacted).map(|at| (own, at))) {
        Some((own, at)) => Err(format!(
            "has {} at {at}, but its change leads to {}",
            shown(own.pointer(&at)),
            shown(object.pointer(&at))
        )),
        None => Ok(Some(object)),
    }
}

fn apply(object: &mut Value, operation: &PatchOperation) -> Result<(), String> {
    json_patch::patch(object, std::slice::from_ref(operation)).map_err(|error| error.to_string())
}

/// Returns the pointer of the first value in which two differ, but for those that redaction may have changed.
fn difference(one: &Value, other: &Value, at: &str, redacted: &[String]) -> Option<String> {
    if one == other || is_redacted(at, redacted) {
        return None;
    }
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => one.keys().chain(other.keys()).find_map(|key| {
            let at = format!("{at}/{}", key.replace('~', "~0").replace('/', "~1"));
            match (one.get(key), other.get(key)) {
                (Some(one), Some(other)) => difference(one, other, &at, redacted),
                _ => (!is_redacted(&at, redacted)).then_some(at),
            }
        }),
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            let mut pairs = one.iter().zip(other).enumerate();
            pairs.find_map(|(index, (one, other))| difference(one, other, &format!("{at}/{index}"), redacted))
        }
        _ => Some(at.to_owned()),
    }
}

/// Reports whether a pointer is one of these, or lies below one.
fn is_redacted(at: &str, redacted: &[String]) -> bool {
    let is_below = |rest: &str| rest.is_empty() || rest.starts_with('/');
    redacted.iter().any(|pointer| at.strip_prefix(pointer.as_str()).is_some_and(is_below))
}

fn shown(value: Option<&Value>) -> String {
    let Some(value) = value else { return "nothing".to_owned() };
    let text = value.to_string();
    match text.char_indices().nth(MOST_SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(op: &str, rest: &str) -> String {
        format!(
            r#"{{"v":1,"seq":1,"epoch":"e","id":"i","time":"t","type":"{op}","evidence":"watched","cluster":{{"name":"c","uid":"u"}},"apiVersion":"v1","kind":"Role","resource":"roles","namespace":"n","name":"r","uid":"u","resourceVersion":"1",{rest}}}"#
        )
    }

    fn follow(lines: &[String]) -> Result<(), String> {
        let mut chain = Chain::new().unwrap();
        lines.iter().try_for_each(|line| chain.follow(0, 7, &Entry::parse(line.as_bytes()).unwrap()))
    }

    /// Ways to alter one of three entries of an object: its value, the value before it, a whole member.
    #[test]
    fn an_altered_entry_does_not_lead_to_the_next() {
        let added = line("ADDED", r#""object":{"a":1,"list":["x","y"],"s":"***"}"#);
        let change = |path: &str, was: &str, value: &str, object: &str| {
            let change = format!(
                r#"{{"areas":[],"patch":[{{"op":"replace","path":"{path}","value":{value},"was":{was}}}],"managers":[]}}"#
            );
            line("MODIFIED", &format!(r#""change":{change},"redacted":["/s"],"object":{object}"#))
        };
        let second = change("/a", "1", "2", r#"{"a":2,"list":["x","y"],"s":"***"}"#);
        let third = change("/list/1", "\"y\"", "\"z\"", r#"{"a":2,"list":["x","z"],"s":"*****"}"#);
        let whole = [added.clone(), second.clone(), third.clone()];
        assert_eq!(follow(&whole), Ok(()));
        // A copy of patches alone, and one that begins anywhere.
        let no_object = |line: &str| line.split(r#","redacted""#).next().unwrap().to_owned() + "}";
        assert_eq!(follow(&[added.clone(), no_object(&second), no_object(&third)]), Ok(()));
        assert_eq!(follow(&whole[1..]), Ok(()));
        // From one part of a copy to the next nothing leads.
        for (part, leads) in [(1, true), (0, false)] {
            let mut chain = Chain::new().unwrap();
            chain.follow(0, 7, &Entry::parse(added.as_bytes()).unwrap()).unwrap();
            let led = chain.follow(part, 7, &Entry::parse(third.as_bytes()).unwrap());
            assert_eq!(led.is_ok(), leads, "part {part}");
        }
        for (entries, says) in [
            (
                [added.replace("\"a\":1", "\"a\":5"), second.clone(), third.clone()],
                "changes /a from 1, but the entry before it has 5",
            ),
            (
                [added.clone(), second.replace("{\"a\":2", "{\"a\":9"), third.clone()],
                "has 9 at /a, but its change leads to 2",
            ),
            (
                [added.clone(), second.replace("\"was\":1", "\"was\":0"), third.clone()],
                "changes /a from 0, but the entry before it has 1",
            ),
            (
                [added.replace("\"x\"", "\"w\""), second.clone(), third.clone()],
                "has \"x\" at /list/0, but its change leads to \"w\"",
            ),
            (
                [added.replace("\"a\":1,", ""), second.clone(), third.clone()],
                "changes /a, which the object of the entry before it does not have",
            ),
            (
                [added.replace("\"a\":1,", "\"a\":1,\"b\":0,"), second.clone(), third.clone()],
                "has nothing at /b, but its change leads to 0",
            ),
            (
                [added.clone(), second.clone(), third.replace("\"list\":[\"x\",\"z\"]", "\"list\":[]")],
                "has [] at /list",
            ),
        ] {
            let why = follow(&entries).unwrap_err();
            assert!(why.starts_with(says), "{why}");
        }
    }
}
