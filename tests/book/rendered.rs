//! The book as mdBook makes it: it builds, and nothing in it is loaded from elsewhere.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::pages::{plain, root};

/// mdBook, which `tests/run` installs.
fn mdbook() -> PathBuf {
    std::env::var_os("DECKLOG_TEST_MDBOOK").map_or_else(|| PathBuf::from("mdbook"), PathBuf::from)
}

fn files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files(&path, found) } else { found.push(path) }
    }
}

/// What a page or a style sheet loads by itself, as far as it is on another host: `src`, what `link` fetches, `url(…)`, `@import`.
fn loads(name: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let elsewhere = |target: &str| ["http://", "https://", "//"].iter().any(|begin| target.starts_with(begin));
    if name.ends_with(".html") {
        for tag in text.split('<').skip(1).map(|rest| rest.split('>').next().unwrap_or_default()) {
            let element = tag.split_whitespace().next().unwrap_or_default();
            let attributes: &[&str] = match element {
                "link" => &["href=\""],
                "a" | "!--" => &[],
                _ => &["src=\"", "srcset=\"", "data=\"", "action=\"", "poster=\""],
            };
            for attribute in attributes {
                for (at, _) in tag.match_indices(attribute) {
                    let target = tag[at + attribute.len()..].split('"').next().unwrap_or_default();
                    if elsewhere(target) {
                        found.push(format!("<{element}> {target}"));
                    }
                }
            }
        }
    }
    for (at, _) in text.match_indices("url(") {
        let target = text[at + 4..].split(')').next().unwrap_or_default().trim_matches(['"', '\'']);
        if elsewhere(target) {
            found.push(target.to_owned());
        }
    }
    for (at, _) in text.match_indices("@import") {
        let target = text[at + 7..].trim_start().trim_start_matches(['"', '\'']);
        if elsewhere(target) {
            found.push(target.chars().take(60).collect());
        }
    }
    found
}

/// What stands in this attribute, wherever it is in a page.
fn attribute<'p>(page: &'p str, name: &str) -> Vec<&'p str> {
    let begin = format!(" {name}=\"");
    page.split(begin.as_str()).skip(1).map(|rest| rest.split('"').next().unwrap_or_default()).collect()
}

/// Links of the rendered pages that lead nowhere: to no file, or to no place in a page.
fn broken(pages: &BTreeMap<String, String>, book: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for (name, page) in pages.iter().filter(|(name, _)| !["print.html", "404.html"].contains(&name.as_str())) {
        for link in attribute(page, "href").into_iter().filter(|link| !link.contains("://") && !link.is_empty()) {
            let (target, anchor) = link.split_once('#').unwrap_or((link, ""));
            let below = Path::new(name).parent().unwrap();
            let path = if target.is_empty() { name.clone() } else { plain(&below.join(target)) };
            let leads = match pages.get(&path) {
                Some(page) => anchor.is_empty() || attribute(page, "id").contains(&anchor),
                None => book.join(&path).exists(),
            };
            if !leads {
                found.push(format!("{name}: {link}"));
            }
        }
    }
    found
}

#[test]
fn mdbook_builds_the_book_and_it_loads_nothing_from_elsewhere() {
    let out = tempfile::tempdir().unwrap();
    let book = out.path().join("book");
    let run = Command::new(mdbook()).arg("build").arg(root()).arg("--dest-dir").arg(&book).output();
    let run = run.unwrap_or_else(|error| {
        panic!("mdBook is missing ({error}): `tests/run` installs it, or set DECKLOG_TEST_MDBOOK")
    });
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{said}");
    assert!(!said.contains("WARN") && !said.contains("ERROR"), "mdBook is not content: {said}");
    let mut found = Vec::new();
    files(&book, &mut found);
    let mut wrong = String::new();
    let mut pages = BTreeMap::new();
    for path in found {
        let name = path.strip_prefix(&book).unwrap().to_str().unwrap().to_owned();
        if name.ends_with(".html") || name.ends_with(".css") || name.ends_with(".svg") {
            let text = std::fs::read_to_string(&path).unwrap();
            for target in loads(&name, &text) {
                writeln!(wrong, "{name}: {target}").unwrap();
            }
            if name.ends_with(".html") {
                pages.insert(name, text);
            }
        }
    }
    assert_eq!(wrong, "");
    assert_eq!(broken(&pages, &book), Vec::<String>::new());
    assert!(pages.len() > 30, "only {} pages were built", pages.len());
}

#[test]
fn what_a_page_loads_is_found() {
    let page = "<script src=\"https://cdn.invalid/x.js\"></script><link href=\"//fonts.invalid/a.css\"><a href=\"https://kubernetes.io\">a</a><img src=\"answer.svg\">";
    assert_eq!(loads("a.html", page), ["<script> https://cdn.invalid/x.js", "<link> //fonts.invalid/a.css"]);
    let sheet = "@import \"https://fonts.invalid/b.css\"; a { background: url(https://img.invalid/c.png) }";
    assert_eq!(loads("a.css", sheet).len(), 2);
}
