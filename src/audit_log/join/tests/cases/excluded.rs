//! Requests that the object itself excludes.

use super::*;

/// Collections and generated names are no rivals of what they cannot have made; a kubelet's deletion makes two versions.
#[test]
fn what_the_object_itself_excludes() {
    let nameless = |id, user, verb, selector: &str| {
        with(ask(id, user, verb, T + 1), |one| {
            one.name = String::new();
            one.label_selector = selector.to_owned();
        })
    };
    let labels = || Some(Box::new([("app".to_owned(), "cart".to_owned())].into()));
    let gone = || but(version(2, Deleted, "6", T), |version| version.labels = labels());
    let made = |generated| but(version(1, Added, "5", T), |version| version.generated = generated);
    let create = || ask("1", "alice", "create", T + 1);
    check(vec![
        case(
            "a collection of others",
            [ask("1", "alice", "delete", T + 1), nameless("2", "bob", "deletecollection", "app=web")],
            [gone()],
            [(2, Ok(("alice", Certainty::Deleted)))],
        ),
        case(
            "a collection that the object is in",
            [
                nameless("1", "alice", "deletecollection", "app in (cart,web)"),
                nameless("2", "bob", "deletecollection", "!app"),
            ],
            [gone()],
            [(2, Ok(("alice", Certainty::Collection)))],
        ),
        case(
            "a name that nobody made up",
            [nameless("2", "bob", "create", "")],
            [made(false)],
            [(1, Err(Unresolved::NotInAuditLog))],
        ),
        case(
            "a name that was made up",
            [nameless("2", "bob", "create", "")],
            [made(true)],
            [(1, Ok(("bob", Certainty::Created)))],
        ),
        case(
            "a kubelet that ends what somebody deletes",
            [
                create(),
                ask("2", "bob", "delete", T + 2 * SECOND),
                with(ask("3", "kubelet", "delete", T + 4 * SECOND), |delete| delete.after = "8".to_owned()),
            ],
            [
                made(false),
                but(version(2, Modified, "6", T + 2 * SECOND), |version| version.deletion_requested = true),
                but(version(3, Modified, "7", T + 4 * SECOND), |version| {
                    (version.deleting, version.grace_shortened) = (true, true);
                }),
                but(version(4, Deleted, "8", T + 4 * SECOND), |version| version.deleting = true),
            ],
            [
                (1, Ok(("alice", Certainty::Created))),
                (2, Ok(("bob", Certainty::Deleted))),
                (3, Ok(("kubelet", Certainty::Field))),
                (4, Ok(("bob", Certainty::Deleted))),
            ],
        ),
    ]);
}

/// The manager of a writer whom the audit log lacks is evidence of nobody for an hour; those of others are.
#[test]
fn a_manager_of_somebody_who_is_missing_shows_nobody() {
    let minute = 60 * SECOND;
    let by_helm =
        |id: &str, at: i64| with(ask(id, "alice", "patch", at), |request| request.manager = "helm".to_owned());
    check(vec![Case {
        name: "a no-op beside the write of a missing user",
        requests: vec![ask("a1", "alice", "patch", T + minute + 300_000), by_helm("a2", T + 2 * minute + 300_000)],
        versions: vec![
            change(1, "1", "2", "kubectl-edit", T),
            change(2, "2", "3", "kubectl-edit", T + minute),
            change(3, "3", "4", "helm", T + 2 * minute),
        ],
        wanted: vec![
            (1, Err(Unresolved::NotInAuditLog)),
            (2, Err(Unresolved::Incomplete)),
            (3, Ok(("alice", Certainty::Field))),
        ],
    }]);
}
