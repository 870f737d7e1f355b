//! The flags of kube-apiserver, where each distribution has them.

use std::fmt::Write as _;
use std::path::Path;

use clap::{Args, ValueEnum};

use crate::audit_log::Settings;
use crate::core::net::server::Listen;

/// Arguments of `decklog audit setup`.
#[derive(Args, Debug)]
pub struct SetupArgs {
    /// Print the part of this distribution's configuration, instead of flags
    #[arg(long, value_name = "DISTRIBUTION")]
    pub on: Option<Distribution>,
    /// Name or address by which kube-apiserver reaches decklog, of `listen`
    #[arg(long, value_name = "NAME")]
    pub host: Option<String>,
}

/// Distributions whose configuration is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Distribution {
    /// The ClusterConfiguration of kubeadm
    Kubeadm,
    /// /etc/rancher/k3s/config.yaml
    K3s,
    /// /etc/rancher/rke2/config.yaml
    Rke2,
}

impl Distribution {
    /// Returns the directory for the files that kube-apiserver reads.
    const fn directory(on: Option<Self>) -> &'static str {
        match on {
            None | Some(Self::Kubeadm) => "/etc/kubernetes",
            Some(Self::K3s) => "/etc/rancher/k3s",
            Some(Self::Rke2) => "/etc/rancher/rke2",
        }
    }
}

/// File of a configuration without `[[audit_log]]`.
const FILE: &str = "/var/log/kubernetes/audit.log";
/// Stands for a host that nothing names.
const HOST: &str = "DECKLOG_HOST";

/// Writes what kube-apiserver needs for these audit logs; for none, what a file needs.
///
/// # Errors
/// Where one kube-apiserver cannot have all of them: a sentence.
pub(super) fn setup(logs: &[Settings], args: &SetupArgs) -> Result<String, String> {
    let mut out = String::new();
    if let Some(host) = args.host.as_deref().filter(|host| !is_host(host)) {
        return Err(format!("--host: {host:?} is no name of a host and no address"));
    }
    let example = [Settings { file: Some(FILE.into()), ..Settings::default() }];
    let logs = if logs.is_empty() {
        writeln!(out, "# The configuration has no audit log yet. With this one decklog reads the file of its machine:\n#\n#   [[audit_log]]\n#   file = {FILE:?}\n#")
            .expect("a String takes all text");
        &example[..]
    } else {
        logs
    };
    let nodes = if logs.len() > 1 {
        "On the control plane node whose kube-apiserver this is"
    } else {
        "On each control plane node"
    };
    for (number, log) in logs.iter().enumerate() {
        if number > 0 {
            out.push_str("---\n");
        }
        match (&log.file, &log.listen) {
            (Some(file), _) => {
                // The API server has another directory of its own.
                let file = std::path::absolute(file).map_err(|error| format!("{}: {error}", file.display()))?;
                of_file(&mut out, (log, nodes), &file, args);
            }
            (None, Some(listen)) => of_listen(&mut out, (log, nodes), listen, args),
            (None, None) => return Err("an [[audit_log]] has neither file nor listen".to_owned()),
        }
    }
    Ok(out)
}

/// Returns the sentence about a `--host` that nothing uses: only `listen` is reached over the network.
pub(super) fn unused_host(logs: &[Settings], args: &SetupArgs) -> Option<String> {
    let host = args.host.as_ref()?;
    let listens = |log: &Settings| log.file.is_none() && matches!(log.listen, Some(Listen::Tcp(_)));
    let is_used = logs.iter().any(listens);
    (!is_used).then(|| format!("--host {host} is not used: no [[audit_log]] has a `listen` that other machines reach"))
}

