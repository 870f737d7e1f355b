//! A directory of configurations: each `*.toml` in it is that of one cluster.
//!
//! What is wrong with one file keeps no other from being used. So what two files cannot both have is a problem of the
//! one that comes later: those that run come before those that do not, and otherwise the names of the files decide.

use std::fs;
use std::path::{Path, PathBuf};

use super::problem::{Problem, Problems, SourceSpan};
use super::{Config, Files, GRAMMAR, Given, Loaded, environment, read, variable};
use crate::audit_log::{self, Mistake};
use crate::core::telemetry;
use crate::journal;
use crate::web::http;
use crate::web::ui;

/// The configurations of several clusters.
#[derive(Clone, Debug)]
pub struct Directory {
    /// Path of the file.
    pub path: PathBuf,
    /// One for each file, by the names of the files.
    pub files: Vec<ClusterFile>,
    /// The endpoints of all of them: those of the first file that has any.
    pub http: Option<http::Settings>,
    /// The timeline page of all of them, likewise.
    pub ui: Option<ui::Settings>,
    /// decklog's own log: that of the first file that has it.
    pub log: telemetry::Settings,
}

/// The configuration of one cluster.
#[derive(Clone, Debug)]
pub struct ClusterFile {
    /// Name for `--cluster`: `[cluster] name`, else the stem of the file.
    pub name: String,
    /// The file.
    pub path: PathBuf,
    /// Its state directory, as far as the file says it, also where something else is wrong.
    pub state: PathBuf,
    /// The configuration without `[http]`, which is for all clusters; or its errors.
    pub loaded: Result<Loaded, Problems>,
}

impl Directory {
    /// Reads the configurations in `dir`. `first` are files that come before others, because they run.
    ///
    /// # Errors
    /// Where there are none, or they cannot be read.
    pub fn read(dir: &Path, files: Files, first: &[PathBuf]) -> Result<Self, Problems> {
        Self::read_with(dir, &environment(), files, first)
    }

    /// Reads as [`Directory::read`] does, with this environment.
    ///
    /// # Errors
    /// Where there are none, or they cannot be read.
    pub fn read_with(
        dir: &Path,
        environment: &[(String, String)],
        files: Files,
        first: &[PathBuf],
    ) -> Result<Self, Problems> {
        let whole = |found: String, expected: &str| {
            Problems::whole(dir.display().to_string(), found, format!("{expected}; --config-dir names it"))
        };
        let paths = list(dir).map_err(|error| {
            whole(format!("a directory that cannot be read: {error}"), "a directory that this user can read")
        })?;
        if paths.is_empty() {
            let expected = "a directory with a file NAME.toml for each cluster";
            return Err(whole("no file that ends in .toml".to_owned(), expected));
        }
        let schema = &*GRAMMAR;
        let base = variable(environment, "STATE_DIRECTORY").and_then(|text| text.split(':').next());
        let base = base.map_or_else(|| journal::Settings::default().path, PathBuf::from);
        let mut found: Vec<Found> = paths
            .into_iter()
            .map(|path| {
                let mut given = Given::default();
                let name = path.display().to_string();
                let loaded = read(&path)
                    .and_then(|text| Config::parse_given(&text, &name, environment, files, schema, &mut given))
                    .map(|loaded| Loaded { path: Some(path.clone()), ..loaded });
                let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                let name = given.name.clone().unwrap_or(stem);
                let state = given.state.as_ref().map_or_else(|| base.join(&name), PathBuf::from);
                Found { name, path, state, given, loaded }
            })
            .collect();
        let mut shared = Shared::default();
        found.sort_by_key(|found| !first.contains(&found.path));
        for one in &mut found {
            shared.admit(one);
        }
        for at in 0..found.len() {
            if found[at].loaded.is_err() && found.iter().filter(|other| other.name == found[at].name).count() > 1 {
                // No cluster is called like a file.
                found[at].name = found[at].path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            }
        }
        let log = shared.log.map(|(_, log)| log).unwrap_or_default();
        let ui = shared.ui.map(|(_, ui)| ui);
        for loaded in found.iter_mut().filter_map(|found| found.loaded.as_mut().ok()) {
            loaded.config.log = log.clone();
            loaded.config.http = None;
            // Each makes the outlines of its own log for the page of all.
            loaded.config.ui.clone_from(&ui);
        }
        let mut files: Vec<ClusterFile> = found
            .into_iter()
            .map(|Found { name, path, state, loaded, .. }| ClusterFile { name, path, state, loaded })
            .collect();
        files.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(Self { path: dir.to_owned(), files, http: shared.http.map(|(_, http)| http), ui, log })
    }

