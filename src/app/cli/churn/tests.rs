use std::path::Path;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::json;

use super::*;
use crate::core::rights::Sight;
use crate::core::runtime;
use crate::journal::{Attribution, AuditBatch, Journal, RequestCounts, Unwritten, UnwrittenKind};
use crate::query::Log;
use crate::query::churn::Senders;
use crate::query::churn::tests::{BEGIN, Story};
use crate::query::questions::churn::report;
use crate::query::render::clock::Clock;
use crate::query::render::{Exit, Failure};
use crate::query::select::{Filters, Select};

/// An hour of a cluster in which two managers fight, an operator writes time stamps, a node lives, and the watch
/// history expires.
async fn hour(dir: &Path) {
    hour_of(dir, false).await;
}

/// The same hour, with or without an audit log.
async fn hour_of(dir: &Path, is_audited: bool) {
    Story::play(dir, &[], async |story| {
        let none = RequestCounts { since: None, until: runtime::now(), requests: Vec::new() };
        story.journal.requests(Ok(none)).await.unwrap();
        story.pass(5).await;
        story
            .write("deployments", "shop/web", "kubectl-create", |web| {
                web["spec"] = json!({"replicas": 2, "image": "registry.example.com/shop/web:1.27.0"});
            })
            .await;
        story.write("configmaps", "shop/feature-flags", "helm", |map| map["data"] = json!({"checkout": "v2"})).await;
        story
            .write("nodes", "worker-1", "kubelet", |node| {
                node["status"] =
                    json!({"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": BEGIN}]});
            })
            .await;
        story
            .write("leases", "kube-node-lease/worker-1", "kubelet", |lease| {
                lease["spec"] = json!({"holderIdentity": "worker-1", "renewTime": BEGIN});
            })
            .await;
        for minute in 1..=50_u64 {
            story.pass(60).await;
            let now = runtime::now().to_string();
            story
                .write("leases", "kube-node-lease/worker-1", "kubelet", |lease| {
                    lease["spec"]["renewTime"] = now.clone().into();
                })
                .await;
            if minute % 2 == 0 {
                story
                    .write("configmaps", "shop/feature-flags", "careless-operator", |map| {
                        map["metadata"]["annotations"] = json!({"careless.example.com/reconciled": now});
                    })
                    .await;
            }
            if minute % 5 == 0 {
                story
                    .write("nodes", "worker-1", "kubelet", |node| {
                        node["status"]["conditions"][0]["lastHeartbeatTime"] = now.into();
                    })
                    .await;
            }
            let (manager, tag) = match minute % 10 {
                3 => ("kustomize-controller", "1.27.3-alpine"),
                6 => ("image-automation-controller", "1.28.0-rc1"),
                _ => continue,
            };
            story
                .write("deployments", "shop/web", manager, |web| {
                    web["spec"]["image"] = format!("registry.example.com/shop/web:{tag}").into();
                })
                .await;
            story
                .write("deployments", "shop/web", "kube-controller-manager", |web| {
                    web["status"] = json!({"observedGeneration": minute});
                })
                .await;
        }
        story.claim("deployments", "shop/web", "argocd").await;
        story.expire("configmaps").await;
        story.delete("nodes", "worker-1").await;
        let of = |group: &str, plural: &str, verb, count| (group.to_owned(), plural.to_owned(), verb, count);
        let counts = RequestCounts {
            since: Some(BEGIN.parse().unwrap()),
            until: runtime::now(),
            requests: vec![
                of("apps", "deployments", "POST", 1),
                of("apps", "deployments", "PUT", 100),
                of("apps", "deployments", "APPLY", 3),
                of("coordination.k8s.io", "leases", "PUT", 50),
                of("coordination.k8s.io", "leases", "POST", 1),
                of("", "configmaps", "PATCH", 400),
                of("", "nodes", "PATCH", 4),
                of("", "nodes", "DELETECOLLECTION", 1),
            ],
        };
        story.journal.requests(Ok(counts)).await.unwrap();
        if is_audited {
            audited(&story.journal).await;
        }
        story.journal.flush().await.unwrap();
    })
    .await;
}

