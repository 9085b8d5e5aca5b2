-- The chain of records. The body is last: reading the other columns need not read the pages it overflows to.
CREATE TABLE record (
    seq INTEGER PRIMARY KEY,
    time INTEGER NOT NULL,
    kind TEXT NOT NULL,
    hash BLOB NOT NULL,
    body BLOB NOT NULL
);

-- One row, which every append moves in its transaction: a tail that is cut off is missed.
CREATE TABLE head (
    count INTEGER NOT NULL,
    hash BLOB NOT NULL
);
