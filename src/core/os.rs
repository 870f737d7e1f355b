//! What differs by operating system, in one place. The daemon runs on Linux; the client (without the feature `daemon`) also on macOS and
//! Windows, where its parts of the daemon compile and are not called.
//!
//! # Decision: one room for the systems
//!
//! Context: The client has the types of the whole program, which use files, locks and sockets of Unix in forty places.
//! Decision: `os/unix.rs` and `os/windows.rs` have the same items under the same names. Traits and types of the standard library
//! and of tokio keep their names, so that other files name this module and nothing else. What Windows lacks fails there with
//! one sentence, or does nothing where nothing can be lost. Files that only the daemon compiles use Unix directly.
//! Cost: An item that Unix gets is written for Windows as well.
//!
//! # Decision: free memory goes back to the system
//!
//! Context: After a burst glibc keeps a quarter of the daemon's memory: what stays lies between what was freed.
//! Decision: `allocator.c` starts a thread in `decklog run` that gives whole free pages back every five seconds; up to a mebibyte
//! stays at the end of each heap. It is C because no call of it is safe Rust.
//! Cost: A thread that Rust does not know, page faults where the memory is needed again, and a heap that is locked meanwhile.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub(crate) use unix::*;
#[cfg(windows)]
pub(crate) use windows::*;

/// Room on the file system of a directory, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Disk {
    /// Size of it.
    pub(crate) size: u64,
    /// What this user may still write.
    pub(crate) free: u64,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    /// Names that a file gives to others: its items, with their functions, and what it hands on.
    fn given(text: &str) -> BTreeSet<&str> {
        let mut names = BTreeSet::new();
        for item in text.lines().filter_map(|line| line.trim().strip_prefix("pub(crate) ")) {
            if let Some(path) = item.strip_prefix("use ") {
                let last = path.trim_end_matches(';').rsplit("::").next().unwrap_or_default();
                let listed = last.trim_matches(['{', '}']).split(", ");
                names.extend(listed.map(|name| name.rsplit(' ').next().unwrap_or_default()));
            } else {
                let word = |c: char| !(c.is_alphanumeric() || c == '_');
                let mut words = item.split(word);
                let name = words.find(|word| !matches!(*word, "const" | "async" | "fn" | "struct" | "trait"));
                names.extend(name);
            }
        }
        names
    }

    /// A whole test run compiles the client for Windows; this one takes no compiler of another system.
    #[test]
    fn windows_has_every_item_that_unix_has() {
        let (unix, windows) = (given(include_str!("os/unix.rs")), given(include_str!("os/windows.rs")));
        assert!(unix.len() > 30 && unix.contains("OpenOptionsExt") && unix.contains("AsStream"), "{unix:?}");
        assert_eq!(unix.difference(&windows).collect::<Vec<_>>(), [&""; 0]);
    }
}
