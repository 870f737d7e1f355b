//! Queries: their keys are the flags of the commands.

use std::collections::{BTreeMap, HashSet};

use jiff::Timestamp;

use super::answer::Problem;
use crate::filter::Filter;
use crate::journal::{Reader, SourceRow};
use crate::model::{EntryType, Resource, Seq};
use crate::query::coverage::Scope;
use crate::spelling::nearest;
use crate::words::clock::Clock;
use crate::words::names::{Named, Spellings};
use crate::words::object;

/// A query has at most so many bytes, and so many keys.
const MOST_BYTES: usize = 8 << 10;
const MOST_KEYS: usize = 200;

/// The keys of a query with their values, in their order.
#[derive(Clone, Debug, Default)]
pub(super) struct Query(Vec<(String, String)>);

/// Every key that there is.
const KEYS: [&str; 25] = [
    "what",
    "namespace",
    "type",
    "area",
    "where",
    "since",
    "until",
    "quiet",
    "buckets",
    "lanes",
    "marks",
    "before",
    "after",
    "limit",
    "seq",
    "from",
    "to",
    "resource",
    "name",
    "at",
    "cluster",
    "token",
    "top",
    "v",
    "_",
];

impl Query {
    /// Reads what stands behind the question mark.
    ///
    /// # Errors
    /// Where it is too long, or has a key that means nothing.
    pub(super) fn read(text: &str) -> Result<Self, Problem> {
        if text.len() > MOST_BYTES {
            return Err(Problem::wrong(
                "where",
                format!("the query is longer than {MOST_BYTES} bytes; ask for less at once"),
            ));
        }
        let decoded = |text: &str| {
            let text = text.replace('+', " ");
            percent_encoding::percent_decode_str(&text).decode_utf8_lossy().into_owned()
        };
        let pairs: Vec<(String, String)> = text
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
            .map(|(key, value)| (decoded(key), decoded(value)))
            .collect();
        if pairs.len() > MOST_KEYS {
            return Err(Problem::wrong(
                "what",
                format!("the query has more than {MOST_KEYS} keys; ask for less at once"),
            ));
        }
        if let Some((key, _)) = pairs.iter().find(|(key, _)| !KEYS.contains(&key.as_str())) {
            let near = nearest(key, KEYS).map_or_else(String::new, |near| format!("; did you mean {near}?"));
            let shown: String = key.chars().take(64).collect();
            return Err(Problem::missing(format!("there is no query key {shown:?}{near}")));
        }
        Ok(Self(pairs))
    }

    /// Creates the query of a command, which has no limits.
    pub(super) fn of(pairs: Vec<(&'static str, String)>) -> Self {
        Self(pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
    }

    /// The value of a key; nothing where it is empty.
    pub(super) fn one(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(known, value)| known == key && !value.is_empty()).map(|(_, value)| value.as_str())
    }

    fn all<'q>(&'q self, key: &'q str) -> impl Iterator<Item = &'q str> {
        let values = self.0.iter().filter(move |(known, _)| known == key).map(|(_, value)| value.as_str());
        values.flat_map(|value| value.split(',')).map(str::trim).filter(|value| !value.is_empty())
    }

    /// Reports whether a flag is set.
    pub(super) fn is_on(&self, key: &str) -> bool {
        self.one(key).is_some_and(|value| !["0", "false", "no"].contains(&value))
    }

    /// A number, which is within these bounds.
    ///
    /// # Errors
    /// Where it is none.
    pub(super) fn number(&self, key: &'static str, otherwise: usize, most: usize) -> Result<usize, Problem> {
        let Some(text) = self.one(key) else { return Ok(otherwise) };
        match text.parse::<usize>() {
            Ok(number) if number > 0 => Ok(number.min(most)),
            _ => Err(Problem::wrong(key, format!("{key}: expected a number from 1 to {most}"))),
        }
    }

    /// A seq.
    ///
    /// # Errors
    /// Where it is none.
    pub(super) fn seq(&self, key: &'static str) -> Result<Option<Seq>, Problem> {
        let Some(text) = self.one(key) else { return Ok(None) };
        let seq = text.parse::<u64>().ok().filter(|seq| *seq <= i64::MAX.cast_unsigned());
        seq.map(|seq| Some(Seq(seq))).ok_or_else(|| Problem::wrong(key, format!("{key}: expected a seq such as 1234")))
    }

    /// A moment.
    ///
    /// # Errors
    /// Where it is none.
    pub(super) fn moment(&self, key: &'static str, clock: &Clock) -> Result<Option<Timestamp>, Problem> {
        let Some(text) = self.one(key) else { return Ok(None) };
        let read = clock.read(text).map_err(|expected| Problem::wrong(key, format!("{key}: {expected}")))?;
        Ok(Some(read.time))
    }
}

/// Selection of entries.
#[derive(Debug)]
pub(crate) struct Asked {
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
    /// Objects are named by their kinds, and not by their namespaces alone.
    pub(super) by_kind: bool,
    pub(super) types: Vec<EntryType>,
    pub(super) areas: Vec<String>,
    pub(super) filter: Option<Filter>,
    /// Entries that change nothing that matters are asked for as well.
    pub(super) quiet: bool,
}

impl Asked {
    /// Resolves a query in this journal.
    ///
    /// # Errors
    /// Where it names what the journal does not know, or makes no sense.
    pub(super) fn read(query: &Query, reader: &Reader, clock: &Clock) -> Result<Self, Problem> {
        let since = query.moment("since", clock)?.map(Timestamp::as_microsecond);
        let until = query.moment("until", clock)?.map(Timestamp::as_microsecond);
        if since.zip(until).is_some_and(|(since, until)| since > until) {
            return Err(Problem::wrong("since", "since is after until; swap them"));
        }
        let mut types = Vec::new();
        for word in query.all("type") {
            types.push(
                EntryType::parse(&word.to_ascii_uppercase())
                    .ok_or_else(|| Problem::wrong("type", "type: expected ADDED, MODIFIED, DELETED or GAP"))?,
            );
        }
        let filter = match query.one("where") {
            Some(text) => {
                Some(Filter::compile(text).map_err(|error| Problem::wrong("where", format!("where: {error}")))?)
            }
            None => None,
        };
        let namespaces: Vec<String> = query.all("namespace").map(str::to_owned).collect();
        object::namespaces(reader, &namespaces).map_err(|failure| Problem::from(failure).of("namespace"))?;
        let what: Vec<&str> = query.all("what").collect();
        let named = spelled(reader, &what)?;
        let (objects, sources) = rows(reader, &named, &namespaces)?;
        let areas = query.all("area").map(str::to_owned).collect();
        let (by_kind, quiet) = (!named.is_empty(), query.is_on("quiet"));
        Ok(Self { since, until, objects, sources, namespaces, by_kind, types, areas, filter, quiet })
    }

