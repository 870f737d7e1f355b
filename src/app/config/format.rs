//! Formats: what a text must look like beyond being a text. The schema names them, each room has its own, and here they
//! are found; those of files are checked here.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::Files;
use crate::app::ha;
use crate::core::bucket;
use crate::core::change;
use crate::core::filter;
use crate::core::net::server;
use crate::core::spelling::{Format, Wrong, kubernetes};
use crate::core::telemetry;
use crate::core::units;
use crate::evidence::settings as evidence;
use crate::sink::registry;

/// The format of this name.
fn format(name: &str) -> Option<&'static Format> {
    let rooms = [
        bucket::FORMATS,
        units::FORMATS,
        kubernetes::FORMATS,
        change::FORMATS,
        evidence::FORMATS,
        filter::FORMATS,
        ha::FORMATS,
        server::FORMATS,
        telemetry::FORMATS,
    ];
    rooms.into_iter().flatten().chain(registry::formats()).find(|format| format.name == name)
}

/// Returns the expectation of a format, for people.
pub(super) fn expected(name: &str) -> &'static str {
    match name {
        "path" => "the path of a file or directory",
        "readable-file" => "the path of a file that can be read and is not empty",
        "key-file" => "the path of a file that can be read, with at least 16 bytes",
        _ => format(name).map_or("a string", |format| format.expected),
    }
}

/// Checks a text against the format that the schema names. Formats that only inform are taken as they are.
pub(super) fn check(name: &str, text: &str, files: Files) -> Result<(), Wrong> {
    match name {
        "path" => path(text),
        "readable-file" => path(text).and_then(|()| readable(text, 1, files)),
        "key-file" => path(text).and_then(|()| readable(text, 16, files)),
        _ => format(name).map_or(Ok(()), |format| (format.check)(text)),
    }
}

fn path(text: &str) -> Result<(), Wrong> {
    if text.is_empty() {
        return Err("an empty string".into());
    }
    if text.contains('\0') {
        return Err("a path with a NUL character".into());
    }
    Ok(())
}

