//! The way from one file to the next: where to begin, what was rotated meanwhile, and what is lost.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::opened::{Candidate, Opened, Stop};
use super::position::{FilePosition, Identity};
use super::siblings::{self, Sibling};
use crate::audit_log::lines::Line;
use crate::core::runtime;

/// Lines of a batch at most.
pub(super) const BATCH_LINES: usize = 1000;
/// Bytes that a batch passes at most, beyond one line.
const BATCH_BYTES: u64 = 4 << 20;

/// Lines that were read together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The lines, in the order of the file. None where only the rest of this has changed.
    pub lines: Vec<Line>,
    /// The position behind them. A batch that is dropped without storing it is read again after a restart; not that of a pipe.
    pub position: FilePosition,
    /// Lines before these that can no longer be read.
    pub lost: Option<Lost>,
    /// True if these are the last lines that are there now.
    pub caught_up: bool,
}

/// A part of the log that was deleted, or cannot be decompressed, before it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Time since which lines may be missing, up to the next line.
    pub since: Timestamp,
}

/// Result of a look at the file.
#[derive(Debug)]
pub(super) enum Step {
    Batch(Batch),
    /// There is nothing at the moment; with a sentence, if that is because there is no file.
    Waits(Option<String>),
    /// The file cannot be read: one sentence with the remedy.
    Failed(String),
}

/// Reason why a step comes to no batch.
#[derive(Debug)]
enum Trouble {
    /// The directory changed during the look at it.
    Changed,
    Failed(PathBuf, io::Error),
}

/// Reader of a file that grows and is rotated. Each step is bounded.
#[derive(Debug)]
pub(super) struct Follower {
    path: PathBuf,
    /// The position from which to go on, while nothing is open.
    at: Option<FilePosition>,
    opened: Option<Opened>,
    /// The open file was found rotated and at its end. One more look finds what was written until its writer changed over.
    ended: bool,
    lost: Option<Lost>,
    /// The end was reached, and a batch said so.
    caught_up: bool,
    complete_at: Timestamp,
}

fn failed(path: &Path) -> impl Fn(io::Error) -> Trouble {
    |error| Trouble::Failed(path.to_owned(), error)
}

impl Follower {
    pub(super) fn new(path: &Path, at: Option<FilePosition>) -> Self {
        let complete_at = at.as_ref().map_or_else(runtime::now, |at| at.complete_at);
        Self { path: path.to_owned(), at, opened: None, ended: false, lost: None, caught_up: false, complete_at }
    }

    /// Reads a batch, or finds out why there is none.
    pub(super) fn step(&mut self) -> Step {
        match self.advance() {
            Ok(step) => step,
            Err(Trouble::Changed) => Step::Waits(None),
            Err(Trouble::Failed(path, error)) => Step::Failed(sentence(&path, &error)),
        }
    }

    fn advance(&mut self) -> Result<Step, Trouble> {
        loop {
            let Some(opened) = &mut self.opened else {
                if self.find()? {
                    continue;
                }
                return Ok(Step::Waits(Some(absent(&self.path, self.at.as_ref().filter(|at| at.head.length > 0)))));
            };
            let began = runtime::now();
            // Looked at before the read: what is read afterwards is all that a rotated file has.
            let is_rotated = identity_of(&self.path)?.is_some_and(|current| current != opened.identity());
            let before = opened.position(self.complete_at);
            let mut lines = Vec::new();
            match opened.read(BATCH_LINES, BATCH_BYTES, &mut lines) {
                Ok(Stop::Truncated) => {
                    self.opened = None;
                    self.at = Some(before);
                }
                Ok(Stop::Full) => return Ok(self.batch(lines, false)),
                Ok(Stop::End) if !is_rotated => {
                    self.complete_at = began;
                    self.ended = false;
                    let passed = opened.position(began).offset != before.offset;
                    if lines.is_empty() && !passed && self.caught_up && self.lost.is_none() {
                        return Ok(Step::Waits(None));
                    }
                    return Ok(self.batch(lines, true));
                }
                Ok(Stop::End) if !lines.is_empty() => return Ok(self.batch(lines, false)),
                Ok(Stop::End) if !self.ended => {
                    self.ended = true;
                    return Ok(Step::Waits(None));
                }
                Ok(Stop::End) => match opened.finish().map_err(failed(&self.path))? {
                    Some(line) => return Ok(self.batch(vec![line], false)),
                    None => self.change_over()?,
                },
                Err(error) if opened.is_compressed() && is_broken(&error) => {
                    let lost = Lost { since: self.complete_at };
                    if !lines.is_empty() {
                        let step = self.batch(lines, false);
                        // It is behind these lines, and before the next ones.
                        self.lost = Some(lost);
                        return Ok(step);
                    }
                    self.lost.get_or_insert(lost);
                    self.change_over()?;
                }
                Err(error) => return Err(Trouble::Failed(self.path.clone(), error)),
            }
        }
    }

