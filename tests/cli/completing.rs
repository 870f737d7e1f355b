//! What the four shells offer for a line, asked in the shells themselves with the scripts that `completions` prints.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use clap::CommandFactory;
use decklog::app::cli::Cli;
use decklog::core::model::Verb;
use decklog::journal::{SinkStart, WatchChange};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::State;
use crate::object;

/// A shell, and a script for it that prints into the file `offered`, for each line of the file `lines`, the line after
/// `== ` and then what the shell offers for the last word of it.
struct Shell {
    name: &'static str,
    args: &'static [&'static str],
    script: &'static str,
    /// Whether the lines are typed, each with a Tab, when the shell is ready.
    typed: bool,
}

const SHELLS: [Shell; 4] = [
    Shell {
        name: "bash",
        args: &["--noprofile", "--rcfile", "script", "-i"],
        script: r#"
            source <(decklog completions bash)
            record() {
                _decklog_journal "$@"
                printf '%s\n' "== $COMP_LINE" "${COMPREPLY[@]}" >> offered
            }
            spec=$(complete -p decklog)
            eval "${spec/_decklog_journal/record}"
            PS1='read''y> '
        "#,
        typed: true,
    },
    Shell {
        name: "zsh",
        args: &["--no-global-rcs", "-i"],
        script: r#"
            LISTMAX=100000
            autoload -Uz compinit && compinit -u -D
            source <(decklog completions zsh)
            compadd() {
                local -a found
                # Somebody else wants to know what matches.
                if [[ " ${(j: :)@[1,(i)--]} " == *" -"[OAD]" "* ]]; then builtin compadd "$@"; return; fi
                builtin compadd -O found "$@"
                print -rl -- "${found[@]}" >> offered
                builtin compadd "$@"
            }
            zle-line-init() {
                local line
                for line in "${(@f)$(<lines)}"; do
                    print -r -- "== $line" >> offered
                    BUFFER=$line CURSOR=${#line}
                    zle list-choices
                done
                exit
            }
            zle -N zle-line-init
        "#,
        typed: false,
    },
    Shell {
        name: "fish",
        args: &["--no-config", "script"],
        script: r#"
            decklog completions fish | source
            while read line
                echo "== $line"
                complete -C "$line"
            end < lines > offered
        "#,
        typed: false,
    },
    Shell {
        name: "elvish",
        args: &["-rc", "script", "-sock", "socket", "-db", "database"],
        script: r#"
            use str
            eval (decklog completions elvish | slurp)
            from-lines < lines | each {|line|
                echo "== "$line
                var offer = $edit:completion:arg-completer[decklog]
                $offer (str:split ' ' $line) | each {|one| if (eq (kind-of $one) string) { echo $one } else { echo $one[stem] } }
            } > offered
            exit
        "#,
        typed: false,
    },
];

impl Shell {
    /// What it offers for each of these lines.
    fn offers(&self, state: &State, lines: &[String]) -> Vec<BTreeSet<String>> {
        let home = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(home.path().join(name), text).unwrap();
        write("lines", &(lines.join("\n") + "\n"));
        write("script", self.script);
        write(".zshrc", self.script);
        let shown = self.run(state, home.path(), lines);
        let offered = fs::read_to_string(home.path().join("offered")).unwrap_or_default();
        let mut found: Vec<(&str, BTreeSet<String>)> = Vec::new();
        for line in offered.lines() {
            if let Some(asked) = line.strip_prefix("== ") {
                found.push((asked, BTreeSet::new()));
            } else if let Some((_, offers)) = found.last_mut() {
                // fish tells what each is for, and zsh whether a value follows.
                let word = line.split('\t').next().unwrap_or_default();
                let flag = word.strip_suffix('=').filter(|word| word.starts_with("--"));
                offers.extend(Some(flag.unwrap_or(word).to_owned()).filter(|word| !word.is_empty()));
            }
        }
        let asked: Vec<&str> = found.iter().map(|(line, _)| *line).collect();
        assert_eq!(asked, lines, "{}: {shown}", self.name);
        found.into_iter().map(|(_, offers)| offers).collect()
    }

    /// Runs it on a terminal of its own until it ends, and gives what it showed.
    fn run(&self, state: &State, home: &Path, lines: &[String]) -> String {
        let leader = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&leader).unwrap();
        unlockpt(&leader).unwrap();
        let path = ptsname(&leader, Vec::new()).unwrap();
        let follower = || Stdio::from(File::options().read(true).write(true).open(path.to_str().unwrap()).unwrap());
        let programs = Path::new(env!("CARGO_BIN_EXE_decklog")).parent().unwrap();
        let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
        let mut command = Command::new("setsid");
        command.arg("-c").arg(self.name).args(self.args).current_dir(home).env_clear();
        command.envs([("PATH", path.as_str()), ("TERM", "dumb"), ("LANG", "C.UTF-8")]);
        command.env("HOME", home).env("ZDOTDIR", home).env("STATE_DIRECTORY", state.dir.path());
        let mut child = command.stdin(follower()).stdout(follower()).stderr(follower()).spawn().unwrap();
        drop(command);
        let mut terminal = File::from(leader);
        let (mut shown, mut bytes, mut waits) = (String::new(), [0; 4096], self.typed);
        loop {
            let limit = Timespec::try_from(Duration::from_secs(60)).unwrap();
            if poll(&mut [PollFd::new(&terminal, PollFlags::IN)], Some(&limit)).unwrap() == 0 {
                child.kill().unwrap();
                panic!("{} stands still: {shown}", self.name);
            }
            // The end of a terminal is an error.
            let Ok(count @ 1..) = terminal.read(&mut bytes) else { break };
            shown.push_str(&String::from_utf8_lossy(&bytes[..count]));
            if waits && shown.contains("ready> ") {
                waits = false;
                // A Tab asks, and Ctrl-U takes the line away.
                let typed: String = lines.iter().map(|line| format!("{line}\t\u{15}")).collect();
                terminal.write_all(format!("{typed}exit\r").as_bytes()).unwrap();
            }
        }
        child.wait().unwrap();
        shown
    }
}

