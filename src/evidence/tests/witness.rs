//! A witness: what it decides, what it remembers, and what it does under concurrent requests. The client: what it makes of each answer.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Barrier, mpsc};
use std::thread;
use std::time::Duration;

use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::super::checkpoint::{Checkpoint, Origin};
use super::super::submit::Witnesses;
use super::super::witness::{Known, REQUEST_LEN_MAX, Refusal, Request, Witness, decide};
use super::*;
use crate::core::merkle::Hash;

/// A log of digests, which is signed.
struct Tree {
    key: SigningKey,
    leaves: Vec<Hash>,
}

impl Tree {
    fn new(size: u8, salt: u8) -> Self {
        let key = SigningKey::parse(SIGNING).unwrap();
        Self { key, leaves: (0..size).map(|index| merkle::leaf(&[index, salt])).collect() }
    }

    fn checkpoint(&self, size: usize) -> Checkpoint {
        let [log, cluster, epoch] = [&*self.key.verifier().name, "uid", "e1"].map(str::to_owned);
        let origin = Origin { log, cluster, epoch, first: 1 };
        Checkpoint { origin, size: size as u64, root: merkle::root(&self.leaves[..size]) }
    }

    fn note(&self, size: usize) -> Note {
        Note::sign(self.checkpoint(size).to_string(), &[&self.key], 1_800_000_000)
    }

    fn prove(&self, old: u64, size: u64) -> Vec<Hash> {
        let range = |first: u64, end: u64| usize::try_from(first).unwrap()..usize::try_from(end).unwrap();
        let mut known =
            |first, end| Ok::<_, std::convert::Infallible>(Some(merkle::root(&self.leaves[range(first, end)])));
        let Ok(proof) = merkle::prove_consistency(old, size, &mut known);
        proof
    }

    fn request(&self, old: u64, size: usize) -> Request {
        Request { old, proof: self.prove(old, size as u64), note: self.note(size).render() }
    }
}

fn witness_key() -> SigningKey {
    SigningKey::parse(&SigningKey::generate("witness.example/w").unwrap().render()).unwrap()
}

