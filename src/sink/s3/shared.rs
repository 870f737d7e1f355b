//! The shared log in a bucket or a folder: each unit is an object, which is only made where there is none of its number.
//!
//! ```text
//! shared/CLUSTER/units/00000000000000000017             a unit
//! shared/CLUSTER/bases/00000000000000000012/WRITER/0000000003   a part of a base
//! shared/CLUSTER/whole/00000000000000000012             {"v":1,"parts":4,"writer":…}: the base is whole
//! shared/CLUSTER/check                                  written twice at a start, to see whether conditions are kept
//! ```
//!
//! That no two units have one number is what `If-None-Match` gives. It does not see what is around: so the unit before is
//! looked at once more when one was made, and one that has nothing before it is taken away again. Nor does it know a hole, where
//! a unit was deleted: so who has not just appended the one before lists what comes from the number on, and makes nothing where
//! later ones are there. Nor does it know of a number whose unit was truncated: whoever stood still for that long, and then writes it, has to learn that it leads no more. Units are
//! removed in blocks, from the oldest on, and the last one of a block before any of the next. So where that one is there
//! after a unit was made, nothing of the unit's block was removed before; where it is not, the bases are listed, because what
//! is removed has a whole one in its place.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload};
use serde::{Deserialize, Serialize};

use super::store::Store;
use super::{LARGEST, Settings};
use crate::core::shared_log::{Appended, Base, Extent, LogError, Numbered, SharedLog};
use crate::sink::SinkError;
use crate::sink::shared::{Digest, Tail, digest, diverged, word, writer};

/// Number of units that are removed together. It is part of the format: writers and removers need the same.
const BLOCK: u64 = 1000;

/// For so long after it was appended here, a unit is believed to be the newest before the next one is made. It is looked at
/// after that in any case: this only keeps who writes all the time from looking twice.
const NEWEST_MAX_AGE: Duration = Duration::from_secs(10);

/// Number of units that are read concurrently.
const READS: usize = 4;

/// A log in a bucket or a folder.
#[derive(Debug)]
pub struct S3Log {
    store: Store,
    /// Prefix of all keys.
    root: String,
    writer: String,
    tail: Tail,
    /// The number of the unit that was noted last, what the server calls its content, and when it was appended here.
    noted: Option<(u64, Option<String>, Option<Instant>)>,
    /// Set if the bucket was seen to honour conditions.
    keeps_conditions: bool,
    /// The bases that were found whole.
    whole: BTreeMap<u64, Whole>,
}

/// Contents of the record of a complete base.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Whole {
    /// Version of this form: 1.
    v: u64,
    parts: u32,
    /// Writer of its parts.
    writer: String,
}

/// Observation in the place of the previous unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    /// It is there, and what it was.
    Same,
    /// Another one is there.
    Other(Digest),
    /// There is none.
    Absent,
    /// There is none before the first.
    Begin,
}

/// Objects from a number on.
#[derive(Clone, Copy, Debug, Default)]
struct Onward {
    /// The unit with the number.
    own: bool,
    /// One behind it.
    later: bool,
}

/// Stage of an append at which obstacles are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It is not made yet.
    Before,
    /// This handle has just made it.
    Made,
    /// It was there to the byte: the answer to an earlier try was lost.
    Found,
}

/// Obstacle that keeps a unit from being the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Obstacle {
    /// A base stands for its number.
    Based,
    /// There are later ones.
    Followed,
    /// The newest that both share.
    Behind(u64),
}

impl S3Log {
    /// The log of a cluster beside what a sink delivers; nothing is connected yet.
    ///
    /// # Errors
    /// Where the configuration can never work.
    pub fn new(config: &Settings, sink: &str, cluster: &str) -> Result<Self, String> {
        let mut store = Store::new(config)?;
        sink.clone_into(&mut store.sink);
        Ok(Self {
            store,
            root: format!("shared/{}", word(cluster, "_.", '=')),
            writer: writer(),
            tail: Tail::default(),
            noted: None,
            keeps_conditions: false,
            whole: BTreeMap::new(),
        })
    }

