-- What fronts were given last: the generation of their snapshot, and 63 bits of its digest, so that
-- a restart with the same desired state gives them nothing new.
INSERT INTO meta (key, value) VALUES ('replica_generation', 0), ('replica_digest', 0);
