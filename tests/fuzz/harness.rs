//! Corpus, mutations, and what to do with an input that fails.

use std::fmt::Write as _;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};

use fastrand::Rng;

/// No input grows beyond this by mutation.
const LONGEST: usize = 64 << 10;

/// Replays the corpus of a target, and mutates it `runs` times.
pub(crate) fn fuzz(target: &str, runs: usize, dictionary: &[&str], check: impl Fn(&[u8])) {
    if let Some(input) = std::env::var_os("DECKLOG_FUZZ_INPUT") {
        return check(&fs::read(input).unwrap());
    }
    let begun = std::time::Instant::now();
    let corpus = corpus(target);
    assert!(corpus.len() >= 3, "{target} has no corpus to speak of");
    for (path, input) in &corpus {
        guard(target, input, &path.display().to_string(), &check);
    }
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse().expect("a number"));
    let seed = number("DECKLOG_FUZZ_SEED").unwrap_or(1);
    // Some inputs take a thousand times as long as others, so a long search is a multiple of each target's own length.
    let times = number("DECKLOG_FUZZ_TIMES").unwrap_or(1);
    let runs = number("DECKLOG_FUZZ_RUNS").unwrap_or(runs as u64 * times);
    let runs = usize::try_from(runs).unwrap();
    for run in 0..runs {
        // Each run has numbers of its own, so that one that fails does not depend on those before it.
        let mut dice = Rng::with_seed(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(run as u64));
        let mut input = dice.choice(&corpus).unwrap().1.clone();
        for _ in 0..=dice.usize(..6) {
            mutate(&mut input, &mut dice, dictionary, &corpus);
        }
        guard(target, &input, &format!("seed {seed}, run {run}"), &check);
    }
    println!(
        "DECKLOG_FUZZ_SEED={seed} DECKLOG_FUZZ_RUNS={runs}: {target}, {} files and {runs} mutations in {:.1?}",
        corpus.len(),
        begun.elapsed()
    );
}

/// Where the files of a target are.
fn directory(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus").join(target)
}

/// The corpus of a target, in the order of its names.
pub(crate) fn corpus(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files: Vec<PathBuf> = fs::read_dir(directory(target)).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    files.into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

/// Runs a check; an input that fails is kept.
fn guard(target: &str, input: &[u8], origin: &str, check: &impl Fn(&[u8])) {
    if std::env::var_os("DECKLOG_FUZZ_TRACE").is_some() {
        // For what no panic tells of: a stack that overflows, a process that is killed.
        fs::write(Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fuzz-{target}-last")), input).unwrap();
    }
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| check(input))) {
        let mut name = format!("fuzz-{target}-");
        write!(name, "{:08x}", crc32fast::hash(input)).unwrap();
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::write(&path, input).unwrap();
        println!(
            "{target} fails ({origin}). Replay it:\n  DECKLOG_FUZZ_INPUT={} cargo test --test fuzz {target}\nand keep it in tests/fuzz/corpus/{target}/",
            path.display()
        );
        resume_unwind(panic);
    }
}

fn mutate(input: &mut Vec<u8>, dice: &mut Rng, dictionary: &[&str], corpus: &[(PathBuf, Vec<u8>)]) {
    let at = dice.usize(..=input.len());
    let end = (at + dice.usize(..32)).min(input.len());
    match dice.u8(..12) {
        0 if at < input.len() => input[at] ^= 1 << dice.u8(..8),
        1 if at < input.len() => input[at] = dice.u8(..),
        2 => input.insert(at, *dice.choice(b"\"\\{}[],:\n\r\0 0-e.~/*\x7f\xff").unwrap()),
        3 => drop(input.drain(at..end)),
        4 => {
            let part = input[at..end].to_vec();
            let to = dice.usize(..=input.len());
            input.splice(to..to, part);
        }
        5 => input.truncate(at),
        6 | 7 if !dictionary.is_empty() => {
            let word = dice.choice(dictionary).unwrap().as_bytes();
            let until = if dice.bool() { at } else { end };
            input.splice(at..until, word.iter().copied());
        }
        8 => {
            // A run of one thing: depth, length, repetition.
            let word = dice.choice(dictionary).map_or(&b"["[..], |word| word.as_bytes()).to_vec();
            let times = 1 << dice.usize(..9);
            input.splice(at..at, word.repeat(times));
        }
        9 => {
            let other = &dice.choice(corpus).unwrap().1;
            let from = dice.usize(..=other.len());
            let upto = (from + dice.usize(..256)).min(other.len());
            input.splice(at..end, other[from..upto].iter().copied());
        }
        10 => {
            // Digits somewhere become another number.
            let digits = input.iter().skip(at).position(u8::is_ascii_digit).map(|offset| at + offset);
            if let Some(from) = digits {
                let length = input[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
                let numbers = ["0", "-1", "1e400", "1.10", "18446744073709551616", "4294967295", "9223372036854775807"];
                input.splice(from..from + length, dice.choice(numbers).unwrap().bytes());
            }
        }
        _ => {
            let other = &dice.choice(corpus).unwrap().1;
            input.truncate(at);
            input.extend_from_slice(&other[dice.usize(..=other.len())..]);
        }
    }
    input.truncate(LONGEST);
}

/// Sizes in which an input arrives, drawn from the input itself.
pub(crate) fn chunks(input: &[u8]) -> Vec<&[u8]> {
    let mut dice = Rng::with_seed(u64::from(crc32fast::hash(input)));
    let most = 1 << dice.usize(..12);
    let (mut rest, mut chunks) = (input, Vec::new());
    while !rest.is_empty() {
        let (chunk, left) = rest.split_at(dice.usize(1..=most).min(rest.len()));
        chunks.push(chunk);
        rest = left;
    }
    chunks
}

/// The first line and what follows it, for targets that need two inputs.
pub(crate) fn two(input: &[u8]) -> (&[u8], &[u8]) {
    memchr::memchr(b'\n', input).map_or((input, &[]), |at| (&input[..at], &input[at + 1..]))
}

/// Words of JSON and of Kubernetes.
pub(crate) const JSON: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "\"",
    "\\u0000",
    "\\ud800",
    "\\udc00",
    "\\u0041",
    "\\\"",
    "null",
    "true",
    "1e400",
    "1.10",
    "-0",
    "{\"a\":",
    "[[",
    "\"metadata\":{",
    "\"name\":\"x\",",
    "\"uid\":\"u\",",
    "\"resourceVersion\":\"7\",",
    "\"resourceVersion\":7,",
    "\"kind\":\"Secret\",",
    "\"data\":{",
    "\"stringData\":{",
    "\"items\":[",
    "\"type\":\"ADDED\",",
    "\"object\":",
    "\"annotations\":{",
    "\"code\":410,",
    "\"reason\":\"Expired\",",
    "\"retryAfterSeconds\":99999999999,",
    "\u{e9}",
    "\u{1f600}",
    "\u{2028}",
    "\u{1b}[31m",
    "\r\n",
    "\n",
    "eyJhbGciOiJSUzI1NiJ9.eyJhIjoxfQ.c2ln",
];
