//! Events of `audit.k8s.io`, of version v1 and v1beta1, as the API server writes them.
//!
//! Members may come in any order: exporters sort them.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::body::{self, Parts};
use super::outcome::{Outcome, Reason};
use super::raw::{self, Raw};
use super::uri;
use crate::core::k8s::audited::{AuditedRequest, Sender};

/// Most bytes of a selector. One that was shortened would be another selector, so that of a longer one nothing is known.
const SELECTOR_MAX: usize = 64 << 10;

/// Selector of which nothing is known, and which therefore may select everything.
const UNKNOWN_SELECTOR: &str = "?";

/// Most bytes of a name of any sort.
const NAME_MAX: usize = 1 << 10;

/// Most bytes of a user agent; the API server cuts it there and appends [`TRUNCATED`].
pub(super) const AGENT_MAX: usize = 1 << 10;

/// Mark of a user agent that the API server has cut (`pkg/audit/request.go`).
const TRUNCATED: &str = "...TRUNCATED";

/// Most addresses that are kept. Before the last one, a client writes what it likes (`X-Forwarded-For`), and as many as it likes.
const ADDRESSES_MAX: usize = 8;

/// Members of an event that are read.
#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Event<'a> {
    #[serde(borrow)]
    api_version: Raw<'a>,
    #[serde(borrow, rename = "auditID")]
    audit_id: Raw<'a>,
    #[serde(borrow)]
    stage: Raw<'a>,
    #[serde(borrow, rename = "requestURI")]
    request_uri: Raw<'a>,
    #[serde(borrow)]
    verb: Raw<'a>,
    #[serde(borrow)]
    user: Raw<'a>,
    #[serde(borrow)]
    impersonated_user: Raw<'a>,
    #[serde(borrow, rename = "sourceIPs")]
    source_ips: Raw<'a>,
    #[serde(borrow)]
    user_agent: Raw<'a>,
    #[serde(borrow)]
    object_ref: Raw<'a>,
    #[serde(borrow)]
    response_status: Raw<'a>,
    #[serde(borrow)]
    request_object: Raw<'a>,
    #[serde(borrow)]
    response_object: Raw<'a>,
    #[serde(borrow)]
    request_received_timestamp: Raw<'a>,
    #[serde(borrow)]
    stage_timestamp: Raw<'a>,
    /// Of v1beta1 before it had the two others.
    #[serde(borrow)]
    timestamp: Raw<'a>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct User<'a> {
    #[serde(borrow)]
    username: Raw<'a>,
    #[serde(borrow)]
    extra: Raw<'a>,
}

/// Facts that the authenticator of EKS adds, lists of one text each.
#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Extra<'a> {
    #[serde(borrow)]
    arn: Raw<'a>,
    #[serde(borrow)]
    canonical_arn: Raw<'a>,
    #[serde(borrow)]
    session_name: Raw<'a>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct ObjectRef<'a> {
    #[serde(borrow)]
    resource: Raw<'a>,
    #[serde(borrow)]
    namespace: Raw<'a>,
    #[serde(borrow)]
    name: Raw<'a>,
    #[serde(borrow)]
    uid: Raw<'a>,
    #[serde(borrow)]
    api_group: Raw<'a>,
    #[serde(borrow)]
    api_version: Raw<'a>,
    #[serde(borrow)]
    resource_version: Raw<'a>,
    #[serde(borrow)]
    subresource: Raw<'a>,
}

/// Reads one whole event. Where it does not say when it ended, `time` is taken.
pub(super) fn read(event: &str, time: Option<i64>) -> Outcome {
    match serde_json::from_str::<Event<'_>>(event) {
        Ok(event) => event.outcome(time, false),
        Err(error) => Outcome::Unreadable(format!("an audit event cannot be read ({})", raw::place(&error))),
    }
}

/// Beginning of an event as the API server writes it.
const HEAD: &str = r#"{"kind":"Event","apiVersion":"audit.k8s.io/"#;

