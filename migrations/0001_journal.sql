-- The journal of one cluster. Never edited after a release: a change is a new, higher-numbered file.

-- Facts about this journal: epoch, epoch_since (the first seq that carries it), cluster_name, cluster_uid, head (the
-- highest seq ever assigned), oldest (the first seq that is not truncated; absent while none is), paused (why nothing is
-- read, as JSON), resumed (when that ended), attributed (every entry up to this seq has its ACTOR or gets none), missed/NAME (when something was last truncated that the sink had not taken).
CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- The name that entries carry from which seq on. A journal that was restored from an older copy begins another
-- epoch; names sort by their beginning.
CREATE TABLE epoch (
    name  TEXT PRIMARY KEY,
    since INTEGER NOT NULL           -- the first seq that carries it
) STRICT, WITHOUT ROWID;

-- The last answer of discovery, kept for kubectl's spellings in commands that only read.
CREATE TABLE resource (
    id         INTEGER PRIMARY KEY,
    api_group  TEXT NOT NULL,
    plural     TEXT NOT NULL,
    facts      TEXT NOT NULL,        -- JSON: version, kind, singular, short names, namespaced
    kind_since INTEGER NOT NULL DEFAULT 0,  -- entries before this seq may have another kind than `facts` says
    UNIQUE (api_group, plural)
) STRICT;

-- One watched resource and scope, with its checkpoint: everything up to `resume` is in the journal.
-- `applied` is the highest version written; it is ahead of `resume` while several events may share it.
CREATE TABLE source (
    id                INTEGER PRIMARY KEY,
    resource          INTEGER NOT NULL REFERENCES resource (id),
    namespace         TEXT NOT NULL,    -- '' for all namespaces
    label_selector    TEXT NOT NULL,
    field_selector    TEXT NOT NULL,
    ignore            TEXT NOT NULL DEFAULT '[]',  -- JSON: patterns whose changes are suppressed
    resume            TEXT,
    given_up          TEXT,             -- the position before it was lost: nothing up to it is missing
    applied           TEXT,
    good_at           INTEGER,          -- last moment known good, microseconds since 1970
    good_since        INTEGER,          -- when its first list was recorded; nothing before that is known
    scope_changed     INTEGER NOT NULL DEFAULT 0,  -- the next list must declare a gap 'scope'
    listed_at         INTEGER NOT NULL DEFAULT 0,  -- start of its last list, microseconds since 1970
    pending           TEXT,             -- version of a complete list that is being written
    pending_why       TEXT,             -- the gap that it declares, or the next one must; NULL on a first list
    pending_step      INTEGER NOT NULL DEFAULT 0,  -- how far it is written: see journal/writer/listing.rs
    recovering        INTEGER NOT NULL DEFAULT 0,  -- `pending` is 0 a list, 1 a part of what is recovered, 2 its last part
    recovered         INTEGER NOT NULL DEFAULT 0,  -- changes ever recovered
    recovered_since   INTEGER NOT NULL DEFAULT 0,  -- changes recovered since the position was lost, which the next gap says
    state             TEXT NOT NULL DEFAULT 'waiting',
    detail            TEXT NOT NULL DEFAULT '',
    state_since       INTEGER NOT NULL DEFAULT 0,
    gaps              INTEGER NOT NULL DEFAULT 0,  -- gaps ever recorded
    suppressed        INTEGER NOT NULL DEFAULT 0,  -- changes that `ignore` kept out of the log
    verified          TEXT,             -- version of the last list, or of the last audit without a difference
    verified_at       INTEGER,          -- start of that, microseconds since 1970
    audits            INTEGER NOT NULL DEFAULT 0,  -- audits ever done
    audit_differences INTEGER NOT NULL DEFAULT 0,  -- objects that they found to differ
    audited_at        INTEGER NOT NULL DEFAULT 0,  -- end of the last one, microseconds since 1970
    active            INTEGER NOT NULL DEFAULT 0,  -- configured when the daemon last ran
    truncated         INTEGER NOT NULL DEFAULT 0,  -- seq of its newest entry that was truncated
    truncated_version TEXT,             -- the version in that entry
    truncated_at      INTEGER NOT NULL DEFAULT 0,  -- when it was truncated
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
    state     BLOB,                  -- compressed object, alone or as a difference of `base`, only where no entry carries the last state
    marks     TEXT,                  -- JSON: digests of masked and dropped values
    pointers  TEXT,                  -- JSON: what was redacted in `state`
    UNIQUE (resource, namespace, name)
) STRICT;

-- What exists, for counting and for finding what a list does not have.
CREATE INDEX object_present ON object (resource, namespace, name) WHERE present = 1;

