//! Checks of the state directory.

use std::fs;
use std::path::Path;

use super::Findings;
use crate::app::config::Config;
use crate::core::os;
use crate::journal::{JournalError, Reader};
use crate::query::status;

/// Checks the state directory. Reports whether a daemon holds it.
pub(super) fn state(config: &Config, found: &mut Findings) -> bool {
    let dir = &config.state.path;
    match fs::metadata(dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => match nearest(dir) {
            Some(parent) if writable(parent) => {
                found.good("state-to-make", format!("{} will be made at the first start", dir.display()));
            }
            _ => found.bad(
                "state-missing",
                format!("{} is missing and cannot be made; make it, or set [state] path", dir.display()),
            ),
        },
        Err(error) => found.bad("state-unreadable", format!("{} cannot be read: {error}", dir.display())),
        Ok(meta) if !meta.is_dir() => {
            found.bad("state-no-directory", format!("{} is no directory; set [state] path to one", dir.display()));
        }
        Ok(_) if !writable(dir) => found.bad(
            "state-not-writable",
            format!(
                "{} is not writable for this user; run as the user of the service, or change its owner",
                dir.display()
            ),
        ),
        Ok(_) => match Reader::open(dir).and_then(|reader| reader.head()) {
            Ok(head) => found.good("state-journal", format!("the journal in {} is at seq {head}", dir.display())),
            Err(JournalError::Missing(_)) => {
                found.good("state-empty", format!("{} is writable, and has no journal yet", dir.display()));
            }
            Err(error) => found.bad("state-journal-unusable", error.to_string()),
        },
    }
    let daemon = status::daemon(dir);
    if daemon.running {
        let pid = daemon.pid.map(|pid| format!(" (process {pid})")).unwrap_or_default();
        found.good("state-running", format!("a decklog{pid} is running on it"));
    }
    daemon.running
}

fn nearest(dir: &Path) -> Option<&Path> {
    dir.ancestors()
        .skip(1)
        .map(|dir| if dir.as_os_str().is_empty() { Path::new(".") } else { dir })
        .find(|dir| dir.exists())
}

fn writable(dir: &Path) -> bool {
    os::may_write(dir).is_ok()
}
