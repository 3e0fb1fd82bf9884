-- Where the writer that leads has its documents, for one that stands by: twice the epoch of its
-- lease, and one more if in a place beside the database; below 0 before any has said so.
INSERT INTO meta (key, value) VALUES ('leader_documents', -1);
