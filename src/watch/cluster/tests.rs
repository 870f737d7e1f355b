//! Kubeconfigs, plugins and clients.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::Frame;
use jiff::Timestamp;
use kube::Client;
use kube::client::Body;
use tokio::time::{Instant, timeout};

use super::credentials::FILE_POLL_INTERVAL;
use super::kubeconfig::{Caller, find};
use super::*;

const TWO: &str = r#"
apiVersion: v1
kind: Config
contexts:
- name: prod
  context: {cluster: prod-eu1, user: me}
- name: test
  context: {cluster: prod-eu1, user: me}
clusters:
- name: prod-eu1
  cluster: {server: "http://127.0.0.1:1"}
users:
- name: me
  user: {tokenFile: token}
"#;

fn at(dir: &Path, context: Option<&str>) -> Settings {
    Settings { kubeconfig: Some(dir.join("config")), context: context.map(str::to_owned), ..Settings::default() }
}

#[tokio::test]
async fn what_is_wrong_with_a_kubeconfig_is_one_sentence() {
    let dir = tempfile::tempdir().unwrap();
    let error = async |context| Api::open(&at(dir.path(), context), Limits::default()).await.unwrap_err().to_string();
    assert!(error(None).await.contains("config cannot be used: failed to read"), "a missing file");
    std::fs::write(dir.path().join("config"), TWO).unwrap();
    assert!(error(Some("prdo")).await.ends_with(r#"has no context "prdo"; it has prod, test"#));
    assert!(error(None).await.ends_with("has no current-context; set [cluster] context to one of prod, test"));
    std::fs::write(dir.path().join("config"), "a: [").unwrap();
    assert!(error(None).await.contains("cannot be used"));
}

/// A kubeconfig whose credentials come from this shell script.
fn with_plugin(dir: &Path, script: &str) -> Settings {
    let text = format!(
        r#"
apiVersion: v1
kind: Config
current-context: prod
contexts: [{{name: prod, context: {{cluster: prod, user: me}}}}]
clusters: [{{name: prod, cluster: {{server: "http://127.0.0.1:1"}}}}]
users:
- name: me
  user:
    exec:
      apiVersion: client.authentication.k8s.io/v1
      command: /bin/sh
      args: ["-c", "{script}"]
      env: [{{name: PASSWORD, value: hunter2}}]
      interactiveMode: Never
"#
    );
    std::fs::write(dir.join("config"), text).unwrap();
    Settings { allow_exec: Some(true), ..at(dir, None) }
}

/// systemd's, with a terminal and the files of its own user.
const SERVICE: Caller = Caller { is_service: true, at_terminal: true, user: 0 };

/// Fault 85: who runs kubectl with a kubeconfig of their own runs its programs anyway; a service, a program without anybody
/// at a terminal, and who reads the kubeconfig of somebody else, does not.
#[tokio::test]
async fn a_person_at_a_terminal_runs_the_programs_of_their_own_kubeconfig() {
    let dir = tempfile::tempdir().unwrap();
    let settings = Settings { allow_exec: None, ..with_plugin(dir.path(), "exit 3") };
    let user = std::fs::metadata(dir.path().join("config")).unwrap().uid();
    let person = Caller { is_service: false, at_terminal: true, user };
    let is_allowed = async |settings: &Settings, caller: Caller| match find(settings, caller, None) {
        Ok(_) => true,
        Err(error) => {
            assert!(error.to_string().contains("set [cluster] allow_exec = true"), "{error}");
            false
        }
    };
    assert!(is_allowed(&settings, person).await);
    for other in [
        Caller { is_service: true, ..person },
        Caller { at_terminal: false, ..person },
        Caller { user: user + 1, ..person },
    ] {
        assert!(!is_allowed(&settings, other).await, "{other:?}");
        // What the configuration says counts, for everybody.
        assert!(is_allowed(&Settings { allow_exec: Some(true), ..settings.clone() }, other).await);
    }
    assert!(!is_allowed(&Settings { allow_exec: Some(false), ..settings.clone() }, person).await);
}

/// Fault 85: a kubeconfig runs no program and does without TLS only where that is allowed.
#[tokio::test]
async fn programs_and_missing_tls_have_to_be_allowed() {
    let dir = tempfile::tempdir().unwrap();
    let refused = async |settings: &Settings, says: &[&str]| {
        let error = Api::open(settings, Limits::default()).await.unwrap_err();
        let text = error.to_string();
        assert!(says.iter().all(|says| text.contains(says)) && !error.may_heal(), "{text}");
        assert!(!text.contains("hunter2"), "{text}");
    };
    let marker = dir.path().join("ran");
    let settings = with_plugin(dir.path(), &format!("echo hunter2 > {}", marker.display()));
    let closed = Settings { allow_exec: Some(false), ..settings };
    refused(&closed, &["\"me\"", "exec", "[cluster] allow_exec = true"]).await;
    assert!(!marker.exists(), "nothing was run");
    let unsaid = find(&Settings { allow_exec: None, ..closed.clone() }, SERVICE, None).err().unwrap();
    assert!(unsaid.to_string().contains("[cluster] allow_exec = true"), "{unsaid}");
    let provider = TWO.replace("{tokenFile: token}", "{auth-provider: {name: gcp, config: {cmd-path: /bin/hunter2}}}");
    std::fs::write(dir.path().join("config"), provider).unwrap();
    let closed = Settings { allow_exec: Some(false), ..at(dir.path(), Some("prod")) };
    refused(&closed, &["auth-provider", "allow_exec = true"]).await;
    std::fs::write(dir.path().join("token"), "hunter2").unwrap();
    for (from, to, says) in [
        ("http://127.0.0.1:1\"", "https://127.0.0.1:1\", insecure-skip-tls-verify: true", "insecure-skip-tls-verify"),
        ("http://127.0.0.1:1", "http://hunter2@10.0.0.1:1", "http://, so that"),
        ("http://127.0.0.1:1", "http://prod.example", "http://, so that"),
    ] {
        std::fs::write(dir.path().join("config"), TWO.replace(from, to)).unwrap();
        let settings = at(dir.path(), Some("prod"));
        refused(&settings, &["\"prod-eu1\"", says, "[cluster] allow_insecure_tls = true"]).await;
        let open = Settings { allow_insecure_tls: true, ..settings };
        assert!(Api::open(&open, Limits::default()).await.is_ok(), "{to}");
    }
}

#[tokio::test]
async fn no_text_holds_what_a_plugin_or_a_kubeconfig_does() {
    let dir = tempfile::tempdir().unwrap();
    let open = async |settings: &Settings| Api::open(settings, Limits::default()).await.unwrap_err();
    for (script, said) in [
        ("echo hunter2; echo hunter2 >&2; exit 3", "the credential plugin sh failed (exit status: 3)"),
        ("echo '[hunter2'", "the credential plugin sh printed no credentials"),
    ] {
        let error = open(&with_plugin(dir.path(), script)).await;
        assert!(error.to_string().contains(said), "{error}");
        assert!(error.may_heal() && !format!("{error} {error:?}").contains("hunter2"), "{error:?}");
    }
    std::fs::write(dir.path().join("config"), "users:\n- name: me\n  user: {token: [hunter2}\n").unwrap();
    let error = open(&at(dir.path(), None)).await;
    assert!(error.to_string().contains("it is no kubeconfig (line 3, column"), "{error}");
    assert!(!error.may_heal() && !format!("{error} {error:?}").contains("hunter2"), "{error:?}");
    std::fs::write(dir.path().join("config"), TWO).unwrap();
    assert!(!open(&at(dir.path(), None)).await.may_heal());
    assert!(!open(&at(dir.path(), Some("prdo"))).await.may_heal());
}

#[tokio::test]
async fn a_plugin_that_hangs_holds_nothing_else_up() {
    let dir = tempfile::tempdir().unwrap();
    let settings = with_plugin(dir.path(), "sleep 5");
    let limits = Limits { credentials: Duration::from_millis(200), ..Limits::default() };
    let begun = Instant::now();
    let error = Api::open(&settings, limits).await.unwrap_err();
    assert!(error.to_string().contains("takes too long") && error.may_heal(), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(4));
}

/// What the plugin gives has run out at once, so that each request with it runs the plugin.
#[tokio::test]
async fn whether_anybody_answers_is_asked_without_credentials() {
    let sim = crate::sim::Sim::start().await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (script, runs) = (dir.path().join("plugin"), dir.path().join("runs"));
    let settings = with_plugin(dir.path(), &format!(". {}", script.display()));
    let config = std::fs::read_to_string(dir.path().join("config")).unwrap();
    std::fs::write(dir.path().join("config"), config.replace("http://127.0.0.1:1", &sim.url())).unwrap();
    let credential = format!(
        r#"{{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{{"token":"{}","expirationTimestamp":"2020-01-01T00:00:00Z"}}}}"#,
        crate::sim::TOKEN
    );
    std::fs::write(&script, format!("echo run >> {}; echo '{credential}'", runs.display())).unwrap();
    let api = Api::open(&settings, Limits::default()).await.unwrap();
    let ran = || std::fs::read_to_string(&runs).unwrap().lines().count();
    let before = ran();
    assert!(api.answers().await);
    assert_eq!(ran(), before);
    assert_eq!(sim.requests().last().unwrap().authorization, "");
    assert!(api.version().await.is_ok() && ran() > before, "it is run in the midst of a request");
}

#[tokio::test]
async fn any_status_but_that_of_nobody_behind_it_is_an_answer() {
    for (status, answers) in
        [(200, true), (302, true), (401, true), (404, true), (429, false), (500, false), (503, false)]
    {
        let service = tower::service_fn(move |_: Request<Body>| async move {
            // What is in it does not count, nor whether it ever comes.
            let body = http_body_util::StreamBody::new(futures::stream::pending::<io::Result<Frame<Bytes>>>());
            io::Result::Ok(Response::builder().status(status).body(body).unwrap())
        });
        let api = Api::with_client(Client::new(service, "default"), "sim", Limits::default()).await.unwrap();
        let said = timeout(Duration::from_secs(5), api.answers()).await;
        assert_eq!(said.ok(), Some(answers), "{status}");
    }
}

/// Makes the last look at the credentials, and their making, so much older.
fn age(api: &Api, by: Duration) {
    let mut current = api.inner.current.write().unwrap();
    current.looked -= by;
    current.built -= by;
}

#[tokio::test]
async fn a_client_is_made_anew_only_when_it_is_about_to_run_out() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("config"), TWO).unwrap();
    std::fs::write(dir.path().join("token"), "t").unwrap();
    let api = Api::open(&at(dir.path(), Some("prod")), Limits::default()).await.unwrap();
    for (left, generation) in [(3600, 0), (30, 1)] {
        let end = Timestamp::now() + Duration::from_secs(left);
        let client = api.current(|current| current.client.clone()).with_valid_until(Some(end));
        api.inner.current.write().unwrap().client = client;
        age(&api, FILE_POLL_INTERVAL * 2);
        assert_eq!(api.generation().await, generation, "{left} s left");
    }
}

