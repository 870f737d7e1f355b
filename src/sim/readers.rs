//! Users beside the client: their tokens, what they may list, and what reviews say of them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::faults::Refusal;
use super::{Sim, State};

/// What a user may list: a resource such as `deployments.apps`, or `*`, in a namespace or in all.
type Right = (String, Option<String>);

/// Users, by their tokens.
#[derive(Debug, Default)]
pub(super) struct Users {
    tokens: BTreeMap<String, String>,
    rights: BTreeMap<String, BTreeSet<Right>>,
    paths: BTreeMap<String, BTreeSet<String>>,
    /// Text of the evaluation error that a review has which is no yes.
    error: Option<String>,
}

impl Sim {
    /// Gives a user a token.
    pub fn set_user(&self, token: &str, user: &str) {
        self.shared.lock().users.tokens.insert(token.to_owned(), user.to_owned());
    }

    /// Takes a token back.
    pub fn forget_user(&self, token: &str) {
        self.shared.lock().users.tokens.remove(token);
    }

    /// Lets a user list a resource, in a namespace or in all.
    pub fn grant_user(&self, user: &str, resource: &str, namespace: Option<&str>) {
        let right = (resource.to_owned(), namespace.map(str::to_owned));
        self.shared.lock().users.rights.entry(user.to_owned()).or_default().insert(right);
    }

    /// Takes all rights of a user.
    pub fn revoke_user(&self, user: &str) {
        let users = &mut self.shared.lock().users;
        users.rights.remove(user);
        users.paths.remove(user);
    }

    /// Lets a user get a path that is no resource.
    pub fn grant_user_path(&self, user: &str, path: &str) {
        self.shared.lock().users.paths.entry(user.to_owned()).or_default().insert(path.to_owned());
    }

    /// Has reviews that are no yes say that they could not be evaluated.
    pub fn set_evaluation_error(&self, error: Option<&str>) {
        self.shared.lock().users.error = error.map(str::to_owned);
    }

    /// Reports whether a user may list a resource in a namespace.
    #[must_use]
    pub fn may_list(&self, user: &str, resource: &str, namespace: &str) -> bool {
        self.shared.lock().users.may_list(user, resource, namespace)
    }
}

impl Users {
    fn may_list(&self, user: &str, resource: &str, namespace: &str) -> bool {
        self.rights.get(user).is_some_and(|rights| {
            rights.iter().any(|(of, within)| {
                (of == "*" || of == resource) && within.as_deref().is_none_or(|within| within == namespace)
            })
        })
    }

    fn token_review(&self, review: &Value) -> Value {
        let user = review["spec"]["token"].as_str().and_then(|token| self.tokens.get(token));
        match user {
            Some(user) => json!({
                "authenticated": true,
                "user": { "username": user, "uid": format!("uid-of-{user}"), "groups": ["system:authenticated"] },
            }),
            None => json!({ "error": "[invalid bearer token]" }),
        }
    }

    fn access_review(&self, review: &Value) -> Value {
        let spec = &review["spec"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (user, attributes) = (text(&spec["user"]), &spec["resourceAttributes"]);
        let allowed = match attributes.is_object() {
            true => {
                let (group, plural) = (text(&attributes["group"]), text(&attributes["resource"]));
                let resource = match (&*group, &*plural) {
                    ("", _) => plural,
                    ("*", "*") => "*".to_owned(),
                    _ => format!("{plural}.{group}"),
                };
                text(&attributes["verb"]) == "list" && self.may_list(&user, &resource, &text(&attributes["namespace"]))
            }
            false => {
                let path = text(&spec["nonResourceAttributes"]["path"]);
                self.paths.get(&user).is_some_and(|paths| paths.contains(&path))
            }
        };
        match self.error.as_ref().filter(|_| !allowed) {
            Some(error) => json!({ "allowed": false, "evaluationError": error }),
            None => json!({ "allowed": allowed }),
        }
    }
}

/// Answers a review of somebody else.
pub(super) fn review(state: &State, kind: &str, text: &[u8]) -> Result<Value, Refusal> {
    let mut review: Value = serde_json::from_slice(text).map_err(|error| Refusal::bad_request(error.to_string()))?;
    review["status"] = match kind {
        "TokenReview" => state.users.token_review(&review),
        _ => state.users.access_review(&review),
    };
    Ok(review)
}
