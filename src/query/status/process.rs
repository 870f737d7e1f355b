//! The process that holds a state directory.

use std::fs;
use std::path::Path;

use super::DaemonStatus;
use crate::core::os::{self, MetadataExt};

/// Reports whether a daemon holds the state directory. It reads the kernel's list of locks instead of trying the lock, which a
/// daemon that starts at that moment would find taken.
#[must_use]
pub fn daemon(dir: &Path) -> DaemonStatus {
    let path = dir.join("decklog.lock");
    let Ok(meta) = fs::metadata(&path) else { return DaemonStatus::default() };
    let named: Option<u32> = fs::read_to_string(&path).ok().and_then(|text| text.trim().parse().ok());
    let named = named.filter(|pid| os::is_alive(*pid));
    // On a busy machine the list moves while it is read and a line can be missed, so that a process which should be
    // in it is looked for more than once.
    for _ in 0..READS {
        let Ok(locks) = fs::read_to_string("/proc/locks") else {
            // Without the list: the process that the lock file names, where there is one.
            return DaemonStatus { running: named.is_some(), pid: named, ..DaemonStatus::default() };
        };
        let pid = holder(&locks, meta.ino());
        if pid.is_some() || named.is_none() {
            return DaemonStatus { running: pid.is_some(), pid, ..DaemonStatus::default() };
        }
    }
    DaemonStatus::default()
}

/// Number of reads of the lock list before a process counts as one without a lock.
const READS: usize = 10;

/// The process that holds a flock on this inode, by `/proc/locks`. The device is not compared: some file systems name
/// another one there than `stat` does.
fn holder(locks: &str, inode: u64) -> Option<u32> {
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, "FLOCK", "ADVISORY", "WRITE", pid, file, ..] = words.as_slice() else { return None };
        let same = file.rsplit(':').next().and_then(|number| number.parse().ok()) == Some(inode);
        same.then(|| pid.parse().ok()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_of_a_lock_is_read_from_the_kernels_list() {
        let locks = "1: POSIX  ADVISORY  READ 11 fd:01:77 128 128\n2: FLOCK  ADVISORY  WRITE 4321 fd:01:77 0 EOF\n2: -> FLOCK  ADVISORY  WRITE 9 fd:01:77 0 EOF\n";
        assert_eq!(holder(locks, 77), Some(4321));
        assert_eq!(holder(locks, 7), None);
        assert_eq!(holder("1: FLOCK  ADVISORY  READ 5 fd:01:77 0 EOF\n", 77), None);
    }
}
