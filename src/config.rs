//! The configuration: `config.toml` and the environment, read into plain types.
//!
//! Only this module knows files, places in files, and the environment; everyone else takes the plain types below by
//! reference. The types are also the only description of the file: the JSON Schema is derived from them, and the
//! checker walks that schema, so that a key exists in the file, in the schema and in the messages or in none of them.
//!
//! A wrong configuration is never half taken. Every problem in it is found in one reading and told at once, each with
//! its place, the key's path, what was found, what was expected and the nearest valid spelling.

use std::fs::File;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

mod check;
mod environment;
mod format;
mod problem;
mod schema;
mod sink;
mod tree;
mod value;

#[cfg(test)]
mod tests;

pub(crate) use problem::nearest;
pub use problem::{Place, Problem, Problems};
pub use schema::config_schema;
pub use sink::{
    CloudEvents, Compress, ElasticsearchSink, Facility, FileSink, From, Gzip, HttpSink, JournaldSink, KafkaCompression,
    KafkaMode, KafkaSink, NatsSink, OnRefused, OtlpSink, Partition, PostgresSink, Protocol, RedisSink, S3Sink, Sasl,
    Sink, SinkKind, SslMode, SyslogSink, Tls,
};
pub use value::{format_duration, format_size, parse_duration, parse_size};

/// A configuration file has at most this many bytes: more is some other file.
const MAX_FILE: u64 = 1 << 20;

/// Where the file is looked for when nobody names it.
pub const STANDARD_FILES: [&str; 2] = ["./config.toml", "/etc/decklog/config.toml"];

/// The directories that systemd gives a service, by the variable that names them.
const DIRECTORIES: [&str; 4] = ["STATE_DIRECTORY", "LOGS_DIRECTORY", "RUNTIME_DIRECTORY", "CREDENTIALS_DIRECTORY"];

/// A configuration that was found right, and where it came from.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// What it says.
    pub config: Config,
    /// The file.
    pub path: PathBuf,
    /// What is allowed and yet worth a word to who runs it, one sentence each.
    pub warnings: Vec<String>,
}

/// Whether files that the configuration names are read while it is checked.
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

    /// As [`Config::load`], for commands that only read the journal: secrets that this user cannot read, and
    /// directories that only the service has, are no problem.
    ///
    /// # Errors
    /// Everything that is wrong with it, at once.
    pub fn load_for_reading(path: Option<&Path>) -> Result<Loaded, Problems> {
        Self::load_with(path, &environment(), Files::Ignore)
    }

    /// As [`Config::load`], with this environment.
    ///
    /// # Errors
    /// Everything that is wrong with it, at once.
    pub fn load_with(path: Option<&Path>, environment: &[(String, String)], files: Files) -> Result<Loaded, Problems> {
        let path = find(path, environment)?;
        let text = read(&path)?;
        let mut loaded = Self::parse(&text, &path.display().to_string(), environment, files)?;
        loaded.path = path;
        Ok(loaded)
    }

    /// Reads a configuration out of a text. `file` is what messages call it.
    ///
    /// # Errors
    /// Everything that is wrong with it, at once.
    pub fn parse(text: &str, file: &str, environment: &[(String, String)], files: Files) -> Result<Loaded, Problems> {
        let schema = config_schema();
        let (mut root, mut problems) = tree::parse(text);
        let broken: Vec<Option<usize>> = problems.iter().map(|problem| problem.place.line()).collect();
        problems.extend(environment::apply(&mut root, &schema, environment));
        expand(&mut root, "", environment, files, &mut problems);
        let told: Vec<String> = problems.iter().map(|problem| problem.key.clone()).collect();
        problems.extend(check::check(&root, &schema, files).into_iter().filter(|problem| {
            // One mistake is told once: not again for what could be read of a broken line or of a path without its
            // directory, and not for keys that are missing because a broken line holds them.
            let again = broken.contains(&problem.place.line()) || told.contains(&problem.key);
            !again && (broken.is_empty() || problem.found != check::MISSING)
        }));
        if problems.is_empty() {
            match serde_json::from_value::<Self>(root.to_json()) {
                Ok(mut config) => {
                    if root.get("state").and_then(|state| state.get("path")).is_none()
                        && let Some(directory) = variable(environment, "STATE_DIRECTORY")
                    {
                        config.state.path = directory.split(':').next().unwrap_or(directory).into();
                    }
                    let warnings = config.warnings();
                    return Ok(Loaded { config, path: PathBuf::from(file), warnings });
                }
                Err(error) => {
                    // The checker and the types come from one description, so this is a bug; it is told all the same.
                    let expected = "a value that the types take; please report this".to_owned();
                    return Err(Problems::whole(file.to_owned(), error.to_string(), expected));
                }
            }
        }
        problems.sort_by_cached_key(|problem| tree::order(&problem.place));
        problems.dedup();
        Err(Problems { file: file.to_owned(), list: problems })
    }

    /// What is allowed and yet worth a word.
    fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        for sink in &self.sink {
            for (scheme, safe) in [("http", "https"), ("redis", "rediss")] {
                if sink.kind.credentials_to().is_some_and(|url| crosses_a_network_in_clear(url, scheme)) {
                    warnings.push(format!(
                        "the sink {:?} sends its credentials over {scheme}:// in clear: use {safe}://, unless the network is trusted",
                        sink.name
                    ));
                }
            }
            if let SinkKind::Postgres(database) = &sink.kind
                && database.sslmode == SslMode::Disable
                && crate::sink::postgres::leaves_this_machine(&database.url)
            {
                warnings.push(format!(
                    "the sink {:?} speaks to its database in clear: take sslmode = \"disable\" away, unless the network is trusted",
                    sink.name
                ));
            }
        }
        warnings
    }
}

