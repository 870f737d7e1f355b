//! One case for each tier and each pitfall.

mod covered;
mod excluded;

use super::*;
use crate::audit_log::join::Certainty;

/// Request of `user` for the ConfigMap `cart`, received at this time of a second and answered 20 ms later.
fn ask(id: &str, user: &str, verb: &str, at: i64) -> AuditedRequest {
    AuditedRequest {
        id: id.to_owned(),
        verb: verb.to_owned(),
        resource: "configmaps".to_owned(),
        namespace: "shop".to_owned(),
        name: "cart".to_owned(),
        manager: "kubectl-edit".to_owned(),
        sender: sender(user),
        code: if verb == "create" { 201 } else { 200 },
        received: at,
        completed: at + 20_000,
        ..AuditedRequest::default()
    }
}

/// Version of `cart` in the second that begins at `second`.
fn version(seq: u64, op: EntryType, version: &str, second: i64) -> Version {
    Version {
        labels: None,
        grace_shortened: false,
        generated: true,
        seq,
        op,
        evidence: Evidence::Watched,
        names: names("", "configmaps", "cart"),
        uid: "u1".into(),
        version: version.into(),
        before: None,
        managers: Arc::default(),
        deletion_requested: false,
        deleting: false,
        earliest: second,
        latest: second + SECOND - 1,
        stored_by: second + 2 * SECOND,
    }
}

fn moved(manager: &str) -> Arc<[Manager]> {
    let by = Some(By::Moved);
    Arc::new([Manager { manager: manager.to_owned(), operation: "Update".to_owned(), by, ..Manager::default() }])
}

/// A change of `cart` by a manager, after version `before`.
fn change(seq: u64, before: &str, now: &str, manager: &str, second: i64) -> Version {
    Version { before: Some(before.into()), managers: moved(manager), ..version(seq, Modified, now, second) }
}

