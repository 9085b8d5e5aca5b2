"""The layouts of a log, each made into rows: long, wide, transposed, and lists of the users of a round."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from coterie.errors import UsageError
from coterie.leakage.readers.columns import (
    MARKS,
    OUTCOMES,
    YES_NO,
    Choice,
    Rounds,
    coded,
    number_rounds,
    number_sets,
    position,
)
from coterie.leakage.readers.rows import Rows, UserOrder, check_names, check_rows, participation_log, places_in
from coterie.leakage.readers.source import Understanding
from coterie.leakage.readers.table import Column, LogTable, TableLayout, guess_layout
from coterie.values import BoolArray, IntArray, ParticipationLog

_BITS = {"0", "1"}
_VALUES_SHOWN = 4
_NOBODY: IntArray = np.zeros(0, dtype=np.int32)
_ROW_BY_ROW = "each row, in the order of the file"


@dataclass(frozen=True)
class LearnedSet:
    """The users of a learned set, the round as the file writes it, and where it stands."""

    line: int
    round: str
    users: Sequence[str]
    number: int | None = None
    """Which one of its round, if the file says so."""


@dataclass(frozen=True)
class Sets:
    """Learned sets, and what was understood of them; without a rule there, the names of rounds make one."""

    name: str
    sets: list[LearnedSet]
    understanding: Understanding
    unit: str = "entry"


def content_log(content: LogTable | Sets, choice: Choice) -> tuple[ParticipationLog, Understanding]:
    """Make the log of a file's content, whatever its layout, and say what was understood."""
    rows, understanding = sets_rows(content) if isinstance(content, Sets) else table_rows(content, choice)
    log, duplicates, warnings = participation_log(rows, choice.users, choice.rounds)
    return log, replace(understanding, duplicates=duplicates, warnings=(*understanding.warnings, *warnings))


def table_rows(table: LogTable, choice: Choice) -> tuple[Rows, Understanding]:
    """Return the rows of a table, whose layout is guessed."""
    layout = guess_layout(table, choice)
    match layout.form:
        case "wide":
            return wide_rows(table, layout)
        case "transposed":
            return transposed_rows(table, layout)
        case "sets":
            return sets_rows(table_sets(table, layout))
    return long_rows(table, layout)


def _understanding(table: LogTable, layout: TableLayout, rule: str, **more: Any) -> Understanding:  # noqa: ANN401
    """Say what was understood of a table's columns, and what more there is to say."""
    used = {layout.round, layout.user, layout.set, layout.participation, *layout.users}
    unused = tuple(name for column, name in enumerate(table.header) if column not in used)

    def name_of(column: int | None) -> str | None:
        return None if column is None else table.header[column] or str(column + 1)

    return Understanding(
        table.syntax,
        layout.form,
        rule,
        round_column=name_of(layout.round),
        user_column=name_of(layout.user),
        set_column=name_of(layout.set),
        delimiter=table.delimiter,
        ignored_columns=unused if layout.form != "transposed" else (),
        **more,
    )


def _column(table: LogTable, index: int) -> str:
    """Return what to call a column of a table."""
    return f"the column {table.header[index] or str(index + 1)!r}"


# --- a row for each user and round --------------------------------------------------------------------------


def long_rows(table: LogTable, layout: TableLayout) -> tuple[Rows, Understanding]:
    """Return the rows of a table with a row for each user and round."""
    round_, user = layout.round or 0, layout.user or 0
    outcome = position(table.header, OUTCOMES)
    outcome = None if outcome in {round_, user} else outcome
    columns, lines = table.columns(round_, user, layout.set, layout.participation, other=outcome)
    count = len(columns[user][1])
    if layout.participation is not None:
        took_part = _took_part(table, layout.participation, columns[layout.participation], lines)
        columns = {index: _only_rows(column, took_part) for index, column in columns.items()}
        lines = np.flatnonzero(took_part) + 1 if lines is None else lines[took_part]
    (labels, codes), (names, users) = columns[round_], columns[user]
    check_rows(table.name, len(users))
    place = places_in(table.name, lines, table.unit)
    rounds = number_rounds(_column(table, round_), labels, codes, users, place)
    plain = {name for name in table.header if name in {"round", "user", "set"}}
    understanding = _understanding(
        table,
        layout,
        rounds.rule,
        left_out=count - len(users),
        warnings=() if outcome is None else tuple(_warnings(table.header[outcome], columns[outcome][0])),
        exact=rounds.exact and len(plain) == len(table.header) and table.delimiter in {",", None},
    )
    sets = None if layout.set is None else number_sets(*columns[layout.set])
    return Rows(table.name, rounds.numbers, place, users, names, sets), understanding


