//! Kubeconfigs: each row is one, and kubectl itself is asked what it makes of it.
//!
//! kubectl reaches localhost:8080 where a kubeconfig names no server; decklog refuses then, because it would keep the log of
//! whatever answers there. Over plain http kubectl sends no credentials of the kubeconfig; decklog sends them to this machine,
//! and elsewhere where `allow_insecure_tls` is set.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use decklog::sim::{Sim, TOKEN};
use decklog::watch::cluster::{Api, Limits, Settings};

/// The outcome that a row must have in decklog.
enum Comes {
    /// A request, with this `authorization`.
    With(String),
    /// An error that says this.
    Refused(&'static str),
}
use Comes::{Refused, With};

struct Row {
    what: &'static str,
    text: Vec<u8>,
    /// True where kubectl sends a request.
    kubectl: bool,
    comes: Comes,
}

/// The directory with kubectl; builds it when that was not done yet.
fn kubectl() -> &'static Path {
    static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| {
        if let Some(dir) = std::env::var_os("DECKLOG_TEST_CLUSTER") {
            return PathBuf::from(dir).join("kube-1.36");
        }
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cluster/build");
        let output = Command::new(&script).stderr(Stdio::inherit()).output().unwrap();
        assert!(output.status.success(), "{} failed; tests/run installs what it needs", script.display());
        PathBuf::from(String::from_utf8(output.stdout).unwrap().trim_end()).join("kube-1.36")
    });
    &PROGRAM
}

/// A kubeconfig of one context with these values of its cluster and its user, in flow style.
fn of(cluster: &str, user: &str) -> String {
    format!(
        "current-context: c\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
         clusters: [{{name: k, cluster: {{{cluster}}}}}]\nusers: [{{name: u, user: {{{user}}}}}]\n"
    )
}

fn rows(server: &str, dir: &Path) -> Vec<Row> {
    let mut rows = addresses(server);
    rows.extend(credentials(server, dir));
    rows.extend(documents(server));
    rows.extend(contradictions(server, dir));
    rows.extend(contradictions_of_users(server));
    rows
}

fn row(what: &'static str, text: impl Into<Vec<u8>>, kubectl: bool, comes: Comes) -> Row {
    Row { what, text: text.into(), kubectl, comes }
}

fn token() -> Comes {
    With(format!("Bearer {TOKEN}"))
}

fn addresses(server: &str) -> Vec<Row> {
    let of = |address: &str| of(&format!("server: {address:?}"), &format!("token: {TOKEN}"));
    let port = server.rsplit(':').next().unwrap();
    vec![
        row("http", of(&format!("http://{server}")), true, token()),
        row("no scheme", of(server), true, token()),
        row("no scheme, trailing slash", of(&format!("{server}/")), true, token()),
        row("a name without a scheme", of(&format!("localhost:{port}")), true, token()),
        row("capital scheme", of(&format!("HTTP://{server}")), true, token()),
        row("a path", of(&format!("http://{server}/k8s/clusters/c-1")), true, token()),
        row("a path with a slash at its end", of(&format!("http://{server}/k8s/")), true, token()),
        row("query and fragment", of(&format!("http://{server}/?a=b#c")), true, token()),
        row(
            "user and password",
            of(&format!("http://a:b%40@{server}")),
            true,
            With(format!("Basic {}", STANDARD.encode("a:b@"))),
        ),
        row("path without a scheme", of(&format!("{server}/k8s")), false, Refused("write https:// before it")),
        row("another scheme", of(&format!("tcp://{server}")), false, Refused("neither https nor http")),
        row("one slash", of(&format!("http:/{server}")), false, Refused("is no address")),
        row("a space", of(&format!("http://{server} ")), false, Refused("a space")),
        row("a port that is none", of("http://127.0.0.1:99999"), false, Refused("host or port")),
        // kubectl refuses the line end; the issue asks for it.
        row("a line end", of(&format!("http://{server}\n")), false, token()),
        // kubectl reaches localhost:8080.
        row("empty", of(""), false, Refused("has no server")),
    ]
}

