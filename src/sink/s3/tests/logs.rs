//! The shared log in a folder, and before a bucket that keeps no conditions.

use super::bucket::Bucket;
use super::*;
use crate::core::shared_log;

#[path = "../../../../tests/sinks/shared.rs"]
mod shared;

use shared::Place;

/// Logs of clusters in a folder.
struct Logs(TempDir);

impl Place for Logs {
    fn open(&self, cluster: &str) -> Box<dyn SharedLog> {
        let config = config(&format!("file://{}", self.0.path().display()), json!({}));
        Box::new(S3Log::new(&config, "archive", cluster).unwrap())
    }

    async fn forget(&self, cluster: &str, from: u64) {
        for number in from.. {
            if fs::remove_file(self.0.path().join(format!("shared/{cluster}/units/{number:020}"))).is_err() {
                break;
            }
        }
    }

    async fn lose(&self, cluster: &str, units: &[u64]) {
        for number in units {
            fs::rename(self.unit(cluster, *number), self.0.path().join(format!("lost-{number}"))).unwrap();
        }
    }

    async fn put_back(&self, cluster: &str, units: &[u64]) -> bool {
        for number in units {
            fs::rename(self.0.path().join(format!("lost-{number}")), self.unit(cluster, *number)).unwrap();
        }
        true
    }
}

impl Logs {
    fn unit(&self, cluster: &str, number: u64) -> PathBuf {
        self.0.path().join(format!("shared/{cluster}/units/{number:020}"))
    }
}

/// Somebody stood still between two requests, or ended there.
#[tokio::test]
async fn what_lies_apart_is_no_unit() {
    let logs = Logs(tempfile::tempdir().unwrap());
    let (mut old, mut new) = (logs.open("c"), logs.open("c"));
    let text = Bytes::from_static(b"a");
    for number in 1..=4 {
        assert_eq!(old.append(number, text.clone()).await, Ok(Appended::Done));
    }
    // Its own is the one that is gone: nothing stays behind it.
    fs::remove_file(logs.unit("c", 4)).unwrap();
    assert_eq!(old.append(5, text.clone()).await, Ok(Appended::Behind(3)));
    assert!(!logs.unit("c", 5).exists());
    // One that was made there by somebody who could not look any more: nobody knows whether something else was deleted.
    fs::write(logs.unit("c", 5), "b").unwrap();
    let extent = Extent { oldest: Some(1), newest: 5, bases: Vec::new() };
    assert_eq!(new.extent().await, Ok(extent));
    assert_eq!(new.append(6, text.clone()).await, Ok(Appended::Done), "nobody asked for what is before the one before");
    for number in 5..=6 {
        fs::remove_file(logs.unit("c", number)).unwrap();
    }
    // Below a base: its number was removed.
    assert_eq!(old.read(1, 10).await.unwrap().len(), 2);
    for number in 4..=9 {
        assert_eq!(new.append(number, text.clone()).await, Ok(Appended::Done));
    }
    new.put_part(8, 0, text.clone()).await.unwrap();
    let base = Base { number: 8, parts: 1 };
    new.finish_base(base).await.unwrap();
    new.truncate(8).await.unwrap();
    assert_eq!(old.append(4, text.clone()).await, Ok(Appended::Taken));
    assert!(!logs.unit("c", 4).exists());
    fs::write(logs.unit("c", 4), "b").unwrap();
    let extent = Extent { oldest: Some(9), newest: 9, bases: vec![base] };
    assert_eq!(old.extent().await, Ok(extent));
    assert_eq!(old.read(3, 1).await, Ok(Vec::new()));
    new.truncate(8).await.unwrap();
    assert!(!logs.unit("c", 4).exists());
}

/// Units are removed while somebody who stood still goes on: the one before is there still, and its own is not any more.
#[tokio::test]
async fn a_number_whose_block_is_being_removed_is_taken() {
    let logs = Logs(tempfile::tempdir().unwrap());
    let (mut old, mut new) = (logs.open("c"), logs.open("c"));
    let text = Bytes::from_static(b"a");
    new.append(1, text.clone()).await.unwrap();
    for number in 2..=1600 {
        fs::write(logs.unit("c", number), "a").unwrap();
    }
    assert_eq!(old.read(1499, 1).await.unwrap()[0].number, 1500);
    new.put_part(1550, 0, text.clone()).await.unwrap();
    new.finish_base(Base { number: 1550, parts: 1 }).await.unwrap();
    // Who comes to the end has no need of the bases.
    assert_eq!(new.append(1601, text.clone()).await, Ok(Appended::Done));
    let removed = (1..=1000).chain([1501]);
    removed.for_each(|number| fs::remove_file(logs.unit("c", number)).unwrap());
    assert_eq!(old.append(1501, text.clone()).await, Ok(Appended::Taken));
    assert!(!logs.unit("c", 1501).exists());
    new.truncate(1550).await.unwrap();
    let left = (1..=1601).filter(|number| logs.unit("c", *number).exists());
    assert_eq!(left.collect::<Vec<_>>(), (1551..=1601).collect::<Vec<_>>());
    assert_eq!(new.append(1602, text.clone()).await, Ok(Appended::Done));
}

/// A server that writes over what is there gets no unit.
#[tokio::test]
async fn a_server_that_keeps_no_conditions_keeps_no_shared_log() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = Bucket::start(|seen| seen.headers.contains_key("if-none-match").then_some((200, ""))).await;
    drop(bucket.sink(dir.path()));
    let credentials = dir.path().join("aws");
    let config = config("s3://logs", json!({"endpoint": bucket.endpoint, "credentials_file": credentials}));
    let mut log = S3Log::new(&config, "archive", "c").unwrap();
    let error = log.append(1, Bytes::from_static(b"x")).await.unwrap_err();
    assert!(matches!(&error, LogError::Halt(text) if text.contains("does not keep conditional writes")), "{error}");
    assert!(bucket.seen.lock().unwrap().iter().all(|seen| !seen.key.contains("units")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shared_log_in_a_folder() {
    let logs = Logs(tempfile::tempdir().unwrap());
    shared::keeps_what_it_promises(&logs).await;
    println!("an append of 1 KB and of 1 MB: {:?}", shared::latency(&logs).await);
}
