//! Creation of librdkafka's clients from the configuration and its files.

use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::config::{FromClientConfigAndContext, RDKafkaLogLevel};
use rdkafka::error::KafkaError;

use super::context::Context;
use super::record;
use super::settings::{KafkaCompression, KafkaMode, Sasl, Settings};
use crate::core::credential_files::Followed;
use crate::sink::settings;
use crate::sink::tls::Tls;
use crate::sink::{SinkError, UNNAMED};

/// Time beyond `timeout` after which the brokers abort an abandoned transaction.
const TRANSACTION_EXTRA_WAIT: Duration = Duration::from_secs(10);

/// One request gathers at most so many bytes before compression, unless a single entry is larger: less than brokers
/// take by default, so that what is refused as too large is one entry.
const REQUEST_BYTES: usize = 1_000_000;

/// The largest entry that is sent at all: whether it is too large is for the broker to say, after compression.
const LARGEST: usize = 100_000_000;

/// Parameters of the sink that do not change while it runs.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    /// The name of the sink.
    pub(super) name: String,
    pub(super) config: Settings,
    /// Empty in the mode without transactions.
    pub(super) id: String,
    pub(super) position_topic: String,
}

impl Setup {
    /// # Errors
    /// What can never work.
    pub(super) fn new(config: &Settings) -> Result<Self, String> {
        let topic = config.topic.to_string();
        let mut outside = topic.split(['{', '}']).step_by(2);
        if !outside.all(record::is_clean) || matches!(topic.as_str(), "." | "..") {
            return Err("`topic` has characters that no topic can have: only letters, digits, \"-\", \"_\" and \".\" are allowed".to_owned());
        }
        let id = match (config.mode, &config.transactional_id) {
            (KafkaMode::Transactional, Some(id)) => id.clone(),
            (KafkaMode::Transactional, None) => {
                return Err("`transactional_id` is missing: with mode = \"transactional\" it names this sink among all that write to these brokers".to_owned());
            }
            (KafkaMode::Idempotent, None) if config.position_topic.is_none() => String::new(),
            (KafkaMode::Idempotent, _) => {
                return Err("`transactional_id` and `position_topic` need mode = \"transactional\"".to_owned());
            }
        };
        if config.sasl.is_some() != config.user.is_some() || config.sasl.is_some() != config.password_file.is_some() {
            return Err("`sasl`, `user` and `password_file` need each other".to_owned());
        }
        if !config.tls && config.tls_files != settings::Tls::default() {
            return Err("`ca_file`, `cert_file` and `key_file` need `tls = true`".to_owned());
        }
        let position_topic = config.position_topic.clone().unwrap_or_else(|| format!("{id}-position"));
        Ok(Self { name: UNNAMED.to_owned(), config: config.clone(), id, position_topic })
    }

    /// Reports whether entries and position are written in one transaction.
    pub(super) fn is_transactional(&self) -> bool {
        self.config.mode == KafkaMode::Transactional
    }

    /// After this time the brokers give up a transaction.
    pub(super) fn transaction_timeout(&self) -> Duration {
        *self.config.timeout + TRANSACTION_EXTRA_WAIT
    }
}

/// The files that clients are made with.
#[derive(Debug)]
pub(super) struct Files {
    tls: Option<Tls>,
    password: Option<Followed>,
}

impl Files {
    pub(super) fn new(config: &Settings) -> Result<Self, String> {
        let tls = if config.tls { Some(Tls::new(&config.tls_files)?) } else { None };
        Ok(Self { tls, password: config.password_file.as_deref().map(Followed::new) })
    }

    /// Reads them. Returns whether there is something new in them.
    pub(super) async fn refresh(&mut self) -> Result<bool, SinkError> {
        let mut other = false;
        if let Some(tls) = &mut self.tls {
            other |= tls.refresh().await?.1;
        }
        if let Some(password) = &mut self.password {
            other |= password.refresh().await?;
        }
        Ok(other)
    }

    /// They must be readable at the next use.
    pub(super) fn forget(&mut self) {
        self.tls.iter_mut().for_each(Tls::forget);
        self.password.iter_mut().for_each(Followed::forget);
    }

