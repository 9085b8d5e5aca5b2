"""Participation and availability logs as files: CSV and Parquet, in the long form (a row per user and round).

`csv` and `parquet` turn a file into `rows.Rows` and a log into a file; `rows` turns the rows of either into
a log, so that both forms mean the same and refuse the same. `lines` are JSON lines, a learned set in each, which
can tell what rows cannot; `wide` reads CSV with a column for each user.
"""

import os
from pathlib import Path

from coterie.errors import UsageError
from coterie.logs.csv import read_csv, write_csv
from coterie.logs.lines import read_lines, write_lines
from coterie.logs.parquet import read_parquet, write_parquet
from coterie.logs.rows import Rows, availability_log, check_log, participation_log
from coterie.logs.wide import is_wide, read_wide
from coterie.storage.files import atomic_write
from coterie.values import AvailabilityLog, ParticipationLog

__all__ = ["read_availability", "read_log", "write_log"]

ROWS = (".csv", ".parquet")
LOGS = (*ROWS, ".jsonl")


def read_log(
    path: str | os.PathLike[str], users: int | None = None, rounds: int | None = None
) -> ParticipationLog:
    r"""Read a participation log from a `.csv`, `.parquet` or `.jsonl` file.

    The columns are `round` (an integer, 0 or more) and `user` (a name), and `set` (an integer, 0 or more)
    where a round has several learned sets. Columns and rows may come in any order. A CSV file may also be wide:
    `round` and a column of 0 and 1 for each user, a row for each learned set.

    JSON lines that `write_log` wrote tell all users and rounds, a wide file all users. Any other file cannot
    show users who never took part, nor rounds without a result before its first round or after its last.
    `users` says how many users there are: if all names are integers from 0 to users - 1 they are the users'
    numbers and the log has no names; otherwise the users that the file does not name come last, as `unseen-1`,
    `unseen-2` and so on. `rounds` says how many rounds there were, counted from the first in the file. Named
    users come in numeric order if all names are integers, else in lexicographic order; those of a wide file in
    the order of its columns.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "log.csv"
    ...     _ = file.write_text("round,user\n3,bob\n3,alice\n5,bob\n")
    ...     log = read_log(file, users=3, rounds=10)
    >>> log, log.first, log.names
    (ParticipationLog(3 users, 10 rounds, 2 learned sets), 3, ('alice', 'bob', 'unseen-1'))
    """
    suffix = _suffix(Path(path), LOGS)
    if suffix == ".jsonl":
        return read_lines(Path(path), users, rounds)
    if suffix == ".csv" and is_wide(Path(path)):
        return read_wide(Path(path), users, rounds)
    return participation_log(_read(Path(path), ("round", "user", "set")), users, rounds)


def read_availability(path: str | os.PathLike[str], users: int | None = None) -> AvailabilityLog:
    """Read who was online when from a `.csv` or `.parquet` file: a row per user online and round.

    The columns are `round` and `user`. Users, names and `users` are as in `read_log`; the record goes from
    the first round in the file to the last, and a gap between them is refused: a round that was not recorded
    cannot be told from one with nobody online.
    """
    _suffix(Path(path), ROWS)
    return availability_log(_read(Path(path), ("round", "user")), users)


def write_log(log: ParticipationLog, path: str | os.PathLike[str]) -> None:
    """Write a participation log to a `.csv`, `.parquet` or `.jsonl` file, whole or not at all.

    From JSON lines `read_log` gives all of the log back. In the others a user without a name is written as its
    number, and the column `set` only if a round has several learned sets; `read_log(path, users=log.users)`
    gives the log back, except for what the file cannot show: users who never took part lose their names, rounds
    without a result at either end are lost (`rounds` gives those at the end back), and names that are all
    numbers below `users` are read as numbers.

    >>> import tempfile
    >>> log = ParticipationLog.from_dense([[1, 1, 0], [0, 1, 1]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "log.csv"
    ...     write_log(log, file)
    ...     file.read_text().split(), read_log(file, users=3) == log
    (['round,user', '0,0', '0,1', '1,1', '1,2'], True)
    """
    suffix = _suffix(Path(path), LOGS)
    check_log(log)
    with atomic_write(path) as file:
        if suffix == ".csv":
            write_csv(log, file)
        elif suffix == ".jsonl":
            write_lines(log, file)
        else:
            write_parquet(log, file)


def _read(path: Path, columns: tuple[str, ...]) -> Rows:
    return read_csv(path, columns) if path.suffix.lower() == ".csv" else read_parquet(path, columns)


def _suffix(path: Path, known: tuple[str, ...]) -> str:
    suffix = path.suffix.lower()
    if suffix not in known:
        forms = " or ".join(known)
        raise UsageError(f"{path}: the name of a log must end in {forms}, not in {suffix!r}")
    return suffix
