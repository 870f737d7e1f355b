//! A server inside a cluster: found by its label, and asked through the API server's proxy with the credentials of the kubeconfig.
//!
//! # Decision: a token goes to a namespace that is known
//!
//! Context: decklog is shown the token of the kubeconfig, and in most clusters many people may label a Service of their own.
//! Decision: A server that nobody has named is asked where it is the only one, in a namespace that the documentation installs it into.
//! Any other one is named in an error that says how to choose it.
//! Cost: One variable to set, once, where decklog is installed elsewhere.

use std::fmt::{self, Display};

use http::HeaderValue;
use kube::client::Body;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use tokio::sync::OnceCell;

use super::super::{Exit, Failure};
use super::{Answer, ServerArgs};
use crate::core::spelling::is_dns_label;
use crate::watch::cluster::{self, Api, Instead, Limits, Settings, refusal};

/// Words that open the name of such a server.
pub(super) const SCHEME: &str = "kube:";

/// Namespaces into which the documentation installs decklog.
const KNOWN: [&str; 2] = ["decklog", "logs"];

/// The label of decklog's Service and Pods.
const LABEL: &str = "app.kubernetes.io/name=decklog";

/// Bytes of a list of Services or Pods.
const LARGEST: usize = 16 << 20;

/// Servers that an error names.
const NAMED: usize = 10;

/// Bytes of a refusal that are read.
const REFUSAL: usize = 64 << 10;

/// Sort of object that leads to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Service,
    Pod,
}

impl Kind {
    const fn plural(self) -> &'static str {
        match self {
            Self::Service => "services",
            Self::Pod => "pods",
        }
    }
}

/// A server, as the proxy of the API server names it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Target {
    namespace: String,
    kind: Kind,
    name: String,
    port: String,
    has_tls: bool,
}

impl Target {
    fn path(&self, question: &str) -> String {
        let Self { namespace, kind, name, port, has_tls } = self;
        let scheme = if *has_tls { "https:" } else { "" };
        format!("/api/v1/namespaces/{namespace}/{}/{scheme}{name}:{port}/proxy/api/v1/{question}", kind.plural())
    }
}

impl Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pods = if self.kind == Kind::Pod { "pods/" } else { "" };
        write!(f, "kube://{}/{pods}{}", self.namespace, self.name)
    }
}

/// The part of `kube://…` that is given.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Wanted {
    /// The only one there is.
    Any,
    /// The only one of a namespace.
    In(String),
    /// The one with this name.
    Named(String, Kind, String),
    /// With its port and whether it has TLS, so that nothing is looked up.
    Exact(Target),
}

impl Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("kube:"),
            Self::In(namespace) => write!(f, "kube://{namespace}"),
            Self::Named(namespace, kind, name) => {
                write!(f, "kube://{namespace}/{}{name}", if *kind == Kind::Pod { "pods/" } else { "" })
            }
            Self::Exact(target) => target.fmt(f),
        }
    }
}

impl Wanted {
    /// Reads `kube:[//NAMESPACE[/[pods/][https:]NAME[:PORT]]]`.
    fn read(text: &str) -> Option<Self> {
        let rest = text.strip_prefix(SCHEME)?;
        let rest = rest.strip_prefix("//").unwrap_or(rest).trim_end_matches('/');
        if rest.is_empty() {
            return Some(Self::Any);
        }
        let (namespace, server) = rest.split_once('/').map_or((rest, None), |(first, rest)| (first, Some(rest)));
        let namespace = Some(namespace).filter(|name| is_dns_label(name))?.to_owned();
        let Some(server) = server else { return Some(Self::In(namespace)) };
        let (kind, server) = server.strip_prefix("pods/").map_or((Kind::Service, server), |rest| (Kind::Pod, rest));
        let (has_tls, server) = server.strip_prefix("https:").map_or((false, server), |rest| (true, rest));
        let (name, port) = server.split_once(':').map_or((server, None), |(name, port)| (name, Some(port)));
        // A Pod's name may have dots.
        let name = Some(name).filter(|name| name.split('.').all(is_dns_label))?.to_owned();
        match port {
            None if has_tls => None,
            None => Some(Self::Named(namespace, kind, name)),
            Some(port) if is_dns_label(port) => {
                Some(Self::Exact(Target { namespace, kind, name, port: port.to_owned(), has_tls }))
            }
            Some(_) => None,
        }
    }
}

