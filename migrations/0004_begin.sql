-- A sink that is to begin at a seq which the log does not have yet: what comes before it is not for that sink.
ALTER TABLE sink ADD COLUMN begins INTEGER NOT NULL DEFAULT 0;
