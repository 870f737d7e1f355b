//! An auditor who has a copy, evidence and a key, and neither the journal nor the configuration: whatever was done to a copy or a proof is named,
//! with the exit code of the contract, and nothing that proves nothing is called authentic. And the archive that is made for him.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use decklog::core::k8s::audited::{Actor, Sender};
use decklog::core::model::{Cluster, EntryType, Gap, ResourceVersion, Seq, Why};
use decklog::core::wire::{self, EntryBuilder};
use decklog::evidence::key::SigningKey;
use decklog::evidence::place::{Directory, Place};
use decklog::evidence::publish::{Pace, Publisher};
use decklog::evidence::settings::Settings;
use decklog::evidence::submit::Witnesses;
use decklog::journal::Attribution;
use flate2::Compression;
use flate2::write::GzEncoder;
use tempfile::TempDir;

use super::{Answer, State, decklog, upsert};

/// A log that is signed, and the machine of an auditor.
struct Signed {
    state: State,
    publisher: Publisher,
    key: String,
    elsewhere: TempDir,
}

impl Signed {
    async fn new() -> Self {
        let (state, elsewhere) = (State::new().await, tempfile::tempdir().unwrap());
        let key = SigningKey::generate("a.example/decklog").unwrap();
        let verifier = key.verifier().to_string();
        let place = Place::Directory(Directory::new(elsewhere.path().join("evidence")));
        let settings: Settings = toml::from_str("key_file = \"key\"").unwrap();
        let publisher = Publisher::new(vec![key], vec![place], Witnesses::new(&settings));
        publisher.begin(&state.journal).await.unwrap();
        state.tell().await;
        let signed = Self { state, publisher, key: verifier, elsewhere };
        signed.sign().await;
        signed
    }

    async fn sign(&self) {
        self.publisher.sign(&self.state.journal, Pace::USUAL).await.unwrap();
    }

    /// The lines of the log, with their line breaks.
    fn lines(&self) -> Vec<Vec<u8>> {
        let entries = self.state.journal.reader().unwrap().entries_after(Seq(0), 100, usize::MAX).unwrap();
        entries.iter().map(|stored| [&stored.line[..], b"\n"].concat()).collect()
    }

    /// What an auditor is told.
    fn verify(&self, args: &[&str]) -> Answer {
        let args = [&["verify"], args, &["--key", &self.key]].concat();
        Answer::of(decklog(self.elsewhere.path(), &args).output().unwrap())
    }

