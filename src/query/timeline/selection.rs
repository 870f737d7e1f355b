//! Entries that a question of the timeline is about: as it is asked, and as the journal knows them.

use std::collections::{BTreeMap, HashMap, HashSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::core::filter::{Filter, FilterError};
use crate::core::k8s::audited::Actor;
use crate::core::model::{EntryType, Resource, Seq};
use crate::core::spelling::glob;
use crate::journal::{Reader, SourceRow, StoredEntry};
use crate::query::coverage::Scope;
use crate::query::render::names::{Named, Spellings};
use crate::query::render::{Failure, object};
use crate::query::select::Writers;

/// Entries of some objects in a stretch of time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Window {
    /// Resources and objects as kubectl spells them; all if there are none.
    pub(crate) objects: Vec<String>,
    /// Names of the namespaces; all if there are none.
    pub(crate) namespaces: Vec<String>,
    /// Types of the entries; all if there are none.
    pub(crate) types: Vec<EntryType>,
    /// Top-level parts of objects that a MODIFIED entry changed; all if there are none.
    pub(crate) areas: Vec<String>,
    /// Names of managers and users, with `*` for other characters, one of which wrote the entry; all if there are none.
    pub(crate) by: Vec<String>,
    /// First moment.
    pub(crate) since: Option<Timestamp>,
    /// Last moment.
    pub(crate) until: Option<Timestamp>,
    /// CEL expression over the entry.
    #[serde(rename = "where")]
    pub(crate) filter: Option<String>,
    /// Entries that change nothing that matters are asked for as well.
    pub(crate) quiet: bool,
}

impl Window {
    /// Resolves the names in this journal, and compiles the expression.
    ///
    /// # Errors
    /// Where the window names what the journal does not know, or makes no sense; about the key of the query that is wrong.
    pub(super) fn resolve(&self, reader: &Reader) -> Result<Selected, Failure> {
        let micros = |time: Option<Timestamp>| time.map(Timestamp::as_microsecond);
        let (since, until) = (micros(self.since), micros(self.until));
        if since.zip(until).is_some_and(|(since, until)| since > until) {
            return Err(Failure::usage("since is after until; swap them").about("since"));
        }
        let wrong = |error| Failure::usage(format!("where: {error}")).about("where");
        let filter = self.filter.as_deref().map(Filter::compile).transpose().map_err(wrong)?;
        let namespaces = self.namespaces.clone();
        object::namespaces(reader, &namespaces).map_err(|failure| failure.about("namespace"))?;
        let named = spelled(reader, &self.objects)?;
        let (objects, sources) = rows(reader, &named, &namespaces)?;
        let (types, areas) = (self.types.clone(), self.areas.clone());
        let of_kinds = |one: &Named| {
            let kinds = one.resources.iter().map(|(_, resource)| (resource.full_name(), one.name.clone()));
            kinds.collect::<Vec<_>>()
        };
        let named = named.iter().flat_map(of_kinds).collect();
        let (quiet, by) = (self.quiet, Writers::of(&self.by));
        Ok(Selected { since, until, objects, sources, namespaces, named, types, areas, by, filter, quiet })
    }

    /// Checks that nothing but objects is selected, for a question that is about whole objects.
    ///
    /// # Errors
    /// Exit 64 about the first key that would not count.
    pub(super) fn of_whole_objects(&self, question: &str) -> Result<(), Failure> {
        let given = [
            ("type", !self.types.is_empty()),
            ("area", !self.areas.is_empty()),
            ("by", !self.by.is_empty()),
            ("where", self.filter.is_some()),
            ("quiet", self.quiet),
            ("since", self.since.is_some()),
            ("until", self.until.is_some()),
        ];
        match given.iter().find(|(_, is_given)| *is_given) {
            Some((key, _)) => {
                Err(Failure::usage(format!("{question} is of whole objects; leave {key} out")).about(key))
            }
            None => Ok(()),
        }
    }
}

/// Senders of the changes from one seq to another, by seq.
///
/// # Errors
/// Where the journal cannot be read.
pub(super) fn senders(reader: &mut Reader, from: Seq, to: Seq) -> Result<HashMap<u64, Actor>, Failure> {
    let actors = reader.actors_between(from, to)?.into_iter();
    let read = |(of, stored): (Seq, StoredEntry)| Some((of.0, object::parse(&stored).ok()?.actor()?));
    Ok(actors.filter_map(read).collect())
}

/// Error for an entry for which an expression has no answer.
pub(super) fn no_answer(seq: Seq, error: &FilterError) -> Failure {
    Failure::usage(format!("where: no answer for entry {}, because {error}", seq.0)).about("where")
}

/// A window whose names are resolved in a journal.
#[derive(Debug)]
pub(crate) struct Selected {
    /// Not before, microseconds since 1970.
    pub(super) since: Option<i64>,
    /// Not after.
    pub(super) until: Option<i64>,
    /// The rows of the objects; all where there are none.
    pub(super) objects: Option<HashSet<i64>>,
    /// The rows of the sources whose gaps are meant; all where there are none.
    pub(super) sources: Option<HashSet<i64>>,
    /// The namespaces that are asked for; all where there are none.
    pub(super) namespaces: Vec<String>,
    /// The kinds and names that are asked for; all where there are none.
    named: Vec<(String, Option<String>)>,
    pub(super) types: Vec<EntryType>,
    pub(super) areas: Vec<String>,
    /// The managers and users one of which wrote an entry; all where there are none.
    pub(super) by: Option<Writers>,
    pub(super) filter: Option<Filter>,
    /// Entries that change nothing that matters are asked for as well.
    pub(super) quiet: bool,
}

