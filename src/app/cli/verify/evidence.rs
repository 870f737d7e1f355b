//! Compares a copy with evidence: a directory of signed trees, or the proof of one entry.

use std::fs;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::Serialize;

use super::{Exit, Failure, VerifyArgs};
use crate::core::merkle::Hash;
use crate::core::model::Why;
use crate::core::wire::{Entry, Payload};
use crate::evidence::archive::{Archive, Found, Signed, Stretch, read_signed};
use crate::evidence::checkpoint::Origin;
use crate::evidence::key::VerifierKey;
use crate::evidence::proof::Proof;

/// Results of the comparison.
#[derive(Debug, Default, Serialize)]
pub(super) struct Authenticated {
    /// Lines that are in a signed tree.
    pub(super) proved: u64,
    /// Lines behind the end of the last checkpoint.
    pub(super) beyond: u64,
    /// The first seq behind it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) first_beyond: Option<u64>,
    /// Lines of which no tree is there.
    pub(super) unknown: u64,
    /// The first seq of those.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) first_unknown: Option<u64>,
    /// GAPs that a sink got in place of entries which were truncated before it took them: no tree has those.
    pub(super) stand_ins: u64,
    /// The first seq of those.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) first_stand_in: Option<u64>,
    /// Signed entries before the first line of the copy.
    pub(super) before: Vec<Lacking>,
    /// Signed entries behind the last line of the copy.
    pub(super) after: Vec<Lacking>,
    /// Checkpoints that the lines were compared with.
    pub(super) checkpoints: Vec<CheckpointFound>,
    /// Trees that a later one follows and that are not in the directory.
    pub(super) missing: Vec<String>,
    /// Directories with tiles and no checkpoint.
    pub(super) unsigned: Vec<String>,
    /// Trees that several follow.
    pub(super) forks: Vec<Fork>,
}

/// A tree that several follow.
#[derive(Debug, Serialize)]
pub(super) struct Fork {
    pub(super) origin: String,
    pub(super) followed_by: Vec<String>,
}

/// Signed entries that a copy does not have.
#[derive(Debug, Serialize)]
pub(super) struct Lacking {
    pub(super) epoch: String,
    pub(super) first: u64,
    pub(super) last: u64,
}

impl From<Stretch> for Lacking {
    fn from(stretch: Stretch) -> Self {
        Self { epoch: stretch.origin.epoch, first: stretch.first, last: stretch.last }
    }
}

/// A checkpoint.
#[derive(Debug, Serialize)]
pub(super) struct CheckpointFound {
    pub(super) origin: String,
    pub(super) size: u64,
    pub(super) first: u64,
    /// The last entry; none if it covers none.
    pub(super) last: Option<u64>,
    /// Time at which it was signed.
    pub(super) time: Option<String>,
    /// Witnesses, of those that were asked for, that have cosigned it.
    pub(super) witnesses: Vec<Cosigned>,
}

/// A cosignature.
#[derive(Debug, Serialize)]
pub(super) struct Cosigned {
    /// Name of the witness.
    pub(super) name: String,
    /// Time at which it says that it has seen the checkpoint.
    pub(super) time: String,
}

/// A time in seconds since 1970, for people; none where no calendar has it.
fn shown(time: u64) -> Option<String> {
    Some(Timestamp::from_second(i64::try_from(time).ok()?).ok()?.to_string())
}

impl CheckpointFound {
    fn of(signed: &Signed, witnesses: &[VerifierKey]) -> Self {
        let checkpoint = &signed.checkpoint;
        let cosigned =
            |key: &VerifierKey| Some(Cosigned { name: key.name.clone(), time: shown(signed.seen_by(key)?)? });
        Self {
            witnesses: witnesses.iter().filter_map(cosigned).collect(),
            origin: checkpoint.origin.to_string(),
            size: checkpoint.size,
            first: checkpoint.origin.first,
            last: checkpoint.last(),
            time: signed.time.and_then(shown),
        }
    }
}

/// What lines are compared with.
enum Against {
    Archive(Archive),
    Proof(Proof),
}

/// Compares the lines of a copy with evidence.
pub(super) struct Authenticator {
    against: Against,
    keys: Vec<VerifierKey>,
    witnesses: Vec<VerifierKey>,
    found: Authenticated,
    problems: Vec<String>,
}

