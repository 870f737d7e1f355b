//! `decklog restore`: a state directory from what the shared log holds.

use clap::Args;

use super::output::{Out, plural};
use super::progress::Progress;
use super::{Exit, Failure, Global, Outcome};
use crate::app::daemon;
use crate::journal::{self, Reader, RestoreError};

/// Arguments of `decklog restore`.
#[derive(Args, Debug)]
pub struct RestoreArgs {
    /// The sink that `[ha] log` names
    #[arg(long, value_name = "SINK")]
    pub from: String,
}

impl From<RestoreError> for Failure {
    fn from(error: RestoreError) -> Self {
        match error {
            RestoreError::Journal(error) => error.into(),
            error @ RestoreError::Lacking(_) => Self::no(error.to_string()),
            error @ RestoreError::Log(_) => Self::new(Exit::Io, error.to_string()),
        }
    }
}

/// Builds the state directory of the configuration.
///
/// # Errors
/// Where something is missing, or there is a journal already.
pub fn main(args: RestoreArgs, global: &Global) -> Outcome {
    let loaded = global.load()?;
    let config = &loaded.config;
    let dir = &config.state.path;
    super::block_on(async {
        let sharing = daemon::sharing(config, &args.from).await?;
        let mut progress = Progress::new("restore", "units");
        journal::restore(dir, sharing, |done, total| progress.at(done, total)).await?;
        Ok::<_, Failure>(())
    })?;
    let mut reader = Reader::open(dir)?;
    let found = {
        let mut progress = Progress::new("verify", "entries");
        reader.verify(|done, total| progress.at(done, total))?
    };
    if !found.problems.is_empty() {
        return Err(Failure::no(format!("{} was restored and is not whole: run `decklog verify`", dir.display())));
    }
    let mut out = Out::new(global);
    let range = found.range.map(|(first, last)| format!(" ({} to {})", first.0, last.0)).unwrap_or_default();
    out.line(&format!(
        "restored {}{range} and {} into {}, epoch {}; start the daemon, and it continues from there",
        plural(found.entries, "entry", "entries"),
        plural(found.objects, "object", "objects"),
        dir.display(),
        reader.epoch()?,
    ))?;
    out.flush()?;
    Ok(Exit::Done)
}
