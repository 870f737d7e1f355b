//! The house rules that no compiler keeps: which room may use which, who alone knows what, how long a file may be, and
//! that every dependency is used. `cargo run --example house` prints what this looks at.

#![allow(clippy::too_many_lines, reason = "a test tells its story in one place")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use decklog_testkit::house;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use house::{House, Module};
use proc_macro2::{Literal, TokenStream, TokenTree};

/// A file has fewer lines than this.
const LONGEST: usize = 601;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The rooms that ARCHITECTURE.md draws, and which others each may use: a line of the drawing is a room, and behind two
/// spaces are those that it may use.
fn walls() -> BTreeMap<String, BTreeSet<String>> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let drawn = text.split_once("<!-- rooms").unwrap().1.split_once("```text\n").unwrap().1;
    let lines: Vec<Vec<&str>> = drawn.split_once("```").unwrap().0.lines().map(columns).collect();
    let all: BTreeSet<String> = lines.iter().map(|columns| columns[0].to_owned()).collect();
    let of = |columns: &Vec<&str>| {
        let used: BTreeSet<String> = columns[1].split_whitespace().map(str::to_owned).collect();
        (columns[0].to_owned(), if columns[1] == "all" { all.clone() } else { used })
    };
    lines.iter().map(of).collect()
}

/// A room, and what it may use; the ground uses nothing, and has no such column.
fn columns(line: &str) -> Vec<&str> {
    let columns: Vec<&str> = line.split("  ").map(str::trim).filter(|column| !column.is_empty()).collect();
    if columns.len() < 3 { vec![columns[0], ""] } else { columns }
}

#[test]
fn no_module_uses_what_uses_it() {
    let house = House::read(root());
    assert_eq!(house.circles_of_rooms(), Vec::<Vec<String>>::new(), "these rooms use each other in a circle");
    for room in walls().keys() {
        assert_eq!(house.circles_of_parts(room), Vec::<Vec<String>>::new(), "these parts use each other in a circle");
    }
    assert_eq!(house.circles(), Vec::<Vec<Module>>::new(), "these modules use each other in a circle");
}

#[test]
fn a_room_uses_what_the_drawing_lets_it_use() {
    let (rooms, walls) = (House::read(root()).rooms(), walls());
    let names = |rooms: Vec<&String>| rooms.into_iter().cloned().collect::<Vec<_>>();
    assert_eq!(names(rooms.keys().collect()), names(walls.keys().collect()), "ARCHITECTURE.md draws other rooms");
    let beyond = |(room, used): (&String, &BTreeSet<String>)| {
        used.difference(&walls[room]).map(|used| format!("{room} uses {used}")).collect::<Vec<_>>()
    };
    let broken: Vec<String> = rooms.iter().flat_map(beyond).collect();
    assert_eq!(broken, Vec::<String>::new(), "a room uses what it may not");
}

/// A front page says what its room may use, where to begin, and has an example that runs.
#[test]
fn each_room_has_a_front_page() {
    for (room, used) in walls() {
        let text = fs::read_to_string(root().join(format!("src/{room}.rs"))).unwrap();
        let page: Vec<&str> = text.lines().map_while(|line| line.strip_prefix("//!")).collect();
        let page = page.join("\n");
        for part in ["Begin with ", "# Examples", "```\n use "] {
            assert!(page.contains(part), "the front page of {room} has no {part:?}");
        }
        let names: String = used.iter().filter(|_| room != "app").map(String::as_str).collect();
        let said = page.split_once("It may use").map_or("", |(_, rest)| rest.split('.').next().unwrap());
        let said: String = said.split('`').skip(1).step_by(2).filter(|_| room != "app").collect();
        assert_eq!(said, names, "the front page of {room} says other rooms than ARCHITECTURE.md");
    }
}

/// Calls `look` with each literal of the code, but for those of attributes.
fn literals(tokens: TokenStream, look: &mut impl FnMut(&Literal)) {
    let mut hash = false;
    for token in tokens {
        match token {
            TokenTree::Literal(literal) => look(&literal),
            TokenTree::Group(group) if !hash => literals(group.stream(), look),
            TokenTree::Punct(punct) if punct.as_char() == '#' => {
                hash = true;
                continue;
            }
            TokenTree::Punct(punct) if hash && punct.as_char() == '!' => continue,
            TokenTree::Group(_) | TokenTree::Ident(_) | TokenTree::Punct(_) => {}
        }
        hash = false;
    }
}

