//! Asking witnesses: each checkpoint is sent to all of them at once, and their cosignatures are added to it before it is published.
//!
//! # Decision: nobody waits for a witness
//!
//! Context: A cosignature is worth something where the witness is run by somebody else, whose machine may be down or far away.
//! Decision: A witness that does not cosign within 10 s, or refuses, is a problem that is shown, and an alarm after some checkpoints; the
//! checkpoint is published without it, and the next one, a minute later, is sent again.
//! Cost: An auditor who asks for the cosignature of each witness may have to take a newer copy.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::fs;
use std::future::pending;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use jiff::Timestamp;
use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, Proxy, StatusCode, redirect};
use tokio::runtime::Handle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::checkpoint::{Checkpoint, Origin};
use super::note::{Note, Signature};
use super::settings::{Settings, Witness};
use super::witness::{Request, decimal};
use crate::core::merkle::Hash;
use crate::core::net::proxy::Proxies;
use crate::core::net::tls::{self, Place, Roots, Verifier};
use crate::core::net::{USER_AGENT, install_crypto_provider};
use crate::core::runtime;

/// Time limit for all that is asked for one checkpoint.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for the answers once decklog ends.
const LAST_ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Bytes of an answer that are read.
const ANSWER_LEN_MAX: usize = 16 << 10;

/// Witnesses of a log; clones are handles of the same.
#[derive(Clone, Debug)]
pub struct Witnesses(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    settings: Vec<Witness>,
    /// Time limit for all answers.
    within: Duration,
    /// Cancelled when decklog ends.
    stop: OnceLock<CancellationToken>,
    state: Mutex<State>,
}

/// Progress of a witness.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Name in its key.
    pub name: String,
    /// Its URL.
    pub url: String,
    /// Time at which it cosigned last, as it says; none where that was before this start and not the last checkpoint.
    pub signed: Option<Timestamp>,
    /// Checkpoints in a row that it has not cosigned.
    pub missed: u32,
    /// Time of the first of them, and the reason of the last one.
    pub failing: Option<(Timestamp, String)>,
}

#[derive(Debug, Default)]
struct State {
    /// Tree that each witness has cosigned last, as far as is known.
    known: BTreeMap<usize, (Origin, u64)>,
    /// Progress of each witness.
    progress: Vec<Progress>,
}

/// Answer of a witness.
enum Answer {
    Cosigned(Signature),
    /// It knows a tree of this size.
    Knows(u64),
    Problem(String),
}

impl Witnesses {
    /// Witnesses of the configuration. Nothing is connected yet.
    #[must_use]
    pub fn new(settings: &Settings) -> Self {
        Self::within(settings, ANSWER_TIMEOUT)
    }