fn credentials(server: &str, dir: &Path) -> Vec<Row> {
    fs::write(dir.join("token"), "from-file\n").unwrap();
    fs::write(dir.join("empty"), "\n").unwrap();
    let of = |user: &str| of(&format!("server: \"http://{server}\""), user);
    let plugin = |rest: &str| {
        of(&format!("{rest} exec: {{apiVersion: client.authentication.k8s.io/v1beta1, command: /bin/false}}"))
    };
    let file = || With("Bearer from-file".to_owned());
    vec![
        row("none", of(""), true, With(String::new())),
        row("null", of("token: null, exec: ~, as-groups: null, extensions: ~"), true, With(String::new())),
        row("token", of("token: t"), true, With("Bearer t".to_owned())),
        row("token with a line end", of("token: \"t\\n\""), true, With("Bearer t".to_owned())),
        row("token and file", of("token: t, tokenFile: token"), true, file()),
        row("file", of("tokenFile: token"), true, file()),
        row("token and an empty file", of("token: t, tokenFile: empty"), true, With("Bearer t".to_owned())),
        row("token and no file", of("token: t, tokenFile: missing"), true, With("Bearer t".to_owned())),
        // Over https kubectl refuses both.
        row("an empty file", of("tokenFile: empty"), true, Refused("is empty")),
        row("no file", of("tokenFile: missing"), true, Refused("cannot be read")),
        row("a device as file", of("tokenFile: /dev/zero"), true, Refused("a device")),
        row("binary token", of("token: !!binary dA=="), true, With("Bearer t".to_owned())),
        row(
            "a number as token",
            of("token: 12345"),
            false,
            Refused("its users[0].user.token is no text: put it in quotes"),
        ),
        row("basic", of("username: a, password: b"), true, With(format!("Basic {}", STANDARD.encode("a:b")))),
        row("basic without a password", of("username: a"), true, With(format!("Basic {}", STANDARD.encode("a:")))),
        row("password alone", of("password: b"), true, With(String::new())),
        row("a program beside a token", plugin("token: t,"), true, With("Bearer t".to_owned())),
        row(
            "impersonation",
            of("token: t, as: jane, as-groups: [a, b], as-user-extra: {k: [v]}"),
            true,
            With("Bearer t".to_owned()),
        ),
        row("a key without its certificate", of("token: t, client-key-data: eA=="), true, With("Bearer t".to_owned())),
    ]
}

