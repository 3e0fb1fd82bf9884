-- A database as the program of 2026-11-25 left it: it must open for ever.
PRAGMA foreign_keys = OFF; -- Tables are in the order of their names.
CREATE TABLE appliances (
    id         TEXT PRIMARY KEY,
    site       TEXT NOT NULL REFERENCES sites (id),
    weight     INTEGER NOT NULL,
    usable     INTEGER, -- bytes; NULL until first reported
    generation INTEGER, -- of its newest manifest; NULL before the first
    digest     BLOB     -- of the same
, cloned INTEGER NOT NULL DEFAULT 0,
    machine TEXT, drives TEXT, addresses TEXT NOT NULL DEFAULT '[]',
    drain_from INTEGER, drain_until INTEGER) STRICT, WITHOUT ROWID;
INSERT INTO "appliances"
VALUES('a1','s1',2,1000000,1790000000,X'0303030303030303030303030303030303030303030303030303030303030303',
    0,'m1','["d1"]','[]',100,NULL);
CREATE TABLE audit (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    at      INTEGER NOT NULL, -- seconds since 1970
    token   TEXT,             -- id of the token; NULL for nobody, and where all is open
    name    TEXT,             -- its name then: the token may be gone
    role    TEXT,             -- NULL for nobody
    peer    TEXT,             -- address that asked; NULL for the command line
    method  TEXT NOT NULL,
    route   TEXT NOT NULL,
    target  TEXT NOT NULL,
    outcome INTEGER,          -- HTTP status; NULL while under way, and for ever after a crash
    summary TEXT NOT NULL
) STRICT;
INSERT INTO "audit" 
VALUES(1,60,NULL,'ops','admin',NULL,'PUT','/v1/policy','/v1/policy',200,'copies 3');
CREATE TABLE codes (
    hash    TEXT PRIMARY KEY, -- SHA-256 of the secret, hex
    kind    TEXT NOT NULL,
    name    TEXT NOT NULL,
    expires INTEGER NOT NULL, -- seconds since 1970
    used_at INTEGER
) STRICT, WITHOUT ROWID;
CREATE TABLE entries (
    version TEXT NOT NULL REFERENCES versions (id) ON DELETE CASCADE,
    path    TEXT NOT NULL,
    format  TEXT NOT NULL,
    text    TEXT NOT NULL,
    PRIMARY KEY (version, path)
) STRICT, WITHOUT ROWID;
INSERT INTO "entries" VALUES('film-1','m.mpd','dash','<MPD/>');
CREATE TABLE files (
    version      TEXT NOT NULL REFERENCES versions (id) ON DELETE CASCADE,
    path         TEXT NOT NULL,
    object       BLOB NOT NULL REFERENCES objects (id),
    content_type TEXT NOT NULL,
    PRIMARY KEY (version, path)
) STRICT, WITHOUT ROWID;
INSERT INTO "files"
VALUES('film-1','v.mp4',X'0707070707070707070707070707070707070707070707070707070707070707','video/mp4');
CREATE TABLE identities (
    serial     TEXT PRIMARY KEY, -- lower-case hex
    kind       TEXT NOT NULL,    -- appliance, front
    name       TEXT NOT NULL,
    key        TEXT NOT NULL,    -- SHA-256 of the public key, hex
    machine    TEXT NOT NULL,    -- what it said of itself at enrolment
    software   TEXT NOT NULL,
    issued     INTEGER NOT NULL, -- seconds since 1970
    expires    INTEGER NOT NULL,
    revoked_at INTEGER           -- NULL while it is good
) STRICT, WITHOUT ROWID;
CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO "meta" VALUES('copies',3);
INSERT INTO "meta" VALUES('generation',1790000000);
INSERT INTO "meta" VALUES('replica_digest',0);
INSERT INTO "meta" VALUES('replica_generation',0);
INSERT INTO "meta" VALUES('versions_kept',2);
CREATE TABLE objects (
    id     BLOB PRIMARY KEY,
    len    INTEGER NOT NULL,
    blocks BLOB NOT NULL -- 32 bytes per 256 KiB
) STRICT;
INSERT INTO "objects"
VALUES(X'0707070707070707070707070707070707070707070707070707070707070707',5,
X'0808080808080808080808080808080808080808080808080808080808080808');
CREATE TABLE public_assets (
    asset TEXT PRIMARY KEY
) STRICT, WITHOUT ROWID;
INSERT INTO "public_assets" VALUES('film');
CREATE TABLE receipts (
    withdrawal INTEGER NOT NULL REFERENCES withdrawals (id) ON DELETE CASCADE,
    appliance  TEXT NOT NULL,
    at         INTEGER,
    generation INTEGER,
    PRIMARY KEY (withdrawal, appliance)
) STRICT, WITHOUT ROWID;
CREATE TABLE revoked_sessions (
    session TEXT PRIMARY KEY,
    until   INTEGER NOT NULL -- seconds since 1970: all that was given to it has ended by itself
) STRICT, WITHOUT ROWID;
CREATE TABLE sites (
    id       TEXT PRIMARY KEY,
    prefixes TEXT NOT NULL -- JSON list
, about TEXT NOT NULL DEFAULT '{}') STRICT, WITHOUT ROWID;
INSERT INTO "sites" VALUES('s1','["10.0.0.0/8"]','{}');
CREATE TABLE tokens (
    id        TEXT PRIMARY KEY, -- the part of the token that is no secret
    name      TEXT NOT NULL,
    role      TEXT NOT NULL,
    hash      BLOB NOT NULL,    -- SHA-256 of the secret part
    created   INTEGER NOT NULL, -- seconds since 1970
    last_used INTEGER           -- the same, down to the hour; NULL until first used
) STRICT, WITHOUT ROWID;
INSERT INTO "tokens"
VALUES('0123456789ab','ops','admin',X'0909090909090909090909090909090909090909090909090909090909090909',60,NULL);
CREATE TABLE versions (
    id       TEXT PRIMARY KEY,
    asset    TEXT NOT NULL,
    sequence INTEGER NOT NULL UNIQUE, -- the highest of an asset is its current version
    modified INTEGER NOT NULL,        -- seconds since 1970
    sources  TEXT NOT NULL            -- JSON list
, shown_from INTEGER, shown_until INTEGER) STRICT, WITHOUT ROWID;
INSERT INTO "versions" VALUES('film-1','film',4,77,'["https://origin.example/"]',50,NULL);
CREATE TABLE withdrawals (
    id     INTEGER PRIMARY KEY AUTOINCREMENT,
    at     INTEGER NOT NULL, -- seconds since 1970
    reason TEXT NOT NULL     -- operator, ended
) STRICT;
CREATE TABLE withdrawn (
    version    TEXT PRIMARY KEY,
    asset      TEXT NOT NULL,
    withdrawal INTEGER NOT NULL,
    at         INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX withdrawn_by_withdrawal ON withdrawn (withdrawal);
CREATE INDEX files_by_object ON files (object);
PRAGMA user_version = 10;
