//! JSON as YAML, for people: keys in the order they came, numbers digit for digit.
//!
//! YAML libraries read numbers into machine types and write them again, which turns `1.50` into `1.5` and `1e400` into
//! infinity. An object of the journal is shown as it is, so the JSON is walked here and its scalars are copied.

use std::borrow::Cow;
use std::fmt::Write as _;

use super::tree::{Body, Mark, Node};
use crate::core::terminal::{is_unprintable, json_text};

/// The YAML of a JSON text, with a line break at its end.
///
/// # Errors
/// Where it is not JSON.
pub(crate) fn from_json(json: &[u8]) -> Result<String, serde_json::Error> {
    let node = Node::parse(json)?;
    let mut out = String::with_capacity(json.len() * 2);
    for line in lines(&node, View::All) {
        out.push_str(&line.text);
        out.push('\n');
    }
    Ok(out)
}

/// Part of an object that is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum View {
    /// All of it, as it is.
    All,
    /// The changed values and their containers.
    Changes,
}

/// Sign of a line in a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sign {
    /// It is there before and after.
    Same,
    /// It came.
    Added,
    /// It went.
    Gone,
    /// It is another, which redaction does not show.
    Redacted,
}

impl Sign {
    /// Returns the prefix of a line in a difference.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Same => " ",
            Self::Added => "+",
            Self::Gone => "-",
            Self::Redacted => "~",
        }
    }
}

/// A line of YAML.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) sign: Sign,
    /// With its indentation. Nothing that a terminal obeys is in it.
    pub(crate) text: String,
    /// Index of the entry that set the value that begins on the line.
    pub(crate) origin: Option<usize>,
}

/// The lines of an object.
pub(crate) fn lines(node: &Node<'_>, view: View) -> Vec<Line> {
    let mut printer = Printer { view, out: Vec::new() };
    printer.value(String::new(), node, 0, Place::Top, Sign::Same);
    printer.out
}

/// Position of a node, which decides its prefix.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// At the top of the document.
    Top,
    /// After `key:`.
    Value,
    /// After `-`.
    Item,
}

struct Printer {
    view: View,
    out: Vec<Line>,
}

impl Printer {
    fn line(&mut self, sign: Sign, text: String, origin: Option<usize>) {
        self.out.push(Line { sign, text, origin });
    }

    /// Reports whether a value is left out: neither it nor its container changed.
    fn passes(&self, node: &Node<'_>, sign: Sign) -> bool {
        match self.view {
            View::All => matches!(node.mark, Mark::Gone),
            View::Changes => sign == Sign::Same && !node.differs(),
        }
    }

    /// A value after `head`, which is what stands on its line already.
    fn value(&mut self, head: String, node: &Node<'_>, depth: usize, place: Place, sign: Sign) {
        if self.view == View::All {
            return self.plain(head, node, depth, place, sign);
        }
        match &node.mark {
            Mark::Was(was) => {
                if let (Some(before), Some(after)) = (text_of(was), text_of(node))
                    && let (Some(header), true) = (block(&after), block(&before).is_some())
                    && place != Place::Top
                {
                    return self.text_difference(&format!("{head} {header}"), &before, &after, depth);
                }
                self.plain(head.clone(), was, depth, place, Sign::Gone);
                self.plain(head, node, depth, place, Sign::Added);
            }
            Mark::Added => self.plain(head, node, depth, place, Sign::Added),
            Mark::Gone => self.plain(head, node, depth, place, Sign::Gone),
            Mark::Redacted if !matches!(node.body, Body::Leaf(_)) => {
                self.line(Sign::Redacted, format!("{head}  # something redacted in it is another"), None);
            }
            Mark::Redacted => {
                self.plain(head, node, depth, place, Sign::Redacted);
                if let Some(line) = self.out.last_mut() {
                    line.text.push_str("  # another value, redacted");
                }
            }
            Mark::Same => self.plain(head, node, depth, place, sign),
        }
    }