/// The modules but those below `owners` whose code has a literal that `is` one of those that only the owners may have.
fn elsewhere(owners: &[&str], within: &[&str], is: impl Fn(&str) -> bool) -> BTreeMap<String, Vec<String>> {
    let house = House::read(root());
    let below = |module: &str, rooms: &[&str]| {
        rooms.iter().any(|room| module == *room || module.starts_with(&format!("{room}::")))
    };
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (module, code) in house.code {
        let name = module.join("::");
        if below(&name, owners) || !within.is_empty() && !below(&name, within) {
            continue;
        }
        literals(code, &mut |literal| {
            let text = literal.to_string();
            if is(&text) {
                found.entry(name.clone()).or_default().push(text);
            }
        });
    }
    found
}

/// The names in this code that may lock something: what is not at hand, and what locks by its name.
fn locking(tokens: TokenStream) -> Vec<String> {
    let locks = |name: &str| ["self", "lock", "borrow", "read", "write", "borrow_mut"].contains(&name);
    tokens
        .into_iter()
        .flat_map(|token| match token {
            TokenTree::Group(group) => locking(group.stream()),
            TokenTree::Ident(ident) => Some(ident.to_string()).filter(|name| locks(name)).into_iter().collect(),
            TokenTree::Literal(_) | TokenTree::Punct(_) => Vec::new(),
        })
        .collect()
}

/// Calls `look` with what stands in the parentheses of each call of these methods.
fn calls(tokens: TokenStream, names: &[&str], look: &mut impl FnMut(TokenStream)) {
    let (mut dot, mut named) = (false, false);
    for token in tokens {
        let is_dot = matches!(&token, TokenTree::Punct(punct) if punct.as_char() == '.');
        let is_named = dot && matches!(&token, TokenTree::Ident(ident) if names.iter().any(|name| ident == name));
        if let TokenTree::Group(group) = token {
            if named {
                look(group.stream());
            }
            calls(group.stream(), names, look);
        }
        (dot, named) = (is_dot, is_named);
    }
}

/// The value of a watch channel is locked while it is changed. Who took another lock there would wait for whoever holds
/// that one and reads the channel, for ever: what is written is made before.
#[test]
fn nothing_else_is_locked_while_a_watch_channel_is_changed() {
    let mut looked_at = 0;
    let mut found = Vec::new();
    for (module, code) in House::read(root()).code {
        calls(code, &["send_modify", "send_if_modified"], &mut |inside| {
            looked_at += 1;
            found.extend(locking(inside).into_iter().map(|name| format!("{}: {name}", module.join("::"))));
        });
    }
    assert!(looked_at > 5, "only {looked_at} are found");
    assert_eq!(found, Vec::<String>::new());
}

/// Invariant 8. What a room other than these writes goes to another database than the journal.
#[test]
fn only_the_writer_writes() {
    let writes = |text: &str| {
        let sql = text.trim_start_matches(|c: char| {
            c == '"' || c == 'r' || c == '#' || c == '\\' || c == 'n' || c.is_whitespace()
        });
        ["INSERT ", "UPDATE ", "DELETE FROM", "REPLACE ", "DROP ", "ALTER "].iter().any(|verb| sql.starts_with(verb))
    };
    let found = elsewhere(&["journal::writer", "journal::schema", "sink::postgres"], &[], writes);
    assert_eq!(found, BTreeMap::new(), "only journal::writer writes, and journal::schema migrates");
}

/// Invariant 8. Sinks over HTTP know the codes of their own servers, and the simulated API server those that it gives. The number 400
/// of the settings is a rate.
#[test]
fn only_failure_knows_what_an_api_server_means_by_its_codes() {
    let is_code = |text: &str| {
        text.trim_end_matches("_u16").trim_end_matches("u16").parse().is_ok_and(|code: u16| CODES.contains(&code))
    };
    let found =
        elsewhere(&["watch::cluster::failure", "watch::cluster::settings"], &["watch", "journal", "app"], is_code);
    assert_eq!(found, BTreeMap::new(), "only watch::cluster::failure knows what HTTP codes mean");
}

