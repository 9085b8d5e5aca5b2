"""`audit`: what has a federation given away, from its log, its run's folder, or its ledger?

This is the call that `coterie.audit` names. What reads files is imported when there is a file to read.

In: a log's file, a run's folder, a ledger or a log at hand.
Out: a `Verdict`.
"""

import math
import os
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coterie.errors import UsageError
from coterie.leakage import Evidence, Provenance, Question, Verdict, examine
from coterie.values import BatchPlan, IntArray, LogBuilder, ParticipationLog

if TYPE_CHECKING:
    from coterie.federation.ledger import Snapshot

__all__ = ["audit"]

SECONDS = 10.0
"""For the forecast and for narrowing the weak level, unless another budget is given."""
_SQLITE = b"SQLite format 3\0"  # how every file of SQLite's begins


def audit(
    log: str | os.PathLike[str] | ParticipationLog | Evidence,
    *,
    users: int | None = None,
    rounds: int | None = None,
    plan: BatchPlan | str | os.PathLike[str] | None = None,
    window: int | None = None,
    colluders: int | str | Iterable[str] = 0,
    require: int | None = None,
    budget: float = SECONDS,
    seed: int = 0,
    all_combinations: bool = False,
    round_column: str | None = None,
    user_column: str | None = None,
    delimiter: str | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    progress: Callable[[str], None] = lambda _: None,
) -> Verdict:
    """Say what a federation has given away, with proofs.

    `log` is the file of a log, a run's folder, a ledger (its file or PostgreSQL URL), a log that was read, or
    evidence. `users` and `rounds` say how many there are in all, also those that a log cannot show. The log is
    held against a `plan` (a ledger brings its own). `window` asks for the worst so many rounds in a row.
    `colluders` tell the server their updates: how many, wherever they stand, or who. `require` is the strong
    level that must be proven. `budget` are seconds for the forecast and the weak level. `seed` decides what is
    drawn, and no proof. Combinations are computed for 20 isolated users, or all. `round_column`, `user_column` and
    `delimiter` say how to read a file where that is guessed wrongly. `should_stop` is asked whether to end early,
    with what is proven so far; `progress` is told what is being done.

    >>> log = ParticipationLog.from_dense([[1, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1]], names=list("abcdef"))
    >>> verdict = audit(log, require=3)
    >>> verdict.met, verdict.strong, verdict.words.headline
    (True, 3, 'The required level of 3 is met: users hide in groups of at least 3.')
    >>> audit(log, colluders=["a", "b"]).strong, audit(log, colluders=1).strong_left
    (1, 2)
    """
    if not 0 <= budget < math.inf:
        raise UsageError(f"the budget is {budget}; give seconds, 0 or more")
    if not isinstance(log, str | os.PathLike | ParticipationLog | Evidence):
        raise UsageError(
            f"the log is {log!r:.40}; give the path of a log, a run's folder or a ledger, or a ParticipationLog"
        )
    if isinstance(log, ParticipationLog | Evidence):
        evidence, everyone = _from_log(log, rounds)
    else:
        columns = {"round_column": round_column, "user_column": user_column, "delimiter": delimiter}
        evidence, everyone = _from_place(log, rounds, columns)
    if users is not None and users < everyone:
        raise UsageError(
            f"the number of users is {users}, but the log has {everyone}; give the number of all users"
        )
    if plan is not None:
        evidence = _with_plan(evidence, plan)
    names = (colluders,) if isinstance(colluders, str) else () if isinstance(colluders, int) else tuple(colluders)
    question = Question(
        users=everyone if users is None else users,
        window=window,
        colluders=colluders if isinstance(colluders, int) else 0,
        named_colluders=_user_numbers(names, evidence.log),
        required=require,
        combinations=None if all_combinations else Question.combinations,
    )
    return examine(
        evidence,
        question,
        rng=np.random.default_rng(seed),
        time_left=_countdown(budget),
        should_stop=should_stop,
        tell=progress,
    )


def _from_log(log: ParticipationLog | Evidence, rounds: int | None) -> tuple[Evidence, int]:
    """Return the evidence of a log that was read already, and the number of all users."""
    evidence, everyone = (log, log.log.users) if isinstance(log, Evidence) else with_names(log)
    if rounds is None:
        return evidence, everyone
    if rounds < evidence.log.rounds:
        raise UsageError(
            f"the log has {evidence.log.rounds} rounds, more than the {rounds} given; give that of all"
        )
    return replace(evidence, log=replace(evidence.log, rounds=rounds)), everyone


