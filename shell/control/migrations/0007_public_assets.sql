-- An asset is public until its last version goes. Older programs kept the names of those whose last
-- version had been withdrawn, so that they would have come again without a grant.
DELETE FROM public_assets WHERE asset NOT IN (SELECT asset FROM versions);
