//! An entry as the values of a filter: only what the filter names.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fmt;

use cel::common::types::{CelBool, CelDouble, CelInt, CelList, CelMap, CelMapKey, CelNull, CelString, CelUInt};
use cel::common::value::{CowVal, Val};
use cel::context::VariableResolver;
use serde::Deserialize as _;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::budget::{ELEMENT, MEMBER, VALUE, take_bytes};
use super::{ACTOR, BY, VARIABLES};
use crate::core::k8s::audited::{Actor, Sender};
use crate::core::wire;

/// Parts of a value that an expression needs.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Need {
    /// All of it.
    pub(super) whole: bool,
    /// Needed members. If there are none and not all is needed, only the presence of the value, and that it is not null.
    pub(super) members: BTreeMap<String, Need>,
}

/// All of a value.
static WHOLE: Need = Need { whole: true, members: BTreeMap::new() };

impl Need {
    /// Returns the need of the value at this path, inserting it if necessary.
    pub(super) fn at(&mut self, path: &[String]) -> &mut Self {
        path.iter().fold(self, |need, name| need.members.entry(name.clone()).or_default())
    }
}

/// The variables of one entry.
pub(super) struct Values<'a>(HashMap<CelMapKey<'a>, Box<dyn Val + 'a>>);

impl VariableResolver for Values<'_> {
    fn resolve<'b>(&'b self, variable: &str) -> Option<CowVal<'b, 'b>> {
        if let Some(value) = self.0.get(&CelMapKey::from(variable.to_owned())) {
            return Some(CowVal::Borrowed(value.as_ref()));
        }
        VARIABLES.contains(&variable).then_some(CowVal::Borrowed(&CelNull))
    }
}

/// Reads what is needed of an entry, and of the sender that another entry has of it.
pub(super) fn read<'a>(line: &'a [u8], need: &Need, sender: Option<&Actor>) -> Result<Values<'a>, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_slice(line);
    let mut values = deserializer.deserialize_map(Members(need))?;
    deserializer.end()?;
    if need.members.contains_key(ACTOR) {
        let own = if sender.is_none() && values.contains_key(&CelMapKey::from(ACTOR)) {
            wire::Entry::parse(line).ok().and_then(|entry| entry.actor())
        } else {
            None
        };
        values.insert(CelMapKey::from(ACTOR), Box::new(actor(sender.or(own.as_ref()))?));
    }
    if need.members.contains_key(BY) {
        values.insert(CelMapKey::from(BY), Box::new(by(line)?));
    }
    Ok(Values(values))
}

/// The sender of a change; each member is there, and empty where nothing is known.
fn actor<'a>(actor: Option<&Actor>) -> Result<CelMap<'a>, serde_json::Error> {
    let known = actor.cloned().unwrap_or_else(|| Actor {
        sender: Sender::default(),
        verb: String::new(),
        subresource: String::new(),
        audit_ids: Vec::new(),
        certainty: String::new(),
    });
    let Actor { sender: Sender { user, impersonated_by, agent, addresses }, verb, subresource, audit_ids, certainty } =
        known;
    let mut members: HashMap<CelMapKey<'a>, Box<dyn Val + 'a>> = HashMap::new();
    for (name, text) in [
        ("user", user),
        ("impersonated_by", impersonated_by),
        ("agent", agent),
        ("verb", verb),
        ("subresource", subresource),
        ("certainty", certainty),
    ] {
        take::<serde_json::Error>(MEMBER + VALUE + (name.len() + text.len()) as u64)?;
        members.insert(CelMapKey::from(name), Box::new(CelString::from(text)));
    }
    for (name, list) in [("addresses", addresses), ("audit_ids", audit_ids)] {
        take::<serde_json::Error>(MEMBER + VALUE + name.len() as u64)?;
        members.insert(CelMapKey::from(name), Box::new(texts(list)?));
    }
    Ok(CelMap::from(members))
}