/// Every answer that there is, and the state stays as it was with each that is none.
#[test]
fn each_request_gets_the_answer_of_the_specification() {
    let (tree, other) = (Tree::new(40, 0), Tree::new(40, 1));
    let known = Known::from([(tree.checkpoint(7).origin, tree.checkpoint(7))]);
    let good = tree.request(7, 20);
    let text = good.render();
    let with = |change: &dyn Fn(&mut Request)| {
        let mut request = good.clone();
        change(&mut request);
        request.render()
    };
    let foreign = |origin: &str| {
        let text = tree.checkpoint(20).to_string().replacen("PeterNeumann/uid/e1/1", origin, 1);
        let note = Note::sign(text, &[&tree.key], 1);
        with(&|request| request.note = note.render())
    };
    let stranger = SigningKey::generate("PeterNeumann").unwrap();
    let by_stranger = Note::sign(tree.checkpoint(20).to_string(), &[&stranger], 1);
    let signed_by = |note: &Note| with(&|request| request.note = note.render());
    let mut without_signature_of_the_text = tree.note(20);
    without_signature_of_the_text.signatures.remove(0);
    let cut = |text: &str| text.replacen("old 7", "old 07", 1);
    let many = vec![[0; 32]; 64];
    let table: Vec<(&str, u16, String)> = vec![
        ("the next checkpoint", 200, text.clone()),
        ("the same checkpoint again", 200, tree.request(7, 7).render()),
        ("nothing", 400, String::new()),
        ("a leading zero", 400, cut(&text)),
        ("no old size", 400, text.replacen("old 7\n", "", 1)),
        ("a sign", 400, text.replacen("old 7", "old +7", 1)),
        ("a hash that is none", 400, text.replacen("old 7\n", "old 7\nAAAA\n", 1)),
        ("a carriage return", 400, text.replacen("old 7\n", "old 7\r\n", 1)),
        ("no note", 400, "old 7\n\n".to_owned()),
        ("too many hashes", 400, with(&|request| request.proof.clone_from(&many))),
        ("a note that is cut off", 400, text[..text.len() - 1].to_owned()),
        ("an old size beyond the new one", 400, tree.request(21, 20).render()),
        ("a long origin", 400, foreign(&"x".repeat(2000))),
        ("another log", 404, foreign("Peter/uid/e1/1")),
        ("a log whose name begins so", 404, foreign("PeterNeumann2/uid/e1/1")),
        ("an origin that is none of decklog", 404, foreign("PeterNeumann")),
        ("another key of the same name", 403, signed_by(&by_stranger)),
        ("a cosignature alone", 403, signed_by(&without_signature_of_the_text)),
        ("an altered root", 403, text.replacen("\n20\n", "\n21\n", 1)),
        ("a client that knows nothing", 409, tree.request(0, 20).render()),
        ("a rollback", 409, tree.request(5, 6).render()),
        ("a client that is behind", 409, tree.request(6, 20).render()),
        ("a client that is ahead", 409, tree.request(8, 20).render()),
        ("a fork of the same size", 409, other.request(7, 7).render()),
        ("a fork", 422, other.request(7, 20).render()),
        ("no proof", 422, with(&|request| request.proof.clear())),
        ("a proof that is too long", 422, with(&|request| request.proof.push([7; 32]))),
        ("an altered proof", 422, with(&|request| request.proof[0][3] ^= 1)),
        (
            "a proof for the same size",
            422,
            with(&|request| *request = Request { proof: vec![[1; 32]], ..tree.request(7, 7) }),
        ),
        ("a proof of another tree", 422, with(&|request| request.proof = other.prove(7, 20))),
    ];
    for (what, status, request) in table {
        let decided = decide(&known, &keys(), request.as_bytes());
        let found = decided.as_ref().map_or_else(Refusal::status, |_| 200);
        assert_eq!(found, status, "{what}: {decided:?}");
        if let Err(Refusal::Conflict(size)) = decided {
            assert_eq!(size, 7, "{what}");
        }
    }
    let first = decide(&Known::new(), &keys(), tree.request(0, 20).render().as_bytes()).unwrap();
    assert_eq!(first.1, tree.checkpoint(20));
    let unasked = with(&|request| request.old = 0);
    assert_eq!(decide(&Known::new(), &keys(), unasked.as_bytes()), Err(Refusal::Inconsistent));
    assert_eq!(decide(&known, &[], text.as_bytes()), Err(Refusal::UnknownLog));
    // A log cannot fill the disk of its witness.
    let of = |first| Checkpoint { origin: Origin { first, ..tree.checkpoint(7).origin }, ..tree.checkpoint(7) };
    let full: Known = (2..1002).map(of).map(|checkpoint| (checkpoint.origin.clone(), checkpoint)).collect();
    assert_eq!(decide(&full, &keys(), tree.request(0, 20).render().as_bytes()), Err(Refusal::Full));
    assert!(with(&|request| request.proof = vec![[0; 32]; 63]).len() + (64 << 10) < REQUEST_LEN_MAX);
}

/// Settings of a witness of the log in these tests, or of that log, which asks a witness.
fn settings(dir: &Path, more: &str) -> Settings {
    let key_file = dir.join("key");
    if !key_file.exists() {
        fs::write(&key_file, SigningKey::generate("witness.example/w").unwrap().render()).unwrap();
    }
    toml::from_str(&format!("dir = {dir:?}\nkey_file = {key_file:?}\n{more}")).unwrap()
}

fn open(dir: &Path) -> Arc<Witness> {
    let settings = settings(dir, &format!("[[witnessed]]\nkey = {VERIFIER:?}\n"));
    Arc::new(Witness::open(&settings, dir).unwrap().unwrap())
}

fn cosigned(witness: &Witness, request: &Request) -> Result<String, Refusal> {
    witness.add(request.render().as_bytes(), Timestamp::from_second(1_800_000_007).unwrap())
}