/// The codes that mean something to a client of the API server.
const CODES: [u16; 13] = [400, 401, 403, 404, 405, 409, 410, 413, 422, 429, 503, 504, 507];

/// Invariant 8. The keys that nothing but an entry has: who has one of them in a text reads or writes entries by hand. `change::patch`
/// writes the member `change`, `filter` gives the keys their names in CEL, and Elasticsearch is told their types.
#[test]
fn only_wire_knows_entries() {
    let is_key = |text: &str| {
        let text = text.replace("\\\"", "\"");
        ["evidence", "areas", "managers"].iter().any(|key| text.contains(&format!("\"{key}\"")))
    };
    let found = elsewhere(&["core::wire", "core::change::patch", "core::filter", "sink::elasticsearch"], &[], is_key);
    assert_eq!(found, BTreeMap::new(), "only wire knows the JSON of entries");
}

/// The words that CONTRIBUTING.md asks not to use, where people read them.
#[test]
fn people_read_one_word_for_one_thing() {
    let read = |path: &Path| fs::read_to_string(path).unwrap();
    let rules = read(&root().join("CONTRIBUTING.md"));
    let (_, list) = rules.split_once("| not | but |\n|---|---|\n").unwrap();
    let rows = list.lines().map_while(|line| line.strip_prefix("| ")?.split_once(" | "));
    let words: Vec<&str> = rows.flat_map(|(not, _)| not.split(", ")).collect();
    assert!(words.len() > 8, "{words:?}");
    let uses = |text: &str| {
        let text: Vec<&str> = text.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '-').collect();
        let text = format!(" {} ", text.join(" ").to_lowercase());
        words.iter().find(|word| text.contains(&format!(" {word} "))).copied()
    };
    let mut found = Vec::new();
    for (module, code) in House::read(root()).code {
        // What a simulation prints, its makers read; and the text of the mark is a format, which old state directories have.
        if module.first().is_some_and(|room| room == "sim")
            || module.ends_with(&["journal".to_owned(), "mark".to_owned()])
        {
            continue;
        }
        literals(code, &mut |literal| {
            let text = literal.to_string();
            found.extend(uses(&text).map(|word| format!("{word}: {} {text}", module.join("::"))));
        });
    }
    let mut pages = vec![root().join("README.md"), root().join("config.toml")];
    for dir in ["docs", "docs/sinks"] {
        pages.extend(fs::read_dir(root().join(dir)).unwrap().map(|entry| entry.unwrap().path()));
    }
    for page in pages.iter().filter(|page| page.extension().is_some_and(|kind| kind == "md" || kind == "toml")) {
        for (number, line) in read(page).lines().enumerate() {
            found.extend(uses(line).map(|word| format!("{word}: {}:{} {line}", page.display(), number + 1)));
        }
    }
    assert!(found.is_empty(), "CONTRIBUTING.md has other words for these:\n{}", found.join("\n"));
}

/// A message begins with its subject, and so does each part of it behind a semicolon: "what the watch missed is recovered" does not.
/// A title that ends with a colon is no sentence, and neither are four words.
#[test]
fn a_message_begins_with_its_subject() {
    let begins = |part: &str| {
        ["what ", "who ", "whoever "].iter().any(|word| part.trim_start().to_lowercase().starts_with(word))
    };
    let is_odd =
        |part: &&str| begins(part) && part.split_whitespace().count() > 4 && !part.trim_end().ends_with([':', '?']);
    let mut odd = Vec::new();
    for (module, code) in House::read(root()).code {
        if module.first().is_some_and(|room| room == "sim") {
            continue;
        }
        literals(code, &mut |literal| {
            let text = literal.to_string();
            let text = text.trim_start_matches('r').trim_matches(['"', '#']);
            odd.extend(text.split(';').filter(is_odd).map(|part| format!("{}: {part}", module.join("::"))));
        });
    }
    assert_eq!(odd, Vec::<String>::new(), "a message begins with its subject");
}

#[test]
fn files_are_short() {
    let mut long = Vec::new();
    for (path, text) in sources(&["src", "tests", "benches", "examples"]) {
        let lines = text.lines().count();
        if lines >= LONGEST {
            long.push(format!("{path} has {lines} lines"));
        }
    }
    assert_eq!(long, Vec::<String>::new(), "a file has fewer than {LONGEST} lines: divide it");
}

