//! Who set each field of an object last.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::core::k8s::audited::Actor;
use crate::core::model::Seq;
use crate::query::coverage::Uncovered;
use crate::query::coverage_notes::{About, Coverage, doubt};
use crate::query::render::blame::{Field, Set, trace};
use crate::query::render::names::At;
use crate::query::render::path::{covered, object_and_paths};
use crate::query::render::row::plural;
use crate::query::render::{Failure, object};
use crate::query::{Log, Put, Question};

/// Asks for the managers of an object's fields.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Blame {
    /// KIND/NAME, or KIND.
    pub(crate) object: String,
    /// The name if `object` is a kind alone, and paths; all fields if there are none.
    #[serde(default)]
    pub(crate) paths: Vec<String>,
    #[serde(default)]
    pub(crate) namespaces: Vec<String>,
    /// The moment; now if there is none.
    #[serde(default)]
    pub(crate) at: Option<At>,
}

/// The object, and who set its fields.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Blamed {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) resource: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    /// Number of GAPs in the history that was looked at.
    pub(crate) gaps: usize,
    /// The leaves in their order.
    pub(crate) fields: Vec<Field>,
    /// The whole object, as JSON.
    pub(crate) object: String,
    /// The part of its history that the log does not cover.
    #[serde(default)]
    pub(crate) uncovered: Vec<Uncovered>,
}

impl Question for Blame {
    const NAME: &'static str = "blame";
    type Item = Blamed;

    /// # Errors
    /// Exit 1 where the object did not exist, with when it came and went.
    fn answer(self, log: &Log<'_>, put: &mut Put<'_, Blamed>) -> Result<(), Failure> {
        self.answer_for(Self::NAME, log, put)
    }
}

impl Blame {
    /// Answers for a command, which messages name.
    ///
    /// # Errors
    /// As [`Self::answer`].
    pub(super) fn answer_for(self, command: &str, log: &Log<'_>, put: &mut Put<'_, Blamed>) -> Result<(), Failure> {
        let (named, paths) = object_and_paths(&self.object, &self.paths).map_err(Failure::usage)?;
        let mut reader = log.open()?;
        let mut rows = object::find(&reader, command, &named, &self.namespaces)?;
        let place = match self.at {
            Some(at) => {
                let (place, note) = object::place_of(&mut reader, &mut rows, at, &log.clock)?;
                note.iter().for_each(|note| log.remark(note));
                Some(place)
            }
            None => None,
        };
        if place.is_none() && rows.len() > 1 && rows.iter().any(|row| row.present) {
            rows.retain(|row| row.present);
        }
        let row = object::only(&named, rows)?;
        if let Some(place) = place
            && let Some(doubt) = doubt(&mut reader, (row.resource_id, Some(&row.namespace)), place, &log.clock)?
        {
            log.remark(&doubt);
        }
        let about = About {
            resources: Some(BTreeSet::from([row.resource.full_name()])),
            namespaces: row.namespaces(),
            since: place.and_then(|place| place.time),
            until: place.and_then(|place| place.time),
        };
        // Right after an entry everything is as the entry says.
        let depends = place.is_none_or(|place| place.time.is_some());
        let place = match place {
            Some(place) => {
                let placed = object::happened_by(&mut reader, &row, place)?;
                placed.note(&log.clock).iter().for_each(|note| log.remark(note));
                Some(placed.certain)
            }
            None => None,
        };
        let mut found = trace(&mut reader, &row, place, usize::MAX, &log.clock)?;
        if !paths.is_empty() {
            found.fields.retain(|field| covered(&paths, &field.path));
            if found.fields.is_empty() {
                return Err(Failure::no(format!(
                    "{} has no {}; `decklog blame {named}` prints all that it has",
                    row.spell(),
                    self.paths.join(" or ")
                )));
            }
        }
        let mut actors: BTreeMap<u64, Option<Actor>> = BTreeMap::new();
        for field in found.fields.iter_mut().filter(|field| field.set == Set::At) {
            let Some(seq) = field.seq else { continue };
            field.actor = match actors.entry(seq) {
                Entry::Occupied(known) => known.get().clone(),
                Entry::Vacant(unknown) => unknown.insert(object::actor_of(&mut reader, Seq(seq))?).clone(),
            };
        }
        let gaps = found.gaps;
        let (coverage, uncovered) = if depends {
            let coverage = about.coverage(&mut reader, &log.dir, &log.clock)?;
            (coverage, about.covered(&mut reader, &log.dir, &log.clock)?.uncovered)
        } else {
            (Coverage::default(), Vec::new())
        };
        put(Blamed {
            api_version: row.resource.api_version(),
            kind: row.resource.kind,
            resource: row.resource.plural,
            namespace: row.namespace,
            name: row.name,
            uid: found.uid,
            gaps,
            fields: found.fields,
            object: found.object,
            uncovered,
        })?;
        if gaps > 0 {
            let gaps = plural(gaps as u64, "gap lies", "gaps lie");
            log.remark(&format!("{gaps} in this history; values that were set and set back there are not known"));
        }
        coverage.remark(log);
        Ok(())
    }
}
