//! The command line: what can be said, who answers, and how the process ends.
//!
//! Each command has one file below with its arguments and its `main`. Commands that only read the journal (`tail`,
//! `get`, `status`, `verify`) need nothing but the state directory, and never hold the daemon up.

#[cfg(test)]
mod state_tests;
#[cfg(test)]
mod tests;

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::error::ErrorKind;
use clap::{ArgAction, ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

use jiff::Timestamp;

use crate::app::config::{self, Config, Files, Loaded, Problems};
use crate::core::os;
use crate::core::rights::Sight;
pub use crate::core::terminal::complain;
use crate::journal::Reader;
pub use crate::query::render::{Exit, Failure};
use crate::query::render::{clock, line, names, object, path, rewrite, tree, what, who, yaml};
use crate::query::{Log, Put, Question};
use output::Out;

pub mod audit;
pub mod blame;
pub mod check;
pub mod churn;
pub mod completions;
pub mod coverage;
#[cfg(feature = "daemon")]
pub mod demo;
pub mod diff;
pub mod drift;
pub mod evidence;
pub mod get;
pub mod init;
pub mod log;
pub mod man;
pub mod mcp;
pub mod output;
pub mod pager;
pub mod progress;
pub mod prove;
pub mod rbac;
pub mod remote;
#[cfg(feature = "daemon")]
pub mod replay;
#[cfg(feature = "daemon")]
pub mod restore;
#[cfg(feature = "daemon")]
pub mod run;
pub mod schema;
pub mod select;
pub mod show;
#[cfg(feature = "daemon")]
pub mod sink;
pub mod status;
pub mod tail;
pub mod timeline;
#[cfg(feature = "daemon")]
pub mod ui;
pub mod verify;
pub mod why;

#[cfg(not(feature = "daemon"))]
mod client;
#[cfg(not(feature = "daemon"))]
use client::{ABSENT, demo, replay, restore, run, sink, ui};

/// Commands that this program lacks.
#[cfg(feature = "daemon")]
const ABSENT: &[&str] = &[];

mod causes;
mod clusters;
mod complete;
mod formats;
mod hints;

/// Keeps the log of everything that happens to the objects of a Kubernetes cluster, exactly once and in order.
#[derive(Debug, Parser)]
#[command(name = "decklog", version, max_term_width = 100, disable_help_flag = true)]
pub struct Cli {
    /// What every command takes.
    #[command(flatten)]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// Print help
    // One form of help, the compact one, for -h and --help.
    #[arg(short, long, global = true, action = ArgAction::HelpShort, help_heading = COMMON)]
    help: Option<bool>,
}

/// What every command takes.
#[derive(Args, Clone, Debug, Default)]
pub struct Global {
    /// Configuration [default: ./config.toml, then /etc/decklog/config.toml]
    #[arg(short, long, global = true, value_name = "FILE", env = "DECKLOG_CONFIG", hide_env_values = true, help_heading = COMMON)]
    pub config: Option<PathBuf>,
    /// A directory with a configuration NAME.toml for each of several clusters
    #[arg(long, global = true, value_name = "DIR", env = "DECKLOG_CONFIG_DIR", hide_env_values = true, help_heading = COMMON)]
    pub config_dir: Option<PathBuf>,
    /// The cluster to use, with --config-dir or --server
    #[arg(long, global = true, value_name = "NAME", help_heading = COMMON)]
    pub cluster: Option<String>,
    /// Where the log is read, if not on this machine.
    #[command(flatten)]
    pub server: remote::ServerArgs,
    /// The server, once it is known.
    #[arg(skip)]
    remote: Option<Arc<remote::Server>>,
    /// kubectl runs this, as its plugin.
    #[arg(skip)]
    is_plugin: bool,
    /// The answer goes into a file, so that nobody has to read standard output.
    #[arg(skip)]
    to_file: bool,
    /// State directory, instead of that of the configuration
    #[arg(long, global = true, value_name = "DIR", help_heading = COMMON)]
    pub state: Option<PathBuf>,
    /// Output format
    #[arg(short, long, global = true, value_name = "FORMAT", help_heading = COMMON)]
    pub output: Option<Format>,
    /// Use of colours; NO_COLOR switches them off too
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", help_heading = COMMON)]
    pub color: Color,
    /// Read and print times in UTC, instead of the local zone ($TZ)
    #[arg(long, global = true, help_heading = COMMON)]
    pub utc: bool,
    /// Print long answers at once, instead of a screen at a time ($DECKLOG_PAGER, $PAGER, less)
    #[arg(long, global = true, help_heading = COMMON)]
    pub no_pager: bool,
}

const COMMON: &str = "Common options";

/// How a command prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people
    Line,
    /// JSON; entries one per line, the very bytes that a file sink writes
    Json,
    /// YAML
    Yaml,
    /// Of `get`: a table with more columns, not cut
    #[value(hide = true)]
    Wide,
    /// Of `get`: names alone
    #[value(hide = true)]
    Name,
}

