//! Senders of changes, as the audit log names them.

use hmac::Mac as _;

use super::{DIGEST, Redactor, SenderPart};
use crate::core::k8s::audited::Sender;

/// Number of hexadecimal digits of a digest.
const DIGITS: usize = 32;

impl Redactor {
    /// Takes out of a sender what `[redact] senders` names. A user becomes a keyed digest of the name, so that the same user is the
    /// same text in every entry; what such a digest has replaced already is left as it is.
    pub fn redact_sender(&self, sender: &mut Sender) {
        for part in &self.senders {
            match part {
                SenderPart::Users => {
                    for name in [&mut sender.user, &mut sender.impersonated_by] {
                        if !name.is_empty() && !is_digest(name) {
                            *name = self.digest_of_user(name);
                        }
                    }
                }
                SenderPart::Addresses => sender.addresses.clear(),
                SenderPart::Agents => sender.agent.clear(),
            }
        }
    }

    fn digest_of_user(&self, name: &str) -> String {
        let mut mac = self.keyed.clone();
        mac.update(b"decklog user\0");
        mac.update(name.as_bytes());
        let digest = mac.finalize().into_bytes();
        digest[..DIGITS / 2].iter().fold(DIGEST.to_owned(), |text, byte| text + &format!("{byte:02x}"))
    }
}

/// Reports whether a text is the digest that stands for a user.
pub(crate) fn is_digest(text: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    text.strip_prefix(DIGEST).is_some_and(|digits| digits.len() == DIGITS && digits.bytes().all(is_digit))
}

#[cfg(test)]
mod tests {
    use super::super::Settings;
    use super::*;

    #[test]
    fn a_part_that_is_named_goes_and_no_other() {
        use SenderPart::{Addresses, Agents, Users};
        let sender = Sender {
            user: "alice".to_owned(),
            impersonated_by: "ci".to_owned(),
            agent: "kubectl/v1".to_owned(),
            addresses: vec!["10.0.0.7".to_owned()],
        };
        let redactor = |senders: &[SenderPart], key| {
            Redactor::new(&Settings { senders: senders.to_vec(), ..Settings::default() }, [key; 32]).unwrap()
        };
        let redacted = |redactor: &Redactor, sender: &Sender| {
            let mut sender = sender.clone();
            redactor.redact_sender(&mut sender);
            sender
        };
        for (parts, users, agent, addresses) in [
            (&[][..], false, false, false),
            (&[Users], true, false, false),
            (&[Agents], false, true, false),
            (&[Addresses], false, false, true),
            (&[Addresses, Users, Agents], true, true, true),
        ] {
            let redactor = redactor(parts, 7);
            let one = redacted(&redactor, &sender);
            assert_eq!(one.user != "alice" && one.impersonated_by != "ci", users, "{one:?}");
            assert_eq!((one.agent.is_empty(), one.addresses.is_empty()), (agent, addresses), "{one:?}");
            assert_eq!(redacted(&redactor, &one), one, "twice is once");
        }
        let (one, other) = (redactor(&[Users], 7), redactor(&[Users], 8));
        let alice = redacted(&one, &sender).user;
        assert!(is_digest(&alice), "{alice}");
        let through = Sender { user: "bob".to_owned(), impersonated_by: "alice".to_owned(), ..Sender::default() };
        assert_eq!(redacted(&one, &through).impersonated_by, alice, "the same user is the same text");
        assert_ne!(redacted(&one, &through).user, alice);
        assert_ne!(redacted(&other, &sender).user, alice, "another key is another text");
        assert_eq!(redacted(&one, &Sender::default()), Sender::default(), "nobody is nobody");
    }
}
