//! Filters that have no answer for an entry.

use super::*;
use crate::query::timeline::writers::{Writers, writers};

/// A filter whose cost depends on the entry, and is beyond the budget for each.
#[tokio::test]
async fn a_filter_without_an_answer_for_an_entry_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, thread, source) = begun(dir.path()).await;
    write(&journal, &source, 0..20).await;
    let heavy = format!("[name]{}.size() > 0", ".map(x, x+x+x+x+x+x+x+x+x+x)".repeat(9));
    let window = Window { filter: Some(heavy), ..Window::default() };
    let mut opened = opened(&journal, true);
    let failures = [
        histogram(&mut opened, &Histogram { window: window.clone(), buckets: 10 }).unwrap_err(),
        lanes(&mut opened, &Lanes { window: window.clone(), lanes: 10, marks: 10 }).unwrap_err(),
        writers(&mut opened, &Writers { window: Window { since: Some(Timestamp::UNIX_EPOCH), ..window } }).unwrap_err(),
    ];
    for failure in failures {
        assert!(failure.text().starts_with("where: no answer for entry "), "{failure}");
        assert!(failure.text().contains("so it must") && failure.key() == Some("where"), "{failure}");
    }
    drop((opened, journal, source));
    thread.join().unwrap();
}
