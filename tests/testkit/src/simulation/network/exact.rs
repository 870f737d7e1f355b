//! What befalls lists of exact versions, by which decklog asks for what watches have forgotten.

use std::sync::Arc;

use decklog::sim;
use decklog::sim::faults::{Act, Lie, On};

use super::super::faults::Fault;
use super::Network;

/// The faults that they can meet.
pub const FAULTS: &[Fault] = &[
    Fault::Refused,
    Fault::Reset,
    Fault::Hang,
    Fault::SlowHead,
    Fault::TooMany,
    Fault::Unavailable,
    Fault::Internal,
    Fault::Unauthorized,
    Fault::Forbidden,
    Fault::NotFound,
    Fault::Empty,
    Fault::CutList,
    Fault::HalfOpen,
    Fault::SlowBody,
    Fault::Garbage,
    Fault::ExactGone,
    Fault::ExactNewest,
    Fault::ExactUncounted,
    Fault::ExactMiscounted,
];

impl Network {
    /// The server's answer to the request that is about to be made says what is not so, where the fault is of that kind.
    pub fn lie(&self, fault: Fault, source: &str, uri: &http::Uri) {
        let query = uri.query().unwrap_or_default();
        let lie = match fault {
            Fault::ExactNewest => Lie::Newest,
            Fault::ExactUncounted => Lie::NoCount,
            Fault::ExactMiscounted => Lie::Miscount(self.miscount(source, query)),
            _ => return,
        };
        self.stage.struck(fault, format_args!("{source} {lie:?}"));
        // Nothing waits between this and the request, so no other one meets it.
        self.sim.fault(sim::faults::Fault::new(On::path(uri.path()).query(query), Act::Lie(lie)));
    }

    /// One too many or too few. Not too few where something of the source has changed: a server that deceives so cannot
    /// be found out by anybody who counts.
    pub fn miscount(&self, source: &str, query: &str) -> isize {
        let version = query.split('&').find_map(|part| part.strip_prefix("resourceVersion=")?.parse::<u64>().ok());
        let resource = source.split('/').next().unwrap_or_default();
        let changed = |row: &Arc<sim::Row>| Some(row.revision) == version;
        let few = self.stage.throw(|dice| dice.percent(50)) && !self.sim.history_of(resource).iter().any(changed);
        if few { -1 } else { 1 }
    }
}
