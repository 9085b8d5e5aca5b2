"""Logs as wide CSV: a column for each user, a row for each learned set, 0 and 1 in between.

The header is `round` and the users' names. A row of zeros is a round without a result, and a column of zeros a
user who never took part, so a wide file can show both. Several rows of one round are its learned sets.
"""

from pathlib import Path

import numpy as np

from coterie.errors import UsageError
from coterie.logs.csv import csv_header, csv_integers, csv_pieces, csv_rows
from coterie.logs.rows import name_problem, span, with_unseen
from coterie.values import IntArray, ParticipationLog

_CELLS = {"0", "1"}


def is_wide(path: Path) -> bool:
    """Say whether a CSV file is wide: a column `round`, none of the long form's, and 0 and 1 in the first row."""
    with csv_rows(path) as reader:
        header = csv_header(path, reader)
        if "round" not in header or {"user", "set"} & set(header) or len(header) == 1:
            return False
        _, rows = next(csv_pieces(path, reader, len(header)), (None, []))
        place = header.index("round")
        return bool(rows) and {*rows[0][:place], *rows[0][place + 1 :]} <= _CELLS


def read_wide(path: Path, users: int | None, rounds: int | None) -> ParticipationLog:
    """Read a log from a wide CSV file; `users` and `rounds` say of more than the file shows."""
    found_rounds, lines = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    sets: list[IntArray] = []
    with csv_rows(path) as reader:
        header = csv_header(path, reader)
        place = header.index("round")
        names = header[:place] + header[place + 1 :]
        _check_names(path, names, users)
        for piece_lines, rows in csv_pieces(path, reader, len(header)):
            found_rounds.append(csv_integers(path, "round", [row[place] for row in rows], piece_lines))
            lines.append(piece_lines)
            for line, row in zip(piece_lines.tolist(), rows, strict=True):
                sets.append(_members(path, line, row[:place] + row[place + 1 :], names))
    told, where = np.concatenate(found_rounds), np.concatenate(lines)
    first, length = span(path, told, rounds, lambda row: f"{path}, line {where[row]}")
    order = [index for index in np.argsort(told, kind="stable").tolist() if len(sets[index])]
    everyone = with_unseen(path, names, users)
    return ParticipationLog(
        users=len(everyone),
        rounds=length,
        set_rounds=told[order],
        starts=np.concatenate(([0], np.cumsum([len(sets[index]) for index in order], dtype=np.int64))),
        members=np.concatenate([sets[index] for index in order]) if order else np.zeros(0, dtype=np.int32),
        names=everyone,
        first=first,
    )


def _check_names(path: Path, names: list[str], users: int | None) -> None:
    for name in names:
        problem = name_problem(name)
        if problem:
            raise UsageError(f"{path}, line 1: {problem}")
    if len(set(names)) < len(names):
        twice = next(name for index, name in enumerate(names) if name in names[:index])
        raise UsageError(f"{path}, line 1: the user {twice!r} has two columns; give every user one")
    if users is not None and users < len(names):
        raise UsageError(
            f"{path} names {len(names)} users, more than the {users} given; give the number of all users"
        )


def _members(path: Path, line: int, cells: list[str], names: list[str]) -> IntArray:
    """Return who took part, from a row of 0 and 1."""
    if not _CELLS.issuperset(cells):
        bad = next(index for index, cell in enumerate(cells) if cell not in _CELLS)
        raise UsageError(f"{path}, line {line}: the user {names[bad]!r} has {cells[bad]!r}; write 0 or 1")
    return np.flatnonzero(np.frombuffer("".join(cells).encode(), dtype=np.uint8) == ord("1")).astype(np.int32)
