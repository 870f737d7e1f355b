//! The clusters of a process that has several, as the endpoints see them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Semaphore, watch};

use super::Endpoints;
use super::readers::Authorities;
use crate::query::status::{Alarm, Live, Trouble, failing, refused};

/// The clusters of this process by their names; clones are handles of the same.
#[derive(Clone, Debug, Default)]
pub struct Clusters(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    members: BTreeMap<String, Member>,
    process: Live,
}

/// One of them.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its state directory; nothing where its configuration has never been right.
    pub state: Option<PathBuf>,
    /// Endpoints of its daemon while it runs.
    pub endpoints: watch::Receiver<Option<Endpoints>>,
    /// Error that ended its daemon, until the next start.
    pub failed: Option<Trouble>,
    /// Error in its file, until the file is right.
    pub refused: Option<Trouble>,
    /// Number of restarts after an error.
    pub restarts: u64,
    /// Set while this cluster keeps systemd's watchdog from being fed.
    pub stalled: bool,
    /// Its journal is read by one at a time: where its disk does not answer, nobody else waits in threads.
    pub(super) turn: Arc<Semaphore>,
}

impl Member {
    /// A cluster that has not begun.
    #[must_use]
    pub fn new(state: Option<PathBuf>, endpoints: watch::Receiver<Option<Endpoints>>) -> Self {
        let turn = Arc::new(Semaphore::new(1));
        Self { state, endpoints, failed: None, refused: None, restarts: 0, stalled: false, turn }
    }

    /// Returns the alarms that the process itself raises for this cluster.
    pub(super) fn alarms(&self) -> Vec<Alarm> {
        self.failed.as_ref().map(failing).into_iter().chain(self.refused.as_ref().map(refused)).collect()
    }
}

impl Clusters {
    /// A cluster, from now on.
    pub fn set(&self, name: &str, member: Member) {
        self.lock().members.insert(name.to_owned(), member);
    }

    /// It is none any more.
    pub fn remove(&self, name: &str) {
        self.lock().members.remove(name);
    }

    /// Changes what is known of a cluster.
    pub fn change(&self, name: &str, change: impl FnOnce(&mut Member)) {
        if let Some(member) = self.lock().members.get_mut(name) {
            change(member);
        }
    }

    /// Publishes the state of this process.
    pub fn set_process(&self, live: Live) {
        self.lock().process = live;
    }

    /// See [`Clusters::set_process`].
    pub(super) fn process(&self) -> Live {
        self.lock().process.clone()
    }

    /// All of them, or the one with this name; nothing where there is none of this name.
    pub(crate) fn named(&self, name: Option<&str>) -> Option<Vec<(String, Member)>> {
        let inner = self.lock();
        match name {
            None => Some(inner.members.iter().map(|(name, member)| (name.clone(), member.clone())).collect()),
            Some(name) => inner.members.get(name).map(|member| vec![(name.to_owned(), member.clone())]),
        }
    }

    /// Returns who says who the readers of each cluster are.
    pub(crate) fn authorities(&self) -> Authorities {
        let clusters = self.clone();
        Box::new(move || {
            let members = clusters.lock().members.clone();
            let of = |member: &Member| member.endpoints.borrow().as_ref().map(|running| Arc::clone(&running.authority));
            members.iter().map(|(name, member)| (name.clone(), of(member))).collect()
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
