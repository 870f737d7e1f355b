//! Writing the `change` member of an entry: areas, a patch (RFC 6902) and managers.

use std::borrow::Cow;
use std::collections::BTreeSet;

use crate::core::json::one_line;
use crate::core::json::pointer::unescape;
use crate::core::json::tree::{Id, Kind, Tree, View};
use crate::core::k8s::bookkeeping::{DELETION, GENERATION, RESOURCE_VERSION, is_of_managed_fields};
use crate::core::k8s::managed_fields::{self, Books, By};

/// The member of an object that says who it is.
pub(super) const METADATA: &str = "/metadata";

/// Bytes beside the values themselves that a patch may have before a container is replaced as a whole.
pub(super) const ROOM: usize = 16 << 10;

/// The whole member, of operations with a comma after each, which `operations` appends: so many bytes about.
pub(super) fn change(areas: &[String], managers: &[u8], bytes: usize, operations: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut json = Vec::with_capacity(bytes + managers.len() + 128);
    json.extend_from_slice(b"{\"areas\":");
    write_json(&mut json, areas);
    json.extend_from_slice(b",\"patch\":[");
    operations(&mut json);
    json.pop_if(|byte| *byte == b',');
    for part in [b"],\"managers\":[", managers, b"]}"] {
        json.extend_from_slice(part);
    }
    String::from_utf8(one_line(json)).expect("it is made of parts of valid texts")
}

/// The area that a value below metadata or another top-level member belongs to; resourceVersion is in none.
pub(super) fn area_of(path: &str) -> Option<Cow<'_, str>> {
    let first = |path: &'_ str| path.bytes().position(|byte| byte == b'/').unwrap_or(path.len());
    if let Some(name) = path.strip_prefix(METADATA).and_then(|rest| rest.strip_prefix('/')) {
        return metadata_area(&name[..first(name)]).map(Cow::Borrowed);
    }
    let name = &path[1..];
    let name = &name[..first(name)];
    Some(unescape(name).unwrap_or(Cow::Borrowed(name)))
}

/// The area that a member of metadata belongs to; resourceVersion is none.
pub(super) fn metadata_area(name: &str) -> Option<&'static str> {
    match name {
        "resourceVersion" => None,
        "managedFields" => Some("managedFields"),
        _ => Some("metadata"),
    }
}

/// Adds one to what is sorted.
pub(super) fn insert(areas: &mut Vec<String>, area: &str) {
    if let Err(position) = areas.binary_search_by(|known| known.as_str().cmp(area)) {
        areas.insert(position, area.to_owned());
    }
}

/// With a comma after it.
pub(super) fn write_operation(out: &mut Vec<u8>, name: &str, path: &str, value: Option<&[u8]>, was: Option<&[u8]>) {
    out.extend_from_slice(b"{\"op\":\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\",\"path\":");
    write_json(out, path);
    for (key, text) in [(",\"value\":", value), (",\"was\":", was)] {
        if let Some(text) = text {
            out.extend_from_slice(key.as_bytes());
            out.extend_from_slice(text);
        }
    }
    out.extend_from_slice(b"},");
}

/// Writes a move, as [`write_operation`] does: a value changed its position.
pub(super) fn write_move(out: &mut Vec<u8>, from: &str, path: &str) {
    out.extend_from_slice(b"{\"op\":\"move\",\"from\":");
    write_json(out, from);
    out.extend_from_slice(b",\"path\":");
    write_json(out, path);
    out.extend_from_slice(b"},");
}

/// Writes whom an entry of managedFields belongs to, as entries have it, and how it is known that they made the change.
/// Nobody checks what stands there, so only texts are written. Writes nothing where the entry says nothing.
fn write_manager(out: &mut Vec<u8>, tree: View<'_, '_>, entry: Id, by: By) {
    let mut separator = if out.is_empty() { "{" } else { ",{" };
    for name in ["manager", "operation", "subresource", "time"] {
        let Some(id) = tree.member(entry, name).filter(|&id| tree.kind(id) == Kind::String) else { continue };
        let value = tree.bytes(id);
        if name == "subresource" && value == b"\"\"" {
            continue;
        }
        out.extend_from_slice(separator.as_bytes());
        write_json(out, name);
        out.push(b':');
        if value.contains(&b'\\') {
            // An escape may stand for what no text can hold.
            write_json(out, &*tree.string(id));
        } else {
            out.extend_from_slice(value);
        }
        separator = ",";
    }
    if separator == "," {
        out.extend_from_slice(format!(",\"by\":\"{}\"}}", by.as_str()).as_bytes());
    }
}

/// Number of changed values whose owner is looked up.
const ASKED: usize = 8;

/// Writes those who made a change, as entries have them. `wrote` are the entries of managedFields that moved with it.
/// Where none did, the writer is among the owners of what is there now: each write owns all that it sets. What the API
/// server itself sets has no owner, and no entry shows who removed what another had. A DELETE request is in no entry: what else
/// changes with it (the phase of a Namespace) is not its owner's doing.
pub(super) fn managers(new: &mut Tree<'_>, wrote: &[Id], set: &[impl AsRef<str>]) -> Vec<u8> {
    let mut out = Vec::new();
    if !wrote.is_empty() {
        wrote.iter().for_each(|&entry| write_manager(&mut out, new.view(), entry, By::Moved));
        return out;
    }
    if set.iter().any(|path| DELETION.contains(&path.as_ref())) {
        return out;
    }
    let paths: Vec<_> = set.iter().filter_map(|path| managed_fields::steps(new, path.as_ref())).collect();
    if paths.is_empty() {
        return out;
    }
    let entries = managed_fields::read(new);
    let books = Books::of(new.view(), entries);
    let owners = |path: &Vec<_>| {
        books.owners(path, |set, step| books.below(set, |key| managed_fields::leads(new.view(), step, key)))
    };
    let mut owners: Vec<Vec<Id>> = paths.iter().map(owners).filter(|owners| !owners.is_empty()).collect();
    owners.sort_by_key(Vec::len);
    let Some((first, others)) = owners.split_first() else { return out };
    let of_all: Vec<Id> = first.iter().filter(|id| others.iter().all(|of| of.contains(id))).copied().collect();
    // Several writes in one change, or what the API server changed of what somebody has.
    let any = || owners.concat().into_iter().collect::<BTreeSet<Id>>().into_iter().collect();
    let named: Vec<Id> = if of_all.is_empty() { any() } else { of_all };
    named.iter().for_each(|&entry| write_manager(&mut out, new.view(), entry, By::Owner));
    out
}

/// Notes that a value was set, where its owner may have set it.
pub(super) fn note<'p, P: From<&'p str>>(set: &mut Vec<P>, path: &'p str) {
    let counts = path != RESOURCE_VERSION && path != GENERATION && !is_of_managed_fields(path);
    if counts && (set.len() < ASKED || DELETION.contains(&path)) {
        set.push(path.into());
    }
}

fn write_json<T: serde::Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    serde_json::to_writer(out, value).expect("strings always serialise into memory");
}
