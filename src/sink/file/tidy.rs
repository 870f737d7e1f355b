//! Maintenance of rotated files: they are compressed, and the oldest removed when there are too many. It has a thread of its
//! own, because it may take minutes; a crash at any point leaves each entry in exactly one finished file.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

use super::Compress;
use super::Disk;
use super::layout::Layout;
use crate::core::os::OpenOptionsExt;
use crate::core::runtime;

/// The thread that tidies up; ends with this.
#[derive(Debug)]
pub(super) struct Tidy {
    wake: Option<SyncSender<()>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    /// In a simulation there is no thread: whoever wakes it does the work.
    inline: Option<(Layout, Disk)>,
}

impl Tidy {
    pub(super) fn new(layout: Layout, disk: Disk) -> Self {
        if runtime::is_simulated() {
            return Self { wake: None, stop: Arc::default(), thread: None, inline: Some((layout, disk)) };
        }
        let (wake, woken) = sync_channel(1);
        let stop = Arc::new(AtomicBool::new(false));
        let thread = std::thread::Builder::new().name("tidy".to_owned()).spawn({
            let stop = Arc::clone(&stop);
            move || {
                while woken.recv().is_ok() && !stop.load(Ordering::Relaxed) {
                    look(&layout, &disk, &stop);
                }
            }
        });
        if let Err(error) = &thread {
            tracing::warn!(%error, "cannot start the thread that tidies up rotated files");
        }
        Self { wake: Some(wake), stop, thread: thread.ok(), inline: None }
    }

    /// There may be something to do.
    pub(super) fn wake(&self) {
        if let Some(wake) = &self.wake {
            // A full channel means that it is about to look anyway.
            wake.try_send(()).ok();
        } else if let Some((layout, disk)) = &self.inline {
            look(layout, disk, &self.stop);
        }
    }
}

impl Drop for Tidy {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        drop(self.wake.take());
        if let Some(thread) = self.thread.take() {
            // It has reported its failures; a panic is reported by the hook.
            thread.join().ok();
        }
    }
}

fn look(layout: &Layout, disk: &Disk, stop: &AtomicBool) {
    if let Err(error) = tidy(layout, disk, stop) {
        tracing::warn!(dir = %layout.dir.display(), %error, "cannot tidy up rotated files; tried again after the next rotation");
    }
}

/// Finishes what a crash interrupted, removes the oldest, compresses the rest.
pub(super) fn tidy(layout: &Layout, disk: &Disk, stop: &AtomicBool) -> io::Result<()> {
    let rotated = layout.rotated()?;
    for name in &rotated.unfinished {
        disk.remove(&layout.unfinished(name))?;
    }
    // A compressed file has its name only once it is whole: then the plain one goes.
    for name in rotated.plain.intersection(&rotated.compressed) {
        disk.remove(&layout.plain(name))?;
    }
    let names = rotated.names();
    let surplus = names.len().saturating_sub(layout.keep);
    for name in names.iter().take(surplus) {
        for (set, path) in [(&rotated.plain, layout.plain(name)), (&rotated.compressed, layout.compressed(name))] {
            if set.contains(*name) && path.exists() {
                disk.remove(&path)?;
            }
        }
    }
    if layout.compress == Compress::Zstd {
        for name in names.iter().skip(surplus).filter(|name| !rotated.compressed.contains(**name)) {
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            compress(layout, name, disk, stop)?;
        }
    }
    Ok(())
}

fn compress(layout: &Layout, name: &str, disk: &Disk, stop: &AtomicBool) -> io::Result<()> {
    let (plain, unfinished) = (layout.plain(name), layout.unfinished(name));
    let mut from = File::open(&plain)?;
    disk.step()?;
    let to = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished)?;
    // Whoever may read the plain file may read this one. A file system without permissions has none to set.
    to.set_permissions(from.metadata()?.permissions()).ok();
    let mut to = zstd::stream::write::Encoder::new(to, 3)?;
    to.include_checksum(true)?;
    let mut chunk = vec![0; 1 << 20];
    loop {
        if stop.load(Ordering::Relaxed) {
            return disk.remove(&unfinished);
        }
        let count = from.read(&mut chunk)?;
        if count == 0 {
            break;
        }
        disk.step()?;
        to.write_all(&chunk[..count])?;
    }
    let to = to.finish()?;
    disk.sync(&to)?;
    disk.rename(&unfinished, &layout.compressed(name))?;
    disk.sync_dir(&layout.dir)?;
    disk.remove(&plain)?;
    disk.sync_dir(&layout.dir)
}
