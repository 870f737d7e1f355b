//! LIST: pages of one consistent snapshot.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::faults::{Endless, EndlessPage, EndlessToken, Lie, Refusal};
use super::object::{Content, Form, Kind, Object, Row};
use super::resources::Served;
use super::selector::Selector;
use super::store::{Storage, Store};

/// About how much is rendered at a time.
pub(super) const BATCH: usize = 64 * 1024;

/// The query of a LIST or WATCH.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Options {
    pub(super) label_selector: String,
    pub(super) field_selector: String,
    pub(super) resource_version: String,
    pub(super) resource_version_match: String,
    pub(super) limit: String,
    #[serde(rename = "continue")]
    pub(super) token: String,
    pub(super) watch: String,
    pub(super) allow_watch_bookmarks: String,
    pub(super) send_initial_events: String,
    pub(super) timeout_seconds: String,
}

/// Go's idea of a boolean in a query: `watch` and `watch=1` are true.
pub(super) fn is_true(text: &str) -> bool {
    matches!(text, "1" | "true" | "True" | "TRUE" | "t" | "T")
}

impl Options {
    pub(super) fn selector(&self, served: &Served) -> Result<Selector, Refusal> {
        let has_namespace = served.resource.namespaced || !served.custom;
        Selector::parse(&served.resource.plural, has_namespace, &self.label_selector, &self.field_selector)
    }

    /// The revision asked for: `None` where there is none, 0 for any.
    pub(super) fn revision(&self) -> Result<Option<u64>, Refusal> {
        if self.resource_version.is_empty() {
            return Ok(None);
        }
        self.resource_version.parse().map(Some).map_err(|_| {
            let text = &self.resource_version;
            Refusal::bad_request(format!(
                "resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
            ))
        })
    }
}

/// A continue token, as the API server writes it. `rv` -1 is the inconsistent kind.
#[derive(Debug, Serialize, Deserialize)]
struct Token {
    v: String,
    rv: i64,
    start: String,
}

impl Token {
    fn write(revision: i64, after: &str) -> String {
        let token = Self { v: "meta.k8s.io/v1".to_owned(), rv: revision, start: format!("{after}\u{0}") };
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(&token).unwrap_or_default())
    }

    fn read(text: &str) -> Result<(i64, String), Refusal> {
        let wrong = || Refusal::bad_request(format!("continue key is not valid: {text}"));
        let bytes = URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).map_err(|_| wrong())?;
        let token: Self = serde_json::from_slice(&bytes).map_err(|_| wrong())?;
        if token.v != "meta.k8s.io/v1" || token.rv == 0 {
            return Err(wrong());
        }
        Ok((token.rv, token.start.trim_end_matches('\u{0}').to_owned()))
    }
}

/// What a fault makes of one list.
#[derive(Clone, Debug, Default)]
pub(super) struct Twist {
    /// See [`Act::Lie`](super::faults::Act::Lie).
    pub(super) lie: Option<Lie>,
    /// See [`Act::Extra`](super::faults::Act::Extra).
    pub(super) extra: Vec<Bytes>,
}

/// How this server answers lists, where servers differ.
#[derive(Clone, Debug)]
pub(super) struct Manner {
    /// See [`Settings`](super::Settings).
    pub(super) exact: bool,
    pub(super) snapshots: bool,
    pub(super) future_is_internal: bool,
    pub(super) counts: bool,
    pub(super) twist: Twist,
}

/// A LIST that has to be answered, or has to wait for a revision in the future.
pub(super) enum Decided {
    Pages(Pages),
    Later(u64),
}

/// The number of the objects that a page leaves out, as it is said.
fn counted(lie: Option<Lie>, left: usize) -> Option<usize> {
    match lie {
        Some(Lie::Miscount(by)) => Some(left.saturating_add_signed(by)),
        Some(Lie::NoCount) => None,
        Some(Lie::Newest | Lie::Shifted(_) | Lie::Endless(_)) | None => Some(left).filter(|left| *left > 0),
    }
}

