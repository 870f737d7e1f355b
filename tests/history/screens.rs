//! What a terminal shows: whole words, columns, and causes before effects.

use serde_json::json;

use crate::story::{Story, owned, resource, run, run_on_terminal, shop, shown};

/// Words of sentences and of GAP lines stand whole on a terminal of any width, on standard error too, and a pipe gets each in one
/// line.
#[tokio::test(start_paused = true)]
async fn no_word_of_a_sentence_is_cut_on_a_terminal() {
    let dir = shop().await;
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    for args in [
        &["tail", "--type", "GAP"][..],
        &["tail", "--touched", "replica", "--type", "GAP"],
        &["log", "deploy/web", "--type", "GAP"],
        &["log", "--tree", "deploy/web", "--type", "GAP"],
        &["log", "-n", "shop", "--since", "2018-01-01", "--type", "GAP"],
        &["diff", "-n", "shop", "--from", "2018-01-01", "--only", "nothing"],
        &["status"],
        &["status", "--check"],
        &["show", "22"],
        &["verify"],
        &["get", "svc"],
        &["log", "deploy/nothing-that-is-there"],
    ] {
        let piped = run(dir.path(), args);
        assert!(piped.err.lines().all(|line| line.starts_with("decklog: ")), "{args:?}: {piped:?}");
        for columns in [60, 80, 120] {
            let text = shown(dir.path(), &[args, &["--color", "never", "--no-pager"]].concat(), columns);
            let wide = text.lines().find(|line| line.chars().count() > usize::from(columns));
            assert!(wide.is_none(), "{args:?} in {columns}: {wide:?} of {text}");
            let said = words(&text);
            for sentence in piped.err.lines().filter(|line| !line.ends_with(" ago")) {
                assert!(said.contains(&words(sentence)), "{args:?} in {columns}: {sentence:?} in {text}");
            }
        }
    }
}

/// Each watch brings its changes at its own pace: within a second the cause comes before its effects, whatever came first.
#[tokio::test(start_paused = true)]
async fn causes_come_before_effects_of_the_same_second() {
    let web = |image: &str, seen: u64| {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop", "uid": "web"},
            "spec": {"image": image}, "status": {"observedGeneration": seen}})
    };
    let set = |n: u64| owned("ReplicaSet", "web-1", "set", ("Deployment", "web", "web"), &json!({"status": {"n": n}}));
    let pod = owned("Pod", "web-1-a", "pod", ("ReplicaSet", "web-1", "set"), &json!({}));
    let slice = |n: u64| {
        let mut slice = owned("EndpointSlice", "web-x7k2p", "slice", ("Deployment", "web", "web"), &json!({"n": n}));
        slice["apiVersion"] = "discovery.k8s.io/v1".into();
        slice
    };
    let mut story = Story::begin().await;
    story.watch("10:00:00", resource("endpointslices", "discovery.k8s.io", "EndpointSlice", "")).await;
    story.put("10:00:00", "deployments", &web("a", 1)).await;
    for (time, source, object) in [
        // The second that is asked about: the Pod is told first, and the rollout that made it last.
        ("10:00:05.100", "pods", &pod),
        ("10:00:05.200", "endpointslices", &slice(1)),
        ("10:00:05.300", "replicasets", &set(1)),
        ("10:00:05.400", "replicasets", &set(2)),
        ("10:00:05.500", "deployments", &web("b", 1)),
        ("10:00:05.600", "deployments", &web("b", 2)),
        // Another second is another time.
        ("10:00:06.000", "endpointslices", &slice(2)),
        ("10:00:07.000", "deployments", &web("c", 2)),
    ] {
        story.put(time, source, object).await;
    }
    let dir = story.end().await;
    let told = |terminal: bool| {
        let args = ["log", "--tree", "deploy/web", "--all", "-r", "--color", "never"];
        let answer = if terminal { run_on_terminal(dir.path(), &args, 120) } else { run(dir.path(), &args) };
        let name = |line: &str| line.split_whitespace().find(|word| word.contains('/')).map(str::to_owned);
        (answer.out.lines().filter_map(name).collect::<Vec<_>>(), answer.out)
    };
    let (names, text) = told(false);
    let expected = ["deploy/web", "deploy/web", "rs/web-1", "endpointslice/web-x7k2p", "pod/web-1-a", "deploy/web"];
    let expected: Vec<&str> = [&expected[..], &["rs/web-1", "endpointslice/web-x7k2p", "deploy/web"]].concat();
    assert_eq!(names, expected, "{text}");
    // The kind is short, so that what follows the names stands in one column.
    let (_, text) = told(true);
    let columns: Vec<usize> = text.lines().filter_map(|line| line.find("no managedFields")).collect();
    assert!(columns.len() > 2 && columns.windows(2).all(|pair| pair[0] == pair[1]), "{text}");
}
