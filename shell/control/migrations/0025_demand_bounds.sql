-- Whose number `demand_counted` is: the key of an identity. If it is a time to come, the next
-- identity begins anew.
ALTER TABLE appliances ADD COLUMN demand_key TEXT NOT NULL DEFAULT '';

-- The last hour that was counted, since 1970, and when a part was counted of one that was not after
-- it, in seconds since 1970: of those one is counted in an hour.
ALTER TABLE appliances ADD COLUMN demand_hour INTEGER NOT NULL DEFAULT 0;
ALTER TABLE appliances ADD COLUMN demand_late INTEGER NOT NULL DEFAULT 0;