impl Authenticator {
    /// Reads the evidence that the arguments name; none where they name none.
    pub(super) fn new(args: &VerifyArgs) -> Result<Option<Self>, Failure> {
        if args.evidence.is_none() && args.proof.is_none() {
            return Ok(None);
        }
        let read_all = |flag, texts: &[String]| texts.iter().map(|text| key(flag, text)).collect::<Result<Vec<_>, _>>();
        let keys = read_all("--key", &args.key)?;
        let witnesses: Vec<VerifierKey> =
            read_all("--witness", &args.witness)?.iter().map(VerifierKey::timed).collect();
        if let Some(own) = witnesses.iter().find(|witness| keys.iter().any(|key| key.timed() == **witness)) {
            return Err(Failure::usage(format!(
                "--witness {} is the key of the log as well: a log does not witness itself",
                own.name
            )));
        }
        let (mut found, mut problems) = (Authenticated::default(), Vec::new());
        let against = match (&args.evidence, &args.proof) {
            (Some(dir), _) => {
                let failed = |error| Failure::io(format!("cannot read the evidence in {}", dir.display()), &error);
                let mut archive = Archive::read(dir, &keys).map_err(failed)?;
                if archive.checkpoints().next().is_none() && archive.problems.is_empty() && archive.unsigned.is_empty()
                {
                    return Err(Failure::usage(format!(
                        "{} has no evidence: give the directory that [evidence] dir names, or a copy of it",
                        dir.display()
                    )));
                }
                let order = archive.check_order(&keys).map_err(failed)?;
                found.missing = order.missing.iter().map(ToString::to_string).collect();
                let fork = |(origin, after): &(Origin, Vec<Origin>)| Fork {
                    origin: origin.to_string(),
                    followed_by: after.iter().map(ToString::to_string).collect(),
                };
                found.forks = order.forks.iter().map(fork).collect();
                found.unsigned = archive.unsigned.iter().map(|path| path.display().to_string()).collect();
                for path in &args.checkpoint {
                    match read_signed(&read(path)?, &keys) {
                        Ok(kept) => archive.check_kept(&kept.checkpoint).map_err(failed)?,
                        Err(why) => problems.push(format!("{}: {why}", path.display())),
                    }
                }
                for witness in &witnesses {
                    for origin in archive.unwitnessed(witness).map_err(failed)? {
                        problems.push(unwitnessed(&origin.to_string(), witness));
                    }
                }
                found.checkpoints =
                    archive.checkpoints().map(|signed| CheckpointFound::of(signed, &witnesses)).collect();
                problems.append(&mut archive.problems);
                Against::Archive(archive)
            }
            (None, Some(path)) => {
                let text = String::from_utf8_lossy(&read(path)?).into_owned();
                let proof = Proof::parse(&text);
                let failed =
                    |why| Failure::new(Exit::No, format!("{} is no proof, or was altered: {why}", path.display()));
                Against::Proof(proof.map_err(failed)?)
            }
            (None, None) => return Ok(None),
        };
        Ok(Some(Self { against, keys, witnesses, found, problems }))
    }

    /// Compares the line of an entry, without its line break, by its digest. Returns what is wrong with it.
    pub(super) fn check(&mut self, entry: &Entry<'_>, line: &[u8], digest: &Hash) -> Result<Option<String>, Failure> {
        let (epoch, seq) = (&*entry.epoch, entry.seq);
        match &mut self.against {
            Against::Archive(archive) => {
                let failed = |error| Failure::io("cannot read the evidence", &error);
                match archive.check_line(epoch, seq, digest).map_err(failed)? {
                    Found::Proved => self.found.proved += 1,
                    Found::Beyond => {
                        self.found.beyond += 1;
                        self.found.first_beyond.get_or_insert(seq);
                    }
                    Found::Unknown => {
                        self.found.unknown += 1;
                        self.found.first_unknown.get_or_insert(seq);
                    }
                    Found::Altered if stands_for_truncated(entry) => {
                        self.found.stand_ins += 1;
                        self.found.first_stand_in.get_or_insert(seq);
                    }
                    Found::Altered => return Ok(Some(altered(entry))),
                }
                Ok(None)
            }
            Against::Proof(proof) => match proof.check(epoch, seq, line, &self.keys) {
                Ok(signed) => {
                    self.found.proved += 1;
                    self.found.checkpoints = vec![CheckpointFound::of(&signed, &self.witnesses)];
                    let missing = self.witnesses.iter().find(|witness| signed.seen_by(witness).is_none());
                    Ok(missing.map(|witness| unwitnessed(&signed.checkpoint.origin.to_string(), witness)))
                }
                Err(why) => Ok(Some(why)),
            },
        }
    }

    /// Returns the results, and what is wrong with the evidence itself.
    pub(super) fn finish(mut self) -> (Authenticated, Vec<String>) {
        if let Against::Archive(archive) = &self.against {
            let [before, after] = archive.around();
            self.found.before = before.into_iter().map(Lacking::from).collect();
            self.found.after = after.into_iter().map(Lacking::from).collect();
        }
        (self.found, self.problems)
    }
}

/// Problem of a tree that a witness has not cosigned.
fn unwitnessed(origin: &str, witness: &VerifierKey) -> String {
    format!(
        "the checkpoint of {origin} has no good cosignature of the witness {}: it had not answered, or has seen another history; take a newer \
         copy of the evidence, and ask those who run the witness if that has none either",
        witness.name
    )
}

/// Reports whether an entry is the GAP that a sink gets for entries which were truncated before it took them: it has no version before it.
pub(super) fn stands_for_truncated(entry: &Entry<'_>) -> bool {
    entry.gap().is_some_and(|gap| gap.why == Why::Expired.as_str() && gap.from.is_none())
}

/// Problem of a line that is not the one in the tree.
fn altered(entry: &Entry<'_>) -> String {
    let seq = entry.seq;
    if Payload::of(entry).is_none_or(|payload| payload == Payload::Full) {
        format!("entry {seq} is not the line that was logged")
    } else {
        format!("entry {seq} cannot be proved: its sink delivers less than the whole line (`payload`)")
    }
}

/// Reads a key, or the file with it.
fn key(flag: &str, text: &str) -> Result<VerifierKey, Failure> {
    let parsed = VerifierKey::parse(text);
    match parsed {
        Ok(key) => Ok(key),
        Err(why) => match fs::read_to_string(text) {
            Ok(content) => VerifierKey::parse(&content).map_err(|why| Failure::usage(format!("{flag} {text}: {why}"))),
            Err(error) if Path::new(text).exists() => Err(Failure::io(format!("cannot read the key {text}"), &error)),
            Err(_) => Err(Failure::usage(format!(
                "{flag} {text}: {why}; and there is no file of this name: give what `decklog evidence key` prints, or a file with it"
            ))),
        },
    }
}

fn read(path: &PathBuf) -> Result<Vec<u8>, Failure> {
    fs::read(path).map_err(|error| Failure::io(format!("cannot read {}", path.display()), &error))
}
