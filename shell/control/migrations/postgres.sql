-- What a database of PostgreSQL has before all migrations. Run at each start, by one at a time.
DO $$ BEGIN PERFORM pg_advisory_xact_lock(7236328); END $$;

-- How many migrations were done.
CREATE TABLE IF NOT EXISTS schema_version (version BIGINT NOT NULL);
INSERT INTO schema_version SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM schema_version);
