//! Queries: their keys are the flags of the commands.

use axum::extract::Query as Pairs;
use axum::http::Uri;
use jiff::Timestamp;

use super::answer::Problem;
use crate::core::model::{EntryType, Seq};
use crate::core::spelling::nearest;
use crate::query::render::clock::Clock;
use crate::query::render::names::At;
use crate::query::timeline::order::Order;
use crate::query::timeline::selection::Window;

/// A query has at most so many bytes, and so many keys.
const MOST_BYTES: usize = 8 << 10;
const MOST_KEYS: usize = 200;

/// The keys of a query with their values, in their order.
#[derive(Clone, Debug, Default)]
pub(super) struct Query(Vec<(String, String)>);

/// Every key that there is.
const KEYS: [&str; 27] = [
    "what",
    "namespace",
    "type",
    "area",
    "by",
    "where",
    "since",
    "until",
    "quiet",
    "buckets",
    "order",
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
    pub(super) fn read(uri: &Uri) -> Result<Self, Problem> {
        if uri.query().is_some_and(|text| text.len() > MOST_BYTES) {
            return Err(Problem::wrong(
                "where",
                format!("the query is longer than {MOST_BYTES} bytes; ask for less at once"),
            ));
        }
        let pairs = Pairs::<Vec<(String, String)>>::try_from_uri(uri);
        let Pairs(pairs) =
            pairs.map_err(|error| Problem::wrong("what", format!("the query cannot be read: {error}")))?;
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

    /// The order of lanes.
    ///
    /// # Errors
    /// Where it is none.
    pub(super) fn order(&self) -> Result<Order, Problem> {
        let Some(word) = self.one("order") else { return Ok(Order::default()) };
        Order::parse(word).ok_or_else(|| Problem::wrong("order", "order: expected causes or names"))
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

    /// A place in the log: a seq or a moment.
    ///
    /// # Errors
    /// Where it is none.
    pub(super) fn place(&self, key: &'static str, clock: &Clock) -> Result<Option<At>, Problem> {
        let Some(text) = self.one(key) else { return Ok(None) };
        Ok(match text.bytes().all(|byte| byte.is_ascii_digit()) {
            true => self.seq(key)?.map(At::Seq),
            false => self.moment(key, clock)?.map(At::Time),
        })
    }

    /// The window of the query.
    ///
    /// # Errors
    /// Where a moment or a type is none.
    pub(super) fn window(&self, clock: &Clock) -> Result<Window, Problem> {
        let all = |key| self.all(key).map(str::to_owned).collect();
        let kind = |word: &str| {
            EntryType::parse(&word.to_ascii_uppercase())
                .ok_or_else(|| Problem::wrong("type", "type: expected ADDED, MODIFIED, DELETED, GAP or ACTOR"))
        };
        Ok(Window {
            objects: all("what"),
            namespaces: all("namespace"),
            types: self.all("type").map(kind).collect::<Result<_, _>>()?,
            areas: all("area"),
            by: all("by"),
            since: self.moment("since", clock)?,
            until: self.moment("until", clock)?,
            filter: self.one("where").map(str::to_owned),
            quiet: self.is_on("quiet"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(text: &str) -> Result<Query, Problem> {
        Query::read(&format!("/?{text}").parse().unwrap())
    }

    #[test]
    fn a_query_is_read_as_browsers_write_it() {
        let read = query("what=deploy%2Fweb&what=pods,nodes&where=a+%3D%3D+1&quiet=1&limit=7&since=").unwrap();
        assert_eq!(read.all("what").collect::<Vec<_>>(), ["deploy/web", "pods", "nodes"]);
        assert_eq!(read.one("where"), Some("a == 1"));
        assert!(read.is_on("quiet") && read.is_on("limit") && read.one("since").is_none());
        assert_eq!(read.number("limit", 200, 5).unwrap(), 5);
        assert_eq!(read.number("marks", 200, 5).unwrap(), 200);
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_what_would() {
        let problem = query("namespac=shop").unwrap_err();
        assert!(problem.text.contains("did you mean namespace?"), "{problem:?}");
        for limit in ["0", "-1", "x", "99999999999999999999999"] {
            assert!(query(&format!("limit={limit}")).unwrap().number("limit", 1, 5).is_err(), "{limit}");
        }
        assert!(query(&"x".repeat(MOST_BYTES + 1)).is_err());
        assert_eq!(query("order=names").unwrap().order().ok(), Some(Order::Names));
        assert_eq!(query("").unwrap().order().ok(), Some(Order::Causes));
        let problem = query("order=name").unwrap().order().unwrap_err();
        assert_eq!(problem.text, "order: expected causes or names");
        // Nothing is left out in silence.
        assert!(query(&"what=po&".repeat(MOST_KEYS)).is_ok());
        let problem = query(&"what=po&".repeat(MOST_KEYS + 1)).unwrap_err();
        assert!(problem.text.contains("more than 200 keys"), "{problem:?}");
        assert!(query("seq=9223372036854775808").unwrap().seq("seq").is_err());
        // Bytes that are no text are shown as such, and do no harm.
        assert_eq!(query("name=%ff%00").unwrap().one("name"), Some("\u{fffd}\0"));
    }
}