-- The log. `line` is the whole entry as every sink gets it, compressed: alone (base IS NULL; as one frame, or as that of its
-- object and what stands around it) or as a difference of the entry `base`, so that any version is at most two rows away.
CREATE TABLE entry (
    seq          INTEGER PRIMARY KEY,
    time         INTEGER NOT NULL,   -- microseconds since 1970
    type         INTEGER NOT NULL,   -- 0 ADDED, 1 MODIFIED, 2 DELETED, 3 GAP, 4 ACTOR
    source       INTEGER NOT NULL REFERENCES source (id),
    object       INTEGER,            -- NULL on GAP and ACTOR
    previous     INTEGER NOT NULL,   -- seq of the object's entry before this one, 0 for none
    base         INTEGER,
    object_start INTEGER NOT NULL,   -- where the object stands in the line
    object_end   INTEGER NOT NULL,
    line         BLOB NOT NULL
) STRICT;

-- Gaps are few and far between.
CREATE INDEX entry_gap ON entry (seq) WHERE type = 3;

-- One entry in 64 of each object, picked by its seq: from there on the way to any version of it is short, and the index
-- is too small to cost the writer anything.
CREATE INDEX entry_milestone ON entry (object, seq) WHERE (seq * 40503) & 65535 < 1024;

-- Stretches of entries that were journaled later than they happened, or may have been, as after an outage: questions by time
-- look there as well. A GAP is one from its beginning on.
CREATE TABLE late (
    first INTEGER PRIMARY KEY,       -- the first seq
    last  INTEGER NOT NULL,          -- the last seq; entries of another time may stand between
    since INTEGER NOT NULL           -- no entry of it happened before, microseconds since 1970
) STRICT;

-- Times of which no daemon ran.
CREATE TABLE absence (
    since INTEGER PRIMARY KEY,       -- the last time at which one ran, microseconds since 1970
    until INTEGER NOT NULL           -- the time at which the next one began
) STRICT;

-- Entries that are truncated and still stored because later ones need them: for each object its newest truncated entry,
-- which is its state at the lower end of the log, and the base of that one.
CREATE TABLE pinned (
    object INTEGER NOT NULL,
    seq    INTEGER NOT NULL,
    PRIMARY KEY (object, seq)
) STRICT, WITHOUT ROWID;

-- Outlines of entries, for the timeline page: when, of which object, of what sort, and who wrote, without the objects.
-- Part N is of the entries from seq N * 1024 + 1 on, and stands here once the log has all 1024 of them. It is derived from
-- the entries alone, so it can be made again at any time: it is not replicated.
CREATE TABLE outline (
    part INTEGER PRIMARY KEY,
    data BLOB NOT NULL
) STRICT;

-- Pages of a list in progress, and what is recovered from the API server's own history. Nothing here is visible before it is
-- complete.
CREATE TABLE listing (
    id        INTEGER PRIMARY KEY,
    source    INTEGER NOT NULL REFERENCES source (id),
    namespace TEXT NOT NULL,
    name      TEXT NOT NULL,
    uid       TEXT NOT NULL,
    version   TEXT NOT NULL,
    body      BLOB,                  -- compressed object; NULL where the journal has this very version
    marks     TEXT,
    pointers  TEXT,
    gone      INTEGER NOT NULL DEFAULT 0  -- a recovered deletion: the body is empty, the version is that of the deletion
) STRICT;
CREATE INDEX listing_by_name ON listing (source, namespace, name);
-- The order in which a complete list is written: that of versions.
CREATE INDEX listing_by_version ON listing (source, length(version), version, id) WHERE body IS NOT NULL;

-- Objects of a list or a watch that could not be recorded: which versions of which, so that each is a gap once and no audit
-- takes it for a loss. `staged` is 1 while that list is in progress. `digest` is a keyed digest of an object that has no name
-- or no version, so that objects without one, or several of one name, are told apart.
CREATE TABLE unread (
    source    INTEGER NOT NULL REFERENCES source (id),
    staged    INTEGER NOT NULL,
    namespace TEXT NOT NULL,
    name      TEXT NOT NULL,
    uid       TEXT NOT NULL,
    version   TEXT NOT NULL,
    why       TEXT NOT NULL DEFAULT 'oversize',
    digest    TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (source, staged, namespace, name, uid, version, digest)
) STRICT, WITHOUT ROWID;

