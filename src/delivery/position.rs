//! The position of an output: what it holds of the journal, and where delivery goes on.

use super::{
    BTreeSet, Bound, DeliveryError, Driver, Input, JournalError, LogPosition, NEAR, Relabeling, Seq, SinkError,
    SinkJournal, SinkOffset, journal, timeline,
};

impl Driver {
    /// Compares the output's last entry, `held`, with this journal.
    pub(super) async fn held(&mut self, held: Option<LogPosition>, cursor: Seq) -> Result<Input, DeliveryError> {
        self.held.clone_from(&held);
        self.epochs = None;
        let Some(held) = held else { return Ok(Input::Position(SinkOffset::Unknown)) };
        let given = cursor.max(self.handed);
        let held =
            self.reading(move |feed| timeline::compare(&mut feed.reader, &feed.relabelings, &held, given)).await?;
        Ok(Input::Position(match (held, &mut self.local) {
            // It lacks nothing of its own: what comes after that another machine has delivered, to its own output.
            (SinkOffset::Upto(held), Some(local)) if (local.delivered..=cursor).contains(&held) => SinkOffset::Unknown,
            // What it has beyond is of a crash before it was noted.
            (SinkOffset::Upto(held), Some(local)) if held > cursor => {
                local.delivered = held;
                SinkOffset::Upto(held)
            }
            (held, _) => held,
        }))
    }

    pub(super) async fn place_of(&mut self, seq: Seq) -> Result<LogPosition, JournalError> {
        self.reading(move |feed| timeline::place_of(&mut feed.reader, &feed.relabelings, seq)).await
    }

    /// Reports whether the output has an entry and no later epoch in it has superseded that entry.
    pub(super) async fn counts(&mut self, entry: &LogPosition) -> Result<Option<bool>, SinkError> {
        let epochs = match &mut self.epochs {
            Some(epochs) => epochs,
            unknown => unknown.insert(self.sink.epochs().await?),
        };
        let mut later = epochs.range::<str, _>((Bound::Excluded(entry.epoch.as_str()), Bound::Unbounded));
        if later.any(|(_, first)| *first <= entry.seq) {
            return Ok(Some(false));
        }
        self.sink.holds(entry).await
    }

    /// Returns the number of entries from the beginning of the batch that the output has without a hole. Dead letters and GAPs
    /// of this sink alone are skipped.
    pub(super) async fn in_output(&mut self, name: &str) -> Result<usize, SinkError> {
        let dead = self.dead_letters(name).await?;
        let asked: Vec<usize> =
            (self.own..self.batch.len()).filter(|at| !dead.contains(&self.batch[*at].seq)).collect();
        // All of them or none, nearly always.
        let (mut least, mut most) = (0, asked.len());
        let mut look = most;
        while least < most {
            if self.counts_at(asked[look - 1]).await? {
                least = look;
            } else {
                most = look - 1;
            }
            let is_first = look == asked.len();
            look = if is_first && most > 0 { 1 } else { (least + most).div_ceil(2) };
        }
        // Two journals can record the same change in the same moment at the same place: what stands alone proves nothing.
        let mut near = least;
        while near > least.saturating_sub(NEAR) {
            near -= 1;
            if !self.counts_at(asked[near]).await? {
                least = near;
            }
        }
        Ok(match asked.get(least) {
            _ if least == 0 && !asked.is_empty() => 0,
            Some(at) => *at,
            None => self.batch.len(),
        })
    }

    pub(super) async fn counts_at(&mut self, at: usize) -> Result<bool, SinkError> {
        let place = self.batch[at]
            .header()
            .map(LogPosition::at)
            .map_err(|error| SinkError::halt(format!("an entry is {error}")))?;
        Ok(self.counts(&place).await? == Some(true))
    }

    /// Returns the seqs of this sink's dead letters.
    pub(super) async fn dead_letters(&mut self, name: &str) -> Result<BTreeSet<Seq>, SinkError> {
        let letters = self.reading(|feed| feed.reader.dead_letters()).await;
        let letters = letters.map_err(|error| SinkError::retry(error.to_string()))?;
        Ok(letters.into_iter().filter(|letter| letter.sink == name).map(|letter| letter.seq).collect())
    }

    pub(super) async fn later_than(&mut self, epoch: &str) -> Result<Option<(String, Seq)>, JournalError> {
        let epoch = epoch.to_owned();
        self.reading(move |feed| timeline::later(&feed.reader, &epoch)).await
    }

    /// Makes entries after this seq go out under an epoch that is later than every epoch in the output.
    pub(super) async fn switch_timeline(&mut self, journal: &SinkJournal, after: Seq) -> Result<Input, DeliveryError> {
        let name = journal.name();
        let Some(held) = self.held.clone() else { return Ok(Input::Done) };
        let mut found = self.later_than(&held.epoch).await?;
        let begins = found.is_none();
        if begins && !journal::is_epoch(&held.epoch) {
            return Ok(Input::PositionUnknown(SinkError::halt(format!(
                "its output ends with entry {} of the epoch {:?}, and no decklog gives such a name; give this sink another output, or repair that one, and send SIGHUP",
                held.seq, held.epoch
            ))));
        }
        if begins {
            self.journal.begin_epoch(Some(&held.epoch)).await?;
            found = self.later_than(&held.epoch).await?;
        }
        let (epoch, before) = found.expect("an epoch that is later has begun");
        tracing::warn!(
            sink = name,
            held.epoch,
            held.seq = held.seq.0,
            after = after.0,
            epoch,
            "the output of this sink holds another timeline: {}, and what follows goes there under {} epoch",
            "the journal was restored from an older copy, or another decklog wrote there",
            if begins { "a new" } else { "a later" },
        );
        if after.next() < before {
            let relabeling = Relabeling { after, before, epoch };
            journal.relabel(relabeling).await?;
            let name = name.to_owned();
            self.reading(move |feed| {
                feed.relabelings = feed.reader.relabelings(&name)?;
                Ok::<_, JournalError>(())
            })
            .await?;
        }
        self.sink.diverged(after);
        Ok(Input::Done)
    }
}
