//! `decklog man`: the man pages, made of the command line and of the configuration's schema, so that they say what is true
//! of this very program.

use std::fs;
use std::path::PathBuf;

use clap::{Arg, Args, Command, CommandFactory};
use jiff::Timestamp;

use super::output::Out;
use super::{Cli, Exit, Failure, Global, Outcome, clock};
use crate::spelling::nearest;
use roff::{Page, bold, escaped, italic};

mod config;
mod roff;
mod words;

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

/// What the pages call their date: today, or what builders of packages say, so that two builds are the same.
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
    let mut command = Cli::command();
    command.build();
    let mut pages = vec![("decklog.1".to_owned(), whole(&mut command, date))];
    of_commands(&mut command, "decklog", date, &mut pages);
    pages.push(("decklog-config.5".to_owned(), config::page(date)));
    pages
}

/// The page of each command below one.
fn of_commands(above: &mut Command, name: &str, date: &str, pages: &mut Vec<(String, String)>) {
    for command in above.get_subcommands_mut().filter(|command| command.get_name() != "help" && !command.is_hide_set())
    {
        let name = format!("{name}-{}", command.get_name());
        pages.push((format!("{name}.1"), of_command(command, &name, date)));
        of_commands(command, &name, date, pages);
    }
}

/// decklog(1): what there is, and what all commands have in common.
fn whole(command: &mut Command, date: &str) -> String {
    let mut page = Page::new("decklog", 1, date);
    page.name("decklog", &sentence_as_name(&about(command)));
    synopsis(&mut page, command);
    page.section("DESCRIPTION");
    for paragraph in words::DESCRIPTION {
        page.paragraph(paragraph);
    }
    page.section("COMMANDS");
    for (name, command) in every(command, "") {
        page.item(&format!("{}(1)", bold(&format!("decklog-{}", name.replace(' ', "-")))), &about(&command));
    }
    options(&mut page, command, |_| true);
    page.section("EXIT STATUS");
    for (code, says) in words::EXIT {
        page.item(&bold(code), says);
    }
    page.section("SIGNALS");
    for (signal, says) in words::SIGNALS {
        page.item(&bold(signal), says);
    }
    page.section("ENVIRONMENT");
    for (variable, says) in words::ENVIRONMENT {
        page.item(&bold(variable), says);
    }
    page.section("FILES");
    for (file, says) in words::FILES {
        page.item(&italic(file), says);
    }
    examples(&mut page, "");
    let others: Vec<String> =
        every(command, "").iter().map(|(name, _)| format!("decklog-{}(1)", name.replace(' ', "-"))).collect();
    page.see_also(others.iter().map(String::as_str).chain(["decklog-config(5)", "kubectl(1)"]));
    page.done()
}

fn of_command(command: &mut Command, name: &str, date: &str) -> String {
    let mut page = Page::new(name, 1, date);
    page.name(name, &sentence_as_name(&about(command)));
    synopsis(&mut page, command);
    page.section("DESCRIPTION");
    page.paragraph(&format!("{}.", about(command).trim_end_matches('.')));
    let below = every(command, "");
    if !below.is_empty() {
        page.section("COMMANDS");
        for (below, command) in &below {
            page.item(&format!("{}(1)", bold(&format!("{name}-{}", below.replace(' ', "-")))), &about(command));
        }
    }
    let arguments: Vec<&Arg> = command.get_positionals().filter(|arg| !arg.is_hide_set()).collect();
    if !arguments.is_empty() {
        page.section("ARGUMENTS");
        for argument in arguments {
            page.item(&italic(&value_name(argument)), &says(argument));
        }
    }
    // Those of every command stand in decklog(1).
    options(&mut page, command, |arg| !arg.is_global_set());
    page.section("EXIT STATUS");
    page.paragraph("0 when it is done, 1 when the answer is no. decklog(1) has all of them.");
    examples(&mut page, &name["decklog-".len()..]);
    page.see_also(["decklog(1)", "decklog-config(5)"]);
    page.done()
}

fn synopsis(page: &mut Page, command: &mut Command) {
    page.section("SYNOPSIS");
    let usage = command.render_usage().to_string();
    let lines: Vec<String> = usage.lines().map(|line| escaped(line.trim().trim_start_matches("Usage: "))).collect();
    page.usage(&lines);
}

/// The options, below the headings that help has for them. Help hides some to stay short; here all of them are.
fn options(page: &mut Page, command: &Command, wanted: impl Fn(&Arg) -> bool) {
    let options: Vec<&Arg> = command.get_arguments().filter(|arg| !arg.is_positional() && wanted(arg)).collect();
    if options.is_empty() {
        return;
    }
    page.section("OPTIONS");
    for option in options {
        let value = if takes_value(option) { format!(" {}", italic(&value_name(option))) } else { String::new() };
        let long = option.get_long().map(|long| bold(&format!("--{long}")) + &value);
        let short = option.get_short().map(|short| bold(&format!("-{short}")));
        let spellings: Vec<String> = short.into_iter().chain(long).collect();
        page.item(&spellings.join(", "), &says(option));
    }
}

fn takes_value(arg: &Arg) -> bool {
    arg.get_action().takes_values()
}

