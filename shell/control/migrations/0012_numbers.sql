-- Files have numbers, by which appliances say what they hold: those of a version in one range, in
-- the order of their objects' ids, each object once. No number is given twice.
ALTER TABLE versions ADD COLUMN first_file INTEGER;

UPDATE versions SET first_file = placed.first FROM (
    SELECT id, sum(files) OVER (ORDER BY sequence) - files AS first FROM (
        SELECT v.id, v.sequence, count(DISTINCT f.object) AS files
        FROM versions v LEFT JOIN files f ON f.version = v.id GROUP BY v.id, v.sequence
    ) AS counted
) AS placed WHERE placed.id = versions.id;

INSERT INTO meta (key, value)
SELECT 'next_file', count(*) FROM (SELECT DISTINCT version, object FROM files) AS given;
