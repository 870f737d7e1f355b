//! Long answers, a screen at a time: on a terminal what a command prints goes through a pager, as git has it.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::process::{Child, Command, Stdio};

use crate::core::os;

/// Standard output through a pager, which starts with the first bytes that come here.
#[derive(Debug)]
pub struct Pager(State);

#[derive(Debug)]
enum State {
    /// State before the first output.
    Waits(Program),
    Runs(Running),
    /// It has ended, or there is none.
    Plain,
}

#[derive(Debug)]
struct Running {
    child: Child,
    /// Bytes given to the pager, as long as a pipe may hold all of them unread.
    sent: Option<Vec<u8>>,
}

/// No pipe holds more, unless root widens it.
const PIPE: usize = 1 << 20;

impl Running {
    fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let pipe = self.child.stdin.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        let count = pipe.write(bytes)?;
        self.sent = self.sent.take().filter(|sent| sent.len() <= PIPE);
        if let Some(sent) = &mut self.sent {
            sent.extend_from_slice(&bytes[..count]);
        }
        Ok(count)
    }

    /// Waits for its end, and gives back what nobody has read because a shell found no such program.
    fn unread(&mut self) -> Option<Vec<u8>> {
        // It closes the pipe, too. A pager that fails has said so itself.
        let code = self.child.wait().ok()?.code()?;
        self.sent.take().filter(|_| [NOT_RUN, NOT_FOUND].contains(&code))
    }
}

/// Exit codes of a shell for a program that cannot be run, and for one that is not found.
const NOT_RUN: i32 = 126;
const NOT_FOUND: i32 = 127;

#[derive(Debug, PartialEq, Eq)]
enum Program {
    /// Program that the user chose.
    Chosen(OsString),
    /// The default, which most machines have.
    Less,
}

/// The pager that the environment names; nothing where it wants none.
fn program(variable: impl Fn(&str) -> Option<OsString>) -> Option<Program> {
    match variable("DECKLOG_PAGER").or_else(|| variable("PAGER")) {
        Some(asked) if asked.is_empty() || asked == "cat" => None,
        Some(asked) => Some(Program::Chosen(asked)),
        // A terminal that cannot move its cursor has no use for it.
        None => variable("TERM").filter(|term| !term.is_empty() && term != "dumb").map(|_| Program::Less),
    }
}

/// Characters for which git gives the words to a shell.
const OF_A_SHELL: &[u8] = b"|&;<>()$`\\\"' \t\n*?[#~=%";

impl Program {
    fn command(&self) -> Command {
        let mut command = match self {
            Self::Chosen(text) if text.as_encoded_bytes().iter().any(|byte| OF_A_SHELL.contains(byte)) => {
                let mut shell = Command::new("sh");
                shell.arg("-c").arg(text);
                shell
            }
            Self::Chosen(text) => Command::new(text),
            Self::Less => Command::new("less"),
        };
        if env::var_os("LESS").is_none() {
            command.env("LESS", "FRX");
        }
        // Who may run decklog as another user may not for that run everything else as well.
        if env::var_os("SUDO_UID").is_some() {
            command.env("LESSSECURE", "1");
        }
        command
    }
}

impl Pager {
    /// The one that the environment names; nothing where it wants none.
    #[must_use]
    pub fn of_environment() -> Option<Self> {
        program(|name| env::var_os(name)).map(|program| Self(State::Waits(program)))
    }

    fn begin(&mut self) {
        let State::Waits(program) = &self.0 else { return };
        self.0 = match program.command().stdin(Stdio::piped()).spawn() {
            Ok(child) => {
                // Ctrl-C is for the pager, which stays until it is asked to go.
                // Without that it ends both, as it does without a pager.
                drop(os::ignore_interrupts());
                State::Runs(Running { child, sent: Some(Vec::new()) })
            }
            Err(error) => {
                if let Program::Chosen(asked) = program {
                    super::complain(&format!("note: cannot run the pager {}: {error}", OsStr::display(asked)));
                }
                State::Plain
            }
        };
    }

    /// Waits until whoever reads has seen enough. What is printed from here on goes to standard output, and so does what
    /// was printed already, where there was no such program.
    ///
    /// # Errors
    /// Where that cannot be written.
    pub fn end(&mut self) -> io::Result<()> {
        if let State::Runs(mut running) = std::mem::replace(&mut self.0, State::Plain)
            && let Some(unread) = running.unread()
        {
            super::complain("note: there is no such pager ($DECKLOG_PAGER, $PAGER), so all of it is printed at once");
            io::stdout().write_all(&unread)?;
        }
        Ok(())
    }
}

impl Write for Pager {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.begin();
        let State::Runs(running) = &mut self.0 else { return io::stdout().write(bytes) };
        let gone = match running.send(bytes) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => error,
            sent => return sent,
        };
        // Who has seen enough reads no more. But there may have been nobody.
        let Some(unread) = running.unread() else { return Err(gone) };
        running.sent = Some(unread);
        self.end()?;
        io::stdout().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        match &self.0 {
            State::Runs(_) | State::Waits(_) => Ok(()),
            State::Plain => io::stdout().flush(),
        }
    }
}

impl Drop for Pager {
    fn drop(&mut self) {
        // Nobody is left to tell.
        drop(self.end());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Option<Program> {
        program(|name| variables.iter().find(|(known, _)| *known == name).map(|(_, text)| OsString::from(text)))
    }

    #[test]
    fn the_environment_names_a_pager_as_it_does_for_git() {
        let asked = |text: &str| Some(Program::Chosen(text.into()));
        assert_eq!(of(&[("TERM", "xterm")]), Some(Program::Less));
        assert_eq!(of(&[("TERM", "xterm"), ("PAGER", "more")]), asked("more"));
        assert_eq!(of(&[("PAGER", "more"), ("DECKLOG_PAGER", "less -S")]), asked("less -S"));
        for none in [
            &[("TERM", "dumb")][..],
            &[],
            &[("TERM", "xterm"), ("PAGER", "")],
            &[("TERM", "xterm"), ("PAGER", "cat")],
            &[("PAGER", "less"), ("DECKLOG_PAGER", "")],
            &[("PAGER", "less"), ("DECKLOG_PAGER", "cat")],
        ] {
            assert_eq!(of(none), None, "{none:?}");
        }
    }
}