/// The Rust files below these folders, by their paths.
fn sources(folders: &[&str]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut folders: Vec<PathBuf> = folders.iter().map(|folder| root().join(folder)).collect();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap().map(Result::unwrap) {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(root()).unwrap().display().to_string();
                found.insert(name, fs::read_to_string(&path).unwrap());
            }
        }
    }
    found
}

/// The lines of what is shipped: without tests, and without the simulated cluster.
fn shipped() -> impl Iterator<Item = (String, Vec<String>)> {
    let sources = sources(&["src"]).into_iter();
    let sources = sources
        .filter(|(path, _)| !path.contains("/tests/") && !path.ends_with("tests.rs") && !path.starts_with("src/sim"));
    sources.map(|(path, text)| {
        let lines: Vec<String> = text.lines().map(|line| line.trim().to_owned()).collect();
        let is_end = |pair: &[String]| pair[0] == "#[cfg(test)]" && pair[1].contains("mod ") && pair[1].ends_with('{');
        let end = lines.windows(2).position(is_end).unwrap_or(lines.len());
        (path, lines[..end].to_vec())
    })
}

/// Words that no doc comment opens with: it opens with a noun or a verb.
const OPENINGS: &str = "What How Whether Where When Which Why Who Whoever So Nothing Of As Those That Whom Whose Something Everything Nobody Somebody";

#[test]
fn doc_comments_open_with_a_noun_or_a_verb() {
    let (mut all, mut odd) = (0, Vec::new());
    for (path, lines) in shipped() {
        let mut is_first = true;
        for (at, line) in lines.iter().enumerate() {
            let text = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
            if let Some(text) = text.filter(|_| is_first) {
                all += 1;
                if text.trim().split(' ').next().is_some_and(|word| OPENINGS.split(' ').any(|opening| opening == word))
                {
                    odd.push(format!("{path}:{} {text}", at + 1));
                }
            }
            is_first = text.is_none();
        }
    }
    assert!(odd.len() * 100 <= all * 3, "{} of {all} open with another word:\n{}", odd.len(), odd.join("\n"));
}

/// Words that say what a duration bounds; the name of a constant has one of them.
const BOUNDS: &str = "TIMEOUT INTERVAL LIMIT DELAY PERIOD MAX MIN BACKOFF WAIT EVERY AGE LINGER";

#[test]
fn a_constant_that_is_a_duration_says_what_it_bounds() {
    let mut odd = Vec::new();
    for (path, lines) in shipped() {
        for line in lines {
            let Some((name, rest)) = line.split_once("const ").and_then(|(_, rest)| rest.split_once(": ")) else {
                continue;
            };
            let is_duration = ["Duration ", "SignedDuration ", "Span "].iter().any(|of| rest.starts_with(of));
            if is_duration && !name.split('_').any(|word| BOUNDS.split(' ').any(|bound| bound == word)) {
                odd.push(format!("{path}: {name}"));
            }
        }
    }
    assert_eq!(odd, Vec::<String>::new(), "name it after its bound: {BOUNDS}");
}

#[test]
fn every_dependency_is_used() {
    let manifest: toml::Table = fs::read_to_string(root().join("Cargo.toml")).unwrap().parse().unwrap();
    let names = |section: &str| {
        manifest[section].as_table().unwrap().keys().map(|name| name.replace('-', "_")).collect::<Vec<_>>()
    };
    let text_of = |folders: &[&str]| sources(folders).into_values().collect::<String>();
    let is_used = |text: &str, name: &str| {
        text.match_indices(name).any(|(at, _)| {
            let before = text[..at].chars().next_back();
            let after = &text[at + name.len()..];
            !before.is_some_and(|c| c.is_alphanumeric() || c == '_')
                && (after.starts_with("::") || after.starts_with(" as ") || after.starts_with(';'))
        })
    };
    let unused = |section: &str, folders: &[&str]| {
        let text = text_of(folders);
        names(section).into_iter().filter(|name| !is_used(&text, name)).collect::<Vec<_>>()
    };
    assert_eq!(unused("dependencies", &["src"]), Vec::<String>::new(), "dependencies that src does not use");
    assert_eq!(
        unused("dev-dependencies", &["src", "tests", "benches", "examples"]),
        Vec::<String>::new(),
        "dev-dependencies that no test uses"
    );
}
