//! Requests of the audit logs that wrote nothing, counted by hour and sender, in the transaction that says what became of them.
//!
//! # Decision: what wrote nothing is counted by hour
//!
//! Context: A careless controller sends thousands of requests a minute that change nothing, and each row outlives its request.
//! Decision: One row holds an hour, a sender, a verb and a resource: 2,000 rows an hour, 100,000 in all, and no longer
//! than the log. A request is marked as counted where it is kept, so that a restart, which reads it again, does not count it again.
//! Cost: A span is answered in whole hours.

use rusqlite::params;

use super::{Transaction, sql};
use crate::journal::error::Result;
use crate::journal::{HOUR, OTHER_SENDERS, REQUESTS_MAX, Unwritten};

const COUNT: &str = "count a request that wrote nothing";
/// Number of rows of an hour, beside those of the others.
const SENDERS_MAX: i64 = if cfg!(test) { 8 } else { 2000 };
/// Number of rows of all hours, about; the oldest hours go first.
const ROWS_MAX: i64 = if cfg!(test) { 20 } else { 100_000 };

impl Transaction<'_> {
    /// Counts requests that were refused. One that came before counts once.
    pub(super) fn count_refused(&mut self, refused: &[Unwritten]) -> Result {
        for request in refused {
            let row = params![request.key, request.completed];
            if self.execute(COUNT, "INSERT OR IGNORE INTO audited_refused VALUES (?, ?)", row)? > 0 {
                self.count_unwritten(request)?;
            }
        }
        if !refused.is_empty() {
            self.execute(
                COUNT,
                "DELETE FROM audited_refused WHERE completed <=
                     (SELECT completed FROM audited_refused ORDER BY completed DESC LIMIT 1 OFFSET ?)",
                params![REQUESTS_MAX],
            )?;
        }
        Ok(())
    }

    /// Forgets refused requests that were answered before this time, microseconds since 1970: they do not come again.
    pub(super) fn forget_refused(&self, before: i64) -> Result {
        self.execute(COUNT, "DELETE FROM audited_refused WHERE completed < ?", params![before])?;
        Ok(())
    }

    /// Counts requests that changed nothing, but those that are counted.
    pub(super) fn count_wasted(&mut self, wasted: &[Unwritten]) -> Result {
        for request in wasted {
            let kept: bool = self
                .conn
                .prepare_cached("SELECT EXISTS (SELECT 1 FROM audited WHERE key = ?)")
                .and_then(|mut select| select.query_row([&request.key], |row| row.get(0)))
                .map_err(sql(COUNT))?;
            let marked =
                self.execute(COUNT, "UPDATE audited SET counted = 1 WHERE key = ? AND counted = 0", [&request.key])?;
            // What is not kept any more is not read again.
            if marked > 0 || !kept {
                self.count_unwritten(request)?;
            }
        }
        Ok(())
    }

    fn count_unwritten(&self, request: &Unwritten) -> Result {
        let hour = request.completed - request.completed.rem_euclid(HOUR);
        let agent = request.agent.split(' ').next().unwrap_or_default();
        let Unwritten { kind, user, verb, group, resource, subresource, namespace, name, completed, .. } = request;
        let counted = self.execute(
            COUNT,
            "UPDATE unwritten SET count = count + 1, first = min(first, ?9), last = max(last, ?9),
                 namespace = iif(?9 >= last, ?10, namespace), name = iif(?9 >= last, ?11, name)
             WHERE hour = ?1 AND kind = ?2 AND user = ?3 AND agent = ?4 AND verb = ?5 AND api_group = ?6 AND plural = ?7
                 AND subresource = ?8",
            params![hour, kind.code(), user, agent, verb, group, resource, subresource, completed, namespace, name],
        )?;
        if counted > 0 {
            return Ok(());
        }
        let senders: i64 = self
            .conn
            .prepare_cached("SELECT count(*) FROM unwritten WHERE hour = ?")
            .and_then(|mut select| select.query_row([hour], |row| row.get(0)))
            .map_err(sql(COUNT))?;
        if senders == 0 {
            self.execute(
                COUNT,
                "DELETE FROM unwritten WHERE hour <= (SELECT hour FROM unwritten ORDER BY hour DESC LIMIT 1 OFFSET ?)",
                params![ROWS_MAX],
            )?;
        }
        let all = [user.as_str(), agent, verb, group, resource, subresource, namespace, name];
        let others = [OTHER_SENDERS, "", "", "", "", "", "", ""];
        let [user, agent, verb, group, resource, subresource, namespace, name] =
            if senders < SENDERS_MAX { all } else { others };
        self.execute(
            COUNT,
            "INSERT INTO unwritten VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 1, ?9, ?9, ?10, ?11)
             ON CONFLICT DO UPDATE SET count = count + 1, first = min(first, ?9), last = max(last, ?9)",
            params![hour, kind.code(), user, agent, verb, group, resource, subresource, completed, namespace, name],
        )?;
        Ok(())
    }

    /// Forgets hours that ended before the log begins.
    pub(super) fn forget_unwritten(&self, log_start: u64) -> Result {
        self.execute(
            COUNT,
            "DELETE FROM unwritten WHERE hour <= (SELECT time FROM entry WHERE seq = ?2) - ?1",
            params![HOUR, log_start],
        )?;
        Ok(())
    }
}
