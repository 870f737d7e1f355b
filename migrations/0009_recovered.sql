-- What is recovered from the API server's own history is staged as a list is: versions, and deletions, whose body is empty
-- and whose version is that of the deletion.
ALTER TABLE listing ADD COLUMN gone INTEGER NOT NULL DEFAULT 0;
-- What `pending` is the version of: 0 a list, 1 a part of what is recovered, 2 its last part.
ALTER TABLE source ADD COLUMN recovering INTEGER NOT NULL DEFAULT 0;
-- Changes ever recovered, and those since the position was lost, which the next gap tells.
ALTER TABLE source ADD COLUMN recovered INTEGER NOT NULL DEFAULT 0;
ALTER TABLE source ADD COLUMN recovered_since INTEGER NOT NULL DEFAULT 0;
