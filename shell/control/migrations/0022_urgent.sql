-- Versions that appliances fetch before all others, and outside of fill windows too: until then, in
-- seconds since 1970, or until an operator says otherwise.
CREATE TABLE urgent (
    version TEXT PRIMARY KEY,
    until   INTEGER
) STRICT;

-- Most that an appliance fetches of them outside of windows, in bits per second.
INSERT INTO meta (key, value) VALUES ('fill_urgent_bps', 100000000);
