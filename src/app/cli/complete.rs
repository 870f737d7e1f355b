//! `decklog __complete`: what there is for the word that is being typed, for the scripts of `completions`: what the journal
//! has, and the values that a flag takes. The flags themselves are in the scripts.

use std::ffi::OsString;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use clap::{Arg, Command, CommandFactory};

use super::output::Out;
use super::{Cli, Exit, Failure, Global, Outcome, remote};
use crate::core::model::EntryType;
use crate::query::questions::names::Names;

/// The word that stands for it in the place of a command. Nobody types it.
pub(super) const WORD: &str = "__complete";

/// No shell shows more of them.
const MOST: usize = 1000;

/// Time limit for the candidates: a shell that waits longer for a word is one that hangs.
const CANDIDATES_TIMEOUT: Duration = Duration::from_secs(3);

/// Times that people ask for most, among all that there are.
const TIMES: [&str; 8] = ["10m", "30m", "1h", "6h", "1d", "7d", "today", "yesterday"];

/// Prints the candidates, one per line, given the words after the command's name, the last of which is being typed;
/// nothing where there is none to say, or where a server says nothing in time. `is_plugin` is true where kubectl asks.
///
/// # Errors
/// Where the journal cannot be read.
pub(super) fn main(words: &[OsString], is_plugin: bool) -> Outcome {
    // bash makes words of their own of equals signs.
    let empty = words.last().is_some_and(|word| word == "=").then(String::new);
    let words = words.iter().map(|word| word.to_string_lossy().into_owned()).filter(|word| word != "=");
    let mut words: Vec<String> = words.chain(empty).collect();
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(Into::into);
    let (config, config_dir) = (variable("DECKLOG_CONFIG"), variable("DECKLOG_CONFIG_DIR"));
    let mut global = Global { config, config_dir, is_plugin, ..Global::default() };
    let mut here = false;
    for pair in apart(&words).windows(2) {
        match pair[0].as_str() {
            "--state" => (global.state, global.config_dir, here) = (Some((&pair[1]).into()), None, true),
            "-c" | "--config" => (global.config, global.config_dir, here) = (Some((&pair[1]).into()), None, true),
            "--config-dir" => (global.config_dir, here) = (Some((&pair[1]).into()), true),
            "--cluster" => global.cluster = Some(pair[1].clone()),
            "--server" => global.server.server = Some(pair[1].clone()),
            "--token-file" => global.server.token_file = Some((&pair[1]).into()),
            "--ca-file" => global.server.ca_file = Some((&pair[1]).into()),
            "--cert-file" => global.server.cert_file = Some((&pair[1]).into()),
            "--context" => global.server.context = Some(pair[1].clone()),
            "--kubeconfig" => global.server.kubeconfig = Some((&pair[1]).into()),
            "--key-file" => global.server.key_file = Some((&pair[1]).into()),
            _ => {}
        }
    }
    if !here {
        global.remote = remote::unnamed(&global)?.map(Arc::new);
    }
    let mut out = Out::new(&global);
    let typed = words.pop().unwrap_or_default();
    for candidate in in_time(move || candidates(&global, &words, &typed))?.iter().take(MOST) {
        out.line(candidate)?;
    }
    out.flush()?;
    Ok(Exit::Done)
}

/// Does the work on a thread, which is left alone where it takes too long: the end of the process ends it.
fn in_time(work: impl FnOnce() -> Result<Vec<String>, Failure> + Send + 'static) -> Result<Vec<String>, Failure> {
    let (sender, done) = mpsc::channel();
    let thread = std::thread::Builder::new().name("candidates".to_owned());
    // Who waits no more takes nothing.
    let started = thread.spawn(move || drop(sender.send(work())));
    started.map_err(|error| Failure::io("cannot start a thread", &error))?;
    done.recv_timeout(CANDIDATES_TIMEOUT).unwrap_or_else(|_| Ok(Vec::new()))
}

/// The words, with `--flag=value` as two.
fn apart(words: &[String]) -> Vec<String> {
    let split = |word: &String| match word.split_once('=') {
        Some((flag, value)) if flag.starts_with("--") => vec![flag.to_owned(), value.to_owned()],
        _ => vec![word.clone()],
    };
    words.iter().flat_map(split).collect()
}

/// Reports whether a shell takes a word literally: names come from the cluster.
fn is_safe(word: &str) -> bool {
    word.chars().all(|c| c.is_ascii_alphanumeric() || "-_./:,@".contains(c))
}

fn candidates(global: &Global, words: &[String], typed: &str) -> Result<Vec<String>, Failure> {
    let mut words = apart(words);
    let (mut before, mut typed) = (String::new(), typed);
    if let Some((flag, value)) = typed.split_once('=').filter(|(flag, _)| flag.starts_with("--")) {
        words.push(flag.to_owned());
        (before, typed) = (format!("{flag}="), value);
    } else if typed.starts_with('-') {
        return Ok(Vec::new());
    }
    let line = Line::new(&words);
    let (done, part) = typed.rsplit_once(',').map_or(("", typed), |(done, part)| (&typed[..=done.len()], part));
    let known = line.known(global, part)?;
    let fits = |word: &String| is_safe(word) && word.to_lowercase().starts_with(&part.to_lowercase());
    Ok(known.into_iter().filter(fits).map(|word| format!("{before}{done}{word}")).collect())
}

/// Words before the one that is being typed.
struct Line<'w> {
    cli: Command,
    /// The name of the command, where there is one yet.
    name: &'w str,
    /// Words after the command.
    words: &'w [String],
    /// The word before.
    previous: &'w str,
}

