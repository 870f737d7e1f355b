//! Text of others in a message: it neither pings anybody nor looks like a part of the message that decklog wrote.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::core::terminal::is_obeyed;

/// A character of no width. Behind `@` and `<` it ends what a chat would read as a mention.
const APART: char = '\u{200b}';

/// Names that a chat takes for everybody of a channel, whatever stands before the `@`.
const EVERYBODY: [&str; 5] = ["everyone", "here", "channel", "all", "team"];

/// Receiver of the values in a body, as far as it gives characters a meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Escape {
    /// Text of Slack: `&`, `<` and `>` are entities, and nobody is mentioned.
    Slack,
    /// Text of Discord: its Markdown is shown as it is, and nobody is mentioned.
    Discord,
    /// Markdown of others: it is shown as it is, and nobody is mentioned.
    Markdown,
    /// HTML: `&`, `<`, `>` and quotes are entities.
    Html,
    /// Plain text in one line, without characters that reverse it.
    Text,
    /// Values as they are.
    None,
}

impl Escape {
    /// Returns a value as the receiver shows it: in one line, without a character that it obeys.
    pub(super) fn apply(self, text: &str) -> Cow<'_, str> {
        if self == Self::None {
            return Cow::Borrowed(text);
        }
        let mut out = String::with_capacity(text.len() + 16);
        let mut before = None;
        for (at, c) in text.char_indices() {
            let c = shown(c);
            self.put(c, &mut out);
            let mentions = c == '@' && self != Self::Html && self != Self::Text && is_mention(before, &text[at + 1..]);
            if mentions || (c == '<' && matches!(self, Self::Discord | Self::Markdown)) {
                out.push(APART);
            }
            before = Some(c);
        }
        Cow::Owned(out)
    }

    fn put(self, c: char, out: &mut String) {
        let entity = match c {
            '&' => "&amp;",
            '<' => "&lt;",
            '>' => "&gt;",
            '"' if self == Self::Html => "&quot;",
            '\'' if self == Self::Html => "&#39;",
            _ => "",
        };
        match self {
            Self::Slack | Self::Html if !entity.is_empty() => return out.push_str(entity),
            // Discord reads a mention behind a backslash as well.
            Self::Discord if "\\`*_~|[]()#>".contains(c) => out.push('\\'),
            Self::Markdown if "\\`*_~|[]()#><!&".contains(c) => out.push('\\'),
            Self::Slack | Self::Html | Self::Discord | Self::Markdown | Self::Text | Self::None => {}
        }
        out.push(c);
    }
}

/// Returns a character that is obeyed as one that is seen.
fn shown(c: char) -> char {
    match c {
        '\n' | '\r' | '\t' | '\u{b}' | '\u{c}' | '\u{85}' | '\u{2028}' | '\u{2029}' => ' ',
        _ if is_obeyed(c) || c == '\u{61c}' => char::REPLACEMENT_CHARACTER,
        _ => c,
    }
}

/// Reports whether an `@` between these may mention somebody; that of an address does not.
fn is_mention(before: Option<char>, after: &str) -> bool {
    let everybody = |name: &&str| after.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name));
    !before.is_some_and(char::is_alphanumeric) || EVERYBODY.iter().any(everybody)
}