fn readable(text: &str, least: u64, files: Files) -> Result<(), Wrong> {
    if files == Files::Ignore {
        return Ok(());
    }
    let failed = |error: std::io::Error| Wrong::from(format!("{text:?}, which cannot be read: {error}"));
    let file = File::open(Path::new(text)).map_err(failed)?;
    if file.metadata().map_err(failed)?.is_dir() {
        return Err(format!("{text:?}, which is a directory").into());
    }
    let mut bytes = Vec::new();
    file.take(least).read_to_end(&mut bytes).map_err(failed)?;
    if (bytes.len() as u64) < least {
        return Err(format!("{text:?}, which has {} bytes", bytes.len()).into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(format: &str, text: &str) -> String {
        check(format, text, Files::Check).unwrap_err().found
    }

    fn near(format: &str, text: &str) -> Option<String> {
        check(format, text, Files::Check).unwrap_err().nearest
    }

    #[test]
    fn right_texts_are_taken() {
        for (format, texts) in [
            ("time-span", &["30s", "1h30m", "30d", "2w", "250ms", " 1h 30m ", "3 days"][..]),
            ("margin", &["20ms", "1s", "0s", "0ms", "1m"]),
            ("period", &["10m", "1h", "1s", "0s1000ms", "off", "0", "5 minutes"]),
            ("size", &["10GiB", "500MB", "1 KiB", "4096B"]),
            ("name", &["audit", "audit-2", "A_b.c", "9"]),
            (
                "resource",
                &["*", "pods", "deployments.apps", "*.example.com", "Pod", "leases.coordination.k8s.io", "*.*"],
            ),
            ("namespace", &["shop", "kube-system", "1"]),
            ("namespace-pattern", &["shop", "ci-*", "*-test", "a?c*", "?"]),
            (
                "label-selector",
                &["", "tier=web", "a==b", "a != b", "a", "!a", "x.io/a in (b, c)", "a notin (),b", "n>3,n < 9", "a="],
            ),
            (
                "field-selector",
                &["", "metadata.name=x", "a!=b,c==d", "metadata.name=a\\,b", "spec.host=a\\=b", "status.phase="],
            ),
            ("http-url", &["http://127.0.0.1:9/x?y=1", "https://collector.example/", "http://[::1]/"]),
            ("listen", &["127.0.0.1:9465", "[::]:1", "/run/decklog/http.sock", "unix:x.sock"]),
            ("log-level", &["info", "WARN", "info,decklog::watch=debug", "decklog::journal", "warn,[span{a=1}]=trace"]),
            ("cel", &["true", "type == 'DELETED' || kind == \"Secret\"", "has(object.spec)"]),
            ("pointer-pattern", &["/metadata/managedFields", "/data/*password*", "/a~1b"]),
            (
                "ignore",
                &[
                    "heartbeats",
                    "managed-fields",
                    "status",
                    "storage-rewrites",
                    "leader-election",
                    "/status/conditions/*/x",
                ],
            ),
        ] {
            for text in texts {
                assert_eq!(check(format, text, Files::Check), Ok(()), "{format} {text:?}");
            }
        }
    }

    #[test]
    fn wrong_texts_are_reported_with_the_nearest_right_one() {
        for (format, text, nearest) in [
            ("time-span", "30", Some("30s")),
            ("time-span", "0s", None),
            ("time-span", "-1s", None),
            ("time-span", "99999999999999999999s", None),
            ("margin", "5", Some("5s")),
            ("margin", "-1s", None),
            ("margin", "0.1ms", None),
            ("period", "5", Some("5s")),
            ("period", "999ms", Some("1s")),
            ("period", "0s", None),
            ("period", "never", None),
            ("size", "10gb", Some("10GiB")),
            ("size", "10", Some("10B")),
            ("size", "0B", None),
            ("size", "lots", None),
            ("name", "my sink", Some("my-sink")),
            ("name", "", None),
            ("resource", "apps/v1/deployments", Some("deployments.apps")),
            ("resource", "apps/deployments", Some("deployments.apps")),
            ("resource", "de ploy", None),
            ("resource", "", None),
            ("namespace", "Kube_System", Some("kube-system")),
            ("namespace", "*", Some("[] (no namespaces means all of them)")),
            ("namespace-pattern", "*", None),
            ("namespace-pattern", "", None),
            ("namespace-pattern", "CI_*", Some("ci-*")),
            ("namespace-pattern", "ci-", None),
            ("namespace-pattern", "/ci-.*/", None),
            ("label-selector", "a im (b)", Some("in")),
            ("label-selector", "a not (b)", Some("notin")),
            ("label-selector", "a in b", None),
            ("label-selector", "a in (b", None),
            ("label-selector", "a)", None),
            ("label-selector", "a,,b", None),
            ("label-selector", "a=b c", None),
            ("label-selector", "-a=b", None),
            ("label-selector", "A_B/c=d", None),
            ("label-selector", "n>x", None),
            ("field-selector", "metadata.name", None),
            ("field-selector", "a in (b)", None),
            ("field-selector", "=b", None),
            ("field-selector", "a=b=c", None),
            ("field-selector", "a=b,", None),
            ("field-selector", "a\\b=c", None),
            ("http-url", "collector.example/x", Some("https://collector.example/x")),
            ("http-url", "ftp://collector.example/", None),
            ("http-url", "https://me:geheim@collector.example/", None),
            ("network", "10.0.0.1", Some("10.0.0.1/32")),
            ("network", "2001:db8::1", Some("2001:db8::1/128")),
            ("network", "10.0.0.0/33", None),
            ("network", "example.com", None),
            ("postgres-url", "db.example/audit", None),
            ("listen", "localhost:9465", Some("127.0.0.1:9465")),
            ("listen", ":80", Some("127.0.0.1:80")),
            ("listen", "9465", Some("127.0.0.1:9465")),
            ("listen", "10.0.0.1", Some("10.0.0.1:9465")),
            ("listen", "localhost", Some("127.0.0.1:9465")),
            ("listen", "unix:", None),
            ("log-level", "inof", Some("info")),
            ("log-level", "warning", Some("warn")),
            ("log-level", "info,decklog=verbose", Some("debug")),
            ("log-level", "", None),
            ("pointer-pattern", "metadata", None),
            ("ignore", "heartbeat", Some("heartbeats")),
            ("ignore", "managedFields", Some("managed-fields")),
            ("ignore", "leader_election", Some("leader-election")),
            ("ignore", "Status", Some("status")),
            ("ignore", "probes", None),
            ("ignore", "metadata/labels", None),
            ("ignore", "", None),
            ("cel", "", None),
        ] {
            assert_eq!(near(format, text).as_deref(), nearest, "{format} {text:?}");
        }
    }

    #[test]
    fn a_url_that_may_hold_a_secret_is_not_shown() {
        for url in ["https://me:geheim@x.example/", "gehe im", "geheim://x", "https://geheim@", "//geheim.x/?t=1"] {
            let wrong = check("http-url", url, Files::Check).unwrap_err();
            let scheme_only = url.starts_with("geheim:");
            assert!(scheme_only || !format!("{wrong:?}").contains("geheim"), "{wrong:?}");
        }
    }

    #[test]
    fn files_are_read_only_when_asked() {
        let dir = tempfile::tempdir().unwrap();
        let short = dir.path().join("key");
        std::fs::write(&short, "short").unwrap();
        let short = short.to_str().unwrap();
        assert!(found("key-file", short).ends_with("which has 5 bytes"));
        assert!(check("readable-file", short, Files::Check).is_ok());
        assert!(found("readable-file", dir.path().to_str().unwrap()).ends_with("which is a directory"));
        assert!(found("readable-file", "/nonexistent/x").contains("cannot be read: No such file"));
        assert!(check("readable-file", "/nonexistent/x", Files::Ignore).is_ok());
    }
}
