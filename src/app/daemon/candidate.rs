//! A daemon whose log is shared: it stands by, and leads when the Lease says so and the shared log lets it.
//!
//! To take over, the running daemon changes its part in place, because its watches have what the API server may have forgotten.
//! To lead no more, it begins again as a standby, in the same process: whatever was under way is then of nobody.

use std::convert::Infallible;
use std::time::Duration;

use futures::future::BoxFuture;

use jiff::Timestamp;
use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;

use super::{DaemonError, TaskError};
use crate::app::config::Config;
use crate::app::ha::{Elector, ElectorHandle, Leadership, LeaseName};
use crate::core::runtime::watch;
use crate::core::shared_log::SharedLog;
use crate::core::supervise::{Ended, Failed, Supervisor};
use crate::journal::{Journal, JournalError, Role, Shared, Sharing};
use crate::query::status::{self, HaView};
use crate::watch::cluster::{Api, Limits};

/// Interval at which a standby polls the shared log.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// Units are worth a new base when they have so many bytes.
const WORTH_A_BASE: u64 = 64 << 20;
/// Time limit for releasing the Lease.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);
/// Delay before the next attempt to take over.
pub(super) const TAKEOVER_RETRY_DELAY: Duration = Duration::from_millis(500);

/// The candidate of this process, whatever part it has.
pub(super) struct Candidate {
    pub(super) leadership: watch::Receiver<Leadership>,
    pub(super) handle: ElectorHandle,
    pub(super) identity: String,
    pub(super) lease: LeaseName,
    /// The name of the cluster, under which the shared log is kept.
    cluster: String,
    /// Location of the shared log, without secrets.
    shown: String,
    tasks: Supervisor<Infallible>,
}

impl Candidate {
    /// Begins to ask for the Lease, where the configuration has one.
    pub(super) async fn begin(config: &Config) -> Result<Option<Self>, DaemonError> {
        let Some(ha) = &config.ha else { return Ok(None) };
        let api = Api::open(&config.cluster, Limits::default()).await?;
        let cluster = api.name().to_owned();
        let (lease, identity) = (ha.lease(&cluster), ha.identity());
        // A wrong configuration ends the start before anybody is a candidate.
        let shown = engine(config, &ha.log, &cluster)?.shown();
        let (elector, leadership, handle) = Elector::new(api, lease.clone(), identity.clone());
        // Not before it has something to lead with.
        handle.abstain(true);
        let mut tasks = Supervisor::new(CancellationToken::new());
        let stop = tasks.stop();
        tasks.spawn("the Lease", elector.run(stop));
        Ok(Some(Self { leadership, handle, identity, lease, cluster, shown, tasks }))
    }

    /// Returns the parameters that the journal needs to replicate itself.
    pub(super) fn sharing(&self, config: &Config) -> Result<Sharing, DaemonError> {
        let Some(ha) = &config.ha else {
            return Err(DaemonError::Config("[ha] is gone from the configuration: restart decklog".to_owned()));
        };
        share(config, &ha.log, &self.cluster, self.identity.clone(), ha.backlog.0)
    }

    /// Returns the role of this process for status and metrics.
    pub(super) fn view(&self, shared: &Shared) -> HaView {
        let role = match shared.role {
            Role::Leader => status::Role::Leader,
            Role::Standby if shared.caught_up.is_some() => status::Role::Standby,
            Role::Standby | Role::Alone => status::Role::Starting,
        };
        let leader = match &*self.leadership.borrow() {
            Leadership::Leads { .. } => self.identity.clone(),
            Leadership::Follows { holder } => holder.clone().unwrap_or_default(),
            Leadership::Unknown => String::new(),
        };
        let missing =
            shared.missing.map(|unit| format!("unit {unit} of the shared log is missing: it was deleted there"));
        let units = shared.newest.saturating_sub(shared.number);
        let since = shared.caught_up.map_or(0.0, |at| Timestamp::now().duration_since(at).as_secs_f64());
        let lags = role == status::Role::Standby && (units > 0 || shared.problem.is_some());
        HaView {
            role,
            term: shared.term,
            leader,
            lease: self.lease.to_string(),
            behind_units: units,
            behind_seconds: if lags { since } else { 0.0 },
            backlog_bytes: shared.backlog,
            overflows: shared.overflows,
            log: self.shown.clone(),
            unreachable: shared.problem.clone(),
            missing_unit: shared.missing,
            problem: missing.or_else(|| self.handle.problem()),
            // Who has dealt with a file has moved it away.
            apart: shared.apart.iter().filter(|apart| apart.shared.is_some() && apart.file.exists()).cloned().collect(),
            ..HaView::default()
        }
    }

    /// Gives the Lease back, where it has it.
    pub(super) async fn end(self) {
        drop(self.tasks.shut_down(RELEASE_TIMEOUT).await);
    }
}

/// The shared log beside what a sink delivers, for who only reads it.
///
/// # Errors
/// Where the configuration has no such sink, or its type no shared log.
pub async fn sharing(config: &Config, sink: &str) -> Result<Sharing, DaemonError> {
    share(config, sink, &cluster_name(config).await?, "restore".to_owned(), u64::MAX)
}

