-- Who may use the API, and who did. Tokens are kept as hashes: a stolen database opens nothing.

CREATE TABLE tokens (
    id        TEXT PRIMARY KEY, -- the part of the token that is no secret
    name      TEXT NOT NULL,
    role      TEXT NOT NULL,
    hash      BLOB NOT NULL,    -- SHA-256 of the secret part
    created   INTEGER NOT NULL, -- seconds since 1970
    last_used INTEGER           -- the same, down to the hour; NULL until first used
) STRICT, WITHOUT ROWID;

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
