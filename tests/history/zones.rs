//! People read and write local time, and programs UTC.

use std::fs;
use std::path::Path;

use crate::golden::{golden, told};
use crate::story::{run, run_in, run_on_terminal_in, shop};

/// A zone whose clocks go forward by an hour in the middle of the story, at 10:15.
const CHANGES: (&str, &str) = ("TZ", "WET0WEST,J324/10:15,J330/10:15");

/// Puts a database of one zone into a directory: what `TZ` names is read from there on every machine.
fn database(dir: &Path, name: &str, rule: &str) {
    let mut file = Vec::new();
    for _ in 0..2 {
        file.extend(b"TZif2");
        file.extend([0; 15]);
        // No leap seconds, no changes but those of the rule, one type, whose name has four bytes.
        file.extend([0u32, 0, 0, 0, 1, 4].iter().flat_map(|count| count.to_be_bytes()));
        file.extend(3600i32.to_be_bytes());
        file.extend([0, 0]);
        file.extend(b"CET\0");
    }
    file.extend(format!("\n{rule}\n").bytes());
    let path = dir.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, file).unwrap();
}

#[tokio::test(start_paused = true)]
async fn people_read_local_time_and_programs_utc() {
    let dir = shop().await;
    let state = dir.path();
    database(&state.join("zones"), "Europe/Berlin", "CET-1CEST,M3.5.0,M10.5.0/3");
    let zones = state.join("zones");
    let berlin = [("TZ", "Europe/Berlin"), ("TZDIR", zones.to_str().unwrap())];
    let diff = ["diff", "-n", "shop", "--from", "2026-11-20T10:11:00Z", "--to", "2026-11-20T10:37:00Z"];
    let churn = ["churn", "--since", "2026-11-20T10:00:00Z", "--until", "2026-11-20T11:00:00Z"];
    for (name, args) in [
        ("tail", &["tail"][..]),
        ("log", &["log", "deploy/web", "-n", "shop"]),
        ("blame", &["blame", "cm/settings"]),
        ("diff", &diff),
    ] {
        for columns in [80, 120] {
            let args = [args, &["--color", "never"]].concat();
            golden(&format!("{name}_local_{columns}"), &told(&run_on_terminal_in(state, &args, columns, &berlin)));
            golden(&format!("{name}_change_{columns}"), &told(&run_on_terminal_in(state, &args, columns, &[CHANGES])));
        }
        golden(&format!("{name}_local_plain"), &told(&run_in(state, args, &berlin)));
        golden(&format!("{name}_change_plain"), &told(&run_in(state, args, &[CHANGES])));
    }
    for args in [&["tail"][..], &["log", "deploy/web"], &["blame", "cm/settings"], &diff, &churn] {
        let utc = run(state, args).out;
        assert_ne!(run_in(state, args, &berlin).out, utc, "{args:?}");
        assert_eq!(run_in(state, &[args, &["--utc"]].concat(), &berlin).out, utc, "{args:?}");
        for format in ["json", "yaml"] {
            let args = [args, &["-o", format]].concat();
            assert_eq!(run_in(state, &args, &berlin).out, run(state, &args).out, "{args:?}");
        }
    }
    let ended = run_in(state, &["get", "cm/old"], &berlin).err;
    assert!(ended.contains("was deleted at 2026-11-20T11:45:00+01:00 (entry 32)"), "{ended}");
    // What names no zone is none.
    for none in ["No/Where", "Europe/", ""] {
        let answer = run_in(state, &["log", "deploy/web", "--since", "2026-11-20 10:00"], &[("TZ", none)]);
        assert_eq!(answer.out, run(state, &["log", "deploy/web", "--since", "2026-11-20 10:00"]).out);
        // Who set it so on purpose wants UTC.
        assert_eq!(
            answer.err.matches("note: times are in UTC: $TZ is ").count(),
            usize::from(!none.is_empty()),
            "{none}: {answer:?}"
        );
    }
    // As libc has it, without a rule.
    let ruleless = run_in(state, &["tail"], &[("TZ", "CET-1CEST")]).out;
    assert!(ruleless.contains("2026-11-20T11:45:00.000+01:00"), "{ruleless}");
}

#[tokio::test(start_paused = true)]
async fn people_write_local_time() {
    let dir = shop().await;
    let state = dir.path();
    database(&state.join("zones"), "Europe/Berlin", "CET-1CEST,M3.5.0,M10.5.0/3");
    let zones = state.join("zones");
    let (berlin, utc, tzdir) = (("TZ", "Europe/Berlin"), ("TZ", "UTC"), ("TZDIR", zones.to_str().unwrap()));
    let expected = run(state, &["get", "deploy/web", "--at", "2026-11-20T10:21:00Z"]);
    assert!(expected.code == 0 && !expected.err.contains("--at"), "{expected:?}");
    for (zone, at, says) in [
        (berlin, &["--at", "2026-11-20 11:21"][..], "2026-11-20 11:21:00 CET (+01:00), "),
        (berlin, &["--at", "2026-11-20T11:21:00"], "2026-11-20 11:21:00 CET (+01:00), "),
        (berlin, &["--utc", "--at", "2026-11-20 10:21"], "2026-11-20 10:21:00 UTC, "),
        (utc, &["--at", "2026-11-20 11:21 Europe/Berlin"], "2026-11-20 10:21:00 UTC, "),
        (utc, &["--at", "2026-11-20T11:21[Europe/Berlin]"], "2026-11-20 10:21:00 UTC, "),
        (CHANGES, &["--at", "2026-11-20 11:21"], "2026-11-20 11:21:00 WEST (+01:00), "),
    ] {
        let got = run_in(state, &[&["get", "deploy/web"], at].concat(), &[zone, tzdir]);
        assert_eq!((got.code, &got.out), (0, &expected.out), "{at:?}");
        let text = at[at.len() - 1];
        let quote = if text.contains(' ') { "'" } else { "" };
        assert!(got.err.starts_with(&format!("decklog: --at {quote}{text}{quote} is {says}")), "{got:?}");
    }
    let never = run_in(state, &["get", "deploy/web", "--at", "2026-11-20 10:30"], &[CHANGES]);
    let says = "is 2026-11-20 11:30:00 WEST (+01:00), ";
    assert!(never.code == 0 && never.err.contains(says), "{never:?}");
    assert!(never.err.contains("; 2026-11-20 has no 10:30:00, because the clocks went forward over it"), "{never:?}");
}
