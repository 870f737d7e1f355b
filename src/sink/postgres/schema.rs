//! The tables, and every statement that is sent to them.
//!
//! What each table is for is said in the text that `decklog sink init --print` prints.

/// The version of the tables that this decklog writes to. Tables change by further statements at the end of
/// [`needs`], which an older decklog must be able to live with, or by another number here, which it refuses.
pub(super) const VERSION: i32 = 1;

/// A name as SQL has it.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Returns the statements that create the tables and grant the rights of a user. They can be applied repeatedly.
pub(super) fn needs(schema: &str, user: &str) -> String {
    include_str!("schema.sql")
        .replace("DECKLOG_SCHEMA", &quoted(schema))
        .replace("DECKLOG_USER", &quoted(user))
        .replace("DECKLOG_VERSION", &VERSION.to_string())
}

/// The rights that are needed, as pairs of table and privilege.
pub(super) fn rights(objects: bool) -> Vec<(&'static str, &'static str)> {
    let mut rights = vec![
        ("migrations", "SELECT"),
        ("entries", "SELECT"),
        ("entries", "INSERT"),
        ("cursors", "SELECT"),
        ("cursors", "INSERT"),
        ("cursors", "UPDATE"),
    ];
    if objects {
        rights.extend(["SELECT", "INSERT", "UPDATE", "DELETE"].map(|right| ("objects", right)));
    }
    rights
}

/// The rights that the shared log needs.
pub(super) const SHARED_RIGHTS: [(&str, &str); 14] = [
    ("migrations", "SELECT"),
    ("shared_logs", "SELECT"),
    ("shared_logs", "INSERT"),
    // That of a lock.
    ("shared_logs", "UPDATE"),
    ("shared_units", "SELECT"),
    ("shared_units", "INSERT"),
    ("shared_units", "DELETE"),
    ("shared_bases", "SELECT"),
    ("shared_bases", "INSERT"),
    ("shared_bases", "DELETE"),
    ("shared_parts", "SELECT"),
    ("shared_parts", "INSERT"),
    ("shared_parts", "UPDATE"),
    ("shared_parts", "DELETE"),
];

/// Query for missing privileges: takes the schema, the tables and the privileges, and returns the missing ones.
pub(super) const MISSING: &str = "
    SELECT w.name, w.privilege, c.oid IS NULL
    FROM unnest($2::text[], $3::text[]) AS w (name, privilege)
    LEFT JOIN (pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace AND n.nspname = $1)
        ON c.relname = w.name
    WHERE c.oid IS NULL
        OR NOT pg_catalog.has_schema_privilege(n.oid, 'USAGE')
        OR NOT pg_catalog.has_table_privilege(c.oid, w.privilege)";

/// Statements for the tables of one schema. They are not prepared: behind a pooler the next transaction may be in another
/// session, which does not know them.
#[derive(Debug)]
pub(super) struct Statements {
    /// Query for the version, the first one on each connection.
    pub(super) version: String,
    pub(super) make_cursor: String,
    pub(super) lock_cursor: String,
    pub(super) last: String,
    pub(super) later: String,
    pub(super) entry: String,
    pub(super) before: String,
    pub(super) firsts: String,
    pub(super) other: String,
    pub(super) move_cursor: String,
    pub(super) insert: String,
    pub(super) keep_objects: String,
    pub(super) drop_objects: String,
    pub(super) take_back: String,
}

impl Statements {
    pub(super) fn of(schema: &str) -> Self {
        let text = |text: &str| {
            let text = text.replace("STAMP", STAMP).replace("LAST", LAST).replace("COLUMNS", COLUMNS);
            text.replace("OBJECT", OBJECT).replace("SCHEMA", &quoted(schema))
        };
        Self {
            version: text("SELECT max(version) FROM SCHEMA.migrations"),
            make_cursor: text(MAKE_CURSOR),
            lock_cursor: text(LOCK_CURSOR),
            last: text(CURSORS_LAST),
            later: text(LATER_CURSOR),
            entry: text(ENTRY),
            before: text(BEFORE),
            firsts: text(FIRSTS),
            other: text(OTHER),
            move_cursor: text(MOVE_CURSOR),
            insert: text(INSERT),
            keep_objects: text(KEEP_OBJECTS),
            drop_objects: text(DROP_OBJECTS),
            take_back: text(TAKE_BACK),
        }
    }
}

/// Begins a transaction that ends by itself, on the server too, where one side is gone. A server that is set to
/// lose what it has acknowledged is asked not to. Whatever is between the two may hand the next transaction to another
/// session, so everything is said in each.
pub(super) fn begin(limit: std::time::Duration) -> String {
    let limit = limit.as_millis().max(1);
    format!(
        "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;
        SET LOCAL statement_timeout = {limit};
        SET LOCAL lock_timeout = {limit};
        SET LOCAL idle_in_transaction_session_timeout = {limit};
        SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'"
    )
}

