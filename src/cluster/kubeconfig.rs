//! Kubeconfigs: which one counts, what of it has to be allowed first, and which files it names.

use std::io::IsTerminal;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use kube::Config;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig, KubeconfigError};

use super::{ClusterError, Settings, failure};
use crate::net::is_loopback;

/// What is wrong with a kubeconfig. kube's own texts quote lines of the file, and those may hold credentials.
#[expect(clippy::wildcard_enum_match_arm, reason = "another crate's list of errors: those that quote the file")]
fn kubeconfig_text(error: &KubeconfigError) -> String {
    match error {
        KubeconfigError::Parse(error) => match error.location() {
            Some(at) => format!("it is no kubeconfig (line {}, column {})", at.line(), at.column()),
            None => "it is no kubeconfig".to_owned(),
        },
        KubeconfigError::ReadConfig(error, _) => format!("failed to read it: {error}"),
        KubeconfigError::ParseCertificates(_) => "its certificates are not PEM".to_owned(),
        other => failure::bounded(&other.to_string()),
    }
}

/// When a file was changed, and its length.
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
    /// What the kubeconfig has as `proxy-url`.
    pub(super) proxy_url: Option<String>,
}

/// Who runs decklog, as far as it is known: whether a kubeconfig may name programs where the configuration does not say.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caller {
    /// systemd runs it.
    pub(super) is_service: bool,
    /// Somebody sees what it says, or can answer.
    pub(super) at_terminal: bool,
    pub(super) user: u32,
}

impl Caller {
    /// Who runs this process.
    pub(super) fn of_this_process() -> Self {
        Self {
            // Terminals that systemd started hand both on; the second names the process that it started itself.
            is_service: std::env::var_os("INVOCATION_ID").is_some()
                && std::env::var("SYSTEMD_EXEC_PID").map_or(true, |pid| pid == std::process::id().to_string()),
            at_terminal: std::io::stdin().is_terminal() || std::io::stderr().is_terminal(),
            user: rustix::process::geteuid().as_raw(),
        }
    }

    /// Whether it is a person with kubeconfigs of their own: who runs kubectl with them runs these programs anyway.
    fn owns(self, files: &[(PathBuf, Stamp)]) -> bool {
        let is_own = |path: &PathBuf| std::fs::metadata(path).is_ok_and(|file| file.uid() == self.user);
        !self.is_service && self.at_terminal && files.iter().all(|(path, _)| is_own(path))
    }
}

/// `context` is the one that was found before, and stays: another current context is often another cluster.
pub(super) async fn find(settings: &Settings, caller: Caller, context: Option<&str>) -> Result<Found, ClusterError> {
    let (paths, looked) = candidates(settings);
    if paths.is_empty() {
        return match Config::incluster() {
            Ok(config) if context.is_none() => Ok(Found {
                config,
                file: "the in-cluster service account".to_owned(),
                context: None,
                cluster: "in-cluster".to_owned(),
                plugin: None,
                unasked: false,
                // kube reads the token and the authority again by itself.
                files: Vec::new(),
                proxy_url: None,
            }),
            Ok(_) | Err(_) => Err(ClusterError::NoKubeconfig { looked }),
        };
    }
    let file = paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
    let stamped = |path: PathBuf| {
        let seen = stamp(&path);
        (path, seen)
    };
    let mut files: Vec<_> = paths.into_iter().map(stamped).collect();
    let mut kubeconfig = Kubeconfig::default();
    for (path, _) in &files {
        kubeconfig = Kubeconfig::read_from(path).and_then(|next| kubeconfig.merge(next)).map_err(|error| {
            ClusterError::Kubeconfig { file: path.display().to_string(), why: kubeconfig_text(&error) }
        })?;
    }
    let known: Vec<String> = kubeconfig.contexts.iter().map(|context| context.name.clone()).collect();
    let wanted = context.map(str::to_owned).or_else(|| settings.context.clone());
    let Some(wanted) = wanted.or_else(|| kubeconfig.current_context.clone()) else {
        return Err(ClusterError::NoCurrentContext { file, known });
    };
    let Some(context) =
        kubeconfig.contexts.iter().find(|context| context.name == wanted).and_then(|context| context.context.clone())
    else {
        return Err(ClusterError::NoContext { file, wanted, known });
    };
    let user = user(&kubeconfig, &context);
    let plugin = user.and_then(|user| user.exec.as_ref()?.command.as_deref());
    let plugin = plugin.map(|program| program.rsplit('/').next().unwrap_or(program).to_owned());
    let gives_program = user.is_some_and(|user| user.exec.is_some() || user.auth_provider.is_some());
    let unasked = settings.allow_exec.is_none() && gives_program;
    let allow_exec = settings.allow_exec.unwrap_or_else(|| caller.owns(&files));
    if let Some(why) = forbidden(allow_exec, settings, &kubeconfig, &context) {
        return Err(ClusterError::Kubeconfig { file, why });
    }
    files.extend(credential_files(&kubeconfig, &context).into_iter().map(stamped));
    let proxy_url = take_proxy_url(&mut kubeconfig, &context.cluster);
    let options = KubeConfigOptions { context: Some(wanted.clone()), cluster: None, user: None };
    let config = Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .map_err(|error| ClusterError::Kubeconfig { file: file.clone(), why: kubeconfig_text(&error) })?;
    Ok(Found { config, file, context: Some(wanted), cluster: context.cluster, plugin, unasked, files, proxy_url })
}