impl Format {
    /// The word on the command line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Line => "line",
            Self::Json => "json",
            Self::Yaml => "yaml",
            Self::Wide => "wide",
            Self::Name => "name",
        }
    }
}

/// When to use colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal
    #[default]
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the daemon: watch the cluster, keep the log, deliver it
    Run(run::RunArgs),
    /// Print the log, newest last
    Tail(tail::TailArgs),
    /// Print the history of an object, newest first, or what changed in a namespace or everywhere
    Log(log::LogArgs),
    /// Print one entry of the log
    Show(show::ShowArgs),
    /// Print objects as they are or were; -o wide and -o name as in kubectl
    Get(get::GetArgs),
    /// Print what changed between two moments: of an object, a namespace, or everything
    Diff(diff::DiffArgs),
    /// Print an object with the writer, the time and the entry of each field
    Blame(blame::BlameArgs),
    /// Print where each field comes from: the program, the sync behind it, the revision, the person
    Why(why::WhyArgs),
    /// Print the fields of Argo CD, Flux and Helm that others wrote, for how long, and who restored them
    Drift(drift::DriftArgs),
    /// Print the busiest writers of the last hour, their no-op writes, and fields that managers fight over
    Churn(churn::ChurnArgs),
    /// Print of which time the log knows everything, and of which it does not
    Coverage(coverage::CoverageArgs),
    /// Print every position: sources, head, sinks, lag, gaps, disk
    Status(status::StatusArgs),
    /// Serve the timeline page of the journal on this machine, for one browser
    Ui(ui::UiArgs),
    /// Write the timeline of a period into one HTML file, with its data
    Timeline(timeline::TimelineArgs),
    /// Serve the log to an assistant, over the Model Context Protocol on standard input and output
    Mcp(mcp::McpArgs),
    /// Write a commented configuration for this cluster, from its resources and your rights
    Init(init::InitArgs),
    /// Find everything that is wrong with config, cluster, permissions, state directory and sinks
    Check(check::CheckArgs),
    /// Print the least rights that this configuration needs, for `kubectl apply -f -`
    Rbac(rbac::RbacArgs),
    /// Print what the API server needs for its audit log: the policy, the flags, the webhook's kubeconfig
    Audit(audit::AuditArgs),
    /// Prove that the journal is whole and unaltered, or check a copy that a sink wrote
    Verify(verify::VerifyArgs),
    /// Write the proof of one entry, which anybody can check with the public key
    Prove(prove::ProveArgs),
    /// Make the key that signs the log, and print the public one
    Evidence(evidence::EvidenceArgs),
    /// Deliver entries to a sink again, with the same ids
    Replay(replay::ReplayArgs),
    /// Build the state directory from the shared log that is kept beside a sink
    Restore(restore::RestoreArgs),
    /// Create what a sink needs where it delivers, such as tables, topics and streams
    Sink(sink::SinkArgs),
    /// See all of it at work on a simulated cluster
    Demo(demo::DemoArgs),
    /// Print completions for a shell
    Completions(completions::CompletionsArgs),
    /// Print a man page: of a command, or of config.toml
    Man(man::ManArgs),
    /// Print the JSON Schema of config.toml, or of an entry
    Schema(schema::SchemaArgs),
    /// Print the version
    Version,
}

/// Result of a command.
pub type Outcome = Result<Exit, Failure>;

impl Global {
    /// The configuration for whoever runs the daemon or does its work, with `--state` in its place.
    ///
    /// # Errors
    /// Everything that is wrong with it, exit 78.
    pub fn load(&self) -> Result<Loaded, Failure> {
        if let Some(loaded) = self.one_of_several(Files::Check)? {
            return Ok(loaded);
        }
        self.with_state(Config::load(self.config_file()))
    }

