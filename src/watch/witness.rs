//! Single objects as etcd has them, as witnesses against the API server's watch cache.
//!
//! # Decision: etcd is asked for objects by name
//!
//! Context: Consistent lists come from the watch cache that feeds the watch: neither shows an event that is lost between etcd and it.
//! Decision: etcd answers exact lists of one name. Each audit asks for what list and log disagree about, for objects that
//! an audit log names with a version beyond the log, for those that have just changed, also right before that, and for some of
//! the others: each once a day. Missed versions are read by name; an alarm names the cache.
//! Cost: Requests at `[cluster] audit_reads`. A lost creation that no audit log names is found once the API server's check has
//! dropped the snapshots of its cache: then whole exact lists come from etcd.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kube::core::params::{ListParams, VersionMatch};

use super::audit::Auditor;
use super::listed::Shown;
use super::recover::{Key, MENDS, Mended, Recovery, RecoveryCost, WindowError, by_name};
use super::requests::{Stop, list_params};
use super::stats::CacheFault;
use crate::core::model::ResourceVersion;
use crate::core::runtime;
use crate::core::units::Span;
use crate::journal::{JournalError, KnownObject, Name};
use crate::watch::cluster::{AuditReads, Failure, RecoverBounds};

/// Objects that an audit asks for whatever the share of them is.
const READS_MIN: u64 = 10;
/// Time in which every object is asked for once.
const ROUND_PERIOD: Duration = Duration::from_secs(24 * 60 * 60);
/// Time for the questions of one audit. etcd forgets a version after five minutes by default.
const READS_TIME: u64 = 120;
/// Changes that an audit looks before whatever its period is.
const LINKS_MIN: u64 = 100;
/// What the witnesses of one audit have shown.
#[derive(Debug, Default)]
pub(super) struct Testimony {
    /// Objects that were asked for.
    pub(super) asked: u64,
    /// Objects of which the log lacks something that the API server's lists do not show.
    pub(super) lacking: Vec<Key>,
    /// Objects that the watch cache shows wrongly.
    pub(super) wrong: BTreeSet<Name>,
    /// Versions that were lost between two that the log has.
    pub(super) between: u64,
    /// Objects about which the list of the audit and the log disagree, and etcd agrees with the log.
    pub(super) acquitted: BTreeSet<Name>,
}

/// Returns how many objects of `all` one audit asks for, where an audit comes every `period`.
fn share(all: u64, period: Duration, reads: AuditReads) -> u64 {
    let daily = all.saturating_mul(period.as_secs().max(1)).div_ceil(ROUND_PERIOD.as_secs());
    let bound = all.saturating_mul(u64::from(reads.percent)).div_ceil(100).max(READS_MIN);
    daily.max(READS_MIN).min(bound).min(budget(reads))
}

/// Returns how many objects the time of one audit is enough for.
fn budget(reads: AuditReads) -> u64 {
    u64::from(reads.rate).saturating_mul(READS_TIME)
}

/// Returns how many changes one audit looks before, where an audit comes every `period`.
fn links(period: Duration, reads: AuditReads) -> u64 {
    let rate = u64::from(reads.rate);
    rate.saturating_mul(period.as_secs()).max(LINKS_MIN).min(rate.saturating_mul(READS_TIME / 2))
}

impl Auditor {
    /// Asks the witnesses. What they do not answer leaves the list as it is.
    pub(super) async fn testimony(&self, disputed: &BTreeMap<Name, Shown>) -> Result<Option<Testimony>, Stop> {
        let Some(reads) = self.shared.timings.audit_reads else { return Ok(None) };
        match self.examine(reads, disputed).await {
            Err(Stop::Failure(failure)) => {
                tracing::debug!(source = self.spec.name(), %failure, "etcd was not asked for objects to the end");
                Ok(None)
            }
            testimony => testimony,
        }
    }

