//! Compares what the journal knows of a source with what the API server has.
//!
//! A watch that leaves an event out, a cache in between, or a mistake of our own would show nowhere else. An audit is a
//! list of metadata alone, in pages, and exact although everything goes on meanwhile: the list is of one version, the
//! comparison waits until the source has passed that version, and what has a newer version by then cannot be judged
//! and is left alone. Memory is two numbers for each listed object, whatever the objects hold.
//!
//! What it cannot see: a version that came and went between two that are known, and whatever the API server's watch cache leaves
//! out of its lists too. For that there are [witnesses](super::witness).
//!
//! # Decision: an audit is exact without stopping anything
//!
//! Context: Watch caches can lose events silently.
//! Decision: The audit lists metadata at one version V, waits until the source has passed V, and compares in one transaction:
//! objects with a newer version are skipped, all others have to be equal. The list is reduced to two 64-bit numbers per
//! object.
//! Cost: On newer servers the list comes from their own cache.

use std::cmp::Ordering;
use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use http::Method;
use kube::core::params::{ListParams, VersionMatch};
use tokio::time::{MissedTickBehavior, timeout};

use super::Shared;
use super::decode;
use super::frame::{Item, Items};
use super::listed::{Listed, METADATA, Shown};
use super::pages::Pages;
use super::recover::{RecoveryCost, WindowError};
use super::requests::{Stop, list_params, request, selector, unbuilt};
use super::stats::SourceStats;
use crate::core::model::{ResourceVersion, SourceSpec};
use crate::core::runtime::{self, watch};
use crate::journal::{Audit, JournalError, Name, SourceId, SourceJournal};
use crate::watch::cluster::{Api, Failure, next_part};

/// Bytes of an item beyond which only its identity is read.
const ITEM_LIMIT: usize = 256 << 10;

/// A list of an audit may have this many objects beyond what the log knows.
const MORE: u64 = if cfg!(test) { 5_000 } else { 100_000 };

/// Two pages are at least this far apart, whatever is in them.
const PAGE_INTERVAL: Duration = Duration::from_millis(20);

/// Audits one source, once. Dropping it at any moment is safe.
pub(super) struct Auditor {
    pub(super) shared: Arc<Shared>,
    pub(super) api: Api,
    /// Generation of the client that makes the requests.
    pub(super) generation: u64,
    pub(super) spec: SourceSpec,
    /// The field selector that the API server takes.
    pub(super) fields: String,
    pub(super) id: SourceId,
    pub(super) journal: SourceJournal,
    pub(super) stats: Arc<SourceStats>,
    /// Version up to which everything was given to the journal.
    pub(super) position: watch::Receiver<Option<ResourceVersion>>,
}

/// Result of an audit.
pub(super) struct Findings {
    pub(super) audit: Audit,
    /// Objects among the differences that the watch has lost and that are not in the log yet.
    pub(super) lost: u64,
}

/// Result of one comparison of the API server with the journal.
enum Look {
    /// Objects that differ at this version, by the numbers that stand for their names; with its name and its state in the list each
    /// that was looked for.
    Differences(ResourceVersion, HashMap<u64, Option<(Name, Shown)>>),
    /// The source has not passed the list's version in time, or the versions have no order.
    Undecided(&'static str),
}

impl Auditor {
    /// Looks, and where something differs a second time; then asks the witnesses. `None` where nothing can be said.
    pub(super) async fn audit(self) -> Result<Option<Findings>, Stop> {
        let (keys, began) = (RandomState::new(), runtime::now());
        let (version, first) = match self.look(&keys, &HashSet::new()).await? {
            Look::Differences(version, found) => (version, found),
            Look::Undecided(why) => {
                tracing::debug!(source = self.spec.name(), why, "an audit came to nothing");
                return Ok(None);
            }
        };
        let (version, disputed) = if first.is_empty() {
            (version, BTreeMap::new())
        } else {
            tracing::info!(
                source = self.spec.name(),
                objects = first.len(),
                "an audit found differences: looking again"
            );
            // A difference that is one is still there.
            match self.look(&keys, &first.into_keys().collect()).await? {
                Look::Differences(version, second) => (version, second.into_values().flatten().collect()),
                Look::Undecided(_) => return Ok(None),
            }
        };
        let mut lost = disputed.len() as u64;
        let mut differences = lost;
        if let Some(testimony) = self.testimony(&disputed).await? {
            self.stats.examined.fetch_add(testimony.asked, Relaxed);
            let explained = testimony.lacking.iter().chain(&testimony.acquitted);
            lost -= explained.filter(|name| disputed.contains_key(*name)).count() as u64;
            differences = lost + testimony.lacking.len() as u64 + testimony.between;
            self.note_cache(testimony.wrong);
            self.mend(&testimony.lacking).await?;
        }
        Ok(Some(Findings { audit: Audit { version, began, differences }, lost }))
    }

    /// Waits until the source has passed a version. Reports whether it has.
    pub(super) async fn passes(&self, version: &ResourceVersion) -> bool {
        let passed = |position: &Option<ResourceVersion>| {
            position.as_ref().is_some_and(|position| position.compare(version).is_some_and(Ordering::is_ge))
        };
        let mut position = self.position.clone();
        matches!(timeout(self.shared.timings.audit_patience, position.wait_for(passed)).await, Ok(Ok(_)))
    }

