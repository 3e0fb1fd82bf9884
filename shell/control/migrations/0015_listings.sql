-- The files of a version in one value, so that a start reads as many rows as there are versions.
-- NULL in a row of the program before, until a start of this one has listed them.
ALTER TABLE versions ADD COLUMN listing BLOB;
CREATE INDEX versions_not_listed ON versions (id) WHERE listing IS NULL;
