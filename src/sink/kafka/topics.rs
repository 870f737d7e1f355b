//! The topics that a sink needs: whether they are there, how they are made.

use std::collections::BTreeSet;
use std::future::Future;
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::admin::{
    AdminClient, AdminOptions, AlterConfig, ConfigSource, NewTopic, ResourceSpecifier, TopicReplication,
};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseProducer, Producer};

use super::context::Context;
use super::fault;
use super::patience::Patience;
use super::position::{self, waits};
use super::setup::{self, Setup};
use crate::sink::SinkError;

/// Configuration of a topic that keeps the last record of each key, and is short to read.
const COMPACTED: [(&str, &str); 2] = [("cleanup.policy", "compact"), ("segment.bytes", "16777216")];

/// Time limit for finding the reason why there is no broker.
const REASON_WAIT: Duration = Duration::from_secs(2);

/// A topic that has to be there.
struct Wanted<'s> {
    name: &'s str,
    partitions: u32,
    config: &'static [(&'static str, &'static str)],
}

/// The topics that have to be there. One with fields in its name is not known before its entries.
fn wanted(settings: &Setup) -> Vec<Wanted<'_>> {
    let config = &settings.config;
    let mut topics = Vec::new();
    if let Some(name) = config.topic.fixed() {
        topics.push(Wanted { name, partitions: config.partitions, config: &[] });
    }
    if settings.is_transactional() {
        topics.push(Wanted { name: &settings.position_topic, partitions: 1, config: &COMPACTED });
    }
    topics
}

/// Returns the shell commands that create the topics.
pub(super) fn commands(settings: &Setup) -> Option<String> {
    let mut text = String::new();
    if !settings.config.topic.is_fixed() {
        text += &format!(
            "# and a topic for each {}, where the brokers do not make topics by themselves\n",
            settings.config.topic
        );
    }
    text += &commands_for(settings, &wanted(settings));
    (!text.is_empty()).then_some(text)
}

