-- Desired state only. What appliances report is in memory and never comes here, but for two
-- things that a restart must not forget: what drives can hold (placement counts with it), and
-- which manifest has which generation.

CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO meta (key, value) VALUES ('generation', 0), ('copies', 2), ('versions_kept', 2);

CREATE TABLE sites (
    id       TEXT PRIMARY KEY,
    prefixes TEXT NOT NULL -- JSON list
) STRICT, WITHOUT ROWID;

CREATE TABLE appliances (
    id         TEXT PRIMARY KEY,
    site       TEXT NOT NULL REFERENCES sites (id),
    weight     INTEGER NOT NULL,
    usable     INTEGER, -- bytes; NULL until first reported
    generation INTEGER, -- of its newest manifest; NULL before the first
    digest     BLOB     -- of the same
) STRICT, WITHOUT ROWID;

CREATE TABLE versions (
    id       TEXT PRIMARY KEY,
    asset    TEXT NOT NULL,
    sequence INTEGER NOT NULL UNIQUE, -- the highest of an asset is its current version
    modified INTEGER NOT NULL,        -- seconds since 1970
    sources  TEXT NOT NULL            -- JSON list
) STRICT, WITHOUT ROWID;

CREATE TABLE objects (
    id     BLOB PRIMARY KEY,
    len    INTEGER NOT NULL,
    blocks BLOB NOT NULL -- 32 bytes per 256 KiB
) STRICT;

CREATE TABLE files (
    version      TEXT NOT NULL REFERENCES versions (id) ON DELETE CASCADE,
    path         TEXT NOT NULL,
    object       BLOB NOT NULL REFERENCES objects (id),
    content_type TEXT NOT NULL,
    PRIMARY KEY (version, path)
) STRICT, WITHOUT ROWID;

CREATE TABLE entries (
    version TEXT NOT NULL REFERENCES versions (id) ON DELETE CASCADE,
    path    TEXT NOT NULL,
    format  TEXT NOT NULL,
    text    TEXT NOT NULL,
    PRIMARY KEY (version, path)
) STRICT, WITHOUT ROWID;
