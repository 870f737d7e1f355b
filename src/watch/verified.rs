//! Identity of the cluster at the other end: requested once for all sources.
//!
//! # Decision: one question about the cluster for all
//!
//! Context: After trouble, and through a new client, the other end may be another cluster.
//! Decision: Before anything else the uid of kube-system has to be that of the journal. One request serves all sources, with
//! ten seconds for the answer. A 403 instead of a known uid is ignored for ten seconds, because a starting API server denies
//! everything; after that the permission counts as revoked.
//! Cost: A request before the first list.

use std::time::Duration;

use tokio::time::Instant;

use super::Shared;
use super::requests::Stop;
use crate::core::model::Cluster;
use crate::core::runtime;
use crate::watch::cluster::Failure;

/// Time for which a cluster may withhold the identity that it has given before. After that the permission counts as revoked. An
/// API server that starts denies everything until it has read the roles.
const IDENTITY_SILENCE_LIMIT: Duration = Duration::from_secs(10);
/// Interval of the requests meanwhile.
const IDENTITY_INTERVAL: Duration = Duration::from_millis(300);

/// Knowledge of the sources about the other end.
#[derive(Debug, Default)]
pub(super) struct Verified {
    /// Time of the last answer about the identity, and the generation of the client.
    known: Option<(Instant, u64)>,
    /// It was believed without having said it.
    nameless: bool,
    /// Time, client generation and failure of the last request that failed.
    failed: Option<(Instant, u64, Failure)>,
}

impl Shared {
    /// Makes sure, once for all who ask, that whom this client speaks with is the cluster of the journal, and was
    /// after trouble at `since`.
    pub(super) async fn verify(&self, since: Option<Instant>, generation: u64) -> Result<(), Stop> {
        let asked = Instant::now();
        let mut verified = self.verified.lock().await;
        if verified.known.is_some_and(|(at, of)| of == generation && since.is_none_or(|since| at > since)) {
            return Ok(());
        }
        // Whoever waited while another one asked has his answer, and is not to wait for the same again.
        if let Some((at, of, failure)) = &verified.failed
            && *of == generation
            && *at >= asked
        {
            return Err(failure.clone().into());
        }
        match self.who(generation, verified.nameless).await {
            Ok((at, cluster)) => {
                let before = std::mem::replace(&mut verified.nameless, cluster.uid.is_empty());
                if verified.nameless && !before {
                    tracing::warn!(
                        "cannot read the namespace kube-system, so another cluster at the same address would not be noticed; `decklog rbac` prints the permission"
                    );
                }
                self.journal.set_cluster(cluster).await?;
                verified.known = Some((at, generation));
                Ok(())
            }
            Err(failure) => {
                verified.failed = Some((Instant::now(), generation, failure.clone()));
                Err(failure.into())
            }
        }
    }

    /// Asks the cluster who it is, and when that was. Where the journal knows it, no answer is one only after a while, or
    /// where it was one before.
    async fn who(&self, generation: u64, nameless: bool) -> Result<(Instant, Cluster), Failure> {
        let mut kept = None;
        loop {
            self.progressed();
            let now = Instant::now();
            let cluster = self.api.pinned(generation).identity().await?;
            let since = *kept.get_or_insert(now);
            if !cluster.uid.is_empty() || nameless || now - since >= IDENTITY_SILENCE_LIMIT || !self.is_known().await {
                return Ok((now, cluster));
            }
            tokio::time::sleep(IDENTITY_INTERVAL).await;
        }
    }

    /// Reports whether the journal knows its cluster; true if it cannot be read.
    async fn is_known(&self) -> bool {
        let journal = self.journal.clone();
        let cluster = runtime::blocking(move || journal.reader()?.cluster()).await;
        cluster.map_or(true, |cluster| !cluster.uid.is_empty())
    }
}