    fn plain(&mut self, head: String, node: &Node<'_>, depth: usize, place: Place, sign: Sign) {
        let inline = |text: &str| if place == Place::Top { text.to_owned() } else { format!("{head} {text}") };
        match &node.body {
            Body::Object(members) if members.is_empty() => self.line(sign, inline("{}"), node.origin),
            Body::Array(items) if items.is_empty() => self.line(sign, inline("[]"), node.origin),
            Body::Object(members) => {
                let mut first = (place == Place::Item).then_some(head.clone());
                if place == Place::Value {
                    self.line(sign, head, None);
                }
                if let Some(head) = first.take_if(|_| self.view == View::Changes && sign == Sign::Same) {
                    // The element is shown by its name, whatever of it changed.
                    match node.named() {
                        Some((key, name)) if node.member(key).is_some_and(|name| !name.differs()) => {
                            self.line(sign, format!("{head} {key}: {}", scalar(&name)), None);
                        }
                        _ => self.line(sign, head, None),
                    }
                }
                for (key, node) in members {
                    if self.passes(node, sign) {
                        continue;
                    }
                    // The first key of an item stands on the line of its dash.
                    let lead = first.take().map_or_else(|| indent(depth), |head| head + " ");
                    // Lists stand under their key without further indentation, as kubectl prints them.
                    let deeper = if matches!(node.body, Body::Array(_)) { depth } else { depth + 1 };
                    self.value(format!("{lead}{}:", scalar(key)), node, deeper, Place::Value, sign);
                }
            }
            Body::Array(items) => {
                let mut first = (place == Place::Item).then_some(head.clone());
                if place == Place::Value {
                    self.line(sign, head, None);
                }
                for item in items {
                    if self.passes(item, sign) {
                        continue;
                    }
                    let lead = first.take().map_or_else(|| indent(depth), |head| head + " ");
                    self.value(format!("{lead}-"), item, depth + 1, Place::Item, sign);
                }
            }
            Body::Leaf(_) => {
                let text = node.text().unwrap_or_default();
                if !is_string(node) {
                    // Numbers, true, false and null are YAML as they are; so is JSON.
                    return self.line(sign, inline(&json_text(&text)), node.origin);
                }
                match block(&text) {
                    Some(header) if place != Place::Top => {
                        self.line(sign, format!("{head} {header}"), node.origin);
                        for line in text.trim_end_matches('\n').split('\n') {
                            self.text(sign, line, depth, node.origin);
                        }
                    }
                    _ => self.line(sign, inline(&scalar(&text)), node.origin),
                }
            }
        }
    }

    fn text(&mut self, sign: Sign, line: &str, depth: usize, origin: Option<usize>) {
        let text = if line.is_empty() { String::new() } else { indent(depth.max(1)) + line };
        self.line(sign, text, origin);
    }

    /// Two texts of several lines: the lines that differ, and those around them.
    fn text_difference(&mut self, head: &str, before: &str, after: &str, depth: usize) {
        self.line(Sign::Same, head.to_owned(), None);
        let diff = similar::TextDiff::from_lines(before, after);
        for (at, group) in diff.grouped_ops(CONTEXT).iter().enumerate() {
            if at > 0 {
                self.text(Sign::Same, "…", depth, None);
            }
            for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
                let sign = match change.tag() {
                    similar::ChangeTag::Equal => Sign::Same,
                    similar::ChangeTag::Delete => Sign::Gone,
                    similar::ChangeTag::Insert => Sign::Added,
                };
                self.text(sign, change.value().trim_end_matches('\n'), depth, None);
            }
        }
    }
}

/// Lines of a text that are shown around those that differ.
const CONTEXT: usize = 2;

fn is_string(node: &Node<'_>) -> bool {
    matches!(&node.body, Body::Leaf(json) if json.starts_with('"'))
}

fn text_of<'n>(node: &'n Node<'_>) -> Option<Cow<'n, str>> {
    is_string(node).then(|| node.text()).flatten()
}

fn indent(depth: usize) -> String {
    "  ".repeat(depth)
}

/// The header of a literal block, for a text of several lines that one can hold unchanged.
fn block(text: &str) -> Option<&'static str> {
    let body = text.trim_end_matches('\n');
    let plain = body.contains('\n')
        && !body.starts_with([' ', '\n'])
        && !body.contains(|c| c != '\n' && is_unprintable(c))
        && !body.split('\n').any(|line| line.ends_with(' '));
    match text.len() - body.len() {
        0 if plain => Some("|-"),
        1 if plain => Some("|"),
        _ => None,
    }
}