fn value_name(arg: &Arg) -> String {
    let names = arg.get_value_names().unwrap_or_default();
    let name = names.first().map_or_else(|| arg.get_id().as_str().to_uppercase(), ToString::to_string);
    if arg.is_positional() && arg.get_num_args().is_some_and(|many| many.max_values() > 1) {
        name + "..."
    } else {
        name
    }
}

/// What an argument means, what it takes, and its default.
fn says(arg: &Arg) -> String {
    let help = arg.get_long_help().or_else(|| arg.get_help()).map(ToString::to_string).unwrap_or_default();
    let mut text = help.trim().to_owned();
    let words: Vec<String> = if takes_value(arg) {
        arg.get_possible_values().iter().map(|value| format!("`{}`", value.get_name())).collect()
    } else {
        Vec::new()
    };
    if !words.is_empty() {
        text.push_str(&format!(". One of {}", words.join(", ")));
    }
    let defaults: Vec<String> =
        arg.get_default_values().iter().map(|value| value.to_string_lossy().into_owned()).collect();
    if !defaults.is_empty() && takes_value(arg) {
        text.push_str(&format!(" [default: {}]", defaults.join(", ")));
    }
    if let Some(variable) = arg.get_env() {
        text.push_str(&format!(" [environment: {}]", variable.to_string_lossy()));
    }
    text
}

fn about(command: &Command) -> String {
    command.get_about().map(ToString::to_string).unwrap_or_default()
}

/// As whatis has it: no capital at the beginning, no stop at the end.
fn sentence_as_name(text: &str) -> String {
    let mut letters = text.trim_end_matches('.').chars();
    letters.next().map(|first| first.to_lowercase().chain(letters).collect()).unwrap_or_default()
}

/// Every command below one that help names, as it is typed.
fn every(command: &Command, prefix: &str) -> Vec<(String, Command)> {
    let mut found = Vec::new();
    for below in command.get_subcommands().filter(|below| below.get_name() != "help" && !below.is_hide_set()) {
        let name = format!("{prefix}{}", below.get_name());
        found.push((name.clone(), below.clone()));
        found.extend(every(below, &format!("{name} ")));
    }
    found
}

fn examples(page: &mut Page, name: &str) {
    let Some((_, examples)) = words::EXAMPLES.iter().find(|(of, _)| *of == name) else { return };
    page.section("EXAMPLES");
    for (says, line) in *examples {
        page.paragraph(says);
        page.example(line);
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use crate::config::{Config, Files};

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
        let overview = page("decklog.1");
        for (path, command) in all {
            let text = page(&format!("decklog-{}.1", path.join("-")));
            assert!(overview.contains(&escaped(&format!("decklog-{}", path.join("-")))), "{path:?} in decklog(1)");
            for long in command.get_arguments().filter_map(Arg::get_long) {
                assert!(text.contains(&bold(&format!("--{long}"))), "--{long} of {path:?}");
            }
            for name in command.get_positionals().filter(|arg| !arg.is_hide_set()).filter_map(Arg::get_value_names) {
                assert!(text.contains(&escaped(&name[0])), "{} of {path:?}", name[0]);
            }
        }
        for global in ["--config", "--state", "--server", "--token-file", "--utc", "--no-pager", "--color", "--output"]
        {
            assert!(overview.contains(&bold(global)), "{global}");
        }
    }

    /// config.toml names every key, and a test of the configuration holds it to that.
    #[test]
    fn every_key_of_config_toml_is_in_its_page() {
        let text = page("decklog-config.5");
        let (mut header, mut word, mut seen) = (String::new(), String::new(), 0);
        for line in include_str!("../../config.toml").lines() {
            let line = line.strip_prefix('#').unwrap_or(line);
            if line.starts_with('[') {
                header = line.trim_matches(['[', ']']).to_owned();
                word.clear();
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
                    [format!("\"[{header}]\""), format!("\"[[{header}]]\"")].iter().any(|title| part.starts_with(title))
                })
                .expect(&header);
            let own = common
                .split(".SS ")
                .find(|part| !word.is_empty() && part.starts_with(&format!("\"type = \\(dq{word}")));
            let all = common.split(".SS ").next().unwrap();
            let term = format!(".TP\n{}", bold(key));
            assert!(all.contains(&term) || own.is_some_and(|own| own.contains(&term)), "{header}.{key} of {word:?}");
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

    #[test]
    fn no_text_is_taken_for_a_request() {
        let mut page = Page::new("x", 1, "2026-01-31");
        page.section("S");
        page.paragraph(".so /etc/passwd and `a-b` and 'c' \\fB");
        page.item(".x", "");
        page.example(".y\n'z");
        let text = page.done();
        let asked: Vec<&str> = text.lines().filter(|line| line.starts_with(['.', '\''])).collect();
        assert_eq!(
            asked,
            [
                ".TH X 1 2026-01-31 \"decklog 0.1.0\" \"User Commands\"",
                ".SH \"S\"",
                ".TP",
                ".PP",
                ".RS 4",
                ".nf",
                ".fi",
                ".RE"
            ]
        );
        assert!(text.contains("\\&.so /etc/passwd and \\fBa\\-b\\fR and \\(aqc\\(aq \\efB"), "{text}");
    }
}
