//! `decklog schema`: the JSON Schema of the configuration, or of an entry.

use clap::{Args, ValueEnum};

use super::output::Out;
use super::{Exit, Format, Global, Outcome};

/// Arguments of `decklog schema`.
#[derive(Args, Debug)]
pub struct SchemaArgs {
    /// The schema to print
    #[arg(default_value = "config")]
    pub of: Of,
}

/// What has a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Of {
    /// config.toml
    Config,
    /// An entry, as `tail -o json` and the sinks give it
    Entry,
}

/// Prints the schema.
///
/// # Errors
/// Where standard output cannot be written.
pub fn main(args: SchemaArgs, global: &Global) -> Outcome {
    let schema = match args.of {
        Of::Config => crate::app::config::config_schema(),
        Of::Entry => crate::core::wire::entry_schema(),
    };
    let mut out = Out::new(global);
    out.document(global.output.unwrap_or(Format::Json), &schema)?;
    out.flush()?;
    Ok(Exit::Done)
}
