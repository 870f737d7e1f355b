//! Merge keys: the members that identify the elements of a list.

/// Members that identify the elements of a list. The first has to be there, the others may be missing; the first line
/// that gives every element a name of its own is used. These are the merge keys of the Kubernetes API and what custom
/// resources are wont to take. Where no line does, elements of the same text are the same, and between those the first
/// line that names every element counts, elements with the same name being distinguished by their order; at last the
/// first line that names some of them, the nameless in their order as well.
///
/// The order is that of the API, and entries are made by it, so it never changes: what is a merge key of one list stands
/// before what is a mere member of its elements. A mount has a `name` too, and several may have the same; a port is known
/// by its number, an owner by its uid.
pub const IDENTITIES: [&[&str]; 15] = [
    &["mountPath"],
    &["devicePath"],
    &["uid"],
    &["containerPort", "protocol"],
    &["port", "protocol"],
    &["name"],
    &["type"],
    &["type", "address"],
    &["manager", "operation", "subresource", "apiVersion"],
    &["key"],
    &["key", "operator", "effect", "value"],
    &["topologyKey", "whenUnsatisfiable"],
    &["ip"],
    &["host"],
    &["id"],
];
