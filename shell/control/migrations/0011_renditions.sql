-- The rendition of each of a version's files, a byte for each in the order of their paths: 0 for
-- none. Empty where they cannot be told apart.
ALTER TABLE versions ADD COLUMN renditions BLOB NOT NULL DEFAULT x'';
