//! Readings of the API server's own request counters.

use std::collections::BTreeMap;
use std::time::Duration;

use rusqlite::params;

use super::{Reader, resource_of, sql};
use crate::journal::error::Result;
use crate::journal::writer::SUPPRESSED;

/// Interval at which the request counters of the API server are read into the journal.
pub const REQUEST_COUNTERS_INTERVAL: Duration = Duration::from_secs(20);

/// Readings of the API server's own request counters over some time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// Stretches of time over which they were read without a break, in order; microseconds since 1970.
    pub stretches: Vec<(i64, i64)>,
    /// Requests that were granted, by resource (`deployments.apps`) and verb.
    pub counts: BTreeMap<String, BTreeMap<String, u64>>,
    /// Versions that `ignore` kept out of the log in these stretches, by resource.
    pub suppressed: BTreeMap<String, u64>,
    /// Error of the last reading.
    pub problem: Option<String>,
}

impl Reader {
    /// Returns the counts of the stretches that overlap a time, in microseconds since 1970.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn requests(&mut self, since: i64, until: i64) -> Result<Requests> {
        let what = "request counters";
        self.moment(|reader| {
            let problem = Some(reader.meta("requests")?).filter(|problem| !problem.is_empty());
            let mut select = reader
                .conn
                .prepare_cached("SELECT since, until FROM reading WHERE until > ?1 AND since < ?2 ORDER BY id")
                .map_err(sql(what))?;
            let rows =
                select.query_map(params![since, until], |row| Ok((row.get(0)?, row.get(1)?))).map_err(sql(what))?;
            let stretches = rows.collect::<Result<_, _>>().map_err(sql(what))?;
            let mut requests = Requests { stretches, problem, ..Requests::default() };
            reader.count(
                "reading IN (SELECT id FROM reading WHERE until > ?1 AND since < ?2)",
                params![since, until],
                &mut requests,
            )?;
            Ok(requests)
        })
    }

    /// Returns the counts over the life of the journal, without stretches.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn request_totals(&self) -> Result<Requests> {
        let problem = Some(self.meta("requests")?).filter(|problem| !problem.is_empty());
        let mut requests = Requests { problem, ..Requests::default() };
        self.count("reading = 0", [], &mut requests)?;
        Ok(requests)
    }

    fn count(&self, wanted: &str, values: impl rusqlite::Params, requests: &mut Requests) -> Result {
        let what = "request counters";
        let mut select = self
            .conn
            .prepare_cached(&format!(
                "SELECT r.facts, q.verb, sum(q.count) FROM request q JOIN resource r ON r.id = q.resource
                 WHERE {wanted} GROUP BY q.resource, q.verb"
            ))
            .map_err(sql(what))?;
        let mut rows = select.query(values).map_err(sql(what))?;
        while let Some(row) = rows.next().map_err(sql(what))? {
            let facts: String = row.get(0).map_err(sql(what))?;
            let (verb, count): (String, u64) = (row.get(1).map_err(sql(what))?, row.get(2).map_err(sql(what))?);
            let name = resource_of(&facts).full_name();
            if verb == SUPPRESSED {
                requests.suppressed.insert(name, count);
            } else {
                requests.counts.entry(name).or_default().insert(verb, count);
            }
        }
        Ok(())
    }
}
