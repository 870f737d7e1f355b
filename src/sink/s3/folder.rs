//! A folder as a place of objects: what the library does, but for how files are made. They have mode 0640 and their directories
//! 0750, whatever the umask, and no other mode before that lets more people read.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, ObjectStoreExt,
    PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

use crate::core::runtime;

/// Mode of a file: readable by its group, which may enter the directories.
const FILE: u32 = 0o640;
const DIRECTORY: u32 = 0o750;

/// Name of the store in errors of the library.
const STORE: &str = "LocalFileSystem";

/// A folder.
#[derive(Debug)]
pub(super) struct Folder(Arc<LocalFileSystem>);

impl Folder {
    pub(super) fn new(files: LocalFileSystem) -> Self {
        Self(Arc::new(files))
    }
}

impl std::fmt::Display for Folder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(&self.0, f)
    }
}

/// Makes a file with all of this, durably, under its name at once: in place of one that is there, or only where there is none.
fn put(path: &FilePath, payload: &PutPayload, replaces: bool) -> io::Result<()> {
    let (mut file, staged) = stage(path)?;
    let written = (|| {
        // A file system without permissions has none to set.
        file.set_permissions(Permissions::from_mode(FILE)).ok();
        payload.iter().try_for_each(|part| file.write_all(part))?;
        file.sync_all()?;
        drop(file);
        if replaces { fs::rename(&staged, path) } else { fs::hard_link(&staged, path) }?;
        sync(path)
    })();
    if written.is_err() || !replaces {
        // What is left of it has a name that is of no object.
        fs::remove_file(&staged).ok();
    }
    written
}

/// A file beside the one with this name, under a name that the library takes for no object.
fn stage(path: &FilePath) -> io::Result<(File, PathBuf)> {
    let mut tries = 1_u64;
    loop {
        let mut staged = path.as_os_str().to_owned();
        staged.push(format!("#{tries}"));
        let staged = PathBuf::from(staged);
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&staged) {
            Ok(file) => return Ok((file, staged)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => tries += 1,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                make(path.parent().ok_or(error)?)?;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Makes a directory and what is above it, durably. Whoever makes one of them at the same time makes the same.
fn make(directory: &FilePath) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(directory) {
        Ok(()) => {
            fs::set_permissions(directory, Permissions::from_mode(DIRECTORY)).ok();
            sync(directory)
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            make(directory.parent().ok_or(error)?)?;
            make(directory)
        }
        Err(error) => Err(error),
    }
}

/// Makes a name durable.
fn sync(path: &FilePath) -> io::Result<()> {
    path.parent().map_or(Ok(()), |above| File::open(above)?.sync_all())
}

fn failed(path: &FilePath, error: io::Error) -> Error {
    if error.kind() == ErrorKind::AlreadyExists {
        return Error::AlreadyExists { path: path.display().to_string(), source: error.into() };
    }
    Error::Generic { store: STORE, source: format!("{}: {error}", path.display()).into() }
}

impl ObjectStore for Folder {
    fn put_opts<'s, 'l, 'a>(
        &'s self,
        location: &'l Path,
        payload: PutPayload,
        opts: PutOptions,
    ) -> BoxFuture<'a, Result<PutResult>>
    where
        's: 'a,
        'l: 'a,
        Self: 'a,
    {
        async move {
            if !matches!(opts.mode, PutMode::Create | PutMode::Overwrite) || !opts.attributes.is_empty() {
                return self.0.put_opts(location, payload, opts).await;
            }
            let path = self.0.path_to_filesystem(location)?;
            let replaces = opts.mode == PutMode::Overwrite;
            let done = runtime::blocking(move || put(&path, &payload, replaces).map_err(|error| failed(&path, error)));
            done.await?;
            // Who cannot look may do without.
            let e_tag = self.0.head(location).await.ok().and_then(|meta| meta.e_tag);
            Ok(PutResult { e_tag, version: None, extensions: Default::default() })
        }
        .boxed()
    }

    fn put_multipart_opts<'s, 'l, 'a>(
        &'s self,
        location: &'l Path,
        opts: PutMultipartOptions,
    ) -> BoxFuture<'a, Result<Box<dyn MultipartUpload>>>
    where
        's: 'a,
        'l: 'a,
        Self: 'a,
    {
        self.0.put_multipart_opts(location, opts)
    }

    fn get_opts<'s, 'l, 'a>(&'s self, location: &'l Path, options: GetOptions) -> BoxFuture<'a, Result<GetResult>>
    where
        's: 'a,
        'l: 'a,
        Self: 'a,
    {
        self.0.get_opts(location, options)
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.0.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.0.list(prefix)
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        self.0.list_with_offset(prefix, offset)
    }

    fn list_with_delimiter<'s, 'p, 'a>(&'s self, prefix: Option<&'p Path>) -> BoxFuture<'a, Result<ListResult>>
    where
        's: 'a,
        'p: 'a,
        Self: 'a,
    {
        self.0.list_with_delimiter(prefix)
    }

    fn copy_opts<'s, 'f, 't, 'a>(
        &'s self,
        from: &'f Path,
        to: &'t Path,
        options: CopyOptions,
    ) -> BoxFuture<'a, Result<()>>
    where
        's: 'a,
        'f: 'a,
        't: 'a,
        Self: 'a,
    {
        self.0.copy_opts(from, to, options)
    }
}
