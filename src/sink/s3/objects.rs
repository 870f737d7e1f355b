//! Objects of a bucket for others than sinks: evidence goes there.
//!
//! The library has no attribute for the retention of an object (`x-amz-object-lock-*`), and signs a request before a header could be
//! added. So the default retention of the bucket is what counts. A bucket that has one takes no object without a checksum in its headers,
//! and each object gets one.

use std::collections::BTreeMap;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode, PutOptions, UpdateVersion};

use super::Settings;
use super::store::{Store, said};
use crate::core::bucket::Objects;
use crate::sink::link::chain;

/// Objects that are written at once.
const CONCURRENT_WRITES: usize = 8;

/// Bytes of an object that is read, at most.
const OBJECT_LEN_MAX: u64 = 1 << 20;

/// Objects in a bucket.
#[derive(Debug)]
pub(super) struct S3Objects {
    store: Store,
    /// Version of each object as it was read or replaced last; none where there was no object.
    known: BTreeMap<String, Option<UpdateVersion>>,
}

impl S3Objects {
    /// Objects where the configuration says; nothing is connected yet.
    pub(super) fn new(config: &Settings) -> Result<Self, String> {
        let mut store = Store::new(config)?;
        store.has_checksums = true;
        Ok(Self { store, known: BTreeMap::new() })
    }

    /// Returns a sentence about what failed.
    fn failed(&self, what: &str, error: &Error) -> String {
        let (shown, said) = (format!("{}{}", self.store.shown, self.store.through()), said(error));
        if said.contains("NoSuchBucket") {
            return format!("{shown} does not exist; make it: {}", self.store.needs().trim_end());
        }
        let all = chain(error);
        let is_refused = matches!(error, Error::PermissionDenied { .. } | Error::Unauthenticated { .. });
        if is_refused || ["403 Forbidden", "401 Unauthorized"].iter().any(|code| all.contains(code)) {
            return format!(
                "cannot {what} {shown}: {said}; renew the credentials or give them the rights to get, put and list: they are read again before each try"
            );
        }
        // That the machine gives no access key is said there, and so on.
        self.store.failed(what, error).to_string()
    }

    async fn objects(&mut self) -> Result<std::sync::Arc<dyn ObjectStore>, String> {
        self.store.objects().await.map_err(|error| error.to_string())
    }

    async fn read(&self, objects: &dyn ObjectStore, key: &str) -> Result<Option<(Bytes, UpdateVersion)>, String> {
        let object = match objects.get(&Path::from(key)).await {
            Ok(object) => object,
            // A bucket that is not there has no object either.
            Err(Error::NotFound { source, .. }) if !source.to_string().contains("NoSuchBucket") => return Ok(None),
            Err(error) => return Err(self.failed("read", &error)),
        };
        if object.meta.size > OBJECT_LEN_MAX {
            return Err(format!(
                "{key} in {} has {} bytes and cannot be of decklog: move it away",
                self.store.shown, object.meta.size
            ));
        }
        let version = UpdateVersion { e_tag: object.meta.e_tag.clone(), version: object.meta.version.clone() };
        let bytes = object.bytes().await.map_err(|error| self.failed("read", &error))?;
        Ok(Some((bytes, version)))
    }

    /// Writes an object where there is none. Returns it where there is one.
    async fn create_one(
        &self,
        objects: &dyn ObjectStore,
        (key, bytes): (String, Bytes),
    ) -> Result<Option<(String, Bytes)>, String> {
        let path = Path::from(&*key);
        let created = objects.put_opts(&path, bytes.clone().into(), PutOptions::from(PutMode::Create)).await;
        match created {
            Ok(_) => Ok(None),
            Err(Error::AlreadyExists { .. }) => {
                let there = self.read(objects, &key).await?;
                let (there, _) = there.ok_or_else(|| format!("{key} in {} was there and is not", self.store.shown))?;
                Ok(Some((key, there)))
            }
            // A server without conditional writes is asked first.
            Err(error) if keeps_no_conditions(&error) => {
                if let Some((there, _)) = self.read(objects, &key).await? {
                    return Ok(Some((key, there)));
                }
                let written = objects.put(&path, bytes.into()).await;
                written.map(|_| None).map_err(|error| self.failed("write to", &error))
            }
            Err(error) => Err(self.failed("write to", &error)),
        }
    }
}

impl Objects for S3Objects {
    fn shown(&self) -> String {
        self.store.shown.clone()
    }

    fn get<'a>(&'a mut self, key: &'a str) -> BoxFuture<'a, Result<Option<Bytes>, String>> {
        async move {
            let objects = self.objects().await?;
            let (bytes, version) = self.read(&*objects, key).await?.unzip();
            self.known.insert(key.to_owned(), version);
            Ok(bytes)
        }
        .boxed()
    }

