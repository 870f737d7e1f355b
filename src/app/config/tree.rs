//! A configuration before it has types: TOML values that remember where they were written.

use toml::de::{DeTable, DeValue};

use super::problem::{Problem, SourceSpan};

/// A value and where it was written.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Node {
    pub(super) place: SourceSpan,
    pub(super) value: Value,
}

/// A value of TOML.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Text(String),
    Integer(i64),
    Boolean(bool),
    /// A value that no key takes: a float, a date, an integer beyond 64 bits. It keeps its spelling and its type.
    Other(&'static str, String),
    List(Vec<Node>),
    Table(Vec<Member>),
}

/// A key of a table.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Member {
    pub(super) key: String,
    pub(super) place: SourceSpan,
    pub(super) node: Node,
}

impl Node {
    /// The member of this name, where this is a table that has it.
    pub(super) fn get(&self, key: &str) -> Option<&Self> {
        match &self.value {
            Value::Table(members) => members.iter().find(|member| member.key == key).map(|member| &member.node),
            Value::Text(_) | Value::Integer(_) | Value::Boolean(_) | Value::Other(..) | Value::List(_) => None,
        }
    }

    /// The elements, where this is an array.
    pub(super) fn elements(&self) -> &[Self] {
        match &self.value {
            Value::List(nodes) => nodes,
            Value::Text(_) | Value::Integer(_) | Value::Boolean(_) | Value::Other(..) | Value::Table(_) => &[],
        }
    }

    /// The text, where this is one.
    pub(super) fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            Value::Integer(_) | Value::Boolean(_) | Value::Other(..) | Value::List(_) | Value::Table(_) => None,
        }
    }

    /// Returns the description of the value in a message. Keys that may hold a secret show the type alone.
    pub(super) fn described(&self, secret: bool) -> String {
        match &self.value {
            Value::Text(_) if secret => "a string".to_owned(),
            Value::Text(text) => format!("the string {text:?}"),
            Value::Integer(_) if secret => "an integer".to_owned(),
            Value::Integer(number) => format!("the integer {number}"),
            Value::Boolean(value) => format!("the boolean {value}"),
            Value::Other(kind, _) if secret => (*kind).to_owned(),
            Value::Other(kind, text) => format!("{kind}, {text}"),
            Value::List(_) => "an array".to_owned(),
            Value::Table(_) => "a table".to_owned(),
        }
    }

    /// The same value without places, for serde.
    pub(super) fn to_json(&self) -> serde_json::Value {
        match &self.value {
            Value::Text(text) | Value::Other(_, text) => text.as_str().into(),
            Value::Integer(number) => (*number).into(),
            Value::Boolean(value) => (*value).into(),
            Value::List(nodes) => nodes.iter().map(Self::to_json).collect(),
            Value::Table(members) => {
                serde_json::Value::Object(members.iter().map(|m| (m.key.clone(), m.node.to_json())).collect())
            }
        }
    }
}

/// Reads TOML. What can be read of a broken file is read, so that its other problems are reported too.
pub(super) fn parse(text: &str) -> (Node, Vec<Problem>) {
    let lines = Lines::new(text);
    let (table, errors) = DeTable::parse_recoverable(text);
    let mut problems: Vec<Problem> = errors
        .iter()
        .map(|error| {
            let message = error.message();
            let (found, expected) = message.split_once(", expected ").unwrap_or((message, "valid TOML"));
            let near = error.span().and_then(|span| text.get(span)).filter(|near| !near.trim().is_empty());
            let place = error.span().map_or(SourceSpan::Whole, |span| lines.place(span.start));
            Problem {
                key: place.line().map(|line| key_of_line(text, line)).unwrap_or_default(),
                place,
                // A piece of a broken line may be a piece of a secret: only punctuation is shown.
                found: match near.filter(|near| near.chars().all(|c| c.is_ascii_punctuation()) && near.len() < 9) {
                    Some(near) => format!("{found} at {near:?}"),
                    None => found.to_owned(),
                },
                expected: match found {
                    "string values must be quoted" => "quotes around the text".to_owned(),
                    "duplicate key" => "each key once in a table".to_owned(),
                    _ => expected.to_owned(),
                },
                nearest: None,
            }
        })
        .collect();
    // A slip early in a line makes what follows look wrong as well.
    problems.sort_by_cached_key(|problem| order(&problem.place));
    problems.dedup_by_key(|problem| problem.place.line());
    (Node { place: SourceSpan::Whole, value: lines.table(table.get_ref()) }, problems)
}

