//! The file's promise, each seq once and in order, whatever interrupts it.

mod others;
mod rotation;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64};

use super::*;
use crate::core::model::Seq;
use crate::core::units::ByteSize;
use crate::core::wire::Entry;
use crate::sink::tests::{item, item_of};

const PLAIN: Settings =
    Settings { path: PathBuf::new(), rotate_size: None, rotate_every: None, keep: 100, compress: Compress::None };

/// A file sink in a directory of its own, and the journal's side of it.
struct Place {
    dir: tempfile::TempDir,
    config: Settings,
    /// What is acknowledged.
    cursor: u64,
}

impl Place {
    fn new(config: Settings) -> Self {
        // In memory where there is such a place, because the steps sync some ten thousand times.
        let memory = Path::new("/dev/shm");
        let dir = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
        let config = Settings { path: dir.path().join("events.jsonl"), ..config };
        Self { dir, config, cursor: 0 }
    }

    fn path(&self) -> &Path {
        &self.config.path
    }

    fn writer(&self) -> Writer {
        Writer::new(&self.config, Disk::default())
    }

    /// A writer whose disk stops after some steps.
    fn stopping_after(&self, steps: i64) -> Writer {
        Writer::new(&self.config, Disk { left: Some(Arc::new(AtomicI64::new(steps))) })
    }

    fn cursor(&self) -> LogPosition {
        LogPosition { epoch: "e".into(), seq: Seq(self.cursor), entry: None }
    }

    fn held(&self) -> Option<u64> {
        self.writer().position(&self.cursor()).unwrap().map(|held| held.seq.0)
    }

    /// What delivery does with one writer until all of `1..=last` is acknowledged or something fails.
    fn deliver(&mut self, writer: &mut Writer, last: u64) -> Result<(), SinkError> {
        if let Some(held) = writer.position(&self.cursor())?
            && held.epoch == "e"
        {
            self.cursor = held.seq.0;
        }
        while self.cursor < last {
            let upto = last.min(self.cursor + 3);
            let batch: Vec<Item> = (self.cursor + 1..=upto).map(item).collect();
            writer.deliver(&batch).map_err(|failure| failure.error)?;
            self.cursor = upto;
        }
        Ok(())
    }

    /// Every finished file, oldest first, with what is in it.
    fn files(&self) -> Vec<(String, Vec<u8>)> {
        let mut files: Vec<_> = fs::read_dir(self.dir.path())
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                let name = entry.file_name().to_string_lossy().into_owned();
                let bytes = fs::read(entry.path()).unwrap();
                let bytes = if name.ends_with(".zst") { zstd::decode_all(&bytes[..]).unwrap() } else { bytes };
                (name, bytes)
            })
            .collect();
        // The current file is the newest one.
        files.sort_by_key(|(name, _)| (name == "events.jsonl", name.clone()));
        files
    }

    fn names(&self) -> Vec<String> {
        let names = fs::read_dir(self.dir.path()).unwrap();
        names.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
    }

    /// The lines of all files are those of `1..=last`, each once, in order, byte for byte.
    fn assert_exact(&self, last: u64, context: &str) {
        let found: Vec<u8> = self.files().into_iter().flat_map(|(_, bytes)| bytes).collect();
        let expected: Vec<u8> = (1..=last).flat_map(|seq| [&item(seq).line[..], b"\n"].concat()).collect();
        let seqs = |bytes: &[u8]| -> Vec<String> {
            let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
            lines.map(|line| Entry::parse(line).map_or("torn".into(), |entry| entry.seq.to_string())).collect()
        };
        assert_eq!(seqs(&found), seqs(&expected), "{context}");
        assert!(found == expected, "{context}: the lines are not byte for byte those of the journal");
    }
}

fn tidy_up(place: &Place, disk: &Disk) -> io::Result<()> {
    tidy::tidy(&Layout::new(&place.config), disk, &AtomicBool::new(false))
}

#[test]
fn a_line_is_the_entry_and_the_file_is_open_to_its_group_alone() {
    let mut place = Place::new(PLAIN);
    place.deliver(&mut place.writer(), 7).unwrap();
    place.assert_exact(7, "undisturbed");
    assert_eq!(fs::metadata(place.path()).unwrap().permissions().mode() & 0o777, 0o640);
    assert_eq!(place.held(), Some(7));
}

#[test]
fn a_batch_handed_over_twice_is_written_once() {
    let mut place = Place::new(PLAIN);
    let mut writer = place.writer();
    place.deliver(&mut writer, 3).unwrap();
    writer.deliver(&[item(2), item(3), item(4)]).unwrap();
    writer.deliver(&[item(4)]).unwrap();
    place.assert_exact(4, "twice");
}

