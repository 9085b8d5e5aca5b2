-- The chain of records, in the schema that has the ledger's name.
CREATE TABLE record (
    seq bigint PRIMARY KEY,
    time bigint NOT NULL,
    kind text NOT NULL,
    hash bytea NOT NULL,
    body bytea NOT NULL
);

-- One row, which every append locks and moves: a tail that is cut off is missed.
CREATE TABLE head (
    count bigint NOT NULL,
    hash bytea NOT NULL
);

-- One row: the number of the last step that was taken.
CREATE TABLE format (
    version integer NOT NULL
);
