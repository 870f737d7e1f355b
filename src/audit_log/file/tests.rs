//! Rotations of every sort, with restarts between any two steps of them.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::pin::pin;
use std::time::{Duration, SystemTime};

use flate2::Compression;
use flate2::write::GzEncoder;
use futures::FutureExt;

use super::*;

/// The manner of an API server, or of a program beside it, to rotate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// Rename to a name with the time, then a new file.
    Lumberjack,
    /// Shift `.1` to `.2`, rename to `.1`, then a new file.
    Numbered,
    /// Shift, copy to `.1`, then truncate.
    CopyTruncate,
}

const MANNERS: [Manner; 3] = [Manner::Lumberjack, Manner::Numbered, Manner::CopyTruncate];

/// A log with its writer, its rotation and its reader.
struct World {
    dir: tempfile::TempDir,
    path: PathBuf,
    manner: Manner,
    /// Milliseconds since the first second of 2026-11-28; it moves with each change.
    clock: u64,
    written: Vec<String>,
    /// Lines that were read, with their mark.
    got: Vec<(String, bool)>,
    lost: Vec<Lost>,
    caught_up: bool,
    follower: Follower,
    position: Option<FilePosition>,
    /// What a restart goes on with, and how many lines had been read then.
    stored: (Option<FilePosition>, usize),
}

impl World {
    fn new(manner: Manner) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let follower = Follower::new(&path, None);
        let (written, got, lost, stored) = (Vec::new(), Vec::new(), Vec::new(), (None, 0));
        Self { dir, path, manner, clock: 0, written, got, lost, caught_up: false, follower, position: None, stored }
    }

    /// A log of which a line was read and stored.
    fn begun(manner: Manner) -> Self {
        let mut world = Self::new(manner);
        world.write(1);
        world.read();
        world.store();
        world
    }

    fn touch(&mut self, path: &Path) {
        self.clock += 100;
        let time = SystemTime::UNIX_EPOCH + Duration::from_millis(1_795_824_000_000 + self.clock);
        File::options().append(true).open(path).unwrap().set_modified(time).unwrap();
    }

    fn append(&mut self, text: &str) {
        let path = self.path.clone();
        let mut file = OpenOptions::new().create(true).append(true).open(&path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
        self.touch(&path);
    }

    fn write(&mut self, count: usize) {
        for _ in 0..count {
            let line = format!("{{\"auditID\":\"{:032}\"}}", self.written.len());
            self.append(&format!("{line}\n"));
            self.written.push(line);
        }
    }

    fn rotate(&mut self) {
        let at = |name: &str| self.dir.path().join(name);
        if self.manner == Manner::Lumberjack {
            self.clock += 100;
            let (seconds, millis) = (self.clock / 1000, self.clock % 1000);
            let name = format!("audit-2026-11-28T00-{:02}-{:02}.{millis:03}.log", seconds / 60, seconds % 60);
            fs::rename(&self.path, self.dir.path().join(name)).unwrap();
        } else {
            for number in (1..20).rev() {
                for end in ["", ".gz"] {
                    let (from, to) = (format!("audit.log.{number}{end}"), format!("audit.log.{}{end}", number + 1));
                    fs::rename(at(&from), at(&to)).ok();
                }
            }
            if self.manner == Manner::CopyTruncate {
                let copy = at("audit.log.1");
                fs::copy(&self.path, &copy).unwrap();
                self.touch(&copy);
                File::options().write(true).open(&self.path).unwrap().set_len(0).unwrap();
            } else {
                fs::rename(&self.path, at("audit.log.1")).unwrap();
            }
        }
        File::options().create(true).append(true).open(&self.path).unwrap();
        let path = self.path.clone();
        self.touch(&path);
    }

    /// The rotated files, the oldest first.
    fn rotated(&self) -> Vec<PathBuf> {
        siblings::list(&self.path).unwrap().into_iter().map(|sibling| sibling.path).collect()
    }

    /// Compresses the newest rotated file that is plain, as gzip does: the copy keeps its time.
    fn compress(&self) {
        let Some(path) = self.rotated().into_iter().rfind(|path| path.extension().is_none_or(|end| end != "gz")) else {
            return;
        };
        let changed = fs::metadata(&path).unwrap().modified().unwrap();
        let copy = PathBuf::from(format!("{}.gz", path.display()));
        let mut encoder = GzEncoder::new(File::create(&copy).unwrap(), Compression::fast());
        encoder.write_all(&fs::read(&path).unwrap()).unwrap();
        encoder.finish().unwrap().set_modified(changed).unwrap();
        fs::remove_file(path).unwrap();
    }

    /// Reads until nothing comes any more.
    fn read(&mut self) {
        let mut waited = 0;
        while waited < 3 {
            match self.follower.step() {
                Step::Batch(batch) => {
                    waited = 0;
                    let text = |line: &crate::audit_log::lines::Line| String::from_utf8(line.bytes.to_vec()).unwrap();
                    self.got.extend(batch.lines.iter().map(|line| (text(line), line.cut)));
                    self.lost.extend(batch.lost);
                    self.caught_up = batch.caught_up;
                    self.position = Some(batch.position);
                }
                Step::Waits(_) => waited += 1,
                Step::Failed(text) => panic!("{text}"),
            }
        }
    }

    fn store(&mut self) {
        self.stored = (self.position.clone(), self.got.len());
    }

    fn restart(&mut self) {
        let (position, length) = self.stored.clone();
        self.got.truncate(length);
        // As it comes out of a database.
        let position = position.map(|position| {
            let text = serde_json::to_string(&position).unwrap();
            serde_json::from_str(&text).unwrap()
        });
        self.follower = Follower::new(&self.path, position);
        self.position = self.stored.0.clone();
    }

    fn lines(&self) -> Vec<&str> {
        self.got.iter().map(|(line, _)| line.as_str()).collect()
    }
}

