//! `decklog init`: a configuration for this cluster, by what its discovery and one's own rights say.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;

use super::output::{Out, plural};
use super::{Exit, Failure, Global, Outcome};
use crate::app::config::{self, Config, Loaded, Problems};
use crate::core::model;
use crate::core::spelling::is_dns_label;
use crate::journal;
use crate::watch;
use crate::watch::cluster::{self, Api, Limits};
use crate::watch::discovery::Discoverer;
use crate::watch::select::{check_access, select};

/// Arguments of `decklog init`.
#[derive(Args, Debug, Default)]
pub struct InitArgs {
    /// The file to write, or "-" to print it [default: that of --config, else ./config.toml]
    pub file: Option<PathBuf>,
    /// Overwrite an existing file
    #[arg(long)]
    pub force: bool,
    /// The kubeconfig to use, which the file then names
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig to use, which the file then names
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
}

/// Resources that `"*"` excludes by default, with the reason for a comment.
const LEFT_OUT: [(&[&str], &str); 3] = [
    (
        &["events", "events.events.k8s.io"],
        "# Events: each Pod that comes or goes writes several. They say little that the objects themselves do not.\n\
         #[[watch]]\n#resources = [\"events\"]\n",
    ),
    (
        &["leases.coordination.k8s.io"],
        "# Leases: each node and each leader renews its own every few seconds. `ignore` records who leads, and no renewal.\n\
         #[[watch]]\n#resources = [\"leases.coordination.k8s.io\"]\n#ignore = [\"leader-election\", \"heartbeats\"]\n",
    ),
    (
        &["secrets"],
        "# Secrets: the right to watch them is the right to read them. decklog replaces their values by digests before they\n\
         # reach the disk, so the log shows who changes them, and never what they hold.\n\
         #[[watch]]\n#resources = [\"secrets\"]\n",
    ),
];

/// Comment for a kubeconfig that names a program.
const PROGRAM: &str = "
# The kubeconfig names a program that gives the credentials. It runs for you at a terminal; a service has to be allowed to.
#allow_exec = true
";

/// Writes a configuration for this cluster.
///
/// # Errors
/// Where the file is there already, or the cluster does not say what it has.
pub fn main(args: InitArgs, global: &Global) -> Outcome {
    let named = args.file.or_else(|| global.config_file().map(Path::to_owned));
    let file = named.unwrap_or_else(|| config::STANDARD_FILES[0].into());
    let prints = file == Path::new("-");
    if !prints && !args.force && file.exists() {
        return Err(there_already(&file));
    }
    let mut survey = Survey::begin(global)?;
    if let Some(path) = &args.kubeconfig {
        survey.cluster.kubeconfig = Some(absolute(path)?);
    }
    survey.cluster.context = args.context.or(survey.cluster.context);
    if file.starts_with("/etc/decklog") && global.state.is_none() && survey.is_default_state() {
        survey.state = "/var/lib/decklog".into();
    }
    super::block_on(survey.ask())?;
    let text = survey.text()?;
    let mut out = Out::new(global);
    if prints {
        out.bytes(text.as_bytes())?;
    } else {
        write(&file, &text, args.force)?;
        out.line(&format!(
            "{} is written: {} of the cluster {}. `decklog check` looks at it, `decklog run` begins.",
            file.display(),
            plural(survey.watched.len() as u64, "resource", "resources"),
            survey.name,
        ))?;
    }
    out.flush()?;
    Ok(Exit::Done)
}

/// The configuration for whoever runs the daemon, or tries it out: where there is no file, the one that `decklog init` would
/// write.
///
/// # Errors
/// Where the file is wrong, or there is none and the cluster does not say what it has.
pub fn configuration(global: &Global) -> Result<Loaded, Failure> {
    of_survey(global, false)
}

/// The configuration for whoever grants the rights: as [`configuration`], with what these credentials may not read yet.
///
/// # Errors
/// As [`configuration`].
pub(super) fn wanted(global: &Global) -> Result<Loaded, Failure> {
    of_survey(global, true)
}

fn of_survey(global: &Global, whatever: bool) -> Result<Loaded, Failure> {
    if global.has_config() {
        return global.load();
    }
    let mut survey = Survey { whatever, ..Survey::begin(global)? };
    super::block_on(survey.ask()).map_err(|failure| {
        let text = format!(
            "there is no configuration file ({}), and without one decklog asks the cluster of your kubeconfig what to watch: \
             {failure}. --config FILE names a file that is elsewhere; `decklog demo` needs neither",
            config::STANDARD_FILES.join(", ")
        );
        Failure::new(failure.exit(), text)
    })?;
    global.with_state(Config::made(&survey.text()?))
}

fn there_already(file: &Path) -> Failure {
    let file = file.display();
    Failure::no(format!("{file} is there already: `decklog init --force` writes over it, `decklog init -` prints"))
}

fn write(file: &Path, text: &str, force: bool) -> Result<(), Failure> {
    let opened = OpenOptions::new().write(true).create(true).truncate(true).create_new(!force).open(file);
    opened.and_then(|mut opened| opened.write_all(text.as_bytes())).map_err(|error| {
        if error.kind() == io::ErrorKind::AlreadyExists {
            there_already(file)
        } else {
            Failure::io(format!("{} cannot be written", file.display()), &error)
        }
    })
}

fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path).map_err(|error| Failure::io("cannot tell the present directory", &error))
}

fn wrong(problems: Problems) -> Failure {
    Failure::new(Exit::Config, problems.to_string())
}

/// Facts that a configuration is built from.
#[derive(Debug, Default)]
struct Survey {
    cluster: cluster::Settings,
    state: PathBuf,
    name: String,
    /// A program gives the credentials, which only a person at a terminal may have run.
    runs_program: bool,
    /// Takes what may not be read for what may.
    whatever: bool,
    /// Resources that may be listed and watched, without the excluded ones.
    watched: Vec<String>,
    /// Resources that may not.
    denied: Vec<String>,
}

impl Survey {
    /// Collects the facts that the environment gives without the cluster.
    fn begin(global: &Global) -> Result<Self, Failure> {
        let config = Config::made("[[watch]]\nresources = [\"*\"]\n").map_err(wrong)?.config;
        let state = absolute(global.state.as_ref().unwrap_or(&config.state.path))?;
        Ok(Self { cluster: config.cluster, state, ..Self::default() })
    }

    fn is_default_state(&self) -> bool {
        absolute(&journal::Settings::default().path).is_ok_and(|path| path == self.state)
    }

    /// Asks the cluster what it serves, and what of that we may read.
    async fn ask(&mut self) -> Result<(), Failure> {
        let failed = |text: String| Failure::new(Exit::Config, text);
        let api = Api::open(&self.cluster, Limits::default()).await.map_err(|error| failed(error.to_string()))?;
        let unsaid = |what: &str, error: cluster::Failure| {
            failed(format!("the API server of {} does not say {what}: {error}", api.name()))
        };
        let discovered = Discoverer::default().discover(&api).await;
        let discovered = discovered.map_err(|error| unsaid("which resources there are", error))?;
        let exclude = LEFT_OUT.iter().flat_map(|(names, _)| *names).map(|name| (*name).to_owned()).collect();
        let everything = watch::Settings { resources: vec!["*".to_owned()], exclude, ..watch::Settings::default() };
        let sources = select(&[everything], &discovered).sources;
        let asked = if self.whatever { &[] } else { &sources[..] };
        let access = check_access(&api, asked).await.map_err(|error| unsaid("what may be read", error))?;
        let is_denied = |source: &model::SourceSpec| access.iter().any(|one| !one.allowed && one.source == *source);
        let (denied, watched): (Vec<_>, Vec<_>) = sources.iter().partition(|source| is_denied(source));
        let names = |sources: Vec<&model::SourceSpec>| {
            // An aggregated API server may call what it serves anything; no API of Kubernetes takes other names.
            let is_name = |name: &String| name.split('.').all(is_dns_label);
            let mut names: Vec<String> =
                sources.iter().map(|source| source.resource.full_name()).filter(is_name).collect();
            names.sort_unstable();
            names
        };
        self.runs_program = api.runs_unasked();
        (self.name, self.watched, self.denied) = (api.name().to_owned(), names(watched), names(denied));
        if self.watched.is_empty() {
            return Err(failed(format!(
                "these credentials may list and watch nothing in all namespaces of {}; where they may in some, write a \
                 config.toml with [[watch]] resources and namespaces, and `decklog check` says more",
                self.name
            )));
        }
        Ok(())
    }

    /// The file, which was read once and found right.
    fn text(&self) -> Result<String, Failure> {
        let text = self.write();
        Config::made(&text).map_err(wrong)?;
        Ok(text)
    }

