//! Writers, as far as drift tells them apart: a delivery tool, a controller that is told to write, and everybody else.

use serde_json::Value;

use super::owned::Book;
use crate::core::k8s::audited::Actor;
use crate::core::k8s::managed_fields::Manager;
use crate::query::provenance::{Claim, Driver, Tool, Write, claim};

/// Tools that own fields of objects, and the manager that each writes as.
const TOOLS: [(&str, Tool); 5] = [
    ("argocd-controller", Tool::ArgoCd),
    ("argocd-application-controller", Tool::ArgoCd),
    ("kustomize-controller", Tool::Kustomization),
    ("helm-controller", Tool::HelmRelease),
    ("helm", Tool::Helm),
];

/// Texts of which every object of a tool has one.
pub(super) const MARKS: [&str; 3] = ["argocd", "kustomize", "helm"];

/// Returns the tool that writes under a name.
pub(crate) fn tool_of(manager: &str) -> Option<Tool> {
    TOOLS.iter().find(|(name, _)| *name == manager).map(|(_, tool)| *tool)
}

/// Reports whether the text of an entry has the manager of another tool.
pub(super) fn has_other_tool(line: &[u8], tool: Tool) -> bool {
    let has = |name: &str| memchr::memmem::find(line, format!("\"{name}\"").as_bytes()).is_some();
    TOOLS.iter().any(|(name, other)| *other != tool && has(name))
}

/// Returns the name under which a tool writes.
pub(crate) fn manager_of(tool: Tool) -> &'static str {
    TOOLS.iter().find(|(_, known)| *known == tool).map_or("", |(name, _)| name)
}

/// Reports whether a tool owns the set of a manager. What a controller writes of its own objects' status is not delivered.
pub(super) fn is_of(tool: Tool, manager: &Manager) -> bool {
    manager.subresource.is_none() && tool_of(&manager.manager) == Some(tool)
}

/// Returns the tools that own a set, each once.
pub(super) fn tools(books: &[Book<'_>]) -> Vec<Tool> {
    let owners = books.iter().filter(|book| book.manager.subresource.is_none());
    let mut tools: Vec<Tool> = owners.filter_map(|book| tool_of(&book.manager.manager)).collect();
    tools.sort();
    tools.dedup();
    tools
}

/// An object, as entries name it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Named<'n> {
    pub(crate) group: &'n str,
    pub(crate) kind: &'n str,
    pub(crate) namespace: &'n str,
    pub(crate) name: &'n str,
}

/// Returns the objects that may drive a tool for an object; none where it has no mark of the tool.
pub(crate) fn drivers(tool: Tool, named: Named<'_>, object: &Value) -> Vec<Driver> {
    let managers = [Manager { manager: manager_of(tool).to_owned(), ..Manager::default() }];
    let Named { group, kind, namespace, name } = named;
    let write = Write {
        group,
        kind,
        namespace,
        name,
        path: "",
        managers: &managers,
        unnamed: None,
        sender: None,
        time: None,
        object,
    };
    match claim(&write) {
        Claim::Tool(_, drivers) => drivers,
        Claim::Ends(_) => Vec::new(),
    }
}

/// A writer, beside the tool that owns a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hand {
    /// The tool, as far as is known.
    Tool,
    /// A controller that is told to write the field.
    Told,
    /// Somebody else.
    Other,
    /// Nobody is named.
    Nobody,
}

/// Tells who a writer is, beside the tool that owns a field. `is_marked` says whether the object has the mark of the tool still.
pub(super) fn hand(writers: &[Manager], owner: Tool, path: &[String], is_marked: bool) -> Hand {
    let is_tool = |writer: &Manager| match tool_of(&writer.manager).filter(|_| writer.subresource.is_none()) {
        Some(tool) => tool == owner || (owner, tool) == (Tool::Helm, Tool::HelmRelease) || !is_marked,
        None => false,
    };
    if writers.is_empty() {
        Hand::Nobody
    } else if writers.iter().any(is_tool) {
        Hand::Tool
    } else if writers.iter().any(|writer| is_told(writer, path)) {
        Hand::Told
    } else {
        Hand::Other
    }
}

fn is_told(writer: &Manager, path: &[String]) -> bool {
    let is_replicas = path.len() == 2 && path[0] == "f:spec" && path[1] == "f:replicas";
    match writer.manager.as_str() {
        "vpa-recommender" | "vpa-updater" | "vpa-admission-controller" => path.iter().any(|key| key == "f:resources"),
        _ => is_replicas && writer.is_autoscaler(),
    }
}

/// Kind of the sender of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    Tool(Tool),
    Autoscaler,
    Else,
}

/// Tells who sent a request, by the names that tools have in their clusters and in their agents.
pub(crate) fn sent(actor: &Actor) -> Sent {
    const AGENTS: [(&str, Sent); 7] = [
        ("argocd-application-controller", Sent::Tool(Tool::ArgoCd)),
        ("argocd-controller", Sent::Tool(Tool::ArgoCd)),
        ("kustomize-controller", Sent::Tool(Tool::Kustomization)),
        ("helm-controller", Sent::Tool(Tool::HelmRelease)),
        ("Helm", Sent::Tool(Tool::Helm)),
        ("horizontal-pod-autoscaler", Sent::Autoscaler),
        ("keda-operator", Sent::Autoscaler),
    ];
    let sender = &actor.sender;
    let agent = sender.agent.split(['/', ' ']).next().unwrap_or_default();
    let account = |user: &str| {
        user.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split(':').nth(1)).map(str::to_owned)
    };
    let names = [Some(agent.to_owned()), account(&sender.user), account(&sender.impersonated_by)];
    let known = |name: &str| AGENTS.iter().find(|(known, _)| *known == name).map(|(_, sent)| *sent);
    names.into_iter().flatten().find_map(|name| known(&name)).unwrap_or(Sent::Else)
}