/// Returns the error for a text in another language than TOML.
pub(super) fn other_language(text: &str) -> Option<Problem> {
    let (at, first) = text.lines().enumerate().find(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'))?;
    let key = first.split_once(':').map(|(key, rest)| (key.trim(), rest.is_empty() || rest.starts_with(' ')));
    let bare = |key: &str| key.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-\"'".contains(&b));
    let language = match key {
        _ if first.trim_start().starts_with('{') => "JSON",
        _ if first.trim_end() == "---" => "YAML",
        Some((key, true)) if bare(key) => "YAML",
        _ => return None,
    };
    Some(Problem {
        place: SourceSpan::File { line: at + 1, column: 1 },
        key: String::new(),
        found: format!("what looks like {language}"),
        expected: "TOML, such as [[watch]] on a line and resources = [\"pods\"] on the next".to_owned(),
        nearest: None,
    })
}

/// The lines between a broken header and the next one: nobody knows which table they are of.
pub(super) fn below_headers(text: &str, broken: &[Option<usize>]) -> Vec<Option<usize>> {
    let mut homeless = Vec::new();
    let mut lost = false;
    for (at, line) in text.lines().enumerate() {
        let line_number = Some(at + 1);
        if line.trim_start().starts_with('[') {
            lost = broken.contains(&line_number);
        } else if lost {
            homeless.push(line_number);
        }
    }
    homeless
}

/// The path of the key that a line sets, as far as a text that is not TOML shows it.
fn key_of_line(text: &str, line: usize) -> String {
    let bare = |key: &str| !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b));
    let before: Vec<&str> = text.lines().take(line).collect();
    let Some(key) = before.last().and_then(|line| line.split_once('=')).map(|(key, _)| key.trim()).filter(|k| bare(k))
    else {
        return String::new();
    };
    let header = before.iter().rev().map(|line| line.trim()).find(|line| line.starts_with('['));
    match header.map(|header| (header, header.trim_matches(['[', ']']).trim())).filter(|(_, name)| bare(name)) {
        Some((header, name)) if header.starts_with("[[") => {
            let index = before.iter().filter(|line| line.trim() == header).count() - 1;
            format!("{name}[{index}].{key}")
        }
        Some((_, name)) => format!("{name}.{key}"),
        None => key.to_owned(),
    }
}

/// Reads one TOML value out of an environment variable.
pub(super) fn parse_value(text: &str, place: &SourceSpan) -> Option<Node> {
    let value = DeValue::parse(text).ok()?;
    let mut node = Lines::new(text).node(value.get_ref(), place.clone());
    fn at(node: &mut Node, place: &SourceSpan) {
        node.place = place.clone();
        match &mut node.value {
            Value::List(nodes) => nodes.iter_mut().for_each(|node| at(node, place)),
            Value::Table(members) => members.iter_mut().for_each(|member| {
                member.place = place.clone();
                at(&mut member.node, place);
            }),
            Value::Text(_) | Value::Integer(_) | Value::Boolean(_) | Value::Other(..) => {}
        }
    }
    at(&mut node, place);
    Some(node)
}

/// Turns byte offsets into lines and columns.
struct Lines<'t> {
    text: &'t str,
    starts: Vec<usize>,
}

impl<'t> Lines<'t> {
    fn new(text: &'t str) -> Self {
        let starts = std::iter::once(0).chain(memchr::memchr_iter(b'\n', text.as_bytes()).map(|at| at + 1)).collect();
        Self { text, starts }
    }

    fn place(&self, offset: usize) -> SourceSpan {
        let line = self.starts.partition_point(|start| *start <= offset);
        let start = self.starts[line - 1];
        let column = self.text.get(start..offset).map_or(1, |before| before.chars().count() + 1);
        SourceSpan::File { line, column }
    }

    fn table(&self, table: &DeTable<'_>) -> Value {
        let mut members: Vec<Member> = table
            .iter()
            .map(|(key, value)| Member {
                key: key.get_ref().to_string(),
                place: self.place(key.span().start),
                node: self.node(value.get_ref(), self.place(value.span().start)),
            })
            .collect();
        members.sort_by_key(|member| order(&member.place));
        Value::Table(members)
    }

    fn node(&self, value: &DeValue<'_>, place: SourceSpan) -> Node {
        let value = match value {
            DeValue::String(text) => Value::Text(text.to_string()),
            DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
                .map_or_else(|_| Value::Other("an integer beyond 64 bits", number.to_string()), Value::Integer),
            DeValue::Float(number) => Value::Other("a float", number.to_string()),
            DeValue::Boolean(value) => Value::Boolean(*value),
            DeValue::Datetime(time) => Value::Other("a date or time", time.to_string()),
            DeValue::Array(values) => {
                Value::List(values.iter().map(|v| self.node(v.get_ref(), self.place(v.span().start))).collect())
            }
            DeValue::Table(table) => self.table(table),
        };
        Node { place, value }
    }
}

/// Sorts places as a person reads them: the file from its top, then the environment.
pub(super) fn order(place: &SourceSpan) -> (usize, usize, usize, String) {
    match place {
        SourceSpan::Whole => (0, 0, 0, String::new()),
        SourceSpan::File { line, column } => (1, *line, *column, String::new()),
        SourceSpan::Environment(name) => (2, 0, 0, name.clone()),
    }
}