    /// The configuration for commands that only read: what the daemon alone can see is not looked at.
    ///
    /// # Errors
    /// Everything that is wrong with it, exit 78.
    pub fn load_for_reading(&self) -> Result<Loaded, Failure> {
        if let Some(loaded) = self.one_of_several(Files::Ignore)? {
            return Ok(loaded);
        }
        self.with_state(Config::load_for_reading(self.config_file()))
    }

    fn with_state(&self, loaded: Result<Loaded, Problems>) -> Result<Loaded, Failure> {
        let mut loaded = loaded.map_err(|problems| Failure::new(Exit::Config, problems.to_string()))?;
        if let Some(state) = &self.state {
            loaded.config.state.path.clone_from(state);
        }
        Ok(loaded)
    }

    /// An empty `$DECKLOG_CONFIG` names no file.
    fn config_file(&self) -> Option<&Path> {
        self.config.as_deref().filter(|path| !path.as_os_str().is_empty())
    }

    /// Reports whether there is a configuration file, or one is named.
    fn has_config(&self) -> bool {
        self.config_dir.is_some() || self.config_file().is_some() || config::standard_file().is_some()
    }

    /// The state directory: `--state`, else what the configuration says, else the default of a machine without one.
    ///
    /// # Errors
    /// Where there is a configuration and it is wrong.
    pub fn state_dir(&self) -> Result<PathBuf, Failure> {
        if let Some(state) = &self.state {
            return Ok(state.clone());
        }
        if let Some(state) = self.state_of_several()? {
            return Ok(state);
        }
        // That of the service is closed to most who may read its journal.
        let closed =
            |path: &Path| std::fs::File::open(path).is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied);
        let standard = config::standard_file().filter(|path| !closed(Path::new(path)));
        if self.config_file().is_some() || standard.is_some() {
            return Ok(self.load_for_reading()?.config.state.path);
        }
        // An empty variable is as good as none.
        let variable = |name| std::env::var(name).ok().filter(|text| !text.is_empty());
        // systemd joins several directories with colons; the first is the service's own.
        let first = |text: String| text.split(':').next().map(str::to_owned);
        let named = variable("DECKLOG_STATE_PATH").or_else(|| variable("STATE_DIRECTORY").and_then(first));
        Ok(named.map_or_else(|| crate::journal::Settings::default().path, PathBuf::from))
    }

    /// The journal, for reading.
    ///
    /// # Errors
    /// Where there is none or it cannot be read.
    pub fn reader(&self) -> Result<(Reader, PathBuf), Failure> {
        let dir = self.journal()?;
        Ok((Reader::open(&dir)?, dir))
    }

    /// The directory of the journal that a command reads.
    fn journal(&self) -> Result<PathBuf, Failure> {
        if let Some(why) = os::NO_JOURNAL {
            return Err(Failure::usage(why));
        }
        let dir = self.state_dir()?;
        let default = crate::journal::Settings::default().path;
        if dir == default
            && !dir.exists()
            && let Some(service) = service_state(Path::new(SERVICE_STATE))?
        {
            return Ok(service);
        }
        Ok(dir)
    }

    /// Reports whether this machine is set up to have a log.
    fn has_log(&self) -> bool {
        os::NO_JOURNAL.is_none() && (self.has_config() || self.journal().map_or(true, |dir| dir.exists()))
    }

    /// Asks a question of the journal on this machine, or of a server. `put` takes the items of the answer; sentences beside it go
    /// to standard error.
    ///
    /// # Errors
    /// As the question fails, as `put` does, and where nobody can be asked.
    fn ask<Q: Question>(&self, question: Q, put: &mut Put<'_, Q::Item>) -> Outcome {
        let is_gone = || !self.to_file && os::nobody_reads();
        match &self.remote {
            Some(server) => server.ask(question, self.cluster.clone(), &is_gone, put)?,
            None => {
                // A command may ask long after it has started.
                let clock = clock::Clock { now: Timestamp::now(), zone: clock::clock().zone.clone() };
                let log = Log::new(self.journal()?, Sight::All, clock, &complain, &is_gone);
                question.answer(&log, put)?;
            }
        }
        Ok(Exit::Done)
    }
}