/// What an audit log of that hour says: a careless operator, two who race, and one who comes an hour later.
async fn audited(journal: &Journal) {
    let at = |minute: i64| BEGIN.parse::<Timestamp>().unwrap().as_microsecond() + minute * 60_000_000;
    let sent =
        |number: i64, kind, user: &str, verb: &str, (group, resource, sub): (&str, &str, &str), minute| Unwritten {
            key: format!("{user}-{number}"),
            kind,
            user: user.to_owned(),
            agent: if user.starts_with("system") { "operator/v1.2.3 (linux/amd64)" } else { "kubectl/v1.36.0" }
                .to_owned(),
            verb: verb.to_owned(),
            group: group.to_owned(),
            resource: resource.to_owned(),
            subresource: sub.to_owned(),
            namespace: "shop".to_owned(),
            name: "feature-flags".to_owned(),
            completed: at(minute),
        };
    let operator = "system:serviceaccount:shop:careless-operator";
    let maps = ("", "configmaps", "");
    let mut wasted: Vec<Unwritten> =
        (0..374).map(|number| sent(number, UnwrittenKind::NoOp, operator, "patch", maps, number % 50)).collect();
    wasted.push(sent(900, UnwrittenKind::NoOp, "alice@example.com", "update", ("apps", "deployments", "scale"), 20));
    wasted.push(sent(901, UnwrittenKind::NoOp, "late@example.com", "update", maps, 70));
    let refused = vec![
        sent(1, UnwrittenKind::AlreadyExists, "bob@example.com", "create", maps, 3),
        sent(2, UnwrittenKind::Conflict, "alice@example.com", "update", ("apps", "deployments", "scale"), 21),
    ];
    journal.audit_logs(vec!["audit".to_owned()]).await.unwrap();
    journal.audited(AuditBatch { log: "audit".to_owned(), refused, ..AuditBatch::default() }).await.unwrap();
    journal.attribute(Attribution { wasted, ..Attribution::default() }).await.unwrap();
}

fn args(requests: bool, top: usize) -> Churned {
    let only = Filters {
        since: Some(BEGIN.parse().unwrap()),
        until: Some("2026-11-21T11:00:00Z".parse().unwrap()),
        ..Filters::default()
    };
    let select = Select { only, ..Select::default() };
    Churned { select, requests, top }
}

fn found(dir: &Path, args: &Churned) -> Result<Report, Failure> {
    let clock = Clock { now: "2026-11-21T11:00:00Z".parse().unwrap(), zone: TimeZone::UTC };
    let log = Log::new(dir.to_owned(), Sight::All, clock, &|_| (), &|| false);
    report(args, &mut log.open().unwrap(), &log)
}

#[tokio::test(start_paused = true)]
async fn an_hour_reads_well_in_80_and_120_columns_and_as_json() {
    let dir = tempfile::tempdir().unwrap();
    hour_of(dir.path(), true).await;
    let report = found(dir.path(), &args(true, 4)).unwrap();
    for columns in [80, 120] {
        let text = lines(&report, TerminalStyle { color: false, terminal: true, width: Some(columns) });
        assert!(text.iter().flat_map(|text| text.lines()).all(|line| line.chars().count() <= columns), "{text:#?}");
        insta::assert_snapshot!(format!("{columns}_columns"), text.join("\n"));
    }
    insta::assert_json_snapshot!("json", report);
}

#[tokio::test(start_paused = true)]
async fn a_choice_is_respected() {
    let dir = tempfile::tempdir().unwrap();
    hour(dir.path()).await;
    let choose = |change: &dyn Fn(&mut Select)| {
        let mut args = args(false, 10);
        change(&mut args.select);
        found(dir.path(), &args).unwrap().writes.writes
    };
    assert_eq!(choose(&|_| ()), 111);
    assert_eq!(choose(&|select| select.objects = vec!["configmaps".into()]), 26);
    assert_eq!(choose(&|select| select.objects = vec!["deployments.apps/web".into(), "nodes".into()]), 34);
    assert_eq!(choose(&|select| select.only.namespaces = vec!["kube-node-lease".into()]), 51);
    assert_eq!(choose(&|select| select.only.types = vec![crate::core::model::EntryType::Deleted]), 1);
    // Where there is no `change` the expression has no answer, and the entry is left out.
    assert_eq!(choose(&|select| select.only.filter = Some("'status' in change.areas".into())), 20);
    assert_eq!(choose(&|select| select.only.since = Some("2026-11-21T10:50:05Z".parse().unwrap())), 5);
    assert_eq!(choose(&|select| select.only.until = Some("2026-11-21T10:00:30Z".parse().unwrap())), 4);
    // Without --since it is the last hour.
    assert_eq!(choose(&|select| (select.only.since, select.only.until) = (None, None)), 111);
}

