//! The service account of a Pod, as client-go reads it (`rest.InClusterConfig`).

use std::path::{Path, PathBuf};

use kube::Config;
use kube::config::AuthInfo;

use super::address;
use crate::core::net::tls::certificates;

/// The directory that kubelet mounts into each Pod.
pub(super) const MOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The configuration of the service account and its token file. None: this is no Pod, or one without a token. Without a
/// readable `ca.crt` the roots of the system count.
pub(super) fn config(mount: &Path, variable: impl Fn(&str) -> Option<String>) -> Option<(Config, PathBuf)> {
    let named = |name| variable(name).filter(|value| !value.is_empty());
    let (host, port) = (named("KUBERNETES_SERVICE_HOST")?, named("KUBERNETES_SERVICE_PORT")?);
    let host = if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host };
    let token = mount.join("token");
    std::fs::metadata(&token).ok().filter(std::fs::Metadata::is_file)?;
    let mut config = Config::new(address::server(&format!("https://{host}:{port}")).ok()?.url);
    let authority = mount.join("ca.crt");
    let found: Vec<_> = std::fs::read(&authority)
        .map(|pem| certificates(&pem).into_iter().map(|der| der.to_vec()).collect())
        .unwrap_or_default();
    if !found.is_empty() {
        config.root_cert = Some(found);
        config.root_cert_file = Some(authority);
    }
    if let Ok(namespace) = std::fs::read_to_string(mount.join("namespace"))
        && !namespace.trim().is_empty()
    {
        namespace.trim().clone_into(&mut config.default_namespace);
    }
    config.auth_info = AuthInfo { token_file: Some(token.to_str()?.to_owned()), ..AuthInfo::default() };
    Some((config, token))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_account_is_read_as_client_go_does() {
        let dir = tempfile::tempdir().unwrap();
        let read = |host: &str, port: &str| {
            config(dir.path(), |name| Some(if name.ends_with("HOST") { host.to_owned() } else { port.to_owned() }))
        };
        assert!(read("10.0.0.1", "443").is_none(), "no token");
        std::fs::write(dir.path().join("token"), "t\n").unwrap();
        for (host, port, url) in [
            ("10.0.0.1", "443", Some("https://10.0.0.1:443/")),
            ("fd00::1", "6443", Some("https://[fd00::1]:6443/")),
            ("api.example", "443", Some("https://api.example:443/")),
            ("", "443", None),
            ("10.0.0.1", "", None),
            ("10.0.0.1", "x", None),
        ] {
            let found = read(host, port);
            assert_eq!(found.map(|(config, _)| config.cluster_url.to_string()).as_deref(), url, "{host} {port}");
        }
        // Neither ca.crt nor namespace is there: client-go goes on.
        let (found, token) = read("10.0.0.1", "443").unwrap();
        assert!(found.root_cert.is_none() && found.default_namespace == "default");
        assert_eq!(found.auth_info.token_file.as_deref(), token.to_str());
        std::fs::write(dir.path().join("namespace"), "shop\n").unwrap();
        assert_eq!(read("10.0.0.1", "443").unwrap().0.default_namespace, "shop");
    }
}
