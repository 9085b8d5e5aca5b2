"""What the columns of a table say: the form of a log, and which columns hold the round and the user."""

from coterie.errors import UsageError
from coterie.logs.columns import (
    LISTS,
    PARTICIPATIONS,
    ROUNDS,
    SETS,
    TIMES,
    USERS,
    WEAK_USERS,
    Choice,
    column_named,
    name_columns,
    position,
    truth,
)
from coterie.logs.rounds import looks_like_round, names_round
from coterie.logs.rows import check_rows
from coterie.logs.table import Table, TableLayout

_SEVERAL = 2
_MOST_BESIDE = 3


def guess_layout(table: Table, choice: Choice) -> TableLayout:
    """Guess what the columns of a table say; refuse where there is more than one way to guess."""
    header, rows = table.header, table.first_rows()
    check_rows(table.name, len(rows) if header else 0)
    round_, user = _named(table, choice)
    time = position(header, TIMES)
    marked = [truth({row[column] for row in rows}) is not None for column in range(len(header))]
    if user is None:
        lists = position(header, LISTS)
        if lists is not None:
            return TableLayout("sets", _first(round_, time), lists)
        wide = _wide(table, _first(round_, time), rows[0], marked)
        if wide is not None:
            return wide
    user = _first(user, position(header, WEAK_USERS))
    if user is not None and round_ is None and _transposed(header, user, marked):
        return TableLayout("transposed", user=user)
    round_, user = _by_content(table, rows, _first(round_, time), user)
    _check_once(table, round_, user)
    participation = position(header, PARTICIPATIONS)
    return TableLayout(
        "long",
        round_,
        user,
        position(header, SETS),
        participation if participation not in {round_, user} else None,
    )


def _named(table: Table, choice: Choice) -> tuple[int | None, int | None]:
    """Return the columns of round and user whose names say so: those that the caller gives, else known ones."""
    round_, user = position(table.header, ROUNDS), position(table.header, USERS)
    if choice.round_column is not None:
        round_ = column_named(table.place, table.header, choice.round_column, "--round-column")
    if choice.user_column is not None:
        user = column_named(table.place, table.header, choice.user_column, "--user-column")
    if round_ is not None and round_ == user:
        if choice.round_column is None:
            return None, user
        if choice.user_column is None:
            return round_, None
        raise UsageError(f"{table.place}: --round-column and --user-column both name {table.header[user]!r}")
    return round_, user


def _first(*columns: int | None) -> int | None:
    return next((column for column in columns if column is not None), None)


def _wide(table: Table, round_: int | None, first: list[str], marked: list[bool]) -> TableLayout | None:
    """Return the layout of a column for each user, if the table has it."""
    header = table.header
    if round_ is None and table.headed and header[0].lower() in {"", "index", "unnamed: 0"}:
        round_ = 0
    others = [column for column in range(len(header)) if column != round_]
    if not others or position(header, SETS) is not None or (not table.headed and len(header) <= _SEVERAL):
        return None
    if truth({first[column] for column in others}) is not None:
        return TableLayout("wide", round_, users=tuple(others))
    # Other columns may stand beside those of many users.
    users = [column for column in others if marked[column]]
    if round_ is not None and len(users) >= max(_SEVERAL, len(others) - _MOST_BESIDE):
        return TableLayout("wide", round_, users=tuple(users))
    return None


def _transposed(header: tuple[str, ...], user: int, marked: list[bool]) -> bool:
    others = [column for column in range(len(header)) if column != user]
    return len(others) >= _SEVERAL and all(marked[column] and names_round(header[column]) for column in others)


def _by_content(table: Table, rows: list[list[str]], round_: int | None, user: int | None) -> tuple[int, int]:
    """Find the round or the user, whose column has no known name, by what the columns hold."""
    columns = range(len(table.header))
    if round_ is None:
        likely = [c for c in columns if c != user and all(looks_like_round(row[c]) for row in rows)]
        if len(likely) == 1 or (not table.headed and len(columns) == _SEVERAL and likely):
            round_ = likely[0]
        else:
            raise UsageError(
                f"{table.place}: no column is known to hold the round; {name_columns(table.header)}: say which "
                "one it "
                "is with "
                f"--round-column"
            )
    if user is None:
        set_ = position(table.header, SETS)
        others = [column for column in columns if column not in {round_, set_}]
        if len(others) != 1:
            raise UsageError(
                f"{table.place}: no column is known to hold the user; {name_columns(table.header)}: say which "
                "one it "
                "is with "
                f"--user-column"
            )
        user = others[0]
    return round_, user


def _check_once(table: Table, *columns: int) -> None:
    for column in columns:
        if table.headed and table.header.count(table.header[column]) > 1:
            raise UsageError(
                f"{table.place}: the column {table.header[column]!r} stands there twice; say by its number, "
                "counted from "
                f"1, which one is meant: --round-column or --user-column"
            )