    fn unit(&self, number: u64) -> Path {
        Path::from(format!("{}/units/{number:020}", self.root))
    }

    fn base(&self, number: u64) -> Path {
        Path::from(format!("{}/whole/{number:020}", self.root))
    }

    fn parts(&self, number: u64, writer: &str) -> Path {
        Path::from(format!("{}/bases/{number:020}/{writer}", self.root))
    }

    fn note(&mut self, number: u64, digest: Digest, tag: Option<String>, appended: Option<Instant>) {
        self.tail.note(number, digest);
        self.noted = Some((number, tag, appended));
    }

    fn failed(&self, what: &str, error: &object_store::Error) -> SinkError {
        self.store.failed(what, error)
    }

    /// An object and what the server calls its content, where it is there.
    async fn get(
        &self,
        objects: &Arc<dyn ObjectStore>,
        key: &Path,
    ) -> Result<Option<(Bytes, Option<String>)>, SinkError> {
        let object = match objects.get(key).await {
            Ok(object) => object,
            // A bucket that is not there has no object either.
            Err(object_store::Error::NotFound { source, .. }) if !source.to_string().contains("NoSuchBucket") => {
                return Ok(None);
            }
            Err(error) => return Err(self.failed("read", &error)),
        };
        if object.meta.size > LARGEST {
            return Err(SinkError::halt(format!(
                "{key} in {} has {} bytes and cannot be of decklog; move it away",
                self.store.shown, object.meta.size
            )));
        }
        let tag = object.meta.e_tag.clone();
        let bytes = object.bytes().await.map_err(|error| self.failed("read", &error))?;
        Ok(Some((bytes, tag)))
    }

    async fn put(&mut self, key: &Path, bytes: PutPayload, mode: PutMode) -> Result<Option<Option<String>>, SinkError> {
        let objects = self.store.objects().await?;
        match objects.put_opts(key, bytes, PutOptions::from(mode)).await {
            Ok(put) => Ok(Some(put.e_tag)),
            Err(object_store::Error::AlreadyExists { .. }) => Ok(None),
            Err(error) => Err(self.failed("write to", &error)),
        }
    }

    /// Checks that the bucket honours conditions: without them an append could overwrite a unit.
    async fn look_at_conditions(&mut self) -> Result<(), SinkError> {
        if !self.keeps_conditions && self.store.as_folder().is_none() {
            let (key, text) = (Path::from(format!("{}/check", self.root)), PutPayload::from_static(b"check"));
            self.put(&key, text.clone(), PutMode::Overwrite).await?;
            if self.put(&key, text, PutMode::Create).await?.is_some() {
                return Err(self.store.keeps_no_conditions());
            }
        }
        self.keeps_conditions = true;
        Ok(())
    }

