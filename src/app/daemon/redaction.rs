//! The key of the digests that stand in the place of secrets.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::DaemonError;
use crate::app::config::Config;
use crate::core::change::redact::Redactor;

/// The key that is made where the configuration names none, in the state directory.
const OWN_KEY: &str = "redact.key";

/// The rules of the configuration with their key.
pub(super) fn redactor(config: &Config) -> Result<Arc<Redactor>, DaemonError> {
    let key = match config.redact.read_key() {
        Ok(Some(key)) => key,
        Ok(None) => own_key(&config.state.path).map(|key| Sha256::digest(key).into()).map_err(|error| {
            DaemonError::Io(format!("cannot keep the key for redaction in {}: {error}", config.state.path.display()))
        })?,
        Err(error) => return Err(DaemonError::Config(format!("cannot read [redact] key_file: {error}"))),
    };
    let redactor = Redactor::new(&config.redact, key);
    redactor.map(Arc::new).map_err(|problems| DaemonError::Config(problems.join("\n")))
}

/// Made once, kept for the life of the state directory: with another key every redacted value would seem to change.
fn own_key(state: &Path) -> io::Result<Vec<u8>> {
    let path = state.join(OWN_KEY);
    match fs::read(&path) {
        Ok(key) if key.len() >= 32 => return Ok(key),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let mut key = Vec::with_capacity(32);
    for half in [uuid::Uuid::new_v4(), uuid::Uuid::new_v4(), uuid::Uuid::new_v4()] {
        key.extend_from_slice(half.as_bytes());
    }
    // Renamed into place, so that a crash leaves a whole key or none.
    let part = path.with_extension("part");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&part)?;
    file.write_all(&key)?;
    file.sync_all()?;
    fs::rename(&part, &path)?;
    fs::File::open(state)?.sync_all()?;
    Ok(key)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_key_is_made_once_and_closed_to_others() {
        let dir = tempfile::tempdir().unwrap();
        let key = own_key(dir.path()).unwrap();
        assert_eq!(own_key(dir.path()).unwrap(), key);
        let mode = fs::metadata(dir.path().join(OWN_KEY)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_ne!(own_key(tempfile::tempdir().unwrap().path()).unwrap(), key);
    }
}