/// State directory of the service, and parent of those of its instances (`decklog@NAME`).
const SERVICE_STATE: &str = "/var/lib/decklog";

/// The state directory of the service, where there is one that has run.
///
/// # Errors
/// Where it may not be read, or there are several.
fn service_state(dir: &Path) -> Result<Option<PathBuf>, Failure> {
    let has_journal = |dir: &Path| std::fs::metadata(dir.join(crate::journal::READ[0])).map(drop);
    match has_journal(dir) {
        Ok(()) => return Ok(Some(dir.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            return Err(Failure::new(
                Exit::Io,
                format!(
                    "the service keeps its journal in {}, which you may not read: run this as its user (`sudo -u decklog decklog …`), \
                     or let a group that you are in read it ([state] readers)",
                    dir.display()
                ),
            ));
        }
        Err(_) => {}
    }
    let below = std::fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok).map(|entry| entry.path());
    let mut instances: Vec<PathBuf> = below.filter(|path| has_journal(path).is_ok()).collect();
    instances.sort();
    if instances.len() > 1 {
        let names: Vec<String> = instances.iter().map(|path| format!("--state {}", path.display())).collect();
        return Err(Failure::usage(format!("there are several services here; say which one: {}", names.join(", "))));
    }
    Ok(instances.pop())
}

/// The sink with this name.
///
/// # Errors
/// Where the configuration has none, exit 78.
#[cfg(feature = "daemon")]
fn configured<'l>(loaded: &'l Loaded, name: &str) -> Result<&'l crate::delivery::Settings, Failure> {
    let sinks = &loaded.config.sink;
    sinks.iter().find(|sink| sink.name == name).ok_or_else(|| {
        let known: Vec<&str> = sinks.iter().map(|sink| sink.name.as_str()).collect();
        let known = if known.is_empty() { "it has none".to_owned() } else { format!("it has {}", known.join(", ")) };
        Failure::new(Exit::Config, format!("{} has no sink named {name:?}; {known}", loaded.name()))
    })
}

/// Runs async work of a command on a runtime of its own.
fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("decklog")
        .build()
        .map_err(|error| Failure::io("cannot start threads", &error))?;
    let result = runtime.block_on(work);
    // Whatever still blocks a thread must not hold up the end of the process.
    runtime.shutdown_background();
    result
}

/// Parses the command line, does what it says, and returns the exit code.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    crate::core::telemetry::quiet_panics();
    os::outlive_file_limit();
    let args = counted_back(args.into_iter().collect());
    if args.get(1).is_some_and(|word| word == complete::WORD) {
        // Nobody reads errors while a word is being typed.
        return complete::main(&args[2..], is_plugin(&args)).unwrap_or_else(|failure| failure.exit()).into();
    }
    // Moments are read while the command line is, so this has to be known before.
    if !args.iter().take_while(|arg| *arg != "--").any(|arg| arg == "--utc") {
        clock::be_local();
    }
    let (mut cli, matches) = match parse(&args) {
        Ok(parsed) => parsed,
        Err(error) => return refused(error, &args).into(),
    };
    let asked = cli.global.settle(&matches).and_then(|()| remote::asked(&cli, &matches));
    let done = asked.and_then(|server| {
        cli.global.remote = server.map(Arc::new);
        understood(&matches);
        dispatch(cli)
    });
    done.unwrap_or_else(|failure| failed(&failure)).into()
}

/// Says what failed.
fn failed(failure: &Failure) -> Exit {
    if !failure.text().is_empty() {
        complain(failure.text());
    }
    failure.exit()
}

/// Says how the moments of the command line were understood, where that is more than what was written.
fn understood(matches: &ArgMatches) {
    let Some((_, given)) = matches.subcommand() else { return };
    for option in ["since", "until", "at", "from", "to"] {
        let Ok(Some(written)) = given.try_get_raw(option) else { continue };
        for text in written.filter_map(|text| text.to_str()) {
            if let Some(text) = clock::clock().understood(&format!("--{option}"), text) {
                complain(&text);
            }
        }
    }
}