/// The only test of a batch with more lines than one call of the system takes.
#[test]
fn a_long_batch_is_written_whole() {
    let place = Place::new(PLAIN);
    let mut writer = place.writer();
    writer.position(&place.cursor()).unwrap();
    writer.deliver(&(1..=1024).map(item).collect::<Vec<_>>()).unwrap();
    place.assert_exact(1024, "a long batch");
}

/// Fault 60: a torn last line.
#[test]
fn a_file_cut_at_any_byte_is_completed() {
    let mut place = Place::new(PLAIN);
    place.deliver(&mut place.writer(), 6).unwrap();
    let whole = fs::read(place.path()).unwrap();
    let mut ends = vec![0];
    ends.extend(memchr::memchr_iter(b'\n', &whole).map(|at| at + 1));
    for cut in 0..=whole.len() {
        for filler in [0, 1, 40] {
            fs::write(place.path(), [&whole[..cut], &vec![0; filler]].concat()).unwrap();
            let file = File::open(place.path()).unwrap();
            let tail = tail::read(&file, Some(&place.cursor())).unwrap().unwrap();
            let lines = ends.partition_point(|end| *end <= cut) - 1;
            assert_eq!(tail.good, ends[lines] as u64, "cut at {cut}, {filler} bytes behind it");
            assert_eq!(tail.last.map_or(0, |last| last.seq.0), lines as u64, "cut at {cut}");
        }
        // The whole way, with its many syncs, for the cuts around line ends and some between.
        if ends.iter().any(|end| end.abs_diff(cut) <= 1) || cut % 97 == 0 {
            fs::write(place.path(), &whole[..cut]).unwrap();
            // Nothing is acknowledged: an empty file begins at the beginning.
            place.cursor = 0;
            place.deliver(&mut place.writer(), 9).unwrap();
            place.assert_exact(9, &format!("cut at {cut}"));
        }
    }
}

#[test]
fn a_hole_before_a_whole_line_is_found() {
    let mut place = Place::new(PLAIN);
    place.deliver(&mut place.writer(), 6).unwrap();
    let mut bytes = fs::read(place.path()).unwrap();
    // The power was cut when entry 4 was not on disk yet, though 5 and 6 were.
    let start: usize = (1..=3).map(|seq| item(seq).line.len() + 1).sum();
    bytes[start + 10..start + 60].fill(0);
    fs::write(place.path(), bytes).unwrap();
    place.cursor = 3;
    assert_eq!(place.held(), Some(3));
    place.deliver(&mut place.writer(), 8).unwrap();
    place.assert_exact(8, "a hole");
}

/// Stops the disk at every single step of writing, rotating and tidying up, starts again, and looks at what is there.
#[test]
fn a_crash_at_any_step_loses_and_repeats_nothing() {
    let length = item(1).line.len() as u64 + 1;
    let configs = [
        ("plain", PLAIN),
        ("rotated", Settings { rotate_size: Some(ByteSize(4 * length)), ..PLAIN }),
        ("each line", Settings { rotate_size: Some(ByteSize(1)), ..PLAIN }),
        ("compressed", Settings { rotate_size: Some(ByteSize(4 * length)), compress: Compress::Zstd, ..PLAIN }),
    ];
    for (name, config) in configs {
        let mut steps = 0;
        loop {
            let context = format!("{name}, stopped after {steps} steps");
            let mut place = Place::new(config.clone());
            let mut writer = place.stopping_after(steps);
            let disk = writer.disk.clone();
            let mut done = place.deliver(&mut writer, 7).is_ok();
            done &= tidy_up(&place, &disk).is_ok();
            done &= place.deliver(&mut writer, 14).is_ok();
            done &= tidy_up(&place, &disk).is_ok();
            drop(writer);
            // The crash; and another one while it recovers.
            place.deliver(&mut place.stopping_after(steps % 5), 17).ok();
            let disk = Disk { left: Some(Arc::new(AtomicI64::new(steps % 7))) };
            tidy_up(&place, &disk).ok();
            place.deliver(&mut place.writer(), 20).unwrap_or_else(|error| panic!("{context}: {error}"));
            tidy_up(&place, &Disk::default()).unwrap();
            place.assert_exact(20, &context);
            assert!(!place.names().iter().any(|name| name.ends_with(".tmp")), "{context}");
            if done {
                break;
            }
            steps += 1;
        }
        assert!(steps > 5, "{name} took {steps} steps");
    }
}

