//! Windows, for the client. There is no journal here, so that whatever writes one is not called.

use std::convert::Infallible;
use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, DirBuilder, File, FileType, Metadata, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::windows::fs::{FileExt as _, MetadataExt as _};
use std::os::windows::io::{AsHandle, OwnedHandle};
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, UNIX_EPOCH};

use reqwest::ClientBuilder;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

pub(crate) use std::os::windows::io::AsHandle as AsStream;

use super::Disk;

/// Refusal of a journal on this machine; none where it may have one.
pub(crate) const NO_JOURNAL: Option<&str> = Some(
    "there is no journal on Windows: name a server that has one, with --server kube://NAMESPACE/SERVICE or --server https://HOST:PORT, \
     or the cluster that decklog runs in, with --context NAME",
);

const NO_SOCKET: &str = "decklog uses no unix sockets on Windows: write kube://NAMESPACE/SERVICE or https://HOST:PORT";

fn unsupported<T>() -> io::Result<T> {
    Err(ErrorKind::Unsupported.into())
}

/// The unix socket of a server, of which there is none.
#[derive(Debug)]
pub(crate) struct Socket(Infallible);

impl Socket {
    /// The socket at a path.
    ///
    /// # Errors
    /// Always: why, in a sentence.
    pub(crate) const fn at(_path: &str) -> Result<Self, &'static str> {
        Err(NO_SOCKET)
    }

    /// Has a client connect there.
    pub(crate) fn set(&self, _builder: ClientBuilder) -> ClientBuilder {
        match self.0 {}
    }
}

impl fmt::Display for Socket {
    fn fmt(&self, _f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {}
    }
}

/// Modes of new files, which Windows has not: they get the rights of their directory.
pub(crate) trait OpenOptionsExt {
    /// Does nothing.
    fn mode(&mut self, mode: u32) -> &mut Self;
}

impl OpenOptionsExt for OpenOptions {
    fn mode(&mut self, _mode: u32) -> &mut Self {
        self
    }
}

/// Modes of new directories, as for files.
pub(crate) trait DirBuilderExt {
    /// Does nothing.
    fn mode(&mut self, mode: u32) -> &mut Self;
}

impl DirBuilderExt for DirBuilder {
    fn mode(&mut self, _mode: u32) -> &mut Self {
        self
    }
}

/// Reads and writes at a position, which move the position of the file as well.
pub(crate) trait FileExt {
    /// Reads some bytes from there on.
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Reads as many bytes as there is room for.
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()>;
    /// Writes all of the bytes.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
}

impl FileExt for File {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        self.seek_read(bytes, offset)
    }

    fn read_exact_at(&self, mut bytes: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.seek_read(bytes, offset)? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                count => {
                    bytes = &mut bytes[count..];
                    offset += count as u64;
                }
            }
        }
        Ok(())
    }

    fn write_all_at(&self, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.seek_write(bytes, offset)? {
                0 => return Err(ErrorKind::WriteZero.into()),
                count => {
                    bytes = &bytes[count..];
                    offset += count as u64;
                }
            }
        }
        Ok(())
    }
}

/// Kinds of files that Windows has not.
pub(crate) trait FileTypeExt {
    /// Reports whether it is a named pipe in a directory.
    fn is_fifo(&self) -> bool;
    /// Reports whether it is a unix socket.
    fn is_socket(&self) -> bool;
    /// Reports whether it is a device.
    fn is_block_device(&self) -> bool;
    /// Reports whether it is a device.
    fn is_char_device(&self) -> bool;
}

impl FileTypeExt for FileType {
    fn is_fifo(&self) -> bool {
        false
    }

    fn is_socket(&self) -> bool {
        false
    }

    fn is_block_device(&self) -> bool {
        false
    }

    fn is_char_device(&self) -> bool {
        false
    }
}

/// What Unix knows of a file, as far as the standard library says it here.
pub(crate) trait MetadataExt {
    /// Returns nothing that tells two disks apart.
    fn dev(&self) -> u64;
    /// Returns the moment at which the file was made, which tells it from one that took its place.
    fn ino(&self) -> u64;
    /// Returns the one user that there is, see [`user`].
    fn uid(&self) -> u32;
    /// Returns the time of the last change: its seconds.
    fn mtime(&self) -> i64;
    /// Returns the nanoseconds beside [`MetadataExt::mtime`].
    fn mtime_nsec(&self) -> i64;
}

fn changed(meta: &Metadata) -> Duration {
    meta.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok()).unwrap_or_default()
}

impl MetadataExt for Metadata {
    fn dev(&self) -> u64 {
        0
    }

    fn ino(&self) -> u64 {
        self.creation_time()
    }

    fn uid(&self) -> u32 {
        user()
    }

    fn mtime(&self) -> i64 {
        i64::try_from(changed(self).as_secs()).unwrap_or(i64::MAX)
    }

    fn mtime_nsec(&self) -> i64 {
        changed(self).subsec_nanos().into()
    }
}

/// A unix socket for datagrams, of which there is none.
#[derive(Debug)]
pub(crate) struct UnixDatagram(Infallible);

impl UnixDatagram {
    /// Fails.
    pub(crate) fn unbound() -> io::Result<Self> {
        unsupported()
    }

    /// Connects it.
    pub(crate) fn connect(&self, _path: impl AsRef<Path>) -> io::Result<()> {
        match self.0 {}
    }

    /// Sends one.
    pub(crate) async fn send(&self, _bytes: &[u8]) -> io::Result<usize> {
        match self.0 {}
    }
}