/// Reads a text that is one event and nothing else, as the API server writes it: of the lines of a busy log nearly all are. None of
/// every other text, and of what is damaged.
pub(super) fn alone(text: &str, time: Option<i64>) -> Option<Outcome> {
    let event = text.starts_with(HEAD).then(|| serde_json::from_str::<Event<'_>>(text).ok()).flatten()?;
    Some(event.outcome(time, false))
}

impl<'a> Event<'a> {
    /// Takes one member of an event that is not whole.
    pub(super) fn take(&mut self, key: &str, value: &'a RawValue) {
        let member = match key {
            "apiVersion" => &mut self.api_version,
            "auditID" => &mut self.audit_id,
            "stage" => &mut self.stage,
            "requestURI" => &mut self.request_uri,
            "verb" => &mut self.verb,
            "user" => &mut self.user,
            "impersonatedUser" => &mut self.impersonated_user,
            "sourceIPs" => &mut self.source_ips,
            "userAgent" => &mut self.user_agent,
            "objectRef" => &mut self.object_ref,
            "responseStatus" => &mut self.response_status,
            "requestObject" => &mut self.request_object,
            "responseObject" => &mut self.response_object,
            "requestReceivedTimestamp" => &mut self.request_received_timestamp,
            "stageTimestamp" => &mut self.stage_timestamp,
            "timestamp" => &mut self.timestamp,
            _ => return,
        };
        *member = Some(value).filter(|value| value.get() != "null");
    }

    /// Reports whether all that says who did what is there.
    pub(super) fn is_answered(&self) -> bool {
        let all = [self.audit_id, self.stage, self.request_uri, self.verb, self.user, self.response_status];
        all.iter().all(Option::is_some) && body::code(self.response_status) != 0
    }

    /// Reports whether it says that its stage ends no request.
    pub(super) fn is_no_end(&self) -> bool {
        self.stage.is_some() && !is_end(&raw::text(self.stage))
    }

    /// Returns the request, if it is one that ended and is for an object.
    pub(super) fn outcome(&self, time: Option<i64>, cut: bool) -> Outcome {
        let version = raw::text(self.api_version);
        if !["", "audit.k8s.io/v1", "audit.k8s.io/v1beta1"].contains(&version.as_str()) {
            return Outcome::unreadable("an audit event has an apiVersion that is neither audit.k8s.io/v1 nor v1beta1");
        }
        if self.stage.is_none() {
            return Outcome::unreadable("an audit event has no stage");
        }
        if self.is_no_end() {
            return Outcome::Other(Reason::Stage);
        }
        match self.request(time, cut) {
            Ok(Some(request)) => checked(request),
            Ok(None) => Outcome::Other(Reason::NoObject),
            Err(member) => Outcome::Unreadable(format!("{member} of an audit event has another shape")),
        }
    }

    fn request(&self, time: Option<i64>, cut: bool) -> Result<Option<AuditedRequest>, &'static str> {
        let object: ObjectRef<'_> = raw::strict(self.object_ref).map_err(|_| "objectRef")?;
        let resource = raw::text(object.resource);
        if resource.is_empty() {
            return Ok(None);
        }
        let uri = raw::text(self.request_uri);
        let mut query = uri::query(&uri);
        for selector in [&mut query.label_selector, &mut query.field_selector] {
            if selector.len() > SELECTOR_MAX {
                UNKNOWN_SELECTOR.clone_into(selector);
            }
        }
        let sender = self.sender()?;
        let code = body::code(self.response_status);
        let received = raw::time(self.request_received_timestamp).or_else(|| raw::time(self.timestamp));
        let ended = raw::time(self.stage_timestamp).or(if cut { None } else { received }).or(time);
        let mut request = AuditedRequest {
            id: raw::text(self.audit_id),
            verb: verb(raw::text(self.verb), query.force, code),
            group: group(&object),
            namespace: raw::text(object.namespace),
            name: raw::text(object.name),
            subresource: raw::text(object.subresource),
            resource,
            manager: if uri.is_empty() || !query.manager.is_empty() {
                query.manager
            } else {
                uri::manager_of(&sender.agent)
            },
            label_selector: query.label_selector,
            field_selector: query.field_selector,
            sender,
            code,
            dry_run: query.dry_run,
            received: received.unwrap_or_default(),
            completed: ended.unwrap_or_default(),
            cut,
            ..AuditedRequest::default()
        };
        let parts = Parts {
            uid: raw::text(object.uid),
            version: raw::text(object.resource_version),
            status: self.response_status,
            sent: self.request_object,
            answered: self.response_object,
        };
        body::fill(&mut request, parts);
        Ok(Some(request))
    }

    fn sender(&self) -> Result<Sender, &'static str> {
        let real: User<'_> = raw::strict(self.user).map_err(|_| "user")?;
        let other: User<'_> = raw::strict(self.impersonated_user).map_err(|_| "impersonatedUser")?;
        let (user, impersonated_by) = match self.impersonated_user {
            // The facts beside an impersonated name are what the real user says they are.
            Some(_) => (raw::text(other.username), shown(&real)),
            None => (shown(&real), String::new()),
        };
        let mut agent = raw::text(self.user_agent);
        if agent.len() > AGENT_MAX && agent.ends_with(TRUNCATED) {
            agent.truncate(agent.len() - TRUNCATED.len());
        }
        Ok(Sender { user, impersonated_by, agent: raw::clip(agent, AGENT_MAX), addresses: addresses(self.source_ips) })
    }
}

