//! Directories of evidence that somebody has made who has the very key, and what is wrong in them: each is found, and none is read for long.

use super::super::archive::Stretch;
use super::super::checkpoint::{Checkpoint, Origin};
use super::super::tiles::CHECKPOINT;
use super::*;

/// A tree in a directory.
struct Made {
    origin: Origin,
    leaves: Vec<Hash>,
    before: Option<String>,
}

fn origin(log: &str, epoch: &str, first: u64) -> Origin {
    Origin { log: log.into(), cluster: "c".into(), epoch: epoch.into(), first }
}

/// A tree of the entries from `first` on, whose digests are these.
fn made(log: &str, epoch: &str, first: u64, digests: impl IntoIterator<Item = u64>) -> Made {
    let digests = digests.into_iter().map(digest);
    let leaves = [merkle::sha256(&[])].into_iter().chain(digests).collect();
    Made { origin: origin(log, epoch, first), leaves, before: None }
}

fn digest(number: u64) -> Hash {
    merkle::sha256(&[&number.to_be_bytes()])
}

impl Made {
    fn behind(mut self, before: &str) -> Self {
        self.leaves[0] = merkle::sha256(&[before.as_bytes()]);
        self.before = Some(before.to_owned());
        self
    }

    /// Its first leaves, signed.
    fn note(&self, size: usize) -> String {
        let hashes: Vec<Hash> = self.leaves[..size].iter().map(|leaf| merkle::leaf(leaf)).collect();
        signed(&Checkpoint { origin: self.origin.clone(), size: size as u64, root: merkle::root(&hashes) }.to_string())
    }

    fn last(&self) -> String {
        self.note(self.leaves.len())
    }

    /// Writes it, with its tiles.
    fn write(&self, dir: &Path) {
        let mut hashes: Vec<Hash> = self.leaves.iter().map(|leaf| merkle::leaf(leaf)).collect();
        let put = |tile: Tile, bytes: Vec<u8>| {
            let path = dir.join(tile.path());
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        };
        for (number, part) in (0..).zip(self.leaves.chunks(256)) {
            put(Tile { level: None, number, width: part.len() as u64 }, tiles::bundle(part));
        }
        for level in 0.. {
            for (number, part) in (0..).zip(hashes.chunks(256)) {
                put(Tile { level: Some(level), number, width: part.len() as u64 }, part.concat());
            }
            hashes = hashes.chunks_exact(256).map(merkle::root).collect();
            if hashes.is_empty() {
                break;
            }
        }
        if let Some(before) = &self.before {
            fs::write(dir.join("before"), before).unwrap();
        }
        fs::write(dir.join(CHECKPOINT), self.last()).unwrap();
    }
}

/// A text, signed with the very key.
fn signed(text: &str) -> String {
    Note::sign(text.to_owned(), &[&SigningKey::parse(SIGNING).unwrap()], 1_800_000_000).render()
}

/// What is wrong in a directory.
fn problems(dir: &Path) -> Vec<String> {
    let mut archive = Archive::read(dir, &keys()).unwrap();
    archive.check_order(&keys()).unwrap();
    archive.problems
}

/// Of an epoch an entry is in one tree, whatever the trees are called and wherever they begin: else a checkpoint that was kept would be
/// beside the tree that a line is compared with.
#[test]
fn no_entry_is_in_two_trees() {
    let first = made("a", "e1", 1, 1..=20);
    let same = first.note(11);
    let table: [(&str, Vec<Made>, &str); 7] = [
        ("one", vec![], ""),
        ("another epoch", vec![made("a", "e2", 1, 1..=20)], ""),
        ("evidence was off", vec![made("a", "e1", 22, 22..=30).behind(&first.last())], ""),
        ("a later beginning", vec![made("a", "e1", 11, 70..=80).behind(&same)], "both have entry 11 of the epoch e1"),
        ("the last entry", vec![made("a", "e1", 20, 20..=25).behind(&same)], "both have entry 20 of the epoch e1"),
        ("another name", vec![made("z", "e1", 1, 71..=90)], "both have entry 1 of the epoch e1"),
        ("no entries", vec![made("z", "e1", 5, [])], ""),
    ];
    for (name, others, says) in table {
        let dir = tempfile::tempdir().unwrap();
        first.write(&dir.path().join("0"));
        (1..).zip(&others).for_each(|(number, other)| other.write(&dir.path().join(number.to_string())));
        let found = problems(dir.path());
        assert_eq!(found.len(), usize::from(!says.is_empty()), "{name}: {found:?}");
        assert!(found.iter().all(|problem| problem.contains(says)), "{name}: {found:?}");
    }
}

