//! The chosen context, checked as kubectl checks it (client-go, `clientcmd.ConfirmUsable` and `transport.TLSConfigFor`), and
//! made into the configuration of a client.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::Uri;
use kube::Config;
use kube::config::{AuthInfo, AuthProviderConfig, ExecAuthCluster, ExecConfig, ExecInteractiveMode};

use super::super::failure::bounded;
use super::address;
use super::entries::{Cluster, Context, Exec, User};
use crate::core::net::tls::certificates;
use crate::core::os::FileTypeExt;

/// The most bytes of a file that a kubeconfig names.
const LARGEST: u64 = 8 << 20;

/// The reason that a context cannot be used.
pub(super) enum Unusable {
    /// Only another kubeconfig helps.
    Kubeconfig(String),
    /// A file that it names may come.
    File(String),
}

impl From<String> for Unusable {
    fn from(why: String) -> Self {
        Self::Kubeconfig(why)
    }
}

/// The entries that one context names.
pub(super) struct Chosen {
    pub(super) context: Context,
    pub(super) cluster: Cluster,
    /// The URL of the API server.
    pub(super) server: Uri,
    pub(super) user: User,
}

impl Chosen {
    /// Checks what needs no other file, and leaves out of the user what other credentials of it make idle.
    pub(super) fn new(context: Context, cluster: Cluster, mut user: User) -> Result<Self, String> {
        let name = bounded(&context.cluster);
        if cluster.server.is_empty() {
            return Err(format!("its cluster {name:?} has no server: give it the URL of the API server"));
        }
        let server =
            address::server(&cluster.server).map_err(|why| format!("the server of its cluster {name:?} {why}"))?;
        if !cluster.proxy_url.is_empty() {
            address::proxy(&cluster.proxy_url).map_err(|why| format!("the proxy-url of its cluster {name:?} {why}"))?;
        }
        let has_data = !cluster.certificate_authority_data.is_empty();
        if !cluster.certificate_authority.is_empty() && has_data {
            return Err(format!(
                "its cluster {name:?} has both certificate-authority and certificate-authority-data: remove one of them"
            ));
        }
        let has_authority = !cluster.certificate_authority.is_empty() || has_data;
        if cluster.insecure_skip_tls_verify && has_authority && server.url.scheme_str() == Some("https") {
            return Err(format!(
                "its cluster {name:?} has both insecure-skip-tls-verify and a certificate authority: remove one of them"
            ));
        }
        if let Some((username, password)) = server.user {
            user = User { username, password, token: String::new(), token_file: String::new(), exec: None, ..user };
        }
        check(&user, &context.user)?;
        rest(&mut user);
        // tower-http panics at one that no header may hold.
        if http::HeaderValue::from_str(&user.token).is_err() {
            let user = bounded(&context.user);
            return Err(format!("the token of its user {user:?} has characters that no token has: copy it again"));
        }
        Ok(Self { context, cluster, server: server.url, user })
    }

    /// The configuration of a client. The files that the entries name are looked at, and only the authority is read.
    pub(super) fn config(&self) -> Result<Config, Unusable> {
        let name = bounded(&self.context.cluster);
        let authority = match self.cluster.certificate_authority.as_str() {
            "" => self.cluster.certificate_authority_data.clone(),
            path => read(path).map_err(|why| {
                Unusable::File(format!("the certificate-authority of its cluster {name:?}, {}, {why}", bounded(path)))
            })?,
        };
        for (key, path) in
            [("client-certificate", &self.user.client_certificate), ("client-key", &self.user.client_key)]
        {
            if !path.is_empty() {
                openable(path).map_err(|why| {
                    let user = bounded(&self.context.user);
                    Unusable::File(format!("the {key} of its user {user:?}, {}, {why}", bounded(path)))
                })?;
            }
        }
        let mut config = Config::new(self.server.clone());
        if !authority.is_empty() && self.server.scheme_str() == Some("https") {
            let found: Vec<_> = certificates(&authority);
            if found.is_empty() {
                return Err(Unusable::Kubeconfig(format!(
                    "the certificate authority of its cluster {name:?} holds no certificate in PEM"
                )));
            }
            config.root_cert = Some(found.iter().map(|der| der.as_ref().to_vec()).collect());
        }
        if !self.cluster.proxy_url.is_empty() {
            config.proxy_url = Some(address::proxy(&self.cluster.proxy_url)?);
        }
        if !self.context.namespace.is_empty() {
            config.default_namespace.clone_from(&self.context.namespace);
        }
        config.accept_invalid_certs = self.cluster.insecure_skip_tls_verify;
        config.disable_compression = self.cluster.disable_compression;
        config.tls_server_name = some(&self.cluster.tls_server_name);
        config.auth_info = self.auth_info(authority);
        Ok(config)
    }