/// A text on one line: plain where every YAML reads it back as this very text, else in double quotes.
fn scalar(text: &str) -> Cow<'_, str> {
    if is_plain(text) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c if is_unprintable(c) => {
                let written = write!(out, "\\U{:08X}", u32::from(c));
                debug_assert!(written.is_ok(), "writing into memory does not fail");
            }
            c => out.push(c),
        }
    }
    out.push('"');
    Cow::Owned(out)
}

/// YAML 1.1 and 1.2 give many unquoted words a meaning (`yes`, `1.0`, `0x1f`, `12:30`, `2026-11-21`), so only what
/// begins with a letter or a slash, and is none of those words, goes without quotes.
fn is_plain(text: &str) -> bool {
    const WORDS: [&str; 10] = ["y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan"];
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/')
        && !text.ends_with([' ', ':'])
        && text.chars().all(|c| c.is_ascii_alphanumeric() || " -_./:@+=,;()<>$%^*&!~".contains(c))
        && !text.contains(": ")
        && !WORDS.iter().any(|word| text.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn yaml(json: &str) -> String {
        from_json(json.as_bytes()).unwrap()
    }

    #[test]
    fn an_object_reads_as_kubectl_prints_it() {
        insta::assert_snapshot!(
            yaml(r#"{"kind":"Pod","metadata":{"name":"web","labels":{},"z":null},"spec":{"containers":[{"image":"nginx:1.2","args":["-c","/etc/x"],"ports":[]},{"image":"b"}],"n":1.50,"big":1e400,"huge":123456789012345678901234567890},"data":{"a.yaml":"x: 1\ny:\n  - 2\n","b":"one\ntwo"},"m":[[1,2],[]]}"#),
            @r#"
        kind: Pod
        metadata:
          name: web
          labels: {}
          z: null
        spec:
          containers:
          - image: nginx:1.2
            args:
            - "-c"
            - /etc/x
            ports: []
          - image: b
          "n": 1.50
          big: 1e400
          huge: 123456789012345678901234567890
        data:
          a.yaml: |
            x: 1
            y:
              - 2
          b: |-
            one
            two
        m:
        - - 1
          - 2
        - []
        "#
        );
    }

    #[test]
    fn texts_that_look_like_something_else_are_quoted() {
        for text in [
            "1.0",
            "yes",
            "NO",
            "null",
            "0x1f",
            "12:30",
            "2026-11-21",
            "~",
            "",
            " a",
            "a ",
            "- a",
            "a: b",
            "a #b",
            "#",
            "key:",
            "1e3",
            ".inf",
            "=",
            "<<",
            "@x",
            "`x",
            "'x",
            "*x",
            "&x",
            "!x",
            "%x",
            "|",
            ">",
        ] {
            let json = serde_json::to_string(&[text]).unwrap();
            assert_eq!(yaml(&json), format!("- \"{text}\"\n"));
        }
        assert_eq!(
            yaml(r#"{"a":"\u001b[2J\u009b","\u202e":1}"#),
            "a: \"\\U0000001B[2J\\U0000009B\"\n\"\\U0000202E\": 1\n"
        );
    }

    fn json() -> impl Strategy<Value = serde_json::Value> {
        let text =
            prop_oneof!["[a-z:/ #\\-\n]{0,12}", any::<String>(), "(yes|no|on|1|1\\.0|~|null)\n{0,2}", "[ \n\tx]{0,8}"];
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            text.clone().prop_map(Into::into),
        ];
        leaf.prop_recursive(5, 60, 6, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Into::into),
                prop::collection::vec((text.clone(), inner), 0..5)
                    .prop_map(|members| { serde_json::Value::Object(members.into_iter().collect()) }),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_back_as_it_was(value in json()) {
            let printed = yaml(&value.to_string());
            let read: serde_json::Value = serde_yaml_ng::from_str(&printed)
                .map_err(|error| TestCaseError::fail(format!("{error}:\n{printed}")))?;
            prop_assert_eq!(read, value, "{}", printed);
            prop_assert!(!printed.contains(|c| c != '\n' && is_unprintable(c)));
        }
    }
}
