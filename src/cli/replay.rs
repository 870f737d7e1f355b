//! `decklog replay`.

use clap::Args;

use super::{Failure, Global, Outcome};

/// Arguments of `decklog replay`.
#[derive(Args, Debug)]
pub struct ReplayArgs {
    /// The sink to deliver to, by its name in the configuration
    #[arg(long, value_name = "NAME")]
    pub sink: String,
    /// The first entry to deliver
    #[arg(long, value_name = "SEQ")]
    pub from: u64,
    /// The last entry to deliver [default: the newest]
    #[arg(long, value_name = "SEQ")]
    pub to: Option<u64>,
}

/// Delivers entries again.
///
/// # Errors
/// Where it cannot be done.
pub fn main(_args: ReplayArgs, _global: &Global) -> Outcome {
    Err(Failure::internal("`decklog replay` is not wired yet"))
}
