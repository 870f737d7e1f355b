//! The book and the README against the code: what they show is what is printed, what they name is there, and nothing is left
//! out. `DECKLOG_BOOK=write cargo test --all-features --test book` writes what is generated anew: the pages of commands and
//! keys, the tables of keys in the sinks' pages, the schema of the chart's values, the output of the story's blocks, and the
//! picture of the README.

#![allow(clippy::too_many_lines, reason = "a test tells its story in one place")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod claims;
mod generated;
mod pages;
mod picture;
mod rendered;
mod sentences;

use decklog_testkit::story;
use decklog_testkit::tale;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use clap::Parser;
use decklog::app::cli::Cli;
use decklog::app::config::{Config, Files};
use decklog::core::filter::Filter;

use pages::{Block, Page, all, book, find, hold, plain, read, root, words, writes};

/// The columns of the terminal in the book.
const COLUMNS: u16 = 100;

#[test]
fn the_readme_is_short() {
    let lines = read("README.md").lines().count();
    assert!(lines <= 150, "README.md has {lines} lines, and 150 are enough: the book has room");
}

#[test]
fn the_map_is_short_and_its_paths_lead_somewhere() {
    let map = read("ARCHITECTURE.md");
    let (lines, words) = (map.lines().count(), map.split_whitespace().count());
    assert!(lines <= 200 && words <= 2500, "ARCHITECTURE.md has {lines} lines and {words} words");
    let is_path = |text: &&str| {
        let plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_./-".contains(&byte));
        plain && text.contains('/') && !text.starts_with('/') && !text.contains("NAME")
    };
    let is_there = |path: &str| {
        ["", "src/"]
            .iter()
            .any(|above| ["", ".rs"].iter().any(|end| root().join(format!("{above}{path}{end}")).exists()))
    };
    let missing: Vec<&str> = map.split('`').skip(1).step_by(2).filter(is_path).filter(|path| !is_there(path)).collect();
    assert_eq!(missing, Vec::<&str>::new(), "no such file");
}

#[test]
fn every_page_is_in_the_table_of_contents() {
    let summary = Page { path: "docs/SUMMARY.md".to_owned(), text: read("docs/SUMMARY.md") };
    let listed: Vec<String> = summary.links().iter().map(|target| format!("docs/{target}")).collect();
    let there: BTreeSet<String> = book().into_iter().map(|page| page.path).collect();
    let named: BTreeSet<String> = listed.iter().cloned().collect();
    assert_eq!(named.len(), listed.len(), "a page is in docs/SUMMARY.md twice");
    assert_eq!(named.difference(&there).collect::<Vec<_>>(), Vec::<&String>::new(), "no page of that name");
    assert_eq!(there.difference(&named).collect::<Vec<_>>(), Vec::<&String>::new(), "not in docs/SUMMARY.md");
}

/// Every link leads somewhere: to a page, a heading of one, or a file. A page of the book is read without the repository, so
/// it links to nothing outside of the book.
#[test]
fn links_lead_somewhere() {
    let pages = all();
    let mut broken = String::new();
    for page in &pages {
        let below = Path::new(&page.path).parent().unwrap();
        for link in page.links().iter().filter(|link| !link.contains("://")) {
            let (target, anchor) = link.split_once('#').unwrap_or((link, ""));
            let path = if target.is_empty() { page.path.clone() } else { plain(&below.join(target)) };
            let leaves = page.path.starts_with("docs/") && !path.starts_with("docs/");
            let found = pages.iter().find(|page| page.path == path);
            let wrong = match found {
                _ if leaves => "leaves the book",
                _ if !root().join(&path).is_file() => "no such file",
                Some(page) if !anchor.is_empty() && !page.anchors().iter().any(|known| known == anchor) => {
                    "no such heading"
                }
                _ => continue,
            };
            writeln!(broken, "{}: {link}: {wrong}", page.path).unwrap();
        }
    }
    assert_eq!(broken, "");
}

const SECTIONS: [&str; 9] =
    ["What it promises", "Configure", "Keys", "What arrives", "Set it up", "Read it", "Shared log", "Limits", "Errors"];

