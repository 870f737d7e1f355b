//! Readings of the API server's own request counters, kept for `churn --requests`.

use rusqlite::{OptionalExtension, params};

use super::{Transaction, micros, sql};
use crate::journal::RequestCounts;
use crate::journal::error::Result;

/// A stretch of time is cut at whole multiples of this, microseconds.
const STRETCH: i64 = 600_000_000;
/// Number of stretches that are kept: a week of them.
const STRETCHES: i64 = 1008;
/// Counts, in the place of a verb, the versions that `ignore` kept out of the log.
pub(in crate::journal) const SUPPRESSED: &str = "suppressed";

impl Transaction<'_> {
    /// Keeps what was read, or why nothing could be.
    pub(super) fn note_requests(&mut self, read: Result<&RequestCounts, &String>) -> Result {
        let what = "keep the API server's request counters";
        self.count_suppressed()?;
        let problem = read.err().map_or("", String::as_str);
        self.execute(what, "INSERT OR REPLACE INTO meta VALUES ('requests', ?)", params![problem])?;
        let Ok(counts) = read else { return Ok(()) };
        let (since, until) = (counts.since.map(micros), micros(counts.until));
        let newest: Option<(i64, i64, i64)> = self
            .conn
            .query_row("SELECT id, since, until FROM reading ORDER BY id DESC LIMIT 1", [], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?))
            })
            .optional()
            .map_err(sql(what))?;
        let continued = newest.filter(|(_, begun, end)| since == Some(*end) && begun / STRETCH == until / STRETCH);
        let stretch = match continued {
            Some((id, ..)) => {
                self.execute(what, "UPDATE reading SET until = ? WHERE id = ?", params![until, id])?;
                id
            }
            None => {
                let id = newest.map_or(0, |(id, ..)| id) + 1;
                let row = params![id, since.unwrap_or(until), until];
                self.execute(what, "INSERT INTO reading VALUES (?, ?, ?)", row)?;
                id
            }
        };
        for (group, plural, verb, count) in &counts.requests {
            for reading in [0, stretch] {
                self.execute(
                    what,
                    "INSERT INTO request SELECT ?1, id, ?2, ?3 FROM resource WHERE api_group = ?4 AND plural = ?5
                     ON CONFLICT DO UPDATE SET count = count + excluded.count",
                    params![reading, verb, count, group, plural],
                )?;
            }
        }
        if since.is_some() {
            self.execute(
                what,
                "INSERT INTO request
                 SELECT ?1, s.resource, ?2, sum(s.suppressed) - coalesce(t.count, 0) FROM source s
                 LEFT JOIN request t ON t.reading = 0 AND t.resource = s.resource AND t.verb = ?2
                 GROUP BY s.resource HAVING sum(s.suppressed) > coalesce(t.count, 0)
                 ON CONFLICT DO UPDATE SET count = count + excluded.count",
                params![stretch, SUPPRESSED],
            )?;
        }
        self.execute(
            what,
            "INSERT OR REPLACE INTO request SELECT 0, resource, ?, sum(suppressed) FROM source GROUP BY resource",
            params![SUPPRESSED],
        )?;
        let oldest = stretch - STRETCHES;
        self.execute(what, "DELETE FROM reading WHERE id <= ?", params![oldest])?;
        self.execute(what, "DELETE FROM request WHERE reading > 0 AND reading <= ?", params![oldest])?;
        Ok(())
    }
}
