//! Whatever is wrong around decklog gets one clear sentence that says what to do, and the exit code of the contract.

use std::fs;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use decklog::sim::objects;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::support::{Daemon, cluster, decklog, free_address, http_get, scope, until};

const WATCH: &str = "resources = [\"configmaps\"]";

/// Fault 86: each mistake is told with its place and the nearest right spelling; exit 78.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_mistakes_get_five_messages() {
    let sim = cluster().await;
    let daemon = Daemon::new(&sim, &["configmaps"]);
    let config = "[state]\nmax_sise = \"10GiB\"\n\n[[watch]]\nresources = \"pods\"\nfield_selector = \"metadata.name~x\"\n\n\
                  [[sink]]\nname = \"a\"\ntype = \"flie\"\n\n[[sink]]\nname = \"b\"\ntype = \"stdout\"\nwhere = 'typ == \"GAP\"'\n";
    daemon.configure(config);
    for command in ["run", "check", "rbac"] {
        let answer = daemon.command(&[command]).await;
        let text = answer.refused(78, &["5 problems in the configuration"]);
        for (place, key, found, expected) in [
            ("config.toml:2:1", "state.max_sise", "an unknown key", "nearest   max_size"),
            ("config.toml:5:", "watch[0].resources", "the string \"pods\"", "expected"),
            ("config.toml:6:", "watch[0].field_selector", "metadata.name~x", "expected"),
            ("config.toml:10:", "sink[0].type", "flie", "nearest   file"),
            ("config.toml:15:", "sink[1].where", "typ", "type"),
        ] {
            let block = text.split("config.toml:").find(|block| block.contains(&format!(": {key}\n")));
            let block = format!("config.toml:{}", block.unwrap_or_else(|| panic!("{key} is missing in\n{text}")));
            assert!(block.contains(place), "{place}: {block}");
            assert!(block.contains("found  ") && block.contains(found), "{found}: {block}");
            assert!(block.contains("expected  ") && block.contains(expected), "{expected}: {block}");
        }
        assert!(!daemon.state().exists(), "nothing was begun");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_configuration_it_says_where_it_looked() {
    let dir = tempfile::tempdir().unwrap();
    for command in ["run", "check", "rbac"] {
        let answer = decklog(dir.path(), &[command], &[]).await;
        answer.refused(78, &["./config.toml", "/etc/decklog/config.toml", "--config FILE", "decklog demo"]);
        let answer = decklog(dir.path(), &[command, "-c", "nothing.toml"], &[]).await;
        answer.refused(78, &["nothing.toml"]);
    }
    // A configuration by the environment's name is one.
    fs::write(dir.path().join("named.toml"), format!("[[watch]]\n{WATCH}\n[stat]\n")).unwrap();
    let answer = decklog(dir.path(), &["run"], &[("DECKLOG_CONFIG", "named.toml")]).await;
    answer.refused(78, &["named.toml:3", "nearest   state"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_cluster_is_waited_for_and_said() {
    let sim = cluster().await;
    let started = sim.revision();
    let at = free_address();
    let mut daemon = Daemon::with(&sim, WATCH, &format!("[http]\nlisten = {at:?}\n"));
    sim.stop_listening().await;
    let checked = daemon.command(&["check"]).await;
    assert_eq!(checked.code, 1, "{checked:#?}");
    let sentence = "the API server refuses connections; check that it runs and that the address is right";
    assert!(checked.out.contains(sentence), "{checked:#?}");
    daemon.command(&["rbac"]).await.refused(78, &[sentence]);
    daemon.start();
    daemon.says(&format!("waiting for the API server: {sentence}")).await;
    let status = daemon.command(&["status"]).await.done();
    assert!(status.contains("not reached yet") && status.contains("running (process"), "{status}");
    assert_eq!(http_get(&at, "/livez").unwrap().status, 200);
    assert_eq!(http_get(&at, "/readyz").unwrap().status, 503);
    assert!(!daemon.told().contains("READY=1"));
    daemon.tells_systemd("STATUS=").await;
    sim.create("configmaps", objects::config_map("default", "a", "1")).unwrap();
    sim.start_listening().await.unwrap();
    daemon.ready().await;
    let done = scope(&sim, started, &["configmaps"]);
    daemon.catch_up(&sim, &done).await;
    daemon.stop().await;
    daemon.judged(&sim, &done).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kubeconfig_that_does_not_fit_is_explained() {
    let sim = cluster().await;
    let daemon = Daemon::new(&sim, &["configmaps"]);
    let config = daemon.config(WATCH, "");
    let cluster = config.lines().find(|line| line.starts_with("kubeconfig")).unwrap();
    let kubeconfig = daemon.path("kubeconfig").display().to_string();
    let with = |text: &str| config.replace(cluster, text);
    let cases = [
        // The context that is asked for is not there: those that are, are named.
        (with(&format!("{cluster}\ncontext = \"prod\"")), vec!["no context \"prod\"", "it has sim", &kubeconfig]),
        (with("kubeconfig = \"/nowhere/kubeconfig\""), vec!["/nowhere/kubeconfig"]),
        (with(""), vec!["no kubeconfig was found", ".kube/config", "$KUBECONFIG", "[cluster] kubeconfig"]),
    ];
    for (text, says) in &cases {
        daemon.configure(text);
        daemon.command(&["run"]).await.refused(78, says);
        let checked = daemon.command(&["check"]).await;
        assert_eq!(checked.code, 1, "{checked:#?}");
        assert!(says.iter().all(|says| checked.out.contains(says)), "{checked:#?}");
    }
    daemon.configure(&config);
    for (text, says) in [("not: [yaml", "cannot be used"), ("apiVersion: v1\nkind: Config\n", "no current-context")] {
        fs::write(daemon.path("kubeconfig"), text).unwrap();
        daemon.command(&["run"]).await.refused(78, &[&kubeconfig, says]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_is_not_taken_is_waited_over() {
    let sim = cluster().await;
    let started = sim.revision();
    let mut daemon = Daemon::new(&sim, &["configmaps"]);
    fs::write(daemon.path("kubeconfig"), sim.kubeconfig_with_token("expired-token")).unwrap();
    let checked = daemon.command(&["check"]).await;
    assert_eq!(checked.code, 1, "{checked:#?}");
    for says in ["does not accept the credentials", "kubeconfig"] {
        assert!(checked.out.contains(says), "{says}: {checked:#?}");
    }
    assert!(!checked.out.contains("expired-token"));
    daemon.start();
    daemon.says("does not accept the credentials").await;
    sim.write_kubeconfig(&daemon.path("kubeconfig")).unwrap();
    daemon.ready().await;
    sim.create("configmaps", objects::config_map("default", "a", "1")).unwrap();
    let done = scope(&sim, started, &["configmaps"]);
    daemon.catch_up(&sim, &done).await;
    daemon.stop().await;
    daemon.judged(&sim, &done).await;
    assert!(!daemon.said().contains("expired-token"));
}

/// An authority, its certificates, and a server that asks for the client's.
struct Tls<'a> {
    dir: &'a Path,
    server: Child,
    at: String,
}

impl Drop for Tls<'_> {
    fn drop(&mut self) {
        drop(self.server.kill());
        drop(self.server.wait());
    }
}

pub(crate) fn openssl(dir: &Path, arguments: &str) {
    let output = Command::new("openssl").args(arguments.split(' ')).current_dir(dir).output().unwrap();
    assert!(output.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

impl<'a> Tls<'a> {
    /// The server's certificate is good until then, as `openssl ca` takes times, and for the names of this section.
    async fn start(dir: &'a Path, names: &str, server_until: &str) -> Self {
        fs::write(dir.join("ca.cnf"), CA).unwrap();
        fs::create_dir_all(dir.join("issued")).unwrap();
        fs::write(dir.join("index.txt"), "").unwrap();
        let request = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
        openssl(dir, &format!("req -x509 {request} -keyout ca.key -out ca.pem -days 2 -subj /CN=authority"));
        openssl(
            dir,
            &format!("req -x509 {request} -keyout stranger.key -out stranger.pem -days 2 -subj /CN=authority"),
        );
        for (name, section, until) in [("server", names, server_until), ("expired", "expired", "20210101000000Z")] {
            openssl(dir, &format!("req {request} -keyout {name}.key -out {name}.csr -subj /CN={name}"));
            openssl(
                dir,
                &format!(
                    "ca -batch -config ca.cnf -extensions {section} -in {name}.csr -out {name}.pem -startdate 20200101000000Z -enddate {until} -notext"
                ),
            );
        }
        let at = free_address();
        // In TLS 1.3 the refusal of a client's certificate races with the end of the connection.
        let server = Command::new("openssl")
            .args(["s_server", "-accept", &at, "-cert", "server.pem", "-key", "server.key"])
            .args(["-CAfile", "ca.pem", "-Verify", "2", "-verify_return_error", "-www", "-quiet", "-tls1_2"])
            .current_dir(dir)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let tls = Self { dir, server, at };
        until("the TLS server", async || std::net::TcpStream::connect(&tls.at).map(drop).map_err(|e| e.to_string()))
            .await;
        tls
    }

    fn kubeconfig(&self) -> String {
        let file = |name: &str| self.dir.join(name).display().to_string();
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters:\n- name: c\n  cluster:\n    server: https://{}\n    \
             certificate-authority: {}\ncontexts:\n- name: c\n  context: {{cluster: c, user: u}}\nusers:\n- name: u\n  user:\n    \
             client-certificate: {}\n    client-key: {}\n",
            self.at,
            file("ca.pem"),
            file("expired.pem"),
            file("expired.key"),
        )
    }
}

const CA: &str = "[ca]\ndefault_ca = d\n[d]\nnew_certs_dir = issued\ndatabase = index.txt\nrand_serial = yes\n\
certificate = ca.pem\nprivate_key = ca.key\ndefault_md = sha256\npolicy = p\nunique_subject = no\n[p]\ncommonName = supplied\n\
[server]\nsubjectAltName = IP:127.0.0.1\nextendedKeyUsage = serverAuth\n\
[other]\nsubjectAltName = DNS:other.example\nextendedKeyUsage = serverAuth\n[expired]\nextendedKeyUsage = clientAuth\n";

/// An API server that is behind something that looks at certificates itself. Kubernetes' own answers 401, as above.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expired_certificates_are_named_by_whose_they_are() {
    let sim = cluster().await;
    for (until, sentence) in [
        ("20990101000000Z", "the client certificate in the kubeconfig has expired; renew it"),
        (
            "20210101000000Z",
            "the API server's certificate has expired, at 2021-01-01T00:00:00Z; renew it, or check this machine's clock",
        ),
    ] {
        let mut daemon = Daemon::new(&sim, &["configmaps"]);
        let pki = daemon.path("pki");
        fs::create_dir(&pki).unwrap();
        let tls = Tls::start(&pki, "server", until).await;
        fs::write(daemon.path("kubeconfig"), tls.kubeconfig()).unwrap();
        let checked = daemon.command(&["check"]).await;
        assert!(checked.code == 1 && checked.out.contains(sentence), "{sentence}: {checked:#?}");
        daemon.start();
        daemon.says(&format!("waiting for the API server: {sentence}")).await;
        daemon.stop().await;
    }
}

/// Fault 84: a server that cannot show that it is the one meant gets no credentials, and decklog says why.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_may_be_another_is_refused() {
    let sim = cluster().await;
    for (names, from, to, sentence) in [
        (
            "other",
            "",
            "",
            "the API server's certificate is for another name (other.example); set tls-server-name in the kubeconfig",
        ),
        ("server", "/ca.pem", "/stranger.pem", "certificate is not signed by the authority in the kubeconfig"),
    ] {
        let mut daemon = Daemon::new(&sim, &["configmaps"]);
        let pki = daemon.path("pki");
        fs::create_dir(&pki).unwrap();
        let tls = Tls::start(&pki, names, "20990101000000Z").await;
        fs::write(daemon.path("kubeconfig"), tls.kubeconfig().replace(from, to)).unwrap();
        let checked = daemon.command(&["check"]).await;
        assert!(checked.code == 1 && checked.out.contains(sentence), "{sentence}: {checked:#?}");
        daemon.start();
        daemon.says(&format!("waiting for the API server: {}", sentence.split("certificate is").next().unwrap())).await;
        daemon.stop().await;
        assert!(daemon.said().contains(sentence));
    }
}

/// A terminal at which nobody types, and before it its other end, without which it would be hung up.
fn terminal() -> (OwnedFd, fs::File) {
    let leader = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&leader).unwrap();
    unlockpt(&leader).unwrap();
    let name = ptsname(&leader, Vec::new()).unwrap();
    let follower = fs::File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
    (leader, follower)
}

/// Fault 85: what a kubeconfig may not ask for is refused with exit 78, with the key that would allow it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_kubeconfig_may_not_ask_for_is_refused() {
    let sim = cluster().await;
    let daemon = Daemon::new(&sim, &["configmaps"]);
    let config = fs::read_to_string(daemon.path("config.toml")).unwrap();
    let ran = daemon.path("ran");
    let plugin = daemon.path("plugin");
    let credentials = format!(
        r#"{{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{{"token":"{}"}}}}"#,
        decklog::sim::TOKEN
    );
    fs::write(&plugin, format!("#!/bin/sh\ntouch {}\necho '{credentials}'\n", ran.display())).unwrap();
    fs::set_permissions(&plugin, fs::Permissions::from_mode(0o755)).unwrap();
    let exec = format!(
        "exec: {{apiVersion: client.authentication.k8s.io/v1, command: {}, interactiveMode: Never}}",
        plugin.display()
    );
    let token = format!("token: {}", decklog::sim::TOKEN);
    let plain = fs::read_to_string(daemon.path("kubeconfig")).unwrap();
    assert!(plain.contains(&token));
    for (from, to, key) in [
        (token.as_str(), exec.as_str(), "allow_exec"),
        (
            "server: http://127.0.0.1",
            "insecure-skip-tls-verify: true\n    server: https://127.0.0.1",
            "allow_insecure_tls",
        ),
        ("server: http://127.0.0.1", "server: http://10.255.255.1", "allow_insecure_tls"),
    ] {
        fs::write(daemon.path("kubeconfig"), plain.replace(from, to)).unwrap();
        daemon.configure(&config);
        daemon.command(&["run"]).await.refused(78, &["kubeconfig", &format!("[cluster] {key} = true")]);
        assert!(!ran.exists(), "nothing was run");
    }
    // A person at a terminal, with a kubeconfig of their own, is not asked; whom systemd runs is.
    fs::write(daemon.path("kubeconfig"), plain.replace(&token, &exec)).unwrap();
    let check = |invocation: &[(&str, &str)]| {
        let (_leader, stderr) = terminal();
        let mut command = Command::new(env!("CARGO_BIN_EXE_decklog"));
        command.args(["check", "-c"]).arg(daemon.path("config.toml")).current_dir(daemon.path(""));
        command.env_clear().envs(invocation.iter().copied()).stdin(Stdio::null()).stderr(stderr);
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    let refused = check(&[("INVOCATION_ID", "7")]);
    assert!(refused.contains("set [cluster] allow_exec = true") && !ran.exists(), "{refused}");
    daemon.configure(&config.replace("[cluster]\n", "[cluster]\nallow_exec = false\n"));
    let refused = check(&[]);
    assert!(refused.contains("set [cluster] allow_exec = true") && !ran.exists(), "{refused}");
    daemon.configure(&config);
    let allowed = check(&[]);
    assert!(allowed.contains("ok       cluster") && ran.exists(), "{allowed}");
    assert!(allowed.contains("a service runs it only with [cluster] allow_exec = true"), "{allowed}");
    fs::remove_file(&ran).unwrap();
    // Where it is allowed, it works, and the log says nothing of it.
    daemon.configure(&config.replace("[cluster]\n", "[cluster]\nallow_exec = true\n"));
    let mut daemon = daemon;
    daemon.start();
    daemon.ready().await;
    daemon.stop().await;
    assert!(ran.exists() && !daemon.said().contains(decklog::sim::TOKEN));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_port_in_use_is_said_and_nothing_is_begun() {
    let sim = cluster().await;
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap().to_string();
    let daemon = Daemon::with(&sim, WATCH, &format!("[http]\nlisten = {at:?}\n"));
    let says = [format!("cannot listen on {at}: another process listens there"), "[http] listen".to_owned()];
    let says: Vec<&str> = says.iter().map(String::as_str).collect();
    // Whoever listens there may be on its way out: systemd tries again.
    daemon.command(&["run"]).await.refused(74, &says);
    // Before anything else is tried, what a daemon of the same process id has left of itself is gone.
    let left = daemon.state().join("daemon.json");
    fs::write(&left, "{\"pid\":1}").unwrap();
    daemon.command(&["run"]).await.refused(74, &says);
    assert_eq!(fs::read_to_string(&left).unwrap(), "");
    let checked = daemon.command(&["check"]).await;
    assert!(checked.code == 1 && says.iter().all(|says| checked.out.contains(says)), "{checked:#?}");
    // A socket that a killed daemon left behind is no one's; one that answers is somebody's.
    let socket = daemon.path("http.sock");
    let mut daemon = daemon;
    daemon.configure(&daemon.config(WATCH, &format!("[http]\nlisten = {socket:?}\n")));
    daemon.start();
    daemon.ready().await;
    daemon.kill().await;
    assert!(socket.exists());
    daemon.start();
    daemon.ready().await;
    assert_eq!(http_get(socket.to_str().unwrap(), "/livez").unwrap().status, 200);
    daemon.stop().await;
    let somebody = std::os::unix::net::UnixListener::bind(daemon.path("other.sock")).unwrap();
    daemon.configure(&daemon.config(WATCH, &format!("[http]\nlisten = {:?}\n", daemon.path("other.sock"))));
    daemon.command(&["run"]).await.refused(74, &["other.sock", "another process listens there"]);
    drop(somebody);
    // An address that the machine does not have may come: systemd tries again.
    let later = "[http]\nlisten = \"192.0.2.1:9465\"\nallow_remote = true\n";
    daemon.configure(&daemon.config(WATCH, later));
    let says = ["cannot listen on 192.0.2.1:9465: this machine does not have that address", "[http] listen"];
    daemon.command(&["run"]).await.refused(74, &says);
}

/// Fault 79: nobody reads standard output any more.
///
/// Who reads standard output goes away: the log goes on, and says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_pipe_halts_one_sink() {
    let sim = cluster().await;
    let started = sim.revision();
    let mut daemon = Daemon::with(&sim, WATCH, "[[sink]]\nname = \"console\"\ntype = \"stdout\"\n");
    let (reader, writer) = std::io::pipe().unwrap();
    daemon.start_with(|command| command.stdout(writer));
    daemon.ready().await;
    drop(reader);
    for name in ["a", "b", "c"] {
        sim.create("configmaps", objects::config_map("default", name, "1")).unwrap();
    }
    let detail = daemon.waits_for_state("sinks", "console", "halted").await;
    assert!(detail.contains("nobody reads standard output any more; start decklog again with a reader"), "{detail}");
    let done = scope(&sim, started, &["configmaps"]);
    daemon.catch_up(&sim, &done).await;
    daemon.stop().await;
    daemon.judged(&sim, &done).await;
}