    fn put(&self, name: &str, bytes: &[u8]) {
        fs::write(self.elsewhere.path().join(name), bytes).unwrap();
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut to = GzEncoder::new(Vec::new(), Compression::fast());
    to.write_all(bytes).unwrap();
    to.finish().unwrap()
}

/// The GAP that a sink gets for entries that were truncated before it took them.
fn stand_in(of: &[u8], seq: u64) -> Vec<u8> {
    let header = wire::Header::parse(&of[..of.len() - 1]).unwrap();
    let gap = Gap { why: Why::Expired, from: None, to: Some(ResourceVersion::new("11")), recovered: 0 };
    let rendered = wire::render(&EntryBuilder {
        seq: Seq(seq),
        epoch: &header.epoch,
        time: &header.time,
        happened: None,
        happened_between: None,
        op: EntryType::Gap,
        evidence: None,
        cluster: &Cluster { name: "test".into(), uid: "c1".into() },
        api_version: "apps/v1",
        kind: "Deployment",
        resource: "deployments",
        namespace: "",
        name: "",
        uid: "",
        version: "",
        managers: None,
        change: None,
        object: None,
        gap: Some((&gap, None)),
        actor: None,
        redacted: &[],
    });
    [&rendered.line[..], b"\n"].concat()
}

#[tokio::test]
async fn a_copy_is_authentic_or_the_answer_says_why_not() {
    let signed = Signed::new().await;
    let lines = signed.lines();
    assert_eq!(lines.len(), 7);
    let whole = lines.concat();
    let of = |range: std::ops::Range<usize>| lines[range].concat();
    let edited = |at: usize, from: &str, to: &str| {
        let line = String::from_utf8(lines[at].clone()).unwrap();
        assert!(line.contains(from), "{line}");
        [of(0..at), line.replacen(from, to, 1).into_bytes(), of(at + 1..7)].concat()
    };
    let text = String::from_utf8(whole.clone()).unwrap();
    let zipped = gzip(&whole);
    let mut tar = vec![0; 1024];
    tar[257..262].copy_from_slice(b"ustar");
    let gap = stand_in(&lines[3], 4);
    let partial = &["--partial"][..];
    type Copied<'a> = (&'a str, Vec<u8>, &'a [&'a str], i32, &'a str);
    let table: Vec<Copied<'_>> = vec![
        ("whole", whole.clone(), &[], 0, "is authentic, from entry 1 to 7: every line"),
        ("without the first", of(1..7), &[], 0, "signed and not in this copy"),
        ("cut", of(0..5), &[], 3, "no more is proved: entries 6 to 7 of epoch"),
        ("cut by one", of(0..6), &[], 3, "signed and not in it: give the files"),
        ("cut by intent", of(0..5), partial, 0, "is authentic, from entry 1 to 5"),
        ("cut where it ends", of(0..5), &["--ends-with", "5"], 0, "is authentic, from entry 1 to 5"),
        ("cut before", of(0..4), &["--ends-with", "5"], 1, "it ends with entry 4, and was to end with entry 5"),
        ("goes on", whole.clone(), &["--ends-with", "5"], 1, "it ends with entry 7, and was to"),
        ("nothing", vec![], &[], 1, "has no entries: nothing is proved by it"),
        ("nothing, partial", vec![], partial, 1, "has no entries: nothing is proved by it"),
        ("nothing, filtered", vec![], &["--where", "true"], 1, "has no entries: nothing is proved by it"),
        ("dropped", [of(0..2), of(3..7)].concat(), &[], 1, "entry 3 is missing"),
        ("dropped, partial", [of(0..2), of(3..7)].concat(), partial, 0, "1 entry was not in this copy"),
        (
            "dropped, filtered",
            [of(0..2), of(3..7)].concat(),
            &["--where", "true"],
            0,
            "nothing shows that the filter leaves",
        ),
        ("GAP dropped", [of(0..4), of(5..7)].concat(), &[], 1, "entry 5 is missing"),
        ("swapped", [of(0..1), of(2..3), of(1..2), of(3..7)].concat(), &[], 1, "entry 2 comes after entry 3"),
        ("twice", [of(0..3), of(2..7)].concat(), &[], 1, "entry 3 comes after entry 3"),
        ("flipped", edited(6, "\"replicas\":33", "\"replicas\":34"), &[], 1, "entry 7 is not the line that was logged"),
        ("flipped, partial", edited(6, "\"replicas\":33", "\"replicas\":34"), partial, 1, "entry 7 is not the line"),
        ("blank", edited(2, "\",\"", "\", \""), &[], 1, "entry 3 is not in the form"),
        ("number", edited(2, "\"v\":1,", "\"v\":1.0,"), &[], 1, "line 3: not an entry of decklog"),
        ("exact number", edited(6, "1.50", "1.5"), &[], 1, "entry 7 is not the line that was logged"),
        ("a key twice", edited(2, "\"seq\":", "\"seq\":3,\"seq\":"), &[], 1, "line 3: not an entry"),
        (
            "a key twice below",
            edited(6, "{\"replicas\"", "{\"replicas\":1,\"replicas\""),
            &[],
            1,
            "entry 7 is not the line",
        ),
        ("another seq", edited(6, "\"seq\":7", "\"seq\":18446744073709551615"), &[], 1, "are missing before it"),
        ("CRLF", text.replace('\n', "\r\n").into(), &[], 1, "entry 1 is not the line that was logged"),
        ("BOM", [b"\xef\xbb\xbf", &whole[..]].concat(), &[], 1, "line 1: not an entry of decklog"),
        ("NUL", [&whole[..], &[0; 64]].concat(), &[], 1, "line 8: it is cut"),
        ("in a line", whole[..whole.len() - 9].to_vec(), &[], 1, "line 7: it is cut"),
        ("zstd", zstd::encode_all(&whole[..], 1).unwrap(), &[], 0, "is authentic, from entry 1 to 7"),
        ("gzip", zipped.clone(), &[], 0, "is authentic, from entry 1 to 7"),
        ("gzip twice", [gzip(&of(0..3)), gzip(&of(3..7))].concat(), &[], 0, "is authentic, from entry 1 to 7"),
        ("gzip, cut", zipped[..zipped.len() - 9].to_vec(), &[], 1, "after line"),
        ("gzip, then not", [&zipped[..], b"more"].concat(), &[], 1, "after line 7"),
        ("archive", gzip(&tar), &[], 64, "is an archive: unpack it"),
        ("of a sink that was late", [gap.clone(), of(4..7)].concat(), &[], 3, "1 GAP stands in place of entries"),
        (
            "with a stand-in",
            [of(0..1), gap, of(4..7)].concat(),
            &[],
            3,
            "the first as entry 4, and no tree has such a one",
        ),
    ];
    for (name, bytes, args, code, says) in table {
        signed.put("copy", &bytes);
        let answer = signed.verify(&[&["copy", "--evidence", "evidence"], args].concat());
        let said = format!("{}{}", answer.out, answer.err).replace('\n', " ");
        assert_eq!(answer.code, code, "{name}: {said}");
        assert!(said.contains(says), "{name}: {said}");
        assert!(code == 0 || !said.contains("is authentic, from"), "{name}: {said}");
    }
    // A log is no witness of itself.
    signed.put("copy", &whole);
    let own = signed.verify(&["copy", "--evidence", "evidence", "--witness", &signed.key]);
    assert!(own.code == 64 && own.err.contains("a log does not witness itself"), "{own:?}");
}

