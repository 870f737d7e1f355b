//! Entries of Google Cloud Logging in which GKE rewrites the events of its API servers.
//!
//! Lost on the way are the auditID, the URI with `fieldManager` and `dryRun`, and the HTTP code. Hence no manager is named (that of the
//! user agent would be wrong wherever a client names another), a success is 200, and the time is that of the entry: of the request or of
//! its answer, which Google does not say. Of a request that took so long that it has two entries, it is that of the last, and nothing
//! is known of its beginning.

use serde::Deserialize;

use super::body::{self, Parts};
use super::event;
use super::outcome::{Outcome, Reason};
use super::raw::{self, Raw};
use crate::core::k8s::audited::{AuditedRequest, Sender};

/// Members of a `LogEntry`.
#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Entry<'a> {
    #[serde(borrow)]
    proto_payload: Raw<'a>,
    #[serde(borrow)]
    insert_id: Raw<'a>,
    #[serde(borrow)]
    timestamp: Raw<'a>,
    #[serde(borrow)]
    labels: Raw<'a>,
    #[serde(borrow)]
    operation: Raw<'a>,
    #[serde(borrow)]
    resource: Raw<'a>,
}

/// Members of an `AuditLog`.
#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Payload<'a> {
    #[serde(borrow)]
    service_name: Raw<'a>,
    #[serde(borrow)]
    method_name: Raw<'a>,
    #[serde(borrow)]
    resource_name: Raw<'a>,
    #[serde(borrow)]
    authentication_info: Raw<'a>,
    #[serde(borrow)]
    request_metadata: Raw<'a>,
    #[serde(borrow)]
    status: Raw<'a>,
    #[serde(borrow)]
    request: Raw<'a>,
    #[serde(borrow)]
    response: Raw<'a>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Authentication<'a> {
    #[serde(borrow)]
    principal_email: Raw<'a>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Caller<'a> {
    #[serde(borrow)]
    caller_ip: Raw<'a>,
    #[serde(borrow)]
    caller_supplied_user_agent: Raw<'a>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Labels<'a> {
    #[serde(borrow, rename = "command.gke.io/dryRun")]
    dry_run: Raw<'a>,
    #[serde(borrow, rename = "authorization.k8s.io/decision")]
    decision: Raw<'a>,
}

/// Place of an entry among those of one request that takes long.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Operation {
    first: bool,
    last: bool,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Monitored<'a> {
    #[serde(borrow)]
    labels: Raw<'a>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Cluster<'a> {
    #[serde(borrow)]
    project_id: Raw<'a>,
    #[serde(borrow)]
    location: Raw<'a>,
    #[serde(borrow)]
    cluster_name: Raw<'a>,
}

/// Code of `google.rpc.Status`.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Status {
    code: u16,
}

/// Reads one entry, and the cluster that it names. Where it has no time, `time` is taken.
pub(super) fn read(entry: &str, time: Option<i64>) -> (Outcome, Option<String>) {
    let entry: Entry<'_> = match serde_json::from_str(entry) {
        Ok(entry) => entry,
        Err(error) => {
            let sentence = format!("an entry of Cloud Logging cannot be read ({})", raw::place(&error));
            return (Outcome::Unreadable(sentence), None);
        }
    };
    let cluster = cluster(entry.resource);
    let outcome = match request(&entry, time) {
        Ok(outcome) => outcome,
        Err(member) => {
            Outcome::Unreadable(format!("{member} of an entry of Cloud Logging has a shape that decklog does not know"))
        }
    };
    (outcome, cluster)
}

/// Returns the name of a cluster: its project, location and name with slashes between.
fn cluster(resource: Raw<'_>) -> Option<String> {
    let resource: Monitored<'_> = raw::members(resource);
    let labels: Cluster<'_> = raw::members(resource.labels);
    let [project, location, name] = [labels.project_id, labels.location, labels.cluster_name].map(raw::text);
    (!name.is_empty()).then(|| format!("{project}/{location}/{name}"))
}

