//! Dates of versions: when the cluster made what decklog did not see at once.
//!
//! # Decision: the cluster's own Leases date its versions
//!
//! Context: Resource versions of one etcd are one order, a deletion carries no time, and after an outage nobody was there.
//! Decision: The components of a control plane and the nodes renew Leases every two to ten seconds. A list of them at an exact version
//! says when each was renewed last, and under which version, so a version is dated between two renewals. The versions of deletions
//! are dated by bisection before they are journaled, with few requests.
//! Cost: Some requests after an outage, and a right that is not needed otherwise. Without it the bounds are those of the outage.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use jiff::Timestamp;
use serde::Deserialize;
use tokio::time::Instant;

use super::Shared;
use super::cluster::Failure;
use crate::core::model::ResourceVersion;

/// Namespaces in which the components of the control plane and the nodes keep their Leases.
pub const NAMESPACES: [&str; 2] = ["kube-system", "kube-node-lease"];
/// Number of Leases of one namespace that are asked for: those of some nodes are enough.
const LEASES_MAX: usize = 20;
/// Group and plural of Leases.
pub const RESOURCE: (&str, &str) = ("coordination.k8s.io", "leases");

/// Width of bounds with which a version counts as dated, microseconds.
const WIDTH_MAX: i64 = 3_000_000;
/// A renewal may be written so much later than the time that it says, microseconds. The API server's stamp of it says it to the second.
const WRITE_MAX: i64 = 1_000_000;
/// Requests for the versions that are dated at once.
const REQUESTS_MAX: usize = 64;
/// Time for all of them.
const DATING_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for which nothing is asked after a refusal.
const REFUSED_PERIOD: Duration = Duration::from_secs(600);
/// Number of dates that are kept.
const DATES_MAX: usize = 4096;

/// Dates of versions: the earliest and the latest time at which each was made, microseconds since 1970.
pub type Dates = BTreeMap<u64, (i64, i64)>;

/// Narrows dates by those of the versions around them.
pub(super) fn join(dates: &mut Dates, others: &Dates) {
    for (version, (earliest, latest)) in dates.iter_mut() {
        if let Some((_, (other, _))) = others.range(..=*version).next_back() {
            *earliest = (*earliest).max(*other);
        }
        if let Some((_, (_, other))) = others.range(*version..).next() {
            *latest = (*latest).min(*other);
        }
    }
    for (version, date) in others {
        dates.entry(*version).or_insert(*date);
    }
}

/// Dates that are known, and whether more can be asked for.
#[derive(Debug, Default)]
pub(super) struct Dating {
    dates: Dates,
    /// Versions at which was asked, with success or because they are compacted.
    asked: std::collections::BTreeSet<u64>,
    refused: Option<Instant>,
    /// Namespaces whose Leases may be listed, and that have some; all of them before the first question.
    namespaces: Option<Vec<&'static str>>,
}

/// A renewal of a Lease.
#[derive(Debug, PartialEq, Eq)]
struct Renewal {
    version: u64,
    earliest: i64,
    latest: i64,
}