/// Characters from the beginning of a line that contain everything that identifies its entry.
const STAMP: &str = "4000";

/// The columns of an entry.
const COLUMNS: &str = "sink, epoch, seq, id, time, type, evidence, cluster, cluster_name, api_group, api_version, resource, \
                       kind, namespace, name, uid, resource_version, line";

/// The columns of an object, as they are found in an entry `e`.
const OBJECT: &str = "e.sink, e.cluster, e.api_group, e.resource, e.namespace, e.name, e.kind, e.api_version, e.uid, \
                      e.resource_version, e.time, e.epoch, e.seq, e.line";

/// Makes the row of a cursor where there is none. It waits for whoever is about to make it.
const MAKE_CURSOR: &str =
    "INSERT INTO SCHEMA.cursors (sink, cluster, epoch, seq) VALUES ($1, $2, '', 0) ON CONFLICT DO NOTHING";

/// Locks the row of a cursor: that of the epoch, or else that of the cluster, whose uid may have been learned since.
const LOCK_CURSOR: &str =
    "SELECT cluster, epoch, seq FROM SCHEMA.cursors WHERE sink = $1 AND (cluster = $2 OR epoch = $3)
    ORDER BY epoch = $3 DESC LIMIT 1 FOR UPDATE";

/// The beginning of the entry that a cursor names. On its own, and after the lock: what a statement that waits for a lock
/// sees of other tables is of before it waited.
const CURSORS_LAST: &str = "SELECT left(e.line, STAMP) FROM (
        SELECT epoch, seq FROM SCHEMA.cursors WHERE sink = $1 AND (cluster = $2 OR epoch = $3)
        ORDER BY epoch = $3 DESC LIMIT 1
    ) c JOIN SCHEMA.entries e ON e.epoch = c.epoch AND e.seq = c.seq";

/// The cursor of the latest epoch after this one, of whatever cluster, with the beginning of its entry: for who does not
/// know the cluster yet.
const LATER_CURSOR: &str = "SELECT c.epoch, c.seq, left(e.line, STAMP) FROM SCHEMA.cursors c
    LEFT JOIN SCHEMA.entries e ON e.epoch = c.epoch AND e.seq = c.seq
    WHERE c.sink = $1 AND c.epoch > $2 ORDER BY c.epoch DESC LIMIT 1";

/// The beginning of an entry.
const ENTRY: &str = "SELECT left(line, STAMP) FROM SCHEMA.entries WHERE epoch = $1 AND seq = $2";

/// Query for any entry before a position.
const BEFORE: &str = "SELECT FROM SCHEMA.entries WHERE epoch COLLATE \"C\" < $1 OR epoch = $1 AND seq < $2 LIMIT 1";

/// Query for the beginning of each epoch of a sink, by one index lookup for each.
const FIRSTS: &str = "WITH RECURSIVE firsts AS (
        (SELECT epoch, seq FROM SCHEMA.entries WHERE sink = $1 ORDER BY epoch, seq LIMIT 1)
        UNION ALL
        SELECT n.* FROM firsts f CROSS JOIN LATERAL (
            SELECT epoch, seq FROM SCHEMA.entries WHERE epoch > f.epoch AND sink = $1 ORDER BY epoch, seq LIMIT 1
        ) n
    )
    SELECT epoch, seq FROM firsts";

/// Query for those of these positions that another entry has.
const OTHER: &str = "SELECT e.seq FROM SCHEMA.entries e
    JOIN unnest($2::int8[], $3::text[], $4::text[]) AS n (seq, id, time) ON e.epoch = $1 AND e.seq = n.seq
    WHERE (e.id, e.time) <> (n.id, n.time::timestamptz) ORDER BY e.seq LIMIT 1";

/// Moves a cursor that is locked.
const MOVE_CURSOR: &str =
    "UPDATE SCHEMA.cursors SET cluster = $3, cluster_name = $4, epoch = $5, seq = $6, moved = now()
    WHERE sink = $1 AND cluster = $2";

