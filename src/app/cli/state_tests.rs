use std::os::unix::fs::PermissionsExt;

use super::*;

#[test]
fn the_journal_of_the_service_is_found() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(service_state(&dir.path().join("none")), Ok(None));
    assert_eq!(service_state(dir.path()), Ok(None));
    let make = |name: &str| {
        let state = dir.path().join(name);
        std::fs::create_dir_all(&state).unwrap();
        std::fs::write(state.join("journal.db"), "").unwrap();
        state
    };
    let one = make("eu1");
    assert_eq!(service_state(dir.path()), Ok(Some(one)));
    make("us1");
    let several = service_state(dir.path()).unwrap_err();
    assert!(several.text().contains("--state") && several.text().contains("us1"), "{several}");
    let own = make("");
    assert_eq!(service_state(dir.path()), Ok(Some(own)));
    // Root may read what nobody else may.
    if !rustix::process::geteuid().is_root() {
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o000)).unwrap();
        let closed = service_state(dir.path()).unwrap_err();
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
        assert!(closed.text().contains("sudo -u decklog"), "{closed}");
    }
}
