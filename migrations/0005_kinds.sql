-- A filter that asks for no more than a row tells need not have the entry put together. The kind is told by `facts`, which
-- say it as it is now: of entries before this seq it may have been another.
ALTER TABLE resource ADD COLUMN kind_since INTEGER NOT NULL DEFAULT 0;
UPDATE resource SET kind_since = (SELECT coalesce(max(seq), 0) + 1 FROM entry);
