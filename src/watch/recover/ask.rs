//! Questions about the past as requests: exact lists, within the bounds, asked again where a failure passes.

use std::hash::BuildHasher;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::Method;
use jiff::Timestamp;
use kube::client::Body;
use kube::core::params::{ListParams, VersionMatch};
use tokio::time::Instant;

use super::plan::{Key, Question, State};
use super::revisions::number;
use super::{Answer, Recovery, Window, WindowError, unordered};
use crate::core::model::SourceSpec;
use crate::journal::Found;
use crate::watch::around::{Around, Detour};
use crate::watch::cluster::{Failure, next_part};
use crate::watch::decode::{self, Page};
use crate::watch::frame::{Item, Items};
use crate::watch::intake::{SLOW, caught, observed};
use crate::watch::limiter::is_worth_waiting;
use crate::watch::listed::METADATA;
use crate::watch::pages::Pages;
use crate::watch::requests::{Stop, list_params, selector, unbuilt};

/// Longer than any daemon runs, and short enough for every clock.
const UNBOUNDED_WAIT: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
/// Number of attempts of a request that fails temporarily.
const TRIES: u32 = 3;
/// Bytes of an item beyond which only its identity is read, unless more is needed.
const ITEM_LIMIT: usize = 256 << 10;

impl Recovery<'_> {
    pub(super) async fn ask(&self, window: &Window, question: Question) -> Result<Answer, WindowError> {
        match question {
            Question::Object(key, at) => {
                let state = match self.object(window, &key, at).await {
                    Err(WindowError::Unreadable(_)) => {
                        window.add_unreadable([key.clone()]);
                        return Ok(Answer::Unreadable { key, at });
                    }
                    state => state?,
                };
                let since = match state {
                    // It may be there and out of what is selected, since one of its versions.
                    None if self.spec.selects() => {
                        self.outside(window, &key, at).await?.map_or(at, |outside| outside.version)
                    }
                    Some(_) | None => at,
                };
                Ok(Answer::Object { key, at, since, state })
            }
            Question::Count(at) => Ok(Answer::Count { at, count: self.count(at).await? }),
            Question::Names(at) => {
                let (mut count, mut changed) = (0, Vec::new());
                let around = self.list(at, |object| {
                    count += 1;
                    if object.version.is_empty() {
                        return Ok(());
                    }
                    let state = window.state(&object)?;
                    if state.version > window.from {
                        changed.push(((object.namespace.to_string(), object.name.to_string()), state));
                    }
                    Ok(())
                });
                let around = around.await?;
                Ok(Answer::Names { at, count, changed, around })
            }
        }
    }

    /// Returns the number of objects at a revision, if the API server reports it.
    pub(super) async fn count(&self, at: u64) -> Result<Option<u64>, WindowError> {
        let mut items = 0;
        let count = |_: decode::Odd| {
            items += 1;
            Ok(())
        };
        let (page, around) = self.first(self.spec, Some(at), count).await?;
        let left = if page.next.is_some() { page.left } else { Some(0) };
        Ok(left.map(|left| items + around + left))
    }

    /// Returns the state of an object at a revision. A version of this window is staged.
    pub(super) async fn object(&self, window: &Window, key: &Key, at: u64) -> Result<Option<State>, WindowError> {
        let path = self.path_of(key);
        let params =
            ListParams { field_selector: Some(by_name(key, &self.spec.field_selector)), ..self.list_from_etcd() };
        let mut tries = 0;
        loop {
            match self.read_object(window, &path, &exactly(at, &params), at).await {
                Ok(state) => return Ok(state),
                Err(Stop::Failure(failure)) => self.bear(&mut tries, failure).await?,
                Err(stop) => return Err(stop.into()),
            }
        }
    }

    async fn read_object(
        &self,
        window: &Window,
        path: &str,
        params: &ListParams,
        at: u64,
    ) -> Result<Option<State>, Stop> {
        let mut share = self.shared.journal.budget().share();
        let mut found = None;
        let mut body = self.send(path, params, "application/json").await?;
        let mut items = Items::new(self.shared.timings.line_limit);
        while let Some(part) = next_part(&mut body, self.shared.api.limits().read).await? {
            self.stats.received(part.len());
            items.push(&part, |item| -> Result<(), Failure> {
                let Item::Whole(item) = item else {
                    return Err(Failure::Oversize("a version is larger than decklog takes".to_owned()));
                };
                let object = caught(|| {
                    let object = decode::item(&self.spec.resource, item).map_err(|odd| Failure::Refused(odd.why))?;
                    observed(self.shared, &self.spec.resource, object)
                })?;
                if found.replace(object).is_some() {
                    return Err(Failure::Refused("the API server does not select by name".to_owned()));
                }
                Ok(())
            })?;
            drop(part);
            share.hold(items.pending()).await;
            if share.should_yield(self.shared.timings.silence) {
                return Err(Failure::Unreachable(SLOW.to_owned()).into());
            }
        }
        is_of(&decode::envelope(items.envelope()).map_err(Failure::Undecodable)?, at)?;
        let Some(object) = found else { return Ok(None) };
        let Some(number) = number(&object.version).filter(|number| *number <= at) else { return Err(newer().into()) };
        let state = State { uid: window.keys.hash_one(&object.uid), version: number };
        let key = (object.namespace.clone(), object.name.clone());
        let is_new = window.staged.lock().unwrap_or_else(PoisonError::into_inner).insert((key, number));
        if number > window.from && is_new {
            self.journal.found_held(vec![Found::Version(object)], &mut share).await?;
        }
        Ok(Some(state))
    }

    /// Returns the state of an object at a revision, regardless of selectors.
    async fn outside(&self, window: &Window, key: &Key, at: u64) -> Result<Option<State>, WindowError> {
        let params = ListParams { field_selector: Some(by_name(key, "")), ..ListParams::default() };
        let mut found = None;
        self.page(&self.path_of(key), Some(at), params, |object| {
            found = Some(window.state(&object)?);
            Ok(())
        })
        .await?;
        Ok(found)
    }

    /// Every object at a revision that is not left out, by its metadata. Returns the names of those that the API server cannot read.
    pub(super) async fn list(
        &self,
        at: u64,
        mut each: impl FnMut(decode::Odd) -> Result<(), Failure>,
    ) -> Result<Vec<Key>, WindowError> {
        let path = self.spec.resource.path(self.spec.namespace.as_deref());
        let (mut token, mut pages) = (None::<String>, Pages::default());
        let (mut around, mut unreadable) = (Around::new(self.shared.timings.page), Vec::new());
        loop {
            let params = ListParams {
                limit: Some(around.limit()),
                continue_token: token.clone(),
                field_selector: selector(self.fields),
                ..list_params(self.spec)
            };
            let each = |object: decode::Odd| {
                pages.object(&object.namespace, &object.name);
                if self.spec.leaves_out(&object.namespace) {
                    return Ok(());
                }
                if object.name.is_empty() {
                    // It may be any of the objects that the list seems to lack.
                    return Err(Failure::Refused("the API server's list has an object that nothing names".to_owned()));
                }
                each(object)
            };
            let page = match self.page(&path, Some(at), params, each).await {
                Err(WindowError::Unreadable(found)) => {
                    match around.failed(self.spec, &found, token.as_deref(), Some(at)) {
                        Some(Detour::Smaller) => {}
                        Some(Detour::Behind(next, key)) => {
                            token = Some(next);
                            pages.object(&key.0, &key.1);
                            if !self.spec.leaves_out(&key.0) {
                                unreadable.push(key);
                            }
                        }
                        None => return Err(WindowError::Unreadable(found)),
                    }
                    continue;
                }
                page => page?,
            };
            around.came();
            pages.end_of_page(page.next.as_deref(), page.left).map_err(WindowError::Unrecoverable)?;
            token = page.next;
            if token.is_none() {
                return Ok(unreadable);
            }
        }
    }

    /// The first object that can be read, at a revision or of now, and the number of those before it.
    async fn first(
        &self,
        spec: &SourceSpec,
        at: Option<u64>,
        mut each: impl FnMut(decode::Odd) -> Result<(), Failure>,
    ) -> Result<(Page, u64), WindowError> {
        let path = spec.resource.path(spec.namespace.as_deref());
        let (mut around, mut before) = (Around::new(1), 0);
        let mut params = ListParams { limit: Some(1), ..list_params(spec) };
        loop {
            match self.page(&path, at, params.clone(), &mut each).await {
                Err(WindowError::Unreadable(found)) => {
                    let Some(Detour::Behind(next, _)) = around.failed(spec, &found, None, at) else {
                        return Err(WindowError::Unreadable(found));
                    };
                    params.continue_token = Some(next);
                    before += 1;
                }
                page => return Ok((page?, before)),
            }
        }
    }

    /// Parameters of a list that the API server answers from etcd, also while its watch cache cannot begin.
    fn list_from_etcd(&self) -> ListParams {
        ListParams { limit: Some(self.shared.timings.page), ..list_params(self.spec) }
    }

    /// A page of metadata, at a revision or of now.
    async fn page(
        &self,
        path: &str,
        at: Option<u64>,
        params: ListParams,
        mut each: impl FnMut(decode::Odd) -> Result<(), Failure>,
    ) -> Result<Page, WindowError> {
        let params = at.map_or_else(|| params.clone(), |at| exactly(at, &params));
        let mut tries = 0;
        loop {
            // What breaks off is asked for again, so nothing of it counts before all of it is there.
            let mut objects = Vec::new();
            let read = async {
                let mut body = self.send(path, &params, METADATA).await?;
                let mut items = Items::new(ITEM_LIMIT.min(self.shared.timings.line_limit));
                while let Some(part) = next_part(&mut body, self.shared.api.limits().read).await? {
                    self.stats.received(part.len());
                    items.push(&part, |item| -> Result<(), Failure> {
                        let (Item::Whole(item) | Item::Outline(item)) = item;
                        objects.push(match decode::item(&self.spec.resource, item) {
                            Ok(object) => object.into(),
                            Err(odd) => odd,
                        });
                        Ok(())
                    })?;
                }
                let page = decode::envelope(items.envelope()).map_err(Failure::Undecodable)?;
                at.map_or(Ok(()), |at| is_of(&page, at))?;
                Ok(page)
            };
            match read.await {
                Ok(page) => {
                    for object in objects {
                        each(object).map_err(|failure| hopeless(&failure))?;
                    }
                    return Ok(page);
                }
                Err(failure) => self.bear(&mut tries, failure).await?,
            }
        }
    }

    /// Sends a request, within the bounds.
    async fn send(&self, path: &str, params: &ListParams, accept: &str) -> Result<Body, Failure> {
        let cost = self.cost.requests.fetch_add(1, Ordering::Relaxed);
        if cost >= self.bounds.requests || Instant::now() >= self.deadline() {
            return Err(Failure::Refused(self.too_long(cost)));
        }
        let Some(_place) = self.shared.limiter.recovery(self.deadline()).await else {
            return Err(Failure::Refused(format!("{}; the next turn comes later", self.too_long(cost))));
        };
        self.shared.progressed();
        let uri = kube::core::Request::new(path).list(params).map_err(unbuilt)?.uri().to_string();
        let asked = Instant::now();
        let answer = self.api.send(Method::GET, &uri, accept, Vec::new()).await?;
        if params.field_selector.as_ref().is_some_and(|fields| fields.starts_with("metadata.name=")) {
            self.shared.limiter.answered(asked.elapsed());
        }
        Ok(answer.into_body())
    }

    /// Returns the time at which recovery ends, complete or not.
    pub(super) fn deadline(&self) -> Instant {
        let since = self.cost.since;
        since.checked_add(*self.bounds.within).unwrap_or_else(|| since + UNBOUNDED_WAIT)
    }

    /// Returns the sentence about the cost and its limit.
    pub(super) fn too_long(&self, cost: u32) -> String {
        format!(
            "{cost} requests in {} s, and [cluster] recover allows {} in {} s",
            self.cost.since.elapsed().as_secs(),
            self.bounds.requests,
            self.bounds.within.as_secs()
        )
    }

    /// Waits where a failure may pass, for a few times.
    async fn bear(&self, tries: &mut u32, failure: Failure) -> Result<(), WindowError> {
        tracing::debug!(source = self.spec.name(), %failure, "a question about the past failed");
        *tries += 1;
        // Under other credentials everything is asked again.
        if self.shared.api.generation().await != self.generation {
            return Err(WindowError::Stop(failure.into()));
        }
        let passes = match &failure {
            Failure::Busy(after) => {
                if let Some(after) = after {
                    // It is one API server for all of us.
                    self.shared.limiter.hold_recovery(*after);
                    // Whoever waited for that would come too late for the present as well.
                    if !is_worth_waiting(*after, Instant::now(), self.deadline()) {
                        return Err(WindowError::Unrecoverable(format!(
                            "the API server asks to wait {} s with questions about the past, and [cluster] recover allows {} s \
                             for all of them",
                            after.as_secs(),
                            self.bounds.within.as_secs()
                        )));
                    }
                }
                true
            }
            Failure::Server(_) | Failure::Unreachable(_) | Failure::Undecodable(_) => true,
            Failure::Expired => return Err(WindowError::Compacted),
            Failure::Unreadable(unreadable) => return Err(WindowError::Unreadable(unreadable.clone())),
            Failure::Refused(_) | Failure::Oversize(_) => return Err(hopeless(&failure)),
            // Whoever bears with it asks again, as long as there is time.
            Failure::Ahead
            | Failure::Unauthorized
            | Failure::Forbidden(_)
            | Failure::NotFound
            | Failure::Tls(_)
            | Failure::Away(_) => false,
        };
        if passes && *tries <= TRIES {
            self.shared.rest(self.shared.timings.backoff.wait(*tries + 1)).await;
            return Ok(());
        }
        // What fails without a reason that passes is given up; the rest is waited for.
        let lasts = matches!(failure, Failure::Server(_) | Failure::Undecodable(_));
        Err(if lasts { hopeless(&failure) } else { WindowError::Stop(failure.into()) })
    }

    /// The API server's newest version, which is that of a consistent list.
    pub(in crate::watch) async fn newest_of(&self, spec: &SourceSpec) -> Result<u64, WindowError> {
        let (page, _) = self.first(spec, None, |_| Ok(())).await?;
        number(&page.version).ok_or_else(unordered)
    }

    /// Begins to stage a window. `newest_at` is the time before its end was asked for, where that was the newest version then.
    pub(super) async fn begin_window(&self, newest_at: Option<Timestamp>) -> Result<(), WindowError> {
        self.journal.list_begin().await?;
        match newest_at {
            Some(at) => self.journal.list_as_of(at).await?,
            None => self.journal.list_past().await?,
        }
        Ok(())
    }

    /// The least revision after `from` that etcd has. The newest can be had, or nothing can.
    pub(super) async fn oldest(&self, from: u64, newest: u64) -> Result<u64, WindowError> {
        let (mut gone, mut there) = (from, newest);
        while there - gone > 1 {
            let at = gone + (there - gone) / 2;
            match self.in_etcd(at).await {
                Ok(()) => there = at,
                Err(WindowError::Compacted) => gone = at,
                Err(trouble) => return Err(trouble),
            }
        }
        Ok(there)
    }

    /// Asks for the one object of a name, by its metadata: at a revision, which etcd answers, or of now.
    pub(in crate::watch) async fn named(
        &self,
        key: &Key,
        at: Option<u64>,
        each: impl FnMut(decode::Odd) -> Result<(), Failure>,
    ) -> Result<Page, WindowError> {
        let params =
            ListParams { field_selector: Some(by_name(key, &self.spec.field_selector)), ..self.list_from_etcd() };
        self.page(&self.path_of(key), at, params, each).await
    }

    /// Asks for a page of the lists that a name is in, by metadata.
    pub(in crate::watch) async fn page_of(
        &self,
        key: &Key,
        params: ListParams,
        each: impl FnMut(decode::Odd) -> Result<(), Failure>,
    ) -> Result<Page, WindowError> {
        self.page(&self.path_of(key), None, params, each).await
    }

    /// Succeeds if etcd has a revision. Lists of many objects may come from snapshots of the watch cache, also at revisions that are
    /// compacted; the one object of a name comes from etcd, whether there is one or not.
    pub(super) async fn in_etcd(&self, at: u64) -> Result<(), WindowError> {
        let namespace = self.spec.namespace.as_deref().unwrap_or("default");
        let path = self.spec.resource.path(self.spec.resource.namespaced.then_some(namespace));
        let name = (String::new(), "decklog".to_owned());
        let params =
            ListParams { field_selector: Some(by_name(&name, &self.spec.field_selector)), ..self.list_from_etcd() };
        self.page(&path, Some(at), params, |_| Ok(())).await.map(drop)
    }

    fn path_of(&self, (namespace, _): &Key) -> String {
        self.spec.resource.path(Some(namespace.as_str()).filter(|namespace| !namespace.is_empty()))
    }
}

