-- What a sink of the type postgres needs, version DECKLOG_VERSION of its tables. It may be applied again: what is there stays.
BEGIN;
SET LOCAL client_min_messages = warning;

DO $$
BEGIN
    IF to_regnamespace('DECKLOG_SCHEMA') IS NULL THEN
        CREATE SCHEMA DECKLOG_SCHEMA;
    END IF;
END
$$;

-- Which versions of these tables were made. A decklog that needs another one delivers nothing, and says so.
CREATE TABLE IF NOT EXISTS DECKLOG_SCHEMA.migrations (
    version integer PRIMARY KEY,
    applied timestamptz NOT NULL DEFAULT now()
);

DO $$
BEGIN
    IF EXISTS (SELECT FROM DECKLOG_SCHEMA.migrations WHERE version > DECKLOG_VERSION) THEN
        RAISE EXCEPTION 'these tables are of a newer decklog; nothing was changed';
    END IF;
END
$$;

-- The log, one row for each entry. `line` is the entry byte for byte; the other columns are taken from it, for queries.
-- What an entry does not have is ''.
CREATE TABLE IF NOT EXISTS DECKLOG_SCHEMA.entries (
    epoch            text COLLATE "C" NOT NULL,
    seq              bigint NOT NULL,
    id               text NOT NULL,
    time             timestamptz NOT NULL,
    type             text NOT NULL,      -- ADDED, MODIFIED, DELETED, GAP
    evidence         text NOT NULL,      -- watched, listed, inferred
    cluster          text NOT NULL,      -- uid of the cluster
    cluster_name     text NOT NULL,
    api_group        text NOT NULL,
    api_version      text NOT NULL,
    resource         text NOT NULL,      -- the plural
    kind             text NOT NULL,
    namespace        text NOT NULL,
    name             text NOT NULL,
    uid              text NOT NULL,
    resource_version text NOT NULL,
    sink             text NOT NULL,      -- the sink that delivered it
    line             text NOT NULL,
    PRIMARY KEY (epoch, seq)
);
CREATE INDEX IF NOT EXISTS entries_object ON DECKLOG_SCHEMA.entries (name, resource, namespace, cluster);
CREATE INDEX IF NOT EXISTS entries_time ON DECKLOG_SCHEMA.entries USING brin (time);

-- How far each sink has come. It moves in the transaction that inserts the entries: never change it by hand.
CREATE TABLE IF NOT EXISTS DECKLOG_SCHEMA.cursors (
    sink         text NOT NULL,
    cluster      text NOT NULL,
    epoch        text COLLATE "C" NOT NULL,
    seq          bigint NOT NULL,
    cluster_name text NOT NULL DEFAULT '',
    moved        timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (sink, cluster)
);

-- The objects that exist, each with the entry that told its present state. Only filled by sinks with objects = true.
CREATE TABLE IF NOT EXISTS DECKLOG_SCHEMA.objects (
    sink             text NOT NULL,
    cluster          text NOT NULL,
    api_group        text NOT NULL,
    resource         text NOT NULL,
    namespace        text NOT NULL,
    name             text NOT NULL,
    kind             text NOT NULL,
    api_version      text NOT NULL,
    uid              text NOT NULL,
    resource_version text NOT NULL,
    time             timestamptz NOT NULL,
    epoch            text COLLATE "C" NOT NULL,
    seq              bigint NOT NULL,
    line             text NOT NULL,
    PRIMARY KEY (sink, cluster, api_group, resource, namespace, name)
);

-- A line as jsonb; NULL where jsonb cannot hold it (\u0000, half a surrogate, a number that is too long).
CREATE OR REPLACE FUNCTION DECKLOG_SCHEMA.json(line text) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN
    RETURN line::jsonb;
EXCEPTION WHEN others THEN
    RETURN NULL;
END
$$;

-- The shared log of [ha], beside what is delivered. `log` is the sink and the cluster. Never change it by hand.
-- Each log; its row is locked by whoever appends.
CREATE TABLE IF NOT EXISTS DECKLOG_SCHEMA.shared_logs (
    log     text PRIMARY KEY
);

-- Its units, numbered without a hole: one for each transaction of the journal.
CREATE TABLE IF NOT EXISTS DECKLOG_SCHEMA.shared_units (
    log     text NOT NULL,
    number  bigint NOT NULL,
    time    timestamptz NOT NULL DEFAULT now(),
    sha256  bytea NOT NULL,
    bytes   bytea NOT NULL,
    PRIMARY KEY (log, number)
);

-- Whole journals, which stand in the place of the units up to their number.
CREATE TABLE IF NOT EXISTS DECKLOG_SCHEMA.shared_bases (
    log     text NOT NULL,
    number  bigint NOT NULL,
    time    timestamptz NOT NULL DEFAULT now(),
    parts   integer NOT NULL,
    writer  text NOT NULL,             -- whose parts they are
    PRIMARY KEY (log, number)
);
CREATE TABLE IF NOT EXISTS DECKLOG_SCHEMA.shared_parts (
    log     text NOT NULL,
    number  bigint NOT NULL,
    writer  text NOT NULL,
    part    integer NOT NULL,
    bytes   bytea NOT NULL,
    PRIMARY KEY (log, number, writer, part)
);

INSERT INTO DECKLOG_SCHEMA.migrations (version) VALUES (DECKLOG_VERSION) ON CONFLICT DO NOTHING;

-- All that the sink's user needs, if somebody else owns the tables.
GRANT USAGE ON SCHEMA DECKLOG_SCHEMA TO DECKLOG_USER;
GRANT SELECT ON DECKLOG_SCHEMA.migrations TO DECKLOG_USER;
GRANT SELECT, INSERT ON DECKLOG_SCHEMA.entries TO DECKLOG_USER;
GRANT SELECT, INSERT, UPDATE ON DECKLOG_SCHEMA.cursors TO DECKLOG_USER;
GRANT SELECT, INSERT, UPDATE, DELETE ON DECKLOG_SCHEMA.objects TO DECKLOG_USER;
GRANT SELECT, INSERT, UPDATE ON DECKLOG_SCHEMA.shared_logs TO DECKLOG_USER;
GRANT SELECT, INSERT, DELETE ON DECKLOG_SCHEMA.shared_units TO DECKLOG_USER;
GRANT SELECT, INSERT, DELETE ON DECKLOG_SCHEMA.shared_bases TO DECKLOG_USER;
GRANT SELECT, INSERT, UPDATE, DELETE ON DECKLOG_SCHEMA.shared_parts TO DECKLOG_USER;

COMMIT;
