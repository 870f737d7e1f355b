//! Segments of JSON Lines in a bucket or a folder: each seq exactly once and in order.
//!
//! A segment is one batch, compressed, and one object. It is named by the epoch and the seq of its first entry, and
//! written only where there is none of that name (`If-None-Match: *`). So a batch whose answer was lost is found by its
//! name: what the segment holds is read, and delivery goes on after it. Whatever a crash or another decklog does, no
//! entry is in two segments.
//!
//! After each segment a small manifest of its epoch says which one is the newest. It is written second, so it can be
//! behind and never ahead; at a start the segments after the one that it names are listed, and what they hold counts.
//! Before each segment it is read: whoever put the place back to an earlier state, or writes to it as well, is noticed.
//!
//! Two copies of one journal may begin their next segment under other names, with another date or another seq. So the
//! name of what follows a seq is agreed on first, by an object that only one can make, and then the manifest is looked at
//! once more. Whoever stood still in between finds either that object, and so writes under the one name, or a manifest
//! that has gone on. That object goes when the manifest is written.
//!
//! # Decision: a segment is named by its first entry
//!
//! Context: Object stores have no append.
//! Decision: A retry begins with the same entry, so it meets its own name: the existing segment is read and counts. No lock
//! and no position can disagree with the output. A manifest saves listings. All of it needs `If-None-Match`, which is tested
//! before the first write.
//! Cost: A server without conditional writes is refused.

mod client;
mod folder;
mod manifest;
mod objects;
mod segment;
mod settings;
mod shared;
mod store;
#[cfg(test)]
mod tests;

pub use settings::{BucketUrl, Partition, Settings, objects};
pub use shared::S3Log;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStoreExt, PutMode, PutOptions, PutPayload};

use super::{Class, Failure, Item, Limits, LogPosition, Sink, SinkError, note_first};
use crate::core::checkpoint_handle::CheckpointHandle;
use crate::core::model::{Cluster, Seq};
use crate::core::runtime;
use crate::core::wire::Header;
use manifest::Manifest;
use segment::Ends;
use store::Store;

/// Number of entries of a segment, however small they are.
const ENTRIES: usize = 100_000;

/// Size beyond which an object is not read into memory, unless segments are as large.
const LARGEST: u64 = 256 << 20;

/// Segments in a bucket or a folder.
#[derive(Debug)]
pub struct S3Sink {
    store: Store,
    partition: Partition,
    segment_size: usize,
    segment_age: Duration,
    /// State of the delivered epoch, once it is known.
    at: Option<At>,
    /// True if the bucket was seen to honour conditions.
    keeps_conditions: bool,
    /// The epoch that the place ended with when it was asked: nothing of an earlier one is written behind it.
    newest: String,
    /// The latest epoch that was there then.
    latest: String,
    again: bool,
    checkpoints: CheckpointHandle,
}

/// State of an epoch.
#[derive(Debug)]
struct At {
    epoch: String,
    manifest: Option<Manifest>,
    /// The last seq that the manifest which is there names. A crash may have left it behind.
    noted: u64,
}

/// Stored state of an epoch.
struct Found {
    /// Manifest, and the position of the last entry.
    own: Option<(Manifest, LogPosition)>,
    /// See [`At`].
    noted: u64,
    /// The latest of the other epochs that were listed.
    other: Option<String>,
}

/// Segments that were listed.
#[derive(Default)]
struct Listed {
    count: u64,
    /// The seq that the oldest begins with.
    first: Option<Seq>,
    /// The seq that the newest begins with, and its key.
    newest: Option<(Seq, String)>,
    /// True if the requested segment exists.
    there: bool,
    /// The latest other epoch.
    other: Option<String>,
}

impl S3Sink {
    /// A sink that writes where the configuration says; nothing is connected yet.
    ///
    /// # Errors
    /// Where the configuration can never work.
    pub fn new(config: &Settings) -> Result<Self, String> {
        Ok(Self {
            store: Store::new(config)?,
            partition: config.partition,
            segment_size: config.segment_size.in_memory(),
            segment_age: *config.segment_age,
            at: None,
            keeps_conditions: false,
            newest: String::new(),
            latest: String::new(),
            again: false,
            checkpoints: CheckpointHandle::default(),
        })
    }

