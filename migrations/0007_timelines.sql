-- Which journal's name entries carry from which seq on. A journal that was put back from an older copy begins another
-- name, an epoch; names sort by their beginning. Of epochs before this table only the last is known.
CREATE TABLE epoch (
    name  TEXT PRIMARY KEY,
    since INTEGER NOT NULL           -- the first seq that carries it
) STRICT, WITHOUT ROWID;
INSERT INTO epoch
SELECT e.value, coalesce((SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'epoch_since'), 1)
FROM meta e WHERE e.key = 'epoch';

-- Entries that one sink gets under the name of a later epoch. Its output had given their epoch and seq to other entries, of
-- a journal that was put back since, before that could be found out.
CREATE TABLE recast (
    sink   TEXT NOT NULL,
    after  INTEGER NOT NULL,         -- entries after this seq …
    before INTEGER NOT NULL,         -- … and before this one
    epoch  TEXT NOT NULL,
    PRIMARY KEY (sink, after)
) STRICT, WITHOUT ROWID;
