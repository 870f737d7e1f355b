//! What is said of witnesses in `[evidence]`.

use super::*;

const KEY_FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/rustfmt.toml");
const LOG: &str = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW";
const SIGNING: &str = "PRIVATE+KEY+PeterNeumann+c74f20a3+AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz";

fn with(rest: &str) -> String {
    format!("{LEAST}[evidence]\ndir = '/tmp'\nkey_file = '{KEY_FILE}'\n{rest}")
}

fn witness(url: &str, key: &str) -> String {
    with(&format!("[[evidence.witness]]\nurl = '{url}'\nkey = '{key}'\n"))
}

#[test]
fn witnesses_are_read() {
    let timed = crate::evidence::key::VerifierKey::parse(LOG).unwrap().timed().to_string();
    for url in
        ["https://w.example", "https://w.example:9/a/b/", "http://127.0.0.1:1/w", "http://localhost/", "http://[::1]/"]
    {
        // The key of a log is that of the witness which has it.
        for key in [LOG, &timed] {
            let config = parse(&witness(url, key)).unwrap().config;
            assert_eq!(config.evidence.unwrap().witness[0].key.to_string(), timed, "{url}");
        }
    }
    let config = parse(&with(&format!("[[evidence.witnessed]]\nkey = '{LOG}'\n[http]\n"))).unwrap().config;
    assert_eq!(config.evidence.unwrap().witnessed[0].key.to_string(), LOG);
}

#[test]
fn everything_that_is_wrong_with_witnesses_is_said() {
    let timed = crate::evidence::key::VerifierKey::parse(LOG).unwrap().timed();
    let witnessed = |key: &str| with(&format!("[[evidence.witnessed]]\nkey = '{key}'\n"));
    let twice = |key: &str| format!("[[evidence.witness]]\nurl = 'https://w.example'\nkey = '{key}'\n").repeat(2);
    let many: String = (0..17).map(|_| twice("")).collect();
    let table = [
        (witness("http://w.example/", LOG), "evidence.witness[0].url: a URL of another machine without TLS"),
        (witness("ftp://w.example/", LOG), "evidence.witness[0].url: a URL with the scheme \"ftp\""),
        (witness("w.example", LOG), "evidence.witness[0].url: a string that is no URL"),
        (witness("https://me:geheim@w.example/", LOG), "evidence.witness[0].url: a URL with a user or password"),
        (witness("https://w.example/?a=b", LOG), "evidence.witness[0].url: a URL with a query"),
        (
            witness("https://w.example/", SIGNING),
            "evidence.witness[0].key: a string that is no public key: this is a signing key",
        ),
        (witness("https://w.example/", "x"), "evidence.witness[0].key: a string that is no public key"),
        (with("[[evidence.witness]]\n"), "evidence.witness[0].url: missing"),
        (with(&twice(LOG)), "evidence.witness[1].key: the key of evidence.witness[0]"),
        (with(&many), "evidence.witness: 34 witnesses"),
        (witnessed(LOG), "http: missing"),
        (witnessed(&timed.to_string()), "evidence.witnessed[0].key: a key of a witness"),
        (witnessed(SIGNING), "evidence.witnessed[0].key: a string that is no public key"),
        (with("[evidence.witnessed]\nkey = 'x'\n"), "evidence.witnessed: a table → [[evidence.witnessed]]"),
    ];
    for (text, says) in table {
        let said = briefly(&text);
        assert!(said.iter().any(|line| line.contains(says)), "{says}: {said:?}");
        assert!(!said.concat().contains("geheim") && !said.concat().contains("AYEKFALV"), "{said:?}");
    }
}
