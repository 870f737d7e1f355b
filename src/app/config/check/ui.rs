//! `[ui]`: it shows what objects hold, so a person has to say who may see that.

use super::{Checker, Node, Value};
use crate::core::net::server::Listen;
use crate::core::spelling::Text;
use crate::web::http;
use crate::web::ui;

impl Checker<'_> {
    pub(super) fn page(&mut self, root: &Node) {
        let Some(section) = root.get("ui") else { return };
        let named = section.get("listen").and_then(|node| Some((node, node.text()?)));
        let listen = match named.map(|(_, text)| Listen::read(text)) {
            None => ui::Settings::default().listen,
            Some(Ok(listen)) => listen,
            Some(Err(_)) => return,
        };
        let place = &named.map_or(section, |(node, _)| node).place;
        let shown = format!("{:?}", listen.to_string());
        if root.get("http").is_some_and(|http| listen_of(http).is_some_and(|other| other == listen)) {
            let found = format!("{shown}, where [http] listens");
            self.report(
                place,
                "ui.listen",
                found,
                "another address or socket: the page shows objects, and [http] does not",
            );
        }
        if self.identity("ui", section, &listen) || listen.is_local() {
            return;
        }
        let is_on = |key: &str| section.get(key).is_some_and(|node| matches!(node.value, Value::Boolean(true)));
        let has = |key: &str| section.get(key).is_some();
        if !is_on("allow_remote") {
            let found = format!("{shown}, which other machines can reach");
            let expected = "an address on loopback, a unix socket, or allow_remote = true beside it, with TLS, and tokens, certificates or authorize = \"cluster\"";
            return self.report(place, "ui.listen", found, expected);
        }
        if !has("token_file") && !has("client_ca_file") && !has("authorize") {
            let found = format!("{shown}, and everybody who can connect would see what objects hold");
            self.report(place, "ui.listen", found, "token_file, client_ca_file or authorize = \"cluster\" beside it");
        }
        if !has("tls_cert_file") {
            let found = format!("{shown}, without TLS");
            self.report(
                place,
                "ui.listen",
                found,
                "tls_cert_file and tls_key_file beside it, so that nobody reads along",
            );
        }
    }
}

/// Returns the address of `[http]`, as far as it is right.
fn listen_of(http: &Node) -> Option<Listen> {
    match http.get("listen").and_then(Node::text) {
        Some(text) => Listen::read(text).ok(),
        None => Some(http::Settings::default().listen),
    }
}
