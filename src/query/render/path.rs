//! Paths into an object, as people write them: `.spec.replicas`, `/spec/replicas`, `image`.

use serde_json::value::RawValue;

use super::tree::{Body, Node, pointer};
use crate::core::change::Pattern;
use crate::core::json::pointer::push_segment;
use crate::core::model::EntryType;
use crate::core::wire::{Change, Entry, Op};

/// A path: kubectl's spelling, a JSON pointer, or a field's name alone, wherever it stands. `*` stands for other
/// characters, and `[*]` for every element of a list.
///
/// # Errors
/// What is expected instead.
pub(crate) fn path(text: &str) -> Result<Pattern, String> {
    let inner = text.strip_prefix('{').and_then(|text| text.strip_suffix('}')).unwrap_or(text);
    let inner = inner.strip_prefix('$').unwrap_or(inner);
    if inner.starts_with('/') {
        return Pattern::parse(inner);
    }
    let mut pointer = String::new();
    if !inner.contains(['.', '[']) {
        pointer.push_str("/**");
    }
    for segment in segments(inner).ok_or_else(|| {
        format!("{text:?} is no path; expected .spec.replicas, .spec.template.spec.containers[*].image, /spec/replicas or image")
    })? {
        push_segment(&mut pointer, &segment);
    }
    Pattern::parse(&pointer)
}

/// An object, as KIND/NAME or KIND NAME, and the paths after it.
///
/// # Errors
/// What is wrong with a path.
pub(crate) fn object_and_paths(object: &str, words: &[String]) -> Result<(String, Vec<Pattern>), String> {
    let is_path = |word: &str| word.starts_with(['.', '/', '{', '$']);
    let (object, paths) = match words {
        [name, rest @ ..] if !object.contains('/') && !is_path(name) => (format!("{object}/{name}"), rest),
        _ => (object.to_owned(), words),
    };
    Ok((object, paths.iter().map(|text| path(text)).collect::<Result<_, _>>()?))
}

/// Returns a JSON pointer in kubectl's spelling: `.spec.replicas`.
pub(crate) fn spelled(pointer: &str) -> String {
    let mut text = String::new();
    for name in pointer.split('/').skip(1) {
        let name = name.replace("~1", "/").replace("~0", "~");
        if name == "*" || name.bytes().all(|byte| byte.is_ascii_digit()) {
            text.push_str(&format!("[{name}]"));
        } else {
            text.push_str(&format!(".{}", name.replace('.', "\\.")));
        }
    }
    text
}

/// The names between dots and brackets, at least one; nothing where one is empty or a bracket stays open.
fn segments(text: &str) -> Option<Vec<String>> {
    let (mut segments, mut name) = (Vec::new(), String::new());
    let mut chars = text.strip_prefix('.').unwrap_or(text).chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' => name.push(chars.next()?),
            '.' => segments.push(std::mem::take(&mut name)),
            '[' => {
                if !name.is_empty() {
                    segments.push(std::mem::take(&mut name));
                }
                let mut inside = String::new();
                loop {
                    match chars.next()? {
                        ']' => break,
                        other => inside.push(other),
                    }
                }
                let quoted = |quote: char| inside.strip_prefix(quote).and_then(|text| text.strip_suffix(quote));
                name = quoted('\'').or_else(|| quoted('"')).unwrap_or(&inside).to_owned();
                if name.starts_with('?') || !matches!(chars.peek(), None | Some('.' | '[')) {
                    return None;
                }
            }
            other => name.push(other),
        }
    }
    segments.push(name);
    segments.iter().all(|segment| !segment.is_empty()).then_some(segments)
}

/// Takes out every value that no path covers.
pub(crate) fn prune(node: &mut Node<'_>, paths: &[Pattern]) {
    keep(node, paths, &mut String::new());
}

/// Removes all but the paths. Reports whether anything is left.
fn keep(node: &mut Node<'_>, paths: &[Pattern], at: &mut String) -> bool {
    if covered(paths, at) {
        return true;
    }
    let length = at.len();
    let mut below = |name: &str, node: &mut Node<'_>| {
        push_segment(at, name);
        let kept = keep(node, paths, at);
        at.truncate(length);
        kept
    };
    match &mut node.body {
        Body::Object(members) => {
            members.retain_mut(|(name, node)| below(name, node));
            !members.is_empty()
        }
        Body::Array(items) => {
            let mut place = 0_usize;
            items.retain_mut(|node| {
                place += 1;
                below(&(place - 1).to_string(), node)
            });
            !items.is_empty()
        }
        Body::Leaf(_) => false,
    }
}

