//! `decklog evidence`: the key that signs checkpoints, and the archive for an auditor.

mod report;

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use super::output::Out;
use super::{Exit, Failure, Global, Outcome, complain};
use crate::core::os::{self, OpenOptionsExt as _};
use crate::evidence::key::SigningKey;
pub use report::ReportArgs;

/// Arguments of `decklog evidence`.
#[derive(Args, Debug)]
pub struct EvidenceArgs {
    /// What to do
    #[command(subcommand)]
    pub command: EvidenceCommand,
}

/// What can be done.
#[derive(Debug, Subcommand)]
pub enum EvidenceCommand {
    /// Print the public key of a file, and make the key if the file is not there
    Key(KeyArgs),
    /// Write an archive for an auditor: entries, evidence, coverage, and what to check them with
    Report(Box<ReportArgs>),
}

/// Arguments of `decklog evidence key`.
#[derive(Args, Debug)]
pub struct KeyArgs {
    /// The file with the key that signs [default: that of the configuration]
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Name of a new key, which says whose log it signs [default: HOST/decklog]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Print the key as that of a witness, which signs with the time, for programs other than decklog
    #[arg(long)]
    pub witness: bool,
}

/// Does it.
///
/// # Errors
/// Where a file cannot be read or made.
pub fn main(args: EvidenceArgs, global: &Global) -> Outcome {
    match args.command {
        EvidenceCommand::Key(args) => key(args, global),
        EvidenceCommand::Report(args) => report::main(&args, global),
    }
}

/// Prints the public key, of a new key where there is none yet.
fn key(args: KeyArgs, global: &Global) -> Outcome {
    let file = match args.file {
        Some(file) => file,
        None => configured(global)?,
    };
    let key = match fs::read_to_string(&file) {
        Ok(text) => {
            let key = SigningKey::parse(&text).map_err(|why| Failure::usage(format!("{}: {why}", file.display())))?;
            if args.name.as_ref().is_some_and(|name| *name != key.verifier().name) {
                return Err(Failure::usage(format!(
                    "{} has a key already, with the name {}: name another file for a new key",
                    file.display(),
                    key.verifier().name
                )));
            }
            key
        }
        Err(error) if error.kind() == ErrorKind::NotFound => make(&file, args.name)?,
        Err(error) => return Err(Failure::io(format!("cannot read {}", file.display()), &error)),
    };
    let mut out = Out::new(global);
    let verifier = if args.witness { key.verifier().timed() } else { key.verifier().clone() };
    out.bytes(format!("{verifier}\n").as_bytes())?;
    out.flush()?;
    Ok(Exit::Done)
}

/// The file of the configuration.
fn configured(global: &Global) -> Result<PathBuf, Failure> {
    let file = if global.has_config() { global.load_for_reading()?.config.evidence } else { None };
    file.map(|evidence| evidence.key_file).ok_or_else(|| {
        Failure::usage(
            "there is no [evidence] key_file in the configuration: name the file, as in `decklog evidence key FILE`",
        )
    })
}

/// Makes a key in a file that only its owner reads.
fn make(file: &Path, name: Option<String>) -> Result<SigningKey, Failure> {
    let name = name.unwrap_or_else(|| format!("{}/decklog", os::host()));
    let key = SigningKey::generate(&name).map_err(Failure::usage)?;
    let failed = |error| Failure::io(format!("cannot make {}", file.display()), &error);
    let mut made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file).map_err(failed)?;
    made.write_all(key.render().as_bytes()).and_then(|()| made.sync_all()).map_err(failed)?;
    complain(&format!(
        "a new key is in {}: keep a copy where the machine of decklog cannot reach it, and give the public key to those who check the log",
        file.display()
    ));
    Ok(key)
}
