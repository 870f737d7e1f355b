//! What the servers that clients talk to have used: processor time and memory, as the kernel counts them.

#![allow(dead_code, reason = "most of it is for the bench alone")]

use std::fs;
use std::time::Duration;

use kube::client::Body;

use super::{Cluster, Parts, Version, client_of};

/// Processor time since the start of each server.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// The other API server, through which nobody writes.
    pub api: Duration,
    pub etcd: Duration,
}

impl Cluster {
    /// A control plane that can be measured: nobody follows its etcd, and the API servers that are started from now on collect their
    /// garbage as they do by themselves.
    pub async fn start_measured(version: Version) -> Self {
        let mut cluster = Self::begin(version, Parts::Bare, &[], &[], false).await;
        (cluster.oracle, cluster.gogc) = (None, "100");
        cluster
    }

    /// What the servers have used by now.
    pub fn usage(&self) -> Usage {
        Usage { api: self.second_time(), etcd: time_of(self.etcd.as_ref().unwrap().id()) }
    }

    /// The processor time that the other API server has used since it was started.
    pub fn second_time(&self) -> Duration {
        time_of(self.second_id())
    }

    fn second_id(&self) -> u32 {
        self.second.lock().unwrap().as_ref().unwrap().id()
    }

    /// The other API server collects its garbage. The peak of its memory is counted from here on.
    pub async fn collect_garbage(&self) {
        let client = client_of(&self.path("second.kubeconfig")).await.unwrap();
        let request = http::Request::get("/debug/pprof/heap?gc=1").body(Body::empty()).unwrap();
        let answer = client.send(request).await.unwrap();
        assert!(answer.status().is_success(), "{}", answer.status());
        fs::write(format!("/proc/{}/clear_refs", self.second_id()), "5").unwrap();
    }

    /// The most bytes that the other API server had resident since [`Cluster::collect_garbage`].
    pub fn peak(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.second_id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap() * 1024
    }
}

fn time_of(id: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap();
    // The second field is the name, and may have spaces. Times are in hundredths of a second, everywhere.
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split(' ').collect();
    Duration::from_millis(10 * fields[12..14].iter().map(|ticks| ticks.parse::<u64>().unwrap()).sum::<u64>())
}