/// A server inside the cluster of a kubeconfig.
#[derive(Debug)]
pub(super) struct Inside {
    wanted: Wanted,
    settings: Settings,
    /// Once it is found.
    target: OnceCell<Target>,
}

impl Display for Inside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.target.get() {
            Some(target) => target.fmt(f),
            None => self.wanted.fmt(f),
        }
    }
}

impl Inside {
    /// The server that `text` names.
    ///
    /// # Errors
    /// Where it names none.
    pub(super) fn read(text: &str, args: &ServerArgs) -> Result<Self, Failure> {
        let Some(wanted) = Wanted::read(text) else {
            let text = format!(
                "--server {text}: write kube://NAMESPACE/SERVICE, or kube://NAMESPACE/https:SERVICE:PORT where you may not list services"
            );
            return Err(Failure::usage(text));
        };
        if args.ca_file.is_some() || args.cert_file.is_some() || args.key_file.is_some() {
            let text = "--ca-file, --cert-file and --key-file are for https:// alone: to a server in the cluster the API server makes the connection";
            return Err(Failure::usage(text));
        }
        let settings = Settings {
            kubeconfig: args.kubeconfig.clone(),
            context: args.context.clone(),
            // The kubeconfig is that of a person, who uses kubectl with it.
            allow_exec: Some(true),
            allow_insecure_tls: true,
            ..Settings::default()
        };
        Ok(Self { wanted, settings, target: OnceCell::new() })
    }

    /// Asks a question.
    ///
    /// # Errors
    /// Where no server is found, none can be reached, or the API server does not let us.
    pub(super) async fn request(
        &self,
        question: &str,
        token: Option<HeaderValue>,
        ask: Vec<u8>,
    ) -> Result<Answer, Failure> {
        crate::core::net::install_crypto_provider();
        let api = Api::open(&self.settings, Limits::default())
            .await
            .map_err(|error| Failure::new(Exit::Config, error.to_string()))?;
        if token.is_none() && !api.shows_token() {
            return Err(Failure::new(
                Exit::Config,
                "the user of your kubeconfig has a certificate and no token, and no certificate gets through the API server's proxy: \
                 `kubectl create token SERVICEACCOUNT >token` makes a token, and --token-file token shows it to decklog",
            ));
        }
        let target = self.target.get_or_try_init(|| self.find(&api)).await?;
        let response = api.post_to_decklog(&target.path(question), token, ask).await.map_err(|error| away(&error))?;
        let (head, mut body) = response.into_parts();
        if head.status.is_success() {
            return Ok(Answer::Proxied(head, body));
        }
        let said = read(&mut body).await;
        match refusal(head.status, &head.headers, &said) {
            Some(instead) => Err(refused(target, &instead)),
            None => Ok(Answer::Proxied(head, Body::from(said))),
        }
    }

    async fn find(&self, api: &Api) -> Result<Target, Failure> {
        let found = match &self.wanted {
            Wanted::Exact(target) => return Ok(target.clone()),
            Wanted::Named(namespace, kind, name) => {
                let which = format!("fieldSelector={}", encoded(&format!("metadata.name={name}")));
                let found = list(api, *kind, Some(namespace), &which).await;
                let found = found.map_err(|error| not_listed(&error, *kind, Some(namespace)))?;
                return found.into_iter().next().ok_or_else(|| {
                    let what = match kind {
                        Kind::Service => "service",
                        Kind::Pod => "pod that runs",
                    };
                    let text =
                        format!("namespace {namespace} has no {what} named {name} with a port named http or https");
                    Failure::new(Exit::Config, text)
                });
            }
            Wanted::In(namespace) => search(api, Some(namespace)).await?,
            Wanted::Any => search(api, None).await?,
        };
        chosen(found, &self.wanted, api.name())
    }
}

