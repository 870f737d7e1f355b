//! Who reads, and with whose rights.
//!
//! Without `authorize` who is let in reads all of the log. With it the API server of the cluster whose log is asked says who shows a
//! token, and what that reader may see.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::core::net::server::{Gate, Peer, bearer};
use crate::core::rights::{Authority, Known, Refusal, Refused, Sight};
use crate::core::runtime;

/// Text for a reader without a token.
const NO_TOKEN: &str = "show the token of a user of the cluster, as in `kubectl create token NAME | decklog log --server URL --token-file /dev/stdin`";

/// Source of what the API servers of clusters say about readers, by the names of the clusters; the name is empty where there is one
/// and it is called by none. A cluster whose daemon does not run has nobody who says it.
pub(crate) type Authorities = Box<dyn Fn() -> BTreeMap<String, Option<Arc<dyn Authority>>> + Send + Sync>;

/// Access control for readers.
pub(crate) struct Readers {
    /// None if reading is off.
    gate: Option<Gate>,
    authorities: Authorities,
}

/// A reader that was let in.
#[derive(Clone)]
pub(crate) enum Reader {
    /// By the gate alone: all of the log is theirs.
    Trusted(String),
    /// With a token that an API server has to know, from an address.
    Of(Arc<str>, Option<IpAddr>),
}

impl Reader {
    /// The reader that shows this token.
    pub(crate) fn of(token: &str, peer: &Peer) -> Self {
        let from = match peer {
            Peer::Tcp(from, _) => Some(*from),
            Peer::Unix(_) => None,
        };
        Self::Of(token.into(), from)
    }
}

impl Readers {
    pub(crate) fn new(gate: Option<Gate>, authorities: Authorities) -> Self {
        Self { gate, authorities }
    }

    /// Reports whether the cluster says what a reader may see.
    pub(crate) fn are_of_cluster(&self) -> bool {
        self.gate.as_ref().is_some_and(|gate| gate.authorize().is_some())
    }

    /// Lets a reader in, or says why not. That costs a look at the head of the request, and no more; where the cluster decides, it
    /// does so later, by [`Readers::sight`].
    pub(crate) async fn admit(&self, peer: &Peer, headers: &HeaderMap) -> Result<Reader, Refusal> {
        let Some(gate) = &self.gate else {
            let text = "this decklog lets nobody read its log over HTTP; set [http] reading = true there";
            return Err(Refusal::new(Refused::Forbidden, text));
        };
        if gate.authorize().is_some() {
            let token = bearer(headers).map(str::trim).filter(|token| !token.is_empty());
            return token.map(|token| Reader::of(token, peer)).ok_or_else(|| Refusal::new(Refused::Unknown, NO_TOKEN));
        }
        let text = "show a token of its [http] token_file, or a certificate that its client_ca_file knows";
        let who = gate.admits(peer, headers).await;
        who.map(Reader::Trusted).ok_or_else(|| Refusal::new(Refused::Unknown, text))
    }

    /// Returns the name of a reader, and what that may see of the log of a cluster; without a name, of the only one.
    pub(crate) async fn sight(&self, reader: &Reader, cluster: Option<&str>) -> Result<(String, Sight), Refusal> {
        let token = match reader {
            Reader::Trusted(who) => return Ok((who.clone(), Sight::All)),
            Reader::Of(token, from) => (&**token, *from),
        };
        let all = (self.authorities)();
        let found = match cluster {
            // One that is called by no name: whoever answers refuses the name.
            Some(name) => all.get(name).or_else(|| all.get("")),
            None if all.len() == 1 => all.values().next(),
            None => {
                return Err(Refusal::new(
                    Refused::Forbidden,
                    "there are several clusters; say which one is meant by --cluster",
                ));
            }
        };
        let unknown = || Refusal::new(Refused::Forbidden, "there is no such cluster here, or you may not read its log");
        let Known { name, rights } = admitted(found.ok_or_else(unknown)?.as_ref(), token).await?;
        Ok((name, Sight::of(rights)))
    }

