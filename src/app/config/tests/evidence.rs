//! What is said of `[evidence]`.

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

/// A witness beside replicas is refused where the configuration is read, with the sentence that a daemon would say.
#[test]
fn a_witness_has_no_replicas() {
    let ha = format!(
        "[redact]\nkey_file = '{KEY_FILE}'\n[ha]\nlog = 'archive'\n[[sink]]\nname = 'archive'\ntype = 's3'\nurl = 'file:///segments'\n"
    );
    for (is_witness, has_replicas) in [(true, false), (false, true), (true, true)] {
        let witnessed = format!("[[evidence.witnessed]]\nkey = '{LOG}'\n[http]\n");
        let rest = [(is_witness, &witnessed), (has_replicas, &ha)];
        let rest: String = rest.into_iter().filter(|(is, _)| *is).map(|(_, text)| text.as_str()).collect();
        let problems = parse(&with(&rest)).err().map(|problems| problems.to_string()).unwrap_or_default();
        let is_refused = is_witness && has_replicas;
        assert_eq!(problems.contains(crate::evidence::settings::ALONE), is_refused, "{problems}");
        assert!(is_refused || problems.is_empty(), "{problems}");
    }
}

#[test]
fn evidence_has_a_directory_or_a_bucket_or_both() {
    let with = |keys: &str| format!("{LEAST}\n[evidence]\nkey_file = '/dev/urandom'\n{keys}\n");
    for right in ["dir = '/e'", "s3 = { url = 's3://logs/e' }", "dir = '/e'\n[evidence.s3]\nurl = 's3://logs'"] {
        parse(&with(right)).unwrap_or_else(|problems| panic!("{right}: {problems}"));
    }
    for (wrong, says) in [
        ("", "4:1 evidence: neither dir nor s3"),
        ("s3 = {}", "6:6 evidence.s3.url: missing"),
        ("s3 = 's3://logs'", "6:6 evidence.s3: the string"),
        ("[evidence.s3]\nurl = 'file:///x'", "7:7 evidence.s3.url: a URL of another kind"),
        ("[evidence.s3]\nurl = 's3://L'", "7:7 evidence.s3.url: a bucket whose name has not"),
        ("[evidence.s3]\nurl = 's3://logs'\npartition = 'day'", "8:1 evidence.s3.partition: an unknown key"),
    ] {
        let found = briefly(&with(wrong));
        assert!(found.len() == 1 && found[0].starts_with(says), "{wrong}: {found:?}");
    }
}

/// A build without the client says so where the place is opened.
#[test]
fn a_bucket_needs_its_client() {
    let text = format!("{LEAST}\n[evidence]\nkey_file = '/dev/urandom'\ns3 = {{ url = 's3://logs/e' }}\n");
    let settings = parse(&text).unwrap().config.evidence.unwrap();
    match crate::app::config::evidence::places(&settings) {
        Ok(places) => assert!(cfg!(feature = "s3") && places[0].shown() == "the bucket logs"),
        Err(why) => assert!(!cfg!(feature = "s3") && why.contains("without the cargo feature `s3`"), "{why}"),
    }
}