#[tokio::test]
async fn whoever_waits_is_called_when_the_way_has_changed() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("config"), TWO).unwrap();
    std::fs::write(dir.path().join("token"), "t").unwrap();
    let api = Api::open(&at(dir.path(), Some("prod")), Limits::default()).await.unwrap();
    age(&api, FILE_POLL_INTERVAL * 2);
    assert!(!api.answers().await);
    std::fs::write(dir.path().join("config"), format!("{TWO}\n")).unwrap();
    assert!(api.answers().await);
    assert_eq!(api.generation().await, 1);
    assert!(!api.answers().await, "once");
}

#[tokio::test]
async fn another_current_context_is_not_followed() {
    let (one, other) = (crate::sim::Sim::start().await.unwrap(), crate::sim::Sim::start().await.unwrap());
    other.set(|settings| settings.version = "v0.0.0-other".to_owned());
    let dir = tempfile::tempdir().unwrap();
    let write = |current: &str| {
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: {current}\n\
             contexts: [{{name: one, context: {{cluster: one, user: me}}}}, {{name: other, context: {{cluster: other, user: me}}}}]\n\
             clusters: [{{name: one, cluster: {{server: \"{}\"}}}}, {{name: other, cluster: {{server: \"{}\"}}}}]\n\
             users: [{{name: me, user: {{token: {}}}}}]\n",
            one.url(),
            other.url(),
            crate::sim::TOKEN
        );
        std::fs::write(dir.path().join("config"), text).unwrap();
    };
    write("one");
    let api = Api::open(&at(dir.path(), None), Limits::default()).await.unwrap();
    let version = api.version().await.unwrap();
    write("other");
    age(&api, FILE_POLL_INTERVAL * 2);
    assert_eq!(api.generation().await, 1, "the file was read again");
    assert_eq!(api.version().await.unwrap(), version);
    assert_eq!(other.requests().len(), 0);
    let failure = api.pinned(0).version().await.unwrap_err();
    assert!(matches!(failure, Failure::Unreachable(_)), "a client of another generation is not used");
}

#[tokio::test]
async fn the_name_is_the_configured_one_or_the_contexts_cluster() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("config"), TWO).unwrap();
    std::fs::write(dir.path().join("token"), "t").unwrap();
    let mut settings = at(dir.path(), Some("prod"));
    assert_eq!(Api::open(&settings, Limits::default()).await.unwrap().name(), "prod-eu1");
    settings.name = Some("ours".to_owned());
    let api = Api::open(&settings, Limits::default()).await.unwrap();
    assert_eq!(api.name(), "ours");
    assert_eq!(api.current(|current| current.files.len()), 2, "the kubeconfig and the token are looked after");
    let failure = api.version().await.unwrap_err();
    assert!(matches!(&failure, Failure::Away(text) if text.contains("refuses connections")), "{failure}");
}
