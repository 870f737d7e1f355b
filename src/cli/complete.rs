//! `decklog __complete`: what the journal has for the word that is being typed, for the scripts of `completions`.

use std::ffi::OsString;

use super::names::Spellings;
use super::output::Out;
use super::{Exit, Failure, Global, Outcome, guest, object, remote};
use crate::journal::Reader;
use crate::model::EntryType;

/// The word that stands for it in the place of a command. Nobody types it.
pub(super) const WORD: &str = "__complete";

/// No shell shows more of them.
const MOST: usize = 1000;

/// Prints the candidates, one per line, given the words after the command's name, the last of which is being typed;
/// nothing where the journal has none to say.
///
/// # Errors
/// Where the journal cannot be read.
pub(super) fn main(words: &[OsString]) -> Outcome {
    // bash makes words of their own of equals signs.
    let words = words.iter().map(|word| word.to_string_lossy().into_owned()).filter(|word| word != "=");
    let mut words: Vec<String> = words.collect();
    let mut global = Global { config: std::env::var_os("DECKLOG_CONFIG").map(Into::into), ..Global::default() };
    let mut here = false;
    for pair in words.windows(2) {
        match pair[0].as_str() {
            "--state" => (global.state, here) = (Some((&pair[1]).into()), true),
            "-c" | "--config" => (global.config, here) = (Some((&pair[1]).into()), true),
            "--server" => global.server.server = Some(pair[1].clone()),
            "--token-file" => global.server.token_file = Some((&pair[1]).into()),
            "--ca-file" => global.server.ca_file = Some((&pair[1]).into()),
            "--cert-file" => global.server.cert_file = Some((&pair[1]).into()),
            "--key-file" => global.server.key_file = Some((&pair[1]).into()),
            _ => {}
        }
    }
    if !here
        && guest::get().is_none()
        && let Some(server) = remote::named(&global.server)?
    {
        let words = words.iter().map(OsString::from);
        let line: Vec<OsString> = ["decklog", WORD].map(OsString::from).into_iter().chain(words).collect();
        return server.run(&line, &mut Out::new(&global));
    }
    let typed = words.pop().unwrap_or_default();
    let (reader, _) = global.reader()?;
    let mut out = Out::new(&global);
    for candidate in candidates(&reader, &words, &typed)?.into_iter().filter(|word| is_safe(word)).take(MOST) {
        out.line(&candidate)?;
    }
    out.flush()?;
    Ok(Exit::Done)
}

/// Whether a shell takes a word for itself, whatever it does with it: names come from the cluster.
fn is_safe(word: &str) -> bool {
    word.chars().all(|c| c.is_ascii_alphanumeric() || "-_./:,".contains(c))
}

fn candidates(reader: &Reader, words: &[String], typed: &str) -> Result<Vec<String>, Failure> {
    let Some(command) = words.iter().position(|word| COMMANDS.contains(&word.as_str())) else { return Ok(Vec::new()) };
    let (name, words) = (words[command].as_str(), &words[command + 1..]);
    let previous = words.last().map(String::as_str).unwrap_or_default();
    if typed.starts_with('-') {
        return Ok(Vec::new());
    }
    let (done, part) = typed.rsplit_once(',').map_or(("", typed), |(done, part)| (&typed[..=done.len()], part));
    let known: Vec<String> = match (name, previous) {
        (_, "-n" | "--namespace") => reader.namespaces()?.into_iter().collect(),
        (_, "--type") => EntryType::ALL.iter().map(|kind| kind.as_str().to_owned()).collect(),
        ("replay", "--sink") | ("sink", "init") => reader.sinks()?.into_iter().map(|sink| sink.name).collect(),
        ("replay" | "sink", _) => Vec::new(),
        (_, flag) if TAKE_A_VALUE.contains(&flag) => Vec::new(),
        _ => objects(reader, name, words, part)?,
    };
    let fits = |word: &String| word.to_lowercase().starts_with(&part.to_lowercase());
    Ok(known.into_iter().filter(fits).map(|word| format!("{done}{word}")).collect())
}

/// Commands of which the journal knows what they take.
const COMMANDS: [&str; 8] = ["tail", "log", "get", "diff", "blame", "churn", "replay", "sink"];

/// Flags whose values the journal does not know.
const TAKE_A_VALUE: [&str; 19] = [
    "--only",
    "--top",
    "-o",
    "--output",
    "--color",
    "-c",
    "--config",
    "--state",
    "-l",
    "--selector",
    "--since",
    "--until",
    "--where",
    "--touched",
    "--grep",
    "--last",
    "--at",
    "--from",
    "--to",
];

/// Kinds, or the names of a kind.
fn objects(reader: &Reader, command: &str, words: &[String], typed: &str) -> Result<Vec<String>, Failure> {
    let spellings = Spellings::load(reader)?;
    // `get deploy web`: the words before that are no flags and no values of flags.
    let mut before = words.iter().enumerate().filter(|(at, word)| {
        let value = *at > 0 && words[at - 1].starts_with('-') && words[at - 1].len() > 1 && takes_value(&words[at - 1]);
        !word.starts_with('-') && !value
    });
    let first = before.next().map(|(_, word)| word.as_str());
    if matches!(command, "log" | "blame") && (before.next().is_some() || first.is_some_and(|word| word.contains('/'))) {
        // They are about one object.
        return Ok(Vec::new());
    }
    let kind = first.filter(|word| !word.contains('/'));
    let by_kind = matches!(command, "get" | "log" | "blame");
    let (kind, prefix) = match (typed.split_once('/'), kind) {
        (Some((kind, _)), _) => (kind, format!("{kind}/")),
        (None, Some(kind)) if by_kind => (kind, String::new()),
        (None, _) => {
            let mut kinds = Vec::new();
            for resource in spellings.watched() {
                kinds.extend(resource.short_names.iter().cloned());
                kinds.extend([resource.plural.clone(), resource.full_name()]);
            }
            kinds.sort();
            kinds.dedup();
            return Ok(kinds);
        }
    };
    let Ok(named) = spellings.read(kind) else { return Ok(Vec::new()) };
    let namespaces: Vec<String> = words
        .windows(2)
        .filter(|pair| matches!(pair[0].as_str(), "-n" | "--namespace"))
        .flat_map(|pair| pair[1].split(',').map(str::to_owned))
        .collect();
    let start = typed.rsplit('/').next().unwrap_or_default();
    let mut names = Vec::new();
    for (id, _) in &named.resources {
        let rows = object::of_resource(reader, *id, &namespaces, Some(&format!("{start}*")))?;
        names.extend(rows.into_iter().map(|row| format!("{prefix}{}", row.name)));
    }
    names.sort();
    names.dedup();
    Ok(names)
}

fn takes_value(flag: &str) -> bool {
    TAKE_A_VALUE.contains(&flag) || matches!(flag, "-n" | "--namespace" | "--type")
}
