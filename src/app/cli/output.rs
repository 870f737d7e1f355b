//! Standard output, with what is known of whoever reads it.

use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};

use serde::Serialize;

use super::pager::Pager;
use super::{Color, Failure, Format, Global, yaml};
use crate::core::os;
pub use crate::core::terminal::{TerminalStyle, printable};
use crate::core::terminal::{columns, json_text};
pub use crate::query::render::row::{Ink, Row, count, cut, plural, sentence, size, some, span, table, whole_table};

/// Standard output, buffered, with what is known of whoever reads it.
#[derive(Debug)]
pub struct Out {
    writer: Writer,
    /// Style of the lines.
    pub look: TerminalStyle,
}

/// Destination of the output.
#[derive(Debug)]
enum Writer {
    Stdout(BufWriter<StdoutLock<'static>>),
    Paged(BufWriter<Pager>),
    Memory(Vec<u8>),
}

/// Size of the write buffer, in bytes.
const BUFFER: usize = 64 << 10;

impl Out {
    /// Standard output through a pager, where a terminal shows it.
    #[must_use]
    pub fn paged(global: &Global) -> Self {
        let mut out = Self::new(global);
        if out.look.terminal
            && !global.no_pager
            && let Some(pager) = Pager::of_environment()
        {
            out.writer = Writer::Paged(BufWriter::with_capacity(BUFFER, pager));
        }
        out
    }

    /// Standard output, as the flags want it.
    #[must_use]
    pub fn new(global: &Global) -> Self {
        let stdout = io::stdout();
        let writer = Writer::Stdout(BufWriter::with_capacity(BUFFER, stdout.lock()));
        let terminal = stdout.is_terminal();
        if terminal {
            os::enable_colors();
        }
        let color = match global.color {
            Color::Always => true,
            Color::Never => false,
            // Knows NO_COLOR, CLICOLOR and dumb terminals.
            Color::Auto => anstream::AutoStream::choice(&stdout) != anstream::ColorChoice::Never,
        };
        let width = columns(&stdout);
        Self { writer, look: TerminalStyle { color, terminal, width } }
    }

    /// Memory, for text of which only a part is shown.
    #[must_use]
    pub const fn memory(look: TerminalStyle) -> Self {
        Self { writer: Writer::Memory(Vec::new()), look }
    }

    /// Returns the output that was written to memory; none if it went to standard output.
    #[must_use]
    pub fn into_memory(self) -> Vec<u8> {
        match self.writer {
            Writer::Memory(bytes) => bytes,
            Writer::Stdout(_) | Writer::Paged(_) => Vec::new(),
        }
    }

    /// Writes bytes as they are.
    ///
    /// # Errors
    /// Where they cannot be written; a closed pipe is a quiet end.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        match &mut self.writer {
            Writer::Stdout(stdout) => stdout.write_all(bytes).map_err(|error| Failure::stdout(&error)),
            Writer::Paged(pager) => pager.write_all(bytes).map_err(|error| Failure::stdout(&error)),
            Writer::Memory(held) => {
                held.extend_from_slice(bytes);
                Ok(())
            }
        }
    }

    /// Writes one line.
    ///
    /// # Errors
    /// As [`Out::bytes`].
    pub fn line(&mut self, text: &str) -> Result<(), Failure> {
        self.bytes(text.as_bytes())?;
        self.bytes(b"\n")
    }

    /// Writes one line in one ink, as long as it is: a command that is copied has no line break.
    ///
    /// # Errors
    /// As [`Out::bytes`].
    pub fn inked(&mut self, ink: Ink, text: &str) -> Result<(), Failure> {
        let mut row = Row::new(TerminalStyle { width: None, ..self.look });
        row.put(Some(ink), text);
        self.line(&row.finish())
    }

    /// Writes JSON, one line of it. On a terminal, characters that it would obey are written as JSON escapes, which
    /// mean the same; everyone else gets the very bytes.
    ///
    /// # Errors
    /// As [`Out::bytes`].
    pub fn json(&mut self, json: &[u8]) -> Result<(), Failure> {
        self.json_part(json)?;
        self.bytes(b"\n")
    }

    /// Writes a part of a line of JSON, as [`Out::json`] does.
    ///
    /// # Errors
    /// As [`Out::bytes`].
    pub fn json_part(&mut self, json: &[u8]) -> Result<(), Failure> {
        match std::str::from_utf8(json) {
            Ok(text) if self.look.terminal => self.bytes(json_text(text).as_bytes()),
            _ => self.bytes(json),
        }
    }

    /// Writes a value as JSON or YAML, for people and programs.
    ///
    /// # Errors
    /// As [`Out::bytes`].
    pub fn document(&mut self, format: Format, value: &(impl Serialize + ?Sized)) -> Result<(), Failure> {
        let bug = |error: serde_json::Error| Failure::internal(format!("cannot print the answer: {error}"));
        let json = serde_json::to_vec_pretty(value).map_err(bug)?;
        match format {
            Format::Yaml => self.bytes(yaml::from_json(&json).map_err(bug)?.as_bytes()),
            Format::Json | Format::Line | Format::Wide | Format::Name => self.json(&json),
        }
    }

    /// Hands over what is buffered. Where a pager shows it, it has ended then.
    ///
    /// # Errors
    /// As [`Out::bytes`].
    pub fn flush(&mut self) -> Result<(), Failure> {
        match &mut self.writer {
            Writer::Stdout(stdout) => stdout.flush().map_err(|error| Failure::stdout(&error)),
            Writer::Paged(pager) => {
                let flushed = pager.flush();
                let ended = pager.get_mut().end();
                flushed.and(ended).map_err(|error| Failure::stdout(&error))
            }
            Writer::Memory(_) => Ok(()),
        }
    }
}
