//! Where a write comes from, in words: the tool, the object that drives it, the revision and the person.

use jiff::Timestamp;

use super::{Candidate, Certainty, Provenance, Run};
use crate::query::render::clock::Clock;

/// One line for the object behind a write, or several for those that it may be; none where nobody is known.
pub(crate) fn lines(provenance: &Provenance, clock: &Clock) -> Vec<String> {
    match (&provenance.candidates[..], provenance.certainty) {
        ([], _) => Vec::new(),
        ([one], Certainty::Known | Certainty::Driver | Certainty::None) => vec![driver(one, clock)],
        ([one], Certainty::Ambiguous) => vec![format!("perhaps {}", driver(one, clock))],
        (several, _) => {
            let mut lines = vec!["one of:".to_owned()];
            lines.extend(several.iter().map(|one| format!("- {}", driver(one, clock))));
            lines
        }
    }
}

/// `shop/web`, or the name alone of what lives in no namespace.
pub(crate) fn full(namespace: &str, name: &str) -> String {
    if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") }
}

/// `sync of Application argocd/shop at 3f2c9ab (14:02:11 to 14:02:19, started by alice)`
fn driver(one: &Candidate, clock: &Clock) -> String {
    let name = full(&one.namespace, &one.name);
    let Some(run) = &one.run else { return format!("{} {name}", one.kind) };
    let revision = if run.revision.is_empty() { String::new() } else { format!(" at {}", short(&run.revision)) };
    let origin = if run.origin_revision.is_empty() {
        String::new()
    } else {
        format!(", built from {}", short(&run.origin_revision))
    };
    format!("{} of {} {name}{revision}{origin} ({})", one.tool.run(), one.kind, times(run, clock))
}

fn times(run: &Run, clock: &Clock) -> String {
    let clock = |time: Timestamp| clock.stamp(&time.to_string()).time.split('.').next().unwrap_or_default().to_owned();
    let to = run.to.map_or_else(|| "not known to have ended".to_owned(), clock);
    let by = match (run.started_by.as_str(), run.automated) {
        ("", true) => ", started by itself".to_owned(),
        ("", false) => String::new(),
        (user, _) => format!(", started by {user}"),
    };
    let until = if run.to.is_some() { " to " } else { ", " };
    format!("{}{until}{to}{by}", clock(run.from))
}

/// A revision with the start of each hash in it: `main@sha1:3f2c9ab`.
pub(crate) fn short(revision: &str) -> String {
    let is_hash = |part: &str| part.len() >= 40 && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    const ENDS: [char; 5] = [':', '@', ',', ' ', '/'];
    let one = |part: &str| {
        let (word, end) = part.split_at(part.trim_end_matches(ENDS).len());
        format!("{}{end}", word.get(..7).filter(|_| is_hash(word)).unwrap_or(word))
    };
    revision.split_inclusive(ENDS).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revision_has_short_hashes() {
        const HASH: &str = "3f2c9ab0d1e2f3a4b5c6d7e8f9a0b1c2d3e4f5a6";
        for (revision, expected) in [
            (HASH, "3f2c9ab"),
            (&*format!("main@sha1:{HASH}"), "main@sha1:3f2c9ab"),
            (&format!("{HASH}, 1.2.3"), "3f2c9ab, 1.2.3"),
            ("web@1.2.3", "web@1.2.3"),
            ("revision 3", "revision 3"),
            ("", ""),
        ] {
            assert_eq!(short(revision), expected);
        }
    }
}
