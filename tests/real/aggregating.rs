//! Other API servers behind the real one that have subresources alone, as those of custom metrics have: the real one
//! writes `null` into its discovery document for them. And the time until a new kind is read.

use std::convert::Infallible;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use decklog::watch;
use decklog::watch::Timings;
use decklog::watch::cluster::{Api, Limits};
use decklog::watch::discovery::Discoverer;
use http::{Request, Response, header};
use http_body_util::Full;
use hyper_util::rt::TokioIo;
use kube::client::Body;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::extensions::define;
use crate::harness::{Cluster, LIMIT, Parts, Version, client_of, until};
use crate::reading::Reading;

const VERSION: &str = "v1beta1";
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// See the module.
pub async fn scenario(version: Version) {
    let cluster = Cluster::start(version, Parts::Bare).await;
    let mut servers = JoinSet::new();
    cluster.create("/api/v1/namespaces", &json!({"metadata": {"name": "monitoring"}})).await;
    // One has aggregated discovery itself, and for the other the real API server puts its part together.
    let groups = [("custom.metrics.k8s.io", true), ("external.metrics.k8s.io", false)];
    for (group, aggregated) in groups {
        let port = serve(&cluster, &mut servers, group, aggregated).await;
        register(&cluster, group, port).await;
    }
    both_forms(&cluster, &groups.map(|(group, _)| group)).await;

    let everything = watch::Settings {
        resources: vec!["*".to_owned()],
        exclude: vec!["leases.coordination.k8s.io".to_owned(), "events".to_owned()],
        ..watch::Settings::default()
    };
    for (definitions, plural) in [(true, "widgets"), (false, "gadgets")] {
        let reading =
            Reading::start(&cluster, "calm", everything.clone(), Timings { definitions, ..Timings::default() }).await;
        assert!(reading.sources().len() > 20, "{}", reading.sources().len());
        assert_eq!(reading.troubles(), []);
        let maps = "/api/v1/namespaces/default/configmaps";
        cluster.create(maps, &json!({"metadata": {"name": plural}})).await;
        reading.tells("a map", |entry| entry.resource == "configmaps" && entry.name == plural).await;
        let created = Instant::now();
        define(&cluster, plural, "Namespaced").await;
        let served = Instant::now();
        let kind = if plural == "widgets" { "Widget" } else { "Gadget" };
        let object = json!({"apiVersion": "example.com/v1", "kind": kind, "metadata": {"name": "one"}});
        let path = format!("/apis/example.com/v1/namespaces/default/{plural}");
        until("an object of the new kind", LIMIT, async || {
            let (status, answer) = cluster.call("POST", &path, Some(&object)).await;
            if status == 201 { Ok(()) } else { Err(answer.to_string()) }
        })
        .await;
        reading.tells("an object of the new kind", |entry| entry.resource == plural && entry.name == "one").await;
        eprintln!(
            "{} {version:?}: recorded {:?} after its definition was made, {:?} after it was served",
            if definitions { "definitions watched" } else { "discovery polled" },
            created.elapsed(),
            served.elapsed()
        );
        reading.stop().await;
    }
}

/// Both forms of discovery name every group, and what is the matter with none.
async fn both_forms(cluster: &Cluster, groups: &[&str]) {
    let client = client_of(&cluster.kubeconfig("admin")).await.unwrap();
    let old = client.clone();
    let old = tower::service_fn(move |mut request: Request<Body>| {
        let plain = header::HeaderValue::from_static("application/json");
        request.headers_mut().insert(header::ACCEPT, plain);
        let client = old.clone();
        async move { client.send(request).await }
    });
    let mut served = Vec::new();
    for client in [client, kube::Client::new(old, "default")] {
        let api = Api::with_client(client, "test", Limits::default()).await.unwrap();
        let found = until("discovery to have every group", LIMIT, async || {
            let found = Discoverer::default().discover(&api).await.map_err(|error| error.to_string())?;
            let troubles = found.troubles();
            if troubles.is_empty() { Ok(found) } else { Err(format!("{troubles:?}")) }
        })
        .await;
        assert!(!found.served.iter().any(|one| groups.contains(&one.group.as_str())), "nothing of them can be listed");
        let mut names: Vec<String> =
            found.served.iter().map(|one| format!("{} {}", one.full_name(), one.version)).collect();
        names.sort_unstable();
        served.push(names);
    }
    assert_eq!(served[0], served[1]);
}

