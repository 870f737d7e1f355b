//! Access of a group to the journal, if `[state] readers` names one.
//!
//! The daemon gives its files to the group at each start, after SQLite has made them. A service has few rights: it can
//! do so with its own group alone (systemd's `PrivateUsers=`), so that is what the documents say to make it.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

use crate::journal;
use crate::query::status;

/// Lets a group read what the reading commands read: the journal, its lock, and what the daemon says of itself. The key
/// for redaction beside them stays closed.
pub(super) fn admit(state: &Path, group: &str) -> Result<(), String> {
    let gid = gid_of(group)?;
    let failed = |error: io::Error| {
        format!(
            "cannot let the group {group} read {}: {error}; run decklog with it as its own group (Group={group} of the service)",
            state.display()
        )
    };
    let give = |path: &Path, mode: u32| {
        // What is the group's already has not to be given, which may be forbidden.
        if fs::metadata(path)?.gid() != gid {
            chown(path, None, Some(gid))?;
        }
        fs::set_permissions(path, Permissions::from_mode(mode))
    };
    give(state, 0o750).map_err(failed)?;
    for name in journal::READ.iter().chain(&[status::LIVE]) {
        let path = state.join(name);
        if path.exists() {
            give(&path, 0o640).map_err(failed)?;
        }
    }
    Ok(())
}

/// The id of a group of this machine, by its name or as a number.
fn gid_of(group: &str) -> Result<u32, String> {
    if let Ok(gid) = group.parse() {
        return Ok(gid);
    }
    let text = fs::read_to_string("/etc/group").map_err(|error| format!("cannot read /etc/group: {error}"))?;
    find(&text, group).ok_or_else(|| {
        format!("/etc/group has no group {group:?}; make it (`groupadd --system {group}`), or give its number in [state] readers")
    })
}

fn find(groups: &str, name: &str) -> Option<u32> {
    groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_found_by_its_name() {
        let groups = "root:x:0:\ndecklog:x:998:\ndecklog-readers:x:997:anna,bob\nbroken\n";
        assert_eq!(find(groups, "decklog-readers"), Some(997));
        assert_eq!(find(groups, "decklog-"), None);
        assert_eq!(gid_of("4711"), Ok(4711));
        let refused = gid_of("no-such-group-here").unwrap_err();
        assert!(refused.contains("groupadd --system no-such-group-here"), "{refused}");
    }

    #[test]
    fn the_group_reads_the_journal_and_not_the_key() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["journal.db", "journal.db-wal", "decklog.lock", "redact.key"] {
            fs::write(dir.path().join(name), "x").unwrap();
            fs::set_permissions(dir.path().join(name), Permissions::from_mode(0o600)).unwrap();
        }
        let own = fs::metadata(dir.path()).unwrap().gid();
        admit(dir.path(), &own.to_string()).unwrap();
        let mode = |name: &str| fs::metadata(dir.path().join(name)).unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode(""), 0o750);
        assert_eq!(
            ["journal.db", "journal.db-wal", "decklog.lock", "redact.key"].map(mode),
            [0o640, 0o640, 0o640, 0o600]
        );
    }
}
