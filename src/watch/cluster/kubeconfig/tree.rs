//! YAML and JSON of a kubeconfig as a tree, in bounded memory, by the rules of the YAML library in kubectl (`sigs.k8s.io/yaml`):
//! the first document counts, the last of two equal keys, `<<` merges, `!!binary` is decoded.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use regex::Regex;
use serde::de::{DeserializeSeed, EnumAccess, Error, MapAccess, SeqAccess, VariantAccess, Visitor};
use serde_json::{Number, Value};

/// The most bytes of a kubeconfig.
pub(super) const LARGEST: u64 = 8 << 20;
/// The most bytes of its tree, aliases written out. A node counts [`NODE`] bytes and its text.
const TREE: usize = 64 << 20;
const NODE: usize = 64;
/// The most values, about.
const MOST: usize = 1_000_000;
/// The deepest nesting.
const DEEPEST: usize = 100;

/// A value of the document.
pub(super) enum Node {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    /// `!!binary`, decoded.
    Binary(Vec<u8>),
    List(Vec<Node>),
    Map(BTreeMap<String, Node>),
}

impl Node {
    /// Returns the value as JSON, for a credential plugin.
    pub(super) fn to_json(&self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Bool(value) => Value::Bool(*value),
            Self::Number(value) => Value::Number(value.clone()),
            Self::Text(text) => Value::String(text.clone()),
            Self::Binary(bytes) => Value::String(String::from_utf8_lossy(bytes).into_owned()),
            Self::List(list) => Value::Array(list.iter().map(Self::to_json).collect()),
            Self::Map(map) => Value::Object(map.iter().map(|(key, node)| (key.clone(), node.to_json())).collect()),
        }
    }
}

/// Reads the first document. The error is one sentence that quotes nothing of the text.
pub(super) fn read(bytes: &[u8]) -> Result<Node, String> {
    let text = decoded(bytes).ok_or_else(|| "it is no kubeconfig: it is neither UTF-8 nor UTF-16 text".to_owned())?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let (deepest, values) = measured(text);
    if values > MOST {
        return Err(format!("it is no kubeconfig: it has more than {MOST} values"));
    }
    if deepest > DEEPEST {
        return Err(format!("it is no kubeconfig: its values are nested deeper than {DEEPEST}"));
    }
    // The library hides the tags of YAML itself, and shows others.
    let text = BINARY.replace_all(text, format!("${{before}}{SHOWN}${{after}}"));
    let budget = Budget { left: Cell::new(TREE), refusal: Cell::new(None) };
    let Some(document) = serde_yaml_ng::Deserializer::from_str(&text).next() else { return Ok(Node::Null) };
    Seed { budget: &budget, depth: 0 }.deserialize(document).map_err(|error| {
        match (budget.refusal.get(), error.location()) {
            (Some(refusal), _) => format!("it is no kubeconfig: {refusal}"),
            // Of an empty text.
            (None, None) => "it is no kubeconfig".to_owned(),
            (None, Some(at)) => format!("it is no kubeconfig (line {}, column {})", at.line(), at.column()),
        }
    })
}

/// The tag that stands for `!!binary` while the library reads.
const SHOWN: &str = "!x-yaml-binary";

/// `!!binary` in its two spellings, where a tag may stand.
static BINARY: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?m)(?P<before>^|[\s\[{,:])(?:!!binary|!<tag:yaml\.org,2002:binary>)(?P<after>\s|$)")
        .expect("a constant pattern compiles")
});