/// Whether this is a URL with the scheme that means no TLS, to another machine. What cannot be parsed is told elsewhere.
fn crosses_a_network_in_clear(url: &str, scheme: &str) -> bool {
    let url = reqwest::Url::parse(url).ok().filter(|url| url.scheme() == scheme);
    url.is_some_and(|url| !crate::cluster::is_loopback(url.host_str().unwrap_or_default()))
}

impl Redact {
    /// The key of the digests, made out of `key_file`; none where the configuration names no file.
    ///
    /// # Errors
    /// Where the file cannot be read.
    pub fn read_key(&self) -> io::Result<Option<[u8; 32]>> {
        let Some(path) = &self.key_file else { return Ok(None) };
        let mut bytes = Vec::new();
        File::open(path)?.take(MAX_FILE).read_to_end(&mut bytes)?;
        Ok(Some(Sha256::digest(&bytes).into()))
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

fn find(path: Option<&Path>, environment: &[(String, String)]) -> Result<PathBuf, Problems> {
    if let Some(path) = path {
        return Ok(path.to_owned());
    }
    if let Some(path) = variable(environment, "DECKLOG_CONFIG") {
        return Ok(path.into());
    }
    STANDARD_FILES.iter().map(PathBuf::from).find(|path| path.exists()).ok_or_else(|| {
        Problems::whole(
            "config.toml".to_owned(),
            format!("no file: $DECKLOG_CONFIG is not set, and there is no {}", STANDARD_FILES.join(" and no ")),
            "a configuration. Copy config.toml from decklog's repository to one of these places, \
             or name a file with --config FILE; `decklog demo` needs none"
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
        return Err(whole(format!("more than {}", format_size(MAX_FILE)), "a configuration in TOML"));
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
    pub cluster: Cluster,
    /// The state directory, which holds the journal.
    #[serde(default)]
    pub state: State,
    /// What is watched; at least one.
    #[schemars(length(min = 1))]
    pub watch: Vec<Watch>,
    /// What never reaches the disk in clear.
    #[serde(default)]
    pub redact: Redact,
    /// Where the log is delivered; none means the journal alone.
    #[serde(default)]
    pub sink: Vec<Sink>,
    /// The HTTP endpoints; absent means off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<Http>,
    /// decklog's own log.
    #[serde(default)]
    pub log: Log,
}

/// The cluster that is read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Cluster {
    /// Its name in every entry. Default: the kubeconfig context's cluster, or "in-cluster".
    pub name: Option<String>,
    /// The kubeconfig file. Default: $KUBECONFIG, ~/.kube/config, the in-cluster service account.
    #[schemars(extend("format" = "path"))]
    pub kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig. Default: its current one.
    pub context: Option<String>,
    /// Read the API server's own request counters, for `churn --requests`.
    pub request_metrics: bool,
    /// Let the kubeconfig name a program that gives the credentials (exec, auth-provider), and run it.
    pub allow_exec: bool,
    /// Let the kubeconfig do without TLS, or without a look at the API server's certificate.
    pub allow_insecure_tls: bool,
    /// How often, at least, each source is compared with what the API server has: not less than "1s"; "off" for never.
    #[serde(with = "value::period")]
    #[schemars(with = "String", extend("format" = "period"))]
    pub audit_every: Duration,
    /// What may be spent on reading from the API server's own history what a watch has forgotten; "off" for nothing: then
    /// that is a GAP.
    pub recover: Recover,
}

/// Whether what a watch has forgotten is read from the API server's own history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Recover {
    /// The word "off".
    Off(Off),
    /// Within these bounds.
    Within(RecoverBounds),
}

impl Default for Recover {
    fn default() -> Self {
        Self::Within(RecoverBounds::default())
    }
}

/// Nothing of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Off {
    /// The word.
    Off,
}

/// How much may be spent on recovering what a watch has forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RecoverBounds {
    /// Requests for one source, each time that it has lost its position.
    #[schemars(range(min = 1))]
    pub requests: u32,
    /// Requests a second, for all sources.
    #[schemars(range(min = 1))]
    pub rate: u32,
    /// How long it may take: etcd is compacted every five minutes, unless it is told otherwise.
    #[serde(with = "value::duration")]
    #[schemars(with = "String", extend("format" = "time-span"))]
    pub within: Duration,
}

impl Default for RecoverBounds {
    fn default() -> Self {
        Self { requests: 50_000, rate: 200, within: Duration::from_secs(300) }
    }
}

impl Default for Cluster {
    fn default() -> Self {
        Self {
            name: None,
            kubeconfig: None,
            context: None,
            request_metrics: false,
            allow_exec: false,
            allow_insecure_tls: false,
            audit_every: Duration::from_secs(600),
            recover: Recover::default(),
        }
    }
}

/// The state directory and its bounds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct State {
    /// The state directory. Default: $STATE_DIRECTORY, else ./decklog-state.
    #[schemars(extend("format" = "path"))]
    pub path: PathBuf,
    /// The journal never outgrows this.
    #[serde(with = "value::size")]
    #[schemars(with = "String", extend("format" = "size"))]
    pub max_size: u64,
    /// Entries older than this and taken by every sink may be forgotten.
    #[serde(with = "value::duration")]
    #[schemars(with = "String", extend("format" = "time-span"))]
    pub max_age: Duration,
    /// What happens when the journal has its full size.
    pub on_full: OnFull,
}