    /// Reads the stored state of an epoch.
    async fn read(&mut self, epoch: &str) -> Result<Found, SinkError> {
        let manifest = self.manifest(epoch).await?;
        let noted = manifest.as_ref().map_or(0, |manifest| manifest.last);
        if let Some(manifest) = manifest {
            let listed = self.list(epoch, Some(&manifest.newest)).await?;
            // One that was restored may not have what an older manifest names, or the other way round.
            if listed.there {
                let newest = listed.newest.map_or_else(|| manifest.newest.clone(), |(_, key)| key);
                let last = self.ends(&newest).await?.last;
                let segments = manifest.segments + listed.count.saturating_sub(1);
                let own = Manifest { segments, last: last.seq.0, newest, ..manifest };
                return Ok(Found { own: Some((own, last)), noted, other: listed.other });
            }
        }
        let listed = self.list(epoch, None).await?;
        let own = match (listed.first, listed.newest) {
            (Some(first), Some((_, newest))) => {
                let last = self.ends(&newest).await?.last;
                let (epoch, segments) = (epoch.to_owned(), listed.count);
                let (first, checkpoint) = (first.0, None);
                Some((Manifest { v: 1, epoch, segments, first, last: last.seq.0, newest, checkpoint }, last))
            }
            _ => None,
        };
        Ok(Found { own, noted, other: listed.other })
    }

    /// The epochs that something is said of beside the segments.
    async fn epochs(&mut self) -> Result<BTreeSet<String>, SinkError> {
        let objects = self.store.objects().await?;
        let mut keys = objects.list(Some(&Path::from(segment::MANIFESTS)));
        let mut epochs = BTreeSet::new();
        while let Some(object) = keys.next().await {
            let key = object.map_err(|error| self.store.failed("list", &error))?.location;
            epochs.extend(segment::epoch_of(key.as_ref()).map(str::to_owned));
        }
        Ok(epochs)
    }

    /// Lists segments: all of them, or those from a key on.
    async fn list(&mut self, epoch: &str, from: Option<&str>) -> Result<Listed, SinkError> {
        let mut listed = Listed::default();
        self.each_segment(from, |key, begins| {
            if begins.epoch != epoch {
                listed.other = listed.other.take().max(Some(begins.epoch));
                return;
            }
            listed.there |= from == Some(&key);
            listed.count += 1;
            listed.first = Some(listed.first.map_or(begins.seq, |first| first.min(begins.seq)));
            listed.newest = listed.newest.take().max(Some((begins.seq, key)));
        })
        .await?;
        Ok(listed)
    }

    /// Looks at every segment, or at those from a key on: folder by folder, because beside those of dates there are others
    /// that may hold much, such as that of the shared log.
    async fn each_segment(
        &mut self,
        from: Option<&str>,
        mut look: impl FnMut(String, LogPosition) + Send,
    ) -> Result<(), SinkError> {
        let objects = self.store.objects().await?;
        let failed = |error| self.store.failed("list", &error);
        // Nothing lies between a name without its last letter and the name.
        let before = from.and_then(|key| key.get(..key.len() - 1)).map(Path::from);
        let mut look = |object: ObjectMeta| {
            let key = object.location.to_string();
            if before.as_ref().is_none_or(|before| object.location > *before)
                && let Some(begins) = segment::begins(&key)
            {
                look(key, begins);
            }
        };
        let top = objects.list_with_delimiter(None).await.map_err(failed)?;
        top.objects.into_iter().for_each(&mut look);
        for folder in top.common_prefixes.iter().filter(|folder| segment::is_date(folder.as_ref())) {
            let first = from.and_then(|key| key.split('/').next()).unwrap_or_default();
            let mut keys = match &before {
                Some(_) if folder.as_ref() < first => continue,
                Some(before) => objects.list_with_offset(Some(folder), before),
                None => objects.list(Some(folder)),
            };
            while let Some(object) = keys.next().await {
                look(object.map_err(failed)?);
            }
        }
        Ok(())
    }

    /// The first and the last entry of a segment that is there.
    async fn ends(&mut self, key: &str) -> Result<Ends, SinkError> {
        let shown = self.store.shown.clone();
        let ends = self.looked_at(key, segment::ends).await?;
        let ends = ends.and_then(|ends| match segment::begins(key) {
            Some(begins)
                if begins.epoch == ends.first.epoch
                    && begins.seq <= ends.first.seq
                    && ends.last.epoch == ends.first.epoch =>
            {
                Ok(ends)
            }
            _ => Err("it does not hold what its name says".to_owned()),
        });
        ends.map_err(|why| {
            SinkError::halt(format!(
                "{key} in {shown} is not a segment as decklog writes them: {why}; move it away and send SIGHUP: what it held is delivered again"
            ))
        })
    }