/// As above, but the last acknowledgement never reached the journal.
#[test]
fn a_crash_before_the_acknowledgement_repeats_nothing() {
    let length = item(1).line.len() as u64 + 1;
    for (compress, size) in [(Compress::None, u64::MAX), (Compress::None, 3 * length), (Compress::Zstd, 3 * length)] {
        let mut place = Place::new(Settings { rotate_size: Some(ByteSize(size)), compress, ..PLAIN });
        for last in [3, 6, 8, 11] {
            let acknowledged = place.cursor;
            place.deliver(&mut place.writer(), last).unwrap();
            tidy_up(&place, &Disk::default()).unwrap();
            place.cursor = acknowledged;
        }
        place.deliver(&mut place.writer(), 12).unwrap();
        place.assert_exact(12, "unacknowledged");
    }
}

/// On a file system of a few KiB, in a mount namespace of its own.
#[test]
fn a_full_disk_is_waited_for_and_leaves_whole_lines() {
    const SMALL: &str = "DECKLOG_TEST_SMALL_DIRECTORY";
    let Some(small) = std::env::var_os(SMALL) else {
        let dir = tempfile::tempdir().unwrap();
        let name = "sink::file::tests::a_full_disk_is_waited_for_and_leaves_whole_lines";
        let script = format!("mount -t tmpfs -o size=64k small \"${SMALL}\" && exec \"$0\" --exact {name}");
        let itself = std::env::current_exe().unwrap();
        let run = |how: &[&str]| {
            let mut command = std::process::Command::new("unshare");
            command.args(how).args(["--mount", "sh", "-c", &script]).arg(&itself).env(SMALL, dir.path());
            command.output().unwrap()
        };
        // Some containers allow the one, some the other, and some neither.
        let could = |output: &std::process::Output| String::from_utf8_lossy(&output.stdout).contains("running 1 test");
        let Some(ran) = [&["--user", "--map-root-user"][..], &[]].into_iter().map(run).find(could) else {
            println!("not tested on a real small disk: nothing can be mounted here");
            return;
        };
        let out = String::from_utf8_lossy(&ran.stdout);
        assert!(ran.status.success() && out.contains("1 passed"), "{out}{}", String::from_utf8_lossy(&ran.stderr));
        return;
    };
    let mut place = Place::new(PLAIN);
    place.config.path = Path::new(&small).join("events.jsonl");
    let mut writer = place.writer();
    // Until nothing more fits.
    let refused = place.deliver(&mut writer, 10_000).unwrap_err();
    let full = matches!(&refused, SinkError::Retry { text, .. } if text.contains("free some space"));
    assert!(full && place.cursor > 10, "{refused}");
    let expected = |last| -> Vec<u8> { (1..=last).flat_map(|seq| [&item(seq).line[..], b"\n"].concat()).collect() };
    assert!(fs::read(place.path()).unwrap() == expected(place.cursor), "the part that was written is taken back");
    let stopped_at = place.cursor;
    place.deliver(&mut writer, 10_000).unwrap_err();
    assert_eq!(place.cursor, stopped_at);
    let mount = rustix::fs::statvfs(&small).unwrap();
    assert!(mount.f_blocks * mount.f_frsize < 1 << 20, "the small file system is not there");
    // Somebody makes room: the file moves to another place.
    let moved = place.dir.path().join("moved");
    fs::copy(place.path(), &moved).unwrap();
    File::options().write(true).open(place.path()).unwrap().set_len(0).unwrap();
    place.deliver(&mut writer, stopped_at + 5).unwrap();
    let all = [fs::read(moved).unwrap(), fs::read(place.path()).unwrap()].concat();
    assert!(all == expected(stopped_at + 5));
}

#[test]
fn another_epoch_is_told_and_followed() {
    let place = Place::new(PLAIN);
    let mut writer = place.writer();
    writer.position(&LogPosition { epoch: "old".into(), seq: Seq(0), entry: None }).unwrap();
    writer.deliver(&[item_of("old", 1), item_of("old", 2)]).unwrap();
    drop(writer);
    let mut writer = place.writer();
    let held = writer.position(&place.cursor()).unwrap();
    assert_eq!(held, Some(LogPosition::of(&item_of("old", 2).line).unwrap()));
    writer.deliver(&[item(1)]).unwrap();
    drop(writer);
    assert_eq!(place.held(), Some(1));
}

