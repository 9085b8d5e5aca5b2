"""Learned sets with their users in a list: from JSON in its several forms, and from cells of a table."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from coterie.errors import UsageError
from coterie.logs.rounds import Rounds, number_rounds
from coterie.logs.rows import Rows, check_rows, place_of
from coterie.logs.table import Table, TableLayout
from coterie.values import IntArray


@dataclass(frozen=True)
class LearnedSet:
    """The users of a learned set, the round as the file writes it, and where it stands."""

    line: int
    round: str
    users: Sequence[str]
    number: int | None = None
    """Which one of its round, if the file says so."""


def sets_rows(name: str, column: str, sets: list[LearnedSet], unit: str = "line") -> tuple[Rows, Rounds]:
    """Return learned sets as the rows that they would be in a long table."""
    check_rows(name, len(sets))
    numbers: dict[str, int] = {}
    rounds: dict[str, int] = {}
    members: list[IntArray] = []
    for each in sets:
        if not each.users:
            raise UsageError(f"{name}, {unit} {each.line}: a learned set has no users; leave it out")
        users = [numbers.setdefault(user, len(numbers)) for user in each.users]
        members.append(np.array(users, dtype=np.int64))
    labels = np.array([rounds.setdefault(each.round, len(rounds)) for each in sets], dtype=np.int64)
    lines = np.array([each.line for each in sets])
    # Each set counts as a user of its own where times are grouped into rounds.
    numbering = number_rounds(
        column, list(rounds), labels, np.arange(len(sets)), lambda row: place_of(name, lines, row, unit)
    )
    sizes = [len(users) for users in members]
    return Rows(
        name,
        rounds=np.repeat(numbering.numbers, sizes),
        sets=np.repeat(places(name, sets, numbering.numbers), sizes),
        users=np.concatenate(members),
        names=list(numbers),
        lines=np.repeat(lines, sizes),
        unit=unit,
    ), numbering


def places(name: str, sets: Sequence[LearnedSet], rounds: IntArray) -> IntArray:
    """Return the number of each set among those of its round: the one it has, else the next."""
    seen: dict[tuple[int, int], int] = {}
    count: dict[int, int] = {}
    numbers = np.empty(len(sets), dtype=np.int64)
    for index, (each, round_) in enumerate(zip(sets, rounds.tolist(), strict=True)):
        numbers[index] = count.get(round_, 0) if each.number is None else each.number
        before = seen.setdefault((round_, int(numbers[index])), each.line)
        if before != each.line:
            raise UsageError(
                f"{name}, line {each.line}: round {round_} has its set {numbers[index]} in line {before} already; "
                "give "
                f"every set of a round a number of its own"
            )
        count[round_] = count.get(round_, 0) + 1
    return numbers


def table_sets(table: Table, layout: TableLayout) -> list[LearnedSet]:
    """Return the learned sets of a table with a column of lists, such as `3,"[ann, bob]"` or `3,ann;bob`."""
    place = layout.user or 0
    return [
        LearnedSet(line, str(line) if layout.round is None else row[layout.round], _split_list(row[place]))
        for lines, rows in table.pieces()
        for line, row in zip(lines.tolist(), rows, strict=True)
        if row[place].strip(" []{}()")
    ]


def _split_list(cell: str) -> list[str]:
    """Return the users of a cell, without the brackets and quotes of a printed list."""
    inside = cell.strip().strip("[]{}()")
    parts = re.split(r"\s*[,;|]\s*" if re.search(r"[,;|]", inside) else r"\s+", inside.strip())
    return [part.strip().strip("'\"") for part in parts if part.strip()]
