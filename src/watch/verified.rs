//! Who the cluster at the other end is: asked once for all sources.

use std::time::Duration;

use tokio::time::Instant;

use super::Shared;
use super::requests::Stop;
use crate::ambient;
use crate::cluster::Failure;
use crate::model::Cluster;

/// How long a cluster that has said who it is may keep it to itself before that is taken for a permission that is gone. An
/// API server that begins denies everything until it has read who may do what.
const KEPT: Duration = Duration::from_secs(10);
/// How often it is asked meanwhile.
const AGAIN: Duration = Duration::from_millis(300);

/// What the sources know of the other end.
#[derive(Debug, Default)]
pub(super) struct Verified {
    /// When the cluster was last asked who it is, and through which client.
    known: Option<(Instant, u64)>,
    /// It was believed without having said it.
    nameless: bool,
    /// When a question through which client came to nothing.
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
            if !cluster.uid.is_empty() || nameless || now - since >= KEPT || !self.is_known().await {
                return Ok((now, cluster));
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// Whether the journal knows which cluster it is of. Where it cannot be read it may.
    async fn is_known(&self) -> bool {
        let journal = self.journal.clone();
        let cluster = ambient::blocking(move || journal.reader()?.cluster()).await;
        cluster.map_or(true, |cluster| !cluster.uid.is_empty())
    }
}