#[test]
fn the_sinks_have_one_pattern() {
    let types: Vec<generated::Section> = generated::sections().into_iter().filter(|section| section.is_type).collect();
    let overview = read("docs/sinks.md");
    for section in &types {
        let page = Page {
            path: format!("docs/sinks/{}.md", section.name),
            text: read(&format!("docs/sinks/{}.md", section.name)),
        };
        let has: Vec<String> =
            page.prose().lines().filter_map(|line| line.strip_prefix("## ")).map(str::to_owned).collect();
        let wanted: Vec<&str> = SECTIONS.into_iter().filter(|section| has.iter().any(|had| had == section)).collect();
        assert_eq!(has, wanted, "{}: its sections are some of {SECTIONS:?}, in this order", page.path);
        for needed in ["What it promises", "Configure", "Keys", "What arrives", "Limits"] {
            assert!(has.iter().any(|had| had == needed), "{}: no section {needed:?}", page.path);
        }
        assert!(
            page.blocks().iter().any(|block| block.language == "toml"),
            "{}: no example of a configuration",
            page.path
        );
        let row = format!("[`{0}`](sinks/{0}.md)", section.name);
        assert!(overview.contains(&row), "docs/sinks.md has no row for {row}");
    }
    let pages = book().into_iter().filter(|page| page.path.starts_with("docs/sinks/")).count();
    assert_eq!(pages, types.len(), "a page for each type of sink, and no other");
}

#[test]
fn what_is_made_of_the_code_is_up_to_date() {
    hold("docs/commands.md", &generated::commands());
    hold("docs/keys.md", &generated::keys());
    hold("docs/decisions.md", &generated::decisions());
    for section in generated::sections().iter().filter(|section| section.is_type) {
        let path = format!("docs/sinks/{}.md", section.name);
        let text = read(&path);
        let (begin, end) = ("<!-- keys: made by tests/book -->\n", "<!-- end of keys -->");
        let Some((before, rest)) = text.split_once(begin) else {
            assert!(section.keys.is_empty(), "{path}: no place for its keys ({})", begin.trim());
            continue;
        };
        let (_, after) = rest.split_once(end).unwrap_or_else(|| panic!("{path}: no {end}"));
        hold(&path, &format!("{before}{begin}{}{end}{after}", generated::keys_of(section)));
    }
    let chart = "packaging/chart/decklog/values.schema.json";
    hold(chart, &generated::schema_of_the_chart(&read(chart)));
}

/// The chart and its `appVersion` are of this version of decklog.
#[test]
fn the_chart_has_the_version_of_decklog() {
    let chart = read("packaging/chart/decklog/Chart.yaml");
    for key in ["version", "appVersion"] {
        let version = chart.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(": "));
        assert_eq!(version.map(|version| version.trim_matches('"')), Some(env!("CARGO_PKG_VERSION")), "{key}");
    }
}

/// Each console block of the story shows what its commands print in the directory that `decklog demo --story` keeps, which is what
/// a reader of the book has.
#[test]
fn blocks_of_the_story_are_what_is_printed() {
    let dir = tale::friday();
    let mut shown = 0;
    for page in all() {
        let mut text = page.text.clone();
        // From the end, so that what stands before keeps its place.
        for block in page.blocks().into_iter().rev().filter(|block| block.story) {
            assert_eq!(block.language, "console", "{}:{}: a story is told in a console", page.path, block.line);
            let mut told = String::new();
            for line in block.body.lines().filter_map(|line| line.strip_prefix("$ ")) {
                write!(told, "$ {line}\n{}", printed(dir.path(), line)).unwrap();
                shown += 1;
            }
            text.replace_range(block.start..block.start + block.body.len(), &told);
        }
        if text != page.text || !writes() {
            hold(&page.path, &text);
        }
    }
    assert!(shown >= 20, "only {shown} commands of the story are shown");
}

/// The note that stands beside most answers, because the story is over. The cookbook says that the book leaves it out.
const OVER: &str = "no daemon has watched since 2026-11-20T10:50:00Z: nothing newer is known";

