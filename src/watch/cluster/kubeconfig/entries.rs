//! The entries of kubeconfigs as kubectl reads and merges them (client-go, `tools/clientcmd`): `null` is nothing, names are
//! unique in a file, and of several files the first counts for each name.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::super::failure::bounded;
use super::tree::{self, Node};

/// The key of the cluster's extension that a credential plugin is given.
const EXEC_EXTENSION: &str = "client.authentication.k8s.io/exec";

/// The merged entries. They hold credentials, so none of them can be printed.
#[derive(Default)]
pub(super) struct Entries {
    pub(super) current_context: String,
    pub(super) clusters: BTreeMap<String, Cluster>,
    pub(super) users: BTreeMap<String, User>,
    pub(super) contexts: BTreeMap<String, Context>,
}

#[derive(Clone, Default)]
pub(super) struct Context {
    pub(super) cluster: String,
    pub(super) user: String,
    pub(super) namespace: String,
}

#[derive(Clone, Default)]
pub(super) struct Cluster {
    pub(super) server: String,
    pub(super) tls_server_name: String,
    pub(super) insecure_skip_tls_verify: bool,
    pub(super) certificate_authority: String,
    pub(super) certificate_authority_data: Vec<u8>,
    pub(super) proxy_url: String,
    pub(super) disable_compression: bool,
    pub(super) for_plugin: Option<Value>,
}

#[derive(Clone, Default)]
pub(super) struct User {
    pub(super) client_certificate: String,
    pub(super) client_certificate_data: Vec<u8>,
    pub(super) client_key: String,
    pub(super) client_key_data: Vec<u8>,
    pub(super) token: String,
    pub(super) token_file: String,
    pub(super) username: String,
    pub(super) password: String,
    pub(super) impersonate: String,
    pub(super) impersonate_uid: String,
    pub(super) impersonate_groups: Vec<String>,
    pub(super) impersonate_extra: BTreeMap<String, Vec<String>>,
    pub(super) auth_provider: Option<Provider>,
    pub(super) exec: Option<Exec>,
}

#[derive(Clone, Default)]
pub(super) struct Provider {
    pub(super) name: String,
    pub(super) config: BTreeMap<String, String>,
}

#[derive(Clone, Default)]
pub(super) struct Exec {
    pub(super) api_version: String,
    pub(super) command: String,
    pub(super) args: Vec<String>,
    /// Names and values.
    pub(super) env: Vec<(String, String)>,
    pub(super) install_hint: String,
    pub(super) interactive_mode: String,
    pub(super) provide_cluster_info: bool,
}

impl Entries {
    /// Reads the entries of one file. `file` is where relative paths begin. The error is one sentence that names keys, and
    /// quotes no value.
    pub(super) fn read(bytes: &[u8], file: &Path) -> Result<Self, String> {
        let tree = tree::read(bytes)?;
        let mut entries = Self::of(&tree).map_err(|wrong| wrong.sentence())?;
        let directory = file.parent().unwrap_or(Path::new(""));
        for cluster in entries.clusters.values_mut() {
            resolve(directory, &mut cluster.certificate_authority);
        }
        for user in entries.users.values_mut() {
            for path in [&mut user.client_certificate, &mut user.client_key, &mut user.token_file] {
                resolve(directory, path);
            }
            // A bare name is looked for in $PATH.
            if let Some(exec) = user.exec.as_mut().filter(|exec| exec.command.contains('/')) {
                resolve(directory, &mut exec.command);
            }
        }
        Ok(entries)
    }

    /// Adds what a later file has under names that the earlier ones do not have.
    pub(super) fn merge(&mut self, later: Self) {
        if self.current_context.is_empty() {
            self.current_context = later.current_context;
        }
        fn add<T>(to: &mut BTreeMap<String, T>, later: BTreeMap<String, T>) {
            for (name, entry) in later {
                to.entry(name).or_insert(entry);
            }
        }
        add(&mut self.clusters, later.clusters);
        add(&mut self.users, later.users);
        add(&mut self.contexts, later.contexts);
    }

    /// True where there is nothing in it: kubectl then asks for a service account.
    pub(super) fn is_empty(&self) -> bool {
        self.current_context.is_empty() && self.clusters.is_empty() && self.users.is_empty() && self.contexts.is_empty()
    }

