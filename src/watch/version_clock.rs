//! Times of the cluster's versions: the newest one is read at short intervals.
//!
//! # Decision: the newest version is read every ten seconds
//!
//! Context: A watch may bring late what happened, where a network stalls or one API server of several is stuck. A deletion
//! carries no time.
//! Decision: A list of one object, for which no version is asked, says which version is the newest. A version that it covers was made
//! before the answer, and one that it does not cover was made after the question. Whatever comes on a watch and is older than an answer
//! is late, and lies between those times. An API server that does not answer is reported as silent.
//! Cost: One small request each ten seconds. What is late by less than that counts as present.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kube::core::params::ListParams;
use serde::Deserialize;
use tokio::time::{Instant, timeout};

use super::Shared;
use super::cluster::Failure;
use super::dating::Dates;
use super::requests::{request, unbuilt};
use crate::core::model::{ResourceVersion, SourceSpec};
use crate::core::runtime;
use crate::journal::{LATE, UNNOTICED_MAX};

/// Time for an answer. One that takes longer is waited for again.
const READING_TIMEOUT: Duration = Duration::from_secs(8);
/// Delay before the next question after one without a version.
const READING_RETRY_DELAY: Duration = Duration::from_secs(2);
/// An API server that has not answered for so long is silent.
const SILENT_MIN: SignedDuration = SignedDuration::from_secs(20);
/// Number of readings that are kept: those of an hour, if each brings another version.
const READINGS_MAX: usize = 360;
/// Difference of the wall clock and the monotonic one from which on the wall clock was set.
const JUMP_MIN: SignedDuration = SignedDuration::from_secs(1);
/// Size of an answer in bytes, which has the metadata of one object.
const ANSWER_MAX: usize = 2 << 20;
/// Resources of which an answer is small, and whose versions are those of the cluster's own etcd.
const PREFERRED: [&str; 5] = ["namespaces", "nodes", "serviceaccounts", "services", "configmaps"];

/// The newest version over a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reading {
    version: u64,
    /// Time of the first answer with this version, microseconds since 1970.
    answered: i64,
    /// Time of the last question whose answer had this version, microseconds since 1970.
    asked: i64,
}

/// Readings of the newest version.
#[derive(Debug, Default)]
pub(super) struct VersionClock(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    readings: VecDeque<Reading>,
    /// Reports of each resource, by its full name, whether its versions are of the etcd of the readings.
    same_etcd: HashMap<String, bool>,
    /// Set where asking again brings no version: nothing is known of when versions were made.
    is_off: bool,
    /// Time of the last answer, whatever it was.
    heard: Option<Timestamp>,
    /// Wall clock and monotonic clock at the last reading.
    clocks: Option<(Timestamp, Instant)>,
}

impl State {
    fn note(&mut self, version: u64, asked: i64, answered: i64) {
        let last = self.readings.back_mut();
        match last {
            Some(last) if last.version == version => last.asked = last.asked.max(asked),
            // The API server was put back, or there is another one: its versions are others.
            Some(last) if last.version > version => {
                self.readings.clear();
                self.same_etcd.clear();
                self.readings.push_back(Reading { version, answered, asked });
            }
            Some(_) | None => self.readings.push_back(Reading { version, answered, asked }),
        }
        if self.readings.len() > READINGS_MAX {
            self.readings.pop_front();
        }
    }

    /// Returns the earliest and the latest time at which a version was made, microseconds since 1970.
    fn bounds(&self, version: u64) -> (Option<i64>, Option<i64>) {
        let place = self.readings.partition_point(|reading| reading.version < version);
        let before = place.checked_sub(1).and_then(|place| self.readings.get(place));
        (before.map(|reading| reading.asked), self.readings.get(place).map(|reading| reading.answered))
    }