/// What a command line prints, both streams as a terminal has them.
fn printed(dir: &Path, line: &str) -> String {
    let answer = story::on_terminal(shell(dir, line), COLUMNS);
    assert!([0, 1].contains(&answer.code), "{line}: {answer:?}");
    // On a terminal lines may be filled up to its width.
    let lines = answer.out.lines().map(str::trim_end).chain(answer.err.lines());
    lines.filter(|line| !line.ends_with(OVER)).fold(String::new(), |text, line| text + line + "\n")
}

/// A shell in the directory of the story that finds decklog, and nothing of this machine's settings.
fn shell(dir: &Path, line: &str) -> Command {
    let here = Path::new(env!("CARGO_BIN_EXE_decklog")).parent().unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", line]).current_dir(dir).env_clear().stdin(Stdio::null());
    command.env("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin", here.display()));
    command.env("TZ", "UTC").env("NO_COLOR", "1").env("DECKLOG_PAGER", "cat");
    command
}

/// Recipes that end in kubectl need a cluster for that, and print what kubectl gets.
#[test]
fn every_recipe_of_the_cookbook_runs_as_it_is_written() {
    let dir = tale::friday();
    let page = Page { path: "docs/cookbook.md".to_owned(), text: read("docs/cookbook.md") };
    let blocks = page.blocks();
    for line in blocks.iter().filter(|block| !block.story).flat_map(lines_of) {
        let Some((own, _)) = line.split_once(" | kubectl ") else {
            assert!(["decklog demo --story", "cd friday"].contains(&line.as_str()), "{line}: not of the story");
            continue;
        };
        let answer = story::on_terminal(shell(dir.path(), own), COLUMNS);
        assert!(answer.code == 0 && answer.out.contains("kind: "), "{line}: {answer:?}");
    }
    let questions = page.prose().lines().filter(|line| line.starts_with("## ") && line.ends_with('?')).count();
    assert!(questions > 20, "{questions}");
    for (path, said) in
        [("docs/cookbook.md", format!("{questions} questions")), ("README.md", format!("{questions} such questions"))]
    {
        assert!(read(path).contains(&said), "{path}: {said}");
    }
}

#[test]
fn the_picture_of_the_readme_is_what_is_printed() {
    let dir = tale::friday();
    let mut screen = String::new();
    for line in picture::LINES {
        let mut command = shell(dir.path(), &format!("{line} --color always"));
        command.env_remove("NO_COLOR");
        let answer = story::on_terminal(command, COLUMNS);
        assert_eq!(answer.code, 0, "{line}: {answer:?}");
        let shown: Vec<&str> = answer.out.lines().filter(|line| !line.contains(OVER)).collect();
        writeln!(screen, "\u{1b}[1m$ {line}\u{1b}[0m\n{}\n", shown.join("\n")).unwrap();
    }
    hold("docs/answer.svg", &picture::svg(&screen, usize::from(COLUMNS)));
}

/// The command lines of a block, continued lines joined.
fn lines_of(block: &Block) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for line in block.body.replace("\\\n", "").lines() {
        let typed = line.strip_prefix("$ ").or_else(|| line.strip_prefix("# "));
        if ["console", "sh"].contains(&block.language.as_str())
            && let Some(line) = typed.or_else(|| (block.language == "sh").then_some(line))
        {
            lines.push(line.to_owned());
        }
    }
    lines
}

/// The decklog commands of a line: `sudo -u decklog decklog tail | jq …` has one.
fn commands_in(line: &str) -> Vec<Vec<String>> {
    // The runbook's alias.
    let spelled = line.strip_prefix("d ").map(|rest| format!("decklog {rest}"));
    let line = spelled.as_deref().unwrap_or(line);
    let mut found = Vec::new();
    for (at, _) in line.match_indices("decklog ") {
        let before = line[..at].trim_end();
        let begins = before.is_empty()
            || ["|", "$(", "<(", "-u decklog", "&&", "kubectl"].iter().any(|end| before.ends_with(end));
        let own = line[..at].is_empty() || line[..at].ends_with([' ', '(', '`']);
        let words = words(&line[at..]);
        if begins && own && !line.starts_with("alias ") && words.get(1).is_some_and(|word| word != "decklog") {
            found.push(words);
        }
    }
    found
}

