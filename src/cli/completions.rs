//! `decklog completions`: what a shell can complete.

use std::io::{self, Write};

use clap::{Args, CommandFactory};

use super::{Cli, Exit, Failure, Global, Outcome};

/// Arguments of `decklog completions`.
#[derive(Args, Debug)]
pub struct CompletionsArgs {
    /// The shell
    pub shell: clap_complete::Shell,
}

/// Prints the completions for one shell.
///
/// # Errors
/// Where standard output cannot be written.
pub fn main(args: CompletionsArgs, _global: &Global) -> Outcome {
    // Into memory first: clap_complete panics where its writer fails, such as on a closed pipe.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "decklog", &mut script);
    io::stdout().write_all(&script).map_err(|error| Failure::stdout(&error))?;
    Ok(Exit::Done)
}
