//! An API server that is killed and started again, several times in a row: every source is back within two seconds of it
//! being ready, and finds that its watch is forgotten, and recovers. `DECKLOG_TEST_OUTAGES` has more of them than the few that there is time for.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use decklog::watch;
use decklog::watch::Timings;
use serde_json::json;

use crate::harness::{Cluster, LIMIT, Parts, Version, until};
use crate::reading::Reading;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// Of the seven resources that many watch, each in all namespaces.
const RESOURCES: [&str; 7] =
    ["configmaps", "secrets", "services", "pods", "deployments.apps", "leases.coordination.k8s.io", "nodes"];
/// After it is ready.
const BACK: Duration = Duration::from_secs(2);
/// Requests in any second: a first rush, and what may follow it. What is asked about the past has turns of its own.
const MOST: usize = 410 + 404;

/// See the module.
pub async fn scenario(version: Version) {
    let outages = std::env::var("DECKLOG_TEST_OUTAGES").ok().and_then(|text| text.parse().ok()).unwrap_or(2);
    let away = Duration::from_secs(if outages > 2 { 20 } else { 4 });
    let mut cluster = Cluster::start(version, Parts::Bare).await;
    for number in 0..100 {
        cluster.create("/api/v1/namespaces", &json!({"metadata": {"name": format!("n{number}")}})).await;
    }
    let strings = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let few = watch::Settings { resources: strings(&RESOURCES), ..watch::Settings::default() };
    let namespaces = (0..100).map(|number| format!("n{number}")).chain(["default".to_owned()]).collect();
    let many = watch::Settings { resources: strings(&["configmaps"]), namespaces, ..watch::Settings::default() };
    // An API server that begins denies everything to whoever is no administrator.
    let role = ["create", "clusterrole", "reader", "--verb=get,list,watch", "--resource=namespaces,configmaps"];
    cluster.kubectl_must(&role).await;
    let binding = ["create", "clusterrolebinding", "reader", "--clusterrole=reader", "--user=restricted"];
    cluster.kubectl_must(&binding).await;
    for (user, watch) in [("calm", few), ("restricted", many)] {
        let reading = Reading::start(&cluster, user, watch, Timings::default()).await;
        let sources = reading.sources();
        let mut times = Vec::new();
        for outage in 0..outages {
            let before: Vec<u64> = sources.iter().map(|source| source.watches.load(Ordering::Relaxed)).collect();
            cluster.outage(away).await;
            let ready = Instant::now();
            until("every source to be back", LIMIT, async || {
                let opened =
                    sources.iter().zip(&before).filter(|(now, then)| now.watches.load(Ordering::Relaxed) > **then);
                let opened = opened.count();
                if opened == sources.len() { Ok(()) } else { Err(format!("{opened} have opened a watch")) }
            })
            .await;
            let back = ready.elapsed();
            // Whose watch the API server has forgotten recovers first, which takes as long as it takes.
            until("every source to watch again", LIMIT, async || {
                let watching = reading.watching();
                if watching == sources.len() { Ok(()) } else { Err(format!("{watching} watch")) }
            })
            .await;
            times.push((back, ready.elapsed()));
            let name = format!("{user}-{outage}");
            cluster.create(MAPS, &json!({"metadata": {"name": name}})).await;
            reading.tells("what was made after the outage", |entry| entry.name == name && entry.kind == "ADDED").await;
        }
        eprintln!("{} sources were back, and watched again, after {times:?}", sources.len());
        assert!(times.iter().all(|(back, _)| *back <= BACK), "{} sources: {times:?}", sources.len());
        // Where the API server said that it has forgotten, etcd has not.
        let told = reading.entries().iter().filter(|entry| entry.gap.is_some()).count();
        let expired = |source: &watch::SourceStats| {
            source.failures().find(|(name, _)| *name == "expired").map_or(0, |(_, count)| count)
        };
        let forgotten: u64 = sources.iter().map(|source| expired(source)).sum();
        assert_eq!(told, 0, "nothing was compacted");
        reading.stop().await;
        let most = busiest(&cluster, user);
        eprintln!("{user}: at most {most} requests in a second, {forgotten} times 410");
        assert!(most <= MOST, "{most} requests in a second");
    }
}

/// The most requests of a user that came in one second, as the audit log has them.
fn busiest(cluster: &Cluster, user: &str) -> usize {
    let mut seconds: BTreeMap<String, usize> = BTreeMap::new();
    for event in cluster.audit(user) {
        let at = event["requestReceivedTimestamp"].as_str().unwrap_or_default();
        *seconds.entry(at.chars().take(19).collect()).or_default() += 1;
    }
    seconds.into_values().max().unwrap_or_default()
}
