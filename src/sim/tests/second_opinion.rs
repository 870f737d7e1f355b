//! A second opinion: that of kube's own client.

use super::*;

async fn kube_client(sim: &Sim) -> kube::Client {
    let config = kube::config::Kubeconfig::from_yaml(&sim.kubeconfig()).unwrap();
    let mut config =
        kube::Config::from_custom_kubeconfig(config, &kube::config::KubeConfigOptions::default()).await.unwrap();
    config.default_retry = false;
    kube::Client::try_from(config).unwrap()
}

#[tokio::test]
async fn kube_reads_and_writes_it() {
    let sim = sim().await;
    let nowhere: Api<ConfigMap> = Api::namespaced(kube_client(&sim).await, "nowhere");
    let made: ConfigMap = serde_json::from_value(map("a", "1")).unwrap();
    assert!(nowhere.create(&PostParams::default(), &made).await.is_err(), "there is no such namespace");
    sim.create_namespace("shop").unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(kube_client(&sim).await, "shop");
    let made: ConfigMap = serde_json::from_value(map("a", "1")).unwrap();
    maps.create(&PostParams::default(), &made).await.unwrap();
    let list = maps.list(&ListParams::default().limit(10)).await.unwrap();
    assert_eq!(list.items.len(), 1);
    assert_eq!(list.items[0].data.as_ref().unwrap()["value"], "1");
    let version = list.metadata.resource_version.unwrap();
    let mut events = maps.watch(&WatchParams::default(), &version).await.unwrap().boxed();
    maps.delete("a", &kube::api::DeleteParams::default()).await.unwrap();
    match events.try_next().await.unwrap() {
        Some(WatchEvent::Deleted(map)) => assert_eq!(map.metadata.name.as_deref(), Some("a")),
        other => panic!("{other:?}"),
    }
    let Err(kube::Error::Api(status)) = maps.get("a").await else { panic!("the object is gone") };
    assert_eq!((status.code, status.reason.as_str()), (404, "NotFound"));
    assert!(sim.requests().iter().all(|seen| seen.authorization == format!("Bearer {TOKEN}")));
}

#[tokio::test]
async fn kube_discovers_it_in_both_forms() {
    let sim = sim().await;
    sim.define(objects::crd("widgets.example.com", "Widget", true, &["v1", "v1beta1"])).unwrap();
    let client = kube_client(&sim).await;
    assert_eq!(client.apiserver_version().await.unwrap().git_version, "v1.35.2");
    let found = |discovery: Discovery| {
        let mut found = BTreeMap::new();
        for group in discovery.groups() {
            for (resource, capabilities) in group.recommended_resources() {
                let verbs = ["list", "watch"].map(|verb| capabilities.supports_operation(verb));
                found.insert(
                    format!("{}.{}", resource.plural, resource.group),
                    (resource.version, resource.kind, verbs),
                );
            }
        }
        found
    };
    let new = found(Discovery::new(client.clone()).run_aggregated().await.unwrap());
    sim.set(|settings| settings.legacy_discovery = true);
    let old = found(Discovery::new(client.clone()).run().await.unwrap());
    assert_eq!(new, old);
    assert_eq!(new["pods."], ("v1".to_owned(), "Pod".to_owned(), [true, true]));
    assert_eq!(new["componentstatuses."].2, [true, false]);
    assert_eq!(new["tokenreviews.authentication.k8s.io"].2, [false, false]);
    assert_eq!(new["widgets.example.com"].0, "v1");
    sim.set(|settings| settings.legacy_discovery = false);
    sim.set(|settings| {
        settings.stale_groups.insert("example.com".to_owned());
    });
    let groups = client.list_api_groups_aggregated().await.unwrap();
    let stale: Vec<_> = groups
        .items
        .iter()
        .filter(|group| group.versions.iter().any(|version| version.freshness.as_deref() == Some("Stale")))
        .map(|group| group.metadata.as_ref().and_then(|m| m.name.clone()).unwrap_or_default())
        .collect();
    assert_eq!(stale, ["example.com"]);
}

#[tokio::test]
async fn a_document_that_has_not_changed_is_not_sent_again() {
    let sim = sim().await;
    let ask = async |root: &str, etag: &str| {
        let request = client().get(format!("{}{root}", sim.url())).bearer_auth(TOKEN);
        let request = request.header(ACCEPT, crate::sim::discovery::AGGREGATED).header(IF_NONE_MATCH, etag);
        let answer = request.send().await.unwrap();
        let etag = answer.headers()[ETAG].to_str().unwrap().to_owned();
        (answer.status().as_u16(), etag)
    };
    let (status, core) = ask("/api", "").await;
    let (_, groups) = ask("/apis", "").await;
    assert!(status == 200 && core != groups);
    assert_eq!(ask("/api", &core).await, (304, core.clone()));
    assert_eq!(ask("/apis", &core).await, (200, groups.clone()), "it is that of another document");
    sim.define(objects::crd("widgets.example.com", "Widget", true, &["v1"])).unwrap();
    let (status, defined) = ask("/apis", &groups).await;
    assert_eq!(status, 200);
    sim.set(|settings| {
        settings.stale_groups.insert("example.com".to_owned());
    });
    assert_eq!(ask("/apis", &defined).await.0, 200);
}

#[tokio::test]
async fn kubes_own_watcher_converges() {
    let sim = Sim::start_with(Settings { seed: 7, ..Settings::default() }).await.unwrap();
    for n in 0..5 {
        sim.create("configmaps", map(&format!("m{n}"), "1")).unwrap();
    }
    let resource = ApiResource::erase::<ConfigMap>(&());
    let maps: Api<DynamicObject> = Api::all_with(kube_client(&sim).await, &resource);
    let config = kube_runtime::watcher::Config::default().page_size(2);
    let mut stream = kube_runtime::watcher(maps, config).boxed();
    let mut state = BTreeMap::new();
    let mut changed = false;
    loop {
        use kube_runtime::watcher::Event;
        match stream.try_next().await {
            Ok(Some(Event::Init)) => state.clear(),
            Ok(Some(Event::InitApply(object) | Event::Apply(object))) => {
                state.insert(object.metadata.name.unwrap(), object.metadata.resource_version.unwrap());
            }
            Ok(Some(Event::Delete(object))) => {
                state.remove(&object.metadata.name.unwrap());
            }
            Ok(Some(Event::InitDone)) if !changed => {
                changed = true;
                sim.fault(Fault::new(On::watch("configmaps"), Act::cut_in_event(1)));
                sim.delete("configmaps", "shop", "m1").unwrap();
                sim.patch("configmaps", "shop", "m2", &json!({"data": {"value": "2"}})).unwrap();
                sim.create("configmaps", map("m9", "1")).unwrap();
            }
            Ok(Some(Event::InitDone)) | Err(_) => {}
            Ok(None) => panic!("a watcher never ends"),
        }
        let truth: BTreeMap<_, _> = sim
            .objects("configmaps")
            .unwrap()
            .iter()
            .map(|row| (row.name.to_string(), row.revision.to_string()))
            .collect();
        if changed && state == truth {
            break;
        }
    }
    assert!(sim.count(&On::watch("configmaps")) >= 2, "the cut was met");
}