    /// Returns the name of a reader whom an API server knows, for the log of readers.
    ///
    /// # Errors
    /// Where none does, with what the last one said.
    pub(super) async fn name(&self, reader: &Reader) -> Result<String, Refusal> {
        let token = match reader {
            Reader::Trusted(who) => return Ok(who.clone()),
            Reader::Of(token, from) => (&**token, *from),
        };
        let mut refusal = Refusal::new(Refused::Away, "no cluster runs here; try again later");
        for authority in (self.authorities)().into_values() {
            match admitted(authority.as_ref(), token).await {
                Ok(known) => return Ok(known.name),
                Err(why) => refusal = why,
            }
        }
        Err(refusal)
    }

    /// Returns the names of the clusters whose API servers know a reader; all of them where no API server is asked.
    ///
    /// # Errors
    /// Where none does, with what the last one said.
    pub(crate) async fn clusters(&self, reader: &Reader) -> Result<Option<Vec<String>>, Refusal> {
        let Reader::Of(token, from) = reader else { return Ok(None) };
        let (mut names, mut refusal) = (Vec::new(), None);
        for (name, authority) in (self.authorities)() {
            match admitted(authority.as_ref(), (token, *from)).await {
                Ok(_) => names.push(name),
                Err(why) => refusal = Some(why),
            }
        }
        let none = || Refusal::new(Refused::Away, "no cluster runs here; try again later");
        if names.is_empty() { Err(refusal.unwrap_or_else(none)) } else { Ok(Some(names)) }
    }

    /// Returns the names of the clusters in which a request may `get` a path that is no resource; all of them where no API server is
    /// asked.
    ///
    /// # Errors
    /// Where there is none, with what the last one said.
    pub(super) async fn may_get(
        &self,
        peer: &Peer,
        headers: &HeaderMap,
        path: &'static str,
    ) -> Result<Option<Vec<String>>, Refusal> {
        if !self.are_of_cluster() {
            return Ok(None);
        }
        let Reader::Of(token, from) = self.admit(peer, headers).await? else { return Ok(None) };
        let (mut names, mut refusal) = (Vec::new(), None);
        for (name, authority) in (self.authorities)() {
            match may_get(authority.as_ref(), (&token, from), path).await {
                Ok(()) => names.push(name),
                Err(why) => refusal = Some(why),
            }
        }
        let none = || Refusal::new(Refused::Away, "no cluster runs here; try again later");
        if names.is_empty() { Err(refusal.unwrap_or_else(none)) } else { Ok(Some(names)) }
    }
}

async fn admitted(
    authority: Option<&Arc<dyn Authority>>,
    (token, from): (&str, Option<IpAddr>),
) -> Result<Known, Refusal> {
    let Some(authority) = authority else {
        return Err(Refusal::new(
            Refused::Away,
            "the daemon of the cluster does not run, and nobody else can say who you are; try again later",
        ));
    };
    authority.admit(token, from).await
}

async fn may_get(
    authority: Option<&Arc<dyn Authority>>,
    token: (&str, Option<IpAddr>),
    path: &'static str,
) -> Result<(), Refusal> {
    let Known { name, rights } = admitted(authority, token).await?;
    let decision = runtime::blocking(move || rights.may_get(path)).await?;
    if decision.is_allowed {
        return Ok(());
    }
    Err(Refusal::new(
        Refused::Forbidden,
        format!(
            "{name} may not read {path}, which is about the whole log; give it a ClusterRole with nonResourceURLs: [{path:?}], verbs: [get]"
        ),
    ))
}

/// The answer to a request that is refused.
pub(super) fn refused(refusal: &Refusal) -> Response {
    let status = match refusal.is {
        Refused::Unknown => StatusCode::UNAUTHORIZED,
        Refused::Forbidden => StatusCode::FORBIDDEN,
        Refused::Away => StatusCode::SERVICE_UNAVAILABLE,
    };
    let mut answer = (status, format!("{refusal}\n")).into_response();
    if refusal.is == Refused::Unknown {
        answer.headers_mut().insert(header::WWW_AUTHENTICATE, header::HeaderValue::from_static("Bearer"));
    }
    answer
}
