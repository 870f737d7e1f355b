//! Bases of the log: their parts, and the removal of what is older than them.

use async_nats::HeaderMap;
use async_nats::jetstream::message::PublishMessage;
use bytes::Bytes;
use futures::StreamExt;

use super::{NatsLog, STATE, Sent, State, TRIES, Whole};
use crate::core::shared_log::Base;
use crate::sink::SinkError;
use crate::sink::link::chain;
use crate::sink::shared::{digest, hex};

impl NatsLog {
    pub(super) async fn put(&mut self, number: u64, part: u32, bytes: Bytes) -> Result<(), SinkError> {
        self.stream().await?;
        let (parts, rest) = self.base(number, &self.writer);
        let own = digest(&bytes);
        let (pieces, last) = self.send_pieces(&rest, bytes).await?;
        let state = State { v: 1, pieces, newest: number, sha256: hex(&own), ..State::default() };
        let text = serde_json::to_string(&state).expect("texts and numbers always serialise");
        let mut headers = HeaderMap::new();
        headers.insert(STATE, text);
        let message = PublishMessage::build().payload(last).headers(headers).expected_stream(&self.stream);
        self.send(format!("{parts}.{part}"), message).await?;
        Ok(())
    }

    /// The subjects that there are below one.
    async fn below(&mut self, subject: String) -> Result<Vec<String>, SinkError> {
        let stream = self.stream().await?;
        let failed =
            |error: String| SinkError::retry(format!("the stream {} cannot be looked at: {error}", self.stream));
        let asked = self.link.answer(stream.info_with_subjects(subject)).await?;
        let mut found = asked.map_err(|error| failed(chain(&error)))?;
        let mut subjects = Vec::new();
        while let Some(subject) = self.link.answer(found.next()).await? {
            subjects.push(subject.map_err(|error| failed(chain(&error)))?.0);
        }
        Ok(subjects)
    }

    pub(super) async fn finish(&mut self, base: Base) -> Result<(), SinkError> {
        for _ in 0..TRIES {
            let end = self.end().await?;
            // One that is whole already stays as it is, whoever made it.
            if end.state.bases.iter().any(|whole| whole.number == base.number) || base.number < end.state.floor {
                return Ok(());
            }
            let (parts, _) = self.base(base.number, &self.writer);
            let there = self.below(format!("{parts}.>")).await?;
            let part = |subject: &String| subject.rsplit('.').next().and_then(|part| part.parse::<u32>().ok());
            let there = there.iter().filter_map(part).filter(|part| *part < base.parts).count();
            if there < usize::try_from(base.parts).unwrap_or(usize::MAX) {
                return Err(SinkError::retry(format!(
                    "the stream {} at {} has {there} of {} parts of the base {} of the shared log; it has to be made again",
                    self.stream, self.link.shown, base.parts, base.number
                )));
            }
            let mut state = State { unit: None, pieces: Vec::new(), v: 1, ..end.state.clone() };
            state.bases.push(Whole { number: base.number, parts: base.parts, writer: self.writer.clone() });
            state.bases.sort_by_key(|whole| whole.number);
            if base.number > state.newest {
                (state.newest, state.sha256) = (base.number, String::new());
            }
            if let Sent::At(_) = self.say(&end, state, Bytes::new()).await? {
                return Ok(());
            }
        }
        Err(self.busy())
    }

    pub(super) async fn one_part(&mut self, number: u64, part: u32) -> Result<Bytes, SinkError> {
        let end = self.recent_end().await?;
        let is_it = |whole: &&Whole| whole.number == number && part < whole.parts;
        let end = if end.state.bases.iter().any(|whole| is_it(&whole)) { end } else { self.end().await? };
        let mut found = None;
        if let Some(whole) = end.state.bases.iter().find(is_it) {
            let (parts, _) = self.base(number, &whole.writer);
            let stream = self.stream().await?;
            let last = self.message_of(stream.get_last_raw_message_by_subject(&format!("{parts}.{part}"))).await?;
            if let Some(message) = last {
                let state = self.state(&message)?;
                found = self.whole(&state.pieces, message.payload).await?;
            }
        }
        found.ok_or_else(|| {
            SinkError::retry(format!(
                "part {part} of the base {number} of the shared log is not in the stream {} at {}, or not any more; a later one may be",
                self.stream, self.link.shown
            ))
        })
    }

    pub(super) async fn remove(&mut self, upto: u64) -> Result<(), SinkError> {
        let mut end = self.end().await?;
        let floor = |state: &State| state.bases.iter().map(|whole| whole.number).rfind(|number| *number <= upto);
        let Some(mut below) = floor(&end.state) else { return Ok(()) };
        for tries in 0.. {
            if end.state.floor >= below && end.state.bases.first().is_none_or(|whole| whole.number >= below) {
                break;
            }
            if tries == TRIES {
                return Err(self.busy());
            }
            let mut state = State { unit: None, pieces: Vec::new(), v: 1, ..end.state.clone() };
            state.floor = state.floor.max(below);
            state.bases.retain(|whole| whole.number >= below);
            if let Sent::At(_) = self.say(&end, state, Bytes::new()).await? {
                break;
            }
            end = self.end().await?;
            let Some(again) = floor(&end.state) else { return Ok(()) };
            below = again;
        }
        // The last message is never removed.
        let end = self.end().await?;
        self.hint = None;
        let mut first = self.search(end.state.floor).await?.min(end.at);
        self.purge(self.log(), Some(first)).await?;
        if let Some((message, state)) = self.next(first).await? {
            // Its pieces stand before it, and behind everything that is older.
            first = state.pieces.iter().copied().fold(message.sequence, u64::min);
        }
        self.purge(format!("{}.piece", self.root), Some(first)).await?;
        // Parts of bases that are gone, or were never finished.
        let mut gone: Vec<(u64, String)> = Vec::new();
        for kind in ["part", "rest"] {
            let prefix = format!("{}.{kind}.", self.root);
            for subject in self.below(format!("{prefix}>")).await? {
                let mut words = subject.strip_prefix(&prefix).unwrap_or_default().split('.');
                let number = words.next().and_then(|number| number.parse::<u64>().ok());
                if let (Some(number), Some(writer)) = (number, words.next()) {
                    gone.push((number, writer.to_owned()));
                }
            }
        }
        gone.sort_unstable();
        gone.dedup();
        let kept = |(number, writer): &(u64, String)| {
            *number > end.state.floor
                || end.state.bases.iter().any(|whole| whole.number == *number && whole.writer == *writer)
        };
        for (number, writer) in gone.into_iter().filter(|base| !kept(base)) {
            let (parts, rest) = self.base(number, &writer);
            self.purge(format!("{parts}.>"), None).await?;
            self.purge(rest, None).await?;
        }
        Ok(())
    }

    /// Removes the messages of a subject, all of them or those before a sequence.
    async fn purge(&mut self, subject: String, before: Option<u64>) -> Result<(), SinkError> {
        let stream = self.stream().await?;
        let purge = stream.purge().filter(subject);
        let done = match before {
            Some(before) => self.link.answer(purge.sequence(before).into_future()).await?,
            None => self.link.answer(purge.into_future()).await?,
        };
        done.map_err(|error| {
            SinkError::retry(format!("the stream {} cannot be truncated: {}", self.stream, chain(&error)))
        })?;
        Ok(())
    }
}
