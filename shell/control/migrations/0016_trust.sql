-- The newest trust document: its generation, and a digest of all else in it.
INSERT INTO meta (key, value) VALUES ('trust_generation', 0), ('trust_digest', 0);
