"""What a place holds for an audit: a log's file, a run's folder or a ledger becomes `Evidence`, read once."""

import os
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from coterie.audit import Evidence, Provenance
from coterie.errors import UsageError
from coterie.ledger import Ledger
from coterie.ledger.location import FILE, is_url
from coterie.logs import read_log
from coterie.storage.files import reading
from coterie.values import BatchPlan, IntArray, LogBuilder, ParticipationLog

_SQLITE = b"SQLite format 3\0"  # how every file of SQLite's begins


def read_evidence(
    place: str | os.PathLike[str],
    *,
    rounds: int | None = None,
    round_column: str | None = None,
    user_column: str | None = None,
    delimiter: str | None = None,
) -> tuple[Evidence, int]:
    """Return what the server learned, as the place tells it, and the number of all users.

    Users without a name get their number as one; of these, only those who took part are in the log. `rounds` is
    the number of all rounds, and the other options say what `read_log` guesses wrongly.
    """
    path = Path(place)
    if not is_url(place) and path.is_dir() and not (path / FILE).exists():
        raise UsageError(f"{path} is not a run's folder: it has no {FILE}; give a log, or a ledger")
    if is_url(place) or path.is_dir() or _is_ledger(path):
        if (round_column, user_column, delimiter) != (None, None, None):
            raise UsageError(f"{path} is a ledger, which has no columns; leave the options for columns out")
        return _from_ledger(place, rounds)
    file = read_log(place, rounds=rounds, round_column=round_column, user_column=user_column, delimiter=delimiter)
    understanding = file.understanding
    notes = () if understanding.exact else tuple(understanding.sentences())
    warnings = (*understanding.warnings, *_like_names(file.log.names or ()))
    return with_names(file.log, Provenance(file.name, file.sha256, notes=notes, warnings=warnings))


def with_names(log: ParticipationLog, source: Provenance | None = None) -> tuple[Evidence, int]:
    """Give users without a name their number as one; of these only those who took part stay in the log."""
    if log.names is not None:
        return Evidence(log, source=source), log.users
    participants, members = np.unique(log.members, return_inverse=True)
    names = tuple(map(str, participants.tolist()))
    named = ParticipationLog(len(participants), log.rounds, log.set_rounds, log.starts, members, names, log.first)
    return Evidence(named, source=source), log.users


def _like_names(names: tuple[str, ...]) -> Iterator[str]:
    """Warn of names that may be one user's: a user under two names makes the level look higher."""
    first: dict[str, str] = {}
    for name in names:
        like = first.setdefault(unicodedata.normalize("NFKC", name).strip().casefold(), name)
        if like != name:
            yield (
                f"{like!r} and {name!r} count as two users; if they are one, write them alike, or the level comes "
                "out too high"
            )
            return


def _is_ledger(path: Path) -> bool:
    if str(path) == "-":  # standard input
        return False
    with reading(path), path.open("rb") as file:
        return file.read(len(_SQLITE)) == _SQLITE


def _from_ledger(place: str | os.PathLike[str], rounds: int | None) -> tuple[Evidence, int]:
    """Read a ledger once: its sums, the rounds of which they are not known, its plan, and whether it is sealed."""
    with Ledger.open(place, read_only=True) as ledger:
        address, snapshot = ledger.place, ledger.snapshot()
    builder = LogBuilder(snapshot.users, snapshot.names)
    plan_since, sealed = 0, False
    for each in snapshot.rounds:
        builder.append(*(each.learned if each.unknown else each.exposure))
        if each.cohort is not None:
            sealed = each.sealed
        if each.plan < snapshot.plan_number:
            plan_since = each.number + 1
    log, plan = builder.build(), snapshot.plan
    if rounds is not None and rounds != log.rounds:
        raise UsageError(f"{rounds} rounds were given, but {address} has {log.rounds}; leave them out")
    evidence = Evidence(
        log,
        plain=snapshot.plain_rounds,
        unknown={each.number: each.alone for each in snapshot.rounds if each.unknown},
        assumed=snapshot.assumed_rounds,
        plan=plan,
        plan_numbers=None if plan is None else plan_numbers(log, plan),
        plan_since=plan_since,
        sealed=sealed,
        overrides=tuple(sorted(user for each in snapshot.overrides for user in each.users.tolist())),
        source=Provenance(address, snapshot.head.hash.hex(), "head"),
    )
    return evidence, log.users


def plan_numbers(log: ParticipationLog, plan: BatchPlan) -> IntArray:
    """Return each user's number in the plan, found by name, -1 for a user it does not have."""
    number = {name: index for index, name in enumerate(plan.names or map(str, range(plan.users)))}
    names = log.names if log.names is not None else map(str, range(log.users))
    numbers = np.array([number.get(name, -1) for name in names], dtype=np.int64)
    if len(numbers) and np.all(numbers < 0):
        raise UsageError("no user of the log is in the plan; give the plan of this log, with the same names")
    return numbers
