//! Proxies between decklog and the API server, named by the environment or by `proxy-url`, as for kubectl. The API server's name
//! ends in `.invalid`, so that the proxy alone can know where it is.

use decklog::sim::{self, Sim};

use crate::sink_proxies::{Does, Proxy};
use crate::support::decklog;
use crate::tls::{Material, front};

/// A kubeconfig for the API server at this address.
fn kubeconfig(made: &Material, server: &str, more: &str) {
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: test\ncontexts: [{{name: test, context: {{cluster: test, user: me}}}}]\n\
         clusters:\n- name: test\n  cluster: {{server: \"{server}\"{more}}}\nusers:\n- name: me\n  user: {{token: {}}}\n",
        sim::TOKEN
    );
    std::fs::write(made.path("kubeconfig"), text).unwrap();
    let config = "[cluster]\nkubeconfig = \"kubeconfig\"\nallow_insecure_tls = true\n\n[state]\npath = \"state\"\n\n\
                  [[watch]]\nresources = [\"configmaps\"]\n\n[[sink]]\nname = \"out\"\ntype = \"stdout\"\n";
    std::fs::write(made.path("config.toml"), config).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_is_reached_as_kubectl_reaches_it() {
    let sim = Sim::start().await.unwrap();
    let made = Material::new();
    made.certificate(
        "own",
        "P-256",
        "own",
        "subjectAltName=DNS:api.invalid,IP:127.0.0.1\nbasicConstraints=critical,CA:TRUE",
    );
    let front = front(made.acceptor("own", None), &sim).await;
    let port = front.address.port();
    let plain = sim.url().rsplit(':').next().unwrap().to_owned();
    let authority = format!(", certificate-authority: {:?}", made.path("own.crt"));
    let (secure, here) = (format!("https://api.invalid:{port}"), format!("https://127.0.0.1:{port}"));
    let open = format!("http://api.invalid:{plain}");
    let with = |key: &str| format!("{authority}, proxy-url: \"{key}\"");
    for (variables, server, more, does, reached) in [
        // kubectl goes through the proxy in all of these.
        (vec![("HTTPS_PROXY", "http://PROXY")], &secure, authority.clone(), Does::Passes, "CONNECT"),
        (vec![("https_proxy", "PROXY")], &secure, authority.clone(), Does::Passes, "CONNECT"),
        (
            vec![("HTTPS_PROXY", "http://user:hunter2@PROXY")],
            &secure,
            authority.clone(),
            Does::Authenticates,
            "CONNECT",
        ),
        (vec![("HTTP_PROXY", "http://PROXY")], &open, String::new(), Does::Passes, "GET http://api.invalid"),
        (vec![("NO_PROXY", "api.invalid")], &secure, with("http://PROXY"), Does::Passes, "CONNECT"),
        (vec![], &here, with("http://PROXY"), Does::Passes, "CONNECT"),
        (
            vec![("HTTPS_PROXY", "http://127.0.0.1:1")],
            &secure,
            with("http://user:hunter2@PROXY"),
            Does::Authenticates,
            "CONNECT",
        ),
        // Directly: there is no proxy on port 1.
        (vec![("HTTPS_PROXY", "http://127.0.0.1:1")], &here, authority.clone(), Does::Passes, ""),
        (vec![("ALL_PROXY", "http://127.0.0.1:1")], &here, authority.clone(), Does::Passes, ""),
    ] {
        let proxy = Proxy::http(does);
        let place = |text: &str| text.replace("PROXY", proxy.address());
        kubeconfig(&made, server, &place(&more));
        let variables: Vec<(&str, String)> = variables.iter().map(|(name, value)| (*name, place(value))).collect();
        let environment: Vec<(&str, &str)> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let said = decklog(made.0.path(), &["check", "-c", "config.toml"], &environment).await;
        let text = format!("{}{}", said.out, said.err);
        assert_eq!(said.code, 0, "{variables:?} {server} {more}: {text}");
        let asked = proxy.asked();
        assert_eq!(asked.first().is_some_and(|(line, _)| line.starts_with(reached)), !reached.is_empty(), "{asked:?}");
        assert_eq!(text.contains(&format!("the proxy http://{}", proxy.address())), !reached.is_empty(), "{text}");
        assert!(!text.contains("hunter2"), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn socks_leads_to_the_api_server() {
    let sim = Sim::start().await.unwrap();
    let made = Material::new();
    made.certificate("own", "P-256", "own", "subjectAltName=DNS:api.invalid\nbasicConstraints=critical,CA:TRUE");
    let front = front(made.acceptor("own", None), &sim).await;
    let port = front.address.port();
    let authority = format!(", certificate-authority: {:?}", made.path("own.crt"));
    for (address, does) in [
        ("socks5://PROXY", Does::Passes),
        ("socks5h://PROXY", Does::Passes),
        ("socks5://user:hunter2@PROXY", Does::Authenticates),
    ] {
        let proxy = Proxy::socks(does);
        kubeconfig(&made, &format!("https://api.invalid:{port}"), &authority);
        let address = address.replace("PROXY", proxy.address());
        let said = decklog(made.0.path(), &["check", "-c", "config.toml"], &[("HTTPS_PROXY", &address)]).await;
        assert_eq!(said.code, 0, "{address}: {said:?}");
        assert!(!proxy.asked().is_empty() && said.out.contains("($HTTPS_PROXY)"), "{said:?}");
    }
}

/// kubectl says `proxyconnect tcp: …`, `Proxy Authentication Required` or `Forbidden`.
#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_that_leads_nowhere_is_named() {
    let made = Material::new();
    kubeconfig(&made, "https://api.invalid:6443", "");
    let (asks, refuses) = (Proxy::http(Does::Authenticates), Proxy::http(Does::Refuses));
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    for (value, says) in [
        (
            format!("http://{}", asks.address()),
            "asks for a user and a password (407); write http://USER:PASSWORD@HOST:PORT in $HTTPS_PROXY",
        ),
        (
            format!("http://user:other@{}", asks.address()),
            "does not accept the user and the password in $HTTPS_PROXY (407)",
        ),
        (format!("http://{}", refuses.address()), "refuses to connect to api.invalid:6443 (403); allow it there"),
        (
            format!("http://{closed}"),
            "cannot be reached: it refuses connections; check that it runs, or correct $HTTPS_PROXY",
        ),
        ("ftp://proxy.invalid".to_owned(), "$HTTPS_PROXY holds no proxy that decklog can use"),
    ] {
        let said = decklog(made.0.path(), &["check", "-c", "config.toml"], &[("HTTPS_PROXY", &value)]).await;
        let text = format!("{}{}", said.out, said.err);
        assert!(said.code != 0 && text.contains(says), "{value}: {text}");
        assert!(!text.contains("other") && !text.contains("os error"), "{text}");
    }
}
