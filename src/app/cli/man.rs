//! `decklog man`: the man pages, made of the command line and of the configuration's schema, so that they say what is true
//! of this very program.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::{Args, Command, CommandFactory};
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, roman};
use jiff::Timestamp;

use super::output::Out;
use super::{Cli, Exit, Failure, Global, Outcome, clock};
use crate::core::spelling::nearest;

mod config;
mod words;

/// The program that the pages are about.
const VERSION: &str = concat!("decklog ", env!("CARGO_PKG_VERSION"));

/// Arguments of `decklog man`.
#[derive(Args, Debug)]
pub struct ManArgs {
    /// A command, such as log or sink init, or config [default: decklog itself]
    #[arg(value_name = "PAGE", conflicts_with = "dir")]
    pub page: Vec<String>,
    /// Write all pages into this directory instead, which has to exist
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

/// Prints a page as roff, or writes all of them.
///
/// # Errors
/// Where there is no such page, or it cannot be written.
pub fn main(args: ManArgs, global: &Global) -> Outcome {
    let pages = pages(&date()?);
    if let Some(dir) = args.dir {
        for (name, text) in &pages {
            let path = dir.join(name);
            fs::write(&path, text)
                .map_err(|error| Failure::io(format_args!("cannot write {}", path.display()), &error))?;
        }
        return Ok(Exit::Done);
    }
    let asked = args.page.join("-");
    let asked = asked.strip_prefix("decklog-").unwrap_or(if asked == "decklog" { "" } else { &asked });
    let of = |name: &str| -> String {
        let (name, _) = name.rsplit_once('.').unwrap_or((name, ""));
        name.strip_prefix("decklog").unwrap_or(name).trim_start_matches('-').to_owned()
    };
    let Some((_, text)) = pages.iter().find(|(name, _)| of(name) == asked) else {
        let names: Vec<String> = pages.iter().map(|(name, _)| of(name)).filter(|name| !name.is_empty()).collect();
        let near = nearest(asked, names.iter().map(String::as_str));
        let hint = near.map_or_else(|| names.join(", "), |near| format!("did you mean {near}?"));
        return Err(Failure::usage(format!("there is no man page {asked:?}; {hint}")));
    };
    let mut out = Out::new(global);
    for line in text.lines() {
        out.line(line)?;
    }
    out.flush()?;
    Ok(Exit::Done)
}

/// Date of the pages: today, or `SOURCE_DATE_EPOCH`, so that two builds of a package are the same.
fn date() -> Result<String, Failure> {
    let now = match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(seconds) if !seconds.is_empty() => seconds
            .parse()
            .ok()
            .and_then(|seconds| Timestamp::from_second(seconds).ok())
            .ok_or_else(|| Failure::usage(format!("$SOURCE_DATE_EPOCH is no number of seconds: {seconds:?}")))?,
        _ => clock::clock().now,
    };
    Ok(now.strftime("%Y-%m-%d").to_string())
}

/// Every page, with its file's name.
fn pages(date: &str) -> Vec<(String, String)> {
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    let mut pages = Vec::new();
    of_commands(&command, date, &mut pages);
    pages.push(("decklog-config.5".to_owned(), config::page(date)));
    pages
}

