-- The journal of one cluster. Never edited after a release: a change is a new, higher-numbered file.

-- Facts about this journal: epoch, epoch_since (the first seq that carries it), cluster_name, cluster_uid, head (the
-- highest seq ever given out), oldest (the first seq that is not forgotten; absent while none is), paused (why nothing is
-- read, as JSON), resumed (when that ended), missed/NAME (when something was last forgotten that the sink had not taken).
CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- What discovery last said, kept for kubectl's spellings in commands that only read.
CREATE TABLE resource (
    id       INTEGER PRIMARY KEY,
    api_group TEXT NOT NULL,
    plural   TEXT NOT NULL,
    facts    TEXT NOT NULL,          -- JSON: version, kind, singular, short names, namespaced
    UNIQUE (api_group, plural)
) STRICT;

-- One watched resource and scope, with its checkpoint: everything up to `resume` is in the journal.
-- `applied` is the highest version written; it is ahead of `resume` while several events may share it.
CREATE TABLE source (
    id             INTEGER PRIMARY KEY,
    resource       INTEGER NOT NULL REFERENCES resource (id),
    namespace      TEXT NOT NULL,    -- '' for all namespaces
    label_selector TEXT NOT NULL,
    field_selector TEXT NOT NULL,
    ignore         TEXT NOT NULL DEFAULT '[]',  -- JSON: patterns whose changes are not told
    resume         TEXT,
    given_up       TEXT,             -- the position before it was lost: nothing up to it is missing
    applied        TEXT,
    good_at        INTEGER,          -- last moment known good, microseconds since 1970
    rescoped       INTEGER NOT NULL DEFAULT 0,  -- the next list must declare a gap 'scope'
    listed_at      INTEGER NOT NULL DEFAULT 0,  -- when its last list was begun, microseconds since 1970
    pending        TEXT,             -- version of a complete list that is being written
    pending_why    TEXT,             -- the gap that it declares, or the next one must; NULL on a first list
    pending_told   INTEGER NOT NULL DEFAULT 0,  -- that gap's entry is written
    state          TEXT NOT NULL DEFAULT 'waiting',
    detail         TEXT NOT NULL DEFAULT '',
    state_since    INTEGER NOT NULL DEFAULT 0,
    gaps           INTEGER NOT NULL DEFAULT 0,  -- gaps ever told
    proved         TEXT,             -- version of the last list, or of the last audit without a difference
    proved_at      INTEGER,          -- when that was begun, microseconds since 1970
    audits         INTEGER NOT NULL DEFAULT 0,  -- audits ever done
    audit_differences INTEGER NOT NULL DEFAULT 0,  -- objects that they found to differ
    audited_at     INTEGER NOT NULL DEFAULT 0,  -- end of the last one, microseconds since 1970
    active         INTEGER NOT NULL DEFAULT 0,  -- configured when the daemon last ran
    forgotten      INTEGER NOT NULL DEFAULT 0,  -- seq of its newest entry that was forgotten
    forgotten_version TEXT,          -- the version that entry told
    forgotten_at   INTEGER NOT NULL DEFAULT 0,  -- when it was forgotten
    UNIQUE (resource, namespace)
) STRICT;

-- The last known state of every object ever seen. A row outlives its object (present = 0), so that an id names
-- one (resource, namespace, name) for the life of the journal and a replayed event of the dead is recognised.
CREATE TABLE object (
    id        INTEGER PRIMARY KEY,
    resource  INTEGER NOT NULL REFERENCES resource (id),
    namespace TEXT NOT NULL,
    name      TEXT NOT NULL,
    uid       TEXT NOT NULL,
    version   TEXT NOT NULL,
    present   INTEGER NOT NULL,
    last      INTEGER NOT NULL,      -- seq of its newest entry, 0 for none
    base      INTEGER,               -- seq of the entry that newer ones are stored as differences of
    state     BLOB,                  -- compressed object, only where no entry carries the last state
    marks     TEXT,                  -- JSON: digests of masked and dropped values
    pointers  TEXT,                  -- JSON: what was redacted in `state`
    UNIQUE (resource, namespace, name)
) STRICT;

-- What exists, for counting and for finding what a list does not have.
CREATE INDEX object_present ON object (resource, namespace, name) WHERE present = 1;

-- The log. `line` is the whole entry as every sink gets it, compressed: alone (base IS NULL) or as a difference
-- of the entry `base`, so that any version is at most two rows away.
CREATE TABLE entry (
    seq          INTEGER PRIMARY KEY,
    time         INTEGER NOT NULL,   -- microseconds since 1970
    type         INTEGER NOT NULL,   -- 0 ADDED, 1 MODIFIED, 2 DELETED, 3 GAP
    source       INTEGER NOT NULL REFERENCES source (id),
    object       INTEGER,            -- NULL on a gap
    previous     INTEGER NOT NULL,   -- seq of the object's entry before this one, 0 for none
    base         INTEGER,
    object_start INTEGER NOT NULL,   -- where the object stands in the line
    object_end   INTEGER NOT NULL,
    line         BLOB NOT NULL
) STRICT;

-- Gaps are few and far between.
CREATE INDEX entry_gap ON entry (seq) WHERE type = 3;

-- Entries that are forgotten and still there because later ones need them: for each object its newest forgotten entry,
-- which is its state at the lower end of the log, and the base of that one.
CREATE TABLE held (
    object INTEGER NOT NULL,
    seq    INTEGER NOT NULL,
    PRIMARY KEY (object, seq)
) STRICT, WITHOUT ROWID;

-- Pages of a list in progress. Nothing here is visible before the list is complete.
CREATE TABLE listing (
    id        INTEGER PRIMARY KEY,
    source    INTEGER NOT NULL REFERENCES source (id),
    namespace TEXT NOT NULL,
    name      TEXT NOT NULL,
    uid       TEXT NOT NULL,
    version   TEXT NOT NULL,
    body      BLOB,                  -- compressed object; NULL where the journal has this very version
    marks     TEXT,
    pointers  TEXT
) STRICT;
CREATE INDEX listing_by_name ON listing (source, namespace, name);
-- The order in which a complete list is written: that of versions.
CREATE INDEX listing_by_version ON listing (source, length(version), version, id) WHERE body IS NOT NULL;

-- One row per sink ever configured: `cursor` is the last seq that it has for good, `written` the last that was really
-- handed over, which is lower where the sink's filter left out what follows.
CREATE TABLE sink (
    name        TEXT PRIMARY KEY,
    kind        TEXT NOT NULL,
    cursor      INTEGER NOT NULL,
    written     INTEGER NOT NULL DEFAULT 0,
    state       TEXT NOT NULL DEFAULT 'running',
    detail      TEXT NOT NULL DEFAULT '',
    state_since INTEGER NOT NULL DEFAULT 0,
    delivered_at INTEGER NOT NULL DEFAULT 0,
    active      INTEGER NOT NULL DEFAULT 0,
    missed      INTEGER NOT NULL DEFAULT 0  -- entries that were forgotten before it had taken them
) STRICT, WITHOUT ROWID;

-- Entries that a sink refused for ever and that its policy keeps for `decklog replay`.
CREATE TABLE aside (
    sink   TEXT NOT NULL,
    seq    INTEGER NOT NULL,
    reason TEXT NOT NULL,
    time   INTEGER NOT NULL,
    line   BLOB,                     -- the entry, compressed alone, once the log has forgotten it
    PRIMARY KEY (sink, seq)
) STRICT, WITHOUT ROWID;