#[test]
fn every_command_line_can_be_typed() {
    let mut wrong = String::new();
    let mut shown: BTreeSet<String> = BTreeSet::new();
    for page in all() {
        if page.path != "docs/commands.md" {
            let inline = page.code().into_iter().filter_map(|code| code.strip_prefix("decklog ").map(str::to_owned));
            shown.extend(inline.filter_map(|code| code.split(' ').next().map(str::to_owned)));
        }
        for block in page.blocks() {
            for line in lines_of(&block) {
                for words in commands_in(&line) {
                    if page.path != "docs/commands.md" {
                        shown.extend(words.iter().skip(1).find(|word| !word.starts_with('-')).cloned());
                    }
                    let filter = words.iter().skip_while(|word| *word != "--where").nth(1);
                    if let Some(Err(why)) = filter.map(|filter| Filter::compile(filter.as_str())) {
                        writeln!(wrong, "{}:{}: {line}\n  {why}", page.path, block.line).unwrap();
                    }
                    // A time of day may lie ahead while this runs.
                    if let Err(error) = Cli::try_parse_from(&words)
                        && error.use_stderr()
                        && !error.to_string().contains("still to come today")
                    {
                        let why = error.to_string();
                        writeln!(
                            wrong,
                            "{}:{}: {line}\n  {}",
                            page.path,
                            block.line,
                            why.lines().next().unwrap_or_default()
                        )
                        .unwrap();
                    }
                }
            }
        }
    }
    // The README's recipes stand in a table.
    let readme = Page { path: "README.md".to_owned(), text: read("README.md") };
    for code in readme.code().iter().filter(|code| code.starts_with("decklog ")) {
        if let Err(error) = Cli::try_parse_from(words(code))
            && !error.to_string().contains("still to come today")
        {
            writeln!(wrong, "README.md: {code}\n  {}", error.to_string().lines().next().unwrap_or_default()).unwrap();
        }
    }
    assert_eq!(wrong, "");
    let cli = generated::cli();
    let all: BTreeSet<String> =
        cli.get_subcommands().map(|command| command.get_name().to_owned()).filter(|name| name != "help").collect();
    let never: Vec<&String> = all.difference(&shown).collect();
    assert!(never.is_empty(), "no example shows {never:?}");
}

/// Flags of other programs that the pages name.
const FOREIGN_FLAGS: &[&str] = &[
    "--arch",
    "--locked",
    "--release",
    "--path",
    "--all-features",
    "--bench",
    "--features",
    "--kubeconfig",
    "--server-side",
    "--etcd-compaction-interval",
    "--etcd-servers-overrides",
    "--manifest",
    "--archive",
    "--alter",
    "--entity-type",
    "--entity-name",
    "--add-config",
    "--rm",
    "--read-only",
    "--raw",
    "--value",
    "--system",
    "--create",
    "--client",
    "--now",
    "--namespace",
];

#[test]
fn every_command_and_flag_that_is_named_is_there() {
    let cli = generated::cli();
    let mut flags: BTreeSet<String> = ["--help".to_owned(), "--version".to_owned()].into();
    let mut commands: BTreeSet<String> = BTreeSet::new();
    let mut rest: Vec<&clap::Command> = vec![&cli];
    while let Some(command) = rest.pop() {
        flags.extend(command.get_arguments().filter_map(|arg| arg.get_long()).map(|long| format!("--{long}")));
        rest.extend(command.get_subcommands());
    }
    commands.extend(cli.get_subcommands().map(|command| command.get_name().to_owned()));
    let mut wrong = String::new();
    let mut named = String::new();
    for page in all() {
        for code in page.code() {
            let mut parts = code.split_whitespace();
            if parts.next() == Some("decklog")
                && let Some(word) = parts.next()
                && word.chars().all(|c| c.is_ascii_lowercase())
                && !commands.contains(word)
            {
                writeln!(wrong, "{}: `{code}`: no such command", page.path).unwrap();
            }
            for word in code
                .split([' ', '=', '[', ']', '\'', '"', ',', ')'])
                .filter(|word| word.starts_with("--") && word.len() > 2)
            {
                if !flags.contains(word) && !FOREIGN_FLAGS.contains(&word) {
                    writeln!(wrong, "{}: `{code}`: no such flag", page.path).unwrap();
                }
            }
            named.push_str(&code);
            named.push('\n');
        }
    }
    assert_eq!(wrong, "");
    let named: BTreeSet<&str> = named.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-')).collect();
    let missing: Vec<&String> =
        flags.iter().filter(|flag| !named.contains(flag.as_str()) && *flag != "--version").collect();
    assert!(missing.is_empty(), "no page has {missing:?}");
}

