//! `decklog ui`: the timeline page of a journal, with a daemon beside it or without one.

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::output::Out;
use super::{Exit, Failure, Global, Outcome, complain};
use crate::core::net::server::{self, BindError, Listen};
use crate::core::spelling::Text;
use crate::query::status;
use crate::web::http;
use crate::web::ui::Once;

/// Arguments of `decklog ui`.
#[derive(Args, Debug)]
pub struct UiArgs {
    /// Address of the page: an address on loopback and its port, or the path of a unix socket
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:0", value_parser = listen)]
    pub listen: Listen,
}

fn listen(text: &str) -> Result<Listen, String> {
    let listen = Listen::read(text).map_err(|wrong| {
        let near = wrong.nearest.map_or_else(String::new, |near| format!("; did you mean {near}?"));
        format!("expected {}{near}", Listen::EXPECTED)
    })?;
    if listen.is_local() {
        return Ok(listen);
    }
    Err("other machines could reach that; `ssh -L` leads from another machine to loopback, and [ui] in the configuration of \
         the daemon serves the page to others, with TLS and tokens"
        .to_owned())
}

/// Serves the page until it is interrupted.
///
/// # Errors
/// Where there is no journal, or nothing can be served.
pub fn main(args: UiArgs, global: &Global) -> Outcome {
    let (reader, dir) = global.reader()?;
    let name = reader.cluster()?.name;
    drop(reader);
    let mut out = Out::new(global);
    super::block_on(async {
        let settings = http::Settings { listen: args.listen.clone(), reading: true, ..http::Settings::default() };
        let bound = server::bind(settings.endpoint("--")).await.map_err(|error| {
            let exit = if matches!(error, BindError::Refused(_)) { Exit::Usage } else { Exit::Io };
            Failure::new(exit, error.to_string().replace("-- listen", "--listen"))
        })?;
        let page = Once::new(&dir, Vec::new());
        let address = match (bound.address(), &args.listen) {
            (Some(address), _) => format!("http://{address}{}", page.path),
            (None, listen) => format!("{listen}, at {}", page.path),
        };
        out.line(&address)?;
        out.flush()?;
        let of = if name.is_empty() { String::new() } else { format!(" of {name}") };
        complain(&format!("the log{of} is at this address, for the first browser that opens it; Ctrl-C ends it"));
        if !status::daemon(&dir).running {
            complain(
                "note: no daemon is running on this state directory, so nothing new comes until `decklog run` is started",
            );
        }
        let stop = CancellationToken::new();
        let failed = |error: std::io::Error| Failure::io("the page cannot be served", &error);
        let mut terminated = signal(SignalKind::terminate()).map_err(failed)?;
        let serving = page.serve(bound, stop.clone());
        tokio::pin!(serving);
        tokio::select! {
            served = &mut serving => served.map_err(failed)?,
            _ = tokio::signal::ctrl_c() => stop.cancel(),
            _ = terminated.recv() => stop.cancel(),
        }
        Ok::<_, Failure>(())
    })?;
    if let Listen::Unix(path) = &args.listen {
        // It was made by this command.
        drop(std::fs::remove_file(path));
    }
    Ok(Exit::Done)
}
