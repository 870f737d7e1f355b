//! Fields that an Application tells Argo CD to ignore: `spec.ignoreDifferences`.

use serde_json::Value;

use super::hands::Named;
use super::owned::is_within;
use crate::core::k8s::managed_fields::Manager;
use crate::core::spelling::glob;
use crate::query::render::path::path;

/// Answer for one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ignored {
    Yes,
    No,
    /// An expression that is not read may cover it.
    Unread(String),
}

/// Tells whether an Application ignores a field of an object that is owned by these managers.
pub(crate) fn ignores(application: &Value, named: Named<'_>, pointer: &str, owners: &[Manager]) -> Ignored {
    let rules = application.pointer("/spec/ignoreDifferences").and_then(Value::as_array).into_iter().flatten();
    let mut unread = None;
    for rule in rules.filter(|rule| is_about(rule, named)) {
        let texts =
            |name: &str| rule.get(name).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
        if texts("jsonPointers").any(|one| is_within(pointer, one.trim_end_matches('/')))
            || texts("managedFieldsManagers").any(|one| owners.iter().any(|owner| owner.manager == one))
        {
            return Ignored::Yes;
        }
        for text in texts("jqPathExpressions") {
            match plain(text).and_then(|text| path(&text).ok()) {
                Some(pattern) if pattern.covers(pointer) => return Ignored::Yes,
                Some(_) => {}
                None => unread = Some(text.to_owned()),
            }
        }
    }
    unread.map_or(Ignored::No, Ignored::Unread)
}

fn is_about(rule: &Value, named: Named<'_>) -> bool {
    let text = |name: &str| rule.get(name).and_then(Value::as_str).unwrap_or_default();
    let is_all_or = |name: &str, value: &str| text(name).is_empty() || text(name) == value;
    let is_like = |pattern: &str, text: &str| glob::fits(pattern, text, |one, other| one == other);
    is_like(text("group"), named.group)
        && is_like(text("kind"), named.kind)
        && is_all_or("name", named.name)
        && is_all_or("namespace", named.namespace)
}

/// Returns a path of jq that names fields alone, `.spec.containers[]?.image` or `.metadata.labels["a.b"]`, in kubectl's spelling;
/// none for every other expression.
fn plain(text: &str) -> Option<String> {
    let text = text.trim();
    let is_path = text.starts_with('.') && text.chars().all(|c| c.is_ascii_alphanumeric() || "._-/[]\"'?~".contains(c));
    if !is_path {
        return None;
    }
    let mut plain = String::new();
    let mut is_open = false;
    let mut chars = text.replace("[]", "[*]").replace('?', "").chars().collect::<Vec<_>>().into_iter().peekable();
    while let Some(c) = chars.next() {
        match c {
            // `."a.b"` and `.["a.b"]` are `["a.b"]`.
            '.' if !is_open && chars.peek() == Some(&'"') => {
                let name: String = chars.by_ref().skip(1).take_while(|c| *c != '"').collect();
                plain.push_str(&format!("[\"{name}\"]"));
            }
            '.' if !is_open && chars.peek() == Some(&'[') => {}
            '"' => {
                is_open = !is_open;
                plain.push(c);
            }
            other => plain.push(other),
        }
    }
    Some(plain)
}