    /// Returns the sources and namespaces whose coverage matters.
    pub(super) fn scope(&self) -> Scope<'_> {
        Scope { sources: self.sources.as_ref(), namespaces: &self.namespaces }
    }

    /// Reports whether the selection excludes entries of the selected objects.
    pub(super) const fn is_narrow(&self) -> bool {
        self.filter.is_some() || !self.types.is_empty() || !self.areas.is_empty()
    }

    /// Reports whether the selection includes the entries of a source.
    pub(super) fn is_of(&self, source: &SourceRow) -> bool {
        self.sources.as_ref().is_none_or(|sources| sources.contains(&source.id.0))
    }

    /// The seqs between which it lies in a log that ends with `head`: after the first, and up to the second.
    pub(super) fn bounds(&self, reader: &Reader, head: Seq) -> Result<(u64, u64), Problem> {
        let after = self.since.map_or(Ok(Seq(0)), |since| reader.last_before(since))?;
        let upto = match self.until {
            Some(until) => reader.last_before(until.saturating_add(1))?.min(head),
            None => head,
        };
        Ok((after.0, upto.0))
    }
}

/// Resolves the words of `what`.
fn spelled(reader: &Reader, what: &[&str]) -> Result<Vec<Named>, Problem> {
    if what.is_empty() {
        return Ok(Vec::new());
    }
    let spellings = Spellings::load(reader)?;
    let read = |text: &&str| spellings.read(text).map_err(|failure| Problem::from(failure).of("what"));
    what.iter().map(read).collect()
}

/// The rows of the objects that are named, in these namespaces, and those of the sources that bring them. What is named
/// and lives in no namespace is meant whatever the namespace, as kubectl has it.
type Rows = (Option<HashSet<i64>>, Option<HashSet<i64>>);

fn rows(reader: &Reader, named: &[Named], namespaces: &[String]) -> Result<Rows, Problem> {
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
    pub(super) fn load(reader: &Reader) -> Result<Self, Problem> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_read_as_browsers_write_it() {
        let query = Query::read("what=deploy%2Fweb&what=pods,nodes&where=a+%3D%3D+1&quiet=1&limit=7&since=").unwrap();
        assert_eq!(query.all("what").collect::<Vec<_>>(), ["deploy/web", "pods", "nodes"]);
        assert_eq!(query.one("where"), Some("a == 1"));
        assert!(query.is_on("quiet") && query.is_on("limit") && query.one("since").is_none());
        assert_eq!(query.number("limit", 200, 5).unwrap(), 5);
        assert_eq!(query.number("marks", 200, 5).unwrap(), 200);
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_what_would() {
        let problem = Query::read("namespac=shop").unwrap_err();
        assert!(problem.text.contains("did you mean namespace?"), "{problem:?}");
        for limit in ["0", "-1", "x", "99999999999999999999999"] {
            assert!(Query::read(&format!("limit={limit}")).unwrap().number("limit", 1, 5).is_err(), "{limit}");
        }
        assert!(Query::read(&"x".repeat(MOST_BYTES + 1)).is_err());
        // Nothing is left out in silence.
        assert!(Query::read(&"what=po&".repeat(MOST_KEYS)).is_ok());
        let problem = Query::read(&"what=po&".repeat(MOST_KEYS + 1)).unwrap_err();
        assert!(problem.text.contains("more than 200 keys"), "{problem:?}");
        assert!(Query::read("seq=9223372036854775808").unwrap().seq("seq").is_err());
        // Bytes that are no text are shown as such, and do no harm.
        assert_eq!(Query::read("name=%ff%00").unwrap().one("name"), Some("\u{fffd}\0"));
    }
}
