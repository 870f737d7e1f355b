//! `decklog sink init`: makes what a sink needs where it delivers, such as tables, topics and streams.

use clap::{Args, Subcommand};

use super::output::Out;
use super::{Exit, Failure, Global, Outcome, complain, configured};
use crate::model::Cluster;

/// Arguments of `decklog sink`.
#[derive(Args, Debug)]
pub struct SinkArgs {
    /// What to do with it
    #[command(subcommand)]
    pub command: SinkCommand,
}

/// What can be done with a sink.
#[derive(Debug, Subcommand)]
pub enum SinkCommand {
    /// Make what it needs where it delivers: tables, topics, streams; what exists already stays
    Init(InitArgs),
}

/// Arguments of `decklog sink init`.
#[derive(Args, Debug)]
pub struct InitArgs {
    /// The sink, by its name in the configuration
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Make nothing, and print what is needed instead, for who does not let a daemon make it
    #[arg(long)]
    pub print: bool,
}

/// Makes, or prints, what a sink needs.
///
/// # Errors
/// Where there is no such sink, or it cannot be reached, or may not make it.
pub fn main(args: SinkArgs, global: &Global) -> Outcome {
    let SinkCommand::Init(args) = args.command;
    let loaded = global.load()?;
    let config = configured(&loaded, &args.name)?;
    let wrong = |text: String| format!("the sink {}: {text}", config.name);
    let mut sink = config.open(&Cluster::default()).map_err(|text| Failure::new(Exit::Config, wrong(text)))?;
    if args.print {
        let needs =
            sink.provisioning_script().ok_or_else(|| Failure::no(wrong("it needs nothing to be made".to_owned())))?;
        Out::new(global).bytes(needs.as_bytes())?;
        return Ok(Exit::Done);
    }
    super::block_on(async {
        let made = sink.provision().await.map_err(|error| Failure::no(wrong(error.to_string())))?;
        complain(&wrong(made));
        Ok(Exit::Done)
    })
}
