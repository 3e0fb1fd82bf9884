-- Who may play. The names stand beside the catalogue: an asset stays public whatever becomes of its
-- versions, until an operator says otherwise.
CREATE TABLE public_assets (
    asset TEXT PRIMARY KEY
) STRICT, WITHOUT ROWID;

-- Playbacks that a service has ended.
CREATE TABLE revoked_sessions (
    session TEXT PRIMARY KEY,
    until   INTEGER NOT NULL -- seconds since 1970: all that was given to it has ended by itself
) STRICT, WITHOUT ROWID;
