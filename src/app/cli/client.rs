//! The commands of the daemon, in a program that is the client alone: each says so in one sentence.
//!
//! # Decision: the client is a feature less
//!
//! Context: People read with `--server` from macOS and Windows, where the daemon has no place: it asks Linux for inotify, statx
//! and syncfs.
//! Decision: The feature `daemon` is there by default. Without it the daemon, the notifications to systemd, the simulated
//! cluster's demo and the commands that deliver are not compiled. SQLite, the sinks' settings and the web's answers stay: the
//! types of questions, configuration and protocol are made of theirs, and the linker leaves out what nothing calls.
//! Cost: A client takes as long to build as a daemon, and its crates are the same.

use std::ffi::OsString;

use clap::Args;

use super::{Global, Outcome};

/// Whatever is said to a command that is not here.
#[derive(Args, Debug)]
pub struct Absent {
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<OsString>,
}

/// Refuses a command of the daemon.
///
/// # Errors
/// Always.
fn refuse(absent: &Absent, _global: &Global) -> Outcome {
    tracing::debug!(rest = ?absent.rest, "a command of the daemon");
    Err(super::hints::absent())
}

/// Makes a module of each command that is not here, with the names that the commands of the daemon have.
macro_rules! absent {
    ($($module:ident $args:ident,)*) => {
        /// Their names.
        pub(super) const ABSENT: &[&str] = &[$(stringify!($module),)*];

        $(
        pub(super) mod $module {
            pub(in crate::app::cli) use super::Absent as $args;

            pub(in crate::app::cli) fn main(args: $args, global: &super::Global) -> super::Outcome {
                super::refuse(&args, global)
            }
        }
    )*};
}

absent! {
    demo DemoArgs,
    replay ReplayArgs,
    restore RestoreArgs,
    run RunArgs,
    sink SinkArgs,
    ui UiArgs,
}
