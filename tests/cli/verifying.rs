//! `decklog verify`, of a journal and of the copies that sinks wrote.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use decklog::journal::{SinkStart, StoredEntry};

use super::{Answer, State, decklog, upsert};

#[tokio::test]
async fn verify_proves_a_journal_and_finds_damage() {
    let state = State::told().await;
    let text = state.run(&["verify"]).done();
    assert!(text.contains("7 entries (1 to 7) with 1 gap") && text.contains("whole and unaltered"), "{text}");
    let dir = state.close();
    let conn = rusqlite::Connection::open(dir.path().join("journal.db")).unwrap();
    conn.execute("DELETE FROM entry WHERE seq = 3", []).unwrap();
    drop(conn);
    let run = |args: &[&str]| Answer::of(decklog(dir.path(), args).output().unwrap());
    let damaged = run(&["verify"]);
    assert_eq!((damaged.code, damaged.err.as_str()), (1, ""), "{damaged:?}");
    assert!(damaged.out.contains("entries 3 to 3 are missing") && damaged.out.contains("is damaged"), "{damaged:?}");
    let json = run(&["verify", "-o", "json"]);
    let answer: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!((json.code, &answer["whole"]), (1, &false.into()));
    assert!(!answer["problems"].as_array().unwrap().is_empty());
}

#[tokio::test]
async fn verify_proves_a_copy_and_finds_what_was_done_to_it() {
    let state = State::told().await;
    let whole = state.run(&["tail", "-o", "json"]).done();
    let lines: Vec<&str> = whole.lines().collect();
    let file = state.dir.path().join("copy.jsonl");
    let check = |text: &str, args: &[&str]| {
        fs::write(&file, text).unwrap();
        state.run(&[&["verify", "copy.jsonl"], args].concat())
    };
    let text = check(&whole, &[]).done();
    assert!(text.contains("every entry is byte for byte what the journal gives"), "{text}");

    let join = |lines: &[&str]| lines.join("\n") + "\n";
    let swapped = [&[lines[1], lines[0]], &lines[2..]].concat();
    let repeated = [&lines[..4], &lines[3..]].concat();
    let holed = [&lines[..2], &lines[3..]].concat();
    let object = |line: &str| line.split_once("\"object\":").unwrap().1.to_owned();
    let foreign = lines[0].replace(&object(lines[0]), &object(lines[1]));
    let swap_objects = [&[foreign.as_str()], &lines[1..]].concat();
    let reordered = lines[0].replacen("\"v\":1,", "", 1).replacen("\"epoch\"", "\"v\":1,\"epoch\"", 1);
    for (text, symptom) in [
        (whole.replace("\"replicas\":33", "\"replicas\":34"), "entry 7 is not what the journal gives"),
        (join(&swapped), "entry 1 comes after entry 2"),
        (join(&repeated), "entry 4 comes after entry 4"),
        (join(&holed), "entry 3 is missing before it"),
        (whole.trim_end().to_owned(), "it is cut"),
        (whole.replace("{\"v\":1,\"seq\":5", "{\"v\":1, \"seq\":5"), "entry 5 is not in the form"),
        (join(&[&[reordered.as_str()], &lines[1..]].concat()), "entry 1 is not in the form"),
        (whole.replace("\"type\":\"GAP\"", "\"type\":\"NONE\""), "unknown type"),
        (join(&lines) + &lines[6].replace("\"seq\":7", "\"seq\":8") + "\n", "repeats an earlier change"),
        (join(&lines) + &lines[0].replace("\"seq\":1", "\"seq\":8"), "it is cut"),
        (format!("{whole}garbage\n"), "not an entry"),
        (join(&swap_objects), "entry 1 carries another object"),
    ] {
        let answer = check(&text, &[]);
        assert_eq!((answer.code, answer.err.as_str()), (1, ""), "{symptom}: {answer:?}");
        assert!(answer.out.contains(symptom), "{symptom}: {answer:?}");
        assert!(answer.out.contains("copy.jsonl, line "), "{answer:?}");
    }

    // What a sink with a filter wrote is whole by the same filter, and only by it.
    let filter = ["--where", "type != 'MODIFIED'"];
    let thin: Vec<&str> = lines.iter().copied().filter(|line| !line.contains("\"MODIFIED\"")).collect();
    assert!(check(&join(&thin), &filter).done().contains("1 entry was left out by the filter"));
    let thinner = [&thin[..1], &thin[2..]].concat();
    let answer = check(&join(&thinner), &filter);
    assert!(answer.code == 1 && answer.out.contains("entry 2 is missing before it"), "{answer:?}");
}