/// Inserts entries. One that is there already is there from a replay, which is looked at: see [`OTHER`].
const INSERT: &str = "INSERT INTO SCHEMA.entries (COLUMNS)
    SELECT $1, $2, seq, id, time::timestamptz, type, evidence, $3, cluster_name, api_group, api_version, resource,
        kind, namespace, name, uid, resource_version, line
    FROM unnest($4::int8[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[], $11::text[],
        $12::text[], $13::text[], $14::text[], $15::text[], $16::text[], $17::text[], $18::text[])
        AS e (seq, id, time, type, evidence, cluster_name, api_group, api_version, resource, kind, namespace, name,
            uid, resource_version, line)
    ON CONFLICT (epoch, seq) DO NOTHING";

/// The entries of an epoch with these seqs that are the last word on their objects: all of them in delivery, and in a
/// replay those that nothing newer was said after.
const LAST: &str = "e.epoch = $2 AND e.seq = ANY ($3::int8[]) AND (NOT $4::bool OR NOT EXISTS (
        SELECT FROM SCHEMA.entries n WHERE n.cluster = e.cluster AND n.resource = e.resource
            AND n.namespace = e.namespace AND n.name = e.name AND n.api_group = e.api_group AND n.sink = e.sink
            AND n.type <> 'GAP' AND (n.epoch, n.seq) > (e.epoch, e.seq)))";

/// Gives objects the state that entries record. The entries are in the table already. Entries that are newer may have
/// been deleted: the object knows how new it is.
const KEEP_OBJECTS: &str = "INSERT INTO SCHEMA.objects AS o (sink, cluster, api_group, resource, namespace, name, kind,
        api_version, uid, resource_version, time, epoch, seq, line)
    SELECT OBJECT FROM SCHEMA.entries e WHERE e.sink = $1 AND LAST AND e.type IN ('ADDED', 'MODIFIED')
    ON CONFLICT (sink, cluster, api_group, resource, namespace, name) DO UPDATE SET kind = excluded.kind,
        api_version = excluded.api_version, uid = excluded.uid, resource_version = excluded.resource_version,
        time = excluded.time, epoch = excluded.epoch, seq = excluded.seq, line = excluded.line
    WHERE (o.epoch, o.seq) < (excluded.epoch, excluded.seq)";

/// Takes the objects away whose end entries record.
const DROP_OBJECTS: &str = "DELETE FROM SCHEMA.objects o USING SCHEMA.entries e
    WHERE e.sink = $1 AND LAST AND e.type = 'DELETED' AND o.sink = $1 AND o.cluster = e.cluster
        AND o.api_group = e.api_group AND o.resource = e.resource AND o.namespace = e.namespace AND o.name = e.name
        AND (o.epoch, o.seq) < (e.epoch, e.seq)";

/// A new epoch begins at a seq: what an earlier one said from there on never happened in the journal that goes on, so
/// its objects are again as they were recorded before, by entries that no epoch in between has taken back. Where each
/// epoch begins is found by one look at the index for each.
const TAKE_BACK: &str = "WITH RECURSIVE begins AS (
        (SELECT epoch, seq, sink, cluster FROM SCHEMA.entries WHERE epoch < $3 ORDER BY epoch, seq LIMIT 1)
        UNION ALL
        SELECT n.* FROM begins b CROSS JOIN LATERAL (
            SELECT epoch, seq, sink, cluster FROM SCHEMA.entries WHERE epoch > b.epoch AND epoch < $3
            ORDER BY epoch, seq LIMIT 1
        ) n
    ), void AS (
        DELETE FROM SCHEMA.objects WHERE sink = $1 AND cluster = $2 AND epoch < $3 AND seq >= $4
        RETURNING api_group, resource, namespace, name
    )
    INSERT INTO SCHEMA.objects (sink, cluster, api_group, resource, namespace, name, kind, api_version, uid,
        resource_version, time, epoch, seq, line)
    SELECT OBJECT FROM void v CROSS JOIN LATERAL (
        SELECT * FROM SCHEMA.entries e WHERE e.cluster = $2 AND e.resource = v.resource AND e.namespace = v.namespace
            AND e.name = v.name AND e.api_group = v.api_group AND e.sink = $1 AND e.type <> 'GAP'
            AND e.epoch < $3 AND e.seq < $4 AND NOT EXISTS (
                SELECT FROM begins b WHERE b.sink = $1 AND b.cluster IN ($2, '') AND b.epoch > e.epoch AND b.seq <= e.seq
            )
        ORDER BY e.epoch DESC, e.seq DESC LIMIT 1
    ) e WHERE e.type <> 'DELETED'";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_everywhere() {
        let text = needs("audit.log", "me\"too");
        assert!(text.contains("CREATE SCHEMA \"audit.log\"") && text.contains("TO \"me\"\"too\""), "{text}");
        let all = Statements::of("audit.log");
        let statements = [all.insert, all.make_cursor, all.lock_cursor, all.move_cursor, all.version];
        let statements = statements.into_iter().chain([all.last, all.later, all.entry, all.other]);
        for text in statements.chain([all.keep_objects, all.drop_objects, all.take_back, text]) {
            assert!(text.contains("\"audit.log\"."), "{text}");
            for left in ["SCHEMA.", "DECKLOG_", "LAST", "COLUMNS", "OBJECT", "STAMP"] {
                assert!(!text.contains(left), "{left}: {text}");
            }
        }
    }
}