    /// Makes a batch with the position behind its lines.
    fn batch(&mut self, lines: Vec<Line>, caught_up: bool) -> Step {
        self.caught_up = caught_up;
        let opened = self.opened.as_ref().expect("lines are read of an open file");
        let position = opened.position(self.complete_at);
        Step::Batch(Batch { lines, position, lost: self.lost.take(), caught_up })
    }

    fn begin(&mut self, opened: Opened, is_rotated: bool) {
        self.opened = Some(opened);
        self.at = None;
        // Its writer has changed over long ago.
        self.ended = is_rotated;
    }

    /// Opens the file of the position, or the one to go on with where that is gone. Returns false if there is none yet.
    fn find(&mut self) -> Result<bool, Trouble> {
        // The file is opened before the directory is read: a rotation in between leaves it among the rotated ones.
        let current = Candidate::open(&self.path).map_err(failed(&self.path))?;
        // A pipe has no position: what was taken out of it is gone.
        let Some(at) = self.at.clone().filter(|_| !current.as_ref().is_some_and(Candidate::is_pipe)) else {
            let Some(current) = current else { return Ok(false) };
            self.begin(current.begin(None), false);
            return Ok(true);
        };
        // Nothing says which file it was of which nothing was read: it is gone on with by the times of the files.
        let is_known = at.head.length > 0;
        let is_here = |current: &Candidate| Ok(is_known && current.is_at(&at).map_err(failed(&self.path))?);
        let is_same = match &current {
            Some(current) => current.identity == at.identity() && is_here(current)?,
            None => false,
        };
        let mut rotated = siblings::list(&self.path).map_err(failed(&self.path))?;
        if is_known && !is_same {
            for sibling in by_identity(&rotated, at.identity()) {
                if let Some(opened) = open(sibling, Some(&at))? {
                    self.begin(opened, true);
                    return Ok(true);
                }
            }
        }
        let Some(current) = current else { return Ok(false) };
        if is_same || is_here(&current)? {
            self.begin(current.begin(Some(&at)), false);
            return Ok(true);
        }
        if is_known {
            self.lost.get_or_insert(Lost { since: at.complete_at });
        }
        rotated.retain(|sibling| sibling.is_after(at.changed));
        self.go_on(rotated.first(), current)
    }

    /// Goes on with a rotated file, or else with the one that is written.
    fn go_on(&mut self, next: Option<&Sibling>, current: Candidate) -> Result<bool, Trouble> {
        match next {
            Some(sibling) => {
                let opened = open(sibling, None)?.ok_or(Trouble::Changed)?;
                self.begin(opened, true);
            }
            None => self.begin(current.begin(None), false),
        }
        Ok(true)
    }

