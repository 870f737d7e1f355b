//! `decklog demo`.

use clap::Args;

use super::{Failure, Global, Outcome};

/// Arguments of `decklog demo`.
#[derive(Args, Debug)]
pub struct DemoArgs {
    /// Go on until stopped, instead of ending after the story
    #[arg(long)]
    pub forever: bool,
}

/// Tells the story on a simulated cluster.
///
/// # Errors
/// Where it cannot be done.
pub fn main(_args: DemoArgs, _global: &Global) -> Outcome {
    Err(Failure::internal("`decklog demo` is not wired yet"))
}
