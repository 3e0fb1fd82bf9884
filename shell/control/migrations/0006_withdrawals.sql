-- When a version may be shown: seconds since 1970; NULL for no such time.
ALTER TABLE versions ADD COLUMN shown_from INTEGER;
ALTER TABLE versions ADD COLUMN shown_until INTEGER;

-- What was taken down, as far as it is listed.
CREATE TABLE withdrawals (
    id     INTEGER PRIMARY KEY AUTOINCREMENT,
    at     INTEGER NOT NULL, -- seconds since 1970
    reason TEXT NOT NULL     -- operator, ended
) STRICT;

-- Every version that was taken down, also of withdrawals that are not listed any more: without an
-- operator's word it is not ingested again.
CREATE TABLE withdrawn (
    version    TEXT PRIMARY KEY,
    asset      TEXT NOT NULL,
    withdrawal INTEGER NOT NULL,
    at         INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX withdrawn_by_withdrawal ON withdrawn (withdrawal);

-- Who refuses it. A row without a time is awaited.
CREATE TABLE receipts (
    withdrawal INTEGER NOT NULL REFERENCES withdrawals (id) ON DELETE CASCADE,
    appliance  TEXT NOT NULL,
    at         INTEGER,
    generation INTEGER,
    PRIMARY KEY (withdrawal, appliance)
) STRICT, WITHOUT ROWID;

-- An object goes with the last version that has it.
CREATE INDEX files_by_object ON files (object);
