//! Bookkeeping fields, which every write changes: those that the API server and kubectl maintain.

/// Pointer of managedFields.
pub const MANAGED_FIELDS: &str = "/metadata/managedFields";

/// The position of the object.
pub const RESOURCE_VERSION: &str = "/metadata/resourceVersion";

/// Pointer of the number of changes of the spec.
pub const GENERATION: &str = "/metadata/generation";

/// What a DELETE request sets on an object that is not gone at once.
pub const DELETION: [&str; 2] = ["/metadata/deletionTimestamp", "/metadata/deletionGracePeriodSeconds"];

/// The annotation in which kubectl keeps what it applied.
pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// All of them, as the names that lead to them.
pub const PATHS: [&[&str]; 4] = [
    &["metadata", "managedFields"],
    &["metadata", "resourceVersion"],
    &["metadata", "generation"],
    &["metadata", "annotations", LAST_APPLIED],
];

/// Reports whether a JSON pointer leads to one of these fields, or into one.
#[must_use]
pub fn is_book(pointer: &str) -> bool {
    let last_applied = || {
        let rest = pointer.strip_prefix("/metadata/annotations/").and_then(crate::core::json::pointer::unescape);
        rest.is_some_and(|name| name == LAST_APPLIED)
    };
    pointer == RESOURCE_VERSION || pointer == GENERATION || is_of_managed_fields(pointer) || last_applied()
}

/// Reports whether a JSON pointer leads to managedFields, or into it.
#[must_use]
pub fn is_of_managed_fields(pointer: &str) -> bool {
    pointer.strip_prefix(MANAGED_FIELDS).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
