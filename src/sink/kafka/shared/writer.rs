//! What is done with the topics of a shared log, on a thread that may block.

mod bases;

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use bytes::{Bytes, BytesMut};
use rdkafka::admin::{AdminClient, ResourceSpecifier};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Header, Headers, Message, OwnedHeaders};
use rdkafka::producer::{BaseRecord, Producer, ThreadedProducer};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use serde::{Deserialize, Serialize};

use self::bases::Part;
use super::super::context::Context;
use super::super::fault;
use super::super::patience::Patience;
use super::super::position::{persistently, waits};
use super::super::setup::{self, Setup};
use super::super::topics;
use super::super::writer::{spoilt, went_along};
use super::Topics;
use crate::ambient;
use crate::shared_log::{Appended, Base, Extent, Numbered};
use crate::sink::SinkError;
use crate::sink::shared::{Around, Digest, Tail, digest, hex, parted, unhex};

/// The header of a record that is a unit.
const UNIT: &str = "decklog-unit";

/// What a record holds at most: less than brokers take by default.
const PIECE: usize = 900_000;

/// How many offsets from the end are read first: a unit, and what ends its transaction.
const FIRST_WINDOW: i64 = 4;

/// How often an append begins anew.
const TRIES: u32 = 4;

/// For so long after it was seen, the end of the log is believed to be what it was as long as its offset is.
const FRESH: Duration = Duration::from_secs(5);

/// How long it may take until everybody sees what is committed.
const SETTLES: Duration = Duration::from_secs(2);

/// See the module.
pub(super) struct LogWriter {
    pub(super) settings: Setup,
    pub(super) client: ClientConfig,
    topics: Topics,
    /// With transactions.
    producer: Option<ThreadedProducer<Context>>,
    /// Without.
    plain: Option<ThreadedProducer<Context>>,
    consumer: Option<BaseConsumer<Context>>,
    /// One that also sees what is not committed.
    raw: Option<BaseConsumer<Context>>,
    /// Where the log ends, while nobody else can have moved it.
    end: Option<(End, Instant)>,
    /// Somebody else took over.
    out: bool,
    /// The topics were looked at, and keep what is in them.
    kept: bool,
    tail: Tail,
    /// The number, the offset and the digest of a unit that was seen.
    hint: Option<(u64, i64, Option<Digest>)>,
    /// Where parts are of bases that are not finished.
    stored: BTreeMap<u64, BTreeMap<u32, Part>>,
}

/// The end of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct End {
    /// The offset that the next record gets.
    next: i64,
    /// The newest unit.
    unit: u64,
    digest: Option<Digest>,
    /// The newest base.
    base: u64,
}

impl End {
    fn newest(&self) -> u64 {
        self.unit.max(self.base)
    }
}

/// What the header of a unit says.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Unit {
    /// Version of this form: 1.
    v: u64,
    number: u64,
    /// How many records before it hold what comes first.
    pieces: usize,
    sha256: String,
}

impl Unit {
    fn digest(&self) -> Option<Digest> {
        unhex(&self.sha256)
    }
}

/// Why a transaction was not committed, or nobody knows.
enum Gone {
    /// Another producer has its id.
    Fenced,
    /// It would not have been where it belongs.
    Moved,
    Error(SinkError),
}

impl LogWriter {
    pub(super) fn new(settings: Setup, topics: Topics) -> Self {
        Self {
            settings,
            client: ClientConfig::new(),
            topics,
            producer: None,
            plain: None,
            consumer: None,
            raw: None,
            end: None,
            out: false,
            kept: false,
            tail: Tail::default(),
            hint: None,
            stored: BTreeMap::new(),
        }
    }

    /// The next use connects anew.
    pub(super) fn close(&mut self) {
        self.disconnect();
        (self.plain, self.consumer, self.raw, self.kept) = (None, None, None, false);
    }

    fn disconnect(&mut self) {
        (self.producer, self.end, self.hint) = (None, None, None);
    }

    fn failed(&self, error: &KafkaError, doing: &str) -> SinkError {
        fault::of(error, doing, &self.settings)
    }

