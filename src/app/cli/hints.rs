//! Suggestions where a habit of kubectl, git or journalctl does not fit.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory, Error};

use super::{Cli, Failure};
use crate::core::spelling::nearest;

/// Flags that others have.
const FLAGS: &[(&[&str], &str)] = &[
    (&["--lines", "--tail", "--limit", "--max-count"], "the newest 5 entries are --last 5"),
    (&["-w", "--watch", "--watch-only"], "`decklog tail -f KIND/NAME` prints changes as they come"),
    (&["-f", "--follow"], "`decklog tail -f` follows the log"),
    (&["-A", "--all-namespaces"], "all namespaces are the default; leave it out"),
    (&["-l", "--selector"], "`decklog tail` and `decklog get` select by labels"),
    (
        &["--user", "-s", "--token", "--as"],
        "a reading command asks no API server for objects: --state, --config or --server says whose log it reads, --token-file who reads",
    ),
    (
        &["--since-time", "--after", "-S"],
        "--since is not before, --touched PATH finds a field that changed, --grep a text",
    ),
    (&["--before", "-U"], "--until is not after"),
    (&["-g"], "write --grep"),
    (
        &["--author"],
        "--by kubectl-edit keeps what a program wrote, by the names of managedFields, and --by alice@example.com what a user \
         sent, where an audit log is read",
    ),
    (&["--field-selector"], "`decklog tail --where 'object.status.phase == \"Pending\"'` chooses by a field"),
    (&["-p", "--patch", "--stat"], "`decklog log -p KIND/NAME` prints what changed in each step"),
    (&["-L"], "name the fields after the object: `decklog blame KIND/NAME .spec`"),
    (&["-u", "--unit"], "name an object, such as deploy/web"),
    (&["--show-labels"], "-o wide prints the labels"),
    (&["--no-headers"], "-o name prints names alone"),
];

/// Commands that others have.
const COMMANDS: &[(&[&str], &str)] = &[
    (&["describe"], "`decklog get KIND/NAME` prints an object, `decklog blame KIND/NAME` who set what"),
    (
        &["events", "event"],
        "`decklog tail KIND/NAME` prints what happened to an object, `decklog tail events` Kubernetes' Events",
    ),
    (&["history", "rollout", "reflog"], "`decklog log KIND/NAME` prints the history of an object"),
    (
        &["who"],
        "`decklog log KIND/NAME` prints who changed an object and when, `decklog blame KIND/NAME` who set each field, `decklog why KIND/NAME FIELD` for whom",
    ),
    (
        &["logs"],
        "`decklog log KIND/NAME` prints the history of an object; `kubectl logs` prints the output of its containers",
    ),
    (&["watch", "follow"], "`decklog tail -f` follows the log"),
    (&["ls", "list"], "`decklog get KIND` lists objects"),
    (&["cat"], "`decklog show SEQ` prints an entry, `decklog get KIND/NAME` an object"),
    (
        &["undo", "revert", "restore", "rollback"],
        "`decklog get KIND/NAME --at MOMENT --clean | kubectl apply -f -` brings a version back",
    ),
    (&["outofsync", "sync", "selfheal", "self-heal"], "`decklog drift` prints what others wrote into fields of GitOps"),
    (&["assistant", "llm", "ai"], "`decklog mcp` serves the log to an assistant"),
    (&["gaps", "complete"], "`decklog coverage` prints of which time the log knows everything"),
    (&["top", "stats"], "`decklog churn` prints who writes most"),
    (&["start", "daemon", "serve"], "`decklog run` is the daemon"),
];

/// Explains the error of a command line, with the command to type instead.
pub(super) fn explain(mut error: Error, args: &[OsString]) -> String {
    let wrong = |kind: ErrorKind, part: ContextKind| match error.get(part) {
        Some(ContextValue::String(text)) if error.kind() == kind => Some(text.as_str()),
        _ => None,
    };
    let hint = wrong(ErrorKind::UnknownArgument, ContextKind::InvalidArg).and_then(|arg| flag(arg, args));
    let hint = hint.or_else(|| wrong(ErrorKind::InvalidSubcommand, ContextKind::InvalidSubcommand).and_then(command));
    let hint = hint.or_else(|| wrong(ErrorKind::InvalidValue, ContextKind::InvalidValue).and_then(format));
    let guesses = [
        ContextKind::SuggestedArg,
        ContextKind::SuggestedSubcommand,
        ContextKind::Suggested,
        ContextKind::SuggestedValue,
    ];
    // clap's own guesses go by letters alone, and `-- -l` is never what was meant.
    if hint.is_some() || matches!(error.kind(), ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand) {
        for kind in guesses {
            error.remove(kind);
        }
    }
    let text = error.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text).trim_end();
    let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
    let hint = hint.map_or_else(String::new, |hint| format!("; {hint}"));
    if rest.is_empty() { format!("{first}{hint}") } else { format!("{first}{hint}\n{rest}") }
}

fn habit(table: &[(&[&str], &str)], word: &str) -> Option<String> {
    table.iter().find(|(words, _)| words.contains(&word)).map(|(_, hint)| (*hint).to_owned())
}

fn flag(arg: &str, args: &[OsString]) -> Option<String> {
    let name = arg.split('=').next().unwrap_or(arg);
    if let Some(count) =
        name.strip_prefix('-').filter(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))
    {
        return Some(format!("the newest {count} entries are --last {count}"));
    }
    if !name.starts_with('-') {
        return Some("an object is written KIND/NAME here, such as deploy/web".to_owned());
    }
    if let Some(hint) = habit(FLAGS, name) {
        return Some(hint);
    }
    let cli = Cli::command();
    let used = args.iter().skip(1).find_map(|word| cli.find_subcommand(word.to_str()?));
    let flags = |command: &Command| {
        command.get_arguments().filter_map(|arg| arg.get_long().map(str::to_owned)).collect::<Vec<_>>()
    };
    let known: Vec<String> = flags(&cli).into_iter().chain(used.map(flags).unwrap_or_default()).collect();
    let near = nearest(name.strip_prefix("--")?, known.iter().map(String::as_str))?;
    Some(format!("did you mean --{near}?"))
}

fn command(word: &str) -> Option<String> {
    habit(COMMANDS, word).or_else(|| {
        let cli = Cli::command();
        let near = nearest(word, cli.get_subcommands().map(Command::get_name))?;
        Some(format!("did you mean {near}?"))
    })
}

/// Returns the hint for an output format of kubectl that decklog leaves to jq.
fn format(value: &str) -> Option<String> {
    let word = value.split('=').next().unwrap_or(value);
    let jq = ["jsonpath", "jsonpath-as-json", "jsonpath-file", "go-template", "custom-columns"].contains(&word);
    jq.then(|| "-o json and jq do that: `decklog get deploy/web -o json | jq .spec.replicas`".to_owned())
}
/// Reports whether the command of a command line is one of these.
pub(super) fn is_about(args: &[OsString], names: &[&str]) -> bool {
    let cli = Cli::command();
    let command = args.iter().skip(1).find_map(|word| cli.find_subcommand(word));
    command.is_some_and(|command| names.contains(&command.get_name()))
}

/// The sentence about a command that this program lacks.
pub(super) fn absent() -> Failure {
    Failure::usage(
        "this is the client alone, which reads: run this command with the program for Linux, where the daemon runs",
    )
}
