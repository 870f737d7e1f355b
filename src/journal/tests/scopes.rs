//! Scopes: selectors, namespaces, and first lists that emit nothing.

use super::*;

#[tokio::test]
async fn another_selector_is_another_scope() {
    let dir = tempfile::tempdir().unwrap();
    let open = Open::at(dir.path()).await;
    open.list(10, None, &[pod("a", "u1", 1), pod("b", "u2", 2)]).await;
    open.close();
    let narrower = SourceSpec { label_selector: "tier=web".into(), ..pods() };
    let open = Open::with(dir.path(), &narrower).await;
    assert_eq!((open.memory.checkpoint.resume.clone(), open.memory.why), (None, Some(Why::Scope)));
    open.list(20, Some(Why::Scope), &[pod("b", "u2", 2)]).await;
    assert_eq!(open.log()[2..], ["3 GAP scope 10..20", "4 DELETED inferred a/u1@1"]);
    open.close();
    // One namespace of what was watched everywhere: what is known there is not recorded again.
    let one = SourceSpec { namespace: Some("shop".into()), ..pods() };
    let open = Open::with(dir.path(), &one).await;
    assert_eq!((open.memory.checkpoint.resume.clone(), open.memory.why), (None, Some(Why::Scope)));
    open.list(30, Some(Why::Scope), &[pod("b", "u2", 2)]).await;
    assert_eq!(open.log()[4..], ["5 GAP scope ..30"]);
}

#[tokio::test]
async fn a_silent_first_list_is_remembered_and_not_emitted() {
    let dir = tempfile::tempdir().unwrap();
    let open = Open::with(dir.path(), &SourceSpec { first_list_silent: true, ..pods() }).await;
    open.list(10, None, &[pod("a", "u1", 1), pod("b", "u2", 2)]).await;
    assert!(open.log().is_empty());
    open.watch(vec![upsert("a", "u1", 11), delete("b", "u2", 12)]).await;
    assert_eq!(open.log(), ["1 MODIFIED watched a/u1@11", "2 DELETED watched b/u2@12"]);
    assert_whole(&mut open.journal.reader().unwrap());
}

pub(super) fn one_namespace(namespace: &str) -> SourceSpec {
    SourceSpec { namespace: Some(namespace.into()), ..pods() }
}

pub(super) fn pod_in(namespace: &str, name: &str, uid: &str, version: u64) -> Observed {
    Observed { namespace: namespace.into(), ..pod(name, uid, version) }
}

#[tokio::test]
async fn what_a_narrower_scope_leaves_out_is_recorded_as_gone() {
    let dir = tempfile::tempdir().unwrap();
    let wide = Open::at(dir.path()).await;
    wide.list(10, None, &[pod("a", "u1", 1), pod_in("pay", "b", "u2", 2)]).await;
    wide.close();
    let narrow = Open::with(dir.path(), &one_namespace("shop")).await;
    assert_eq!((narrow.memory.why, narrow.memory.checkpoint.resume.clone()), (Some(Why::Scope), None));
    narrow.journal.narrow().await.unwrap();
    assert_eq!(narrow.log()[2..], ["3 GAP scope 10..", "4 DELETED inferred b/u2@2"]);
    narrow.journal.narrow().await.unwrap();
    assert_eq!(narrow.log().len(), 4, "recorded once");
    narrow.close();
    assert_whole(&mut Reader::open(dir.path()).unwrap());
}

#[tokio::test]
async fn a_scope_that_comes_back_is_listed_again() {
    let dir = tempfile::tempdir().unwrap();
    let wide = Open::at(dir.path()).await;
    wide.list(10, None, &[pod("a", "u1", 1)]).await;
    wide.close();
    let narrow = Open::with(dir.path(), &one_namespace("shop")).await;
    narrow.list(20, Some(Why::Scope), &[pod("a", "u1", 15)]).await;
    narrow.close();
    // Its old position would repeat what the other scope has recorded meanwhile.
    let wide = Open::at(dir.path()).await;
    assert_eq!((wide.memory.why, wide.memory.checkpoint.resume.clone()), (Some(Why::Scope), None));
    wide.close();
}

#[tokio::test]
async fn a_source_registered_anew_keeps_what_waits_for_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let open = Open::at(dir.path()).await;
    open.list(10, None, &[]).await;
    // In one group, so that nothing of it is committed before the source is registered again.
    let changes = vec![upsert("a", "u1", 11), upsert("b", "u2", 12)];
    let spec = pods();
    let (appended, memory) = tokio::join!(open.source.append(changes), open.journal.source(&spec));
    appended.unwrap();
    assert_eq!(memory.unwrap().1.checkpoint.applied, Some(rv(12)));
    open.close();
}

#[tokio::test]
async fn a_silent_list_over_the_dead_begins_anew() {
    let dir = tempfile::tempdir().unwrap();
    let silent = SourceSpec { first_list_silent: true, ..pods() };
    let open = Open::with(dir.path(), &silent).await;
    open.list(10, None, &[]).await;
    open.watch(vec![upsert("a", "u1", 11)]).await;
    open.source.gone().await.unwrap();
    open.close();
    let open = Open::with(dir.path(), &silent).await;
    open.list(30, None, &[pod("a", "u2", 20)]).await;
    open.watch(vec![upsert("a", "u2", 31)]).await;
    let last = open.log().pop().unwrap();
    assert_eq!(last, "4 MODIFIED watched a/u2@31");
    let entries = open.journal.reader().unwrap().entries_after(Seq(3), 10, usize::MAX).unwrap();
    let change = Entry::parse(&entries[0].line).unwrap().change.unwrap().get().to_owned();
    assert!(change.contains(r#""was":"20""#), "{change}");
    open.close();
    assert_whole(&mut Reader::open(dir.path()).unwrap());
}
