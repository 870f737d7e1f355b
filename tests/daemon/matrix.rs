//! The table of faults in tests/README.md is what the tests say of themselves: a test that covers a fault has
//! `/// Fault 26: …` (or `/// Fault 26, 27: …`) in its documentation. So the table names no test that does not exist.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// What can go wrong, by its number.
const FAULTS: [(u32, &str); 93] = [
    (1, "connection reset within a line"),
    (2, "stream ends cleanly"),
    (3, "half-open connection"),
    (4, "only bookmarks for long"),
    (5, "410 at the start of a watch"),
    (6, "410 within a stream"),
    (7, "Status over several lines"),
    (8, "429, 503 with Retry-After"),
    (9, "401, token expired"),
    (10, "403, right taken back"),
    (11, "definition of a custom resource deleted"),
    (12, "definition created, or another version"),
    (13, "too large resource version"),
    (14, "stale API server behind a balancer"),
    (15, "etcd put back, versions go back"),
    (16, "etcd put back, versions raised"),
    (17, "another cluster at the same address"),
    (18, "server repeats an event"),
    (19, "server goes back in time"),
    (20, "server drops an event"),
    (21, "ADDED of a known object"),
    (22, "DELETED of an unknown object"),
    (23, "deleted and made again within a gap"),
    (24, "page of a list expires"),
    (25, "list broken off by a crash"),
    (26, "empty list of a broken server"),
    (27, "no bookmark that ends the initial events"),
    (28, "9,000 levels deep"),
    (29, "line over the limit"),
    (30, "endless line"),
    (31, "invalid UTF-8, NUL, lone surrogate"),
    (32, "duplicate keys"),
    (33, "huge numbers"),
    (34, "another kind in the stream"),
    (35, "hostile names"),
    (36, "panic while decoding"),
    (37, "crash before the commit"),
    (38, "crash after the commit"),
    (39, "power cut at any write"),
    (40, "torn frame of the write-ahead log"),
    (41, "bit flipped in the write-ahead log"),
    (42, "bit flipped in the database"),
    (43, "journal deleted while running"),
    (44, "journal put back from a backup"),
    (45, "fdatasync fails once"),
    (46, "fdatasync fails always"),
    (47, "no space for the write-ahead log"),
    (48, "no space in a checkpoint"),
    (49, "remounted read-only"),
    (50, "reader sits on the write-ahead log"),
    (51, "a foreign sqlite3 writes"),
    (52, "second daemon, same state directory"),
    (53, "second daemon, same sink"),
    (54, "no file descriptors"),
    (55, "memory limit reached"),
    (56, "clock an hour back, a year ahead"),
    (57, "machine suspended"),
    (58, "SIGSTOP"),
    (59, "SIGTERM in a storm"),
    (60, "file sink: torn last line"),
    (61, "file sink: rotated, truncated"),
    (62, "file sink: edited by hand"),
    (63, "http sink: 5xx, answer lost"),
    (64, "http sink: 400 on one entry"),
    (65, "http sink: redirect"),
    (66, "http sink: link-local address"),
    (67, "kafka sink: broker dies in a commit"),
    (68, "kafka sink: producer fenced"),
    (69, "kafka sink: entry too large"),
    (70, "nats sink: away for longer than its duplicate window"),
    (71, "nats sink: server lost what it had acknowledged"),
    (72, "postgres sink: server lost what it had committed"),
    (73, "postgres sink: null characters"),
    (74, "s3 sink: 412 on a retry"),
    (75, "s3 sink: killed within a write"),
    (76, "s3 sink: 409"),
    (77, "syslog sink: connection cut"),
    (78, "journald sink: its rate limit"),
    (79, "stdout: pipe closed"),
    (80, "one sink blocked for days"),
    (81, "all sinks blocked"),
    (82, "token file missing for a moment"),
    (83, "certificate authority replaced"),
    (84, "TLS: wrong name, expired, man in the middle"),
    (85, "kubeconfig with exec or insecure TLS"),
    (86, "typo in the configuration"),
    (87, "redaction rule that matches nothing"),
    (88, "reload that widens the output"),
    (89, "key of the digests missing"),
    (95, "crash within a migration"),
    (96, "crash during a recovery"),
    (97, "events lost between etcd and the API server's watch cache"),
    (98, "an object that the API server cannot read from etcd"),
];

const BEGIN: &str = "<!-- faults: made by tests/daemon/matrix.rs -->\n";
const END: &str = "<!-- end of faults -->";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every file of the sources and tests that can have a test in it.
fn sources(below: &Path, into: &mut Vec<PathBuf>) {
    let mut paths: Vec<PathBuf> = fs::read_dir(below).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            into.push(path);
        }
    }
}

