-- The items that an appliance should hold by its newest manifest: a Roaring bitmap in its portable
-- format. None where a program of before made that manifest.
ALTER TABLE appliances ADD COLUMN items BLOB;
