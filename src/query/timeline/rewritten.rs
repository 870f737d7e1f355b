//! Storage rewrites in a list of entries: one row each.

use std::collections::HashMap;
use std::collections::hash_map::Entry::{Occupied, Vacant};
use std::ops::ControlFlow;
use std::time::Instant;

use super::outlines::{Index, Way, who};
use super::selection::Selected;
use super::window::look;
use crate::journal::Reader;
use crate::journal::outline::{Mark, Part};
use crate::query::render::Failure;
use crate::query::rewrites::{MANY, PAUSE, Rewrite, Rewrites, Write};

/// An entry that changed nothing but bookkeeping.
struct Bare {
    seq: u64,
    time: i64,
    object: i64,
    by: Option<String>,
}

/// Such entries of a part of the log.
#[derive(Default)]
pub(super) struct Bares(Vec<Bare>);

impl Bares {
    /// Takes an entry if it is one.
    pub(super) fn take(&mut self, part: &Part, mark: &Mark) {
        if mark.bookkeeping {
            let (mut managers, _) = who(&part.words(mark));
            let by = managers.pop().filter(|_| managers.is_empty());
            self.0.push(Bare { seq: mark.seq, time: mark.latest, object: mark.object, by });
        }
    }

    /// Reports whether a storage rewrite may go on at an entry.
    pub(super) fn may_go_on(&self, mark: &Mark) -> bool {
        self.0.last().is_some_and(|last| (last.time - mark.latest).abs() <= PAUSE)
    }

    /// Takes what a storage rewrite may have after a seq, so that who reads on from there does not find a part of it.
    ///
    /// # Errors
    /// Where the journal cannot be read.
    pub(super) fn look_beyond(
        &mut self,
        index: &Index,
        reader: &mut Reader,
        selected: &Selected,
        (after, head): (u64, u64),
        deadline: Instant,
    ) -> Result<(), Failure> {
        let mut edge = None;
        look(index, reader, selected, ((after, head), Way::On), deadline, &mut |part, mark| {
            let near = *edge.get_or_insert(mark.latest);
            if (mark.latest - near).abs() > PAUSE {
                return ControlFlow::Break(());
            }
            if mark.bookkeeping {
                edge = Some(mark.latest);
                self.take(part, mark);
            }
            ControlFlow::Continue(())
        })?;
        Ok(())
    }

    /// Returns the storage rewrites among them.
    ///
    /// # Errors
    /// Where the journal cannot be read.
    pub(super) fn rewrites(mut self, reader: &Reader) -> Result<Vec<Rewrite>, Failure> {
        if self.0.len() < 2 {
            return Ok(Vec::new());
        }
        self.0.sort_by_key(|bare| (bare.time, bare.seq));
        let mut objects: HashMap<i64, [String; 3]> = HashMap::new();
        let mut rewrites = Rewrites::among(reader.small_resources(MANY)?);
        for bare in &self.0 {
            let object = match objects.entry(bare.object) {
                Occupied(known) => known.into_mut(),
                Vacant(place) => {
                    let Some(row) = reader.object_with(bare.object)? else { continue };
                    place.insert([row.resource.full_name(), row.namespace, row.name])
                }
            };
            let [resource, namespace, name] = object;
            let by = bare.by.as_deref();
            rewrites.take(&Write { seq: bare.seq, time: bare.time, resource, namespace, name, by });
        }
        Ok(rewrites.finish())
    }
}