/// What was cosigned is remembered over restarts; a file that cannot be read or written refuses everything.
#[test]
fn a_witness_remembers_and_without_its_memory_it_refuses() {
    let dir = tempfile::tempdir().unwrap();
    let (tree, other) = (Tree::new(40, 0), Tree::new(40, 1));
    let witness = open(dir.path());
    let lines = cosigned(&witness, &tree.request(0, 10)).unwrap();
    let key = SigningKey::parse(&fs::read_to_string(dir.path().join("key")).unwrap()).unwrap();
    let note = Note::parse(format!("{}\n{lines}", tree.note(10).text).as_bytes()).unwrap();
    assert_eq!(note.seen_by(&key.verifier().timed()), Some(1_800_000_007));
    assert!(!note.is_signed_by(key.verifier()), "it is no log");
    drop(witness);
    let witness = open(dir.path());
    assert_eq!(cosigned(&witness, &other.request(0, 10)), Err(Refusal::Conflict(10)));
    assert_eq!(cosigned(&witness, &other.request(10, 12)), Err(Refusal::Inconsistent));
    cosigned(&witness, &tree.request(10, 30)).unwrap();
    assert_eq!(cosigned(&witness, &tree.request(10, 30)), Err(Refusal::Conflict(30)), "a replay");
    let file = dir.path().join("witnessed");
    let whole = fs::read_to_string(&file).unwrap();
    for damaged in
        [String::new(), whole[..whole.len() - 1].to_owned(), whole.replacen("\n30\n", "\n\n", 1), "x".to_owned()]
    {
        fs::write(&file, &damaged).unwrap();
        let answer = cosigned(&open(dir.path()), &tree.request(30, 31));
        assert!(matches!(&answer, Err(Refusal::Forgetful(_))), "{damaged:?}: {answer:?}");
    }
    fs::write(&file, &whole).unwrap();
    let witness = open(dir.path());
    fs::create_dir(dir.path().join("witnessed.new")).unwrap();
    assert!(matches!(cosigned(&witness, &tree.request(30, 31)), Err(Refusal::Forgetful(_))));
    fs::remove_dir(dir.path().join("witnessed.new")).unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), whole);
    cosigned(&witness, &tree.request(30, 31)).unwrap();
}

/// Two histories that arrive at once: one is cosigned, whatever the order, and each size is cosigned once.
#[test]
fn of_concurrent_requests_one_is_cosigned() {
    for _ in 0..20 {
        let dir = tempfile::tempdir().unwrap();
        let witness = open(dir.path());
        let start = Arc::new(Barrier::new(8));
        let ask = |number: usize| {
            let (witness, start) = (Arc::clone(&witness), Arc::clone(&start));
            spawn(move || {
                let request = Tree::new(40, u8::from(number.is_multiple_of(2))).request(0, 10 + number);
                start.wait();
                cosigned(&witness, &request)
            })
        };
        let asked: Vec<_> = (0..8).map(ask).collect();
        let answers: Vec<_> = asked.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1, "{answers:?}");
        let known = answers.iter().position(Result::is_ok).unwrap() as u64 + 10;
        assert!(answers.iter().all(|answer| matches!(answer, Ok(_) | Err(Refusal::Conflict(_)))));
        assert_eq!(cosigned(&open(dir.path()), &Tree::new(40, 0).request(9, 20)), Err(Refusal::Conflict(known)));
    }
}

