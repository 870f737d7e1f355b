//! What is read costs what it tells, and not what else there is.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::core::model::ResourceVersion;
use crate::journal::SourceId;

/// A journal with one source for each namespace, and so many objects in each, of which each has one entry.
fn journal(dir: &Path, namespaces: usize, objects: usize) -> Reader {
    let mut conn = schema::open_writer(dir).unwrap();
    let all = conn.transaction().unwrap();
    all.execute("INSERT INTO resource (api_group, plural, facts) VALUES ('', 'pods', '{}')", []).unwrap();
    for namespace in 0..namespaces {
        let name = format!("n{namespace:03}");
        all.execute(
            "INSERT INTO source (resource, namespace, label_selector, field_selector) VALUES (1, ?, '', '')",
            [&name],
        )
        .unwrap();
        for object in 0..objects {
            all.execute(
                "INSERT INTO object (resource, namespace, name, uid, version, present, last)
                 VALUES (1, ?1, ?2, 'u', '1', 1, 1)",
                [&name, &format!("o{object:05}")],
            )
            .unwrap();
            all.execute(
                "INSERT INTO entry (time, type, source, object, previous, object_start, object_end, line)
                 VALUES (0, 0, ?, last_insert_rowid(), 0, 0, 0, x'')",
                [namespace + 1],
            )
            .unwrap();
        }
    }
    all.commit().unwrap();
    Reader::open(dir).unwrap()
}

/// How many instructions the database carries out for this.
fn cost<T>(reader: &mut Reader, read: impl FnOnce(&mut Reader) -> Result<T>) -> (T, usize) {
    let steps = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&steps);
    let count = move || {
        counted.fetch_add(1, Ordering::Relaxed);
        false
    };
    reader.conn.progress_handler(1, Some(count)).unwrap();
    let found = read(reader).unwrap();
    reader.conn.progress_handler(0, None::<fn() -> bool>).unwrap();
    (found, steps.load(Ordering::Relaxed))
}

/// What this costs in the middle of ten namespaces of ten objects, and of ten times as many of them, or of objects in each.
fn costs<T: PartialEq + std::fmt::Debug>(read: impl Fn(&mut Reader) -> Result<T>) -> [(T, usize); 3] {
    [(10, 10), (100, 10), (10, 100)].map(|(namespaces, objects)| {
        let dir = tempfile::tempdir().unwrap();
        cost(&mut journal(dir.path(), namespaces, objects), &read)
    })
}

#[test]
fn objects_of_a_source_cost_the_same_however_many_others_have() {
    let id = SourceId(5);
    let version = ResourceVersion::new("0".to_owned());
    let each = |reader: &Reader| {
        let mut known = 0;
        reader.each_known(id, &version, |_| known += 1).map(|()| known)
    };
    for [few, many, _] in [
        costs(|reader| reader.objects_of(id)),
        costs(|reader| reader.losses(id).map(|(known, _)| known)),
        costs(|reader| each(reader)),
        costs(|reader| reader.objects(1, Some("n004"), None).map(|rows| rows.len() as u64)),
        costs(|reader| reader.objects_changed(1, Some("n004"), Seq(0)).map(|rows| rows.len() as u64)),
    ] {
        assert_eq!(few.0, 10);
        assert_eq!(few, many);
    }
}

#[test]
fn an_object_is_found_by_its_name_however_many_there_are() {
    let [few, _, many] = costs(|reader| reader.objects(1, None, Some("o00007")).map(|rows| rows.len()));
    assert_eq!((few.0, few), (10, many));
    let [few, other, many] = costs(|reader| reader.objects(1, Some("n004"), Some("o00007")).map(|rows| rows.len()));
    assert_eq!((few.0, &few, &few), (1, &other, &many));
}

#[test]
fn nobody_counts_objects_to_know_the_sources() {
    let [few, _, many] = costs(|reader| reader.sources().map(|rows| rows.len()));
    assert_eq!((few.0, few), (10, many));
}

#[test]
fn namespaces_are_found_from_one_to_the_next() {
    let [few, _, many] = costs(|reader| reader.namespaces().map(|found| found.len()));
    assert_eq!((few.0, few), (10, many));
}

#[test]
fn gaps_are_found_without_the_entries_between_them() {
    let query = EntryQuery { types: vec![EntryType::Gap], ..EntryQuery::default() };
    for newest_first in [false, true] {
        let gaps = |reader: &mut Reader| reader.select(&query, (Seq(0), None), newest_first, 64, None);
        let [few, other, many] = costs(|reader| gaps(reader).map(|page| page.looked));
        assert_eq!((few.0, few, few), (0, other, many));
    }
}

/// Entries may be large: they are handed over before all of them are read, and not one is missed.
#[test]
fn entries_with_their_rows_are_read_a_few_at_a_time() {
    let looked = |count: usize, most: usize| {
        let dir = tempfile::tempdir().unwrap();
        let mut reader = journal(dir.path(), 1, count);
        let mut conn = schema::open_writer(dir.path()).unwrap();
        let all = conn.transaction().unwrap();
        let line = Codec::default().compress(None, &(0..300_000_u32).map(noise).collect::<Vec<u8>>());
        assert!(line.len() > 200_000, "it was compressed to {} bytes", line.len());
        all.execute("UPDATE entry SET line = ?", [line]).unwrap();
        all.commit().unwrap();
        cost(&mut reader, |reader| {
            let mut seqs = Vec::new();
            reader.rows_between(Seq(1), Seq(u64::MAX >> 1), &mut |row| {
                seqs.push(row.entry.seq.0);
                if seqs.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
            Ok(seqs)
        })
    };
    assert_eq!(looked(40, 100).0, (1..=40).collect::<Vec<u64>>());
    assert_eq!(looked(10, 1), looked(40, 1));
}

/// What cannot be compressed.
fn noise(number: u32) -> u8 {
    number.wrapping_mul(2_654_435_761).wrapping_mul(number | 1).to_be_bytes()[0]
}