impl<'w> Line<'w> {
    fn new(words: &'w [String]) -> Self {
        let cli = Cli::command();
        let command = words.iter().position(|word| cli.find_subcommand(word).is_some());
        let name = command.map_or("", |at| words[at].as_str());
        let after = command.map_or(&[][..], |at| &words[at + 1..]);
        Self { cli, name, words: after, previous: words.last().map_or("", String::as_str) }
    }

    /// The flag that a word is, where it takes a value.
    fn takes_value(&self, word: &str) -> Option<&Arg> {
        let is = |arg: &&Arg| match word.strip_prefix("--") {
            Some(long) => arg.get_long() == Some(long),
            None => arg.get_short().is_some_and(|short| word == format!("-{short}")),
        };
        let mut args =
            self.cli.find_subcommand(self.name).into_iter().chain([&self.cli]).flat_map(Command::get_arguments);
        args.find(is).filter(|arg| arg.get_action().takes_values())
    }

    /// The words that are no flags and no values of flags.
    fn plain(&self) -> impl Iterator<Item = &'w str> {
        let is_value = |at: usize| at > 0 && self.takes_value(&self.words[at - 1]).is_some();
        let words = self.words.iter().enumerate();
        words.filter(move |(at, word)| !word.starts_with('-') && !is_value(*at)).map(|(_, word)| word.as_str())
    }

    /// The one object, KIND/NAME, that the words before name: `deploy/web` or `deploy web`.
    fn object(&self) -> Option<String> {
        let mut words = self.plain();
        let first = words.next()?;
        if first.contains('/') {
            return Some(first.to_owned());
        }
        words.next().map(|name| format!("{first}/{name}"))
    }

    /// The values of `-n`.
    fn namespaces(&self) -> Vec<String> {
        let flags = self.words.windows(2).filter(|pair| matches!(pair[0].as_str(), "-n" | "--namespace"));
        flags.flat_map(|pair| pair[1].split(',').map(str::to_owned)).collect()
    }

    fn fields(&self, global: &Global, object: Option<String>, start: &str) -> Result<Vec<String>, Failure> {
        names(global, Names::Fields { object, namespaces: self.namespaces(), start: start.to_owned() })
    }

    /// All that the word can be, as far as anybody knows.
    fn known(&self, global: &Global, part: &str) -> Result<Vec<String>, Failure> {
        let flag = self.takes_value(self.previous);
        Ok(match (self.name, flag.and_then(Arg::get_long)) {
            (_, Some("namespace")) => names(global, Names::Namespaces)?,
            (_, Some("cluster")) => {
                let all = Global { cluster: None, ..global.clone() }.sections()?;
                all.unwrap_or_default().into_iter().map(|section| section.name).collect()
            }
            (_, Some("since" | "until" | "at" | "from" | "to")) => TIMES.map(str::to_owned).into(),
            (_, Some("by")) => names(global, Names::Managers)?,
            (_, Some("touched")) => self.fields(global, None, part)?,
            (_, Some("type")) => EntryType::ALL.iter().map(|kind| kind.as_str().to_owned()).collect(),
            ("replay", Some("sink")) => names(global, Names::Sinks)?,
            (_, Some(_)) => flag.map_or_else(Vec::new, values),
            ("sink", None) if self.previous == "init" => names(global, Names::Sinks)?,
            ("blame" | "why", None) if self.object().is_some() => self.fields(global, self.object(), part)?,
            ("tail" | "log" | "get" | "diff" | "blame" | "why" | "drift" | "churn" | "coverage" | "timeline", None) => {
                objects(global, self, part)?
            }
            (name, None) => {
                let place = self.cli.find_subcommand(name).and_then(|command| command.get_positionals().next());
                place.filter(|_| self.words.is_empty()).map_or_else(Vec::new, values)
            }
        })
    }
}

/// The words that an argument takes, where it is not free.
fn values(arg: &Arg) -> Vec<String> {
    let shown = arg.get_possible_values().into_iter().filter(|value| !value.is_hide_set());
    shown.map(|value| value.get_name().to_owned()).collect()
}

/// Names that the journal has.
fn names(global: &Global, question: Names) -> Result<Vec<String>, Failure> {
    let mut names = Vec::new();
    global.ask(question, &mut |name| {
        names.push(name);
        Ok(())
    })?;
    Ok(names)
}

/// Kinds, or the names of a kind.
fn objects(global: &Global, line: &Line<'_>, typed: &str) -> Result<Vec<String>, Failure> {
    let command = line.name;
    // `get deploy web`: the words before that.
    let mut before = line.plain();
    let first = before.next();
    if matches!(command, "log" | "blame" | "why")
        && (before.next().is_some() || first.is_some_and(|word| word.contains('/')))
    {
        // They are about one object.
        return Ok(Vec::new());
    }
    let kind = first.filter(|word| !word.contains('/'));
    let by_kind = matches!(command, "get" | "log" | "blame" | "why");
    let (kind, prefix) = match (typed.split_once('/'), kind) {
        (Some((kind, _)), _) => (kind, format!("{kind}/")),
        (None, Some(kind)) if by_kind => (kind, String::new()),
        (None, _) => return names(global, Names::Kinds),
    };
    let namespaces = line.namespaces();
    let start = typed.rsplit('/').next().unwrap_or_default().to_owned();
    let names = names(global, Names::Objects { kind: kind.to_owned(), namespaces, start })?;
    Ok(names.into_iter().map(|name| format!("{prefix}{name}")).collect())
}
