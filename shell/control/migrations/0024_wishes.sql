-- What operators say of versions. Pins and bans: 'pin' or 'ban', of a place: '' for everywhere,
-- 'cluster NAME' or 'site NAME', until then in seconds since 1970 or until an operator says
-- otherwise.
CREATE TABLE placement_rules (
    version TEXT NOT NULL,
    place   TEXT NOT NULL,
    kind    TEXT NOT NULL,
    until   INTEGER,
    PRIMARY KEY (version, place)
) STRICT;

-- Versions that begin: by so many bytes a day, or like another version: 'first' for its first days,
-- 'present' for those of now.
CREATE TABLE launches (
    version    TEXT PRIMARY KEY,
    begins     INTEGER NOT NULL,
    day_bytes  INTEGER,
    other      TEXT,
    other_days TEXT
) STRICT;
