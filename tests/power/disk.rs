//! A disk that loses what was not synced: the model that images of power cuts are drawn from.
//!
//! Of each file, the writes since its last sync may be lost in any subset, torn at sectors, and its size may or may not
//! have changed. Of each directory, the names that came, went and changed since its last sync may be lost, in order.
//! A sync of a file says nothing about its name. Nothing that was synced is ever lost, and a sector is old or new.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::support::Dice;
use crate::trace::Op;

/// The smallest piece that a disk writes.
const SECTOR: usize = 512;
/// The usual one.
const BLOCK: usize = 4096;

#[derive(Clone, Debug)]
enum Change {
    Write(usize, Arc<[u8]>),
    Truncate(usize),
}

#[derive(Clone, Debug, Default)]
struct File {
    durable: Vec<u8>,
    pending: Vec<Change>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Node {
    File(usize),
    Dir,
}

/// What happened to the names of a directory; a rename is one piece.
#[derive(Clone, Debug)]
struct Names {
    gone: Option<String>,
    come: Option<(String, Node)>,
}

#[derive(Clone, Debug, Default)]
struct Dir {
    durable: BTreeMap<String, Node>,
    pending: Vec<Names>,
}

impl Dir {
    /// The names after so many of the pending changes.
    fn after(&self, changes: usize) -> BTreeMap<String, Node> {
        let mut names = self.durable.clone();
        for change in &self.pending[..changes] {
            if let Some(gone) = &change.gone {
                names.remove(gone);
            }
            if let Some((name, node)) = &change.come {
                names.insert(name.clone(), node.clone());
            }
        }
        names
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Disk {
    root: PathBuf,
    files: Vec<File>,
    inodes: HashMap<u64, usize>,
    dirs: BTreeMap<PathBuf, Dir>,
}

/// How much of what was not synced a power cut leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// All of it: as a kill would.
    All,
    /// Nothing.
    Nothing,
    /// In order up to some moment of each file, the last write torn.
    Torn,
    /// Any sectors.
    Any,
}

/// What a power cut left: files by their path below the root, and the directories.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Image {
    pub(crate) files: BTreeMap<PathBuf, Vec<u8>>,
    pub(crate) dirs: Vec<PathBuf>,
}

impl Image {
    pub(crate) fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for (path, bytes) in &self.files {
            (path, bytes.len(), crc32fast::hash(bytes)).hash(&mut hasher);
        }
        self.dirs.hash(&mut hasher);
        hasher.finish()
    }

    /// Lays it out in an empty directory.
    pub(crate) fn lay(&self, at: &Path) {
        use std::os::unix::fs::DirBuilderExt;
        for dir in &self.dirs {
            std::fs::DirBuilder::new().mode(0o700).recursive(true).create(at.join(dir)).unwrap();
        }
        for (path, bytes) in &self.files {
            std::fs::write(at.join(path), bytes).unwrap();
        }
    }
}

fn write(bytes: &mut Vec<u8>, at: usize, data: &[u8]) {
    if bytes.len() < at {
        bytes.resize(at, 0);
    }
    let (old, new) = data.split_at(data.len().min(bytes.len() - at));
    bytes[at..at + old.len()].copy_from_slice(old);
    bytes.extend_from_slice(new);
}

impl Disk {
    /// An empty one; `dirs` are there from the beginning.
    pub(crate) fn new(root: &Path, dirs: &[&str]) -> Self {
        let mut disk = Self { root: root.to_owned(), files: Vec::new(), inodes: HashMap::new(), dirs: BTreeMap::new() };
        disk.dirs.insert(root.to_owned(), Dir::default());
        for dir in dirs {
            disk.apply(&Op::Mkdir { path: root.join(dir) });
        }
        disk.dirs.get_mut(root).unwrap().durable = disk.dirs[root].after(dirs.len());
        disk.dirs.get_mut(root).unwrap().pending.clear();
        disk
    }

    fn names(&mut self, path: &Path, change: Names) {
        let dir = self
            .dirs
            .get_mut(path.parent().unwrap())
            .unwrap_or_else(|| panic!("{} is in no directory", path.display()));
        dir.pending.push(change);
    }

    fn file(&mut self, inode: u64) -> &mut File {
        let id = *self
            .inodes
            .get(&inode)
            .unwrap_or_else(|| panic!("a file that was never made: {inode}; there are {:?}", self.dirs));
        &mut self.files[id]
    }