/// Answers each connection by the next of the answers; an empty one is never given. Returns the address, and the bodies that were sent.
fn serve(answers: Vec<(u16, String)>) -> (String, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/prefix", listener.local_addr().unwrap());
    let (sender, receiver) = mpsc::channel();
    spawn(move || {
        let mut held: Vec<TcpStream> = Vec::new();
        for (status, body) in answers {
            let (mut stream, _) = listener.accept().unwrap();
            let (mut asked, mut buffer) = (Vec::new(), [0; 8192]);
            let sent = loop {
                let count = stream.read(&mut buffer).unwrap();
                asked.extend_from_slice(&buffer[..count]);
                let text = String::from_utf8_lossy(&asked).into_owned();
                let Some((head, sent)) = text.split_once("\r\n\r\n") else { continue };
                assert!(head.starts_with("POST /prefix/add-checkpoint HTTP/1.1"), "{head}");
                let length = head
                    .lines()
                    .find_map(|line| line.to_lowercase().strip_prefix("content-length: ").map(str::to_owned));
                if sent.len() >= length.unwrap().parse().unwrap() {
                    break sent.to_owned();
                }
            };
            sender.send(sent).unwrap();
            if status == 0 {
                held.push(stream);
                continue;
            }
            let head = format!("HTTP/1.1 {status} x\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
            // One that has more than is read is closed in the middle.
            drop(stream.write_all(format!("{head}{body}").as_bytes()));
        }
        // Who is silent does not hang up either.
        while !held.is_empty() {
            thread::park();
        }
    });
    (url, receiver)
}

/// Whatever a witness answers, the checkpoint is there, with the cosignatures that are good and no others.
#[tokio::test]
async fn a_checkpoint_is_published_whatever_a_witness_answers() {
    let dir = tempfile::tempdir().unwrap();
    let (tree, key, stranger) = (Arc::new(Tree::new(40, 0)), witness_key(), witness_key());
    let note = tree.note(20);
    let by = |key: &SigningKey, note: &Note| {
        let note = Note { signatures: vec![key.cosign(note.text.as_bytes(), 1_800_000_001)], ..note.clone() };
        note.render()[note.text.len() + 1..].to_owned()
    };
    let good = by(&key, &note);
    let text = |text: &str| text.to_owned();
    type Answers = Vec<(u16, String)>;
    type Row<'r> = (&'r str, Answers, &'r [u64], Result<(), &'r str>);
    let table: Vec<Row<'_>> = vec![
        ("good", vec![(200, good.clone())], &[0], Ok(())),
        ("good among others", vec![(200, format!("{}{good}", by(&stranger, &note)))], &[0], Ok(())),
        ("another size", vec![(409, text("7\n")), (200, good.clone())], &[0, 7], Ok(())),
        ("another size twice", vec![(409, text("7\n")), (409, text("8\n"))], &[0, 7], Err("somebody else signs")),
        (
            "a size beyond",
            vec![(409, text("21\n"))],
            &[0],
            Err("cosigned 21 leaves of this tree, and the journal has 20"),
        ),
        ("a fork", vec![(409, text("0\n"))], &[0], Err("another tree of 0 leaves")),
        ("no size", vec![(409, text("seven\n"))], &[0], Err("without a size")),
        ("no consistency", vec![(409, text("7\n")), (422, text(""))], &[0, 7], Err("is not the beginning of this one")),
        ("not known", vec![(404, text("no"))], &[0], Err("does not know this log")),
        ("another key for the log", vec![(403, text("no"))], &[0], Err("another key for this log")),
        ("a failure", vec![(500, text("oops"))], &[0], Err("500")),
        ("a redirect", vec![(307, text(""))], &[0], Err("307")),
        ("garbage", vec![(200, text("<html>"))], &[0], Err("did not answer with signatures")),
        ("nothing", vec![(200, text(""))], &[0], Err("did not answer with signatures")),
        ("by another key", vec![(200, by(&stranger, &note))], &[0], Err("no good signature")),
        ("of another checkpoint", vec![(200, by(&key, &tree.note(19)))], &[0], Err("no good signature")),
        ("too much", vec![(200, good.repeat(200))], &[0], Err("more than 16384 bytes")),
        ("silence", vec![(0, text(""))], &[0], Err("did not answer within")),
        ("silence after a size", vec![(409, text("7\n")), (0, text(""))], &[0, 7], Err("did not answer within")),
    ];
    for (what, answers, olds, expected) in table {
        let (url, sent) = serve(answers);
        let settings = settings(dir.path(), &format!("[[witness]]\nurl = {url:?}\nkey = \"{}\"\n", key.verifier()));
        let patience = if what.starts_with("silence") { Duration::from_millis(200) } else { Duration::from_secs(60) };
        let witnesses = Witnesses::within(&settings, patience);
        let published = cosign(&witnesses, &tree, 20).await;
        assert_eq!(published.text, note.text, "{what}");
        assert!(published.is_signed_by(tree.key.verifier()), "{what}");
        let own = note.signatures.len();
        assert_eq!(published.signatures[..own], note.signatures[..], "{what}");
        assert_eq!(published.signatures.len() - own, usize::from(expected.is_ok()), "{what}");
        assert_eq!(witnesses.have_cosigned(&published), expected.is_ok(), "{what}");
        let problem = problem(&witnesses);
        match expected {
            Ok(()) => assert_eq!(problem, None, "{what}"),
            Err(says) => assert!(problem.as_ref().is_some_and(|why| why.contains(says)), "{what}: {problem:?}"),
        }
        let requests: Vec<Request> = sent.try_iter().map(|body| Request::parse(body.as_bytes()).unwrap()).collect();
        assert_eq!(requests.iter().map(|request| request.old).collect::<Vec<_>>(), olds, "{what}");
        for request in requests {
            assert_eq!(request, tree.request(request.old, 20), "{what}");
        }
    }
}

/// Returns why a witness has not cosigned the last checkpoint.
fn problem(witnesses: &Witnesses) -> Option<String> {
    witnesses.progress().into_iter().find_map(|progress| progress.failing).map(|(_, why)| why)
}