/// Returns the last renewals of the Leases in a list, and the version of the list.
fn renewals(bytes: &[u8]) -> Option<(u64, Vec<Renewal>)> {
    #[derive(Deserialize)]
    struct List {
        metadata: Meta,
        #[serde(default)]
        items: Vec<Lease>,
    }
    #[derive(Deserialize)]
    struct Lease {
        metadata: Meta,
        #[serde(default)]
        spec: Spec,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Meta {
        resource_version: String,
        #[serde(default)]
        managed_fields: Vec<Written>,
    }
    #[derive(Deserialize)]
    struct Written {
        time: Option<Timestamp>,
    }
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Spec {
        renew_time: Option<Timestamp>,
    }
    let list: List = serde_json::from_slice(bytes).ok()?;
    let renewal = |lease: &Lease| {
        let earliest = lease.spec.renew_time?.as_microsecond();
        let latest = earliest + WRITE_MAX;
        // In whole seconds, by the API server's clock.
        let written = lease.metadata.managed_fields.iter().filter_map(|written| written.time).max();
        let written = written.map(|written| written.as_microsecond() + 1_000_000).filter(|end| *end > earliest);
        let latest = written.map_or(latest, |end| end.min(latest));
        Some(Renewal { version: lease.metadata.resource_version.parse().ok()?, earliest, latest })
    };
    Some((list.metadata.resource_version.parse().ok()?, list.items.iter().filter_map(renewal).collect()))
}

impl Dating {
    fn note(&mut self, asked: u64, found: &[Renewal]) {
        self.asked.insert(asked);
        self.dates.extend(found.iter().map(|renewal| (renewal.version, (renewal.earliest, renewal.latest))));
        while self.dates.len() > DATES_MAX {
            self.dates.pop_first();
        }
        while self.asked.len() > DATES_MAX {
            self.asked.pop_first();
        }
    }

    /// Returns the version at which asking tells more of when this one was made; none where it is dated as well as can be. `newest`
    /// is a version at which was asked.
    fn question(&self, version: u64, newest: u64) -> Option<u64> {
        if !self.asked.contains(&version) {
            return Some(version);
        }
        let before = self.dates.range(..=version).next_back();
        let behind = self.dates.range(version..).next();
        if let (Some((_, (earliest, _))), Some((_, (_, latest)))) = (before, behind)
            && latest - earliest <= WIDTH_MAX
        {
            return None;
        }
        // Up to the last version at which nothing newer was found there is no date behind this one.
        let end = behind.map_or(newest, |(version, _)| *version);
        let begin = self.asked.range(version..end).next_back().copied().unwrap_or(version);
        (begin + 1 < end).then(|| begin + (end - begin) / 2)
    }
}

impl Shared {
    /// Returns dates around these versions, as far as the cluster has them.
    pub(super) async fn date(&self, versions: impl Iterator<Item = &ResourceVersion>) -> Arc<Dates> {
        let versions: Vec<u64> = versions.filter_map(|version| version.as_str().parse().ok()).collect();
        if versions.is_empty() || !self.timings.dates {
            return Arc::default();
        }
        let mut dating = self.dating.lock().await;
        if dating.refused.is_some_and(|at| at.elapsed() < REFUSED_PERIOD) {
            return Arc::default();
        }
        let asked = tokio::time::timeout(DATING_TIMEOUT, self.ask_dates(&mut dating, &versions)).await;
        match asked {
            Ok(Ok(())) | Err(_) => {}
            Ok(Err(failure)) => {
                tracing::debug!(%failure, "versions are not dated: Leases cannot be read");
                if matches!(failure, Failure::Forbidden(_) | Failure::NotFound | Failure::Refused(_)) {
                    dating.refused = Some(Instant::now());
                }
            }
        }
        let (first, last) = (versions.iter().min().copied(), versions.iter().max().copied());
        let Some((first, last)) = first.zip(last) else { return Arc::default() };
        let begin = dating.dates.range(..=first).next_back().map_or(first, |(version, _)| *version);
        let end = dating.dates.range(last..).next().map_or(last, |(version, _)| *version);
        Arc::new(dating.dates.range(begin..=end).map(|(version, date)| (*version, *date)).collect())
    }

    async fn ask_dates(&self, dating: &mut Dating, versions: &[u64]) -> Result<(), Failure> {
        let newest = match dating.asked.last() {
            Some(newest) if versions.iter().all(|version| version <= newest) => *newest,
            _ => self.ask_now(dating).await?,
        };
        let mut requests = 0;
        for version in versions {
            while let Some(question) = dating.question(*version, newest) {
                if requests == REQUESTS_MAX {
                    return Ok(());
                }
                requests += 1;
                self.ask_at(dating, question).await?;
            }
        }
        Ok(())
    }

    /// Asks for the present renewals, and notes where there are some. Returns the version of the oldest answer.
    async fn ask_now(&self, dating: &mut Dating) -> Result<u64, Failure> {
        let (mut usable, mut newest, mut failed) = (Vec::new(), None::<u64>, None);
        for namespace in NAMESPACES {
            // Nobody is asked for what is not granted: refusals stand in audits.
            let (group, plural) = RESOURCE;
            match self.api.can_i("list", group, plural, Some(namespace)).await {
                Ok(true) => {}
                Ok(false) => {
                    failed = Some(Failure::Forbidden(format!("{plural}.{group} may not be listed in {namespace}")));
                    continue;
                }
                Err(failure) => {
                    failed = Some(failure);
                    continue;
                }
            }
            match self.renewals(namespace, None).await {
                Ok((version, found)) => {
                    dating.note(version, &found);
                    newest = Some(newest.map_or(version, |newest| newest.min(version)));
                    if !found.is_empty() {
                        usable.push(namespace);
                    }
                }
                Err(failure) => failed = Some(failure),
            }
        }
        dating.namespaces = Some(usable);
        match (newest, failed) {
            (Some(newest), _) => Ok(newest),
            (None, failed) => Err(failed.unwrap_or(Failure::NotFound)),
        }
    }

    /// Asks for the renewals at a version. One that is compacted says nothing.
    async fn ask_at(&self, dating: &mut Dating, version: u64) -> Result<(), Failure> {
        for namespace in dating.namespaces.clone().unwrap_or_default() {
            match self.renewals(namespace, Some(version)).await {
                Ok((_, found)) => dating.note(version, &found),
                Err(Failure::Expired) => break,
                Err(failure) => return Err(failure),
            }
        }
        dating.note(version, &[]);
        Ok(())
    }

    /// Returns the renewals of the Leases of a namespace at a version, or now, and the version of the answer.
    async fn renewals(&self, namespace: &str, at: Option<u64>) -> Result<(u64, Vec<Renewal>), Failure> {
        let Some(_place) = self.limiter.recovery(Instant::now() + DATING_TIMEOUT).await else {
            return Err(Failure::Busy(None));
        };
        self.progressed();
        let (group, plural) = RESOURCE;
        let exactly = at.map(|at| format!("&resourceVersion={at}&resourceVersionMatch=Exact")).unwrap_or_default();
        let path = format!("/apis/{group}/v1/namespaces/{namespace}/{plural}?limit={LEASES_MAX}{exactly}");
        let body = self.api.send(Method::GET, &path, "application/json", Vec::new()).await?.into_body();
        let bytes = self.api.read(body, 4 << 20).await?;
        renewals(&bytes).ok_or_else(|| Failure::Undecodable("a list of Leases cannot be read".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A Lease is renewed at each of these versions, ten seconds apart; whoever asks at a version sees the last renewal.
    fn cluster(renewed: &[u64]) -> impl Fn(&mut Dating, u64) {
        move |dating, at| {
            let last = renewed.iter().enumerate().rfind(|(_, version)| **version <= at);
            let found = last.map(|(number, version)| {
                let time = i64::try_from(number).unwrap() * 10_000_000;
                Renewal { version: *version, earliest: time, latest: time + 500_000 }
            });
            dating.note(at, found.as_slice());
        }
    }

    #[test]
    fn a_version_is_dated_between_two_renewals_with_few_questions() {
        let renewed = [100, 220, 221, 5_000, 5_700, 9_000];
        let ask = cluster(&renewed);
        for (version, expected) in
            [(150, (100, 220)), (220, (220, 220)), (3_000, (221, 5_000)), (5_001, (5_000, 5_700))]
        {
            let mut dating = Dating::default();
            ask(&mut dating, 9_999);
            let mut questions = 0;
            while let Some(question) = dating.question(version, 9_999) {
                ask(&mut dating, question);
                questions += 1;
            }
            let before = *dating.dates.range(..=version).next_back().unwrap().0;
            let behind = *dating.dates.range(version..).next().unwrap().0;
            assert_eq!((before, behind), expected, "{version}");
            assert!(questions <= 16, "{version}: {questions}");
        }
        // Nothing is behind it, or it is older than what is kept.
        let mut dating = Dating::default();
        ask(&mut dating, 9_999);
        for version in [9_500, 50] {
            while let Some(question) = dating.question(version, 9_999) {
                ask(&mut dating, question);
            }
        }
        assert_eq!(dating.dates.range(9_500..).next(), None);
        assert_eq!(dating.dates.range(..=50).next(), None);
    }

    #[test]
    fn a_renewal_is_written_within_the_second_that_the_api_server_says() {
        let lease = |version: &str, renewed: &str, written: Option<&str>| {
            let written = written.map(|time| serde_json::json!({"manager": "kube-apiserver", "time": time}));
            serde_json::json!({"metadata": {"resourceVersion": version, "managedFields": written.as_slice()}, "spec": {"renewTime": renewed}})
        };
        let list = serde_json::json!({"metadata": {"resourceVersion": "77"}, "items": [
            lease("70", "2026-11-21T10:00:00.700000Z", Some("2026-11-21T10:00:00Z")),
            lease("71", "2026-11-21T10:00:00.900000Z", Some("2026-11-21T10:00:01Z")),
            lease("72", "2026-11-21T10:00:00.900000Z", None),
            {"metadata": {"resourceVersion": "73"}, "spec": {}},
        ]});
        let (version, found) = renewals(list.to_string().as_bytes()).unwrap();
        let base = "2026-11-21T10:00:00Z".parse::<Timestamp>().unwrap().as_microsecond();
        let renewal = |version, earliest, latest| Renewal { version, earliest: base + earliest, latest: base + latest };
        assert_eq!(version, 77);
        let expected =
            [renewal(70, 700_000, 1_000_000), renewal(71, 900_000, 1_900_000), renewal(72, 900_000, 1_900_000)];
        assert_eq!(found, expected);
        assert_eq!(renewals(b"{}"), None);
    }
}
