//! Texts that Kubernetes has a grammar for: resources as kubectl spells them, namespaces, selectors.

use std::collections::BTreeMap;
use std::fmt;

use super::{Format, Text, Wrong, glob, is_dns_label, nearest, text_schema, text_value};

/// The formats of these texts.
pub const FORMATS: &[Format] = &[
    Format {
        name: "resource",
        expected: "a resource as kubectl spells it, PLURAL or PLURAL.GROUP, or a wildcard: \"*\", \"*.GROUP\"",
        check: resource,
    },
    Format {
        name: "namespace",
        expected: "the name of a namespace: at most 63 lower-case letters, digits and \"-\"",
        check: namespace,
    },
    Format::of::<NamespacePattern>(),
    Format::of::<LabelSelector>(),
    Format {
        name: "field-selector",
        expected: "a field selector such as \"metadata.name=web,status.phase!=Running\"",
        check: field_selector,
    },
];

/// For the JSON Schema: a resource as kubectl spells it.
pub struct ResourceText;
text_schema!(ResourceText, "resource");

/// For the JSON Schema: the name of a namespace.
pub struct NamespaceText;
text_schema!(NamespaceText, "namespace");

/// The name of a namespace, or a pattern of names: `*` stands for any run of characters, `?` for one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamespacePattern(String);

impl NamespacePattern {
    /// Reports whether it is the name of a single namespace.
    #[must_use]
    pub fn is_name(&self) -> bool {
        !self.0.contains(['*', '?'])
    }

    /// Reports whether it is the name of this namespace, or fits it.
    #[must_use]
    pub fn covers(&self, namespace: &str) -> bool {
        glob::fits(&self.0, namespace, |wanted, byte| wanted == b'?' || wanted == byte)
    }
}

impl fmt::Display for NamespacePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Text for NamespacePattern {
    const FORMAT: &'static str = "namespace-pattern";
    const EXPECTED: &'static str =
        "the name of a namespace, or a pattern such as \"ci-*\": * stands for any characters, ? for one";

    fn read(text: &str) -> Result<Self, Wrong> {
        let is_right = |text: &str| is_dns_label(&text.replace(['*', '?'], "x"));
        if !text.is_empty() && text.bytes().all(|byte| byte == b'*') {
            return Err(format!("the string {text:?}, which leaves out every namespace").into());
        }
        if is_right(text) {
            return Ok(Self(text.to_owned()));
        }
        let wrong = Wrong::from(format!("the string {text:?}"));
        let mended = text.trim().to_lowercase().replace('_', "-");
        Err(if is_right(&mended) { wrong.near(mended) } else { wrong })
    }
}

text_value!(NamespacePattern);

fn resource(text: &str) -> Result<(), Wrong> {
    let (plural, group) = text.split_once('.').map_or((text, None), |(plural, group)| (plural, Some(group)));
    let right = (plural == "*" || is_dns_label(&plural.to_ascii_lowercase()))
        && group.is_none_or(|group| group == "*" || is_dns_subdomain(&group.to_ascii_lowercase()));
    if right {
        return Ok(());
    }
    let wrong = Wrong::from(format!("the string {text:?}"));
    // apps/v1/deployments and apps/deployments are what people who read API paths write.
    let parts: Vec<&str> = text.split('/').collect();
    let mended = match parts.as_slice() {
        [group, plural] | [group, _, plural] if group.contains('.') || !plural.contains('.') => {
            format!("{plural}.{group}")
        }
        _ => return Err(wrong),
    };
    Err(if resource(&mended).is_ok() { wrong.near(mended) } else { wrong })
}

fn namespace(text: &str) -> Result<(), Wrong> {
    if is_dns_label(text) {
        return Ok(());
    }
    let wrong = Wrong::from(format!("the string {text:?}"));
    if text == "*" {
        return Err(Wrong { nearest: Some("[] (no namespaces means all of them)".to_owned()), ..wrong });
    }
    let mended = text.trim().to_lowercase().replace('_', "-");
    Err(if is_dns_label(&mended) { wrong.near(mended) } else { wrong })
}

/// DNS labels with dots between them, at most 253 characters.
pub(crate) fn is_dns_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_dns_label)
}