/// The page of a command, and those of the commands below it.
fn of_commands(command: &Command, date: &str, pages: &mut Vec<(String, String)>) {
    let is_root = command.get_name() == "decklog";
    // The options of every command stand in decklog(1). Help hides some to stay short; a page has all of them.
    let shown = command.clone().mut_args(|arg| {
        let hidden = !is_root && arg.is_global_set();
        arg.hide(hidden)
    });
    let page = Man::new(shown).date(date).source(VERSION).manual("User Commands");
    let mut text = rendered(|text| page.render(text));
    let mut rest = Roff::new();
    if is_root {
        section(&mut rest, "NOTES");
        words::DESCRIPTION.iter().for_each(|says| paragraph(&mut rest, says));
        for (title, items) in [
            ("EXIT STATUS", &words::EXIT[..]),
            ("SIGNALS", &words::SIGNALS),
            ("ENVIRONMENT", &words::ENVIRONMENT),
            ("FILES", &words::FILES),
        ] {
            section(&mut rest, title);
            items.iter().for_each(|(term, says)| item(&mut rest, [bold(*term)], says));
        }
    } else {
        section(&mut rest, "EXIT STATUS");
        paragraph(&mut rest, "0 when it is done, 1 when the answer is no. decklog(1) has all of them.");
    }
    let name = command.get_display_name().unwrap_or("decklog");
    let short = name.strip_prefix("decklog-").unwrap_or_default();
    if let Some((_, examples)) = words::EXAMPLES.iter().find(|(of, _)| *of == short) {
        section(&mut rest, "EXAMPLES");
        for (says, line) in *examples {
            paragraph(&mut rest, says);
            example(&mut rest, line);
        }
    }
    section(&mut rest, "SEE ALSO");
    paragraph(&mut rest, if is_root { "decklog-config(5), kubectl(1)" } else { "decklog(1), decklog-config(5)" });
    text += &rest.render();
    pages.push((format!("{name}.1"), text));
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        of_commands(below, date, pages);
    }
}

