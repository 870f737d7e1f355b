//! Registration of the cluster, the redaction rules, sources and sinks, each with its state in the journal.

use std::sync::Arc;

use rusqlite::{OptionalExtension, params};

use super::transaction::{Rules, Source, Watched};
use super::{Transaction, sql};
use crate::core::change::redact::Redactor;
use crate::core::change::{Ignore, Noise};
use crate::core::model::{Checkpoint, Cluster, Resource, ResourceVersion, Seq, SourceSpec, Why};
use crate::core::spelling::Text;
use crate::journal::error::Result;
use crate::journal::schema::OF_SOURCE;
use crate::journal::{JournalError, SinkStart, SourceId, SourceMemory};

/// Returns the noise of a resource from the texts of `ignore` that the journal keeps. A text of another version of decklog that
/// this one cannot read matches nothing.
fn noise(texts: &[String], resource: &Resource) -> Noise {
    let ignore: Vec<Ignore> = texts.iter().filter_map(|text| Ignore::read(text).ok()).collect();
    Noise::new(&ignore, &resource.full_name())
}

impl Transaction<'_> {
    /// The inner error: the journal is of another cluster.
    pub(super) fn join_cluster(&mut self, cluster: Cluster) -> Result<Result> {
        let ours = self.cluster().uid.clone();
        if !ours.is_empty() && !cluster.uid.is_empty() && ours != cluster.uid {
            return Ok(Err(JournalError::OtherCluster { ours, theirs: cluster.uid }));
        }
        self.begin()?;
        let cluster = Cluster { uid: if cluster.uid.is_empty() { ours } else { cluster.uid }, ..cluster };
        for (key, value) in [("cluster_name", &cluster.name), ("cluster_uid", &cluster.uid)] {
            self.execute("write its cluster", "INSERT OR REPLACE INTO meta VALUES (?, ?)", params![key, value])?;
        }
        self.set_cluster(cluster);
        Ok(Ok(()))
    }

    /// Other rules than before concern everything that was written until now, whenever it is emitted again.
    pub(super) fn set_redaction(&mut self, redactor: Arc<Redactor>) -> Result {
        let rules = redactor.fingerprint();
        let stored: Option<String> = self
            .conn
            .query_row("SELECT value FROM meta WHERE key = 'redaction'", [], |row| row.get(0))
            .optional()
            .map_err(sql("read the rules of redaction"))?;
        let known = stored.as_deref().and_then(|text| text.split_once(' ')).filter(|(name, _)| *name == rules);
        let since = known.and_then(|(_, since)| since.parse().ok());
        if since.is_none() {
            self.begin()?;
            let value = format!("{rules} {}", self.changes.head);
            let what = "note the rules of redaction";
            self.execute(what, "INSERT OR REPLACE INTO meta VALUES ('redaction', ?)", params![value])?;
        }
        self.changes.redacted_anew |= since.is_none() && self.rules().is_some();
        self.changes.rules = Some(Rules { redactor, since: since.unwrap_or(self.changes.head) });
        Ok(())
    }

    pub(super) fn resource_id(&mut self, resource: &Resource) -> Result<i64> {
        let facts = serde_json::to_string(resource).expect("plain strings always serialise");
        let what = "remember a resource";
        // Where a kind changes, sources may still write under the one before: no seq parts the two.
        self.execute(
            what,
            "INSERT INTO resource (api_group, plural, facts) VALUES (?1, ?2, ?3)
             ON CONFLICT (api_group, plural) DO UPDATE SET facts = ?3,
                 kind_since = CASE WHEN facts ->> 'kind' = ?4 THEN kind_since ELSE ?5 END
             WHERE facts <> ?3",
            params![resource.group, resource.plural, facts, resource.kind, i64::MAX],
        )?;
        self.conn
            .prepare_cached("SELECT id FROM resource WHERE api_group = ? AND plural = ?")
            .and_then(|mut select| select.query_row(params![resource.group, resource.plural], |row| row.get(0)))
            .map_err(sql(what))
    }

    /// Reports whether something of this scope is known already, through a source of another one, which may have known that there
    /// was nothing: then this is no first list.
    fn inherits(&self, resource: i64, namespace: &str, id: i64) -> Result<bool> {
        let inherited = self.conn.query_row(
            &format!(
                "SELECT EXISTS (SELECT 1 FROM source s JOIN object o ON {OF_SOURCE} AND o.present = 1 WHERE s.id = ?3)
                 OR EXISTS (SELECT 1 FROM source WHERE resource = ?1 AND id <> ?3 AND (namespace = '' OR ?2 = '')
                     AND given_up IS NOT NULL)"
            ),
            params![resource, namespace, id],
            |row| row.get(0),
        );
        inherited.map_err(sql("register a source"))
    }

    pub(super) fn register(&mut self, spec: &SourceSpec) -> Result<(SourceId, SourceMemory)> {
        let what = "register a source";
        // It may be registered again while this very transaction moves it on.
        self.write_checkpoints()?;
        let resource = self.resource_id(&spec.resource)?;
        let namespace = spec.namespace.clone().unwrap_or_default();
        let fields = spec.fields(|_| true);
        self.execute(
            what,
            "INSERT OR IGNORE INTO source (resource, namespace, label_selector, field_selector) VALUES (?, ?, ?, ?)",
            params![resource, namespace, spec.label_selector, fields],
        )?;
        let id: i64 = self
            .conn
            .query_row(
                "SELECT id FROM source WHERE resource = ? AND namespace = ?",
                params![resource, namespace],
                |row| row.get(0),
            )
            .map_err(sql(what))?;
        // Another selector is another scope: the old position says nothing about it.
        self.execute(
            what,
            "UPDATE source SET scope_changed = (resume IS NOT NULL OR scope_changed), given_up = coalesce(resume, given_up), resume = NULL,
                 label_selector = ?2, field_selector = ?3
             WHERE id = ?1 AND (label_selector <> ?2 OR field_selector <> ?3)",
            params![id, spec.label_selector, fields],
        )?;
        // Behind a list of an older version a position is known while the rest is recovered, so that a crash leaves a source that
        // resumes: what was recovered until then belongs to no gap that comes later.
        self.execute(
            what,
            "UPDATE source SET active = 1, state = 'waiting', detail = '', ignore = ?,
                 recovered_since = CASE WHEN resume IS NULL THEN recovered_since ELSE 0 END
             WHERE id = ?",
            params![serde_json::to_string(&spec.ignore).expect("strings always serialise"), id],
        )?;
        // Whatever covered the same objects before this falls behind from now on: it resumes from nothing.
        self.execute(
            what,
            "UPDATE source SET given_up = coalesce(resume, given_up), resume = NULL, scope_changed = 1
             WHERE resource = ?1 AND id <> ?2 AND (namespace = '' OR ?3 = '') AND resume IS NOT NULL",
            params![resource, id, namespace],
        )?;
        type Stored = (Option<String>, Option<String>, bool, Option<i64>, Option<String>, Option<String>);
        let (resume, applied, scope_changed, good_at, lost, last_good): Stored = self
            .conn
            .query_row(
                "SELECT resume, applied, scope_changed, good_at, pending_why, given_up FROM source WHERE id = ?",
                [id],
                |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?)),
            )
            .map_err(sql(what))?;
        let verified = self.verified_at(id)?;
        let inherited = self.inherits(resource, &namespace, id)?;
        let lost = lost.as_deref().and_then(Why::parse).filter(|_| resume.is_none());
        let why = lost.or_else(|| (resume.is_none() && (scope_changed || inherited)).then_some(Why::Scope));
        let checkpoint = Checkpoint { resume: resume.map(ResourceVersion), applied: applied.map(ResourceVersion) };
        self.put_source(Source {
            watched: Arc::new(Watched {
                id,
                registered: true,
                resource,
                namespace,
                api_version: spec.resource.api_version(),
                facts: spec.resource.clone(),
                silent: spec.first_list_silent,
                ignore: noise(&spec.ignore, &spec.resource),
            }),
            checkpoint: checkpoint.clone(),
            good_at: good_at.unwrap_or(0),
            behind: good_at.filter(|at| *at > 0),
            dates: Arc::default(),
            moved: false,
            last_good: last_good.map(ResourceVersion),
            lost,
            verified,
            inconsistent: false,
        });
        // Whatever its last watch brought.
        self.set_inconsistent(id, false);
        Ok((SourceId(id), SourceMemory { checkpoint, why }))
    }

    /// A source as the database has it, for finishing its list before anybody has registered it.
    pub(super) fn load_source(&mut self, id: i64) -> Result {
        let what = "read a source";
        type Stored = (i64, String, String, Option<String>, Option<String>, Option<i64>, String, Option<String>);
        let (resource, namespace, facts, resume, applied, good_at, ignore, last_good): Stored = self
            .conn
            .query_row(
                "SELECT s.resource, s.namespace, r.facts, s.resume, s.applied, s.good_at, s.ignore, s.given_up
                 FROM source s JOIN resource r ON r.id = s.resource WHERE s.id = ?",
                [id],
                |row| {
                    Ok((
                        row.get(0)?,
                        row.get(1)?,
                        row.get(2)?,
                        row.get(3)?,
                        row.get(4)?,
                        row.get(5)?,
                        row.get(6)?,
                        row.get(7)?,
                    ))
                },
            )
            .map_err(sql(what))?;
        let facts: Resource = serde_json::from_str(&facts)
            .map_err(|_| JournalError::Corrupt("the journal holds a resource that cannot be read".to_owned()))?;
        let ignore = noise(&serde_json::from_str::<Vec<String>>(&ignore).unwrap_or_default(), &facts);
        let api_version = facts.api_version();
        let watched = Watched { id, registered: false, resource, facts, namespace, api_version, silent: false, ignore };
        self.put_source(Source {
            watched: Arc::new(watched),
            checkpoint: Checkpoint { resume: resume.map(ResourceVersion), applied: applied.map(ResourceVersion) },
            good_at: good_at.unwrap_or(0),
            behind: good_at.filter(|at| *at > 0),
            dates: Arc::default(),
            moved: false,
            last_good: last_good.map(ResourceVersion),
            lost: None,
            verified: self.verified_at(id)?,
            inconsistent: false,
        });
        Ok(())
    }

    pub(super) fn register_sink(&mut self, name: &str, kind: &str, start: SinkStart) -> Result<Seq> {
        let what = "register a sink";
        let head = self.changes.head;
        let (cursor, begins) = match start {
            SinkStart::Start => (0, 0),
            SinkStart::Now => (head, head + 1),
            // No cursor is past the head, also where the log has yet to get there.
            SinkStart::Seq(seq) => (seq.0.saturating_sub(1).min(head), seq.0),
        };
        self.execute(
            what,
            "INSERT INTO sink (name, kind, cursor, active, begins) VALUES (?1, ?2, ?3, 1, ?4)
             ON CONFLICT (name) DO UPDATE SET kind = ?2, active = 1",
            params![name, kind, cursor, begins],
        )?;
        let cursor = self
            .conn
            .query_row("SELECT cursor FROM sink WHERE name = ?", [name], |row| row.get(0))
            .map_err(sql(what))?;
        Ok(Seq(cursor))
    }
}
