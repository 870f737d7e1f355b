//! Contents of the file of an audit log, as far as its beginning and its end show them.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;

use jiff::Timestamp;

use crate::audit_log::{Outcome, Reason, Record, read_line};
use crate::core::os::FileTypeExt as _;

/// Bytes that are read at either end of a file.
const END_BYTES: u64 = 1 << 20;

/// What a file holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Contents {
    /// There is no file.
    Absent,
    /// A pipe: to look into it would take events from the daemon.
    Pipe,
    /// Nothing.
    Empty,
    /// Lines, none of which is an audit event; `whole` says that all of them were looked at.
    Others { whole: bool },
    /// Events, all of which are of another cluster, which is named.
    Foreign(String),
    /// Events, with the time of the newest where it is known.
    Events(Option<Timestamp>),
}

impl Contents {
    /// Looks into a file whose events are to be of a cluster, if one is configured.
    pub(super) fn of(path: &Path, cluster: Option<&str>) -> Self {
        match fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Self::Absent,
            Ok(meta) if meta.file_type().is_fifo() => return Self::Pipe,
            Ok(_) | Err(_) => {}
        }
        // What cannot be read is a finding of its own.
        ends(path).map_or(Self::Events(None), |(text, whole)| Self::of_lines(&text, whole, cluster))
    }

    fn of_lines(text: &[u8], whole: bool, cluster: Option<&str>) -> Self {
        let lines = text.split(|byte| *byte == b'\n');
        let records: Vec<Record> = lines.flat_map(|line| read_line(line).records).collect();
        if records.is_empty() {
            return if whole { Self::Empty } else { Self::Others { whole } };
        }
        let (mut newest, mut foreign, mut is_of_events, mut is_torn) = (0, None, false, false);
        for Record { outcome, cluster: of } in &records {
            let other = of.as_deref().filter(|of| cluster.is_some_and(|cluster| cluster != *of));
            match (outcome, other) {
                (Outcome::Request(_) | Outcome::Other(Reason::Stage | Reason::NoObject), Some(other)) => {
                    foreign.get_or_insert(other);
                }
                (Outcome::Request(request), None) => (is_of_events, newest) = (true, newest.max(request.completed)),
                (Outcome::Other(Reason::Stage | Reason::NoObject), None) => is_of_events = true,
                (Outcome::Other(Reason::NotAudit | Reason::OtherLog | Reason::Control), _) => {}
                (Outcome::Unreadable(_), _) => is_torn = true,
            }
        }
        match foreign {
            _ if is_of_events => Self::Events(
                Some(newest).filter(|time| *time > 0).and_then(|time| Timestamp::from_microsecond(time).ok()),
            ),
            Some(other) => Self::Foreign(other.to_owned()),
            // It may be in the middle of an event that is longer than what was read.
            None if is_torn && !whole => Self::Events(None),
            None => Self::Others { whole },
        }
    }
}

/// Returns the lines at the beginning and at the end of a file, and whether these are all.
fn ends(path: &Path) -> io::Result<(Vec<u8>, bool)> {
    let mut file = File::open(path)?;
    let mut text = Vec::new();
    (&mut file).take(2 * END_BYTES).read_to_end(&mut text)?;
    let length = file.metadata()?.len();
    if length <= 2 * END_BYTES {
        return Ok((text, true));
    }
    text.truncate(usize::try_from(END_BYTES).unwrap_or(usize::MAX));
    // The last line of the beginning and the first of the end are parts of lines.
    if let Some(end) = memchr::memrchr(b'\n', &text) {
        text.truncate(end + 1);
    } else {
        text.push(b'\n');
    }
    let mut end = Vec::new();
    file.seek(SeekFrom::Start(length - END_BYTES))?;
    file.take(END_BYTES).read_to_end(&mut end)?;
    let from = memchr::memchr(b'\n', &end).map_or(end.len(), |at| at + 1);
    text.extend_from_slice(&end[from..]);
    Ok((text, false))
}
