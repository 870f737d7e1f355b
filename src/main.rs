//! The `decklog` command: everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    decklog::app::cli::main(std::env::args_os())
}