impl Default for State {
    fn default() -> Self {
        Self {
            path: PathBuf::from("./decklog-state"),
            max_size: 10 << 30,
            max_age: Duration::from_secs(30 * 24 * 3600),
            on_full: OnFull::default(),
        }
    }
}

/// What happens when the journal has its full size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnFull {
    /// Stop reading the cluster until there is room; then a GAP.
    #[default]
    Pause,
    /// Drop the oldest entries; a GAP to every sink that had not taken them.
    DropOldest,
}

/// One selection of resources, with the scope in which they are watched.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Watch {
    /// Resources as kubectl spells them, PLURAL[.GROUP]; "*" is all that can be listed and watched.
    #[schemars(with = "Vec<value::ResourceText>", length(min = 1))]
    pub resources: Vec<String>,
    /// Resources that the wildcards do not take.
    #[serde(default)]
    #[schemars(with = "Vec<value::ResourceText>")]
    pub exclude: Vec<String>,
    /// The namespaces; none means all.
    #[serde(default)]
    #[schemars(with = "Vec<value::NamespaceText>")]
    pub namespaces: Vec<String>,
    /// A Kubernetes label selector; empty takes every object.
    #[serde(default)]
    #[schemars(extend("format" = "label-selector"))]
    pub label_selector: String,
    /// A Kubernetes field selector; empty takes every object.
    #[serde(default)]
    #[schemars(extend("format" = "field-selector"))]
    pub field_selector: String,
    /// What becomes of the objects that the first list finds.
    #[serde(default)]
    pub first_list: FirstList,
    /// Presets (heartbeats, managed-fields, status, leader-election) and patterns of JSON pointers: a MODIFIED that
    /// touches nothing else is not emitted.
    #[serde(default)]
    #[schemars(with = "Vec<value::IgnoreText>")]
    pub ignore: Vec<String>,
}

