//! Sentences of the book: a sentence begins with its subject, and not with a clause in its place ("Who leads stores …",
//! "What is missing is recovered").

use std::fmt::Write;

use crate::pages::{Page, all, read};

/// Words that begin a clause.
const CLAUSES: [&str; 4] = ["what", "who", "whoever", "whatever"];

/// Reports whether a text is a sentence whose subject is a clause. Questions, headings that end with a colon, and "what to do" are
/// none.
fn is_odd(sentence: &str) -> bool {
    let mut words = sentence.split_whitespace();
    let first = words.next().unwrap_or_default().to_lowercase();
    CLAUSES.contains(&first.as_str()) && words.next() != Some("to") && sentence.ends_with(['.', ';', ','])
}

/// Sentences of a prose, with the sign that ends each: behind a full stop, a semicolon and a colon begins another one.
fn sentences(prose: &str) -> Vec<String> {
    let mut found = Vec::new();
    for paragraph in prose.split("\n\n") {
        let mut sentence = String::new();
        let mut chars = paragraph.chars().peekable();
        while let Some(c) = chars.next() {
            sentence.push(c);
            let ends = ".;:?!".contains(c) && chars.peek().is_none_or(|next| next.is_whitespace());
            let begins = chars.peek() == Some(&'|')
                || c == '|'
                || (c == '\n' && matches!(chars.peek(), Some('-' | '|' | '1'..='9')));
            if ends || begins {
                found.push(std::mem::take(&mut sentence).trim_start_matches(|c: char| "-|* \n".contains(c)).to_owned());
            }
        }
        found.push(sentence.trim_start_matches(|c: char| "-|* \n".contains(c)).to_owned());
    }
    found
}

/// The prose of a page without headings and with code as one word.
fn plain(page: &Page) -> String {
    let prose = page.prose();
    let lines = prose.lines().map(|line| if line.starts_with('#') { "" } else { line });
    let text = lines.collect::<Vec<_>>().join("\n");
    text.split('`').enumerate().map(|(n, part)| if n % 2 == 0 { part } else { "code" }).collect()
}

#[test]
fn a_sentence_begins_with_its_subject() {
    for (text, odd) in [
        ("What the receiver lacks is gone.", true),
        ("Who leads goes on; the rest waits.", true),
        ("It waits; what comes meanwhile is kept.", true),
        ("What changed?", false),
        ("What to plan for.", false),
        ("| who may see it | all |", false),
        ("decklog records what happens.", false),
    ] {
        assert_eq!(sentences(text).iter().any(|sentence| is_odd(sentence)), odd, "{text}");
    }
    let mut wrong = String::new();
    let config: String =
        read("config.toml").lines().map(|line| line.strip_prefix('#').unwrap_or("").trim().to_owned() + "\n").collect();
    let mut pages = all();
    pages.push(Page { path: "config.toml".to_owned(), text: config });
    // Made of the front pages of modules.
    for page in pages.iter().filter(|page| page.path != "docs/decisions.md") {
        for sentence in sentences(&plain(page)).iter().filter(|sentence| is_odd(sentence)) {
            writeln!(wrong, "{}: {}", page.path, sentence.replace('\n', " ")).unwrap();
        }
    }
    assert!(wrong.is_empty(), "{} sentences:\n{wrong}", wrong.lines().count());
}
