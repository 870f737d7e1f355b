//! The `decklog` command: everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    decklog::cli::main(std::env::args_os())
}