    /// Locks out who was there before, ends what that one began, and reads the end.
    pub(super) fn fence(&mut self, patience: &mut Patience) -> Result<(), SinkError> {
        self.out = false;
        self.connect(patience)
    }

    fn connect(&mut self, patience: &mut Patience) -> Result<(), SinkError> {
        self.disconnect();
        if !self.kept {
            self.keeps(patience)?;
            self.kept = true;
        }
        let config = setup::producer(&self.client, &self.settings, Some(&self.settings.id));
        let producer: ThreadedProducer<Context> = setup::make(&config)?;
        let doing = "beginning with transactions";
        patience.renew();
        loop {
            match producer.init_transactions(patience.slice()) {
                Ok(()) => break,
                Err(KafkaError::Transaction(error)) if error.is_retriable() => {}
                Err(error) => return Err(self.failed(&error, doing)),
            }
            let context = producer.client().context();
            if patience.is_over() || fault::hopeless(context) {
                return Err(fault::silence(context, doing, &self.settings));
            }
        }
        patience.renew();
        self.end_what_hangs(&producer, patience)?;
        let end = self.read_end(patience)?;
        self.end = Some((end, Instant::now()));
        self.producer = Some(producer);
        Ok(())
    }

    /// A broker that ends in the wrong moment may forget to write the end of a transaction that it has committed, and then
    /// nobody ever sees what comes after. What nobody has seen was not appended, so it is given up: together with a transaction
    /// of the same producer.
    fn end_what_hangs(
        &mut self,
        producer: &ThreadedProducer<Context>,
        patience: &mut Patience,
    ) -> Result<(), SinkError> {
        let topic = self.topics.log.clone();
        if self.catches_up(&topic, None, patience)? {
            return Ok(());
        }
        tracing::warn!("a transaction in the topic {topic} was not ended by the brokers, and is given up");
        let doing = format!("ending a transaction that hangs in the topic {topic:?}");
        let context = producer.client().context();
        context.begin();
        producer.begin_transaction().map_err(|error| self.failed(&error, &doing))?;
        let record = BaseRecord::with_opaque_to(&topic, context.expect()).partition(0).key("0").payload("");
        producer.send(record).map_err(|(error, _)| self.failed(&error, &doing))?;
        while !context.decided_within(patience.slice()) {
            if patience.is_over() || fault::hopeless(context) {
                return Err(fault::silence(context, &doing, &self.settings));
            }
        }
        loop {
            match producer.abort_transaction(patience.slice()) {
                Ok(()) => break,
                Err(KafkaError::Transaction(error)) if error.is_retriable() => {}
                Err(error) => return Err(self.failed(&error, &doing)),
            }
            if patience.is_over() || fault::hopeless(context) {
                return Err(fault::silence(context, &doing, &self.settings));
            }
        }
        if self.catches_up(&topic, None, patience)? {
            return Ok(());
        }
        Err(SinkError::retry(format!(
            "the topic {topic} has a transaction that nobody ends, and nothing after it can be read; find it with `kafka-transactions.sh find-hanging`, and end it with `kafka-transactions.sh abort`"
        )))
    }

