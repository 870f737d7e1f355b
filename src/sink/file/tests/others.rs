//! Files that others hold, move, cut, remove, write to or put back.

use super::*;

/// Fault 53: two daemons with state directories of their own, and one file.
#[test]
fn two_writers_are_one_too_many() {
    let mut place = Place::new(PLAIN);
    let mut first = place.writer();
    place.deliver(&mut first, 3).unwrap();
    let refused = place.writer().position(&place.cursor()).unwrap_err();
    assert!(matches!(&refused, SinkError::Retry { text, .. } if text.contains("another decklog writes")), "{refused}");
    drop(first);
    assert_eq!(place.held(), Some(3));
}

/// Every child has the lock too, until it has become another program.
#[test]
fn a_lock_that_is_held_for_a_moment_is_waited_for() {
    let mut place = Place::new(PLAIN);
    place.deliver(&mut place.writer(), 3).unwrap();
    let held = File::open(place.path()).unwrap();
    held.lock().unwrap();
    let (taken, refused) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let child = std::thread::Builder::new().name("child".to_owned());
        // It goes when the writer has begun, which has to try more than once.
        child
            .spawn_scoped(scope, move || {
                refused.recv().unwrap();
                std::thread::sleep(Duration::from_millis(20));
                drop(held);
            })
            .unwrap();
        taken.send(()).unwrap();
        assert_eq!(place.held(), Some(3));
    });
}

/// Fault 61: moved away, and nobody informed decklog.
#[test]
fn a_file_moved_away_is_begun_anew() {
    let mut place = Place::new(PLAIN);
    let mut writer = place.writer();
    place.deliver(&mut writer, 3).unwrap();
    fs::rename(place.path(), place.dir.path().join("events.jsonl.1")).unwrap();
    // With SIGHUP or without: the writer looks before each batch.
    place.deliver(&mut writer, 6).unwrap();
    place.assert_exact(6, "moved");
    drop(writer);
    // Moved again, and a crash before the acknowledgement: the moved file shows it.
    fs::rename(place.path(), place.dir.path().join("events.jsonl.2")).unwrap();
    place.cursor = 4;
    assert_eq!(place.held(), Some(6));
    fs::remove_file(place.dir.path().join("events.jsonl.2")).unwrap();
    place.cursor = 6;
    assert_eq!(place.held(), None, "the cursor counts");
}

#[test]
fn only_names_that_logrotate_gives_show_a_position() {
    for (name, counts) in [
        ("events.jsonl.1", true),
        ("events.jsonl.2.zst", true),
        ("events.jsonl-20261121", true),
        ("events-20261121.jsonl", true),
        ("events.jsonl-20261121-1795250000", true),
        ("events-pods.jsonl", false),
        ("events.jsonl.replay-1-9", false),
        ("events2.jsonl", false),
        ("events.json", false),
        ("other.jsonl.1", false),
    ] {
        let place = Place::new(PLAIN);
        let line = [&item(9).line[..], b"\n"].concat();
        let line = if name.ends_with(".zst") { zstd::encode_all(&line[..], 3).unwrap() } else { line };
        fs::write(place.dir.path().join(name), line).unwrap();
        assert_eq!(place.held(), counts.then_some(9), "{name}");
    }
}

/// Fault 61: logrotate with copytruncate.
#[test]
fn a_file_copied_and_truncated_goes_on() {
    let mut place = Place::new(PLAIN);
    let mut writer = place.writer();
    place.deliver(&mut writer, 3).unwrap();
    fs::copy(place.path(), place.dir.path().join("events.jsonl.1")).unwrap();
    File::options().write(true).open(place.path()).unwrap().set_len(0).unwrap();
    place.deliver(&mut writer, 6).unwrap();
    place.assert_exact(6, "copied and truncated");
}

/// Fault 61: removed.
#[test]
fn a_file_removed_is_begun_anew() {
    let mut place = Place::new(PLAIN);
    let mut writer = place.writer();
    place.deliver(&mut writer, 3).unwrap();
    fs::remove_file(place.path()).unwrap();
    writer.deliver(&[item(4)]).unwrap();
    assert_eq!(fs::read(place.path()).unwrap(), [&item(4).line[..], b"\n"].concat());
}

/// Fault 62: somebody wrote into the file.
#[test]
fn text_of_somebody_else_is_never_touched() {
    for text in ["hello\n", "hello", "{\"level\":\"info\"}\n", "{\"v\":2,\"seq\":1}\n"] {
        let place = Place::new(PLAIN);
        fs::write(place.path(), text).unwrap();
        let refused = place.writer().position(&place.cursor()).unwrap_err();
        assert!(matches!(&refused, SinkError::Halt { text } if text.contains("SIGHUP")), "{refused}");
        assert!(place.writer().check().is_err());
        assert_eq!(fs::read_to_string(place.path()).unwrap(), text);
    }
    let mut place = Place::new(PLAIN);
    let mut writer = place.writer();
    place.deliver(&mut writer, 3).unwrap();
    File::options().append(true).open(place.path()).unwrap().write_all(b"note to self").unwrap();
    let failure = writer.deliver(&[item(4)]).unwrap_err();
    assert!(matches!(failure.error, SinkError::Halt { .. }), "{failure}");
    assert!(fs::read_to_string(place.path()).unwrap().ends_with("note to self"));
}

#[tokio::test]
async fn sighup_opens_the_file_anew() {
    let place = Place::new(PLAIN);
    let mut sink = FileSink::new(&place.config);
    assert_eq!(sink.position(&place.cursor()).await.unwrap(), None);
    sink.deliver(&[item(1)]).await.unwrap();
    fs::rename(place.path(), place.dir.path().join("events.jsonl.1")).unwrap();
    sink.reopen();
    let cursor = LogPosition { epoch: "e".into(), seq: Seq(1), entry: None };
    assert_eq!(sink.position(&cursor).await.unwrap(), None);
    assert_eq!(fs::metadata(place.path()).unwrap().len(), 0, "there is a new file at once, as logrotate expects");
    sink.deliver(&[item(2)]).await.unwrap();
    place.assert_exact(2, "reopened");
}

/// An older copy of the file under the running sink: the last line is not the one that was written last.
#[test]
fn a_file_put_back_under_a_running_sink_is_noticed() {
    for in_place in [false, true] {
        let mut place = Place::new(PLAIN);
        let mut writer = place.writer();
        place.deliver(&mut writer, 3).unwrap();
        let copy = fs::read(place.path()).unwrap();
        writer.deliver(&[item(4), item(5)]).unwrap();
        if !in_place {
            fs::remove_file(place.path()).unwrap();
        }
        fs::write(place.path(), copy).unwrap();
        let failure = writer.deliver(&[item(6)]).unwrap_err();
        assert!(matches!(failure, Failure { taken: 0, error: SinkError::Lost { .. } }), "{failure}");
        assert_eq!(writer.position(&place.cursor()).unwrap().unwrap().seq, Seq(3));
        writer.deliver(&[item(4), item(5), item(6)]).unwrap();
        place.assert_exact(6, "put back");
    }
}