fn of_file(out: &mut String, (log, nodes): (&Settings, &str), file: &Path, args: &SetupArgs) {
    let policy = format!("{}/audit-policy.yaml", Distribution::directory(args.on));
    let name = log.name();
    let path = file.display();
    write!(
        out,
        "# [[audit_log]] {name}: kube-apiserver writes {path}, and decklog reads it on the same machine. {nodes}:\n\
         {}",
        first(&policy)
    )
    .expect("a String takes all text");
    let flags = [
        ("audit-policy-file", policy.clone()),
        ("audit-log-path", path.to_string()),
        ("audit-log-maxsize", "100".to_owned()),
        ("audit-log-maxbackup", "3".to_owned()),
    ];
    let directory = file.parent().unwrap_or_else(|| Path::new("/")).display().to_string();
    place(out, args.on, &flags, &[("audit-policy", &policy, true), ("audit-log", &directory, false)]);
    let (path, directory) = (quoted(&path.to_string()), quoted(&directory));
    write!(
        out,
        "# 3. Let decklog read the file; its rotation keeps the group and the mode:\n\
         #    mkdir -p {directory}; touch {path}; chgrp decklog {path}; chmod 640 {path}\n\
         # 4. `decklog check` shows that the events arrive.\n"
    )
    .expect("a String takes all text");
}

fn of_listen(out: &mut String, (log, nodes): (&Settings, &str), listen: &Listen, args: &SetupArgs) {
    let directory = Distribution::directory(args.on);
    let (policy, kubeconfig) = (format!("{directory}/audit-policy.yaml"), format!("{directory}/audit-webhook.yaml"));
    let name = log.name();
    let address = match listen {
        Listen::Unix(path) => {
            writeln!(
                out,
                "# [[audit_log]] {name}: kube-apiserver cannot send to the unix socket {}. It takes JSON Lines of a program beside it,\n\
                 # such as Vector or Fluent Bit, which reads the file that kube-apiserver writes (--audit-log-path).",
                path.display()
            )
            .expect("a String takes all text");
            return;
        }
        Listen::Tcp(address) => *address,
    };
    let host = match &args.host {
        Some(host) if host.contains(':') && !host.starts_with('[') => format!("[{host}]"),
        Some(host) => host.clone(),
        None if address.ip().is_unspecified() => HOST.to_owned(),
        None if address.is_ipv6() => format!("[{}]", address.ip()),
        None => address.ip().to_string(),
    };
    let scheme = if log.tls_cert_file.is_some() { "https" } else { "http" };
    let url = format!("{scheme}://{host}:{}/", address.port());
    write!(
        out,
        "# [[audit_log]] {name}: kube-apiserver sends its events to {url}. {nodes}:\n\
         {}",
        first(&policy)
    )
    .expect("a String takes all text");
    let flags = [
        ("audit-policy-file", policy.clone()),
        ("audit-webhook-config-file", kubeconfig.clone()),
        ("audit-webhook-batch-max-wait", "5s".to_owned()),
    ];
    let mut files = vec![("audit-policy", policy), ("audit-webhook", kubeconfig.clone())];
    let mut member = |key: &str, name: &'static str, file: &str, why: &str| {
        files.push((name, format!("{directory}/{file}")));
        let indent = "    ";
        let why = if why.is_empty() { String::new() } else { format!("{indent}# {why}\n") };
        format!("{why}{indent}{key}: {directory}/{file}\n")
    };
    let (mut cluster, mut user) = (String::new(), String::new());
    if log.tls_cert_file.is_some() {
        let why = "The authority that signed tls_cert_file.";
        cluster += &member("certificate-authority", "audit-ca", "decklog-ca.crt", why);
    }
    if log.token_file.is_some() {
        user += &member("tokenFile", "audit-token", "decklog-token", "One line of token_file.");
    }
    if log.client_ca_file.is_some() {
        let why = "Signed by an authority of client_ca_file.";
        user += &member("client-certificate", "audit-client-cert", "decklog-client.crt", why);
        user += &member("client-key", "audit-client-key", "decklog-client.key", "");
    }
    let files: Vec<_> = files.iter().map(|(name, path)| (*name, path.as_str(), true)).collect();
    place(out, args.on, &flags, &files);
    if args.on.is_some() {
        out.push_str("---\n");
    }
    writeln!(
        out,
        "# 3. {kubeconfig}, with what is below. kube-apiserver is on the network of its node, which knows no Services."
    )
    .expect("a String takes all text");
    if host == HOST {
        writeln!(out, "#    {HOST} stands for the machine of decklog; --host NAME puts its name there.")
            .expect("a String takes all text");
    }
    let user = if user.is_empty() { " {}\n".to_owned() } else { format!("\n{user}") };
    write!(
        out,
        "apiVersion: v1\nkind: Config\nclusters:\n- name: decklog\n  cluster:\n    server: {url}\n{cluster}\
         users:\n- name: kube-apiserver\n  user:{user}contexts:\n- name: decklog\n  context: {{cluster: decklog, user: kube-apiserver}}\n\
         current-context: decklog\n# 4. `decklog check` shows that the events arrive.\n"
    )
    .expect("a String takes all text");
}