-- Changes that the watches of a standby have brought beyond the shared log, in order, until the shared log has them. They
-- belong to one life of the process and are not replicated.
CREATE TABLE backlog (
    id        INTEGER PRIMARY KEY,
    source    INTEGER NOT NULL,
    at        INTEGER NOT NULL,      -- when it came, microseconds since 1970
    verb      INTEGER NOT NULL,      -- 0 upsert, 1 delete, 2 a bookmark
    namespace TEXT NOT NULL,
    name      TEXT NOT NULL,
    uid       TEXT NOT NULL,
    version   TEXT NOT NULL,
    body      BLOB,                  -- compressed object
    marks     TEXT,
    pointers  TEXT
) STRICT;

-- One row per sink ever configured: `cursor` is the last seq that it has for good, `written` the last that was really
-- delivered, which is lower where the sink's filter left out what follows.
CREATE TABLE sink (
    name         TEXT PRIMARY KEY,
    kind         TEXT NOT NULL,
    cursor       INTEGER NOT NULL,
    written      INTEGER NOT NULL DEFAULT 0,
    begins       INTEGER NOT NULL DEFAULT 0,  -- the seq that it begins at, also one that the log does not have yet
    state        TEXT NOT NULL DEFAULT 'running',
    detail       TEXT NOT NULL DEFAULT '',
    state_since  INTEGER NOT NULL DEFAULT 0,
    delivered_at INTEGER NOT NULL DEFAULT 0,
    active       INTEGER NOT NULL DEFAULT 0,
    missed       INTEGER NOT NULL DEFAULT 0  -- entries that were truncated before it had taken them
) STRICT, WITHOUT ROWID;

-- Entries that one sink gets under the name of a later epoch. Its output had given their epoch and seq to other entries, of
-- a journal that was restored since, before that could be found out.
CREATE TABLE relabeling (
    sink   TEXT NOT NULL,
    after  INTEGER NOT NULL,         -- entries after this seq …
    before INTEGER NOT NULL,         -- … and before this one
    epoch  TEXT NOT NULL,
    PRIMARY KEY (sink, after)
) STRICT, WITHOUT ROWID;

-- Messages of incidents that go on, of a sink whose receiver can update them. What is over goes when more comes.
CREATE TABLE message (
    sink      TEXT NOT NULL,
    first     INTEGER NOT NULL,      -- the entry that the incident began with
    last      INTEGER NOT NULL,      -- the last one that the message counts
    entries   INTEGER NOT NULL,      -- how many it counts
    incident  TEXT NOT NULL,         -- its key
    reference TEXT NOT NULL,         -- what the receiver calls the message
    PRIMARY KEY (sink, first)
) STRICT, WITHOUT ROWID;

-- Entries that a sink refused for ever and that its policy keeps for `decklog replay`.
CREATE TABLE dead_letter (
    sink   TEXT NOT NULL,
    seq    INTEGER NOT NULL,
    reason TEXT NOT NULL,
    time   INTEGER NOT NULL,
    line   BLOB,                     -- the entry, compressed alone, once the log is truncated behind it
    PRIMARY KEY (sink, seq)
) STRICT, WITHOUT ROWID;

-- Stretches of time, at most some minutes long, over which the API server's own request counters were read without a
-- break. Only where [cluster] request_metrics asks for it; the oldest are dropped after about a week.
CREATE TABLE reading (
    id    INTEGER PRIMARY KEY,
    since INTEGER NOT NULL,          -- microseconds since 1970
    until INTEGER NOT NULL
) STRICT;

-- Requests of one stretch that changed a resource and were granted, by verb (POST, PUT, PATCH, APPLY, DELETE,
-- DELETECOLLECTION). In stretch 0 is the sum over the life of the journal. The verb 'suppressed' counts versions that
-- `ignore` kept out of the log meanwhile; in stretch 0 it is how many that were at the last reading.
CREATE TABLE request (
    reading  INTEGER NOT NULL,
    resource INTEGER NOT NULL REFERENCES resource (id),
    verb     TEXT NOT NULL,
    count    INTEGER NOT NULL,
    PRIMARY KEY (reading, resource, verb)
) STRICT, WITHOUT ROWID;

-- Audit logs of the API server ([[audit_log]]) ever configured, by name: `position` goes on where the last batch ended, and is
-- committed with what that batch brought. Requests that were answered before `complete` are all read, microseconds since 1970.
CREATE TABLE audit_log (
    name     TEXT PRIMARY KEY,
    position TEXT,                   -- JSON of a place in a file; NULL where requests are received
    complete INTEGER NOT NULL DEFAULT 0,
    counts   TEXT NOT NULL DEFAULT '{}',  -- JSON: events read, cut, unreadable, of another cluster, lost, dropped
    first_at INTEGER NOT NULL DEFAULT 0,  -- time of the first event that it brought, microseconds since 1970; 0 for none yet
    lost_at  INTEGER NOT NULL DEFAULT 0,  -- when a part of it was found to be gone unread, microseconds since 1970
    read_at  INTEGER NOT NULL DEFAULT 0,  -- when all of it was last read, microseconds since 1970
    probe    TEXT,                   -- object of the last request by which `decklog check` asked whether events arrive
    active   INTEGER NOT NULL DEFAULT 0   -- configured when the daemon last ran
) STRICT, WITHOUT ROWID;