def _with_plan(evidence: Evidence, plan: BatchPlan | str | os.PathLike[str]) -> Evidence:
    """Return evidence that is held against another plan, user by user of the same name."""
    if not isinstance(plan, BatchPlan):
        from coterie.selection.plan_file import read_plan

        plan = read_plan(plan)
    numbers = plan_numbers(evidence.log, plan)
    return replace(evidence, plan=plan, plan_numbers=numbers, plan_since=0, sealed=False)


def _user_numbers(names: Iterable[str], log: ParticipationLog) -> tuple[int, ...]:
    """Return the numbers of the colluders who are named."""
    number = {name: index for index, name in enumerate(log.names or ())}
    for name in names:
        if name not in number:
            raise UsageError(f"{name!r} is to collude but is not in the log; give names as the log writes them")
    return tuple(sorted({number[name] for name in names}))


def _countdown(seconds: float) -> Callable[[], float]:
    """Return a clock of the seconds that are left, which starts at the first look."""
    end = cache(lambda: time.monotonic() + seconds)
    return lambda: end() - time.monotonic()


def _from_place(
    place: str | os.PathLike[str], rounds: int | None, columns: Mapping[str, Any]
) -> tuple[Evidence, int]:
    """Return what the server learned, as the place tells it, and the number of all users.

    `columns` are the options of `read_log` for what it guesses wrongly.
    """
    from coterie.federation.ledger.store import FILE, is_postgres_url
    from coterie.leakage.readers import read_log

    path = Path(place)
    url = is_postgres_url(place)
    scheme, mark, _ = str(place).partition("://")
    if mark and not url:  # the rest may hold a password
        raise UsageError(f"{scheme}:// cannot be read; fetch the log and give its file, or a postgresql:// URL")
    if not url and path.is_dir() and not (path / FILE).exists():
        raise UsageError(f"{path} is not a run's folder: it has no {FILE}; give a log, or a ledger")
    if url or path.is_dir() or _is_ledger(path):
        if any(value is not None for value in columns.values()):
            raise UsageError(f"{path} is a ledger, which has no columns; leave the options for columns out")
        return _from_ledger(place, rounds)
    file = read_log(place, rounds=rounds, **columns)
    understanding = file.understanding
    notes = () if understanding.exact else tuple(understanding.sentences())
    warnings = (*understanding.warnings, *_like_names(file.log.names or ()))
    return with_names(file.log, Provenance(file.name, file.sha256, notes=notes, warnings=warnings))


def with_names(log: ParticipationLog, source: Provenance | None = None) -> tuple[Evidence, int]:
    """Give users without a name their number as one; of these only those who took part stay in the log."""
    if log.names is not None:
        return Evidence(log, source=source), log.users
    named = replace(log.only(log.participants), names=tuple(map(str, log.participants.tolist())))
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
    from coterie.files import reading

    with reading(path), path.open("rb") as file:
        return file.read(len(_SQLITE)) == _SQLITE


def _from_ledger(place: str | os.PathLike[str], rounds: int | None) -> tuple[Evidence, int]:
    """Read a ledger once: its sums, the rounds of which they are not known, its plan, and whether it is sealed."""
    from coterie.federation.ledger import Ledger

    with Ledger.open(place, read_only=True) as ledger:
        address, snapshot = ledger.place, ledger.snapshot()
    if rounds is not None and rounds != snapshot.next_round:
        raise UsageError(f"{rounds} rounds were given, but {address} has {snapshot.next_round}; leave them out")
    return evidence_of(snapshot, address), snapshot.users


def evidence_of(snapshot: "Snapshot", address: str) -> Evidence:
    """Return what the rounds of a snapshot show, of the ledger at an address."""
    builder = LogBuilder(snapshot.users, snapshot.names)
    plan_since, sealed = 0, False
    for each in snapshot.rounds:
        builder.append(*(each.learned if each.unknown else each.exposure))
        if each.cohort is not None:
            sealed = each.sealed
        if each.plan < snapshot.plan_number:
            plan_since = each.number + 1
    log, plan = builder.build(), snapshot.plan
    return Evidence(
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


def plan_numbers(log: ParticipationLog, plan: BatchPlan) -> IntArray:
    """Return each user's number in the plan, found by name, -1 for a user it does not have."""
    number = {name: index for index, name in enumerate(plan.names or map(str, range(plan.users)))}
    names = log.names if log.names is not None else map(str, range(log.users))
    numbers = np.array([number.get(name, -1) for name in names], dtype=np.int64)
    if len(numbers) and np.all(numbers < 0):
        raise UsageError("no user of the log is in the plan; give the plan of this log, with the same names")
    return numbers
