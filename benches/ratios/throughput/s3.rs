//! Segments in a bucket and in a folder.

pub(crate) use decklog_testkit::servers::s3 as start;
use std::io::Write;
use std::sync::Arc;

use bytes::Bytes;
use decklog::core::wire::Entry;
use decklog::sink::Item;
use object_store::aws::AmazonS3Builder;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions};
use serde_json::json;

use self::start::{KEY, S3, SECRET};
use super::{Bench, Case, ENTRIES, Plain, at_once, lines};

struct Segments(Arc<dyn ObjectStore>);

struct Segment {
    key: Path,
    manifest: (Path, String),
    lines: Vec<Bytes>,
}

impl Plain for Segments {
    type Batch = Segment;

    fn prepare(&self, items: &[Item]) -> Segment {
        let entry = Entry::parse(&items[0].line).expect("an entry");
        let (epoch, day) = (&entry.epoch, &entry.time[..10]);
        let key = format!("date={day}/{epoch}-{:020}.jsonl.zst", entry.seq);
        let last = items[items.len() - 1].seq.0;
        let manifest = json!({ "v": 1, "epoch": epoch, "segments": 1, "first": 1, "last": last, "newest": key });
        let manifest = (Path::from(format!("manifest/{epoch}.json")), manifest.to_string());
        Segment { key: Path::from(key), manifest, lines: lines(items) }
    }

    async fn send(&mut self, Segment { key, manifest, lines }: Segment) {
        let packed = tokio::task::spawn_blocking(move || {
            let mut to = zstd::stream::write::Encoder::new(Vec::new(), 3)?;
            to.include_checksum(true)?;
            for line in &lines {
                to.write_all(line)?;
                to.write_all(b"\n")?;
            }
            to.finish()
        });
        let packed = packed.await.expect("it ends").expect("memory");
        self.0.put_opts(&key, packed.into(), PutOptions::from(PutMode::Create)).await.expect("a new segment");
        self.0.put(&manifest.0, manifest.1.into()).await.expect("a manifest");
    }
}

pub(super) async fn compare(bench: &mut Bench<'_>) {
    let s3 = S3::start().await;
    let credentials = s3.dir.path().join("aws");
    let key = format!("[default]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n");
    std::fs::write(&credentials, key).expect("space");
    let endpoint = format!("http://127.0.0.1:{}", s3.server.port());
    let case = Case {
        what: "s3",
        baseline: "object_store, a segment and a manifest",
        entries: ENTRIES,
        keys: &|run| {
            json!({
                "type": "s3", "url": format!("s3://bucket-{run}/log"), "endpoint": endpoint,
                "credentials_file": credentials, "segment_age": "1ms",
            })
        },
    };
    let plain = async |run: &str| {
        let bucket = AmazonS3Builder::new()
            .with_endpoint(&endpoint)
            .with_allow_http(true)
            .with_region("us-east-1")
            .with_access_key_id(KEY)
            .with_secret_access_key(SECRET)
            .with_bucket_name(format!("bucket-{run}"))
            .build()
            .expect("a bucket");
        Segments(Arc::new(PrefixStore::new(bucket, "log")))
    };
    bench.compare(case, plain, at_once).await;
}

pub(super) async fn compare_folder(bench: &mut Bench<'_>) {
    let dir = tempfile::tempdir().expect("a directory");
    let case = Case {
        what: "file:// folder",
        baseline: "object_store, a segment and a manifest",
        entries: ENTRIES,
        keys: &|run| json!({ "type": "s3", "url": format!("file://{}/{run}", dir.path().display()), "segment_age": "1ms" }),
    };
    let plain = async |run: &str| {
        let folder = LocalFileSystem::new_with_prefix(dir.path().join(run)).expect("a folder");
        Segments(Arc::new(folder.with_fsync(true)))
    };
    bench.compare(case, plain, at_once).await;
}