    /// Asks etcd for objects by name: for those that the list of the audit and the log disagree about, with their state in that list,
    /// and for a sample. `None`: this API server answers no such questions.
    async fn examine(&self, reads: AuditReads, disputed: &BTreeMap<Name, Shown>) -> Result<Option<Testimony>, Stop> {
        let mut names: BTreeSet<Name> = disputed.keys().cloned().collect();
        names.extend(self.stats.cache_fault().objects);
        let suspects = self.stats.suspects(usize::try_from(budget(reads)).unwrap_or(usize::MAX));
        names.extend(suspects.iter().cloned());
        let (sample, upto) = self.sample(reads).await?;
        names.extend(sample);
        let asked = names.len() as u64;
        let recovery_cost = RecoveryCost::new();
        let recovery = self.recovery(&recovery_cost);
        let Some(first) = self.differing(&recovery, &names).await? else { return Ok(None) };
        // A difference that is one is still there.
        let doubted: BTreeSet<Name> = first.keys().cloned().collect();
        let second = if doubted.is_empty() { Some(first) } else { self.differing(&recovery, &doubted).await? };
        let Some(second) = second else { return Ok(None) };
        self.stats.examine_after(upto);
        self.stats.acquit(&suspects);
        let mut testimony = Testimony { asked, ..Testimony::default() };
        for (name, shown) in &second {
            // What list and cache show as etcd does is lost behind the cache.
            let is_listed_so = disputed.get(name).is_some_and(|listed| listed == shown);
            if !is_listed_so || self.is_still_wrong(&recovery, name).await? {
                testimony.lacking.push(name.clone());
                testimony.wrong.insert(name.clone());
            }
        }
        self.look_between(&recovery, reads, &mut testimony).await?;
        for name in disputed.keys().filter(|name| !second.contains_key(*name)) {
            testimony.acquitted.insert(name.clone());
            testimony.wrong.insert(name.clone());
        }
        for name in self.stats.cache_fault().objects {
            if !testimony.wrong.contains(&name) && self.is_still_wrong(&recovery, &name).await? {
                testimony.wrong.insert(name);
            }
        }
        Ok(Some(testimony))
    }

    /// Notes which objects the watch cache shows wrongly.
    pub(super) fn note_cache(&self, wrong: BTreeSet<Name>) {
        let before = self.stats.cache_fault();
        let since = before.since.filter(|_| !wrong.is_empty());
        let fault = CacheFault {
            since: since.or_else(|| (!wrong.is_empty()).then(runtime::now)),
            objects: wrong,
            reported: None,
        };
        if before.objects.is_empty() && !fault.objects.is_empty() {
            tracing::error!(
                source = self.spec.name(),
                objects = fault.objects.len(),
                "the API server's watch cache differs from etcd: restart that API server"
            );
        }
        if !before.objects.is_empty() && fault.objects.is_empty() {
            tracing::info!(source = self.spec.name(), "the API server's watch cache agrees with etcd again");
        }
        self.stats.set_cache_fault(fault);
    }

    /// Reads and records what the log lacks of these objects.
    pub(super) async fn mend(&self, lacking: &[Key]) -> Result<(), Stop> {
        let cost = RecoveryCost::new();
        let recovery = self.recovery(&cost);
        for key in lacking.iter().take(MENDS) {
            let (namespace, name) = key;
            let mended = match recovery.newest_of(&self.spec).await {
                Ok(newest) => recovery.mend(key, newest).await,
                Err(trouble) => Err(trouble),
            };
            match mended {
                Ok(Mended::Nothing) => {}
                Ok(mended) => tracing::warn!(
                    source = self.spec.name(),
                    namespace,
                    name,
                    in_part = mended == Mended::InPart,
                    "the API server's watch cache lacks changes of an object: decklog has read them from etcd"
                ),
                Err(WindowError::Stop(stop)) => return Err(stop),
                // The others can be recovered all the same, and the next audit begins with it again.
                Err(trouble) => tracing::warn!(
                    source = self.spec.name(),
                    namespace,
                    name,
                    "an object cannot be recovered by its name: {trouble}"
                ),
            }
        }
        Ok(())
    }

    /// Questions by name, at a pace of their own.
    pub(super) fn recovery<'a>(&'a self, cost: &'a RecoveryCost) -> Recovery<'a> {
        let within = Span::from_secs(READS_TIME * 2);
        Recovery {
            shared: &self.shared,
            api: &self.api,
            generation: self.generation,
            spec: &self.spec,
            fields: &self.fields,
            id: self.id,
            journal: &self.journal,
            stats: &self.stats,
            bounds: RecoverBounds { requests: u32::MAX, within, ..RecoverBounds::default() },
            cost,
            confirmed: false,
            has_past: self.shared.timings.recover.is_some(),
        }
    }

