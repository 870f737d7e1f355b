-- Why an object of a list or a watch could not be recorded, and a keyed digest of it where it has no name or no version, so that
-- objects without one, or several of one name, are told apart.
ALTER TABLE unread RENAME TO unread_before;
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
INSERT INTO unread (source, staged, namespace, name, uid, version)
    SELECT source, staged, namespace, name, uid, version FROM unread_before;
DROP TABLE unread_before;