/// Returns the one server that is meant.
fn chosen(mut found: Vec<Target>, wanted: &Wanted, cluster: &str) -> Result<Target, Failure> {
    let wrong = |text: String| Err(Failure::new(Exit::Config, text));
    let is_named = *wanted != Wanted::Any;
    match (found.pop(), found.is_empty()) {
        (Some(one), true) if is_named || KNOWN.contains(&one.namespace.as_str()) => Ok(one),
        (Some(one), true) => wrong(format!(
            "{one} in the cluster {cluster} calls itself decklog, and would see your token: if it is yours, name it with --server {one}, or in $DECKLOG_SERVER"
        )),
        (Some(one), false) => {
            found.push(one);
            found.sort_by_key(ToString::to_string);
            let names: Vec<String> = found.iter().take(NAMED).map(ToString::to_string).collect();
            let more = if found.len() > NAMED { ", …" } else { "" };
            wrong(format!(
                "there are several decklogs in the cluster {cluster}; say which one with --server, or in $DECKLOG_SERVER: {}{more}",
                names.join(", ")
            ))
        }
        (None, _) => {
            let place = match wanted {
                Wanted::In(namespace) => format!("in namespace {namespace} of the cluster {cluster}"),
                Wanted::Any | Wanted::Named(..) | Wanted::Exact(_) => format!("in the cluster {cluster}"),
            };
            wrong(format!(
                "no decklog was found {place}: no service and no running pod there has the label {LABEL} and a port named http or https; \
                 name one with --server kube://NAMESPACE/SERVICE, or read a journal of this machine with --state"
            ))
        }
    }
}

/// Returns the services with decklog's label, or else the Pods.
async fn search(api: &Api, namespace: Option<&str>) -> Result<Vec<Target>, Failure> {
    let which = format!("labelSelector={}", encoded(LABEL));
    for kind in [Kind::Service, Kind::Pod] {
        let found = match list(api, kind, namespace, &which).await {
            Err(cluster::Failure::Forbidden(_)) if namespace.is_none() => search_known(api, kind, &which).await?,
            found => found.map_err(|error| not_listed(&error, kind, namespace))?,
        };
        if !found.is_empty() {
            return Ok(found);
        }
    }
    Ok(Vec::new())
}

/// Returns those of the namespaces where we may look, which are not all.
async fn search_known(api: &Api, kind: Kind, which: &str) -> Result<Vec<Target>, Failure> {
    let own = api.namespace();
    let places = KNOWN.into_iter().chain(Some(own.as_str()).filter(|own| !KNOWN.contains(own)));
    let (mut found, mut refused, mut looked) = (Vec::new(), None, false);
    for namespace in places {
        match list(api, kind, Some(namespace), which).await {
            Ok(some) => (found, looked) = ([found, some].concat(), true),
            Err(error @ cluster::Failure::Forbidden(_)) => refused = Some(error),
            Err(error) => return Err(away(&error)),
        }
    }
    match refused {
        Some(error) if !looked && kind == Kind::Service => Err(not_listed(&error, kind, None)),
        Some(_) | None => Ok(found),
    }
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

async fn list(api: &Api, kind: Kind, namespace: Option<&str>, which: &str) -> Result<Vec<Target>, cluster::Failure> {
    let below = namespace.map(|name| format!("/namespaces/{name}")).unwrap_or_default();
    let path = format!("/api/v1{below}/{}?{which}", kind.plural());
    let bytes = api.get(&path, "application/json", LARGEST).await?;
    let list: Value = serde_json::from_slice(&bytes)
        .map_err(|_| cluster::Failure::Undecodable(format!("the list of {} cannot be read", kind.plural())))?;
    Ok(list["items"].as_array().into_iter().flatten().filter_map(|object| target(kind, object)).collect())
}

/// Returns the server that a Service or a Pod leads to; nothing where it has no port for it, or does not run.
fn target(kind: Kind, object: &Value) -> Option<Target> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let (namespace, name) = (text(&object["metadata"]["namespace"])?, text(&object["metadata"]["name"])?);
    let named = |ports: &Value| -> Option<(String, Value)> {
        let ports = ports.as_array().map(Vec::as_slice).unwrap_or_default();
        let port = ports.iter().find(|port| ["http", "https"].iter().any(|name| port["name"] == *name));
        let port = port.or(if ports.len() == 1 && kind == Kind::Service { ports.first() } else { None })?;
        let number = || port["port"].as_u64().map(|number| number.to_string());
        Some((text(&port["name"]).or_else(number)?, port.clone()))
    };
    let is_https = |value: &Value| value.as_str().is_some_and(|text| text.eq_ignore_ascii_case("https"));
    match kind {
        Kind::Service => {
            let (port, spec) = named(&object["spec"]["ports"])?;
            let has_tls = is_https(&spec["appProtocol"]) || is_https(&spec["name"]);
            Some(Target { namespace, kind, name, port, has_tls })
        }
        Kind::Pod => {
            if object["status"]["phase"] != "Running" {
                return None;
            }
            let containers = object["spec"]["containers"].as_array()?;
            containers.iter().find_map(|container| {
                let (_, spec) = named(&container["ports"])?;
                // The proxy takes no name for the port of a Pod.
                let port = spec["containerPort"].as_u64()?.to_string();
                let probed = ["startupProbe", "readinessProbe", "livenessProbe"];
                let has_tls = is_https(&spec["name"])
                    || probed.iter().any(|probe| is_https(&container[probe]["httpGet"]["scheme"]));
                let (namespace, name) = (namespace.clone(), name.clone());
                Some(Target { namespace, kind, name, port, has_tls })
            })
        }
    }
}

