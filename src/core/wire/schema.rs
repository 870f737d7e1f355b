//! The JSON Schema of an entry, as the contract of the wire format has it.

use serde_json::{Value, json};

use crate::core::k8s::audited::Certainty;
use crate::core::k8s::managed_fields::By;
use crate::core::model::{EntryType, Evidence, Why};

/// The JSON Schema of an entry, wire version 1: true of every entry that any release writes with this version, so that
/// it leaves room for what may be added (`docs/compatibility.md`).
#[must_use]
pub fn entry_schema() -> Value {
    let types: Vec<&str> = EntryType::ALL.iter().map(|t| t.as_str()).collect();
    let evidence = Evidence::ALL.map(Evidence::as_str);
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "An entry of decklog, wire version 1",
        "description": "One change of one object of a cluster, or a gap in the knowledge of them. \
            Keys come in one fixed order and are absent when they do not apply. A later release may add keys: \
            ignore those that you do not know.",
        "type": "object",
        "required": ["v", "seq", "epoch", "id", "time", "type", "cluster", "apiVersion", "kind", "resource"],
        "properties": {
            "v": { "const": super::VERSION, "description": "The wire version." },
            "seq": {
                "type": "integer", "minimum": 1,
                "description": "The place in the journal: from 1, dense, never reused.",
            },
            "epoch": text("Names this journal; a new one begins when a journal is created, or found behind what a sink already holds."),
            "id": text("Names the change, equal in every resend and on every decklog that watched it: UID.RESOURCEVERSION.TYPE; for a GAP: EPOCH.SEQ; for an ACTOR: the id of its entry, and .ACTOR. It may come again: drop repeats by epoch and seq, which together name the entry."),
            "time": {
                "type": "string", "format": "date-time",
                "description": "When it was journaled: RFC 3339, UTC, microseconds.",
            },
            "happened": {
                "type": "string", "format": "date-time",
                "description": "When the cluster did it, as far as the object says, in seconds: the newest of creationTimestamp, deletionTimestamp (less the grace), managedFields times and condition times that the change moved. Absent where nothing says, as on DELETED and GAP.",
            },
            "happenedBetween": {
                "type": "array", "minItems": 2, "maxItems": 2, "items": { "type": "string", "format": "date-time" },
                "description": "The earliest and the latest time at which the cluster did it, where decklog did not see it at once and no time in the object says it: after an outage, or behind on a watch. RFC 3339, UTC, microseconds.",
            },
            "type": { "enum": types, "description": "What happened." },
            "evidence": {
                "enum": evidence,
                "description": "How it is known: the API server said so on a watch, it was read from the API server's own history, it was found on a first list, or it is the difference of two states after a gap. Absent on a GAP.",
            },
            "cluster": {
                "type": "object",
                "description": "The cluster.",
                "required": ["name", "uid"],
                "properties": {
                    "name": text("Its name in the configuration."),
                    "uid": text("uid of its kube-system namespace; empty where it may not be read."),
                },
            },
            "apiVersion": text("apiVersion of the object; of a GAP, that of the source."),
            "kind": text("kind of the object; of a GAP, that of the source."),
            "resource": text("The plural, as in the URL."),
            "namespace": text("Namespace of the object; absent for cluster-scoped ones."),
            "name": text("Name of the object. A GAP has one where it is of that object alone, which could not be recorded."),
            "uid": text("uid of the object."),
            "resourceVersion": text("resourceVersion of the change."),
            "managers": managers_schema("On ADDED: creators of the object, as its managedFields have it, where its creation was seen. A hint, not proof; absent where none is known."),
            "change": change_schema(),
            "object": {
                "type": "object",
                "description": "The object after the change; on DELETED its last state. Redacted, byte-exact otherwise.",
            },
            "gap": gap_schema(),
            "redacted": {
                "type": "array", "items": { "type": "string" },
                "description": "JSON pointers of what was redacted.",
            },
            "of": {
                "type": "object",
                "description": "On ACTOR: the entry whose sender it names.",
                "required": ["seq", "id"],
                "properties": {
                    "seq": { "type": "integer", "minimum": 1, "description": "The place of that entry in the journal." },
                    "id": text("The id of that entry."),
                },
            },
            "actor": actor_schema(),
        },
    })
}

