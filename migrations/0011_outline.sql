-- Outlines of entries, for the timeline page: when, of which object, of what sort, and who wrote, without what they say.
-- Part N is of the entries from seq N * 1024 + 1 on, and stands here once the log has all 1024 of them. It is made of the
-- entries alone, so it can be made again at any time: it does not travel to another journal, and nothing is lost with it.
CREATE TABLE outline (
    part INTEGER PRIMARY KEY,
    data BLOB NOT NULL
) STRICT;