impl Selected {
    /// Returns the sources and namespaces whose coverage matters.
    pub(super) fn scope(&self) -> Scope<'_> {
        Scope { sources: self.sources.as_ref(), namespaces: &self.namespaces }
    }

    /// Reports whether objects are named by their kinds, and not by their namespaces alone.
    pub(super) const fn by_kind(&self) -> bool {
        !self.named.is_empty()
    }

    /// Reports whether the selection asks for the senders of changes, and the journal has some, or that is not for who asks.
    ///
    /// # Errors
    /// Where the journal cannot be read.
    pub(super) fn asks_for_senders(&self, reader: &Reader) -> Result<bool, Failure> {
        let asks = self.by.is_some() || self.filter.as_ref().is_some_and(Filter::asks_for_sender);
        Ok(asks && (reader.is_narrowed() || reader.has_actors()?))
    }

    /// Reports whether an object is selected, also one that the journal has never recorded.
    pub(super) fn takes(&self, resource: &str, namespace: &str, name: &str) -> bool {
        let is_in = self.namespaces.is_empty()
            || self.namespaces.iter().any(|wanted| wanted == namespace)
            || namespace.is_empty() && self.by_kind();
        let fits = |pattern: &String| glob::fits(pattern, name, |wanted, byte| wanted == b'?' || wanted == byte);
        let is_named =
            |(kind, pattern): &(String, Option<String>)| kind == resource && pattern.as_ref().is_none_or(fits);
        is_in && (self.named.is_empty() || self.named.iter().any(is_named))
    }

    /// Reports whether the selection excludes entries of the selected objects.
    pub(super) const fn is_narrow(&self) -> bool {
        self.filter.is_some() || !self.types.is_empty() || !self.areas.is_empty() || self.by.is_some()
    }

    /// Reports whether the selection includes the entries of a source.
    pub(super) fn is_of(&self, source: &SourceRow) -> bool {
        self.sources.as_ref().is_none_or(|sources| sources.contains(&source.id.0))
    }

    /// Reports whether a stretch of time, given in microseconds since 1970, overlaps the window.
    pub(super) fn overlaps(&self, from: Option<i64>, to: i64) -> bool {
        self.since.is_none_or(|since| to >= since) && from.zip(self.until).is_none_or(|(from, until)| from <= until)
    }

    /// The seqs between which it lies in a log that ends with `head`: after the first, and up to the second.
    pub(super) fn bounds(&self, reader: &Reader, head: Seq) -> Result<(u64, u64), Failure> {
        let after = self.since.map_or(Ok(Seq(0)), |since| reader.last_before(since))?;
        let upto = match self.until {
            Some(until) => {
                let upto = reader.last_before(until.saturating_add(1))?;
                let late = reader.late()?.into_iter().filter(|late| late.since <= until).map(|late| late.last).max();
                upto.max(late.unwrap_or_default()).min(head)
            }
            None => head,
        };
        Ok((after.0, upto.0))
    }
}

/// Resolves the words of `what`.
fn spelled(reader: &Reader, what: &[String]) -> Result<Vec<Named>, Failure> {
    if what.is_empty() {
        return Ok(Vec::new());
    }
    let spellings = Spellings::load(reader)?;
    let read = |text: &String| spellings.read(text).map_err(|failure| failure.about("what"));
    what.iter().map(read).collect()
}

/// The rows of the objects that are named, in these namespaces, and those of the sources that bring them. What is named
/// and lives in no namespace is meant whatever the namespace, as kubectl has it.
type Rows = (Option<HashSet<i64>>, Option<HashSet<i64>>);

fn rows(reader: &Reader, named: &[Named], namespaces: &[String]) -> Result<Rows, Failure> {
    if named.is_empty() && namespaces.is_empty() {
        return Ok((None, None));
    }
    let mut wanted: Vec<(i64, &Resource, Option<&str>)> = Vec::new();
    let all = reader.resources()?;
    if named.is_empty() {
        wanted.extend(all.iter().map(|(id, resource)| (*id, resource, None)));
    }
    for one in named {
        wanted.extend(one.resources.iter().map(|(id, resource)| (*id, resource, one.name.as_deref())));
    }
    let (mut objects, mut resources) = (HashSet::new(), HashSet::new());
    for (id, resource, name) in wanted {
        resources.insert(resource.full_name());
        if namespaces.is_empty() || !resource.namespaced && !named.is_empty() {
            objects.extend(reader.rows_of(id, None, name)?);
        } else if resource.namespaced {
            for namespace in namespaces {
                objects.extend(reader.rows_of(id, Some(namespace), name)?);
            }
        }
    }
    let inside = |of: &str| namespaces.is_empty() || of.is_empty() || namespaces.iter().any(|known| known == of);
    let sources = reader.sources()?;
    let sources = sources
        .iter()
        .filter(|source| resources.contains(&source.resource.full_name()) && inside(&source.namespace))
        .map(|source| source.id.0)
        .collect();
    Ok((Some(objects), Some(sources)))
}

/// The resources of a journal, by their rows and by group and kind.
#[derive(Debug, Default)]
pub(super) struct Resources {
    kinds: BTreeMap<(String, String), Resource>,
}

impl Resources {
    pub(super) fn load(reader: &Reader) -> Result<Self, Failure> {
        let all = reader.resources()?.into_iter();
        let kinds = all.map(|(_, resource)| ((resource.group.clone(), resource.kind.clone()), resource)).collect();
        Ok(Self { kinds })
    }

    /// The resource of a kind.
    pub(super) fn of_kind(&self, group: &str, kind: &str) -> Option<&Resource> {
        self.kinds.get(&(group.to_owned(), kind.to_owned()))
    }
}

/// Returns the id of a lane: `deployments.apps/shop/web`.
pub(super) fn lane_id(resource: &str, namespace: &str, name: &str) -> String {
    format!("{resource}/{namespace}/{name}")
}