async fn cosign(witnesses: &Witnesses, tree: &Arc<Tree>, size: usize) -> Note {
    let (witnesses, tree) = (witnesses.clone(), Arc::clone(tree));
    let cosign = move || {
        let checkpoint = tree.checkpoint(size);
        let prove = |old| Ok::<_, String>(tree.prove(old, checkpoint.size));
        witnesses.cosign(tree.note(size), &checkpoint, prove)
    };
    tokio::task::spawn_blocking(cosign).await.unwrap()
}

/// A witness that is silent takes nothing from the others, the size that it knows is remembered, and decklog ends without it.
#[tokio::test]
async fn witnesses_are_asked_at_once_and_from_the_size_that_they_know() {
    let dir = tempfile::tempdir().unwrap();
    let (tree, key, silent) = (Arc::new(Tree::new(40, 0)), witness_key(), witness_key());
    let by = |size| {
        let note = tree.note(size);
        let note = Note { signatures: vec![key.cosign(note.text.as_bytes(), 1_800_000_001)], ..note };
        (200, note.render()[note.text.len() + 1..].to_owned())
    };
    let (url, sent) = serve(vec![by(20), by(30)]);
    let (silence, _sent) = serve(vec![(0, String::new()), (0, String::new())]);
    let [first, second] = [(silence, silent.verifier()), (url, key.verifier())]
        .map(|(url, key)| format!("[[witness]]\nurl = {url:?}\nkey = \"{key}\"\n"));
    let witnesses = Witnesses::within(&settings(dir.path(), &format!("{first}{second}")), Duration::from_millis(200));
    for size in [20, 30] {
        let published = cosign(&witnesses, &tree, size).await;
        assert!(published.is_signed_by(&key.verifier().timed()));
        assert!(!witnesses.have_cosigned(&published));
    }
    let olds: Vec<u64> = sent.try_iter().map(|body| Request::parse(body.as_bytes()).unwrap().old).collect();
    assert_eq!(olds, [0, 20]);
    let (silence, _sent) = serve(vec![(0, String::new())]);
    let more = format!("[[witness]]\nurl = {silence:?}\nkey = \"{}\"\n", silent.verifier());
    let witnesses = Witnesses::within(&settings(dir.path(), &more), Duration::from_secs(36_000));
    let stop = CancellationToken::new();
    witnesses.end_with(stop.clone());
    stop.cancel();
    cosign(&witnesses, &tree, 20).await;
    assert!(problem(&witnesses).unwrap().contains("when decklog ended"));
}

/// A tree is witnessed where its checkpoint is cosigned, or a later tree whose leaf 0 is of that very checkpoint.
#[tokio::test]
async fn a_cosigned_tree_covers_the_trees_before() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = Log::open(dir.path(), 0).await;
    for epoch in 0..3 {
        if epoch > 0 {
            log.journal.begin_epoch(None).await.unwrap();
        }
        log.append(10).await;
        log.publisher.sign(&log.journal, Pace::USUAL).await.unwrap();
    }
    let (key, other) = (witness_key(), witness_key());
    let archive = whole(dir.path());
    let origins: Vec<Origin> = archive.checkpoints().map(|signed| signed.checkpoint.origin.clone()).collect();
    let by_age = |origin: &Origin| origins.iter().filter(|other| other.first < origin.first).count();
    let path = |origin: &Origin| dir.path().join("evidence").join(origin.directory()).join("checkpoint");
    let table: [(&[usize], &[usize]); 5] =
        [(&[], &[0, 1, 2]), (&[0], &[1, 2]), (&[1], &[2]), (&[2], &[]), (&[0, 2], &[])];
    for (signed, unwitnessed) in table {
        for origin in &origins {
            let mut note = Note::parse(&fs::read(path(origin)).unwrap()).unwrap();
            note.signatures.truncate(2);
            if signed.contains(&by_age(origin)) {
                note.signatures.push(key.cosign(note.text.as_bytes(), 1_800_000_000));
            }
            fs::write(path(origin), note.render()).unwrap();
        }
        let archive = whole(dir.path());
        let mut found: Vec<usize> = archive.unwitnessed(&key.verifier().timed()).unwrap().iter().map(by_age).collect();
        found.sort_unstable();
        assert_eq!(found, unwitnessed, "cosigned: {signed:?}");
        assert_eq!(archive.unwitnessed(&other.verifier().timed()).unwrap().len(), 3);
    }
    log.close().await;
}

/// Begins a thread with a name.
fn spawn<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> thread::JoinHandle<T> {
    thread::Builder::new().name("witness".to_owned()).spawn(work).unwrap()
}
