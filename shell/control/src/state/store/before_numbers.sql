-- What the program before numbers wrote, which must open for ever: three versions, of which two
-- share an object, and two appliances with a generation each.
PRAGMA foreign_keys = OFF;
CREATE TABLE appliances (
    id         TEXT PRIMARY KEY,
    site       TEXT NOT NULL REFERENCES sites (id),
    weight     INTEGER NOT NULL,
    usable     INTEGER, -- bytes; NULL until first reported
    generation INTEGER, -- of its newest manifest; NULL before the first
    digest     BLOB     -- of the same
, cloned INTEGER NOT NULL DEFAULT 0
, machine TEXT, drives TEXT, addresses TEXT NOT NULL DEFAULT '[]'
, drain_from INTEGER, drain_until INTEGER) STRICT, WITHOUT ROWID;
INSERT INTO "appliances" VALUES(
    'a1','s1',2,1000000,1795649180,
    X'A3551717951C05147606FF62427158F75C7CFA1E55B369A97355C6F0070D7D25',
    0,'m1','["d1"]','[]',100,NULL);
INSERT INTO "appliances" VALUES(
    'a2','s1',1,NULL,1795649181,
    X'A3551717951C05147606FF62427158F75C7CFA1E55B369A97355C6F0070D7D25',0,NULL,NULL,'[]',NULL,NULL);
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
INSERT INTO "audit" VALUES(
    1,60,NULL,'ops','admin',NULL,'PUT','/v1/policy','/v1/policy',200,'copies 3');
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
INSERT INTO "files" VALUES(
    'film-1','0.mp4',
    X'0909090909090909090909090909090909090909090909090909090909090909','video/mp4');
INSERT INTO "files" VALUES(
    'film-1','1.mp4',
    X'0303030303030303030303030303030303030303030303030303030303030303','video/mp4');
INSERT INTO "files" VALUES(
    'film-1','2.mp4',
    X'0707070707070707070707070707070707070707070707070707070707070707','video/mp4');
INSERT INTO "files" VALUES(
    'film-2','0.mp4',
    X'0101010101010101010101010101010101010101010101010101010101010101','video/mp4');
INSERT INTO "files" VALUES(
    'series-1','0.mp4',
    X'0303030303030303030303030303030303030303030303030303030303030303','video/mp4');
INSERT INTO "files" VALUES(
    'series-1','1.mp4',
    X'0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C','video/mp4');
INSERT INTO "files" VALUES(
    'series-1','2.mp4',
    X'0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C','video/mp4');
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
INSERT INTO "meta" VALUES('copies',2);
INSERT INTO "meta" VALUES('generation',1795649181);
INSERT INTO "meta" VALUES('replica_digest',0);
INSERT INTO "meta" VALUES('replica_generation',0);
INSERT INTO "meta" VALUES('versions_kept',2);
CREATE TABLE objects (
    id     BLOB PRIMARY KEY,
    len    INTEGER NOT NULL,
    blocks BLOB NOT NULL -- 32 bytes per 256 KiB
) STRICT;
INSERT INTO "objects" VALUES(
    X'0303030303030303030303030303030303030303030303030303030303030303',5003,
    X'0303030303030303030303030303030303030303030303030303030303030303');
INSERT INTO "objects" VALUES(
    X'0707070707070707070707070707070707070707070707070707070707070707',5007,
    X'0707070707070707070707070707070707070707070707070707070707070707');
INSERT INTO "objects" VALUES(
    X'0909090909090909090909090909090909090909090909090909090909090909',5009,
    X'0909090909090909090909090909090909090909090909090909090909090909');
INSERT INTO "objects" VALUES(
    X'0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C',5012,
    X'0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C');
INSERT INTO "objects" VALUES(
    X'0101010101010101010101010101010101010101010101010101010101010101',5001,
    X'0101010101010101010101010101010101010101010101010101010101010101');
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
INSERT INTO "sites" VALUES('s1','["10.0.0.0/8"]','{"kind":"exchange","place":"","open":false}');
CREATE TABLE tokens (
    id        TEXT PRIMARY KEY, -- the part of the token that is no secret
    name      TEXT NOT NULL,
    role      TEXT NOT NULL,
    hash      BLOB NOT NULL,    -- SHA-256 of the secret part
    created   INTEGER NOT NULL, -- seconds since 1970
    last_used INTEGER           -- the same, down to the hour; NULL until first used
) STRICT, WITHOUT ROWID;
INSERT INTO "tokens" VALUES(
    '0123456789ab','ops','admin',
    X'0909090909090909090909090909090909090909090909090909090909090909',60,NULL);
CREATE TABLE versions (
    id       TEXT PRIMARY KEY,
    asset    TEXT NOT NULL,
    sequence INTEGER NOT NULL UNIQUE, -- the highest of an asset is its current version
    modified INTEGER NOT NULL,        -- seconds since 1970
    sources  TEXT NOT NULL            -- JSON list
, shown_from INTEGER, shown_until INTEGER) STRICT, WITHOUT ROWID;
INSERT INTO "versions" VALUES(
    'film-1','film',1,1700000000,'["https://origin.example/film-1/"]',50,NULL);
INSERT INTO "versions" VALUES(
    'film-2','film',3,1700000200,'["https://origin.example/film-2/"]',NULL,NULL);
INSERT INTO "versions" VALUES(
    'series-1','series',2,1700000100,'["https://origin.example/series-1/"]',NULL,NULL);
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
