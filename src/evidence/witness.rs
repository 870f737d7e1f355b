//! Witness of other logs (c2sp.org/tlog-witness): it cosigns a checkpoint that is a later state of the last one which it cosigned.
//!
//! # Decision: a witness answers after its disk, and not where it cannot read what it knew
//!
//! Context: A witness that forgets a checkpoint cosigns another history of the same log, and then its cosignatures prove nothing.
//! Decision: What is cosigned is in a file of the state directory, by `fsync` and `rename`, before it is answered; checkpoints are decided one
//! at a time. Where the file cannot be read, nothing is cosigned until somebody restores or removes it.
//! Cost: A write for each checkpoint of each log, about one a minute.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use jiff::Timestamp;

use super::checkpoint::{Checkpoint, Origin};
use super::key::{SigningKey, VerifierKey};
use super::note::Note;
use super::settings::Settings;
use crate::core::merkle::{self, Hash};
use crate::core::os::{self, OpenOptionsExt as _};
use crate::core::runtime;

/// Bytes of a request at most: a note with its proof.
pub const REQUEST_LEN_MAX: usize = 80 << 10;
/// Content type of an answer that is the size of the tree which was cosigned last.
pub const SIZE: &str = "text/x.tlog.size";
/// Hashes of a proof at most.
const PROOF_LEN_MAX: usize = 63;
/// Bytes of an origin at most.
const ORIGIN_LEN_MAX: usize = 1024;
/// Trees that are remembered of one log at most: a log begins one with each epoch.
const TREES_MAX: usize = 1000;
/// Name of the file in the state directory.
const FILE: &str = "witnessed";
/// First line of the file.
const HEADER: &str = "decklog-witnessed/1";

/// Request to cosign a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Size of the tree that the witness cosigned last, as far as the client knows.
    pub old: u64,
    /// Proof that the tree of that size is the beginning of the one of the checkpoint.
    pub proof: Vec<Hash>,
    /// The signed checkpoint.
    pub note: String,
}

impl Request {
    /// Renders it as it is sent.
    #[must_use]
    pub fn render(&self) -> String {
        let proof: String = self.proof.iter().map(|hash| format!("{}\n", BASE64.encode(hash))).collect();
        format!("old {}\n{proof}\n{}", self.old, self.note)
    }

    /// Reads a request.
    ///
    /// # Errors
    /// A sentence that says how it is none.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(bytes).map_err(|_| "it is not UTF-8")?;
        let (head, note) = text.split_once("\n\n").ok_or("it has no empty line before the checkpoint")?;
        let mut lines = head.split('\n');
        let old = lines.next().and_then(|line| line.strip_prefix("old "));
        let old = old.and_then(decimal).ok_or("its first line is not the old size, as in `old 7`")?;
        let hash = |line: &str| BASE64.decode(line).ok().and_then(|bytes| Hash::try_from(bytes).ok());
        let proof: Option<Vec<Hash>> = lines.map(hash).collect();
        let proof = proof.ok_or("a line of its proof is not a hash in base64")?;
        if proof.len() > PROOF_LEN_MAX {
            return Err(format!("its proof has more than {PROOF_LEN_MAX} hashes"));
        }
        Ok(Self { old, proof, note: note.to_owned() })
    }
}

/// Reads a number that is written as numbers are.
pub(super) fn decimal(text: &str) -> Option<u64> {
    text.parse().ok().filter(|number: &u64| number.to_string() == text)
}

/// Reason why a checkpoint is not cosigned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The request is none.
    #[error("this is no request of c2sp.org/tlog-witness: {0}")]
    Malformed(String),
    /// The log is not configured.
    #[error("this witness does not know the log of this origin")]
    UnknownLog,
    /// No key of the log has signed it.
    #[error("the checkpoint is not signed by the key of its log")]
    Unsigned,
    /// Another size, or another tree of the same size, was cosigned last.
    #[error("{0}")]
    Conflict(u64),
    /// It is another history.
    #[error("the proof does not show that the tree which was cosigned last is the beginning of this one")]
    Inconsistent,
    /// The log has too many trees.
    #[error("this witness remembers {TREES_MAX} trees of this log, and no more")]
    Full,
    /// What was cosigned cannot be read or written.
    #[error("this witness cannot remember what it has cosigned: {0}")]
    Forgetful(String),
}

impl Refusal {
    /// Its HTTP status.
    #[must_use]
    pub const fn status(&self) -> u16 {
        match self {
            Self::Malformed(_) => 400,
            Self::Unsigned => 403,
            Self::UnknownLog => 404,
            Self::Conflict(_) => 409,
            Self::Inconsistent => 422,
            Self::Forgetful(_) => 500,
            Self::Full => 507,
        }
    }
}

/// Checkpoints that were cosigned last.
pub type Known = BTreeMap<Origin, Checkpoint>;