    /// Returns the errors of the files that cannot be used.
    pub fn problems(&self) -> impl Iterator<Item = &Problems> {
        self.files.iter().filter_map(|file| file.loaded.as_ref().err())
    }

    /// The file of the cluster with this name.
    #[must_use]
    pub fn cluster(&self, name: &str) -> Option<&ClusterFile> {
        self.files.iter().find(|file| file.name == name)
    }

    /// The names of all clusters, as a sentence lists them.
    #[must_use]
    pub fn names(&self) -> String {
        self.files.iter().map(|file| file.name.as_str()).collect::<Vec<_>>().join(", ")
    }
}

/// The files in a directory that are configurations: no hidden ones, and no directories.
fn list(dir: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let hidden = path.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
        // A link that leads nowhere is a file that cannot be read, and is reported.
        if !hidden && path.extension().is_some_and(|extension| extension == "toml") && !path.is_dir() {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

struct Found {
    name: String,
    path: PathBuf,
    state: PathBuf,
    given: Given,
    loaded: Result<Loaded, Problems>,
}

/// Values that all valid files so far have in common.
#[derive(Default)]
struct Shared {
    clusters: Vec<Taken>,
    http: Option<(PathBuf, http::Settings)>,
    ui: Option<(PathBuf, ui::Settings)>,
    log: Option<(PathBuf, telemetry::Settings)>,
}

/// Values of a file that no other may have.
struct Taken {
    name: String,
    file: PathBuf,
    state: PathBuf,
    sinks: Vec<crate::delivery::Settings>,
    audit_logs: Vec<audit_log::Settings>,
}

impl Taken {
    /// Returns why this cluster and another one cannot both have such an audit log. Names need not differ: each journal has its own.
    fn clash(&self, log: &audit_log::Settings) -> Option<Mistake> {
        let clashes = self
            .audit_logs
            .iter()
            .flat_map(|own| log.clashes(own, &format!("the [[audit_log]] {} in {}", own.name(), self.file.display())));
        clashes.into_iter().find(|mistake| !matches!(mistake, Mistake::SameName(..)))
    }
}

impl Shared {
    /// Returns the keys of places that another cluster has already, with what was found and what is expected.
    fn taken(&self, config: &Config) -> Vec<(String, String, &'static str)> {
        let mut taken = Vec::new();
        for (index, sink) in config.sink.iter().enumerate() {
            let clash = |taken: &Taken| {
                taken.sinks.iter().find_map(|other| {
                    let other_name = format!("the sink {} in {}", other.name, taken.file.display());
                    sink.kind.clash(&other.kind, &other_name)
                })
            };
            if let Some(clash) = self.clusters.iter().find_map(clash) {
                taken.push((format!("sink[{index}].{}", clash.key), clash.found, clash.expected));
            }
        }
        for (index, log) in config.audit_log.iter().enumerate() {
            if let Some(mistake) = self.clusters.iter().find_map(|taken| taken.clash(log)) {
                let key = format!("audit_log[{index}].{}", mistake.key().unwrap_or_default());
                taken.push((key, mistake.found(), mistake.expected()));
            }
        }
        taken
    }

    /// Takes in what a file has, or says of it what others have already.
    fn admit(&mut self, one: &mut Found) {
        let Found { name, path, state, given, loaded } = one;
        let mut problems = Vec::new();
        let mut wrong = |key: String, found: String, expected: &str| {
            let expected = expected.to_owned();
            problems.push(Problem { place: SourceSpan::Whole, key, found, expected, nearest: None });
        };
        if let Some(taken) = self.clusters.iter().find(|taken| taken.name == *name) {
            let found = format!("{name:?}, which is the name of the cluster in {}", taken.file.display());
            wrong(
                "cluster.name".to_owned(),
                found,
                "a name that no other file has; without it, the name is that of the file",
            );
        }
        if let Ok(loaded) = loaded {
            let config = &mut loaded.config;
            if given.state.is_none() {
                if name.contains('/') || name.starts_with('.') || name.is_empty() {
                    let found = format!("{name:?}, which can be no directory");
                    wrong("cluster.name".to_owned(), found, "a name without \"/\", or a [state] path");
                }
                config.state.path.clone_from(state);
            }
            let own = config.state.path.clone();
            let state = real(&own);
            let nested = |taken: &&Taken| taken.state.starts_with(&state) || state.starts_with(&taken.state);
            if let Some(taken) = self.clusters.iter().find(nested) {
                let found = format!("{:?}, where {} keeps the journal of {}", own, taken.file.display(), taken.name);
                wrong("state.path".to_owned(), found, "a directory of its own, within that of no other cluster");
            }
            for (key, found, expected) in self.taken(config) {
                wrong(key, found, expected);
            }
            let expected =
                "the same in each file that has it, or in one file alone: it is for all clusters of the directory";
            let other = |file: &Path| format!("other values than in {}", file.display());
            if let (Some((file, http)), Some(own)) = (&self.http, &config.http)
                && http != own
            {
                wrong("http".to_owned(), other(file), expected);
            }
            if let (Some((file, ui)), Some(own)) = (&self.ui, &config.ui)
                && ui != own
            {
                wrong("ui".to_owned(), other(file), expected);
            }
            if let Some((file, log)) = self.log.as_ref().filter(|_| given.log)
                && *log != config.log
            {
                wrong("log".to_owned(), other(file), expected);
            }
            if problems.is_empty() {
                if self.http.is_none() {
                    self.http = config.http.clone().map(|http| (path.clone(), http));
                }
                if self.ui.is_none() {
                    self.ui = config.ui.clone().map(|ui| (path.clone(), ui));
                }
                if self.log.is_none() && given.log {
                    self.log = Some((path.clone(), config.log.clone()));
                }
                let (sinks, audit_logs) = (config.sink.clone(), config.audit_log.clone());
                self.clusters.push(Taken { name: name.clone(), file: path.clone(), state, sinks, audit_logs });
                return;
            }
        }
        match loaded {
            Ok(_) => *loaded = Err(Problems { file: path.display().to_string(), list: problems }),
            Err(known) => known.list.extend(problems),
        }
    }
}

/// A directory as the file system knows it, also where it is still to be made.
fn real(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    for known in path.ancestors() {
        if let (Ok(known_real), Ok(rest)) = (known.canonicalize(), path.strip_prefix(known)) {
            return known_real.join(rest);
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    const WATCH: &str = "[[watch]]\nresources = [\"pods\"]\n";

    fn directory(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(dir.path().join(name), format!("{text}\n{WATCH}")).unwrap();
        }
        dir
    }

    fn read_in(dir: &Path, first: &[&str]) -> Directory {
        let state = dir.join("state").display().to_string();
        let first: Vec<PathBuf> = first.iter().map(|name| dir.join(name)).collect();
        Directory::read_with(dir, &[("STATE_DIRECTORY".to_owned(), state)], Files::Check, &first).unwrap()
    }

    /// The names, each with what is wrong with it: the keys and what was found.
    fn found(directory: &Directory) -> Vec<(String, String)> {
        let wrong = |problems: &Problems| {
            let each = problems.list.iter().map(|problem| format!("{}: {}", problem.key, problem.found));
            each.collect::<Vec<_>>().join("; ")
        };
        let files = directory.files.iter();
        files.map(|file| (file.name.clone(), file.loaded.as_ref().err().map(wrong).unwrap_or_default())).collect()
    }

    #[test]
    fn each_file_is_a_cluster_with_a_journal_of_its_own() {
        let dir = directory(&[
            ("b.toml", ""),
            ("a.toml", "[cluster]\nname = \"prod-eu1\"\n"),
            (".hidden.toml", "broken"),
            ("notes.txt", "broken"),
        ]);
        fs::create_dir(dir.path().join("old.toml")).unwrap();
        let read = read_in(dir.path(), &[]);
        assert_eq!(read.names(), "prod-eu1, b");
        let state = |name: &str| read.cluster(name).unwrap().loaded.as_ref().unwrap().config.state.path.clone();
        assert_eq!(state("prod-eu1"), dir.path().join("state/prod-eu1"));
        assert_eq!(state("b"), dir.path().join("state/b"));
        let none = tempfile::tempdir().unwrap();
        let refused = Directory::read(none.path(), Files::Check, &[]).unwrap_err().to_string();
        assert!(refused.contains("no file that ends in .toml") && refused.contains("--config-dir"), "{refused}");
        let refused = Directory::read(&none.path().join("x"), Files::Check, &[]).unwrap_err().to_string();
        assert!(refused.contains("cannot be read"), "{refused}");
    }

    #[test]
    fn an_audit_log_is_of_one_cluster() {
        let listens = "[[audit_log]]\nlisten = \"127.0.0.1:9466\"\n";
        let reads = |file: &str| format!("[[audit_log]]\nfile = \"/var/log/{file}/audit.log\"\n");
        let dir = directory(&[
            ("a.toml", &format!("{listens}{}", reads("a"))),
            ("b.toml", listens),
            ("c.toml", &reads("a")),
            // Files of one name.
            ("d.toml", &reads("d")),
        ]);
        let wrong: Vec<String> = found(&read_in(dir.path(), &[])).into_iter().map(|(_, wrong)| wrong).collect();
        let a = dir.path().join("a.toml");
        let expected = [
            String::new(),
            format!(
                "audit_log[0].listen: \"127.0.0.1:9466\", where the [[audit_log]] 127.0.0.1:9466 in {} listens",
                a.display()
            ),
            format!(
                "audit_log[0].file: \"/var/log/a/audit.log\", which the [[audit_log]] audit in {} reads",
                a.display()
            ),
            String::new(),
        ];
        assert_eq!(wrong, expected);
    }

    #[test]
    fn what_two_files_cannot_both_have_is_a_problem_of_the_later_one() {
        let sink = |path: &str| format!("[[sink]]\nname = \"f\"\ntype = \"file\"\npath = \"{path}\"\n");
        let dir = directory(&[
            ("a.toml", &format!("[state]\npath = \"/srv/a\"\n{}", sink("/srv/a.jsonl"))),
            ("b.toml", &format!("[cluster]\nname = \"a\"\n[state]\npath = \"/srv/a/b\"\n{}", sink("/srv/a.jsonl"))),
            ("c.toml", "[state]\npath = \"/srv/c\"\n"),
            ("d.toml", "[lug]\n[cluster]\nname = \"c\"\n"),
            ("e.toml", "[cluster]\nname = \"../c\"\n"),
            ("f.toml", "[state]\npath = \"/srv\"\n"),
        ]);
        let read = read_in(dir.path(), &[]);
        let names: Vec<String> = found(&read).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["a", "b.toml", "c", "d.toml", "../c", "f"]);
        let wrong: Vec<String> = found(&read).into_iter().map(|(_, wrong)| wrong).collect();
        let a = dir.path().join("a.toml");
        assert_eq!(wrong[0], "");
        assert_eq!(
            wrong[1],
            format!(
                "cluster.name: \"a\", which is the name of the cluster in {a}; state.path: \"/srv/a/b\", where {a} keeps the \
                 journal of a; sink[0].path: \"/srv/a.jsonl\", which is the file of the sink f in {a}",
                a = a.display()
            )
        );
        assert_eq!(wrong[2], "");
        assert!(wrong[3].contains("lug") && wrong[3].contains("which is the name"), "{}", wrong[3]);
        assert!(wrong[4].contains("which can be no directory"), "{}", wrong[4]);
        assert!(wrong[5].contains("keeps the journal of a"), "the journals of others are below it: {}", wrong[5]);
        // What runs goes on, whatever the others are called.
        let read = read_in(dir.path(), &["b.toml"]);
        let right: Vec<&str> = read.files.iter().filter(|file| file.loaded.is_ok()).map(|file| &*file.name).collect();
        assert_eq!(right, ["a", "c"], "{:?}", found(&read));
        assert!(read.files[1].loaded.is_ok() && read.files[0].loaded.is_err(), "{:?}", found(&read));
    }

    #[test]
    fn the_endpoints_and_the_log_are_those_of_all() {
        let http = "[http]\nlisten = \"127.0.0.1:9465\"\n[log]\nlevel = \"debug\"\n";
        let dir = directory(&[("a.toml", ""), ("b.toml", http), ("c.toml", http)]);
        let read = read_in(dir.path(), &[]);
        assert_eq!(read.problems().count(), 0, "{:?}", found(&read));
        assert_eq!(read.http.as_ref().unwrap().listen.to_string(), "127.0.0.1:9465");
        for file in &read.files {
            let config = &file.loaded.as_ref().unwrap().config;
            assert_eq!((config.log.level.as_str(), config.http.is_none()), ("debug", true));
        }
        let other = http.replace("9465", "9466").replace("debug", "info");
        let dir = directory(&[("a.toml", http), ("b.toml", &other), ("c.toml", "")]);
        let wrong = found(&read_in(dir.path(), &[]));
        let a = dir.path().join("a.toml");
        assert_eq!(
            wrong[1].1,
            format!("http: other values than in {a}; log: other values than in {a}", a = a.display())
        );
        assert_eq!((wrong[0].1.as_str(), wrong[2].1.as_str()), ("", ""));
    }
}