-- Times of which events of an audit log are missing, microseconds since 1970. They neither overlap nor stand close together.
CREATE TABLE audit_doubt (
    log   TEXT NOT NULL,
    since INTEGER NOT NULL,
    until INTEGER NOT NULL,
    PRIMARY KEY (log, since)
) STRICT, WITHOUT ROWID;

-- Requests of the audit logs that no entry has a sender of yet.
CREATE TABLE audited (
    key       TEXT PRIMARY KEY,      -- the event's id
    completed INTEGER NOT NULL,      -- microseconds since 1970
    request   TEXT NOT NULL,         -- JSON: verb, object, sender, times; nothing of a body but uid and version
    counted   INTEGER NOT NULL DEFAULT 0  -- it is in `unwritten`
) STRICT, WITHOUT ROWID;

CREATE INDEX audited_completed ON audited (completed);

-- Requests of the audit logs that were refused and are in `unwritten`, as long as they may come again.
CREATE TABLE audited_refused (
    key       TEXT PRIMARY KEY,      -- the event's id
    completed INTEGER NOT NULL       -- microseconds since 1970
) STRICT, WITHOUT ROWID;

CREATE INDEX audited_refused_completed ON audited_refused (completed);

-- Numbers of requests of the audit logs that wrote nothing, by the hour of their answer and by sender. Where an hour has too many
-- senders, what is more is of the user '(others)', without the rest.
CREATE TABLE unwritten (
    hour        INTEGER NOT NULL,    -- its beginning, microseconds since 1970
    kind        INTEGER NOT NULL,    -- 0 changed nothing, 1 a conflict, 2 the name was taken
    user        TEXT NOT NULL,
    agent       TEXT NOT NULL,       -- its first word
    verb        TEXT NOT NULL,
    api_group   TEXT NOT NULL,
    plural      TEXT NOT NULL,
    subresource TEXT NOT NULL,
    count       INTEGER NOT NULL,
    first       INTEGER NOT NULL,    -- the first answer, microseconds since 1970
    last        INTEGER NOT NULL,    -- the last one
    namespace   TEXT NOT NULL,       -- an object of them
    name        TEXT NOT NULL,
    PRIMARY KEY (hour, kind, user, agent, verb, api_group, plural, subresource)
) STRICT, WITHOUT ROWID;

-- ACTOR entries by the entry whose sender they name. Those of truncated entries have no row.
CREATE TABLE actor (
    seq   INTEGER PRIMARY KEY,       -- the entry of the change
    entry INTEGER NOT NULL           -- its ACTOR entry
) STRICT;

-- Trees over the digests of entries ([evidence]), by the first seq. A tree ends with its epoch, and where evidence is switched off.
CREATE TABLE tree (
    first  INTEGER PRIMARY KEY,
    epoch  TEXT NOT NULL,
    until  INTEGER,                  -- the last seq; NULL while it grows
    before TEXT,                     -- the last checkpoint of the tree before, whose digest is leaf 0; NULL where there is none
    note   TEXT,                     -- its last signed checkpoint …
    signed INTEGER NOT NULL DEFAULT 0,    -- … the last seq that it covers …
    signed_at INTEGER NOT NULL DEFAULT 0, -- … and when it was signed, microseconds since 1970
    placed INTEGER NOT NULL DEFAULT 0     -- the last seq that every place has
) STRICT;

-- Complete blocks of 256 leaves of a tree, by the first seq in them. `root` is the hash over the block.
CREATE TABLE tree_block (
    first   INTEGER PRIMARY KEY,
    root    BLOB NOT NULL
) STRICT;

-- Leaves of complete blocks, until every place has them.
CREATE TABLE tree_leaves (
    first   INTEGER PRIMARY KEY,
    digests BLOB NOT NULL            -- SHA-256 of each line; in the first block of a tree leaf 0 stands before them
) STRICT;

-- Digests of the entries behind the last complete block, as transactions wrote them, by the first seq.
CREATE TABLE digest (
    first   INTEGER PRIMARY KEY,
    digests BLOB NOT NULL
) STRICT;
