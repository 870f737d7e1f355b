//! Messages of a sink that may be updated.

use super::*;

/// A sink keeps the messages of what goes on, each as it is now, and never more than its most.
#[tokio::test]
async fn messages_are_kept_while_they_may_be_updated() {
    let dir = tempfile::tempdir().unwrap();
    let open = Open::at(dir.path()).await;
    let sink = open.sink("s").await;
    let message = |first: u64, last: u64, reference: Option<&str>| Message {
        incident: "c/rule/Pod/shop/web".to_owned(),
        first: Seq(first),
        last: Seq(last),
        entries: last,
        reference: reference.map(str::to_owned),
    };
    let keep = async |messages: Vec<Message>, over: u64| {
        sink.progress(Progress { messages, over: Seq(over), ..Progress::default() }).await.unwrap();
        open.journal.reader().unwrap().messages("s").unwrap()
    };
    let first = vec![message(1, 1, Some("a")), message(2, 3, Some("b"))];
    assert_eq!(keep(first.clone(), 0).await, first);
    assert_eq!(keep(Vec::new(), 9).await, first, "without news nothing is looked at");
    let updated = [message(1, 4, Some("a")), message(2, 3, Some("b"))];
    assert_eq!(keep(vec![updated[0].clone()], 0).await, updated);
    assert_eq!(keep(vec![message(6, 6, Some("c")), message(1, 5, None)], 3).await, [message(6, 6, Some("c"))]);
    assert_eq!(open.journal.reader().unwrap().messages("t").unwrap(), []);
    let many = (10..10 + MESSAGES as u64).map(|seq| message(seq, seq, Some("d"))).collect();
    let kept = keep(many, 0).await;
    assert_eq!((kept.len(), kept[0].first), (MESSAGES, Seq(10)), "the oldest makes room");
    drop(sink);
    open.close();
}