/// `key = value` in code that is no key of decklog's configuration.
const FOREIGN_KEYS: &[&str] =
    &["pool_mode", "synchronous_commit", "storage", "discard", "LogRateLimitIntervalSec", "max_payload", "RestartSec"];

#[test]
fn every_key_is_in_the_book_and_every_key_of_the_book_is_there() {
    let sections = generated::sections();
    let known: BTreeSet<&str> =
        sections.iter().flat_map(|section| &section.keys).flat_map(|key| key.name.split(['.', '['])).collect();
    let mut wrong = String::new();
    for page in all() {
        for code in page.code() {
            // `[state] max_age`, `[cluster] recover = "off"`.
            if let Some((table, rest)) = code.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
                let table = table.trim_matches(['[', ']']);
                let key = rest.trim_start_matches(']').split([' ', '=']).find(|word| !word.is_empty());
                let section = sections.iter().find(|section| section.name == table && !section.is_type);
                match (section, key) {
                    (None, _)
                        if table.chars().all(|c| c.is_ascii_lowercase())
                            && table.len() > 1
                            && generated_word(table) =>
                    {
                        writeln!(wrong, "{}: `{code}`: no such table", page.path).unwrap();
                    }
                    (Some(section), Some(key)) if !section.keys.iter().any(|known| known.name == key) => {
                        writeln!(wrong, "{}: `{code}`: no such key", page.path).unwrap();
                    }
                    _ => {}
                }
            } else if let Some((key, _)) = code.split_once(" = ")
                && !key.is_empty()
                && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
                && !known.contains(key)
                && !FOREIGN_KEYS.contains(&key)
            {
                writeln!(wrong, "{}: `{code}`: no such key", page.path).unwrap();
            }
        }
        for block in page.blocks().iter().filter(|block| block.language == "toml") {
            if let Err(problems) = configuration(&block.body) {
                writeln!(wrong, "{}:{}: {problems}", page.path, block.line).unwrap();
            }
        }
    }
    assert_eq!(wrong, "");
    // The reference is compared with the schema elsewhere; it is here that every key has a place in it.
    let page = read("docs/keys.md");
    for key in sections.iter().flat_map(|section| &section.keys) {
        assert!(page.contains(&format!("| `{}` |", key.name)), "docs/keys.md has no {}", key.name);
    }
}

/// A command that names a sink names one of the configuration that stands above it on its page.
#[test]
fn a_command_names_a_sink_of_its_page() {
    let mut wrong = String::new();
    let mut count = 0;
    for page in all() {
        for (at, _) in page.text.match_indices("--sink ") {
            let is_part = |c: &char| c.is_ascii_alphanumeric() || *c == '-';
            let name: String = page.text[at + "--sink ".len()..].chars().take_while(is_part).collect();
            // What is written so is for the reader to choose.
            if name.is_empty() || name.chars().all(|c| c.is_ascii_uppercase()) {
                continue;
            }
            count += 1;
            let named = format!("name = \"{name}\"");
            if !page.text[..at].lines().any(|line| line == named) {
                writeln!(wrong, "{}: --sink {name}: no such sink above it", page.path).unwrap();
            }
        }
    }
    assert_eq!(wrong, "");
    assert!(count >= 3, "{count} commands");
}

/// Whether a word in brackets is meant as a table of the configuration, and not as a pattern.
fn generated_word(word: &str) -> bool {
    !["default", "name", "web", "item", "unit", "service"].contains(&word)
}

