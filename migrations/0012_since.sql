-- Since when a source is known: when its first list was recorded, microseconds since 1970. Of what was before that nothing is
-- known. It is 0 for a source that was known before this was noted.
ALTER TABLE source ADD COLUMN good_since INTEGER;
UPDATE source SET good_since = 0 WHERE good_at IS NOT NULL;
