//! The configuration: `config.toml` and the environment, read into the settings of each room.
//!
//! Only this module knows files, places in files, and the environment. What can be set, what a text has to look like and
//! what the default is stand with the room that it is for (`watch::Settings`, `sink::redis::Settings`); here they are put
//! together, and no room below knows of this one. The types are also the only description of the file: the JSON Schema is
//! derived from them (`schema`), a key's doc comment is its documentation (`reference`; `docs/keys.md` is made of it), and `check`
//! walks that schema, so that a key exists in the file, in the schema and in the
//! messages or in none of them.
//!
//! A wrong configuration is never half taken. Every problem in it is found in one reading and reported at once, each
//! with its place, the key's path, what was found, what was expected and the nearest valid spelling.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::app::ha;
use crate::audit_log;
use crate::core::change::redact::{self, SenderPart};
use crate::core::net::is_loopback;
use crate::core::spelling::nearest;
use crate::core::telemetry;
use crate::core::units::ByteSize;
use crate::delivery;
use crate::evidence::settings::Settings as Evidence;
use crate::journal;
use crate::sink::notify::{Needed, Needs, Notify, Rule};
use crate::watch;
use crate::watch::cluster;
use crate::web::http;
use crate::web::ui;

mod check;
mod directory;
mod environment;
pub mod evidence;
mod format;
mod problem;
mod reference;
mod schema;
mod tree;

#[cfg(test)]
mod tests;

pub use directory::{ClusterFile, Directory};
pub use problem::{Problem, Problems, SourceSpan};
pub use reference::{Key, Table, reference};
use schema::GRAMMAR;
pub use schema::config_schema;

/// A configuration file has at most this many bytes: more is some other file.
const MAX_FILE: u64 = 1 << 20;

/// Files that are tried if none is named.
pub const STANDARD_FILES: [&str; 2] = ["./config.toml", "/etc/decklog/config.toml"];

/// Name in messages of a configuration without a file.
const MADE: &str = "the configuration of `decklog init`";

/// The directories that systemd gives a service, by the variable that names them.
const DIRECTORIES: [&str; 4] = ["STATE_DIRECTORY", "LOGS_DIRECTORY", "RUNTIME_DIRECTORY", "CREDENTIALS_DIRECTORY"];

/// A configuration that was found right, and where it came from.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// The file; none where there was none, and this was made for the cluster.
    pub path: Option<PathBuf>,
    /// Warnings about settings that are allowed, one sentence each.
    pub warnings: Vec<String>,
}

impl Loaded {
    /// Returns its name in messages.
    #[must_use]
    pub fn name(&self) -> String {
        self.path.as_ref().map_or_else(|| MADE.to_owned(), |path| path.display().to_string())
    }
}

/// Selects whether the check reads the files that the configuration names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Files {
    /// They are: the daemon needs them.
    Check,
    /// They are not: a command that only reads the journal must not need the daemon's secrets.
    Ignore,
}

impl Config {
    /// Reads the configuration for the daemon: from `path`, else `$DECKLOG_CONFIG`, `./config.toml`,
    /// `/etc/decklog/config.toml`; with what the environment overrides.
    ///
    /// # Errors
    /// Everything that is wrong with it, at once.
    pub fn load(path: Option<&Path>) -> Result<Loaded, Problems> {
        Self::load_with(path, &environment(), Files::Check)
    }

    /// Loads as [`Config::load`] does, for commands that only read the journal: secrets that this user cannot read, and
    /// directories that only the service has, are no error.
    ///
    /// # Errors
    /// Everything that is wrong with it, at once.
    pub fn load_for_reading(path: Option<&Path>) -> Result<Loaded, Problems> {
        Self::load_with(path, &environment(), Files::Ignore)
    }

    /// Loads as [`Config::load`] does, with this environment.
    ///
    /// # Errors
    /// Everything that is wrong with it, at once.
    pub fn load_with(path: Option<&Path>, environment: &[(String, String)], files: Files) -> Result<Loaded, Problems> {
        let path = find(path, environment)?;
        let text = read(&path)?;
        let mut loaded = Self::parse(&text, &path.display().to_string(), environment, files)?;
        loaded.path = Some(path);
        Ok(loaded)
    }

    /// Reads a configuration that decklog made itself, with what the environment overrides.
    ///
    /// # Errors
    /// Everything that is wrong with it, at once.
    pub fn made(text: &str) -> Result<Loaded, Problems> {
        Self::parse(text, MADE, &environment(), Files::Check)
    }

    /// Reads a configuration out of a text. `file` is what messages call it.
    ///
    /// # Errors
    /// Everything that is wrong with it, at once.
    pub fn parse(text: &str, file: &str, environment: &[(String, String)], files: Files) -> Result<Loaded, Problems> {
        Self::parse_given(text, file, environment, files, &GRAMMAR, &mut Given::default())
    }

