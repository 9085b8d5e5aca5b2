"""Participation and availability logs as files, as platforms write them.

`source` reads the bytes once and tells what was understood. `csv`, `json` and `parquet` turn them into a `table`
of text, or into lists of users. `table` guesses which of its `columns` says what, `layouts` makes rows of it, and
`rows` makes the log. From Coterie's own JSON lines all of a log comes back.

In: a file as some platform wrote it: CSV, JSON, Parquet.
Out: a `ParticipationLog` or an `AvailabilityLog`, and what was understood.
"""

import os
from dataclasses import replace
from pathlib import Path

from coterie.errors import UsageError
from coterie.files import atomic_write
from coterie.leakage.readers.columns import Choice
from coterie.leakage.readers.csv import csv_table, write_csv
from coterie.leakage.readers.json import (
    has_head,
    has_lines,
    is_json,
    read_json,
    read_json_lines,
    read_lines,
    write_lines,
)
from coterie.leakage.readers.layouts import content_log
from coterie.leakage.readers.parquet import Columns, is_parquet, write_parquet
from coterie.leakage.readers.rows import availability_log, check_log
from coterie.leakage.readers.source import LogFile, Source, Understanding, read_source
from coterie.values import AvailabilityLog, ParticipationLog

__all__ = ["LogFile", "Understanding", "online_record", "read_availability", "read_log", "write_log"]

WRITTEN = {".csv": write_csv, ".parquet": write_parquet, ".jsonl": write_lines}


def read_log(
    path: str | os.PathLike[str],
    *,
    users: int | None = None,
    rounds: int | None = None,
    round_column: str | None = None,
    user_column: str | None = None,
    delimiter: str | None = None,
) -> LogFile:
    r"""Read a participation log of any platform, and say what was understood of it.

    CSV (with commas, semicolons, tabs, bars or blanks), JSON, JSON lines or Parquet, packed with gzip or not;
    `"-"` is standard input. The log may be long (a row for each user and round; other columns are ignored),
    wide (a column for each user and a row for each round, with 0 and 1, true and false, or x), or have all users
    of a round in a list. Where names of columns are guessed wrongly, `round_column` and `user_column` name them,
    or give their number, counted from 1; `delimiter` says what parts the fields. Rounds are integers of 0 or
    more; times are grouped into rounds by a rule that `understanding` tells. Rows that say the same count once,
    with a warning.

    JSON lines that `write_log` wrote name all users and rounds, a wide file all users. Any other file cannot
    show users who never took part, nor rounds without a result before its first round or after its last.
    `users` says how many users there are: if all names are integers from 0 to users - 1 they are the users'
    numbers and the log has no names; otherwise the users that the file does not name come last, as `unseen-1`,
    `unseen-2` and so on. `rounds` says how many rounds there were, counted from the first in the file. Named
    users come in numeric order if all names are integers, else in lexicographic order; those of a wide file in
    the order of its columns.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "log.csv"
    ...     _ = file.write_text("server_round;cid;loss\n3;bob;0,5\n3;alice;0,4\n5;bob;0,3\n")
    ...     read = read_log(file, users=3, rounds=10)
    >>> read.log, read.log.first, read.log.names
    (ParticipationLog(3 users, 10 rounds, 2 learned sets), 3, ('alice', 'bob', 'unseen-1'))
    >>> print(*read.understanding.sentences(), sep="\n")
    CSV with semicolons, a row for each user and round: rounds from the column 'server_round', users from 'cid'.
    A round: the number in the column 'server_round'.
    Not used: loss.
    """
    source = read_source(path)
    log, understanding = _read(source, Choice(round_column, user_column, delimiter, users, rounds))
    return LogFile(log, replace(understanding, compression=source.compression), source.name, source.sha256)


def read_availability(
    path: str | os.PathLike[str],
    users: int | None = None,
    *,
    round_column: str | None = None,
    user_column: str | None = None,
    delimiter: str | None = None,
) -> AvailabilityLog:
    """Read who was online when, from a file of any form that `read_log` reads: a row per user online and round.

    Users, names and options are as in `read_log`. The record goes from the first round in the file to the last.
    A gap between them is refused unless the file is wide: a round that was not recorded looks like one with
    nobody online.
    """
    return online_record(
        read_log(path, users=users, round_column=round_column, user_column=user_column, delimiter=delimiter)
    )


def online_record(read: LogFile) -> AvailabilityLog:
    """Return a log that was read as a record of who was online when; see `read_availability`."""
    if read.understanding.set_column is not None:
        raise UsageError(
            f"{read.name} has the column {read.understanding.set_column!r}; a record of who was online has one "
            "row for each user and round: remove it"
        )
    return availability_log(read.name, read.log, gaps_allowed=read.understanding.form in {"wide", "transposed"})


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
    ...     file.read_text().split(), read_log(file, users=3).log == log
    (['round,user', '0,0', '0,1', '1,1', '1,2'], True)
    """
    suffix = Path(path).suffix.lower()
    if suffix not in WRITTEN:
        raise UsageError(f"{path}: the name of a log must end in {' or '.join(WRITTEN)}, not in {suffix!r}")
    check_log(log)
    with atomic_write(path) as file:
        WRITTEN[suffix](log, file)


def _read(source: Source, choice: Choice) -> tuple[ParticipationLog, Understanding]:
    """Make a log of a file's content, whatever its form is."""
    if choice.delimiter is not None and (is_parquet(source) or is_json(source)):
        kind = "Parquet" if is_parquet(source) else "JSON"
        raise UsageError(f"{source.name} is {kind}, on which --delimiter has no effect; leave it out")
    if is_parquet(source):
        return content_log(Columns(source).table(), choice)
    if not is_json(source):
        return content_log(csv_table(source, choice), choice)
    if not has_lines(source):
        return content_log(read_json(source, choice), choice)
    if has_head(source):
        return read_lines(source, choice), Understanding("JSON lines", "sets", "", exact=True)
    return content_log(read_json_lines(source, choice), choice)