    /// Something happens.
    pub(crate) fn apply(&mut self, op: &Op) {
        let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
        match op {
            Op::Create { inode, path } => {
                self.files.push(File::default());
                let id = self.files.len() - 1;
                self.inodes.insert(*inode, id);
                self.names(path, Names { gone: None, come: Some((name(path), Node::File(id))) });
            }
            Op::Write { inode, at, data } => {
                let at = usize::try_from(*at).unwrap();
                self.file(*inode).pending.push(Change::Write(at, Arc::clone(data)));
            }
            Op::Truncate { inode, length } => {
                let length = usize::try_from(*length).unwrap();
                self.file(*inode).pending.push(Change::Truncate(length));
            }
            Op::Sync { inode } => self.file(*inode).sync(),
            Op::SyncAll { path } => self.sync_below(path),
            Op::SyncDir { path } => {
                // The world around the root is not modelled: it is there.
                let Some(dir) = self.dirs.get_mut(path) else { return };
                dir.durable = dir.after(dir.pending.len());
                dir.pending.clear();
            }
            Op::Rename { from, to } => {
                assert_eq!(from.parent(), to.parent(), "decklog renames within a directory");
                let dir = &self.dirs[from.parent().unwrap()];
                let node = dir.after(dir.pending.len()).remove(&name(from)).expect("what is renamed");
                self.names(to, Names { gone: Some(name(from)), come: Some((name(to), node)) });
            }
            Op::Unlink { path } => self.names(path, Names { gone: Some(name(path)), come: None }),
            Op::Mkdir { path } => {
                self.names(path, Names { gone: None, come: Some((name(path), Node::Dir)) });
                self.dirs.insert(path.clone(), Dir::default());
            }
            Op::Mark(_) | Op::Step(_) => {}
        }
    }

    /// As syncfs does, where nothing else is on that file system.
    fn sync_below(&mut self, path: &Path) {
        let Some(dir) = self.dirs.get_mut(path) else { return };
        dir.durable = dir.after(dir.pending.len());
        dir.pending.clear();
        for (name, node) in dir.durable.clone() {
            match node {
                Node::Dir => self.sync_below(&path.join(name)),
                Node::File(id) => self.files[id].sync(),
            }
        }
    }

    /// Whether anything can be lost now.
    pub(crate) fn is_settled(&self) -> bool {
        self.files.iter().all(|file| file.pending.is_empty()) && self.dirs.values().all(|dir| dir.pending.is_empty())
    }

    /// What a power cut leaves now.
    pub(crate) fn image(&self, left: Left, dice: &mut Dice) -> Image {
        let mut image = Image::default();
        self.walk(&self.root, left, dice, &mut image);
        image
    }

    fn walk(&self, at: &Path, left: Left, dice: &mut Dice, image: &mut Image) {
        let dir = &self.dirs[at];
        let changes = match left {
            Left::All => dir.pending.len(),
            Left::Nothing => 0,
            Left::Torn | Left::Any => dice.roll(dir.pending.len() + 1),
        };
        for (name, node) in dir.after(changes) {
            let path = at.join(name);
            let relative = path.strip_prefix(&self.root).unwrap().to_owned();
            match node {
                Node::Dir => {
                    image.dirs.push(relative);
                    self.walk(&path, left, dice, image);
                }
                Node::File(id) => drop(image.files.insert(relative, self.files[id].image(left, dice))),
            }
        }
    }
}

impl File {
    fn sync(&mut self) {
        for change in std::mem::take(&mut self.pending) {
            match change {
                Change::Write(at, data) => write(&mut self.durable, at, &data),
                Change::Truncate(length) => self.durable.resize(length, 0),
            }
        }
    }

    fn image(&self, left: Left, dice: &mut Dice) -> Vec<u8> {
        let mut bytes = self.durable.clone();
        let kept = match left {
            Left::All | Left::Any => self.pending.len(),
            Left::Nothing => 0,
            Left::Torn => dice.roll(self.pending.len() + 1),
        };
        let grain = *dice.pick(&[SECTOR, SECTOR, BLOCK]);
        // Of how many sectors each one is lost.
        let lost = 1 + dice.roll(4);
        for (number, change) in self.pending[..kept].iter().enumerate() {
            let torn = left == Left::Torn && number + 1 == kept;
            match change {
                Change::Write(at, data) if torn || left == Left::Any => {
                    // The pieces end where the sectors of the disk do.
                    let mut start = 0;
                    let mut grown = bytes.len();
                    while start < data.len() {
                        let end = ((at + start) / grain + 1) * grain - at;
                        let end = end.min(data.len());
                        if dice.roll(lost + 1) != 0 {
                            write(&mut bytes, at + start, &data[start..end]);
                        }
                        // The size may come to the disk without the data.
                        grown = at + end;
                        start = end;
                    }
                    if dice.roll(2) == 0 && bytes.len() < grown {
                        bytes.resize(grown, 0);
                    }
                }
                Change::Write(at, data) => write(&mut bytes, *at, data),
                Change::Truncate(_) if (torn || left == Left::Any) && dice.roll(2) == 0 => {}
                Change::Truncate(length) => bytes.resize(*length, 0),
            }
        }
        bytes
    }
}