#[test]
fn what_is_wrong_with_a_directory_is_said() {
    let mut place = Place::new(PLAIN);
    place.config.path = place.dir.path().join("missing").join("events.jsonl");
    for refused in [place.writer().position(&place.cursor()).unwrap_err(), place.writer().check().unwrap_err()] {
        assert!(
            matches!(&refused, SinkError::Retry { text, .. } if text.contains("does not exist; create it")),
            "{refused}"
        );
    }
    fs::create_dir(place.dir.path().join("missing")).unwrap();
    place.writer().check().unwrap();
    assert!(!place.config.path.exists(), "check creates nothing");
    place.deliver(&mut place.writer(), 3).unwrap();
    place.writer().check().unwrap();
    place.config.path = "/dev/full".into();
    for refused in [place.writer().position(&place.cursor()).unwrap_err(), place.writer().check().unwrap_err()] {
        assert!(matches!(&refused, SinkError::Halt { text } if text.contains("not a regular file")), "{refused}");
    }
}

/// Fault 60: half a line, because the disk failed.
#[test]
fn a_write_that_fails_half_way_is_taken_back_and_done_again() {
    let mut place = Place::new(PLAIN);
    place.deliver(&mut place.writer(), 3).unwrap();
    let before = fs::read(place.path()).unwrap();
    let left = Arc::new(AtomicI64::new(i64::MAX));
    let mut writer = Writer::new(&place.config, Disk { left: Some(Arc::clone(&left)) });
    writer.position(&place.cursor()).unwrap();
    // The write fails half-way, and so does taking it back.
    left.store(0, std::sync::atomic::Ordering::Relaxed);
    let failure = writer.deliver(&[item(4), item(5)]).unwrap_err();
    assert!(matches!(failure, Failure { taken: 0, error: SinkError::Retry { .. } }), "{failure}");
    assert!(fs::read(place.path()).unwrap().len() > before.len());
    left.store(i64::MAX, std::sync::atomic::Ordering::Relaxed);
    writer.deliver(&[item(4), item(5)]).unwrap();
    let expected: Vec<u8> = (1..=5).flat_map(|seq| [&item(seq).line[..], b"\n"].concat()).collect();
    assert!(fs::read(place.path()).unwrap() == expected);
}

/// Every entry is found, in whichever file it is, and nothing that only has its epoch and seq.
#[test]
fn what_a_file_holds_is_told_entry_by_entry() {
    for compress in [Compress::None, Compress::Zstd] {
        let mut place = Place::new(Settings { rotate_size: Some(ByteSize(900)), compress, ..PLAIN });
        place.deliver(&mut place.writer(), 5).unwrap();
        let mut writer = place.writer();
        writer.position(&place.cursor()).unwrap();
        writer.deliver(&[7, 9, 12].map(|seq| item_of("f", seq))).unwrap();
        if compress == Compress::Zstd {
            tidy::tidy(&place.writer().layout, &Disk::default(), &AtomicBool::new(false)).unwrap();
        }
        assert!(fs::read_dir(place.dir.path()).unwrap().count() > 2);
        let held = |item: Item| writer.holds(&LogPosition::of(&item.line).unwrap()).unwrap();
        for seq in 0..=13 {
            assert_eq!(held(item(seq)), (seq > 0).then_some(seq <= 5), "{seq}");
            assert_eq!(held(item_of("f", seq)), Some([7, 9, 12].contains(&seq)), "f {seq}");
            assert_eq!((held(item_of("a", seq)), held(item_of("g", seq))), (None, Some(false)), "it may be removed");
        }
        let mut other = LogPosition::of(&item(3).line).unwrap();
        other.entry.as_mut().unwrap().time.push('9');
        assert_eq!(writer.holds(&other).unwrap(), Some(false));
    }
}

/// An entry of `payload = "metadata"` has nothing behind its header, so that several lines are shorter than what is read of one.
#[test]
fn what_a_file_of_headers_holds_is_told() {
    let place = Place::new(PLAIN);
    let header = |seq| {
        let line = String::from_utf8(item(seq).line.to_vec()).unwrap();
        format!("{}}}\n", line.split_once(",\"change\"").unwrap().0)
    };
    fs::write(place.path(), (1..=9).map(header).collect::<String>()).unwrap();
    let mut writer = place.writer();
    writer.position(&place.cursor()).unwrap();
    for seq in 1..=10 {
        assert_eq!(writer.holds(&LogPosition::of(&item(seq).line).unwrap()).unwrap(), Some(seq <= 9), "{seq}");
    }
    assert_eq!(writer.epochs().unwrap(), [("e".to_owned(), Seq(1))].into());
}