/// Returns the rendered text.
fn rendered(render: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> String {
    let mut text = Vec::new();
    render(&mut text).expect("a Vec takes everything");
    String::from_utf8(text).expect("roff is text")
}

fn section(page: &mut Roff, title: &str) {
    page.control("SH", [title]);
}

/// A paragraph. Text between backticks is bold.
fn paragraph(page: &mut Roff, says: &str) {
    page.control("PP", []);
    page.text(marked(says));
}

/// A term and its meaning.
fn item(page: &mut Roff, term: impl Into<Vec<Inline>>, says: &str) {
    page.control("TP", []);
    page.text(term);
    page.text(marked(says));
}

/// Lines as they are typed.
fn example(page: &mut Roff, lines: &str) {
    page.control("PP", []);
    page.control("RS", ["4"]);
    page.control("nf", []);
    lines.lines().for_each(|line| {
        page.text([roman(line)]);
    });
    page.control("fi", []);
    page.control("RE", []);
}

fn marked(text: &str) -> Vec<Inline> {
    let parts = text.split('`').enumerate();
    parts.map(|(at, part)| if at % 2 == 1 { bold(part) } else { roman(part) }).collect()
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use clap::Arg;

    use super::*;
    use crate::app::config::{Config, Files};

    fn all() -> Vec<(String, String)> {
        pages("2026-01-31")
    }

    fn page(name: &str) -> String {
        let all = all();
        let found = all.iter().find(|(file, _)| file == name);
        found
            .unwrap_or_else(|| {
                panic!("no page {name} among {:?}", all.iter().map(|(file, _)| file).collect::<Vec<_>>())
            })
            .1
            .clone()
    }

    /// As help prints them, which knows nothing of pages.
    fn commands(command: &Command, path: &[String], into: &mut Vec<(Vec<String>, Command)>) {
        for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
            let path: Vec<String> = path.iter().cloned().chain([below.get_name().to_owned()]).collect();
            into.push((path.clone(), below.clone()));
            commands(below, &path, into);
        }
    }

    #[test]
    fn every_command_and_every_flag_of_it_is_in_its_page() {
        let mut all = Vec::new();
        commands(&Cli::command(), &[], &mut all);
        assert!(all.len() > 15, "{}", all.len());
        for (path, command) in all {
            let text = page(&format!("decklog-{}.1", path.join("-")));
            let above = path[..path.len() - 1].iter().fold("decklog".to_owned(), |name, word| format!("{name}-{word}"));
            let listed = escaped(&format!("decklog-{}(1)", path.join("-")));
            assert!(page(&format!("{above}.1")).contains(&listed), "{path:?} in {above}(1)");
            for long in command.get_arguments().filter_map(Arg::get_long) {
                assert!(text.contains(&in_bold(&format!("--{long}"))), "--{long} of {path:?}");
            }
            for name in command.get_positionals().filter(|arg| !arg.is_hide_set()).filter_map(Arg::get_value_names) {
                assert!(text.contains(&escaped(&name[0])), "{} of {path:?}", name[0]);
            }
        }
        let overview = page("decklog.1");
        for global in ["--config", "--state", "--server", "--token-file", "--utc", "--no-pager", "--color", "--output"]
        {
            assert!(overview.contains(&in_bold(global)), "{global}");
        }
    }

    /// As roff has a text.
    fn escaped(text: &str) -> String {
        text.replace('-', "\\-")
    }

    fn in_bold(text: &str) -> String {
        format!("\\fB{}\\fR", escaped(text))
    }

    /// config.toml names every key, and a test of the configuration holds it to that.
    #[test]
    fn every_key_of_config_toml_is_in_its_page() {
        let text = page("decklog-config.5");
        let (mut header, mut prefix, mut word, mut seen) = (String::new(), String::new(), String::new(), 0);
        for line in include_str!("../../../config.toml").lines() {
            let line = line.strip_prefix('#').unwrap_or(line);
            if line.starts_with('[') {
                header = line.trim_matches(['[', ']']).to_owned();
                // A table below a section stands in that: `witness.key` for `[[evidence.witness]]`.
                let (section, below) = header.split_once('.').unwrap_or((&header, ""));
                if below.is_empty() {
                    word.clear();
                }
                prefix = if below.is_empty() { String::new() } else { format!("{below}.") };
                header = section.to_owned();
            }
            let Some((key, value)) = line.split_once(" = ") else { continue };
            if !key.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_') {
                continue;
            }
            if header == "sink" && key == "type" {
                word = value.trim_matches('"').to_owned();
                continue;
            }
            let common = text
                .split(".SH ")
                .find(|part| {
                    [format!("[{header}]"), format!("[[{header}]]")].iter().any(|title| part.starts_with(title))
                })
                .expect(&header);
            let own = common
                .split(".SS ")
                .find(|part| !word.is_empty() && part.starts_with(&format!("\"Sinks of type {word}\"")));
            let all = common.split(".SS ").next().unwrap();
            let term = format!(".TP\n{}", in_bold(&format!("{prefix}{key}")));
            assert!(
                all.contains(&term) || own.is_some_and(|own| own.contains(&term)),
                "{header}.{prefix}{key} of {word:?}"
            );
            seen += 1;
        }
        assert!(seen > 100, "{seen} keys");
    }

    #[test]
    fn what_the_examples_say_can_be_typed() {
        for (name, examples) in words::EXAMPLES {
            for (_, line) in examples {
                let typed = line.split(" | ").find(|part| part.contains("decklog")).unwrap();
                let typed = typed.split(" > ").next().unwrap();
                let words = words_of_a_shell(typed);
                let words = words.iter().skip_while(|word| *word != "decklog").map(OsString::from);
                let taken = Cli::command().try_get_matches_from(words);
                assert!(taken.is_ok(), "{name}: {line}: {}", taken.unwrap_err());
            }
        }
        let examples: Vec<&str> = words::EXAMPLES.iter().map(|(name, _)| *name).collect();
        for name in examples.iter().filter(|name| !name.is_empty()) {
            page(&format!("decklog-{name}.1"));
        }
    }

    /// Words as a shell makes them of a line with single quotes.
    fn words_of_a_shell(line: &str) -> Vec<String> {
        let (mut words, mut word, mut quoted) = (Vec::new(), String::new(), false);
        for c in line.chars() {
            match c {
                '\'' => quoted = !quoted,
                ' ' if !quoted => words.extend(Some(std::mem::take(&mut word)).filter(|word| !word.is_empty())),
                c => word.push(c),
            }
        }
        words.extend(Some(word).filter(|word| !word.is_empty()));
        words
    }

    #[test]
    fn the_configuration_of_the_page_is_one() {
        let loaded = Config::parse(config::EXAMPLE, "the page", &[], Files::Ignore);
        assert!(loaded.is_ok(), "{}", loaded.unwrap_err());
    }
}