    /// Parses as [`Config::parse`] does, by this schema. `given` are the keys of the text, whatever the errors in the rest.
    fn parse_given(
        text: &str,
        file: &str,
        environment: &[(String, String)],
        files: Files,
        schema: &serde_json::Value,
        given: &mut Given,
    ) -> Result<Loaded, Problems> {
        let (mut root, mut problems) = tree::parse(text);
        if let Some(problem) = problems.first().and_then(|_| tree::other_language(text)) {
            return Err(Problems { file: file.to_owned(), list: vec![problem] });
        }
        let broken: Vec<Option<usize>> = problems.iter().map(|problem| problem.place.line()).collect();
        let homeless = tree::below_headers(text, &broken);
        problems.extend(environment::apply(&mut root, schema, environment));
        expand(&mut root, "", environment, files, &mut problems);
        *given = Given::of(&root);
        let reported: Vec<String> = problems.iter().map(|problem| problem.key.clone()).collect();
        problems.extend(check::check(&root, schema, files).into_iter().filter(|problem| {
            // One mistake is reported once: not again for what could be read of a broken line or of a path without its
            // directory, not for keys below a broken header, and not for those that are missing because a broken line
            // holds them.
            let line = problem.place.line();
            let again = broken.contains(&line) || reported.contains(&problem.key) || homeless.contains(&line);
            !again && (broken.is_empty() || problem.found != check::MISSING)
        }));
        if problems.is_empty() {
            match serde_json::from_value::<Self>(root.to_json()) {
                Ok(mut config) => {
                    if given.state.is_none()
                        && let Some(directory) = variable(environment, "STATE_DIRECTORY")
                    {
                        config.state.path = directory.split(':').next().unwrap_or(directory).into();
                    }
                    let warnings = config.warnings();
                    return Ok(Loaded { config, path: None, warnings });
                }
                Err(error) => {
                    // The checker and the types come from one description, so this is a bug; it is reported all the
                    // same.
                    let expected = "a value that the types take; please report this".to_owned();
                    return Err(Problems::whole(file.to_owned(), error.to_string(), expected));
                }
            }
        }
        problems.sort_by_cached_key(|problem| tree::order(&problem.place));
        problems.dedup();
        Err(Problems { file: file.to_owned(), list: problems })
    }

    /// Returns the warnings of a valid configuration.
    fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        for sink in &self.sink {
            let settings = sink.kind.settings();
            if let Some(url) = settings.credentials_to()
                && let scheme @ ("http" | "redis") = url.scheme()
                && !is_loopback(url.host_str().unwrap_or_default())
            {
                warnings.push(format!(
                    "the sink {:?} sends its credentials over {scheme}:// in clear: use {scheme}s://, unless the network is trusted",
                    sink.name
                ));
            }
            warnings.extend(settings.warning().map(|warning| format!("the sink {:?} {warning}", sink.name)));
            let notify = settings.notify();
            warnings.extend(notify.iter().flat_map(|notify| self.never(&sink.name, notify)));
            let notify = notify.filter(|_| self.redact.senders.contains(&SenderPart::Users));
            if let Some(rule) = notify.as_ref().and_then(Notify::needs_users) {
                warnings.push(format!(
                    "the sink {:?} has the rule {rule:?}, which selects nothing while [redact] senders has \"users\": a digest does not say whether it is a person; leave out one of the two",
                    sink.name
                ));
            }
        }
        warnings
    }

    /// Returns a sentence for each rule of a sink that can select nothing, because nothing brings what it is about.
    fn never(&self, sink: &str, notify: &Notify) -> Vec<String> {
        let sentence = |rule: &Rule| {
            let lacks = match rule.needs()? {
                Needs::AuditLog if self.audit_log.is_empty() => "there is no [[audit_log]]".to_owned(),
                Needs::AuditLog => return None,
                Needs::Resources(needed) => {
                    let is_brought = |one: &Needed| self.watch.iter().any(|watch| watch.may_bring(&one.resource()));
                    if needed.iter().any(is_brought) {
                        return None;
                    }
                    let names: Vec<&str> = needed.iter().map(|one| one.plural).collect();
                    format!("no [[watch]] brings {}", names.join(", "))
                }
            };
            let name = rule.name();
            Some(format!(
                "the sink {sink:?} has the rule {name:?}, which selects nothing: {lacks}; add that, or leave out the rule"
            ))
        };
        notify.rules.iter().filter_map(sentence).collect()
    }
}

/// Keys that a text sets, as opposed to defaults.
#[derive(Clone, Debug, Default)]
struct Given {
    /// `[cluster] name`.
    name: Option<String>,
    /// `[state] path`.
    state: Option<String>,
    /// Set if `[log]` is there.
    log: bool,
}

impl Given {
    fn of(root: &tree::Node) -> Self {
        let text = |section, key| root.get(section).and_then(|section| section.get(key)).and_then(tree::Node::text);
        let owned = |section, key| text(section, key).map(str::to_owned);
        Self { name: owned("cluster", "name"), state: owned("state", "path"), log: root.get("log").is_some() }
    }
}

