//! Who is let in: by certificate, by token, or by the rights of a unix socket.

use std::net::IpAddr;
use std::path::Path;

use axum::http::{HeaderMap, header};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::sync::Mutex;

use crate::core::credential_files::Followed;
use crate::core::net::TOKEN_HEADER;

/// A token is this long at least.
const SHORTEST_TOKEN: usize = 16;

/// Client of a connection, as far as the connection identifies it.
#[derive(Clone, Debug)]
pub enum Peer {
    /// On this machine; the socket's own rights have let it in.
    Unix(Option<u32>),
    /// Over TCP, with the certificate that it has shown and that an authority of `client_ca_file` has signed.
    Tcp(IpAddr, Option<Vec<u8>>),
}

/// Who decides what a reader may read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Authorize {
    /// The API server of the cluster whose log it is: it reviews the token that a reader shows, and what that reader may list.
    Cluster,
}

/// Access control: by certificate, by token, or by the rights of a unix socket.
#[derive(Debug)]
pub(crate) struct Gate {
    tokens: Option<Mutex<Followed>>,
    authorize: Option<Authorize>,
}

impl Gate {
    /// Builds the gate with the tokens of a file, one in each line; without a file no token lets in.
    ///
    /// # Errors
    /// What is wrong with the tokens.
    pub(crate) async fn of(token_file: Option<&Path>, authorize: Option<Authorize>) -> Result<Self, String> {
        let Some(path) = token_file else { return Ok(Self { tokens: None, authorize }) };
        let mut file = Followed::new(path);
        file.refresh().await.map_err(|error| error.to_string())?;
        let text = file.text().map_err(|error| error.to_string())?;
        let at = path.display();
        for (number, token) in tokens(text).enumerate().map(|(number, token)| (number + 1, token)) {
            if token.len() < SHORTEST_TOKEN {
                return Err(format!(
                    "token {number} in {at} has less than {SHORTEST_TOKEN} characters, and can be guessed; `openssl rand -hex 32` makes a good one"
                ));
            }
            if token.contains(char::is_whitespace) {
                return Err(format!("token {number} in {at} has a space in it: write one token in each line"));
            }
        }
        if tokens(text).next().is_none() {
            return Err(format!("{at} holds no token"));
        }
        Ok(Self { tokens: Some(Mutex::new(file)), authorize })
    }

    /// Returns who decides what a reader may read; none where all who are let in read all of the log.
    pub(crate) const fn authorize(&self) -> Option<Authorize> {
        self.authorize
    }

    /// Returns the name of the client for the log; none if it may not come in. A token is that of [`bearer`].
    pub(crate) async fn admits(&self, peer: &Peer, headers: &HeaderMap) -> Option<String> {
        self.admits_token(peer, bearer(headers)).await
    }

    /// Decides as [`Gate::admits`] does, with the token that the client shows.
    pub(crate) async fn admits_token(&self, peer: &Peer, shown: Option<&str>) -> Option<String> {
        let address = match peer {
            Peer::Unix(Some(uid)) => return Some(format!("uid {uid}")),
            Peer::Unix(None) => return Some("the unix socket".to_owned()),
            Peer::Tcp(address, Some(certificate)) => {
                let digest: String = Sha256::digest(certificate).iter().map(|byte| format!("{byte:02x}")).collect();
                return Some(format!("{address}, certificate sha256:{digest}"));
            }
            Peer::Tcp(address, None) => address,
        };
        let mut file = self.tokens.as_ref()?.lock().await;
        let shown = shown?;
        // A file that is gone lets nobody in: what was read last may be what somebody took back.
        file.forget();
        if let Err(error) = file.refresh().await {
            tracing::warn!("{error}; no token lets anybody in until it can be read");
            return None;
        }
        // Digests are compared: how long that takes says nothing of the tokens.
        let shown = Sha256::digest(shown.trim());
        let known = tokens(file.text().ok()?).filter(|token| token.len() >= SHORTEST_TOKEN);
        let number =
            known.enumerate().filter(|(_, token)| Sha256::digest(token) == shown).map(|(at, _)| at + 1).last()?;
        Some(format!("{address}, token {number}"))
    }
}

