//! The rotated files beside one that is written, in the order in which they were rotated.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use super::position::Identity;
use crate::core::os::MetadataExt;

/// A rotated file.
#[derive(Clone, Debug)]
pub(super) struct Sibling {
    pub(super) path: PathBuf,
    pub(super) identity: Identity,
    pub(super) compressed: bool,
    /// Time at which nothing was written to it any more, as far as its name or its last change says.
    pub(super) ended: Timestamp,
    /// Its place among the others, the oldest first.
    order: (Kind, String),
}

/// Manner of naming rotated files. Two manners have no order between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// By hand: the last change counts.
    Other,
    /// `audit-2026-11-28T06-35-52.123.log` of lumberjack, `audit.log-20261128` of logrotate.
    Dated,
    /// `audit.log.1`: the highest number is the oldest.
    Numbered,
}

/// Coarseness of the times of files: a file system may be a tick of the kernel's clock behind.
const TICK_MAX: SignedDuration = SignedDuration::from_millis(10);

impl Sibling {
    /// Reports whether it was written or rotated after this last change of another file.
    pub(super) fn is_after(&self, changed: Timestamp) -> bool {
        self.ended.duration_since(changed) > TICK_MAX
    }

    /// Reports whether it was rotated after another one.
    pub(super) fn follows(&self, other: &Self) -> bool {
        self.order.0 == other.order.0 && self.order.1 > other.order.1
    }
}

/// Lists the rotated files of a path, the oldest first. Where a file and its compressed copy are there, the copy is not whole yet.
pub(super) fn list(path: &Path) -> io::Result<Vec<Sibling>> {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return Ok(Vec::new()) };
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
    let mut found = Vec::new();
    let entries = match fs::read_dir(parent) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let other = entry.file_name();
        let Some(other) = other.to_str().filter(|other| is_of(name, stem, other)) else { continue };
        // One that is deleted meanwhile is none.
        let Ok(meta) = fs::metadata(entry.path()) else { continue };
        if !meta.is_file() {
            continue;
        }
        let plain = other.strip_suffix(".gz");
        let changed = Timestamp::new(meta.mtime(), i32::try_from(meta.mtime_nsec()).unwrap_or(0)).unwrap_or_default();
        let (kind, key, stamp) = place(name, stem, plain.unwrap_or(other));
        let key = key.unwrap_or_else(|| changed.to_string());
        found.push(Sibling {
            path: entry.path(),
            identity: Identity::of(&meta),
            compressed: plain.is_some(),
            // A clock that was set back makes a name older than the file. The last change of a copy is none of the log.
            ended: stamp.map_or(changed, |stamp| if plain.is_some() { stamp } else { stamp.max(changed) }),
            order: (kind, key),
        });
    }
    let plain: Vec<PathBuf> = found.iter().filter(|one| !one.compressed).map(|one| one.path.clone()).collect();
    found.retain(|one| !one.compressed || !plain.contains(&one.path.with_extension("")));
    found.sort_by(|one, other| one.order.cmp(&other.order));
    Ok(found)
}

/// Reports whether a name is that of a rotated file: the whole name with something behind it, or a date before the extension. Logs of
/// other API servers may begin with the same letters, such as `audit-dev.log`.
fn is_of(name: &str, stem: &str, other: &str) -> bool {
    let is_dated =
        |rest: &str| rest.starts_with('-') && rest.bytes().skip(1).take(4).filter(u8::is_ascii_digit).count() == 4;
    let behind = other.strip_prefix(name).is_some_and(|rest| rest.starts_with(['.', '_', '~']) || is_dated(rest));
    behind || other.strip_prefix(stem).is_some_and(is_dated) && other.contains(&name[stem.len()..])
}

/// Reads the manner of a name, the place that it says, and the time.
fn place(name: &str, stem: &str, other: &str) -> (Kind, Option<String>, Option<Timestamp>) {
    if let Some(number) = other.strip_prefix(name).and_then(|rest| rest.strip_prefix('.')?.parse::<u64>().ok()) {
        return (Kind::Numbered, Some(format!("{:020}", u64::MAX - number)), None);
    }
    let extension = &name[stem.len()..];
    let of_lumberjack = || other.strip_prefix(stem)?.strip_prefix('-')?.strip_suffix(extension);
    let of_logrotate = || other.strip_prefix(name)?.strip_prefix('-');
    let date = of_lumberjack().or_else(of_logrotate).filter(|date| date.starts_with(|c: char| c.is_ascii_digit()));
    match date {
        Some(date) => (Kind::Dated, Some(date.to_owned()), stamp(date)),
        None => (Kind::Other, None, None),
    }
}

/// The time of a name by lumberjack, in UTC as the API server has it.
fn stamp(date: &str) -> Option<Timestamp> {
    let time = DateTime::strptime("%Y-%m-%dT%H-%M-%S%.f", date).ok()?;
    time.to_zoned(TimeZone::UTC).ok().map(|time| time.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rotated_files_are_in_order_and_others_are_none() {
        for (name, files, expected) in [
            (
                "audit.log",
                &["audit.log.2.gz", "audit.log.10.gz", "audit.log.1", "audit.log", "other.log", "audit.log.1.gz"][..],
                &["audit.log.10.gz", "audit.log.2.gz", "audit.log.1"][..],
            ),
            (
                "audit.log",
                &[
                    "audit-2026-11-28T06-35-52.123.log",
                    "audit-2026-11-28T06-35-52.009.log.gz",
                    "audit-20261127.log",
                    "audit-dev.log",
                    "audit-2.log",
                    "audit2.log",
                    "audit.log.old",
                    "audit.log-dev",
                ],
                &[
                    "audit.log.old",
                    "audit-2026-11-28T06-35-52.009.log.gz",
                    "audit-2026-11-28T06-35-52.123.log",
                    "audit-20261127.log",
                ],
            ),
            (
                "audit.log",
                &["audit.log-20261128", "audit.log-20261127.gz"],
                &["audit.log-20261127.gz", "audit.log-20261128"],
            ),
            (
                "audit",
                &["audit-2026-11-28T06-35-52.123", "audit.2", "audit", "audit-dev", "audit2"],
                &["audit-2026-11-28T06-35-52.123", "audit.2"],
            ),
        ] {
            let dir = tempfile::tempdir().unwrap();
            for file in files {
                fs::write(dir.path().join(file), "x\n").unwrap();
            }
            fs::create_dir(dir.path().join("audit-dir")).unwrap();
            let listed = list(&dir.path().join(name)).unwrap();
            let names: Vec<_> = listed.iter().map(|one| one.path.file_name().unwrap().to_str().unwrap()).collect();
            assert_eq!(names, expected, "{name}");
        }
    }

    #[test]
    fn a_name_of_lumberjack_says_when_it_was_rotated() {
        assert_eq!(stamp("2026-11-28T06-35-52.123").unwrap().to_string(), "2026-11-28T06:35:52.123Z");
        assert_eq!(stamp("20261128"), None);
    }
}
