//! Random bytes, and mutations of samples: nothing panics, and nothing of the contents is in a sentence.

use proptest::collection::vec;
use proptest::prelude::{any, proptest};
use proptest::sample::Index;

use super::{Outcome, outcomes, read, recorded};

const GKE: &str = include_str!("samples/gke.jsonl");

fn samples() -> Vec<&'static str> {
    recorded().into_iter().chain(GKE.lines()).collect()
}

/// Tokens that mean something to a reader of envelopes.
const TOKENS: [&str; 18] = [
    "{",
    "}",
    "[",
    "]",
    "\"",
    ",",
    ":",
    "null",
    "0",
    "\n",
    "\\u0000",
    "\"records\":",
    "\"data\":",
    "\"message\":",
    "\"kind\":\"EventList\"",
    "\"protoPayload\":{}",
    "\"properties\":\"{}\"",
    "\u{1f}\u{8b}",
];

proptest! {
    #[test]
    fn random_bytes_are_no_event(bytes in vec(any::<u8>(), 0..600)) {
        let requests = outcomes(read(&bytes, None)).into_iter().filter(|outcome| matches!(outcome, Outcome::Request(_)));
        assert_eq!(requests.count(), 0);
    }

    #[test]
    fn tokens_in_any_order_are_read(tokens in vec(any::<Index>(), 0..60)) {
        let text: String = tokens.iter().map(|index| *index.get(&TOKENS)).collect();
        assert!(read(text.as_bytes(), None).records.len() <= text.len());
    }

    #[test]
    fn mutations_of_samples_are_read(
        sample in any::<Index>(),
        edits in vec((any::<Index>(), any::<Index>(), any::<u8>()), 1..8),
    ) {
        let mut bytes = sample.get(&samples()).as_bytes().to_vec();
        for (place, token, kind) in edits {
            let at = place.index(bytes.len());
            match kind % 4 {
                0 => bytes[at] = kind,
                1 => _ = bytes.drain(at..(at + usize::from(kind)).min(bytes.len() - 1).max(at)),
                2 => _ = bytes.splice(at..at, token.get(&TOKENS).bytes()),
                _ => {
                    let other = token.get(&samples()).as_bytes();
                    let end = usize::from(kind).min(other.len());
                    _ = bytes.splice(at..at, other[..end].iter().copied());
                }
            }
        }
        for outcome in outcomes(read(&bytes, None)) {
            if let Outcome::Unreadable(sentence) = outcome {
                assert!(!["alice", "kubectl", "shop.example"].iter().any(|part| sentence.contains(part)), "{sentence}");
            }
        }
    }
}
