//! Long answers, a screen at a time: on a terminal what a command prints goes through a pager, as git has it.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::process::{Child, Command, Stdio};

use tokio::signal::unix::{SignalKind, signal};

/// Standard output through a pager, which starts with the first bytes that come here.
#[derive(Debug)]
pub struct Pager(State);

#[derive(Debug)]
enum State {
    /// Nothing was printed yet.
    Waits(Program),
    Runs(Child),
    /// It has ended, or there is none.
    Plain,
}

#[derive(Debug, PartialEq, Eq)]
enum Program {
    /// What somebody asked for.
    Asked(OsString),
    /// What is there on most machines.
    Less,
}

/// The pager that the environment names; nothing where it wants none.
fn program(variable: impl Fn(&str) -> Option<OsString>) -> Option<Program> {
    match variable("DECKLOG_PAGER").or_else(|| variable("PAGER")) {
        Some(asked) if asked.is_empty() || asked == "cat" => None,
        Some(asked) => Some(Program::Asked(asked)),
        // A terminal that cannot move its cursor has no use for it.
        None => variable("TERM").filter(|term| !term.is_empty() && term != "dumb").map(|_| Program::Less),
    }
}

/// Characters for which git gives the words to a shell.
const OF_A_SHELL: &[u8] = b"|&;<>()$`\\\"' \t\n*?[#~=%";

impl Program {
    fn command(&self) -> Command {
        let mut command = match self {
            Self::Asked(text) if text.as_encoded_bytes().iter().any(|byte| OF_A_SHELL.contains(byte)) => {
                let mut shell = Command::new("sh");
                shell.arg("-c").arg(text);
                shell
            }
            Self::Asked(text) => Command::new(text),
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
                let ignored = tokio::runtime::Builder::new_current_thread().enable_io().build().and_then(|runtime| {
                    let _inside = runtime.enter();
                    signal(SignalKind::interrupt())
                });
                // Without that Ctrl-C ends both, as it does without a pager.
                drop(ignored);
                State::Runs(child)
            }
            Err(error) => {
                if let Program::Asked(asked) = program {
                    super::complain(&format!("note: cannot run the pager {}: {error}", OsStr::display(asked)));
                }
                State::Plain
            }
        };
    }

    /// Waits until whoever reads has seen enough. What is printed from here on goes to standard output.
    pub fn end(&mut self) {
        if let State::Runs(mut child) = std::mem::replace(&mut self.0, State::Plain) {
            // It closes the pipe, too. A pager that fails has said so itself.
            drop(child.wait());
        }
    }
}

impl Write for Pager {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.begin();
        match &mut self.0 {
            State::Runs(Child { stdin: Some(pipe), .. }) => pipe.write(bytes),
            State::Runs(_) | State::Waits(_) | State::Plain => io::stdout().write(bytes),
        }
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
        self.end();
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
        let asked = |text: &str| Some(Program::Asked(text.into()));
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