fn away(error: &cluster::Failure) -> Failure {
    use cluster::Failure::{Away, Busy, Unreachable};
    let passes = matches!(error, Away(_) | Unreachable(_) | Busy(_));
    Failure::new(if passes { Exit::Io } else { Exit::Config }, error.to_string())
}

/// Returns the error of a list that could not be had.
fn not_listed(error: &cluster::Failure, kind: Kind, namespace: Option<&str>) -> Failure {
    let cluster::Failure::Forbidden(_) = error else { return away(error) };
    let place =
        namespace.map_or_else(|| "any namespace that decklog may be in".to_owned(), |name| format!("namespace {name}"));
    let kind = kind.plural();
    Failure::new(
        Exit::Config,
        format!(
            "your user may not list {kind} in {place}, so that decklog cannot be found there: ask for that right, or write \
             --server kube://NAMESPACE/SERVICE:PORT, with https: before SERVICE where decklog has TLS"
        ),
    )
}

/// Returns the error for an answer that is the API server's and not decklog's.
fn refused(target: &Target, Instead { failure, message }: &Instead) -> Failure {
    use cluster::Failure::{Busy, Forbidden, NotFound, Server};
    let kind = target.kind.plural();
    if matches!(failure, Forbidden(_)) {
        let text = format!(
            "your user may not reach {target} through the API server: that takes the right to create {kind}/proxy in namespace {}",
            target.namespace
        );
        return Failure::new(Exit::Config, text);
    }
    // It finds no Service either where that has no endpoints yet.
    if matches!(failure, NotFound | Busy(_) | Server(_)) {
        let hint = if target.has_tls {
            "check that decklog runs there, and with TLS"
        } else {
            "check that decklog runs there; where it has TLS, its port needs appProtocol: https"
        };
        return Failure::new(Exit::Io, format!("the API server does not reach {target}: {message}; {hint}"));
    }
    away(failure)
}

