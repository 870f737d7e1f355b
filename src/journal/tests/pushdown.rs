//! Entries that are chosen by their rows are those that would be chosen by their lines.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;

use super::*;
use crate::core::filter::Filter;
use crate::core::wire::ROW;

/// Dice of a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn of<'t>(&mut self, all: &[&'t str]) -> &'t str {
        let at = self.below(all.len() as u64);
        all[usize::try_from(at).unwrap()]
    }
}

fn spec(plural: &str, group: &str, kind: &str, namespace: Option<&str>) -> SourceSpec {
    let resource = Resource {
        group: group.into(),
        kind: kind.into(),
        plural: plural.into(),
        singular: kind.to_lowercase(),
        ..pods().resource
    };
    SourceSpec { resource, namespace: namespace.map(str::to_owned), ..pods() }
}

/// A journal with sources of every scope, gaps, lists, incarnations, a kind that changes, and entries that are
/// truncated.
async fn journal(dir: &Path, seed: u64) {
    let mut dice = Dice(seed);
    let (journal, thread) = Journal::open(dir).unwrap();
    let mut specs = vec![
        (pods(), vec!["shop", "pay"]),
        (spec("nodes", "", "Node", None), vec![""]),
        (spec("configmaps", "", "ConfigMap", Some("shop")), vec!["shop"]),
        (spec("widgets", "example.com", "Widget", None), vec!["shop", "pay"]),
    ];
    let mut sources = Vec::new();
    for (spec, _) in &specs {
        sources.push(journal.source(spec).await.unwrap().0);
    }
    let (sink, _) = journal.sink("s", "file", SinkStart::Start).await.unwrap();
    let mut version = 10;
    for turn in 0..40 {
        let at = usize::try_from(dice.below(sources.len() as u64)).unwrap();
        let namespaces = specs[at].1.clone();
        let mut object = |dice: &mut Dice| {
            version += 1;
            let (namespace, name) = (dice.of(&namespaces), dice.of(&["a", "b", "w\u{e9}b-\"1\"\\"]));
            let uid = format!("{at}-{namespace}-{name}-{}", dice.below(2));
            let bytes = serde_json::json!({
                "metadata": {"name": name, "namespace": namespace, "uid": uid, "resourceVersion": version.to_string()},
                // What looks like a member of an entry is none.
                "kind": "Odd", "type": "DELETED", "seq": version, "name": "c",
            });
            let body = Redacted { bytes: bytes.to_string().into_bytes(), ..Redacted::default() };
            Observed { namespace: namespace.into(), name: name.into(), uid, version: rv(version), body }
        };
        match dice.below(6) {
            0 => {
                let mut objects = Vec::new();
                for _ in 0..dice.below(3) {
                    let next = object(&mut dice);
                    if !objects
                        .iter()
                        .any(|known: &Observed| (&known.name, &known.namespace) == (&next.name, &next.namespace))
                    {
                        objects.push(next);
                    }
                }
                sources[at].list_begin().await.unwrap();
                sources[at].list_page(objects).await.unwrap();
                sources[at].list_done(rv(version), Some(Why::Expired)).await.unwrap();
            }
            1 if turn > 20 => {
                specs[3].0.resource.kind = "Gadget".into();
                // What discovery says may come before the source that writes is known.
                journal.remember_resources(vec![specs[3].0.resource.clone()]).await.unwrap();
                if dice.below(2) == 0 {
                    sources[3] = journal.source(&specs[3].0).await.unwrap().0;
                }
            }
            2 => {
                let object = object(&mut dice);
                sources[at].append(vec![WatchChange { verb: Verb::Delete, object }]).await.unwrap();
            }
            _ => {
                let object = object(&mut dice);
                sources[at].append(vec![WatchChange { verb: Verb::Upsert, object }]).await.unwrap();
            }
        }
    }
    journal.flush().await.unwrap();
    let head = journal.head().borrow().0;
    sink.acknowledge(Seq(dice.below(head / 2))).await.unwrap();
    journal.bound(Bounds { max_size: 1 << 40, max_age: Duration::ZERO, drop_oldest: false }).await.unwrap();
    journal.flush().await.unwrap();
    drop((journal, sources, sink));
    thread.join().unwrap();
}