    /// Objects to ask for: those that have just changed, and those that are next. The last one of these is behind them; none begins at
    /// the first one again.
    async fn sample(&self, reads: AuditReads) -> Result<(BTreeSet<Name>, Name), Stop> {
        let (journal, id, after) = (self.shared.journal.clone(), self.id, self.stats.examined_upto());
        let period = self.shared.timings.audit.unwrap_or_default();
        let since = runtime::now().as_microsecond() - i64::try_from(period.as_micros()).unwrap_or(i64::MAX);
        let read = runtime::blocking(move || {
            let mut reader = journal.reader()?;
            let share = share(reader.objects_of(id)?, period, reads);
            let recent = reader.names_since(id, since, share)?;
            let next = reader.names_after(id, &after, share)?;
            // Behind the last one the first one comes.
            let upto =
                if (next.len() as u64) < share { Name::default() } else { next.last().cloned().unwrap_or_default() };
            Ok::<_, JournalError>((recent.into_iter().chain(next).collect(), upto))
        });
        Ok(read.await.map_err(unreadable)?)
    }

    /// Looks right before each change of late: what the watch cache has lost between two versions differs from nothing any more.
    async fn look_between(
        &self,
        recovery: &Recovery<'_>,
        reads: AuditReads,
        testimony: &mut Testimony,
    ) -> Result<(), Stop> {
        // What a source ignores is between its entries, and out of a selection an object has no version.
        if !self.spec.ignore.is_empty() || self.spec.selects() || !recovery.has_past {
            return Ok(());
        }
        let (journal, id, upto) = (self.shared.journal.clone(), self.id, self.stats.linked_upto());
        let period = self.shared.timings.audit.unwrap_or_default();
        let read = runtime::blocking(move || {
            let mut reader = journal.reader()?;
            reader.links_after(id, upto, links(period, reads))
        });
        let (links, upto) = read.await.map_err(unreadable)?;
        for link in links {
            self.shared.limiter.examination().await;
            testimony.asked += 1;
            let looked = recovery.look_before(&link).await;
            if !matches!(looked, Err(WindowError::Stop(_))) {
                // A GAP is recorded once.
                self.stats.link_upto(link.seq);
            }
            match looked {
                Ok(0) => {}
                Ok(lost) => {
                    let (namespace, name) = &link.name;
                    tracing::warn!(
                        source = self.spec.name(),
                        namespace,
                        name,
                        lost,
                        "the API server's watch cache has lost versions between two that it sent: they are a GAP"
                    );
                    testimony.between += lost as u64;
                }
                Err(WindowError::Stop(stop)) => return Err(stop),
                // It is compacted, or nobody can say.
                Err(_) => {}
            }
        }
        self.stats.link_upto(upto);
        Ok(())
    }

    /// Objects that differ between etcd and the log, as etcd has them.
    async fn differing(
        &self,
        recovery: &Recovery<'_>,
        names: &BTreeSet<Name>,
    ) -> Result<Option<BTreeMap<Name, Shown>>, Stop> {
        if names.is_empty() {
            return Ok(Some(BTreeMap::new()));
        }
        let at = match recovery.newest_of(&self.spec).await {
            Ok(at) => at,
            Err(WindowError::Stop(stop)) => return Err(stop),
            Err(_) => return Ok(None),
        };
        let mut shown = BTreeMap::new();
        for name in names {
            self.shared.limiter.examination().await;
            match self.shown(recovery, name, at).await {
                Ok(object) => drop(shown.insert(name.clone(), object)),
                Err(WindowError::Stop(stop)) => return Err(stop),
                Err(WindowError::Unreadable(_)) => self.journal.unreadable(name.clone()).await?,
                // A server that does not answer for the past, or for a name.
                Err(_) => return Ok(None),
            }
        }
        let version = ResourceVersion(at.to_string());
        if !self.passes(&version).await {
            return Ok(None);
        }
        self.shared.journal.flush().await?;
        let (journal, id) = (self.shared.journal.clone(), self.id);
        let compared = runtime::blocking(move || {
            let reader = journal.reader()?;
            let unread: BTreeSet<[String; 4]> = reader.unread(id)?.into_iter().collect();
            let mut differing = BTreeMap::new();
            for (name, object) in shown {
                let known = reader.known_object(id, &name.0, &name.1)?;
                if !agrees(known.as_ref(), &object, &name, &version, &unread) {
                    differing.insert(name, object);
                }
            }
            Ok::<_, JournalError>(differing)
        });
        compared.await.map(Some).map_err(|error| unreadable(error).into())
    }

    /// An object as etcd has it at a revision.
    async fn shown(&self, recovery: &Recovery<'_>, name: &Name, at: u64) -> Result<Shown, WindowError> {
        let mut shown = None;
        recovery
            .named(name, Some(at), |object| {
                shown = Some((object.uid, object.version));
                Ok(())
            })
            .await?;
        Ok(shown)
    }