#[tokio::test]
async fn verify_says_how_much_of_a_copy_it_has_proved() {
    let state = State::told().await;
    let whole = state.run(&["tail", "-o", "json"]).done();
    let lines: Vec<&str> = whole.lines().collect();
    let file = state.dir.path().join("copy.jsonl");
    let check = |lines: &[&str]| {
        fs::write(&file, lines.iter().map(|line| format!("{line}\n")).collect::<String>()).unwrap();
        let json = state.run(&["verify", "copy.jsonl", "-o", "json"]);
        let text = state.run(&["verify", "copy.jsonl"]);
        let said: serde_json::Value = serde_json::from_str(&json.out).unwrap();
        let whole = [(0, true.into()), (1, false.into()), (3, serde_json::Value::Null)];
        assert!(whole.contains(&(text.code, said["whole"].clone())) && json.code == text.code, "{said}");
        text
    };
    // Nothing tells which sink writes it.
    for (part, says) in [
        (&lines[..], "copy.jsonl is whole and unaltered from entry 1 to 7; nothing shows whether more belongs to it"),
        (&lines[2..5], "copy.jsonl is whole and unaltered from entry 3 to 5; nothing shows whether more belongs to it"),
    ] {
        let text = check(part).done();
        assert_eq!(text.lines().last().unwrap(), says);
    }
    let empty = check(&[]);
    assert_eq!((empty.code, empty.err.as_str()), (1, ""), "{empty:?}");
    assert!(empty.out.contains("copy.jsonl has no entries: nothing is proved by it"), "{empty:?}");

    // The configuration does.
    let config = "[[sink]]\nname = \"audit\"\ntype = \"file\"\npath = \"copy.jsonl\"\n";
    let configure = |more: &str| {
        let text = format!("[state]\npath = \".\"\n[[watch]]\nresources = [\"deployments\"]\n{config}{more}");
        fs::write(state.dir.path().join("config.toml"), text).unwrap();
    };
    configure("");
    let (sink, _) = state.journal.sink("audit", "file", SinkStart::Start).await.unwrap();
    let none = check(&[]).done();
    assert!(none.contains("copy.jsonl has no entries, and the sink audit took none yet"), "{none}");
    sink.acknowledge(decklog::core::model::Seq(6)).await.unwrap();
    let text = check(&lines[..6]).done();
    let says = "copy.jsonl is whole and unaltered from entry 1 to 6, the last that the sink audit took";
    assert_eq!(text.lines().last().unwrap(), says);
    for (part, symptom) in [
        (&lines[..5], "it ends with entry 5, but the sink audit took entries up to 6"),
        (&[], "it has no entries, but the sink audit took entries up to 6"),
        (&lines[2..], "line 1: entries 1 to 2 are missing before it"),
    ] {
        let answer = check(part);
        assert_eq!((answer.code, answer.err.as_str()), (1, ""), "{symptom}: {answer:?}");
        assert!(answer.out.contains(symptom) && answer.out.contains("copy.jsonl is damaged"), "{symptom}: {answer:?}");
    }
    // Where files are removed, or the sink began later, what came before is not known.
    for more in ["rotate_size = \"1MiB\"", "from = \"now\""] {
        configure(more);
        let text = check(&lines[2..]).done();
        assert!(
            text.ends_with(
                "from entry 3 to 7, the last that the sink audit took; no given file has the entries before: the sink began later, or rotation has removed them\n"
            ),
            "{text}"
        );
        // What is missing in between is not what rotation removes.
        let answer = check(&[&lines[2..4], &lines[5..]].concat());
        assert!(answer.code == 1 && answer.out.contains("entry 5 is missing before it"), "{answer:?}");
        assert_eq!(check(&lines[2..5]).code, 1);
    }
    // A journal that was put back begins a new epoch, of which the sink has nothing yet.
    configure("");
    sink.acknowledge(decklog::core::model::Seq(7)).await.unwrap();
    state.journal.begin_epoch(None).await.unwrap();
    let text = check(&lines).done();
    assert!(text.ends_with("from entry 1 to 7; nothing shows whether more belongs to it\n"), "{text}");
    state.watch(vec![upsert("shop", "api", 50)]).await;
    sink.acknowledge(decklog::core::model::Seq(8)).await.unwrap();
    let answer = check(&lines);
    assert!(answer.code == 1 && answer.out.contains("it has nothing of the journal's epoch"), "{answer:?}");
    let more = state.run(&["tail", "-o", "json"]).done();
    check(&more.lines().collect::<Vec<_>>()).done();
}