/// The first step. A command that fails leaves the policy that is there: without one kube-apiserver does not start.
fn first(policy: &str) -> String {
    format!("# 1. decklog audit policy > {policy}.new && mv {policy}.new {policy}\n")
}

/// A word as a shell reads it.
fn quoted(word: &str) -> String {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "/._-:=@%+,".contains(char);
    if word.chars().all(is_plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', "'\\''")) }
}

/// Reports whether a text can be the name of a host or an address.
fn is_host(text: &str) -> bool {
    let is_name = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.chars().all(|char| char.is_ascii_alphanumeric() || char == '-' || char == '_')
    };
    let address = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    address.parse::<std::net::IpAddr>().is_ok() || text.strip_suffix('.').unwrap_or(text).split('.').all(is_name)
}

/// Writes the second step: the flags, where they go. `files` are those that kube-apiserver needs in its Pod, with whether it only
/// reads them.
fn place(out: &mut String, on: Option<Distribution>, flags: &[(&str, String)], files: &[(&str, &str, bool)]) {
    match on {
        None => {
            out.push_str(
                "# 2. The flags of kube-apiserver, in its static Pod (which needs the paths mounted) or its unit:\n",
            );
            for (flag, value) in flags {
                writeln!(out, "#    --{flag}={}", quoted(value)).expect("a String takes all text");
            }
        }
        Some(Distribution::Kubeadm) => {
            out.push_str(
                "# 2. Into the ClusterConfiguration (`kubectl -n kube-system edit configmap kubeadm-config`), and then on each control plane\n\
                 #    node `kubeadm init phase control-plane apiserver --config FILE`. In v1beta3 (before kubeadm 1.31) extraArgs is a map: NAME: VALUE.\n\
                 apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\napiServer:\n  extraArgs:\n",
            );
            for (flag, value) in flags {
                writeln!(out, "  - {{name: {flag}, value: {value:?}}}").expect("a String takes all text");
            }
            out.push_str("  extraVolumes:\n");
            for (name, path, reads) in files {
                let kind = if *reads { "File" } else { "DirectoryOrCreate" };
                writeln!(
                    out,
                    "  - {{name: {name}, hostPath: {path:?}, mountPath: {path:?}, readOnly: {reads}, pathType: {kind}}}"
                )
                .expect("a String takes all text");
            }
        }
        Some(distribution @ (Distribution::K3s | Distribution::Rke2)) => {
            let (service, directory) = match distribution {
                Distribution::Rke2 => ("rke2-server", "/etc/rancher/rke2"),
                Distribution::K3s | Distribution::Kubeadm => ("k3s", "/etc/rancher/k3s"),
            };
            writeln!(
                out,
                "# 2. Into {directory}/config.yaml, and then `systemctl restart {service}`:\nkube-apiserver-arg:"
            )
            .expect("a String takes all text");
            for (flag, value) in flags {
                writeln!(out, "- {:?}", format!("{flag}={value}")).expect("a String takes all text");
            }
            // RKE2 mounts what a flag names, and not what a file names.
            let is_named = |path: &str| flags.iter().any(|(_, value)| Path::new(value).starts_with(path));
            let files: Vec<_> = files.iter().filter(|(_, path, _)| !is_named(path)).collect();
            if distribution == Distribution::Rke2 && !files.is_empty() {
                out.push_str("kube-apiserver-extra-mount:\n");
                for (_, path, reads) in files {
                    let mode = if *reads { ":ro" } else { "" };
                    writeln!(out, "- {:?}", format!("{path}:{path}{mode}")).expect("a String takes all text");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(keys: &str) -> Settings {
        toml::from_str(keys).unwrap()
    }

    fn written(keys: &[&str], on: Option<Distribution>, host: Option<&str>) -> String {
        let logs: Vec<_> = keys.iter().map(|keys| log(keys)).collect();
        setup(&logs, &SetupArgs { on, host: host.map(str::to_owned) }).unwrap()
    }

    /// The documents of YAML in it; comments are none.
    fn documents(text: &str) -> Vec<serde_json::Value> {
        let documents = text.split("---\n").map(|part| serde_yaml_ng::from_str(part).unwrap());
        documents.filter(|document: &serde_json::Value| !document.is_null()).collect()
    }

    const HOOK: &str =
        "name = 'hook'\nlisten = '0.0.0.0:9466'\ntls_cert_file = '/c'\ntls_key_file = '/k'\ntoken_file = '/t'\n";

    #[test]
    fn the_flags_of_a_file_stand_where_the_distribution_has_them() {
        let flags = |text: &str| {
            let document = &documents(text)[0];
            let of_kubeadm = document["apiServer"]["extraArgs"].as_array().into_iter().flatten();
            let of_kubeadm = of_kubeadm.map(|flag| format!("{}={}", flag["name"], flag["value"]).replace('"', ""));
            let of_rancher = document["kube-apiserver-arg"].as_array().into_iter().flatten();
            let of_rancher = of_rancher.map(|flag| flag.as_str().unwrap().to_owned());
            of_kubeadm.chain(of_rancher).collect::<Vec<_>>()
        };
        let expected = |directory: &str| {
            vec![
                format!("audit-policy-file={directory}/audit-policy.yaml"),
                "audit-log-path=/var/log/a/b.log".to_owned(),
                "audit-log-maxsize=100".to_owned(),
                "audit-log-maxbackup=3".to_owned(),
            ]
        };
        let keys = ["file = '/var/log/a/b.log'"];
        for (on, directory) in [
            (Distribution::Kubeadm, "/etc/kubernetes"),
            (Distribution::K3s, "/etc/rancher/k3s"),
            (Distribution::Rke2, "/etc/rancher/rke2"),
        ] {
            let text = written(&keys, Some(on), None);
            assert_eq!(flags(&text), expected(directory), "{text}");
        }
        let text = written(&keys, None, None);
        assert_eq!(documents(&text), Vec::<serde_json::Value>::new());
        for flag in expected("/etc/kubernetes") {
            assert!(text.contains(&format!("#    --{flag}\n")), "{text}");
        }
        assert!(text.contains("chgrp decklog /var/log/a/b.log"), "{text}");
        let none = written(&[], None, None);
        assert!(none.contains("#   [[audit_log]]") && none.contains(&format!("--audit-log-path={FILE}")), "{none}");
    }

    #[test]
    fn what_the_api_server_reads_is_in_its_pod() {
        let text = written(&[HOOK], Some(Distribution::Kubeadm), Some("log.example"));
        let volumes = documents(&text)[0]["apiServer"]["extraVolumes"].clone();
        let paths: Vec<_> = volumes.as_array().unwrap().iter().map(|volume| volume["hostPath"].clone()).collect();
        let names = ["audit-policy.yaml", "audit-webhook.yaml", "decklog-ca.crt", "decklog-token"];
        assert_eq!(paths, names.map(|name| format!("/etc/kubernetes/{name}")));
        // RKE2 mounts the files of flags by itself, and Kubernetes refuses a path that is mounted twice.
        let text = written(&["file = '/var/log/a/b.log'"], Some(Distribution::Rke2), None);
        assert_eq!(documents(&text)[0]["kube-apiserver-extra-mount"], serde_json::Value::Null, "{text}");
        let text = written(&[HOOK], Some(Distribution::Rke2), Some("log.example"));
        assert_eq!(
            documents(&text)[0]["kube-apiserver-extra-mount"],
            serde_json::json!([
                "/etc/rancher/rke2/decklog-ca.crt:/etc/rancher/rke2/decklog-ca.crt:ro",
                "/etc/rancher/rke2/decklog-token:/etc/rancher/rke2/decklog-token:ro"
            ]),
            "{text}"
        );
    }

    #[test]
    fn a_host_that_nothing_uses_is_said_to_be_unused() {
        for (keys, host, is_said) in [
            (&["file = '/x'"][..], Some("x"), true),
            (&[], Some("x"), true),
            (&["listen = '/run/x'"], Some("x"), true),
            (&["file = '/x'", HOOK], Some("x"), false),
            (&[HOOK], Some("x"), false),
            (&["file = '/x'"], None, false),
        ] {
            let logs: Vec<Settings> = keys.iter().map(|keys| log(keys)).collect();
            let said = unused_host(&logs, &SetupArgs { on: None, host: host.map(str::to_owned) });
            assert_eq!(said.is_some(), is_said, "{keys:?} {host:?}: {said:?}");
        }
    }

    #[test]
    fn paths_and_hosts_are_what_a_shell_and_a_url_take() {
        let text = written(&["file = '/var/log/my dir/b.log'"], None, None);
        assert!(text.contains("mkdir -p '/var/log/my dir'; touch '/var/log/my dir/b.log';"), "{text}");
        assert!(text.contains("--audit-log-path='/var/log/my dir/b.log'"), "{text}");
        for (host, is_taken) in [
            ("log.example", true),
            ("log.example.", true),
            ("10.0.0.7", true),
            ("fd00::7", true),
            ("[fd00::7]", true),
            ("foo bar", false),
            ("https://log.example", false),
            ("log.example:9466", false),
            ("", false),
            ("-a", false),
        ] {
            let args = SetupArgs { on: None, host: Some(host.to_owned()) };
            assert_eq!(setup(&[log(HOOK)], &args).is_ok(), is_taken, "{host:?}");
        }
        let here = std::env::current_dir().unwrap();
        for file in ["audit.log", "./audit.log", "-", "-f/x.log"] {
            let whole = quoted(&here.join(file.trim_start_matches("./")).display().to_string());
            let text = written(&[&format!("file = '{file}'")], None, None);
            assert!(text.contains(&format!("touch {whole};")), "{file}: {text}");
            assert!(text.contains(&format!("--audit-log-path={whole}\n")), "{file}: {text}");
        }
        let two = written(&["file = '/a/a.log'", "name = 'b'\nfile = '/b/b.log'"], None, None);
        assert_eq!(two.matches("On the control plane node whose kube-apiserver this is").count(), 2, "{two}");
    }

    #[test]
    fn the_kubeconfig_of_the_webhook_has_what_the_receiver_asks_for() {
        for (keys, host, server, members) in [
            (HOOK, None, "https://DECKLOG_HOST:9466/", &["certificate-authority", "tokenFile"][..]),
            (HOOK, Some("log.example"), "https://log.example:9466/", &["certificate-authority", "tokenFile"]),
            (HOOK, Some("fd00::7"), "https://[fd00::7]:9466/", &["certificate-authority", "tokenFile"]),
            ("listen = '127.0.0.1:1'", None, "http://127.0.0.1:1/", &[]),
            ("listen = '[::1]:1'", None, "http://[::1]:1/", &[]),
            (
                "listen = '10.0.0.7:1'\ntls_cert_file = '/c'\ntls_key_file = '/k'\nclient_ca_file = '/a'",
                None,
                "https://10.0.0.7:1/",
                &["certificate-authority", "client-certificate", "client-key"],
            ),
        ] {
            let text = written(&[keys], None, host);
            let document = &documents(&text)[0];
            let (cluster, user) = (&document["clusters"][0]["cluster"], &document["users"][0]["user"]);
            assert_eq!(cluster["server"], server, "{text}");
            let all = [cluster, user].into_iter().flat_map(|of| of.as_object().unwrap().keys());
            let all: Vec<_> = all.filter(|key| *key != "server").collect();
            assert_eq!(all, members, "{text}");
            assert_eq!(document["contexts"][0]["context"]["cluster"], document["clusters"][0]["name"], "{text}");
            assert_eq!(document["current-context"], "decklog", "{text}");
        }
        let socket = written(&["listen = 'unix:/run/a.sock'"], None, None);
        assert!(documents(&socket).is_empty() && socket.contains("JSON Lines"), "{socket}");
        assert_eq!(documents(&written(&[HOOK, "listen = '127.0.0.1:1'"], None, None)).len(), 2);
    }
}