/// Decides whether a checkpoint is cosigned, by what was cosigned last. Returns the text to sign, and what it says.
///
/// # Errors
/// The reason why it is not.
pub fn decide(known: &Known, logs: &[VerifierKey], request: &[u8]) -> Result<(String, Checkpoint), Refusal> {
    let Request { old, proof, note } = Request::parse(request).map_err(Refusal::Malformed)?;
    let note = Note::parse(note.as_bytes()).map_err(Refusal::Malformed)?;
    let origin = note.text.split('\n').next().unwrap_or_default();
    if origin.len() > ORIGIN_LEN_MAX {
        return Err(Refusal::Malformed(format!("its origin has more than {ORIGIN_LEN_MAX} bytes")));
    }
    let origin = Origin::parse(origin).ok_or(Refusal::UnknownLog)?;
    let mut keys = logs.iter().filter(|key| key.name == origin.log).peekable();
    if keys.peek().is_none() {
        return Err(Refusal::UnknownLog);
    }
    if !keys.any(|key| note.is_signed_by(key)) {
        return Err(Refusal::Unsigned);
    }
    let new = Checkpoint::parse(&note.text).map_err(Refusal::Malformed)?;
    if old > new.size {
        return Err(Refusal::Malformed("its old size is larger than that of its checkpoint".to_owned()));
    }
    let (size, root) = known.get(&origin).map_or_else(|| (0, merkle::root(&[])), |known| (known.size, known.root));
    if old != size || (new.size == size && new.root != root) {
        return Err(Refusal::Conflict(size));
    }
    if !merkle::is_consistent((size, &root), (new.size, &new.root), &proof) {
        return Err(Refusal::Inconsistent);
    }
    let is_new = !known.contains_key(&origin);
    if is_new && known.keys().filter(|other| other.log == origin.log).count() >= TREES_MAX {
        return Err(Refusal::Full);
    }
    Ok((note.text, new))
}

/// Cosigns checkpoints of other logs.
#[derive(Debug)]
pub struct Witness {
    logs: Vec<VerifierKey>,
    keys: Vec<SigningKey>,
    path: PathBuf,
    /// What was cosigned, or the reason why that is not known.
    known: Mutex<Result<Known, String>>,
}

impl Witness {
    /// Opens the witness of a state directory; none where no log is witnessed.
    ///
    /// # Errors
    /// Where the key cannot be read. Where what was cosigned cannot be read, each request is refused instead: the log goes on.
    pub fn open(settings: &Settings, state: &Path) -> Result<Option<Self>, String> {
        if settings.witnessed.is_empty() {
            return Ok(None);
        }
        let path = state.join(FILE);
        let known = read(&path).map_err(|why| {
            let why = format!(
                "{} {why}; restore the newest copy of it. Without the file this witness knows no log, and cosigns what it is given first",
                path.display()
            );
            tracing::error!("no checkpoint of another log is cosigned: {why}");
            why
        });
        let logs = settings.witnessed.iter().map(|log| VerifierKey::clone(&log.key)).collect();
        Ok(Some(Self { logs, keys: settings.keys()?, path, known: Mutex::new(known) }))
    }

    /// Cosigns the checkpoint of a request, once that is on the disk. Returns lines of signatures. It blocks.
    ///
    /// # Errors
    /// The reason why it does not.
    pub fn add(&self, request: &[u8], now: Timestamp) -> Result<String, Refusal> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let known = known.as_mut().map_err(|why| Refusal::Forgetful(why.clone()))?;
        let (text, checkpoint) = decide(known, &self.logs, request)?;
        let before = known.insert(checkpoint.origin.clone(), checkpoint.clone());
        if before.as_ref() != Some(&checkpoint)
            && let Err(error) = write(&self.path, known)
        {
            // Nothing was answered, so both are true: the one before, and the one that may be on the disk.
            match before {
                Some(before) => known.insert(checkpoint.origin, before),
                None => known.remove(&checkpoint.origin),
            };
            return Err(Refusal::Forgetful(format!("{} cannot be written: {error}", self.path.display())));
        }
        let time = u64::try_from(now.as_second()).unwrap_or(0);
        let signatures = self.keys.iter().map(|key| key.cosign(text.as_bytes(), time)).collect();
        let note = Note { text, signatures };
        Ok(note.render()[note.text.len() + 1..].to_owned())
    }

    /// Cosigns on a thread that may block.
    ///
    /// # Errors
    /// As [`Witness::add`].
    pub async fn add_checkpoint(
        self: Arc<Self>,
        request: impl AsRef<[u8]> + Send + 'static,
    ) -> Result<String, Refusal> {
        let added = runtime::blocking(move || self.add(request.as_ref(), runtime::now())).await;
        if let Err(refusal @ (Refusal::Conflict(_) | Refusal::Inconsistent | Refusal::Forgetful(_))) = &added {
            tracing::info!("a checkpoint of another log is not cosigned: {refusal}");
        }
        added
    }
}

fn read(path: &Path) -> Result<Known, String> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Known::new()),
        Err(error) => return Err(format!("cannot be read: {error}")),
    };
    let damaged = |why: String| format!("is damaged, {why}");
    let mut parts = text.split("\n\n");
    if parts.next() != Some(HEADER) || !text.ends_with("\n\n") {
        return Err(damaged(format!("it does not begin with {HEADER}, or is cut off")));
    }
    let checkpoints = parts.filter(|part| !part.is_empty()).map(Checkpoint::parse);
    checkpoints.map(|read| read.map(|it| (it.origin.clone(), it)).map_err(damaged)).collect()
}

fn write(path: &Path, known: &Known) -> io::Result<()> {
    let checkpoints: String = known.values().map(|checkpoint| format!("{checkpoint}\n")).collect();
    let made = path.with_extension("new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&made)?;
    file.write_all(format!("{HEADER}\n\n{checkpoints}").as_bytes())?;
    file.sync_all()?;
    fs::rename(&made, path)?;
    path.parent().map_or(Ok(()), os::sync_names)
}
