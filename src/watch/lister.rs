//! Lists of one source: the whole of it, or as little as says which version the API server has.
//!
//! # Decision: lists come in pages and not as a stream
//!
//! Context: A watch with `sendInitialEvents` begins with every object, and informers of client-go list like that.
//! Decision: Lists come in pages. On a real API server of Kubernetes 1.36 a stream of 20,000 objects of 4 KB took more than four
//! times the processor time of their pages, because each object is encoded and sent by itself, and as much memory at most. Pages need
//! no fallback.
//! Cost: Before Kubernetes 1.34 pages come from etcd instead of the watch cache: 0.3 s of etcd for these objects.

use std::cmp::Ordering;

use kube::client::Body;
use kube::core::params::{ListParams, VersionMatch};
use tokio::sync::OwnedSemaphorePermit;

use super::Shared;
use super::around::{Around, Detour};
use super::decode;
use super::frame::{Item, Items};
use super::intake::{SLOW, Taken, taken};
use super::machine::{Input, Machine};
use super::pages::Pages;
use super::requests::{Stop, list_params, request, selector, unbuilt};
use super::stats::SourceStats;
use crate::core::model::{ResourceVersion, SourceSpec, Unread, Why};
use crate::core::runtime;
use crate::journal::{SourceJournal, SourceState};
use crate::watch::cluster::{Api, Failure, next_part};

/// Staged objects go to the journal when there are this many bytes of them.
const STAGE_BYTES: usize = 1 << 20;
/// Fewer objects than this may go at once without a second look, unless none is left.
pub(super) const MANY: u64 = 10;
/// A list's progress is reported once in this many objects.
const PROGRESS: u64 = 5000;
/// Number of objects that show whether the versions of lists are comparable with those of objects.
const SOME: u32 = 100;
/// Bytes of an item beyond which a short list reads only its identity.
const GLANCE_LIMIT: usize = 256 << 10;

/// The newest version that objects of a list have.
#[derive(Debug, Default)]
struct Newest(Option<ResourceVersion>);

impl Newest {
    fn meet(&mut self, version: &str) {
        let version = ResourceVersion::new(version);
        if self.0.as_ref().is_none_or(|newest| version.compare(newest).is_some_and(Ordering::is_gt)) {
            self.0 = Some(version);
        }
    }

    fn is_after(&self, version: &ResourceVersion) -> bool {
        self.0.as_ref().is_some_and(|newest| newest.compare(version).is_some_and(Ordering::is_gt))
    }
}

/// A list in progress.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// Held from its first page until it is written, or given up.
    permit: Option<OwnedSemaphorePermit>,
    /// Its pages so far.
    pages: Pages,
    /// The way around objects that the API server cannot read; none before the first of them.
    around: Option<Around>,
    /// Number of lists of this source that the journal had given up before this one.
    given_up: u64,
}

/// Request for a page.
pub(super) struct ListRequest {
    /// The token of a further one.
    pub(super) token: Option<String>,
    /// True if the list is requested in pages.
    pub(super) paged: bool,
    /// The version to ask for, if not for a consistent list.
    pub(super) at: Option<ResourceVersion>,
    /// An item that is no JSON may have been damaged on the way: the list is asked for again, before it is a GAP.
    pub(super) doubts: bool,
}

/// Asks for lists of one source.
pub(super) struct Lister<'a> {
    pub(super) shared: &'a Shared,
    pub(super) api: &'a Api,
    pub(super) spec: &'a SourceSpec,
    /// The field selector that the API server takes.
    pub(super) fields: &'a str,
    pub(super) journal: &'a SourceJournal,
    pub(super) stats: &'a SourceStats,
}

