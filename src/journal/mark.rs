//! A file beside the journal that a copy of the state directory does not bring along: its content is copied, its inode and
//! the moment it was made are not. The journal knows all three, so it notices by itself that it was restored from a copy, or
//! is one, also where no output can show it. The file is made again at each start and at each clean end, and has a name
//! of its own inside: file systems give an inode out again at once, and their clocks tick in milliseconds. It also
//! notes now and then how far the journal is: a journal that was copied while it ran, and restored alone after a crash,
//! is behind that.
//!
//! It does not notice where a whole file system goes back, as with the snapshot of a disk or of a machine.
//!
//! # Decision: a copy is known by its mark
//!
//! Context: Sinks without a position do not notice a copied state directory.
//! Decision: The identity of a file beside the journal (inode, birth time, a name inside) is recorded in the journal. No copy
//! has it. It is replaced at each start and clean end; both identities are recorded before, so a crash in between is no copy.
//! Cost: A disk that goes back as a whole is not noticed.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

#[cfg(target_os = "linux")]
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use uuid::Uuid;

use crate::core::model::Seq;
use crate::core::os::{FileExt, OpenOptionsExt};

/// Name of the file in the state directory.
const FILE: &str = "journal.mark";

/// Beginning of the file. A mark that begins otherwise is none, so this never changes: the directory would count as a copy.
const TEXT: &str = "decklog tells by this file whether its state directory is a copy. Leave it where it is.\n";

/// Text before the position of the journal.
const HEAD: &str = "newest entry: ";

/// The length of a name: a UUID without hyphens.
const NAME: usize = 32;

/// Notes how far the journal is. The note stands in the place of the one before it, and may be lost with a power cut.
pub(super) fn note(dir: &Path, head: Seq) -> io::Result<()> {
    let file = OpenOptions::new().write(true).open(dir.join(FILE))?;
    file.write_all_at(format!("{HEAD}{:020}\n", head.0).as_bytes(), (TEXT.len() + NAME + 1) as u64)
}

/// Returns the seq that was noted last.
pub(super) fn noted(dir: &Path) -> Option<Seq> {
    let text = fs::read_to_string(dir.join(FILE)).ok()?;
    let (_, note) = text.strip_prefix(TEXT)?.split_once('\n')?;
    note.strip_prefix(HEAD)?.trim_end().parse().ok().map(Seq)
}

/// Returns the identity of the file, as a word. None if there is no mark.
pub(super) fn identity(dir: &Path) -> Option<String> {
    identity_of(&dir.join(FILE)).ok()
}

#[cfg(target_os = "linux")]
fn identity_of(path: &Path) -> io::Result<String> {
    let text = fs::read_to_string(path)?;
    let name = text.strip_prefix(TEXT).and_then(|rest| rest.get(..NAME)).unwrap_or_default();
    let stat = statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::INO | StatxFlags::BTIME)?;
    let made = if stat.stx_mask & StatxFlags::BTIME.bits() == 0 {
        // Some file systems do not know: inode and name have to be enough.
        String::new()
    } else {
        format!("{}.{:09}", stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec)
    };
    Ok(format!("{}:{made}:{name}", stat.stx_ino))
}

/// Fails: only a daemon asks, and a daemon is on Linux.
#[cfg(not(target_os = "linux"))]
fn identity_of(_path: &Path) -> io::Result<String> {
    Err(io::ErrorKind::Unsupported.into())
}

/// A mark that is made and not in its place yet.
pub(super) struct Fresh {
    path: PathBuf,
    /// See [`identity`].
    pub(super) identity: String,
}

/// Makes another one beside the one that there is, so that it cannot be the same file.
pub(super) fn make(dir: &Path) -> io::Result<Fresh> {
    let path = dir.join(format!("{FILE}.new"));
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
    file.write_all(format!("{TEXT}{}\n", Uuid::new_v4().simple()).as_bytes())?;
    file.sync_all()?;
    Ok(Fresh { identity: identity_of(&path)?, path })
}

impl Fresh {
    /// Puts it in its place, for good.
    pub(super) fn place(self, dir: &Path) -> io::Result<()> {
        fs::rename(&self.path, dir.join(FILE))?;
        fs::File::open(dir)?.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_has_another_mark_and_a_moved_directory_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (dir.path().join("one"), dir.path().join("two"));
        fs::create_dir(&one).unwrap();
        assert_eq!(identity(&one), None);
        let mut seen = Vec::new();
        // Without the name, some of so many had an inode and a moment that another had had.
        for _ in 0..20 {
            let fresh = make(&one).unwrap();
            assert!(!seen.contains(&fresh.identity), "{seen:?} {}", fresh.identity);
            seen.push(fresh.identity.clone());
            fresh.place(&one).unwrap();
            assert_eq!(identity(&one).as_ref(), seen.last());
            note(&one, Seq(seen.len() as u64)).unwrap();
            assert_eq!((identity(&one).as_ref(), noted(&one)), (seen.last(), Some(Seq(seen.len() as u64))));
        }
        let last = seen.pop().unwrap();
        fs::rename(&one, &two).unwrap();
        assert_eq!(identity(&two), Some(last.clone()));
        fs::create_dir(&one).unwrap();
        fs::copy(two.join(FILE), one.join(FILE)).unwrap();
        assert_ne!(identity(&one), Some(last));
    }
}