    /// Witnesses that have so long for their answers.
    pub(super) fn within(settings: &Settings, within: Duration) -> Self {
        let begin = |witness: &Witness| {
            let (name, url) = (witness.key.name.clone(), witness.url.to_string());
            Progress { name, url, ..Progress::default() }
        };
        let progress = settings.witness.iter().map(begin).collect();
        let state = Mutex::new(State { known: BTreeMap::new(), progress });
        Self(Arc::new(Inner { settings: settings.witness.clone(), within, stop: OnceLock::new(), state }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the witnesses have less time once `stop` is cancelled.
    pub fn end_with(&self, stop: CancellationToken) {
        drop(self.0.stop.set(stop));
    }

    /// Returns the progress of each witness, in the order of the configuration.
    #[must_use]
    pub fn progress(&self) -> Vec<Progress> {
        self.state().progress.clone()
    }

    /// Notes the cosignatures of a checkpoint, as of one that was signed before this start.
    pub fn note(&self, note: &Note) {
        for (witness, progress) in self.0.settings.iter().zip(&mut self.state().progress) {
            progress.signed = progress.signed.max(seen(note, witness));
        }
    }

    /// Forgets what failed: nobody is asked while another replica signs.
    pub fn rest(&self) {
        for progress in &mut self.state().progress {
            (progress.missed, progress.failing) = (0, None);
        }
    }

    /// Reports whether every witness has cosigned a note.
    #[must_use]
    pub fn have_cosigned(&self, note: &Note) -> bool {
        self.0.settings.iter().all(|witness| note.is_signed_by(&witness.key))
    }

    /// Adds the cosignatures of the witnesses that give them in time, on a thread that may block. `prove` gives the proof from a size.
    #[must_use]
    pub fn cosign<E: fmt::Display>(
        &self,
        note: Note,
        checkpoint: &Checkpoint,
        prove: impl FnMut(u64) -> Result<Vec<Hash>, E>,
    ) -> Note {
        if self.0.settings.is_empty() {
            note
        } else {
            Handle::current().block_on(self.ask_all(note, checkpoint, prove))
        }
    }

    async fn ask_all<E: fmt::Display>(
        &self,
        mut note: Note,
        checkpoint: &Checkpoint,
        mut prove: impl FnMut(u64) -> Result<Vec<Hash>, E>,
    ) -> Note {
        let (began, signed, mut problems) = (Instant::now(), note.clone(), Vec::new());
        let mut asked: Vec<(usize, u64)> =
            (0..self.0.settings.len()).map(|index| (index, self.known(index, checkpoint))).collect();
        for is_last in [false, true] {
            let mut requests = Vec::new();
            for (index, old) in asked.drain(..) {
                match prove(old) {
                    Ok(proof) => requests.push((index, Request { old, proof, note: signed.render() })),
                    Err(error) => problems.push((index, error.to_string())),
                }
            }
            let answers = requests.iter().map(|(index, request)| self.ask_in_time(*index, request, &signed, began));
            for ((index, Request { old, .. }), answer) in requests.iter().zip(join_all(answers).await) {
                let knows = match answer {
                    Answer::Cosigned(signature) => {
                        note.signatures.push(signature);
                        checkpoint.size
                    }
                    Answer::Knows(size) => {
                        match parting(*old, size, checkpoint, is_last) {
                            None => asked.push((*index, size)),
                            Some(why) => problems.push((*index, why)),
                        }
                        size
                    }
                    Answer::Problem(why) => {
                        problems.push((*index, why));
                        continue;
                    }
                };
                self.state().known.insert(*index, (checkpoint.origin.clone(), knows));
            }
        }
        self.report(&note, &problems);
        note
    }

    /// Size of the tree that a witness knows. After a restart it is 0, and the witness says better.
    fn known(&self, index: usize, checkpoint: &Checkpoint) -> u64 {
        let state = self.state();
        let known = state.known.get(&index);
        let known = known.filter(|(origin, size)| *origin == checkpoint.origin && *size <= checkpoint.size);
        known.map_or(0, |(_, size)| *size)
    }

    async fn ask_in_time(&self, index: usize, request: &Request, signed: &Note, began: Instant) -> Answer {
        let stopped = async {
            match self.0.stop.get() {
                Some(stop) => stop.cancelled().await,
                None => pending().await,
            }
            tokio::time::sleep(LAST_ANSWER_TIMEOUT).await;
        };
        let Some(witness) = self.0.settings.get(index) else { return Answer::Problem("it is unknown".to_owned()) };
        tokio::select! {
            answer = ask(witness, request, signed) => answer.unwrap_or_else(Answer::Problem),
            () = tokio::time::sleep_until(began + self.0.within) => {
                Answer::Problem(format!("it did not answer within {:?}", self.0.within))
            }
            () = stopped => Answer::Problem("it had not answered when decklog ended".to_owned()),
        }
    }

    /// Keeps and logs how it went with a checkpoint.
    fn report(&self, note: &Note, problems: &[(usize, String)]) {
        let mut state = self.state();
        for (index, (witness, progress)) in self.0.settings.iter().zip(&mut state.progress).enumerate() {
            let Progress { name, url, .. } = &*progress;
            let Some((_, why)) = problems.iter().find(|(of, _)| *of == index) else {
                if progress.failing.is_some() {
                    tracing::info!("the witness {name} at {url} cosigns again");
                }
                progress.signed = progress.signed.max(seen(note, witness));
                (progress.missed, progress.failing) = (0, None);
                continue;
            };
            if progress.failing.as_ref().is_none_or(|(_, known)| known != why) {
                tracing::warn!(
                    "the witness {name} at {url} has not cosigned, and the checkpoint is published without it: {why}"
                );
            }
            let since = progress.failing.take().map_or_else(runtime::now, |(since, _)| since);
            progress.failing = Some((since, why.clone()));
            progress.missed = progress.missed.saturating_add(1);
        }
    }
}

/// Returns the time at which a witness has cosigned a checkpoint; none where it has not.
fn seen(note: &Note, witness: &Witness) -> Option<Timestamp> {
    Timestamp::from_second(i64::try_from(note.seen_by(&witness.key)?).ok()?).ok()
}

/// Problem of a witness that knows a tree of another size than it was asked from; none where that can be proved.
fn parting(old: u64, knows: u64, checkpoint: &Checkpoint, is_last: bool) -> Option<String> {
    let size = checkpoint.size;
    if knows > size {
        return Some(format!(
            "it has cosigned {knows} leaves of this tree, and the journal has {size}: the journal was restored from a copy, or somebody \
             else signs with this key; restart decklog, which begins a new epoch where its evidence has more than the journal"
        ));
    }
    if knows == old {
        return Some(format!(
            "it has cosigned another tree of {knows} leaves under this name: the journal was altered, or somebody else signs with this key"
        ));
    }
    is_last
        .then(|| format!("it knows {knows} leaves now, and {old} a moment before: somebody else signs with this key"))
}

/// Asks a witness once.
async fn ask(witness: &Witness, request: &Request, signed: &Note) -> Result<Answer, String> {
    let asking = client(witness)?.post(witness.url.add_checkpoint()).header(CONTENT_TYPE, "text/plain; charset=utf-8");
    let mut response = asking.body(request.render()).send().await.map_err(|error| meaning(&error))?;
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| meaning(&error))? {
        body.extend_from_slice(&chunk);
        if body.len() > ANSWER_LEN_MAX {
            return Err(format!("its answer has more than {ANSWER_LEN_MAX} bytes"));
        }
    }
    let text = String::from_utf8_lossy(&body);
    match response.status() {
        StatusCode::OK => {
            let answered = Note::parse(format!("{}\n{text}", signed.text).as_bytes());
            let signatures = answered.map_err(|why| format!("it did not answer with signatures: {why}"))?.signatures;
            let is_good = |signature: &Signature| witness.key.verifies(signed.text.as_bytes(), signature);
            let good = signatures.into_iter().find(is_good);
            good.map(Answer::Cosigned).ok_or_else(|| "its answer has no good signature of the configured key".to_owned())
        }
        StatusCode::CONFLICT => match text.strip_suffix('\n').and_then(decimal) {
            Some(size) => Ok(Answer::Knows(size)),
            None => Err("it answered 409 without a size".to_owned()),
        },
        StatusCode::NOT_FOUND => Err("it does not know this log, or `url` is not that of a witness".to_owned()),
        StatusCode::FORBIDDEN => Err("it has another key for this log".to_owned()),
        StatusCode::UNPROCESSABLE_ENTITY => {
            Err("the tree that it cosigned last is not the beginning of this one: the journal was altered, or somebody else signs \
                 with this key"
                .to_owned())
        }
        status => Err(format!("it answered {status}")),
    }
}

/// Returns the client for a witness. It is made for each checkpoint, so that a file of authorities may be replaced.
fn client(witness: &Witness) -> Result<Client, String> {
    install_crypto_provider();
    let builder = Client::builder().user_agent(USER_AGENT).redirect(redirect::Policy::none()).no_proxy();
    if witness.url.scheme() == "http" {
        return builder.tls_certs_only([]).build().map_err(|error| meaning(&error));
    }
    let roots = match &witness.ca_file {
        None => Roots::of_this_machine(),
        Some(path) => {
            let text = fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
            let roots = Roots::read(tls::certificates(&text));
            if roots.is_empty() {
                return Err(format!("{} holds no PEM certificate", path.display()));
            }
            roots
        }
    };
    let builder = builder.tls_backend_preconfigured(tls::client(Arc::new(Verifier::new(roots)), None));
    let proxies = Proxies::from_environment();
    let builder = match proxies.for_url(&witness.url).map_err(|invalid| format!("{invalid}, and restart decklog"))? {
        None => builder,
        Some(proxy) => {
            // The proxy resolves names, as it does for Go.
            let address = proxy.url().as_str().replacen("socks5:", "socks5h:", 1);
            builder.proxy(Proxy::all(address).map_err(|error| meaning(&error))?)
        }
    };
    builder.build().map_err(|error| meaning(&error))
}

/// Terms for sentences about the connection.
const SERVER: Place = Place {
    peer: "the witness",
    authority: "an authority that decklog trusts here",
    trust: "name the authority that signed its certificate in `ca_file`",
    name: "connect to a name that is in its certificate",
    own: "a certificate of decklog",
    give: "let the witness ask for no certificate",
};

/// Returns the cause of an error: what it means for TLS, or its innermost one.
fn meaning(error: &reqwest::Error) -> String {
    let mut error: &(dyn Error + 'static) = error;
    loop {
        if let Some(error) = error.downcast_ref::<rustls::Error>() {
            return tls::sentence(error, &SERVER);
        }
        // An error of I/O that holds another one does not name it as its cause.
        let held =
            error.downcast_ref::<io::Error>().and_then(io::Error::get_ref).map(|held| held as &(dyn Error + 'static));
        match held.or_else(|| error.source()) {
            Some(cause) => error = cause,
            None => return error.to_string(),
        }
    }
}