/// Steps of a story, by their names.
fn run(world: &mut World, steps: &str) {
    for step in steps.split_whitespace() {
        match step {
            "write" => world.write(3),
            "read" => world.read(),
            "store" => world.store(),
            "restart" => world.restart(),
            "rotate" => world.rotate(),
            "compress" => world.compress(),
            "delete" => fs::remove_file(world.rotated().remove(0)).unwrap(),
            "half" => world.append("{\"half\":"),
            "rest" => {
                world.append("1}\n");
                world.written.push("{\"half\":1}".to_owned());
            }
            "crlf" => {
                world.append("crlf\r\n\r\n");
                world.written.push("crlf".to_owned());
            }
            "unended" => {
                world.append("unended");
                world.written.push("unended".to_owned());
            }
            "gone" => fs::remove_file(&world.path).unwrap(),
            _ => panic!("{step}"),
        }
    }
}

const STORIES: [&str; 16] = [
    "write read",
    "write half read rest read",
    "half read restart rest",
    "write read rotate write read",
    "write rotate write",
    "write rotate write rotate write",
    "write rotate compress write read",
    "write read store write rotate compress write rotate compress write",
    "write rotate write compress read rotate",
    "rotate rotate rotate write",
    "crlf write crlf",
    "unended rotate write",
    "read unended read rotate read write",
    "rotate read write rotate compress read write",
    "write read rotate compress rotate compress read write rotate",
    "half read rest rotate compress write",
];

#[test]
fn every_line_is_read_once_however_it_is_rotated_and_wherever_it_is_killed() {
    for manner in MANNERS {
        for story in STORIES {
            let steps: Vec<&str> = story.split_whitespace().collect();
            // Without a restart, with one before each step, and with what was read before it stored or not.
            for kill in (0..=steps.len()).map(Some).chain([None]) {
                for before in ["restart", "read restart", "read store restart", "store restart read"] {
                    let mut world = World::begun(manner);
                    for (at, step) in steps.iter().enumerate() {
                        if kill == Some(at) {
                            run(&mut world, before);
                        }
                        run(&mut world, step);
                    }
                    if kill == Some(steps.len()) {
                        run(&mut world, before);
                    }
                    world.read();
                    assert_eq!(world.lines(), world.written, "{manner:?}: {story}, {before:?} at {kill:?}");
                    assert_eq!(world.lost, [], "{manner:?}: {story}, {before:?} at {kill:?}");
                    assert!(world.caught_up);
                    let cut: Vec<_> = world.got.iter().filter(|(_, cut)| *cut).map(|(line, _)| line.as_str()).collect();
                    assert!(cut.iter().all(|line| *line == "unended"), "{cut:?}");
                }
            }
        }
    }
}

