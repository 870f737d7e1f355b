//! Kubeconfigs: which ones count, what of them has to be allowed first, and which files they name. They mean what they mean to
//! kubectl: the rules are those of client-go (`tools/clientcmd`), which the loader of kube does not follow.

mod address;
mod entries;
mod in_cluster;
mod tree;
mod usable;

use std::fs::File;
use std::io::{IsTerminal, Read as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use kube::Config;

use self::entries::Entries;
use self::usable::{Chosen, Unusable};
use super::{ClusterError, Settings, failure};
use crate::core::net::is_loopback;
use crate::core::os::{self, MetadataExt};

pub(super) use self::usable::read as read_bounded;

/// The most names of contexts in a message.
const NAMED: usize = 20;

/// Modification time of a file, and its length.
pub(super) type Stamp = Option<(SystemTime, u64)>;

/// A configuration as it was found, and the files that it came from, stamped before they were read.
pub(super) struct Found {
    pub(super) config: Config,
    /// For people.
    pub(super) file: String,
    pub(super) context: Option<String>,
    pub(super) cluster: String,
    /// The program that gives the credentials.
    pub(super) plugin: Option<String>,
    /// The configuration does not say whether to run it; who runs decklog does.
    pub(super) unasked: bool,
    pub(super) files: Vec<(PathBuf, Stamp)>,
}

/// User that runs decklog, as far as known: decides whether a kubeconfig may name programs if the configuration does not say.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caller {
    /// systemd runs it.
    pub(super) is_service: bool,
    /// True if a person sees the output, or can answer.
    pub(super) at_terminal: bool,
    pub(super) user: u32,
}

impl Caller {
    /// Returns the caller of this process.
    pub(super) fn of_this_process() -> Self {
        Self {
            // Terminals that systemd started hand both on; the second names the process that it started itself.
            is_service: std::env::var_os("INVOCATION_ID").is_some()
                && std::env::var("SYSTEMD_EXEC_PID").map_or(true, |pid| pid == std::process::id().to_string()),
            at_terminal: std::io::stdin().is_terminal() || std::io::stderr().is_terminal(),
            user: os::user(),
        }
    }

    /// Reports whether the caller is a person who owns these kubeconfigs, and so runs their programs with kubectl anyway.
    fn owns(self, files: &[(PathBuf, Stamp)]) -> bool {
        let is_own = |path: &PathBuf| std::fs::metadata(path).is_ok_and(|file| file.uid() == self.user);
        let mut present = files.iter().filter(|(_, stamp)| stamp.is_some());
        !self.is_service && self.at_terminal && present.all(|(path, _)| is_own(path))
    }
}

/// `context` is the one that was found before, and stays: another current context is often another cluster.
pub(super) fn find(settings: &Settings, caller: Caller, context: Option<&str>) -> Result<Found, ClusterError> {
    let (paths, looked) = candidates(settings);
    let mut files: Vec<(PathBuf, Stamp)> = paths.into_iter().map(stamped).collect();
    let (entries, file) = load(settings, &files)?;
    // An explicit file that is empty is a mistake; the others may be.
    if entries.is_empty() && settings.kubeconfig.is_none() {
        return service_account(context, looked);
    }
    let unusable = |why: Unusable| match why {
        Unusable::Kubeconfig(why) => ClusterError::Kubeconfig { file: file.clone(), why },
        Unusable::File(why) => ClusterError::Client { file: file.clone(), why },
    };
    let wanted = context.or(settings.context.as_deref()).unwrap_or(&entries.current_context);
    let known = || entries.contexts.keys().take(NAMED).map(|name| failure::bounded(name)).collect();
    if wanted.is_empty() {
        return Err(ClusterError::NoCurrentContext { file, known: known() });
    }
    let Some(context) = entries.contexts.get(wanted).cloned() else {
        return Err(ClusterError::NoContext { file, wanted: failure::bounded(wanted), known: known() });
    };
    let Some(cluster) = entries.clusters.get(&context.cluster).cloned() else {
        let why = format!(
            "its context {:?} names the cluster {:?}, which it does not have",
            failure::bounded(wanted),
            failure::bounded(&context.cluster)
        );
        return Err(ClusterError::Kubeconfig { file, why });
    };
    // As kubectl does: without an entry the user is nobody.
    let user = entries.users.get(&context.user).cloned().unwrap_or_default();
    let chosen = Chosen::new(context, cluster, user).map_err(|why| unusable(why.into()))?;
    let plugin = chosen.user.exec.as_ref().map(|exec| exec.command.as_str());
    let plugin = plugin.map(|program| program.rsplit('/').next().unwrap_or(program).to_owned());
    let gives_program = chosen.user.exec.is_some() || chosen.user.auth_provider.is_some();
    let unasked = settings.allow_exec.is_none() && gives_program;
    let allow_exec = settings.allow_exec.unwrap_or_else(|| caller.owns(&files));
    if let Some(why) = forbidden(allow_exec, settings, &chosen) {
        return Err(ClusterError::Kubeconfig { file, why });
    }
    files.extend(credential_files(&chosen).map(stamped));
    let config = chosen.config().map_err(unusable)?;
    let cluster = chosen.context.cluster;
    Ok(Found { config, file, context: Some(wanted.to_owned()), cluster, plugin, unasked, files })
}