fn hopeless(failure: &Failure) -> WindowError {
    WindowError::Unrecoverable(failure.to_string())
}

/// Asks for exactly this revision. A token of a page brings its own.
fn exactly(at: u64, params: &ListParams) -> ListParams {
    if params.continue_token.is_some() {
        return params.clone();
    }
    ListParams { version_match: Some(VersionMatch::Exact), resource_version: Some(at.to_string()), ..params.clone() }
}

/// An answer of another version than was asked for is none.
fn is_of(page: &Page, at: u64) -> Result<(), Failure> {
    if number(&page.version) == Some(at) {
        return Ok(());
    }
    Err(Failure::Refused(format!("asked for the version {at}, the API server answered with {}", page.version)))
}

pub(super) fn newer() -> Failure {
    Failure::Refused("the API server's list has an object that is newer than the list".to_owned())
}

/// A field selector for one name, beside another one.
pub(in crate::watch) fn by_name((_, name): &Key, other: &str) -> String {
    let mut text = String::with_capacity(other.len() + name.len() + 16);
    text.push_str("metadata.name=");
    for letter in name.chars() {
        if matches!(letter, '\\' | ',' | '=') {
            text.push('\\');
        }
        text.push(letter);
    }
    if !other.is_empty() {
        text.push(',');
        text.push_str(other);
    }
    text
}