    /// Reads a stored segment.
    async fn looked_at<T: Send + 'static>(
        &mut self,
        key: &str,
        look: impl FnOnce(&[u8]) -> T + Send + 'static,
    ) -> Result<T, SinkError> {
        let Some(bytes) = self.get(key).await? else {
            let shown = &self.store.shown;
            return Err(SinkError::retry(format!("the segment {key} in {shown} was there and is not")));
        };
        Ok(runtime::blocking(move || look(&bytes)).await)
    }

    async fn get(&mut self, key: &str) -> Result<Option<Bytes>, SinkError> {
        let objects = self.store.objects().await?;
        let failed = |error| self.store.failed("read", &error);
        let object = match objects.get(&Path::from(key)).await {
            Ok(object) => object,
            // A bucket that is not there has no object either.
            Err(object_store::Error::NotFound { source, .. }) if !source.to_string().contains("NoSuchBucket") => {
                return Ok(None);
            }
            Err(error) => return Err(failed(error)),
        };
        let most = (self.segment_size as u64).saturating_mul(2).max(LARGEST);
        if object.meta.size > most {
            return Err(SinkError::halt(format!(
                "{key} in {} has {} bytes and cannot be of decklog; move it away and send SIGHUP",
                self.store.shown, object.meta.size
            )));
        }
        Ok(Some(object.bytes().await.map_err(failed)?))
    }

    /// Writes entries in as few segments as they go into. An error says how many are stored.
    async fn send(&mut self, batch: &[Item]) -> Result<(), Failure> {
        let mut taken = 0;
        // Halved when the server takes no object of that size, until the entry that it means stands alone.
        let mut most = batch.len();
        while taken < batch.len() {
            let rest = &batch[taken..];
            let part = &rest[..most.min(rest.len())];
            match self.write(part).await {
                Ok(stored) => taken += stored,
                Err(Failure { taken: 0, error: SinkError::Refused { .. } }) if part.len() > 1 => most = part.len() / 2,
                Err(failure) => return Err(Failure { taken: taken + failure.taken, ..failure }),
            }
        }
        Ok(())
    }

    /// Writes one segment. Gives how many entries of the batch are stored now.
    async fn write(&mut self, batch: &[Item]) -> Result<usize, Failure> {
        let nothing = |error| Failure { taken: 0, error };
        let first =
            batch[0].header().map_err(|error| nothing(SinkError::Refused { text: format!("it is {error}") }))?;
        let period = segment::period(self.partition, &first.time);
        let is_beside = |header: &Header<'_>| {
            header.epoch == first.epoch && segment::period(self.partition, &header.time) == period
        };
        let count = batch.iter().take_while(|item| item.header().is_ok_and(is_beside)).count();
        let (epoch, partition) = (first.epoch.to_string(), segment::partition(self.partition, &first.time));
        let begins = LogPosition { epoch: epoch.clone(), seq: batch[0].seq, entry: None };
        let name = segment::name(&begins);
        let items = &batch[..count];
        if self.again {
            let key = format!("replay/{name}");
            self.put(&key, items, PutMode::Overwrite).await.map_err(nothing)?;
            return Ok(count);
        }
        if epoch < self.newest {
            return Err(nothing(self.later(&self.newest)));
        }
        if self.at.as_ref().is_none_or(|at| at.epoch != epoch) {
            let Found { own, noted, .. } = self.read(&epoch).await.map_err(nothing)?;
            self.at = Some(At { epoch: epoch.clone(), manifest: own.map(|(own, _)| own), noted });
        }
        // Whatever hands an entry over a second time, it is in one segment.
        let manifest = self.at.as_ref().and_then(|at| at.manifest.as_ref());
        let after = manifest.map_or(0, |manifest| manifest.last);
        let held = items.partition_point(|item| item.seq.0 <= after);
        if held > 0 {
            return Ok(held);
        }
        let next = segment::next(&epoch, after);
        let key = self.agree_on(&next, format!("{partition}{name}")).await.map_err(nothing)?;
        self.as_it_was_left(&epoch).await.map_err(nothing)?;
        let last = match self.put(&key, items, PutMode::Create).await {
            Ok(true) => items[count - 1].seq,
            // An answer was lost, or another decklog was first.
            Ok(false) => self.held_by(&key, items).await.map_err(nothing)?,
            Err(error) => return Err(nothing(error)),
        };
        self.checkpoints.ask();
        let before = self.at.take().and_then(|at| at.manifest);
        let (segments, first) = before.map_or((0, begins.seq.0), |before| (before.segments, before.first));
        let checkpoint = self.checkpoints.newest().map(|checkpoint| checkpoint.to_string());
        let (v, epoch, segments) = (1, epoch.clone(), segments + 1);
        let manifest = Manifest { v, epoch, segments, first, last: last.0, newest: key, checkpoint };
        let stored = items.partition_point(|item| item.seq <= last);
        // The entries are stored, whatever becomes of this. Where that is not known, all is looked at again.
        let written = self.put_manifest(&manifest).await;
        written.map_err(|error| Failure { taken: stored, error })?;
        self.remove_next(&next).await;
        self.at = Some(At { epoch: manifest.epoch.clone(), noted: last.0, manifest: Some(manifest) });
        Ok(stored)
    }

    /// The key that the next segment is written under, by whomever.
    async fn agree_on(&mut self, next: &str, own: String) -> Result<String, SinkError> {
        if self.put_bytes(next, own.clone().into(), PutMode::Create).await? {
            return Ok(own);
        }
        let shown = &self.store.shown;
        let gone = SinkError::retry(format!("{next} in {shown} was there and is not"));
        let agreed = self.get(next).await?.ok_or(gone)?;
        let agreed = String::from_utf8_lossy(&agreed).into_owned();
        // Of the same epoch, if under another date, or of an entry before this one that was refused and dead-lettered.
        let fits = |name: &LogPosition, own: &LogPosition| name.epoch == own.epoch && name.seq <= own.seq;
        if segment::begins(&agreed).zip(segment::begins(&own)).is_some_and(|(name, own)| fits(&name, &own)) {
            return Ok(agreed);
        }
        Err(SinkError::halt(format!(
            "another decklog with a copy of this journal is about to write {agreed} to {}, or was when it ended; stop one of the two and give it a state directory and a `url` of its own; if there is none, remove {next}; then send SIGHUP",
            self.store.shown
        )))
    }

    /// Removes the intent of a segment that is written. Without the right to remove it a small object remains, which has no
    /// meaning any more.
    async fn remove_next(&mut self, next: &str) {
        if let Ok(objects) = self.store.objects().await {
            drop(objects.delete(&Path::from(next)).await);
        }
    }

    fn later(&self, epoch: &str) -> SinkError {
        SinkError::lost(format!(
            "{} holds segments of the epoch {epoch}, which is later than what is delivered, and is compared with the journal",
            self.store.shown
        ))
    }

    fn another(&self) -> SinkError {
        SinkError::halt(format!(
            "another decklog writes to {} with a copy of this journal; stop one of the two, give it a state directory and a `url` of its own, and send SIGHUP",
            self.store.shown
        ))
    }

    /// The last seq of a segment that was there before these entries could be written under its name.
    async fn held_by(&mut self, key: &str, items: &[Item]) -> Result<Seq, SinkError> {
        let last = self.ends(key).await?.last;
        let held = self.looked_at(key, segment::places).await?.unwrap_or_default();
        let own = |item: &Item| item.header().ok().map(LogPosition::at);
        if held.iter().zip(items).any(|(held, item)| own(item).is_none_or(|own| !own.is(held))) {
            return Err(self.another());
        }
        if held.len() > items.len() {
            return Err(SinkError::lost(format!(
                "{key} in {} goes on beyond what was written there, and is compared with the journal",
                self.store.shown
            )));
        }
        Ok(last.seq)
    }

    /// Reports whether a segment holds this very entry. The segment is under the date of the entry, as are all entries of a
    /// segment.
    async fn find(&mut self, entry: &LogPosition) -> Result<Option<bool>, SinkError> {
        let under = match (self.partition, &entry.entry) {
            (Partition::None, _) => None,
            (Partition::Day | Partition::Hour, None) => return Ok(None),
            (Partition::Day | Partition::Hour, Some(mark)) => {
                Some(Path::from(segment::partition(Partition::Day, &mark.time)))
            }
        };
        let mut found: Option<(Seq, String)> = None;
        let mut look = |key: String, begins: LogPosition| {
            if begins.epoch == entry.epoch && begins.seq <= entry.seq {
                found = found.take().max(Some((begins.seq, key)));
            }
        };
        if let Some(under) = under {
            let objects = self.store.objects().await?;
            let mut keys = objects.list(Some(&under));
            while let Some(object) = keys.next().await {
                let key = object.map_err(|error| self.store.failed("list", &error))?.location.to_string();
                if let Some(begins) = segment::begins(&key) {
                    look(key, begins);
                }
            }
        } else {
            self.each_segment(None, look).await?;
        }
        // What would have it may have been removed.
        let Some((_, key)) = found else { return Ok(None) };
        let places = self.looked_at(&key, segment::places).await?.unwrap_or_default();
        Ok(Some(places.iter().any(|place| place.is(entry))))
    }

    /// The first entry of each epoch, which begins a segment.
    async fn firsts(&mut self) -> Result<BTreeMap<String, Seq>, SinkError> {
        let mut epochs = BTreeMap::new();
        self.each_segment(None, |_, begins| note_first(&mut epochs, [begins])).await?;
        Ok(epochs)
    }

    /// Stores a segment. Returns whether there was none of this name.
    async fn put(&mut self, key: &str, items: &[Item], mode: PutMode) -> Result<bool, SinkError> {
        let lines: Vec<Bytes> = items.iter().map(|item| item.line.clone()).collect();
        let bytes = runtime::blocking(move || segment::encode(&lines)).await;
        let bytes = bytes.map_err(|error| SinkError::retry(format!("cannot compress a segment: {error}")))?;
        self.put_bytes(key, bytes.into(), mode).await
    }

    async fn put_bytes(&mut self, key: &str, bytes: PutPayload, mode: PutMode) -> Result<bool, SinkError> {
        let objects = self.store.objects().await?;
        match objects.put_opts(&Path::from(key), bytes, PutOptions::from(mode)).await {
            Ok(_) => Ok(true),
            Err(object_store::Error::AlreadyExists { .. }) => Ok(false),
            Err(error) => Err(self.store.failed("write to", &error)),
        }
    }

    /// Returns the position of the output.
    async fn held(&mut self, cursor: &LogPosition) -> Result<LogPosition, SinkError> {
        self.at = None;
        // What is beside the segments names each epoch but one of which nothing was ever written beside them.
        let mut epochs = self.epochs().await?;
        let mut listed = false;
        let mut latest = epochs.last().cloned().unwrap_or_default();
        let held = loop {
            let Some(epoch) = epochs.pop_last() else {
                if std::mem::replace(&mut listed, true) {
                    // An empty place holds nothing, whatever was delivered to it before.
                    break LogPosition::before(&cursor.epoch);
                }
                epochs.extend(self.list("", None).await?.other);
                continue;
            };
            let Found { own, noted, other } = self.read(&epoch).await?;
            if let Some(other) = other.filter(|other| *other > latest) {
                latest.clone_from(&other);
                epochs.extend([epoch, other]);
                continue;
            }
            if let Some((own, last)) = own {
                self.at = Some(At { epoch, manifest: Some(own), noted });
                break last;
            }
        };
        latest = latest.max(held.epoch.clone());
        (self.newest, self.latest) = (if held.seq == Seq(0) { String::new() } else { held.epoch.clone() }, latest);
        Ok(held)
    }
}