    /// Compares once. Of what differs and is `wanted` the names are returned as well.
    async fn look(&self, keys: &RandomState, wanted: &HashSet<u64>) -> Result<Look, Stop> {
        let listed = self.list(keys, wanted).await?;
        if !listed.version.is_ordered() {
            return Ok(Look::Undecided("the versions have no order"));
        }
        if !self.passes(&listed.version).await {
            return Ok(Look::Undecided("no bookmark and no change came"));
        }
        // What was handed over has to be on disk, because that is what is compared.
        self.shared.journal.flush().await?;
        let (journal, id, keys, wanted) = (self.shared.journal.clone(), self.id, keys.clone(), wanted.clone());
        let compared = runtime::blocking(move || -> Result<Look, JournalError> {
            let version = listed.version.clone();
            Ok(Look::Differences(version, listed.differences(&journal.reader()?, id, &keys, &wanted)?))
        });
        match compared.await {
            Ok(look) => Ok(look),
            // Whoever cannot read now, for want of descriptors for instance, tries again in the next period.
            Err(error) => {
                tracing::warn!(source = self.spec.name(), "an audit cannot read the journal: {error}");
                Ok(Look::Undecided("the journal cannot be read"))
            }
        }
    }

    /// The version to list at, exactly: the newest. Such a list comes from etcd where the API server has no snapshot of its cache.
    async fn exact(&self) -> Result<Option<ResourceVersion>, Stop> {
        if self.shared.timings.audit_reads.is_none() {
            return Ok(None);
        }
        let cost = RecoveryCost::new();
        match self.recovery(&cost).newest_of(&self.spec).await {
            Ok(newest) => Ok(Some(ResourceVersion(newest.to_string()))),
            Err(WindowError::Stop(stop)) => Err(stop),
            Err(_) => Ok(None),
        }
    }

    /// Returns the limit of a list: twice the number of objects that the log knows, and some more.
    async fn most(&self) -> Result<u64, Stop> {
        let (journal, id) = (self.shared.journal.clone(), self.id);
        let known = runtime::blocking(move || journal.reader()?.losses(id)).await;
        let unreadable = |error: JournalError| Failure::Unreachable(format!("the journal cannot be read: {error}"));
        let (known, _) = known.map_err(unreadable)?;
        Ok(known.saturating_mul(2).saturating_add(MORE))
    }

    /// The whole list, at one version.
    async fn list(&self, keys: &RandomState, wanted: &HashSet<u64>) -> Result<Listed, Stop> {
        let _room = self.shared.limiter.audit().await;
        let exact = self.exact().await?;
        match self.list_at(exact.clone(), keys, wanted).await {
            // An API server that does not know such lists has others.
            Err(Stop::Failure(Failure::Refused(_) | Failure::Expired)) if exact.is_some() => {
                self.list_at(None, keys, wanted).await
            }
            Ok(listed) if exact.as_ref().is_some_and(|exact| *exact != listed.version) => {
                self.list_at(None, keys, wanted).await
            }
            listed => listed,
        }
    }

    /// The whole list at this version, or at the newest one.
    async fn list_at(
        &self,
        exact: Option<ResourceVersion>,
        keys: &RandomState,
        wanted: &HashSet<u64>,
    ) -> Result<Listed, Stop> {
        let shared = &self.shared;
        let generation = shared.api.generation().await;
        shared.verify(None, generation).await?;
        let api = shared.api.pinned(generation);
        let most = self.most().await?;
        let (mut listed, mut pages) = (Listed::default(), Pages::default());
        let (mut token, mut accept) = (None, METADATA);
        let mut pace = tokio::time::interval(PAGE_INTERVAL);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            pace.tick().await;
            shared.limiter.turn().await;
            let first = token.is_none();
            // A token of a page brings its own version.
            let at = exact.as_ref().filter(|_| first);
            let params = ListParams {
                limit: Some(shared.timings.page),
                continue_token: token,
                version_match: at.map(|_| VersionMatch::Exact),
                resource_version: at.map(ToString::to_string),
                field_selector: selector(&self.fields),
                ..list_params(&self.spec)
            };
            let uri = request(&self.spec).list(&params).map_err(unbuilt)?.uri().to_string();
            let answer = match api.send(Method::GET, &uri, accept, Vec::new()).await {
                // An API that takes our wish for nonsense may well have the whole objects.
                Err(Failure::Refused(_)) if first => {
                    accept = "application/json";
                    api.send(Method::GET, &uri, accept, Vec::new()).await
                }
                answer => answer,
            };
            let mut body = answer?.into_body();
            // Longer ones are of servers that do not know metadata alone.
            let mut items = Items::new(ITEM_LIMIT.min(shared.timings.line_limit));
            while let Some(part) = next_part(&mut body, shared.api.limits().read).await? {
                items.push(&part, |item| -> Result<(), Failure> {
                    let (Item::Whole(item) | Item::Outline(item)) = item;
                    let odd = match decode::item(&self.spec.resource, item) {
                        Ok(object) => object.into(),
                        Err(odd) => odd,
                    };
                    pages.object(&odd.namespace, &odd.name);
                    if !self.spec.leaves_out(&odd.namespace) {
                        listed.meet(keys, wanted, &odd);
                    }
                    Ok(())
                })?;
            }
            let page = decode::envelope(items.envelope()).map_err(Failure::Undecodable)?;
            if !first && page.version != listed.version {
                return Err(Failure::Unreachable("a list changed its version between two pages".to_owned()).into());
            }
            pages.end_of_page(page.next.as_deref(), page.left).map_err(Failure::Server)?;
            if listed.count() > most {
                let text = format!("the list of an audit has more than {most} objects, which the log does not know");
                return Err(Failure::Server(text).into());
            }
            listed.version = page.version;
            token = page.next;
            if token.is_none() {
                return Ok(listed);
            }
        }
    }
}