    fn auth_info(&self, authority: Vec<u8>) -> AuthInfo {
        let user = &self.user;
        let base64 = |bytes: &[u8]| (!bytes.is_empty()).then(|| STANDARD.encode(bytes));
        AuthInfo {
            username: some(&user.username),
            password: (!user.username.is_empty()).then(|| user.password.clone().into()),
            token: some(&user.token).map(Into::into),
            token_file: some(&user.token_file),
            client_certificate: some(&user.client_certificate),
            client_certificate_data: base64(&user.client_certificate_data),
            client_key: some(&user.client_key),
            client_key_data: base64(&user.client_key_data).map(Into::into),
            impersonate: some(&user.impersonate),
            impersonate_uid: some(&user.impersonate_uid),
            impersonate_groups: (!user.impersonate_groups.is_empty()).then(|| user.impersonate_groups.clone()),
            impersonate_user_extra: (!user.impersonate_extra.is_empty())
                .then(|| user.impersonate_extra.clone().into_iter().collect()),
            auth_provider: user.auth_provider.as_ref().map(|provider| AuthProviderConfig {
                name: provider.name.clone(),
                config: provider.config.clone().into_iter().collect(),
                ..AuthProviderConfig::default()
            }),
            exec: user.exec.as_ref().map(|exec| self.exec(exec, authority)),
            ..AuthInfo::default()
        }
    }

    fn exec(&self, exec: &Exec, authority: Vec<u8>) -> ExecConfig {
        let pair = |(name, value): &(String, String)| {
            [("name", name), ("value", value)].map(|(key, text)| (key.to_owned(), text.clone())).into_iter().collect()
        };
        ExecConfig {
            api_version: some(&exec.api_version),
            command: some(&exec.command),
            args: Some(exec.args.clone()),
            env: Some(exec.env.iter().map(pair).collect()),
            install_hint: some(&exec.install_hint),
            interactive_mode: Some(match exec.interactive_mode.as_str() {
                "Never" => ExecInteractiveMode::Never,
                "Always" => ExecInteractiveMode::Always,
                _ => ExecInteractiveMode::IfAvailable,
            }),
            provide_cluster_info: exec.provide_cluster_info,
            cluster: exec.provide_cluster_info.then(|| ExecAuthCluster {
                server: Some(self.server.to_string().trim_end_matches('/').to_owned()),
                insecure_skip_tls_verify: Some(self.cluster.insecure_skip_tls_verify),
                certificate_authority_data: (!authority.is_empty()).then_some(authority),
                proxy_url: some(&self.cluster.proxy_url),
                tls_server_name: some(&self.cluster.tls_server_name),
                config: self.cluster.for_plugin.clone(),
            }),
            ..ExecConfig::default()
        }
    }
}