#[tokio::test]
async fn verify_reads_rotated_files_in_any_order_and_without_the_journal() {
    let state = State::told().await;
    let whole = state.run(&["tail", "-o", "json"]).done();
    let lines: Vec<&str> = whole.lines().collect();
    let elsewhere = tempfile::tempdir().unwrap();
    let old = zstd::encode_all((lines[..4].join("\n") + "\n").as_bytes(), 1).unwrap();
    fs::write(elsewhere.path().join("a.jsonl.zst"), &old).unwrap();
    fs::write(elsewhere.path().join("a.jsonl"), lines[4..].join("\n") + "\n").unwrap();
    let run = |args: &[&str]| Answer::of(decklog(elsewhere.path(), args).output().unwrap());
    let alone = run(&["verify", "a.jsonl", "a.jsonl.zst"]);
    assert_eq!((alone.code, alone.err.as_str()), (3, ""), "{alone:?}");
    let text = alone.out;
    assert!(text.contains("7 entries (1 to 7)") && text.contains("not compared with the journal"), "{text}");
    assert!(text.contains("1 patch leads from one version of an object to the next"), "{text}");
    assert!(text.contains("a.jsonl a.jsonl.zst is consistent, not authenticated, from entry 1 to 7"), "{text}");
    let json = run(&["verify", "a.jsonl", "a.jsonl.zst", "-o", "json"]);
    assert!(json.code == 3 && json.out.contains("\"whole\": null"), "{json:?}");
    let state_dir = state.dir.path().to_str().unwrap();
    let text = run(&["verify", "a.jsonl", "a.jsonl.zst", "--state", state_dir]).done();
    assert!(text.contains("every entry is byte for byte"), "{text}");

    fs::write(elsewhere.path().join("a.jsonl.zst"), &old[..old.len() - 5]).unwrap();
    assert_eq!(run(&["verify", "a.jsonl.zst"]).code, 1);
    assert_eq!(run(&["verify", "missing.jsonl"]).code, 74);
    assert_eq!(run(&["verify", "--state", "/nowhere", "a.jsonl"]).code, 78);

    let mut child =
        decklog(elsewhere.path(), &["verify", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(whole.as_bytes()).unwrap();
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(3));

    // What was altered is found where what follows does not fit, and never called unaltered.
    for (from, to, code) in [
        ("\"replicas\":7,", "\"replicas\":70,", 1),
        ("\"was\":7}", "\"was\":70}", 1),
        ("\"value\":11,", "\"value\":110,", 1),
        ("\"replicas\":33,", "\"replicas\":330,", 3),
    ] {
        let forged = whole.replace(from, to);
        assert_ne!(forged, whole, "{from}");
        fs::write(elsewhere.path().join("forged.jsonl"), forged).unwrap();
        let answer = run(&["verify", "forged.jsonl"]);
        assert_eq!(answer.code, code, "{from}: {answer:?}");
        assert!(!answer.out.contains("unaltered"), "{from}: {answer:?}");
    }
}

#[tokio::test]
async fn smaller_payloads_are_compared_as_what_they_are() {
    let state = State::told().await;
    let mut reader = state.journal.reader().unwrap();
    let entries = reader.entries_after(decklog::core::model::Seq(0), 100, usize::MAX).unwrap();
    for payload in [decklog::core::wire::Payload::Diff, decklog::core::wire::Payload::Metadata] {
        let shape = decklog::core::wire::Shape { payload, managed_fields: true };
        let shaped = |entry: &StoredEntry| shape.apply(entry.op, &entry.line).unwrap();
        let copy: Vec<u8> = entries.iter().flat_map(|entry| [&shaped(entry)[..], b"\n"].concat()).collect();
        fs::write(state.dir.path().join("copy.jsonl"), &copy).unwrap();
        let text = state.run(&["verify", "copy.jsonl"]).done();
        assert!(text.contains("every entry is byte for byte"), "{text}");
    }
}