/// The numbers in `Fault 26: …`, `Faults 27 and 30 to 32 under a sink: …`; none where it is another text.
fn numbers(comment: &str) -> Option<Vec<u32>> {
    let rest = comment.strip_prefix("Fault ").or_else(|| comment.strip_prefix("Faults "))?;
    let (list, _) = rest.split_once(':')?;
    list.starts_with(|c: char| c.is_ascii_digit()).then_some(())?;
    let (mut numbers, mut range): (Vec<u32>, bool) = (Vec::new(), false);
    for word in list.replace(['–', '-'], " to ").split([' ', ',']).filter(|word| !word.is_empty()) {
        match word.parse::<u32>() {
            Ok(last) if range => numbers.extend(numbers.last().map_or(last, |first| first + 1)..=last),
            Ok(number) => numbers.push(number),
            Err(_) => {}
        }
        range = word == "to";
    }
    Some(numbers)
}

/// What else than a test can follow a comment.
const OTHERS: [&str; 10] = ["struct", "enum", "mod", "impl", "const", "static", "type", "use", "let", "}"];

/// The faults that the tests in a file cover: number and name of the test.
fn covered(text: &str) -> Result<Vec<(u32, String)>, String> {
    let mut found = Vec::new();
    let mut pending = Vec::new();
    for line in text.lines().map(str::trim) {
        if let Some(comment) = line.strip_prefix("///") {
            pending.extend(numbers(comment.trim()).unwrap_or_default());
        } else if let Some((_, rest)) = line.split_once("fn ").filter(|(before, _)| {
            before.split_whitespace().all(|word| ["pub", "async", "pub(crate)", "const"].contains(&word))
        }) {
            let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            found.extend(pending.drain(..).map(|number| (number, name.clone())));
        } else if !pending.is_empty()
            && OTHERS.contains(&line.split(' ').find(|word| !word.starts_with("pub")).unwrap_or(""))
        {
            return Err(format!("`/// Fault {}:` belongs to no test", pending[0]));
        }
    }
    Ok(found)
}

/// The table as the tests say it.
fn table() -> String {
    let mut files = Vec::new();
    sources(&root().join("src"), &mut files);
    sources(&root().join("tests"), &mut files);
    let mut tests: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    for file in files {
        let name = file.strip_prefix(root()).unwrap().display().to_string();
        let found = covered(&fs::read_to_string(&file).unwrap()).unwrap_or_else(|error| panic!("{name}: {error}"));
        for (number, test) in found {
            assert!(
                FAULTS.iter().any(|(known, _)| *known == number),
                "{name}: {test}: there is no fault {number} here"
            );
            let test = format!("`{name}::{test}`");
            let all = tests.entry(number).or_default();
            if !all.contains(&test) {
                all.push(test);
            }
        }
    }
    let mut table = "| # | fault | tests |\n|---|---|---|\n".to_owned();
    for (number, what) in FAULTS {
        let tests = tests.get(&number).map_or_else(|| "none yet".to_owned(), |tests| tests.join(", "));
        writeln!(table, "| {number} | {what} | {tests} |").unwrap();
    }
    table
}

#[test]
fn the_table_of_faults_is_what_the_tests_say() {
    let path = root().join("tests/README.md");
    let readme = fs::read_to_string(&path).unwrap();
    let (before, rest) = readme.split_once(BEGIN).expect("the table has its beginning");
    let (written, after) = rest.split_once(END).expect("the table has its end");
    let table = table();
    if std::env::var_os("DECKLOG_WRITE_TABLE").is_some() {
        fs::write(&path, format!("{before}{BEGIN}{table}{END}{after}")).unwrap();
        return;
    }
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let (written, wanted) = (lines(written), lines(&table));
    let missing: Vec<&String> = wanted.iter().filter(|line| !written.contains(line)).collect();
    let stale: Vec<&String> = written.iter().filter(|line| !wanted.contains(line)).collect();
    assert!(
        written == wanted,
        "the table in tests/README.md is not what the tests say. These lines belong in it (or run this test with \
         DECKLOG_WRITE_TABLE=1):\n{missing:#?}\ninstead of:\n{stale:#?}"
    );
}

#[test]
fn what_a_comment_covers_is_read_as_it_is_meant() {
    assert_eq!(numbers("Fault 26: an empty list"), Some(vec![26]));
    assert_eq!(numbers("Fault 5, 6 and 16: gone"), Some(vec![5, 6, 16]));
    assert_eq!(numbers("Faults 60–62: a file"), Some(vec![60, 61, 62]));
    assert_eq!(numbers("Faults 45 to 47 and 49 under a sink: it waits"), Some(vec![45, 46, 47, 49]));
    for other in ["Faults that heal", "Fault: none", "A fault 7: no", "Fault 7 without an end"] {
        assert_eq!(numbers(other), None, "{other}");
    }
    let text = "/// Fault 7: x\n/// more\n#[test]\nfn a_b() {\n}\n\n    /// Fault 8, 9: y\n    #[tokio::test]\n    pub async fn c() {";
    let found = covered(text).unwrap();
    assert_eq!(found, [(7, "a_b".to_owned()), (8, "c".to_owned()), (9, "c".to_owned())]);
    assert!(covered("/// Fault 7: x\nstruct S;\n").is_err());
}