#[test]
fn every_line_is_read_once_in_any_order_of_steps() {
    for seed in 0..300 {
        let mut dice = fastrand::Rng::with_seed(seed);
        let mut world = World::begun(MANNERS[usize::try_from(seed % 3).unwrap()]);
        let mut story = Vec::new();
        for _ in 0..40 {
            let step = ["write", "write", "write", "read", "read", "store", "restart", "rotate", "compress"];
            let step = step[dice.usize(..step.len())];
            story.push(step);
            run(&mut world, step);
        }
        world.read();
        assert_eq!(world.lines(), world.written, "{seed}: {:?} {story:?}", world.manner);
        assert_eq!(world.lost, [], "{seed}: {:?} {story:?}", world.manner);
    }
}

/// A part that is deleted before it was read is reported, with a time before it, and everything else is read once.
#[test]
fn a_part_that_is_deleted_is_lost_and_said_to_be() {
    for manner in MANNERS {
        // With an open file nothing is lost where it was renamed. A copy that is gone may have had more.
        let copies = usize::from(manner == Manner::CopyTruncate);
        for (story, missing, lost) in [
            ("write rotate delete write restart", 1..4, 1),
            ("write rotate write rotate delete write restart", 1..4, 1),
            ("write rotate compress write rotate compress delete write restart", 1..4, 1),
            ("write rotate delete write rotate compress write restart", 1..4, 1),
            ("write rotate write rotate delete delete write restart", 1..7, 1),
            ("write read store rotate delete write restart", 0..0, 1),
            ("write read rotate delete write", 0..0, copies),
            ("write read rotate write rotate delete write", 0..0, copies),
        ] {
            let mut world = World::begun(manner);
            let first = world.stored.0.clone().unwrap().complete_at;
            run(&mut world, story);
            world.read();
            let expected: Vec<&String> = world
                .written
                .iter()
                .enumerate()
                .filter(|(at, _)| !missing.contains(at))
                .map(|(_, line)| line)
                .collect();
            assert_eq!(world.lines(), expected, "{manner:?}: {story}");
            assert_eq!(world.lost.len(), lost, "{manner:?}: {story}");
            let stored = world.stored.0.clone().unwrap().complete_at;
            let since = world.lost.iter().map(|lost| lost.since);
            assert!(
                since.clone().all(|since| since == stored || since >= first && lost == copies),
                "{manner:?}: {story}"
            );
        }
    }
}

/// A log of which nothing was read is told from others by times alone: one whose name is older than its last change is none before it.
#[test]
fn a_file_of_which_nothing_was_read_is_found_though_its_name_is_older() {
    let mut world = World::new(Manner::Lumberjack);
    world.append("");
    run(&mut world, "read store write");
    fs::rename(&world.path, world.dir.path().join("audit-2026-11-27T23-00-00.000.log")).unwrap();
    world.append("");
    run(&mut world, "write restart read");
    assert_eq!(world.lines(), world.written);
}

#[test]
fn an_inode_that_is_used_again_is_another_file() {
    let mut world = World::begun(Manner::Lumberjack);
    run(&mut world, "write read store gone");
    world.written.clear();
    world.got.clear();
    world.append("{\"other\":\"file\"}\n");
    world.written.push("{\"other\":\"file\"}".to_owned());
    world.write(20);
    let position = world.stored.0.as_mut().unwrap();
    position.inode = fs::metadata(&world.path).unwrap().ino();
    world.stored.1 = 0;
    world.restart();
    world.read();
    assert_eq!(world.lines(), world.written);
    assert_eq!(world.lost.len(), 1, "the rest of the first file is gone");
}

#[test]
fn a_compressed_file_that_is_cut_is_lost_from_there_on() {
    let mut world = World::begun(Manner::Lumberjack);
    world.follower = Follower::new(Path::new("/nonexistent/audit.log"), None);
    for _ in 0..500 {
        let line = format!("{{\"auditID\":\"{:x}\"}}", fastrand::u128(..));
        world.append(&format!("{line}\n"));
        world.written.push(line);
    }
    run(&mut world, "rotate compress write");
    let path = world.rotated().pop().unwrap();
    let length = fs::metadata(&path).unwrap().len();
    File::options().write(true).open(&path).unwrap().set_len(length / 2).unwrap();
    world.restart();
    world.read();
    assert_eq!(world.lost.len(), 1);
    let lines = world.lines();
    assert!(lines.len() > 100 && lines.ends_with(&[world.written.last().unwrap()]), "{}", lines.len());
}

