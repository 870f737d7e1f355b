//! Cuts what arrives into lines (a watch) and into items (a list), with a bound on each.
//!
//! Both take chunks with borders anywhere and give out whole pieces only: the rest of a line that a broken connection
//! leaves is dropped with the [`Lines`], and a list that breaks off has an envelope that does not parse.

mod outline;

use bytes::{Bytes, BytesMut};

use outline::Outline;

use crate::core::json::scan;

/// A buffer that has grown beyond this is given back once what it was needed for is taken.
const KEEP: usize = 64 << 10;

/// A piece is longer than the bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Oversize;

/// Cuts a stream into lines. A line that arrived in one chunk is a part of that chunk, and is copied nowhere.
#[derive(Debug)]
pub struct Lines {
    /// The beginning of a line whose end has not come.
    begun: BytesMut,
    /// Bytes that arrived and are not taken yet.
    chunk: Bytes,
    limit: usize,
}

impl Lines {
    /// Lines of at most `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { begun: BytesMut::new(), chunk: Bytes::new(), limit }
    }

    /// Takes what arrived, after [`Lines::take`] has given all that came before.
    pub fn push(&mut self, chunk: Bytes) {
        debug_assert!(self.chunk.is_empty(), "whole lines are left of what arrived before");
        self.chunk = chunk;
    }

    /// Returns the length of the incomplete line.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.begun.len()
    }

    /// The next whole line, without its end. Empty lines are no lines.
    ///
    /// # Errors
    /// Where the line is longer than the bound; nothing after it can be had.
    pub fn take(&mut self) -> Result<Option<Bytes>, Oversize> {
        loop {
            let found = memchr::memchr(b'\n', &self.chunk);
            let length = self.begun.len() + found.unwrap_or(self.chunk.len());
            if length > self.limit {
                return Err(Oversize);
            }
            let Some(found) = found else {
                self.begun.extend_from_slice(&std::mem::take(&mut self.chunk));
                return Ok(None);
            };
            let end = self.chunk.split_to(found + 1);
            let mut line = if self.begun.is_empty() {
                end
            } else {
                self.begun.extend_from_slice(&end);
                // All of it is given away: otherwise what follows would keep the memory of this line.
                std::mem::take(&mut self.begun).freeze()
            };
            line.truncate(line.strip_suffix(b"\r\n").map_or(length, <[u8]>::len));
            if !line.trim_ascii().is_empty() {
                return Ok(Some(line));
            }
        }
    }
}

/// Returns the identity of an object that does not decode, as an object of those members alone: the ones that are whole texts.
#[must_use]
pub fn outline(object: &[u8]) -> Vec<u8> {
    Outline::of(object)
}