const FILTERS: [&str; 12] = [
    r#"type == "DELETED" || type == "GAP""#,
    r#"kind == "Pod" && namespace == "shop""#,
    r#"kind in ["Widget", "Gadget"]"#,
    r#"kind == "Gadget""#,
    r#"kind == "Odd" || name == "c""#,
    "namespace == null",
    "name == null",
    r#"name.startsWith("w") && resource != "nodes""#,
    "seq % 3 == 1 && v == 1",
    r#"timestamp(time) > timestamp("2020-01-01T00:00:00Z")"#,
    "true",
    // Without an answer for some.
    r#"name + namespace == "ashop""#,
];

#[tokio::test]
async fn rows_and_lines_choose_the_same() {
    let (mut outlines, mut lines) = (0, 0);
    for seed in 1..=15 {
        let dir = tempfile::tempdir().unwrap();
        journal(dir.path(), seed).await;
        let mut reader = Reader::open(dir.path()).unwrap();
        let all = reader.deliverable_after(Seq(0), 10_000, usize::MAX, None).unwrap();
        let is_own = |seq: Seq| all.own.is_some_and(|last| seq <= last);
        let kept = reader.entries_after(Seq(0), 10_000, usize::MAX).unwrap();
        // The header of each row is what its line says, and nothing else.
        let headers = RefCell::new(Vec::new());
        let look = |line: &[u8]| {
            headers.borrow_mut().push(serde_json::from_slice::<Value>(line).unwrap());
            true
        };
        reader.select(&EntryQuery::default(), (Seq(0), None), false, 10_000, Some(&look)).unwrap();
        let mut headers = headers.take();
        headers.sort_by_key(|header| header["seq"].as_u64());
        assert_eq!(headers.len(), kept.len());
        for (header, kept) in headers.iter().zip(&kept) {
            let line: Value = serde_json::from_slice(&kept.line).unwrap();
            if header.get("epoch").is_some() {
                assert_eq!(*header, line);
                let is_whole = line["resource"] == "widgets" || line["type"] == "GAP";
                assert!(is_whole, "only where a kind has changed, and of a GAP, which may name an object: {line}");
                lines += 1;
                continue;
            }
            outlines += 1;
            for key in ROW {
                assert_eq!(header.get(key), line.get(key), "{key} of {line}");
            }
            assert!(header.as_object().unwrap().keys().all(|key| ROW.contains(&key.as_str())), "{header}");
        }
        let seqs = |entries: &[StoredEntry]| entries.iter().map(|entry| entry.seq).collect::<Vec<_>>();
        for text in FILTERS {
            let filter = Filter::compile(text).unwrap();
            assert!(filter.asks_only_for(&ROW), "{text}");
            // As a sink chooses, with what has no answer, and as a command does, without.
            for otherwise in [true, false] {
                let choice = |line: &[u8]| filter.matches(line).unwrap_or(otherwise);
                let by_line = |entries: &[StoredEntry]| {
                    entries.iter().filter(|entry| choice(&entry.line)).map(|entry| entry.seq).collect::<Vec<_>>()
                };
                let (mut delivered, mut after) = (Vec::new(), Seq(0));
                loop {
                    let page = reader.deliverable_after(after, 5, 600, Some(&choice)).unwrap();
                    delivered.extend(seqs(&page.entries));
                    let Some((first, last)) = page.looked_at else { break };
                    assert!(first > after && last >= first);
                    after = last;
                }
                // The gaps for what is truncated are of the sink itself, whatever it wants.
                let wanted = |entry: &&StoredEntry| is_own(entry.seq) || choice(&entry.line);
                let wanted: Vec<Seq> = all.entries.iter().filter(wanted).map(|entry| entry.seq).collect();
                assert_eq!(delivered, wanted, "seed {seed}: {text}");
                for newest_first in [false, true] {
                    let page = reader
                        .select(&EntryQuery::default(), (Seq(0), None), newest_first, 10_000, Some(&choice))
                        .unwrap();
                    let mut selected = seqs(&page.entries);
                    if newest_first {
                        selected.reverse();
                    }
                    assert_eq!((selected, page.looked), (by_line(&kept), kept.len()), "seed {seed}: {text}");
                }
            }
        }
    }
    assert!(outlines > 150 && lines > 20, "{outlines} {lines}");
}

