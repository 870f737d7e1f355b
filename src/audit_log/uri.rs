//! URI of a request, and the name that managedFields give its sender.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

/// Most bytes of a manager's name (`FieldManagerMaxLength` of apimachinery).
const MANAGER_MAX: usize = 128;

/// Parameters of a URI that say something of a write.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Query {
    /// `fieldManager`.
    pub(super) manager: String,
    /// True if `dryRun` has a value.
    pub(super) dry_run: bool,
    /// True if `force` is there, whatever its value is: the API server refuses it of every patch but an apply.
    pub(super) force: bool,
    /// `labelSelector`.
    pub(super) label_selector: String,
    /// `fieldSelector`.
    pub(super) field_selector: String,
}

/// Reads the query as Go does: the first value of each parameter counts, and a pair with a semicolon or a wrong escape does not. Who
/// writes `dryRun=%zz` has asked for no dry run.
pub(super) fn query(uri: &str) -> Query {
    let mut found = Query::default();
    let (mut manager, mut label, mut field) = (None, None, None);
    let pairs = uri.split_once('?').map_or("", |(_, query)| query);
    for pair in pairs.split('&').filter(|pair| !pair.contains(';')) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let Some((key, value)) = decoded(key).zip(decoded(value)) else { continue };
        match &*key {
            "fieldManager" => _ = manager.get_or_insert(value),
            "labelSelector" => _ = label.get_or_insert(value),
            "fieldSelector" => _ = field.get_or_insert(value),
            "dryRun" => found.dry_run |= !value.is_empty(),
            "force" => found.force = true,
            _ => {}
        }
    }
    found.manager = manager.unwrap_or_default();
    found.label_selector = label.unwrap_or_default();
    found.field_selector = field.unwrap_or_default();
    found
}

/// Returns a text without its escapes; none where one of them is wrong.
fn decoded(text: &str) -> Option<String> {
    let is_escape = |rest: &str| rest.len() > 1 && rest.bytes().take(2).all(|byte| byte.is_ascii_hexdigit());
    if !text.split('%').skip(1).all(is_escape) {
        return None;
    }
    let spaced: Cow<'_, str> = if text.contains('+') { text.replace('+', " ").into() } else { text.into() };
    Some(percent_decode_str(&spaced).decode_utf8_lossy().into_owned())
}

/// Returns the name that the API server takes of a user agent where no `fieldManager` is given: what stands before the first
/// `/`, without what cannot be printed, and at most 128 bytes of it (`prefixFromUserAgent` in apiserver's `create.go`).
pub(super) fn manager_of(agent: &str) -> String {
    let mut name = String::new();
    for c in agent.split('/').next().unwrap_or_default().chars() {
        if c.is_control() || c.is_whitespace() && c != ' ' {
            continue;
        }
        if name.len() + c.len_utf8() > MANAGER_MAX {
            break;
        }
        name.push(c);
    }
    name
}