#[tokio::test]
async fn a_proof_is_of_one_line_or_the_answer_says_why_not() {
    let signed = Signed::new().await;
    let (lines, proof) = (signed.lines(), signed.state.run(&["prove", "--seq", "3"]).done());
    let altered = |from: &str, to: &str| proof.replacen(from, to, 1).into_bytes();
    let hash = proof.lines().nth(2).unwrap();
    let other = hash.chars().rev().collect::<String>();
    type Proved<'a> = (&'a str, Vec<u8>, Vec<u8>, i32, &'a str);
    let table: Vec<Proved<'_>> = vec![
        ("good", lines[2].clone(), proof.clone().into(), 0, "is authentic, from entry 3 to 3"),
        ("no line", vec![], proof.clone().into(), 1, "has no entries: nothing is proved by it"),
        ("two lines", lines[2..4].concat(), proof.clone().into(), 1, "the line is entry 4"),
        ("another line", lines[3].clone(), proof.clone().into(), 1, "it is of entry 3"),
        (
            "CRLF",
            [&lines[2][..lines[2].len() - 1], b"\r\n"].concat(),
            proof.clone().into(),
            1,
            "not the line that was logged",
        ),
        ("index", lines[2].clone(), altered("index 3", "index 4"), 1, "it is of entry 4"),
        ("spelled index", lines[2].clone(), altered("index 3", "index +3"), 1, "it has no index"),
        ("large index", lines[2].clone(), altered("index 3", "index 18446744073709551615"), 1, "it is of entry"),
        ("malformed hash", lines[2].clone(), altered(hash, "####"), 1, "one of its hashes is malformed"),
        ("other hash", lines[2].clone(), altered(hash, &other), 1, "altered"),
        ("cut", lines[2].clone(), proof[..60].into(), 1, "is no proof, or was altered: it has no checkpoint"),
        ("empty", lines[2].clone(), vec![], 1, "is no proof, or was altered"),
        ("no text", lines[2].clone(), vec![0xff; 40], 1, "is no proof, or was altered"),
        ("broken lines", lines[2].clone(), proof.replace('\n', "\r\n").into(), 1, "is no proof, or was altered"),
    ];
    for (name, line, proof, code, says) in table {
        signed.put("line", &line);
        signed.put("proof", &proof);
        let answer = signed.verify(&["line", "--proof", "proof"]);
        let said = format!("{}{}", answer.out, answer.err).replace('\n', " ");
        assert_eq!(answer.code, code, "{name}: {said}");
        assert!(said.contains(says), "{name}: {said}");
    }
}

fn sender() -> Actor {
    let sender = Sender { user: "alice".to_owned(), ..Sender::default() };
    let (verb, certainty) = ("delete".to_owned(), "exact".to_owned());
    Actor { sender, verb, subresource: String::new(), audit_ids: Vec::new(), certainty }
}

/// Unpacks an archive, and does what its page says. Returns the exit code, the page, and the lines.
fn unpacked(signed: &Signed, archive: &Path) -> (i32, String, String) {
    let dir = tempfile::tempdir().unwrap();
    tar::Archive::new(flate2::read::GzDecoder::new(fs::File::open(archive).unwrap())).unpack(dir.path()).unwrap();
    let top = dir.path().join("decklog-evidence");
    let page = fs::read_to_string(top.join("index.html")).unwrap();
    let command = page.split("<pre>decklog ").nth(1).unwrap().lines().next().unwrap().replace("KEY", &signed.key);
    let args: Vec<&str> = command.split(' ').collect();
    let answer = Answer::of(decklog(&top, &args).output().unwrap());
    (answer.code, page, fs::read_to_string(top.join("entries.jsonl")).unwrap())
}