/// Starts an API server with nothing but a subresource of Pods and one of Nodes.
async fn serve(cluster: &Cluster, tasks: &mut JoinSet<()>, group: &'static str, aggregated: bool) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let acceptor = tokio_rustls::TlsAcceptor::from(certificate(&cluster.path(&format!("{group}.d"))));
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let acceptor = acceptor.clone();
            connections.spawn(async move {
                // Whoever only looks whether the port is open says nothing.
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let service = hyper::service::service_fn(move |request: Request<hyper::body::Incoming>| {
                    let accept = request.headers().get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
                    let wants = accept.is_some_and(|accept| accept.contains("as=APIGroupDiscoveryList"));
                    let answer = answer(group, request.uri().path(), wants && aggregated);
                    async move { Ok::<_, Infallible>(answer) }
                });
                let http = hyper::server::conn::http1::Builder::new();
                // The API server closes its connections as it likes.
                drop(http.serve_connection(TokioIo::new(stream), service).await);
            });
        }
    });
    port
}

fn certificate(dir: &Path) -> Arc<rustls::ServerConfig> {
    std::fs::create_dir(dir).unwrap();
    let arguments = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout key.pem -out cert.pem -days 2 -subj /CN=adapter";
    let output = Command::new("openssl").args(arguments.split(' ')).current_dir(dir).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let certificates = vec![CertificateDer::from_pem_file(dir.join("cert.pem")).unwrap()];
    let key = PrivateKeyDer::from_pem_file(dir.join("key.pem")).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    Arc::new(config.with_no_client_auth().with_single_cert(certificates, key).unwrap())
}

fn answer(group: &str, path: &str, aggregated: bool) -> Response<Full<Bytes>> {
    let version = json!({"groupVersion": format!("{group}/{VERSION}"), "version": VERSION});
    let groups = json!({"name": group, "versions": [version], "preferredVersion": version});
    let value = match path.trim_matches('/').split('/').collect::<Vec<_>>()[..] {
        ["apis"] if aggregated => subresources_alone(group),
        ["apis"] => json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": [groups]}),
        ["apis", asked] if asked == group => groups,
        ["apis", asked, VERSION] if asked == group => {
            let one = |name: &str, namespaced: bool| json!({"name": name, "singularName": "", "namespaced": namespaced, "kind": "MetricValueList", "verbs": ["get"]});
            json!({
                "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": format!("{group}/{VERSION}"),
                "resources": [one("pods/requests", true), one("nodes/load", false)],
            })
        }
        _ => return Response::builder().status(404).body(Full::default()).unwrap(),
    };
    let kind = if path.trim_matches('/') == "apis" && aggregated { AGGREGATED } else { "application/json" };
    Response::builder().header(header::CONTENT_TYPE, kind).body(Full::from(value.to_string())).unwrap()
}

fn subresources_alone(group: &str) -> Value {
    let one = |resource: &str, scope: &str, subresource: &str| {
        json!({
            "resource": resource, "responseKind": {"group": "", "version": "", "kind": ""}, "scope": scope, "singularResource": "",
            "verbs": null, "subresources": [{"subresource": subresource, "responseKind": {"group": "", "version": "", "kind": "MetricValueList"}, "verbs": ["get"]}],
        })
    };
    json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {},
        "items": [{
            "metadata": {"name": group, "creationTimestamp": null},
            "versions": [{"version": VERSION, "freshness": "Current", "resources": [one("pods", "Namespaced", "requests"), one("nodes", "Cluster", "load")]}],
        }],
    })
}

/// Lets the real API server answer for the group by asking that server.
async fn register(cluster: &Cluster, group: &str, port: u16) {
    let name = group.split('.').next().unwrap();
    let service = json!({
        "metadata": {"name": name},
        "spec": {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]},
    });
    cluster.create("/api/v1/namespaces/monitoring/services", &service).await;
    let services = "/apis/apiregistration.k8s.io/v1/apiservices";
    let registered = json!({
        "metadata": {"name": format!("{VERSION}.{group}")},
        "spec": {
            "group": group, "version": VERSION, "insecureSkipTLSVerify": true, "groupPriorityMinimum": 100, "versionPriority": 100,
            "service": {"namespace": "monitoring", "name": name, "port": port},
        },
    });
    cluster.create(services, &registered).await;
    until(&format!("{group} to be available"), LIMIT, async || {
        let service = cluster.get(&format!("{services}/{VERSION}.{group}")).await?;
        let conditions = service["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let available = conditions.iter().any(|one| one["type"] == "Available" && one["status"] == "True");
        if available { Ok(()) } else { Err(format!("{conditions:?}")) }
    })
    .await;
}