/// Returns the shell commands for these topics.
fn commands_for(settings: &Setup, wanted: &[Wanted<'_>]) -> String {
    let config = &settings.config;
    let mut text = String::new();
    for topic in wanted {
        text += &format!(
            "kafka-topics.sh --bootstrap-server {} --create --if-not-exists --topic {} --partitions {}",
            config.brokers.join(","),
            topic.name,
            topic.partitions
        );
        if let Some(replication) = config.replication {
            text += &format!(" --replication-factor {replication}");
        }
        for (key, value) in topic.config {
            text += &format!(" --config {key}={value}");
        }
        text.push('\n');
    }
    text
}

/// The names of all topics that may be seen; asking makes none.
fn existing(client: &ClientConfig, settings: &Setup, patience: &Patience) -> Result<BTreeSet<String>, SinkError> {
    let doing = "asking for the topics";
    let producer: BaseProducer<Context> = setup::make(client)?;
    let context = producer.client().context();
    loop {
        match producer.client().fetch_metadata(None, patience.slice()) {
            Ok(metadata) => return Ok(metadata.topics().iter().map(|topic| topic.name().to_owned()).collect()),
            Err(error) if !waits(&error) => return Err(fault::of(&error, doing, settings)),
            Err(_) => {}
        }
        producer.poll(Duration::from_millis(10));
        // Nobody waits here for brokers that come back, but for the reason why they are not there.
        let told = context.trouble().is_some_and(|(code, _)| code != RDKafkaErrorCode::AllBrokersDown);
        if told || context.alone() >= REASON_WAIT || patience.is_over() {
            return Err(fault::silence(context, doing, settings));
        }
    }
}

/// Says what is missing. It makes no producer with the transactional id, which would lock out the daemon that runs.
pub(super) fn check(client: &ClientConfig, settings: &Setup, patience: &mut Patience) -> Result<(), SinkError> {
    are_there(client, settings, &wanted(settings), patience)?;
    if settings.is_transactional() {
        keeps(client, settings, patience)?;
        position::read(client, settings, patience)?;
    }
    Ok(())
}

/// Checks that these topics exist.
fn are_there(
    client: &ClientConfig,
    settings: &Setup,
    wanted: &[Wanted<'_>],
    patience: &Patience,
) -> Result<(), SinkError> {
    let existing = existing(client, settings, patience)?;
    let missing: Vec<&str> = wanted.iter().map(|t| t.name).filter(|name| !existing.contains(*name)).collect();
    if !missing.is_empty() {
        return Err(SinkError::halt(format!(
            "the {} not exist, or may not be described; run `decklog sink init {}`, or what it prints with --print",
            match missing.as_slice() {
                [one] => format!("topic {one} does"),
                several => format!("topics {} do", several.join(", ")),
            },
            settings.name
        )));
    }
    Ok(())
}

/// Looks whether the topic of the position keeps it: one that brokers made by themselves drops its records by age, and
/// with them the position of a sink that is quiet for a while.
pub(super) fn keeps(client: &ClientConfig, settings: &Setup, patience: &Patience) -> Result<(), SinkError> {
    let topic = settings.position_topic.as_str();
    let Some((policy, _)) = forgetful(&setup::make(client)?, settings, patience) else { return Ok(()) };
    Err(SinkError::renew(format!(
        "the topic {topic:?} keeps the position, and forgets it with cleanup.policy={policy}; run `decklog sink init {}`, which sets cleanup.policy=compact on it: delivery then goes on",
        settings.name
    )))
}

/// Returns the cleanup policy of the position's topic if it is not compacted, and its other settings. Without the right to look
/// it returns none, and delivery goes on.
fn forgetful(
    admin: &AdminClient<Context>,
    settings: &Setup,
    patience: &Patience,
) -> Option<(String, Vec<(String, String)>)> {
    let asked = [ResourceSpecifier::Topic(&settings.position_topic)];
    let answers = wait(admin.describe_configs(&asked, &options(settings)), patience).ok()?.ok()?;
    let resource = answers.into_iter().next()?.ok()?;
    let policy = resource.get("cleanup.policy")?.value.clone().filter(|policy| policy != "compact")?;
    let set = resource.entries.into_iter().filter(|entry| entry.source == ConfigSource::DynamicTopic);
    Some((policy, set.filter_map(|entry| Some((entry.name, entry.value?))).collect()))
}

/// Makes of the topic of the position one that keeps it. Says what was done, if anything had to be.
fn compact(admin: &AdminClient<Context>, settings: &Setup, patience: &Patience) -> Result<Option<String>, SinkError> {
    let topic = settings.position_topic.as_str();
    let Some((_, set)) = forgetful(admin, settings, patience) else { return Ok(None) };
    // What is not named here would be unset.
    let mut config = AlterConfig::new(ResourceSpecifier::Topic(topic));
    for (key, value) in set.iter().map(|(key, value)| (key.as_str(), value.as_str())).chain(COMPACTED) {
        config = config.set(key, value);
    }
    let doing = format!("setting cleanup.policy=compact on the topic {topic:?}");
    let results = wait(admin.alter_configs(&[config], &options(settings)), patience)?
        .map_err(|error| fault::of(&error, &doing, settings))?;
    match results.into_iter().next() {
        Some(Err((_, RDKafkaErrorCode::TopicAuthorizationFailed))) => Err(SinkError::halt(format!(
            "{doing}: it is not allowed; grant AlterConfigs on it, or do it by hand (kafka-configs.sh --alter --entity-type topics --entity-name {topic} --add-config cleanup.policy=compact)"
        ))),
        Some(Err((_, code))) => Err(SinkError::halt(format!("{doing}: {code}"))),
        Some(Ok(_)) | None => {
            Ok(Some(format!("set cleanup.policy=compact on {topic}, which forgot the position by age")))
        }
    }
}

/// Makes the topics that are missing, and says which.
pub(super) fn make(client: &ClientConfig, settings: &Setup, patience: &Patience) -> Result<String, SinkError> {
    let text = make_these(client, settings, wanted(settings), patience)?;
    let compacted =
        if settings.is_transactional() { compact(&setup::make(client)?, settings, patience)? } else { None };
    Ok(match compacted {
        Some(compacted) => format!("{text}; {compacted}"),
        None => text,
    })
}

/// Makes those of these topics that are missing, and says which.
fn make_these(
    client: &ClientConfig,
    settings: &Setup,
    wanted: Vec<Wanted<'_>>,
    patience: &Patience,
) -> Result<String, SinkError> {
    let existing = existing(client, settings, patience)?;
    let admin: AdminClient<Context> = setup::make(client)?;
    let mut made = Vec::new();
    let count = wanted.len();
    for topic in wanted.into_iter().filter(|topic| !existing.contains(topic.name)) {
        let partitions = i32::try_from(topic.partitions).unwrap_or(i32::MAX);
        let replication = settings.config.replication.map_or(-1, |count| i32::try_from(count).unwrap_or(i32::MAX));
        let mut new = NewTopic::new(topic.name, partitions, TopicReplication::Fixed(replication));
        for (key, value) in topic.config {
            new = new.set(key, value);
        }
        let doing = format!("making the topic {:?}", topic.name);
        let failed = |error: &KafkaError| fault::of(error, &doing, settings);
        let results =
            wait(admin.create_topics([&new], &options(settings)), patience)?.map_err(|error| failed(&error))?;
        match results.into_iter().next() {
            Some(Err((_, code))) if code != RDKafkaErrorCode::TopicAlreadyExists => {
                let forbidden = matches!(
                    code,
                    RDKafkaErrorCode::TopicAuthorizationFailed | RDKafkaErrorCode::ClusterAuthorizationFailed
                );
                return Err(SinkError::halt(if forbidden {
                    format!("{doing}: it is not allowed; grant Create, or make it by hand (--print shows how)")
                } else {
                    format!("{doing}: {code}")
                }));
            }
            _ => made.push(topic.name.to_owned()),
        }
    }
    let there = count - made.len();
    Ok(match (made.as_slice(), there) {
        ([], _) => "every topic that it needs is there already".to_owned(),
        (made, 0) => format!("made {}", made.join(" and ")),
        (made, _) => format!("made {}; the rest is there already", made.join(" and ")),
    })
}

pub(super) fn options(settings: &Setup) -> AdminOptions {
    let timeout = Some(*settings.config.timeout);
    AdminOptions::new().request_timeout(timeout).operation_timeout(timeout)
}

/// Waits for what librdkafka's own thread brings; it has a bound of its own, and this another.
pub(super) fn wait<T>(answer: impl Future<Output = T>, patience: &Patience) -> Result<T, SinkError> {
    let answer = std::pin::pin!(answer);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let mut answer = answer;
    loop {
        if let std::task::Poll::Ready(done) = answer.as_mut().poll(&mut context) {
            return Ok(done);
        }
        if patience.is_over() {
            return Err(SinkError::retry("asking the brokers: no answer in time"));
        }
        std::thread::sleep(patience.slice().min(Duration::from_millis(10)));
    }
}
