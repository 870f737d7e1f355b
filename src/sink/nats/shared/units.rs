//! Units of the log: what is appended to it, and read from it.

use bytes::Bytes;

use super::{NatsLog, Sent, State, TRIES};
use crate::core::shared_log::{Appended, Base, Extent, Numbered, SharedLog};
use crate::sink::SinkError;
use crate::sink::shared::{Around, Digest, digest, diverged, hex, unhex};

impl NatsLog {
    pub(super) async fn add(&mut self, number: u64, bytes: Bytes) -> Result<Appended, SinkError> {
        let (own, seen) = (digest(&bytes), self.tail.before(number));
        let mut end = self.recent_end().await?;
        for _ in 0..TRIES {
            if end.state.newest.checked_add(1) != Some(number) || self.is_other(&end.state, seen) {
                // What is not the case now may not be believed for having been so.
                end = self.end().await?;
                let around = self.around(number, &end.state).await?;
                if let Some(meaning) = around.meaning(number, own, seen) {
                    if meaning == Appended::Done {
                        self.tail.note(number, own);
                    }
                    return Ok(meaning);
                }
            }
            let (pieces, last) = self.send_pieces(&format!("{}.piece", self.root), bytes.clone()).await?;
            let state = State {
                v: 1,
                unit: Some(number),
                pieces,
                newest: number,
                sha256: hex(&own),
                bases: end.state.bases.clone(),
                floor: end.state.floor,
            };
            match self.say(&end, state, last).await? {
                Sent::At(at) => {
                    self.tail.note(number, own);
                    self.hint = Some((number, at));
                    return Ok(Appended::Done);
                }
                Sent::Conflict => end = self.end().await?,
            }
        }
        Err(self.busy())
    }

    /// Reports whether the newest unit is another one than was seen there.
    fn is_other(&self, state: &State, seen: Option<Digest>) -> bool {
        seen.zip(unhex(&state.sha256)).is_some_and(|(seen, there)| seen != there)
    }

    async fn around(&mut self, number: u64, state: &State) -> Result<Around, SinkError> {
        let newest = state.newest;
        let own = unhex(&state.sha256);
        let there = match newest.cmp(&number) {
            std::cmp::Ordering::Equal => own,
            std::cmp::Ordering::Greater => {
                let from = self.search(number.saturating_sub(1)).await?;
                let found = self.next(from).await?.filter(|(_, state)| state.unit == Some(number));
                found.and_then(|(_, state)| unhex(&state.sha256))
            }
            std::cmp::Ordering::Less => None,
        };
        let before = own.filter(|_| newest.checked_add(1) == Some(number));
        Ok(Around { newest, there, before })
    }

    pub(super) async fn look(&mut self) -> Result<Extent, SinkError> {
        let end = self.end().await?;
        let bases = end.state.bases.iter().map(|whole| Base { number: whole.number, parts: whole.parts });
        let mut extent = Extent { oldest: None, newest: end.state.newest, bases: bases.collect() };
        let mut from = 1;
        while let Some((message, state)) = self.next(from).await? {
            from = message.sequence + 1;
            extent.oldest = state.unit.filter(|number| *number > end.state.floor);
            if extent.oldest.is_some() {
                break;
            }
        }
        Ok(extent)
    }

    /// The sequence from which on the unit after this number is, if the one with the number is what it was.
    async fn behind(&mut self, after: u64) -> Result<u64, SinkError> {
        if let Some((_, at)) = self.hint.filter(|(number, _)| *number == after) {
            let mut from = at + 1;
            while let Some((message, state)) = self.next(from).await? {
                match state.unit {
                    // A word about bases.
                    None => from = message.sequence + 1,
                    Some(unit) if unit == after + 1 => return Ok(message.sequence),
                    Some(_) => break,
                }
            }
            self.hint = None;
        }
        let known = self.tail.before(after + 1).is_some();
        let Some(before) = after.checked_sub(1).filter(|_| known) else { return self.search(after).await };
        let from = self.search(before).await?;
        match self.next(from).await? {
            Some((message, state)) if state.unit == Some(after) => {
                if self.tail.refuses(after, unhex(&state.sha256)) {
                    return Err(diverged(&self.shown(), after));
                }
                self.hint = Some((after, message.sequence));
                Ok(message.sequence + 1)
            }
            _ => self.search(after).await,
        }
    }

    pub(super) async fn units(&mut self, after: u64, bytes: usize) -> Result<Vec<Numbered>, SinkError> {
        let mut from = self.behind(after).await?;
        let (mut units, mut sum) = (Vec::new(), 0);
        let mut number = after + 1;
        while units.is_empty() || sum < bytes {
            let Some((message, state)) = self.next(from).await? else { break };
            from = message.sequence + 1;
            match state.unit {
                Some(unit) if unit == number => {}
                None => continue,
                Some(_) => break,
            }
            let Some(whole) = self.whole(&state.pieces, message.payload).await? else { break };
            let own = digest(&whole);
            if unhex(&state.sha256) != Some(own) {
                return Err(SinkError::halt(format!(
                    "unit {number} of the shared log in the stream {} at {} is not what was written; restore the stream",
                    self.stream, self.link.shown
                )));
            }
            self.tail.note(number, own);
            self.hint = Some((number, message.sequence));
            sum += whole.len();
            units.push(Numbered { number, bytes: whole });
            number += 1;
        }
        Ok(units)
    }
}
