//! Text of the man pages beyond the definition of the command line.

/// A thing, and what it is.
type Said = (&'static str, &'static str);

/// The first paragraphs of decklog(1).
pub(super) const DESCRIPTION: [&str; 3] = [
    "decklog watches the objects of a Kubernetes cluster and writes down every change once, in order, in a journal of its own. \
     It delivers that log to sinks such as files, Kafka or PostgreSQL, and takes it up where it was after every restart.",
    "`decklog run` is the daemon. The reading commands (`tail`, `log`, `show`, `get`, `diff`, `blame`, `why`, `drift`, `churn`, `status`) read \
     its journal, while it runs and when it does not, and need no cluster. Under the name `kubectl-decklog` the same program is \
     a plugin of kubectl: `kubectl decklog log deploy/web`.",
    "`decklog demo` shows all of it on a simulated cluster, without any configuration.",
];

/// Exit codes.
pub(super) const EXIT: [Said; 8] = [
    ("0", "Done."),
    ("1", "The answer is no: `check` found a problem, `verify` found damage, `get` found nothing."),
    ("3", "`verify` of a copy found nothing wrong, and has no journal that proves it."),
    ("64", "The command line is wrong."),
    ("70", "A bug in decklog."),
    ("74", "Input or output failed, such as the disk."),
    ("75", "Another decklog holds the state directory."),
    ("78", "The configuration, or what it points to, is wrong."),
];

/// Signals of the daemon.
pub(super) const SIGNALS: [Said; 2] = [
    ("SIGTERM, SIGINT", "Stop, with every position kept. A second one stops at once."),
    (
        "SIGHUP",
        "Read the configuration again and open files again. A wrong configuration is refused, and the old one kept.",
    ),
];

/// The variables that are read.
pub(super) const ENVIRONMENT: [Said; 7] = [
    ("DECKLOG_CONFIG", "The configuration, where `--config` names none."),
    ("DECKLOG_SERVER", "Where the log is read, where `--server` names nothing. See `--server`."),
    (
        "DECKLOG_TABLE_KEY",
        "A value of the configuration, by its table and key: `DECKLOG_STATE_MAX_SIZE`. See decklog-config(5).",
    ),
    ("DECKLOG_PAGER, PAGER", "The pager of long answers; without them it is `less`."),
    ("KUBECONFIG", "The kubeconfig, where the configuration names none."),
    ("NO_COLOR", "No colours."),
    ("TZ", "The zone in which times are read and printed."),
];

/// The files that are read and written.
pub(super) const FILES: [Said; 4] = [
    ("/etc/decklog/config.toml", "The configuration of the service, decklog-config(5)."),
    ("/etc/decklog/NAME.toml", "The configuration of the service `decklog@NAME`, one of several."),
    ("/var/lib/decklog", "The state directory of the service, with the journal."),
    ("/var/log/decklog", "Files that the sinks of the service write."),
];

/// Command lines worth knowing, by the command.
pub(super) const EXAMPLES: [(&str, &[Said]); 22] = [
    (
        "",
        &[
            ("Who changed a Deployment, and what, newest first:", "decklog log deploy/web -n shop -p"),
            ("What happens now:", "decklog tail -f"),
            ("The least rights for this configuration:", "decklog rbac | kubectl apply -f -"),
        ],
    ),
    ("run", &[("In the foreground, with a configuration of your own:", "decklog run -c config.toml")]),
    (
        "tail",
        &[
            ("The last ten minutes, and what comes:", "decklog tail --since 10m -f"),
            ("What was deleted yesterday:", "decklog tail --type DELETED --since yesterday"),
            ("Who scaled something:", "decklog tail deploy --touched .spec.replicas"),
        ],
    ),
    (
        "log",
        &[
            ("A Deployment, with what changed in each step:", "decklog log deploy/web -n shop -p"),
            ("With its ReplicaSets and Pods:", "decklog log deploy/web -n shop --tree"),
        ],
    ),
    ("show", &[("The entry 4711, as a sink gets it:", "decklog show 4711 -o json")]),
    (
        "get",
        &[
            ("A Deployment as it was an hour ago:", "decklog get deploy/web -n shop --at 1h"),
            ("Back to that version:", "decklog get deploy/web -n shop --at 1h --clean | kubectl apply -f -"),
        ],
    ),
    ("diff", &[("What changed in a namespace in the last hour:", "decklog diff -n shop --from 1h")]),
    ("blame", &[("Who set the replicas, and when:", "decklog blame deploy/web -n shop .spec.replicas")]),
    ("why", &[("The commit and the person behind an image:", "decklog why deploy/web -n shop image")]),
    (
        "drift",
        &[
            ("What differs now from what GitOps set:", "decklog drift --open"),
            ("Whether anything does, for a script:", "decklog drift --open --check"),
            ("What self-heal restored today:", "decklog drift -n shop --since 24h"),
        ],
    ),
    ("churn", &[("Who wrote most today:", "decklog churn --since 24h")]),
    (
        "coverage",
        &[("Whether the log knows all of the last hour, for a script:", "decklog coverage --since 1h --check")],
    ),
    ("mcp", &[("For an assistant, the log of another machine:", "decklog mcp --server https://decklog.example:9465")]),
    ("status", &[("Whether there is an alarm, for a script:", "decklog status --check")]),
    ("init", &[("A configuration for this cluster, on standard output:", "decklog init -")]),
    ("check", &[("The configuration of the service:", "decklog check -c /etc/decklog/config.toml")]),
    ("rbac", &[("Into the cluster:", "decklog rbac | kubectl apply -f -")]),
    (
        "audit",
        &[
            ("The policy for kube-apiserver:", "decklog audit policy > audit-policy.yaml"),
            ("The flags that go with it:", "decklog audit setup"),
        ],
    ),
    ("restore", &[("The state directory that was lost:", "decklog restore --from archive")]),
    ("verify", &[("A file that a sink wrote:", "decklog verify events.jsonl")]),
    ("replay", &[("Entries 100 to 200 once more:", "decklog replay --sink audit --from 100 --to 200")]),
    (
        "man",
        &[
            ("The page of a command:", "decklog man log | man -l -"),
            ("All of them:", "decklog man --dir /usr/local/share/man/man1"),
        ],
    ),
];
