-- What the watches of a standby have brought beyond the shared log, in order, until the shared log has it. It belongs to one
-- life of the process, and to no other journal: the shared log does not have it.
CREATE TABLE backlog (
    id        INTEGER PRIMARY KEY,
    source    INTEGER NOT NULL,
    at        INTEGER NOT NULL,      -- when it was handed over, microseconds since 1970
    verb      INTEGER NOT NULL,      -- 0 is there, 1 deleted, 2 a bookmark
    namespace TEXT NOT NULL,
    name      TEXT NOT NULL,
    uid       TEXT NOT NULL,
    version   TEXT NOT NULL,
    body      BLOB,                  -- compressed object
    marks     TEXT,
    pointers  TEXT
) STRICT;
