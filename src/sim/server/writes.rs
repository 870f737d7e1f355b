//! Writes over HTTP: what comes in the body of a request, and what becomes of it.

use std::sync::Arc;

use http_body_util::{BodyExt, Limited};
use hyper::header::CONTENT_TYPE;
use hyper::{Method, Request};
use serde_json::{Value, json};

use super::{Incoming, Reply};
use crate::sim::faults::Refusal;
use crate::sim::object::{Object, Row};
use crate::sim::resources::Served;
use crate::sim::store::Store;
use crate::sim::{Shared, State, readers};

/// What the real server takes as the body of a write.
const BODY_LIMIT: usize = 3 * 1024 * 1024;

/// What the client itself may do, as it asks before it tries.
fn review(state: &State, text: &[u8]) -> Result<Reply, Refusal> {
    let mut review: Value = serde_json::from_slice(text).map_err(|error| Refusal::bad_request(error.to_string()))?;
    let asked = |key: &str| review["spec"]["resourceAttributes"][key].as_str().filter(|text| !text.is_empty());
    let plural = asked("resource").unwrap_or_default();
    let resource = asked("group").map_or_else(|| plural.to_owned(), |group| format!("{plural}.{group}"));
    let path = review["spec"]["nonResourceAttributes"]["path"].as_str();
    let allowed = match path {
        Some(path) => !state.denies("get", path, None),
        None => !state.denies(asked("verb").unwrap_or_default(), &resource, asked("namespace")),
    };
    review["status"] = json!({ "allowed": allowed });
    Ok(Reply { status: 201, ..Reply::json(&review) })
}

/// Deletes the objects of a resource, in one namespace or in all.
fn delete_all(store: &mut Store, served: &Served, namespace: Option<&str>) -> Result<Reply, Refusal> {
    for row in store.all(&served.storage) {
        if namespace.is_none_or(|namespace| *row.namespace == *namespace) {
            store.delete(served, &row.namespace, &row.name)?;
        }
    }
    Ok(Reply::json(&json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success" })))
}

pub(super) async fn write(
    shared: &Arc<Shared>,
    request: Request<Incoming>,
    served: &Served,
    namespace: Option<&str>,
    name: &str,
    sub: &str,
) -> Result<Reply, Refusal> {
    let method = request.method().clone();
    let content_type = request.headers().get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default().to_owned();
    let text = Limited::new(request.into_body(), BODY_LIMIT)
        .collect()
        .await
        .map_err(|_| Refusal::new(413, "RequestEntityTooLarge", "Request entity too large: limit is 3145728"))?
        .to_bytes();
    let mut state = shared.lock();
    if served.resource.kind == "SelfSubjectAccessReview" {
        return review(&state, &text);
    }
    if matches!(served.resource.kind.as_str(), "TokenReview" | "SubjectAccessReview") {
        let review = readers::review(&state, &served.resource.kind, &text)?;
        return Ok(Reply { status: 201, ..Reply::json(&review) });
    }
    let store = &mut state.store;
    let within = namespace.unwrap_or_default();
    let reply = |status: u16, row: &Row| Ok(Reply::object(status, served, row, false));
    match method {
        Method::POST => {
            let mut object = Object::parse(&text)?;
            if let Some(namespace) = namespace {
                let namespaces = store.resource("namespaces")?;
                store.find(&namespaces, "", namespace)?;
                object.metadata.insert("namespace".to_owned(), namespace.into());
            }
            reply(201, &*store.create(served, object)?)
        }
        Method::PUT if sub.is_empty() => reply(200, &*store.replace(served, within, name, Object::parse(&text)?)?),
        Method::PUT => {
            let status = serde_json::from_slice::<Value>(&text)
                .map_err(|error| Refusal::bad_request(error.to_string()))?["status"]
                .take();
            let mut value = store.find(served, within, name)?.value();
            value["status"] = status;
            reply(200, &*store.replace(served, within, name, value.into())?)
        }
        Method::PATCH => {
            // YAML is a superset of JSON: server-side apply sends either.
            let mut patch: Value = if content_type.starts_with("application/json-patch") {
                return Err(Refusal::new(
                    415,
                    "UnsupportedMediaType",
                    "the body of the request was in an unknown format",
                ));
            } else {
                serde_yaml_ng::from_slice(&text).map_err(|error| Refusal::bad_request(error.to_string()))?
            };
            if sub == "status" {
                patch = json!({ "status": patch["status"] });
            }
            match store.find(served, within, name) {
                Ok(current) => {
                    let mut value = current.value();
                    merge(&mut value, &patch);
                    reply(200, &*store.replace(served, within, name, value.into())?)
                }
                Err(_) if content_type.starts_with("application/apply-patch") => {
                    patch["metadata"]["name"] = name.into();
                    if let Some(namespace) = namespace {
                        patch["metadata"]["namespace"] = namespace.into();
                    }
                    reply(201, &*store.create(served, patch.into())?)
                }
                Err(refusal) => Err(refusal),
            }
        }
        Method::DELETE if name.is_empty() => delete_all(store, served, namespace),
        Method::DELETE => {
            let row = store.delete(served, within, name)?;
            Ok(Reply::json(&json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
                "details": { "name": name, "kind": served.resource.plural, "uid": &*row.uid },
            })))
        }
        _ => Err(Refusal::not_allowed()),
    }
}

/// JSON merge patch (RFC 7386).
pub(in crate::sim) fn merge(target: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let Some(members) = target.as_object_mut() else { return };
    for (key, value) in patch {
        if value.is_null() {
            members.remove(key);
        } else {
            merge(members.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}
