//! Views: what is decided of each table, and what a reading through them costs.

use super::*;
use crate::core::rights::tests::Listings;
use crate::core::rights::{ANSWER_AGE_MAX, Rights};
use crate::journal::schema;

/// The tables of which only who sees all of the log is shown something.
const CLOSED: [&str; 13] = [
    "outline",
    "listing",
    "unread",
    "backlog",
    "sink",
    "message",
    "relabeling",
    "audited",
    "audited_refused",
    "tree",
    "tree_block",
    "tree_leaves",
    "digest",
];

/// Whoever adds a table says here who may see what of it.
#[test]
fn every_table_is_decided() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, thread) = crate::journal::Journal::open(dir.path()).unwrap();
    drop(journal);
    thread.join().unwrap();
    let reader = Reader::open(dir.path()).unwrap();
    let names = reader
        .rows("SELECT name FROM main.sqlite_schema WHERE type = 'table'", [], |row| row.get::<_, String>(0))
        .unwrap();
    for name in &names {
        let lists = [&OPEN[..], &CLOSED[..], &FILTERED[..]];
        let count = lists.iter().filter(|list| list.contains(&name.as_str())).count();
        assert_eq!(count, 1, "{name} has to be in one of the lists");
    }
}

/// A reader of ten namespaces that may list something in one of them.
fn narrowed(dir: &Path) -> (Reader, Arc<Listings>) {
    let mut conn = schema::open_writer(dir).unwrap();
    let all = conn.transaction().unwrap();
    all.execute("INSERT INTO resource (api_group, plural, facts) VALUES ('', 'pods', '{}')", []).unwrap();
    all.execute("INSERT INTO source (resource, namespace, label_selector, field_selector) VALUES (1, '', '', '')", [])
        .unwrap();
    for object in 0..10 {
        let (namespace, name) = (format!("n{object}"), format!("o{object}"));
        all.execute(
            "INSERT INTO object (resource, namespace, name, uid, version, present, last) VALUES (1, ?1, ?2, 'u', '1', 1, 1)",
            [&namespace, &name],
        )
        .unwrap();
        all.execute(
            "INSERT INTO entry (time, type, source, object, previous, object_start, object_end, line)
             VALUES (0, 0, 1, last_insert_rowid(), 0, 0, 0, x'')",
            [],
        )
        .unwrap();
    }
    all.commit().unwrap();
    let rights = Listings::new(&[Listing::new("", "pods", "n4")], ANSWER_AGE_MAX);
    let decide = [Listing::everything(), Listing::new("", "pods", "")];
    decide.iter().for_each(|listing| assert!(!rights.decide(listing).unwrap().is_allowed));
    let sight = Sight::of(Arc::<Listings>::clone(&rights));
    (Reader::seen_by(dir, &sight).unwrap(), rights)
}

/// A view is a query over a table, and what is asked of it reaches the indices of that: nothing is read through from end to end
/// but what is small.
#[test]
fn views_use_the_indices_of_their_tables() {
    let dir = tempfile::tempdir().unwrap();
    let (reader, _) = narrowed(dir.path());
    for text in [
        "SELECT seq, type, base, line FROM entry WHERE seq = 5",
        "SELECT seq, line FROM entry WHERE seq > 2 AND seq < 9 ORDER BY seq LIMIT 5",
        "SELECT seq, line FROM entry WHERE seq < 9 ORDER BY seq DESC LIMIT 5",
        "SELECT seq FROM entry e WHERE e.type = 3 AND e.seq > 1 ORDER BY e.seq DESC LIMIT 1",
        "SELECT id FROM object WHERE resource = 1 AND namespace = 'n4' AND name = 'o4'",
        "SELECT id FROM object WHERE resource = 1 AND namespace = 'n4'",
        "SELECT id FROM object WHERE id = 5",
        "SELECT entry FROM actor WHERE seq = 5",
        "SELECT seq, entry FROM actor WHERE seq BETWEEN 2 AND 9 ORDER BY seq",
        "SELECT e.seq FROM entry e JOIN source s ON s.id = e.source LEFT JOIN object o ON o.id = e.object
         WHERE e.seq > 2 AND e.seq < 9 AND o.namespace IN ('n4') ORDER BY e.seq LIMIT 5",
    ] {
        let plan = reader.rows(&format!("EXPLAIN QUERY PLAN {text}"), [], |row| row.get::<_, String>(3)).unwrap();
        assert!(!plan.iter().any(|step| step.starts_with("SCAN")), "{text}: {plan:#?}");
        assert!(!plan.iter().any(|step| step.contains("TEMP B-TREE")), "{text}: {plan:#?}");
    }
}

/// Of what is beside the namespaces that a question is about nothing is decided, whatever is read.
#[test]
fn nothing_is_decided_beside_what_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let (reader, rights) = narrowed(dir.path());
    reader.limit(&["n4".to_owned(), "n5".to_owned()]);
    let Some(Narrowed { visit, .. }) = reader.narrowed.clone() else { panic!("it sees all") };
    reader.rows_changed(Seq(0)).unwrap();
    visit.settle().unwrap();
    assert_eq!(reader.rows_changed(Seq(0)).unwrap(), [5]);
    let namespaces: Vec<String> = rights.decided().into_iter().map(|listing| listing.namespace).collect();
    assert!(namespaces.iter().all(|namespace| ["", "n4", "n5"].contains(&&**namespace)), "{namespaces:?}");
}

/// A version that may be seen is put together from one that this connection does not show.
#[test]
fn a_base_need_not_be_shown() {
    let dir = tempfile::tempdir().unwrap();
    let (mut reader, _) = narrowed(dir.path());
    let base = Codec::default().compress(None, br#"{"seq":1}"#);
    let conn = schema::open_writer(dir.path()).unwrap();
    conn.execute("UPDATE entry SET line = ? WHERE seq = 1", [&base]).unwrap();
    assert!(reader.row(Seq(1)).unwrap().is_none(), "n0 is hidden");
    assert_eq!(&*reader.base(1).unwrap(), br#"{"seq":1}"#);
}

/// What counts or quotes what may be of any namespace is shown to nobody who sees one of them.
#[test]
fn what_counts_over_all_namespaces_is_not_shown() {
    let dir = tempfile::tempdir().unwrap();
    let (reader, _) = narrowed(dir.path());
    let golden = include_str!("../../../../tests/golden/entries.jsonl");
    let gap = golden.lines().find(|line| line.contains("\"GAP\"") && line.contains("\"recovered\":12")).unwrap();
    let conn = schema::open_writer(dir.path()).unwrap();
    let line = Codec::default().compress(None, gap.as_bytes());
    conn.execute(
        "INSERT INTO entry (time, type, source, previous, object_start, object_end, line) VALUES (0, 3, 1, 0, 0, 0, ?)",
        [&line],
    )
    .unwrap();
    for (column, instead) in OF_SOURCE {
        conn.execute(&format!("UPDATE source SET {column} = '7'"), []).unwrap();
        let shown = |table: &str| {
            let text = format!("SELECT quote({column}) FROM {table}");
            reader.rows(&text, [], |row| row.get::<_, String>(0)).unwrap().remove(0)
        };
        assert_ne!(shown("main.source"), instead, "{column}");
        assert_eq!(shown("source"), instead, "{column}");
    }
    let shown = reader.rows("SELECT line FROM entry WHERE type = 3", [], |row| row.get::<_, Vec<u8>>(0)).unwrap();
    let shown = Codec::default().decompress(None, &shown[0]).unwrap();
    assert_eq!(String::from_utf8(shown.to_vec()).unwrap(), gap.replace(",\"recovered\":12", ""));
}