/// Returns the start of a refusal.
async fn read(body: &mut Body) -> Vec<u8> {
    let mut text = Vec::new();
    while let Ok(Some(bytes)) = cluster::next_part(body, super::SERVER_TIMEOUT).await {
        text.extend_from_slice(&bytes);
        if text.len() > REFUSAL {
            break;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use axum::Router;
    use axum::extract::{Request, State};
    use axum::response::{IntoResponse, Response};
    use http::HeaderName;
    use http::header::{AUTHORIZATION, CONTENT_TYPE};
    use serde_json::json;
    use tokio::task::JoinSet;

    use super::*;
    use crate::core::net::TOKEN_HEADER;

    fn one(namespace: &str, name: &str) -> Target {
        let (namespace, name, port) = (namespace.to_owned(), name.to_owned(), "http".to_owned());
        Target { namespace, kind: Kind::Service, name, port, has_tls: false }
    }

    #[test]
    fn a_server_in_a_cluster_is_named_as_the_proxy_names_it() {
        let path = |text: &str| match Wanted::read(text) {
            Some(Wanted::Exact(target)) => target.path("tail"),
            other => format!("{other:?}"),
        };
        let below = |rest: &str| format!("/api/v1/namespaces/logs/{rest}/proxy/api/v1/tail");
        assert_eq!(path("kube://logs/decklog:http"), below("services/decklog:http"));
        assert_eq!(path("kube://logs/https:decklog:9465"), below("services/https:decklog:9465"));
        assert_eq!(path("kube://logs/pods/decklog-0.x:9465"), below("pods/decklog-0.x:9465"));
        for any in ["kube:", "kube://", "kube:///"] {
            assert_eq!(Wanted::read(any), Some(Wanted::Any), "{any}");
        }
        assert_eq!(Wanted::read("kube://logs/"), Some(Wanted::In("logs".to_owned())));
        let named = Wanted::Named("logs".to_owned(), Kind::Service, "decklog".to_owned());
        assert_eq!(Wanted::read("kube://logs/decklog"), Some(named));
        for wrong in [
            "kube://Logs",
            "kube://logs/../secrets",
            "kube://logs/a/b",
            "kube://logs/https:decklog",
            "kube://logs/decklog:",
            "kube://logs/decklog:http/x",
            "kube://logs/decklog?x",
            "kube://a:b@logs/decklog",
            "kubes",
        ] {
            assert_eq!(Wanted::read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_token_goes_to_one_server_that_is_known_or_named() {
        let chosen =
            |found: &[Target], wanted| chosen(found.to_vec(), &wanted, "prod").map_err(|error| error.text().to_owned());
        let (logs, shop) = (one("logs", "decklog"), one("shop", "decklog"));
        assert_eq!(chosen(std::slice::from_ref(&logs), Wanted::Any), Ok(logs.clone()));
        assert_eq!(chosen(std::slice::from_ref(&shop), Wanted::In("shop".to_owned())), Ok(shop.clone()));
        let error = chosen(std::slice::from_ref(&shop), Wanted::Any).unwrap_err();
        assert!(error.contains("would see your token") && error.contains("--server kube://shop/decklog"), "{error}");
        let error = chosen(&[shop.clone(), logs.clone()], Wanted::Any).unwrap_err();
        assert!(error.contains("several") && error.ends_with("kube://logs/decklog, kube://shop/decklog"), "{error}");
        let error = chosen(&[logs.clone(), one("logs", "other")], Wanted::In("logs".to_owned())).unwrap_err();
        assert!(error.contains("several"), "{error}");
        let error = chosen(&[], Wanted::In("logs".to_owned())).unwrap_err();
        assert!(error.contains("no decklog was found in namespace logs of the cluster prod"), "{error}");
    }

    /// What an API server was asked: the path with its query, its own token, and the one for decklog.
    type Asked = Arc<Mutex<Vec<(String, String, String)>>>;

    /// Has a Service of another name in each namespace, and decklog's where its label is asked for.
    async fn api_server(State(asked): State<Asked>, request: Request) -> Response {
        let header =
            |name: HeaderName| request.headers().get(name).map_or("", |value| value.to_str().unwrap()).to_owned();
        let uri = request.uri().to_string();
        let tokens = (header(AUTHORIZATION), header(TOKEN_HEADER));
        asked.lock().unwrap().push((uri.clone(), tokens.0, tokens.1));
        if uri.contains("/proxy/") {
            return ([(CONTENT_TYPE, "application/x-ndjson")], "{\"end\":{\"exit\":0}}\n").into_response();
        }
        let service = |namespace: &str, name: &str| json!({"metadata": {"namespace": namespace, "name": name}, "spec": {"ports": [{"name": "http", "port": 1}]}});
        let mut items = vec![service("logs", "decklog")];
        if !uri.contains("labelSelector=app%2Ekubernetes%2Eio%2Fname%3Ddecklog") {
            items.push(service("logs", "other"));
        }
        axum::Json(json!({"items": items})).into_response()
    }

    /// Without a name it is found by its label, and is shown the token of the kubeconfig, or the one that is for decklog alone.
    #[tokio::test]
    async fn it_is_found_by_its_label_and_shown_the_token_of_who_asks() {
        let asked = Asked::default();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().fallback(api_server).with_state(Arc::clone(&asked));
        let mut serving = JoinSet::new();
        serving.spawn(async move { axum::serve(listener, router).await.unwrap() });
        let file = tempfile::NamedTempFile::new().unwrap();
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "prod",
            "contexts": [{"name": "prod", "context": {"cluster": "prod", "user": "ann"}}],
            "clusters": [{"name": "prod", "cluster": {"server": server}}],
            "users": [{"name": "ann", "user": {"token": "token-of-ann"}}],
        });
        std::fs::write(&file, kubeconfig.to_string()).unwrap();
        let args = ServerArgs { kubeconfig: Some(file.path().to_owned()), ..ServerArgs::default() };
        for (own, shown) in [(None, "Bearer token-of-ann"), (Some("Bearer of-decklog"), "Bearer of-decklog")] {
            let inside = Inside::read("kube:", &args).unwrap();
            let answer = inside.request("tail", own.map(HeaderValue::from_static), b"{}".to_vec()).await.unwrap();
            assert_eq!((answer.status().as_u16(), inside.to_string().as_str()), (200, "kube://logs/decklog"));
            let asked = std::mem::take(&mut *asked.lock().unwrap());
            let (path, of_server, of_decklog) = asked.last().unwrap();
            assert_eq!(path, "/api/v1/namespaces/logs/services/decklog:http/proxy/api/v1/tail");
            assert_eq!((of_server.as_str(), of_decklog.as_str()), ("Bearer token-of-ann", shown));
            // Nothing else inside the cluster is shown it.
            assert!(asked.iter().rev().skip(1).all(|(_, _, of_decklog)| of_decklog.is_empty()), "{asked:?}");
        }
    }

    #[test]
    fn an_object_leads_to_the_port_that_decklog_listens_on() {
        let service = |ports: Value| {
            let object = json!({"metadata": {"namespace": "logs", "name": "decklog"}, "spec": {"ports": ports}});
            target(Kind::Service, &object).map(|target| (target.port, target.has_tls))
        };
        let port = |name: &str, tls: bool| Some((name.to_owned(), tls));
        assert_eq!(service(json!([{"name": "other", "port": 1}, {"name": "http", "port": 2}])), port("http", false));
        assert_eq!(service(json!([{"name": "http", "port": 2, "appProtocol": "https"}])), port("http", true));
        assert_eq!(service(json!([{"name": "https", "port": 2}])), port("https", true));
        assert_eq!(service(json!([{"port": 9465}])), port("9465", false));
        assert_eq!(service(json!([{"name": "a", "port": 1}, {"name": "b", "port": 2}])), None);
        assert_eq!(service(Value::Null), None);
        let pod = |phase: &str, scheme: &str| {
            let ports = json!([{"name": "http", "containerPort": 9465}]);
            let probe = json!({"httpGet": {"scheme": scheme}});
            let containers = json!([{"name": "proxy"}, {"ports": ports, "readinessProbe": probe}]);
            let metadata = json!({"namespace": "logs", "name": "decklog-0"});
            let object = json!({"metadata": metadata, "spec": {"containers": containers}, "status": {"phase": phase}});
            target(Kind::Pod, &object).map(|target| (target.port, target.has_tls))
        };
        assert_eq!(pod("Running", "HTTPS"), port("9465", true));
        assert_eq!(pod("Running", "HTTP"), port("9465", false));
        assert_eq!(pod("Pending", "HTTP"), None);
    }
}