    /// Waits until what is committed can be read up to an offset, or as far as there are records.
    fn catches_up(&mut self, topic: &str, upto: Option<i64>, patience: &Patience) -> Result<bool, SinkError> {
        let began = Instant::now();
        loop {
            let end = match upto {
                Some(upto) => upto,
                None => self.last(topic, patience)?,
            };
            if self.marks(topic, patience)?.1 >= end {
                return Ok(true);
            }
            if began.elapsed() > SETTLES || patience.is_over() {
                return Ok(false);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// The offset behind the last record of a topic, whether it is committed or not.
    fn last(&mut self, topic: &str, patience: &Patience) -> Result<i64, SinkError> {
        if self.raw.is_none() {
            let mut config = setup::consumer(&self.client, &self.settings);
            self.raw = Some(setup::make(config.set("isolation.level", "read_uncommitted"))?);
        }
        let consumer = self.raw.as_ref().expect("it was made above");
        let marks = persistently(patience, |slice| consumer.fetch_watermarks(topic, 0, slice));
        Ok(marks.map_err(|error| self.failed(&error, &format!("reading the topic {topic:?}")))?.1)
    }

    /// Looks whether the topics keep what is in them. Who may not look learns nothing here.
    pub(super) fn keeps(&self, patience: &Patience) -> Result<(), SinkError> {
        let admin: AdminClient<Context> = setup::make(&self.client)?;
        let asked =
            [&self.topics.log, &self.topics.parts, &self.topics.bases].map(|topic| ResourceSpecifier::Topic(topic));
        let answers = topics::wait(admin.describe_configs(&asked, &topics::options(&self.settings)), patience)?;
        for (answer, topic) in
            answers.into_iter().flatten().zip([&self.topics.log, &self.topics.parts, &self.topics.bases])
        {
            let Ok(answer) = answer else { continue };
            let is = |key: &str| answer.get(key).and_then(|entry| entry.value.clone()).unwrap_or_default();
            let (policy, age, size) = (is("cleanup.policy"), is("retention.ms"), is("retention.bytes"));
            let wrong = match (topic == &self.topics.bases, policy.as_str()) {
                (true, "compact") | (_, "") => continue,
                (true, _) => format!("cleanup.policy={policy}"),
                (false, "delete") if age == "-1" && size == "-1" => continue,
                (false, "delete") => format!("retention.ms={age} and retention.bytes={size}"),
                (false, _) => format!("cleanup.policy={policy}"),
            };
            return Err(SinkError::halt(format!(
                "the topic {topic} is of the shared log and forgets it with {wrong}; set what `decklog sink init {} --print` says (kafka-configs.sh --alter --entity-type topics --entity-name {topic} --add-config …)",
                self.settings.name
            )));
        }
        Ok(())
    }

    fn consumer(&mut self) -> Result<&BaseConsumer<Context>, SinkError> {
        if self.consumer.is_none() {
            let mut config = setup::consumer(&self.client, &self.settings);
            // Nobody waits here for more to come.
            config.set("fetch.wait.max.ms", "10").set("queued.max.messages.kbytes", "16384");
            self.consumer = Some(setup::make(&config)?);
        }
        Ok(self.consumer.as_ref().expect("it was made above"))
    }

    /// The first offset of a topic, and the one behind the last that is committed.
    fn marks(&mut self, topic: &str, patience: &Patience) -> Result<(i64, i64), SinkError> {
        let consumer = self.consumer()?;
        let marks = persistently(patience, |slice| consumer.fetch_watermarks(topic, 0, slice));
        marks.map_err(|error| self.failed(&error, &format!("reading the topic {topic:?}")))
    }

    /// Reads a topic from an offset on, to its end or as long as `look` wants more.
    fn scan(
        &mut self,
        topic: &str,
        from: i64,
        patience: &mut Patience,
        mut look: impl FnMut(&BorrowedMessage<'_>) -> bool,
    ) -> Result<(i64, i64), SinkError> {
        let (low, end) = self.marks(topic, patience)?;
        let from = from.max(low);
        if from < end {
            let doing = format!("reading the topic {topic:?}");
            let settings = self.settings.clone();
            let failed = |error: &KafkaError| fault::of(error, &doing, &settings);
            let consumer = self.consumer()?;
            let mut assignment = TopicPartitionList::new();
            let assigned = assignment.add_partition_offset(topic, 0, Offset::Offset(from));
            assigned.and_then(|()| consumer.assign(&assignment)).map_err(|error| failed(&error))?;
            let read = loop {
                match consumer.poll(patience.slice()) {
                    Some(Ok(record)) => {
                        patience.renew();
                        if !look(&record) {
                            break Ok(());
                        }
                    }
                    Some(Err(KafkaError::PartitionEOF(_))) => break Ok(()),
                    // The group is only a name here.
                    Some(Err(KafkaError::MessageConsumption(RDKafkaErrorCode::GroupAuthorizationFailed))) => {}
                    Some(Err(error)) if !waits(&error) => break Err(failed(&error)),
                    Some(Err(_)) | None => {}
                }
                if patience.is_over() {
                    break Err(fault::silence(consumer.client().context(), &doing, &settings));
                }
            };
            if read.is_err() || consumer.unassign().is_err() {
                self.consumer = None;
            }
            read?;
        }
        Ok((low, end))
    }

    /// Reads units from an offset on: the offset of each, and what it holds; none where its pieces are before that offset.
    fn scan_units(
        &mut self,
        from: i64,
        patience: &mut Patience,
        mut look: impl FnMut(i64, Unit, Option<Bytes>) -> bool,
    ) -> Result<(i64, i64), SinkError> {
        let topic = self.topics.log.clone();
        let mut pieces: Vec<(i64, Bytes)> = Vec::new();
        let mut wrong = None;
        let marks = self.scan(&topic, from, patience, |record| {
            let at = record.offset();
            let payload = Bytes::copy_from_slice(record.payload().unwrap_or_default());
            let header = record.headers().and_then(|headers| headers.iter().find(|header| header.key == UNIT));
            let Some(header) = header else {
                pieces.push((at, payload));
                return true;
            };
            let unit =
                header.value.and_then(|said| serde_json::from_slice::<Unit>(said).ok()).filter(|unit| unit.v == 1);
            let Some(unit) = unit else {
                wrong = Some(at);
                return false;
            };
            let own = pieces.len().checked_sub(unit.pieces).map(|first| &pieces[first..]);
            let own = own.filter(|own| {
                (at - i64::try_from(own.len()).unwrap_or(i64::MAX)..).zip(*own).all(|(at, piece)| at == piece.0)
            });
            let whole = own.map(|own| {
                let mut whole = BytesMut::new();
                own.iter().for_each(|(_, piece)| whole.extend_from_slice(piece));
                whole.extend_from_slice(&payload);
                whole.freeze()
            });
            pieces.clear();
            look(at, unit, whole)
        })?;
        match wrong {
            None => Ok(marks),
            Some(at) => Err(SinkError::halt(format!(
                "the record at offset {at} of the topic {topic} is not as this decklog writes them; use a newer one, and let nobody else write to this topic"
            ))),
        }
    }

    /// Where the log ends, as far as it is committed.
    fn read_end(&mut self, patience: &mut Patience) -> Result<End, SinkError> {
        let base = self.bases(patience)?.keys().next_back().copied().unwrap_or_default();
        let topic = self.topics.log.clone();
        let (low, mut next) = self.marks(&topic, patience)?;
        let mut window = FIRST_WINDOW;
        let mut last = None;
        while next > low {
            let from = low.max(next - window);
            let (_, end) = self.scan_units(from, patience, |at, unit, _| {
                last = Some((at, unit));
                true
            })?;
            next = next.max(end);
            if last.is_some() || from == low {
                break;
            }
            window = window.saturating_mul(8);
        }
        Ok(match last {
            Some((at, unit)) => {
                self.hint = Some((unit.number, at, unit.digest()));
                End { next, unit: unit.number, digest: unit.digest(), base }
            }
            None => End { next, unit: 0, digest: None, base },
        })
    }

    /// As [`LogWriter::read_end`], of a log that ended like this: what was committed a moment ago is not always there for
    /// everybody.
    fn settled_end(&mut self, known: &End, patience: &mut Patience) -> Result<End, SinkError> {
        let topic = self.topics.log.clone();
        self.catches_up(&topic, Some(known.next), patience)?;
        self.read_end(patience)
    }

    /// The first unit at or after an offset.
    fn next(&mut self, from: i64, patience: &mut Patience) -> Result<Option<(i64, Unit)>, SinkError> {
        let mut found = None;
        self.scan_units(from, patience, |at, unit, _| {
            found = Some((at, unit));
            false
        })?;
        Ok(found)
    }

    /// The offset from which on there are units after this number.
    fn search(&mut self, after: u64, patience: &mut Patience) -> Result<i64, SinkError> {
        let topic = self.topics.log.clone();
        let (mut from, mut to) = self.marks(&topic, patience)?;
        if let Some((_, at, _)) = self.hint.filter(|(number, ..)| *number == after) {
            return Ok(at + 1);
        }
        while from < to {
            let probe = from + (to - from) / 2;
            match self.next(probe, patience)? {
                Some((at, unit)) if unit.number <= after => from = at + 1,
                Some(_) | None => to = probe,
            }
        }
        // It is behind a unit, or where the topic begins: never in the middle of pieces.
        Ok(from)
    }

    /// What is around a number, where the log ends like this.
    fn around(&mut self, end: &End, number: u64, patience: &mut Patience) -> Result<Around, SinkError> {
        let there = match end.unit.cmp(&number) {
            std::cmp::Ordering::Equal => end.digest,
            std::cmp::Ordering::Greater => {
                let from = self.search(number.saturating_sub(1), patience)?;
                let found = self.next(from, patience)?.filter(|(_, unit)| unit.number == number);
                found.and_then(|(_, unit)| unit.digest())
            }
            std::cmp::Ordering::Less => None,
        };
        let before = end.digest.filter(|_| end.unit.checked_add(1) == Some(number));
        Ok(Around { newest: end.newest(), there, before })
    }

    pub(super) fn append(
        &mut self,
        number: u64,
        bytes: &Bytes,
        patience: &mut Patience,
    ) -> Result<Appended, SinkError> {
        let own = digest(bytes);
        let appended = self.try_append(number, bytes, own, patience)?;
        if appended == Appended::Done {
            self.tail.note(number, own);
        }
        Ok(appended)
    }

    fn try_append(
        &mut self,
        number: u64,
        bytes: &Bytes,
        own: Digest,
        patience: &mut Patience,
    ) -> Result<Appended, SinkError> {
        let (seen, topic) = (self.tail.before(number), self.topics.log.clone());
        let mut error = None;
        for _ in 0..TRIES {
            let mut sure = false;
            if self.producer.is_none() || self.out {
                // Whoever has taken over meanwhile is not to be locked out for this.
                let end = self.read_end(patience)?;
                let meaning = self.around(&end, number, patience)?.meaning(number, own, seen);
                match meaning {
                    Some(Appended::Behind(_)) | None if !self.out => {}
                    meaning => return Ok(meaning.unwrap_or(Appended::Taken)),
                }
                self.connect(patience)?;
                sure = true;
            }
            let Some((end, when)) = self.end else {
                self.disconnect();
                continue;
            };
            let next = end.newest().checked_add(1) == Some(number);
            let other = end.unit.checked_add(1) == Some(number)
                && seen.zip(end.digest).is_some_and(|(seen, there)| seen != there);
            if !next || other {
                // It may have been put back, or a base may be there since.
                let now = if sure { end } else { self.settled_end(&end, patience)? };
                match self.around(&now, number, patience)?.meaning(number, own, seen) {
                    Some(meaning) => return Ok(meaning),
                    None if now.unit > end.unit => {
                        // Somebody appended, who must have locked this one out before.
                        self.disconnect();
                        self.out = true;
                        return Ok(Appended::Taken);
                    }
                    None if End { base: end.base, ..now } == end => self.end = Some((now, when)),
                    None => {
                        self.disconnect();
                        continue;
                    }
                }
            } else if !sure && when.elapsed() > FRESH && self.read_end(patience)? != end {
                self.disconnect();
                continue;
            }
            let began = (Instant::now(), SystemTime::from(ambient::now()));
            match self.transact(number, bytes, own, end.next, patience) {
                // What ends the transaction takes an offset. A unit that nobody can read yet may still be lost.
                Ok(at) if !self.catches_up(&topic, Some(at + 2), patience)? => {
                    self.disconnect();
                    error = Some(self.unseen(&topic));
                }
                Ok(at) => {
                    let end = End { next: at + 2, unit: number, digest: Some(own), base: end.base };
                    (self.end, self.hint) = (Some((end, Instant::now())), Some((number, at, Some(own))));
                    return Ok(Appended::Done);
                }
                Err(Gone::Fenced) => {
                    self.disconnect();
                    patience.renew();
                    // The brokers also give up who did not end a transaction in time.
                    self.out = !self.outlived(began);
                }
                Err(Gone::Moved) => self.disconnect(),
                Err(Gone::Error(why)) => {
                    self.disconnect();
                    if patience.is_over() || !matches!(why, SinkError::Retry { .. }) {
                        return Err(why);
                    }
                    patience.renew();
                    error = Some(why);
                }
            }
        }
        Err(error.unwrap_or_else(|| {
            SinkError::retry(format!(
                "the topic {} is moved by others all the time; let nobody else write to it",
                self.topics.log
            ))
        }))
    }

    /// What was committed and nobody can read yet may still be lost.
    fn unseen(&self, topic: &str) -> SinkError {
        SinkError::retry(format!("what was committed to the topic {topic} cannot be read; see whether its brokers run"))
    }

    fn outlived(&self, (instant, wall): (Instant, SystemTime)) -> bool {
        let passed = SystemTime::from(ambient::now()).duration_since(wall).unwrap_or(Duration::ZERO);
        instant.elapsed().max(passed) >= self.settings.transaction_timeout()
    }

    /// Writes a unit in a transaction, if that begins at this offset. Gives the offset of the unit.
    fn transact(
        &self,
        number: u64,
        bytes: &Bytes,
        own: Digest,
        expected: i64,
        patience: &mut Patience,
    ) -> Result<i64, Gone> {
        let mut pieces = split(bytes);
        let last = pieces.pop().unwrap_or_default();
        let unit = Unit { v: 1, number, pieces: pieces.len(), sha256: hex(&own) };
        let text = serde_json::to_vec(&unit).expect("texts and numbers always serialise");
        let mut records: Vec<_> = pieces.into_iter().map(|piece| (piece, None)).collect();
        records.push((last, Some(text)));
        self.commit(&self.topics.log, number, &records, Some(expected), patience)
    }

    /// Commits records in a transaction, where they get the offsets from this one on if it is given. Gives the offset of the last.
    fn commit(
        &self,
        topic: &str,
        number: u64,
        records: &[(Bytes, Option<Vec<u8>>)],
        expected: Option<i64>,
        patience: &mut Patience,
    ) -> Result<i64, Gone> {
        let Some(producer) = &self.producer else { return Err(Gone::Moved) };
        let doing = format!("writing to the topic {topic:?}");
        let gone = |error: &KafkaError| self.gone(error, &doing);
        let context = producer.client().context();
        context.begin();
        producer.begin_transaction().map_err(|error| gone(&error))?;
        let key = number.to_string();
        for (payload, unit) in records {
            let mut record = BaseRecord::with_opaque_to(topic, context.expect());
            record = record.partition(0).key(key.as_bytes()).payload(&payload[..]);
            if let Some(unit) = unit {
                record = record.headers(OwnedHeaders::new().insert(Header { key: UNIT, value: Some(unit) }));
            }
            if let Err((error, _)) = producer.send(record) {
                let why = gone(&error);
                drop(producer.abort_transaction(patience.slice()));
                return Err(why);
            }
        }
        while !context.decided_within(patience.slice()) {
            if let Some(why) = spoilt(producer)
                && !context.decided_within(Duration::ZERO)
            {
                return Err(gone(&why));
            }
            if patience.is_over() || fault::hopeless(context) {
                return Err(Gone::Error(fault::silence(context, &doing, &self.settings)));
            }
        }
        let results = context.results();
        let failure = |only: bool| {
            results.iter().flatten().filter_map(|result| result.err()).find(|code| !only || !went_along(*code))
        };
        if let Some(code) = failure(true).or_else(|| failure(false)) {
            if went_along(code)
                && let Some(why) = spoilt(producer)
            {
                return Err(gone(&why));
            }
            return Err(if is_fence(code) {
                Gone::Fenced
            } else {
                Gone::Error(fault::meaning(code, "", &doing, &self.settings))
            });
        }
        let offsets: Vec<i64> = results.iter().filter_map(|result| (*result)?.ok()).collect();
        if expected.is_some_and(|first| !offsets.iter().copied().eq((first..).take(offsets.len()))) {
            // Somebody put the topic back, or writes to it without the transactional id.
            drop(producer.abort_transaction(patience.slice()));
            return Err(Gone::Moved);
        }
        patience.renew();
        loop {
            match producer.commit_transaction(patience.slice()) {
                Ok(()) => return offsets.last().copied().ok_or(Gone::Moved),
                Err(KafkaError::Transaction(error)) if error.is_retriable() && !error.txn_requires_abort() => {}
                Err(KafkaError::Flush(_)) => {}
                Err(error) => return Err(gone(&error)),
            }
            if patience.is_over() || fault::hopeless(context) {
                return Err(Gone::Error(fault::silence(context, "committing a transaction", &self.settings)));
            }
        }
    }

    /// What an error of a transaction means; behind it may be what ended the producer.
    fn gone(&self, error: &KafkaError, doing: &str) -> Gone {
        let fatal = self.producer.as_ref().and_then(|producer| producer.client().fatal_error()).map(|(code, _)| code);
        if fatal.into_iter().chain(error.rdkafka_error_code()).any(is_fence) {
            return Gone::Fenced;
        }
        Gone::Error(self.failed(error, doing))
    }

    pub(super) fn extent(&mut self, patience: &mut Patience) -> Result<Extent, SinkError> {
        let bases = self.bases(patience)?;
        let end = self.read_end(patience)?;
        let oldest = self.next(0, patience)?.map(|(_, unit)| unit.number);
        let bases = bases
            .into_iter()
            .map(|(number, whole)| Base { number, parts: u32::try_from(whole.parts.len()).unwrap_or(u32::MAX) });
        Ok(Extent { oldest, newest: end.newest(), bases: bases.collect() })
    }

    /// Units that follow each other from an offset on, which begin with this number.
    fn follow(
        &mut self,
        from: i64,
        after: u64,
        bytes: usize,
        patience: &mut Patience,
    ) -> Result<(Vec<Numbered>, Option<u64>), SinkError> {
        let (mut units, mut sum, mut first) = (Vec::new(), 0, None);
        let (mut hint, mut last, mut broken) = (None, None, None);
        self.scan_units(from, patience, |at, unit, whole| {
            first.get_or_insert(unit.number);
            let number = after + 1 + units.len() as u64;
            let Some(bytes_of) = whole.filter(|_| unit.number == number) else { return false };
            let own = digest(&bytes_of);
            if unit.digest() != Some(own) {
                broken = Some(number);
                return false;
            }
            sum += bytes_of.len();
            units.push(Numbered { number, bytes: bytes_of });
            (hint, last) = (Some((number, at, Some(own))), Some((number, own)));
            sum < bytes
        })?;
        if let Some(number) = broken {
            return Err(SinkError::halt(format!(
                "unit {number} of the shared log in the topic {} is not what was written; let nobody else write to it",
                self.topics.log
            )));
        }
        if let Some((number, own)) = last {
            self.tail.note(number, own);
            self.hint = hint;
        }
        Ok((units, first))
    }

    pub(super) fn read(
        &mut self,
        after: u64,
        bytes: usize,
        patience: &mut Patience,
    ) -> Result<Vec<Numbered>, SinkError> {
        let parted = parted(&format!("the topic {}", self.topics.log), after);
        if let Some((_, at, there)) = self.hint.filter(|(number, ..)| *number == after) {
            if self.tail.refuses(after, there) {
                return Err(parted);
            }
            let (units, first) = self.follow(at + 1, after, bytes, patience)?;
            let topic = self.topics.log.clone();
            if !units.is_empty() || first.is_none() && self.catches_up(&topic, Some(at + 1), patience)? {
                return Ok(units);
            }
            self.hint = None;
        }
        let known = self.tail.before(after + 1).is_some();
        if let Some(before) = after.checked_sub(1).filter(|_| known) {
            let from = self.search(before, patience)?;
            if let Some((_, unit)) = self.next(from, patience)?.filter(|(_, unit)| unit.number == after)
                && self.tail.refuses(after, unit.digest())
            {
                return Err(parted);
            }
        }
        let from = self.search(after, patience)?;
        Ok(self.follow(from, after, bytes, patience)?.0)
    }
}

/// In pieces that records may hold; one at least.
fn split(bytes: &Bytes) -> Vec<Bytes> {
    let mut rest = bytes.clone();
    let mut pieces = Vec::new();
    while rest.len() > PIECE {
        pieces.push(rest.split_to(PIECE));
    }
    pieces.push(rest);
    pieces
}

/// Whether another producer has the transactional id.
const fn is_fence(code: RDKafkaErrorCode) -> bool {
    matches!(code, RDKafkaErrorCode::Fenced | RDKafkaErrorCode::ProducerFenced | RDKafkaErrorCode::InvalidProducerEpoch)
}