impl Sink for S3Sink {
    fn class(&self) -> Class {
        Class::ExactlyOnce
    }

    fn bind(&mut self, sink: &str, _cluster: &Cluster) {
        sink.clone_into(&mut self.store.sink);
    }

    fn limits(&self) -> Limits {
        Limits { entries: ENTRIES, bytes: self.segment_size, linger: self.segment_age }
    }

    fn position<'a>(&'a mut self, cursor: &'a LogPosition) -> BoxFuture<'a, Result<Option<LogPosition>, SinkError>> {
        async { self.held(cursor).await.map(Some) }.boxed()
    }

    fn holds<'a>(&'a mut self, entry: &'a LogPosition) -> BoxFuture<'a, Result<Option<bool>, SinkError>> {
        self.find(entry).boxed()
    }

    fn epochs(&mut self) -> BoxFuture<'_, Result<BTreeMap<String, Seq>, SinkError>> {
        self.firsts().boxed()
    }

    fn deliver<'a>(&'a mut self, batch: &'a [Item]) -> BoxFuture<'a, Result<(), Failure>> {
        self.send(batch).boxed()
    }

    fn reopen(&mut self) {
        self.store.renew();
        self.at = None;
        self.keeps_conditions = false;
    }

    fn sign_with(&mut self, checkpoints: &CheckpointHandle) {
        self.checkpoints = checkpoints.clone();
    }

    fn enter_replay(&mut self) {
        self.again = true;
    }

    fn provisioning_script(&self) -> Option<String> {
        Some(self.store.needs())
    }

    fn provision(&mut self) -> BoxFuture<'_, Result<String, SinkError>> {
        async {
            let made = self.store.make().await?;
            let shown = &self.store.shown;
            Ok(if made { format!("{shown} was made") } else { format!("{shown} is there already") })
        }
        .boxed()
    }

    fn through(&self) -> String {
        self.store.through()
    }

    fn check(&mut self) -> BoxFuture<'_, Result<(), SinkError>> {
        self.store.verify().boxed()
    }
}
