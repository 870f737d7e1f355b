//! Linux, and macOS for the client.

use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use reqwest::ClientBuilder;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
#[cfg(target_os = "linux")]
use rustix::fs::inotify;
use rustix::fs::{Access, FallocateFlags, Mode, OFlags, access, fallocate, statvfs};
use rustix::io::Errno;
use rustix::process::{Pid, Resource, Signal, getrlimit};
use tokio::signal::unix::{SignalKind, signal};

pub(crate) use std::os::fd::AsFd as AsStream;
pub(crate) use std::os::unix::fs::{DirBuilderExt, FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
pub(crate) use tokio::net::{UnixDatagram, UnixListener, UnixStream};

use super::Disk;

/// Refusal of a journal on this machine; none where it may have one.
pub(crate) const NO_JOURNAL: Option<&str> = None;

/// The unix socket of a server.
#[derive(Debug)]
pub(crate) struct Socket(PathBuf);

impl Socket {
    /// The socket at a path.
    ///
    /// # Errors
    /// Where the system has none: why, in a sentence.
    #[expect(clippy::unnecessary_wraps, reason = "another system has no such sockets")]
    pub(crate) fn at(path: &str) -> Result<Self, &'static str> {
        Ok(Self(path.into()))
    }

    /// Has a client connect there.
    pub(crate) fn set(&self, builder: ClientBuilder) -> ClientBuilder {
        builder.unix_socket(self.0.as_path())
    }
}

impl fmt::Display for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.display().fmt(f)
    }
}

/// Returns the name of this machine; empty where it has none.
pub(crate) fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Returns the user whose rights this process has.
pub(crate) fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Reports whether a process with this id runs.
pub(crate) fn is_alive(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| match rustix::process::test_kill_process(pid) {
        Ok(()) => true,
        Err(error) => io::Error::from(error).kind() == io::ErrorKind::PermissionDenied,
    })
}

/// Says who may use a file, as chmod does.
pub(crate) fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

/// Says who may use an open file.
pub(crate) fn set_file_mode(file: &File, mode: u32) -> io::Result<()> {
    file.set_permissions(fs::Permissions::from_mode(mode))
}

/// Reports whether others than its owner may use a file.
pub(crate) fn is_open_to_others(meta: &fs::Metadata) -> bool {
    meta.permissions().mode() & 0o077 != 0
}

/// Fails unless this user may make files in a directory.
pub(crate) fn may_write(dir: &Path) -> io::Result<()> {
    Ok(access(dir, Access::WRITE_OK | Access::EXEC_OK)?)
}

/// Fails unless there is something at a path.
pub(crate) fn exists(path: &Path) -> io::Result<()> {
    Ok(access(path, Access::EXISTS)?)
}

/// Makes the names in a directory durable.
pub(crate) fn sync_names(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Opens a file for reading; a pipe is not waited for.
pub(crate) fn open_at_once(path: &Path) -> io::Result<File> {
    Ok(rustix::fs::open(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?.into())
}

/// Returns the room on the file system of a directory; none where it does not say.
pub(crate) fn disk(dir: &Path) -> Option<Disk> {
    let disk = statvfs(dir).ok()?;
    let bytes = |blocks: u64| blocks.saturating_mul(disk.f_frsize);
    Some(Disk { size: bytes(disk.f_blocks), free: bytes(disk.f_bavail) })
}

/// Reserves the first bytes of a file. Not every file system can; then nothing is reserved.
pub(crate) fn reserve(file: &File, bytes: u64) -> io::Result<()> {
    match fallocate(file, FallocateFlags::empty(), 0, bytes) {
        Err(Errno::NOTSUP | Errno::NOSYS) => Ok(()),
        made => made.map_err(io::Error::from),
    }
}

/// Returns the size limit of a file of this process, in bytes; none if there is no limit.
pub(crate) fn file_limit() -> Option<u64> {
    getrlimit(Resource::Fsize).current
}

/// Has a write beyond the limit of a file's size (`ulimit -f`) fail like one on a full disk: without a handler, SIGXFSZ ends
/// the process. The handler that tokio installs stays for good.
pub(crate) fn outlive_file_limit() {
    if file_limit().is_none() {
        return;
    }
    if let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_io().build() {
        let _entered = runtime.enter();
        drop(signal(SignalKind::from_raw(Signal::XFSZ.as_raw())));
    }
}

/// Leaves Ctrl-C to the other programs of the terminal, for good.
pub(crate) fn ignore_interrupts() -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let _inside = runtime.enter();
    signal(SignalKind::interrupt()).map(drop)
}

/// Reports whether standard output is a pipe without a reader.
pub(crate) fn nobody_reads() -> bool {
    let stdout = io::stdout();
    let mut fds = [PollFd::new(&stdout, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut fds, Some(&now)).is_ok() && fds[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
}

/// Returns standard output as a file, without the buffer of the standard library.
pub(crate) fn plain_stdout() -> io::Result<File> {
    Ok(io::stdout().as_fd().try_clone_to_owned()?.into())
}

/// Reports whether standard error is the stream that systemd names in `$JOURNAL_STREAM`.
pub(crate) fn is_stderr(stream: &OsStr) -> bool {
    rustix::fs::fstat(io::stderr()).is_ok_and(|stat| *stream == *format!("{}:{}", stat.st_dev, stat.st_ino))
}

/// Returns the number of columns of a terminal, as it says it.
pub(crate) fn columns(terminal: &impl AsStream) -> Option<usize> {
    rustix::termios::tcgetwinsize(terminal).ok().map(|size| usize::from(size.ws_col))
}

/// Has the terminal obey colours, which it does.
pub(crate) const fn enable_colors() {}

/// Reports whether there was no file descriptor left.
pub(crate) fn lacks_descriptors(error: &io::Error) -> bool {
    [Errno::MFILE, Errno::NFILE].iter().any(|none| error.raw_os_error() == Some(none.raw_os_error()))
}

/// Reports whether a unix socket takes a stream instead of datagrams.
pub(crate) fn is_of_another_kind(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::PROTOTYPE)
}

/// Reports whether a message is longer than a datagram.
pub(crate) fn is_too_long(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::MSGSIZE)
}

/// The kernel's reports of writes in a directory, as far as it makes any.
#[derive(Debug)]
pub(crate) struct Writes(Option<OwnedFd>);

impl Writes {
    /// Reports from now on.
    #[cfg(target_os = "linux")]
    pub(crate) fn of(dir: &Path) -> Self {
        let flags = inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC;
        // The directory and not the WAL: that file comes and goes with the daemon.
        let events = inotify::WatchFlags::MODIFY | inotify::WatchFlags::CREATE | inotify::WatchFlags::MOVED_TO;
        Self(inotify::init(flags).and_then(|fd| inotify::add_watch(&fd, dir, events).map(|_| fd)).ok())
    }

    /// No reports: other systems have no inotify.
    #[cfg(not(target_os = "linux"))]
    pub(crate) const fn of(_dir: &Path) -> Self {
        Self(None)
    }

    /// Waits for a write, at most so long: less than an hour. Reports whether there was one.
    pub(crate) fn wait(&self, longest: Duration) -> io::Result<bool> {
        let mut fds: Vec<PollFd<'_>> = self.0.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
        let longest = Timespec::try_from(longest).expect("it is less than an hour");
        match poll(&mut fds, Some(&longest)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut written = false;
        if let Some(fd) = &self.0 {
            let mut events = [0; 4096];
            // What happened does not matter, only that something did.
            while rustix::io::read(fd, &mut events).is_ok_and(|read| read > 0) {
                written = true;
            }
        }
        Ok(written)
    }
}
