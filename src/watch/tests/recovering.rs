//! Positions that watches have forgotten and etcd has not.

use super::*;

impl Place {
    /// What happened to ConfigMaps after one revision, as the log tells it: what was recovered up to the other one.
    fn recovered(&self, after: u64, upto: u64) -> Vec<String> {
        let truth = self.truth(after);
        let at = |line: &String| line.rsplit('@').next().unwrap().parse::<u64>().unwrap();
        truth.iter().map(|line| if at(line) <= upto { line.replace("watched", "recovered") } else { line.clone() }).collect()
    }

    /// The daemon is stopped meanwhile, and no watch can begin at what it knows.
    async fn forget(&self) {
        self.sim.forget_watch_history("configmaps", self.sim.revision());
    }

    /// The lines of the log as they are, without what differs from one journal to another.
    fn lines(&self) -> Vec<String> {
        let mut reader = crate::journal::Reader::open(&self.state()).unwrap();
        let entries = reader.entries_after(Seq(0), 100_000, usize::MAX).unwrap();
        let line = |line: &[u8]| {
            let mut value: serde_json::Value = serde_json::from_slice(line).unwrap();
            for key in ["epoch", "time", "evidence"] {
                value.as_object_mut().unwrap().remove(key);
            }
            value.to_string()
        };
        entries.iter().map(|stored| line(&stored.line)).collect()
    }

    /// Objects that change, go, come again, and come and go, with others in between.
    fn live(&self) {
        self.change("a", "2");
        self.change("a", "3");
        self.drop("b");
        self.map("new", "1");
        self.sim.create("secrets", objects::secret("shop", "other", &[])).unwrap();
        self.map("short", "1");
        self.change("short", "2");
        self.drop("short");
        self.drop("c");
        self.map("c", "again");
        self.sim.delete("secrets", "shop", "other").unwrap();
        self.map("b", "again");
        self.drop("b");
        self.change("new", "2");
        self.sim.create("secrets", objects::secret("shop", "more", &[])).unwrap();
    }
}

/// Fault 5: 410 at the start of a watch.
#[tokio::test]
async fn what_a_watch_has_forgotten_is_recovered() {
    let place = Place::new().await;
    // Two daemons over one cluster: one watches all the time, and the other one has to recover.
    let other = Place { sim: place.sim.clone(), dir: tempfile::tempdir().unwrap(), timings: quick() };
    place.sim.write_kubeconfig(&other.dir.path().join("kubeconfig")).unwrap();
    for name in ["a", "b", "c"] {
        place.map(name, "1");
    }
    let daemon = place.ready(maps()).await;
    let watching = other.ready(maps()).await;
    let first = daemon.until(&place, |log| log.len() == 3).await;
    watching.until(&other, |log| log.len() == 3).await;
    daemon.stop().await;
    let from = place.sim.revision();
    place.live();
    watching.until(&other, |log| log.len() == 3 + place.truth(from).len()).await;
    watching.stop().await;
    place.forget().await;
    let upto = place.sim.revision();
    let daemon = place.ready(maps()).await;
    place.sim.wait_for_watches("configmaps", 1).await.unwrap();
    place.map("after", "1");
    let log = daemon.until_last(&place, "after@").await;
    daemon.stop().await;
    assert_eq!(log[3..], place.recovered(from, upto), "{first:?}");
    // But for what says when and how it is known, they are the same to the byte.
    let lines = place.lines();
    assert_eq!(lines[..lines.len() - 1], other.lines());
}
