//! Evidence that a power cut leaves: it holds by Tessera's checker, and claims no more than the journal has.

use std::collections::{BTreeMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use decklog::core::merkle;
use decklog::journal::Reader;

use crate::cuts::{STATE, few, is_made, runtime};
use crate::disk::Left;
use crate::record::{self, Recorded, SMALL_WAL};
use crate::scratch;
use crate::setting;
use crate::support::Dice;
use crate::tessera::{self, States};
use crate::trace::Op;

/// Where a recorded run has its evidence.
const EVIDENCE: &str = "evidence";

/// The last entry that a tree claims, and its root.
type Claim = (u64, merkle::Hash);

/// Evidence of many images, each state of a tree once.
pub(crate) struct Distinct {
    states: States,
    seen: Mutex<BTreeMap<u64, Result<Claim, String>>>,
}

/// The files of each tree in an image, by their paths in its directory.
fn trees<'a>(files: impl Iterator<Item = (&'a PathBuf, &'a Vec<u8>)>) -> BTreeMap<String, Vec<(&'a Path, &'a [u8])>> {
    let mut trees: BTreeMap<String, Vec<(&Path, &[u8])>> = BTreeMap::new();
    for (path, bytes) in files {
        let Ok(path) = path.strip_prefix(EVIDENCE) else { continue };
        let tree = path.iter().next().unwrap();
        trees.entry(tree.to_str().unwrap().to_owned()).or_default().push((path.strip_prefix(tree).unwrap(), bytes));
    }
    // One whose first checkpoint was not there yet has claimed nothing.
    trees.retain(|_, files| files.iter().any(|(path, _)| *path == Path::new("checkpoint")));
    trees
}

impl Distinct {
    pub(crate) fn new(run: &Recorded) -> Self {
        Self { states: States::new(run.key.1.clone()), seen: Mutex::default() }
    }

    /// Adds a tree, where it is another one.
    fn add(&self, name: &str, files: &[(&Path, &[u8])]) -> Result<Claim, String> {
        let mut hasher = DefaultHasher::new();
        files.hash(&mut hasher);
        let add = || {
            let signed = self.states.add(name, files.iter().copied())?;
            Ok((signed.checkpoint.last().unwrap_or(0), signed.checkpoint.root))
        };
        self.seen.lock().unwrap().entry(hasher.finish()).or_insert_with(add).clone()
    }

    /// What the checker says of them all.
    pub(crate) fn finish(self) -> Vec<String> {
        if self.states.count() == 0 { Vec::new() } else { self.states.judge() }
    }
}

/// Judges the evidence beside a journal that ends with `head`: what is signed is the log up to there, and no more.
pub(crate) fn judge<'a>(
    run: &Recorded,
    files: impl Iterator<Item = (&'a PathBuf, &'a Vec<u8>)>,
    head: u64,
    states: &Distinct,
    name: &str,
) -> Result<(), String> {
    for (tree, files) in trees(files) {
        let (last, root) = states.add(name, &files).map_err(|why| format!("the tree {tree}: {why}"))?;
        if tree != format!("{}-1", run.epoch) {
            return Err(format!("{tree} is no tree of this log"));
        }
        if last > head {
            return Err(format!("entry {last} is signed, the journal ends with {head}"));
        }
        let lines = run.lines.iter().take(usize::try_from(last).unwrap());
        let leaves = [merkle::sha256(&[])].into_iter().chain(lines.map(|line| merkle::sha256(&[line.as_bytes()])));
        let leaves: Vec<merkle::Hash> = leaves.map(|leaf| merkle::leaf(&leaf)).collect();
        if merkle::root(&leaves) != root {
            return Err(format!("what is signed over entries 1 to {last} is not the log"));
        }
    }
    Ok(())
}

/// Judges the evidence of a decklog that started from an image: it is a later state of that.
pub(crate) fn goes_on<'a>(
    run: &Recorded,
    files: impl Iterator<Item = (&'a PathBuf, &'a Vec<u8>)>,
    root: &Path,
    name: &str,
) {
    let states = States::new(run.key.1.clone());
    for files in trees(files).into_values() {
        states.add("what the cut left", files).unwrap();
    }
    for (tree, files) in tessera::trees(&root.join(EVIDENCE)) {
        let files = files.iter().map(|(path, bytes)| (path.as_path(), bytes.as_slice()));
        states.add(&tree, files).unwrap_or_else(|why| panic!("{name}: {tree}: {why}"));
    }
    let wrong = states.judge();
    assert!(wrong.is_empty(), "{name}:\n{}", wrong.join("\n"));
}