/// The schema of the `actor` member.
fn actor_schema() -> Value {
    json!({
        "type": "object",
        "description": "On ACTOR: the sender of the request that made the change, as the API server's audit log has it.",
        "required": ["user", "verb", "certainty"],
        "properties": {
            "user": text("The user: of an impersonation the one that was impersonated, of EKS the session's ARN."),
            "impersonated_by": text("The user who impersonated `user`."),
            "agent": text("The user agent."),
            "addresses": {
                "type": "array", "items": { "type": "string" },
                "description": "Where the request came from, the client first.",
            },
            "verb": text("create, update, patch, apply, delete or deletecollection."),
            "subresource": text("The subresource that was written."),
            "audit_ids": {
                "type": "array", "items": { "type": "string" },
                "description": "The events of the audit log.",
            },
            "certainty": {
                "anyOf": [{ "enum": Certainty::ALL.map(Certainty::as_str) }, { "type": "string" }],
                "description": "How it is known: the answer had the version (exact), the request named the version before (successor), it is the only creation (created), the only write of its manager at its time (field), the only deletion (deleted) or deletion of a collection (collection).",
            },
        },
    })
}

/// The schema of the `gap` member.
fn gap_schema() -> Value {
    let why: Vec<&str> = Why::ALL.iter().map(|why| why.as_str()).collect();
    json!({
        "type": "object",
        "description": "On GAP: between these, changes may be missing. On DELETED: the API server could not read the object any more (`unreadable`), so that `object` is its state at `from`.",
        "required": ["why"],
        "properties": {
            "why": {
                "anyOf": [{ "enum": why }, { "type": "string" }],
                "description": "Reason of the gap; a later release may know more.",
            },
            "from": text("The last resourceVersion known good."),
            "to": text("The resourceVersion of the list that ends the gap."),
            "since": {
                "type": "string", "format": "date-time",
                "description": "The last moment known good.",
            },
            "recovered": {
                "type": "integer", "minimum": 1,
                "description": "How many changes were read from the API server's own history before it, since the position was lost.",
            },
        },
    })
}

/// The schema of the `change` member.
fn change_schema() -> Value {
    json!({
        "type": "object",
        "description": "On MODIFIED: changes from the previous version to this one.",
        "required": ["areas", "managers"],
        "properties": {
            "areas": {
                "type": "array", "items": { "type": "string" }, "uniqueItems": true,
                "description": "The parts that changed, sorted: spec, status, metadata, managedFields, data, other top-level keys; empty when nothing but resourceVersion moved.",
            },
            "patch": {
                "type": "array",
                "description": "RFC 6902, from the previous version to this one. Absent where the sink takes metadata only.",
                "items": {
                    "type": "object",
                    "required": ["op", "path"],
                    "properties": {
                        "op": { "enum": ["add", "remove", "replace", "move", "copy", "test"] },
                        "path": text("JSON pointer."),
                        "from": text("JSON pointer, of move and copy."),
                        "value": { "description": "The new value, of add and replace." },
                        "was": { "description": "The value before, of replace and remove." },
                    },
                },
            },
            "managers": managers_schema("Writers of the change, as managedFields have it: those whose set of fields grew or whose time moved, or else the owners of what changed. A hint, not proof; several where managedFields leave it open."),
        },
    })
}

/// The schema of a list of managers.
fn managers_schema(description: &str) -> Value {
    json!({
        "type": "array",
        "description": description,
        "items": {
            "type": "object",
            "properties": {
                "manager": text("Name that the writer gives itself."),
                "operation": text("Apply or Update."),
                "subresource": text("The subresource that was written."),
                "time": text("When, to the second."),
                "by": {
                    "anyOf": [{ "enum": By::ALL.map(By::as_str) }, { "type": "string" }],
                    "description": "How it is known: its set grew or its time moved, or it owns what changed where nothing moved.",
                },
            },
        },
    })
}

fn text(description: &str) -> Value {
    json!({ "type": "string", "description": description })
}