/// The engine that `[ha]` names, where it is beside what this sink delivers. Nothing is connected yet.
///
/// # Errors
/// Where it can never work, or nothing says what the cluster is called.
pub async fn shared_log(config: &Config, sink: &str) -> Result<Option<Box<dyn SharedLog>>, DaemonError> {
    if config.ha.as_ref().is_none_or(|ha| ha.log != sink) {
        return Ok(None);
    }
    engine(config, sink, &cluster_name(config).await?).map(Some)
}

async fn cluster_name(config: &Config) -> Result<String, DaemonError> {
    Ok(match &config.cluster.name {
        Some(name) => name.clone(),
        None => Api::open(&config.cluster, Limits::default()).await?.name().to_owned(),
    })
}

fn share(config: &Config, sink: &str, cluster: &str, identity: String, backlog: u64) -> Result<Sharing, DaemonError> {
    let wrong = DaemonError::Config;
    let key = config.redact.read_key().map_err(|error| wrong(format!("cannot read [redact] key_file: {error}")))?;
    let Some(key) = key else {
        return Err(wrong(
            "the shared log needs [redact] key_file: every decklog of one log redacts with the same key".to_owned(),
        ));
    };
    let digest = Sha256::new_with_prefix("decklog shared log\n").chain_update(key).finalize();
    Ok(Sharing {
        log: engine(config, sink, cluster)?,
        identity,
        backlog,
        key: digest.iter().map(|byte| format!("{byte:02x}")).collect(),
        poll: POLL_INTERVAL,
        worth_a_base: WORTH_A_BASE,
    })
}

/// The engine of the shared log, which is not connected yet.
fn engine(config: &Config, log: &str, cluster: &str) -> Result<Box<dyn SharedLog>, DaemonError> {
    let wrong = |text: String| DaemonError::Config(format!("the shared log: {text}"));
    let sink = config
        .sink
        .iter()
        .find(|sink| sink.name == log)
        .ok_or_else(|| wrong(format!("the configuration has no sink {log:?}")))?;
    let opened = sink.kind.settings().shared_log(&sink.name, cluster);
    opened.ok_or_else(|| wrong(format!("a sink of type {} has no shared log", sink.kind.word())))?.map_err(wrong)
}

/// Step that follows from the role by the Lease and the role in the shared log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Course {
    Stay,
    /// It tries to take over.
    Take,
    /// It begins again as a standby.
    StepDown,
}

/// Returns the next step. `tries`: an attempt to take over is in progress, which ends by itself.
pub(super) fn course(leadership: &Leadership, tries: bool, shared: &Shared) -> Course {
    match leadership.leads() {
        _ if tries => Course::Stay,
        true if shared.role == Role::Standby => Course::Take,
        false if shared.may_stand_by() => Course::StepDown,
        _ => Course::Stay,
    }
}

/// A try to take over.
pub(super) struct Taking(BoxFuture<'static, Result<Result<(), String>, JournalError>>);

impl Taking {
    pub(super) fn begin(journal: Journal) -> Self {
        Self(Box::pin(async move { journal.lead().await }))
    }

    /// Begins as [`Taking::begin`] does, after a delay.
    pub(super) fn later(journal: Journal) -> Self {
        Self(Box::pin(async move {
            tokio::time::sleep(TAKEOVER_RETRY_DELAY).await;
            journal.lead().await
        }))
    }
}

/// Waits for what the Lease says next.
pub(super) async fn moves(leadership: Option<&mut watch::Receiver<Leadership>>) {
    let news = match leadership {
        Some(leadership) => leadership.changed().await.is_ok(),
        None => false,
    };
    if !news {
        std::future::pending::<()>().await;
    }
}

/// Waits for the end of a try to take over.
pub(super) async fn led(taking: Option<&mut Taking>) -> Result<Result<(), String>, JournalError> {
    match taking {
        Some(taking) => (&mut taking.0).await,
        None => std::future::pending().await,
    }
}

/// The end of a part that leads no more.
pub(super) fn gives_up(why: &str) -> Ended<TaskError> {
    let error = JournalError::Superseded(why.to_owned());
    Ended { name: "the Lease".to_owned(), result: Err(Failed::Error(error.into())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_lost_the_lease_hands_over_what_it_alone_has_seen() {
        let leads = Leadership::Leads { transitions: 1 };
        let follows = Leadership::Follows { holder: None };
        let shared = |role, backlog| Shared { role, backlog, ..Shared::default() };
        for (leadership, tries, shared, expected) in [
            (&leads, false, shared(Role::Standby, 7), Course::Take),
            (&leads, true, shared(Role::Standby, 7), Course::Stay),
            (&leads, false, shared(Role::Leader, 7), Course::Stay),
            (&follows, false, shared(Role::Standby, 7), Course::Stay),
            (&follows, false, shared(Role::Leader, 7), Course::Stay),
            (&follows, false, shared(Role::Leader, 0), Course::StepDown),
            (&Leadership::Unknown, false, shared(Role::Leader, 0), Course::StepDown),
            (&follows, true, shared(Role::Leader, 0), Course::Stay),
            (&follows, false, shared(Role::Alone, 0), Course::Stay),
        ] {
            assert_eq!(course(leadership, tries, &shared), expected, "{leadership:?} {tries} {shared:?}");
        }
    }
}