type Wanted = Result<(&'static str, Certainty), Unresolved>;

struct Case {
    name: &'static str,
    requests: Vec<AuditedRequest>,
    versions: Vec<Version>,
    wanted: Vec<(u64, Wanted)>,
}

const T: i64 = 1_700_000_000 * SECOND;

fn joiner() -> Joiner {
    Joiner::new(Limits { skew: 0, ..Limits::default() }, T - 3600 * SECOND)
}

fn finish(joiner: &mut Joiner) -> Settled {
    for step in 0..40 {
        joiner.advance(T + step * 10 * SECOND, T + step * 10 * SECOND);
    }
    joiner.take()
}

fn check(cases: Vec<Case>) {
    for Case { name, requests, versions, mut wanted } in cases {
        // In either order, and twice: nothing changes.
        for turn in 0..4 {
            let mut joiner = joiner();
            let mut requests = requests.clone();
            let mut versions = versions.clone();
            if turn % 2 == 1 {
                requests.reverse();
                versions.reverse();
            }
            let give = |joiner: &mut Joiner, versions: &[Version]| {
                versions.iter().cloned().for_each(|version| joiner.version(version));
            };
            if turn < 2 {
                give(&mut joiner, &versions);
            }
            for request in requests.iter().chain(&requests) {
                joiner.request(request.clone());
            }
            give(&mut joiner, &versions);
            let settled = finish(&mut joiner);
            let mut got: Vec<_> = settled
                .verdicts
                .into_iter()
                .map(|verdict| (verdict.seq, verdict.actor.map(|actor| (actor.sender.user, actor.certainty))))
                .collect();
            got.sort_by_key(|(seq, _)| *seq);
            wanted.sort_by_key(|(seq, _)| *seq);
            let wanted: Vec<_> = wanted
                .iter()
                .map(|(seq, wanted)| (*seq, wanted.map(|(user, certainty)| (user.to_owned(), certainty))))
                .collect();
            assert_eq!(got, wanted, "{name}, turn {turn}");
        }
    }
}

use EntryType::{Added, Deleted, Modified};

fn with(mut request: AuditedRequest, edit: impl FnOnce(&mut AuditedRequest)) -> AuditedRequest {
    edit(&mut request);
    request
}

fn but(mut version: Version, edit: impl FnOnce(&mut Version)) -> Version {
    edit(&mut version);
    version
}

fn case(
    name: &'static str,
    requests: impl IntoIterator<Item = AuditedRequest>,
    versions: impl IntoIterator<Item = Version>,
    wanted: impl IntoIterator<Item = (u64, Wanted)>,
) -> Case {
    Case {
        name,
        requests: requests.into_iter().collect(),
        versions: versions.into_iter().collect(),
        wanted: wanted.into_iter().collect(),
    }
}

#[test]
fn answers_with_a_body() {
    let after =
        |id, user, at, version: &str| with(ask(id, user, "patch", at), |patch| patch.after = version.to_owned());
    let put = |id, user, before: &str, version: &str| {
        with(ask(id, user, "update", T + 1), |put| (put.before, put.after) = (before.to_owned(), version.to_owned()))
    };
    let two = || change(1, "4", "5", "kubectl-edit", T);
    check(vec![
        case("a patch", [after("1", "alice", T + 1, "5")], [two()], [(1, Ok(("alice", Certainty::Exact)))]),
        case(
            "a no-op that came later answers with the same version",
            [after("1", "alice", T + 1, "5"), after("2", "bob", T + 500_000, "5")],
            [two()],
            [(1, Ok(("alice", Certainty::Exact)))],
        ),
        case(
            "two at once, of which one is a no-op",
            [after("1", "alice", T + 1, "5"), after("2", "bob", T + 10_000, "5")],
            [two()],
            [(1, Err(Unresolved::Ambiguous))],
        ),
        case(
            "an answer with a version beside one without a body at the same time",
            [after("1", "alice", T + 1, "5"), ask("2", "bob", "patch", T + 2)],
            [two()],
            [(1, Err(Unresolved::Ambiguous))],
        ),
        case(
            "the answer of a PUT with another version than it replaced is proof",
            [put("1", "alice", "4", "5"), ask("2", "bob", "patch", T + 2)],
            [two()],
            [(1, Ok(("alice", Certainty::Exact)))],
        ),
        case(
            "the answer of a PUT with the version that it replaced is a no-op",
            [put("1", "alice", "4", "4"), ask("2", "bob", "patch", T + 2)],
            [two()],
            [(1, Ok(("bob", Certainty::Field)))],
        ),
        case(
            "proof names what a list found",
            [put("1", "alice", "4", "5"), put("2", "bob", "6", "6")],
            [
                but(two(), |version| version.evidence = Evidence::Listed),
                but(change(2, "5", "6", "kubectl-edit", T), |version| version.evidence = Evidence::Inferred),
            ],
            [(1, Ok(("alice", Certainty::Exact))), (2, Err(Unresolved::NotWatched))],
        ),
    ]);
}

#[test]
fn proof_needs_no_wait() {
    let mut joiner = joiner();
    joiner.request(with(ask("1", "alice", "create", T), |create| create.after = "5".to_owned()));
    joiner.version(version(1, Added, "5", T));
    joiner.version(change(2, "5", "6", "kubectl-edit", T));
    joiner
        .request(with(ask("2", "bob", "update", T), |put| (put.before, put.after) = ("5".to_owned(), "6".to_owned())));
    let verdicts = joiner.take().verdicts;
    let users: Vec<String> = verdicts.into_iter().map(|verdict| verdict.actor.unwrap().sender.user).collect();
    assert_eq!(users, ["alice", "bob"]);
    assert!(finish(&mut joiner).verdicts.is_empty(), "a verdict comes once");
}

#[test]
fn updates_that_name_the_version_before() {
    let put = |id, user, before: &str| with(ask(id, user, "update", T + 1), |put| put.before = before.to_owned());
    let named = || change(1, "4", "5", "kubectl-edit", T);
    check(vec![
        case(
            "of two PUTs the one that names the version before",
            [put("1", "alice", "4"), put("2", "bob", "3")],
            [named()],
            [(1, Ok(("alice", Certainty::Successor)))],
        ),
        case(
            "a patch at the same time can have made it as well",
            [put("1", "alice", "4"), ask("2", "bob", "patch", T + 2)],
            [named()],
            [(1, Err(Unresolved::Ambiguous))],
        ),
        case(
            "a patch of another manager cannot",
            [put("1", "alice", "4"), with(ask("2", "bob", "patch", T + 2), |patch| patch.manager = "helm".to_owned())],
            [named()],
            [(1, Ok(("alice", Certainty::Successor)))],
        ),
        case(
            "two PUTs of one version, of which one was a no-op",
            [put("1", "alice", "4"), put("2", "bob", "4")],
            [named()],
            [(1, Err(Unresolved::Ambiguous))],
        ),
        case(
            "what changes nothing in managedFields and has one request",
            [put("1", "alice", "4")],
            [but(named(), |version| version.managers = Arc::default())],
            [(1, Ok(("alice", Certainty::Successor)))],
        ),
    ]);
}

#[test]
fn creations() {
    let generated = |id, user| with(ask(id, user, "create", T + 1), |create| create.name.clear());
    let made = |seq, name: &str, uid: &str| {
        but(version(seq, Added, "5", T), |version| {
            (version.names, version.uid) = (names("", "configmaps", name), uid.into());
            version.managers = moved("kubectl-edit");
        })
    };
    let created = |user| Ok((user, Certainty::Created));
    check(vec![
        case("by name", [ask("1", "alice", "create", T + 1)], [version(1, Added, "5", T)], [(1, created("alice"))]),
        case("generated", [generated("1", "alice")], [made(1, "cart-x", "u1")], [(1, created("alice"))]),
        case(
            "generated by one user several times",
            [generated("1", "alice"), generated("2", "alice")],
            [made(1, "cart-x", "u1"), made(2, "cart-y", "u2")],
            [(1, created("alice")), (2, created("alice"))],
        ),
        case(
            "generated by two users in one second",
            [generated("1", "alice"), generated("2", "bob")],
            [made(1, "cart-x", "u1"), made(2, "cart-y", "u2")],
            [(1, Err(Unresolved::Ambiguous)), (2, Err(Unresolved::Ambiguous))],
        ),
        case(
            "a name that was given is not generated",
            [generated("1", "alice"), ask("2", "bob", "create", T + 2)],
            [made(1, "cart", "u1")],
            [(1, created("bob"))],
        ),
        case(
            "an apply that made the object",
            [with(ask("1", "alice", "patch", T + 1), |apply| apply.code = 201), ask("2", "bob", "patch", T + 2)],
            [version(1, Added, "5", T), change(2, "5", "6", "kubectl-edit", T)],
            [(1, created("alice")), (2, Ok(("bob", Certainty::Field)))],
        ),
        case(
            "each incarnation has its own",
            [
                ask("1", "alice", "create", T + 1),
                ask("2", "alice", "delete", T + 300_000),
                ask("3", "bob", "create", T + 600_000),
            ],
            [
                version(1, Added, "5", T),
                version(2, Deleted, "6", T),
                but(version(3, Added, "7", T), |version| version.uid = "u2".into()),
            ],
            [(1, created("alice")), (2, Ok(("alice", Certainty::Deleted))), (3, created("bob"))],
        ),
    ]);
}

#[test]
fn managers_and_times() {
    let patch = |id, user, at| ask(id, user, "patch", at);
    let field = |user| Ok((user, Certainty::Field));
    let one = || change(1, "4", "5", "kubectl-edit", T);
    let as_user = |id, user: &str, by: &str| {
        with(ask(id, user, "patch", T + 1), |patch| patch.sender.impersonated_by = by.to_owned())
    };
    check(vec![
        case("one patch", [patch("1", "alice", T + 1)], [one()], [(1, field("alice"))]),
        case("in another second", [patch("1", "alice", T + SECOND)], [one()], [(1, Err(Unresolved::NotInAuditLog))]),
        case(
            "two users with one manager in one second",
            [patch("1", "alice", T + 1), patch("2", "bob", T + 500_000)],
            [one()],
            [(1, Err(Unresolved::Ambiguous))],
        ),
        case(
            "two users with one manager, and two versions: they have an order",
            [patch("1", "alice", T + 1), patch("2", "bob", T + 500_000)],
            [one(), change(2, "5", "6", "kubectl-edit", T)],
            [(1, field("alice")), (2, field("bob"))],
        ),
        case(
            "two at once, and two versions: they have none",
            [patch("1", "alice", T + 1), patch("2", "bob", T + 2)],
            [one(), change(2, "5", "6", "kubectl-edit", T)],
            [(1, Err(Unresolved::Ambiguous)), (2, Err(Unresolved::Ambiguous))],
        ),
        case(
            "another subresource",
            [
                patch("1", "alice", T + 1),
                with(patch("2", "bob", T + 2), |status| status.subresource = "status".to_owned()),
            ],
            [one()],
            [(1, field("alice"))],
        ),
        case(
            "an id that its client has used before",
            [patch("1", "mallory", T - 9 * SECOND), patch("1", "mallory", T + 1), patch("2", "alice", T + 2)],
            [one()],
            [(1, Err(Unresolved::Ambiguous))],
        ),
        case(
            "an id of somebody else",
            [patch("1", "alice", T + 1), patch("1", "mallory", T + 1)],
            [one()],
            [(1, Err(Unresolved::Ambiguous))],
        ),
        case("impersonated", [as_user("1", "alice", "argocd")], [one()], [(1, field("alice"))]),
        case(
            "one user who was impersonated and was not",
            [as_user("1", "alice", "argocd"), patch("2", "alice", T + 2)],
            [one()],
            [(1, Err(Unresolved::Ambiguous))],
        ),
        case(
            "a binding changes no manager",
            [with(patch("1", "scheduler", T + 1), |bind| {
                (bind.verb, bind.subresource, bind.code) = ("create".to_owned(), "binding".to_owned(), 201);
            })],
            [but(one(), |version| version.managers = Arc::default())],
            [(1, field("scheduler"))],
        ),
    ]);
}

#[test]
fn deletions() {
    let delete = |id, user, at| ask(id, user, "delete", at);
    let asked = |seq| but(version(seq, Modified, "5", T), |version| version.deletion_requested = true);
    let gone = |seq, second| but(version(seq, Deleted, "9", second), |version| version.deleting = true);
    let finish = || ask("9", "controller", "update", T + 30 * SECOND);
    let dry = |request| with(request, |request| request.may_be_dry = true);
    let deleted = |user| Ok((user, Certainty::Deleted));
    let collection = |id, user| {
        with(delete(id, user, T + 1), |all| {
            all.verb = "deletecollection".to_owned();
            all.name.clear();
        })
    };
    check(vec![
        case("at once", [delete("1", "alice", T + 1)], [version(1, Deleted, "9", T)], [(1, deleted("alice"))]),
        case(
            "who asked, and not who removed the last finalizer",
            [delete("1", "alice", T + 1), finish()],
            [asked(1), gone(2, T + 30 * SECOND)],
            [(1, deleted("alice")), (2, deleted("alice"))],
        ),
        case(
            "nor who ended its grace period",
            [delete("1", "alice", T + 1), delete("2", "kubelet", T + 30 * SECOND)],
            [asked(1), gone(2, T + 30 * SECOND)],
            [(1, deleted("alice")), (2, deleted("alice"))],
        ),
        case(
            "the first of two, as the second finds it deleted",
            [delete("1", "alice", T + 1), delete("2", "bob", T + 500_000)],
            [asked(1)],
            [(1, deleted("alice"))],
        ),
        case(
            "the first of two, which may have been a dry run",
            [dry(delete("1", "alice", T + 1)), dry(delete("2", "bob", T + 500_000))],
            [asked(1)],
            [(1, Err(Unresolved::Ambiguous))],
        ),
        case(
            "one that may have been a dry run, beside a collection",
            [dry(delete("1", "alice", T + 1)), dry(collection("2", "bob"))],
            [version(1, Deleted, "9", T)],
            [(1, Err(Unresolved::Ambiguous))],
        ),
        case(
            "one that may have been a dry run, and a kubelet, which asks for nothing",
            [dry(delete("1", "alice", T + 1)), dry(delete("2", "system:node:a", T + 500_000))],
            [asked(1), gone(2, T)],
            [(1, deleted("alice")), (2, deleted("alice"))],
        ),
        case(
            "one that may have been a dry run, and who ends its grace period, so that both were none",
            [dry(delete("1", "alice", T + 1)), dry(delete("2", "node", T + 500_000))],
            [asked(1), but(gone(2, T), |version| (version.op, version.grace_shortened) = (Modified, true)), gone(3, T)],
            [(1, deleted("alice")), (2, Ok(("node", Certainty::Field))), (3, deleted("alice"))],
        ),
        case(
            "one that has asked, while the end of its grace period is still of its time and has no request",
            [
                with(delete("1", "alice", T + 1), |delete| delete.received = delete.completed),
                with(ask("2", "node", "patch", T + 20 * SECOND), |patch| patch.manager = "kubelet".to_owned()),
            ],
            [
                asked(1),
                but(change(2, "6", "7", "kubelet", T + 20 * SECOND), |version| version.deleting = true),
                but(gone(3, T + 40 * SECOND), |version| (version.op, version.grace_shortened) = (Modified, true)),
            ],
            [(1, deleted("alice")), (2, Ok(("node", Certainty::Field))), (3, Err(Unresolved::Incomplete))],
        ),
        case(
            "two at once",
            [delete("1", "alice", T + 1), delete("2", "bob", T + 2), finish()],
            [asked(1), gone(2, T + 30 * SECOND)],
            [(1, Err(Unresolved::Ambiguous)), (2, Err(Unresolved::Ambiguous))],
        ),
        case(
            "an end without its beginning",
            [finish()],
            [gone(2, T + 30 * SECOND)],
            [(2, Err(Unresolved::OutsideOfItsTime))],
        ),
        case(
            "an end that was inferred",
            [delete("1", "alice", T + 1)],
            [asked(1), but(gone(2, T + 30 * SECOND), |version| version.evidence = Evidence::Inferred)],
            [(1, deleted("alice")), (2, deleted("alice"))],
        ),
        case(
            "a collection",
            [collection("1", "alice")],
            [version(1, Deleted, "9", T)],
            [(1, Ok(("alice", Certainty::Collection)))],
        ),
        case(
            "a collection beside a deletion of an object that goes at once",
            [collection("1", "alice"), delete("2", "bob", T + 2)],
            [version(1, Deleted, "9", T)],
            [(1, deleted("bob"))],
        ),
        case(
            "a collection beside a deletion that can have found it deleted",
            [collection("1", "alice"), delete("2", "bob", T + 2)],
            [asked(1)],
            [(1, Err(Unresolved::Ambiguous))],
        ),
        case(
            "an eviction makes two versions",
            [with(ask("1", "drain", "create", T + 1), |evict| evict.subresource = "eviction".to_owned())],
            [
                but(change(1, "4", "5", "", T), |version| version.managers = Arc::default()),
                but(asked(2), |version| version.before = Some("5".into())),
            ],
            [(1, Ok(("drain", Certainty::Field))), (2, deleted("drain"))],
        ),
    ]);
}

#[test]
fn what_has_no_actor() {
    let one = || change(1, "4", "5", "kubectl-edit", T);
    let none = |name, request| case(name, [request], [one()], [(1, Err(Unresolved::NotInAuditLog))]);
    let patch = || ask("1", "alice", "patch", T + 1);
    let of = |resource: &str, group: &str| {
        but(version(1, Deleted, "9", T), |version| {
            version.names = names(group, resource, "cart");
        })
    };
    let definition = with(ask("1", "alice", "delete", T + 1), |delete| {
        (delete.group, delete.resource) = ("apiextensions.k8s.io".to_owned(), "customresourcedefinitions".to_owned());
        (delete.namespace, delete.name) = (String::new(), "widgets.example.io".to_owned());
    });
    check(vec![
        none("a dry run", with(patch(), |patch| patch.dry_run = true)),
        none("a conflict", with(patch(), |patch| patch.code = 409)),
        none("a read", with(patch(), |patch| patch.verb = "get".to_owned())),
        none("of another object", with(patch(), |patch| patch.uid = "u2".to_owned())),
        none("a command in it", with(ask("1", "alice", "create", T + 1), |exec| exec.subresource = "exec".to_owned())),
        none("of another manager", with(patch(), |patch| patch.manager = "helm".to_owned())),
        case(
            "an answer that was lost",
            [with(patch(), |patch| patch.code = 504)],
            [one()],
            [(1, Err(Unresolved::Ambiguous))],
        ),
        case(
            "an answer that was lost keeps another from being named",
            [with(patch(), |patch| patch.code = 504), ask("2", "bob", "patch", T + 2)],
            [one()],
            [(1, Err(Unresolved::Ambiguous))],
        ),
        case("an event that expired", [], [of("events", "")], [(1, Err(Unresolved::Expired))]),
        case(
            "an object whose definition went",
            [definition],
            [of("widgets", "example.io")],
            [(1, Err(Unresolved::DefinitionDeleted))],
        ),
        case(
            "before the audit log was read",
            [],
            [version(1, Modified, "5", T - 3600 * SECOND - 1)],
            [(1, Err(Unresolved::OutsideOfItsTime))],
        ),
    ]);
}

#[test]
fn nothing_follows_from_absence_where_requests_are_missing() {
    let put = with(ask("2", "bob", "update", T), |put| (put.before, put.after) = ("5".to_owned(), "6".to_owned()));
    let mut joiner = joiner();
    joiner.doubt(T - SECOND, T + SECOND);
    joiner.request(ask("1", "alice", "patch", T + 1));
    joiner.request(put);
    joiner.version(change(1, "4", "5", "kubectl-edit", T));
    joiner.version(change(2, "5", "6", "kubectl-edit", T));
    let verdicts = finish(&mut joiner).verdicts;
    let answers: Vec<_> = verdicts.iter().map(|verdict| (verdict.seq, verdict.actor.is_ok())).collect();
    assert_eq!(answers, [(2, true), (1, false)], "{verdicts:?}");

    // One version without a request: what another is named by has to show in it.
    let mut joiner = self::joiner();
    joiner.version(change(1, "4", "5", "nobody", T));
    joiner.request(ask("1", "alice", "patch", T + 2 * SECOND));
    joiner.version(but(change(2, "5", "6", "", T + 2 * SECOND), |version| version.managers = Arc::default()));
    joiner.request(ask("2", "alice", "patch", T + 4 * SECOND));
    joiner.version(change(3, "6", "7", "kubectl-edit", T + 4 * SECOND));
    let verdicts = finish(&mut joiner).verdicts;
    let answers: Vec<_> = verdicts.iter().map(|verdict| verdict.actor.as_ref().err().copied()).collect();
    assert_eq!(answers, [Some(Unresolved::NotInAuditLog), Some(Unresolved::Incomplete), None]);
}

#[test]
fn writes_without_a_version_and_versions_that_the_log_lacks() {
    let mut joiner = joiner();
    joiner.request(ask("1", "alice", "patch", T + 1));
    joiner.request(with(ask("2", "bob", "update", T + 2 * SECOND), |put| {
        (put.before, put.after) = ("5".to_owned(), "5".to_owned());
    }));
    joiner.request(with(ask("3", "carol", "update", T + 4 * SECOND), |put| {
        (put.before, put.after) = ("5".to_owned(), "6".to_owned());
    }));
    joiner.version(change(1, "4", "5", "kubectl-edit", T));
    let settled = finish(&mut joiner);
    let ids = |writes: &[super::super::Write]| writes.iter().map(|write| write.id.clone()).collect::<Vec<_>>();
    assert_eq!((ids(&settled.wasted), ids(&settled.unknown_versions)), (vec!["2".to_owned()], vec!["3".to_owned()]));
}

#[test]
fn what_is_kept_is_bounded() {
    let mut joiner = Joiner::new(Limits { bytes: 100_000, ..Limits::default() }, T - SECOND);
    joiner.version(change(1, "4", "5", "kubectl-edit", T));
    for number in 0..10_000 {
        let name = format!("c{}", number % 700);
        joiner.request(with(ask(&number.to_string(), "alice", "patch", T + number), |patch| patch.name = name));
    }
    assert!(joiner.ground.bytes <= 100_000, "{} bytes", joiner.ground.bytes);
    joiner.request(ask("x", "alice", "patch", T + 1));
    let verdicts = finish(&mut joiner).verdicts;
    assert_eq!(verdicts[0].actor, Err(Unresolved::OutsideOfItsTime), "its requests may be forgotten");
    assert_eq!((joiner.ground.bytes, joiner.objects.len()), (0, 0), "nothing is kept for ever");

    // An audit log that ends holds nothing up for longer than the age.
    let mut joiner = self::joiner();
    joiner.version(change(1, "4", "5", "kubectl-edit", T));
    joiner.advance(T, T + 3500 * SECOND);
    assert!(joiner.take().verdicts.is_empty());
    joiner.advance(T, T + 3700 * SECOND);
    assert_eq!(joiner.take().verdicts[0].actor, Err(Unresolved::OutsideOfItsTime));
}
