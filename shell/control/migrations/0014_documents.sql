-- Block hashes may be in documents beside the database, each named by its BLAKE3 hash. Then an
-- object's row says in which one, and how many hashes stand before its own there.
CREATE TABLE documents (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    digest  BLOB NOT NULL UNIQUE,
    unnamed INTEGER -- since when no object is in it, seconds since 1970; NULL while one is
) STRICT;

ALTER TABLE objects ADD COLUMN document INTEGER; -- NULL: the hashes are in this row
ALTER TABLE objects ADD COLUMN first_hash INTEGER;

CREATE INDEX objects_by_document ON objects (document);

-- A random number that the place of documents has too, so that it belongs to one database; below 0
-- while it may not be there yet.
INSERT INTO meta (key, value) VALUES ('documents', 0);