def _took_part(table: LogTable, column: int, content: Column, lines: IntArray | None) -> BoolArray:
    """Return which rows' users took part, as a column says."""
    texts, codes = content
    values = [YES_NO.get(text.strip().lower()) for text in texts]
    if None in values:
        bad = values.index(None)
        place = places_in(table.name, lines, table.unit)(int(np.argmax(codes == bad)))
        raise UsageError(
            f"{place}: the column {table.header[column]!r} has {texts[bad]!r}; write 0 or 1, true or false"
        )
    return np.array(values, dtype=np.bool_)[codes]


def _only_rows(column: Column, rows: BoolArray) -> Column:
    """Return some rows of a column, without the texts that stand in none of them."""
    texts, codes = column
    used, first, places = np.unique(codes[rows], return_index=True, return_inverse=True)
    order = np.argsort(first)
    return [texts[code] for code in used[order].tolist()], np.argsort(order)[places]


def _warnings(outcome: str, values: list[str]) -> Iterator[str]:
    """Warn of a column that was not used, if it may say that users did not take part after all."""
    if len(values) > 1:
        more = " …" if len(values) > _VALUES_SHOWN else ""
        yield (
            f"the column {outcome!r} ({', '.join(map(repr, values[:_VALUES_SHOWN]))}{more}) was not used; if it "
            "marks users who did not take part in the end, remove their rows"
        )


# --- a column for each user, or for each round --------------------------------------------------------------


def wide_rows(table: LogTable, layout: TableLayout) -> tuple[Rows, Understanding]:
    """Return the rows of a table with a column for each user: each of its rows is a learned set."""
    place, columns = layout.round, layout.users
    names = [table.header[column] for column in columns]
    whole = len(columns) == len(table.header) - (place is not None)
    _check_users(table, names)
    labels: list[str] = []
    lines: list[int] = []
    members: list[IntArray] = []
    for line, row in table.rows():
        cells = row
        if place is not None:
            labels.append(row[place])
            cells = row[:place] + row[place + 1 :] if whole else [row[column] for column in columns]
        lines.append(line)
        members.append(_members(f"{table.name}, {table.unit} {line}", cells, names))
    origin = places_in(table.name, np.array(lines), table.unit)
    each = np.arange(len(members))
    if place is None:
        numbering = Rounds(each, _ROW_BY_ROW)
    else:
        # Rows of one time are learned sets of one round; each counts as a user of its own where times are grouped.
        numbering = number_rounds(_column(table, place), *coded(labels), each, origin)
    exact = numbering.exact and place is not None and table.header[place] == "round" and table.delimiter == ","
    where, sets, users = _set_rows(numbering, members, each)
    order: UserOrder = "file" if table.has_header else "number"
    rows = Rows(table.name, numbering.numbers, origin, users, names, sets, where, order)
    return rows, _understanding(table, layout, numbering.rule, exact=exact)


def transposed_rows(table: LogTable, layout: TableLayout) -> tuple[Rows, Understanding]:
    """Return the rows of a table with a row for each user and a column for each round."""
    place = layout.user or 0
    labels = [name for column, name in enumerate(table.header) if column != place]
    columns = np.arange(len(labels))

    def origin(_: int) -> str:
        return table.place

    numbering = number_rounds("the header", labels, columns, columns, origin)
    names: list[str] = []
    rounds: list[IntArray] = []
    for line, row in table.rows():
        names.append(row[place])
        rounds.append(_members(f"{table.name}, {table.unit} {line}", row[:place] + row[place + 1 :], labels))
    _check_users(table, names)
    users, where = np.repeat(np.arange(len(names)), [*map(len, rounds)]), np.concatenate([_NOBODY, *rounds])
    rule = f"a column, numbered by {'its name' if numbering.exact else numbering.rule}"
    # Columns of one round are learned sets of their own, as rows of one round of a matrix are.
    sets = where if len(np.unique(numbering.numbers)) < len(labels) else None
    rows = Rows(table.name, numbering.numbers, origin, users, names, sets, where, "file")
    return rows, _understanding(table, layout, rule)


def _check_users(table: LogTable, names: Sequence[str]) -> None:
    check_names(names, lambda _: table.place)
    if len(set(names)) < len(names):
        twice, _ = Counter(names).most_common(1)[0]
        raise UsageError(f"{table.place}: the user {twice!r} stands there twice; give every user one name")