fn some(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

/// Refuses a user that contradicts itself.
fn check(user: &User, name: &str) -> Result<(), String> {
    let says = |what: &str| Err(format!("its user {:?} {what}", bounded(name)));
    let has_basic = !user.username.is_empty() || !user.password.is_empty();
    if has_basic && !(user.token.is_empty() && user.token_file.is_empty()) {
        return says("has both a token and a username: remove one of them");
    }
    let has_key = !user.client_key.is_empty() || !user.client_key_data.is_empty();
    if !user.client_certificate.is_empty() || !user.client_certificate_data.is_empty() {
        if !user.client_certificate.is_empty() && !user.client_certificate_data.is_empty() {
            return says("has both client-certificate and client-certificate-data: remove one of them");
        }
        if !user.client_key.is_empty() && !user.client_key_data.is_empty() {
            return says("has both client-key and client-key-data: remove one of them");
        }
        if !has_key {
            return says("has a client certificate without a key: give it client-key or client-key-data");
        }
    }
    if let Some(exec) = &user.exec {
        if user.auth_provider.is_some() {
            return says("has both exec and auth-provider: remove one of them");
        }
        if exec.command.is_empty() {
            return says("has an exec without a command: name the program that gives the credentials");
        }
        let version = exec.api_version.strip_prefix("client.authentication.k8s.io/");
        if !matches!(version, Some("v1" | "v1beta1")) {
            return says(
                "has an exec whose apiVersion is neither client.authentication.k8s.io/v1 nor client.authentication.k8s.io/v1beta1",
            );
        }
        if exec.env.iter().any(|(name, _)| name.is_empty()) {
            return says("has an exec with an env entry without a name");
        }
        let is_known = matches!(exec.interactive_mode.as_str(), "Never" | "IfAvailable" | "Always");
        let is_left_out = exec.interactive_mode.is_empty() && version == Some("v1beta1");
        if !is_known && !is_left_out {
            return says("has an exec that needs interactiveMode: set it to Never, IfAvailable or Always");
        }
    }
    let others =
        !user.impersonate_uid.is_empty() || !user.impersonate_groups.is_empty() || !user.impersonate_extra.is_empty();
    if others && user.impersonate.is_empty() {
        return says("has as-uid, as-groups or as-user-extra without as: name the user to act as");
    }
    Ok(())
}

/// Leaves out what client-go does not use: a program beside other credentials, a key without its certificate, a password
/// without its user.
fn rest(user: &mut User) {
    let has_certificate = !user.client_certificate.is_empty() || !user.client_certificate_data.is_empty();
    if !has_certificate {
        user.client_key.clear();
        user.client_key_data.clear();
    }
    user.token = user.token.trim().to_owned();
    let has_token = !user.token.is_empty() || !user.token_file.is_empty();
    if has_certificate || has_token || !user.username.is_empty() {
        user.exec = None;
    }
}

/// Reads a file of bounded size. The error follows its name in a sentence.
pub(in super::super) fn read(path: &str) -> Result<Vec<u8>, String> {
    openable(path)?;
    let file = File::open(path).map_err(|error| format!("cannot be read: {error}"))?;
    let mut bytes = Vec::new();
    file.take(LARGEST + 1).read_to_end(&mut bytes).map_err(|error| format!("cannot be read: {error}"))?;
    if bytes.len() as u64 > LARGEST { Err(TOO_LARGE.to_owned()) } else { Ok(bytes) }
}

const TOO_LARGE: &str = "cannot be used: it is larger than 8 MiB";

/// Looks at a file that is read later, and by others without a bound.
fn openable(path: &str) -> Result<(), String> {
    let metadata = Path::new(path).metadata().map_err(|error| format!("cannot be read: {error}"))?;
    let kind = metadata.file_type();
    if kind.is_dir() || kind.is_block_device() || kind.is_char_device() {
        let what = if kind.is_dir() { "a directory" } else { "a device" };
        return Err(format!("cannot be used: it is {what}, not a file"));
    }
    if metadata.len() > LARGEST {
        return Err(TOO_LARGE.to_owned());
    }
    // Opening a pipe would take from it.
    if kind.is_file() { File::open(path).map(drop).map_err(|error| format!("cannot be read: {error}")) } else { Ok(()) }
}
