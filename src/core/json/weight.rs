//! The number of values in a JSON text, found without building anything: what is built for each value takes twenty to a
//! hundred times the bytes of a small one.

use super::scan::end_of_string;

/// Nodes for which everything is built without a look at what it takes. A text that is shorter than this in bytes never has more.
pub(crate) const MANY: usize = 200_000;

/// Size of a JSON text in values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Weight {
    /// Values at any depth, and names of members.
    pub(crate) nodes: usize,
    /// Members or elements of the outermost value.
    pub(crate) children: usize,
}

impl Weight {
    /// Counts what a value holds, rather too much than too little, and stops behind `most` nodes. The text has to be JSON.
    pub(crate) fn of(json: &[u8], most: usize) -> Self {
        let mut weight = Self { nodes: 1, children: 0 };
        let (mut depth, mut at, mut is_empty) = (0_usize, 0, true);
        while let Some(byte) = json.get(at) {
            match byte {
                b'{' | b'[' => {
                    depth += 1;
                    weight.nodes += 1;
                    is_empty &= depth == 1;
                }
                b'}' | b']' => depth = depth.saturating_sub(1),
                b',' => {
                    weight.nodes += 1;
                    weight.children += usize::from(depth == 1);
                }
                b':' => weight.nodes += 1,
                b'"' => {
                    is_empty = false;
                    at = end_of_string(json, at);
                }
                b' ' | b'\n' | b'\r' | b'\t' => {}
                _ => is_empty = false,
            }
            if weight.nodes > most {
                break;
            }
            at += 1;
        }
        weight.children += usize::from(!is_empty);
        weight
    }

    /// Reports whether a text holds more nodes than `most`.
    pub(crate) fn is_beyond(json: &[u8], most: usize) -> bool {
        json.len() > most && Self::of(json, most).nodes > most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_counted_too_little() {
        for (json, nodes, children) in [
            ("1", 1, 1),
            ("[]", 2, 0),
            ("[ ]", 2, 0),
            ("[1,2]", 3, 2),
            (r#"{"a":1,"b":[2,3],"c":"x,y:[{\"}"}"#, 9, 3),
            ("[[1],[2,3],[]]", 8, 3),
            (r#"[""]"#, 2, 1),
        ] {
            assert_eq!(Weight::of(json.as_bytes(), usize::MAX), Weight { nodes, children }, "{json}");
        }
        let long = format!("[{}0]", "0,".repeat(10));
        assert!(Weight::is_beyond(long.as_bytes(), 10) && !Weight::is_beyond(long.as_bytes(), 12));
    }
}
