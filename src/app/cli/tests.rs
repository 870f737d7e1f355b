use super::*;

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn every_command_of_this_version_is_there() {
    let command = Cli::command();
    let names: Vec<_> = command.get_subcommands().map(clap::Command::get_name).collect();
    assert_eq!(
        names,
        [
            "run",
            "tail",
            "log",
            "show",
            "get",
            "diff",
            "blame",
            "why",
            "drift",
            "churn",
            "coverage",
            "status",
            "ui",
            "timeline",
            "mcp",
            "init",
            "check",
            "rbac",
            "audit",
            "verify",
            "prove",
            "evidence",
            "replay",
            "restore",
            "sink",
            "demo",
            "completions",
            "man",
            "schema",
            "version"
        ]
    );
}

/// A minus before a duration says what the option says already.
#[test]
fn a_moment_with_a_minus_is_that_long_ago() {
    let read = |line: &str| {
        let words = line.replace('~', " ");
        let args = words.split('|').map(OsString::from).collect();
        parse(&counted_back(args)).map(|(cli, _)| cli.command)
    };
    #[expect(clippy::wildcard_enum_match_arm, reason = "the table has no other commands")]
    let since = |command: &Command| match command {
        Command::Log(args) => args.only.since,
        Command::Tail(args) => args.select.only.since,
        Command::Timeline(args) => args.since,
        other => panic!("{other:?}"),
    };
    let now = clock::clock().now;
    let ten_minutes = jiff::SignedDuration::from_mins(10);
    for line in [
        "decklog|log|deploy/web|--since|10m",
        "decklog|log|deploy/web|--since|-10m",
        "decklog|log|deploy/web|--since=-10m",
        "decklog|log|deploy/web|--since|-~10m",
        "decklog|log|deploy/web|--since|\u{2212}10m",
        "decklog|log|deploy/web|--since|-10~minutes",
        "decklog|log|deploy/web|--since|-10m|-n|shop",
        "decklog|tail|--since|-10m",
        "decklog|timeline|--html|-|--since|-10m",
    ] {
        let command = read(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        assert_eq!(since(&command).map(|since| now.duration_since(since)), Some(ten_minutes), "{line}");
    }
    let ago = |minutes: i64| Some(names::At::Ago(now - jiff::SignedDuration::from_mins(minutes)));
    for line in ["decklog|diff|--from|-2h|--to|-1h", "decklog|diff|--from=-2h|--to=-60m"] {
        let Ok(Command::Diff(args)) = read(line) else { panic!("{line}") };
        assert_eq!((args.from, args.to), (ago(120), ago(60)), "{line}");
    }
    for (line, objects) in [
        ("decklog|diff|-2h..-1h", &["\u{2212}2h..-1h"][..]),
        ("decklog|diff|deploy/web|-2h..|-n|shop", &["deploy/web", "\u{2212}2h.."]),
        ("decklog|diff|-2h|-1h", &["\u{2212}2h", "\u{2212}1h"]),
    ] {
        let Ok(Command::Diff(args)) = read(line) else { panic!("{line}") };
        assert_eq!(args.objects, objects, "{line}");
        let moments = args.objects.iter().filter(|word| !word.contains('/')).flat_map(|word| word.split(".."));
        for moment in moments.filter(|moment| !moment.is_empty()) {
            assert!(matches!(names::at(moment), Ok(names::At::Ago(_))), "{moment}");
        }
    }
    let Ok(Command::Get(args)) = read("decklog|get|deploy|web|--at|-10m") else { panic!() };
    assert_eq!(args.at, ago(10));
    let Ok(Command::Blame(args)) = read("decklog|blame|deploy/web|--at|-10m") else { panic!() };
    assert_eq!(args.at, ago(10));
    for (line, says) in [
        ("decklog|log|deploy/web|--since|-n|shop", "the moment is missing before the option -n"),
        ("decklog|log|deploy/web|--since|--until|10m", "the moment is missing before the option --until"),
        ("decklog|get|deploy|--at|-n|shop", "the moment is missing before the option -n"),
        ("decklog|log|deploy/web|--since", "a value is required"),
        ("decklog|log|deploy/web|--since|-10", "expected a duration like 10m"),
        ("decklog|log|deploy/web|--since|+10m", "+10m is still to come; 10m is that long ago"),
        ("decklog|diff|--from|-o", "the moment is missing before the option -o"),
    ] {
        let error = read(line).expect_err(line).to_string();
        assert!(error.contains(says), "{line}: {error}");
    }
}

#[test]
fn a_closed_pipe_is_a_quiet_end() {
    let failure = Failure::stdout(&io::Error::from(io::ErrorKind::BrokenPipe));
    assert_eq!((failure.exit(), failure.to_string().as_str()), (Exit::Done, ""));
    assert_eq!(Failure::stdout(&io::Error::from(io::ErrorKind::StorageFull)).exit(), Exit::Io);
}

/// Help about a command that the client lacks is the sentence about that.
#[test]
fn a_command_that_a_program_lacks_is_known_by_its_name() {
    let is_about = |line: &str| {
        let args: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        hints::is_about(&args, &["demo", "run"])
    };
    for line in ["decklog demo --help", "decklog help demo", "decklog --utc run -h", "decklog run"] {
        assert!(is_about(line), "{line}");
    }
    for line in ["decklog --help", "decklog tail --help", "decklog help", "decklog tail demo"] {
        assert!(!is_about(line), "{line}");
    }
}