    fn of(node: &Node) -> Reading<Self> {
        let Fields(map) = fields(node)?;
        let no_kubeconfig =
            |key: &'static str| Wrong::new("names another kind of document than a kubeconfig").within(key);
        let kind: String = field(map, "kind", line)?;
        let version: String = field(map, "apiVersion", line)?;
        if !kind.is_empty() && kind != "Config" {
            return Err(no_kubeconfig("kind"));
        }
        if !version.is_empty() && version != "v1" {
            return Err(no_kubeconfig("apiVersion"));
        }
        Ok(Self {
            current_context: field(map, "current-context", line)?,
            clusters: field(map, "clusters", |node| named(node, "cluster", cluster))?,
            users: field(map, "users", |node| named(node, "user", user))?,
            contexts: field(map, "contexts", |node| named(node, "context", context))?,
        })
    }
}

fn resolve(directory: &Path, path: &mut String) {
    if !path.is_empty()
        && let Some(absolute) = directory.join(&*path).to_str()
    {
        *path = absolute.to_owned();
    }
}

fn cluster(node: &Node) -> Reading<Cluster> {
    let Fields(map) = fields(node)?;
    let extensions = field(map, "extensions", |node| named(node, "extension", |node| Ok(Some(node.to_json()))))?;
    Ok(Cluster {
        server: field(map, "server", line)?,
        tls_server_name: field(map, "tls-server-name", line)?,
        insecure_skip_tls_verify: field(map, "insecure-skip-tls-verify", flag)?,
        certificate_authority: field(map, "certificate-authority", line)?,
        certificate_authority_data: field(map, "certificate-authority-data", data)?,
        proxy_url: field(map, "proxy-url", line)?,
        disable_compression: field(map, "disable-compression", flag)?,
        for_plugin: extensions.get(EXEC_EXTENSION).cloned().flatten(),
    })
}

fn user(node: &Node) -> Reading<User> {
    let Fields(map) = fields(node)?;
    Ok(User {
        client_certificate: field(map, "client-certificate", line)?,
        client_certificate_data: field(map, "client-certificate-data", data)?,
        client_key: field(map, "client-key", line)?,
        client_key_data: field(map, "client-key-data", data)?,
        token: field(map, "token", line)?,
        token_file: field(map, "tokenFile", line)?,
        username: field(map, "username", text)?,
        password: field(map, "password", text)?,
        impersonate: field(map, "as", line)?,
        impersonate_uid: field(map, "as-uid", line)?,
        impersonate_groups: field(map, "as-groups", |node| list(node, line))?,
        impersonate_extra: field(map, "as-user-extra", |node| each(node, |node| list(node, line)))?,
        auth_provider: field(map, "auth-provider", |node| provider(node).map(Some))?,
        exec: field(map, "exec", |node| exec(node).map(Some))?,
    })
}

fn provider(node: &Node) -> Reading<Provider> {
    let Fields(map) = fields(node)?;
    Ok(Provider { name: field(map, "name", line)?, config: field(map, "config", |node| each(node, text))? })
}

fn exec(node: &Node) -> Reading<Exec> {
    let Fields(map) = fields(node)?;
    Ok(Exec {
        api_version: field(map, "apiVersion", line)?,
        command: field(map, "command", line)?,
        args: field(map, "args", |node| list(node, text))?,
        env: field(map, "env", |node| {
            list(node, |node| {
                let Fields(map) = fields(node)?;
                Ok((field(map, "name", line)?, field(map, "value", text)?))
            })
        })?,
        install_hint: field(map, "installHint", text)?,
        interactive_mode: field(map, "interactiveMode", line)?,
        provide_cluster_info: field(map, "provideClusterInfo", flag)?,
    })
}

fn context(node: &Node) -> Reading<Context> {
    let Fields(map) = fields(node)?;
    // Nothing is made of a context's extensions, but they have to be what they are.
    field(map, "extensions", |node| named(node, "extension", |_node| Ok(())))?;
    Ok(Context {
        cluster: field(map, "cluster", line)?,
        user: field(map, "user", line)?,
        namespace: field(map, "namespace", line)?,
    })
}

/// A value that cannot be read, and the keys on the way there, innermost first.
struct Wrong {
    way: Vec<String>,
    what: &'static str,
}

type Reading<T> = Result<T, Wrong>;

impl Wrong {
    const fn new(what: &'static str) -> Self {
        Self { way: Vec::new(), what }
    }

    fn within(mut self, key: &str) -> Self {
        self.way.push(key.to_owned());
        self
    }

    fn sentence(&self) -> String {
        let mut way = String::new();
        for key in self.way.iter().rev() {
            let dot = if way.is_empty() || key.starts_with('[') { "" } else { "." };
            write!(way, "{dot}{key}").ok();
        }
        let way = if way.is_empty() { "it".to_owned() } else { format!("its {}", bounded(&way)) };
        format!("{way} {}", self.what)
    }
}

struct Fields<'a>(&'a BTreeMap<String, Node>);

