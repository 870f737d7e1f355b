//! Filters that have no answer for an entry.

use super::*;
use crate::ui::writers::writers;

/// A filter whose cost depends on the entry, and is beyond the budget for each.
#[tokio::test]
async fn a_filter_without_an_answer_for_an_entry_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, thread, source) = begun(dir.path()).await;
    write(&journal, &source, 0..20).await;
    let (mut reader, clock) = (journal.reader().unwrap(), clock());
    let now = clock.now.as_microsecond() + 3_600_000_000;
    let heavy = format!("where=[name]{}.size()+%3E+0", ".map(x,+x%2Bx%2Bx%2Bx%2Bx%2Bx%2Bx%2Bx%2Bx%2Bx)".repeat(9));
    let asked = Asked::read(&Query::read(&heavy).unwrap(), &reader, &clock).unwrap();
    let (index, present) = (Index::default(), present_at(now, true));
    let most = Most { lanes: 10, marks: 10 };
    let problems = [
        histogram(&index, &mut reader, &asked, 10, now, later()).unwrap_err(),
        lanes(&index, &mut reader, &asked, most, present, later()).unwrap_err(),
        writers(&mut reader, &asked, (0, now), later()).unwrap_err(),
    ];
    for problem in problems {
        assert!(problem.text.starts_with("where: no answer for entry "), "{problem:?}");
        assert!(problem.text.contains("so it must"), "{problem:?}");
    }
    drop((journal, source));
    thread.join().unwrap();
}
