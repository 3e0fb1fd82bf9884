-- What is known of an appliance besides where it stands: profile, what it is able to do, tags. A
-- JSON object, of which all may be left out.
ALTER TABLE appliances ADD COLUMN about TEXT NOT NULL DEFAULT '{}';

-- What machines of each profile are able to do: bits per second and bytes, 0 for unknown.
INSERT INTO meta (key, value) VALUES
    ('flash_throughput_bps', 90000000000),
    ('flash_capacity_bytes', 16000000000000),
    ('flash_fill_bps', 300000000),
    ('storage_throughput_bps', 200000000000),
    ('storage_capacity_bytes', 120000000000000),
    ('storage_fill_bps', 1200000000),
    ('global_throughput_bps', 80000000000),
    ('global_capacity_bytes', 60000000000000),
    ('global_fill_bps', 400000000);