impl Lister<'_> {
    /// A list of at most one object, not older than `version`: the API server must have that version to answer.
    pub(super) async fn probe(&self, version: &ResourceVersion) -> Result<Input, Failure> {
        let params = ListParams {
            limit: Some(1),
            version_match: Some(VersionMatch::NotOlderThan),
            resource_version: Some(version.to_string()),
            ..list_params(self.spec)
        };
        match self.glance(&params).await {
            Ok((found, _)) => Ok(Input::Probed(found)),
            // An API that does not know the question, or whose only object is huge, has not said no.
            Err(Failure::Refused(_) | Failure::Oversize(_)) => Ok(Input::Probed(version.clone())),
            Err(failure) => Err(failure),
        }
    }

    /// The version of a list of at most one object for which no version is asked, which makes it a consistent one.
    pub(super) async fn latest(&self, machine: &Machine) -> Result<Input, Failure> {
        let short = |limit| ListParams { limit: Some(limit), ..list_params(self.spec) };
        let (one, some) = (short(1), short(SOME));
        let (version, mut newer) = self.glance(&one).await?;
        if machine.is_past(&version) && !newer {
            // What cannot be looked at proves nothing, and what was found stands.
            newer = self.glance(&some).await.is_ok_and(|(_, newer)| newer);
        }
        Ok(if newer { Input::IncomparableVersions } else { Input::Latest(version) })
    }

    /// The version of a consistent list, where it says anything about objects.
    pub(super) async fn newest(&self) -> Result<Option<ResourceVersion>, Failure> {
        let params = ListParams { limit: Some(1), ..list_params(self.spec) };
        let (version, newer) = self.glance(&params).await?;
        Ok(Some(version).filter(|_| !newer))
    }

    /// Tests whether the API server accepts this field selector.
    pub(super) async fn select(&self, fields: &str) -> Result<(), Failure> {
        let params = ListParams { limit: Some(1), field_selector: selector(fields), ..list_params(self.spec) };
        self.glance(&params).await.map(drop)
    }

    /// The version of a short list, and whether an object in it is newer.
    async fn glance(&self, params: &ListParams) -> Result<(ResourceVersion, bool), Failure> {
        let _room = self.shared.limiter.request().await;
        let mut body = self.open_glance(params.clone()).await?;
        let mut items = Items::new(GLANCE_LIMIT.min(self.shared.timings.line_limit));
        let mut newest = Newest::default();
        while let Some(part) = next_part(&mut body, self.shared.api.limits().read).await? {
            items.push(&part, |item| -> Result<(), Failure> {
                let (Item::Whole(item) | Item::Outline(item)) = item;
                if let Ok(object) = decode::item(&self.spec.resource, item) {
                    newest.meet(&object.version);
                }
                Ok(())
            })?;
        }
        self.stats.contact();
        let version = decode::envelope(items.envelope()).map_err(Failure::Undecodable)?.version;
        let newer = newest.is_after(&version);
        Ok((version, newer))
    }

    /// Requests a short list. Where the API server cannot read an object of it, it begins behind that one, at the newest version.
    async fn open_glance(&self, mut params: ListParams) -> Result<Body, Failure> {
        let mut around = Around::new(1);
        loop {
            let uri = request(self.spec).list(&params).map_err(unbuilt)?.uri().to_string();
            let unreadable = match self.api.stream(&uri).await {
                Err(Failure::Unreadable(unreadable)) => unreadable,
                answer => return answer,
            };
            if params.limit.is_none_or(|limit| limit > 1) || params.resource_version.take().is_some() {
                // The watch cache, which cannot begin, has answered: lists of one object without a version are etcd's.
                params = ListParams { limit: Some(1), version_match: None, ..params };
                continue;
            }
            match around.failed(self.spec, &unreadable, None, None) {
                Some(Detour::Behind(token, _)) => params.continue_token = Some(token),
                Some(Detour::Smaller) | None => return Err(Failure::Unreadable(unreadable)),
            }
        }
    }

    /// Returns the path of a page. Without a version the list is a consistent one.
    fn page_uri(
        &self,
        token: Option<String>,
        limit: Option<u32>,
        at: Option<ResourceVersion>,
    ) -> Result<String, Failure> {
        // A token brings its own version.
        let at = at.filter(|_| token.is_none());
        let params = ListParams {
            limit,
            continue_token: token,
            version_match: at.is_some().then_some(VersionMatch::Exact),
            resource_version: at.map(|at| at.0),
            field_selector: selector(self.fields),
            ..list_params(self.spec)
        };
        Ok(request(self.spec).list(&params).map_err(unbuilt)?.uri().to_string())
    }

    /// A page of the list, which goes to the journal and counts only when the whole list is written.
    pub(super) async fn list(&self, listing: &mut Listing, page: ListRequest) -> Result<Input, Stop> {
        let ListRequest { token, paged, at, doubts } = page;
        if listing.permit.is_none() {
            listing.permit = Some(self.shared.limiter.list().await);
        }
        if token.is_none() {
            self.stats.listed();
            listing.pages = Pages::default();
            listing.around = None;
            listing.given_up = self.journal.lists_given_up();
            self.journal.list_begin().await?;
            if at.is_some() {
                self.journal.list_past().await?;
            }
        }
        let mut body = self.open_page(listing, token, paged, at).await?;
        let mut items = Items::new(self.shared.timings.line_limit);
        let journal = self.shared.journal.clone();
        let mut share = journal.budget().share();
        let mut newest = Newest::default();
        let (mut staged, mut unread) = (Vec::new(), Vec::new());
        let mut bytes = 0;
        while let Some(part) = next_part(&mut body, self.shared.api.limits().read).await? {
            self.stats.received(part.len());
            let reported = listing.pages.came() / PROGRESS;
            let (shared, spec, pages) = (self.shared, self.spec, &mut listing.pages);
            items.push(&part, |item| -> Result<(), Failure> {
                let mut met = |namespace: &str, name: &str, version: Option<&str>| {
                    // With those that are left out: an empty list is one that has nothing at all.
                    pages.object(namespace, name);
                    version.into_iter().for_each(|version| newest.meet(version));
                };
                match taken(shared, spec, item, doubts, &mut met) {
                    Taken::Nothing => {}
                    Taken::Damaged => {
                        let text = "an object of a list is no JSON: it may have been damaged on the way";
                        return Err(Failure::Undecodable(text.to_owned()));
                    }
                    Taken::Object(object) => {
                        bytes += object.body.bytes.len();
                        staged.push(object);
                    }
                    Taken::Unread(object) => unread.push(object),
                }
                Ok(())
            })?;
            drop(part);
            // What a large object holds goes with it, before anything more is read.
            if bytes >= STAGE_BYTES || share.is_holding() && !staged.is_empty() {
                self.journal.list_page_held(std::mem::take(&mut staged), &mut share).await?;
                bytes = 0;
            }
            if !unread.is_empty() {
                self.journal.list_unread(std::mem::take(&mut unread)).await?;
            }
            share.hold(items.pending()).await;
            if share.should_yield(self.shared.timings.silence) {
                return Err(Failure::Unreachable(SLOW.to_owned()).into());
            }
            let came = listing.pages.came();
            // A list that was given up before is reported as that until one is complete.
            if came / PROGRESS > reported && !matches!(self.stats.state(), SourceState::Degraded(_)) {
                self.stats.report(self.journal, SourceState::Listing(came)).await?;
            }
        }
        if let Some(around) = &mut listing.around {
            around.came();
        }
        // A list that broke off has no whole envelope.
        let page = decode::envelope(items.envelope()).map_err(Failure::Undecodable)?;
        if !staged.is_empty() {
            self.journal.list_page_held(staged, &mut share).await?;
        }
        if let Err(text) = listing.pages.end_of_page(page.next.as_deref(), page.left) {
            return Ok(Input::Endless(text));
        }
        if let Some(no_room) = self.no_room(listing) {
            return Ok(no_room);
        }
        let newer = newest.is_after(&page.version);
        Ok(Input::Page { version: page.version, next: page.next, newer })
    }

    /// Requests a page. Where the API server cannot read an object of it, that is staged by its name, and the page is the one before
    /// or behind it.
    async fn open_page(
        &self,
        listing: &mut Listing,
        mut token: Option<String>,
        paged: bool,
        mut at: Option<ResourceVersion>,
    ) -> Result<Body, Stop> {
        loop {
            let limit = match &listing.around {
                Some(around) => Some(around.limit()),
                None => paged.then_some(self.shared.timings.page),
            };
            let uri = self.page_uri(token.clone(), limit, at.clone())?;
            self.shared.limiter.turn().await;
            let unreadable = match self.api.stream(&uri).await {
                Err(Failure::Unreadable(unreadable)) => unreadable,
                answer => return Ok(answer?),
            };
            if token.is_none() && at.is_none() {
                // The pages that follow have to be of one version.
                at = Some(self.glance(&ListParams { limit: Some(1), ..list_params(self.spec) }).await?.0);
            }
            let around = listing.around.get_or_insert_with(|| Around::new(self.shared.timings.page));
            let number = at.as_ref().and_then(|at| at.as_str().parse().ok());
            match around.failed(self.spec, &unreadable, token.as_deref(), number) {
                Some(Detour::Smaller) => {}
                Some(Detour::Behind(next, (namespace, name))) => {
                    token = Some(next);
                    listing.pages.object(&namespace, &name);
                    if !self.spec.leaves_out(&namespace) {
                        self.journal.list_unread(vec![Unread::unreadable(namespace, name)]).await?;
                    }
                }
                None => return Err(Failure::Unreadable(unreadable).into()),
            }
        }
    }

    /// Writes the complete list, unless it lacks so much that it has to be asked for again first: a broken server's
    /// list may well be empty.
    pub(super) async fn commit(
        &self,
        listing: &Listing,
        version: ResourceVersion,
        why: Option<Why>,
        confirmed: bool,
    ) -> Result<Input, Stop> {
        // Without a gap it is a first list, and nothing is known that it could lack.
        if !confirmed && why.is_some() {
            self.shared.journal.flush().await?;
            if let Some(no_room) = self.no_room(listing) {
                return Ok(no_room);
            }
            let (journal, id) = (self.shared.journal.clone(), self.journal.id());
            let losses = runtime::blocking(move || journal.reader()?.losses(id)).await;
            // Whoever cannot read now, for want of descriptors for instance, asks again.
            let (known, lost) =
                losses.map_err(|error| Failure::Unreachable(format!("the journal cannot be read: {error}")))?;
            if lost * 2 > known && (lost >= MANY || listing.pages.came() == 0) {
                let text = format!("a list lacks {lost} of {known} objects; listing again before recording deletions");
                tracing::warn!(source = self.spec.name(), "{text}");
                return Ok(Input::ListTooShort(text));
            }
        }
        self.journal.list_done(version, why).await?;
        // Of a list that it has given up the journal writes nothing.
        Ok(self.no_room(listing).unwrap_or(Input::Committed))
    }

    /// The answer where the journal has given the list up for want of room.
    fn no_room(&self, listing: &Listing) -> Option<Input> {
        (self.journal.lists_given_up() != listing.given_up).then(|| Input::NoRoom(no_room(listing.pages.came())))
    }
}

/// Returns the reason why a list of so many objects is given up, and the remedy.
pub(super) fn no_room(objects: u64) -> String {
    format!(
        "the journal has no room for the list of this resource: {objects} objects had come; raise [state] max_size, or watch \
         less of it"
    )
}
