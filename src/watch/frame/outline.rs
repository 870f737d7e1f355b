//! Identity of an object that is too large to be kept: its type and its identifying metadata, read as they pass by.

/// A name or a version is no longer than this.
const TEXT_LIMIT: usize = 4 << 10;

/// Members of the object, and of its metadata, that are kept.
const OUTER: [&[u8]; 2] = [br#""kind""#, br#""apiVersion""#];
const INNER: [&[u8]; 4] = [br#""namespace""#, br#""name""#, br#""uid""#, br#""resourceVersion""#];

/// Reads the text of one object in chunks with borders anywhere, and keeps an object of those members alone. What is no
/// JSON, or has no such members, gives an object that does not decode.
#[derive(Debug, Default)]
pub(super) struct Outline {
    depth: usize,
    in_metadata: bool,
    in_string: bool,
    escaped: bool,
    /// A name of a member comes next, and not a value.
    name_is_next: bool,
    /// The newest name at a level that matters, and the string that is being read there, quotes included.
    name: Vec<u8>,
    text: Vec<u8>,
    outer: Vec<u8>,
    inner: Vec<u8>,
}

impl Outline {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.take(*byte);
        }
    }

    /// The object of the kept members, of a text that is at hand.
    pub(super) fn of(bytes: &[u8]) -> Vec<u8> {
        let mut outline = Self::default();
        outline.push(bytes);
        outline.finish()
    }

    /// The object of the kept members.
    pub(super) fn finish(&self) -> Vec<u8> {
        [b"{", &*self.outer, br#""metadata":{"#, self.inner.strip_suffix(b",").unwrap_or_default(), b"}}"].concat()
    }

    /// Reports whether strings here may have to be kept.
    const fn matters(&self) -> bool {
        self.depth == 1 || self.depth == 2 && self.in_metadata
    }

    fn take(&mut self, byte: u8) {
        if self.in_string {
            if self.matters() && self.text.len() <= TEXT_LIMIT {
                self.text.push(byte);
            }
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => {
                    self.in_string = false;
                    self.end_string();
                }
                _ => {}
            }
            return;
        }
        match byte {
            b'"' => {
                self.in_string = true;
                self.text.clear();
                self.text.push(byte);
            }
            b'{' | b'[' => {
                if byte == b'{' && self.depth == 1 && self.name == br#""metadata""# {
                    self.in_metadata = true;
                }
                self.depth += 1;
                self.name_is_next = byte == b'{';
            }
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                if self.depth == 1 {
                    self.in_metadata = false;
                }
            }
            b',' => self.name_is_next = true,
            b':' => self.name_is_next = false,
            _ => {}
        }
    }

    fn end_string(&mut self) {
        if !self.matters() || self.text.len() > TEXT_LIMIT {
            return;
        }
        if self.name_is_next {
            std::mem::swap(&mut self.name, &mut self.text);
            return;
        }
        let (kept, into) =
            if self.in_metadata { (INNER.as_slice(), &mut self.inner) } else { (OUTER.as_slice(), &mut self.outer) };
        if kept.contains(&&*self.name) && into.len() <= 4 * TEXT_LIMIT {
            into.extend_from_slice(&[&*self.name, b":", &*self.text, b","].concat());
        }
    }
}