fn documents(server: &str) -> Vec<Row> {
    let plain = of(&format!("server: \"http://{server}\""), &format!("token: {TOKEN}"));
    let utf16: Vec<u8> = [0xff, 0xfe].into_iter().chain(plain.encode_utf16().flat_map(u16::to_le_bytes)).collect();
    let json = format!(
        "{{\t\"apiVersion\": \"v1\", \"kind\": \"Config\", \"current-context\": \"c\",\n\t\"contexts\": [{{\"name\": \"c\", \"context\": {{\"cluster\": \"k\", \"user\": \"u\"}}}}],\n\
         \t\"clusters\": [{{\"name\": \"k\", \"cluster\": {{\"server\": \"http://{server}\"}}}}],\n\t\"users\": [{{\"name\": \"u\", \"user\": {{\"token\": \"{TOKEN}\"}}}}]}}"
    );
    let anchors = format!(
        "base: &base {{server: \"http://{server}\", tls-server-name: x}}\n\
         {}",
        of("<<: *base, tls-server-name: z", &format!("token: {TOKEN}"))
    );
    let without = |line: &str| {
        plain.lines().filter(|text| !text.starts_with(line)).map(|text| format!("{text}\n")).collect::<String>()
    };
    let again = |list: &str, entry: &str| plain.replace(&format!("{list}: ["), &format!("{list}: [{entry}, "));
    vec![
        row("JSON with tabs", json, true, token()),
        row("anchors and merge keys", anchors, true, token()),
        row("a byte order mark", format!("\u{feff}{plain}"), true, token()),
        row("UTF-16", utf16, true, token()),
        row("line ends of Windows", plain.replace('\n', "\r\n"), true, token()),
        row("two documents: the first counts", format!("{plain}---\nclusters: 7\n"), true, token()),
        row(
            "null and unknown keys",
            format!("{plain}preferences: null\nextensions: null\nx: {{y: [1]}}\n"),
            true,
            token(),
        ),
        row("twice the same key", format!("{plain}current-context: c\n"), true, token()),
        row("null in place of a list", plain.replace("users: [{", "users: null\nx: [{"), true, With(String::new())),
        row("users missing", without("users"), true, With(String::new())),
        row("a null entry", again("users", "null"), true, token()),
        row(
            "another user's token is a list",
            again("users", "{name: v, user: {token: [x]}}"),
            false,
            Refused("its users[0].user.token is no text"),
        ),
        row(
            "a name twice",
            again("users", "{name: u, user: {}}"),
            false,
            Refused("its users[1] has the name of an earlier entry"),
        ),
        row(
            "a list in place of a map",
            plain.replace(&format!("user: {{token: {TOKEN}}}"), "user: [x]"),
            false,
            Refused("its users[0].user is no map"),
        ),
        row("another kind", format!("kind: Pod\n{plain}"), false, Refused("its kind names another kind")),
        row("another version", format!("apiVersion: v2\n{plain}"), false, Refused("its apiVersion names another kind")),
        row(
            "no context of this name",
            plain.replace("current-context: c", "current-context: d"),
            false,
            Refused("has no context \"d\""),
        ),
        row("a token that is no YAML", plain.replace(TOKEN, "{"), false, Refused("it is no kubeconfig (line")),
        // kubectl reaches localhost:8080 with these.
        row("no current context", without("current-context"), false, Refused("has no current-context")),
        row(
            "no cluster of this name",
            without("clusters"),
            false,
            Refused("names the cluster \"k\", which it does not have"),
        ),
        row("empty", "", false, Refused("has no current-context")),
    ]
}

fn contradictions(server: &str, dir: &Path) -> Vec<Row> {
    let http = format!("server: \"http://{server}\"");
    let https = format!("server: \"https://{server}\"");
    fs::write(dir.join("some.pem"), "x").unwrap();
    vec![
        row(
            "an authority twice",
            of(&format!("{http}, certificate-authority: some.pem, certificate-authority-data: eA=="), ""),
            false,
            Refused("has both certificate-authority and"),
        ),
        row(
            "no file of the authority",
            of(&format!("{http}, certificate-authority: missing"), ""),
            false,
            Refused("cannot be read"),
        ),
        row(
            "an authority that is no certificate, over http",
            of(&format!("{http}, certificate-authority: some.pem"), ""),
            true,
            With(String::new()),
        ),
        row(
            "an authority that is no certificate",
            of(&format!("{https}, certificate-authority: some.pem"), ""),
            false,
            Refused("holds no certificate in PEM"),
        ),
        row(
            "an authority and none",
            of(&format!("{https}, insecure-skip-tls-verify: true, certificate-authority-data: eA=="), ""),
            false,
            Refused("has both insecure-skip-tls-verify"),
        ),
        row(
            "data that is not base64",
            of(&format!("{http}, certificate-authority-data: \"%\""), ""),
            false,
            Refused("certificate-authority-data is not base64"),
        ),
        row(
            "base64 with line breaks",
            of(&format!("{http}, certificate-authority-data: \"e\\nA=\\r\\n=\\n\""), ""),
            true,
            With(String::new()),
        ),
        row(
            "base64 cut off",
            of(&format!("{http}, certificate-authority-data: eA"), ""),
            false,
            Refused("is not base64"),
        ),
        // kubectl takes no spaces, and wants the base64 of !!binary to be base64 once more.
        row(
            "base64 with spaces",
            of(&format!("{http}, certificate-authority-data: \"e A==\""), ""),
            false,
            With(String::new()),
        ),
        row(
            "binary of base64",
            of(&format!("{http}, certificate-authority-data: !!binary ZUE9PQ=="), ""),
            true,
            With(String::new()),
        ),
        row(
            "binary of a certificate",
            of(&format!("{http}, certificate-authority-data: !!binary {}", STANDARD.encode("-----BEGIN X-----")), ""),
            false,
            With(String::new()),
        ),
        row(
            "yes, as YAML 1.1 has it",
            of(&format!("{http}, insecure-skip-tls-verify: yes"), ""),
            true,
            With(String::new()),
        ),
        row(
            "a flag that is a text",
            of(&format!("{http}, insecure-skip-tls-verify: maybe"), ""),
            false,
            Refused("is neither true nor false"),
        ),
    ]
}