/// Reports whether a text is a label value of Kubernetes: at most 63 of letters, digits, `-`, `_`, `.`, alphanumeric at both
/// ends; may be empty.
fn is_label_value(text: &str) -> bool {
    let alphanumeric_at = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    text.is_empty()
        || (text.len() <= 63
            && alphanumeric_at(text.chars().next())
            && alphanumeric_at(text.chars().last())
            && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')))
}

fn label_key(text: &str) -> Result<(), Wrong> {
    let (prefix, name) = text.split_once('/').map_or((None, text), |(prefix, name)| (Some(prefix), name));
    if prefix.is_some_and(|prefix| !is_dns_subdomain(prefix)) {
        return Err(format!("the label key {text:?}, whose prefix is no DNS name").into());
    }
    if name.is_empty() || !is_label_value(name) {
        return Err(format!("the label key {text:?}").into());
    }
    Ok(())
}

fn label_value(text: &str) -> Result<(), Wrong> {
    if is_label_value(text) { Ok(()) } else { Err(format!("the label value {text:?}").into()) }
}

/// A label selector: requirements all of which must hold. Without any it takes everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelSelector(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    value: Value,
}

/// Requirement on the value of a label.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Value {
    Any,
    None,
    In(Vec<String>),
    /// Holds without the label as well.
    NotIn(Vec<String>),
    Less(i64),
    Greater(i64),
}

impl LabelSelector {
    /// Reports whether it selects an object with these labels.
    #[must_use]
    pub fn takes(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.iter().all(|Requirement { key, value }| {
            let label = labels.get(key);
            let number = || label.and_then(|label| label.parse::<i64>().ok());
            match value {
                Value::Any => label.is_some(),
                Value::None => label.is_none(),
                Value::In(values) => label.is_some_and(|label| values.contains(label)),
                Value::NotIn(values) => label.is_none_or(|label| !values.contains(label)),
                Value::Less(bound) => number().is_some_and(|number| number < *bound),
                Value::Greater(bound) => number().is_some_and(|number| number > *bound),
            }
        })
    }
}

impl Text for LabelSelector {
    const FORMAT: &'static str = "label-selector";
    const EXPECTED: &'static str = "a label selector such as \"tier=web,env in (prod,qa),!legacy\"";

    /// Kubernetes' grammar: requirements with commas between them; an empty text takes everything.
    fn read(text: &str) -> Result<Self, Wrong> {
        if text.trim().is_empty() {
            return Ok(Self(Vec::new()));
        }
        let mut depth = 0_u32;
        let mut start = 0;
        let mut requirements = Vec::new();
        for (at, c) in text.char_indices() {
            match c {
                '(' => depth += 1,
                ')' => depth = depth.checked_sub(1).ok_or_else(|| format!("{text:?}: a \")\" without its \"(\""))?,
                ',' if depth == 0 => {
                    requirements.push(&text[start..at]);
                    start = at + 1;
                }
                _ => {}
            }
        }
        if depth > 0 {
            return Err(format!("{text:?}: a \"(\" without its \")\"").into());
        }
        requirements.push(&text[start..]);
        let requirements = requirements.into_iter().map(|requirement| label_requirement(requirement.trim()));
        requirements.collect::<Result<_, _>>().map(Self)
    }
}

