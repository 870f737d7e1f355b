//! `decklog run`.

use clap::Args;

use super::{Failure, Global, Outcome};

/// Arguments of `decklog run`.
#[derive(Args, Debug)]
pub struct RunArgs {}

/// Runs the daemon until it is told to stop.
///
/// # Errors
/// Where it cannot be done.
pub fn main(_args: RunArgs, _global: &Global) -> Outcome {
    Err(Failure::internal("`decklog run` is not wired yet"))
}
