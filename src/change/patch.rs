//! Writing the `change` member of an entry: areas, a patch (RFC 6902) and managers.

use std::borrow::Cow;

use crate::json::one_line;
use crate::json::pointer::unescape;
use crate::json::tree::{Id, View};

/// The member of an object that says who it is.
pub(super) const METADATA: &str = "/metadata";

/// What may stand beside the values themselves before a container is replaced as a whole.
pub(super) const ROOM: usize = 16 << 10;

/// The whole member, of operations with a comma after each.
pub(super) fn change(areas: &[String], patch: &[u8], managers: &[u8]) -> String {
    let mut json = Vec::with_capacity(patch.len() + managers.len() + 128);
    json.extend_from_slice(b"{\"areas\":");
    write_json(&mut json, areas);
    let patch = patch.strip_suffix(b",").unwrap_or(patch);
    for part in [b",\"patch\":[", patch, b"],\"managers\":[", managers, b"]}"] {
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

/// Writes whom an entry of managedFields belongs to, as entries have it. Returns whether there was anything to write.
pub(super) fn write_manager(out: &mut Vec<u8>, tree: View<'_, '_>, entry: Id, first: bool) -> bool {
    let mut separator = if first { "{" } else { ",{" };
    for name in ["manager", "operation", "subresource", "time"] {
        let Some(value) = tree.member(entry, name).map(|id| tree.bytes(id)) else { continue };
        if name == "subresource" && value == b"\"\"" {
            continue;
        }
        out.extend_from_slice(separator.as_bytes());
        write_json(out, name);
        out.push(b':');
        out.extend_from_slice(value);
        separator = ",";
    }
    let any = separator == ",";
    if any {
        out.push(b'}');
    }
    any
}

fn write_json<T: serde::Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    serde_json::to_writer(out, value).expect("strings always serialise into memory");
}