/// An item of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// The item as it came.
    Whole(&'a [u8]),
    /// It is longer than the bound: only what names it, as an object of that alone.
    Outline(&'a [u8]),
}

/// Cuts a list into its items, and the *envelope*: the document with an empty array where the items were.
///
/// It distinguishes strings, escapes and nesting, and nothing else. Whether the pieces are JSON is for the decoder to
/// find, and every byte is in one of them.
#[derive(Debug)]
pub struct Items {
    envelope: Vec<u8>,
    item: Vec<u8>,
    /// The item is longer than the bound.
    outline: Option<Outline>,
    limit: usize,
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// Start of the newest string at depth 1 of the envelope.
    string: usize,
    /// State of the search for the key `items` and its colon.
    key: Key,
    in_items: bool,
    /// A comma stands before what comes: an item has to follow.
    owed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    Other,
    Items,
    ItemsAndColon,
}

impl Items {
    /// Items, and an envelope, of at most `limit` bytes each. Of longer items only what names them is given out; up to a chunk more of one
    /// is held for a moment.
    #[must_use]
    pub const fn new(limit: usize) -> Self {
        Self {
            envelope: Vec::new(),
            item: Vec::new(),
            outline: None,
            limit,
            depth: 0,
            in_string: false,
            escaped: false,
            string: 0,
            key: Key::Other,
            in_items: false,
            owed: false,
        }
    }

    /// Returns the length of the incomplete item.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.item.len()
    }

    /// Takes what arrived and hands every item that it completes to `each`.
    ///
    /// # Errors
    /// Where the envelope is longer than the bound, and those of `each`.
    pub fn push<E: From<Oversize>>(
        &mut self,
        chunk: &[u8],
        mut each: impl FnMut(Item<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut rest = chunk;
        loop {
            if self.in_items && self.outline.is_none() {
                let (inside, left) = rest.split_at(self.item_part(rest));
                rest = left;
                self.item.extend_from_slice(inside);
                self.bound_item();
            }
            let Some(byte) = rest.first().copied() else { return Ok(()) };
            let span = self.span(rest);
            let (taken, left) = rest.split_at(span);
            rest = left;
            if self.in_items {
                self.take_item(byte, taken, &mut each)?;
            } else {
                self.envelope.extend_from_slice(taken);
                self.take_envelope(byte);
            }
            if self.envelope.len() > self.limit {
                return Err(Oversize.into());
            }
        }
    }

    /// Returns the number of bytes before the end of the item, or all of them, and follows what is in them.
    fn item_part(&mut self, rest: &[u8]) -> usize {
        let mut at = 0;
        loop {
            if self.in_string {
                if self.escaped && at < rest.len() {
                    self.escaped = false;
                    at += 1;
                }
                let Some(found) = scan::quote_or_backslash(&rest[at..]) else { return rest.len() };
                at += found;
                self.escaped = rest[at] == b'\\';
                self.in_string = self.escaped;
                at += 1;
            }
            let Some(byte) = rest.get(at) else { return at };
            match byte {
                _ if self.in_string => continue,
                b'"' => self.in_string = true,
                b',' | b']' if self.depth == 0 => return at,
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
            at += 1;
        }
    }

    /// Keeps of an item that is longer than the bound what names it.
    fn bound_item(&mut self) {
        if self.item.len() > self.limit {
            let mut outline = Outline::default();
            outline.push(&std::mem::take(&mut self.item));
            self.outline = Some(outline);
        }
    }

    /// Returns the number of bytes that can be taken at once: all of a string before its next quote or escape, or one.
    fn span(&self, rest: &[u8]) -> usize {
        if self.in_string && !self.escaped {
            memchr::memchr2(b'"', b'\\', rest).unwrap_or(rest.len()).max(1)
        } else if self.in_string || rest.first().is_none_or(|byte| is_structural(*byte)) {
            1
        } else {
            rest.iter().position(|byte| is_structural(*byte)).unwrap_or(rest.len())
        }
    }

    /// Follows strings. Returns whether `byte` is outside of them.
    fn outside_of_strings(&mut self, byte: u8) -> bool {
        if !self.in_string {
            self.in_string = byte == b'"';
            return true;
        }
        if self.escaped {
            self.escaped = false;
        } else {
            match byte {
                b'\\' => self.escaped = true,
                b'"' => self.in_string = false,
                _ => {}
            }
        }
        false
    }

    fn take_envelope(&mut self, byte: u8) {
        let was_in_string = self.in_string;
        if !self.outside_of_strings(byte) {
            if was_in_string && !self.in_string && self.depth == 1 {
                let text = self.envelope.get(self.string..).unwrap_or_default();
                self.key = if text == br#""items""# { Key::Items } else { Key::Other };
            }
            return;
        }
        match byte {
            b'"' => self.string = self.envelope.len() - 1,
            b'[' if self.depth == 1 && self.key == Key::ItemsAndColon => {
                self.in_items = true;
                self.key = Key::Other;
                self.depth = 0;
            }
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            b':' if self.key == Key::Items => self.key = Key::ItemsAndColon,
            _ if byte.is_ascii_whitespace() => {}
            _ => self.key = Key::Other,
        }
    }

    fn take_item<E>(
        &mut self,
        byte: u8,
        taken: &[u8],
        each: &mut impl FnMut(Item<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let outside = self.outside_of_strings(byte);
        if outside && self.depth == 0 && matches!(byte, b',' | b']') {
            if byte == b']' {
                self.in_items = false;
                self.depth = 1;
                self.envelope.push(b']');
            }
            let owed = std::mem::replace(&mut self.owed, byte == b',');
            let item = self.item.trim_ascii();
            if let Some(outline) = self.outline.take() {
                each(Item::Outline(&outline.finish()))?;
            } else if byte == b',' || owed || !item.is_empty() {
                each(Item::Whole(item))?;
            }
            self.item.clear();
            self.item.shrink_to(KEEP);
            return Ok(());
        }
        // What is not beyond the bound was taken as a whole.
        if let Some(outline) = &mut self.outline {
            outline.push(taken);
        }
        if outside {
            match byte {
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
        }
        Ok(())
    }

    /// The document around the items.
    #[must_use]
    pub fn envelope(&self) -> &[u8] {
        &self.envelope
    }
}

/// Reports whether a byte outside of strings can change the state.
const fn is_structural(byte: u8) -> bool {
    matches!(byte, b'"' | b'{' | b'}' | b'[' | b']' | b',' | b':')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::value::RawValue;

    use super::*;

    fn lines(limit: usize, chunks: &[&[u8]]) -> (Vec<String>, bool) {
        let mut framer = Lines::new(limit);
        let mut found = Vec::new();
        for chunk in chunks {
            framer.push(Bytes::copy_from_slice(chunk));
            loop {
                match framer.take() {
                    Ok(Some(line)) => found.push(String::from_utf8_lossy(&line).into_owned()),
                    Ok(None) => break,
                    Err(Oversize) => return (found, true),
                }
            }
        }
        (found, false)
    }

    #[test]
    fn the_rest_of_a_broken_line_is_no_line() {
        assert_eq!(lines(99, &[b"{\"a\":1}\n{\"b\"", b":2"]).0, ["{\"a\":1}"]);
    }

    #[test]
    fn a_line_in_one_chunk_is_not_copied() {
        let chunk = Bytes::from_static(b"ab\ncd\r\nef");
        let mut lines = Lines::new(99);
        lines.push(chunk.clone());
        for part in [0..2, 3..5] {
            let line = lines.take().unwrap().unwrap();
            assert_eq!(line.as_ptr(), chunk[part.clone()].as_ptr());
            assert_eq!(line, chunk[part]);
        }
        assert_eq!((lines.take(), lines.pending()), (Ok(None), 2));
    }

    #[test]
    fn line_ends_of_every_kind_and_empty_lines() {
        assert_eq!(lines(99, &[b"a\r", b"\n\n \r\nb\n"]).0, ["a", "b"]);
    }

    #[test]
    fn a_line_over_the_bound_is_refused_with_and_without_its_end() {
        assert_eq!(lines(3, &[b"abc\n"]), (vec!["abc".to_owned()], false));
        assert_eq!(lines(3, &[b"ab\n", b"abcd\n"]), (vec!["ab".to_owned()], true));
        assert_eq!(lines(3, &[b"ab", b"cd"]), (vec![], true));
    }

    struct Broken;
    impl From<Oversize> for Broken {
        fn from(_: Oversize) -> Self {
            Self
        }
    }

    fn split(text: &[u8], sizes: &[usize], limit: usize) -> Option<(Vec<String>, String)> {
        let mut items = Items::new(limit);
        let mut found = Vec::new();
        let mut sizes = sizes.iter().cycle();
        let mut rest = text;
        while !rest.is_empty() {
            let (chunk, left) = rest.split_at((*sizes.next().unwrap()).clamp(1, rest.len()));
            rest = left;
            items
                .push(chunk, |item| {
                    let (Item::Whole(text) | Item::Outline(text)) = item;
                    found.push(String::from_utf8_lossy(text).into_owned());
                    Ok::<_, Broken>(())
                })
                .ok()?;
        }
        Some((found, String::from_utf8_lossy(items.envelope()).into_owned()))
    }

    #[test]
    fn items_are_cut_out_and_the_envelope_stays() {
        let text = br#"{"kind":"PodList","metadata":{"items":["no"],"x":"\"items\":["},"items": [ {"a":"]}\\"} ,{"b":[1,{"items":[2]}]} ] ,"z":"items"}"#;
        for size in [1, 2, 3, 1000] {
            let (items, envelope) = split(text, &[size], 1000).unwrap();
            assert_eq!(items, [r#"{"a":"]}\\"}"#, r#"{"b":[1,{"items":[2]}]}"#]);
            assert_eq!(
                envelope,
                r#"{"kind":"PodList","metadata":{"items":["no"],"x":"\"items\":["},"items": [] ,"z":"items"}"#
            );
        }
    }

    #[test]
    fn a_list_without_items_has_none() {
        for (text, envelope) in [
            (r#"{"items":[]}"#, r#"{"items":[]}"#),
            (r#"{"items":[ ]}"#, r#"{"items":[]}"#),
            (r#"{"items":null}"#, r#"{"items":null}"#),
        ] {
            assert_eq!(split(text.as_bytes(), &[1], 100).unwrap(), (vec![], envelope.to_owned()));
        }
    }

    #[test]
    fn a_missing_item_is_an_item_that_does_not_decode() {
        assert_eq!(split(br#"{"items":[{},,{}]}"#, &[4], 100).unwrap().0, ["{}", "", "{}"]);
        assert_eq!(split(br#"{"items":[{}, ]}"#, &[4], 100).unwrap().0, ["{}", ""]);
    }

    #[test]
    fn an_envelope_over_the_bound_is_refused() {
        assert!(split(br#"{"items":["0123456789"]}"#, &[7], 12).is_some());
        assert!(split(br#"{"a":"0123456789","items":[]}"#, &[7], 12).is_none());
    }

    /// Wherever its metadata stand, and whatever else looks like them.
    #[test]
    fn of_an_item_over_the_bound_what_names_it_is_left() {
        let named = r#"{"kind":"K","apiVersion":"v1","metadata":{"namespace":"n","name":"a\"b","uid":"u","resourceVersion":"7"}}"#;
        let large = "x".repeat(300);
        for text in [
            format!(
                r#"{{"kind":"K","apiVersion":"v1","metadata":{{"annotations":{{"name":"no"}},"namespace":"n","name":"a\"b","labels":["name",{{"uid":"no"}}],"uid":"u","resourceVersion":"7"}},"data":"{large}"}}"#
            ),
            format!(
                r#"{{"data":{{"metadata":{{"name":"no"}},"x":"{large}"}},"kind":"K","x":["metadata",{{"name":"no"}}],"apiVersion":"v1", "metadata" : {{ "namespace" : "n" , "name" : "a\"b","uid":"u","resourceVersion":"7","generation":1}},"spec":{{"kind":"no"}}}}"#
            ),
        ] {
            let list = format!(r#"{{"items":[{{"a":1}},{text},{{"b":2}}],"metadata":{{"resourceVersion":"9"}}}}"#);
            for size in [1, 3, 1000] {
                let (items, envelope) = split(list.as_bytes(), &[size], 200).unwrap();
                assert_eq!(items, [r#"{"a":1}"#, named, r#"{"b":2}"#]);
                assert_eq!(envelope, r#"{"items":[],"metadata":{"resourceVersion":"9"}}"#);
            }
        }
        // What names nothing does not decode.
        let (items, _) =
            split(format!(r#"{{"items":["{large}",{{"metadata":"{large}"}}]}}"#).as_bytes(), &[7], 200).unwrap();
        assert_eq!(items, [r#"{"metadata":{}}"#; 2]);
    }

    #[test]
    fn the_memory_of_a_long_line_and_of_a_long_item_is_given_back() {
        let long = vec![b'x'; 4 << 20];
        let mut lines = Lines::new(8 << 20);
        lines.push(long.clone().into());
        assert_eq!(lines.take(), Ok(None));
        assert_eq!(lines.pending(), long.len());
        lines.push(Bytes::from_static(b"\nab"));
        assert_eq!(lines.take().unwrap().map(|line| line.len()), Some(long.len()));
        assert_eq!(lines.take(), Ok(None));
        assert!(lines.begun.capacity() < KEEP && lines.pending() == 2, "{}", lines.begun.capacity());
        let mut items = Items::new(8 << 20);
        let none = |_: Item<'_>| Ok::<_, Broken>(());
        items.push(br#"{"items":["#, none).ok().unwrap();
        items.push(&[b"\"", &*long, b"\""].concat(), none).ok().unwrap();
        assert!(items.pending() > long.len());
        items.push(b",", none).ok().unwrap();
        assert!(items.item.capacity() <= KEEP, "{}", items.item.capacity());
    }

    fn json() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<i64>().prop_map(Into::into),
            "[a-z\"\\\\{}\\[\\],:\n\u{e9}\u{1f600}]{0,12}".prop_map(Into::into),
            Just("items".into()),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(serde_json::Value::from),
                prop::collection::vec((prop_oneof![Just("items".to_owned()), "[a-z\"\\\\:]{0,4}"], inner), 0..4)
                    .prop_map(|pairs| serde_json::Value::Object(pairs.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_list_in_any_chunks_is_what_serde_says(
            items in prop::collection::vec(json(), 0..5), before in json(), after in json(),
            sizes in prop::collection::vec(1_usize..40, 1..8), pretty in any::<bool>(), limit in 8_usize..200,
        ) {
            let value = serde_json::json!({ "a": before, "items": items, "z": after });
            let text = if pretty { serde_json::to_vec_pretty(&value) } else { serde_json::to_vec(&value) }.unwrap();
            #[derive(serde::Deserialize)]
            struct List<'a> { #[serde(borrow)] items: Vec<&'a RawValue> }
            let expected: Vec<String> =
                serde_json::from_slice::<List<'_>>(&text).unwrap().items.iter().map(|raw| raw.get().to_owned()).collect();
            let (found, envelope) = split(&text, &sizes, 1 << 20).unwrap();
            prop_assert_eq!(found, expected);
            let mut rest: serde_json::Value = serde_json::from_str(&envelope).unwrap();
            prop_assert_eq!(rest["items"].take(), serde_json::json!([]));
            prop_assert_eq!(&rest["z"], &value["z"]);
            // What is beyond a bound is so wherever chunks end.
            prop_assert_eq!(split(&text, &sizes, limit), split(&text, &[1], limit));
        }

        #[test]
        fn a_list_cut_anywhere_has_no_whole_envelope(cut in 0_usize..60) {
            let text = br#"{"metadata":{"resourceVersion":"7"},"items":[{"a":1},{"b":2}]}"#;
            let (_, envelope) = split(&text[..cut], &[5], 1 << 20).unwrap_or_default();
            prop_assert!(serde_json::from_str::<serde_json::Value>(&envelope).is_err());
        }

        #[test]
        fn lines_in_any_chunks_are_the_lines(
            text in prop::collection::vec("[^\r\n]{1,20}", 0..8), sizes in prop::collection::vec(1_usize..9, 1..6),
        ) {
            let mut joined: Vec<u8> = Vec::new();
            for line in &text { joined.extend_from_slice(line.as_bytes()); joined.push(b'\n'); }
            let mut chunks = Vec::new();
            let (mut rest, mut sizes) = (joined.as_slice(), sizes.iter().cycle());
            while !rest.is_empty() {
                let (chunk, left) = rest.split_at((*sizes.next().unwrap()).min(rest.len()));
                chunks.push(chunk);
                rest = left;
            }
            let expected: Vec<String> = text.into_iter().filter(|line| !line.as_bytes().trim_ascii().is_empty()).collect();
            prop_assert_eq!(lines(1 << 20, &chunks).0, expected);
        }
    }
}
