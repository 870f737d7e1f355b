//! The names of a file sink: the current file, and those that it was rotated to.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use jiff::Timestamp;

use super::{Compress, Settings, tail};
use crate::core::model::Seq;
use crate::sink::LogPosition;

/// Suffix of a file that is being compressed.
const UNFINISHED: &str = ".zst.tmp";

/// Paths of a file sink. `events.jsonl` is rotated to `events-20261121T101500Z-000000000042.jsonl`: the time of the rotation
/// and the first seq in it, so that names sort as the entries do.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub(super) path: PathBuf,
    pub(super) dir: PathBuf,
    stem: String,
    /// With its dot; empty where there is none.
    extension: String,
    pub(super) keep: usize,
    pub(super) compress: Compress,
}

/// The rotated files that there are, by their plain names.
#[derive(Debug, Default)]
pub(super) struct Rotated {
    pub(super) plain: BTreeSet<String>,
    pub(super) compressed: BTreeSet<String>,
    /// Remains of compressions that a crash interrupted.
    pub(super) unfinished: BTreeSet<String>,
}

impl Rotated {
    /// Every rotated file once, oldest first.
    pub(super) fn names(&self) -> BTreeSet<&String> {
        self.plain.union(&self.compressed).collect()
    }
}

impl Layout {
    pub(super) fn new(config: &Settings) -> Self {
        // A symbolic link is followed once, so that rotation moves the file and not the link.
        let path = fs::canonicalize(&config.path).unwrap_or_else(|_| config.path.clone());
        let dir = match path.parent() {
            Some(dir) if dir != Path::new("") => dir.to_owned(),
            _ => PathBuf::from("."),
        };
        let text = |part: Option<&std::ffi::OsStr>| part.map(|part| part.to_string_lossy().into_owned());
        let stem = text(path.file_stem()).unwrap_or_default();
        let extension = text(path.extension()).map(|extension| format!(".{extension}")).unwrap_or_default();
        // The newest rotated file always stays: after a crash in the middle of a rotation it shows the position.
        let keep = usize::try_from(config.keep).unwrap_or(usize::MAX).max(1);
        Self { path, dir, stem, extension, keep, compress: config.compress }
    }

    pub(super) fn plain(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub(super) fn compressed(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}.zst"))
    }

    pub(super) fn unfinished(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}{UNFINISHED}"))
    }

    /// Reports whether this is the plain name of a file that decklog rotated.
    fn is_rotated(&self, name: &str) -> bool {
        let middle = name.strip_prefix(&self.stem).and_then(|rest| rest.strip_suffix(&self.extension));
        let Some(middle) = middle.and_then(|middle| middle.strip_prefix('-')) else { return false };
        let Some((time, seq)) = middle.split_once('-') else { return false };
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        time.len() == 16
            && time.split_once('T').is_some_and(|(day, rest)| digits(day) && rest.strip_suffix('Z').is_some_and(digits))
            && digits(seq)
    }

    /// Reports whether logrotate gives the current file such a name: with a number or a date behind it, or before its
    /// extension. Other names do not count, because another sink may write beside this one (`events-pods.jsonl`).
    fn is_moved(&self, name: &str) -> bool {
        let name = name.strip_suffix(".zst").unwrap_or(name);
        let rest = name.strip_prefix(&self.stem).unwrap_or_default();
        let rest = match rest.strip_prefix(&self.extension) {
            Some(rest) if !self.extension.is_empty() => rest,
            _ => rest.strip_suffix(&self.extension).unwrap_or_default(),
        };
        let number = rest.strip_prefix(['.', '-']).unwrap_or_default();
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')
    }

    pub(super) fn rotated(&self) -> io::Result<Rotated> {
        let mut rotated = Rotated::default();
        for name in self.names()? {
            let (set, plain) = if let Some(plain) = name.strip_suffix(UNFINISHED) {
                (&mut rotated.unfinished, plain)
            } else if let Some(plain) = name.strip_suffix(".zst") {
                (&mut rotated.compressed, plain)
            } else {
                (&mut rotated.plain, name.as_str())
            };
            if self.is_rotated(plain) {
                set.insert(plain.to_owned());
            }
        }
        Ok(rotated)
    }

    fn names(&self) -> io::Result<Vec<String>> {
        fs::read_dir(&self.dir)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    }

    /// The name that the current file is rotated to: after all that there are, also where the clock was set back.
    pub(super) fn next_name(&self, now: SystemTime, first: Seq) -> io::Result<PathBuf> {
        let rotated = self.rotated()?;
        let names = rotated.names();
        let newest = names.last();
        let mut at = Timestamp::try_from(now).unwrap_or(Timestamp::UNIX_EPOCH);
        if let Some(newest) = newest {
            let time = newest.strip_prefix(&self.stem).and_then(|rest| rest.get(1..17)).unwrap_or_default();
            let newest_at = jiff::civil::DateTime::strptime("%Y%m%dT%H%M%SZ", time)
                .and_then(|civil| civil.to_zoned(jiff::tz::TimeZone::UTC));
            at = newest_at.map_or(at, |newest| at.max(newest.timestamp()));
        }
        loop {
            let name = format!("{}-{}-{first:012}{}", self.stem, at.strftime("%Y%m%dT%H%M%SZ"), self.extension);
            if newest.is_none_or(|newest| **newest < name) {
                return Ok(self.plain(&name));
            }
            at = at.saturating_add(Duration::from_secs(1)).map_err(io::Error::other)?;
        }
    }

    /// The furthest position that a file shows which decklog rotated or somebody moved away (logrotate's way).
    pub(super) fn newest_elsewhere(&self) -> Option<LogPosition> {
        let mut candidates = Vec::new();
        if let Some(newest) = self.rotated().ok().and_then(|rotated| rotated.names().last().map(|name| (*name).clone()))
        {
            // The plain one may be replaced by the compressed one at any moment.
            candidates.extend([self.plain(&newest), self.compressed(&newest)]);
        }
        let moved = self.names().unwrap_or_default().into_iter().filter(|name| self.is_moved(name));
        let changed = |path: &PathBuf| fs::metadata(path).and_then(|meta| meta.modified()).ok();
        candidates.extend(moved.map(|name| self.dir.join(name)).max_by_key(changed));
        let held = candidates.iter().filter_map(|path| tail::last_of(path).ok().flatten());
        held.max_by(|one, other| (&one.epoch, one.seq).cmp(&(&other.epoch, other.seq)))
    }

    /// Every file that may hold entries, newest first as far as names show.
    pub(super) fn all(&self) -> io::Result<Vec<PathBuf>> {
        let rotated = self.rotated()?;
        let rotated = rotated.names().into_iter().rev().flat_map(|name| [self.plain(name), self.compressed(name)]);
        let mut all: Vec<PathBuf> = std::iter::once(self.path.clone()).chain(rotated).collect();
        all.extend(self.names()?.into_iter().filter(|name| self.is_moved(name)).map(|name| self.dir.join(name)));
        Ok(all)
    }
}
