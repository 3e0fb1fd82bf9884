-- When an appliance is to be drained: seconds since 1970. The first is NULL for no drain, the
-- second for one without an end.
ALTER TABLE appliances ADD COLUMN drain_from INTEGER;
ALTER TABLE appliances ADD COLUMN drain_until INTEGER;
