-- Who has an identity: a row per certificate, until it has expired. All certificates of one
-- identity have the same key; a new one-time code makes a new identity.
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

-- One-time codes. Those that were used or have expired stay for some days, so that whoever comes
-- with one is told why it is refused.
CREATE TABLE codes (
    hash    TEXT PRIMARY KEY, -- SHA-256 of the secret, hex
    kind    TEXT NOT NULL,
    name    TEXT NOT NULL,
    expires INTEGER NOT NULL, -- seconds since 1970
    used_at INTEGER
) STRICT, WITHOUT ROWID;

-- What is remembered of each appliance's hardware, so that a clone and a moved disk are seen.
ALTER TABLE appliances ADD COLUMN cloned INTEGER NOT NULL DEFAULT 0;
ALTER TABLE appliances ADD COLUMN machine TEXT; -- NULL until first reported under this identity
ALTER TABLE appliances ADD COLUMN drives TEXT;  -- JSON list of UUIDs