/// A unix socket that listens, of which there is none.
#[derive(Debug)]
pub(crate) struct UnixListener(Infallible);

impl UnixListener {
    /// Fails.
    pub(crate) fn bind(_path: impl AsRef<Path>) -> io::Result<Self> {
        unsupported()
    }

    /// Waits for a client.
    pub(crate) async fn accept(&self) -> io::Result<(UnixStream, ())> {
        match self.0 {}
    }
}

/// A connection over a unix socket, of which there is none.
#[derive(Debug)]
pub(crate) struct UnixStream(Infallible);

/// Who is at the other end of it.
#[derive(Debug)]
pub(crate) struct Credentials(Infallible);

impl Credentials {
    /// Returns its user.
    pub(crate) fn uid(&self) -> u32 {
        match self.0 {}
    }
}

impl UnixStream {
    /// Fails.
    pub(crate) async fn connect(_path: impl AsRef<Path>) -> io::Result<Self> {
        unsupported()
    }

    /// Returns who is at the other end.
    pub(crate) fn peer_cred(&self) -> io::Result<Credentials> {
        match self.0 {}
    }
}

impl AsyncRead for UnixStream {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.0 {}
    }
}

impl AsyncWrite for UnixStream {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        match self.0 {}
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.0 {}
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.0 {}
    }
}

/// Returns the name of this machine; empty where it has none.
pub(crate) fn host() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_default()
}

/// Returns the user whose rights this process has: one number for all. Who owns a file stands in its access control list, which
/// the standard library does not read, so that every file counts as one's own: kubectl runs the programs of each kubeconfig too.
pub(crate) const fn user() -> u32 {
    0
}

/// Reports whether a process with this id runs: a daemon, so none.
pub(crate) const fn is_alive(_pid: u32) -> bool {
    false
}

/// Does nothing: a file has the rights of its directory.
pub(crate) fn set_mode(path: &Path, _mode: u32) -> io::Result<()> {
    exists(path)
}

/// Does nothing: a file has the rights of its directory.
pub(crate) fn set_file_mode(file: &File, _mode: u32) -> io::Result<()> {
    file.metadata().map(drop)
}

/// Reports whether others than its owner may use a file, as far as is known.
pub(crate) const fn is_open_to_others(_meta: &Metadata) -> bool {
    false
}

/// Fails unless there is such a directory.
pub(crate) fn may_write(dir: &Path) -> io::Result<()> {
    exists(dir)
}

/// Fails unless there is something at a path.
pub(crate) fn exists(path: &Path) -> io::Result<()> {
    fs::metadata(path).map(drop)
}

/// Makes the names in a directory durable, which its file system does by itself.
pub(crate) fn sync_names(dir: &Path) -> io::Result<()> {
    exists(dir)
}

/// Opens a file for reading.
pub(crate) fn open_at_once(path: &Path) -> io::Result<File> {
    File::open(path)
}

/// Returns the room on the file system of a directory: none, as nobody asks for it here.
pub(crate) const fn disk(_dir: &Path) -> Option<Disk> {
    None
}

/// Fails: what is reserved is for a journal.
pub(crate) fn reserve(_file: &File, _bytes: u64) -> io::Result<()> {
    unsupported()
}

/// Returns the size limit of a file of this process, which has none.
pub(crate) const fn file_limit() -> Option<u64> {
    None
}

/// Does nothing, see [`file_limit`].
pub(crate) const fn outlive_file_limit() {}

/// Leaves Ctrl-C to the other programs of the console, for good.
pub(crate) fn ignore_interrupts() -> io::Result<()> {
    tokio::signal::windows::ctrl_c().map(drop)
}

/// Reports whether standard output is a pipe without a reader. That shows here with the next line that is written.
pub(crate) const fn nobody_reads() -> bool {
    false
}

/// Returns standard output as a file, without the buffer of the standard library.
pub(crate) fn plain_stdout() -> io::Result<File> {
    let handle: OwnedHandle = io::stdout().as_handle().try_clone_to_owned()?;
    Ok(handle.into())
}

/// Reports whether standard error is a stream of systemd, which it is not.
pub(crate) const fn is_stderr(_stream: &OsStr) -> bool {
    false
}

/// Returns the number of columns of a console.
pub(crate) fn columns(terminal: &impl AsStream) -> Option<usize> {
    terminal_size::terminal_size_of(terminal.as_handle()).map(|(width, _)| width.0.into())
}

/// Has the console obey colours. Every console of a Windows that Rust supports can; where standard output or standard error is
/// none, there is nothing to do for it.
pub(crate) fn enable_colors() {
    anstyle_query::windows::enable_ansi_colors();
}

/// Reports whether there was no handle left, or no socket (`ERROR_TOO_MANY_OPEN_FILES`, `WSAEMFILE`).
pub(crate) fn lacks_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(4 | 10_024))
}

/// Reports whether a unix socket takes a stream instead of datagrams.
pub(crate) const fn is_of_another_kind(_error: &io::Error) -> bool {
    false
}

/// Reports whether a message is longer than a datagram.
pub(crate) const fn is_too_long(_error: &io::Error) -> bool {
    false
}

/// Reports of writes in a directory, which holds a journal and is not here.
#[derive(Debug)]
pub(crate) struct Writes(());

impl Writes {
    /// No reports.
    pub(crate) const fn of(_dir: &Path) -> Self {
        Self(())
    }

    /// Waits so long. Reports that there was no write.
    pub(crate) fn wait(&self, longest: Duration) -> io::Result<bool> {
        let Self(()) = self;
        std::thread::sleep(longest);
        Ok(false)
    }
}