fn contradictions_of_users(server: &str) -> Vec<Row> {
    let http = format!("server: \"http://{server}\"");
    let exec = |rest: &str| of(&http, &format!("exec: {{{rest}}}"));
    let v1 = "apiVersion: client.authentication.k8s.io/v1";
    vec![
        row("a certificate without a key", of(&http, "client-certificate-data: eA=="), false, Refused("without a key")),
        row(
            "a certificate twice",
            of(&http, "client-certificate: some.pem, client-certificate-data: eA==, client-key: some.pem"),
            false,
            Refused("has both client-certificate and"),
        ),
        row(
            "a token and a name",
            of(&http, "token: t, username: a"),
            false,
            Refused("has both a token and a username"),
        ),
        row("groups of nobody", of(&http, "as-groups: [a]"), false, Refused("without as")),
        row(
            "exec and auth-provider",
            of(&http, &format!("auth-provider: {{name: oidc}}, exec: {{{v1}, command: x, interactiveMode: Never}}")),
            false,
            Refused("has both exec and"),
        ),
        row(
            "exec without a command",
            exec(&format!("{v1}, interactiveMode: Never")),
            false,
            Refused("without a command"),
        ),
        row(
            "exec without interactiveMode",
            exec(&format!("{v1}, command: x")),
            false,
            Refused("needs interactiveMode"),
        ),
        // kubectl looks at these over https alone, and then refuses them.
        row(
            "exec of another version",
            exec("apiVersion: client.authentication.k8s.io/v1alpha1, command: x"),
            true,
            Refused("apiVersion is neither"),
        ),
        row(
            "a program that is not there",
            exec(&format!("{v1}, command: ./x, args: null, env: null, interactiveMode: Never")),
            true,
            Refused("plugin x cannot be run"),
        ),
        row(
            "a proxy without a scheme",
            of(&format!("{http}, proxy-url: \"p.example:3128\""), ""),
            false,
            Refused("is no address of a proxy"),
        ),
        row(
            "a proxy of another scheme",
            of(&format!("{http}, proxy-url: \"ftp://p.example\""), ""),
            false,
            Refused("is no address of a proxy"),
        ),
    ]
}

fn settings(path: PathBuf) -> Settings {
    Settings { kubeconfig: Some(path), allow_exec: Some(true), allow_insecure_tls: true, ..Settings::default() }
}

/// Asks kubectl for the version. True where a request came.
async fn asked_by_kubectl(sim: &Sim, change: impl FnOnce(&mut tokio::process::Command)) -> bool {
    sim.clear_requests();
    let mut command = tokio::process::Command::new(kubectl());
    command.args(["kubectl", "get", "--raw", "/version", "--request-timeout", "5s"]);
    command.env_remove("KUBECONFIG").stdin(Stdio::null());
    change(&mut command);
    command.output().await.unwrap();
    !sim.requests().is_empty()
}

