//! Evidence of a daemon that is killed, rotated and restarted, by Tessera's checker of transparency logs, by the script of the documents,
//! and by `decklog verify`, which names every alteration. It proves the way from the configuration to what an auditor has in hand.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use decklog::sim::{Sim, objects};
use decklog_testkit::tessera;
use serde_json::{Value, json};

use crate::support::{Daemon, Dice, cluster, copy, decklog, until};

const WATCH: &str = "resources = [\"configmaps\"]";

/// A daemon with evidence, and its public key.
struct Signed {
    daemon: Daemon,
    key: String,
}

impl Signed {
    async fn begin(sim: &Sim) -> Self {
        Self::with(sim, "").await
    }

    /// One whose file sink has more keys.
    async fn with(sim: &Sim, keys: &str) -> Self {
        let mut daemon = Daemon::with(sim, WATCH, "");
        let file = daemon.path("evidence.key");
        let made = decklog(
            &daemon.path(""),
            &["evidence", "key", file.to_str().unwrap(), "--name", "audit.example/decklog"],
            &[],
        )
        .await;
        let key = made.done().trim().to_owned();
        assert!(key.starts_with("audit.example/decklog+"), "{key}");
        let section = format!("{keys}[evidence]\ndir = {:?}\nkey_file = {file:?}\n", daemon.path("evidence"));
        daemon.configure(&daemon.config(WATCH, &section));
        daemon.start();
        daemon.ready().await;
        Self { daemon, key }
    }

    /// Every tree of a directory holds, by a program that is not ours.
    fn fsck(&self, dir: &Path) -> String {
        tessera::fsck(dir, &self.key).unwrap_or_else(|why| panic!("{why}"))
    }

    /// Unpacks the archive for an auditor, of these entries. Returns its directory.
    async fn report(&self, dir: &Path, select: &[&str]) -> PathBuf {
        let archive = dir.join("report.tar.gz");
        let config = self.daemon.path("config.toml");
        let arguments =
            ["evidence", "report", "--config", config.to_str().unwrap(), "--file", archive.to_str().unwrap()];
        decklog(dir, &[&arguments[..], select].concat(), &[]).await.done();
        let unpacked = Command::new("tar").arg("xzf").arg(&archive).arg("-C").arg(dir).status().unwrap();
        assert!(unpacked.success());
        dir.join("decklog-evidence")
    }

    /// Runs `decklog verify` as an auditor does: with a copy, the evidence and the key, and without the journal.
    async fn verify(&self, file: &Path, evidence: &Path, more: &[&str]) -> (i32, String) {
        let elsewhere = tempfile::tempdir().unwrap();
        let [file, evidence] = [file, evidence].map(|path| path.to_str().unwrap());
        let arguments = [&["verify", file, "--evidence", evidence, "--key", &self.key][..], more].concat();
        let answer = decklog(elsewhere.path(), &arguments, &[]).await;
        (answer.code, format!("{}{}", answer.out, answer.err))
    }
}

fn write(sim: &Sim, count: usize) {
    for _ in 0..count {
        let number = sim.revision().to_string();
        sim.update("configmaps", "default", "map", |map| map["data"]["n"] = number.clone().into()).unwrap();
    }
}