/// Judges images of the moments at which something happens to the evidence. Gives how many there were, how many states of evidence, and what
/// was wrong.
fn search(run: &Recorded, ops: &[Op], each: usize, seed: u64) -> (usize, usize, Vec<String>) {
    let below = run.root.join(EVIDENCE);
    let (mut disk, mut dice, states) = (run.disk(), Dice(seed), Distinct::new(run));
    let (mut inodes, mut seen, mut wrong) = (HashSet::new(), HashSet::new(), Vec::new());
    for (at, op) in ops.iter().enumerate() {
        disk.apply(op);
        let is_evidence = match op {
            Op::Create { inode, path } => {
                // A number can be used again, by another file.
                inodes.remove(inode);
                path.starts_with(&below) && inodes.insert(*inode)
            }
            Op::Write { inode, .. } | Op::Truncate { inode, .. } | Op::Sync { inode } => inodes.contains(inode),
            Op::SyncDir { path } | Op::SyncAll { path } | Op::Unlink { path } | Op::Mkdir { path } => {
                path.starts_with(&below)
            }
            Op::Rename { to, .. } => to.starts_with(&below),
            Op::Mark(_) | Op::Step(_) => false,
        };
        for number in 0..if is_evidence { each } else { 0 } {
            let left = match number {
                0 => Left::Nothing,
                1 => Left::All,
                _ => *dice.pick(&[Left::Any, Left::Torn]),
            };
            let image = disk.image(left, &mut dice);
            if !seen.insert(image.digest()) {
                continue;
            }
            let dir = scratch();
            image.lay(dir.path());
            let state = dir.path().join(STATE);
            let head = if is_made(&state) {
                Reader::open(&state).and_then(|reader| reader.head()).map_or(0, |head| head.0)
            } else {
                0
            };
            let name = format!("cut after {} records, {left:?} left", at + 1);
            if let Err(why) = judge(run, image.files.iter(), head, &states, &name) {
                wrong.push(format!("{name}: {why}"));
            }
        }
    }
    let count = states.states.count();
    wrong.extend(states.finish());
    (seen.len(), count, wrong)
}

/// The power goes at any moment of a signing, also of one that completes tiles. And the judges are not blind: without the syncs that it
/// makes, evidence is damaged or claims what is not there.
#[test]
fn evidence_holds_whenever_the_power_goes() {
    let first = setting("DECKLOG_POWER_SEED", 1) as u64;
    for seed in first..first + setting("DECKLOG_POWER_RUNS", 2).div_ceil(2) as u64 {
        let run = runtime().block_on(record::run(seed, &SMALL_WAL, 280));
        let (images, states, wrong) = search(&run, &run.ops, 12, seed);
        println!("DECKLOG_POWER_SEED={seed}: {images} images of power cuts in a signing, {states} states of evidence");
        assert!(wrong.is_empty(), "DECKLOG_POWER_SEED={seed}: {} of {images}:\n{}", wrong.len(), few(&wrong));
        assert!(images > 300 && states > 10, "{images} images, {states} states");
        let without = |is_missing: &dyn Fn(&Op) -> bool| -> Vec<Op> {
            run.ops.iter().filter(|op| !is_missing(op)).cloned().collect()
        };
        let made = |path: &Path| path.starts_with(run.root.join(EVIDENCE));
        let inodes: HashSet<u64> = run
            .ops
            .iter()
            .filter_map(|op| if let Op::Create { inode, path } = op { Some((*inode, path)) } else { None })
            .filter(|(_, path)| made(path) && path.ends_with(".checkpoint.new"))
            .map(|(inode, _)| inode)
            .collect();
        let cases = [
            ("the tiles", without(&|op| matches!(op, Op::SyncAll { .. }))),
            ("the checkpoint", without(&|op| matches!(op, Op::Sync { inode } if inodes.contains(inode)))),
        ];
        for (what, ops) in cases {
            assert!(ops.len() < run.ops.len(), "{what}: there is no sync");
            let (images, _, wrong) = search(&run, &ops, 12, seed);
            println!("without the sync of {what}: {} of {images}, such as\n  {}", wrong.len(), few(&wrong));
            assert!(!wrong.is_empty(), "nobody needs the sync of {what}");
        }
    }
}