/// The names of the managers that wrote an entry.
fn by<'a>(line: &[u8]) -> Result<CelList<'a>, serde_json::Error> {
    let authors = wire::Entry::parse(line).map(|entry| wire::authors(&entry)).unwrap_or_default();
    texts(authors.into_iter().map(|author| author.manager))
}

fn texts<'a>(texts: impl IntoIterator<Item = String>) -> Result<CelList<'a>, serde_json::Error> {
    let mut list: Vec<Box<dyn Val + 'a>> = Vec::new();
    for text in texts {
        take::<serde_json::Error>(ELEMENT + VALUE + text.len() as u64)?;
        list.push(Box::new(CelString::from(text)));
    }
    Ok(CelList::from(list))
}

/// Returns the category of the error: the error's own text may quote the entry.
pub(super) fn category(error: &serde_json::Error) -> &'static str {
    match error.classify() {
        serde_json::error::Category::Io => "I/O error",
        serde_json::error::Category::Syntax => "it is not JSON, or nested too deeply",
        serde_json::error::Category::Data => "a number that CEL does not have",
        serde_json::error::Category::Eof => "it ends too early",
    }
}

/// Takes bytes of the evaluation's budget, which says itself what to do where there are none left.
fn take<E: serde::de::Error>(bytes: u64) -> Result<(), E> {
    if take_bytes(bytes) { Ok(()) } else { Err(E::custom("too large")) }
}

/// Reads the members of an object that are needed.
struct Members<'n>(&'n Need);

impl<'de> Visitor<'de> for Members<'_> {
    type Value = HashMap<CelMapKey<'de>, Box<dyn Val + 'de>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = HashMap::new();
        while let Some(name) = map.next_key_seed(Name)? {
            let need = if self.0.whole { Some(&WHOLE) } else { self.0.members.get(name.as_ref()) };
            let Some(need) = need else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            take::<A::Error>(MEMBER + VALUE + name.len() as u64)?;
            let value = map.next_value_seed(Needed(need))?;
            let key = match name {
                Cow::Borrowed(name) => CelMapKey::from(name),
                Cow::Owned(name) => CelMapKey::from(name),
            };
            members.insert(key, value);
        }
        Ok(members)
    }
}

/// A member name, borrowed where it can be.
struct Name;

impl<'de> DeserializeSeed<'de> for Name {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Name {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_borrowed_str<E>(self, name: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(name))
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(name.to_owned()))
    }
}

/// Reads as much of a value as is needed.
struct Needed<'n>(&'n Need);

impl<'de> DeserializeSeed<'de> for Needed<'_> {
    type Value = Box<dyn Val + 'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        if !self.0.whole && self.0.members.is_empty() {
            let present = Option::<IgnoredAny>::deserialize(deserializer)?.is_some();
            return Ok(if present { Box::new(CelBool::from(true)) } else { Box::new(CelNull) });
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Needed<'_> {
    type Value = Box<dyn Val + 'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Box::new(CelNull))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Self::Value, E> {
        Ok(Box::new(CelBool::from(value)))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Self::Value, E> {
        Ok(Box::new(CelInt::from(value)))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
        Ok(match i64::try_from(value) {
            Ok(value) => Box::new(CelInt::from(value)),
            Err(_) => Box::new(CelUInt::from(value)),
        })
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Self::Value, E> {
        if value.is_finite() { Ok(Box::new(CelDouble::from(value))) } else { Err(E::custom("not finite")) }
    }

    fn visit_borrowed_str<E>(self, value: &'de str) -> Result<Self::Value, E> {
        Ok(Box::new(CelString::from(value)))
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Self::Value, E> {
        take(value.len() as u64)?;
        Ok(Box::new(CelString::from(value.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut elements = Vec::new();
        while let Some(element) = seq.next_element_seed(Needed(&WHOLE))? {
            take::<A::Error>(ELEMENT + VALUE)?;
            elements.push(element);
        }
        Ok(Box::new(CelList::from(elements)))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        let members = Members(self.0).visit_map(map).map_err(A::Error::custom)?;
        Ok(Box::new(CelMap::from(members)))
    }
}