#[tokio::test(start_paused = true)]
async fn counters_of_a_resource_are_printed_alone() {
    let dir = tempfile::tempdir().unwrap();
    hour(dir.path()).await;
    let mut args = args(true, 10);
    args.select.objects = vec!["leases".into()];
    let requests = found(dir.path(), &args).unwrap().requests.unwrap();
    let found: Vec<_> = requests.resources.iter().map(|of| (&*of.resource, of.requests, of.dropped)).collect();
    assert_eq!(found, [("leases.coordination.k8s.io", 51, Some(0))]);
}

/// With an audit log there are names without counters, for the hours that the span touches and the resources that it chooses.
#[tokio::test(start_paused = true)]
async fn senders_are_named_by_the_audit_log_alone() {
    let dir = tempfile::tempdir().unwrap();
    Story::play(dir.path(), &[], async |story| {
        story.write("configmaps", "shop/feature-flags", "helm", |map| map["data"] = json!({"a": "b"})).await;
        story.write("deployments", "shop/web", "helm", |web| web["spec"] = json!({"replicas": 2})).await;
        audited(&story.journal).await;
        story.journal.flush().await.unwrap();
    })
    .await;
    let senders = |change: &dyn Fn(&mut Churned)| {
        let mut args = args(true, 10);
        change(&mut args);
        let report = found(dir.path(), &args).unwrap();
        assert!(report.requests.is_none());
        report.senders.unwrap()
    };
    let of = |senders: &Senders| (senders.no_op, senders.conflicts, senders.already_exists, senders.rows.len());
    assert_eq!(
        of(&senders(&|args| args.select.only.until = Some("2026-11-21T10:59:00Z".parse().unwrap()))),
        (375, 1, 1, 3)
    );
    assert_eq!(of(&senders(&|_| ())), (376, 1, 1, 4), "an hour counts as a whole");
    assert_eq!(of(&senders(&|args| args.select.objects = vec!["deployments".into()])), (1, 1, 0, 1));
    assert_eq!(of(&senders(&|args| args.top = 1)), (376, 1, 1, 1), "the sums are of all");
    let report = found(dir.path(), &args(true, 10)).unwrap();
    let text = lines(&report, TerminalStyle { color: false, terminal: false, width: None }).join("\n");
    for part in [
        "[cluster] request_metrics = true adds them",
        "careless-operator (operator/v1.2.3): patch configmaps shop/feature-flags",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(found(dir.path(), &args(false, 10)).unwrap().senders.is_none());
}

/// Without an audit log the counters are there, and one line says what names the senders.
#[tokio::test(start_paused = true)]
async fn without_an_audit_log_it_says_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    hour(dir.path()).await;
    let report = found(dir.path(), &args(true, 4)).unwrap();
    let text = lines(&report, TerminalStyle { color: false, terminal: false, width: None }).join("\n");
    assert_eq!(text.matches("configure [[audit_log]]").count(), 1, "{text}");
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_answered_is_said_in_one_sentence() {
    let dir = tempfile::tempdir().unwrap();
    hour(dir.path()).await;
    let refused = |change: &dyn Fn(&mut Churned), exit: Exit, says: &str| {
        let mut args = args(true, 10);
        change(&mut args);
        let failure = found(dir.path(), &args).unwrap_err();
        let text = failure.to_string();
        assert!(failure.exit() == exit && text.contains(says) && !text.contains('\n'), "{text}");
    };
    refused(&|args| args.select.only.namespaces = vec!["shop".into()], Exit::Usage, "does not go with -n");
    refused(&|args| args.select.objects = vec!["deployments.apps/web".into()], Exit::Usage, "does not go with a NAME");
    refused(&|args| args.select.only.filter = Some("true".into()), Exit::Usage, "does not go with --where");
    refused(
        &|args| args.select.only.until = Some("2026-11-21T09:00:00Z".parse().unwrap()),
        Exit::Usage,
        "is after --until",
    );
    refused(&|args| args.select.objects = vec!["deploymint".into()], Exit::Usage, "did you mean deployment");
    refused(
        &|args| args.select.only.since = Some("2026-11-21T10:59:00Z".parse().unwrap()),
        Exit::No,
        "[cluster] request_metrics = true",
    );
}