fn tokens(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// The token of `Decklog-Authorization: Bearer`, else of `Authorization: Bearer`. Where the first header is there, the second one
/// counts for nothing: a proxy may have put its own credentials there.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let header = headers.get(TOKEN_HEADER).or_else(|| headers.get(header::AUTHORIZATION));
    let (scheme, shown) = header?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(shown)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// With its file, which has to stay.
    async fn gate(tokens: &str) -> Result<(Gate, tempfile::NamedTempFile), String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(&file, tokens).unwrap();
        Gate::of(Some(file.path()), None).await.map(|gate| (gate, file))
    }

    fn shows(text: &str) -> HeaderMap {
        HeaderMap::from_iter([(header::AUTHORIZATION, text.parse().unwrap())])
    }

    #[tokio::test]
    async fn only_who_shows_a_token_comes_in() {
        let (gate, file) = gate("0123456789abcdef\n\n  fedcba9876543210  \n").await.unwrap();
        let peer = Peer::Tcp([127, 0, 0, 1].into(), None);
        for (shown, who) in [
            ("Bearer 0123456789abcdef", Some("127.0.0.1, token 1")),
            ("bearer  fedcba9876543210", Some("127.0.0.1, token 2")),
            ("Bearer 0123456789abcde", None),
            ("Bearer 0123456789abcdef0", None),
            ("Bearer ", None),
            ("Bearer", None),
            ("Basic 0123456789abcdef", None),
            ("0123456789abcdef", None),
        ] {
            assert_eq!(gate.admits(&peer, &shows(shown)).await.as_deref(), who, "{shown}");
        }
        assert_eq!(gate.admits(&peer, &HeaderMap::new()).await, None);
        assert_eq!(gate.admits(&Peer::Unix(Some(7)), &HeaderMap::new()).await.as_deref(), Some("uid 7"));
        // Whoever takes the file away takes all tokens back.
        file.close().unwrap();
        assert_eq!(gate.admits(&peer, &shows("Bearer 0123456789abcdef")).await, None);
    }

    /// An API server takes `Authorization` away, and other proxies put theirs there.
    #[tokio::test]
    async fn the_header_of_decklog_counts_before_that_of_everybody() {
        let (gate, _file) = gate("0123456789abcdef\n").await.unwrap();
        let peer = Peer::Tcp([127, 0, 0, 1].into(), None);
        let (right, wrong) = ("Bearer 0123456789abcdef", "Bearer fedcba9876543210");
        for (own, usual, lets_in) in [
            (Some(right), None, true),
            (Some(right), Some(wrong), true),
            (Some(right), Some("Basic eDp5"), true),
            (Some(wrong), Some(right), false),
            (Some("0123456789abcdef"), Some(right), false),
            (Some(""), Some(right), false),
            (None, Some(right), true),
        ] {
            let pairs = [(TOKEN_HEADER, own), (header::AUTHORIZATION, usual)];
            let headers = pairs.into_iter().filter_map(|(name, text)| Some((name, text?.parse().unwrap())));
            let admitted = gate.admits(&peer, &headers.collect()).await;
            assert_eq!(admitted.is_some(), lets_in, "{own:?} beside {usual:?}");
        }
    }

    #[tokio::test]
    async fn without_tokens_and_certificates_nobody_comes_in_over_tcp() {
        let gate = Gate::of(None, None).await.unwrap();
        let address = [127, 0, 0, 1].into();
        assert_eq!(gate.admits(&Peer::Tcp(address, None), &shows("Bearer ")).await, None);
        let who = gate.admits(&Peer::Tcp(address, Some(b"der".to_vec())), &HeaderMap::new()).await.unwrap();
        assert!(who.starts_with("127.0.0.1, certificate sha256:"), "{who}");
    }

    #[tokio::test]
    async fn tokens_that_can_be_guessed_are_refused() {
        assert!(gate("0123456789abcdef\nshort\n").await.unwrap_err().contains("token 2"));
        assert!(gate(" \n# only a comment\n").await.unwrap_err().contains("holds no token"));
        assert!(gate("0123456789abcdef\nfour words are no token").await.unwrap_err().contains("token 2"));
        let peer = Peer::Tcp([127, 0, 0, 1].into(), None);
        let (commented, _file) = gate("# of the platform team\n0123456789abcdef\n").await.unwrap();
        assert_eq!(commented.admits(&peer, &shows("Bearer # of the platform team")).await, None);
    }
}