/// Reports whether one of these paths covers the place.
pub(crate) fn covered(paths: &[Pattern], at: &str) -> bool {
    paths.iter().any(|path| path.covers(at))
}

/// Reports whether an entry changed a value that the path covers. An object that was added or deleted changed all of its
/// values, and a gap may hide any change.
pub(crate) fn touches(line: &[u8], path: &Pattern) -> bool {
    let Ok(entry) = Entry::parse(line) else { return false };
    match entry.op {
        EntryType::Gap => return true,
        EntryType::Actor => return false,
        EntryType::Added | EntryType::Modified | EntryType::Deleted => {}
    }
    match (Change::of(&entry), entry.object) {
        (Ok(Some(change)), _) => {
            let shown =
                |op: &Op<'_>| [op.value, op.was].into_iter().flatten().any(|value| holds(value, &op.path, path));
            // Of a value that redaction drops nothing but its area shows that it changed.
            change.patch.iter().any(shown) || change.dropped().any(|area| path.leads_into(area))
        }
        (Ok(None), Some(object)) => holds(object, "", path),
        (Ok(None), None) | (Err(_), _) => false,
    }
}

/// Reports whether the value at a place holds something that the path covers.
fn holds(value: &RawValue, at: &str, path: &Pattern) -> bool {
    path.covers(at)
        || Node::parse(value.get().as_bytes())
            .is_ok_and(|node| node.leaves().iter().any(|leaf| path.covers(&format!("{at}{}", pointer(&leaf.path)))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_read_in_each_of_its_spellings() {
        for (text, pointer) in [
            (".spec.replicas", "/spec/replicas"),
            ("spec.replicas", "/spec/replicas"),
            ("{.spec.replicas}", "/spec/replicas"),
            ("$.spec.replicas", "/spec/replicas"),
            ("/spec/replicas", "/spec/replicas"),
            ("image", "/**/image"),
            (".image", "/image"),
            (".spec.containers[0].image", "/spec/containers/0/image"),
            (".spec.containers[*].image", "/spec/containers/*/image"),
            (".metadata.annotations['a.b/c']", "/metadata/annotations/a.b~1c"),
            (".metadata.annotations[\"a.b\"].x", "/metadata/annotations/a.b/x"),
            (".metadata.annotations.a\\.b/c", "/metadata/annotations/a.b~1c"),
            (".data.*password*", "/data/*password*"),
        ] {
            assert_eq!(path(text).map(|path| path.to_string()).as_deref(), Ok(pointer), "{text}");
        }
        for pointer in
            ["/spec/replicas", "/spec/containers/0/image", "/a/*/b", "/metadata/annotations/a.b~1c", "/data/x~0y"]
        {
            assert_eq!(path(&spelled(pointer)).unwrap().to_string(), pointer);
        }
        for text in ["", ".", "..spec", ".spec.", ".a[", ".a[0]b", ".a[?(@.name=='x')].b", "/a/~2"] {
            assert!(path(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_object_is_followed_by_paths() {
        let read = |text: &str| {
            let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
            let (object, paths) = object_and_paths(&words[0], &words[1..]).unwrap();
            [vec![object], paths.iter().map(ToString::to_string).collect()].concat().join(" ")
        };
        for (text, expected) in [
            ("deploy/web", "deploy/web"),
            ("deploy web", "deploy/web"),
            ("deploy web .spec", "deploy/web /spec"),
            ("deploy/web image .spec", "deploy/web /**/image /spec"),
            ("deploy .spec", "deploy /spec"),
        ] {
            assert_eq!(read(text), expected, "{text}");
        }
    }

    #[test]
    fn what_a_path_does_not_cover_is_taken_out() {
        let pruned = |json: &str, text: &str| {
            let mut node = Node::parse(json.as_bytes()).unwrap();
            prune(&mut node, &[path(text).unwrap()]);
            node.json()
        };
        let json =
            r#"{"spec":{"replicas":3,"containers":[{"name":"a","image":"x"},{"name":"b","image":"y"}]},"status":{}}"#;
        assert_eq!(pruned(json, ".spec.replicas"), r#"{"spec":{"replicas":3}}"#);
        assert_eq!(pruned(json, ".spec.containers[1]"), r#"{"spec":{"containers":[{"name":"b","image":"y"}]}}"#);
        assert_eq!(pruned(json, "image"), r#"{"spec":{"containers":[{"image":"x"},{"image":"y"}]}}"#);
        assert_eq!(pruned(json, ".status"), r#"{"status":{}}"#);
        assert_eq!(pruned(json, ".nothing"), "{}");
    }
}
