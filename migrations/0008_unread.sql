-- Objects that a list has and that are too large to be kept: which versions of which, so that each is a gap once and no
-- audit takes it for a loss. `staged` is 1 while that list is in progress.
CREATE TABLE unread (
    source    INTEGER NOT NULL REFERENCES source (id),
    staged    INTEGER NOT NULL,
    namespace TEXT NOT NULL,
    name      TEXT NOT NULL,
    uid       TEXT NOT NULL,
    version   TEXT NOT NULL,
    PRIMARY KEY (source, staged, namespace, name)
) STRICT, WITHOUT ROWID;
