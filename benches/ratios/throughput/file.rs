//! A file of JSON Lines.

use std::fs::{File, OpenOptions};
use std::io::Write;

use bytes::Bytes;
use decklog::sink::Item;
use serde_json::json;

use super::{Bench, Case, ENTRIES, Plain, at_once, lines};

struct Append {
    file: File,
    buffer: Vec<u8>,
}

impl Plain for Append {
    type Batch = Vec<Bytes>;

    fn prepare(&self, items: &[Item]) -> Vec<Bytes> {
        lines(items)
    }

    async fn send(&mut self, batch: Vec<Bytes>) {
        self.buffer.clear();
        for line in &batch {
            self.buffer.extend_from_slice(line);
            self.buffer.push(b'\n');
        }
        self.file.write_all(&self.buffer).and_then(|()| self.file.sync_data()).expect("space on the disk");
    }
}

pub(super) async fn compare(bench: &mut Bench<'_>) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = |run: &str| dir.path().join(format!("{run}.jsonl"));
    let case = Case {
        what: "file",
        baseline: "write and fdatasync",
        entries: ENTRIES,
        keys: &|run| json!({ "type": "file", "path": path(run) }),
    };
    let plain = async |run: &str| {
        let file = OpenOptions::new().create(true).append(true).open(path(run)).expect("a file");
        Append { file, buffer: Vec::new() }
    };
    bench.compare(case, plain, at_once).await;
}