fn request(entry: &Entry<'_>, time: Option<i64>) -> Result<Outcome, &'static str> {
    let payload: Payload<'_> = raw::strict(entry.proto_payload).map_err(|_| "protoPayload")?;
    if raw::text(payload.service_name) != "k8s.io" {
        return Ok(Outcome::Other(Reason::OtherLog));
    }
    let operation: Option<Operation> =
        entry.operation.map(|of| raw::strict(Some(of))).transpose().map_err(|_| "operation")?;
    if operation.as_ref().is_some_and(|operation| !operation.last) {
        return Ok(Outcome::Other(Reason::Stage));
    }
    let is_split = operation.is_some_and(|operation| !operation.first);
    let (method, path) = (raw::text(payload.method_name), raw::text(payload.resource_name));
    let segments: Vec<&str> = path.split('/').collect();
    let [group, version, path @ ..] = &segments[..] else { return Ok(Outcome::Other(Reason::NoObject)) };
    if path.is_empty() {
        return Ok(Outcome::Other(Reason::NoObject));
    }
    let Some((resource, subresource, verb)) = method_of(&method, version) else {
        // Such as `io.k8s.get` of `apis/apps/v1`, which is no object.
        let is_read = method.rsplit('.').next().is_some_and(|verb| READS.contains(&verb));
        return if is_read { Ok(Outcome::Other(Reason::NoObject)) } else { Err("methodName") };
    };
    let (namespace, name) = place_of(path, resource).ok_or("resourceName")?;
    let authentication: Authentication<'_> =
        raw::strict(payload.authentication_info).map_err(|_| "authenticationInfo")?;
    let caller: Caller<'_> = raw::members(payload.request_metadata);
    let labels: Labels<'_> = raw::members(entry.labels);
    let status: Status = raw::strict(payload.status).map_err(|_| "status")?;
    let at = raw::time(entry.timestamp).or(time).unwrap_or_default();
    let code = match (http(status.code), raw::text(labels.decision).as_str()) {
        (OK, "forbid") => FORBIDDEN,
        (OK, _) => OK,
        (code, _) => Some(body::code(payload.response)).filter(|code| (400..600).contains(code)).unwrap_or(code),
    };
    let mut request = AuditedRequest {
        id: format!("{}/{}", raw::text(entry.insert_id), raw::text(entry.timestamp)),
        verb: verb.to_owned(),
        group: if *group == "core" { String::new() } else { (*group).to_owned() },
        resource: resource.to_owned(),
        subresource,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        sender: Sender {
            user: raw::text(authentication.principal_email),
            agent: raw::clip(raw::text(caller.caller_supplied_user_agent), event::AGENT_MAX),
            addresses: Some(raw::text(caller.caller_ip)).filter(|address| !address.is_empty()).into_iter().collect(),
            ..Sender::default()
        },
        code,
        dry_run: !["", "false"].contains(&raw::text(labels.dry_run).as_str()),
        received: if is_split { 0 } else { at },
        completed: at,
        ..AuditedRequest::default()
    };
    body::fill(&mut request, Parts { sent: payload.request, answered: payload.response, ..Parts::default() });
    // A label says so.
    request.may_be_dry = false;
    Ok(event::checked(request))
}

/// Returns resource, subresource and verb of `io.k8s.GROUP.VERSION.RESOURCE[.SUBRESOURCE].VERB`. The group is written backwards
/// there, and resourceName has it as it is, as well as the version, by which the resource is found.
fn method_of<'a>(method: &'a str, version: &str) -> Option<(&'a str, String, &'a str)> {
    let segments: Vec<&str> = method.split('.').collect();
    let at = (0..segments.len().saturating_sub(2)).rev().find(|&at| segments.get(at) == Some(&version))?;
    let [resource, subresource @ .., verb] = segments.get(at + 1..)? else { return None };
    let is_whole = [resource, verb].iter().all(|part| !part.is_empty());
    is_whole.then(|| (*resource, subresource.join("/"), *verb))
}

/// Returns namespace and name of `[namespaces/NAMESPACE/]RESOURCE[/NAME[/SUBRESOURCE]]`, if it is for this resource.
fn place_of<'a>(path: &[&'a str], resource: &str) -> Option<(&'a str, &'a str)> {
    let (namespace, path) = match path {
        ["namespaces", namespace, rest @ ..] if resource != "namespaces" => (*namespace, rest),
        path => ("", path),
    };
    let [of, name @ ..] = path else { return None };
    (*of == resource).then(|| (namespace, name.first().copied().unwrap_or_default()))
}

/// Verbs of requests that change nothing.
const READS: [&str; 5] = ["get", "list", "watch", "head", "options"];

const OK: u16 = 200;
const FORBIDDEN: u16 = 403;

/// Returns the HTTP code that stands for a gRPC code (`google/rpc/code.proto`).
fn http(code: u16) -> u16 {
    match code {
        0 => OK,
        1 => 499,
        3 | 9 | 11 => 400,
        4 => 504,
        5 => 404,
        6 | 10 => 409,
        7 => FORBIDDEN,
        8 => 429,
        12 => 501,
        14 => 503,
        16 => 401,
        _ => 500,
    }
}