    fn put<'a>(&'a mut self, key: &'a str, bytes: Bytes) -> BoxFuture<'a, Result<(), String>> {
        async move {
            let objects = self.objects().await?;
            let written = objects.put(&Path::from(key), bytes.into()).await;
            written.map(drop).map_err(|error| self.failed("write to", &error))
        }
        .boxed()
    }

    fn replace<'a>(&'a mut self, key: &'a str, bytes: Bytes) -> BoxFuture<'a, Result<bool, String>> {
        async move {
            let objects = self.objects().await?;
            // Until the answer is there nothing is known of it.
            let mode = match self.known.remove(key) {
                Some(Some(version)) => PutMode::Update(version),
                Some(None) => PutMode::Create,
                None => PutMode::Overwrite,
            };
            let path = Path::from(key);
            let mut written = objects.put_opts(&path, bytes.clone().into(), PutOptions::from(mode)).await;
            if written.as_ref().is_err_and(keeps_no_conditions) {
                written = objects.put(&path, bytes.into()).await;
            }
            match written {
                Ok(put) => {
                    let version = UpdateVersion { e_tag: put.e_tag, version: put.version };
                    self.known.insert(key.to_owned(), Some(version));
                    Ok(true)
                }
                Err(Error::Precondition { .. } | Error::AlreadyExists { .. }) => Ok(false),
                Err(error) => Err(self.failed("write to", &error)),
            }
        }
        .boxed()
    }

    fn create(&mut self, new: Vec<(String, Bytes)>) -> BoxFuture<'_, Result<Vec<(String, Bytes)>, String>> {
        async move {
            let objects = self.objects().await?;
            let created: Vec<_> = stream::iter(new)
                .map(|object| self.create_one(&*objects, object).boxed())
                .buffer_unordered(CONCURRENT_WRITES)
                .try_collect()
                .await?;
            Ok(created.into_iter().flatten().collect())
        }
        .boxed()
    }

    fn remove_below<'a>(&'a mut self, key: &'a str) -> BoxFuture<'a, Result<(), String>> {
        async move {
            let objects = self.objects().await?;
            let below: Vec<_> = objects
                .list(Some(&Path::from(key)))
                .try_collect()
                .await
                .map_err(|error| self.failed("list", &error))?;
            for object in below {
                objects.delete(&object.location).await.map_err(|error| self.failed("remove from", &error))?;
            }
            Ok(())
        }
        .boxed()
    }

    fn check(&mut self) -> BoxFuture<'_, Result<(), String>> {
        async move {
            let objects = self.objects().await?;
            if let Some(Err(error)) = objects.list(None).next().await {
                return Err(self.failed("list", &error));
            }
            self.store.verify().await.map_err(|error| error.to_string())
        }
        .boxed()
    }
}

/// Reports whether a server, or a folder, has no conditional writes of this sort.
fn keeps_no_conditions(error: &Error) -> bool {
    matches!(error, Error::NotImplemented { .. })
        || ["NotImplemented", "501 "].iter().any(|word| chain(error).contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is there is never written over, and named with its contents; what is below a key goes, and nothing beside it.
    #[tokio::test]
    async fn an_object_is_created_once() {
        let dir = tempfile::tempdir().unwrap();
        let url = format!("file://{}", dir.path().display());
        let config = serde_json::from_value(serde_json::json!({ "url": url })).unwrap();
        let mut objects = S3Objects::new(&config).unwrap();
        assert_eq!(objects.get("a/checkpoint").await, Ok(None));
        let object = |key: &str, text: &'static str| (key.to_owned(), Bytes::from(text));
        let many = (0..30).map(|number| object(&format!("a/{number}"), "first")).collect();
        assert_eq!(objects.create(many).await, Ok(Vec::new()));
        let there = objects.create(vec![object("a/7", "other"), object("a/31", "first")]).await;
        assert_eq!(there, Ok(vec![object("a/7", "first")]));
        objects.put("a/7", Bytes::from("put")).await.unwrap();
        assert_eq!(objects.get("a/7").await, Ok(Some(Bytes::from("put"))));
        objects.put("a/7.p/1", Bytes::from("part")).await.unwrap();
        objects.remove_below("a/7.p").await.unwrap();
        assert_eq!(objects.get("a/7.p/1").await, Ok(None));
        assert_eq!(objects.get("a/7").await, Ok(Some(Bytes::from("put"))));
        // A folder has no conditions.
        assert_eq!(objects.replace("a/checkpoint", Bytes::from("one")).await, Ok(true));
        assert_eq!(objects.replace("a/checkpoint", Bytes::from("two")).await, Ok(true));
        assert_eq!(objects.get("a/checkpoint").await, Ok(Some(Bytes::from("two"))));
        objects.put("big", Bytes::from(vec![0; 2 << 20])).await.unwrap();
        assert!(objects.get("big").await.unwrap_err().contains("cannot be of decklog"));
        objects.check().await.unwrap();
    }
}
