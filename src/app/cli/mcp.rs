//! `decklog mcp`: the log for an assistant, over the Model Context Protocol on standard input and output.

use std::sync::Arc;

use clap::Args;

use super::remote::OneCall;
use super::{Exit, Failure, Global, Outcome};
use crate::web::http::assistants::{Assistant, Journals};
use crate::web::http::reading::Logs;

/// Arguments of `decklog mcp`.
#[derive(Args, Debug)]
pub struct McpArgs {}

/// Serves one client until it closes standard input.
///
/// # Errors
/// Where there is no journal, or the client does not speak the protocol.
pub fn main(_args: McpArgs, global: &Global) -> Outcome {
    let assistant = match &global.remote {
        Some(server) => {
            let (server, cluster) = (Arc::clone(server), global.cluster.clone());
            Assistant::new(move || Arc::new(OneCall::new(Arc::clone(&server), cluster.clone())))
        }
        None => {
            let logs = logs(global)?;
            Assistant::new(move || Arc::new(Journals::new(logs.clone())))
        }
    };
    super::block_on(assistant.serve_stdio())?;
    Ok(Exit::Done)
}

/// The journals on this machine that are meant.
fn logs(global: &Global) -> Result<Logs, Failure> {
    let sections = global.sections()?.filter(|_| global.cluster.is_none()).unwrap_or_default();
    if sections.is_empty() {
        let (_, state) = global.reader()?;
        return Ok(Logs { state, ..Logs::default() });
    }
    let clusters = sections.into_iter().filter_map(|section| Some((section.name, section.state?))).collect();
    Ok(Logs { clusters, ..Logs::default() })
}