#[test]
fn long_lines_are_cut_and_a_restart_within_them_goes_on_behind_them() {
    let mut world = World::begun(Manner::Lumberjack);
    let long = "x".repeat(crate::audit_log::lines::LINE_BYTES * 3);
    world.append(&long);
    world.read();
    assert_eq!(world.got.last().map(|(line, cut)| (line.len(), *cut)), Some((long.len() / 3, true)));
    world.store();
    world.restart();
    world.append("still of it\n");
    world.write(1);
    world.read();
    assert_eq!((world.got.len(), world.lines().last()), (3, world.written.last().map(String::as_str).as_ref()));
}

#[test]
fn a_pipe_brings_lines() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.log");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let mut position = None;
    for round in 0..2 {
        // A position of a pipe says nothing.
        let mut follower = Follower::new(&path, position.take());
        let mut got = Vec::new();
        assert!(matches!(follower.step(), Step::Batch(Batch { caught_up: true, .. })));
        for text in ["a\nb", "c\n", "\n"] {
            let mut writer = OpenOptions::new().write(true).open(&path).unwrap();
            writer.write_all(text.as_bytes()).unwrap();
            drop(writer);
            while let Step::Batch(batch) = follower.step() {
                got.extend(batch.lines.into_iter().map(|line| line.bytes));
                position = Some(batch.position);
            }
        }
        assert_eq!(got, ["a", "bc"], "round {round}");
    }
}

#[test]
fn troubles_say_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let directory = dir.path().join("directory");
    fs::create_dir(&directory).unwrap();
    fs::write(dir.path().join("file"), "").unwrap();
    for (path, says) in [
        (directory.clone(), "is a directory; name the file of the API server's --audit-log-path"),
        (dir.path().join("file/audit.log"), "cannot read the audit log"),
        (dir.path().join("absent/audit.log"), "does not exist yet; decklog reads it once the API server writes it"),
    ] {
        let text = match Follower::new(&path, None).step() {
            Step::Failed(text) | Step::Waits(Some(text)) => text,
            step @ (Step::Batch(_) | Step::Waits(None)) => panic!("{step:?}"),
        };
        assert!(text.contains(says) && text.contains(path.to_str().unwrap()), "{text}");
    }
    // One that was read before is no file that is still to come.
    let read = dir.path().join("read.log");
    for (contents, says) in
        [("", "does not exist yet"), ("a\n", "is gone, and so is what decklog had not read of it, since 20")]
    {
        fs::write(&read, contents).unwrap();
        let Step::Batch(batch) = Follower::new(&read, None).step() else { panic!("{contents:?}") };
        fs::remove_file(&read).unwrap();
        let Step::Waits(Some(text)) = Follower::new(&read, Some(batch.position)).step() else { panic!("{contents:?}") };
        assert!(text.contains(says), "{text}");
    }
    let denied = follower::sentence(&directory, &std::io::ErrorKind::PermissionDenied.into());
    assert!(denied.contains("permission denied; let decklog's user read it"), "{denied}");
    assert!(look(&dir.path().join("absent/audit.log")).unwrap_err().contains("does not exist; make it"));
    assert!(look(&directory).unwrap_err().contains("is a directory"));
    assert_eq!(look(&dir.path().join("audit.log")), Ok(()), "it may come later");
}

#[tokio::test(start_paused = true)]
async fn a_file_may_come_later_and_trouble_is_said_until_it_does() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("logs/audit.log");
    let mut tail = Tail::open(&path, None);
    let mut trouble = tail.trouble();
    let (batch, ()) = tokio::join!(tail.next(), async {
        trouble.changed().await.unwrap();
        assert!(trouble.borrow().as_deref().unwrap().contains("does not exist yet"));
        fs::create_dir(path.parent().unwrap()).unwrap();
        fs::write(&path, "a\n").unwrap();
    });
    assert_eq!((batch.lines.len(), batch.caught_up, batch.lost), (1, true, None));
    assert_eq!(*tail.trouble().borrow(), None);
}

#[tokio::test(start_paused = true)]
async fn a_future_that_is_dropped_loses_nothing() {
    let _simulation = runtime::simulate(1, "2026-11-28T00:00:00Z".parse().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.log");
    for polls in 0..4 {
        fs::write(&path, format!("{polls}\n")).unwrap();
        let mut tail = Tail::open(&path, None);
        {
            let mut next = pin!(tail.next());
            for _ in 0..polls {
                if let Some(batch) = next.as_mut().now_or_never() {
                    assert_eq!((polls, batch.lines.len()), (3, 1), "it takes three polls");
                }
            }
        }
        if polls < 3 {
            assert_eq!(tail.next().await.lines[0].bytes, polls.to_string(), "dropped after {polls} polls");
        }
    }
}
