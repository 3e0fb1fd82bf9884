-- What is known of a site besides its prefixes: kind, place, whom it serves. A JSON object, of
-- which all may be left out.
ALTER TABLE sites ADD COLUMN about TEXT NOT NULL DEFAULT '{}';
