//! Tessera's checker of transparency logs, over states of evidence that a run left: all of them in one process.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use decklog::evidence::archive::{Signed, read_signed};
use decklog::evidence::key::{SigningKey, VerifierKey};

/// Files of a directory, by their paths in it.
pub type Files = Vec<(PathBuf, Vec<u8>)>;

/// The key that tests sign with, and its public half.
///
/// # Panics
/// Never: a key can be made.
#[must_use]
pub fn key() -> (SigningKey, VerifierKey) {
    let key = SigningKey::generate("audit.example/decklog").expect("a key");
    let verifier = key.verifier().clone();
    (key, verifier)
}

/// Lets the checker read every tree of a directory, and prove that the smaller of two of one origin is the beginning of the larger. Returns
/// the origins and sizes.
///
/// # Errors
/// What the checker says.
///
/// # Panics
/// If there is no checker.
pub fn fsck(dir: &Path, key: &str) -> Result<String, String> {
    let judges = PathBuf::from(std::env::var_os("DECKLOG_TEST_JUDGES").expect("tests/run sets DECKLOG_TEST_JUDGES"));
    let judged = Command::new(judges.join("judges")).arg("fsck").arg(dir).arg(key).output().expect("the judges run");
    if judged.status.success() {
        Ok(String::from_utf8_lossy(&judged.stdout).into_owned())
    } else {
        Err(String::from_utf8_lossy(&judged.stderr).into_owned())
    }
}

/// Trees as they were at their checkpoints, collected to be judged at once.
#[derive(Debug)]
pub struct States {
    key: VerifierKey,
    dir: tempfile::TempDir,
    /// What each one is of, for people; its place is the name of its directory.
    names: Mutex<Vec<String>>,
}

impl States {
    /// Collects states that this key has signed.
    ///
    /// # Panics
    /// If no directory can be made.
    #[must_use]
    pub fn new(key: VerifierKey) -> Self {
        let memory = Path::new("/dev/shm");
        let dir = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        Self { key, dir: dir.expect("a directory"), names: Mutex::default() }
    }

    /// Adds a tree: the files in its directory. Returns its checkpoint.
    ///
    /// # Errors
    /// Where it has no checkpoint that can be read.
    ///
    /// # Panics
    /// If it cannot be written down.
    pub fn add<'a>(&self, name: &str, files: impl IntoIterator<Item = (&'a Path, &'a [u8])>) -> Result<Signed, String> {
        let place = {
            let mut names = self.names.lock().expect("no thread panics with it");
            names.push(name.to_owned());
            self.dir.path().join((names.len() - 1).to_string())
        };
        let mut checkpoint = Err("there is no checkpoint".to_owned());
        for (path, bytes) in files {
            if path == Path::new("checkpoint") {
                checkpoint = read_signed(bytes, std::slice::from_ref(&self.key));
            }
            let path = place.join(path);
            fs::create_dir_all(path.parent().expect("it is in the directory")).expect("room");
            fs::write(path, bytes).expect("room");
        }
        checkpoint.map_err(|why| format!("the checkpoint: {why}"))
    }

    /// Returns how many there are.
    ///
    /// # Panics
    /// If a thread has panicked with them.
    #[must_use]
    pub fn count(&self) -> usize {
        self.names.lock().expect("no thread panics with it").len()
    }

    /// Judges them all, and says of each that does not hold which one it is.
    ///
    /// # Panics
    /// If there is none, or no checker.
    #[must_use]
    pub fn judge(self) -> Vec<String> {
        let names = self.names.into_inner().expect("no thread panics with it");
        assert!(!names.is_empty(), "there is nothing to judge");
        let Err(wrong) = fsck(self.dir.path(), &self.key.to_string()) else { return Vec::new() };
        let top = format!("{}/", self.dir.path().display());
        let named = |line: &str| {
            let mut parts = line.split(&top);
            let mut text = parts.next().unwrap_or_default().to_owned();
            for part in parts {
                let digits = part.len() - part.trim_start_matches(|digit: char| digit.is_ascii_digit()).len();
                let name = part[..digits].parse::<usize>().ok().and_then(|number| names.get(number));
                text.push_str(&format!("[{}]{}", name.map_or("?", |name| name), &part[digits..]));
            }
            text
        };
        // Its log has a line of each tree, which begins with a letter and the date.
        let is_log = |line: &&str| line.as_bytes().get(1..5).is_some_and(|date| date.iter().all(u8::is_ascii_digit));
        wrong.lines().filter(|line| !is_log(line)).map(named).collect()
    }
}

/// Returns the trees below a directory: their names and their files.
///
/// # Panics
/// If it cannot be read.
#[must_use]
pub fn trees(dir: &Path) -> Vec<(String, Files)> {
    fn walk(at: &Path, top: &Path, files: &mut Files) {
        for entry in fs::read_dir(at).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                walk(&path, top, files);
            } else {
                let name = path.strip_prefix(top).expect("it is below").to_owned();
                files.push((name, fs::read(&path).expect("a file")));
            }
        }
    }
    let Ok(found) = fs::read_dir(dir) else { return Vec::new() };
    found
        .map(|entry| {
            let (path, mut files) = (entry.expect("an entry").path(), Files::new());
            walk(&path, &path, &mut files);
            (path.file_name().unwrap_or_default().to_string_lossy().into_owned(), files)
        })
        .collect()
}
