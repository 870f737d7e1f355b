//! `decklog rbac`.

use clap::Args;

use super::{Failure, Global, Outcome};

/// Arguments of `decklog rbac`.
#[derive(Args, Debug)]
pub struct RbacArgs {}

/// Prints the least rights that the configuration needs.
///
/// # Errors
/// Where it cannot be done.
pub fn main(_args: RbacArgs, _global: &Global) -> Outcome {
    Err(Failure::internal("`decklog rbac` is not wired yet"))
}
