//! Segments: how they are called, and what is in them.

use std::io::{self, BufRead, BufReader, Read, Write};

use bytes::Bytes;

use super::Partition;
use crate::core::model::Seq;
use crate::core::wire::Entry;
use crate::sink::LogPosition;

/// Compression level of segments: a higher one costs time and saves hardly any space.
const LEVEL: i32 = 3;

/// No entry is longer: an object of the most bytes that decklog keeps, with a patch that replaces all of it. What is read
/// from elsewhere is not believed to be one.
const LONGEST: u64 = 64 << 20;

/// The folder of the manifests.
pub(super) const MANIFESTS: &str = "manifest";

/// Returns the key of the intent to write the segment behind this seq of an epoch.
pub(super) fn next(epoch: &str, after: u64) -> String {
    format!("{MANIFESTS}/{epoch}.{after:020}.next")
}

/// The epoch that something in the folder of the manifests is about.
pub(super) fn epoch_of(key: &str) -> Option<&str> {
    key.strip_prefix(MANIFESTS)?.strip_prefix('/')?.split('.').next()
}

/// Returns the part of a time that is the same for all entries of a partition.
pub(super) fn period(partition: Partition, time: &str) -> Option<&str> {
    match partition {
        Partition::Day => time.get(..10),
        Partition::Hour => time.get(..13),
        Partition::None => None,
    }
}

/// Returns the partition of a segment with these entries.
pub(super) fn partition(partition: Partition, time: &str) -> String {
    // 2026-11-21T10:15:00.000000Z
    let (day, hour) = (time.get(..10).unwrap_or_default(), time.get(11..13).unwrap_or_default());
    match partition {
        Partition::Day => format!("date={day}/"),
        Partition::Hour => format!("date={day}/hour={hour}/"),
        Partition::None => String::new(),
    }
}

/// Returns the name of a segment that begins with this entry.
pub(super) fn name(position: &LogPosition) -> String {
    format!("{}-{:020}.jsonl.zst", position.epoch, position.seq.0)
}

/// Returns the first position of the segment with this key; none if it is no segment, or one of another sink, which has a
/// folder or a prefix of its own below.
pub(super) fn begins(key: &str) -> Option<LogPosition> {
    let parts: Vec<&str> = key.split('/').collect();
    let (name, under) = parts.split_last()?;
    let dates = under.iter().zip(["date=", "hour="]).take_while(|(part, begins)| part.starts_with(begins)).count();
    let (epoch, seq) = name.strip_suffix(".jsonl.zst")?.rsplit_once('-').filter(|_| dates == under.len())?;
    Some(LogPosition { epoch: epoch.to_owned(), seq: Seq(seq.parse().ok()?), entry: None })
}

/// Reports whether a folder can contain segments.
pub(super) fn is_date(folder: &str) -> bool {
    folder.starts_with("date=")
}

/// The bytes of a segment with these entries.
pub(super) fn encode(lines: &[Bytes]) -> io::Result<Vec<u8>> {
    let mut to = zstd::stream::write::Encoder::new(Vec::new(), LEVEL)?;
    to.include_checksum(true)?;
    for line in lines {
        to.write_all(line)?;
        to.write_all(b"\n")?;
    }
    to.finish()
}

/// The first and the last entry of a segment.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Ends {
    pub(super) first: LogPosition,
    pub(super) last: LogPosition,
}

/// The ends of a segment, which is not in memory as a whole.
pub(super) fn ends(bytes: &[u8]) -> Result<Ends, String> {
    let (mut first, mut last) = (None, Vec::new());
    each(bytes, |line| {
        if first.is_none() {
            first = Some(whole(line)?);
        }
        line.clone_into(&mut last);
        Ok(())
    })?;
    Ok(Ends { first: first.ok_or("it is empty")?, last: whole(&last)? })
}

/// The place of each entry in a segment.
pub(super) fn places(bytes: &[u8]) -> Result<Vec<LogPosition>, String> {
    let mut places = Vec::new();
    each(bytes, |line| {
        places.push(LogPosition::of(line).map_err(|error| format!("it holds what is {error}"))?);
        Ok(())
    })?;
    Ok(places)
}

