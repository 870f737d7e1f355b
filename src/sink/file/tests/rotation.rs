//! Rotation, and what becomes of a file that is rotated.

use super::*;

#[test]
fn a_position_in_a_rotated_file_counts_when_there_is_no_other() {
    for compress in [Compress::None, Compress::Zstd] {
        let mut place = Place::new(Settings { rotate_size: Some(ByteSize(1)), compress, ..PLAIN });
        place.deliver(&mut place.writer(), 3).unwrap();
        // A crash between the two halves of a rotation.
        let layout = Layout::new(&place.config);
        fs::rename(place.path(), layout.next_name(SystemTime::now(), Seq(3)).unwrap()).unwrap();
        tidy_up(&place, &Disk::default()).unwrap();
        place.cursor = 1;
        assert_eq!(place.held(), Some(3), "{compress:?}");
        // It never takes the cursor back: nobody knows what became of the files after it.
        place.cursor = 9;
        assert_eq!(place.held(), None, "{compress:?}");
    }
}

#[test]
fn rotation_by_size_keeps_lines_whole_and_names_sort() {
    let length = item(1).line.len() as u64 + 1;
    let mut place = Place::new(Settings { rotate_size: Some(ByteSize(3 * length)), keep: 2, ..PLAIN });
    let mut writer = place.writer();
    place.deliver(&mut writer, 20).unwrap();
    place.assert_exact(20, "before anything is removed");
    for (name, bytes) in place.files() {
        assert!(bytes.len() as u64 <= 3 * length && bytes.ends_with(b"\n"), "{name} has {} bytes", bytes.len());
    }
    let before = place.files();
    tidy_up(&place, &Disk::default()).unwrap();
    let after = place.files();
    assert_eq!(after, before[before.len() - 3..], "the two newest and the current one stay");
    let layout = Layout::new(&place.config);
    // Also where the clock was set back by years.
    let next = layout.next_name(SystemTime::UNIX_EPOCH, Seq(1)).unwrap();
    assert!(next.file_name().unwrap().to_str().unwrap() > after[1].0.as_str(), "{}", next.display());
}

#[test]
fn rotation_by_time_follows_the_calendar() {
    let day = Duration::from_secs(86_400);
    let mut place = Place::new(Settings { rotate_every: Some(day.into()), ..PLAIN });
    place.deliver(&mut place.writer(), 3).unwrap();
    place.deliver(&mut place.writer(), 5).unwrap();
    // A test that runs at midnight may have rotated once already.
    let before = place.names().len();
    let yesterday = SystemTime::now() - day;
    File::options().append(true).open(place.path()).unwrap().set_modified(yesterday).unwrap();
    place.deliver(&mut place.writer(), 8).unwrap();
    assert_eq!(place.names().len(), before + 1, "{:?}", place.names());
    place.assert_exact(8, "rotated by time");
}

#[test]
fn a_rotated_file_is_compressed_in_the_background() {
    let mut place = Place::new(Settings { rotate_size: Some(ByteSize(1)), compress: Compress::Zstd, ..PLAIN });
    let mut writer = place.writer();
    writer.tidy = Some(Tidy::new(writer.layout.clone(), Disk::default()));
    place.deliver(&mut writer, 5).unwrap();
    let settled = || place.names().iter().filter(|name| name.ends_with(".jsonl.zst")).count() >= 4;
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while !settled() {
        assert!(std::time::Instant::now() < deadline, "{:?}", place.names());
        writer.tidy.as_ref().unwrap().wake();
        std::thread::yield_now();
    }
    drop(writer);
    place.assert_exact(5, "compressed");
    assert!(
        place
            .dir
            .path()
            .read_dir()
            .unwrap()
            .all(|file| { file.unwrap().metadata().unwrap().permissions().mode() & 0o777 == 0o640 })
    );
}

/// A file that is finished, by size or by somebody who moves it away, asks for a checkpoint once its lines are on the disk.
/// Nobody who signs has to be there.
#[test]
fn a_finished_file_asks_for_a_checkpoint() {
    let length = |count: u64| (1..=count).map(|seq| item(seq).line.len() as u64 + 1).sum();
    let mut place = Place::new(Settings { rotate_size: Some(ByteSize(length(6))), ..PLAIN });
    let mut writer = place.writer();
    let checkpoints = CheckpointHandle::signing();
    writer.checkpoints = checkpoints.clone();
    for (upto, moves, asks) in
        [(3, false, false), (6, false, false), (7, false, true), (9, false, false), (10, true, true)]
    {
        if moves {
            fs::rename(place.path(), place.dir.path().join("events.jsonl.1")).unwrap();
        }
        for seq in place.cursor + 1..=upto {
            writer.known.get_or_insert(LogPosition::before("e"));
            writer.deliver(&[item(seq)]).unwrap();
            place.cursor = seq;
        }
        assert_eq!(checkpoints.asked().now_or_never().is_some(), asks, "up to {upto}");
    }
    place.assert_exact(10, "with somebody who signs");
}