/// Takes the `proxy-url` of a cluster out. kube gets another one, so that it does not look for one in the environment,
/// which it reads otherwise than kubectl does.
fn take_proxy_url(kubeconfig: &mut Kubeconfig, cluster: &str) -> Option<String> {
    let named = kubeconfig.clusters.iter_mut().find(|named| named.name == cluster)?;
    let found = named.cluster.as_mut()?.proxy_url.replace("http://proxy.invalid".to_owned());
    found.filter(|address| !address.is_empty())
}

/// The kubeconfig files to read, and for people where we looked. None: try the service account.
fn candidates(settings: &Settings) -> (Vec<PathBuf>, Vec<String>) {
    if let Some(path) = &settings.kubeconfig {
        return (vec![path.clone()], Vec::new());
    }
    let mut looked = Vec::new();
    if let Some(value) = std::env::var_os("KUBECONFIG").filter(|value| !value.is_empty()) {
        let named: Vec<PathBuf> = std::env::split_paths(&value).filter(|path| !path.as_os_str().is_empty()).collect();
        looked.extend(named.iter().map(|path| format!("{} ($KUBECONFIG)", path.display())));
        // As kubectl does: of several files, some may be missing.
        let present: Vec<PathBuf> = named.into_iter().filter(|path| path.exists()).collect();
        return (present, looked);
    }
    looked.push("$KUBECONFIG (not set)".to_owned());
    match std::env::home_dir() {
        Some(home) => {
            let path = home.join(".kube/config");
            looked.push(path.display().to_string());
            (path.exists().then_some(path).into_iter().collect(), looked)
        }
        None => (Vec::new(), looked),
    }
}

fn user<'a>(kubeconfig: &'a Kubeconfig, context: &kube::config::Context) -> Option<&'a AuthInfo> {
    let name = context.user.as_ref();
    kubeconfig.auth_infos.iter().find(|named| Some(&named.name) == name)?.auth_info.as_ref()
}

/// What a kubeconfig asks for that has to be allowed first: it may come from somebody else, and would run a program as
/// our user, or hand our credentials to whoever answers. The names in it are quoted, its values never.
fn forbidden(
    allow_exec: bool,
    settings: &Settings,
    kubeconfig: &Kubeconfig,
    context: &kube::config::Context,
) -> Option<String> {
    let user = user(kubeconfig, context);
    if !allow_exec
        && let Some(what) = user.and_then(|user| match (&user.exec, &user.auth_provider) {
            (Some(_), _) => Some("exec"),
            (None, Some(_)) => Some("auth-provider"),
            (None, None) => None,
        })
    {
        return Some(format!(
            "its user {:?} has credentials that a program gives ({what}), and decklog runs no program unless you allow \
             it: set [cluster] allow_exec = true, or give it a token or a client certificate",
            failure::bounded(context.user.as_deref().unwrap_or_default())
        ));
    }
    let cluster = kubeconfig.clusters.iter().find(|named| named.name == context.cluster)?.cluster.as_ref()?;
    if settings.allow_insecure_tls {
        return None;
    }
    let name = failure::bounded(&context.cluster);
    if cluster.insecure_skip_tls_verify == Some(true) {
        return Some(format!(
            "its cluster {name:?} has insecure-skip-tls-verify, so that anyone in between could read the credentials and \
             make up the log: set [cluster] allow_insecure_tls = true, or give it certificate-authority"
        ));
    }
    let server: Option<http::Uri> = cluster.server.as_deref().and_then(|server| server.parse().ok());
    let plain = server.filter(|server| server.scheme_str() == Some("http"));
    let elsewhere = plain.is_some_and(|server| !is_loopback(server.host().unwrap_or_default()));
    elsewhere.then(|| {
        format!(
            "its cluster {name:?} is reached over http://, so that anyone in between could read the credentials and make \
             up the log: set [cluster] allow_insecure_tls = true, or use https://"
        )
    })
}

fn credential_files(kubeconfig: &Kubeconfig, context: &kube::config::Context) -> Vec<PathBuf> {
    let cluster = kubeconfig.clusters.iter().find(|named| named.name == context.cluster);
    let authority = cluster.and_then(|named| named.cluster.as_ref()?.certificate_authority.clone());
    let user = user(kubeconfig, context);
    let own = user.map(|user| [user.client_certificate.clone(), user.client_key.clone(), user.token_file.clone()]);
    authority.into_iter().chain(own.into_iter().flatten().flatten()).map(PathBuf::from).collect()
}

pub(super) fn stamp(path: &Path) -> Stamp {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}