/// A size is signed by whoever has the key, and there need not be so many leaves.
#[test]
fn no_size_is_believed() {
    let tree = made("a", "e", 1, 1..=20);
    let root = tree.last().lines().nth(2).unwrap().to_owned();
    let table = [
        ("a/c/e/1", "21", ""),
        ("a/c/e/1", "0", "is over nothing"),
        ("a/c/e/1", "22", "the bundle from leaf 0 on is missing"),
        ("a/c/e/1", "1099511627776", "the bundle from leaf 0 on is missing"),
        ("a/c/e/1", "4611686018427387904", "the bundle from leaf 0 on is missing"),
        ("a/c/e/1", "9223372036854775807", "a log cannot have 9223372036854775807 entries from entry 1 on"),
        ("a/c/e/1", "18446744073709551615", "a log cannot have"),
        ("a/c/e/1", "18446744073709551616", "is not a number"),
        ("a/c/e/1", "021", "is not a number"),
        ("a/c/e/18446744073709551615", "21", "a log cannot have 21 entries from entry 18446744073709551615 on"),
        ("a/c/e/01", "21", "does not name a log"),
    ];
    for (origin, size, says) in table {
        let dir = tempfile::tempdir().unwrap();
        tree.write(&dir.path().join("0"));
        fs::write(dir.path().join("0").join(CHECKPOINT), signed(&format!("{origin}\n{size}\n{root}\n"))).unwrap();
        let found = problems(dir.path());
        assert_eq!(found.is_empty(), says.is_empty(), "{origin} {size}: {found:?}");
        assert!(found.len() <= 1 && found.iter().all(|problem| problem.contains(says)), "{origin} {size}: {found:?}");
    }
}

/// A tile has the length that its name says, at each level, and a missing one is named.
#[test]
fn each_tile_is_what_its_name_says() {
    type Alter = fn(&mut Vec<u8>);
    let (flip, cut, add): (Alter, Alter, Alter) =
        (|bytes| bytes[40] ^= 1, |bytes| bytes.truncate(bytes.len() - 1), |bytes| bytes.push(0));
    let (cut_one, add_one): (Alter, Alter) =
        (|bytes| bytes.truncate(bytes.len() - 34), |bytes| bytes.extend_from_within(bytes.len() - 34..));
    let (bundle, leaves) = ("tile/entries/256.p/65", "the bundle from entry 65536 on is missing, cut off or malformed");
    let (tile, hashes) =
        ("tile/0/256.p/65", "the tile with the hashes from entry 65536 on is missing, cut off or malformed");
    let (above, blocks) = ("tile/1/000", "tile/1/000 is missing, cut off or malformed");
    let (top, parts) = ("tile/2/000.p/1", "tile/2/000.p/1 is missing, cut off or malformed");
    let flip_first: Alter = |bytes| bytes[4] ^= 1;
    let table: [(&str, Alter, &str); 15] = [
        (bundle, flip, "the leaf of entry 65537 is not the one that its tile has"),
        (bundle, cut, leaves),
        (bundle, add, leaves),
        (bundle, cut_one, leaves),
        (bundle, add_one, leaves),
        (bundle, |bytes| bytes.clear(), leaves),
        (bundle, |bytes| bytes[1] = 31, leaves),
        (tile, flip, "the leaf of entry 65537 is not the one that its tile has"),
        (tile, cut, hashes),
        (tile, add, hashes),
        (above, flip, "the leaves from entry 256 to entry 511 do not hash to what the tile above them has"),
        (above, cut, blocks),
        (above, add, blocks),
        (top, flip_first, "the leaves from leaf 0 to entry 65535 do not hash to what the tile above them has"),
        (top, add, parts),
    ];
    let dir = tempfile::tempdir().unwrap();
    made("a", "e", 1, 1..=65_600).write(dir.path());
    assert_eq!(problems(dir.path()), [""; 0]);
    for (path, alter, says) in table {
        let path = dir.path().join(path);
        let whole = fs::read(&path).unwrap();
        let mut altered = whole.clone();
        alter(&mut altered);
        fs::write(&path, altered).unwrap();
        let found = problems(dir.path());
        assert!(!found.is_empty() && found[0].contains(says), "{}: {found:?}, not {says}", path.display());
        fs::remove_file(&path).unwrap();
        let found = problems(dir.path());
        assert!(found.len() == 1 && found[0].contains("is missing"), "{}: {found:?}", path.display());
        fs::write(path, whole).unwrap();
    }
}

