//! Startup of delivery, before anything is read from the cluster. Simulations use it too, so it is not in the daemon.
//!
//! # Decision: a start waits for no output
//!
//! Context: An output may be away for days.
//! Decision: Each delivery queries its own output, and reading the cluster starts half a second later at the latest. A later
//! answer is compared later.
//! Cost: A restore may be detected after new entries were recorded, which are then relabelled.

use std::sync::Arc;
use std::time::Duration;

use crate::core::runtime::watch;
use crate::journal::{Journal, JournalError, SinkStart};

/// Time for which reading the cluster waits for the outputs to report their positions. An output that does not answer decides
/// nothing, but an epoch that begins before anything is recorded is the same for every sink.
const ASK_LIMIT: Duration = Duration::from_millis(500);

/// Set once an output was asked what it holds, whatever came of it.
pub type PositionKnown = Arc<watch::Sender<bool>>;

/// Registers the sinks of a daemon that starts, each with its type and where it begins if it is new: from here on
/// nothing is truncated that one of them still needs.
///
/// # Errors
/// Where the journal fails.
pub async fn register(journal: &Journal, sinks: Vec<(String, &'static str, SinkStart)>) -> Result<(), JournalError> {
    for (name, kind, start) in sinks {
        journal.sink(&name, kind, start).await?;
    }
    Ok(())
}

/// Returns when every output was asked what it holds, or shortly after. Each is asked by its own delivery, all at the same
/// time; where they answer, a journal that was restored finds that out before it records anything new.
pub async fn positions_known(outputs: impl IntoIterator<Item = PositionKnown>) {
    let all = async {
        for output in outputs {
            // Whoever holds it keeps it open.
            drop(output.subscribe().wait_for(|asked| *asked).await);
        }
    };
    drop(tokio::time::timeout(ASK_LIMIT, all).await);
}