def _members(place: str, cells: list[str], names: Sequence[str]) -> IntArray:
    """Return which columns of a row of 0 and 1, or of like words, say that someone took part."""
    if _BITS.issuperset(cells):
        return np.flatnonzero(np.frombuffer("".join(cells).encode(), dtype=np.uint8) == ord("1")).astype(np.int32)
    words = [cell.strip().lower() for cell in cells]
    known = MARKS if set(words) <= MARKS.keys() else YES_NO
    values = [known.get(word) for word in words]
    if None in values:
        bad = values.index(None)
        raise UsageError(f"{place}: the column {names[bad]!r} has {cells[bad]!r}; write 0 or 1, or true or false")
    return np.flatnonzero(np.array(values, dtype=np.bool_)).astype(np.int32)


# --- the users of a round in a list -------------------------------------------------------------------------


def sets_rows(content: Sets) -> tuple[Rows, Understanding]:
    """Return learned sets as the rows that they would be in a long table."""
    name, sets = content.name, content.sets
    check_rows(name, len(sets))
    known: dict[str, int] = {}
    members: list[IntArray] = []
    for each in sets:
        if not each.users:
            raise UsageError(f"{name}, {content.unit} {each.line}: a learned set has no users; leave it out")
        members.append(np.array([known.setdefault(user, len(known)) for user in each.users], dtype=np.int64))
    labels, codes = coded(each.round for each in sets)
    origin = places_in(name, np.array([each.line for each in sets]), content.unit)
    # Each set counts as a user of its own where times are grouped into rounds.
    column = f"the column {content.understanding.round_column or 'round'!r}"
    numbering = number_rounds(column, labels, codes, np.arange(len(sets)), origin)
    where, numbers, users = _set_rows(numbering, members, set_places(name, sets, numbering.numbers, content.unit))
    understanding = content.understanding
    if not understanding.round_rule:
        understanding = replace(understanding, round_rule=numbering.rule)
    return Rows(name, numbering.numbers, origin, users, list(known), numbers, where), understanding


def _set_rows(
    numbering: Rounds, members: Sequence[IntArray], numbers: IntArray
) -> tuple[IntArray, IntArray | None, IntArray]:
    """Return the set, its number if a round has several, and the user of each row that makes up the sets."""
    where = np.repeat(np.arange(len(members)), [*map(len, members)])
    several = len(np.unique(numbering.numbers)) < len(members)
    return where, numbers[where] if several else None, np.concatenate([_NOBODY, *members])


def set_places(name: str, sets: Sequence[LearnedSet], rounds: IntArray, unit: str = "line") -> IntArray:
    """Return the number of each set among those of its round: the one it has, else the next."""
    seen: dict[tuple[int, int], int] = {}
    count: dict[int, int] = {}
    numbers = np.empty(len(sets), dtype=np.int64)
    for index, (each, round_) in enumerate(zip(sets, rounds.tolist(), strict=True)):
        numbers[index] = count.get(round_, 0) if each.number is None else each.number
        before = seen.setdefault((round_, int(numbers[index])), each.line)
        if before != each.line:
            raise UsageError(
                f"{name}, {unit} {each.line}: round {round_} has its set {numbers[index]} in {unit} {before} "
                "already; give every set of a round a number of its own"
            )
        count[round_] = count.get(round_, 0) + 1
    return numbers


def table_sets(table: LogTable, layout: TableLayout) -> Sets:
    """Return the learned sets of a table with a column of lists, such as `3,"[ann, bob]"` or `3,ann;bob`."""
    if table.column is not None:
        raise UsageError(f"{table.name} has its users in lists; give a row for each user and round")
    place, round_ = layout.user or 0, layout.round
    sets = [
        LearnedSet(line, str(index) if round_ is None else row[round_], _split_list(row[place]))
        for index, (line, row) in enumerate(table.rows())
        if row[place].strip(" []{}()")
    ]
    understanding = _understanding(table, layout, _ROW_BY_ROW if round_ is None else "")
    return Sets(table.name, sets, understanding, table.unit)


def _split_list(cell: str) -> list[str]:
    """Return the users of a cell, without the brackets and quotes of a printed list."""
    inside = cell.strip().strip("[]{}()")
    parts = re.split(r"\s*[,;|]\s*" if re.search(r"[,;|]", inside) else r"\s+", inside.strip())
    return [part.strip().strip("'\"") for part in parts if part.strip()]