/// Whether a block is a configuration, or a part of one.
fn configuration(text: &str) -> Result<(), String> {
    let mut text = text.to_owned();
    if !text.contains("[[watch]]") {
        text.push_str("\n[[watch]]\nresources = [\"pods\"]\n");
    }
    let directories =
        ["STATE", "LOGS", "RUNTIME", "CREDENTIALS"].map(|name| (format!("{name}_DIRECTORY"), "/run".to_owned()));
    Config::parse(&text, "block", &directories, Files::Ignore).map(drop).map_err(|problems| problems.to_string())
}

/// Hosts that a page may name: placeholders, this machine, and those whose names are facts.
fn allowed(host: &str) -> bool {
    let host = host.split(['/', ':', '?', '#']).next().unwrap_or_default();
    let host = host.rsplit('@').next().unwrap_or_default();
    let placeholder = host.ends_with(".example")
        || host.ends_with(".invalid")
        || host == "example.com"
        || host.ends_with(".example.com");
    let here = host.starts_with("127.")
        || host.starts_with("0.0.0.0")
        || ["localhost", "", "…", "HOST", "loki", "USER"].contains(&host);
    let facts = ["kubernetes.io", "cel.dev", "www.w3.org", "c2sp.org"];
    // Receivers of messages, which have one address for everybody.
    let receivers = ["hooks.slack.com", "slack.com", "discord.com", "events.pagerduty.com"];
    placeholder || here || !host.contains('.') || facts.contains(&host) || receivers.contains(&host)
}

#[test]
fn no_page_names_a_host_of_somebody_else() {
    let mut wrong = String::new();
    for page in all() {
        for (at, _) in page.text.match_indices("://") {
            let host =
                page.text[at + 3..].split([' ', ')', '`', '"', '\'', '>', '\n', ',', '…']).next().unwrap_or_default();
            if !allowed(host) {
                writeln!(wrong, "{}: {host}", page.path).unwrap();
            }
        }
    }
    assert_eq!(wrong, "");
}

/// The tests that `docs/guarantees.md` names.
#[test]
fn every_guarantee_names_tests_that_are_there() {
    let mut sources = Vec::new();
    for dir in ["src", "tests"] {
        find(&root().join(dir), "rs", &mut sources);
    }
    let code: Vec<String> = sources.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect();
    let page = Page { path: "docs/guarantees.md".to_owned(), text: read("docs/guarantees.md") };
    let (mut wrong, mut count) = (String::new(), 0);
    for name in page.code() {
        let is_file = name.starts_with("tests/") || name.starts_with("src/");
        let there = match name.rsplit_once("::") {
            Some((_, test)) => code.iter().any(|text| text.contains(&format!("fn {test}("))),
            None if is_file => root().join(&name).exists(),
            None => continue,
        };
        count += 1;
        if !there {
            writeln!(wrong, "{name}").unwrap();
        }
    }
    assert_eq!(wrong, "");
    assert!(count > 15, "only {count} tests are named");
}

#[test]
fn every_metric_that_is_named_is_there() {
    let mut sources = Vec::new();
    find(&root().join("src"), "rs", &mut sources);
    let code: String = sources.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect();
    let mut wrong = BTreeSet::new();
    for page in all() {
        for (at, begin) in page.text.match_indices("decklog_") {
            let rest = &page.text[at + begin.len()..];
            let name = rest.split(|c: char| !(c.is_ascii_lowercase() || c == '_')).next().unwrap_or_default();
            let bare = name.strip_suffix("_total").unwrap_or(name);
            if !code.contains(&format!("\"{bare}\"")) && !code.contains(&format!("\"decklog_{bare}\"")) {
                wrong.insert(format!("{}: decklog_{name}", page.path));
            }
        }
    }
    assert_eq!(wrong, BTreeSet::new());
}

/// Nothing is written by accident: the writing of generated pages is asked for by a person.
#[test]
fn what_is_generated_is_compared_in_the_test_command() {
    assert!(!writes() || std::env::var_os("CI").is_none(), "DECKLOG_BOOK=write is for a person");
}
