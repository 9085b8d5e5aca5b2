"""Tables that are not long: matrices with a column for each user or round, and lists of a round's users."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from coterie.errors import UsageError
from coterie.logs.columns import MARKS, YES_NO, Choice, Rounds, number_rounds
from coterie.logs.rows import Rows, check_names, check_rows, check_user_count, place_of, span, with_unseen
from coterie.logs.source import Reading
from coterie.logs.table import LogTable, TableLayout, describe_columns
from coterie.values import IntArray, ParticipationLog

_BITS = {"0", "1"}


def read_wide(table: LogTable, layout: TableLayout, choice: Choice) -> Reading:
    """Read a log from a table with a column for each user."""
    place, columns = layout.round, layout.users
    names = [table.header[column] for column in columns]
    whole = len(columns) == len(table.header) - (place is not None)
    _check_users(table, names, choice.users)
    texts: dict[str, int] = {}
    labels: list[int] = []
    lines, sets = [np.zeros(0, dtype=np.int64)], []
    for piece_lines, rows in table.pieces():
        lines.append(piece_lines)
        for line, row in zip(piece_lines.tolist(), rows, strict=True):
            if place is not None:
                labels.append(texts.setdefault(row[place], len(texts)))
                cells = row[:place] + row[place + 1 :] if whole else [row[column] for column in columns]
            else:
                cells = row
            sets.append(_members(table.name, line, cells, names))
    where = np.concatenate(lines)
    numbering = _rounds(table, place, list(texts), labels, where)
    numbers = numbering.numbers
    first, length = span(table.name, numbers, choice.rounds, lambda row: place_of(table.name, where, row))
    order = [index for index in np.argsort(numbers, kind="stable").tolist() if len(sets[index])]
    everyone = with_unseen(table.name, names, choice.users) if table.has_header else None
    users = choice.users or len(names) if everyone is None else len(everyone)
    learned = [sets[index] for index in order]
    log = ParticipationLog.from_sets(users, length, numbers[order], learned, names=everyone, first=first)
    used = {*columns, place}
    understanding = describe_columns(table, layout, numbering.rule)
    return log, replace(
        understanding,
        ignored_columns=tuple(name for column, name in enumerate(table.header) if column not in used),
        exact=numbering.exact and understanding.round_column == "round" and understanding.delimiter == ",",
    )


def read_transposed(table: LogTable, layout: TableLayout, choice: Choice) -> Reading:
    """Read a log from a table with a row for each user and a column for each round."""
    place = layout.user or 0
    labels = [name for column, name in enumerate(table.header) if column != place]
    columns = np.arange(len(labels))
    numbering = number_rounds("the header", labels, columns, columns, lambda _: table.place)
    names: list[str] = []
    members: list[IntArray] = []
    for piece_lines, rows in table.pieces():
        for line, row in zip(piece_lines.tolist(), rows, strict=True):
            names.append(row[place])
            members.append(_members(table.name, line, row[:place] + row[place + 1 :], labels))
    _check_users(table, names, choice.users)
    first, length = span(table.name, numbering.numbers, choice.rounds, lambda _: table.place)
    took_part = np.concatenate([np.zeros(0, dtype=np.int64), *members]).astype(np.int64)
    who = np.repeat(np.arange(len(names)), [len(each) for each in members])
    order = np.lexsort((who, numbering.numbers[took_part]))
    learned = numbering.numbers[took_part][order]
    starts = np.flatnonzero(np.diff(learned, prepend=-1))
    everyone = with_unseen(table.name, names, choice.users)
    bounds = np.append(starts, len(learned))
    log = ParticipationLog(len(everyone), length, learned[starts], bounds, who[order], everyone, first)
    return log, describe_columns(
        table, layout, f"a column, numbered by {'its name' if numbering.exact else numbering.rule}"
    )


def _rounds(table: LogTable, place: int | None, texts: list[str], labels: list[int], lines: IntArray) -> Rounds:
    if place is None:
        return Rounds(np.arange(len(lines)), "each row, in the order of the file")
    rows = np.array(labels, dtype=np.int64)
    # Rows of one time are learned sets of one round; each row counts as a user of its own where times are grouped.
    return number_rounds(
        table.header[place] or str(place + 1),
        texts,
        rows,
        np.arange(len(rows)),
        lambda row: place_of(table.name, lines, row),
    )


def _check_users(table: LogTable, names: Sequence[str], users: int | None) -> None:
    check_names(names, lambda _: table.place)
    if len(set(names)) < len(names):
        twice, _ = Counter(names).most_common(1)[0]
        raise UsageError(f"{table.place}: the user {twice!r} stands there twice; give every user one name")
    check_user_count(table.name, len(names), users)


def _members(path: str, line: int, cells: list[str], names: Sequence[str]) -> IntArray:
    """Return who took part, from a row of 0 and 1 or of like words."""
    if _BITS.issuperset(cells):
        return np.flatnonzero(np.frombuffer("".join(cells).encode(), dtype=np.uint8) == ord("1")).astype(np.int32)
    words = [cell.strip().lower() for cell in cells]
    known = MARKS if set(words) <= MARKS.keys() else YES_NO
    values = [known.get(word) for word in words]
    if None in values:
        bad = values.index(None)
        raise UsageError(
            f"{path}, line {line}: the column {names[bad]!r} has {cells[bad]!r}; write 0 or 1, or true or false"
        )
    return np.flatnonzero(np.array(values, dtype=np.bool_)).astype(np.int32)


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
                "give every set of a round a number of its own"
            )
        count[round_] = count.get(round_, 0) + 1
    return numbers


def table_sets(table: LogTable, layout: TableLayout) -> list[LearnedSet]:
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
