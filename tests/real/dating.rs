//! When things happened while decklog was away: the time that the cluster says contains the true one, to seconds.

use std::fs;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::decklog::Decklog;
use crate::harness::{Cluster, LIMIT, Parts, Version, until};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// Deletions of one absence, each after another renewal of a Lease; as many more as fit into `DECKLOG_ABSENCE` seconds.
const DELETIONS: u32 = 4;
/// The API server compacts etcd every five minutes, up to what was there five minutes ago.
const COMPACTED_AFTER: SignedDuration = SignedDuration::from_secs(290);
/// Seconds between two deletions where `DECKLOG_ABSENCE` is given.
const SECONDS_APART: u32 = 30;

/// A deletion carries no time. It is dated to seconds, whether decklog was down, stopped, or read it from etcd's history.
pub async fn scenario(version: Version) {
    let mut cluster = Cluster::start(version, Parts::Full).await;
    let mut daemon = Decklog::new(&cluster, "calm", "resources = [\"configmaps\"]");
    let absences = ["down", "paused", "forgotten"];
    let seconds: u32 = std::env::var("DECKLOG_ABSENCE").map_or(0, |seconds| seconds.parse().unwrap());
    let deletions = (seconds / SECONDS_APART).max(DELETIONS);
    let apart = Duration::from_secs(u64::from(seconds / deletions));
    for absence in absences {
        for number in 0..deletions {
            let map = json!({"metadata": {"name": format!("{absence}-{number}")}});
            cluster.create(MAPS, &map).await;
        }
    }
    daemon.start();
    daemon.ready().await;
    let (mut times, mut returned) = (Vec::new(), Vec::new());
    for absence in absences {
        match absence {
            "paused" => daemon.signal(Signal::STOP),
            _ => daemon.stop().await,
        }
        for number in 0..deletions {
            // Each in a time of its own.
            let begun = Instant::now();
            renewed(&cluster).await;
            while begun.elapsed() < apart {
                renewed(&cluster).await;
            }
            let (name, before) = (format!("{absence}-{number}"), Timestamp::now());
            cluster.delete(&format!("{MAPS}/{name}")).await;
            times.push((name, before, Timestamp::now()));
        }
        returned.push(Timestamp::now());
        match absence {
            "paused" => daemon.signal(Signal::CONT),
            "forgotten" => {
                // Its watch cache begins behind all of that.
                cluster.restart_api(true).await;
                daemon.start();
            }
            _ => daemon.start(),
        }
        let last = format!("{absence}-{}", deletions - 1);
        daemon.tells("the last deletion", |entry| entry.kind == "DELETED" && entry.name == last).await;
    }
    // A watch that has just been opened brings what happened before; after a while what it brings happens now.
    let mut number = 0;
    until("a deletion that is seen as it happens", LIMIT, async || {
        number += 1;
        let live = format!("live-{number}");
        cluster.create(MAPS, &json!({"metadata": {"name": live}})).await;
        cluster.delete(&format!("{MAPS}/{live}")).await;
        daemon.tells("its deletion", |entry| entry.kind == "DELETED" && entry.name == live).await;
        let text = fs::read_to_string(daemon.log()).map_err(|error| error.to_string())?;
        let deleted = |line: &Value| line["type"] == "DELETED" && line["name"] == live.as_str();
        let line = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()).find(deleted);
        let seen = line.as_ref().is_some_and(|line| line.get("happenedBetween").is_none());
        if seen { Ok(()) } else { Err(format!("{line:?}")) }
    })
    .await;
    let lines = until("whole lines", LIMIT, async || {
        let text = fs::read_to_string(daemon.log()).map_err(|error| error.to_string())?;
        text.lines()
            .map(serde_json::from_str::<Value>)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| error.to_string())
    })
    .await;
    let deletion = |name: &str| lines.iter().find(|line| line["type"] == "DELETED" && line["name"] == name).unwrap();
    for (absence, returned) in absences.iter().zip(returned) {
        let mut widths = Vec::new();
        for (name, before, after) in times.iter().filter(|(name, ..)| name.starts_with(*absence)) {
            let line = deletion(name);
            let bound =
                |place: usize| line["happenedBetween"][place].as_str().map(|time| time.parse::<Timestamp>().unwrap());
            // The last ones may have been seen as they happened.
            let seen: Timestamp = line["time"].as_str().unwrap().parse().unwrap();
            let (earliest, latest) = bound(0).zip(bound(1)).unwrap_or((seen, seen));
            let slack = Duration::from_secs(2);
            let slack = if bound(0).is_none() { slack } else { Duration::ZERO };
            assert!(
                earliest <= *after + slack && latest + slack >= *before,
                "{name} was deleted between {before} and {after}, and the entry says {earliest} to {latest}: {line}"
            );
            // What was compacted by then, nobody can date to seconds.
            if returned.duration_since(*before) < COMPACTED_AFTER {
                widths.push(latest.duration_since(earliest).as_secs_f64());
            }
        }
        widths.sort_by(f64::total_cmp);
        eprintln!("{absence}: the bounds are {widths:?} s wide");
        assert!(widths[widths.len() / 2] <= 10.0, "{absence}: {widths:?}");
    }
    daemon.stop().await;
}

/// Waits until a Lease of the control plane or of a node is renewed.
async fn renewed(cluster: &Cluster) {
    let leases = async || {
        let mut times = Vec::new();
        for namespace in ["kube-system", "kube-node-lease"] {
            let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases");
            let (_, list) = cluster.call("GET", &path, None).await;
            times
                .extend(list["items"].as_array().into_iter().flatten().map(|lease| lease["spec"]["renewTime"].clone()));
        }
        times
    };
    let before = leases().await;
    until(
        "a Lease to be renewed",
        LIMIT,
        async || if leases().await == before { Err(format!("{before:?}")) } else { Ok(()) },
    )
    .await;
}
