-- What `churn` needs beside the log.

-- Changes that `ignore` kept out of the log, over the life of the journal.
ALTER TABLE source ADD COLUMN withheld INTEGER NOT NULL DEFAULT 0;

-- Stretches of time, at most some minutes long, over which the API server's own request counters were read without a
-- break. Only where [cluster] request_metrics asks for it; the oldest are dropped after about a week.
CREATE TABLE reading (
    id    INTEGER PRIMARY KEY,
    since INTEGER NOT NULL,          -- microseconds since 1970
    until INTEGER NOT NULL
) STRICT;

-- Requests of one stretch that changed a resource and were granted, by verb (POST, PUT, PATCH, APPLY, DELETE,
-- DELETECOLLECTION). In stretch 0 is the sum over the life of the journal. The verb 'withheld' counts versions that
-- `ignore` kept out of the log meanwhile; in stretch 0 it is how many that were at the last reading.
CREATE TABLE request (
    reading  INTEGER NOT NULL,
    resource INTEGER NOT NULL REFERENCES resource (id),
    verb     TEXT NOT NULL,
    count    INTEGER NOT NULL,
    PRIMARY KEY (reading, resource, verb)
) STRICT, WITHOUT ROWID;
