//! `decklog check`.

use clap::Args;

use super::{Failure, Global, Outcome};

/// Arguments of `decklog check`.
#[derive(Args, Debug)]
pub struct CheckArgs {}

/// Finds everything that is wrong, at once.
///
/// # Errors
/// Where it cannot be done.
pub fn main(_args: CheckArgs, _global: &Global) -> Outcome {
    Err(Failure::internal("`decklog check` is not wired yet"))
}
