//! The program: its commands and its service, which put the other rooms together. It may use all of them.
//!
//! [`cli`] has the commands, [`config`] reads `config.toml`, [`daemon`] runs the service, [`ha`] elects a leader among several
//! of them, [`announce`] publishes Events, and [`systemd`] tells the service manager.
//!
//! Begin with [`cli`], where each command is a file.
//!
//! # Examples
//!
//! ```
//! use decklog::app::cli;
//!
//! let code = cli::main(["decklog", "version"].map(Into::into));
//! assert_eq!(format!("{code:?}"), format!("{:?}", std::process::ExitCode::SUCCESS));
//! ```

pub mod announce;
pub mod cli;
pub mod config;
#[cfg(feature = "daemon")]
pub mod daemon;
pub mod ha;
#[cfg(feature = "daemon")]
pub mod systemd;
