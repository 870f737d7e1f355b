//! Limit and use of file descriptors.

use std::fs;
use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The descriptors of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Descriptors {
    /// In use.
    pub(super) open: u64,
    /// The most that there can be.
    pub(super) most: u64,
}

/// Raises the soft limit to the hard limit. The soft limit exists for programs that rely on small descriptors.
pub(super) fn raise() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::debug!("the limit of file descriptors cannot be raised: {error}");
    }
}

/// Returns the present numbers.
pub(super) fn look() -> Descriptors {
    let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let open = match fs::read_dir("/proc/self/fd") {
        // One of them is that of the directory itself.
        Ok(files) => files.count().saturating_sub(1) as u64,
        // None is left to look with.
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::MFILE.raw_os_error()) => most,
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
        Err(_) => 0,
    };
    Descriptors { open, most }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_file_is_counted() {
        let before = look();
        let files: Vec<_> = (0..200).map(|_| fs::File::open("/dev/null").unwrap()).collect();
        let during = look();
        assert!(during.open >= before.open.saturating_sub(50) + 100, "{before:?} {during:?}");
        assert!(during.most >= during.open);
        drop(files);
    }
}