/// The environment of this process, as far as it is of use here. An empty variable is as good as none.
fn environment() -> Vec<(String, String)> {
    std::env::vars_os()
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
        .filter(|(name, value)| {
            !value.is_empty() && (name.starts_with("DECKLOG_") || DIRECTORIES.contains(&name.as_str()))
        })
        .collect()
}

fn variable<'e>(environment: &'e [(String, String)], name: &str) -> Option<&'e str> {
    environment.iter().find(|(known, value)| known == name && !value.is_empty()).map(|(_, value)| value.as_str())
}

/// The file that counts when nobody names one.
#[must_use]
pub fn standard_file() -> Option<PathBuf> {
    STANDARD_FILES.iter().map(PathBuf::from).find(|path| path.exists())
}

fn find(path: Option<&Path>, environment: &[(String, String)]) -> Result<PathBuf, Problems> {
    if let Some(path) = path {
        return Ok(path.to_owned());
    }
    if let Some(path) = variable(environment, "DECKLOG_CONFIG") {
        return Ok(path.into());
    }
    standard_file().ok_or_else(|| {
        Problems::whole(
            "config.toml".to_owned(),
            format!("no file: $DECKLOG_CONFIG is not set, and there is no {}", STANDARD_FILES.join(" and no ")),
            "a configuration: `decklog init` writes one for your cluster, and --config FILE names one that is elsewhere; \
             `decklog demo` needs none"
                .to_owned(),
        )
    })
}

fn read(path: &Path) -> Result<String, Problems> {
    let whole = |found: String, expected: &str| Problems::whole(path.display().to_string(), found, expected.to_owned());
    let failed = |error: io::Error| {
        whole(format!("a file that cannot be read: {error}"), "a file in TOML that this user can read")
    };
    let mut bytes = Vec::new();
    File::open(path).map_err(failed)?.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(whole(format!("more than {}", ByteSize(MAX_FILE)), "a configuration in TOML"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let line = error.as_bytes()[..error.utf8_error().valid_up_to()].iter().filter(|b| **b == b'\n').count() + 1;
        whole(format!("bytes that are not UTF-8 in line {line}"), "a text in UTF-8")
    })
}

/// Puts systemd's directories in the place of `${CREDENTIALS_DIRECTORY}` and its like at the beginning of a value.
fn expand(
    node: &mut tree::Node,
    path: &str,
    environment: &[(String, String)],
    files: Files,
    problems: &mut Vec<Problem>,
) {
    match &mut node.value {
        tree::Value::Text(text) => {
            let Some((name, rest)) = text.strip_prefix("${").and_then(|text| text.split_once('}')) else { return };
            let known = DIRECTORIES.contains(&name);
            if let Some(directory) = variable(environment, name).filter(|_| known) {
                *text = format!("{}{rest}", directory.split(':').next().unwrap_or(directory));
            } else if !known || files == Files::Check {
                let why = if known { "which is not set: systemd sets it for a service" } else { "which is never used" };
                problems.push(Problem {
                    place: node.place.clone(),
                    key: path.to_owned(),
                    found: format!("${{{name}}}, {why}"),
                    expected: format!("a path, or one that begins with ${{{}}}", DIRECTORIES.join("}, ${")),
                    nearest: nearest(name, DIRECTORIES).filter(|_| !known).map(|name| format!("${{{name}}}")),
                });
            }
        }
        tree::Value::List(nodes) => {
            for (index, node) in nodes.iter_mut().enumerate() {
                expand(node, &format!("{path}[{index}]"), environment, files, problems);
            }
        }
        tree::Value::Table(members) => {
            for member in members {
                let path = if path.is_empty() { member.key.clone() } else { format!("{path}.{}", member.key) };
                expand(&mut member.node, &path, environment, files, problems);
            }
        }
        tree::Value::Integer(_) | tree::Value::Boolean(_) | tree::Value::Other(..) => {}
    }
}

/// Everything that `config.toml` and the environment say.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The cluster that is read.
    #[serde(default)]
    pub cluster: cluster::Settings,
    /// The state directory, which holds the journal.
    #[serde(default)]
    pub state: journal::Settings,
    /// Resources that are watched; at least one.
    #[schemars(length(min = 1))]
    pub watch: Vec<watch::Settings>,
    /// Values that never reach the disk in clear.
    #[serde(default)]
    pub redact: redact::Settings,
    /// Sinks that the log is delivered to; none means the journal alone.
    #[serde(default)]
    pub sink: Vec<delivery::Settings>,
    /// Sources of the API server's audit log, which says who asked for a change; none means that it is not read.
    #[serde(default)]
    pub audit_log: Vec<audit_log::Settings>,
    /// Signed checkpoints over the log; absent means off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Evidence>,
    /// A log that outlives its machine, and a second decklog that takes over; absent means off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ha: Option<ha::Settings>,
    /// The HTTP endpoints; absent means off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<http::Settings>,
    /// The timeline page; absent means off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ui: Option<ui::Settings>,
    /// decklog's own log.
    #[serde(default)]
    pub log: telemetry::Settings,
}
