//! What the shim writes down: every change to a directory and every sync, in the order in which they happened.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};

/// The shim, compiled once for a run of the tests.
pub fn shim() -> &'static Path {
    static SHIM: OnceLock<PathBuf> = OnceLock::new();
    SHIM.get_or_init(|| {
        let made = crate::scratch().join(format!("shim-{}.so", std::process::id()));
        let source = crate::root().join("tests/testkit/src/shim.c");
        let mut cc = Command::new("cc");
        cc.args(["-O1", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"]).arg(&made).arg(&source);
        let ran = cc.arg("-ldl").output().expect("a C compiler");
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        made
    })
}

/// Loads the shim into a command, which then sees what happens below `root`.
pub fn under_shim<'a>(command: &'a mut Command, root: &Path) -> &'a mut Command {
    command.env("LD_PRELOAD", shim()).env("DECKLOG_SHIM_ROOT", root)
}

/// One record. Files go by a number, because names come and go.
#[derive(Clone, Debug)]
pub enum Op {
    Create {
        inode: u64,
        path: PathBuf,
    },
    Write {
        inode: u64,
        at: u64,
        data: Arc<[u8]>,
    },
    Truncate {
        inode: u64,
        length: u64,
    },
    Sync {
        inode: u64,
    },
    SyncDir {
        path: PathBuf,
    },
    /// Everything below a directory.
    SyncAll {
        path: PathBuf,
    },
    Rename {
        from: PathBuf,
        to: PathBuf,
    },
    Unlink {
        path: PathBuf,
    },
    Mkdir {
        path: PathBuf,
    },
    /// Something that was seen from outside, in the words of whoever saw it.
    Mark(String),
    /// A step at which a process can be killed: what it does.
    Step(String),
}

const MARK: u32 = 9;

/// Says in the trace what was seen from outside. Everything that follows in the trace happened later.
pub fn mark(trace: &Path, text: &str) {
    let mut bytes = Vec::new();
    let length = u32::try_from(text.len()).unwrap();
    bytes.extend(length.to_ne_bytes());
    bytes.extend(MARK.to_ne_bytes());
    bytes.extend([0; 16]);
    bytes.extend(length.to_ne_bytes());
    bytes.extend([0; 4]);
    bytes.extend(text.as_bytes());
    let written = fs::OpenOptions::new().create(true).append(true).open(trace).unwrap().write(&bytes).unwrap();
    assert_eq!(written, bytes.len(), "in one piece");
}

/// Reads a trace.
pub fn read(path: &Path) -> Vec<Op> {
    let bytes = fs::read(path).unwrap();
    let mut rest = &bytes[..];
    let mut ops = Vec::new();
    while !rest.is_empty() {
        let small = |at: usize| u32::from_ne_bytes(rest[at..at + 4].try_into().unwrap());
        let large = |at: usize| u64::from_ne_bytes(rest[at..at + 8].try_into().unwrap());
        let (length, kind, inode, at, first) = (small(0) as usize, small(4), large(8), large(16), small(24) as usize);
        let body = &rest[32..32 + length];
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let (first, more) = (text(&body[..first]), &body[first..]);
        ops.push(match kind {
            1 => Op::Create { inode, path: first.into() },
            2 => Op::Write { inode, at, data: more.into() },
            3 => Op::Truncate { inode, length: at },
            4 => Op::Sync { inode },
            5 => Op::SyncDir { path: first.into() },
            6 => Op::Rename { from: first.into(), to: text(more).into() },
            7 => Op::Unlink { path: first.into() },
            8 => Op::Mkdir { path: first.into() },
            MARK => Op::Mark(first),
            10 => Op::Step(first),
            11 => Op::SyncAll { path: first.into() },
            other => panic!("a record of the kind {other}"),
        });
        rest = &rest[32 + length..];
    }
    ops
}