/// Reads a segment line by line.
fn each(bytes: &[u8], mut look: impl FnMut(&[u8]) -> Result<(), String>) -> Result<(), String> {
    let damaged = |error: io::Error| format!("it cannot be decompressed: {error}");
    let mut lines = BufReader::new(zstd::stream::read::Decoder::with_buffer(bytes).map_err(damaged)?);
    let mut line = Vec::new();
    while lines.by_ref().take(LONGEST).read_until(b'\n', &mut line).map_err(damaged)? > 0 {
        if line.len() as u64 == LONGEST {
            return Err("it has a line that is longer than an entry can be".to_owned());
        }
        look(line.trim_ascii_end())?;
        line.clear();
    }
    Ok(())
}

fn whole(line: &[u8]) -> Result<LogPosition, String> {
    Entry::parse(line).map(|entry| LogPosition::at(&entry)).map_err(|error| format!("it holds what is {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::tests::item;

    #[test]
    fn a_segment_says_what_it_holds() {
        let items = [3, 5, 9].map(item);
        let bytes = encode(&items.each_ref().map(|item| item.line.clone())).unwrap();
        let at = |seq| LogPosition::of(&item(seq).line).unwrap();
        assert_eq!(ends(&bytes), Ok(Ends { first: at(3), last: at(9) }));
        assert_eq!(places(&bytes), Ok([3, 5, 9].map(at).into()));
        let lines: Vec<u8> = items.iter().flat_map(|item| [&item.line[..], b"\n"].concat()).collect();
        assert_eq!(zstd::decode_all(&bytes[..]).unwrap(), lines);
        // A bit that is another one is found.
        let mut damaged = bytes.clone();
        let at = damaged.len() - 6;
        damaged[at] ^= 1;
        assert!(ends(&damaged).is_err());
        assert!(ends(&bytes[..bytes.len() - 1]).unwrap_err().starts_with("it cannot be decompressed"));
        assert!(ends(&encode(&[]).unwrap()).unwrap_err().contains("empty"));
        assert!(ends(&zstd::encode_all(&b"x\n"[..], 1).unwrap()).unwrap_err().contains("not an entry"));
        // A few kilobytes that would fill the memory.
        let endless = zstd::encode_all(io::repeat(b'x').take(4 * LONGEST), 1).unwrap();
        assert!(ends(&endless).unwrap_err().contains("longer than an entry"));
    }

    #[test]
    fn names_of_segments_say_where_they_begin() {
        let at = LogPosition { epoch: "0199-a".into(), seq: Seq(7), entry: None };
        let name = name(&at);
        assert_eq!(name, "0199-a-00000000000000000007.jsonl.zst");
        assert_eq!(begins(&format!("date=2026-11-21/{name}")), Some(at.clone()));
        assert_eq!(begins(&name), Some(at));
        for other in ["manifest/e.json", "x.jsonl.zst", "e-x.jsonl.zst", ""] {
            assert_eq!(begins(other), None, "{other}");
        }
        // What was replayed, and what another sink writes below.
        for under in ["replay", "other", "other/date=2026-11-21", "date=2026-11-21/other", "date=2026-11-21/hour=10/x"]
        {
            assert_eq!(begins(&format!("{under}/e-00000000000000000007.jsonl.zst")), None, "{under}");
        }
        let item = item(1);
        let entry = Entry::parse(&item.line).unwrap();
        let under = |part| partition(part, &entry.time);
        assert_eq!(under(Partition::Day), "date=2026-11-21/");
        assert_eq!(under(Partition::Hour), "date=2026-11-21/hour=10/");
        assert_eq!(under(Partition::None), "");
        // Two times have the same part where they have the same partition.
        let times = ["2026-11-21T10:15:00.1Z", "2026-11-21T10:59:59Z", "2026-11-21T11:00:00Z", "2026-11-22T10:15:00Z"];
        for part in [Partition::Day, Partition::Hour, Partition::None] {
            for (one, other) in times.iter().flat_map(|one| times.map(|other| (*one, other))) {
                let is_same = partition(part, one) == partition(part, other);
                assert_eq!(period(part, one) == period(part, other), is_same, "{one} {other}");
            }
        }
    }
}