    /// Drops the readings if the wall clock was set since the last one.
    fn look_at_clocks(&mut self, now: Timestamp, instant: Instant) {
        if let Some((then, before)) = self.clocks.replace((now, instant)) {
            let passed = SignedDuration::try_from(instant - before).unwrap_or(SignedDuration::MAX);
            if (now.duration_since(then) - passed).abs() > JUMP_MIN {
                self.readings.clear();
            }
        }
    }
}

impl VersionClock {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops everything: the API server went back in time, or may be another one.
    pub(super) fn reset(&self) {
        let mut state = self.state();
        state.readings.clear();
        state.same_etcd.clear();
    }

    /// Reports whether the versions of a resource are of the etcd of the readings, if that is known.
    fn is_of_same_etcd(&self, spec: &SourceSpec) -> Option<bool> {
        self.state().same_etcd.get(&spec.resource.full_name()).copied()
    }

    /// Reports whether a version that no reading shows may count as made just now: there are readings, or there will be none.
    pub(super) fn is_settled(&self) -> bool {
        let state = self.state();
        state.is_off || !state.readings.is_empty()
    }

    /// Returns the time of the last answer if that is so long ago that the API server is silent.
    pub(super) fn silent_since(&self) -> Option<Timestamp> {
        let heard = self.state().heard?;
        (runtime::now().duration_since(heard) >= SILENT_MIN).then_some(heard)
    }

    /// Reports whether one of these versions is older than an answer of some time ago, or may be because no question of late did not
    /// show it.
    fn has_late(&self, versions: &[u64], now: i64) -> bool {
        let state = self.state();
        let is_late = |version: &u64| {
            let (earliest, latest) = state.bounds(*version);
            let is_older = latest.is_some_and(|latest| latest <= now - LATE);
            is_older || earliest.is_none_or(|earliest| earliest < now - UNNOTICED_MAX)
        };
        !state.readings.is_empty() && versions.iter().any(is_late)
    }

    /// Returns the bounds of these versions, and of the one that comes next, as far as they are known.
    fn dates(&self, versions: &[u64]) -> Dates {
        let state = self.state();
        let next = versions.iter().max().map(|version| version + 1);
        let bounds = versions.iter().chain(&next).map(|version| (*version, state.bounds(*version)));
        let known = bounds.filter(|(_, bounds)| *bounds != (None, None));
        known.map(|(version, (from, to))| (version, (from.unwrap_or(i64::MIN), to.unwrap_or(i64::MAX)))).collect()
    }
}

/// Knowledge of when versions were made that a source brings now.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Lateness {
    /// Just now, as far as is known.
    Present,
    /// Earlier, or between these times.
    Dated(Dates),
    /// Maybe earlier.
    Unknown,
}

/// Reports whether asking again brings the same.
const fn is_lasting(failure: &Failure) -> bool {
    matches!(
        failure,
        Failure::Forbidden(_)
            | Failure::NotFound
            | Failure::Refused(_)
            | Failure::Undecodable(_)
            | Failure::Oversize(_)
            | Failure::Ahead
            | Failure::Expired
    )
}