/// Lets `diff` take a moment that is counted back among its objects, as in `decklog diff -1h..`: no option of it begins with
/// a digit, so that a minus sign takes the place of the hyphen.
fn counted_back(mut args: Vec<OsString>) -> Vec<OsString> {
    let diff = args.iter().position(|arg| arg == "diff").unwrap_or(args.len());
    for arg in args.iter_mut().skip(diff).take_while(|arg| **arg != "--") {
        if let Some(moment) = arg.to_str().and_then(|arg| arg.strip_prefix('-'))
            && moment.starts_with(|first: char| first.is_ascii_digit())
        {
            *arg = format!("\u{2212}{moment}").into();
        }
    }
    args
}

/// kubectl calls what it finds under this name for `kubectl decklog`.
const PLUGIN: &str = "kubectl-decklog";

/// Reports whether kubectl runs this.
fn is_plugin(args: &[OsString]) -> bool {
    args.first().is_some_and(|path| Path::new(path).file_stem() == Some(OsStr::new(PLUGIN)))
}

fn parse(args: &[OsString]) -> Result<(Cli, ArgMatches), clap::Error> {
    let mut command = Cli::command();
    let is_plugin = is_plugin(args);
    if is_plugin {
        command = command.bin_name("kubectl decklog");
    }
    let matches = command.clone().try_get_matches_from(args)?;
    let mut cli = Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))?;
    cli.global.is_plugin = is_plugin;
    Ok((cli, matches))
}

fn dispatch(cli: Cli) -> Outcome {
    let global = cli.global;
    let formats = cli.command.formats();
    if let Some(format) = global.output.filter(|format| !formats.contains(format)) {
        let words: Vec<&str> = formats.iter().map(|format| format.as_str()).collect();
        let can = if words.is_empty() { "leave it out".to_owned() } else { format!("it prints {}", words.join(", ")) };
        return Err(Failure::usage(format!("this command does not print {}; {can}", format.as_str())));
    }
    match cli.command {
        Command::Run(args) => run::main(args, &global),
        Command::Tail(args) => tail::main(args, &global),
        Command::Log(args) => log::main(args, &global, &mut Out::paged(&global)),
        Command::Show(args) => show::main(args, &global),
        Command::Get(args) => get::main(args, &global, &mut Out::paged(&global)),
        Command::Diff(args) => diff::main(args, &global),
        Command::Blame(args) => blame::main(args, &global, &mut Out::paged(&global)),
        Command::Why(args) => why::main(args, &global, &mut Out::paged(&global)),
        Command::Drift(args) => drift::main(args, &global, &mut Out::paged(&global)),
        Command::Churn(args) => churn::main(args, &global, &mut Out::paged(&global)),
        Command::Coverage(args) => coverage::main(args, &global, &mut Out::paged(&global)),
        Command::Status(args) => status::main(args, &global),
        Command::Ui(args) => ui::main(args, &global),
        Command::Timeline(args) => timeline::main(args, &global),
        Command::Mcp(args) => mcp::main(args, &global),
        Command::Init(args) => init::main(args, &global),
        Command::Check(args) => check::main(args, &global),
        Command::Rbac(args) => rbac::main(args, &global),
        Command::Audit(args) => audit::main(args, &global),
        Command::Prove(args) => prove::main(args, &global),
        Command::Evidence(args) => evidence::main(args, &global),
        Command::Verify(args) => verify::main(args, &global),
        Command::Replay(args) => replay::main(args, &global),
        Command::Restore(args) => restore::main(args, &global),
        Command::Sink(args) => sink::main(args, &global),
        Command::Demo(args) => demo::main(args, &global),
        Command::Completions(args) => completions::main(args, &global),
        Command::Man(args) => man::main(args, &global),
        Command::Schema(args) => schema::main(args, &global),
        Command::Version => {
            let mut out = Out::new(&global);
            out.line(concat!("decklog ", env!("CARGO_PKG_VERSION")))?;
            out.flush()?;
            Ok(Exit::Done)
        }
    }
}

/// Prints help, the version, or what is wrong with the command line.
fn refused(error: clap::Error, args: &[OsString]) -> Exit {
    if error.kind() == ErrorKind::DisplayHelp && hints::is_about(args, ABSENT) {
        return failed(&hints::absent());
    }
    if !error.use_stderr() {
        // A closed pipe is no news to someone who asked for help.
        drop(error.print());
        return Exit::Done;
    }
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        drop(error.print());
        return Exit::Usage;
    }
    complain(&hints::explain(error, args));
    Exit::Usage
}
