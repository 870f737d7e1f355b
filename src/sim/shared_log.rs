//! An engine of the shared log in memory, which does what engines and networks do: it is away, it is slow, it loses answers,
//! and it is restored to an earlier state.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;

use crate::core::shared_log::{Appended, Base, Extent, LogError, Numbered, SharedLog};

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// It is answered.
    Pass,
    /// It does not arrive.
    Fail,
    /// It is done, and the answer is lost.
    Lose,
    /// It arrives so much later.
    Delay(Duration),
}

/// Decides what happens to the requests of one handle.
pub type Network = Arc<Mutex<dyn FnMut(&'static str) -> Act + Send>>;

/// What the engine holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// The units.
    pub units: BTreeMap<u64, Bytes>,
    /// Parts of bases, whole or not.
    pub parts: BTreeMap<(u64, u32), Bytes>,
    /// The bases that are whole.
    pub bases: BTreeMap<u64, Base>,
}

/// A handle to an engine; what is cloned leads to the same one.
#[derive(Clone, Default)]
pub struct Engine {
    held: Arc<Mutex<Held>>,
    network: Option<Network>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").finish_non_exhaustive()
    }
}

impl Engine {
    /// Another handle to the same engine, behind this network.
    #[must_use]
    pub fn behind(&self, network: Network) -> Self {
        Self { held: Arc::clone(&self.held), network: Some(network) }
    }

    /// What it holds now.
    #[must_use]
    pub fn held(&self) -> Held {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// It is restored to what it held then.
    pub fn restore(&self, held: Held) {
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = held;
    }

    fn does<'a, T: Send + 'a>(
        &'a mut self,
        what: &'static str,
        work: impl FnOnce(&mut Held) -> T + Send + 'a,
    ) -> BoxFuture<'a, Result<T, LogError>> {
        async move {
            let act = match &self.network {
                Some(network) => network.lock().unwrap_or_else(PoisonError::into_inner)(what),
                None => Act::Pass,
            };
            let unreachable = || LogError::Retry("the engine is not reached".to_owned());
            match act {
                Act::Pass | Act::Lose => {}
                Act::Fail => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    return Err(unreachable());
                }
                Act::Delay(delay) => tokio::time::sleep(delay).await,
            }
            let done = work(&mut self.held.lock().unwrap_or_else(PoisonError::into_inner));
            if act == Act::Lose { Err(unreachable()) } else { Ok(done) }
        }
        .boxed()
    }
}

impl Held {
    fn newest(&self) -> u64 {
        let unit = self.units.keys().next_back().copied().unwrap_or(0);
        unit.max(self.bases.keys().next_back().copied().unwrap_or(0))
    }
}

impl SharedLog for Engine {
    fn shown(&self) -> String {
        "memory".to_owned()
    }

    fn extent(&mut self) -> BoxFuture<'_, Result<Extent, LogError>> {
        self.does("extent", |held| Extent {
            oldest: held.units.keys().next().copied(),
            newest: held.newest(),
            bases: held.bases.values().copied().collect(),
        })
    }

    fn append(&mut self, number: u64, bytes: Bytes) -> BoxFuture<'_, Result<Appended, LogError>> {
        self.does("append", move |held| match held.units.get(&number) {
            Some(there) if *there == bytes => Appended::Done,
            Some(_) => Appended::Taken,
            None if held.newest() >= number => Appended::Taken,
            None if held.newest() < number - 1 => Appended::Behind(held.newest()),
            None => {
                held.units.insert(number, bytes);
                Appended::Done
            }
        })
    }

    fn read(&mut self, after: u64, bytes: usize) -> BoxFuture<'_, Result<Vec<Numbered>, LogError>> {
        self.does("read", move |held| {
            let (mut found, mut size) = (Vec::new(), 0);
            while let Some(unit) = held.units.get(&(after + 1 + found.len() as u64)).filter(|_| size < bytes) {
                size += unit.len();
                found.push(Numbered { number: after + 1 + found.len() as u64, bytes: unit.clone() });
            }
            found
        })
    }

    fn put_part(&mut self, number: u64, part: u32, bytes: Bytes) -> BoxFuture<'_, Result<(), LogError>> {
        self.does("put_part", move |held| drop(held.parts.insert((number, part), bytes)))
    }

    fn finish_base(&mut self, base: Base) -> BoxFuture<'_, Result<(), LogError>> {
        self.does("finish_base", move |held| {
            held.bases.insert(base.number, base);
        })
    }

    fn part(&mut self, number: u64, part: u32) -> BoxFuture<'_, Result<Bytes, LogError>> {
        let read = self.does("part", move |held| held.parts.get(&(number, part)).cloned());
        async move { read.await?.ok_or_else(|| LogError::Retry("the part is not there".to_owned())) }.boxed()
    }

    fn truncate(&mut self, upto: u64) -> BoxFuture<'_, Result<(), LogError>> {
        self.does("truncate", move |held| {
            held.units.retain(|number, _| *number > upto);
            held.bases.retain(|number, _| *number >= upto);
            held.parts.retain(|(number, _), _| *number >= upto);
        })
    }

    fn check(&mut self) -> BoxFuture<'_, Result<(), LogError>> {
        self.does("check", |_| ())
    }
}
