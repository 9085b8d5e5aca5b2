"""Which column of a table says the round, which the user: by their names, else by what they hold."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from coterie.errors import UsageError

# In the order of trust: the first name that a table has is taken.
ROUNDS = (
    "round", "server_round", "round_number", "round_num", "round_no", "round_id", "round_idx", "round_index",
    "fl_round", "current_round", "comm_round", "communication_round", "global_round", "training_round", "rnd",
    "iteration", "iter", "global_epoch", "epoch", "global_step", "step",
)  # fmt: skip
TIMES = (
    "timestamp", "time_stamp", "datetime", "date_time", "time", "ts", "event_time", "completed_at", "finished_at",
    "ended_at", "end_time", "logged_at", "created_at", "started_at", "start_time", "date", "day",
)  # fmt: skip
USERS = (
    "user", "user_id", "user_name", "client", "client_id", "cid", "client_name", "participant", "participant_id",
    "device", "device_id", "node", "node_id", "partition_id",
)  # fmt: skip
WEAK_USERS = (
    "party", "party_id", "member", "member_id", "worker", "worker_id", "site", "site_id", "hospital", "name", "id",
)  # fmt: skip
"""Names of a user's column that may also be those of users themselves."""
LISTS = (
    "users", "user_ids", "clients", "client_ids", "cids", "participants", "participant_ids", "devices",
    "device_ids", "nodes", "node_ids", "members", "cohort", "selected_clients", "sampled_clients", "parties",
    "sites", "workers",
)  # fmt: skip
"""Columns that hold all users of a round in a list."""
SETS = ("set", "set_id", "learned_set")
PARTICIPATIONS = (
    "participated", "participates", "participation", "took_part", "included", "aggregated", "contributed",
)  # fmt: skip
"""Columns that say whether the user of the row took part."""
OUTCOMES = (
    "status", "state", "outcome", "result", "success", "succeeded", "completed", "selected", "dropped", "failed",
    "event",
)  # fmt: skip
"""Columns that may say that the user of the row did not take part after all."""

YES_NO = {"0": False, "1": True, "0.0": False, "1.0": True, "false": False, "true": True, "no": False, "yes": True}
MARKS = {"": False, "x": True}


@dataclass(frozen=True)
class Choice:
    """Columns that the caller names, in the command line or in Python, where the guess is wrong."""

    round_column: str | None = None
    user_column: str | None = None
    delimiter: str | None = None


def position(header: Sequence[str], names: Sequence[str]) -> int | None:
    """Return the first column of one of the names, whatever their case, dashes, dots and prefixes.

    >>> position(["Timestamp", "fl.Client-ID"], USERS), position(["a", "b"], USERS)
    (1, None)
    """
    places = _spellings(tuple(header))
    return next((places[name] for name in map(_plain, names) if name in places), None)


def column_named(place: str, header: Sequence[str], name: str, option: str) -> int:
    """Return the column that the caller names: by its name, or by its number, counted from 1."""
    if list(header).count(name) > 1:
        raise UsageError(f"{place}: the column {name!r} stands there twice; give its number to {option}")
    if name in header:
        return list(header).index(name)
    if name.isascii() and name.isdigit() and 1 <= int(name[:9]) <= len(header):
        return int(name) - 1
    raise UsageError(f"{place}: there is no column {name!r} for {option}; {name_columns(header)}")


def name_columns(header: Sequence[str], most: int = 12) -> str:
    """Name the columns of a table."""
    if not header:
        return "there are no columns"
    more = f" and {len(header) - most} more" if len(header) > most else ""
    return f"the columns are {', '.join(map(repr, header[:most]))}{more}"


def truth(cells: set[str]) -> dict[str, bool] | None:
    """Return how the cells of a table say who took part, or None if they do not."""
    low = {cell.strip().lower() for cell in cells}
    if low and low <= YES_NO.keys():
        return YES_NO
    return MARKS if "x" in low and low <= MARKS.keys() else None


@lru_cache(maxsize=16)
def _spellings(header: tuple[str, ...]) -> dict[str, int]:
    """Return where each plain name stands first, whole names before those without their prefix."""
    places: dict[str, int] = {}
    for spelled in (header, [re.split(r"[./:]", column)[-1] for column in header]):
        for place, column in enumerate(spelled):
            places.setdefault(_plain(column), place)
    return places


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "", name.lower())
