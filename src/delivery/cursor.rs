//! Moves of the cursor, of which one may be on its way to the disk while the next batch is read and delivered.

use tokio::time::Instant;

use super::{DeliveryError, Driver};
use crate::core::model::Seq;
use crate::journal::{Progress, SinkJournal};

impl Driver {
    /// Waits until the last move of the cursor is on disk.
    pub(super) async fn settle(&mut self) -> Result<(), DeliveryError> {
        match self.moving.take() {
            Some(moving) => Ok(moving.done().await?),
            None => Ok(()),
        }
    }

    /// Moves the cursor, once the last move of it is on disk. The next batch does not wait for this one: a crash repeats two at most.
    pub(super) async fn move_cursor(
        &mut self,
        journal: &SinkJournal,
        upto: Seq,
        written: Seq,
    ) -> Result<(), DeliveryError> {
        self.settle().await?;
        let local = self.local.as_ref().map(|local| (local.machine.clone(), local.delivered));
        let (messages, over) = self.messages(upto).await?;
        self.moving = Some(journal.start_progress(Progress { upto, written, local, messages, over }).await?);
        self.acknowledged = Instant::now();
        Ok(())
    }
}