impl Endless {
    /// Puts on a page, and into its metadata, what makes the list endless.
    fn write(&self, served: &Served, revision: u64, token: &str, page: &mut Vec<Arc<Row>>, metadata: &mut String) {
        match self.page {
            EndlessPage::Same => {}
            EndlessPage::Empty => page.clear(),
            EndlessPage::New(objects, bytes) => {
                let first = EndlessToken::page(token) * objects as u64;
                let numbers = first..first + objects as u64;
                *page = numbers.map(|number| invented(served, revision, number, bytes)).collect();
            }
        }
        metadata.push_str(&format!(r#","continue":"{}""#, self.token.after(token, revision)));
        if let Some(left) = self.left {
            metadata.push_str(&format!(r#","remainingItemCount":{left}"#));
        }
    }
}

/// Reports whether exactly the version is asked for.
fn is_exact(options: &Options, asked: Option<u64>, limit: usize, exact: bool) -> Result<bool, Refusal> {
    Ok(match (options.resource_version_match.as_str(), asked) {
        _ if !options.send_initial_events.is_empty() => {
            return Err(Refusal::invalid_options(
                "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list",
            ));
        }
        ("", _) if !options.token.is_empty() && asked.is_some_and(|revision| revision > 0) => {
            return Err(Refusal::bad_request("specifying resource version is not allowed when using continue"));
        }
        ("", Some(revision)) => limit > 0 && revision > 0,
        ("", None) => false,
        (_, _) if !options.token.is_empty() => {
            return Err(Refusal::invalid_options(
                "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided",
            ));
        }
        (_, None) => {
            return Err(Refusal::invalid_options(
                "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
            ));
        }
        ("Exact", Some(0)) => {
            return Err(Refusal::invalid_options(
                "resourceVersionMatch: Forbidden: resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
            ));
        }
        ("Exact", Some(_)) => exact,
        ("NotOlderThan", Some(_)) => false,
        (other, Some(_)) => {
            return Err(Refusal::invalid_options(&format!(
                "resourceVersionMatch: Unsupported value: {other:?}: supported values: \"Exact\", \"NotOlderThan\", \"\""
            )));
        }
    })
}

/// Returns the revision of a list that goes on, and the key behind which it does.
fn continued(token: &str, newest: u64, compacted: u64) -> Result<(u64, String), Refusal> {
    let (revision, start) = Token::read(token)?;
    match u64::try_from(revision) {
        // The inconsistent token: whatever there is now.
        Err(_) => Ok((newest, start)),
        Ok(revision) if revision < compacted || revision > newest => {
            Err(Refusal { token: Some(Token::write(-1, &start)), ..too_old_token() })
        }
        Ok(revision) => Ok((revision, start)),
    }
}

/// Fills a page, and counts what is left out. etcd knows no selectors: keys behind a full page are more to come, whether they match or
/// not.
fn fill<'a>(
    rows: impl Iterator<Item = &'a Arc<Row>>,
    limit: usize,
    selector: &Selector,
    storage: Option<&Storage>,
) -> Result<(Vec<Arc<Row>>, usize), Refusal> {
    let (mut page, mut left) = (Vec::new(), 0);
    for row in rows {
        if page.len() == limit {
            left += 1;
            continue;
        }
        storage.map_or(Ok(()), |storage| storage.read(row))?;
        if selector.matches(row) {
            page.push(Arc::clone(row));
        }
    }
    Ok((page, left))
}

/// Decides a LIST: the table of resourceVersion, resourceVersionMatch, limit and continue.
pub(super) fn decide(
    store: &Store,
    served: &Served,
    namespace: Option<&str>,
    options: &Options,
    metadata_only: bool,
    manner: Manner,
) -> Result<Decided, Refusal> {
    let selector = options.selector(served)?;
    let asked = options.revision()?;
    let limit: usize = options.limit.parse().unwrap_or(0);
    let exact = is_exact(options, asked, limit, manner.exact)?;
    let asked = asked.filter(|_| manner.twist.lie != Some(Lie::Newest));
    let etcd = store.etcd(&served.storage);
    // The one object of a name is looked up by its key, where the path says enough to know it.
    let name = selector.name().filter(|_| namespace.is_some() || !served.resource.namespaced);
    let oldest = if manner.snapshots && name.is_none() { 0 } else { etcd.compacted };
    let mut start = String::new();
    let endless = if let Some(Lie::Endless(endless)) = manner.twist.lie { Some(endless) } else { None };
    let revision = if endless.is_some() {
        EndlessToken::revision(&options.token).unwrap_or(etcd.revision)
    } else if options.token.is_empty() {
        match asked {
            Some(revision) if exact && manner.future_is_internal && revision > etcd.revision => {
                return Err(Refusal::future_revision());
            }
            Some(revision) if revision > etcd.revision => return Ok(Decided::Later(revision)),
            Some(revision) if exact && revision < oldest => {
                return Err(Refusal::new(410, "Expired", "The resourceVersion for the provided list is too old."));
            }
            Some(revision) if exact => revision,
            Some(_) | None => etcd.revision,
        }
    } else {
        let (revision, after) = continued(&options.token, etcd.revision, oldest)?;
        start = after;
        revision
    };
    let limit = if asked == Some(0) || limit == 0 { usize::MAX } else { limit };
    let state = match manner.twist.lie {
        Some(Lie::Shifted(by)) => revision.saturating_add_signed(by),
        Some(Lie::Newest | Lie::NoCount | Lie::Miscount(_) | Lie::Endless(_)) | None => revision,
    };
    // What a cache has lost shows where etcd answers: for exact lists of one name, and of all where there are no snapshots.
    let from_etcd = (exact || !options.token.is_empty()) && (name.is_some() || !manner.snapshots);
    let rows = store
        .storage(&served.storage)
        .into_iter()
        .flat_map(|storage| storage.listed(state, &start, from_etcd))
        .filter(|row| namespace.is_none_or(|namespace| *row.namespace == *namespace))
        .filter(|row| name.is_none_or(|name| *row.name == *name));
    let storage = store.storage(&served.storage);
    let is_cached = !exact && options.token.is_empty() && asked.is_some() || limit == usize::MAX;
    if let Some(storage) = storage.filter(|_| is_cached) {
        storage.cached()?;
    }
    let (mut page, left) = fill(rows, limit, &selector, storage)?;
    let mut metadata = format!(r#""resourceVersion":"{revision}""#);
    if let Some(endless) = endless {
        endless.write(served, revision, &options.token, &mut page, &mut metadata);
    } else if let (true, Some(last)) = (left > 0, page.last()) {
        let token = Token::write(i64::try_from(revision).unwrap_or(i64::MAX), &last.key());
        metadata.push_str(&format!(r#","continue":"{token}""#));
    }
    let extra = if name.is_none() { manner.twist.extra } else { Vec::new() };
    let left = if left > 0 { left + extra.len() } else { 0 };
    let count = counted(manner.twist.lie, left);
    // Of keys that may not match the real server gives no number.
    if let Some(count) = count.filter(|_| endless.is_none() && manner.counts && selector.is_empty()) {
        metadata.push_str(&format!(r#","remainingItemCount":{count}"#));
    }
    let kind = format!("{}List", served.resource.kind);
    let (kind, version) = if metadata_only {
        ("PartialObjectMetadataList", "meta.k8s.io/v1".to_owned())
    } else {
        (kind.as_str(), served.resource.api_version())
    };
    let head = format!(r#"{{"kind":"{kind}","apiVersion":"{version}","metadata":{{{metadata}}},"items":["#);
    let item_head = (served.custom && !metadata_only).then(|| served.head());
    Ok(Decided::Pages(Pages {
        head: Some(head),
        item_head,
        metadata_only,
        rows: page.into_iter(),
        extra: if left == 0 { extra } else { Vec::new() },
        any: false,
        over: false,
    }))
}

/// An object that never existed. Its text is one that no compression makes small.
fn invented(served: &Served, revision: u64, number: u64, bytes: usize) -> Arc<Row> {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let text: String = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        format!("{state:016x}")
    })
    .take(bytes / 16)
    .collect();
    let (name, uid) = (format!("invented-{number}"), format!("invented-uid-{number}"));
    let metadata = serde_json::json!({ "name": name, "namespace": "shop", "uid": uid });
    let object = Object::from(serde_json::json!({ "metadata": metadata, "data": { "text": text } }));
    Arc::new(Row {
        revision,
        kind: Kind::Added,
        resource: served.storage.as_str().into(),
        namespace: "shop".into(),
        name: name.into(),
        uid: uid.into(),
        time: crate::core::runtime::now(),
        content: Content::Kept(object.render(&served.head(), revision)),
    })
}

fn too_old_token() -> Refusal {
    Refusal::new(
        410,
        "Expired",
        "The provided continue parameter is too old to display a consistent list result. You can start a new list \
         without the continue parameter, or use the continue token in this response to retrieve the remainder of the \
         results. Continuing with the provided token results in an inconsistent list - objects that were created, \
         modified, or deleted between the time the first chunk was returned and now may show up in the list.",
    )
}

/// The body of a LIST, rendered while it is sent.
pub(super) struct Pages {
    head: Option<String>,
    item_head: Option<String>,
    metadata_only: bool,
    rows: std::vec::IntoIter<Arc<Row>>,
    /// What a fault puts behind them.
    extra: Vec<Bytes>,
    any: bool,
    over: bool,
}

impl Pages {
    /// The next piece: about 64 KiB, or the head, one item or the tail.
    pub(super) fn next(&mut self, one_item: bool) -> Option<Bytes> {
        if self.over {
            return None;
        }
        let mut out = Vec::with_capacity(if one_item { 8 * 1024 } else { BATCH + 16 * 1024 });
        if let Some(head) = self.head.take() {
            out.extend_from_slice(head.as_bytes());
        }
        let most = if one_item { 1 } else { BATCH };
        let form = match &self.item_head {
            _ if self.metadata_only => Form::Metadata,
            Some(head) => Form::Whole(head),
            None => Form::Item,
        };
        while out.len() < most {
            let Some(row) = self.rows.next() else {
                for item in std::mem::take(&mut self.extra) {
                    out.extend_from_slice(if self.any { b"," } else { b"" });
                    out.extend_from_slice(&item);
                    self.any = true;
                }
                out.extend_from_slice(b"]}\n");
                self.over = true;
                break;
            };
            if self.any {
                out.push(b',');
            }
            self.any = true;
            row.write(&mut out, form);
        }
        Some(out.into())
    }
}

/// How long the real server waits for a revision in the future, unless the settings say less.
pub(super) const TOO_LARGE_WAIT: Duration = Duration::from_secs(3);