    fn write(&self) -> String {
        let set = |key: &str, value: Option<String>, example: &str| match value {
            Some(value) => format!("{key} = {}\n", quoted(&value)),
            None => format!("#{key} = {}\n", quoted(example)),
        };
        let kubeconfig = self.cluster.kubeconfig.as_ref().map(|path| path.display().to_string());
        let left_out: Vec<String> =
            LEFT_OUT.iter().flat_map(|(names, _)| *names).map(|name| (*name).to_owned()).collect();
        let mut text = format!(
            "# decklog's configuration for the cluster {}, made by `decklog init`. `decklog check` finds what is wrong with it,\n\
             # and SIGHUP makes a running decklog read it again. `decklog schema` prints every key.\n\
             \n\
             [cluster]\n\
             # How entries name the cluster.\n\
             {}\n\
             # How to reach it. Default: $KUBECONFIG, ~/.kube/config, the service account of the Pod that decklog runs in.\n\
             {}\n\
             # Which context of the kubeconfig to use. Default: its current context.\n\
             {}{}\n\
             [state]\n\
             # The directory with the journal, on a local disk.\n\
             {}\n\
             # The journal never outgrows this, and entries older than that go when every sink has taken them.\n\
             #max_size = \"10GiB\"\n\
             #max_age = \"30d\"\n\
             \n\
             [[watch]]\n",
            printable(&self.name),
            set("name", Some(self.name.clone()), ""),
            set("kubeconfig", kubeconfig, "/etc/decklog/kubeconfig"),
            set("context", self.cluster.context.clone(), "prod"),
            if self.runs_program { PROGRAM } else { "" },
            set("path", Some(self.state.display().to_string()), ""),
        );
        if self.denied.len() > self.watched.len() {
            text += "# Resources that these credentials may list and watch.\n";
            text += &list("resources", &self.watched);
        } else {
            text += &format!(
                "# Everything that can be listed and watched: {} now, and what is installed later.\n",
                plural(self.watched.len() as u64, "resource", "resources")
            );
            text += &list("resources", &["*".to_owned()]);
            text += "\n# What \"*\" leaves out. The reasons are below.\n";
            if !self.denied.is_empty() {
                text += &format!("# These credentials may not list and watch {}.\n", self.denied.join(", "));
            }
            text += &list("exclude", &[left_out, self.denied.clone()].concat());
        }
        text += "\n# Namespaces that are left out, by name or by a pattern. Default: none.\n#exclude_namespaces = [\"ci-*\"]\n\n";
        text += "# Left out. Take the \"#\" of the lines away to record it as well.\n\n";
        for (_, section) in LEFT_OUT {
            text += section;
            text.push('\n');
        }
        text += "# Where the log goes beside the journal, which `decklog tail` and `decklog log` read. Default: nowhere.\n\
                 #[[sink]]\n#name = \"audit\"\n#type = \"file\"\n#path = \"/var/log/decklog/events.jsonl\"\n";
        text
    }
}

/// A key with a list of names, one in a line where there are many.
fn list(key: &str, names: &[String]) -> String {
    let names: Vec<String> = names.iter().map(|name| quoted(name)).collect();
    if names.len() > 4 {
        format!("{key} = [\n    {},\n]\n", names.join(",\n    "))
    } else {
        format!("{key} = [{}]\n", names.join(", "))
    }
}

/// A text as TOML writes it.
fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

/// A text in a comment, which ends with its line.
fn printable(text: &str) -> String {
    super::output::printable(text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::config::Files;

    fn survey(watched: &[&str], denied: &[&str]) -> Survey {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Survey {
            state: "/srv/log".into(),
            name: "prod \"eu\"\n[x]".to_owned(),
            watched: owned(watched),
            denied: owned(denied),
            ..Survey::default()
        }
    }

    fn parse(text: &str) -> Config {
        Config::parse(text, "config.toml", &[], Files::Check)
            .unwrap_or_else(|problems| panic!("{problems}\n{text}"))
            .config
    }

    #[test]
    fn everything_is_watched_but_what_may_not_be_or_should_not() {
        let config = parse(&survey(&["configmaps", "pods"], &[]).write());
        assert_eq!(
            config.cluster,
            cluster::Settings { name: Some("prod \"eu\"\n[x]".to_owned()), ..cluster::Settings::default() }
        );
        assert_eq!(config.state.path, Path::new("/srv/log"));
        assert_eq!((config.watch.len(), &config.watch[0].resources[..]), (1, &["*".to_owned()][..]));
        let left_out = ["events", "events.events.k8s.io", "leases.coordination.k8s.io", "secrets"];
        assert_eq!(config.watch[0].exclude, left_out);
        let config = parse(&survey(&["configmaps", "pods"], &["nodes"]).write());
        assert_eq!(config.watch[0].exclude, [&left_out[..], &["nodes"]].concat());
        // Who may read little gets what there is.
        let config = parse(&survey(&["pods"], &["nodes", "jobs.batch"]).write());
        assert_eq!((&config.watch[0].resources[..], config.watch[0].exclude.len()), (&["pods".to_owned()][..], 0));
    }

    #[test]
    fn what_is_not_the_default_is_named() {
        let mut survey = survey(&["pods"], &[]);
        survey.cluster.kubeconfig = Some("/home/me/c:\\x".into());
        survey.cluster.context = Some("eu".to_owned());
        assert!(!survey.write().contains("allow_exec"), "nothing is to be allowed");
        survey.runs_program = true;
        assert!(survey.write().contains("\n\n# The kubeconfig names a program"));
        let cluster = parse(&survey.write().replace("#allow_exec", "allow_exec")).cluster;
        assert_eq!(cluster.allow_exec, Some(true));
        assert_eq!((cluster.kubeconfig, cluster.context), (survey.cluster.kubeconfig, survey.cluster.context));
    }

    #[test]
    fn what_is_commented_out_works_without_the_comment() {
        let text = survey(&["pods"], &[]).write();
        let uncommented = |line: &str| match line.strip_prefix('#') {
            Some(rest) if !rest.starts_with(' ') => rest.to_owned(),
            Some(_) | None => line.to_owned(),
        };
        let config = parse(&text.lines().map(|line| uncommented(line) + "\n").collect::<String>());
        let resources: Vec<&str> = config.watch.iter().flat_map(|watch| &watch.resources).map(String::as_str).collect();
        assert_eq!(resources, ["*", "events", "leases.coordination.k8s.io", "secrets"]);
        assert_eq!((config.watch[0].exclude_namespaces.len(), config.sink.len()), (1, 1));
    }
}
