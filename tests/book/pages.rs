//! The pages, as far as the tests have to understand Markdown.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The root of the repository.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Whether what is generated is to be written instead of compared: `DECKLOG_BOOK=write`.
pub(crate) fn writes() -> bool {
    std::env::var("DECKLOG_BOOK").is_ok_and(|word| word == "write")
}

/// One page.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    /// Below the root, such as `docs/sinks.md`.
    pub(crate) path: String,
    pub(crate) text: String,
}

/// A fenced block.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    /// What stands behind the fence, such as `console`.
    pub(crate) language: String,
    /// Whether its output is that of the story: `<!-- story -->` stands above it.
    pub(crate) story: bool,
    /// What stands before each of its lines.
    indent: String,
    /// The lines between the fences, and where they begin in the page's bytes.
    pub(crate) body: String,
    pub(crate) start: usize,
    /// The line of the fence, from 1.
    pub(crate) line: usize,
}

/// What stands above a block whose output the test makes.
pub(crate) const STORY: &str = "<!-- story -->";

/// `path` below the root.
pub(crate) fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Every file below `dir` with this extension.
pub(crate) fn find(dir: &Path, wanted: &str, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            find(&path, wanted, found);
        } else if path.extension().is_some_and(|extension| extension == wanted) {
            found.push(path);
        }
    }
}

/// Every page of the book but its table of contents.
pub(crate) fn book() -> Vec<Page> {
    let mut found = Vec::new();
    find(&root().join("docs"), "md", &mut found);
    found.sort();
    let pages = found.iter().map(|path| path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned());
    pages.filter(|path| path != "docs/SUMMARY.md").map(|path| Page { text: read(&path), path }).collect()
}

/// The pages of the book, and the README.
pub(crate) fn all() -> Vec<Page> {
    let mut pages = book();
    pages.push(Page { path: "README.md".to_owned(), text: read("README.md") });
    pages
}

impl Page {
    pub(crate) fn blocks(&self) -> Vec<Block> {
        let mut blocks: Vec<Block> = Vec::new();
        let (mut open, mut story, mut at) = (None::<Block>, false, 0);
        for (n, line) in self.text.split_inclusive('\n').enumerate() {
            // A block of a list stands farther in, and so does its text.
            let bare = line.trim();
            match (&mut open, bare.strip_prefix("```")) {
                (None, Some(language)) => {
                    open = Some(Block {
                        language: language.to_owned(),
                        story,
                        indent: line[..line.len() - line.trim_start().len()].to_owned(),
                        body: String::new(),
                        start: at + line.len(),
                        line: n + 1,
                    });
                }
                (Some(_), Some(_)) => blocks.extend(open.take()),
                (Some(block), None) => block.body.push_str(line.strip_prefix(&block.indent).unwrap_or(line)),
                (None, None) => {}
            }
            if !bare.is_empty() {
                story = bare == STORY;
            }
            at += line.len();
        }
        assert!(open.is_none(), "{}: a fence is open at the end", self.path);
        blocks
    }

    /// The text without its blocks: each of their lines is empty.
    pub(crate) fn prose(&self) -> String {
        let mut open = false;
        let mut prose = String::new();
        for line in self.text.lines() {
            let fence = line.trim_start().starts_with("```");
            open ^= fence;
            if !open && !fence {
                prose.push_str(line);
            }
            prose.push('\n');
        }
        prose
    }

    /// What stands between backticks in the prose.
    pub(crate) fn code(&self) -> Vec<String> {
        let prose = self.prose();
        // A span may go on in the next line, and never over an empty one.
        let spans = prose.split("\n\n").flat_map(|paragraph| paragraph.split('`').skip(1).step_by(2));
        spans.map(|span| span.replace('\n', " ")).collect()
    }

    /// The targets of its links and pictures.
    pub(crate) fn links(&self) -> Vec<String> {
        let prose = self.prose();
        // Links do not stand in code; their texts may.
        let mut plain = String::new();
        for (n, part) in prose.split('`').enumerate() {
            if n % 2 == 0 {
                plain.push_str(part);
            }
        }
        let targets = plain.split("](").skip(1).map(|rest| rest.split(')').next().unwrap_or_default().to_owned());
        targets.collect()
    }

    /// The anchors of its headings, as mdBook and most others make them.
    pub(crate) fn anchors(&self) -> Vec<String> {
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        let headings = self.prose();
        let headings = headings.lines().filter(|line| line.starts_with('#'));
        let anchor = |line: &str| -> String {
            let title = line.trim_start_matches('#').trim();
            let kept = title.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
            kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
        };
        headings
            .map(anchor)
            .map(|name| {
                let count = seen.entry(name.clone()).or_default();
                *count += 1;
                if *count == 1 { name } else { format!("{name}-{}", *count - 1) }
            })
            .collect()
    }
}

/// Holds a file to what it should be, or writes it.
pub(crate) fn hold(path: &str, wanted: &str) {
    if writes() {
        std::fs::write(root().join(path), wanted).unwrap();
        return;
    }
    let is = std::fs::read_to_string(root().join(path)).unwrap_or_default();
    if is != wanted {
        let differ = is.lines().zip(wanted.lines()).position(|(is, wanted)| is != wanted);
        let at = differ.unwrap_or_else(|| is.lines().count().min(wanted.lines().count()));
        panic!(
            "{path} is not what the code says, from line {} on:\n  is      {:?}\n  wanted  {:?}\nwrite it anew: DECKLOG_BOOK=write cargo test --all-features --test book",
            at + 1,
            is.lines().nth(at).unwrap_or("(its end)"),
            wanted.lines().nth(at).unwrap_or("(its end)"),
        );
    }
}

/// The words of a command line as a shell splits them, up to what ends the command.
pub(crate) fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let (mut word, mut quote, mut begun) = (String::new(), None, false);
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), c) => word.push(c),
            (None, '\'' | '"') => (quote, begun) = (Some(c), true),
            (None, '\\') => word.extend(chars.next()),
            (None, '|' | ';' | '>' | '&' | ')' | '`') => break,
            (None, '#') if word.is_empty() && !begun => break,
            (None, c) if c.is_whitespace() => {
                if begun || !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                begun = false;
            }
            (None, c) => word.push(c),
        }
    }
    if begun || !word.is_empty() {
        words.push(word);
    }
    words
}

/// `a/../b` is `b`.
pub(crate) fn plain(path: &Path) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.iter().map(|part| part.to_str().unwrap()) {
        match part {
            ".." => drop(parts.pop()),
            "." => {}
            part => parts.push(part),
        }
    }
    parts.join("/")
}