    /// The numbers below a folder, in order.
    async fn numbers(&mut self, below: &str) -> Result<Vec<u64>, SinkError> {
        let objects = self.store.objects().await?;
        let folder = Path::from(format!("{}/{below}", self.root));
        let mut keys = objects.list(Some(&folder));
        let mut numbers = Vec::new();
        while let Some(object) = keys.next().await {
            let key = object.map_err(|error| self.failed("list", &error))?.location;
            numbers.extend(key.filename().and_then(|name| name.parse::<u64>().ok()));
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Reads the record of a complete base.
    async fn whole(&mut self, number: u64) -> Result<Option<Whole>, SinkError> {
        if let Some(whole) = self.whole.get(&number) {
            return Ok(Some(whole.clone()));
        }
        let objects = self.store.objects().await?;
        let key = self.base(number);
        let Some((text, _)) = self.get(&objects, &key).await? else { return Ok(None) };
        let whole: Whole =
            serde_json::from_slice(&text).ok().filter(|whole: &Whole| whole.v == 1).ok_or_else(|| {
                SinkError::halt(format!(
                    "{key} in {} is not as this decklog writes it; use a newer one",
                    self.store.shown
                ))
            })?;
        self.whole.insert(number, whole.clone());
        Ok(Some(whole))
    }

    /// The oldest unit of the log, the newest unit or base before a number, and the bases. A hole between them is for who
    /// reads.
    async fn ends(&mut self, before: u64) -> Result<(Option<u64>, u64, Vec<u64>), SinkError> {
        // What is removed while this goes on has a base in its place that is listed later.
        let mut units = self.numbers("units").await?;
        units.truncate(units.partition_point(|number| *number < before));
        let bases = self.numbers("whole").await?;
        let base = bases.last().copied().unwrap_or_default();
        let newest = units.last().copied().unwrap_or_default().max(base);
        Ok((oldest(&units, base), newest, bases))
    }

    /// Lists the objects from a number on.
    async fn onward(&self, objects: &Arc<dyn ObjectStore>, number: u64) -> Result<Onward, SinkError> {
        let (folder, before) = (Path::from(format!("{}/units", self.root)), self.unit(number.saturating_sub(1)));
        let mut keys = objects.list_with_offset(Some(&folder), &before);
        let mut from = Onward::default();
        while !(from.own && from.later)
            && let Some(object) = keys.next().await
        {
            let key = object.map_err(|error| self.failed("list", &error))?.location;
            let found = key.filename().and_then(|name| name.parse::<u64>().ok());
            from.own |= found == Some(number);
            from.later |= found > Some(number);
        }
        Ok(from)
    }

    async fn look(&mut self) -> Result<Extent, SinkError> {
        let (oldest, newest, numbers) = self.ends(u64::MAX).await?;
        self.whole.retain(|number, _| numbers.contains(number));
        let mut bases = Vec::new();
        for number in numbers {
            // One that goes in between is of before another one.
            if let Some(whole) = self.whole(number).await? {
                bases.push(Base { number, parts: whole.parts });
            }
        }
        Ok(Extent { oldest, newest, bases })
    }

    /// Looks at the place of the previous unit.
    async fn before(&self, objects: &Arc<dyn ObjectStore>, number: u64) -> Result<Before, SinkError> {
        let Some(at) = number.checked_sub(1).filter(|at| *at > 0) else { return Ok(Before::Begin) };
        let key = self.unit(at);
        let tag = match objects.head(&key).await {
            Ok(meta) => meta.e_tag,
            Err(object_store::Error::NotFound { .. }) => return Ok(Before::Absent),
            Err(error) => return Err(self.failed("read", &error)),
        };
        let Some(seen) = self.tail.before(number) else { return Ok(Before::Same) };
        let known = self.noted.as_ref().and_then(|(noted, tag, _)| tag.as_ref().filter(|_| *noted == at));
        if tag.is_some() && tag.as_ref() == known {
            return Ok(Before::Same);
        }
        // What was copied elsewhere and back may have another tag.
        Ok(match self.get(objects, &key).await?.map(|(bytes, _)| digest(&bytes)) {
            Some(there) if there == seen => Before::Same,
            Some(there) => Before::Other(there),
            None => Before::Absent,
        })
    }

    async fn has(&self, objects: &Arc<dyn ObjectStore>, number: u64) -> Result<bool, SinkError> {
        match objects.head(&self.unit(number)).await {
            Ok(_) => Ok(true),
            Err(object_store::Error::NotFound { .. }) => Ok(false),
            Err(error) => Err(self.failed("read", &error)),
        }
    }

    /// Reports whether the last unit of the block before this number exists: then no unit of that block was removed.
    async fn has_witness(&self, objects: &Arc<dyn ObjectStore>, number: u64) -> Result<bool, SinkError> {
        let at = number.saturating_sub(1) / BLOCK * BLOCK;
        if at == 0 { Ok(false) } else { self.has(objects, at).await }
    }

    /// Returns the obstacle for a unit with this number, now or at the time of its append; none if all is well.
    async fn obstacle(&mut self, number: u64, stage: Stage) -> Result<Option<Obstacle>, SinkError> {
        let objects = self.store.objects().await?;
        let next = async {
            match number.checked_add(1).filter(|_| stage == Stage::Made) {
                Some(next) => self.has(&objects, next).await,
                None => Ok(false),
            }
        };
        let (before, witness, next) =
            futures::try_join!(self.before(&objects, number), self.has_witness(&objects, number), next)?;
        // Somebody else leads by now, or has long done so.
        if next {
            return Ok(Some(Obstacle::Followed));
        }
        if before == Before::Same && witness {
            return Ok(None);
        }
        let base = self.numbers("whole").await?.last().copied().unwrap_or_default();
        Ok(match before {
            _ if base >= number => Some(Obstacle::Based),
            Before::Same | Before::Begin => None,
            Before::Absent if base.checked_add(1) == Some(number) => None,
            Before::Other(_) => Some(Obstacle::Behind(number.saturating_sub(2))),
            Before::Absent if self.onward(&objects, number).await?.later => {
                (stage != Stage::Found).then_some(Obstacle::Followed)
            }
            Before::Absent => Some(Obstacle::Behind(self.ends(number).await?.1)),
        })
    }

    async fn add(&mut self, number: u64, bytes: Bytes) -> Result<Appended, SinkError> {
        self.look_at_conditions().await?;
        let own = digest(&bytes);
        let appended = self.noted.as_ref().filter(|(at, ..)| at.checked_add(1) == Some(number));
        let fresh = appended.is_some_and(|(_, _, when)| when.is_some_and(|when| when.elapsed() < NEWEST_MAX_AGE));
        // Whatever comes of this, the next one looks first.
        let noted = self.noted.take();
        if !fresh {
            let objects = self.store.objects().await?;
            match self.onward(&objects, number).await? {
                Onward { own: true, .. } => {}
                // A hole stays one, so that what was there can be restored.
                Onward { later: true, .. } => return Ok(Appended::Taken),
                Onward { .. } => match self.obstacle(number, Stage::Before).await? {
                    None => {}
                    Some(Obstacle::Based | Obstacle::Followed) => return Ok(Appended::Taken),
                    Some(Obstacle::Behind(newest)) => return Ok(Appended::Behind(newest)),
                },
            }
        }
        self.noted = noted;
        let key = self.unit(number);
        let made = self.put(&key, bytes.into(), PutMode::Create).await?;
        let stage = if made.is_some() { Stage::Made } else { Stage::Found };
        let tag = match made {
            Some(tag) => tag,
            None => {
                let objects = self.store.objects().await?;
                match self.get(&objects, &key).await? {
                    Some((there, tag)) if digest(&there) == own => tag,
                    Some(_) => return Ok(Appended::Taken),
                    None => {
                        let shown = &self.store.shown;
                        return Err(SinkError::retry(format!("{key} in {shown} was there and is not")));
                    }
                }
            }
        };
        let obstacle = self.obstacle(number, stage).await?;
        if obstacle.is_some() {
            self.noted = None;
        }
        let removes = match obstacle {
            // What others follow stays.
            None | Some(Obstacle::Followed) => false,
            // Below a base it was removed before.
            Some(Obstacle::Based) => stage == Stage::Made,
            // Nobody goes on from there.
            Some(Obstacle::Behind(_)) => true,
        };
        if removes {
            let objects = self.store.objects().await?;
            match objects.delete(&key).await {
                Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
                Err(error) => return Err(self.failed("delete from", &error)),
            }
        }
        Ok(match obstacle {
            None => {
                self.note(number, own, tag, Some(Instant::now()));
                Appended::Done
            }
            Some(Obstacle::Based | Obstacle::Followed) => Appended::Taken,
            Some(Obstacle::Behind(newest)) => Appended::Behind(newest),
        })
    }

    async fn units(&mut self, after: u64, bytes: usize) -> Result<Vec<Numbered>, SinkError> {
        let objects = self.store.objects().await?;
        // Most who ask have everything already.
        let Some(first) = self.get(&objects, &self.unit(after + 1)).await? else { return Ok(Vec::new()) };
        match self.before(&objects, after + 1).await? {
            Before::Other(there) if self.tail.refuses(after, Some(there)) => {
                return Err(diverged(&self.store.shown, after));
            }
            Before::Same | Before::Begin | Before::Other(_) => {}
            // One that a base stands for is no unit of the log: it was made by somebody who stood still for long.
            Before::Absent => {
                let bases = self.numbers("whole").await?;
                if !bases.contains(&after) && bases.last().is_some_and(|base| *base > after) {
                    return Ok(Vec::new());
                }
            }
        }
        let mut sum = first.0.len();
        let mut found = vec![(after + 1, first)];
        {
            let this = &*self;
            let rest = (after + 2..).map(|number| {
                let objects = &objects;
                async move { Ok::<_, SinkError>((number, this.get(objects, &this.unit(number)).await?)) }
            });
            let mut rest = stream::iter(rest).buffered(READS);
            while sum < bytes
                && let Some(unit) = rest.next().await
            {
                let (number, Some(unit)) = unit? else { break };
                sum += unit.0.len();
                found.push((number, unit));
            }
        }
        if let Some((number, (bytes, tag))) = found.last().cloned() {
            self.note(number, digest(&bytes), tag, None);
        }
        Ok(found.into_iter().map(|(number, (bytes, _))| Numbered { number, bytes }).collect())
    }

    async fn finish(&mut self, base: Base) -> Result<(), SinkError> {
        self.look_at_conditions().await?;
        let own = self.parts(base.number, &self.writer);
        let objects = self.store.objects().await?;
        let mut keys = objects.list(Some(&own));
        let mut there = 0;
        while let Some(object) = keys.next().await {
            let key = object.map_err(|error| self.failed("list", &error))?.location;
            let part = key.filename().and_then(|name| name.parse::<u32>().ok());
            there += u32::from(part.is_some_and(|part| part < base.parts));
        }
        drop(keys);
        // One that is whole already stays as it is, whoever made it.
        if there < base.parts && self.whole(base.number).await?.is_none() {
            return Err(SinkError::retry(format!(
                "{} has {there} of {} parts of the base {} of the shared log; it has to be made again",
                self.store.shown, base.parts, base.number
            )));
        }
        let whole = Whole { v: 1, parts: base.parts, writer: self.writer.clone() };
        let text = serde_json::to_vec(&whole).expect("texts and numbers always serialise");
        self.put(&self.base(base.number), text.into(), PutMode::Create).await?;
        Ok(())
    }

    async fn one_part(&mut self, number: u64, part: u32) -> Result<Bytes, SinkError> {
        let objects = self.store.objects().await?;
        let whole = self.whole(number).await?.filter(|whole| part < whole.parts);
        let found = match whole {
            Some(whole) => {
                let key = self.parts(number, &whole.writer).join(format!("{part:010}"));
                self.get(&objects, &key).await?
            }
            None => None,
        };
        found.map(|(bytes, _)| bytes).ok_or_else(|| {
            SinkError::retry(format!(
                "part {part} of the base {number} of the shared log is not in {}, or not any more; a later one may be",
                self.store.shown
            ))
        })
    }

    async fn remove(&mut self, upto: u64) -> Result<(), SinkError> {
        let bases = self.numbers("whole").await?;
        // Nothing goes that no base stands for.
        let Some(upto) = bases.iter().rfind(|base| **base <= upto).copied() else { return Ok(()) };
        let units = self.numbers("units").await?;
        let units = &units[..units.partition_point(|number| *number <= upto)];
        for block in units.chunk_by(|one, other| (one - 1) / BLOCK == (other - 1) / BLOCK) {
            self.delete(block.iter().map(|number| self.unit(*number)).collect()).await?;
        }
        // The word that it is whole goes first.
        let old: Vec<u64> = bases.into_iter().filter(|base| *base < upto).collect();
        self.delete(old.iter().map(|number| self.base(*number)).collect()).await?;
        old.iter().for_each(|number| drop(self.whole.remove(number)));
        let kept = self.whole(upto).await?.map(|whole| self.parts(upto, &whole.writer));
        let objects = self.store.objects().await?;
        let folder = Path::from(format!("{}/bases", self.root));
        let mut keys = objects.list(Some(&folder));
        let mut parts = Vec::new();
        while let Some(object) = keys.next().await {
            let key = object.map_err(|error| self.failed("list", &error))?.location;
            let number = key.prefix_match(&folder).and_then(|mut parts| parts.next()?.as_ref().parse::<u64>().ok());
            if number.is_some_and(|number| number <= upto) && kept.as_ref().is_none_or(|kept| !key.prefix_matches(kept))
            {
                parts.push(key);
            }
        }
        drop(keys);
        self.delete(parts).await
    }

    async fn delete(&mut self, keys: Vec<Path>) -> Result<(), SinkError> {
        let objects = self.store.objects().await?;
        let mut gone = objects.delete_stream(stream::iter(keys.into_iter().map(Ok)).boxed());
        while let Some(gone) = gone.next().await {
            match gone {
                Ok(_) | Err(object_store::Error::NotFound { .. }) => {}
                Err(error) => return Err(self.failed("delete from", &error)),
            }
        }
        Ok(())
    }
}

/// The oldest of the numbers that follow each other to the newest base or from it on; where there is none, the first behind it.
/// What lies apart below the base was made by somebody who stood still.
fn oldest(numbers: &[u64], base: u64) -> Option<u64> {
    let runs = numbers.chunk_by(|one, next| one + 1 == *next);
    let mut runs = runs.filter_map(|run| Some((*run.first()?, *run.last()?)));
    runs.find(|(_, newest)| base <= *newest).map(|(oldest, _)| oldest)
}

impl SharedLog for S3Log {
    fn shown(&self) -> String {
        format!("{}/ in {}", self.root, self.store.shown)
    }

    fn extent(&mut self) -> BoxFuture<'_, Result<Extent, LogError>> {
        async { Ok(self.look().await?) }.boxed()
    }

    fn append(&mut self, number: u64, bytes: Bytes) -> BoxFuture<'_, Result<Appended, LogError>> {
        async move { Ok(self.add(number, bytes).await?) }.boxed()
    }

    fn read(&mut self, after: u64, bytes: usize) -> BoxFuture<'_, Result<Vec<Numbered>, LogError>> {
        async move { Ok(self.units(after, bytes).await?) }.boxed()
    }

    fn put_part(&mut self, number: u64, part: u32, bytes: Bytes) -> BoxFuture<'_, Result<(), LogError>> {
        async move {
            let key = self.parts(number, &self.writer).join(format!("{part:010}"));
            self.put(&key, bytes.into(), PutMode::Overwrite).await?;
            Ok(())
        }
        .boxed()
    }

    fn finish_base(&mut self, base: Base) -> BoxFuture<'_, Result<(), LogError>> {
        async move { Ok(self.finish(base).await?) }.boxed()
    }

    fn part(&mut self, number: u64, part: u32) -> BoxFuture<'_, Result<Bytes, LogError>> {
        async move { Ok(self.one_part(number, part).await?) }.boxed()
    }

    fn truncate(&mut self, upto: u64) -> BoxFuture<'_, Result<(), LogError>> {
        async move { Ok(self.remove(upto).await?) }.boxed()
    }

    fn check(&mut self) -> BoxFuture<'_, Result<(), LogError>> {
        async { Ok(self.store.verify().await?) }.boxed()
    }
}
