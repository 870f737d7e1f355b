//! `decklog mcp`: the log for an assistant, over the Model Context Protocol on standard input and output.

use std::sync::Arc;

use clap::Args;
use serde_json::value::RawValue;

use super::remote::OneCall;
use super::{Exit, Failure, Global, Outcome};
use crate::query::Put;
use crate::web::http::assistants::{Asking, Assistant, Journals};
use crate::web::http::reading::Logs;

/// Arguments of `decklog mcp`.
#[derive(Args, Debug)]
pub struct McpArgs {}

/// A server, and the cluster that is meant where a call names none.
struct Elsewhere(OneCall, Option<String>);

impl Asking for Elsewhere {
    fn ask(
        &self,
        name: &'static str,
        question: &RawValue,
        cluster: Option<&str>,
        note: &dyn Fn(&str),
        put: &mut Put<'_, Box<RawValue>>,
    ) -> Result<(), Failure> {
        self.0.ask(name, question, cluster.or(self.1.as_deref()), note, put)
    }

    fn end(&self) {
        self.0.end();
    }
}

/// Serves one client until it closes standard input.
///
/// # Errors
/// Where there is no journal, or the client does not speak the protocol.
pub fn main(_args: McpArgs, global: &Global) -> Outcome {
    let assistant = match &global.remote {
        Some(server) => {
            let (server, cluster) = (Arc::clone(server), global.cluster.clone());
            Assistant::new(move || Arc::new(Elsewhere(OneCall::new(Arc::clone(&server)), cluster.clone())))
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