fn label_requirement(text: &str) -> Result<Requirement, Wrong> {
    if text.is_empty() {
        return Err("an empty requirement (a comma too many)".into());
    }
    let requirement = |key: &str, value: Value| Ok(Requirement { key: key.to_owned(), value });
    if let Some(key) = text.strip_prefix('!') {
        label_key(key.trim())?;
        return requirement(key.trim(), Value::None);
    }
    let (key, rest) = text.split_at(text.find([' ', '=', '!', '<', '>', '(', '\t']).unwrap_or(text.len()));
    label_key(key)?;
    let rest = rest.trim();
    if rest.is_empty() {
        return requirement(key, Value::Any);
    }
    for operator in ["==", "!=", "="] {
        if let Some(value) = rest.strip_prefix(operator) {
            label_value(value.trim())?;
            let value = vec![value.trim().to_owned()];
            return requirement(key, if operator == "!=" { Value::NotIn(value) } else { Value::In(value) });
        }
    }
    if let Some(number) = rest.strip_prefix(['<', '>']) {
        let number = number.trim();
        return match number.parse() {
            Ok(bound) => {
                requirement(key, if rest.starts_with('<') { Value::Less(bound) } else { Value::Greater(bound) })
            }
            Err(_) => Err(format!("{number:?} where a number belongs").into()),
        };
    }
    let word = rest.split([' ', '(', '\t']).next().unwrap_or_default();
    if !matches!(word, "in" | "notin") {
        let wrong = Wrong::from(format!("the operator {word:?} in {text:?} (operators: =, ==, !=, in, notin, <, >)"));
        let nearest = nearest(word, ["in", "notin"]).or_else(|| (word == "not").then(|| "notin".to_owned()));
        return Err(Wrong { nearest, ..wrong });
    }
    let list = rest[word.len()..].trim();
    let Some(list) = list.strip_prefix('(').and_then(|list| list.strip_suffix(')')) else {
        return Err(format!("{text:?}: no list in parentheses after {word:?}").into());
    };
    let values: Vec<String> = list.split(',').map(|value| value.trim().to_owned()).collect();
    values.iter().try_for_each(|value| label_value(value))?;
    requirement(key, if word == "in" { Value::In(values) } else { Value::NotIn(values) })
}

/// Kubernetes' grammar: `KEY=VALUE`, `==` or `!=`, with commas between; `\` escapes a comma, an equals sign, a backslash.
fn field_selector(text: &str) -> Result<(), Wrong> {
    if text.trim().is_empty() {
        return Ok(());
    }
    if let Some(odd) = text.chars().find(|c| c.is_control()) {
        return Err(format!("{text:?} with the character {odd:?}, which no field has").into());
    }
    let mut requirements = vec![String::new()];
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        let last = requirements.last_mut().expect("there is always a requirement");
        match c {
            // An escaped character is no operator: any letter stands for it here.
            '\\' => match chars.next() {
                Some(',' | '=' | '\\') => last.push('x'),
                other => {
                    let after = other.map_or_else(|| "the end".to_owned(), |c| format!("{c:?}"));
                    return Err(format!("{text:?}: a backslash before {after}").into());
                }
            },
            ',' => requirements.push(String::new()),
            c => last.push(c),
        }
    }
    for requirement in requirements {
        let requirement = requirement.trim();
        if requirement.is_empty() {
            return Err(format!("{text:?}: an empty requirement (a comma too many)").into());
        }
        let operator = requirement.find(['=', '!']).map(|at| requirement.split_at(at));
        let Some((key, rest)) = operator else {
            let word = requirement.split_whitespace().nth(1).unwrap_or_default();
            let hint = if matches!(word, "in" | "notin") { ": field selectors have no sets" } else { "" };
            return Err(format!("{requirement:?} without =, == or !={hint}").into());
        };
        if key.trim().is_empty() {
            return Err(format!("{requirement:?} without a field").into());
        }
        let value = rest.strip_prefix("!=").or_else(|| rest.strip_prefix("==")).or_else(|| rest.strip_prefix('='));
        match value {
            None => return Err(format!("{requirement:?} without =, == or !=").into()),
            Some(value) if value.contains('=') => {
                return Err(format!("{requirement:?} with an = in its value, which has to be written \\=").into());
            }
            Some(_) => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_selector_takes_what_kubernetes_takes() {
        let labels: BTreeMap<String, String> =
            [("app", "web"), ("tier", "front"), ("n", "7")].map(|(key, value)| (key.into(), value.into())).into();
        let takes = |text: &str| LabelSelector::read(text).unwrap().takes(&labels);
        for text in [
            "",
            "app",
            "!gone",
            "app=web",
            "app == web",
            "app!=api",
            "gone!=x",
            "app in (api, web)",
            "app notin (api)",
            "gone notin (x)",
            "app in (web),tier=front,!gone",
            "n>6",
            "n < 8",
        ] {
            assert!(takes(text), "{text:?} holds");
        }
        for text in [
            "gone",
            "!app",
            "app=api",
            "app!=web",
            "app in (api)",
            "app notin (web,api)",
            "app,tier=back",
            "n>7",
            "app<8",
        ] {
            assert!(!takes(text), "{text:?} does not hold");
        }
    }
}
