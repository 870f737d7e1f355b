//! Manifest of an epoch: which segment is the newest. What it says beside that is for readers.

use object_store::{PutMode, PutPayload};
use serde::{Deserialize, Serialize};

use super::{S3Sink, segment};
use crate::sink::SinkError;

/// Manifest of an epoch, for readers of the segments and for the next start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Manifest {
    /// Version of this form: 1.
    pub(super) v: u64,
    /// The journal.
    pub(super) epoch: String,
    /// Number of segments.
    pub(super) segments: u64,
    /// The first seq of the oldest.
    pub(super) first: u64,
    /// The last seq of the newest: everything up to it is there.
    pub(super) last: u64,
    /// The newest.
    pub(super) newest: String,
    /// The newest signed checkpoint of the journal when this was written; absent without `[evidence]`. No decision depends on it, so
    /// that one which is written again after a crash may have another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) checkpoint: Option<String>,
}

impl Manifest {
    /// Returns the key of the manifest.
    pub(super) fn key(epoch: &str) -> String {
        format!("{}/{epoch}.json", segment::MANIFESTS)
    }
}

impl S3Sink {
    pub(super) async fn manifest(&mut self, epoch: &str) -> Result<Option<Manifest>, SinkError> {
        let Some(bytes) = self.get(&Manifest::key(epoch)).await? else { return Ok(None) };
        // One that says something else is no help: the segments themselves are looked at.
        let manifest = serde_json::from_slice(&bytes).ok();
        Ok(manifest.filter(|manifest: &Manifest| manifest.v == 1 && manifest.epoch == epoch))
    }

    /// Looks whether the manifest is as it was left. Nothing is written behind a gap, or beside another decklog.
    pub(super) async fn as_it_was_left(&mut self, epoch: &str) -> Result<(), SinkError> {
        let known = self.latest.as_str().max(epoch).to_owned();
        if let Some(later) = self.epochs().await?.into_iter().next_back().filter(|later| *later > known) {
            return Err(self.later(&later));
        }
        let noted = self.manifest(epoch).await?.map_or(0, |manifest| manifest.last);
        let Some(at) = &self.at else { return Ok(()) };
        let last = at.manifest.as_ref().map_or(0, |manifest| manifest.last);
        if noted == at.noted || noted == last {
            return Ok(());
        }
        if noted > last {
            return Err(self.another());
        }
        Err(SinkError::lost(format!(
            "{} holds less than before: it was restored to an earlier state, or something else is mounted there, and gets the rest again",
            self.store.shown
        )))
    }

    /// Writes the manifest. The first time it is then written once more as nothing may be that is there already: a
    /// server that does so all the same would write over segments.
    pub(super) async fn put_manifest(&mut self, manifest: &Manifest) -> Result<(), SinkError> {
        let key = Manifest::key(&manifest.epoch);
        let text: PutPayload = serde_json::to_vec(manifest).expect("texts and numbers always serialise").into();
        self.put_bytes(&key, text.clone(), PutMode::Overwrite).await?;
        if !self.keeps_conditions {
            if self.put_bytes(&key, text, PutMode::Create).await? {
                return Err(self.store.keeps_no_conditions());
            }
            self.keeps_conditions = true;
        }
        Ok(())
    }
}
