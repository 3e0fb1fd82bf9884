-- Who fetches from origins: how many of a fill cluster, and after how many seconds without an
-- object the others ask other clusters, and origins.
INSERT INTO meta (key, value) VALUES
    ('fill_masters', 1),
    ('fill_elsewhere_after_s', 300),
    ('fill_origin_after_s', 900);
