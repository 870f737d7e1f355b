//! Judgement of a daemon: its log is the truth, its commands say the same, and a replay of the log gives the cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use decklog::sim::{self, Sim};
use serde_json::Value;

use super::super::{truth, until};
use super::Daemon;
use crate::judge::{Entry, Scope, Verdict, judge};

impl Daemon {
    /// From now on the truth is another one: the cluster is about to be put back.
    pub fn before_restore(&mut self, sim: &Sim) {
        self.before = Some(truth(sim));
    }

    fn verdict(&self, sim: &Sim, scope: &Scope) -> Verdict {
        let now = truth(sim);
        match &self.before {
            Some(before) => judge(before, Some(&now), &self.entries, scope),
            None => judge(&now, None, &self.entries, scope),
        }
    }

    /// Waits until nothing is missing from the log up to `scope.upto`.
    pub async fn catch_up(&mut self, sim: &Sim, scope: &Scope) {
        let mut judged = usize::MAX;
        let mut verdict = Verdict::default();
        until(&format!("the log to tell everything up to revision {}", scope.upto), async || {
            self.must_run();
            // Judging again what was judged already would find the same.
            if self.entries().len() != judged {
                judged = self.entries.len();
                verdict = self.verdict(sim, scope);
            }
            // What is wrong stays wrong, and the last judgement says it.
            if verdict.behind.is_empty() || !verdict.wrong.is_empty() {
                Ok(())
            } else {
                Err(format!("{verdict}\n{}", self.last_words()))
            }
        })
        .await;
    }

    /// The log is the truth, whole up to `scope.upto`.
    #[track_caller]
    pub fn right(&mut self, sim: &Sim, scope: &Scope) {
        self.entries();
        let verdict = self.verdict(sim, scope);
        assert!(verdict.is_right(), "the log is not the truth:\n{verdict}\n{}", self.last_words());
    }

    /// The last judgement, of a daemon that has stopped: over the file and over what its own commands say.
    pub async fn judged(&mut self, sim: &Sim, scope: &Scope) {
        assert!(self.running.is_none(), "it still runs");
        self.right(sim, scope);
        self.consistent().await;
        let resources: BTreeSet<String> = self.entries.iter().map(Entry::full_resource).collect();
        for resource in resources {
            if let Ok(objects) = sim.objects(&resource) {
                let objects: Vec<_> = objects.into_iter().filter(|row| in_scope(scope, row)).collect();
                self.replays_to(&resource, &objects);
            }
        }
    }

    /// What it has in its file is what its journal begins with, whole lines both.
    pub async fn consistent_with_its_journal(&self) {
        let file = fs::read_to_string(self.log()).unwrap_or_default();
        let tail = self.command(&["tail", "-o", "json", "--last", "1000000"]).await.done();
        assert!((file.is_empty() || file.ends_with('\n')) && tail.starts_with(&file), "the file is not the journal's");
        self.command(&["verify"]).await.done();
    }

    /// Its file is whole, is what the journal says, and the journal is proved by `verify`.
    pub async fn consistent(&self) {
        let file = fs::read_to_string(self.log()).unwrap_or_default();
        assert!(file.is_empty() || file.ends_with('\n'), "the log ends within a line");
        let tail = self.command(&["tail", "-o", "json", "--last", "1000000"]).await.done();
        assert!(tail == file, "tail -o json prints other bytes than the file has");
        self.command(&["verify"]).await.done();
        let log = self.log();
        self.command(&["verify", log.to_str().unwrap()]).await.done();
    }

    /// Invariant 9: replaying the log gives the objects that the API server has.
    #[track_caller]
    fn replays_to(&self, resource: &str, objects: &[std::sync::Arc<sim::Row>]) {
        let mut state = BTreeMap::new();
        for entry in self.entries.iter().filter(|entry| entry.gap.is_none() && entry.full_resource() == resource) {
            match entry.kind.as_str() {
                "DELETED" => drop(state.remove(&entry.key())),
                _ => drop(state.insert(entry.key(), entry)),
            }
        }
        let wanted: Vec<_> = objects.iter().map(|row| (row.namespace.to_string(), row.name.to_string())).collect();
        assert!(state.keys().eq(wanted.iter()), "{resource}: {:?}, not {wanted:?}", state.keys());
        for row in objects {
            let entry = state[&(row.namespace.to_string(), row.name.to_string())];
            assert_eq!((entry.rv(), entry.uid.as_str()), (row.revision, &*row.uid), "{entry}");
            if entry.redacted.is_empty() {
                let told: Value = serde_json::from_str(entry.object.as_ref().unwrap().get()).unwrap();
                let mut there = row.value();
                // A row has them or not, as lists and watches of the real server do.
                for key in ["apiVersion", "kind"] {
                    there[key] = told[key].clone();
                }
                assert_eq!(told, there, "{entry}");
            }
        }
    }
}

fn in_scope(scope: &Scope, row: &sim::Row) -> bool {
    scope.namespaces.as_ref().is_none_or(|namespaces| namespaces.contains(&*row.namespace))
}
