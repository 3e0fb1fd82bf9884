-- What a database of PostgreSQL has before all migrations. Run at each start, by one at a time.
DO $$ BEGIN PERFORM pg_advisory_xact_lock(7236328); END $$;

-- How many migrations were done.
CREATE TABLE IF NOT EXISTS schema_version (version BIGINT NOT NULL);
INSERT INTO schema_version SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM schema_version);

-- Which writer leads. The epoch is the key, so that who takes over waits for transactions of the
-- writer before, which have looked at it, and a renewal waits for nobody.
CREATE TABLE IF NOT EXISTS lease (
    epoch   BIGINT PRIMARY KEY,
    holder  TEXT NOT NULL,       -- the process: other each time it is started
    address TEXT NOT NULL,       -- for people
    until   TIMESTAMPTZ NOT NULL -- by the clock of this server
);
INSERT INTO lease SELECT 0, '', '', '-infinity' WHERE NOT EXISTS (SELECT 1 FROM lease);

-- The fleet's secrets, each sealed with the key that both writers have in their folders.
CREATE TABLE IF NOT EXISTS secrets (
    name   TEXT PRIMARY KEY, -- of the file in the folder
    sealed BYTEA NOT NULL
);