/// The only tree of a directory.
fn tree(dir: &Path) -> PathBuf {
    let found: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    found[0].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_auditor_proves_each_line_and_finds_each_alteration() {
    let sim = cluster().await;
    sim.create("configmaps", objects::config_map("default", "map", "0")).unwrap();
    let mut signed = Signed::begin(&sim).await;
    let evidence = signed.daemon.path("evidence");
    let mut dice = Dice(36);
    let mut kept = Vec::new();
    for round in 0..5 {
        write(&sim, 40 + dice.roll(90));
        let head = signed.daemon.lines() + 1;
        signed.daemon.reach(head).await;
        if round % 2 == 0 {
            signed.daemon.kill().await;
        } else {
            signed.daemon.stop().await;
            signed.fsck(&evidence);
            kept.push(fs::read(tree(&evidence).join("checkpoint")).unwrap());
        }
        signed.daemon.start();
        signed.daemon.ready().await;
    }
    let head = sim.revision().to_string();
    until("the last change", async || {
        let text = fs::read_to_string(signed.daemon.log()).unwrap_or_default();
        let last: Value =
            serde_json::from_str(text.lines().last().ok_or("nothing")?).map_err(|error| error.to_string())?;
        if last["resourceVersion"] == *head { Ok(()) } else { Err(last["resourceVersion"].to_string()) }
    })
    .await;
    signed.daemon.stop().await;
    let lines = fs::read_to_string(signed.daemon.log()).unwrap();
    let count = lines.lines().count();
    let judged = signed.fsck(&evidence);
    assert!(judged.trim().ends_with(&format!(" {}", count + 1)), "{judged}");

    // The script of the documents.
    let script = signed.daemon.path("verify.py");
    let text = include_str!("../../src/evidence/verify.py");
    assert!(include_str!("../../docs/signed-log.md").contains(text), "the document has another script");
    fs::write(&script, text).unwrap();
    let python =
        |file: &Path, evidence: &Path| Command::new("python3").arg(&script).arg(evidence).arg(file).output().unwrap();
    let log = signed.daemon.log();
    assert!(python(&log, &evidence).status.success(), "{:?}", python(&log, &evidence));

    let mut files = Vec::new();
    for (number, checkpoint) in kept.iter().enumerate() {
        let file = signed.daemon.path(&format!("kept-{number}"));
        fs::write(&file, checkpoint).unwrap();
        files.push(file.to_str().unwrap().to_owned());
    }
    let with_kept: Vec<&str> = files.iter().flat_map(|file| ["--checkpoint", file]).collect();
    let (code, text) = signed.verify(&log, &evidence, &with_kept).await;
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("authentic"), "{text}");

    // The proof of one entry, of what `show` prints.
    let state = signed.daemon.path("state");
    let ask = async |arguments: &[&str]| {
        decklog(&signed.daemon.path(""), &[arguments, &["--state", state.to_str().unwrap()]].concat(), &[]).await.done()
    };
    let seq = (count / 2).to_string();
    let [line, proof] = ["entry.json", "entry.tlog-proof"].map(|name| signed.daemon.path(name));
    fs::write(&line, ask(&["show", &seq, "-o", "json"]).await).unwrap();
    fs::write(&proof, ask(&["prove", "--seq", &seq]).await).unwrap();
    let prove = async || {
        let elsewhere = tempfile::tempdir().unwrap();
        let arguments = ["verify", line.to_str().unwrap(), "--proof", proof.to_str().unwrap(), "--key", &signed.key];
        decklog(elsewhere.path(), &arguments, &[]).await.code
    };
    assert_eq!(prove().await, 0);
    fs::write(&line, fs::read_to_string(&line).unwrap().replace("\"default\"", "\"other\"")).unwrap();
    assert_eq!(prove().await, 1);

    bundle(&signed, count as u64).await;
    altered_lines(&signed, &lines, &evidence).await;
    altered_evidence(&signed, &log, &evidence, &files).await;
}

/// The archive for an auditor, of everything and of some entries, is whole by all three.
async fn bundle(signed: &Signed, count: u64) {
    for (select, partial) in [(&[][..], &[][..]), (&["--type", "ADDED"], &["--partial"])] {
        let dir = tempfile::tempdir().unwrap();
        let top = signed.report(dir.path(), select).await;
        signed.fsck(&top.join("evidence"));
        assert_eq!(fs::read_to_string(top.join("key.pub")).unwrap().trim(), signed.key);
        let (code, text) = signed.verify(&top.join("entries.jsonl"), &top.join("evidence"), partial).await;
        assert_eq!(code, 0, "{text}");
        let python = Command::new("python3")
            .current_dir(&top)
            .args(["verify.py", "evidence", "entries.jsonl"])
            .output()
            .unwrap();
        assert!(python.status.success(), "{python:?}");
        let page = fs::read_to_string(top.join("index.html")).unwrap();
        assert!(page.contains("GAP") && page.contains("KEY"), "{page}");
        let complete: Value = serde_json::from_slice(&fs::read(top.join("completeness.json")).unwrap()).unwrap();
        let versions = complete["configmaps"]["resource_versions"].as_array().unwrap().len() as u64;
        let gaps = complete["configmaps"]["gaps"].as_array().unwrap().len() as u64;
        assert_eq!(versions + gaps, count, "{complete}");
        let coverage: Value = serde_json::from_slice(&fs::read(top.join("coverage.json")).unwrap()).unwrap();
        assert!(coverage["complete"].is_boolean(), "{coverage}");
    }
}

