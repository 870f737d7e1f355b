//! Selection of one of several clusters: `--config-dir` names their configurations, `--cluster` one of them.

use std::path::{Path, PathBuf};

use clap::ArgMatches;
use clap::parser::ValueSource;

use super::{Exit, Failure, Global};
use crate::app::config::{ClusterFile, Directory, Files, Loaded};

/// A cluster that a command is about.
#[derive(Clone, Debug)]
pub(super) struct Section {
    /// Name for `--cluster`.
    pub(super) name: String,
    /// Its state directory, where that is on this machine.
    pub(super) state: Option<PathBuf>,
    /// Error of its configuration.
    pub(super) wrong: Option<String>,
}

impl Global {
    /// Drops the variables of the environment that do not go with the typed flags.
    ///
    /// # Errors
    /// Where what was typed does not go together.
    pub(super) fn settle(&mut self, matches: &ArgMatches) -> Result<(), Failure> {
        self.config_dir = self.config_dir.take().filter(|dir| !dir.as_os_str().is_empty());
        let given = matches.subcommand().map(|(_, given)| given);
        let typed = |name| given.is_some_and(|given| given.value_source(name) == Some(ValueSource::CommandLine));
        let other = ["config", "state"].into_iter().find(|name| typed(name));
        match (typed("config_dir"), other) {
            (true, Some(other)) => {
                return Err(Failure::usage(format!(
                    "--config-dir names the configurations of several clusters, --{other} is for one: leave one of them out"
                )));
            }
            (true, None) => self.config = None,
            (false, Some(_)) => self.config_dir = None,
            (false, None) => {}
        }
        if self.config_dir.is_some() {
            self.config = None;
        }
        Ok(())
    }

    /// The configurations of several clusters, where this is about such.
    ///
    /// # Errors
    /// Where they cannot be read, exit 78; where `--cluster` says which of one.
    pub(super) fn directory(&self, files: Files) -> Result<Option<Directory>, Failure> {
        match (&self.config_dir, &self.cluster) {
            (Some(dir), _) => Directory::read(dir, files, &[])
                .map(Some)
                .map_err(|problems| Failure::new(Exit::Config, problems.to_string())),
            (None, None) => Ok(None),
            (None, Some(_)) => Err(Failure::usage(
                "--cluster says which of several clusters is meant: --config-dir DIR (or $DECKLOG_CONFIG_DIR) names the directory \
                 of their configurations",
            )),
        }
    }

    /// The configuration of the one cluster that this is about; nothing where there are not several.
    ///
    /// # Errors
    /// Where it is wrong, or where there are several and none is named.
    pub(super) fn one_of_several(&self, files: Files) -> Result<Option<Loaded>, Failure> {
        let Some(directory) = self.directory(files)? else { return Ok(None) };
        let file = self.pick(&directory)?;
        file.loaded.clone().map(Some).map_err(|problems| Failure::new(Exit::Config, problems.to_string()))
    }

    /// The state directory of the one cluster that this is about, also where the rest of its configuration is wrong.
    ///
    /// # Errors
    /// As [`Global::one_of_several`].
    pub(super) fn state_of_several(&self) -> Result<Option<PathBuf>, Failure> {
        let Some(directory) = self.directory(Files::Ignore)? else { return Ok(None) };
        Ok(Some(self.pick(&directory)?.state.clone()))
    }

    fn pick<'d>(&self, directory: &'d Directory) -> Result<&'d ClusterFile, Failure> {
        let names = || directory.names();
        match (&self.cluster, directory.files.as_slice()) {
            (Some(name), _) => directory.cluster(name).ok_or_else(|| unknown(name, &directory.path, &names())),
            (None, [one]) => Ok(one),
            (None, _) => Err(unnamed(&names())),
        }
    }

    /// The clusters that a command is about which takes several; nothing where there is only ever one.
    ///
    /// # Errors
    /// Where they cannot be read, or the one that is named is none of them.
    pub(super) fn sections(&self) -> Result<Option<Vec<Section>>, Failure> {
        if let Some(server) = &self.remote {
            let names = if self.cluster.is_none() { server.clusters()? } else { Vec::new() };
            let sections = names.into_iter().map(|name| Section { name, state: None, wrong: None }).collect();
            return Ok(Some(sections).filter(|sections: &Vec<Section>| !sections.is_empty()));
        }
        let Some(directory) = self.directory(Files::Ignore)? else { return Ok(None) };
        let one = self.cluster.is_some().then(|| self.pick(&directory)).transpose()?;
        let section = |file: &ClusterFile| Section {
            name: file.name.clone(),
            state: Some(file.state.clone()),
            wrong: file.loaded.as_ref().err().map(ToString::to_string),
        };
        Ok(Some(one.map_or_else(|| directory.files.iter().map(section).collect(), |file| vec![section(file)])))
    }
}

impl Section {
    /// Returns what a command about this cluster alone would be given.
    pub(super) fn of(&self, global: &Global) -> Global {
        Global { cluster: Some(self.name.clone()), state: self.state.clone(), config_dir: None, ..global.clone() }
    }
}

fn unknown(name: &str, place: &Path, names: &str) -> Failure {
    Failure::usage(format!("{} has no cluster {name:?}; it has {names}", place.display()))
}

fn unnamed(names: &str) -> Failure {
    Failure::usage(format!("there are several clusters; say which one is meant by --cluster: {names}"))
}