    /// Returns the configuration of every client.
    pub(super) fn client(&self, config: &Settings) -> Result<ClientConfig, SinkError> {
        let mut client = ClientConfig::new();
        let timeout = config.timeout.as_millis().clamp(1000, 300_000);
        client
            .set_log_level(RDKafkaLogLevel::Warning)
            .set("bootstrap.servers", config.brokers.join(","))
            .set("client.id", "decklog")
            .set("socket.timeout.ms", timeout.to_string())
            .set("socket.connection.setup.timeout.ms", timeout.min(30_000).to_string())
            .set("reconnect.backoff.max.ms", "1000")
            .set("log.connection.close", "false")
            .set(
                "security.protocol",
                match (config.tls, config.sasl.is_some()) {
                    (false, false) => "plaintext",
                    (false, true) => "sasl_plaintext",
                    (true, false) => "ssl",
                    (true, true) => "sasl_ssl",
                },
            );
        if let Some(tls) = &self.tls {
            let (authorities, own) = tls.pem();
            match authorities {
                Some(file) => client.set("ssl.ca.pem", file.text()?),
                // OpenSSL is built in, and knows nothing of where this system keeps them.
                None => client.set("ssl.ca.location", "probe"),
            };
            if let Some((cert, key)) = own {
                client.set("ssl.certificate.pem", cert.text()?).set("ssl.key.pem", key.text()?);
            }
        }
        if let (Some(sasl), Some(user), Some(password)) = (config.sasl, &config.user, &self.password) {
            let mechanism = match sasl {
                Sasl::Plain => "PLAIN",
                Sasl::ScramSha256 => "SCRAM-SHA-256",
                Sasl::ScramSha512 => "SCRAM-SHA-512",
            };
            client.set("sasl.mechanism", mechanism).set("sasl.username", user).set("sasl.password", password.text()?);
        }
        Ok(client)
    }
}

/// A client for the producer of a sink; of a replay where `id` is none.
pub(super) fn producer(client: &ClientConfig, settings: &Setup, id: Option<&str>) -> ClientConfig {
    let mut producer = client.clone();
    let timeout = settings.transaction_timeout().as_millis().to_string();
    producer
        .set("enable.idempotence", "true")
        .set("acks", "all")
        .set("partitioner", "murmur2_random")
        .set("linger.ms", "2")
        .set("batch.size", REQUEST_BYTES.to_string())
        .set("message.max.bytes", LARGEST.to_string())
        .set("message.timeout.ms", &timeout)
        .set("topic.metadata.propagation.max.ms", (settings.config.timeout.as_millis() / 2).min(10_000).to_string())
        .set(
            "compression.type",
            match settings.config.compress {
                KafkaCompression::Zstd => "zstd",
                KafkaCompression::Lz4 => "lz4",
                KafkaCompression::Snappy => "snappy",
                KafkaCompression::Gzip => "gzip",
                KafkaCompression::None => "none",
            },
        );
    match id {
        Some(id) => producer.set("transactional.id", id).set("transaction.timeout.ms", timeout),
        // Nothing may follow what was not taken, or a later try would put it out of order.
        None => producer.set("enable.gapless.guarantee", "true"),
    };
    producer
}

/// A client for reading what a sink wrote.
pub(super) fn consumer(client: &ClientConfig, settings: &Setup) -> ClientConfig {
    let mut consumer = client.clone();
    consumer
        // Nothing is joined and nothing committed; librdkafka wants a name to assign partitions.
        .set("group.id", &settings.id)
        .set("enable.auto.commit", "false")
        .set("enable.auto.offset.store", "false")
        .set("enable.partition.eof", "true")
        .set("auto.offset.reset", "error")
        .set("isolation.level", "read_committed");
    consumer
}

/// Makes a client. Its error never quotes the configuration, which has secrets in it.
pub(super) fn make<T: FromClientConfigAndContext<Context>>(config: &ClientConfig) -> Result<T, SinkError> {
    config.create_with_context(Context::default()).map_err(|error| {
        SinkError::retry(if let KafkaError::ClientConfig(_, _, key, _) = error {
            format!("librdkafka does not take the value of {key}")
        } else if let KafkaError::ClientCreation(text) = error {
            format!("librdkafka cannot make a client: {text}")
        } else {
            "librdkafka cannot make a client".to_owned()
        })
    })
}
