//! The simulated API server as a program, for tests of what is installed and for trying things by hand:
//!
//! ```text
//! cargo run --example apiserver -- KUBECONFIG
//! ```
//!
//! It writes a kubeconfig for itself, and prints a line for each list and watch that it is asked for. The ConfigMap `shop/count`
//! counts from 1 on, five times a second, and each second another manager sets the image of the Deployment `shop/web`. It ends with its
//! standard input.
#![allow(clippy::print_stdout, reason = "what it is asked is for whoever runs it")]

use std::error::Error;
use std::io::{Read, stdin};
use std::path::PathBuf;
use std::time::Duration;

use decklog::sim::faults::RequestKind;
use decklog::sim::{Sim, objects};
use serde_json::json;
use tokio::sync::oneshot;

/// Who sets the image of the Deployment, and which.
const SETTERS: [(&str, &str); 2] = [("kubectl-set", "nginx:1.30"), ("kubectl-client-side-apply", "nginx:1.29")];

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let kubeconfig = PathBuf::from(std::env::args_os().nth(1).ok_or("usage: apiserver KUBECONFIG")?);
    let sim = Sim::start().await?;
    sim.create_namespace("shop")?;
    sim.create("deployments.apps", objects::deployment("shop", "web", 2, "nginx:1.29"))?;
    sim.create("configmaps", objects::config_map("shop", "count", "1"))?;
    sim.write_kubeconfig(&kubeconfig)?;
    let mut beat = tokio::time::interval(Duration::from_millis(200));
    let (ends, mut end) = oneshot::channel();
    std::thread::Builder::new().name("end".to_owned()).spawn(move || {
        // However it ends, it has.
        drop(stdin().read_to_end(&mut Vec::new()));
        ends.send(()).unwrap_or_default();
    })?;
    let (mut printed, mut count) = (0, 1);
    loop {
        tokio::select! {
            _ = beat.tick() => {}
            _ = &mut end => return Ok(()),
        }
        count += 1;
        sim.patch("configmaps", "shop", "count", &json!({"data": {"value": count.to_string()}}))?;
        if count % 5 == 0 {
            // By turns, as somebody who tries a version and takes it back.
            let (manager, image) = SETTERS[(count / 5) % SETTERS.len()];
            sim.update("deployments.apps", "shop", "web", |deployment| {
                deployment["spec"]["template"]["spec"]["containers"][0]["image"] = image.into();
                let container = json!([{ "name": deployment["metadata"]["name"], "image": {} }]);
                let fields = json!({ "spec": { "template": { "spec": { "containers": container } } } });
                objects::touch(deployment, manager, "Update", "apps/v1", "", &fields);
            })?;
        }
        let requests = sim.requests();
        for seen in &requests[printed..] {
            let resource = seen.resource.as_deref().unwrap_or_default();
            match seen.asked {
                // One object, not older than what is known: whether the server has a version already. It is asked before a watch.
                RequestKind::List
                    if seen.param("limit").as_deref() == Some("1") && seen.query.contains("NotOlderThan") =>
                {
                    println!("probe {resource}");
                }
                // Of what brings new kinds decklog lists the metadata at each start. A source is listed whole.
                RequestKind::List if seen.accept.contains("PartialObjectMetadata") => println!("metadata {resource}"),
                RequestKind::List => println!("list {resource}"),
                RequestKind::Watch => println!("watch {resource}"),
                RequestKind::Get | RequestKind::Write | RequestKind::Other => {}
            }
        }
        printed = requests.len();
    }
}