/// The version of a list.
#[derive(Deserialize)]
struct Listed {
    metadata: ListMeta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMeta {
    resource_version: String,
}

impl Shared {
    /// Reads the newest version at intervals; never returns.
    pub(super) async fn keep_version_clock(&self) {
        let Some(interval) = self.timings.version_clock else { return std::future::pending().await };
        // The API server has just said who it is.
        self.version_clock.state().heard.get_or_insert_with(runtime::now);
        loop {
            let mut pause = interval;
            if let Some(spec) = self.revisions.source_of(&PREFERRED) {
                match timeout(READING_TIMEOUT, self.read_newest(&spec)).await {
                    Ok(Ok(version)) => self.version_clock.state().is_off = version.is_none(),
                    Ok(Err(failure)) => {
                        tracing::debug!(%failure, "the newest version is not read");
                        if is_lasting(&failure) {
                            self.version_clock.reset();
                            self.version_clock.state().is_off = true;
                        } else {
                            pause = pause.min(READING_RETRY_DELAY);
                        }
                    }
                    Err(_elapsed) => pause = pause.min(READING_RETRY_DELAY),
                }
            } else {
                pause = pause.min(READING_RETRY_DELAY);
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Reads the newest version that a source of this kind shows.
    async fn read_newest(&self, spec: &SourceSpec) -> Result<Option<u64>, Failure> {
        let asked = runtime::now();
        self.version_clock.state().look_at_clocks(asked, Instant::now());
        let answer = self.ask_newest(spec).await;
        let answered = runtime::now();
        // Where nothing comes there is nobody; a refusal is an answer.
        if !matches!(answer, Err(Failure::Unreachable(_) | Failure::Away(_))) {
            self.version_clock.state().heard = Some(answered);
        }
        let version = answer?;
        if let Some(version) = version {
            let mut state = self.version_clock.state();
            state.look_at_clocks(answered, Instant::now());
            state.note(version, asked.as_microsecond(), answered.as_microsecond());
            state.same_etcd.insert(spec.resource.full_name(), true);
        }
        Ok(version)
    }

    async fn ask_newest(&self, spec: &SourceSpec) -> Result<Option<u64>, Failure> {
        let uri = request(spec).list(&ListParams { limit: Some(1), ..ListParams::default() }).map_err(unbuilt)?;
        let accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
        let bytes = self.api.get(&uri.uri().to_string(), accept, ANSWER_MAX).await?;
        let listed: Listed =
            serde_json::from_slice(&bytes).map_err(|error| Failure::Undecodable(format!("a list: {error}")))?;
        let version = ResourceVersion::new(listed.metadata.resource_version);
        Ok(version.is_ordered().then(|| version.as_str().parse().ok()).flatten())
    }

    /// Returns the bounds of the versions that a source brings, if one of them is late or `behind` says that they may be.
    pub(super) async fn lateness(&self, spec: &SourceSpec, versions: &[&ResourceVersion], behind: bool) -> Lateness {
        let versions: Vec<u64> = versions.iter().filter_map(|version| version.as_str().parse().ok()).collect();
        self.lateness_of(spec, &versions, behind).await
    }

    /// Returns the bounds of what comes behind a bookmark, if that may have happened some time ago. Where nothing has happened since,
    /// an old bookmark is as good as a new one.
    pub(super) async fn lateness_behind(&self, spec: &SourceSpec, bookmark: &ResourceVersion) -> Lateness {
        let next = bookmark.as_str().parse::<u64>().ok().map(|version| version + 1);
        match self.lateness_of(spec, next.as_slice(), false).await {
            // A bookmark proves nothing then.
            Lateness::Unknown => Lateness::Dated(next.map(|next| (next, (i64::MIN, i64::MAX))).into_iter().collect()),
            known @ (Lateness::Present | Lateness::Dated(_)) => known,
        }
    }

    async fn lateness_of(&self, spec: &SourceSpec, versions: &[u64], behind: bool) -> Lateness {
        let now = runtime::now().as_microsecond();
        if self.timings.version_clock.is_none() || !behind && !self.version_clock.has_late(versions, now) {
            return Lateness::Present;
        }
        // Where all that comes counts as late anyway, nobody is asked.
        let known = if behind { Some(self.version_clock.is_of_same_etcd(spec)) } else { None };
        let same_etcd = match known {
            Some(known) => known.or(Some(false)),
            None => Box::pin(self.compare_etcds(spec)).await,
        };
        match same_etcd {
            Some(true) => Lateness::Dated(self.version_clock.dates(versions)),
            Some(false) => Lateness::Present,
            None => Lateness::Unknown,
        }
    }

    /// Reports whether the versions that a source brings were all made after a time: a question of later did not show them. None
    /// where the API server does not say whether they are of the etcd of the readings.
    pub(super) async fn are_made_after(
        &self,
        spec: &SourceSpec,
        versions: &[&ResourceVersion],
        time: Timestamp,
    ) -> Option<bool> {
        let oldest = versions.iter().filter_map(|version| version.as_str().parse().ok()).min();
        let earliest = oldest.and_then(|oldest| self.version_clock.state().bounds(oldest).0);
        if earliest.is_none_or(|earliest| earliest <= time.as_microsecond()) {
            return Some(false);
        }
        Box::pin(self.compare_etcds(spec)).await
    }

    /// Reports whether the versions of a resource are of the etcd of the readings: the newest one of the resource is between two of
    /// those. None where the API server does not say.
    async fn compare_etcds(&self, spec: &SourceSpec) -> Option<bool> {
        if let Some(known) = self.version_clock.is_of_same_etcd(spec) {
            return Some(known);
        }
        let name = spec.resource.full_name();
        let main = self.revisions.source_of(&PREFERRED)?;
        let before = self.version_clock.state().readings.back().map(|reading| reading.version);
        let compare = async {
            let its = self.ask_newest(spec).await?;
            let after = self.read_newest(&main).await?;
            let is_between = before.zip(its).zip(after).map(|((before, its), after)| (before..=after).contains(&its));
            Ok::<_, Failure>(is_between)
        };
        match timeout(READING_TIMEOUT, compare).await {
            Ok(Ok(known)) => {
                let known = known.unwrap_or(false);
                self.version_clock.state().same_etcd.insert(name, known);
                Some(known)
            }
            Ok(Err(failure)) if is_lasting(&failure) => Some(false),
            Ok(Err(_)) | Err(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_made_between_the_question_that_did_not_show_it_and_the_answer_that_did() {
        let mut state = State::default();
        for (version, asked, answered) in [(100, 10, 11), (100, 20, 21), (140, 30, 31), (200, 40, 45), (200, 50, 51)] {
            state.note(version, asked, answered);
        }
        for (version, expected) in [
            (50, (None, Some(11))),
            (100, (None, Some(11))),
            (101, (Some(20), Some(31))),
            (140, (Some(20), Some(31))),
            (141, (Some(30), Some(45))),
            (200, (Some(30), Some(45))),
            (201, (Some(50), None)),
        ] {
            assert_eq!(state.bounds(version), expected, "{version}");
        }
        state.note(90, 60, 61);
        assert_eq!(state.bounds(150), (Some(60), None), "of an API server that was put back nothing else is known");
    }

    /// Where nothing happens the newest version is old, and so is each bookmark.
    #[test]
    fn the_bookmark_of_a_quiet_cluster_is_no_older_than_the_last_reading() {
        const SECOND: i64 = 1_000_000;
        let clock = VersionClock::default();
        for tens in 0..60 {
            clock.state().note(100, tens * 10 * SECOND, tens * 10 * SECOND);
        }
        let now = 595 * SECOND;
        assert!(clock.has_late(&[100], now), "a change that comes now with this version is ten minutes old");
        assert!(!clock.has_late(&[101], now), "nothing is missing behind the bookmark 100");
        clock.state().note(110, 600 * SECOND, 600 * SECOND);
        assert!(clock.has_late(&[101], 603 * SECOND), "behind the bookmark 100 something has happened");
        assert_eq!(
            clock.dates(&[101]),
            Dates::from([(101, (590 * SECOND, 600 * SECOND)), (102, (590 * SECOND, 600 * SECOND))])
        );
    }

    #[test]
    fn a_clock_that_was_set_leaves_no_reading() {
        let (mut state, begin) = (State::default(), Instant::now());
        let at = |seconds: i64| Timestamp::from_second(1_700_000_000 + seconds).unwrap();
        for (wall, monotonic, left) in [(0, 0, true), (10, 10, true), (3_610, 20, false), (3_620, 30, true)] {
            state.note(7, 0, 0);
            state.look_at_clocks(at(wall), begin + Duration::from_secs(monotonic));
            assert_eq!(!state.readings.is_empty(), left, "{wall} {monotonic}");
        }
    }
}