/// What becomes of the objects that the first list finds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FirstList {
    /// They are ADDED, with evidence `listed`.
    #[default]
    Emit,
    /// They are only remembered.
    Silent,
}

/// What never reaches the disk in clear.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Redact {
    /// The built-in rules: Secret data and stringData, last-applied annotations that carry them, service account tokens.
    pub defaults: bool,
    /// Rules beside the built-in ones.
    pub rules: Vec<RedactRule>,
    /// A file with the key of the digests, at least 16 bytes. Default: a key made once, kept in the state directory.
    #[schemars(extend("format" = "key-file"))]
    pub key_file: Option<PathBuf>,
}

impl Default for Redact {
    fn default() -> Self {
        Self { defaults: true, rules: Vec::new(), key_file: None }
    }
}

/// A rule that redacts values of some resources.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RedactRule {
    /// Resources as kubectl spells them, PLURAL[.GROUP]; "*" is all.
    #[schemars(with = "Vec<value::ResourceText>", length(min = 1))]
    pub resources: Vec<String>,
    /// JSON pointers of the values, with * inside segments.
    #[schemars(with = "Vec<value::PointerText>", length(min = 1))]
    pub paths: Vec<String>,
    /// What stands in the value's place.
    pub mode: RedactMode,
}

/// What stands in the place of a redacted value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RedactMode {
    /// Nothing: the key goes too.
    Drop,
    /// A fixed text.
    Mask,
    /// A keyed digest, which changes when the value does.
    Hmac,
}

/// The HTTP endpoints.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Http {
    /// Where /livez, /readyz, /metrics and /status are served: IP:PORT, or the path of a unix socket.
    #[schemars(with = "String", extend("format" = "listen"))]
    pub listen: Listen,
    /// Let `listen` be an address that other machines reach. Nobody is asked for a password there.
    pub allow_remote: bool,
}

impl Default for Http {
    fn default() -> Self {
        Self { listen: Listen::Tcp(SocketAddr::from(([127, 0, 0, 1], 9465))), allow_remote: false }
    }
}

/// Where the HTTP endpoints listen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Listen {
    /// An address and port.
    Tcp(SocketAddr),
    /// A unix socket.
    Unix(PathBuf),
}

/// decklog's own log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// error, warn, info, debug or trace; or tracing's directives, such as "info,decklog::watch=debug".
    #[schemars(extend("format" = "log-level"))]
    pub level: String,
    /// How a line looks.
    pub format: LogFormat,
}

impl Default for Log {
    fn default() -> Self {
        Self { level: "info".to_owned(), format: LogFormat::default() }
    }
}

/// How a line of decklog's own log looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people, on standard error.
    #[default]
    Text,
    /// One JSON object a line, on standard error.
    Json,
    /// To systemd's journal, with fields.
    Journald,
}
