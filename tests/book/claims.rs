//! Claims of the book about what decklog does not have, against what it has.

use std::fmt::Write;

use crate::generated::{cli, sections};
use crate::pages::{Page, all};

/// Things that decklog has: where they are in its command line or configuration, and the words that a page would deny them with.
const HAS: [(Place, &[&str]); 13] = [
    (Place::Command("ui"), &["page in a browser", "web page", "timeline page", "a browser", "user interface"]),
    (Place::Command("timeline"), &["html", "a file for an incident"]),
    (Place::Table("ha"), &["two daemons", "in reserve", "high availability", "a standby", "take-over"]),
    (Place::Option("server"), &["another machine", "over the network"]),
    (Place::Command("restore"), &["disaster recovery"]),
    (Place::Command("verify"), &["a check of copies", "an integrity check"]),
    (Place::Command("blame"), &["who set each field"]),
    (Place::Command("churn"), &["no-op writes", "fights over"]),
    (Place::Command("completions"), &["completion"]),
    (Place::Command("replay"), &["a replay"]),
    (Place::Table("redact"), &["redaction"]),
    (Place::Table("http"), &["metrics", "health checks"]),
    (Place::Option("config-dir"), &["several clusters", "many clusters"]),
];

/// Where a thing is.
enum Place {
    Command(&'static str),
    Option(&'static str),
    Table(&'static str),
}

impl Place {
    fn exists(&self) -> bool {
        match self {
            Self::Command(name) => cli().find_subcommand(name).is_some(),
            Self::Option(name) => cli().get_arguments().any(|arg| arg.get_long() == Some(name)),
            Self::Table(name) => sections().iter().any(|section| section.name == *name && !section.is_type),
        }
    }
}

/// Parts of a page that say what decklog does not have or promise, in lower case.
fn denials(page: &Page) -> Vec<String> {
    let prose = page.prose().to_lowercase();
    let mut found: Vec<String> = Vec::new();
    for section in prose.split("\n## ") {
        let (title, text) = section.split_once('\n').unwrap_or((section, ""));
        if title.starts_with("what is not promised") {
            // The first words of a point name the thing; the rest explains.
            found.extend(
                text.split("\n- ").skip(1).map(|point| point.split(['.', ':']).next().unwrap_or(point).to_owned()),
            );
        }
    }
    let says_no = ["decklog lacks", "decklog does not have", "decklog has no ", "and decklog does not:"];
    let sentences = prose.split(['\n', '.']).filter(|sentence| says_no.iter().any(|no| sentence.contains(no)));
    found.extend(sentences.map(str::to_owned));
    found
}

#[test]
fn no_page_denies_what_decklog_has() {
    let (mut wrong, mut looked_at) = (String::new(), 0);
    for (place, words) in &HAS {
        assert!(place.exists(), "{words:?}: decklog has that no longer");
    }
    for page in all() {
        for denial in denials(&page) {
            looked_at += 1;
            for word in HAS.iter().flat_map(|(_, words)| *words).filter(|word| denial.contains(**word)) {
                writeln!(wrong, "{}: {word:?} is there: {denial}", page.path).unwrap();
            }
        }
    }
    assert_eq!(wrong, "");
    assert!(looked_at > 8, "only {looked_at} denials are found");
}
