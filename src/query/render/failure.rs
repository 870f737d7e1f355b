//! Errors of questions about the log, and exit codes.

use std::io;
use std::process::ExitCode;

use crate::core::rights::{Refusal, Refused};
use crate::journal::JournalError;

/// Exit code of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Done.
    Done = 0,
    /// The answer is no: a problem, damage, nothing found.
    No = 1,
    /// Nothing is wrong, and nothing proves that all is right.
    Unknown = 3,
    /// The command line is wrong.
    Usage = 64,
    /// A bug in decklog.
    Internal = 70,
    /// Input or output failed, such as the disk.
    Io = 74,
    /// Another decklog holds the state directory.
    Held = 75,
    /// The configuration, or what it points to, is wrong.
    Config = 78,
}

impl Exit {
    /// Returns the exit of a process that ended with this code.
    pub(crate) const fn of(code: u8) -> Self {
        match code {
            0 => Self::Done,
            1 => Self::No,
            3 => Self::Unknown,
            64 => Self::Usage,
            74 => Self::Io,
            75 => Self::Held,
            78 => Self::Config,
            _ => Self::Internal,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Error of a command: one sentence that says what to do, and the exit code.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Failure {
    exit: Exit,
    text: String,
    key: Option<&'static str>,
    refused: Option<Refused>,
}

impl Failure {
    /// A failure that ends the process with `exit` after `text` was printed.
    pub fn new(exit: Exit, text: impl Into<String>) -> Self {
        Self { exit, text: text.into(), key: None, refused: None }
    }

    /// The command line is wrong.
    pub fn usage(text: impl Into<String>) -> Self {
        Self::new(Exit::Usage, text)
    }

    /// The answer is no.
    pub fn no(text: impl Into<String>) -> Self {
        Self::new(Exit::No, text)
    }

    /// A bug in decklog.
    pub fn internal(text: impl Into<String>) -> Self {
        Self::new(Exit::Internal, text)
    }

    /// `what` failed with an error of the operating system.
    pub fn io(what: impl std::fmt::Display, error: &io::Error) -> Self {
        Self::new(Exit::Io, format!("{what}: {error}"))
    }

    /// Writing to standard output failed. A closed pipe ends the command quietly: the reader has what it wanted.
    #[must_use]
    pub fn stdout(error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::closed_pipe();
        }
        Self::io("cannot write to standard output", error)
    }

    /// The reader of standard output is gone: a quiet end.
    #[must_use]
    pub const fn closed_pipe() -> Self {
        Self { exit: Exit::Done, text: String::new(), key: None, refused: None }
    }

    /// Says which key of a query the failure is about.
    pub(crate) fn about(self, key: &'static str) -> Self {
        Self { key: Some(key), ..self }
    }

    /// Returns the key of a query that the failure is about, if there is one.
    pub(crate) const fn key(&self) -> Option<&'static str> {
        self.key
    }

    /// Returns the sort of refusal where somebody may not read.
    pub(crate) const fn refused(&self) -> Option<Refused> {
        self.refused
    }

    /// Returns the exit code.
    #[must_use]
    pub const fn exit(&self) -> Exit {
        self.exit
    }

    /// The sentence; empty where there is nothing to say.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        let exit = match refusal.is {
            Refused::Unknown | Refused::Forbidden => Exit::Config,
            Refused::Away => Exit::Io,
        };
        Self { refused: Some(refusal.is), ..Self::new(exit, refusal.text) }
    }
}

impl From<JournalError> for Failure {
    fn from(error: JournalError) -> Self {
        if let JournalError::Refused(refusal) = error {
            return refusal.into();
        }
        let exit = match &error {
            JournalError::Locked { .. } => Exit::Held,
            JournalError::Newer { .. }
            | JournalError::Missing(_)
            | JournalError::OtherCluster { .. }
            | JournalError::Foreign(_) => Exit::Config,
            JournalError::Io { .. }
            | JournalError::Sqlite { .. }
            | JournalError::NoRoom { .. }
            | JournalError::Placed { .. }
            | JournalError::Corrupt(_) => Exit::Io,
            JournalError::Stopped(_) | JournalError::Superseded(_) | JournalError::Refused(_) => Exit::Internal,
        };
        Self::new(exit, error.to_string())
    }
}