/// What the page of an archive says holds for it: the command that proves it, the GAPs of the time whatever was selected, and the entries that
/// nobody has signed yet.
#[tokio::test]
async fn an_archive_is_checked_as_its_page_says() {
    let signed = Signed::new().await;
    let archive = signed.state.dir.path().join("a.tar.gz");
    let report = |args: &[&str]| signed.state.run(&[&["evidence", "report", "--file", "a.tar.gz"], args].concat());
    let gap = "entry 5, at ";
    type Archived<'a> = (&'a str, &'a [&'a str], usize, i32, &'a [&'a str]);
    let table: [Archived<'_>; 4] = [
        ("all", &[], 7, 0, &[gap, "--ends-with 7", "altered, dropped or inserted"]),
        ("a type", &["--type", "DELETED"], 2, 0, &[gap, "--partial", "Entries were selected"]),
        ("an object", &["deploy/web", "-n", "pay"], 3, 0, &[gap, "--partial", "or inserted"]),
        ("nothing yet", &["--to", "2020-01-01"], 0, 64, &[]),
    ];
    for (name, args, count, code, says) in table {
        let answer = report(args);
        if code == 64 {
            assert!(answer.code != 0 && !archive.exists(), "{name}: {answer:?}");
            continue;
        }
        assert_eq!(answer.code, 0, "{name}: {answer:?}");
        let (found, page, lines) = unpacked(&signed, &archive);
        assert_eq!((found, lines.lines().count()), (code, count), "{name}: {page}\n{lines}");
        assert!(says.iter().all(|says| page.contains(says)), "{name}: {page}");
        assert!(!page.contains("no signed tree"), "{name}: {page}");
        fs::remove_file(&archive).unwrap();
    }
    // What came since the last checkpoint.
    signed.state.watch(vec![upsert("shop", "api", 50)]).await;
    let answer = report(&[]);
    let says = "1 entry is in no signed tree, from entry 8 on, so that `verify` ends with 3";
    assert!(answer.code == 0 && answer.err.replace("\n", " ").contains(says), "{answer:?}");
    let (code, page, lines) = unpacked(&signed, &archive);
    assert_eq!((code, lines.lines().count()), (3, 8));
    assert!(page.contains(says), "{page}");
    signed.sign().await;
    report(&[]);
    assert_eq!(unpacked(&signed, &archive).0, 0);
    // Who sent a selected change is an entry of its own, which comes later.
    let (delete, create) = (Seq(4), Seq(7));
    let actors = [delete, create].map(|seq| (seq, sender())).to_vec();
    let attribution = Attribution { actors, upto: Seq(8), ..Attribution::default() };
    signed.state.journal.attribute(attribution).await.unwrap();
    signed.sign().await;
    let table: [(&[&str], &[u64], &str); 3] = [
        (&["--type", "DELETED"], &[4, 6, 9], "<li>exact: 1</li>"),
        (&["--type", "DELETED,ACTOR"], &[4, 6, 9, 10], "<li>exact: 2</li>"),
        (&[], &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10], "<li>exact: 2</li>"),
    ];
    for (args, seqs, says) in table {
        assert_eq!(report(args).code, 0);
        let (code, page, lines) = unpacked(&signed, &archive);
        let found = lines.lines().map(|line| wire::Header::parse(line.as_bytes()).unwrap().seq);
        assert_eq!((code, found.collect::<Vec<u64>>()), (0, seqs.to_vec()), "{args:?}: {page}");
        assert!(page.contains(says), "{args:?}: {page}");
    }
    // A file beside it is not touched, and an archive is not lost to arguments that name nothing.
    let before = fs::read(&archive).unwrap();
    let beside = signed.state.dir.path().join("a.tar.entries");
    fs::write(&beside, "mine").unwrap();
    assert_ne!(report(&["nosuch/kind"]).code, 0);
    assert_eq!(fs::read(&archive).unwrap(), before);
    assert_eq!(report(&[]).code, 0);
    assert_eq!(fs::read_to_string(beside).unwrap(), "mine");
    // Only what was logged is in it, and not the file that it went through.
    let names: Vec<String> = fs::read_dir(signed.state.dir.path())
        .unwrap()
        .map(|file| file.unwrap().file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with(".a"))
        .collect();
    assert_eq!(names, [""; 0]);
}
