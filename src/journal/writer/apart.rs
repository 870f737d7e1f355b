//! Journals that are set apart: entries that the shared log lacks are never dropped. The journal is copied to a file beside it
//! before it is built again, and an alarm names the entries that are in the copy alone.

use std::fs::{self, File, OpenOptions};
use std::path::PathBuf;

use rusqlite::{Connection, OptionalExtension, params};

use super::{Writer, changeset, sql};
use crate::core::os::OpenOptionsExt;
use crate::core::runtime;
use crate::core::shared_log::Base;
use crate::journal::JournalError;
use crate::journal::error::Result;
use crate::journal::shared::Apart;

/// Under which name it is kept what is set apart.
const FACT: &str = "apart";
const WHAT: &str = "set the journal apart";

/// Returns the journals that were set apart.
pub(super) fn noted(conn: &Connection) -> Result<Vec<Apart>> {
    let text = conn.query_row("SELECT value FROM meta WHERE key = ?", [FACT], |row| row.get::<_, String>(0)).optional();
    Ok(text.map_err(sql(WHAT))?.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default())
}

impl Writer {
    fn note_apart(&mut self, all: Vec<Apart>) -> Result {
        let text = serde_json::to_string(&all).expect("texts and numbers always serialise");
        let noted = self.disk.conn.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", params![FACT, text]);
        noted.map_err(sql(WHAT))?;
        if let Some(link) = &mut self.link {
            changeset::forget(&self.disk.conn, &link.tables)?;
            link.change(|state| state.apart = all);
        }
        Ok(())
    }

    /// Copies the journal as it is, where it has something, before it is built again from this base. What becomes of the copy
    /// is decided when the shared log is read to its end.
    pub(super) fn set_apart(&mut self, base: Base) -> Result {
        let Some(link) = &self.link else { return Ok(()) };
        if link.place.number == 0 || self.committed.head == 0 {
            return Ok(());
        }
        // What is behind a base that is further on may be all in it.
        let is_beyond = base.number <= link.place.number;
        let at = runtime::now().strftime("%Y%m%dT%H%M%SZ").to_string();
        let failed = |path: &PathBuf| {
            let what = format!("cannot keep what the shared log lacks in {}", path.display());
            move |source| JournalError::Io { what, source }
        };
        let path = (1_u64..)
            .map(|number| if number == 1 { at.clone() } else { format!("{at}-{number}") })
            .map(|at| self.dir.join(format!("journal.db.set-apart-{at}")))
            .find(|path| !path.exists())
            .expect("some name is free");
        // Nobody else reads it, also while it is written.
        let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        made.map_err(failed(&path))?;
        let copied = self.disk.conn.execute("VACUUM INTO ?", [path.to_string_lossy()]).map_err(sql(WHAT));
        let durable = || File::open(&path)?.sync_all().and_then(|()| File::open(&self.dir)?.sync_all());
        if let Err(error) = copied.and_then(|_| durable().map_err(failed(&path))) {
            // Nothing of the journal has gone yet.
            fs::remove_file(&path).ok();
            return Err(error);
        }
        tracing::warn!(
            "the journal as it was is kept in {} until it is known what the shared log has of it",
            path.display()
        );
        let (epoch, last) = (self.committed.epoch.clone(), self.committed.head);
        let mut all = noted(&self.disk.conn)?;
        all.push(Apart { file: path, epoch, first: 0, last, shared: None, is_beyond });
        self.note_apart(all)
    }

    /// The shared log is read to its end: what it has of the journals that were set apart is known now. One that has nothing of
    /// its own goes.
    pub(super) fn judge_apart(&mut self) -> Result {
        let Some(link) = &self.link else { return Ok(()) };
        if link.state.borrow().apart.iter().all(|apart| apart.shared.is_some()) {
            return Ok(());
        }
        let mut all = Vec::new();
        for mut apart in noted(&self.disk.conn)? {
            if apart.shared.is_none() && apart.file.exists() {
                let both = self.last_in_both(&apart)?;
                let (head, start) = (self.committed.head, self.committed.log_start);
                let is_unknown = both == 0 && start > apart.last && !apart.is_beyond;
                if both == apart.last || is_unknown {
                    fs::remove_file(&apart.file).ok();
                    continue;
                }
                (apart.first, apart.shared) = (both + 1, Some(head));
                tracing::error!("{}", apart.sentence());
            }
            all.push(apart);
        }
        self.note_apart(all)
    }

    /// The newest entry that the journal and the one that was set apart both have.
    fn last_in_both(&self, apart: &Apart) -> Result<u64> {
        let conn = &self.disk.conn;
        conn.execute("ATTACH ? AS apart", [apart.file.to_string_lossy()]).map_err(sql(WHAT))?;
        let found = conn
            .query_row(
                "SELECT own.seq FROM main.entry own JOIN apart.entry other ON other.seq = own.seq
                 WHERE other.time = own.time AND other.type = own.type ORDER BY own.seq DESC LIMIT 1",
                [],
                |row| row.get(0),
            )
            .optional()
            .map_err(sql(WHAT));
        conn.execute_batch("DETACH apart").map_err(sql(WHAT))?;
        Ok(found?.unwrap_or_default())
    }
}
