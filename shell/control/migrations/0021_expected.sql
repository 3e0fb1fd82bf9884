-- What viewers of each region are expected to watch, as it was forecast last. A region is named as
-- in demand; items are 20 bytes each, in little endian: the item, the bytes of a day, the bits per
-- second of its busiest hour.
CREATE TABLE expected (
    region TEXT PRIMARY KEY,
    items  BLOB NOT NULL
) STRICT;

-- When it was due, in seconds since 1970; 0 if nothing was forecast yet.
INSERT INTO meta (key, value) VALUES ('expected_unix', 0);
