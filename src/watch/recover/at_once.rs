//! Contents of many objects at a revision, by a list instead of a request for each.
//!
//! # Decision: many changed objects are read by a list
//!
//! Context: etcd forgets after five minutes, and a request for each of 10,000 versions takes longer where the API server is asked
//! 100 times a second.
//! Decision: Where a page of the list holds at least 20 objects whose content is needed, on average, the pages are requested in place
//! of the objects. What a page does not bring is asked for by name. Windows get as small as an object of many changes makes
//! worthwhile, so that most versions are the newest one of some window.
//! Cost: Bytes of objects that nobody needs.

use std::collections::HashSet;
use std::hash::BuildHasher;
use std::sync::PoisonError;

use kube::core::params::ListParams;

use super::ask::{exactly, is_of};
use super::plan::{Key, State};
use super::revisions::number;
use super::{Recovery, WINDOW, Window};
use crate::core::model::Observed;
use crate::journal::{Found, Share};
use crate::watch::cluster::{Failure, next_part};
use crate::watch::decode::{self, Page};
use crate::watch::frame::{Item, Items};
use crate::watch::intake::{SLOW, caught, observed};
use crate::watch::requests::{Stop, list_params, selector};

/// Requests for one object that a page costs no more than.
const PAGE_WORTH: u64 = 20;
/// Revisions of a window at least.
const WINDOW_MIN: u64 = 64;

impl Recovery<'_> {
    /// Reports whether so many objects of a list are read by its pages.
    pub(super) fn are_many(&self, wanted: u64, listed: u64) -> bool {
        wanted >= PAGE_WORTH * (listed / u64::from(self.shared.timings.page.max(1)) + 1)
    }

    /// Reads objects by the pages of a list of the window's end, and stages their versions. Returns what it read, which may be less
    /// than what is wanted.
    pub(super) async fn contents(&self, window: &Window, wanted: &HashSet<u64>) -> Result<Vec<(Key, State)>, Stop> {
        let path = self.spec.resource.path(self.spec.namespace.as_deref());
        let (mut token, mut read) = (None, Vec::new());
        loop {
            let params = ListParams {
                limit: Some(self.shared.timings.page),
                continue_token: token,
                field_selector: selector(self.fields),
                ..list_params(self.spec)
            };
            match self.read_page(window, &path, &exactly(window.to, &params), wanted, &mut read).await {
                Ok(page) if page.next.is_some() => token = page.next,
                Err(Stop::Journal(error)) => return Err(error.into()),
                // Whoever asks for what is left hears why.
                Ok(_) | Err(Stop::Failure(_)) => return Ok(read),
            }
        }
    }

    async fn read_page(
        &self,
        window: &Window,
        path: &str,
        params: &ListParams,
        wanted: &HashSet<u64>,
        read: &mut Vec<(Key, State)>,
    ) -> Result<Page, Stop> {
        let mut share = self.shared.journal.budget().share();
        let mut body = self.send(path, params, "application/json").await?;
        let mut items = Items::new(self.shared.timings.line_limit);
        while let Some(part) = next_part(&mut body, self.shared.api.limits().read).await? {
            self.stats.received(part.len());
            let mut came = Vec::new();
            items.push(&part, |item| -> Result<(), Failure> {
                // What is odd is asked for by name, where it is said why.
                let Item::Whole(item) = item else { return Ok(()) };
                let Ok(object) = decode::item(&self.spec.resource, item) else { return Ok(()) };
                if wanted.contains(&window.keys.hash_one((&*object.namespace, &*object.name))) {
                    came.extend(caught(|| observed(self.shared, &self.spec.resource, object)).ok());
                }
                Ok(())
            })?;
            drop(part);
            self.stage(window, came, read, &mut share).await?;
            share.hold(items.pending()).await;
            if share.should_yield(self.shared.timings.silence) {
                return Err(Failure::Unreachable(SLOW.to_owned()).into());
            }
        }
        let page = decode::envelope(items.envelope()).map_err(Failure::Undecodable)?;
        is_of(&page, window.to)?;
        Ok(page)
    }

    async fn stage(
        &self,
        window: &Window,
        came: Vec<Observed>,
        read: &mut Vec<(Key, State)>,
        share: &mut Share<'_>,
    ) -> Result<(), Stop> {
        let mut found = Vec::new();
        for object in came {
            let Some(version) = number(&object.version).filter(|version| *version <= window.to) else { continue };
            let key = (object.namespace.clone(), object.name.clone());
            read.push((key.clone(), State { uid: window.hash(&object.uid), version }));
            let is_new = window.staged.lock().unwrap_or_else(PoisonError::into_inner).insert((key, version));
            if version > window.from && is_new {
                found.push(Found::Version(object));
            }
        }
        if !found.is_empty() {
            self.journal.found_held(found, share).await?;
        }
        Ok(())
    }
}

/// Returns the number of revisions of the next window, after one of `revisions` that had `changes`. A list costs two requests for each
/// page and a few more, and each further change of an object in a window one or two: the sum is least where the changes of a
/// window are about the root of twice the product of both.
pub(super) fn next_size(objects: u64, page: u32, revisions: u64, changes: u64) -> u64 {
    let most = WINDOW + objects / 10;
    let list = 2 * (objects / u64::from(page.max(1)) + 1) + 4;
    let best = (objects * list).isqrt();
    // Nothing has changed: whatever comes is cheap.
    (best * revisions).checked_div(changes).unwrap_or(most).clamp(WINDOW_MIN.min(most), most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_as_large_as_its_list_is_dear() {
        // Objects, revisions and changes of the window before, and the revisions of the next one.
        for (objects, revisions, changes, expected) in [
            (1_000, 1_100, 1_000, 110..=111),
            (1_000, 1_100, 10, 1_100..=1_100),
            (1_000, 1_100, 0, 1_100..=1_100),
            (0, 1_000, 1_000, 64..=64),
            (100_000, 11_000, 10_000, 7_000..=7_100),
            (10, 1_000, 500, 64..=64),
        ] {
            let size = next_size(objects, 500, revisions, changes);
            assert!(expected.contains(&size), "{objects}, {revisions}, {changes}: {size}");
        }
    }
}