/// Lines of the copy that are altered: each is found, by its seq.
async fn altered_lines(signed: &Signed, lines: &str, evidence: &Path) {
    let lines: Vec<String> = lines.lines().map(str::to_owned).collect();
    let at = lines.len() / 2;
    let forged = lines[at].replacen("\"n\":", "\"m\":", 1);
    assert_ne!(forged, lines[at]);
    type Mutate<'a> = &'a dyn Fn(&mut Vec<String>);
    let mutations: [(&str, Mutate<'_>); 6] = [
        ("nothing", &|_| {}),
        ("flip", &|lines| lines[at].clone_from(&forged)),
        ("drop", &|lines| drop(lines.remove(at))),
        ("swap", &|lines| lines.swap(at, at + 1)),
        ("insert", &|lines| lines.insert(at, forged.clone())),
        ("duplicate", &|lines| lines.insert(at, lines[at].clone())),
    ];
    let file = signed.daemon.path("mutated.jsonl");
    for (name, mutate) in mutations {
        let (mut mutated, is_found) = (lines.clone(), name != "nothing");
        mutate(&mut mutated);
        fs::write(&file, format!("{}\n", mutated.join("\n"))).unwrap();
        let (code, text) = signed.verify(&file, evidence, &[]).await;
        assert_eq!(code, i32::from(is_found), "{name}: {text}");
        let names_it = (at..=at + 2).any(|seq| text.contains(&format!("entry {seq}")));
        assert!(!is_found || names_it, "{name}: {text}");
    }
}

/// Evidence that is altered by somebody who can write it, and by somebody who has the key as well.
async fn altered_evidence(signed: &Signed, log: &Path, evidence: &Path, kept: &[String]) {
    let name = tree(evidence).file_name().unwrap().to_owned();
    let checkpoint = |dir: &Path| fs::read(dir.join(&name).join("checkpoint")).unwrap();
    let flip = |path: &Path, at: usize| {
        let mut bytes = fs::read(path).unwrap();
        bytes[at] ^= 1;
        fs::write(path, bytes).unwrap();
    };
    let last_kept = fs::read(kept.last().unwrap()).unwrap();
    let other_key = signed.daemon.path("other.key");
    let other = decklog(
        &signed.daemon.path(""),
        &["evidence", "key", other_key.to_str().unwrap(), "--name", "audit.example/decklog"],
        &[],
    )
    .await
    .done();
    // Leaf 101 is entry 101, of which the bundle has 34 bytes and the tile 32.
    type Alter<'a> = &'a dyn Fn(&Path);
    let table: [(&str, Alter<'_>, &str); 8] = [
        ("a leaf", &|dir| flip(&dir.join(&name).join("tile/entries/000"), 101 * 34 + 5), "entry 101"),
        ("a hash of a tile", &|dir| flip(&dir.join(&name).join("tile/0/000"), 101 * 32 + 5), "entry 101"),
        (
            "a hash above",
            &|dir| {
                let above = dir.join(&name).join("tile/1/000.p");
                for width in fs::read_dir(above).unwrap() {
                    flip(&width.unwrap().path(), 3);
                }
            },
            "leaf 0 to entry 255",
        ),
        ("a missing bundle", &|dir| fs::remove_file(dir.join(&name).join("tile/entries/000")).unwrap(), "leaf 0"),
        (
            "the root",
            &|dir| {
                let text = String::from_utf8(checkpoint(dir)).unwrap();
                let size = text.lines().nth(1).unwrap().to_owned();
                fs::write(dir.join(&name).join("checkpoint"), text.replacen(&size, "257", 1)).unwrap();
            },
            "not signed",
        ),
        (
            "an older checkpoint",
            &|dir| fs::write(dir.join(&name).join("checkpoint"), &last_kept).unwrap(),
            "no checkpoint covers",
        ),
        ("two trees of one origin", &|dir| copy(&dir.join(&name), &dir.join("copy")), "of one tree"),
        ("nothing", &|_| {}, "authentic"),
    ];
    for (what, alter, says) in table {
        let dir = tempfile::tempdir().unwrap();
        copy(evidence, dir.path());
        alter(dir.path());
        let (code, text) = signed.verify(log, dir.path(), &[]).await;
        let expected = match what {
            "nothing" => 0,
            "an older checkpoint" => 3,
            _ => 1,
        };
        assert_eq!(code, expected, "{what}: {text}");
        assert!(text.contains(says), "{what}: {text}");
    }
    // Another key of the same name has signed nothing here.
    let elsewhere = tempfile::tempdir().unwrap();
    let arguments = ["verify", log.to_str().unwrap(), "--evidence", evidence.to_str().unwrap(), "--key", other.trim()];
    assert_eq!(decklog(elsewhere.path(), &arguments, &[]).await.code, 1);
    // An older state of everything, against what the auditor kept.
    let old = tempfile::tempdir().unwrap();
    copy(evidence, old.path());
    fs::write(old.path().join(&name).join("checkpoint"), fs::read(&kept[0]).unwrap()).unwrap();
    let (code, text) = signed.verify(log, old.path(), &["--checkpoint", kept.last().unwrap()]).await;
    assert!(code == 1 && text.contains("cut off or is an older copy"), "{text}");
}

/// All is made again and signed with the very key, with one entry altered: what the auditor kept shows it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_history_that_is_signed_again_is_another_one() {
    let sim = cluster().await;
    sim.create("configmaps", objects::config_map("default", "map", "0")).unwrap();
    let mut signed = Signed::begin(&sim).await;
    write(&sim, 30);
    signed.daemon.reach(31).await;
    signed.daemon.stop().await;
    let evidence = signed.daemon.path("evidence");
    let kept = signed.daemon.path("kept");
    fs::copy(tree(&evidence).join("checkpoint"), &kept).unwrap();
    let first = signed.daemon.path("first");
    copy(&evidence, &first);
    // Root writes another digest into the journal, and has no evidence that would contradict it.
    let database = rusqlite::Connection::open(signed.daemon.path("state").join("journal.db")).unwrap();
    let row: (i64, Vec<u8>) = database
        .query_row("SELECT first, digests FROM digest ORDER BY first DESC LIMIT 1", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .unwrap();
    let mut digests = row.1;
    digests[0] ^= 1;
    database.execute("UPDATE digest SET digests = ? WHERE first = ?", rusqlite::params![digests, row.0]).unwrap();
    drop(database);
    fs::remove_dir_all(&evidence).unwrap();
    signed.daemon.start();
    signed.daemon.ready().await;
    signed.daemon.stop().await;
    signed.fsck(&evidence);
    let (code, text) = signed.verify(&signed.daemon.log(), &evidence, &["--checkpoint", kept.to_str().unwrap()]).await;
    assert!(code == 1 && text.contains("another history"), "{text}");
    // Where the first evidence is still there, the daemon signs nothing over it, and begins another tree.
    fs::remove_dir_all(&evidence).unwrap();
    copy(&first, &evidence);
    let signed_first = tree(&evidence).join("checkpoint");
    signed.daemon.start();
    signed.daemon.ready().await;
    signed.daemon.stop().await;
    assert_eq!(fs::read(signed_first).unwrap(), fs::read(&kept).unwrap());
    assert_eq!(fs::read_dir(&evidence).unwrap().count(), 2, "the tree of another epoch");
}

/// A history that lacks one change from the beginning, and is signed with the real key: it holds by itself, and what etcd has shows which
/// revision it lacks, and where.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_that_was_removed_before_it_was_signed_is_found_by_the_revisions_of_etcd() {
    let types = [Some("ADDED"), Some("MODIFIED"), Some("DELETED")];
    for (lacks, at_end) in types.into_iter().flat_map(|lacks| [(lacks, false), (lacks, true)]).chain([(None, false)]) {
        let name = format!("{lacks:?}, at the end: {at_end}");
        let sim = cluster().await;
        sim.create("configmaps", objects::config_map("default", "map", "0")).unwrap();
        if lacks != Some("ADDED") {
            sim.create("configmaps", objects::config_map("default", "target", "0")).unwrap();
        }
        let mut signed = Signed::begin(&sim).await;
        let begun = sim.revision();
        write(&sim, 5);
        signed.daemon.reach(if lacks == Some("ADDED") { 6 } else { 7 }).await;
        if lacks.is_some() {
            sim.lose("configmaps", 1);
        }
        match lacks {
            Some("ADDED") => drop(sim.create("configmaps", objects::config_map("default", "target", "0")).unwrap()),
            Some("DELETED") => drop(sim.delete("configmaps", "default", "target").unwrap()),
            _ => drop(sim.patch("configmaps", "default", "target", &json!({"data": {"n": "1"}})).unwrap()),
        }
        let lost = sim.revision();
        if !at_end {
            write(&sim, 5);
            let head = signed.daemon.lines() + 5 + usize::from(lacks.is_none());
            signed.daemon.reach(head).await;
        }
        signed.daemon.stop().await;

        let dir = tempfile::tempdir().unwrap();
        let top = signed.report(dir.path(), &[]).await;
        signed.fsck(&top.join("evidence"));
        let (entries, evidence) = (top.join("entries.jsonl"), top.join("evidence"));
        let (code, text) = signed.verify(&entries, &evidence, &[]).await;
        assert_eq!(code, 0, "{name}: the history holds by itself: {text}");

        // What etcd says.
        let rows = sim.history_of("configmaps");
        let truth: Vec<u64> = rows.iter().map(|row| row.revision).filter(|revision| *revision > begun).collect();
        assert!(truth.contains(&lost));
        let complete: Value = serde_json::from_slice(&fs::read(top.join("completeness.json")).unwrap()).unwrap();
        let versions = complete["configmaps"]["resource_versions"].as_array().unwrap();
        let missing: Vec<u64> =
            truth.iter().copied().filter(|revision| !versions.contains(&revision.to_string().into())).collect();
        assert_eq!(missing, lacks.map(|_| lost).into_iter().collect::<Vec<_>>(), "{name}");

        let list = top.join("revisions.txt");
        let text: String = truth.iter().map(|revision| format!("configmaps {revision}\n")).collect();
        fs::write(&list, text).unwrap();
        let (code, text) = signed.verify(&entries, &evidence, &["--revisions", list.to_str().unwrap()]).await;
        let lines = fs::read_to_string(&entries).unwrap();
        let mut before = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let version = |entry: &Value| entry["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap();
        let last = before.rfind(|entry| version(entry) < lost).unwrap();
        if lacks.is_some() {
            assert_eq!(code, 1, "{name}: {text}");
            let says = format!(
                "revision {lost} of configmaps is in no entry and in no GAP, after entry {}, which is version {}",
                last["seq"],
                version(&last)
            );
            assert!(text.contains(&says) && text.contains("1 problem"), "{name}: {text}");
        } else {
            assert_eq!(code, 0, "{name}: {text}");
            let says = format!("of {} revisions that etcd has, {} in an entry", truth.len(), truth.len());
            assert!(text.contains(&says), "{name}: {text}");
        }
    }
}

/// A file that was rotated and a segment of a bucket are signed soon, though a minute has not passed, and the manifest has a checkpoint that
/// the key has signed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_sink_has_finished_is_signed_soon() {
    let sim = cluster().await;
    sim.create("configmaps", objects::config_map("default", "map", "0")).unwrap();
    let archive = tempfile::tempdir().unwrap();
    let keys = format!(
        "rotate_size = \"8KiB\"\nkeep = 1000\ncompress = \"none\"\n[[sink]]\nname = \"archive\"\ntype = \"s3\"\nurl = \"file://{}\"\n\
         segment_age = \"1s\"\n",
        archive.path().display()
    );
    let mut signed = Signed::with(&sim, &keys).await;
    let (evidence, log) = (signed.daemon.path("evidence"), signed.daemon.log());
    // The last entry that a checkpoint covers.
    let covers = |note: &str| -> u64 { note.lines().nth(1).map_or(0, |size| size.parse::<u64>().unwrap() - 1) };
    let last = |path: &Path| -> u64 {
        let text = fs::read_to_string(path).unwrap();
        serde_json::from_str::<Value>(text.lines().last().unwrap()).unwrap()["seq"].as_u64().unwrap()
    };
    let rotated = || -> u64 {
        let files = fs::read_dir(log.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path());
        let files = files.filter(|path| *path != log && path.extension().is_some_and(|end| end == "jsonl"));
        files.map(|path| last(&path)).max().unwrap_or(0)
    };
    let began = Instant::now();
    let mut before = 0;
    for round in 0..4 {
        write(&sim, 60);
        until("a rotated file that is signed", async || {
            // Directories come before their first checkpoint, and the daemon makes one after the other.
            let mut trees = fs::read_dir(&evidence).into_iter().flatten().map(|entry| entry.unwrap().path());
            let tree = trees.next().ok_or("nothing is signed yet")?;
            let note = fs::read_to_string(tree.join("checkpoint")).map_err(|error| error.to_string())?;
            let (rotated, signed) = (rotated(), covers(&note));
            if rotated > before && signed >= rotated { Ok(()) } else { Err(format!("{rotated} {signed} in {round}")) }
        })
        .await;
        before = rotated();
    }
    assert!(began.elapsed() < Duration::from_secs(120), "as slow as one a minute");
    signed.daemon.stop().await;
    let mut manifests = fs::read_dir(archive.path().join("manifest")).unwrap().map(|entry| entry.unwrap().path());
    let manifest = manifests.find(|path| path.extension().is_some_and(|end| end == "json")).unwrap();
    let manifest: Value = serde_json::from_slice(&fs::read(manifest).unwrap()).unwrap();
    let note = manifest["checkpoint"].as_str().unwrap();
    assert!(covers(note) >= 60, "{note}");
    let kept = signed.daemon.path("kept");
    fs::write(&kept, note).unwrap();
    let (code, text) = signed.verify(&log, &evidence, &["--checkpoint", kept.to_str().unwrap()]).await;
    assert_eq!(code, 0, "{text}");
}
