//! What is said of `[[audit_log]]`.

use super::*;

/// A table, after another one with a file.
fn tables(keys: &str) -> String {
    format!("{LEAST}\n[[audit_log]]\nfile = '/var/log/a/audit.log'\n[[audit_log]]\n{keys}\n")
}

#[test]
fn a_source_of_the_audit_log_is_a_file_or_an_address() {
    let config = parse(&tables("name = 'hook'\nlisten = '127.0.0.1:9466'\ncluster = 'prod'")).unwrap().config;
    assert_eq!(config.audit_log.iter().map(crate::audit_log::Settings::name).collect::<Vec<_>>(), ["audit", "hook"]);
    for right in [
        "listen = '127.0.0.1:1'",
        "listen = '[::1]:1'\ntoken_file = '/dev/urandom'",
        "listen = '0.0.0.0:1'\ntoken_file = '/dev/urandom'\ntls_cert_file = '/dev/urandom'\ntls_key_file = '/dev/urandom'",
        "listen = '0.0.0.0:1'\nclient_ca_file = '/dev/urandom'\ntls_cert_file = '/dev/urandom'\ntls_key_file = '/dev/urandom'",
        "listen = '/run/decklog/audit.sock'",
        "file = '/var/log/b/audit.log'\nname = 'b'",
    ] {
        parse(&tables(right)).unwrap_or_else(|problems| panic!("{right}: {problems}"));
    }
}

/// One problem for each mistake, at the key that has to be another.
#[test]
fn mistakes_of_the_audit_log_are_reported() {
    let tls = "tls_cert_file = '/dev/urandom'\ntls_key_file = '/dev/urandom'";
    let token = "token_file = '/dev/urandom'";
    for (keys, problems) in [
        ("name = 'x'".to_owned(), &["audit_log[1]: neither file nor listen"][..]),
        ("file = '/x/y.log'\nlisten = '127.0.0.1:1'".to_owned(), &["audit_log[1].listen: listen beside file"]),
        (format!("file = '/x/y.log'\n{token}"), &["audit_log[1].token_file: token_file beside file"]),
        (
            format!("listen = '0.0.0.0:1'\n{tls}"),
            &["audit_log[1].listen: \"0.0.0.0:1\", where everybody who can connect could make up who did what"],
        ),
        (
            format!("listen = '0.0.0.0:1'\n{token}"),
            &["audit_log[1].listen: \"0.0.0.0:1\", which other machines can reach, without TLS"],
        ),
        (
            "listen = '127.0.0.1:1'\nclient_ca_file = '/dev/urandom'".to_owned(),
            &["audit_log[1].client_ca_file: no TLS, which alone shows certificates"],
        ),
        (
            "listen = '127.0.0.1:1'\ntls_key_file = '/dev/urandom'".to_owned(),
            &["audit_log[1].tls_key_file: no tls_cert_file beside it"],
        ),
        (
            format!("listen = '/run/x.sock'\n{token}"),
            &["audit_log[1].token_file: a unix socket, whose own rights say who may open it"],
        ),
        (
            "file = '/var/log/a/audit.log'".to_owned(),
            &["audit_log[1].file: \"/var/log/a/audit.log\", which audit_log[0] reads"],
        ),
        (
            "file = '/var/log/b/audit.log'".to_owned(),
            &["audit_log[1].name: \"audit\", which is the name of audit_log[0]"],
        ),
        (
            "name = 'audit'\nfile = '/var/log/b/x.log'".to_owned(),
            &["audit_log[1].name: \"audit\", which is the name of audit_log[0]"],
        ),
        (
            "name = 'b'\nlisten = '127.0.0.1:1'\n[[audit_log]]\nname = 'c'\nlisten = '127.0.0.1:1'".to_owned(),
            &["audit_log[2].listen: \"127.0.0.1:1\", where audit_log[1] listens"],
        ),
        ("listen = 'localhost:1'".to_owned(), &["audit_log[1].listen: the string \"localhost:1\" → 127.0.0.1:1"]),
        ("fiel = 'x'".to_owned(), &["audit_log[1].fiel: an unknown key → file"]),
    ] {
        let found: Vec<String> =
            briefly(&tables(&keys)).into_iter().map(|line| line.split_once(' ').unwrap().1.to_owned()).collect();
        assert_eq!(found, problems, "{keys}");
    }
}