/// The merged entries of the files that there are, and their names for people.
fn load(settings: &Settings, files: &[(PathBuf, Stamp)]) -> Result<(Entries, String), ClusterError> {
    let mut entries = Entries::default();
    let mut names = Vec::new();
    for (path, _) in files {
        let name = path.display().to_string();
        let cannot = |why: String| ClusterError::Kubeconfig { file: name.clone(), why };
        let bytes = match read(path) {
            Ok(bytes) => bytes,
            // Of several files, some may be missing.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && settings.kubeconfig.is_none() => continue,
            Err(error) => return Err(cannot(format!("failed to read it: {error}"))),
        };
        if bytes.len() as u64 > tree::LARGEST {
            return Err(cannot("it is no kubeconfig: it is larger than 8 MiB".to_owned()));
        }
        entries.merge(Entries::read(&bytes, path).map_err(cannot)?);
        names.push(name);
    }
    Ok((entries, names.join(", ")))
}

fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(tree::LARGEST + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn service_account(context: Option<&str>, looked: Vec<String>) -> Result<Found, ClusterError> {
    match in_cluster::config(Path::new(in_cluster::MOUNT), |name| std::env::var(name).ok()) {
        Some((config, token)) if context.is_none() => Ok(Found {
            config,
            file: "the in-cluster service account".to_owned(),
            context: None,
            cluster: "in-cluster".to_owned(),
            plugin: None,
            unasked: false,
            // An authority that is not there yet is looked for again.
            files: [token, Path::new(in_cluster::MOUNT).join("ca.crt")].map(stamped).into(),
        }),
        Some(_) | None => Err(ClusterError::NoKubeconfig { looked }),
    }
}

/// The kubeconfig files to read, of which some may be missing, and for people where we looked.
fn candidates(settings: &Settings) -> (Vec<PathBuf>, Vec<String>) {
    if let Some(path) = &settings.kubeconfig {
        return (vec![path.clone()], Vec::new());
    }
    if let Some(value) = std::env::var_os("KUBECONFIG").filter(|value| !value.is_empty()) {
        let named: Vec<PathBuf> = std::env::split_paths(&value).filter(|path| !path.as_os_str().is_empty()).collect();
        let looked = named.iter().map(|path| format!("{} ($KUBECONFIG)", path.display())).collect();
        return (named, looked);
    }
    let mut looked = vec!["$KUBECONFIG (not set)".to_owned()];
    let path = std::env::home_dir().map(|home| home.join(".kube/config"));
    looked.extend(path.iter().map(|path| path.display().to_string()));
    (path.into_iter().collect(), looked)
}

/// Returns the error for a kubeconfig that needs a permission: it may come from somebody else, and would run a program as our
/// user, or hand our credentials to a server. Quotes the names in it, never the values.
fn forbidden(allow_exec: bool, settings: &Settings, chosen: &Chosen) -> Option<String> {
    if !allow_exec
        && let Some(what) = match (&chosen.user.exec, &chosen.user.auth_provider) {
            (Some(_), _) => Some("exec"),
            (None, Some(_)) => Some("auth-provider"),
            (None, None) => None,
        }
    {
        return Some(format!(
            "its user {:?} has credentials that a program gives ({what}), and decklog runs no program unless you allow \
             it: set [cluster] allow_exec = true, or give it a token or a client certificate",
            failure::bounded(&chosen.context.user)
        ));
    }
    if settings.allow_insecure_tls {
        return None;
    }
    let name = failure::bounded(&chosen.context.cluster);
    if chosen.cluster.insecure_skip_tls_verify {
        return Some(format!(
            "its cluster {name:?} has insecure-skip-tls-verify, so that anyone in between could read the credentials and \
             make up the log: set [cluster] allow_insecure_tls = true, or give it certificate-authority"
        ));
    }
    let is_plain = chosen.server.scheme_str() == Some("http");
    // What a proxy elsewhere reaches as this machine is its own.
    let is_far =
        address::proxy(&chosen.cluster.proxy_url).is_ok_and(|proxy| !is_loopback(proxy.host().unwrap_or_default()));
    let elsewhere = is_plain && (!is_loopback(chosen.server.host().unwrap_or_default()) || is_far);
    elsewhere.then(|| {
        format!(
            "its cluster {name:?} is reached over http://, so that anyone in between could read the credentials and make \
             up the log: set [cluster] allow_insecure_tls = true, or use https://"
        )
    })
}

fn credential_files(chosen: &Chosen) -> impl Iterator<Item = PathBuf> {
    let user = &chosen.user;
    [&chosen.cluster.certificate_authority, &user.client_certificate, &user.client_key, &user.token_file]
        .into_iter()
        .filter(|path| !path.is_empty())
        .map(PathBuf::from)
}

fn stamped(path: PathBuf) -> (PathBuf, Stamp) {
    let seen = stamp(&path);
    (path, seen)
}

pub(super) fn stamp(path: &Path) -> Stamp {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}
