//! Framing of the output of a reading command for another machine: pieces of standard output and standard error, and its exit
//! status at the end. An answer without that end was cut off.

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// The type of such a body.
pub const CONTENT_TYPE: &str = "application/vnd.decklog.frames";

/// A frame holds at most so many bytes.
pub const MOST: usize = 64 << 10;

/// Its kind, and how many bytes follow.
const HEAD: usize = 1 + size_of::<u32>();

/// One piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A piece of standard output.
    Out(Bytes),
    /// A piece of standard error.
    Err(Bytes),
    /// A keepalive: nothing is printed at the moment.
    Alive,
    /// The command has ended with this code. Nothing follows.
    Ended(u8),
}

/// Error for bytes that are not made of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the answer is not one of decklog")]
pub struct Strange;

impl Frame {
    /// The bytes of this frame.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let (kind, content): (u8, &[u8]) = match self {
            Self::Alive => (0, &[]),
            Self::Out(bytes) => (1, bytes),
            Self::Err(bytes) => (2, bytes),
            Self::Ended(code) => (3, std::slice::from_ref(code)),
        };
        let mut frame = BytesMut::with_capacity(HEAD + content.len());
        frame.put_u8(kind);
        frame.put_u32(u32::try_from(content.len()).expect("a frame holds what was read into a buffer of that size"));
        frame.put_slice(content);
        frame.freeze()
    }

    /// Takes the first frame out of what has come; nothing where it is not whole yet.
    ///
    /// # Errors
    /// Where it is none.
    pub fn decode(come: &mut BytesMut) -> Result<Option<Self>, Strange> {
        let Some((&kind, mut rest)) = come.split_first() else { return Ok(None) };
        if kind > 3 {
            return Err(Strange);
        }
        let Ok(length) = rest.try_get_u32() else { return Ok(None) };
        let length = usize::try_from(length).ok().filter(|length| *length <= MOST).ok_or(Strange)?;
        if rest.len() < length {
            return Ok(None);
        }
        come.advance(HEAD);
        let content = come.split_to(length).freeze();
        Ok(Some(match (kind, &content[..]) {
            (0, []) => Self::Alive,
            (1, _) => Self::Out(content),
            (2, _) => Self::Err(content),
            (3, [code]) => Self::Ended(*code),
            _ => return Err(Strange),
        }))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frames() -> impl Strategy<Value = Vec<Frame>> {
        let bytes = || prop::collection::vec(any::<u8>(), 0..300).prop_map(Bytes::from);
        let frame = prop_oneof![
            bytes().prop_map(Frame::Out),
            bytes().prop_map(Frame::Err),
            Just(Frame::Alive),
            any::<u8>().prop_map(Frame::Ended),
        ];
        prop::collection::vec(frame, 0..8)
    }

    proptest! {
        #[test]
        fn what_was_sent_is_what_comes_however_it_is_cut(sent in frames(), pieces in prop::collection::vec(1usize..700, 1..40)) {
            let all: Vec<u8> = sent.iter().flat_map(|frame| frame.encode().to_vec()).collect();
            let (mut rest, mut come, mut got) = (&all[..], BytesMut::new(), Vec::new());
            for piece in pieces.into_iter().cycle() {
                let (now, later) = rest.split_at(piece.min(rest.len()));
                come.extend_from_slice(now);
                while let Some(frame) = Frame::decode(&mut come).unwrap() {
                    got.push(frame);
                }
                rest = later;
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(got, sent);
            prop_assert!(come.is_empty());
        }

        #[test]
        fn nothing_strange_is_waited_for(bytes in prop::collection::vec(any::<u8>(), 5..200)) {
            let mut come = BytesMut::from(&bytes[..]);
            // It ends, and what it still waits for is no more than a frame.
            while let Ok(Some(_)) = Frame::decode(&mut come) {}
            if Frame::decode(&mut come) == Ok(None) && come.len() >= HEAD {
                prop_assert!(u32::from_be_bytes([come[1], come[2], come[3], come[4]]) <= u32::try_from(MOST).unwrap());
            }
        }
    }

    #[test]
    fn what_is_none_is_refused() {
        for strange in [&b"HTTP/1.1 200"[..], &[9], &[1, 0, 2, 0, 0], &[3, 0, 0, 0, 2, 0, 0], &[0, 0, 0, 0, 1, 7]] {
            assert_eq!(Frame::decode(&mut BytesMut::from(strange)), Err(Strange), "{strange:?}");
        }
    }
}