    /// Goes on with what was rotated after the open file, which is at its end.
    fn change_over(&mut self) -> Result<(), Trouble> {
        let Some(opened) = &self.opened else { return Ok(()) };
        let current = Candidate::open(&self.path).map_err(failed(&self.path))?.ok_or(Trouble::Changed)?;
        let rotated = siblings::list(&self.path).map_err(failed(&self.path))?;
        let own = match rotated.iter().find(|sibling| sibling.identity == opened.identity()) {
            Some(own) => Some(own),
            // It may have been compressed meanwhile.
            None => copy_of(&rotated, &opened.position(self.complete_at))?,
        };
        let changed = opened.changed();
        let next = match own {
            Some(own) => rotated.iter().find(|sibling| sibling.follows(own)),
            None => rotated.iter().find(|sibling| sibling.is_after(changed)),
        };
        self.go_on(next, current).map(drop)
    }
}

/// The rotated files, with that of an identity first.
fn by_identity(rotated: &[Sibling], identity: Identity) -> impl Iterator<Item = &Sibling> {
    let (own, others): (Vec<_>, Vec<_>) = rotated.iter().partition(|sibling| sibling.identity == identity);
    own.into_iter().chain(others)
}

/// Finds the rotated file that has what was read up to a position.
fn copy_of<'r>(rotated: &'r [Sibling], position: &FilePosition) -> Result<Option<&'r Sibling>, Trouble> {
    if position.head.length > 0 {
        for sibling in rotated {
            if open(sibling, Some(position))?.is_some() {
                return Ok(Some(sibling));
            }
        }
    }
    Ok(None)
}

/// Opens a rotated file; none if it is not that of the position.
fn open(sibling: &Sibling, position: Option<&FilePosition>) -> Result<Option<Opened>, Trouble> {
    let failed = failed(&sibling.path);
    let candidate = Candidate::open(&sibling.path).map_err(&failed)?.ok_or(Trouble::Changed)?;
    if candidate.identity != sibling.identity {
        return Err(Trouble::Changed);
    }
    if sibling.compressed {
        return match candidate.decompress(position, sibling.ended) {
            // It is none that was read before.
            Err(error) if is_broken(&error) && position.is_some() => Ok(None),
            opened => opened.map_err(failed),
        };
    }
    let is_own = match position {
        Some(position) => candidate.is_at(position).map_err(failed)?,
        None => true,
    };
    Ok(is_own.then(|| candidate.begin(position)))
}

/// Looks whether a file and its directory can be read, where the file is there.
pub(super) fn look(path: &Path) -> Result<(), String> {
    let looked = Candidate::open(path).and_then(|_| siblings::list(path));
    looked.map(drop).map_err(|error| sentence(path, &error))
}

/// Reports whether a compressed file is cut or is none.
fn is_broken(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput | io::ErrorKind::UnexpectedEof)
}

fn identity_of(path: &Path) -> Result<Option<Identity>, Trouble> {
    match fs::metadata(path) {
        Ok(meta) => Ok(Some(Identity::of(&meta))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Trouble::Failed(path.to_owned(), error)),
    }
}

/// Says that there is no file; `at` is the position of what was read of one before.
fn absent(path: &Path, at: Option<&FilePosition>) -> String {
    let path = path.display();
    match at {
        None => format!(
            "the audit log {path} does not exist yet; decklog reads it once the API server writes it (--audit-log-path)"
        ),
        Some(at) => format!(
            "the audit log {path} is gone, and so is what decklog had not read of it, since {:.0}; decklog goes on once the API server \
             writes it again (--audit-log-path)",
            at.complete_at
        ),
    }
}

pub(super) fn sentence(path: &Path, error: &io::Error) -> String {
    let path = path.display();
    if error.kind() == io::ErrorKind::PermissionDenied {
        return format!(
            "cannot read the audit log {path}: permission denied; let decklog's user read it: `chgrp decklog {path} && chmod 640 {path}`, which its rotation keeps, and a directory that may be listed"
        );
    }
    if error.kind() == io::ErrorKind::IsADirectory {
        return format!("the audit log {path} is a directory; name the file of the API server's --audit-log-path");
    }
    format!("cannot read the audit log {path}: {error}; decklog tries again until it can")
}