fn fields(node: &Node) -> Reading<Fields<'_>> {
    static NONE: BTreeMap<String, Node> = BTreeMap::new();
    match node {
        Node::Map(map) => Ok(Fields(map)),
        Node::Null => Ok(Fields(&NONE)),
        Node::Bool(_) | Node::Number(_) | Node::Text(_) | Node::Binary(_) | Node::List(_) => {
            Err(Wrong::new("is no map of keys and values, as a kubeconfig has it there"))
        }
    }
}

fn field<T: Default>(
    map: &BTreeMap<String, Node>,
    key: &'static str,
    read: impl FnOnce(&Node) -> Reading<T>,
) -> Reading<T> {
    match map.get(key) {
        None | Some(Node::Null) => Ok(T::default()),
        Some(node) => read(node).map_err(|wrong| wrong.within(key)),
    }
}

fn text(node: &Node) -> Reading<String> {
    match node {
        Node::Text(text) => Ok(text.clone()),
        Node::Null => Ok(String::new()),
        Node::Binary(bytes) => {
            String::from_utf8(bytes.clone()).map_err(|_error| Wrong::new("is !!binary that holds no text"))
        }
        Node::Number(_) | Node::Bool(_) => Err(Wrong::new("is no text: put it in quotes")),
        Node::List(_) | Node::Map(_) => Err(Wrong::new("is no text")),
    }
}

/// A text without the line end that a block of YAML, or an editor, leaves after it.
fn line(node: &Node) -> Reading<String> {
    text(node).map(|text| text.trim_matches(['\r', '\n']).to_owned())
}

fn flag(node: &Node) -> Reading<bool> {
    match node {
        Node::Bool(value) => Ok(*value),
        Node::Null => Ok(false),
        // YAML 1.1, which kubectl reads.
        Node::Text(text) => match text.as_str() {
            "y" | "Y" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => Ok(true),
            "n" | "N" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => Ok(false),
            _ => Err(Wrong::new("is neither true nor false")),
        },
        Node::Number(_) | Node::Binary(_) | Node::List(_) | Node::Map(_) => {
            Err(Wrong::new("is neither true nor false"))
        }
    }
}

/// Bytes in base64, with line breaks and spaces anywhere. Of `!!binary`, which YAML tools write for bytes, both forms count:
/// the bytes themselves, and base64 of them once more.
fn data(node: &Node) -> Reading<Vec<u8>> {
    const PEM: &[u8] = b"-----BEGIN ";
    let decode = |text: &[u8]| {
        let text: Vec<u8> = text.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
        STANDARD.decode(text).map_err(|_error| Wrong::new("is not base64"))
    };
    match node {
        Node::Null => Ok(Vec::new()),
        Node::Text(text) => decode(text.as_bytes()),
        Node::Binary(bytes) if memchr::memmem::find(bytes, PEM).is_some() => Ok(bytes.clone()),
        Node::Binary(bytes) => decode(bytes),
        Node::Bool(_) | Node::Number(_) | Node::List(_) | Node::Map(_) => Err(Wrong::new("is not base64")),
    }
}

fn list<T>(node: &Node, read: impl Fn(&Node) -> Reading<T>) -> Reading<Vec<T>> {
    match node {
        Node::Null => Ok(Vec::new()),
        Node::List(list) => list
            .iter()
            .enumerate()
            .map(|(at, node)| read(node).map_err(|wrong| wrong.within(&format!("[{at}]"))))
            .collect(),
        Node::Bool(_) | Node::Number(_) | Node::Text(_) | Node::Binary(_) | Node::Map(_) => {
            Err(Wrong::new("is no list"))
        }
    }
}

fn each<T>(node: &Node, read: impl Fn(&Node) -> Reading<T>) -> Reading<BTreeMap<String, T>> {
    let Fields(map) = fields(node)?;
    map.iter().map(|(key, node)| Ok((key.clone(), read(node).map_err(|wrong| wrong.within(key))?))).collect()
}

/// A list of `name` and the entry itself. No name stands twice.
fn named<T: Default>(
    node: &Node,
    key: &'static str,
    read: impl Fn(&Node) -> Reading<T>,
) -> Reading<BTreeMap<String, T>> {
    let entries = list(node, |node| {
        let Fields(map) = fields(node)?;
        Ok((field(map, "name", line)?, field(map, key, &read)?))
    })?;
    let mut found = BTreeMap::new();
    for (at, (name, entry)) in entries.into_iter().enumerate() {
        if found.insert(name, entry).is_some() {
            return Err(
                Wrong::new("has the name of an earlier entry: remove or rename one of them").within(&format!("[{at}]"))
            );
        }
    }
    Ok(found)
}
