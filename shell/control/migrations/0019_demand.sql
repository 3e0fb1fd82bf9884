-- What viewers were sent of each item, by region: hours of late, and days of some weeks. A region
-- is a manifest cluster, or '-', all sites that are in none.
CREATE TABLE demand (
    region TEXT NOT NULL,
    is_day INTEGER NOT NULL, -- 1: the day that begins with this hour
    hour   INTEGER NOT NULL, -- since 1970, UTC
    sums   BLOB NOT NULL,    -- as popularity::Sums encodes them
    PRIMARY KEY (region, is_day, hour)
) STRICT;

-- The number of the last part of an appliance's demand that is in there: it and those before it are
-- not counted again.
ALTER TABLE appliances ADD COLUMN demand_counted INTEGER NOT NULL DEFAULT 0;
