//! The stream of the log: whether a log can be kept in it, and how `sink init` makes it.

use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::context::{CreateStreamErrorKind, GetStreamErrorKind};
use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy, StorageType};

use super::NatsLog;
use crate::sink::SinkError;
use crate::sink::link::chain;
use crate::sink::nats::api;
use crate::sink::nats::subject::covers;

impl NatsLog {
    pub(super) async fn verify(&mut self) -> Result<(), SinkError> {
        let context = self.link.context().await?;
        let (name, shown, sink) = (&self.stream, &self.link.shown, &self.sink);
        let found = self.link.answer(context.get_stream(name)).await?.map_err(|error| match error.kind() {
            GetStreamErrorKind::JetStream(error) if error.error_code() == ErrorCode::STREAM_NOT_FOUND => {
                SinkError::halt(format!(
                    "there is no stream {name} at {shown} for the shared log; `decklog sink init {sink}` makes it, or prints with --print what it has to be"
                ))
            }
            GetStreamErrorKind::JetStream(error) => SinkError::retry(api(name, &error)),
            GetStreamErrorKind::Request | GetStreamErrorKind::EmptyName | GetStreamErrorKind::InvalidStreamName => {
                SinkError::retry(format!(
                    "no answer from JetStream at {shown}: it is not enabled for this account, or it may not be asked for the stream {name}, or it is not ready: {}",
                    chain(&error)
                ))
            }
        })?;
        let version = context.client().server_info().version;
        if !is_new_enough(&version) {
            return Err(SinkError::halt(format!(
                "{shown} is a NATS server of version {version}, which loses sight of the end of a subject that is truncated; the shared log needs 2.10 or later"
            )));
        }
        let config = &found.cached_info().config;
        let wrong = if config.retention != RetentionPolicy::Limits {
            "has another retention than \"limits\""
        } else if config.no_ack {
            "acknowledges nothing (no_ack)"
        } else if !config.max_age.is_zero() {
            "removes what is old (max_age)"
        } else if config.discard == DiscardPolicy::Old && (config.max_bytes > 0 || config.max_messages > 0) {
            "removes what is old when it is full (discard)"
        } else if config.max_messages_per_subject > 0 {
            "keeps only some messages of a subject (max_msgs_per_subject)"
        } else if config.deny_purge {
            "lets nothing be removed (deny_purge)"
        } else if !config.subjects.iter().any(|taken| covers(taken, &format!("{}.part.1.w.0", self.root))) {
            "does not take its subjects"
        } else {
            return Ok(());
        };
        Err(SinkError::halt(format!(
            "the stream {name} at {shown} {wrong}, so the shared log cannot be kept in it; make it as `decklog sink init {sink} --print` says"
        )))
    }

    /// The stream that `sink init` makes.
    pub(super) fn wanted(&self, replicas: usize) -> Config {
        Config {
            name: self.stream.clone(),
            description: Some("the shared log of decklog; never change it by hand".to_owned()),
            subjects: vec![format!("{}.>", self.stream)],
            retention: RetentionPolicy::Limits,
            storage: StorageType::File,
            discard: DiscardPolicy::New,
            num_replicas: replicas,
            max_bytes: -1,
            max_messages: -1,
            max_messages_per_subject: -1,
            max_message_size: -1,
            max_consumers: -1,
            ..Config::default()
        }
    }

    pub(super) async fn make(&mut self) -> Result<String, SinkError> {
        let context = self.link.context().await?;
        if self.link.answer(context.get_stream(&self.stream)).await?.is_ok() {
            self.verify().await?;
            return Ok(format!("the stream {} is there already", self.stream));
        }
        // As many as what is delivered has.
        let beside = self.link.answer(context.get_stream(&self.replicas_of)).await?;
        let replicas = beside.map_or(1, |stream| stream.cached_info().config.num_replicas);
        let made = self.link.answer(context.create_stream(self.wanted(replicas))).await?;
        made.map_err(|error| {
            let (stream, shown) = (&self.stream, &self.link.shown);
            let text = format!("cannot make the stream {stream} at {shown}: {}", chain(&error));
            if let CreateStreamErrorKind::JetStream(api) = error.kind()
                && api.error_code() == ErrorCode::STREAM_SUBJECT_OVERLAP
            {
                return SinkError::halt(format!("{text}; let no other stream take the subjects {stream}.>"));
            }
            SinkError::retry(text)
        })?;
        Ok(format!("the stream {} was made at {}, with {replicas} replicas", self.stream, self.link.shown))
    }
}

fn is_new_enough(version: &str) -> bool {
    let mut numbers = version.split('.').map(|number| number.parse::<u32>().unwrap_or_default());
    (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default()) >= (2, 10)
}