#[tokio::test]
async fn what_is_left_out_by_its_row_is_not_put_together() {
    let dir = tempfile::tempdir().unwrap();
    let open = Open::at(dir.path()).await;
    open.list(10, None, &[pod("a", "u1", 7), pod("b", "u2", 8)]).await;
    open.watch(vec![upsert("a", "u1", 11), upsert("b", "u2", 12)]).await;
    open.close();
    let conn = Connection::open(dir.path().join("journal.db")).unwrap();
    conn.execute("UPDATE entry SET line = x'00' WHERE object = (SELECT id FROM object WHERE name = 'b')", []).unwrap();
    let mut reader = Reader::open(dir.path()).unwrap();
    let chosen = |reader: &mut Reader, text: &str| {
        let filter = Filter::compile(text).unwrap();
        let choice = |line: &[u8]| filter.selects(line).unwrap();
        let choice = filter.asks_only_for(&ROW).then_some(&choice as EntryFilter<'_>);
        let delivered = reader.deliverable_after(Seq(0), 10, usize::MAX, choice)?.entries.len();
        Ok::<_, JournalError>((
            delivered,
            reader.select(&EntryQuery::default(), (Seq(0), None), true, 10, choice)?.entries.len(),
        ))
    };
    assert_eq!(chosen(&mut reader, r#"kind == "Pod" && name == "a""#).unwrap(), (2, 2));
    assert!(chosen(&mut reader, r#"name != "a""#).is_err(), "it is damaged");
    assert!(chosen(&mut reader, r#"name == "a" && uid != """#).is_err(), "a row does not hold the uid");
}

#[tokio::test]
async fn the_kind_of_before_is_read_from_the_lines_where_it_changed() {
    let dir = tempfile::tempdir().unwrap();
    let open = Open::at(dir.path()).await;
    open.watch(vec![upsert("a", "u1", 11)]).await;
    open.close();
    let mut other = pods();
    other.resource.kind = "Other".into();
    let open = Open::with(dir.path(), &other).await;
    open.watch(vec![upsert("b", "u2", 12)]).await;
    let mut reader = Reader::open(dir.path()).unwrap();
    for (kind, expected) in [("Pod", 1), ("Other", 2)] {
        let filter = Filter::compile(&format!("kind == '{kind}'")).unwrap();
        let choice = |line: &[u8]| filter.selects(line).unwrap();
        let found = reader.deliverable_after(Seq(0), 10, usize::MAX, Some(&choice)).unwrap().entries;
        assert_eq!(found.iter().map(|entry| entry.seq.0).collect::<Vec<_>>(), [expected], "{kind}");
    }
}

/// What leaves the scope and comes back is recorded again, as the same change: its id comes again, its place does not.
/// Whoever drops what it has by the id would end with an object deleted that exists.
#[tokio::test]
async fn an_id_may_come_again_and_epoch_and_seq_never_do() {
    let dir = tempfile::tempdir().unwrap();
    let narrower = SourceSpec { label_selector: "tier=web".into(), ..pods() };
    for (spec, objects) in
        [(pods(), true), (narrower.clone(), false), (pods(), true), (narrower, false), (pods(), true)]
    {
        let open = Open::with(dir.path(), &spec).await;
        let all = if objects { vec![pod("a", "u1", 1)] } else { vec![] };
        open.list(10, open.memory.why, &all).await;
        open.close();
    }
    let mut reader = Reader::open(dir.path()).unwrap();
    let entries = reader.entries_after(Seq(0), 99, usize::MAX).unwrap();
    let events: Vec<Value> = entries
        .iter()
        .map(|entry| {
            crate::core::wire::cloudevents::Event::of(
                &crate::core::wire::Header::parse(&entry.line).unwrap(),
                &entry.line,
            )
            .structured()
        })
        .map(|event| serde_json::from_slice(&event).unwrap())
        .collect();
    let of_a: Vec<&Value> = events.iter().filter(|event| event["type"] != "io.decklog.gap.v1").collect();
    let ids: BTreeSet<&str> = of_a.iter().filter_map(|event| event["id"].as_str()).collect();
    assert_eq!((of_a.len(), ids.len()), (5, 2), "{events:?}");
    let places: BTreeSet<(&str, &str)> =
        events.iter().map(|event| (event["epoch"].as_str().unwrap(), event["seq"].as_str().unwrap())).collect();
    assert_eq!(places.len(), events.len(), "{places:?}");
    for (event, entry) in events.iter().zip(&entries) {
        assert_eq!(
            (event["seq"].as_str().unwrap(), &event["epoch"]),
            (&*entry.seq.to_string(), &event["data"]["epoch"])
        );
    }
}