/// UTF-8, or UTF-16 with its mark: PowerShell writes that.
fn decoded(bytes: &[u8]) -> Option<String> {
    let units = |bytes: &[u8], unit: fn([u8; 2]) -> u16| {
        let units: Vec<u16> = bytes.chunks_exact(2).map(|pair| unit([pair[0], pair[1]])).collect();
        bytes.len().is_multiple_of(2).then(|| String::from_utf16(&units).ok()).flatten()
    };
    match bytes {
        [0xff, 0xfe, rest @ ..] => units(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => units(rest, u16::from_be_bytes),
        _ => String::from_utf8(bytes.to_vec()).ok(),
    }
}

/// Upper bounds of the nesting of flow collections and of the number of values. The library takes time for each level of
/// each token, and memory for each value, before it hands out the first.
fn measured(text: &str) -> (usize, usize) {
    let (mut depth, mut deepest, mut values) = (0_usize, 0, 0);
    for byte in text.bytes() {
        values += usize::from(b"[{,:-?*\n".contains(&byte));
        match byte {
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    (deepest, values)
}

struct Budget {
    left: Cell<usize>,
    refusal: Cell<Option<&'static str>>,
}

#[derive(Clone, Copy)]
struct Seed<'a> {
    budget: &'a Budget,
    depth: usize,
}

impl Seed<'_> {
    fn refuse<E: Error>(self, why: &'static str) -> E {
        self.budget.refusal.set(self.budget.refusal.get().or(Some(why)));
        E::custom(why)
    }

    fn spend<E: Error>(self, text: usize) -> Result<(), E> {
        let left = self.budget.left.get().checked_sub(NODE + text);
        self.budget.left.set(left.unwrap_or(0));
        left.map(|_left| ()).ok_or_else(|| self.refuse("with its aliases written out it is larger than 64 MiB"))
    }

    fn deeper<E: Error>(self) -> Result<Self, E> {
        if self.depth == DEEPEST {
            return Err(self.refuse("its values are nested deeper than 100"));
        }
        Ok(Self { depth: self.depth + 1, ..self })
    }

    fn key<E: Error>(self, key: Node) -> Result<String, E> {
        match key {
            Node::Text(text) => Ok(text),
            Node::Number(number) => Ok(number.to_string()),
            Node::Bool(value) => Ok(value.to_string()),
            Node::Null | Node::Binary(_) | Node::List(_) | Node::Map(_) => {
                Err(self.refuse("one of its keys is no text"))
            }
        }
    }

    /// Puts what `<<` names into the map. Of several maps the first counts.
    fn merge<E: Error>(self, merged: Node, into: &mut BTreeMap<String, Node>) -> Result<(), E> {
        match merged {
            Node::Map(map) => into.extend(map),
            Node::List(list) => {
                for node in list.into_iter().rev() {
                    let Node::Map(map) = node else { return Err(self.refuse("<< merges no map")) };
                    into.extend(map);
                }
            }
            Node::Null | Node::Bool(_) | Node::Number(_) | Node::Text(_) | Node::Binary(_) => {
                return Err(self.refuse("<< merges no map"));
            }
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Node;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Node;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value of YAML")
    }

    fn visit_unit<E: Error>(self) -> Result<Node, E> {
        self.spend(0).map(|()| Node::Null)
    }

    /// Visits an empty text.
    fn visit_none<E: Error>(self) -> Result<Node, E> {
        self.visit_unit()
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Node, E> {
        self.spend(0).map(|()| Node::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Node, E> {
        self.spend(0).map(|()| Node::Number(value.into()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Node, E> {
        self.spend(0).map(|()| Node::Number(value.into()))
    }

    fn visit_i128<E: Error>(self, _value: i128) -> Result<Node, E> {
        self.spend(0).map(|()| Node::Number(i64::MIN.into()))
    }

    fn visit_u128<E: Error>(self, _value: u128) -> Result<Node, E> {
        self.spend(0).map(|()| Node::Number(u64::MAX.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Node, E> {
        self.spend(0).map(|()| Number::from_f64(value).map_or(Node::Null, Node::Number))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Node, E> {
        self.spend(text.len())?;
        // Of a text that only has the word in it.
        Ok(Node::Text(if text.contains(SHOWN) { text.replace(SHOWN, "!!binary") } else { text.to_owned() }))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Node, A::Error> {
        self.spend(0)?;
        let below = self.deeper()?;
        let mut list = Vec::new();
        while let Some(node) = seq.next_element_seed(below)? {
            list.push(node);
        }
        Ok(Node::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Node, A::Error> {
        self.spend(0)?;
        let below = self.deeper()?;
        let mut map = BTreeMap::new();
        while let Some(key) = access.next_key_seed(below)? {
            let key = self.key(key)?;
            let node = access.next_value_seed(below)?;
            if key == "<<" {
                self.merge(node, &mut map)?;
            } else {
                map.insert(key, node);
            }
        }
        Ok(Node::Map(map))
    }

    fn visit_enum<A: EnumAccess<'de>>(self, access: A) -> Result<Node, A::Error> {
        let (tag, content) = access.variant_seed(self.deeper()?)?;
        let node = content.newtype_variant_seed(self.deeper()?)?;
        match (tag, node) {
            (Node::Text(tag), Node::Text(text)) if Some(tag.as_str()) == SHOWN.strip_prefix('!') => {
                let text: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
                STANDARD.decode(text).map(Node::Binary).map_err(|_error| self.refuse("its !!binary is not base64"))
            }
            (_, node) => Ok(node),
        }
    }
}
