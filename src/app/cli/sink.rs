//! `decklog sink init`: makes what a sink needs where it delivers, such as tables, topics and streams, and what the shared log
//! needs beside it.

use clap::{Args, Subcommand};

use super::output::Out;
use super::{Exit, Failure, Global, Outcome, complain, configured};
use crate::app::daemon;
use crate::core::model::Cluster;

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
    /// Create the tables, topics or streams that the sink needs; existing ones are kept
    Init(InitArgs),
}

/// Arguments of `decklog sink init`.
#[derive(Args, Debug)]
pub struct InitArgs {
    /// The sink, by its name in the configuration
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Print them instead, to review or run yourself
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
    super::block_on(async {
        let mut log = daemon::shared_log(&loaded.config, &config.name).await?;
        if args.print {
            let needs = [sink.provisioning_script(), log.and_then(|log| log.provisioning_script())];
            let needs: String = needs.into_iter().flatten().collect();
            if needs.is_empty() {
                return Err(Failure::no(wrong("it needs nothing to be made".to_owned())));
            }
            Out::new(global).bytes(needs.as_bytes())?;
            return Ok(Exit::Done);
        }
        let made = sink.provision().await.map_err(|error| Failure::no(wrong(error.to_string())))?;
        complain(&wrong(made));
        if let Some(log) = &mut log {
            let made = log.provision().await.map_err(|error| Failure::no(wrong(error.to_string())))?;
            made.into_iter().for_each(|made| complain(&wrong(made)));
        }
        Ok(Exit::Done)
    })
}