/// A kubeconfig that kubectl connects with connects decklog, and any other is one sentence.
#[tokio::test]
async fn a_kubeconfig_means_what_it_means_to_kubectl() {
    let sim = Sim::start().await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let server = sim.url().trim_start_matches("http://").trim_end_matches('/').to_owned();
    let mut wrong = Vec::new();
    for (at, Row { what, text, kubectl, comes }) in rows(&server, dir.path()).into_iter().enumerate() {
        let path = dir.path().join(format!("config-{at}"));
        fs::write(&path, text).unwrap();
        let did = asked_by_kubectl(&sim, |command| {
            command.arg("--kubeconfig").arg(&path);
        })
        .await;
        if did != kubectl {
            wrong.push(format!("{what}: kubectl asked: {did}"));
        }
        sim.clear_requests();
        let opened = Api::open(&settings(path), Limits::default()).await;
        let api = match (opened, &comes) {
            (Ok(api), With(_)) => api,
            (Err(error), Refused(says)) => {
                let text = error.to_string();
                if !text.contains(says) || text.contains('\n') {
                    wrong.push(format!("{what}: {text}"));
                }
                continue;
            }
            (Ok(_), Refused(_)) => {
                wrong.push(format!("{what}: decklog takes it"));
                continue;
            }
            (Err(error), With(_)) => {
                wrong.push(format!("{what}: {error}"));
                continue;
            }
        };
        // What the server says of it is another matter.
        drop(api.version().await);
        let seen = sim.requests().last().map(|seen| seen.authorization.clone());
        let With(authorization) = comes else { unreachable!("others were looked at") };
        if seen.as_ref() != Some(&authorization) {
            wrong.push(format!("{what}: came with {seen:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// `KUBECONFIG=a:b`: the first counts for each name and for `current-context`; missing and empty files do not count.
#[tokio::test]
async fn kubeconfigs_of_a_list_are_merged_as_by_kubectl() {
    let sim = Sim::start().await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
    fs::create_dir(dir.path().join("sub")).unwrap();
    write("a", "current-context: \"\"\nusers: [{name: u, user: {tokenFile: token}}]\n");
    write("token", "of-a\n");
    write("sub/b", &of(&format!("server: {:?}", sim.url()), "token: of-b"));
    write("empty", "");
    write("other", "current-context: other\n");
    write("broken", "users: 7\n");
    write("config.toml", "[cluster]\nallow_exec = false\n[[watch]]\nresources = [\"pods\"]\n");
    fs::create_dir(dir.path().join("folder")).unwrap();
    for (list, kubectl, comes) in [
        (vec!["a", "sub/b"], true, Some("Bearer of-a")),
        (vec!["sub/b", "a"], true, Some("Bearer of-b")),
        (vec!["missing", "empty", "a", "a", "sub/b"], true, Some("Bearer of-a")),
        (vec!["sub/b", "other"], true, Some("Bearer of-b")),
        (vec!["other", "sub/b"], false, None),
        (vec!["sub/b", "broken"], false, None),
        (vec!["sub/b", "folder"], false, None),
        (vec!["sub/b", "a/x"], false, None),
        (vec!["missing"], false, None),
        (vec!["empty"], false, None),
    ] {
        let joined = std::env::join_paths(list.iter().map(|name| dir.path().join(name))).unwrap();
        let asked = asked_by_kubectl(&sim, |command| {
            command.env("KUBECONFIG", &joined);
        })
        .await;
        assert_eq!(asked, kubectl, "kubectl with {list:?}");
        sim.clear_requests();
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_decklog"));
        command.args(["check", "--config"]).arg(dir.path().join("config.toml"));
        let output = command.env("KUBECONFIG", &joined).stdin(Stdio::null()).output().await.unwrap();
        let seen = sim.requests().last().map(|seen| seen.authorization.clone());
        assert_eq!(seen.as_deref(), comes, "{list:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// `tokenFile` is read again, also beside `token`.
#[tokio::test]
async fn a_token_file_is_read_again_beside_a_token() {
    let sim = Sim::start().await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config");
    fs::write(&path, of(&format!("server: {:?}", sim.url()), "token: stale, tokenFile: token")).unwrap();
    fs::write(dir.path().join("token"), "revoked\n").unwrap();
    let api = Api::open(&settings(path), Limits::default()).await.unwrap();
    assert!(api.version().await.is_err(), "a wrong token is refused");
    fs::write(dir.path().join("token"), format!("{TOKEN}\n")).unwrap();
    crate::support::until("the token of the file", async || api.version().await.map_err(|failure| failure.to_string()))
        .await;
    assert_eq!(sim.requests().last().unwrap().authorization, format!("Bearer {TOKEN}"));
}