/// Returns the last addresses: the very last is that of the connection.
fn addresses(list: Raw<'_>) -> Vec<String> {
    let mut all = raw::texts(list, usize::MAX);
    let kept = all.split_off(all.len().saturating_sub(ADDRESSES_MAX));
    kept.into_iter().map(|address| raw::clip(address, NAME_MAX)).collect()
}

/// Reports whether a request has ended with this stage.
fn is_end(stage: &str) -> bool {
    matches!(stage, "ResponseComplete" | "Panic")
}

/// Returns the group; the first v1beta1 had it in apiVersion.
fn group(object: &ObjectRef<'_>) -> String {
    let group = raw::text(object.api_group);
    if group.is_empty() {
        let version = raw::text(object.api_version);
        return version.split_once('/').map(|(group, _)| group.to_owned()).unwrap_or_default();
    }
    group
}

/// Returns the verb, and `apply` for a PATCH that is one for certain. The event does not have the content type, so that is: the
/// URI has `force`, which the API server refuses of any other patch, and which kubectl and client-go always send; or the answer is
/// 201, because no other patch creates. The body is no proof: clients send whole objects as merge patches, too. A `patch` may
/// therefore still be an apply.
fn verb(verb: String, force: bool, code: u16) -> String {
    if verb == "patch" && (force || code == CREATED) { "apply".to_owned() } else { verb }
}

const CREATED: u16 = 201;

/// Returns the name for people. Users of EKS may share one (`kubernetes-admin`), and the arn names the session.
fn shown(user: &User<'_>) -> String {
    let extra: Extra<'_> = raw::members(user.extra);
    [extra.arn, extra.session_name, extra.canonical_arn]
        .into_iter()
        .flat_map(|list| raw::texts(list, 1))
        .find(|text| !text.is_empty())
        .unwrap_or_else(|| raw::text(user.username))
}

/// Mark of a text that was shortened.
const SHORTENED: &str = "…";

/// Shortens what a client can make as long as it likes, and marks it: a request that was not read would be nobody's.
fn shorten(text: &mut String) {
    if text.len() > NAME_MAX {
        text.truncate(text.floor_char_boundary(NAME_MAX - SHORTENED.len()));
        text.push_str(SHORTENED);
    }
}

/// Returns the request with the namespace that it has for decklog, if all its names are of a length that names have. Names of the API
/// server's objects are, where a request was granted; the id (`Audit-ID`), the manager, and who is impersonated are the client's.
pub(super) fn checked(mut request: AuditedRequest) -> Outcome {
    if request.group.is_empty() && request.resource == "namespaces" {
        // The API server names a Namespace as if it were within itself.
        request.namespace.clear();
    }
    let sender = &mut request.sender;
    let chosen = [&mut request.id, &mut request.manager, &mut sender.user, &mut sender.impersonated_by];
    chosen.into_iter().for_each(shorten);
    let r = &request;
    let names = [&r.verb, &r.group, &r.resource, &r.subresource, &r.namespace, &r.name, &r.uid, &r.before, &r.after];
    if names.into_iter().any(|name| name.len() > NAME_MAX) {
        return Outcome::Unreadable(format!("a name in an audit event has more than {NAME_MAX} bytes"));
    }
    Outcome::Request(Box::new(request))
}