/// Where one is not there, what to do.
fn shells() -> [Shell; 4] {
    let path = std::env::var_os("PATH").unwrap();
    let is_there = |name: &str| std::env::split_paths(&path).any(|dir| dir.join(name).is_file());
    let missing: Vec<&str> =
        SHELLS.iter().map(|shell| shell.name).chain(["setsid"]).filter(|name| !is_there(name)).collect();
    assert!(missing.is_empty(), "missing: {}; `tests/run completions` installs them", missing.join(", "));
    SHELLS
}

async fn told() -> State {
    let state = State::told().await;
    drop(state.journal.sink("audit", "file", SinkStart::Start).await.unwrap());
    state
}

#[tokio::test]
async fn completions_offer_what_the_journal_has_in_each_shell() {
    let state = told().await;
    // Nothing that a shell would obey is offered.
    state
        .list(50, None, &[object("shop", "$(reboot)", 41), object("shop", "api", 42), object("shop", "web", 43)])
        .await;
    // A program is known by its entries.
    let mut written = object("shop", "api", 51);
    let text = String::from_utf8(written.body.bytes).unwrap();
    let books = r#"{"metadata":{"managedFields":[{"manager":"kubectl-set","operation":"Update","fieldsV1":{}}],"#;
    written.body.bytes = text.replacen(r#"{"metadata":{"#, books, 1).into_bytes();
    state.watch(vec![WatchChange { verb: Verb::Upsert, object: written }]).await;
    let named = format!("decklog --state {} tail -n p", state.dir.path().display());
    let cases = [
        ("decklog tail -n ", &["pay", "shop"][..]),
        ("decklog tail deploy --namespace s", &["shop"]),
        ("decklog tail -n pay,s", &["pay,shop"]),
        ("decklog tail --type D", &["DELETED"]),
        (
            "decklog log deploy/web --type ADDED,",
            &["ADDED,ACTOR", "ADDED,ADDED", "ADDED,DELETED", "ADDED,GAP", "ADDED,MODIFIED"],
        ),
        ("decklog get dep", &["deploy", "deployments", "deployments.apps"]),
        ("decklog log deploy/", &["deploy/api", "deploy/web"]),
        ("decklog blame deploy/w", &["deploy/web"]),
        ("decklog diff deploy/a", &["deploy/api"]),
        ("decklog churn dep", &["deploy", "deployments", "deployments.apps"]),
        ("decklog drift dep", &["deploy", "deployments", "deployments.apps"]),
        ("decklog log -n pay deploy/", &["deploy/web"]),
        ("decklog get deploy a", &["api"]),
        ("decklog get -o json --at 10m deploy ", &["api", "web"]),
        ("decklog tail --since 1", &["10m", "1d", "1h"]),
        ("decklog diff --to y", &["yesterday"]),
        ("decklog get deploy/api --at to", &["today"]),
        ("decklog tail --by kube", &["kubectl-set"]),
        ("decklog tail --touched .spec.r", &[".spec.replicas"]),
        ("decklog churn --touched repl", &["replicas"]),
        ("decklog why deploy/a", &["deploy/api"]),
        ("decklog why deploy/api .spec", &[".spec", ".spec.exact", ".spec.replicas"]),
        ("decklog blame deploy/api .spec", &[".spec", ".spec.exact", ".spec.replicas"]),
        ("decklog blame deploy api /spec/r", &["/spec/replicas"]),
        ("decklog replay --sink ", &["audit"]),
        ("decklog sink init a", &["audit"]),
        ("decklog tail --color ", &["always", "auto", "never"]),
        ("decklog check --color n", &["never"]),
        ("decklog completions el", &["elvish"]),
        (&named, &["pay"]),
    ];
    let lines: Vec<String> = cases.iter().map(|(line, _)| (*line).to_owned()).collect();
    for shell in shells() {
        for ((line, expected), offers) in cases.iter().zip(shell.offers(&state, &lines)) {
            assert_eq!(offers, expected.iter().map(|word| (*word).to_owned()).collect(), "{}: {line:?}", shell.name);
        }
    }
}

/// What the command line takes is read off itself, so that nobody forgets a flag here.
#[tokio::test]
async fn completions_offer_every_command_and_flag_in_each_shell() {
    let state = told().await;
    let mut cli = Cli::command();
    cli.build();
    let (mut lines, mut expected) = (Vec::new(), Vec::new());
    let mut commands = vec![("decklog".to_owned(), &cli)];
    while let Some((line, command)) = commands.pop() {
        let below: Vec<_> = command.get_subcommands().filter(|below| below.get_name() != "help").collect();
        let names: BTreeSet<String> = below.iter().map(|below| below.get_name().to_owned()).collect();
        commands.extend(below.iter().map(|below| (format!("{line} {}", below.get_name()), *below)));
        if !names.is_empty() {
            lines.push(format!("{line} "));
            expected.push(names);
        }
        let shown = command.get_arguments().filter(|arg| !arg.is_hide_set());
        lines.push(format!("{line} --"));
        expected.push(shown.filter_map(|arg| arg.get_long().map(|long| format!("--{long}"))).collect());
    }
    assert!(lines.len() > 20 && expected.iter().all(|words| !words.is_empty()), "{lines:?}");
    for shell in shells() {
        for ((line, expected), offers) in lines.iter().zip(&expected).zip(shell.offers(&state, &lines)) {
            let missing: Vec<&String> = expected.difference(&offers).collect();
            assert!(missing.is_empty(), "{}: {line:?} offers {offers:?} and not {missing:?}", shell.name);
        }
    }
}

/// What no shell needs to be asked for.
#[tokio::test]
async fn a_word_is_completed_as_it_was_split() {
    let state = told().await;
    let words = |words: &[&str]| state.run(&[&["__complete"], words].concat()).out;
    assert_eq!(words(&["tail", "--type=D"]), "--type=DELETED\n");
    assert_eq!(words(&["tail", "--type", "=", "D"]), "DELETED\n");
    assert_eq!(words(&["tail", "--type", "="]), "ADDED\nMODIFIED\nDELETED\nGAP\nACTOR\n");
    assert_eq!(words(&["log", "--namespace=pay", "deploy/"]), "deploy/web\n");
    assert_eq!(words(&["tail", "--type", "d"]), "DELETED\n");
    // Of a log one object is asked for.
    for nothing in [&["log", "deploy/web", "d"][..], &["tail", "--where", ""], &["tail", "-"], &["frobnicate", ""], &[]]
    {
        assert_eq!(words(nothing), "", "{nothing:?}");
    }
    let nowhere = state.run(&["__complete", "--state", "/nowhere", "tail", ""]);
    assert_eq!((nowhere.out.as_str(), nowhere.err.as_str()), ("", ""));
}