    /// Reports whether the watch cache still shows an object wrongly: older than etcd has it.
    async fn is_still_wrong(&self, recovery: &Recovery<'_>, name: &Name) -> Result<bool, Stop> {
        let Ok(at) = recovery.newest_of(&self.spec).await else { return Ok(true) };
        let (mut cached, mut reached) = (None, false);
        let params = ListParams {
            version_match: Some(VersionMatch::NotOlderThan),
            resource_version: Some(at.to_string()),
            field_selector: Some(by_name(name, &self.spec.field_selector)),
            ..list_params(&self.spec)
        };
        let page = recovery
            .page_of(name, params, |object| {
                cached = Some((object.uid, object.version));
                Ok(())
            })
            .await;
        if let Ok(page) = &page {
            reached = page.version.as_str().parse::<u64>().is_ok_and(|version| version >= at);
        }
        let etcd = self.shown(recovery, name, at).await;
        Ok(!(reached && etcd.is_ok_and(|etcd| etcd == cached)))
    }
}

/// Reports whether the log, which has passed a version, has an object as etcd has it there, or something newer.
fn agrees(
    known: Option<&KnownObject>,
    shown: &Shown,
    (namespace, name): &Name,
    version: &ResourceVersion,
    unread: &BTreeSet<[String; 4]>,
) -> bool {
    if known.is_some_and(|known| !known.version.is_not_after(version)) {
        return true;
    }
    let Some((uid, at)) = shown else { return known.is_none_or(|known| !known.present) };
    // A version that is too large to be kept, and recorded as such, is no difference.
    let [namespace, name] = [namespace, name].map(String::clone);
    known.is_some_and(|known| known.present && known.uid == *uid && known.version.as_str() == at)
        || unread.contains(&[namespace, name, uid.clone(), at.clone()])
}

fn unreadable(error: JournalError) -> Failure {
    Failure::Unreachable(format!("the journal cannot be read: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_object_is_asked_for_once_a_day_within_the_budget() {
        let minutes = |minutes: u64| Duration::from_secs(minutes * 60);
        let reads = AuditReads { rate: 10, percent: 1 };
        // Objects, the period, and how many an audit asks for.
        let rows = [
            (0, minutes(10), 10),
            (100, minutes(10), 10),
            (20_000, minutes(10), 139),
            (20_000, minutes(60), 200),
            (20_000, Duration::from_secs(1), 10),
            (1_000_000, minutes(10), 1200),
        ];
        for (all, period, asked) in rows {
            assert_eq!(share(all, period, reads), asked, "{all} objects every {period:?}");
        }
    }

    #[test]
    fn a_log_that_has_passed_a_version_agrees_with_etcd_or_lacks_something() {
        let known = |uid: &str, version: &str, present| KnownObject {
            namespace: "shop".to_owned(),
            name: "a".to_owned(),
            uid: uid.to_owned(),
            version: ResourceVersion::new(version),
            present,
        };
        let shown = |uid: &str, version: &str| Some((uid.to_owned(), version.to_owned()));
        let large = ["shop", "a", "u1", "8"].map(str::to_owned);
        let rows = [
            ("the same", Some(known("u1", "7", true)), shown("u1", "7"), true),
            ("changed since", Some(known("u1", "21", true)), shown("u1", "7"), true),
            ("gone since", Some(known("u1", "21", false)), shown("u1", "7"), true),
            ("gone", Some(known("u1", "9", false)), None, true),
            ("never there", None, None, true),
            ("too large", Some(known("u1", "7", true)), shown("u1", "8"), true),
            ("an update that was lost", Some(known("u1", "7", true)), shown("u1", "9"), false),
            ("a deletion that was lost", Some(known("u1", "7", true)), None, false),
            ("a creation that was lost", None, shown("u1", "7"), false),
            ("another incarnation", Some(known("u1", "7", true)), shown("u2", "9"), false),
            ("back after a deletion", Some(known("u1", "7", false)), shown("u2", "9"), false),
        ];
        for (what, known, shown, agreed) in rows {
            let name = ("shop".to_owned(), "a".to_owned());
            let unread = BTreeSet::from([large.clone()]);
            assert_eq!(agrees(known.as_ref(), &shown, &name, &ResourceVersion::new("20"), &unread), agreed, "{what}");
        }
    }
}
