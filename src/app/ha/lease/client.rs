//! The way to a Lease, and what it looks like there.

use std::time::Duration;

use http::Method;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use tokio::time::{Instant, sleep_until, timeout};

use super::LeaseName;
use super::machine::{Action, Record};
use crate::watch::cluster::{Api, Failure};

/// A Lease has a few hundred bytes, and what others write into its metadata.
const LARGEST: usize = 1 << 20;

/// Asks for one Lease.
#[derive(Debug)]
pub(super) struct LeaseClient {
    api: Api,
    name: LeaseName,
    /// Time limit of one request.
    limit: Duration,
    /// The Lease as it was last read or written, including the fields of other writers.
    lease: Option<Lease>,
}

/// Result of an action.
#[derive(Debug)]
pub(super) enum Answer {
    /// It was a wait.
    Nothing,
    /// The record in the Lease, and its resourceVersion.
    Read { record: Option<Record>, version: Option<String> },
    /// It says now what it was to say.
    Wrote,
    /// Neither.
    Failed(Failed),
}

/// A request that failed.
#[derive(Debug)]
pub(super) struct Failed {
    /// Set if the failed action was a read of the Lease.
    pub(super) reading: bool,
    /// Set if the failed action was the creation of the Lease.
    pub(super) making: bool,
    /// The version that it was written upon.
    pub(super) version: Option<String>,
    /// Why.
    pub(super) why: Failure,
}

impl LeaseClient {
    pub(super) const fn new(api: Api, name: LeaseName, limit: Duration) -> Self {
        Self { api, name, limit, lease: None }
    }

    /// Does what the machine asks for.
    pub(super) async fn carry_out(&mut self, act: Action, began: Instant) -> Answer {
        let failed = match act {
            Action::Wait(until) => {
                sleep_until(began + until).await;
                return Answer::Nothing;
            }
            Action::Read => match self.within(self.read()).await {
                Ok(lease) => {
                    self.lease = lease;
                    let record = self.lease.as_ref().map(record_of);
                    return Answer::Read { record, version: self.version() };
                }
                Err(why) => Failed { reading: true, making: false, version: None, why },
            },
            Action::Create(record) => {
                let lease = object(&record, None, &self.name);
                match self.within(self.write(Method::POST, &self.name.collection(), &lease)).await {
                    Ok(lease) => {
                        self.lease = Some(lease);
                        return Answer::Wrote;
                    }
                    Err(why) => Failed { reading: false, making: true, version: None, why },
                }
            }
            Action::Write(record) => {
                let lease = object(&record, self.lease.as_ref(), &self.name);
                match self.within(self.write(Method::PUT, &self.name.path(), &lease)).await {
                    Ok(lease) => {
                        self.lease = Some(lease);
                        return Answer::Wrote;
                    }
                    Err(why) => Failed { reading: false, making: false, version: self.version(), why },
                }
            }
        };
        if let Failure::Unauthorized | Failure::Tls(_) = failed.why {
            // Bounded like a request: a program may have to give the credentials. What it left off goes on next time.
            let _elapsed = timeout(self.limit, self.api.refresh()).await;
        }
        Answer::Failed(failed)
    }

    async fn within<T>(&self, asking: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
        match timeout(self.limit, asking).await {
            Ok(answer) => answer,
            Err(_elapsed) => Err(Failure::Away("the API server does not answer".to_owned())),
        }
    }

    async fn read(&self) -> Result<Option<Lease>, Failure> {
        match self.api.get(&self.name.path(), "application/json", LARGEST).await {
            Ok(bytes) => lease(&bytes).map(Some),
            Err(Failure::NotFound) => Ok(None),
            Err(why) => Err(why),
        }
    }

    async fn write(&self, method: Method, path: &str, object: &Lease) -> Result<Lease, Failure> {
        let body = serde_json::to_vec(object).map_err(|error| Failure::Refused(error.to_string()))?;
        lease(&self.api.write(method, path, body, LARGEST).await?)
    }

    fn version(&self) -> Option<String> {
        self.lease.as_ref()?.metadata.resource_version.clone()
    }
}

fn lease(bytes: &[u8]) -> Result<Lease, Failure> {
    serde_json::from_slice(bytes).map_err(|_| Failure::Undecodable("the Lease cannot be read".to_owned()))
}

/// Reads the leader election record of a Lease.
fn record_of(lease: &Lease) -> Record {
    let Some(spec) = &lease.spec else { return Record::default() };
    let time = |time: &Option<MicroTime>| time.as_ref().map(|time| time.0);
    Record {
        holder: spec.holder_identity.clone().unwrap_or_default(),
        lasts: spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok()).map(Duration::from_secs),
        acquired: time(&spec.acquire_time),
        renewed: time(&spec.renew_time),
        transitions: spec.lease_transitions.and_then(|number| u64::try_from(number).ok()).unwrap_or_default(),
    }
}

/// The Lease with this in it, and with all else that is there, its version included: so it is only written on what was read.
fn object(record: &Record, there: Option<&Lease>, name: &LeaseName) -> Lease {
    let mut lease = there.cloned().unwrap_or_else(|| Lease {
        metadata: ObjectMeta {
            namespace: Some(name.namespace.clone()),
            name: Some(name.name.clone()),
            ..ObjectMeta::default()
        },
        spec: None,
    });
    let time = |time: Option<Timestamp>| time.map(MicroTime);
    lease.spec = Some(LeaseSpec {
        holder_identity: Some(record.holder.clone()),
        lease_duration_seconds: record.lasts.map(|lasts| i32::try_from(lasts.as_secs()).unwrap_or(i32::MAX)),
        acquire_time: time(record.acquired),
        renew_time: time(record.renewed),
        lease_transitions: Some(i32::try_from(record.transitions).unwrap_or(i32::MAX)),
        ..lease.spec.unwrap_or_default()
    });
    lease
}
