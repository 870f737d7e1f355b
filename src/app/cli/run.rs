//! `decklog run`: the daemon, and how its end becomes that of the process.

use std::path::{Path, PathBuf};

use clap::Args;

use super::{Exit, Failure, Global, Outcome, init};
use crate::app::config::{self, Config, Directory, Files, Loaded, Problems};
use crate::app::daemon::{self, DaemonError, Environment, MultiCluster};
use crate::app::systemd::Notifier;
use crate::core::net::server::BindError;
use crate::core::telemetry::Telemetry;

/// Arguments of `decklog run`.
#[derive(Args, Debug)]
pub struct RunArgs {}

impl From<DaemonError> for Failure {
    fn from(error: DaemonError) -> Self {
        let exit = match error {
            DaemonError::Journal(error) => return error.into(),
            // systemd is to try again, where that may help.
            DaemonError::Cluster(error) if error.may_heal() => return Self::new(Exit::Io, error.to_string()),
            DaemonError::Io(_) | DaemonError::Http(BindError::Absent(..) | BindError::Taken(..)) => Exit::Io,
            DaemonError::Config(_) | DaemonError::Http(BindError::Refused(_)) | DaemonError::Cluster(_) => Exit::Config,
            DaemonError::Task { .. } => Exit::Internal,
            // It was asked to.
            DaemonError::Hurried => Exit::Done,
        };
        Self::new(exit, error.to_string())
    }
}

/// Runs the daemon until it is stopped.
///
/// # Errors
/// What ended it otherwise.
pub fn main(_args: RunArgs, global: &Global) -> Outcome {
    if let Some(dir) = &global.config_dir {
        if global.cluster.is_some() {
            return Err(Failure::usage(
                "`decklog run --config-dir` runs every cluster of it: leave --cluster out, or name one file with --config",
            ));
        }
        return several(dir);
    }
    let loaded = init::configuration(global)?;
    let telemetry = Telemetry::init(&loaded.config.log).map_err(|text| Failure::new(Exit::Config, text))?;
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }
    if loaded.path.is_none() {
        let state = global.state.as_ref().map(|state| format!(" --state {}", state.display())).unwrap_or_default();
        tracing::info!(
            "there is no configuration file: decklog uses {}; read the log with `decklog{state} tail -f`",
            loaded.name()
        );
    }
    no_core_files();
    let environment = Environment { loaded, notifier: Notifier::of_this_process(), telemetry, registry: None };
    super::block_on(async move { Box::pin(daemon::run(environment, again)).await.map_err(Failure::from) })?;
    Ok(Exit::Done)
}

/// Runs the clusters whose configurations are in a directory.
fn several(dir: &Path) -> Outcome {
    let directory = read(dir, &[]).map_err(|problems| Failure::new(Exit::Config, problems.to_string()))?;
    if directory.files.iter().all(|file| file.loaded.is_err()) {
        let problems: Vec<String> = directory.problems().map(ToString::to_string).collect();
        return Err(Failure::new(Exit::Config, problems.join("\n")));
    }
    let telemetry = Telemetry::init(&directory.log).map_err(|text| Failure::new(Exit::Config, text))?;
    no_core_files();
    let notifier = Notifier::of_this_process();
    let several = MultiCluster { directory, read_again: read, notifier, telemetry };
    super::block_on(async move { daemon::run_several(several).await.map_err(Failure::from) })?;
    Ok(Exit::Done)
}

fn read(dir: &Path, first: &[PathBuf]) -> Result<Directory, Problems> {
    Directory::read(dir, Files::Check, first)
}

/// Secrets pass through this process before they are redacted: no crash may write its memory to a disk.
fn no_core_files() {
    let none = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
    if let Err(error) = rustix::process::setrlimit(rustix::process::Resource::Core, none) {
        tracing::warn!(%error, "a crash of decklog may leave a core file, with what it held in memory");
    }
}

/// The same file, read again, or one that is there by now; the state directory stays, because its journal is open.
fn again(running: &Loaded) -> Result<Loaded, String> {
    let Some(path) = running.path.clone().or_else(config::standard_file) else { return Ok(running.clone()) };
    let mut loaded = Config::load(Some(&path)).map_err(|problems| problems.to_string())?;
    loaded.config.state.path.clone_from(&running.config.state.path);
    Ok(loaded)
}