/// Trees that are not there, that nobody has signed, and that follow the same one are named.
#[test]
fn what_is_not_one_line_of_signed_trees_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let first = made("a", "e1", 1, 1..=20);
    let second = made("a", "e2", 21, 21..=30).behind(&first.last());
    let other = made("a", "e3", 11, 91..=95).behind(&first.last());
    second.write(&dir.path().join("2"));
    let order = || Archive::read(dir.path(), &keys()).unwrap().check_order(&keys()).unwrap();
    assert_eq!(order(), Order { missing: vec![first.origin.clone()], forks: vec![] });
    first.write(&dir.path().join("1"));
    assert_eq!(order(), Order::default());
    other.write(&dir.path().join("3"));
    let fork = (first.origin.clone(), vec![second.origin.clone(), other.origin.clone()]);
    assert_eq!(order(), Order { missing: vec![], forks: vec![fork] });
    for tree in ["3", "1"] {
        fs::remove_file(dir.path().join(tree).join(CHECKPOINT)).unwrap();
    }
    let archive = Archive::read(dir.path(), &keys()).unwrap();
    assert_eq!(archive.unsigned, ["1", "3"].map(|tree| dir.path().join(tree)));
    assert_eq!(archive.problems, [""; 0]);
    let alone = Archive::read(&dir.path().join("3"), &keys()).unwrap();
    assert_eq!(alone.unsigned, [dir.path().join("3")]);
}

/// What is signed before and behind the lines of a copy is known, over epochs, and not of another cluster.
#[test]
fn what_a_copy_lacks_at_its_ends_is_known() {
    let dir = tempfile::tempdir().unwrap();
    let trees = [made("a", "e1", 1, 1..=20), made("a", "e2", 21, 21..=30), made("a", "e3", 15, 15..=25)];
    trees.iter().for_each(|tree| tree.write(&dir.path().join(&tree.origin.epoch)));
    let mut foreign = made("a", "e4", 1, 1..=20);
    foreign.origin.cluster = "other".into();
    foreign.write(&dir.path().join("e4"));
    let of = |tree: usize, first, last| Stretch { origin: trees[tree].origin.clone(), first, last };
    type Compared<'a> = (&'a [(&'a str, u64)], [Vec<Stretch>; 2]);
    let table: [Compared<'_>; 5] = [
        (&[], [vec![], vec![]]),
        (&[("e1", 1), ("e3", 25)], [vec![], vec![]]),
        (&[("e1", 5), ("e1", 9)], [vec![of(0, 1, 4)], vec![of(0, 10, 20), of(1, 21, 30), of(2, 15, 25)]]),
        (&[("e2", 21), ("e2", 30)], [vec![of(0, 1, 20)], vec![of(2, 15, 25)]]),
        (&[("e2", 22), ("e3", 24)], [vec![of(0, 1, 20), of(1, 21, 21)], vec![of(2, 25, 25)]]),
    ];
    for (lines, around) in table {
        let mut archive = Archive::read(dir.path(), &keys()).unwrap();
        for (epoch, seq) in lines {
            assert_eq!(archive.check_line(epoch, *seq, &digest(*seq)).unwrap(), Found::Proved, "{epoch} {seq}");
        }
        assert_eq!(archive.around(), around, "{lines:?}");
    }
}
